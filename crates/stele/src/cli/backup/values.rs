//! Values of the options of `stele backup`.

use stele_archive::Period;
use stele_ground::calendar::parse_moment;
use stele_server::moment::is_before_1970;

use super::KeepUntil;

/// The longest period.
const LONGEST: Period = Period::Years(100);

/// A period in seconds: days, weeks, or years. Years are those of retention, leap days included: a
/// lock for years ends at no earlier date than theirs.
pub fn period(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no period: write 30d, 12w or 7y; at most 100y");
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let days = match unit {
        "d" => Period::Days(number).days(),
        "w" => u64::from(number) * 7,
        "y" => Period::Years(number).days(),
        _ => return Err(wrong()),
    };
    match (1..=LONGEST.days()).contains(&days) {
        true => Ok(days * 86_400),
        false => Err(wrong()),
    }
}

/// A name of a host, or a tag.
pub fn word(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("an empty word chooses nothing; leave the option out".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Each of them takes memory, so there is a bound.
fn up_to(most: usize, text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("'{text}' is no number from 1 to {most}"))
}

/// Snapshots that a rule keeps.
pub fn from_zero(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("'{text}' is no whole number from 0 to {}", usize::MAX))
}

pub fn days(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("'{text}' is no number of days from 0 to {}", u64::MAX))
}

/// Backups at once.
pub fn at_once(text: &str) -> Result<usize, String> {
    up_to(64, text)
}

/// Requests to a store at once.
pub fn sessions(text: &str) -> Result<usize, String> {
    up_to(16, text)
}

/// A moment, or the last second of a day.
fn moment(text: &str) -> Option<u64> {
    parse_moment(text).or_else(|| parse_moment(&format!("{text}T23:59:59Z")))
}

/// Whether it is a moment or a day before the first one of [`moment`].
fn is_too_early(text: &str) -> bool {
    is_before_1970(text) || is_before_1970(&format!("{text}T23:59:59Z"))
}

pub fn date(text: &str) -> Result<u64, String> {
    let what = if is_too_early(text) { "lies before 1970" } else { "is no date" };
    moment(text).ok_or_else(|| format!("'{text}' {what}: write 2027-01-31 or 2027-01-31T08:00:00Z, in UTC"))
}

pub fn keep_until(text: &str) -> Result<KeepUntil, String> {
    if text == "none" {
        return Ok(KeepUntil::Never);
    }
    match moment(text) {
        Some(date) => Ok(KeepUntil::Date(date)),
        None if is_too_early(text) => {
            Err(format!("'{text}' lies before 1970: write a date to come (2027-01-31) or a period (30d, 12w, 7y)"))
        }
        None => period(text).map(KeepUntil::Period).map_err(|_| {
            format!("'{text}' is neither a date (2027-01-31) nor a period (30d, 12w, 7y; at most 100y) nor `none`")
        }),
    }
}

pub fn lock_until(text: &str) -> Result<KeepUntil, String> {
    match keep_until(text)? {
        KeepUntil::Never => Err("a lock is not taken away: give a date (2027-01-31) or a period (30d)".to_owned()),
        until => Ok(until),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_of_years_has_its_leap_days() {
        let days = |text: &str| period(text).map(|seconds| seconds / 86_400).ok();
        for (text, expected) in [
            ("1d", Some(1)),
            ("12w", Some(84)),
            ("1y", Some(366)),
            ("7y", Some(2557)),
            ("100y", Some(36_525)),
            ("36525d", Some(36_525)),
            ("0d", None),
            ("101y", None),
            ("36526d", None),
            ("y", None),
            ("7", None),
            ("-7y", None),
            ("18446744073709551615y", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(days(text), expected, "{text}");
        }
    }
}
