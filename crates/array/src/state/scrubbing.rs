//! What the scrub knows: how far it is, and how its passes ended.

use std::cell::{Cell, RefCell};
use std::future::Future;

use stele_ground::{Duration, Instant};

use crate::runtime::sync::Notify;
use crate::state::work::Ongoing;

pub struct Scrubbing {
    pub work: Ongoing,
    /// When the last whole pass began, and how old it was already when the pool was opened.
    begun: Cell<(Instant, Duration)>,
    /// The pass under way has verified the rows below this one.
    row: Cell<u32>,
    wanted: Cell<bool>,
    notify: Notify,
    /// Passes that ended before they were whole, and why the last one did.
    stopped: RefCell<(u64, String)>,
}

impl Scrubbing {
    pub fn new(now: Instant) -> Scrubbing {
        Scrubbing {
            work: Ongoing::default(),
            begun: Cell::new((now, Duration(0))),
            row: Cell::new(0),
            wanted: Cell::new(false),
            notify: Notify::default(),
            stopped: RefCell::default(),
        }
    }

    /// An operator asks for a pass.
    pub fn want(&self) {
        self.wanted.set(true);
        self.notify.wake_all();
    }

    pub fn notified(&self) -> impl Future<Output = ()> + '_ {
        self.notify.changed()
    }

    /// Whether an operator asked for a pass since the last time this was asked.
    pub fn take_wanted(&self) -> bool {
        self.wanted.replace(false)
    }

    /// What a checkpoint says of the last pass.
    pub fn restore(&self, age: Duration, row: u32, now: Instant) {
        self.begun.set((now, age));
        self.row.set(row);
    }

    /// A pass begins at the first row.
    pub fn begin(&self, now: Instant) {
        self.begun.set((now, Duration(0)));
    }

    /// When the last whole pass began, and how old it was already when the pool was opened.
    pub fn begun(&self) -> (Instant, Duration) {
        self.begun.get()
    }

    /// The rows below this one are verified.
    pub fn reach(&self, row: u32) {
        self.row.set(row);
    }

    pub fn row(&self) -> u32 {
        self.row.get()
    }

    pub fn note_stopped(&self, why: String) {
        let mut stopped = self.stopped.borrow_mut();
        *stopped = (stopped.0 + 1, why);
    }

    /// Passes that ended before they were whole, and why the last one did.
    pub fn stopped(&self) -> (u64, String) {
        self.stopped.borrow().clone()
    }
}
