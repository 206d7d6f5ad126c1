//! The `.lab` file: what was measured, whole. Lines of JSON: a head with the job and the machine, a
//! line for each cell as it ends, and at the end a line with the BLAKE3 digest of all lines before
//! it.
//!
//! A file without its last line is of a run that was stopped or killed: its cells are good, and a
//! run may go on behind them. A digest that does not fit is an error: figures are not to be changed
//! by hand. Every round's histograms are kept, so that whatever a report wants to know can be
//! computed later. See FORMAT/lab.md.

use serde::{Deserialize, Serialize};
use stele_ground::{Duration, counted};

use crate::histogram::Histogram;
use crate::hosts::HostRecord;
use crate::job::{Job, JobCell};
use crate::live::read_back::ReadBack;
use crate::live::run::{Found, Load, Of};
use crate::objective::ObjectiveRecord;
use crate::precondition::PreconditionRecord;
use crate::profile::Profile;
use crate::replay::ReplayRecord;
use crate::search::rate::HighestRate;
use crate::search::{Ending, Goal, Highest, Statistic, margin_of};
use crate::steady;

mod file;
mod rounds;

pub use file::{Recorded, Recorder, ended, exists, head_from, read, read_from};
pub use rounds::{HistogramRecord, RoundRecord};

pub const VERSION: u32 = 1;

/// A load that falls short by more than this share was not reached.
const UNREACHED: f64 = 0.05;
/// Where a changing rate asks for less, times without an answer are its own.
const LEAST_ASKED: f64 = 10.0;
/// What was not answered at the end is told where it waited for as long as makes a gap.
const NOTED: Duration = Duration(1_000_000_000);
/// Threads that are busy for a larger share of the time are what is measured.
const SATURATED: f64 = 0.9;

#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Head {
    /// Of the format.
    pub version: u32,
    /// Of the program that measured.
    pub program: String,
    /// Seconds since 1970 when it began.
    pub begun: u64,
    pub target: String,
    /// Of a comparison: the target that it is compared against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// What it turned out to be, and how it was reached.
    pub reached: String,
    pub target_bytes: u64,
    pub environment: Vec<(String, String)>,
    pub job: Job,
}

#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct CellRecord {
    pub number: usize,
    pub name: String,
    pub axes: Vec<(String, String)>,
    pub workload: String,
    /// Its accesses looked at names, or made and removed them: they moved no data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub names: bool,
    /// One for a plain run; all probes of a search, in the order in which they were made.
    pub runs: Vec<RunRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchRecord>,
    /// Of a run on several hosts, what each of them did; the runs are all of them together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostRecord>,
    /// Why it ended before its time: the target failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// What its accesses were to keep, and whether they did; of a search that is in `search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<ObjectiveRecord>,
    /// What was written before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precondition: Option<PreconditionRecord>,
    /// Sectors of 512 bytes that its reads brought otherwise than they were written; the first of
    /// them ended it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wrong_sectors: u64,
    /// All of the target was read after it, since reads are checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_back: Option<ReadBack>,
    /// A thread still waited for the target when it was given up, so that nothing could be read
    /// back.
    #[serde(skip)]
    pub left_behind: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SearchRecord {
    pub response_ns: u64,
    /// Share of the accesses; none: the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile: Option<f64>,
    /// Accesses a second there.
    pub rate: f64,
    /// Half the width of its 95 % confidence interval. None of a search in open loops, whose answer
    /// lies between `rate` and `beyond`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
    pub outstanding: f64,
    pub steady: bool,
    /// Of a search in open loops: the accesses a second of its answer, as they were asked for.
    /// Absent: accesses outstanding were raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_asked: Option<f64>,
    /// Of a search in open loops: the lowest rate that missed the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<f64>,
    /// At twice as many outstanding, where that was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub twice: Option<Twice>,
    /// The response was never exceeded, or always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_end: Option<String>,
}

/// What was found beyond the answer of a search.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Twice {
    pub outstanding: u32,
    pub rate: f64,
    pub response_ns: u64,
}

