//! The published machine as a profile: two controllers in front of arrays of ten drives.
//!
//! A controller owns every second array. It charges a time for each command that it sends to a
//! drive and for each KiB of the command, one after another; the drives do the rest. RAID-5 writes
//! read the old data and parity, then write both, in place and without a log. With the write cache
//! enabled, a write is answered from the controller's memory while that has room. The cache writes
//! out first in, first out, each write by itself, as many at once as fill the drives' command
//! windows. Each write is two commands at a time: data and parity, or two copies.
//!
//! Streams have a layer of their own: `streams`.
//!
//! Left out: the Fibre Channel loops, and the cause of the fall of the published rates from 140 to
//! 180 drives.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use stele_ground::{Dice, Duration, Instant};
use stele_media::simulated::{CommandWork, HardDrive, HardDriveSpec};

use stele_lab::closed::SimulatedTarget;
use stele_lab::raid::Level;
use stele_lab::raid::{self, ARRAY, Piece};
use stele_lab::spindle::Spindle;
use stele_lab::workload::Access;

pub mod profile;
pub mod streams;

/// The parameters of the machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Profile {
    pub level: Level,
    pub drives: usize,
    /// Write cache enabled.
    pub cached: bool,
    /// Share of each drive that is used, from its start.
    pub stroke: f64,
    pub drive: HardDriveSpec,
    pub charge: Charge,
    /// Bytes of memory for writes, of both controllers together.
    pub cache: u64,
    pub seed: u64,
}

/// A controller's time for a command to a drive, as if both controllers were one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Charge {
    pub command_nanos: f64,
    pub kib_nanos: f64,
}

impl Charge {
    /// Solved from the random reads at 140 drives: 42,527 a second of 4 KiB and 30,040 of 8 KiB,
    /// the means of both levels.
    pub const PUBLISHED: Charge = Charge { command_nanos: 13_740.0, kib_nanos: 2_444.0 };

    /// No controller.
    pub const NONE: Charge = Charge { command_nanos: 0.0, kib_nanos: 0.0 };

    fn of(self, bytes: u64) -> f64 {
        self.command_nanos + self.kib_nanos * bytes as f64 / 1024.0
    }
}

/// The time after which a write is answered from memory.
const MEMORY: Duration = Duration::from_micros(50);
/// The block size of the cache, in bytes.
const CACHE_BLOCK: u64 = 4096;

