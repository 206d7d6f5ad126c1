mod torn;
mod unprivileged;

use std::os::unix::fs::symlink;
use std::path::Path;

use super::place::Present;
use super::*;
use crate::backup::{Saved, tree_path};
use crate::repository::Repository;
use crate::store::{Folder, Store};
use crate::testing::{Temporary, foreign_keys, picture, random, repository, restore, save};

fn options(target: &Path, within: &Path) -> RestoreOptions {
    RestoreOptions {
        target: target.to_owned(),
        within: tree_path(within).unwrap(),
        exclude: Filter::default(),
        include: Filter::default(),
        verify: true,
        workers: 2,
    }
}

fn with(repository: &Repository, saved: &Saved, options: &RestoreOptions) -> Result<Restored> {
    let (indexed, _) = repository.index(&Default::default(), None)?;
    run(&indexed, &saved.description, options, &RestoreProgress::default())
}

fn data() -> Temporary {
    let folder = Temporary::new();
    for number in 0..20 {
        folder.write(&format!("data/{}/{number}", number % 3), random(number, number as usize * 1000));
    }
    folder
}

#[test]
fn a_restore_goes_on_where_it_was_interrupted() {
    let (repository, _) = repository(1);
    let folder = data();
    let saved = save(&repository, &folder.0).unwrap();
    let target = Temporary::new();
    let first = restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!((first.files, first.files_kept), (20, 0));
    // What a killed restore leaves: a file that is missing, one of its length without its time, one
    // that is too short.
    std::fs::remove_file(target.join("data/1/19")).unwrap();
    let partial = std::fs::File::options().write(true).open(target.join("data/0/18")).unwrap();
    partial.set_modified(std::time::UNIX_EPOCH).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&partial, &[0; 500], 0).unwrap();
    std::fs::write(target.join("data/2/17"), b"short").unwrap();
    let second = restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!((second.files, second.files_kept), (3, 17));
    assert_eq!(picture(&target.0), picture(&folder.0));
}

#[test]
fn content_that_only_a_comparison_finds_is_restored_with_verify() {
    let (repository, _) = repository(1);
    let folder = data();
    let saved = save(&repository, &folder.0).unwrap();
    let target = Temporary::new();
    restore(&repository, &saved, &folder.0, &target.0).unwrap();
    // The same size and time, another content.
    let path = target.join("data/1/10");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"other", 77).unwrap();
    file.set_modified(modified).unwrap();
    assert_eq!(restore(&repository, &saved, &folder.0, &target.0).unwrap().files, 0);
    assert_ne!(picture(&target.0), picture(&folder.0));
    let done = with(&repository, &saved, &options(&target.0, &folder.0)).unwrap();
    assert_eq!((done.files, done.problems), (1, 0));
    assert_eq!(picture(&target.0), picture(&folder.0));
}

#[test]
fn nothing_outside_of_the_target_is_written() {
    let (repository, _) = repository(1);
    let folder = data();
    let saved = save(&repository, &folder.0).unwrap();
    let (target, outside) = (Temporary::new(), Temporary::new());
    std::fs::create_dir(target.join("data")).unwrap();
    symlink(&outside.0, target.join("data/1")).unwrap();
    outside.write("victim", b"victim");
    std::fs::create_dir(target.join("data/0")).unwrap();
    symlink(outside.join("victim"), target.join("data/0/18")).unwrap();
    let done = restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert!(done.problems >= 7, "{:?}", done.issues);
    assert_eq!(picture(&outside.0).len(), 1);
    assert_eq!(std::fs::read(outside.join("victim")).unwrap(), b"victim");
    // The link in place of a file is replaced, not followed.
    assert_eq!(std::fs::read(target.join("data/0/18")).unwrap(), random(18, 18_000));
}

