//! Copies inside the store.

use super::checksum::{algorithm_named, said, say_checksums};
use super::convert::*;
use super::disclosure::hidden_source;
use super::object::{part_number, write_condition};
use super::receipt::{self, Act};
use super::{Answer, Wire, lifecycle};
use crate::call::Call;
use crate::refusal::{refuse, translated};
use hyper::HeaderMap;
use hyper::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use s3s::dto::{CopySource as WireSource, *};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use std::ops::RangeInclusive;
use std::sync::Arc;
use stele_archive::{
    CopyRequest, CopySource, CustomerKey, PartRequest, ReadCondition, Tags, VersionId, WriteCondition,
};

fn source_of(source: &WireSource, condition: ReadCondition, customer_key: Option<CustomerKey>) -> S3Result<CopySource> {
    match source {
        WireSource::Bucket { key, .. } if key.is_empty() => Err(refuse(
            S3ErrorCode::InvalidArgument,
            "The header x-amz-copy-source names no key: its form is BUCKET/KEY, percent-encoded.",
        )),
        WireSource::Bucket { bucket, key, version_id } => Ok(CopySource {
            bucket: bucket.to_string(),
            key: key.to_string(),
            version: version_of(version_id.as_deref())?,
            condition,
            customer_key,
        }),
        _ => Err(refuse(S3ErrorCode::NotImplemented, "Copying from an access point is not implemented.")),
    }
}

fn condition_text(condition: Option<&ETagCondition>) -> Option<String> {
    condition.map(|condition| match condition.as_etag() {
        Some(etag) => format!("\"{}\"", etag.value()),
        None => "*".to_owned(),
    })
}

// The conditions on the existing destination, which the wire crate does not read here.
fn destination_condition(headers: &HeaderMap) -> S3Result<WriteCondition> {
    let of = |name: HeaderName| {
        let value = headers.get(&name).map(|value| ETagCondition::parse_http_header(value.as_bytes()));
        value
            .transpose()
            .map_err(|_| refuse(S3ErrorCode::InvalidArgument, format!("The header {name} is no entity tag.")))
    };
    write_condition(of(IF_MATCH)?.as_ref(), of(IF_NONE_MATCH)?.as_ref())
}

async fn check_source_owner(wire: &Wire, call: &Call, source: &CopySource, expected: Option<&str>) -> S3Result<()> {
    let Some(expected) = expected else {
        return Ok(());
    };
    let info = wire.archive.bucket(&call.caller, &source.bucket).await.map_err(translated)?;
    if info.owner.strip_prefix("key ").unwrap_or(&info.owner) != expected {
        return Err(refuse(S3ErrorCode::AccessDenied, "Access Denied: the source's bucket has another owner."));
    }
    Ok(())
}

/// CopyObject.
pub async fn object(wire: &Wire, call: Arc<Call>, request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
    let mut metadata = metadata_of(&request.headers, request.input.metadata.clone())?;
    // The content type of an empty body does not describe the object.
    if request.input.content_type.is_none() {
        metadata.headers.remove("content-type");
    }
    let condition = destination_condition(&request.headers)?;
    let wanted = receipt::is_wanted(&request.headers);
    let input = request.input;
    check_acl(input.acl.as_ref().map(ObjectCannedACL::as_str))?;
    check_encryption(input.server_side_encryption.as_ref())?;
    let source_condition = ReadCondition {
        if_match: condition_text(input.copy_source_if_match.as_ref()),
        if_none_match: condition_text(input.copy_source_if_none_match.as_ref()),
        if_modified_since: input.copy_source_if_modified_since.map(archive_time),
        if_unmodified_since: input.copy_source_if_unmodified_since.map(archive_time),
        if_range: None,
    };
    let source_key = customer_key_of(
        &call,
        input.copy_source_sse_customer_algorithm.as_deref(),
        input.copy_source_sse_customer_key.as_deref(),
        input.copy_source_sse_customer_key_md5.as_deref(),
    )?;
    let replace = |directive: Option<&str>, what: &str| match directive {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(_) => Err(refuse(S3ErrorCode::InvalidArgument, format!("Unknown {what} directive."))),
    };
    let new_metadata = replace(input.metadata_directive.as_ref().map(MetadataDirective::as_str), "metadata")?;
    let new_tags = replace(input.tagging_directive.as_ref().map(TaggingDirective::as_str), "tagging")?;
    let customer_key = customer_key_of(
        &call,
        input.sse_customer_algorithm.as_deref(),
        input.sse_customer_key.as_deref(),
        input.sse_customer_key_md5.as_deref(),
    )?;
    if input.tagging.is_some() && !new_tags {
        return Err(refuse(
            S3ErrorCode::InvalidRequest,
            "x-amz-tagging of a copy takes effect only with x-amz-tagging-directive: REPLACE.",
        ));
    }
    let source = source_of(&input.copy_source, source_condition, source_key)?;
    let from = (source.bucket.clone(), source.key.clone());
    check_source_owner(wire, &call, &source, input.expected_source_bucket_owner.as_deref()).await?;
    let mut copy = CopyRequest {
        source,
        bucket: input.bucket,
        key: input.key,
        redirect: metadata.headers.get("x-amz-website-redirect-location").cloned(),
        metadata: new_metadata.then_some(metadata),
        tags: if new_tags { Some(tags_of_header(input.tagging.as_deref())?) } else { None },
        retention: retention_of(
            input.object_lock_mode.as_ref().map(ObjectLockMode::as_str),
            input.object_lock_retain_until_date,
        )?,
        legal_hold: hold_of(input.object_lock_legal_hold_status.as_ref().map(ObjectLockLegalHoldStatus::as_str))?,
        class: receipt::class_named(&request.headers)?,
        condition,
        algorithm: algorithm_named(input.checksum_algorithm.as_ref().map(|name| name.as_str()))?,
        customer_key,
        anew: input.server_side_encryption.is_some() || input.storage_class.is_some(),
    };
    if call.untagged && !new_tags {
        // No tags are no change of a copy onto itself.
        copy.check().map_err(translated)?;
        copy.tags = Some(Tags::new());
    }
    let hidden = |error| hidden_source(wire, &call, (&from.0, &from.1), error);
    let copied = wire.objects.copy(&call.caller, copy).await.map_err(|error| source_refusal(hidden(error)))?;
    let info = copied.object;
    let (encryption, customer_algorithm, customer_md5) = encryption_said(info.customer_key_md5.as_ref());
    let sums = said(&info.checksums);
    let mut result = CopyObjectResult {
        e_tag: Some(wire_etag(&info.etag)),
        last_modified: Some(wire_time(info.modified)),
        checksum_type: sums.kind.clone(),
        ..CopyObjectResult::default()
    };
    say_checksums!(result, sums);
    let mut response = S3Response::new(CopyObjectOutput {
        copy_object_result: Some(result),
        copy_source_version_id: copied.source_versioned.then(|| copied.source.to_string()),
        version_id: written_version(&info),
        server_side_encryption: encryption,
        sse_customer_algorithm: customer_algorithm,
        sse_customer_key_md5: customer_md5,
        ..CopyObjectOutput::default()
    });
    lifecycle::announce(wire, &info, &mut response.headers);
    let act = Act { wanted, bucket: &info.bucket, key: &info.key, logged: info.logged, sha256: None };
    receipt::add(wire, &call, act, &mut response).await;
    Ok(response)
}

