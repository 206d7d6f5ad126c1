//! The self-test of a share: what a client of files could do to the canary, as root, over NFS and
//! through a mount.
//!
//! NFS version 3 is asked on a connection in memory, of a server whose rules let root in from this
//! machine. The mount is such as Samba serves shares from. A server that cannot mount serves no
//! share over SMB, so nothing is tried there.

use std::fs::{self, FileTimes, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::body::Bytes;
use stele_archive::{Attempt, Canary};
use stele_file::fuse::{MountOptions, mount_share};
use stele_file::locks::Locks;
use stele_file::nfs::connection::Transport;
use stele_file::nfs::server::Peer;
use stele_file::nfs::xdr::{Reader, Writer};
use stele_file::nfs::{Export, Network, Options, Rule, Server, Squash, rpc, serve_shares, status};
use stele_file::share::Share;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::{ANSWER_MAX, PAUSE, PIPE, TRIES};
use crate::node::surroundings::random;

/// An hour, by which the end of the retention is to come sooner.
const SOONER: Duration = Duration::from_secs(3600);
const EXPORT: &str = "/self-test";
/// A name that nothing has, beside the canary's and its directory's.
const OTHER: &str = "canary.other";
const HANDLE_MAX: usize = 64;

/// Program and version.
const MOUNT: (u32, u32) = (100_005, 3);
const NFS: (u32, u32) = (100_003, 3);
/// Procedures (RFC 1813).
const MNT: u32 = 1;
const SETATTR: u32 = 2;
const LOOKUP: u32 = 3;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const REMOVE: u32 = 12;
const RENAME: u32 = 14;
const LINK: u32 = 15;

/// Tries everything.
pub async fn attempt(share: &Arc<Share>, canary: &Canary) -> Vec<Attempt> {
    let mut attempts = match over_nfs(share, canary).await {
        Ok(attempts) => attempts,
        Err(error) => vec![unasked("NFS", &error)],
    };
    let can_mount = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if can_mount {
        let (share, until, key) = (Arc::clone(share), end(canary), canary.key);
        let (runtime, mounting) = (tokio::runtime::Handle::current(), through_mount);
        let tried = tokio::task::spawn_blocking(move || mounting(&share, key, until, runtime)).await;
        match tried.map_err(io::Error::other).and_then(|tried| tried) {
            Ok(tried) => attempts.extend(tried),
            Err(error) => attempts.push(unasked("mount", &error)),
        }
    }
    attempts
}

/// An interface that could not be asked has refused nothing.
fn unasked(through: &str, error: &io::Error) -> Attempt {
    let what = "reach the canary".to_owned();
    Attempt { what, through: through.into(), refused: false, answer: format!("it could not be asked: {error}") }
}

fn end(canary: &Canary) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(canary.until.0)
}

/// The directory and the name of the canary.
fn parts(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

/// An act on the canary as an NFS client asks for it.
struct Ask {
    what: &'static str,
    procedure: u32,
    arguments: Vec<u8>,
}

/// The attributes that a call sets.
#[derive(Default)]
struct Set {
    mode: Option<u32>,
    size: Option<u64>,
    accessed: Option<SystemTime>,
}

impl Set {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_bool(self.mode.is_some());
        self.mode.iter().for_each(|mode| out.put_u32(*mode));
        // Neither owner nor group.
        out.put_u32(0);
        out.put_u32(0);
        out.put_bool(self.size.is_some());
        self.size.iter().for_each(|size| out.put_u64(*size));
        match self.accessed.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok()) {
            None => out.put_u32(0),
            Some(since) => {
                // The client's time.
                out.put_u32(2);
                out.put_u32(u32::try_from(since.as_secs()).unwrap_or(u32::MAX));
                out.put_u32(since.subsec_nanos());
            }
        }
        out.put_u32(0);
    }
}

fn named(directory: &[u8], name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_opaque(directory);
    out.put_opaque(name.as_bytes());
    out
}

