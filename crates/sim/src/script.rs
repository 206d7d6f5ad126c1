//! A history in named steps: a script names every event on a pool of simulated drives, and leaves
//! nothing to dice.
//!
//! A seed that found a defect no longer tests it once operations come in another order. A script
//! names the decisive events: "the power goes while the labels are written, and only drive 0 keeps
//! its cache". If the decisive place is unknown, the caller tries all places (see [`Trap`]).

use std::collections::BTreeMap;

use stele_array::{
    ArrayError, Command, CreateOptions, DigestUnit, DriveHealth, DriveStatus, OpenOptions, PoolStatus, Reply, State,
    VolumeSpec, WriteMode,
};
use stele_ground::{Bytes, Dice, Duration, Instant, KIB, MIB, PoolId, VolumeId};
use stele_media::faulty::FaultPlan;
use stele_media::simulated::{Plain, SimulatedDrive};
use stele_media::{Buffer, Geometry, MediaFault, Op, Priority, Request};

use crate::machine::{CrashKind, Happening, Landmark, Machine, Step, Tear, Trap};
use crate::oracle::{Began, Oracle, Violation, WriteOutcome, paint};
use crate::system::System;
use crate::trace::Trace;

/// Time limit of every step, in virtual time.
const PATIENCE: Duration = Duration::from_secs(120);

const BLOCK: u64 = 4096;

/// The result of a step that a power cut may have interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Done,
    Cut,
}

/// A pool with one volume, and the known content of the volume.
pub struct Script<S> {
    pub machine: Machine<S>,
    oracle: Oracle,
    volume: VolumeId,
    flying: BTreeMap<u64, (u64, u64, Began)>,
    replies: BTreeMap<u64, Result<Reply, ArrayError>>,
    open: OpenOptions,
    dice: Dice,
    next: u64,
}

impl<S: System> Script<S> {
    /// A pool with a drive in each named enclosure, and one volume of this code, completely
    /// written.
    pub fn new(enclosures: &[u32], code: &str, seed: u64) -> Result<Script<S>, Violation> {
        let mut machine = Machine::new(Trace::new(crate::trace::TAIL));
        for enclosure in enclosures {
            let drive = blank(machine.bays.len());
            machine.add_bay(drive, &FaultPlan::new(0), *enclosure);
        }
        let size = MIB;
        let mut script = Script {
            machine,
            oracle: Oracle::new("script", size, BLOCK as usize),
            volume: VolumeId(0),
            flying: BTreeMap::new(),
            replies: BTreeMap::new(),
            open: OpenOptions { rebuild_after: Duration::from_secs(24 * 3600), ..OpenOptions::default() },
            dice: Dice::new(seed),
            next: 1,
        };
        let options = CreateOptions {
            pool: PoolId([0x5C; 16]),
            name: "script".into(),
            drives: script.machine.bays.iter().map(|bay| bay.identity).collect(),
            seed,
            log: Some(Bytes(4 * MIB)),
            spare_drives: None,
            created: 0,
            shard: Default::default(),
        };
        let order: Vec<usize> = (0..enclosures.len()).collect();
        script.machine.create(options, script.open.clone(), &order);
        script.until_open()?;
        let spec = VolumeSpec {
            name: "script".into(),
            code: code.parse().map_err(|error| Violation(format!("{error}")))?,
            size: Bytes(size),
            strip: Bytes(16 * KIB),
            block: Bytes(BLOCK),
            digest: DigestUnit::Block,
            mode: WriteMode::WriteBack,
            fully_allocated: false,
            spread: false,
            owner: None,
        };
        match script.command(Command::CreateVolume(spec))? {
            Some(Ok(Reply::Volume(status))) => script.volume = status.id,
            other => return Err(Violation(format!("no volume: {other:?}"))),
        }
        script.write(0, size)?;
        script.checkpoint()?;
        Ok(script)
    }

    /// Processes one event. Returns `Cut` when the fuse has run out.
    fn step(&mut self) -> Result<End, Violation> {
        self.step_until(self.machine.now + PATIENCE)
    }

