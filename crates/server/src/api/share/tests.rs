use super::*;

fn row() -> ShareRow {
    ShareRow {
        number: 1,
        volume: "share-s".into(),
        owner: (0, 0),
        mode: 0o755,
        archive_after: 10,
        retention_min: None,
        retention_max: None,
        networks: Vec::new(),
        read_only: false,
        squash: SquashRow::Root,
        commit_after: None,
        removed: None,
        caching: None,
    }
}

#[test]
fn bounds_of_a_retention_are_days_that_a_commit_can_have() {
    let with = |retention_min, retention_max| {
        let options = ShareOptions { retention_min, retention_max, ..ShareOptions::default() };
        options.apply(&mut row()).map_err(|failure| failure.to_string())
    };
    for (least, most) in [(None, Some(1)), (Some(0), None), (Some(36_500), Some(36_500))] {
        assert_eq!(with(least, most), Ok(()), "{least:?} {most:?}");
    }
    for (least, most) in [(None, Some(0)), (Some(36_501), None), (None, Some(u64::MAX)), (Some(2), Some(1))] {
        assert!(with(least, most).is_err(), "{least:?} {most:?}");
    }
}
