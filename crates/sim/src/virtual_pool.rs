//! A pool on simulated drives in virtual time, without chance, with one request after another. It
//! measures times: of reads beside a slow drive, of the reaction to a drive that does not answer,
//! of a rebuild. Every run gives the same digits.

use std::collections::BTreeMap;

use stele_array::{
    Alarm, Command, CreateOptions, DigestUnit, OpenOptions, Pool, PoolStatus, Reply, State, VolumeSpec, WriteMode,
};
use stele_ground::{BLOCK, Bytes, Dice, Duration, Instant, PoolId, VolumeId};
use stele_media::faulty::FaultPlan;
use stele_media::simulated::{Model, SimulatedDrive};
use stele_media::{Buffer, Geometry, MediaError, Op, Priority, Request};

use crate::machine::{Happening, Machine};
use crate::trace::Trace;

/// The pool and its answers.
pub struct VirtualPool {
    pub machine: Machine<Pool>,
    pub alarms: Vec<Alarm>,
    open: OpenOptions,
    finished: BTreeMap<u64, (Op, Result<(), MediaError>, Instant)>,
    replies: BTreeMap<u64, Result<Reply, String>>,
    next: u64,
}

/// The configuration of a pool.
pub struct PoolPlan<'a> {
    /// The enclosure of each drive.
    pub enclosures: Vec<u32>,
    pub drive_size: Bytes,
    pub log: Bytes,
    pub spare_drives: Option<u32>,
    pub open: OpenOptions,
    pub seed: u64,
    pub model: &'a dyn Fn(Dice) -> Box<dyn Model>,
}

impl VirtualPool {
    pub fn new(plan: PoolPlan<'_>) -> Result<VirtualPool, String> {
        let mut dice = Dice::new(plan.seed);
        let faults = FaultPlan::new(dice.roll());
        let mut machine = Machine::new(Trace::new(0));
        for enclosure in &plan.enclosures {
            let geometry = Geometry { size: plan.drive_size, block: Bytes(BLOCK as u64) };
            let drive = SimulatedDrive::new(geometry, Bytes(BLOCK as u64), (plan.model)(dice.fork()));
            machine.add_bay(drive, &faults, *enclosure);
        }
        let options = CreateOptions {
            pool: PoolId([0xC1; 16]),
            name: "virtual".into(),
            drives: machine.bays.iter().map(|bay| bay.identity).collect(),
            seed: dice.roll(),
            log: Some(plan.log),
            spare_drives: plan.spare_drives,
            created: 0,
            shard: Default::default(),
        };
        let order: Vec<usize> = (0..machine.bays.len()).collect();
        machine.create(options, plan.open.clone(), &order);
        let mut pool = VirtualPool {
            machine,
            alarms: Vec::new(),
            open: plan.open,
            finished: BTreeMap::new(),
            replies: BTreeMap::new(),
            next: 1,
        };
        pool.until_ready()?;
        Ok(pool)
    }

    fn until_ready(&mut self) -> Result<(), String> {
        let limit = self.machine.now + Duration::from_secs(600);
        while self.machine.state() == State::Starting && self.machine.now < limit {
            self.turn(limit);
        }
        match self.machine.state() {
            State::Ready { .. } => Ok(()),
            other => Err(format!("the pool did not open: {other:?}")),
        }
    }

    /// Closes the pool in order, and opens it on the present drives.
    pub fn reopen(&mut self) -> Result<(), String> {
        self.command(Command::Close)?;
        self.machine.put_away();
        let order = self.machine.present(&mut Dice::new(1));
        self.machine.open(self.open.clone(), &order);
        self.until_ready()
    }

    pub fn volume(&mut self, name: &str, code: &str, size: u64, strip: u64) -> Result<VolumeId, String> {
        let spec = VolumeSpec {
            name: name.into(),
            code: code.parse().map_err(|error| format!("{error}"))?,
            size: Bytes(size),
            strip: Bytes(strip),
            block: Bytes(BLOCK as u64),
            digest: DigestUnit::Block,
            mode: WriteMode::WriteBack,
            fully_allocated: false,
            spread: false,
            owner: None,
        };
        match self.command(Command::CreateVolume(spec))? {
            Reply::Volume(volume) => Ok(volume.id),
            other => Err(format!("{other:?}")),
        }
    }

