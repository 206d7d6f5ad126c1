//! A repository in a bucket, over S3: each object of the repository is an object of the bucket.
//!
//! `create` is a conditional PUT (`If-None-Match: *`), so two writers of one name are one and a refusal. A request whose
//! connection breaks, or that the server could answer later, is repeated after a pause. If its answer was lost, the
//! repetition says that the object exists; it is then compared with what was sent. The times of objects and the clock
//! are the server's. A listing that is not whole is an error.
//!
//! Locks are retention in COMPLIANCE mode. A removal removes the version for good, so that space comes back where the
//! bucket keeps versions; what retention keeps stays visible. Only sessions, epochs and lists of damaged chunks, which
//! no snapshot needs, then disappear behind a delete marker.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::HeaderMap;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use stele_backup::BackupError;
use stele_backup::store::s3::{self, Page, tag};
use stele_backup::store::{Folder, Listed, Name, Store};
use stele_ground::calendar::{LATEST, moment};
use stele_lab::live::s3::sign::{Keys, Request, Signer, hash};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::failure::{Failure, Outcome};

/// Bytes of an answer that is a listing or an error.
const TEXT_MAX: u64 = 8 << 20;
/// Objects that prune hides if it cannot remove them.
const HIDDEN: [Folder; 3] = [Folder::Sessions, Folder::Epochs, Folder::Damaged];
/// Versions of one object that a removal takes away.
const VERSIONS_MAX: usize = 10_000;
/// Connections that are kept.
const KEPT_MAX: usize = 16;

type Sender = SendRequest<Full<Bytes>>;
type Result<T> = std::result::Result<T, BackupError>;

pub struct Bucket {
    /// As the operator gave it.
    place: String,
    host: String,
    port: u16,
    /// The host as requests name it.
    authority: String,
    bucket: String,
    /// What precedes every name: empty, or ends in a slash.
    prefix: String,
    tls: Option<TlsConnector>,
    signer: Mutex<Signer>,
    kept: Mutex<Vec<Sender>>,
    runtime: Handle,
}

/// One request.
#[derive(Clone, Copy)]
struct Ask<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    /// Those that begin with `x-amz-` are signed.
    headers: &'a [(&'a str, &'a str)],
    max: u64,
}

struct Answer {
    status: u16,
    head: HeaderMap,
    body: Bytes,
    /// An earlier attempt ended without an answer: the server may have served it.
    repeated: bool,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.get(name).and_then(|value| value.to_str().ok())
    }
}

/// A version of an object, as HEAD shows it.
struct Shown {
    version: Option<String>,
    governance: bool,
    kept_until: Option<u64>,
    held: bool,
}

/// Why a request got no answer: whether it can be repeated.
struct Broken(String);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the text names a bucket and not a directory.
pub fn is_address(text: &str) -> bool {
    text.starts_with("s3://") || text.starts_with("s3+http://")
}

