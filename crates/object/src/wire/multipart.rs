//! Multipart uploads.

use super::checksum::{algorithm_named, confirm, header_digests, kind_name, named, said, say_checksums};
use super::convert::*;
use super::elements::{is_whole_number, only, plain_elements};
use super::listing::{Encoding, given};
use super::object::{check_size, part_number, payload_of, pump, write_condition};
use super::receipt::{self, Act};
use super::{Answer, Wire, lifecycle};
use crate::call::Call;
use crate::payload::Payload;
use crate::refusal::{refuse, translated};
use crate::wire::checksum::Digests;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::{
    Algorithm, ArchiveError, ChecksumKind, CompleteRequest, CompletedPart as Named, ListUploadsRequest, NewUpload,
    ObjectWriter, PartRequest, UploadInfo,
};
use stele_ground::{Bytes, counted};

/// Free room that the catalog asks for each part that a completion changes: three of its blocks. A
/// completion changes every part of the upload, also one that it does not list.
const CATALOG_PER_PART: u64 = 3 * 4096;

/// CreateMultipartUpload.
pub async fn create(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<CreateMultipartUploadInput>,
) -> Answer<CreateMultipartUploadOutput> {
    let metadata = metadata_of(&request.headers, request.input.metadata.clone())?;
    let class = super::receipt::class_named(&request.headers)?;
    let input = request.input;
    check_acl(input.acl.as_ref().map(ObjectCannedACL::as_str))?;
    check_encryption(input.server_side_encryption.as_ref())?;
    let algorithm = algorithm_named(input.checksum_algorithm.as_ref().map(|name| name.as_str()))?;
    let kind = kind_of(input.checksum_type.as_ref())?;
    check_kind(algorithm, kind)?;
    let new = NewUpload {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        metadata,
        tags: tags_of_header(input.tagging.as_deref())?,
        retention: retention_of(
            input.object_lock_mode.as_ref().map(ObjectLockMode::as_str),
            input.object_lock_retain_until_date,
        )?,
        legal_hold: hold_of(input.object_lock_legal_hold_status.as_ref().map(ObjectLockLegalHoldStatus::as_str))?,
        class,
        algorithm,
        kind,
        customer_key: customer_key_of(
            &call,
            input.sse_customer_algorithm.as_deref(),
            input.sse_customer_key.as_deref(),
            input.sse_customer_key_md5.as_deref(),
        )?,
    };
    let info = wire.objects.create_upload(&call.caller, new).await.map_err(translated)?;
    let (encryption, customer_algorithm, customer_md5) = encryption_said(info.customer_key_md5.as_ref());
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(info.upload),
        checksum_algorithm: info.algorithm.map(|name| ChecksumAlgorithm::from_static(name.name())),
        checksum_type: info.kind.filter(|_| info.algorithm.is_some()).map(kind_name),
        server_side_encryption: encryption,
        sse_customer_algorithm: customer_algorithm,
        sse_customer_key_md5: customer_md5,
        ..CreateMultipartUploadOutput::default()
    }))
}

fn kind_of(named: Option<&ChecksumType>) -> S3Result<Option<ChecksumKind>> {
    match named.map(ChecksumType::as_str) {
        None => Ok(None),
        Some(ChecksumType::FULL_OBJECT) => Ok(Some(ChecksumKind::FullObject)),
        Some(ChecksumType::COMPOSITE) => Ok(Some(ChecksumKind::Composite)),
        Some(_) => Err(refuse(S3ErrorCode::InvalidRequest, "Value for x-amz-checksum-type header is invalid.")),
    }
}

fn check_kind(algorithm: Option<Algorithm>, kind: Option<ChecksumKind>) -> S3Result<()> {
    let (Some(algorithm), Some(kind)) = (algorithm, kind) else {
        return match (algorithm, kind) {
            (None, Some(_)) => Err(refuse(
                S3ErrorCode::InvalidRequest,
                "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
            )),
            _ => Ok(()),
        };
    };
    let possible = match algorithm {
        Algorithm::Crc64Nvme => kind == ChecksumKind::FullObject,
        Algorithm::Sha1 | Algorithm::Sha256 => kind == ChecksumKind::Composite,
        Algorithm::Crc32 | Algorithm::Crc32c => true,
    };
    if !possible {
        return Err(refuse(
            S3ErrorCode::InvalidRequest,
            format!(
                "The {} checksum type cannot be used with the {} checksum algorithm.",
                kind_name(kind).as_str(),
                algorithm.name().to_lowercase()
            ),
        ));
    }
    Ok(())
}

