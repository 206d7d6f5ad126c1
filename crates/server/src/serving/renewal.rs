//! TLS that follows its files: a new certificate, key or authority counts for the connections that
//! come after it, without a restart.
//!
//! Failure model: files are replaced one after the other, and may be cut off or belong to others
//! meanwhile. What cannot be used changes nothing: the listener goes on with what it had. If the
//! next look finds the same files, an alarm stands until they change and can be used. So a missing
//! authority admits no client that was kept out. A server looks once a minute on a thread of its
//! own, since a file system may hang.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_rustls::TlsAcceptor;

use crate::failure::Outcome;
use crate::node::Node;

const EVERY: Duration = Duration::from_secs(60);

/// The TLS of a listener.
#[derive(Clone)]
pub struct Secured(Arc<Mutex<TlsAcceptor>>);

impl Secured {
    /// Accepts connections with the files as they are now.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

type Read = Box<dyn Fn() -> Outcome<TlsAcceptor> + Send>;

/// The files behind the TLS of a listener.
pub struct Renewal {
    setting: &'static str,
    /// The certificate, and what belongs to it.
    paths: Vec<PathBuf>,
    read: Read,
    secured: Secured,
    /// The files as they were when they were last usable.
    seen: Stamps,
    /// As they were when they could not be used, and whether that was told. They may have been
    /// replaced in part, or could not be read just then.
    unusable: Option<(Stamps, bool)>,
}

/// Changes whenever a file is written or replaced.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));
/// Of several files. None: it is not there.
type Stamps = Vec<Option<Stamp>>;

fn stamp(about: &Metadata) -> Stamp {
    let times = ((about.mtime(), about.mtime_nsec()), (about.ctime(), about.ctime_nsec()));
    (about.dev(), about.ino(), about.len(), times.0, times.1)
}

impl Renewal {
    /// Reads the files for the first time. The setting names the certificate, the first of them.
    pub fn new(setting: &'static str, paths: Vec<PathBuf>, read: Read) -> Outcome<Renewal> {
        let seen = stamps(&paths);
        let secured = Secured(Arc::new(Mutex::new(read()?)));
        Ok(Renewal { setting, paths, read, secured, seen, unusable: None })
    }

    pub fn secured(&self) -> Secured {
        self.secured.clone()
    }

