//! A node on drives in memory, for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stele_array::server::{PoolServer, ServerOptions, Source};
use stele_array::{Command, CreateOptions, DigestUnit, OpenOptions, VolumeSpec, VolumeStatus, WriteMode};
use stele_ground::{Bytes, DriveId, MIB, PoolId, VolumeId};
use stele_media::MemoryDrive;

use super::Node;
use crate::config::Config;

pub const VOLUME: u64 = 4 * MIB;
pub const BLOCK: u64 = 4096;

/// A node without an archive, with a data directory of its own.
pub struct Scene {
    dir: PathBuf,
    pub node: Arc<Node>,
}

impl Scene {
    pub fn new(name: &str) -> Scene {
        let dir = std::env::temp_dir().join(format!("stele-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let drive = |at| Source::other(MemoryDrive::new(Bytes(64 * MIB)), format!("drive {at}"), at);
        let create = CreateOptions {
            pool: PoolId([1; 16]),
            name: "pool".to_owned(),
            drives: (0..4).map(|at| DriveId([at; 16])).collect(),
            seed: 1,
            log: None,
            spare_drives: None,
            created: 0,
            shard: Default::default(),
        };
        let drives = (0..4).map(drive).collect();
        let pool = PoolServer::create_on(drives, create, OpenOptions::default(), ServerOptions::default()).unwrap();
        let node = Arc::new(Node::of_pool_at(&dir, pool, Config::new(Vec::new())));
        Scene { dir, node }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub async fn volume(&self, name: &str) {
        self.node.pool.command(Command::CreateVolume(spec(name, Bytes(VOLUME)))).await.unwrap();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A volume of two copies without an owner.
pub fn spec(name: &str, size: Bytes) -> VolumeSpec {
    VolumeSpec {
        name: name.to_owned(),
        code: "mirror-2".parse().unwrap(),
        size,
        strip: Bytes(64 << 10),
        block: Bytes(BLOCK),
        digest: DigestUnit::Block,
        mode: WriteMode::WriteBack,
        fully_allocated: false,
        spread: false,
        owner: None,
    }
}

/// What a pool says of a volume.
pub fn volume(name: &str, owner: Option<&str>) -> VolumeStatus {
    VolumeStatus::empty(VolumeId(1), VolumeSpec { owner: owner.map(str::to_owned), ..spec(name, Bytes(1 << 30)) })
}
