//! A webhook: a message as JSON, by POST. Alarms and notifications use it. An answer with status
//! 2xx means that it was taken, whatever becomes of the answer's body. Where the answer's body
//! counts, [`Webhook::ask`] returns it.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::http::Uri;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::failure::{Failure, Outcome};

/// Largest number of bytes read of an answer.
const ANSWER_MAX: usize = 64 << 10;
/// Time for the body of an answer to be read away, so that a sound server sees its answer arrive.
const READ_AWAY: Duration = Duration::from_secs(1);

pub struct Webhook {
    uri: Uri,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    read_away: Duration,
}

/// Why a message was not taken.
#[derive(Debug)]
pub struct WebhookError {
    pub why: String,
    /// The server answered that it does not want this very message.
    pub is_refused: bool,
}

impl From<String> for WebhookError {
    fn from(why: String) -> WebhookError {
        WebhookError { why, is_refused: false }
    }
}

impl Webhook {
    /// `setting` names the place of the URL in the configuration.
    pub fn new(url: &str, setting: &str) -> Outcome<Webhook> {
        // The URL itself may hold a secret, and this text goes into the log of a service.
        let wrong = |why: &str| {
            Failure::usage(format!("{setting}: {} {why}", hidden(url)))
                .next("write http://HOST:PORT/PATH or https://HOST/PATH")
        };
        let uri: Uri = url.parse().map_err(|_| wrong("is no URL"))?;
        let host = uri.host().ok_or_else(|| wrong("names no host"))?.trim_matches(['[', ']']).to_owned();
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(connector()), 443),
            _ => return Err(wrong("is neither http nor https")),
        };
        let port = uri.port_u16().unwrap_or(port);
        Ok(Webhook { uri, host, port, tls, read_away: READ_AWAY })
    }

    /// The name without path and query, which may hold a secret.
    pub fn name(&self) -> String {
        format!("the webhook at {}", self.place())
    }

    /// Posts a JSON document. The head of the answer has this time to arrive.
    pub async fn post_json(&self, body: String, patience: Duration) -> Result<(), WebhookError> {
        let late = |_| format!("no answer within {} s", patience.as_secs());
        let exchange = self.exchange("application/json", body.into());
        let (answer, driver) = tokio::time::timeout(patience, exchange).await.map_err(late)??;
        let status = answer.status();
        let read_away = Limited::new(answer.into_body(), ANSWER_MAX).collect();
        let _ = tokio::time::timeout(self.read_away, read_away).await;
        drop(driver);
        if status.is_success() {
            return Ok(());
        }
        let later = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
        Err(WebhookError { why: format!("it answers {status}"), is_refused: status.is_client_error() && !later })
    }

    /// Posts a document, and returns the document that answers it, of at most `answer_max` bytes.
    /// The patience is for all of it.
    pub async fn ask(
        &self,
        kind: &'static str,
        body: Vec<u8>,
        answer_max: usize,
        patience: Duration,
    ) -> Result<Bytes, String> {
        let asked = async {
            let (answer, driver) = self.exchange(kind, body.into()).await?;
            let status = answer.status();
            if !status.is_success() {
                return Err(format!("it answers {status}"));
            }
            let body = Limited::new(answer.into_body(), answer_max).collect().await;
            drop(driver);
            body.map(|body| body.to_bytes()).map_err(|error| format!("its answer breaks off: {error}"))
        };
        let late = |_| format!("no answer within {} s", patience.as_secs());
        tokio::time::timeout(patience, asked).await.map_err(late)?
    }

    /// Host and port.
    pub fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    async fn exchange(&self, kind: &'static str, body: Bytes) -> Result<(Response<Incoming>, Aborts), String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| error.to_string())?;
        match &self.tls {
            None => self.post(stream, kind, body).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
                self.post(tls.connect(name, stream).await.map_err(|error| error.to_string())?, kind, body).await
            }
        }
    }

    async fn post(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        kind: &'static str,
        body: Bytes,
    ) -> Result<(Response<Incoming>, Aborts), String> {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
        // The connection ends with this attempt, whatever the peer does.
        let driver = Aborts(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let target = self.uri.path_and_query().map_or("/", |target| target.as_str());
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let mut request = hyper::Request::post(target).header("host", host);
        if let Some(user) = user {
            let credentials = base64_simd::STANDARD.encode_to_string(unescaped(user));
            request = request.header("authorization", format!("Basic {credentials}"));
        }
        let request = request
            .header("content-type", kind)
            .header("user-agent", concat!("stele/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        Ok((sender.send_request(request).await.map_err(|error| broken(&error))?, driver))
    }
}

/// Why a connection broke. A peer that closes early is seen as one of several errors, whichever
/// comes first; they have one text, since the log tells each new reason.
fn broken(error: &hyper::Error) -> String {
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    let ends = [
        ErrorKind::BrokenPipe,
        ErrorKind::ConnectionAborted,
        ErrorKind::ConnectionReset,
        ErrorKind::NotConnected,
        ErrorKind::UnexpectedEof,
    ];
    let is_closed = match cause {
        Some(cause) => ends.contains(&cause.kind()),
        None => error.is_canceled() || error.is_closed() || error.is_incomplete_message(),
    };
    match (is_closed, cause) {
        (true, _) => "it closed the connection before its answer".to_owned(),
        (false, Some(cause)) => format!("the connection broke: {cause}"),
        (false, None) => format!("the connection broke: {error}"),
    }
}

/// A URL as errors show it: its scheme alone, if it has one.
fn hidden(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, _)) if scheme.chars().all(|letter| letter.is_ascii_alphanumeric()) => {
            format!("the URL '{scheme}://...'")
        }
        _ => "the URL".to_owned(),
    }
}

/// `user:password` of a URL, whose reserved characters are escaped there.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let escape = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escape.unwrap_or(b'%'));
        rest = if escape.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

struct Aborts(tokio::task::JoinHandle<()>);

impl Drop for Aborts {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Trusts the certificate authorities of the machine.
pub(super) fn connector() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    TlsConnector::from(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests;
