//! The actions of S3 that a policy can name.

use super::RequestFacts;
use super::pattern::Pattern;
use crate::model::principal::Access;

/// What a policy can give with an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gift {
    /// Access to the objects.
    Access(Access),
    /// A look at the bucket's settings.
    Sight,
}

/// Actions that a policy can allow.
const GIVEN: [(&str, Gift); 43] = [
    ("AbortMultipartUpload", Gift::Access(Access::Write)),
    ("DeleteObject", Gift::Access(Access::Delete)),
    ("DeleteObjectTagging", Gift::Access(Access::Write)),
    ("DeleteObjectVersion", Gift::Access(Access::Delete)),
    ("DeleteObjectVersionTagging", Gift::Access(Access::Write)),
    ("GetAccelerateConfiguration", Gift::Sight),
    ("GetBucketAcl", Gift::Sight),
    ("GetBucketCORS", Gift::Sight),
    ("GetBucketLocation", Gift::Sight),
    ("GetBucketLogging", Gift::Sight),
    ("GetBucketNotification", Gift::Sight),
    ("GetBucketObjectLockConfiguration", Gift::Sight),
    ("GetBucketOwnershipControls", Gift::Sight),
    ("GetBucketPolicy", Gift::Sight),
    ("GetBucketPolicyStatus", Gift::Sight),
    ("GetBucketPublicAccessBlock", Gift::Sight),
    ("GetBucketRequestPayment", Gift::Sight),
    ("GetBucketTagging", Gift::Sight),
    ("GetBucketVersioning", Gift::Sight),
    ("GetBucketWebsite", Gift::Sight),
    ("GetEncryptionConfiguration", Gift::Sight),
    ("GetInventoryConfiguration", Gift::Sight),
    ("GetLifecycleConfiguration", Gift::Sight),
    ("GetObject", Gift::Access(Access::Read)),
    ("GetObjectAcl", Gift::Access(Access::Read)),
    ("GetObjectAttributes", Gift::Access(Access::Read)),
    ("GetObjectLegalHold", Gift::Access(Access::Read)),
    ("GetObjectRetention", Gift::Access(Access::Read)),
    ("GetObjectTagging", Gift::Access(Access::Read)),
    ("GetObjectVersion", Gift::Access(Access::Read)),
    ("GetObjectVersionAcl", Gift::Access(Access::Read)),
    ("GetObjectVersionAttributes", Gift::Access(Access::Read)),
    ("GetObjectVersionTagging", Gift::Access(Access::Read)),
    ("GetReplicationConfiguration", Gift::Sight),
    ("ListBucket", Gift::Access(Access::List)),
    ("ListBucketMultipartUploads", Gift::Access(Access::List)),
    ("ListBucketVersions", Gift::Access(Access::List)),
    ("ListMultipartUploadParts", Gift::Access(Access::Write)),
    ("PutObject", Gift::Access(Access::Write)),
    // Requests that set an access control list are refused, with or without a policy.
    ("PutObjectAcl", Gift::Access(Access::Write)),
    ("PutObjectTagging", Gift::Access(Access::Write)),
    ("PutObjectVersionAcl", Gift::Access(Access::Write)),
    ("PutObjectVersionTagging", Gift::Access(Access::Write)),
];

/// Actions that a policy can only deny: they take a role, a grant for retention, or the permission
/// to bypass.
const DENIED_ONLY: [&str; 20] = [
    "BypassGovernanceRetention",
    "CreateBucket",
    "DeleteBucket",
    "DeleteBucketPolicy",
    "PutBucketAcl",
    "PutBucketCORS",
    "PutBucketLogging",
    "PutBucketNotification",
    "PutBucketObjectLockConfiguration",
    "PutBucketOwnershipControls",
    "PutBucketPolicy",
    "PutBucketPublicAccessBlock",
    "PutBucketTagging",
    "PutBucketVersioning",
    "PutEncryptionConfiguration",
    "PutInventoryConfiguration",
    "PutLifecycleConfiguration",
    "PutObjectLegalHold",
    "PutObjectRetention",
    "PutReplicationConfiguration",
];

/// Actions on no bucket. No policy of a bucket can speak of them.
const OF_NO_BUCKET: &str = "ListAllMyBuckets";

/// What a policy that allows an action gives. None: nothing, since it can only deny it.
pub(super) fn gift(action: &str) -> Option<Gift> {
    GIVEN.iter().find(|(name, _)| *name == action).map(|(_, gift)| *gift)
}

/// Reads the pattern of an action, which matches some action of S3. `allows`: and one that a policy
/// can allow.
pub(super) fn parse(text: &str, allows: bool) -> Result<Pattern, String> {
    let pattern = pattern(text)?;
    let matches = |name: &str| pattern.matches(&format!("s3:{name}"), &RequestFacts::default());
    let given = GIVEN.iter().any(|(name, _)| matches(name));
    if !given && !DENIED_ONLY.iter().any(|name| matches(name)) {
        return Err(unknown(text));
    }
    if allows && !given {
        return Err(format!(
            "a policy cannot allow `{text}`, only deny it: settings take a role, retention and holds take a grant of the access key"
        ));
    }
    Ok(pattern)
}

/// As `parse`, for the policy of a session, which can name every action.
pub(super) fn parse_of_session(text: &str) -> Result<Pattern, String> {
    let pattern = pattern(text)?;
    let matches = |name: &str| pattern.matches(&format!("s3:{name}"), &RequestFacts::default());
    match GIVEN.iter().map(|(name, _)| *name).chain(DENIED_ONLY).chain([OF_NO_BUCKET]).any(matches) {
        true => Ok(pattern),
        false => Err(unknown(text)),
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    if text == "*" {
        return Pattern::parse("s3:*", true);
    }
    if !text.get(..3).is_some_and(|service| service.eq_ignore_ascii_case("s3:")) {
        return Err(format!("`{text}` is no action of S3; it begins with `s3:`"));
    }
    Pattern::parse(&text.to_ascii_lowercase(), true)
}

fn unknown(text: &str) -> String {
    format!("Policy has invalid action: `{text}` matches no action that this store has")
}
