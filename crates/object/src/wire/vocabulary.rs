//! The supported headers. All others are refused: an accepted but ignored header would be a broken
//! promise.
//!
//! Three kinds of `x-amz-` headers pass. Headers of the request itself are checked on arrival.
//! Headers of an operation are carried out by it, or refused by their value. Headers of S3 that
//! belong to other operations pass as on AWS, unless they ask for protection: a lock or a key
//! requested at the wrong operation is refused. All other headers are refused, whatever a later S3
//! may define for them.

use super::checksum::unsupported;
use crate::operation::Operation;
use crate::refusal::refuse;
use hyper::HeaderMap;
use s3s::{S3Error, S3ErrorCode, S3Result};
use stele_archive::Algorithm;

/// Headers of the request itself: verified together with the signature, the body and the bucket's
/// owner.
const OF_THE_REQUEST: [&str; 9] = [
    "api-version",
    "content-sha256",
    "date",
    "decoded-content-length",
    "expected-bucket-owner",
    "security-token",
    "te",
    "trailer",
    "user-agent",
];

/// Checked by the operations that use them; without effect on others, as on AWS.
const OF_OPERATIONS: [&str; 29] = [
    "acl",
    "bucket-object-lock-enabled",
    "bypass-governance-retention",
    "checksum-crc32",
    "checksum-crc32c",
    "checksum-crc64nvme",
    "checksum-sha1",
    "checksum-sha256",
    "copy-source",
    "copy-source-if-match",
    "copy-source-if-modified-since",
    "copy-source-if-none-match",
    "copy-source-if-unmodified-since",
    "copy-source-range",
    "if-match-last-modified-time",
    "if-match-size",
    "max-parts",
    "metadata-directive",
    "mp-object-size",
    "object-attributes",
    "part-number-marker",
    "rename-source",
    "source-expected-bucket-owner",
    "storage-class",
    "tagging",
    "tagging-directive",
    "website-redirect-location",
    "write-offset-bytes",
    "object-ownership",
];

/// Numbers, of which the wire crate would read the first digits and ignore what follows.
const NUMBERS: [(Operation, &str); 3] = [
    (Operation::CompleteMultipartUpload, "mp-object-size"),
    (Operation::GetObjectAttributes, "max-parts"),
    (Operation::GetObjectAttributes, "part-number-marker"),
];

const CUSTOMER: &str = "server-side-encryption-customer-";
const CUSTOMER_SOURCE: &str = "copy-source-server-side-encryption-customer-";

/// Refuses a request with an unsupported header.
pub fn check(operation: Operation, headers: &HeaderMap) -> S3Result<()> {
    for (name, value) in headers {
        let Some(rest) = name.as_str().strip_prefix("x-amz-") else { continue };
        // The wire crate passes over such a header.
        if rest == "meta-" {
            return Err(refuse(
                S3ErrorCode::InvalidArgument,
                "The header x-amz-meta- names no metadata; put a name behind it, or leave it out.",
            ));
        }
        let value = value.to_str().unwrap_or("");
        if NUMBERS.contains(&(operation, rest)) {
            one_of(value.trim().parse::<i64>().is_ok(), rest, S3ErrorCode::InvalidArgument)?;
        }
        if rest.starts_with("meta-") || OF_THE_REQUEST.contains(&rest) || OF_OPERATIONS.contains(&rest) {
            continue;
        }
        check_one(operation, headers, rest, value)?;
    }
    Ok(())
}

