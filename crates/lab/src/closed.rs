//! A closed loop: so many accesses are outstanding at all times, each answer begets the next access
//! of its target.

use std::collections::HashMap;

use stele_ground::{Duration, Instant};

use crate::histogram::Histogram;
use crate::steady::{ROUNDS, keeps_rule};
use crate::workload::{Access, Generator};

/// Storage that carries out accesses in virtual time.
pub trait SimulatedTarget {
    /// Bytes of each logical drive.
    fn sizes(&self) -> Vec<u64>;

    /// Takes an access; the tag comes back when it is answered. Time never goes backwards between
    /// calls.
    fn submit(&mut self, now: Instant, tag: u64, access: Access) -> Result<(), String>;

    /// When `advance` will have something to do; none while nothing is under way.
    fn next_event(&self) -> Option<Instant>;

    /// Lets everything happen that is due by `now`; the tags answered at this time go to
    /// `finished`.
    fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String>;

    /// Seconds that each drive has been at work so far.
    fn drives_worked(&self) -> Vec<f64>;

    /// Seconds that controllers have been at work so far, all as one; none where there are none.
    fn controllers_worked(&self) -> Option<f64> {
        None
    }

    /// The same of the processors of a server, in the mean of all; none where they are not
    /// modelled.
    fn processors_worked(&self) -> Option<f64> {
        None
    }
}

/// Shares of a span that parts of a target were at work.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Busy {
    /// The mean over all drives, and the one that was at work most.
    pub drives: f64,
    pub busiest_drive: f64,
    pub controllers: Option<f64>,
    pub processors: Option<f64>,
}

/// How long a probe warms up and measures, in accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Length {
    pub warm_up: u64,
    /// Rounds until the answer is steady look at windows of [`ROUNDS`] of so many accesses.
    pub round: u64,
    /// After so many rounds that are not steady, rounds of twice the length are looked at: what
    /// comes and goes (destage from mark to mark, checkpoints) evens out within a round that is
    /// long enough.
    pub rounds_max: u64,
}

/// How often rounds are made longer; then the last window counts, and is called unsteady.
const DOUBLINGS: u32 = 4;

/// What one probe found.
#[derive(Clone, Debug)]
pub struct Probe {
    pub outstanding: u64,
    /// Accesses a second.
    pub rate: f64,
    pub response: Histogram,
    /// Of each round of the window.
    pub rates: Vec<f64>,
    /// The rounds of the window: range at most 20 % of the mean, slope over it at most 10 %.
    pub steady: bool,
}

impl Probe {
    pub fn mean_millis(&self) -> f64 {
        self.response.mean().0 as f64 / 1e6
    }
}

/// Asked while a loop runs; where it says no, the loop ends with an error.
pub type GoesOn<'a> = &'a dyn Fn() -> bool;

/// Answers between two looks at whether it goes on.
const UNWATCHED: u64 = 256;

/// A loop over a target. Kept between probes, so that caches stay as warm as the last probe left
/// them.
pub struct Loop<T> {
    target: T,
    generator: Generator,
    now: Instant,
    sizes: Vec<u64>,
    flying: HashMap<u64, (Access, Instant)>,
    by_target: Vec<u64>,
    next_tag: u64,
    window: Vec<RoundResult>,
}

/// What was answered in one round.
#[derive(Clone, Default, Debug)]
pub struct RoundResult {
    pub read: Histogram,
    pub write: Histogram,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub span: Duration,
    pub busy: Busy,
}

impl RoundResult {
    fn count(&self) -> u64 {
        self.read.count() + self.write.count()
    }

    pub fn rate(&self) -> f64 {
        self.count() as f64 / self.span.as_secs_f64().max(1e-12)
    }

    /// This round and the next one as one.
    fn joined(mut self, next: &RoundResult) -> RoundResult {
        let (before, after) = (self.span.as_secs_f64(), next.span.as_secs_f64());
        let mean = |first: f64, second: f64| (first * before + second * after) / (before + after).max(1e-12);
        self.busy = Busy {
            drives: mean(self.busy.drives, next.busy.drives),
            busiest_drive: mean(self.busy.busiest_drive, next.busy.busiest_drive),
            controllers: self.busy.controllers.zip(next.busy.controllers).map(|(first, second)| mean(first, second)),
            processors: self.busy.processors.zip(next.busy.processors).map(|(first, second)| mean(first, second)),
        };
        self.read.merge(&next.read);
        self.write.merge(&next.write);
        self.read_bytes += next.read_bytes;
        self.written_bytes += next.written_bytes;
        self.span = Duration(self.span.0 + next.span.0);
        self
    }
}

