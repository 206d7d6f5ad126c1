//! A server for tests: an archive in memory, the frontend in front of it, and a socket, all in this
//! process.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant as Elapsed, SystemTime, UNIX_EPOCH};

use stele_archive::store::NoGuard;
use stele_archive::{
    Archive, Caller, Foundation, KeyLife, MasterKey, Options, Reading, Rights, Surroundings, Timestamp,
};
use stele_catalog::MemoryCatalog;
use stele_ground::{Bytes, Instant, MIB};
use stele_object::{Frontend, Peer, Settings, Snapshot, serve_connection};
use tokio::net::TcpListener;

/// The machine's clock and entropy.
struct Machine(Elapsed);

impl Surroundings for Machine {
    fn now(&self) -> Reading {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        Reading { monotonic: Instant(self.0.elapsed().as_nanos() as u64), wall: Timestamp(wall) }
    }

    fn entropy(&self, into: &mut [u8]) {
        aws_lc_rs::rand::fill(into).unwrap();
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub access_key: String,
    pub secret_key: String,
    pub archive: Archive,
    pub frontend: Arc<Frontend>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Server {
    /// A server with `volume` bytes of room and these settings.
    pub async fn start(settings: Settings, volume: Bytes) -> Server {
        Server::listen(settings, volume, "127.0.0.1:0").await
    }

    /// A server whose archive has these options.
    pub async fn with(settings: Settings, volume: Bytes, options: Options) -> Server {
        Server::listen_with(settings, volume, "127.0.0.1:0", options).await
    }

    pub async fn listen(settings: Settings, volume: Bytes, address: &str) -> Server {
        Server::listen_with(settings, volume, address, Server::options()).await
    }

    pub fn options() -> Options {
        Options { segment: Bytes(4 * MIB), ..Options::default() }
    }

    async fn listen_with(settings: Settings, volume: Bytes, address: &str, options: Options) -> Server {
        let surroundings = Arc::new(Machine(Elapsed::now()));
        let master = MasterKey::generate(&*surroundings);
        let foundation = Foundation {
            catalog: Arc::new(MemoryCatalog::new()),
            data: stele_media::serve_memory(volume).unwrap(),
            surroundings,
            guard: Arc::new(NoGuard),
            master,
        };
        let archive = Archive::create(foundation, options).await.unwrap();
        let key = archive.create_access_key(&Caller::local(0), "tests", Rights::all()).await.unwrap();
        let clock = Arc::new(SystemTime::now);
        let frontend = Frontend::new(archive.clone(), settings, clock, Some(Arc::new(Snapshot::default)));
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = frontend.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let peer = Peer { address: Some(from), secure: false, tls: "-" };
                tokio::spawn(serve_connection(stream, peer, served.clone()));
            }
        });
        Server { address, access_key: key.id, secret_key: key.secret.to_string(), archive, frontend, accepting }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A key with fewer than all rights.
    pub async fn key(&self, rights: Rights) -> (String, String) {
        let key = self.archive.create_access_key(&Caller::local(0), "less", rights).await.unwrap();
        (key.id, key.secret.to_string())
    }

    /// A key that has expired.
    pub async fn expired_key(&self, rights: Rights) -> (String, String) {
        let (admin, life) = (Caller::local(0), KeyLife::For(1));
        let key = self.archive.create_expiring_access_key(&admin, "ends", rights, life).await.unwrap();
        while self.archive.credentials(&key.id).await.is_ok() {
            tokio::task::yield_now().await;
        }
        (key.id, key.secret.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
