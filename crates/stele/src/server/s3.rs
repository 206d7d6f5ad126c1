//! The endpoints of S3 and of restic's REST protocol: accept connections, with or without TLS, and hand each stream to
//! its frontend.
//!
//! A peer that does not finish the TLS handshake in time is dropped, and the number of handshakes under way is bounded.
//! After an error of `accept` (no descriptors left) the loop waits and continues, since the listener itself stays good.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse;
use stele_object::{Endpoint, Frontend, Metrics, Peer, SnapshotSource, serve_connection};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::failure::{Failure, Kind, Outcome};

const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Limit on streams; further handshakes and connections wait in the listener's backlog.
const STREAMS_MAX: usize = 2048;

/// Opens a listener and returns its address; `setting` names the setting with which an operator chooses another
/// address.
pub async fn listen(address: SocketAddr, setting: &str) -> Outcome<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let kind = if error.kind() == std::io::ErrorKind::AddrInUse { Kind::Busy } else { Kind::Failed };
        Failure::new(kind, format!("cannot listen on {address}: {error}"))
            .next(format!("choose another address with {setting}"))
    })?;
    let address =
        listener.local_addr().map_err(|error| Failure::failed(format!("the endpoint has no address: {error}")))?;
    Ok((listener, address))
}

/// Accepts until the task is dropped.
pub async fn serve(listener: TcpListener, endpoint: Arc<dyn Endpoint>, tls: Option<TlsAcceptor>) {
    let places = Arc::new(Semaphore::new(STREAMS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // An answer is written at once; waiting to fill a segment would only add latency.
        let _ = stream.set_nodelay(true);
        let (endpoint, tls) = (Arc::clone(&endpoint), tls.clone());
        tokio::spawn(async move {
            serve_stream(stream, address, endpoint, tls).await;
            drop(place);
        });
    }
}

/// Stores access logs that are due, until the task is dropped.
pub async fn store_access_logs(frontend: Arc<Frontend>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        frontend.store_access_logs(false).await;
    }
}

async fn serve_stream(stream: TcpStream, address: SocketAddr, endpoint: Arc<dyn Endpoint>, tls: Option<TlsAcceptor>) {
    let peer = Peer { address: Some(address), secure: tls.is_some() };
    match tls {
        None => serve_connection(stream, peer, endpoint).await,
        Some(tls) => match tokio::time::timeout(HANDSHAKE_MAX, tls.accept(stream)).await {
            Ok(Ok(stream)) => serve_connection(stream, peer, endpoint).await,
            Ok(Err(error)) => tracing::debug!(%address, "no TLS: {error}"),
            Err(_) => tracing::debug!(%address, "no TLS within {HANDSHAKE_MAX:?}"),
        },
    }
}

/// Serves `/health` and `/metrics` only, without signatures, on an address of their own.
pub async fn serve_metrics(listener: TcpListener, metrics: Arc<Metrics>, source: SnapshotSource) {
    let router = axum::Router::new().fallback(async move |request: axum::extract::Request| {
        match stele_object::admin(&metrics, Some(&source), request.method(), request.uri().path()) {
            Some(answer) => answer.map(axum::body::Body::new),
            None => axum::http::StatusCode::NOT_FOUND.into_response(),
        }
    });
    if let Err(error) = axum::serve(listener, router).await {
        tracing::error!("the metrics endpoint failed: {error}");
    }
}
