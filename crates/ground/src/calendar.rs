//! Dates in UTC, from and to seconds since 1970-01-01T00:00:00Z.
//!
//! Years have four digits: a time after 9999-12-31T23:59:59Z is shown as that second, and an
//! invalid text is no date.

use time::{Date, Month, OffsetDateTime, Time};

/// The last second that a date of four-digit years can name.
pub const LATEST: u64 = 253_402_300_799;

/// `2013-05-24T00:00:00Z` (RFC 3339).
pub fn moment(seconds: u64) -> String {
    let at = utc(seconds);
    format!("{}T{:02}:{:02}:{:02}Z", date(seconds), at.hour(), at.minute(), at.second())
}

/// `2013-05-24`.
pub fn date(seconds: u64) -> String {
    let at = utc(seconds);
    format!("{:04}-{:02}-{:02}", at.year(), u8::from(at.month()), at.day())
}

/// `20130524T000000Z` (the basic format of ISO 8601), as signed requests carry it.
pub fn stamp(seconds: u64) -> String {
    moment(seconds).replace(['-', ':'], "")
}

/// Parses the form of `moment`; `None` for any other text.
pub fn parse_moment(text: &str) -> Option<u64> {
    parse(text, *b"dddd-dd-ddTdd:dd:ddZ")
}

/// Parses the form of `stamp`; `None` for any other text.
pub fn parse_stamp(text: &str) -> Option<u64> {
    parse(text, *b"ddddddddTddddddZ")
}

/// `shape`: a `d` for each digit, fourteen in all; all other characters must match exactly.
fn parse<const N: usize>(text: &str, shape: [u8; N]) -> Option<u64> {
    let bytes: [u8; N] = text.as_bytes().try_into().ok()?;
    let mut digits = [0; 14];
    let mut places = digits.iter_mut();
    for (byte, wanted) in bytes.iter().zip(shape) {
        match wanted {
            b'd' => *places.next()? = byte.is_ascii_digit().then(|| byte - b'0')?,
            _ if *byte == wanted => {}
            _ => return None,
        }
    }
    let pair = |at: usize| digits[at] * 10 + digits[at + 1];
    let year = i32::from(pair(0)) * 100 + i32::from(pair(2));
    let day = Date::from_calendar_date(year, Month::try_from(pair(4)).ok()?, pair(6)).ok()?;
    let time = Time::from_hms(pair(8), pair(10), pair(12)).ok()?;
    u64::try_from(day.with_time(time).assume_utc().unix_timestamp()).ok()
}

fn utc(seconds: u64) -> OffsetDateTime {
    let seconds = i64::try_from(seconds.min(LATEST)).unwrap_or_default();
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_date_is_written_and_read() {
        let cases = [
            (0, "1970-01-01T00:00:00Z", "19700101T000000Z"),
            (951_782_399, "2000-02-28T23:59:59Z", "20000228T235959Z"),
            (951_782_400, "2000-02-29T00:00:00Z", "20000229T000000Z"),
            (951_868_799, "2000-02-29T23:59:59Z", "20000229T235959Z"),
            (1_369_353_600, "2013-05-24T00:00:00Z", "20130524T000000Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z", "21000228T235959Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z", "21000301T000000Z"),
            (LATEST, "9999-12-31T23:59:59Z", "99991231T235959Z"),
        ];
        for (seconds, long, short) in cases {
            assert_eq!((moment(seconds), stamp(seconds)), (long.to_owned(), short.to_owned()));
            assert_eq!((parse_moment(long), parse_stamp(short)), (Some(seconds), Some(seconds)));
        }
        assert_eq!(date(951_868_799), "2000-02-29");
        assert_eq!(moment(u64::MAX), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "2026-02-30T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-11-21 19:28:13",
            "2026-11-21T19:28:60Z",
            "2026-11-21T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-11-21T19:28:13z",
            "+026-11-21T19:28:13Z",
            "2026-11-21T19:28:13+00:00",
        ] {
            assert_eq!(parse_moment(text), None, "{text}");
        }
        for text in ["20130524T0000", "20130524 000000Z", "20130532T000000Z", "20130524T250000Z", "19691231T235959Z"] {
            assert_eq!(parse_stamp(text), None, "{text}");
        }
    }
}
