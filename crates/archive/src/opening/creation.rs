//! Making a new store.

use stele_catalog::{Catalog, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::Caller;
use crate::model::time::Reading;
use crate::record::audit::SealedRow;
use crate::record::properties::{INDEX, IndexRow};
use crate::record::settings::{AUDIT_SEALED, CLOCK, IDENTITY, IdentityRow};
use crate::record::{SETTINGS, encode};
use crate::space::superblock::{FORMAT_FIRST, Superblock, segments_on};
use crate::state::clock::ComplianceClock;
use crate::store::Archive;
use crate::store::foundation::{Foundation, Options};
use crate::store::signing::Signing;

/// Segments of the smallest store.
const SEGMENTS_MIN: u32 = 4;

impl Archive {
    /// Makes a new store on an empty catalog and an empty volume. Refuses where there is a store
    /// already. The compliance clock starts with the wall clock, which the operator has confirmed
    /// to the caller.
    pub async fn create(foundation: Foundation, options: Options) -> Result<Archive> {
        let segment = checked_segment(&foundation, &options)?;
        check_empty(&foundation).await?;
        let now = foundation.surroundings.now();
        let mut id = [0; 16];
        foundation.surroundings.entropy(&mut id);
        // The first part of the key table may hold bytes of an earlier use of the volume.
        foundation.data.zero(0, segment.into()).await?;
        foundation.data.flush().await?;
        let superblock = Superblock {
            format: FORMAT_FIRST,
            store: id,
            segment,
            created: now.wall,
            fingerprint: Superblock::fingerprint(&foundation.master, &id),
            witness: None,
        };
        // The catalog first: a superblock without a catalog would look like a store that lost its
        // catalog.
        let transaction = first_rows(&foundation, id, now)?;
        foundation.catalog.commit(transaction).await?;
        superblock.write(&foundation.data).await?;
        let archive = Archive::open(foundation, options).await?;
        let store = &archive.store();
        let event = Event::new(&Caller::system("store"), Action::CreateStore)
            .detail(format!("compliance time starts at {}", now.wall));
        store.record(Transaction::new().with_reserve(), event).await?;
        Ok(archive)
    }
}

/// The size of a segment, if it is allowed and enough segments fit on the volume.
fn checked_segment(foundation: &Foundation, options: &Options) -> Result<u32> {
    let size = options.segment.0;
    if !size.is_power_of_two() || !(256 << 10..=1 << 30).contains(&size) {
        return Err(ArchiveError::InvalidRequest("a segment is a power of two from 256 KiB to 1 GiB".into()));
    }
    let count = segments_on(foundation.data.geometry().size.0, size as u32);
    if count < SEGMENTS_MIN {
        return Err(ArchiveError::InvalidRequest(format!(
            "the data volume has room for {count} segments of {}, at least {SEGMENTS_MIN} are needed; make it larger",
            options.segment
        )));
    }
    Ok(size as u32)
}

async fn check_empty(foundation: &Foundation) -> Result<()> {
    if Superblock::read(&foundation.data).await?.is_some() {
        return Err(ArchiveError::InvalidState("the data volume holds a store already; open it".into()));
    }
    if foundation.catalog.snapshot()?.get(SETTINGS, IDENTITY)?.is_some() {
        return Err(ArchiveError::InvalidState("the catalog belongs to a store already; open it".into()));
    }
    Ok(())
}

/// The first rows of the catalog: the identity, the clock, the complete index of no version, and
/// the signed end of an empty audit log.
fn first_rows(foundation: &Foundation, id: [u8; 16], now: Reading) -> Result<Transaction> {
    let identity = IdentityRow {
        store: id,
        created: now.wall,
        format: FORMAT_FIRST,
        signing: Signing::generate(foundation, &id),
        clean: true,
        rebuilt: None,
        pairing: None,
        next: None,
        replaces: None,
        doubt: None,
        gaps: None,
        acts: None,
        expiration: None,
        cuts: None,
        parts_counted: Some(true),
        owned_counted: Some(true),
    };
    let clock = ComplianceClock::start(now).row();
    let signing = Signing::open(foundation, &id, &identity.signing)?;
    Ok(Transaction::new()
        .absent(SETTINGS, IDENTITY)
        .put(SETTINGS, IDENTITY, encode(&identity))
        .put(SETTINGS, CLOCK, encode(&clock))
        .put(SETTINGS, INDEX, encode(&IndexRow::of_new_catalog()))
        .put(SETTINGS, AUDIT_SEALED, encode(&SealedRow::first(&signing, &id))))
}
