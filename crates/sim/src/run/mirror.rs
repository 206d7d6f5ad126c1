//! A simple array to test the world itself. Every write goes to all drives before it is
//! acknowledged, one operation at a time. After a restart the first drive is copied over the
//! others. It survives crashes, and no other fault. Each of its broken variants has one flaw, and
//! the oracle must notice it.

use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;

use stele_array::{
    Action, ArrayError, Attached, Command, CreateOptions, DigestUnit, DriveHealth, DriveStatus, Event, OpenOptions,
    PoolStatus, Reply, State, VolumeSpec, VolumeStatus, WriteMode,
};
use stele_codes::Code;
use stele_ground::{Bytes, Dice, DriveId, Instant, MIB, PoolId, VolumeId};
use stele_media::{Buffer, Completion, Extent, ExtentState, Op, Priority, Request, Shared};

use crate::system::System;

/// The flaw of a variant.
pub trait Flaw: Default {
    /// Whether writes are made durable before they are acknowledged.
    const DURABLE: bool = true;
    /// Whether all drives are written before the acknowledgement.
    const ALL: bool = true;
    /// Whether the replicas are made equal after a restart.
    const RESYNC: bool = true;
    /// Whether operations run one at a time.
    const SERIAL: bool = true;
    /// One read in this many returns the neighbouring block.
    const ASTRAY: u64 = 0;
    /// One answer in this many is lost.
    const SILENT: u64 = 0;
}

const REGION: u64 = 8 * MIB;
const TABLE: u64 = 4096;
const COPY: u64 = 256 << 10;

struct Job {
    origin: Origin,
    /// Waves of drive operations; a wave begins when all operations of the previous one have ended.
    waves: VecDeque<Vec<(usize, Op)>>,
    left: usize,
    read: Option<Buffer>,
    answered: bool,
}

enum Origin {
    Host(VolumeId, u64, Op),
    Table(u64, Reply),
    LoadTable,
    Resync { at: u64 },
}

pub struct Mirror<F> {
    names: Vec<String>,
    state: State,
    volumes: BTreeMap<u32, VolumeSpec>,
    next_volume: u32,
    queue: VecDeque<Job>,
    current: BTreeMap<u64, Job>,
    owners: BTreeMap<(usize, u64), u64>,
    tags: u64,
    out: Vec<Action>,
    dice: Dice,
    scrubs: u64,
    flaw: PhantomData<F>,
}

impl<F: Flaw> Mirror<F> {
    fn new(drives: Vec<Attached>, seed: u64) -> Mirror<F> {
        Mirror {
            names: drives.into_iter().map(|drive| drive.name).collect(),
            state: State::Starting,
            volumes: BTreeMap::new(),
            next_volume: 0,
            queue: VecDeque::new(),
            current: BTreeMap::new(),
            owners: BTreeMap::new(),
            tags: 0,
            out: Vec::new(),
            dice: Dice::new(seed),
            scrubs: 0,
            flaw: PhantomData,
        }
    }

    /// The drive that is the source after a crash, independent of the order.
    fn first(&self) -> usize {
        (0..self.names.len()).min_by_key(|drive| &self.names[*drive]).expect("there are drives")
    }

    fn others(&self) -> Vec<usize> {
        let first = self.first();
        (0..self.names.len()).filter(|drive| *drive != first).collect()
    }

    fn on_all(&self, make: impl Fn() -> Op) -> Vec<(usize, Op)> {
        (0..self.names.len()).map(|drive| (drive, make())).collect()
    }

    fn put(&mut self, origin: Origin, waves: Vec<Vec<(usize, Op)>>) {
        let job = Job { origin, waves: waves.into(), left: 0, read: None, answered: false };
        self.queue.push_back(job);
    }

