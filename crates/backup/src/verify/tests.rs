use stele_ground::Dice;

use super::*;
use crate::store::memory::Memory;
use crate::store::{Folder, Store};
use crate::testing::{Temporary, picture, random, repository, restore, save};

fn data() -> Temporary {
    let folder = Temporary::new();
    for number in 0..12 {
        folder.write(&format!("data/{number}"), random(number, number as usize * 3000));
    }
    folder
}

fn check(repository: &Repository) -> Verified {
    run(repository, true, 2, &VerifyProgress::default()).unwrap()
}

#[test]
fn damage_of_any_stored_byte_is_found() {
    let (repository, store) = repository(1);
    let folder = data();
    save(&repository, &folder.0).unwrap();
    assert!(check(&repository).is_good());
    let mut dice = Dice::new(1);
    let names: Vec<Name> = [Folder::Segments, Folder::Snapshots].into_iter().flat_map(|of| store.names(of)).collect();
    for name in names {
        for _ in 0..8 {
            let whole = store.get(&name, 1 << 20).unwrap();
            let at = dice.below(whole.len() as u64) as usize;
            store.damage(&name, |bytes| bytes[at] ^= 1 << dice.below(8));
            assert!(!check(&repository).is_good(), "{name:?} byte {at}");
            store.damage(&name, |bytes| *bytes = whole);
            store.names(Folder::Damaged).iter().for_each(|name| store.remove(name).unwrap());
        }
        let whole = store.get(&name, 1 << 20).unwrap();
        store.remove(&name).unwrap();
        let found = check(&repository);
        assert!(!found.is_good() || name.text().starts_with("snapshots"), "{name:?} removed");
        store.create(&name, &whole).unwrap();
    }
}

#[test]
fn a_segment_of_another_length_than_its_footer_tells_has_lost_its_chunks() {
    let (repository, store) = repository(1);
    save(&repository, &data().0).unwrap();
    let name = store.names(Folder::Segments).remove(0);
    for longer in [false, true] {
        let whole = store.get(&name, 1 << 20).unwrap();
        let at = crate::segment::HEADER_BYTES + 10;
        store.damage(&name, |bytes| match longer {
            true => bytes.insert(at, 7),
            false => drop(bytes.remove(at)),
        });
        let found = check(&repository);
        assert!(found.damaged.iter().any(|(_, text)| text.contains("by its footer")), "{found:?}");
        store.damage(&name, |bytes| *bytes = whole);
        assert!(check(&repository).is_good());
    }
}

/// What a snapshot stores of the directory above those of all tests, any of which changes it.
fn above() -> impl PartialEq {
    use std::os::unix::fs::MetadataExt;
    let is = std::env::temp_dir().metadata().unwrap();
    (is.mtime(), is.mtime_nsec(), is.ctime(), is.ctime_nsec(), is.nlink())
}

#[test]
fn the_next_backup_repairs_what_was_lost() {
    let folder = data();
    let (repository, first, second) = loop {
        let before = above();
        let (repository, store) = repository(1);
        let first = save(&repository, &folder.0).unwrap();
        for name in store.names(Folder::Segments) {
            store.damage(&name, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1);
        }
        let found = check(&repository);
        assert!(found.damaged_chunks >= found.segments && found.lost_files > 0, "{found:?}");
        assert_eq!(found.lost_files as usize, found.lost.len());
        // The files look unchanged; those whose chunks are damaged are read all the same.
        let second = save(&repository, &folder.0).unwrap();
        assert!(second.description.counts.bytes_new > 0);
        // Where the directory above changed between them, the first chunk of the first tree is in
        // no second one.
        if above() == before {
            break (repository, first, second);
        }
    };
    let target = Temporary::new();
    for saved in [&first, &second] {
        let restored = restore(&repository, saved, &folder.0, &target.0).unwrap();
        assert_eq!(restored.issues, []);
        assert_eq!(picture(&target.0), picture(&folder.0));
    }
    let repaired = check(&repository);
    // The damaged segments are there until the first snapshot goes, and no snapshot lacks anything.
    assert!(!repaired.is_good() && repaired.is_whole(), "{repaired:?}");
    assert_eq!(repaired.lost_files, 0);
    assert!(repaired.repaired_files > 0 && repaired.repaired_snapshots == 1, "{repaired:?}");
}

