//! Holds back the writes to one volume while all its shards take the same state down, and refuses
//! everything while they show different ones.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The count of writes inside, and this bit while nothing more may enter.
const CLOSED: u64 = 1 << 63;

/// A write that waits outside.
type Held = Box<dyn FnOnce() + Send>;

/// Writes enter and leave; while the gate is closed they wait.
#[derive(Default)]
pub struct Gate {
    state: AtomicU64,
    waiting: Mutex<Waiting>,
    shut: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    held: Vec<Held>,
    /// Told when the last write has left.
    emptied: Option<Sender<()>>,
}

impl Gate {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While it is shut, requests are refused. What is inside goes on.
    pub fn shut(&self, shut: bool) {
        self.shut.store(shut, Ordering::Release);
    }

    pub fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// Lets the write in, which then calls `leave`; or keeps `again`, which is called when the gate
    /// opens, and returns false.
    pub fn enter(&self, again: impl FnOnce() -> Held) -> bool {
        loop {
            if self.state.fetch_add(1, Ordering::AcqRel) & CLOSED == 0 {
                return true;
            }
            self.leave();
            let mut waiting = self.waiting();
            // It may have opened meanwhile: then nothing would call what is kept now.
            if self.state.load(Ordering::Acquire) & CLOSED != 0 {
                waiting.held.push(again());
                return false;
            }
        }
    }

    pub fn leave(&self) {
        if self.state.fetch_sub(1, Ordering::AcqRel) == CLOSED | 1
            && let Some(emptied) = self.waiting().emptied.take()
        {
            // Who closed the gate may have given up.
            let _ = emptied.send(());
        }
    }

    /// Closes the gate and waits until no write is inside. It opens when the guard is dropped.
    pub fn close(&self) -> Closed<'_> {
        let (sender, receiver) = std::sync::mpsc::channel();
        {
            let mut waiting = self.waiting();
            waiting.emptied = Some(sender);
            let before = self.state.fetch_or(CLOSED, Ordering::AcqRel);
            assert!(before & CLOSED == 0, "one command at a time closes the gate of a volume");
            if before == 0 {
                waiting.emptied = None;
                return Closed(self);
            }
        }
        // Every write is answered, even by a server that stops.
        let _ = receiver.recv();
        Closed(self)
    }
}

/// While it lives, no write is inside the gate.
pub struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let held = {
            let mut waiting = self.0.waiting();
            self.0.state.fetch_and(!CLOSED, Ordering::AcqRel);
            std::mem::take(&mut waiting.held)
        };
        held.into_iter().for_each(|again| again());
    }
}

#[cfg(test)]
mod tests;
