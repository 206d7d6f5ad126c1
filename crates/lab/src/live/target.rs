//! What is measured: which kinds of target there are, and what one that is ready knows of itself.
//!
//! What writes goes only to what the laboratory made itself, or to what the caller says may be
//! destroyed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;

use stele_ground::{Bytes, Duration};

use super::content::Content;
use super::directory::{self, Directory};
use super::versions::Versions;
use super::{backup, iscsi, local, nbd, nfs, s3, volume};
use crate::error::LabError;

/// As it is given on a command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Answers at once: what remains is the cost of the generator itself.
    Null,
    /// A file, a block device, or a directory that exists.
    Path(PathBuf),
    /// Files in a directory.
    Directory(PathBuf),
    /// A network block device.
    Nbd(nbd::NbdAddress),
    /// A logical unit of an iSCSI target.
    Iscsi(iscsi::IscsiAddress),
    /// A file of an NFS server.
    Nfs(nfs::NfsAddress),
    /// Objects in a bucket.
    S3(s3::S3Address),
    /// A volume of Stele in this process.
    Volume(volume::VolumeAddress),
    /// Sessions of backups and restores in a repository.
    Backup(backup::BackupAddress),
}

/// How it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Bytes to use; needed for a file that does not exist yet. None: all there is.
    pub size: Option<Bytes>,
    /// Files of a target that is made of them.
    pub files: u32,
    pub writes: bool,
    /// What is there may be written over.
    pub destroy: bool,
    /// Through the page cache.
    pub buffered: bool,
    pub content: Content,
    /// Offsets and lengths of all accesses are multiples of it.
    pub step: u64,
    /// Bytes of the longest access.
    pub longest: u64,
    /// A target that answers nothing for so long has failed.
    pub patience: Duration,
}

/// What a target is waited for where nothing else is said.
pub const PATIENCE: Duration = Duration(30_000_000_000);
/// Files of a target that is made of them, as in the published measurements.
pub const FILES: u32 = 100;

impl Default for Opening {
    fn default() -> Opening {
        Opening {
            size: None,
            files: FILES,
            writes: false,
            destroy: false,
            buffered: false,
            content: Content::default(),
            step: 4096,
            longest: 4096,
            patience: PATIENCE,
        }
    }
}

impl Opening {
    /// What checks of a target of that size need.
    pub(super) fn versions(&self, size: Bytes) -> Result<Option<Arc<Versions>>, LabError> {
        match self.content.verify {
            true => Versions::new(size, self.step).map(|versions| Some(Arc::new(versions))),
            false => Ok(None),
        }
    }
}

impl Opening {
    /// What is used of a device elsewhere that has so many bytes, in blocks of `block`.
    pub(super) fn of_device(&self, address: &dyn std::fmt::Display, all: u64, block: u64) -> Result<Bytes, LabError> {
        if self.writes && !self.destroy {
            return Err(LabError::Refused(format!("{address}: is written over only with --destroy")));
        }
        if self.content.verify && !self.writes {
            return Err(LabError::Usage(format!(
                "{address}: what it holds cannot be checked by a workload that only reads; add writes"
            )));
        }
        match self.size {
            Some(wanted) if wanted.0 > all => {
                Err(LabError::Usage(format!("{address}: has {}, not {wanted}", Bytes(all))))
            }
            wanted => {
                let size = wanted.map_or(all, |wanted| wanted.0);
                Ok(Bytes(size - size % block))
            }
        }
    }
}

/// Is told bytes done and in all while a target is filled, and ends it by answering false.
pub type Filling<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// How accesses reach it.
#[derive(Clone, Debug)]
pub enum AccessMethod {
    Null,
    /// Plain system calls, one at a time for each worker: what is in memory answers them at once,
    /// and io_uring would hand each to a kernel thread.
    Inline(Arc<File>),
    /// io_uring with registered files and buffers.
    Ring(Arc<File>),
    /// Plain system calls on many files.
    Directory(Arc<Directory>),
    /// Connections to a server, one for each worker or only one, with accesses of so many bytes at
    /// most.
    Nbd {
        address: nbd::NbdAddress,
        several: bool,
        access_max: u64,
    },
    /// A session for each worker.
    Iscsi(iscsi::IscsiAddress),
    /// A connection for each worker.
    Nfs(nfs::Remote),
    /// Requests, one at a time for each worker.
    S3(Arc<s3::Bucket>),
    /// A volume in this process, which all workers share.
    Volume(Arc<volume::Volume>),
    /// A session for each worker.
    Backup(Arc<backup::Vault>),
}

impl AccessMethod {
    /// Each worker has one access under way.
    pub fn is_one_each(&self) -> bool {
        matches!(
            self,
            AccessMethod::Inline(_) | AccessMethod::Directory(_) | AccessMethod::S3(_) | AccessMethod::Backup(_)
        )
    }

    /// Several connections would not see each other's writes.
    pub fn is_alone(&self) -> bool {
        matches!(self, AccessMethod::Nbd { several: false, .. })
    }
}

/// A target that is ready to be measured.
#[derive(Clone, Debug)]
pub struct Ready {
    pub way: AccessMethod,
    pub size: Bytes,
    /// Offsets and lengths must be multiples of it.
    pub block: Bytes,
    /// No access goes beyond a multiple of it: the target is made of files of that size.
    pub file: Option<Bytes>,
    pub versions: Option<Arc<Versions>>,
    pub patience: Duration,
    /// As the target was named; errors of accesses begin with it.
    pub name: String,
    /// What a report says of it.
    pub description: String,
}