    fn step_until(&mut self, limit: Instant) -> Result<End, Violation> {
        let step = self.machine.step(limit);
        while let Some(happening) = self.machine.happenings.pop_front() {
            match happening {
                Happening::Reply { id, reply } => drop(self.replies.insert(id, reply)),
                Happening::Finished { completion, .. } => {
                    let Some((at, length, began)) = self.flying.remove(&completion.tag) else { continue };
                    match (completion.op, completion.result) {
                        (Op::Read { buffer, .. }, Ok(())) => self.oracle.end_read(at, &buffer, began)?,
                        (_, Ok(())) => self.oracle.end_write(at, length, began, WriteOutcome::Acknowledged),
                        (_, Err(error)) => return Err(Violation(format!("{length} bytes at {at}: {error}"))),
                    }
                }
                _ => {}
            }
        }
        Ok(if step == Step::Crash { End::Cut } else { End::Done })
    }

    fn until(&mut self, what: &str, done: impl Fn(&Script<S>) -> bool) -> Result<End, Violation> {
        let deadline = self.machine.now + PATIENCE;
        while !done(self) {
            if self.machine.now >= deadline {
                return Err(Violation(format!("{what}: takes too long")));
            }
            if self.step()? == End::Cut {
                return Ok(End::Cut);
            }
        }
        Ok(End::Done)
    }

    fn until_open(&mut self) -> Result<End, Violation> {
        let end = self.until("opening", |script| script.machine.state() != State::Starting)?;
        match (end, self.machine.state()) {
            (End::Done, State::Ready { read_only: false }) | (End::Cut, _) => Ok(end),
            (_, state) => Err(Violation(format!("the pool does not open: {state:?}"))),
        }
    }

    /// Returns `None` if the power went before the answer.
    pub fn command(&mut self, command: Command) -> Result<Option<Result<Reply, ArrayError>>, Violation> {
        let id = self.next;
        self.next += 1;
        let what = format!("{command:?}");
        self.machine.command(id, command);
        self.until(&what, |script| script.replies.contains_key(&id))?;
        Ok(self.replies.remove(&id))
    }

    /// A write that waits for its acknowledgement.
    pub fn write(&mut self, at: u64, length: u64) -> Result<End, Violation> {
        self.begin_write(at, length);
        self.until_answered()
    }

    /// Waits until every operation begun has been answered.
    pub fn until_answered(&mut self) -> Result<End, Violation> {
        self.until("a write", |script| script.flying.is_empty())
    }

    /// Processes this many events.
    pub fn steps(&mut self, count: u64) -> Result<(), Violation> {
        (0..count).try_for_each(|_| self.step().map(drop))
    }

    pub fn begin_write(&mut self, at: u64, length: u64) {
        let tag = self.next;
        self.next += 1;
        let mut bytes = Buffer::zeroed(length as usize);
        paint(&mut bytes, at / BLOCK, BLOCK as usize, tag);
        self.flying.insert(tag, (at, length, self.oracle.begin_write(at, length, tag)));
        let op = Op::Write { at, data: vec![bytes.freeze()], fua: false };
        self.machine.submit(self.volume, Request { tag, op, priority: Priority::Host, deadline: None });
    }

    /// Reads everything and compares it with the acknowledged writes.
    pub fn look(&mut self) -> Result<End, Violation> {
        let size = self.oracle.size();
        for at in (0..size).step_by(64 * KIB as usize) {
            let tag = self.next;
            self.next += 1;
            self.flying.insert(tag, (at, 64 * KIB, self.oracle.begin_read()));
            let op = Op::Read { at, buffer: Buffer::zeroed(64 * KIB as usize) };
            self.machine.submit(self.volume, Request { tag, op, priority: Priority::Host, deadline: None });
        }
        self.until("reading everything", |script| script.flying.is_empty())
    }

    pub fn checkpoint(&mut self) -> Result<End, Violation> {
        match self.command(Command::Checkpoint)? {
            Some(Ok(_)) => Ok(End::Done),
            None => Ok(End::Cut),
            Some(Err(error)) => Err(Violation(format!("no checkpoint: {error}"))),
        }
    }

    pub fn status(&mut self) -> Result<PoolStatus, Violation> {
        match self.command(Command::Status)? {
            Some(Ok(Reply::Status(status))) => Ok(*status),
            other => Err(Violation(format!("no status: {other:?}"))),
        }
    }

    /// Advances the time.
    pub fn pass(&mut self, span: Duration) -> Result<End, Violation> {
        let end = self.machine.now + span;
        while self.machine.now < end {
            if self.step_until(end)? == End::Cut {
                return Ok(End::Cut);
            }
        }
        Ok(End::Done)
    }

    /// Runs a scrub; returns the number of damaged units.
    pub fn scrub(&mut self) -> Result<u64, Violation> {
        let before = self.status()?.scrubs_finished;
        self.command(Command::StartScrub)?;
        for _ in 0..600 {
            let status = self.status()?;
            if status.scrubs_finished > before {
                return Ok(status.drives.iter().map(|drive| drive.digest_errors).sum());
            }
            self.pass(Duration::from_millis(100))?;
        }
        Err(Violation("a scrub does not end".into()))
    }

