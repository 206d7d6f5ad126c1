use rustix::fs::{CWD, FileType, Mode};

use super::lost;
use crate::crypt::Kind;
use crate::error::BackupError;
use crate::restore::{self, RestoreOptions, RestoreProgress, WINDOW_BYTES, Window};
use crate::segment::{Footer, SEGMENT_BYTES_MAX};
use crate::store::{Folder, Name, Store};
use crate::testing::{Temporary, picture, random, repository, restore, save};

#[test]
fn only_what_was_written_counts_as_restored() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    for (name, length) in [("data/small", 200), ("data/large", 40_000), ("data/whole", 3_000)] {
        folder.write(name, random(length as u64, length));
    }
    let saved = save(&repository, &folder.0).unwrap();
    let target = Temporary::new();
    // Directories are where two of the files belong.
    std::fs::create_dir_all(target.join("data/small/full")).unwrap();
    std::fs::create_dir_all(target.join("data/large/full")).unwrap();
    let done = restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!((done.files, done.bytes, done.problems), (1, 3_000, 2), "{:?}", done.issues);
}

#[test]
fn a_further_name_of_a_pipe_is_no_file() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    folder.write("file", b"content");
    std::fs::hard_link(folder.join("file"), folder.join("name")).unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, folder.join("pipe"), FileType::Fifo, mode, 0).unwrap();
    std::fs::hard_link(folder.join("pipe"), folder.join("pipe too")).unwrap();
    let saved = save(&repository, &folder.0).unwrap();
    let target = Temporary::new();
    let done = restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!((done.files, done.others, &done.issues), (2, 2, &Vec::new()));
}

#[test]
fn an_outage_ends_a_restore_and_the_next_one_goes_on() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    for number in 0..40 {
        folder.write(&format!("data/{number}"), random(number, 4_000));
    }
    let saved = save(&repository, &folder.0).unwrap();
    let target = Temporary::new();
    let options = RestoreOptions {
        target: target.0.clone(),
        within: crate::backup::tree_path(&folder.0).unwrap(),
        exclude: Default::default(),
        include: Default::default(),
        verify: false,
        workers: 1,
    };
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let run = || restore::run(&indexed, &saved.description, &options, &RestoreProgress::default());
    // Segments are read in the order of their names.
    let has_content = |name: &&Name| {
        let bytes = store.get(name, SEGMENT_BYTES_MAX).unwrap();
        Footer::decode(&bytes).unwrap().kind == Kind::Content
    };
    let names = store.names(Folder::Segments);
    let last = names.iter().rfind(has_content).unwrap();
    store.cut_off(Some(last));
    assert_eq!(run(), Err(BackupError::Unreachable("cannot reach the store".to_owned())));
    store.cut_off(None);
    let done = run().unwrap();
    assert_eq!((done.files + done.files_kept, done.problems), (40, 0), "{:?}", done.issues);
    assert!(done.files > 0 && done.files_kept >= 20, "{} of 40 were written again", done.files);
    assert_eq!(picture(&target.0), picture(&folder.0));
}

#[test]
fn only_damage_is_told_as_a_loss() {
    let text = || "cause".to_owned();
    assert_eq!(lost(7, &BackupError::Damaged(text())), "its content is lost at byte 7: cause");
    assert_eq!(lost(7, &BackupError::Missing(text())), "its content is lost at byte 7: cause");
    assert_eq!(lost(7, &BackupError::Failed(text())), "its content could not be read at byte 7: cause");
}

#[test]
fn a_window_is_bounded_by_bytes_too() {
    let window = |bytes: u64| Window { bytes, ..Window::default() };
    assert!(!window(WINDOW_BYTES - 1).is_full() && window(WINDOW_BYTES).is_full());
}
