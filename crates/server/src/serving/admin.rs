//! The administration socket: the calls of [`crate::api`] over HTTP on a Unix socket.
//!
//! The mode of the socket is 0600, and a peer must be root or the user of the server. The users in
//! `[admin] officers` may connect too, for the calls that ask for an officer's key. The socket then
//! has the mode 0666, and the kernel says who connects. A user that may not call learns that from
//! the head of a request: no body is read from it. Each user has a bound of connections, and all
//! users that may not call have one together; a request beyond it is answered with that reason. A
//! request is at most 1 MiB.
//!
//! A call that changes something is a task of its own, and goes on where its caller hangs up: its
//! outcome is recorded, and what it changes in several places is changed in all. It keeps the place
//! of its connection. A stop waits for it, for a limited time.

use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use stele_ground::counted;
use tokio::io::DuplexStream;
use tokio::net::UnixListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::http::{self, Allowance, Kept, Places};
use crate::api::approval::Officer;
use crate::api::blocks::{Read, RestoreWrite};
use crate::api::{self, Actor, Call, OFFICER_HEADER, strict};
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::node::{Node, surroundings};

/// Bytes of a request.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Time for the body of a request to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// Connections of root, and of the user of the server.
const CONNECTIONS_MAX: usize = 256;
/// Connections of each user in `[admin] officers`.
const CONNECTIONS_PER_OFFICER: usize = 16;
/// Connections of all other users together. They only learn that they are refused.
const STRANGERS_MAX: usize = 16;
/// Idle time of a connection between two requests. A backup of a volume may pause for long.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// The same for all other users.
const STRANGER_IDLE_MAX: Duration = Duration::from_secs(10);

/// Makes a Unix socket that only this user and root may connect to. With `open`, every local user
/// may connect, and the kernel then reports the user. A socket file without a listener is left over
/// from a killed server. Anything else there stays, and is refused: also a socket that is served,
/// by another program or by this one. `setting` names the configuration setting of its path.
pub fn listen(path: &Path, setting: &str, open: bool) -> Outcome<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let message = format!("{setting} = '{}' is there already and is no socket", path.display());
            return Err(Failure::new(Kind::Refused, message).next(format!("set {setting} to a path of its own")));
        }
        Ok(_) if is_served(path) => {
            let message = format!("{setting} = '{}' is a socket that is served already", path.display());
            return Err(Failure::new(Kind::Busy, message).next(format!("set {setting} to a path of its own")));
        }
        Ok(_) => std::fs::remove_file(path).map_err(|error| io_failure("remove the old socket", path, &error))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_failure("look at the old socket", path, &error)),
    }
    // A bound socket accepts connections at once. It is therefore bound in a directory that no
    // other user can enter, gets its mode there, and then moves to its place.
    let hidden = path.with_file_name(format!(".stele-{:016x}", u64::from_ne_bytes(surroundings::random())));
    std::fs::DirBuilder::new().mode(0o700).create(&hidden).map_err(|error| {
        io_failure("make the socket", path, &error)
            .or_next(format!("set {setting} to a path in a folder that is there"))
    })?;
    let new = hidden.join("s");
    let listener = bind(&new, path, setting, if open { 0o666 } else { 0o600 });
    if listener.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    let _ = std::fs::remove_dir(&hidden);
    listener
}

/// Whether a listener is behind a socket. A full queue of connections counts as one.
fn is_served(path: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let Ok(probe) = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else { return false };
    matches!(connect(&probe, &address), Ok(()) | Err(rustix::io::Errno::AGAIN))
}

/// Removes the socket of a server that stops. What another put there meanwhile stays.
pub fn remove(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        let _ = std::fs::remove_file(path);
    }
}

fn bind(new: &Path, path: &Path, setting: &str, mode: u32) -> Outcome<UnixListener> {
    let listener = UnixListener::bind(new).map_err(|error| {
        io_failure("listen on", path, &error)
            .or_next(format!("a unix socket path is at most 107 bytes; set {setting} to a shorter one"))
    })?;
    std::fs::set_permissions(new, std::fs::Permissions::from_mode(mode))
        .and_then(|()| std::fs::rename(new, path))
        .map_err(|error| io_failure("protect", path, &error))?;
    Ok(listener)
}

