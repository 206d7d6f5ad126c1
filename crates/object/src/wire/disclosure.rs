//! What a caller is told beside the content: that a key is missing, and the tags and owners of
//! objects that a bucket offers to everyone.

use super::Wire;
use crate::call::Call;
use crate::refusal::refuse;
use s3s::{S3ErrorCode, S3Result};
use stele_archive::{Actor, ArchiveError, Role};

/// The error of a read, as the caller may know it. As on AWS, a caller that may not list a bucket
/// is not told which keys are missing there: it would learn the names of others by trying.
///
/// The archive refused nothing, so the audit log has no record.
pub fn hidden(wire: &Wire, call: &Call, error: ArchiveError) -> ArchiveError {
    let (bucket, key) = match &error {
        ArchiveError::NoSuchKey { bucket, key, .. } => (bucket, key),
        // The one version that a caller can name without having seen it.
        ArchiveError::NoSuchVersion { bucket, key, version } if version == "null" => (bucket, key),
        _ => return error,
    };
    match wire.archive.may_list(&call.caller, bucket, key, call.facts.as_deref()) {
        true => error,
        false => ArchiveError::Denied(format!(
            "Access Denied: `{bucket}/{key}` does not exist, or {} may not read it. Stele tells which to callers that \
             may list the bucket.",
            call.caller.actor
        )),
    }
}

/// The same of a copy: only its source is read. `source` is its bucket and key.
pub fn hidden_source(wire: &Wire, call: &Call, (bucket, key): (&str, &str), error: ArchiveError) -> ArchiveError {
    match &error {
        ArchiveError::NoSuchKey { bucket: of, key: at, .. }
        | ArchiveError::NoSuchVersion { bucket: of, key: at, .. }
            if of == bucket && at == key =>
        {
            hidden(wire, call, error)
        }
        _ => error,
    }
}

/// Refuses what is no content to a caller without a key, unless a policy allows it. A bucket that
/// everyone may read offers its objects, as on AWS, and neither their tags nor their owners.
pub fn check_told(call: &Call, what: &str) -> S3Result<()> {
    // Only what a policy allows gives such a caller a role, for this one request.
    match call.caller.actor == Actor::Anonymous && !call.caller.has(Role::User) {
        false => Ok(()),
        true => Err(refuse(
            S3ErrorCode::AccessDenied,
            format!(
                "Access Denied: a request for {what} must be signed, or be allowed to everyone by the bucket's policy."
            ),
        )),
    }
}
