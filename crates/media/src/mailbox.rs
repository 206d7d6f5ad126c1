//! The queue by which other threads hand work to a reactor. It is bounded and emptied in batches,
//! and it wakes the reactor only when the reactor sleeps.
//!
//! Limit: the number of items given at creation. At the limit `post` returns the item, and the
//! poster answers `Retry`.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stele_ground::Duration;

use crate::system::EventFd;

/// The reason why an item came back.
#[derive(Debug)]
pub enum Refused<T> {
    /// The limit is reached; there may be room later.
    Full(T),
    /// The reactor no longer empties the queue.
    Closed(T),
}

pub struct Mailbox<T> {
    queue: Mutex<Queue<T>>,
    /// The queue's length after its last change, readable without a lock.
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

    /// A mailbox for a reactor with several mailboxes and one bell.
    pub fn with_bell(limit: usize, bell: Arc<EventFd>) -> Mailbox<T> {
        Mailbox {
            queue: Mutex::new(Queue { items: VecDeque::with_capacity(limit.min(1024)), closed: false }),
            length: AtomicUsize::new(0),
            sleeping: AtomicBool::new(false),
            bell,
            limit,
        }
    }

    /// The descriptor that becomes readable when a sleeping reactor has items. The waiting thread
    /// clears it.
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
        // Loading first keeps the cache line shared between posters while the reactor is awake. The
        // order is safe: the reactor sets the flag before it locks the queue for its last look, and
        // a poster checks the flag after it has unlocked the queue.
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.bell.signal();
        }
    }

    /// Moves up to `most` items, oldest first. Called by the reactor.
    pub fn take(&self, most: usize, into: &mut Vec<T>) {
        if most == 0 || self.is_empty() {
            return;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let count = most.min(queue.items.len());
        into.extend(queue.items.drain(..count));
        self.length.store(queue.items.len(), Ordering::Release);
    }

    /// Reads the length without a lock; the answer may be slightly old.
    pub fn is_empty(&self) -> bool {
        self.length.load(Ordering::Acquire) == 0
    }

    /// Announces that the reactor is about to sleep. Returns false if there is an item or the
    /// mailbox is closed: do not sleep. After true, `woken` must follow the sleep.
    pub fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let asleep = queue.items.is_empty() && !queue.closed;
        if !asleep {
            self.sleeping.store(false, Ordering::SeqCst);
        }
        asleep
    }

    /// The reactor is awake, so posters need not ring. (A poster may already be about to ring: the
    /// next sleep is then short.)
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

    /// Takes no more items; queued items can still be taken.
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
