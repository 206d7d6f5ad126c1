//! Reuses buffers: an allocation and a clearing cost more than a small read from a cache.
//!
//! A buffer from a pool returns to it when the last holder drops it, frozen or not, on any thread.
//! It then holds stale bytes of its earlier use. That suits reads, which fill the whole buffer, and
//! callers that fill it themselves. Initialised memory stays initialised: nothing here is unsafe.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use stele_ground::{BLOCK, Bytes};

use super::{Buffer, Page, pages_of_zeros};

/// Size classes of 1 to 4 pages exactly, then four for each doubling, up to 1024 pages: at most a
/// quarter is wasted. Larger buffers are allocated and freed.
const CLASSES: usize = 36;
const PAGES_MAX: usize = 1024;
/// Limit on the bytes that the pool of the process keeps.
const PROCESS_KEPT_MAX: Bytes = Bytes(32 << 20);

/// The pool of every buffer that names no other.
pub(super) fn process() -> &'static BufferPool {
    static POOL: LazyLock<BufferPool> = LazyLock::new(|| BufferPool::new(PROCESS_KEPT_MAX));
    &POOL
}

/// The class for `count` pages, and the pages of its buffers; `None` if it is too large.
fn class_of(count: usize) -> Option<(usize, usize)> {
    match count {
        0 | 1 => Some((0, 1)),
        2..=4 => Some((count - 1, count)),
        5..=PAGES_MAX => {
            let shift = (count - 1).ilog2() - 2;
            let quanta = count.div_ceil(1 << shift);
            Some((4 * shift as usize + quanta - 1, quanta << shift))
        }
        _ => None,
    }
}

/// A limited store of buffers by size. Clones share it.
#[derive(Clone)]
pub struct BufferPool(Arc<Shelves>);

pub(super) struct Shelves {
    classes: [Shelf; CLASSES],
    /// Bytes on all shelves, and their limit.
    kept: AtomicUsize,
    kept_max: usize,
}

/// The unused buffers of one size, and their bytes.
#[derive(Default)]
struct Shelf {
    buffers: Mutex<Vec<Vec<Page>>>,
    bytes: AtomicUsize,
}

impl Shelf {
    fn pop(&self) -> Option<Vec<Page>> {
        let pages = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        self.bytes.fetch_sub(pages.len() * BLOCK, Ordering::Relaxed);
        Some(pages)
    }

    fn push(&self, pages: Vec<Page>) {
        // Counted before another thread can pop it.
        self.bytes.fetch_add(pages.len() * BLOCK, Ordering::Relaxed);
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(pages);
    }
}

impl BufferPool {
    /// A pool that keeps at most `kept_max` unused bytes. It allocates nothing by itself.
    pub fn new(kept_max: Bytes) -> BufferPool {
        let kept_max = usize::try_from(kept_max.0).unwrap_or(usize::MAX);
        BufferPool(Arc::new(Shelves {
            classes: std::array::from_fn(|_| Shelf::default()),
            kept: AtomicUsize::new(0),
            kept_max,
        }))
    }

    /// A buffer of `length` bytes of stale or zero content, for a caller that overwrites all of it.
    pub fn take(&self, length: usize) -> Buffer {
        self.fetch(length).0
    }

    /// Like `take`, with its whole capacity zero.
    pub(super) fn take_zeroed(&self, length: usize) -> Buffer {
        let (mut buffer, stale) = self.fetch(length);
        if stale {
            let capacity = buffer.capacity();
            buffer.set_length(capacity);
            buffer.fill(0);
            buffer.set_length(length);
        }
        buffer
    }

    /// The buffer, and whether its content is stale rather than zeros.
    fn fetch(&self, length: usize) -> (Buffer, bool) {
        let count = length.div_ceil(BLOCK);
        let Some((class, pages)) = class_of(count).filter(|_| count > 0) else {
            return (Buffer { pages: pages_of_zeros(count), length, home: None }, false);
        };
        let kept = self.0.classes[class].pop();
        let stale = kept.is_some();
        let pages = match kept {
            Some(pages) => {
                self.0.kept.fetch_sub(pages.len() * BLOCK, Ordering::Relaxed);
                pages
            }
            None => pages_of_zeros(pages),
        };
        (Buffer { pages, length, home: Some(Arc::clone(&self.0)) }, stale)
    }

    /// Unused bytes in the pool.
    pub fn kept(&self) -> Bytes {
        Bytes(self.0.kept.load(Ordering::Relaxed) as u64)
    }
}

impl Shelves {
    /// Keeps the pages for a later buffer. At the limit the size that keeps the most gives way:
    /// many small buffers of an earlier load would leave no room for those in use now.
    pub(super) fn put_back(&self, pages: Vec<Page>) {
        let bytes = pages.len() * BLOCK;
        let Some((class, _)) = class_of(pages.len()) else { return };
        let over = (self.kept.fetch_add(bytes, Ordering::Relaxed) + bytes).saturating_sub(self.kept_max);
        if over > 0 && !self.free(over, class) {
            self.kept.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        self.classes[class].push(pages);
    }

    /// Frees so many bytes of the size that keeps the most. False if that is `class` itself, or if
    /// it has too little.
    fn free(&self, bytes: usize, class: usize) -> bool {
        let kept = |class: &usize| self.classes[*class].bytes.load(Ordering::Relaxed);
        let fullest = (0..CLASSES).max_by_key(kept).filter(|fullest| *fullest != class);
        let Some(shelf) = fullest.map(|fullest| &self.classes[fullest]) else { return false };
        let mut freed = 0;
        while freed < bytes {
            let Some(pages) = shelf.pop() else { break };
            freed += pages.len() * BLOCK;
        }
        self.kept.fetch_sub(freed, Ordering::Relaxed);
        freed >= bytes
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferPool(keeps {} of {} bytes)", self.kept().0, self.0.kept_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_an_earlier_load_leave_room_for_those_of_another_size() {
        let limit = 64 * BLOCK;
        let pool = BufferPool::new(Bytes(limit as u64));
        drop((0..100).map(|_| pool.take(BLOCK)).collect::<Vec<_>>());
        assert_eq!(pool.kept(), Bytes(limit as u64), "small ones fill the shelves");
        for _ in 0..3 {
            drop([pool.take(16 * BLOCK), pool.take(16 * BLOCK)]);
            assert!(pool.kept() <= Bytes(limit as u64), "{pool:?}");
        }
        assert!(pool.fetch(16 * BLOCK).1, "a large one is used again");
        // One that is larger than all that is kept is freed, and the others stay or go.
        drop(pool.take(65 * BLOCK));
        assert!(pool.kept() <= Bytes(limit as u64), "{pool:?}");
    }

    #[test]
    fn classes_waste_at_most_a_quarter_and_are_all_used() {
        let mut seen = [false; CLASSES];
        for count in 1..=PAGES_MAX {
            let (class, pages) = class_of(count).expect("a class");
            assert!(pages >= count && pages <= count + count / 4, "{count} pages in {pages}");
            assert_eq!(class_of(pages), Some((class, pages)), "a buffer goes back to where it came from");
            seen[class] = true;
        }
        assert!(seen.iter().all(|used| *used));
        assert_eq!(class_of(PAGES_MAX + 1), None);
    }
}
