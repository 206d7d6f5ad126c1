//! A client of S3 for one bucket: signed requests, repeated where the server could answer later.
//!
//! A repository of backups and a place for signed heads lie in such buckets. A request whose
//! connection breaks, or that the server could answer later, is repeated after a pause. If its
//! answer was lost, the repetition of a conditional PUT says that the object exists;
//! [`BucketResponse::repeated`] tells the caller to compare it with what was sent. A listing that
//! is not whole is an error.
//!
//! The requests block the thread that makes them, which must be none of the runtime's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::HeaderMap;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::CONTENT_LENGTH;
use hyper_util::rt::TokioIo;
use stele_backup::BackupError;
use stele_backup::store::s3::{self, tag};
use stele_lab::live::s3::sign::{Keys, Request, Signer, hash};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::failure::{Failure, Outcome};

/// Bytes of an answer that is a listing or an error.
pub const TEXT_MAX: u64 = 8 << 20;
/// Connections that are kept.
const KEPT_MAX: usize = 16;
/// The header by which a request names its content by the BLAKE3, and Stele's answer confirms it.
const CONTENT_BLAKE3: &str = "x-stele-content-blake3";
/// The least body that is named so. The SHA-256 of a shorter one costs next to nothing.
const NAMED_MIN: usize = 64 << 10;
/// What is signed in place of a hash of the body.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

type Sender = SendRequest<Full<Bytes>>;
pub type Result<T> = std::result::Result<T, BackupError>;

pub struct BucketClient {
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
    /// Whether the server confirms the BLAKE3 of a body. None: no request has shown it yet.
    confirms: Mutex<Option<bool>>,
    runtime: Handle,
    /// How often a request is tried.
    attempts: u32,
}

/// One request.
#[derive(Clone, Copy)]
pub struct BucketRequest<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    /// Those that begin with `x-amz-` are signed.
    pub headers: &'a [(&'a str, &'a str)],
    /// Bytes of the answer.
    pub max: u64,
}

pub struct BucketResponse {
    pub status: u16,
    head: HeaderMap,
    pub body: Bytes,
    /// An earlier attempt ended without an answer: the server may have served it.
    pub repeated: bool,
}

impl BucketResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.get(name).and_then(|value| value.to_str().ok())
    }

    /// The code of an error. A success has none: its body may be tens of MiB of an object, and is
    /// no text.
    fn code(&self) -> String {
        match self.status {
            200..300 => String::new(),
            _ => tag(&String::from_utf8_lossy(&self.body), "Code").unwrap_or_default(),
        }
    }
}

/// What the signature of a request says of its body.
struct BodyClaim {
    sha256: Option<String>,
    blake3: Option<String>,
}

impl BodyClaim {
    /// A server that verifies the BLAKE3 gets no SHA-256, which would cost both ends several times
    /// as much: the signature covers the BLAKE3 in its place.
    fn new(ask: BucketRequest<'_>, body: &[u8], confirms: Option<bool>) -> BodyClaim {
        let is_named = ask.method == "PUT" && ask.query.is_empty() && body.len() >= NAMED_MIN;
        let blake3 = (is_named && confirms != Some(false)).then(|| blake3::hash(body).to_hex().to_string());
        let sha256 = (blake3.is_none() || confirms.is_none()).then(|| hash(body));
        BodyClaim { sha256, blake3 }
    }

    /// What the answer shows of the server, if the request named its content. A server that does
    /// not know the header ignores or refuses it; a proxy that takes it out breaks the signature.
    fn judge(&self, answer: &BucketResponse) -> Option<bool> {
        let blake3 = self.blake3.as_deref()?;
        match answer.status {
            200..300 => Some(answer.header(CONTENT_BLAKE3) == Some(blake3)),
            400 | 501 => Some(false),
            403 if self.sha256.is_some() => Some(false),
            _ => None,
        }
    }
}

