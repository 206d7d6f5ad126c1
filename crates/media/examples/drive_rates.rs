//! Measures the sustained rate of one drive through the ring, and the processor time of each
//! operation:
//!
//!     cargo run --release -p stele-media --example drive_rates -- PATH [SIZE]
//!
//! Every case runs in nine slices, in turns with the others, so that a busy moment of the machine
//! or of the disk affects all alike. It prints the median slice and the slowest and fastest.
//!
//! PATH is created (and removed again) if it does not exist; `memory` measures a memory drive, the
//! null target.

use std::sync::Arc;

use stele_ground::{Bytes, Dice, Instant, MIB};
use stele_media::system::{EventFd, now};
use stele_media::{
    Access, Buffer, BufferPool, Completion, Drive, DriveFile, Engine, MediaError, MemoryDrive, Op, Priority, Request,
    Ring, Shared, Space,
};

struct Target {
    drive: Box<dyn Drive>,
    ring: Option<Ring>,
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    DurableWrite,
    /// The same promise in two operations.
    WriteThenFlush,
}

struct Case {
    name: &'static str,
    kind: Kind,
    length: usize,
    depth: usize,
    random: bool,
    operations: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("name a path, or memory")?;
    let size = arguments.next().map_or(Some(Bytes(1024 * MIB)), |text| Bytes::parse(&text)).ok_or("SIZE as in 4G")?;
    let made = path != "memory" && !std::path::Path::new(&path).exists();
    let cases = [
        Case {
            name: "sequential write",
            kind: Kind::Write,
            length: 1 << 20,
            depth: 8,
            random: false,
            operations: 1024,
        },
        Case { name: "sequential read", kind: Kind::Read, length: 1 << 20, depth: 8, random: false, operations: 1024 },
        Case { name: "random read", kind: Kind::Read, length: 4096, depth: 1, random: true, operations: 10_000 },
        Case { name: "random read", kind: Kind::Read, length: 4096, depth: 32, random: true, operations: 60_000 },
        Case { name: "random write", kind: Kind::Write, length: 4096, depth: 1, random: true, operations: 10_000 },
        Case { name: "random write", kind: Kind::Write, length: 4096, depth: 32, random: true, operations: 60_000 },
        Case {
            name: "write, then flush",
            kind: Kind::WriteThenFlush,
            length: 4096,
            depth: 1,
            random: false,
            operations: 2000,
        },
        Case {
            name: "durable write (fua)",
            kind: Kind::DurableWrite,
            length: 4096,
            depth: 1,
            random: false,
            operations: 2000,
        },
        Case {
            name: "durable write (fua)",
            kind: Kind::DurableWrite,
            length: 4096,
            depth: 16,
            random: true,
            operations: 8000,
        },
        Case {
            name: "write, then flush",
            kind: Kind::WriteThenFlush,
            length: 65536,
            depth: 1,
            random: false,
            operations: 1000,
        },
        Case {
            name: "durable write (fua)",
            kind: Kind::DurableWrite,
            length: 65536,
            depth: 1,
            random: false,
            operations: 1000,
        },
    ];
    let engines: &[Engine] = if path == "memory" { &[Engine::Best] } else { &[Engine::Best, Engine::Threads] };
    for engine in engines {
        let mut target = open(&path, size, *engine)?;
        println!("{path}, {}", target.ring.as_ref().map_or("memory", |ring| ring.engine()));
        println!(
            "{:<22} {:>8} {:>6} {:>10} {:>22} {:>10} {:>10} {:>10}",
            "", "bytes", "depth", "ops/s", "slowest-fastest", "MB/s", "us/op", "cpu us/op"
        );
        let mut slices = vec![Vec::new(); cases.len()];
        for _ in 0..SLICES {
            for (case, slices) in cases.iter().zip(&mut slices) {
                slices.push(run(&mut target, case)?);
            }
        }
        cases.iter().zip(&mut slices).for_each(|(case, slices)| print(case, slices));
    }
    if made {
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

fn open(path: &str, size: Bytes, engine: Engine) -> Result<Target, MediaError> {
    if path == "memory" {
        let mut drive = MemoryDrive::new(size);
        drive.preallocate();
        return Ok(Target { drive: Box::new(drive), ring: None });
    }
    let bell = EventFd::new()
        .map_err(|error| MediaError::new(stele_media::MediaFault::Retry, format!("no eventfd: {error}")))?;
    let ring = Ring::new(Arc::new(bell), engine);
    let file = if std::path::Path::new(path).exists() {
        DriveFile::open(path, Access::Exclusive)?
    } else {
        DriveFile::create(path, size, Space::Written)?
    };
    Ok(Target { drive: Box::new(ring.attach(file)), ring: Some(ring) })
}

const SLICES: u64 = 9;

/// Operations a second and processor seconds per operation.
#[derive(Clone, Copy)]
struct Slice {
    rate: f64,
    processor: f64,
}

fn print(case: &Case, slices: &mut [Slice]) {
    slices.sort_by(|left, right| left.rate.total_cmp(&right.rate));
    let rate = slices[slices.len() / 2].rate;
    let processor = slices.iter().map(|slice| slice.processor).sum::<f64>() / slices.len() as f64;
    println!(
        "{:<22} {:>8} {:>6} {:>10.0} {:>22} {:>10.1} {:>10.1} {:>10.2}",
        case.name,
        case.length,
        case.depth,
        rate,
        format!("{:.0}-{:.0}", slices[0].rate, slices[slices.len() - 1].rate),
        rate * case.length as f64 / 1e6,
        1e6 * case.depth as f64 / rate,
        processor * 1e6
    );
}

fn run(target: &mut Target, case: &Case) -> Result<Slice, MediaError> {
    let operations = case.operations / SLICES;
    let size = target.drive.geometry().size.0;
    let places = size / case.length as u64;
    let pool = BufferPool::new(Bytes(64 * MIB));
    let data: Shared = Buffer::copy_of(&vec![0x5A; case.length]).freeze();
    let mut dice = Dice::new(7);
    let mut finished: Vec<Completion> = Vec::new();
    let (mut submitted, mut completed) = (0u64, 0u64);
    let (began, cpu) = (now(), cpu_time());
    let mut free: Vec<u64> = (0..case.depth as u64).collect();
    while completed < operations {
        while submitted < operations {
            let Some(tag) = free.pop() else { break };
            let place = if case.random { dice.below(places) } else { submitted % places };
            let at = place * case.length as u64;
            let op = match case.kind {
                Kind::Read => Op::Read { at, buffer: pool.take(case.length) },
                kind => Op::Write { at, data: vec![data.clone()], fua: matches!(kind, Kind::DurableWrite) },
            };
            target.drive.submit(Request { tag, op, priority: Priority::Host, deadline: None });
            submitted += 1;
        }
        target.drive.kick();
        target.drive.reap(Instant(0), &mut finished);
        if let (true, Some(ring)) = (finished.is_empty(), &target.ring) {
            ring.wait(None);
        }
        for completion in finished.drain(..) {
            completion.result?;
            if matches!(case.kind, Kind::WriteThenFlush) && !matches!(completion.op, Op::Flush) {
                let tag = completion.tag;
                target.drive.submit(Request { tag, op: Op::Flush, priority: Priority::Urgent, deadline: None });
                continue;
            }
            completed += 1;
            free.push(completion.tag);
        }
    }
    Ok(Slice {
        rate: operations as f64 / now().since(began).as_secs_f64(),
        processor: (cpu_time() - cpu) / operations as f64,
    })
}

/// Seconds of processor time that this process has used, in user and system mode.
fn cpu_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = fields.iter().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / 100.0
}
