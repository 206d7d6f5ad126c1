//! The certificates that the server shows to clients, and their ends.
//!
//! Failure model: from its end on, all clients refuse a certificate at once. An alarm stands for
//! [`WARNED`] before. The server reads certificates when it starts, so a new file ends the alarm
//! with the next start. A file that cannot be read has no alarm: its listener refuses to start.

use std::path::PathBuf;

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
    end: u64,
}

/// The certificates of the configuration, as they were at the start.
pub struct Certificates(Vec<Shown>);

impl Certificates {
    pub fn of(site: &Site, config: &Config) -> Certificates {
        let settings = [
            ("[s3] tls_certificate", &config.s3.tls_certificate),
            ("[nbd] tls_certificate", &config.nbd.tls_certificate),
            ("[nfs] tls_certificate", &config.nfs.tls_certificate),
        ];
        let shown = settings.into_iter().filter_map(|(setting, path)| {
            let path = site.path(path.as_ref()?);
            let bytes = crate::whole::read(&path, crate::whole::TEXT_MAX).ok()?;
            let chain = CertificateDer::pem_slice_iter(&bytes);
            let end = chain.filter_map(|certificate| certificate_end(&certificate.ok()?).ok()).min()?;
            Some(Shown { setting, path, end })
        });
        Certificates(shown.collect())
    }

    /// An alarm for each that has ended, or is about to.
    pub fn standing(&self, now: u64) -> Vec<StandingView> {
        let due = self.0.iter().filter(|shown| shown.end.saturating_sub(WARNED) <= now);
        let told = due.map(|Shown { setting, path, end }| {
            let (ends, done) = match *end <= now {
                true => ("has ended", "it is shown as before; clients that check it refuse the connection"),
                false => ("ends soon", "it is shown as before"),
            };
            let message = format!("the certificate {} ({setting}) {ends}: {}", path.display(), moment(*end));
            alarm("certificate", setting, message, done, next_of("certificate"))
        });
        told.collect()
    }
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
        std::fs::remove_dir_all(&dir).unwrap();
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
        assert!(soon[0].next.contains("start the server again"));
        assert!(told(end)[0].message.contains("has ended"));
    }
}
