//! A history in named steps: what befalls a pool of simulated drives is said line by line, and nothing is left to dice.
//!
//! A seed that found a defect stops testing it as soon as operations come in another order. A script says what mattered:
//! "the power goes while the labels are written, and only drive 0 keeps what it had". Where the place matters and is not
//! known, the caller tries all of them (see [`Trap`]).

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
use crate::oracle::{Began, Oracle, Outcome, Violation, paint};
use crate::system::System;
use crate::trace::Trace;

/// Anything takes at most so long, in virtual time.
const PATIENCE: Duration = Duration::from_secs(120);

const BLOCK: u64 = 4096;

/// What came of a step that the power may have cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Done,
    Cut,
}

/// A pool with one volume, and what is known of its content.
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
    /// A pool of as many drives as there are enclosures named, with one volume of this code, written whole.
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

    /// One event. `Cut` when the fuse has burnt down.
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
                        (_, Ok(())) => self.oracle.end_write(at, length, began, Outcome::Acknowledged),
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

    /// None when the power went before the answer.
    pub fn command(&mut self, command: Command) -> Result<Option<Result<Reply, ArrayError>>, Violation> {
        let id = self.next;
        self.next += 1;
        let what = format!("{command:?}");
        self.machine.command(id, command);
        self.until(&what, |script| script.replies.contains_key(&id))?;
        Ok(self.replies.remove(&id))
    }

    /// A write that is acknowledged.
    pub fn write(&mut self, at: u64, length: u64) -> Result<End, Violation> {
        self.begin_write(at, length);
        self.until_answered()
    }

    /// Everything that was begun has been answered.
    pub fn until_answered(&mut self) -> Result<End, Violation> {
        self.until("a write", |script| script.flying.is_empty())
    }

    /// Lets so many things happen.
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

    /// Everything is read, and is what was acknowledged.
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

    /// Lets time go by.
    pub fn pass(&mut self, span: Duration) -> Result<End, Violation> {
        let end = self.machine.now + span;
        while self.machine.now < end {
            if self.step_until(end)? == End::Cut {
                return Ok(End::Cut);
            }
        }
        Ok(End::Done)
    }

    /// Verifies everything: how many units were found damaged.
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

    /// The pool says within a minute that every drive is whole.
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

    /// The pool calls itself whole, and a scrub finds nothing: no drive lacks what it should hold.
    pub fn prove_whole(&mut self) -> Result<(), Violation> {
        self.until_whole()?;
        match self.scrub()? {
            0 => Ok(()),
            stale => Err(Violation(format!("the pool called itself whole, and {stale} units are stale"))),
        }
    }

    /// The power goes now, and these drives are spared.
    pub fn cut(&mut self, tear: Tear) {
        self.machine.crash_torn(CrashKind::Power, tear, &mut self.dice);
        self.flying.clear();
        self.replies.clear();
        self.oracle.crash();
    }

    /// The power will go soon after so many operations on labels, or on anchors.
    pub fn trap(&mut self, at: Landmark, left: u64) {
        self.machine.trap = Some(Trap { at, left, fuse: 1 });
    }

    /// Gives a command, and lets things happen until so many operations on labels, or on anchors, were begun or ended.
    pub fn until_there(&mut self, command: Command, at: Landmark, left: u64) -> Result<(), Violation> {
        self.machine.command(0, command);
        self.machine.trap = Some(Trap { at, left, fuse: u64::MAX });
        self.until("the place", |script| script.machine.trap.is_none())?;
        self.machine.fuse = None;
        Ok(())
    }

    /// What is under way on a drive fails, and what comes later does not.
    pub fn hiccup(&mut self, bay: usize) {
        self.machine.bays[bay].drive.pull(MediaFault::Damaged);
        self.machine.bays[bay].drive.plug();
    }

    /// Opens the pool on the drives that are there.
    pub fn open(&mut self) -> Result<End, Violation> {
        let order: Vec<usize> = (0..self.machine.bays.len()).filter(|bay| self.machine.bays[*bay].present).collect();
        let seed = self.dice.roll();
        self.machine.open(OpenOptions { seed, ..self.open.clone() }, &order);
        self.until_open()
    }

    /// A drive is pulled out, and nobody says so: whatever is asked of it fails.
    pub fn pull(&mut self, bay: usize) {
        self.machine.pull(bay, MediaFault::Gone, PATIENCE);
    }

    /// Strips of a drive that is away go to spare space after so long; from the next opening on.
    pub fn rebuild_after(&mut self, span: Duration) {
        self.open.rebuild_after = span;
    }

    /// Takes a drive away, whether the pool runs or not.
    pub fn take(&mut self, bay: usize) {
        self.machine.detach(bay);
    }

    /// It is there again.
    pub fn give(&mut self, bay: usize) {
        self.machine.attach(bay);
    }

    /// Empty drives, one after another, of an enclosure each; perhaps such as take no writes. They are to be added.
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
