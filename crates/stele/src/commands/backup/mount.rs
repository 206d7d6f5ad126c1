//! `stele backup mount`: the snapshots as a read-only file system of this machine.
//!
//! The tree is [`Browser`]'s; FUSE is that of the file gateway. Only the user who mounts may use
//! it, since nothing compares the users of a backup with those of this machine.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::json;
use stele_backup::BackupError;
use stele_backup::browse::{Browser, ROOT, Seen};
use stele_backup::repository::Repository;
use stele_backup::snapshot::SnapshotId;
use stele_backup::tree::{Content, Piece, Stamp};
use stele_file::fuse::{MountOptions, mount};
use stele_file::{
    Access, Attributes, Caller, Changed, Changes, Creation, Data, DirectoryEntry, Entry, FileError, Files, Inode, Kind,
    Listing, Moment, Node, Removal, Result, Sought, Space, Stability,
};
use stele_ground::Shown;
use stele_server::failure::{Failure, Kind as Fault, Outcome, io_failure};
use tokio::runtime::Handle;

use super::progress::Signals;
use super::run::host;
use super::tell::tell;
use super::{index, select};
use crate::cli::backup::LatestArgs;
use crate::commands::print_json;
use crate::output::flush;

/// Nothing changes in a snapshot: the kernel may keep all that it was told.
const CACHE: Duration = Duration::from_secs(3600);
/// Threads that read requests.
const THREADS: usize = 4;
/// How often the mount is looked at: another program may have unmounted it.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Why `latest` can mean nothing, while all snapshots are there by their ids.
const LINKLESS: [Fault; 4] = [Fault::Usage, Fault::Missing, Fault::Damaged, Fault::Refused];

struct Snapshots(Arc<Browser>);

/// Mounts the snapshots, and serves them until a signal or an unmounting.
pub fn run(json: bool, repository: &Repository, directory: &Path, which: &LatestArgs) -> Outcome<()> {
    check_place(directory)?;
    let browser = Browser::new(index(repository)?, latest(repository, which)?)?;
    let options = MountOptions {
        name: "stele-backup".to_owned(),
        read_only: true,
        allow_other: false,
        cache: CACHE,
        threads: THREADS,
        ..MountOptions::default()
    };
    let runtime = Handle::current();
    let failed = |error: std::io::Error| Failure::failed(error.to_string());
    let files = Arc::new(Snapshots(Arc::new(browser)));
    let mut mounted = mount(files, directory, &options, None, runtime.clone())
        .map_err(|error| failed(error).next("mounting needs root, an empty directory and the kernel's module fuse"))?;
    let place = mounted.directory().to_owned();
    if json {
        print_json(&json!({ "mounted": place.display().to_string() }))?;
    } else {
        println!("The snapshots are in {}. Ctrl-C unmounts them.", Shown(&place.display().to_string()));
    }
    runtime.block_on(async {
        let mut signals = Signals::listen();
        loop {
            tokio::select! {
                _ = signals.next() => break,
                () = tokio::time::sleep(LOOK_EVERY) => if !mounted.is_serving() { break },
            }
        }
    });
    mounted.unmount().or_else(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => {
            tell(format_args!("stele: files are still open; they can be read no more"));
            mounted.detach().map_err(failed)?;
            flush()?;
            // A read that waits for a silent store would go on in a runtime that ends, and panic.
            std::process::exit(0)
        }
        _ => Err(failed(error)),
    })
}

/// Refuses a place whose content the mount would hide.
fn check_place(directory: &Path) -> Outcome<()> {
    let why = match std::fs::read_dir(directory).map(|mut members| members.next()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(io_failure("mount at", directory, &error)),
        Err(error) if error.kind() == ErrorKind::NotADirectory => "is no directory",
        Ok(Some(Ok(_))) => "is not empty, and a mount would hide what is in it",
        // What a mount that died left there, mounting takes away or names.
        Ok(_) | Err(_) => return Ok(()),
    };
    Err(Failure::usage(format!("{} {why}", directory.display())).next("name an empty directory"))
}

