//! The elements of a request's document by path: for elements that the wire crate does not read,
//! and to refuse those that it ignores.

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

/// Elements within each other. No document of S3 has more than eight.
const DEPTH_MAX: usize = 16;
/// Bytes of a path. The longest of S3 has about 100.
const PATH_MAX: usize = 512;
/// Elements of a document. A completion of 10,000 parts, each with all of its checksums, has fewer.
const ELEMENTS_MAX: usize = 100_000;

/// The elements that are open: the path of the innermost, and of each the length of the path around
/// it and the text.
#[derive(Default)]
struct Open {
    path: String,
    texts: Vec<(usize, String)>,
}

impl Open {
    /// Begins an element, unless the document goes deeper or has longer names than one of S3 does.
    /// Each element keeps its path, so without a bound a small document would take memory in the
    /// square of its depth.
    fn begin(&mut self, name: &[u8]) -> S3Result<()> {
        let around = self.path.len();
        if self.texts.len() == DEPTH_MAX || around + 1 + name.len() > PATH_MAX {
            return Err(malformed());
        }
        if around > 0 {
            self.path.push('/');
        }
        self.path.push_str(&String::from_utf8_lossy(name));
        self.texts.push((around, String::new()));
        Ok(())
    }

    fn end(&mut self) -> Option<Element> {
        let (around, text) = self.texts.pop()?;
        let path = self.path.clone();
        self.path.truncate(around);
        Some(Element { path, text })
    }

    fn add(&mut self, text: &str) {
        if let Some((_, inner)) = self.texts.last_mut() {
            inner.push_str(text);
        }
    }
}

/// Every element of a document, in the order of their ends.
pub fn elements(document: &[u8]) -> S3Result<Vec<Element>> {
    let mut reader = Reader::from_reader(document);
    let (mut open, mut ended) = (Open::default(), Vec::new());
    loop {
        let event = reader.read_event().map_err(|_| malformed())?;
        match event {
            Event::Eof => return Ok(ended),
            Event::Start(start) => open.begin(start.local_name().as_ref())?,
            Event::Empty(empty) => {
                open.begin(empty.local_name().as_ref())?;
                ended.extend(open.end());
            }
            Event::End(_) => ended.extend(open.end()),
            Event::Text(text) => open.add(&text.decode().map_err(|_| malformed())?),
            Event::GeneralRef(reference) => {
                let name = reference.decode().map_err(|_| malformed())?;
                match reference.resolve_char_ref().map_err(|_| malformed())? {
                    Some(character) => open.add(character.encode_utf8(&mut [0; 4])),
                    None => open.add(resolve_predefined_entity(&name).ok_or_else(malformed)?),
                }
            }
            _ => {}
        }
        if ended.len() > ELEMENTS_MAX {
            return Err(malformed());
        }
    }
}

/// The elements of a document without namespace prefixes, which the wire crate would pass over.
pub fn plain_elements(document: &[u8]) -> S3Result<Vec<Element>> {
    let mut names = document.split(|byte| *byte == b'<').skip(1);
    let is_prefixed = |name: &[u8]| {
        let end = name.iter().position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'/'));
        // An end tag begins with a slash; its start tag is looked at.
        name.get(..end.unwrap_or(name.len())).unwrap_or_default().contains(&b':')
    };
    if names.any(is_prefixed) {
        return Err(malformed());
    }
    elements(document)
}

/// Whether a text is a whole number to its end. The wire crate reads as far as the digits go.
pub fn is_whole_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_is_deeper_or_has_longer_names_than_any_of_s3_is_refused() {
        let deep = |depth: usize| "<a>".repeat(depth);
        assert!(elements(deep(DEPTH_MAX).as_bytes()).is_ok());
        assert!(elements(deep(DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(elements(format!("<{}/>", "a".repeat(PATH_MAX)).as_bytes()).is_err());
        let wide = |count: usize| format!("<a>{}</a>", "<b/>".repeat(count));
        assert_eq!(elements(wide(ELEMENTS_MAX - 1).as_bytes()).map_or(0, |elements| elements.len()), ELEMENTS_MAX);
        assert!(elements(wide(ELEMENTS_MAX).as_bytes()).is_err());
    }

    #[test]
    fn an_element_that_the_wire_crate_would_pass_over_is_refused() {
        for (document, plain) in [
            ("<a xmlns:x=\"y\"><b/></a>", true),
            ("<a xmlns:x=\"y\"><x:b></x:b></a>", false),
            ("<a xmlns:x=\"y\"><x:b/></a>", false),
            ("<x:a xmlns:x=\"y\"/>", false),
        ] {
            assert_eq!(plain_elements(document.as_bytes()).is_ok(), plain, "{document}");
        }
    }

    #[test]
    fn an_element_has_its_path_and_its_own_text() {
        let document = b"<Tagging><TagSet><Tag><Key>a&amp;b&#33;</Key><Value/></Tag></TagSet></Tagging>";
        let found = elements(document).unwrap();
        let found: Vec<(&str, &str)> = found.iter().map(|at| (at.path.as_str(), at.text.as_str())).collect();
        let expected = [
            ("Tagging/TagSet/Tag/Key", "a&b!"),
            ("Tagging/TagSet/Tag/Value", ""),
            ("Tagging/TagSet/Tag", ""),
            ("Tagging/TagSet", ""),
            ("Tagging", ""),
        ];
        assert_eq!(found, expected);
    }
}
