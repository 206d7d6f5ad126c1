//! Refusals: an S3 error code, a message for people, and the HTTP status that goes with it.
//!
//! Codes and statuses are those that AWS documents, since clients decide by the code whether to
//! retry. All refusals are `S3Error` values, so that the same code writes those found before the
//! wire layer and those found behind it.

use hyper::header::{ALLOW, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, LAST_MODIFIED};
use hyper::{HeaderMap, StatusCode};
use s3s::{S3Error, S3ErrorCode};
use std::borrow::Cow;
use stele_archive::{ArchiveError, Timestamp, VersionId};

/// A refusal with a code that the wire crate knows, and the status that AWS documents for it.
pub fn refuse(code: S3ErrorCode, message: impl Into<Cow<'static, str>>) -> S3Error {
    S3Error::with_message(code, message)
}

fn custom(code: &'static str, status: StatusCode, message: impl Into<Cow<'static, str>>) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message);
    error.set_status_code(status);
    error
}

/// A bucket has no configuration with the id asked for.
pub fn no_such_configuration() -> S3Error {
    custom("NoSuchConfiguration", StatusCode::NOT_FOUND, "The specified configuration does not exist.")
}

/// The payload does not have the signed SHA-256.
pub fn payload_hash_mismatch() -> S3Error {
    custom(
        "XAmzContentSHA256Mismatch",
        StatusCode::BAD_REQUEST,
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
    )
}

/// An aws-chunked trailer that cannot be parsed, or that lacks an entry announced by
/// `x-amz-trailer`.
pub fn malformed_trailer(message: impl Into<Cow<'static, str>>) -> S3Error {
    custom("MalformedTrailerError", StatusCode::BAD_REQUEST, message)
}

/// The pool is full. AWS has no such code; 507 is the HTTP status for it, and no SDK retries it.
pub fn storage_full(message: impl Into<Cow<'static, str>>) -> S3Error {
    custom("InsufficientStorage", StatusCode::INSUFFICIENT_STORAGE, message)
}

/// A request for a part number that the object does not have.
pub fn no_such_part() -> S3Error {
    custom("InvalidPartNumber", StatusCode::RANGE_NOT_SATISFIABLE, "The requested partnumber is not satisfiable")
}

/// A bucket's block on public access, which this store does not have.
pub fn no_public_access_block() -> S3Error {
    custom(
        "NoSuchPublicAccessBlockConfiguration",
        StatusCode::NOT_FOUND,
        "The public access block configuration was not found",
    )
}

/// A redirect that leads neither to an object nor to a web address.
pub fn invalid_redirect() -> S3Error {
    custom(
        "InvalidRedirectLocation",
        StatusCode::BAD_REQUEST,
        "The website redirect location must have a prefix of 'http://' or 'https://' or '/'.",
    )
}

/// More tags than an object or bucket may have. `of`: `Object` or `Bucket`.
pub fn too_many_tags(of: &str, limit: usize) -> S3Error {
    let message = format!("{of} tags cannot be greater than {limit}");
    custom("BadRequest", StatusCode::BAD_REQUEST, message)
}

/// The bucket's quota is reached; a retry helps only after a deletion.
pub fn quota_exceeded(message: impl Into<Cow<'static, str>>) -> S3Error {
    custom("QuotaExceeded", StatusCode::FORBIDDEN, message)
}

