//! Receipts: a write, a deletion, a change of retention or of a hold answers with one if
//! `x-stele-receipt: 1` asks for it.
//!
//! The act has taken place when its receipt is made. A receipt that cannot be made therefore never
//! makes the request fail: the answer says so in `x-stele-receipt-error`, and `stele receipt get`
//! gives the receipt later.

use super::Wire;
use super::checksum::CONTENT_BLAKE3;
use crate::call::Call;
use crate::operation::Operation;
use crate::refusal::refuse;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use s3s::{S3Error, S3ErrorCode, S3Response, S3Result};

const RECEIPT: HeaderName = HeaderName::from_static("x-stele-receipt");
const CLASS: HeaderName = HeaderName::from_static("x-stele-class");
const RECEIPT_ERROR: HeaderName = HeaderName::from_static("x-stele-receipt-error");

/// Largest receipt in an answer, in base64. Names of the greatest length need most of it.
const RECEIPT_MAX: usize = 32 << 10;

/// Refuses headers of Stele's own that this operation does not carry out.
pub fn check(operation: Operation, headers: &HeaderMap) -> S3Result<()> {
    use Operation as O;
    let gives = matches!(
        operation,
        O::PutObject
            | O::CopyObject
            | O::CompleteMultipartUpload
            | O::DeleteObject
            | O::PutObjectRetention
            | O::PutObjectLegalHold
    );
    let classed = matches!(operation, O::PutObject | O::CopyObject | O::CreateMultipartUpload);
    let has_content = matches!(operation, O::PutObject | O::UploadPart);
    for (name, value) in own(headers) {
        if (*name == CLASS && classed) || (*name == CONTENT_BLAKE3 && has_content) {
            continue;
        }
        if *name != RECEIPT || !gives {
            return Err(without_use(name));
        }
        if value.as_bytes() != b"1" {
            return Err(refuse(S3ErrorCode::InvalidArgument, "The only value of x-stele-receipt is 1."));
        }
    }
    Ok(())
}

/// Refuses all headers of Stele's own. A form has fields instead.
pub fn refuse_own(headers: &HeaderMap) -> S3Result<()> {
    own(headers).next().map_or(Ok(()), |(name, _)| Err(without_use(name)))
}

fn own(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    headers.iter().filter(|(name, _)| name.as_str().starts_with("x-stele-"))
}

fn without_use(name: &HeaderName) -> S3Error {
    refuse(
        S3ErrorCode::NotImplemented,
        format!("A header you provided implies functionality that this operation does not have: {name}"),
    )
}

/// The management class that the request names.
pub fn class_named(headers: &HeaderMap) -> S3Result<Option<String>> {
    let invalid = |_| refuse(S3ErrorCode::InvalidArgument, "The value of x-stele-class is the name of a class.");
    let mut named = headers.get_all(CLASS).iter();
    let class = named.next().map(|name| name.to_str().map(str::to_owned).map_err(invalid)).transpose()?;
    match named.next() {
        None => Ok(class),
        Some(_) => Err(refuse(S3ErrorCode::InvalidArgument, "A request names one class.")),
    }
}

/// Whether the request asks for a receipt.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    headers.contains_key(RECEIPT)
}

/// An act that may have a receipt.
pub struct Act<'a> {
    pub wanted: bool,
    pub bucket: &'a str,
    pub key: &'a str,
    /// The number of its audit record. None: the request changed nothing.
    pub logged: Option<u64>,
    /// SHA-256 of the content, if it was signed and verified.
    pub sha256: Option<[u8; 32]>,
}

/// Adds the receipt to the answer, if it was asked for.
pub async fn add<T>(wire: &Wire, call: &Call, act: Act<'_>, response: &mut S3Response<T>) {
    if !act.wanted {
        return;
    }
    let (name, text) = match make(wire, call, &act).await {
        Ok(text) => (RECEIPT, text),
        Err(reason) => {
            tracing::warn!("no receipt was given for {}/{}: {reason}", act.bucket, act.key);
            (RECEIPT_ERROR, reason)
        }
    };
    let printable: String = text.chars().filter(|character| (' '..='~').contains(character)).collect();
    if let Ok(value) = HeaderValue::from_str(&printable) {
        response.headers.insert(name, value);
    }
}

async fn make(wire: &Wire, call: &Call, act: &Act<'_>) -> Result<String, String> {
    if wire.objects.is_share(act.bucket) {
        return Err("the audit log names a file of a share by its archive key: there is no receipt by its path".into());
    }
    let Some(logged) = act.logged else { return Err("the request changed nothing".to_owned()) };
    let receipt = wire.archive.receipt_of_act(&call.caller, act.bucket, act.key, logged, act.sha256).await;
    let receipt = receipt.map_err(|error| error.to_string())?;
    let text = base64_simd::STANDARD.encode_to_string(receipt.to_json());
    match text.len() > RECEIPT_MAX {
        true => Err(format!("a receipt of {} bytes, at most {RECEIPT_MAX} fit into an answer", text.len())),
        false => Ok(text),
    }
}
