//! Files that are committed because they were left alone, while the system clock is wrong and is
//! set right.

use stele_ground::Duration;

use super::objects::View;
use super::stage::{Stage, content, file, write};
use crate::files::Files;
use crate::{Caller, Changes, Inode, Moment, SetTime, Share};

const HOUR: u64 = 3_600;

/// A share of which files are committed after an hour.
fn stage(seed: u64) -> Stage {
    let mut stage = Stage::new(seed).committing();
    stage.settings.retention.commit_after = Some(Duration::from_secs(HOUR));
    stage
}

async fn rounds(share: &Share) {
    for _ in 0..5 {
        share.work().await.expect("background work");
    }
}

fn committed(share: &Share, inode: Inode) -> bool {
    share.row(inode).expect("the row").committed.is_some()
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_behind_at_the_start_makes_no_file_look_old() {
    let mut stage = stage(1);
    stage.share().await;
    // The server starts with a clock that is behind, and starts again once the clock is right.
    stage.set_back(6 * HOUR);
    stage.reopen().await;
    let share = stage.share().await;
    let inode = file(&share, "log", &content(1, 10_000)).await;
    stage.pass(60);
    write(&share, inode, 10_000, &content(2, 100)).await;
    share.commit(inode).await.expect("a commit");
    drop(share);
    stage.set_ahead(6 * HOUR);
    stage.reopen().await;
    let share = stage.share().await;
    rounds(&share).await;
    assert!(!committed(&share, inode), "the file was committed in the middle of its writing");
    write(&share, inode, 10_100, &content(3, 100)).await;
    stage.pass(HOUR + 10);
    rounds(&share).await;
    assert!(committed(&share, inode), "the file was left alone for an hour");
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_commits_no_file_before_its_time() {
    let mut stage = stage(2);
    let settings = std::mem::take(&mut stage.settings);
    stage.share().await;
    stage.set_back(6 * HOUR);
    stage.reopen().await;
    // Change times of a share without autocommit are those of the system clock, whatever it says.
    let share = stage.share().await;
    let inode = file(&share, "log", &content(1, 10_000)).await;
    share.set_settings(settings);
    stage.set_ahead(6 * HOUR);
    rounds(&share).await;
    assert!(!committed(&share, inode), "the file was committed in the middle of its writing");
    stage.pass(HOUR - 60);
    rounds(&share).await;
    assert!(!committed(&share, inode), "an hour has not passed since the step");
    stage.pass(120);
    rounds(&share).await;
    assert!(committed(&share, inode), "the file was left alone for an hour");
}

#[tokio::test(start_paused = true)]
async fn small_corrections_of_the_clock_keep_no_file_from_being_committed() {
    let stage = stage(3);
    let share = stage.share().await;
    let inode = file(&share, "log", &content(1, 10_000)).await;
    // An hour, and the rest between two passes.
    for minutes in 0..70 {
        assert!(minutes > 60 || !committed(&share, inode), "after {minutes} minutes");
        stage.pass(60);
        match minutes % 2 {
            0 => stage.set_ahead(5),
            _ => stage.set_back(5),
        }
        rounds(&share).await;
    }
    assert!(committed(&share, inode));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_a_client_has_open_survives_a_restart() {
    let stage = stage(4);
    let share = stage.share().await;
    stage.pass_return(&share).await;
    let inode = file(&share, "log", &content(1, 10_000)).await;
    share.opened(inode, true).await.expect("opened");
    stage.pass(2 * HOUR);
    rounds(&share).await;
    assert!(!committed(&share, inode), "a client has it open");
    drop(share);
    let share = stage.share().await;
    rounds(&share).await;
    // Most of the grace period.
    stage.pass(40);
    rounds(&share).await;
    assert!(!committed(&share, inode), "the client has had no time to claim it");
    share.opened(inode, true).await.expect("claimed");
    stage.pass(HOUR);
    rounds(&share).await;
    assert!(!committed(&share, inode), "a client has it open again");
    share.closed(inode, true).await;
    // Beyond the rest between two passes.
    stage.pass(HOUR);
    rounds(&share).await;
    assert!(committed(&share, inode), "it was left alone");
}

#[tokio::test(start_paused = true)]
async fn a_client_sends_its_unstable_writes_again_after_a_crash() {
    let stage = stage(5);
    let share = stage.share().await;
    stage.pass_return(&share).await;
    let inode = file(&share, "log", &content(1, 10_000)).await;
    stage.pass(2 * HOUR);
    write(&share, inode, 10_000, &content(2, 100)).await;
    drop(share);
    stage.cache.power_on();
    let share = stage.share().await;
    rounds(&share).await;
    assert!(!committed(&share, inode), "its last writes are with the client alone");
    stage.pass(300);
    rounds(&share).await;
    write(&share, inode, 10_000, &content(2, 100)).await;
    share.commit(inode).await.expect("a commit");
    stage.pass(HOUR - 60);
    rounds(&share).await;
    assert!(!committed(&share, inode), "it was changed less than an hour ago");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_stored_while_the_clock_was_behind_does_not_look_old() {
    let mut stage = stage(6);
    // No default: the date that its user has set commits the file.
    stage.bucket.default_retention = None;
    let share = stage.share().await;
    let inode = file(&share, "log", &content(1, 10_000)).await;
    let date = SetTime::At(Moment { seconds: 4_000_000_000, nanoseconds: 0 });
    let dated = Changes { accessed: Some(date), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, inode, dated, None).await.expect("a date");
    drop(share);
    stage.set_back(6 * HOUR);
    stage.reopen().await;
    let view = View::new(stage.clone()).await;
    view.put("log", &content(2, 10_000)).await.expect("an object");
    drop(view);
    stage.set_ahead(6 * HOUR);
    stage.reopen().await;
    let share = stage.share().await;
    stage.pass_return(&share).await;
    rounds(&share).await;
    assert!(!committed(&share, inode), "the file was committed a few minutes after it was stored");
    stage.pass(2 * HOUR);
    rounds(&share).await;
    assert!(committed(&share, inode), "it was left alone");
}
