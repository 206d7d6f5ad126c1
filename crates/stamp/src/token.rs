//! Verifies the reply of a time stamp authority.

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512, digest};
use rustls_pki_types::{CertificateDer, UnixTime};
use stele_ground::calendar::parse_stamp;
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage};

use crate::der::{BOOLEAN, INTEGER, OBJECT, OCTETS, SEQUENCE, SET, TIME, UTF8, Value, Values, field};
use crate::{Authorities, Finding, Imprint, REPLY_MAX};

/// Object identifiers, as they are encoded.
mod oid {
    pub const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];
    pub const STAMP: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 16, 1, 4];
    pub const CONTENT_TYPE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 3];
    pub const MESSAGE_DIGEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 4];
    pub const SIGNING_CERTIFICATE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 16, 2, 12];
    pub const SIGNING_CERTIFICATE_2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 16, 2, 47];
    pub const SHA256: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
    pub const SHA384: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2];
    pub const SHA512: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3];
    /// The purpose timeStamping of a certificate.
    pub const TIME_STAMPING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 8];
}

/// Characters of an authority's reason for a refusal that are passed on.
const REASON_MAX: usize = 200;

/// What an authority signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Seconds since 1970.
    pub time: u64,
    /// The authority's number of it, in hexadecimal.
    pub serial: String,
    /// The nonce of the request, if it had one.
    pub nonce: Option<Vec<u8>>,
}

/// Checks that the reply is a time stamp of this imprint, whole and signed. With `authorities`, one
/// of them must have certified the signer for time stamping, valid at the time of the stamp.
pub fn verify(reply: &[u8], imprint: Imprint, authorities: Option<&Authorities>) -> Result<Stamp, Finding> {
    if reply.len() > REPLY_MAX {
        return Err(format!("it has more than {REPLY_MAX} bytes"));
    }
    let message = Message::read(token(reply)?)?;
    let (stamp, stamped) = read_stamp(message.content)?;
    if stamped != imprint.0 {
        return Err("it is a time stamp of other bytes".into());
    }
    let signer = message.check_signature()?;
    if let Some(authorities) = authorities {
        message.check_chain(signer, stamp.time, authorities)?;
    }
    Ok(stamp)
}

/// The token in a TimeStampResp.
fn token(reply: &[u8]) -> Result<Value<'_>, Finding> {
    if reply.first() != Some(&SEQUENCE) {
        return Err("it is no reply in DER".into());
    }
    let mut outside = Values::of(reply);
    let mut fields = outside.sequence("the reply")?;
    outside.end("the reply")?;
    let mut status = fields.sequence("the status")?;
    let granted = status.take(INTEGER, "the status")?.content;
    // Granted, or granted with modifications; the second is still checked in full.
    if !matches!(granted, [0 | 1]) {
        let reason = status.optional(SEQUENCE)?.map(|texts| texts.values().take(UTF8, "a text")).transpose()?;
        let reason = reason.map(|text| String::from_utf8_lossy(text.content).into_owned());
        let reason: String = reason.unwrap_or_default().chars().take(REASON_MAX).collect();
        return Err(match reason.is_empty() {
            true => format!("the authority refused, with status {}", hex(granted)),
            false => format!("the authority refused, with status {}: {reason}", hex(granted)),
        });
    }
    let token = fields.take(SEQUENCE, "the token")?;
    fields.end("the token")?;
    Ok(token)
}

/// A signed message (CMS SignedData) that one authority signed.
struct Message<'a> {
    /// The TSTInfo, as it was signed.
    content: &'a [u8],
    certificates: Vec<&'a [u8]>,
    digest: &'static Algorithm,
    /// The attributes that are signed, with tag and length.
    signed: Value<'a>,
    signature: &'a [u8],
}

