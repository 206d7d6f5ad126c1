//! The policy of a bucket, the block of public access, and the ownership of objects.

use super::{Answer, Wire};
use crate::call::Call;
use crate::refusal::{no_public_access_block, refuse, translated};
use hyper::StatusCode;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::{AccessBlock, BucketChange, Policy as BucketPolicy};

fn no_policy() -> S3Error {
    refuse(S3ErrorCode::NoSuchBucketPolicy, "The bucket policy does not exist")
}

async fn change(wire: &Wire, call: &Call, bucket: &str, change: BucketChange) -> S3Result<()> {
    wire.archive.change_bucket(&call.caller, bucket, change).await.map(drop).map_err(translated)
}

/// GetBucketPolicy.
pub async fn document(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetBucketPolicyInput>,
) -> Answer<GetBucketPolicyOutput> {
    let policy = wire.archive.policy(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let policy = policy.ok_or_else(no_policy)?;
    Ok(S3Response::new(GetBucketPolicyOutput { policy: Some(policy) }))
}

/// GetBucketPolicyStatus.
pub async fn status(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetBucketPolicyStatusInput>,
) -> Answer<GetBucketPolicyStatusOutput> {
    let public = wire.archive.is_policy_public(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let is_public = Some(public.ok_or_else(no_policy)?);
    Ok(S3Response::new(GetBucketPolicyStatusOutput { policy_status: Some(PolicyStatus { is_public }) }))
}

/// PutBucketPolicy. A policy that cannot be carried out to the letter is refused.
pub async fn set(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutBucketPolicyInput>,
) -> Answer<PutBucketPolicyOutput> {
    let input = request.input;
    BucketPolicy::parse(&input.bucket, &input.policy).map_err(|reason| refuse(S3ErrorCode::MalformedPolicy, reason))?;
    let policy = BucketChange::Policy(Some(input.policy));
    let set = wire.archive.change_bucket(&call.caller, &input.bucket, policy).await;
    set.map_err(|error| match error {
        stele_archive::ArchiveError::InvalidArgument(reason) => refuse(S3ErrorCode::MalformedPolicy, reason),
        other => translated(other),
    })?;
    Ok(S3Response::with_status(PutBucketPolicyOutput::default(), StatusCode::NO_CONTENT))
}

/// DeleteBucketPolicy.
pub async fn remove(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<DeleteBucketPolicyInput>,
) -> Answer<DeleteBucketPolicyOutput> {
    change(wire, &call, &request.input.bucket, BucketChange::Policy(None)).await?;
    Ok(S3Response::with_status(DeleteBucketPolicyOutput::default(), StatusCode::NO_CONTENT))
}

/// GetPublicAccessBlock.
pub async fn access_block(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetPublicAccessBlockInput>,
) -> Answer<GetPublicAccessBlockOutput> {
    let block = wire.archive.access_block(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let block = block.ok_or_else(no_public_access_block)?;
    let public_access_block_configuration = Some(PublicAccessBlockConfiguration {
        block_public_acls: Some(block.block_acls),
        block_public_policy: Some(block.block_policy),
        ignore_public_acls: Some(block.ignore_acls),
        restrict_public_buckets: Some(block.restrict),
    });
    Ok(S3Response::new(GetPublicAccessBlockOutput { public_access_block_configuration }))
}

/// PutPublicAccessBlock.
pub async fn set_access_block(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutPublicAccessBlockInput>,
) -> Answer<PutPublicAccessBlockOutput> {
    let asked = request.input.public_access_block_configuration;
    let block = AccessBlock {
        block_acls: asked.block_public_acls.unwrap_or(false),
        ignore_acls: asked.ignore_public_acls.unwrap_or(false),
        block_policy: asked.block_public_policy.unwrap_or(false),
        restrict: asked.restrict_public_buckets.unwrap_or(false),
    };
    change(wire, &call, &request.input.bucket, BucketChange::AccessBlock(Some(block))).await?;
    Ok(S3Response::new(PutPublicAccessBlockOutput::default()))
}

/// DeletePublicAccessBlock.
pub async fn remove_access_block(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<DeletePublicAccessBlockInput>,
) -> Answer<DeletePublicAccessBlockOutput> {
    change(wire, &call, &request.input.bucket, BucketChange::AccessBlock(None)).await?;
    Ok(S3Response::with_status(DeletePublicAccessBlockOutput::default(), StatusCode::NO_CONTENT))
}

/// PutBucketOwnershipControls: accepts the one setting that every bucket has.
pub async fn set_ownership(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutBucketOwnershipControlsInput>,
) -> Answer<PutBucketOwnershipControlsOutput> {
    let input = request.input;
    wire.archive.bucket(&call.caller, &input.bucket).await.map_err(translated)?;
    let enforced =
        |rule: &OwnershipControlsRule| rule.object_ownership.as_str() == ObjectOwnership::BUCKET_OWNER_ENFORCED;
    match input.ownership_controls.rules.as_slice() {
        [rule] if enforced(rule) => Ok(S3Response::new(PutBucketOwnershipControlsOutput::default())),
        _ => Err(refuse(
            S3ErrorCode::NotImplemented,
            "Access control lists are not implemented; the ownership of every bucket is BucketOwnerEnforced.",
        )),
    }
}
