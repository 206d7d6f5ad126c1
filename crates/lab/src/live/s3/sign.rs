//! Signatures of requests (AWS Signature Version 4), and the keys they are made with.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};

use stele_ground::calendar::stamp;

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

/// The SHA-256 of a body, as requests carry it.
pub fn hash(body: &[u8]) -> String {
    hexadecimal(digest(&SHA256, body).as_ref())
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// What is signed of a request. Paths and queries hold nothing that had to be written otherwise.
pub struct Request<'a> {
    pub method: &'a str,
    pub host: &'a str,
    pub path: &'a str,
    /// In the order of their names.
    pub query: &'a str,
    /// Of the body.
    pub hash: &'a str,
}

/// Signs requests. The signing key of a day is derived once.
pub struct Signer {
    keys: Keys,
    day: String,
    key: Key,
}

impl Signer {
    pub fn new(keys: Keys) -> Signer {
        let (day, key) = (String::new(), Key::new(HMAC_SHA256, &[]));
        Signer { keys, day, key }
    }

    /// The headers that carry the signature, and those that it covers.
    pub fn headers(&mut self, request: &Request<'_>) -> String {
        self.headers_with(request, &[])
    }

    /// The same, with further headers of the request, which the signature covers too. Their names
    /// are lower-case.
    pub fn headers_with(&mut self, request: &Request<'_>, more: &[(&str, &str)]) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.headers_at(request, more, &stamp(since))
    }

    pub fn headers_at(&mut self, request: &Request<'_>, more: &[(&str, &str)], now: &str) -> String {
        let Request { method, host, path, query, hash: content } = request;
        let day = now.get(..8).unwrap_or_default();
        if self.day != day {
            (self.day, self.key) = (day.to_owned(), self.keys.derive(day));
        }
        let own = [("host", *host), ("x-amz-content-sha256", *content), ("x-amz-date", now)];
        let token = self.keys.token.as_deref().map(|token| ("x-amz-security-token", token));
        let mut headers: Vec<(&str, &str)> = own.into_iter().chain(token).chain(more.iter().copied()).collect();
        headers.sort_unstable();
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{content}");
        let scope = format!("{day}/{}/s3/aws4_request", self.keys.region);
        let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{}", hash(canonical.as_bytes()));
        let signature = hexadecimal(sign(&self.key, text.as_bytes()).as_ref());
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!(
            "{lines}authorization: AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}\r\n",
            self.keys.access
        )
    }
}

impl Keys {
    fn derive(&self, day: &str) -> Key {
        let first = Key::new(HMAC_SHA256, format!("AWS4{}", self.secret).as_bytes());
        [day, &self.region, "s3", "aws4_request"]
            .iter()
            .fold(first, |key, part| Key::new(HMAC_SHA256, sign(&key, part.as_bytes()).as_ref()))
    }
}
