//! A pool that is being made. Its drives carry labels before the configuration names them, and no
//! command would take them again. So what a failed creation left is taken back, and what a killed
//! one left is taken back by the next.
//!
//! The file `unfinished-pool` in the data directory names the pool from before its first label
//! until it is complete. The identity is random and no host has used the pool. A pool with retained
//! records is never touched.

use std::path::PathBuf;

use stele_array::server::DrivePlace;
use stele_ground::PoolId;

use super::wipe;
use crate::config::Site;
use crate::failure::{Outcome, io_failure};
use crate::files;

const NAME: &str = "unfinished-pool";

pub struct Unfinished {
    note: PathBuf,
    pool: PoolId,
    /// The drives, and whether each is a file that this creation makes.
    drives: Vec<(PathBuf, bool)>,
}

impl Unfinished {
    /// Notes the pool, and first takes the labels of a killed creation off these drives.
    pub fn begin(site: &Site, pool: PoolId, drives: &[DrivePlace]) -> Outcome<Unfinished> {
        let note = site.dir.join(NAME);
        if let Some(former) = Unfinished::former(site)? {
            for drive in drives.iter().filter(|drive| drive.path.exists()) {
                wipe::unfinished(&drive.path, &former)?;
            }
        }
        files::replace(&note, format!("{pool}\n").as_bytes())?;
        let drives = drives.iter().map(|drive| (drive.path.clone(), !drive.path.exists())).collect();
        Ok(Unfinished { note, pool, drives })
    }

    /// The pool that a killed creation left unfinished here.
    pub fn former(site: &Site) -> Outcome<Option<String>> {
        let note = site.dir.join(NAME);
        match std::fs::read_to_string(&note) {
            Ok(former) => Ok(Some(former.trim().to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_failure("read", &note, &error)),
        }
    }

    /// The pool is complete, or nothing of it was made.
    pub fn finish(self) -> Outcome<()> {
        files::remove(&self.note)
    }

    /// Removes what was made, and says whether nothing is left. No task uses the drives any more.
    /// What cannot be removed now, the next creation removes.
    pub fn take_back(self) -> bool {
        let pool = self.pool.to_string();
        let take = |(path, is_made): &(PathBuf, bool)| match is_made {
            true => files::remove(path),
            false => wipe::unfinished(path, &pool),
        };
        // Each of them, whatever becomes of the others.
        let taken: Vec<Outcome<()>> = self.drives.iter().map(take).collect();
        match taken.into_iter().collect::<Outcome<()>>().and_then(|()| self.finish()) {
            Ok(()) => true,
            Err(failure) => {
                tracing::warn!("a pool that was not completed could not be taken back: {}", failure.on_one_line());
                false
            }
        }
    }

    /// The same where the files that were made are removed already. The creation may have failed
    /// before it wrote a label, as on a drive that cannot be used.
    pub fn take_back_labels(mut self) -> bool {
        let pool = self.pool.to_string();
        self.drives.retain(|(path, is_made)| !is_made && wipe::carries_label_of(path, &pool).unwrap_or(true));
        self.take_back()
    }

    /// The pool of the configuration was opened: it is in use, even if an operator completed the
    /// configuration.
    pub fn forget(site: &Site) {
        let note = site.dir.join(NAME);
        if let Some(Err(failure)) = note.exists().then(|| files::remove(&note)) {
            tracing::warn!("{}", failure.on_one_line());
        }
    }
}
