//! A drive with planned faults. It wraps any drive; [`FaultPlan`] decides when it lies, fails,
//! damages, delays and forgets. It keeps damage to stored data beside the drive (see [`Damage`]),
//! so that it also works over files. Faults of whole drives (power, unplugging, images) are applied
//! to the inner drive.

mod damage;
mod plan;

use std::collections::BTreeMap;

use stele_ground::{Dice, Duration, Instant};

pub use damage::Damage;
pub use plan::{Class, Decider, FaultKind, FaultPlan, FaultRecord, Permit, Proposal};

use crate::{Completion, Drive, Geometry, MediaError, MediaFault, Op, Request, Shared};

/// Additional time of a slow operation.
const SLOWNESS: Duration = Duration::from_millis(20);

/// The longest cluster of sectors that becomes unreadable at once, in bytes.
const CLUSTER_MAX: u64 = 64 << 10;

/// The change made to an operation on its way down, to be undone or completed on its way up.
#[derive(Debug)]
enum Trick {
    /// Return the operation as it was requested: its place and its data.
    Restore {
        at: u64,
        data: Option<Vec<Shared>>,
        fails: bool,
    },
    Hold(Duration),
    /// Held until released.
    HoldForever,
}

/// A drive with faults.
pub struct Faulty<D> {
    inner: D,
    decider: Decider,
    damage: Damage,
    tricks: BTreeMap<u64, Trick>,
    /// Answers held back until their time.
    held: BTreeMap<(Instant, u64), Completion>,
    stuck: Vec<Completion>,
    ready: Vec<Completion>,
    reaped: Vec<Completion>,
    order: u64,
    clock: Instant,
    /// Additional time of every operation on a limping drive.
    limp: Duration,
    /// The error of a drive that was pulled, if it is not `Gone`.
    pulled: Option<MediaFault>,
    refuses_writes: bool,
    /// Loses what is in the cache of the inner drive, if it has one.
    forget: Option<fn(&mut D)>,
}

impl<D: Drive> Faulty<D> {
    pub fn new(inner: D, plan: &FaultPlan, drive: usize) -> Faulty<D> {
        Faulty {
            inner,
            decider: plan.for_drive(drive),
            damage: Damage::default(),
            tricks: BTreeMap::new(),
            held: BTreeMap::new(),
            stuck: Vec::new(),
            ready: Vec::new(),
            reaped: Vec::new(),
            order: 0,
            clock: Instant::default(),
            limp: Duration(0),
            pulled: None,
            refuses_writes: false,
            forget: None,
        }
    }

    pub fn inner(&self) -> &D {
        &self.inner
    }

    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    pub fn decider(&mut self) -> &mut Decider {
        &mut self.decider
    }

    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Damages stored data now: `BitFlip`, `ByteFlip` or `LatentError`, if the permit allows it.
    pub fn injure(&mut self, kind: FaultKind, at: u64, length: u64) -> bool {
        if !self.decider.permits(kind, at, length) {
            return false;
        }
        let Faulty { damage, decider, .. } = self;
        match kind {
            FaultKind::BitFlip => damage.flip_bits(at, length, decider.dice()),
            FaultKind::ByteFlip => damage.flip_bytes(at, length, decider.dice()),
            FaultKind::LatentError => damage.make_unreadable(at, length),
            _ => return false,
        }
        self.decider.record(self.clock, kind, at, length, 0);
        true
    }

    /// From now on every operation takes this much longer; zero for a healthy drive.
    pub fn limp(&mut self, extra: Duration) {
        self.limp = extra;
    }

    pub fn is_limping(&self) -> bool {
        self.limp.0 > 0
    }

    /// Sets whether every write and flush fails from now on, while reads still work.
    pub fn refuse_writes(&mut self, refuses: bool) {
        self.refuses_writes = refuses;
    }

    pub fn refuses_writes(&self) -> bool {
        self.refuses_writes
    }

