//! How other threads hand work to a reactor: a bounded queue, emptied in batches, and a wake-up that is sent only
//! when the reactor sleeps.
//!
//! Limit: the number of items given at creation. At it `post` gives the item back, and the poster says `Retry`.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stele_ground::Duration;

use crate::system::EventFd;

/// Why an item came back.
#[derive(Debug)]
pub enum Refused<T> {
    /// The limit is reached; later there may be room.
    Full(T),
    /// Nobody will empty it any more.
    Closed(T),
}

pub struct Mailbox<T> {
    queue: Mutex<Queue<T>>,
    /// The queue's length as last seen by whoever changed it, to look without locking.
    length: AtomicUsize,
    sleeping: AtomicBool,
    bell: Arc<EventFd>,
    limit: usize,
}

struct Queue<T> {
    items: VecDeque<T>,
    closed: bool,
}

impl<T> Mailbox<T> {
    pub fn new(limit: usize) -> io::Result<Mailbox<T>> {
        Ok(Mailbox::with_bell(limit, Arc::new(EventFd::new()?)))
    }

    /// For a reactor with several mailboxes and one bell.
    pub fn with_bell(limit: usize, bell: Arc<EventFd>) -> Mailbox<T> {
        Mailbox {
            queue: Mutex::new(Queue { items: VecDeque::with_capacity(limit.min(1024)), closed: false }),
            length: AtomicUsize::new(0),
            sleeping: AtomicBool::new(false),
            bell,
            limit,
        }
    }

    /// What becomes readable when a sleeping reactor has mail. Whoever waits for it clears it.
    pub fn bell(&self) -> &Arc<EventFd> {
        &self.bell
    }

    /// Adds an item and wakes the reactor if it sleeps.
    pub fn post(&self, item: T) -> Result<(), Refused<T>> {
        {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.closed {
                return Err(Refused::Closed(item));
            }
            if queue.items.len() >= self.limit {
                return Err(Refused::Full(item));
            }
            queue.items.push_back(item);
            self.length.store(queue.items.len(), Ordering::Release);
        }
        self.wake();
        Ok(())
    }

    /// Wakes the reactor if it sleeps.
    pub fn wake(&self) {
        // Looking first keeps the line shared between posters while the reactor is awake. The order is safe: the
        // reactor sets the flag before it locks the queue to look once more, and a poster looks after it unlocked.
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.bell.signal();
        }
    }

    /// Moves up to `most` items, oldest first. For the reactor.
    pub fn take(&self, most: usize, into: &mut Vec<T>) {
        if most == 0 || self.is_empty() {
            return;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let count = most.min(queue.items.len());
        into.extend(queue.items.drain(..count));
        self.length.store(queue.items.len(), Ordering::Release);
    }

    /// A look without a lock: may be a moment old.
    pub fn is_empty(&self) -> bool {
        self.length.load(Ordering::Acquire) == 0
    }

    /// The reactor is about to sleep. False: something is there, or the mailbox is closed; do not sleep.
    /// After true, `woken` must follow the sleep.
    pub fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let asleep = queue.items.is_empty() && !queue.closed;
        if !asleep {
            self.sleeping.store(false, Ordering::SeqCst);
        }
        asleep
    }

    /// The reactor is awake; posters need not ring. (A poster may be about to: then the next sleep is a short one.)
    pub fn woken(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Sleeps until an item is posted, the mailbox is closed, or the time is over.
    pub fn wait(&self, timeout: Option<Duration>) {
        if self.fall_asleep() {
            self.bell.wait(timeout);
            self.woken();
        }
    }

    /// Takes no more items; what is in stays to be taken.
    pub fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.wake();
    }

    pub fn is_closed(&self) -> bool {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).closed
    }
}

#[cfg(test)]
mod tests;
