//! A client for tests, over a stream in memory.

pub mod gate;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;

use crate::locks::Locks;
use crate::{FileError, MemoryFiles, Moment};

use super::connection::{ConnectionEnd, serve_connection};
use super::export::{Export, Network, Rule, Squash};
use super::rpc;
use super::server::{Options, Peer, Server};
use super::status;
use super::xdr::{Reader, Writer};

pub use super::counters::Program;

pub const SECRET: [u8; 32] = [3; 32];
pub const SHARE: u32 = 9;
pub const PATH: &str = "/records";
/// The stream's own buffer: small, so that both sides wait for each other.
const STREAM: usize = 64 << 10;

pub fn clock() -> Moment {
    Moment { seconds: 1_000_000, nanoseconds: 5 }
}

pub fn rule() -> Rule {
    Rule { squash: Squash::None, ..Rule::new("10.0.0.0/8".parse::<Network>().unwrap()) }
}

pub fn server_with<F>(files: F, rule: Rule, options: Options) -> Arc<Server<F>> {
    server_of(Arc::new(files), rule, options)
}

pub fn server_of<F>(files: Arc<F>, rule: Rule, options: Options) -> Arc<Server<F>> {
    let server = Server::new(SECRET, 3, Arc::new(Locks::default()), options);
    server.add(Export { path: PATH.to_owned(), share: SHARE, files, rules: vec![rule] }).unwrap();
    Arc::new(server)
}

/// Without a grace period, for a network that clients of [`Client::new`] belong to.
pub fn server() -> Arc<Server<MemoryFiles>> {
    let options = Options { grace: std::time::Duration::ZERO, ..Options::default() };
    server_with(MemoryFiles::new(clock), rule(), options)
}

pub struct Client {
    pub stream: DuplexStream,
    pub task: JoinHandle<ConnectionEnd<DuplexStream>>,
    pub xid: u32,
    pub uid: u32,
}

impl Client {
    pub fn new<F: crate::Files>(server: &Arc<Server<F>>) -> Client {
        Client::from(server, "10.1.2.3:700".parse().unwrap(), false)
    }

    pub fn from<F: crate::Files>(server: &Arc<Server<F>>, address: SocketAddr, secure: bool) -> Client {
        let (stream, theirs) = duplex(STREAM);
        let task = tokio::spawn(serve_connection(theirs, Peer { address, secure }, server.clone()));
        Client { stream, task, xid: 100, uid: 0 }
    }

    /// A call as one record, with its mark.
    pub fn record(&self, program: Program, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let (number, version) = program.number();
        let mut call = Vec::new();
        for word in [0, self.xid, 0, 2, number, version, procedure, 1] {
            call.put_u32(word);
        }
        let mut body = Vec::new();
        body.put_u32(77);
        body.put_opaque(b"host");
        for word in [self.uid, self.uid, 0] {
            body.put_u32(word);
        }
        call.put_opaque(&body);
        call.put_u32(0);
        call.put_u32(0);
        call.put_fixed(arguments);
        rpc::Reply::of(call).head
    }

    pub async fn send(&mut self, program: Program, procedure: u32, arguments: &[u8]) -> u32 {
        self.xid += 1;
        let record = self.record(program, procedure, arguments);
        self.stream.write_all(&record).await.unwrap();
        self.xid
    }

    /// The next record, without its mark.
    pub async fn receive(&mut self) -> Bytes {
        let mark = self.stream.read_u32().await.unwrap();
        assert!(mark >> 31 == 1, "an answer of several fragments");
        let mut record = vec![0; (mark & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut record).await.unwrap();
        assert!(record.len().is_multiple_of(4), "an answer of {} bytes", record.len());
        record.into()
    }

    /// The results of a call that RPC accepts.
    pub async fn call(&mut self, program: Program, procedure: u32, arguments: &[u8]) -> Reader {
        let xid = self.send(program, procedure, arguments).await;
        rpc::results(self.receive().await, xid).unwrap()
    }

    /// The status and the other results of a procedure of NFS.
    pub async fn nfs(&mut self, procedure: u32, arguments: impl Into<Arguments>) -> (u32, Reader) {
        let mut results = self.call(Program::Nfs, procedure, &arguments.into().0).await;
        (results.u32().unwrap(), results)
    }

    /// The results of a procedure that must succeed.
    pub async fn done(&mut self, procedure: u32, arguments: impl Into<Arguments>) -> Reader {
        let (status, results) = self.nfs(procedure, arguments).await;
        assert_eq!(status, status::OK, "procedure {procedure}");
        results
    }

    pub async fn mount(&mut self) -> Bytes {
        let mut results = self.call(Program::Mount, 1, &args().opaque(PATH.as_bytes()).0).await;
        assert_eq!(results.u32(), Ok(status::OK));
        results.opaque(64).unwrap()
    }

    /// Creates a file and answers its handle.
    pub async fn create(&mut self, directory: &[u8], name: &str) -> Bytes {
        let call = args().opaque(directory).opaque(name.as_bytes()).u32(1).mode(0o644);
        let mut results = self.done(super::procedures::CREATE, call).await;
        assert_eq!(results.bool(), Ok(true));
        results.opaque(64).unwrap()
    }
}

/// Arguments of a call, item by item.
#[derive(Clone, Default)]
pub struct Arguments(pub Vec<u8>);

pub fn args() -> Arguments {
    Arguments::default()
}

impl From<&[u8]> for Arguments {
    /// A handle alone.
    fn from(handle: &[u8]) -> Arguments {
        args().opaque(handle)
    }
}

impl From<&Bytes> for Arguments {
    fn from(handle: &Bytes) -> Arguments {
        args().opaque(handle)
    }
}

impl Arguments {
    pub fn u32(mut self, value: u32) -> Arguments {
        self.0.put_u32(value);
        self
    }

