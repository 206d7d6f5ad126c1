//! Lifecycle rules of a bucket.

use super::convert::{OBJECT_TAGS_MAX, archive_time, tag_set, tags_of_set, wire_time};
use super::{Answer, Wire};
use crate::call::Call;
use crate::refusal::{http_date, refuse, translated};
use hyper::header::HeaderValue;
use hyper::{HeaderMap, StatusCode};
use s3s::dto::{LifecycleExpiration, LifecycleRule as WireRule, LifecycleRuleFilter as WireFilter, *};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::{BucketChange, Expiration, LifecycleFilter, LifecycleRule, NoncurrentExpiration, ObjectInfo};

/// GetBucketLifecycleConfiguration.
pub async fn get(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetBucketLifecycleConfigurationInput>,
) -> Answer<GetBucketLifecycleConfigurationOutput> {
    let rules = wire.archive.lifecycle(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let rules = rules.ok_or_else(|| {
        refuse(S3ErrorCode::NoSuchLifecycleConfiguration, "The lifecycle configuration does not exist")
    })?;
    Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
        rules: Some(rules.into_iter().map(told).collect()),
        ..GetBucketLifecycleConfigurationOutput::default()
    }))
}

/// PutBucketLifecycleConfiguration. Replaces all rules.
pub async fn set(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutBucketLifecycleConfigurationInput>,
) -> Answer<PutBucketLifecycleConfigurationOutput> {
    let input = request.input;
    let configuration = input.lifecycle_configuration.ok_or_else(malformed)?;
    let number = configuration.rules.len();
    let rules = configuration.rules.into_iter().enumerate();
    let rules = rules.map(|(at, rule)| read(rule, at, number)).collect::<S3Result<Vec<_>>>()?;
    change(wire, &call, &input.bucket, Some(rules)).await?;
    Ok(S3Response::new(PutBucketLifecycleConfigurationOutput::default()))
}

/// DeleteBucketLifecycle.
pub async fn remove(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<DeleteBucketLifecycleInput>,
) -> Answer<DeleteBucketLifecycleOutput> {
    change(wire, &call, &request.input.bucket, None).await?;
    Ok(S3Response::with_status(DeleteBucketLifecycleOutput::default(), StatusCode::NO_CONTENT))
}

async fn change(wire: &Wire, call: &Call, bucket: &str, rules: Option<Vec<LifecycleRule>>) -> S3Result<()> {
    let change = BucketChange::Lifecycle(rules);
    wire.archive.change_bucket(&call.caller, bucket, change).await.map(drop).map_err(translated)
}

fn malformed() -> S3Error {
    refuse(
        S3ErrorCode::MalformedXML,
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
}

fn invalid(message: &'static str) -> S3Error {
    refuse(S3ErrorCode::InvalidArgument, message)
}

fn days(number: i32, what: &'static str) -> S3Result<u32> {
    u32::try_from(number).ok().filter(|days| *days > 0).ok_or_else(|| invalid(what))
}

fn size(bytes: Option<i64>) -> S3Result<Option<u64>> {
    bytes.map(|bytes| u64::try_from(bytes).map_err(|_| invalid("An object size must not be negative"))).transpose()
}

fn read(rule: WireRule, at: usize, of: usize) -> S3Result<LifecycleRule> {
    if rule.transitions.as_ref().is_some_and(|list| !list.is_empty())
        || rule.noncurrent_version_transitions.as_ref().is_some_and(|list| !list.is_empty())
    {
        return Err(refuse(
            S3ErrorCode::NotImplemented,
            "Transitions are not implemented: this store has one storage class.",
        ));
    }
    let enabled = match rule.status.as_str() {
        ExpirationStatus::ENABLED => true,
        ExpirationStatus::DISABLED => false,
        _ => return Err(malformed()),
    };
    let filter = match (rule.filter, rule.prefix) {
        (Some(_), Some(prefix)) if !prefix.is_empty() => return Err(malformed()),
        (Some(filter), _) => read_filter(filter)?,
        (None, Some(prefix)) => LifecycleFilter { prefix, bare: true, ..LifecycleFilter::default() },
        (None, None) => return Err(malformed()),
    };
    let expiration = rule.expiration.map(read_expiration).transpose()?;
    let noncurrent = rule.noncurrent_version_expiration.map(|noncurrent| {
        Ok::<_, S3Error>(NoncurrentExpiration {
            days: days(noncurrent.noncurrent_days.unwrap_or(0), "NoncurrentDays must be a positive integer")?,
            newer: noncurrent
                .newer_noncurrent_versions
                .map(|newer| days(newer, "NewerNoncurrentVersions must be a positive integer"))
                .transpose()?,
        })
    });
    let abort_days = rule
        .abort_incomplete_multipart_upload
        .map(|abort| days(abort.days_after_initiation.unwrap_or(0), "DaysAfterInitiation must be a positive integer"));
    // AWS makes up an id where a rule has none.
    let id = rule.id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("rule-{}-of-{of}", at + 1));
    Ok(LifecycleRule {
        id,
        enabled,
        filter,
        expiration: expiration.flatten(),
        noncurrent: noncurrent.transpose()?,
        abort_days: abort_days.transpose()?,
    })
}

