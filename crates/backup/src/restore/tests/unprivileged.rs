//! Restores by a user who is not root.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

#[test]
fn files_that_their_owner_may_not_read_are_restored_again() {
    if !is_root() {
        return;
    }
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    let files = [
        ("closed/file", 5, 0o000),
        ("large", 40_000, 0o000),
        ("listed", 7, 0o444),
        ("small", 9, 0o000),
        ("write", 3, 0o200),
    ];
    for (name, length, _) in files {
        folder.write(name, random(1, length));
    }
    let flags = rustix::fs::XattrFlags::empty();
    // Some file systems have no attributes.
    let _ = rustix::fs::setxattr(folder.join("listed"), "user.stele", b"value", flags);
    let modes = || files.map(|(name, _, mode)| (name, mode)).into_iter().chain([("closed", 0o300)]);
    for (name, mode) in modes() {
        std::fs::set_permissions(folder.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    let saved = save(&repository, &folder.0).unwrap();
    let target = Temporary::new();
    give(&target.0, STRANGER);
    let restored = |verify: bool| {
        let restore = || {
            let user = rustix::fs::Uid::from_raw(STRANGER);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            with(&repository, &saved, &RestoreOptions { verify, ..options(&target.0, &folder.0) }).unwrap()
        };
        std::thread::scope(|scope| scope.spawn(restore).join().unwrap())
    };
    for (verify, expected) in [(true, (5, 0)), (false, (0, 5)), (true, (0, 5))] {
        let done = restored(verify);
        assert_eq!(done.issues, [], "{verify}");
        assert_eq!((done.files, done.files_kept), expected, "{verify}");
        for (name, mode) in modes() {
            assert_eq!(target.join(name).metadata().unwrap().mode() & 0o7777, mode, "{name}");
        }
    }
}
