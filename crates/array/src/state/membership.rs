//! Drives that come and go, as long as the labels do not say so yet.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;

use crate::model::Departed;
use crate::model::place::DriveNumber;
use crate::runtime::sync::{Mutex, Notify, Permit};

#[derive(Default)]
pub struct Membership {
    /// A drive came, went or changed its standing.
    changes: Notify,
    /// Losses of drives not yet in the labels: no write that missed such a drive is acknowledged
    /// before they are.
    losses: RefCell<BTreeSet<DriveNumber>>,
    settling: Mutex,
    /// How often a drive was lost or given up.
    lost: Cell<u64>,
    departed: RefCell<Vec<Departed>>,
}

impl Membership {
    pub fn note_change(&self) {
        self.changes.wake_all();
    }

    /// Answers after the next change.
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        self.changes.changed()
    }

    /// How often drives changed.
    pub fn changes(&self) -> u64 {
        self.changes.round()
    }

    /// The labels do not say yet that the drive is lost.
    pub fn note_loss(&self, drive: DriveNumber) {
        self.losses.borrow_mut().insert(drive);
        self.count_loss();
    }

    /// The labels say already that the drive is given up.
    pub fn note_given_up(&self, drive: DriveNumber) {
        self.forget_loss(drive);
        self.count_loss();
    }

    fn count_loss(&self) {
        self.lost.set(self.lost.get() + 1);
    }

    /// Another drive has its number, or none.
    pub fn forget_loss(&self, drive: DriveNumber) {
        self.losses.borrow_mut().remove(&drive);
    }

    /// Losses that are not in the labels, in order.
    pub fn losses(&self) -> Vec<DriveNumber> {
        self.losses.borrow().iter().copied().collect()
    }

    pub fn has_losses(&self) -> bool {
        !self.losses.borrow().is_empty()
    }

    /// The labels say that these are lost.
    pub fn settle_losses(&self, settled: &[DriveNumber]) {
        self.losses.borrow_mut().retain(|drive| !settled.contains(drive));
    }

    /// Losses are brought into the labels by one at a time.
    pub fn settling(&self) -> impl Future<Output = Permit> + use<> {
        self.settling.lock()
    }

    /// How often a drive was lost or given up.
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }

    /// The drive has left the pool, and may be taken out.
    pub fn note_departed(&self, departed: impl IntoIterator<Item = Departed>) {
        self.departed.borrow_mut().extend(departed);
    }

    pub fn departed(&self) -> Vec<Departed> {
        self.departed.borrow().clone()
    }
}
