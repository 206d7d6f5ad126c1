//! Runs the calls of requests: at once on the thread that read the request, or on the runtime if
//! they must wait.
//!
//! A call may wait for long: for a file that is being archived under its gate, or for room in the
//! cache. The thread that reads requests does not wait for it, so that calls on other files and
//! calls that end the wait get in. Reads and writes need memory, and only so many go on at once, of
//! one file fewer than in all; others wait in order, and have not begun.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::{Context, Waker};

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most reads and writes that go on at the same time; and of one file. Each may hold
/// [`super::WRITE_MAX`] bytes.
pub const UNDER_WAY_MAX: usize = 64;
const UNDER_WAY_OF_ONE: usize = 16;
/// The most calls that wait, and the most bytes that writes among them hold. At these limits no
/// further request is read from the kernel.
const WAITING_MAX: usize = 8192;
const HELD_MAX: usize = 128 << 20;
/// Files whose places are remembered, above which those that no call uses are forgotten.
const FILES_MAX: usize = 256;

#[derive(Clone)]
pub(super) struct Work {
    runtime: Handle,
    waiting: Arc<Waiting>,
    places: Arc<Places>,
}

/// The calls that wait on the runtime.
#[derive(Default)]
struct Waiting {
    sum: Mutex<Sum>,
    fell: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    calls: usize,
    bytes: usize,
}

/// One call that waits, and the bytes that it holds.
struct Waiter {
    waiting: Arc<Waiting>,
    bytes: usize,
}

/// Places of reads and writes.
struct Places {
    all: Arc<Semaphore>,
    files: Mutex<BTreeMap<u64, Weak<Semaphore>>>,
}

/// A read or a write that goes on: first of its file, then of all.
struct Place {
    _of_file: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Work {
    pub(super) fn new(runtime: Handle) -> Work {
        let places = Places { all: Arc::new(Semaphore::new(UNDER_WAY_MAX)), files: Mutex::default() };
        Work { runtime, waiting: Arc::default(), places: Arc::new(places) }
    }

    /// Most calls are answered from memory; those cost no change of threads. One that waits goes to
    /// the runtime.
    pub(super) fn start(&self, call: impl Future<Output = ()> + Send + 'static) {
        let _context = self.runtime.enter();
        let mut call = Box::pin(call);
        if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        self.spawn(0, call);
    }

    /// As `start`, for a read or a write of a file. `held`: the bytes that the call holds from the
    /// begin.
    pub(super) fn start_on(&self, file: u64, held: usize, call: impl Future<Output = ()> + Send + 'static) {
        let _context = self.runtime.enter();
        let Some(place) = self.places.find(file) else {
            let places = Arc::clone(&self.places);
            let placed = async move {
                let _place = places.take(file).await;
                call.await;
            };
            return self.spawn(held, Box::pin(placed));
        };
        let mut call = Box::pin(call);
        if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        let placed = async move {
            call.await;
            drop(place);
        };
        self.spawn(held, Box::pin(placed));
    }

    /// A trait object, so that all calls are one type of task.
    fn spawn(&self, bytes: usize, call: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let waiter = Waiter::new(&self.waiting, bytes);
        self.runtime.spawn(async move {
            call.await;
            drop(waiter);
        });
    }

    /// Blocks until no call waits any more.
    pub(super) fn finish(&self) {
        drop(self.waiting.until(|sum| sum.calls == 0));
    }
}

impl Waiting {
    /// Blocks until the condition holds, and leaves the sum locked.
    fn until(&self, holds: impl Fn(Sum) -> bool) -> std::sync::MutexGuard<'_, Sum> {
        let sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        self.fell.wait_while(sum, |sum| !holds(*sum)).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// Blocks at the limits.
    fn new(waiting: &Arc<Waiting>, bytes: usize) -> Waiter {
        let fits =
            |sum: Sum| sum.calls < WAITING_MAX && (bytes == 0 || sum.bytes == 0 || sum.bytes + bytes <= HELD_MAX);
        let mut sum = waiting.until(fits);
        sum.calls += 1;
        sum.bytes += bytes;
        Waiter { waiting: Arc::clone(waiting), bytes }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut sum = self.waiting.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.calls -= 1;
        sum.bytes -= self.bytes;
        self.waiting.fell.notify_all();
    }
}

impl Places {
    fn of(&self, file: u64) -> Arc<Semaphore> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = files.get(&file).and_then(Weak::upgrade) {
            return places;
        }
        if files.len() >= FILES_MAX {
            files.retain(|_, places| places.strong_count() > 0);
        }
        let places = Arc::new(Semaphore::new(UNDER_WAY_OF_ONE));
        files.insert(file, Arc::downgrade(&places));
        places
    }

    /// A place, if one is free.
    fn find(&self, file: u64) -> Option<Place> {
        let of_file = self.of(file).try_acquire_owned().ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Place { _of_file: of_file, _of_all: of_all })
    }

    /// A place, once one is free. None: there are none any more, and the call goes on without.
    async fn take(&self, file: u64) -> Option<Place> {
        let of_file = self.of(file).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(Place { _of_file: of_file, _of_all: of_all })
    }
}

#[cfg(test)]
mod tests;
