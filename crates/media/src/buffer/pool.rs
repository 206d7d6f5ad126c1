//! Buffers used again: an allocation and a clearing cost more than a small read from a cache.
//!
//! A buffer taken from a pool goes back to it when the last holder drops it, frozen or not, on whatever thread.
//! What it holds then is stale bytes of an earlier use: for reads, which fill all of it, and for those who do so
//! themselves. Memory that is initialised once stays initialised: nothing here is unsafe.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stele_ground::{BLOCK, Bytes};

use super::{Buffer, Page, pages_of_zeros};

/// Classes of 1, 2, 4 ... 1024 pages. Larger buffers are allocated and freed.
const CLASSES: usize = 11;

/// A limited store of buffers by size. Clones share it.
#[derive(Clone)]
pub struct BufferPool(Arc<Shelves>);

pub(super) struct Shelves {
    classes: [Mutex<Vec<Vec<Page>>>; CLASSES],
    /// Bytes on the shelves, and how many may be; at the limit a returning buffer is freed.
    kept: AtomicUsize,
    kept_max: usize,
}

impl BufferPool {
    /// Keeps at most `kept_max` bytes that nobody uses. It allocates nothing by itself.
    pub fn new(kept_max: Bytes) -> BufferPool {
        let kept_max = usize::try_from(kept_max.0).unwrap_or(usize::MAX);
        BufferPool(Arc::new(Shelves { classes: Default::default(), kept: AtomicUsize::new(0), kept_max }))
    }

    /// A buffer of `length` bytes of stale or zero content: for who overwrites all of it.
    pub fn take(&self, length: usize) -> Buffer {
        let count = length.div_ceil(BLOCK).max(1);
        let class = count.next_power_of_two().trailing_zeros() as usize;
        if class >= CLASSES {
            return Buffer::zeroed(length);
        }
        let shelf = self.0.classes[class].lock().unwrap_or_else(PoisonError::into_inner).pop();
        let pages = match shelf {
            Some(pages) => {
                self.0.kept.fetch_sub(pages.len() * BLOCK, Ordering::Relaxed);
                pages
            }
            None => pages_of_zeros(1 << class),
        };
        Buffer { pages, length, home: Some(Arc::clone(&self.0)) }
    }

    /// Bytes waiting to be used again.
    pub fn kept(&self) -> Bytes {
        Bytes(self.0.kept.load(Ordering::Relaxed) as u64)
    }
}

impl Shelves {
    pub(super) fn put_back(&self, pages: Vec<Page>) {
        let bytes = pages.len() * BLOCK;
        let class = pages.len().trailing_zeros() as usize;
        if class >= CLASSES || self.kept.fetch_add(bytes, Ordering::Relaxed) + bytes > self.kept_max {
            self.kept.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        self.classes[class].lock().unwrap_or_else(PoisonError::into_inner).push(pages);
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferPool(keeps {} of {} bytes)", self.kept().0, self.0.kept_max)
    }
}
