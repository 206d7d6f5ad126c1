//! What others see and do while a transaction is not durable yet.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::poll;
use stele_archive::{DeleteRequest, Expected, PutRequest, ShareObjects, VersionId, WriteCondition};
use stele_ground::Duration;

use super::objects::View;
use super::stage::{NAME, Stage, content, file, read, settle, write};
use crate::files::Files;
use crate::share::Share;
use crate::share::reading::key_of;
use crate::{Caller, Changes, Creation, FileError, Inode, Moment, Removal, SetTime, Stability};

fn mode(mode: u32) -> Changes {
    Changes { mode: Some(mode), ..Changes::default() }
}

fn accessed(seconds: i64) -> Changes {
    Changes { accessed: Some(SetTime::At(Moment { seconds, nanoseconds: 0 })), ..Changes::default() }
}

/// Lets a call go on until it waits for a transaction.
pub async fn until_it_commits<F: Future>(stage: &Stage, mut call: Pin<&mut F>) {
    let before = stage.held.waiting();
    for _ in 0..1000 {
        assert!(poll!(call.as_mut()).is_pending(), "the call ended without a transaction");
        if stage.held.waiting() > before {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the call never comes to its transaction");
}

/// An archived file whose content is in the cache.
async fn archived(stage: &Stage, share: &Share) -> Inode {
    let inode = file(share, "a", &content(1, 64 << 10)).await;
    settle(stage, share).await;
    assert!(share.state(inode).unwrap().version.is_some());
    inode
}

#[tokio::test(start_paused = true)]
async fn no_block_of_an_archived_file_changes_before_it_is_open_durably() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    let inode = archived(&stage, &share).await;
    let root = Caller::ROOT;
    stage.held.hold();
    let block = |seed| vec![content(seed, 4096)];
    let mut first = Box::pin(share.write(&root, inode, 0, block(2), Stability::Unstable));
    assert!(poll!(first.as_mut()).is_pending());
    let mut second = Box::pin(share.write(&root, inode, 8192, block(3), Stability::Unstable));
    assert!(poll!(second.as_mut()).is_pending(), "a block was written before the file was open");
    // The transaction fails: the second write begins anew, and marks the file itself.
    stage.held.refuse();
    assert_eq!(first.await.map(drop), Err(FileError::NoSpace));
    second.await.unwrap();
    assert!(share.row(inode).unwrap().open);
    share.commit(inode).await.unwrap();
    settle(&stage, &share).await;
    let mut expected = content(1, 64 << 10).to_vec();
    expected[8192..8192 + 4096].copy_from_slice(&content(3, 4096));
    assert!(read(&share, inode).await == expected);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_went_away_leaves_no_file_that_only_looks_open() {
    let stage = Stage::new(2);
    let share = stage.share().await;
    let inode = archived(&stage, &share).await;
    let root = Caller::ROOT;
    stage.held.hold();
    let block = |seed| vec![content(seed, 4096)];
    let mut first = Box::pin(share.write(&root, inode, 0, block(2), Stability::Unstable));
    assert!(poll!(first.as_mut()).is_pending());
    drop(first);
    let mut second = Box::pin(share.write(&root, inode, 8192, block(3), Stability::Unstable));
    assert!(poll!(second.as_mut()).is_pending(), "a block was written before the file was open");
    stage.held.release().await;
    second.await.unwrap();
    assert!(share.row(inode).unwrap().open);
}

#[tokio::test(start_paused = true)]
async fn the_change_counter_never_falls_while_writes_are_saved() {
    let stage = Stage::new(3);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 64 << 10)).await;
    let root = Caller::ROOT;
    let mut seen = share.attributes(inode).await.unwrap();
    for round in 0..3_u64 {
        let offset = (64 << 10) + round * 4096;
        stage.held.hold();
        let mut writing = Box::pin(share.write(&root, inode, offset, vec![content(round, 4096)], Stability::File));
        until_it_commits(&stage, writing.as_mut()).await;
        let during = share.attributes(inode).await.unwrap();
        assert_eq!((during.change, during.used), (seen.change + 1, seen.used + 4096), "while it is saved");
        stage.held.release().await;
        writing.await.unwrap();
        let after = share.attributes(inode).await.unwrap();
        assert_eq!((after.change, after.used, after.size), (during.change, during.used, during.size));
        seen = after;
    }
}

