//! What stays in the cache, and when dirty blocks leave it.

use stele_ground::{BLOCK, Bytes, Duration, VolumeId};

use crate::model::{CacheStatus, Command, OpenOptions, Reply, VolumeDetail, VolumeSpec};
use crate::testing::{Fixture, pattern, spec};

const KIB: u64 = 1024;
const MIB: u64 = 1 << 20;

fn fixture(options: OpenOptions, block: u64) -> (Fixture, VolumeId) {
    let mut fixture = Fixture::blank(4, 4, 1, options);
    fixture.settle().expect("created");
    let volume = VolumeSpec { block: Bytes(block), ..spec("a", "2+1", 16 * MIB) };
    let id = fixture.create_volume(volume).id;
    (fixture, id)
}

fn detail(fixture: &mut Fixture) -> VolumeDetail {
    match fixture.command(Command::ShowVolume { name: "a".into() }) {
        Ok(Reply::Detail(detail)) => *detail,
        other => panic!("{other:?}"),
    }
}

fn cache(fixture: &mut Fixture) -> CacheStatus {
    detail(fixture).cache
}

fn write_blocks(fixture: &mut Fixture, volume: VolumeId, blocks: std::ops::Range<u64>) {
    for block in blocks {
        fixture.write(volume, block * BLOCK as u64, &pattern(block, BLOCK)).expect("written");
    }
}

#[test]
fn a_scan_leaves_what_is_hot_in_the_cache() {
    // The reads of the scan, each below a block where the volume's block allows it: a block is then
    // met several times.
    for (name, block, length, in_order, ahead) in [
        ("whole blocks in order", 4096, 16 * KIB, true, 0),
        ("parts of blocks in order", 512, KIB, true, 0),
        ("parts of blocks, read ahead", 512, KIB, true, 4),
        ("whole blocks out of order", 4096, 4 * KIB, false, 4),
    ] {
        let options = OpenOptions { block_cache: Bytes(MIB), ..OpenOptions::default() };
        let (mut fixture, volume) = fixture(options, block);
        for at in (0..16 * MIB).step_by(1 << 20) {
            fixture.write(volume, at, &pattern(at, 1 << 20)).expect("written");
        }
        fixture.command(Command::SetVolume { name: "a".into(), read_ahead: Some(ahead), mode: None }).expect("set");
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
        let hot = |n: u64| n * 37 % 97 * 8 * KIB;
        for _ in 0..4 {
            (0..97).for_each(|n| drop(fixture.read(volume, hot(n), 4096).expect("read")));
        }
        let places = (12 * MIB) / length;
        for n in 0..places {
            let n = if in_order { n } else { n * 7919 % places };
            fixture.read(volume, 4 * MIB + n * length, length as usize).expect("read");
        }
        let before = detail(&mut fixture).hits;
        (0..97).for_each(|n| drop(fixture.read(volume, hot(n), 4096).expect("read")));
        let hits = detail(&mut fixture).hits - before;
        assert!(hits >= 90, "{name}: {hits} of 97 hot blocks outlived the scan");
    }
}

#[test]
fn flushing_starts_at_the_high_mark_and_stops_at_the_low_one() {
    for (high, low) in [(50, 25), (80, 80), (75, 0)] {
        let options = OpenOptions {
            dirty_limit: Bytes(MIB),
            flush_high: high,
            flush_low: low,
            flush_age: Duration::from_secs(100_000),
            ..OpenOptions::default()
        };
        let (mut fixture, volume) = fixture(options, 4096);
        let marks = [high, low].map(|percent| MIB * u64::from(percent) / 100);
        let blocks = marks[0] / BLOCK as u64;
        write_blocks(&mut fixture, volume, 0..blocks);
        fixture.pass(Duration::from_secs(60));
        let below = cache(&mut fixture);
        assert_eq!((below.dirty, below.flushing), (Bytes(blocks * BLOCK as u64), false), "{high}/{low}: nothing yet");
        write_blocks(&mut fixture, volume, blocks..blocks + 1);
        fixture.pass(Duration::from_secs(60));
        let after = cache(&mut fixture);
        // What leaves does so stripe by stripe: 32 KiB of this volume.
        let least = marks[1].saturating_sub(32 * KIB);
        assert!((least..=marks[1]).contains(&after.dirty.0), "{high}/{low}: {} are left", after.dirty);
        assert!(!after.flushing);
    }
}

#[test]
fn what_is_old_enough_is_flushed_whatever_its_number() {
    let options = OpenOptions { flush_age: Duration::from_secs(10), ..OpenOptions::default() };
    let (mut fixture, volume) = fixture(options, 4096);
    write_blocks(&mut fixture, volume, 0..3);
    fixture.pass(Duration::from_secs(9));
    assert_eq!(cache(&mut fixture).dirty, Bytes(3 * BLOCK as u64), "young");
    fixture.pass(Duration::from_secs(2));
    assert_eq!(cache(&mut fixture).dirty, Bytes(0), "old");
}

#[test]
fn marks_that_make_no_sense_are_refused() {
    for (high, low, dirty) in [(40, 50, MIB), (101, 50, MIB), (50, 40, 0)] {
        let options =
            OpenOptions { flush_high: high, flush_low: low, dirty_limit: Bytes(dirty), ..OpenOptions::default() };
        let mut fixture = Fixture::blank(4, 4, 1, options);
        assert!(fixture.settle().is_err(), "{high} {low} {dirty}");
    }
}
