use super::*;

const SPEC: HardDriveSpec = HardDriveSpec::published_15k();
const CAPACITY: u64 = SPEC.sectors * 512;

fn drive(seed: u64) -> (HardDrive, Dice) {
    let mut dice = Dice::new(seed);
    (HardDrive::new(SPEC, &mut dice), dice)
}

/// Accesses a second of random 8 KiB reads on a share of the drive, with this many outstanding.
fn reads_a_second(outstanding: usize, stroke: f64, count: u64) -> f64 {
    let (mut drive, mut dice) = drive(7);
    let blocks = (CAPACITY as f64 * stroke) as u64 / 8192;
    let mut draw = || CommandWork::Read { at: dice.below(blocks) * 8192, length: 8192 };
    let mut waiting: Vec<CommandWork> = (0..outstanding).map(|_| draw()).collect();
    let mut now = Instant::default();
    for _ in 0..count {
        let window = drive.window().min(waiting.len());
        let chosen = drive.choose(now, &waiting[..window]);
        let work = waiting.remove(chosen);
        now = now + drive.service(now, work);
        waiting.push(draw());
    }
    count as f64 / now.since(Instant::default()).as_secs_f64()
}

/// The rate at a mean response of 20 ms, interpolated between the two loads around it.
fn rate_at_20_ms(stroke: f64, count: u64) -> f64 {
    let mut last = (0.0, 0.0);
    for outstanding in 2..40 {
        let rate = reads_a_second(outstanding, stroke, count);
        let response = outstanding as f64 / rate;
        if response > 0.02 {
            let share = (0.02 - last.1) / (response - last.1);
            return last.0 + (rate - last.0) * share;
        }
        last = (rate, response);
    }
    last.0
}

#[test]
fn a_drive_answers_the_published_random_reads_at_20_ms() {
    let rate = rate_at_20_ms(0.08, 20_000);
    // The published 418 are a drive's share of an array, whose drives are never equally busy. A
    // single drive does more.
    assert!((1.0..1.08).contains(&(rate / 418.0)), "{rate:.0} a second instead of 418");
}

#[test]
fn a_wider_stroke_costs_about_what_was_published() {
    let base = rate_at_20_ms(0.08, 10_000);
    for (stroke, published) in [(0.15, 0.88), (0.30, 0.80), (0.45, 0.74), (0.60, 0.72), (0.75, 0.66), (0.90, 0.65)] {
        let ours = rate_at_20_ms(stroke, 10_000) / base;
        // The published factors are for mixed reads and writes.
        assert!((ours / published - 1.0).abs() < 0.15, "stroke {stroke}: {ours:.3} against {published}");
    }
}

#[test]
fn the_arm_takes_the_stated_times_and_never_less_for_more() {
    let (drive, _) = drive(1);
    let third = drive.cylinders / 3;
    assert_eq!(drive.seek(0), 0.0);
    assert_eq!(drive.seek(1), SPEC.seek_track.0 as f64);
    assert!((drive.seek(third) / SPEC.seek_average.0 as f64 - 1.0).abs() < 0.001);
    assert!((drive.seek(drive.cylinders) / SPEC.seek_full.0 as f64 - 1.0).abs() < 0.001);
    for distance in 1..drive.cylinders {
        assert!(drive.seek(distance) >= drive.seek(distance - 1), "{distance}");
    }
}

#[test]
fn streams_run_at_the_rate_of_their_zone() {
    for (start, share) in [(0, 1.0), (CAPACITY - (64 << 20), SPEC.inner_share)] {
        let (mut drive, _) = drive(3);
        let (mut now, count, length) = (Instant::default(), 200, 256 << 10);
        for number in 0..count {
            now = now + drive.service(now, CommandWork::Read { at: start + number * length, length });
        }
        let rate = (count * length) as f64 / now.since(Instant::default()).as_secs_f64();
        let under_the_head = SPEC.outer_rate as f64 * share;
        // A track of 4 ms is followed by a step of 0.85 ms.
        assert!(rate < under_the_head && rate > under_the_head * 0.75, "{rate:.0} of {under_the_head:.0}");
    }
}

#[test]
fn a_sector_comes_by_once_a_revolution() {
    let (mut drive, _) = drive(5);
    let work = CommandWork::Write { at: 1 << 30, length: 4096, fua: true };
    let mut now = Instant::default();
    now = now + drive.service(now, work);
    for _ in 0..5 {
        let time = drive.service(now, work);
        // The same sectors again come exactly one revolution later.
        assert!(time.0.abs_diff(SPEC.revolution.0) < 1000, "{time}");
        now = now + time;
    }
}

#[test]
fn every_sector_has_a_place_and_neighbours_are_near() {
    let (drive, _) = drive(1);
    let mut last = 0;
    for sector in (0..SPEC.sectors).step_by(997) {
        let spot = drive.spot(sector);
        assert!(
            spot.cylinder < drive.cylinders && spot.cylinder >= last && spot.cylinder <= last + 1,
            "{sector}: {spot:?}"
        );
        last = spot.cylinder;
    }
}

#[test]
fn the_same_seed_gives_the_same_times() {
    assert_eq!(reads_a_second(8, 0.08, 2_000).to_bits(), reads_a_second(8, 0.08, 2_000).to_bits());
}