/// The algorithm that an AlgorithmIdentifier names.
fn digest_named(mut identifier: Values<'_>) -> Result<&'static Algorithm, Finding> {
    match identifier.take(OBJECT, "the digest's name")?.content {
        oid::SHA256 => Ok(&SHA256),
        oid::SHA384 => Ok(&SHA384),
        oid::SHA512 => Ok(&SHA512),
        _ => Err("it uses another digest than SHA-256, SHA-384 or SHA-512".into()),
    }
}

/// The only value of an attribute.
fn attribute<'a>(attributes: Values<'a>, name: &[u8], what: &str) -> Result<Option<Value<'a>>, Finding> {
    let (mut attributes, mut found) = (attributes, None);
    while let Some(attribute) = attributes.next()? {
        let mut fields = attribute.values();
        if fields.take(OBJECT, "an attribute's name")?.content != name {
            continue;
        }
        let mut values = fields.take(SET, what)?.values();
        let value = values.next()?.ok_or_else(|| format!("{what} is empty"))?;
        values.end(what)?;
        if found.replace(value).is_some() {
            return Err(format!("{what} is given twice"));
        }
    }
    Ok(found)
}

impl<'a> Message<'a> {
    fn read(token: Value<'a>) -> Result<Message<'a>, Finding> {
        let mut info = token.values();
        if info.take(OBJECT, "the token's type")?.content != oid::SIGNED_DATA {
            return Err("the token is no signed message".into());
        }
        let mut fields = info.take(field(0), "the signed message")?.values().sequence("the signed message")?;
        fields.take(INTEGER, "the version")?;
        fields.take(SET, "the list of digests")?;
        let mut wrapped = fields.sequence("the content")?;
        if wrapped.take(OBJECT, "the content's type")?.content != oid::STAMP {
            return Err("the signed message is no time stamp".into());
        }
        let content = wrapped.take(field(0), "the content")?.values().take(OCTETS, "the content")?.content;
        let mut certificates = Vec::new();
        if let Some(list) = fields.optional(field(0))? {
            let mut list = list.values();
            while let Some(certificate) = list.next()? {
                // Others are attribute certificates, which sign nothing here.
                if certificate.tag == SEQUENCE {
                    certificates.push(certificate.whole);
                }
            }
        }
        fields.optional(field(1))?;
        let mut signers = fields.take(SET, "the list of signers")?.values();
        let mut signer = signers.sequence("the signer")?;
        signers.end("the only signer")?;
        signer.take(INTEGER, "the signer's version")?;
        // A sequence or [0]: the signed attributes name the certificate beyond doubt.
        signer.next()?.ok_or("the signer's name is missing")?;
        let digest = digest_named(signer.sequence("the signer's digest")?)?;
        let signed = signer.take(field(0), "the list of signed attributes")?;
        signer.take(SEQUENCE, "the signature's algorithm")?;
        let signature = signer.take(OCTETS, "the signature")?.content;
        Ok(Message { content, certificates, digest, signed, signature })
    }

    /// Checks the signature, and gives the certificate of the signer.
    fn check_signature(&self) -> Result<&'a [u8], Finding> {
        let attributes = self.signed.values();
        let kind = attribute(attributes, oid::CONTENT_TYPE, "the signed type")?;
        if kind.is_none_or(|kind| kind.tag != OBJECT || kind.content != oid::STAMP) {
            return Err("the signed type is not that of time stamps".into());
        }
        let said = attribute(attributes, oid::MESSAGE_DIGEST, "the signed digest")?;
        let own = digest(self.digest, self.content);
        if said.is_none_or(|said| said.tag != OCTETS || said.content != own.as_ref()) {
            return Err("the signed digest is of other content: the token was changed".into());
        }
        let signer = self.signer(attributes)?;
        let der = CertificateDer::from(signer);
        let certificate = EndEntityCert::try_from(&der).map_err(|error| unreadable(&error))?;
        // The attributes are signed as a set, and sent under another tag.
        let mut text = self.signed.whole.to_vec();
        if let Some(tag) = text.first_mut() {
            *tag = SET;
        }
        let holds = |algorithm: &&dyn rustls_pki_types::SignatureVerificationAlgorithm| {
            certificate.verify_signature(*algorithm, &text, self.signature).is_ok()
        };
        match ALL_VERIFICATION_ALGS.iter().any(holds) {
            true => Ok(signer),
            false => Err("its signature does not hold: it was changed, or signed by an algorithm that is not \
                          known (RSA from 2048 bits, ECDSA and Ed25519 are)"
                .into()),
        }
    }

