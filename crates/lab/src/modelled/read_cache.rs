//! A file server's memory before a modelled array, which keeps what was read: it holds half of what is in use, and reads
//! ahead of whoever reads in order.
//!
//! The published gateway of the DR550 had 2 GB of memory for 4 GB of files. Here the memory is as large a part of what is in
//! use; which pages it holds at first is drawn, and a page that comes takes the place of one that is drawn, so that the
//! memory is in its lasting state at once. Reads that continue the one before fetch a window in one access, and the next
//! window when half of it is behind them. Left out: the server's processors, its own protocol, and its network.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use stele_ground::{Dice, Duration, Instant};

use crate::closed::Target;
use crate::workload::Access;

/// Bytes of a page, and pages of a window that is read ahead.
const PAGE: u64 = 4096;
const WINDOW: u64 = 32;
/// The time of an answer from memory.
const MEMORY: Duration = Duration::from_micros(50);

pub struct ReadCache<T> {
    target: T,
    size: u64,
    dice: Dice,
    /// Pages that are held: by number, and in any order with the place of each.
    place: HashMap<u64, usize>,
    held: Vec<u64>,
    capacity: usize,
    /// Pages that are being fetched, by the access that fetches them.
    coming: HashMap<u64, u64>,
    fetches: HashMap<u64, Fetch>,
    next: u64,
    /// Accesses that wait, with the fetches that they lack.
    waiting: HashMap<u64, usize>,
    answers: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Where the last read ended, and how far was read ahead of it.
    last: u64,
    ahead: u64,
}

struct Fetch {
    pages: std::ops::Range<u64>,
    waiters: Vec<u64>,
}

impl<T: Target> ReadCache<T> {
    pub fn new(target: T, mut dice: Dice) -> ReadCache<T> {
        let size: u64 = target.sizes().iter().sum();
        let held: Vec<u64> = (0..size / PAGE).filter(|_| dice.below(2) == 0).collect();
        let place = held.iter().enumerate().map(|(at, page)| (*page, at)).collect();
        let capacity = held.len().max(1);
        ReadCache {
            target,
            size,
            dice,
            place,
            held,
            capacity,
            coming: HashMap::new(),
            fetches: HashMap::new(),
            next: 0,
            waiting: HashMap::new(),
            answers: BinaryHeap::new(),
            last: u64::MAX,
            ahead: 0,
        }
    }

    fn keep(&mut self, page: u64) {
        if self.place.contains_key(&page) {
            return;
        }
        let at = match self.held.len() < self.capacity {
            true => {
                self.held.push(page);
                self.held.len() - 1
            }
            false => {
                let at = self.dice.below(self.held.len() as u64) as usize;
                let gone = std::mem::replace(&mut self.held[at], page);
                self.place.remove(&gone);
                at
            }
        };
        self.place.insert(page, at);
    }

    fn is_there(&self, page: u64) -> bool {
        self.place.contains_key(&page) || self.coming.contains_key(&page)
    }

    /// Fetches the missing ones of these pages, neighbours in one access.
    fn fetch(&mut self, now: Instant, pages: std::ops::Range<u64>) -> Result<(), String> {
        let end = pages.end.min(self.size.div_ceil(PAGE));
        let mut first = pages.start;
        while first < end {
            if self.is_there(first) {
                first += 1;
                continue;
            }
            let mut last = first + 1;
            while last < end && !self.is_there(last) {
                last += 1;
            }
            let tag = self.next;
            self.next += 1;
            self.coming.extend((first..last).map(|page| (page, tag)));
            self.fetches.insert(tag, Fetch { pages: first..last, waiters: Vec::new() });
            let (at, till) = (first * PAGE, (last * PAGE).min(self.size));
            self.target.submit(now, tag, Access { target: 0, at, length: till - at, write: false })?;
            first = last;
        }
        Ok(())
    }
}

impl<T: Target> Target for ReadCache<T> {
    fn sizes(&self) -> Vec<u64> {
        vec![self.size]
    }

