//! Headers in the query of a presigned URL, where some SDKs put them: the signature covers them
//! there as well.

use crate::query::Query;
use crate::wire::is_of_nothing;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

/// Query parameters of the signature itself.
pub const QUERY_AUTHENTICATION: [&str; 8] = [
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
];

/// Takes the headers of the query. `length` is that of the body.
///
/// The SDK for JavaScript signs each URL of an upload with the checksum of no bytes, since it has
/// no body then. Such a checksum says nothing of a body that has bytes, and AWS ignores it. Every
/// other checksum is verified.
pub fn hoist(headers: &mut HeaderMap, query: &Query, length: u64) {
    let says_nothing = |name: &str, value: &str| length > 0 && is_of_nothing(name, value);
    let unknown_body = query.iter().any(|(name, value)| says_nothing(name, value));
    for (name, value) in query.iter() {
        let lower = name.to_ascii_lowercase();
        if !lower.starts_with("x-amz-") || QUERY_AUTHENTICATION.contains(&lower.as_str()) {
            continue;
        }
        if unknown_body && (says_nothing(name, value) || lower == "x-amz-sdk-checksum-algorithm") {
            continue;
        }
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(lower.as_bytes()), HeaderValue::from_str(value)) else {
            continue;
        };
        headers.entry(name).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hoisted(query: &str, length: u64) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        hoist(&mut headers, &Query::parse(Some(query)).unwrap_or_default(), length);
        let text = |value: &HeaderValue| value.to_str().unwrap_or("").to_owned();
        let mut all: Vec<_> = headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
        all.sort();
        all
    }

    #[test]
    fn a_checksum_of_nothing_says_nothing_of_a_body() {
        for (algorithm, nothing, other) in [
            ("crc32", "AAAAAA%3D%3D", "NhCmhg%3D%3D"),
            ("crc32c", "AAAAAA==", "mnG7TA=="),
            ("crc64nvme", "AAAAAAAAAAA%3D", "M3eFcAZSQlc%3D"),
            ("sha1", "2jmj7l5rSw0yVb%2FvlWAYkK%2FYBwk%3D", "qvTGHdzF6KLavt4PO0gs2a6pQ00%3D"),
            (
                "sha256",
                "47DEQpj8HBSa%2B%2FTImW%2B5JCeuQeRkm5NMpJWZG3hSuFU%3D",
                "LPJNul%2Bwow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ%3D",
            ),
        ] {
            let named = |value: &str| {
                format!(
                    "X-Amz-Date=x&x-amz-Checksum-{algorithm}={value}&x-amz-meta-a=b&x-amz-sdk-checksum-algorithm={algorithm}&x-id=PutObject"
                )
            };
            let without = vec![("x-amz-meta-a".to_owned(), "b".to_owned())];
            assert_eq!(hoisted(&named(nothing), 5), without, "{algorithm}");
            assert_eq!(hoisted(&named(nothing), 0).len(), 3, "an empty body may have the checksum of nothing");
            assert_eq!(hoisted(&named(other), 5).len(), 3, "another checksum of {algorithm} is verified");
        }
        assert_eq!(hoisted("x-amz-sdk-checksum-algorithm=CRC32", 5).len(), 1);
    }
}
