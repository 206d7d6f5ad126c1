//! A host of one volume: draws operations, remembers those in flight, and lets the oracle check
//! every answer.

use std::collections::BTreeMap;

use stele_array::VolumeSpec;
use stele_ground::{Dice, Duration, Instant, VolumeId};
use stele_media::{Buffer, Completion, ExtentState, MediaFault, Op, Priority, Request, Shared};

use crate::coverage::Coverage;
use crate::oracle::{Began, Oracle, Violation, WriteOutcome, paint};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Write,
    Zero,
    Discard,
    Flush,
    Extents,
}

#[derive(Clone, Copy, Debug)]
struct Flying {
    kind: Kind,
    at: u64,
    length: u64,
    began: Began,
    since: Instant,
    /// A write that was said to be ordered: a flush makes it durable.
    is_ordered: bool,
    /// A flush behind it was answered.
    is_durable: bool,
}

impl Flying {
    fn new(kind: Kind, (at, length): (u64, u64), began: Began, since: Instant) -> Flying {
        Flying { kind, at, length, began, since, is_ordered: false, is_durable: false }
    }
}

/// The behaviour of a host; drawn once for each volume.
#[derive(Clone, Debug)]
struct Habit {
    depth: usize,
    think: Duration,
    /// In percent.
    reads: u64,
    /// The largest write in blocks.
    blocks_max: u64,
    /// One write in this many is aligned to whole stripes.
    whole_stripes: u64,
    /// Blocks of the part that most operations use.
    hot: u64,
    stream: u64,
    /// It writes in order, in pieces of stripes.
    in_order: bool,
}

pub struct Host {
    pub id: VolumeId,
    pub spec: VolumeSpec,
    pub oracle: Oracle,
    habit: Habit,
    dice: Dice,
    next_at: Instant,
    flying: BTreeMap<u64, Flying>,
    /// For each flush under way the writes that were ordered when it began.
    flushes: BTreeMap<u64, Vec<u64>>,
    /// Whether it pauses because the volume is being deleted or resized.
    pub paused: bool,
    /// Number of operations that it may still begin before the next scene.
    pub allowance: u64,
    /// Whether it only reads, because the volume is a snapshot.
    pub reads_only: bool,
}

/// The errors that are allowed at this moment.
#[derive(Clone, Copy, Default, Debug)]
pub struct Excuse {
    /// Space may be exhausted.
    pub full: bool,
    /// More is lost or damaged than tolerated, or the pool is read-only.
    pub anything: bool,
}

impl Host {
    pub fn new(id: VolumeId, spec: VolumeSpec, dice: &mut Dice) -> Host {
        let unit = spec.block.0;
        let blocks = spec.size.0 / unit;
        let stripe = spec.strip.0 * spec.code.data() as u64 / unit;
        let mut dice = dice.fork();
        // Drawn apart, so that the others' histories stay what they are.
        let in_order = dice.clone().fork().one_in(8);
        let habit = Habit {
            depth: 1 + dice.below(8) as usize,
            think: Duration::from_micros(if dice.one_in(3) { 0 } else { dice.below(3_000) }),
            reads: 10 + dice.below(50),
            blocks_max: match dice.below(3) {
                0 => 4,
                1 => stripe,
                _ => 3 * stripe,
            }
            .clamp(1, blocks),
            whole_stripes: 1 + dice.below(12),
            hot: (1 + dice.below(blocks)).min(1 + dice.below(blocks)),
            stream: 0,
            in_order,
        };
        Host {
            id,
            oracle: Oracle::new(spec.name.clone(), spec.size.0, unit as usize),
            spec,
            habit,
            dice,
            next_at: Instant(0),
            flying: BTreeMap::new(),
            flushes: BTreeMap::new(),
            paused: false,
            allowance: 0,
            reads_only: false,
        }
    }

    /// The time of its next operation; `None` while it waits for answers.
    pub fn next_at(&self) -> Option<Instant> {
        (!self.paused && self.allowance > 0 && self.flying.len() < self.habit.depth).then_some(self.next_at)
    }

    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// The oldest operation without an answer.
    pub fn waiting_since(&self) -> Option<Instant> {
        self.flying.values().map(|flying| flying.since).min()
    }

    /// The time at which the operation was submitted.
    pub fn asked_at(&self, tag: u64) -> Option<Instant> {
        self.flying.get(&tag).map(|flying| flying.since)
    }

