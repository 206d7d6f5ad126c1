//! Arrays of modelled drives as targets, in virtual time: Stele's own code, or the model of a
//! published machine, which the crate of papers brings.
//!
//! An answer depends on the array, the workload, the loads and the effort, and on nothing else: not
//! on the clock, on threads, or on what was asked before.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stele_array::WriteMode;
use stele_codes::Code;
use stele_ground::{Bytes, Dice};
use stele_media::simulated::HardDriveSpec;

use crate::closed::{GoesOn, Length, Loop, Probe, RoundResult, SimulatedTarget};
use crate::error::LabError;
use crate::pool::{Filled, PoolSpec};
use crate::raid::Level;
use crate::search::{self, Goal, Highest};
use crate::workload::{AccessSpec, Alignment, Generator};
use parts::Parts;
use processors::{Charged, Processors};
use read_cache::ReadCache;

pub mod layer;
mod parts;
pub mod processors;
pub mod read_cache;
pub mod run;
pub mod sweep;

/// Both machines' memory for writes: 2 x 1 GiB.
pub const MEMORY: u64 = 2 << 30;
/// Of each drive that is in use so many bytes are simulated, spread over all of it, so that answers
/// come in seconds.
const SIMULATED: f64 = 367.5e6;
/// Replicas of the log of a pool that survives one loss.
const LOG_REPLICAS: u64 = 4;
/// Drives of an array at most: the model's tables are in memory.
const DRIVES_MAX: u32 = 500;

/// Whose array it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Maker {
    Stele,
    /// The same behind so many processors, whose time for an access was measured.
    SteleOn(u32),
    /// The same behind a file server's memory, which keeps what was read.
    SteleBehindCache,
    /// The profile of the published machine.
    Ds4500,
}

impl Maker {
    pub fn name(self) -> &'static str {
        match self {
            Maker::Stele => "stele",
            Maker::SteleOn(_) => "stele-cpu",
            Maker::SteleBehindCache => "stele-read-cache",
            Maker::Ds4500 => "ds4500",
        }
    }

    /// Whether it is a pool of Stele, with processors or without.
    pub fn is_stele(self) -> bool {
        self != Maker::Ds4500
    }
}

impl fmt::Display for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Maker::SteleOn(count) => write!(f, "{}:{count}", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

impl From<Maker> for String {
    fn from(maker: Maker) -> String {
        maker.to_string()
    }
}

impl TryFrom<String> for Maker {
    type Error = LabError;

    fn try_from(text: String) -> Result<Maker, LabError> {
        text.parse()
    }
}

/// Processors of a modelled server at most.
const PROCESSORS_MAX: u32 = 1024;

impl FromStr for Maker {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Maker, LabError> {
        match text {
            "stele" => Ok(Maker::Stele),
            "ds4500" => Ok(Maker::Ds4500),
            "stele-read-cache" => Ok(Maker::SteleBehindCache),
            _ => {
                let count = text.strip_prefix("stele-cpu:").and_then(|count| count.parse().ok());
                let count = count.filter(|count| (1..=PROCESSORS_MAX).contains(count));
                count.map(Maker::SteleOn).ok_or_else(|| {
                    LabError::Usage(format!(
                        "array={text}: stele, or ds4500 for the profile of the published machine, or stele-cpu:2 for Stele \
                         on two processors"
                    ))
                })
            }
        }
    }
}

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Accesses of a round at least; a probe has five rounds or more.
    pub round: u64,
    pub probes_max: usize,
}

impl Effort {
    pub const FULL: Effort = Effort { round: 4_000, probes_max: 8 };
    /// For pools, whose accesses cost ten to fifty times as much to simulate.
    pub const POOL: Effort = Effort { round: 800, probes_max: 8 };
    /// For tests, and for a quick look.
    pub const SMALL: Effort = Effort { round: 400, probes_max: 5 };

    pub fn of(maker: Maker) -> Effort {
        match maker {
            Maker::Stele | Maker::SteleOn(_) | Maker::SteleBehindCache => Effort::POOL,
            Maker::Ds4500 => Effort::FULL,
        }
    }

    pub fn length(self, outstanding: u64) -> Length {
        let round = self.round.max(2 * outstanding);
        Length { warm_up: round, round, rounds_max: 12 }
    }
}

/// Where Stele's log lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogPlace {
    /// In the memory that the published machine used as its write cache: 2 GiB over all replicas.
    Memory,
    /// On the hard drives themselves.
    Drives,
}