#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_asked: Option<f64>,
    /// Of a rate that changed: seconds after the warm-up, and accesses a second; `rate_asked` is
    /// its mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profile: Vec<(f64, f64)>,
    /// Of a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayRecord>,
    pub workers: u32,
    pub steady: bool,
    pub stopped: bool,
    /// Lateness of the generator over the mean response.
    pub lag_share: f64,
    /// Accesses under way in the mean, by Little's law; absent where pauses keep them away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_way: Option<f64>,
    /// Share of the time that the generator's threads were at work or waited for a processor;
    /// absent where their work is the target's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<f64>,
    /// Parts of a modelled array, and the share of the time that they were at work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<(String, f64)>,
    pub rounds: Vec<RoundRecord>,
    /// How long each access had waited, or had taken, that was not answered before the last round
    /// was over.
    #[serde(default, skip_serializing_if = "HistogramRecord::is_empty")]
    pub unanswered: HistogramRecord,
}

pub(crate) fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Rounded to so many parts of one, so that a value has no more digits than are read again exactly.
pub fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

pub const THOUSANDTHS: f64 = 1e3;
pub const BILLIONTHS: f64 = 1e9;

/// A run's rounds together.
#[derive(Clone, Default, Debug)]
pub struct Total {
    pub rate: f64,
    pub bytes: f64,
    pub read: Histogram,
    pub write: Histogram,
    /// Reads and writes.
    pub response: Histogram,
    /// Microseconds of processor time for each access: of the generator's process, and of the whole
    /// machine.
    pub cpu_own: f64,
    pub cpu_machine: f64,
}

impl RunRecord {
    pub fn of(found: &Found) -> RunRecord {
        let (outstanding, rate_asked) = match found.setup.load {
            Load::Outstanding(count) => (Some(count), None),
            Load::Rate { each_second, .. } => (None, Some(each_second)),
            Load::Bytes { each_second, .. } => (None, Some(each_second / found.setup.spec.mean_length() as f64)),
        };
        // The mean of a profile or a trace has any number of digits.
        let is_mean = found.setup.profile.is_some() || found.setup.trace.is_some();
        let rate_asked = rate_asked.map(|rate| if is_mean { rounded(rate, THOUSANDTHS) } else { rate });
        let points = found.setup.profile.as_ref().map_or_else(Vec::new, |profile| profile.points());
        let point = |(at, rate): (f64, f64)| (rounded(at, BILLIONTHS), rounded(rate, THOUSANDTHS));
        RunRecord {
            outstanding,
            rate_asked,
            profile: points.into_iter().map(point).collect(),
            replay: None,
            workers: found.workers,
            steady: found.steady,
            stopped: found.stopped,
            lag_share: rounded(found.lag_share(), BILLIONTHS),
            under_way: found.under_way().map(|count| rounded(count, THOUSANDTHS)),
            saturation: found.saturation().map(|share| rounded(share, THOUSANDTHS)),
            busy: Vec::new(),
            rounds: found.rounds.iter().map(RoundRecord::of).collect(),
            unanswered: HistogramRecord::of(&found.unanswered),
        }
    }

    /// All responses, and with them what was not answered at the end and had waited for longer than
    /// that: whatever is asked of it, it has missed. And how many those are.
    pub fn responses_within(&self, limit: Duration) -> (Histogram, u64) {
        let late = self.unanswered.histogram().unwrap_or_default().beyond(limit);
        let mut all = self.total().response;
        all.merge(&late);
        (all, late.count())
    }

    pub fn total(&self) -> Total {
        let rate = self.mean(|round| round.rate);
        let bytes = self.mean(|round| round.read_bytes + round.written_bytes);
        let mut total = Total { rate, bytes, ..Total::default() };
        for round in &self.rounds {
            total.read.merge(&round.read.histogram().unwrap_or_default());
            total.write.merge(&round.write.histogram().unwrap_or_default());
            total.cpu_own += round.cpu_own;
            total.cpu_machine += round.cpu_machine;
        }
        total.response = total.read.clone();
        total.response.merge(&total.write);
        let each = 1e6 / total.response.count().max(1) as f64;
        (total.cpu_own, total.cpu_machine) = (total.cpu_own * each, total.cpu_machine * each);
        total
    }

    /// What was done over the time that it took, where rounds say how much they did each second:
    /// their mean, each by its length.
    pub fn mean(&self, of: impl Fn(&RoundRecord) -> f64) -> f64 {
        let seconds: f64 = self.rounds.iter().map(|round| round.seconds).sum();
        // The sum of nothing is -0.
        self.rounds.iter().fold(0.0, |sum, round| sum + of(round) * round.seconds) / seconds.max(1e-9)
    }

