//! Digests of content: those that clients send, which are verified and stored, and BLAKE3.
//!
//! One pass over memory computes all wanted digests except the MD5, which is gathered and computed
//! together with other contents. CRCs of parts combine into that of the whole object. SHA-1 and
//! SHA-256 of a multipart object exist only as composites: the hash of the parts' hashes, as on
//! AWS.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;
use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use md5::{Digest as _, Md5};
use minicbor::{Decode, Encode};
use stele_digests::{Lanes, Md5Stream};

use crate::model::error::{ArchiveError, Result};
use crate::model::version::ETag;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum Algorithm {
    #[n(0)]
    Crc32,
    #[n(1)]
    Crc32c,
    #[n(2)]
    Crc64Nvme,
    #[n(3)]
    Sha1,
    #[n(4)]
    Sha256,
}

impl Algorithm {
    pub const ALL: [Algorithm; 5] =
        [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme, Algorithm::Sha1, Algorithm::Sha256];

    /// As in `x-amz-checksum-algorithm`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64Nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
        }
    }

    pub fn parse(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// Bytes of a value.
    pub fn length(self) -> usize {
        match self {
            Algorithm::Crc32 | Algorithm::Crc32c => 4,
            Algorithm::Crc64Nvme => 8,
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
        }
    }

    /// The parameters of a CRC. None: other algorithms, whose whole-object value cannot be combined
    /// from the parts' values.
    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Algorithm::Sha1 | Algorithm::Sha256 => None,
        }
    }

    /// The type for a multipart upload that names none: full object for CRC64NVME, composite for
    /// the others.
    pub fn default_kind(self) -> ChecksumKind {
        if self == Algorithm::Crc64Nvme { ChecksumKind::FullObject } else { ChecksumKind::Composite }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum ChecksumKind {
    #[n(0)]
    FullObject,
    /// Of the parts' checksums, one after another.
    #[n(1)]
    Composite,
}

/// One checksum of a version or part.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Checksum {
    #[n(0)]
    pub algorithm: Algorithm,
    #[cbor(n(1), with = "minicbor::bytes")]
    pub value: Vec<u8>,
    /// The number of parts of a composite; none for the whole content.
    #[n(2)]
    pub parts: Option<u32>,
}

impl Checksum {
    /// Parses the base64 of a header or trailer, with `-parts` behind a composite.
    pub fn parse(algorithm: Algorithm, text: &str) -> Result<Checksum> {
        let invalid =
            || ArchiveError::InvalidRequest(format!("`{text}` is not the base64 of a {} checksum", algorithm.name()));
        let (value, parts) = match text.split_once('-') {
            Some((value, parts)) => (value, Some(parts.parse().map_err(|_| invalid())?)),
            None => (text, None),
        };
        let value = from_base64(value).filter(|value| value.len() == algorithm.length()).ok_or_else(invalid)?;
        Ok(Checksum { algorithm, value, parts })
    }

    pub fn kind(&self) -> ChecksumKind {
        if self.parts.is_some() { ChecksumKind::Composite } else { ChecksumKind::FullObject }
    }
}

/// Base64, with `-parts` behind a composite.
impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_base64(&self.value))?;
        self.parts.map_or(Ok(()), |parts| write!(f, "-{parts}"))
    }
}

/// The digests that the client expects of the content. Headers carry them before the body, trailers
/// after it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Expected {
    /// `Content-MD5`.
    pub md5: Option<[u8; 16]>,
    /// `x-amz-content-sha256`, if it is a hash.
    pub sha256: Option<[u8; 32]>,
    /// `x-stele-content-blake3`.
    pub blake3: Option<[u8; 32]>,
    pub checksums: Vec<Checksum>,
}

