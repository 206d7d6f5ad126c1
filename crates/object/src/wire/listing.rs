//! Listings: current objects by V1 and V2, and all versions.

use super::convert::*;
use super::{Answer, Wire};
use crate::call::Call;
use crate::refusal::{refuse, translated};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::{ListPage, ListRequest, ListVersionsRequest, ObjectInfo, VersionId};

/// The encoding of names: unchanged, or percent-encoded, which alone can carry every byte through
/// XML.
#[derive(Clone, Copy)]
pub struct Encoding(bool);

impl Encoding {
    /// The encoding that a request asks for.
    pub fn of(asked: Option<&EncodingType>) -> S3Result<Encoding> {
        match asked.map(EncodingType::as_str) {
            None => Ok(Encoding(false)),
            Some("url") => Ok(Encoding(true)),
            Some(_) => Err(refuse(S3ErrorCode::InvalidArgument, "Invalid Encoding Method specified in Request")),
        }
    }

    /// Percent-encoded, for names inside a URL.
    pub fn always() -> Encoding {
        Encoding(true)
    }

    /// A name in this encoding.
    pub fn write(self, name: &str) -> String {
        if !self.0 {
            return name.to_owned();
        }
        let mut out = String::with_capacity(name.len() + name.len() / 4);
        for byte in name.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    out.push(char::from(byte));
                }
                _ => {
                    const HEX: [char; 16] =
                        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
                    out.push('%');
                    for digit in [byte >> 4, byte & 15] {
                        out.push(HEX.get(usize::from(digit)).copied().unwrap_or('0'));
                    }
                }
            }
        }
        out
    }

    /// The encoding as the answer repeats it.
    pub fn said(self) -> Option<EncodingType> {
        self.0.then(|| EncodingType::from_static(EncodingType::URL))
    }

    /// Common prefixes, for an answer.
    pub fn prefixes(self, prefixes: &[String]) -> Option<Vec<CommonPrefix>> {
        let one = |prefix: &String| CommonPrefix { prefix: Some(self.write(prefix)) };
        (!prefixes.is_empty()).then(|| prefixes.iter().map(one).collect())
    }
}

/// An empty parameter counts as absent.
pub fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

async fn page(wire: &Wire, call: &Call, request: ListRequest) -> S3Result<ListPage> {
    if request.limit == 0 {
        // A request for nothing gets an empty answer, but only if the caller may list the bucket.
        let probe = ListRequest { limit: 1, ..request };
        wire.objects.list(&call.caller, probe).await.map_err(translated)?;
        return Ok(ListPage::default());
    }
    wire.objects.list(&call.caller, request).await.map_err(translated)
}

fn contents(page: &ListPage, encoding: Encoding, owners: bool) -> Option<Vec<Object>> {
    let listed = |info: &ObjectInfo| Object {
        key: Some(encoding.write(&info.key)),
        last_modified: Some(wire_time(info.modified)),
        e_tag: listed_etag(info),
        size: i64::try_from(info.size).ok(),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        owner: owners.then(|| wire_owner(&info.owner)),
        checksum_algorithm: algorithms(info),
        checksum_type: info.checksums.first().map(|sum| super::checksum::kind_name(sum.kind())),
        ..Object::default()
    };
    (!page.objects.is_empty()).then(|| page.objects.iter().map(listed).collect())
}

// A file of a share that is not archived has no tag yet.
fn listed_etag(info: &ObjectInfo) -> Option<s3s::dto::ETag> {
    (info.etag != stele_archive::ETag::NONE).then(|| wire_etag(&info.etag))
}

fn algorithms(info: &ObjectInfo) -> Option<Vec<ChecksumAlgorithm>> {
    let named = |sum: &stele_archive::Checksum| ChecksumAlgorithm::from_static(sum.algorithm.name());
    (!info.checksums.is_empty()).then(|| info.checksums.iter().map(named).collect())
}

/// ListObjects, the first version.
pub async fn first(wire: &Wire, call: Arc<Call>, request: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
    let input = request.input;
    let encoding = Encoding::of(input.encoding_type.as_ref())?;
    let limit = limit_of(input.max_keys, "max-keys")?;
    let list = ListRequest {
        bucket: input.bucket.clone(),
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: given(input.delimiter.clone()),
        after: given(input.marker.clone()),
        token: None,
        limit,
        may_end_early: false,
    };
    let page = page(wire, &call, list).await?;
    // AWS names the next marker only if a delimiter makes the last key insufficient.
    let next = page.next_marker.as_deref().filter(|_| given(input.delimiter.clone()).is_some());
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(encoding.write(input.prefix.as_deref().unwrap_or(""))),
        marker: Some(encoding.write(input.marker.as_deref().unwrap_or(""))),
        max_keys: i32::try_from(limit).ok(),
        is_truncated: Some(page.truncated),
        contents: contents(&page, encoding, true),
        common_prefixes: encoding.prefixes(&page.common_prefixes),
        delimiter: given(input.delimiter).map(|text| encoding.write(&text)),
        next_marker: next.map(|text| encoding.write(text)),
        encoding_type: encoding.said(),
        ..ListObjectsOutput::default()
    }))
}

