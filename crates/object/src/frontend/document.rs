//! Prepares a document for the wire crate: well-formed, and without CDATA sections.
//!
//! The wire crate logs the errors of its parser, and the parser quotes the document. A sender could
//! thus write to the server's log as fast as it sends. The wire crate also leaves out CDATA
//! sections, so that a key within one becomes another key. This module prevents both: it refuses
//! malformed documents with its own message, and turns CDATA into text.

use crate::refusal::refuse;
use bytes::Bytes;
use quick_xml::Reader;
use quick_xml::events::Event;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// The document with its CDATA sections as text; a malformed document is refused.
pub fn plain(document: Bytes) -> S3Result<Bytes> {
    // Text without markup is no XML, and the operation reports that; the parser has nothing to
    // quote from it.
    if !document.contains(&b'<') {
        return Ok(document);
    }
    std::str::from_utf8(&document).map_err(|_| malformed())?;
    let mut reader = Reader::from_reader(document.as_ref());
    // `copied` is the part of the document that `plain` has; both stay empty as long as nothing
    // changes.
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
