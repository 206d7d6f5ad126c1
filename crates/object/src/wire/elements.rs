//! The elements of a request's document by path: for elements that the wire crate does not read, and to refuse those
//! that it ignores.

use crate::refusal::refuse;
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// An element at its end: its local names from the root on, separated by `/`, and its direct text.
pub struct Element {
    pub path: String,
    pub text: String,
}

/// Every element of a document, in the order of their ends.
pub fn elements(document: &[u8]) -> S3Result<Vec<Element>> {
    let mut reader = Reader::from_reader(document);
    let (mut open, mut ended): (Vec<Element>, Vec<Element>) = (Vec::new(), Vec::new());
    let below = |open: &[Element], name: &[u8]| {
        let name = String::from_utf8_lossy(name);
        open.last().map_or_else(|| name.to_string(), |outer| format!("{}/{name}", outer.path))
    };
    loop {
        let event = reader.read_event().map_err(|_| malformed())?;
        match event {
            Event::Eof => return Ok(ended),
            Event::Start(start) => {
                let path = below(&open, start.local_name().as_ref());
                open.push(Element { path, text: String::new() });
            }
            Event::Empty(empty) => {
                let path = below(&open, empty.local_name().as_ref());
                ended.push(Element { path, text: String::new() });
            }
            Event::End(_) => ended.extend(open.pop()),
            Event::Text(text) => {
                if let Some(inner) = open.last_mut() {
                    inner.text.push_str(&text.decode().map_err(|_| malformed())?);
                }
            }
            Event::GeneralRef(reference) => {
                let name = reference.decode().map_err(|_| malformed())?;
                let text = match reference.resolve_char_ref().map_err(|_| malformed())? {
                    Some(character) => character.to_string(),
                    None => resolve_predefined_entity(&name).ok_or_else(malformed)?.to_owned(),
                };
                if let Some(inner) = open.last_mut() {
                    inner.text.push_str(&text);
                }
            }
            _ => {}
        }
    }
}

/// Refuses a document with an element outside `known`.
pub fn only(elements: &[Element], known: &[&str]) -> S3Result<()> {
    match elements.iter().find(|element| !known.contains(&element.path.as_str())) {
        None => Ok(()),
        Some(element) => Err(refuse(
            S3ErrorCode::NotImplemented,
            format!(
                "An element you provided implies functionality that is not implemented: {}",
                element.path.rsplit('/').next().unwrap_or_default()
            ),
        )),
    }
}

fn malformed() -> S3Error {
    refuse(
        S3ErrorCode::MalformedXML,
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
}
