//! A share whose cache is off.

use stele_media::MediaFault;

use super::stage::{Stage, content, file, read, settle, write};
use crate::files::Files;
use crate::share::{Caching, Settings};
use crate::{Caller, Changes, Creation, FileError, Inode, SetTime, Share, Stability};

fn off(seed: u64) -> Stage {
    let mut stage = Stage::new(seed);
    stage.settings.caching = Caching::Off;
    stage
}

fn used(share: &Share) -> u64 {
    share.status().expect("status").cache_used
}

fn is_archived(share: &Share, inode: Inode) -> bool {
    share.state(inode).expect("its state").version.is_some()
}

async fn empty(share: &Share, name: &str) -> Inode {
    let how = Creation::Unchecked(Changes { mode: Some(0o644), ..Changes::default() });
    share.create(&Caller::ROOT, share.root(), name.as_bytes(), how).await.expect("a new file").file.inode
}

#[tokio::test(start_paused = true)]
async fn every_write_is_durable_before_its_answer() {
    for (caching, expected) in [(Caching::Off, Stability::File), (Caching::On, Stability::Unstable)] {
        let mut stage = Stage::new(1);
        stage.settings.caching = caching;
        let share = stage.share().await;
        let inode = empty(&share, "a").await;
        let data = content(1, 70_001);
        for (offset, data) in [(0, data.slice(..30_000)), (30_000, data.slice(30_000..))] {
            let written = share.write(&Caller::ROOT, inode, offset, vec![data], Stability::Unstable).await;
            assert_eq!(written.expect("a write").1, expected);
        }
        drop(share);
        stage.cache.power_on();
        let survives = read(&*stage.share().await, inode).await == data;
        assert_eq!(survives, caching == Caching::Off, "{caching:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_archived_file_leaves_nothing_in_the_cache() {
    let stage = off(2);
    let share = stage.share().await;
    let data = content(1, 3_000_001);
    let inode = file(&share, "scan", &data).await;
    assert!(used(&share) > 0 && read(&share, inode).await == data);
    share.work().await.expect("a round");
    assert!(!is_archived(&share, inode), "it was written just now");
    stage.pass(1);
    share.archive_round().await.expect("a round");
    assert!(is_archived(&share, inode), "it was left alone for a second");
    assert_eq!(used(&share), 0);
    let before = share.status().expect("status");
    assert!(read(&share, inode).await == data);
    let after = share.status().expect("status");
    assert_eq!((after.hit_bytes, after.missed_bytes - before.missed_bytes), (before.hit_bytes, data.len() as u64));
    assert_eq!(used(&share), 0, "a read keeps nothing");

    // A change in the middle fetches its own blocks, and takes them out again.
    let mut expected = data.to_vec();
    expected[1_000_000..1_000_100].copy_from_slice(&content(2, 100));
    write(&share, inode, 1_000_000, &content(2, 100)).await;
    assert!(used(&share) > 0 && read(&share, inode).await == expected);
    settle(&stage, &share).await;
    assert!(read(&share, inode).await == expected);
    assert_eq!(used(&share), 0);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_open_for_writing_is_archived_after_its_close() {
    let stage = off(3);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 100_000)).await;
    share.opened(inode, true).await.expect("opened");
    for _ in 0..5 {
        stage.pass(2);
        share.work().await.expect("a round");
    }
    assert!(!is_archived(&share, inode) && used(&share) > 0);
    share.closed(inode, true).await;
    stage.pass(2);
    share.work().await.expect("a round");
    assert!(is_archived(&share, inode));
    assert_eq!(used(&share), 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_cached_goes_when_the_cache_is_turned_off() {
    let stage = Stage::new(4);
    let share = stage.share().await;
    let (pinned, used_lately) = (content(1, 400_000), content(2, 400_000));
    let first = file(&share, "pinned", &pinned).await;
    let second = file(&share, "used", &used_lately).await;
    settle(&stage, &share).await;
    share.pin(first).await.expect("a pin");
    for _ in 0..3 {
        read(&share, second).await;
    }
    assert!(used(&share) >= 800_000);
    share.set_settings(Settings { caching: Caching::Off, ..share.settings() });
    share.room_round().await.expect("a round");
    assert_eq!(used(&share), 0);
    assert!(matches!(share.pin(second).await, Err(FileError::Refused(_))));
    assert!(read(&share, first).await == pinned && read(&share, second).await == used_lately);
    assert_eq!(used(&share), 0);
    share.set_settings(Settings { caching: Caching::On, ..share.settings() });
    assert!(read(&share, first).await == pinned);
    assert!(used(&share) >= 400_000, "reads keep content again");
}

#[tokio::test(start_paused = true)]
async fn slots_that_a_crash_left_come_free_after_a_start() {
    let stage = off(5);
    let share = stage.share().await;
    let data = content(1, 300_000);
    let inode = file(&share, "a", &data).await;
    // The same for a reader of the version, which does not wait for the slots.
    share.archive_now(inode).await.expect("it is archived");
    assert!(used(&share) > 0);
    drop(share);
    stage.cache.power_on();
    let share = stage.share().await;
    assert!(used(&share) > 0 && is_archived(&share, inode));
    share.room_round().await.expect("a round");
    assert_eq!(used(&share), 0);
    assert!(read(&share, inode).await == data);
}

#[tokio::test(start_paused = true)]
async fn content_stays_while_its_version_cannot_be_read_back() {
    let stage = off(6);
    let share = stage.share().await;
    let data = content(1, 300_000);
    let inode = file(&share, "a", &data).await;
    share.archive_now(inode).await.expect("it is archived");
    stage.data.refuse_reads(Some(MediaFault::Damaged));
    share.room_round().await.expect("a round");
    let status = share.status().expect("status");
    assert!(status.cache_used >= 300_000, "the only readable copy is gone");
    assert_eq!(status.refused_path.as_deref(), Some("a"));
    assert_eq!(status.open, 1, "it is archived anew");
    assert!(read(&share, inode).await == data);
    stage.data.refuse_reads(None);
    stage.pass(60);
    settle(&stage, &share).await;
    assert_eq!((used(&share), share.status().expect("status").open), (0, 0));
    assert!(read(&share, inode).await == data);
}

#[tokio::test(start_paused = true)]
async fn a_committed_file_whose_version_cannot_be_read_back_is_tried_again() {
    let mut stage = off(7).committing();
    stage.settings.caching = Caching::Off;
    let share = stage.share().await;
    let data = content(1, 300_000);
    let inode = file(&share, "a", &data).await;
    let until = SetTime::At(crate::Moment { seconds: stage.moment().seconds + 100 * 86_400, nanoseconds: 0 });
    let changes = Changes { mode: Some(0o444), accessed: Some(until), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, inode, changes, None).await.expect("it is committed");
    stage.data.refuse_reads(Some(MediaFault::Damaged));
    for _ in 0..3 {
        share.room_round().await.expect("a round");
    }
    assert!(used(&share) >= 300_000 && read(&share, inode).await == data);
    stage.data.refuse_reads(None);
    share.room_round().await.expect("a round");
    assert!(used(&share) >= 300_000, "another attempt comes after a while");
    stage.pass(60);
    share.room_round().await.expect("a round");
    assert_eq!(used(&share), 0);
    assert!(read(&share, inode).await == data);
}

#[tokio::test(start_paused = true)]
async fn a_busy_archive_makes_no_other_version_of_a_file() {
    let stage = off(8);
    let share = stage.share().await;
    let data = content(1, 300_000);
    let inode = file(&share, "a", &data).await;
    share.archive_now(inode).await.expect("it is archived");
    let version = share.state(inode).expect("its state").version;
    stage.data.refuse_reads(Some(MediaFault::Retry));
    for _ in 0..3 {
        share.room_round().await.expect("a round");
    }
    let status = share.status().expect("status");
    assert!(status.cache_used >= 300_000, "it cannot be read back");
    assert_eq!((status.open, status.refused_path), (0, None));
    stage.data.refuse_reads(None);
    share.room_round().await.expect("a round");
    assert_eq!((used(&share), share.state(inode).expect("its state").version), (0, version));
    assert!(read(&share, inode).await == data);
}
