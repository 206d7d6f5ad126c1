//! The array in this process on memory drives, with one thread: the cost of the pool itself,
//! without a device.
//!
//! The limit for sequential writes is the work that is always needed: copying the stripe to its
//! drives (the memory drive's own copy), coding it, and computing its digests. It is measured alone
//! in the same run.

mod loops;
mod reactors;
mod small;

use std::time::Instant as WallInstant;

use stele_array::{Command, CreateOptions, DigestUnit, OpenOptions, Pool, PoolStatus, Reply, VolumeSpec, WriteMode};
use stele_codes::{Code, Coder};
use stele_ground::{Bytes, Dice, DriveId, PoolId, VolumeId, digest};
use stele_media::{Buffer, MemoryDrive, Op, Shared};

use crate::harness::{Bench, TARGET, Unit};
use crate::process::Usage;
use crate::rig::TimeSource;

const MIB: u64 = 1 << 20;

/// A pool on memory drives.
type Rig = crate::rig::Rig<MemoryDrive>;

pub fn pool_of(drives: usize, size: u64, options: OpenOptions) -> Result<Rig, String> {
    pool_with_log(drives, size, 64 * MIB, options)
}

fn pool_with_log(drives: usize, size: u64, log: u64, options: OpenOptions) -> Result<Rig, String> {
    let mut all: Vec<MemoryDrive> = (0..drives).map(|_| MemoryDrive::new(Bytes(size))).collect();
    all.iter_mut().for_each(MemoryDrive::preallocate);
    let create = CreateOptions {
        pool: PoolId([1; 16]),
        name: "bench".into(),
        drives: (0..drives).map(|at| DriveId([at as u8 + 1; 16])).collect(),
        seed: 1,
        log: Some(Bytes(log)),
        spare_drives: Some(0),
        created: 0,
        shard: Default::default(),
    };
    Rig::open(all, TimeSource::Wall, |attached, now| Pool::create(create, options, attached, now))
}

pub fn volume_of(rig: &mut Rig, name: &str, code: &str, size: u64, block: u64) -> Result<VolumeId, String> {
    rig.create(VolumeSpec {
        name: name.into(),
        code: code.parse().map_err(|error| format!("{error}"))?,
        size: Bytes(size),
        strip: Bytes(64 << 10),
        block: Bytes(block),
        digest: DigestUnit::Block,
        mode: WriteMode::WriteBack,
        fully_allocated: false,
        spread: false,
        owner: None,
    })
}

fn status_of(rig: &mut Rig) -> Result<PoolStatus, String> {
    match rig.command(Command::Status)? {
        Reply::Status(status) => Ok(*status),
        other => Err(format!("{other:?}")),
    }
}

pub fn random_bytes(length: usize) -> Shared {
    let mut buffer = Buffer::zeroed(length);
    Dice::new(7).fill(&mut buffer);
    buffer.freeze()
}

/// Copy, code and digest of 8+2 stripes of 64 KiB strips alone, in MB/s of data.
fn limit(data: &Shared) -> f64 {
    const STRIP: usize = 64 << 10;
    let coder = Coder::new(Code::parity(8, 2).expect("8+2 is a code"));
    let mut target = vec![1u8; 256 * MIB as usize];
    let mut parity = [vec![0u8; STRIP], vec![0u8; STRIP]];
    let mut sum = 0u32;
    let mut at = 0;
    let begin = WallInstant::now();
    let rounds = 600;
    for round in 0..rounds {
        let from = round * 8 * STRIP % (data.len() - 8 * STRIP + 1) / 4096 * 4096;
        let stripe = &data[from..from + 8 * STRIP];
        let strips: Vec<&[u8]> = stripe.chunks(STRIP).collect();
        let [p, q] = &mut parity;
        coder.encode(&strips, &mut [p, q]);
        for strip in strips.iter().copied().chain([&parity[0][..], &parity[1][..]]) {
            for block in strip.chunks(4096) {
                sum ^= digest::bound(block, 1);
            }
            target[at..at + STRIP].copy_from_slice(strip);
            at = (at + STRIP) % target.len();
        }
    }
    std::hint::black_box((sum, &target));
    (rounds * 8 * STRIP) as f64 / begin.elapsed().as_secs_f64() / 1e6
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    bench.note(
        "memory drives, one thread; every write durable in the pool's sense (log replicas, flushes) before its answer",
    );
    sequential(bench)?;
    random(bench)?;
    small::run(bench, &random_bytes(MIB as usize))?;
    let data = random_bytes(16 * MIB as usize);
    loops::run(bench, &data)?;
    reactors::cases(bench, &data)
}

