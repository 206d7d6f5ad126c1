//! Checksums in the protocol: those that headers and trailers claim for a body, and those in
//! answers.

use crate::refusal::{malformed_trailer, refuse};
use hex_simd::AsciiCase;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use s3s::dto::ChecksumType;
use s3s::{S3Error, S3ErrorCode, S3Result};
use stele_archive::{Algorithm, Checksum, ChecksumKind, Expected};

/// The BLAKE3 of the body in hexadecimal digits, by which a client names the content: the object
/// then has an entity tag from it, and no MD5 is computed. The answer repeats it.
pub const CONTENT_BLAKE3: HeaderName = HeaderName::from_static("x-stele-content-blake3");

/// The header and trailer of each algorithm.
const HEADERS: [(Algorithm, &str); 5] = [
    (Algorithm::Crc32, "x-amz-checksum-crc32"),
    (Algorithm::Crc32c, "x-amz-checksum-crc32c"),
    (Algorithm::Crc64Nvme, "x-amz-checksum-crc64nvme"),
    (Algorithm::Sha1, "x-amz-checksum-sha1"),
    (Algorithm::Sha256, "x-amz-checksum-sha256"),
];

fn algorithm_of(header: &str) -> Option<Algorithm> {
    HEADERS.iter().find(|(_, name)| name.eq_ignore_ascii_case(header)).map(|(found, _)| *found)
}

/// The digests that a request names for its body.
#[derive(Default, Debug)]
pub struct Digests {
    /// Values known before the body.
    pub expected: Expected,
    /// Algorithms whose values follow the body.
    pub announced: Vec<Algorithm>,
    /// Requested algorithms, with or without a value.
    pub algorithms: Vec<Algorithm>,
}

/// Reads `Content-MD5`, `x-stele-content-blake3`, `x-amz-checksum-*`, `x-amz-trailer` and
/// `x-amz-sdk-checksum-algorithm`.
pub fn header_digests(headers: &HeaderMap) -> S3Result<Digests> {
    let mut digests = Digests { expected: expected_md5(headers)?, ..Digests::default() };
    digests.expected.blake3 = expected_blake3(headers)?;
    for (algorithm, name) in HEADERS {
        let Some(value) = headers.get(name) else {
            continue;
        };
        let parsed = value.to_str().ok().and_then(|text| Checksum::parse(algorithm, text).ok());
        let checksum = parsed
            .filter(|checksum| checksum.parts.is_none())
            .ok_or_else(|| refuse(S3ErrorCode::InvalidRequest, format!("Value for {name} header is invalid.")))?;
        digests.expected.checksums.push(checksum);
        digests.algorithms.push(algorithm);
    }
    digests.announced = announced(headers)?;
    digests.algorithms.extend(&digests.announced);
    if digests.algorithms.len() > 1 {
        return Err(refuse(
            S3ErrorCode::InvalidRequest,
            "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.",
        ));
    }
    check_announcement(headers, &digests)?;
    Ok(digests)
}

fn expected_md5(headers: &HeaderMap) -> S3Result<Expected> {
    let Some(md5) = headers.get("content-md5") else {
        return Ok(Expected::default());
    };
    let decoded = base64_simd::STANDARD.decode_to_vec(md5.as_bytes()).ok();
    let value = decoded.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let value =
        value.ok_or_else(|| refuse(S3ErrorCode::InvalidDigest, "The Content-MD5 you specified was invalid."))?;
    Ok(Expected { md5: Some(value), ..Expected::default() })
}

fn expected_blake3(headers: &HeaderMap) -> S3Result<Option<[u8; 32]>> {
    let mut named = headers.get_all(CONTENT_BLAKE3).iter();
    let Some(digits) = named.next() else { return Ok(None) };
    let decoded = hex_simd::decode_to_vec(digits).ok().and_then(|bytes| bytes.try_into().ok());
    decoded.filter(|_| named.next().is_none()).map(Some).ok_or_else(|| {
        refuse(S3ErrorCode::InvalidDigest, "The value of x-stele-content-blake3 is a BLAKE3 in 64 hexadecimal digits.")
    })
}

