//! Tries every crash, not a sample. A short workload on a tiny pool is stopped at each drive
//! operation. Of the sectors that were not yet durable, every subset is kept (up to [`EXHAUSTIVE`]
//! of them; beyond, a sample). The pool is opened on each outcome and compared with the oracle.
//! Outcomes with equal drives and equal promises are tried once.

pub mod cases;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use stele_array::{Command, CreateOptions, OpenOptions, Reply, State, VolumeSpec};
use stele_ground::{Bytes, Dice, Duration, PoolId, VolumeId, digest::context};
use stele_media::faulty::FaultPlan;
use stele_media::simulated::{Plain, Platter, SimulatedDrive, Unsettled};
use stele_media::{Buffer, Geometry, Op, Priority, Request};

use crate::coverage::Coverage;
use crate::machine::{CrashKind, Happening, Landmark, Machine, Step, Tear, Trap};
use crate::oracle::{Began, Oracle, Violation, WriteOutcome, paint};
use crate::system::System;
use crate::trace::Trace;

use snapshot::Snapshot;

/// Largest number of unsettled places, with two choices each, for which every subset is tried.
pub const EXHAUSTIVE: u32 = 12;

/// Time limit of every operation, in virtual time.
const PATIENCE: Duration = Duration::from_secs(120);

/// One action of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    Write {
        at: u64,
        length: u64,
    },
    Zero {
        at: u64,
        length: u64,
    },
    Discard {
        at: u64,
        length: u64,
    },
    Flush,
    Checkpoint,
    /// Take, roll back to, or delete the only snapshot of the volume.
    Snapshot,
    RollBack,
    DeleteSnapshot,
    /// A drive leaves; it may be back when the pool is opened after a crash.
    Leave {
        drive: usize,
    },
    /// The drive returns.
    Return {
        drive: usize,
    },
    /// An empty drive is added to the pool.
    Add,
    /// A drive leaves, and an empty one takes its place.
    Replace {
        drive: usize,
    },
}

impl Deed {
    /// Whether the pool has fewer complete drives during the action.
    fn takes_drives(self) -> bool {
        matches!(self, Deed::Leave { .. } | Deed::Return { .. } | Deed::Replace { .. })
    }
}

/// A tiny pool, its earlier contents, and the actions under way at the crash.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub drives: usize,
    pub drive_size: Bytes,
    pub log: Bytes,
    pub tear: Bytes,
    pub volume: VolumeSpec,
    pub open: OpenOptions,
    /// Drives that are missing when the deeds begin.
    pub absent: Vec<usize>,
    /// Done and settled before the deeds.
    pub before: Vec<Deed>,
    /// Submitted all at once, or one after another.
    pub deeds: Vec<Deed>,
    pub at_once: bool,
    /// Virtual time after the last deed in which crashes are still tried: destage, checkpoint.
    pub after: Duration,
}

/// The thoroughness.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Largest number of outcomes tried at each crash point; `None`: all, up to [`EXHAUSTIVE`]
    /// places.
    pub outcomes: u64,
    /// One crash point in this many is tried; 1 for all.
    pub stride: u64,
    /// One recovery in this many is itself crashed once, at a random operation.
    pub again: u64,
}

/// The numbers of trials.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tried {
    pub points: u64,
    pub outcomes: u64,
    /// Those of them that were different, and therefore recovered.
    pub recoveries: u64,
    /// Crash points at which every outcome was tried.
    pub exhausted: u64,
}

struct Drill<'a, S> {
    case: &'a Case,
    machine: Machine<S>,
    oracle: Oracle,
    volume: VolumeId,
    snapshot: Snapshot,
    flying: BTreeMap<u64, (Deed, Began)>,
    waiting: VecDeque<Deed>,
    tags: u64,
    values: u64,
    /// Number of answered deeds: together with the drives, it determines a crash.
    answered: Vec<u64>,
    seed: u64,
    /// Drives that are away.
    away: BTreeSet<usize>,
}