/// Serves until `stopping` is true, and waits for the calls under way.
pub async fn serve(listener: UnixListener, node: Arc<Node>, stopping: watch::Receiver<bool>) {
    let known = Arc::clone(&node);
    let allow = move |user: Option<u32>| match user {
        Some(user) => allowance(user, user == 0 || known.serves_user(user), known.serves_officer(user)),
        None => allowance(u32::MAX, false, false),
    };
    let calls = Arc::new(Calls::default());
    let running = Arc::clone(&calls);
    let answer = move |user, request, place| dispatch(Arc::clone(&node), user, request, Arc::clone(&running), place);
    http::serve_unix(listener, allow, turned_away, answer, stopping).await;
    calls.finish().await;
}

/// Serves a connection in memory, as one of this user at the socket. It takes none of the places
/// there, so a self-test proves something while commands have all of them.
pub async fn serve_in_memory(stream: DuplexStream, node: Arc<Node>, user: u32) {
    let (_stop, stopping) = watch::channel(false);
    let Some(place) = Arc::new(Places::default()).enter(Some(user), 1, 1).map(Arc::new) else { return };
    let calls = Arc::new(Calls::default());
    let answer = |request| dispatch(Arc::clone(&node), Some(user), request, Arc::clone(&calls), Arc::clone(&place));
    http::converse(stream, IDLE_MAX, answer, stopping).await;
    calls.finish().await;
}

/// The calls under way, each a task. They end with this.
#[derive(Default)]
struct Calls(Mutex<JoinSet<()>>);

impl Calls {
    /// Runs a call to its end, whether or not its caller waits. It keeps the place of its
    /// connection, so that a caller who hangs up has no more calls under way than one who waits.
    fn run<C>(&self, call: C, place: Kept) -> impl Future<Output = Response> + use<C>
    where
        C: Future<Output = Response> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            let _ = answer.send(call.await);
            drop(place);
        });
        async move { answered.await.unwrap_or_else(|_| failed(broken_off())) }
    }

    async fn finish(&self) {
        let mut running = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        while running.join_next().await.is_some() {}
    }
}

/// The kind is that of a lost answer: the call may have done what it was to do.
fn broken_off() -> Failure {
    Failure::new(Kind::Busy, "the call was broken off before its answer, and may have taken effect")
        .next("look whether it did, and repeat it if not; the server's log says why it was broken off")
}

fn allowance(user: u32, administers: bool, is_officer: bool) -> Allowance {
    match (administers, is_officer) {
        (true, _) => Allowance { account: Some(user), connections: CONNECTIONS_MAX, idle: IDLE_MAX },
        (false, true) => Allowance { account: Some(user), connections: CONNECTIONS_PER_OFFICER, idle: IDLE_MAX },
        (false, false) => Allowance { account: None, connections: STRANGERS_MAX, idle: STRANGER_IDLE_MAX },
    }
}

/// The answer to a request beyond the connections of its user.
fn turned_away(allowance: Allowance) -> Response {
    let Some(user) = allowance.account else { return failed(stranger()) };
    let connections = counted(allowance.connections as u64, "connection");
    let message =
        format!("user {user} has {connections} to the server, and no further one is served; nothing was done");
    failed(
        Failure::new(Kind::Busy, message)
            .next("wait until other commands of that user have ended, or end them; `ss -xp` lists the connections"),
    )
}

fn stranger() -> Failure {
    Failure::new(Kind::Refused, "only root and the user the server runs as may administer it")
}

type Answer<'a> = Pin<Box<dyn Future<Output = Outcome<Vec<u8>>> + Send + 'a>>;
type Handler = for<'a> fn(&'a Node, Actor, Bytes) -> Answer<'a>;

