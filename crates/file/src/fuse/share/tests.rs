//! The read-only attribute of Samba, over a tree in memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::*;
use crate::MemoryFiles;
use crate::nfs::testing::clock;
use crate::nfs::testing::gate::Gate;

const READ_ONLY: u8 = 1;

/// A value as smbd 4.17 writes it, with these bits among its attributes.
fn value(bits: u8) -> Bytes {
    let mut value = [0, 0, 5, 0, 5, 0, 0, 0, 0x11, 0, 0, 0, 0x20, 0, 0, 0, 0x27, 0xee, 0x91, 0x9f, 0x91, 0x7a, 0xdd, 1];
    value[12] |= bits;
    Bytes::copy_from_slice(&value)
}

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Vec::new() }
}

/// A share that Samba serves, and a file of the user 5.
async fn scene(mode: u32) -> (Share<Gate>, Inode) {
    let files = Arc::new(Gate::new(MemoryFiles::new(clock)));
    let root = files.root();
    let numbers = Numbers { root, dos_attributes: true };
    let opened = Opened::default();
    let (cache, read_only) = (Duration::ZERO, Arc::default());
    let share = Share { files, numbers, opened, locking: None, cache, dos_attributes: true, read_only };
    let changes = Changes { mode: Some(mode), uid: Some(5), gid: Some(5), ..Changes::default() };
    let made = share.files.create(&Caller::ROOT, root, b"a", Creation::Guarded(changes)).await;
    (share, made.expect("a file").file.inode)
}

impl Share<Gate> {
    async fn set(&self, caller: &Caller, inode: Inode, bits: u8) -> Result<()> {
        self.set_attribute(caller, inode, dos::NAME, value(bits), None).await
    }

    async fn mode(&self, inode: Inode) -> u32 {
        self.files.attributes(inode).await.expect("its attributes").mode
    }
}

