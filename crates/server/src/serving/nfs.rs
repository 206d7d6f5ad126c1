//! The socket of NFS: accepts, and serves each stream on a task of its own. Background work of the
//! shares is here too.
//!
//! Failure model: a connection that fails ends alone. A share whose background work fails is logged
//! and tried again; what it holds stays in its cache.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use stele_file::nfs::places::Places;
use stele_file::nfs::server::Peer;
use stele_file::nfs::{ConnectionEnd, Server, portmap, serve_shares};
use stele_file::share::Share;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::accepting::pause;
use super::lanes::Lanes;
use super::renewal::Secured;
use crate::failure::Outcome;
use crate::node::Node;

/// Connections beyond this wait in the listener's backlog. One address has at most
/// [`stele_file::nfs::places::CONNECTIONS_PER_ADDRESS`] of them; a further one is closed.
const CONNECTIONS_MAX: usize = 1024;
/// Between two rounds while a writer waits for room.
const WORK_WHEN_PRESSED: Duration = Duration::from_millis(5);
/// Between two rounds while the cache is nearly full.
const WORK_WHEN_FULL: Duration = Duration::from_millis(20);
/// Between two rounds of background work of a share that has nothing urgent to do.
const WORK_EVERY: Duration = Duration::from_millis(200);
/// Between two looks for files that the archive does not take, and at the room of the pool.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After work that failed.
const WORK_AGAIN: Duration = Duration::from_secs(5);
/// How often content that reads brought into the cache is recorded there.
const SAVE_EVERY: Duration = Duration::from_secs(30);

/// The protocol's name in TLS (RFC 9289, section 5).
const ALPN: &[u8] = b"sunrpc";
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);
/// The port of rpcbind, and how long it may take to answer.
const RPCBIND: u16 = 111;
const RPCBIND_MAX: Duration = Duration::from_secs(5);

/// As for NBD, with the name of the protocol.
pub fn acceptor(certificate: &Path, key: &Path, authority: Option<&Path>) -> Outcome<TlsAcceptor> {
    let acceptor = super::block::acceptor(certificate, key, authority)?;
    let mut config = ServerConfig::clone(acceptor.config());
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts until the task is dropped; connections end with it.
pub async fn serve(listener: TcpListener, server: Arc<Server<Share>>, tls: Option<Secured>, lanes: Lanes) {
    server.begin_grace();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let peers = Arc::new(Places::default());
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, address)) => {
                let Some(own) = peers.enter(address.ip()) else {
                    tracing::debug!("{address} has all connections that one address may have");
                    continue;
                };
                let _ = stream.set_nodelay(true);
                let (server, tls) = (Arc::clone(&server), tls.clone());
                let serve = async move |stream| {
                    serve_stream(stream, address, server, tls).await;
                    drop((own, place));
                };
                if let Err(error) = lanes.serve(stream, &mut connections, serve) {
                    tracing::warn!("{address} cannot be served: {error}");
                }
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn serve_stream(stream: TcpStream, address: SocketAddr, server: Arc<Server<Share>>, tls: Option<Secured>) {
    let ended = serve_shares(Box::new(stream), Peer { address, secure: false }, Arc::clone(&server)).await;
    let (ConnectionEnd::StartTls(stream), Some(tls)) = (ended, tls) else { return };
    match timeout(HANDSHAKE_MAX, tls.acceptor().accept(stream)).await {
        Ok(Ok(stream)) => drop(serve_shares(Box::new(stream), Peer { address, secure: true }, server).await),
        Ok(Err(error)) => tracing::debug!("TLS with {address} failed: {error}"),
        Err(_) => tracing::debug!("TLS with {address} took too long"),
    }
}

/// Tells rpcbind of this machine, where one runs, the port of NFS. A server that only this machine
/// reaches tells no one.
pub async fn register(address: SocketAddr) {
    if address.ip().is_loopback() {
        return;
    }
    let telling = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, RPCBIND)).await.ok()?;
        Some(portmap::register(&mut stream, address.port()).await)
    };
    match timeout(RPCBIND_MAX, telling).await {
        Ok(Some(Ok(()))) => tracing::info!("rpcbind knows NFS at port {}", address.port()),
        Ok(Some(Err(error))) => tracing::warn!("rpcbind was not told of NFS: {error}; clients need the port"),
        Ok(None) | Err(_) => {
            tracing::info!("no rpcbind runs here: clients mount with port={0},mountport={0}", address.port())
        }
    }
}

