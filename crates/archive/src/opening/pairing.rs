//! Whether the catalog and the data volume belong together.
//!
//! Each of them names its store, but not the moment of that store. A copy of the catalog from last
//! month names the right store, and would free every segment that it does not know. Therefore each
//! opening for writing gives both the same generation and tag. The data volume also stores the
//! length of the catalog's audit log and its link there, the witness. A catalog that lacks these is
//! older, or of another history of the store, and is never written.
//!
//! Crash points of an opening. After each of them the pair is recognised:
//! 1. before the catalog's commit: both have the former pairing;
//! 2. after it: the catalog has the former pairing, and names the new one as its next;
//! 3. after the write of the superblock: it has the new pairing, which the catalog names as its
//!    next;
//! 4. after the commit that records the opening: both have the new pairing.
//!
//! The witness is written again some seconds after the audit log was signed, and at closing. Each
//! write follows the commit that it describes, so a crash can leave a witness that is behind, never
//! one that is ahead.

use std::cmp::Ordering;

use stele_catalog::{Head, Snapshot, Transaction};

use crate::audit::chain::link_at;
use crate::model::error::Result;
use crate::model::mutation::{Mutation, Mutations};
use crate::model::pairing::Paired;
use crate::record::settings::{AUDIT_HEAD, IDENTITY, IdentityRow, Pairing};
use crate::record::{SETTINGS, encode};
use crate::space::superblock::Superblock;
use crate::store::foundation::Foundation;
use crate::store::{Archive, Store};

impl Archive {
    /// Whether the catalog and the data volume belong together. They do if the store is open for
    /// writing.
    pub fn paired(&self) -> Paired {
        self.store().paired().clone()
    }
}

/// Whether the catalog belongs to the data volume in its present state.
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
            "the catalog's audit log differs from the one that the data volume knows at record {}: the catalog is of another history",
            witness.records
        )));
    }
    Ok(Paired::Yes)
}

/// A new pairing, later than those of the catalog and of the data volume.
pub(crate) fn following(foundation: &Foundation, identity: &IdentityRow, superblock: &Superblock) -> Pairing {
    let there = superblock.witness.unwrap_or_default().generation;
    let here = identity.pairing.unwrap_or_default().generation;
    let begun = identity.next.unwrap_or_default().generation;
    let mut tag = [0; 16];
    foundation.surroundings.entropy(&mut tag);
    Pairing { generation: there.max(here).max(begun) + 1, tag }
}

impl Store {
    /// Pairs catalog and data volume: crash points 1 to 3 above. Of the identity, only `next` is
    /// changed here.
    pub(crate) async fn pair(&self, identity: &mut IdentityRow, next: Pairing, head: Head) -> Result<()> {
        identity.next = Some(next);
        let transaction = Transaction::new().with_reserve().put(SETTINGS, IDENTITY, encode(identity));
        self.catalog().commit(transaction).await?;
        self.witnessing().write(next, head.count, head.link).await
    }
}
