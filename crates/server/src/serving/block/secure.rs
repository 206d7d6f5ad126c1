//! TLS of the block frontend: the acceptor, and the non-blocking stream that the reactor drives.
//!
//! Client certificates: with a configured authority, every client must present a certificate that
//! the authority signed. Without one, a client may present a certificate and must prove that it
//! owns its key. An export can require its fingerprint.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use stele_block::export::Fingerprint;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};

use crate::failure::{Failure, Outcome};
use crate::serving::tls::{certificates, misfit, private_key};

/// Reads a PEM chain with its key, and the authority of client certificates if there is one.
pub fn acceptor(certificate: &Path, key: &Path, authority: Option<&Path>) -> Outcome<TlsAcceptor> {
    let unusable = |path: &Path, error: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot use {} for TLS: {error}", path.display()))
            .next("[nbd] tls_certificate, tls_key and client_authority must name PEM files")
    };
    let read = |path: &Path| -> Outcome<Vec<CertificateDer<'static>>> {
        certificates(path).map_err(|why| unusable(path, &why))
    };
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let verifier: Arc<dyn ClientCertVerifier> = match authority {
        None => Arc::new(Owned(Arc::clone(&provider))),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in read(path)? {
                roots.add(root).map_err(|error| unusable(path, &error))?;
            }
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|error| unusable(path, &error))?
        }
    };
    let private = private_key(key).map_err(|why| unusable(key, &why))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(certificate, &error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(read(certificate)?, private)
        .map_err(|error| unusable(key, &misfit(certificate, &error)))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The fingerprint of the certificate that the client presented and proved to own.
pub fn fingerprint(connection: &ServerConnection) -> Option<Fingerprint> {
    let shown = connection.peer_certificates()?.first()?;
    digest(&SHA256, shown).as_ref().try_into().ok().map(Fingerprint)
}

/// Accepts every certificate whose key the client owns. The export decides by its fingerprint.
#[derive(Debug)]
struct Owned(Arc<CryptoProvider>);

impl ClientCertVerifier for Owned {
    fn client_auth_mandatory(&self) -> bool {
        false
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A non-blocking socket behind TLS.
pub struct Secure<U: Read + Write> {
    socket: U,
    connection: ServerConnection,
}

impl<U: Read + Write> Secure<U> {
    pub fn new(socket: U, connection: ServerConnection) -> Secure<U> {
        Secure { socket, connection }
    }

    /// Takes records from the socket. Returns false at its end.
    fn fetch(&mut self) -> io::Result<bool> {
        if self.connection.read_tls(&mut self.socket)? == 0 {
            return Ok(false);
        }
        self.connection.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        Ok(true)
    }

    /// Sends records. An error means that the socket is closed for sending.
    fn drain(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

impl<U: Read + Write> Read for Secure<U> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            if !self.fetch()? {
                return Ok(0);
            }
        }
    }

    /// Fills one slice after another. A short read means that no data is left here; the caller must
    /// poll the socket.
    fn read_vectored(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut total = 0;
        for slice in into.iter_mut().filter(|slice| !slice.is_empty()) {
            match self.read(slice) {
                Ok(count) => {
                    total += count;
                    if count < slice.len() {
                        break;
                    }
                }
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }
}

impl<U: Read + Write> Write for Secure<U> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(from)])
    }

    /// Takes as much as the buffer holds, and sends as much of it as the socket takes.
    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut went = self.connection.writer().write_vectored(from)?;
        let sent = self.drain();
        if went == 0 && from.iter().any(|slice| !slice.is_empty()) {
            // The buffer was full. The socket may have taken part of it now.
            sent?;
            went = self.connection.writer().write_vectored(from)?;
        }
        match self.drain() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(went),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.drain()
    }
}

impl<U: Read + Write + AsRawFd> AsRawFd for Secure<U> {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl<U: Read + Write> Drop for Secure<U> {
    /// Sends the closing alert, if the socket takes it.
    fn drop(&mut self) {
        self.connection.send_close_notify();
        let _ = self.drain();
    }
}
