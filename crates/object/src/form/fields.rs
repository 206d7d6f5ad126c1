//! The fields of a form, in front of its file.

use crate::refusal::refuse;
use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use s3s::{S3Error, S3ErrorCode, S3Result};

/// Bytes of everything before the file's content.
pub const FIELDS_MAX: usize = 32 * 1024;
/// The longest boundary that MIME allows.
const BOUNDARY_MAX: usize = 70;
/// Replaced by the file's own name.
const FILENAME: &str = "${filename}";

/// The fields of a form, and where the content of its file begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Fields {
    /// Names in lower case, in the order sent.
    list: Vec<(String, String)>,
    /// The first byte of the file's content.
    pub start: usize,
}

impl Fields {
    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.list.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// The boundary that a form's `Content-Type` names. None: the body is no form.
pub fn boundary_of(headers: &HeaderMap) -> Option<S3Result<String>> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let (name, parameters) = kind.split_once(';').unwrap_or((kind, ""));
    if !name.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    });
    let fits = |boundary: &String| {
        (1..=BOUNDARY_MAX).contains(&boundary.len())
            && boundary.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
    };
    Some(boundary.filter(fits).ok_or_else(|| malformed("its Content-Type names no boundary")))
}

/// The fields before the file, once the whole of them is in `bytes`. None: more bytes are needed.
pub fn read_fields(bytes: &[u8], boundary: &str) -> S3Result<Option<Fields>> {
    let read = parse(bytes, boundary);
    // All of them may arrive in one read that is longer than they may be.
    let beyond = match &read {
        Ok(None) => bytes.len() >= FIELDS_MAX,
        Ok(Some(fields)) => fields.start > FIELDS_MAX,
        Err(_) => false,
    };
    if beyond {
        return Err(refuse(
            S3ErrorCode::MaxPostPreDataLengthExceededError,
            format!("Your POST request fields preceding the upload file were too large: at most {FIELDS_MAX} bytes."),
        ));
    }
    read
}

fn parse(bytes: &[u8], boundary: &str) -> S3Result<Option<Fields>> {
    let first = format!("--{boundary}");
    let next = format!("\r\n--{boundary}");
    let Some(mut rest) = after(bytes, first.as_bytes())? else { return Ok(None) };
    let mut list: Vec<(String, String)> = Vec::new();
    loop {
        // Behind a boundary: the end of its line, or the end of the form.
        match rest {
            [b'-', b'-', ..] => return Err(malformed("it has no file")),
            [b'\r', b'\n', ..] => rest = rest.get(2..).unwrap_or_default(),
            [] | [_] => return Ok(None),
            _ => return Err(malformed("a boundary is not alone on its line")),
        }
        let Some(length) = find(rest, b"\r\n\r\n") else { return Ok(None) };
        let head = std::str::from_utf8(rest.get(..length).unwrap_or_default())
            .map_err(|_| malformed("the head of a field is not UTF-8"))?;
        let part = Part::parse(head)?;
        rest = rest.get(length + 4..).unwrap_or_default();
        if part.name == "file" {
            let file = part.filename.as_deref().unwrap_or_default();
            // A browser of old sent the path.
            let file = file.rsplit(['/', '\\']).next().unwrap_or_default();
            for (_, value) in &mut list {
                if value.contains(FILENAME) {
                    *value = value.replace(FILENAME, file);
                }
            }
            return Ok(Some(Fields { list, start: bytes.len() - rest.len() }));
        }
        let Some(length) = find(rest, next.as_bytes()) else { return Ok(None) };
        let value = std::str::from_utf8(rest.get(..length).unwrap_or_default())
            .map_err(|_| malformed("the value of a field is not UTF-8"))?;
        if list.iter().any(|(name, _)| *name == part.name) {
            return Err(malformed(&format!("the field `{}` is there twice", part.name)));
        }
        list.push((part.name, value.to_owned()));
        rest = rest.get(length + next.len()..).unwrap_or_default();
    }
}

/// What is behind a beginning. None: it may still come.
fn after<'b>(bytes: &'b [u8], beginning: &[u8]) -> S3Result<Option<&'b [u8]>> {
    if let Some(rest) = bytes.strip_prefix(beginning) {
        return Ok(Some(rest));
    }
    match beginning.starts_with(bytes) {
        true => Ok(None),
        false => Err(malformed("it does not begin with its boundary")),
    }
}

struct Part {
    name: String,
    filename: Option<String>,
}

impl Part {
    fn parse(head: &str) -> S3Result<Part> {
        let mut part = Part { name: String::new(), filename: None };
        for line in head.split("\r\n") {
            let Some((name, value)) = line.split_once(':') else {
                return Err(malformed("a line of its head has no colon"));
            };
            if name.eq_ignore_ascii_case("content-disposition") {
                for (name, value) in parameters(value) {
                    match name.as_str() {
                        "name" => part.name = value.to_ascii_lowercase(),
                        "filename" => part.filename = Some(value),
                        _ => {}
                    }
                }
            }
        }
        match part.name.is_empty() {
            true => Err(malformed("a field has no name")),
            false => Ok(part),
        }
    }
}

/// The parameters of a header's value, with quoted texts.
fn parameters(value: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = value.split_once(';').map_or("", |(_, rest)| rest);
    while let Some((name, behind)) = rest.split_once('=') {
        let mut text = String::new();
        let behind = behind.trim_start();
        rest = match behind.strip_prefix('"') {
            Some(quoted) => {
                let mut characters = quoted.chars();
                while let Some(character) = characters.next() {
                    match character {
                        '"' => break,
                        '\\' => text.extend(characters.next()),
                        other => text.push(other),
                    }
                }
                characters.as_str().trim_start().strip_prefix(';').unwrap_or("")
            }
            None => {
                let (plain, behind) = behind.split_once(';').unwrap_or((behind, ""));
                plain.trim().clone_into(&mut text);
                behind
            }
        };
        found.push((name.trim().to_ascii_lowercase(), text));
    }
    found
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn malformed(why: &str) -> S3Error {
    refuse(
        S3ErrorCode::MalformedPOSTRequest,
        format!("The body of your POST request is not well-formed multipart/form-data: {why}."),
    )
}
