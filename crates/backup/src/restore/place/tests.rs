use std::fs;

use super::*;
use crate::testing::{Temporary, picture, repository, restore, save};

/// The value of an access control list that lets user 1234 read.
fn readable_by_another() -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    let all = u32::MAX;
    for (tag, rights, id) in [(1_u16, 6_u16, all), (2, 4, 1234), (4, 4, all), (0x10, 4, all), (0x20, 0, all)] {
        value.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        value.extend(id.to_le_bytes());
    }
    value
}

fn set(path: &Path, name: &[u8], value: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::setxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty())
}

fn has(path: &Path, name: &[u8]) -> bool {
    match rustix::fs::getxattr(path, OsStr::from_bytes(name), &mut [0; 64]) {
        Err(Errno::NODATA) => false,
        length => length.unwrap() > 0,
    }
}

#[test]
fn access_lists_are_those_of_the_snapshot_alone() {
    let (repository, _) = repository(1);
    let (folder, target) = (Temporary::new(), Temporary::new());
    let list = readable_by_another();
    let [access, default] = ACCESS_LISTS;
    if set(&target.0, default, &list) == Err(Errno::NOTSUP) {
        return;
    }
    folder.write("data/small", b"x");
    folder.write("data/large", crate::testing::random(1, 40_000));
    folder.write("data/empty", b"");
    folder.write("data/listed", b"x");
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP;
    rustix::fs::mknodat(rustix::fs::CWD, folder.join("data/pipe"), FileType::Fifo, mode, 0).unwrap();
    for name in ["small", "large", "empty", "listed"] {
        rustix::fs::chmod(folder.join("data").join(name), mode).unwrap();
    }
    set(&folder.join("data/listed"), access, &list).unwrap();
    // Behind its files, which get nothing of it.
    fs::create_dir(folder.join("data/plain")).unwrap();
    set(&folder.join("data"), default, &list).unwrap();
    let saved = save(&repository, &folder.0).unwrap();
    // The second restore makes them again, in a directory that has a default of the snapshot's.
    for round in 0..2 {
        let done = restore(&repository, &saved, &folder.0, &target.0).unwrap();
        assert_eq!(done.issues, [], "{round}");
        assert_eq!(picture(&target.0), picture(&folder.0), "{round}");
        for name in ["", "small", "large", "empty", "listed", "pipe", "plain"] {
            let path = target.join("data").join(name);
            assert_eq!(has(&path, access), name == "listed", "{round} {name}");
            assert_eq!(has(&path, default), name.is_empty(), "{round} {name}");
        }
        for name in ["small", "large", "empty", "listed", "pipe"] {
            fs::remove_file(target.join("data").join(name)).unwrap();
        }
        fs::remove_dir(target.join("data/plain")).unwrap();
    }
}