/// All calls by name.
const CALLS: &[Entry] = &[
    entry::<api::pool::ShowPool>(),
    entry::<api::pool::ScrubPool>(),
    entry::<api::pool::Wash>(),
    entry::<api::pool::ReplaceDrive>(),
    entry::<api::pool::AddDrives>(),
    entry::<api::pool::RemoveDrive>(),
    entry::<api::pool::Keep>(),
    entry::<api::pool::ForgetDrives>(),
    entry::<api::pool::SetDrive>(),
    entry::<api::drive::Clear>(),
    entry::<api::drive::Online>(),
    entry::<api::drive::Wipe>(),
    entry::<api::affected::ListAffected>(),
    entry::<api::formats::Formats>(),
    entry::<api::top::Sample>(),
    entry::<api::volume::CreateVolume>(),
    entry::<api::volume::ListVolumes>(),
    entry::<api::volume::ShowVolume>(),
    entry::<api::volume::SetVolume>(),
    entry::<api::volume::Resize>(),
    entry::<api::volume::Snapshot>(),
    entry::<api::volume::CloneSnapshot>(),
    entry::<api::volume::Rollback>(),
    entry::<api::volume::Delete>(),
    entry::<api::blocks::Blocks>(),
    entry::<api::blocks::RestoreBegin>(),
    entry::<api::blocks::RestoreEnd>(),
    entry::<api::export::AddExport>(),
    entry::<api::export::RemoveExport>(),
    entry::<api::export::SetExport>(),
    entry::<api::export::ListExports>(),
    entry::<api::share::CreateShare>(),
    entry::<api::share::ListShares>(),
    entry::<api::share::ShowShare>(),
    entry::<api::share::SetShare>(),
    entry::<api::share::RemoveShare>(),
    entry::<api::share::Ls>(),
    entry::<api::share::ArchiveFile>(),
    entry::<api::share::Pin>(),
    entry::<api::share::ExplainFile>(),
    entry::<api::share::Mount>(),
    entry::<api::share::Unmount>(),
    entry::<api::archive::CreateBucket>(),
    entry::<api::archive::SetBucket>(),
    entry::<api::archive::BucketList>(),
    entry::<api::archive::BucketShow>(),
    entry::<api::archive::CreateKey>(),
    entry::<api::archive::KeyList>(),
    entry::<api::archive::KeyNarrow>(),
    entry::<api::archive::SetKey>(),
    entry::<api::archive::KeyRevoke>(),
    entry::<api::archive::MasterKeyExportCall>(),
    entry::<api::archive::MasterKeyVerifyCall>(),
    entry::<api::archive::ClockShow>(),
    entry::<api::archive::ClockAccept>(),
    entry::<api::approval::ClockCredit>(),
    entry::<api::approval::ListRequests>(),
    entry::<api::approval::ApproveRequest>(),
    entry::<api::approval::CatalogRelease>(),
    entry::<api::matters::MatterOpen>(),
    entry::<api::matters::MatterList>(),
    entry::<api::matters::MatterShow>(),
    entry::<api::matters::MatterVersions>(),
    entry::<api::matters::MatterCount>(),
    entry::<api::matters::MatterSelect>(),
    entry::<api::matters::MatterHold>(),
    entry::<api::matters::MatterClose>(),
    entry::<api::find::FindVersions>(),
    entry::<api::classes::CreateClass>(),
    entry::<api::classes::ClassList>(),
    entry::<api::classes::ClassActivate>(),
    entry::<api::classes::ClassBind>(),
    entry::<api::classes::ClassExpiring>(),
    entry::<api::classes::EventTell>(),
    entry::<api::classes::EventSelect>(),
    entry::<api::classes::EventRevoke>(),
    entry::<api::archive::SelfTest>(),
    entry::<api::archive::BucketInventory>(),
    entry::<api::notifications::NotificationsList>(),
    entry::<api::notifications::NotificationsForget>(),
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
    entry::<api::acts::MasterKeyRequestCall>(),
    entry::<api::acts::DeleteRequest>(),
    entry::<api::disposal::DisposalStatus>(),
    entry::<api::disposal::DisposalPause>(),
    entry::<api::disposal::DisposalRate>(),
    entry::<api::disposal::DisposalList>(),
    entry::<api::disposal::DisposalCertify>(),
    entry::<api::evidence::ProofBegin>(),
    entry::<api::evidence::ProofNext>(),
];

