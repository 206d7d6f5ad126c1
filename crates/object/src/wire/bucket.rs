//! Buckets: create, list, remove, and their settings.

use super::convert::*;
use super::elements::{elements, only};
use super::object::full_control;
use super::{Answer, Wire};
use crate::call::Call;
use crate::refusal::{refuse, translated};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::{ArchiveError, BucketChange, NewBucket, Tags, Versioning};

/// CreateBucket.
pub async fn create(wire: &Wire, call: Arc<Call>, request: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
    let input = request.input;
    if let Some(acl) = &input.acl
        && !["private", "bucket-owner-full-control"].contains(&acl.as_str())
    {
        return Err(refuse(
            S3ErrorCode::InvalidBucketAclWithObjectOwnership,
            "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting",
        ));
    }
    match input.object_ownership.as_ref().map(ObjectOwnership::as_str) {
        None | Some(ObjectOwnership::BUCKET_OWNER_ENFORCED) => {}
        Some(ObjectOwnership::BUCKET_OWNER_PREFERRED | ObjectOwnership::OBJECT_WRITER) => {
            return Err(refuse(
                S3ErrorCode::NotImplemented,
                "Object ownership other than BucketOwnerEnforced is not implemented.",
            ));
        }
        Some(_) => {
            return Err(refuse(S3ErrorCode::InvalidArgument, "Value for x-amz-object-ownership header is invalid."));
        }
    }
    let configured = Configured::of(&call.document)?;
    let region = match configured.region.clone() {
        Some(asked) if asked != wire.settings.region && wire.settings.region_strict => {
            return Err(refuse(
                S3ErrorCode::IllegalLocationConstraintException,
                format!(
                    "The {asked} location constraint is incompatible for the region specific endpoint this request was sent to."
                ),
            ));
        }
        Some(asked) if asked != wire.settings.region && !names_region(&asked) => {
            return Err(refuse(
                S3ErrorCode::InvalidLocationConstraint,
                "The specified location-constraint is not valid",
            ));
        }
        Some(asked) => asked,
        None => wire.settings.region.clone(),
    };
    let object_lock = input.object_lock_enabled_for_bucket.unwrap_or(false);
    let tags = configured.tags.clone();
    let new = NewBucket { object_lock, versioning: object_lock, region, tags, ..NewBucket::default() };
    let location = format!("/{}", input.bucket);
    match wire.archive.create_bucket(&call.caller, &input.bucket, new).await {
        Ok(_) => {}
        // As in the first region of AWS: the owner of a bucket may create it again without an
        // error.
        Err(ArchiveError::BucketExists { name, own: true }) if wire.settings.region == "us-east-1" => {
            let there = wire.archive.bucket(&call.caller, &name).await.map_err(translated)?;
            let same = configured.region.is_none_or(|region| region == there.region)
                && (configured.tags.is_empty() || configured.tags == there.tags)
                && (!object_lock || there.object_lock.is_some());
            if !same {
                return Err(translated(ArchiveError::BucketExists { name, own: true }));
            }
        }
        Err(error) => return Err(translated(error)),
    }
    Ok(S3Response::new(CreateBucketOutput { location: Some(location) }))
}

/// A `CreateBucketConfiguration`; the wire crate knows only a part of it.
#[derive(Default)]
struct Configured {
    region: Option<String>,
    tags: Tags,
}

impl Configured {
    fn of(document: &[u8]) -> S3Result<Configured> {
        const REGION: &str = "CreateBucketConfiguration/LocationConstraint";
        const TAG: &str = "CreateBucketConfiguration/Tags/Tag";
        const KEY: &str = "CreateBucketConfiguration/Tags/Tag/Key";
        const VALUE: &str = "CreateBucketConfiguration/Tags/Tag/Value";
        let elements = elements(document)?;
        only(&elements, &["CreateBucketConfiguration", REGION, "CreateBucketConfiguration/Tags", TAG, KEY, VALUE])?;
        let mut configured = Configured::default();
        let (mut set, mut tag) = (Vec::new(), Tag { key: None, value: None });
        for element in elements {
            match element.path.as_str() {
                REGION => configured.region = Some(element.text).filter(|region| !region.is_empty()),
                KEY => tag.key = Some(element.text),
                VALUE => tag.value = Some(element.text),
                TAG => set.push(std::mem::replace(&mut tag, Tag { key: None, value: None })),
                _ => {}
            }
        }
        configured.tags = tags_of_set(set, BUCKET_TAGS_MAX)?;
        Ok(configured)
    }
}

// Whether a name has the form of an AWS region: `eu-west-1`, `us-gov-east-1`, and the old `EU`.
fn names_region(name: &str) -> bool {
    const AREAS: [&str; 12] = ["af", "ap", "ca", "cn", "eu", "eusc", "il", "me", "mx", "sa", "us", "us-gov"];
    let mut parts = name.rsplitn(3, '-');
    let (number, place, area) = (parts.next(), parts.next(), parts.next());
    let digits = number.is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    let word = place.is_some_and(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase()));
    name == "EU" || digits && word && area.is_some_and(|area| AREAS.contains(&area))
}

/// DeleteBucket.
pub async fn delete(wire: &Wire, call: Arc<Call>, request: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
    let bucket = request.input.bucket;
    wire.archive.delete_bucket(&call.caller, &bucket).await.map_err(translated)?;
    Ok(S3Response::with_status(DeleteBucketOutput::default(), hyper::StatusCode::NO_CONTENT))
}

/// HeadBucket.
pub async fn head(wire: &Wire, call: Arc<Call>, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
    let info = wire.archive.bucket(&call.caller, &request.input.bucket).await.map_err(translated)?;
    Ok(S3Response::new(HeadBucketOutput { bucket_region: Some(info.region), ..HeadBucketOutput::default() }))
}