/// One array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Array {
    pub maker: Maker,
    pub level: Level,
    pub drives: u32,
    /// Writes are answered from memory.
    pub cached: bool,
    /// Percent of each drive that is used.
    pub stroke: u8,
    pub log: LogPlace,
}

impl Array {
    /// Refuses what cannot be built.
    pub fn check(&self) -> Result<(), LabError> {
        let bad = |text: String| Err(LabError::Usage(text));
        match self.maker {
            Maker::Ds4500 if !self.drives.is_multiple_of(10) || self.drives < 20 => {
                return bad(format!(
                    "drives={}: the published machine has arrays of ten drives, two at least",
                    self.drives
                ));
            }
            Maker::Ds4500 if self.level == Level::Raid6 => {
                return bad("raid=6: the published machine was measured with 5 and 10".to_owned());
            }
            maker if maker.is_stele() && self.drives < 12 => {
                return bad(format!("drives={}: a pool of 9+1 with room to rebuild takes 12 at least", self.drives));
            }
            _ => {}
        }
        if self.drives > DRIVES_MAX {
            return bad(format!("drives={}: at most {DRIVES_MAX}", self.drives));
        }
        match self.stroke {
            1..=90 => Ok(()),
            other => bad(format!("stroke={other}: percent of each drive that is used, from 1 to 90")),
        }
    }

    fn sample(&self, drive: HardDriveSpec) -> u64 {
        let used = (drive.sectors * 512) as f64 * f64::from(self.stroke) / 100.0;
        (used / SIMULATED).round().max(1.0) as u64
    }

    /// A pool of Stele: 9+1, 8+2 or mirror-2, declustered over all drives.
    pub fn pool(&self, drive: HardDriveSpec) -> Result<PoolSpec, String> {
        let code: Code = match self.level {
            Level::Raid5 => "9+1",
            Level::Raid10 => "mirror-2",
            Level::Raid6 => "8+2",
        }
        .parse()
        .map_err(|_| "a code of the laboratory is unknown")?;
        Ok(PoolSpec {
            drives: self.drives as usize,
            code,
            strip: Bytes(crate::raid::SEGMENT),
            stroke: f64::from(self.stroke) / 100.0,
            drive,
            sample: self.sample(drive),
            log: Bytes(MEMORY / LOG_REPLICAS),
            seed: 0x57E1E + u64::from(self.drives),
        })
    }

    /// What the fillings of two arrays have in common if they may share one.
    pub fn filling(&self) -> (u32, Level, u8) {
        (self.drives, self.level, self.stroke)
    }

    /// Different arrays and workloads do not share their chance; both makers' hosts ask for the
    /// same.
    pub fn seed(&self, spec: &AccessSpec) -> u64 {
        let words = [self.level as u64, u64::from(self.drives), u64::from(self.cached), u64::from(self.stroke)];
        let mix = |hash: u64, word: u64| Dice::new(hash ^ word.wrapping_mul(0x9E37_79B9_7F4A_7C15)).roll();
        spec.name.bytes().map(u64::from).chain(words).fold(0x4500, mix)
    }
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = if self.cached { "on" } else { "off" };
        write!(f, "{}, {}, {} drives, cache {cache}", self.maker.name(), self.level.name(), self.drives)
    }
}

/// Builds the model of an array that is not Stele's.
pub type Models<'a> = &'a (dyn Fn(&Array, &AccessSpec, Alignment) -> Box<dyn Running> + Sync);

/// A probe with what it is made of.
#[derive(Clone, Debug)]
pub struct MeasuredProbe {
    pub probe: Probe,
    pub rounds: Vec<RoundResult>,
}

