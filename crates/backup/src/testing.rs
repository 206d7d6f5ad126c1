//! What tests stand on: a repository in memory with small chunks, dice for entropy, and directories
//! that go.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use stele_ground::Dice;

use crate::backup::{BackupOptions, BackupProgress, Saved, Source, run};
use crate::chunker::Lengths;
use crate::compress::Compressor;
use crate::crypt::{Keys, Kind};
use crate::error::Result;
use crate::keyring::Cost;
use crate::repository::{Making, Repository, Surroundings};
use crate::restore::{self, Restored};
use crate::segment::{Footer, Prepared, SEGMENT_BYTES_MAX, SegmentWriter};
use crate::store::memory::Memory;
use crate::store::{Folder, Name, Store};

pub struct Stage {
    dice: Mutex<Dice>,
    pub elapsed: AtomicU64,
    /// The agent's clock. Each look at it takes a nanosecond.
    pub instant: AtomicU64,
}

impl Surroundings for Stage {
    fn entropy(&self, into: &mut [u8]) {
        self.dice.lock().unwrap().fill(into);
    }

    fn elapsed(&self) -> u64 {
        self.elapsed.load(Ordering::Relaxed)
    }

    fn instant(&self) -> u64 {
        self.instant.fetch_add(1, Ordering::Relaxed)
    }
}

pub fn stage(seed: u64) -> Arc<Stage> {
    Arc::new(Stage {
        dice: Mutex::new(Dice::new(seed)),
        elapsed: AtomicU64::new(0),
        instant: AtomicU64::new(1_000_000_000_000_000),
    })
}

pub const SMALL: Making = Making {
    lengths: Lengths { min: 256, average: 1024, max: 4096 },
    segment_bytes: 16 << 10,
    cost: Cost::LEAST,
    defaults: crate::repository::locks::Defaults { keep_seconds: 0 },
};

pub const PASSWORD: &[u8] = b"correct horse";

/// A repository in memory.
pub fn repository(seed: u64) -> (Repository, Arc<Memory>) {
    let store = Arc::new(Memory::default());
    store.set_now(1_000_000);
    let made = Repository::make(store.clone(), stage(seed), PASSWORD, "first", SMALL);
    (made.unwrap(), store)
}

/// A directory that is removed at the end.
pub struct Temporary(pub PathBuf);

impl Temporary {
    pub fn new() -> Temporary {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("stele-backup-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Temporary(path.canonicalize().unwrap())
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn options(path: &Path) -> BackupOptions {
    BackupOptions {
        paths: vec![path.to_owned()],
        filter: Default::default(),
        one_file_system: false,
        exclude_caches: false,
        exclude_if_present: Vec::new(),
        read_all: false,
        level: 1,
        workers: 2,
        sessions: 2,
        cache: None,
        host: "host".to_owned(),
        user: "user".to_owned(),
        program: "test".to_owned(),
        tags: Vec::new(),
        excludes: Vec::new(),
        begun: 1_000_000,
        locked_until: None,
    }
}

pub fn save(repository: &Repository, path: &Path) -> Result<Saved> {
    run(repository, Source::Files, &options(path), &BackupProgress::default())
}

/// Restores all that was saved from `path` into `target`.
pub fn restore(repository: &Repository, saved: &Saved, path: &Path, target: &Path) -> Result<Restored> {
    let (indexed, _) = repository.index(&repository.epoch()?, None)?;
    let options = restore::RestoreOptions {
        target: target.to_owned(),
        within: crate::backup::tree_path(path)?,
        exclude: Default::default(),
        include: Default::default(),
        verify: false,
        workers: 2,
    };
    restore::run(&indexed, &saved.description, &options, &restore::RestoreProgress::default())
}

pub fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Dice::new(seed).fill(&mut bytes);
    bytes
}

/// All that `find` and `cmp` would see of a tree: path, kind, mode, owner, time, links and content.
pub fn picture(root: &Path) -> Vec<String> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    fn visit(root: &Path, path: &Path, found: &mut Vec<String>) {
        let mut names: Vec<PathBuf> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        for path in names {
            let is = path.symlink_metadata().unwrap();
            let content = match is.file_type() {
                kind if kind.is_file() => blake3::hash(&std::fs::read(&path).unwrap()).to_string(),
                kind if kind.is_symlink() => format!("{:?}", std::fs::read_link(&path).unwrap()),
                kind if kind.is_fifo() => "fifo".to_owned(),
                kind if kind.is_socket() => "socket".to_owned(),
                kind if kind.is_dir() => "directory".to_owned(),
                _ => format!("device {}", is.rdev()),
            };
            let links = if is.is_dir() { 0 } else { is.nlink() };
            found.push(format!(
                "{:?} {:o} {}:{} {}.{} {links} {content}",
                path.strip_prefix(root).unwrap(),
                is.mode(),
                is.uid(),
                is.gid(),
                is.mtime(),
                is.mtime_nsec(),
            ));
            if is.is_dir() {
                visit(root, &path, found);
            }
        }
    }
    let mut found = Vec::new();
    visit(root, root, &mut found);
    found
}

/// Stores segments that claim all chunks of the store with another content, under names before
/// those of all others. With the keys of the repository they are authentic, and with other ones
/// they are junk.
pub fn plant(repository: &Repository, store: &Memory, keys: &Keys) {
    let names = store.names(Folder::Segments);
    let footers: Vec<Footer> =
        names.iter().map(|name| Footer::decode(&store.get(name, SEGMENT_BYTES_MAX).unwrap()).unwrap()).collect();
    for kind in [Kind::Content, Kind::Tree] {
        loop {
            let mut writer = SegmentWriter::new(keys, kind, repository.salt(), Vec::new());
            for entry in footers.iter().filter(|footer| footer.kind == kind).flat_map(|footer| &footer.entries) {
                let mut compressor = Compressor::new(1).unwrap();
                let content = vec![b'!'; entry.length as usize];
                writer.add(&Prepared::new(entry.id, &content, &mut compressor).unwrap()).unwrap();
            }
            let full = writer.finish();
            let name = Name::segment(&full.id);
            if names.iter().all(|good| name < *good) {
                store.create(&name, &full.bytes).unwrap();
                break;
            }
        }
    }
}

/// The keys of another repository.
pub fn foreign_keys() -> Keys {
    Keys::new(zeroize::Zeroizing::new([7; 32]))
}
