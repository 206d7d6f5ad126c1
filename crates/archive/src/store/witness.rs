//! The witness: what the superblock of the data volume knows of the catalog's audit log.
//!
//! A witness is written after the commit that it speaks of is durable. A crash can therefore leave
//! one that is behind the catalog, never one that is ahead of it.

use futures_util::lock::{Mutex, MutexGuard};
use stele_media::Handle;

use crate::model::error::{ArchiveError, Result};
use crate::record::settings::Pairing;
use crate::space::superblock::{Superblock, Witness};
use crate::state::shared::Shared;
use crate::state::timer::Timer;
use crate::store::Store;

/// Milliseconds between two witnesses of one session.
const WITNESS_EVERY: u64 = 5_000;

/// The owner of the superblock, and of every write to it.
pub(crate) struct Witnessing {
    volume: Handle,
    /// As it is on the volume, or is about to be.
    superblock: Shared<Superblock>,
    /// One write at a time.
    writing: Mutex<()>,
    renewal: Timer,
}

impl Witnessing {
    pub fn new(volume: Handle, superblock: Superblock) -> Witnessing {
        let renewal = Timer::new(WITNESS_EVERY);
        Witnessing { volume, superblock: Shared::new(superblock), writing: Mutex::new(()), renewal }
    }

    pub fn superblock(&self) -> Superblock {
        self.superblock.look(|superblock| *superblock)
    }

    /// Keeps others from writing the superblock until the answer is dropped.
    pub async fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    /// Raises the format of the store, durably, before anything is stored that an older binary must
    /// not ignore.
    pub async fn raise_format(&self, format: u32) -> Result<()> {
        let _turn = self.take_turn().await;
        let before = self.superblock();
        if before.format >= format {
            return Ok(());
        }
        Superblock { format, ..before }.write_somewhere(&self.volume).await?;
        self.superblock.step(|superblock| superblock.format = format);
        Ok(())
    }

    /// Writes a witness. Every record that it counts is durable already. A witness that knows less
    /// than the present one is left out.
    pub async fn write(&self, pairing: Pairing, records: u64, link: [u8; 32]) -> Result<()> {
        let _turn = self.take_turn().await;
        let changed = self.superblock.step(|superblock| {
            if superblock.witness.is_some_and(|before| before.pairing() == pairing && before.records > records) {
                return None;
            }
            superblock.witness = Some(Witness::new(pairing, records, link));
            Some(*superblock)
        });
        match changed {
            Some(superblock) => superblock.write_somewhere(&self.volume).await,
            None => Ok(()),
        }
    }
}

impl Store {
    /// Writes a witness of the audit log's signed end, if that has moved and some time has passed,
    /// or `now`. A volume that takes no writes keeps the former witness, which is still true.
    pub async fn renew_witness(&self, now: bool) -> Result<()> {
        let Some(signed) = self.audit_end.signed() else { return Ok(()) };
        let before = self.witnessing.superblock().witness.unwrap_or_default();
        if before.records >= signed.records || !(self.witnessing.renewal.is_due(self.elapsed()) || now) {
            return Ok(());
        }
        match self.witnessing.write(before.pairing(), signed.records, signed.link).await {
            Err(error @ (ArchiveError::NoSpace(_) | ArchiveError::Damaged { .. })) => {
                tracing::warn!("the witness of the audit log could not be written to the data volume: {error}");
                Ok(())
            }
            written => written,
        }
    }
}
