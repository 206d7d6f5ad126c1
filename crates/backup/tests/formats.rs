//! A stored repository, read to its last byte by the present reader.
//!
//! `formats/repository-1` is a repository as `stele backup` made it. It has two keys, a snapshot of
//! a tree (description of version 2) and one of a volume (version 3), an epoch with condemned
//! segments, and a list of damaged chunks. Its objects are never made anew: a changed format gets a
//! further repository.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stele_backup::repository::epochs::SessionState;
use stele_backup::repository::footers;
use stele_backup::repository::{Indexed, Repository, Surroundings};
use stele_backup::restore::{self, RestoreOptions, RestoreProgress, Restored};
use stele_backup::snapshot::Description;
use stele_backup::store::directory::Directory;
use stele_backup::verify::{self, VerifyProgress};

const ESCROW: &str = "stele-backup-escrow-1 afec7441cfd86ffe7618658d00cd331e 471063979de272f6233052d33fed29619c597fd2a5df08272dcbf4c8433f7b2b 57486c85";
/// Modification time of the saved files, in seconds and nanoseconds.
const MODIFIED: (i64, i64) = (1_000_000_000, 123_456_789);

/// No clock and no chance: what reads a repository takes neither.
struct Fixed;

impl Surroundings for Fixed {
    fn entropy(&self, into: &mut [u8]) {
        into.fill(7);
    }

    fn elapsed(&self) -> u64 {
        0
    }

    fn instant(&self) -> u64 {
        0
    }
}

/// A copy of the repository and room for a restore, both removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("stele-backup-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        let path = path.canonicalize().unwrap();
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/repository-1"), &path.join("repository"));
        Place(path)
    }

    fn open(&self, password: &[u8]) -> Repository {
        let store = Directory::new(&self.0.join("repository"), Arc::new(Fixed));
        Repository::open(Arc::new(store), Arc::new(Fixed), password).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), &to).unwrap()),
        }
    }
}

/// The only snapshot with this tag.
fn tagged(repository: &Repository, tag: &str) -> Description {
    let all = repository.snapshots().unwrap().into_iter();
    let all = all.map(|dated| repository.snapshot(&dated.id).unwrap().description);
    let mut found: Vec<Description> = all.filter(|is| is.tags == [tag]).collect();
    assert_eq!(found.len(), 1, "snapshots with the tag {tag}");
    found.remove(0)
}

fn restored(indexed: &Indexed, description: &Description, target: &Path) -> Restored {
    let options = RestoreOptions {
        target: target.to_owned(),
        within: Vec::new(),
        exclude: Default::default(),
        include: Default::default(),
        verify: true,
        workers: 2,
    };
    restore::run(indexed, description, &options, &RestoreProgress::default()).unwrap()
}

/// The bytes of the file `noise`.
fn noise() -> Vec<u8> {
    let mut state = 41u64.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::new();
    while bytes.len() < 3000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(3000);
    bytes
}

#[test]
fn a_stored_tree_is_restored_to_its_last_byte() {
    let place = Place::new("formats-tree");
    let repository = place.open(b"correct horse");
    let is = tagged(&repository, "tree");
    assert_eq!((is.host.as_str(), is.user.as_str(), is.program.as_str()), ("golden", "keeper", "stele 0.1.0"));
    assert_eq!((is.paths, is.excludes), (vec![b"srv/golden/tree".to_vec()], vec!["*.tmp".to_owned()]));
    assert_eq!((is.counts.files, is.counts.bytes, is.problems, is.has_volume), (5, 3_190_621, 0, false));
    assert!(is.begun < is.finished / 1_000_000_000 + 1, "{} {}", is.begun, is.finished);

    let (indexed, loaded) = repository.index(&repository.epoch().unwrap(), None).unwrap();
    assert_eq!((loaded.unreadable, loaded.unmarked), (Vec::new(), Vec::new()));
    let target = place.0.join("restored");
    let done = restored(&indexed, &tagged(&repository, "tree"), &target);
    // Only root may give files to another user; the content does not depend on it.
    assert_eq!((done.files, done.files_kept), (5, 0), "{:?}", done.issues);
    let tree = target.join("srv/golden/tree");
    let lines: String = (0..4000).map(|number| format!("line {number}\n")).collect();
    assert!(fs::read(tree.join("lines.txt")).unwrap() == lines.as_bytes());
    let mut hole = vec![0; 3 << 20];
    hole.extend_from_slice(b"end");
    assert!(fs::read(tree.join("hole")).unwrap() == hole);
    assert!(fs::read(tree.join("sub/noise")).unwrap() == noise());
    assert!(fs::read(tree.join("empty")).unwrap().is_empty());
    assert_eq!(fs::read_link(tree.join("link")).unwrap(), Path::new("sub/noise"));
    let [noise, twin, pipe] = ["sub/noise", "sub/twin", "pipe"].map(|name| tree.join(name).metadata().unwrap());
    assert_eq!((noise.mode() & 0o7777, noise.nlink(), noise.ino()), (0o640, 2, twin.ino()));
    assert_eq!((noise.mtime(), noise.mtime_nsec()), MODIFIED);
    assert_eq!(pipe.mode() & 0o170_000, 0o010_000, "a pipe");
}

#[test]
fn a_stored_volume_is_restored_to_its_last_byte() {
    let place = Place::new("formats-volume");
    let repository = place.open(b"battery staple");
    let is = tagged(&repository, "volume");
    assert_eq!((is.paths.clone(), is.problems, is.has_volume), (vec![b"stele-volumes/gold".to_vec()], 0, true));
    let (indexed, _) = repository.index(&repository.epoch().unwrap(), None).unwrap();
    let target = place.0.join("restored");
    restored(&indexed, &is, &target);
    let mut volume = vec![0; 1 << 20];
    volume[..64 << 10].fill(65);
    volume[512 << 10..576 << 10].fill(66);
    assert!(fs::read(target.join("stele-volumes/gold")).unwrap() == volume);
}

#[test]
fn keys_epochs_and_marks_of_a_stored_repository_are_read() {
    let place = Place::new("formats-rest");
    let repository = place.open(ESCROW.as_bytes());
    let mut labels: Vec<String> = repository.keys_listed().unwrap().into_iter().map(|key| key.label).collect();
    labels.sort();
    assert_eq!(labels, ["first", "second"]);
    assert!(repository.keys_listed().unwrap().iter().all(|key| key.damage.is_none()));
    let epoch = repository.epoch().unwrap();
    assert_eq!((epoch.number, epoch.condemned.len()), (2, 2));
    assert!(epoch.condemned.values().all(|of| *of == 1), "{epoch:?}");
    let marked = footers::damaged(&*repository.store).unwrap();
    assert_eq!(marked.values().map(|chunks| chunks.count()).collect::<Vec<_>>(), [1]);
    // The marked chunk is whole, so the check finds no fault and takes the mark away.
    let verified = verify::run(&repository, true, 2, &VerifyProgress::default()).unwrap();
    assert!(verified.is_good() && verified.unmarked.is_none(), "{verified:?}");
    assert_eq!((verified.snapshots, verified.segments, verified.chunks), (2, 6, 9));
    assert!(footers::damaged(&*repository.store).unwrap().is_empty());
}

#[test]
fn a_stored_session_is_read() {
    let stored = b"STLBSES1\x02\0\0\0\0\0\0\0\x01";
    assert_eq!(SessionState::decode(stored), Ok(SessionState { epoch: 2, ended: true }));
}
