//! The write path on modelled hard drives, in virtual time: commands and their order, no bytes.
//!
//! Hosts write as fast as the cache takes it, which is always full. The log lies in memory that
//! survives power cuts, as where the laboratory compares with the DS4500, and a modelled drive
//! flushes in no time. So only the commands of destage and of the cleaner count here.

mod plan;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use stele_ground::{Dice, Instant};
use stele_lab::spindle::Spindle;
use stele_media::simulated::{CommandWork, HardDrive, HardDriveSpec};

use super::layout::{Layout, PAGE};

pub use plan::{Path, Plan};

/// A command to a drive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Command {
    pub drive: usize,
    pub at: u64,
    pub length: u64,
    pub writes: bool,
}

/// Commands that belong together: each stage begins when the one before is done.
#[derive(Debug, Default)]
pub struct Job {
    pub stages: VecDeque<Vec<Command>>,
    /// Blocks of the cache that are free when it is done.
    pub blocks: u64,
    /// A segment that is free then.
    pub cleaned: Option<u32>,
}

struct Running {
    job: Job,
    pending: usize,
    begun: Instant,
}

/// The drives with their lines.
pub struct Machine {
    spindles: Vec<Spindle<usize>>,
    events: BinaryHeap<Reverse<(Instant, u64, usize, usize)>>,
    jobs: Vec<Option<Running>>,
    free: Vec<usize>,
    sequence: u64,
    pub now: Instant,
    pub commands: u64,
    pub written: u64,
}

impl Machine {
    pub fn new(drives: usize) -> Machine {
        let mut dice = Dice::new(drives as u64);
        let spec = HardDriveSpec::published_15k();
        Machine {
            spindles: (0..drives).map(|_| Spindle::new(Box::new(HardDrive::new(spec, &mut dice)))).collect(),
            events: BinaryHeap::new(),
            jobs: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            now: Instant(0),
            commands: 0,
            written: 0,
        }
    }

    pub fn under_way(&self) -> usize {
        self.jobs.len() - self.free.len()
    }

    pub fn start(&mut self, job: Job) {
        let running = Some(Running { job, pending: 0, begun: self.now });
        let key = match self.free.pop() {
            Some(key) => {
                self.jobs[key] = running;
                key
            }
            None => {
                self.jobs.push(running);
                self.jobs.len() - 1
            }
        };
        self.go_on(key);
    }

    /// Sends the next stage of the job that has any command. Answers whether there is one.
    fn go_on(&mut self, key: usize) -> bool {
        let Some(running) = self.jobs[key].as_mut() else { return false };
        let Some(stage) = std::iter::from_fn(|| running.job.stages.pop_front()).find(|stage| !stage.is_empty()) else {
            return false;
        };
        running.pending = stage.len();
        for Command { drive, at, length, writes } in stage {
            self.commands += 1;
            self.written += if writes { length } else { 0 };
            let work = match writes {
                true => CommandWork::Write { at, length, fua: true },
                false => CommandWork::Read { at, length },
            };
            self.spindles[drive].push(work, key);
            self.begin(drive);
        }
        true
    }

    fn begin(&mut self, drive: usize) {
        while let Some((key, at)) = self.spindles[drive].begin(self.now) {
            self.sequence += 1;
            self.events.push(Reverse((at, self.sequence, drive, key)));
        }
    }

    /// Passes the time until a job is done: the job, and when it began. None if there is none.
    pub fn step(&mut self) -> Option<(Job, Instant)> {
        loop {
            let Reverse((at, _, drive, key)) = self.events.pop()?;
            self.now = at;
            self.spindles[drive].done();
            self.begin(drive);
            let running = self.jobs[key].as_mut()?;
            running.pending -= 1;
            if running.pending == 0 && !self.go_on(key) {
                self.free.push(key);
                return self.jobs[key].take().map(|running| (running.job, running.begun));
            }
        }
    }
}

/// What writes came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wrote {
    pub rate: f64,
    /// Drive commands, and bytes to drives for each byte, of a host's write.
    pub commands: f64,
    pub amplification: f64,
}

/// Writes until `count` writes of hosts were taken in, after a warm-up.
pub fn write(plan: &mut Plan, machine: &mut Machine, count: u64) -> Wrote {
    let warm = count / 2;
    let (mut accepted, mut begun) = (0, None);
    loop {
        while machine.under_way() < plan.at_once() {
            let Some(job) = plan.next() else { break };
            machine.start(job);
        }
        let (job, _) = machine.step().expect("a full cache has something to destage");
        accepted += plan.done(&job);
        if begun.is_none() && accepted >= warm {
            begun = Some((machine.now, accepted, machine.commands, machine.written));
        }
        if let Some((since, before, commands, written)) = begun
            && accepted >= warm + count
        {
            let count = (accepted - before) as f64;
            return Wrote {
                rate: count / machine.now.since(since).as_secs_f64(),
                commands: (machine.commands - commands) as f64 / count,
                amplification: (machine.written - written) as f64 / PAGE as f64 / count,
            };
        }
    }
}

/// Lets what is under way end.
pub fn settle(plan: &mut Plan, machine: &mut Machine) {
    while let Some((job, _)) = machine.step() {
        plan.done(&job);
    }
}

/// Requests of a reader in order.
const REQUEST: u64 = 64;
const AHEAD: usize = 16;

/// MiB/s of one reader of so many blocks in order, with sixteen requests of 256 KiB under way.
pub fn read_in_order(plan: &Plan, machine: &mut Machine, blocks: u64) -> f64 {
    let begun = machine.now;
    let mut next = 0;
    while next < blocks || machine.under_way() > 0 {
        while next < blocks && machine.under_way() < AHEAD {
            machine.start(Job { stages: [plan.read(next, REQUEST)].into(), ..Job::default() });
            next += REQUEST;
        }
        machine.step();
    }
    (next * PAGE) as f64 / f64::from(1 << 20) / machine.now.since(begun).as_secs_f64()
}

/// Milliseconds of a read of 4 KiB at random, with so many under way.
pub fn read_at_random(plan: &Plan, machine: &mut Machine, count: u64, depth: usize) -> f64 {
    let mut dice = Dice::new(9);
    let (mut started, mut took) = (0, 0.0);
    loop {
        while started < count && machine.under_way() < depth {
            let block = dice.below(plan.blocks());
            machine.start(Job { stages: [plan.read(block, 1)].into(), ..Job::default() });
            started += 1;
        }
        let Some((_, begun)) = machine.step() else { return took * 1e3 / count as f64 };
        took += machine.now.since(begun).as_secs_f64();
    }
}

/// Blocks of the volume that lie on one drive: 8 % of it, as the published arrays used.
pub fn blocks_of_drive() -> u64 {
    HardDriveSpec::published_15k().sectors * 512 * 8 / 100 / PAGE
}

/// Strips of 64 KiB in rows of 4 MiB for each drive.
pub fn layout(k: usize, m: usize, drives: usize) -> Layout {
    Layout { k, m, drives, strip: 16, row: 64, turns: false }
}
