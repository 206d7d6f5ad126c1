//! What checkpoints know: whether they succeed, and what the last one kept.

use std::cell::{Cell, RefCell};
use std::future::Future;

use stele_ground::Instant;

use crate::model::ArrayError;
use crate::model::place::Lsn;
use crate::runtime::sync::{Mutex, Notify, Permit};

#[derive(Default)]
pub struct Checkpointing {
    turn: Mutex,
    /// Pages were changed.
    table: Notify,
    /// Since when checkpoints fail, and why the last one did.
    trouble: RefCell<Option<(Instant, ArrayError)>>,
    /// The oldest record that the last checkpoint kept.
    trimmed: Cell<Lsn>,
    /// Tables lie on too few drives, and that was said.
    copies_warned: Cell<bool>,
}

impl Checkpointing {
    /// Checkpoints are written one at a time.
    pub fn turn(&self) -> impl Future<Output = Permit> + use<> {
        self.turn.lock()
    }

    pub fn note_table_changed(&self) {
        self.table.wake_all();
    }

    pub fn table_changed(&self) -> impl Future<Output = ()> + '_ {
        self.table.changed()
    }

    pub fn is_failing(&self) -> bool {
        self.trouble.borrow().is_some()
    }

    /// Since when checkpoints fail, and why the last one did.
    pub fn trouble(&self) -> Option<(Instant, ArrayError)> {
        self.trouble.borrow().clone()
    }

    pub fn failed(&self, error: ArrayError, now: Instant) {
        let mut trouble = self.trouble.borrow_mut();
        let since = trouble.as_ref().map_or(now, |(since, _)| *since);
        *trouble = Some((since, error));
    }

    /// A checkpoint is durable that keeps the log from this record on.
    pub fn succeeded(&self, oldest: Lsn) {
        self.trimmed.set(oldest);
        self.trouble.replace(None);
    }

    /// The oldest record that the last checkpoint kept.
    pub fn trimmed(&self) -> Lsn {
        self.trimmed.get()
    }

    /// The tables lie on enough drives, or not. True where that they do not is news.
    pub fn note_copies(&self, lacking: bool) -> bool {
        !self.copies_warned.replace(lacking) && lacking
    }
}
