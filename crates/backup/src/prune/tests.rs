use std::sync::Arc;

use super::*;
use crate::repository::Repository;
use crate::repository::epochs::{Epoch, SESSION_SECONDS};
use crate::store::Store;
use crate::store::directory::Directory;
use crate::store::memory::Memory;
use crate::testing::{SMALL, Temporary, picture, random, repository, restore, save};
use crate::verify;

fn segments(store: &Memory) -> usize {
    store.names(Folder::Segments).len()
}

#[test]
fn segments_go_two_epochs_after_their_last_snapshot() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 100_000));
    let first = save(&repository, &folder.0).unwrap();
    folder.write("file", random(2, 50_000));
    let second = save(&repository, &folder.0).unwrap();
    let all = segments(&store);
    assert_eq!(run(&repository, false).unwrap().condemned, 0);
    store.remove(&Name::of(Folder::Snapshots, &first.id.0)).unwrap();
    let kept = repository.references(&second.id).unwrap().0.len();
    let dry = run(&repository, true).unwrap();
    let condemned = run(&repository, false).unwrap();
    assert_eq!(dry, condemned);
    assert_eq!((condemned.condemned as usize, condemned.removed), (all - kept, 0));
    assert_eq!(run(&repository, false).unwrap().removed, 0);
    let last = run(&repository, false).unwrap();
    assert_eq!((last.removed as usize, segments(&store)), (all - kept, kept));
    assert!(verify::run(&repository, true, 1, &Default::default()).unwrap().is_good());
    assert_eq!(store.names(Folder::Epochs).len(), 1);
    assert_eq!(store.names(Folder::Sessions).len(), 0);
}

#[test]
fn a_session_pins_what_it_may_use() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 100_000));
    let first = save(&repository, &folder.0).unwrap();
    let all = segments(&store);
    // A backup that began before the condemnation, and has seen all chunks.
    let (session, epoch) = repository.begin_session().unwrap();
    assert!(epoch.condemned.is_empty());
    store.remove(&Name::of(Folder::Snapshots, &first.id.0)).unwrap();
    for _ in 0..5 {
        assert_eq!(run(&repository, false).unwrap().removed, 0);
    }
    assert!(run(&repository, false).unwrap().waiting > 0);
    // It commits a snapshot that needs them: they are pardoned.
    let again = crate::snapshot::Snapshot {
        references: crate::references::References(
            repository.segments().unwrap().into_iter().map(|(id, _)| (id, Default::default())).collect(),
        ),
        description: first.description.clone(),
    };
    repository.commit(&again).unwrap();
    session.end().unwrap();
    assert_eq!(run(&repository, false).unwrap().pardoned as usize, all);
    assert_eq!(segments(&store), all);
}

#[test]
fn a_backup_does_not_use_condemned_segments() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 100_000));
    let first = save(&repository, &folder.0).unwrap();
    store.remove(&Name::of(Folder::Snapshots, &first.id.0)).unwrap();
    run(&repository, false).unwrap();
    let second = save(&repository, &folder.0).unwrap();
    // All of the content; the tree has directories above it too, which other tests change.
    assert!(second.description.counts.bytes_new >= 100_000);
    for _ in 0..3 {
        run(&repository, false).unwrap();
    }
    let target = Temporary::new();
    restore(&repository, &second, &folder.0, &target.0).unwrap();
    assert_eq!(picture(&target.0), picture(&folder.0));
}

#[test]
fn a_dead_session_holds_segments_for_a_day() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 100_000));
    store.fail_after(Some(4));
    save(&repository, &folder.0).unwrap_err();
    store.fail_after(None);
    assert_eq!(segments(&store), 3);
    for _ in 0..4 {
        assert_eq!(run(&repository, false).unwrap().removed, 0);
    }
    store.set_now(1_000_001 + SESSION_SECONDS);
    assert_eq!(run(&repository, false).unwrap().removed, 3);
}

#[test]
fn a_snapshot_that_cannot_be_read_stops_prune() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 10_000));
    let saved = save(&repository, &folder.0).unwrap();
    store.damage(&Name::of(Folder::Snapshots, &saved.id.0), |bytes| bytes[40] ^= 1);
    assert!(matches!(run(&repository, false), Err(BackupError::Damaged(_))));
}

#[test]
fn append_only_credentials_remove_nothing() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 100_000));
    let saved = save(&repository, &folder.0).unwrap();
    store.set_append_only(true);
    let snapshot = Name::of(Folder::Snapshots, &saved.id.0);
    assert!(matches!(store.remove(&snapshot), Err(BackupError::Refused(_))));
    assert!(matches!(store.create(&snapshot, b""), Err(BackupError::Exists(_))));
    store.set_append_only(false);
    store.remove(&snapshot).unwrap();
    store.set_append_only(true);
    let all = segments(&store);
    for _ in 0..4 {
        assert_eq!(run(&repository, false).unwrap().removed, 0);
    }
    assert_eq!(run(&repository, false).unwrap().refused as usize, all);
}

