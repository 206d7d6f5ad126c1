//! What others see and do while a transaction is not durable yet.

use futures_util::poll;

use super::stage::{Stage, content, file, read, settle};
use crate::files::Files;
use crate::share::Share;
use crate::{Caller, FileError, Inode, Stability};

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
