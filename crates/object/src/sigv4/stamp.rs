//! The instant a request was signed, as `YYYYMMDDTHHMMSSZ`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A signing instant with the text it was written as, which takes part in the signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    text: [u8; 16],
    seconds: u64,
}

impl Stamp {
    /// Parses `20130524T000000Z`; `None` for anything else, impossible dates included.
    pub fn parse(text: &str) -> Option<Stamp> {
        let bytes: [u8; 16] = text.as_bytes().try_into().ok()?;
        if bytes[8] != b'T' || bytes[15] != b'Z' {
            return None;
        }
        let number = |from: usize, to: usize| {
            bytes[from..to]
                .iter()
                .try_fold(0u64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
        };
        let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
        let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let month_days = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => return None,
        };
        if year < 1970 || !(1..=month_days).contains(&day) {
            return None;
        }
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_since_epoch(year, month, day);
        Some(Stamp { text: bytes, seconds: days * 86_400 + hour * 3_600 + minute * 60 + second })
    }

    /// The stamp of an instant; the form a client writes.
    pub fn of(instant: SystemTime) -> Stamp {
        let seconds = instant.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (year, month, day) = civil(seconds / 86_400);
        let rest = seconds % 86_400;
        let text = format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60);
        let mut bytes = *b"00000000T000000Z";
        // A year beyond 9999 cannot be written in this form; the epoch's own text then fails to match.
        if text.len() == bytes.len() {
            bytes.copy_from_slice(text.as_bytes());
        }
        Stamp { text: bytes, seconds }
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

// Both conversions count days from 1 March of year 0, where a year ends with its leap day.
fn days_since_epoch(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    days - 719_468
}

fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let within = days % 146_097;
    let year = (within - within / 1_460 + within / 36_524 - within / 146_096) / 365;
    let day_of_year = within - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}
