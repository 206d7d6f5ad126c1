//! The elements that documents about keeping, deletion and reports may have.
//!
//! The wire crate passes over elements that it does not know. A mistyped one would then silently
//! mean "none": a default retention without its rule is no default retention, a lifecycle rule
//! without its limit removes more, and an access log without its element ends. It also reads a
//! number as far as its digits go: a retention of `1e3` days would be of one day, and so would an
//! expiration after `1,000` days.

use hyper::Method;
use s3s::{S3ErrorCode, S3Result};

use crate::query::Query;
use crate::refusal::refuse;
use crate::wire::{is_whole_number, plain_elements};

/// Elements below the root, by the subresource that is set.
const KNOWN: [(&str, &[&str]); 11] = [
    (
        "object-lock",
        &[
            "ObjectLockEnabled",
            "Rule",
            "Rule/DefaultRetention",
            "Rule/DefaultRetention/Mode",
            "Rule/DefaultRetention/Days",
            "Rule/DefaultRetention/Years",
        ],
    ),
    ("retention", &["Mode", "RetainUntilDate"]),
    ("legal-hold", &["Status"]),
    ("versioning", &["Status", "MfaDelete"]),
    ("publicAccessBlock", &["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"]),
    (
        "lifecycle",
        &[
            "Rule",
            "Rule/ID",
            "Rule/Prefix",
            "Rule/Status",
            "Rule/Filter",
            "Rule/Filter/Prefix",
            "Rule/Filter/Tag",
            "Rule/Filter/Tag/Key",
            "Rule/Filter/Tag/Value",
            "Rule/Filter/ObjectSizeGreaterThan",
            "Rule/Filter/ObjectSizeLessThan",
            "Rule/Filter/And",
            "Rule/Filter/And/Prefix",
            "Rule/Filter/And/Tag",
            "Rule/Filter/And/Tag/Key",
            "Rule/Filter/And/Tag/Value",
            "Rule/Filter/And/ObjectSizeGreaterThan",
            "Rule/Filter/And/ObjectSizeLessThan",
            "Rule/Expiration",
            "Rule/Expiration/Days",
            "Rule/Expiration/Date",
            "Rule/Expiration/ExpiredObjectDeleteMarker",
            "Rule/NoncurrentVersionExpiration",
            "Rule/NoncurrentVersionExpiration/NoncurrentDays",
            "Rule/NoncurrentVersionExpiration/NewerNoncurrentVersions",
            "Rule/AbortIncompleteMultipartUpload",
            "Rule/AbortIncompleteMultipartUpload/DaysAfterInitiation",
            "Rule/Transition",
            "Rule/Transition/Date",
            "Rule/Transition/Days",
            "Rule/Transition/StorageClass",
            "Rule/NoncurrentVersionTransition",
            "Rule/NoncurrentVersionTransition/NoncurrentDays",
            "Rule/NoncurrentVersionTransition/NewerNoncurrentVersions",
            "Rule/NoncurrentVersionTransition/StorageClass",
        ],
    ),
    (
        "cors",
        &[
            "CORSRule",
            "CORSRule/ID",
            "CORSRule/AllowedHeader",
            "CORSRule/AllowedMethod",
            "CORSRule/AllowedOrigin",
            "CORSRule/ExposeHeader",
            "CORSRule/MaxAgeSeconds",
        ],
    ),
    ("tagging", &["TagSet", "TagSet/Tag", "TagSet/Tag/Key", "TagSet/Tag/Value"]),
    (
        "logging",
        &[
            "LoggingEnabled",
            "LoggingEnabled/TargetBucket",
            "LoggingEnabled/TargetPrefix",
            "LoggingEnabled/TargetGrants",
            "LoggingEnabled/TargetGrants/Grant",
            "LoggingEnabled/TargetGrants/Grant/Grantee",
            "LoggingEnabled/TargetGrants/Grant/Grantee/DisplayName",
            "LoggingEnabled/TargetGrants/Grant/Grantee/EmailAddress",
            "LoggingEnabled/TargetGrants/Grant/Grantee/ID",
            "LoggingEnabled/TargetGrants/Grant/Grantee/URI",
            "LoggingEnabled/TargetGrants/Grant/Permission",
            "LoggingEnabled/TargetObjectKeyFormat",
            "LoggingEnabled/TargetObjectKeyFormat/SimplePrefix",
            "LoggingEnabled/TargetObjectKeyFormat/PartitionedPrefix",
            "LoggingEnabled/TargetObjectKeyFormat/PartitionedPrefix/PartitionDateSource",
        ],
    ),
    (
        "inventory",
        &[
            "Destination",
            "Destination/S3BucketDestination",
            "Destination/S3BucketDestination/AccountId",
            "Destination/S3BucketDestination/Bucket",
            "Destination/S3BucketDestination/Encryption",
            "Destination/S3BucketDestination/Encryption/SSE-KMS",
            "Destination/S3BucketDestination/Encryption/SSE-KMS/KeyId",
            "Destination/S3BucketDestination/Encryption/SSE-S3",
            "Destination/S3BucketDestination/Format",
            "Destination/S3BucketDestination/Prefix",
            "Filter",
            "Filter/Prefix",
            "Id",
            "IncludedObjectVersions",
            "IsEnabled",
            "OptionalFields",
            "OptionalFields/Field",
            "Schedule",
            "Schedule/Frequency",
        ],
    ),
    (
        "delete",
        &["Quiet", "Object", "Object/Key", "Object/VersionId", "Object/ETag", "Object/LastModifiedTime", "Object/Size"],
    ),
];

/// The elements of these documents that are whole numbers.
const NUMBERS: [&str; 8] = [
    "Days",
    "DaysAfterInitiation",
    "MaxAgeSeconds",
    "NewerNoncurrentVersions",
    "NoncurrentDays",
    "ObjectSizeGreaterThan",
    "ObjectSizeLessThan",
    "Years",
];

/// Refuses a document with an element that the operation does not have, or with a number that is
/// none.
pub fn check(method: &Method, query: &Query, document: &[u8]) -> S3Result<()> {
    let known = KNOWN.iter().find(|(name, _)| {
        let sets = if *name == "delete" { Method::POST } else { Method::PUT };
        *method == sets && query.has(name)
    });
    let Some((_, known)) = known.filter(|_| !document.is_empty()) else { return Ok(()) };
    let elements = plain_elements(document)?;
    let name_of = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let is_wrong = |name: &str, text: &str| NUMBERS.contains(&name) && !is_whole_number(text);
    if let Some(wrong) = elements.iter().find(|element| is_wrong(&name_of(&element.path), &element.text)) {
        return Err(refuse(
            S3ErrorCode::MalformedXML,
            format!("The XML you provided has a {} that is no whole number, in digits", name_of(&wrong.path)),
        ));
    }
    let below = |path: &str| path.split_once('/').map(|(_, below)| below.to_owned());
    match elements.iter().filter_map(|element| below(&element.path)).find(|path| !known.contains(&path.as_str())) {
        None => Ok(()),
        Some(path) => Err(refuse(
            S3ErrorCode::MalformedXML,
            format!("The XML you provided has an element that this operation does not know: {}", shown(&path)),
        )),
    }
}

/// A path as far as a message shows it.
fn shown(path: &str) -> String {
    path.chars().take(100).collect()
}