    /// Waits at most a minute until the pool reports every drive as complete.
    pub fn until_whole(&mut self) -> Result<(), Violation> {
        for _ in 0..600 {
            let status = self.status()?;
            let well = |drive: &DriveStatus| matches!(drive.health, DriveHealth::Healthy | DriveHealth::Suspect);
            let still = status.rebuild.is_none() && status.copy_back.is_none();
            if still && status.drives.iter().filter(|drive| drive.index != u32::MAX).all(well) {
                return Ok(());
            }
            self.pass(Duration::from_millis(100))?;
        }
        Err(Violation("not whole after a minute".into()))
    }

    /// The pool must call itself whole, and a scrub must find nothing: no drive lacks data.
    pub fn prove_whole(&mut self) -> Result<(), Violation> {
        self.until_whole()?;
        match self.scrub()? {
            0 => Ok(()),
            stale => Err(Violation(format!("the pool called itself whole, and {stale} units are stale"))),
        }
    }

    /// Cuts the power now; these drives are spared.
    pub fn cut(&mut self, tear: Tear) {
        self.machine.crash_torn(CrashKind::Power, tear, &mut self.dice);
        self.flying.clear();
        self.replies.clear();
        self.oracle.crash();
    }

    /// Cuts the power soon after this many operations on labels, or on anchors.
    pub fn trap(&mut self, at: Landmark, left: u64) {
        self.machine.trap = Some(Trap { at, left, fuse: 1 });
    }

    /// Gives a command, and processes events until this many operations on labels, or on anchors,
    /// began or ended.
    pub fn until_there(&mut self, command: Command, at: Landmark, left: u64) -> Result<(), Violation> {
        self.machine.command(0, command);
        self.machine.trap = Some(Trap { at, left, fuse: u64::MAX });
        self.until("the place", |script| script.machine.trap.is_none())?;
        self.machine.fuse = None;
        Ok(())
    }

    /// Fails the operations under way on a drive; later ones succeed.
    pub fn hiccup(&mut self, bay: usize) {
        self.machine.bays[bay].drive.pull(MediaFault::Damaged);
        self.machine.bays[bay].drive.plug();
    }

    /// Opens the pool on the present drives.
    pub fn open(&mut self) -> Result<End, Violation> {
        let order: Vec<usize> = (0..self.machine.bays.len()).filter(|bay| self.machine.bays[*bay].present).collect();
        let seed = self.dice.roll();
        self.machine.open(OpenOptions { seed, ..self.open.clone() }, &order);
        self.until_open()
    }

    /// Pulls a drive out without a notice: every operation on it fails.
    pub fn pull(&mut self, bay: usize) {
        self.machine.pull(bay, MediaFault::Gone, PATIENCE);
    }

    /// Sets the time after which strips of a missing drive are rebuilt into spare space, from the
    /// next opening on.
    pub fn rebuild_after(&mut self, span: Duration) {
        self.open.rebuild_after = span;
    }

    /// Removes a drive, whether the pool runs or not.
    pub fn take(&mut self, bay: usize) {
        self.machine.detach(bay);
    }

    /// Returns the drive.
    pub fn give(&mut self, bay: usize) {
        self.machine.attach(bay);
    }

    /// Adds empty drives, one after another, each in its own enclosure; they may refuse writes.
    pub fn add(&mut self, count: usize, refuse_writes: bool) -> Result<Option<Result<Reply, ArrayError>>, Violation> {
        let mut drives = Vec::new();
        for _ in 0..count {
            let number = self.machine.bays.len();
            let bay = self.machine.add_bay(blank(number), &FaultPlan::new(0), number as u32);
            self.machine.bays[bay].drive.refuse_writes(refuse_writes);
            let index = self.machine.attach(bay).ok_or_else(|| Violation("no pool runs".into()))?;
            drives.push((index as u32, self.machine.bays[bay].identity));
        }
        self.pass(Duration::from_millis(10))?;
        self.command(Command::AddDrives { drives })
    }
}

fn blank(number: usize) -> SimulatedDrive {
    let geometry = Geometry { size: Bytes(48 * MIB), block: Bytes(BLOCK) };
    SimulatedDrive::new(geometry, Bytes(BLOCK), Box::new(Plain::flash(Dice::new(number as u64))))
}
