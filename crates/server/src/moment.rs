//! Moments in JSON: RFC 3339 in UTC, from seconds since 1970. For
//! `#[serde(with = "crate::moment")]`.
//!
//! It also reads plain seconds: earlier versions wrote them into `alarms.jsonl`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use stele_ground::calendar::{moment, parse_moment};

/// Whether a text that is no moment is one before 1970, from where Stele counts: the same day and
/// time are a moment 2000 years later.
pub fn is_before_1970(text: &str) -> bool {
    let Some((digits, rest)) = text.split_at_checked(4) else { return false };
    let year = digits.parse::<u32>().ok().filter(|year| *year < 1970 && !digits.starts_with('+'));
    year.is_some_and(|year| parse_moment(&format!("{}{rest}", year + 2000)).is_some())
}

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
                parse_moment(&text).ok_or_else(|| E::custom(format!("'{text}' is not a moment in RFC 3339")))
            }
        }
    }
}

pub fn serialize<S: Serializer>(seconds: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&moment(*seconds))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Written::deserialize(deserializer)?.seconds()
}

/// For optional moments.
pub mod option {
    use super::*;

    pub fn serialize<S: Serializer>(seconds: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        seconds.map(moment).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        Option::<Written>::deserialize(deserializer)?.map(Written::seconds).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Event {
        #[serde(with = "super")]
        at: u64,
        #[serde(with = "super::option", default)]
        since: Option<u64>,
    }

    #[test]
    fn moments_before_1970_are_told_from_texts_that_are_none() {
        for (text, is_before) in [
            ("1969-12-31T23:59:59Z", true),
            ("0001-01-01T00:00:00Z", true),
            ("1600-02-29T00:00:00Z", true),
            ("1900-02-29T00:00:00Z", false),
            ("1970-01-01T00:00:00Z", false),
            ("2027-01-31T00:00:00Z", false),
            ("1969-13-01T00:00:00Z", false),
            ("+969-12-31T00:00:00Z", false),
            ("196", false),
            ("\u{e9}\u{e9}\u{e9}", false),
            ("", false),
        ] {
            assert_eq!(is_before_1970(text), is_before, "{text}");
        }
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
