//! One connection from its first byte to its last. The server opens sockets and hands over a
//! stream.
//!
//! Bounded: the head, the time between heads, the time of a stuck write, and the number of
//! connections. If a connection must close while its client still sends, it closes gently: first
//! the answer, then our half, then a bounded drain. A reset thus cannot destroy the answer.

use crate::metrics::Metrics;
use crate::paced::Paced;
use crate::settings::Settings;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::Body;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// Number of bytes drained from a client that still sends after its answer. Many clients send all
/// of an upload's part before they read, and a part has 5 to 64 MiB.
const LINGER_BYTES: usize = 64 << 20;
/// Largest time for that, and for a client that sends nothing more.
const LINGER_TIME: Duration = Duration::from_secs(10);
const LINGER_SILENCE: Duration = Duration::from_secs(2);

/// Number of refused connections that get an answer at one time; a further one is closed at once.
const REFUSING_MAX: usize = 128;
/// Largest time for the head of such a connection's request: an answer before the request is none
/// to many clients.
const REFUSING_HEAD_TIME: Duration = Duration::from_secs(1);
/// Largest time for all of it: head, answer, and its peer to read it.
const REFUSING_TIME: Duration = Duration::from_secs(12);

const TURNED_AWAY: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SlowDown</Code><Message>The server has as many connections as it serves; please reduce your request rate.</Message></Error>";
const HEAD_TOO_SLOW: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>RequestTimeout</Code><Message>Your request did not arrive within the timeout period.</Message></Error>";

/// The peer and its transport.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address; `None` for a pipe.
    pub address: Option<SocketAddr>,
    /// Whether the stream is encrypted. SSE-C requires it, unless the peer is on this machine.
    pub secure: bool,
    /// The version of TLS as access logs name it: `TLSv1.3`, or `-`.
    pub tls: &'static str,
}

impl Peer {
    /// Whether eavesdropping is impossible: the connection is encrypted, or does not leave this
    /// machine. A listener of both families has IPv4 addresses in the form of IPv6.
    pub fn is_private(&self) -> bool {
        self.secure || self.address.is_none_or(|address| address.ip().to_canonical().is_loopback())
    }
}

/// Largest time that closing waits for interrupted connections to end.
const BREAKING_OFF: Duration = Duration::from_secs(5);

/// The command to all connections.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Word {
    Serve,
    /// Finish the request under way, and take no further one.
    Finish,
    /// Stop immediately.
    Break,
}

/// The connections of one frontend: their limits, and the command to finish.
pub struct Connections {
    open: Arc<Semaphore>,
    limit: usize,
    peers: Peers,
    /// Refused connections that still get their answer.
    refusing: Semaphore,
    word: watch::Sender<Word>,
}

impl Connections {
    /// Limits the connections as the settings say.
    pub fn new(settings: &Settings) -> Connections {
        let limit = settings.connections_max;
        let peers = Peers { limit: settings.connections_per_peer, open: Mutex::default() };
        Connections {
            open: Arc::new(Semaphore::new(limit)),
            limit,
            peers,
            refusing: Semaphore::new(REFUSING_MAX),
            word: watch::Sender::new(Word::Serve),
        }
    }

    /// Lets every connection finish its present request, admits no new connection, and waits for
    /// the last one, at most `patience`. It then interrupts the remaining connections. Returns
    /// whether all had ended by themselves.
    pub async fn close(&self, patience: Duration) -> bool {
        self.word.send_replace(Word::Finish);
        if timeout(patience, self.all_gone()).await.is_ok() {
            return true;
        }
        self.word.send_replace(Word::Break);
        // An interrupted connection stops at its next await; one that is stuck elsewhere must not
        // block closing.
        let _ = timeout(BREAKING_OFF, self.all_gone()).await;
        false
    }

    async fn all_gone(&self) {
        if let Ok(places) = self.open.acquire_many(self.limit as u32).await {
            // No new connection is admitted.
            places.forget();
        }
    }
}

/// Number of connections of each host: a host at its limit leaves room for the others.
struct Peers {
    limit: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A place among the connections of its host, until it is dropped.
struct Admitted<'d> {
    peers: &'d Peers,
    host: Option<IpAddr>,
}

impl Peers {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the host is at its limit. A pipe has no host, and no limit of its own.
    fn admit(&self, address: Option<SocketAddr>) -> Option<Admitted<'_>> {
        let host = address.map(|address| host_of(address.ip()));
        if let Some(host) = host {
            let mut open = self.lock();
            let count = open.entry(host).or_default();
            if *count >= self.limit {
                return None;
            }
            *count += 1;
        }
        Some(Admitted { peers: self, host })
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if let Some(host) = self.host {
            let mut open = self.peers.lock();
            if let Some(count) = open.get_mut(&host) {
                *count -= 1;
                if *count == 0 {
                    open.remove(&host);
                }
            }
        }
    }
}

/// The host of an address: one host has a whole /64 of IPv6 addresses, and an IPv4 address in IPv6
/// is that IPv4 address.
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => IpAddr::V6((u128::from(six) >> 64 << 64).into()),
        four => four,
    }
}

/// A protocol over HTTP, whose connections are served here.
pub trait Endpoint: Send + Sync + 'static {
    /// The limits in force.
    fn settings(&self) -> &Settings;
    /// The counters.
    fn metrics(&self) -> &Metrics;
    /// The connections of this endpoint.
    fn connections(&self) -> &Connections;
    /// Answers one request.
    fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> BoxFuture<'static, Response<Body>>;
}

