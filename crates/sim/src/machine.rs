//! A machine: drives in bays, a clock, and the system that runs on them, stepped one event at a
//! time.
//!
//! The machine judges nothing. It carries events and actions between the system and the drives,
//! lets virtual time jump to the next event, and stops at a drive operation that the world chooses.

mod power;

use std::collections::VecDeque;

use stele_array::{Action, Alarm, ArrayError, Attached, Command, CreateOptions, Event, OpenOptions, Reply, State};
use stele_ground::{Bytes, Dice, DriveId, Duration, Instant, VolumeId};
use stele_media::faulty::{FaultPlan, Faulty};
use stele_media::simulated::{Platter, SimulatedDrive};
use stele_media::{Completion, Drive, MediaError, MediaFault, Op, Request};

use crate::coverage::Coverage;
use crate::system::System;
use crate::trace::Trace;

pub use power::{CrashKind, Landmark, Tear, Trap};

/// A bay with its drive.
pub struct Bay {
    pub drive: Faulty<SimulatedDrive>,
    /// Given to the pool when the drive joins it.
    pub identity: DriveId,
    pub enclosure: u32,
    pub name: String,
    /// Whether the machine sees the drive.
    pub present: bool,
    /// The driver's index of this drive in the running system.
    wired: Option<usize>,
    /// The time since which an answer is overdue.
    stuck_since: Option<Instant>,
    /// The time at which the driver notices that the drive was pulled.
    noticed_at: Option<Instant>,
    /// The time at which it last took a group of the log.
    logged_at: Option<Instant>,
    /// The drive's content at an earlier moment, for a rollback.
    pub earlier: Option<Platter>,
}

/// An output of the system.
#[derive(Debug)]
pub enum Happening {
    Ordered {
        volume: VolumeId,
        tag: u64,
    },
    Finished {
        volume: VolumeId,
        completion: Completion,
    },
    Reply {
        id: u64,
        reply: Result<Reply, ArrayError>,
    },
    Alarm(Alarm),
    /// The driver lost patience with a drive that did not answer, and removed it.
    Lost {
        bay: usize,
    },
}

/// Start of the log on a drive (FORMAT/drive.md).
pub(crate) const LOG_AT: u64 = 4 << 20;

/// Time without an answer after which a driver gives the drive up, as operating systems do.
const DRIVER_PATIENCE: Duration = Duration::from_secs(30);

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// An event was processed.
    Event,
    /// No event comes before the limit; the clock is set to the limit.
    Idle,
    /// The fuse has run out: the system is gone. Call [`Machine::power_cut`] or [`Machine::kill`].
    Crash,
}

pub struct Machine<S> {
    pub now: Instant,
    pub bays: Vec<Bay>,
    pub system: Option<S>,
    /// The bay of each driver index.
    wiring: Vec<usize>,
    pub happenings: VecDeque<Happening>,
    pub trace: Trace,
    pub coverage: Coverage,
    /// Number of drive operations begun or finished until the machine stops.
    pub fuse: Option<u64>,
    /// Starts the fuse.
    pub trap: Option<Trap>,
    /// Bytes of the log on each drive, if known.
    pub log: Bytes,
    /// Number of drive operations so far, submissions and completions.
    pub operations: u64,
    actions: Vec<Action>,
    finished: Vec<Completion>,
    /// What was asked of drives that had left, by their index.
    refused: Vec<(usize, Completion)>,
    burnt: bool,
}

impl<S: System> Machine<S> {
    pub fn new(trace: Trace) -> Machine<S> {
        Machine {
            now: Instant(1_000_000),
            bays: Vec::new(),
            system: None,
            wiring: Vec::new(),
            happenings: VecDeque::new(),
            trace,
            coverage: Coverage::default(),
            fuse: None,
            trap: None,
            log: Bytes(0),
            operations: 0,
            actions: Vec::new(),
            finished: Vec::new(),
            refused: Vec::new(),
            burnt: false,
        }
    }

