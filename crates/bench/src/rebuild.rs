//! The duration of a rebuild and the critical share after two losses, against the number of drives:
//! the real array on modelled hard drives in virtual time, with the same digits in every run. A
//! whole run also writes `docs/rebuild.md`.
//!
//! Contents are zeros, so that only time is simulated at scale. The drives are small, so that
//! hundreds fit into memory: the published drive with fewer cylinders, whose arm takes the same
//! time over the whole stroke. No figure is scaled up from a measured one. A row with twice the
//! content on each drive shows how the time grows with the content.

use stele_array::{DriveHealth, OpenOptions, PoolStatus};
use stele_ground::{Bytes, Dice, Duration, MIB};
use stele_media::simulated::{HardDrive, HardDriveSpec, Model, SECTOR};
use stele_media::{Buffer, Op};
use stele_sim::virtual_pool::{PoolPlan, VirtualPool};

use crate::harness::{Bench, Unit};

const PAGE: &str = "docs/rebuild.md";
/// Bytes of the volume on each drive.
const HELD: u64 = 64 * MIB;
const DRIVE: u64 = 256 * MIB;
const STRIP: u64 = 64 << 10;
/// Drives of a world.
const SHELF: usize = 12;
/// Number of drives, and multiples of `HELD`.
const CASES: [(usize, u64); 5] = [(12, 1), (24, 1), (58, 1), (116, 1), (24, 2)];

fn drive(mut dice: Dice) -> Box<dyn Model> {
    let spec = HardDriveSpec { sectors: DRIVE / SECTOR as u64, ..HardDriveSpec::published_15k() };
    Box::new(HardDrive::new(spec, &mut dice))
}

struct Figures {
    one: Duration,
    critical: Duration,
    two: Duration,
    /// Share of stripes that lost two strips.
    share: f64,
    /// Bytes of strips on one drive.
    held: f64,
}

fn measure(drives: usize, held: u64) -> Result<Figures, String> {
    let plan = PoolPlan {
        enclosures: (0..drives).map(|drive| (drive / SHELF) as u32).collect(),
        drive_size: Bytes(DRIVE),
        log: Bytes(16 * MIB),
        spare_drives: Some(2),
        open: OpenOptions { rebuild_after: Duration(0), ..OpenOptions::default() },
        seed: drives as u64,
        model: &drive,
    };
    let mut pool = VirtualPool::new(plan)?;
    fill(&mut pool, drives, held)?;
    let stripes = pool.status()?.stripes;
    let moment = Duration::from_millis(10);
    let most = Duration::from_secs(24 * 3600);
    let whole = |status: &PoolStatus| status.rebuild.is_none() && status.copy_back.is_none();
    // One drive.
    pool.machine.detach(0);
    let begun = pool.machine.now;
    pool.until(moment, most, |status| status.rebuild.is_some())?;
    pool.until(moment, most, whole)?;
    let one = pool.machine.now.since(begun);
    pool.machine.attach(0);
    let well = |status: &PoolStatus| status.drives.iter().all(|drive| drive.health == DriveHealth::Healthy);
    pool.until(Duration::from_secs(1), most, |status| well(status) && whole(status))?;
    // Two drives at once, from different shelves if there are several.
    let other = if drives > SHELF { SHELF + 1 } else { 1 };
    pool.machine.detach(0);
    pool.machine.detach(other);
    let begun = pool.machine.now;
    pool.pass(Duration::from_millis(1));
    let status = pool.status()?;
    let share = status.critical_stripes as f64 / stripes as f64;
    pool.until(moment, most, |status| status.critical_stripes == 0)?;
    let critical = pool.machine.now.since(begun);
    pool.until(moment, most, whole)?;
    let two = pool.machine.now.since(begun);
    if pool.status()?.lost_stripes > 0 {
        return Err(format!("{drives} drives: stripes were lost"));
    }
    let held = (stripes * 10 * STRIP) as f64 / drives as f64;
    Ok(Figures { one, critical, two, share, held })
}