    /// Reads files that changed since the last look. None: there is nothing to tell.
    fn look(&mut self) -> Option<Outcome<()>> {
        // Before they are read: a change in the middle is seen by the next look.
        let now = stamps(&self.paths);
        if now == self.seen {
            return None;
        }
        match (self.read)() {
            Ok(acceptor) => {
                *self.secured.0.lock().unwrap_or_else(PoisonError::into_inner) = acceptor;
                (self.seen, self.unusable) = (now, None);
                Some(Ok(()))
            }
            // It is read again by every look, and told once.
            Err(failure) => {
                let known = self.unusable.take().filter(|(unusable, _)| *unusable == now);
                let (again, told) = (known.is_some(), known.is_some_and(|(_, told)| told));
                self.unusable = Some((now, again));
                (again && !told).then_some(Err(failure))
            }
        }
    }
}

fn stamps(paths: &[PathBuf]) -> Stamps {
    paths.iter().map(|path| std::fs::metadata(path).ok().as_ref().map(stamp)).collect()
}

/// Looks until the task is dropped.
pub async fn keep_looking(mut renewals: Vec<Renewal>, node: Arc<Node>) {
    while !renewals.is_empty() {
        tokio::time::sleep(EVERY).await;
        let node = Arc::clone(&node);
        let look = move || {
            renewals.iter_mut().for_each(|renewal| look_at(renewal, &node));
            renewals
        };
        // A thread that died took them along.
        let Ok(looked) = tokio::task::spawn_blocking(look).await else { return };
        renewals = looked;
    }
}

fn look_at(renewal: &mut Renewal, node: &Node) {
    let Some(outcome) = renewal.look() else { return };
    let (setting, path) = (renewal.setting, renewal.paths.first());
    match &outcome {
        Ok(()) => tracing::info!("new connections get the TLS files of {setting} as they are now"),
        Err(failure) => tracing::warn!("the TLS files of {setting} stay as they were: {}", failure.on_one_line()),
    }
    if let Some(path) = path {
        node.certificates.renewed(setting, path, outcome.err().map(|failure| failure.error));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::*;
    use crate::failure::Failure;
    use crate::files::replace;
    use crate::serving::tls::{TlsFiles, acceptor, certificates};

    /// A new certificate and its key, in place of those that are there.
    fn certify(files: &TlsFiles) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        replace(&files.certificate, made.cert.pem().as_bytes()).unwrap();
        replace(&files.key, made.signing_key.serialize_pem().as_bytes()).unwrap();
        made.cert.der().clone()
    }

    /// Whether a client that trusts this certificate alone gets a connection.
    async fn is_shown(secured: &Secured, certificate: &CertificateDer<'static>) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let (near, far) = tokio::io::duplex(64 << 10);
        let name = ServerName::try_from("localhost").unwrap();
        let (shaken, _) =
            tokio::join!(TlsConnector::from(Arc::new(client)).connect(name, near), secured.acceptor().accept(far));
        shaken.is_ok()
    }

    #[tokio::test]
    async fn new_files_count_for_new_connections_and_unusable_ones_change_nothing() {
        let dir = std::env::temp_dir().join(format!("stele-renewal-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let files = TlsFiles { certificate: dir.join("certificate.pem"), key: dir.join("key.pem") };
        let first = certify(&files);
        let paths = vec![files.certificate.clone(), files.key.clone()];
        let own = TlsFiles { certificate: files.certificate.clone(), key: files.key.clone() };
        let is_readable = Arc::new(AtomicBool::new(true));
        let look = Arc::clone(&is_readable);
        let read = move || match look.load(Relaxed) {
            true => acceptor(&own),
            false => Err(Failure::failed("too many open files")),
        };
        let mut renewal = Renewal::new("[s3] tls_certificate", paths, Box::new(read)).unwrap();
        let secured = renewal.secured();
        assert!(renewal.look().is_none() && is_shown(&secured, &first).await);

        let second = certify(&files);
        assert!(is_shown(&secured, &first).await, "before the look");
        assert!(renewal.look().unwrap().is_ok());
        assert!(is_shown(&secured, &second).await && !is_shown(&secured, &first).await);
        assert!(renewal.look().is_none());

        // A certificate without its key: the key is still on its way.
        let key = std::fs::read_to_string(&files.key).unwrap();
        let third = certify(&files);
        let newest = std::fs::read_to_string(&files.key).unwrap();
        replace(&files.key, key.as_bytes()).unwrap();
        assert!(renewal.look().is_none(), "it may come until the next look");
        let why = renewal.look().unwrap().unwrap_err();
        assert!(why.error.contains("key.pem for TLS: it does not belong to the certificate"), "{why:?}");
        assert!(is_shown(&secured, &second).await && renewal.look().is_none(), "told once");
        replace(&files.key, newest.as_bytes()).unwrap();
        assert!(renewal.look().unwrap().is_ok() && is_shown(&secured, &third).await);

        // What cannot be read for a while is read again, though nothing changes meanwhile.
        certify(&files);
        is_readable.store(false, Relaxed);
        assert!(renewal.look().is_none() && renewal.look().unwrap().is_err() && renewal.look().is_none());
        is_readable.store(true, Relaxed);
        assert!(renewal.look().unwrap().is_ok() && !is_shown(&secured, &third).await);
        let fourth = certify(&files);
        assert!(renewal.look().unwrap().is_ok());

        std::fs::remove_file(&files.certificate).unwrap();
        assert!(renewal.look().is_none() && renewal.look().unwrap().is_err());
        assert!(is_shown(&secured, &fourth).await && certificates(&files.certificate).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