#[test]
fn a_scrub_needs_no_key() {
    let (repository, store) = repository(1);
    save(&repository, &data().0).unwrap();
    assert_eq!(scrub(&repository, Default::default(), &VerifyProgress::default()), Ok(Vec::new()));
    let name = store.names(Folder::Segments).remove(2);
    store.damage(&name, |bytes| bytes[3] ^= 1);
    let found = scrub(&repository, Default::default(), &VerifyProgress::default()).unwrap();
    assert_eq!(found.iter().map(|(id, _)| Name::segment(id)).collect::<Vec<_>>(), [name]);
    let _: &Memory = &store;
}

#[test]
fn a_damaged_key_is_damage_with_and_without_a_password() {
    let (repository, store) = repository(1);
    save(&repository, &data().0).unwrap();
    let key = repository.add_key(b"other", "", crate::keyring::Cost::LEAST).unwrap();
    assert!(check(&repository).is_good() && damaged_keys(&repository) == Ok(Vec::new()));
    let name = store.names(Folder::Keys).into_iter().find(|name| name.last() == key).unwrap();
    // A byte of the salt.
    store.damage(&name, |bytes| bytes[30] ^= 1);
    let found = check(&repository);
    assert!(!found.is_good() && found.is_whole(), "{found:?}");
    assert_eq!(found.damaged_keys.iter().map(|found| &found.name).collect::<Vec<_>>(), [&key]);
    assert_eq!(damaged_keys(&repository), Ok(found.damaged_keys));
}

#[test]
fn a_bad_sector_is_one_damaged_chunk_and_stops_nothing() {
    let (repository, store) = repository(1);
    let folder = data();
    let saved = save(&repository, &folder.0).unwrap();
    let name = store.names(Folder::Segments).remove(0);
    let at = crate::segment::HEADER_BYTES as u64 + 20;
    store.set_unreadable(&name, at..at + 1);
    let found = check(&repository);
    assert_eq!((found.damaged.len(), found.damaged_chunks), (1, 1), "{found:?}");
    assert!(!scrub(&repository, Default::default(), &VerifyProgress::default()).unwrap().is_empty());
    let again = save(&repository, &folder.0).unwrap();
    assert!(again.description.counts.bytes_new > 0);
    let target = Temporary::new();
    assert_eq!(restore(&repository, &saved, &folder.0, &target.0).unwrap().issues, []);
    assert_eq!(picture(&target.0), picture(&folder.0));
}

#[test]
fn a_mark_goes_when_its_segment_is_found_whole() {
    let (repository, store) = repository(1);
    let folder = data();
    let saved = save(&repository, &folder.0).unwrap();
    let name = store.names(Folder::Segments).remove(0);
    let whole = store.get(&name, 1 << 20).unwrap();
    store.damage(&name, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1);
    assert!(!check(&repository).is_good());
    assert_eq!(store.names(Folder::Damaged).len(), 1);
    // The earlier version of the object was brought back, or the cable was loose.
    store.damage(&name, |bytes| *bytes = whole);
    let target = Temporary::new();
    let done = restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!(done.issues, [], "a restore tries marked chunks too, for want of others");
    assert_eq!(picture(&target.0), picture(&folder.0));
    assert!(check(&repository).is_good());
    assert_eq!(store.names(Folder::Damaged), []);
    // Where nothing may be removed, an empty mark takes the place of the old one.
    store.damage(&name, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1);
    check(&repository);
    store.damage(&name, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1);
    store.set_append_only(true);
    assert!(check(&repository).is_good());
    let marks = crate::repository::footers::damaged(&*store).unwrap();
    assert!(marks.values().all(|chunks| chunks.count() == 0), "{marks:?}");
}

#[test]
fn content_that_a_snapshot_does_not_reference_is_reported() {
    let (repository, store) = repository(1);
    let folder = data();
    let saved = save(&repository, &folder.0).unwrap();
    let whole = repository.snapshot(&saved.id).unwrap();
    let wrong = crate::snapshot::Snapshot { references: Default::default(), description: whole.description };
    repository.commit(&wrong).unwrap();
    store.remove(&Name::of(Folder::Snapshots, &saved.id.0)).unwrap();
    // All is there, but prune would remove it.
    let found = run(&repository, false, 1, &VerifyProgress::default()).unwrap();
    assert!(found.lost_files > 0, "{found:?}");
    assert!(found.lost[0].text.contains("does not reference"), "{found:?}");
}

