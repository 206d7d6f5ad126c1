//! What drives allow, and what the array makes of it, against the number of drives. The rate of a
//! rebuild, and the critical share after two losses. The rates of a scrub, of copying back to a new
//! drive, and of emptying one that leaves. What hosts and a rebuild are to each other.
//!
//! The real array runs on modelled hard drives in virtual time, with the same digits in every run.
//! With `--write-docs` a whole run also writes `docs/rebuild.md`.
//!
//! Contents are zeros, so that only time is simulated at scale. The drives hold little, spread over
//! their whole stroke, so that hundreds fit into memory.

mod changed;
mod drives;
mod hosts;
mod sustained;

use stele_array::{Command, DriveHealth, OpenOptions, PoolStatus, Progress};
use stele_ground::{Bytes, Duration, GIB, MIB, VolumeId};
use stele_media::{Buffer, Op};
use stele_sim::virtual_pool::{PoolPlan, VirtualPool};

use crate::harness::{Bench, Unit};
use hosts::Hosts;
use sustained::Sustained;

const PAGE: &str = "docs/rebuild.md";
const STRIP: u64 = 64 << 10;
const DATA: u64 = 8;
const WIDTH: u64 = 10;
/// Drives of an enclosure.
const SHELF: usize = 12;
/// Numbers of drives, alone and beside hosts.
const CASES: [usize; 4] = [12, 24, 58, 116];
/// The drive for which hours are computed.
const DRIVE: f64 = 20e12;
/// For the strips of a rebuild: what a machine of 64 GiB gives.
const MEMORY: Bytes = Bytes(4 * GIB);
const MOMENT: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(24 * 3600);
const HOUR: Duration = Duration::from_secs(3600);

/// Bytes of the volume on each drive: several times the rows that are under way at once.
const HELD: u64 = 768 * MIB;

struct Measured {
    pool: VirtualPool,
    volume: VolumeId,
    drives: usize,
    /// Of the volume.
    bytes: u64,
}

struct Lost {
    /// Bytes a second that one lost drive is restored with, its beginning and end left out.
    rate: f64,
    /// After the loss of two.
    critical: Duration,
    two: Duration,
    /// Share of stripes that lost two strips.
    share: f64,
}

struct Beside {
    /// Reads a second of all drives with lines before them, and of the hosts.
    highest: f64,
    /// The hosts' 99th percentile: of the whole pool, with a drive lost and nothing rebuilt, and
    /// beside the rebuild.
    whole: Duration,
    degraded: Duration,
    rebuilding: Duration,
    rate: f64,
}

/// Restored bytes a second that the drives allow: each of them reads or writes all the time.
fn limit(drives: usize) -> f64 {
    (drives - 1) as f64 * drives::sequential_rate() / (DATA + 1) as f64
}

fn is_whole(status: &PoolStatus) -> bool {
    status.rebuild.is_none() && status.copy_back.is_none()
}

fn is_well(status: &PoolStatus) -> bool {
    status.drives.iter().all(|drive| drive.health == DriveHealth::Healthy) && is_whole(status)
}

impl Measured {
    fn new(drives: usize, rebuild_after: Duration) -> Result<Measured, String> {
        let plan = PoolPlan {
            enclosures: (0..drives).map(|drive| (drive / SHELF) as u32).collect(),
            drive_size: drives::SIZE,
            log: Bytes(16 * MIB),
            spare_drives: Some(2),
            open: OpenOptions {
                rebuild_after,
                block_cache: Bytes(MIB),
                background_memory: MEMORY,
                ..OpenOptions::default()
            },
            seed: drives as u64,
            model: &drives::model,
        };
        let mut pool = VirtualPool::new(plan)?;
        let stripes = drives as u64 * HELD / (WIDTH * STRIP);
        let bytes = stripes * DATA * STRIP;
        let volume = pool.volume("a", "8+2", bytes, STRIP)?;
        let mut measured = Measured { pool, volume, drives, bytes };
        measured.fill(stripes)?;
        Ok(measured)
    }

