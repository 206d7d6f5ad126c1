//! Pieces that writers in order send are written as whole stripes, and no writer waits for a rest
//! that does not come.

use stele_ground::{Bytes, Dice, Duration, VolumeId};
use stele_media::{Buffer, Op};

use super::KIB;
use crate::model::{Command, PoolStatus, VolumeSpec, WriteMode};
use crate::testing::{Answer, Fixture, pattern, spec};
use crate::volumes::gathering::{GRACE, WAIT_MAX};

const STRIPE: usize = 128 * KIB;
const STRIPES: usize = 16;
const SIZE: usize = STRIPES * STRIPE;

fn write(data: &[u8], at: usize, length: usize) -> Op {
    Op::Write { at: at as u64, data: vec![Buffer::copy_of(&data[at..at + length]).freeze()], fua: false }
}

/// Writes in order of these lengths, over and over, from the beginning to the end.
fn in_order(data: &[u8], lengths: &[usize]) -> Vec<Op> {
    let (mut ops, mut at) = (Vec::new(), 0);
    for length in lengths.iter().cycle() {
        let length = (*length).min(data.len() - at);
        if length == 0 {
            return ops;
        }
        ops.push(write(data, at, length));
        at += length;
    }
    ops
}

fn pool(seed: u64, mode: WriteMode) -> (Fixture, VolumeId) {
    let mut fixture = Fixture::new(12, 12, seed);
    let volume = fixture.create_volume(VolumeSpec { mode, ..spec("a", "8+2", SIZE as u64) }).id;
    (fixture, volume)
}

fn counted(status: &PoolStatus, name: &str) -> u64 {
    status.counters.iter().find(|(counter, _)| *counter == name).map(|(_, value)| *value).expect("counted")
}

fn all_good(answers: Vec<Option<Answer>>) {
    answers.into_iter().for_each(|answer| assert_eq!(answer.expect("answered").1, Ok(())));
}

#[test]
fn pieces_in_order_are_written_as_whole_stripes() {
    for (lengths, mode) in [
        (&[48 * KIB][..], WriteMode::WriteBack),
        (&[64 * KIB], WriteMode::WriteBack),
        (&[8 * KIB, 100 * KIB, 20 * KIB], WriteMode::WriteThrough),
        (&[300 * KIB], WriteMode::WriteBack),
    ] {
        let (mut fixture, volume) = pool(1, mode);
        let data = pattern(1, SIZE);
        let (_, answers) = fixture.submit_all(volume, in_order(&data, lengths));
        all_good(answers);
        let status = fixture.status();
        // The first piece finds no other under way, and the last may have none behind it.
        let whole = counted(&status, "full stripes");
        assert!(whole + 2 >= STRIPES as u64, "{lengths:?}: {whole} whole stripes");
        assert!(counted(&status, "log bytes") <= 3 * STRIPE as u64, "{lengths:?}: {:?}", status.counters);
        fixture.crash().expect("opened");
        assert!(fixture.read(volume, 0, SIZE).expect("read") == data, "{lengths:?}");
        assert_eq!(fixture.scrub(), (0, 0), "{lengths:?}");
    }
}

#[test]
fn a_writer_with_one_request_under_way_waits_for_nothing() {
    let (mut fixture, volume) = pool(2, WriteMode::WriteBack);
    let data = pattern(2, SIZE);
    for op in in_order(&data, &[32 * KIB]) {
        let begun = fixture.test_drives.now();
        all_good(fixture.submit_all(volume, vec![op]).1);
        let took = fixture.test_drives.now().since(begun);
        assert!(took < GRACE, "it took {took:?}");
    }
    assert_eq!(counted(&fixture.status(), "full stripes"), 0);
}

#[test]
fn a_piece_whose_rest_does_not_come_goes_its_own_way_soon_and_the_next_ones_at_once() {
    let (mut fixture, volume) = pool(3, WriteMode::WriteBack);
    let data = pattern(3, SIZE);
    let mut waited = 0;
    for stripe in 1..9 {
        let at = stripe * STRIPE;
        // The second goes on where the first ends, and begins a stripe.
        let ops = vec![write(&data, at - 32 * KIB, 32 * KIB), write(&data, at, 16 * KIB)];
        let begun = fixture.test_drives.now();
        all_good(fixture.submit_all(volume, ops).1);
        let took = fixture.test_drives.now().since(begun);
        assert!(took.0 < WAIT_MAX.0 / 2, "it took {took:?}");
        waited += u32::from(took >= GRACE);
        // The stream goes on to the next stripe, one write at a time.
        let rest = 16 * KIB..STRIPE - 32 * KIB;
        all_good(fixture.submit_all(volume, vec![write(&data, at + rest.start, rest.len())]).1);
    }
    assert_eq!(waited, 2, "it waits seldom for what did not come before");
    fixture.crash().expect("opened");
    let written = STRIPE - 32 * KIB..9 * STRIPE - 32 * KIB;
    assert!(fixture.read(volume, written.start as u64, written.len()).expect("read") == data[written]);
}