/// Microseconds of CPU time for each of `count` operations in one call of `work`.
fn cpu_each(count: u64, work: impl FnOnce() -> Result<f64, String>) -> Result<f64, String> {
    let before = Usage::own().cpu_nanoseconds;
    work()?;
    Ok((Usage::own().cpu_nanoseconds - before) as f64 / 1e3 / count as f64)
}

/// The cases of reads alone, for `--before`.
pub const READS: [&str; 3] =
    ["8+2 sequential read 1 MiB", "4+2 random read 4 KiB cached", "4+2 random read 4 KiB cold"];
/// The share of their rate in an older version that they are to keep, also for each second of
/// processor time: what makes writes cheaper may cost reads a tenth.
pub const READS_KEPT: f64 = 0.9;

/// The limit's share that sequential writes are to reach.
const SEQUENTIAL_SHARE: f64 = 0.6;
/// Reads from the cache that one core is to answer in a second.
const CACHED_READS: f64 = 800_000.0;

fn sequential(bench: &mut Bench) -> Result<(), String> {
    let ends = ["write 1 MiB", "write 1 MiB, CPU each", "write, copied per byte", "write, to drives per byte"];
    if !bench.wants_any("8+2 sequential ", ends.into_iter().chain(["read 1 MiB", "read 1 MiB, CPU each"])) {
        return Ok(());
    }
    let options = OpenOptions { block_cache: Bytes(16 * MIB), ..OpenOptions::default() };
    let mut rig = pool_of(10, 256 * MIB, options)?;
    let volume = volume_of(&mut rig, "stream", "8+2", 1024 * MIB, 4096)?;
    let data = random_bytes(16 * MIB as usize);
    let slice = |number: u64| data.slice((number % 16 * MIB) as usize..((number % 16 + 1) * MIB) as usize);
    let span = 512;
    let write = |number: u64, _| Op::Write { at: number % span * MIB, data: vec![slice(number)], fua: false };
    rig.drive(volume, 16, span, write)?;
    let before = status_of(&mut rig)?;
    // Counted also where the case itself is left out.
    rig.drive(volume, 16, span, write)?;
    bench
        .case("8+2 sequential write 1 MiB", Unit::more("MB/s"))
        .target(SEQUENTIAL_SHARE)
        .beside("copy + code + digest alone", || Ok(limit(&data)))
        .run(|| Ok((span * MIB) as f64 / rig.drive(volume, 16, span, write)? / 1e6))?;
    let after = status_of(&mut rig)?;
    let count = |status: &PoolStatus, name: &str| {
        status.counters.iter().find(|(have, _)| *have == name).map_or(0, |(_, value)| *value)
    };
    let written = (count(&after, "written bytes") - count(&before, "written bytes")).max(1);
    let copied = count(&after, "bytes copied") - count(&before, "bytes copied");
    let stored = count(&after, "drive written bytes") - count(&before, "drive written bytes");
    bench.figure(
        "8+2 sequential write, copied per byte",
        Unit::less("B/B"),
        copied as f64 / written as f64,
        None,
        None,
    );
    bench.figure(
        "8+2 sequential write, to drives per byte",
        Unit::less("B/B"),
        stored as f64 / written as f64,
        None,
        None,
    );
    let cpu = cpu_each(span, || rig.drive(volume, 16, span, write))?;
    bench.figure("8+2 sequential write 1 MiB, CPU each", Unit::less("us"), cpu, None, None);
    let read = |number: u64, old: Option<Op>| {
        let buffer = match old {
            Some(Op::Read { buffer, .. }) => buffer,
            _ => Buffer::zeroed(MIB as usize),
        };
        Op::Read { at: number % span * MIB, buffer }
    };
    bench
        .case(READS[0], Unit::more("MB/s"))
        .run(|| Ok((span * MIB) as f64 / rig.drive(volume, 16, span, read)? / 1e6))?;
    let cpu = cpu_each(span, || rig.drive(volume, 16, span, read))?;
    bench.figure("8+2 sequential read 1 MiB, CPU each", Unit::less("us"), cpu, None, None);
    Ok(())
}

