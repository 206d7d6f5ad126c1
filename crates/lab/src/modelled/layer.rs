//! What stands between hosts and a modelled array: a server's processors, a memory that keeps what
//! was read, a controller that reads ahead, or a division into logical drives.
//!
//! Each of them is a set of rules. It decides what becomes of a host's access, and of an answer to
//! what it passed on. Queues, order and the figures of the array behind it are the same for all of
//! them, and are here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use stele_ground::Instant;

use crate::closed::SimulatedTarget;
use crate::workload::Access;

/// The rules of one layer.
pub trait Rules {
    /// Bytes of each logical drive that hosts see, from those of the target behind the layer.
    fn sizes(&self, behind: Vec<u64>) -> Vec<u64> {
        behind
    }

    /// A host's access comes. The layer has to answer its tag, now or later.
    fn takes(&mut self, now: Instant, tag: u64, access: Access, desk: &mut Desk) -> Result<(), String>;

    /// The target behind has answered what was passed on under this tag.
    fn answered(&mut self, now: Instant, tag: u64, desk: &mut Desk);

    /// Seconds that processors of the layer have been at work, in the mean of all; none where it
    /// has none.
    fn processors_worked(&self) -> Option<f64> {
        None
    }
}

/// Events in the order of their times; those of one time in the order of their tags.
type Queue = BinaryHeap<Reverse<(Instant, u64)>>;

/// What a layer has decided, until it happens. Tags of answers are the hosts'. Tags of what is
/// passed on are the layer's, which may be the same ones.
#[derive(Default)]
pub struct Desk {
    answers: Queue,
    passing: Queue,
    accesses: HashMap<u64, Access>,
}

impl Desk {
    /// Answers a host's access at this time.
    pub fn answer(&mut self, at: Instant, tag: u64) {
        self.answers.push(Reverse((at, tag)));
    }

    /// Passes an access on at this time.
    pub fn pass(&mut self, at: Instant, tag: u64, access: Access) {
        self.passing.push(Reverse((at, tag)));
        self.accesses.insert(tag, access);
    }
}

/// The next tag of a queue that is due by `now`.
fn due(queue: &mut Queue, now: Instant) -> Option<u64> {
    let Reverse((at, tag)) = *queue.peek()?;
    (at <= now).then(|| {
        queue.pop();
        tag
    })
}

/// A target behind a layer.
pub struct Layered<R, T> {
    rules: R,
    target: T,
    desk: Desk,
    /// Answers of the target in one step: kept for its memory.
    done: Vec<u64>,
}

impl<R: Rules, T: SimulatedTarget> Layered<R, T> {
    pub fn new(rules: R, target: T) -> Layered<R, T> {
        Layered { rules, target, desk: Desk::default(), done: Vec::new() }
    }

    pub fn behind(&self) -> &T {
        &self.target
    }

    fn pass(&mut self, now: Instant) -> Result<(), String> {
        while let Some(tag) = due(&mut self.desk.passing, now) {
            if let Some(access) = self.desk.accesses.remove(&tag) {
                self.target.submit(now, tag, access)?;
            }
        }
        Ok(())
    }
}

impl<R: Rules, T: SimulatedTarget> SimulatedTarget for Layered<R, T> {
    fn sizes(&self) -> Vec<u64> {
        self.rules.sizes(self.target.sizes())
    }

    fn submit(&mut self, now: Instant, tag: u64, access: Access) -> Result<(), String> {
        self.rules.takes(now, tag, access, &mut self.desk)?;
        self.pass(now)
    }

    fn next_event(&self) -> Option<Instant> {
        let first = |queue: &Queue| queue.peek().map(|Reverse((at, _))| *at);
        let own = [first(&self.desk.answers), first(&self.desk.passing)];
        own.into_iter().chain([self.target.next_event()]).flatten().min()
    }

    fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String> {
        self.pass(now)?;
        let mut done = std::mem::take(&mut self.done);
        self.target.advance(now, &mut done)?;
        for tag in done.drain(..) {
            self.rules.answered(now, tag, &mut self.desk);
            self.pass(now)?;
        }
        self.done = done;
        finished.extend(std::iter::from_fn(|| due(&mut self.desk.answers, now)));
        Ok(())
    }

    fn drives_worked(&self) -> Vec<f64> {
        self.target.drives_worked()
    }

    fn controllers_worked(&self) -> Option<f64> {
        self.target.controllers_worked()
    }

    /// The layer's own, or those of a layer behind it.
    fn processors_worked(&self) -> Option<f64> {
        self.rules.processors_worked().or_else(|| self.target.processors_worked())
    }
}

#[cfg(test)]
pub(crate) mod tests;
