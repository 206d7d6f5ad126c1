//! The access log of buckets that have one: a line for each request, in the form of AWS, stored in
//! batches as objects.
//!
//! Best effort, as on AWS: lines wait in memory, so a crash loses them. No request waits for its
//! line. At the limits of `waiting.rs` further lines are dropped and counted, and so is a batch
//! that cannot be stored after ten attempts, or whose target takes no reports any more.
//!
//! Refused senders without a key get few lines, and short ones: they must not fill the store.

mod waiting;

use super::Frontend;
use crate::query::{Query, decode};
use crate::serve::Peer;
use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, HOST, HeaderName, REFERER, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Response};
use s3s::Body;
use std::fmt::Write;
use std::time::{Duration, SystemTime};
use stele_archive::ArchiveError;
pub(super) use waiting::AccessLogs;

/// Time for one batch to be stored, so that one target holds up no other.
const STORE_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a text that a client chose.
const TEXT_MAX: usize = 2048;
/// The same of a refused sender without a key.
const STRANGER_TEXT_MAX: usize = 256;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Parameters whose values would let readers of the log act as the sender.
const SECRET: [&str; 3] = ["signature", "x-amz-signature", "x-amz-security-token"];

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
            request: format!(
                "{} {} HTTP/1.1",
                request.method(),
                without_secrets(uri.path_and_query().map_or("/", |uri| uri.as_str()))
            ),
            address: peer.address.map_or_else(|| "-".into(), |address| address.ip().to_string()),
            referer: without_secrets(&text(REFERER).unwrap_or_default()),
            agent: text(USER_AGENT).unwrap_or_default(),
            version: query.get("versionId").unwrap_or_default().to_owned(),
            host: text(HOST).unwrap_or_default(),
            signature: if signed || presigned { "SigV4" } else { "-" },
            form: match (signed, presigned) {
                (true, _) => "AuthHeader",
                (false, true) => "QueryString",
                (false, false) => "-",
            },
            tls: peer.tls,
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
        let stranger = requester.is_empty() && (status.is_client_error() || status.is_server_error());
        if stranger && !self.access_logs.admit_stranger(&logged.bucket, now) {
            return;
        }
        let most = if stranger { STRANGER_TEXT_MAX } else { TEXT_MAX };
        let (plain, quoted) = (|text: &str| plain(text, most), |text: &str| quoted(text, most));
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
            plain(&logged.operation),
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
        let round = self.access_logs.begin_round();
        while let Some(mut lent) = self.access_logs.next_due(round, self.settings.access_log_every, all) {
            let (bucket, repeated) = (lent.bucket.clone(), lent.is_repeated());
            let (lines, name) = lent.content(|| self.new_name());
            let lines = Bytes::copy_from_slice(lines.as_bytes());
            let storing = self.archive.store_access_log(&bucket, &name, lines);
            let (for_good, why) = match tokio::time::timeout(STORE_PATIENCE, storing).await {
                // An attempt that was broken off may have stored this very object.
                Ok(Err(ArchiveError::PreconditionFailed(_))) if repeated => {
                    lent.stored();
                    continue;
                }
                Ok(Ok(())) => {
                    lent.stored();
                    continue;
                }
                Ok(Err(error)) => {
                    let gone = matches!(error, ArchiveError::InvalidArgument(_) | ArchiveError::NoSuchBucket(_));
                    (gone, error.to_string())
                }
                Err(_) => (false, format!("it took longer than {} s", STORE_PATIENCE.as_secs())),
            };
            let next = if lent.failed(for_good) { "it is tried again" } else { "its lines are dropped" };
            tracing::warn!("the access log of bucket `{bucket}` could not be stored, and {next}: {why}");
        }
        let dropped = self.access_logs.take_dropped();
        if dropped > 0 {
            self.metrics.access_lines_dropped(dropped);
            tracing::warn!("{dropped} lines of access logs were dropped");
        }
    }

    fn new_name(&self) -> String {
        let now = (self.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let moment = stele_ground::calendar::moment(now).replace(['T', ':'], "-");
        format!("{}-{}", moment.trim_end_matches('Z'), self.next_id())
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

/// A URL, or its path and query, without the values that would let a reader act as its sender. A
/// name counts as it is read by the server: decoded.
fn without_secrets(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let is_secret = |name: &str| {
        let name = decode(name, true).unwrap_or_default();
        SECRET.iter().any(|secret| name.eq_ignore_ascii_case(secret))
    };
    let shown = query.split('&').map(|part| match part.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=..."),
        _ => part.to_owned(),
    });
    format!("{path}?{}", shown.collect::<Vec<_>>().join("&"))
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
fn plain(text: &str, most: usize) -> String {
    if text.is_empty() { "-".to_owned() } else { visible(text, most).replace(' ', "%20") }
}

fn quoted(text: &str, most: usize) -> String {
    if text.is_empty() { "\"-\"".to_owned() } else { format!("\"{}\"", visible(text, most)) }
}

/// Visible ASCII without quotes, so that no client can begin a line or a field. `most`: bytes of
/// the text that are shown.
fn visible(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    for byte in text.bytes().take(most) {
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
