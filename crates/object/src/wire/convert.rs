//! Converts values of the protocol into values of the archive, and back.

use crate::call::Call;
use crate::refusal::{invalid_redirect, refuse, too_many_tags, translated};
use hyper::HeaderMap;
use s3s::dto::{ETag, Owner, ServerSideEncryption, Tag, Timestamp as WireTime};
use s3s::{S3ErrorCode, S3Result};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};
use stele_archive::{CustomerKey, Metadata, ObjectInfo, Retention, RetentionMode, Tags, Timestamp, VersionId};

/// Largest size of a client's own metadata, names and values together: the limit of AWS.
const USER_METADATA_MAX: usize = 2 * 1024;

/// System headers that are stored with an object and returned unchanged.
const STORED_HEADERS: [&str; 8] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
];

/// A time of the archive for the protocol. Dates end with the year 9999. A later one, stored before
/// such dates were refused, becomes the last date, since the wire crate's type would panic.
pub fn wire_time(instant: Timestamp) -> WireTime {
    WireTime::from(UNIX_EPOCH + Duration::from_millis(instant.min(Timestamp::LATEST).0))
}

/// A time of the protocol; times before 1970 become 1970.
pub fn archive_time(instant: WireTime) -> Timestamp {
    let instant = time::OffsetDateTime::from(instant);
    Timestamp((instant.unix_timestamp_nanos() / 1_000_000).try_into().unwrap_or(0))
}

/// The end of a retention. A date between two milliseconds, as of a leap second, is the later one.
pub fn end_of_retention(instant: WireTime) -> Timestamp {
    let nanoseconds = time::OffsetDateTime::from(instant).unix_timestamp_nanos();
    Timestamp((nanoseconds.max(0) as u128).div_ceil(1_000_000).try_into().unwrap_or(0))
}

/// An entity tag of the archive, for the protocol.
pub fn wire_etag(info: &stele_archive::ETag) -> ETag {
    ETag::Strong(info.to_string())
}

/// The version that a request names; an empty text names none.
pub fn version_of(text: Option<&str>) -> S3Result<Option<VersionId>> {
    match text {
        None => Ok(None),
        Some("") => Err(refuse(S3ErrorCode::InvalidArgument, "Version id cannot be the empty string")),
        Some(text) => VersionId::parse(text)
            .map(Some)
            .map_err(|_| refuse(S3ErrorCode::InvalidArgument, "Invalid version id specified")),
    }
}

/// The version to name in an answer, if the bucket is versioned.
pub fn named_version(info: &ObjectInfo) -> Option<String> {
    info.versioned.then(|| info.version.to_string())
}

/// The version to name in the answer to a write: `None` for the null version, which a suspended
/// bucket writes.
pub fn written_version(info: &ObjectInfo) -> Option<String> {
    named_version(info).filter(|_| info.version != VersionId::Null)
}

/// An owner, for the protocol.
pub fn wire_owner(owner: &str) -> Owner {
    let id = owner.strip_prefix("key ").unwrap_or(owner).to_owned();
    Owner { display_name: Some(id.clone()), id: Some(id) }
}

/// The metadata in the headers of a write.
pub fn metadata_of(headers: &HeaderMap, user: Option<s3s::dto::Metadata>) -> S3Result<Metadata> {
    let mut metadata = Metadata::default();
    for name in STORED_HEADERS {
        if let Some(value) = headers.get(name) {
            let text = value
                .to_str()
                .map_err(|_| refuse(S3ErrorCode::InvalidArgument, format!("The header {name} is not ASCII.")))?;
            if !text.is_empty() {
                metadata.headers.insert(name.to_owned(), text.to_owned());
            }
        }
    }
    if let Some(class) = metadata.headers.get("x-amz-storage-class")
        && class != "STANDARD"
    {
        return Err(refuse(
            S3ErrorCode::InvalidStorageClass,
            "The storage class you specified is not valid: this store has only STANDARD.",
        ));
    }
    if let Some(location) = metadata.headers.get("x-amz-website-redirect-location")
        && !["/", "http://", "https://"].iter().any(|start| location.starts_with(start))
    {
        return Err(invalid_redirect());
    }
    metadata.user = user.unwrap_or_default().into_iter().collect();
    let size: usize = metadata.user.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > USER_METADATA_MAX {
        return Err(refuse(
            S3ErrorCode::MetadataTooLarge,
            format!("Your metadata headers come to {size} bytes, more than {USER_METADATA_MAX}."),
        ));
    }
    Ok(metadata)
}

