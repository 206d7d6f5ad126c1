use rustix::fs::{CWD, FileType, Mode};

use crate::testing::{Temporary, random, repository, restore, save};

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
