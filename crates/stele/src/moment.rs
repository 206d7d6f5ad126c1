//! Moments in JSON: RFC 3339 in UTC, from seconds since 1970. For `#[serde(with = "crate::moment")]`.
//!
//! Seconds are read too: what earlier versions wrote into `alarms.jsonl` has them.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::output::moment;

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Seconds(u64),
    Text(String),
}

impl Written {
    fn seconds<E: Error>(self) -> Result<u64, E> {
        match self {
            Written::Seconds(seconds) => Ok(seconds),
            Written::Text(text) => {
                parse(&text).ok_or_else(|| E::custom(format!("'{text}' is not a moment in RFC 3339")))
            }
        }
    }
}

pub fn serialize<S: Serializer>(seconds: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&moment(i64::try_from(*seconds).unwrap_or(i64::MAX)))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Written::deserialize(deserializer)?.seconds()
}

/// Of what may have no moment.
pub mod option {
    use super::*;

    pub fn serialize<S: Serializer>(seconds: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        seconds.map(|seconds| moment(i64::try_from(seconds).unwrap_or(i64::MAX))).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        Option::<Written>::deserialize(deserializer)?.map(Written::seconds).transpose()
    }
}

/// `2026-11-21T19:28:13Z` and nothing else, as seconds since 1970.
pub fn parse(text: &str) -> Option<u64> {
    let digits = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = text.get(range)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let (year, month, day) = (digits(0..4)?, digits(5..7)?, digits(8..10)?);
    let (hour, minute, second) = (digits(11..13)?, digits(14..16)?, digits(17..19)?);
    // Days from date: Howard Hinnant, chrono-compatible algorithms.
    let shifted = year - i64::from(month <= 2);
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = era * 146_097 + day_of_era - 719_468;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    // The way back shows whether it was written as it should be, and a day that there is.
    (moment(seconds) == text).then(|| u64::try_from(seconds).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        for seconds in [0, 1, 68_169_600, 951_782_400, 1_795_289_293, 4_107_542_400, 253_402_300_799] {
            assert_eq!(parse(&moment(seconds as i64)), Some(seconds), "{seconds}");
        }
        for text in ["", "2026-02-30T00:00:00Z", "2026-11-21 19:28:13", "2026-11-21T19:28:61Z", "1969-12-31T23:59:59Z"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Event {
        #[serde(with = "super")]
        at: u64,
        #[serde(with = "super::option", default)]
        since: Option<u64>,
    }

    #[test]
    fn what_earlier_versions_wrote_is_read() {
        let event: Event = serde_json::from_str(r#"{"at":1795289293}"#).unwrap();
        assert_eq!(event, Event { at: 1_795_289_293, since: None });
        let event = Event { at: 0, since: Some(1_795_289_293) };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(text, r#"{"at":"1970-01-01T00:00:00Z","since":"2026-11-21T19:28:13Z"}"#);
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }
}
