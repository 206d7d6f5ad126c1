//! Gathers what workers hand over into rounds, and decides when a run is over.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Instant as WallInstant;

use stele_ground::{Duration, Instant};

use super::{LOOK, Round, RoundWatch, Setup};
use crate::live::clock::{Gate, Meeting};
use crate::live::target::Ready;
use crate::live::worker::{Report, WorkerRound};
use crate::live::wrong::Wrong;
use crate::steady;
use crate::usage::Usage;

/// How often a run looks whether those beside it are ready.
const MEETING: std::time::Duration = std::time::Duration::from_millis(1);

#[derive(Default)]
pub struct Gathered {
    pub rounds: Vec<Round>,
    pub steady: bool,
    pub stopped: bool,
    pub failed: Option<String>,
    /// What reads brought that is not as it was written.
    pub wrong: Wrong,
}

/// Waits until every worker is ready; a worker may take as long as a server is waited for.
fn all_ready(workers: u32, reports: &mpsc::Receiver<Report>, end: &AtomicBool) -> Result<bool, String> {
    let mut ready = 0;
    while ready < workers {
        match reports.recv_timeout(LOOK) {
            _ if end.load(Ordering::Relaxed) => return Ok(false),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Report::Part(_) | Report::Wrong(_) | Report::Left(_) | Report::Settled { .. }) => {}
            Ok(Report::Ready) => ready += 1,
            Ok(Report::Ended(result)) => return Err(result.err().unwrap_or_else(|| "a worker ended by itself".into())),
            Err(RecvTimeoutError::Disconnected) => return Err("all workers are gone".into()),
        }
    }
    Ok(true)
}

/// Waits for the runs beside it; false where it was ended meanwhile.
fn met(meeting: &Meeting, end: &AtomicBool) -> bool {
    while !meeting.is_whole() {
        if end.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(MEETING);
    }
    true
}

/// What tells of workers, and what lets them begin and end.
pub struct Seen<'a> {
    pub reports: &'a mpsc::Receiver<Report>,
    pub end: &'a AtomicBool,
    pub gate: &'a Gate,
    pub meeting: &'a Meeting,
}

pub fn gather(ready: &Ready, workers: u32, setup: &Setup, seen: &Seen<'_>, watch: RoundWatch<'_>) -> Gathered {
    let Seen { reports, end, gate, meeting } = *seen;
    let timing = setup.timing;
    let warm_up = timing.warm_up.0.div_ceil(timing.round.0.max(1)) as i64;
    let least = timing.least.0.div_ceil(timing.round.0.max(1)).max(1) as usize;
    let most = timing.most.0.div_ceil(timing.round.0.max(1)).max(1) as usize;
    let mut gathered = Gathered::default();
    let begun = all_ready(workers, reports, end);
    meeting.arrive();
    match begun.map(|begun| begun && met(meeting, end)) {
        Ok(true) => {}
        Ok(false) => {
            gathered.stopped = true;
            return gathered;
        }
        Err(why) => {
            gathered.failed = Some(why);
            return gathered;
        }
    }
    let origin = WallInstant::now();
    gate.open(origin);
    // Parts of the rounds that not all workers have ended yet.
    let mut parts: BTreeMap<u64, Vec<WorkerRound>> = BTreeMap::new();
    let mut usage = Usage::now();
    // A worker that is answered says so once a round.
    let mut heard = Heard::of(workers, Duration(ready.patience.0.saturating_add(timing.round.0)));
    loop {
        let part = match reports.recv_timeout(LOOK) {
            _ if end.load(Ordering::Relaxed) => {
                gathered.stopped = true;
                return gathered;
            }
            Err(RecvTimeoutError::Timeout) => {
                // All that was said is known.
                heard.until(Instant(origin.elapsed().as_nanos() as u64));
                if heard.is_silent() {
                    gathered.failed = Some(silent(ready));
                    return gathered;
                }
                continue;
            }
            Ok(Report::Ready | Report::Settled { .. }) => continue,
            // It fails, and says why next.
            Ok(Report::Left(_)) => continue,
            Ok(Report::Part(part)) => *part,
            Ok(Report::Wrong(wrong)) => {
                gathered.wrong = wrong;
                return gathered;
            }
            Ok(Report::Ended(result)) => {
                gathered.failed = Some(result.err().unwrap_or_else(|| "a worker ended by itself".into()));
                return gathered;
            }
            Err(RecvTimeoutError::Disconnected) => {
                gathered.failed = Some("all workers are gone".into());
                return gathered;
            }
        };
        let number = part.round;
        heard.part(&part, timing.round);
        if heard.is_silent() {
            gathered.failed = Some(silent(ready));
            return gathered;
        }
        let so_far = parts.entry(number).or_default();
        so_far.push(part);
        if so_far.len() < workers as usize {
            continue;
        }
        // Each worker hands its rounds over in their order, so rounds become whole in theirs.
        let whole = parts.remove(&number).unwrap_or_default();
        let is_over = whole.iter().all(|part| part.is_done);
        let before = std::mem::replace(&mut usage, Usage::now());
        let round = merged(whole, timing.round, before, usage);
        let number = number as i64 - warm_up;
        let goes_on = watch(number, &round);
        if number >= 0 {
            gathered.rounds.push(round);
        }
        let counted = gathered.rounds.len();
        if goes_on && is_over {
            return gathered;
        }
        if !goes_on || counted >= least {
            gathered.steady = shortfall(&gathered.rounds).is_none();
        }
        if !goes_on || counted >= most || (counted >= least && gathered.steady) {
            gathered.stopped = !goes_on;
            return gathered;
        }
    }
}

