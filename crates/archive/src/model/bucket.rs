//! Buckets as frontends see them: their settings and the rules for their names.

use std::fmt;

use minicbor::{Decode, Encode};
use stele_ground::counted;

use crate::model::class::Bindings;
use crate::model::cors::CorsRule;
use crate::model::error::{ArchiveError, Result};
use crate::model::inventory::Inventory;
use crate::model::lifecycle::LifecycleRule;
use crate::model::logging::AccessLog;
use crate::model::notification::NotificationRule;
use crate::model::principal::Actor;
use crate::model::time::Timestamp;
use crate::model::version::{RetentionMode, Tags};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum Versioning {
    /// Never enabled. Each key has one version, the null version.
    #[default]
    #[n(0)]
    Off,
    #[n(1)]
    Enabled,
    /// Enabled once, and now suspended. New writes replace the null version; older versions stay.
    #[n(2)]
    Suspended,
}

/// The unit and length of a default retention period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub enum Period {
    #[n(0)]
    Days(#[n(0)] u32),
    /// Of 365 days, and of a leap day for each four of them that have begun.
    #[n(1)]
    Years(#[n(0)] u32),
}

impl Period {
    pub fn days(self) -> u64 {
        match self {
            Period::Days(days) => days.into(),
            // Never fewer than in the calendar: of years in a row, no more have a leap day.
            Period::Years(years) => u64::from(years) * 365 + u64::from(years).div_ceil(4),
        }
    }
}

/// The retention of versions that are put without one of their own. A change of it does not touch
/// stored versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct DefaultRetention {
    #[n(0)]
    pub mode: RetentionMode,
    #[n(1)]
    pub period: Period,
}

/// Enabled for good: versioning is on and cannot be suspended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct ObjectLock {
    #[n(0)]
    pub default: Option<DefaultRetention>,
}

/// The right that weakening a retention in this bucket takes. A level can only be raised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum Protection {
    /// A caller that may set GOVERNANCE retention may shorten it. Every change is audited.
    #[default]
    #[n(0)]
    Basic,
    /// Shortening GOVERNANCE retention takes the permission and the explicit request.
    #[n(1)]
    Governance,
    /// No caller can shorten a retention. New retention in the bucket is COMPLIANCE, whatever the
    /// request says.
    #[n(2)]
    Compliance,
}

/// The action on a version when its retention has passed and no hold is on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum ExpiryAction {
    #[default]
    #[n(0)]
    Keep,
    /// Expiration removes the version and leaves a certificate.
    #[n(1)]
    Delete,
    /// Expiration writes one audit record.
    #[n(2)]
    Notify,
}

/// The access of requests without a signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum AnonymousAccess {
    #[default]
    #[n(0)]
    None,
    /// Getting objects by key.
    #[n(1)]
    Read,
    /// Getting objects, and listing.
    #[n(2)]
    ReadAndList,
}

/// What the bucket refuses to offer to everyone, whatever its other settings say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct AccessBlock {
    /// Anonymous access cannot be set.
    #[n(0)]
    pub block_acls: bool,
    /// Anonymous access that is set does not count.
    #[n(1)]
    pub ignore_acls: bool,
    /// A policy that allows everyone something cannot be set.
    #[n(2)]
    pub block_policy: bool,
    /// A policy allows nothing to callers without a key.
    #[n(3)]
    pub restrict: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct Quota {
    #[n(0)]
    pub bytes: Option<u64>,
    /// Versions, delete markers included.
    #[n(1)]
    pub versions: Option<u64>,
}

/// The key of the self-test's object in each bucket with Object Lock; in a share, the path of its
/// file.
pub const CANARY_KEY: &str = ".stele/canary";
/// The name under which the self-test acts. It is the owner of each canary.
pub(crate) const TESTER: &str = "self-test";

/// Whether a version is a canary. Clients may use its key; its owner cannot be forged, and owns
/// nothing else.
pub(crate) fn is_canary(owner: &Actor) -> bool {
    matches!(owner, Actor::System(name) if name == TESTER)
}

/// Rules that the text of a change names.
const IDS_IN_WORDS: usize = 5;

/// The settings of a new bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewBucket {
    /// Object Lock from the start. It also enables versioning.
    pub object_lock: bool,
    pub versioning: bool,
    pub default_retention: Option<DefaultRetention>,
    /// None: Governance with Object Lock, else Basic.
    pub protection: Option<Protection>,
    pub expiry: ExpiryAction,
    pub quota: Quota,
    pub anonymous: AnonymousAccess,
    pub region: String,
    pub tags: Tags,
}