// "Not modified" is a failed precondition for a copy: there is no copy to reuse.
fn source_refusal(error: stele_archive::ArchiveError) -> s3s::S3Error {
    match error {
        stele_archive::ArchiveError::NotModified { .. } => {
            refuse(S3ErrorCode::PreconditionFailed, "At least one of the pre-conditions you specified did not hold")
        }
        stele_archive::ArchiveError::IsDeleteMarker { .. } => refuse(
            S3ErrorCode::InvalidRequest,
            "The source of a copy request may not specifically refer to a delete marker by version id.",
        ),
        other => translated(other),
    }
}

// Parses `bytes=first-last`; both are required.
fn range_of(text: Option<&str>) -> S3Result<Option<RangeInclusive<u64>>> {
    let Some(text) = text else {
        return Ok(None);
    };
    let parsed = text.strip_prefix("bytes=").and_then(|rest| {
        let (first, last) = rest.split_once('-')?;
        Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?))
    });
    match parsed {
        Some((first, last)) if first <= last => Ok(Some(first..=last)),
        _ => Err(refuse(
            S3ErrorCode::InvalidArgument,
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy",
        )),
    }
}

/// UploadPartCopy.
pub async fn part(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<UploadPartCopyInput>,
) -> Answer<UploadPartCopyOutput> {
    let input = request.input;
    let condition = ReadCondition {
        if_match: condition_text(input.copy_source_if_match.as_ref()),
        if_none_match: condition_text(input.copy_source_if_none_match.as_ref()),
        if_modified_since: input.copy_source_if_modified_since.map(archive_time),
        if_unmodified_since: input.copy_source_if_unmodified_since.map(archive_time),
        if_range: None,
    };
    let source_key = customer_key_of(
        &call,
        input.copy_source_sse_customer_algorithm.as_deref(),
        input.copy_source_sse_customer_key.as_deref(),
        input.copy_source_sse_customer_key_md5.as_deref(),
    )?;
    let customer_key = customer_key_of(
        &call,
        input.sse_customer_algorithm.as_deref(),
        input.sse_customer_key.as_deref(),
        input.sse_customer_key_md5.as_deref(),
    )?;
    let customer_md5 = customer_key.as_ref().map(CustomerKey::md5);
    let part = PartRequest {
        bucket: input.bucket,
        key: input.key,
        upload: input.upload_id,
        number: part_number(input.part_number)?,
        customer_key,
        ..PartRequest::default()
    };
    let source = source_of(&input.copy_source, condition, source_key)?;
    let from = (source.bucket.clone(), source.key.clone());
    check_source_owner(wire, &call, &source, input.expected_source_bucket_owner.as_deref()).await?;
    let range = range_of(input.copy_source_range.as_deref())?;
    let hidden = |error| hidden_source(wire, &call, (&from.0, &from.1), error);
    let made = wire.objects.copy_part(&call.caller, source, range, part).await;
    let (made, version) = made.map_err(|error| source_refusal(hidden(error)))?;
    let (encryption, customer_algorithm, customer_md5) = encryption_said(customer_md5.as_ref());
    let mut result = CopyPartResult {
        e_tag: Some(wire_etag(&made.etag)),
        last_modified: Some(wire_time(made.modified)),
        ..CopyPartResult::default()
    };
    say_checksums!(result, said(&made.checksums));
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(result),
        copy_source_version_id: (version != VersionId::Null).then(|| version.to_string()),
        server_side_encryption: encryption,
        sse_customer_algorithm: customer_algorithm,
        sse_customer_key_md5: customer_md5,
        ..UploadPartCopyOutput::default()
    }))
}
