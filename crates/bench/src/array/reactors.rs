//! One reactor thread beside two, on files in memory. The load runs on the reactors themselves, as
//! sessions of hosts do: each keeps requests under way to places all over the volume, so with two
//! shards every other request goes to the other thread.
//!
//! What the machine gives to two threads at best is measured in the same run: two pools that have
//! nothing in common, each with one reactor and half of the load.

use std::os::fd::RawFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant as WallInstant;

use stele_array::server::{DrivePlace, NewDrives, PoolServer, ServerOptions};
use stele_array::{Command, CreateOptions, DigestUnit, OpenOptions, Reply, Shard, VolumeSpec, WriteMode};
use stele_ground::{Bytes, Dice, Instant, PoolId};
use stele_media::system::EventFd;
use stele_media::{Buffer, Handle, Interest, MediaError, Op, Priority, ReactorSession, Shared, Space, Waker};

use crate::harness::{Bench, Unit};

const MIB: u64 = 1 << 20;
const DRIVES: usize = 6;
const DRIVE_SIZE: u64 = 384 * MIB;
const VOLUME: u64 = 384 * MIB;
/// Bytes that are read from the cache.
const WARM: u64 = 32 * MIB;
/// Requests under way for each session.
const DEPTH: usize = 64;

/// A pool on files in memory, removed when dropped.
struct Pool {
    directory: String,
    server: Option<PoolServer>,
    volume: Option<Handle>,
}

impl Pool {
    fn new(name: &str, shards: u16, code: &str, data: &Shared) -> Result<Pool, String> {
        let directory = format!("/dev/shm/stele-bench-{}-{name}", std::process::id());
        std::fs::create_dir(&directory).map_err(|error| format!("{directory}: {error}"))?;
        let mut pool = Pool { directory, server: None, volume: None };
        let place = |at| DrivePlace::new(format!("{}/{at}", pool.directory), at);
        let places: Vec<DrivePlace> = (0..DRIVES as u32).map(place).collect();
        let create = CreateOptions {
            pool: PoolId([5; 16]),
            name: name.to_owned(),
            drives: Vec::new(),
            seed: 1,
            log: Some(Bytes(64 * MIB / u64::from(shards))),
            spare_drives: Some(0),
            created: 0,
            shard: Shard { index: 0, count: shards },
        };
        let new = NewDrives { size: Bytes(DRIVE_SIZE), space: Space::Written };
        let server = PoolServer::create(&places, Some(new), create, OpenOptions::default(), ServerOptions::default())
            .map_err(|error| error.to_string())?;
        let spec = VolumeSpec {
            name: "v".into(),
            code: code.parse().map_err(|error| format!("{error}"))?,
            size: Bytes(VOLUME),
            strip: Bytes(64 << 10),
            block: Bytes(4096),
            digest: DigestUnit::Block,
            mode: WriteMode::WriteBack,
            fully_allocated: false,
            spread: true,
            owner: None,
        };
        let made = server.command_blocking(Command::CreateVolume(spec)).map_err(|error| error.to_string())?;
        let Reply::Volume(status) = made else { return Err(format!("{made:?}")) };
        pool.volume = Some(server.volume_of(&status));
        pool.server = Some(server);
        let (filling, warming) = (data.clone(), |number: u64| number % (WARM / 4096) * 4096);
        run(&[&pool], VOLUME / MIB, &(Arc::new(move |number, _: &mut Dice, _| stream(&filling, number)) as Make))?;
        run(&[&pool], WARM / 4096, &(Arc::new(move |number, _: &mut Dice, old| read(warming(number), old)) as Make))?;
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.volume = None;
        self.server = None;
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

fn stream(data: &Shared, number: u64) -> Op {
    let from = (number % 16 * MIB) as usize;
    Op::Write { at: number % (VOLUME / MIB) * MIB, data: vec![data.slice(from..from + MIB as usize)], fua: false }
}

/// Into the buffer of a request before.
fn read(at: u64, old: Option<Op>) -> Op {
    match old {
        Some(Op::Read { buffer, .. }) => Op::Read { at, buffer },
        _ => Op::Read { at, buffer: Buffer::zeroed(4096) },
    }
}

/// Makes a request, given its number and one that has finished.
type Make = Arc<dyn Fn(u64, &mut Dice, Option<Op>) -> Op + Send + Sync>;

type Answered = (Op, Result<(), MediaError>);

/// A host on a reactor thread: keeps requests under way until there are no more.
struct Session {
    bell: EventFd,
    volume: Handle,
    make: Make,
    dice: Dice,
    /// The next request, and the one behind the last.
    next: u64,
    end: u64,
    under_way: usize,
    finished: Arc<Mutex<Vec<Answered>>>,
    taken: Vec<Answered>,
    waker: Option<Waker>,
    done: Sender<Result<(), String>>,
}

impl ReactorSession for Session {
    fn descriptor(&self) -> RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.bell)
    }