    /// Why the rounds are not those of a steady state, from the rounds alone. What is stored of it
    /// is what was known then.
    pub fn shortfall(&self) -> Option<String> {
        if self.rounds.is_empty() {
            return (!self.steady).then(|| "there are no rounds".to_owned());
        }
        if self.replay.is_some() {
            // A trace has the gaps and the rates that it has.
            return None;
        }
        if !self.profile.is_empty() {
            // Gaps that were asked for are none of the target's.
            let asked = self.asked();
            let busy = self.rounds.iter().zip(&asked).filter(|(_, asked)| **asked > LEAST_ASKED);
            let gaps = busy.map(|(round, _)| Duration(round.gap_ns));
            return steady::longest_gap(&self.rates(), gaps).or_else(|| self.behind());
        }
        let gaps = self.rounds.iter().map(|round| Duration(round.gap_ns));
        let changed = steady::shortfall_with_gaps(&self.rates(), gaps);
        changed.or_else(|| self.stretched()).or_else(|| self.overloaded())
    }

    /// A rate that is the same at all times was not kept: what waits, and so each response, grows
    /// for as long as the run lasts.
    fn overloaded(&self) -> Option<String> {
        let asked = self.rate_asked?;
        let rates = self.rates();
        let found = self.mean(|round| round.rate);
        let count = self.rounds.iter().map(|round| round.rate * round.seconds).sum::<f64>();
        // Chance alone moves what is drawn by so much, and lengths that differ where bytes are
        // asked for.
        let noise = (found * 3.0 / count.max(1.0).sqrt()).max(margin_of(&rates).unwrap_or(0.0));
        (found + noise < asked * (1.0 - UNREACHED))
            .then(|| format!("the rate was not kept: {found:.0} a second were answered, {asked:.0} asked for"))
    }

    /// A rate that changes is answered as it was asked for, or the round is told in which it first
    /// was not.
    fn behind(&self) -> Option<String> {
        let asked = self.asked();
        let late = |(round, asked): &(&RoundRecord, f64)| {
            // Chance alone moves what is drawn by so much.
            let noise = 3.0 / (asked * round.seconds).max(1.0).sqrt();
            round.rate < asked * (1.0 - UNREACHED - noise)
        };
        let pairs = || self.rounds.iter().zip(asked.iter().copied());
        let count = pairs().filter(late).count();
        let (number, (round, asked)) = pairs().enumerate().find(|(_, pair)| late(pair))?;
        Some(format!(
            "the target fell behind in {count} of {}, first in round {}: {:.0} a second were answered, {asked:.0} asked for",
            counted(self.rounds.len() as u64, "round"),
            number + 1,
            round.rate
        ))
    }

    /// Of a rate that changes, accesses a second that were asked for, round by round.
    pub fn asked(&self) -> Vec<f64> {
        let profile = Profile::of(&self.profile);
        let mut at = 0.0;
        let each = |round: &RoundRecord| {
            let before = profile.started(at);
            at += round.seconds;
            (profile.started(at) - before) / round.seconds.max(1e-9)
        };
        self.rounds.iter().map(each).collect()
    }

    /// The load that was asked for was not reached, or the generator was what was measured.
    pub fn shortcomings(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.rounds.is_empty() {
            return found;
        }
        found.extend(self.replay.as_ref().map(|replay| replay.said(self)));
        if let (Some(asked), Some(reached)) = (self.outstanding, self.under_way)
            && reached < f64::from(asked) * (1.0 - UNREACHED)
        {
            found.push(format!(
                "the load was not reached: {asked} outstanding were asked for, and by Little's law {reached:.1} were"
            ));
        }
        found.extend(self.left_unanswered());
        if let Some(share) = self.saturation.filter(|share| *share > SATURATED) {
            found.push(format!(
                "the generator was busy for {:.0} % of the time of its {}: the rate may be its own; ask for more \
                 workers, or measure from more hosts",
                share * 100.0,
                counted(self.workers.into(), "thread")
            ));
        }
        found
    }

