//! A repository with one object of a later version each: its magic has a higher digit, and its
//! checks hold.

use super::*;
use crate::backup::Saved;
use crate::error::Result;
use crate::forget;
use crate::keyring::{self, Cost};
use crate::prune;
use crate::repository::locks::Defaults;
use crate::repository::{Closed, Repository};
use crate::segment::{SEGMENT_BYTES_MAX, SegmentId, TRAILER_BYTES};
use crate::snapshot::SnapshotId;
use crate::store::memory::Memory;
use crate::store::{Folder, Name, Store};
use crate::testing::{PASSWORD, Temporary, picture, random, repository, restore, save, stage};
use crate::verify::{self, Verified, VerifyProgress};

const DIGIT: usize = 7;

/// Everything that is stored.
fn content(store: &Memory) -> Vec<(Name, Vec<u8>)> {
    let folders = [Folder::Keys, Folder::Segments, Folder::Snapshots, Folder::Epochs, Folder::Damaged];
    let names = folders.into_iter().flat_map(|folder| store.names(folder));
    names.map(|name| (name.clone(), store.get(&name, SEGMENT_BYTES_MAX).unwrap())).collect()
}

/// Gives an object that ends with the hash of all before another digit.
fn seal_later(store: &Memory, name: &Name) {
    store.damage(name, |bytes| {
        bytes[DIGIT] += 3;
        let end = bytes.len() - 32;
        let hash = blake3::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(hash.as_bytes());
    });
}

/// The segment as a later version would write it, with a trailer of its own or this one's.
fn later_segment(mut bytes: Vec<u8>, has_trailer: bool) -> Vec<u8> {
    let end = bytes.len() - TRAILER_BYTES;
    let length = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
    bytes[DIGIT] += 1;
    bytes[end - length + DIGIT] += 1;
    let hash = blake3::hash(&bytes[end - length..end]);
    bytes[end + 8..end + 40].copy_from_slice(hash.as_bytes());
    match has_trailer {
        true => *bytes.last_mut().unwrap() += 1,
        // Nothing but its name shows that it is whole.
        false => bytes[end..].fill(0),
    }
    bytes
}

fn checked(repository: &Repository) -> Verified {
    verify::run(repository, true, 2, &VerifyProgress::default()).unwrap()
}

fn is_newer<T>(outcome: Result<T>) -> String {
    match outcome.map(drop) {
        Err(BackupError::Newer(text)) => {
            assert!(text.contains("use that version or a later one"), "{text}");
            assert!(!text.contains("backup forget") && !text.contains("key remove"), "{text}");
            text
        }
        other => panic!("{other:?}"),
    }
}

fn data(seed: u64) -> Temporary {
    let folder = Temporary::new();
    folder.write("file", random(seed, 60_000));
    folder
}

fn restores(repository: &Repository, saved: &Saved, folder: &Temporary) {
    let target = Temporary::new();
    assert_eq!(restore(repository, saved, &folder.0, &target.0).unwrap().issues, []);
    assert_eq!(picture(&target.0), picture(&folder.0));
}

/// A backup, and beside it a snapshot of a later version that a good one became.
fn with_later_snapshot() -> (Repository, std::sync::Arc<Memory>, Temporary, Saved, SnapshotId) {
    let (repository, store) = repository(1);
    let (folder, other) = (data(1), data(2));
    let saved = save(&repository, &folder.0).unwrap();
    let good = Name::of(Folder::Snapshots, &save(&repository, &other.0).unwrap().id.0);
    let mut bytes = store.get(&good, 1 << 20).unwrap();
    store.remove(&good).unwrap();
    bytes[DIGIT] += 1;
    let later = SnapshotId(*blake3::hash(&bytes).as_bytes());
    store.create(&Name::of(Folder::Snapshots, &later.0), &bytes).unwrap();
    (repository, store, folder, saved, later)
}

#[test]
fn a_digit_below_or_beside_the_digits_is_no_later_version() {
    for (last, is_later) in [(b'1', false), (b'2', false), (b'3', true), (b'9', true), (b':', false), (b'a', false)] {
        let bytes = [b"STLBSNP".as_slice(), &[last]].concat();
        assert_eq!(refusal("it", &bytes, b"STLBSNP2").is_some(), is_later, "{last}");
    }
    assert_eq!(refusal("it", b"STLBSNP", b"STLBSNP2"), None);
    assert_eq!(refusal("it", b"STLBSEG9", b"STLBSNP2"), None);
}

