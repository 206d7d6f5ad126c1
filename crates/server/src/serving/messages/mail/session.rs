//! A session with a mail server.
//!
//! Failure model: whatever listens there may answer without end. The library reads a line of any
//! length into memory, so this reads at most [`ANSWERS_MAX`] bytes of a session. A server that has
//! taken a mail and does not answer the end of the session gets the mail no second time.

use std::fmt::{self, Debug, Formatter};
use std::io::{Error, ErrorKind, Result as IoResult};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::http::Uri;
use lettre::address::Envelope;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::serving::messages::webhook::connector;

/// Bytes of all answers of a session, with the certificates of a server that begins TLS later.
const ANSWERS_MAX: usize = 256 << 10;
/// Time for the server to answer the end of a session.
const PARTING: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tls {
    Never,
    WhereOffered,
    Required,
    FromTheStart,
}

/// A mail server, and how it is reached.
#[derive(Clone)]
pub struct MailServer {
    pub host: String,
    pub port: u16,
    tls: Tls,
    hello: ClientId,
    pub credentials: Option<Credentials>,
    pub parting: Duration,
}

impl MailServer {
    /// Reads `smtps://HOST`, `smtp://HOST:587?tls=required` or `smtp://HOST:25`. A path is the name
    /// that this machine gives. None: it is no such URL.
    pub fn of(url: &str) -> Option<MailServer> {
        let uri: Uri = url.parse().ok()?;
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        let mut settings = uri.query().unwrap_or_default().split('&');
        let (tls, port) = match (uri.scheme_str()?, settings.find_map(|setting| setting.strip_prefix("tls="))) {
            ("smtps", _) => (Tls::FromTheStart, 465),
            ("smtp", None) => (Tls::Never, 25),
            ("smtp", Some("required")) => (Tls::Required, 587),
            ("smtp", Some("opportunistic")) => (Tls::WhereOffered, 587),
            _ => return None,
        };
        let hello = match uri.path().trim_matches('/') {
            "" => ClientId::default(),
            name => ClientId::Domain(name.to_owned()),
        };
        let port = uri.port_u16().unwrap_or(port);
        Some(MailServer { host, port, tls, hello, credentials: None, parting: PARTING })
    }

    /// Whether the connection is encrypted before the server can ask for a password. Where TLS is
    /// used if it is offered, it need not be.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.tls, Tls::Required | Tls::FromTheStart)
    }

    /// Hands a mail over. It returns once the server has taken it.
    pub async fn send(&self, envelope: &Envelope, mail: &[u8]) -> Result<(), String> {
        let mut session = self.begin().await?;
        session.send(envelope, mail).await.map_err(|error| error.to_string())?;
        let _ = tokio::time::timeout(self.parting, session.quit()).await;
        Ok(())
    }

    async fn begin(&self) -> Result<AsyncSmtpConnection, String> {
        let failed = |error: lettre::transport::smtp::Error| error.to_string();
        let broken = |error: Error| format!("Connection error: {error}");
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(broken)?;
        let peer = stream.peer_addr().map_err(broken)?;
        let stream: Box<dyn AsyncTokioStream> = match self.tls {
            Tls::FromTheStart => {
                let name = ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?;
                let stream = connector().connect(name, stream).await.map_err(broken)?;
                Box::new(Answers { stream, peer, left: ANSWERS_MAX })
            }
            Tls::Never | Tls::WhereOffered | Tls::Required => Box::new(Answers { stream, peer, left: ANSWERS_MAX }),
        };
        let mut session = AsyncSmtpConnection::connect_with_transport(stream, &self.hello).await.map_err(failed)?;
        let begins_tls = match self.tls {
            Tls::Required => true,
            Tls::WhereOffered => session.can_starttls(),
            Tls::Never | Tls::FromTheStart => false,
        };
        if begins_tls {
            let parameters = TlsParameters::new(self.host.clone()).map_err(failed)?;
            session.starttls(parameters, &self.hello).await.map_err(failed)?;
        }
        if let Some(credentials) = &self.credentials {
            session.auth(DEFAULT_MECHANISMS, credentials).await.map_err(failed)?;
        }
        Ok(session)
    }
}

/// A connection of which only so many bytes are read.
struct Answers<S> {
    stream: S,
    peer: SocketAddr,
    left: usize,
}

impl<S> Debug for Answers<S> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "a connection to {}", self.peer)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> AsyncTokioStream for Answers<S> {
    fn peer_addr(&self) -> IoResult<SocketAddr> {
        Ok(self.peer)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Answers<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<IoResult<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        let came = into.filled().len() - before;
        let Some(left) = self.left.checked_sub(came) else {
            let why = format!("it answers more than {ANSWERS_MAX} bytes");
            return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, why)));
        };
        self.left = left;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Answers<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<IoResult<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoResult<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
