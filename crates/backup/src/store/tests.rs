//! One suite for every store.

use super::directory::Directory;
use super::memory::Memory;
use super::*;
use crate::crypt::hex;
use crate::error::BackupError;
use crate::testing::{Temporary, random, stage};

fn suite(store: &dyn Store) {
    let name = Name::of(Folder::Keys, &[1, 2]);
    assert!(matches!(store.get(&name, 10), Err(BackupError::Missing(_))));
    store.create(&name, b"content").unwrap();
    assert_eq!(store.get(&name, 7), Ok(b"content".to_vec()));
    assert!(matches!(store.get(&name, 6), Err(BackupError::Damaged(_))));
    assert!(matches!(store.create(&name, b"other"), Err(BackupError::Exists(_))));
    assert_eq!(store.get(&name, 7), Ok(b"content".to_vec()));
    assert_eq!(store.get_range(&name, 2..5), Ok(b"nte".to_vec()));
    let mut buffer = b"an earlier and longer part".to_vec();
    assert_eq!(store.get_range_into(&name, 2..5, &mut buffer), Ok(()));
    assert_eq!(buffer, b"nte");
    assert_eq!(store.get_range_into(&name, 1..5, &mut buffer), Ok(()));
    assert_eq!(buffer, b"onte");
    assert!(matches!(store.get_range(&name, 2..8), Err(BackupError::Damaged(_))));
    store.replace(&name, b"new").unwrap();
    assert_eq!(store.get(&name, 7), Ok(b"new".to_vec()));
    let segment = Name::segment(&SegmentId([0xab; 32]));
    store.create(&segment, &[7; 1000]).unwrap();
    store.create(&Name::epoch(3), b"").unwrap();
    let now = store.now().unwrap();
    let listed = |folder| {
        let mut found = Vec::new();
        store
            .list(folder, &mut |listed| {
                assert!(listed.stored.abs_diff(now) < 60);
                found.push((listed.name.text().to_owned(), listed.size));
                Ok(())
            })
            .unwrap();
        found
    };
    assert_eq!(listed(Folder::Segments), [(format!("segments/ab/{}", "ab".repeat(32)), 1000)]);
    assert_eq!(listed(Folder::Keys), [("keys/0102".to_owned(), 3)]);
    assert_eq!(listed(Folder::Epochs), [("epochs/0000000000000003".to_owned(), 0)]);
    assert_eq!(listed(Folder::Snapshots), []);
    store.remove(&segment).unwrap();
    assert!(matches!(store.remove(&segment), Err(BackupError::Missing(_))));
    assert_eq!(listed(Folder::Segments), []);
    store.tidy().unwrap();
}

#[test]
fn the_store_in_memory_passes_the_suite() {
    suite(&Memory::default());
}

#[test]
fn the_store_in_a_directory_passes_the_suite() {
    let folder = Temporary::new();
    suite(&Directory::new(&folder.join("repository"), stage(1)));
    // Nothing temporary stays.
    assert_eq!(std::fs::read_dir(folder.join("repository/tmp")).unwrap().count(), 0);
}

#[test]
fn foreign_names_are_not_listed() {
    let folder = Temporary::new();
    let long = "a".repeat(65);
    for name in [
        "keys/README",
        "keys/..",
        "segments/ab/cd",
        "segments/abcd",
        &format!("segments/{}", "ab".repeat(32)),
        &format!("segments//{}", "ab".repeat(32)),
        &format!("segments/a/{}", "ab".repeat(32)),
        &format!("segments/aba/{}", "ab".repeat(32)),
        &format!("segments/ba/{}", "ab".repeat(32)),
        &format!("segments/{0}/{0}", "ab".repeat(32)),
        "epochs/0G",
        "snapshots/x-1",
        &format!("keys/{long}"),
    ] {
        let folder = name.split('/').next().unwrap();
        let all = [Folder::Keys, Folder::Segments, Folder::Snapshots, Folder::Epochs];
        let folder = all.into_iter().find(|known| known.name() == folder).unwrap();
        assert_eq!(Name::parse(folder, name), None, "{name}");
    }
    folder.write("keys/lost+found/x", b"");
    folder.write("keys/0A", b"");
    Directory::new(&folder.0, stage(1)).list(Folder::Keys, &mut |listed| panic!("{listed:?}")).unwrap();
}

#[test]
fn a_temporary_file_that_a_killed_agent_left_never_harms_an_object() {
    let folder = Temporary::new();
    let (first, second) = (Name::of(Folder::Keys, &[1]), Name::of(Folder::Keys, &[2]));
    Directory::new(&folder.0, stage(2)).create(&first, b"committed").unwrap();
    // The agent died between the link and the removal of the temporary name. The next one has its
    // process number, and even the same dice.
    for name in [format!("{}-0", std::process::id()), hex(&random(3, 16))] {
        std::fs::hard_link(folder.join(first.text()), folder.join("tmp").join(name)).unwrap();
    }
    let store = Directory::new(&folder.0, stage(3));
    assert!(matches!(store.create(&second, b"another"), Err(BackupError::Failed(_))));
    store.create(&second, b"another").unwrap();
    assert_eq!(store.get(&first, 100), Ok(b"committed".to_vec()));
    assert_eq!(store.get(&second, 100), Ok(b"another".to_vec()));
}

#[test]
fn a_sector_that_cannot_be_read_is_damage_of_the_object() {
    let folder = Temporary::new();
    let store = Directory::new(&folder.0, stage(1));
    let name = Name::of(Folder::Keys, &[1]);
    // The kernel answers a read of address zero of a process with EIO, as a drive does for a bad
    // sector.
    std::fs::create_dir(folder.join("keys")).unwrap();
    std::os::unix::fs::symlink("/proc/self/mem", folder.join(name.text())).unwrap();
    assert!(matches!(store.get(&name, 100), Err(BackupError::Damaged(_))));
    assert!(matches!(store.get_range(&name, 0..100), Err(BackupError::Damaged(_))));
}

#[test]
fn the_clock_of_a_directory_is_the_one_that_dates_its_files() {
    let folder = Temporary::new();
    let store = Directory::new(&folder.0, stage(1));
    let before = store.now().unwrap();
    // A file was made for it, which has gone.
    assert_eq!(std::fs::read_dir(folder.join("tmp")).unwrap().count(), 0);
    store.create(&Name::of(Folder::Keys, &[1]), b"key").unwrap();
    let mut dates = Vec::new();
    let listed = store.list(Folder::Keys, &mut |listed| {
        dates.push(listed.stored);
        Ok(())
    });
    listed.unwrap();
    assert!(before <= dates[0] && dates[0] <= store.now().unwrap());
    // Where nothing can be written, the machine's clock serves.
    let nowhere = Directory::new(&folder.join("nowhere"), stage(1));
    assert!(nowhere.now().unwrap() >= before && !folder.join("nowhere").exists());
}
