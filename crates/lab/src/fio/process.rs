//! One copy of a job at work: picks accesses, keeps as many under way as it may, syncs, pauses, and
//! counts.
//!
//! A copy works in passes, as fio does. A pass is over when its files have nothing left. Another
//! one follows for `loops`, for `io_size` beyond the size, and until the runtime of a `time_based`
//! job is over.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as WallDuration, Instant as WallInstant};

use stele_ground::digest::context;
use stele_ground::{Dice, Duration};
use stele_media::system;

use super::carrier::Carrier;
use super::log::Log;
use super::options::{Fill, Options};
use super::pace::Pace;
use super::places::{Places, Region};
use super::used::Used;
use crate::histogram::Histogram;
use crate::live::content::{Content, Source};
use crate::live::engine::SlotResult;
use crate::live::random;
use crate::workload::Access;

/// What was done in one direction.
#[derive(Clone, Default, Debug)]
pub struct DirectionStats {
    pub bytes: u64,
    /// From the start of an access to its answer, to when it was submitted, and from then on.
    pub whole: Histogram,
    pub submission: Histogram,
    pub completion: Histogram,
    /// Bytes and accesses a second, of every half second.
    pub samples: Vec<(f64, f64)>,
}

/// What a copy did.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// Reads and writes.
    pub ways: [DirectionStats; 2],
    pub syncs: Histogram,
    /// Nanoseconds that count.
    pub span: u64,
    pub used: Used,
    pub failed: Option<String>,
}

/// What ends copies early.
#[derive(Debug)]
pub struct Ends<'a> {
    /// The caller's.
    pub stop: &'a AtomicBool,
    /// A job with `exitall` is done.
    pub all: &'a AtomicBool,
    /// A device that answers no access for so long has failed.
    pub patience: Duration,
}

/// Of `bw` and `iops` samples.
const SAMPLE: u64 = 500_000_000;
/// How often a copy that waits looks whether it shall end.
const LOOK: u64 = 20_000_000;

/// For so long an answer is waited for when the caller has ended it.
const FAREWELL: u64 = 2_000_000_000;

/// Nanoseconds by which a sleep may end late: the last of a wait is spun away, so that pauses and
/// rates are exact.
const LATE: u64 = 100_000;
const SECTOR: usize = 512;

enum Flight {
    None,
    Access { access: Access, begun: u64, submitted: u64 },
    Sync { begun: u64 },
}

/// The files of a copy, where reads shall come from the medium whenever they begin again.
pub struct Cached {
    files: Vec<(Arc<File>, Region)>,
}

impl Cached {
    pub fn new(files: Vec<(Arc<File>, Region)>) -> Cached {
        let cached = Cached { files };
        cached.forget(None);
        cached
    }

    /// Of one of them, or all. Where it is refused, reads are answered from memory.
    fn forget(&self, only: Option<usize>) {
        for (_, (file, region)) in self.files.iter().enumerate().filter(|(at, _)| only.is_none_or(|only| only == *at)) {
            drop(system::advise(file, region.offset, region.length, libc::POSIX_FADV_DONTNEED));
        }
    }
}

/// What a copy has beside its carrier.
pub struct Kept {
    /// Of all its files.
    pub size: u64,
    pub log: Option<Log>,
    /// None: past the page cache, or with `invalidate=0`.
    pub cached: Option<Cached>,
}