/// Says in `x-amz-expiration` when a rule ends the current version of a key.
pub fn announce(wire: &Wire, info: &ObjectInfo, headers: &mut HeaderMap) {
    let Some((end, rule)) = wire.archive.lifecycle_end(info) else { return };
    let mut id = Vec::new();
    crate::sigv4::encode(&mut id, rule.as_bytes(), false);
    let text = format!("expiry-date=\"{}\", rule-id=\"{}\"", http_date(end), String::from_utf8_lossy(&id));
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.insert("x-amz-expiration", value);
    }
}

fn read_expiration(expiration: LifecycleExpiration) -> S3Result<Option<Expiration>> {
    let markers = expiration.expired_object_delete_marker == Some(true);
    match (expiration.days, expiration.date, markers) {
        (Some(number), None, false) => {
            Ok(Some(Expiration::Days(days(number, "'Days' for Expiration action must be a positive integer")?)))
        }
        (None, Some(date), false) => Ok(Some(Expiration::Date(archive_time(date)))),
        (None, None, true) => Ok(Some(Expiration::Markers)),
        (None, None, false) if expiration.expired_object_delete_marker.is_some() => Ok(None),
        _ => Err(malformed()),
    }
}

fn read_filter(filter: WireFilter) -> S3Result<LifecycleFilter> {
    let alone = [
        filter.prefix.is_some(),
        filter.tag.is_some(),
        filter.object_size_greater_than.is_some(),
        filter.object_size_less_than.is_some(),
        filter.and.is_some(),
    ];
    if alone.iter().filter(|there| **there).count() > 1 {
        return Err(malformed());
    }
    let (prefix, tags, above, below) = match filter.and {
        Some(and) => {
            (and.prefix, and.tags.unwrap_or_default(), and.object_size_greater_than, and.object_size_less_than)
        }
        None => (
            filter.prefix,
            filter.tag.into_iter().collect(),
            filter.object_size_greater_than,
            filter.object_size_less_than,
        ),
    };
    Ok(LifecycleFilter {
        prefix: prefix.unwrap_or_default(),
        tags: tags_of_set(tags, OBJECT_TAGS_MAX)?,
        above: size(above)?,
        below: size(below)?,
        bare: false,
    })
}

fn told(rule: LifecycleRule) -> WireRule {
    let counted = |days: u32| i32::try_from(days).unwrap_or(i32::MAX);
    let expiration = rule.expiration.map(|expiration| match expiration {
        Expiration::Days(days) => LifecycleExpiration { days: Some(counted(days)), ..LifecycleExpiration::default() },
        Expiration::Date(date) => LifecycleExpiration { date: Some(wire_time(date)), ..LifecycleExpiration::default() },
        Expiration::Markers => {
            LifecycleExpiration { expired_object_delete_marker: Some(true), ..LifecycleExpiration::default() }
        }
    });
    let (filter, prefix) = match rule.filter.bare {
        true => (None, Some(rule.filter.prefix)),
        false => (Some(told_filter(rule.filter)), None),
    };
    WireRule {
        id: Some(rule.id),
        status: ExpirationStatus::from_static(match rule.enabled {
            true => ExpirationStatus::ENABLED,
            false => ExpirationStatus::DISABLED,
        }),
        filter,
        prefix,
        expiration,
        noncurrent_version_expiration: rule.noncurrent.map(|noncurrent| NoncurrentVersionExpiration {
            noncurrent_days: Some(counted(noncurrent.days)),
            newer_noncurrent_versions: noncurrent.newer.map(counted),
        }),
        abort_incomplete_multipart_upload: rule
            .abort_days
            .map(|days| AbortIncompleteMultipartUpload { days_after_initiation: Some(counted(days)) }),
        noncurrent_version_transitions: None,
        transitions: None,
    }
}

fn told_filter(filter: LifecycleFilter) -> WireFilter {
    let bytes = |size: Option<u64>| size.map(|size| i64::try_from(size).unwrap_or(i64::MAX));
    let (above, below) = (bytes(filter.above), bytes(filter.below));
    let mut tags = tag_set(&filter.tags);
    let conditions = usize::from(!filter.prefix.is_empty())
        + tags.len()
        + usize::from(above.is_some())
        + usize::from(below.is_some());
    let prefix = Some(filter.prefix).filter(|prefix| !prefix.is_empty());
    if conditions > 1 {
        let and = LifecycleRuleAndOperator {
            prefix,
            tags: (!tags.is_empty()).then_some(tags),
            object_size_greater_than: above,
            object_size_less_than: below,
        };
        return WireFilter { and: Some(and), ..WireFilter::default() };
    }
    WireFilter {
        // An empty filter is told as the prefix of everything.
        prefix: if conditions == 0 { Some(String::new()) } else { prefix },
        tag: tags.pop(),
        object_size_greater_than: above,
        object_size_less_than: below,
        ..WireFilter::default()
    }
}
