//! What is known of stripes that move to other rows.

use std::cell::{Cell, RefCell};
use std::future::Future;

use stele_ground::Instant;

use crate::runtime::sync::Notify;
use crate::state::work::Ongoing;

#[derive(Default)]
pub struct Moving {
    pub work: Ongoing,
    /// What drives held beyond their even share when the moving began.
    surplus: Cell<u64>,
    /// Why nothing can move, and since when.
    put_off: RefCell<Option<(String, Instant)>>,
    /// A row was made beyond the enclosure rule.
    crowded: Notify,
    /// What could move off drives that leave by itself has moved.
    drained: Notify,
}

impl Moving {
    pub fn note_crowded(&self) {
        self.crowded.wake_all();
    }

    pub fn crowded(&self) -> impl Future<Output = ()> + '_ {
        self.crowded.changed()
    }

    pub fn note_drained(&self) {
        self.drained.wake_all();
    }

    pub fn drained(&self) -> impl Future<Output = ()> + '_ {
        self.drained.changed()
    }

    /// Nothing can move, and why. True where that nothing can is news.
    pub fn note_put_off(&self, why: String, now: Instant) -> bool {
        let mut put_off = self.put_off.borrow_mut();
        let since = put_off.as_ref().map(|(_, since)| *since);
        *put_off = Some((why, since.unwrap_or(now)));
        since.is_none()
    }

    /// Something moved, or nothing is to be moved.
    pub fn end_put_off(&self) {
        self.put_off.take();
    }

    pub fn put_off(&self) -> Option<(String, Instant)> {
        self.put_off.borrow().clone()
    }

    /// Bytes still to be moved until drives are filled alike: rows move whole, so that more moves
    /// than was too much somewhere; how much more shows in what moved so far.
    pub fn left_to_level(&self, surplus: u64) -> u64 {
        let done = self.work.done();
        if done == 0 {
            self.surplus.set(surplus);
        }
        match self.surplus.get().saturating_sub(surplus) {
            0 => surplus,
            gone => (u128::from(surplus) * u128::from(done) / u128::from(gone)) as u64,
        }
    }
}
