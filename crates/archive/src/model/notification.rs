//! Event notifications of a bucket: which changes of its objects are told to which target.
//!
//! A rule names a target of the server's configuration. The client that sets a rule chooses no
//! address and no path.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};

use crate::model::error::{ArchiveError, Result};
use crate::model::time::Timestamp;

/// Rules of one bucket.
pub const NOTIFICATION_RULES_MAX: usize = 100;
/// Events that wait for one target. At this number further ones are dropped and counted.
pub const EVENTS_PENDING_MAX: u64 = 20_000;
/// The same with a small catalog, of which they must not take much: at least this many, and one for
/// each share of it.
const EVENTS_PENDING_MIN: u64 = 1_000;
const CATALOG_PER_EVENT: u64 = 64 << 10;
/// Characters of a rule's id, bytes of its prefix and of its suffix, and characters of a target's
/// name.
const ID_MAX: usize = 255;
const AFFIX_MAX: usize = 1024;
const TARGET_MAX: usize = 64;

/// The event of a version whose retention has ended, where expiration only notifies.
pub(crate) const RETENTION_ENDED: &str = "ObjectRetention:Expired";
/// The names of events, without `s3:`. The last three are Stele's own.
const EVENTS: [&str; 13] = [
    "ObjectCreated:Put",
    "ObjectCreated:Post",
    "ObjectCreated:Copy",
    "ObjectCreated:CompleteMultipartUpload",
    "ObjectRemoved:Delete",
    "ObjectRemoved:DeleteMarkerCreated",
    "LifecycleExpiration:Delete",
    "LifecycleExpiration:DeleteMarkerCreated",
    "ObjectTagging:Put",
    "ObjectTagging:Delete",
    "ObjectRetention:Put",
    "ObjectLegalHold:Put",
    RETENTION_ENDED,
];
/// The event that every new configuration sends to each of its targets.
pub const TEST_EVENT: &str = "TestEvent";

/// The element of S3's document that a rule came in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum TargetForm {
    #[n(0)]
    Queue,
    #[n(1)]
    Topic,
    #[n(2)]
    Function,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct NotificationRule {
    #[n(0)]
    pub id: String,
    #[n(1)]
    pub form: TargetForm,
    /// The target's name in the server's configuration.
    #[n(2)]
    pub target: String,
    /// As the client sent it.
    #[n(3)]
    pub arn: String,
    /// `s3:ObjectCreated:*` and the like.
    #[n(4)]
    pub events: Vec<String>,
    #[n(5)]
    pub prefix: Option<String>,
    #[n(6)]
    pub suffix: Option<String>,
}

/// An event that waits for its target.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ObjectEvent {
    #[n(0)]
    pub time: Timestamp,
    /// Without `s3:`.
    #[n(1)]
    pub name: String,
    /// The id of the rule that selected it.
    #[n(2)]
    pub rule: String,
    #[n(3)]
    pub bucket: String,
    #[n(4)]
    pub bucket_owner: String,
    #[n(5)]
    pub region: String,
    #[n(6)]
    pub key: String,
    /// None: the bucket has no versions.
    #[n(7)]
    pub version: Option<String>,
    #[n(8)]
    pub size: Option<u64>,
    /// Without quotes.
    #[n(9)]
    pub etag: Option<String>,
    #[n(10)]
    pub actor: String,
    /// The address of the client and the id of its request.
    #[n(11)]
    pub origin: Option<String>,
}

/// How far a target is behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetLag {
    pub target: String,
    pub pending: u64,
    /// When the oldest pending event happened.
    pub oldest: Option<Timestamp>,
    /// Events dropped at the limit since the store was made or rebuilt.
    pub dropped: u64,
    /// When the last one was.
    pub last_dropped: Option<Timestamp>,
    /// The configuration names it, as far as is known.
    pub configured: bool,
    /// Buckets whose rules name it.
    pub buckets: Vec<String>,
}

impl NotificationRule {
    /// Whether the rule tells of an event. `name` is without `s3:`.
    pub fn selects(&self, name: &str, key: &str) -> bool {
        self.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix))
            && self.suffix.as_ref().is_none_or(|suffix| key.ends_with(suffix))
            && self.events.iter().any(|pattern| matches(pattern, name))
    }

    fn overlaps(&self, other: &NotificationRule) -> bool {
        let text = |affix: &Option<String>| affix.clone().unwrap_or_default();
        let (ours, theirs) = (text(&self.prefix), text(&other.prefix));
        let (our_end, their_end) = (text(&self.suffix), text(&other.suffix));
        (ours.starts_with(&theirs) || theirs.starts_with(&ours))
            && (our_end.ends_with(&their_end) || their_end.ends_with(&our_end))
            && EVENTS.iter().any(|name| {
                let has = |rule: &NotificationRule| rule.events.iter().any(|pattern| matches(pattern, name));
                has(self) && has(other)
            })
    }
}

/// Whether the pattern of an event, with `s3:`, matches a name.
fn matches(pattern: &str, name: &str) -> bool {
    let Some(pattern) = pattern.strip_prefix("s3:") else { return false };
    match pattern.strip_suffix('*') {
        Some(group) => group.ends_with(':') && name.starts_with(group),
        None => pattern == name,
    }
}

/// Checks the rules of a bucket together. As on AWS, no event of a key has two rules.
pub(crate) fn check_rules(rules: &[NotificationRule]) -> Result<()> {
    let refuse = |message: String| Err(ArchiveError::InvalidArgument(message));
    if rules.len() > NOTIFICATION_RULES_MAX {
        return refuse(format!("{} notifications, at most {NOTIFICATION_RULES_MAX} are allowed", rules.len()));
    }
    let mut ids = BTreeSet::new();
    for (at, rule) in rules.iter().enumerate() {
        if rule.id.chars().count() > ID_MAX {
            return refuse("the id of a notification has at most 255 characters".into());
        }
        if !ids.insert(&rule.id) {
            return refuse(format!("ids of notifications must be unique; `{}` is there twice", rule.id));
        }
        if !is_target_name(&rule.target) {
            return refuse("a target has a name of 1 to 64 letters, digits, `-` and `_`".into());
        }
        if [&rule.prefix, &rule.suffix].into_iter().flatten().any(|affix| affix.len() > AFFIX_MAX) {
            return refuse("a prefix or suffix has at most 1024 bytes".into());
        }
        if rule.events.is_empty() {
            return refuse("a notification names at least one event".into());
        }
        if let Some(unknown) =
            rule.events.iter().find(|pattern| !EVENTS.iter().any(|name| matches(pattern.as_str(), name)))
        {
            return refuse(format!("The event '{unknown}' is not supported for notifications"));
        }
        if rules.iter().take(at).any(|other| other.overlaps(rule)) {
            return refuse(
                "Configurations overlap. Configurations on the same bucket cannot share a common event type.".into(),
            );
        }
    }
    Ok(())
}

/// Events that may wait for one target in a catalog of this many bytes.
pub fn events_pending_max(catalog: u64) -> u64 {
    (catalog / CATALOG_PER_EVENT).clamp(EVENTS_PENDING_MIN, EVENTS_PENDING_MAX)
}

/// Whether this can be the name of a target.
pub fn is_target_name(name: &str) -> bool {
    (1..=TARGET_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests;
