//! The settings of buckets that S3 clients make as documents: lifecycle, CORS, the policy, the
//! block of public access.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::may_see;
use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::AccessBlock;
use crate::model::cors::CorsRule;
use crate::model::error::{ArchiveError, Result};
use crate::model::lifecycle::LifecycleRule;
use crate::model::notification::NotificationRule;
use crate::model::policy::{Gift, Policy, RequestFacts, Verdict, gift_of};
use crate::model::principal::{Access, Actor, Caller, Grant, Rights, Role};
use crate::model::version::VersionId;
use crate::record::ACCESS_KEYS;
use crate::state::buckets::{Bucket, Policing};
use crate::store::{Archive, lookup};

/// Actions on the policy itself. No policy binds a storage administrator here, so that none locks
/// everybody out.
const OF_THE_POLICY: [&str; 3] = ["DeleteBucketPolicy", "GetBucketPolicy", "PutBucketPolicy"];
/// Actions by which an officer sees and extends protection. A policy cannot keep him from them.
const OF_OFFICERS: [&str; 6] = [
    "GetBucketObjectLockConfiguration",
    "GetObjectLegalHold",
    "GetObjectRetention",
    "PutBucketObjectLockConfiguration",
    "PutObjectLegalHold",
    "PutObjectRetention",
];

/// One action of a request, for the policy of its bucket.
#[derive(Clone, Copy, Debug)]
pub struct PolicyRequest<'r> {
    /// The action's name on AWS, without `s3:`.
    pub action: &'static str,
    /// None: the action is on the bucket itself.
    pub key: Option<&'r str>,
    /// The version asked for, if any.
    pub version: Option<VersionId>,
    /// Of a listing: the prefix that it asks for.
    pub prefix: &'r str,
}

/// Bytes of the longest value that conditions of a session's policy are compared with. Its author
/// is any client, and each pattern costs its length times the value's.
const SESSION_FACT_BYTES_MAX: usize = 1024;

impl Archive {
    /// The lifecycle rules.
    pub async fn lifecycle(&self, caller: &Caller, bucket: &str) -> Result<Option<Vec<LifecycleRule>>> {
        Ok(self.visible(caller, bucket).await?.row.lifecycle.clone())
    }

    /// The rules for requests from other origins, for callers that may see the bucket.
    pub async fn cors(&self, caller: &Caller, bucket: &str) -> Result<Option<Vec<CorsRule>>> {
        Ok(self.visible(caller, bucket).await?.row.cors.clone())
    }

    /// The first CORS rule that allows a request. Browsers ask before they sign, so everyone may.
    pub fn cors_rule(&self, bucket: &str, origin: &str, method: &str, headers: &[&str]) -> Option<CorsRule> {
        let bucket = self.store().buckets().by_name(bucket).ok()?;
        bucket.row.cors.as_ref()?.iter().find(|rule| rule.allows(origin, method, headers)).cloned()
    }

    /// The rules by which changes of objects are told to targets.
    pub async fn notifications(&self, caller: &Caller, bucket: &str) -> Result<Option<Vec<NotificationRule>>> {
        Ok(self.visible(caller, bucket).await?.row.notifications.clone())
    }

    /// The policy's document.
    pub async fn policy(&self, caller: &Caller, bucket: &str) -> Result<Option<String>> {
        Ok(self.visible(caller, bucket).await?.row.policy.clone())
    }

    /// Whether the policy offers something to everyone. None: there is no policy.
    pub async fn is_policy_public(&self, caller: &Caller, bucket: &str) -> Result<Option<bool>> {
        let bucket = self.visible(caller, bucket).await?;
        let blocked = bucket.row.access_block.is_some_and(|block| block.restrict);
        Ok(match &bucket.policy {
            Policing::None => None,
            Policing::Policy(policy) => Some(policy.is_public() && !blocked),
            Policing::Unreadable => Some(false),
        })
    }

    /// The block of public access.
    pub async fn access_block(&self, caller: &Caller, bucket: &str) -> Result<Option<AccessBlock>> {
        Ok(self.visible(caller, bucket).await?.row.access_block)
    }

    pub(super) async fn visible(&self, caller: &Caller, name: &str) -> Result<Arc<Bucket>> {
        let bucket = self.store().buckets().by_name(name)?;
        let allowed = match may_see(caller, &bucket) {
            true => Ok(bucket),
            false => Err(ArchiveError::Denied(format!("{} may not see bucket `{name}`", caller.actor))),
        };
        self.store().audited(allowed, || Event::new(caller, Action::Read).bucket(name)).await
    }

    /// Whether the caller's requests on the bucket have to be judged by a policy, the bucket's or
    /// the session's.
    pub fn is_policed(&self, caller: &Caller, bucket: &str) -> bool {
        is_limited(caller)
            || self.store().buckets().by_name(bucket).is_ok_and(|bucket| !matches!(bucket.policy, Policing::None))
    }