/// The snapshot that `latest` links to. Without options a mount does without that link, and says
/// why.
fn latest(repository: &Repository, which: &LatestArgs) -> Outcome<Option<SnapshotId>> {
    match select::latest(repository, which, Some(&host())) {
        Ok((dated, _)) => Ok(Some(dated.id)),
        Err(failure) if *which == LatestArgs::default() && LINKLESS.contains(&failure.kind) => {
            tell(format_args!("stele: there is no link `latest`: {failure}"));
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

impl Snapshots {
    /// Reads on a thread that may wait for the store.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Browser) -> std::result::Result<T, BackupError> + Send + 'static,
    ) -> Result<T> {
        let browser = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&browser)).await;
        done.map_err(|error| FileError::Stopped(error.to_string()))?.map_err(|error| match error {
            BackupError::Missing(_) => FileError::NotFound,
            BackupError::Refused(_) => FileError::Denied,
            BackupError::Invalid(text) => FileError::Invalid(text),
            other => {
                tell(format_args!("stele: {}", Shown(&other.to_string())));
                FileError::Damaged(other.to_string())
            }
        })
    }

    async fn see(&self, inode: Inode) -> Result<Seen> {
        self.read(move |browser| browser.attributes(inode.0)).await
    }
}

fn refused<T>() -> Result<T> {
    Err(FileError::ReadOnly("snapshots never change".to_owned()))
}

fn attributes(seen: &Seen) -> Attributes {
    let is = &seen.entry.metadata;
    let at = |stamp: Stamp| Moment { seconds: stamp.seconds, nanoseconds: stamp.nanos.min(999_999_999) };
    let device = |number: u64| (rustix::fs::major(number), rustix::fs::minor(number));
    let kind = match &seen.entry.content {
        Content::Directory => Kind::Directory,
        Content::File { .. } => Kind::File,
        Content::Symlink(_) => Kind::Link,
        Content::Fifo => Kind::Pipe,
        Content::Socket => Kind::Socket,
        Content::CharacterDevice(number) => {
            let (major, minor) = device(*number);
            Kind::CharacterDevice { major, minor }
        }
        Content::BlockDevice(number) => {
            let (major, minor) = device(*number);
            Kind::BlockDevice { major, minor }
        }
    };
    let size = match &seen.entry.content {
        Content::Symlink(target) => target.len() as u64,
        content => content.size(),
    };
    Attributes {
        inode: Inode(seen.number),
        kind,
        mode: is.mode & 0o7777,
        // Hard links of a snapshot are files of their own here.
        links: 1,
        uid: is.user,
        gid: is.group,
        size,
        used: used(&seen.entry.content).unwrap_or(size),
        accessed: at(is.modified),
        modified: at(is.modified),
        changed: at(is.changed),
        change: 0,
    }
}

/// Bytes of a file without its holes, if its entry says that.
fn used(content: &Content) -> Option<u64> {
    let Content::File { pieces, lists, .. } = content else { return None };
    let chunks = pieces.iter().filter(|piece| matches!(piece, Piece::Chunk { .. }));
    lists.is_empty().then(|| chunks.map(Piece::length).sum())
}

impl Files for Snapshots {
    fn root(&self) -> Inode {
        Inode(ROOT)
    }

    fn verifier(&self) -> [u8; 8] {
        [0; 8]
    }

    async fn attributes(&self, inode: Inode) -> Result<Attributes> {
        self.see(inode).await.map(|seen| attributes(&seen))
    }

    async fn lookup(&self, _: &Caller, directory: Inode, name: &[u8]) -> Result<Attributes> {
        let name = name.to_vec();
        let found = self.read(move |browser| browser.lookup(directory.0, &name)).await?;
        found.as_ref().map(attributes).ok_or(FileError::NotFound)
    }

