//! Space that the cache gives back to its pool.

use std::future::Future;
use std::task::{Context, Waker};

use stele_media::MediaFault;

use super::stage::{CACHE_UNIT, Stage, content, file, read, settle, write};
use crate::Caller;
use crate::files::{Files, Removal};
use crate::share::Caching;

const MIB: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn slots_of_removed_files_give_their_space_back_each_minute() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    let (small, large) = (content(1, 70_000), content(2, 8 * MIB));
    let kept = file(&share, "kept", &small).await;
    file(&share, "gone", &large).await;
    settle(&stage, &share).await;
    assert!(stage.cache.backed().await >= 8 << 20);

    share.remove(&Caller::ROOT, share.root(), b"gone", Removal::File).await.expect("it may go");
    share.room_round().await.expect("a round");
    let status = share.status().expect("status");
    assert_eq!((status.removing, status.cache_used), (0, 2 << 16));
    assert!(stage.cache.backed().await >= 8 << 20, "a slot may be needed again at once");
    stage.pass(61);
    share.room_round().await.expect("a round");
    assert!(stage.cache.backed().await <= 2 * CACHE_UNIT, "of a removed file nothing takes space");
    assert!(read(&share, kept).await == small);

    // A file takes the units again, and a restart knows of none that they are free.
    let again = file(&share, "again", &large).await;
    share.commit(again).await.expect("a commit");
    drop(share);
    let share = stage.share().await;
    share.room_round().await.expect("a round");
    assert!(read(&share, again).await == large && read(&share, kept).await == small);
    assert!(stage.cache.backed().await >= 8 << 20);
}

#[tokio::test(start_paused = true)]
async fn files_take_slots_that_have_space_before_others() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    share.room_round().await.expect("the first pass");
    for seed in 0..40 {
        let inode = file(&share, "passing", &content(seed, 2 * MIB)).await;
        share.commit(inode).await.expect("a commit");
        share.remove(&Caller::ROOT, share.root(), b"passing", Removal::File).await.expect("it may go");
        share.room_round().await.expect("a round");
    }
    let backed = stage.cache.backed().await;
    assert!(backed <= 2 << 20, "40 files of 2 MiB, one after another, hold {backed} bytes");
}

#[tokio::test(start_paused = true)]
async fn archived_content_leaves_the_cache_where_the_pool_needs_space() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    let data = content(1, MIB);
    let mut files = Vec::new();
    for number in 0..16 {
        files.push(file(&share, &format!("f{number}"), &data).await);
    }
    settle(&stage, &share).await;
    share.pin(files[0]).await.expect("a pin");
    let late = content(2, MIB);
    let open = file(&share, "open", &late).await;
    assert_eq!(share.status().expect("status").cache_used, 17 << 20);

    stage.pass(61);
    share.room_round().await.expect("a round");
    let gone = file(&share, "gone", &content(3, 4 * MIB)).await;
    share.commit(gone).await.expect("a commit");
    share.remove(&Caller::ROOT, share.root(), b"gone", Removal::File).await.expect("it may go");
    share.room_round().await.expect("a round");
    assert_eq!(stage.cache.backed().await, 21 << 20);
    share.want_space(4 << 20);
    share.room_round().await.expect("a round");
    assert_eq!(stage.cache.backed().await, 17 << 20);
    assert_eq!(share.status().expect("status").cache_used, 17 << 20, "free slots were enough");
    share.want_space((4 << 20) + 1);
    share.room_round().await.expect("a round");
    assert_eq!(share.status().expect("status").cache_used, 12 << 20, "no more goes than is needed");
    let backed = stage.cache.backed().await;
    assert!(backed <= 12 << 20, "{backed} bytes");

    share.want_space(u64::MAX);
    share.room_round().await.expect("a round");
    assert_eq!(share.status().expect("status").cache_used, 2 << 20, "what is pinned or open stays");
    assert_eq!(share.spare_space(), 0);
    for inode in files {
        assert!(read(&share, inode).await == data);
    }
    assert!(read(&share, open).await == late);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_is_switched_off_gives_its_space_back() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    for number in 0..8 {
        file(&share, &format!("f{number}"), &content(number, MIB)).await;
    }
    settle(&stage, &share).await;
    let mut settings = share.settings();
    settings.caching = Caching::Off;
    share.set_settings(settings);
    settle(&stage, &share).await;
    stage.pass(61);
    share.room_round().await.expect("a round");
    assert_eq!((stage.cache.backed().await, share.status().expect("status").cache_used), (0, 0));
}

