//! Tags of buckets and versions.

use super::convert::*;
use super::disclosure::{check_told, hidden};
use super::{Answer, Wire};
use crate::call::Call;
use crate::refusal::{refuse, translated};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response};
use std::sync::Arc;
use stele_archive::{BucketChange, Tags, VersionId};

/// GetBucketTagging.
pub async fn of_bucket(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetBucketTaggingInput>,
) -> Answer<GetBucketTaggingOutput> {
    let info = wire.archive.bucket(&call.caller, &request.input.bucket).await.map_err(translated)?;
    if info.tags.is_empty() {
        return Err(refuse(S3ErrorCode::NoSuchTagSet, "The TagSet does not exist"));
    }
    Ok(S3Response::new(GetBucketTaggingOutput { tag_set: tag_set(&info.tags) }))
}

/// PutBucketTagging.
pub async fn set_of_bucket(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutBucketTaggingInput>,
) -> Answer<PutBucketTaggingOutput> {
    let tags = tags_of_set(request.input.tagging.tag_set, BUCKET_TAGS_MAX)?;
    change(wire, &call, &request.input.bucket, tags).await?;
    Ok(S3Response::with_status(PutBucketTaggingOutput::default(), hyper::StatusCode::NO_CONTENT))
}

/// DeleteBucketTagging.
pub async fn remove_of_bucket(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<DeleteBucketTaggingInput>,
) -> Answer<DeleteBucketTaggingOutput> {
    change(wire, &call, &request.input.bucket, Tags::new()).await?;
    Ok(S3Response::new(DeleteBucketTaggingOutput::default()))
}

async fn change(wire: &Wire, call: &Call, bucket: &str, tags: Tags) -> s3s::S3Result<()> {
    let change = BucketChange::Tags(tags);
    wire.archive.change_bucket(&call.caller, bucket, change).await.map(drop).map_err(translated)
}

/// GetObjectTagging.
pub async fn of_object(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetObjectTaggingInput>,
) -> Answer<GetObjectTaggingOutput> {
    check_told(&call, "the tags of an object")?;
    let input = request.input;
    let version = version_of(input.version_id.as_deref())?;
    let found = wire.objects.tags(&call.caller, &input.bucket, &input.key, version).await;
    let (tags, version) = found.map_err(|error| translated(hidden(wire, &call, error)))?;
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set: tag_set(&tags), version_id: said(version) }))
}

// The null version of a never versioned bucket is left out.
fn said(version: VersionId) -> Option<String> {
    (version != VersionId::Null).then(|| version.to_string())
}

/// PutObjectTagging.
pub async fn set_of_object(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutObjectTaggingInput>,
) -> Answer<PutObjectTaggingOutput> {
    let input = request.input;
    let version = version_of(input.version_id.as_deref())?;
    let tags = tags_of_set(input.tagging.tag_set, OBJECT_TAGS_MAX)?;
    let version =
        wire.objects.set_tags(&call.caller, &input.bucket, &input.key, version, tags).await.map_err(translated)?;
    Ok(S3Response::new(PutObjectTaggingOutput { version_id: said(version) }))
}

/// DeleteObjectTagging.
pub async fn remove_of_object(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<DeleteObjectTaggingInput>,
) -> Answer<DeleteObjectTaggingOutput> {
    let input = request.input;
    let version = version_of(input.version_id.as_deref())?;
    let version = wire
        .objects
        .set_tags(&call.caller, &input.bucket, &input.key, version, Tags::new())
        .await
        .map_err(translated)?;
    Ok(S3Response::new(DeleteObjectTaggingOutput { version_id: said(version) }))
}
