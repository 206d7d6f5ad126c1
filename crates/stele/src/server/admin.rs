//! The administration socket: the calls of [`crate::api`] over HTTP on a Unix socket.
//!
//! The mode of the socket is 0600, and a peer must be root or the user of the server. The users in `[admin] officers`
//! may connect too, for the calls that ask for an officer's key. A request is at most 1 MiB.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use tokio::net::UnixListener;

use crate::api::blocks::{Read, RestoreWrite};
use crate::api::{self, Actor, Call};
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::node::Node;

/// The user at the other end, as the kernel reports it.
#[derive(Clone, Copy, Debug)]
struct Peer(Option<u32>);

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Peer {
        Peer(stream.io().peer_cred().ok().map(|credentials| credentials.uid()))
    }
}

/// Makes a Unix socket that only this user and root may connect to. With `open`, every local user may connect, and the
/// kernel then reports the user. The caller holds the drives, so an existing socket file is left over from a killed
/// server. `setting` names the configuration setting of its path.
pub fn listen(path: &Path, setting: &str, open: bool) -> Outcome<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(io_failure("remove the old socket", path, &error));
        }
        _ => {}
    }
    // A bound socket accepts connections at once. It is therefore bound in a directory that no other user can enter,
    // gets its mode there, and then moves to its place.
    let hidden = path.with_extension("new");
    let _ = std::fs::remove_dir_all(&hidden);
    std::fs::DirBuilder::new().mode(0o700).create(&hidden).map_err(|error| io_failure("make", &hidden, &error))?;
    let listener = bind(&hidden.join("s"), path, setting, if open { 0o666 } else { 0o600 });
    let _ = std::fs::remove_dir_all(&hidden);
    listener
}

fn bind(new: &Path, path: &Path, setting: &str, mode: u32) -> Outcome<UnixListener> {
    let listener = UnixListener::bind(new).map_err(|error| {
        io_failure("listen on", path, &error)
            .next(format!("a unix socket path is at most 107 bytes; set {setting} to a shorter one"))
    })?;
    std::fs::set_permissions(new, std::fs::Permissions::from_mode(mode))
        .and_then(|()| std::fs::rename(new, path))
        .map_err(|error| io_failure("protect", path, &error))?;
    Ok(listener)
}

/// Serves until `stop` resolves.
pub async fn serve(
    listener: UnixListener,
    node: Arc<Node>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new().fallback(dispatch).layer(DefaultBodyLimit::max(1 << 20)).with_state(node);
    axum::serve(listener, router.into_make_service_with_connect_info::<Peer>()).with_graceful_shutdown(stop).await
}

type Answer<'a> = Pin<Box<dyn Future<Output = Outcome<Vec<u8>>> + Send + 'a>>;
type Handler = for<'a> fn(&'a Node, Actor, Bytes) -> Answer<'a>;

/// All calls by name.
const CALLS: &[(&str, bool, Handler)] = &[
    entry::<api::pool::Status>(),
    entry::<api::pool::Scrub>(),
    entry::<api::pool::Wash>(),
    entry::<api::pool::Replace>(),
    entry::<api::pool::Add>(),
    entry::<api::pool::Remove>(),
    entry::<api::pool::Keep>(),
    entry::<api::pool::SetDrive>(),
    entry::<api::drive::Clear>(),
    entry::<api::drive::Online>(),
    entry::<api::drive::Locate>(),
    entry::<api::drive::Wipe>(),
    entry::<api::affected::Affected>(),
    entry::<api::formats::Formats>(),
    entry::<api::top::Sample>(),
    entry::<api::volume::Create>(),
    entry::<api::volume::List>(),
    entry::<api::volume::Show>(),
    entry::<api::volume::Set>(),
    entry::<api::volume::Resize>(),
    entry::<api::volume::Snapshot>(),
    entry::<api::volume::CloneSnapshot>(),
    entry::<api::volume::Rollback>(),
    entry::<api::volume::Delete>(),
    entry::<api::blocks::Blocks>(),
    entry::<api::blocks::RestoreBegin>(),
    entry::<api::blocks::RestoreEnd>(),
    entry::<api::export::Add>(),
    entry::<api::export::Remove>(),
    entry::<api::export::Set>(),
    entry::<api::export::List>(),
    entry::<api::share::Create>(),
    entry::<api::share::List>(),
    entry::<api::share::Show>(),
    entry::<api::share::Set>(),
    entry::<api::share::Remove>(),
    entry::<api::share::Ls>(),
    entry::<api::share::ArchiveFile>(),
    entry::<api::share::Pin>(),
    entry::<api::share::Why>(),
    entry::<api::share::Mount>(),
    entry::<api::share::Unmount>(),
    entry::<api::archive::BucketCreate>(),
    entry::<api::archive::BucketSet>(),
    entry::<api::archive::BucketList>(),
    entry::<api::archive::BucketShow>(),
    entry::<api::archive::KeyCreate>(),
    entry::<api::archive::KeyList>(),
    entry::<api::archive::KeyNarrow>(),
    entry::<api::archive::KeySet>(),
    entry::<api::archive::KeyRevoke>(),
    entry::<api::archive::KeyEscrow>(),
    entry::<api::archive::KeyCheck>(),
    entry::<api::archive::ClockShow>(),
    entry::<api::archive::ClockAccept>(),
    entry::<api::approval::ClockCredit>(),
    entry::<api::approval::Requests>(),
    entry::<api::approval::Approve>(),
    entry::<api::approval::CatalogRelease>(),
    entry::<api::matters::MatterOpen>(),
    entry::<api::matters::MatterList>(),
    entry::<api::matters::MatterShow>(),
    entry::<api::matters::MatterVersions>(),
    entry::<api::matters::MatterCount>(),
    entry::<api::matters::MatterSelect>(),
    entry::<api::matters::MatterHold>(),
    entry::<api::matters::MatterClose>(),
    entry::<api::find::Find>(),
    entry::<api::classes::ClassCreate>(),
    entry::<api::classes::ClassList>(),
    entry::<api::classes::ClassActivate>(),
    entry::<api::classes::ClassBind>(),
    entry::<api::classes::ClassExpiring>(),
    entry::<api::classes::EventTell>(),
    entry::<api::classes::EventSelect>(),
    entry::<api::classes::EventRevoke>(),
    entry::<api::archive::SelfTest>(),
    entry::<api::archive::BucketInventory>(),
    entry::<api::archive::Verify>(),
    entry::<api::archive::Why>(),
    entry::<api::archive::AuditShow>(),
    entry::<api::archive::AuditHead>(),
    entry::<api::archive::AuditVerify>(),
    entry::<api::evidence::AuditProve>(),
    entry::<api::evidence::ReceiptGet>(),
    entry::<api::acts::ActList>(),
    entry::<api::acts::ActRestrict>(),
    entry::<api::acts::ClockAcceptRequest>(),
    entry::<api::acts::EscrowRequest>(),
    entry::<api::acts::DeleteRequest>(),
    entry::<api::disposal::DisposalStatus>(),
    entry::<api::disposal::DisposalPause>(),
    entry::<api::disposal::DisposalRate>(),
    entry::<api::disposal::DisposalList>(),
    entry::<api::disposal::DisposalCertify>(),
    entry::<api::evidence::ProofBegin>(),
    entry::<api::evidence::ProofNext>(),
];

