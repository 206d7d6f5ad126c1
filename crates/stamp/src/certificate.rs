//! The end of a certificate's validity (RFC 5280). The library that checks certificates does not
//! tell it.

use crate::Finding;
use crate::der::{INTEGER, SEQUENCE, TIME, UTC_TIME, Values, field};
use crate::token::seconds;

/// The end of the validity of a certificate in DER, in seconds since 1970.
pub fn certificate_end(certificate: &[u8]) -> Result<u64, Finding> {
    let mut whole = Values::of(certificate).sequence("the certificate")?;
    let mut fields = whole.sequence("the certificate's content")?;
    // The version, which the first one does not have.
    fields.optional(field(0))?;
    fields.take(INTEGER, "the serial number")?;
    fields.take(SEQUENCE, "the algorithm of the signature")?;
    fields.take(SEQUENCE, "the issuer")?;
    let mut validity = fields.sequence("the validity")?;
    validity.next()?;
    let end = validity.next()?.ok_or("the end of the validity is missing")?;
    let text = String::from_utf8_lossy(end.content);
    let year = match (end.tag, text.as_bytes()) {
        (TIME, _) => "",
        (UTC_TIME, [b'0'..=b'4', ..]) => "20",
        (UTC_TIME, _) => "19",
        _ => return Err("the end of the validity is no time".into()),
    };
    seconds(format!("{year}{text}").as_bytes()).ok_or_else(|| format!("its end '{text}' is no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, content.len() as u8][..], content].concat()
    }

    /// A certificate as far as the end of its validity.
    fn certificate(version: &[u8], end: &[u8]) -> Vec<u8> {
        let begin = value(UTC_TIME, b"260101000000Z");
        let validity = value(SEQUENCE, &[&begin, end].concat());
        let (serial, empty) = (value(INTEGER, &[7]), value(SEQUENCE, &[]));
        let content = value(SEQUENCE, &[version, &serial, &empty, &empty, &validity, &empty].concat());
        value(SEQUENCE, &[content, empty].concat())
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms() {
        let third = value(field(0), &value(INTEGER, &[2]));
        for (version, tag, text, end) in [
            (&third[..], UTC_TIME, "270115080000Z", Some(1_800_000_000)),
            (&[][..], UTC_TIME, "270115080000Z", Some(1_800_000_000)),
            (&third, TIME, "20270115080000Z", Some(1_800_000_000)),
            (&third, UTC_TIME, "700101000001Z", Some(1)),
            (&third, UTC_TIME, "2701150800Z", None),
            (&third, INTEGER, "270115080000Z", None),
        ] {
            let read = certificate_end(&certificate(version, &value(tag, text.as_bytes())));
            assert_eq!(read.ok(), end, "{text}");
        }
        assert!(certificate_end(&certificate(&third, &[])).is_err());
        assert!(certificate_end(b"no certificate").is_err());
    }
}