/// A discard that comes late would take the content of a file that has got the slot.
#[tokio::test(start_paused = true)]
async fn no_file_gets_a_slot_that_is_being_discarded() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    stage.cache.hold_discards();
    let mut round = Box::pin(share.room_round());
    let mut context = Context::from_waker(Waker::noop());
    assert!(round.as_mut().poll(&mut context).is_pending(), "the round waits for a discard");
    let data = content(1, 40 * MIB);
    let inode = file(&share, "all", &data).await;
    share.commit(inode).await.expect("a commit");
    assert_eq!(stage.cache.let_discards_go(), 1);
    round.await.expect("a round");
    assert!(read(&share, inode).await == data);
    // What was away can be had again.
    write(&share, inode, 40 << 20, &content(2, 12 * MIB)).await;
}

/// The server looks at the pool often where it has little room, also while a round is under way.
#[tokio::test(start_paused = true)]
async fn a_wish_is_met_once_though_it_is_repeated_meanwhile() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    for number in 0..16 {
        file(&share, &format!("f{number}"), &content(number, MIB)).await;
    }
    settle(&stage, &share).await;
    stage.pass(61);
    share.room_round().await.expect("a round");
    share.want_space(4 << 20);
    stage.cache.hold_discards();
    let mut round = Box::pin(share.room_round());
    let mut context = Context::from_waker(Waker::noop());
    assert!(round.as_mut().poll(&mut context).is_pending(), "the round waits for a discard");
    share.want_space(4 << 20);
    stage.cache.let_discards_go();
    round.await.expect("a round");
    let used = share.status().expect("status").cache_used;
    assert_eq!(used, 12 << 20);
    share.room_round().await.expect("a round");
    assert_eq!(share.status().expect("status").cache_used, used, "more goes than the pool needs");
}

/// The answer of a discard that no one waits for any more may still come.
#[tokio::test(start_paused = true)]
async fn slots_of_a_round_that_was_left_stay_away() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    stage.cache.hold_discards();
    let mut round = Box::pin(share.room_round());
    let mut context = Context::from_waker(Waker::noop());
    assert!(round.as_mut().poll(&mut context).is_pending());
    drop(round);
    let data = content(1, 48 * MIB);
    let inode = file(&share, "rest", &data).await;
    share.commit(inode).await.expect("a commit");
    assert_eq!(stage.cache.let_discards_go(), 1);
    assert!(read(&share, inode).await == data);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_refuses_discards_is_asked_again_after_a_minute() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    for name in ["f", "g"] {
        file(&share, name, &content(1, MIB)).await;
    }
    settle(&stage, &share).await;
    stage.pass(61);
    share.room_round().await.expect("a round");
    share.remove(&Caller::ROOT, share.root(), b"f", Removal::File).await.expect("it may go");
    share.room_round().await.expect("a round");

    stage.cache.refuse_discards(Some(MediaFault::Damaged));
    share.want_space(2 << 20);
    share.room_round().await.expect("a round");
    assert_eq!(share.status().expect("status").cache_used, 1 << 20, "evicted content would give the pool nothing");
    stage.cache.refuse_discards(None);
    share.room_round().await.expect("a round");
    assert_eq!(stage.cache.backed().await, 2 << 20, "it is asked again too early");
    stage.pass(61);
    share.room_round().await.expect("a round");
    assert_eq!(stage.cache.backed().await, 1 << 20);
}
