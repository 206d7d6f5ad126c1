//! The bounded table beside a twin that remembers every read.

use std::collections::BTreeMap;

use stele_ground::Dice;

use super::*;

/// Every end of a read from which no read went on, with the reads in a row before it. No limits.
#[derive(Default)]
struct Twin(BTreeMap<u64, u32>);

impl Twin {
    fn note(&mut self, at: u64, length: u64) -> bool {
        let row = self.0.remove(&at).unwrap_or(0) + 1;
        let here = self.0.entry(at + length).or_default();
        *here = row.max(*here);
        row >= ROW
    }
}

const GAP: u64 = 1 << 30;

/// So many readers in turn, with random reads between them. Answers the share of their reads that
/// was recognised, from the thirtieth of each on.
fn recognised(readers: u64, others: u64, length: u64) -> f64 {
    let (mut streams, mut twin, mut dice) = (Streams::default(), Twin::default(), Dice::new(readers ^ others << 32));
    let (mut known, mut all) = (0u64, 0u64);
    for turn in 0..60 {
        for reader in 0..readers {
            let is_stream = streams.note(reader * GAP + turn * length, length);
            assert!(twin.note(reader * GAP + turn * length, length) || !is_stream, "reader {reader}, turn {turn}");
            if turn >= 30 {
                (known, all) = (known + u64::from(is_stream), all + 1);
            }
            for _ in 0..others {
                let at = dice.below(1 << 20) * 4096 + (1 << 50);
                let is_stream = streams.note(at, 4096);
                assert!(twin.note(at, 4096) || !is_stream, "a random read at {at}");
            }
        }
    }
    assert!(streams.count() <= STREAMS_MAX);
    known as f64 / all as f64
}

#[test]
fn readers_in_turn_are_recognised_up_to_the_limit() {
    for (readers, others, length, least) in [
        (1, 0, 4096, 1.0),
        (8, 0, 65_536, 1.0),
        (128, 0, 131_072, 1.0),
        (128, 0, 12_288, 1.0),
        (512, 0, 131_072, 0.95),
        (8, 16, 65_536, 0.99),
        (128, 3, 131_072, 0.95),
        (400, 1, 131_072, 0.9),
    ] {
        let share = recognised(readers, others, length);
        assert!(share >= least, "{readers} readers, {others} others between two reads: {share}");
    }
}

#[test]
fn more_readers_than_the_limit_leave_the_first_ones_known() {
    let mut streams = Streams::default();
    let mut known = 0;
    for turn in 0..100u64 {
        for reader in 0..2 * STREAMS_MAX as u64 {
            streams.note(reader * GAP + turn * 4096, 4096);
            if turn == 99 {
                known += usize::from(streams.fetched(reader * GAP + (turn + 1) * 4096).is_some());
            }
        }
    }
    assert_eq!(known, STREAMS_MAX, "all places are held by readers that go on");
}

#[test]
fn an_ended_stream_is_forgotten() {
    let mut streams = Streams::default();
    (0..8).for_each(|turn| assert_eq!(streams.note(turn * 4096, 4096), turn >= 2, "read {turn}"));
    assert_eq!(streams.count(), 1);
    let random = |streams: &mut Streams, count: u64| {
        (0..count).for_each(|n| assert!(!streams.note(GAP + n * 3 * 4096, 4096)));
    };
    random(&mut streams, KEPT - SWEEP);
    assert!(streams.note(8 * 4096, 4096), "it goes on");
    random(&mut streams, KEPT + SWEEP);
    assert_eq!(streams.count(), 0);
    assert!(!streams.note(9 * 4096, 4096), "it begins anew");
}

#[test]
fn a_read_that_ends_at_a_stream_takes_nothing_over() {
    let mut streams = Streams::default();
    (0..4).for_each(|turn| assert_eq!(streams.note(turn * 4096, 4096), turn >= 2));
    streams.note_fetched(16_384, 1 << 20);
    assert!(!streams.note(8192, 8192), "another read up to the same place");
    assert_eq!(streams.fetched(16_384), Some(1 << 20));
    assert!(streams.note(16_384, 4096));
    assert_eq!(streams.fetched(20_480), Some(1 << 20));
}

#[test]
fn readers_that_meet_go_on_as_one() {
    let mut streams = Streams::default();
    (0..4).for_each(|turn| assert_eq!(streams.note(turn * 4096, 4096), turn >= 2));
    (10..13).for_each(|turn| assert_eq!(streams.note(turn * 2048, 2048), turn >= 12));
    assert_eq!(streams.count(), 2);
    streams.note_fetched(16_384, 1 << 20);
    assert!(streams.note(16_384, 10_240), "it ends where the other goes on");
    assert_eq!((streams.count(), streams.fetched(26_624)), (1, Some(1 << 20)));
}

#[test]
fn random_reads_of_a_small_volume_are_no_streams() {
    let (mut streams, mut dice) = (Streams::default(), Dice::new(7));
    // 64 MiB: many reads begin where one of the last thousand ended.
    let known = (0..100_000).filter(|_| streams.note(dice.below(1 << 14) * 4096, 4096)).count();
    assert!(known < 100, "{known} of 100,000");
}
