//! The socket of iSCSI. It accepts connections, carries logins and discovery sessions, and hands
//! the connections of sessions to the reactor that owns their volume.
//!
//! A login that takes longer than [`LOGIN_MAX`] is dropped, and so is a discovery session that is
//! silent for as long. Both take a place in the handshake queue. The queue limits their number, and
//! chooses the one that ends when a further peer connects.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use stele_array::server::PoolServer;
use stele_block::Peer;
use stele_block::iscsi::framing::Framing;
use stele_block::iscsi::login::{LOGIN_DATA_MAX, Refusal, Refused};
use stele_block::iscsi::node::Joined;
use stele_block::iscsi::pdu::Frame;
use stele_block::iscsi::{Discovery, IscsiSession, Login, LoginResult, Next, Node};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::accepting::pause;
use super::block::{tcp_peer, tune};
use super::handshakes::HandshakeQueue;
use super::seldom::Seldom;

const LOGIN_MAX: Duration = Duration::from_secs(30);
/// Longest wait of a login for the commands of the session whose place it takes; below, the
/// interval between looks. After it the login is refused for now: initiators try again.
const FORMER_MAX: Duration = Duration::from_secs(10);
const FORMER_AGAIN: Duration = Duration::from_millis(5);

#[derive(Clone)]
pub struct IscsiService {
    pub node: Arc<Node>,
    pub pool: Arc<PoolServer>,
    pub refusals: Arc<Refusals>,
}

/// Refused logins, for the log. Repeated attempts cannot fill it.
pub struct Refusals(Seldom);

/// Refusals within a minute that the log shows.
const TOLD_MAX: u32 = 20;

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals(Seldom::new(TOLD_MAX))
    }
}

impl Refusals {
    fn tell(&self, peer: &str, refused: &Refused) {
        let (tell, untold) = self.0.count(Instant::now());
        if untold > 0 {
            tracing::warn!("{untold} more iSCSI logins were refused within a minute");
        }
        if tell {
            let Refused { refusal, initiator, target, user, reason } = refused;
            let user = user.as_ref().map(|user| format!(" as user '{user}'")).unwrap_or_default();
            let target = target.as_deref().unwrap_or("none");
            let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            tracing::warn!(
                "iSCSI login refused: initiator '{initiator}'{user} from {peer} to target '{target}': {refusal}{reason}"
            );
        }
    }
}

/// Accepts until the task is dropped.
pub async fn serve(listener: TcpListener, service: IscsiService) {
    let queue = HandshakeQueue::default();
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                tune(&stream);
                let (service, peer) = (service.clone(), tcp_peer(address));
                let place = queue.enter(&peer.initiator());
                tokio::spawn(async move {
                    let name = peer.name.clone();
                    if let Err(error) = place.hold(greet(stream, peer, &service)).await {
                        tracing::debug!("an iSCSI login of {name} failed: {error}");
                    }
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// A stream and the bytes already read from it.
struct Line {
    stream: TcpStream,
    framing: Framing,
}

impl Line {
    /// The next PDU; `None` at the end of the stream.
    async fn next(&mut self) -> std::io::Result<Option<Frame>> {
        loop {
            let next = self.framing.frame();
            if let Some(frame) = next.map_err(|broken| std::io::Error::other(format!("not iSCSI: {broken:?}")))? {
                return Ok(Some(frame));
            }
            let count = self.stream.read(self.framing.space()).await?;
            if count == 0 {
                return Ok(None);
            }
            self.framing.filled(count);
        }
    }
}

async fn greet(stream: TcpStream, peer: Peer, service: &IscsiService) -> std::io::Result<()> {
    let local = reached_at(stream.local_addr()?);
    let mut line = Line { stream, framing: Framing::new(LOGIN_DATA_MAX) };
    let entered = timeout(LOGIN_MAX, log_in(&mut line, &peer, &local, service)).await??;
    match entered {
        Entered::Nowhere => Ok(()),
        Entered::Session(session) => {
            let Line { stream, framing } = line;
            service.pool.serve(Box::new(IscsiSession::new(*session, Box::new(stream.into_std()?), framing.rest())));
            Ok(())
        }
        Entered::Discovery(agreed) => discover(&mut line, &agreed, &peer, &local, service).await,
    }
}

/// Our address as the initiator uses it. A listener of both families has IPv4 addresses in the form
/// of IPv6, which a host without IPv6 could not use.
fn reached_at(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

enum Entered {
    Nowhere,
    Session(Box<Joined>),
    Discovery(Box<LoginResult>),
}

async fn log_in(line: &mut Line, peer: &Peer, local: &str, service: &IscsiService) -> std::io::Result<Entered> {
    let mut challenge = [0; 32];
    SystemRandom::new().fill(&mut challenge).map_err(|_| std::io::Error::other("the system has no random bytes"))?;
    let mut login = Login::new(challenge);
    loop {
        let Some(frame) = line.next().await? else { return Ok(Entered::Nowhere) };
        let entered = match login.receive(frame, &service.node.seen_by(peer)) {
            Next::Continue => None,
            Next::Close => Some(Entered::Nowhere),
            Next::Join => {
                let agreed = login.agreed();
                if agreed.target.is_none() {
                    login.accept(1);
                    Some(Entered::Discovery(Box::new(agreed)))
                } else {
                    match join(agreed, peer, local, service).await {
                        Ok(joined) => {
                            login.accept(joined.tsih);
                            Some(Entered::Session(Box::new(joined)))
                        }
                        Err(refusal) => {
                            login.refuse(refusal);
                            Some(Entered::Nowhere)
                        }
                    }
                }
            }
        };
        line.stream.write_all(&login.out.take()).await?;
        if let Some(refused) = login.refused() {
            service.refusals.tell(&peer.name, &refused);
        }
        if let Some(entered) = entered {
            return Ok(entered);
        }
    }
}

/// Takes a place in a session, and waits until no command of a session that it ended can reach the
/// volume any more.
async fn join(agreed: LoginResult, peer: &Peer, local: &str, service: &IscsiService) -> Result<Joined, Refusal> {
    let joined = service.node.join(agreed, peer, local.to_owned())?;
    let until = Instant::now() + FORMER_MAX;
    while !joined.may_begin() {
        if Instant::now() >= until {
            return Err(Refusal::UNAVAILABLE);
        }
        tokio::time::sleep(FORMER_AGAIN).await;
    }
    Ok(joined)
}

async fn discover(
    line: &mut Line,
    agreed: &LoginResult,
    peer: &Peer,
    local: &str,
    service: &IscsiService,
) -> std::io::Result<()> {
    (line.framing.header_digest, line.framing.data_digest) =
        (agreed.parameters.header_digest, agreed.parameters.data_digest);
    let mut discovery = Discovery::new(agreed);
    while let Some(frame) = timeout(LOGIN_MAX, line.next()).await?? {
        let goes_on = discovery.receive(&frame, &service.node.targets_for(peer), local);
        line.stream.write_all(&discovery.out.take()).await?;
        if !goes_on {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_found_again_at_the_address_that_the_initiator_used() {
        for (local, told) in [
            ("[::ffff:10.1.0.5]:3260", "10.1.0.5:3260"),
            ("10.1.0.5:3260", "10.1.0.5:3260"),
            ("[fd00::5]:3260", "[fd00::5]:3260"),
        ] {
            assert_eq!(reached_at(local.parse().unwrap()), told);
        }
    }
}
