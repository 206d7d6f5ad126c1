use std::path::PathBuf;

use super::*;

/// The holder of each entry, the drives present, the drive in question, and the entry that names
/// it.
type Case<'a> = (&'a [Holder], &'a [u32], u32, Option<usize>);

#[test]
fn a_drive_is_known_by_its_label_and_else_by_being_the_only_one_left() {
    use Holder::{Drive, Stranger, Unknown};
    let cases: &[Case] = &[
        (&[Drive(0), Drive(2), Drive(1)], &[0, 1, 2], 1, Some(2)),
        // One drive is away, and one entry is unreadable.
        (&[Drive(0), Unknown, Drive(2)], &[0, 1, 2], 1, Some(1)),
        // Two drives are away: each of the two entries may name either.
        (&[Drive(0), Unknown, Unknown], &[0, 1, 2], 1, None),
        // The unreadable entry is not the drive in question.
        (&[Drive(0), Unknown, Drive(1)], &[0, 1, 2], 3, None),
        (&[Drive(0), Stranger, Drive(2)], &[0, 1, 2], 1, None),
        (&[Drive(0), Stranger, Unknown, Drive(2)], &[0, 1, 2], 1, Some(2)),
        // A drive that no entry names, beside an entry that names no drive.
        (&[Unknown, Unknown, Drive(1)], &[0, 1], 0, None),
    ];
    for (holders, drives, number, expected) in cases {
        assert_eq!(choose(holders, drives, *number), *expected, "{holders:?} {drives:?} {number}");
    }
}

#[test]
fn one_file_has_many_spellings() {
    let dir = std::env::temp_dir().join(format!("stele-named-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("a"), b"").unwrap();
    std::os::unix::fs::symlink(dir.join("a"), dir.join("link")).unwrap();
    assert!(is_same(&dir.join("a"), &dir.join("./a")) && is_same(&dir.join("a"), &dir.join("link")));
    assert!(!is_same(&dir.join("a"), &dir.join("b")));
    // The same for a file that is gone.
    assert!(is_same(Path::new("./gone/d3.img"), Path::new("gone/d3.img")));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn an_entry_names_nothing_only_where_every_drive_is_named_by_another() {
    use Holder::{Drive, Stranger, Unknown};
    assert_eq!(spare(&[Drive(0), Unknown, Drive(1), Unknown, Stranger], &[0, 1]), [1, 3]);
    assert!(spare(&[Drive(0), Unknown, Unknown], &[0, 1]).is_empty());
    assert!(spare(&[Drive(0), Drive(1)], &[0, 1]).is_empty());
}

#[test]
fn a_blank_drive_is_readable_and_empty() {
    let dir = std::env::temp_dir().join(format!("stele-named-blank-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("new"), vec![0; 2 * LABEL_SIZE as usize]).unwrap();
    std::fs::write(dir.join("short"), vec![0; LABEL_SIZE as usize]).unwrap();
    assert!(is_blank(&dir.join("new")) && !is_blank(&dir.join("short")) && !is_blank(&dir.join("gone")));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_file_with_data_is_refused_and_a_wiped_drive_is_not() {
    let path = std::env::temp_dir().join(format!("stele-named-content-{}", std::process::id()));
    let size = 64 << 20;
    let mark = stele_array::label::codec::MAGIC;
    let last = *places(size).last().unwrap();
    // What lies where, and whether that is data which no pool left.
    type Contents<'a> = &'a [(u64, &'a [u8])];
    let cases: [(&str, Contents<'_>, bool); 8] = [
        ("a new drive", &[], false),
        ("a tar file", &[(0, b"ledger/2026"), (257, b"ustar")], true),
        ("a gzip file", &[(0, &[0x1f, 0x8b, 8, 0])], true),
        ("random bytes", &[(0, &[0xa5; 4096])], true),
        ("data behind a hole", &[(3 << 20, b"data")], true),
        ("data at the end", &[(last + 100, b"data")], true),
        ("strips and log of a wiped drive", &[(LOG_AT, &[0xa5; 4096]), (32 << 20, &[0xa5; 4096])], false),
        ("a damaged label, which is the pool's to judge", &[(0, b"junk"), (last, mark)], false),
    ];
    for (name, contents, is_data) in cases {
        let file = File::create(&path).unwrap();
        file.set_len(size).unwrap();
        contents.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        let refused = refuse_content(&path).err();
        assert_eq!(refused.is_some(), is_data, "{name}: {refused:?}");
        assert!(refused.is_none_or(|failure| failure.kind == Kind::Refused && failure.next.contains("--destroy")));
    }
    // Shorter than any drive.
    std::fs::write(&path, "a letter").unwrap();
    assert!(refuse_content(&path).is_err());
    std::fs::write(&path, "").unwrap();
    assert!(refuse_content(&path).is_ok());
    std::fs::remove_file(&path).unwrap();
}

/// `stele pool add`, `replace` and `create` waited without end and without a word.
#[test]
fn a_pipe_is_refused_and_not_opened() {
    let dir = std::env::temp_dir().join(format!("stele-named-pipe-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (pipe, file) = (dir.join("pipe"), dir.join("file"));
    std::fs::write(&file, b"").unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    let path = pipe.clone();
    std::thread::spawn(move || done.send(label_at(&path).is_none()));
    assert_eq!(is_done.recv_timeout(std::time::Duration::from_secs(5)), Ok(true), "it is not opened");
    let refused = |path: &Path| refuse_other_kind(path).err().map(|failure| (failure.kind, failure.error));
    for path in [&pipe, &dir, &PathBuf::from("/dev/null")] {
        let (kind, error) = refused(path).expect("a refusal");
        assert!(kind == Kind::Usage && error.contains("is neither a file nor a block device"), "{error}");
    }
    assert!(refused(&file).is_none() && refused(&dir.join("new")).is_none());
    std::fs::remove_dir_all(&dir).unwrap();
}