const fn entry<C: Call>() -> (&'static str, bool, Handler) {
    (C::NAME, C::FOR_OFFICERS, answer::<C>)
}

fn answer<C: Call>(node: &Node, actor: Actor, body: Bytes) -> Answer<'_> {
    Box::pin(async move {
        let call: C = serde_json::from_slice(&body)
            .map_err(|error| Failure::usage(format!("the body of {} is not valid: {error}", C::NAME)))?;
        let answer = call.perform(node, &actor).await?;
        serde_json::to_vec(&answer)
            .map_err(|error| Failure::failed(format!("cannot write the answer as JSON: {error}")))
    })
}

async fn dispatch(
    State(node): State<Arc<Node>>,
    ConnectInfo(Peer(uid)): ConnectInfo<Peer>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let Some(uid) = uid.filter(|uid| *uid == 0 || node.serves_user(*uid) || node.serves_officer(*uid)) else {
        return failed(Failure::new(Kind::Refused, "only root and the user the server runs as may administer it"));
    };
    let name = uri.path().strip_prefix("/v1/").unwrap_or_default();
    if method == Method::POST && [Read::NAME, RestoreWrite::NAME].contains(&name) {
        return match content(&node, uid, name, &uri, body).await {
            Ok(bytes) => ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response(),
            Err(failure) => failed(failure),
        };
    }
    let call = CALLS.iter().find(|(known, ..)| *known == name).filter(|_| method == Method::POST);
    let Some((_, for_officers, handler)) = call else {
        return failed(
            Failure::missing(format!("the server does not know the call {method} {}", uri.path()))
                .next("the server may be older than the command; compare `stele --version`"),
        );
    };
    if !for_officers && uid != 0 && !node.serves_user(uid) {
        return failed(
            Failure::new(
                Kind::Refused,
                format!("user {uid} may use `stele approve`, `stele clock credit`, `stele matter`, `stele find`, `stele class` and `stele event` only"),
            )
            .next("[admin] officers names who may approve; root and the server's own user administer"),
        );
    }
    match handler(&node, Actor { uid }, body).await {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(failure) => failed(failure),
    }
}

/// The calls that carry the content of volumes, for root and the server's own user.
async fn content(node: &Node, uid: u32, name: &str, uri: &Uri, body: Bytes) -> Outcome<Vec<u8>> {
    if uid != 0 && !node.serves_user(uid) {
        return Err(Failure::new(Kind::Refused, "only root and the user the server runs as may read volumes"));
    }
    if name == Read::NAME {
        let read: Read = serde_json::from_slice(&body)
            .map_err(|error| Failure::usage(format!("the body of {name} is not valid: {error}")))?;
        return read.perform(node).await;
    }
    let number = |wanted: &str| {
        let query = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        let mut found = query.filter(|(key, _)| *key == wanted).map(|(_, value)| value);
        found.next().and_then(|value| value.parse::<u64>().ok())
    };
    let write = number("token").zip(number("at")).map(|(token, at)| RestoreWrite { token, at });
    let write = write.ok_or_else(|| Failure::usage(format!("{name} needs the numbers `token` and `at`")))?;
    write.perform(node, &body).await.map(|()| Vec::new())
}

fn failed(failure: Failure) -> Response {
    let status = match failure.kind {
        Kind::Failed
        | Kind::Stuck
        | Kind::Unread
        | Kind::Unsteady
        | Kind::Void
        | Kind::Partial
        | Kind::Regressed
        | Kind::Incomplete
        | Kind::NoRepository
        | Kind::Locked
        | Kind::WrongPassword
        | Kind::Interrupted => StatusCode::INTERNAL_SERVER_ERROR,
        Kind::Usage => StatusCode::BAD_REQUEST,
        Kind::Refused => StatusCode::FORBIDDEN,
        Kind::Missing => StatusCode::NOT_FOUND,
        Kind::Damaged => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Full => StatusCode::INSUFFICIENT_STORAGE,
        Kind::Busy | Kind::Exists => StatusCode::CONFLICT,
    };
    let json = serde_json::to_vec(&failure).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], json).into_response()
}
