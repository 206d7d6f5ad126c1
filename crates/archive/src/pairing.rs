//! Whether catalog and data volume belong together.
//!
//! Either alone says what store it is of, but not which moment of that store: a copy of the catalog from last month has the
//! right store, and would free every segment it does not know. So each opening for writing gives both the same generation
//! and tag, and the data volume also remembers how far the catalog's audit log had come, and its link there. A catalog that
//! has neither is older, or of another history of the store, and is never written.
//!
//! Crash points of an opening, each of which leaves a pair that is recognised:
//! 1. before the catalog's commit: both have the former pairing;
//! 2. after it: the catalog has the former one, and names the new one as its next;
//! 3. after the data volume's superblock: it has the new one, which the catalog names as its next;
//! 4. after the commit that records the opening: both have the new one.
//!
//! The witness on the data volume is written again whenever the audit log has been signed some seconds after the last time,
//! and at closing, always after the commit it speaks of is durable. So what a crash can leave is a witness that is behind,
//! never one that is ahead.

use std::cmp::Ordering;

use stele_catalog::{Head, KeyRange, Snapshot, Transaction, link};

use crate::Archive;
use crate::audit::sealing::link_at;
use crate::error::{ArchiveError, Result};
use crate::mutation::{Mutation, Mutations};
use crate::record::settings::{AUDIT_HEAD, Gap, IDENTITY, IdentityRow, Pairing};
use crate::record::{AUDIT, SETTINGS, encode};
use crate::space::superblock::{Superblock, Witness};
use crate::store::{Foundation, Store, locked};

/// Milliseconds between two witnesses of one session.
const WITNESS_EVERY: u64 = 5_000;

/// How catalog and data volume stand to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Paired {
    Yes,
    /// The data volume is further on: nothing the catalog knows is newer.
    CatalogOlder(String),
    /// The catalog may know what the data volume does not.
    No(String),
}

impl Archive {
    /// Whether catalog and data volume belong together. Of a store that is open for writing they do.
    pub fn paired(&self) -> Paired {
        self.store().paired.clone()
    }
}

/// Whether the catalog is the one that belongs to the data volume as it is.
pub(crate) fn paired(
    identity: &IdentityRow,
    superblock: &Superblock,
    snapshot: &dyn Snapshot,
    without: Mutations,
) -> Result<Paired> {
    if without.has(Mutation::Pairing) {
        return Ok(Paired::Yes);
    }
    let witness = superblock.witness.unwrap_or_default();
    let (there, here) = (witness.pairing(), identity.pairing.unwrap_or_default());
    if identity.replaces == Some(there) {
        return Ok(Paired::Yes);
    }
    if there != here && identity.next != Some(there) {
        let (catalog, data) = (here.generation, there.generation);
        let said = format!("the catalog is of opening {catalog} and the data volume of opening {data}");
        return Ok(match data.cmp(&catalog) {
            Ordering::Greater => Paired::CatalogOlder(format!("{said}: the catalog is an older copy")),
            Ordering::Less => Paired::No(format!("{said}: the data volume is an older copy")),
            Ordering::Equal => Paired::No(format!("{said}, but of different histories of this store")),
        });
    }
    let head = Head::decode(snapshot.get(SETTINGS, AUDIT_HEAD)?.as_deref())?;
    if head.count < witness.records {
        return Ok(Paired::CatalogOlder(format!(
            "the catalog's audit log has {} records and had {} when the data volume was last written: the catalog is an \
             older copy",
            head.count, witness.records
        )));
    }
    if witness.records > 0 && link_at(snapshot, witness.records)? != Some(witness.link) {
        return Ok(Paired::No(format!(
            "the catalog's audit log is not the one the data volume knew at record {}: the catalog is of another history",
            witness.records
        )));
    }
    Ok(Paired::Yes)
}

/// The pairing that follows what catalog and data volume have now.
pub(crate) fn following(foundation: &Foundation, identity: &IdentityRow, superblock: &Superblock) -> Pairing {
    let there = superblock.witness.unwrap_or_default().generation;
    let here = identity.pairing.unwrap_or_default().generation;
    let begun = identity.next.unwrap_or_default().generation;
    let mut tag = [0; 16];
    foundation.surroundings.entropy(&mut tag);
    Pairing { generation: there.max(here).max(begun) + 1, tag }
}

/// Whether a rebuild said that this record is lost.
pub(crate) fn is_lost(gap: &Gap, record: u64) -> bool {
    gap.first <= record && gap.last.is_none_or(|last| record <= last)
}

impl Store {
    /// Begins an opening: see the crash points above. What is written of the identity here is what stood there, and `next`.
    pub(crate) async fn pair(&self, identity: &mut IdentityRow, next: Pairing, head: Head) -> Result<()> {
        identity.next = Some(next);
        let transaction = Transaction::new().with_reserve().put(SETTINGS, IDENTITY, encode(identity));
        self.catalog.commit(transaction).await?;
        self.write_witness(next, head.count, head.link).await
    }

    /// Tells the data volume what the catalog is now. Every record it names is durable already.
    pub(crate) async fn write_witness(&self, pairing: Pairing, records: u64, link: [u8; 32]) -> Result<()> {
        let _turn = self.work.witnessing.lock().await;
        let new = Witness::new(pairing, records, link);
        let superblock = {
            let mut superblock = locked(&self.superblock);
            if superblock.witness.is_some_and(|before| before.pairing() == pairing && before.records > records) {
                return Ok(());
            }
            superblock.witness = Some(new);
            *superblock
        };
        superblock.write_somewhere(&self.volume).await
    }

    /// The same, as the audit log was last signed, if that has changed and `now` or some time has passed. A volume that
    /// takes no writes keeps the former witness, which is no less true.
    pub(crate) async fn renew_witness(&self, now: bool) -> Result<()> {
        let Some(sealed) = locked(&self.work.sealed).clone() else { return Ok(()) };
        let before = locked(&self.superblock).witness.unwrap_or_default();
        if before.records >= sealed.records || !(self.due(&self.work.witnessed, WITNESS_EVERY) || now) {
            return Ok(());
        }
        match self.write_witness(before.pairing(), sealed.records, sealed.link).await {
            Err(error @ (ArchiveError::NoSpace(_) | ArchiveError::Damaged { .. })) => {
                tracing::warn!("the data volume was not told how far the audit log has come: {error}");
                Ok(())
            }
            written => written,
        }
    }
}

/// The chain's end after each record behind `from`, until `each` says that it has seen enough.
pub(crate) fn walk_links(
    snapshot: &dyn Snapshot,
    from: (u64, [u8; 32]),
    mut each: impl FnMut(u64, &[u8; 32]) -> bool,
) -> Result<()> {
    let (mut number, mut end) = from;
    loop {
        let range = KeyRange::all().after(crate::record::keys::number(number));
        let page = snapshot.range(AUDIT, &range, 1024, stele_catalog::Direction::Forward)?;
        if page.is_empty() {
            return Ok(());
        }
        for (key, value) in page {
            number = key.as_ref().try_into().map_or(u64::MAX, u64::from_be_bytes);
            end = link(&end, number, &value);
            if !each(number, &end) {
                return Ok(());
            }
        }
    }
}
