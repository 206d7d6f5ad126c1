//! Calls about buckets, access keys, retention and the audit log.

mod keys;

use serde::{Deserialize, Serialize};
use stele_archive::{
    Access, AnonymousAccess, AuditRecord, AuditVerdict, BucketChange, BucketInfo, ClockStatus, DefaultRetention,
    ExpiryAction, NewBucket, ObjectLock, Period, Protection, Quota, RetentionMode, ScrubCursor, ScrubReport,
    SignedHead, VersionId, Versioning,
};

use super::{Actor, Call};
use crate::failure::{Failure, Outcome};
use crate::node::Node;

pub use keys::*;

/// A bucket, for an operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BucketView {
    pub name: String,
    pub created: String,
    pub owner: String,
    /// `off`, `enabled` or `suspended`.
    pub versioning: String,
    pub object_lock: bool,
    /// `MODE:PERIOD`, as `stele bucket create` takes it.
    pub default_retention: Option<String>,
    /// `basic`, `governance` or `compliance`.
    pub protection: String,
    /// The action on a version when its retention has passed: `keep`, `delete` or `notify`.
    pub expiry: String,
    pub quota_bytes: Option<u64>,
    #[serde(default)]
    pub quota_versions: Option<u64>,
    /// Callers without a key have some access.
    pub public: bool,
    pub versions: u64,
    #[serde(rename = "stored_bytes")]
    pub bytes: u64,
    /// Of parts whose uploads are not finished; not in `bytes`.
    #[serde(rename = "unfinished_bytes", default)]
    pub unfinished: u64,
    /// The bucket is a share of the file gateway.
    #[serde(default)]
    pub share: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CreateBucket {
    pub name: String,
    pub lock: bool,
    pub versioning: bool,
    pub retention: Option<String>,
    pub quota: Option<u64>,
    #[serde(default)]
    pub quota_versions: Option<u64>,
    pub public_read: bool,
    /// `None`: the archive's default for a new bucket.
    pub protection: Option<String>,
    /// `None`: keep.
    pub expiry: Option<String>,
}

const PROTECTIONS: [(Protection, &str); 3] =
    [(Protection::Basic, "basic"), (Protection::Governance, "governance"), (Protection::Compliance, "compliance")];

pub(super) const EXPIRIES: [(ExpiryAction, &str); 3] =
    [(ExpiryAction::Keep, "keep"), (ExpiryAction::Delete, "delete"), (ExpiryAction::Notify, "notify")];

pub(super) const MODES: [(RetentionMode, &str); 2] =
    [(RetentionMode::Governance, "governance"), (RetentionMode::Compliance, "compliance")];

const ACCESSES: [(Access, &str); 5] = [
    (Access::Read, "read"),
    (Access::Write, "write"),
    (Access::Delete, "delete"),
    (Access::List, "list"),
    (Access::Retain, "retain"),
];

/// The value that a word of the command line names.
pub(super) fn named<T: Copy, const N: usize>(known: &[(T, &str); N], what: &str, word: &str) -> Outcome<T> {
    known.iter().find(|(_, name)| *name == word).map(|(value, _)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(_, name)| *name).collect();
        Failure::usage(format!("'{word}' is not {what}")).next(format!("one of {}", names.join(", ")))
    })
}