#[test]
fn a_part_of_a_snapshot_is_selected_by_path_and_pattern() {
    let (repository, _) = repository(1);
    let folder = data();
    let saved = save(&repository, &folder.0).unwrap();
    let check = |within: &str, include: &[&str], exclude: &[&str], expected: &[&str]| {
        let target = Temporary::new();
        let mut options = options(&target.0, &folder.join(within));
        include.iter().for_each(|pattern| options.include.add(pattern, false).unwrap());
        exclude.iter().for_each(|pattern| options.exclude.add(pattern, false).unwrap());
        with(&repository, &saved, &options).unwrap();
        let names: Vec<String> =
            picture(&target.0).iter().map(|line| line.split('"').nth(1).unwrap().to_owned()).collect();
        assert_eq!(names, expected, "{within} {include:?} {exclude:?}");
    };
    check("data/1", &[], &["1?"], &["1", "4", "7"]);
    check("data/1/13", &[], &[], &["13"]);
    check("data", &[], &["[0-9]", "1?"], &[]);
    check("data/2", &["[25]"], &[], &["11", "14", "17", "2", "5", "8"]);
    check("data/0", &["1[25]"], &[], &["12", "15"]);
    check("data", &["1[25]", "/**/data/1/7"], &["15"], &["0", "0/12", "1", "1/7"]);
    check("data", &[], &["0", "2"], &["1", "1/1", "1/10", "1/13", "1/16", "1/19", "1/4", "1/7"]);
    // Patterns that select nothing are no success.
    let target = Temporary::new();
    let mut nothing = options(&target.0, &folder.join("data"));
    nothing.include.add("*.conf", false).unwrap();
    assert!(matches!(with(&repository, &saved, &nothing), Err(BackupError::Missing(_))));
    let mut options = options(&target.0, &folder.0);
    options.within.extend_from_slice(b"/none");
    assert!(matches!(with(&repository, &saved, &options), Err(BackupError::Missing(_))));
}

#[test]
fn files_with_damage_are_named_and_the_rest_is_restored() {
    let (repository, store) = repository(1);
    let folder = data();
    let saved = save(&repository, &folder.0).unwrap();
    let segments = store.names(Folder::Segments);
    let mut lost = 0;
    for name in &segments {
        let whole = store.get(name, 1 << 20).unwrap();
        let at = crate::segment::HEADER_BYTES + 100;
        assert!(store.damage(name, |bytes| bytes[at] ^= 1));
        let target = Temporary::new();
        let done = restore(&repository, &saved, &folder.0, &target.0);
        if let Ok(done) = &done {
            lost += done.problems;
            assert_eq!(done.problems as usize, done.issues.len());
            // Whatever is not named is whole.
            let (is, was) = (picture(&target.0), picture(&folder.0));
            let named =
                |line: &&String| done.issues.iter().any(|issue| line.contains(&*String::from_utf8_lossy(&issue.path)));
            assert!(
                was.iter().filter(|line| !named(line) && !line.contains("directory")).all(|line| is.contains(line))
            );
        }
        assert!(store.damage(name, |bytes| *bytes = whole));
    }
    assert!(lost > 3, "{lost}");
}

/// Whether the tests run as root. Only root gives files to others, and has to distrust them.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

const STRANGER: u32 = 12_345;

fn give(path: &Path, user: u32) {
    std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
}

/// Plants a file of the same length and time as `of`.
fn plant(path: &Path, of: &Path, user: u32) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, vec![b'!'; of.metadata().unwrap().len() as usize]).unwrap();
    std::fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(of.metadata().unwrap().modified().unwrap())
        .unwrap();
    give(path, user);
}

