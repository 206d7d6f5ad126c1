//! Calls about access keys (create, list, narrow, revoke) and about the master key.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use stele_archive::{Access, AccessKeyInfo, Grant, KeyChange, KeyLife, Quota, Rights, Role, check_bucket_name};

use super::{ACCESSES, name_of, named, nested};
use crate::api::matters::date;
use crate::api::{Actor, Call, Done};
use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;

/// The rights of a key over objects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantView {
    /// `None`: every bucket.
    pub bucket: Option<String>,
    /// Prefix of the object keys; empty for all.
    pub prefix: String,
    /// `read`, `write`, `delete`, `list`, `retain`.
    pub access: Vec<String>,
}

impl std::fmt::Display for GrantView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}: {}", self.bucket.as_deref().unwrap_or("*"), self.prefix, self.access.join(", "))
    }
}

/// An access key without its secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyView {
    pub id: String,
    pub name: String,
    pub roles: Vec<String>,
    pub grants: Vec<GrantView>,
    pub bypass_governance: bool,
    pub created: String,
    pub revoked: Option<String>,
    /// Not valid until an officer approves it.
    #[serde(default)]
    pub pending: bool,
    /// The key is void from then on.
    #[serde(default)]
    pub expires: Option<String>,
    #[serde(default)]
    pub expired: bool,
    /// What the key may own, over all buckets.
    #[serde(default)]
    pub quota_bytes: Option<u64>,
    #[serde(default)]
    pub quota_versions: Option<u64>,
    /// What it owns: versions, and parts of unfinished uploads.
    #[serde(default)]
    pub owned_bytes: u64,
    #[serde(default)]
    pub owned_versions: u64,
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
                .map(|grant| GrantView {
                    bucket: grant.bucket.clone(),
                    prefix: grant.prefix.clone(),
                    access: grant.access.iter().map(|access| name_of(&ACCESSES, *access).to_owned()).collect(),
                })
                .collect(),
            bypass_governance: info.rights.bypass_governance,
            created: info.created.to_string(),
            revoked: info.revoked.map(|at| at.to_string()),
            pending: info.pending,
            expires: info.expires.map(|at| at.to_string()),
            expired: info.expired,
            quota_bytes: info.quota.bytes,
            quota_versions: info.quota.versions,
            owned_bytes: info.owned.bytes,
            owned_versions: info.owned.versions,
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
pub struct CreateKey {
    pub name: String,
    pub roles: Vec<String>,
    pub buckets: Vec<String>,
    pub prefix: String,
    /// `read`, `write`, `delete`, `list`, `retain`; empty: none.
    pub access: Vec<String>,
    pub bypass_governance: bool,
    /// For the key of the first start: every right that retention allows.
    #[serde(default)]
    pub every_role: bool,
    /// A retention officer made when no officer is left to approve one.
    #[serde(default)]
    pub officers_lost: bool,
    /// A date, a moment or a duration; None: without an end.
    #[serde(default)]
    pub expires: Option<String>,
    /// What the key may own, over all buckets. None: no limit.
    #[serde(default)]
    pub quota: Option<u64>,
    #[serde(default)]
    pub quota_versions: Option<u64>,
}

/// A new key. This is the only time that its secret is shown.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewKeyView {
    pub access_key: String,
    pub secret_key: String,
    /// The request that an officer must approve before the key is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits: Option<String>,
}

impl CreateKey {
    fn rights(&self) -> Outcome<Rights> {
        if self.every_role {
            return Ok(Rights::all());
        }
        check_buckets(&self.buckets)?;
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
        // Every role may use objects within its grants; an auditor may read them.
        if roles.contains(&Role::StorageAdministrator) && roles.contains(&Role::RetentionOfficer) {
            return Err(Failure::usage("one key is not a storage administrator's and a retention officer's at once")
                .next("make two keys, for two people"));
        }
        roles.insert(Role::User);
        Ok(Rights { roles, grants, bypass_governance: self.bypass_governance })
    }
}

/// Refuses buckets that can never be there: such a key would do nothing.
fn check_buckets(names: &[String]) -> Outcome<()> {
    names.iter().try_for_each(|name| {
        check_bucket_name(name)
            .map_err(|error| Failure::from(error).next("give --bucket the name of one bucket, and repeat it for more"))
    })
}