#[test]
fn damage_that_was_found_before_a_failure_is_marked_and_told() {
    let (repository, store) = repository(1);
    save(&repository, &data().0).unwrap();
    let names = store.names(Folder::Segments);
    let (first, last) = (&names[0], &names[names.len() - 1]);
    store.damage(first, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1);
    store.fail_reading(last);
    let progress = VerifyProgress::default();
    assert!(matches!(run(&repository, true, 1, &progress), Err(BackupError::Failed(_))));
    let marked: Vec<Name> = damaged(&*store).unwrap().keys().map(Name::segment).collect();
    assert_eq!(marked, std::slice::from_ref(first));
    let told: Vec<Name> = lock(&progress.damaged).iter().map(|(id, _)| Name::segment(id)).collect();
    assert_eq!(told, marked);
}

#[test]
fn a_store_that_goes_away_is_no_damage() {
    let (repository, store) = repository(1);
    let saved = save(&repository, &data().0).unwrap();
    let (indexed, _) = repository.index(&Epoch::default(), None).unwrap();
    let snapshot = repository.snapshot(&saved.id).unwrap();
    for name in store.names(Folder::Segments) {
        // A large repository has more footers than fit in memory.
        indexed.index().forget_footers();
        store.fail_reading(&name);
        let (progress, mut found) = (VerifyProgress::default(), Verified::default());
        let checked = check_snapshot(&indexed, &saved.id, &snapshot, &BTreeSet::new(), &progress, &mut found);
        assert_eq!(checked, Err(BackupError::Failed("the store went away".to_owned())));
        assert_eq!(found.lost, []);
    }
}

#[test]
fn a_store_that_takes_no_marks_ends_no_check() {
    let (repository, store) = repository(1);
    save(&repository, &data().0).unwrap();
    for name in store.names(Folder::Segments) {
        store.damage(&name, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1);
    }
    store.fail_after(Some(0));
    let found = check(&repository);
    assert_eq!(found.unmarked.as_deref(), Some("the store went away"));
    assert_eq!(store.names(Folder::Damaged), []);
    assert_eq!(found.damaged.len() as u64, found.segments);
    // The same files are named as with marks.
    store.fail_after(None);
    let marked = check(&repository);
    assert!(found.lost_files > 0 && marked.unmarked.is_none(), "{found:?}");
    assert_eq!(Verified { unmarked: None, ..found }, marked);
}

#[test]
fn damage_that_ends_backups_is_told_with_its_remedy() {
    let (repository, store) = repository(1);
    let folder = data();
    save(&repository, &folder.0).unwrap();
    crate::prune::run(&repository, false).unwrap();
    let defaults = crate::repository::locks::Defaults { keep_seconds: 86_400 };
    store.create(&Name::defaults(), &defaults.encode()).unwrap();
    assert!(check(&repository).is_good());
    let epoch = store.names(Folder::Epochs).remove(0);
    for (name, remedy) in [(epoch, "remove it while no backup runs"), (Name::defaults(), "--keep-until")] {
        let whole = store.get(&name, 1 << 20).unwrap();
        for at in [2, 10, whole.len() - 1] {
            store.damage(&name, |bytes| bytes[at] ^= 1);
            let found = check(&repository);
            assert!(!found.is_good() && found.is_whole(), "{name:?}: {found:?}");
            assert_eq!(damaged_objects(&repository).unwrap(), found.damaged_objects);
            let [told] = &found.damaged_objects[..] else { panic!("{found:?}") };
            assert!(told.name == name.text() && told.text.contains(name.text()), "{told:?}");
            assert!(told.text.contains(remedy), "{told:?}");
            store.damage(&name, |bytes| *bytes = whole.clone());
        }
    }
    // The remedy for an epoch.
    let epoch = store.names(Folder::Epochs).remove(0);
    store.damage(&epoch, |bytes| bytes[10] ^= 1);
    assert!(matches!(save(&repository, &folder.0), Err(BackupError::Damaged(_))));
    store.remove(&epoch).unwrap();
    save(&repository, &folder.0).unwrap();
    for _ in 0..3 {
        crate::prune::run(&repository, false).unwrap();
    }
    assert!(check(&repository).is_good());
}

