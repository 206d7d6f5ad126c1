//! Reopens an archive for writing. Missing drives made it read-only when it was opened, and they
//! are back.
//!
//! Failure model: a failed attempt changes nothing that counts, and the next attempt starts again,
//! also where the acts of the time without a log could not be recorded. A stopped catalog resumes
//! only at the next start, and the alarm says so.

use stele_archive::ArchiveError;

use super::volumes::Trouble;
use super::{Node, READ_ONLY};
use crate::failure::Outcome;

impl Node {
    /// Opens the archive for writing if missing drives made it read-only and all of its volumes are
    /// readable again. Returns whether it did.
    pub async fn open_archive_again(&self) -> Outcome<bool> {
        if self.trouble().is_none_or(|trouble| trouble.kind != READ_ONLY) {
            return Ok(false);
        }
        let (Some(archive), Some(foundation)) = (&self.archive, &self.foundation) else { return Ok(false) };
        let Some((catalog, data)) = self.archive_volumes().await?.pair else { return Ok(false) };
        if ![catalog, data].iter().all(|volume| volume.unreadable.is_empty()) {
            return Ok(false);
        }
        // It was opened already where only the record of acts failed.
        let opened = match archive.is_read_only() {
            true => archive.open_again(foundation.clone(), self.archive_options(false)).await,
            false => Ok(()),
        };
        match opened {
            Ok(()) => {}
            Err(error @ ArchiveError::Stopped(_)) => {
                // A stopped catalog resumes only at the next start.
                let next = "return missing drives, and start the server again".to_owned();
                let message = format!("the archive answers reads and refuses every change: {error}");
                self.set_trouble(Some(Trouble { kind: READ_ONLY, message, next }));
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        // Before changes are taken again: a failure is then repeated, and no act waits for a
        // restart.
        self.unrecorded.record(archive).await?;
        self.set_trouble(None);
        Ok(true)
    }
}
