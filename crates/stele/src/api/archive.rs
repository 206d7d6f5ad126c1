//! Calls about buckets, access keys, retention and the audit log.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stele_archive::{
    Access, AccessKeyInfo, AnonymousAccess, AuditRecord, AuditVerdict, BucketInfo, ClockStatus, DefaultRetention,
    ExpiryAction, Grant, NewBucket, Period, Protection, Quota, RetentionMode, Rights, Role, ScrubCursor, ScrubReport,
    SignedHead, VersionId, Versioning,
};

use super::{Actor, Call, Done};
use crate::failure::{Failure, Outcome};
use crate::node::Node;

/// A bucket as an operator sees it.
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
    /// What happens to a version whose retention has passed: `keep`, `delete` or `notify`.
    pub expiry: String,
    pub quota_bytes: Option<u64>,
    pub public: bool,
    pub versions: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BucketCreate {
    pub name: String,
    pub lock: bool,
    pub versioning: bool,
    pub retention: Option<String>,
    pub quota: Option<u64>,
    pub public_read: bool,
    /// None: what the archive gives a new bucket.
    pub protection: Option<String>,
    /// None: keep.
    pub expiry: Option<String>,
}

const PROTECTIONS: [(Protection, &str); 3] =
    [(Protection::Basic, "basic"), (Protection::Governance, "governance"), (Protection::Compliance, "compliance")];

const EXPIRIES: [(ExpiryAction, &str); 3] =
    [(ExpiryAction::Keep, "keep"), (ExpiryAction::Delete, "delete"), (ExpiryAction::Notify, "notify")];

const ACCESSES: [(Access, &str); 5] = [
    (Access::Read, "read"),
    (Access::Write, "write"),
    (Access::Delete, "delete"),
    (Access::List, "list"),
    (Access::Retain, "retain"),
];

/// What a word of the command line stands for.
fn named<T: Copy, const N: usize>(known: &[(T, &str); N], what: &str, word: &str) -> Outcome<T> {
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
            .next("write compliance:7y, governance:30d, and the like")
    };
    let (mode, period) = text.split_once(':').ok_or_else(wrong)?;
    let mode = match mode.to_ascii_lowercase().as_str() {
        "compliance" => RetentionMode::Compliance,
        "governance" => RetentionMode::Governance,
        _ => return Err(wrong()),
    };
    let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0).ok_or_else(wrong);
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
    let usage = node.archive()?.usage(&actor.caller(), &info.name).await?;
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
        public: info.anonymous != AnonymousAccess::None,
        versions: usage.versions,
        bytes: usage.bytes,
        name: info.name,
    })
}

impl Call for BucketCreate {
    const NAME: &'static str = "bucket/create";
    type Answer = BucketView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<BucketView> {
        let default_retention = self.retention.as_deref().map(parse_retention).transpose()?;
        let new = NewBucket {
            object_lock: self.lock,
            versioning: self.versioning || self.lock,
            default_retention,
            quota: Quota { bytes: self.quota, versions: None },
            anonymous: if self.public_read { AnonymousAccess::Read } else { AnonymousAccess::None },
            protection: self.protection.map(|word| named(&PROTECTIONS, "a protection level", &word)).transpose()?,
            expiry: self.expiry.map_or(Ok(ExpiryAction::Keep), |word| named(&EXPIRIES, "an expiry action", &word))?,
            ..NewBucket::default()
        };
        let info = node.archive()?.create_bucket(&actor.caller(), &self.name, new).await?;
        view(node, actor, info).await
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct BucketList {}

impl Call for BucketList {
    const NAME: &'static str = "bucket/list";
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
    type Answer = BucketView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<BucketView> {
        let info = node.archive()?.bucket(&actor.caller(), &self.name).await?;
        view(node, actor, info).await
    }
}

/// An access key without its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyView {
    pub id: String,
    pub name: String,
    pub roles: Vec<String>,
    /// `BUCKET/PREFIX: access, ...`, `*` for every bucket.
    pub grants: Vec<String>,
    pub bypass_governance: bool,
    pub created: String,
    pub revoked: Option<String>,
    /// Void until an officer approves it.
    #[serde(default)]
    pub pending: bool,
}

impl From<AccessKeyInfo> for KeyView {
    fn from(info: AccessKeyInfo) -> KeyView {
        KeyView {
            id: info.id,
            name: info.description,
            roles: info.rights.roles.iter().map(|role| name_of(&ROLES, *role).to_owned()).collect(),
            grants: info
                .rights
                .grants
                .iter()
                .map(|grant| {
                    let access: Vec<&str> = grant.access.iter().map(|access| name_of(&ACCESSES, *access)).collect();
                    format!("{}/{}: {}", grant.bucket.as_deref().unwrap_or("*"), grant.prefix, access.join(", "))
                })
                .collect(),
            bypass_governance: info.rights.bypass_governance,
            created: info.created.to_string(),
            revoked: info.revoked.map(|at| at.to_string()),
            pending: info.pending,
        }
    }
}

const ROLES: [(Role, &str); 4] = [
    (Role::StorageAdministrator, "storage-administrator"),
    (Role::RetentionOfficer, "retention-officer"),
    (Role::Auditor, "auditor"),
    (Role::User, "user"),
];

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KeyCreate {
    pub name: String,
    pub roles: Vec<String>,
    pub buckets: Vec<String>,
    pub prefix: String,
    /// `read`, `write`, `delete`, `list`, `retain`; empty: none.
    pub access: Vec<String>,
    pub bypass_governance: bool,
    /// The key of the first start: everything that retention allows anybody.
    #[serde(default)]
    pub every_role: bool,
    /// A retention officer where no other one is left to approve it.
    #[serde(default)]
    pub officers_lost: bool,
}

/// The only time a secret is shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewKeyView {
    pub access_key: String,
    pub secret_key: String,
    /// The request that an officer has to approve before the key is good for anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<String>,
}

