//! TLS for the S3 endpoint: certificates from files, or one made and signed by itself at the first start.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::failure::{Failure, Outcome, io_failure};

/// Reads a PEM chain and its key.
pub fn acceptor(certificate: &Path, key: &Path) -> Outcome<TlsAcceptor> {
    let unreadable = |path: &Path, error: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot use {} for TLS: {error}", path.display()))
            .next("[s3] tls_certificate and tls_key must name PEM files that belong together")
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unreadable(certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| unreadable(certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The paths of the self-signed certificate and its key in the data directory, made if they are not there.
pub fn self_signed(dir: &Path) -> Outcome<(PathBuf, PathBuf)> {
    let (certificate, key) = (dir.join("tls/certificate.pem"), dir.join("tls/key.pem"));
    if certificate.exists() && key.exists() {
        return Ok((certificate, key));
    }
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let made = rcgen::generate_simple_self_signed(names)
        .map_err(|error| Failure::failed(format!("cannot make a certificate: {error}")))?;
    let folder = dir.join("tls");
    fs::create_dir_all(&folder).map_err(|error| io_failure("make", &folder, &error))?;
    write_private(&key, made.signing_key.serialize_pem().as_bytes())?;
    fs::write(&certificate, made.cert.pem()).map_err(|error| io_failure("write", &certificate, &error))?;
    Ok((certificate, key))
}

/// A new file that only its owner may read.
pub fn write_private(path: &Path, bytes: &[u8]) -> Outcome<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| io_failure("write", path, &error))
}
