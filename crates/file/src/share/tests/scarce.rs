//! An archive without room for every file.

use std::sync::Arc;

use futures_util::poll;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use super::stage::{NAME, Stage, content, file, settle};
use crate::files::Files;
use crate::share::Share;
use crate::{Caller, Changes, FileError, Inode, Removal, Stability};

/// More than the archive of the tests has, all of it holes: it is refused before anything of it is
/// stored.
const TOO_LARGE: u64 = 1 << 40;

async fn too_large(share: &Share, name: &str) -> Inode {
    let inode = file(share, name, &content(1, 0)).await;
    let changes = Changes { size: Some(TOO_LARGE), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, inode, changes, None).await.expect("a hole");
    inode
}

/// Files whose archiving comes to its end and not further.
struct Kept(Vec<(Gate, Option<OwnedRwLockReadGuard<()>>)>);

type Gate = Arc<RwLock<()>>;

impl Kept {
    async fn new(share: &Share, names: &str) -> Kept {
        let mut kept = Vec::new();
        for number in 0..4 {
            let inode = file(share, &format!("{names}{number}"), &content(number, 10_000)).await;
            let gate = share.step(|core| Ok(Arc::clone(&core.content(inode.0)?.1.gate))).expect("the gate");
            kept.push((Arc::clone(&gate), Some(gate.read_owned().await)));
        }
        Kept(kept)
    }

    /// How many have come to their end: a writer waits at the gate, and keeps readers out.
    fn waiting(&self) -> usize {
        self.0.iter().filter(|(gate, held)| held.is_some() && gate.try_read().is_err()).count()
    }

    /// Lets the one that waits go on.
    fn release_one(&mut self) {
        for (gate, held) in &mut self.0 {
            if held.is_some() && gate.try_read().is_err() {
                *held = None;
                return;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn files_are_stored_one_by_one_while_room_is_short() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    too_large(&share, "disk").await;
    stage.pass(11);
    assert_eq!(share.archive_round().await.expect("a round").archived, 0);

    let mut kept = Kept::new(&share, "short").await;
    stage.pass(11);
    {
        let mut archiving = Box::pin(share.archive_round());
        for _ in 0..4 {
            for _ in 0..100 {
                assert!(poll!(archiving.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            assert_eq!(kept.waiting(), 1, "files take the room of one another");
            kept.release_one();
        }
        assert_eq!(archiving.await.expect("a round").archived, 4);
    }
    assert_eq!(share.status().expect("a status").open, 1);

    // A whole round without a refusal, and files are stored side by side again.
    share.remove(&Caller::ROOT, share.root(), b"disk", Removal::File).await.expect("a removal");
    file(&share, "fits", &content(9, 10_000)).await;
    stage.pass(11);
    assert_eq!(share.archive_round().await.expect("a round").archived, 1);
    let kept = Kept::new(&share, "wide").await;
    stage.pass(11);
    let mut archiving = Box::pin(share.archive_round());
    for _ in 0..100 {
        assert!(poll!(archiving.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(kept.waiting(), 4);
    drop(kept);
    assert_eq!(archiving.await.expect("a round").archived, 4);
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_used_up_slows_no_other_file_down() {
    let stage = Stage::new(2);
    let share = stage.share().await;
    let quota = stele_archive::Quota { bytes: Some(100_000), versions: None };
    let quota = stele_archive::BucketChange::Quota(quota);
    stage.archive().await.change_bucket(&stele_archive::Caller::local(0), NAME, quota).await.expect("a quota");
    file(&share, "large", &content(1, 200_000)).await;
    stage.pass(11);
    assert_eq!(share.archive_round().await.expect("a round").archived, 0);
    assert!(!share.archiving.lock().await.one_by_one, "files take no quota from one another");
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_a_removed_file_is_forgotten() {
    let stage = Stage::new(3);
    let share = stage.share().await;
    too_large(&share, "disk").await;
    stage.pass(11);
    share.archive_round().await.expect("a round");
    let status = share.status().expect("a status");
    assert_eq!((status.refused_path.as_deref(), status.refusal), (Some("disk"), Some(FileError::NoSpace.to_string())));
    share.remove(&Caller::ROOT, share.root(), b"disk", Removal::File).await.expect("a removal");
    let status = share.status().expect("a status");
    assert_eq!((status.refused_path, status.refusal), (None, None));
    settle(&stage, &share).await;
}

#[tokio::test(start_paused = true)]
async fn one_file_that_is_too_large_fails_no_writer_of_others() {
    let stage = Stage::new(4).with_cache(16 << 20);
    let share = stage.share().await;
    too_large(&share, "disk").await;
    stage.pass(11);
    assert_eq!(share.archive_round().await.expect("a round").archived, 0);
    // The archive has room for this one, which fills the cache.
    file(&share, "a", &content(1, 15 << 20)).await;
    let other = file(&share, "b", &content(1, 0)).await;
    let (root, data) = (Caller::ROOT, content(2, 2 << 20));
    let mut writing = std::pin::pin!(share.write(&root, other, 0, vec![data.clone()], Stability::Unstable));
    for _ in 0..200 {
        tokio::select! {
            biased;
            result = &mut writing => panic!("it waits no longer: {result:?}"),
            () = tokio::task::yield_now() => share.room.notify_waiters(),
        }
    }
    let working = async {
        loop {
            stage.pass(1);
            share.work().await.expect("background work");
            tokio::task::yield_now().await;
        }
    };
    let result = tokio::select! { result = writing => result, () = working => unreachable!() };
    assert!(result.is_ok(), "{result:?}");
}
