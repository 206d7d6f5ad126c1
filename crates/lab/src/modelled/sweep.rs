//! Jobs whose target is an array of modelled drives: its own axes before those of the workload.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::run::QueryPlan;
use super::{Answer, Array, Effort, LogPlace, Maker, MeasuredProbe, Query};
use crate::closed::{Busy, RoundResult};
use crate::error::LabError;
use crate::job::{Axes, Given, Job, JobCell};
use crate::live::run::Load;
use crate::raid::Level;
use crate::record::{
    BILLIONTHS, CellRecord, HistogramRecord, RoundRecord, RunRecord, SearchRecord, THOUSANDTHS, rounded,
};

/// Outstanding accesses that a search tries at most where nothing is said.
const OUTSTANDING_MAX: u64 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    On,
    Off,
}

impl Switch {
    fn name(self) -> &'static str {
        match self {
            Switch::On => "on",
            Switch::Off => "off",
        }
    }
}

/// Arrays as a job speaks of them. Each list is an axis.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct VirtualPart {
    /// `stele`; `stele-cpu:2`, the same on two processors; or `ds4500`, the profile of the
    /// published machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<Given<Maker>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drives: Option<Given<u32>>,
    /// 5, 6 (8+2) or 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid: Option<Given<u8>>,
    /// Writes are answered from memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Given<Switch>>,
    /// Percent of each drive that is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stroke: Option<Given<u8>>,
}

fn values<T: Clone>(given: &Option<Given<T>>, default: T) -> Vec<T> {
    given.as_ref().map_or_else(|| vec![default], Given::values)
}

fn given<T: Clone>(values: Vec<T>) -> Option<Given<T>> {
    match values.as_slice() {
        [one] => Some(Given::One(one.clone())),
        _ => Some(Given::Many(values)),
    }
}

impl VirtualPart {
    /// From words like `drives=20,60` and `cache=on,off`; what they leave out stays.
    pub fn set(&mut self, words: &[String]) -> Result<(), LabError> {
        for word in words {
            let bad = |why: &str| LabError::Usage(format!("--virtual {word}: {why}"));
            let (axis, list) = word.split_once('=').ok_or_else(|| bad("say it like drives=20,60"))?;
            let numbers = |like: &str| -> Result<Vec<u32>, LabError> {
                list.split(',').map(|text| text.trim().parse().map_err(|_| bad(like))).collect()
            };
            let small = |like: &str| -> Result<Vec<u8>, LabError> {
                numbers(like)?.into_iter().map(|number| u8::try_from(number).map_err(|_| bad(like))).collect()
            };
            match axis {
                "array" => self.array = given(list.split(',').map(str::parse).collect::<Result<_, _>>()?),
                "drives" => self.drives = given(numbers("numbers of drives, like 20,60,100")?),
                "raid" => self.raid = given(small("5, 6 (8+2) or 10, or several like 5,10")?),
                "stroke" => self.stroke = given(small("percent of each drive that is used, like 8,45,90")?),
                "cache" => {
                    let switch = |text: &str| match text.trim() {
                        "on" => Ok(Switch::On),
                        "off" => Ok(Switch::Off),
                        _ => Err(bad("on, off, or on,off")),
                    };
                    self.cache = given(list.split(',').map(switch).collect::<Result<_, _>>()?);
                }
                _ => return Err(bad("the axes of modelled arrays are array, drives, raid, cache and stroke")),
            }
        }
        Ok(())
    }

    /// All arrays, with what tells them apart.
    fn arrays(&self) -> Result<Vec<(Axes, Array)>, LabError> {
        let (makers, drives) = (values(&self.array, Maker::Stele), values(&self.drives, 20));
        let (raids, caches) = (values(&self.raid, 5), values(&self.cache, Switch::On));
        let strokes = values(&self.stroke, 8);
        let mut arrays = Vec::new();
        let several = |axes: &mut Axes, name: &str, count: usize, value: &dyn Display| {
            if count > 1 {
                axes.push((name.to_owned(), value.to_string()));
            }
        };
        for maker in &makers {
            for drive in &drives {
                for raid in &raids {
                    for cache in &caches {
                        for stroke in &strokes {
                            let mut axes = Axes::new();
                            several(&mut axes, "array", makers.len(), maker);
                            several(&mut axes, "drives", drives.len(), drive);
                            several(&mut axes, "raid", raids.len(), raid);
                            several(&mut axes, "cache", caches.len(), &cache.name());
                            several(&mut axes, "stroke", strokes.len(), stroke);
                            let level = Level::numbered(*raid)
                                .ok_or_else(|| LabError::Usage(format!("raid={raid}: 5, 6 or 10")))?;
                            let cached = *cache == Switch::On;
                            let (maker, drives, stroke) = (*maker, *drive, *stroke);
                            let array = Array { maker, level, drives, cached, stroke, log: LogPlace::Memory };
                            array.check()?;
                            arrays.push((axes, array));
                        }
                    }
                }
            }
        }
        Ok(arrays)
    }
}

