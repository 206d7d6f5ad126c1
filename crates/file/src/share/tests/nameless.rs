//! Files that have lost their last name while a client has them open.

use super::stage::{Stage, content, file, read, settle, write};
use crate::files::Files;
use crate::{Caller, FileError, Inode, Removal, Share, Stability};

const MIB: u64 = 1 << 20;

async fn nameless(share: &Share, name: &str) -> Inode {
    let inode = file(share, name, &content(1, 1000)).await;
    share.opened(inode, true).await.unwrap();
    share.remove(&Caller::ROOT, share.root(), name.as_bytes(), Removal::File).await.unwrap();
    inode
}

/// Writes until the share takes no more.
async fn fill(share: &Share, inode: Inode) -> (u64, FileError) {
    for at in 0.. {
        let piece = vec![content(at, MIB as usize)];
        if let Err(error) = share.write(&Caller::ROOT, inode, at * MIB, piece, Stability::Unstable).await {
            return (at, error);
        }
    }
    unreachable!("a cache has an end")
}

#[tokio::test(start_paused = true)]
async fn files_without_names_leave_the_cache_to_others() {
    let stage = Stage::new(1).with_cache(16 * MIB);
    let share = stage.share().await;
    let (one, two) = (nameless(&share, "one").await, nameless(&share, "two").await);
    // Of 4 MiB the other one has a slot.
    assert_eq!(fill(&share, one).await, (3, FileError::NoSpace));
    write(&share, one, 0, &content(7, 2 * MIB as usize)).await;
    assert_eq!(fill(&share, two).await, (0, FileError::NoSpace));
    let data = content(3, 11 * MIB as usize);
    let named = file(&share, "named", &data).await;
    assert!(read(&share, named).await == data);

    // What its last user closes is cleared away, and its part is free again.
    share.closed(one, true).await;
    settle(&stage, &share).await;
    assert_eq!(fill(&share, two).await.0, 4);
    share.closed(two, true).await;
    settle(&stage, &share).await;
    assert_eq!(share.step(|core| Ok(core.slots.files().filter(|inode| *inode != named.0).count())), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_large_file_that_loses_its_name_keeps_what_it_has_and_grows_no_more() {
    let stage = Stage::new(2).with_cache(16 * MIB);
    let share = stage.share().await;
    let data = content(1, 6 * MIB as usize);
    let inode = file(&share, "large", &data).await;
    share.opened(inode, true).await.unwrap();
    share.remove(&Caller::ROOT, share.root(), b"large", Removal::File).await.unwrap();
    let grown = share.write(&Caller::ROOT, inode, 6 * MIB, vec![content(2, 4096)], Stability::File).await;
    assert_eq!(grown.map(drop), Err(FileError::NoSpace));
    assert!(read(&share, inode).await == data);
}
