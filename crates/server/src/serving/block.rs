//! The sockets of the block frontend. They accept connections, carry the handshake, start TLS if a
//! client asks for it, and hand the stream to the reactor that owns the volume.
//!
//! A peer that does not finish its handshake in [`HANDSHAKE_MAX`] is dropped. The handshake queue
//! limits the number under way, and chooses the handshake that ends when a further peer connects.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use stele_array::server::PoolServer;
use stele_block::nbd::{Handshake, HandshakeStep, NbdSession, Negotiated, Tls};
use stele_block::{Directory, Peer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};

mod secure;

pub use secure::acceptor;

use super::accepting::pause;
use super::handshakes::{HandshakeQueue, QueuePlace};
use super::renewal::Secured;
use super::seldom::Seldom;

const HANDSHAKE_MAX: Duration = Duration::from_secs(30);
/// After this idle time the system probes a TCP peer; below, the interval and the number of probes
/// without an answer after which the connection has ended.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 6;
/// Longest time for sent data to stay unacknowledged: as long as all probes together.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(120);

/// The values that every connection needs.
#[derive(Clone)]
pub struct NbdService {
    pub directory: Directory,
    pub pool: Arc<PoolServer>,
    pub tls: Option<Secured>,
    /// Accept only TLS over TCP.
    pub tls_required: bool,
    pub refusals: Arc<NbdRefusals>,
}

/// Refused clients, for the log. Repeated attempts cannot fill it.
pub struct NbdRefusals(Seldom);

/// Refusals within a minute that the log shows.
const REFUSALS_MAX: u32 = 20;

impl Default for NbdRefusals {
    fn default() -> NbdRefusals {
        NbdRefusals(Seldom::new(REFUSALS_MAX))
    }
}

impl NbdRefusals {
    fn tell(&self, refusal: &str) {
        self.lines(refusal, Instant::now()).iter().for_each(|line| tracing::warn!("{line}"));
    }

    /// The lines of the log about a refusal.
    fn lines(&self, refusal: &str, now: Instant) -> Vec<String> {
        let (is_told, untold) = self.0.count(now);
        let before = (untold > 0).then(|| format!("{untold} more clients of NBD were refused within a minute"));
        before.into_iter().chain(is_told.then(|| refusal.to_owned())).collect()
    }
}

/// Accepts until the task is dropped.
pub async fn serve_unix(listener: UnixListener, service: NbdService) {
    let queue = HandshakeQueue::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let uid = stream.peer_cred().map(|credentials| credentials.uid());
                let name = uid.map_or_else(|_| "unix socket".to_owned(), |uid| format!("uid {uid}"));
                let peer = Peer { name, ..Peer::default() };
                let place = queue.enter(&peer.initiator());
                let service = service.clone();
                tokio::spawn(async move { greet(stream, peer, service, place, |stream| stream.into_std()).await });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Accepts until the task is dropped.
pub async fn serve_tcp(listener: TcpListener, service: NbdService) {
    let queue = HandshakeQueue::default();
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                tune(&stream);
                let peer = tcp_peer(address);
                let place = queue.enter(&peer.initiator());
                let service = service.clone();
                tokio::spawn(async move { greet(stream, peer, service, place, TcpStream::into_std).await });
            }
            Err(error) => pause(&error).await,
        }
    }
}

pub(super) fn tcp_peer(address: SocketAddr) -> Peer {
    Peer { address: Some(address.ip().to_canonical()), name: address.to_string(), ..Peer::default() }
}

/// Sends answers at once. TCP asks an idle peer whether it is still there, so that a host that has
/// lost its power, or a flow that a firewall has forgotten, does not hold its place for ever.
pub fn tune(stream: &TcpStream) {
    let tuned = stream.set_nodelay(true).and_then(|()| {
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
        sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MAX.as_millis() as u32)?;
        Ok(())
    });
    if let Err(error) = tuned {
        tracing::warn!("a socket refuses its options: {error}");
    }
}

