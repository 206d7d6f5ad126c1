//! Which commands the prototypes send to modelled drives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Command, Job};
use crate::destage::hosts::{Skew, Writers};
use crate::destage::layout::{Layout, PAGE};
use crate::destage::space::{Choice, NONE, Run, Space, Stream};

/// A way from the cache to the strips.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Path {
    /// Each write by itself, first in, first out, without a log: the profile of the DS4500.
    Profile,
    /// By stripe, as the array does.
    Today,
    /// So many stripes at a time, in the order of their places. Reads with gaps of up to so many
    /// bytes between them are one command, and so are writes: of what was read there.
    Batch { stripes: usize, read_gap: u64, write_gap: u64 },
    /// New full stripes, where the volume takes this share of the room.
    Relocate { full: f64, choice: Choice },
}

/// Commands of a drive's window that the profile keeps busy.
const WINDOW: usize = 10;
/// Batches under way at once at least, so that drives read for one while they write for another.
const BATCHES: usize = 3;
/// Parcels that hosts' blocks are written in at a time: 512 KiB for each drive.
const PARCELS: u32 = 8;

pub struct Plan {
    path: Path,
    layout: Layout,
    blocks: u64,
    hosts: Writers,
    /// Blocks that the cache holds, under way or not, and may hold.
    held: u64,
    limit: u64,
    queue: VecDeque<u64>,
    dirty: BTreeSet<u64>,
    from: u64,
    space: Option<Space>,
    /// Parcels are longer than stripes where the code is narrow.
    parcels: Layout,
    /// Cleaned blocks that wait for a parcel to be full, with the places that they were read from.
    moving: Vec<(u32, u32)>,
    /// Segments that are being read, and those that were, of which something still waits.
    cleaning: usize,
    cleaned: Vec<u32>,
    reads: u64,
}

impl Plan {
    /// A volume of so many blocks, which was written in order; and a full cache.
    pub fn new(path: Path, layout: Layout, blocks: u64, limit: u64, skew: Skew) -> Plan {
        let parcel = layout.strip.max(128 / layout.k as u64);
        // A parcel's neighbours are written with it: one command for each drive.
        let parcels = Layout { strip: parcel, row: layout.row * layout.strip / parcel, turns: false, ..layout };
        let lanes = layout.drives.div_ceil(layout.width());
        let space = match path {
            Path::Relocate { full, choice } => {
                Some(Space::new(blocks, parcels.stripe(), parcels.row, full, lanes, choice))
            }
            _ => None,
        };
        let mut plan = Plan {
            path,
            layout,
            blocks,
            hosts: Writers::new(5, blocks, skew),
            held: 0,
            limit,
            queue: VecDeque::new(),
            dirty: BTreeSet::new(),
            from: 0,
            space,
            parcels,
            moving: Vec::new(),
            cleaning: 0,
            cleaned: Vec::new(),
            reads: 0,
        };
        plan.settle_all(0..blocks as u32);
        plan.accept();
        plan
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Puts blocks into parcels without time passing.
    fn settle_all(&mut self, blocks: impl Iterator<Item = u32>) {
        let Some(space) = self.space.as_mut() else { return };
        let mut blocks = blocks.peekable();
        while blocks.peek().is_some() {
            let Run { first, parcels } = space.take(Stream::Hosts, 1).expect("room for the volume");
            (first..first + parcels).for_each(|parcel| space.settle(parcel, blocks.by_ref().take(space.room())));
        }
    }

    /// Ages the room, and brings the elevator to where it stays, without time passing: so many
    /// writes of hosts, and what is cleaned for them.
    pub fn age(&mut self, writes: u64) {
        let mut aged = 0;
        while aged < writes {
            let Some(job) = self.next() else { return };
            aged += self.done(&job);
        }
    }

    /// Hosts fill the cache. Answers how many writes they got in.
    fn accept(&mut self) -> u64 {
        let mut count = 0;
        while self.held < self.limit {
            let block = self.hosts.draw();
            count += 1;
            if self.path == Path::Profile {
                self.queue.push_back(block);
                self.held += 1;
            } else if self.dirty.insert(block) {
                self.held += 1;
            }
        }
        count
    }

    pub fn at_once(&self) -> usize {
        let drives = self.layout.drives;
        match self.path {
            Path::Profile => WINDOW * drives / 2,
            Path::Today => (5 * drives).max(96),
            Path::Batch { stripes, .. } => (5 * drives).max(96).div_ceil(stripes).max(BATCHES),
            Path::Relocate { .. } => 2 * drives.div_ceil(self.layout.width()) + 2,
        }
    }

    /// A job is done: its blocks leave the cache, and hosts fill it again.
    pub fn done(&mut self, job: &Job) -> u64 {
        self.held -= job.blocks;
        if let Some(segment) = job.cleaned {
            self.cleaning -= 1;
            self.cleaned.push(segment);
        }
        if let Some(space) = self.space.as_mut() {
            self.cleaned.retain(|segment| {
                let is_dead = space.is_dead(*segment);
                if is_dead {
                    space.release(*segment);
                }
                !is_dead
            });
        }
        self.accept()
    }

    pub fn next(&mut self) -> Option<Job> {
        match self.path {
            Path::Profile => self.queue.pop_front().map(|block| self.alone(block)),
            Path::Today => {
                self.take_stripes(1).into_iter().next().map(|(stripe, blocks)| self.of_stripe(stripe, &blocks))
            }
            Path::Batch { stripes, read_gap, write_gap } => {
                let taken = self.take_stripes(stripes);
                (!taken.is_empty()).then(|| self.of_stripes(taken, read_gap, write_gap))
            }
            Path::Relocate { .. } => self.relocate(),
        }
    }

    fn command(layout: &Layout, stripe: u64, strip: usize, at: u64, count: u64, writes: bool) -> Command {
        let (drive, at) = layout.place(stripe, strip, at);
        Command { drive, at, length: count * PAGE, writes }
    }

    fn parity(&self) -> std::ops::Range<usize> {
        self.layout.k..self.layout.width()
    }

    fn alone(&self, block: u64) -> Job {
        let (stripe, strip, at) = self.layout.of(block);
        let strips = || [strip].into_iter().chain(self.parity());
        let each = |writes| strips().map(|strip| Plan::command(&self.layout, stripe, strip, at, 1, writes)).collect();
        let reads = if self.layout.is_mirror() { Vec::new() } else { each(false) };
        Job { stages: [reads, each(true)].into(), blocks: 1, cleaned: None }
    }

    /// The dirty blocks of the next stripes of the elevator.
    fn take_stripes(&mut self, most: usize) -> Vec<(u64, Vec<u64>)> {
        let size = self.layout.stripe();
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some(first) = self.dirty.range(self.from..).next().or_else(|| self.dirty.first()) else { break };
            let stripe = first / size;
            let blocks: Vec<u64> = self.dirty.range(stripe * size..(stripe + 1) * size).copied().collect();
            self.forget(&blocks);
            self.from = (stripe + 1) * size;
            taken.push((stripe, blocks));
        }
        taken
    }

