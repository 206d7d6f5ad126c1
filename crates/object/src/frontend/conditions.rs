//! Conditions in the headers of writes. Those that an operation does not take are refused: their
//! sender believes that the write depends on them, and it would be done in any case.
//!
//! The parts of an upload, and its beginning, take `If-Match` and `If-None-Match` without effect:
//! clients send them throughout an upload, and its completion is judged by them.

use crate::query::Query;
use crate::refusal::refuse;
use hyper::header::{CONTENT_RANGE, HeaderName, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use hyper::{HeaderMap, Method};
use s3s::{S3ErrorCode, S3Result};

/// Subresources of an object that no condition goes with.
const UNCONDITIONAL: [&str; 4] = ["acl", "legal-hold", "retention", "tagging"];

/// Refuses a condition that the operation does not carry out. An empty header is none.
pub fn check(method: &Method, object: bool, query: &Query, headers: &HeaderMap) -> S3Result<()> {
    if *method == Method::GET || *method == Method::HEAD {
        return Ok(());
    }
    let content = object && !UNCONDITIONAL.iter().any(|name| query.has(name));
    let deletes = *method == Method::DELETE;
    let takes = |name: &HeaderName| {
        if *name == IF_MATCH {
            content && !(deletes && query.has("uploadId"))
        } else if *name == IF_NONE_MATCH {
            content && !deletes
        } else {
            // Of content, a range is a part, which would be stored as the whole.
            *name == CONTENT_RANGE && deletes
        }
    };
    let is_sent = |name: &HeaderName| headers.get_all(name).iter().any(|value| !value.is_empty());
    let ignored = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, CONTENT_RANGE];
    match ignored.into_iter().find(|name| is_sent(name) && !takes(name)) {
        None => Ok(()),
        Some(name) => Err(refuse(
            S3ErrorCode::NotImplemented,
            format!("A header you provided implies functionality that this operation does not have: {name}"),
        )),
    }
}
