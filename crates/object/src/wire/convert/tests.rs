use s3s::dto::TimestampFormat;

use super::*;

#[test]
fn a_stored_date_beyond_the_year_9999_is_read_without_panic() {
    // (milliseconds since 1970, the same in the protocol)
    let cases = [
        (0, "1970-01-01T00:00:00.000Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "9999-12-31T23:59:59.999Z"),
        (253_402_387_139_000, "9999-12-31T23:59:59.999Z"),
        (u64::MAX, "9999-12-31T23:59:59.999Z"),
    ];
    for (stored, said) in cases {
        let mut text = Vec::new();
        wire_time(Timestamp(stored)).format(TimestampFormat::DateTime, &mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), said, "{stored}");
    }
}

#[test]
fn a_retention_between_two_milliseconds_ends_with_the_later_one() {
    // (the date of a client, milliseconds since 1970)
    let cases = [
        ("2027-06-30T23:59:59.123Z", 1_814_399_999_123),
        ("2027-06-30T23:59:59.123000001Z", 1_814_399_999_124),
        ("2027-06-30T23:59:60Z", 1_814_400_000_000),
        ("1969-12-31T23:59:59.9999Z", 0),
    ];
    for (said, ends) in cases {
        let date = s3s::dto::Timestamp::parse(TimestampFormat::DateTime, said).unwrap();
        assert_eq!(end_of_retention(date), Timestamp(ends), "{said}");
    }
}

#[test]
fn too_many_tags_are_those_of_an_object_or_a_bucket() {
    let tags = |count: usize| -> Vec<Tag> {
        (0..count).map(|tag| Tag { key: Some(format!("t{tag}")), value: Some(String::new()) }).collect()
    };
    for (limit, text) in
        [(BUCKET_TAGS_MAX, "Bucket tags cannot be greater than 50"), (10, "Object tags cannot be greater than 10")]
    {
        assert!(tags_of_set(tags(limit), limit).is_ok());
        let refused = tags_of_set(tags(limit + 1), limit).unwrap_err();
        assert_eq!(refused.message(), Some(text));
    }
}
