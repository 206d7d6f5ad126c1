//! What a pool sustains behind its reactor, seen from another thread, and what each operation costs
//! the whole process in processor time:
//!
//!     cargo run --release -p stele-array --example served_rates -- memory|DIRECTORY [CASE]
//!
//! In DIRECTORY twelve file drives are made and removed again. The first column repeats the case
//! with the reactor sleeping at once, spinning a little, and spinning long.

use std::sync::mpsc;

use stele_array::server::{DrivePlace, NewDrives, PoolServer, ServerOptions, Source};
use stele_array::{Command, CreateOptions, DigestUnit, OpenOptions, Reply, VolumeSpec, WriteMode};
use stele_ground::{Bytes, Dice, DriveId, Duration, KIB, MIB, PoolId};
use stele_media::system::now;
use stele_media::{Buffer, BufferPool, Handle, MediaError, MemoryDrive, Op, Priority, Shared, Space};

const DRIVES: u32 = 12;
const DRIVE: Bytes = Bytes(256 * MIB);
const SLICES: usize = 5;

type Failure = Box<dyn std::error::Error>;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Write,
}

struct Case {
    name: &'static str,
    volume: &'static str,
    kind: Kind,
    length: u64,
    depth: usize,
    /// Bytes of the volume that are touched.
    span: u64,
    random: bool,
    operations: u64,
}

const CASES: &[Case] = &[
    Case {
        name: "cached read",
        volume: "small",
        kind: Kind::Read,
        length: 4 * KIB,
        depth: 1,
        span: 16 * MIB,
        random: true,
        operations: 20_000,
    },
    Case {
        name: "cached read",
        volume: "small",
        kind: Kind::Read,
        length: 4 * KIB,
        depth: 32,
        span: 16 * MIB,
        random: true,
        operations: 100_000,
    },
    Case {
        name: "random write",
        volume: "small",
        kind: Kind::Write,
        length: 4 * KIB,
        depth: 32,
        span: 256 * MIB,
        random: true,
        operations: 4_000,
    },
    Case {
        name: "sequential write",
        volume: "stream",
        kind: Kind::Write,
        length: MIB,
        depth: 8,
        span: 512 * MIB,
        random: false,
        operations: 512,
    },
];

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next().ok_or("name memory or a directory")?;
    let wanted = arguments.next().unwrap_or_default();
    println!(
        "{:<18} {:>8} {:>6} {:>9} {:>10} {:>18} {:>9} {:>10}",
        place, "bytes", "depth", "spin us", "ops/s", "slowest-fastest", "us/op", "cpu us/op"
    );
    for spin in [0, 20] {
        let options = ServerOptions { spin: Duration::from_micros(spin), ..ServerOptions::default() };
        let server = serve(&place, options)?;
        for (name, code) in [("small", "4+2"), ("stream", "8+2")] {
            let spec = VolumeSpec {
                name: name.to_owned(),
                code: code.parse().map_err(|error| format!("{error}"))?,
                size: Bytes(1024 * MIB),
                strip: Bytes(64 * KIB),
                block: Bytes(4096),
                digest: DigestUnit::Block,
                mode: WriteMode::WriteBack,
                fully_allocated: false,
                spread: false,
                owner: None,
            };
            server.command_blocking(Command::CreateVolume(spec))?;
        }
        for case in CASES.iter().filter(|case| case.name.contains(&wanted)) {
            let volume = server.volume(case.volume)?;
            if case.kind == Kind::Read {
                let fill = Case { kind: Kind::Write, length: MIB, random: false, operations: case.span / MIB, ..*case };
                run(&volume, &fill)?;
                run(&volume, &Case { operations: case.span / case.length, random: false, ..*case })?;
            }
            let mut slices = (0..SLICES).map(|_| run(&volume, case)).collect::<Result<Vec<_>, _>>()?;
            slices.sort_by(|left, right| left.0.total_cmp(&right.0));
            let rate = slices[SLICES / 2].0;
            println!(
                "{:<18} {:>8} {:>6} {:>9} {:>10.0} {:>18} {:>9.1} {:>10.2}",
                case.name,
                case.length,
                case.depth,
                spin,
                rate,
                format!("{:.0}-{:.0}", slices[0].0, slices[SLICES - 1].0),
                1e6 * case.depth as f64 / rate,
                slices.iter().map(|slice| slice.1).sum::<f64>() / SLICES as f64 * 1e6
            );
        }
        if std::env::var_os("STELE_COUNTERS").is_some()
            && let Reply::Status(status) = server.command_blocking(Command::Status)?
        {
            println!("{:?}", status.counters);
        }
        drop(server);
        if place != "memory" {
            places(&place).iter().try_for_each(|place| std::fs::remove_file(&place.path))?;
        }
    }
    Ok(())
}

fn places(directory: &str) -> Vec<DrivePlace> {
    (0..DRIVES).map(|n| DrivePlace::new(format!("{directory}/rates-{n}"), n / 2)).collect()
}

fn serve(place: &str, options: ServerOptions) -> Result<PoolServer, Failure> {
    let create = CreateOptions {
        pool: PoolId([7; 16]),
        name: "rates".to_owned(),
        drives: (0..DRIVES).map(|n| DriveId([n as u8 + 1; 16])).collect(),
        seed: 1,
        log: Some(Bytes(64 * MIB)),
        spare_drives: None,
        created: 0,
        shard: Default::default(),
    };
    let open = OpenOptions::default();
    if place != "memory" {
        let new = NewDrives { size: DRIVE, space: Space::Written };
        return Ok(PoolServer::create(&places(place), Some(new), create, open, options)?);
    }
    let sources = (0..DRIVES).map(|n| {
        let mut drive = MemoryDrive::new(DRIVE);
        drive.preallocate();
        Source::other(drive, format!("memory {n}"), n / 2)
    });
    Ok(PoolServer::create_on(sources.collect(), create, open, options)?)
}

/// Operations a second, and processor seconds per operation.
fn run(volume: &Handle, case: &Case) -> Result<(f64, f64), Failure> {
    let pool = BufferPool::new(Bytes(64 * MIB));
    let data: Shared = Buffer::copy_of(&vec![0x5A; case.length as usize]).freeze();
    let mut dice = Dice::new(11);
    let (sender, receiver) = mpsc::channel::<Result<(), MediaError>>();
    let places = case.span / case.length;
    let mut submitted = 0;
    let mut submit = || {
        let at = if case.random { dice.below(places) } else { submitted % places } * case.length;
        submitted += 1;
        let op = match case.kind {
            Kind::Read => Op::Read { at, buffer: pool.take(case.length as usize) },
            Kind::Write => Op::Write { at, data: vec![data.clone()], fua: false },
        };
        let sender = sender.clone();
        volume.submit(op, Priority::Host, Box::new(move |_, result| drop(sender.send(result))));
    };
    let (began, processor) = (now(), processor_time());
    (0..case.operations.min(case.depth as u64)).for_each(|_| submit());
    for finished in 0..case.operations {
        receiver.recv()??;
        if finished + case.depth as u64 <= case.operations.saturating_sub(1) {
            submit();
        }
    }
    let seconds = now().since(began).as_secs_f64();
    Ok((case.operations as f64 / seconds, (processor_time() - processor) / case.operations as f64))
}

/// Seconds of processor time that this process has used.
fn processor_time() -> f64 {
    let schedules = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let spent = schedules.filter_map(|task| {
        let schedule = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        schedule.split_whitespace().next()?.parse::<f64>().ok()
    });
    spent.sum::<f64>() / 1e9
}