/// Runs the handshake and then the session. `settle` takes the stream out of tokio, as a
/// non-blocking socket.
async fn greet<T, U>(
    stream: T,
    peer: Peer,
    service: NbdService,
    place: QueuePlace,
    settle: impl FnOnce(T) -> std::io::Result<U>,
) where
    T: AsyncRead + AsyncWrite + Unpin,
    U: stele_block::Stream,
{
    let name = peer.name.clone();
    let negotiated = place.hold(negotiate(stream, peer, &service));
    let session = match tokio::time::timeout(HANDSHAKE_MAX, negotiated).await {
        Ok(Ok(Some(Greeted::Plain(stream, agreed)))) => {
            settle(stream).map(|stream| NbdSession::new(Box::new(stream), *agreed))
        }
        Ok(Ok(Some(Greeted::Secure(stream, agreed)))) => {
            let (stream, connection) = stream.into_inner();
            settle(stream).map(|stream| NbdSession::new(Box::new(secure::Secure::new(stream, connection)), *agreed))
        }
        Ok(Ok(None)) => return,
        Ok(Err(error)) => Err(error),
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    };
    match session {
        Ok(session) => service.pool.serve(Box::new(session)),
        Err(error) => tracing::debug!("no session with {name}: {error}"),
    }
}

enum Greeted<T> {
    Plain(T, Box<Negotiated>),
    Secure(Box<tokio_rustls::server::TlsStream<T>>, Box<Negotiated>),
}

async fn negotiate<T>(mut stream: T, peer: Peer, service: &NbdService) -> std::io::Result<Option<Greeted<T>>>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let tls = match (&service.tls, service.tls_required && peer.address.is_some()) {
        (None, _) => Tls::Absent,
        (Some(_), true) => Tls::Required,
        (Some(_), false) => Tls::Offered,
    };
    let mut handshake = Handshake::new(service.directory.clone(), peer, tls);
    match converse(&mut stream, &mut handshake, &service.refusals).await? {
        HandshakeStep::Transmit(agreed) => Ok(Some(Greeted::Plain(stream, agreed))),
        HandshakeStep::StartTls => {
            let Some(secured) = &service.tls else { return Ok(None) };
            let name = &handshake.peer().name;
            let mut stream = secured
                .acceptor()
                .accept(stream)
                .await
                .inspect_err(|error| tell_refused(&service.refusals, name, error))?;
            let certificate = secure::fingerprint(stream.get_ref().1);
            handshake.secured(Peer { tls: true, certificate, ..handshake.peer().clone() });
            match converse(&mut stream, &mut handshake, &service.refusals).await? {
                HandshakeStep::Transmit(agreed) => Ok(Some(Greeted::Secure(Box::new(stream), agreed))),
                _ => {
                    let _ = stream.shutdown().await;
                    Ok(None)
                }
            }
        }
        _ => Ok(None),
    }
}

/// Logs a client that did not pass the TLS handshake, such as one without a certificate of the
/// authority. One that hung up meanwhile is no news.
fn tell_refused(refusals: &NbdRefusals, name: &str, error: &std::io::Error) {
    if error.kind() == std::io::ErrorKind::InvalidData {
        refusals.tell(&format!("{name} is refused: its TLS handshake failed: {error}"));
    }
}

/// Moves bytes until the handshake asks for another step.
async fn converse<T>(
    stream: &mut T,
    handshake: &mut Handshake,
    refusals: &NbdRefusals,
) -> std::io::Result<HandshakeStep>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut bytes = vec![0; 4096];
    let mut arrived = 0;
    loop {
        let step = handshake.receive(bytes.get(..arrived).unwrap_or_default());
        handshake.take_refusals().iter().for_each(|refusal| refusals.tell(refusal));
        let outgoing = handshake.take_outgoing();
        if !outgoing.is_empty() {
            stream.write_all(&outgoing).await?;
            stream.flush().await?;
        }
        match step {
            HandshakeStep::More => {}
            HandshakeStep::Again => {
                arrived = 0;
                continue;
            }
            _ => return Ok(step),
        }
        arrived = stream.read(&mut bytes).await?;
        if arrived == 0 {
            return Ok(HandshakeStep::End);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::seldom::TOLD_WITHIN;

    #[test]
    fn refused_clients_do_not_fill_the_log() {
        let (refusals, begun) = (NbdRefusals::default(), Instant::now());
        let told = (0..100).flat_map(|_| refusals.lines("a client is refused", begun)).count();
        assert_eq!(told, REFUSALS_MAX as usize);
        let later = refusals.lines("a client is refused", begun + TOLD_WITHIN);
        assert_eq!(later, ["80 more clients of NBD were refused within a minute", "a client is refused"]);
    }

    #[tokio::test]
    async fn an_accepted_connection_notices_a_peer_that_has_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        tune(&stream);
        assert!(stream.nodelay().unwrap() && sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), KEEPALIVE_COUNT);
        assert_eq!(u128::from(sockopt::tcp_user_timeout(&stream).unwrap()), UNACKNOWLEDGED_MAX.as_millis());
    }
}
