//! The valid combinations of methods and subresources.
//!
//! For an invalid combination the wire crate falls back to the plain operation:
//! `DELETE /bucket?versioning` would delete the bucket, and `PUT /bucket/key?uploadId=x` would
//! store an object. Such requests are refused here, before they are routed.

use crate::query::Query;
use crate::refusal::refuse;
use hyper::Method;
use s3s::{S3Error, S3ErrorCode, S3Result};

const KNOWN: [&str; 41] = [
    "accelerate",
    "acl",
    "analytics",
    "append",
    "attributes",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "partNumber",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "session",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Operations of S3 that this store does not have: method, whether on an object, and subresource.
const UNSERVED: [(&str, bool, &str); 7] = [
    ("DELETE", false, "metadataConfiguration"),
    ("GET", false, "metadataConfiguration"),
    ("POST", false, "metadataConfiguration"),
    ("PUT", false, "metadataInventoryTable"),
    ("PUT", false, "metadataJournalTable"),
    ("PUT", true, "encryption"),
    ("PUT", true, "renameObject"),
];

const BUCKET_SETTINGS: [&str; 18] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "lifecycle",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "publicAccessBlock",
    "replication",
    "tagging",
    "website",
];

/// Parameters that are not subresources. Any other parameter without a value is a subresource of a
/// later S3, and changes the meaning of the request.
const PARAMETERS: [&str; 22] = [
    "allow-unordered",
    "bucket-region",
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-buckets",
    "max-keys",
    "max-parts",
    "max-uploads",
    "metadata",
    "part-number-marker",
    "prefix",
    "start-after",
    "upload-id-marker",
    "version-id-marker",
    "versionId",
    "x-id",
    "",
];

/// Subresources that go with another one.
const BESIDE_ANOTHER: [&str; 2] = ["partNumber", "versionId"];

fn is_subresource_of_later(name: &str, value: &str) -> bool {
    let known = KNOWN.contains(&name) || PARAMETERS.contains(&name);
    value.is_empty() && !known && !name.starts_with("response-") && !name.to_ascii_lowercase().starts_with("x-amz-")
}

fn fits(method: &Method, object: bool, name: &str) -> bool {
    let setting = BUCKET_SETTINGS.contains(&name);
    match (method.as_str(), object) {
        ("GET", false) => {
            setting
                || ["location", "metadataTable", "policyStatus", "requestPayment", "session"].contains(&name)
                || ["uploads", "versioning", "versions"].contains(&name)
        }
        ("PUT", false) => setting || ["requestPayment", "versioning"].contains(&name),
        ("DELETE", false) => {
            let kept = ["accelerate", "acl", "logging", "notification", "object-lock"];
            (setting && !kept.contains(&name)) || name == "metadataTable"
        }
        ("POST", false) => ["delete", "metadataTable"].contains(&name),
        ("GET", true) => [
            "acl",
            "attributes",
            "legal-hold",
            "partNumber",
            "retention",
            "tagging",
            "torrent",
            "uploadId",
            "versionId",
        ]
        .contains(&name),
        ("HEAD", true) => ["partNumber", "versionId"].contains(&name),
        ("PUT", true) => {
            ["acl", "legal-hold", "partNumber", "retention", "tagging", "uploadId", "versionId"].contains(&name)
        }
        ("DELETE", true) => ["tagging", "uploadId", "versionId"].contains(&name),
        ("POST", true) => ["restore", "select", "uploadId", "uploads", "versionId"].contains(&name),
        _ => false,
    }
}

/// Refuses a method that is invalid with the request's subresources.
pub fn check(method: &Method, object: bool, query: &Query) -> S3Result<()> {
    for (name, value) in query.iter() {
        if is_subresource_of_later(name, value) {
            return Err(not_implemented(name));
        }
        // The wire crate would answer any other number with the first version's listing.
        if name == "list-type" && !["1", "2"].contains(&value) {
            return Err(refuse(S3ErrorCode::InvalidArgument, "list-type must be 2, or 1 for the first version."));
        }
        if KNOWN.contains(&name) && !fits(method, object, name) {
            return Err(match UNSERVED.contains(&(method.as_str(), object, name)) {
                true => not_implemented(name),
                false => not_allowed(),
            });
        }
    }
    check_number(query)?;
    if method == Method::PUT && object {
        let part = (query.has("partNumber"), query.has("uploadId"));
        if part.0 != part.1 {
            return Err(refuse(
                S3ErrorCode::InvalidArgument,
                "This operation does not accept partNumber without uploadId, nor uploadId without partNumber.",
            ));
        }
        let versioned = ["acl", "legal-hold", "retention", "tagging"];
        if query.has("versionId") && !versioned.iter().any(|name| query.has(name)) {
            return Err(refuse(S3ErrorCode::InvalidArgument, "This operation does not accept a version-id."));
        }
    }
    Ok(())
}

/// Refuses two subresources at once, as AWS does: a request could be judged as one operation and
/// carried out as the other, and its sender would believe in both.
fn check_number(query: &Query) -> S3Result<()> {
    let is_one = |name: &&str| KNOWN.contains(name) && !BESIDE_ANOTHER.contains(name);
    let mut named: Vec<&str> = query.iter().map(|(name, _)| name).filter(is_one).collect();
    named.sort_unstable();
    named.dedup();
    match named.len() {
        0 | 1 => Ok(()),
        _ => Err(refuse(
            S3ErrorCode::InvalidArgument,
            format!("Conflicting query string parameters: {}. A request names one of them.", named.join(", ")),
        )),
    }
}

/// Whether a GET of a bucket lists what is in it.
pub fn lists(query: &Query) -> bool {
    query.iter().all(|(name, _)| ["versions", "uploads", "versionId"].contains(&name) || !KNOWN.contains(&name))
}

/// Refuses a method that S3 does not have on anything.
pub fn check_verb(method: &Method) -> S3Result<()> {
    let known = [Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE];
    if known.contains(method) { Ok(()) } else { Err(not_allowed()) }
}

fn not_implemented(name: &str) -> S3Error {
    refuse(
        S3ErrorCode::NotImplemented,
        format!("A query parameter you provided implies functionality that is not implemented: {name}"),
    )
}

/// The error for a method that is invalid on the resource.
pub fn not_allowed() -> S3Error {
    refuse(S3ErrorCode::MethodNotAllowed, "The specified method is not allowed against this resource.")
}

/// Why no sender without a key is served such a request, whatever a bucket's policy says.
pub fn needs_key(method: &Method, object: bool, query: &Query, streams: bool, length: u64) -> Option<&'static str> {
    let posts = method == Method::POST;
    let puts = method == Method::PUT;
    if object && (posts && query.has("uploads") || puts && query.has("uploadId")) {
        // The completion is a document. So the parts could never become an object, and would only
        // take room.
        return Some(
            "Access Denied: an upload in parts must be signed, since it cannot be completed without a key. \
             Send the object in one request.",
        );
    }
    // No bucket lets anonymous clients act by a document, so their documents are not read.
    ((puts || posts) && !streams && length > 0).then_some("Access Denied: this request must be signed.")
}

/// Whether the body of a request is content of an object or part, which is streamed.
pub fn streams(method: &Method, object: bool, query: &Query, copies: bool) -> bool {
    let documents = ["acl", "legal-hold", "retention", "tagging"];
    method == Method::PUT && object && !copies && !documents.iter().any(|name| query.has(name))
}
