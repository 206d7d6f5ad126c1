//! The matter `rebuild`: the facts that a rebuild with losses could not prove, and their decision
//! by two officers.
//!
//! A rebuild takes the newest note of each thing. Where a note may be unreadable, the newest
//! readable note is not proven to be the newest. A retention may have been raised since, a hold
//! set, a key revoked, or a bucket's level raised. The lost note may belong to any of them, so
//! everything that existed is in doubt.
//!
//! While the matter stands, no version in a bucket that existed is deleted, replaced or expires,
//! and no retention there is weakened. These buckets stay, their access keys are suspended, and
//! nothing is reclaimed, since missing records may lie there. New buckets and keys work as usual.
//!
//! The store's identity has the matter and is noted on the data volume. It survives restarts and
//! further rebuilds. It ends when a rebuild finds everything, or when two retention officers accept
//! the known state as complete. Then the suspended keys are revoked, except those of the two
//! officers.

use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Actor, Caller};
use crate::model::time::Timestamp;
use crate::record::access_key::AccessKeyRow;
use crate::record::request::RequestRow;
use crate::record::settings::Doubt;
use crate::record::{ACCESS_KEYS, REVOKED, fetch};
use crate::state::buckets::Bucket;
use crate::store::{Archive, Store};

impl Store {
    /// Refuses with a reason if nothing in the bucket may be deleted or weakened.
    pub(crate) fn check_doubt(&self, bucket: &Bucket) -> std::result::Result<(), String> {
        match self.doubt().filter(|doubt| bucket.number <= doubt.buckets) {
            Some(doubt) => Err(explained(&doubt, bucket.name())),
            None => Ok(()),
        }
    }

    /// Whether the matter suspends this key: it existed when the catalog was rebuilt with losses.
    pub(crate) fn suspends(&self, id: &str) -> bool {
        self.identity()
            .look(|identity| identity.doubt.as_ref().is_some_and(|doubt| doubt.keys.iter().any(|key| key == id)))
    }
}

pub(crate) fn explained(doubt: &Doubt, bucket: &str) -> String {
    format!(
        "bucket `{bucket}` and all in it are held under the matter `rebuild` since {}: the catalog was rebuilt while something \
         could not be read, so the latest retention and holds are not proven; return the drives and rebuild again, or two \
         retention officers decide",
        doubt.since
    )
}

impl Archive {
    /// Whether the matter `rebuild` suspends this access key.
    pub fn is_suspended(&self, key: &str) -> bool {
        self.store().suspends(key)
    }

    /// The time of the matter `rebuild`, and the first few unreadable places. None: there is no
    /// such matter.
    pub fn rebuild_matter(&self) -> Option<(String, Vec<String>)> {
        self.store().doubt().map(|doubt| (doubt.since.to_string(), doubt.places))
    }

    /// Two retention officers accept the found state as complete. Held versions are as their newest
    /// readable notes say. Suspended keys are revoked, except those of the two officers. `over`
    /// removes the request.
    pub(crate) async fn end_rebuild_matter(
        &self,
        caller: &Caller,
        asked: &RequestRow,
        since: Timestamp,
        over: Transaction,
        event: Event,
    ) -> Result<()> {
        let store = &self.store();
        let Some(doubt) = store.doubt().filter(|doubt| doubt.since == since) else {
            return Err(ArchiveError::NoSuchThing(format!("there is no matter `rebuild` of {since}")));
        };
        // Before the matter ends: a revoked key is never usable in between.
        let officers = [&asked.by, &caller.actor];
        for id in doubt.keys.iter().filter(|id| !officers.contains(&&Actor::Key((*id).clone()))) {
            self.revoke_doubted(caller, id).await?;
        }
        store.change_identity(over, event, |identity| identity.doubt = None).await
    }

    async fn revoke_doubted(&self, caller: &Caller, id: &str) -> Result<()> {
        let store: &Arc<Store> = &self.store();
        let lock = store.lock_named::<AccessKeyRow>(id).await?;
        let snapshot = store.snapshot()?;
        let Some(raw) = snapshot.get(ACCESS_KEYS, id.as_bytes())? else { return Ok(()) };
        let Some(mut row) = fetch::<AccessKeyRow>(&*snapshot, ACCESS_KEYS, id.as_bytes())? else { return Ok(()) };
        if row.revoked.is_some() {
            return Ok(());
        }
        row.revoked = Some(store.wall());
        let unchanged = Transaction::new().with_reserve().equals(ACCESS_KEYS, id.to_string(), raw).put(
            REVOKED,
            id.to_string(),
            Bytes::new(),
        );
        let event = Event::new(caller, Action::RevokeAccessKey)
            .detail(format!("{id}: its revocation may be in a place that the rebuild could not read"));
        let answer = store.write_named(id, row, unchanged, Some(event), lock).await?;
        store.compensated(answer).await
    }
}
