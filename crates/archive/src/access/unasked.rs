//! Keys of officers that wait for an approval which no request asks for.
//!
//! The end of a request revokes the key that waits for it. Earlier versions of Stele ended requests
//! alone, and a key that could not be revoked for want of room stays too. Such a key is void, but
//! lists show it as waiting. The first step of each opening revokes these keys.
//!
//! Failure model: each revocation is a transaction of its own. The next opening finds the others.

use std::collections::BTreeSet;
use std::sync::Arc;

use stele_catalog::{KeyRange, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::Caller;
use crate::record::access_key::AccessKeyRow;
use crate::record::request::{Asked, RequestRow};
use crate::record::{ACCESS_KEYS, REQUESTS, decode};
use crate::store::Store;
use crate::store::scan::Scan;

impl Store {
    /// Revokes the keys that wait without a request, once in a session.
    pub(crate) async fn revoke_unasked(self: &Arc<Store>) -> Result<()> {
        // Where something was lost, a later rebuild may find what it takes to decide.
        if self.doubt().is_some() || !self.upkeep().take_unasked_due() {
            return Ok(());
        }
        for id in self.unasked()? {
            let event = Event::new(&Caller::system("approval"), Action::RevokeAccessKey)
                .detail("no request asks for its approval".into());
            match self.revoke_waiting(&id, Transaction::new().with_reserve(), event).await {
                Ok(_) | Err(ArchiveError::Conflict(_)) => {}
                Err(error @ (ArchiveError::NoSpace(_) | ArchiveError::Damaged { .. })) => {
                    tracing::warn!("access key {id} waits for no request, and could not be revoked: {error}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Keys and requests of one moment: each key is stored together with its request.
    fn unasked(&self) -> Result<Vec<String>> {
        let snapshot = self.snapshot()?;
        let mut asked = BTreeSet::new();
        let mut requests = Scan::new(&*snapshot, REQUESTS, KeyRange::all());
        while let Some((key, value)) = requests.next()? {
            if let Asked::Officer(id) = decode::<RequestRow>(REQUESTS, &key, &value)?.asked {
                asked.insert(id);
            }
        }
        let (mut keys, mut unasked) = (Scan::new(&*snapshot, ACCESS_KEYS, KeyRange::all()), Vec::new());
        while let Some((key, value)) = keys.next()? {
            let row: AccessKeyRow = decode(ACCESS_KEYS, &key, &value)?;
            let id = String::from_utf8_lossy(&key).into_owned();
            if row.is_pending() && row.revoked.is_none() && !asked.contains(&id) {
                unasked.push(id);
            }
        }
        Ok(unasked)
    }
}