#[test]
fn a_lost_part_of_the_tree_is_told_with_its_paths() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    for number in 0..900 {
        let target = crate::crypt::hex(&random(number, 1900));
        std::os::unix::fs::symlink(target, folder.join(&format!("{number:03}"))).unwrap();
    }
    let saved = save(&repository, &folder.0).unwrap();
    let tree = &saved.description.tree;
    assert!(tree.len() > 1, "one chunk has all of the tree");
    for name in store.names(Folder::Segments) {
        store.damage(&name, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1);
    }
    let found = check(&repository);
    let firsts: Vec<&[u8]> = tree.iter().map(|(_, first)| first.as_slice()).collect();
    assert_eq!(found.lost.iter().map(|lost| lost.path.as_slice()).collect::<Vec<_>>(), firsts);
    let shown = |first: &[u8]| String::from_utf8_lossy(first).into_owned();
    for (number, lost) in found.lost.iter().enumerate() {
        let end = firsts.get(number + 1).map_or("on".to_owned(), |next| format!("to before /{}", shown(next)));
        let expected = format!("everything from /{} {end}", shown(&lost.path));
        assert!(lost.text.contains(&expected), "{}", lost.text);
    }
}

#[test]
fn a_damaged_snapshot_is_found_without_a_password() {
    let (repository, store) = repository(1);
    let saved = save(&repository, &data().0).unwrap();
    assert_eq!(survey(&repository).unwrap().unreadable, Vec::new());
    let name = store.names(Folder::Snapshots).remove(0);
    // The last byte belongs to what only the key opens.
    store.damage(&name, |bytes| *bytes.last_mut().unwrap() ^= 1);
    let found = survey(&repository).unwrap();
    assert_eq!((found.newer, found.needed), (Vec::new(), BTreeSet::new()));
    assert_eq!(found.unreadable.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [saved.id]);
}

#[test]
fn a_needed_segment_that_is_gone_is_found_without_a_password() {
    let (repository, store) = repository(1);
    let (folder, other) = (data(), Temporary::new());
    let first = save(&repository, &folder.0).unwrap();
    save(&repository, &folder.0).unwrap();
    other.write("file", random(99, 50_000));
    let forgotten = save(&repository, &other.0).unwrap();
    let scrubbed = || scrub(&repository, survey(&repository).unwrap().needed, &VerifyProgress::default()).unwrap();
    assert_eq!(scrubbed(), []);
    let segment = *repository.references(&first.id).unwrap().0.keys().next().unwrap();
    store.remove(&Name::segment(&segment)).unwrap();
    assert_eq!(scrubbed(), [(segment, "it is not in the store, and 2 snapshots need it".to_owned())]);
    // What a snapshot needed that was forgotten meanwhile is needed no more.
    let needed = survey(&repository).unwrap().needed;
    let own = repository.references(&forgotten.id).unwrap().0;
    store.remove(&Name::of(Folder::Snapshots, &forgotten.id.0)).unwrap();
    own.keys().for_each(|id| store.remove(&Name::segment(id)).unwrap());
    let found = scrub(&repository, needed, &VerifyProgress::default()).unwrap();
    assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [segment]);
}

#[test]
fn a_repository_without_any_key_is_damaged() {
    let (repository, store) = repository(1);
    assert_eq!(damaged_objects(&repository), Ok(Vec::new()));
    store.remove(&store.names(Folder::Keys).remove(0)).unwrap();
    let found = check(&repository);
    assert!(!found.is_good() && found.damaged_objects == damaged_objects(&repository).unwrap());
    assert!(found.damaged_objects[0].text.contains("has no key"), "{found:?}");
}

#[test]
fn a_segment_of_another_length_is_found_without_reading_its_content() {
    let (repository, store) = repository(1);
    save(&repository, &data().0).unwrap();
    let at = crate::segment::HEADER_BYTES;
    for name in store.names(Folder::Segments) {
        let whole = store.get(&name, 1 << 20).unwrap();
        store.damage(&name, |bytes| bytes.insert(at, 7));
        let found = run(&repository, false, 1, &VerifyProgress::default()).unwrap();
        assert!(found.damaged.len() == 1 && found.lost_files > 0, "{found:?}");
        assert!(found.damaged[0].1.contains("by its footer"), "{found:?}");
        store.damage(&name, |bytes| *bytes = whole);
    }
}
