use super::*;

fn finds(kind: OddityKind, words: &[&str]) -> bool {
    published()
        .iter()
        .any(|odd| odd.kind == kind && words.iter().all(|word| odd.place.contains(word) || odd.why.contains(word)))
}

/// The errors that a careful reader of the papers lists and that arithmetic can find, by the
/// reader's numbers.
#[test]
fn the_published_tables_give_up_what_arithmetic_can_find() {
    let expected: &[(&str, OddityKind, &[&str])] = &[
        ("1", OddityKind::CacheLoses, &["Table 4, random write 8 KiB, 20 drives", "460", "890"]),
        ("1", OddityKind::ThroughputFallsWithSize, &["Table 4, random write 8 KiB, 20 drives", "3.5"]),
        ("1", OddityKind::MoreThanLinear, &["Table 4, random write 8 KiB, 60 drives", "write cache on"]),
        ("1", OddityKind::MoreThanLinear, &["Table 4, random write 4 KiB, 60 drives", "55.0 a drive", "83.6"]),
        (
            "2",
            OddityKind::FallsWithDrives,
            &["Table 1, oltp 4 KiB, 140 drives, write cache on", "24340", "20500", "15.8 %"],
        ),
        ("2", OddityKind::MoreThanLinear, &["Table 1, oltp 4 KiB, 100 drives", "189.3", "243.4"]),
        ("2", OddityKind::CacheOutOfLine, &["Table 1, oltp 4 KiB, 100 drives", "1.59 times"]),
        ("3", OddityKind::CacheLoses, &["Table 5, oltp 4 KiB, 180 drives", "25225", "25450"]),
        ("3", OddityKind::RisesWithSize, &["Table 5, oltp 8 KiB, 180 drives", "25330"]),
        ("3", OddityKind::FallsWithDrives, &["Table 5, oltp 4 KiB, 180 drives, write cache on", "26.5 %"]),
        ("4", OddityKind::SamePairElsewhere, &["Table 8, random write 4 KiB, 20 drives", "5895", "Table 5, oltp"]),
        ("4", OddityKind::RisesWithSize, &["Table 8, random write 8 KiB, 20 drives", "5965"]),
        ("4", OddityKind::CacheOutOfLine, &["Table 8, random write 4 KiB, 20 drives"]),
        ("5", OddityKind::CacheWithoutEffect, &["Table 5, oltp 8 KiB, 60 drives", "15000"]),
        ("6", OddityKind::RisesWithSize, &["Table 4, random write 8 KiB, 60 drives", "5015", "5050"]),
        ("7", OddityKind::FallsWithDrives, &["Table 5, oltp 4 KiB, 180 drives, caches off", "16.5 %"]),
        ("7", OddityKind::FallsWithDrives, &["Table 5, oltp 8 KiB, 180 drives, caches off", "7.3 %"]),
        ("7", OddityKind::FallsWithDrives, &["Table 8, random write 4 KiB, 180 drives, caches off", "19.0 %"]),
        ("7", OddityKind::FallsWithDrives, &["Table 8, random write 4 KiB, 180 drives, write cache on", "11.0 %"]),
        ("7", OddityKind::FallsWithDrives, &["Table 8, random write 8 KiB, 180 drives, caches off", "16.4 %"]),
        ("7", OddityKind::FallsWithDrives, &["Table 8, random write 8 KiB, 180 drives, write cache on", "20.0 %"]),
        ("7", OddityKind::FallsWithDrives, &["Table 4, random write 4 KiB, 180 drives, write cache on", "9.1 %"]),
        ("7", OddityKind::FallsWithDrives, &["Table 1, oltp 4 KiB, 180 drives, caches off", "6.7 %"]),
        ("8", OddityKind::CacheLoses, &["Table 3, file server, 100 drives", "131"]),
        ("8", OddityKind::CacheLoses, &["Table 3, file server, 180 drives", "132"]),
        ("8", OddityKind::CacheLoses, &["Table 7, file server, 140 drives", "186"]),
        (
            "arithmetic",
            OddityKind::ProductDoesNotFit,
            &["Table 1, oltp 32 KiB, 180 drives, write cache on", "181.25", "180"],
        ),
        ("arithmetic", OddityKind::ProductDoesNotFit, &["Table 5, oltp 32 KiB, 60 drives, caches off", "262"]),
        ("arithmetic", OddityKind::ProductDoesNotFit, &["Table 5, oltp 4 KiB, 140 drives, caches off", "118"]),
        (
            "arithmetic",
            OddityKind::ProductDoesNotFit,
            &["Table 8, random write 8 KiB, 100 drives, write cache on", "86"],
        ),
        ("9", OddityKind::PercentDoesNotFit, &["Chart 4", "16.67"]),
        ("9", OddityKind::OutsideItsBox, &["Chart 4", "16.0 %"]),
        ("10", OddityKind::PercentDoesNotFit, &["Chart 2", "77.2"]),
        ("11", OddityKind::OutsideItsBox, &["Chart 3", "125.3"]),
        ("11", OddityKind::PercentDoesNotFit, &["Chart 3", "118"]),
        ("12", OddityKind::OutsideItsBox, &["Chart 9", "233.3"]),
        ("18", OddityKind::FallsWithDrives, &["Table 6, stroke 75 %", "0.72"]),
        ("25", OddityKind::RisesWithSize, &["Fibre Channel Table 1", "412050"]),
        ("25", OddityKind::ClaimExceedsFigures, &["400000", "3 of 7"]),
        ("26", OddityKind::ClaimExceedsFigures, &["500000", "0 of 7"]),
        ("27", OddityKind::DeeperIsSlower, &["1534", "1537"]),
        ("37", OddityKind::ClaimExceedsFigures, &["Backup, 2 servers, backup", "4981"]),
        ("37", OddityKind::ClaimExceedsFigures, &["Backup, 2 servers, mixed", "4821"]),
        ("28", OddityKind::UnitUnclear, &["Fibre Channel Table 2", "786", "824"]),
        ("32", OddityKind::PartsDoNotFit, &["DR550, section 9", "36 s at 110", "13.3 MB/s"]),
        ("32", OddityKind::PartsDoNotFit, &["DR550, section 1", "174 s at 23"]),
        ("34", OddityKind::NotStated, &["DR550, section 11", "sequential reads with cache"]),
        ("36", OddityKind::NotStated, &["DR550, drives", "48 drives of 750 GB are 36 TB", "26"]),
        ("42", OddityKind::PartsDoNotFit, &["Backup, nominal rates", "43 MB/s", "29"]),
    ];
    let missing: Vec<_> = expected.iter().filter(|(_, kind, words)| !finds(kind.clone(), words)).collect();
    assert!(missing.is_empty(), "not found: {missing:#?}\nfound: {:#?}", published());
}

