//! How much of the audit log refusals may take: a budget for each actor. Refusals beyond it are
//! counted and summed up.
//!
//! A client that reaches a port, or that has a key, can be refused as fast as its requests come.
//! Each actor has a burst and then a rate. Refusals beyond it are counted. The count is recorded
//! with the actor's next refusal, by background work, or when the store is closed. Refusals never
//! use the catalog's reserve: that is for deletions, holds, revocations and the clock.
//!
//! A log that was set back takes no refusals. They go to the log of the server.
//!
//! Failure model: a crash loses the counts since the last summary, of some minutes at most, and no
//! record.

use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::error::Result;
use crate::model::principal::{Actor, Caller};
use crate::record::audit::AuditRow;
use crate::state::refusals::{AccountKey, LeftOut};
use crate::store::{Archive, Store};

/// Actors that the alarm names.
const NAMED_MAX: usize = 10;

impl Archive {
    /// A newer audit log of this store is elsewhere, as a head that was sent there says. Refusals
    /// go to the log of the server from now on, for as long as the store is not opened again.
    pub fn keep_refusals_out(&self) {
        self.store().set_log_behind();
    }
}

impl Store {
    /// Records a refusal within its actor's budget, and never on the reserve. A refusal beyond the
    /// budget is counted.
    pub(crate) async fn record_refusal(&self, mut event: Event) -> Result<()> {
        let at = self.surroundings().now();
        let Some((key, before)) = self.refusals().admit(event.actor(), at) else { return Ok(()) };
        if let Some(LeftOut { count, .. }) = before {
            event.prefix_detail(format!("{count} refusals before this were left out"));
        }
        if self.is_log_behind() {
            // Clients wrote parts of the texts, so these are escaped.
            let AuditRow { actor, origin, action, refused, detail, .. } = event.row(at.wall);
            tracing::warn!(
                "the audit log was set back and takes no record of this refusal: {actor} from {:?}, {action} {:?}: {:?}",
                origin.unwrap_or_default(),
                detail.unwrap_or_default(),
                refused.unwrap_or_default()
            );
            return Ok(());
        }
        let recorded = self.record(Transaction::new(), event).await.map(drop);
        if recorded.is_err() {
            let before = before.unwrap_or(LeftOut { count: 0, since: at.wall });
            self.refusals().leave_out(key, LeftOut { count: before.count + 1, ..before }, at);
        }
        recorded
    }

    /// Records how many refusals of each actor were left out. `all`: also those that were left out
    /// only just now.
    pub(crate) async fn summarise_refusals(&self, all: bool) {
        let at = self.surroundings().now();
        for (key, left_out) in self.refusals().take_due(all, at) {
            let LeftOut { count, since } = left_out;
            let detail = format!("{count} refusals of {} from {since} to {} were left out", name(&key), at.wall);
            let event = Event::new(&Caller::system("audit"), Action::Summary).detail(detail);
            if let Err(failure) = self.record(Transaction::new(), event).await {
                tracing::warn!("refusals that were left out could not be summed up: {failure}");
                self.refusals().leave_out(key, left_out, at);
            }
        }
    }

    /// Stands for an hour after refusals of a known actor were left out: a key that is refused that
    /// often does harm.
    pub(crate) fn refusal_alarm(&self) -> Option<Alarm> {
        let names: Vec<String> =
            self.refusals().alarming(NAMED_MAX, self.surroundings().now()).iter().map(name).collect();
        (!names.is_empty()).then(|| {
            let message = format!(
                "the audit log counts refusals of {} and does not record each: they are too many, or it takes no \
                 record now",
                names.join(", ")
            );
            Alarm::new(AlarmKind::Refusals, message)
        })
    }
}

fn name(key: &AccountKey) -> String {
    key.as_ref().map_or_else(|| "others".into(), Actor::to_string)
}
