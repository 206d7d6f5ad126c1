//! Closing a share for its removal.

use super::stage::{Stage, content, file, settle};
use crate::files::Files;
use crate::{Caller, Changes, Creation, FileError, Removal};

#[tokio::test(start_paused = true)]
async fn a_share_closes_only_when_nothing_is_in_it_or_under_way() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    let root = share.root();
    file(&share, "a", &content(1, 10_000)).await;
    assert!(!share.close_if_empty().unwrap(), "a share with a file is closed");
    share.remove(&Caller::ROOT, root, b"a", Removal::File).await.unwrap();
    assert!(!share.close_if_empty().unwrap(), "a removed file is not cleared away yet");
    settle(&stage, &share).await;

    let directory = share.make(&Caller::ROOT, root, b"d", crate::Node::Directory, Changes::default()).await;
    directory.unwrap();
    let caller = Caller::ROOT;
    stage.held.hold();
    let mut removing = Box::pin(share.remove(&caller, root, b"d", Removal::Directory));
    assert!(futures_util::poll!(removing.as_mut()).is_pending());
    assert!(!share.close_if_empty().unwrap(), "a removal that is not durable may not come about");
    stage.held.release().await;
    removing.await.unwrap();
    settle(&stage, &share).await;

    assert!(share.close_if_empty().unwrap());
    let create = share.create(&Caller::ROOT, root, b"b", Creation::Unchecked(Changes::default())).await;
    assert_eq!(create.map(drop), Err(FileError::Stale));
    assert_eq!(share.attributes(root).await.map(drop), Err(FileError::Stale));
    share.open_again();
    file(&share, "c", &content(2, 10_000)).await;
}
