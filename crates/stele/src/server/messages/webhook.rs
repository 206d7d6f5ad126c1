//! A webhook: a message as JSON, by POST. Alarms and notifications use it. An answer with status 2xx means that it was taken.

use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::failure::{Failure, Outcome};

/// Largest number of bytes read of an answer.
const ANSWER_MAX: usize = 64 << 10;

pub struct Webhook {
    uri: Uri,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
}

impl Webhook {
    /// `setting` names the place of the URL in the configuration.
    pub fn new(url: &str, setting: &str) -> Outcome<Webhook> {
        let wrong = |why: &str| {
            Failure::usage(format!("{setting}: '{url}' {why}")).next("write http://HOST:PORT/PATH or https://HOST/PATH")
        };
        let uri: Uri = url.parse().map_err(|_| wrong("is no URL"))?;
        let host = uri.host().ok_or_else(|| wrong("names no host"))?.trim_matches(['[', ']']).to_owned();
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(connector()), 443),
            _ => return Err(wrong("is neither http nor https")),
        };
        let port = uri.port_u16().unwrap_or(port);
        Ok(Webhook { uri, host, port, tls })
    }

    /// The name without path and query, which may hold a secret.
    pub fn name(&self) -> String {
        format!("the webhook at {}:{}", self.host, self.port)
    }

    /// Posts a JSON document.
    pub async fn post_json(&self, body: String) -> Result<(), String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|error| error.to_string())?;
        match &self.tls {
            None => self.post(stream, body).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
                self.post(tls.connect(name, stream).await.map_err(|error| error.to_string())?, body).await
            }
        }
    }

    async fn post(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        body: String,
    ) -> Result<(), String> {
        let broken = |error: hyper::Error| format!("the connection broke: {error}");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // The connection ends with this attempt, whatever the peer does.
        let driver = Aborts(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let target = self.uri.path_and_query().map_or("/", |target| target.as_str());
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let request = hyper::Request::post(target)
            .header("host", authority.rsplit('@').next().unwrap_or_default())
            .header("content-type", "application/json")
            .header("user-agent", concat!("stele/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        let _ = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        drop(driver);
        if status.is_success() { Ok(()) } else { Err(format!("it answers {status}")) }
    }
}

struct Aborts(tokio::task::JoinHandle<()>);

impl Drop for Aborts {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Trusts the certificate authorities of the machine.
fn connector() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    TlsConnector::from(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}