    async fn access(&self, _: &Caller, _: Inode, wanted: Access) -> Result<Access> {
        Ok(Access { modify: false, extend: false, delete: false, ..wanted })
    }

    async fn read_link(&self, _: &Caller, inode: Inode) -> Result<Bytes> {
        match self.see(inode).await?.entry.content {
            Content::Symlink(target) => Ok(target.into()),
            _ => Err(FileError::Invalid("this is no symbolic link".to_owned())),
        }
    }

    async fn read(&self, _: &Caller, inode: Inode, offset: u64, length: u32) -> Result<Data> {
        let (bytes, end) = self.read(move |browser| browser.read(inode.0, offset, length as usize)).await?;
        Ok(Data { pieces: vec![bytes.into()], end })
    }

    async fn seek(&self, inode: Inode, offset: u64, sought: Sought) -> Result<Option<u64>> {
        self.read(move |browser| browser.seek(inode.0, offset, sought == Sought::Data)).await
    }

    async fn read_directory(&self, _: &Caller, directory: Inode, cookie: u64, limit: usize) -> Result<Listing> {
        let (members, end) = self.read(move |browser| browser.list(directory.0, cookie, limit)).await?;
        let entry = |member: &stele_backup::browse::ListedFile| DirectoryEntry {
            name: member.seen.entry.name.clone().into(),
            cookie: member.cookie,
            attributes: attributes(&member.seen),
        };
        Ok(Listing { entries: members.iter().map(entry).collect(), end })
    }

    async fn space(&self) -> Result<Space> {
        Ok(Space { total: 0, free: 0, files_total: 0, files_free: 0 })
    }

    async fn attribute(&self, _: &Caller, inode: Inode, name: &[u8]) -> Result<Bytes> {
        let found = self.see(inode).await?.entry.metadata.xattrs;
        let value = found.into_iter().find(|(known, _)| known == name).map(|(_, value)| value);
        value.map(Bytes::from).ok_or(FileError::NoAttribute)
    }

    async fn attribute_names(&self, _: &Caller, inode: Inode) -> Result<Vec<Bytes>> {
        let found = self.see(inode).await?.entry.metadata.xattrs;
        Ok(found.into_iter().map(|(name, _)| name.into()).collect())
    }

    async fn opened(&self, _: Inode, _: bool) -> Result<()> {
        Ok(())
    }

    async fn closed(&self, _: Inode, _: bool) {}

    async fn set_attributes(&self, _: &Caller, _: Inode, _: Changes, _: Option<Moment>) -> Result<Changed> {
        refused()
    }

    async fn write(&self, _: &Caller, _: Inode, _: u64, _: Vec<Bytes>, _: Stability) -> Result<(Changed, Stability)> {
        refused()
    }

    async fn commit(&self, inode: Inode) -> Result<Attributes> {
        self.attributes(inode).await
    }

    async fn create(&self, _: &Caller, _: Inode, _: &[u8], _: Creation) -> Result<Entry> {
        refused()
    }

    async fn make(&self, _: &Caller, _: Inode, _: &[u8], _: Node, _: Changes) -> Result<Entry> {
        refused()
    }

    async fn remove(&self, _: &Caller, _: Inode, _: &[u8], _: Removal) -> Result<Changed> {
        refused()
    }

    async fn rename(&self, _: &Caller, _: (Inode, &[u8]), _: (Inode, &[u8])) -> Result<(Changed, Changed)> {
        refused()
    }

    async fn link(&self, _: &Caller, _: Inode, _: Inode, _: &[u8]) -> Result<Entry> {
        refused()
    }

    async fn set_attribute(
        &self,
        _: &Caller,
        _: Inode,
        _: &[u8],
        _: Option<Bytes>,
        _: Option<bool>,
    ) -> Result<Changed> {
        refused()
    }
}
