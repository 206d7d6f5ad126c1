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
