//! The memory of one page of a simulated drive. The last holder puts it on a list of its thread,
//! and the next page takes it from there. A run of the simulated world writes millions of pages,
//! and memory fresh from the system costs more than the copy into it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use stele_ground::BLOCK;

use super::platter::{Page, page_of};
use crate::Shared;

/// Pieces whose pages are kept at hand for the next drive: a log or a mirror writes the same piece
/// to several.
const RECENT_MAX: usize = 32;
/// Limit on the pages that a thread keeps for reuse: 96 MiB.
const KEPT_MAX: usize = 24_576;

thread_local! {
    /// A piece that is held here keeps its place in memory, so that the place tells which it is.
    static RECENT: RefCell<VecDeque<(Shared, Rc<[Page]>)>> = const { RefCell::new(VecDeque::new()) };
    static KEPT: RefCell<Vec<Arc<[u8; BLOCK]>>> = const { RefCell::new(Vec::new()) };
}

static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// The pages of a piece from its beginning, without a rest. What several drives take of it lies in
/// memory once.
pub(super) fn pages_of(piece: &Shared) -> Rc<[Page]> {
    RECENT.with_borrow_mut(|recent| {
        let is_it = |known: &Shared| (known.as_ptr(), known.len()) == (piece.as_ptr(), piece.len());
        if let Some((_, pages)) = recent.iter().rfind(|(known, _)| is_it(known)) {
            return Rc::clone(pages);
        }
        let pages: Rc<[Page]> = piece.as_chunks::<BLOCK>().0.iter().map(page_of).collect();
        if recent.len() >= RECENT_MAX {
            recent.pop_front();
        }
        recent.push_back((piece.clone(), Rc::clone(&pages)));
        pages
    })
}

/// The immutable content of a page, shared by reference count.
#[derive(Clone)]
pub struct Leaf(
    /// Taken only when it is dropped.
    Option<Arc<[u8; BLOCK]>>,
);

impl Leaf {
    pub(super) fn of(bytes: &[u8; BLOCK]) -> Leaf {
        let kept = KEPT.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
        if let Some(mut page) = kept
            && let Some(content) = Arc::get_mut(&mut page)
        {
            content.copy_from_slice(bytes);
            return Leaf(Some(page));
        }
        // A conversion by way of a slice moves the content to the heap without a copy on the stack.
        Leaf(Arc::<[u8]>::from(&bytes[..]).try_into().ok())
    }
}

impl Deref for Leaf {
    type Target = [u8; BLOCK];

    fn deref(&self) -> &[u8; BLOCK] {
        self.0.as_ref().map_or(&ZEROS, |page| page)
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // With one holder and no weak ones, no other thread can come by it.
        if let Some(page) = self.0.take()
            && Arc::strong_count(&page) == 1
        {
            // At the end of a thread its list may be gone; then the page is freed.
            let _ = KEPT.try_with(|kept| {
                let mut kept = kept.borrow_mut();
                if kept.len() < KEPT_MAX {
                    kept.push(page);
                }
            });
        }
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leaf({:02x?}..)", &self[..8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_reused_only_when_nobody_holds_it() {
        let first = Leaf::of(&[1; BLOCK]);
        let place = first.as_ptr();
        let second = first.clone();
        drop(first);
        let other = Leaf::of(&[2; BLOCK]);
        assert!(other.as_ptr() != place && second[..] == [1; BLOCK], "it is still held");
        drop(second);
        let third = Leaf::of(&[3; BLOCK]);
        assert_eq!(third.as_ptr(), place, "its memory serves again");
        assert!(third[..] == [3; BLOCK] && other[..] == [2; BLOCK]);
    }

    #[test]
    fn pages_of_the_same_piece_lie_in_memory_once_and_those_of_another_do_not() {
        let bytes: Vec<u8> = (0..3 * BLOCK + 512).map(|at| (at / BLOCK) as u8).collect();
        let piece = Shared::from(bytes.clone());
        let place = |pages: &Rc<[Page]>, at: usize| pages[at].as_ref().map(|leaf| leaf.as_ptr());
        let (first, again, other) = (pages_of(&piece), pages_of(&piece.clone()), pages_of(&Shared::from(bytes)));
        assert_eq!((first.len(), place(&first, 0)), (3, None), "whole pages, and zeros take no memory");
        assert_eq!(place(&first, 1), place(&again, 1));
        assert_ne!(place(&first, 1), place(&other, 1));
        assert!(other[2].as_ref().is_some_and(|leaf| leaf[..] == [2; BLOCK]));
        // A part of it begins at the same place.
        assert_eq!(pages_of(&piece.slice(..BLOCK)).len(), 1);
    }
}
