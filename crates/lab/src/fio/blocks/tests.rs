use super::*;

fn drawn(blocks: &BlockSizes, left: u64) -> Vec<(u64, u64)> {
    let mut dice = Dice::new(7);
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..10_000 {
        *counts.entry(blocks.draw(&mut dice, left).unwrap()).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

#[test]
fn lengths_follow_their_range_and_their_shares() {
    let range = drawn(&BlockSizes::range("4k-16k").unwrap(), u64::MAX);
    assert_eq!(range.iter().map(|(size, _)| *size).collect::<Vec<_>>(), [4096, 8192, 12288, 16384]);
    assert!(range.iter().all(|(_, count)| (2300..2700).contains(count)), "{range:?}");
    let split = drawn(&BlockSizes::split("4k/60:8k/10:64k").unwrap(), u64::MAX);
    let near = |count: u64, share: u64| count.abs_diff(share * 100) < 200;
    assert!(matches!(split[..], [(4096, a), (8192, b), (65536, c)] if near(a, 60) && near(b, 10) && near(c, 30)));
    assert_eq!(drawn(&BlockSizes::size("512").unwrap(), 512), [(512, 10_000)]);
}

#[test]
fn what_does_not_fit_is_drawn_anew_or_not_at_all() {
    let range = BlockSizes::range("4k-16k").unwrap();
    assert_eq!(drawn(&range, 8192).iter().map(|(size, _)| *size).collect::<Vec<_>>(), [4096, 8192]);
    // A size without a share is none: nothing would be drawn where only it fits.
    let never = BlockSizes::split("4k/0:8k/100").unwrap();
    assert_eq!((never.least, never.most, never.draw(&mut Dice::new(1), 4096)), (8192, 8192, None));
    assert_eq!(drawn(&BlockSizes::split("4k/0:8k/50:16k/50:1m/0").unwrap(), 8192), [(8192, 10_000)]);
    assert_eq!((range.draw(&mut Dice::new(1), 4095), range.draw(&mut Dice::new(1), 4096)), (None, Some(4096)));
}

#[test]
fn sizes_that_make_no_sense_are_errors() {
    for (found, why) in [
        (BlockSizes::size("0"), "a size is needed"),
        (BlockSizes::range("8k-4k"), "smaller one first"),
        (BlockSizes::split("4k/60:8k/30"), "come to 100"),
        (BlockSizes::split("4k/90:8k/80"), "more than 100"),
    ] {
        assert!(found.as_ref().unwrap_err().contains(why), "{found:?}");
    }
}