#[tokio::test(start_paused = true)]
async fn a_save_of_which_no_one_waits_for_the_answer_counts_once() {
    let stage = Stage::new(4);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 64 << 10)).await;
    let root = Caller::ROOT;
    stage.held.hold();
    let mut writing = Box::pin(share.write(&root, inode, 64 << 10, vec![content(2, 4096)], Stability::File));
    until_it_commits(&stage, writing.as_mut()).await;
    let during = share.attributes(inode).await.unwrap();
    drop(writing);
    stage.held.release().await;
    share.commit(inode).await.unwrap();
    let after = share.attributes(inode).await.unwrap();
    assert_eq!((after.change, after.used, after.size), (during.change, during.used, during.size));
}

#[tokio::test(start_paused = true)]
async fn an_object_over_a_file_counts_the_writes_that_clients_saw() {
    let view = View::new(Stage::new(5)).await;
    let inode = file(&view.share, "a", &content(1, 64 << 10)).await;
    let mut seen = vec![view.share.attributes(inode).await.unwrap().change];
    for round in 0..3 {
        write(&view.share, inode, round * 4096, &content(round, 4096)).await;
        seen.push(view.share.attributes(inode).await.unwrap().change);
    }
    view.put("a", &content(9, 10_000)).await.unwrap();
    seen.push(view.share.attributes(inode).await.unwrap().change);
    assert!(seen.is_sorted_by(|before, after| before < after), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_date_that_is_set_while_a_file_is_committed_is_not_undone() {
    const LATER: i64 = 4_000_000_000;
    let mut stage = Stage::new(6).committing();
    stage.settings.retention.commit_after = Some(Duration::from_secs(60));
    let share = stage.share().await;
    stage.pass_return(&share).await;
    let inode = file(&share, "a", &content(1, 64 << 10)).await;
    let root = Caller::ROOT;
    stage.pass(61);
    stage.held.hold();
    let mut working = Box::pin(share.commit_round());
    until_it_commits(&stage, working.as_mut()).await;
    let mut setting = Box::pin(share.set_attributes(&root, inode, accessed(LATER), None));
    until_it_commits(&stage, setting.as_mut()).await;
    stage.held.release().await;
    setting.await.unwrap();
    working.await.unwrap();
    let about = share.attributes(inode).await.unwrap();
    assert_eq!(about.accessed.seconds, LATER, "an acknowledged date is gone");
    share.commit_round().await.unwrap();
    share.set_attributes(&root, inode, mode(0o444), None).await.unwrap();
    let until = share.state(inode).unwrap().committed.unwrap();
    assert_eq!(until.0 / 1000, LATER as u64);
}

#[tokio::test(start_paused = true)]
async fn no_one_opens_a_file_for_writing_while_it_is_committed() {
    let stage = Stage::new(7).committing();
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 64 << 10)).await;
    let root = Caller::ROOT;
    stage.held.hold();
    let mut committing = Box::pin(share.set_attributes(&root, inode, mode(0o444), None));
    until_it_commits(&stage, committing.as_mut()).await;
    assert!(matches!(share.opened(inode, true).await, Err(FileError::Retry(_))));
    share.opened(inode, false).await.unwrap();
    stage.held.release().await;
    committing.await.unwrap();
    assert!(share.state(inode).unwrap().committed.is_some());
    share.opened(inode, true).await.unwrap();
}

/// Archives a file up to the transaction that names the version, which waits.
pub async fn until_named<F: Future>(stage: &Stage, share: &Share, inode: Inode, mut archiving: Pin<&mut F>) {
    stage.held.hold();
    for _ in 0..1000 {
        assert!(poll!(archiving.as_mut()).is_pending());
        if !share.row(inode).unwrap().open {
            return;
        }
        stage.held.release_one().await;
        tokio::task::yield_now().await;
    }
    panic!("archiving never comes to its transaction");
}

/// Archives a file up to the transaction, which fails while no one waits for it.
async fn archived_in_vain(stage: &Stage, share: &Share, inode: Inode) {
    let mut archiving = Box::pin(share.archive_now(inode));
    until_named(stage, share, inode, archiving.as_mut()).await;
    drop(archiving);
    stage.held.refuse();
}

#[tokio::test(start_paused = true)]
async fn eviction_takes_no_content_whose_archiving_failed() {
    let stage = Stage::new(8);
    let share = stage.share().await;
    let data = content(1, 64 << 10);
    let inode = file(&share, "a", &data).await;
    archived_in_vain(&stage, &share, inode).await;
    let evicted = share.evict_file(inode.0).await;
    assert_eq!(evicted, Ok(false));
    assert!(read(&share, inode).await == data, "the one copy of the content is gone");
}

