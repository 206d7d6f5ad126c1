//! A pool of Stele on modelled drives: the array's own code, driven by virtual time.
//!
//! Everything that the pool decides (placement, log, cache, destage, tables, checkpoints) is the
//! code that serves real drives. Only two things are made up: what the drives take, and the content
//! of what is written: a word, repeated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use stele_array::{
    Action, Attached, Command, CreateOptions, DigestUnit, Event, OpenOptions, Pool, PoolStatus, Reply, State,
    VolumeSpec, WriteMode,
};
use stele_codes::Code;
use stele_ground::{Bytes, Dice, DriveId, Duration, Instant, PoolId, VolumeId};
use stele_media::simulated::HardDriveSpec;
use stele_media::{Buffer, Op, Priority, Request, Shared};

use crate::closed::SimulatedTarget;
use crate::medium::{BAND, BlockMap, Medium, MediumSpec};
use crate::workload::Access;

/// What the pool is made of.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    pub drives: usize,
    pub code: Code,
    pub strip: Bytes,
    /// Share of each drive's capacity that is used, parity included.
    pub stroke: f64,
    pub drive: HardDriveSpec,
    /// One part in so many of working set and caches is simulated.
    pub sample: u64,
    /// Bytes of the log on each of its drives. All of it is simulated. A checkpoint takes as long
    /// whatever the sample, and a log of a part of the size would be full before one ends, so that
    /// hosts wait and come in bursts.
    pub log: Bytes,
    pub seed: u64,
}

const VOLUME: &str = "measured";
/// Labels lie before the log.
const LOG_AT: u64 = stele_array::label::LOG_AT;
/// Every page of the tables speaks of more stripes than this.
const STRIPES_OF_A_PAGE: usize = 4;
/// Whole stripes written at once when the volume is filled.
const FILLING: usize = 32;
/// A host's operation is answered within this, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(600);

/// A pool whose volume is full, at rest: where every case begins.
pub struct Filled {
    spec: PoolSpec,
    contents: Vec<BlockMap>,
    volume: VolumeId,
    size: u64,
}

/// When, in which order among equals, on which drive, under which key, and whether the drive's
/// mechanics served it.
type Due = (Instant, u64, usize, usize, bool);

/// A pool at work.
pub struct PoolTarget {
    pool: Pool,
    media: Vec<Medium>,
    volume: VolumeId,
    size: u64,
    zeros: Shared,
    /// Writes that hosts have made.
    written: u64,
    now: Instant,
    /// Events were handed to the pool that it has not looked at.
    told: bool,
    /// Drives answer at once: while the volume is filled and tables are fetched.
    at_once: bool,
    due: BinaryHeap<Reverse<Due>>,
    sequence: u64,
    actions: Vec<Action>,
    answers: Vec<(u64, Result<(), String>)>,
    replies: Vec<Result<Reply, String>>,
}

impl PoolSpec {
    /// Of what may be dirty as much of it is simulated as of the working set.
    fn dirty_limit(&self) -> u64 {
        (self.log.0 / self.sample).next_multiple_of(1 << 20).max(8 << 20) / 8
    }

    /// `log_in_memory`: the log lies in memory that survives power cuts, else on the drives.
    fn medium(&self, log_in_memory: bool) -> MediumSpec {
        let end = LOG_AT + self.log.0;
        MediumSpec {
            drive: self.drive,
            sample: self.sample,
            spread_from: end.next_multiple_of(BAND),
            memory: if log_in_memory { LOG_AT..end } else { 0..0 },
        }
    }

    /// Bytes of the volume: its strips, parity included, take the stroke of every drive.
    fn volume_size(&self) -> u64 {
        let used = (self.drive.sectors * 512) as f64 * self.stroke / self.sample as f64 * self.drives as f64;
        let stripe = self.strip.0 * self.code.width() as u64;
        (used as u64 / stripe).max(1) * self.strip.0 * self.code.data() as u64
    }

    fn open(&self) -> OpenOptions {
        OpenOptions {
            // All tables fit; blocks that were read are not kept, as the published machine read
            // without a cache.
            table_cache: Bytes(1 << 30),
            block_cache: Bytes(1 << 20),
            dirty_limit: Bytes(self.dirty_limit()),
            flush_high: 80,
            flush_low: 60,
            seed: self.seed,
            ..OpenOptions::default()
        }
    }

    fn attached(&self, media: &[Medium]) -> Vec<Attached> {
        let attach = |(at, medium): (usize, &Medium)| Attached {
            geometry: medium.geometry(),
            name: format!("drive-{at}"),
            // One failure domain, as for the published arrays: 20 drives in shelves of 14 cannot
            // spread evenly.
            enclosure: 0,
        };
        media.iter().enumerate().map(attach).collect()
    }

