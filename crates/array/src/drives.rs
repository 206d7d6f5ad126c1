//! The pool's drives as the engine sees them: present or not, how healthy, and what has gone wrong with each.
//! Membership itself is in the labels; this is what is known besides, and lost with the process.

use std::cell::RefCell;
use std::collections::BTreeMap;

use stele_ground::Instant;

use crate::label::Labels;
use crate::place::DriveNumber;

/// What was seen of a drive since the pool was opened.
#[derive(Clone, Default, Debug)]
pub struct Seen {
    pub name: String,
    pub read_errors: u64,
    pub write_errors: u64,
    pub digest_errors: u64,
    pub repaired: u64,
    /// Absent since then.
    pub missing_since: Option<Instant>,
    /// Was away or is new: not everything it should hold is on it yet.
    pub stale: bool,
    pub note: String,
}

pub struct Drives {
    pub labels: Labels,
    seen: RefCell<BTreeMap<DriveNumber, Seen>>,
}

impl Drives {
    pub fn new(labels: Labels) -> Drives {
        Drives { labels, seen: RefCell::default() }
    }

    /// Where the drive is attached, if it is.
    pub fn index(&self, drive: DriveNumber) -> Option<usize> {
        self.labels.index(drive)
    }

    pub fn change<R>(&self, drive: DriveNumber, with: impl FnOnce(&mut Seen) -> R) -> R {
        with(self.seen.borrow_mut().entry(drive).or_default())
    }

    pub fn seen(&self, drive: DriveNumber) -> Seen {
        self.seen.borrow().get(&drive).cloned().unwrap_or_default()
    }

    /// Present and holding what it should: counts as redundancy.
    pub fn is_sound(&self, drive: DriveNumber) -> bool {
        self.index(drive).is_some() && !self.seen.borrow().get(&drive).is_some_and(|seen| seen.stale)
    }
}