    /// Refuses a request on no bucket that the policy of the caller's session does not allow.
    pub async fn permit_outside(&self, caller: &Caller, action: &'static str, facts: &RequestFacts) -> Result<()> {
        let allowed = match caller.session.as_ref().and_then(|session| session.policy.as_ref()) {
            Some(policy) if !policy.allows("*", &caller.actor, action, None, facts) => Err(beyond_session(action, "*")),
            _ => Ok(()),
        };
        self.store().audited(allowed, || Event::new(caller, Action::Frontend).detail(format!("s3:{action}"))).await
    }

    /// Whether the caller may list the bucket with this key as the prefix, and may therefore know
    /// that the key is missing. `facts`: those of the request, where a policy judges it. This is no
    /// request, so the audit log has no record of a denial.
    pub fn may_list(&self, caller: &Caller, bucket: &str, key: &str, facts: Option<&RequestFacts>) -> bool {
        // Every caller is told that a bucket is missing.
        let Ok(found) = self.store().buckets().by_name(bucket) else { return true };
        let request = PolicyRequest { action: "ListBucket", key: None, version: None, prefix: key };
        let mut facts = facts.cloned().unwrap_or_default();
        facts.set("s3:prefix", key);
        let permitted = self.try_permit(caller, bucket, &[request], facts);
        permitted.is_ok_and(|caller| found.authorize(&caller, Access::List, key).is_ok())
    }

