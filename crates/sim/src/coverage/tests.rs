use super::*;

fn full() -> Coverage {
    let mut coverage = Coverage::default();
    for kind in FaultKind::BY_OPERATION.iter().chain(&FaultKind::BY_DRIVE) {
        coverage.add(format!("fault {kind:?}"), EVERY_FAULT);
    }
    REQUIRED.iter().for_each(|(name, times)| coverage.add(name, *times));
    coverage
}

#[test]
fn what_never_happened_is_missed() {
    assert_eq!(full().lacks(1_000), Vec::<String>::new());
    for (name, _) in REQUIRED.iter().chain(&[("fault Swap", EVERY_FAULT), ("fault LogDriveLoss", EVERY_FAULT)]) {
        let mut without = full();
        without.counts.remove(*name);
        let missed = without.lacks(1_000);
        assert!(missed.len() == 1 && missed[0].contains(name), "{name}: {missed:?}");
    }
}

#[test]
fn a_few_seeds_may_miss_something() {
    assert_eq!(Coverage::default().lacks(FEW - 1), Vec::<String>::new());
    assert!(!Coverage::default().lacks(FEW).is_empty());
}