    fn start(&mut self, waker: Waker) {
        self.waker = Some(waker);
    }

    fn turn(&mut self, _now: Instant) -> Interest {
        std::mem::swap(&mut self.taken, &mut self.finished.lock().unwrap_or_else(PoisonError::into_inner));
        self.under_way -= self.taken.len();
        if let Some(Err(failure)) = self.taken.iter().map(|(_, result)| result).find(|result| result.is_err()) {
            drop(self.done.send(Err(failure.to_string())));
            return Interest { end: true, ..Interest::default() };
        }
        while self.under_way < DEPTH && self.next < self.end {
            let old = self.taken.pop().map(|(op, _)| op);
            let op = (self.make)(self.next, &mut self.dice, old);
            self.next += 1;
            self.under_way += 1;
            let (finished, waker) = (Arc::clone(&self.finished), self.waker.clone());
            let answer = Box::new(move |op, result| {
                finished.lock().unwrap_or_else(PoisonError::into_inner).push((op, result));
                waker.iter().for_each(Waker::wake);
            });
            self.volume.submit(op, Priority::Host, answer);
        }
        self.taken.clear();
        if self.under_way > 0 {
            return Interest::default();
        }
        drop(self.done.send(Ok(())));
        Interest { end: true, ..Interest::default() }
    }
}

/// Two sessions carry out `count` requests: one on each reactor where there are two. Returns the
/// seconds that it took.
fn run(pools: &[&Pool], count: u64, make: &Make) -> Result<f64, String> {
    const SESSIONS: u64 = 2;
    let mut dice = Dice::new(3);
    let (sender, receiver) = channel();
    let begin = WallInstant::now();
    for lane in 0..SESSIONS {
        let pool = pools[lane as usize % pools.len()];
        let (Some(server), Some(volume)) = (&pool.server, &pool.volume) else { return Err("no pool".into()) };
        server.serve(Box::new(Session {
            bell: EventFd::new().map_err(|error| error.to_string())?,
            volume: volume.clone(),
            make: Arc::clone(make),
            dice: dice.fork(),
            next: count * lane / SESSIONS,
            end: count * (lane + 1) / SESSIONS,
            under_way: 0,
            finished: Arc::default(),
            taken: Vec::new(),
            waker: None,
            done: sender.clone(),
        }));
    }
    for _ in 0..SESSIONS {
        receiver.recv().map_err(|error| error.to_string())??;
    }
    Ok(begin.elapsed().as_secs_f64())
}

pub fn cases(bench: &mut Bench, data: &Shared) -> Result<(), String> {
    for code in ["mirror-2", "4+2"] {
        let names = ["cached read 4 KiB", "random write 4 KiB", "sequential write 1 MiB"];
        let name = |what: &str| format!("{code} {what}, 2 reactors");
        let apart = |what: &str| format!("{code} {what}, 2 pools apart");
        if !names.iter().any(|what| bench.wants(&name(what)) || bench.wants(&apart(what))) {
            continue;
        }
        let one = Pool::new("one", 1, code, data)?;
        let two = Pool::new("two", 2, code, data)?;
        let other = Pool::new("other", 1, code, data)?;
        let (blocks, long) = (data.clone(), data.clone());
        let write = move |number: u64, dice: &mut Dice, _| {
            let from = (number % 4096 * 4096) as usize;
            Op::Write { at: dice.below(VOLUME / 4096) * 4096, data: vec![blocks.slice(from..from + 4096)], fua: false }
        };
        let kinds: [(&str, &str, u64, f64, Make); 3] = [
            (
                names[0],
                "reads/s",
                1_000_000,
                1.0,
                Arc::new(|_, dice: &mut Dice, old| read(dice.below(WARM / 4096) * 4096, old)),
            ),
            (names[1], "writes/s", 100_000, 1.0, Arc::new(write)),
            (
                names[2],
                "MB/s",
                VOLUME / MIB,
                MIB as f64 / 1e6,
                Arc::new(move |number, _: &mut Dice, _| stream(&long, number)),
            ),
        ];
        for (what, unit, count, each, make) in kinds {
            let rate = |pools: &[&Pool]| Ok(count as f64 * each / run(pools, count, &make)?);
            if bench.wants(&apart(what)) {
                bench
                    .case(apart(what), Unit::more(unit))
                    .beside("1 reactor", || rate(&[&one]))
                    .run(|| rate(&[&one, &other]))?;
            }
            if bench.wants(&name(what)) {
                bench
                    .case(name(what), Unit::more(unit))
                    .target(1.7)
                    .beside("1 reactor", || rate(&[&one]))
                    .run(|| rate(&[&two]))?;
            }
        }
    }
    Ok(())
}