    fn range(&mut self) -> (u64, u64) {
        let unit = self.spec.block.0;
        let blocks = self.spec.size.0 / unit;
        let stripe = (self.spec.strip.0 * self.spec.code.data() as u64 / unit).min(blocks);
        let dice = &mut self.dice;
        if self.habit.in_order && !dice.one_in(8) {
            let first = self.habit.stream.min(blocks - 1);
            let count = (1 + dice.below(stripe.div_ceil(2))).min(blocks - first);
            self.habit.stream = if first + count >= blocks { 0 } else { first + count };
            return (first * unit, count * unit);
        }
        if dice.one_in(self.habit.whole_stripes) && blocks >= stripe {
            let first = dice.below(blocks / stripe);
            let count = 1 + dice.below((blocks / stripe - first).min(3));
            return (first * stripe * unit, count * stripe * unit);
        }
        let sides = 1 + dice.below(self.habit.blocks_max);
        let mut count = 1 + dice.below(sides);
        // Writes of whole pages are as common as those of sectors.
        if unit < 4096 && dice.one_in(2) {
            count = count.div_ceil(8) * 8;
        }
        let count = count.min(blocks);
        let span = if dice.one_in(4) { blocks } else { self.habit.hot };
        let mut first = dice.below(span);
        if dice.one_in(3) {
            first = self.habit.stream;
        }
        let first = first.min(blocks - count);
        self.habit.stream = if first + count >= blocks { 0 } else { first + count };
        (first * unit, count * unit)
    }

    /// Draws the next operation.
    pub fn issue(&mut self, now: Instant, tag: u64, value: u64, coverage: &mut Coverage) -> Request {
        self.allowance = self.allowance.saturating_sub(1);
        let pause = if self.habit.think.0 == 0 { 0 } else { self.dice.below(2 * self.habit.think.0) };
        self.next_at = Instant(now.0 + pause);
        let unit = self.spec.block.0;
        let (at, length) = self.range();
        let roll = self.dice.below(100);
        let (op, kind) = if roll < self.habit.reads || self.reads_only {
            let op = match self.dice.one_in(2) {
                true => Op::View { at, length, pieces: Vec::new() },
                false => Op::Read { at, buffer: Buffer::zeroed(length as usize) },
            };
            (op, Kind::Read)
        } else {
            match self.dice.below(32) {
                0 | 1 => (Op::Flush, Kind::Flush),
                2 => (Op::Zero { at, length }, Kind::Zero),
                3 => (Op::Discard { at, length }, Kind::Discard),
                4 => (Op::Extents { at, length, since: None, extents: Vec::new() }, Kind::Extents),
                _ => {
                    let mut bytes = Buffer::stale(length as usize);
                    paint(&mut bytes, at / unit, unit as usize, value);
                    let data = self.in_pieces(bytes.freeze());
                    (Op::Write { at, data, fua: self.dice.one_in(8) }, Kind::Write)
                }
            }
        };
        coverage.count(match kind {
            Kind::Read => "host read",
            Kind::Write => "host write",
            Kind::Zero => "host zero",
            Kind::Discard => "host discard",
            Kind::Flush => "host flush",
            Kind::Extents => "host extents",
        });
        let began = match kind {
            Kind::Write => self.oracle.begin_write(at, length, value),
            Kind::Zero | Kind::Discard => self.oracle.begin_write(at, length, 0),
            Kind::Read | Kind::Flush | Kind::Extents => self.oracle.begin_read(),
        };
        if kind == Kind::Flush {
            let ordered = self.flying.iter().filter(|(_, flying)| flying.is_ordered).map(|(tag, _)| *tag);
            self.flushes.insert(tag, ordered.collect());
        }
        self.flying.insert(tag, Flying::new(kind, (at, length), began, now));
        Request { tag, op, priority: Priority::Host, deadline: None }
    }

    fn in_pieces(&mut self, whole: Shared) -> Vec<Shared> {
        if whole.len() < 8192 || !self.dice.one_in(4) {
            return vec![whole];
        }
        let cut = 4096 * (1 + self.dice.below(whole.len() as u64 / 4096 - 1)) as usize;
        vec![whole.slice(..cut), whole.slice(cut..)]
    }

    /// A read of the whole range, apart from the drawn operations: the final check.
    pub fn look(&mut self, now: Instant, tag: u64, at: u64, length: u64) -> Request {
        let began = self.oracle.begin_read();
        self.flying.insert(tag, Flying::new(Kind::Read, (at, length), began, now));
        Request {
            tag,
            op: Op::Read { at, buffer: Buffer::zeroed(length as usize) },
            priority: Priority::Host,
            deadline: None,
        }
    }

    /// A write has its place in the log: reads see it from here on.
    pub fn ordered(&mut self, tag: u64) {
        if let Some(flying) = self.flying.get_mut(&tag) {
            flying.is_ordered = true;
            self.oracle.show_write(flying.at, flying.length, flying.began);
        }
    }

    /// A flush was answered: the writes that were ordered before it are durable.
    fn flushed(&mut self, ordered: Vec<u64>, coverage: &mut Coverage) {
        for tag in ordered {
            let Some(write) = self.flying.get_mut(&tag) else { continue };
            write.is_durable = true;
            coverage.count("ordered writes made durable by a flush");
            self.oracle.end_write(write.at, write.length, write.began, WriteOutcome::Acknowledged);
        }
    }

