//! What POSIX says of names, modes and users, seen through the kernel.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Result, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;

use super::{Share, Way, able, each_way, run_as};
use stele_file::fuse::MountOptions;

fn fails<T>(rule: &str, result: Result<T>, errno: Errno) {
    let found = result.err().map(|error| error.raw_os_error());
    assert_eq!(found, Some(Some(errno.raw_os_error())), "{rule}");
}

fn refused<T: std::fmt::Debug>(rule: &str, result: rustix::io::Result<T>, errno: Errno) {
    assert_eq!(result.err(), Some(errno), "{rule}");
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode is set");
}

#[test]
fn names_are_made_moved_and_removed() {
    each_way("names", |share| {
        let (a, b, d) = (share.path("a"), share.path("b"), share.path("d"));
        fs::write(&a, b"a").expect("it is written");
        fails("exclusive", OpenOptions::new().write(true).create_new(true).open(&a), Errno::EXIST);
        fs::hard_link(&a, &b).expect("it is linked");
        assert_eq!(fs::metadata(&a).expect("it is there").nlink(), 2);
        fs::create_dir(&d).expect("it is made");
        fails("a file over a directory", fs::rename(&a, &d), Errno::ISDIR);
        fails("a directory over a file", fs::rename(&d, &a), Errno::NOTDIR);
        fails("into itself", fs::rename(&d, d.join("x")), Errno::INVAL);
        fs::rename(&a, d.join("moved")).expect("it is moved");
        fails("not empty", fs::remove_dir(&d), Errno::NOTEMPTY);
        fails("a directory is no file", fs::remove_file(&d), Errno::ISDIR);
        fails("gone", fs::metadata(&a), Errno::NOENT);
        let moved = rustix::fs::renameat_with(CWD, &b, CWD, d.join("moved"), RenameFlags::NOREPLACE);
        refused("not over another", moved, Errno::EXIST);
        fs::write(share.path("other"), b"").expect("it is written");
        let moved = rustix::fs::renameat_with(CWD, &b, CWD, share.path("other"), RenameFlags::EXCHANGE);
        refused("no exchange", moved, Errno::INVAL);
        rustix::fs::renameat_with(CWD, &b, CWD, d.join("new"), RenameFlags::NOREPLACE).expect("to a free name");
        assert_eq!(fs::read(d.join("new")).expect("it is read"), b"a");
        symlink("d/new", share.path("link")).expect("a link is made");
        assert_eq!(fs::read(share.path("link")).expect("it is followed"), b"a");
        assert_eq!(fs::read_link(share.path("link")).expect("it is read"), Path::new("d/new"));
        let long = share.path(&"x".repeat(256));
        fails("a long name", fs::write(long, b""), Errno::NAMETOOLONG);
        fs::remove_dir_all(&d).expect("all is removed");
        assert_eq!(fs::metadata(share.path("")).expect("the root").nlink(), 2);
    });
}

#[test]
fn every_kind_is_made() {
    each_way("kinds", |share| {
        for (name, kind, device) in [
            ("pipe", FileType::Fifo, 0),
            ("socket", FileType::Socket, 0),
            ("block", FileType::BlockDevice, rustix::fs::makedev(7, 300_000)),
            ("character", FileType::CharacterDevice, rustix::fs::makedev(4095, 255)),
            ("file", FileType::RegularFile, 0),
        ] {
            rustix::fs::mknodat(CWD, share.path(name), kind, Mode::from(0o640), device).expect(name);
            let file = fs::symlink_metadata(share.path(name)).expect(name);
            assert_eq!((file.mode() & 0o777, file.rdev()), (0o640, device), "{name}");
            let kinds = [file.file_type().is_fifo(), file.file_type().is_socket(), file.file_type().is_block_device()];
            assert_eq!(kinds, [name == "pipe", name == "socket", name == "block"], "{name}");
        }
        assert_eq!(fs::read_dir(share.path("")).expect("it is listed").count(), 5);
    });
}

