//! Brings a target into the state that it is measured in: flash that was never written, or was just
//! written in order, is faster than it will ever be again.
//!
//! As the SNIA's performance test does it: the whole working set is written in order so many times,
//! in accesses of 128 KiB. Before a workload that writes at random places it is written so, with
//! that workload's sizes, until the rates of five rounds keep the SNIA's rule. Nothing of it
//! counts, but what was done is kept beside the cell. Where the rule is not kept in time the cell
//! is measured none the less, and says so.

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use stele_ground::{Bytes, Duration};

use crate::error::LabError;
use crate::live::run::{Found, Load, Of, Round, Setup, Timing, run_accesses, run_until};
use crate::live::target::{AccessMethod, Ready};
use crate::steady::{ROUNDS, keeps_rule};
use crate::workload::{AccessSpec, Alignment};

/// Bytes of each access that writes in order, and how many of them are under way.
pub const LENGTH: u64 = 128 << 10;
const OUTSTANDING: u32 = 32;
/// The writing in order ends with a round, and rounds may be as long as a job says.
const ROUND_MAX: Duration = Duration(250_000_000);
/// Times that the working set may be written.
pub const TIMES_MAX: u32 = 100;
/// Rounds of random writes at most, as the SNIA has it.
const ROUNDS_MAX: usize = 25;

/// What was done before a cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PreconditionRecord {
    /// Bytes written in order, and at random places.
    pub ordered_bytes: u64,
    pub random_bytes: u64,
    pub seconds: f64,
    /// The random writes kept the rule at last; none where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady: Option<bool>,
}

/// `2x`: so many times.
pub fn parse(text: &str) -> Option<u32> {
    text.trim().strip_suffix('x')?.parse().ok().filter(|times| (1..=TIMES_MAX).contains(times))
}

/// Sees each round, and ends it all by answering false.
pub type PreconditionWatch<'a> = &'a mut dyn FnMut(&Round) -> bool;

/// None where it was stopped before its end.
pub fn carry_out(
    ready: &Ready,
    setup: &Setup,
    times: u32,
    end: &AtomicBool,
    watch: PreconditionWatch<'_>,
) -> Result<Option<PreconditionRecord>, LabError> {
    if ready.file.is_some() || matches!(ready.way, AccessMethod::S3(_) | AccessMethod::Backup(_)) {
        return Err(LabError::Usage(
            "precondition: files of a directory and objects are written whole when they are made; leave it out, or give one file or a \
             device"
                .into(),
        ));
    }
    let block = ready.block.0.max(512);
    let length = LENGTH.min(ready.size.0) / block * block;
    let accesses = (ready.size.0 / length.max(1)).saturating_mul(times.into());
    let wanted = accesses.saturating_mul(length);
    let mut written = 0;
    let whole = ordered(ready, setup, length, times);
    let found = run_accesses(ready, &whole, accesses, end, &mut |_, round| {
        written += round.written_bytes;
        watch(round)
    })?;
    let mut done =
        PreconditionRecord { ordered_bytes: written, random_bytes: 0, seconds: seconds(&found), steady: None };
    if written < wanted {
        return Ok(None);
    }
    let spec = &setup.spec;
    if !spec.writes() || spec.random.unwrap_or(100) == 0 || setup.of == Of::Names {
        return Ok(Some(done));
    }
    let (mut rates, mut goes_on) = (Vec::new(), true);
    let found = run_until(ready, &random(setup), end, &mut |_, round| {
        goes_on = watch(round);
        done.random_bytes += round.written_bytes;
        rates.push(round.rate);
        goes_on && rates.len() < ROUNDS_MAX && !is_even(&rates)
    })?;
    done.seconds += seconds(&found);
    done.steady = Some(is_even(&rates));
    let over = goes_on && !end.load(std::sync::atomic::Ordering::Relaxed);
    Ok(over.then_some(done))
}

fn is_even(rates: &[f64]) -> bool {
    rates.len() >= ROUNDS && rates.get(rates.len() - ROUNDS..).is_some_and(keeps_rule)
}

fn seconds(found: &Found) -> f64 {
    found.rounds.iter().map(|round| round.span).sum()
}

/// One worker, so that there is one order.
fn ordered(ready: &Ready, setup: &Setup, length: u64, times: u32) -> Setup {
    let name = format!("{times} times in order, {}", Bytes(length));
    Setup {
        spec: AccessSpec { name, random: Some(0), read: Some(0), sizes: vec![(length, 100)] },
        load: Load::Outstanding(if ready.way.is_one_each() { 1 } else { OUTSTANDING }),
        alignment: Alignment::Request,
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers: 1,
        timing: endless(Timing { round: setup.timing.round.min(ROUND_MAX), ..setup.timing }),
        of: Of::Data,
        ..setup.clone()
    }
}

fn random(setup: &Setup) -> Setup {
    Setup {
        spec: AccessSpec { random: Some(100), read: Some(0), ..setup.spec.clone() },
        // Streams would read, too.
        of: if matches!(setup.of, Of::Streams(_)) { Of::Data } else { setup.of },
        load: Load::Outstanding(OUTSTANDING),
        profile: None,
        trace: None,
        pause: None,
        timing: endless(setup.timing),
        ..setup.clone()
    }
}

fn endless(timing: Timing) -> Timing {
    let forever = Duration(u64::MAX);
    Timing { warm_up: Duration(0), least: forever, most: forever, ..timing }
}

#[cfg(test)]
mod tests;
