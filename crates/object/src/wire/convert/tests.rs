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