/// Computes the digests of a content that arrives in pieces. Chunks gathered for the MD5 stay in
/// memory until they are hashed: about [`Lanes::BACKLOG_MAX`] for each content, and as much again
/// during the hashing.
pub(crate) struct Hashes {
    blake3: blake3::Hasher,
    md5: Option<Md5Stream>,
    others: Vec<(Algorithm, Hasher)>,
    length: u64,
}

enum Hasher {
    Crc(Box<crc_fast::Digest>),
    Sha(digest::Context),
}

/// The digests to compute of a content. Its BLAKE3 is always computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub md5: bool,
    pub others: Vec<Algorithm>,
}

/// All digests of one content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Digests {
    pub length: u64,
    pub blake3: [u8; 32],
    pub md5: Option<[u8; 16]>,
    pub checksums: Vec<Checksum>,
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Hasher {
        match (algorithm.crc(), algorithm) {
            (Some(crc), _) => Hasher::Crc(Box::new(crc_fast::Digest::new(crc))),
            (None, Algorithm::Sha1) => Hasher::Sha(digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            (None, _) => Hasher::Sha(digest::Context::new(&digest::SHA256)),
        }
    }

    fn update(&mut self, data: &[u8]) {
        match self {
            Hasher::Crc(digest) => digest.update(data),
            Hasher::Sha(context) => context.update(data),
        }
    }

    fn finish(self, algorithm: Algorithm) -> Vec<u8> {
        match self {
            Hasher::Crc(digest) => crc_bytes(algorithm, digest.finalize()),
            Hasher::Sha(context) => context.finish().as_ref().to_vec(),
        }
    }
}

impl Hashes {
    pub fn new(lanes: &Arc<Lanes>, wanted: Wanted) -> Hashes {
        let md5 = wanted.md5.then(|| Md5Stream::new(lanes));
        let mut hashes = Hashes { blake3: blake3::Hasher::new(), md5, others: Vec::new(), length: 0 };
        wanted.others.into_iter().for_each(|algorithm| hashes.also(algorithm));
        hashes
    }

    /// Adds an algorithm. Only before the first byte.
    fn also(&mut self, algorithm: Algorithm) {
        if !self.computes(algorithm) {
            self.others.push((algorithm, Hasher::new(algorithm)));
        }
    }

    pub fn computes(&self, algorithm: Algorithm) -> bool {
        self.others.iter().any(|(there, _)| *there == algorithm)
    }

    /// Takes the next bytes for the MD5. They may run ahead of those for `update`; in the end both
    /// have had all bytes.
    pub fn gather(&mut self, chunk: Bytes) {
        if let Some(md5) = &mut self.md5 {
            md5.push(chunk);
        }
    }

    /// The next bytes for everything but the MD5.
    pub fn update(&mut self, data: &[u8]) {
        self.blake3.update(data);
        for (_, hasher) in &mut self.others {
            hasher.update(data);
        }
        self.length += data.len() as u64;
    }

    pub fn finish(self) -> Digests {
        Digests {
            length: self.length,
            blake3: *self.blake3.finalize().as_bytes(),
            md5: self.md5.map(Md5Stream::finish),
            checksums: self
                .others
                .into_iter()
                .map(|(algorithm, hasher)| Checksum { algorithm, value: hasher.finish(algorithm), parts: None })
                .collect(),
        }
    }
}

impl Digests {
    /// The entity tag of an object with this content: by its MD5, if that was computed.
    pub fn etag(&self) -> ETag {
        self.md5.map_or_else(|| ETag::of_blake3(&self.blake3), |md5| ETag { md5, parts: None })
    }