    /// At the end something had waited for longer than anything that was answered: it belongs to no
    /// figure.
    fn left_unanswered(&self) -> Option<String> {
        let waited = self.unanswered.histogram()?;
        let longest = self.total().response.longest().max(NOTED);
        let count = waited.beyond(longest).count();
        (count > 0).then(|| {
            format!(
                "{} not answered when it ended, after a longer wait than that of any other, the oldest for {}",
                if count == 1 { "1 access was".to_owned() } else { format!("{count} accesses were") },
                waited.longest()
            )
        })
    }

    pub fn is_steady(&self) -> bool {
        self.shortfall().is_none()
    }

    /// A round of a former version became longer where the target stood still. Rounds in virtual
    /// time are so many accesses.
    fn stretched(&self) -> Option<String> {
        let mut lengths: Vec<f64> = self.rounds.iter().map(|round| round.seconds).collect();
        lengths.sort_by(f64::total_cmp);
        let usual = lengths.get(lengths.len() / 2).copied().filter(|_| self.busy.is_empty())?;
        let longest = self.rounds.iter().position(|round| round.seconds >= usual + 1.0)?;
        let took = self.rounds.get(longest)?.seconds;
        Some(format!("a gap: round {} took {took:.1} s, and the others {usual:.1} s", longest + 1))
    }

    /// Accesses a second, round by round.
    pub fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.rate).collect()
    }

    pub fn load(&self) -> String {
        match (self.outstanding, self.rate_asked) {
            (_, Some(_)) if self.replay.is_some() => "the trace's clock".into(),
            (_, Some(rate)) if !self.profile.is_empty() => format!("profile of {rate:.0} a second"),
            (Some(count), _) => format!("{count} outstanding"),
            (None, Some(rate)) => {
                let short = rounded(rate, THOUSANDTHS);
                format!("{} a second", if short > 0.0 { short } else { rate })
            }
            (None, None) => String::new(),
        }
    }
}

impl CellRecord {
    pub fn plain(number: usize, cell: &JobCell, found: &Found) -> CellRecord {
        let run = RunRecord::of(found);
        CellRecord {
            wrong_sectors: found.wrong.sectors,
            left_behind: found.left_behind,
            objective: cell.objective.map(|objective| ObjectiveRecord::of(objective, &run)),
            ..CellRecord::with(number, cell, vec![run], None)
        }
    }

    /// Of a trace; its name is still to be said.
    pub fn of_replay(run: RunRecord) -> CellRecord {
        CellRecord {
            number: 0,
            name: String::new(),
            axes: Vec::new(),
            workload: "replay".into(),
            names: false,
            runs: vec![run],
            search: None,
            hosts: Vec::new(),
            failed: None,
            objective: None,
            precondition: None,
            wrong_sectors: 0,
            read_back: None,
            left_behind: false,
        }
    }

    pub fn with(number: usize, cell: &JobCell, runs: Vec<RunRecord>, search: Option<SearchRecord>) -> CellRecord {
        CellRecord {
            number,
            name: cell.name(),
            axes: cell.axes.clone(),
            workload: cell.setup.spec.name.clone(),
            names: cell.setup.of == Of::Names,
            runs,
            search,
            hosts: Vec::new(),
            failed: None,
            objective: None,
            precondition: None,
            wrong_sectors: 0,
            read_back: None,
            left_behind: false,
        }
    }

    /// What a run at twice the load found; it is one of the cell's runs, too.
    pub fn add_twice(&mut self, run: RunRecord, goal: Goal) {
        let (Some(search), Some(outstanding)) = (&mut self.search, run.outstanding) else { return };
        let total = run.total();
        let response = goal.statistic.of_all(&total.response);
        search.twice = Some(Twice { outstanding, rate: rounded(total.rate, THOUSANDTHS), response_ns: response.0 });
        self.runs.push(run);
    }

    /// The figures are those of a steady state: of a search, at both probes around the answer.
    pub fn is_steady(&self) -> bool {
        match &self.search {
            Some(search) => search.steady && self.around(search).into_iter().all(RunRecord::is_steady),
            None => self.runs.last().is_some_and(RunRecord::is_steady),
        }
    }

