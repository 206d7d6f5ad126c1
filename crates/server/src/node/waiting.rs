//! Work that waits for drives, beside tasks that do not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::failure::{Failure, Outcome};

/// Runs blocking work (opening drives, replaying logs) off the async threads.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Failure::failed(format!("the work was broken off: {error}; this is a defect of Stele")))
    })
}

/// How the catalog waits for its drives.
pub fn for_catalog(work: &mut dyn FnMut()) {
    static PACE: Pace = Pace::new();
    PACE.wait(work, hand_on);
}

/// How long reads take. A thread that waits for a hard drive keeps all its other tasks waiting, so
/// it hands them on first. On drives in memory and on flash that would cost more than the wait.
struct Pace {
    /// Nanoseconds that a read usually takes.
    usual: AtomicU64,
}

impl Pace {
    /// Longer reads are long: handing tasks on takes some ten microseconds.
    const LONG: u64 = 300_000;
    /// The weight of the latest read in what is usual: one part in so many.
    const PART: u64 = 8;

    const fn new() -> Pace {
        Pace { usual: AtomicU64::new(0) }
    }

    fn wait(&self, work: &mut dyn FnMut(), when_long: fn(&mut dyn FnMut())) {
        let begun = Instant::now();
        match self.is_long() {
            true => when_long(work),
            false => work(),
        }
        self.note(begun.elapsed().as_nanos() as u64);
    }

    fn is_long(&self) -> bool {
        self.usual.load(Ordering::Relaxed) > Pace::LONG
    }

    /// Of two reads at once the later one counts: this is no more than a guess.
    fn note(&self, took: u64) {
        let usual = self.usual.load(Ordering::Relaxed);
        self.usual.store(usual - usual / Pace::PART + took / Pace::PART, Ordering::Relaxed);
    }
}

/// Runs work that waits for a drive on this thread, and hands the thread's other tasks on before.
fn hand_on(work: &mut dyn FnMut()) {
    let has_others = Handle::try_current().is_ok_and(|here| here.runtime_flavor() == RuntimeFlavor::MultiThread);
    match has_others {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn tasks_are_handed_on_where_reads_take_long_and_no_longer_when_they_do_not() {
        fn never(_: &mut dyn FnMut()) {}
        let pace = Pace::new();
        let is_done = |pace: &Pace| {
            let mut done = false;
            pace.wait(&mut || done = true, never);
            done
        };
        assert!(is_done(&pace));
        (0..20).for_each(|_| pace.note(8_000_000));
        assert!(!is_done(&pace));
        (0..100).for_each(|_| pace.note(20_000));
        assert!(is_done(&pace));
    }

    #[test]
    fn other_tasks_go_on_while_one_waits_for_a_drive() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let waits = runtime.spawn(async move {
            let mut answer = None;
            hand_on(&mut || answer = Some(receiver.recv_timeout(Duration::from_secs(10))));
            answer
        });
        let answers = runtime.spawn(async move { sender.send(7) });
        assert_eq!(runtime.block_on(waits).unwrap(), Some(Ok(7)));
        runtime.block_on(answers).unwrap().unwrap();
    }

    #[test]
    fn without_other_tasks_work_is_just_done() {
        let mut done = 0;
        hand_on(&mut || done += 1);
        let alone = tokio::runtime::Builder::new_current_thread().build().unwrap();
        alone.block_on(async { hand_on(&mut || done += 1) });
        assert_eq!(done, 2);
    }
}