    /// Writes whole stripes of zeros over the whole volume.
    fn fill(&mut self, stripes: u64) -> Result<(), String> {
        let (stripe, pool) = (DATA * STRIP, &mut self.pool);
        let zeros = Buffer::zeroed(stripe as usize).freeze();
        let depth = 4 * self.drives as u64;
        for first in (0..stripes).step_by(depth as usize) {
            let tags: Vec<u64> = (first..stripes.min(first + depth))
                .map(|at| {
                    let op = Op::Write { at: at * stripe, data: vec![zeros.clone()], fua: false };
                    pool.submit(self.volume, op)
                })
                .collect();
            for tag in tags {
                let (_, result, _) = pool.wait(tag, Duration::from_secs(3600)).ok_or("a write was not answered")?;
                result.map_err(|error| error.to_string())?;
            }
        }
        pool.command(Command::Checkpoint).map(drop)
    }

    /// The rate at which work that is under way, or about to begin, goes on.
    fn sustained(&mut self, work: &str, of: impl Fn(&PoolStatus) -> Option<Progress>) -> Result<f64, String> {
        let (mut sustained, mut rate) = (Sustained::default(), None);
        let limit = self.pool.machine.now + HOUR;
        while rate.is_none() && self.pool.machine.now < limit {
            self.pool.pass(MOMENT);
            let progress = of(&self.pool.status()?);
            rate = sustained.look(progress.as_ref(), self.pool.machine.now);
            if progress.is_none() && sustained.is_within() {
                return Err(format!("{} drives hold too little to measure {work}", self.drives));
            }
        }
        rate.ok_or_else(|| format!("{work} did not come to its end within an hour"))
    }

    /// The rate of a rebuild.
    fn rebuild(&mut self) -> Result<f64, String> {
        self.sustained("a rebuild", |status| status.rebuild)
    }

    fn lose(&mut self) -> Result<Lost, String> {
        let stripes = self.pool.status()?.stripes;
        self.pool.machine.detach(0);
        let rate = self.rebuild()?;
        self.pool.until(MOMENT, MOST, is_whole)?;
        self.pool.machine.attach(0);
        self.pool.until(Duration::from_secs(1), MOST, is_well)?;
        // Two drives at once, from different shelves if there are several.
        let other = if self.drives > SHELF { SHELF + 1 } else { 1 };
        self.pool.machine.detach(0);
        self.pool.machine.detach(other);
        let begun = self.pool.machine.now;
        self.pool.pass(Duration::from_millis(1));
        let share = self.pool.status()?.critical_stripes as f64 / stripes as f64;
        self.pool.until(MOMENT, MOST, |status| status.critical_stripes == 0)?;
        let critical = self.pool.machine.now.since(begun);
        self.pool.until(MOMENT, MOST, is_whole)?;
        let two = self.pool.machine.now.since(begun);
        match self.pool.status()?.lost_stripes {
            0 => Ok(Lost { rate, critical, two, share }),
            lost => Err(format!("{} drives: {lost} stripes were lost", self.drives)),
        }
    }

    /// Bytes a second that a scrub reads of each drive.
    fn scrub(&mut self) -> Result<f64, String> {
        let finished = self.pool.status()?.scrubs_finished;
        let begun = self.pool.machine.now;
        self.pool.command(Command::StartScrub)?;
        self.pool.until(MOMENT, MOST, |status| status.scrubs_finished > finished)?;
        let took = self.pool.machine.now.since(begun).as_secs_f64();
        Ok(HELD as f64 / took)
    }

    /// Hosts at half of the drives' highest rate, without a rebuild and beside one.
    fn beside(drives: usize) -> Result<Beside, String> {
        // Nothing is rebuilt for a minute, so that the hosts' times without that are known.
        let wait = Duration::from_secs(60);
        let Measured { mut pool, volume, bytes, .. } = Measured::new(drives, wait)?;
        let highest = hosts::highest_rate(&mut pool, volume, bytes, drives)?;
        let mut hosts = Hosts::new(&pool, volume, bytes, highest / 2.0);
        hosts.pass(&mut pool, Duration::from_secs(30))?;
        let whole = hosts.p99()?;
        pool.machine.detach(0);
        hosts.pass(&mut pool, Duration::from_secs(50))?;
        let degraded = hosts.p99()?;
        let (rate, rebuilding) = hosts::beside(&mut pool, &mut hosts)?;
        Ok(Beside { highest, whole, degraded, rebuilding, rate })
    }
}

