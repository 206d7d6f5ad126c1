use stele_archive::{Bindings, Tags, Timestamp};

use super::*;

fn bucket(default: Option<DefaultRetention>) -> BucketInfo {
    BucketInfo {
        name: "records".into(),
        created: Timestamp(0),
        owner: String::new(),
        region: String::new(),
        versioning: Versioning::Enabled,
        object_lock: Some(ObjectLock { default }),
        protection: Protection::Governance,
        expiry: ExpiryAction::Keep,
        quota: Quota::default(),
        anonymous: AnonymousAccess::None,
        tags: Tags::new(),
        classes: Bindings::default(),
        share: false,
    }
}

#[test]
fn a_retention_that_is_refused_names_the_units() {
    for period in ["1h", "0d", "7", "1.5y", "+5d", "-5d", "5", "d"] {
        let text = format!("compliance:{period}");
        let refused = parse_retention(&text).unwrap_err();
        assert!(refused.next.contains("days (d) or years (y)"), "{text}: {refused}");
    }
    for text in ["forever", "lock:7y", ""] {
        let refused = parse_retention(text).unwrap_err();
        assert!(refused.next.contains("days (d) or years (y)"), "{text}: {refused}");
    }
    assert_eq!(parse_retention("Governance:30d").map(show_retention).as_deref(), Ok("governance:30d"));
}

/// Between the reading of a bucket and its change, another officer may set a default retention.
#[test]
fn a_lock_states_no_default_that_it_was_not_told() {
    let year = DefaultRetention { mode: RetentionMode::Compliance, period: Period::Years(1) };
    for default in [None, Some(year)] {
        let set = SetBucket { name: "records".into(), lock: true, ..SetBucket::default() };
        assert_eq!(set.changes(&bucket(default)).unwrap(), [BucketChange::Lock], "{default:?}");
        for (text, expected) in [("none", None), ("compliance:1y", Some(year))] {
            let set = SetBucket { retention: Some(text.into()), ..set.clone() };
            let change = BucketChange::ObjectLock(ObjectLock { default: expected });
            assert_eq!(set.changes(&bucket(default)).unwrap(), [change], "{default:?}, {text}");
        }
    }
}

#[test]
fn a_date_before_1970_is_told_as_one() {
    for (text, what) in [
        ("1969-12-31", "before 1970"),
        ("1969-12-31T23:59:59Z", "before 1970"),
        ("2026-13-01", "is not a date"),
        ("soon", "is not a date"),
    ] {
        let refused = crate::api::matters::date(text).unwrap_err();
        assert!(refused.error.contains(what) && refused.next.contains("2026-04-02"), "{text}: {refused}");
    }
    assert!(crate::api::matters::date("1970-01-01").is_ok());
}
