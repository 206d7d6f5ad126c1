//! TLS for the S3 endpoint: certificates from files, or a self-signed certificate made at the first
//! start.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

use crate::failure::{Failure, Outcome, io_failure};
use crate::files::{replace, replace_private};
use crate::whole::{self, TEXT_MAX};

/// A certificate chain and its key, in PEM.
#[derive(Clone)]
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
    let chain = certificates(certificate).map_err(|why| unreadable(certificate, &why))?;
    let private = private_key(key).map_err(|why| unreadable(key, &why))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unreadable(certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| unreadable(key, &misfit(certificate, &error)))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Why a key cannot be used with a certificate.
pub fn misfit(certificate: &Path, error: &rustls::Error) -> String {
    let certificate = certificate.display();
    match error {
        rustls::Error::InconsistentKeys(_) => format!("it does not belong to the certificate {certificate}"),
        other => format!("with the certificate {certificate}: {other}"),
    }
}

/// The certificates of a PEM file, one at least; or why there are none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = whole::read(path, TEXT_MAX).map_err(|error| error.to_string())?;
    match CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
        Ok(chain) if chain.is_empty() => Err("it has no certificate in PEM".into()),
        Ok(chain) => Ok(chain),
        Err(error) => Err(unread(&error)),
    }
}

/// The private key of a PEM file; or why there is none.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = whole::read(path, TEXT_MAX).map_err(|error| error.to_string())?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        _ if is_encrypted(&bytes) => "its private key has a passphrase, which the server cannot ask for; \
             openssl pkey -in FILE -out NEW writes it without one"
            .into(),
        PemError::NoItemsFound => "it has no private key in PEM".into(),
        error => unread(&error),
    })
}

/// Whether the key of a PEM file takes a passphrase, in PKCS #8 or in the older form.
fn is_encrypted(text: &[u8]) -> bool {
    let has = |words: &[u8]| text.windows(words.len()).any(|window| window == words);
    has(b"BEGIN ENCRYPTED PRIVATE KEY") || has(b"Proc-Type: 4,ENCRYPTED")
}

/// The library's words for a file that ends within a section are a list of numbers.
fn unread(error: &PemError) -> String {
    match error {
        PemError::MissingSectionEnd { .. } => "it is cut off: the end of a section is missing".into(),
        PemError::IllegalSectionStart { .. } => "it is no PEM file: the beginning of a section cannot be read".into(),
        other => other.to_string(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificate_or_key_is_told_in_words() {
        let dir = std::env::temp_dir().join(format!("stele-tls-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let file = |name: &str, text: &str| {
            fs::write(dir.join(name), text).unwrap();
            dir.join(name)
        };
        let (whole, secret) = (file("whole.pem", &certificate), file("key.pem", &key));
        assert_eq!(certificates(&whole).map(|chain| chain.len()), Ok(1));
        assert!(private_key(&secret).is_ok());
        for (path, says) in [
            (&secret, "no certificate"),
            (&file("empty.pem", ""), "no certificate"),
            (&file("cut.pem", &certificate[..certificate.len() / 2]), "cut off"),
            (&dir.join("missing.pem"), "No such file"),
        ] {
            let why = certificates(path).unwrap_err();
            assert!(why.contains(says), "{}: {why}", path.display());
        }
        let encrypted = key.replace(" PRIVATE KEY", " ENCRYPTED PRIVATE KEY");
        let older = key.replacen("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\n\n", 1);
        for (path, says) in [
            (&whole, "no private key"),
            (&file("cut.key", &key[..key.len() / 2]), "cut off"),
            (&file("encrypted.key", &encrypted), "passphrase"),
            (&file("older.key", &older), "passphrase"),
        ] {
            let why = private_key(path).err().unwrap();
            assert!(why.contains(says), "{}: {why}", path.display());
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