/// All cells of a job of modelled arrays.
pub fn cells(job: &Job, part: &VirtualPart) -> Result<Vec<(JobCell, QueryPlan)>, LabError> {
    let without = [
        (job.on.is_some(), "on: the modelled array is the target"),
        (job.size.is_some(), "size: that follows from drives, raid and stroke"),
        (job.precondition.is_some(), "precondition: a modelled drive is always in the same state"),
        (job.buffered != Given::One(false), "buffered: there is no page cache in virtual time"),
        (job.load.workers.is_some(), "load.workers: nothing runs on threads in virtual time"),
        (job.load.pause.is_some(), "load.pause: a modelled array is never left alone"),
        (job.load.batch.is_some(), "load.batch: answers are seen one by one in virtual time"),
        (job.time != Default::default(), "time: a round in virtual time is so many accesses, not so long"),
        (job.content != Default::default(), "content: a modelled drive keeps no content"),
    ];
    if let Some((_, why)) = without.iter().find(|(is, _)| *is) {
        return Err(LabError::Usage(format!("with --virtual leave out {why}")));
    }
    let mut search = job.search.clone();
    if let Some(search) = &mut search {
        search.outstanding_max.get_or_insert(OUTSTANDING_MAX);
    }
    let mut all = Vec::new();
    let workloads = Job { search, ..job.clone() }.cells()?;
    for (array_axes, array) in part.arrays()? {
        for cell in &workloads {
            let mut cell = cell.clone();
            cell.axes = array_axes.iter().chain(&cell.axes).cloned().collect();
            let planned = planned(array, &cell)?;
            all.push((cell, planned));
        }
    }
    Ok(all)
}

fn planned(array: Array, cell: &JobCell) -> Result<QueryPlan, LabError> {
    let Load::Outstanding(load) = cell.setup.load else {
        return Err(LabError::Usage("modelled arrays are driven by outstanding accesses; leave load.rate out".into()));
    };
    let effort = Effort::of(array.maker);
    let ask = match cell.goal {
        None => Query::Loads(vec![load.into()]),
        Some(goal) => Query::Highest {
            goal: match load {
                0 | 1 => goal,
                start => crate::search::Goal { start: start.into(), ..goal },
            },
            curve: false,
        },
    };
    Ok(QueryPlan { array, spec: cell.setup.spec.clone(), alignment: cell.setup.alignment, ask, effort, streams: 1 })
}

/// An answer as a result file keeps it.
pub fn recorded(number: usize, cell: &JobCell, planned: &QueryPlan, answer: &Answer) -> CellRecord {
    let search = match (&planned.ask, &answer.highest) {
        (Query::Highest { goal, .. }, Some(highest)) => Some(SearchRecord::of(*goal, highest)),
        _ => None,
    };
    CellRecord::with(number, cell, answer.runs.iter().map(run_of).collect(), search)
}

fn run_of(measured: &MeasuredProbe) -> RunRecord {
    RunRecord {
        outstanding: Some(u32::try_from(measured.probe.outstanding).unwrap_or(u32::MAX)),
        rate_asked: None,
        profile: Vec::new(),
        replay: None,
        workers: 1,
        steady: measured.probe.steady,
        stopped: false,
        lag_share: 0.0,
        under_way: None,
        saturation: None,
        busy: busy_of(&measured.rounds),
        rounds: measured.rounds.iter().map(round_of).collect(),
        unanswered: HistogramRecord::default(),
    }
}

/// The mean over the rounds.
fn busy_of(rounds: &[RoundResult]) -> Vec<(String, f64)> {
    type Part = fn(&Busy) -> Option<f64>;
    let mean = |part: Part| {
        let shares: Vec<f64> = rounds.iter().filter_map(|round| part(&round.busy)).collect();
        (!shares.is_empty()).then(|| rounded(shares.iter().sum::<f64>() / shares.len() as f64, THOUSANDTHS))
    };
    let parts: [(&str, Part); 4] = [
        ("drives", |busy| Some(busy.drives)),
        ("busiest drive", |busy| Some(busy.busiest_drive)),
        ("controllers", |busy| busy.controllers),
        ("processors", |busy| busy.processors),
    ];
    parts.into_iter().filter_map(|(name, part)| Some((name.to_owned(), mean(part)?))).collect()
}

fn round_of(round: &RoundResult) -> RoundRecord {
    let seconds = round.span.as_secs_f64();
    RoundRecord {
        seconds: rounded(seconds, BILLIONTHS),
        rate: rounded(round.rate(), THOUSANDTHS),
        read_bytes: (round.read_bytes as f64 / seconds.max(1e-12)).round(),
        written_bytes: (round.written_bytes as f64 / seconds.max(1e-12)).round(),
        read: HistogramRecord::of(&round.read),
        write: HistogramRecord::of(&round.write),
        lag_ns: 0,
        held_back: 0,
        late: None,
        cpu_own: 0.0,
        cpu_machine: 0.0,
        gap_ns: 0,
    }
}

#[cfg(test)]
mod tests;
