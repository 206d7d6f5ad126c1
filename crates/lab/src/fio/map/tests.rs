use super::*;
use stele_ground::Dice;

#[test]
fn it_answers_as_a_list_of_booleans_does() {
    for blocks in [1, 63, 64, 65, 4096, 5000, 300_000] {
        let (mut map, mut list, mut dice) = (BlockBitmap::new(blocks), vec![false; blocks as usize], Dice::new(blocks));
        let mut taken = 0;
        while taken < blocks {
            let at = dice.below(blocks);
            let behind = list[at as usize..].iter().position(|taken| !taken).map(|found| found as u64 + at);
            let simple = if blocks > 5000 {
                map.next_free(at)
            } else {
                behind.or_else(|| list.iter().position(|taken| !taken).map(|found| found as u64))
            };
            let found = map.next_free(at);
            assert_eq!(found, simple, "from {at} of {blocks}");
            let (found, count) = (found.unwrap(), 1 + dice.below(3));
            let free = (found..blocks.min(found + count)).take_while(|at| !list[*at as usize]).count() as u64;
            assert_eq!(map.take(found, count), free);
            (found..found + free).for_each(|at| list[at as usize] = true);
            assert!(map.is_taken(found));
            taken += free;
        }
        assert_eq!((map.next_free(0), map.is_taken(blocks)), (None, true));
    }
    assert_eq!(BlockBitmap::new(0).next_free(0), None);
}
