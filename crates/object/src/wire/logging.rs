//! Where the access log of a bucket goes.

use super::{Answer, Wire};
use crate::call::Call;
use crate::refusal::{refuse, translated};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response};
use std::sync::Arc;
use stele_archive::{AccessLog, ArchiveError, BucketChange};

/// GetBucketLogging. Empty where there is none.
pub async fn get(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetBucketLoggingInput>,
) -> Answer<GetBucketLoggingOutput> {
    let log = wire.archive.access_log(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let told = |log: AccessLog| LoggingEnabled {
        target_bucket: log.bucket,
        target_prefix: log.prefix,
        target_grants: None,
        target_object_key_format: None,
    };
    Ok(S3Response::new(GetBucketLoggingOutput { logging_enabled: log.map(told) }))
}

/// PutBucketLogging. An empty document ends the log.
pub async fn set(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutBucketLoggingInput>,
) -> Answer<PutBucketLoggingOutput> {
    let input = request.input;
    let mut log = None;
    if let Some(enabled) = input.bucket_logging_status.logging_enabled {
        if enabled.target_grants.is_some_and(|grants| !grants.is_empty()) {
            return Err(refuse(S3ErrorCode::AccessControlListNotSupported, "The bucket does not allow ACLs"));
        }
        if enabled.target_object_key_format.is_some_and(|format| format.partitioned_prefix.is_some()) {
            return Err(refuse(S3ErrorCode::NotImplemented, "Partitioned prefixes are not implemented."));
        }
        log = Some(AccessLog { bucket: enabled.target_bucket, prefix: enabled.target_prefix });
    }
    let change = BucketChange::Logging(log);
    let changed = wire.archive.change_bucket(&call.caller, &input.bucket, change).await;
    changed.map_err(|error| match error {
        ArchiveError::InvalidArgument(why) => refuse(S3ErrorCode::InvalidTargetBucketForLogging, why),
        error => translated(error),
    })?;
    Ok(S3Response::new(PutBucketLoggingOutput::default()))
}