    /// The probes around the answer of a search; of one in open loops those at the answer.
    fn around(&self, search: &SearchRecord) -> Vec<&RunRecord> {
        if let Some(asked) = search.rate_asked {
            return self.runs.iter().filter(|run| run.rate_asked == Some(asked)).collect();
        }
        let response = |run: &RunRecord| Statistic::from(search.percentile).of_all(&run.total().response).0;
        let (within, beyond): (Vec<&RunRecord>, Vec<&RunRecord>) =
            self.runs.iter().partition(|run| response(run) <= search.response_ns);
        let within = within.into_iter().max_by_key(|run| run.outstanding);
        let least = within.map_or(Some(0), |run| run.outstanding);
        let beyond = beyond.into_iter().filter(|run| run.outstanding > least).min_by_key(|run| run.outstanding);
        within.into_iter().chain(beyond).collect()
    }

    fn moved_nothing(&mut self) {
        self.names = true;
        for round in self.runs.iter_mut().flat_map(|run| &mut run.rounds) {
            (round.read_bytes, round.written_bytes) = (0.0, 0.0);
        }
    }

    /// Accesses of a mixed load were reads and writes; then each has its own responses.
    pub fn is_mixed(&self) -> bool {
        let counts = |run: &RunRecord| {
            let total = run.total();
            total.read.count() > 0 && total.write.count() > 0
        };
        self.runs.iter().any(counts)
    }

    /// The target gave back something else than was written.
    pub fn is_damaged(&self) -> bool {
        self.wrong_sectors > 0 || self.read_back.as_ref().is_some_and(|found| !found.wrong.is_none())
    }

    /// The value of an axis.
    pub fn axis(&self, name: &str) -> Option<&str> {
        self.axes.iter().find(|(axis, _)| axis == name).map(|(_, value)| value.as_str())
    }
}

impl SearchRecord {
    /// Half the width of the rate's interval. What former versions kept of a search in open loops
    /// is none.
    pub fn margin(&self) -> Option<f64> {
        self.margin.filter(|_| !self.is_of_rates())
    }

    /// Rates of open loops were searched.
    pub fn is_of_rates(&self) -> bool {
        self.rate_asked.is_some() || self.beyond.is_some()
    }

    pub fn of(goal: Goal, highest: &Highest) -> SearchRecord {
        let open_end = match highest.ending {
            Ending::Found => None,
            Ending::NeverExceeded => Some("the response was never exceeded".to_owned()),
            Ending::AlwaysExceeded => Some("the response was always exceeded".to_owned()),
            Ending::OutOfProbes => Some("the search ran out of probes on one side of the response".to_owned()),
        };
        SearchRecord {
            response_ns: goal.response.0,
            percentile: match goal.statistic {
                Statistic::Mean => None,
                Statistic::Percentile(share) => Some(share),
            },
            rate: rounded(highest.rate, THOUSANDTHS),
            margin: highest.margin.map(|margin| rounded(margin, THOUSANDTHS)),
            outstanding: rounded(highest.load, THOUSANDTHS),
            steady: highest.steady,
            rate_asked: None,
            beyond: None,
            twice: None,
            open_end,
        }
    }

    /// Of a search in open loops, whose last run at the answer this is.
    pub fn of_rate(goal: Goal, highest: &HighestRate, run: Option<&RunRecord>) -> SearchRecord {
        let open_end = match highest.ending {
            Ending::Found => None,
            Ending::NeverExceeded => Some("the objective was never missed".to_owned()),
            Ending::AlwaysExceeded => Some(
                "the objective was always missed; lower rates have too few accesses to tell, unless they are measured longer"
                    .to_owned(),
            ),
            Ending::OutOfProbes => Some("the search ran out of probes on one side of the objective".to_owned()),
        };
        let total = run.map(RunRecord::total).unwrap_or_default();
        SearchRecord {
            response_ns: goal.response.0,
            percentile: match goal.statistic {
                Statistic::Mean => None,
                Statistic::Percentile(share) => Some(share),
            },
            rate: rounded(total.rate, THOUSANDTHS),
            // Rounds answer what was asked for: they say nothing of how well the highest rate is
            // known.
            margin: None,
            outstanding: rounded(total.rate * total.response.mean().as_secs_f64(), THOUSANDTHS),
            steady: run.is_some_and(RunRecord::is_steady),
            rate_asked: highest.within.map(|rate| rate as f64),
            beyond: highest.beyond.map(|rate| rate as f64),
            twice: None,
            open_end,
        }
    }
}

#[cfg(test)]
mod tests;