/// Says in the answer which BLAKE3 the body was found to have, if the request named one.
pub fn confirm(digests: &Digests, headers: &mut HeaderMap) {
    let digits = digests.expected.blake3.map(|blake3| hex_simd::encode_to_string(blake3, AsciiCase::Lower));
    if let Some(value) = digits.and_then(|digits| HeaderValue::try_from(digits).ok()) {
        headers.insert(CONTENT_BLAKE3, value);
    }
}

fn announced(headers: &HeaderMap) -> S3Result<Vec<Algorithm>> {
    let trailer = headers.get("x-amz-trailer").and_then(|value| value.to_str().ok());
    let names = trailer.unwrap_or("").split(',').map(str::trim).filter(|name| !name.is_empty());
    names
        .map(|name| {
            algorithm_of(name).ok_or_else(|| {
                refuse(S3ErrorCode::InvalidRequest, "The value specified in the x-amz-trailer header is not supported")
            })
        })
        .collect()
}

// The headers of a completion name the checksum of the resulting object, not of the document.
fn completion_digests(headers: &HeaderMap) -> S3Result<Digests> {
    Ok(Digests { expected: expected_md5(headers)?, announced: announced(headers)?, algorithms: Vec::new() })
}

// An SDK that names its algorithm must also send the value; otherwise its client would wrongly
// believe in a check.
fn check_announcement(headers: &HeaderMap, digests: &Digests) -> S3Result<()> {
    let Some(named) = headers.get("x-amz-sdk-checksum-algorithm") else {
        return Ok(());
    };
    let algorithm = named.to_str().ok().and_then(Algorithm::parse).ok_or_else(unsupported)?;
    // A request without content, such as the start of a multipart upload, only names the algorithm.
    let content = headers.get("content-length").is_some_and(|length| length != "0");
    if digests.algorithms.is_empty() && content && !headers.contains_key("content-md5") {
        return Err(refuse(
            S3ErrorCode::InvalidRequest,
            "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were found.",
        ));
    }
    if digests.algorithms.iter().any(|found| *found != algorithm) {
        return Err(refuse(
            S3ErrorCode::InvalidRequest,
            "Value for x-amz-sdk-checksum-algorithm header does not match the checksum sent.",
        ));
    }
    Ok(())
}

/// The values in the trailers; every announced one must be there. A checksum of another algorithm
/// is refused, announced or not: its sender believes that it is verified.
pub fn trailer_digests(announced: &[Algorithm], trailers: &[(String, String)]) -> S3Result<Expected> {
    let mut expected = Expected::default();
    for (name, value) in trailers {
        let Some(algorithm) = algorithm_of(name) else {
            if name.to_ascii_lowercase().starts_with("x-amz-checksum-") {
                return Err(unsupported());
            }
            continue;
        };
        let checksum = Checksum::parse(algorithm, value).map_err(|_| {
            refuse(S3ErrorCode::InvalidRequest, format!("Value for {name} trailing header is invalid."))
        })?;
        expected.checksums.push(checksum);
    }
    for algorithm in announced {
        if !expected.checksums.iter().any(|found| found.algorithm == *algorithm) {
            return Err(malformed_trailer(
                "The request contained trailing data that was not well-formed or did not conform to our published schema: an announced trailer is missing.",
            ));
        }
    }
    Ok(expected)
}

/// Verifies a body that is held completely (XML) against its headers. `completes`: it is the part
/// list of an upload.
pub fn verify_document(
    headers: &HeaderMap,
    trailers: &[(String, String)],
    body: &[u8],
    completes: bool,
) -> S3Result<()> {
    let digests = if completes { completion_digests(headers)? } else { header_digests(headers)? };
    let late = trailer_digests(&digests.announced, trailers)?;
    let bad = |what: &str| {
        refuse(S3ErrorCode::BadDigest, format!("The {what} you specified did not match the calculated checksum."))
    };
    if let Some(md5) = digests.expected.md5 {
        use md5::Digest;
        if md5::Md5::digest(body).as_slice() != md5 {
            return Err(bad("Content-MD5"));
        }
    }
    for wanted in digests.expected.checksums.iter().chain(&late.checksums) {
        if computed(wanted.algorithm, body) != wanted.value {
            return Err(bad(wanted.algorithm.name()));
        }
    }
    Ok(())
}