#[test]
fn a_prune_killed_behind_any_change_is_repeated() {
    for changes in 0..12 {
        let (repository, store) = repository(1);
        let folder = Temporary::new();
        folder.write("file", random(1, 100_000));
        let first = save(&repository, &folder.0).unwrap();
        folder.write("file", random(2, 50_000));
        save(&repository, &folder.0).unwrap();
        store.remove(&Name::of(Folder::Snapshots, &first.id.0)).unwrap();
        run(&repository, false).unwrap();
        run(&repository, false).unwrap();
        store.fail_after(Some(changes));
        let _ = run(&repository, false);
        store.fail_after(None);
        run(&repository, false).unwrap();
        assert!(verify::run(&repository, true, 1, &Default::default()).unwrap().is_good(), "{changes}");
        assert_eq!(run(&repository, false).unwrap().condemned, 0, "{changes}");
    }
}

/// Damages the first chunk of all segments of file content.
fn damage_content(store: &Memory) {
    for name in store.names(Folder::Segments) {
        let bytes = store.get(&name, 1 << 20).unwrap();
        if crate::segment::Footer::decode(&bytes).unwrap().kind == crate::crypt::Kind::Content {
            store.damage(&name, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1);
        }
    }
}

#[test]
fn repaired_content_outlives_the_snapshot_that_repaired_it() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 100_000));
    let first = save(&repository, &folder.0).unwrap();
    damage_content(&store);
    assert!(!verify::run(&repository, true, 1, &Default::default()).unwrap().is_good());
    let second = save(&repository, &folder.0).unwrap();
    assert!(second.description.counts.bytes_new > 0);
    let whole = |when: &str| {
        let target = Temporary::new();
        assert_eq!(restore(&repository, &first, &folder.0, &target.0).unwrap().issues, [], "{when}");
        assert_eq!(picture(&target.0), picture(&folder.0), "{when}");
        assert_eq!(verify::run(&repository, false, 1, &Default::default()).unwrap().lost_files, 0, "{when}");
    };
    whole("repaired");
    // The first snapshot references the damaged places alone.
    store.remove(&Name::of(Folder::Snapshots, &second.id.0)).unwrap();
    for round in 0..5 {
        run(&repository, false).unwrap();
        whole(&format!("prune {round}"));
    }
    // Without the first one, nothing needs the repaired content.
    store.remove(&Name::of(Folder::Snapshots, &first.id.0)).unwrap();
    for _ in 0..4 {
        run(&repository, false).unwrap();
    }
    assert_eq!(segments(&store), 0);
}

#[test]
fn prune_condemns_nothing_while_a_needed_segment_is_lost() {
    for destroyed in [false, true] {
        let (repository, store) = repository(1);
        let folder = Temporary::new();
        folder.write("file", random(1, 100_000));
        let first = save(&repository, &folder.0).unwrap();
        // What it had cannot be told any more, so any segment may hold it again.
        let tree = crate::crypt::Kind::Tree;
        let kind = |name: &Name| crate::segment::Footer::decode(&store.get(name, 1 << 20).unwrap()).unwrap().kind;
        let lost = store.names(Folder::Segments).into_iter().find(|name| kind(name) != tree).unwrap();
        match destroyed {
            true => assert!(store.damage(&lost, |bytes| *bytes.last_mut().unwrap() ^= 1)),
            false => store.remove(&lost).unwrap(),
        }
        let second = save(&repository, &folder.0).unwrap();
        store.remove(&Name::of(Folder::Snapshots, &second.id.0)).unwrap();
        for _ in 0..4 {
            assert_eq!(run(&repository, false).unwrap().condemned, 0);
        }
        let target = Temporary::new();
        assert_eq!(restore(&repository, &first, &folder.0, &target.0).unwrap().issues, []);
        store.remove(&Name::of(Folder::Snapshots, &first.id.0)).unwrap();
        assert!(run(&repository, false).unwrap().condemned > 0);
    }
}

#[test]
fn a_planted_epoch_takes_nothing_from_a_running_backup() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 60_000));
    let saved = save(&repository, &folder.0).unwrap();
    crate::forget::remove(&repository, &saved.id).unwrap();
    // A backup has read the list, and uses every segment. Then a writer without the key condemns
    // all of them.
    let (session, read) = repository.begin_session().unwrap();
    assert!(read.condemned.is_empty());
    let all: Vec<SegmentId> = repository.segments().unwrap().into_iter().map(|(id, _)| id).collect();
    let planted = Epoch { number: read.number + 1, condemned: all.iter().map(|id| (*id, 0)).collect() };
    repository.advance(&planted).unwrap();
    for _ in 0..3 {
        let pruned = run(&repository, false).unwrap();
        assert_eq!((pruned.removed, pruned.waiting as usize), (0, all.len()));
    }
    // A backup that begins now does not use them, so they need not wait for it.
    session.end().unwrap();
    let (_session, read) = repository.begin_session().unwrap();
    assert_eq!(read.condemned.len(), all.len());
    assert_eq!((run(&repository, false).unwrap().removed as usize, segments(&store)), (all.len(), 0));
}