#[test]
fn modes_hold_for_every_user() {
    each_way("modes", |share| {
        let (root, closed) = (share.path(""), share.path("closed"));
        set_mode(&root, 0o777);
        fs::create_dir(&closed).expect("it is made");
        set_mode(&closed, 0o700);
        fs::write(closed.join("f"), b"secret").expect("it is written");
        let path = share.path("f");
        fs::write(&path, b"text").expect("it is written");
        chown(&path, Some(1001), Some(2001)).expect("it gets an owner");
        for (mode, owner, member, stranger) in [
            (0o640, (true, true), (true, false), (false, false)),
            (0o460, (true, false), (true, true), (false, false)),
            (0o206, (false, true), (false, false), (true, true)),
            (0o000, (false, false), (false, false), (false, false)),
        ] {
            set_mode(&path, mode);
            for (who, uid, groups, (reads, writes)) in [
                ("owner", 1001, &[][..], owner),
                ("member by a supplementary group", 1002, &[7, 2001], member),
                ("stranger", 1003, &[7], stranger),
            ] {
                run_as(uid, 2009, groups, || {
                    let rule = format!("{who} at {mode:o}");
                    assert_eq!(File::open(&path).is_ok(), reads, "{rule} reads");
                    assert_eq!(OpenOptions::new().append(true).open(&path).is_ok(), writes, "{rule} writes");
                    let cut = OpenOptions::new().write(true).truncate(true).open(&path);
                    assert_eq!(cut.is_ok(), writes, "{rule} cuts");
                    let asked = rustix::fs::accessat(CWD, &path, Access::READ_OK, AtFlags::EACCESS);
                    assert_eq!(asked.is_ok(), reads, "{rule} asks to read");
                    let asked = rustix::fs::accessat(CWD, &path, Access::WRITE_OK, AtFlags::EACCESS);
                    assert_eq!(asked.is_ok(), writes, "{rule} asks to write");
                });
            }
        }
        // Root has just looked the name up; a stranger may not search for it all the same.
        fs::metadata(closed.join("f")).expect("root finds it");
        run_as(1003, 2003, &[], || {
            fails("no search", fs::metadata(closed.join("f")), Errno::ACCESS);
            fails("no listing", fs::read_dir(&closed).map(|_| ()), Errno::ACCESS);
            fails("no new name", fs::write(closed.join("g"), b""), Errno::ACCESS);
            fails("no mode", fs::set_permissions(&path, Permissions::from_mode(0o777)), Errno::PERM);
            fails("no owner", chown(&path, Some(1003), None), Errno::PERM);
        });
    });
}

#[test]
fn an_open_file_keeps_its_rights() {
    each_way("rights", |share| {
        set_mode(&share.path(""), 0o777);
        let path = share.path("f");
        run_as(1001, 2001, &[], || {
            let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o444).open(&path);
            let mut file = made.expect("it is created for writing, with a mode for reading");
            file.write_all(b"written").expect("its maker writes");
            file.set_len(4).expect("its maker cuts");
            fails("not again", OpenOptions::new().write(true).open(&path), Errno::ACCESS);
            let cut = rustix::fs::open(&path, rustix::fs::OFlags::TRUNC, Mode::empty());
            refused("no cutting by a reader", cut, Errno::ACCESS);
        });
        set_mode(&path, 0o666);
        let mut theirs =
            run_as(1002, 2002, &[], || OpenOptions::new().read(true).write(true).open(&path).expect("all may write"));
        set_mode(&path, 0o600);
        run_as(1002, 2002, &[], || {
            theirs.write_all(b"WRIT").expect("it may still write");
            theirs.set_len(3).expect("it may still cut");
            let mut text = String::new();
            File::open(&path).map(|_| ()).expect_err("it may not open it again");
            rustix::fs::seek(&theirs, SeekFrom::Start(0)).expect("it seeks");
            theirs.read_to_string(&mut text).expect("it may still read");
            assert_eq!(text, "WRI");
        });
    });
}

#[test]
fn set_ids_go_with_a_write_of_others() {
    each_way("set-ids", |share| {
        set_mode(&share.path(""), 0o777);
        for (name, uid, write, expected) in [
            ("owner writes", 1001, true, 0o777),
            ("stranger writes", 1003, true, 0o777),
            ("root writes", 0, true, 0o6777),
            ("stranger cuts", 1003, false, 0o777),
            ("root cuts", 0, false, 0o6777),
        ] {
            let path = share.path(name);
            fs::write(&path, b"text").expect("it is written");
            chown(&path, Some(1001), Some(2001)).expect("it gets an owner");
            set_mode(&path, 0o6777);
            run_as(uid, 2009, &[], || match write {
                true => OpenOptions::new().append(true).open(&path).and_then(|mut file| file.write_all(b"more")),
                false => OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(1)),
            })
            .expect(name);
            assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o7777, expected, "{name}");
        }
    });
}