    pub fn u64(mut self, value: u64) -> Arguments {
        self.0.put_u64(value);
        self
    }

    pub fn opaque(mut self, bytes: &[u8]) -> Arguments {
        self.0.put_opaque(bytes);
        self
    }

    pub fn fixed(mut self, bytes: &[u8]) -> Arguments {
        self.0.put_fixed(bytes);
        self
    }

    /// `sattr3` that sets the mode alone.
    pub fn mode(self, mode: u32) -> Arguments {
        self.u32(1).u32(mode).u32(0).u32(0).u32(0).u32(0).u32(0)
    }

    /// `sattr3` that sets nothing.
    pub fn nothing(self) -> Arguments {
        self.u32(0).u32(0).u32(0).u32(0).u32(0).u32(0)
    }

    /// `sattr3` that sets the size alone.
    pub fn size(self, size: u64) -> Arguments {
        self.u32(0).u32(0).u32(0).u32(1).u64(size).u32(0).u32(0)
    }
}

/// What tests look at in `fattr3`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub kind: u32,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub size: u64,
    pub inode: u64,
    pub modified: (u32, u32),
    pub changed: (u32, u32),
}

pub fn attributes(reader: &mut Reader) -> Seen {
    let mut word = || reader.u32().unwrap();
    let (kind, mode, links, uid, _gid) = (word(), word(), word(), word(), word());
    let size = reader.u64().unwrap();
    let (_used, _device, share) = (reader.u64().unwrap(), reader.u64().unwrap(), reader.u64().unwrap());
    assert_eq!(share, u64::from(SHARE));
    let inode = reader.u64().unwrap();
    let mut time = || (reader.u32().unwrap(), reader.u32().unwrap());
    let (_accessed, modified, changed) = (time(), time(), time());
    Seen { kind, mode, links, uid, size, inode, modified, changed }
}

/// `post_op_attr`.
pub fn after(reader: &mut Reader) -> Option<Seen> {
    reader.bool().unwrap().then(|| attributes(reader))
}

/// `wcc_data`: the size before, and the attributes after.
pub fn changed(reader: &mut Reader) -> (Option<u64>, Option<Seen>) {
    let before = reader.bool().unwrap().then(|| {
        let size = reader.u64().unwrap();
        reader.skip(16).unwrap();
        size
    });
    (before, after(reader))
}

/// All results were read.
pub fn ends(reader: &Reader) {
    assert_eq!(reader.remaining(), 0, "results that the procedure does not have");
}

/// Lets other tasks run until the future is ready, or has had every chance to be.
pub async fn is_ready<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    for _ in 0..64 {
        if let std::task::Poll::Ready(done) = futures_util::poll!(future.as_mut()) {
            return Some(done);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// The failures of the gateway, each once.
pub fn failures() -> Vec<FileError> {
    let text = || "why".to_owned();
    vec![
        FileError::NotOwner,
        FileError::NotFound,
        FileError::Denied,
        FileError::Exists,
        FileError::OtherShare,
        FileError::NotDirectory,
        FileError::IsDirectory,
        FileError::Invalid(text()),
        FileError::TooLarge,
        FileError::NoSpace,
        FileError::ReadOnly(text()),
        FileError::TooManyLinks,
        FileError::NameTooLong,
        FileError::NotEmpty,
        FileError::OverQuota,
        FileError::Stale,
        FileError::NotSynchronized,
        FileError::BadCookie,
        FileError::NotSupported,
        FileError::Damaged(text()),
        FileError::Retry(text()),
        FileError::Stopped(text()),
    ]
}
