//! The access log of buckets that have one: a line for each request, in the form of AWS, stored in batches as objects.
//!
//! Best effort, as on AWS: lines wait in memory, so a crash loses them. No request waits for its line. At
//! [`WAITING_MAX`] bytes further lines are dropped and counted, and so is a batch that cannot be stored after
//! [`ATTEMPTS_MAX`] attempts.

use super::Frontend;
use crate::query::{Query, decode};
use crate::serve::Peer;
use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, HOST, HeaderName, REFERER, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Response};
use s3s::Body;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Bytes of all lines that wait.
const WAITING_MAX: usize = 16 << 20;
/// Bytes of one bucket's lines that are stored before their time.
const BATCH_MAX: usize = 1 << 20;
/// Attempts to store a batch.
const ATTEMPTS_MAX: u32 = 10;
/// Bytes of a text that a client chose.
const TEXT_MAX: usize = 2048;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Parameters whose values would let readers of the log act as the sender.
const SECRET: [&str; 3] = ["signature", "x-amz-signature", "x-amz-security-token"];

/// The lines that wait, by the bucket that they are about.
#[derive(Default)]
pub(super) struct AccessLogs(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    batches: BTreeMap<String, Batch>,
    bytes: usize,
    dropped: u64,
}

struct Batch {
    lines: String,
    since: Instant,
    attempts: u32,
}

/// What the line of a request says before its answer is known.
pub(super) struct Logged {
    bucket: String,
    owner: String,
    key: Option<String>,
    operation: String,
    request: String,
    address: String,
    referer: String,
    agent: String,
    version: String,
    host: String,
    signature: &'static str,
    form: &'static str,
    tls: &'static str,
    received: Option<u64>,
    method: Method,
}

impl AccessLogs {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, bucket: &str, line: &str) {
        let mut waiting = self.lock();
        if waiting.bytes + line.len() > WAITING_MAX {
            waiting.dropped += 1;
            return;
        }
        waiting.bytes += line.len();
        match waiting.batches.get_mut(bucket) {
            Some(batch) => batch.lines.push_str(line),
            None => {
                let batch = Batch { lines: line.to_owned(), since: Instant::now(), attempts: 0 };
                waiting.batches.insert(bucket.to_owned(), batch);
            }
        }
    }

    /// Takes the batches that are due. Their bytes still count.
    fn due(&self, every: Duration, all: bool) -> Vec<(String, Batch)> {
        let mut waiting = self.lock();
        let is_due = |batch: &Batch| {
            all || batch.since.elapsed() >= every || (batch.attempts == 0 && batch.lines.len() >= BATCH_MAX)
        };
        let due: Vec<String> =
            waiting.batches.iter().filter(|(_, batch)| is_due(batch)).map(|(bucket, _)| bucket.clone()).collect();
        due.into_iter().filter_map(|bucket| waiting.batches.remove_entry(&bucket)).collect()
    }

    fn stored(&self, batch: &Batch) {
        let mut waiting = self.lock();
        waiting.bytes = waiting.bytes.saturating_sub(batch.lines.len());
    }

    /// Keeps a batch for another attempt, before the lines that came meanwhile. False: it is dropped.
    fn failed(&self, bucket: &str, mut batch: Batch) -> bool {
        let mut waiting = self.lock();
        batch.attempts += 1;
        if batch.attempts >= ATTEMPTS_MAX {
            waiting.bytes = waiting.bytes.saturating_sub(batch.lines.len());
            waiting.dropped += batch.lines.lines().count() as u64;
            return false;
        }
        if let Some(newer) = waiting.batches.remove(bucket) {
            batch.lines.push_str(&newer.lines);
        }
        batch.since = Instant::now();
        waiting.batches.insert(bucket.to_owned(), batch);
        true
    }
}

