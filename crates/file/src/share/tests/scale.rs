//! Work under the lock of a share: a look costs what it answers, not what the share holds.

use bytes::Bytes;
use stele_catalog::Transaction;

use super::stage::{Stage, content, file, read, settle};
use crate::files::{Files, Removal};
use crate::share::records::{BLOCKS, Group, encode, numbered_key};
use crate::{Caller, Changes, Creation, Inode, Share};

/// Groups of a large file: several times what one transaction drops.
const GROUPS: u64 = 20_000;

async fn empty(share: &Share, name: &str) -> Inode {
    let how = Creation::Unchecked(Changes { mode: Some(0o644), ..Changes::default() });
    share.create(&Caller::ROOT, share.root(), name.as_bytes(), how).await.expect("a new file").file.inode
}

#[tokio::test(start_paused = true)]
async fn archiving_looks_at_each_open_file_a_few_times() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    let files = 1500;
    for number in 0..files {
        empty(&share, &format!("f{number}")).await;
    }
    stage.pass(11);
    let looks = || share.step(|core| Ok(core.active.looks())).expect("the open files");
    let before = looks();
    while share.archive_round().await.expect("a round").archived > 0 {}
    assert_eq!(share.status().expect("status").open, 0);
    let looked = looks() - before;
    assert!(looked < 4 * files, "{looked} looks at {files} files");
}

#[tokio::test(start_paused = true)]
async fn files_that_cannot_be_archived_are_not_looked_at_for_each_that_can() {
    let stage = Stage::new(2);
    let share = stage.share().await;
    let files = 600;
    for number in 0..files {
        let inode = empty(&share, &format!("busy{number}")).await;
        share.opened(inode, true).await.expect("opened");
    }
    for number in 0..files {
        empty(&share, &format!("idle{number}")).await;
    }
    stage.pass(11);
    let looks = || share.step(|core| Ok(core.active.looks())).expect("the open files");
    let before = looks();
    // A round of busy files alone archives none, and says that there is more.
    while share.archive_round().await.expect("a round").more {}
    assert_eq!(share.status().expect("status").open, files as u64);
    let looked = looks() - before;
    assert!(looked < 8 * files, "{looked} looks at {} files", 2 * files);
}

#[tokio::test(start_paused = true)]
async fn a_look_for_a_victim_passes_over_a_bounded_number_of_files() {
    let stage = Stage::new(3);
    let share = stage.share().await;
    let mut files = Vec::new();
    for number in 0..5000 {
        files.push(empty(&share, &format!("f{number}")).await.0);
    }
    let open = files.split_off(4900);
    let found = share.step(|core| {
        // All were used since the last look.
        for inode in &files {
            core.deactivate(*inode);
            core.content(*inode)?.1.touched = true;
            core.enqueue(*inode);
        }
        for inode in &open {
            core.content(*inode)?;
            core.enqueue(*inode);
            assert!(core.contents.get(inode).is_some_and(|content| content.queued.is_none()), "it is open");
        }
        let first = core.next_victim();
        assert!(core.victim_looks < 4500, "{} looks", core.victim_looks);
        Ok((first, core.next_victim()))
    });
    assert_eq!(found, Ok((None, files.first().copied())), "the second look goes on behind the first");
}

#[tokio::test(start_paused = true)]
async fn an_open_file_comes_into_the_order_of_eviction_when_it_is_archived() {
    let stage = Stage::new(4).with_cache(16 << 20);
    let share = stage.share().await;
    let first = file(&share, "first", &content(1, 6 << 20)).await;
    let queued = |inode: Inode| share.step(|core| Ok(core.content(inode.0)?.1.queued.is_some())).expect("its content");
    assert!(!queued(first));
    settle(&stage, &share).await;
    assert!(queued(first));
    // It is opened again, the hand passes it, and it is archived once more.
    share.write(&Caller::ROOT, first, 0, vec![content(2, 4096)], crate::Stability::Unstable).await.expect("a write");
    assert_eq!(share.step(|core| Ok(core.next_victim())), Ok(None));
    assert!(!queued(first));
    settle(&stage, &share).await;
    assert!(queued(first));
    // Also after a start, where it is known from its records.
    drop(share);
    let share = stage.share().await;
    assert_eq!(share.step(|core| Ok(core.next_victim())), Ok(Some(first.0)));
    while share.evict_file(first.0).await.expect("eviction") {}
    assert_eq!(share.status().expect("status").cache_used, 0);
    assert!(read(&share, first).await[..4096] == content(2, 4096)[..]);
}

/// Gives a file records of groups without slots, up to `GROUPS`.
async fn spread(stage: &Stage, inode: Inode) {
    let records = stage.archive().await.records();
    for part in (1..=GROUPS).collect::<Vec<u64>>().chunks(2000) {
        let mut transaction = Transaction::new();
        for group in part {
            transaction = transaction.put(BLOCKS, numbered_key(1, inode.0, *group), encode(&Group::default()));
        }
        records.commit(transaction).await.expect("records");
    }
}

#[tokio::test(start_paused = true)]
async fn eviction_removal_and_truncation_read_each_group_about_once() {
    let stage = Stage::new(5);
    let share = stage.share().await;
    let ranged = || share.step(|core| Ok(core.view.ranged())).expect("the view");
    let check = |what: &str, before: usize, most: usize| {
        let read = ranged() - before;
        assert!(read <= most, "{what}: {read} records were read for {GROUPS} groups");
    };
    let (n, data): (usize, Bytes) = (GROUPS as usize, content(1, 10_000));
    let evicted = file(&share, "evicted", &data).await;
    settle(&stage, &share).await;
    spread(&stage, evicted).await;
    let before = ranged();
    while share.evict_file(evicted.0).await.expect("eviction") {}
    check("eviction", before, n + n / 4);
    assert!(read(&share, evicted).await == data);

    let cut = file(&share, "cut", &data).await;
    let size = |size| Changes { size: Some(size), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, cut, size((GROUPS + 1) << 20), None).await.expect("a hole");
    spread(&stage, cut).await;
    let before = ranged();
    share.set_attributes(&Caller::ROOT, cut, size(5_000), None).await.expect("a truncation");
    check("truncation", before, 2 * n + n / 2);
    assert!(read(&share, cut).await == data[..5_000]);

    spread(&stage, cut).await;
    share.remove(&Caller::ROOT, share.root(), b"cut", Removal::File).await.expect("a removal");
    let before = ranged();
    while share.room_round().await.expect("a round").cleared > 0 {}
    check("removal", before, n + n / 4);
    let left = share.step(|core| core.view.range(BLOCKS, &stele_catalog::KeyRange::all(), 10)).expect("records");
    assert_eq!(left.iter().filter(|(key, _)| key[4..12] == cut.0.to_be_bytes()).count(), 0);
}