/// A stored header's value.
pub fn stored(info: &ObjectInfo, name: &str) -> Option<String> {
    info.metadata.headers.get(name).cloned()
}

/// The stored `Expires`, if it is a date.
pub fn stored_expires(info: &ObjectInfo) -> Option<WireTime> {
    let text = info.metadata.headers.get("expires")?;
    httpdate::parse_http_date(text).ok().map(WireTime::from)
}

/// The client's own metadata, for the protocol.
pub fn wire_metadata(info: &ObjectInfo) -> Option<s3s::dto::Metadata> {
    let user = &info.metadata.user;
    (!user.is_empty()).then(|| user.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Parses `x-amz-tagging`: pairs as in a query.
pub fn tags_of_header(text: Option<&str>) -> S3Result<Tags> {
    let Some(text) = text else {
        return Ok(Tags::new());
    };
    let invalid = || {
        refuse(
            S3ErrorCode::InvalidArgument,
            "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.",
        )
    };
    let query = crate::query::Query::parse(Some(text)).ok_or_else(invalid)?;
    let mut tags = Tags::new();
    for (key, value) in query.iter() {
        if tags.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(invalid());
        }
    }
    check_tags(&tags, OBJECT_TAGS_MAX)?;
    Ok(tags)
}

/// Largest number of tags of an object.
pub const OBJECT_TAGS_MAX: usize = 10;
/// Largest number of tags of a bucket.
pub const BUCKET_TAGS_MAX: usize = 50;

/// A tag document.
pub fn tags_of_set(set: Vec<Tag>, limit: usize) -> S3Result<Tags> {
    let mut tags = Tags::new();
    for tag in set {
        let key = tag.key.unwrap_or_default();
        if tags.insert(key, tag.value.unwrap_or_default()).is_some() {
            return Err(refuse(S3ErrorCode::InvalidTag, "Cannot provide multiple Tags with the same key"));
        }
    }
    check_tags(&tags, limit)?;
    Ok(tags)
}

fn check_tags(tags: &Tags, limit: usize) -> S3Result<()> {
    if tags.len() > limit {
        let of = if limit == BUCKET_TAGS_MAX { "Bucket" } else { "Object" };
        return Err(too_many_tags(of, limit));
    }
    for (key, value) in tags {
        if key.is_empty() || key.chars().count() > 128 {
            return Err(refuse(
                S3ErrorCode::InvalidTag,
                "The TagKey you have provided is invalid: it has 1 to 128 characters",
            ));
        }
        if value.chars().count() > 256 {
            return Err(refuse(
                S3ErrorCode::InvalidTag,
                "The TagValue you have provided is invalid: it has at most 256 characters",
            ));
        }
        if key.starts_with("aws:") {
            return Err(refuse(
                S3ErrorCode::InvalidTag,
                "User-defined tag keys can't start with \"aws:\". This prefix is reserved for system tags. Remove \"aws:\" from your tag keys and try again.",
            ));
        }
    }
    Ok(())
}

/// Tags, for the protocol.
pub fn tag_set(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    let pair = |(key, value): (&String, &String)| Tag { key: Some(key.clone()), value: Some(value.clone()) };
    tags.iter().map(pair).collect()
}

/// The retention in the headers of a write.
pub fn retention_of(mode: Option<&str>, until: Option<WireTime>) -> S3Result<Option<Retention>> {
    match (mode, until) {
        (None, None) => Ok(None),
        (Some(mode), Some(until)) => Ok(Some(Retention { mode: mode_of(mode)?, until: end_of_retention(until) })),
        _ => Err(refuse(
            S3ErrorCode::InvalidArgument,
            "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied",
        )),
    }
}

/// A retention mode by name.
pub fn mode_of(text: &str) -> S3Result<RetentionMode> {
    match text {
        "GOVERNANCE" => Ok(RetentionMode::Governance),
        "COMPLIANCE" => Ok(RetentionMode::Compliance),
        _ => Err(refuse(S3ErrorCode::InvalidArgument, "Unknown wormMode directive.")),
    }
}

/// A legal hold by name.
pub fn hold_of(text: Option<&str>) -> S3Result<bool> {
    match text {
        None | Some("OFF") => Ok(false),
        Some("ON") => Ok(true),
        Some(_) => Err(refuse(S3ErrorCode::InvalidArgument, "Legal Hold must be either of 'ON' or 'OFF'")),
    }
}

/// The customer's key in a request, if any. An unencrypted connection is refused, since it would
/// expose the key.
pub fn customer_key_of(
    call: &Call,
    algorithm: Option<&str>,
    key: Option<&str>,
    md5: Option<&str>,
) -> S3Result<Option<CustomerKey>> {
    let (algorithm, key, md5) = match (algorithm, key, md5) {
        (None, None, None) => return Ok(None),
        (Some(algorithm), Some(key), Some(md5)) => (algorithm, key, md5),
        _ => {
            return Err(refuse(
                S3ErrorCode::InvalidArgument,
                "Requests specifying Server Side Encryption with Customer provided keys must provide the algorithm, the secret key and the MD5 of the key.",
            ));
        }
    };
    if !call.private {
        return Err(refuse(
            S3ErrorCode::InvalidRequest,
            "Requests specifying Server Side Encryption with Customer provided keys must be made over a secure connection.",
        ));
    }
    if algorithm != "AES256" {
        return Err(refuse(
            S3ErrorCode::InvalidEncryptionAlgorithmError,
            "The encryption request you specified is not valid. The valid value is AES256.",
        ));
    }
    CustomerKey::parse(algorithm, key, md5).map(Some).map_err(translated)
}

/// Refuses encryption that this store does not offer. Its own is always on, so a request for it
/// changes nothing.
pub fn check_encryption(asked: Option<&ServerSideEncryption>) -> S3Result<()> {
    match asked.map(ServerSideEncryption::as_str) {
        None | Some("AES256") => Ok(()),
        Some("aws:kms" | "aws:kms:dsse") => Err(refuse(
            S3ErrorCode::NotImplemented,
            "Server side encryption with KMS keys is not implemented; AES256 is.",
        )),
        Some(_) => Err(refuse(
            S3ErrorCode::InvalidEncryptionAlgorithmError,
            "The encryption request you specified is not valid. The valid value is AES256.",
        )),
    }
}

/// The encryption fields of an answer: the store's, or the customer's algorithm and key digest.
pub fn encryption_said(
    customer_key_md5: Option<&String>,
) -> (Option<ServerSideEncryption>, Option<String>, Option<String>) {
    match customer_key_md5 {
        None => (Some(ServerSideEncryption::from_static(ServerSideEncryption::AES256)), None, None),
        Some(md5) => (None, Some("AES256".to_owned()), Some(md5.clone())),
    }
}

/// Refuses access control lists other than the two that mean "the bucket's owner".
pub fn check_acl(asked: Option<&str>) -> S3Result<()> {
    match asked {
        None | Some("private" | "bucket-owner-full-control") => Ok(()),
        Some(_) => Err(refuse(S3ErrorCode::AccessControlListNotSupported, "The bucket does not allow ACLs")),
    }
}

/// A count in a request, at most 1000.
pub fn limit_of(asked: Option<i32>, name: &str) -> S3Result<usize> {
    match asked {
        None => Ok(1000),
        Some(count) => usize::try_from(count).map(|count| count.min(1000)).map_err(|_| {
            refuse(S3ErrorCode::InvalidArgument, format!("Argument {name} must be an integer between 0 and 2147483647"))
        }),
    }
}

#[cfg(test)]
mod tests;
