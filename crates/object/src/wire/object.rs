//! Objects: put, get, head and attributes.

use super::arrival::arrive;
use super::checksum::{self, Digests, header_digests, said, say_checksums, trailer_digests};
use super::convert::*;
use super::disclosure::{check_told, hidden};
use super::receipt::{self, Act};
use super::{Answer, Wire, lifecycle};
use crate::call::Call;
use crate::payload::Payload;
use crate::refusal::{no_such_part, refuse, translated};
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::StreamBody;
use hyper::HeaderMap;
use hyper::body::Frame;
use hyper::header::HeaderValue;
use s3s::dto::*;
use s3s::{Body, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::{
    Algorithm, ArchiveError, ByteRange, CustomerKey, GetRequest, ObjectInfo, ObjectReader, ObjectWriter, PutRequest,
    ReadCondition, Way, WriteCondition,
};

/// Refuses a payload larger than that of one request may be.
pub fn check_size(wire: &Wire, length: u64) -> S3Result<()> {
    let limit = wire.settings.object_bytes_max;
    if length > limit {
        return Err(refuse(
            S3ErrorCode::EntityTooLarge,
            format!("Your proposed upload of {length} bytes exceeds the maximum allowed size of {limit} bytes."),
        ));
    }
    Ok(())
}

/// The payload of a call whose operation stores it.
pub fn payload_of(call: &Call) -> S3Result<Payload> {
    call.take_payload().ok_or_else(|| refuse(S3ErrorCode::InternalError, "The request's payload was taken already."))
}

/// Moves a payload into a writer and finishes it. When this returns, the object is durable and in
/// the catalog: `finish` returns only after the catalog commit, which follows the data's flush.
/// Also returns the SHA-256 of the payload that the signature covers.
pub async fn pump(
    call: &Call,
    mut payload: Payload,
    mut writer: ObjectWriter,
    digests: &Digests,
) -> S3Result<(ObjectInfo, Option<[u8; 32]>)> {
    let moved = arrive(&mut payload, &mut writer).await;
    if let Err(error) = moved {
        call.return_payload(payload);
        return Err(error);
    }
    call.metrics.received(payload.length());
    let late = trailer_digests(&digests.announced, payload.trailers())?;
    let sha256 = payload.verified_sha256();
    Ok((writer.finish(late).await.map_err(translated)?, sha256))
}

/// The condition of a write.
pub fn write_condition(
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<WriteCondition> {
    if if_match.is_some() && if_none_match.is_some() {
        return Err(refuse(S3ErrorCode::NotImplemented, "If-Match and If-None-Match cannot be combined on a write."));
    }
    if if_none_match.is_some_and(|condition| !condition.is_any()) {
        return Err(refuse(
            S3ErrorCode::NotImplemented,
            "A header you provided implies functionality that is not implemented: If-None-Match of a write takes only `*`.",
        ));
    }
    let etag = if_match.map(|condition| match condition.as_etag() {
        Some(etag) => etag.value().to_owned(),
        None => "*".to_owned(),
    });
    Ok(WriteCondition { absent: if_none_match.is_some(), etag })
}

/// PutObject.
pub async fn put(wire: &Wire, call: Arc<Call>, request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
    let payload = payload_of(&call)?;
    let wanted = receipt::is_wanted(&request.headers);
    let begun = begin_put(wire, &call, request, &payload).await;
    let (writer, digests) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            call.return_payload(payload);
            return Err(error);
        }
    };
    let (info, sha256) = pump(&call, payload, writer, &digests).await?;
    let (encryption, customer_algorithm, customer_md5) = encryption_said(info.customer_key_md5.as_ref());
    let sums = said(&info.checksums);
    let mut output = PutObjectOutput {
        e_tag: Some(wire_etag(&info.etag)),
        version_id: written_version(&info),
        server_side_encryption: encryption,
        sse_customer_algorithm: customer_algorithm,
        sse_customer_key_md5: customer_md5,
        checksum_type: sums.kind.clone(),
        ..PutObjectOutput::default()
    };
    say_checksums!(output, sums);
    let mut response = S3Response::new(output);
    lifecycle::announce(wire, &info, &mut response.headers);
    checksum::confirm(&digests, &mut response.headers);
    let act = Act { wanted, bucket: &info.bucket, key: &info.key, logged: info.logged, sha256 };
    receipt::add(wire, &call, act, &mut response).await;
    Ok(response)
}