type Key = usize;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A command reaches its drive.
    Arrive {
        drive: usize,
        piece: Piece,
        write: bool,
        job: Key,
    },
    /// A drive has finished a command of this job.
    Done {
        drive: usize,
        job: Key,
    },
    Answer {
        tag: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum For {
    Host(u64),
    Destage(Access),
}

/// Commands that belong together: some now, and the rest when those are done.
#[derive(Debug)]
struct Job {
    array: usize,
    pending: usize,
    then: Vec<(Piece, bool)>,
    purpose: For,
}

#[derive(Default)]
struct Array {
    dirty: VecDeque<Access>,
    destaging: usize,
}

/// The machine in operation.
pub struct Ds4500 {
    profile: Profile,
    array_size: u64,
    spindles: Vec<Spindle<Key>>,
    arrays: Vec<Array>,
    /// The time at which each controller becomes free.
    controllers: [f64; 2],
    /// Nanoseconds charged to the controllers.
    charged: f64,
    jobs: Vec<Option<Job>>,
    free: Vec<Key>,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    sequence: u64,
    dirty_bytes: u64,
    /// Blocks in the cache, with the number of writes of each.
    held: HashMap<(usize, u64), u32>,
    /// Writes that wait for room.
    stalled: VecDeque<(u64, Access)>,
    reads: u64,
}

impl Ds4500 {
    pub fn new(profile: Profile) -> Ds4500 {
        let mut dice = Dice::new(profile.seed);
        let used = (profile.drive.sectors * 512) as f64 * profile.stroke;
        let array_size = raid::capacity(profile.level, used as u64);
        let spindle = |_| Spindle::new(Box::new(HardDrive::new(profile.drive, &mut dice)));
        Ds4500 {
            profile,
            array_size,
            spindles: (0..profile.drives).map(spindle).collect(),
            arrays: (0..profile.drives / ARRAY).map(|_| Array::default()).collect(),
            controllers: [0.0; 2],
            charged: 0.0,
            jobs: Vec::new(),
            free: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            dirty_bytes: 0,
            held: HashMap::new(),
            stalled: VecDeque::new(),
            reads: 0,
        }
    }

    /// Fills the free part of the write cache with these writes, as if they had just been accepted.
    pub fn prefill(&mut self, now: Instant, mut next: impl FnMut(usize, u64) -> Access) {
        let arrays = self.arrays.len();
        let mut turn = 0;
        while self.profile.cached && self.dirty_bytes < self.profile.cache {
            let access = next(turn % arrays, self.array_size);
            turn += 1;
            if access.write {
                self.hold(access);
            } else if turn > 1 << 24 {
                break;
            }
        }
        (0..arrays).for_each(|array| self.destage(now, array));
    }

    /// The filled share of the write cache, from 0 to 1.
    pub fn fullness(&self) -> f64 {
        self.dirty_bytes as f64 / self.profile.cache.max(1) as f64
    }

    fn later(&mut self, at: Instant, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// Sends commands through the array's controller.
    fn send(&mut self, now: Instant, array: usize, job: Key, commands: &[(Piece, bool)]) {
        for (piece, write) in commands {
            let charge = self.profile.charge.of(piece.length);
            self.charged += charge;
            // Two controllers, each at half the speed of the combined one.
            let free = &mut self.controllers[array % 2];
            *free = free.max(now.0 as f64) + 2.0 * charge;
            let at = Instant(*free as u64).max(now);
            let drive = array * ARRAY + piece.drive;
            self.later(at, Event::Arrive { drive, piece: *piece, write: *write, job });
        }
    }

    fn begin_job(
        &mut self,
        now: Instant,
        array: usize,
        first: Vec<(Piece, bool)>,
        then: Vec<(Piece, bool)>,
        purpose: For,
    ) {
        let job = Job { array, pending: first.len(), then, purpose };
        let key = match self.free.pop() {
            Some(key) => {
                self.jobs[key] = Some(job);
                key
            }
            None => {
                self.jobs.push(Some(job));
                self.jobs.len() - 1
            }
        };
        self.send(now, array, key, &first);
    }

    fn read(&mut self, now: Instant, tag: u64, access: Access) {
        if self.profile.cached && self.is_held(access) {
            return self.later(now + MEMORY, Event::Answer { tag });
        }
        let spread = raid::spread(self.profile.level, access.at, access.length);
        self.reads += 1;
        let twin = self.profile.level == Level::Raid10 && self.reads.is_multiple_of(2);
        let pieces = if twin { spread.cover } else { spread.data };
        let commands = pieces.into_iter().map(|piece| (piece, false)).collect();
        self.begin_job(now, access.target, commands, Vec::new(), For::Host(tag));
    }

    fn write_out(&mut self, now: Instant, access: Access, purpose: For) {
        let spread = raid::spread(self.profile.level, access.at, access.length);
        let pieces = || spread.data.iter().chain(&spread.cover);
        let writes: Vec<(Piece, bool)> = pieces().map(|piece| (*piece, true)).collect();
        match self.profile.level {
            Level::Raid10 => self.begin_job(now, access.target, writes, Vec::new(), purpose),
            // Whole rows have no old data that parity would need.
            Level::Raid5 | Level::Raid6 if self.is_of_rows(access) => {
                self.begin_job(now, access.target, writes, Vec::new(), purpose);
            }
            Level::Raid5 | Level::Raid6 => {
                let reads = pieces().map(|piece| (*piece, false)).collect();
                self.begin_job(now, access.target, reads, writes, purpose);
            }
        }
    }

    fn is_of_rows(&self, access: Access) -> bool {
        let row = raid::capacity(self.profile.level, raid::SEGMENT);
        access.at.is_multiple_of(row) && access.length.is_multiple_of(row)
    }

    fn blocks(access: Access) -> impl Iterator<Item = (usize, u64)> {
        let blocks = access.at / CACHE_BLOCK..(access.at + access.length).div_ceil(CACHE_BLOCK);
        blocks.map(move |block| (access.target, block))
    }

    fn is_held(&self, access: Access) -> bool {
        Ds4500::blocks(access).all(|block| self.held.contains_key(&block))
    }

    fn hold(&mut self, access: Access) {
        self.dirty_bytes += access.length;
        self.arrays[access.target].dirty.push_back(access);
        for block in Ds4500::blocks(access) {
            *self.held.entry(block).or_default() += 1;
        }
    }

    fn let_go(&mut self, access: Access) {
        self.dirty_bytes -= access.length;
        for block in Ds4500::blocks(access) {
            if let Some(count) = self.held.get_mut(&block) {
                *count -= 1;
                if *count == 0 {
                    self.held.remove(&block);
                }
            }
        }
    }

    fn take_in(&mut self, now: Instant) {
        while let Some((tag, access)) = self.stalled.front().copied() {
            if self.dirty_bytes + access.length > self.profile.cache {
                return;
            }
            self.stalled.pop_front();
            self.hold(access);
            self.later(now + MEMORY, Event::Answer { tag });
            self.destage(now, access.target);
        }
    }

    fn destage(&mut self, now: Instant, array: usize) {
        while self.arrays[array].destaging < self.profile.drive.window * ARRAY / 2 {
            let Some(access) = self.arrays[array].dirty.pop_front() else { return };
            self.arrays[array].destaging += 1;
            self.write_out(now, access, For::Destage(access));
        }
    }

    fn begin_drive(&mut self, now: Instant, drive: usize) {
        while let Some((job, at)) = self.spindles[drive].begin(now) {
            self.later(at, Event::Done { drive, job });
        }
    }

    fn command_done(&mut self, now: Instant, key: Key, finished: &mut Vec<u64>) {
        let Some(job) = self.jobs[key].as_mut() else { return };
        job.pending -= 1;
        if job.pending > 0 {
            return;
        }
        let (array, then) = (job.array, std::mem::take(&mut job.then));
        if !then.is_empty() {
            job.pending = then.len();
            return self.send(now, array, key, &then);
        }
        let purpose = job.purpose;
        self.jobs[key] = None;
        self.free.push(key);
        match purpose {
            For::Host(tag) => finished.push(tag),
            For::Destage(access) => {
                self.arrays[array].destaging -= 1;
                self.let_go(access);
                self.destage(now, array);
                self.take_in(now);
            }
        }
    }
}

impl SimulatedTarget for Ds4500 {
    fn sizes(&self) -> Vec<u64> {
        vec![self.array_size; self.arrays.len()]
    }

    fn submit(&mut self, now: Instant, tag: u64, access: Access) -> Result<(), String> {
        if !access.write {
            self.read(now, tag, access);
        } else if self.profile.cached {
            self.stalled.push_back((tag, access));
            self.take_in(now);
        } else {
            self.write_out(now, access, For::Host(tag));
        }
        Ok(())
    }

    fn drives_worked(&self) -> Vec<f64> {
        self.spindles.iter().map(|spindle| spindle.worked().as_secs_f64()).collect()
    }

    fn controllers_worked(&self) -> Option<f64> {
        Some(self.charged / 1e9)
    }

    fn next_event(&self) -> Option<Instant> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String> {
        while let Some(Reverse((at, _, event))) = self.events.peek().copied() {
            if at > now {
                break;
            }
            self.events.pop();
            match event {
                Event::Arrive { drive, piece, write, job } => {
                    let work = match write {
                        true => CommandWork::Write { at: piece.at, length: piece.length, fua: true },
                        false => CommandWork::Read { at: piece.at, length: piece.length },
                    };
                    self.spindles[drive].push(work, job);
                    self.begin_drive(at, drive);
                }
                Event::Done { drive, job } => {
                    self.spindles[drive].done();
                    self.begin_drive(at, drive);
                    self.command_done(at, job, finished);
                }
                Event::Answer { tag } => finished.push(tag),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
