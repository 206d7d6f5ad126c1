//! A document as the wire crate may have it: well-formed, and without CDATA sections.
//!
//! The wire crate logs what its parser says of a document, and the parser quotes the document: a sender could write to the
//! server's log as fast as it sends. It also leaves out CDATA sections, so that a key within one becomes another key.
//! Both end here: what is not well-formed is refused with a message of our own, and CDATA becomes text.

use crate::refusal::refuse;
use bytes::Bytes;
use quick_xml::Reader;
use quick_xml::events::Event;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// The document with its CDATA sections as text, or the refusal of one that is not well-formed.
pub fn plain(document: Bytes) -> S3Result<Bytes> {
    // What has no markup is no XML, and the operation says so; the parser has nothing to quote from it.
    if !document.contains(&b'<') {
        return Ok(document);
    }
    std::str::from_utf8(&document).map_err(|_| malformed())?;
    let mut reader = Reader::from_reader(document.as_ref());
    // Up to where the document is in `plain`; empty as long as there is nothing to change.
    let (mut plain, mut copied) = (Vec::new(), 0);
    loop {
        let start = position(&reader);
        match reader.read_event().map_err(|_| malformed())? {
            Event::Eof => break,
            Event::CData(section) => {
                let text = section.escape().map_err(|_| malformed())?;
                plain.extend_from_slice(document.get(copied..start).unwrap_or_default());
                plain.extend_from_slice(&text);
                copied = position(&reader);
            }
            _ => {}
        }
    }
    if copied == 0 {
        return Ok(document);
    }
    plain.extend_from_slice(document.get(copied..).unwrap_or_default());
    Ok(plain.into())
}

fn position(reader: &Reader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

fn malformed() -> S3Error {
    refuse(
        S3ErrorCode::MalformedXML,
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
}

#[cfg(test)]
mod tests;
