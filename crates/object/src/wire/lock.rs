//! Object Lock: the bucket's configuration, retention and legal hold of versions.

use super::convert::*;
use super::disclosure::hidden;
use super::receipt::{self, Act};
use super::{Answer, Wire};
use crate::call::Call;
use crate::refusal::{refuse, translated};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::{ArchiveError, BucketChange, DefaultRetention as Default_, ObjectLock, Period, Retention};

fn malformed() -> S3Error {
    refuse(
        S3ErrorCode::MalformedXML,
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
}

/// GetObjectLockConfiguration.
pub async fn configuration(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetObjectLockConfigurationInput>,
) -> Answer<GetObjectLockConfigurationOutput> {
    let info = wire.archive.bucket(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let Some(lock) = info.object_lock else {
        return Err(refuse(
            S3ErrorCode::ObjectLockConfigurationNotFoundError,
            "Object Lock configuration does not exist for this bucket",
        ));
    };
    let rule = lock.default.map(|default| {
        let (days, years) = match default.period {
            Period::Days(days) => (i32::try_from(days).ok(), None),
            Period::Years(years) => (None, i32::try_from(years).ok()),
        };
        let mode = Some(ObjectLockRetentionMode::from(default.mode.to_string()));
        ObjectLockRule { default_retention: Some(DefaultRetention { days, mode, years }) }
    });
    Ok(S3Response::new(GetObjectLockConfigurationOutput {
        object_lock_configuration: Some(ObjectLockConfiguration {
            object_lock_enabled: Some(ObjectLockEnabled::from_static(ObjectLockEnabled::ENABLED)),
            rule,
        }),
    }))
}

/// PutObjectLockConfiguration: enables the lock permanently, and sets or clears the default for
/// later writes.
pub async fn set_configuration(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutObjectLockConfigurationInput>,
) -> Answer<PutObjectLockConfigurationOutput> {
    let input = request.input;
    let configuration = input.object_lock_configuration.ok_or_else(malformed)?;
    let enabled = configuration.object_lock_enabled.as_ref().map(ObjectLockEnabled::as_str);
    if enabled != Some(ObjectLockEnabled::ENABLED) {
        return Err(malformed());
    }
    let default = match configuration.rule {
        None => None,
        Some(rule) => Some(default_of(rule.default_retention.ok_or_else(malformed)?)?),
    };
    let change = BucketChange::ObjectLock(ObjectLock { default });
    wire.archive.change_bucket(&call.caller, &input.bucket, change).await.map_err(translated)?;
    Ok(S3Response::new(PutObjectLockConfigurationOutput::default()))
}

fn default_of(rule: DefaultRetention) -> S3Result<Default_> {
    let mode = rule.mode.as_ref().ok_or_else(malformed)?;
    let mode = mode_of(mode.as_str()).map_err(|_| malformed())?;
    let positive = |count: i32, what: &str, limit: i32| {
        if count < 1 {
            return Err(refuse(
                S3ErrorCode::InvalidArgument,
                format!("Default retention period must be a positive integer value in {what}"),
            ));
        }
        if count > limit {
            return Err(refuse(
                S3ErrorCode::InvalidArgument,
                format!("Default retention period too large in {what}, maximum is {limit}"),
            ));
        }
        u32::try_from(count).map_err(|_| malformed())
    };
    let period = match (rule.days, rule.years) {
        (Some(days), None) => Period::Days(positive(days, "days", 36_500)?),
        (None, Some(years)) => Period::Years(positive(years, "years", 100)?),
        _ => return Err(malformed()),
    };
    Ok(Default_ { mode, period })
}

/// GetObjectRetention.
pub async fn retention(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetObjectRetentionInput>,
) -> Answer<GetObjectRetentionOutput> {
    let input = request.input;
    check_lock(wire, &call, &input.bucket).await?;
    let version = version_of(input.version_id.as_deref())?;
    let found = wire.objects.retention(&call.caller, &input.bucket, &input.key, version).await;
    let kept = found.map_err(|error| unset(hidden(wire, &call, error)))?;
    Ok(S3Response::new(GetObjectRetentionOutput {
        retention: Some(ObjectLockRetention {
            mode: Some(ObjectLockRetentionMode::from(kept.mode.to_string())),
            retain_until_date: Some(wire_time(kept.until)),
        }),
    }))
}

// The bucket has a lock here, so the missing setting is the version's own.
fn unset(error: ArchiveError) -> S3Error {
    match error {
        ArchiveError::NoSuchConfiguration { .. } => refuse(
            S3ErrorCode::NoSuchObjectLockConfiguration,
            "The specified object does not have a ObjectLock configuration",
        ),
        other => translated(other),
    }
}

/// PutObjectRetention. An empty document lifts a GOVERNANCE retention, which requires the bypass.
pub async fn set_retention(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutObjectRetentionInput>,
) -> Answer<PutObjectRetentionOutput> {
    let wanted = receipt::is_wanted(&request.headers);
    let input = request.input;
    check_lock(wire, &call, &input.bucket).await?;
    let version = version_of(input.version_id.as_deref())?;
    let asked = input.retention.ok_or_else(malformed)?;
    let retention = match (asked.mode, asked.retain_until_date) {
        (None, None) => None,
        (Some(mode), Some(until)) => {
            let mode = mode_of(mode.as_str()).map_err(|_| malformed())?;
            Some(Retention { mode, until: end_of_retention(until) })
        }
        _ => return Err(malformed()),
    };
    let bypass = input.bypass_governance_retention.unwrap_or(false);
    let logged = wire
        .objects
        .set_retention(&call.caller, &input.bucket, &input.key, version, retention, bypass)
        .await
        .map_err(translated)?;
    let mut response = S3Response::new(PutObjectRetentionOutput::default());
    let act = Act { wanted, bucket: &input.bucket, key: &input.key, logged, sha256: None };
    receipt::add(wire, &call, act, &mut response).await;
    Ok(response)
}

/// GetObjectLegalHold.
pub async fn legal_hold(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetObjectLegalHoldInput>,
) -> Answer<GetObjectLegalHoldOutput> {
    let input = request.input;
    check_lock(wire, &call, &input.bucket).await?;
    let version = version_of(input.version_id.as_deref())?;
    let found = wire.objects.legal_hold(&call.caller, &input.bucket, &input.key, version).await;
    let held = found.map_err(|error| translated(hidden(wire, &call, error)))?;
    let status = if held { ObjectLockLegalHoldStatus::ON } else { ObjectLockLegalHoldStatus::OFF };
    Ok(S3Response::new(GetObjectLegalHoldOutput {
        legal_hold: Some(ObjectLockLegalHold { status: Some(ObjectLockLegalHoldStatus::from_static(status)) }),
    }))
}

/// PutObjectLegalHold.
pub async fn set_legal_hold(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutObjectLegalHoldInput>,
) -> Answer<PutObjectLegalHoldOutput> {
    let wanted = receipt::is_wanted(&request.headers);
    let input = request.input;
    check_lock(wire, &call, &input.bucket).await?;
    let version = version_of(input.version_id.as_deref())?;
    let status = input.legal_hold.and_then(|hold| hold.status).ok_or_else(malformed)?;
    let hold = hold_of(Some(status.as_str())).map_err(|_| malformed())?;
    let logged = wire
        .objects
        .set_legal_hold(&call.caller, &input.bucket, &input.key, version, hold)
        .await
        .map_err(translated)?;
    let mut response = S3Response::new(PutObjectLegalHoldOutput::default());
    let act = Act { wanted, bucket: &input.bucket, key: &input.key, logged, sha256: None };
    receipt::add(wire, &call, act, &mut response).await;
    Ok(response)
}

// AWS answers these only in buckets with Object Lock.
async fn check_lock(wire: &Wire, call: &Call, bucket: &str) -> S3Result<()> {
    let info = wire.archive.bucket(&call.caller, bucket).await.map_err(translated)?;
    if info.object_lock.is_none() {
        return Err(refuse(S3ErrorCode::InvalidRequest, "Bucket is missing Object Lock Configuration"));
    }
    Ok(())
}
