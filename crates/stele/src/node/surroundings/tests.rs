use super::*;

#[test]
fn a_moment_reads_the_same_until_the_clock_is_set() {
    const SECOND: i128 = 1_000_000_000;
    let mut kept = None;
    // The two clocks are never read at the same instant.
    for measured in [100 * SECOND, 100 * SECOND + 7, 100 * SECOND - 40_000, 101 * SECOND] {
        kept = Some(steady(kept, measured));
        assert_eq!(kept, Some(100 * SECOND));
    }
    assert_eq!(steady(kept, 4_000 * SECOND), 4_000 * SECOND);
    let moment = stele_media::system::now();
    let first = wall_at(moment);
    assert!((0..1_000).all(|_| wall_at(moment) == first));
}