#[tokio::test(start_paused = true)]
async fn samba_does_not_wait_for_a_close_that_may_wait_for_it() {
    let (share, inode) = scene(0o644).await;
    let writing = Opening::of(libc::O_RDWR);
    share.open(&user(5), inode, writing).await.expect("it is open");
    // As a share answers while the file is open for writing.
    share.files.modes_wait.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let refused = share.set(&user(5), inode, READ_ONLY).await;
    assert!(matches!(refused, Err(FileError::Retry(_))), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    // Another protocol may take its time to close the file.
    share.close(inode, true).await;
    let began = Instant::now();
    let refused = share.set(&user(5), inode, READ_ONLY).await;
    assert!(refused.is_err() && began.elapsed() >= PATIENCE, "{refused:?} after {:?}", began.elapsed());
    share.files.modes_wait.store(false, Ordering::Relaxed);
    share.set(&user(5), inode, READ_ONLY).await.expect("it is read-only");
    assert_eq!(share.mode(inode).await, 0o444);
}

/// The kernel holds writes to the file back while a call on its attributes is under way.
#[tokio::test(start_paused = true)]
async fn a_commit_does_not_hold_a_writer_up_for_long() {
    let (share, inode) = scene(0o644).await;
    share.open(&user(5), inode, Opening::of(libc::O_RDWR)).await.expect("it is open");
    share.files.modes_wait.store(true, Ordering::Relaxed);
    for (mode, is_short) in [(0o444, true), (0o640, false)] {
        let (began, changes) = (Instant::now(), Changes { mode: Some(mode), ..Changes::default() });
        let refused = share.set_attributes(&user(5), inode, changes, false).await;
        assert!(matches!(refused, Err(FileError::Retry(_))), "{refused:?}");
        assert_eq!(began.elapsed() < Duration::from_secs(5), is_short, "{mode:o} took {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn the_owner_clears_what_the_owner_set() {
    let (share, inode) = scene(0o644).await;
    share.set(&user(5), inode, READ_ONLY).await.expect("it is read-only");
    assert_eq!(share.mode(inode).await, 0o444);
    assert!(share.set(&user(6), inode, 0).await.is_err(), "another user cleared it");
    share.set(&user(5), inode, 0).await.expect("it is not read-only");
    assert_eq!(share.mode(inode).await, 0o644);
}

/// Samba repeats as root what is refused with EPERM or EACCES, where the user may write.
#[tokio::test(start_paused = true)]
async fn no_other_user_who_may_write_commits_a_file() {
    use crate::fuse::convert::errno;
    let (share, inode) = scene(0o666).await;
    let refused = share.set(&user(6), inode, READ_ONLY).await;
    assert!(matches!(refused, Err(FileError::Retry(_))), "{refused:?}");
    assert_eq!(share.mode(inode).await, 0o666);
    // Attributes that are no permission stay those of DOS.
    share.set(&user(6), inode, 2).await.expect("it is hidden");
    let before = share.files.attributes(inode).await.expect("its attributes");
    let refused = share.set_attributes(&user(6), inode, dated(LATE), false).await.expect_err("a date");
    assert_eq!(errno(&refused).code(), libc::EROFS, "{refused:?}");
    let past = share.set_attributes(&user(6), inode, dated(5), false).await.expect_err("times of another's file");
    assert_eq!(errno(&past).code(), libc::EPERM, "Samba sets it as root: {past:?}");
    assert_eq!(share.files.attributes(inode).await.expect("its attributes").accessed, before.accessed);
    share.set_attributes(&user(5), inode, dated(LATE), false).await.expect("the owner's date");
    let refused = share.set_attributes(&user(6), inode, dated(5), false).await.expect_err("a date that was set");
    assert_eq!(errno(&refused).code(), libc::EROFS, "{refused:?}");
}

/// A date beyond each clock of a test.
const LATE: i64 = 90_000_000_000;

/// Both times, as Samba sets them.
fn dated(seconds: i64) -> Changes {
    let time = |seconds| Some(SetTime::At(crate::Moment { seconds, nanoseconds: 0 }));
    Changes { accessed: time(seconds), modified: time(7), ..Changes::default() }
}

/// A share commits where mode and date come together.
#[tokio::test(start_paused = true)]
async fn a_date_behind_read_only_names_the_mode_again() {
    let (share, inode) = scene(0o644).await;
    let mode = async |changes| share.with_date(&user(5), inode, changes).await.expect("the owner's").mode;
    assert_eq!(mode(dated(LATE)).await, None, "it is not read-only");
    share.set(&user(5), inode, READ_ONLY).await.expect("it is read-only");
    assert_eq!(mode(dated(LATE)).await, Some(0o444));
    assert_eq!(mode(dated(5)).await, None, "no date to come");
    share.set_attributes(&user(5), inode, dated(LATE), false).await.expect("a date");
    assert_eq!(share.mode(inode).await, 0o444);
}

/// An empty committed file that is no more read-only can grow, and is closed by read-only.
#[tokio::test(start_paused = true)]
async fn the_share_decides_about_read_only_of_a_committed_file() {
    let (share, inode) = scene(0o444).await;
    share.files.no_change.store(true, Ordering::Relaxed);
    let hidden = share.set(&user(5), inode, READ_ONLY | 2).await;
    assert!(matches!(hidden, Err(FileError::ReadOnly(_))), "{hidden:?}");
    assert!(share.set(&user(6), inode, 0).await.is_err(), "another user cleared it");
    share.set(&user(5), inode, 0).await.expect("it can grow");
    assert_eq!(share.mode(inode).await, 0o644);
    share.set(&user(5), inode, READ_ONLY).await.expect("it is closed");
    assert_eq!(share.mode(inode).await, 0o444);
}

#[tokio::test(start_paused = true)]
async fn no_rename_replaces_a_read_only_file_over_samba() {
    let (share, inode) = scene(0o644).await;
    let root = share.files.root();
    for name in [b"b", b"c"] {
        let made = share.files.create(&Caller::ROOT, root, name, Creation::Unchecked(Changes::default())).await;
        made.expect("another file");
    }
    let rename = async |from: &[u8]| share.rename(&Caller::ROOT, (root, from), (root, b"a"), false).await;
    share.set(&user(5), inode, READ_ONLY).await.expect("it is read-only");
    assert_eq!(rename(b"b").await, Err(FileError::Denied));
    // The share decides about a committed file.
    share.files.no_change.store(true, Ordering::Relaxed);
    rename(b"b").await.expect("a share would refuse it until its time");
    share.files.no_change.store(false, Ordering::Relaxed);
    rename(b"c").await.expect("it is not read-only");
}

/// Also one that began before it was for reading only.
#[tokio::test(start_paused = true)]
async fn a_mount_that_becomes_read_only_refuses_every_change() {
    let (share, inode) = scene(0o644).await;
    let (user, root, mode) = (&user(5), share.files.root(), Changes { mode: Some(0o755), ..Changes::default() });
    let (writing, reading) = (Opening::of(libc::O_RDWR), Opening::of(libc::O_RDONLY));
    share.open(user, inode, writing).await.expect("it is open for writing");
    share.read_only.store(true, Ordering::Relaxed);
    let results = [
        share.write(inode, Some(0), Bytes::from_static(b"x"), 0, false).await,
        share.set_attributes(user, inode, mode.clone(), false).await.map(drop),
        share.open(user, inode, writing).await,
        share.open(user, inode, Opening::of(libc::O_RDONLY | libc::O_TRUNC)).await,
        share.create(&Caller::ROOT, root, b"new", 0o644, reading).await.map(drop),
        share.make_special(&Caller::ROOT, root, b"new", 0o644, Kind::Pipe).await.map(drop),
        share.make(&Caller::ROOT, root, b"new", Node::Directory, mode).await.map(drop),
        share.remove(&Caller::ROOT, root, b"a", Removal::File).await,
        share.link(&Caller::ROOT, inode, root, b"new").await.map(drop),
        share.rename(&Caller::ROOT, (root, b"a"), (root, b"new"), false).await,
        share.set_attribute(user, inode, b"user.x", Bytes::new(), None).await,
        share.set(user, inode, READ_ONLY).await,
        share.remove_attribute(user, inode, b"user.x").await,
        share.access(user, inode, libc::W_OK).await,
    ];
    for (at, result) in results.into_iter().enumerate() {
        assert!(matches!(result, Err(FileError::ReadOnly(_))), "{at}: {result:?}");
    }
    share.commit(inode).await.expect("what was written before it");
    share.access(user, inode, libc::R_OK).await.expect("reading");
    share.open(user, inode, reading).await.expect("reading");
    share.create(user, root, b"a", 0o644, reading).await.expect("what is there");
    share.read_only.store(false, Ordering::Relaxed);
    share.write(inode, Some(0), Bytes::from_static(b"x"), 0, false).await.expect("it takes changes again");
}

#[tokio::test(start_paused = true)]
async fn read_only_is_told_where_nothing_is_stored() {
    for (mode, expected) in [(0o444, true), (0o644, false)] {
        let (share, inode) = scene(mode).await;
        let found = share.attribute(&user(5), inode, dos::NAME).await;
        assert_eq!(found.as_deref().is_ok_and(|value| value[12] & READ_ONLY != 0), expected, "{mode:o}: {found:?}");
        let other = share.attribute(&user(5), inode, b"user.other").await;
        assert!(matches!(other, Err(FileError::NoAttribute)), "{other:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn samba_may_remove_a_committed_file_after_its_time() {
    for (committed, state, expected) in
        [(true, "locked", true), (true, "archived", false), (false, "archived", true), (false, "open", true)]
    {
        let (share, inode) = scene(0o644).await;
        let told = share.files.set_attribute(&Caller::ROOT, inode, STATE, Some(state.into()), None).await;
        told.expect("the tree in memory takes any attribute");
        share.set(&user(5), inode, READ_ONLY).await.expect("it is read-only");
        share.files.no_change.store(committed, Ordering::Relaxed);
        let found = share.attribute(&user(5), inode, dos::NAME).await.expect("a value");
        assert_eq!(found[12] & READ_ONLY != 0, expected, "{committed}, {state}");
    }
}
