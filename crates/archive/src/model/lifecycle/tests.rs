use super::*;

fn rule(id: &str) -> LifecycleRule {
    LifecycleRule {
        id: id.into(),
        enabled: true,
        filter: LifecycleFilter::default(),
        expiration: Some(Expiration::Days(1)),
        noncurrent: None,
        abort_days: None,
    }
}

#[test]
fn a_day_ends_at_the_next_midnight() {
    let noon = Timestamp(10 * DAY + DAY / 2);
    let expires = |stored, days| {
        let rule = LifecycleRule { expiration: Some(Expiration::Days(days)), ..rule("a") };
        rule.expires("k", 1, &Tags::new(), stored)
    };
    assert_eq!(expires(noon, 1), Some(Timestamp(12 * DAY)));
    assert_eq!(expires(Timestamp(10 * DAY), 1), Some(Timestamp(11 * DAY)));
    assert_eq!(expires(Timestamp(10 * DAY + 1), 1), Some(Timestamp(12 * DAY)));
    // A moment beyond all dates never comes.
    assert_eq!(expires(Timestamp(u64::MAX - 1), u32::MAX), Some(Timestamp(u64::MAX)));
}

#[test]
fn a_filter_takes_every_condition_together() {
    let tags = Tags::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
    let filter = LifecycleFilter { prefix: "logs/".into(), above: Some(10), below: Some(20), ..Default::default() };
    assert!(filter.matches("logs/x", 11, &tags) && filter.matches("logs/x", 19, &tags));
    assert!(!filter.matches("logs/x", 10, &tags) && !filter.matches("logs/x", 20, &tags));
    assert!(!filter.matches("log/x", 15, &tags));
    let tagged = LifecycleFilter { tags: tags.clone(), ..Default::default() };
    assert!(tagged.matches("x", 0, &tags));
    assert!(!tagged.matches("x", 0, &Tags::from([("a".to_owned(), "1".to_owned())])));
}

#[test]
fn newer_noncurrent_versions_stay() {
    let noncurrent = Some(NoncurrentExpiration { days: 1, newer: Some(2) });
    let rule = LifecycleRule { expiration: None, noncurrent, ..rule("a") };
    let expires = |newer| rule.expires_noncurrent("k", 0, &Tags::new(), Timestamp(0), newer);
    assert_eq!([expires(0), expires(1), expires(2)], [None, None, Some(Timestamp(DAY))]);
    assert_eq!(
        LifecycleRule { enabled: false, ..rule }.expires_noncurrent("k", 0, &Tags::new(), Timestamp(0), 9),
        None
    );
}

#[test]
fn rules_that_no_bucket_can_have_are_refused() {
    let refused = |rule: LifecycleRule| check_rules(&[rule]).expect_err("refused").to_string();
    assert!(refused(LifecycleRule { expiration: None, ..rule("a") }).contains("at least one action"));
    assert!(refused(LifecycleRule { expiration: Some(Expiration::Days(0)), ..rule("a") }).contains("positive"));
    let date = Some(Expiration::Date(Timestamp(DAY + 1)));
    assert!(refused(LifecycleRule { expiration: date, ..rule("a") }).contains("midnight"));
    let sized = LifecycleFilter { above: Some(1), ..Default::default() };
    assert!(
        refused(LifecycleRule { abort_days: Some(1), filter: sized.clone(), ..rule("a") }).contains("tags or sizes")
    );
    let markers = Some(Expiration::Markers);
    assert!(refused(LifecycleRule { expiration: markers, filter: sized, ..rule("a") }).contains("tags or sizes"));
    let none_between = LifecycleFilter { above: Some(9), below: Some(10), ..Default::default() };
    assert!(refused(LifecycleRule { filter: none_between, ..rule("a") }).contains("no size is between"));
    let many = Some(NoncurrentExpiration { days: 1, newer: Some(101) });
    assert!(refused(LifecycleRule { noncurrent: many, ..rule("a") }).contains("1 to 100"));
    assert!(check_rules(&[rule("a"), rule("a")]).is_err());
    assert!(check_rules(&[]).is_err());
    assert!(check_rules(&vec![rule("a"); LIFECYCLE_RULES_MAX + 1]).is_err());
    assert!(check_rules(&[rule("a"), rule("b")]).is_ok());
}
