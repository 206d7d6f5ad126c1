use stele_archive::{
    AnonymousAccess, Bindings, ExpiryAction, ObjectLock, Protection, Quota, Tags, Timestamp, Versioning,
};

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
    for (least, most) in [(Some(36_501), None), (None, Some(u64::MAX)), (Some(2), Some(1))] {
        assert!(with(least, most).is_err(), "{least:?} {most:?}");
    }
}

#[test]
fn a_bound_of_zero_days_takes_the_bound_away() {
    let bounded = || ShareRow { retention_min: Some(2), retention_max: Some(30), ..row() };
    for ((least, most), after) in [
        ((None, None), (Some(2), Some(30))),
        ((None, Some(0)), (Some(2), None)),
        ((Some(0), None), (None, Some(30))),
        ((Some(0), Some(0)), (None, None)),
        ((Some(40), Some(0)), (Some(40), None)),
    ] {
        let mut row = bounded();
        let options = ShareOptions { retention_min: least, retention_max: most, ..ShareOptions::default() };
        assert!(options.apply(&mut row).is_ok(), "{least:?} {most:?}");
        assert_eq!((row.retention_min, row.retention_max), after, "{least:?} {most:?}");
    }
    let cleared = ShareOptions { retention_min: Some(5), ..ShareOptions::default() };
    assert!(cleared.apply(&mut ShareRow { retention_max: Some(3), ..row() }).is_err(), "above the longest");
}

#[test]
fn names_that_samba_uses_for_itself_are_refused() {
    for name in ["global", "homes", "printers"] {
        let refused = check_share_name(name).expect_err(name);
        assert_eq!(refused.kind, Kind::Usage, "{name}");
        assert!(refused.error.contains("Samba") && refused.next == "choose another name", "{refused}");
    }
    for name in ["globals", "home", "records", "a.b-c"] {
        assert!(check_share_name(name).is_ok(), "{name}");
    }
}

#[test]
fn settings_of_commits_take_object_lock() {
    let bucket = |lock: bool| BucketInfo {
        name: "s".into(),
        created: Timestamp(0),
        owner: String::new(),
        region: String::new(),
        versioning: Versioning::Enabled,
        object_lock: lock.then(ObjectLock::default),
        protection: Protection::Governance,
        expiry: ExpiryAction::Keep,
        quota: Quota::default(),
        anonymous: AnonymousAccess::None,
        tags: Tags::new(),
        classes: Bindings::default(),
        share: true,
    };
    let plain = row();
    let commits = ShareRow { commit_after: Some(60), ..row() };
    let bounds = ShareRow { retention_max: Some(30), ..row() };
    for (before, after, said) in [
        (None, &plain, None),
        (None, &commits, Some("--commit-after")),
        (None, &bounds, Some("--retention-max")),
        (Some(&plain), &bounds, Some("--retention-max")),
        (Some(&bounds), &bounds, None),
        (Some(&bounds), &plain, None),
        (Some(&bounds), &commits, Some("--commit-after")),
    ] {
        assert!(can_commit(before, after, &bucket(true)).is_ok());
        let refused = can_commit(before, after, &bucket(false)).err();
        match (said, refused) {
            (None, None) => {}
            (Some(said), Some(failure)) => {
                assert!(failure.kind == Kind::Usage && failure.next.contains(said), "{failure}");
            }
            (_, refused) => panic!("{said:?}: {refused:?}"),
        }
    }
}
