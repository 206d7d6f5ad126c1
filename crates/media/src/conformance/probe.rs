//! The state of a check: the drive, its twin, and the operations in flight. The probe verifies
//! every completion, so that checks only list operations.

use std::collections::BTreeMap;

use stele_ground::{Dice, Instant};

use super::Subject;
use super::history::{ANYTHING, History, SECTOR, paint, stamp_of};
use crate::{Buffer, Completion, Extent, ExtentState, Geometry, MediaFault, Op, Priority, Request, Shared};

/// Polls without an answer before an operation counts as lost.
const POLLS_MAX: u64 = 200_000_000;

/// A submitted operation, to compare with its completion.
struct Asked {
    kind: &'static str,
    at: u64,
    length: u64,
    began: u64,
    fua: bool,
    pieces: Vec<Shared>,
    /// The fault to expect; `None`: it must succeed.
    fault: Option<MediaFault>,
}

/// A drive under test with its twin.
pub struct Probe {
    title: String,
    subject: Box<dyn Subject>,
    pub dice: Dice,
    pub geometry: Geometry,
    history: History,
    asked: BTreeMap<u64, Asked>,
    finished: Vec<Completion>,
    next_tag: u64,
    next_stamp: u64,
    now: Instant,
    /// Power was cut: blocks may hold sectors of several writes.
    torn: bool,
}

impl Probe {
    pub fn new(title: String, mut subject: Box<dyn Subject>, dice: Dice) -> Probe {
        let geometry = subject.drive().geometry();
        assert!(geometry.size.0 >= 4 << 20, "{title}: the suite needs 4 MiB, the drive has {}", geometry.size);
        assert!([512, 4096].contains(&geometry.block.0), "{title}: a block of {} bytes", geometry.block.0);
        assert!(geometry.size.0.is_multiple_of(geometry.block.0), "{title}: the size is not whole blocks");
        Probe {
            title,
            subject,
            dice,
            geometry,
            history: History::new(geometry.size.0),
            asked: BTreeMap::new(),
            finished: Vec::new(),
            // Large tags: a drive that uses tags as indices must fail.
            next_tag: 0xFFFF_0000_0000,
            next_stamp: 1,
            now: Instant(0),
            torn: false,
        }
    }

    pub fn depth(&self) -> usize {
        self.subject.depth()
    }

    pub fn in_flight(&self) -> usize {
        self.asked.len()
    }

    fn submit(&mut self, op: Op, asked: Asked) -> u64 {
        self.next_tag += 3;
        let tag = self.next_tag;
        let priority = *self.dice.pick(&[Priority::Urgent, Priority::Host, Priority::Scrub]).unwrap_or(&Priority::Host);
        self.asked.insert(tag, asked);
        self.subject.drive().submit(Request { tag, op, priority, deadline: None });
        tag
    }

    fn asked(kind: &'static str, at: u64, length: u64) -> Asked {
        Asked { kind, at, length, began: 0, fua: false, pieces: Vec::new(), fault: None }
    }

    pub fn read(&mut self, at: u64, length: u64) -> u64 {
        let began = self.history.tick();
        let mut buffer = Buffer::zeroed(length as usize);
        buffer.fill(0xA5);
        self.submit(Op::Read { at, buffer }, Asked { began, ..Probe::asked("read", at, length) })
    }

    /// Writes a new stamp in one piece.
    pub fn write(&mut self, at: u64, length: u64, fua: bool) -> u64 {
        self.write_pieces(at, length, fua, &[])
    }

    /// Like `write`, cut into pieces at the given offsets, which need no alignment.
    pub fn write_pieces(&mut self, at: u64, length: u64, fua: bool, cuts: &[usize]) -> u64 {
        let stamp = self.stamp();
        let mut buffer = Buffer::zeroed(length as usize);
        paint(&mut buffer, at, stamp);
        let mut rest = buffer.freeze();
        let mut pieces = Vec::new();
        let mut before = 0;
        for cut in cuts {
            pieces.push(rest.split_to(cut - before));
            before = *cut;
        }
        pieces.push(rest);
        let began = self.history.begin_write(at, length, stamp);
        let asked = Asked { began, fua, pieces: pieces.clone(), ..Probe::asked("write", at, length) };
        self.submit(Op::Write { at, data: pieces, fua }, asked)
    }

    pub fn zero(&mut self, at: u64, length: u64) -> u64 {
        let began = self.history.begin_write(at, length, 0);
        self.submit(Op::Zero { at, length }, Asked { began, ..Probe::asked("zero", at, length) })
    }

    pub fn discard(&mut self, at: u64, length: u64) -> u64 {
        let stamp = if self.subject.discard_zeroes() { 0 } else { ANYTHING };
        let began = self.history.begin_write(at, length, stamp);
        self.submit(Op::Discard { at, length }, Asked { began, ..Probe::asked("discard", at, length) })
    }

