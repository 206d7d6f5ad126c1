use super::*;

#[test]
fn a_cache_keeps_what_is_used_and_stays_below_its_limit() {
    let mut cache = Cache::new(10);
    for n in 0..1000u32 {
        cache.insert(n, n * 2, 1);
        assert_eq!(cache.get(&0), Some(0), "in steady use, at {n}");
        assert!(cache.young.len() + cache.old.len() <= 10);
    }
    assert_eq!(cache.get(&999), Some(1998));
    assert_eq!(cache.get(&900), None);
    cache.remove(&999);
    assert_eq!(cache.get(&999), None);
    cache.insert(5, 5, 6);
    assert_eq!(cache.get(&5), None, "heavier than a generation");
    let mut cache = Cache::new(8);
    (0..6).for_each(|n| cache.insert(n, n, 1));
    cache.remove_range(1..=4);
    assert_eq!((0..6).filter(|n| cache.get(n).is_some()).collect::<Vec<_>>(), [0, 5]);
    (10..14).for_each(|n| cache.insert(n, n, 1));
    assert_eq!((10..14).filter(|n| cache.get(n).is_some()).count(), 4, "what was removed weighs nothing");
    let mut none = Cache::new(0);
    none.insert(1, 1, 1);
    assert_eq!(none.get(&1), None);
}