/// Writes whole stripes of zeros over the whole volume.
fn fill(pool: &mut VirtualPool, drives: usize, held: u64) -> Result<(), String> {
    let stripe = 8 * STRIP;
    let stripes = drives as u64 * held / (10 * STRIP);
    let volume = pool.volume("a", "8+2", stripes * stripe, STRIP)?;
    let zeros = Buffer::zeroed(stripe as usize).freeze();
    let depth = 4 * drives as u64;
    for first in (0..stripes).step_by(depth as usize) {
        let tags: Vec<u64> = (first..stripes.min(first + depth))
            .map(|at| pool.submit(volume, Op::Write { at: at * stripe, data: vec![zeros.clone()], fua: false }))
            .collect();
        for tag in tags {
            let (_, result, _) = pool.wait(tag, Duration::from_secs(3600)).ok_or("a write was not answered")?;
            result.map_err(|error| error.to_string())?;
        }
    }
    pool.command(stele_array::Command::Checkpoint).map(drop)
}

/// The share of stripes with strips on both of two given drives, if every set of ten drives were
/// equally likely.
fn even_share(drives: usize) -> f64 {
    10.0 * 9.0 / (drives * (drives - 1)) as f64
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let mut page = String::from(HEAD);
    let mut first = None;
    for (drives, times) in CASES {
        let case = match times {
            1 => format!("{drives} drives"),
            _ => format!("{drives} drives, twice as full"),
        };
        if !bench.wants(&case) {
            continue;
        }
        let figures = measure(drives, times * HELD)?;
        let [one, critical, two] = [figures.one, figures.critical, figures.two].map(|span| span.as_secs_f64());
        let rate = figures.held / one / MIB as f64;
        let slowest = *first.get_or_insert(one);
        let mut say = |what: &str, unit, value| bench.figure(&format!("{case}, {what}"), unit, value, None, None);
        say("one lost", Unit::less("s"), one);
        say("one lost: restored", Unit::more("MiB/s"), rate);
        say("two lost: critical", Unit::less("%"), 100.0 * figures.share);
        say("two lost: critical, if even", Unit::less("%"), 100.0 * even_share(drives));
        say("two lost: critical for", Unit::less("s"), critical);
        say("two lost: all restored", Unit::less("s"), two);
        let faster = if times == 1 { format!("{:.1}", slowest / one) } else { String::new() };
        page.push_str(&format!(
            "| {case} | {:.1} | {one:.2} | {faster} | {rate:.0} | {:.2} % | {:.2} % | {critical:.2} | {two:.2} |\n",
            figures.held / MIB as f64,
            100.0 * figures.share,
            100.0 * even_share(drives),
        ));
    }
    if bench.is_whole() {
        std::fs::write(PAGE, page + TAIL).map_err(|error| format!("{PAGE}: {error}"))?;
        bench.note(&format!("the table is in {PAGE}"));
    }
    Ok(())
}

const HEAD: &str = "# Rebuild time against the number of drives

This page shows how the time of a rebuild falls as a pool has more drives. This command wrote it:

    ./x bench rebuild

It runs the real array in virtual time, and gives the same digits on every run. The set-up:

- one volume of 8+2 with strips of 64 KiB over all drives
- enclosures of 12 drives, and spare space of two drives
- no load from hosts
- the published 15,000 rpm drives, with as many cylinders as 256 MiB take; their arms are as slow
  over the whole stroke
- the log on the same drives

| | a drive holds MiB | one lost: s | times faster | restored MiB/s | two lost: critical | if even | critical for s | all restored s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

const TAIL: &str = "
- **One lost** is the time from the loss until everything is redundant again in spare space. *Times
  faster* compares with 12 drives.
- **Critical** stripes lost two of their ten strips and can lose no more. The two lost drives are in
  different enclosures where there are several. *If even* is the share if every set of ten drives
  were equally likely. The pool rebuilds critical stripes first. *Critical for* is the time until
  none is left.
- **Twice as full** shows how the time grows with the content. The beginning and the end of a
  rebuild take the same time for any content.
- The published GNR figures (`gnr-tsm-40gbe`) cover throughput only. There is no published rebuild
  time or critical share to compare with.
";
