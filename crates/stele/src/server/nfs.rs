//! The socket of NFS: accepts, and serves each stream on a task of its own. Background work of the shares is here too.
//!
//! Failure model: a connection that fails ends alone. A share whose background work fails is logged and tried again; what it
//! holds stays in its cache.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stele_file::nfs::server::Peer;
use stele_file::nfs::{Ended, Server, serve_connection};
use stele_file::share::Share;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::block::pause;
use crate::node::Node;

/// Connections beyond this wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 1024;
/// Between two rounds of background work of a share that has nothing urgent to do.
const WORK_EVERY: Duration = Duration::from_millis(200);
/// After work that failed.
const WORK_AGAIN: Duration = Duration::from_secs(5);
/// How often content that reads brought into the cache is recorded there.
const SAVE_EVERY: Duration = Duration::from_secs(30);

/// Accepts until the task is dropped; connections end with it.
pub async fn serve(listener: TcpListener, server: Arc<Server<Share>>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true);
                let server = Arc::clone(&server);
                connections.spawn(async move {
                    serve_stream(stream, address, server).await;
                    drop(place);
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn serve_stream(stream: TcpStream, address: SocketAddr, server: Arc<Server<Share>>) {
    match serve_connection(stream, Peer { address, secure: false }, server).await {
        Ended::Closed => {}
        Ended::Stuck(why) => tracing::debug!("an NFS connection of {address} was ended: {why:?}"),
        Ended::Record(error) => tracing::debug!("{address} does not speak RPC: {error:?}"),
        Ended::Failed(error) => tracing::debug!("an NFS connection of {address} failed: {error}"),
        Ended::StartTls(_) => tracing::debug!("{address} asked for TLS, which this server does not offer"),
    }
}

/// Archives, clears away and evicts, for all shares in turn.
pub async fn work(node: Arc<Node>) {
    loop {
        let mut wait = WORK_EVERY;
        for share in node.shares.all() {
            match share.work().await {
                Ok(worked) if worked.more || share.is_pressed() => wait = Duration::from_millis(1),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!("background work of share '{}': {error}", share.name());
                    wait = WORK_AGAIN;
                }
            }
        }
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