#[test]
fn a_file_that_another_user_planted_is_not_taken_for_restored() {
    if !is_root() {
        return;
    }
    let (repository, _) = repository(1);
    let folder = data();
    // A file that gives the rights of its owner, who is no root.
    give(&folder.join("data/2/14"), STRANGER + 1);
    std::fs::set_permissions(folder.join("data/2/14"), std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    let saved = save(&repository, &folder.0).unwrap();
    let target = Temporary::new();
    plant(&target.join("data/0/18"), &folder.join("data/0/18"), STRANGER);
    plant(&target.join("data/2/14"), &folder.join("data/2/14"), STRANGER + 1);
    // One of root with a second name, from a directory of another user.
    plant(&target.join("data/1/19"), &folder.join("data/1/19"), 0);
    std::fs::hard_link(target.join("data/1/19"), target.join("data/1/second")).unwrap();
    let done = restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!((done.files_kept, done.problems), (0, 0), "{:?}", done.issues);
    std::fs::remove_file(target.join("data/1/second")).unwrap();
    let without_times = |line: &String| !line.contains("\"data/1\"");
    let pictures = [&target, &folder].map(|of| picture(&of.0).into_iter().filter(without_times).collect::<Vec<_>>());
    assert_eq!(pictures[0], pictures[1]);
}

#[test]
fn a_directory_of_another_user_is_closed_until_it_is_restored() {
    if !is_root() {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let folder = Temporary::new();
    let target = Target::open(&folder.0).unwrap();
    let check = |owner: u32, snapshot: u32, expected: (u32, u32)| {
        let path = folder.join("directory");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        give(&path, owner);
        target.make_directory(b"directory", &Metadata { user: snapshot, ..Metadata::default() }).unwrap();
        let is = path.metadata().unwrap();
        assert_eq!((is.uid(), is.mode() & 0o777), expected, "{owner} {snapshot}");
        std::fs::remove_dir(&path).unwrap();
    };
    check(STRANGER, 0, (0, 0o700));
    check(STRANGER, STRANGER + 1, (0, 0o700));
    check(STRANGER, STRANGER, (STRANGER, 0o777));
    check(0, STRANGER, (0, 0o777));
}

#[test]
fn a_file_that_was_exchanged_meanwhile_is_not_touched() {
    let folder = Temporary::new();
    let target = Target::open(&folder.0).unwrap();
    let is = Metadata { mode: 0o4755, ..Metadata::default() };
    let made = target.make_file(b"file", 100).unwrap();
    target.write_at(b"file", made, b"content", 0).unwrap();
    let path = folder.join("file");
    // Another file, a pipe without a reader, and a symbolic link out of the target.
    let outside = Temporary::new();
    let victim = outside.write("victim", b"victim");
    let before = picture(&outside.0);
    let exchanges: [&dyn Fn(); 3] = [
        &|| std::fs::write(&path, b"planted").unwrap(),
        &|| {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        },
        &|| symlink(&victim, &path).unwrap(),
    ];
    // The inode stays in use, or the file system gives its number to the next file.
    std::fs::rename(&path, folder.join("aside")).unwrap();
    for exchange in exchanges {
        exchange();
        let planted = picture(&folder.0);
        assert!(target.write_at(b"file", made, b"content", 0).is_err());
        assert!(target.set_attributes_at(b"file", made, &is).is_err());
        assert!(target.set_times_at(b"file", made, &is).is_err());
        assert!(target.finish_directory(b"file", made, &is).is_err());
        assert_eq!((picture(&folder.0), picture(&outside.0)), (planted, before.clone()));
        std::fs::remove_file(&path).unwrap();
    }
    let (directory, _) = target.make_directory(b"directory", &is).unwrap();
    std::fs::rename(folder.join("directory"), folder.join("elsewhere")).unwrap();
    std::fs::create_dir(folder.join("directory")).unwrap();
    assert!(target.finish_directory(b"directory", directory, &is).is_err());
}

#[test]
fn a_file_of_another_owner_under_the_same_inode_is_not_touched() {
    if !is_root() {
        return;
    }
    let folder = Temporary::new();
    let target = Target::open(&folder.0).unwrap();
    let is = Metadata { mode: 0o4755, ..Metadata::default() };
    let path = folder.join("file");
    let refuses = |known| {
        let planted = picture(&folder.0);
        assert!(target.write_at(b"file", known, b"content", 0).is_err());
        assert!(target.set_attributes_at(b"file", known, &is).is_err());
        assert_eq!(picture(&folder.0), planted);
    };
    let made = target.make_file(b"file", 100).unwrap();
    // The file system gave the inode of the removed file to that of another user.
    give(&path, STRANGER);
    refuses(made);
    give(&path, 0);
    std::fs::hard_link(&path, folder.join("second")).unwrap();
    refuses(made);
    std::fs::remove_file(folder.join("second")).unwrap();
    // The same of a file that an earlier restore completed.
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let Ok(Present::Complete(found)) = target.present(b"file", 100, &is) else { panic!("it is complete") };
    give(&path, STRANGER);
    refuses(found);
    give(&path, 0);
    target.write_at(b"file", made, b"content", 0).unwrap();
    assert_eq!(target.set_attributes_at(b"file", made, &is).unwrap().len(), 0);
}

#[test]
fn files_have_their_times_only_when_they_are_on_the_drive() {
    let (repository, _) = repository(1);
    let folder = data();
    folder.write("data/empty", b"");
    let saved = save(&repository, &folder.0).unwrap();
    let target = Temporary::new();
    let mut options = options(&target.0, &folder.0);
    options.verify = false;
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let run = |syncs: u32| {
        let opened = Target::open(&target.0).unwrap();
        opened.syncs_left.store(syncs, Ordering::Relaxed);
        run_in(opened, &indexed, &saved.description, &options, &RestoreProgress::default())
    };
    assert!(matches!(run(0), Err(BackupError::Failed(_))));
    let opened = Target::open(&target.0).unwrap();
    let is = Metadata::default();
    assert!(matches!(opened.present(b"data/0/18", 18_000, &is), Ok(Present::SameSize(_))), "the content is written");
    // Nothing that may be lost in a power cut passes for complete.
    assert!(matches!(run(0), Err(BackupError::Failed(_))));
    assert!(matches!(run(1), Err(BackupError::Failed(_))), "the last sync failed, and the restore ended well");
    let last = run(2).unwrap();
    assert_eq!((last.files, last.files_kept), (0, 21));
    assert_eq!(picture(&target.0), picture(&folder.0));
}

#[test]
fn what_cannot_be_set_is_listed_and_the_rest_is_set() {
    use std::os::unix::fs::MetadataExt;
    if !is_root() {
        return;
    }
    let (repository, _) = repository(1);
    let folder = data();
    let path = folder.join("data/0/18");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o6751)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, "trusted.stele", b"value", flags).is_err() {
        return;
    }
    let saved = save(&repository, &folder.0).unwrap();
    let target = Temporary::new();
    give(&target.0, STRANGER);
    // A user who is not root may set neither owner nor attribute, and must not have the file with
    // rights of its owner.
    let done = std::thread::scope(|scope| {
        let restore = || {
            let user = rustix::fs::Uid::from_raw(STRANGER);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            restore(&repository, &saved, &folder.0, &target.0)
        };
        scope.spawn(restore).join().unwrap().unwrap()
    });
    assert_eq!(done.problems, 1, "{:?}", done.issues);
    assert!(done.issues[0].text.contains("trusted.stele"), "{:?}", done.issues);
    let (is, was) = (target.join("data/0/18").metadata().unwrap(), path.metadata().unwrap());
    assert_eq!((is.mode() & 0o7777, is.uid()), (0o751, STRANGER));
    assert_eq!((is.mtime(), is.mtime_nsec()), (was.mtime(), was.mtime_nsec()));
}

