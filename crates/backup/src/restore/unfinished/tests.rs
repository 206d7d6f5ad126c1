use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;
use crate::backup::tree_path;
use crate::restore::place::Target;
use crate::restore::{RestoreOptions, RestoreProgress, run, run_in};
use crate::testing::{Temporary, picture, random, repository, restore, save};

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

fn options(target: &Path, within: Vec<u8>) -> RestoreOptions {
    RestoreOptions {
        target: target.to_owned(),
        within,
        exclude: Default::default(),
        include: Default::default(),
        verify: false,
        workers: 2,
    }
}

#[test]
fn a_repeated_restore_finishes_the_target_that_it_made() {
    let (repository, _) = repository(1);
    let (folder, place) = (Temporary::new(), Temporary::new());
    (0..8).for_each(|number| drop(folder.write(&format!("data/{number}"), random(number, 3000))));
    std::fs::set_permissions(folder.join("data"), PermissionsExt::from_mode(0o750)).unwrap();
    let saved = save(&repository, &folder.0).unwrap();
    let data = folder.join("data");
    let is = data.metadata().unwrap();
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    // With the metadata of the selected directory, and for everything without any.
    for (name, within) in [("of data", tree_path(&data).unwrap()), ("of all", Vec::new())] {
        let target = place.join(name).join("below");
        let options = options(&target, within.clone());
        let (opened, made) = Target::open_with(&target).unwrap();
        assert_eq!(made, [target.clone(), place.join(name)]);
        assert_eq!(mode(&target), 0o700, "only its user may enter it");
        // The process is killed before the files have their times.
        opened.syncs_left.store(0, std::sync::atomic::Ordering::Relaxed);
        let killed = run_in(opened, &indexed, &saved.description, &options, &RestoreProgress::default());
        assert!(matches!(killed, Err(BackupError::Failed(_))));
        assert_eq!((mode(&target), target.join(MARK).exists()), (0o700, true));
        run(&indexed, &saved.description, &options, &RestoreProgress::default()).unwrap();
        assert!(!target.join(MARK).exists());
        if within.is_empty() {
            let other = place.join("made by hand");
            std::fs::create_dir_all(&other).unwrap();
            assert_eq!(mode(&target), mode(&other));
        } else {
            assert_eq!(picture(&target), picture(&data));
            let done = target.metadata().unwrap();
            assert_eq!((mode(&target), done.uid(), done.mtime()), (0o750, is.uid(), is.mtime()));
        }
    }
}

#[test]
fn a_target_that_was_there_keeps_its_own_metadata() {
    let (repository, _) = repository(1);
    let (folder, target) = (Temporary::new(), Temporary::new());
    folder.write("file", b"content");
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o750)).unwrap();
    let saved = save(&repository, &folder.0).unwrap();
    std::fs::set_permissions(&target.0, PermissionsExt::from_mode(0o711)).unwrap();
    restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!(mode(&target.0), 0o711);
    // Another user may have linked an empty file of this one under the name of the mark.
    target.write(MARK, b"");
    std::fs::hard_link(target.join(MARK), target.join("another name")).unwrap();
    restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!((mode(&target.0), target.join(MARK).exists()), (0o711, true));
}

#[test]
fn a_restore_of_nothing_leaves_no_directory() {
    let (repository, _) = repository(1);
    let (folder, place) = (Temporary::new(), Temporary::new());
    folder.write("file", b"content");
    let saved = save(&repository, &folder.0).unwrap();
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let failed = |target: &Path, progress: &RestoreProgress| {
        let within = [&tree_path(&folder.0).unwrap()[..], b"/typo"].concat();
        run(&indexed, &saved.description, &options(target, within), progress).unwrap_err()
    };
    let missing = failed(&place.join("a/b"), &RestoreProgress::default());
    assert!(matches!(missing, BackupError::Missing(_)), "{missing}");
    assert!(!place.join("a").exists());
    // What an interrupted restore left empty goes too, and what was there before stays.
    drop(Target::open(&place.join("left")).unwrap());
    place.write("used/by/another", b"content");
    std::fs::create_dir(place.join("mine")).unwrap();
    for name in ["left", "used/by", "mine"] {
        failed(&place.join(name), &RestoreProgress::default());
    }
    assert!(!place.join("left").exists() && place.join("used/by/another").exists() && place.join("mine").exists());
}

#[test]
fn a_file_is_no_target() {
    let place = Temporary::new();
    let file = place.write("file", b"content");
    for target in [file.clone(), file.join("below")] {
        let refused = Target::open(&target).map(drop);
        assert!(matches!(refused, Err(BackupError::Invalid(_))), "{refused:?}");
    }
    assert_eq!(std::fs::read(file).unwrap(), b"content");
}

#[test]
fn a_target_that_cannot_be_made_leaves_no_directories_above_it() {
    let place = Temporary::new();
    let long = place.join("a/b").join("x".repeat(300));
    assert!(matches!(make(&long), Err(BackupError::Failed(_) | BackupError::Invalid(_))));
    assert!(!place.join("a").exists());
    // What was there before stays, although it is empty.
    std::fs::create_dir(place.join("a")).unwrap();
    make(&long).unwrap_err();
    assert!(place.join("a").exists() && !place.join("a/b").exists());
}
