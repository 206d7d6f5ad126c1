use super::*;

const UNIT: u64 = 8 << 10;

/// Every byte of the volume has one place, inside the part of its shard; and back again.
#[test]
fn every_byte_has_one_place_inside_its_part() {
    for shards in [1, 2, 3, 5] {
        let striping = Striping::new(UNIT, shards);
        for size in [512, UNIT, UNIT + 512, 5 * UNIT, 7 * UNIT + 4096, 30 * UNIT] {
            let parts = striping.parts(Bytes(size));
            assert_eq!(parts.iter().map(|part| part.0).sum::<u64>(), size);
            let mut next = vec![0; shards];
            let mut here = 0;
            for run in striping.runs(0, size) {
                assert_eq!(run.at, next[run.shard], "runs of a shard follow each other");
                next[run.shard] += run.length;
                let back: Vec<_> = striping.shown(run.shard, run.at, run.length).collect();
                assert_eq!(back, [(here, run.length)]);
                here += run.length;
            }
            let filled: Vec<Bytes> = next.into_iter().map(Bytes).collect();
            assert_eq!(filled, parts, "{shards} shards, {size} bytes");
        }
    }
}

/// A range lies where it lies as a part of the whole.
#[test]
fn a_range_has_the_runs_of_its_bytes() {
    let striping = Striping::new(UNIT, 3);
    for (at, length) in [(0, 512), (UNIT - 512, 1024), (5 * UNIT + 512, 4 * UNIT), (UNIT, UNIT)] {
        let place = |byte: u64| {
            let run = striping.runs(byte, 1).next().expect("a byte has a place");
            (run.shard, run.at)
        };
        let whole: Vec<_> =
            striping.runs(at, length).flat_map(|run| (0..run.length).map(move |n| (run.shard, run.at + n))).collect();
        let bytes: Vec<_> = (at..at + length).map(place).collect();
        assert_eq!(whole, bytes);
    }
}

/// Parts of a size give the size back. After a change that reached some shards only, the size lies
/// between the old and the new one.
#[test]
fn the_size_of_parts_lies_between_both_ends_of_a_change() {
    for shards in [1, 2, 3, 4] {
        let striping = Striping::new(UNIT, shards);
        let sizes: Vec<u64> = (1..40).map(|n| n * UNIT / 4).collect();
        for &before in &sizes {
            let old = striping.parts(Bytes(before));
            assert_eq!(striping.size(&old), Bytes(before));
            for &after in &sizes {
                let new = striping.parts(Bytes(after));
                for reached in 0..=shards {
                    // The last shards change first.
                    let parts: Vec<Bytes> = (0..shards)
                        .map(|shard| if shard + reached >= shards { new[shard] } else { old[shard] })
                        .collect();
                    let size = striping.size(&parts).0;
                    assert!((before.min(after)..=before.max(after)).contains(&size), "{before} to {after}: {size}");
                }
            }
        }
    }
}
