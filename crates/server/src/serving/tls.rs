//! TLS for the S3 endpoint: certificates from files, or a self-signed certificate made at the first
//! start.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::failure::{Failure, Outcome, io_failure};
use crate::files::{replace, replace_private};

/// A certificate chain and its key, in PEM.
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Reads the chain and the key.
pub fn acceptor(files: &TlsFiles) -> Outcome<TlsAcceptor> {
    let TlsFiles { certificate, key } = files;
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

/// The paths of the self-signed certificate and its key in the data directory. Both are made again
/// if one is missing (a start was killed between them), or if the certificate does not name the
/// listener's address.
pub fn self_signed(dir: &Path, listen: IpAddr) -> Outcome<TlsFiles> {
    let folder = dir.join("tls");
    let (certificate, key, named) = (folder.join("certificate.pem"), folder.join("key.pem"), folder.join("names"));
    let known = fs::read_to_string(&named).unwrap_or_default();
    let mut names: BTreeSet<String> = known.lines().map(str::to_owned).collect();
    let mut wanted = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    if listen.is_unspecified() {
        // The listener has every address of this machine; the host name is more stable than they
        // are.
        wanted.extend(host_name());
    } else {
        wanted.push(listen.to_string());
    }
    if wanted.iter().all(|name| names.contains(name)) && certificate.exists() && key.exists() {
        return Ok(TlsFiles { certificate, key });
    }
    names.extend(wanted);
    let names: Vec<String> = names.into_iter().collect();
    let made = rcgen::generate_simple_self_signed(names.clone())
        .map_err(|error| Failure::failed(format!("cannot make a certificate: {error}")))?;
    fs::create_dir_all(&folder).map_err(|error| io_failure("make", &folder, &error))?;
    // Remove the certificate first. A key without a certificate is made again, so that the two
    // always belong together.
    match fs::remove_file(&certificate) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(io_failure("replace", &certificate, &error));
        }
        _ => {}
    }
    replace_private(&key, made.signing_key.serialize_pem().as_bytes())?;
    replace(&named, format!("{}\n", names.join("\n")).as_bytes())?;
    replace(&certificate, made.cert.pem().as_bytes())?;
    Ok(TlsFiles { certificate, key })
}

fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!name.is_empty() && name.chars().all(plain)).then_some(name)
}
