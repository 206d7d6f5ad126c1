//! Ranges of bytes as the wire crate reads them. Its numbers end at the largest signed one of 64
//! bits, and those of RFC 9110 have no end: a last position behind the end of an object means its
//! end.

use s3s::dto::Range;

const MAX: u64 = i64::MAX.cast_unsigned();

/// The range as the wire crate reads it; `None` for what is no range.
pub fn readable(range: &str) -> Option<String> {
    match Range::parse(range) {
        // The wire crate reads a suffix without a length, and it is none.
        Ok(_) if range.bytes().any(|byte| byte.is_ascii_digit()) => Some(range.to_owned()),
        Ok(_) | Err(_) => within_numbers(range),
    }
}

/// A range with the largest number in place of larger ones. Both lie behind the end of every
/// object.
fn within_numbers(range: &str) -> Option<String> {
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| digits.parse().unwrap_or(MAX).min(MAX))
    };
    match range.strip_prefix("bytes=")?.split_once('-')? {
        ("", length) => Some(format!("bytes=-{}", number(length)?)),
        (first, "") => Some(format!("bytes={}-", number(first)?)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| format!("bytes={first}-{last}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_position_behind_every_end_means_to_the_end() {
        let large = "18446744073709551616";
        let check = |range: String, expected: String| {
            assert!(Range::parse(&expected).is_ok(), "the wire crate reads {expected}");
            assert_eq!(readable(&range), Some(expected), "{range}");
        };
        check("bytes=5-18446744073709551615".into(), format!("bytes=5-{MAX}"));
        check(format!("bytes=5-{large}"), format!("bytes=5-{MAX}"));
        check(format!("bytes={large}-"), format!("bytes={MAX}-"));
        check(format!("bytes=-{large}"), format!("bytes=-{MAX}"));
        for range in ["bytes=5-7", "bytes=5-", "bytes=-3"] {
            check(range.into(), range.into());
        }
        let backwards = format!("bytes={large}-5");
        for range in [backwards.as_str(), "bytes=7-5", "bytes=-", "bytes=a-5", "bytes=1-2,4-5", "5-7"] {
            assert_eq!(readable(range), None, "{range}");
        }
    }
}
