use std::collections::BTreeMap;

use super::*;

#[test]
fn the_seven_published_specifications_are_shipped_and_their_shares_sum_to_100() {
    let specs = shipped();
    for prefix in
        ["oltp", "streaming_read", "streaming_write", "file_server", "web_server", "random_read", "random_write"]
    {
        assert!(specs.iter().any(|spec| spec.name.starts_with(prefix)), "{prefix}");
    }
    for spec in &specs {
        assert_eq!(spec.sizes.iter().map(|(_, share)| u32::from(*share)).sum::<u32>(), 100, "{}", spec.name);
    }
    let file_server = named("file_server").unwrap();
    assert_eq!((file_server.random, file_server.read, file_server.sizes.len()), (Some(100), Some(80), 8));
    assert_eq!(named("oltp_64k").unwrap().sizes, [(65_536, 100)]);
}

#[test]
fn draws_keep_to_the_shares_of_the_specification() {
    let spec = named("file_server").unwrap();
    let mut generator = Generator::new(spec.clone(), Alignment::Sector, Dice::new(4));
    let (mut reads, mut sizes) = (0, BTreeMap::new());
    for _ in 0..50_000 {
        let access = generator.draw(0, 1 << 30);
        reads += u32::from(!access.write);
        *sizes.entry(access.length).or_insert(0u32) += 1;
        assert!(access.at.is_multiple_of(512) && access.at + access.length <= 1 << 30);
    }
    assert!((f64::from(reads) / 50_000.0 - 0.8).abs() < 0.01, "{reads}");
    for (size, share) in spec.sizes {
        let drawn = f64::from(sizes[&size]) / 500.0;
        assert!((drawn - f64::from(share)).abs() < 0.6, "{size}: {drawn} of {share}");
    }
}

#[test]
fn sequential_accesses_continue_at_the_last_end_of_their_own_target_and_wrap() {
    let mut generator = Generator::new(named("streaming_write_64k").unwrap(), Alignment::Sector, Dice::new(1));
    let size = 65_536;
    let mut ends = [0, 0];
    for number in 0..40 {
        let target = usize::from(number % 3 == 0);
        let access = generator.draw(target, 10 * size);
        assert_eq!((access.at, access.write), (ends[target], true));
        ends[target] = (access.at + size) % (10 * size);
    }
}

#[test]
fn requests_may_be_aligned_to_their_own_size() {
    let mut generator = Generator::new(named("web_server").unwrap(), Alignment::Request, Dice::new(1));
    assert!((0..1000).map(|_| generator.draw(0, 1 << 30)).all(|access| access.at.is_multiple_of(access.length)));
}

#[test]
fn an_operation_stays_within_its_file_and_its_kind() {
    const FILE: u64 = 40 << 10;
    let operation = Operation { read: 16 << 10, write: 9 << 10 };
    for random in [0, 100] {
        let sizes = vec![(4096, 100)];
        let spec = AccessSpec { name: "ffsb".into(), random: Some(random), read: Some(25), sizes };
        let generator = Generator::new(spec, Alignment::Request, Dice::new(3)).within(Some(Bytes(FILE)));
        let mut generator = generator.in_operations(Some(operation));
        let (mut reads, mut places, mut continued) = (0, std::collections::BTreeSet::new(), 0);
        for _ in 0..2000 {
            let first = generator.draw(0, 10 * FILE);
            // Two whole accesses of a write's 9 KiB, four of a read's 16.
            let rest: Vec<Access> =
                (1..if first.write { 2 } else { 4 }).map(|_| generator.draw(0, 10 * FILE)).collect();
            let mut last = first;
            for access in rest {
                assert_eq!((access.write, access.at / FILE), (first.write, first.at / FILE));
                assert!(random == 100 || access.at == last.at + 4096, "{access:?} follows {last:?}");
                continued += u32::from(access.at == last.at + 4096);
                last = access;
            }
            assert!((last.at + 4095) / FILE == first.at / FILE);
            reads += u32::from(!first.write);
            places.insert(first.at);
        }
        assert!((430..570).contains(&reads), "a quarter of the operations read, not {reads} of 2000");
        assert!(places.len() > 60, "they begin anywhere: {}", places.len());
        assert!(random == 0 || continued < 500, "{continued}");
    }
}

#[test]
fn an_operation_as_long_as_its_file_goes_through_it_from_its_beginning() {
    const FILE: u64 = 10 << 12;
    let spec = AccessSpec { name: "all".into(), random: Some(0), read: Some(100), sizes: vec![(4096, 100)] };
    let generator = Generator::new(spec, Alignment::Request, Dice::new(3)).within(Some(Bytes(FILE)));
    let mut generator = generator.in_operations(Some(Operation { read: 1 << 30, write: 1 << 30 }));
    for number in 0..100 {
        assert_eq!(generator.draw(0, 8 * FILE).at % FILE, number % 10 * 4096);
    }
}