/// ListObjectsV2.
pub async fn second(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<ListObjectsV2Input>,
) -> Answer<ListObjectsV2Output> {
    let input = request.input;
    let encoding = Encoding::of(input.encoding_type.as_ref())?;
    let limit = limit_of(input.max_keys, "max-keys")?;
    if input.continuation_token.as_deref() == Some("") {
        return Err(refuse(S3ErrorCode::InvalidArgument, "The continuation token provided is incorrect"));
    }
    let list = ListRequest {
        bucket: input.bucket.clone(),
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: given(input.delimiter.clone()),
        after: given(input.start_after.clone()),
        token: input.continuation_token.clone(),
        limit,
        may_end_early: true,
    };
    let page = page(wire, &call, list).await?;
    let count = page.objects.len() + page.common_prefixes.len();
    let owners = input.fetch_owner.unwrap_or(false);
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(encoding.write(input.prefix.as_deref().unwrap_or(""))),
        max_keys: i32::try_from(limit).ok(),
        key_count: i32::try_from(count).ok(),
        continuation_token: input.continuation_token,
        is_truncated: Some(page.truncated),
        contents: contents(&page, encoding, owners),
        common_prefixes: encoding.prefixes(&page.common_prefixes),
        delimiter: given(input.delimiter).map(|text| encoding.write(&text)),
        start_after: input.start_after.map(|text| encoding.write(&text)),
        encoding_type: encoding.said(),
        next_continuation_token: page.next_token,
        ..ListObjectsV2Output::default()
    }))
}

/// ListObjectVersions.
pub async fn versions(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<ListObjectVersionsInput>,
) -> Answer<ListObjectVersionsOutput> {
    let input = request.input;
    let encoding = Encoding::of(input.encoding_type.as_ref())?;
    let limit = limit_of(input.max_keys, "max-keys")?;
    let version_marker = match input.version_id_marker.as_deref() {
        None => None,
        Some("") => {
            return Err(refuse(S3ErrorCode::InvalidArgument, "A version-id marker cannot be empty."));
        }
        Some(text) => Some(version_of(Some(text))?.unwrap_or(VersionId::Null)),
    };
    let key_marker = given(input.key_marker.clone());
    if version_marker.is_some() && key_marker.is_none() {
        return Err(refuse(
            S3ErrorCode::InvalidArgument,
            "A version-id marker cannot be specified without a key marker.",
        ));
    }
    let list = ListVersionsRequest {
        bucket: input.bucket.clone(),
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: given(input.delimiter.clone()),
        key_marker,
        version_marker,
        limit: limit.max(1),
    };
    let mut page = wire.objects.list_versions(&call.caller, list).await.map_err(translated)?;
    if limit == 0 {
        page = stele_archive::VersionsPage::default();
    }
    let (mut objects, mut markers) = (Vec::new(), Vec::new());
    for info in &page.versions {
        let key = Some(encoding.write(&info.key));
        let last_modified = Some(wire_time(info.modified));
        let owner = Some(wire_owner(&info.owner));
        let version_id = Some(info.version.to_string());
        let is_latest = Some(info.latest);
        if info.delete_marker {
            markers.push(DeleteMarkerEntry { is_latest, key, last_modified, owner, version_id });
        } else {
            objects.push(ObjectVersion {
                checksum_algorithm: algorithms(info),
                checksum_type: info.checksums.first().map(|sum| super::checksum::kind_name(sum.kind())),
                e_tag: listed_etag(info),
                is_latest,
                key,
                last_modified,
                owner,
                size: i64::try_from(info.size).ok(),
                storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
                version_id,
                ..ObjectVersion::default()
            });
        }
    }
    Ok(S3Response::new(ListObjectVersionsOutput {
        name: Some(input.bucket),
        prefix: Some(encoding.write(input.prefix.as_deref().unwrap_or(""))),
        key_marker: Some(encoding.write(input.key_marker.as_deref().unwrap_or(""))),
        version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
        max_keys: i32::try_from(limit).ok(),
        is_truncated: Some(page.truncated),
        versions: (!objects.is_empty()).then_some(objects),
        delete_markers: (!markers.is_empty()).then_some(markers),
        common_prefixes: encoding.prefixes(&page.common_prefixes),
        delimiter: given(input.delimiter).map(|text| encoding.write(&text)),
        next_key_marker: page.next_key_marker.map(|text| encoding.write(&text)),
        next_version_id_marker: page.next_version_marker.map(|version| version.to_string()),
        encoding_type: encoding.said(),
        ..ListObjectVersionsOutput::default()
    }))
}