/// Takes the registration back.
pub async fn unregister(address: Option<SocketAddr>) {
    if address.is_none_or(|address| address.ip().is_loopback()) {
        return;
    }
    let telling = async {
        if let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, RPCBIND)).await {
            let _ = portmap::unregister(&mut stream).await;
        }
    };
    let _ = timeout(RPCBIND_MAX, telling).await;
}

/// Archives, commits, clears away and evicts: a task for each share, so that a long one keeps no
/// other back.
pub async fn work(node: Arc<Node>) {
    let mut tasks = JoinSet::new();
    let mut known: Vec<Weak<Share>> = Vec::new();
    let mut looked = Instant::now();
    let mut is_low = false;
    loop {
        // Where the archive was for reading only at the start, the shares open with its return.
        if let Err(failure) = node.open_shares().await {
            tracing::warn!("the shares could not be opened: {failure}");
        }
        known.retain(|share| share.strong_count() > 0);
        if let Some(server) = node.shares.running() {
            server.expire().await;
        }
        for share in node.shares.all() {
            if !known.iter().any(|other| std::ptr::eq(other.as_ptr(), Arc::as_ptr(&share))) {
                known.push(Arc::downgrade(&share));
                tasks.spawn(work_on(Arc::clone(&node), share));
            }
        }
        while tasks.try_join_next().is_some() {}
        let is_due = looked.elapsed() >= LOOK_EVERY;
        if is_due {
            node.note_stuck();
            looked = Instant::now();
        }
        // A burst takes the last room of a pool within a second: there each round looks.
        if is_due || is_low {
            is_low = node.spare_caches().await;
        }
        tokio::time::sleep(WORK_EVERY).await;
    }
}

/// Background work of one share, until it is withdrawn. A long upload keeps neither room nor
/// commits back.
async fn work_on(node: Arc<Node>, share: Arc<Share>) {
    tokio::join!(
        repeat(&node, &share, Part::Archive),
        repeat(&node, &share, Part::Commit),
        repeat(&node, &share, Part::Room),
    );
}

/// A part of background work.
#[derive(Clone, Copy)]
enum Part {
    Archive,
    Commit,
    Room,
}

async fn repeat(node: &Node, share: &Arc<Share>, part: Part) {
    while node.shares.get(share.name()).is_some_and(|open| Arc::ptr_eq(&open, share)) {
        let worked = match part {
            Part::Archive => share.archive_round().await,
            Part::Commit => share.commit_round().await,
            Part::Room => share.room_round().await,
        };
        let wait = match worked {
            Ok(worked) if worked.more => Duration::from_millis(1),
            Ok(_) if share.is_pressed() => WORK_WHEN_PRESSED,
            Ok(_) if share.is_nearly_full() => WORK_WHEN_FULL,
            Ok(_) => WORK_EVERY,
            Err(error) => {
                tracing::warn!("background work of share '{}': {error}", share.name());
                WORK_AGAIN
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Records what reads brought into the caches, now and then.
pub async fn save(node: Arc<Node>) {
    loop {
        tokio::time::sleep(SAVE_EVERY).await;
        save_now(&node).await;
    }
}

pub async fn save_now(node: &Node) {
    for share in node.shares.all() {
        if let Err(error) = share.save_all().await {
            tracing::warn!("the cache of share '{}' could not be recorded: {error}", share.name());
        }
    }
}
