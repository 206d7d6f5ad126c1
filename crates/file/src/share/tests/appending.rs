//! Appends: writes that go to the end of a file, wherever that is by then.

use futures_util::future::join_all;

use super::held::until_it_commits;
use super::stage::{Stage, content, file, read, settle};
use crate::files::{Files, Stability};
use crate::model::SIZE_MAX;
use crate::share::Caching;
use crate::{Caller, Changes, FileError, Inode, Share};

async fn append(share: &Share, inode: Inode, data: &bytes::Bytes, stability: Stability) {
    share.append(&Caller::ROOT, inode, vec![data.clone()], stability).await.expect("an append");
}

async fn resize(share: &Share, inode: Inode, size: u64) {
    let changes = Changes { size: Some(size), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, inode, changes, None).await.expect("a new size");
}

/// Takes the pieces from the front of the content, in any order, each once.
fn is_made_of(mut found: &[u8], mut pieces: Vec<bytes::Bytes>) -> bool {
    while let Some(at) = pieces.iter().position(|piece| found.starts_with(piece)) {
        found = &found[pieces.swap_remove(at).len()..];
    }
    found.is_empty() && pieces.is_empty()
}

#[tokio::test(start_paused = true)]
async fn appends_beside_each_other_all_stay() {
    for (seed, first, caching) in [(1, 0, Caching::On), (2, 8192, Caching::On), (3, 5000, Caching::Off)] {
        let mut stage = Stage::new(seed);
        stage.settings.caching = caching;
        let share = stage.share().await;
        let begin = content(100, first);
        let inode = file(&share, "log", &begin).await;
        if seed == 2 {
            // The first append opens it again.
            settle(&stage, &share).await;
            assert_eq!(share.status().expect("status").open, 0);
        }
        let lengths = [20, 4096, 5000, 8192, 70_000, 65_536, 33];
        let pieces: Vec<_> = (0..100).map(|number| content(200 + number as u64, lengths[number % 7])).collect();
        let appends = pieces.iter().enumerate().map(|(number, piece)| {
            let stability = if number % 9 == 0 { Stability::File } else { Stability::Unstable };
            append(&share, inode, piece, stability)
        });
        join_all(appends).await;
        let found = read(&share, inode).await;
        assert!(found[..first] == begin[..], "the begin under the seed {seed}");
        assert!(is_made_of(&found[first..], pieces), "{} bytes under the seed {seed}", found.len());
    }
}

#[tokio::test(start_paused = true)]
async fn an_append_follows_what_others_wrote_and_cut() {
    let stage = Stage::new(4);
    let share = stage.share().await;
    let inode = file(&share, "log", &content(1, 300)).await;
    super::stage::write(&share, inode, 9000, &content(2, 100)).await;
    append(&share, inode, &content(3, 50), Stability::Unstable).await;
    assert_eq!(read(&share, inode).await[9000..], [content(2, 100), content(3, 50)].concat());
    resize(&share, inode, 10).await;
    append(&share, inode, &content(4, 50), Stability::Unstable).await;
    assert_eq!(read(&share, inode).await, [&content(1, 300)[..10], &content(4, 50)].concat());
    resize(&share, inode, SIZE_MAX).await;
    let beyond = share.append(&Caller::ROOT, inode, vec![content(5, 1)], Stability::Unstable).await;
    assert_eq!(beyond.err(), Some(FileError::TooLarge));
}

/// A caller that is asked to come again appends once more.
#[tokio::test(start_paused = true)]
async fn a_durable_append_that_the_catalog_puts_off_is_in_the_file_once() {
    let stage = Stage::new(5);
    let share = stage.share().await;
    let inode = file(&share, "log", &content(1, 300)).await;
    let root = Caller::ROOT;
    let begin = |seed| Box::pin(share.append(&root, inode, vec![content(seed, 50)], Stability::File));
    stage.held.hold();
    let mut appending = begin(2);
    until_it_commits(&stage, appending.as_mut()).await;
    stage.held.put_off();
    appending.await.expect("an append");
    assert_eq!(read(&share, inode).await, [content(1, 300), content(2, 50)].concat());
    // In the end it fails, in a way that asks for no other try.
    stage.held.hold();
    let mut appending = begin(3);
    until_it_commits(&stage, appending.as_mut()).await;
    stage.held.put_all_off();
    let failed = appending.await.expect_err("it is not durable");
    assert!(matches!(failed, FileError::Damaged(_)), "{failed}");
}