#[test]
fn a_backup_whose_segments_were_removed_takes_its_snapshot_back() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 60_000));
    let (session, _) = repository.begin_session().unwrap();
    let saved = save(&repository, &folder.0).unwrap();
    let references = repository.references(&saved.id).unwrap();
    session.confirm(&saved.id, &references).unwrap();
    assert_eq!(repository.snapshots().unwrap().len(), 1);
    store.remove(&store.names(Folder::Segments)[0]).unwrap();
    let Err(BackupError::Failed(text)) = session.confirm(&saved.id, &references) else { panic!("it was confirmed") };
    assert!(text.starts_with("1 segment that the backup needs was removed meanwhile"), "{text}");
    assert!(repository.snapshots().unwrap().is_empty());
}

#[test]
fn a_prune_removes_nothing_that_a_later_one_may_have_pardoned() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 60_000));
    let saved = save(&repository, &folder.0).unwrap();
    crate::forget::remove(&repository, &saved.id).unwrap();
    for _ in 0..2 {
        run(&repository, false).unwrap();
    }
    let before = store.names(Folder::Segments);
    assert_eq!(run(&repository, true).unwrap().removed as usize, before.len());
    // The other prune stores its epoch behind that of this one, and condemns nothing.
    let later = Epoch { number: repository.epoch().unwrap().number + 2, condemned: Default::default() };
    store.store_behind(Folder::Epochs, Name::epoch(later.number), later.encode());
    assert!(matches!(run(&repository, false), Err(BackupError::Locked(_))));
    assert_eq!(store.names(Folder::Segments), before);
    for _ in 0..3 {
        run(&repository, false).unwrap();
    }
    assert_eq!(segments(&store), 0);
}

#[test]
fn a_backup_that_begins_while_an_epoch_goes_finds_the_next_one() {
    let (repository, store) = repository(1);
    run(&repository, false).unwrap();
    let next = Epoch { number: 2, condemned: Default::default() };
    store.exchange_at_reading(Name::epoch(1), Name::epoch(2), next.encode());
    assert_eq!(repository.epoch(), Ok(next));
}

#[test]
fn what_killed_writers_left_goes_before_prune_writes() {
    let folder = Temporary::new();
    let store = Arc::new(Directory::new(&folder.0, crate::testing::stage(1)));
    let made = Repository::make(store, crate::testing::stage(2), b"correct horse", "", SMALL).unwrap();
    let left = folder.write("tmp/00ff", b"a part of a segment");
    std::fs::File::options().write(true).open(&left).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let fresh = folder.write("tmp/00fe", b"of a writer that lives");
    run(&made, true).unwrap();
    assert!(left.exists(), "a dry run changes nothing");
    // The store takes no epoch, as if it were full.
    folder.write("epochs", b"");
    assert!(run(&made, false).is_err());
    assert!(!left.exists() && fresh.exists());
    std::fs::remove_file(folder.join("epochs")).unwrap();
    run(&made, false).unwrap();
}

#[test]
fn a_planted_epoch_removes_nothing() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 60_000));
    let saved = save(&repository, &folder.0).unwrap();
    crate::forget::remove(&repository, &saved.id).unwrap();
    let before = store.names(Folder::Segments);
    let first = SegmentId(before[0].id().unwrap());
    let planted = Epoch { number: u64::MAX, condemned: [(first, u64::MAX - 1)].into() };
    repository.advance(&planted).unwrap();
    let Err(BackupError::Damaged(text)) = run(&repository, false) else { panic!("prune went on") };
    assert!(text.contains("epochs/ffffffffffffffff"), "{text}");
    assert_eq!(store.names(Folder::Segments), before);
    // Nor does one whose number is not that of its name.
    store.damage(&Name::epoch(u64::MAX), |bytes| *bytes = Vec::new());
    assert!(run(&repository, false).is_err());
    store.remove(&Name::epoch(u64::MAX)).unwrap();
    (0..3).for_each(|_| assert!(run(&repository, false).is_ok()));
    assert!(store.names(Folder::Segments).is_empty());
}

#[test]
fn a_snapshot_that_is_forgotten_meanwhile_is_no_error() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    let saved: Vec<_> = (0..2)
        .map(|seed| {
            folder.write("file", random(seed, 20_000));
            save(&repository, &folder.0).unwrap()
        })
        .collect();
    let gone = Name::of(Folder::Snapshots, &saved[0].id.0);
    store.exchange_at_reading(gone, Name::of(Folder::Damaged, &[9; 32]), Vec::new());
    let done = run(&repository, false).unwrap();
    assert_eq!(done.snapshots, 1);
    assert!(done.condemned > 0);
}
