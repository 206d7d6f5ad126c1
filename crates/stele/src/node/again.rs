//! An archive that answers reads only, since drives were missing when it was opened, takes changes when they are back.
//!
//! Failure model: an attempt that fails changes nothing that counts, and the next one begins anew. A catalog that has stopped
//! goes on at the next start only, and the alarm says so.

use stele_archive::ArchiveError;

use super::volumes::Trouble;
use super::{Node, READ_ONLY};
use crate::failure::Outcome;

impl Node {
    /// Opens the archive for writing where it answers reads only, since drives were missing when it was opened, and all that it
    /// stands on can be read again. Answers whether it was.
    pub async fn open_archive_again(&self) -> Outcome<bool> {
        if self.trouble().is_none_or(|trouble| trouble.kind != READ_ONLY) {
            return Ok(false);
        }
        let (Some(archive), Some(foundation)) = (&self.archive, &self.foundation) else { return Ok(false) };
        let Some((catalog, data)) = self.archive_volumes().await?.pair else { return Ok(false) };
        if ![catalog, data].iter().all(|volume| volume.unreadable.is_empty()) {
            return Ok(false);
        }
        match archive.open_again(foundation.clone(), self.archive_options(false)).await {
            Ok(()) => {}
            Err(error @ ArchiveError::Stopped(_)) => {
                // A catalog that has stopped goes on at the next start only.
                let next = "return missing drives, and start the server again".to_owned();
                let message = format!("the archive answers reads and refuses every change: {error}");
                self.set_trouble(Some(Trouble { kind: READ_ONLY, message, next }));
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        self.set_trouble(None);
        self.unrecorded.record(archive).await?;
        Ok(true)
    }
}
