use super::*;
use crate::backup::BackupProgress;
use crate::backup::tests::job;
use crate::packer::Packer;
use crate::testing::{Temporary, options, repository};

#[test]
fn the_top_on_one_file_system_is_more_than_its_names() {
    let (repository, _) = repository(1);
    let mut options = options(Path::new("/"));
    options.one_file_system = true;
    let paths = roots(&["/usr", "/", "/etc"].map(PathBuf::from)).unwrap();
    assert_eq!(paths, [b""], "a path within another one is saved with that one");
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let (progress, packer) = (BackupProgress::default(), Packer::new(indexed.clone(), 1, None));
    let job = job(&indexed, &options, &progress, &packer);
    let is_below = |item: &Item| match item {
        Item::Ready { depth, .. } | Item::Read { depth, .. } | Item::Span { depth, .. } => *depth > 0,
    };
    let walked = walk(&job, &paths, None, &mut |batch| match batch.iter().any(is_below) {
        true => Err(BackupError::Stopped),
        false => Ok(()),
    });
    assert!(matches!(walked, Err(BackupError::Stopped)), "{walked:?}");
}

#[test]
fn a_path_within_another_one_stays_on_its_own_file_system() {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &str| Path::new(path).metadata().map(|is| is.dev()).ok();
    // Nearly every system has a file system of its own there.
    let path = PathBuf::from(format!("/dev/shm/stele-scan-{}", std::process::id()));
    if device("/dev") == device("/dev/shm") || std::fs::create_dir(&path).is_err() {
        return;
    }
    let folder = Temporary(path);
    folder.write("named/first", b"x");
    folder.write("second", b"x");
    let (repository, _) = repository(1);
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let found = |paths: &[&Path], one_file_system: bool| {
        let mut options = options(Path::new("/"));
        options.paths = paths.iter().map(|path| path.to_path_buf()).collect();
        options.one_file_system = one_file_system;
        let (progress, packer) = (BackupProgress::default(), Packer::new(indexed.clone(), 1, None));
        let job = job(&indexed, &options, &progress, &packer);
        let roots = roots(&options.paths).unwrap();
        assert_eq!(roots, [b"dev"]);
        let mut names = Vec::new();
        walk(&job, &roots, None, &mut |batch| {
            names.extend(batch.into_iter().map(|item| match item {
                Item::Ready { entry, .. } => entry.name,
                Item::Read { file, .. } | Item::Span { file, .. } => file.name,
            }));
            Ok(())
        })
        .unwrap();
        [b"first".as_slice(), b"second"].map(|name| names.iter().any(|found| found == name))
    };
    let (top, named) = (Path::new("/dev"), folder.join("named"));
    assert_eq!(found(&[top], true), [false, false]);
    assert_eq!(found(&[top, &named], true), [true, false]);
    assert_eq!(found(&[top, &folder.0], true), [true, true]);
    assert_eq!(found(&[top], false), [true, true]);
}

#[test]
fn a_slash_behind_a_link_means_the_directory_that_it_leads_to() {
    let folder = Temporary::new();
    folder.write("data/file", b"content");
    std::os::unix::fs::symlink("data", folder.join("link")).unwrap();
    let check = |path: &str, expected: &str| {
        let path = folder.join(path);
        let expected = folder.join(expected);
        let expected = expected.as_os_str().as_bytes().strip_prefix(b"/").unwrap();
        assert_eq!(roots(std::slice::from_ref(&path)).unwrap(), [expected], "{}", path.display());
    };
    for (path, expected) in [
        ("link", "link"),
        ("link/", "data"),
        ("link//", "data"),
        ("link/.", "data"),
        ("data/", "data"),
        ("link/file", "data/file"),
    ] {
        check(path, expected);
    }
    // A slash behind a file is a mistake.
    assert!(roots(&[folder.join("data/file/")]).is_err());
}

#[test]
fn a_walk_keeps_few_directories_open_ahead_of_the_readers() {
    let folder = Temporary::new();
    for number in 0..60 {
        folder.write(&format!("{number}/first"), b"x");
        folder.write(&format!("{number}/second"), b"x");
    }
    let (repository, _) = repository(1);
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let options = options(&folder.0);
    let (progress, packer) = (BackupProgress::default(), Packer::new(indexed.clone(), 1, None));
    let job = job(&indexed, &options, &progress, &packer);
    let mut batches = Vec::new();
    walk(&job, &roots(&options.paths).unwrap(), None, &mut |batch| {
        batches.push(batch);
        Ok(())
    })
    .unwrap();
    let mut files = 0;
    for batch in &batches {
        let mut folders: Vec<&DirectoryHandle> = batch.iter().filter_map(Item::folder).collect();
        files += folders.len();
        folders.dedup_by(|a, b| Arc::ptr_eq(a, b));
        assert!(folders.len() <= BATCH_FOLDERS, "{} directories of a batch are open", folders.len());
    }
    assert_eq!(files, 120);
    assert!(batches.len() < 40, "{} batches for 60 directories", batches.len());
}

#[test]
fn a_path_below_a_directory_that_may_only_be_entered_is_saved() {
    // Root may list every directory.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = Temporary::new();
    folder.write("homes/own/file", b"x");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(folder.join("homes"), mode).unwrap();
    let (repository, _) = repository(1);
    let saved = std::thread::scope(|scope| {
        let save = || {
            let user = rustix::fs::Uid::from_raw(12_345);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            crate::testing::save(&repository, &folder.join("homes/own"))
        };
        scope.spawn(save).join().unwrap().unwrap()
    });
    let is = saved.description;
    assert_eq!((is.counts.files, is.issues.as_slice()), (1, [].as_slice()));
}

#[test]
fn a_path_that_is_named_is_saved_although_it_is_marked() {
    let folder = Temporary::new();
    for name in [".nobackup", "file", "below/.nobackup", "below/file"] {
        folder.write(name, b"x");
    }
    let (repository, _) = repository(1);
    let mut options = options(&folder.0);
    options.exclude_if_present = vec![".nobackup".into()];
    let source = crate::backup::Source::Files;
    let saved = crate::backup::run(&repository, source, &options, &BackupProgress::default()).unwrap();
    assert_eq!(saved.description.counts.files, 2);
}
