use super::*;

#[test]
fn a_load_is_divided_over_hosts_and_nothing_of_it_is_lost() {
    assert_eq!(shares(Some(7), 3), [Some(3), Some(2), Some(2)]);
    assert_eq!(shares(Some(1), 3), [Some(1), Some(0), Some(0)]);
    assert_eq!(shares(None, 2), [None, None], "each has the load of the cell");
    for (all, hosts) in [(512, 5), (20, 20), (3, 8)] {
        assert_eq!(shares(Some(all), hosts).into_iter().flatten().sum::<u32>(), all);
    }
}