/// An array under a workload, kept between probes.
pub trait Running {
    fn measure(&mut self, outstanding: u64, length: Length, goes_on: GoesOn<'_>) -> Result<MeasuredProbe, String>;
}

impl<T: SimulatedTarget> Running for Loop<T> {
    fn measure(&mut self, outstanding: u64, length: Length, goes_on: GoesOn<'_>) -> Result<MeasuredProbe, String> {
        let probe = self.probe(outstanding, length, goes_on)?;
        Ok(MeasuredProbe { probe, rounds: self.window().to_vec() })
    }
}

/// A pool whose cache has to be as full as it stays before anything counts: at first, and where a
/// lower load may have drained it.
struct Warming<R> {
    running: R,
    /// Accesses until it is.
    accesses: u64,
    before: u64,
}

/// A load that is so many times the one before finds the cache emptier than it leaves it.
const DRAINED: u64 = 2;

impl<R: Running> Running for Warming<R> {
    fn measure(&mut self, outstanding: u64, mut length: Length, goes_on: GoesOn<'_>) -> Result<MeasuredProbe, String> {
        if outstanding > self.before * DRAINED {
            length.warm_up = length.warm_up.max(self.accesses);
        }
        self.before = outstanding;
        self.running.measure(outstanding, length, goes_on)
    }
}

/// A filled pool of Stele, opened for this array, its volume in as many parts as there are streams.
pub fn stele(
    array: &Array,
    filled: &Filled,
    spec: &AccessSpec,
    alignment: Alignment,
    streams: u64,
) -> Result<Box<dyn Running>, String> {
    let mut target = filled.open(array.log == LogPlace::Memory)?;
    target.acknowledge(if array.cached { WriteMode::WriteBack } else { WriteMode::WriteThrough })?;
    let now = target.now();
    let generator = Generator::new(spec.clone(), alignment, Dice::new(array.seed(spec)));
    let reads = u64::from(spec.read.unwrap_or(100));
    let accesses = match array.cached {
        // Twice what may be dirty, so that destage runs as it will.
        true => filled.dirty_limit() / spec.mean_length() * 2 * 100 / (100 - reads.min(80)),
        false => 0,
    };
    let parts = Parts::before(target, streams);
    Ok(match array.maker {
        Maker::SteleOn(count) => {
            let charged = Charged::before(parts, Processors::measured(array.level, count));
            Box::new(Warming { running: Loop::new(charged, generator, now), accesses, before: 0 })
        }
        Maker::SteleBehindCache => {
            let cache = ReadCache::before(parts, Dice::new(array.seed(spec)));
            Box::new(Warming { running: Loop::new(cache, generator, now), accesses, before: 0 })
        }
        _ => Box::new(Warming { running: Loop::new(parts, generator, now), accesses, before: 0 }),
    })
}

/// What is asked of an array under a workload.
#[derive(Clone, Debug)]
pub enum Query {
    /// The highest load at a response time; and the loads around it, for a curve.
    Highest { goal: Goal, curve: bool },
    /// What it does with so many accesses outstanding, one load after another.
    Loads(Vec<u64>),
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub highest: Option<Highest>,
    /// In the order in which they were made.
    pub runs: Vec<MeasuredProbe>,
}

impl Answer {
    /// The run nearest to the answer of a search; else the last.
    pub fn nearest(&self) -> Option<&MeasuredProbe> {
        let Some(highest) = &self.highest else { return self.runs.last() };
        let away = |run: &&MeasuredProbe| (run.probe.outstanding as f64 - highest.load).abs();
        self.runs.iter().min_by(|left, right| away(left).total_cmp(&away(right)))
    }
}

/// Loads of a curve, as shares of the load that is the answer.
const CURVE: [f64; 7] = [0.0625, 0.125, 0.25, 0.5, 0.75, 1.25, 1.5];

/// Asks, as long as it goes on.
pub fn ask(running: &mut dyn Running, ask: &Query, effort: Effort, goes_on: GoesOn<'_>) -> Result<Answer, String> {
    let mut runs: Vec<MeasuredProbe> = Vec::new();
    let mut measure = |outstanding: u64, runs: &mut Vec<MeasuredProbe>| -> Result<Probe, String> {
        let measured = running.measure(outstanding, effort.length(outstanding), goes_on)?;
        runs.push(measured.clone());
        Ok(measured.probe)
    };
    match ask {
        Query::Loads(loads) => {
            for load in loads {
                measure(*load, &mut runs)?;
            }
            Ok(Answer { highest: None, runs })
        }
        Query::Highest { goal, curve } => {
            let highest = search::highest(*goal, |outstanding| measure(outstanding, &mut runs))?;
            for share in CURVE.iter().filter(|_| *curve) {
                let load = (highest.load * share).round().clamp(1.0, goal.load_max as f64) as u64;
                let near = |run: &MeasuredProbe| run.probe.outstanding.abs_diff(load) * 10 <= load;
                if !runs.iter().any(near) {
                    measure(load, &mut runs)?;
                }
            }
            Ok(Answer { highest: Some(highest), runs })
        }
    }
}

#[cfg(test)]
mod tests;
