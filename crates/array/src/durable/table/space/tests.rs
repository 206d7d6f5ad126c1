use stele_ground::Dice;

use super::*;

#[test]
fn checkpoints_of_random_pages_keep_to_long_runs() {
    let (pages, changed, per_row) = (1_000, 600, 128);
    let mut space = PageSpace::default();
    // The pages, and twice a checkpoint's worth free.
    (0..19).for_each(|row| space.add_row(RowId(row), per_row));
    let mut homes = space.take(pages, &|_| true).unwrap();
    let mut dice = Dice::new(1);
    let (mut written, mut runs) = (0, 0);
    for round in 0..60 {
        let mut order: Vec<usize> = (0..pages).collect();
        dice.shuffle(&mut order);
        order.truncate(changed);
        order.sort_unstable();
        let places = space.take(changed, &|_| true).unwrap();
        let breaks = |pair: &&[PagePlace]| pair[0].row != pair[1].row || pair[0].index + 1 != pair[1].index;
        if round >= 30 {
            written += changed;
            runs += 1 + places.windows(2).filter(breaks).count();
        }
        for (page, place) in order.into_iter().zip(places) {
            space.release(std::mem::replace(&mut homes[page], place));
        }
        assert_eq!(space.used(), pages as u64);
    }
    assert!(written >= 8 * runs, "{written} pages in {runs} runs");
}

#[test]
fn places_are_given_once_and_only_where_they_fit() {
    let mut space = PageSpace::default();
    (0..3).for_each(|row| space.add_row(RowId(row), 10));
    assert_eq!(space.take(21, &|row| row != RowId(1)), None);
    assert_eq!(space.used(), 0, "what is not enough is not taken");
    let mut taken = space.take(20, &|row| row != RowId(1)).unwrap();
    taken.dedup();
    assert!(taken.len() == 20 && taken.iter().all(|place| place.row != RowId(1)));
    assert_eq!(space.take(10, &|_| true).map(|places| places.len()), Some(10));
    assert_eq!(space.take(1, &|_| true), None);
}

#[test]
fn the_longest_runs_are_taken_and_of_equal_ones_the_first() {
    let mut space = PageSpace::default();
    space.add_row(RowId(0), 200);
    let places = space.take(200, &|_| true).unwrap();
    // Free runs of 2 at 10 and 100, of 3 at 62 (over the edge of a word), of 1 at 199.
    for index in [10, 11, 100, 101, 62, 63, 64, 199] {
        space.release(places[index]);
    }
    let take = |space: &mut PageSpace, wanted| {
        let taken: Vec<u32> = space.take(wanted, &|_| true).unwrap().iter().map(|place| place.index).collect();
        taken
    };
    assert_eq!(take(&mut space, 0), []);
    assert_eq!(take(&mut space, 4), [10, 62, 63, 64]);
    assert_eq!(take(&mut space, 3), [11, 100, 101]);
    assert_eq!(take(&mut space, 1), [199]);
    assert_eq!(space.take(1, &|_| true), None);
}
