//! The same job on several hosts at once: each runs `stele lab serve`, one that is asked drives
//! them, and what they found is merged exactly, since histograms are.
//!
//! Lines of JSON over TCP. A host sends a challenge first, and is answered with its HMAC under a
//! secret that both hold; before that it reads no more than a short line. The lines themselves are
//! neither encrypted nor signed. A host that is lost while it measures is left out of the sum, and
//! the record says so.

pub mod client;
pub mod server;
pub mod wire;

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::record::{CellRecord, HistogramRecord, RoundRecord, RunRecord};

/// What one host did in a cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostRecord {
    pub host: String,
    /// Accesses a second.
    pub rate: f64,
    /// Lateness of its generator over the mean response.
    pub lag_share: f64,
    /// Seconds of processor time of its generator and of the whole machine.
    pub cpu_own: f64,
    pub cpu_machine: f64,
    /// It was lost, or failed: its figures are not in the sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Sectors of 512 bytes that its reads brought otherwise than they were written; the first of
    /// them ended its run.
    #[serde(default, skip_serializing_if = "crate::record::is_zero")]
    pub wrong_sectors: u64,
}

impl HostRecord {
    pub fn of(host: &str, run: &RunRecord) -> HostRecord {
        HostRecord {
            host: host.to_owned(),
            rate: run.mean(|round| round.rate),
            lag_share: run.lag_share,
            cpu_own: run.rounds.iter().map(|round| round.cpu_own).sum(),
            cpu_machine: run.rounds.iter().map(|round| round.cpu_machine).sum(),
            failed: None,
            wrong_sectors: 0,
        }
    }

    pub fn failed(host: &str, why: String) -> HostRecord {
        let host = host.to_owned();
        let failed = Some(why);
        HostRecord { host, rate: 0.0, lag_share: 0.0, cpu_own: 0.0, cpu_machine: 0.0, failed, wrong_sectors: 0 }
    }
}

/// What several targets did at once in one cell, each under its name, as one cell. One that failed
/// is not in the sum, unless no other is left. None: it was stopped before anything was counted.
pub fn of_targets(
    names: &[String],
    ran: Vec<Result<Option<CellRecord>, LabError>>,
) -> Result<Option<CellRecord>, LabError> {
    let (mut hosts, mut records, mut errors, mut stopped) = (Vec::new(), Vec::new(), Vec::new(), false);
    for (name, one) in names.iter().zip(ran) {
        match one {
            Ok(None) => stopped = true,
            Ok(Some(record)) => {
                let run = record.runs.last().filter(|_| record.failed.is_none());
                let why = || record.failed.clone().unwrap_or_else(|| "it has no run".into());
                let host = run.map_or_else(|| HostRecord::failed(name, why()), |run| HostRecord::of(name, run));
                hosts.push(HostRecord { wrong_sectors: record.wrong_sectors, ..host });
                records.push(record);
            }
            Err(error) => {
                hosts.push(HostRecord::failed(name, error.to_string()));
                errors.push(error);
            }
        }
    }
    // Wrong data is worse than a target that failed.
    let by_damage = hosts.iter().filter(|host| host.wrong_sectors > 0).chain(&hosts);
    let failed = by_damage.filter_map(|host| Some(format!("{}: {}", host.host, host.failed.as_ref()?))).next();
    if stopped && failed.is_none() {
        return Ok(None);
    }
    let mut runs: Vec<RunRecord> = records
        .iter()
        .filter(|record| record.failed.is_none())
        .filter_map(|record| record.runs.last().cloned())
        .collect();
    if runs.is_empty() {
        runs.extend(records.iter().filter_map(|record| record.runs.last().cloned()).take(1));
    }
    let wrong_sectors = hosts.iter().fold(0, |sum: u64, host| sum.saturating_add(host.wrong_sectors));
    let left_behind = records.iter().any(|record| record.left_behind);
    let Some(first) = records.into_iter().next() else { return errors.into_iter().next().map_or(Ok(None), Err) };
    let Some(run) = merged(&runs) else {
        return Err(LabError::Failed(format!("{}: what all targets did cannot be added up", first.name)));
    };
    Ok(Some(CellRecord { runs: vec![run], hosts, failed, wrong_sectors, left_behind, ..first }))
}

/// All runs together, as far as all of them have rounds. None: there are none, or a histogram
/// contradicts itself.
pub fn merged(runs: &[RunRecord]) -> Option<RunRecord> {
    let count = runs.iter().map(|run| run.rounds.len()).min()?;
    let rounds: Option<Vec<RoundRecord>> = (0..count)
        .map(|number| {
            let rounds: Vec<&RoundRecord> = runs.iter().filter_map(|run| run.rounds.get(number)).collect();
            round(&rounds)
        })
        .collect();
    let rounds = rounds?;
    let lag = together(rounds.iter().map(|round| round.lag_ns));
    let spans = together(rounds.iter().flat_map(|round| [round.read.sum_ns, round.write.sum_ns]));
    let mut all = RunRecord {
        outstanding: runs.iter().map(|run| run.outstanding).try_fold(0, |sum: u32, one| Some(sum.saturating_add(one?))),
        rate_asked: runs.iter().map(|run| run.rate_asked).sum(),
        profile: Vec::new(),
        replay: None,
        workers: runs.iter().fold(0, |sum: u32, run| sum.saturating_add(run.workers)),
        steady: false,
        stopped: runs.iter().any(|run| run.stopped),
        lag_share: lag as f64 / spans.max(1) as f64,
        under_way: runs.iter().map(|run| run.under_way).sum(),
        saturation: runs.iter().filter_map(|run| run.saturation).max_by(f64::total_cmp),
        busy: Vec::new(),
        rounds,
        unanswered: histogram_of(runs.iter().map(|run| &run.unanswered))?,
    };
    all.steady = all.is_steady();
    Some(all)
}

/// A host may say anything: a sum that cannot be counted stays at its end.
fn together(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

fn histogram_of<'a>(parts: impl Iterator<Item = &'a HistogramRecord>) -> Option<HistogramRecord> {
    let mut all = crate::histogram::Histogram::default();
    for part in parts {
        all.merge(&part.histogram()?);
    }
    Some(HistogramRecord::of(&all))
}

fn round(rounds: &[&RoundRecord]) -> Option<RoundRecord> {
    let sum = |of: fn(&RoundRecord) -> f64| rounds.iter().map(|round| of(round)).sum::<f64>();
    let histogram = |of: fn(&RoundRecord) -> &HistogramRecord| histogram_of(rounds.iter().map(|round| of(round)));
    Some(RoundRecord {
        seconds: rounds.iter().map(|round| round.seconds).fold(0.0, f64::max),
        rate: sum(|round| round.rate),
        read_bytes: sum(|round| round.read_bytes),
        written_bytes: sum(|round| round.written_bytes),
        read: histogram(|round| &round.read)?,
        write: histogram(|round| &round.write)?,
        lag_ns: together(rounds.iter().map(|round| round.lag_ns)),
        held_back: together(rounds.iter().map(|round| round.held_back)),
        late: None,
        cpu_own: sum(|round| round.cpu_own),
        cpu_machine: sum(|round| round.cpu_machine),
        // As long as any host was answered, storage answered.
        gap_ns: rounds.iter().map(|round| round.gap_ns).min().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests;