async fn begin_put(
    wire: &Wire,
    call: &Call,
    request: S3Request<PutObjectInput>,
    payload: &Payload,
) -> S3Result<(ObjectWriter, Digests)> {
    let input = request.input;
    check_size(wire, payload.length())?;
    check_acl(input.acl.as_ref().map(ObjectCannedACL::as_str))?;
    check_encryption(input.server_side_encryption.as_ref())?;
    if input.write_offset_bytes.is_some() {
        return Err(refuse(S3ErrorCode::NotImplemented, "Appending to an object is not implemented."));
    }
    let digests = header_digests(&request.headers)?;
    // As on AWS: an object without a checksum from the client gets one, for later verification.
    let algorithms = match digests.algorithms.as_slice() {
        [] => vec![Algorithm::Crc64Nvme],
        asked => asked.to_vec(),
    };
    let metadata = metadata_of(&request.headers, input.metadata)?;
    let put = PutRequest {
        bucket: input.bucket,
        key: input.key,
        length: payload.known_length(),
        metadata,
        tags: tags_of_header(input.tagging.as_deref())?,
        retention: retention_of(
            input.object_lock_mode.as_ref().map(ObjectLockMode::as_str),
            input.object_lock_retain_until_date,
        )?,
        legal_hold: hold_of(input.object_lock_legal_hold_status.as_ref().map(ObjectLockLegalHoldStatus::as_str))?,
        class: super::receipt::class_named(&request.headers)?,
        condition: write_condition(input.if_match.as_ref(), input.if_none_match.as_ref())?,
        way: if call.form { Way::Form } else { Way::Put },
        expected: digests.expected.clone(),
        algorithms,
        without_md5: false,
        customer_key: customer_key_of(
            call,
            input.sse_customer_algorithm.as_deref(),
            input.sse_customer_key.as_deref(),
            input.sse_customer_key_md5.as_deref(),
        )?,
    };
    let writer = wire.objects.put(&call.caller, put).await.map_err(translated)?;
    Ok((writer, digests))
}

/// The error of a refused read: a wrong customer's key is a matter of rights, a missing key a
/// matter of form. A missing part has a code of its own.
fn read_refusal(key_sent: bool, part: bool) -> impl Fn(ArchiveError) -> s3s::S3Error {
    move |error| match error {
        ArchiveError::CustomerKey(message) if key_sent => refuse(S3ErrorCode::AccessDenied, message),
        ArchiveError::InvalidRange { .. } if part => no_such_part(),
        other => translated(other),
    }
}

/// The fields of a read request that GET, HEAD and attributes share.
#[allow(clippy::too_many_arguments)]
fn read_request(
    bucket: String,
    key: String,
    version: Option<&str>,
    range: Option<Range>,
    part: Option<i32>,
    condition: ReadCondition,
    customer_key: Option<CustomerKey>,
) -> S3Result<GetRequest> {
    let range = match (range, part) {
        (Some(_), Some(_)) => {
            return Err(refuse(
                S3ErrorCode::InvalidRequest,
                "Cannot specify both Range header and partNumber query parameter",
            ));
        }
        (Some(Range::Int { first, last }), None) => ByteRange::From { first, last },
        (Some(Range::Suffix { length }), None) => ByteRange::Suffix { length },
        (None, Some(number)) => ByteRange::Part { number: part_number(number)? },
        (None, None) => ByteRange::Whole,
    };
    let version = version_of(version)?;
    Ok(GetRequest { bucket, key, version, range, condition, customer_key })
}