/// UploadPart.
pub async fn part(wire: &Wire, call: Arc<Call>, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
    let payload = payload_of(&call)?;
    // When the answer is sent, the archive has verified the key against it.
    let customer_md5 = request.input.sse_customer_key_md5.clone();
    let begun = begin_part(wire, &call, request, &payload).await;
    let (writer, digests) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            call.return_payload(payload);
            return Err(error);
        }
    };
    let (info, _) = pump(&call, payload, writer, &digests).await?;
    let (encryption, customer_algorithm, customer_md5) = encryption_said(customer_md5.as_ref());
    let mut output = UploadPartOutput {
        e_tag: Some(wire_etag(&info.etag)),
        server_side_encryption: encryption,
        sse_customer_algorithm: customer_algorithm,
        sse_customer_key_md5: customer_md5,
        ..UploadPartOutput::default()
    };
    say_checksums!(output, said(&info.checksums));
    let mut response = S3Response::new(output);
    confirm(&digests, &mut response.headers);
    Ok(response)
}

async fn begin_part(
    wire: &Wire,
    call: &Call,
    request: S3Request<UploadPartInput>,
    payload: &Payload,
) -> S3Result<(ObjectWriter, Digests)> {
    let input = request.input;
    check_size(wire, payload.length())?;
    let digests = header_digests(&request.headers)?;
    let part = PartRequest {
        bucket: input.bucket,
        key: input.key,
        upload: input.upload_id,
        number: part_number(input.part_number)?,
        length: Some(payload.length()),
        expected: digests.expected.clone(),
        algorithms: digests.algorithms.clone(),
        customer_key: customer_key_of(
            call,
            input.sse_customer_algorithm.as_deref(),
            input.sse_customer_key.as_deref(),
            input.sse_customer_key_md5.as_deref(),
        )?,
    };
    let writer = wire.objects.put_part(&call.caller, part).await.map_err(translated)?;
    Ok((writer, digests))
}

/// The elements allowed in a completion; the wire crate would ignore a checksum of another
/// algorithm.
const COMPLETION: [&str; 9] = [
    "CompleteMultipartUpload",
    "CompleteMultipartUpload/Part",
    "CompleteMultipartUpload/Part/PartNumber",
    "CompleteMultipartUpload/Part/ETag",
    "CompleteMultipartUpload/Part/ChecksumCRC32",
    "CompleteMultipartUpload/Part/ChecksumCRC32C",
    "CompleteMultipartUpload/Part/ChecksumCRC64NVME",
    "CompleteMultipartUpload/Part/ChecksumSHA1",
    "CompleteMultipartUpload/Part/ChecksumSHA256",
];