#[test]
fn a_newer_snapshot_is_no_damage_and_is_not_forgotten() {
    let (repository, store, folder, saved, later) = with_later_snapshot();
    let before = content(&store);
    let found = checked(&repository);
    assert!(found.is_good(), "{found:?}");
    assert_eq!(found.newer.iter().map(|newer| newer.name.clone()).collect::<Vec<_>>(), [format!("snapshots/{later}")]);
    let surveyed = verify::survey(&repository).unwrap();
    assert_eq!((surveyed.unreadable, surveyed.newer), (Vec::new(), found.newer));
    is_newer(repository.references(&later));
    // Prune would take what only the later version sees as needed.
    for dry_run in [true, false] {
        is_newer(prune::run(&repository, dry_run));
    }
    let dated = repository.snapshots().unwrap();
    is_newer(forget::named(&repository, &dated, &[saved.id, later], |_| Ok(None)));
    assert_eq!(content(&store), before);
    // All else goes on.
    restores(&repository, &saved, &folder);
    restores(&repository, &save(&repository, &folder.0).unwrap(), &folder);
}

#[test]
fn a_damaged_snapshot_with_a_higher_digit_is_damaged() {
    let (repository, store, _, _, later) = with_later_snapshot();
    store.damage(&Name::of(Folder::Snapshots, &later.0), |bytes| *bytes.last_mut().unwrap() ^= 1);
    let found = checked(&repository);
    assert_eq!((found.unreadable.len(), found.newer.len()), (1, 0), "{found:?}");
    let dated = repository.snapshots().unwrap();
    assert_eq!(forget::named(&repository, &dated, &[later], |_| Ok(None)).unwrap().len(), 1);
    let Err(BackupError::Damaged(text)) = prune::run(&repository, false) else { panic!("prune went on") };
    assert!(text.contains("stele backup forget"), "{text}");
}

#[test]
fn a_newer_segment_is_no_damage_and_nothing_is_pruned() {
    for has_trailer in [true, false] {
        let (repository, store) = repository(1);
        let (folder, other) = (data(1), data(2));
        let saved = save(&repository, &folder.0).unwrap();
        let known = store.names(Folder::Segments);
        let gone = save(&repository, &other.0).unwrap();
        // What no snapshot needs, as an interrupted backup of the later version left it.
        let name = store.names(Folder::Segments).into_iter().find(|name| !known.contains(name)).unwrap();
        let bytes = later_segment(store.get(&name, SEGMENT_BYTES_MAX).unwrap(), has_trailer);
        store.remove(&name).unwrap();
        store.remove(&Name::of(Folder::Snapshots, &gone.id.0)).unwrap();
        let later = SegmentId::of(&bytes);
        store.create(&Name::segment(&later), &bytes).unwrap();
        // A mark that the later version may have made stays too.
        let mark = Name::of(Folder::Damaged, &later.0);
        store.create(&mark, &[1, 0, 1]).unwrap();
        let before = content(&store);
        let found = checked(&repository);
        assert!(found.is_good() && found.damaged_chunks == 0, "{found:?}");
        assert_eq!(found.newer.len(), 1, "{found:?}");
        assert_eq!(verify::scrub(&repository, Default::default(), &VerifyProgress::default()), Ok(Vec::new()));
        for _ in 0..4 {
            is_newer(prune::run(&repository, false));
        }
        assert_eq!(content(&store), before);
        restores(&repository, &saved, &folder);
        let again = save(&repository, &other.0).unwrap();
        restores(&repository, &again, &other);
        assert_eq!(store.names(Folder::Damaged), [mark], "the backup marked it");
        // Damage of it is told, and is not marked by a version that does not know its chunks.
        store.damage(&Name::segment(&later), |bytes| bytes[60] ^= 1);
        let found = checked(&repository);
        assert!(!found.is_good() && found.damaged.len() == 1, "{found:?}");
    }
}

#[test]
fn what_a_newer_segment_may_have_is_not_lost() {
    let (repository, store) = repository(1);
    let folder = data(1);
    let saved = save(&repository, &folder.0).unwrap();
    let mut snapshot = repository.snapshot(&saved.id).unwrap();
    let name = store.names(Folder::Segments).into_iter().find(|name| {
        let footer = crate::segment::Footer::decode(&store.get(name, SEGMENT_BYTES_MAX).unwrap()).unwrap();
        footer.kind == crate::crypt::Kind::Content
    });
    let name = name.unwrap();
    let bytes = later_segment(store.get(&name, SEGMENT_BYTES_MAX).unwrap(), true);
    let (before, later) = (SegmentId(name.id().unwrap()), SegmentId::of(&bytes));
    store.create(&Name::segment(&later), &bytes).unwrap();
    let ordinals = snapshot.references.0.remove(&before).unwrap();
    snapshot.references.0.insert(later, ordinals);
    repository.commit(&snapshot).unwrap();
    store.remove(&Name::of(Folder::Snapshots, &saved.id.0)).unwrap();
    store.remove(&name).unwrap();
    let found = checked(&repository);
    assert!(found.is_good() && found.newer.len() == 2, "{found:?}");
    assert!(found.newer[1].text.contains("check it by that version"), "{found:?}");
    // A restore names the cause.
    let target = Temporary::new();
    let issues = restore(&repository, &saved, &folder.0, &target.0).unwrap().issues;
    assert!(issues.iter().any(|issue| issue.text.contains("1 segment is of a later version")), "{issues:?}");
}