/// Whether a header and its value are the checksum of no bytes.
pub fn is_of_nothing(header: &str, value: &str) -> bool {
    algorithm_of(header).is_some_and(|algorithm| {
        let checksum = Checksum::parse(algorithm, value);
        checksum.is_ok_and(|checksum| checksum.parts.is_none() && checksum.value == computed(algorithm, &[]))
    })
}

fn computed(algorithm: Algorithm, body: &[u8]) -> Vec<u8> {
    use aws_lc_rs::digest;
    use crc_fast::{CrcAlgorithm, checksum};
    let crc = |kind, length: usize| {
        let bytes = checksum(kind, body).to_be_bytes();
        bytes.iter().skip(8 - length).copied().collect()
    };
    let sha = |kind| digest::digest(kind, body).as_ref().to_vec();
    match algorithm {
        Algorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc, 4),
        Algorithm::Crc32c => crc(CrcAlgorithm::Crc32Iscsi, 4),
        Algorithm::Crc64Nvme => crc(CrcAlgorithm::Crc64Nvme, 8),
        Algorithm::Sha1 => sha(&digest::SHA1_FOR_LEGACY_USE_ONLY),
        Algorithm::Sha256 => sha(&digest::SHA256),
    }
}

/// The checksum fields of an answer.
#[derive(Default)]
pub struct Said {
    /// Base64, with the number of parts after a composite.
    pub crc32: Option<String>,
    /// As above.
    pub crc32c: Option<String>,
    /// As above.
    pub crc64nvme: Option<String>,
    /// As above.
    pub sha1: Option<String>,
    /// As above.
    pub sha256: Option<String>,
    /// Whether it covers the whole object, or the checksums of its parts.
    pub kind: Option<ChecksumType>,
}

/// The checksum fields for these checksums.
pub fn said(checksums: &[Checksum]) -> Said {
    let mut said = Said::default();
    for checksum in checksums {
        let text = Some(checksum.to_string());
        match checksum.algorithm {
            Algorithm::Crc32 => said.crc32 = text,
            Algorithm::Crc32c => said.crc32c = text,
            Algorithm::Crc64Nvme => said.crc64nvme = text,
            Algorithm::Sha1 => said.sha1 = text,
            Algorithm::Sha256 => said.sha256 = text,
        }
        said.kind = Some(kind_name(checksum.kind()));
    }
    said
}

/// A kind's name.
pub fn kind_name(kind: ChecksumKind) -> ChecksumType {
    ChecksumType::from_static(match kind {
        ChecksumKind::FullObject => ChecksumType::FULL_OBJECT,
        ChecksumKind::Composite => ChecksumType::COMPOSITE,
    })
}

/// Fills the five checksum fields that many answers share.
macro_rules! say_checksums {
    ($output:expr, $said:expr) => {
        let said = $said;
        $output.checksum_crc32 = said.crc32;
        $output.checksum_crc32c = said.crc32c;
        $output.checksum_crc64nvme = said.crc64nvme;
        $output.checksum_sha1 = said.sha1;
        $output.checksum_sha256 = said.sha256;
    };
}
pub(crate) use say_checksums;

/// The checksums that a request document names, from its five fields.
pub fn named(fields: [(Algorithm, Option<&str>); 5]) -> S3Result<Vec<Checksum>> {
    let mut checksums = Vec::new();
    for (algorithm, text) in fields {
        if let Some(text) = text {
            let checksum = Checksum::parse(algorithm, text).map_err(|_| {
                refuse(
                    S3ErrorCode::InvalidRequest,
                    format!("The value of the {} checksum is invalid.", algorithm.name()),
                )
            })?;
            checksums.push(checksum);
        }
    }
    Ok(checksums)
}

/// The refusal of an algorithm that S3 has and this store has not, and of one that S3 does not
/// have.
pub fn unsupported() -> S3Error {
    refuse(
        S3ErrorCode::InvalidRequest,
        "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]",
    )
}

/// The algorithm that a request names.
pub fn algorithm_named(text: Option<&str>) -> S3Result<Option<Algorithm>> {
    text.map(|text| Algorithm::parse(text).ok_or_else(unsupported)).transpose()
}