/// A part number within S3's bounds.
pub fn part_number(number: i32) -> S3Result<u32> {
    u32::try_from(number).ok().filter(|number| (1..=10_000).contains(number)).ok_or_else(|| {
        refuse(S3ErrorCode::InvalidArgument, "Part number must be an integer between 1 and 10000, inclusive")
    })
}

/// The common fields of GET and HEAD.
struct Asked {
    range: ByteRange,
    condition: ReadCondition,
    key_sent: bool,
    part: Option<i32>,
    checksums: bool,
}

/// Headers of the answer that the request sets.
#[derive(Default)]
struct Named {
    content_type: Option<String>,
    cache_control: Option<String>,
    content_disposition: Option<String>,
    content_encoding: Option<String>,
    content_language: Option<String>,
    expires: Option<Timestamp>,
}

impl Named {
    fn any(&self) -> bool {
        self.content_type.is_some()
            || self.cache_control.is_some()
            || self.content_disposition.is_some()
            || self.content_encoding.is_some()
            || self.content_language.is_some()
            || self.expires.is_some()
    }

    /// Whether an answer can have these headers: a line break would begin another one.
    fn can_be_sent(&self) -> bool {
        let texts = [
            &self.content_type,
            &self.cache_control,
            &self.content_disposition,
            &self.content_encoding,
            &self.content_language,
        ];
        texts.into_iter().flatten().all(|text| HeaderValue::from_str(text).is_ok())
    }
}

impl Asked {
    fn by_part(&self) -> bool {
        matches!(self.range, ByteRange::Part { .. })
    }

    fn content_range(&self, range: &std::ops::Range<u64>, info: &ObjectInfo) -> Option<String> {
        let last = range.end.checked_sub(1)?;
        let is_part = self.condition.range(self.range, info) != ByteRange::Whole && info.size > 0;
        is_part.then(|| format!("bytes {}-{last}/{}", range.start, info.size))
    }

    /// Checksums belong to the whole object, or to the requested part.
    fn wants_checksums(&self, info: &ObjectInfo, range: &std::ops::Range<u64>) -> bool {
        self.checksums && (self.by_part() || *range == (0..info.size))
    }
}

/// The common fields of a GET or HEAD request: their types differ, their contents do not.
macro_rules! asked {
    ($call:expr, $input:expr) => {{
        let (call, input): (&Call, _) = ($call, $input);
        let named = Named {
            content_type: input.response_content_type,
            cache_control: input.response_cache_control,
            content_disposition: input.response_content_disposition,
            content_encoding: input.response_content_encoding,
            content_language: input.response_content_language,
            expires: input.response_expires,
        };
        check_named(call, &named)?;
        let customer_key = customer_key_of(
            call,
            input.sse_customer_algorithm.as_deref(),
            input.sse_customer_key.as_deref(),
            input.sse_customer_key_md5.as_deref(),
        )?;
        let key_sent = customer_key.is_some();
        let condition = ReadCondition {
            if_match: call.if_match.clone(),
            if_none_match: call.if_none_match.clone(),
            if_modified_since: input.if_modified_since.map(archive_time),
            if_unmodified_since: input.if_unmodified_since.map(archive_time),
            if_range: call.if_range.clone(),
        };
        let version = input.version_id.as_deref();
        let get =
            read_request(input.bucket, input.key, version, input.range, input.part_number, condition, customer_key)?;
        let checksums = checksums_wanted(input.checksum_mode.as_ref());
        let condition = get.condition.clone();
        let asked = Asked { range: get.range, condition, key_sent, part: input.part_number, checksums };
        (get, asked, named)
    }};
}