#[test]
fn a_bad_sector_costs_the_file_with_that_chunk_alone() {
    let (repository, store) = repository(1);
    let folder = data();
    let saved = save(&repository, &folder.0).unwrap();
    let content = |name: &&crate::store::Name| {
        let footer = crate::segment::Footer::decode(&store.get(name, 1 << 20).unwrap()).unwrap();
        footer.kind == crate::crypt::Kind::Content && footer.entries.len() > 4
    };
    let names = store.names(Folder::Segments);
    let name = names.iter().find(content).unwrap();
    let at = crate::segment::HEADER_BYTES as u64 + 20;
    store.set_unreadable(name, at..at + 1);
    let target = Temporary::new();
    let done = restore(&repository, &saved, &folder.0, &target.0).unwrap();
    assert_eq!(done.problems, 1, "{:?}", done.issues);
    let (is, was) = (picture(&target.0), picture(&folder.0));
    assert_eq!(was.iter().filter(|line| !is.contains(line)).count(), 1);
}

#[test]
fn files_that_had_one_inode_in_turn_are_not_joined() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    let (old, new) = (random(1, 9000), random(2, 9000));
    // In the order of the tree: two names of the old file, two of the new one.
    for (name, content) in [("a", &old), ("b", &old), ("c", &new), ("d", &new)] {
        let file = std::fs::File::open(folder.write(name, content)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let saved = save(&repository, &folder.0).unwrap();
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let (target, progress) = (Temporary::new(), RestoreProgress::default());
    let options = RestoreOptions { verify: false, ..options(&target.0, &folder.0) };
    let opened = Target::open(&target.0).unwrap();
    let (indexed, options, progress) = (&indexed, &options, &progress);
    let (issues, complete, written) = Default::default();
    let job = Job { indexed, options, progress, target: opened, issues, complete, written };
    let mut restore = Restore::new(&job);
    let mut walk = Walk::new(indexed, &saved.description, &options.within);
    while let Some(found) = walk.step().unwrap() {
        // The file system gave the inode of the old file, when it was removed, to the new one.
        let Choice::Restored(mut found) = choose(options, found) else { continue };
        (found.entry.metadata.device, found.entry.metadata.inode, found.entry.metadata.links) = (1, 5, 2);
        restore.entry(found).unwrap();
    }
    restore.flush().unwrap();
    restore.finish().unwrap();
    use std::os::unix::fs::MetadataExt;
    let is = |name: &str| (std::fs::read(target.join(name)).unwrap(), target.join(name).metadata().unwrap().ino());
    let (a, b, c, d) = (is("a"), is("b"), is("c"), is("d"));
    assert!(a == b && c == d && a.1 != c.1);
    assert!(a.0 == old && c.0 == new);
    let issues: Vec<Vec<u8>> = lock(&job.issues).1.iter().map(|issue| issue.path.clone()).collect();
    assert_eq!(issues, [b"c".to_vec()]);
}

#[test]
fn a_comparison_goes_on_behind_a_damaged_part_of_the_tree() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    // Links with long targets make a tree of several chunks.
    let long = "x".repeat(3900);
    (0..900).for_each(|number| symlink(&long, folder.join(&format!("{number:03}"))).unwrap());
    let saved = save(&repository, &folder.0).unwrap();
    let mut compared = 0;
    for name in store.names(Folder::Segments) {
        let whole = store.get(&name, 1 << 20).unwrap();
        assert!(store.damage(&name, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1));
        if let Ok(Restored { problems: 1.., .. }) = restore(&repository, &saved, &folder.0, &Temporary::new().0) {
            let target = Temporary::new();
            let done = with(&repository, &saved, &options(&target.0, &folder.0)).unwrap();
            assert!(done.problems > 0 && done.others > 100, "{done:?}");
            compared += 1;
        }
        assert!(store.damage(&name, |bytes| *bytes = whole));
    }
    assert!(compared > 0);
}

