//! What is read ahead of hosts and on its way.

use std::cell::Cell;

#[derive(Default)]
pub struct ReadingAhead {
    coming: Cell<u64>,
}

impl ReadingAhead {
    /// So many bytes were asked of the drives.
    pub fn begin(&self, bytes: u64) {
        self.coming.set(self.coming.get() + bytes);
    }

    /// They came, or will not.
    pub fn end(&self, bytes: u64) {
        self.coming.set(self.coming.get().saturating_sub(bytes));
    }

    /// Bytes on their way into the cache, of all volumes.
    pub fn coming(&self) -> u64 {
        self.coming.get()
    }
}
