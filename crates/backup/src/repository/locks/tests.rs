use super::*;
use crate::backup::{BackupProgress, Source, run};
use crate::prune;
use crate::store::Store;
use crate::store::memory::Memory;
use crate::testing::{Temporary, options, picture, random, repository, restore, save};

const UNTIL: u64 = 2_000_000;

fn locked(repository: &crate::repository::Repository, folder: &Temporary) -> Result<crate::backup::Saved> {
    let options = crate::backup::BackupOptions { locked_until: Some(UNTIL), ..options(&folder.0) };
    run(repository, Source::Files, &options, &BackupProgress::default())
}

/// Everything that a snapshot needs is locked until its date.
#[track_caller]
fn check(repository: &crate::repository::Repository, store: &Memory, id: &crate::snapshot::SnapshotId) {
    let mut needed: Vec<Name> = repository.references(id).unwrap().0.keys().map(Name::segment).collect();
    needed.extend([Name::repository(), Name::of(Folder::Snapshots, &id.0)]);
    needed.extend(store.names(Folder::Keys));
    let locks = store.locks();
    let short: Vec<&Name> = needed.iter().filter(|name| locks.get(*name).is_none_or(|until| *until < UNTIL)).collect();
    assert!(short.is_empty(), "{short:?}");
}

#[test]
fn a_locked_snapshot_locks_old_and_new_segments_alike() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("old", random(1, 60_000));
    save(&repository, &folder.0).unwrap();
    assert!(store.locks().is_empty());
    folder.write("new", random(2, 60_000));
    let saved = locked(&repository, &folder).unwrap();
    check(&repository, &store, &saved.id);
    // A shorter lock of a later snapshot shortens nothing.
    repository.lock_needed(&repository.references(&saved.id).unwrap(), UNTIL - 1).unwrap();
    check(&repository, &store, &saved.id);
}

/// The order of the writes: after a crash at any of them, what is listed and locked is whole and
/// locked.
#[test]
fn a_crash_leaves_no_locked_snapshot_that_needs_unlocked_content() {
    for changes in 0.. {
        let (repository, store) = repository(1);
        let folder = Temporary::new();
        folder.write("file", random(1, 60_000));
        save(&repository, &folder.0).unwrap();
        folder.write("more", random(2, 60_000));
        let before = repository.snapshots().unwrap().len();
        store.fail_after(Some(changes));
        let done = locked(&repository, &folder);
        store.fail_after(None);
        let after = repository.snapshots().unwrap();
        for dated in &after {
            if store.locked_until(&Name::of(Folder::Snapshots, &dated.id.0)).unwrap().is_some() {
                check(&repository, &store, &dated.id);
            }
        }
        if done.is_ok() {
            assert_eq!(after.len(), before + 1);
            assert!(changes > 10, "the test must reach every step");
            return;
        }
    }
}

#[test]
fn a_stored_snapshot_is_locked_with_all_that_it_needs() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("old", random(1, 60_000));
    let first = save(&repository, &folder.0).unwrap();
    let needed = repository.references(&first.id).unwrap().0.len();
    folder.write("new", random(2, 60_000));
    let second = save(&repository, &folder.0).unwrap();
    assert_eq!(repository.lock_stored(&first.id, UNTIL).unwrap(), UNTIL);
    check(&repository, &store, &first.id);
    // Its segments, the header, the key and itself; nothing of the other one.
    assert_eq!(store.locks().len(), needed + 3);
    assert_eq!(store.locked_until(&Name::of(Folder::Snapshots, &second.id.0)).unwrap(), None);
    // A shorter one changes nothing and says so; a longer one prolongs all.
    assert_eq!(repository.lock_stored(&first.id, UNTIL - 1000).unwrap(), UNTIL);
    check(&repository, &store, &first.id);
    assert_eq!(repository.lock_stored(&first.id, UNTIL + 1000).unwrap(), UNTIL + 1000);
    assert!(store.locks().values().all(|until| *until == UNTIL + 1000), "{:?}", store.locks());
    // One that was forgotten is not locked.
    crate::forget::remove(&repository, &second.id).unwrap();
    assert!(matches!(repository.lock_stored(&second.id, UNTIL), Err(BackupError::Missing(_))));
}