#[test]
fn a_newer_key_is_no_damage_and_no_wrong_password_alone() {
    let (repository, store) = repository(1);
    let key = repository.add_key(b"other", "second", Cost::LEAST).unwrap();
    let name = store.names(Folder::Keys).into_iter().find(|name| name.last() == key).unwrap();
    let mut bytes = store.get(&name, 1000).unwrap();
    bytes[DIGIT] += 1;
    store.remove(&name).unwrap();
    let later = Name::of(Folder::Keys, &keyring::digest(&bytes));
    store.create(&later, &bytes).unwrap();
    let found = checked(&repository);
    assert!(found.is_good() && verify::damaged_keys(&repository) == Ok(Vec::new()), "{found:?}");
    assert_eq!(verify::newer_objects(&repository), Ok(found.newer.clone()));
    assert_eq!(found.newer.iter().map(|newer| newer.name.as_str()).collect::<Vec<_>>(), [later.text()]);
    let open = |password: &[u8]| Repository::open(store.clone(), stage(2), password);
    open(PASSWORD).unwrap();
    let told = is_newer(open(b"other"));
    assert!(told.contains(later.last()) && told.contains("another password"), "{told}");
    // One whose name is not its hash is damaged.
    store.damage(&later, |bytes| *bytes.last_mut().unwrap() ^= 1);
    assert_eq!(verify::damaged_keys(&repository).unwrap().len(), 1);
    assert!(matches!(open(b"other").map(drop), Err(BackupError::WrongPassword)));
}

#[test]
fn a_newer_header_is_refused_and_a_damaged_one_has_a_next_step() {
    for longer in [false, true] {
        let (_, store) = repository(1);
        if longer {
            store.damage(&Name::repository(), |bytes| bytes.splice(72..72, [0; 200]).for_each(drop));
        }
        seal_later(&store, &Name::repository());
        is_newer(Closed::open(store.clone(), stage(2)));
        is_newer(Repository::open(store.clone(), stage(2), PASSWORD));
        // Nothing is made in its place.
        let made = Repository::make(store.clone(), stage(2), PASSWORD, "", crate::testing::SMALL);
        assert!(matches!(made.map(drop), Err(BackupError::Exists(_))));
        store.damage(&Name::repository(), |bytes| bytes[20] ^= 1);
        let Err(BackupError::Damaged(text)) = Closed::open(store, stage(2)).map(drop) else { panic!("it opened") };
        assert!(text.contains("bring the object 'repository' back"), "{text}");
    }
}

#[test]
fn beside_a_newer_epoch_or_newer_defaults_no_backup_begins() {
    for is_epoch in [true, false] {
        let (repository, store) = repository(1);
        let folder = data(1);
        let saved = save(&repository, &folder.0).unwrap();
        prune::run(&repository, false).unwrap();
        let defaults = Defaults { keep_seconds: 86_400 };
        store.create(&Name::defaults(), &defaults.encode()).unwrap();
        let name = if is_epoch { store.names(Folder::Epochs).remove(0) } else { Name::defaults() };
        seal_later(&store, &name);
        let before = content(&store);
        is_newer(save(&repository, &folder.0));
        if is_epoch {
            is_newer(prune::run(&repository, false));
        }
        let found = checked(&repository);
        assert!(found.is_good(), "{found:?}");
        assert_eq!(found.newer.iter().map(|newer| newer.name.as_str()).collect::<Vec<_>>(), [name.text()]);
        assert_eq!(verify::damaged_objects(&repository), Ok(Vec::new()));
        assert_eq!(content(&store), before);
        // What is known can be read.
        let (indexed, _) = repository.index(&Default::default(), None).unwrap();
        assert_eq!(indexed.snapshot(&saved.id).unwrap().description, saved.description);
        // Damaged, it has the remedy of damage.
        store.damage(&name, |bytes| bytes[10] ^= 1);
        assert_eq!(verify::damaged_objects(&repository).unwrap().len(), 1);
    }
}
