use super::*;

#[test]
fn bucket_names_follow_the_rules_of_aws() {
    let check = |name: &str, good: bool| assert_eq!(check_bucket_name(name).is_ok(), good, "{name}");
    for name in ["abc", "a.b.c", "1-2", "a23456789012345678901234567890123456789012345678901234567890123", "10.0.0.256"]
    {
        check(name, true);
    }
    for name in ["", "ab", "Abc", "a_b", "-ab", "ab-", "a..b", "a.-b", "10.0.0.1", "xn--a", "a--x-s3", "ä-b", "a/b"] {
        check(name, false);
    }
    check(&"a".repeat(64), false);
}

/// A version that is to be kept for seven years is not gone two days before they are over.
#[test]
fn a_period_of_years_is_no_shorter_than_in_the_calendar() {
    use stele_ground::calendar::parse_moment;
    const DAY: u64 = 86_400;
    for (month, day, leap) in [(1, 1, false), (2, 28, false), (2, 29, true), (3, 1, false), (12, 31, false)] {
        for from in 1970..2170_u64 {
            let date = |year: u64| parse_moment(&format!("{year}-{month:02}-{day:02}T08:00:00Z"));
            // Years from the leap day on end on the day after it at the latest.
            let end = |year| date(year).or_else(|| parse_moment(&format!("{year}-03-01T08:00:00Z")));
            let Some(stored) = date(from) else {
                assert!(leap, "{from}-{month}-{day}");
                continue;
            };
            for years in 1..=100 {
                let (kept, over) = (stored + Period::Years(years).days() * DAY, end(from + u64::from(years)).unwrap());
                // Where a century's year has no leap day, two days are the most that it is longer.
                assert!((over..=over + 2 * DAY).contains(&kept), "{years} years from {from}-{month}-{day} on");
            }
        }
    }
    assert_eq!([1, 4, 5, 7].map(|years| Period::Years(years).days()), [366, 1461, 1827, 2557]);
    assert_eq!(Period::Days(365).days(), 365);
}
