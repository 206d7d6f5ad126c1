//! Deleting the events of a target that left the configuration.
//!
//! Failure model: the audit log has the record before the first event goes. A crash leaves the
//! rest, for another call.

use std::sync::Arc;

use stele_catalog::{Direction, Head, KeyRange, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::notification::is_target_name;
use crate::model::principal::{Caller, Role};
use crate::record::{EVENT_ENDS, EVENTS, keys};
use crate::store::events::{PAGE_MAX, pending};
use crate::store::{Archive, Store};

impl Archive {
    /// Deletes the events that wait for a target which is no longer in the configuration, and the
    /// counts of dropped ones. Its numbers go on. Returns the number of deleted events.
    pub async fn forget_events(&self, caller: &Caller, target: &str) -> Result<u64> {
        let store: Arc<Store> = self.store();
        store.writable()?;
        let told = format!("the events that wait for the target `{target}` of notifications are deleted");
        let event = || Event::new(caller, Action::Administer).detail(told.clone());
        store.audited(caller.require_role(&[Role::StorageAdministrator], Action::Administer), event).await?;
        if !is_target_name(target) {
            return Err(ArchiveError::InvalidArgument("no target of notifications can have this name".into()));
        }
        if store.event_lag().has_sender(target) {
            let message = format!(
                "the target `{target}` is in the configuration: take it out, and start the server again, before its events are forgotten"
            );
            return Err(ArchiveError::InvalidState(message));
        }
        let known = store.snapshot()?.get(EVENT_ENDS, &keys::event_head(target))?;
        if known.is_none() && store.snapshot()?.get(EVENT_ENDS, &keys::event_dropped(target))?.is_none() {
            return Err(ArchiveError::NoSuchThing(format!(
                "no event was ever for a target `{target}`; `stele notifications list` names the targets"
            )));
        }
        let head = Head::decode(known.as_deref())?;
        // The record first: after a crash in between it tells more than was deleted.
        store.record(Transaction::new().with_reserve(), event()).await?;
        let range = KeyRange::prefix(keys::all_under(target)).below(keys::under(target, head.count.saturating_add(1)));
        let mut deleted = 0;
        loop {
            tokio::task::yield_now().await;
            let page = store.snapshot()?.range(EVENTS, &range, PAGE_MAX, Direction::Forward)?;
            if page.is_empty() {
                break;
            }
            deleted += page.len() as u64;
            let transaction = Transaction::new().with_reserve();
            let transaction = page.into_iter().fold(transaction, |all, (key, _)| all.delete(EVENTS, key));
            store.catalog().commit(transaction).await?;
        }
        let counts = Transaction::new().with_reserve().delete(EVENT_ENDS, keys::event_dropped(target));
        store.catalog().commit(counts.delete(EVENT_ENDS, keys::event_last_dropped(target))).await?;
        store.event_lag().note(target, pending(&*store.snapshot()?, target)?);
        Ok(deleted)
    }
}