impl<'a, S: System> Drill<'a, S> {
    fn new(case: &'a Case, images: Option<&[Platter]>, kept: usize) -> Drill<'a, S> {
        let mut machine = Machine::new(Trace::new(kept));
        for drive in 0..images.map_or(case.drives, <[Platter]>::len) {
            let image = images.and_then(|images| images.get(drive)).cloned().unwrap_or_default();
            bay_with(case, &mut machine, image);
        }
        Drill {
            case,
            machine,
            oracle: Oracle::new(case.name.clone(), case.volume.size.0, case.volume.block.0 as usize),
            volume: VolumeId(0),
            snapshot: Snapshot::default(),
            flying: BTreeMap::new(),
            waiting: VecDeque::new(),
            tags: 0,
            values: 0,
            answered: Vec::new(),
            seed: 0,
            away: case.absent.iter().copied().collect(),
        }
    }

    /// Adds an empty drive; returns its index in the running pool.
    fn insert(&mut self) -> Result<(u32, stele_ground::DriveId), Violation> {
        let bay = bay_with(self.case, &mut self.machine, Platter::default());
        let index = self.machine.attach(bay).ok_or_else(|| Violation("no pool runs".into()))?;
        Ok((index as u32, self.machine.bays[bay].identity))
    }

    fn all(&self) -> Vec<usize> {
        (0..self.case.drives).collect()
    }

    fn present(&self) -> Vec<usize> {
        (0..self.machine.bays.len()).filter(|drive| !self.away.contains(drive)).collect()
    }

    fn step(&mut self, limit: stele_ground::Instant) -> Result<Step, Violation> {
        let step = self.machine.step(limit);
        while let Some(happening) = self.machine.happenings.pop_front() {
            if let Happening::Finished { completion, .. } = happening {
                if self.snapshot.was_read(&completion)? {
                    continue;
                }
                let Some((deed, began)) = self.flying.remove(&completion.tag) else { continue };
                completion.result.map_err(|error| Violation(format!("{deed:?} failed: {error}")))?;
                self.answered.push(completion.tag);
                match (deed, completion.op) {
                    (Deed::Write { at, length } | Deed::Zero { at, length } | Deed::Discard { at, length }, _) => {
                        self.oracle.end_write(at, length, began, WriteOutcome::Acknowledged);
                    }
                    (Deed::Flush, Op::Read { at, buffer }) => self.oracle.end_read(at, &buffer, began)?,
                    (_, _) => self.oracle.drop_read(began),
                }
            } else if let Happening::Reply { id, reply } = happening {
                let asked = self.flying.remove(&id);
                if let Some((deed, _)) = asked
                    && reply.is_ok()
                {
                    self.snapshot.done(deed, &mut self.oracle);
                    self.answered.push(id);
                }
                match (asked, reply) {
                    (_, Ok(Reply::Volume(status))) if status.snapshot => self.snapshot.id = Some(status.id),
                    (_, Ok(Reply::Volume(status))) => self.volume = status.id,
                    (_, Ok(Reply::Volumes(all))) => {
                        self.snapshot.listed(&all)?;
                        match all.iter().find(|status| !status.snapshot) {
                            Some(status) => self.volume = status.id,
                            None => return Err(Violation("the volume is gone".into())),
                        }
                    }
                    (_, Ok(_)) => {}
                    (deed, Err(error)) => return Err(Violation(format!("{deed:?} refused: {error}"))),
                }
            }
        }
        if let State::Failed(error) = self.machine.state() {
            return Err(Violation(format!("the pool failed: {error}")));
        }
        if self.flying.is_empty()
            && step != Step::Crash
            && let Some(deed) = self.waiting.pop_front()
        {
            self.begin(deed)?;
        }
        Ok(step)
    }

    /// Steps until `done`, a crash or the time limit. Returns false after a crash.
    fn until(&mut self, what: &str, done: impl Fn(&Drill<'a, S>) -> bool) -> Result<bool, Violation> {
        let deadline = self.machine.now + PATIENCE;
        while !done(self) {
            if self.machine.now >= deadline {
                return Err(Violation(format!("{what} takes too long")));
            }
            if self.step(deadline)? == Step::Crash {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn begin(&mut self, deed: Deed) -> Result<(), Violation> {
        self.tags += 1;
        let tag = self.tags;
        let unit = self.case.volume.block.0;
        let (op, began) = match deed {
            Deed::Write { at, length } => {
                self.values += 1;
                let mut bytes = Buffer::zeroed(length as usize);
                paint(&mut bytes, at / unit, unit as usize, self.values);
                let began = self.oracle.begin_write(at, length, self.values);
                (Op::Write { at, data: vec![bytes.freeze()], fua: false }, began)
            }
            Deed::Zero { at, length } => (Op::Zero { at, length }, self.oracle.begin_write(at, length, 0)),
            Deed::Discard { at, length } => (Op::Discard { at, length }, self.oracle.begin_write(at, length, 0)),
            Deed::Flush => (Op::Flush, self.oracle.begin_read()),
            Deed::Checkpoint => {
                let began = self.oracle.begin_read();
                self.flying.insert(tag, (deed, began));
                self.machine.command(tag, Command::Checkpoint);
                return Ok(());
            }
            Deed::Leave { drive } => {
                self.away.insert(drive);
                self.machine.detach(drive);
                return Ok(());
            }
            Deed::Return { drive } => {
                self.away.remove(&drive);
                self.machine.attach(drive);
                return Ok(());
            }
            Deed::Add | Deed::Replace { .. } => {
                if let Deed::Replace { drive } = deed {
                    self.away.insert(drive);
                    self.machine.detach(drive);
                }
                let (index, identity) = self.insert()?;
                let began = self.oracle.begin_read();
                self.flying.insert(tag, (deed, began));
                let command = match deed {
                    Deed::Replace { drive } => Command::ReplaceDrive {
                        old: drive as u32,
                        new: index,
                        identity,
                        enclosure: None,
                        give_up: false,
                    },
                    _ => Command::AddDrives { drives: vec![(index, identity)] },
                };
                self.machine.command(tag, command);
                return Ok(());
            }
            Deed::Snapshot | Deed::RollBack | Deed::DeleteSnapshot => {
                let began = self.oracle.begin_read();
                self.flying.insert(tag, (deed, began));
                let command = self.snapshot.begin(deed, &self.case.volume.name, &mut self.oracle);
                self.machine.command(tag, command);
                return Ok(());
            }
        };
        self.flying.insert(tag, (deed, began));
        self.machine.submit(self.volume, Request { tag, op, priority: Priority::Host, deadline: None });
        Ok(())
    }

    fn begin_all(&mut self, deeds: &[Deed], at_once: bool) -> Result<(), Violation> {
        if at_once {
            return deeds.iter().try_for_each(|deed| self.begin(*deed));
        }
        self.waiting.extend(deeds);
        match self.waiting.pop_front() {
            Some(first) => self.begin(first),
            None => Ok(()),
        }
    }

    fn idle(&self) -> bool {
        self.flying.is_empty() && self.waiting.is_empty()
    }

    fn open(&mut self) -> Result<bool, Violation> {
        let order = self.present();
        self.machine.open(OpenOptions { seed: self.seed, ..self.case.open.clone() }, &order);
        if !self.until("opening", |drill| drill.machine.state() == State::Ready { read_only: false })? {
            return Ok(false);
        }
        self.tags += 1;
        let (tag, began) = (self.tags, self.oracle.begin_read());
        self.flying.insert(tag, (Deed::Checkpoint, began));
        self.machine.command(tag, Command::ListVolumes);
        let listed = self.until("listing", Drill::idle)?;
        self.oracle.drop_read(began);
        Ok(listed)
    }

    /// Makes the pool and its earlier contents; returns the contents of the drives.
    fn prepare(&mut self) -> Result<Vec<Platter>, Violation> {
        let options = CreateOptions {
            pool: PoolId([0xE1; 16]),
            name: "drill".into(),
            drives: self.machine.bays.iter().map(|bay| bay.identity).collect(),
            seed: 1,
            log: Some(self.case.log),
            spare_drives: Some(0),
            created: 0,
            shard: Default::default(),
        };
        let order = self.all();
        self.machine.create(options, self.case.open.clone(), &order);
        self.until("creating", |drill| drill.machine.state() == State::Ready { read_only: false })?;
        self.tags += 1;
        let (tag, began) = (self.tags, self.oracle.begin_read());
        self.flying.insert(tag, (Deed::Checkpoint, began));
        self.machine.command(tag, Command::CreateVolume(self.case.volume.clone()));
        self.until("creating the volume", Drill::idle)?;
        self.oracle.drop_read(began);
        let before = self.case.before.clone();
        self.begin_all(&before, false)?;
        self.until("the deeds before", Drill::idle)?;
        self.tags += 1;
        let (tag, began) = (self.tags, self.oracle.begin_read());
        self.flying.insert(tag, (Deed::Checkpoint, began));
        self.machine.command(tag, Command::Close);
        self.until("closing", Drill::idle)?;
        self.oracle.drop_read(began);
        self.machine.put_away();
        self.machine.bays.iter_mut().for_each(|bay| bay.drive.inner_mut().settle());
        Ok(self.machine.bays.iter().map(|bay| bay.drive.inner().platter().clone()).collect())
    }

    /// Runs the deeds and some time after them. Returns true after a crash.
    fn act(&mut self) -> Result<bool, Violation> {
        let deeds = self.case.deeds.clone();
        self.begin_all(&deeds, self.case.at_once)?;
        if !self.until("the deeds", Drill::idle)? {
            return Ok(true);
        }
        let end = self.machine.now + self.case.after;
        while self.machine.now < end {
            if self.step(end)? == Step::Crash {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads everything in pieces, and then whole: two reads, perhaps of different copies, must
    /// agree.
    fn look(&mut self) -> Result<(), Violation> {
        let size = self.oracle.size();
        let piece = (16 << 10).min(size);
        let pieces = (0..size).step_by(piece as usize).map(|at| (at, piece.min(size - at)));
        for (at, length) in pieces.chain([(0, size)]) {
            self.tags += 1;
            let (tag, began) = (self.tags, self.oracle.begin_read());
            self.flying.insert(tag, (Deed::Flush, began));
            let op = Op::Read { at, buffer: Buffer::zeroed(length as usize) };
            self.machine.submit(self.volume, Request { tag, op, priority: Priority::Host, deadline: None });
            if at + length == size {
                self.until("reading", Drill::idle)?;
            }
        }
        let Some(id) = self.snapshot.id else { return Ok(()) };
        self.tags += 1;
        let request = self.snapshot.look(self.tags, size);
        self.machine.submit(id, request);
        self.until("reading the snapshot", |drill| drill.snapshot.is_read()).map(drop)
    }
}

/// Tries every crash of a case.
pub fn enumerate<S: System>(case: &Case, effort: Effort, coverage: &mut Coverage) -> Result<Tried, Violation> {
    let mut first = Drill::<S>::new(case, None, 0);
    let images = first.prepare().map_err(|violation| in_case(case, "preparing", &violation))?;
    let (oracle, values, volume, snapshot) = (first.oracle, first.values, first.volume, first.snapshot);
    let fresh = |kept| {
        let mut drill = Drill::<S>::new(case, Some(&images), kept);
        (drill.oracle, drill.values, drill.volume) = (oracle.clone(), values, volume);
        drill.snapshot = snapshot.clone();
        drill
    };
    let total = {
        let mut drill = fresh(0);
        drill.open().map_err(|violation| in_case(case, "opening", &violation))?;
        let from = drill.machine.operations;
        drill.act().map_err(|violation| in_case(case, "acting", &violation))?;
        drill.look().map_err(|violation| in_case(case, "looking", &violation))?;
        drill.machine.operations - from
    };
    let mut tried = Tried::default();
    let mut seen = BTreeSet::new();
    let mut dice = Dice::new(total);
    for point in (1..=total).step_by(effort.stride.max(1) as usize) {
        let mut drill = fresh(0);
        drill.open().map_err(|violation| in_case(case, "opening", &violation))?;
        drill.machine.fuse = Some(point);
        if !drill.act().map_err(|violation| in_case(case, "acting", &violation))? {
            break;
        }
        tried.points += 1;
        drill.oracle.crash();
        drill.snapshot.crash(&mut drill.oracle);
        let places: Vec<(usize, Unsettled)> = drill
            .machine
            .bays
            .iter_mut()
            .enumerate()
            .flat_map(|(bay, place)| {
                place.drive.inner_mut().prepare_power_cut().into_iter().map(move |place| (bay, place))
            })
            .collect();
        let product = places.iter().try_fold(1u64, |product, (_, place)| {
            product.checked_mul(place.choices as u64).filter(|product| *product <= 1 << EXHAUSTIVE)
        });
        let count = product.unwrap_or(u64::MAX).min(effort.outcomes);
        if product.is_some_and(|product| product <= effort.outcomes) {
            tried.exhausted += 1;
        }
        for number in 0..count {
            let choices = choices(&places, number, product, count, &mut dice);
            tried.outcomes += 1;
            let images = outcome(&drill, &places, &choices);
            let promises = drill.answered.iter().fold(0, |hash, tag| context(hash, *tag));
            let key = images.iter().fold(promises, |hash, image| context(hash, image.hash()));
            if !seen.insert(key) {
                continue;
            }
            tried.recoveries += 1;
            coverage.count("enumerated recoveries");
            let place = || format!("crash at operation {point} of {total}, outcome {number} {choices:?}");
            recover::<S>(case, &drill, &images, effort, &mut dice)
                .map_err(|violation| in_case(case, &place(), &violation))?;
        }
    }
    Ok(tried)
}

fn bay_with<S: System>(case: &Case, machine: &mut Machine<S>, image: Platter) -> usize {
    let number = machine.bays.len();
    let geometry = Geometry { size: case.drive_size, block: Bytes(4096) };
    let model = Box::new(Plain::flash(Dice::new(number as u64)));
    let drive = SimulatedDrive::holding(image, geometry, case.tear, model);
    machine.add_bay(drive, &FaultPlan::new(0), number as u32)
}

fn in_case(case: &Case, place: &str, violation: &Violation) -> Violation {
    Violation(format!("case '{}', {place}: {violation}", case.name))
}

/// The choices of one outcome: in order if all are tried; otherwise the two extremes, then random
/// ones.
fn choices(
    places: &[(usize, Unsettled)],
    number: u64,
    product: Option<u64>,
    count: u64,
    dice: &mut Dice,
) -> Vec<usize> {
    let mut rest = number;
    places
        .iter()
        .map(|(_, place)| {
            let sides = place.choices as u64;
            if product == Some(count) {
                let choice = rest % sides;
                rest /= sides;
                return choice as usize;
            }
            match number {
                0 => 0,
                1 => place.choices - 1,
                // A few losses among many survivors, and the reverse, do more harm than halves.
                _ if number.is_multiple_of(3) && !dice.one_in(8) => 0,
                _ if number % 3 == 1 && !dice.one_in(8) => place.choices - 1,
                _ => dice.below(sides) as usize,
            }
        })
        .collect()
}

fn outcome<S: System>(drill: &Drill<'_, S>, places: &[(usize, Unsettled)], choices: &[usize]) -> Vec<Platter> {
    drill
        .machine
        .bays
        .iter()
        .enumerate()
        .map(|(bay, place)| {
            let mut chosen = places.iter().zip(choices).filter(|((of, _), _)| *of == bay).map(|(_, choice)| *choice);
            place.drive.inner().after_power_cut(|_| chosen.next().unwrap_or(0))
        })
        .collect()
}

fn recover<S: System>(
    case: &Case,
    crashed: &Drill<'_, S>,
    images: &[Platter],
    effort: Effort,
    dice: &mut Dice,
) -> Result<(), Violation> {
    let mut images = images.to_vec();
    // A drive that had left may be back, with its former contents.
    let away: BTreeSet<usize> =
        crashed.away.iter().copied().filter(|drive| case.absent.contains(drive) || dice.one_in(2)).collect();
    if dice.one_in(effort.again) {
        // The recovery itself is interrupted somewhere, perhaps repeatedly; one drive may then have
        // data that others lack.
        let favourite = dice.below(images.len() as u64) as usize;
        for _ in 0..=dice.below(3) {
            let mut drill = Drill::<S>::new(case, Some(&images), 0);
            (drill.oracle, drill.snapshot) = (crashed.oracle.clone(), crashed.snapshot.clone());
            drill.away.clone_from(&away);
            let sides = 1 << dice.below(9);
            match dice.one_in(2) {
                true => drill.machine.fuse = Some(1 + dice.below(sides)),
                false => {
                    let (left, fuse) = (1 + dice.below(5 * images.len() as u64), 1 + dice.below(4));
                    drill.machine.trap = Some(Trap { at: Landmark::Label, left, fuse });
                }
            }
            if drill.open()? {
                break;
            }
            let tear = [Tear::Anyhow, Tear::Only(favourite), Tear::AllBut(favourite)];
            let tear = dice.pick(&tear).copied().unwrap_or(Tear::Anyhow);
            drill.machine.crash_torn(CrashKind::Power, tear, dice);
            images = drill.machine.bays.iter().map(|bay| bay.drive.inner().platter().clone()).collect();
        }
    }
    let mut drill = Drill::<S>::new(case, Some(&images), 0);
    (drill.oracle, drill.values) = (crashed.oracle.clone(), crashed.values + 1_000);
    drill.snapshot = crashed.snapshot.clone();
    drill.seed = dice.roll();
    drill.away.clone_from(&away);
    drill.open()?;
    drill.look()?;
    // The content seen must stay over another power cut, also without a drive that the code allows.
    for bay in &mut drill.machine.bays {
        bay.drive.power_cut(dice);
    }
    let images: Vec<Platter> = drill.machine.bays.iter().map(|bay| bay.drive.inner().platter().clone()).collect();
    let mut again = Drill::<S>::new(case, Some(&images), 0);
    (again.oracle, again.snapshot) = (drill.oracle, drill.snapshot);
    again.seed = dice.roll();
    again.oracle.crash();
    again.away = away;
    let hurt = !case.absent.is_empty() || case.deeds.iter().any(|deed| deed.takes_drives());
    if !hurt && dice.one_in(2) {
        let lost = dice.below(case.drives as u64) as usize;
        again.away.insert(lost);
        return again
            .open()
            .and_then(|_| again.look())
            .map_err(|violation| Violation(format!("opened again without drive {lost}: {violation}")));
    }
    again.open()?;
    again.look()
}

#[cfg(test)]
mod tests;
