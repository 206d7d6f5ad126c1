//! Uploads in parts that do not come to their end: the archive keeps none of their parts.

use std::sync::Arc;

use futures_util::poll;
use stele_archive::{BucketChange, ListUploadsRequest, NewUpload, Quota};

use super::stage::{NAME, Stage, content, file, settle, write};
use crate::files::Files;
use crate::share::reading::key_of;
use crate::share::upload::Plan;
use crate::{Caller, Changes, FileError, Inode, Removal, Share};

const MIB: usize = 1 << 20;

async fn share(stage: &Stage) -> Arc<Share> {
    stage.share_with_bodies(6 << 20).await
}

/// The keys of uploads that the archive has.
async fn uploads(stage: &Stage) -> Vec<String> {
    let request = ListUploadsRequest { bucket: NAME.into(), limit: 100, ..ListUploadsRequest::default() };
    let caller = stele_archive::Caller::gateway("testing");
    let page = stage.archive().await.list_uploads(&caller, request).await.expect("a list");
    page.uploads.into_iter().map(|upload| upload.key).collect()
}

/// Begins to store a file, and does not go on.
async fn begin(share: &Share, inode: Inode, data: &bytes::Bytes) {
    let (size, metadata, tags) = (data.len() as u64, Default::default(), Default::default());
    let plan = Plan { inode: inode.0, size, metadata, tags, retention: None };
    let mut upload = share.begin_upload(plan).await.expect("an upload");
    upload.write(data.slice(..7 * MIB)).await.expect("a part");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_removed_while_it_is_stored_leaves_no_parts() {
    let stage = Stage::new(1).late();
    let share = share(&stage).await;
    let inode = file(&share, "long", &content(1, 20 * MIB)).await;
    let mut storing = Box::pin(share.archive_now(inode));
    while uploads(&stage).await.is_empty() {
        assert!(poll!(storing.as_mut()).is_pending(), "it was stored without an upload");
        tokio::task::yield_now().await;
    }
    // Both go on: the removal waits for the archive's lock of the key, which each step of the
    // upload takes for a moment.
    let root = Caller::ROOT;
    let (stored, removed) = tokio::join!(storing, share.remove(&root, share.root(), b"long", Removal::File));
    removed.expect("removed");
    assert_eq!(stored, Err(FileError::Stale));
    assert_eq!(uploads(&stage).await, [""; 0]);
    settle(&stage, &share).await;
    assert_eq!(share.status().expect("status").removing, 0);
}

#[tokio::test(start_paused = true)]
async fn parts_that_an_attempt_left_behind_go_with_the_next_round() {
    for shrinks in [false, true] {
        let stage = Stage::new(2);
        let share = share(&stage).await;
        let data = content(1, 20 * MIB);
        let inode = file(&share, "long", &data).await;
        begin(&share, inode, &data).await;
        assert_eq!(uploads(&stage).await, [key_of(inode.0)]);
        match shrinks {
            // Its next version is one body.
            true => {
                let changes = Changes { size: Some(1000), ..Changes::default() };
                share.set_attributes(&Caller::ROOT, inode, changes, None).await.expect("truncated");
            }
            false => {
                share.remove(&Caller::ROOT, share.root(), b"long", Removal::File).await.expect("removed");
            }
        }
        settle(&stage, &share).await;
        assert_eq!(uploads(&stage).await, [""; 0], "it shrinks: {shrinks}");
    }
}

#[tokio::test(start_paused = true)]
async fn parts_that_a_crash_left_behind_go_after_the_start() {
    let mut stage = Stage::new(3);
    let before = share(&stage).await;
    let data = content(1, 20 * MIB);
    let (gone, there) = (file(&before, "gone", &data).await, file(&before, "there", &data).await);
    let caller = stele_archive::Caller::gateway("testing");
    let client = NewUpload { bucket: NAME.into(), key: "/by-s3".into(), ..NewUpload::default() };
    stage.archive().await.create_upload(&caller, client).await.expect("a client's upload");
    begin(&before, gone, &data).await;
    begin(&before, there, &data).await;
    assert_eq!(uploads(&stage).await.len(), 3);
    // The row is gone before the parts are.
    before.remove(&Caller::ROOT, before.root(), b"gone", Removal::File).await.expect("removed");
    before.forget_orphan(gone.0).await.expect("cleared");
    drop(before);
    stage.reopen().await;
    let share = share(&stage).await;
    share.room_round().await.expect("a round");
    assert_eq!(uploads(&stage).await, ["/by-s3"]);
    settle(&stage, &share).await;
    assert!(share.state(there).expect("a state").version.is_some());
    assert_eq!(uploads(&stage).await, ["/by-s3"]);
}

#[tokio::test(start_paused = true)]
async fn long_files_leave_places_to_others() {
    let stage = Stage::new(4);
    let share = share(&stage).await;
    let mut gates = Vec::new();
    for number in 0..36 {
        let long = file(&share, &format!("long-{number}"), &content(1, 0)).await;
        let changes = Changes { size: Some(7 << 20), ..Changes::default() };
        share.set_attributes(&Caller::ROOT, long, changes, None).await.expect("a hole");
        // Its upload does not come to an end.
        let gate = share.step(|core| Ok(std::sync::Arc::clone(&core.content(long.0)?.1.gate))).expect("the gate");
        gates.push(gate.read_owned().await);
    }
    stage.pass(11);
    let mut archiving = Box::pin(share.archive_round());
    for _ in 0..100 {
        assert!(poll!(archiving.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    let short = file(&share, "short", &content(2, 10_000)).await;
    stage.pass(11);
    for _ in 0..100 {
        share.room_round().await.expect("a round");
        assert!(poll!(archiving.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    assert!(share.state(short).expect("a state").version.is_some(), "long files keep others from being archived");
}

/// In parts, a file needs the room of two while it takes the place of its former version. The quota
/// judges the outcome.
#[tokio::test(start_paused = true)]
async fn a_quota_judges_a_file_in_parts_as_one_body() {
    let stage = Stage::new(4);
    let share = share(&stage).await;
    let admin = stele_archive::Caller::local(0);
    let quota = async |mib: u64| {
        let quota = Quota { bytes: Some(mib << 20), versions: None };
        stage.archive().await.change_bucket(&admin, NAME, BucketChange::Quota(quota)).await.expect("a quota");
    };
    let used = async || {
        let usage = stage.archive().await.usage(&admin, NAME).await.expect("the counts");
        (usage.bytes >> 20, usage.unfinished >> 20)
    };
    quota(25).await;
    let inode = file(&share, "long", &content(1, 20 * MIB)).await;
    settle(&stage, &share).await;
    write(&share, inode, 0, &content(2, 20 * MIB)).await;
    settle(&stage, &share).await;
    assert!(!share.row(inode).expect("the row").open, "its second version is archived");
    assert_eq!(used().await, (20, 0));
    // What the quota has no room for is refused like one body, and leaves nothing behind.
    let larger = file(&share, "larger", &content(3, 12 * MIB)).await;
    let smaller = file(&share, "smaller", &content(4, 4 * MIB)).await;
    for _ in 0..3 {
        assert_eq!(share.archive_now(larger).await, Err(FileError::OverQuota));
        assert_eq!((used().await, uploads(&stage).await), ((20, 0), Vec::new()));
    }
    share.archive_now(smaller).await.expect("a file that fits");
    quota(36).await;
    settle(&stage, &share).await;
    assert!(!share.row(larger).expect("the row").open, "it is archived once there is room");
    assert_eq!(used().await, (36, 0));
}
