//! Who is read ahead of, how far, and what comes of it.

use stele_ground::{Bytes, VolumeId};
use stele_media::{Buffer, Op};

use super::*;
use crate::model::{ArrayError, Command, OpenOptions, Reply, VolumeDetail};
use crate::testing::{Fixture, pattern, spec};
use crate::volumes::ahead::Ahead;
use crate::volumes::ahead::streams::KEPT;

const KIB: u64 = 1024;
const MIB: u64 = 1 << 20;
const SIZE: u64 = 8 * MIB;

/// A pool with nothing in its cache and a full volume of 2+1.
fn cold(cache: u64, ahead: Option<u8>) -> (Fixture, VolumeId) {
    let options = OpenOptions { block_cache: Bytes(cache), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(4, 4, 1, options);
    fixture.settle().expect("created");
    let volume = fixture.create_volume(spec("a", "2+1", SIZE)).id;
    for at in (0..SIZE).step_by(1 << 20) {
        fixture.write(volume, at, &pattern(at, 1 << 20)).expect("written");
    }
    if ahead.is_some() {
        fixture.command(Command::SetVolume { name: "a".into(), read_ahead: ahead, mode: None }).expect("set");
    }
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    (fixture, volume)
}

fn detail(fixture: &mut Fixture) -> VolumeDetail {
    match fixture.command(Command::ShowVolume { name: "a".into() }) {
        Ok(Reply::Detail(detail)) => *detail,
        other => panic!("{other:?}"),
    }
}

fn read(fixture: &mut Fixture, volume: VolumeId, at: u64, length: u64) {
    let data = fixture.read(volume, at, length as usize).expect("read");
    let inside = (at % MIB) as usize;
    assert!(data == pattern(at / MIB * MIB, 1 << 20)[inside..inside + length as usize], "at {at}");
}

#[test]
fn a_sequential_reader_finds_what_it_asks_for() {
    for (stripes, length) in [(1, 8 * KIB), (4, 4 * KIB), (4, 128 * KIB), (16, 16 * KIB)] {
        let (mut fixture, volume) = cold(32 * MIB, Some(stripes));
        (0..SIZE / length).for_each(|n| read(&mut fixture, volume, n * length, length));
        let seen = detail(&mut fixture);
        let most = SIZE / length * 3 / 4;
        assert!(seen.hits >= most || length > 32 * KIB, "{stripes} stripes, reads of {length}: {seen:?}");
        assert!(seen.ahead.fetched.0 > SIZE / 2, "{seen:?}");
        assert_eq!((seen.ahead.useful, seen.ahead.wasted), (seen.ahead.fetched, Bytes(0)), "all of it was asked for");
    }
}

#[test]
fn several_readers_are_told_apart() {
    let (mut fixture, volume) = cold(32 * MIB, None);
    for n in 0..64 {
        for reader in 0..4 {
            read(&mut fixture, volume, reader * 2 * MIB + n * 16 * KIB, 16 * KIB);
        }
    }
    let seen = detail(&mut fixture);
    assert!(seen.hits >= 4 * 64 * 3 / 4, "{seen:?}");
    assert!(seen.ahead.useful.0 * 10 > seen.ahead.fetched.0 * 7, "{seen:?}");
}

#[test]
fn nothing_is_read_ahead_of_random_reads() {
    let (mut fixture, volume) = cold(32 * MIB, Some(16));
    let places = SIZE / (4 * KIB);
    (0..places).for_each(|n| read(&mut fixture, volume, n * 797 % places * 4 * KIB, 4 * KIB));
    assert_eq!(detail(&mut fixture).ahead, AheadCounts::default());
}

#[test]
fn a_multiplier_of_zero_reads_nothing_ahead() {
    let (mut fixture, volume) = cold(32 * MIB, Some(0));
    (0..64).for_each(|n| read(&mut fixture, volume, n * 16 * KIB, 16 * KIB));
    assert_eq!(detail(&mut fixture).ahead, AheadCounts::default());
}

#[test]
fn the_multiplier_is_kept_with_the_volume() {
    let (mut fixture, _) = cold(32 * MIB, Some(7));
    assert_eq!(detail(&mut fixture).status.read_ahead, 7);
    fixture.command(Command::SnapshotVolume { volume: "a".into(), name: "s".into(), made: 0 }).expect("a snapshot");
    fixture.crash().expect("opened");
    assert_eq!(detail(&mut fixture).status.read_ahead, 7, "over a snapshot and a crash");
    let refused = fixture.command(Command::SetVolume { name: "a".into(), read_ahead: Some(17), mode: None });
    assert!(matches!(refused, Err(crate::testing::NoAnswer::Array(ArrayError::Invalid(_)))), "{refused:?}");
    let owned = crate::model::VolumeSpec { owner: Some("archive".into()), ..spec("data", "2+1", MIB) };
    assert_eq!(fixture.create_volume(owned).read_ahead, 0);
}

#[test]
fn what_nobody_asks_for_is_wasted_and_leaves_first() {
    let (mut fixture, volume) = cold(2 * MIB, Some(3));
    (0..8).for_each(|n| read(&mut fixture, volume, n * 8 * KIB, 8 * KIB));
    // What is on its way arrives.
    fixture.idle();
    let before = detail(&mut fixture).ahead;
    assert!(before.useful < before.fetched, "{before:?}");
    // Backwards: no read begins where another has ended.
    let places = 3 * MIB / (4 * KIB);
    (0..places).rev().for_each(|n| read(&mut fixture, volume, 4 * MIB + n * 4 * KIB, 4 * KIB));
    let after = detail(&mut fixture).ahead;
    assert_eq!(after.fetched, before.fetched);
    assert_eq!(after.wasted, Bytes(after.fetched.0 - after.useful.0), "{after:?}");
}

#[test]
fn a_write_into_what_was_read_ahead_is_what_is_read() {
    let (mut fixture, volume) = cold(32 * MIB, Some(8));
    (0..4).for_each(|n| read(&mut fixture, volume, n * 16 * KIB, 16 * KIB));
    let new = pattern(77, 64 << 10);
    // Half of it while it is on its way.
    let data = vec![Buffer::copy_of(&new[..32 << 10]).freeze()];
    let ops = vec![
        Op::Read { at: 64 * KIB, buffer: Buffer::zeroed(16 << 10) },
        Op::Write { at: 160 * KIB, data, fua: false },
    ];
    fixture.submit_all(volume, ops);
    fixture.write(volume, 192 * KIB, &new[32 << 10..]).expect("written");
    assert!(fixture.read(volume, 160 * KIB, 64 << 10).expect("read") == new);
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert!(fixture.read(volume, 160 * KIB, 64 << 10).expect("read") == new);
    assert_eq!(fixture.scrub(), (0, 0));
}

#[test]
fn only_the_third_read_in_a_row_makes_a_stream() {
    let of = Measure { size: 1 << 20, stripe: 1 << 15, room: 1 << 20, left: 1 << 20 };
    let ahead = Ahead::of(4);
    assert_eq!(ahead.note(0, 4096, of), (false, None));
    assert_eq!(ahead.note(4096, 4096, of), (false, None));
    assert_eq!(ahead.note(8192, 4096, of), (true, Some(32 << 10..160 << 10)));
    assert_eq!(ahead.note(12288, 4096, of), (true, None), "enough is on its way");
    // Reads that are no streams do not displace it, until it has not been used for long.
    let others = |count: u64| (0..count).for_each(|n| assert_eq!(ahead.note(n * 8192 + 1, 4096, of), (false, None)));
    others(1000);
    assert_eq!(ahead.note(16384, 4096, of), (true, None));
    others(2 * KEPT);
    assert_eq!(ahead.note(20480, 4096, of), (false, None));
    // No room in the cache: nothing is fetched, but the stream is known.
    let narrow = Measure { room: 1 << 14, ..of };
    let ahead = Ahead::of(16);
    let last = (0..4).map(|n| ahead.note(n * 4096, 4096, narrow)).last();
    assert_eq!(last, Some((true, None)));
}

#[test]
fn the_room_is_divided_among_streams_down_to_parts_of_stripes() {
    // Stripes of 8 strips of 64 KiB, and of 9.
    for (stripe, room, readers, expected) in [
        (512 * KIB, 16 * MIB, 1, Some(4 * 512 * KIB)),
        (512 * KIB, 16 * MIB, 16, Some(2 * 512 * KIB)),
        (512 * KIB, 16 * MIB, 32, Some(512 * KIB)),
        (512 * KIB, 16 * MIB, 64, Some(256 * KIB)),
        (512 * KIB, 16 * MIB, 128, Some(128 * KIB)),
        (512 * KIB, 8 * MIB, 128, Some(64 * KIB)),
        (512 * KIB, 7 * MIB, 128, None),
        (576 * KIB, 16 * MIB, 128, Some(72 * KIB)),
        (576 * KIB, 4 * MIB, 128, None),
    ] {
        let ahead = Ahead::of(4);
        let of = Measure { size: 1 << 40, stripe, room, left: room };
        let fetch = |reader: u64, turn: u64, left: u64| {
            ahead.note((reader << 30) + turn * 4096, 4096, Measure { left, ..of }).1
        };
        for turn in 0..40 {
            (0..readers).for_each(|reader| assert_eq!(fetch(reader, turn, 0), None));
        }
        let last = fetch(readers - 1, 40, room).map(|range| range.end - range.start);
        assert_eq!(last, expected, "{readers} readers of stripes of {stripe}");
    }
}

#[test]
fn what_other_volumes_have_taken_is_not_fetched() {
    let of = Measure { size: 1 << 30, stripe: 1 << 16, room: 1 << 20, left: 1 << 17 };
    let ahead = Ahead::of(8);
    let fetched = |left: u64, turn: u64| ahead.note(turn * 4096, 4096, Measure { left, ..of }).1;
    (0..2).for_each(|turn| assert_eq!(fetched(0, turn), None));
    assert_eq!(fetched(0, 2), None, "nothing is left");
    assert_eq!(fetched(1 << 15, 3), None, "less than a stripe is left");
    assert_eq!(fetched(1 << 17, 4), Some(1 << 16..3 << 16), "two stripes are left");
}

/// Readers in turn, each in a part of its own, of a cold volume of 96 MiB. Answers the volume's
/// detail.
fn in_turn(readers: u64, cache: u64, length: u64) -> VolumeDetail {
    let size = 96 * MIB;
    let options = OpenOptions { block_cache: Bytes(cache), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(4, 4, 1, options);
    fixture.settle().expect("created");
    let volume = fixture.create_volume(spec("a", "2+1", size)).id;
    for at in (0..size).step_by(1 << 20) {
        fixture.write(volume, at, &pattern(at, 1 << 20)).expect("written");
    }
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let each = size / readers / MIB * MIB;
    for n in 0..MIB / length {
        (0..readers).for_each(|reader| read(&mut fixture, volume, reader * each + n * length, length));
    }
    detail(&mut fixture)
}

#[test]
fn ninety_six_readers_in_turn_find_what_they_ask_for() {
    let seen = in_turn(96, 64 * MIB, 16 * KIB);
    assert!(seen.hits >= 96 * 64 * 3 / 4, "{seen:?}");
    assert!(seen.ahead.useful.0 * 10 >= seen.ahead.fetched.0 * 8, "{seen:?}");
    assert!(seen.ahead.wasted.0 * 20 <= seen.ahead.fetched.0, "what was fetched waits for its reader: {seen:?}");
}