/// Why a request got no answer.
enum Broken {
    /// It can be repeated.
    Connection(String),
    /// No connection could be made. It can be repeated.
    Unreachable(String),
    /// The object is longer than any of its kind. It will be so the next time too.
    TooLong(String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BucketClient {
    /// `s3://HOST[:PORT]/BUCKET[/PREFIX]`, or `s3+http://` without TLS. `what` says what the text
    /// should name.
    pub fn open(text: &str, what: &str, keys: Keys) -> Outcome<BucketClient> {
        let wrong = || {
            Failure::usage(format!("'{text}' is no {what}"))
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
        Ok(BucketClient {
            place: text.to_owned(),
            host: uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(usual),
            authority: authority.to_owned(),
            bucket: bucket.to_owned(),
            prefix: if prefix.is_empty() { String::new() } else { format!("{prefix}/") },
            tls,
            signer: Mutex::new(Signer::new(keys)),
            kept: Mutex::default(),
            confirms: Mutex::default(),
            runtime: Handle::current(),
            attempts: s3::ATTEMPTS,
        })
    }

    /// The same with fewer attempts of each request, for callers that come again by themselves.
    pub fn with_attempts(self, attempts: u32) -> BucketClient {
        BucketClient { attempts, ..self }
    }

    /// As the operator gave it.
    pub fn place(&self) -> &str {
        &self.place
    }

    pub fn name(&self) -> &str {
        &self.bucket
    }

    /// What precedes every name: empty, or ends in a slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The path of the bucket.
    pub fn path(&self) -> String {
        format!("/{}", self.bucket)
    }

    /// The path of an object, by its name behind the prefix.
    pub fn path_of(&self, name: &str) -> String {
        format!("/{}/{}{name}", self.bucket, self.prefix)
    }

    async fn connect(&self) -> std::result::Result<Sender, Broken> {
        let text = |error: &dyn std::fmt::Display| format!("cannot reach {}: {error}", self.authority);
        let broken = |error: &dyn std::fmt::Display| Broken::Connection(text(error));
        let connected = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = connected.map_err(|error| Broken::Unreachable(text(&error)))?;
        stream.set_nodelay(true).map_err(|error| broken(&error))?;
        match &self.tls {
            None => handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).map_err(|error| broken(&error))?;
                handshake(tls.connect(name, stream).await.map_err(|error| broken(&error))?).await
            }
        }
    }

    async fn attempt(
        &self,
        ask: BucketRequest<'_>,
        body: &Bytes,
        claim: &BodyClaim,
    ) -> std::result::Result<BucketResponse, Broken> {
        let broken = |error: &dyn std::fmt::Display| {
            Broken::Connection(format!("the connection to {} broke: {error}", self.authority))
        };
        let silent = |limit: Duration| {
            Broken::Connection(format!("{} does not answer within {} seconds", self.authority, limit.as_secs()))
        };
        // The time covers the sending of the body; that of the answer may take as long as bytes
        // come.
        let limit = s3::patience(body.len() as u64);
        let answered = tokio::time::timeout(limit, self.begin(ask, body, claim)).await;
        let (sender, answer) = answered.map_err(|_| silent(limit))??;
        let status = answer.status();
        let head = answer.headers().clone();
        let max = if status.is_success() { ask.max } else { TEXT_MAX };
        // A part of an object that is longer than asked for is an error of the server, or of the
        // connection.
        let is_object =
            ask.method == "GET" && status.is_success() && ask.headers.iter().all(|(name, _)| *name != "range");
        let too_long = || Broken::TooLong(format!("{}: {} is longer than {max} bytes", self.place, ask.path));
        let length = head.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if is_object && length.is_some_and(|length| length > max) {
            return Err(too_long());
        }
        let mut coming = Limited::new(answer.into_body(), usize::try_from(max).unwrap_or(usize::MAX));
        let mut body = Vec::with_capacity(usize::try_from(length.unwrap_or(0).min(max)).unwrap_or(0));
        loop {
            let frame = tokio::time::timeout(s3::PATIENCE, coming.frame()).await.map_err(|_| silent(s3::PATIENCE))?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() && is_object {
                true => too_long(),
                false => broken(&error),
            });
            if let Ok(data) = frame?.into_data() {
                body.extend_from_slice(&data);
            }
        }
        let mut kept = lock(&self.kept);
        if kept.len() < KEPT_MAX {
            kept.push(sender);
        }
        Ok(BucketResponse { status: status.as_u16(), head, body: body.into(), repeated: false })
    }