impl KeyCreate {
    fn rights(&self) -> Outcome<Rights> {
        if self.every_role {
            return Ok(Rights::all());
        }
        let roles = self.roles.iter().map(|role| named(&ROLES, "a role", role));
        let mut roles: BTreeSet<Role> = roles.collect::<Outcome<_>>()?;
        let words = self.access.iter();
        let access: BTreeSet<Access> =
            words.map(|word| named(&ACCESSES, "a kind of access", word)).collect::<Outcome<_>>()?;
        let grant = |bucket: Option<String>| Grant {
            bucket,
            prefix: self.prefix.clone(),
            access: std::clone::Clone::clone(&access),
        };
        let grants = match self.buckets.as_slice() {
            _ if access.is_empty() => Vec::new(),
            [] => vec![grant(None)],
            buckets => buckets.iter().map(|bucket| grant(Some(bucket.clone()))).collect(),
        };
        // Every role may use objects within its grants; an auditor reads.
        if roles.contains(&Role::StorageAdministrator) && roles.contains(&Role::RetentionOfficer) {
            return Err(Failure::usage("one key is not a storage administrator's and a retention officer's at once")
                .next("make two keys, for two people"));
        }
        roles.insert(Role::User);
        Ok(Rights { roles, grants, bypass_governance: self.bypass_governance })
    }
}

impl Call for KeyCreate {
    const NAME: &'static str = "key/create";
    type Answer = NewKeyView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<NewKeyView> {
        let (archive, caller) = (node.archive()?, actor.caller());
        let key = match self.officers_lost {
            true if self.roles != ["retention-officer"] => {
                return Err(Failure::usage("--officers-lost makes a retention officer")
                    .next("give --role retention-officer and no other, or leave it out"));
            }
            true => archive.create_officer_after_loss(&caller, &self.name).await?,
            false => archive.create_access_key(&caller, &self.name, self.rights()?).await?,
        };
        Ok(NewKeyView { access_key: key.id, secret_key: key.secret.to_string(), awaits: key.awaits })
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct KeyList {}

impl Call for KeyList {
    const NAME: &'static str = "key/list";
    type Answer = Vec<KeyView>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<KeyView>> {
        Ok(node.archive()?.list_access_keys(&actor.caller()).await?.into_iter().map(KeyView::from).collect())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyRevoke {
    pub id: String,
}

impl Call for KeyRevoke {
    const NAME: &'static str = "key/revoke";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.archive()?.revoke_access_key(&actor.caller(), &self.id).await?;
        Ok(Done {})
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct KeyEscrow {}

/// The master key itself: the socket it travels on admits only root and the server's own user.
#[derive(Clone, Serialize, Deserialize)]
pub struct EscrowView {
    pub key: String,
}

impl Call for KeyEscrow {
    const NAME: &'static str = "key/escrow";
    type Answer = EscrowView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<EscrowView> {
        let key = node.archive()?.export_master_key(&actor.caller()).await?;
        Ok(EscrowView { key: key.to_string() })
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub struct KeyCheck {
    /// The escrowed copy.
    pub key: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CheckView {
    pub opens: bool,
}

impl Call for KeyCheck {
    const NAME: &'static str = "key/check";
    type Answer = CheckView;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<CheckView> {
        let key = stele_archive::MasterKey::parse(&self.key)?;
        Ok(CheckView { opens: node.archive()?.check_master_key(&key).await? })
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
    type Answer = stele_archive::Why;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<stele_archive::Why> {
        let version = self.version.as_deref().map(VersionId::parse).transpose()?;
        Ok(node.archive()?.why(&actor.caller(), &self.bucket, &self.key, version).await?)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AuditShow {
    /// None: the last ones.
    pub from: Option<u64>,
    pub limit: u64,
}

/// Records a call answers at most; a longer export asks again.
pub const AUDIT_PAGE: u64 = 1000;

impl Call for AuditShow {
    const NAME: &'static str = "audit/show";
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
    type Answer = AuditVerdict;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<AuditVerdict> {
        Ok(node.archive()?.audit_verify(&actor.caller(), self.anchor).await?)
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct AuditHead {}

impl Call for AuditHead {
    const NAME: &'static str = "audit/head";
    type Answer = SignedHead;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<SignedHead> {
        Ok(node.archive()?.audit_head().await?)
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ClockShow {}

impl Call for ClockShow {
    const NAME: &'static str = "clock/show";
    type Answer = ClockStatus;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<ClockStatus> {
        Ok(node.archive()?.clock())
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ClockAccept {}

impl Call for ClockAccept {
    const NAME: &'static str = "clock/accept";
    type Answer = ClockStatus;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ClockStatus> {
        let archive = node.archive()?;
        archive.accept_clock(&actor.caller()).await?;
        Ok(archive.clock())
    }
}

/// Verifies some more of what is stored: signatures of frames, the client's checksums, BLAKE3.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verify {
    pub cursor: ScrubCursor,
    /// Bytes of content, about.
    pub budget: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerifyView {
    pub cursor: ScrubCursor,
    pub report: ScrubReport,
}

impl Call for Verify {
    const NAME: &'static str = "archive/verify";
    type Answer = VerifyView;
    async fn perform(mut self, node: &Node, _: &Actor) -> Outcome<VerifyView> {
        let report = node.verify_some(&mut self.cursor, self.budget).await?;
        Ok(VerifyView { cursor: self.cursor, report })
    }
}