/// The answer to GET or HEAD, without body and tags.
macro_rules! described {
    ($output:ident, $asked:expr, $named:expr, $info:expr, $range:expr) => {{
        let (asked, named, info, range): (&Asked, Named, &ObjectInfo, _) = ($asked, $named, $info, $range);
        let (encryption, customer_algorithm, customer_md5) = encryption_said(info.customer_key_md5.as_ref());
        let content_type = named.content_type.or_else(|| stored(info, "content-type"));
        let mut output = $output {
            accept_ranges: Some("bytes".to_owned()),
            content_length: i64::try_from(range.end.saturating_sub(range.start)).ok(),
            content_range: asked.content_range(range, info),
            content_type: Some(content_type.unwrap_or_else(|| "binary/octet-stream".to_owned())),
            cache_control: named.cache_control.or_else(|| stored(info, "cache-control")),
            content_disposition: named.content_disposition.or_else(|| stored(info, "content-disposition")),
            content_encoding: named.content_encoding.or_else(|| stored(info, "content-encoding")),
            content_language: named.content_language.or_else(|| stored(info, "content-language")),
            website_redirect_location: stored(info, "x-amz-website-redirect-location"),
            expires: named.expires.or_else(|| stored_expires(info)),
            e_tag: Some(wire_etag(&info.etag)),
            last_modified: Some(wire_time(info.modified)),
            metadata: wire_metadata(info),
            object_lock_mode: info.retention.map(|kept| ObjectLockMode::from(kept.mode.to_string())),
            object_lock_retain_until_date: info.retention.map(|kept| wire_time(kept.until)),
            object_lock_legal_hold_status: hold_said(info),
            parts_count: asked.part.and(info.parts).and_then(|parts| i32::try_from(parts).ok()),
            server_side_encryption: encryption,
            sse_customer_algorithm: customer_algorithm,
            sse_customer_key_md5: customer_md5,
            version_id: named_version(info),
            ..$output::default()
        };
        if asked.wants_checksums(info, range) {
            let sums = said(&info.checksums);
            output.checksum_type = sums.kind.clone().filter(|_| !of_a_part(asked.by_part(), info));
            say_checksums!(output, sums);
        }
        output
    }};
}

/// GetObject.
pub async fn get(wire: &Wire, call: Arc<Call>, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
    let (get, asked, _) = asked!(&*call, request.input);
    let refused = read_refusal(asked.key_sent, asked.by_part());
    let reader = wire.objects.get(&call.caller, get).await.map_err(|error| refused(hidden(wire, &call, error)))?;
    // The wire crate itself adds the headers that the request sets to this answer.
    let mut output = described!(GetObjectOutput, &asked, Named::default(), &reader.info, &reader.range);
    let tags = reader.info.tags.len();
    output.tag_count = (tags > 0).then_some(tags as i32);
    let length = reader.range.end.saturating_sub(reader.range.start);
    let mut headers = HeaderMap::new();
    if reader.info.latest {
        lifecycle::announce(wire, &reader.info, &mut headers);
    }
    output.body = Some(body_of(call, reader, length).await?.into());
    Ok(S3Response { headers, ..S3Response::new(output) })
}

/// HeadObject.
pub async fn head(wire: &Wire, call: Arc<Call>, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
    let (get, asked, named) = asked!(&*call, request.input);
    let refused = read_refusal(asked.key_sent, asked.by_part());
    let found = wire.objects.head(&call.caller, get).await;
    let (info, range) = found.map_err(|error| refused(hidden(wire, &call, error)))?;
    let mut response = S3Response::new(described!(HeadObjectOutput, &asked, named, &info, &range));
    if info.latest {
        lifecycle::announce(wire, &info, &mut response.headers);
    }
    // The wire crate has no field for tags in the answer to HEAD, and AWS reports their number here
    // too.
    if !info.tags.is_empty() {
        response.headers.insert("x-amz-tagging-count", info.tags.len().into());
    }
    Ok(response)
}

