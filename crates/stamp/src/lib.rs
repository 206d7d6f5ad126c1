//! Time stamps of RFC 3161: an authority signs that a digest existed at a time.
//!
//! The request names the SHA-256 of some bytes and a nonce. The reply holds a token: a signed
//! message (CMS, RFC 5652) with the digest, the time and the nonce. [`Request::check`] checks a
//! reply just received, [`verify`] one that was kept. Signatures and chains of certificates are
//! checked by the library that checks those of TLS; the few structures around them are read here,
//! since kept crates for them refuse tokens that real authorities give
//! (docs/decisions/026-time-stamps.md).
//!
//! Failure model: every byte of a reply may be hostile. What cannot be read, or is not signed as
//! RFC 3161 and RFC 5816 demand, is a [`Finding`]. Revocation is not checked: the verifier names
//! the authorities that he trusts.

mod certificate;
mod der;
mod token;

use aws_lc_rs::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

pub use certificate::certificate_end;
pub use token::{Stamp, verify};

/// Largest reply in bytes. One with a chain of three certificates has about 6000.
pub const REPLY_MAX: usize = 64 << 10;
/// The media types of request and reply.
pub const REQUEST_TYPE: &str = "application/timestamp-query";
pub const REPLY_TYPE: &str = "application/timestamp-reply";

/// Why a reply is no time stamp of these bytes.
pub type Finding = String;

/// The SHA-256 of the bytes that are stamped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imprint(pub [u8; 32]);

impl Imprint {
    pub fn of(bytes: &[u8]) -> Imprint {
        let mut imprint = [0; 32];
        imprint.copy_from_slice(digest(&SHA256, bytes).as_ref());
        Imprint(imprint)
    }
}

/// A request for a time stamp.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    imprint: Imprint,
    nonce: [u8; 8],
}

impl Request {
    /// The nonce must be random: a reply to an earlier request is then not taken for this one's.
    pub fn new(imprint: Imprint, mut nonce: [u8; 8]) -> Request {
        // Positive and without a leading zero, so that its bytes are its only form.
        nonce[0] = nonce[0] & 0x7f | 0x40;
        Request { imprint, nonce }
    }

    /// TimeStampReq: version 1, the imprint, the nonce, and the wish for certificates.
    pub fn to_der(&self) -> Vec<u8> {
        const BEFORE_IMPRINT: [u8; 24] = [
            0x30, 0x43, 0x02, 0x01, 0x01, 0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04,
            0x02, 0x01, 0x05, 0x00, 0x04, 0x20,
        ];
        [&BEFORE_IMPRINT[..], &self.imprint.0, &[0x02, 0x08], &self.nonce, &[0x01, 0x01, 0xff]].concat()
    }

    /// Checks the reply to this request. Without authorities, any certificate in the reply may have
    /// signed it.
    pub fn check(&self, reply: &[u8], authorities: Option<&Authorities>) -> Result<Stamp, Finding> {
        let stamp = verify(reply, self.imprint, authorities)?;
        match stamp.nonce.as_deref() == Some(&self.nonce) {
            true => Ok(stamp),
            false => Err("it answers another request: its nonce is another".into()),
        }
    }
}

/// Certificates of authorities that are trusted.
pub struct Authorities(Vec<CertificateDer<'static>>);

impl Authorities {
    /// Reads them from PEM.
    pub fn from_pem(text: &[u8]) -> Result<Authorities, Finding> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let certificates = read.map_err(|error| format!("it is not PEM: {error}"))?;
        if certificates.is_empty() {
            return Err("it has no certificate in PEM".into());
        }
        for certificate in &certificates {
            webpki::anchor_from_trusted_cert(certificate)
                .map_err(|error| format!("a certificate in it cannot be read: {error}"))?;
        }
        Ok(Authorities(certificates))
    }
}