    fn write_table(&mut self, id: u64, reply: Reply) {
        let page = Buffer::copy_of(&self.table()).freeze();
        let wave = self.on_all(|| Op::Write { at: 0, data: vec![page.clone()], fua: true });
        // The first drive is the source after a crash, so it is written last: its table is then
        // durable on all.
        let (last, rest): (Vec<_>, Vec<_>) = wave.into_iter().partition(|(drive, _)| *drive == self.first());
        self.put(Origin::Table(id, reply), vec![rest, last]);
    }

    fn table(&self) -> Vec<u8> {
        let mut page = vec![0; TABLE as usize];
        let mut cursor = 8;
        page[0] = self.next_volume as u8;
        page[1] = self.volumes.len() as u8;
        for (id, spec) in &self.volumes {
            let flags = [
                *id as u8,
                spec.name.len() as u8,
                spec.code.data() as u8,
                spec.code.tolerates() as u8,
                u8::from(spec.digest == DigestUnit::Strip),
                u8::from(spec.mode == WriteMode::WriteThrough),
                u8::from(spec.fully_allocated),
                0,
            ];
            page[cursor..cursor + 8].copy_from_slice(&flags);
            for (n, number) in [spec.size.0, spec.strip.0, spec.block.0].into_iter().enumerate() {
                page[cursor + 8 + n * 8..cursor + 16 + n * 8].copy_from_slice(&number.to_le_bytes());
            }
            page[cursor + 32..cursor + 32 + spec.name.len()].copy_from_slice(spec.name.as_bytes());
            cursor += 64;
        }
        page
    }

    fn load_table(&mut self, page: &[u8]) {
        self.next_volume = u32::from(page[0]);
        for entry in page[8..].chunks(64).take(usize::from(page[1])) {
            let number = |n: usize| u64::from_le_bytes(entry[8 + n * 8..16 + n * 8].try_into().expect("eight bytes"));
            let spec = VolumeSpec {
                name: String::from_utf8_lossy(&entry[32..32 + usize::from(entry[1])]).into_owned(),
                code: Code::from_parts(entry[2], entry[3]).expect("a code was written"),
                size: Bytes(number(0)),
                strip: Bytes(number(1)),
                block: Bytes(number(2)),
                digest: if entry[4] == 1 { DigestUnit::Strip } else { DigestUnit::Block },
                mode: if entry[5] == 1 { WriteMode::WriteThrough } else { WriteMode::WriteBack },
                fully_allocated: entry[6] == 1,
                spread: false,
                owner: None,
            };
            self.volumes.insert(u32::from(entry[0]), spec);
        }
    }

    fn resync_from(&mut self, at: u64) {
        let end = TABLE + u64::from(self.next_volume) * REGION;
        if !F::RESYNC || at >= end {
            self.state = State::Ready { read_only: false };
            return;
        }
        let buffer = Buffer::zeroed(COPY.min(end - at) as usize);
        let first = self.first();
        self.put(Origin::Resync { at }, vec![vec![(first, Op::Read { at, buffer })], Vec::new()]);
    }

    fn host(&mut self, volume: VolumeId, request: Request) {
        let base = TABLE + u64::from(volume.0) * REGION;
        let fua = F::DURABLE;
        let wave = match &request.op {
            Op::Read { at, buffer } => {
                let astray = if self.dice.one_in(F::ASTRAY) { 4096 } else { 0 };
                let at = base + at + astray;
                let drive = self.dice.below(self.names.len() as u64) as usize;
                vec![(drive, Op::Read { at, buffer: Buffer::zeroed(buffer.len()) })]
            }
            Op::Write { at, data, .. } => self.on_all(|| Op::Write { at: base + at, data: data.clone(), fua }),
            Op::Zero { at, length } | Op::Discard { at, length } => {
                let zeros = Shared::from(vec![0; *length as usize]);
                self.on_all(|| Op::Write { at: base + at, data: vec![zeros.clone()], fua })
            }
            Op::View { at, length, .. } => {
                let buffer = Buffer::zeroed(*length as usize);
                return self.host(volume, Request { op: Op::Read { at: *at, buffer }, ..request });
            }
            Op::Flush | Op::Extents { .. } => Vec::new(),
        };
        self.put(Origin::Host(volume, request.tag, request.op), vec![wave]);
    }

