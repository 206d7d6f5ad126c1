//! The rules of a bucket for requests from other origins.

use super::{Answer, Wire};
use crate::call::Call;
use crate::refusal::{refuse, translated};
use hyper::StatusCode;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::{BucketChange, CorsRule};

/// GetBucketCors.
pub async fn get(wire: &Wire, call: Arc<Call>, request: S3Request<GetBucketCorsInput>) -> Answer<GetBucketCorsOutput> {
    let rules = wire.archive.cors(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let rules =
        rules.ok_or_else(|| refuse(S3ErrorCode::NoSuchCORSConfiguration, "The CORS configuration does not exist"))?;
    Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(rules.into_iter().map(told).collect()) }))
}

/// PutBucketCors.
pub async fn set(wire: &Wire, call: Arc<Call>, request: S3Request<PutBucketCorsInput>) -> Answer<PutBucketCorsOutput> {
    let input = request.input;
    let rules = input.cors_configuration.cors_rules.into_iter().map(read).collect::<S3Result<Vec<_>>>()?;
    change(wire, &call, &input.bucket, Some(rules)).await?;
    Ok(S3Response::new(PutBucketCorsOutput::default()))
}

/// DeleteBucketCors.
pub async fn remove(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<DeleteBucketCorsInput>,
) -> Answer<DeleteBucketCorsOutput> {
    change(wire, &call, &request.input.bucket, None).await?;
    Ok(S3Response::with_status(DeleteBucketCorsOutput::default(), StatusCode::NO_CONTENT))
}

async fn change(wire: &Wire, call: &Call, bucket: &str, rules: Option<Vec<CorsRule>>) -> S3Result<()> {
    let change = BucketChange::Cors(rules);
    wire.archive.change_bucket(&call.caller, bucket, change).await.map(drop).map_err(translated)
}

fn read(rule: CORSRule) -> S3Result<CorsRule> {
    let max_age = rule.max_age_seconds.map(u32::try_from).transpose();
    Ok(CorsRule {
        id: rule.id,
        origins: rule.allowed_origins,
        methods: rule.allowed_methods,
        headers: rule.allowed_headers.unwrap_or_default(),
        exposed: rule.expose_headers.unwrap_or_default(),
        max_age: max_age.map_err(|_| refuse(S3ErrorCode::InvalidArgument, "MaxAgeSeconds must not be negative"))?,
    })
}

fn told(rule: CorsRule) -> CORSRule {
    let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
    CORSRule {
        id: rule.id,
        allowed_origins: rule.origins,
        allowed_methods: rule.methods,
        allowed_headers: some(rule.headers),
        expose_headers: some(rule.exposed),
        max_age_seconds: rule.max_age.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX)),
    }
}