impl Call for CreateKey {
    const NAME: &'static str = "key/create";
    type Answer = NewKeyView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<NewKeyView> {
        let (archive, caller) = (node.archive()?, actor.caller());
        let life = self.expires.as_deref().map_or(Ok(KeyLife::Endless), life)?;
        let key = match self.officers_lost {
            true if self.expires.is_some() => {
                return Err(Failure::usage("an officer's key that replaces lost ones takes no end")
                    .next("leave out --expires; `stele key set` sets an end once the key is valid"));
            }
            true if self.roles != ["retention-officer"] => {
                return Err(Failure::usage("--officers-lost makes a retention officer")
                    .next("give --role retention-officer and no other, or leave it out"));
            }
            true => archive.create_officer_after_loss(&caller, &self.name).await?,
            false => {
                let quota = Quota { bytes: self.quota, versions: self.quota_versions };
                archive.create_limited_access_key(&caller, &self.name, self.rights()?, life, quota).await?
            }
        };
        Ok(NewKeyView { access_key: key.id, secret_key: key.secret.to_string(), awaits: key.awaits })
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct KeyList {}

impl Call for KeyList {
    const NAME: &'static str = "key/list";
    const READS: bool = true;
    type Answer = Vec<KeyView>;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Vec<KeyView>> {
        Ok(node.archive()?.list_access_keys(&actor.caller()).await?.into_iter().map(KeyView::from).collect())
    }
}

/// The remaining rights of a key; a field that is `None` changes nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KeyNarrow {
    pub id: String,
    pub roles: Option<Vec<String>>,
    pub buckets: Option<Vec<String>>,
    pub prefix: Option<String>,
    pub access: Option<Vec<String>>,
    pub no_bypass: bool,
}

impl KeyNarrow {
    fn of(&self, rights: &Rights) -> Outcome<Rights> {
        let mut left = rights.clone();
        check_buckets(self.buckets.as_deref().unwrap_or_default())?;
        if let Some(words) = &self.roles {
            let roles = words.iter().map(|word| named(&ROLES, "a role", word));
            left.roles = roles.collect::<Outcome<_>>()?;
            // Every role may use objects within its grants.
            left.roles.extend(rights.roles.get(&Role::User));
        }
        let words = self.access.as_ref().map(|words| {
            words.iter().map(|word| named(&ACCESSES, "a kind of access", word)).collect::<Outcome<BTreeSet<Access>>>()
        });
        let access = words.transpose()?;
        // Cut each existing grant for each named bucket.
        let cut = |grant: &Grant, bucket: Option<String>| Grant {
            bucket,
            prefix: self.prefix.clone().unwrap_or_else(|| grant.prefix.clone()),
            access: access.as_ref().map_or_else(|| grant.access.clone(), |access| access & &grant.access),
        };
        left.grants = rights
            .grants
            .iter()
            .flat_map(|grant| match &self.buckets {
                None => vec![cut(grant, grant.bucket.clone())],
                Some(names) => {
                    let within = names.iter().filter(|name| grant.bucket.as_ref().is_none_or(|own| own == *name));
                    within.map(|name| cut(grant, Some(name.clone()))).collect()
                }
            })
            .filter(|grant| !grant.access.is_empty())
            .collect();
        let lost = access.as_ref().is_some_and(|access| {
            access.iter().any(|kind| !rights.grants.iter().any(|grant| grant.access.contains(kind)))
        });
        if lost || (left.grants.is_empty() && !rights.grants.is_empty()) {
            return Err(Failure::new(Kind::Refused, format!("access key {} may not do that now: {rights}", self.id))
                .next("`stele key list` shows its rights; make another key for more"));
        }
        left.bypass_governance &= !self.no_bypass;
        Ok(left)
    }
}

impl Call for KeyNarrow {
    const NAME: &'static str = "key/narrow";
    type Answer = KeyView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<KeyView> {
        let (archive, caller) = (node.archive()?, actor.caller());
        let keys = archive.list_access_keys(&caller).await?;
        let missing = || Failure::from(stele_archive::ArchiveError::NoSuchAccessKey(self.id.clone()));
        let key = keys.into_iter().find(|key| key.id == self.id && key.revoked.is_none()).ok_or_else(missing)?;
        let left = self.of(&key.rights)?;
        Ok(archive.narrow_access_key(&caller, &self.id, left).await?.into())
    }
}

/// A life of a key as the command line states it: a date, a moment, a duration such as `90d`, or
/// `never`.
fn life(text: &str) -> Outcome<KeyLife> {
    const UNITS: [(char, u64); 5] = [('m', 60), ('h', 3600), ('d', 86_400), ('w', 7 * 86_400), ('y', 365 * 86_400)];
    if text == "never" {
        return Ok(KeyLife::Endless);
    }
    let unit = UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, *seconds)));
    if let Some((number, seconds)) = unit
        && let Ok(number) = number.parse::<u64>()
    {
        return Ok(KeyLife::For(number.saturating_mul(seconds).saturating_mul(1000)));
    }
    let until = date(text).map_err(|failure| {
        let what = match failure.error.contains("before 1970") {
            true => failure.error,
            false => format!("'{text}' is neither a date nor a duration"),
        };
        Failure::usage(what).next("write 2027-04-02 or 2027-04-02T12:00:00Z, in UTC, or 30m, 12h, 90d, 8w or 1y")
    })?;
    Ok(KeyLife::Until(until))
}

/// The new end or quota of a key; a field that is `None` changes nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SetKey {
    pub id: String,
    /// A date, a moment, a duration from now on, or `never`.
    #[serde(default)]
    pub expires: Option<String>,
    /// The inner None takes the limit away.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nested")]
    pub quota: Option<Option<u64>>,
    /// As `quota`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nested")]
    pub quota_versions: Option<Option<u64>>,
}

impl Call for SetKey {
    const NAME: &'static str = "key/set";
    type Answer = KeyView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<KeyView> {
        let life = self.expires.as_deref().map(life).transpose()?;
        let change = KeyChange { life, quota_bytes: self.quota, quota_versions: self.quota_versions };
        Ok(node.archive()?.change_key(&actor.caller(), &self.id, change).await?.into())
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
pub struct MasterKeyExportCall {}

/// The master key itself. The socket that carries it admits only root and the server's own user.
#[derive(Clone, Serialize, Deserialize)]
pub struct MasterKeyView {
    pub key: String,
}

impl Call for MasterKeyExportCall {
    const NAME: &'static str = "master-key/export";
    type Answer = MasterKeyView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<MasterKeyView> {
        let key = node.archive()?.export_master_key(&actor.caller()).await?;
        Ok(MasterKeyView { key: key.to_string() })
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub struct MasterKeyVerifyCall {
    /// The exported copy.
    pub key: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CheckView {
    pub opens: bool,
}

impl Call for MasterKeyVerifyCall {
    const NAME: &'static str = "master-key/verify";
    const READS: bool = true;
    type Answer = CheckView;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<CheckView> {
        let key = stele_archive::MasterKey::parse(&self.key)?;
        Ok(CheckView { opens: node.archive()?.check_master_key(&key).await? })
    }
}