    fn turn(&mut self, limit: Instant) {
        self.machine.step(limit);
        let now = self.machine.now;
        while let Some(happening) = self.machine.happenings.pop_front() {
            match happening {
                Happening::Finished { completion, .. } => {
                    self.finished.insert(completion.tag, (completion.op, completion.result, now));
                }
                Happening::Reply { id, reply } => {
                    self.replies.insert(id, reply.map_err(|error| error.to_string()));
                }
                Happening::Alarm(alarm) => self.alarms.push(alarm),
                Happening::Ordered { .. } | Happening::Lost { .. } => {}
            }
        }
    }

    /// Starts an operation; returns its tag.
    pub fn submit(&mut self, volume: VolumeId, op: Op) -> u64 {
        let tag = self.next;
        self.next += 1;
        self.machine.submit(volume, Request { tag, op, priority: Priority::Host, deadline: None });
        tag
    }

    /// The result of an operation, once it has ended.
    pub fn take(&mut self, tag: u64) -> Option<(Op, Result<(), MediaError>, Instant)> {
        self.finished.remove(&tag)
    }

    /// Waits for an operation, at most this long; returns its answer and its duration.
    pub fn wait(&mut self, tag: u64, most: Duration) -> Option<(Op, Result<(), MediaError>, Duration)> {
        let begun = self.machine.now;
        let limit = begun + most;
        loop {
            if let Some((op, result, at)) = self.take(tag) {
                return Some((op, result, at.since(begun)));
            }
            if self.machine.now >= limit {
                return None;
            }
            self.turn(limit);
        }
    }

    pub fn read(
        &mut self,
        volume: VolumeId,
        at: u64,
        length: usize,
        most: Duration,
    ) -> Option<(Result<Vec<u8>, MediaError>, Duration)> {
        let tag = self.submit(volume, Op::Read { at, buffer: Buffer::zeroed(length) });
        let (op, result, took) = self.wait(tag, most)?;
        let bytes = match op {
            Op::Read { buffer, .. } => buffer.to_vec(),
            _ => Vec::new(),
        };
        Some((result.map(|()| bytes), took))
    }

    pub fn write(
        &mut self,
        volume: VolumeId,
        at: u64,
        data: &[u8],
        most: Duration,
    ) -> Option<(Result<(), MediaError>, Duration)> {
        let op = Op::Write { at, data: vec![Buffer::copy_of(data).freeze()], fua: false };
        let tag = self.submit(volume, op);
        self.wait(tag, most).map(|(_, result, took)| (result, took))
    }

    pub fn command(&mut self, command: Command) -> Result<Reply, String> {
        let id = self.next;
        self.next += 1;
        let what = format!("{command:?}");
        self.machine.command(id, command);
        let limit = self.machine.now + Duration::from_secs(3600);
        while self.machine.now < limit {
            if let Some(reply) = self.replies.remove(&id) {
                return reply;
            }
            self.turn(limit);
        }
        Err(format!("no answer to {what}"))
    }

    pub fn status(&mut self) -> Result<PoolStatus, String> {
        match self.command(Command::Status)? {
            Reply::Status(status) => Ok(*status),
            other => Err(format!("{other:?}")),
        }
    }

    /// Advances the time.
    pub fn pass(&mut self, span: Duration) {
        let limit = self.machine.now + span;
        while self.machine.now < limit {
            self.turn(limit);
        }
    }

    /// Advances the time until the condition holds, with checks at an interval, at most this long;
    /// returns the duration.
    pub fn until(
        &mut self,
        every: Duration,
        most: Duration,
        mut enough: impl FnMut(&PoolStatus) -> bool,
    ) -> Result<Duration, String> {
        let begun = self.machine.now;
        loop {
            if enough(&self.status()?) {
                return Ok(self.machine.now.since(begun));
            }
            if self.machine.now.since(begun) >= most {
                return Err("it did not come to be in time".into());
            }
            self.pass(every);
        }
    }
}
