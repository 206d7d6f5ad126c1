//! The administration socket: the calls of [`crate::api`] over HTTP on a unix socket.
//!
//! Its file mode is 0600, and a peer must be root or the user the server runs as. Requests are at most 1 MiB.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::IncomingStream;
use tokio::net::UnixListener;

use crate::api::{self, Actor, Call};
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::node::Node;

/// The user at the other end, as the kernel says.
#[derive(Clone, Copy, Debug)]
struct Peer(Option<u32>);

impl Connected<IncomingStream<'_, UnixListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Peer {
        Peer(stream.io().peer_cred().ok().map(|credentials| credentials.uid()))
    }
}

/// Makes the socket. The caller holds the drives, so a socket file that exists is left over from a killed server.
pub fn listen(path: &Path) -> Outcome<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(io_failure("remove the old socket", path, &error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(|error| {
        io_failure("listen on", path, &error)
            .next("a unix socket path is at most 107 bytes; set [admin] socket to a shorter one")
    })?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(|error| io_failure("protect", path, &error))?;
    Ok(listener)
}

/// Serves until `stop` resolves.
pub async fn serve(
    listener: UnixListener,
    node: Arc<Node>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = routes().layer(DefaultBodyLimit::max(1 << 20)).with_state(node);
    axum::serve(listener, router.into_make_service_with_connect_info::<Peer>()).with_graceful_shutdown(stop).await
}

fn routes() -> Router<Arc<Node>> {
    let router = Router::new().fallback(unknown);
    let router = with::<api::pool::Status>(router);
    let router = with::<api::pool::Scrub>(router);
    let router = with::<api::pool::Replace>(router);
    let router = with::<api::volume::Create>(router);
    let router = with::<api::volume::List>(router);
    let router = with::<api::volume::Show>(router);
    let router = with::<api::volume::Delete>(router);
    let router = with::<api::archive::BucketCreate>(router);
    let router = with::<api::archive::BucketList>(router);
    let router = with::<api::archive::BucketShow>(router);
    let router = with::<api::archive::KeyCreate>(router);
    let router = with::<api::archive::KeyList>(router);
    let router = with::<api::archive::KeyRevoke>(router);
    let router = with::<api::archive::KeyEscrow>(router);
    let router = with::<api::archive::KeyCheck>(router);
    let router = with::<api::archive::Why>(router);
    let router = with::<api::archive::AuditShow>(router);
    let router = with::<api::archive::AuditHead>(router);
    with::<api::archive::AuditVerify>(router)
}

fn with<C: Call>(router: Router<Arc<Node>>) -> Router<Arc<Node>> {
    router.route(&format!("/v1/{}", C::NAME), post(answer::<C>))
}

async fn unknown() -> Response {
    failed(
        Failure::missing("the server does not know this call")
            .next("the server may be older than the command; compare `stele --version`"),
    )
}

async fn answer<C: Call>(
    State(node): State<Arc<Node>>,
    ConnectInfo(Peer(uid)): ConnectInfo<Peer>,
    body: Bytes,
) -> Response {
    let Some(uid) = uid.filter(|uid| *uid == 0 || node.serves_user(*uid)) else {
        return failed(Failure::new(Kind::Refused, "only root and the user the server runs as may administer it"));
    };
    let call: C = match serde_json::from_slice(&body) {
        Ok(call) => call,
        Err(error) => return failed(Failure::usage(format!("the body of {} is not what it takes: {error}", C::NAME))),
    };
    let answered = call.perform(&node, &Actor { uid }).await;
    match answered.and_then(|answer| {
        serde_json::to_vec(&answer)
            .map_err(|error| Failure::failed(format!("cannot write the answer as JSON: {error}")))
    }) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(failure) => failed(failure),
    }
}

fn failed(failure: Failure) -> Response {
    let status = match failure.kind {
        Kind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        Kind::Usage => StatusCode::BAD_REQUEST,
        Kind::Refused => StatusCode::FORBIDDEN,
        Kind::Missing => StatusCode::NOT_FOUND,
        Kind::Damaged => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Full => StatusCode::INSUFFICIENT_STORAGE,
        Kind::Busy => StatusCode::CONFLICT,
    };
    let json = serde_json::to_vec(&failure).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], json).into_response()
}
