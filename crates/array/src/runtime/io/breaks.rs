//! Moments at which drives may have lost what was in their caches.

use super::Io;

impl Io {
    /// Changes whenever a drive may have lost what was in its cache: one was attached, or a flush
    /// failed.
    pub fn breaks(&self) -> u64 {
        self.0.breaks.get()
    }

    /// One more; answers its number.
    pub fn note_break(&self) -> u64 {
        self.0.breaks.set(self.0.breaks.get() + 1);
        self.0.breaks.get()
    }

    /// No flush of the drive failed since `breaks` was this. After one that failed, the next may go
    /// well although what was in the cache then is lost.
    pub fn has_kept(&self, drive: usize, since: u64) -> bool {
        self.0.drives.borrow().get(drive).is_some_and(|state| state.broke <= since)
    }
}
