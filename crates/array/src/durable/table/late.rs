//! Pages left out of a checkpoint.
//!
//! A small write changes a few digests, and the page around them is 16 KiB on each of m + 2 drives.
//! So the table remembers which words of a page have changed since it was stored, and a checkpoint
//! may append those words to the log, behind its cut, instead of storing the page. An opening from
//! its anchor finds the page as it was stored before, and then the record with every word that has
//! changed since; the next checkpoint appends them all again, or stores the page. The page stays
//! dirty, and in memory, meanwhile. A page changed otherwise than by words is always stored.
//!
//! How much may be left out is the log's affair: what the checkpoint's reservation holds beyond the
//! cost of its own record. The pages with the fewest changes are left out first: they save the most
//! for each byte of log.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::{Cache, Page, PageRef, Table};
use crate::durable::log::{Log, Reservation};
use crate::durable::records::{Field, PagePatch, Record};
use crate::model::mutation::Mutation;
use crate::model::place::{Lsn, PageId};

/// Words remembered of a page; with more it is stored.
const WORDS_MAX: usize = 512;
/// Bytes of a record of patches, about.
const RECORD: usize = 56 << 10;

/// What is known of a page's changes since it was stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Changes {
    /// Only the words at these offsets, some perhaps named twice.
    Words(Vec<u16>),
    Whole,
}

impl Changes {
    pub(super) const NONE: Changes = Changes::Words(Vec::new());

    fn note(&mut self, at: u16) {
        if let Changes::Words(words) = self {
            words.push(at);
            if words.len() > 2 * WORDS_MAX {
                words.sort_unstable();
                words.dedup();
            }
            if words.len() > WORDS_MAX * 3 / 2 {
                *self = Changes::Whole;
            }
        }
    }
}

impl PageRef {
    /// Changes words, each at a multiple of 4. A checkpoint may then do without storing the page.
    pub fn patch(&self, words: impl IntoIterator<Item = (usize, u32)>) {
        let mut words = words.into_iter().peekable();
        if words.peek().is_none() {
            return;
        }
        self.touch(|bytes, changes| {
            for (at, word) in words {
                assert!(at.is_multiple_of(4), "a word at {at}");
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
                changes.note(at as u16);
            }
        });
    }
}

impl Page {
    /// The words that differ from the page as it is stored; none where it has to be stored, or has
    /// not changed.
    fn words(&self) -> Option<Vec<(u16, u32)>> {
        let mut changes = self.changes.borrow_mut();
        let Changes::Words(words) = &mut *changes else { return None };
        words.sort_unstable();
        words.dedup();
        if words.is_empty() || words.len() > WORDS_MAX {
            return None;
        }
        let value = |bytes: &[u8], at: u16| {
            let at = usize::from(at);
            bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes)
        };
        self.read(|bytes| Some(words.iter().map(|at| (*at, value(bytes, *at))).collect()))
    }
}

impl Table {
    /// Leaves dirty pages out of the checkpoint at whose cut this is called, as far as the
    /// reservation pays for their words. Answers them, and the last record that holds some.
    pub(super) fn leave_out(
        &self,
        cache: &Cache,
        log: &Log,
        reservation: &mut Reservation,
    ) -> (BTreeSet<PageId>, Option<Lsn>) {
        let words = |id: &PageId| {
            let page: &Rc<Page> = cache.pages.get(id)?;
            Some(PagePatch { id: *id, words: page.words()? })
        };
        let mut patches: Vec<PagePatch> = match reservation.bytes() {
            0 => Vec::new(),
            _ => cache.dirty.iter().filter_map(words).collect(),
        };
        patches.sort_by_key(|patch| (patch.words.len(), patch.id));
        // Dirty pages stay in memory, and too many of them ask for a checkpoint.
        patches.truncate(self.0.limit / 4);
        let most = RECORD.min(log.record_max());
        let (mut left_out, mut last) = (BTreeSet::new(), None);
        let mut patches = patches.into_iter().peekable();
        while patches.peek().is_some() {
            let mut pages: Vec<PagePatch> = Vec::new();
            let mut bytes = Record::Patches { pages: Vec::new() }.encoded();
            let fits = |bytes: usize| bytes <= most && log.cost_of(bytes) <= reservation.bytes();
            while let Some(patch) = patches.next_if(|patch| fits(bytes + patch.size())) {
                bytes += patch.size();
                pages.push(patch);
            }
            if pages.is_empty() {
                break;
            }
            left_out.extend(pages.iter().map(|patch| patch.id));
            let record = Record::Patches { pages };
            assert_eq!(record.encoded(), bytes, "a record of patches has the size that was counted");
            if !self.0.io.is_disabled(Mutation::PageWords) {
                last = Some(log.append(&record, reservation));
            }
        }
        self.count(|counters| counters.left_out += left_out.len() as u64);
        (left_out, last)
    }
}