#[test]
fn times_are_exact() {
    each_way("times", |share| {
        let path = share.path("f");
        fs::write(&path, b"").expect("it is written");
        for (seconds, nanoseconds) in [(0, 0), (-2, 250_000_000), (-1, 999_999_999), (1 << 33, 1), (5, 999_999_999)] {
            let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
            let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).expect("times are set");
            let file = fs::metadata(&path).expect("it is there");
            assert_eq!((file.mtime(), file.mtime_nsec()), (seconds, nanoseconds));
            assert_eq!((file.atime(), file.atime_nsec()), (seconds, nanoseconds));
        }
    });
}

#[test]
fn extended_attributes_are_kept() {
    each_way("extended", |share| {
        let path = share.path("f");
        fs::write(&path, b"").expect("it is written");
        let mut buffer = [0; 100];
        rustix::fs::setxattr(&path, "user.a", b"one", XattrFlags::CREATE).expect("it is created");
        refused("once", rustix::fs::setxattr(&path, "user.a", b"1", XattrFlags::CREATE), Errno::EXIST);
        let replaced = rustix::fs::setxattr(&path, "user.b", b"1", XattrFlags::REPLACE);
        refused("nothing to replace", replaced, Errno::NODATA);
        rustix::fs::setxattr(&path, "user.b", b"", XattrFlags::empty()).expect("it may be empty");
        assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut buffer), Ok(3));
        assert_eq!(&buffer[..3], b"one");
        let mut short = [0; 2];
        refused("too short", rustix::fs::getxattr(&path, "user.a", &mut short), Errno::RANGE);
        refused("none", rustix::fs::getxattr(&path, "user.c", &mut buffer), Errno::NODATA);
        refused("not ours", rustix::fs::setxattr(&path, "trusted.a", b"1", XattrFlags::empty()), Errno::OPNOTSUPP);
        let mut names = [0; 100];
        let length = rustix::fs::listxattr(&path, &mut names).expect("they are listed");
        assert_eq!(&names[..length], b"user.a\0user.b\0");
        rustix::fs::removexattr(&path, "user.a").expect("it is removed");
        refused("gone", rustix::fs::removexattr(&path, "user.a"), Errno::NODATA);
        // Each fits by itself, and both do not.
        let large = vec![1; 40_000];
        rustix::fs::setxattr(&path, "user.c", &large, XattrFlags::empty()).expect("it has room");
        let second = rustix::fs::setxattr(&path, "user.d", &large, XattrFlags::empty());
        refused("no room", second, Errno::NOSPC);
    });
}

#[test]
fn a_listing_survives_changes() {
    each_way("listing", |share| {
        for number in 0..2000 {
            fs::write(share.path(&format!("name {number:05}")), b"").expect("it is written");
        }
        let mut seen = 0;
        for entry in fs::read_dir(share.path("")).expect("it is opened") {
            let entry = entry.expect("it is listed");
            assert!(entry.file_type().expect("it has a type").is_file());
            fs::remove_file(entry.path()).expect("it is removed");
            seen += 1;
        }
        assert_eq!(seen, 2000);
        assert_eq!(fs::read_dir(share.path("")).expect("it is opened").count(), 0);
    });
}

#[test]
fn what_is_not_supported_says_so() {
    each_way("unsupported", |share| {
        let path = share.path("f");
        fs::write(&path, vec![1; 10_000]).expect("it is written");
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("it is opened");
        for mode in [FallocateFlags::empty(), FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE] {
            refused("no allocation", rustix::fs::fallocate(&file, mode, 0, 4096), Errno::OPNOTSUPP);
        }
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(5)), Ok(5), "all is data");
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(5)), Ok(10_000), "the hole is at the end");
        let copied = fs::copy(&path, share.path("copy")).expect("it is copied through memory");
        assert_eq!(copied, 10_000);
    });
}

#[test]
fn a_read_only_mount_changes_nothing() {
    if !able() {
        return;
    }
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let share = Share::new("read-only", &Way { slow: false, options });
    fails("no file", fs::write(share.path("f"), b""), Errno::ROFS);
    fails("no directory", fs::create_dir(share.path("d")), Errno::ROFS);
    assert_eq!(fs::read_dir(share.path("")).expect("it is listed").count(), 0);
}