    /// Judges a request of a frontend by the policies of the session and the bucket. Returns the
    /// caller with the access that the bucket's policy adds for this request: none, unless the
    /// caller may do each of its actions. A denial is an error, and is audited.
    pub async fn permit(
        &self,
        caller: &Caller,
        bucket: &str,
        requests: &[PolicyRequest<'_>],
        facts: RequestFacts,
    ) -> Result<Caller> {
        let permitted = self.try_permit(caller, bucket, requests, facts);
        let event = || {
            let actions: Vec<&str> = requests.iter().map(|request| request.action).collect();
            let event =
                Event::new(caller, Action::Frontend).bucket(bucket).detail(format!("s3:{}", actions.join(", s3:")));
            match requests.iter().find_map(|request| request.key) {
                Some(key) => event.object(bucket, key),
                None => event,
            }
        };
        self.store().audited(permitted, event).await
    }

    fn try_permit(
        &self,
        caller: &Caller,
        name: &str,
        requests: &[PolicyRequest<'_>],
        mut facts: RequestFacts,
    ) -> Result<Caller> {
        let store = self.store();
        let found = store.buckets().by_name(name);
        let (mut permitted, mut lacks) = (caller.clone(), false);
        if requests.is_empty() && is_limited(caller) {
            return Err(beyond_session("do that with", name));
        }
        for request in requests {
            // Of this one request: a batch and the source of a copy have versions of their own.
            facts.remove("s3:VersionId");
            if let Some(version) = request.version {
                facts.set("s3:VersionId", version.to_string());
            }
            self.judge_session(caller, name, found.as_deref().ok(), request, &mut facts)?;
            let Ok(bucket) = &found else { continue };
            if is_exempt(caller, request.action) {
                continue;
            }
            let denied = |by: String| {
                let what = request.key.map_or_else(|| format!("`{name}`"), |key| format!("`{name}/{key}`"));
                Err(ArchiveError::Denied(format!("{} may not {} {what}: {by}", caller.actor, request.action)))
            };
            let policy = match &bucket.policy {
                Policing::None => continue,
                Policing::Unreadable => return denied("the bucket's policy cannot be read by this version".into()),
                Policing::Policy(policy) => policy,
            };
            if policy.asks_for_tags() {
                self.add_existing_tags(bucket, request, &mut facts)?;
            }
            match policy.judge(name, &caller.actor, request.action, request.key, &facts) {
                Verdict::Denied(Some(id)) => {
                    return denied(format!("statement `{id}` of the bucket's policy denies it"));
                }
                Verdict::Denied(None) => return denied("the bucket's policy denies it".into()),
                Verdict::Allowed => add(&mut permitted, bucket, request),
                Verdict::Silent => lacks |= lacks_access(caller, bucket, request),
            }
        }
        // Access that the policy adds for one action must not carry another one, as the tagging of
        // an object its writing.
        Ok(if lacks { caller.clone() } else { permitted })
    }

    /// Refuses what the policy of the caller's session does not allow. Neither a role nor an office
    /// exempts from it.
    fn judge_session(
        &self,
        caller: &Caller,
        name: &str,
        bucket: Option<&Bucket>,
        request: &PolicyRequest<'_>,
        facts: &mut RequestFacts,
    ) -> Result<()> {
        let Some(policy) = caller.session.as_ref().and_then(|session| session.policy.as_ref()) else { return Ok(()) };
        if policy.asks_for_tags() && request.key.is_some() {
            match bucket {
                // The tags of a share's objects are not those of its files.
                Some(bucket) if bucket.row.is_share() => return Err(beyond_session(request.action, name)),
                Some(bucket) => self.add_existing_tags(bucket, request, facts)?,
                None => {}
            }
        }
        if facts.longest() > SESSION_FACT_BYTES_MAX {
            return Err(ArchiveError::Denied(format!(
                "a header or parameter of the request has more than {SESSION_FACT_BYTES_MAX} bytes, and the session has a policy"
            )));
        }
        match policy.allows(name, &caller.actor, request.action, request.key, facts) {
            true => Ok(()),
            false => Err(beyond_session(request.action, name)),
        }
    }

    fn add_existing_tags(&self, bucket: &Bucket, request: &PolicyRequest<'_>, facts: &mut RequestFacts) -> Result<()> {
        let Some(key) = request.key else { return Ok(()) };
        let found = lookup::version(&*self.store().snapshot()?, bucket, key, request.version)?;
        for (tag, value) in found.map(|found| found.row.tags).unwrap_or_default() {
            facts.set(&format!("s3:ExistingObjectTag/{tag}"), value);
        }
        Ok(())
    }

    /// Refuses a policy that cannot be carried out, or that the block of public access forbids.
    pub(super) fn check_policy(&self, bucket: &Bucket, document: &str) -> Result<()> {
        let policy = Policy::parse(bucket.name(), document).map_err(ArchiveError::InvalidArgument)?;
        let snapshot = self.store().snapshot()?;
        for key in policy.keys() {
            if snapshot.get(ACCESS_KEYS, key.as_bytes())?.is_none() {
                let message = format!("Invalid principal in policy: there is no access key {key}");
                return Err(ArchiveError::InvalidArgument(message));
            }
        }
        if bucket.row.is_share() && policy.asks_for_tags() {
            return Err(ArchiveError::InvalidArgument(
                "a policy of a share cannot have conditions on s3:ExistingObjectTag".into(),
            ));
        }
        if policy.is_public() && bucket.row.access_block.is_some_and(|block| block.block_policy) {
            let message = format!("bucket `{}` blocks public policies; lift that first", bucket.name());
            return Err(ArchiveError::Denied(message));
        }
        Ok(())
    }
}

/// Whether a policy limits the caller's session.
fn is_limited(caller: &Caller) -> bool {
    caller.session.as_ref().is_some_and(|session| session.policy.is_some())
}

fn beyond_session(action: &str, place: &str) -> ArchiveError {
    ArchiveError::Denied(format!("the policy of this session does not allow {action} `{place}`"))
}

fn is_exempt(caller: &Caller, action: &str) -> bool {
    match caller.actor {
        Actor::Anonymous | Actor::Key(_) => {
            (caller.has(Role::StorageAdministrator) && OF_THE_POLICY.contains(&action))
                || (caller.has(Role::RetentionOfficer) && OF_OFFICERS.contains(&action))
        }
        // The operator at the unix socket and the store's own work.
        Actor::Local(_) | Actor::System(_) => true,
    }
}

/// Whether an action takes access that a policy could add, and that the caller does not have
/// without one.
fn lacks_access(caller: &Caller, bucket: &Bucket, request: &PolicyRequest<'_>) -> bool {
    let Some(Gift::Access(access)) = gift_of(request.action) else { return false };
    let place = if access == Access::List { request.prefix } else { request.key.unwrap_or_default() };
    bucket.authorize(caller, access, place).is_err()
}

/// Adds the access that a policy allows, for the key or prefix of this one request.
fn add(caller: &mut Caller, bucket: &Bucket, request: &PolicyRequest<'_>) {
    let Some(gift) = gift_of(request.action) else { return };
    let restricted = bucket.row.access_block.is_some_and(|block| block.restrict);
    if restricted && caller.actor == Actor::Anonymous {
        return;
    }
    let mut rights = Rights::clone(&caller.rights);
    // Without the role of a user the caller's own grants do not count, and must not begin to.
    if rights.roles.insert(Role::User) {
        rights.grants.clear();
    }
    let (prefix, access) = match gift {
        Gift::Access(Access::List) => (request.prefix, BTreeSet::from([Access::List])),
        Gift::Access(access) => (request.key.unwrap_or_default(), BTreeSet::from([access])),
        // A grant of nothing still shows its bucket.
        Gift::Sight => ("", BTreeSet::new()),
    };
    rights.grants.push(Grant { bucket: Some(bucket.name().to_owned()), prefix: prefix.to_owned(), access });
    caller.rights = Arc::new(rights);
}
