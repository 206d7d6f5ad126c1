//! Prepares a document for the wire crate: one well-formed element, without CDATA sections, and
//! without references that the wire crate cannot read.
//!
//! The wire crate logs the errors of its parser, and the parser quotes the document. A sender could
//! thus write to the server's log as fast as it sends. The wire crate also leaves out CDATA
//! sections, so that a key within one becomes another key. It passes over text behind the element,
//! and refuses references to control characters and to characters beyond U+FFFF. This module
//! prevents all of these: it refuses malformed documents with its own message, and turns CDATA and
//! such references into text.

use crate::query::Query;
use crate::refusal::refuse;
use bytes::Bytes;
use quick_xml::Reader;
use quick_xml::events::Event;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// What some programs write before a document in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whether a document is that of a bucket policy, which is JSON, and which no parser of XML reads.
/// A request with another subresource beside may be routed to that one.
pub fn is_json(query: &Query, document: &[u8]) -> bool {
    let alone = |name: &str| name == "policy" || name.to_ascii_lowercase().starts_with("x-");
    let is_policy = query.has("policy") && query.iter().all(|(name, _)| alone(name));
    is_policy && document.trim_ascii_start().starts_with(b"{")
}

/// The document with its CDATA sections, and with references that the wire crate does not read, as
/// text. A malformed document is refused, and so is one with more than blanks around its element.
pub fn plain(document: Bytes) -> S3Result<Bytes> {
    // Text without markup is no XML, and the operation reports that; the parser has nothing to
    // quote from it.
    if !document.contains(&b'<') {
        return Ok(document);
    }
    // The reader does not count it in its positions.
    let document = match document.starts_with(BYTE_ORDER_MARK) {
        true => document.slice(BYTE_ORDER_MARK.len()..),
        false => document,
    };
    std::str::from_utf8(&document).map_err(|_| malformed())?;
    let mut reader = Reader::from_reader(document.as_ref());
    // `copied` is the part of the document that `plain` has; both stay empty as long as nothing
    // changes.
    let (mut plain, mut copied) = (Vec::new(), 0);
    let (mut depth, mut roots) = (0_usize, 0_usize);
    loop {
        let start = position(&reader);
        let event = reader.read_event().map_err(|_| malformed())?;
        let is_around = depth == 0;
        let text = match event {
            Event::Eof if is_around => break,
            Event::Eof => return Err(malformed()),
            Event::Start(_) => {
                roots += usize::from(is_around);
                depth += 1;
                None
            }
            Event::Empty(_) => {
                roots += usize::from(is_around);
                None
            }
            Event::End(_) => {
                depth = depth.saturating_sub(1);
                None
            }
            Event::Text(text) if is_around && !text.trim_ascii().is_empty() => return Err(malformed()),
            Event::CData(_) | Event::GeneralRef(_) if is_around => return Err(malformed()),
            Event::CData(section) => Some(section.escape().map_err(|_| malformed())?.to_vec()),
            Event::GeneralRef(reference) => unread(&reference).map(|letter| letter.to_string().into_bytes()),
            _ => None,
        };
        if roots > 1 {
            return Err(malformed());
        }
        if let Some(text) = text {
            plain.extend_from_slice(document.get(copied..start).unwrap_or_default());
            plain.extend_from_slice(&text);
            copied = position(&reader);
        }
    }
    if copied == 0 {
        return Ok(document);
    }
    plain.extend_from_slice(document.get(copied..).unwrap_or_default());
    Ok(plain.into())
}

/// The character that a reference stands for, if the wire crate would refuse the reference: a key
/// may have every character, and answers write some of them as references.
fn unread(reference: &[u8]) -> Option<char> {
    let digits = std::str::from_utf8(reference).ok()?.strip_prefix('#')?;
    let number = match digits.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let letter = char::from_u32(number.ok()?)?;
    let is_read = matches!(letter, '\t' | '\n' | '\r' | ' '..='\u{fffd}');
    (!is_read).then_some(letter)
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
