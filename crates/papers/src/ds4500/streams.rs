//! Streams on the published machine: its controllers read ahead of hosts that read in order, and
//! gather writes in order until they fill a row of an array, which RAID-5 then writes without
//! reading.
//!
//! Each array has one stream, as each logical drive had in Iometer. The read-ahead is the one that
//! the published paper states for the DS4400 (eight segments); that of the DS4500 is not stated. A
//! controller charges less for a KiB of a stream than of random accesses: the charge is solved from
//! one published figure, the streaming reads of RAID-5 at 64 KiB (722 MiB/s). All others are held
//! out.

use std::collections::{BTreeMap, HashMap, VecDeque};

use stele_ground::Instant;
use stele_lab::closed::SimulatedTarget;
use stele_lab::modelled::layer::{Desk, Layered, Rules};
use stele_lab::raid::{self, Level, SEGMENT};
use stele_lab::workload::Access;

use super::{Charge, MEMORY};

/// Segments of a window that is read ahead, and windows that are on their way or there.
const WINDOW: u64 = 8;
const WINDOWS: u64 = 2;

impl Charge {
    /// Of streams: 64 KiB at 722 MiB/s, and commands as of random accesses.
    pub const STREAMS: Charge = Charge { command_nanos: 13_740.0, kib_nanos: 1_138.0 };
}

/// A window on its way, or there.
#[derive(Default)]
struct Window {
    is_there: bool,
    waiters: Vec<u64>,
}

/// The stream of one array.
#[derive(Default)]
struct Stream {
    /// Windows by number.
    windows: BTreeMap<u64, Window>,
    /// Where the row that is being gathered begins, and its bytes so far.
    row: u64,
    gathered: u64,
}

enum Work {
    Window { array: usize, number: u64 },
    Row { bytes: u64 },
}

pub struct Streams {
    sizes: Vec<u64>,
    /// Bytes of data in a row of an array.
    row: u64,
    /// Bytes of memory for writes, and how many are in use.
    cache: u64,
    dirty: u64,
    streams: Vec<Stream>,
    works: HashMap<u64, Work>,
    next: u64,
    /// Windows that a read lacks.
    lacking: HashMap<u64, usize>,
    /// Writes that wait for room.
    stalled: VecDeque<(u64, Access)>,
}

impl Streams {
    pub fn before<T: SimulatedTarget>(target: T, level: Level, cache: u64) -> Layered<Streams, T> {
        let sizes = target.sizes();
        let streams = sizes.iter().map(|_| Stream::default()).collect();
        let rules = Streams {
            sizes,
            row: raid::capacity(level, SEGMENT),
            cache,
            dirty: 0,
            streams,
            works: HashMap::new(),
            next: 0,
            lacking: HashMap::new(),
            stalled: VecDeque::new(),
        };
        Layered::new(rules, target)
    }

    fn begin(&mut self, now: Instant, work: Work, access: Access, desk: &mut Desk) {
        let tag = self.next;
        self.next += 1;
        self.works.insert(tag, work);
        desk.pass(now, tag, access);
    }

    fn fetch(&mut self, now: Instant, array: usize, number: u64, desk: &mut Desk) {
        let size = self.sizes[array];
        let at = number * WINDOW * SEGMENT;
        if at >= size || self.streams[array].windows.contains_key(&number) {
            return;
        }
        self.streams[array].windows.insert(number, Window::default());
        let length = (WINDOW * SEGMENT).min(size - at);
        self.begin(now, Work::Window { array, number }, Access { target: array, at, length, write: false }, desk);
    }

    fn read(&mut self, now: Instant, tag: u64, access: Access, desk: &mut Desk) {
        let bytes = WINDOW * SEGMENT;
        let (array, first) = (access.target, access.at / bytes);
        let last = (access.at + access.length - 1) / bytes;
        for number in first..=last + WINDOWS {
            self.fetch(now, array, number, desk);
        }
        let stream = &mut self.streams[array];
        // What lies behind the reader is given up, but for the window before: its last reads may be
        // under way.
        stream.windows.retain(|number, window| number + 1 >= first && *number <= last + WINDOWS || !window.is_there);
        let mut lacks = 0;
        for (_, window) in stream.windows.range_mut(first..=last).filter(|(_, window)| !window.is_there) {
            window.waiters.push(tag);
            lacks += 1;
        }
        match lacks {
            0 => desk.answer(now + MEMORY, tag),
            count => drop(self.lacking.insert(tag, count)),
        }
    }

    /// Takes in the writes that have room, and writes the rows that are full.
    fn take_in(&mut self, now: Instant, desk: &mut Desk) {
        while let Some((tag, access)) = self.stalled.front().copied() {
            if self.dirty + access.length > self.cache {
                return;
            }
            self.stalled.pop_front();
            self.dirty += access.length;
            desk.answer(now + MEMORY, tag);
            let stream = &mut self.streams[access.target];
            if access.at != stream.row + stream.gathered {
                // The stream begins, or begins again: what was gathered is written later with its
                // row.
                self.dirty -= std::mem::take(&mut stream.gathered);
                stream.row = access.at;
            }
            stream.gathered += access.length;
            while self.streams[access.target].gathered >= self.row {
                let stream = &mut self.streams[access.target];
                let at = stream.row;
                (stream.row, stream.gathered) = (at + self.row, stream.gathered - self.row);
                let whole =
                    Access { target: access.target, at: at / self.row * self.row, length: self.row, write: true };
                self.begin(now, Work::Row { bytes: self.row }, whole, desk);
            }
        }
    }
}

impl Rules for Streams {
    fn takes(&mut self, now: Instant, tag: u64, access: Access, desk: &mut Desk) -> Result<(), String> {
        if access.write {
            self.stalled.push_back((tag, access));
            self.take_in(now, desk);
        } else {
            self.read(now, tag, access, desk);
        }
        Ok(())
    }

    fn answered(&mut self, now: Instant, tag: u64, desk: &mut Desk) {
        match self.works.remove(&tag) {
            None => {}
            Some(Work::Row { bytes }) => {
                self.dirty = self.dirty.saturating_sub(bytes);
                self.take_in(now, desk);
            }
            Some(Work::Window { array, number }) => {
                let Some(window) = self.streams[array].windows.get_mut(&number) else { return };
                window.is_there = true;
                for tag in std::mem::take(&mut window.waiters) {
                    let Some(lacks) = self.lacking.get_mut(&tag) else { continue };
                    *lacks -= 1;
                    if *lacks == 0 {
                        self.lacking.remove(&tag);
                        desk.answer(now + MEMORY, tag);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
