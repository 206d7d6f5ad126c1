//! The bucket's settings count for each commit, also where they changed while the share was open.

use stele_archive::{BucketChange, Caller as Client, DefaultRetention, ObjectLock, Period, RetentionMode, Timestamp};

use super::stage::{NAME, Stage, content, file, settle};
use crate::files::Files;
use crate::share::reading::key_of;
use crate::{Caller, Changes, Inode, Moment, SetTime, Share};

pub const DAY: u64 = 86_400_000;

/// The officer sets the bucket's default.
pub async fn set_default(stage: &Stage, mode: RetentionMode, days: u32) {
    let default = Some(DefaultRetention { mode, period: Period::Days(days) });
    let change = BucketChange::ObjectLock(ObjectLock { default });
    stage.archive().await.change_bucket(&Client::local(0), NAME, change).await.expect("a new default");
}

pub async fn chmod(share: &Share, inode: Inode, mode: u32) -> crate::Result<()> {
    let changes = Changes { mode: Some(mode), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, inode, changes, None).await.map(drop)
}

pub async fn touch(share: &Share, inode: Inode, until: Timestamp) -> crate::Result<()> {
    let at = Moment::from_nanoseconds(i128::from(until.0) * 1_000_000);
    let changes = Changes { accessed: Some(SetTime::At(at)), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, inode, changes, None).await.map(drop)
}

/// The retention of a file's newest version.
pub async fn retained(stage: &Stage, inode: Inode) -> Option<stele_archive::Retention> {
    let newest = stage.archive().await.newest(&Client::gateway("testing"), NAME, &[key_of(inode.0)]);
    newest.expect("the newest version").into_iter().flatten().next().and_then(|info| info.retention)
}

#[tokio::test(start_paused = true)]
async fn a_changed_default_counts_at_the_next_commit() {
    let stage = Stage::new(1).committing();
    let share = stage.share().await;
    let base = stage.archive().await.retention_base();
    for (name, mode, days) in [("first", RetentionMode::Governance, 1), ("second", RetentionMode::Compliance, 3_650)] {
        let inode = file(&share, name, &content(1, 10)).await;
        set_default(&stage, mode, days).await;
        chmod(&share, inode, 0o444).await.expect("a commit");
        let until = Timestamp(base.0 + u64::from(days) * DAY);
        assert_eq!(share.state(inode).expect("a state").committed, Some(until), "{name}");
        assert_eq!(retained(&stage, inode).await.map(|kept| (kept.mode, kept.until)), Some((mode, until)), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn object_lock_that_a_bucket_gains_counts_at_once() {
    let mut stage = Stage::new(2);
    stage.bucket.versioning = true;
    let share = stage.share().await;
    let inode = file(&share, "ledger", &content(1, 10)).await;
    settle(&stage, &share).await;
    set_default(&stage, RetentionMode::Compliance, 10).await;
    chmod(&share, inode, 0o444).await.expect("a commit");
    assert!(share.state(inode).expect("a state").committed.is_some(), "the file is not committed");
    assert!(retained(&stage, inode).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_retention_is_extended_in_its_own_mode() {
    use RetentionMode::{Compliance, Governance};
    for (seed, (before, after)) in [(Governance, Compliance), (Compliance, Governance)].into_iter().enumerate() {
        let stage = Stage::new(3 + seed as u64).committing();
        set_default(&stage, before, 10).await;
        let share = stage.share().await;
        let inode = file(&share, "ledger", &content(1, 10)).await;
        let log = file(&share, "log", &content(1, 0)).await;
        chmod(&share, inode, 0o444).await.expect("a commit");
        let until = Timestamp(stage.archive().await.retention_base().0 + 20 * DAY);
        touch(&share, log, until).await.expect("a date");
        chmod(&share, log, 0o444).await.expect("a commit");
        chmod(&share, log, 0o644).await.expect("it may grow");
        set_default(&stage, after, 10).await;
        for inode in [inode, log] {
            touch(&share, inode, Timestamp(until.0 + DAY)).await.expect("an extension");
            let kept = retained(&stage, inode).await.map(|kept| (kept.mode, kept.until));
            assert_eq!(kept, Some((before, Timestamp(until.0 + DAY))), "the default is {after}");
        }
        // So is what is appended later, and the file is closed in its mode too.
        super::stage::write(&share, log, 0, &content(2, 10)).await;
        settle(&stage, &share).await;
        assert_eq!(retained(&stage, log).await.map(|kept| kept.mode), Some(before), "appended");
        chmod(&share, log, 0o444).await.expect("closed for good");
        assert_eq!(retained(&stage, log).await.map(|kept| kept.mode), Some(before), "closed");
    }
}