fn asks(root: &[u8], directory: &[u8], file: &[u8], canary: &Canary) -> Vec<Ask> {
    let (above, name) = parts(canary.key);
    let set = |set: &Set| {
        let mut out = Vec::new();
        out.put_opaque(file);
        set.put(&mut out);
        // No guard.
        out.put_u32(0);
        out
    };
    let mut write = Vec::new();
    write.put_opaque(file);
    write.put_u64(0);
    write.put_u32(1);
    // Durable before the answer.
    write.put_u32(2);
    write.put_opaque(b"x");
    let mut create = named(directory, name);
    // An existing file would do.
    create.put_u32(0);
    Set { size: Some(0), ..Set::default() }.put(&mut create);
    let mut link = Vec::new();
    link.put_opaque(file);
    link.extend(named(directory, OTHER));
    let sooner = end(canary).checked_sub(SOONER);
    let ask = |what, procedure, arguments| Ask { what, procedure, arguments };
    vec![
        ask("write into the file", WRITE, write),
        ask("cut the file", SETATTR, set(&Set { size: Some(0), ..Set::default() })),
        ask("make the file writable", SETATTR, set(&Set { mode: Some(0o644), ..Set::default() })),
        ask("shorten the retention by an hour", SETATTR, set(&Set { accessed: sooner, ..Set::default() })),
        ask("rename the file", RENAME, [named(directory, name), named(directory, OTHER)].concat()),
        ask("give the file a further name", LINK, link),
        ask("create the file anew", CREATE, create),
        ask("remove the file", REMOVE, named(directory, name)),
        ask("rename its directory", RENAME, [named(root, above), named(root, OTHER)].concat()),
    ]
}

struct Client {
    stream: DuplexStream,
    xid: u32,
}

async fn over_nfs(share: &Arc<Share>, canary: &Canary) -> io::Result<Vec<Attempt>> {
    let options = Options { grace: Duration::ZERO, ..Options::default() };
    let server = Arc::new(Server::new(random(), 1, Arc::new(Locks::default()), options));
    let network: Network = "127.0.0.1/32".parse().map_err(|_| io::Error::other("no network"))?;
    let rules = vec![Rule { squash: Squash::None, ..Rule::new(network) }];
    let export = Export { path: EXPORT.into(), share: share.number(), files: Arc::clone(share), rules };
    server.add(export).map_err(|error| io::Error::other(error.to_string()))?;
    let (ours, theirs) = tokio::io::duplex(PIPE);
    let peer = Peer { address: ([127, 0, 0, 1], 700).into(), secure: true };
    let serving = tokio::spawn(serve_shares(Box::new(theirs) as Box<dyn Transport>, peer, server));
    let mut client = Client { stream: ours, xid: 0 };
    let attempts = client.attempts(canary).await;
    drop(client);
    let _ = serving.await;
    attempts
}

impl Client {
    async fn attempts(&mut self, canary: &Canary) -> io::Result<Vec<Attempt>> {
        let mut path = Vec::new();
        path.put_opaque(EXPORT.as_bytes());
        let root = self.handle(MOUNT, MNT, &path).await?;
        let (above, name) = parts(canary.key);
        let directory = self.handle(NFS, LOOKUP, &named(&root, above)).await?;
        let file = self.handle(NFS, LOOKUP, &named(&directory, name)).await?;
        let mut attempts = Vec::new();
        for Ask { what, procedure, arguments } in asks(&root, &directory, &file, canary) {
            let answer = self.patiently(procedure, &arguments).await?;
            let said = match answer {
                status::OK => "it was allowed".to_owned(),
                status::ROFS => "NFS3ERR_ROFS".to_owned(),
                other => format!("status {other} of NFS"),
            };
            let refused = answer == status::ROFS;
            attempts.push(Attempt { what: what.into(), through: "NFS".into(), refused, answer: said });
        }
        Ok(attempts)
    }

