//! TLS to a server of objects: whom it trusts, and a connection with it or without.
//!
//! A certificate that does not verify ends the connection before anything is sent.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::error::LabError;

/// Whose certificates are taken, and the name that one must have.
#[derive(Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Trust {
    /// Authorities from a file (PEM), else those of this system.
    pub fn new(host: &str, file: Option<&Path>) -> Result<Trust, LabError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare)
            .map_err(|error| LabError::Usage(format!("'{host}' is no name that a certificate can have: {error}")))?;
        let mut roots = RootCertStore::empty();
        match file {
            Some(path) => {
                let bad = |error: &dyn std::fmt::Display| {
                    LabError::Usage(format!("--ca {}: is no file with certificates (PEM): {error}", path.display()))
                };
                for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))? {
                    let certificate = certificate.map_err(|error| bad(&error))?;
                    roots.add(certificate).map_err(|error| bad(&error))?;
                }
            }
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
        if roots.is_empty() {
            return Err(LabError::Missing(match file {
                Some(path) => format!("--ca {}: holds no certificate", path.display()),
                None => "this system has no certificates of authorities; give the server's with --ca FILE".into(),
            }));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| LabError::Failed(format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Trust { config: Arc::new(config), name })
    }
}

pub enum Channel {
    Plain(TcpStream),
    Secure(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Channel {
    pub fn new(stream: TcpStream, trust: Option<&Trust>) -> io::Result<Channel> {
        let Some(Trust { config, name }) = trust else { return Ok(Channel::Plain(stream)) };
        let connection = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
        Ok(Channel::Secure(Box::new(StreamOwned::new(connection, stream))))
    }
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(stream) => stream.read(buffer),
            Channel::Secure(stream) => stream.read(buffer),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Channel::Plain(stream) => stream.write(buffer),
            Channel::Secure(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Channel::Plain(stream) => stream.flush(),
            Channel::Secure(stream) => stream.flush(),
        }
    }
}

/// What to do about a certificate that does not verify, or a server without TLS. None: it is
/// something else.
pub fn said(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(why) => Some(format!(
            "the server's certificate is not trusted ({why}); give its authority's, or its own where it signed itself, with --ca FILE"
        )),
        rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => {
            Some("the server does not answer with TLS; reach one without by s3+http://".to_owned())
        }
        _ => None,
    }
}