/// Why rounds are not those of a steady state.
pub fn shortfall(rounds: &[Round]) -> Option<String> {
    let rates: Vec<f64> = rounds.iter().map(|round| round.rate).collect();
    steady::shortfall_with_gaps(&rates, rounds.iter().map(|round| round.gap))
}

/// Why a target is given up that lets a worker wait for longer than its patience.
fn silent(ready: &Ready) -> String {
    format!(
        "the target has answered nothing to a worker for {}; a slower one is waited for with --patience",
        ready.patience
    )
}

/// When each worker was last answered, by the clock of the run.
///
/// Many workers on few processors say more than is read at once. What they say is read late, and
/// in its order. So the time is that of the latest round that was read of, and the clock's only
/// where nothing is left to read: the reader's own delay is no silence of the target.
struct Heard {
    answered: Vec<Instant>,
    now: Instant,
    /// A longer silence is a failure.
    most: Duration,
}

impl Heard {
    fn of(workers: u32, most: Duration) -> Heard {
        Heard { answered: vec![Instant(0); workers as usize], now: Instant(0), most }
    }

    /// A round that a worker ended.
    fn part(&mut self, part: &WorkerRound, round: Duration) {
        let end = Instant(part.round.saturating_add(1).saturating_mul(round.0));
        let is_answered = part.read.count() + part.write.count() > 0;
        if let Some(answered) = self.answered.get_mut(part.worker as usize)
            && (is_answered || !part.awaits)
        {
            *answered = end.max(*answered);
        }
        self.until(end);
    }

    fn until(&mut self, now: Instant) {
        self.now = now.max(self.now);
    }

    fn is_silent(&self) -> bool {
        self.answered.iter().any(|answered| self.now.since(*answered) > self.most)
    }
}

pub fn merged(parts: Vec<WorkerRound>, length: Duration, before: Usage, after: Usage) -> Round {
    let span = length.as_secs_f64().max(1e-9);
    let mut round = Round {
        cpu_own: after.own - before.own,
        cpu_machine: after.machine - before.machine,
        waited_own: after.waited - before.waited,
        span,
        gap: gap(&parts),
        ..Round::default()
    };
    for part in parts {
        round.written_bytes += part.written_bytes;
        round.read_bytes_rate += part.read_bytes as f64 / span;
        round.read.merge(&part.read);
        round.write.merge(&part.write);
        round.lag = Duration(round.lag.0 + part.lag.0);
        round.held_back += part.held_back;
        round.late.merge(&part.late);
    }
    round.read_rate = round.read.count() as f64 / span;
    round.rate = round.read_rate + round.write.count() as f64 / span;
    round.written_bytes_rate = round.written_bytes as f64 / span;
    round
}

/// The longest time in which none of the workers was answered.
pub fn gap(parts: &[WorkerRound]) -> Duration {
    let mut common: Option<Vec<(Instant, Instant)>> = None;
    for part in parts {
        common = Some(match common {
            None => part.idle.clone(),
            Some(before) => {
                let both =
                    |left: &(Instant, Instant), right: &(Instant, Instant)| (left.0.max(right.0), left.1.min(right.1));
                let pairs = before.iter().flat_map(|left| part.idle.iter().map(move |right| both(left, right)));
                pairs.filter(|(begin, end)| begin < end).collect()
            }
        });
    }
    let spans = common.unwrap_or_default().into_iter().map(|(begin, end)| end.since(begin));
    spans.max().unwrap_or(Duration(0))
}

#[cfg(test)]
mod tests;