    /// Refuses a digest that differs from the expected one, or that was expected and not computed.
    pub fn verify(&self, expected: &Expected) -> Result<()> {
        let bad = |algorithm, expected: &[u8], computed: &[u8]| {
            Err(ArchiveError::BadDigest { algorithm, expected: to_base64(expected), computed: to_base64(computed) })
        };
        match (expected.md5, self.md5) {
            (Some(wanted), Some(md5)) if wanted != md5 => return bad("MD5", &wanted, &md5),
            (Some(_), None) => return Err(unannounced("MD5")),
            _ => {}
        }
        if let Some(blake3) = expected.blake3
            && blake3 != self.blake3
        {
            return bad("BLAKE3", &blake3, &self.blake3);
        }
        let sha256 =
            expected.sha256.map(|value| Checksum { algorithm: Algorithm::Sha256, value: value.to_vec(), parts: None });
        for wanted in expected.checksums.iter().chain(&sha256) {
            match self.checksums.iter().find(|have| have.algorithm == wanted.algorithm) {
                Some(have) if have.value == wanted.value => {}
                Some(have) => return bad(wanted.algorithm.name(), &wanted.value, &have.value),
                None => return Err(unannounced(wanted.algorithm.name())),
            }
        }
        Ok(())
    }
}

fn unannounced(algorithm: &str) -> ArchiveError {
    ArchiveError::InvalidRequest(format!(
        "a {algorithm} checksum came in the trailers, but the headers did not announce it"
    ))
}

/// The entity tag of a multipart object.
pub(crate) fn composite_etag<'a>(parts: impl ExactSizeIterator<Item = &'a [u8; 16]>) -> ETag {
    let count = parts.len() as u32;
    let mut md5 = Md5::new();
    parts.for_each(|part| md5.update(part));
    ETag { md5: md5.finalize().into(), parts: Some(count) }
}

/// The BLAKE3 of the parts' BLAKE3s.
pub(crate) fn composite_blake3<'a>(parts: impl Iterator<Item = &'a [u8; 32]>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    parts.for_each(|part| {
        hasher.update(part);
    });
    *hasher.finalize().as_bytes()
}

/// The composite checksum over the parts' checksums.
pub(crate) fn composite(algorithm: Algorithm, parts: &[&Checksum]) -> Checksum {
    let mut hasher = Hasher::new(algorithm);
    parts.iter().for_each(|part| hasher.update(&part.value));
    Checksum { algorithm, value: hasher.finish(algorithm), parts: Some(parts.len() as u32) }
}

/// The checksum of the whole object from those of its parts and their lengths; CRCs only.
pub(crate) fn joined(algorithm: Algorithm, parts: &[(&Checksum, u64)]) -> Option<Checksum> {
    let crc = algorithm.crc()?;
    let mut whole: Option<u64> = None;
    for (part, length) in parts {
        let value = crc_value(&part.value);
        whole = Some(match whole {
            None => value,
            Some(before) => crc_fast::checksum_combine(crc, before, value, *length),
        });
    }
    Some(Checksum { algorithm, value: crc_bytes(algorithm, whole?), parts: None })
}

fn crc_bytes(algorithm: Algorithm, value: u64) -> Vec<u8> {
    value.to_be_bytes()[8 - algorithm.length()..].to_vec()
}

fn crc_value(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![0; text.len() / 2];
    hex_into(text, &mut bytes, true).then_some(bytes)
}

/// Reads hexadecimal digits for exactly these bytes. `any_case`: capitals count too.
pub(crate) fn hex_into(text: &str, bytes: &mut [u8], any_case: bool) -> bool {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' if any_case => Some(byte - b'A' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() || pairs.len() != bytes.len() {
        return false;
    }
    for (pair, byte) in pairs.zip(bytes) {
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return false };
        *byte = high << 4 | low;
    }
    true
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = BASE64[(word >> (18 - 6 * at)) as usize & 63] as char;
            text.push(if at <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

/// Standard alphabet, padding required, nothing else tolerated.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    if padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut word, mut bits) = (0u32, 0);
    for digit in body.bytes() {
        let value = BASE64.iter().position(|there| *there == digit)?;
        word = word << 6 | value as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
            word &= (1 << bits) - 1;
        }
    }
    (word == 0).then_some(bytes)
}

#[cfg(test)]
mod tests;
