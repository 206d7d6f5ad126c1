//! Versions of removed files go where the share says so, and none goes while the archive keeps one.

use futures_util::poll;
use stele_archive::{
    Caller as Client, DeleteRequest, Expected, ListVersionsRequest, ObjectInfo, PutRequest, Retention, RetentionMode,
    Timestamp, VersionName,
};

use super::bucket_rules::chmod;
use super::stage::{NAME, Stage, content, file, read, settle, write};
use crate::files::{Files, Removal};
use crate::share::reading::key_of;
use crate::share::{RemovedVersions, Settings};
use crate::{Caller, Changes, Creation, Inode, Share, Stability};

const DAY: u64 = 86_400;

/// A share with Object Lock that deletes the versions of removed files.
fn deleting(seed: u64) -> Stage {
    let mut stage = Stage::new(seed).committing();
    stage.settings.removed_versions = RemovedVersions::Delete;
    stage
}

async fn versions(stage: &Stage) -> Vec<ObjectInfo> {
    let request = ListVersionsRequest { bucket: NAME.into(), limit: 1000, ..ListVersionsRequest::default() };
    stage.archive().await.list_versions(&Client::gateway("testing"), request).await.expect("a listing").versions
}

/// A file of so many versions.
async fn versioned(stage: &Stage, share: &Share, name: &str, count: u64) -> Inode {
    let inode = file(share, name, &content(1, 100_000)).await;
    settle(stage, share).await;
    for seed in 1..count {
        write(share, inode, 0, &content(seed, 5_000)).await;
        settle(stage, share).await;
    }
    inode
}

async fn remove(share: &Share, name: &str) {
    share.remove(&Caller::ROOT, share.root(), name.as_bytes(), Removal::File).await.expect("a removal");
}

/// Background work for a while, whether it finds something to do or not.
async fn work_for(stage: &Stage, share: &Share, seconds: u64) {
    for _ in 0..seconds {
        stage.pass(1);
        share.work().await.expect("background work");
    }
}

async fn put_in_matter(stage: &Stage, object: &ObjectInfo, on: bool) {
    let archive = stage.archive().await;
    let named = VersionName { bucket: NAME.into(), key: object.key.clone(), version: Some(object.version) };
    let listed = archive.hold_listed(&Client::local(0), "case", vec![named], on).await.expect("a list");
    assert!(listed.iter().all(|listed| listed.failure.is_none()));
}

#[tokio::test(start_paused = true)]
async fn versions_of_a_removed_file_go_after_their_retention() {
    let stage = deleting(1);
    let share = stage.share().await;
    let inode = versioned(&stage, &share, "ledger", 5).await;
    chmod(&share, inode, 0o444).await.expect("a commit");
    assert!(versions(&stage).await.len() >= 5);
    for _ in 0..11 {
        stage.pass(DAY);
        stage.archive().await.step().await.expect("a step of the archive");
    }
    remove(&share, "ledger").await;
    settle(&stage, &share).await;
    assert_eq!(versions(&stage).await, []);
    let usage = stage.archive().await.usage(&Client::local(0), NAME).await.expect("the counts");
    assert_eq!((usage.versions, usage.bytes), (0, 0));
    assert!(share.close_if_empty().expect("an empty share"));
}

#[tokio::test(start_paused = true)]
async fn a_removed_file_stays_while_a_former_version_is_kept() {
    let stage = deleting(2);
    let share = stage.share().await;
    versioned(&stage, &share, "ledger", 4).await;
    let stored = versions(&stage).await;
    let archive = stage.archive().await;
    archive.open_matter(&Client::local(0), "case", "a lawsuit").await.expect("a matter");
    remove(&share, "ledger").await;
    put_in_matter(&stage, &stored[2], true).await;
    work_for(&stage, &share, 30).await;
    let kept = versions(&stage).await;
    assert!(kept[0].delete_marker, "a rebuild of the catalog would bring the file back");
    let ids = |versions: &[ObjectInfo]| versions.iter().map(|version| version.version).collect::<Vec<_>>();
    assert_eq!(ids(&kept[1..]), ids(&stored));
    let status = share.status().expect("a status");
    assert_eq!((status.removing, status.cache_used), (1, 0), "its slots are free");
    put_in_matter(&stage, &stored[2], false).await;
    work_for(&stage, &share, 30).await;
    assert_eq!(versions(&stage).await.len(), 5, "it is tried again each hour, not at once");
    stage.pass(3600);
    work_for(&stage, &share, 5).await;
    assert_eq!(versions(&stage).await, []);
    assert_eq!(share.status().expect("a status").removing, 0);
}