/// CompleteMultipartUpload.
pub async fn complete(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<CompleteMultipartUploadInput>,
) -> Answer<CompleteMultipartUploadOutput> {
    let wanted = receipt::is_wanted(&request.headers);
    let input = request.input;
    let elements = plain_elements(&call.document)?;
    only(&elements, &COMPLETION)?;
    if elements.iter().any(|element| element.path.ends_with("/PartNumber") && !is_whole_number(&element.text)) {
        return Err(refuse(S3ErrorCode::MalformedXML, "A PartNumber in the list is no whole number, in digits."));
    }
    let customer_key = customer_key_of(
        &call,
        input.sse_customer_algorithm.as_deref(),
        input.sse_customer_key.as_deref(),
        input.sse_customer_key_md5.as_deref(),
    )?;
    let listed = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
    if listed.is_empty() {
        return Err(refuse(
            S3ErrorCode::MalformedXML,
            "The XML you provided was not well-formed or did not validate against our published schema",
        ));
    }
    let mut parts = Vec::with_capacity(listed.len());
    for part in listed {
        let number = part
            .part_number
            .ok_or_else(|| refuse(S3ErrorCode::MalformedXML, "A part in the list has no PartNumber."))?;
        let etag =
            part.e_tag.as_ref().ok_or_else(|| refuse(S3ErrorCode::MalformedXML, "A part in the list has no ETag."))?;
        parts.push(Named {
            number: part_number(number)?,
            etag: etag.value().to_owned(),
            checksums: named([
                (Algorithm::Crc32, part.checksum_crc32.as_deref()),
                (Algorithm::Crc32c, part.checksum_crc32c.as_deref()),
                (Algorithm::Crc64Nvme, part.checksum_crc64nvme.as_deref()),
                (Algorithm::Sha1, part.checksum_sha1.as_deref()),
                (Algorithm::Sha256, part.checksum_sha256.as_deref()),
            ])?,
        });
    }
    let complete = CompleteRequest {
        bucket: input.bucket.clone(),
        key: input.key.clone(),
        upload: input.upload_id,
        parts,
        condition: write_condition(input.if_match.as_ref(), input.if_none_match.as_ref())?,
        checksums: named([
            (Algorithm::Crc32, input.checksum_crc32.as_deref()),
            (Algorithm::Crc32c, input.checksum_crc32c.as_deref()),
            (Algorithm::Crc64Nvme, input.checksum_crc64nvme.as_deref()),
            (Algorithm::Sha1, input.checksum_sha1.as_deref()),
            (Algorithm::Sha256, input.checksum_sha256.as_deref()),
        ])?,
        kind: kind_of(input.checksum_type.as_ref())?,
        customer_key,
        size: input.mpu_object_size.map(u64::try_from).transpose().map_err(|_| {
            refuse(S3ErrorCode::InvalidArgument, "Value for x-amz-mp-object-size header is less than zero.")
        })?,
    };
    let count = complete.parts.len() as u64;
    let completed = wire.objects.complete_upload(&call.caller, complete).await;
    let info = completed.map_err(|error| translated(with_need(error, count)))?;
    let (encryption, _, _) = encryption_said(info.customer_key_md5.as_ref());
    let sums = said(&info.checksums);
    let mut output = CompleteMultipartUploadOutput {
        location: Some(format!("{}/{}", call.bucket_url, Encoding::always().write(&input.key))),
        bucket: Some(input.bucket),
        key: Some(input.key),
        e_tag: Some(wire_etag(&info.etag)),
        version_id: written_version(&info),
        checksum_type: sums.kind.clone(),
        server_side_encryption: encryption,
        ..CompleteMultipartUploadOutput::default()
    };
    say_checksums!(output, sums);
    let mut response = S3Response::new(output);
    lifecycle::announce(wire, &info, &mut response.headers);
    let act = Act { wanted, bucket: &info.bucket, key: &info.key, logged: info.logged, sha256: None };
    receipt::add(wire, &call, act, &mut response).await;
    Ok(response)
}

/// Says what a completion needs where the catalog has no room for it: fewer parts may fit. `listed`
/// are the parts that it names; the upload may have more.
fn with_need(error: ArchiveError, listed: u64) -> ArchiveError {
    match error {
        ArchiveError::NoSpace(message) if message.starts_with("the catalog") => ArchiveError::NoSpace(format!(
            "{message}. Completing takes about {} of free room there for each part of the upload, listed or not, at \
             once: {} for the {} listed. An upload of fewer, larger parts takes less. The parts stay",
            Bytes(CATALOG_PER_PART),
            Bytes(listed.saturating_mul(CATALOG_PER_PART)),
            counted(listed, "part")
        )),
        other => other,
    }
}

/// AbortMultipartUpload.
pub async fn abort(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<AbortMultipartUploadInput>,
) -> Answer<AbortMultipartUploadOutput> {
    let input = request.input;
    wire.objects.abort_upload(&call.caller, &input.bucket, &input.key, &input.upload_id).await.map_err(translated)?;
    Ok(S3Response::with_status(AbortMultipartUploadOutput::default(), hyper::StatusCode::NO_CONTENT))
}

fn initiator(owner: &str) -> Initiator {
    let owner = wire_owner(owner);
    Initiator { display_name: owner.display_name, id: owner.id }
}