/// The share of stripes with strips on both of two given drives, if every set of ten drives were
/// equally likely.
fn even_share(drives: usize) -> f64 {
    (WIDTH * (WIDTH - 1)) as f64 / (drives * (drives - 1)) as f64
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let rate = drives::sequential_rate() / MIB as f64;
    let mut page = HEAD.replace("RATE", &format!("{rate:.1}"));
    let mut changes = String::new();
    for drives in CASES {
        let case = format!("{drives} drives");
        if bench.wants_any(&case, LOST) {
            page.push_str(&lost(bench, &case, drives)?);
        }
        if bench.wants_any(&case, changed::ENDS) {
            changes.push_str(&changed::cases(bench, &case, drives)?);
        }
    }
    page.push_str(MIDDLE);
    page.push_str(&changes);
    page.push_str(changed::BELOW);
    page.push_str(BESIDE);
    for drives in CASES {
        let case = format!("{drives} drives beside hosts");
        if bench.wants_any(&case, BESIDE_HOSTS) {
            page.push_str(&beside(bench, &case, drives)?);
        }
    }
    bench.write_page(PAGE, &(page + TAIL))
}

/// The figures without hosts, behind the number of drives.
const LOST: [&str; 7] = [
    ", one lost: restored",
    ", one lost: hours for 20 TB",
    ", two lost: critical",
    ", two lost: critical, if even",
    ", two lost: critical for",
    ", two lost: all restored",
    ", scrub of each drive",
];
/// The figures beside hosts.
const BESIDE_HOSTS: [&str; 6] = [
    ": restored",
    ": reads",
    ": 99 % of reads, whole",
    ": 99 % of reads, no rebuild yet",
    ": 99 % of reads, rebuild",
    ": 99 % of reads, rebuild beside the whole pool",
];

fn lost(bench: &mut Bench, case: &str, drives: usize) -> Result<String, String> {
    let mut measured = Measured::new(drives, Duration(0))?;
    let scrub = measured.scrub()?;
    let figures = measured.lose()?;
    let [critical, two] = [figures.critical, figures.two].map(|span| span.as_secs_f64());
    let (rate, limit) = (figures.rate / MIB as f64, limit(drives) / MIB as f64);
    let hours = DRIVE / figures.rate / 3600.0;
    let share = scrub / drives::sequential_rate();
    let allowed = Some(("what the drives allow", limit));
    let [restored, took, share_critical, even, critical_for, all, scrubbing] = LOST.map(|end| format!("{case}{end}"));
    bench.figure(&restored, Unit::more("MiB/s"), rate, allowed, Some(0.7));
    bench.figure(&took, Unit::less("h"), hours, None, None);
    bench.figure(&share_critical, Unit::less("%"), 100.0 * figures.share, None, None);
    bench.figure(&even, Unit::less("%"), 100.0 * even_share(drives), None, None);
    bench.figure(&critical_for, Unit::less("s"), critical, None, None);
    bench.figure(&all, Unit::less("s"), two, None, None);
    let sequential = Some(("the sequential rate", drives::sequential_rate() / MIB as f64));
    let scrubbed = scrub / MIB as f64;
    bench.figure(&scrubbing, Unit::more("MiB/s"), scrubbed, sequential, Some(0.8));
    Ok(format!(
        "| {drives} | {rate:.0} | {limit:.0} | {:.2} | {hours:.0} | {:.2} % | {:.2} % | {critical:.2} | {two:.2} | {scrubbed:.0} | {share:.2} |\n",
        rate / limit,
        100.0 * figures.share,
        100.0 * even_share(drives),
    ))
}