    pub fn flush(&mut self) -> u64 {
        let began = self.history.tick();
        self.submit(Op::Flush, Asked { began, ..Probe::asked("flush", 0, 0) })
    }

    pub fn extents(&mut self, at: u64, length: u64) -> u64 {
        let began = self.history.tick();
        // A list with an entry, which the drive must replace.
        let extents = vec![Extent { length: 1, state: ExtentState::Hole }];
        self.submit(
            Op::Extents { at, length, since: None, extents },
            Asked { began, ..Probe::asked("extents", at, length) },
        )
    }

    /// Submits an operation that must be refused as `Invalid` and change nothing.
    pub fn refused(&mut self, op: Op) -> u64 {
        let (at, length) = op.range().unwrap_or_default();
        let kind = kind(&op);
        let pieces = if let Op::Write { data, .. } = &op { data.clone() } else { Vec::new() };
        self.submit(op, Asked { fault: Some(MediaFault::Invalid), pieces, ..Probe::asked(kind, at, length) })
    }

    pub fn stamp(&mut self) -> u64 {
        self.next_stamp += 1;
        self.next_stamp
    }

    /// Waits for the completion of this operation.
    pub fn wait(&mut self, tag: u64) {
        self.wait_until(|probe| !probe.asked.contains_key(&tag));
    }

    /// Waits until nothing is in flight.
    pub fn wait_all(&mut self) {
        self.wait_until(|probe| probe.asked.is_empty());
    }

    /// Waits until at most `count` are in flight.
    pub fn wait_to(&mut self, count: usize) {
        self.wait_until(|probe| probe.asked.len() <= count);
    }

    fn wait_until(&mut self, done: impl Fn(&Probe) -> bool) {
        self.subject.drive().kick();
        let mut polls = 0;
        while !done(self) {
            self.subject.drive().reap(self.now, &mut self.finished);
            if self.finished.is_empty() {
                self.now = self.now.max(self.subject.wait());
                polls += 1;
                assert!(polls < POLLS_MAX, "{}: {} operations never came back", self.title, self.asked.len());
            }
            let mut finished = std::mem::take(&mut self.finished);
            finished.drain(..).for_each(|completion| self.completed(completion));
            self.finished = finished;
        }
    }

    fn completed(&mut self, completion: Completion) {
        let Completion { tag, op, result } = completion;
        let title = self.title.clone();
        let asked = self.asked.remove(&tag).unwrap_or_else(|| panic!("{title}: tag {tag} came back unasked or twice"));
        let what = format!("{title}: {} of {} bytes at {}", asked.kind, asked.length, asked.at);
        assert_eq!(kind(&op), asked.kind, "{what}: came back as another operation");
        if asked.kind != "flush" {
            assert_eq!(op.range(), Some((asked.at, asked.length)), "{what}: came back with another range");
        }
        match (&result, asked.fault) {
            (Ok(()), None) => {}
            (Err(error), Some(fault)) => {
                assert_eq!(error.fault, fault, "{what}: wrong kind of refusal: {error}");
                assert!(!error.message.is_empty(), "{what}: a refusal must say why");
            }
            (Ok(()), Some(_)) => panic!("{what}: must be refused"),
            (Err(error), None) => panic!("{what}: failed: {:?}: {error}", error.fault),
        }
        if let Op::Write { data, .. } = &op {
            assert!(*data == asked.pieces, "{what}: the data came back changed");
        }
        if asked.fault.is_some() {
            return;
        }
        match op {
            Op::Read { at, buffer } => self.verify(&what, at, &buffer, asked.began),
            Op::View { at, pieces, .. } => self.verify(&what, at, &pieces.concat(), asked.began),
            Op::Write { at, .. } => self.history.end_write(at, asked.length, asked.began, asked.fua),
            Op::Zero { at, length } | Op::Discard { at, length } => {
                self.history.end_write(at, length, asked.began, false);
            }
            Op::Flush => {
                self.history.flushed(asked.began);
                let oldest = self.asked.values().map(|asked| asked.began).min().unwrap_or(u64::MAX);
                self.history.prune(oldest);
            }
            Op::Extents { at, length, extents, .. } => self.verify_extents(&what, at, length, &extents, asked.began),
        }
    }

    fn verify(&mut self, what: &str, at: u64, bytes: &[u8], began: u64) {
        let block = self.geometry.block.0;
        let mut before = None;
        for (index, sector) in bytes.chunks(SECTOR as usize).enumerate() {
            let place = at / SECTOR + index as u64;
            let stamp = stamp_of(sector, place);
            let anything = self.history.allows(place, began, ANYTHING);
            let known = stamp.is_some_and(|stamp| self.history.allows(place, began, stamp));
            assert!(known || anything, "{what}: what no write explains at {}: {stamp:?}", place * SECTOR);
            // The suite writes whole blocks, so a block comes from one write, until a power cut
            // tears some.
            let first = (place * SECTOR).is_multiple_of(block);
            let whole = first || before == Some(stamp) || anything || self.torn || !self.subject.whole_blocks();
            assert!(whole, "{what}: the block around {} is torn: {stamp:?} after {before:?}", place * SECTOR);
            before = Some(stamp);
        }
    }