    /// Returns the answers that were stuck. Operations under way that were to be stuck are answered
    /// when they end.
    pub fn release(&mut self) {
        self.tricks.retain(|_, trick| !matches!(trick, Trick::HoldForever));
        self.ready.append(&mut self.stuck);
    }

    /// Number of operations without an answer until `release`.
    pub fn stuck(&self) -> usize {
        self.stuck.len()
    }

    /// Forgets the operations under way, after a crash of the process or a power cut. Damage stays.
    pub fn forget(&mut self) {
        self.tricks.clear();
        self.held.clear();
        self.stuck.clear();
        self.ready.clear();
    }

    /// Removes all damage: the whole medium was replaced.
    pub fn heal(&mut self) {
        self.damage.heal_all();
    }

    fn answer(&mut self, request: Request, result: Result<(), MediaError>) {
        self.ready.push(Completion { tag: request.tag, op: request.op, result });
    }

    /// Applies a fault to this operation if the permit allows it; otherwise passes the operation
    /// on.
    fn befall(&mut self, kind: FaultKind, mut request: Request) {
        let (at, length) = request.op.range().unwrap_or((0, 0));
        if self.inner.geometry().admit(&request.op).is_err() {
            return self.inner.submit(request);
        }
        let block = self.inner.geometry().block.0;
        let clock = self.clock;
        match kind {
            FaultKind::BitFlip | FaultKind::ByteFlip => {
                self.injure(kind, at, length);
                self.inner.submit(request);
            }
            FaultKind::LatentError => {
                let start = at + self.decider.dice().below(length.div_ceil(block)) * block;
                let longest = CLUSTER_MAX.min(self.inner.geometry().size.0 - start) / block;
                let sides = 1 + self.decider.dice().below(longest.max(1));
                let cluster = (1 + self.decider.dice().below(sides)) * block;
                self.injure(kind, start, cluster.min(self.inner.geometry().size.0 - start));
                self.inner.submit(request);
            }
            FaultKind::TransientError => {
                if !self.decider.permits(kind, at, length) {
                    return self.inner.submit(request);
                }
                self.decider.record(clock, kind, at, length, 0);
                self.answer(request, Err(MediaError::new(MediaFault::Retry, "the drive could not read this time")));
            }
            FaultKind::LostWrite => {
                if !self.decider.permits(kind, at, length) {
                    return self.inner.submit(request);
                }
                self.decider.record(clock, kind, at, length, 0);
                self.answer(request, Ok(()));
            }
            FaultKind::LyingFlush => {
                if !self.decider.permits(kind, 0, 0) {
                    return self.inner.submit(request);
                }
                self.decider.record(clock, kind, 0, 0, 0);
                self.answer(request, Ok(()));
            }
            FaultKind::FailedFlush => {
                if !self.decider.permits(kind, 0, 0) {
                    return self.inner.submit(request);
                }
                self.decider.record(clock, kind, 0, 0, 0);
                if let Some(forget) = self.forget {
                    forget(&mut self.inner);
                }
                self.answer(request, Err(MediaError::new(MediaFault::Retry, "the drive could not flush this time")));
            }
            FaultKind::WriteError | FaultKind::TornWrite => {
                if !self.decider.permits(kind, at, length) {
                    return self.inner.submit(request);
                }
                self.decider.record(clock, kind, at, length, 0);
                self.tear(request, at, length, kind == FaultKind::WriteError);
            }
            FaultKind::MisdirectedRead | FaultKind::MisdirectedWrite => {
                let other = self.other_place(at, length);
                let allowed = other != at
                    && self.decider.permits(kind, at, length)
                    && (kind == FaultKind::MisdirectedRead || self.decider.permits(kind, other, length));
                if allowed {
                    self.decider.record(clock, kind, at, length, other);
                    match &mut request.op {
                        Op::Read { at, .. } | Op::Write { at, .. } | Op::Zero { at, .. } | Op::Discard { at, .. } => {
                            *at = other;
                        }
                        Op::Flush | Op::View { .. } | Op::Extents { .. } => {}
                    }
                    self.tricks.insert(request.tag, Trick::Restore { at, data: None, fails: false });
                }
                self.inner.submit(request);
            }
            FaultKind::Slow | FaultKind::Stuck => {
                if self.decider.permits(kind, at, length) {
                    self.decider.record(clock, kind, at, length, 0);
                    let trick = if kind == FaultKind::Slow { Trick::Hold(SLOWNESS) } else { Trick::HoldForever };
                    self.tricks.insert(request.tag, trick);
                }
                self.inner.submit(request);
            }
            _ => self.inner.submit(request),
        }
    }

