//! The world of one seed: a machine, its hosts, and the loop that runs them.
//!
//! Safety is checked at every answer. Whatever the history does (see [`crate::history`]), the world
//! brings the pool back after each crash and compares its state with its promises.

mod layers;
mod openings;
mod plan;
pub mod resizing;
mod space;

use std::collections::BTreeMap;

use stele_array::{
    Alarm, AlarmKind, ArrayError, Command, CreateOptions, OpenOptions, PoolStatus, Reply, State, VolumeSpec,
    VolumeStatus,
};
use stele_ground::{Dice, Duration, Instant, PoolId};
use stele_media::faulty::{FaultKind, FaultPlan};
use stele_media::simulated::SimulatedDrive;
use stele_media::{Drive, Geometry, MediaFault};

use crate::atlas::Atlas;
use crate::history::{Growth, Outages};
use crate::host::{Excuse, Host};
use crate::machine::{Happening, Machine, Step};
use crate::oracle::Violation;
use crate::setup::{Campaign, Setup};
use crate::system::System;
use crate::trace::Trace;
use plan::plan_of;

/// Virtual time after which an operation, a command or an opening is stuck.
const PATIENCE: Duration = Duration::from_secs(300);

/// More events than any healthy seed needs.
const EVENTS_MAX: u64 = 6_000_000;

/// Events without an advance of the clock: a livelock.
const STANDSTILL_MAX: u64 = 400_000;

/// The result of a wait.
#[derive(Debug)]
pub enum WaitOutcome<T> {
    Reached(T),
    /// The machine crashed meanwhile, and is up again.
    Crashed,
}

/// The expected state of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Exists,
    /// A command that creates it was interrupted.
    MayExist,
    /// A command that deletes it was interrupted.
    MayBeGone,
}

pub struct World<S> {
    pub setup: Setup,
    pub machine: Machine<S>,
    pub atlas: Atlas,
    pub plan: FaultPlan,
    pub hosts: BTreeMap<String, Host>,
    fates: BTreeMap<String, (Fate, VolumeSpec)>,
    /// Sizes requested by an interrupted resize.
    resized: BTreeMap<String, u64>,
    /// Decides the events of the history; hosts, drives and crashes have dice of their own.
    pub dice: Dice,
    pub crash_dice: Dice,
    /// Decides the faults of memory.
    pub memory_dice: Dice,
    /// Decides which drives are removed to prove that the pool is whole.
    pub proof_dice: Dice,
    tags: u64,
    values: u64,
    replies: BTreeMap<u64, Result<Reply, ArrayError>>,
    still: (Instant, u64),
    /// Bays with drives of the pool, in no particular order.
    pub members: Vec<usize>,
    pub growth: Growth,
    pub outages: Outages,
    /// Events on the drives between a crash and the next start.
    pub at_next_crash: Vec<FaultKind>,
    pub volumes_made: u64,
    pub layer_dice: Dice,
    /// The volume of each snapshot, and the snapshot of each clone.
    origins: BTreeMap<String, String>,
    /// The open pool refused to serve, with a valid reason.
    pub refused: Option<ArrayError>,
}

impl<S: System> World<S> {
    pub fn new(seed: u64, setup: Setup, trace: Trace) -> World<S> {
        let mut dice = Dice::new(seed);
        let atlas = Atlas::new(if setup.campaign == Campaign::Crashes { 0 } else { setup.tolerance }, setup.log);
        let plan = plan_of(&mut dice, &setup, &atlas);
        let mut world = World {
            machine: Machine::new(trace),
            atlas,
            plan,
            hosts: BTreeMap::new(),
            fates: BTreeMap::new(),
            resized: BTreeMap::new(),
            crash_dice: dice.fork(),
            memory_dice: Dice::new(seed ^ 0x004d_454d_4f52_5921),
            proof_dice: Dice::new(seed ^ 0x9400_F000_0000_0000),
            tags: 0,
            values: 0,
            replies: BTreeMap::new(),
            still: (Instant(0), 0),
            members: Vec::new(),
            growth: Growth::new(seed),
            outages: Outages::new(seed),
            at_next_crash: Vec::new(),
            volumes_made: 0,
            layer_dice: Dice::new(seed ^ 0x1A7E_0000_0000_0000),
            origins: BTreeMap::new(),
            refused: None,
            dice,
            setup,
        };
        world.machine.log = world.setup.log;
        let enclosures = world.setup.enclosures.clone();
        world.members = enclosures.into_iter().map(|enclosure| world.new_bay(enclosure)).collect();
        world
    }