impl<T: SimulatedTarget> Loop<T> {
    pub fn new(target: T, generator: Generator, now: Instant) -> Loop<T> {
        let sizes = target.sizes();
        let by_target = vec![0; sizes.len()];
        Loop { target, generator, now, sizes, flying: HashMap::new(), by_target, next_tag: 0, window: Vec::new() }
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    pub fn target(&self) -> &T {
        &self.target
    }

    pub fn target_mut(&mut self) -> &mut T {
        &mut self.target
    }

    /// The rounds that the last probe's figures come from.
    pub fn window(&self) -> &[RoundResult] {
        &self.window
    }

    /// Keeps `outstanding` accesses under way until so many are answered, and measures nothing.
    pub fn warm_up(&mut self, outstanding: u64, accesses: u64, goes_on: GoesOn<'_>) -> Result<(), String> {
        self.fill(outstanding)?;
        self.run(outstanding, accesses, goes_on).map(drop)
    }

    /// Keeps `outstanding` accesses under way, evenly over the targets, and measures when it is
    /// steady.
    pub fn probe(&mut self, outstanding: u64, length: Length, goes_on: GoesOn<'_>) -> Result<Probe, String> {
        self.warm_up(outstanding, length.warm_up, goes_on)?;
        let mut rounds: Vec<RoundResult> = Vec::new();
        let mut doublings = 0;
        loop {
            rounds.push(self.run(outstanding, length.round << doublings, goes_on)?);
            let window = &rounds[rounds.len().saturating_sub(ROUNDS)..];
            let rates: Vec<f64> = window.iter().map(RoundResult::rate).collect();
            let steady = window.len() == ROUNDS && keeps_rule(&rates);
            let ended = rounds.len() >= ROUNDS && rounds.len() as u64 >= length.rounds_max;
            if steady || (ended && doublings == DOUBLINGS) {
                let mut response = Histogram::default();
                for round in window {
                    response.merge(&round.read);
                    response.merge(&round.write);
                }
                let span: f64 = window.iter().map(|round| round.span.as_secs_f64()).sum();
                self.window = window.to_vec();
                return Ok(Probe {
                    outstanding,
                    rate: response.count() as f64 / span.max(1e-12),
                    response,
                    rates,
                    steady,
                });
            }
            if ended {
                doublings += 1;
                let (pairs, _) = rounds[rounds.len() % 2..].as_chunks();
                rounds = pairs.iter().map(|[first, second]| first.clone().joined(second)).collect();
            }
        }
    }

    fn share(&self, target: usize, outstanding: u64) -> u64 {
        let targets = self.sizes.len() as u64;
        outstanding / targets + u64::from((target as u64) < outstanding % targets)
    }

    fn fill(&mut self, outstanding: u64) -> Result<(), String> {
        for target in 0..self.sizes.len() {
            while self.by_target[target] < self.share(target, outstanding) {
                self.issue(target)?;
            }
        }
        Ok(())
    }

    fn issue(&mut self, target: usize) -> Result<(), String> {
        let access = self.generator.draw(target, self.sizes[target]);
        let tag = self.next_tag;
        self.next_tag += 1;
        self.flying.insert(tag, (access, self.now));
        self.by_target[target] += 1;
        self.target.submit(self.now, tag, access)
    }

    /// Until so many accesses are answered.
    fn run(&mut self, outstanding: u64, accesses: u64, goes_on: GoesOn<'_>) -> Result<RoundResult, String> {
        let since = self.now;
        let target = &self.target;
        let before = (target.drives_worked(), target.controllers_worked(), target.processors_worked());
        let mut round = RoundResult::default();
        let mut finished = Vec::new();
        let mut watched = 0;
        while round.count() < accesses {
            if round.count() >= watched {
                watched = round.count() + UNWATCHED;
                if !goes_on() {
                    return Err("stopped".into());
                }
            }
            let Some(next) = self.target.next_event() else {
                return Err(format!("{} accesses are under way and nothing will happen any more", self.flying.len()));
            };
            self.now = self.now.max(next);
            self.target.advance(self.now, &mut finished)?;
            for tag in finished.drain(..) {
                let Some((access, begun)) = self.flying.remove(&tag) else {
                    return Err(format!("access {tag} was answered twice or never asked"));
                };
                let (histogram, bytes) = match access.write {
                    true => (&mut round.write, &mut round.written_bytes),
                    false => (&mut round.read, &mut round.read_bytes),
                };
                histogram.record(self.now.since(begun));
                *bytes += access.length;
                let target = access.target;
                self.by_target[target] -= 1;
                if self.by_target[target] < self.share(target, outstanding) {
                    self.issue(target)?;
                }
            }
        }
        round.span = self.now.since(since);
        round.busy = self.busy(before, round.span.as_secs_f64().max(1e-12));
        Ok(round)
    }

    fn busy(&self, before: (Vec<f64>, Option<f64>, Option<f64>), span: f64) -> Busy {
        // A command under way at a round's end was counted whole when it began.
        let share = |worked: f64| (worked / span).min(1.0);
        let worked = self.target.drives_worked();
        let shares: Vec<f64> = worked.iter().zip(&before.0).map(|(after, before)| share(after - before)).collect();
        let controllers = self.target.controllers_worked().zip(before.1);
        let processors = self.target.processors_worked().zip(before.2);
        Busy {
            drives: shares.iter().sum::<f64>() / shares.len().max(1) as f64,
            busiest_drive: shares.into_iter().fold(0.0, f64::max),
            controllers: controllers.map(|(after, before)| share(after - before)),
            processors: processors.map(|(after, before)| share(after - before)),
        }
    }
}

#[cfg(test)]
mod tests;
