//! What rebuild knows: its progress, what it had to leave, and what hosts wait for.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use stele_ground::Instant;

use crate::model::place::{RowId, StripCell, StripeKey};
use crate::state::throttle::TokenBucket;
use crate::state::work::Ongoing;

/// Stripes of hosts that wait for rebuild at most; more are rebuilt in their turn.
const PROMOTED_MAX: usize = 1024;

pub struct Rebuilding {
    /// Into spare space.
    pub work: Ongoing,
    /// Back from spare space, and onto drives with gaps.
    pub copy_back: Ongoing,
    pub bucket: TokenBucket,
    /// Of stripes that may not lose another strip.
    pub critical: TokenBucket,
    /// Members of rows that the rebuild under way had to leave as they are: they have no spare
    /// cell, or cannot be read.
    undone: RefCell<BTreeMap<(RowId, u8), StripCell>>,
    /// It waits for drives that spare cells are on.
    waits: Cell<bool>,
    /// It put a strip off until the looks at lost stripes tell more.
    waits_for_looks: Cell<bool>,
    /// Stripes that hosts had to have reconstructed because a drive is gone.
    promoted: RefCell<BTreeSet<StripeKey>>,
    /// Members of rows all of whose strips lie in spare space.
    moved: RefCell<BTreeSet<(RowId, u8)>>,
    /// Members of rows on drives that leave whose strips did not move by themselves, in this round.
    undrained: RefCell<BTreeSet<(RowId, u8)>>,
    /// When what failed is tried again.
    retry_at: Cell<Option<Instant>>,
}

impl Rebuilding {
    pub fn new(now: Instant) -> Rebuilding {
        Rebuilding {
            work: Ongoing::default(),
            copy_back: Ongoing::default(),
            bucket: TokenBucket::new(now),
            critical: TokenBucket::new(now),
            undone: RefCell::default(),
            waits: Cell::new(false),
            waits_for_looks: Cell::new(false),
            promoted: RefCell::default(),
            moved: RefCell::default(),
            undrained: RefCell::default(),
            retry_at: Cell::new(None),
        }
    }

    pub fn is_busy(&self) -> bool {
        self.work.is_under_way() || self.copy_back.is_under_way()
    }

    /// Something of the member is neither in its spare cell nor in this cell as it should be.
    pub fn note_undone(&self, row: RowId, member: u8, home: StripCell) {
        self.undone.borrow_mut().insert((row, member), home);
    }

    /// A spare cell is on a drive that is away.
    pub fn wait_for_spare(&self) {
        self.waits.set(true);
    }

    /// Drives answer with errors, and a spare cell may not be given up before all looks at the
    /// stripe are over.
    pub fn wait_for_looks(&self) {
        self.waits_for_looks.set(true);
    }

    /// Whether there is something to try again after a look.
    pub fn end_wait_for_looks(&self) -> bool {
        self.waits_for_looks.take()
    }

    /// The round is over. Answers the members it left undone that still have that cell, and whether
    /// it left anything. The number of a row that is gone may be that of another one by now.
    pub fn end_round(&self, has: impl Fn(RowId, u8, StripCell) -> bool) -> (BTreeSet<(RowId, u8)>, bool) {
        let undone = self.undone.take().into_iter().filter(|((row, member), home)| has(*row, *member, *home));
        let undone: BTreeSet<(RowId, u8)> = undone.map(|(of, _)| of).collect();
        let failed = self.waits.replace(false) || !undone.is_empty();
        (undone, failed)
    }

    /// All strips of the member lie in spare space, unless some were left undone.
    pub fn note_moved(&self, row: RowId, member: u8) {
        if !self.undone.borrow().contains_key(&(row, member)) {
            self.moved.borrow_mut().insert((row, member));
        }
    }

    pub fn forget_moved(&self, row: RowId, member: u8) {
        self.moved.borrow_mut().remove(&(row, member));
    }

    pub fn has_moved(&self, row: RowId, member: u8) -> bool {
        self.moved.borrow().contains(&(row, member))
    }

    /// The member's strips move with their whole stripes, or in the next round.
    pub fn note_undrained(&self, row: RowId, member: u8) {
        self.undrained.borrow_mut().insert((row, member));
    }

    pub fn is_undrained(&self, row: RowId, member: u8) -> bool {
        self.undrained.borrow().contains(&(row, member))
    }

    /// A round begins.
    pub fn begin_to_drain(&self) {
        self.undrained.borrow_mut().clear();
    }

    /// A host had to have the stripe reconstructed: it comes first, where a rebuild is under way.
    pub fn promote(&self, key: StripeKey) {
        if self.work.is_under_way() && self.promoted.borrow().len() < PROMOTED_MAX {
            self.promoted.borrow_mut().insert(key);
        }
    }

    pub fn next_promoted(&self) -> Option<StripeKey> {
        self.promoted.borrow_mut().pop_first()
    }

    /// The stripe has another number now.
    pub fn rename(&self, from: StripeKey, to: StripeKey) {
        let mut promoted = self.promoted.borrow_mut();
        if promoted.remove(&from) {
            promoted.insert(to);
        }
    }

    /// What failed is to be tried again then. False where that is planned for a time no later.
    pub fn plan_retry(&self, at: Instant) -> bool {
        let is_news = self.retry_at.get().is_none_or(|planned| at < planned);
        if is_news {
            self.retry_at.set(Some(at));
        }
        is_news
    }

    pub fn begin_retry(&self) {
        self.retry_at.set(None);
    }
}