    fn verify_extents(&mut self, what: &str, at: u64, length: u64, extents: &[Extent], began: u64) {
        let total: u64 = extents.iter().map(|extent| extent.length).sum();
        assert_eq!(total, length, "{what}: the extents do not cover the range: {extents:?}");
        for pair in extents.windows(2) {
            assert_ne!(pair[0].state, pair[1].state, "{what}: neighbours of one state are not joined: {extents:?}");
        }
        let mut here = at;
        for extent in extents {
            assert!(extent.length.is_multiple_of(SECTOR) && extent.length > 0, "{what}: an odd extent: {extent:?}");
            if extent.state != ExtentState::Data {
                for place in here / SECTOR..(here + extent.length) / SECTOR {
                    assert!(self.history.allows(place, began, 0), "{what}: {} holds data: {extents:?}", place * SECTOR);
                }
            }
            here += extent.length;
        }
    }

    /// Reads and verifies the whole drive while nothing else is in flight. From then on the drive
    /// is held to that content: it must never revert.
    pub fn settle(&mut self) {
        self.wait_all();
        self.read_through(false);
    }

    /// Cuts the power with the operations in flight, and verifies every promise. Returns false if
    /// the drive cannot do that.
    pub fn cut_power(&mut self) -> bool {
        self.subject.drive().kick();
        if !self.subject.cut_power() {
            return false;
        }
        self.asked.clear();
        self.finished.clear();
        self.torn = true;
        self.read_through(true);
        true
    }

    fn read_through(&mut self, after_cut: bool) {
        const STEP: u64 = 1 << 20;
        let mut at = 0;
        while at < self.geometry.size.0 {
            let length = STEP.min(self.geometry.size.0 - at);
            let bytes = self.read_alone(at, length);
            for (index, sector) in bytes.chunks(SECTOR as usize).enumerate() {
                let place = at / SECTOR + index as u64;
                let stamp = stamp_of(sector, place);
                let began = self.history.tick();
                let fine = |stamp| {
                    if after_cut {
                        self.history.survives(place, stamp)
                    } else {
                        self.history.allows(place, began, stamp)
                    }
                };
                assert!(
                    stamp.is_some_and(fine) || fine(ANYTHING),
                    "{}: {} the sector at {} holds {stamp:?}",
                    self.title,
                    if after_cut { "after a power cut" } else { "at rest" },
                    place * SECTOR
                );
                self.history.settle(place, stamp.unwrap_or(ANYTHING), after_cut);
            }
            at += length;
        }
    }

    /// Reads without verification.
    pub fn read_alone(&mut self, at: u64, length: u64) -> Buffer {
        assert!(self.asked.is_empty(), "{}: a quiet read needs a quiet drive", self.title);
        let op = Op::Read { at, buffer: Buffer::zeroed(length as usize) };
        self.next_tag += 3;
        let tag = self.next_tag;
        self.subject.drive().submit(Request { tag, op, priority: Priority::Host, deadline: None });
        self.subject.drive().kick();
        let mut finished = Vec::new();
        for _ in 0..POLLS_MAX {
            self.subject.drive().reap(self.now, &mut finished);
            match finished.pop() {
                Some(Completion { tag: got, op: Op::Read { buffer, .. }, result: Ok(()) }) if got == tag => {
                    return buffer;
                }
                Some(other) => panic!("{}: read of {length} bytes at {at} came back as {other:?}", self.title),
                None => self.now = self.now.max(self.subject.wait()),
            }
        }
        panic!("{}: read of {length} bytes at {at} never came back", self.title)
    }

    /// A block-aligned range of at most `blocks_max` blocks within the first `span` bytes.
    pub fn range(&mut self, span: u64, blocks_max: u64) -> (u64, u64) {
        let block = self.geometry.block.0;
        let span = span.min(self.geometry.size.0) / block;
        let length = 1 + self.dice.below(blocks_max.min(span));
        let at = self.dice.below(span - length + 1);
        (at * block, length * block)
    }

    /// Ends a check: no operation may be in flight, and no completion left.
    pub fn finish(&mut self) {
        self.wait_all();
        let now = self.now.max(self.subject.wait());
        self.subject.drive().reap(now, &mut self.finished);
        assert!(self.finished.is_empty(), "{}: completions nobody asked for: {:?}", self.title, self.finished);
    }
}

fn kind(op: &Op) -> &'static str {
    match op {
        Op::Read { .. } => "read",
        Op::View { .. } => "view",
        Op::Write { .. } => "write",
        Op::Zero { .. } => "zero",
        Op::Flush => "flush",
        Op::Discard { .. } => "discard",
        Op::Extents { .. } => "extents",
    }
}
