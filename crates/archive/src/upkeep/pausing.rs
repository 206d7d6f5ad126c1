//! Holding expiration back: a pause, and a rate. Both only keep versions longer, and neither
//! changes a retention.
//!
//! They are in the store's identity, which a rebuild of the catalog finds on the data volume.

use serde::{Deserialize, Serialize};
use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::error::{ArchiveError, Result};
use crate::model::matter::REASON_MAX;
use crate::model::principal::{Caller, Role};
use crate::record::settings::{ExpirationRow, Paused};
use crate::store::{Archive, Store};

/// Largest rate that can be set, in versions a second.
pub const RATE_MAX: u32 = 1_000_000;

/// How expiration is held back, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExpirationStatus {
    /// RFC 3339. None: it is not paused.
    pub paused_since: Option<String>,
    pub paused_by: Option<String>,
    pub reason: Option<String>,
    /// Versions a second at most. None: no limit.
    pub rate: Option<u32>,
    /// Why the compliance clock stops it.
    pub frozen: Option<String>,
}

impl Archive {
    pub async fn expiration(&self, caller: &Caller) -> Result<ExpirationStatus> {
        let store = &self.store();
        let roles = [Role::StorageAdministrator, Role::RetentionOfficer, Role::Auditor];
        store.audited(caller.require_role(&roles, Action::Read), || Event::new(caller, Action::Read)).await?;
        Ok(store.expiration_status())
    }

    /// Pauses expiration and lifecycle rules until they are resumed.
    pub async fn pause_expiration(&self, caller: &Caller, reason: &str) -> Result<ExpirationStatus> {
        if reason.len() > REASON_MAX {
            return Err(ArchiveError::InvalidArgument(format!("a reason has at most {REASON_MAX} bytes")));
        }
        let paused = Paused { since: self.store().wall(), by: caller.actor.clone(), reason: reason.into() };
        let detail = format!("expiration is paused: {reason}");
        let pause = |row: &mut ExpirationRow| {
            // Who paused it first, and why, stays: another reason is in the audit log.
            row.paused.get_or_insert_with(|| paused.clone());
        };
        self.hold_expiration_back(caller, detail, pause).await
    }

    /// Ends the pause. Every version is judged again before it goes.
    pub async fn resume_expiration(&self, caller: &Caller) -> Result<ExpirationStatus> {
        self.hold_expiration_back(caller, "expiration is resumed".into(), |row| row.paused = None).await
    }

    /// Limits how many versions expiration and lifecycle rules delete, hide or notify of in a
    /// second, together; an upload that a rule aborts counts as one.
    pub async fn limit_expiration(&self, caller: &Caller, rate: Option<u32>) -> Result<ExpirationStatus> {
        if rate.is_some_and(|rate| rate == 0 || rate > RATE_MAX) {
            let message = format!("a rate is from 1 to {RATE_MAX} versions a second; a pause stops expiration");
            return Err(ArchiveError::InvalidArgument(message));
        }
        let detail = match rate {
            Some(rate) => format!("expiration handles {rate} versions a second at most"),
            None => "expiration has no limit".into(),
        };
        self.hold_expiration_back(caller, detail, |row| row.rate = rate).await
    }

    async fn hold_expiration_back(
        &self,
        caller: &Caller,
        detail: String,
        change: impl Fn(&mut ExpirationRow),
    ) -> Result<ExpirationStatus> {
        let store = &self.store();
        store.writable()?;
        let event = || Event::new(caller, Action::Administer).detail(detail.clone());
        let roles = [Role::StorageAdministrator, Role::RetentionOfficer];
        store.audited(caller.require_role(&roles, Action::Administer), event).await?;
        let changed = store.change_identity(Transaction::new(), event(), |identity| {
            let row = identity.expiration.get_or_insert_default();
            change(row);
        });
        changed.await?;
        Ok(store.expiration_status())
    }
}

impl Store {
    fn expiration_status(&self) -> ExpirationStatus {
        let row = self.identity().look(|identity| identity.expiration.clone()).unwrap_or_default();
        ExpirationStatus {
            paused_since: row.paused.as_ref().map(|paused| paused.since.to_string()),
            paused_by: row.paused.as_ref().map(|paused| paused.by.to_string()),
            reason: row.paused.map(|paused| paused.reason),
            rate: row.rate,
            frozen: self.frozen(),
        }
    }

    /// Stands during a pause: what should be gone stays.
    pub(crate) fn pause_alarm(&self) -> Option<Alarm> {
        let row = self.identity().look(|identity| identity.expiration.clone())?;
        let Paused { since, by, reason } = row.paused?;
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let message = format!("expiration and lifecycle rules are paused since {since} by {by}{reason}");
        Some(Alarm::new(AlarmKind::ExpirationPaused, message))
    }

    /// Whether a pause, or a freeze of the clock, holds for the next version of a page that is
    /// under way.
    pub(crate) fn is_expiration_held(&self) -> bool {
        self.compliance_now();
        self.is_expiration_paused() || self.frozen().is_some()
    }

    pub(crate) fn is_expiration_paused(&self) -> bool {
        self.identity().look(|identity| identity.expiration.as_ref().is_some_and(|row| row.paused.is_some()))
    }

    pub(crate) fn expiration_rate(&self) -> Option<u32> {
        self.identity().look(|identity| identity.expiration.as_ref().and_then(|row| row.rate))
    }
}
