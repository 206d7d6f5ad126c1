//! The endpoints of S3 and of restic's REST protocol: accept connections, with or without TLS, and
//! hand each stream to its frontend.
//!
//! A peer that does not finish the TLS handshake in time is dropped. The handshakes under way are
//! bounded, and the host with the most of them loses its oldest one, so that no host keeps the
//! others out by handshakes that it never finishes. The frontend bounds the connections of each
//! host. After an error of `accept` (no descriptors left) the loop waits and continues, since the
//! listener itself stays good.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse;
use hyper::Request;
use hyper::body::Incoming;
use stele_object::{Endpoint, Frontend, Metrics, Peer, SnapshotSource, host_of, serve_connection};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::rustls::ProtocolVersion;

use super::accepting::pause;
use super::handshakes::HandshakeQueue;
use super::http::{Places, converse};
use super::renewal::Secured;
use crate::failure::{Failure, Kind, Outcome};

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Connections for health and metrics: of one host, and of all. A further one is closed.
const METRICS_PER_HOST: usize = 16;
const METRICS_MAX: usize = 64;
/// Life of such a connection.
const METRICS_LIFE_MAX: Duration = Duration::from_secs(60);

/// Opens a listener and returns its address; `setting` names the setting with which an operator
/// chooses another address.
pub async fn listen(address: SocketAddr, setting: &str) -> Outcome<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let right = match error.kind() == std::io::ErrorKind::PermissionDenied && address.port() < 1024 {
            true => ", or let the server have CAP_NET_BIND_SERVICE (OPERATIONS.md, \"What the unit forbids\")",
            false => "",
        };
        Failure::new(unheard(error.kind()), format!("cannot listen on {address}: {error}"))
            .next(format!("choose another address with {setting}{right}"))
    })?;
    let address =
        listener.local_addr().map_err(|error| Failure::failed(format!("the endpoint has no address: {error}")))?;
    Ok((listener, address))
}

/// The kind of a failure to listen: an address that is not one of this machine is a wrong setting.
fn unheard(kind: std::io::ErrorKind) -> Kind {
    use std::io::ErrorKind;
    match kind {
        ErrorKind::AddrInUse => Kind::Busy,
        ErrorKind::AddrNotAvailable | ErrorKind::InvalidInput | ErrorKind::Unsupported => Kind::Usage,
        ErrorKind::PermissionDenied => Kind::Refused,
        _ => Kind::Failed,
    }
}

/// Accepts until the task is dropped. Nothing that a peer does, or leaves undone, makes this loop
/// wait.
pub async fn serve(listener: TcpListener, endpoint: Arc<dyn Endpoint>, tls: Option<Secured>) {
    let handshakes = HandshakeQueue::default();
    loop {
        let Some((stream, address)) = accepted(&listener).await else { continue };
        // An answer is written at once; waiting to fill a segment would only add latency.
        let _ = stream.set_nodelay(true);
        let (endpoint, peer) =
            (Arc::clone(&endpoint), Peer { address: Some(address), secure: tls.is_some(), tls: "-" });
        match &tls {
            None => drop(tokio::spawn(serve_connection(stream, peer, endpoint))),
            Some(tls) => {
                let place = handshakes.enter(&host_of(address.ip()).to_string());
                let shaking = tls.acceptor().accept(stream);
                tokio::spawn(async move {
                    let shaken = timeout(HANDSHAKE_MAX, place.hold(shaking)).await;
                    drop(place);
                    match shaken {
                        Ok(Ok(stream)) => {
                            let version = match stream.get_ref().1.protocol_version() {
                                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                                _ => "-",
                            };
                            serve_connection(stream, Peer { tls: version, ..peer }, endpoint).await;
                        }
                        Ok(Err(error)) => tracing::debug!(%address, "no TLS: {error}"),
                        Err(_) => tracing::debug!(%address, "no TLS within {HANDSHAKE_MAX:?}"),
                    }
                });
            }
        }
    }
}

/// Stores access logs that are due, until the task is dropped.
pub async fn store_access_logs(frontend: Arc<Frontend>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        frontend.store_access_logs(false).await;
    }
}

/// Serves `/health` and `/metrics` only, without signatures, on an address of their own.
pub async fn serve_metrics(listener: TcpListener, metrics: Arc<Metrics>, source: SnapshotSource) {
    let (places, stopping) = (Arc::new(Places::default()), watch::Sender::new(false));
    loop {
        let Some((stream, address)) = accepted(&listener).await else { continue };
        let Some(place) = places.enter(host_of(address.ip()), METRICS_PER_HOST, METRICS_MAX) else { continue };
        let (metrics, source, stopping) = (Arc::clone(&metrics), Arc::clone(&source), stopping.subscribe());
        tokio::spawn(async move {
            let answer = async |request: Request<Incoming>| match stele_object::admin(
                &metrics,
                Some(&source),
                request.method(),
                request.uri().path(),
            ) {
                Some(answer) => answer.map(axum::body::Body::new),
                None => axum::http::StatusCode::NOT_FOUND.into_response(),
            };
            // A scraper connects anew; a peer that never reads its answer ends with its connection.
            let _ = timeout(METRICS_LIFE_MAX, converse(stream, METRICS_LIFE_MAX, answer, stopping)).await;
            drop(place);
        });
    }
}

/// The next connection. None: `accept` failed, for instance because no descriptor was left, and
/// time has passed.
async fn accepted(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            pause(&error).await;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn an_address_of_another_machine_is_a_wrong_setting() {
        for (cause, kind) in [
            (ErrorKind::AddrNotAvailable, Kind::Usage),
            (ErrorKind::AddrInUse, Kind::Busy),
            (ErrorKind::PermissionDenied, Kind::Refused),
            (ErrorKind::OutOfMemory, Kind::Failed),
        ] {
            assert_eq!(unheard(cause), kind, "{cause:?}");
        }
    }
}