impl Ready {
    /// Notes how a file is left, and removes what no other run has a use for. That is files of a
    /// directory, objects of a bucket, and a remote file, pool or repository that this run made.
    pub fn remove(&self) -> Result<(), LabError> {
        match &self.way {
            AccessMethod::Directory(directory) => directory.remove(),
            AccessMethod::Nfs(remote) => remote.remove(),
            AccessMethod::S3(bucket) => bucket.remove(),
            AccessMethod::Volume(volume) => volume.remove(),
            AccessMethod::Backup(vault) => vault.remove(),
            AccessMethod::Inline(file) | AccessMethod::Ring(file) => {
                local::leave(file);
                Ok(())
            }
            AccessMethod::Null | AccessMethod::Nbd { .. } | AccessMethod::Iscsi(_) => Ok(()),
        }
    }
}

/// Size of the null target where none is given.
const NULL_SIZE: Bytes = Bytes(1 << 30);

const KINDS: &str = "null, a file, a block device, a directory (dir:PATH), volume:CODE, or a URL of nbd://, iscsi://, nfs://, s3:// or \
     backup://";

impl std::str::FromStr for Target {
    type Err = LabError;
    fn from_str(text: &str) -> Result<Target, LabError> {
        if text == "null" {
            return Ok(Target::Null);
        }
        if text.starts_with("nbd:") || text.starts_with("nbd+") {
            return text.parse().map(Target::Nbd);
        }
        if text.starts_with("iscsi:") {
            return text.parse().map(Target::Iscsi);
        }
        if text.starts_with("s3") && text.contains("://") {
            return text.parse().map(Target::S3);
        }
        if text.starts_with("volume:") {
            return text.parse().map(Target::Volume);
        }
        if text.starts_with("nfs:") {
            return text.parse().map(Target::Nfs);
        }
        if text.starts_with("backup:") || text.starts_with("backup+") {
            return text.parse().map(Target::Backup);
        }
        let (path, is_directory) = match text.strip_prefix("dir:") {
            Some(path) => (path, true),
            None => (text.strip_prefix("file:").unwrap_or(text), false),
        };
        match text.split_once("://") {
            Some(("nbds" | "nbds+unix", _)) => Err(LabError::Usage(format!(
                "target '{text}': network block devices are reached without TLS; give the nbd:// address of an export \
                 that does not demand it"
            ))),
            Some((scheme, _)) => {
                Err(LabError::Usage(format!("target '{text}': there is no way to reach '{scheme}://'; give {KINDS}")))
            }
            None if path.is_empty() => Err(LabError::Usage("the target has no name".into())),
            None if is_directory => Ok(Target::Directory(PathBuf::from(path))),
            None => Ok(Target::Path(PathBuf::from(path))),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Null => f.write_str("null"),
            Target::Nbd(address) => write!(f, "{address}"),
            Target::Iscsi(address) => write!(f, "{address}"),
            Target::Nfs(address) => write!(f, "{address}"),
            Target::S3(address) => write!(f, "{address}"),
            Target::Volume(address) => write!(f, "{address}"),
            Target::Backup(address) => write!(f, "{address}"),
            Target::Path(path) => write!(f, "{}", path.display()),
            Target::Directory(path) => write!(f, "dir:{}", path.display()),
        }
    }
}

impl Target {
    /// Taken for what it says it is only by these authorities.
    pub fn trusting(self, ca: &std::path::Path) -> Result<Target, LabError> {
        let untold = || LabError::Usage(format!("--ca {}: only s3:// has certificates to check", ca.display()));
        match self {
            Target::S3(address) => address.trusting(ca).map(Target::S3).ok_or_else(untold),
            _ => Err(untold()),
        }
    }

    /// Where it lies on this machine.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            Target::Path(path) | Target::Directory(path) => Some(path),
            Target::Volume(address) => address.directory.as_deref(),
            Target::Backup(address) => address.path(),
            Target::Null | Target::Nbd(_) | Target::Iscsi(_) | Target::Nfs(_) | Target::S3(_) => None,
        }
    }

    /// Opens it, makes the file where there is none, and fills what was never written.
    pub fn open(&self, opening: Opening, progress: Filling<'_>) -> Result<Ready, LabError> {
        match self {
            Target::Null => Ok(Ready {
                way: AccessMethod::Null,
                size: opening.size.unwrap_or(NULL_SIZE),
                block: Bytes(512),
                file: None,
                versions: None,
                patience: opening.patience,
                name: "null".into(),
                description: "null: every access is answered at once".into(),
            }),
            Target::Nbd(address) => nbd::open(address, opening, progress),
            Target::Iscsi(address) => iscsi::open(address, opening, progress),
            Target::Nfs(address) => nfs::open(address, opening, progress),
            Target::S3(address) => s3::open(address, opening),
            Target::Volume(address) => volume::open(address, opening, progress),
            Target::Backup(address) => backup::open(address, opening),
            Target::Directory(path) => directory::open(path, opening, progress),
            Target::Path(path) => {
                let kind = std::fs::metadata(path).map(|found| found.file_type());
                match kind {
                    Ok(kind) if kind.is_block_device() => local::open_device(path, opening, progress),
                    Ok(kind) if kind.is_file() => local::open_file(path, opening, progress),
                    Ok(kind) if kind.is_dir() => directory::open(path, opening, progress),
                    Ok(_) => Err(LabError::Usage(format!(
                        "{}: is neither a file nor a directory nor a block device",
                        path.display()
                    ))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => local::make_file(path, opening, progress),
                    Err(error) => Err(LabError::of(&error, "cannot be looked at", path)),
                }
            }
        }
    }
}