/// ListParts.
pub async fn parts(wire: &Wire, call: Arc<Call>, request: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
    let input = request.input;
    customer_key_of(
        &call,
        input.sse_customer_algorithm.as_deref(),
        input.sse_customer_key.as_deref(),
        input.sse_customer_key_md5.as_deref(),
    )?;
    let limit = limit_of(input.max_parts, "max-parts")?;
    let after = input.part_number_marker.unwrap_or(0).max(0);
    let marker = u32::try_from(after).unwrap_or(0);
    let (upload, parts, more) = wire
        .objects
        .list_parts(&call.caller, &input.bucket, &input.key, &input.upload_id, marker, limit)
        .await
        .map_err(translated)?;
    let last = parts.last().and_then(|part| i32::try_from(part.number).ok());
    let listed: Vec<Part> = parts
        .iter()
        .map(|part| {
            let mut listed = Part {
                part_number: i32::try_from(part.number).ok(),
                e_tag: Some(wire_etag(&part.etag)),
                last_modified: Some(wire_time(part.modified)),
                size: i64::try_from(part.size).ok(),
                ..Part::default()
            };
            say_checksums!(listed, said(&part.checksums));
            listed
        })
        .collect();
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        part_number_marker: Some(after),
        next_part_number_marker: last.or(Some(0)),
        max_parts: i32::try_from(limit).ok(),
        is_truncated: Some(more),
        parts: (!listed.is_empty()).then_some(listed),
        initiator: Some(initiator(&upload.owner)),
        owner: Some(wire_owner(&upload.owner)),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        checksum_algorithm: upload.algorithm.map(|name| ChecksumAlgorithm::from_static(name.name())),
        checksum_type: upload.kind.filter(|_| upload.algorithm.is_some()).map(kind_name),
        ..ListPartsOutput::default()
    }))
}

/// ListMultipartUploads.
pub async fn uploads(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<ListMultipartUploadsInput>,
) -> Answer<ListMultipartUploadsOutput> {
    let input = request.input;
    let encoding = Encoding::of(input.encoding_type.as_ref())?;
    let limit = limit_of(input.max_uploads, "max-uploads")?;
    let list = ListUploadsRequest {
        bucket: input.bucket.clone(),
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: given(input.delimiter.clone()),
        key_marker: given(input.key_marker.clone()),
        upload_marker: given(input.upload_id_marker.clone()),
        limit: limit.max(1),
    };
    let mut page = wire.objects.list_uploads(&call.caller, list).await.map_err(translated)?;
    if limit == 0 {
        page = stele_archive::multipart::UploadsPage::default();
    }
    let one = |info: &UploadInfo| MultipartUpload {
        key: Some(encoding.write(&info.key)),
        upload_id: Some(info.upload.clone()),
        initiated: Some(wire_time(info.initiated)),
        initiator: Some(initiator(&info.owner)),
        owner: Some(wire_owner(&info.owner)),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        checksum_algorithm: info.algorithm.map(|name| ChecksumAlgorithm::from_static(name.name())),
        checksum_type: info.kind.filter(|_| info.algorithm.is_some()).map(kind_name),
    };
    let listed: Vec<MultipartUpload> = page.uploads.iter().map(one).collect();
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: Some(encoding.write(input.prefix.as_deref().unwrap_or(""))),
        delimiter: given(input.delimiter).map(|text| encoding.write(&text)),
        key_marker: Some(encoding.write(input.key_marker.as_deref().unwrap_or(""))),
        upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
        next_key_marker: page.next_key_marker.map(|text| encoding.write(&text)),
        next_upload_id_marker: page.next_upload_marker,
        max_uploads: i32::try_from(limit).ok(),
        is_truncated: Some(page.truncated),
        uploads: (!listed.is_empty()).then_some(listed),
        common_prefixes: encoding.prefixes(&page.common_prefixes),
        encoding_type: encoding.said(),
        ..ListMultipartUploadsOutput::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_without_room_in_the_catalog_says_what_it_needs() {
        let full = |message: &str| with_need(ArchiveError::NoSpace(message.to_owned()), 10_000).to_string();
        let said = full("the catalog has no room: 40 MiB of 128 MiB are in use");
        for words in [
            "40 MiB of 128 MiB are in use. ",
            "about 12 KiB of free room there for each part of the upload, listed or not",
            "117.2 MiB for the 10000 parts listed",
            "fewer, larger parts",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        // Another lack is none of the catalog's.
        assert_eq!(full("the data volume has no free segment"), "the data volume has no free segment");
        assert_eq!(with_need(ArchiveError::InvalidPartOrder, 2), ArchiveError::InvalidPartOrder);
    }
}