impl Default for NewBucket {
    fn default() -> NewBucket {
        NewBucket {
            object_lock: false,
            versioning: false,
            default_retention: None,
            protection: None,
            expiry: ExpiryAction::Keep,
            quota: Quota::default(),
            anonymous: AnonymousAccess::None,
            region: "us-east-1".into(),
            tags: Tags::new(),
        }
    }
}

/// One setting to change. All others stay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BucketChange {
    /// Enables versioning, or suspends it where Object Lock allows that.
    Versioning(Versioning),
    /// Enables Object Lock for good, and versioning with it. Sets or clears the default retention.
    ObjectLock(ObjectLock),
    /// Enables Object Lock for good, and leaves the default retention as it is.
    Lock,
    /// Raises the level.
    Protection(Protection),
    Expiry(ExpiryAction),
    Quota(Quota),
    Anonymous(AnonymousAccess),
    /// Replaces all tags. Empty removes them.
    Tags(Tags),
    /// Replaces the classes of versions that are stored from now on.
    Classes(Bindings),
    /// Makes an empty bucket a share of the file gateway, for good.
    Share,
    /// Replaces all lifecycle rules. None removes them.
    Lifecycle(Option<Vec<LifecycleRule>>),
    /// Replaces all rules for requests from other origins. None removes them.
    Cors(Option<Vec<CorsRule>>),
    /// Replaces the bucket policy. None removes it.
    Policy(Option<String>),
    AccessBlock(Option<AccessBlock>),
    /// Replaces the rules by which changes of objects are told to targets. None removes them.
    Notifications(Option<Vec<NotificationRule>>),
    /// Where the access log goes. None: there is none.
    Logging(Option<AccessLog>),
    /// Sets an inventory. The one with its id is replaced.
    Inventory(Inventory),
    /// Removes the inventory with this id.
    NoInventory(String),
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Period::Days(days) => f.write_str(&counted(u64::from(*days), "day")),
            Period::Years(years) => f.write_str(&counted(u64::from(*years), "year")),
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protection::Basic => "basic",
            Protection::Governance => "governance",
            Protection::Compliance => "compliance",
        })
    }
}

/// The text for audit records.
impl fmt::Display for BucketChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
        match self {
            BucketChange::Versioning(Versioning::Off) => f.write_str("versioning off"),
            BucketChange::Versioning(Versioning::Enabled) => f.write_str("versioning enabled"),
            BucketChange::Versioning(Versioning::Suspended) => f.write_str("versioning suspended"),
            BucketChange::ObjectLock(ObjectLock { default: None }) => {
                f.write_str("Object Lock, without a default retention")
            }
            BucketChange::ObjectLock(ObjectLock { default: Some(default) }) => {
                write!(f, "Object Lock, default retention {} for {}", default.mode, default.period)
            }
            BucketChange::Lock => f.write_str("Object Lock"),
            BucketChange::Protection(level) => write!(f, "protection level {level}"),
            BucketChange::Expiry(ExpiryAction::Keep) => f.write_str("keep expired versions"),
            BucketChange::Expiry(ExpiryAction::Delete) => f.write_str("delete expired versions"),
            BucketChange::Expiry(ExpiryAction::Notify) => f.write_str("notify of expired versions"),
            BucketChange::Quota(quota) => {
                write!(f, "quota in bytes: {}, in versions: {}", limit(quota.bytes), limit(quota.versions))
            }
            BucketChange::Anonymous(AnonymousAccess::None) => f.write_str("no anonymous access"),
            BucketChange::Anonymous(AnonymousAccess::Read) => f.write_str("anonymous callers read"),
            BucketChange::Anonymous(AnonymousAccess::ReadAndList) => f.write_str("anonymous callers read and list"),
            BucketChange::Tags(tags) => {
                let tags: Vec<String> = tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "tags: {}", if tags.is_empty() { "none".to_owned() } else { tags.join(", ") })
            }
            BucketChange::Classes(classes) => write!(f, "{classes}"),
            BucketChange::Share => f.write_str("a share of the file gateway"),
            BucketChange::Lifecycle(None) => f.write_str("no lifecycle rules"),
            BucketChange::Lifecycle(Some(rules)) => {
                let ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).take(IDS_IN_WORDS).collect();
                write!(f, "{} lifecycle rules: {}", rules.len(), ids.join(", "))
            }
            BucketChange::Cors(None) => f.write_str("no CORS rules"),
            BucketChange::Cors(Some(rules)) => write!(f, "{} CORS rules", rules.len()),
            BucketChange::Inventory(inventory) => {
                let to = inventory.prefix.as_deref().unwrap_or_default();
                write!(f, "inventory `{}` to `{}/{to}`", inventory.id, inventory.bucket)
            }
            BucketChange::NoInventory(id) => write!(f, "no inventory `{id}`"),
            BucketChange::Logging(None) => f.write_str("no access log"),
            BucketChange::Logging(Some(log)) => write!(f, "access log to `{}/{}`", log.bucket, log.prefix),
            BucketChange::Notifications(None) => f.write_str("no notifications"),
            BucketChange::Notifications(Some(rules)) => {
                let rules = rules.iter().take(IDS_IN_WORDS).map(|rule| format!("{} to {}", rule.id, rule.target));
                write!(f, "notifications: {}", rules.collect::<Vec<_>>().join(", "))
            }
            BucketChange::Policy(None) => f.write_str("no bucket policy"),
            BucketChange::Policy(Some(policy)) => {
                write!(
                    f,
                    "a bucket policy of {} bytes, blake3 {}",
                    policy.len(),
                    blake3::hash(policy.as_bytes()).to_hex()
                )
            }
            BucketChange::AccessBlock(None) => f.write_str("no block of public access"),
            BucketChange::AccessBlock(Some(block)) => write!(
                f,
                "block of public access: acls {}, ignore acls {}, policy {}, restrict {}",
                block.block_acls, block.ignore_acls, block.block_policy, block.restrict
            ),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketInfo {
    pub name: String,
    pub created: Timestamp,
    /// The actor that created it.
    pub owner: String,
    pub region: String,
    pub versioning: Versioning,
    pub object_lock: Option<ObjectLock>,
    pub protection: Protection,
    pub expiry: ExpiryAction,
    pub quota: Quota,
    pub anonymous: AnonymousAccess,
    pub tags: Tags,
    /// The classes of new versions.
    pub classes: Bindings,
    /// The bucket is a share: the file gateway alone changes and reads its objects.
    pub share: bool,
}

