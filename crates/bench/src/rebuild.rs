//! How long a rebuild lasts and how much is critical after two losses, against the number of drives: the real array on
//! modelled drives in virtual time, the same digits on every run. Contents are zeros, so that only time is simulated at scale.

use stele_array::{DriveHealth, OpenOptions, PoolStatus};
use stele_ground::{Bytes, Dice, Duration, GIB, MIB};
use stele_media::simulated::{Model, Plain};
use stele_media::{Buffer, Op};
use stele_sim::clinic::{Clinic, Ward};

use crate::harness::{Bench, Unit};

/// What each drive holds of the volume.
const HELD: u64 = 96 * MIB;
const DRIVE: u64 = 256 * MIB;
const STRIP: u64 = 256 << 10;
/// Drives of a shelf.
const SHELF: usize = 12;
const COUNTS: [usize; 4] = [12, 24, 58, 116];
/// The drive that published figures are scaled to.
const REAL: u64 = 4_000 * GIB;

/// One arm: 6 ms to a place, 200 MB/s there.
fn drive(dice: Dice) -> Box<dyn Model> {
    Box::new(Plain {
        channels: 1,
        command: Duration::from_millis(6),
        flush: Duration::from_millis(4),
        rate: 200_000_000,
        jitter: Duration(0),
        dice,
    })
}

struct Figures {
    one: Duration,
    two: Duration,
    critical: Duration,
    share: f64,
    /// Bytes that lay on one drive.
    held: u64,
}

fn measure(drives: usize) -> Result<Figures, String> {
    let ward = Ward {
        enclosures: (0..drives).map(|drive| (drive / SHELF) as u32).collect(),
        drive_size: Bytes(DRIVE),
        log: Bytes(16 * MIB),
        spare_drives: Some(2),
        open: OpenOptions { rebuild_after: Duration(0), ..OpenOptions::default() },
        seed: drives as u64,
        model: &drive,
    };
    let mut clinic = Clinic::new(ward)?;
    fill(&mut clinic, drives)?;
    let held = clinic.status()?.drives[0].used.0;
    let moment = Duration::from_millis(20);
    let most = Duration::from_secs(24 * 3600);
    let whole = |status: &PoolStatus| status.rebuild.is_none() && status.copy_back.is_none();
    // One drive.
    clinic.machine.detach(0);
    let begun = clinic.machine.now;
    clinic.until(moment, most, |status| status.rebuild.is_some())?;
    clinic.until(moment, most, whole)?;
    let one = clinic.machine.now.since(begun);
    clinic.machine.attach(0);
    let well = |status: &PoolStatus| status.drives.iter().all(|drive| drive.health == DriveHealth::Healthy);
    clinic.until(Duration::from_secs(1), most, |status| well(status) && whole(status))?;
    // Two drives at once, of different shelves where there are several.
    let other = if drives > SHELF { SHELF + 1 } else { 1 };
    clinic.machine.detach(0);
    clinic.machine.detach(other);
    let begun = clinic.machine.now;
    clinic.pass(Duration::from_millis(1));
    let status = clinic.status()?;
    let share = status.critical_stripes as f64 / status.stripes as f64;
    clinic.until(moment, most, |status| status.critical_stripes == 0)?;
    let critical = clinic.machine.now.since(begun);
    clinic.until(moment, most, whole)?;
    let two = clinic.machine.now.since(begun);
    if clinic.status()?.lost_stripes > 0 {
        return Err(format!("{drives} drives: stripes were lost"));
    }
    Ok(Figures { one, two, critical, share, held })
}

/// Whole stripes of zeros over all of the volume.
fn fill(clinic: &mut Clinic, drives: usize) -> Result<(), String> {
    let stripe = 8 * STRIP;
    let stripes = drives as u64 * HELD / (10 * STRIP);
    let volume = clinic.volume("a", "8+2", stripes * stripe, STRIP)?;
    let zeros = Buffer::zeroed(stripe as usize).freeze();
    let depth = 4 * drives as u64;
    for first in (0..stripes).step_by(depth as usize) {
        let tags: Vec<u64> = (first..stripes.min(first + depth))
            .map(|at| clinic.submit(volume, Op::Write { at: at * stripe, data: vec![zeros.clone()], fua: false }))
            .collect();
        for tag in tags {
            let (_, result, _) = clinic.wait(tag, Duration::from_secs(3600)).ok_or("a write was not answered")?;
            result.map_err(|error| error.to_string())?;
        }
    }
    clinic.command(stele_array::Command::Checkpoint).map(drop)
}

/// Stripes of which two given drives hold strips, of all, if every set of ten drives were as likely.
fn even_share(drives: usize) -> f64 {
    10.0 * 9.0 / (drives * (drives - 1)) as f64
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    bench.note("8+2, strips of 256 KiB, shelves of 12; a drive takes 6 ms to a place and moves 200 MB/s; no hosts.");
    let mut lines = Vec::new();
    let mut first = None;
    for drives in COUNTS {
        if !bench.wants(&format!("{drives} drives")) {
            continue;
        }
        let figures = measure(drives)?;
        let seconds = |span: Duration| span.as_secs_f64();
        let real = |span: Duration| seconds(span) * (REAL as f64 / figures.held as f64) / 3600.0;
        let one = *first.get_or_insert(seconds(figures.one));
        bench.figure(&format!("{drives} drives, one lost"), Unit::less("s"), seconds(figures.one), None, None);
        bench.figure(
            &format!("{drives} drives, two lost: critical for"),
            Unit::less("s"),
            seconds(figures.critical),
            None,
            None,
        );
        lines.push(format!(
            "| {drives} | {:.2} | {:.1} | {:.1} | {:.2} % | {:.2} % | {:.2} | {:.2} | {:.1} |",
            seconds(figures.one),
            one / seconds(figures.one),
            real(figures.one),
            100.0 * figures.share,
            100.0 * even_share(drives),
            seconds(figures.critical),
            seconds(figures.two),
            real(figures.critical),
        ));
    }
    bench.note("");
    bench.note("| drives | one lost: s | times faster | 4 TB: h | two lost: critical | if even | critical for s | all s | 4 TB: critical for h |");
    bench.note("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    lines.iter().for_each(|line| bench.note(line));
    bench.note("");
    bench.note("4 TB: the time measured for what a drive held here, scaled to a drive that holds 4,000 GiB.");
    Ok(())
}