pub struct Process<'a, C> {
    carrier: C,
    cached: Option<Cached>,
    options: &'a Options,
    places: Places<'a>,
    /// Bytes after which it is over, without loops.
    limit: u64,
    ends: &'a Ends<'a>,
    log: Option<Log>,
    dice: Dice,
    pace: Pace,
    source: Option<Source>,
    origin: WallInstant,
    now: u64,
    /// When counting began, behind the ramp; and when the next sample is due, with what was counted
    /// by the last one.
    counts_from: u64,
    ramps: bool,
    sample_due: u64,
    sampled: [(u64, u64); 2],
    flying: Vec<Flight>,
    /// What is under way is waited for no longer.
    given_up: bool,
    free: Vec<u32>,
    unsubmitted: u32,
    answers: Vec<SlotResult>,
    tally: Tally,
    /// Of the whole run, whatever the ramp.
    issued: u64,
    issued_bytes: u64,
    issued_writes: u64,
    answered: u64,
    answered_bytes: [u64; 2],
    thought_at: u64,
    synced_last: bool,
    last_file: usize,
    writes_made: u64,
}

impl<'a, C: Carrier> Process<'a, C> {
    pub fn new(
        carrier: C,
        options: &'a Options,
        places: Places<'a>,
        Kept { size, log, cached }: Kept,
        ends: &'a Ends<'a>,
        mut dice: Dice,
    ) -> Process<'a, C> {
        let slots = carrier.slots();
        let limit = match options.io_size {
            super::units::Amount::Bytes(bytes) if bytes > 0 => bytes,
            _ => size,
        };
        let source = match options.fill {
            Fill::Fresh { compress, dedupe } => {
                let content =
                    Content { seed: options.seed, compress_percent: compress, dedupe_percent: dedupe, verify: false };
                Some(content.source(dice.fork(), None))
            }
            _ => None,
        };
        let mut process = Process {
            carrier,
            cached,
            options,
            places,
            limit,
            ends,
            log,
            pace: Pace::new(options),
            source,
            origin: WallInstant::now(),
            now: 0,
            counts_from: 0,
            ramps: options.ramp > 0,
            sample_due: SAMPLE,
            sampled: [(0, 0); 2],
            flying: (0..slots).map(|_| Flight::None).collect(),
            given_up: false,
            free: (0..slots).rev().collect(),
            unsubmitted: 0,
            answers: Vec::new(),
            tally: Tally::default(),
            issued: 0,
            issued_bytes: 0,
            issued_writes: 0,
            answered: 0,
            answered_bytes: [0; 2],
            thought_at: 0,
            synced_last: false,
            last_file: 0,
            writes_made: 0,
            dice,
        };
        process.fill_buffers();
        process
    }

    /// What writes hold that is not made for each of them.
    fn fill_buffers(&mut self) {
        let stream = self.dice.roll();
        for slot in 0..self.carrier.slots() {
            let buffer = self.carrier.buffer(slot);
            match &self.options.fill {
                Fill::Scrambled => random::fill(context(stream, slot.into()), buffer),
                Fill::Zeros => buffer.fill(0),
                Fill::Pattern(pattern) => {
                    buffer.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, wanted)| *byte = *wanted);
                }
                Fill::Fresh { .. } => {}
            }
        }
    }

    pub fn run(mut self) -> Tally {
        self.origin = WallInstant::now();
        let delay = self.options.start_delay;
        self.wait_until(delay);
        self.origin = WallInstant::now();
        self.now = 0;
        let before = Used::by_this_thread();
        let mut loops = self.options.loops;
        loop {
            let begun_with = self.issued;
            self.pass();
            loops = loops.saturating_sub(1);
            if self.is_over(loops) || self.issued == begun_with {
                break;
            }
            self.places.rewind();
            self.forget(None);
            self.synced_last = false;
        }
        self.look();
        self.tally.span = self.now.saturating_sub(self.counts_from);
        self.tally.used = Used::by_this_thread().since(before);
        self.tally.failed = self.tally.failed.take().or_else(|| self.log.take().and_then(Log::finish));
        if self.options.exit_all {
            self.ends.all.store(true, Ordering::Relaxed);
        }
        if self.given_up {
            // To drop it is to wait for the device. The kernel may write to its buffers yet.
            std::mem::forget(self.carrier);
        }
        self.tally
    }

    /// What begins again is read from the medium again, as in fio.
    fn forget(&mut self, only: Option<usize>) {
        if let Some(cached) = &self.cached {
            cached.forget(only);
        }
    }

    fn is_over(&self, loops: u64) -> bool {
        let options = self.options;
        if self.ended() {
            return true;
        }
        if options.time_based || loops > 0 {
            return false;
        }
        let missing = self.limit.saturating_sub(self.answered_bytes.iter().sum());
        let files_done = self.places.is_done() && options.io_size == super::units::Amount::Unsaid;
        let enough = options.accesses.is_some_and(|count| self.issued >= count * options.loops);
        enough || missing < options.block_most() || files_done
    }

    fn ended(&self) -> bool {
        let over = self.options.runtime > 0 && self.now >= self.options.ramp + self.options.runtime;
        let told = |end: &AtomicBool| end.load(Ordering::Relaxed);
        over || self.tally.failed.is_some() || told(self.ends.stop) || told(self.ends.all)
    }

    fn look(&mut self) {
        self.now = self.origin.elapsed().as_nanos() as u64;
        if self.ramps && self.now >= self.options.ramp {
            self.ramps = false;
            self.tally = Tally { failed: self.tally.failed.take(), ..Tally::default() };
            (self.counts_from, self.sample_due, self.sampled) = (self.now, self.now + SAMPLE, [(0, 0); 2]);
        }
        if self.now >= self.sample_due {
            self.sample();
        }
    }

    fn sample(&mut self) {
        let seconds = (self.now + SAMPLE - self.sample_due) as f64 / 1e9;
        for (way, before) in self.tally.ways.iter_mut().zip(&mut self.sampled) {
            let now = (way.bytes, way.whole.count());
            if now.1 > 0 {
                way.samples.push(((now.0 - before.0) as f64 / seconds, (now.1 - before.1) as f64 / seconds));
            }
            *before = now;
        }
        self.sample_due = self.now + SAMPLE;
    }

    fn has_enough(&self) -> bool {
        let (options, loops) = (self.options, self.options.loops);
        let count = options.accesses.is_some_and(|count| self.issued >= count * loops);
        !options.time_based && (count || self.issued_bytes >= self.limit.saturating_mul(loops))
    }

    fn pass(&mut self) {
        while !self.ended() && !self.has_enough() {
            if let Some(data_only) = self.sync_due() {
                self.sync(data_only);
                continue;
            }
            let way = self.direction();
            self.synced_last = false;
            if self.pace.is_limited() {
                self.await_pace(way);
                if self.ended() {
                    break;
                }
            }
            let Some(access) = self.places.next(way == 1) else { break };
            if let Some(file) = self.places.begun_again() {
                self.forget(Some(file));
            }
            self.issue(access);
            if let Err(why) = self.pace.check(self.now, self.answered_bytes) {
                self.tally.failed.get_or_insert(why);
            }
            if self.options.think.nanoseconds > 0 {
                self.think();
            }
        }
        self.quiesce();
        if (self.options.end_fsync || self.options.fsync_on_close) && self.options.writes && self.tally.failed.is_none()
        {
            self.sync_all();
        }
    }

    /// Behind every so many writes, whatever came behind those; fsync goes before fdatasync.
    fn sync_due(&self) -> Option<bool> {
        let every = |count: u64| count > 0 && self.issued_writes > 0 && self.issued_writes.is_multiple_of(count);
        if !self.options.writes || self.synced_last {
            return None;
        }
        match (every(self.options.fsync), every(self.options.fdatasync)) {
            (true, _) => Some(false),
            (false, data_only) => data_only.then_some(true),
        }
    }

    /// 0 for a read, 1 for a write.
    fn direction(&mut self) -> usize {
        if !(self.options.reads && self.options.writes) {
            return usize::from(self.options.writes);
        }
        let drawn = usize::from(self.dice.below(100) >= u64::from(self.options.read_percent));
        // Where only the other one is due, that one goes.
        let (due, other) = (self.pace.due(drawn), self.pace.due(1 - drawn));
        if self.pace.is_limited() && due > self.now && other < due { 1 - drawn } else { drawn }
    }

    fn await_pace(&mut self, way: usize) {
        self.look();
        let due = self.pace.due(way);
        if due > self.now {
            // Answers that come meanwhile are taken when they come.
            self.quiesce();
            self.wait_until(due);
        }
    }

    fn wait_until(&mut self, due: u64) {
        self.look();
        while self.now < due && !self.ended() {
            match (due - self.now).checked_sub(LATE) {
                Some(left) => std::thread::sleep(WallDuration::from_nanos(left.min(LOOK))),
                None => std::hint::spin_loop(),
            }
            self.look();
        }
    }

    fn issue(&mut self, access: Access) {
        let Some(slot) = self.free.pop() else { return };
        if access.write {
            self.make(slot, &access);
        }
        let begun = self.origin.elapsed().as_nanos() as u64;
        self.carrier.start(slot, &access);
        self.unsubmitted += 1;
        let several = self.flying.len() > 1;
        if several && self.unsubmitted >= self.options.submit {
            self.carrier.flush();
            self.unsubmitted = 0;
        }
        let submitted = if several { self.origin.elapsed().as_nanos() as u64 } else { begun };
        self.flying[slot as usize] = Flight::Access { access, begun, submitted };
        self.issued += 1;
        self.issued_bytes += access.length;
        self.issued_writes += u64::from(access.write);
        self.last_file = access.target;
        self.pace.issued(usize::from(access.write), access.length, &mut self.dice);
        if let Some(log) = &mut self.log {
            log.access(submitted, &access);
        }
        self.take_if_full();
    }

    fn make(&mut self, slot: u32, access: &Access) {
        let buffer = &mut self.carrier.buffer(slot)[..access.length as usize];
        match (&mut self.source, &self.options.fill) {
            (Some(source), _) => source.make(buffer, access.at),
            (None, Fill::Scrambled) => {
                self.writes_made += 1;
                for (number, sector) in buffer.chunks_mut(SECTOR).enumerate().filter(|(_, sector)| sector.len() >= 16) {
                    let place = access.at + (number * SECTOR) as u64;
                    sector[..8].copy_from_slice(&place.to_le_bytes());
                    sector[8..16].copy_from_slice(&self.writes_made.to_le_bytes());
                }
            }
            // A read of a mixed job may have gone to the same buffer.
            (None, Fill::Zeros) if self.options.reads => buffer.fill(0),
            (None, Fill::Pattern(pattern)) if self.options.reads => {
                buffer.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, wanted)| *byte = *wanted);
            }
            (None, _) => {}
        }
    }

    fn sync(&mut self, data_only: bool) {
        let Some(slot) = self.free.pop() else { return };
        let begun = self.origin.elapsed().as_nanos() as u64;
        self.carrier.sync(slot, self.last_file, data_only);
        self.flying[slot as usize] = Flight::Sync { begun };
        self.synced_last = true;
        if let Some(log) = &mut self.log {
            log.sync(begun, self.last_file, data_only);
        }
        self.take_if_full();
    }

    /// Every file, and none of it counted, as in fio.
    fn sync_all(&mut self) {
        let counted = self.tally.syncs.clone();
        for file in 0..self.places.count() {
            if self.given_up {
                break;
            }
            let Some(slot) = self.free.pop() else { return };
            self.carrier.sync(slot, file, false);
            self.flying[slot as usize] = Flight::Sync { begun: self.now };
            if let Some(log) = &mut self.log {
                log.sync(self.now, file, false);
            }
            self.quiesce();
        }
        self.tally.syncs = counted;
    }

    fn under_way(&self) -> usize {
        self.flying.len() - self.free.len()
    }

    fn take_if_full(&mut self) {
        if !self.free.is_empty() {
            return;
        }
        loop {
            self.take(self.options.complete);
            if self.given_up || self.under_way() <= self.options.depth_low as usize && !self.free.is_empty() {
                return;
            }
        }
    }

    fn quiesce(&mut self) {
        while self.under_way() > 0 && !self.given_up {
            self.take(self.under_way() as u32);
        }
    }

    /// Waits for so many answers, and counts them. A device that gives none is given up.
    fn take(&mut self, least: u32) {
        self.unsubmitted = 0;
        self.look();
        let (mut heard, mut told, mut missing) = (self.now, None, least.min(self.under_way() as u32));
        loop {
            self.carrier.reap(missing, Some(Duration(LOOK)), &mut self.answers);
            self.look();
            let mut answers = std::mem::take(&mut self.answers);
            if !answers.is_empty() {
                heard = self.now;
            }
            missing = missing.saturating_sub(answers.len() as u32);
            for (slot, result) in answers.drain(..) {
                self.settle(slot, result);
            }
            self.answers = answers;
            if missing == 0 {
                return;
            }
            if told.is_none() && self.ends.stop.load(Ordering::Relaxed) {
                told = Some(self.now);
            }
            let ended = told.is_some_and(|told| self.now >= told.max(heard) + FAREWELL.min(self.ends.patience.0));
            if ended || (self.now >= heard.saturating_add(self.ends.patience.0) && !self.is_syncing()) {
                let count = self.under_way();
                let why = format!("{count} of what it asked for is not answered for {}", Duration(self.now - heard));
                self.tally.failed.get_or_insert(why);
                self.given_up = true;
                return;
            }
        }
    }

    /// A sync takes as long as what was written needs, and writes may wait for it.
    fn is_syncing(&self) -> bool {
        self.flying.iter().any(|flight| matches!(flight, Flight::Sync { .. }))
    }

    fn settle(&mut self, slot: u32, result: Result<(), String>) {
        let flight = std::mem::replace(&mut self.flying[slot as usize], Flight::None);
        self.free.push(slot);
        let span = |from: u64, to: u64| Duration(to.saturating_sub(from));
        match (flight, result) {
            (Flight::Access { access, .. }, Err(why)) => {
                let name = if access.write { "write" } else { "read" };
                let why = format!("{name} of {} bytes at offset {}: {why}", access.length, access.at);
                self.tally.failed.get_or_insert(why);
            }
            (Flight::Access { access, begun, submitted }, Ok(())) => {
                let number = usize::from(access.write);
                self.answered += 1;
                self.answered_bytes[number] += access.length;
                let way = &mut self.tally.ways[number];
                way.bytes += access.length;
                way.whole.record(span(begun, self.now));
                way.completion.record(span(submitted, self.now));
                if submitted > begun {
                    way.submission.record(span(begun, submitted));
                }
            }
            (Flight::Sync { begun }, Ok(())) => self.tally.syncs.record(span(begun, self.now)),
            (Flight::Sync { .. }, Err(why)) => drop(self.tally.failed.get_or_insert(format!("sync: {why}"))),
            (Flight::None, _) => {}
        }
    }

    /// Behind every so many accesses nothing is under way for a while.
    fn think(&mut self) {
        let think = self.options.think;
        let count = if think.when_issued { self.issued } else { self.answered };
        if count < self.thought_at + think.blocks {
            return;
        }
        self.quiesce();
        let until = self.now + think.nanoseconds;
        let spins = (self.now + think.spin).min(until);
        while self.now < spins && !self.ended() {
            self.look();
        }
        self.wait_until(until);
        self.thought_at = count;
    }
}

impl Log {
    /// What went wrong with it, if anything.
    fn finish(mut self) -> Option<String> {
        self.out.flush().err().map(|error| format!("the log cannot be written: {error}"))
    }
}

#[cfg(test)]
mod tests;
