//! Settings of buckets that S3 has and this store lacks: the answers of AWS for settings that were
//! never made.

use super::{Answer, Wire};
use crate::call::Call;
use crate::refusal::{refuse, translated};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::Role;

// A caller that may not see the bucket learns nothing of its settings.
async fn seen(wire: &Wire, call: &Call, bucket: &str) -> S3Result<()> {
    wire.archive.bucket(&call.caller, bucket).await.map(drop).map_err(translated)
}

macro_rules! never_made {
    ($($name:ident($input:ident) -> $output:ident = $refusal:expr;)*) => {
        $(
            #[doc = concat!("Answers ", stringify!($input), ": there is none.")]
            pub async fn $name(wire: &Wire, call: Arc<Call>, request: S3Request<$input>) -> Answer<$output> {
                seen(wire, &call, &request.input.bucket).await?;
                Err($refusal)
            }
        )*
    };
}

never_made! {
    replication(GetBucketReplicationInput) -> GetBucketReplicationOutput =
        refuse(S3ErrorCode::ReplicationConfigurationNotFoundError, "The replication configuration was not found");
    website(GetBucketWebsiteInput) -> GetBucketWebsiteOutput =
        refuse(S3ErrorCode::NoSuchWebsiteConfiguration, "The specified bucket does not have a website configuration");
}

macro_rules! empty {
    ($($name:ident($input:ident) -> $output:ident = $answer:expr;)*) => {
        $(
            #[doc = concat!("Answers ", stringify!($input), " as where nothing was ever set.")]
            pub async fn $name(wire: &Wire, call: Arc<Call>, request: S3Request<$input>) -> Answer<$output> {
                seen(wire, &call, &request.input.bucket).await?;
                Ok(S3Response::new($answer))
            }
        )*
    };
}

empty! {
    accelerate(GetBucketAccelerateConfigurationInput) -> GetBucketAccelerateConfigurationOutput =
        GetBucketAccelerateConfigurationOutput::default();
    request_payment(GetBucketRequestPaymentInput) -> GetBucketRequestPaymentOutput =
        GetBucketRequestPaymentOutput { payer: Some(Payer::from_static(Payer::BUCKET_OWNER)) };
}

// Setting an existing state changes nothing, but only an administrator may request it.
async fn administers(wire: &Wire, call: &Call, bucket: &str) -> S3Result<()> {
    seen(wire, call, bucket).await?;
    match call.caller.has(Role::StorageAdministrator) {
        true => Ok(()),
        false => Err(refuse(
            S3ErrorCode::AccessDenied,
            "Access Denied: it takes the role storage administrator to set a bucket's encryption.",
        )),
    }
}

/// PutBucketEncryption: accepts AES256, which is always on, and refuses everything else.
pub async fn set_encryption(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutBucketEncryptionInput>,
) -> Answer<PutBucketEncryptionOutput> {
    let input = request.input;
    let rules = input.server_side_encryption_configuration.rules;
    if rules.len() != 1 {
        return Err(refuse(
            S3ErrorCode::MalformedXML,
            "The XML you provided was not well-formed or did not validate against our published schema",
        ));
    }
    for rule in rules {
        let default = rule.apply_server_side_encryption_by_default;
        super::convert::check_encryption(default.as_ref().map(|default| &default.sse_algorithm))?;
        let key = default.is_some_and(|default| default.kms_master_key_id.is_some());
        if key || rule.bucket_key_enabled == Some(true) {
            return Err(refuse(
                S3ErrorCode::InvalidArgument,
                "A KMS key can only be given with the algorithm aws:kms, which is not implemented.",
            ));
        }
    }
    administers(wire, &call, &input.bucket).await?;
    Ok(S3Response::new(PutBucketEncryptionOutput::default()))
}

/// DeleteBucketEncryption: restores the default, which never changed.
pub async fn remove_encryption(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<DeleteBucketEncryptionInput>,
) -> Answer<DeleteBucketEncryptionOutput> {
    administers(wire, &call, &request.input.bucket).await?;
    Ok(S3Response::with_status(DeleteBucketEncryptionOutput::default(), hyper::StatusCode::NO_CONTENT))
}