/// The content of a bucket, with delete markers and noncurrent versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub versions: u64,
    pub bytes: u64,
    /// Bytes of parts whose uploads are neither completed nor aborted. `bytes` is without them.
    pub unfinished: u64,
}

/// The rules of AWS for new bucket names: 3 to 63 of a-z, 0-9, dot and hyphen, beginning and ending
/// with a letter or digit. No two dots in a row, not an IPv4 address, none of the reserved
/// beginnings and endings.
pub fn check_bucket_name(name: &str) -> Result<()> {
    let refuse = |why: &str| Err(ArchiveError::InvalidBucketName(format!("`{name}` cannot name a bucket: {why}")));
    let alphanumeric = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if !(3..=63).contains(&name.len()) {
        return refuse("a name has 3 to 63 characters");
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-') {
        return refuse("only a-z, 0-9, `.` and `-` are allowed");
    }
    if !alphanumeric(name.bytes().next()) || !alphanumeric(name.bytes().last()) {
        return refuse("it must begin and end with a letter or digit");
    }
    if name.contains("..") || name.contains(".-") || name.contains("-.") {
        return refuse("dots must stand between letters or digits");
    }
    let parts: Vec<&str> = name.split('.').collect();
    if parts.len() == 4 && parts.iter().all(|part| part.parse::<u8>().is_ok()) {
        return refuse("it looks like an IP address");
    }
    let reserved = ["xn--", "sthree-", "amzn-s3-demo-"].iter().any(|start| name.starts_with(start))
        || ["-s3alias", "--ol-s3", ".mrap", "--x-s3"].iter().any(|end| name.ends_with(end));
    if reserved {
        return refuse("its beginning or ending is reserved");
    }
    Ok(())
}

/// The rules of AWS: keys of 1 to 128 characters, values up to 256.
pub(crate) fn check_tags(tags: &Tags, most: usize) -> Result<()> {
    let refuse = |message: String| Err(ArchiveError::InvalidArgument(message));
    if tags.len() > most {
        return refuse(format!("{} tags, at most {most} are allowed", tags.len()));
    }
    for (key, value) in tags {
        if key.is_empty() || key.chars().count() > 128 || value.chars().count() > 256 {
            return refuse(format!("tag `{key}`: a key has 1 to 128 characters, a value at most 256"));
        }
        if key.starts_with("aws:") {
            return refuse(format!("tag `{key}`: keys that begin with `aws:` are reserved"));
        }
    }
    Ok(())
}

/// 1 to 1024 bytes of UTF-8, any characters.
pub fn check_key(key: &str) -> Result<()> {
    match key.len() {
        0 => Err(ArchiveError::InvalidKey("a key has at least one byte".into())),
        1..=1024 => Ok(()),
        length => Err(ArchiveError::InvalidKey(format!("a key has at most 1024 bytes, this one has {length}"))),
    }
}

impl fmt::Display for Versioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Versioning::Off => "off",
            Versioning::Enabled => "enabled",
            Versioning::Suspended => "suspended",
        })
    }
}

#[cfg(test)]
mod tests;
