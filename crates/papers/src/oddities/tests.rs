use super::*;

fn finds(kind: Kind, words: &[&str]) -> bool {
    published()
        .iter()
        .any(|odd| odd.kind == kind && words.iter().all(|word| odd.place.contains(word) || odd.why.contains(word)))
}

/// The errors that a careful reader of the papers lists and that arithmetic can find, by the reader's numbers.
#[test]
fn the_published_tables_give_up_what_arithmetic_can_find() {
    let expected: &[(&str, Kind, &[&str])] = &[
        ("1", Kind::CacheLoses, &["Table 4, random write 8 KiB, 20 drives", "460", "890"]),
        ("1", Kind::ThroughputFallsWithSize, &["Table 4, random write 8 KiB, 20 drives", "3.5"]),
        ("1", Kind::MoreThanLinear, &["Table 4, random write 8 KiB, 60 drives", "write cache on"]),
        ("1", Kind::MoreThanLinear, &["Table 4, random write 4 KiB, 60 drives", "55.0 a drive", "83.6"]),
        ("2", Kind::FallsWithDrives, &["Table 1, oltp 4 KiB, 140 drives, write cache on", "24340", "20500", "15.8 %"]),
        ("2", Kind::MoreThanLinear, &["Table 1, oltp 4 KiB, 100 drives", "189.3", "243.4"]),
        ("2", Kind::CacheOutOfLine, &["Table 1, oltp 4 KiB, 100 drives", "1.59 times"]),
        ("3", Kind::CacheLoses, &["Table 5, oltp 4 KiB, 180 drives", "25225", "25450"]),
        ("3", Kind::RisesWithSize, &["Table 5, oltp 8 KiB, 180 drives", "25330"]),
        ("3", Kind::FallsWithDrives, &["Table 5, oltp 4 KiB, 180 drives, write cache on", "26.5 %"]),
        ("4", Kind::SamePairElsewhere, &["Table 8, random write 4 KiB, 20 drives", "5895", "Table 5, oltp"]),
        ("4", Kind::RisesWithSize, &["Table 8, random write 8 KiB, 20 drives", "5965"]),
        ("4", Kind::CacheOutOfLine, &["Table 8, random write 4 KiB, 20 drives"]),
        ("5", Kind::CacheWithoutEffect, &["Table 5, oltp 8 KiB, 60 drives", "15000"]),
        ("6", Kind::RisesWithSize, &["Table 4, random write 8 KiB, 60 drives", "5015", "5050"]),
        ("7", Kind::FallsWithDrives, &["Table 5, oltp 4 KiB, 180 drives, caches off", "16.5 %"]),
        ("7", Kind::FallsWithDrives, &["Table 5, oltp 8 KiB, 180 drives, caches off", "7.3 %"]),
        ("7", Kind::FallsWithDrives, &["Table 8, random write 4 KiB, 180 drives, caches off", "19.0 %"]),
        ("7", Kind::FallsWithDrives, &["Table 8, random write 4 KiB, 180 drives, write cache on", "11.0 %"]),
        ("7", Kind::FallsWithDrives, &["Table 8, random write 8 KiB, 180 drives, caches off", "16.4 %"]),
        ("7", Kind::FallsWithDrives, &["Table 8, random write 8 KiB, 180 drives, write cache on", "20.0 %"]),
        ("7", Kind::FallsWithDrives, &["Table 4, random write 4 KiB, 180 drives, write cache on", "9.1 %"]),
        ("7", Kind::FallsWithDrives, &["Table 1, oltp 4 KiB, 180 drives, caches off", "6.7 %"]),
        ("8", Kind::CacheLoses, &["Table 3, file server, 100 drives", "131"]),
        ("8", Kind::CacheLoses, &["Table 3, file server, 180 drives", "132"]),
        ("8", Kind::CacheLoses, &["Table 7, file server, 140 drives", "186"]),
        ("arithmetic", Kind::ProductDoesNotFit, &["Table 1, oltp 32 KiB, 180 drives, write cache on", "181.25", "180"]),
        ("arithmetic", Kind::ProductDoesNotFit, &["Table 5, oltp 32 KiB, 60 drives, caches off", "262"]),
        ("arithmetic", Kind::ProductDoesNotFit, &["Table 5, oltp 4 KiB, 140 drives, caches off", "118"]),
        ("arithmetic", Kind::ProductDoesNotFit, &["Table 8, random write 8 KiB, 100 drives, write cache on", "86"]),
        ("9", Kind::PercentDoesNotFit, &["Chart 4", "16.67"]),
        ("9", Kind::OutsideItsBox, &["Chart 4", "16.0 %"]),
        ("10", Kind::PercentDoesNotFit, &["Chart 2", "77.2"]),
        ("11", Kind::OutsideItsBox, &["Chart 3", "125.3"]),
        ("11", Kind::PercentDoesNotFit, &["Chart 3", "118"]),
        ("12", Kind::OutsideItsBox, &["Chart 9", "233.3"]),
        ("18", Kind::FallsWithDrives, &["Table 6, stroke 75 %", "0.72"]),
        ("25", Kind::RisesWithSize, &["Fibre Channel Table 1", "412050"]),
        ("25", Kind::ClaimExceedsFigures, &["400000", "3 of 7"]),
        ("26", Kind::ClaimExceedsFigures, &["500000", "0 of 7"]),
        ("27", Kind::DeeperIsSlower, &["1534", "1537"]),
        ("37", Kind::ClaimExceedsFigures, &["Backup, 2 servers, backup", "4981"]),
        ("37", Kind::ClaimExceedsFigures, &["Backup, 2 servers, mixed", "4821"]),
        ("28", Kind::UnitUnclear, &["Fibre Channel Table 2", "786", "824"]),
        ("32", Kind::PartsDoNotFit, &["DR550, section 9", "36 s at 110", "13.3 MB/s"]),
        ("32", Kind::PartsDoNotFit, &["DR550, section 1", "174 s at 23"]),
        ("34", Kind::NotStated, &["DR550, section 11", "sequential reads with cache"]),
        ("36", Kind::NotStated, &["DR550, drives", "48 drives of 750 GB are 36 TB", "26"]),
        ("42", Kind::PartsDoNotFit, &["Backup, nominal rates", "43 MB/s", "29"]),
    ];
    let missing: Vec<_> = expected.iter().filter(|(_, kind, words)| !finds(kind.clone(), words)).collect();
    assert!(missing.is_empty(), "not found: {missing:#?}\nfound: {:#?}", published());
}

#[test]
fn products_that_fit_are_not_reported() {
    let misfits = published().iter().filter(|odd| odd.kind == Kind::ProductDoesNotFit).count();
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
    let kinds = |margin: f64| -> Vec<Kind> {
        let cells =
            [cell(4096, false, 100.0, margin), cell(8192, false, 103.0, margin), cell(4096, true, 96.0, margin)];
        of_tables(&cells).into_iter().map(|odd| odd.kind).collect()
    };
    assert_eq!(kinds(0.5), [Kind::CacheLoses, Kind::RisesWithSize]);
    assert_eq!(kinds(2.5), [Kind::CacheLoses], "3 are within 3.5, 4 are not");
    assert_eq!(kinds(5.0), Vec::new());
}
