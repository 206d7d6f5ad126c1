//! What others are answered while the transaction is under way that lets a file's row name a new
//! version: the row shows the version at once, and the archive once the transaction is durable.

use futures_util::poll;
use stele_archive::{ArchiveError, DeleteRequest, ETag, ListRequest, ShareObjects};

use super::held::{until_it_commits, until_named};
use super::objects::View;
use super::stage::{NAME, Stage, content, file, read, settle, write};
use crate::files::Files;
use crate::{Caller, Changes, FileError};

const LENGTH: usize = 64 << 10;

async fn listed(view: &View) -> (u64, ETag) {
    let request = ListRequest { bucket: NAME.into(), limit: 10, ..Default::default() };
    let page = view.objects.list(&view.client, request).await.unwrap();
    (page.objects[0].size, page.objects[0].etag)
}

#[tokio::test(start_paused = true)]
async fn an_object_is_answered_once_the_archive_shows_what_its_row_names() {
    // Its first version, and one after another.
    for (seed, former) in [(1, None), (2, Some(content(1, 10)))] {
        let view = View::new(Stage::new(seed)).await;
        let (stage, data) = (&view.stage, content(2, LENGTH));
        if let Some(former) = former {
            view.put("a", &former).await.unwrap();
        } else {
            file(&view.share, "a", &content(3, 10)).await;
        }
        let inode = view.find("a").unwrap();
        write(&view.share, inode, 0, &data).await;
        view.share.commit(inode).await.unwrap();
        let mut archiving = Box::pin(view.share.archive_now(inode));
        until_named(stage, &view.share, inode, archiving.as_mut()).await;
        let mut again = Box::pin(view.share.archive_now(inode));
        let mut getting = Box::pin(view.get("a"));
        let mut listing = Box::pin(listed(&view));
        let any = ETag::parse("00000000000000000000000000000000").unwrap().to_string();
        let unlike = DeleteRequest { bucket: NAME.into(), key: "a".into(), etag: Some(any), ..Default::default() };
        let mut deleting = Box::pin(view.objects.delete(&view.client, unlike));
        for _ in 0..100 {
            assert!(poll!(again.as_mut()).is_pending(), "archived before it was durable");
            assert!(poll!(getting.as_mut()).is_pending());
            assert!(poll!(listing.as_mut()).is_pending());
            assert!(poll!(deleting.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        stage.held.release().await;
        archiving.await.unwrap();
        again.await.unwrap();
        assert!(getting.await.unwrap() == data);
        assert!(matches!(deleting.await, Err(ArchiveError::PreconditionFailed(_))));
        let (size, etag) = listing.await;
        assert_eq!(size, LENGTH as u64);
        assert_ne!(etag, ETag::NONE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_does_not_come_about_is_stored_again_for_its_reader() {
    let view = View::new(Stage::new(3)).await;
    let data = content(1, LENGTH);
    let inode = file(&view.share, "a", &data).await;
    let mut archiving = Box::pin(view.share.archive_now(inode));
    until_named(&view.stage, &view.share, inode, archiving.as_mut()).await;
    let mut getting = Box::pin(view.get("a"));
    until_it_commits(&view.stage, getting.as_mut()).await;
    view.stage.held.refuse();
    assert_eq!(archiving.await, Err(FileError::NoSpace));
    match getting.await {
        Ok(found) => assert!(found == data),
        Err(error) => assert!(matches!(error, ArchiveError::NoSpace(_)), "{error}"),
    }
    assert!(view.get("a").await.unwrap() == data);
}

#[tokio::test(start_paused = true)]
async fn a_commit_retains_the_version_that_its_file_has() {
    for at_once in [true, false] {
        let view = View::new(Stage::new(4).committing()).await;
        let (stage, share) = (&view.stage, &view.share);
        let inode = file(share, "a", &content(1, LENGTH)).await;
        settle(stage, share).await;
        write(share, inode, 0, &content(2, LENGTH)).await;
        share.commit(inode).await.unwrap();
        let mut archiving = Box::pin(share.archive_now(inode));
        until_named(stage, share, inode, archiving.as_mut()).await;
        // Its caller goes away, and with it the file's gate.
        drop(archiving);
        let closed = Changes { mode: Some(0o444), ..Changes::default() };
        let root = Caller::ROOT;
        let mut committing = Box::pin(share.set_attributes(&root, inode, closed, None));
        if at_once {
            until_it_commits(stage, committing.as_mut()).await;
        }
        stage.held.release().await;
        committing.await.unwrap();
        let until = share.state(inode).unwrap().committed.unwrap();
        let retention = share.newest_retention(inode.0).unwrap();
        assert_eq!(retention.map(|retention| retention.until), Some(until));
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_shows_nothing_of_the_version_before_the_one_under_way() {
    let view = View::new(Stage::new(5)).await;
    let (stage, share) = (&view.stage, &view.share);
    let inode = file(share, "a", &content(1, LENGTH)).await;
    settle(stage, share).await;
    while share.evict_file(inode.0).await.unwrap() {}
    // Emptied, and long again: zeros, of which the cache holds nothing.
    for size in [0, LENGTH as u64] {
        let sized = Changes { size: Some(size), ..Changes::default() };
        share.set_attributes(&Caller::ROOT, inode, sized, None).await.unwrap();
    }
    let mut archiving = Box::pin(share.archive_now(inode));
    until_named(stage, share, inode, archiving.as_mut()).await;
    drop(archiving);
    let mut reading = Box::pin(read(share, inode));
    until_it_commits(stage, reading.as_mut()).await;
    stage.held.release().await;
    assert!(reading.await == vec![0; LENGTH], "the file shows its former content");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changed_since_it_was_found_stored_is_archived_again() {
    let stage = Stage::new(6);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, LENGTH)).await;
    let mut archiving = Box::pin(share.archive_now(inode));
    until_named(&stage, &share, inode, archiving.as_mut()).await;
    let mut again = Box::pin(share.archive_now(inode));
    until_it_commits(&stage, again.as_mut()).await;
    stage.held.release().await;
    archiving.await.unwrap();
    // Another thread is faster than the one that has its answer now.
    write(&share, inode, 0, &content(2, LENGTH)).await;
    share.commit(inode).await.unwrap();
    again.await.unwrap();
    settle(&stage, &share).await;
    assert!(share.state(inode).unwrap().version.is_some(), "background work has lost sight of the file");
}
