use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use stele_backup::keyring::Cost;
use stele_backup::repository::Making;
use stele_backup::snapshot::{Description, SnapshotId};
use stele_backup::store::directory::Directory;
use stele_backup::store::{Folder, Name};

use super::*;
use crate::commands::backup::machine;

/// A repository in a directory that goes at the end.
struct Stage {
    folder: PathBuf,
    repository: Repository,
}

impl Stage {
    fn new(name: &str) -> Stage {
        let folder = std::env::temp_dir().join(format!("stele-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let store = Arc::new(Directory::new(&folder, machine()));
        let making = Making { cost: Cost::LEAST, ..Making::default() };
        let repository = Repository::make(store, machine(), b"correct horse", "", making).unwrap();
        Stage { folder, repository }
    }

    fn path(&self, id: &SnapshotId) -> PathBuf {
        self.folder.join(Name::of(Folder::Snapshots, &id.0).text())
    }

    /// A snapshot of this host, which the store dates so.
    fn save(&self, host: &str, finished: u64, stored: u64) -> SnapshotId {
        let description = Description { host: host.to_owned(), finished, ..Description::default() };
        let (id, _) = self.repository.commit(&Snapshot { references: Default::default(), description }).unwrap();
        let file = std::fs::File::options().write(true).open(self.path(&id)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(stored)).unwrap();
        id
    }

    fn latest(&self, host: Option<&str>, at: Option<u64>, this: &str) -> Outcome<SnapshotId> {
        let which = LatestArgs { host: host.map(str::to_owned), at };
        latest(&self.repository, &which, Some(this)).map(|(dated, _)| dated.id)
    }

    fn damage(&self, id: &SnapshotId) {
        let path = self.path(id);
        let stored = path.metadata().unwrap().modified().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[60] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::options().write(true).open(path).unwrap().set_modified(stored).unwrap();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn kind<T: std::fmt::Debug>(outcome: Outcome<T>) -> Kind {
    outcome.unwrap_err().kind
}

#[test]
fn latest_is_the_snapshot_that_ended_last_also_within_a_second() {
    let stage = Stage::new("latest");
    for finished in 1..=8 {
        // All of one second, by the store's clock.
        let id = stage.save("web", finished, 1_000_000);
        assert_eq!(stage.latest(None, None, "web").unwrap(), id, "{finished}");
        assert_eq!(named(&stage.repository, &id.to_string()).unwrap().id, id);
    }
}

#[test]
fn latest_is_that_of_one_host() {
    let stage = Stage::new("latest-hosts");
    assert_eq!(kind(stage.latest(None, None, "a")), Kind::Missing);
    let first = stage.save("a", 1, 1_000_000);
    // The only host there is, whichever machine asks.
    assert_eq!(stage.latest(None, None, "c").unwrap(), first);
    assert_eq!(to_remove(&stage.repository, "latest").unwrap().id, first);
    let other = stage.save("b", 2, 1_000_100);
    let third = stage.save("a", 3, 1_000_200);
    let newest = stage.save("b", 4, 1_000_300);
    let check = |host: Option<&str>, at: Option<u64>, this: &str, expected: SnapshotId| {
        assert_eq!(stage.latest(host, at, this).unwrap(), expected, "{host:?} {at:?} {this}");
    };
    // This machine, although another one has a newer snapshot.
    check(None, None, "a", third);
    check(None, None, "b", newest);
    check(Some("b"), None, "a", newest);
    check(Some("a"), Some(1_000_199), "b", first);
    check(None, Some(1_000_200), "a", third);
    check(Some("b"), Some(1_000_299), "c", other);
    // Only one host had snapshots by then.
    check(None, Some(1_000_099), "c", first);
    assert_eq!(kind(stage.latest(Some("c"), None, "a")), Kind::Missing);
    assert_eq!(kind(stage.latest(Some("a"), Some(999_999), "a")), Kind::Missing);
    // Two hosts, and neither is this machine.
    let failure = stage.latest(None, None, "c").unwrap_err();
    assert_eq!(failure.kind, Kind::Usage);
    assert!(failure.to_string().contains("a, b") && failure.next.contains("--host"), "{failure}");
    // What removes takes no guess, also on the machine that has snapshots.
    assert_eq!(kind(to_remove(&stage.repository, "latest")), Kind::Usage);
    assert_eq!(to_remove(&stage.repository, &other.to_string()).unwrap().id, other);
}

#[test]
fn a_path_has_any_bytes_that_a_name_has() {
    let stage = Stage::new("latest-bytes");
    let id = stage.save("a", 1, 1_000_000).to_string();
    let check = |path: &[u8], within: &[u8]| {
        let text = std::ffi::OsString::from_vec([id.as_bytes(), path].concat());
        assert_eq!(chosen(&stage.repository, text, &LatestArgs::default()).unwrap().within, within);
    };
    check(b"", b"");
    check(b":", b"");
    check(b"://", b"");
    check(b":/a/n\xffx//", b"a/n\xffx");
    check(b":a:b", b"a:b");
    let wrong = chosen(&stage.repository, std::ffi::OsStr::from_bytes(b"\xff:/a"), &LatestArgs::default());
    assert_eq!(kind(wrong.map(|_| ())), Kind::Missing);
}

#[test]
fn options_for_latest_are_refused_beside_an_id() {
    let stage = Stage::new("latest-options");
    let id = stage.save("a", 1, 1_000_000).to_string();
    let which = LatestArgs { host: Some("a".to_owned()), at: None };
    for path in ["/etc/ssl/", "etc/ssl", "//etc//ssl/.", "/./etc/ssl"] {
        let chosen = chosen(&stage.repository, format!("{id}:{path}"), &LatestArgs::default()).unwrap();
        assert_eq!(chosen.within, b"etc/ssl", "{path}");
    }
    assert_eq!(chosen(&stage.repository, "latest:/etc", &which).unwrap().host(), "a");
    let refused = |name: &str| chosen(&stage.repository, name, &which).map(|_| ());
    assert_eq!(kind(refused(&id)), Kind::Usage);
    let pair = |first: &str, second: &str| pair(&stage.repository, first, second, &which).map(|_| ());
    assert_eq!(kind(pair(&id, &id)), Kind::Usage);
    pair(&id, "latest").unwrap();
    // A path beside one of them would be without effect.
    assert_eq!(kind(pair("latest:/etc", &id)), Kind::Usage);
}

#[test]
fn nothing_is_the_latest_below_one_that_cannot_be_read() {
    let stage = Stage::new("latest-damaged");
    let first = stage.save("a", 1, 1_000_000);
    let unread = stage.save("a", 2, 1_000_100);
    let other = stage.save("b", 3, 1_000_200);
    stage.damage(&unread);
    // The newest one of this host, or of the other one: the command cannot say.
    for (host, this) in [(None, "a"), (Some("a"), "b"), (Some("c"), "b")] {
        let failure = stage.latest(host, None, this).unwrap_err();
        assert_eq!((failure.kind, failure.next.contains("--at")), (Kind::Damaged, true), "{failure}");
    }
    assert_eq!(stage.latest(Some("a"), Some(1_000_050), "b").unwrap(), first);
    // It is older, so it cannot be the latest.
    assert_eq!(stage.latest(None, None, "b").unwrap(), other);
}

#[test]
fn forget_is_not_told_to_use_an_option_that_it_lacks() {
    let stage = Stage::new("latest-forget");
    stage.save("a", 1, 1_000_000);
    stage.save("b", 2, 1_000_100);
    let failure = to_remove(&stage.repository, "latest").unwrap_err();
    assert!(!failure.next.contains("--host") && failure.next.contains("by its id"), "{}", failure.next);
}
