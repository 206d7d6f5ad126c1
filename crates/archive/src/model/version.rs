//! The types of objects and versions in the interface: ids, tags, retention, and the properties of
//! an object.

use std::collections::BTreeMap;
use std::fmt;

use minicbor::{Decode, Encode};

use crate::model::checksum::Checksum;
use crate::model::error::{ArchiveError, Result};
use crate::model::time::Timestamp;

/// Names a version of a key. The null version is the one written while the bucket was not
/// versioned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum VersionId {
    Null,
    /// The version's number in the store, and random bits that keep the id from being guessed.
    Number(u64, u64),
}

impl VersionId {
    /// Parses what `Display` wrote: `null` or 32 hexadecimal digits.
    pub fn parse(text: &str) -> Result<VersionId> {
        let invalid = || ArchiveError::InvalidArgument(format!("`{text}` is not a version id"));
        if text == "null" {
            return Ok(VersionId::Null);
        }
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
            return Err(invalid());
        }
        let (number, salt) = text.split_at(16);
        match (u64::from_str_radix(number, 16), u64::from_str_radix(salt, 16)) {
            (Ok(number), Ok(salt)) => Ok(VersionId::Number(number, salt)),
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionId::Null => f.write_str("null"),
            VersionId::Number(number, salt) => write!(f, "{number:016x}{salt:016x}"),
        }
    }
}

/// The entity tag: the MD5 of the content; for multipart objects the MD5 of the parts' MD5s, and
/// their number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Encode, Decode)]
pub struct ETag {
    /// Where `parts` is 0: the first half of the content's BLAKE3.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub md5: [u8; 16],
    #[n(1)]
    pub parts: Option<u32>,
}

impl ETag {
    /// Of content that has no tag yet: a delete marker, or a file of a share that is not archived.
    pub const NONE: ETag = ETag { md5: [0; 16], parts: None };

    /// Of content that its client named by this BLAKE3, and whose MD5 was therefore not computed.
    /// Clients take no tag with a `-` for an MD5, and no upload has 0 parts.
    pub fn of_blake3(blake3: &[u8; 32]) -> ETag {
        let mut md5 = [0; 16];
        md5.copy_from_slice(&blake3[..16]);
        ETag { md5, parts: Some(0) }
    }

    /// Whether it comes from the content's BLAKE3.
    pub fn is_of_blake3(&self) -> bool {
        self.parts == Some(0)
    }

    /// Parses `hex`, `hex-parts`, with or without quotes.
    pub fn parse(text: &str) -> Option<ETag> {
        let text = text.trim().trim_matches('"');
        let (digest, parts) = match text.split_once('-') {
            Some((digest, parts)) => (digest, Some(parts.parse().ok()?)),
            None => (text, None),
        };
        Some(ETag { md5: crate::model::checksum::from_hex(digest)?.try_into().ok()?, parts })
    }
}

/// Without quotes.
impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::model::checksum::to_hex(&self.md5))?;
        self.parts.map_or(Ok(()), |parts| write!(f, "-{parts}"))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum RetentionMode {
    /// A caller with the permission may shorten or lift it on explicit request.
    #[n(0)]
    Governance,
    /// No caller can shorten or lift it.
    #[n(1)]
    Compliance,
}

impl fmt::Display for RetentionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RetentionMode::Governance => "GOVERNANCE",
            RetentionMode::Compliance => "COMPLIANCE",
        })
    }
}

/// A version's retention: no deletion before `until` on the compliance clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Retention {
    #[n(0)]
    pub mode: RetentionMode,
    #[n(1)]
    pub until: Timestamp,
}

/// Tags in the order of their keys; at most 10 on an object.
pub type Tags = BTreeMap<String, String>;

/// Metadata that the client sends with the content.
#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Metadata {
    /// System headers by their lower-case HTTP names: `content-type`, `content-encoding`,
    /// `content-disposition`, `content-language`, `cache-control`, `expires`,
    /// `x-amz-website-redirect-location`, `x-amz-storage-class`.
    #[n(0)]
    pub headers: BTreeMap<String, String>,
    /// The client's own names, without `x-amz-meta-`. Names and values together at most 8 KiB.
    #[n(1)]
    pub user: BTreeMap<String, String>,
}

/// All properties of a version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectInfo {
    pub bucket: String,
    pub key: String,
    pub version: VersionId,
    /// The bucket has or had versioning. Frontends then name the version in their answers, the null
    /// version too.
    pub versioned: bool,
    /// No newer version of the key exists. Known to listings and to reads without a version.
    pub latest: bool,
    pub delete_marker: bool,
    pub size: u64,
    pub etag: ETag,
    pub modified: Timestamp,
    pub metadata: Metadata,
    pub tags: Tags,
    pub retention: Option<Retention>,
    pub legal_hold: bool,
    /// The number of parts of a multipart object.
    pub parts: Option<u32>,
    /// Checksums that the client sent or asked for, verified on arrival. BLAKE3 is separate.
    pub checksums: Vec<Checksum>,
    /// BLAKE3 of the content. Of a multipart object: BLAKE3 over its parts' BLAKE3s.
    pub blake3: [u8; 32],
    /// The base64 MD5 of the customer's key, if the customer keeps it (SSE-C).
    pub customer_key_md5: Option<String>,
    /// The actor that wrote it.
    pub owner: String,
    /// Of a version that was just stored: the number of its audit record.
    pub logged: Option<u64>,
}

/// The properties of one part in `GetObjectAttributes`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartInfo {
    pub number: u32,
    pub size: u64,
    pub etag: ETag,
    pub modified: Timestamp,
    pub checksums: Vec<Checksum>,
}

#[cfg(test)]
mod tests;