    /// Another place on the same drive: near by half of the time, otherwise anywhere.
    fn other_place(&mut self, at: u64, length: u64) -> u64 {
        let geometry = self.inner.geometry();
        let places = (geometry.size.0.saturating_sub(length)) / geometry.block.0 + 1;
        let dice = self.decider.dice();
        let place = at / geometry.block.0;
        let other = match dice.below(4) {
            0 => place + 1 + dice.below(64),
            1 => place.saturating_sub(1 + dice.below(64)),
            _ => dice.below(places),
        };
        other.min(places - 1) * geometry.block.0
    }

    /// Carries out only the beginning or the end of a write.
    fn tear(&mut self, mut request: Request, at: u64, length: u64, fails: bool) {
        let Op::Write { at: place, data, .. } = &mut request.op else {
            let error = MediaError::new(MediaFault::Retry, "the drive could not write this time");
            return self.answer(request, if fails { Err(error) } else { Ok(()) });
        };
        let whole = data.clone();
        let units = length / self.inner.geometry().block.0;
        let kept = self.decider.dice().below(units) * self.inner.geometry().block.0;
        let beginning = self.decider.dice().one_in(2);
        let (from, to) = if beginning { (0, kept) } else { (length - kept, length) };
        *data = cut_out(&whole, from, to);
        *place = at + from;
        if kept == 0 {
            request.op = Op::Write { at, data: whole, fua: false };
            let error = MediaError::new(MediaFault::Retry, "the drive could not write this time");
            return self.answer(request, if fails { Err(error) } else { Ok(()) });
        }
        self.tricks.insert(request.tag, Trick::Restore { at, data: Some(whole), fails });
        self.inner.submit(request);
    }

    fn finish(&mut self, mut completion: Completion, now: Instant) {
        // A completed write heals the medium at the place that it really went to.
        if completion.result.is_ok()
            && let Op::Write { .. } | Op::Zero { .. } | Op::Discard { .. } = &completion.op
            && let Some((at, length)) = completion.op.range()
        {
            self.damage.heal(at, length);
        }
        if completion.result.is_ok()
            && let Op::Read { at, buffer } = &mut completion.op
            && !self.damage.is_empty()
            && !self.damage.strike(*at, buffer)
        {
            completion.result = Err(MediaError::new(
                MediaFault::Damaged,
                format!("the drive cannot read {} bytes at {at}: unrecovered sectors", buffer.len()),
            ));
        }
        let mut wait = self.limp;
        match self.tricks.remove(&completion.tag) {
            Some(Trick::Restore { at, data, fails }) => {
                match &mut completion.op {
                    Op::Read { at: place, .. } | Op::Zero { at: place, .. } | Op::Discard { at: place, .. } => {
                        *place = at;
                    }
                    Op::Write { at: place, data: pieces, .. } => {
                        *place = at;
                        if let Some(data) = data {
                            *pieces = data;
                        }
                    }
                    Op::Flush | Op::View { .. } | Op::Extents { .. } => {}
                }
                if fails && completion.result.is_ok() {
                    completion.result = Err(MediaError::new(MediaFault::Retry, "the drive could not write this time"));
                }
            }
            Some(Trick::Hold(extra)) => wait = Duration(wait.0 + extra.0),
            Some(Trick::HoldForever) => return self.stuck.push(completion),
            None => {}
        }
        // The error of a gone drive comes without delay, however slow the drive was.
        let gone = matches!(&completion.result, Err(error) if error.fault == MediaFault::Gone);
        if gone && let Some(fault) = self.pulled {
            completion.result = Err(MediaError::new(fault, "the drive was pulled"));
        }
        if wait.0 == 0 || gone {
            self.ready.push(completion);
        } else {
            self.order += 1;
            self.held.insert((now + wait, self.order), completion);
        }
    }
}