fn name_of<T: Copy + PartialEq, const N: usize>(known: &[(T, &'static str); N], value: T) -> &'static str {
    known.iter().find(|(known, _)| *known == value).map_or("unknown", |(_, name)| name)
}

/// Reads `compliance:7y` or `governance:30d`.
pub fn parse_retention(text: &str) -> Outcome<DefaultRetention> {
    let wrong = || {
        Failure::usage(format!("'{text}' is not a default retention"))
            .next("write MODE:PERIOD, as in compliance:7y or governance:30d: whole days (d) or years (y), from 1 on")
    };
    let (mode, period) = text.split_once(':').ok_or_else(wrong)?;
    let mode = match mode.to_ascii_lowercase().as_str() {
        "compliance" => RetentionMode::Compliance,
        "governance" => RetentionMode::Governance,
        _ => return Err(wrong()),
    };
    // A sign is no part of a number: `+5d` adds nothing to the former default.
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0 && is_number(text));
    let number = |text: &str| parsed(text).ok_or_else(wrong);
    let period = match (period.strip_suffix('d'), period.strip_suffix('y')) {
        (Some(days), _) => Period::Days(number(days)?),
        (_, Some(years)) => Period::Years(number(years)?),
        _ => return Err(wrong()),
    };
    Ok(DefaultRetention { mode, period })
}

fn show_retention(retention: DefaultRetention) -> String {
    let mode = match retention.mode {
        RetentionMode::Compliance => "compliance",
        RetentionMode::Governance => "governance",
    };
    match retention.period {
        Period::Days(days) => format!("{mode}:{days}d"),
        Period::Years(years) => format!("{mode}:{years}y"),
    }
}

async fn view(node: &Node, actor: &Actor, info: BucketInfo) -> Outcome<BucketView> {
    let archive = node.archive()?;
    let usage = archive.usage(&actor.caller(), &info.name).await?;
    let by_policy = archive.is_policy_public(&actor.caller(), &info.name).await? == Some(true);
    let ignored = archive.access_block(&actor.caller(), &info.name).await?.is_some_and(|block| block.ignore_acls);
    Ok(BucketView {
        created: info.created.to_string(),
        owner: info.owner,
        versioning: match info.versioning {
            Versioning::Off => "off",
            Versioning::Enabled => "enabled",
            Versioning::Suspended => "suspended",
        }
        .to_owned(),
        object_lock: info.object_lock.is_some(),
        default_retention: info.object_lock.and_then(|lock| lock.default).map(show_retention),
        protection: name_of(&PROTECTIONS, info.protection).to_owned(),
        expiry: name_of(&EXPIRIES, info.expiry).to_owned(),
        quota_bytes: info.quota.bytes,
        quota_versions: info.quota.versions,
        public: by_policy || (info.anonymous != AnonymousAccess::None && !ignored),
        versions: usage.versions,
        bytes: usage.bytes,
        unfinished: usage.unfinished,
        share: info.share,
        name: info.name,
    })
}

impl Call for CreateBucket {
    const NAME: &'static str = "bucket/create";
    type Answer = BucketView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<BucketView> {
        let default_retention = self.retention.as_deref().map(parse_retention).transpose()?;
        let new = NewBucket {
            object_lock: self.lock,
            versioning: self.versioning || self.lock,
            default_retention,
            quota: Quota { bytes: self.quota, versions: self.quota_versions },
            anonymous: if self.public_read { AnonymousAccess::Read } else { AnonymousAccess::None },
            protection: self.protection.map(|word| named(&PROTECTIONS, "a protection level", &word)).transpose()?,
            expiry: self.expiry.map_or(Ok(ExpiryAction::Keep), |word| named(&EXPIRIES, "an expiry action", &word))?,
            ..NewBucket::default()
        };
        let info = node.archive()?.create_bucket(&actor.caller(), &self.name, new).await?;
        view(node, actor, info).await
    }
}

/// Changes to a bucket, applied in this order; a field that is `None` changes nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SetBucket {
    pub name: String,
    pub versioning: bool,
    pub lock: bool,
    /// `none` removes the default retention.
    pub retention: Option<String>,
    pub protection: Option<String>,
    pub expiry: Option<String>,
    /// The inner `None` removes the limit.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nested")]
    pub quota: Option<Option<u64>>,
    /// As `quota`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nested")]
    pub quota_versions: Option<Option<u64>>,
    pub public_read: Option<bool>,
}

/// Distinguishes a null value from a missing field.
mod nested {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(value: &Option<Option<u64>>, serializer: S) -> Result<S::Ok, S::Error> {
        value.flatten().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
        Option::deserialize(deserializer).map(Some)
    }
}

impl SetBucket {
    /// Parses all changes before the first one is applied.
    fn changes(&self, now: &BucketInfo) -> Outcome<Vec<BucketChange>> {
        let mut changes = Vec::new();
        if self.versioning || (self.lock && now.versioning != Versioning::Enabled) {
            changes.push(BucketChange::Versioning(Versioning::Enabled));
        }
        let default = match self.retention.as_deref() {
            None => None,
            Some("none") => Some(None),
            Some(text) => Some(Some(parse_retention(text)?)),
        };
        if default.is_some() && !self.lock && now.object_lock.is_none() {
            return Err(Failure::usage(format!("bucket '{}' has no Object Lock, which a retention needs", now.name))
                .next("add --lock, which is for good"));
        }
        let useless = match (&self.protection, &self.expiry) {
            _ if self.lock || now.object_lock.is_some() => None,
            (Some(_), _) => Some("a protection level"),
            (None, Some(_)) => Some("an action at expiry"),
            (None, None) => None,
        };
        if let Some(what) = useless {
            let error = format!("bucket '{}' has no Object Lock, and {what} is for versions under retention", now.name);
            return Err(Failure::usage(error).next("add --lock, which is for good"));
        }
        match default {
            Some(default) => changes.push(BucketChange::ObjectLock(ObjectLock { default })),
            // Another officer may set a default meanwhile: it stays.
            None if self.lock => changes.push(BucketChange::Lock),
            None => {}
        }
        if let Some(word) = &self.protection {
            changes.push(BucketChange::Protection(named(&PROTECTIONS, "a protection level", word)?));
        }
        if let Some(word) = &self.expiry {
            changes.push(BucketChange::Expiry(named(&EXPIRIES, "an expiry action", word)?));
        }
        if self.quota.is_some() || self.quota_versions.is_some() {
            let Quota { bytes, versions } = now.quota;
            let (bytes, versions) = (self.quota.unwrap_or(bytes), self.quota_versions.unwrap_or(versions));
            changes.push(BucketChange::Quota(Quota { bytes, versions }));
        }
        if let Some(public) = self.public_read {
            let open = if public { AnonymousAccess::Read } else { AnonymousAccess::None };
            changes.push(BucketChange::Anonymous(open));
        }
        Ok(changes)
    }
}

impl Call for SetBucket {
    const NAME: &'static str = "bucket/set";
    type Answer = BucketView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<BucketView> {
        let (archive, caller) = (node.archive()?, actor.caller());
        let mut info = archive.bucket(&caller, &self.name).await?;
        let mut done = Vec::new();
        for change in self.changes(&info)? {
            let said = change.to_string();
            info = match archive.change_bucket(&caller, &self.name, change).await {
                Ok(info) => info,
                Err(error) if done.is_empty() => return Err(error.into()),
                Err(error) => {
                    let failure = Failure::from(error);
                    let next = format!("this much is done: {}; {}", done.join("; "), failure.next);
                    return Err(failure.next(next.trim_end_matches("; ").to_owned()));
                }
            };
            done.push(said);
        }
        view(node, actor, info).await
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct BucketList {}

impl Call for BucketList {
    const NAME: &'static str = "bucket/list";
    const READS: bool = true;
    type Answer = Vec<BucketView>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<BucketView>> {
        let mut views = Vec::new();
        for info in node.archive()?.list_buckets(&actor.caller()).await? {
            views.push(view(node, actor, info).await?);
        }
        Ok(views)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BucketShow {
    pub name: String,
}

impl Call for BucketShow {
    const NAME: &'static str = "bucket/show";
    const READS: bool = true;
    type Answer = BucketView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<BucketView> {
        let info = node.archive()?.bucket(&actor.caller(), &self.name).await?;
        view(node, actor, info).await
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Why {
    pub bucket: String,
    pub key: String,
    pub version: Option<String>,
}

impl Call for Why {
    const NAME: &'static str = "why";
    const READS: bool = true;
    type Answer = stele_archive::Why;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<stele_archive::Why> {
        let version = self.version.as_deref().map(VersionId::parse).transpose()?;
        if let Some(why) = super::share::why(node, actor, &self.bucket, &self.key, version).await? {
            return Ok(why);
        }
        Ok(node.archive()?.why(&actor.caller(), &self.bucket, &self.key, version).await?)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AuditShow {
    /// `None`: the most recent records.
    pub from: Option<u64>,
    pub limit: u64,
}

/// Largest number of records in one answer; a longer export calls again.
pub const AUDIT_PAGE: u64 = 1000;

impl Call for AuditShow {
    const NAME: &'static str = "audit/show";
    const READS: bool = true;
    type Answer = Vec<AuditRecord>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<AuditRecord>> {
        let archive = node.archive()?;
        let limit = self.limit.min(AUDIT_PAGE);
        let from = match self.from {
            Some(from) => from,
            None => archive.audit_head().await?.records.saturating_sub(limit) + 1,
        };
        Ok(archive.audit_records(&actor.caller(), from, limit as usize).await?)
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AuditVerify {
    pub anchor: Option<SignedHead>,
}

impl Call for AuditVerify {
    const NAME: &'static str = "audit/verify";
    const READS: bool = true;
    type Answer = AuditVerdict;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<AuditVerdict> {
        Ok(node.archive()?.audit_verify(&actor.caller(), self.anchor).await?)
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct AuditHead {}

impl Call for AuditHead {
    const NAME: &'static str = "audit/head";
    const READS: bool = true;
    type Answer = SignedHead;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<SignedHead> {
        Ok(node.archive()?.audit_head().await?)
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ClockShow {}

impl Call for ClockShow {
    const NAME: &'static str = "clock/show";
    const READS: bool = true;
    type Answer = ClockStatus;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<ClockStatus> {
        Ok(node.archive()?.clock())
    }
}

/// Accepts the alarm of the clock that the operator was shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClockAccept {
    pub alarm: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClockAccepted {
    #[serde(flatten)]
    pub clock: ClockStatus,
    /// The alarm that was accepted, if one stood.
    pub accepted: Option<String>,
}

impl Call for ClockAccept {
    const NAME: &'static str = "clock/accept";
    type Answer = ClockAccepted;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ClockAccepted> {
        let archive = node.archive()?;
        archive.accept_clock_alarm(&actor.caller(), self.alarm.as_deref()).await?;
        Ok(ClockAccepted { clock: archive.clock(), accepted: self.alarm })
    }
}

/// Tries what must be refused, in one bucket with Object Lock or in all of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SelfTest {
    pub bucket: Option<String>,
}

impl Call for SelfTest {
    const NAME: &'static str = "self-test";
    type Answer = Vec<stele_archive::SelfTest>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<stele_archive::SelfTest>> {
        node.self_test(&actor.caller(), self.bucket.as_deref()).await
    }
}

/// Makes an inventory of a bucket now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BucketInventory {
    pub bucket: String,
    pub id: String,
}

impl Call for BucketInventory {
    const NAME: &'static str = "bucket/inventory";
    type Answer = stele_archive::InventoryReport;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<stele_archive::InventoryReport> {
        Ok(node.archive()?.run_inventory(&actor.caller(), &self.bucket, &self.id).await?)
    }
}

/// Verifies more stored data: signatures of frames, the client's checksums, BLAKE3.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verify {
    pub cursor: ScrubCursor,
    /// Approximate bytes of content to verify.
    pub budget: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerifyView {
    pub cursor: ScrubCursor,
    pub report: ScrubReport,
}

impl Call for Verify {
    const NAME: &'static str = "archive/verify";
    const READS: bool = true;
    type Answer = VerifyView;
    async fn perform(mut self, node: &Node, _: &Actor) -> Outcome<VerifyView> {
        let report = node.verify_some(&mut self.cursor, self.budget).await?;
        Ok(VerifyView { cursor: self.cursor, report })
    }
}

#[cfg(test)]
mod tests;
