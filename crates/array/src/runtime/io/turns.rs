//! Which of the requests that wait for a drive goes out next: the most urgent, and now and then one
//! of the others.
//!
//! With priorities alone, hosts that keep a drive's queue full with reads would stop destage, and
//! with it their own writes, rebuild and scrub, for as long as they go on.
//!
//! A drive chooses among what it has by the way of its arm. Of many runs it leaves one far away for
//! seconds, and a whole row waits for that one: so it has a few at once.
//!
//! A drive breaks off nothing. What a host asks for waits until the drive has passed over all of a
//! run. Behind several runs that the drive chooses first it waits several times as long. While
//! hosts are active a drive has one run of background work at a time. It gets none while it has
//! much to do for hosts, unless it has done much for them since the last. A rebuild that always has
//! another run waiting must not keep a scrub's away: runs take turns too.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use stele_ground::Duration;
use stele_media::{Priority, Request};

use super::{Io, IoState, NEVER};

/// Of the requests that a drive is handed while others wait, one in so many is the oldest of the
/// less urgent.
pub(super) const TURN: u32 = 8;

/// Runs that a drive has at once.
pub(super) const RUNS_OUT: u32 = 4;
/// Requests of hosts that a drive may have out when it is given a run.
pub(super) const HOSTS_OUT: u32 = 2;
/// A run waits for so many requests of hosts at most.
pub(super) const HOSTS_PASS: u32 = 64;
/// Hosts count as active for so long after they asked for something.
pub(super) const LINGER: Duration = Duration::from_millis(50);

impl Io {
    /// A host asks for something.
    pub fn note_host(&self) {
        self.0.last_host.set(self.now());
    }

    pub(super) fn is_beside_hosts(&self) -> bool {
        let last = self.0.last_host.get();
        last != NEVER && self.now().since(last) < LINGER
    }
}

impl IoState {
    /// Requests that wait.
    pub(super) fn line(&self) -> usize {
        self.waiting.len() + self.held.len() + self.backlog.len()
    }

    /// Whether a run of background work may go out.
    pub(super) fn takes_run(&self, beside_hosts: bool) -> bool {
        match beside_hosts {
            false => self.runs_out < RUNS_OUT,
            true => self.runs_out == 0 && (self.hosts_out <= HOSTS_OUT || self.passed >= HOSTS_PASS),
        }
    }

    /// The next run that was held back, if one may go out now.
    pub(super) fn next_run(&mut self, beside_hosts: bool) -> Option<Request> {
        if !self.takes_run(beside_hosts) {
            return None;
        }
        let next = next_of(&self.held, &mut self.run_turns)?;
        self.held.remove(&next)
    }

    /// The next of those that wait.
    pub(super) fn next_waiting(&mut self) -> Option<Request> {
        let next = next_of(&self.waiting, &mut self.turns)?;
        self.waiting.remove(&next)
    }
}

/// The most urgent, or when it is their turn the oldest of the less urgent.
fn next_of(line: &BTreeMap<(Priority, u64), Request>, turns: &mut u32) -> Option<(Priority, u64)> {
    let (&first, _) = line.first_key_value()?;
    // What an acknowledgement hangs on ends by itself when the log is full, and yields to nothing.
    if first.0 == Priority::Urgent {
        return Some(first);
    }
    *turns = (*turns + 1) % TURN;
    let (mut next, mut class) = (first, first.0);
    while *turns == 0
        && let Some((&lower, _)) = line.range((Excluded((class, u64::MAX)), Unbounded)).next()
    {
        if class == first.0 || lower.1 < next.1 {
            next = lower;
        }
        class = lower.0;
    }
    Some(next)
}