impl Frontend {
    /// The line of a request, if its bucket has an access log.
    pub(super) fn begin_line<B>(&self, request: &Request<B>, peer: &Peer) -> Option<Logged> {
        let (uri, headers) = (request.uri(), request.headers());
        let bucket = self.bucket_named(uri, headers)?;
        let (_, owner) = self.archive.access_log_of(&bucket)?;
        let path = decode(uri.path(), false).unwrap_or_default();
        let path = path.strip_prefix('/').unwrap_or(&path);
        let key = match self.bucket_of_host(headers) {
            Some(_) => Some(path),
            None => path.split_once('/').map(|(_, key)| key),
        };
        let key = key.filter(|key| !key.is_empty()).map(str::to_owned);
        let query = Query::parse(uri.query()).unwrap_or_default();
        let presigned = query.iter().any(|(name, _)| name.eq_ignore_ascii_case("x-amz-signature"));
        let signed = headers.contains_key(hyper::header::AUTHORIZATION);
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let received = text(HeaderName::from_static("x-amz-decoded-content-length")).or_else(|| text(CONTENT_LENGTH));
        Some(Logged {
            operation: format!("REST.{}.{}", request.method(), resource(&query, key.is_some())),
            request: format!("{} {} HTTP/1.1", request.method(), without_secrets(uri)),
            address: peer.address.map_or_else(|| "-".into(), |address| address.ip().to_string()),
            referer: text(REFERER).unwrap_or_default(),
            agent: text(USER_AGENT).unwrap_or_default(),
            version: query.get("versionId").unwrap_or_default().to_owned(),
            host: text(HOST).unwrap_or_default(),
            signature: if signed || presigned { "SigV4" } else { "-" },
            form: match (signed, presigned) {
                (true, _) => "AuthHeader",
                (false, true) => "QueryString",
                (false, false) => "-",
            },
            tls: if peer.secure { "TLSv1.3" } else { "-" },
            received: received.and_then(|length| length.parse().ok()),
            method: request.method().clone(),
            owner: bare(&owner).to_owned(),
            bucket,
            key,
        })
    }