    /// Sends a request, and gives the beginning of the answer.
    async fn begin(
        &self,
        ask: BucketRequest<'_>,
        body: &Bytes,
        claim: &BodyClaim,
    ) -> std::result::Result<(Sender, hyper::Response<Incoming>), Broken> {
        let broken = |error: &dyn std::fmt::Display| {
            Broken::Connection(format!("the connection to {} broke: {error}", self.authority))
        };
        let kept = lock(&self.kept).pop();
        let mut sender = match kept.filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let BucketRequest { method, path, query, .. } = ask;
        let named = claim.blake3.as_deref().map(|blake3| (CONTENT_BLAKE3, blake3));
        let own = ask.headers.iter().copied().filter(|(name, _)| name.starts_with("x-amz-"));
        let own: Vec<(&str, &str)> = own.chain(named).collect();
        let plain = ask.headers.iter().copied().filter(|(name, _)| !name.starts_with("x-amz-"));
        let hash = claim.sha256.as_deref().unwrap_or(UNSIGNED);
        let signed = Request { method, host: &self.authority, path, query, hash };
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

    /// Asks, again if the connection breaks or the server is busy, and gives the answer if it is a
    /// success.
    pub fn ask(&self, ask: BucketRequest<'_>, body: &[u8]) -> Result<BucketResponse> {
        judge(&self.place, ask, self.send(ask, &Bytes::copy_from_slice(body))?)
    }

    /// Asks, again if the connection breaks.
    pub fn send(&self, ask: BucketRequest<'_>, body: &Bytes) -> Result<BucketResponse> {
        let confirms = *lock(&self.confirms);
        let claim = BodyClaim::new(ask, body, confirms);
        let answer = self.send_claimed(ask, body, &claim)?;
        let Some(shown) = claim.judge(&answer) else { return Ok(answer) };
        *lock(&self.confirms) = Some(shown);
        let is_stored = (200..300).contains(&answer.status);
        if shown || (is_stored && claim.sha256.is_some()) {
            return Ok(answer);
        }
        // Refused with the header, or stored and not verified: once more, with a SHA-256.
        let again = self.send_claimed(ask, body, &BodyClaim::new(ask, body, Some(false)))?;
        Ok(BucketResponse { repeated: is_stored || answer.repeated || again.repeated, ..again })
    }

    fn send_claimed(&self, ask: BucketRequest<'_>, body: &Bytes, claim: &BodyClaim) -> Result<BucketResponse> {
        let mut last = Err(BackupError::Failed(String::new()));
        for attempt in 0..self.attempts {
            last = match self.runtime.block_on(self.attempt(ask, body, claim)) {
                Ok(answer) => {
                    let is_transient = s3::is_transient(answer.status, &answer.code());
                    let answer = BucketResponse { repeated: attempt > 0, ..answer };
                    if !is_transient {
                        return Ok(answer);
                    }
                    Ok(answer)
                }
                Err(Broken::TooLong(text)) => return Err(BackupError::Damaged(text)),
                Err(Broken::Connection(text)) => Err(BackupError::Failed(text)),
                Err(Broken::Unreachable(text)) => Err(BackupError::Unreachable(text)),
            };
            if attempt + 1 < self.attempts {
                self.runtime.block_on(async { tokio::time::sleep(s3::pause(attempt)).await });
            }
        }
        last
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> std::result::Result<Sender, Broken> {
    let made = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = made.map_err(|error| Broken::Connection(error.to_string()))?;
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

pub fn judge(place: &str, ask: BucketRequest<'_>, answer: BucketResponse) -> Result<BucketResponse> {
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
pub fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The SHA-256 of a body, as a header has it.
pub fn checksum(body: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_are_encoded() {
        assert_eq!(encoded("a/b c+~"), "a%2Fb%20c%2B~");
    }

    /// Asks a server that answers each connection like this. Gives the outcome, and the number of
    /// connections.
    fn asked(answer: &'static str, headers: &[(&str, &str)]) -> (Result<BucketResponse>, usize) {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = format!("s3+http://{}/bucket", listener.local_addr().unwrap());
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let mut request = [0; 4096];
                let _ = connection.read(&mut request);
                let _ = connection.write_all(answer.as_bytes());
            }
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let entered = runtime.enter();
        let text = || "text".to_owned();
        let keys = Keys { access: text(), secret: text(), token: None, region: text() };
        let Ok(bucket) = BucketClient::open(&place, "place", keys) else { panic!("{place}") };
        let bucket = bucket.with_attempts(1);
        drop(entered);
        let ask = BucketRequest { method: "GET", path: "/bucket/name", query: "", headers, max: 10 };
        let outcome = bucket.ask(ask, b"");
        (outcome, count.load(std::sync::atomic::Ordering::Relaxed))
    }

    #[test]
    fn a_port_without_a_listener_is_an_unreachable_store() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let entered = runtime.enter();
        let text = || "text".to_owned();
        let keys = Keys { access: text(), secret: text(), token: None, region: text() };
        let Ok(bucket) = BucketClient::open(&format!("s3+http://{free}/bucket"), "place", keys) else {
            panic!("{free}")
        };
        drop(entered);
        let ask = BucketRequest { method: "GET", path: "/bucket/name", query: "", headers: &[], max: 10 };
        match bucket.with_attempts(1).ask(ask, b"") {
            Err(BackupError::Unreachable(told)) => assert!(told.contains("cannot reach"), "{told}"),
            other => panic!("{:?}", other.map(|answer| answer.status)),
        }
    }

    /// What the requests said of their bodies when so many of this length were stored one after
    /// another, each answered by `answer`: the hash that was signed, and whether there was a
    /// BLAKE3. And whether the last one counts as repeated.
    fn claims(count: usize, length: usize, answer: fn(&Told) -> String) -> (Vec<(bool, bool)>, bool) {
        use std::io::{BufRead, BufReader, Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = format!("s3+http://{}/bucket", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&heads);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut reader = BufReader::new(connection.unwrap());
                let mut told = Told { number: lock(&noted).len(), ..Told::default() };
                let (mut line, mut length) = (String::new(), 0);
                while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                    match line.trim_end().split_once(": ") {
                        Some(("content-length", value)) => length = value.parse().unwrap(),
                        Some(("x-amz-content-sha256", value)) => told.sha256 = value.len() == 64,
                        Some((CONTENT_BLAKE3, value)) => told.blake3 = Some(value.to_owned()),
                        _ if line == "\r\n" => {
                            reader.read_exact(&mut vec![0; length]).unwrap();
                            lock(&noted).push((told.sha256, told.blake3.is_some()));
                            reader.get_mut().write_all(answer(&told).as_bytes()).unwrap();
                            told = Told { number: told.number + 1, ..Told::default() };
                        }
                        _ => {}
                    }
                    line.clear();
                }
            }
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let entered = runtime.enter();
        let text = || "text".to_owned();
        let keys = Keys { access: text(), secret: text(), token: None, region: text() };
        let Ok(bucket) = BucketClient::open(&place, "place", keys) else { panic!("{place}") };
        drop(entered);
        let ask = BucketRequest { method: "PUT", path: "/bucket/name", query: "", headers: &[], max: 10 };
        let body = Bytes::from(vec![7; length]);
        let answers: Vec<BucketResponse> = (0..count).map(|_| bucket.send(ask, &body).unwrap()).collect();
        assert!(answers.iter().all(|answer| answer.status == 200));
        let heads = lock(&heads).clone();
        (heads, answers.last().is_some_and(|answer| answer.repeated))
    }

    /// A request as the server of a test reads it.
    #[derive(Default)]
    struct Told {
        number: usize,
        sha256: bool,
        blake3: Option<String>,
    }

    fn plain_success(_: &Told) -> String {
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()
    }

    fn confirmation(told: &Told) -> String {
        let confirmed = told.blake3.as_ref().map(|blake3| format!("{CONTENT_BLAKE3}: {blake3}\r\n"));
        format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{}\r\n", confirmed.unwrap_or_default())
    }

    /// Refuses requests with a BLAKE3 alone.
    fn refusal(told: &Told, status: &str) -> String {
        match told.blake3 {
            Some(_) => format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"),
            None => plain_success(told),
        }
    }

    #[test]
    fn a_server_that_confirms_the_blake3_gets_no_sha256() {
        let (both, blake3) = ((true, true), (false, true));
        assert_eq!(claims(3, NAMED_MIN, confirmation), (vec![both, blake3, blake3], false));
    }

    #[test]
    fn other_servers_get_a_sha256_of_every_body() {
        let (both, sha256) = ((true, true), (true, false));
        assert_eq!(claims(3, NAMED_MIN, plain_success), (vec![both, sha256, sha256], false));
        let refusals: [fn(&Told) -> String; 3] = [
            |told| refusal(told, "400 Bad Request"),
            |told| refusal(told, "403 Forbidden"),
            |told| refusal(told, "501 Not Implemented"),
        ];
        for refusing in refusals {
            assert_eq!(claims(2, NAMED_MIN, refusing), (vec![both, sha256, sha256], false));
        }
        assert_eq!(claims(1, NAMED_MIN - 1, confirmation), (vec![sha256], false));
    }

    #[test]
    fn a_body_that_is_not_confirmed_any_more_is_sent_again_with_its_sha256() {
        let once = |told: &Told| if told.number == 0 { confirmation(told) } else { plain_success(told) };
        let (both, blake3, sha256) = ((true, true), (false, true), (true, false));
        assert_eq!(claims(2, NAMED_MIN, once), (vec![both, blake3, sha256], true));
    }

    #[test]
    fn the_content_of_an_object_is_not_searched_for_an_error() {
        let content = "<Code>a</Code>";
        let of = |status: u16, body: &'static str| {
            BucketResponse {
                status,
                head: HeaderMap::new(),
                body: Bytes::from_static(body.as_bytes()),
                repeated: false,
            }
            .code()
        };
        assert_eq!((of(200, content), of(206, content)), (String::new(), String::new()));
        assert_eq!(of(400, content), "a");
    }

    #[test]
    fn an_object_that_is_too_long_is_damaged_and_asked_for_once() {
        let told = "HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n01234567890";
        let untold = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n";
        for answer in [told, untold] {
            let (outcome, connections) = asked(answer, &[]);
            let Err(BackupError::Damaged(text)) = outcome else { panic!("{:?}", outcome.map(|answer| answer.body)) };
            assert!(text.contains("/bucket/name is longer than 10 bytes"), "{text}");
            assert_eq!(connections, 1);
            // A server that does not know parts says nothing about the object.
            assert!(matches!(asked(answer, &[("range", "bytes=0-9")]).0, Err(BackupError::Failed(_))));
        }
        let (outcome, _) = asked("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789", &[]);
        assert_eq!(outcome.map(|answer| answer.body.len()), Ok(10));
    }
}
