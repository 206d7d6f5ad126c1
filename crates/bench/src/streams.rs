//! Sequential streams on a pool of hard drives: the real array on modelled drives in virtual time,
//! with the same digits in every run.
//!
//! The limit is what the drives' heads pass over: the number of drives, times the rate that one
//! drive reaches alone, times the share of data in a stripe. Contents are zeros, so that only time
//! is simulated at scale.

use std::collections::VecDeque;

use stele_array::{Command, OpenOptions};
use stele_ground::{Bytes, Dice, Duration, Instant, MIB, VolumeId};
use stele_media::simulated::{CommandWork, HardDrive, HardDriveSpec, Model, SECTOR};
use stele_media::{Buffer, Op, Shared};
use stele_sim::virtual_pool::{PoolPlan, VirtualPool};

use crate::harness::{Bench, Unit};

const STRIP: u64 = 64 << 10;
const PAGE: &str = "docs/streams.md";
const CODE: &str = "9+1";
const STRIPE: u64 = 9 * STRIP;
const DRIVES: [usize; 3] = [12, 24, 60];
/// Bytes of the volume for each drive.
const HELD: u64 = 32 * MIB;
/// Bytes of a host's request.
const PIECE: u64 = 256 << 10;
/// Requests that a stream has outstanding.
const WRITES: usize = 64;
const READS: usize = 4;
const READERS: [u64; 3] = [1, 8, 32];
/// Stripes read ahead of a stream.
const READ_AHEAD: u8 = 16;
const PATIENCE: Duration = Duration::from_secs(600);

fn drive(mut dice: Dice) -> Box<dyn Model> {
    Box::new(HardDrive::new(HardDriveSpec::published_15k(), &mut dice))
}

fn pool(drives: usize) -> Result<VirtualPool, String> {
    VirtualPool::new(PoolPlan {
        enclosures: (0..drives as u32).collect(),
        drive_size: Bytes(HardDriveSpec::published_15k().sectors * SECTOR as u64),
        log: Bytes(256 * MIB),
        spare_drives: Some(1),
        open: OpenOptions { block_cache: Bytes(512 * MIB), ..OpenOptions::default() },
        seed: drives as u64,
        model: &drive,
    })
}

/// One stream: from where on it reads or writes, and how far.
struct Stream {
    at: u64,
    end: u64,
    under_way: VecDeque<u64>,
}

/// Runs streams over equal parts of the volume's beginning, each with so many requests outstanding.
/// Answers MiB/s.
fn run_streams(
    pool: &mut VirtualPool,
    volume: VolumeId,
    bytes: u64,
    streams: u64,
    depth: usize,
    op: &dyn Fn(u64, u64) -> Op,
) -> Result<f64, String> {
    let part = bytes / streams / STRIPE * STRIPE;
    let mut all: Vec<Stream> = (0..streams)
        .map(|number| Stream { at: number * part, end: (number + 1) * part, under_way: VecDeque::new() })
        .collect();
    let begun = pool.machine.now;
    loop {
        let mut is_over = true;
        for stream in &mut all {
            while stream.under_way.len() < depth && stream.at < stream.end {
                let length = PIECE.min(stream.end - stream.at);
                stream.under_way.push_back(pool.submit(volume, op(stream.at, length)));
                stream.at += length;
            }
        }
        // The oldest of each stream: what came back before it is taken when its turn comes.
        for stream in &mut all {
            if let Some(tag) = stream.under_way.pop_front() {
                is_over = false;
                let (_, result, _) = pool.wait(tag, PATIENCE).ok_or("a request was not answered")?;
                result.map_err(|error| error.to_string())?;
            }
        }
        if is_over {
            break;
        }
    }
    let seconds = pool.machine.now.since(begun).as_secs_f64();
    Ok((part * streams) as f64 / MIB as f64 / seconds)
}

/// What one drive reads alone, in order, MiB/s.
fn alone() -> f64 {
    let mut drive = HardDrive::new(HardDriveSpec::published_15k(), &mut Dice::new(1));
    let mut now = Instant::default();
    for at in (0..64 * MIB).step_by(MIB as usize) {
        now = now + drive.service(now, CommandWork::Read { at, length: MIB });
    }
    64.0 / now.since(Instant::default()).as_secs_f64()
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let one = alone();
    let mut page = String::from(HEAD);
    for drives in DRIVES {
        let case = format!("{drives} drives");
        let reads = READERS.map(|streams| format!(", read, {streams} at once"));
        if !bench.wants_any(&case, reads.iter().map(String::as_str).chain([", write, 1 stream"])) {
            continue;
        }
        let limit = drives as f64 * one * 9.0 / 10.0;
        let mut pool = pool(drives)?;
        let bytes = (drives as u64 * HELD) / STRIPE * STRIPE;
        let volume = pool.volume("a", CODE, bytes, STRIP)?;
        let (name, read_ahead) = ("a".to_owned(), Some(READ_AHEAD));
        pool.command(Command::SetVolume { name, read_ahead, mode: None })?;
        let zeros: Shared = Buffer::zeroed(STRIPE as usize).freeze();
        let write = |at, length: u64| Op::Write { at, data: vec![zeros.slice(0..length as usize)], fua: false };
        let read = |at, length: u64| Op::Read { at, buffer: Buffer::zeroed(length as usize) };
        let mut row = format!("| {case} | {limit:.0} |");
        let mut say = |what: String, value: f64| {
            let reference = Some(("the drives' heads", limit));
            bench.figure(&format!("{case}, {what}"), Unit::more("MiB/s"), value, reference, None);
            row.push_str(&format!(" {value:.0} |"));
        };
        say("write, 1 stream".into(), run_streams(&mut pool, volume, bytes, 1, WRITES, &write)?);
        for streams in READERS {
            pool.reopen()?;
            let rate = run_streams(&mut pool, volume, bytes, streams, READS, &read)?;
            say(format!("read, {streams} at once"), rate);
        }
        page.push_str(&row);
        page.push('\n');
    }
    bench.write_page(PAGE, &(page + TAIL))
}

const HEAD: &str = "# Sequential streams on hard drives

This page shows how fast sequential writers and readers of a volume are, beside what the heads of
all drives pass over. This command wrote it:

    ./x bench streams --write-docs

It runs the real array in virtual time, and gives the same digits on every run. The set-up:

- one volume of 9+1 with strips of 64 KiB, 32 MiB for each drive, read ahead by 16 stripes
- the published 15,000 rpm drives, each in an enclosure of its own; the log on the same drives
- requests of 256 KiB, which end anywhere in a stripe of 576 KiB: 64 outstanding for writes, four
  for each reader; readers share the volume evenly

All rates are MiB/s of the hosts' data. The limit is the rate of one drive that reads alone, times
the number of drives, times the share of data in a stripe.

| | limit | 1 writer | 1 reader | 8 readers | 32 readers |
| --- | ---: | ---: | ---: | ---: | ---: |
";

const TAIL: &str = "
- **Writers.** The pieces of a stripe are held until the rest has come, and written as one whole
  stripe (SEMANTICS/array.md). Each drive then gets one strip at a time, and turns once for each,
  which is what keeps writes below the limit. Before pieces were held they went through the log:
  26 to 29 MiB/s with any number of drives.
- **Readers.** Stripes of a stream lie on all drives in turn. Before they did, one reader of 60
  drives reached 531 MiB/s.
";
