//! The matter `rebuild`: what a rebuild with losses could not prove, and how two officers end it.
//!
//! A rebuild takes the newest note of each thing. Where a note may be unreadable, no note that is readable is proven to be
//! the newest: a retention may have been raised since, a hold set, a key revoked, a bucket's level raised. The lost note may
//! be of any of them, so all that existed is in doubt. While the matter stands, no version in a bucket that existed is
//! deleted, replaced or expires, no retention there is weakened, the buckets stay, their access keys are suspended, and
//! nothing is reclaimed: what was not found may lie there. New buckets and keys are as ever.
//!
//! It stands in the store's identity, which is noted on the data volume: it survives restarts and further rebuilds. It
//! ends when a rebuild finds everything, or when two retention officers decide that what is known is all there is. Then the
//! suspended keys are revoked, those of the two officers apart.

use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Actor, Caller, Credentials};
use crate::model::time::Timestamp;
use crate::record::access_key::AccessKeyRow;
use crate::record::request::RequestRow;
use crate::record::settings::{Doubt, IDENTITY};
use crate::record::{ACCESS_KEYS, REVOKED, SETTINGS, encode, fetch};
use crate::state::buckets::Bucket;
use crate::state::compensations::NoteSubject;
use crate::store::{Archive, Store};

impl Store {
    /// Why nothing in the bucket may be deleted or weakened, if so.
    pub(crate) fn undoubted(&self, bucket: &Bucket) -> std::result::Result<(), String> {
        match self.doubt().filter(|doubt| bucket.number <= doubt.buckets) {
            Some(doubt) => Err(explained(&doubt, bucket.name())),
            None => Ok(()),
        }
    }

    /// Whether the key existed when the catalog was rebuilt with losses.
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
    /// What the matter `rebuild` is about: since when, and the first few places that could not be read. None: nothing.
    pub fn rebuild_matter(&self) -> Option<(String, Vec<String>)> {
        self.store().doubt().map(|doubt| (doubt.since.to_string(), doubt.places))
    }

    /// As [`Archive::credentials`], also of a key that the matter `rebuild` suspends: to decide about that very matter.
    pub async fn officer_credentials(&self, id: &str) -> Result<Credentials> {
        self.credentials_of(id, true).await
    }

    /// Two retention officers agree that what the rebuild found is all there is. Held things are as their newest readable
    /// notes say; suspended keys are revoked, those of the two apart. `over` takes the request away.
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
            return Err(ArchiveError::InvalidState(format!("there is no matter `rebuild` of {since}")));
        };
        // Before the matter ends: none of them is ever usable in between.
        let officers = [&asked.by, &caller.actor];
        for id in doubt.keys.iter().filter(|id| !officers.contains(&&Actor::Key((*id).clone()))) {
            self.revoke_doubted(caller, id).await?;
        }
        let identity = {
            let mut identity = store.identity().look(Clone::clone);
            identity.doubt = None;
            identity
        };
        store.record(over.with_reserve().put(SETTINGS, IDENTITY, encode(&identity)), event).await?;
        store.identity().step(|identity| identity.doubt = None);
        store.note_identity().await
    }

    async fn revoke_doubted(&self, caller: &Caller, id: &str) -> Result<()> {
        let store: &Arc<Store> = &self.store();
        let lock = store.lock(0, id).await?;
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
            .detail(format!("{id}: it may have been revoked in what the rebuild could not read"));
        let answer = store.write_access_key(id, row, unchanged, Some(event), lock).await?;
        store.compensated(NoteSubject::AccessKey(id.into()), answer).await
    }
}