    /// A bay with a new, empty drive.
    pub fn new_bay(&mut self, enclosure: u32) -> usize {
        let geometry = Geometry { size: self.setup.drive_size, block: self.setup.drive_block };
        let model = Box::new(self.setup.model(self.dice.fork()));
        let drive = SimulatedDrive::new(geometry, self.setup.tear, model);
        self.machine.add_bay(drive, &self.plan, enclosure)
    }

    pub fn arm(&mut self, armed: bool) {
        self.machine.bays.iter_mut().for_each(|bay| bay.drive.decider().arm(armed));
    }

    /// Stops all faults of drives and of the power.
    pub fn stop_faults(&mut self) {
        self.arm(false);
        (self.machine.fuse, self.machine.trap) = (None, None);
        self.at_next_crash.clear();
        self.outages.calm(true);
    }

    /// Starts the faults.
    pub fn begin_faults(&mut self) {
        self.arm(true);
        self.outages.calm(false);
    }

    fn open_options(&mut self) -> OpenOptions {
        OpenOptions { seed: self.crash_dice.roll(), ..self.setup.open.clone() }
    }

    /// Creates the pool, then its volumes.
    pub fn begin(&mut self) -> Result<(), Violation> {
        self.arm(false);
        let options = CreateOptions {
            pool: PoolId([0x51; 16]),
            name: "world".into(),
            drives: self.members.iter().map(|bay| self.machine.bays[*bay].identity).collect(),
            seed: self.dice.roll(),
            log: Some(self.setup.log),
            spare_drives: self.setup.spare_drives,
            created: 1_700_000_000,
            shard: Default::default(),
        };
        let open = self.open_options();
        let members = self.members.clone();
        self.machine.create(options, open, &members);
        let deadline = self.machine.now + PATIENCE;
        while self.machine.state() == State::Starting {
            if self.machine.now >= deadline {
                return Err(Violation("the pool was not created in time".into()));
            }
            self.turn(deadline)?;
        }
        if let State::Failed(error) = self.machine.state() {
            return Err(Violation(format!("the pool could not be created: {error}")));
        }
        for spec in self.setup.volumes.clone() {
            self.volumes_made += 1;
            self.create_volume(spec)?;
        }
        Ok(())
    }

    /// Creates a volume and gives it a host.
    pub fn create_volume(&mut self, spec: VolumeSpec) -> Result<(), Violation> {
        self.fates.insert(spec.name.clone(), (Fate::MayExist, spec.clone()));
        match self.ask(Command::CreateVolume(spec.clone()))? {
            WaitOutcome::Reached(Ok(Reply::Volume(status))) => {
                self.adopt(&status)?;
                Ok(())
            }
            WaitOutcome::Reached(Ok(reply)) => Err(Violation(format!("CreateVolume was answered with {reply:?}"))),
            WaitOutcome::Reached(Err(ArrayError::Degraded(_))) if self.atlas.is_beyond() => {
                // The log may have stopped with the record on its way: the next opening shows the
                // result.
                self.machine.coverage.count("volume creation left open");
                Ok(())
            }
            WaitOutcome::Reached(Err(error)) => {
                self.fates.remove(&spec.name);
                self.machine.coverage.count("volume creation refused");
                match error {
                    ArrayError::Full(_) | ArrayError::Degraded(_) => Ok(()),
                    _ if self.atlas.is_beyond() || self.atlas.is_hurt() => Ok(()),
                    // The pool may have become too small for the code.
                    _ if self.growth.staying(&self.members).len() < spec.code.width() => Ok(()),
                    error => Err(Violation(format!("volume {} could not be created: {error:?}", spec.name))),
                }
            }
            WaitOutcome::Crashed => Ok(()),
        }
    }

