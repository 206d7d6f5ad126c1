//! Whole pools: what a host writes is what it reads, whatever happens to drives and power in between.

use stele_ground::Bytes;

use crate::testing::{Bed, Trouble, pattern, spec};
use crate::{Command, State};

const KIB: usize = 1024;

#[test]
fn what_is_written_is_read() {
    let mut bed = Bed::new(6, 3, 1);
    let volume = bed.create_volume(spec("a", "4+2", 8 << 20)).id;
    let cases: &[(u64, usize)] = &[
        (0, 4 * KIB),
        (64 * KIB as u64, 64 * KIB),
        (256 * KIB as u64, 256 * KIB),
        (1 << 20, 20 * KIB),
        ((8 << 20) - 4096, 4096),
    ];
    for (at, length) in cases {
        let data = pattern(*at + 1, *length);
        bed.write(volume, *at, &data).expect("written");
        assert!(bed.read(volume, *at, *length).expect("read") == data, "at {at}");
    }
    bed.command(Command::Checkpoint).expect("a checkpoint");
    for (at, length) in cases {
        assert!(bed.read(volume, *at, *length).expect("read") == pattern(*at + 1, *length), "destaged, at {at}");
    }
    assert_eq!(bed.scrub(), (0, 0));
    bed.command(Command::Close).expect("closed");
    assert_eq!(*bed.pool.state(), State::Closed);
    bed.open().expect("opened");
    for (at, length) in cases {
        assert!(bed.read(volume, *at, *length).expect("read") == pattern(*at + 1, *length), "reopened, at {at}");
    }
    assert_eq!(bed.scrub(), (0, 0));
}

#[test]
fn acknowledged_writes_survive_a_power_cut() {
    for seed in 0..40 {
        let mut bed = Bed::new(6, 3, seed);
        let volume = bed.create_volume(spec("a", "4+2", 4 << 20)).id;
        let mut model = vec![0; 4 << 20];
        let mut dice = stele_ground::Dice::new(seed);
        bed.yard.cut_at = Some(bed.yard.operations + dice.below(3000));
        let mut uncertain = None;
        loop {
            let length = [4 * KIB, 8 * KIB, 64 * KIB, 128 * KIB][dice.below(4) as usize];
            let at = dice.below(((4 << 20) - length as u64) / length as u64) as usize * length;
            let data = pattern(dice.roll(), length);
            match bed.write(volume, at as u64, &data) {
                Ok(()) => model[at..at + length].copy_from_slice(&data),
                Err(Trouble::PowerCut) => {
                    uncertain = Some((at, data));
                    break;
                }
                Err(other) => panic!("seed {seed}: {other:?}"),
            }
            if dice.one_in(20) && matches!(bed.command(Command::Checkpoint), Err(Trouble::PowerCut)) {
                break;
            }
        }
        bed.crash().unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        let read = bed.read(volume, 0, 4 << 20).expect("read");
        for (block, (have, want)) in read.chunks(4096).zip(model.chunks(4096)).enumerate() {
            let in_flight = uncertain.as_ref().is_some_and(|(at, data)| {
                let inside = (block * 4096).checked_sub(*at).filter(|inside| *inside < data.len());
                inside.is_some_and(|inside| have == &data[inside..inside + 4096])
            });
            assert!(have == want || in_flight, "seed {seed}: block {block} is neither old nor new");
        }
        assert_eq!(bed.scrub(), (0, 0), "seed {seed}");
    }
}

#[test]
fn an_enclosure_may_go() {
    let mut bed = Bed::new(12, 6, 3);
    let volume = bed.create_volume(spec("a", "8+2", 8 << 20)).id;
    let data = pattern(5, 4 << 20);
    bed.write(volume, 0, &data).expect("written");
    bed.write(volume, 5 << 20, &data[..40 * KIB]).expect("written");
    bed.command(Command::Checkpoint).expect("a checkpoint");
    bed.pull(&[0, 6]);
    assert!(bed.read(volume, 0, 4 << 20).expect("read") == data);
    bed.write(volume, 4096, &data[..8 * KIB]).expect("written while degraded");
    bed.idle();
    let status = bed.status();
    assert!(status.rebuild.is_none(), "the rebuild has ended: {:?}", status.rebuild);
    assert!(status.rebuilt > 0);
    assert_eq!(status.lost_stripes, 0);
    // As good as before: two more may go, since the spare space holds what was lost.
    bed.pull(&[1, 7]);
    let mut expected = data.clone();
    expected[4096..4096 + 8 * KIB].copy_from_slice(&data[..8 * KIB]);
    assert!(bed.read(volume, 0, 4 << 20).expect("read") == expected);
}

#[test]
fn a_full_pool_says_so_and_lives() {
    let mut bed = Bed::new(4, 4, 4);
    let volume = bed.create_volume(spec("a", "2+1", 1 << 30)).id;
    let data = pattern(5, 1 << 20);
    let mut stored = 0u64;
    let error = loop {
        match bed.write(volume, stored << 20, &data) {
            Ok(()) => stored += 1,
            Err(Trouble::Media(error)) => break error,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(error.fault, stele_media::MediaFault::Full, "{error}");
    assert!(stored > 20, "{stored} MiB fitted");
    assert!(bed.read(volume, 0, 1 << 20).expect("read") == data);
    bed.write(volume, 8192, &data[..4096]).expect("overwriting needs no room");
    bed.discard(volume, 1 << 20, 1 << 20).expect("discarded");
    bed.write(volume, stored << 20, &data).expect("room again");
    assert!(bed.status().used > Bytes(0));
}
