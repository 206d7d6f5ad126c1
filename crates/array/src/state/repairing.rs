//! Stripes to verify and repair soon, with what is bad in them unknown.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;

use crate::model::place::StripeKey;
use crate::runtime::sync::Notify;

/// Stripes waiting for repair at most; more are found by the scrub.
const REPAIRS_MAX: usize = 64 << 10;

#[derive(Default)]
pub struct Repairing {
    stripes: RefCell<BTreeSet<StripeKey>>,
    wanted: Notify,
    /// Some drive missed a write.
    missed: Notify,
}

impl Repairing {
    pub fn ask(&self, key: StripeKey) {
        let mut stripes = self.stripes.borrow_mut();
        if stripes.len() < REPAIRS_MAX {
            stripes.insert(key);
        }
        self.wanted.wake_all();
    }

    pub fn next(&self) -> Option<StripeKey> {
        self.stripes.borrow_mut().pop_first()
    }

    pub fn wanted(&self) -> impl Future<Output = ()> + '_ {
        self.wanted.changed()
    }

    /// The stripe has another number now.
    pub fn rename(&self, from: StripeKey, to: StripeKey) {
        let mut stripes = self.stripes.borrow_mut();
        if stripes.remove(&from) {
            stripes.insert(to);
        }
    }

    /// Some drive missed a write.
    pub fn note_missed(&self) {
        self.missed.wake_all();
    }

    pub fn missed(&self) -> impl Future<Output = ()> + '_ {
        self.missed.changed()
    }
}
