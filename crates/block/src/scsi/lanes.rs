//! Decides which commands of a unit may run concurrently. Commands run at once, in any order, with
//! two exceptions. A command that reads and then writes a result (COMPARE AND WRITE, ORWRITE) has
//! its blocks to itself. An ORDERED command waits for all earlier commands and delays all later
//! ones. At most [`LANES_MAX`] commands are running or waiting.

use std::collections::VecDeque;

use super::command::Blocks;

pub const LANES_MAX: usize = 1024;

#[derive(Clone, Copy)]
struct Lane {
    key: u64,
    blocks: Blocks,
    exclusive: bool,
    ordered: bool,
}

impl Lane {
    fn meets(&self, other: &Lane) -> bool {
        if self.ordered || other.ordered {
            return true;
        }
        let (mine, theirs) = (self.blocks, other.blocks);
        (self.exclusive || other.exclusive)
            && mine.at < theirs.at.saturating_add(theirs.count)
            && theirs.at < mine.at.saturating_add(mine.count)
    }
}

#[derive(Default)]
pub struct Lanes {
    running: Vec<Lane>,
    waiting: VecDeque<Lane>,
    /// Number of running commands that are exclusive or ordered. With none, and no waiting command,
    /// a plain command runs at once.
    strict: usize,
}

pub enum Entry {
    Runs,
    Waits,
    Full,
}

impl Lanes {
    pub fn enter(&mut self, key: u64, lane: Option<(Blocks, bool)>, ordered: bool) -> Entry {
        if self.running.len() + self.waiting.len() >= LANES_MAX {
            return Entry::Full;
        }
        let (blocks, exclusive) = lane.unwrap_or((Blocks { at: 0, count: 0 }, false));
        let lane = Lane { key, blocks, exclusive, ordered };
        let plain = !exclusive && !ordered && self.strict == 0;
        let free = self.waiting.is_empty() && (plain || !self.running.iter().any(|other| lane.meets(other)));
        if free || !self.waits(&lane) {
            self.run(lane);
            Entry::Runs
        } else {
            self.waiting.push_back(lane);
            Entry::Waits
        }
    }

    /// Admits an operation of another unit's copy, unless a running command has its blocks to
    /// itself. It waits for no ORDERED command, and for no waiting one: two copies to each other's
    /// unit would wait for each other.
    pub fn visit(&mut self, key: u64, blocks: Blocks) -> bool {
        let lane = Lane { key, blocks, exclusive: false, ordered: false };
        if self.running.iter().any(|other| lane.meets(&Lane { ordered: false, ..*other })) {
            return false;
        }
        self.run(lane);
        true
    }

    fn waits(&self, lane: &Lane) -> bool {
        self.running.iter().chain(&self.waiting).any(|other| lane.meets(other))
    }

    fn run(&mut self, lane: Lane) {
        self.strict += usize::from(lane.exclusive || lane.ordered);
        self.running.push(lane);
    }

    /// Ends a command, running or waiting, and returns those that may run now.
    pub fn leave(&mut self, key: u64) -> Vec<u64> {
        if let Some(at) = self.running.iter().position(|lane| lane.key == key) {
            let lane = self.running.swap_remove(at);
            self.strict -= usize::from(lane.exclusive || lane.ordered);
        } else {
            self.waiting.retain(|lane| lane.key != key);
        }
        let mut freed = Vec::new();
        if self.waiting.is_empty() {
            return freed;
        }
        for lane in std::mem::take(&mut self.waiting) {
            if self.waits(&lane) {
                self.waiting.push_back(lane);
            } else {
                freed.push(lane.key);
                self.run(lane);
            }
        }
        freed
    }

    pub fn is_waiting(&self, key: u64) -> bool {
        self.waiting.iter().any(|lane| lane.key == key)
    }
}