/// The transport of a connection.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Serves an endpoint on one stream until it ends, fails, stays idle too long, or the connections
/// close.
pub async fn serve_connection<S>(stream: S, peer: Peer, endpoint: Arc<dyn Endpoint>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    serve_boxed(Box::new(stream), peer, endpoint).await;
}

/// HTTP is compiled here, once, with this crate's optimisation. One type of stream is not enough
/// for that: the body of an async function is compiled where it is polled, unless its own crate
/// makes a trait object of it.
fn serve_boxed(stream: Box<dyn Stream>, peer: Peer, endpoint: Arc<dyn Endpoint>) -> BoxFuture<'static, ()> {
    Box::pin(serve_stream(stream, peer, endpoint))
}

async fn serve_stream(stream: Box<dyn Stream>, peer: Peer, endpoint: Arc<dyn Endpoint>) {
    let stream = Paced::new(stream, endpoint.settings().write_patience);
    let connections = endpoint.connections();
    let Some(_admitted) = connections.peers.admit(peer.address) else {
        return refuse(stream, &endpoint).await;
    };
    let Ok(_place) = connections.open.clone().try_acquire_owned() else {
        return refuse(stream, &endpoint).await;
    };
    let mut word = connections.word.subscribe();
    endpoint.metrics().connection(true);
    tokio::select! {
        biased;
        _ = word.wait_for(|word| *word == Word::Break) => {}
        () = converse(stream, peer, &endpoint) => {}
    }
    endpoint.metrics().connection(false);
}

/// Tells a peer beyond the limits to slow down. A peer that connects on and on is closed without a
/// word.
async fn refuse(mut stream: Paced<Box<dyn Stream>>, endpoint: &Arc<dyn Endpoint>) {
    endpoint.metrics().connection_refused();
    let Ok(_place) = endpoint.connections().refusing.try_acquire() else { return };
    let head_max = endpoint.settings().header_bytes_max;
    let refusing = async {
        let _ = timeout(REFUSING_HEAD_TIME, read_head(&mut stream, head_max)).await;
        answer_bare(&mut stream, "503 Service Unavailable", TURNED_AWAY).await;
    };
    let _ = timeout(REFUSING_TIME, refusing).await;
}

/// Reads the head of a request and drops it, with what follows it in the same read.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S, bytes_max: usize) {
    let mut head = Vec::new();
    while head.len() <= bytes_max {
        // An end may lie on both sides of a read.
        let new = head.len().saturating_sub(3);
        let read = stream.read_buf(&mut head).await;
        let ends = head.get(new..).is_some_and(|new| new.windows(4).any(|window| window == b"\r\n\r\n"));
        if ends || !matches!(read, Ok(1..)) {
            return;
        }
    }
}

async fn converse(mut stream: Paced<Box<dyn Stream>>, peer: Peer, endpoint: &Arc<dyn Endpoint>) {
    let settings = endpoint.settings();
    let mut word = endpoint.connections().word.subscribe();
    let service = service_fn(|request: Request<Incoming>| {
        let answer = endpoint.clone().answer(request, peer.clone());
        Box::pin(async move { Ok::<_, Infallible>(answer.await) })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_patience)
        .max_buf_size(settings.buffer_bytes_max)
        .half_close(false)
        .serve_connection(TokioIo::new(&mut stream), service);
    let mut told = false;
    let outcome = loop {
        let ended = tokio::select! {
            biased;
            outcome = poll_fn(|context| connection.poll_without_shutdown(context)) => Some(outcome),
            _ = word.wait_for(|word| *word >= Word::Finish), if !told => None,
        };
        match ended {
            Some(outcome) => break outcome,
            None => {
                told = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    // A connection that is idle between requests ends in the same way, and gets no answer.
    let late_head =
        matches!(&outcome, Err(error) if error.is_timeout()) && !connection.into_parts().read_buf.is_empty();
    if late_head {
        answer_bare(&mut stream, "400 Bad Request", HEAD_TOO_SLOW).await;
    } else {
        linger(&mut stream).await;
    }
}

// An answer outside HTTP's regular course; the stream is closed after it.
async fn answer_bare<S>(stream: &mut S, status: &str, document: &str)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{document}",
        document.len()
    );
    if stream.write_all(text.as_bytes()).await.is_ok() {
        linger(stream).await;
    }
}

async fn linger<S>(stream: &mut S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut buffer = [0; 16 * 1024];
    let mut read = 0;
    let reading = async {
        while read < LINGER_BYTES {
            match timeout(LINGER_SILENCE, stream.read(&mut buffer)).await {
                Ok(Ok(length)) if length > 0 => read += length,
                _ => break,
            }
        }
    };
    // The client had its chance to read the answer.
    let _ = timeout(LINGER_TIME, reading).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_of_this_machine_needs_no_encryption() {
        for (address, secure, private) in [
            (None, false, true),
            (Some("127.0.0.1:1"), false, true),
            (Some("[::1]:1"), false, true),
            (Some("[::ffff:127.0.0.1]:1"), false, true),
            (Some("[::ffff:192.0.2.1]:1"), false, false),
            (Some("192.0.2.1:1"), false, false),
            (Some("192.0.2.1:1"), true, true),
        ] {
            let peer = Peer { address: address.map(|text| text.parse().unwrap()), secure, tls: "-" };
            assert_eq!(peer.is_private(), private, "{address:?}");
        }
    }
}
