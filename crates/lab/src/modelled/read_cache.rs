//! A file server's memory before a modelled array, which keeps what was read: it holds half of what
//! is in use, and reads ahead of a client that reads in order.
//!
//! The published gateway of the DR550 had 2 GB of memory for 4 GB of files. Here the memory is as
//! large a part of what is in use. Which pages it holds at first is drawn, and a page that comes
//! takes the place of one that is drawn, so that the memory is in its lasting state at once. Reads
//! that continue the one before fetch a window in one access, and the next window when half of it
//! is behind them. Left out: the server's processors, its own protocol, and its network.

use std::collections::HashMap;

use stele_ground::{Dice, Duration, Instant};

use super::layer::{Desk, Layered, Rules};
use crate::closed::SimulatedTarget;
use crate::workload::Access;

/// Bytes of a page, and pages of a window that is read ahead.
const PAGE: u64 = 4096;
const WINDOW: u64 = 32;
/// The time of an answer from memory.
const MEMORY: Duration = Duration::from_micros(50);

pub struct ReadCache {
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
    /// Where the last read ended, and how far was read ahead of it.
    last: u64,
    ahead: u64,
}

struct Fetch {
    pages: std::ops::Range<u64>,
    waiters: Vec<u64>,
}

impl ReadCache {
    pub fn before<T: SimulatedTarget>(target: T, mut dice: Dice) -> Layered<ReadCache, T> {
        let size: u64 = target.sizes().iter().sum();
        let held: Vec<u64> = (0..size / PAGE).filter(|_| dice.below(2) == 0).collect();
        let place = held.iter().enumerate().map(|(at, page)| (*page, at)).collect();
        let capacity = held.len().max(1);
        let cache = ReadCache {
            size,
            dice,
            place,
            held,
            capacity,
            coming: HashMap::new(),
            fetches: HashMap::new(),
            next: 0,
            waiting: HashMap::new(),
            last: u64::MAX,
            ahead: 0,
        };
        Layered::new(cache, target)
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
    fn fetch(&mut self, now: Instant, pages: std::ops::Range<u64>, desk: &mut Desk) {
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
            desk.pass(now, tag, Access { target: 0, at, length: till - at, write: false });
            first = last;
        }
    }
}

impl Rules for ReadCache {
    fn sizes(&self, _: Vec<u64>) -> Vec<u64> {
        vec![self.size]
    }

    fn takes(&mut self, now: Instant, tag: u64, access: Access, desk: &mut Desk) -> Result<(), String> {
        if access.write {
            return Err("this memory keeps what is read: it takes no writes".into());
        }
        let (first, last) = (access.at / PAGE, (access.at + access.length).div_ceil(PAGE));
        let in_order = access.at == self.last;
        self.last = access.at + access.length;
        if !in_order {
            self.ahead = last;
        }
        self.fetch(now, first..last, desk);
        if in_order && self.ahead < last + WINDOW / 2 {
            let from = self.ahead.max(last);
            self.ahead = from + WINDOW;
            self.fetch(now, from..from + WINDOW, desk);
        }
        let mut lacks: Vec<u64> = (first..last).filter_map(|page| self.coming.get(&page).copied()).collect();
        lacks.dedup();
        if lacks.is_empty() {
            desk.answer(now + MEMORY, tag);
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

    fn answered(&mut self, now: Instant, tag: u64, desk: &mut Desk) {
        let Some(fetch) = self.fetches.remove(&tag) else { return };
        for page in fetch.pages {
            self.coming.remove(&page);
            self.keep(page);
        }
        for tag in fetch.waiters {
            let Some(lacks) = self.waiting.get_mut(&tag) else { continue };
            *lacks -= 1;
            if *lacks == 0 {
                self.waiting.remove(&tag);
                desk.answer(now, tag);
            }
        }
    }
}

#[cfg(test)]
mod tests;