fn beside(bench: &mut Bench, case: &str, drives: usize) -> Result<String, String> {
    let figures = Measured::beside(drives)?;
    let (rate, limit) = (figures.rate / MIB as f64, limit(drives) / MIB as f64);
    let [whole, degraded, rebuilding] =
        [figures.whole, figures.degraded, figures.rebuilding].map(|span| span.as_secs_f64() * 1e3);
    let allowed = Some(("what the drives allow without hosts", limit));
    let [restored, reads, when_whole, not_yet, now, now_and_whole] = BESIDE_HOSTS.map(|end| format!("{case}{end}"));
    let milliseconds = Unit::less("ms");
    bench.figure(&restored, Unit::more("MiB/s"), rate, allowed, Some(0.3));
    bench.figure(&reads, Unit::more("1/s"), figures.highest / 2.0, None, None);
    bench.figure(&when_whole, milliseconds, whole, None, None);
    bench.figure(&not_yet, milliseconds, degraded, None, None);
    // At most twice as long as without a rebuild: beside the pool that lacks a drive already, and
    // beside the whole one.
    bench.figure(&now, milliseconds, rebuilding, Some(("before the rebuild began", degraded)), Some(0.5));
    bench.figure(&now_and_whole, milliseconds, rebuilding, Some(("with all drives", whole)), Some(0.5));
    Ok(format!(
        "| {drives} | {:.0} | {whole:.0} | {degraded:.0} | {rebuilding:.0} | {:.1} | {rate:.1} | {:.2} | {:.0} |\n",
        figures.highest / 2.0,
        rebuilding / degraded,
        rate / limit,
        DRIVE / figures.rate / 3600.0,
    ))
}

const HEAD: &str = "# Rebuild and scrub against the number of drives

This page shows how fast a pool restores what a lost drive held. This command wrote it:

    ./x bench rebuild --write-docs

It runs the real array in virtual time, and gives the same digits on every run. The set-up:

- one volume of 8+2 with strips of 64 KiB over all drives, 768 MiB on each
- enclosures of 12 drives, and spare space of two drives
- the published 15,000 rpm drives, with what they hold spread over their whole stroke; they read
  RATE MiB/s on average
- the log on the same drives
- 4 GiB of memory for the strips of a rebuild or scrub, of which it takes 64 MiB for each drive

## Without hosts

| drives | restored MiB/s | limit MiB/s | share | hours for 20 TB | two lost: critical | if even | critical for s | all restored s | scrub MiB/s | share |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

const MIDDLE: &str = "
- **Restored** is the rate after the loss of one drive, from 15 % to 85 % of its content. The
  **limit** is (drives - 1) x sequential rate / 9, since each restored strip takes eight reads and a
  write.
- **Hours for 20 TB** are 20 TB divided by the measured rate.
- **Critical** stripes lost two of their ten strips and can lose no more. The two lost drives are in
  different enclosures where there are several. *If even* is the share if every set of ten drives
  were equally likely. The pool rebuilds critical stripes first. *Critical for* is the time until
  none is left.
- **Scrub** is what a scrub reads of each drive in a second, and its share of the sequential rate.

## A new drive, and one that leaves

| drives | copied back MiB/s | limit MiB/s | share | hours for 20 TB | moved MiB/s | limit MiB/s | share | hours for 20 TB | gone after s |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

const BESIDE: &str = "
## Beside hosts

Hosts read 4 KiB at random places and times, at half of the rate that the whole pool reaches with 16
reads under way for each drive. No `background_rate` is set.

| drives | reads/s | 99 % of reads, whole pool: ms | a drive lost, no rebuild yet: ms | rebuild: ms | times | restored MiB/s | share of the limit | hours for 20 TB |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

const TAIL: &str = "
- **Times** compares the hosts' 99th percentile beside the rebuild with that before it began, when
  each read of a lost strip took eight reads already.
- The published GNR figures (`gnr-tsm-40gbe`) cover throughput only. There is no published rebuild
  time or critical share to compare with.
";
