//! The time at which a request was signed, as `YYYYMMDDTHHMMSSZ`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stele_ground::calendar;

/// A signing time with its original text, which the signature covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    text: [u8; 16],
    seconds: u64,
}

impl Stamp {
    /// Parses `20130524T000000Z`; `None` for any other text, including impossible dates.
    pub fn parse(text: &str) -> Option<Stamp> {
        Some(Stamp { seconds: calendar::parse_stamp(text)?, text: text.as_bytes().try_into().ok()? })
    }

    /// The stamp of a time, in the form that a client writes.
    pub fn of(instant: SystemTime) -> Stamp {
        let seconds = instant.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut text = *b"00000000T000000Z";
        text.copy_from_slice(calendar::stamp(seconds).as_bytes());
        Stamp { text, seconds }
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or("")
    }

    /// The date part, `YYYYMMDD`, which names the signing key.
    pub fn date(&self) -> &str {
        self.text().get(..8).unwrap_or("")
    }

    /// The instant.
    pub fn instant(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.seconds)
    }
}