/// As for a new snapshot: after a crash at any change, what shows a lock has all that it needs
/// locked as long.
#[test]
fn a_crash_while_a_stored_snapshot_is_locked_leaves_no_half() {
    for changes in 0.. {
        let (repository, store) = repository(1);
        let folder = Temporary::new();
        folder.write("file", random(1, 60_000));
        let saved = save(&repository, &folder.0).unwrap();
        store.fail_after(Some(changes));
        let done = repository.lock_stored(&saved.id, UNTIL);
        store.fail_after(None);
        let name = Name::of(Folder::Snapshots, &saved.id.0);
        assert_eq!(store.locked_until(&name).unwrap().is_some(), done.is_ok());
        if done.is_ok() {
            check(&repository, &store, &saved.id);
            assert!(changes > 3, "the test must reach every step");
            return;
        }
    }
}

#[test]
fn a_locked_snapshot_restores_after_every_attempt_to_remove_it() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 60_000));
    let saved = locked(&repository, &folder).unwrap();
    let before = picture(&folder.0);
    for name in [Folder::Snapshots, Folder::Segments, Folder::Keys].iter().flat_map(|folder| store.names(*folder)) {
        assert!(matches!(store.remove(&name), Err(BackupError::Refused(_))), "{name:?}");
    }
    for _ in 0..4 {
        assert_eq!(prune::run(&repository, false).unwrap().removed, 0);
    }
    let target = Temporary::new();
    restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!(picture(&target.0), before);
    // After its date it goes like any other.
    store.set_now(UNTIL + 1);
    store.remove(&Name::of(Folder::Snapshots, &saved.id.0)).unwrap();
    for _ in 0..3 {
        prune::run(&repository, false).unwrap();
    }
    assert!(store.names(Folder::Segments).is_empty());
}

#[test]
fn defaults_are_read_as_they_were_written() {
    let given = Defaults { keep_seconds: 86_400 };
    assert_eq!(Defaults::decode(&given.encode()).unwrap(), given);
    let mut bytes = given.encode();
    bytes[9] ^= 1;
    assert!(Defaults::decode(&bytes).is_err());
    assert!(Defaults::decode(&Defaults { keep_seconds: u64::MAX }.encode()).is_err());
    assert_eq!(repository(1).0.defaults().unwrap(), Defaults::default());
}

/// The part of the ransomware drill that takes too long with real requests.
#[test]
fn a_thousand_tiny_snapshots_push_out_no_locked_one() {
    use crate::forget::{Candidate, ForgetPolicy, judge, remove};
    use crate::snapshot::{DRIFT_SECONDS_MAX, NANOS};
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    let file = folder.write("file", random(1, 60_000));
    let before = picture(&folder.0);
    let good = locked(&repository, &folder).unwrap();
    std::fs::remove_file(file).unwrap();
    let empty = save(&repository, &folder.0).unwrap();
    let mut tiny = repository.snapshot(&empty.id).unwrap();
    for number in 0..1000 {
        store.set_now(1_000_100 + number);
        // Clocks in the past and in the future, as wrong as the rules let pass.
        let ended = if number % 2 == 0 { 1_000_100 - DRIFT_SECONDS_MAX } else { 1_000_100 + DRIFT_SECONDS_MAX };
        tiny.description.finished = (ended + number) * NANOS;
        tiny.description.tags = vec![number.to_string()];
        repository.commit(&tiny).unwrap();
    }
    let snapshots = repository.snapshots().unwrap();
    let candidates = snapshots.iter().map(|dated| Candidate::read(&repository, dated, store.now().unwrap()).unwrap());
    let judged = judge(candidates.collect(), &ForgetPolicy { last: 3, ..ForgetPolicy::default() }).unwrap();
    // The store's clock keeps the last three, and those of the agents one more.
    assert_eq!((judged.len(), judged.iter().filter(|is| is.kept_by.is_empty()).count()), (1002, 998));
    for is in judged.iter().filter(|is| is.kept_by.is_empty()) {
        assert_eq!(remove(&repository, &is.candidate.id).is_err(), is.candidate.id == good.id);
    }
    (0..4).for_each(|_| assert!(prune::run(&repository, false).is_ok()));
    check(&repository, &store, &good.id);
    let target = Temporary::new();
    restore(&repository, &good, &folder.0, &target.0).unwrap();
    assert_eq!(picture(&target.0), before);
}

#[test]
fn damaged_defaults_are_locked_too_and_end_no_locked_backup() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 60_000));
    store.create(&Name::defaults(), &Defaults { keep_seconds: 86_400 }.encode()).unwrap();
    store.damage(&Name::defaults(), |bytes| bytes[10] ^= 1);
    let saved = locked(&repository, &folder).unwrap();
    check(&repository, &store, &saved.id);
    assert_eq!(store.locks().get(&Name::defaults()), Some(&UNTIL));
    assert!(repository.defaults().unwrap_err().to_string().contains("`stele backup run --keep-until`"));
}
