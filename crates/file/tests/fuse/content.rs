//! Content against a buffer in memory: random reads, writes and cuts, through one or several
//! descriptors.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use stele_ground::Dice;

use super::{Share, able, each_way, ways};

const SIZE_MAX: u64 = 3 << 20;
const LENGTH_MAX: u64 = 1 << 18;
const OPERATIONS: usize = 1500;

#[test]
fn random_content_agrees_with_a_buffer() {
    each_way("content", |share| {
        for seed in 0..3 {
            let mut dice = Dice::new(seed);
            let path = share.path("f");
            let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let mut files: Vec<File> = (0..3).map(|_| open().expect("it is opened")).collect();
            files[0].set_len(0).expect("it is cut");
            let mut expected: Vec<u8> = Vec::new();
            for number in 0..OPERATIONS {
                let at = |what: &str| format!("seed {seed}, operation {number}: {what}");
                let file = &files[dice.below(3) as usize];
                let offset = if dice.one_in(2) { dice.below(SIZE_MAX) } else { dice.below(SIZE_MAX / 4096) * 4096 };
                let length = if dice.one_in(2) { dice.below(LENGTH_MAX) } else { 4096 };
                match dice.below(10) {
                    0..=3 => {
                        let mut data = vec![0; length as usize];
                        dice.fill(&mut data);
                        file.write_all_at(&data, offset).unwrap_or_else(|error| panic!("{}: {error}", at("write")));
                        let end = (offset + length) as usize;
                        expected.resize(expected.len().max(if length == 0 { 0 } else { end }), 0);
                        if length > 0 {
                            expected[offset as usize..end].copy_from_slice(&data);
                        }
                    }
                    4..=7 => {
                        let mut data = vec![0; length as usize];
                        let read =
                            file.read_at(&mut data, offset).unwrap_or_else(|error| panic!("{}: {error}", at("read")));
                        let wanted = expected.get(offset as usize..).unwrap_or_default();
                        let wanted = &wanted[..wanted.len().min(length as usize)];
                        assert!(data[..read] == *wanted, "{}", at("content"));
                    }
                    8 => {
                        let size = dice.below(expected.len() as u64 + 100_000);
                        file.set_len(size).unwrap_or_else(|error| panic!("{}: {error}", at("cut")));
                        expected.resize(size as usize, 0);
                    }
                    _ if dice.one_in(2) => file.sync_all().unwrap_or_else(|error| panic!("{}: {error}", at("sync"))),
                    _ => {
                        files[dice.below(3) as usize] = open().unwrap_or_else(|error| panic!("{}: {error}", at("open")))
                    }
                }
                let size = fs::metadata(&path).expect("it is there").size();
                assert_eq!(size, expected.len() as u64, "{}", at("size"));
            }
            drop(files);
            assert!(fs::read(&path).expect("it is read") == expected, "seed {seed}: content at the end");
        }
    });
}

#[test]
fn writers_of_one_file_do_not_disturb_each_other() {
    each_way("writers", |share| {
        const PART: usize = 4096 * 3 + 7;
        let path = share.path("f");
        File::create(&path).expect("it is created");
        std::thread::scope(|scope| {
            for writer in 0..8u8 {
                let path = &path;
                scope.spawn(move || {
                    let file = OpenOptions::new().write(true).open(path).expect("it is opened");
                    for round in 0..40 {
                        let offset = (round * 8 + usize::from(writer)) * PART;
                        file.write_all_at(&[writer + 1; PART], offset as u64).expect("it is written");
                    }
                });
            }
        });
        let content = fs::read(&path).expect("it is read");
        assert_eq!(content.len(), 8 * 40 * PART);
        for (part, bytes) in content.chunks(PART).enumerate() {
            assert!(bytes.iter().all(|byte| usize::from(*byte) == part % 8 + 1), "part {part}");
        }
    });
}

#[test]
fn appends_follow_each_other() {
    each_way("appends", |share| {
        let path = share.path("log");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    use std::io::Write;
                    let mut file = OpenOptions::new().append(true).create(true).open(&path).expect("it is opened");
                    for _ in 0..200 {
                        file.write_all(b"a line\n").expect("it is written");
                    }
                });
            }
        });
        assert_eq!(fs::read(&path).expect("it is read"), b"a line\n".repeat(800));
    });
}

/// The kernel says where an append goes: to the end that it knows.
#[test]
fn an_append_goes_behind_what_another_client_appended() {
    use std::io::Write;

    use bytes::Bytes;
    use stele_file::{Caller, Changes, Files, Stability};
    if !able() {
        return;
    }
    for (number, way) in ways().iter().filter(|way| way.options.cache.is_zero()).enumerate() {
        eprintln!("{way:?}");
        let share = Share::new(&format!("others-{number}"), way);
        let path = share.path("log");
        let mut log = OpenOptions::new().append(true).create_new(true).open(&path).expect("it is opened");
        log.write_all(b"one\n").expect("it is written");
        let inode = share.found("log").inode;
        let theirs = vec![Bytes::from_static(b"theirs\n")];
        let written = share.runtime.block_on(share.files.write(&Caller::ROOT, inode, 4, theirs, Stability::File));
        written.expect("another client appends");
        log.write_all(b"two\n").expect("it is written");
        log.write_all(b"three\n").expect("it is written");
        assert_eq!(fs::read(&path).expect("it is read"), b"one\ntheirs\ntwo\nthree\n", "{way:?}");
        let cut = Changes { size: Some(0), ..Changes::default() };
        let cut = share.runtime.block_on(share.files.set_attributes(&Caller::ROOT, inode, cut, None));
        cut.expect("another client empties it");
        // Longer than one request.
        let long = vec![b'l'; 3 << 20];
        log.write_all(&long).expect("it is written");
        assert!(fs::read(&path).expect("it is read") == long, "{way:?}: it begins with what was appended then");
        assert!(OpenOptions::new().write(true).open(&path).is_ok_and(|file| file.write_all_at(b"L", 1).is_ok()));
        assert_eq!(fs::read(&path).expect("it is read")[..3], *b"lLl", "{way:?}");
    }
}