    fn submit(&mut self, now: Instant, tag: u64, access: Access) -> Result<(), String> {
        if access.write {
            return Err("this memory keeps what is read: it takes no writes".into());
        }
        let (first, last) = (access.at / PAGE, (access.at + access.length).div_ceil(PAGE));
        let in_order = access.at == self.last;
        self.last = access.at + access.length;
        if !in_order {
            self.ahead = last;
        }
        self.fetch(now, first..last)?;
        if in_order && self.ahead < last + WINDOW / 2 {
            let from = self.ahead.max(last);
            self.ahead = from + WINDOW;
            self.fetch(now, from..from + WINDOW)?;
        }
        let mut lacks: Vec<u64> = (first..last).filter_map(|page| self.coming.get(&page).copied()).collect();
        lacks.dedup();
        if lacks.is_empty() {
            self.answers.push(Reverse((now + MEMORY, tag)));
            return Ok(());
        }
        self.waiting.insert(tag, lacks.len());
        for fetch in lacks {
            if let Some(fetch) = self.fetches.get_mut(&fetch) {
                fetch.waiters.push(tag);
            }
        }
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        let answer = self.answers.peek().map(|Reverse((at, _))| *at);
        answer.into_iter().chain(self.target.next_event()).min()
    }

    fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String> {
        let mut done = Vec::new();
        self.target.advance(now, &mut done)?;
        for tag in done {
            let Some(fetch) = self.fetches.remove(&tag) else { continue };
            for page in fetch.pages {
                self.coming.remove(&page);
                self.keep(page);
            }
            for tag in fetch.waiters {
                let Some(lacks) = self.waiting.get_mut(&tag) else { continue };
                *lacks -= 1;
                if *lacks == 0 {
                    self.waiting.remove(&tag);
                    finished.push(tag);
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

    fn processors_worked(&self) -> Option<f64> {
        self.target.processors_worked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::closed::{Length, Loop};
    use crate::workload::{AccessSpec, Alignment, Generator};

    /// Answers each access five milliseconds later, and counts them.
    #[derive(Default)]
    struct Slow {
        due: std::collections::VecDeque<(Instant, u64)>,
        count: u64,
        bytes: u64,
    }

    impl Target for Slow {
        fn sizes(&self) -> Vec<u64> {
            vec![64 << 20]
        }

        fn submit(&mut self, now: Instant, tag: u64, access: Access) -> Result<(), String> {
            (self.count, self.bytes) = (self.count + 1, self.bytes + access.length);
            self.due.push_back((now + Duration::from_millis(5), tag));
            Ok(())
        }

        fn next_event(&self) -> Option<Instant> {
            self.due.front().map(|(at, _)| *at)
        }

        fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String> {
            while let Some((_, tag)) = self.due.front().copied().filter(|(at, _)| *at <= now) {
                self.due.pop_front();
                finished.push(tag);
            }
            Ok(())
        }

        fn drives_worked(&self) -> Vec<f64> {
            vec![0.0]
        }
    }

    /// Mean response in milliseconds, and accesses and bytes that the array saw for each that was asked.
    fn measured(random: u8, size: u64, outstanding: u64) -> (f64, f64, f64) {
        let spec = AccessSpec { name: "test".into(), random: Some(random), read: Some(100), sizes: vec![(size, 100)] };
        let generator = Generator::new(spec, Alignment::Request, Dice::new(3));
        let mut running = Loop::new(ReadCache::new(Slow::default(), Dice::new(5)), generator, Instant::default());
        running.warm_up(outstanding, 2000, &|| true).unwrap();
        let before = (running.target().target.count, running.target().target.bytes);
        let probe = running.probe(outstanding, Length { warm_up: 0, round: 2000, rounds_max: 5 }, &|| true).unwrap();
        let answered = 2000.0 * 5.0;
        let slow = &running.target().target;
        let (count, bytes) = ((slow.count - before.0) as f64, (slow.bytes - before.1) as f64);
        (probe.mean_millis(), count / answered, bytes / answered)
    }

    #[test]
    fn half_of_random_reads_are_answered_from_memory() {
        let (mean, count, _) = measured(100, 4096, 4);
        assert!((count - 0.5).abs() < 0.03 && (mean - 2.5).abs() < 0.2, "{mean} ms, {count}");
    }

    #[test]
    fn reads_in_order_are_read_ahead_in_windows() {
        let (mean, count, bytes) = measured(0, 4096, 1);
        // Half of all pages are there already: windows have holes.
        assert!(count < 0.3 && bytes <= 4096.0 && mean < 1.5, "{mean} ms, {count} accesses, {bytes} bytes");
    }

    #[test]
    fn smaller_reads_than_a_page_bring_it_once() {
        let (_, count, bytes) = measured(0, 512, 1);
        assert!(count < 0.05 && bytes < 520.0, "{count} accesses, {bytes} bytes");
    }
}