    fn answer(&mut self, job: &mut Job) {
        if job.answered {
            return;
        }
        job.answered = true;
        match &mut job.origin {
            Origin::Host(volume, tag, op) => {
                let mut op = std::mem::replace(op, Op::Flush);
                match &mut op {
                    Op::Read { buffer, .. } => *buffer = job.read.take().expect("a read brings bytes"),
                    Op::Extents { length, extents, .. } => {
                        extents.push(Extent { length: *length, state: ExtentState::Data });
                    }
                    _ => {}
                }
                if !self.dice.one_in(F::SILENT) {
                    let completion = Completion { tag: *tag, op, result: Ok(()) };
                    self.out.push(Action::Finished { volume: *volume, completion });
                }
            }
            Origin::Table(id, reply) => self.out.push(Action::Reply { id: *id, reply: Ok(reply.clone()) }),
            Origin::LoadTable => {
                let page = job.read.take().expect("a read brings bytes");
                self.load_table(&page);
                self.resync_from(TABLE);
            }
            Origin::Resync { at } => self.resync_from(*at + COPY),
        }
    }

    fn advance(&mut self) {
        while self.current.is_empty() || !F::SERIAL {
            let Some(job) = self.queue.pop_front() else { break };
            self.tags += 1;
            let name = self.tags;
            self.current.insert(name, job);
            self.next_wave(name);
        }
    }

    fn next_wave(&mut self, name: u64) {
        loop {
            let Some(job) = self.current.get_mut(&name) else { return };
            let Some(mut wave) = job.waves.pop_front() else {
                let mut job = self.current.remove(&name).expect("it was just there");
                return self.answer(&mut job);
            };
            if let (Origin::Resync { at }, Some(bytes)) = (&job.origin, job.read.take()) {
                let (at, bytes) = (*at, bytes.freeze());
                let others = self.others();
                wave = others
                    .iter()
                    .map(|&drive| (drive, Op::Write { at, data: vec![bytes.clone()], fua: true }))
                    .collect();
            }
            if wave.is_empty() {
                continue;
            }
            if let Some(job) = self.current.get_mut(&name) {
                job.left = wave.len();
            }
            for (drive, op) in wave {
                self.tags += 1;
                self.owners.insert((drive, self.tags), name);
                let request = Request { tag: self.tags, op, priority: Priority::Host, deadline: None };
                self.out.push(Action::Drive { drive, request });
            }
            return;
        }
    }

    fn completed(&mut self, drive: usize, completion: Completion) {
        let name = self.owners.remove(&(drive, completion.tag)).expect("one of ours");
        completion.result.expect("no faults but crashes");
        let Some(job) = self.current.get_mut(&name) else { return };
        job.left -= 1;
        if let Op::Read { buffer, .. } = completion.op {
            job.read = Some(buffer);
        }
        if job.left == 0 {
            return self.next_wave(name);
        }
        if !F::ALL && matches!(job.origin, Origin::Host(..)) {
            let mut job = self.current.remove(&name).expect("it was just there");
            self.answer(&mut job);
        }
    }

    fn command(&mut self, id: u64, command: Command) {
        let reply = match command {
            Command::CreateVolume(spec) if self.next_volume >= 3 || spec.block.0 != 4096 => {
                Err(ArrayError::Full(format!("no room for {}", spec.name)))
            }
            Command::CreateVolume(spec) => {
                let number = self.next_volume;
                self.next_volume += 1;
                self.volumes.insert(number, spec.clone());
                return self.write_table(id, Reply::Volume(volume_status(number, &spec)));
            }
            Command::DeleteVolume { name } => {
                self.volumes.retain(|_, spec| spec.name != name);
                return self.write_table(id, Reply::Done);
            }
            Command::ResizeVolume { name, size } => {
                self.volumes.values_mut().filter(|spec| spec.name == name).for_each(|spec| spec.size = size);
                return self.write_table(id, Reply::Done);
            }
            Command::ListVolumes => {
                Ok(Reply::Volumes(self.volumes.iter().map(|(id, spec)| volume_status(*id, spec)).collect()))
            }
            Command::Status => Ok(Reply::Status(Box::new(self.status()))),
            Command::StartScrub => {
                self.scrubs += 1;
                Ok(Reply::Done)
            }
            Command::Close => {
                self.state = State::Closed;
                Ok(Reply::Done)
            }
            _ => Ok(Reply::Done),
        };
        self.out.push(Action::Reply { id, reply });
    }

