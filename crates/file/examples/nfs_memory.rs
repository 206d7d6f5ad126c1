//! Serves a tree of files in memory over NFS version 3, to try real clients:
//! `cargo run --release -p stele-file --example nfs_memory -- 127.0.0.1:2049`.
//!
//! The export is `/memory`, for every network, with root as root. MOUNT, NFS, NLM and NSM share the
//! port. With `register` as a second argument, rpcbind is told of the port; that needs root.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use stele_file::locks::Locks;
use stele_file::nfs::portmap;
use stele_file::nfs::server::Peer;
use stele_file::nfs::{Export, Network, Options, Rule, Server, Squash, serve_connection};
use stele_file::{MemoryFiles, Moment};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment::from_nanoseconds(since.as_nanos() as i128)
}

/// A connection to rpcbind from a port below 1024, as it demands.
async fn rpcbind() -> std::io::Result<TcpStream> {
    let mut failed = std::io::ErrorKind::AddrInUse.into();
    for port in (600..1024).rev() {
        let socket = TcpSocket::new_v4()?;
        let connected = match socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
            Ok(()) => socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, 111))).await,
            Err(error) => Err(error),
        };
        match connected {
            Err(error) if matches!(error.kind(), std::io::ErrorKind::AddrInUse) => failed = error,
            other => return other,
        }
    }
    Err(failed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:2049".to_owned());
    let options = Options { grace: std::time::Duration::ZERO, ..Options::default() };
    let server = Arc::new(Server::new([7; 32], 1, Arc::new(Locks::default()), options));
    let rule = |network| Rule { squash: Squash::None, ..Rule::new(network) };
    server.add(Export {
        path: "/memory".to_owned(),
        share: 1,
        files: Arc::new(MemoryFiles::new(now)),
        rules: vec![rule(Network::ALL_V4), rule(Network::ALL_V6)],
    })?;
    let listener = TcpListener::bind(&address).await?;
    if std::env::args().nth(2).as_deref() == Some("register") {
        let mut stream = rpcbind().await?;
        portmap::register(&mut stream, listener.local_addr()?.port()).await?;
    }
    println!("serving /memory on {}; stop with Ctrl-C", listener.local_addr()?);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, address) = accepted?;
                stream.set_nodelay(true)?;
                let server = server.clone();
                tokio::spawn(async move {
                    let ended = serve_connection(stream, Peer { address, secure: false }, server).await;
                    eprintln!("{address}: {ended:?}");
                });
            }
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    let counters = server.counters();
    for (program, name, calls, failures) in counters.procedures().filter(|(_, _, calls, _)| *calls > 0) {
        println!("{program:?} {name}: {calls} calls, {failures} failed");
    }
    let bytes = [&counters.bytes_received, &counters.bytes_sent].map(|bytes| bytes.load(Ordering::Relaxed));
    println!("{} bytes received, {} bytes sent", bytes[0], bytes[1]);
    Ok(())
}
