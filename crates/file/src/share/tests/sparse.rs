//! A file of 8 TB that is mostly holes.

use super::stage::{Stage, content, file, settle};
use crate::files::Files;
use crate::{Caller, Changes, FileError, Inode, Share};

const SIZE: u64 = 8_000_000_000_000;

async fn resize(share: &Share, inode: Inode, size: u64) {
    let changes = Changes { size: Some(size), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, inode, changes, None).await.expect("a new size");
}

async fn at(share: &Share, inode: Inode, offset: u64, length: u32) -> Vec<u8> {
    share.read(&Caller::ROOT, inode, offset, length).await.expect("a read").pieces.concat()
}

#[tokio::test(start_paused = true)]
async fn a_file_of_8_tb_with_holes_costs_what_it_holds() {
    let stage = Stage::new(1);
    let mut share = stage.share().await;
    let inode = file(&share, "disk", &content(1, 100)).await;
    resize(&share, inode, SIZE).await;
    let places = [3 << 40, (7 << 40) + 123, SIZE - 5_000];
    for (seed, offset) in (2..).zip(places) {
        super::stage::write(&share, inode, offset, &content(seed, 5_000)).await;
    }
    share.commit(inode).await.expect("a commit");
    drop(share);
    stage.cache.power_on();
    share = stage.share().await;
    let attributes = share.attributes(inode).await.expect("attributes");
    assert_eq!(attributes.size, SIZE);
    assert!(attributes.used < 100_000, "{} bytes count as stored", attributes.used);
    assert!(share.status().expect("status").cache_used <= 6 * 65_536);
    assert_eq!(at(&share, inode, 0, 200).await[..100], content(1, 100)[..]);
    for (seed, offset) in (2..).zip(places) {
        assert!(at(&share, inode, offset, 5_000).await == content(seed, 5_000));
        assert!(at(&share, inode, offset - 3_000, 3_000).await.iter().all(|byte| *byte == 0));
    }
    assert!(at(&share, inode, 5 << 40, 1 << 20).await.iter().all(|byte| *byte == 0), "a hole");
    assert!(share.read(&Caller::ROOT, inode, SIZE, 10).await.expect("a read").pieces.is_empty());

    // Holes are zeros in the archive, and this archive is smaller: nothing is stored in vain, and
    // others are archived.
    let free = || stage.data_free();
    let (before, other) = (free().await, file(&share, "other", &content(9, 10_000)).await);
    for _ in 0..3 {
        stage.pass(11);
        share.work().await.expect("a round");
    }
    assert!(share.state(other).expect("its state").version.is_some());
    assert!(free().await + 2 >= before, "the attempt took room");
    let stuck = share.stuck().expect("a look").expect("it is refused");
    assert_eq!((stuck.path.as_str(), stuck.refusal), ("disk", Some(FileError::NoSpace.to_string())));

    resize(&share, inode, 1_000_000).await;
    assert_eq!(at(&share, inode, 999_000, 10_000).await, [0; 1000]);
    settle(&stage, &share).await;
    assert_eq!(share.status().expect("status").open, 0);
    assert_eq!(at(&share, inode, 0, 100).await, content(1, 100));
}
