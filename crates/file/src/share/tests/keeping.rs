//! Files that stay in the cache, those that come in parts, those that are committed by themselves,
//! and those that can only grow.

use stele_ground::Duration;

use super::stage::{Stage, content, file, read, settle, write};
use crate::files::Files;
use crate::share::upload::Plan;
use crate::{Caller, Changes, FileError, Inode, Moment, Removal, SetTime, Share, Stability};

const MIB: usize = 1 << 20;

async fn chmod(share: &Share, inode: Inode, mode: u32) -> crate::Result<()> {
    let changes = Changes { mode: Some(mode), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, inode, changes, None).await.map(drop)
}

async fn append(share: &Share, inode: Inode, offset: u64, data: &bytes::Bytes) -> crate::Result<()> {
    share.write(&Caller::ROOT, inode, offset, vec![data.clone()], Stability::Unstable).await.map(drop)
}

fn refused<T: std::fmt::Debug>(result: crate::Result<T>) {
    assert!(matches!(result, Err(FileError::ReadOnly(_))), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_file_longer_than_a_body_is_stored_in_parts() {
    let stage = Stage::new(1);
    let share = stage.share_with_bodies(6 << 20).await;
    let data = content(1, 20 * MIB + 12_345);
    let inode = file(&share, "long", &data).await;
    // An attempt that ended in the middle.
    let (size, metadata, tags) = (data.len() as u64, Default::default(), Default::default());
    let plan = Plan { inode: inode.0, size, metadata, tags, retention: None };
    let mut upload = share.begin_upload(plan).await.expect("an upload");
    upload.write(data.slice(..7 * MIB)).await.expect("a part");
    drop(upload);
    settle(&stage, &share).await;
    let row = share.row(inode).expect("the row");
    let archived = row.archived.expect("archived");
    let stored = share.read_archived(inode.0, &archived, 0, data.len() as u64).await.expect("the version");
    assert!(stored == data);
    let uploads = stele_archive::ListUploadsRequest {
        bucket: share.name().into(),
        limit: 10,
        ..stele_archive::ListUploadsRequest::default()
    };
    let left = stage.archive().await.list_uploads(&share.caller("testing"), uploads).await.expect("a list");
    assert_eq!(left.uploads, []);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_left_alone_is_committed() {
    let mut stage = Stage::new(2).committing();
    stage.settings.retention.commit_after = Some(Duration::from_secs(60));
    let share = stage.share().await;
    stage.pass_return(&share).await;
    let data = content(1, 10_000);
    let left = file(&share, "left", &data).await;
    let empty = file(&share, "empty", &content(1, 0)).await;
    let used = file(&share, "used", &data).await;
    let changed = file(&share, "changed", &data).await;
    let dated = file(&share, "dated", &data).await;
    let ahead = SetTime::At(Moment { seconds: 7_000_000_000, nanoseconds: 0 });
    let changes = Changes { modified: Some(ahead), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, dated, changes, None).await.expect("a modification time to come");
    share.opened(used, true).await.expect("opened");
    stage.pass(50);
    write(&share, changed, 0, &content(2, 100)).await;
    let committed = |inode| share.row(inode).expect("the row").committed.is_some();
    let rounds = async || {
        for _ in 0..5 {
            share.work().await.expect("background work");
        }
    };
    rounds().await;
    assert!(!committed(left), "before its time");
    stage.pass(11);
    rounds().await;
    assert!(committed(left) && committed(dated));
    assert_eq!(share.attributes(left).await.expect("attributes").mode & 0o222, 0);
    refused(append(&share, left, 0, &data).await);
    for inode in [empty, used, changed] {
        assert!(!committed(inode), "{inode:?}");
    }
    share.closed(used, true).await;
    stage.pass(61);
    rounds().await;
    assert!(committed(used) && committed(changed) && !committed(empty));
    refused(share.remove(&Caller::ROOT, share.root(), b"used", Removal::File).await);
    // The archive holds it under the same retention.
    drop(share);
    let share = stage.share().await;
    refused(append(&share, changed, 0, &data).await);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changes_during_a_pass_is_not_committed() {
    let mut written = 0;
    for polls in 0..120 {
        let mut stage = Stage::new(5).committing().late();
        stage.settings.retention.commit_after = Some(Duration::from_secs(60));
        let share = stage.share().await;
        stage.pass_return(&share).await;
        for name in ["first", "second"] {
            file(&share, name, &content(1, 10_000)).await;
        }
        let late = file(&share, "late", &content(2, 10_000)).await;
        stage.pass(100);
        let mut working = Box::pin(share.work());
        let mut ended = false;
        for _ in 0..polls {
            ended = ended || futures_util::poll!(working.as_mut()).is_ready();
            tokio::task::yield_now().await;
        }
        let working = async {
            if !ended {
                working.await.expect("background work");
            }
        };
        let data = content(3, 5_000);
        let (changed, ()) = tokio::join!(append(&share, late, 0, &data), working);
        let committed = share.row(late).expect("the row").committed.is_some();
        match changed {
            Ok(()) => assert!(!committed, "after {polls} polls the file was committed while it was rewritten"),
            Err(error) => assert!(committed, "after {polls} polls: {error}"),
        }
        written += u32::from(!committed);
    }
    assert!(written > 0, "the file was committed each time before it could be written");
}

#[tokio::test(start_paused = true)]
async fn an_empty_committed_file_that_regains_write_permission_can_only_grow() {
    let stage = Stage::new(3).committing();
    let share = stage.share().await;
    let log = file(&share, "log", &content(1, 0)).await;
    let late = Moment::from_nanoseconds(stage.moment().nanoseconds() + 86_400_000_000_000);
    let changes = Changes { mode: Some(0o444), accessed: Some(SetTime::At(late)), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, log, changes, None).await.expect("an empty file is committed on request");
    refused(append(&share, log, 0, &content(1, 10)).await);
    refused(chmod(&share, log, 0o400).await);
    chmod(&share, log, 0o644).await.expect("it may grow");

    let data = content(1, 30_000);
    append(&share, log, 0, &data.slice(..5_000)).await.expect("appended");
    append(&share, log, 5_000, &data.slice(5_000..20_000)).await.expect("appended");
    // A write that overtook another one.
    append(&share, log, 0, &data.slice(..5_000)).await.expect("late, and not archived yet");
    settle(&stage, &share).await;
    refused(append(&share, log, 19_999, &data).await);
    refused(share.set_attributes(&Caller::ROOT, log, Changes { size: Some(10), ..Changes::default() }, None).await);
    refused(chmod(&share, log, 0o666).await);
    refused(share.remove(&Caller::ROOT, share.root(), b"log", Removal::File).await);
    refused(share.rename(&Caller::ROOT, (share.root(), b"log"), (share.root(), b"gol")).await);
    append(&share, log, 20_000, &data.slice(20_000..)).await.expect("appended");
    settle(&stage, &share).await;
    assert!(read(&share, log).await == data);
    drop(share);
    let share = stage.share().await;
    refused(append(&share, log, 0, &content(2, 30_000)).await);
    append(&share, log, 0, &data).await.expect("it repeats what is there");
    chmod(&share, log, 0o444).await.expect("closed for good");
    refused(append(&share, log, 30_000, &data).await);
    refused(chmod(&share, log, 0o644).await);
    let until = share.row(log).expect("the row").committed.expect("committed");
    let key = crate::share::reading::key_of(log.0);
    let why = stage.archive().await.why(&share.caller("testing"), share.name(), &key, None).await.expect("why");
    assert!(why.protected, "the archive would let the content go before {until}");
    assert!(read(&share, log).await == data);
}

#[tokio::test(start_paused = true)]
async fn pinned_files_and_files_in_use_stay_in_the_cache() {
    let stage = Stage::new(4).with_cache(16 << 20);
    let share = stage.share().await;
    let (hot, pinned) = (content(1, 2 * MIB), content(2, 2 * MIB));
    let hot_inode = file(&share, "hot", &hot).await;
    let pinned_inode = file(&share, "pinned", &pinned).await;
    settle(&stage, &share).await;
    share.pin(pinned_inode).await.expect("pinned");
    let cold = |number: u64| content(100 + number, MIB);
    let mut scanned = Vec::new();
    for number in 0..30 {
        scanned.push(file(&share, &format!("cold-{number}"), &cold(number)).await);
        settle(&stage, &share).await;
        assert!(read(&share, hot_inode).await == hot);
    }
    // A scan of everything once, with the hot file in use beside it.
    for (number, inode) in scanned.iter().enumerate() {
        assert!(read(&share, *inode).await == cold(number as u64));
        assert!(read(&share, hot_inode).await == hot);
        settle(&stage, &share).await;
    }
    let missed = share.status().expect("status").missed_bytes;
    // Each first piece of a file, at least; what is read ahead is there for the others.
    assert!(missed > 15 * 100_000, "the scan was served by the cache: {missed}");
    assert!(read(&share, hot_inode).await == hot && read(&share, pinned_inode).await == pinned);
    assert_eq!(share.status().expect("status").missed_bytes, missed, "the scan drove out what is in use");

    let large = file(&share, "large", &content(3, 0)).await;
    let changes = Changes { size: Some(7 << 20), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, large, changes, None).await.expect("a hole");
    let refusal = share.pin(large).await;
    let Err(FileError::Refused(why)) = refusal else { panic!("{refusal:?}") };
    assert!(why.contains(" MiB of the cache") && why.contains("8 MiB are for them"), "{why}");
    drop(share);
    let share = stage.share().await;
    assert!(share.is_pinned(pinned_inode));
    share.unpin(pinned_inode).await.expect("unpinned");
    assert!(!share.is_pinned(pinned_inode));
}

#[tokio::test(start_paused = true)]
async fn rows_in_memory_are_bounded_by_their_bytes() {
    use crate::share::view::ROW_BYTES_MAX;
    let stage = Stage::new(6);
    let share = stage.share().await;
    let value = content(1, 60 << 10);
    let root = Caller::ROOT;
    let bytes = || share.step(|core| Ok(core.view.row_bytes())).expect("the view");
    let mut inodes = Vec::new();
    for number in 0..800 {
        let inode = file(&share, &format!("f{number}"), &content(1, 0)).await;
        let set = share.set_attribute(&root, inode, b"user.a", Some(value.clone()), None).await;
        set.expect("an extended attribute");
        inodes.push(inode);
        assert!(bytes() < ROW_BYTES_MAX + (1 << 20), "{} bytes of rows", bytes());
    }
    for inode in inodes {
        assert!(share.attribute(&root, inode, b"user.a").await.expect("its value") == value);
        assert!(bytes() < ROW_BYTES_MAX + (1 << 20), "{} bytes of rows", bytes());
    }
}