#[test]
fn products_that_fit_are_not_reported() {
    let misfits = published().iter().filter(|odd| odd.kind == OddityKind::ProductDoesNotFit).count();
    assert_eq!(misfits, 4, "all others are within a rounding");
}

#[test]
fn a_sound_table_is_left_alone() {
    let cell = |drives: u64, size: u64, cached: bool| {
        let rate = (drives * 100) as f64 * if cached { 1.3 } else { 1.0 } / (1.0 + size as f64 / 65536.0);
        let throughput = Some((rate * size as f64 / f64::from(1 << 20)).floor());
        Printed {
            table: "ours".into(),
            workload: "w".into(),
            size: Some(size),
            drives,
            cached,
            rate: Some(rate),
            throughput,
            margin: 0.0,
        }
    };
    let mut cells = Vec::new();
    for drives in [20, 60, 100] {
        for size in [4096, 8192, 65536] {
            cells.extend([cell(drives, size, false), cell(drives, size, true)]);
        }
    }
    assert_eq!(of_tables(&cells), Vec::new());
}

#[test]
fn measured_figures_differ_beyond_their_intervals_only() {
    let cell = |size: u64, cached: bool, rate: f64, margin: f64| Printed {
        table: "ours".into(),
        workload: "w".into(),
        size: Some(size),
        drives: 20,
        cached,
        rate: Some(rate),
        throughput: None,
        margin,
    };
    let kinds = |margin: f64| -> Vec<OddityKind> {
        let cells =
            [cell(4096, false, 100.0, margin), cell(8192, false, 103.0, margin), cell(4096, true, 96.0, margin)];
        of_tables(&cells).into_iter().map(|odd| odd.kind).collect()
    };
    assert_eq!(kinds(0.5), [OddityKind::CacheLoses, OddityKind::RisesWithSize]);
    assert_eq!(kinds(2.5), [OddityKind::CacheLoses], "3 are within 3.5, 4 are not");
    assert_eq!(kinds(5.0), Vec::new());
}