    fn media(&self, contents: Vec<BlockMap>, log_in_memory: bool) -> Vec<Medium> {
        let mut dice = Dice::new(self.seed ^ 0xD71E);
        contents.into_iter().map(|content| Medium::new(self.medium(log_in_memory), content, &mut dice)).collect()
    }

    /// Makes the pool and writes its volume once from end to end.
    pub fn fill(&self) -> Result<Filled, String> {
        let media = self.media(vec![BlockMap::new(); self.drives], true);
        let identities = (0..self.drives).map(|at| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(at as u64 + 1).to_le_bytes());
            DriveId(id)
        });
        let create = CreateOptions {
            pool: PoolId([0x1A; 16]),
            name: "laboratory".into(),
            drives: identities.collect(),
            seed: self.seed,
            log: Some(self.log),
            spare_drives: Some(1),
            created: 0,
            shard: Default::default(),
        };
        let pool = Pool::create(create, self.open(), self.attached(&media), Instant::default());
        let mut target = PoolTarget::around(pool, media, self.strip.0 as usize * self.code.data());
        target.at_once = true;
        target.start()?;
        let spec = VolumeSpec {
            name: VOLUME.into(),
            code: self.code,
            size: Bytes(self.volume_size()),
            strip: self.strip,
            block: Bytes(512),
            digest: DigestUnit::Block,
            mode: WriteMode::WriteBack,
            fully_allocated: false,
            spread: false,
            owner: None,
        };
        let Reply::Volume(volume) = target.command(Command::CreateVolume(spec))? else {
            return Err("the pool answered otherwise than with a volume".into());
        };
        (target.volume, target.size) = (volume.id, volume.spec.size.0);
        let stripe = self.strip.0 * self.code.data() as u64;
        let writes = (0..target.size / stripe).map(|number| Access {
            target: 0,
            at: number * stripe,
            length: stripe,
            write: true,
        });
        target.carry_out(writes)?;
        target.command(Command::Close)?;
        let (volume, size) = (target.volume, target.size);
        let contents = target.media.into_iter().map(Medium::into_content).collect();
        Ok(Filled { spec: self.clone(), contents, volume, size })
    }
}

impl Filled {
    /// Bytes that may be dirty before writers wait.
    pub fn dirty_limit(&self) -> u64 {
        self.spec.open().dirty_limit.0
    }

    /// Opens the pool, as it was filled, with its tables in memory.
    pub fn open(&self, log_in_memory: bool) -> Result<PoolTarget, String> {
        let spec = &self.spec;
        let media = spec.media(self.contents.clone(), log_in_memory);
        let pool = Pool::open(spec.open(), spec.attached(&media), Instant::default());
        let stripe = spec.strip.0 * spec.code.data() as u64;
        let mut target = PoolTarget::around(pool, media, stripe as usize);
        (target.volume, target.size) = (self.volume, self.size);
        target.at_once = true;
        target.start()?;
        let reads = (0..target.size / stripe).step_by(STRIPES_OF_A_PAGE).map(|number| Access {
            target: 0,
            at: number * stripe,
            length: 512,
            write: false,
        });
        target.carry_out(reads)?;
        target.at_once = false;
        Ok(target)
    }
}

