use super::*;
use crate::prune;
use crate::testing::{PASSWORD, SMALL, Temporary, repository, save, stage};
use crate::verify;
use stele_ground::Dice;

const LENGTH: u64 = 40_000;

fn content(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH as usize];
    Dice::new(seed).fill(&mut bytes);
    bytes
}

fn open(repository: &Repository) -> Streams {
    Streams::open(repository.clone(), "test", 1, 1_000_000).unwrap()
}

/// Saves these objects with a session of their own.
fn saved(streams: &Streams, is_kept: bool, objects: &[(u32, u64)]) {
    let mut stream = streams.stream().unwrap();
    for (number, seed) in objects {
        streams.save(&mut stream, (LENGTH, *number), is_kept, &content(*seed)).unwrap();
    }
    streams.end(stream);
}

fn restored(streams: &Streams, number: u32) -> Result<Vec<u8>> {
    let mut into = vec![0; LENGTH as usize];
    streams.restore((LENGTH, number), &mut into).map(|()| into)
}

fn made(seed: u64) -> (Repository, Arc<crate::store::memory::Memory>) {
    let store = Arc::new(crate::store::memory::Memory::default());
    store.set_now(1_000_000);
    let made = Repository::make(store.clone(), stage(seed), PASSWORD, LABEL, SMALL);
    (made.unwrap(), store)
}

#[test]
fn what_sessions_saved_at_once_is_restored_from_snapshots() {
    let (repository, _) = repository(1);
    let streams = open(&repository);
    std::thread::scope(|scope| {
        for session in 0..4_u32 {
            let streams = &streams;
            scope.spawn(move || {
                let objects: Vec<(u32, u64)> = (0..5).map(|n| (session * 5 + n, u64::from(session * 5 + n))).collect();
                saved(streams, true, &objects);
            });
        }
    });
    // The third place has a later object.
    saved(&streams, true, &[(3, 99)]);
    streams.settle().unwrap();
    for number in 0..20 {
        let expected = content(if number == 3 { 99 } else { u64::from(number) });
        assert!(restored(&streams, number).unwrap() == expected, "object {number}");
    }
    assert_eq!(restored(&streams, 20), Err(BackupError::Missing("no object (40000, 20) was saved".to_owned())));
    // Any reader of the repository finds the objects, and a check finds no fault.
    assert_eq!(repository.snapshots().unwrap().len(), 5);
    let checked = verify::run(&repository, true, 2, &verify::VerifyProgress::default()).unwrap();
    assert!(checked.is_good() && checked.files == 5 + 21, "{checked:?}");
    streams.remove().unwrap();
}

#[test]
fn an_object_is_durable_when_save_returns() {
    let (repository, store) = repository(2);
    let streams = open(&repository);
    let mut stream = streams.stream().unwrap();
    let before = store.bytes();
    streams.save(&mut stream, (LENGTH, 0), true, &content(1)).unwrap();
    assert!(store.bytes() - before >= LENGTH, "all of it is in the store");
    store.fail_after(Some(0));
    assert!(streams.save(&mut stream, (LENGTH, 1), true, &content(2)).is_err(), "a refused segment is told");
}

#[test]
fn another_repository_loses_only_what_the_streams_made() {
    let (repository, store) = repository(3);
    let tree = Temporary::new();
    tree.write("tree/file", content(7));
    let kept = save(&repository, &tree.join("tree")).unwrap();
    let names = |folder| store.names(folder);
    let before = (names(Folder::Snapshots), names(Folder::Segments));
    let streams = open(&repository);
    assert!(!streams.is_made());
    // The first object has the chunks of the file.
    saved(&streams, true, &[(0, 7), (1, 8)]);
    saved(&streams, false, &[(2, 9)]);
    streams.settle().unwrap();
    assert_eq!(names(Folder::Snapshots).len(), before.0.len() + 1, "passing objects keep no snapshot");
    let sessions = names(Folder::Sessions).len();
    streams.remove().unwrap();
    assert_eq!(names(Folder::Snapshots), before.0);
    assert_eq!(names(Folder::Sessions).len(), sessions - 1, "its session is gone");
    assert!(before.1.iter().all(|segment| names(Folder::Segments).contains(segment)));
    // The space comes back with prunes.
    for _ in 0..=prune::EPOCHS {
        prune::run(&repository, false).unwrap();
    }
    assert_eq!(names(Folder::Segments), before.1);
    assert!(repository.snapshot(&kept.id).is_ok());
    assert!(matches!(unmake(&repository), Err(BackupError::Refused(_))));
}

#[test]
fn a_repository_made_for_streams_is_swept_and_removed() {
    let (repository, store) = made(4);
    let streams = open(&repository);
    assert!(streams.is_made());
    saved(&streams, true, &[(0, 1)]);
    streams.settle().unwrap();
    let segments = store.names(Folder::Segments);
    saved(&streams, false, &[(0, 2), (1, 3)]);
    streams.settle().unwrap();
    assert_eq!(store.names(Folder::Segments), segments, "passing objects take no space");
    // What comes behind does not count on segments that are gone.
    saved(&streams, true, &[(1, 3)]);
    streams.settle().unwrap();
    assert!(restored(&streams, 0).unwrap() == content(1) && restored(&streams, 1).unwrap() == content(3));
    streams.remove().unwrap();
    for folder in [Folder::Keys, Folder::Segments, Folder::Snapshots, Folder::Sessions, Folder::Epochs, Folder::Damaged]
    {
        assert_eq!(store.names(folder), [], "{folder:?}");
    }
    assert!(matches!(crate::repository::Closed::open(store, stage(5)).map(|_| ()), Err(BackupError::NoRepository(_))));
}

#[test]
fn damage_that_a_restore_meets_is_told() {
    let (repository, store) = repository(6);
    let streams = open(&repository);
    saved(&streams, true, &[(0, 1)]);
    streams.settle().unwrap();
    for segment in store.names(Folder::Segments) {
        store.damage(&segment, |bytes| bytes.iter_mut().skip(100).take(50).for_each(|byte| *byte ^= 1));
    }
    assert!(matches!(restored(&streams, 0), Err(BackupError::Damaged(_))));
}