    /// Checks an answer.
    pub fn finished(&mut self, done: Completion, excuse: Excuse, coverage: &mut Coverage) -> Result<(), Violation> {
        let Some(flying) = self.flying.remove(&done.tag) else {
            return Err(Violation(format!(
                "{}: operation {} was answered twice or never asked",
                self.spec.name, done.tag
            )));
        };
        let ordered = self.flushes.remove(&done.tag).unwrap_or_default();
        let (at, length) = (flying.at, flying.length);
        let place = format!("{}: {:?} of {length} bytes at {at}", self.spec.name, flying.kind);
        if let Err(error) = &done.result {
            match flying.kind {
                // It stays what a flush has made it.
                Kind::Write if flying.is_durable => {}
                Kind::Write | Kind::Zero | Kind::Discard => {
                    self.oracle.end_write(at, length, flying.began, WriteOutcome::Failed);
                }
                Kind::Read | Kind::Flush | Kind::Extents => self.oracle.drop_read(flying.began),
            }
            coverage.count(format!("host error {:?}", error.fault));
            let honest = match error.fault {
                MediaFault::Full => excuse.full || excuse.anything,
                // No host here begins so many operations at once that the pool may answer `Retry`.
                MediaFault::Retry | MediaFault::Damaged | MediaFault::Refused | MediaFault::Gone => excuse.anything,
                MediaFault::Invalid => false,
            };
            return if honest { Ok(()) } else { Err(Violation(format!("{place}: unexpected error: {error}"))) };
        }
        match (flying.kind, done.op) {
            (Kind::Read, Op::Read { at: back, buffer }) if back == at && buffer.len() as u64 == length => {
                self.oracle.end_read(at, &buffer, flying.began)
            }
            (Kind::Read, Op::View { at: back, pieces, .. }) if back == at => {
                let shown: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
                if shown != length {
                    return Err(Violation(format!("{place}: {shown} bytes are shown")));
                }
                self.oracle.end_view(at, &pieces, flying.began)
            }
            (Kind::Write, Op::Write { at: back, .. }) if back == at && flying.is_durable => Ok(()),
            (Kind::Write, Op::Write { at: back, .. }) if back == at => {
                self.oracle.end_write(at, length, flying.began, WriteOutcome::Acknowledged);
                Ok(())
            }
            (Kind::Zero, Op::Zero { at: back, .. }) if back == at => {
                self.oracle.end_write(at, length, flying.began, WriteOutcome::Acknowledged);
                Ok(())
            }
            (Kind::Discard, Op::Discard { at: back, .. }) if back == at => {
                // Parts of a page are kept or zeroed at the volume's choice; whole pages read as
                // zeros.
                let end = at + length;
                let first = at.next_multiple_of(4096).min(end);
                let last = (end / 4096 * 4096).max(first);
                self.oracle.end_write(at, first - at, flying.began, WriteOutcome::Failed);
                self.oracle.end_write(first, last - first, flying.began, WriteOutcome::Acknowledged);
                self.oracle.end_write(last, end - last, flying.began, WriteOutcome::Failed);
                Ok(())
            }
            (Kind::Flush, Op::Flush) => {
                self.oracle.drop_read(flying.began);
                self.flushed(ordered, coverage);
                Ok(())
            }
            (Kind::Extents, Op::Extents { extents, .. }) => self.judge_extents(&place, flying, &extents),
            (_, op) => Err(Violation(format!("{place}: came back as another operation: {op:?}"))),
        }
    }

    fn judge_extents(&mut self, place: &str, flying: Flying, extents: &[stele_media::Extent]) -> Result<(), Violation> {
        let total: u64 = extents.iter().map(|extent| extent.length).sum();
        let mut cursor = flying.at;
        let mut verdict = Ok(());
        if total != flying.length {
            verdict = Err(Violation(format!("{place}: the extents cover {total} bytes: {extents:?}")));
        } else {
            for extent in extents {
                let zero = extent.state != ExtentState::Data;
                if zero && !self.oracle.may_be_zero(cursor, extent.length, flying.began) {
                    verdict = Err(Violation(format!("{place}: {extent:?} at {cursor} holds data")));
                }
                cursor += extent.length;
            }
        }
        self.oracle.drop_read(flying.began);
        verdict
    }

    /// The machine stopped: operations in flight get no answer.
    pub fn crash(&mut self) {
        self.flying.clear();
        self.flushes.clear();
        self.oracle.crash();
        self.next_at = Instant(0);
    }

    /// The volume has another size. What it lost must have been zeros.
    pub fn resize(&mut self, size: u64) -> Result<(), Violation> {
        let before = self.spec.size.0;
        let began = self.oracle.begin_read();
        let was_free = size >= before || self.oracle.may_be_zero(size, before - size, began);
        self.oracle.drop_read(began);
        if !was_free {
            return Err(Violation(format!(
                "{}: made smaller from {before} to {size} bytes, and data lay behind the new end",
                self.spec.name
            )));
        }
        self.oracle.resize(size);
        self.spec.size.0 = size;
        Ok(())
    }

    /// A discard of the range, apart from the drawn operations.
    pub fn empty(&mut self, now: Instant, tag: u64, at: u64, length: u64) -> Request {
        let began = self.oracle.begin_write(at, length, 0);
        self.flying.insert(tag, Flying::new(Kind::Discard, (at, length), began, now));
        Request { tag, op: Op::Discard { at, length }, priority: Priority::Host, deadline: None }
    }
}
