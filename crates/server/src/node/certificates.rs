//! The certificates that the server shows to clients, and their ends.
//!
//! Failure model: from its end on, all clients refuse a certificate at once. An alarm stands for
//! [`WARNED`] before. A new file ends it as soon as the server has read it. A file that cannot be
//! read at the start has no alarm: its listener refuses to start. One that cannot be used later
//! has: the listener goes on with the former certificate.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use stele_ground::calendar::moment;
use stele_stamp::certificate_end;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use super::standing::{alarm, next_of};
use crate::api::pool::StandingView;
use crate::config::{Config, Site};

/// Seconds before the end of a certificate.
const WARNED: u64 = 14 * 86_400;

struct Shown {
    setting: &'static str,
    path: PathBuf,
    /// The end of the first certificate of its chain that ends, in seconds since 1970.
    end: Option<u64>,
    /// Why its new files cannot be used.
    refused: Option<String>,
}

/// The certificates of the configuration, as they are shown.
pub struct Certificates(Mutex<Vec<Shown>>);

impl Certificates {
    pub fn of(site: &Site, config: &Config) -> Certificates {
        let settings = [
            ("[s3] tls_certificate", &config.s3.tls_certificate),
            ("[nbd] tls_certificate", &config.nbd.tls_certificate),
            ("[nfs] tls_certificate", &config.nfs.tls_certificate),
        ];
        let shown = settings.into_iter().filter_map(|(setting, path)| {
            let path = site.path(path.as_ref()?);
            Some(Shown { setting, end: end(&path), path, refused: None })
        });
        Certificates(Mutex::new(shown.collect()))
    }

    /// The files of a setting changed: they are shown now, unless they were refused.
    pub fn renewed(&self, setting: &'static str, path: &Path, refused: Option<String>) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shown.iter().position(|shown| shown.setting == setting).map(|at| shown.remove(at));
        let end = if refused.is_none() { end(path) } else { before.and_then(|before| before.end) };
        shown.push(Shown { setting, path: path.to_owned(), end, refused });
    }

    /// An alarm for each that has ended, or is about to, or cannot be replaced.
    pub fn standing(&self, now: u64) -> Vec<StandingView> {
        let shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.iter().filter_map(|shown| shown.standing(now)).collect()
    }
}

impl Shown {
    fn standing(&self, now: u64) -> Option<StandingView> {
        let Shown { setting, path, end, refused } = self;
        if let Some(why) = refused {
            let message = format!("the new TLS files of {setting} cannot be used: {why}");
            let ends = end.map(|end| format!(", which ends {}", moment(end))).unwrap_or_default();
            let next = "mend the files; the server reads them again within a minute";
            return Some(alarm("certificate", setting, message, format!("the former one is shown{ends}"), next));
        }
        let end = end.filter(|end| end.saturating_sub(WARNED) <= now)?;
        let (ends, done) = match end <= now {
            true => ("has ended", "it is shown as before; clients that check it refuse the connection"),
            false => ("ends soon", "it is shown as before"),
        };
        let message = format!("the certificate {} ({setting}) {ends}: {}", path.display(), moment(end));
        Some(alarm("certificate", setting, message, done, next_of("certificate")))
    }
}

fn end(path: &Path) -> Option<u64> {
    let bytes = crate::whole::read(path, crate::whole::TEXT_MAX).ok()?;
    let chain = CertificateDer::pem_slice_iter(&bytes);
    chain.filter_map(|certificate| certificate_end(&certificate.ok()?).ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_told_two_weeks_before_its_end_and_after_it() {
        let dir = std::env::temp_dir().join(format!("stele-certificates-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let made = |year: i32| {
            let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            parameters.not_after = rcgen::date_time_ymd(year, 1, 15);
            parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
        };
        // The chain ends with its first certificate that ends.
        std::fs::write(dir.join("chain.pem"), format!("{}{}", made(2060), made(2027))).unwrap();
        let mut config = Config::new(Vec::new());
        config.nbd.tls_certificate = Some("chain.pem".into());
        config.nfs.tls_certificate = Some("missing.pem".into());
        let certificates = Certificates::of(&Site::find(Some(&dir), None), &config);
        // 2027-01-15, at midnight.
        let end = 1_799_971_200;
        let told = |now| certificates.standing(now);
        assert!(told(end - WARNED - 1).is_empty());
        let soon = told(end - WARNED);
        assert_eq!(
            (soon.len(), soon[0].kind.as_str(), soon[0].subject.as_str()),
            (1, "certificate", "[nbd] tls_certificate")
        );
        assert!(soon[0].message.ends_with("chain.pem ([nbd] tls_certificate) ends soon: 2027-01-15T00:00:00Z"));
        assert!(soon[0].next.contains("within a minute"));
        assert!(told(end)[0].message.contains("has ended"));
        // One that cannot take its place is told, and what is shown meanwhile.
        let path = dir.join("chain.pem");
        certificates.renewed("[nbd] tls_certificate", &path, Some("it is cut off".to_owned()));
        let refused = &told(0)[0];
        assert!(refused.message.ends_with("[nbd] tls_certificate cannot be used: it is cut off"), "{refused:?}");
        assert!(refused.done.ends_with("which ends 2027-01-15T00:00:00Z"), "{refused:?}");
        std::fs::write(&path, made(2059)).unwrap();
        certificates.renewed("[nbd] tls_certificate", &path, None);
        assert!(told(end).is_empty());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