/// Whatever pieces overlap, each block is that of one of the writes.
#[test]
fn pieces_that_overlap_leave_one_of_them() {
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let (mut fixture, volume) = pool(seed, WriteMode::WriteBack);
        let (first, second) = (pattern(seed, SIZE), pattern(seed + 1000, SIZE));
        let mut ops = in_order(&first, &[32 * KIB, 16 * KIB]);
        for _ in 0..20 {
            let at = dice.below((SIZE / 4096 - 8) as u64) as usize * 4096;
            let place = dice.below(ops.len() as u64) as usize;
            ops.insert(place, write(&second, at, 4096 * (1 + dice.below(8) as usize)));
        }
        all_good(fixture.submit_all(volume, ops).1);
        for moment in ["written", "reopened"] {
            let now = fixture.read(volume, 0, SIZE).expect("read");
            for ((block, one), other) in now.chunks(4096).zip(first.chunks(4096)).zip(second.chunks(4096)) {
                assert!(block == one || block == other, "seed {seed}, {moment}: a block of neither");
            }
            fixture.crash().expect("opened");
        }
        assert_eq!(fixture.scrub(), (0, 0));
    }
}

#[test]
fn a_power_cut_while_pieces_are_gathered_leaves_what_was_answered() {
    let data = pattern(5, SIZE);
    for cut in 1..120 {
        let (mut fixture, volume) = pool(cut, WriteMode::WriteBack);
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + cut * 3);
        let ops = in_order(&data, &[48 * KIB]);
        let (_, answers) = fixture.submit_all(volume, ops);
        fixture.test_drives.cut_at = None;
        fixture.crash().expect("opened");
        let now = fixture.read(volume, 0, SIZE).expect("read");
        for (number, answer) in answers.iter().enumerate() {
            let range = number * 48 * KIB..((number + 1) * 48 * KIB).min(SIZE);
            let blocks = now[range.clone()].chunks(4096).zip(data[range].chunks(4096));
            for (block, written) in blocks {
                let is_old = answer.is_none() && block.iter().all(|byte| *byte == 0);
                assert!(block == written || is_old, "cut {cut}: write {number} {:?}", answer.is_some());
            }
        }
        assert_eq!(fixture.scrub(), (0, 0), "cut {cut}");
    }
}

#[test]
fn pieces_that_cannot_be_written_together_are_refused_each_and_nothing_hangs() {
    let (mut fixture, volume) = pool(6, WriteMode::WriteBack);
    fixture.options.rebuild_after = Duration::from_secs(3600);
    let data = pattern(6, SIZE);
    all_good(fixture.submit_all(volume, in_order(&data, &[STRIPE])).1);
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let row = fixture.drives_of_a_row();
    fixture.pull(&row);
    let (_, answers) = fixture.submit_all(volume, in_order(&pattern(7, SIZE), &[48 * KIB]));
    assert!(answers.iter().all(Option::is_some), "each is answered");
    for drive in row {
        fixture.give_back(drive);
    }
    fixture.idle();
    assert_eq!(fixture.read(volume, 0, SIZE).expect("read").len(), SIZE);
}

#[test]
fn the_short_last_stripe_of_a_volume_is_gathered_too() {
    let mut fixture = Fixture::new(12, 12, 8);
    let size = STRIPE + 40 * KIB;
    let shape = VolumeSpec { size: Bytes(size as u64), ..spec("a", "8+2", size as u64) };
    let volume = fixture.create_volume(shape).id;
    let data = pattern(8, size);
    all_good(fixture.submit_all(volume, in_order(&data, &[16 * KIB])).1);
    fixture.crash().expect("opened");
    assert!(fixture.read(volume, 0, size).expect("read") == data);
}

/// Each stripe that waited for room would otherwise add a row of its own.
#[test]
fn one_large_write_takes_no_more_rows_than_it_fills() {
    let mut fixture = Fixture::new(10, 10, 1);
    let volume = fixture.create_volume(spec("a", "mirror-3", 40 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 32 << 20)).expect("written");
    let rows = fixture.engine().layout.read().rows().count();
    assert!(rows < 40, "{rows} rows");
}