    /// The certificate that the signed attributes name by its digest.
    fn signer(&self, attributes: Values<'a>) -> Result<&'a [u8], Finding> {
        let what = "the name of the signer's certificate";
        let newer = attribute(attributes, oid::SIGNING_CERTIFICATE_2, what)?;
        let older = attribute(attributes, oid::SIGNING_CERTIFICATE, what)?;
        let is_newer = newer.is_some();
        let named = newer.or(older).ok_or_else(|| format!("{what} is not signed"))?;
        let mut first = named.values().sequence(what)?.sequence(what)?;
        let algorithm = match first.optional(SEQUENCE)? {
            Some(identifier) if is_newer => digest_named(identifier.values())?,
            Some(_) => return Err(format!("{what} is malformed")),
            None if is_newer => &SHA256,
            None => &SHA1_FOR_LEGACY_USE_ONLY,
        };
        let said = first.take(OCTETS, what)?.content;
        let is_named = |certificate: &&&[u8]| digest(algorithm, certificate).as_ref() == said;
        let found = self.certificates.iter().find(is_named);
        found.copied().ok_or_else(|| "it does not contain the signer's certificate".into())
    }

    /// Checks that an authority certified the signer for time stamping.
    fn check_chain(&self, signer: &[u8], time: u64, authorities: &Authorities) -> Result<(), Finding> {
        let der = CertificateDer::from(signer);
        let certificate = EndEntityCert::try_from(&der).map_err(|error| unreadable(&error))?;
        let anchors: Result<Vec<_>, _> = authorities.0.iter().map(webpki::anchor_from_trusted_cert).collect();
        let anchors = anchors.map_err(|error| unreadable(&error))?;
        let others: Vec<CertificateDer<'_>> = self.certificates.iter().map(|der| CertificateDer::from(*der)).collect();
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(time));
        let usage = KeyUsage::required(oid::TIME_STAMPING);
        let checked = certificate.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &others, at, usage, None, None);
        checked.map(drop).map_err(|error| format!("no given authority certified its signer: {error}"))
    }
}

fn unreadable(error: &webpki::Error) -> Finding {
    format!("the signer's certificate cannot be read: {error}")
}

/// Reads a TSTInfo: the stamp, and the digest that it stamps.
fn read_stamp(content: &[u8]) -> Result<(Stamp, &[u8]), Finding> {
    let mut outside = Values::of(content);
    let mut fields = outside.sequence("the time stamp")?;
    outside.end("the time stamp")?;
    if fields.take(INTEGER, "the version")?.content != [1] {
        return Err("it is a time stamp of another version".into());
    }
    fields.take(OBJECT, "the policy")?;
    let mut imprint = fields.sequence("the imprint")?;
    if imprint.sequence("the imprint's digest")?.take(OBJECT, "the imprint's digest")?.content != oid::SHA256 {
        return Err("it is a time stamp of other bytes: its imprint is no SHA-256".into());
    }
    let stamped = imprint.take(OCTETS, "the imprint")?.content;
    let serial = hex(fields.take(INTEGER, "the serial number")?.content);
    let time = fields.take(TIME, "the time")?.content;
    let time = seconds(time).ok_or_else(|| format!("its time '{}' is no time", String::from_utf8_lossy(time)))?;
    // The accuracy, and whether the authority orders its stamps.
    fields.optional(SEQUENCE)?;
    fields.optional(BOOLEAN)?;
    let nonce = fields.optional(INTEGER)?.map(|nonce| nonce.content.to_vec());
    Ok((Stamp { time, serial, nonce }, stamped))
}

/// Seconds since 1970 of `YYYYMMDDhhmmss[.f]Z`.
pub fn seconds(time: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let (date, time) = whole.split_at_checked(8).filter(|_| is_number)?;
    parse_stamp(&format!("{date}T{time}Z"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_fraction() {
        assert_eq!(seconds(b"19700102000000Z"), Some(86_400));
        assert_eq!(seconds(b"19700102000000.25Z"), Some(86_400));
        for wrong in
            ["", "Z", "19700102000000", "19700102000000.Z", "19700102000000.xZ", "1970010200Z", "é9700102000000Z"]
        {
            assert_eq!(seconds(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
