//! Small services over HTTP: the administration socket, and health and metrics at an address of
//! their own.
//!
//! Bounded: the connections of each peer, the time of a head, the idle time between requests, and
//! the time of a body. A connection beyond its peer's bound is closed, so one peer takes neither
//! the descriptors nor the memory of the server, and keeps no other peer out. At a Unix socket, a
//! few of those are told the reason first, since a command would take a closed connection for a
//! server that broke off.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::accepting::pause;

/// The open connections of each peer.
pub struct Places<K>(Mutex<BTreeMap<K, usize>>);

impl<K> Default for Places<K> {
    fn default() -> Places<K> {
        Places(Mutex::default())
    }
}

/// A place among the connections of its peer, until it is dropped.
pub struct Place<K: Ord> {
    places: Arc<Places<K>>,
    peer: K,
}

impl<K: Ord + Clone> Places<K> {
    /// None: the peer has `of_one` connections, or all peers together have `of_all`.
    pub fn enter(self: &Arc<Self>, peer: K, of_one: usize, of_all: usize) -> Option<Place<K>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.get(&peer).is_some_and(|count| *count >= of_one) || open.values().sum::<usize>() >= of_all {
            return None;
        }
        *open.entry(peer.clone()).or_default() += 1;
        Some(Place { places: Arc::clone(self), peer })
    }
}

impl<K: Ord> Drop for Place<K> {
    fn drop(&mut self) {
        let mut open = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.peer);
            }
        }
    }
}

/// The place of a connection at a Unix socket. A task that outlives its connection keeps it.
pub type Kept = Arc<Place<Option<u32>>>;

/// What a user at a Unix socket may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// The user whose connections are counted. None: all users together who have no account of
    /// their own.
    pub account: Option<u32>,
    pub connections: usize,
    /// Time for a head, and for being idle between requests.
    pub idle: Duration,
}

/// Connections of an account beyond its bound that are told so at once. Further ones are closed
/// without an answer.
pub const TURNED_AWAY_MAX: usize = 16;
/// Time for such a connection to send the head of its request.
const TURNED_AWAY_IDLE: Duration = Duration::from_secs(5);

/// The answer to a request, under way.
type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Serves a Unix socket until `stopping` is true. Then each connection finishes its request.
/// `turn_away` answers a request on a connection beyond the bound of its account.
pub async fn serve_unix<A>(
    listener: UnixListener,
    allow: impl Fn(Option<u32>) -> Allowance,
    turn_away: impl Fn(Allowance) -> Response + Clone + Send + Sync + 'static,
    answer: impl Fn(Option<u32>, Request<Incoming>, Kept) -> A + Clone + Send + Sync + 'static,
    stopping: watch::Receiver<bool>,
) where
    A: Future<Output = Response> + Send + 'static,
{
    let (places, turned_away) = (Arc::new(Places::default()), Arc::new(Places::default()));
    let accept = async move || listener.accept().await.map(|(stream, _)| stream);
    let serve = |stream: UnixStream| {
        let user = stream.peer_cred().ok().map(|credentials| credentials.uid());
        let allowance = allow(user);
        let Allowance { account, connections: most, idle } = allowance;
        let entered = places.enter(account, most, usize::MAX);
        let is_full = entered.is_none();
        let Some(place) = entered.or_else(|| turned_away.enter(account, TURNED_AWAY_MAX, usize::MAX)) else {
            tracing::debug!(?user, "closed a connection: its user has {most}");
            return None;
        };
        let (answer, turn_away, stopping, place) =
            (answer.clone(), turn_away.clone(), stopping.clone(), Arc::new(place));
        Some(async move {
            let idle = if is_full { idle.min(TURNED_AWAY_IDLE) } else { idle };
            let answering = |request| -> Answering {
                match is_full {
                    true => Box::pin(std::future::ready(last(turn_away(allowance)))),
                    false => Box::pin(answer(user, request, Arc::clone(&place))),
                }
            };
            converse(stream, idle, answering, stopping).await;
        })
    };
    accept_each(accept, serve, stopping.clone()).await;
}

/// An answer that ends its connection.
fn last(mut answer: Response) -> Response {
    answer.headers_mut().insert(hyper::header::CONNECTION, hyper::header::HeaderValue::from_static("close"));
    answer
}

/// Accepts connections until `stopping` is true, and drives each in a task of its own. Then it
/// waits for those that are open. `serve` returns None for a connection that it closed.
pub async fn accept_each<C, S>(
    accept: impl AsyncFn() -> std::io::Result<C>,
    serve: impl Fn(C) -> Option<S>,
    mut stopping: watch::Receiver<bool>,
) where
    S: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stop| *stop) => break,
            _ = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept() => accepted,
        };
        match accepted {
            Ok(connection) => {
                if let Some(served) = serve(connection) {
                    connections.spawn(served);
                }
            }
            Err(error) => pause(&error).await,
        }
    }
    // The listener goes with it: who comes now is refused at once.
    drop(accept);
    while connections.join_next().await.is_some() {}
}

/// Serves one connection to its end. Once `stopping` is true, it finishes its request and ends.
pub async fn converse<S, A>(
    stream: S,
    idle: Duration,
    answer: impl Fn(Request<Incoming>) -> A,
    mut stopping: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Future<Output = Response>,
{
    let service = service_fn(|request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        _ = stopping.wait_for(|stop| *stop) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}

/// A body of at most `bytes_max` that arrives within `patience`; else the status and the reason.
pub async fn body(
    request: Request<Incoming>,
    bytes_max: usize,
    patience: Duration,
) -> Result<Bytes, (StatusCode, String)> {
    let whole = Limited::new(request.into_body(), bytes_max).collect();
    match timeout(patience, whole).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, format!("the request is larger than {bytes_max} bytes")))
        }
        Ok(Err(error)) => Err((StatusCode::BAD_REQUEST, format!("the request broke off: {error}"))),
        Err(_) => {
            let message = format!("the request did not arrive within {} s", patience.as_secs());
            Err((StatusCode::REQUEST_TIMEOUT, message))
        }
    }
}

#[cfg(test)]
mod tests;