    /// Ends the line of a request, and lets it wait for its batch.
    pub(super) fn end_line(
        &self,
        logged: &Logged,
        requester: &str,
        response: &Response<Body>,
        id: &str,
        took: Duration,
    ) {
        let now = (self.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let status = response.status();
        let code = if status.is_success() || status.is_redirection() { String::new() } else { code_of(response) };
        let sent = number(response.headers(), CONTENT_LENGTH);
        let size = match logged.method {
            Method::PUT | Method::POST => logged.received.filter(|_| logged.key.is_some()),
            _ => whole_size(response.headers()).or(sent).filter(|_| logged.key.is_some() && status.is_success()),
        };
        let sent = sent.filter(|sent| *sent > 0 && logged.method != Method::HEAD);
        let mut line = format!(
            "{} {} [{}] {} {} {id} {} {} {} {} {} {} {} {ms} {ms} {} {} {} {id} {} - {} {} {} - -\n",
            plain(&logged.owner),
            plain(&logged.bucket),
            day_and_time(now),
            logged.address,
            plain(bare(requester)),
            logged.operation,
            plain(&logged.key.as_deref().map(escaped).unwrap_or_default()),
            quoted(&logged.request),
            status.as_u16(),
            plain(&code),
            counted(sent),
            counted(size),
            quoted(&logged.referer),
            quoted(&logged.agent),
            plain(&logged.version),
            logged.signature,
            logged.form,
            plain(&logged.host),
            logged.tls,
            ms = took.as_millis(),
        );
        line.retain(|letter| letter != '\r');
        self.access_logs.add(&logged.bucket, &line);
    }

    /// Stores the lines that are due. `all`: all of them, before a stop.
    pub async fn store_access_logs(&self, all: bool) {
        for (bucket, batch) in self.access_logs.due(self.settings.access_log_every, all) {
            let now = (self.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            let moment = stele_ground::calendar::moment(now).replace(['T', ':'], "-");
            let name = format!("{}-{}", moment.trim_end_matches('Z'), self.next_id());
            let lines = Bytes::copy_from_slice(batch.lines.as_bytes());
            match self.archive.store_access_log(&bucket, &name, lines).await {
                Ok(()) => self.access_logs.stored(&batch),
                Err(error) => {
                    let kept = self.access_logs.failed(&bucket, batch);
                    let next = if kept { "it is tried again" } else { "its lines are dropped" };
                    tracing::warn!("the access log of bucket `{bucket}` could not be stored, and {next}: {error}");
                }
            }
        }
        let dropped = std::mem::take(&mut self.access_logs.lock().dropped);
        if dropped > 0 {
            self.metrics.access_lines_dropped(dropped);
            tracing::warn!("{dropped} lines of access logs were dropped");
        }
    }
}

/// What the operation is on, as AWS names it.
fn resource(query: &Query, object: bool) -> &'static str {
    for (name, of_bucket, of_object) in [
        ("acl", "ACL", "ACL"),
        ("attributes", "BUCKET", "OBJECT_ATTRIBUTES"),
        ("cors", "CORS", "OBJECT"),
        ("delete", "MULTI_OBJECT_DELETE", "OBJECT"),
        ("encryption", "ENCRYPTION", "OBJECT"),
        ("inventory", "INVENTORY", "OBJECT"),
        ("legal-hold", "BUCKET", "LEGAL_HOLD"),
        ("lifecycle", "LIFECYCLE", "OBJECT"),
        ("location", "LOCATION", "OBJECT"),
        ("logging", "LOGGING_STATUS", "OBJECT"),
        ("notification", "NOTIFICATION", "OBJECT"),
        ("object-lock", "OBJECT_LOCK_CONFIGURATION", "OBJECT"),
        ("partNumber", "BUCKET", "PART"),
        ("policy", "BUCKETPOLICY", "OBJECT"),
        ("publicAccessBlock", "PUBLIC_ACCESS_BLOCK", "OBJECT"),
        ("retention", "BUCKET", "RETENTION"),
        ("tagging", "TAGGING", "OBJECT_TAGGING"),
        ("uploadId", "UPLOAD", "UPLOAD"),
        ("uploads", "UPLOADS", "UPLOADS"),
        ("versioning", "VERSIONING", "OBJECT"),
        ("versions", "BUCKETVERSIONS", "OBJECT"),
    ] {
        if query.has(name) {
            return if object { of_object } else { of_bucket };
        }
    }
    if object { "OBJECT" } else { "BUCKET" }
}

fn without_secrets(uri: &hyper::Uri) -> String {
    let Some(query) = uri.query() else { return uri.path().to_owned() };
    let shown = query.split('&').map(|part| match part.split_once('=') {
        Some((name, _)) if SECRET.iter().any(|secret| name.eq_ignore_ascii_case(secret)) => format!("{name}=..."),
        _ => part.to_owned(),
    });
    format!("{}?{}", uri.path(), shown.collect::<Vec<_>>().join("&"))
}

/// `06/Feb/2019:00:00:38 +0000`.
fn day_and_time(seconds: u64) -> String {
    let moment = stele_ground::calendar::moment(seconds);
    let (date, time) = moment.split_once('T').unwrap_or_default();
    let mut parts = date.split('-');
    let year = parts.next().unwrap_or_default();
    let month = parts.next().and_then(|month| month.parse::<usize>().ok()).unwrap_or(1);
    let month = MONTHS.get(month.saturating_sub(1)).copied().unwrap_or_default();
    format!("{}/{month}/{year}:{} +0000", parts.next().unwrap_or_default(), time.trim_end_matches('Z'))
}

/// The name without the kind of actor.
fn bare(actor: &str) -> &str {
    actor.strip_prefix("key ").unwrap_or(if actor == "anonymous" { "" } else { actor })
}

fn counted(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// A field without quotes: no white space, and `-` for nothing.
fn plain(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { visible(text).replace(' ', "%20") }
}

fn quoted(text: &str) -> String {
    if text.is_empty() { "\"-\"".to_owned() } else { format!("\"{}\"", visible(text)) }
}

/// Visible ASCII without quotes, so that no client can begin a line or a field.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for byte in text.bytes().take(TEXT_MAX) {
        match byte {
            b' '..=b'~' if byte != b'"' => shown.push(byte as char),
            // Writing into a string cannot fail.
            _ => drop(write!(shown, "%{byte:02X}")),
        }
    }
    shown
}

fn escaped(key: &str) -> String {
    let mut bytes = Vec::new();
    crate::sigv4::encode(&mut bytes, key.as_bytes(), true);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn number(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn whole_size(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_RANGE)?.to_str().ok()?.rsplit('/').next()?.parse().ok()
}

fn code_of(response: &Response<Body>) -> String {
    let document = response.body().bytes().unwrap_or_default();
    let text = String::from_utf8_lossy(&document);
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    code.map_or_else(String::new, |(code, _)| code.to_owned())
}

#[cfg(test)]
mod tests;
