//! Streams on the published machine: its controllers read ahead of hosts that read in order, and gather writes in order
//! until they fill a row of an array, which RAID-5 then writes without reading.
//!
//! Each array has one stream, as each logical drive had in Iometer. The read-ahead is that which the published paper
//! states for the DS4400 (eight segments); that of the DS4500 is not stated. A controller charges less for a KiB of a
//! stream than of random accesses: the charge is solved from one published figure, the streaming reads of RAID-5 at
//! 64 KiB (722 MiB/s). All others are held out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use stele_ground::Instant;
use stele_lab::closed::Target;
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

pub struct Streams<T> {
    target: T,
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
    answers: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl<T: Target> Streams<T> {
    pub fn new(target: T, level: Level, cache: u64) -> Streams<T> {
        let sizes = target.sizes();
        let streams = sizes.iter().map(|_| Stream::default()).collect();
        Streams {
            target,
            sizes,
            row: raid::capacity(level, SEGMENT),
            cache,
            dirty: 0,
            streams,
            works: HashMap::new(),
            next: 0,
            lacking: HashMap::new(),
            stalled: VecDeque::new(),
            answers: BinaryHeap::new(),
        }
    }

    fn begin(&mut self, now: Instant, work: Work, access: Access) -> Result<(), String> {
        let tag = self.next;
        self.next += 1;
        self.works.insert(tag, work);
        self.target.submit(now, tag, access)
    }

    fn fetch(&mut self, now: Instant, array: usize, number: u64) -> Result<(), String> {
        let size = self.sizes[array];
        let at = number * WINDOW * SEGMENT;
        if at >= size || self.streams[array].windows.contains_key(&number) {
            return Ok(());
        }
        self.streams[array].windows.insert(number, Window::default());
        let length = (WINDOW * SEGMENT).min(size - at);
        self.begin(now, Work::Window { array, number }, Access { target: array, at, length, write: false })
    }

    fn read(&mut self, now: Instant, tag: u64, access: Access) -> Result<(), String> {
        let bytes = WINDOW * SEGMENT;
        let (array, first) = (access.target, access.at / bytes);
        let last = (access.at + access.length - 1) / bytes;
        for number in first..=last + WINDOWS {
            self.fetch(now, array, number)?;
        }
        let stream = &mut self.streams[array];
        // What lies behind the reader is given up, but for the window before: its last reads may be under way.
        stream.windows.retain(|number, window| number + 1 >= first && *number <= last + WINDOWS || !window.is_there);
        let mut lacks = 0;
        for (_, window) in stream.windows.range_mut(first..=last).filter(|(_, window)| !window.is_there) {
            window.waiters.push(tag);
            lacks += 1;
        }
        match lacks {
            0 => self.answers.push(Reverse((now + MEMORY, tag))),
            count => drop(self.lacking.insert(tag, count)),
        }
        Ok(())
    }

    /// Takes in the writes that have room, and writes the rows that are full.
    fn take_in(&mut self, now: Instant) -> Result<(), String> {
        while let Some((tag, access)) = self.stalled.front().copied() {
            if self.dirty + access.length > self.cache {
                return Ok(());
            }
            self.stalled.pop_front();
            self.dirty += access.length;
            self.answers.push(Reverse((now + MEMORY, tag)));
            let stream = &mut self.streams[access.target];
            if access.at != stream.row + stream.gathered {
                // The stream begins, or begins again: what was gathered is written later with its row.
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
                self.begin(now, Work::Row { bytes: self.row }, whole)?;
            }
        }
        Ok(())
    }
}

impl<T: Target> Target for Streams<T> {
    fn sizes(&self) -> Vec<u64> {
        self.sizes.clone()
    }

    fn submit(&mut self, now: Instant, tag: u64, access: Access) -> Result<(), String> {
        if !access.write {
            return self.read(now, tag, access);
        }
        self.stalled.push_back((tag, access));
        self.take_in(now)
    }

    fn next_event(&self) -> Option<Instant> {
        let answer = self.answers.peek().map(|Reverse((at, _))| *at);
        answer.into_iter().chain(self.target.next_event()).min()
    }

    fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String> {
        let mut done = Vec::new();
        self.target.advance(now, &mut done)?;
        for tag in done {
            let Some(work) = self.works.remove(&tag) else { continue };
            match work {
                Work::Row { bytes } => {
                    self.dirty = self.dirty.saturating_sub(bytes);
                    self.take_in(now)?;
                }
                Work::Window { array, number } => {
                    let Some(window) = self.streams[array].windows.get_mut(&number) else { continue };
                    window.is_there = true;
                    for tag in std::mem::take(&mut window.waiters) {
                        let Some(lacks) = self.lacking.get_mut(&tag) else { continue };
                        *lacks -= 1;
                        if *lacks == 0 {
                            self.lacking.remove(&tag);
                            self.answers.push(Reverse((now + MEMORY, tag)));
                        }
                    }
                }
            }
        }
        while let Some(Reverse((_, tag))) = self.answers.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.answers.pop();
            finished.push(tag);
        }
        Ok(())
    }

    fn drives_worked(&self) -> Vec<f64> {
        self.target.drives_worked()
    }

    fn controllers_worked(&self) -> Option<f64> {
        self.target.controllers_worked()
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::{Machine, profile};
    use crate::recipe::ds4500::STREAM_DRIVES;
    use stele_lab::modelled::{Array, Ask, Effort, LogPlace, Maker, ask};
    use stele_lab::raid::Level;
    use stele_lab::workload::{self, Alignment};

    /// MiB/s of so many outstanding accesses.
    fn throughput(level: Level, name: &str, outstanding: u64) -> f64 {
        let spec = workload::named(name).unwrap();
        let array = Array {
            maker: Maker::Ds4500,
            level,
            drives: STREAM_DRIVES,
            cached: name.starts_with("streaming_write"),
            stroke: 8,
            log: LogPlace::Memory,
        };
        let mut running = profile(&array, Machine::PUBLISHED, &spec, Alignment::Request);
        let answer = ask(running.as_mut(), &Ask::Loads(vec![outstanding]), Effort::FULL, &|| true).unwrap();
        answer.runs[0].probe.rate * spec.mean_length() as f64 / f64::from(1 << 20)
    }

    #[test]
    fn reads_of_the_fitted_size_come_as_published_and_of_raid_10_near_it() {
        for (level, published) in [(Level::Raid5, 722.0), (Level::Raid10, 728.0)] {
            let found = throughput(level, "streaming_read_64k", 120);
            assert!((found / published - 1.0).abs() < 0.05, "{level:?}: {found} MiB/s");
        }
    }

    #[test]
    fn small_reads_are_answered_from_what_was_read_ahead() {
        let (small, large) =
            (throughput(Level::Raid5, "streaming_read_4k", 1200), throughput(Level::Raid5, "streaming_read_64k", 120));
        assert!(small > large * 0.8, "{small} and {large} MiB/s");
    }

    #[test]
    fn a_row_is_written_without_being_read() {
        // Ten commands for nine segments; a segment alone would take four.
        let found = throughput(Level::Raid5, "streaming_write_64k", 120);
        assert!((found / 650.0 - 1.0).abs() < 0.06, "{found} MiB/s");
    }
}