    /// Puts a drive into a new bay.
    pub fn add_bay(&mut self, drive: SimulatedDrive, plan: &FaultPlan, enclosure: u32) -> usize {
        let number = self.bays.len();
        let mut identity = [0; 16];
        identity[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        identity[15] = 0xD1;
        self.bays.push(Bay {
            drive: Faulty::new(drive, plan, number).forgetful(),
            identity: DriveId(identity),
            enclosure,
            name: format!("bay-{number}"),
            present: true,
            wired: None,
            stuck_since: None,
            noticed_at: None,
            logged_at: None,
            earlier: None,
        });
        number
    }

    fn wire(&mut self, order: &[usize]) -> Vec<Attached> {
        self.bays.iter_mut().for_each(|bay| bay.wired = None);
        self.wiring = order.to_vec();
        order
            .iter()
            .enumerate()
            .map(|(index, &bay)| {
                let bay = &mut self.bays[bay];
                bay.wired = Some(index);
                Attached { geometry: bay.drive.geometry(), name: bay.name.clone(), enclosure: bay.enclosure }
            })
            .collect()
    }

    /// Creates a pool on the drives of these bays.
    pub fn create(&mut self, options: CreateOptions, open: OpenOptions, order: &[usize]) {
        let attached = self.wire(order);
        self.trace.note(self.now, "create a pool on {} drives", &[order.len() as u64]);
        self.burnt = false;
        self.refused.clear();
        self.system = Some(S::create(options, open, attached, self.now));
    }

    /// Opens the pool on the drives of these bays.
    pub fn open(&mut self, options: OpenOptions, order: &[usize]) {
        let attached = self.wire(order);
        self.trace.note(
            self.now,
            "open the pool on {} drives, first bay {}",
            &[order.len() as u64, order.first().map_or(0, |bay| *bay as u64)],
        );
        self.burnt = false;
        self.refused.clear();
        self.system = Some(S::open(options, attached, self.now));
    }

    /// Present drives in random order: the index of a drive must not matter.
    pub fn present(&self, dice: &mut Dice) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.bays.len()).filter(|bay| self.bays[*bay].present).collect();
        dice.shuffle(&mut order);
        order
    }

    pub fn state(&self) -> State {
        self.system.as_ref().map_or(State::Closed, |system| system.state().clone())
    }

    fn is_starting(&self) -> bool {
        self.system.as_ref().is_some_and(|system| *system.state() == State::Starting)
    }

    pub fn submit(&mut self, volume: VolumeId, request: Request) {
        if let Some(system) = &mut self.system {
            system.event(Event::Submit { volume, request });
        }
    }

    /// Like `submit`; also reports when the write has its place in the log.
    pub fn submit_ordered(&mut self, volume: VolumeId, request: Request) {
        if let Some(system) = &mut self.system {
            system.event(Event::SubmitOrdered { volume, request });
        }
    }

    /// Submits some writes as ordered ones: at their end such writes promise no less.
    pub fn submit_any(&mut self, volume: VolumeId, request: Request) {
        match request.tag.is_multiple_of(4) && matches!(request.op, Op::Write { .. }) {
            true => self.submit_ordered(volume, request),
            false => self.submit(volume, request),
        }
    }

    pub fn command(&mut self, id: u64, command: Command) {
        self.trace.say(self.now, format!("command {id}: {command:?}"));
        if let Some(system) = &mut self.system {
            system.event(Event::Command { id, command });
        }
    }

    /// Failing memory: changes bits of data that waits to be destaged. Returns their number.
    pub fn spoil_memory(&mut self, dice: &mut Dice) -> u64 {
        let Some(system) = &mut self.system else { return 0 };
        let times = 1 + dice.below(8);
        let spoilt =
            (0..times).filter(|_| system.spoil_memory(dice.below(1 << 20), dice.below(8 * 4096) as usize)).count();
        self.trace.note(self.now, "{} bits of what waits in memory change", &[spoilt as u64]);
        spoilt as u64
    }

    /// Removes a drive while the system runs.
    pub fn detach(&mut self, bay: usize) {
        self.trace.note(self.now, "drive in bay {} leaves", &[bay as u64]);
        let now = self.now;
        let place = &mut self.bays[bay];
        place.present = false;
        place.stuck_since = None;
        place.noticed_at = None;
        place.drive.advance(now);
        place.drive.unplug();
        let Some(index) = place.wired.take() else { return };
        place.drive.reap(now, &mut self.finished);
        if let Some(system) = &mut self.system {
            for completion in self.finished.drain(..) {
                system.event(Event::Completed { drive: index, completion });
            }
            system.event(Event::Detach { drive: index });
        }
        self.finished.clear();
    }

    /// Removes a drive while the system runs, without a notice. Operations under way fail at once,
    /// later ones fail too, and the driver notices only after this time.
    pub fn pull(&mut self, bay: usize, fault: MediaFault, noticed: Duration) {
        self.trace.note(self.now, "drive in bay {} is pulled", &[bay as u64]);
        let now = self.now;
        let place = &mut self.bays[bay];
        place.present = false;
        place.stuck_since = None;
        place.drive.advance(now);
        self.coverage.add("requests failed by a drive that was pulled", place.drive.inner().in_flight() as u64);
        place.drive.pull(fault);
        place.noticed_at = Some(now + noticed);
    }

    /// A drive of a bay is back, or new. The running system is informed. Returns the drive's index
    /// there.
    pub fn attach(&mut self, bay: usize) -> Option<usize> {
        if self.bays[bay].wired.is_some() {
            // It was pulled, and the driver has not noticed yet.
            self.detach(bay);
        }
        self.trace.note(self.now, "drive in bay {} is attached", &[bay as u64]);
        let place = &mut self.bays[bay];
        place.present = true;
        place.drive.plug();
        let attached =
            Attached { geometry: place.drive.geometry(), name: place.name.clone(), enclosure: place.enclosure };
        let system = self.system.as_mut()?;
        let index = self.wiring.len();
        place.wired = Some(index);
        self.wiring.push(bay);
        system.event(Event::Attach(attached));
        Some(index)
    }

    fn burn(&mut self) -> bool {
        self.operations += 1;
        if let Some(fuse) = &mut self.fuse {
            *fuse = fuse.saturating_sub(1);
            if *fuse == 0 {
                self.burnt = true;
                self.fuse = None;
            }
        }
        self.burnt
    }

    /// Lets the system run, and carries out its actions.
    fn settle(&mut self) {
        self.carry_out();
        while !self.refused.is_empty() && !self.burnt {
            let Some(system) = &mut self.system else { return };
            for (drive, completion) in self.refused.drain(..) {
                system.event(Event::Completed { drive, completion });
            }
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        let Some(system) = &mut self.system else { return };
        system.run(self.now);
        let mut actions = std::mem::take(&mut self.actions);
        system.actions(&mut actions);
        for action in actions.drain(..) {
            if self.burnt {
                continue;
            }
            match action {
                Action::Drive { drive, request } => self.hand_over(drive, request),
                Action::Ordered { volume, tag } => {
                    self.trace.note(self.now, "host operation {} of volume {} is ordered", &[tag, u64::from(volume.0)]);
                    self.coverage.count("ordered writes");
                    self.happenings.push_back(Happening::Ordered { volume, tag });
                }
                // The world asks for the size itself.
                Action::Resized { .. } => {}
                Action::Finished { volume, completion } => {
                    let fault = completion.result.as_ref().err().map_or(0, |error| 1 + error.fault as u64);
                    self.trace.note(
                        self.now,
                        "host operation {} of volume {} ends, fault {}",
                        &[completion.tag, u64::from(volume.0), fault],
                    );
                    self.happenings.push_back(Happening::Finished { volume, completion });
                }
                Action::Reply { id, reply } => {
                    match &reply {
                        Ok(_) => self.trace.note(self.now, "reply {}: done", &[id]),
                        Err(error) => self.trace.say(self.now, format!("reply {id}: {error:?}")),
                    }
                    self.happenings.push_back(Happening::Reply { id, reply });
                }
                Action::Alarm(alarm) => {
                    self.trace.say(self.now, format!("alarm {:?}: {}", alarm.kind, alarm.message));
                    self.coverage.count(format!("alarm {:?}", alarm.kind));
                    self.happenings.push_back(Happening::Alarm(alarm));
                }
            }
        }
        self.actions = actions;
    }

    fn hand_over(&mut self, index: usize, request: Request) {
        let bay = self.wiring[index];
        let (sentence, class) = match &request.op {
            Op::Read { .. } => ("drive {} read {} at {} length {}", "drive reads"),
            Op::Write { fua: true, .. } => ("drive {} fua write {} at {} length {}", "drive fua writes"),
            Op::Write { .. } => ("drive {} write {} at {} length {}", "drive writes"),
            Op::Zero { .. } => ("drive {} zero {} at {} length {}", "drive zeroings"),
            Op::Flush => ("drive {} flush {}", "drive flushes"),
            Op::Discard { .. } => ("drive {} discard {} at {} length {}", "drive discards"),
            Op::View { .. } => ("drive {} view {} at {} length {}", "drive views"),
            Op::Extents { .. } => ("drive {} extents {} at {} length {}", "drive extents"),
        };
        let (at, length) = request.op.range().unwrap_or((0, 0));
        self.trace.note(self.now, sentence, &[bay as u64, request.tag, at, length]);
        self.coverage.count(class);
        if self.bays[bay].wired != Some(index) {
            // As a driver answers: the drive left after the system had handed the request out.
            self.coverage.count("requests to a drive that had left");
            let Request { tag, op, .. } = request;
            let error = MediaError::new(MediaFault::Gone, "the drive has left");
            self.refused.push((index, Completion { tag, op, result: Err(error) }));
            return;
        }
        self.spring(bay, &request.op);
        let in_log = LOG_AT..LOG_AT + self.log.0;
        let place = &mut self.bays[bay];
        if matches!(request.op, Op::Write { .. }) && in_log.contains(&at) {
            place.logged_at = Some(self.now);
        }
        place.drive.advance(self.now);
        place.drive.submit(request);
        place.drive.kick();
        self.drain_records(bay);
        self.burn();
    }

    fn drain_records(&mut self, bay: usize) {
        for record in self.bays[bay].drive.decider().take_records() {
            self.coverage.count(format!("fault {:?}", record.kind));
            self.trace.say(self.now, format!("FAULT {record}"));
        }
    }

    /// Records faults that the world caused outside an operation.
    pub fn note_faults(&mut self) {
        (0..self.bays.len()).for_each(|bay| self.drain_records(bay));
    }

    /// One step of the world, at most up to `limit`.
    pub fn step(&mut self, limit: Instant) -> Step {
        let starting = self.is_starting();
        self.settle();
        if self.burnt {
            self.system = None;
            return Step::Crash;
        }
        if !self.happenings.is_empty() || starting != self.is_starting() {
            return Step::Event;
        }
        let next = self
            .bays
            .iter()
            .enumerate()
            .filter(|(_, bay)| bay.wired.is_some())
            .filter_map(|(index, bay)| Some((bay.drive.next_event()?, index)))
            .min();
        let wake = self.system.as_ref().and_then(System::next_wake);
        let overdue = self
            .bays
            .iter()
            .enumerate()
            .filter(|(_, bay)| bay.wired.is_some())
            .filter_map(|(index, bay)| {
                let patience = bay.stuck_since.map(|since| since + DRIVER_PATIENCE);
                Some((patience.into_iter().chain(bay.noticed_at).min()?, index))
            })
            .min();
        let limit_now = next.map(|(at, _)| at).into_iter().chain(wake).min();
        if let Some((at, bay)) = overdue
            && at <= limit
            && limit_now.is_none_or(|next| at <= next)
        {
            self.now = self.now.max(at);
            self.coverage.count(match self.bays[bay].noticed_at {
                Some(_) => "pulled drives noticed",
                None => "drives given up because they did not answer",
            });
            self.detach(bay);
            self.happenings.push_back(Happening::Lost { bay });
            return Step::Event;
        }
        match (next, wake) {
            (Some((at, bay)), wake) if at <= limit && wake.is_none_or(|wake| at <= wake) => {
                self.now = self.now.max(at);
                self.reap(bay);
                if self.burnt {
                    self.system = None;
                    return Step::Crash;
                }
                Step::Event
            }
            (_, Some(wake)) if wake <= limit => {
                self.now = self.now.max(wake);
                Step::Event
            }
            _ => {
                self.now = self.now.max(limit);
                Step::Idle
            }
        }
    }

    fn reap(&mut self, bay: usize) {
        let Some(index) = self.bays[bay].wired else { return };
        let mut finished = std::mem::take(&mut self.finished);
        self.bays[bay].drive.reap(self.now, &mut finished);
        let place = &mut self.bays[bay];
        place.stuck_since = if place.drive.stuck() == 0 { None } else { place.stuck_since.or(Some(self.now)) };
        for completion in finished.drain(..) {
            if self.burnt {
                continue;
            }
            let fault = completion.result.as_ref().err().map_or(0, |error| 1 + fault_number(error.fault));
            self.trace.note(self.now, "drive {} ends {}, fault {}", &[bay as u64, completion.tag, fault]);
            self.spring(bay, &completion.op);
            if self.burn() {
                continue;
            }
            if let Some(system) = &mut self.system {
                system.event(Event::Completed { drive: index, completion });
            }
        }
        self.finished = finished;
    }

    /// Removes a closed system.
    pub fn put_away(&mut self) {
        self.system = None;
        self.happenings.clear();
        self.wiring.clear();
        (self.fuse, self.trap) = (None, None);
        for bay in &mut self.bays {
            bay.wired = None;
            (bay.stuck_since, bay.noticed_at) = (None, None);
            bay.drive.inner_mut().orphan();
            bay.drive.forget();
        }
    }

    /// The bay, among these, whose drive took a group of the log last.
    pub fn last_logged(&self, bays: &[usize]) -> Option<usize> {
        bays.iter()
            .copied()
            .filter(|bay| self.bays[*bay].logged_at.is_some())
            .max_by_key(|bay| self.bays[*bay].logged_at)
    }

    /// A hash of all durable data on every drive, and of all events.
    pub fn hash(&self) -> u64 {
        self.bays.iter().fold(self.trace.hash(), |hash, bay| {
            stele_ground::digest::context(hash, bay.drive.inner().platter().hash())
        })
    }
}

fn fault_number(fault: MediaFault) -> u64 {
    fault as u64
}
