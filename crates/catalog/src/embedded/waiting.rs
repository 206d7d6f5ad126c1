//! How threads wait for the catalog's drives.

use std::cell::Cell;

/// Runs a read that waits for a drive, once, on this thread. It may hand other tasks of the thread
/// on before.
pub type Wait = fn(&mut dyn FnMut());

thread_local! {
    /// Reads of any volume that this thread has waited for.
    static WAITS: Cell<u64> = const { Cell::new(0) };
}

/// See [`crate::Snapshot::waits`].
pub fn waits() -> u64 {
    WAITS.get()
}

/// Reads from the volume.
pub fn read<T>(wait: Wait, mut read: impl FnMut() -> T) -> T {
    WAITS.set(WAITS.get() + 1);
    let mut result = None;
    wait(&mut || result = Some(read()));
    result.unwrap_or_else(read)
}