    fn forget(&mut self, blocks: &[u64]) {
        for block in blocks {
            self.dirty.remove(block);
        }
    }

    /// As the array destages: runs of columns one after another are read, then all is written.
    fn of_stripe(&self, stripe: u64, blocks: &[u64]) -> Job {
        let layout = &self.layout;
        let mut columns: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        for block in blocks {
            let (_, strip, at) = layout.of(*block);
            columns.entry(at).or_default().insert(strip);
        }
        let mut job = Job { blocks: blocks.len() as u64, ..Job::default() };
        let mut writes = Vec::new();
        let list: Vec<u64> = columns.keys().copied().collect();
        for run in list.chunk_by(|one, next| one + 1 == *next) {
            let (at, count) = (run[0], run.len() as u64);
            let touched: BTreeSet<usize> = run.iter().flat_map(|at| &columns[at]).copied().collect();
            let mut reads = Vec::new();
            for strip in touched.iter().copied().chain(self.parity()) {
                if !layout.is_mirror() {
                    reads.push(Plan::command(layout, stripe, strip, at, count, false));
                }
                let dirty = run.iter().copied().filter(|at| strip >= layout.k || columns[at].contains(&strip));
                let dirty: Vec<u64> = dirty.collect();
                for part in dirty.chunk_by(|one, next| one + 1 == *next) {
                    writes.push(Plan::command(layout, stripe, strip, part[0], part.len() as u64, true));
                }
            }
            job.stages.push_back(reads);
        }
        job.stages.push_back(writes);
        job
    }

    /// A batch: reads in the order of places, then writes in the same order.
    fn of_stripes(&self, taken: Vec<(u64, Vec<u64>)>, read_gap: u64, write_gap: u64) -> Job {
        let layout = &self.layout;
        let mut pages: BTreeSet<(usize, u64)> = BTreeSet::new();
        let mut count = 0;
        for (stripe, blocks) in taken {
            count += blocks.len() as u64;
            for block in blocks {
                let (_, strip, at) = layout.of(block);
                pages.extend([strip].into_iter().chain(self.parity()).map(|strip| layout.place(stripe, strip, at)));
            }
        }
        let stages = match layout.is_mirror() {
            // A mirror reads nothing, so it cannot write what lies in a gap.
            true => [joined(&pages, 0, true)].into(),
            false => [joined(&pages, read_gap, false), joined(&pages, write_gap, true)].into(),
        };
        Job { stages, blocks: count, cleaned: None }
    }

