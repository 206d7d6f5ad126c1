//! A client of S3 for one bucket: signed requests, repeated where the server could answer later.
//!
//! A repository of backups and a place for signed heads lie in such buckets. A request whose
//! connection breaks, or that the server could answer later, is repeated after a pause. If its
//! answer was lost, the repetition of a conditional PUT says that the object exists;
//! [`BucketResponse::repeated`] tells the caller to compare it with what was sent. A listing that
//! is not whole is an error.
//!
//! The requests block the thread that makes them, which must be none of the runtime's. That thread
//! carries its connection as well: no other has to be woken for each piece of an answer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
/// Connections that are kept, and buffers.
const KEPT_MAX: usize = 16;
/// Bytes of a buffer that is kept.
const BUFFER_MAX: usize = 16 << 20;
/// The header by which a request names its content by the BLAKE3, and Stele's answer confirms it.
const CONTENT_BLAKE3: &str = "x-stele-content-blake3";
/// The least body that is named so. The SHA-256 of a shorter one costs next to nothing.
const NAMED_MIN: usize = 64 << 10;
/// What is signed in place of a hash of the body.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// A connection, and what carries it while it is polled.
struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// None: the connection has ended.
    driver: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Link {
    /// Carries the connection until the work is done.
    async fn carry<T>(
        driver: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
        work: impl Future<Output = T>,
    ) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            if driver.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready()) {
                *driver = None;
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Whether a request can go over the connection: the server may have closed it meanwhile, or
    /// have answered before it had taken the whole of the last request.
    async fn is_ready(&mut self) -> bool {
        Link::carry(&mut self.driver, async {}).await;
        self.driver.is_some() && self.sender.is_ready()
    }
}

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
    kept: Mutex<Vec<Link>>,
    /// Buffers of earlier answers.
    buffers: Mutex<Vec<Vec<u8>>>,
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
    pub body: Vec<u8>,
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

/// The body of a request.
pub struct BucketBody {
    pub bytes: Bytes,
    /// If the caller has computed it already.
    pub blake3: Option<[u8; 32]>,
}