    fn adopt(&mut self, status: &VolumeStatus) -> Result<(), Violation> {
        let name = status.spec.name.clone();
        let Some((fate, spec)) = self.fates.get_mut(&name) else {
            return Err(Violation(format!("volume {name} came back from the dead, or was never asked for")));
        };
        *fate = Fate::Exists;
        let known = spec.clone();
        if !self.hosts.contains_key(&name) {
            self.machine.coverage.count("volumes created");
            let host = match self.origins.get(&name).cloned() {
                Some(origin) => self.layered(&name, &origin, status, known)?,
                None => Host::new(status.id, known, &mut self.dice),
            };
            self.hosts.insert(name.clone(), host);
        }
        let Some(host) = self.hosts.get_mut(&name) else { return Ok(()) };
        if let Some(size) = self.resized.remove(&name)
            && status.spec.size.0 == size
        {
            host.resize(size)?;
        }
        host.paused = false;
        let same = VolumeSpec { owner: None, ..status.spec.clone() } == VolumeSpec { owner: None, ..host.spec.clone() };
        if !same || status.id != host.id {
            return Err(Violation(format!("volume {name} is now {:?}, was {:?}", status.spec, host.spec)));
        }
        Ok(())
    }

    fn drain_host(&mut self, name: &str) -> Result<WaitOutcome<()>, Violation> {
        if let Some(host) = self.hosts.get_mut(name) {
            host.paused = true;
        }
        let deadline = self.machine.now + PATIENCE;
        while self.hosts.get(name).is_some_and(|host| host.in_flight() > 0) {
            if let WaitOutcome::Crashed = self.turn(deadline)? {
                if let Some(host) = self.hosts.get_mut(name) {
                    host.paused = false;
                }
                return Ok(WaitOutcome::Crashed);
            }
            if self.machine.now >= deadline {
                return Err(Violation(format!("{name}: operations in flight do not end")));
            }
        }
        Ok(WaitOutcome::Reached(()))
    }

    /// Waits until nothing is in flight on a volume. Returns true if the machine crashed in between
    /// (and is up again).
    pub fn drain(&mut self, name: &str) -> Result<bool, Violation> {
        Ok(matches!(self.drain_host(name)?, WaitOutcome::Crashed))
    }

    /// Allows every host this many further operations.
    pub fn allow(&mut self, operations: u64) {
        for host in self.hosts.values_mut() {
            host.allowance = self.dice.below(operations + 1);
        }
    }

