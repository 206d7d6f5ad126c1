//! Memory for operations on drives.

use stele_ground::Bytes;
use stele_media::BufferPool;

/// Memory kept for the next operation.
const KEPT: Bytes = Bytes(32 << 20);

thread_local! {
    /// A pool that is opened again on the same thread goes on with the memory of the one before.
    static BUFFERS: BufferPool = BufferPool::new(KEPT);
}

/// Where buffers of this thread's drives come from.
pub fn buffers() -> BufferPool {
    BUFFERS.with(BufferPool::clone)
}
