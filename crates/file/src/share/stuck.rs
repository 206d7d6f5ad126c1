//! Files that do not come into the archive, for an operator.
//!
//! One refusal is no news: the file is tried again. A file is stuck if the archive refused it
//! several times in a row, or if it was left alone for long, no one has it open for writing, and it
//! is still not archived.

use stele_ground::{Duration, Instant};

use super::core::Core;
use super::{Share, tree};
use crate::{FileError, Result};

/// Refusals in a row that make a file stuck.
const REFUSALS: u32 = 2;
/// Files whose refusals are remembered.
const REFUSED_MAX: usize = 1000;
/// A file is stuck when it was left alone for so many times the share's own time, and for so long
/// at least.
const TIMES: u64 = 10;
const LEFT_ALONE: Duration = Duration::from_secs(3600);
/// Files that are looked at for the oldest that no one writes to.
const LOOKS_MAX: usize = 1000;

/// What the archive said of a file lately.
pub struct Refused {
    times: u32,
    error: FileError,
}

/// Files that do not come into the archive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StuckFiles {
    /// The path of one of them, from the root of the share.
    pub path: String,
    /// Why the archive refuses it. None: it was not refused.
    pub refusal: Option<String>,
    /// How long it was left alone.
    pub idle: Duration,
    /// Refused files, with this one. Of those that were not refused, one counts.
    pub files: u64,
}

impl Core {
    /// The archive refused a file, and background work tries it again.
    pub fn note_refusal(&mut self, inode: u64, error: FileError) {
        // It was removed meanwhile.
        if !self.active.contains(inode) {
            return;
        }
        // What is to be tried again in a moment is no fault of the file or of the archive.
        if !matches!(error, FileError::Retry(_)) {
            let known = self.refused.remove(&inode).map_or(0, |refused| refused.times);
            if self.refused.len() < REFUSED_MAX {
                self.refused.insert(inode, Refused { times: known.saturating_add(1), error: error.clone() });
            }
        }
        self.refusal = Some((inode, error));
    }

    /// Whether the archive refused every file that is not archived. It may have room for all but
    /// one that is larger than the archive, holes and all.
    pub fn refused_all(&self) -> bool {
        let refused = self.refused.keys().filter(|inode| self.active.contains(**inode)).count();
        refused == self.active.len()
    }

    /// A file that is stuck, how long it was left alone, why it is refused, and how many are.
    fn stuck(&mut self, now: Instant, patience: Duration) -> Option<(u64, Duration, Option<String>, u64)> {
        // Those that were archived or removed since are no news.
        let Core { refused, active, .. } = self;
        refused.retain(|inode, _| active.contains(*inode));
        let often = || self.refused.iter().filter(|(_, refused)| refused.times >= REFUSALS);
        let idle = |inode| self.active.changed(inode).map_or(Duration(0), |changed| now.since(changed));
        if let Some((inode, refused)) = often().next() {
            return Some((*inode, idle(*inode), Some(refused.error.to_string()), often().count() as u64));
        }
        let mut oldest = self.active.by_age().take(LOOKS_MAX).filter(|(_, inode)| self.writers(*inode) == 0);
        let (changed, inode) = oldest.next()?;
        let idle = now.since(changed);
        (idle > patience).then_some((inode, idle, None, 1))
    }
}

impl Share {
    /// Files that do not come into the archive, if there are any.
    pub fn stuck(&self) -> Result<Option<StuckFiles>> {
        let now = self.surroundings.now().monotonic;
        let patience = Duration(self.settings().archive_after.0.saturating_mul(TIMES)).max(LEFT_ALONE);
        self.step(|core| {
            let Some((inode, idle, refusal, files)) = core.stuck(now, patience) else { return Ok(None) };
            let path = shown(core, inode);
            Ok(Some(StuckFiles { path, refusal, idle, files }))
        })
    }
}

/// The path of a file as operators read it.
pub fn shown(core: &mut Core, inode: u64) -> String {
    match tree::path(&mut core.view, inode) {
        Ok(path) => String::from_utf8_lossy(&path).into_owned(),
        Err(_) => format!("inode {inode}"),
    }
}
