//! The processors of a server before a modelled array: each access waits for one, which takes it for as long as was
//! measured, and reaches the array behind it.
//!
//! The costs are those of docs/block.md ("From the drives"): all processor time of the server's process for an access,
//! with network protocol, digests, codes and destage, of a volume on drives of memory. Two sizes were measured, so that a
//! cost is a part for the access and a part for each KiB. That they are the same on many drives as on twelve, and under
//! another load, is assumed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use stele_ground::Instant;

use crate::closed::Target;
use crate::raid::Level;
use crate::workload::Access;

/// Nanoseconds of a processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    pub access: u64,
    pub kib: u64,
}

impl Cost {
    /// Through two measured points: microseconds of an access of 4 KiB, and of one of 256 KiB.
    const fn through(small: f64, large: f64) -> Cost {
        let kib = (large - small) / 252.0;
        Cost { access: ((small - 4.0 * kib) * 1000.0) as u64, kib: (kib * 1000.0) as u64 }
    }

    fn of(self, bytes: u64) -> u64 {
        self.access + self.kib * bytes / 1024
    }
}

/// What accesses cost, and how many processors there are for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processors {
    pub count: u32,
    pub read: Cost,
    pub write: Cost,
}

impl Processors {
    /// As measured: of mirror-2 for RAID-10, of 8+2 for the others.
    pub fn measured(level: Level, count: u32) -> Processors {
        let (read, write) = match level {
            Level::Raid10 => (Cost::through(10.8, 210.9), Cost::through(26.0, 180.7)),
            Level::Raid5 | Level::Raid6 => (Cost::through(8.0, 197.4), Cost::through(47.1, 300.3)),
        };
        Processors { count, read, write }
    }

    pub fn nanos(&self, access: &Access) -> u64 {
        if access.write { self.write.of(access.length) } else { self.read.of(access.length) }
    }
}

/// An access that a processor has taken, by the time at which it is through.
type Taken = Reverse<(Instant, u64)>;

pub struct Charged<T> {
    target: T,
    processors: Processors,
    /// When each becomes free.
    free: BinaryHeap<Reverse<Instant>>,
    taken: BinaryHeap<Taken>,
    accesses: std::collections::HashMap<u64, Access>,
    /// Nanoseconds of all processors.
    worked: u64,
}

impl<T: Target> Charged<T> {
    pub fn new(target: T, processors: Processors) -> Charged<T> {
        let free = (0..processors.count.max(1)).map(|_| Reverse(Instant::default())).collect();
        let (taken, accesses) = (BinaryHeap::new(), Default::default());
        Charged { target, processors, free, taken, accesses, worked: 0 }
    }
}

impl<T: Target> Target for Charged<T> {
    fn sizes(&self) -> Vec<u64> {
        self.target.sizes()
    }

    fn submit(&mut self, now: Instant, tag: u64, access: Access) -> Result<(), String> {
        let Some(Reverse(free)) = self.free.pop() else { return Err("there is no processor".into()) };
        let cost = self.processors.nanos(&access);
        let through = Instant(free.max(now).0 + cost);
        self.worked += cost;
        self.free.push(Reverse(through));
        self.taken.push(Reverse((through, tag)));
        self.accesses.insert(tag, access);
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        let through = self.taken.peek().map(|Reverse((at, _))| *at);
        through.into_iter().chain(self.target.next_event()).min()
    }

    fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String> {
        while let Some(Reverse((at, tag))) = self.taken.peek().copied() {
            if at > now {
                break;
            }
            self.taken.pop();
            if let Some(access) = self.accesses.remove(&tag) {
                self.target.submit(now, tag, access)?;
            }
        }
        self.target.advance(now, finished)
    }

    fn drives_worked(&self) -> Vec<f64> {
        self.target.drives_worked()
    }

    fn controllers_worked(&self) -> Option<f64> {
        self.target.controllers_worked()
    }

    fn processors_worked(&self) -> Option<f64> {
        Some(self.worked as f64 / 1e9 / f64::from(self.processors.count.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed::{Length, Loop};
    use crate::workload::{self, Alignment, Generator};
    use stele_ground::{Dice, Duration};

    /// Answers everything a millisecond later.
    #[derive(Default)]
    struct Late(std::collections::VecDeque<(Instant, u64)>);

    impl Target for Late {
        fn sizes(&self) -> Vec<u64> {
            vec![1 << 30]
        }

        fn submit(&mut self, now: Instant, tag: u64, _: Access) -> Result<(), String> {
            self.0.push_back((now + Duration::from_millis(1), tag));
            Ok(())
        }

        fn next_event(&self) -> Option<Instant> {
            self.0.front().map(|(at, _)| *at)
        }

        fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String> {
            while let Some((_, tag)) = self.0.front().copied().filter(|(at, _)| *at <= now) {
                self.0.pop_front();
                finished.push(tag);
            }
            Ok(())
        }

        fn drives_worked(&self) -> Vec<f64> {
            vec![0.0]
        }
    }

    fn rate(count: u32, outstanding: u64) -> (f64, f64) {
        let spec = workload::named("random_read_8k").unwrap();
        let processors = Processors::measured(Level::Raid10, count);
        let generator = Generator::new(spec, Alignment::Request, Dice::new(1));
        let mut running = Loop::new(Charged::new(Late::default(), processors), generator, Instant::default());
        let length = Length { warm_up: 2000, round: 2000, rounds_max: 12 };
        let probe = running.probe(outstanding, length, &|| true).unwrap();
        (probe.rate, running.window()[0].busy.processors.unwrap())
    }

    #[test]
    fn costs_go_through_what_was_measured() {
        let processors = Processors::measured(Level::Raid5, 1);
        for (write, length, micros) in
            [(false, 4096, 8.0), (false, 256 << 10, 197.4), (true, 4096, 47.1), (true, 256 << 10, 300.3)]
        {
            let nanos = processors.nanos(&Access { target: 0, at: 0, length, write });
            assert!((nanos as f64 / 1000.0 - micros).abs() < 0.5, "{nanos} for {micros}");
        }
    }

    #[test]
    fn an_array_that_is_fast_is_bound_by_its_processors() {
        let cost = Processors::measured(Level::Raid10, 1).read.of(8192) as f64;
        for count in [1, 4] {
            let (most, busy) = rate(count, 1000);
            let bound = f64::from(count) * 1e9 / cost;
            assert!((most / bound - 1.0).abs() < 0.03 && busy > 0.97, "{most} a second, {bound} at most, busy {busy}");
        }
        let (few, busy) = rate(1, 1);
        let alone = 1e9 / (1e6 + cost);
        assert!((few / alone - 1.0).abs() < 0.01 && busy < 0.05, "{few} a second, {alone} alone, busy {busy}");
    }
}
