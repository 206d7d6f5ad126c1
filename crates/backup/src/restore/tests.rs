use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::backup::{Saved, tree_path};
use crate::repository::Repository;
use crate::store::{Folder, Store};
use crate::testing::{Temporary, picture, random, repository, restore, save};

fn options(target: &Path, within: &Path) -> Options {
    Options {
        target: target.to_owned(),
        within: tree_path(within).unwrap(),
        exclude: Filter::default(),
        include: Filter::default(),
        verify: true,
        workers: 2,
    }
}

fn with(repository: &Repository, saved: &Saved, options: &Options) -> Result<Restored> {
    let (indexed, _) = repository.index(&Default::default(), None)?;
    run(&indexed, &saved.description, options, &Progress::default())
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
    // What a killed restore leaves: a file that is missing, one of its length without its time, one that is too short.
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
    let mut options = options(&Temporary::new().0, &folder.0);
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
