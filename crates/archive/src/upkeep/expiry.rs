//! Expiration: the versions whose retention has passed, and the action that their buckets set for them.
//!
//! Expiration goes by the compliance clock, and stops while that is frozen.

use std::sync::Arc;

use stele_catalog::{Direction, KeyRange, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::bucket::ExpiryAction;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::Caller;
use crate::model::time::Timestamp;
use crate::record::version::VersionRef;
use crate::record::{RETAINED, decode, keys};
use crate::retention::rules::Cause;
use crate::store::{Store, lookup};
use crate::upkeep::background::StepReport;

/// Versions that one step of expiration looks at.
const EXPIRY_PAGE: usize = 200;

impl Store {
    /// Processes the next versions whose retention has passed, as their buckets say.
    pub(crate) async fn expire(self: &Arc<Store>, report: &mut StepReport) -> Result<()> {
        let now = self.compliance_now();
        if self.frozen().is_some() || self.doubt().is_some() || self.is_expiration_paused() {
            return Ok(());
        }
        let rate = self.expiration_rate();
        let limit = self.upkeep().expiry_allowance(rate, self.elapsed()).min(EXPIRY_PAGE);
        if limit == 0 {
            return Ok(());
        }
        let Some(cursor) = self.upkeep().expiry_due(self.elapsed()) else { return Ok(()) };
        let past = KeyRange::all().below(keys::numbers(now.0.saturating_add(1), 0));
        let range = match cursor {
            Some(cursor) => past.after(cursor),
            None => past,
        };
        let page = self.snapshot()?.range(RETAINED, &range, limit, Direction::Forward)?;
        let more = page.len() == limit;
        let cursor = page.last().filter(|_| more).map(|(key, _)| key.clone());
        self.upkeep().note_expiry(cursor, self.elapsed());
        // With a rate the next step waits for its time.
        report.more |= more && rate.is_none();
        self.upkeep().spend_expiry(page.len());
        for (key, value) in &page {
            let at: VersionRef = decode(RETAINED, key, value)?;
            // A pause that was acknowledged meanwhile holds for the rest of the page, and so does a freeze.
            if self.is_expiration_held() {
                return Ok(());
            }
            match self.expire_version(&at, now).await {
                Ok(Some(ExpiryAction::Delete)) => report.expired += 1,
                Ok(Some(ExpiryAction::Notify)) => report.notified += 1,
                Ok(_) => {}
                Err(error @ ArchiveError::Stopped(_)) => return Err(error),
                // The version or the bucket's settings changed meanwhile: the next pass judges it again.
                Err(ArchiveError::Conflict(_)) => {}
                Err(error) => {
                    let message = format!("expiration of `{}`: {error}", at.key);
                    report.alarms.push(Alarm::new(AlarmKind::Expiration, message));
                }
            }
        }
        Ok(())
    }

    async fn expire_version(self: &Arc<Store>, at: &VersionRef, now: Timestamp) -> Result<Option<ExpiryAction>> {
        let caller = Caller::system("expiration");
        let lock = self.lock(at.bucket, &at.key).await?;
        // Under the lock: an officer may have changed the action while this waited.
        let Some(bucket) = self.buckets().by_number(at.bucket) else { return Ok(None) };
        let Some(found) = lookup::referred(&*self.snapshot()?, at)? else { return Ok(None) };
        let action = found.row.expiry(&bucket.row);
        if action == ExpiryAction::Keep {
            return Ok(None);
        }
        let passed = found.row.retention.filter(|retention| retention.until <= now);
        let (Some(retention), false) = (passed, found.row.is_held()) else { return Ok(None) };
        let event = Event::new(&caller, Action::Expire).object(bucket.name(), &at.key).version(found.id());
        match action {
            ExpiryAction::Notify if found.row.notified == Some(true) => Ok(None),
            ExpiryAction::Notify => {
                let event = event.detail(format!("its {} retention ended {}", retention.mode, retention.until));
                self.change_version(&bucket, &at.key, &found, lock, event, |row| row.notified = Some(true)).await?;
                Ok(Some(action))
            }
            _ => {
                let (transaction, removed) =
                    self.remove(Transaction::new(), &caller, &bucket, &at.key, &found, Cause::Expired).await?;
                let transaction = bucket.count(transaction, -1, -(found.row.size as i64));
                let event = event.happened("LifecycleExpiration:Delete").detail(format!(
                    "disposed of: {} bytes, blake3 {}, stored {}, {} until {}{}, compliance time {now}",
                    found.row.size,
                    found.row.fingerprint(),
                    found.row.modified,
                    retention.mode,
                    retention.until,
                    found
                        .row
                        .class
                        .as_ref()
                        .map_or(String::new(), |mark| format!(" by class `{}` version {}", mark.name, mark.version))
                ));
                self.commit_removal(transaction, event, removed, &bucket, &at.key, &found, lock).await?;
                Ok(Some(action))
            }
        }
    }
}
