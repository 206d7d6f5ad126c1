//! Reading and changing the retention and the legal hold of stored versions.

use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::act::Act;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller};
use crate::model::version::{Retention, VersionId};
use crate::record::version::VersionRow;
use crate::retention::rules::retained;
use crate::retention::rules::{at_bucket_level, check_future, is_later, judge_change, require_lock};
use crate::store::Archive;

impl Archive {
    /// Fails with `NoSuchConfiguration` where the version has none.
    pub async fn retention(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<Retention> {
        let (bucket, found) = self.find_version(caller, bucket, key, version).await?;
        require_lock(&bucket)?;
        found.row.retention.ok_or_else(|| ArchiveError::NoSuchConfiguration {
            kind: "ObjectLockConfiguration",
            place: format!("`{}/{key}`", bucket.name()),
        })
    }

    /// Sets or extends the retention of a version. Shortens or removes it only in GOVERNANCE mode,
    /// with `bypass_governance` and the permission. Returns the number of the change's audit
    /// record.
    pub async fn set_retention(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        retention: Option<Retention>,
        bypass_governance: bool,
    ) -> Result<Option<u64>> {
        // A refusal states what was asked for; the record of the change, what was set.
        let in_words = |retention: Option<Retention>| {
            let detail = match retention {
                Some(retention) => format!("{} until {}", retention.mode, retention.until),
                None => "none".into(),
            };
            if bypass_governance { format!("{detail}, bypass requested") } else { detail }
        };
        let event = Event::new(caller, Action::SetRetention).object(bucket, key).detail(in_words(retention));
        let event = event.happened("ObjectRetention:Put");
        let result = async {
            let locked = self.lock_version_settled(caller, Access::Retain, bucket, key, version).await?;
            let (bucket, lock, settled, found) = locked;
            require_lock(&bucket)?;
            let (rules, now) = (self.store().rules(), self.store().compliance_now());
            let asked = retention;
            let retention = asked.map(|retention| at_bucket_level(&bucket, retention));
            let bypass = (bypass_governance, self.store().people_for(Act::Bypass));
            let judged = if bypass_governance && !is_later(&found, asked) { asked } else { retention };
            if let Err(reason) = judge_change(&bucket, caller, &found, judged, bypass, now) {
                let message = format!("the retention of `{}/{key}` stays: {reason}", bucket.name());
                return Err(retained(&bucket, key, &found, message));
            }
            // Under the matter `rebuild`, a later raise of the retention may be lost.
            let stronger = match (found.row.retention, retention) {
                (Some(before), Some(after)) => after.mode >= before.mode && after.until >= before.until,
                (None, _) => true,
                (Some(_), None) => false,
            };
            if !stronger && let Err(reason) = self.store().check_doubt(&bucket) {
                return Err(retained(&bucket, key, &found, reason));
            }
            if let Some(retention) = retention {
                // An active retention may be extended to any later date. A refusal would shorten
                // it.
                let active = found.row.retention.is_some_and(|before| before.until > now);
                check_future(retention, if active { now } else { self.store().later_now() })?;
            }
            let event = event.clone().version(found.id()).detail(in_words(retention));
            // Level `basic` lets a caller weaken a retention without a bypass: while the rules let
            // one person do that, and while the caller's key allows it.
            let required = match stronger {
                true => Transaction::new(),
                false => self.store().while_bypassing(Transaction::new(), rules, caller, Access::Retain, &bucket)?,
            };
            let change = |row: &mut VersionRow| {
                row.retention = retention;
                // The event of its class computes the end anew, and never to before what was asked
                // for.
                if let (Some(mark), Some(asked)) = (row.class.as_mut().filter(|mark| mark.awaits_event()), retention) {
                    mark.least = mark.least.max(Some(asked.until));
                }
            };
            let store = self.store();
            store.change_version_settled(settled, required, &bucket, key, &found, lock, event, change).await
        };
        let result = result.await;
        self.store().audited(result, || event).await
    }

    pub async fn legal_hold(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<bool> {
        let (bucket, found) = self.find_version(caller, bucket, key, version).await?;
        require_lock(&bucket)?;
        Ok(found.row.hold)
    }

    pub async fn set_legal_hold(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        hold: bool,
    ) -> Result<Option<u64>> {
        let event =
            Event::new(caller, Action::SetLegalHold).object(bucket, key).detail(if hold { "on" } else { "off" }.into());
        let event = event.happened("ObjectLegalHold:Put");
        let result = async {
            let (bucket, lock, found) = self.lock_version(caller, Access::Retain, bucket, key, version).await?;
            require_lock(&bucket)?;
            if !hold {
                self.store().check_doubt(&bucket).map_err(ArchiveError::InvalidState)?;
            }
            let event = event.clone().version(found.id());
            let required = match hold {
                true => Transaction::new(),
                false => self.store().while_allowed(Transaction::new(), caller, Access::Retain, &bucket)?,
            };
            // Also where it is held already: a release that is under way leaves what was asked for
            // since.
            let number = self.store().numbers().next().await?;
            let change = |row: &mut VersionRow| row.set_hold(hold, number);
            self.store().change_version_if(required, &bucket, key, &found, lock, event, change).await
        };
        let result = result.await;
        self.store().audited(result, || event).await
    }
}