    fn status(&self) -> PoolStatus {
        let drives = (0..self.names.len() as u32).map(|index| DriveStatus {
            index,
            attached: Some(index),
            identity: DriveId::default(),
            name: String::new(),
            enclosure: 0,
            health: DriveHealth::Healthy,
            leaving: false,
            size: Bytes(0),
            used: Bytes(0),
            read_errors: 0,
            write_errors: 0,
            digest_errors: 0,
            repaired: 0,
            note: String::new(),
            since: None,
            done: String::new(),
            next: String::new(),
            alarm: None,
        });
        PoolStatus {
            shards: 1,
            pool: PoolId::default(),
            name: String::new(),
            epoch: 0,
            read_only: false,
            loss_accepted: false,
            incomplete: Vec::new(),
            rolling_back: None,
            drives: drives.collect(),
            standing: Vec::new(),
            raw: Bytes(0),
            used: Bytes(0),
            spare: Bytes(0),
            spare_used: Bytes(0),
            log_used: Bytes(0),
            log_size: Bytes(0),
            dirty: Bytes(0),
            rebuild: None,
            copy_back: None,
            scrub: None,
            moving: None,
            moving_put_off: None,
            removed: Vec::new(),
            scrubs_finished: self.scrubs,
            scrub_damage_found: 0,
            scrub_damage_repaired: 0,
            stripes: 0,
            critical_stripes: 0,
            exposed_stripes: 0,
            crowded_stripes: 0,
            scrubs_stopped: 0,
            scrub_trouble: String::new(),
            unreadable_stripes: 0,
            unreadable_known: true,
            stripes_without_spare: 0,
            log_trouble: None,
            codes: Vec::new(),
            lost_stripes: 0,
            rebuilt: 0,
            repaired: 0,
            counters: Vec::new(),
        }
    }
}

fn volume_status(number: u32, spec: &VolumeSpec) -> VolumeStatus {
    VolumeStatus::empty(VolumeId(number), spec.clone())
}

impl<F: Flaw> System for Mirror<F> {
    fn create(_: CreateOptions, open: OpenOptions, drives: Vec<Attached>, _: Instant) -> Mirror<F> {
        let mut mirror = Mirror::new(drives, open.seed);
        mirror.state = State::Ready { read_only: false };
        mirror
    }

    fn open(open: OpenOptions, drives: Vec<Attached>, _: Instant) -> Mirror<F> {
        let mut mirror = Mirror::new(drives, open.seed);
        let first = mirror.first();
        mirror.put(Origin::LoadTable, vec![vec![(first, Op::Read { at: 0, buffer: Buffer::zeroed(4096) })]]);
        mirror
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Submit { volume, request } | Event::SubmitOrdered { volume, request } => self.host(volume, request),
            Event::SubmitAtomic { .. } => panic!("nobody asks a dull array for writes that are whole after a crash"),
            Event::Command { id, command } => self.command(id, command),
            Event::Completed { drive, completion } => self.completed(drive, completion),
            Event::Attach(_) | Event::Detach { .. } => panic!("a dull array keeps its drives"),
        }
    }

    fn run(&mut self, _: Instant) {
        self.advance();
    }

    fn actions(&mut self, out: &mut Vec<Action>) {
        out.append(&mut self.out);
    }

    fn next_wake(&self) -> Option<Instant> {
        None
    }

    fn state(&self) -> &State {
        &self.state
    }
}