async fn versions(stage: &Stage) -> u64 {
    let caller = stele_archive::Caller::local(0);
    stage.archive().await.usage(&caller, NAME).await.unwrap().versions
}

#[tokio::test(start_paused = true)]
async fn no_version_is_stored_without_the_row_that_names_it() {
    let stage = Stage::new(10);
    // As one body, and in parts.
    for length in [64 << 10, 8 << 20] {
        let share = stage.share_with_bodies(6 << 20).await;
        let inode = file(&share, &length.to_string(), &content(1, length)).await;
        archived_in_vain(&stage, &share, inode).await;
        drop(share);
        let share = stage.share_with_bodies(6 << 20).await;
        assert_eq!(versions(&stage).await, 0);
        assert!(share.row(inode).unwrap().open);
        share.remove(&Caller::ROOT, share.root(), length.to_string().as_bytes(), Removal::File).await.unwrap();
        settle(&stage, &share).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_file_takes_a_version_with_it_that_no_row_names() {
    let stage = Stage::new(9);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 64 << 10)).await;
    // As an earlier server left it in a crash.
    let caller = stele_archive::Caller::gateway("testing");
    let request = PutRequest { bucket: NAME.into(), key: key_of(inode.0), length: Some(0), ..PutRequest::default() };
    let writer = stage.archive().await.put(&caller, request).await.unwrap();
    writer.finish(Expected::default()).await.unwrap();
    drop(share);
    let share = stage.share().await;
    assert_eq!(share.row(inode).unwrap().archived, None);
    assert_eq!(versions(&stage).await, 1);
    share.remove(&Caller::ROOT, share.root(), b"a", Removal::File).await.unwrap();
    settle(&stage, &share).await;
    assert_eq!(versions(&stage).await, 0, "a rebuild of the catalog would bring the file back");
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_finds_a_file_is_answered_once_that_is_durable() {
    let stage = Stage::new(10);
    let share = stage.share().await;
    let root = Caller::ROOT;
    stage.held.hold();
    let create = || share.create(&root, share.root(), b"a", Creation::Exclusive([7; 8]));
    let mut first = Box::pin(create());
    until_it_commits(&stage, first.as_mut()).await;
    let mut second = Box::pin(create());
    for _ in 0..10 {
        assert!(poll!(second.as_mut()).is_pending(), "a file is answered for that a power cut takes back");
    }
    stage.held.refuse();
    assert_eq!(first.await.map(drop), Err(FileError::NoSpace));
    let made = second.await;
    match made {
        Ok(entry) => assert_eq!(share.lookup(&root, share.root(), b"a").await.unwrap(), entry.file),
        Err(error) => assert_eq!(error, FileError::NoSpace),
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_changes_with_one_guard_one_takes_place() {
    for size in [None, Some(10)] {
        let stage = Stage::new(11);
        let share = stage.share().await;
        let inode = file(&share, "a", &content(1, 64 << 10)).await;
        let root = Caller::ROOT;
        let guard = Some(share.attributes(inode).await.unwrap().changed);
        let changes = |mode| Changes { size, mode: Some(mode), ..Changes::default() };
        stage.held.hold();
        let mut first = Box::pin(share.set_attributes(&root, inode, changes(0o600), guard));
        let mut second = Box::pin(share.set_attributes(&root, inode, changes(0o640), guard));
        let both = async { tokio::join!(first.as_mut(), second.as_mut()) };
        let mut both = Box::pin(both);
        for _ in 0..10 {
            assert!(poll!(both.as_mut()).is_pending());
        }
        stage.held.release().await;
        let (first, second) = both.await;
        let answers = [first.map(drop), second.map(drop)];
        assert!(answers.contains(&Ok(())) && answers.contains(&Err(FileError::NotSynchronized)), "{answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn attributes_before_a_write_are_those_of_its_moment() {
    let stage = Stage::new(12);
    let share = stage.share().await;
    let inode = archived(&stage, &share).await;
    let root = Caller::ROOT;
    stage.held.hold();
    let block = |seed| vec![content(seed, 4096)];
    let mut first = Box::pin(share.write(&root, inode, 0, block(2), Stability::Unstable));
    until_it_commits(&stage, first.as_mut()).await;
    // Another client's change comes in between.
    let changes = Changes { uid: Some(7), ..Changes::default() };
    let mut between = Box::pin(share.set_attributes(&root, inode, changes, None));
    until_it_commits(&stage, between.as_mut()).await;
    stage.held.release().await;
    let between = between.await.unwrap();
    let (first, _) = first.await.unwrap();
    assert_eq!(first.before, between.after);
}

#[tokio::test(start_paused = true)]
async fn a_long_upload_keeps_no_room_from_writers_and_no_commit_back() {
    let mut stage = Stage::new(13).committing().with_cache(16 << 20);
    stage.settings.retention.commit_after = Some(Duration::from_secs(60));
    let share = stage.share().await;
    stage.pass_return(&share).await;
    let clean = file(&share, "clean", &content(1, 13 << 20)).await;
    settle(&stage, &share).await;
    let long = file(&share, "long", &content(2, 1 << 20)).await;
    stage.pass(61);
    // Its upload does not come to an end.
    let gate = share.step(|core| Ok(std::sync::Arc::clone(&core.content(long.0)?.1.gate))).unwrap();
    let held = gate.read_owned().await;
    let mut archiving = Box::pin(share.archive_round());
    for _ in 0..100 {
        assert!(poll!(archiving.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    let data: Bytes = content(3, 4 << 20);
    let root = Caller::ROOT;
    let how = Creation::Unchecked(mode(0o644));
    let other = share.create(&root, share.root(), b"other", how).await.unwrap().file.inode;
    let mut writing = Box::pin(share.write(&root, other, 0, vec![data.clone()], Stability::Unstable));
    let mut rounds = 0;
    while poll!(writing.as_mut()).is_pending() {
        rounds += 1;
        assert!(rounds < 10, "the writer waits for the upload of another file");
        share.room_round().await.unwrap();
    }
    // A file that becomes idle meanwhile is archived beside it.
    stage.pass(11);
    for _ in 0..100 {
        share.room_round().await.unwrap();
        assert!(poll!(archiving.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    assert!(share.state(other).unwrap().version.is_some(), "a long upload keeps others from being archived");
    drop(held);
    archiving.await.unwrap();
    assert!(share.state(long).unwrap().version.is_some() && share.state(clean).unwrap().committed.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_long_upload_that_begins_amid_a_round_keeps_no_later_file_back() {
    let stage = Stage::new(15);
    let share = stage.share_with_bodies(6 << 20).await;
    let hold = async |inode: Inode| {
        let gate = share.step(|core| Ok(std::sync::Arc::clone(&core.content(inode.0)?.1.gate))).unwrap();
        gate.read_owned().await
    };
    let first = file(&share, "first", &content(1, 1 << 20)).await;
    let of_first = hold(first).await;
    stage.pass(11);
    let mut archiving = Box::pin(share.archive_round());
    assert!(poll!(archiving.as_mut()).is_pending());
    let long = file(&share, "long", &content(2, 7 << 20)).await;
    let of_long = hold(long).await;
    stage.pass(11);
    let mut go_on = async || {
        for _ in 0..300 {
            share.room_round().await.unwrap();
            assert!(poll!(archiving.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    };
    go_on().await;
    assert!(share.uploads.lock().unwrap().is_under_way(long.0));
    // Of the files that the round began with, none is left.
    drop(of_first);
    go_on().await;
    assert!(share.state(first).unwrap().version.is_some());
    let later = file(&share, "later", &content(3, 1 << 20)).await;
    stage.pass(11);
    go_on().await;
    assert!(share.state(later).unwrap().version.is_some(), "it waits for the long upload");
    drop(of_long);
    archiving.await.unwrap();
    assert!(share.state(long).unwrap().version.is_some());
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_former_version_never_enter_the_cache_as_those_of_the_next() {
    let stage = Stage::new(14);
    let share = stage.share().await;
    let inode = archived(&stage, &share).await;
    // A slow read of the first version.
    let (row, epoch) = (share.row(inode).unwrap(), share.epoch(inode.0).unwrap());
    let former = share.read_archived(inode.0, &row.archived.unwrap(), 0, 64 << 10).await.unwrap();
    write(&share, inode, 0, &content(2, 64 << 10)).await;
    share.commit(inode).await.unwrap();
    let mut archiving = Box::pin(share.archive_now(inode));
    until_named(&stage, &share, inode, archiving.as_mut()).await;
    // Its caller goes away, and the transaction takes place.
    drop(archiving);
    stage.held.release().await;
    share.commit(inode).await.unwrap();
    while share.evict_file(inode.0).await.unwrap() {}
    share.keep(inode.0, epoch, 0, &former).await.unwrap();
    assert!(read(&share, inode).await == content(2, 64 << 10), "the file shows its former content");
}

#[tokio::test(start_paused = true)]
async fn a_failure_hides_no_transaction_whose_outcome_is_unknown() {
    for abandoned_first in [true, false] {
        let stage = Stage::new(16);
        let share = stage.share().await;
        let inode = file(&share, "a", &content(1, 64 << 10)).await;
        let root = Caller::ROOT;
        let mut archiving = Box::pin(share.archive_now(inode));
        until_named(&stage, &share, inode, archiving.as_mut()).await;
        assert_eq!(stage.held.waiting(), 1, "the row's transaction");
        let how = Creation::Unchecked(mode(0o644));
        let mut creating = Box::pin(share.create(&root, share.root(), b"x", how));
        until_it_commits(&stage, creating.as_mut()).await;
        // The archiving's caller goes away, and the creation fails, in either order.
        if abandoned_first {
            drop(archiving);
            stage.held.refuse_last();
            assert_eq!(creating.await.map(drop), Err(FileError::NoSpace));
        } else {
            stage.held.refuse_last();
            assert_eq!(creating.await.map(drop), Err(FileError::NoSpace));
            drop(archiving);
        }
        // Looked at before the row's transaction takes effect.
        share.attributes(inode).await.unwrap();
        stage.held.release().await;
        write(&share, inode, 0, &content(2, 8192)).await;
        share.commit(inode).await.unwrap();
        while share.evict_file(inode.0).await.unwrap() {}
        assert!(read(&share, inode).await[..8192] == content(2, 8192), "an acknowledged write is gone");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_abandoned_behind_a_barrier_waits_for_another_one() {
    let stage = Stage::new(17);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 100)).await;
    let root = Caller::ROOT;
    stage.held.hold();
    share.locked().view.abandon();
    let mut changing = Box::pin(share.set_attributes(&root, inode, mode(0o600), None));
    until_it_commits(&stage, changing.as_mut()).await;
    share.locked().view.abandon();
    stage.held.release_one().await;
    until_it_commits(&stage, changing.as_mut()).await;
    assert!(share.locked().view.is_stale(), "the first barrier says nothing of what came behind it");
    stage.held.release().await;
    changing.await.unwrap();
    assert!(!share.locked().view.is_stale());
}

#[tokio::test(start_paused = true)]
async fn an_object_is_archived_also_where_its_client_goes_away() {
    let view = View::new(Stage::new(18)).await;
    let stage = &view.stage;
    let deleted = file(&view.share, "deleted", &content(1, 64 << 10)).await;
    let stored = file(&view.share, "stored", &content(2, 64 << 10)).await;
    let request = DeleteRequest {
        bucket: NAME.into(),
        key: "deleted".into(),
        version: Some(VersionId::Null),
        ..DeleteRequest::default()
    };
    let present = WriteCondition { etag: Some("*".into()), ..WriteCondition::default() };
    let data = content(3, 10);
    stage.held.hold();
    let mut deleting = Box::pin(view.objects.delete(&view.client, request));
    until_it_commits(stage, deleting.as_mut()).await;
    let mut storing = Box::pin(view.put_if("stored", &data, present));
    until_it_commits(stage, storing.as_mut()).await;
    drop((deleting, storing));
    stage.held.release().await;
    for inode in [deleted, stored] {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(view.share.state(inode).unwrap().version.is_some(), "archiving ended amid its steps");
    }
}

#[tokio::test(start_paused = true)]
async fn a_truncation_of_which_no_one_waits_for_the_answer_takes_the_content_with_it() {
    let stage = Stage::new(11);
    let share = stage.share().await;
    let data = content(1, 64 << 10);
    let inode = file(&share, "a", &data).await;
    let sized = |size| Changes { size: Some(size), ..Changes::default() };
    let root = Caller::ROOT;
    let mut cutting = Box::pin(share.set_attributes(&root, inode, sized(4096), None));
    stage.held.hold();
    for _ in 0..1000 {
        assert!(poll!(cutting.as_mut()).is_pending());
        if share.row(inode).unwrap().size == 4096 {
            break;
        }
        stage.held.release_one().await;
        tokio::task::yield_now().await;
    }
    assert_eq!(share.row(inode).unwrap().size, 4096);
    drop(cutting);
    stage.held.release().await;
    let end = content(2, 4096);
    write(&share, inode, 60 << 10, &end).await;
    let mut expected = data.to_vec();
    expected[4096..60 << 10].fill(0);
    expected[60 << 10..].copy_from_slice(&end);
    assert!(read(&share, inode).await == expected, "what was cut off is back");
}