    /// The status of a procedure. A server that is busy is asked again.
    async fn patiently(&mut self, procedure: u32, arguments: &[u8]) -> io::Result<u32> {
        let mut tries = 0;
        loop {
            tries += 1;
            let answer = number(&mut self.call(NFS, procedure, arguments).await?)?;
            if answer != status::JUKEBOX || tries == TRIES {
                return Ok(answer);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The handle that a procedure answers.
    async fn handle(&mut self, program: (u32, u32), procedure: u32, arguments: &[u8]) -> io::Result<Bytes> {
        let mut results = self.call(program, procedure, arguments).await?;
        match number(&mut results)? {
            status::OK => results.opaque(HANDLE_MAX).map_err(|_| unreadable()),
            other => Err(io::Error::other(format!("the canary was not found: status {other} of NFS"))),
        }
    }

    async fn call(&mut self, (program, version): (u32, u32), procedure: u32, arguments: &[u8]) -> io::Result<Reader> {
        self.xid += 1;
        let mut call = Vec::new();
        // A call by RPC version 2, with credentials of a Unix system: root of the group root.
        for word in [0, self.xid, 0, 2, program, version, procedure, 1] {
            call.put_u32(word);
        }
        let mut credentials = Vec::new();
        credentials.put_u32(0);
        credentials.put_opaque(b"self-test");
        for word in [0, 0, 0] {
            credentials.put_u32(word);
        }
        call.put_opaque(&credentials);
        call.put_u32(0);
        call.put_u32(0);
        call.extend_from_slice(arguments);
        self.stream.write_all(&rpc::Reply::of(call).head).await?;
        let mark = self.stream.read_u32().await?;
        let length = (mark & 0x7fff_ffff) as usize;
        if mark >> 31 != 1 || length > ANSWER_MAX {
            return Err(unreadable());
        }
        let mut record = vec![0; length];
        self.stream.read_exact(&mut record).await?;
        rpc::results(record.into(), self.xid).map_err(|_| unreadable())
    }
}

fn number(reader: &mut Reader) -> io::Result<u32> {
    reader.u32().map_err(|_| unreadable())
}

fn unreadable() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the answer cannot be read")
}

/// A directory for a mount, removed when dropped.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn through_mount(
    share: &Arc<Share>,
    key: &str,
    until: SystemTime,
    runtime: tokio::runtime::Handle,
) -> io::Result<Vec<Attempt>> {
    let name = format!("stele-self-test-{}-{}", std::process::id(), u64::from_le_bytes(random()));
    let place = Directory(std::env::temp_dir().join(name));
    fs::create_dir(&place.0)?;
    let options = MountOptions { name: "self-test".into(), ..MountOptions::default() };
    let mounted = mount_share(Arc::clone(share), &place.0, &options, None, runtime)?;
    let file = place.0.join(key);
    let (directory, other) = (file.with_file_name(""), file.with_file_name(OTHER));
    let sooner = until.checked_sub(SOONER).unwrap_or(until);
    let opened = || OpenOptions::new().read(true).open(&file);
    let acts: [(&str, &dyn Fn() -> io::Result<()>); 8] = [
        ("write into the file", &|| OpenOptions::new().write(true).open(&file)?.write_all(b"x")),
        ("cut the file", &|| OpenOptions::new().write(true).truncate(true).open(&file).map(drop)),
        ("make the file writable", &|| fs::set_permissions(&file, Permissions::from_mode(0o644))),
        ("shorten the retention by an hour", &|| opened()?.set_times(FileTimes::new().set_accessed(sooner))),
        ("rename the file", &|| fs::rename(&file, &other)),
        ("give the file a further name", &|| fs::hard_link(&file, &other)),
        ("remove the file", &|| fs::remove_file(&file)),
        ("rename its directory", &|| fs::rename(&directory, place.0.join(OTHER))),
    ];
    // A file that is not there would refuse everything in its own way.
    opened()?;
    let judged = acts.iter().map(|(what, act)| {
        let (refused, answer) = match act() {
            Ok(()) => (false, "it was allowed".to_owned()),
            Err(error) => (error.kind() == ErrorKind::ReadOnlyFilesystem, error.to_string()),
        };
        Attempt { what: (*what).into(), through: "mount".into(), refused, answer }
    });
    let attempts = judged.collect();
    drop(mounted);
    Ok(attempts)
}