// Otherwise an anonymous client could present a public object as a page of another kind. And the
// wire crate would answer HEAD with an error of its own for a header that cannot be sent.
fn check_named(call: &Call, named: &Named) -> S3Result<()> {
    if named.any() && call.caller.actor == stele_archive::Actor::Anonymous {
        return Err(refuse(
            S3ErrorCode::InvalidRequest,
            "Request specific response headers cannot be used for anonymous GET requests.",
        ));
    }
    if !named.can_be_sent() {
        return Err(refuse(
            S3ErrorCode::InvalidRequest,
            "A response-* parameter has a control character, which no header of an answer can have; leave it out.",
        ));
    }
    Ok(())
}

// The checksums are then those of a part, and the object's kind of checksum does not apply.
fn of_a_part(by_part: bool, info: &ObjectInfo) -> bool {
    by_part && info.parts.is_some()
}

fn checksums_wanted(mode: Option<&ChecksumMode>) -> bool {
    mode.is_some_and(|mode| mode.as_str().eq_ignore_ascii_case(ChecksumMode::ENABLED))
}

fn hold_said(info: &ObjectInfo) -> Option<ObjectLockLegalHoldStatus> {
    info.legal_hold.then(|| ObjectLockLegalHoldStatus::from_static(ObjectLockLegalHoldStatus::ON))
}

// Read the first piece before the head of the answer is sent, so that damage there still gets a
// code.
pub async fn body_of(call: Arc<Call>, mut reader: ObjectReader, length: u64) -> S3Result<Body> {
    if length == 0 {
        return Ok(Body::empty());
    }
    let first = match reader.next().await {
        Some(piece) => piece.map_err(translated)?,
        None => {
            return Err(refuse(S3ErrorCode::InternalError, "The object ended before its content."));
        }
    };
    call.metrics.sent(first.len() as u64);
    if first.len() as u64 == length {
        return Ok(Body::from(first));
    }
    let rest = futures_util::stream::unfold(Some((call, reader)), |state| async move {
        let (call, mut reader) = state?;
        match reader.next().await? {
            Ok(piece) => {
                call.metrics.sent(piece.len() as u64);
                Some((Ok(piece), Some((call, reader))))
            }
            Err(error) => {
                // The head is sent: the answer can only be cut short, which every client detects.
                call.metrics.response_broken();
                tracing::error!(request = %call.id, %error, "an answer was cut short");
                Some((Err(std::io::Error::other(error)), None))
            }
        }
    });
    let whole = futures_util::stream::once(async { Ok::<Bytes, std::io::Error>(first) }).chain(rest);
    Ok(Body::http_body_unsync(StreamBody::new(whole.map(|piece| piece.map(Frame::data)).boxed())))
}

/// GetObjectAttributes.
pub async fn attributes(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetObjectAttributesInput>,
) -> Answer<GetObjectAttributesOutput> {
    let input = request.input;
    let mut wanted = Vec::new();
    // One header may name several attributes, separated by commas.
    for name in input.object_attributes.iter().flat_map(|list| list.as_str().split(',')) {
        let name = name.trim();
        if !["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"].contains(&name) {
            return Err(refuse(S3ErrorCode::InvalidArgument, "Invalid attribute name specified."));
        }
        wanted.push(name.to_owned());
    }
    let wants = |name: &str| wanted.iter().any(|found| found == name);
    let customer_key = customer_key_of(
        &call,
        input.sse_customer_algorithm.as_deref(),
        input.sse_customer_key.as_deref(),
        input.sse_customer_key_md5.as_deref(),
    )?;
    let sent_key = customer_key.is_some();
    let get = read_request(
        input.bucket,
        input.key,
        input.version_id.as_deref(),
        None,
        None,
        ReadCondition::default(),
        customer_key,
    )?;
    let refused = read_refusal(sent_key, false);
    let found = wire.objects.head(&call.caller, get.clone()).await;
    let (info, _) = found.map_err(|error| refused(hidden(wire, &call, error)))?;
    let mut output = GetObjectAttributesOutput {
        last_modified: Some(wire_time(info.modified)),
        version_id: named_version(&info),
        ..GetObjectAttributesOutput::default()
    };
    if wants("ETag") {
        output.e_tag = Some(wire_etag(&info.etag));
    }
    if wants("ObjectSize") {
        output.object_size = i64::try_from(info.size).ok();
    }
    if wants("StorageClass") {
        output.storage_class = Some(StorageClass::from_static(StorageClass::STANDARD));
    }
    if wants("Checksum") && !info.checksums.is_empty() {
        let sums = said(&info.checksums);
        let mut checksum = s3s::dto::Checksum { checksum_type: sums.kind.clone(), ..Default::default() };
        // In this answer a composite has no number of parts.
        let bare = checksum::Said {
            crc32: sums.crc32.map(without_parts),
            crc32c: sums.crc32c.map(without_parts),
            crc64nvme: sums.crc64nvme.map(without_parts),
            sha1: sums.sha1.map(without_parts),
            sha256: sums.sha256.map(without_parts),
            kind: None,
        };
        say_checksums!(checksum, bare);
        output.checksum = Some(checksum);
    }
    if wants("ObjectParts") && info.parts.is_some() {
        let after = input.part_number_marker.unwrap_or(0).max(0);
        let limit = limit_of(input.max_parts, "max-parts")?;
        output.object_parts = Some(parts_of(wire, &call, get, &info, after, limit).await?);
    }
    Ok(S3Response::new(output))
}

