use super::*;

const BLOCKS: u64 = 1024;

/// Draws as many as there are blocks: how many differ, and the share of the tenth of them that was
/// drawn most.
fn profile(text: &str) -> (u64, f64, [u64; 10]) {
    let spread = BlockDistribution::new(&Distribution::parse(text).unwrap(), BLOCKS, 3);
    let (mut counts, mut tenths, mut dice) = (vec![0u64; BLOCKS as usize], [0; 10], Dice::new(5));
    const TIMES: u64 = 20;
    let mut distinct = 0;
    for _ in 0..TIMES {
        let mut seen = vec![false; BLOCKS as usize];
        for _ in 0..BLOCKS {
            let block = spread.draw(&mut dice);
            assert!(block < BLOCKS);
            counts[block as usize] += 1;
            tenths[(block * 10 / BLOCKS) as usize] += 1;
            distinct += u64::from(!std::mem::replace(&mut seen[block as usize], true));
        }
    }
    counts.sort_unstable_by(|one, other| other.cmp(one));
    let top: u64 = counts[..20].iter().sum();
    (distinct / TIMES, top as f64 / (TIMES * BLOCKS) as f64, tenths)
}

/// fio 3.33 was seen to write so many different ones of 1,024 blocks in 1,024 writes.
#[test]
fn as_many_blocks_differ_as_fio_was_seen_to_write() {
    for (text, seen) in [("zipf:1.2", 205), ("zipf:0.8", 427), ("pareto:0.9", 158), ("normal:10", 340)] {
        let (distinct, _, _) = profile(text);
        assert!(distinct.abs_diff(seen) * 8 < seen, "{text}: {distinct} differ, {seen} with fio");
    }
}

#[test]
fn the_hot_blocks_of_zipf_take_the_share_that_its_law_says() {
    let (_, top, _) = profile("zipf:1.2");
    let weight = |from: u64, to: u64| (from..=to).map(|rank| (rank as f64).powf(-1.2)).sum::<f64>();
    let law = weight(1, 20) / weight(1, BLOCKS);
    assert!((top - law).abs() < 0.05, "{top}, and {law} by the law");
}

#[test]
fn zones_take_their_shares_of_the_accesses() {
    let (_, _, tenths) = profile("zoned:60/10:30/20:10/70");
    let all: u64 = tenths.iter().sum();
    let share = |from: usize, to: usize| tenths[from..to].iter().sum::<u64>() * 100 / all;
    assert!(share(0, 1).abs_diff(60) <= 2 && share(1, 3).abs_diff(30) <= 2 && share(3, 10).abs_diff(10) <= 2);
}

#[test]
fn what_is_no_distribution_is_an_error() {
    for text in ["zipf:1", "zipf:-1", "pareto:1", "normal:101", "zoned:60/10", "zoned:60/10:40/80", "zoned", "even"] {
        assert!(Distribution::parse(text).is_err(), "{text}");
    }
    assert_eq!(Distribution::parse("zoned:50/10:50"), Ok(Distribution::Zoned(vec![(50.0, 10.0), (50.0, 90.0)])));
}