fn random(bench: &mut Bench) -> Result<(), String> {
    let wanted = [READS[1], READS[2], "4+2 random write 4 KiB, depth 32"];
    let cpu = ["4+2 random read 4 KiB cached, CPU each", "4+2 random write 4 KiB, CPU each"];
    if !bench.wants_any("", wanted.into_iter().chain(cpu)) {
        return Ok(());
    }
    let options = OpenOptions { block_cache: Bytes(64 * MIB), ..OpenOptions::default() };
    let mut rig = pool_of(6, 512 * MIB, options)?;
    let size = 1024 * MIB;
    let volume = volume_of(&mut rig, "random", "4+2", size, 4096)?;
    let data = random_bytes(MIB as usize);
    rig.drive(volume, 8, size / MIB, |number, _| Op::Write { at: number * MIB, data: vec![data.clone()], fua: false })?;
    let mut dice = Dice::new(3);
    let mut read = |range: u64| {
        let mut dice = dice.fork();
        move |_: u64, old: Option<Op>| {
            let buffer = match old {
                Some(Op::Read { buffer, .. }) => buffer,
                _ => Buffer::zeroed(4096),
            };
            Op::Read { at: dice.below(range / 4096) * 4096, buffer }
        }
    };
    let warm = 32 * MIB;
    rig.drive(volume, 32, warm / 4096, |number, _| Op::Read { at: number * 4096, buffer: Buffer::zeroed(4096) })?;
    rig.drive(volume, 32, 200_000, read(warm))?;
    if bench.wants_any("", [wanted[0], cpu[0]]) {
        let mut next = read(warm);
        bench
            .case(wanted[0], Unit::more("reads/s"))
            .target(1.0)
            .against(TARGET, CACHED_READS)
            .run(|| Ok(400_000.0 / rig.drive(volume, 32, 400_000, &mut next)?))?;
        let each = cpu_each(400_000, || rig.drive(volume, 32, 400_000, &mut next))?;
        bench.figure(cpu[0], Unit::less("us"), each, None, None);
    }
    if bench.wants(wanted[1]) {
        let mut next = read(size);
        bench
            .case(wanted[1], Unit::more("reads/s"))
            .run(|| Ok(60_000.0 / rig.drive(volume, 32, 60_000, &mut next)?))?;
    }
    if bench.wants_any("", [wanted[2], cpu[1]]) {
        let mut places = Dice::new(5);
        let mut next = move |number: u64, _: Option<Op>| {
            let from = (number % 256 * 4096) as usize;
            Op::Write { at: places.below(size / 4096) * 4096, data: vec![data.slice(from..from + 4096)], fua: false }
        };
        bench
            .case(wanted[2], Unit::more("writes/s"))
            .run(|| Ok(60_000.0 / rig.drive(volume, 32, 60_000, &mut next)?))?;
        let each = cpu_each(60_000, || rig.drive(volume, 32, 60_000, &mut next))?;
        bench.figure(cpu[1], Unit::less("us"), each, None, None);
    }
    Ok(())
}