impl Bucket {
    /// `s3://HOST[:PORT]/BUCKET[/PREFIX]`, or `s3+http://` without TLS. Keys come from where other S3 clients find them.
    pub fn open(text: &str) -> Outcome<Bucket> {
        let wrong = || {
            Failure::usage(format!("'{text}' is no place of a repository"))
                .next("write s3://HOST[:PORT]/BUCKET[/PREFIX], or s3+http:// without TLS")
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let (tls, usual) = if scheme == "s3" { (Some(connector()), 443) } else { (None, 80) };
        let (authority, path) = rest.split_once('/').ok_or_else(wrong)?;
        let (bucket, prefix) = path.trim_end_matches('/').split_once('/').unwrap_or((path.trim_end_matches('/'), ""));
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-._/".contains(c));
        if authority.is_empty() || bucket.is_empty() || !plain(bucket) || !plain(prefix) || authority.contains('@') {
            return Err(wrong());
        }
        let uri: hyper::Uri = format!("http://{authority}/").parse().map_err(|_| wrong())?;
        Ok(Bucket {
            place: text.to_owned(),
            host: uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(usual),
            authority: authority.to_owned(),
            bucket: bucket.to_owned(),
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
            tls,
            signer: Mutex::new(Signer::new(Keys::find()?)),
            kept: Mutex::default(),
            runtime: Handle::current(),
        })
    }

    fn path(&self, name: &Name) -> String {
        format!("/{}/{}{}", self.bucket, self.prefix, name.text())
    }

    /// A refused lock, with what to do.
    fn explained(&self, error: BackupError) -> BackupError {
        match error {
            BackupError::Refused(text) => BackupError::Refused(format!(
                "{text}; a locked snapshot takes a key that may set retention (`stele key create --access \
                 read,write,list,retain`)"
            )),
            BackupError::Failed(text) if text.contains("InvalidRequest") => {
                BackupError::Invalid(format!("{text}; a locked snapshot takes a bucket with Object Lock"))
            }
            other => other,
        }
    }

    async fn connect(&self) -> std::result::Result<Sender, Broken> {
        let broken = |error: &dyn std::fmt::Display| Broken(format!("cannot reach {}: {error}", self.authority));
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| broken(&error))?;
        stream.set_nodelay(true).map_err(|error| broken(&error))?;
        match &self.tls {
            None => handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).map_err(|error| broken(&error))?;
                handshake(tls.connect(name, stream).await.map_err(|error| broken(&error))?).await
            }
        }
    }

    async fn attempt(&self, ask: Ask<'_>, body: &Bytes, digest: &str) -> std::result::Result<Answer, Broken> {
        let broken =
            |error: &dyn std::fmt::Display| Broken(format!("the connection to {} broke: {error}", self.authority));
        let silent =
            |limit: Duration| Broken(format!("{} does not answer within {} seconds", self.authority, limit.as_secs()));
        // The time covers the sending of the body; that of the answer may take as long as bytes come.
        let limit = s3::patience(body.len() as u64);
        let answered = tokio::time::timeout(limit, self.begin(ask, body, digest)).await;
        let (sender, answer) = answered.map_err(|_| silent(limit))??;
        let status = answer.status();
        let head = answer.headers().clone();
        let max = if status.is_success() { ask.max } else { TEXT_MAX };
        let mut coming = Limited::new(answer.into_body(), usize::try_from(max).unwrap_or(usize::MAX));
        let mut body = Vec::new();
        loop {
            let frame = tokio::time::timeout(s3::PATIENCE, coming.frame()).await.map_err(|_| silent(s3::PATIENCE))?;
            let Some(frame) = frame else { break };
            if let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() {
                body.extend_from_slice(&data);
            }
        }
        let mut kept = lock(&self.kept);
        if kept.len() < KEPT_MAX {
            kept.push(sender);
        }
        Ok(Answer { status: status.as_u16(), head, body: body.into(), repeated: false })
    }

    /// Sends a request, and gives the beginning of the answer.
    async fn begin(
        &self,
        ask: Ask<'_>,
        body: &Bytes,
        digest: &str,
    ) -> std::result::Result<(Sender, hyper::Response<Incoming>), Broken> {
        let broken =
            |error: &dyn std::fmt::Display| Broken(format!("the connection to {} broke: {error}", self.authority));
        let kept = lock(&self.kept).pop();
        let mut sender = match kept.filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let Ask { method, path, query, .. } = ask;
        let own: Vec<(&str, &str)> =
            ask.headers.iter().copied().filter(|(name, _)| name.starts_with("x-amz-")).collect();
        let plain = ask.headers.iter().copied().filter(|(name, _)| !name.starts_with("x-amz-"));
        let signed = Request { method, host: &self.authority, path, query, hash: digest };
        let signed = lock(&self.signer).headers_with(&signed, &own);
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let mut request = hyper::Request::builder().method(method).uri(target);
        let headers = signed.lines().filter_map(|line| line.split_once(": "));
        for (name, value) in headers.chain(plain) {
            request = request.header(name, value.trim());
        }
        let request = request.body(Full::new(body.clone())).map_err(|error| broken(&error))?;
        sender.ready().await.map_err(|error| broken(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| broken(&error))?;
        Ok((sender, answer))
    }

    /// Asks, again if the connection breaks or the server is busy, and gives the answer if it is a success.
    fn ask(&self, ask: Ask<'_>, body: &[u8]) -> Result<Answer> {
        judge(&self.place, ask, self.send(ask, body)?)
    }

    /// Asks, again if the connection breaks.
    fn send(&self, ask: Ask<'_>, body: &[u8]) -> Result<Answer> {
        let (body, digest) = (Bytes::copy_from_slice(body), hash(body));
        let mut last = Err(BackupError::Failed(String::new()));
        for attempt in 0..s3::ATTEMPTS {
            last = match self.runtime.block_on(self.attempt(ask, &body, &digest)) {
                Ok(answer) => {
                    let code = tag(&String::from_utf8_lossy(&answer.body), "Code").unwrap_or_default();
                    let is_transient = s3::is_transient(answer.status, &code);
                    let answer = Answer { repeated: attempt > 0, ..answer };
                    if !is_transient {
                        return Ok(answer);
                    }
                    Ok(answer)
                }
                Err(Broken(text)) => Err(BackupError::Failed(text)),
            };
            if attempt + 1 < s3::ATTEMPTS {
                self.runtime.block_on(async { tokio::time::sleep(s3::pause(attempt)).await });
            }
        }
        last
    }

    fn put(&self, name: &Name, bytes: &[u8], headers: &[(&str, &str)]) -> Result<()> {
        let path = self.path(name);
        let ask = Ask { method: "PUT", path: &path, query: "", headers, max: TEXT_MAX };
        let answer = self.send(ask, bytes)?;
        let repeated = answer.repeated;
        match judge(&self.place, ask, answer) {
            // The number of an epoch belongs to one prune: of two that store the same, one must not go on.
            Err(BackupError::Exists(text)) if repeated && !name.is_in(Folder::Epochs) => {
                let stored = self.get(name, bytes.len() as u64);
                if stored.is_ok_and(|stored| stored == bytes) { Ok(()) } else { Err(BackupError::Exists(text)) }
            }
            other => other.map(drop),
        }
    }

    fn read(&self, name: &Name, range: Option<&str>, max: u64) -> Result<Vec<u8>> {
        let path = self.path(name);
        let range = range.map(|range| ("range", range));
        let answer = self.ask(Ask { method: "GET", path: &path, query: "", headers: range.as_slice(), max }, b"")?;
        Ok(answer.body.to_vec())
    }

    fn show(&self, name: &Name) -> Result<Shown> {
        let path = self.path(name);
        let ask = Ask { method: "HEAD", path: &path, query: "", headers: &[], max: TEXT_MAX };
        let answer = self.ask(ask, b"")?;
        Ok(Shown {
            version: answer.header("x-amz-version-id").map(str::to_owned),
            governance: answer.header("x-amz-object-lock-mode") == Some("GOVERNANCE"),
            kept_until: answer.header("x-amz-object-lock-retain-until-date").and_then(s3::seconds),
            held: answer.header("x-amz-object-lock-legal-hold") == Some("ON"),
        })
    }

    fn delete(&self, name: &Name, query: &str) -> Result<()> {
        let path = self.path(name);
        self.ask(Ask { method: "DELETE", path: &path, query, headers: &[], max: TEXT_MAX }, b"").map(drop)
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> std::result::Result<Sender, Broken> {
    let made = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = made.map_err(|error| Broken(error.to_string()))?;
    // It ends when the sender is dropped or the server closes.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

/// Trusts the certificate authorities of the machine, or those of SSL_CERT_FILE.
fn connector() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    TlsConnector::from(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

fn judge(place: &str, ask: Ask<'_>, answer: Answer) -> Result<Answer> {
    if (200..300).contains(&answer.status) {
        return Ok(answer);
    }
    let text = String::from_utf8_lossy(&answer.body);
    let (code, message) = (tag(&text, "Code").unwrap_or_default(), tag(&text, "Message").unwrap_or_default());
    let text = format!("{place}: {} {} was answered with {} {code}: {message}", ask.method, ask.path, answer.status);
    Err(match (answer.status, code.as_str()) {
        (412, _) => BackupError::Exists(text),
        (404, "NoSuchBucket") => BackupError::NoRepository(text),
        (404, _) => BackupError::Missing(text),
        (416, _) => BackupError::Damaged(text),
        (_, code) if code.contains("Quota") || code.contains("NoSpace") || answer.status == 507 => {
            BackupError::Full(text)
        }
        (401 | 403, _) => BackupError::Refused(text),
        _ => BackupError::Failed(text),
    })
}

/// A value of a query, as it is signed.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The SHA-256 of a body, as a header has it.
fn checksum(body: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body).as_ref())
}

impl Store for Bucket {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn create(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        self.put(name, bytes, &[("if-none-match", "*")])
    }

    fn replace(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        self.put(name, bytes, &[])
    }

    fn lock(&self, name: &Name, until: u64) -> Result<()> {
        let is = self.show(name)?;
        let longest = is.kept_until.unwrap_or(0).max(until);
        if longest == is.kept_until.unwrap_or(0) && !is.governance {
            return Ok(());
        }
        let document = format!(
            "<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>COMPLIANCE</Mode>\
             <RetainUntilDate>{}</RetainUntilDate></Retention>",
            moment(longest)
        );
        let (path, sum) = (self.path(name), checksum(document.as_bytes()));
        // By its version: an object that another writer puts there meanwhile is not the one that was meant.
        let version = is.version.map(|version| format!("&versionId={}", encoded(&version))).unwrap_or_default();
        let query = format!("retention={version}");
        let headers = [("x-amz-checksum-sha256", sum.as_str())];
        let ask = Ask { method: "PUT", path: &path, query: &query, headers: &headers, max: TEXT_MAX };
        self.ask(ask, document.as_bytes()).map(drop).map_err(|error| self.explained(error))
    }

    fn has_locks(&self) -> Result<bool> {
        let path = format!("/{}", self.bucket);
        let ask = Ask { method: "GET", path: &path, query: "object-lock=", headers: &[], max: TEXT_MAX };
        match self.ask(ask, b"") {
            Ok(_) => Ok(true),
            Err(BackupError::Missing(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn create_locked(&self, name: &Name, bytes: &[u8], until: u64) -> Result<()> {
        let (sum, until) = (checksum(bytes), moment(until));
        let headers = [
            ("if-none-match", "*"),
            ("x-amz-checksum-sha256", sum.as_str()),
            ("x-amz-object-lock-mode", "COMPLIANCE"),
            ("x-amz-object-lock-retain-until-date", until.as_str()),
        ];
        self.put(name, bytes, &headers).map_err(|error| self.explained(error))
    }

    fn locked_until(&self, name: &Name) -> Result<Option<u64>> {
        let (is, now) = (self.show(name)?, self.now()?);
        // A hold has no end.
        Ok(if is.held { Some(LATEST) } else { is.kept_until.filter(|until| *until > now) })
    }

    fn get(&self, name: &Name, max: u64) -> Result<Vec<u8>> {
        self.read(name, None, max)
    }

    fn get_range(&self, name: &Name, range: Range<u64>) -> Result<Vec<u8>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let length = range.end - range.start;
        let bytes = self.read(name, Some(&format!("bytes={}-{}", range.start, range.end - 1)), length)?;
        if bytes.len() as u64 != length {
            return Err(BackupError::Damaged(format!("{} is too short", name.text())));
        }
        Ok(bytes)
    }

    fn list(&self, folder: Folder, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        let (path, prefix) = (format!("/{}", self.bucket), format!("{}{}/", self.prefix, folder.name()));
        let mut token: Option<String> = None;
        loop {
            let mut query =
                token.as_ref().map(|token| format!("continuation-token={}&", encoded(token))).unwrap_or_default();
            query += &format!("list-type=2&max-keys=1000&prefix={}", encoded(&prefix));
            let ask = Ask { method: "GET", path: &path, query: &query, headers: &[], max: TEXT_MAX };
            let answer = self.ask(ask, b"")?;
            let page = Page::parse(&String::from_utf8_lossy(&answer.body), folder, &self.prefix)?;
            page.listed.into_iter().try_for_each(&mut *each)?;
            if page.next.is_none() {
                return Ok(());
            }
            // A server that repeats a part would be asked for ever.
            if page.next == token {
                return Err(BackupError::Failed(format!("{}: the listing does not go on", self.place)));
            }
            token = page.next;
        }
    }

    fn remove(&self, name: &Name) -> Result<()> {
        let mut shown = self.show(name)?;
        for _ in 0..VERSIONS_MAX {
            let Some(version) = shown.version.filter(|version| version != "null") else { return self.delete(name, "") };
            match self.delete(name, &format!("versionId={}", encoded(&version))) {
                Err(BackupError::Refused(_)) if HIDDEN.iter().any(|folder| name.is_in(*folder)) => {
                    return self.delete(name, "");
                }
                other => other?,
            }
            // An earlier version is the object now: a session that had ended would live again.
            shown = match self.show(name) {
                Err(BackupError::Missing(_)) => return Ok(()),
                shown => shown?,
            };
        }
        Err(BackupError::Failed(format!("{} has more than {VERSIONS_MAX} versions in {}", name.text(), self.place)))
    }

    fn now(&self) -> Result<u64> {
        let path = format!("/{}", self.bucket);
        let query = format!("list-type=2&max-keys=1&prefix={}", encoded(&self.prefix));
        let answer = self.ask(Ask { method: "GET", path: &path, query: &query, headers: &[], max: TEXT_MAX }, b"")?;
        let date = answer.header("date").and_then(|date| httpdate::parse_http_date(date).ok());
        let since = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
        since.map(|since| since.as_secs()).ok_or_else(|| BackupError::Failed(format!("{} tells no time", self.place)))
    }

    fn is_local(&self) -> bool {
        false
    }

    fn advice(&self) -> Option<String> {
        let path = format!("/{}", self.bucket);
        let ask = Ask { method: "GET", path: &path, query: "versioning=", headers: &[], max: TEXT_MAX };
        // A server that does not say, or says it to others alone, is no reason to make no repository.
        let answer = self.ask(ask, b"").ok()?;
        let enabled = tag(&String::from_utf8_lossy(&answer.body), "Status").as_deref() == Some("Enabled");
        let text =
            "keeps no versions: a key that may only write can destroy every backup in it by storing other objects";
        (!enabled).then(|| format!("bucket '{}' {text} under the same names; turn versions on", self.bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_are_encoded() {
        assert_eq!(encoded("a/b c+~"), "a%2Fb%20c%2B~");
    }
}