impl Faulty<crate::simulated::SimulatedDrive> {
    /// A flush that fails loses what is in the drive's cache.
    pub fn forgetful(mut self) -> Self {
        self.forget = Some(crate::simulated::SimulatedDrive::lose_cache);
        self
    }

    /// Advances the time before a submit; see the simulated drive.
    pub fn advance(&mut self, now: Instant) {
        self.clock = self.clock.max(now);
        self.inner.advance(now);
    }

    /// Cuts the power and restores it.
    pub fn power_cut(&mut self, dice: &mut Dice) {
        self.inner.power_cut(dice);
        self.forget();
    }

    /// Removes the drive. Stuck and held operations fail as gone with the rest.
    pub fn unplug(&mut self) {
        self.inner.unplug();
        let held = std::mem::take(&mut self.held).into_values();
        let fault = self.pulled.unwrap_or(MediaFault::Gone);
        for mut completion in held.chain(std::mem::take(&mut self.stuck)) {
            completion.result = Err(MediaError::new(fault, "the drive was unplugged"));
            self.ready.push(completion);
        }
        let tricks = &mut self.tricks;
        tricks.retain(|_, trick| matches!(trick, Trick::Restore { .. }));
    }
}

impl Faulty<crate::simulated::SimulatedDrive> {
    /// Pulls the drive out without a notice of the driver: all operations under way and all later
    /// ones fail with this fault.
    pub fn pull(&mut self, fault: MediaFault) {
        self.pulled = Some(fault);
        self.unplug();
    }

    /// Returns the drive.
    pub fn plug(&mut self) {
        self.pulled = None;
        self.inner.plug();
    }
}

/// The bytes `from..to` of the pieces laid end to end.
fn cut_out(pieces: &[Shared], from: u64, to: u64) -> Vec<Shared> {
    let mut start = 0;
    let mut kept = Vec::new();
    for piece in pieces {
        let end = start + piece.len() as u64;
        let (low, high) = (from.max(start), to.min(end));
        if low < high {
            kept.push(piece.slice((low - start) as usize..(high - start) as usize));
        }
        start = end;
    }
    kept
}

impl<D: Drive> Drive for Faulty<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, request: Request) {
        let class = match &request.op {
            Op::Read { .. } => Class::Read,
            Op::Write { .. } | Op::Zero { .. } | Op::Discard { .. } => Class::Write,
            Op::Flush => Class::Flush,
            Op::View { .. } | Op::Extents { .. } => return self.inner.submit(request),
        };
        if self.refuses_writes && class != Class::Read {
            let error = MediaError::new(MediaFault::Damaged, "the drive does not write");
            return self.answer(request, Err(error));
        }
        match self.decider.wanted(class) {
            Some(kind) => self.befall(kind, request),
            None => self.inner.submit(request),
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn reap(&mut self, now: Instant, finished: &mut Vec<Completion>) {
        self.clock = self.clock.max(now);
        let mut reaped = std::mem::take(&mut self.reaped);
        self.inner.reap(now, &mut reaped);
        reaped.drain(..).for_each(|completion| self.finish(completion, now));
        self.reaped = reaped;
        finished.append(&mut self.ready);
        while let Some(entry) = self.held.first_entry() {
            if entry.key().0 > now {
                break;
            }
            finished.push(entry.remove());
        }
    }

    fn next_event(&self) -> Option<Instant> {
        if !self.ready.is_empty() {
            return Some(self.clock);
        }
        let held = self.held.first_key_value().map(|(&(at, _), _)| at);
        [self.inner.next_event(), held].into_iter().flatten().min()
    }
}

impl<D: std::fmt::Debug> std::fmt::Debug for Faulty<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Faulty({:?}, {} damaged units)", self.inner, self.damage.len())
    }
}

#[cfg(test)]
mod tests;