fn check_one(operation: Operation, headers: &HeaderMap, rest: &str, value: &str) -> S3Result<()> {
    use Operation as O;
    let makes = matches!(operation, O::PutObject | O::CopyObject | O::CreateMultipartUpload);
    match rest {
        "checksum-algorithm" | "sdk-checksum-algorithm" => match Algorithm::parse(value) {
            Some(_) => Ok(()),
            None => Err(unsupported()),
        },
        "checksum-type" => one_of(["FULL_OBJECT", "COMPOSITE"].contains(&value), rest, S3ErrorCode::InvalidRequest),
        "checksum-mode" => one_of(value.eq_ignore_ascii_case("ENABLED"), rest, S3ErrorCode::InvalidArgument),
        // Nothing is charged, so every caller may name itself as the payer.
        "request-payer" => one_of(value == "requester", rest, S3ErrorCode::InvalidArgument),
        "optional-object-attributes" => one_of(value == "RestoreStatus", rest, S3ErrorCode::InvalidArgument),
        // A policy never locks a storage administrator out of itself, so there is nothing to
        // confirm.
        "confirm-remove-self-bucket-access" if operation == O::PutBucketPolicy => {
            one_of(["true", "false"].contains(&value), rest, S3ErrorCode::InvalidArgument)
        }
        // Nothing moves to another storage class, so no object is too small for that.
        "transition-default-minimum-object-size" if operation == O::PutBucketLifecycleConfiguration => one_of(
            ["all_storage_classes_128K", "varies_by_storage_class"].contains(&value),
            rest,
            S3ErrorCode::InvalidArgument,
        ),
        // Every destination is validated, whether or not the client wants that.
        "skip-destination-validation" if operation == O::PutBucketNotificationConfiguration => {
            one_of(["true", "false"].contains(&value), rest, S3ErrorCode::InvalidArgument)
        }
        "bucket-namespace" if value == "global" => Ok(()),
        "object-lock-mode" | "object-lock-retain-until-date" | "object-lock-legal-hold" if makes => Ok(()),
        "object-lock-mode" | "object-lock-retain-until-date" | "object-lock-legal-hold" => Err(misplaced(rest)),
        "server-side-encryption" if makes => check_customer(headers),
        // A request for the existing encryption is allowed everywhere.
        "server-side-encryption" => one_of(value == "AES256", rest, S3ErrorCode::InvalidArgument),
        "server-side-encryption-bucket-key-enabled" if value == "false" => Ok(()),
        "server-side-encryption-aws-kms-key-id"
        | "server-side-encryption-context"
        | "server-side-encryption-bucket-key-enabled" => check_kms(headers),
        _ if is_customers(rest, CUSTOMER) && takes_customer_key(operation) => Ok(()),
        _ if is_customers(rest, CUSTOMER_SOURCE) && matches!(operation, O::CopyObject | O::UploadPartCopy) => Ok(()),
        _ if is_customers(rest, CUSTOMER) || is_customers(rest, CUSTOMER_SOURCE) => Err(misplaced(rest)),
        _ if rest.starts_with("grant-") && operation == O::CreateBucket => Err(refuse(
            S3ErrorCode::InvalidBucketAclWithObjectOwnership,
            "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
        )),
        _ if rest.starts_with("grant-") => {
            Err(refuse(S3ErrorCode::AccessControlListNotSupported, "The bucket does not allow ACLs"))
        }
        _ if rest.starts_with("checksum-") => Err(unsupported()),
        _ => Err(refuse(
            S3ErrorCode::NotImplemented,
            format!("A header you provided implies functionality that is not implemented: x-amz-{rest}"),
        )),
    }
}

fn is_customers(rest: &str, prefix: &str) -> bool {
    rest.strip_prefix(prefix).is_some_and(|field| ["algorithm", "key", "key-md5"].contains(&field))
}

fn takes_customer_key(operation: Operation) -> bool {
    use Operation as O;
    matches!(
        operation,
        O::CompleteMultipartUpload
            | O::CopyObject
            | O::CreateMultipartUpload
            | O::GetObject
            | O::GetObjectAttributes
            | O::HeadObject
            | O::ListParts
            | O::PutObject
            | O::UploadPart
            | O::UploadPartCopy
    )
}

fn check_customer(headers: &HeaderMap) -> S3Result<()> {
    if headers.keys().any(|name| name.as_str().starts_with("x-amz-server-side-encryption-customer-")) {
        return Err(refuse(
            S3ErrorCode::InvalidArgument,
            "Server Side Encryption with Customer provided key is incompatible with the encryption method specified",
        ));
    }
    Ok(())
}

fn check_kms(headers: &HeaderMap) -> S3Result<()> {
    // For a complete KMS request, KMS itself is missing; the operation reports that.
    let asked = headers.get("x-amz-server-side-encryption").and_then(|value| value.to_str().ok());
    if asked.is_some_and(|asked| asked.starts_with("aws:kms")) {
        return Ok(());
    }
    Err(refuse(
        S3ErrorCode::InvalidArgument,
        "Server Side Encryption with AWS KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms",
    ))
}

fn one_of(holds: bool, rest: &str, code: S3ErrorCode) -> S3Result<()> {
    match holds {
        true => Ok(()),
        false => Err(refuse(code, format!("Value for x-amz-{rest} header is invalid."))),
    }
}

fn misplaced(rest: &str) -> S3Error {
    refuse(S3ErrorCode::InvalidArgument, format!("x-amz-{rest} header is not supported for this operation."))
}
