//! One published cell asked of the modelled machine: workload, closed loop, search.

use stele_array::WriteMode;
use stele_codes::Code;
use stele_ground::{Bytes, Dice, Duration};
use stele_media::simulated::HardDriveSpec;

use crate::closed::{Length, Loop};
use crate::ds4500::{Charge, Ds4500, Profile};
use crate::pool::{Filled, PoolSpec};
use crate::published::{Cell, Level, workload_of};
use crate::search::{self, Goal, Highest, Statistic};
use crate::workload::{self, Alignment, Generator};

/// The mean response of all published cells.
pub const RESPONSE: Duration = Duration::from_millis(20);
/// The share of the drives' capacity that all cells use unless they say otherwise.
pub const STROKE: f64 = 0.08;
/// Both machines' memory for writes: 2 x 1 GiB.
pub const MEMORY: u64 = 2 << 30;
/// Volumes, working sets and memory are sampled to one part in so many, so that the set ends in minutes.
pub const SAMPLE: u64 = 4;
/// The profile's cache is sampled further, so that it is as full as it stays before a probe ends: of a larger one the probes would
/// see how it drains.
pub const PROFILE_SAMPLE: u64 = 16;

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
    pub const POOL: Effort = Effort { round: 800, probes_max: 6 };
    /// For tests.
    pub const SMALL: Effort = Effort { round: 400, probes_max: 4 };

    pub fn length(self, outstanding: u64) -> Length {
        let round = self.round.max(2 * outstanding);
        Length { warm_up: round, round, rounds_max: 12 }
    }
}

/// An answer about one cell.
#[derive(Clone, Debug)]
pub struct Answer {
    pub highest: Highest,
    /// Share of the time that the controllers were busy; 0 without any.
    pub controllers_busy: f64,
}

/// What may differ from the published machine, to fit its parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    pub drive: HardDriveSpec,
    pub charge: Charge,
    pub alignment: Alignment,
}

impl Machine {
    pub const PUBLISHED: Machine =
        Machine { drive: HardDriveSpec::published_15k(), charge: Charge::PUBLISHED, alignment: Alignment::Request };
}

/// Seeds of a cell: different cells do not share their chance.
pub fn seed_of(cell: &Cell) -> u64 {
    let words =
        [u64::from(cell.table), cell.drives as u64, u64::from(cell.cached), cell.size, cell.workload.len() as u64];
    words.into_iter().fold(0x4500, |hash, word| Dice::new(hash ^ word.wrapping_mul(0x9E37_79B9_7F4A_7C15)).roll())
}

/// Asks the profile of the published machine.
pub fn ask_ds4500(cell: &Cell, stroke: f64, machine: Machine, effort: Effort) -> Result<Answer, String> {
    let name = workload_of(cell);
    let spec = workload::named(&name).ok_or_else(|| format!("there is no access specification '{name}'"))?;
    let mut dice = Dice::new(seed_of(cell));
    let mut target = Ds4500::new(Profile {
        level: cell.level,
        drives: cell.drives,
        cached: cell.cached,
        stroke,
        drive: machine.drive,
        charge: machine.charge,
        cache: MEMORY / PROFILE_SAMPLE,
        seed: dice.roll(),
    });
    let mut generator = Generator::new(spec, machine.alignment, dice.fork());
    target.prefill(|array, bytes| generator.draw(array, bytes));
    let mut running = Loop::new(target, generator, Default::default());
    let goal = Goal {
        response: RESPONSE,
        statistic: Statistic::Mean,
        start: (cell.rate * RESPONSE.as_secs_f64()) as u64,
        load_max: 20_000,
        probes_max: effort.probes_max,
    };
    let mut busy = Vec::new();
    let highest = search::highest(goal, |outstanding| {
        let before = (running.now(), running.target().charged());
        let probe = running.probe(outstanding, effort.length(outstanding))?;
        let span = running.now().since(before.0).as_secs_f64();
        busy.push((outstanding, (running.target().charged() - before.1) / span));
        Ok(probe)
    })?;
    // At the probe nearest to the answer.
    let nearest = |(load, _): &&(u64, f64)| (*load as f64 - highest.load).abs() as u64;
    let controllers_busy = busy.iter().min_by_key(nearest).map_or(0.0, |(_, busy)| *busy);
    Ok(Answer { highest, controllers_busy })
}

/// Where Stele's log lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogPlace {
    /// In the memory that the published machine used as its write cache: 2 GiB over all replicas.
    Memory,
    /// On the hard drives themselves.
    Drives,
}

/// Replicas of the log of a pool that survives one loss.
const LOG_REPLICAS: u64 = 4;

/// A pool of Stele over the same drives and the same share of them: 9+1 or mirror-2, declustered.
pub fn pool_like(cell: &Cell, stroke: f64, machine: Machine) -> Result<PoolSpec, String> {
    let code: Code = match cell.level {
        Level::Raid5 => "9+1",
        Level::Raid10 => "mirror-2",
    }
    .parse()
    .map_err(|_| "a code of the laboratory is unknown")?;
    Ok(PoolSpec {
        drives: cell.drives,
        code,
        strip: Bytes(crate::raid::SEGMENT),
        stroke,
        drive: machine.drive,
        sample: SAMPLE,
        log: Bytes(MEMORY / LOG_REPLICAS),
        seed: 0x57E1E + cell.drives as u64,
    })
}

/// Asks a filled pool, opened with its log in this place.
pub fn ask_stele(
    cell: &Cell,
    filled: &Filled,
    log: LogPlace,
    machine: Machine,
    effort: Effort,
    start: u64,
) -> Result<Answer, String> {
    let name = workload_of(cell);
    let spec = workload::named(&name).ok_or_else(|| format!("there is no access specification '{name}'"))?;
    let mut target = filled.open(log == LogPlace::Memory)?;
    target.acknowledge(if cell.cached { WriteMode::WriteBack } else { WriteMode::WriteThrough })?;
    let now = target.now();
    let generator = Generator::new(spec, machine.alignment, Dice::new(seed_of(cell)));
    let mut running = Loop::new(target, generator, now);
    let goal =
        Goal { response: RESPONSE, statistic: Statistic::Mean, start, load_max: 8_000, probes_max: effort.probes_max };
    let mut first = true;
    let highest = search::highest(goal, |outstanding| {
        let mut length = effort.length(outstanding);
        if cell.cached && std::mem::take(&mut first) {
            // Twice what may be dirty, so that destage runs as it will.
            let writes = filled.dirty_limit() / cell.size * 2;
            length.warm_up = length.warm_up.max(if cell.workload == "oltp" { writes * 3 } else { writes });
        }
        running.probe(outstanding, length)
    })?;
    Ok(Answer { highest, controllers_busy: 0.0 })
}