impl BucketBody {
    pub fn copy(bytes: &[u8]) -> BucketBody {
        BucketBody { bytes: Bytes::copy_from_slice(bytes), blake3: None }
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
    fn new(ask: BucketRequest<'_>, body: &BucketBody, confirms: Option<bool>) -> BodyClaim {
        let (bytes, known) = (&body.bytes, body.blake3);
        let is_named = ask.method == "PUT" && ask.query.is_empty() && bytes.len() >= NAMED_MIN;
        let blake3 = || known.map_or_else(|| blake3::hash(bytes), blake3::Hash::from_bytes).to_hex().to_string();
        let blake3 = (is_named && confirms != Some(false)).then(blake3);
        let sha256 = (blake3.is_none() || confirms.is_none()).then(|| hash(bytes));
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

/// Whether the other side answered the beginning of TLS with something else, as a server without it
/// does.
fn is_plain(error: &std::io::Error) -> bool {
    use tokio_rustls::rustls::{Error, InvalidMessage};
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    matches!(cause, Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)))
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
        let (tls, usual) = match scheme {
            "s3" => (Some(connector()), 443),
            "s3+http" => (None, 80),
            _ => return Err(wrong()),
        };
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
            buffers: Mutex::default(),
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

    async fn connect(&self) -> std::result::Result<Link, Broken> {
        let text = |error: &dyn std::fmt::Display| format!("cannot reach {}: {error}", self.authority);
        let broken = |error: &dyn std::fmt::Display| Broken::Connection(text(error));
        let connected = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = connected.map_err(|error| Broken::Unreachable(text(&error)))?;
        stream.set_nodelay(true).map_err(|error| broken(&error))?;
        match &self.tls {
            None => handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).map_err(|error| broken(&error))?;
                let channel = tls.connect(name, stream).await.map_err(|error| match is_plain(&error) {
                    true => broken(&"it does not answer with TLS; s3+http:// reaches a server without"),
                    false => broken(&error),
                })?;
                handshake(channel).await
            }
        }
    }

    async fn attempt(
        &self,
        ask: BucketRequest<'_>,
        body: &Bytes,
        claim: &BodyClaim,
    ) -> std::result::Result<BucketResponse, Broken> {
        // The time covers the sending of the body; that of the answer may take as long as bytes
        // come.
        let (begun, limit) = (Instant::now(), s3::patience(body.len() as u64));
        let linked = tokio::time::timeout(limit, self.link()).await;
        let Link { mut sender, mut driver } = linked.map_err(|_| self.silent(limit))??;
        let left = limit.saturating_sub(begun.elapsed());
        let answered = Link::carry(&mut driver, async {
            let answer = tokio::time::timeout(left, self.begin(&mut sender, ask, body, claim)).await;
            self.finish(ask, answer.map_err(|_| self.silent(limit))??).await
        });
        let answered = answered.await?;
        let mut kept = lock(&self.kept);
        if driver.is_some() && kept.len() < KEPT_MAX {
            kept.push(Link { sender, driver });
        }
        Ok(answered)
    }

    fn broken(&self, error: &dyn std::fmt::Display) -> Broken {
        Broken::Connection(format!("the connection to {} broke: {error}", self.authority))
    }

    fn silent(&self, limit: Duration) -> Broken {
        Broken::Connection(format!("{} does not answer within {} seconds", self.authority, limit.as_secs()))
    }

    /// A kept connection, or another one.
    async fn link(&self) -> std::result::Result<Link, Broken> {
        loop {
            let kept = lock(&self.kept).pop();
            let Some(mut link) = kept else { return self.connect().await };
            if link.is_ready().await {
                return Ok(link);
            }
        }
    }

    /// Takes a buffer back, for a later answer: to get a new one costs about as much as to read
    /// into it.
    pub fn give_back(&self, buffer: Vec<u8>) {
        let mut buffers = lock(&self.buffers);
        if buffers.len() < KEPT_MAX && (1..=BUFFER_MAX).contains(&buffer.capacity()) {
            buffers.push(buffer);
        }
    }

    /// An empty buffer.
    fn buffer(&self, length: usize) -> Vec<u8> {
        let kept = lock(&self.buffers).pop();
        let mut buffer = kept.filter(|buffer| buffer.capacity() >= length).unwrap_or_default();
        buffer.clear();
        buffer.reserve_exact(length);
        buffer
    }

    /// Takes the rest of an answer.
    async fn finish(
        &self,
        ask: BucketRequest<'_>,
        answer: hyper::Response<Incoming>,
    ) -> std::result::Result<BucketResponse, Broken> {
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
        let mut body = self.buffer(usize::try_from(length.unwrap_or(0).min(max)).unwrap_or(0));
        loop {
            let frame = tokio::time::timeout(s3::PATIENCE, coming.frame()).await;
            let Some(frame) = frame.map_err(|_| self.silent(s3::PATIENCE))? else { break };
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() && is_object {
                true => too_long(),
                false => self.broken(&error),
            });
            if let Ok(data) = frame?.into_data() {
                body.extend_from_slice(&data);
            }
        }
        Ok(BucketResponse { status: status.as_u16(), head, body, repeated: false })
    }

    /// Sends a request, and gives the beginning of the answer.
    async fn begin(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        ask: BucketRequest<'_>,
        body: &Bytes,
        claim: &BodyClaim,
    ) -> std::result::Result<hyper::Response<Incoming>, Broken> {
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
        let request = request.body(Full::new(body.clone())).map_err(|error| self.broken(&error))?;
        sender.ready().await.map_err(|error| self.broken(&error))?;
        sender.send_request(request).await.map_err(|error| self.broken(&error))
    }

    /// Asks, again if the connection breaks or the server is busy, and gives the answer if it is a
    /// success.
    pub fn ask(&self, ask: BucketRequest<'_>, body: &[u8]) -> Result<BucketResponse> {
        judge(&self.place, ask, self.send(ask, &BucketBody::copy(body))?)
    }

    /// Asks, again if the connection breaks.
    pub fn send(&self, ask: BucketRequest<'_>, body: &BucketBody) -> Result<BucketResponse> {
        let confirms = *lock(&self.confirms);
        let claim = BodyClaim::new(ask, body, confirms);
        let answer = self.send_claimed(ask, &body.bytes, &claim)?;
        let Some(shown) = claim.judge(&answer) else { return Ok(answer) };
        *lock(&self.confirms) = Some(shown);
        let is_stored = (200..300).contains(&answer.status);
        if shown || (is_stored && claim.sha256.is_some()) {
            return Ok(answer);
        }
        // Refused with the header, or stored and not verified: once more, with a SHA-256.
        let again = self.send_claimed(ask, &body.bytes, &BodyClaim::new(ask, body, Some(false)))?;
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

async fn handshake(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> std::result::Result<Link, Broken> {
    let made = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = made.map_err(|error| Broken::Connection(error.to_string()))?;
    let driver = async move {
        // What breaks the connection, the sender tells.
        let _ = connection.await;
    };
    Ok(Link { sender, driver: Some(Box::pin(driver)) })
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
mod tests;
