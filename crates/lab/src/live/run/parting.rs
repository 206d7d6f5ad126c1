//! The end of a run: what is under way is waited for. It loads the target, and what was written may
//! land late: a run that began meanwhile would measure both, and take its own versions of data for
//! lost ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration as WallDuration, Instant as WallInstant};

use stele_ground::Duration;

use super::{Draining, LOOK};
use crate::histogram::Histogram;
use crate::live::worker::{Left, Report};
use crate::live::wrong::Wrong;

/// Who ends a run waits no longer for what is under way, nor is a target waited for that has
/// failed.
const FAREWELL: WallDuration = WallDuration::from_secs(2);

/// The waiting is told from this time on, and again after each.
const TELL: WallDuration = WallDuration::from_millis(500);

/// What the workers said when the run was over.
#[derive(Default)]
pub struct Parted {
    pub failed: Option<String>,
    pub wrong: Wrong,
    /// Of what no round counts.
    pub unanswered: Histogram,
    /// A thread still waits for the target.
    pub left_behind: bool,
}

/// Waits until all that was under way is answered: as long as answers come, each within the
/// target's patience of the one before. `tell` hears how much is under way.
pub fn part(
    reports: &Receiver<Report>,
    threads: Vec<JoinHandle<()>>,
    patience: Duration,
    end: &AtomicBool,
    given_up: bool,
    tell: &mut dyn FnMut(Draining),
) -> Parted {
    let mut parted = Parted::default();
    let mut under_way: BTreeMap<u32, u32> = BTreeMap::new();
    let begun = WallInstant::now();
    let (mut answered, mut told) = (begun, begun);
    let all = |under_way: &BTreeMap<u32, u32>| under_way.values().map(|count| u64::from(*count)).sum::<u64>();
    let mut farewell = given_up.then(|| answered + FAREWELL);
    loop {
        match reports.recv_timeout(LOOK) {
            Ok(Report::Left(Left { worker, under_way: count, waited })) => {
                parted.unanswered.merge(&waited);
                under_way.insert(worker, count);
            }
            Ok(Report::Settled { worker, under_way: count }) => {
                answered = WallInstant::now();
                under_way.insert(worker, count);
            }
            Ok(Report::Wrong(more)) => parted.wrong.add(more),
            Ok(Report::Ended(Err(error))) => {
                parted.failed.get_or_insert(error);
                farewell.get_or_insert_with(|| WallInstant::now() + FAREWELL);
            }
            Ok(Report::Ended(Ok(())) | Report::Ready | Report::Part(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if told.elapsed() >= TELL {
            told = WallInstant::now();
            let waited = Duration(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
            tell(Draining { under_way: all(&under_way), waited });
        }
        if end.load(Ordering::Relaxed) {
            farewell.get_or_insert_with(|| WallInstant::now() + FAREWELL);
        }
        if farewell.is_some_and(|farewell| WallInstant::now() >= farewell) {
            break;
        }
        if answered.elapsed().as_nanos() > u128::from(patience.0) {
            let count = all(&under_way);
            parted.failed.get_or_insert_with(|| never_answered(count.max(1), patience));
            break;
        }
    }
    for thread in threads {
        // One that waits for a target that hangs has all it uses to itself, and ends with the
        // process.
        match thread.is_finished() || is_over(reports) {
            true if thread.join().is_err() => drop(parted.failed.get_or_insert("a worker panicked".into())),
            true => {}
            false => parted.left_behind = true,
        }
    }
    parted
}

/// All threads are at their ends: each has let go of its sender, as the last thing it does.
fn is_over(reports: &Receiver<Report>) -> bool {
    matches!(reports.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected))
}

fn never_answered(count: u64, patience: Duration) -> String {
    let accesses = if count == 1 { "an access was".into() } else { format!("{count} accesses were") };
    format!(
        "{accesses} never answered: when the run was over the target answered nothing more for {patience}; a slower one is \
         waited for with --patience"
    )
}

#[cfg(test)]
mod tests;