/// What an officer's user may do: the commands whose calls are for officers.
const OFFICERS_COMMANDS: &str = "use `stele act`, `stele approve`, `stele catalog release`, `stele class`, \
     `stele clock credit`, `stele event`, `stele find`, `stele master-key request` and `stele matter`, the certificates, \
     the list and the status of `stele disposal`, and with --officer `stele clock accept` and `stele disposal delete`";

struct Entry {
    name: &'static str,
    for_officers: bool,
    carries_key: bool,
    reads: bool,
    handler: Handler,
}

const fn entry<C: Call>() -> Entry {
    Entry {
        name: C::NAME,
        for_officers: C::FOR_OFFICERS,
        carries_key: C::CARRIES_KEY,
        reads: C::READS,
        handler: answer::<C>,
    }
}

fn answer<C: Call>(node: &Node, actor: Actor, body: Bytes) -> Answer<'_> {
    Box::pin(async move {
        let call: C = strict::read(C::NAME, &body)?;
        let answer = call.perform(node, &actor).await?;
        serde_json::to_vec(&answer)
            .map_err(|error| Failure::failed(format!("cannot write the answer as JSON: {error}")))
    })
}

async fn dispatch(
    node: Arc<Node>,
    uid: Option<u32>,
    request: Request<Incoming>,
    calls: Arc<Calls>,
    place: Kept,
) -> Response {
    let Some(uid) = uid.filter(|uid| *uid == 0 || node.serves_user(*uid) || node.serves_officer(*uid)) else {
        return failed(stranger());
    };
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let name = uri.path().strip_prefix("/v1/").unwrap_or_default();
    if method == Method::POST && [Read::NAME, RestoreWrite::NAME].contains(&name) {
        return match content(&node, uid, name, &uri, request).await {
            Ok(bytes) => ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response(),
            Err(failure) => failed(failure),
        };
    }
    let call = CALLS.iter().find(|call| call.name == name).filter(|_| method == Method::POST);
    let Some(call) = call else {
        return failed(
            Failure::missing(format!("the server does not know the call {method} {}", uri.path()))
                .next("the server may be older than the command; compare `stele --version`"),
        );
    };
    let administers = uid == 0 || node.serves_user(uid);
    if !call.for_officers && !administers {
        return failed(
            Failure::new(Kind::Refused, format!("user {uid} may only {OFFICERS_COMMANDS}"))
                .next("[admin] officers names who may approve; root and the server's own user administer"),
        );
    }
    if !administers && !call.carries_key {
        let shown = api::approval::check_shown(&node, &Actor { uid }, officer(&request), call.name).await;
        if let Err(failure) = shown {
            return failed(failure);
        }
    }
    let body = match body(request).await {
        Ok(body) => body,
        Err(failure) => return failed(failure),
    };
    let carried_out = async move {
        match (call.handler)(&node, Actor { uid }, body).await {
            Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
            Err(failure) => failed(failure),
        }
    };
    match call.reads {
        true => carried_out.await,
        false => calls.run(carried_out, place).await,
    }
}

/// The officer's key beside a call.
fn officer(request: &Request<Incoming>) -> Option<Officer> {
    let text = request.headers().get(OFFICER_HEADER)?.as_bytes();
    serde_json::from_slice(&base64_simd::STANDARD.decode_to_vec(text).ok()?).ok()
}

async fn body(request: Request<Incoming>) -> Outcome<Bytes> {
    http::body(request, REQUEST_BYTES_MAX, BODY_PATIENCE).await.map_err(|(_, reason)| Failure::usage(reason))
}

/// The calls that carry the content of volumes, for root and the server's own user.
async fn content(node: &Node, uid: u32, name: &str, uri: &Uri, request: Request<Incoming>) -> Outcome<Vec<u8>> {
    if uid != 0 && !node.serves_user(uid) {
        return Err(Failure::new(Kind::Refused, "only root and the user the server runs as may read volumes"));
    }
    let body = body(request).await?;
    if name == Read::NAME {
        let read: Read = strict::read(name, &body)?;
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

#[cfg(test)]
mod tests;