/// The S3 error for a refusal of the archive.
pub fn translated(error: ArchiveError) -> S3Error {
    use S3ErrorCode as Code;
    let message = error.to_string();
    let code = match error {
        ArchiveError::NoSuchBucket(_) => Code::NoSuchBucket,
        ArchiveError::NoSuchKey { marker, .. } => return no_such_key(message, marker),
        ArchiveError::NoSuchVersion { .. } => Code::NoSuchVersion,
        ArchiveError::IsDeleteMarker { version, modified } => {
            return is_delete_marker(message, &version.to_string(), modified);
        }
        ArchiveError::NoSuchUpload(_) => Code::NoSuchUpload,
        ArchiveError::NoSuchAccessKey(_) => Code::InvalidAccessKeyId,
        // The answer by which SDKs know that credentials have ended.
        ArchiveError::InvalidToken(_) => Code::InvalidToken,
        ArchiveError::ExpiredAccessKey(_) => Code::ExpiredToken,
        ArchiveError::NoSuchConfiguration { kind, .. } => match kind {
            "ObjectLockConfiguration" => Code::ObjectLockConfigurationNotFoundError,
            "TagSet" => Code::NoSuchTagSet,
            _ => Code::NoSuchObjectLockConfiguration,
        },
        ArchiveError::BucketExists { own: true, .. } => Code::BucketAlreadyOwnedByYou,
        ArchiveError::BucketExists { own: false, .. } => Code::BucketAlreadyExists,
        ArchiveError::BucketNotEmpty(_) => Code::BucketNotEmpty,
        ArchiveError::InvalidBucketName(_) => Code::InvalidBucketName,
        ArchiveError::InvalidKey(_) => Code::KeyTooLongError,
        ArchiveError::InvalidArgument(_) => Code::InvalidArgument,
        // A request that names a class or matter which is not there: AWS has no code for that.
        ArchiveError::InvalidRequest(_) | ArchiveError::NoSuchThing(_) => Code::InvalidRequest,
        ArchiveError::InvalidState(_) | ArchiveError::ExistsAlready(_) | ArchiveError::Weaker(_) => {
            Code::InvalidBucketState
        }
        ArchiveError::InvalidRange { size } => {
            return with_headers(Code::InvalidRange, message, &[(CONTENT_RANGE, format!("bytes */{size}"))]);
        }
        ArchiveError::PreconditionFailed(_) => Code::PreconditionFailed,
        ArchiveError::NotModified { etag, modified } => {
            let etag = format!("\"{}\"", etag.trim_matches('"'));
            let headers = [(ETAG, etag), (LAST_MODIFIED, http_date(modified))];
            return with_headers(Code::NotModified, message, &headers);
        }
        ArchiveError::Conflict(_) => Code::OperationAborted,
        ArchiveError::Denied(_) | ArchiveError::Retained { .. } => Code::AccessDenied,
        ArchiveError::BadDigest { .. } => Code::BadDigest,
        ArchiveError::IncompleteBody { .. } => Code::IncompleteBody,
        ArchiveError::TooLarge { .. } => Code::EntityTooLarge,
        ArchiveError::PartTooSmall { .. } => Code::EntityTooSmall,
        ArchiveError::InvalidPart { .. } => Code::InvalidPart,
        ArchiveError::InvalidPartOrder => Code::InvalidPartOrder,
        ArchiveError::CustomerKey(_) => Code::InvalidRequest,
        ArchiveError::NoSpace(_) => return storage_full(message),
        ArchiveError::QuotaExceeded { .. } => return quota_exceeded(message),
        ArchiveError::Busy(_) => Code::SlowDown,
        ArchiveError::Damaged { .. } => {
            tracing::error!(%message, "a request met damage that redundancy could not repair");
            Code::InternalError
        }
        ArchiveError::KeyNotDestroyed(_) => Code::InternalError,
        ArchiveError::Newer(_)
        | ArchiveError::ReadOnly(_)
        | ArchiveError::Unpaired(_)
        | ArchiveError::WrongKey(_)
        | ArchiveError::Stopped(_) => Code::ServiceUnavailable,
    };
    refuse(code, message)
}

/// The code and message of a refusal, for answers that list one for each key.
pub fn spelled(error: &S3Error) -> (String, String) {
    (error.code().as_str().to_owned(), error.message().unwrap_or("").to_owned())
}

fn no_such_key(message: String, marker: Option<VersionId>) -> S3Error {
    match marker {
        None => refuse(S3ErrorCode::NoSuchKey, message),
        Some(version) => with_headers(
            S3ErrorCode::NoSuchKey,
            message,
            &[
                (HeaderName::from_static("x-amz-delete-marker"), "true".into()),
                (HeaderName::from_static("x-amz-version-id"), version.to_string()),
            ],
        ),
    }
}

fn is_delete_marker(message: String, version: &str, modified: Timestamp) -> S3Error {
    with_headers(
        S3ErrorCode::MethodNotAllowed,
        message,
        &[
            (HeaderName::from_static("x-amz-delete-marker"), "true".into()),
            (HeaderName::from_static("x-amz-version-id"), version.into()),
            (ALLOW, "DELETE".into()),
            (LAST_MODIFIED, http_date(modified)),
        ],
    )
}

fn with_headers(code: S3ErrorCode, message: String, headers: &[(HeaderName, String)]) -> S3Error {
    let mut error = refuse(code, message);
    // Setting headers replaces those of the error document, so its content type is among them.
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            map.insert(name.clone(), value);
        }
    }
    error.set_headers(map);
    error
}

pub fn http_date(instant: Timestamp) -> String {
    // The formatter would panic beyond the year 9999.
    let instant = std::time::UNIX_EPOCH + std::time::Duration::from_secs(instant.min(Timestamp::LATEST).seconds());
    httpdate::fmt_http_date(instant)
}