#[tokio::test(start_paused = true)]
async fn versions_that_were_kept_before_go_with_the_setting() {
    let mut stage = deleting(3);
    stage.settings.removed_versions = RemovedVersions::Keep;
    let share = stage.share().await;
    for name in ["gone", "held", "stays"] {
        versioned(&stage, &share, name, 3).await;
    }
    let stored = versions(&stage).await;
    remove(&share, "gone").await;
    remove(&share, "held").await;
    work_for(&stage, &share, 20).await;
    assert_eq!(versions(&stage).await.len(), 9 + 2, "each removed file has a delete marker above its versions");
    let held =
        stored.iter().filter(|version| version.key != stored[0].key).nth(1).expect("a version of the second file");
    stage.archive().await.open_matter(&Client::local(0), "case", "a lawsuit").await.expect("a matter");
    put_in_matter(&stage, held, true).await;

    share.set_settings(Settings { removed_versions: RemovedVersions::Delete, ..share.settings() });
    work_for(&stage, &share, 20).await;
    assert_eq!(versions(&stage).await.len(), 3 + 1 + 3, "the held file has its versions and its marker");
    put_in_matter(&stage, held, false).await;
    stage.pass(DAY);
    work_for(&stage, &share, 20).await;
    let left = versions(&stage).await;
    let inode = share.resolve("stays").expect("the file");
    assert_eq!(left, stored.into_iter().filter(|version| version.key == key_of(inode.0)).collect::<Vec<_>>());
    assert_eq!(read(&share, inode).await.len(), 100_000);
}

#[tokio::test(start_paused = true)]
async fn leftovers_that_are_retained_or_not_hidden_stay() {
    let mut stage = deleting(4);
    stage.bucket.default_retention = None;
    let share = stage.share().await;
    let (archive, gateway) = (stage.archive().await, Client::gateway("testing"));
    let until = Timestamp::from_secs(1_800_000_000 + 5 * DAY);
    let mode = RetentionMode::Governance;
    // Files that have no record: the first is retained, and the second has no marker.
    for (number, retention) in [(5_000, Some(Retention { mode, until })), (6_000, None)] {
        let request = PutRequest { bucket: NAME.into(), key: key_of(number), retention, ..PutRequest::default() };
        let mut writer = archive.put(&gateway, request).await.expect("a put");
        writer.write(content(1, 1000)).await.expect("a write");
        writer.finish(Expected::default()).await.expect("a version");
    }
    let request = DeleteRequest { bucket: NAME.into(), key: key_of(5_000), ..DeleteRequest::default() };
    archive.delete(&gateway, request).await.expect("a marker");
    let stored = versions(&stage).await;
    assert_eq!(stored.len(), 3);
    work_for(&stage, &share, 20).await;
    share.clear_all().await.expect("a pass");
    assert_eq!(versions(&stage).await, stored);
    for _ in 0..6 {
        stage.pass(DAY);
        archive.step().await.expect("a step of the archive");
    }
    share.clear_all().await.expect("a pass");
    assert_eq!(versions(&stage).await, stored[2..], "what lies open is of no removed file");
}

#[tokio::test(start_paused = true)]
async fn a_removed_file_of_many_versions_keeps_no_writer_waiting() {
    let mut stage = deleting(5).with_cache(16 << 20);
    stage.bucket.default_retention = None;
    let share = stage.share().await;
    let log = versioned(&stage, &share, "log", 12).await;
    let left = async || versions(&stage).await.iter().filter(|version| version.key == key_of(log.0)).count();
    for number in 0..15 {
        file(&share, &format!("f{number}"), &content(number, 1 << 20)).await;
    }
    while share.status().expect("a status").open > 0 {
        stage.pass(11);
        share.archive_round().await.expect("a round");
    }
    assert!(share.is_nearly_full() && left().await == 12);
    remove(&share, "log").await;
    let (root, how) = (Caller::ROOT, Creation::Unchecked(Changes::default()));
    let other = share.create(&root, share.root(), b"other", how).await.expect("a file").file.inode;
    let data = vec![content(2, 2 << 20)];
    let mut writing = Box::pin(share.write(&root, other, 0, data, Stability::Unstable));
    assert!(poll!(writing.as_mut()).is_pending(), "the cache has room");
    stage.held.hold();
    let mut round = Box::pin(share.room_round());
    loop {
        assert!(poll!(round.as_mut()).is_pending());
        if poll!(writing.as_mut()).is_ready() {
            break;
        }
        assert_eq!(left().await, 12, "the writer waits for the versions of a removed file");
        stage.held.release_one().await;
        tokio::task::yield_now().await;
    }
    stage.held.release().await;
    let worked = round.await.expect("a round");
    assert!(worked.more && left().await == 12 + 1 - 4, "a round deletes a part of them, behind a marker");
    assert_eq!(share.status().expect("a status").removing, 1);
    settle(&stage, &share).await;
    assert_eq!((left().await, share.status().expect("a status").removing), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn many_versions_that_were_kept_before_go_in_parts() {
    let mut stage = deleting(6);
    stage.bucket.default_retention = None;
    stage.settings.removed_versions = RemovedVersions::Keep;
    let share = stage.share().await;
    versioned(&stage, &share, "log", 12).await;
    remove(&share, "log").await;
    settle(&stage, &share).await;
    assert_eq!(versions(&stage).await.len(), 12 + 1);
    share.set_settings(Settings { removed_versions: RemovedVersions::Delete, ..share.settings() });
    share.room_round().await.expect("a round");
    assert_eq!(versions(&stage).await.len(), 12 + 1 - 4);
    work_for(&stage, &share, 10).await;
    assert_eq!(versions(&stage).await, []);
}
