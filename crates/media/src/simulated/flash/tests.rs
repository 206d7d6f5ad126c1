use super::*;

const SPEC: FlashSpec = FlashSpec::enterprise();
const PLAIN: FlashSpec = FlashSpec { power_loss_protection: false, ..SPEC };

fn write(at: u64, length: u64) -> CommandWork {
    CommandWork::Write { at, length, fua: false }
}

#[test]
fn an_idle_drive_answers_a_read_in_sensing_and_moving_time() {
    let mut drive = Flash::new(SPEC);
    let time = drive.service(Instant(1_000), CommandWork::Read { at: 0, length: 4096 });
    assert_eq!(time.0, SPEC.overhead.0 + SPEC.read.0 + drive.moving(4096));
}

#[test]
fn reads_of_different_dies_overlap_and_reads_of_one_die_queue() {
    let mut drive = Flash::new(SPEC);
    let first = drive.service(Instant(0), CommandWork::Read { at: 0, length: 4096 });
    let other = drive.service(Instant(0), CommandWork::Read { at: SPEC.page, length: 4096 });
    let same = drive.service(Instant(0), CommandWork::Read { at: 0, length: 4096 });
    assert_eq!(first, other);
    assert_eq!(same.0, first.0 + SPEC.read.0);
}

#[test]
fn a_flush_waits_for_programming_only_without_power_loss_protection() {
    for (spec, waits) in [(SPEC, false), (PLAIN, true)] {
        let mut drive = Flash::new(spec);
        let written = drive.service(Instant(0), write(0, 16 << 10));
        assert!(written < spec.program, "a write is complete in memory, not on the die: {written}");
        let flush = drive.service(Instant(written.0), CommandWork::Flush);
        assert_eq!(flush.0 >= spec.program.0 - written.0, waits, "{flush}");
        let through = CommandWork::Write { at: spec.page, length: 16 << 10, fua: true };
        assert_eq!(drive.service(Instant(1 << 40), through) >= spec.program, waits);
    }
}

#[test]
fn writes_beyond_the_memory_go_at_the_pace_of_the_dies() {
    let mut drive = Flash::new(FlashSpec { reclaim_every: u64::MAX, ..SPEC });
    let (mut last, count) = (0, 40_000);
    for number in 0..count {
        // A write every 5 us: nearly twice the rate of the dies.
        let now = Instant(number * 5_000);
        last = last.max(now.0 + drive.service(now, write(number * SPEC.page, SPEC.page)).0);
    }
    let dies = (SPEC.channels * SPEC.dies_per_channel) as u64;
    let pace = SPEC.page * dies * 1_000_000_000 / SPEC.program.0;
    let rate = (u128::from(count * SPEC.page) * 1_000_000_000 / u128::from(last)) as u64;
    assert!(rate > pace && rate < pace * 13 / 10, "{rate} against {pace}");
}

#[test]
fn reclaiming_space_stalls_a_die_now_and_then() {
    let spec = FlashSpec { reclaim_every: 1 << 20, ..SPEC };
    let mut drive = Flash::new(spec);
    let (mut longest, mut now) = (0, 0);
    for _ in 0..200 {
        drive.service(Instant(now), write(0, spec.page));
        let read = drive.service(Instant(now), CommandWork::Read { at: 0, length: 4096 });
        longest = longest.max(read.0);
        now += spec.program.0 + read.0;
    }
    assert!(longest > spec.erase.0, "no read met an erasure: {longest}");
}