#[test]
fn a_path_whose_part_of_the_tree_is_lost_is_damaged_and_not_missing() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("data", "x");
    let saved = save(&repository, &folder.0).unwrap();
    folder.write("absent", "y");
    let restored = || restore(&repository, &saved, &folder.join("absent"), &Temporary::new().0);
    assert!(matches!(restored(), Err(BackupError::Missing(_))));
    for name in store.names(Folder::Segments) {
        store.damage(&name, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1);
    }
    let error = restored().map(|restored| restored.files).expect_err("its part of the tree is lost");
    assert!(matches!(&error, BackupError::Damaged(text) if text.contains("is lost")), "{error:?}");
}

#[test]
fn planted_segments_take_no_chunk_from_a_restore() {
    for authentic in [false, true] {
        let (repository, store) = repository(1);
        let folder = data();
        let saved = save(&repository, &folder.0).unwrap();
        let foreign = foreign_keys();
        // In the same second as the good ones, and listed before them.
        crate::testing::plant(&repository, &store, if authentic { &repository.keys } else { &foreign });
        let target = Temporary::new();
        let done = restore(&repository, &saved, &folder.0, &target.0).unwrap();
        assert_eq!(done.issues, [], "authentic: {authentic}");
        assert_eq!(picture(&target.0), picture(&folder.0), "authentic: {authentic}");
    }
}

#[test]
fn a_second_copy_of_a_chunk_serves_when_the_first_is_damaged() {
    let (repository, store) = repository(1);
    let folder = data();
    let saved = save(&repository, &folder.0).unwrap();
    // Another agent stored the same chunks at the same time.
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let first = store.names(Folder::Segments);
    for name in &first {
        let bytes = store.get(name, 1 << 20).unwrap();
        let footer = crate::segment::Footer::decode(&bytes).unwrap();
        let mut writer =
            crate::segment::SegmentWriter::new(&repository.keys, footer.kind, repository.salt(), Vec::new());
        for entry in &footer.entries {
            let content = indexed.chunk(footer.kind, &entry.id).unwrap();
            let mut compressor = crate::compress::Compressor::new(1).unwrap();
            writer.add(&crate::segment::Prepared::new(entry.id, &content, &mut compressor).unwrap()).unwrap();
        }
        let full = writer.finish();
        store.create(&crate::store::Name::segment(&full.id), &full.bytes).unwrap();
    }
    let damages: [&dyn Fn(&crate::store::Name); 3] = [
        &|name| assert!(store.damage(name, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1)),
        &|name| store.set_unreadable(name, 0..u64::MAX),
        &|name| store.remove(name).unwrap(),
    ];
    for (turn, damage) in damages.into_iter().enumerate() {
        // Behind the load of the index.
        let (indexed, _) = repository.index(&Default::default(), None).unwrap();
        first.iter().skip(turn).step_by(3).for_each(damage);
        let target = Temporary::new();
        let mut options = options(&target.0, &folder.0);
        options.verify = false;
        let done = run(&indexed, &saved.description, &options, &RestoreProgress::default()).unwrap();
        assert_eq!(done.issues, [], "{turn}");
        assert_eq!(picture(&target.0), picture(&folder.0), "{turn}");
    }
}