fn without_parts(text: String) -> String {
    text.split('-').next().unwrap_or_default().to_owned()
}

async fn parts_of(
    wire: &Wire,
    call: &Call,
    get: GetRequest,
    info: &ObjectInfo,
    after: i32,
    limit: usize,
) -> S3Result<GetObjectAttributesParts> {
    let marker = u32::try_from(after).unwrap_or(0);
    let (parts, more) = wire.objects.object_parts(&call.caller, get, marker, limit).await.map_err(translated)?;
    let last = parts.last().and_then(|part| i32::try_from(part.number).ok());
    let listed: Vec<ObjectPart> = parts
        .iter()
        .filter(|part| !part.checksums.is_empty())
        .map(|part| {
            let mut listed = ObjectPart {
                part_number: i32::try_from(part.number).ok(),
                size: i64::try_from(part.size).ok(),
                ..ObjectPart::default()
            };
            say_checksums!(listed, said(&part.checksums));
            listed
        })
        .collect();
    Ok(GetObjectAttributesParts {
        is_truncated: Some(more),
        max_parts: i32::try_from(limit).ok(),
        part_number_marker: Some(after),
        next_part_number_marker: last,
        // As on AWS, parts are listed only if they have checksums of their own.
        parts: (!listed.is_empty()).then_some(listed),
        total_parts_count: info.parts.and_then(|parts| i32::try_from(parts).ok()),
    })
}

/// GetObjectAcl: the owner has full control, and there are no other grants.
pub async fn acl(wire: &Wire, call: Arc<Call>, request: S3Request<GetObjectAclInput>) -> Answer<GetObjectAclOutput> {
    check_told(&call, "the owner of an object")?;
    let input = request.input;
    let get =
        read_request(input.bucket, input.key, input.version_id.as_deref(), None, None, ReadCondition::default(), None)?;
    let found = wire.objects.head(&call.caller, get).await;
    let (info, _) = found.map_err(|error| translated(hidden(wire, &call, error)))?;
    let owner = wire_owner(&info.owner);
    Ok(S3Response::new(GetObjectAclOutput {
        grants: Some(vec![full_control(&owner)]),
        owner: Some(owner),
        ..GetObjectAclOutput::default()
    }))
}

/// The single grant of every list.
pub fn full_control(owner: &Owner) -> Grant {
    Grant {
        grantee: Some(Grantee {
            display_name: owner.display_name.clone(),
            email_address: None,
            id: owner.id.clone(),
            type_: Type::from_static(Type::CANONICAL_USER),
            uri: None,
        }),
        permission: Some(Permission::from_static(Permission::FULL_CONTROL)),
    }
}
