//! How one worker reaches a target: the engine that fits, whichever it is.

use std::sync::Arc;

use super::backup;
use super::directory::DirectoryEngine;
use super::engine::{Engine, Null};
use super::inline::Inline;
use super::iscsi::Iscsi;
use super::nbd::Nbd;
use super::nfs::Nfs;
use super::s3::S3Engine;
use super::target::{AccessMethod, Ready};
use super::uring::Uring;
use super::volume::VolumeEngine;

/// What a worker is given.
#[derive(Clone, Copy)]
pub struct ConnectionSpec {
    pub slots: u32,
    pub length_max: usize,
    pub names: bool,
    pub number: u32,
}

/// What is done with an engine of any kind.
pub trait Use {
    type Made;
    fn with<E: Engine>(self, engine: E) -> Result<Self::Made, String>;
}

/// Makes the engine in the thread that uses it: a ring belongs to the thread that made it.
pub fn reach<U: Use>(ready: &Ready, spec: ConnectionSpec, user: U) -> Result<U::Made, String> {
    let ConnectionSpec { slots, length_max, names, number } = spec;
    match &ready.way {
        // One access at a time: a ring would only add to the cost of the call.
        AccessMethod::Ring(file) if slots == 1 => user.with(Inline::new(Arc::clone(file), length_max)),
        AccessMethod::Ring(file) => user.with(Uring::new(Arc::clone(file), slots, length_max)?),
        AccessMethod::Inline(file) => user.with(Inline::new(Arc::clone(file), length_max)),
        AccessMethod::Directory(directory) => {
            let files = DirectoryEngine::new(Arc::clone(directory), names, number);
            user.with(Inline::new(files, length_max))
        }
        AccessMethod::Nbd { address, .. } => user.with(Nbd::new(address, slots, length_max)?),
        AccessMethod::Iscsi(address) => user.with(Iscsi::new(address, slots, length_max)?),
        AccessMethod::Nfs(remote) => user.with(Nfs::new(remote, slots, length_max)?),
        AccessMethod::S3(bucket) => {
            let objects = S3Engine::new(bucket, names, number);
            user.with(Inline::new(objects, length_max))
        }
        AccessMethod::Backup(vault) => user.with(Inline::new(backup::BackupEngine::new(vault)?, length_max)),
        AccessMethod::Volume(volume) => user.with(VolumeEngine::new(volume, slots, length_max)),
        AccessMethod::Null => user.with(Null::new(slots, length_max)),
    }
}