    fn relocate(&mut self) -> Option<Job> {
        let space = self.space.as_mut()?;
        if space.is_short()
            && self.cleaning < self.layout.drives.div_ceil(self.layout.width())
            && let Some(victim) = space.victim()
        {
            return Some(self.clean(victim));
        }
        let space = self.space.as_mut()?;
        if !space.admits_hosts() || self.dirty.len() < space.room() {
            return None;
        }
        let most = (self.dirty.len() / space.room()).min(PARCELS as usize) as u32;
        let run = space.take(Stream::Hosts, most)?;
        let count = run.parcels as usize * space.room();
        let next = self.dirty.range(self.from..).chain(self.dirty.range(..self.from));
        let blocks: Vec<u64> = next.copied().take(count).collect();
        self.forget(&blocks);
        self.from = blocks.last().map_or(0, |last| last + 1);
        let writes = self.fill(run, &blocks.iter().map(|block| *block as u32).collect::<Vec<u32>>());
        Some(Job { stages: [writes].into(), blocks: blocks.len() as u64, cleaned: None })
    }

    /// The map changes, and the parcels' strips are written: one command for each drive.
    fn fill(&mut self, run: Run, blocks: &[u32]) -> Vec<Command> {
        let Some(space) = self.space.as_mut() else { return Vec::new() };
        for (parcel, blocks) in (run.first..).zip(blocks.chunks(space.room())) {
            space.settle(parcel, blocks.iter().copied());
        }
        let count = u64::from(run.parcels) * self.parcels.strip;
        let write = |strip| Plan::command(&self.parcels, u64::from(run.first), strip, 0, count, true);
        (0..self.layout.width()).map(write).collect()
    }

    /// Reads the strips that hold anything live, and writes whole parcels.
    fn clean(&mut self, victim: u32) -> Job {
        let Some(space) = self.space.as_mut() else { return Job::default() };
        self.cleaning += 1;
        let live: Vec<(u32, u32)> = space.live_in(victim).collect();
        let row = self.parcels.row;
        let mut strips = BTreeSet::new();
        for (_, place) in &live {
            strips.insert(self.parcels.of(u64::from(*place)).1);
        }
        self.reads += 1;
        let copy =
            |strip| if self.layout.is_mirror() { (self.reads % self.layout.width() as u64) as usize } else { strip };
        let first = u64::from(victim) * row;
        let read = |strip| Plan::command(&self.parcels, first, copy(strip), 0, row * self.parcels.strip, false);
        let reads: Vec<Command> = strips.into_iter().map(read).collect();
        self.moving.extend(live);
        let mut writes = Vec::new();
        // Hosts may have written a block anew since it was read.
        let space = &*space;
        self.moving.retain(|(block, from)| space.place_of(*block) == *from);
        let room = space.room();
        while self.moving.len() >= room {
            let Some(space) = self.space.as_mut() else { break };
            let wanted = (self.moving.len() / room) as u32;
            let run = space.take(Stream::Cleaner, wanted).expect("the reserve is the cleaner's");
            let count = run.parcels as usize * room;
            space.moved += count as u64;
            let blocks: Vec<u32> = self.moving.drain(..count).map(|(block, _)| block).collect();
            writes.extend(self.fill(run, &blocks));
        }
        Job { stages: [reads, writes].into(), blocks: 0, cleaned: Some(victim) }
    }

    /// The commands of a read, by strip or, where blocks were relocated, by what lies together.
    pub fn read(&self, first: u64, count: u64) -> Vec<Command> {
        let of = |block: u64| match &self.space {
            None => (self.layout, block),
            Some(space) => match space.place_of(block as u32) {
                NONE => (self.layout, block),
                place => (self.parcels, u64::from(place)),
            },
        };
        let mut commands: Vec<Command> = Vec::new();
        for block in first..(first + count).min(self.blocks) {
            let (layout, place) = of(block);
            let (stripe, strip, at) = layout.of(place);
            // A mirror is read at either copy, by stripe.
            let strip = if layout.is_mirror() { (stripe % layout.width() as u64) as usize } else { strip };
            let (drive, at) = layout.place(stripe, strip, at);
            match commands.last_mut() {
                Some(last) if last.drive == drive && last.at + last.length == at => last.length += PAGE,
                _ => commands.push(Command { drive, at, length: PAGE, writes: false }),
            }
        }
        commands
    }
}

/// Commands for the pages, in order; those with at most such a gap between them are one.
fn joined(pages: &BTreeSet<(usize, u64)>, gap: u64, writes: bool) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for &(drive, at) in pages {
        match commands.last_mut() {
            Some(last) if last.drive == drive && at <= last.at + last.length + gap => last.length = at + PAGE - last.at,
            _ => commands.push(Command { drive, at, length: PAGE, writes }),
        }
    }
    commands
}