impl PoolTarget {
    fn around(pool: Pool, media: Vec<Medium>, largest: usize) -> PoolTarget {
        PoolTarget {
            pool,
            media,
            volume: VolumeId(0),
            size: 0,
            zeros: Buffer::zeroed(largest.max(1 << 20)).freeze(),
            written: 0,
            now: Instant::default(),
            told: true,
            at_once: false,
            due: BinaryHeap::new(),
            sequence: 0,
            actions: Vec::new(),
            answers: Vec::new(),
            replies: Vec::new(),
        }
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// The drives' commands and bytes so far.
    pub fn moved(&self) -> (u64, u64) {
        self.media.iter().fold((0, 0), |(commands, bytes), medium| (commands + medium.commands, bytes + medium.moved))
    }

    fn start(&mut self) -> Result<(), String> {
        self.until(|target| *target.pool.state() != State::Starting)?;
        match self.pool.state() {
            State::Ready { read_only: false } => Ok(()),
            other => Err(format!("the pool did not start: {other:?}")),
        }
    }

    fn until(&mut self, done: impl Fn(&PoolTarget) -> bool) -> Result<(), String> {
        let limit = self.now + PATIENCE;
        while !done(self) {
            let next = self.next_event().ok_or("the pool waits for nothing")?;
            if next > limit {
                return Err(format!("the pool did not answer within {PATIENCE} of virtual time"));
            }
            self.step(self.now.max(next));
        }
        Ok(())
    }

    /// A command to the pool, waited for.
    pub fn command(&mut self, command: Command) -> Result<Reply, String> {
        self.pool.event(Event::Command { id: 0, command });
        self.told = true;
        self.until(|target| !target.replies.is_empty())?;
        self.replies.pop().unwrap_or_else(|| Err("no reply".into()))
    }

    /// Says when writes are acknowledged from here on.
    pub fn acknowledge(&mut self, mode: WriteMode) -> Result<(), String> {
        self.command(Command::SetVolume { name: VOLUME.into(), read_ahead: None, mode: Some(mode) }).map(drop)
    }

    pub fn status(&mut self) -> Result<PoolStatus, String> {
        match self.command(Command::Status)? {
            Reply::Status(status) => Ok(*status),
            other => Err(format!("the pool answered otherwise than with its status: {other:?}")),
        }
    }

    fn carry_out(&mut self, accesses: impl Iterator<Item = Access>) -> Result<(), String> {
        let mut flying = 0;
        for (tag, access) in accesses.enumerate() {
            self.submit(self.now, tag as u64, access)?;
            flying += 1;
            while flying >= FILLING {
                self.until(|target| !target.answers.is_empty())?;
                flying -= self.take_answers()?.len();
            }
        }
        while flying > 0 {
            self.until(|target| !target.answers.is_empty())?;
            flying -= self.take_answers()?.len();
        }
        Ok(())
    }

    fn take_answers(&mut self) -> Result<Vec<u64>, String> {
        self.answers.drain(..).map(|(tag, result)| result.map(|()| tag)).collect()
    }

    /// What a write brings: other bytes each time, but for the filling.
    fn content(&mut self, length: usize) -> Shared {
        if self.at_once {
            return self.zeros.slice(..length);
        }
        self.written += 1;
        let word = self.written.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        let mut buffer = Buffer::stale(length);
        buffer.chunks_mut(8).for_each(|place| place.copy_from_slice(&word[..place.len()]));
        buffer.freeze()
    }

    /// Hands the pool what is due by `now` and carries out what it wants.
    fn step(&mut self, now: Instant) {
        self.now = now;
        while let Some(Reverse((at, _, drive, key, mechanical))) = self.due.peek().copied() {
            if at > now {
                break;
            }
            self.due.pop();
            if let Some(completion) = self.media[drive].finish(key, mechanical) {
                self.pool.event(Event::Completed { drive, completion });
            }
            self.begin(drive);
        }
        self.pool.run(now);
        self.told = false;
        let mut actions = std::mem::take(&mut self.actions);
        self.pool.actions(&mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Drive { drive, request } => match self.media[drive].submit(now, request, self.at_once) {
                    Some((key, at)) => self.fall_due(at, drive, key, false),
                    None => self.begin(drive),
                },
                Action::Finished { completion, .. } => {
                    let result = completion.result.map_err(|error| error.to_string());
                    self.answers.push((completion.tag, result));
                }
                Action::Reply { reply, .. } => self.replies.push(reply.map_err(|error| error.to_string())),
                Action::Alarm(_) | Action::Ordered { .. } | Action::Resized { .. } => {}
            }
        }
        self.actions = actions;
    }

    fn begin(&mut self, drive: usize) {
        while let Some((key, at)) = self.media[drive].begin(self.now) {
            self.fall_due(at, drive, key, true);
        }
    }

    fn fall_due(&mut self, at: Instant, drive: usize, key: usize, mechanical: bool) {
        self.sequence += 1;
        self.due.push(Reverse((at, self.sequence, drive, key, mechanical)));
    }
}

impl SimulatedTarget for PoolTarget {
    fn sizes(&self) -> Vec<u64> {
        vec![self.size]
    }

    fn submit(&mut self, now: Instant, tag: u64, access: Access) -> Result<(), String> {
        self.now = self.now.max(now);
        let length = access.length as usize;
        let op = match access.write {
            true => Op::Write { at: access.at, data: vec![self.content(length)], fua: false },
            false => Op::Read { at: access.at, buffer: Buffer::stale(length) },
        };
        let request = Request { tag, op, priority: Priority::Host, deadline: None };
        self.pool.event(Event::Submit { volume: self.volume, request });
        self.told = true;
        Ok(())
    }

    fn drives_worked(&self) -> Vec<f64> {
        self.media.iter().map(|medium| medium.worked().as_secs_f64()).collect()
    }

    fn next_event(&self) -> Option<Instant> {
        if self.told || !self.answers.is_empty() {
            return Some(self.now);
        }
        let due = self.due.peek().map(|Reverse((at, ..))| *at);
        due.into_iter().chain(self.pool.next_wake()).min()
    }

    fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String> {
        self.step(now);
        finished.extend(self.take_answers()?);
        Ok(())
    }
}
