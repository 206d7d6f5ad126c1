//! Small operations in this process: random writes beyond what log and cache can absorb, and mixes
//! of reads and writes. The mixes have the sizes of the Fibre Channel paper, whose working set its
//! controllers held in their caches.

use stele_array::OpenOptions;
use stele_ground::{Bytes, Dice};
use stele_media::{Buffer, Op, Shared};

use super::{MIB, Rig, cpu_each, pool_with_log, volume_of};
use crate::harness::{Bench, TARGET, Unit};

/// Limit on dirty blocks; the measurement writes several times as much.
const DIRTY_LIMIT: Bytes = Bytes(64 * MIB);
/// The log, at its default limit for a region of a drive.
const LOG: u64 = 128 * MIB;
/// The share of copies and digests alone that sustained writes are to reach.
const SHARE: f64 = 0.5;

pub fn run(bench: &mut Bench, data: &Shared) -> Result<(), String> {
    for (code, drives, target) in [("mirror-2", 4, 250_000.0), ("8+2", 10, 120_000.0)] {
        writes(bench, data, code, drives, target)?;
    }
    for (size, published) in [(512, 401_605.0), (4096, 315_386.0), (8192, 176_179.0)] {
        mixed(bench, data, size, published)?;
    }
    Ok(())
}

fn options() -> OpenOptions {
    OpenOptions { block_cache: Bytes(256 * MIB), dirty_limit: DIRTY_LIMIT, ..OpenOptions::default() }
}

/// A volume that is completely written once, so that later writes overwrite.
fn filled(
    code: &str,
    drives: usize,
    size: u64,
    block: u64,
    data: &Shared,
) -> Result<(Rig, stele_ground::VolumeId), String> {
    let mut rig = pool_with_log(drives, 1024 * MIB, LOG, options())?;
    let volume = volume_of(&mut rig, "small", code, size, block)?;
    rig.drive(volume, 8, size / MIB, |number, _| Op::Write { at: number * MIB, data: vec![data.clone()], fua: false })?;
    Ok((rig, volume))
}

fn writes(bench: &mut Bench, data: &Shared, code: &str, drives: usize, target: f64) -> Result<(), String> {
    let name = format!("{code} random write 4 KiB, depth 32, sustained");
    if !bench.wants_any(&name, ["", BESIDE_TARGET, CPU_EACH]) {
        return Ok(());
    }
    let size = 512 * MIB;
    let (mut rig, volume) = filled(code, drives, size, 4096, data)?;
    let mut places = Dice::new(5);
    let mut next = move |number: u64, _: Option<Op>| {
        let from = (number % 256 * 4096) as usize;
        Op::Write { at: places.below(size / 4096) * 4096, data: vec![data.slice(from..from + 4096)], fua: false }
    };
    // Five times the dirty limit, after a warm-up of the same amount.
    let count = 5 * DIRTY_LIMIT.0 / 4096;
    rig.drive(volume, 32, count, &mut next)?;
    let strips = if code == "mirror-2" { 2 } else { 3 };
    let mut rates = Vec::new();
    bench
        .case(&name, Unit::more("writes/s"))
        .target(SHARE)
        .beside("copies to log and strips, digests", || Ok(limit(data, strips)))
        .run(|| {
            rates.push(count as f64 / rig.drive(volume, 32, count, &mut next)?);
            Ok(rates[rates.len() - 1])
        })?;
    // The same rounds without the first, or some of its own where the case is left out.
    while rates.len() < 3 {
        rates.push(count as f64 / rig.drive(volume, 32, count, &mut next)?);
    }
    let beside = format!("{name}{BESIDE_TARGET}");
    bench.figures(&beside, Unit::more("writes/s"), &rates[1..], Some((TARGET, target)), Some(1.0));
    let cpu = cpu_each(count, || rig.drive(volume, 32, count, &mut next))?;
    bench.figure(&format!("{name}{CPU_EACH}"), Unit::less("us"), cpu, None, None);
    Ok(())
}

const BESIDE_TARGET: &str = ", beside the target";
const CPU_EACH: &str = ", CPU each";

/// The work that a small write always needs, alone: its block copied to four members of the log and
/// to its strips, and a digest for each strip. Writes a second.
fn limit(data: &Shared, strips: usize) -> f64 {
    const MEMBERS: usize = 4;
    let mut logs: Vec<Vec<u8>> = (0..MEMBERS).map(|_| vec![1u8; LOG as usize]).collect();
    let mut drives = vec![1u8; 512 * MIB as usize];
    let mut places = Dice::new(6);
    let (count, mut sum) = (100_000, 0u32);
    let begin = std::time::Instant::now();
    for number in 0..count {
        let block = &data[number % 256 * 4096..][..4096];
        for log in &mut logs {
            let at = number * 4096 % log.len();
            log[at..at + 4096].copy_from_slice(block);
        }
        for strip in 0..strips {
            let at = places.below(drives.len() as u64 / 4096) as usize * 4096;
            drives[at..at + 4096].copy_from_slice(block);
            sum ^= stele_ground::digest::bound(block, strip as u64);
        }
    }
    std::hint::black_box((sum, &logs, &drives));
    count as f64 / begin.elapsed().as_secs_f64()
}

fn mixed(bench: &mut Bench, data: &Shared, length: u64, published: f64) -> Result<(), String> {
    let name = format!("mirror-2 half reads, half writes of {length} B, depth 32");
    if !bench.wants_any(&name, ["", CPU_EACH]) {
        return Ok(());
    }
    let size = 64 * MIB;
    let (mut rig, volume) = filled("mirror-2", 4, size, length.min(4096), data)?;
    let mut dice = Dice::new(11);
    let mut next = move |_: u64, old: Option<Op>| {
        let at = dice.below(size / length) * length;
        if dice.one_in(2) {
            let buffer = match old {
                Some(Op::Read { buffer, .. }) => buffer,
                _ => Buffer::zeroed(length as usize),
            };
            return Op::Read { at, buffer };
        }
        let from = (at % data.len() as u64) as usize;
        Op::Write { at, data: vec![data.slice(from..from + length as usize)], fua: false }
    };
    rig.drive(volume, 32, 100_000, &mut next)?;
    let count = 400_000;
    bench
        .case(&name, Unit::more("operations/s"))
        .against("published, 8 Gb Fibre Channel", published)
        .target(1.0)
        .run(|| Ok(count as f64 / rig.drive(volume, 32, count, &mut next)?))?;
    let cpu = cpu_each(count, || rig.drive(volume, 32, count, &mut next))?;
    bench.figure(&format!("{name}{CPU_EACH}"), Unit::less("us"), cpu, None, None);
    Ok(())
}