#[test]
fn a_file_stays_until_there_is_content_for_it() {
    let folder = Temporary::new();
    folder.write("data/small", random(1, 200));
    folder.write("data/large", random(2, 40_000));
    std::fs::hard_link(folder.join("data/large"), folder.join("data/second")).unwrap();
    for is_gone in [false, true] {
        let (repository, store) = repository(1);
        let saved = save(&repository, &folder.0).unwrap();
        for name in store.names(Folder::Segments) {
            let footer = crate::segment::Footer::decode(&store.get(&name, 1 << 20).unwrap()).unwrap();
            let change = |bytes: &mut Vec<u8>| footer.entries.iter().for_each(|is| bytes[is.offset as usize] ^= 1);
            match footer.kind {
                crate::crypt::Kind::Tree => {}
                crate::crypt::Kind::Content if is_gone => store.remove(&name).unwrap(),
                crate::crypt::Kind::Content => assert!(store.damage(&name, change)),
            }
        }
        let target = Temporary::new();
        target.write("data/small", b"mine");
        target.write("data/large", b"mine");
        target.write("data/second", b"mine");
        let done = restore(&repository, &saved, &folder.0, &target.0).unwrap();
        assert_eq!(done.problems, 3, "{is_gone}: {:?}", done.issues);
        assert_eq!(done.issues[2].path, b"data/second", "{is_gone}: {:?}", done.issues);
        for name in ["data/small", "data/large", "data/second"] {
            assert_eq!(std::fs::read(target.join(name)).unwrap(), b"mine", "{is_gone} {name}");
        }
    }
}

#[test]
fn a_file_stays_until_a_link_or_node_can_take_its_place() {
    let folder = Temporary::new();
    let target = Target::open(&folder.0).unwrap();
    let is = Metadata { mode: 0o600, ..Metadata::default() };
    let (path, set) = (folder.write("second", b"mine"), target.write_whole(b"first", b"whole", &is).unwrap());
    let known = target.set_times_at(b"first", set.0, &is).unwrap();
    std::fs::rename(folder.join("first"), folder.join("aside")).unwrap();
    folder.write("first", b"exchanged");
    let before = picture(&folder.0);
    assert!(target.link(b"first", known, b"second").is_err());
    let node = |content| Entry { name: b"second".to_vec(), metadata: is.clone(), content };
    // A name that no directory entry can have, and a device that only root may make.
    assert!(target.make_other(b"second", &node(Content::Symlink(vec![b'x'; 5000]))).is_err());
    if is_root() {
        give(&folder.0, STRANGER);
        std::thread::scope(|scope| {
            let make = || {
                let user = rustix::fs::Uid::from_raw(STRANGER);
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                assert!(target.make_other(b"second", &node(Content::CharacterDevice(259))).is_err());
            };
            scope.spawn(make).join().unwrap();
        });
    }
    assert_eq!(picture(&folder.0), before);
    target.link(b"aside", known, b"second").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    target.make_other(b"second", &node(Content::Symlink(b"to".to_vec()))).unwrap();
    assert_eq!(std::fs::read_link(&path).unwrap(), Path::new("to"));
    assert_eq!(picture(&folder.0).len(), 3, "a temporary name stays");
}

#[test]
fn a_further_name_that_is_there_counts_as_kept() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    let first = folder.write("data/first", b"content");
    std::fs::hard_link(first, folder.join("data/second")).unwrap();
    let saved = save(&repository, &folder.0).unwrap();
    let target = Temporary::new();
    for expected in [(2, 0), (0, 2)] {
        let done = restore(&repository, &saved, &folder.0, &target.0).unwrap();
        assert_eq!((done.files, done.files_kept), expected);
    }
}

#[test]
fn a_piece_takes_the_memory_that_is_stated() {
    // SEMANTICS/backup.md: 48 bytes for a piece, and 72 in a restore.
    assert!(size_of::<crate::tree::Piece>() <= 48);
    assert!(size_of::<crate::tree::Piece>() + size_of::<Planned>() <= 72);
}
