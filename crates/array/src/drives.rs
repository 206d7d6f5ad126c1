//! The pool's drives as the engine sees them: present or not, how healthy, and what has gone wrong
//! with each. Membership itself is in the labels; this is what is known besides, and lost with the
//! process.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use stele_ground::{Duration, Instant};

use crate::drives::label::Labels;
use crate::model::place::{DriveNumber, StripeKey};

pub mod label;

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

impl Seen {
    /// The drive with its name. One that was away when the pool was opened has no name.
    pub fn called(&self, drive: DriveNumber) -> String {
        called(&drive.to_string(), &self.name)
    }
}

/// `drive 3 (/dev/sdx)`, or the number alone where no name is known.
pub fn called(drive: &str, name: &str) -> String {
    if name.is_empty() { drive.to_owned() } else { format!("{drive} ({name})") }
}

/// What a drive missed that was here all the time.
struct Missed {
    /// Where it was attached then: a drive that leaves and returns is brought up to date as a
    /// whole.
    index: usize,
    stripes: BTreeSet<StripeKey>,
    /// The labels say so.
    settled: bool,
    /// When it is tried again, and how long after that.
    again: Instant,
    pause: Duration,
}

pub struct Drives {
    pub labels: Labels,
    seen: RefCell<BTreeMap<DriveNumber, Seen>>,
    missed: RefCell<BTreeMap<DriveNumber, Missed>>,
}

/// After a failed write the first attempt to write again comes so much later, each further one
/// twice as much, and so much at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);

impl Drives {
    pub fn new(labels: Labels) -> Drives {
        Drives { labels, seen: RefCell::default(), missed: RefCell::default() }
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
        let stale = self.seen.borrow().get(&drive).is_some_and(|seen| seen.stale);
        self.index(drive).is_some() && !stale && !self.has_missed(drive)
    }

    // Writes that a drive missed while it was here.

    /// A strip of the stripe did not take a write. True when it is the first such stripe of the
    /// drive.
    pub fn missed(&self, drive: DriveNumber, stripe: StripeKey, now: Instant) -> bool {
        let Some(index) = self.index(drive) else { return false };
        let mut all = self.missed.borrow_mut();
        let first = all.get(&drive).is_none_or(|missed| missed.index != index);
        if first {
            let (again, stripes) = (now + PAUSE_MIN, BTreeSet::new());
            all.insert(drive, Missed { index, stripes, settled: false, again, pause: PAUSE_MIN });
        }
        if let Some(missed) = all.get_mut(&drive) {
            missed.stripes.insert(stripe);
        }
        first
    }

    pub fn has_missed(&self, drive: DriveNumber) -> bool {
        let index = self.index(drive);
        self.missed.borrow().get(&drive).is_some_and(|missed| Some(missed.index) == index)
    }

    /// Drives that missed writes and count as whole in the labels.
    pub fn behind_unsettled(&self) -> Vec<DriveNumber> {
        let all = self.missed.borrow();
        let open =
            |(drive, missed): &(&DriveNumber, &Missed)| !missed.settled && Some(missed.index) == self.index(**drive);
        all.iter().filter(open).map(|(drive, _)| *drive).collect()
    }

    pub fn note_settled(&self, drives: &[DriveNumber]) {
        let mut all = self.missed.borrow_mut();
        for drive in drives {
            if let Some(missed) = all.get_mut(drive) {
                missed.settled = true;
            }
        }
    }

    /// A stripe to be written again, with its drive; or when there is one. What drives missed that
    /// have left since is forgotten: all that is on them is verified when they return.
    pub fn next_missed(&self, now: Instant) -> Result<(DriveNumber, StripeKey), Option<Instant>> {
        let mut all = self.missed.borrow_mut();
        all.retain(|drive, missed| Some(missed.index) == self.index(*drive));
        let first = all.iter().min_by_key(|(_, missed)| missed.again);
        match first.map(|(drive, missed)| (*drive, missed.again, missed.stripes.first().copied())) {
            Some((drive, again, Some(stripe))) if again <= now => Ok((drive, stripe)),
            other => Err(other.map(|(_, again, _)| again)),
        }
    }

    /// The stripe is whole. True when the drive lacks nothing else that is known.
    pub fn mended(&self, drive: DriveNumber, stripe: StripeKey) -> bool {
        let mut all = self.missed.borrow_mut();
        let Some(missed) = all.get_mut(&drive) else { return false };
        missed.stripes.remove(&stripe);
        missed.stripes.is_empty() && all.remove(&drive).is_some()
    }

    /// The stripe has another number now.
    pub fn rename_missed(&self, from: StripeKey, to: StripeKey) {
        for missed in self.missed.borrow_mut().values_mut() {
            if missed.stripes.remove(&from) {
                missed.stripes.insert(to);
            }
        }
    }

    /// Nothing is written to the drive again for a while.
    pub fn put_off(&self, drive: DriveNumber, now: Instant) {
        if let Some(missed) = self.missed.borrow_mut().get_mut(&drive) {
            missed.pause = Duration(missed.pause.0.saturating_mul(2)).min(PAUSE_MAX);
            missed.again = now + missed.pause;
        }
    }

    /// No flow writes again what the drive missed.
    pub fn forget_missed(&self, drive: DriveNumber) {
        self.missed.borrow_mut().remove(&drive);
    }
}
