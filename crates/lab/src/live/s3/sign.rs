//! Signatures of requests (AWS Signature Version 4), and the keys they are made with.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};

use crate::error::LabError;

#[derive(Clone)]
pub struct Keys {
    pub access: String,
    pub secret: String,
    pub token: Option<String>,
    pub region: String,
}

/// Without what must not be seen.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({}, {})", self.access, self.region)
    }
}

impl Keys {
    /// From the environment, else from the file that other clients read.
    pub fn find() -> Result<Keys, LabError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        if let Some((access, secret)) = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY")) {
            return Ok(Keys { access, secret, token: variable("AWS_SESSION_TOKEN"), region });
        }
        let file = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
        let file = file.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".aws/credentials")));
        let profile = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        Keys::parse(&text, &profile, region).ok_or_else(|| {
            LabError::Usage(format!(
                "S3 needs keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give ~/.aws/credentials a [{profile}]"
            ))
        })
    }

    pub fn parse(text: &str, profile: &str, region: String) -> Option<Keys> {
        let heading = format!("[{profile}]");
        let section = text.lines().map(str::trim).skip_while(|line| *line != heading).skip(1);
        let mut lines = section.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once('='));
        let (mut access, mut secret, mut token) = (None, None, None);
        lines.by_ref().for_each(|(name, value)| match name.trim() {
            "aws_access_key_id" => access = Some(value.trim().to_owned()),
            "aws_secret_access_key" => secret = Some(value.trim().to_owned()),
            "aws_session_token" => token = Some(value.trim().to_owned()),
            _ => {}
        });
        Some(Keys { access: access?, secret: secret?, token, region })
    }
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `20130524T000000Z` of seconds since 1970.
pub fn stamp(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's civil_from_days, for days behind 1970.
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let part = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * part + 2) / 5 + 1, if part < 10 { part + 3 } else { part - 9 });
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// What is signed of a request. Paths and queries hold nothing that had to be written otherwise.
pub struct Request<'a> {
    pub method: &'a str,
    pub host: &'a str,
    pub path: &'a str,
    /// In the order of their names.
    pub query: &'a str,
    pub body: &'a [u8],
}

impl Request<'_> {
    /// The headers that carry the signature, and those that it covers.
    pub fn headers(&self, keys: &Keys) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.headers_at(keys, &stamp(since))
    }

    pub fn headers_at(&self, keys: &Keys, now: &str) -> String {
        let content = hexadecimal(digest(&SHA256, self.body).as_ref());
        let mut covered = vec![("host", self.host), ("x-amz-content-sha256", &content), ("x-amz-date", now)];
        covered.extend(keys.token.as_ref().map(|token| ("x-amz-security-token", token.as_str())));
        let lines: String = covered.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let names: Vec<&str> = covered.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let canonical = format!("{}\n{}\n{}\n{lines}\n{names}\n{content}", self.method, self.path, self.query);
        let day = now.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/s3/aws4_request", keys.region);
        let whole = hexadecimal(digest(&SHA256, canonical.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{whole}");
        let hmac = |key: &[u8], text: &str| sign(&Key::new(HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec();
        let first = hmac(format!("AWS4{}", keys.secret).as_bytes(), day);
        let key = ["s3", "aws4_request"].iter().fold(hmac(&first, &keys.region), |key, part| hmac(&key, part));
        let signature = hexadecimal(&hmac(&key, &text));
        let headers: String = covered.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!(
            "{headers}authorization: AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}\r\n",
            keys.access
        )
    }
}