    /// Lets hosts work for this time. Returns true if the machine crashed in between (and is up
    /// again).
    pub fn work(&mut self, span: Duration) -> Result<bool, Violation> {
        let end = self.machine.now + span;
        while self.machine.now < end {
            if let WaitOutcome::Crashed = self.turn(end)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives a command and waits for its answer, while hosts continue.
    pub fn ask(&mut self, command: Command) -> Result<WaitOutcome<Result<Reply, ArrayError>>, Violation> {
        self.tags += 1;
        let id = self.tags;
        let what = format!("{command:?}");
        self.machine.command(id, command);
        let deadline = self.machine.now + PATIENCE;
        loop {
            if let Some(reply) = self.replies.remove(&id) {
                return Ok(WaitOutcome::Reached(reply));
            }
            if let WaitOutcome::Crashed = self.turn(deadline)? {
                return Ok(WaitOutcome::Crashed);
            }
            if self.machine.now >= deadline {
                return Err(Violation(format!("no answer to {what}")));
            }
        }
    }

    pub fn status(&mut self) -> Result<WaitOutcome<PoolStatus>, Violation> {
        match self.ask(Command::Status)? {
            WaitOutcome::Reached(Ok(Reply::Status(status))) => {
                self.note_arrived(&status);
                Ok(WaitOutcome::Reached(*status))
            }
            WaitOutcome::Reached(Err(error @ ArrayError::Stopped(_))) if self.atlas.is_beyond() => {
                self.machine.coverage.count("pool stopped, honestly");
                self.refused = Some(error);
                Ok(WaitOutcome::Crashed)
            }
            WaitOutcome::Reached(other) => Err(Violation(format!("Status was answered with {other:?}"))),
            WaitOutcome::Crashed => Ok(WaitOutcome::Crashed),
        }
    }

    /// One event, at most up to `limit`.
    fn turn(&mut self, limit: Instant) -> Result<WaitOutcome<()>, Violation> {
        let mut limit = limit;
        if let State::Ready { read_only } = self.machine.state() {
            limit = self.issue(limit, read_only);
        }
        let step = self.machine.step(limit);
        self.absorb()?;
        self.watch()?;
        if step == Step::Crash {
            self.crash_and_recover()?;
            return Ok(WaitOutcome::Crashed);
        }
        if let State::Failed(error) = self.machine.state()
            && !self.atlas.is_beyond()
        {
            return Err(Violation(format!("the pool has failed: {error}")));
        }
        Ok(WaitOutcome::Reached(()))
    }

    /// Lets hosts issue their due operations; returns the time of the next one, at most `limit`.
    fn issue(&mut self, limit: Instant, read_only: bool) -> Instant {
        let now = self.machine.now;
        let mut next = limit;
        if read_only || self.refused.is_some() {
            return next;
        }
        for host in self.hosts.values_mut() {
            while let Some(at) = host.next_at() {
                if at > now {
                    next = next.min(at);
                    break;
                }
                self.tags += 1;
                self.values += 1;
                let request = host.issue(now, self.tags, self.values, &mut self.machine.coverage);
                let (at, length) = request.op.range().unwrap_or((0, 0));
                self.machine.trace.note(
                    now,
                    "host operation {} of volume {} begins at {} length {} value {}",
                    &[self.tags, u64::from(host.id.0), at, length, self.values],
                );
                self.machine.submit_any(host.id, request);
            }
        }
        next
    }

    fn absorb(&mut self) -> Result<(), Violation> {
        while let Some(happening) = self.machine.happenings.pop_front() {
            match happening {
                Happening::Finished { volume, completion } => {
                    let is_full = matches!(&completion.result, Err(error) if error.fault == MediaFault::Full);
                    let asked = self.hosts.values().find(|host| host.id == volume);
                    let asked = asked.and_then(|host| host.asked_at(completion.tag));
                    let full = is_full && (self.may_be_full() || self.was_roomless(asked));
                    let excuse = Excuse { full, anything: self.atlas.is_beyond() };
                    let Some(host) = self.hosts.values_mut().find(|host| host.id == volume) else {
                        return Err(Violation(format!("an answer for {volume}, which does not exist")));
                    };
                    host.finished(completion, excuse, &mut self.machine.coverage)?;
                }
                Happening::Reply { id, reply } => drop(self.replies.insert(id, reply)),
                // The pool repairs it and continues; in the simulation it is a defect.
                Happening::Alarm(alarm) if alarm.message.contains("invariant 14") => {
                    return Err(Violation(alarm.message));
                }
                Happening::Alarm(alarm) => {
                    self.growth.given_up.extend(self.given_up_in(&alarm));
                    self.growth.hear(alarm);
                }
                Happening::Ordered { volume, tag } => {
                    if let Some(host) = self.hosts.values_mut().find(|host| host.id == volume) {
                        host.ordered(tag);
                    }
                }
                Happening::Lost { bay } => self.atlas.note_absent(bay),
            }
        }
        Ok(())
    }

    /// The bay of a drive that the pool has given up, as an alarm reports, now or before it was
    /// opened.
    fn given_up_in(&self, alarm: &Alarm) -> Option<usize> {
        let (now, before) = (AlarmKind::DriveFailed, AlarmKind::DriveRejected);
        let name = match alarm.message.split_once(" is given up: ") {
            Some((drive, _)) if alarm.kind == now => drive.split_once(" (")?.1.strip_suffix(')')?,
            _ if alarm.kind == before && alarm.message.contains(" was given up earlier; ") => {
                alarm.message.split_once(" is not used: ")?.0
            }
            _ => return None,
        };
        self.machine.bays.iter().position(|bay| bay.name == name)
    }

    /// Detects operations that do not end.
    fn watch(&mut self) -> Result<(), Violation> {
        let now = self.machine.now;
        if self.still.0 == now {
            self.still.1 += 1;
            if self.still.1 > STANDSTILL_MAX {
                return Err(Violation("livelock: events without end at one instant".into()));
            }
        } else {
            self.still = (now, 0);
        }
        if self.machine.trace.events() > EVENTS_MAX {
            return Err(Violation("more events than a healthy run needs".into()));
        }
        for host in self.hosts.values() {
            if let Some(since) = host.waiting_since()
                && now.since(since) > PATIENCE
            {
                return Err(Violation(format!("{}: an operation is not answered", host.spec.name)));
            }
        }
        Ok(())
    }

    /// Compares the volumes with the expected ones. Returns false after a crash.
    fn reconcile(&mut self) -> Result<bool, Violation> {
        self.tags += 1;
        let id = self.tags;
        self.machine.command(id, Command::ListVolumes);
        let deadline = self.machine.now + PATIENCE;
        let volumes = loop {
            let step = self.machine.step(deadline);
            self.absorb()?;
            self.watch()?;
            match self.replies.remove(&id) {
                Some(Ok(Reply::Volumes(volumes))) => break volumes,
                Some(Err(error)) if self.atlas.is_beyond() => {
                    self.refused = Some(error);
                    return Ok(true);
                }
                Some(other) => return Err(Violation(format!("ListVolumes was answered with {other:?}"))),
                None => {}
            }
            if step == Step::Crash {
                self.machine.coverage.count("crashes during recovery");
                return Ok(false);
            }
            if self.machine.now >= deadline {
                return Err(Violation("no answer to ListVolumes".into()));
            }
        };
        let missing: Vec<String> = self
            .fates
            .keys()
            .filter(|name| !volumes.iter().any(|status| status.spec.name == **name))
            .cloned()
            .collect();
        for name in missing {
            match self.fates.get(&name) {
                Some((Fate::Exists, _)) if !self.atlas.is_beyond() => {
                    return Err(Violation(format!("volume {name} is gone")));
                }
                _ => {
                    self.forget(&name);
                }
            }
        }
        // Snapshots before clones: a clone begins with the known content of its snapshot.
        for status in volumes.iter().filter(|status| status.snapshot).chain(volumes.iter().filter(|s| !s.snapshot)) {
            self.adopt(status)?;
        }
        self.hosts.values_mut().for_each(|host| drop(host.oracle.end_snapshot("")));
        Ok(true)
    }

    /// Reads every volume completely, through the oracle.
    pub fn look_at_everything(&mut self) -> Result<WaitOutcome<()>, Violation> {
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        self.hosts.values_mut().for_each(|host| host.paused = true);
        for name in &names {
            if let WaitOutcome::Crashed = self.drain_host(name)? {
                return Ok(WaitOutcome::Crashed);
            }
            let Some(size) = self.hosts.get(name).map(|host| host.spec.size.0) else { continue };
            let mut at = 0;
            while at < size {
                let length = (size - at).min(256 << 10);
                self.tags += 1;
                let Some(host) = self.hosts.get_mut(name) else { break };
                let request = host.look(self.machine.now, self.tags, at, length);
                let id = host.id;
                self.machine.submit(id, request);
                at += length;
            }
            let drained = self.drain_host(name)?;
            if let WaitOutcome::Crashed = drained {
                return Ok(WaitOutcome::Crashed);
            }
        }
        self.machine.coverage.add("volumes read whole", names.len() as u64);
        Ok(WaitOutcome::Reached(()))
    }

    pub fn resume_hosts(&mut self) {
        self.hosts.values_mut().for_each(|host| host.paused = false);
    }

    pub fn pause_hosts(&mut self) {
        self.hosts.values_mut().for_each(|host| host.paused = true);
    }

    /// The driver index of a present drive's bay, by name, in the order it was attached.
    pub fn geometry(&self) -> Geometry {
        self.machine
            .bays
            .first()
            .map_or(Geometry { size: self.setup.drive_size, block: self.setup.drive_block }, |bay| bay.drive.geometry())
    }
}
