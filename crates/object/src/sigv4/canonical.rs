//! The canonical request: the byte string that both sides hash.

use crate::query::Query;
use hyper::HeaderMap;

/// Appends `text` percent-encoded by the rules of SigV4; `slash` keeps `/` unencoded.
pub fn encode(out: &mut Vec<u8>, text: &[u8], slash: bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte),
            b'/' if slash => out.push(byte),
            _ => out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

/// The parts of a request that its signature covers.
pub struct Parts<'r> {
    /// The HTTP method.
    pub method: &'r str,
    /// The path, percent-decoded.
    pub path: &'r str,
    /// The path as sent.
    pub raw_path: &'r str,
    /// The query, decoded.
    pub query: &'r Query,
    /// The headers as received.
    pub headers: &'r HeaderMap,
}

/// The canonical request, or `None` if a header listed as signed is missing.
///
/// `path` is written as given. Some clients sign a path with unencoded reserved characters: the
/// caller tries the encoded form first, then the raw one.
pub fn request(
    parts: &Parts<'_>,
    encoded_path: &[u8],
    signed_headers: &str,
    payload: &str,
    presigned: bool,
) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(parts.method.as_bytes());
    out.push(b'\n');
    out.extend_from_slice(encoded_path);
    out.push(b'\n');
    canonical_query(&mut out, parts.query, presigned);
    out.push(b'\n');
    for name in signed_headers.split(';') {
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        let mut values = parts.headers.get_all(name).iter();
        let first = values.next()?;
        trimmed(&mut out, first.as_bytes());
        for value in values {
            out.push(b',');
            trimmed(&mut out, value.as_bytes());
        }
        out.push(b'\n');
    }
    out.push(b'\n');
    out.extend_from_slice(signed_headers.as_bytes());
    out.push(b'\n');
    out.extend_from_slice(payload.as_bytes());
    Some(out)
}

fn canonical_query(out: &mut Vec<u8>, query: &Query, presigned: bool) {
    if query.is_empty() {
        return;
    }
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = query
        .iter()
        .filter(|(name, _)| !(presigned && *name == "X-Amz-Signature"))
        .map(|(name, value)| {
            let (mut left, mut right) = (Vec::new(), Vec::new());
            encode(&mut left, name.as_bytes(), false);
            encode(&mut right, value.as_bytes(), false);
            (left, right)
        })
        .collect();
    pairs.sort_unstable();
    for (index, (name, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value);
    }
}

// Removes leading and trailing blanks, and joins runs of blanks inside into one.
fn trimmed(out: &mut Vec<u8>, value: &[u8]) {
    let value = value.trim_ascii();
    if !value.windows(2).any(|pair| pair == b"  ") {
        out.extend_from_slice(value);
        return;
    }
    let mut blank = false;
    for &byte in value {
        if byte != b' ' || !blank {
            out.push(byte);
        }
        blank = byte == b' ';
    }
}