/// ListBuckets.
pub async fn list(wire: &Wire, call: Arc<Call>, request: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
    // It writes no audit record: programs that watch a server ask for its root again and again.
    if call.caller.actor == stele_archive::Actor::Anonymous {
        return Err(refuse(
            S3ErrorCode::AccessDenied,
            "Access Denied: a request for the list of buckets must be signed.",
        ));
    }
    let input = request.input;
    let limit = match input.max_buckets {
        None => usize::MAX,
        Some(count) if (1..=10_000).contains(&count) => count as usize,
        Some(_) => {
            return Err(refuse(
                S3ErrorCode::InvalidArgument,
                "Argument max-buckets must be an integer between 1 and 10000",
            ));
        }
    };
    let prefix = input.prefix.clone().unwrap_or_default();
    let after = input.continuation_token.unwrap_or_default();
    let all = wire.archive.list_buckets(&call.caller).await.map_err(translated)?;
    let mut chosen = all.into_iter().filter(|bucket| {
        bucket.name.starts_with(&prefix)
            && bucket.name > after
            && input.bucket_region.as_ref().is_none_or(|region| *region == bucket.region)
    });
    let mut buckets = Vec::new();
    for info in chosen.by_ref().take(limit) {
        buckets.push(Bucket {
            bucket_region: Some(info.region),
            creation_date: Some(wire_time(info.created)),
            name: Some(info.name),
        });
    }
    let more = chosen.next().is_some();
    let token = more.then(|| buckets.last().and_then(|bucket| bucket.name.clone())).flatten();
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(buckets),
        continuation_token: token,
        owner: Some(wire_owner(&call.caller.actor.to_string())),
        prefix: input.prefix,
    }))
}

/// GetBucketLocation.
pub async fn location(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetBucketLocationInput>,
) -> Answer<GetBucketLocationOutput> {
    let info = wire.archive.bucket(&call.caller, &request.input.bucket).await.map_err(translated)?;
    // As on AWS, the first region is left out.
    let region = Some(info.region).filter(|region| region != "us-east-1");
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint: region.map(BucketLocationConstraint::from) }))
}

/// GetBucketVersioning.
pub async fn versioning(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetBucketVersioningInput>,
) -> Answer<GetBucketVersioningOutput> {
    let info = wire.archive.bucket(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let status = match info.versioning {
        Versioning::Off => None,
        Versioning::Enabled => Some(BucketVersioningStatus::ENABLED),
        Versioning::Suspended => Some(BucketVersioningStatus::SUSPENDED),
    };
    Ok(S3Response::new(GetBucketVersioningOutput {
        status: status.map(BucketVersioningStatus::from_static),
        ..GetBucketVersioningOutput::default()
    }))
}

/// PutBucketVersioning.
pub async fn set_versioning(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutBucketVersioningInput>,
) -> Answer<PutBucketVersioningOutput> {
    let configuration = request.input.versioning_configuration;
    if configuration.mfa_delete.as_ref().is_some_and(|mfa| mfa.as_str() == MFADelete::ENABLED) {
        return Err(refuse(S3ErrorCode::NotImplemented, "MFA Delete is not implemented."));
    }
    let versioning = match configuration.status.as_ref().map(BucketVersioningStatus::as_str) {
        Some(BucketVersioningStatus::ENABLED) => Versioning::Enabled,
        Some(BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
        Some(_) => {
            return Err(refuse(
                S3ErrorCode::MalformedXML,
                "The XML you provided was not well-formed or did not validate against our published schema",
            ));
        }
        None => {
            return Err(refuse(
                S3ErrorCode::IllegalVersioningConfigurationException,
                "The Versioning element must be specified",
            ));
        }
    };
    let change = BucketChange::Versioning(versioning);
    wire.archive.change_bucket(&call.caller, &request.input.bucket, change).await.map_err(translated)?;
    Ok(S3Response::new(PutBucketVersioningOutput::default()))
}

/// GetBucketEncryption: always AES256, since all data is always encrypted.
pub async fn encryption(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetBucketEncryptionInput>,
) -> Answer<GetBucketEncryptionOutput> {
    wire.archive.bucket(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let rule = ServerSideEncryptionRule {
        apply_server_side_encryption_by_default: Some(ServerSideEncryptionByDefault {
            kms_master_key_id: None,
            sse_algorithm: ServerSideEncryption::from_static(ServerSideEncryption::AES256),
        }),
        bucket_key_enabled: Some(false),
    };
    Ok(S3Response::new(GetBucketEncryptionOutput {
        server_side_encryption_configuration: Some(ServerSideEncryptionConfiguration { rules: vec![rule] }),
    }))
}

/// GetBucketAcl: the owner has full control, and there are no other grants.
pub async fn acl(wire: &Wire, call: Arc<Call>, request: S3Request<GetBucketAclInput>) -> Answer<GetBucketAclOutput> {
    let info = wire.archive.bucket(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let owner = wire_owner(&info.owner);
    Ok(S3Response::new(GetBucketAclOutput { grants: Some(vec![full_control(&owner)]), owner: Some(owner) }))
}

/// GetBucketOwnershipControls: the bucket's owner owns all objects in it.
pub async fn ownership(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetBucketOwnershipControlsInput>,
) -> Answer<GetBucketOwnershipControlsOutput> {
    wire.archive.bucket(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let rule = OwnershipControlsRule {
        object_ownership: ObjectOwnership::from_static(ObjectOwnership::BUCKET_OWNER_ENFORCED),
    };
    Ok(S3Response::new(GetBucketOwnershipControlsOutput {
        ownership_controls: Some(OwnershipControls { rules: vec![rule] }),
    }))
}
