//! Signature Version 4 as a client: one signing key, derived once, and a few hundred nanoseconds a request.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::{digest, hmac};

/// Signs for one key, region and day.
pub struct Signer {
    access_key: String,
    key: hmac::Key,
    date: String,
    seconds: u64,
    stamp: String,
}

impl Signer {
    pub fn new(access_key: &str, secret: &str) -> Signer {
        let seconds = now();
        let stamp = stamp(seconds);
        let date = stamp.chars().take(8).collect::<String>();
        let sign = |key: &[u8], text: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
        };
        let dated = sign(format!("AWS4{secret}").as_bytes(), &date);
        let key = sign(&sign(&sign(&dated, "us-east-1"), "s3"), "aws4_request");
        Signer { access_key: access_key.to_owned(), key: hmac::Key::new(hmac::HMAC_SHA256, &key), date, seconds, stamp }
    }

    /// Appends the headers that sign a request without a query.
    pub fn sign(&mut self, head: &mut Vec<u8>, method: &str, path: &str, host: &str, hash: &str) {
        let seconds = now();
        if seconds != self.seconds {
            (self.seconds, self.stamp) = (seconds, stamp(seconds));
        }
        let names = "host;x-amz-content-sha256;x-amz-date";
        let canonical = format!(
            "{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:{hash}\nx-amz-date:{}\n\n{names}\n{hash}",
            self.stamp
        );
        let scope = format!("{}/us-east-1/s3/aws4_request", self.date);
        let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{}", self.stamp, sha256(canonical.as_bytes()));
        let signature = hex(hmac::sign(&self.key, text.as_bytes()).as_ref());
        let lines = format!(
            "x-amz-content-sha256: {hash}\r\nx-amz-date: {}\r\nauthorization: AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}\r\n",
            self.stamp, self.access_key
        );
        head.extend_from_slice(lines.as_bytes());
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// `20130524T000000Z`; days are counted from 1 March of year 0.
fn stamp(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let within = days % 146_097;
    let year = (within - within / 1_460 + within / 36_524 - within / 146_096) / 365;
    let of_year = within - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = year + days / 146_097 * 400 + u64::from(month <= 2);
    let rest = seconds % 86_400;
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn stamps_are_dates() {
        assert_eq!(super::stamp(1_369_353_600), "20130524T000000Z");
        assert_eq!(super::stamp(951_868_799), "20000229T235959Z");
    }
}
