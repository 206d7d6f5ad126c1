//! Runs the calls of requests: at once on the thread that read the request, or on the runtime if they must wait.

use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Waker};

use tokio::runtime::Handle;

/// The most requests that wait at the same time. Each may hold a write of [`super::WRITE_MAX`] bytes.
/// At the limit no further request is read from the kernel.
pub const UNDER_WAY_MAX: usize = 64;

#[derive(Clone)]
pub(super) struct Work {
    runtime: Handle,
    waiting: Arc<Waiting>,
}

/// How many calls wait on the runtime.
#[derive(Default)]
struct Waiting {
    count: Mutex<usize>,
    fell: Condvar,
}

/// One call that waits.
struct Place(Arc<Waiting>);

impl Work {
    pub(super) fn new(runtime: Handle) -> Work {
        Work { runtime, waiting: Arc::default() }
    }

    /// Most calls are answered from memory; those cost no change of threads. One that waits goes to the runtime.
    pub(super) fn start(&self, call: impl Future<Output = ()> + Send + 'static) {
        let _context = self.runtime.enter();
        let mut call = Box::pin(call);
        if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        let place = Place::take(&self.waiting);
        self.runtime.spawn(async move {
            call.await;
            drop(place);
        });
    }

    /// Blocks until no call waits any more.
    pub(super) fn finish(&self) {
        drop(self.waiting.until(|count| count == 0));
    }
}

impl Waiting {
    /// Blocks until the condition holds, and leaves the count locked.
    fn until(&self, holds: impl Fn(usize) -> bool) -> std::sync::MutexGuard<'_, usize> {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        self.fell.wait_while(count, |count| !holds(*count)).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Blocks while there is none.
    fn take(waiting: &Arc<Waiting>) -> Place {
        *waiting.until(|count| count < UNDER_WAY_MAX) += 1;
        Place(waiting.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.fell.notify_all();
    }
}

#[cfg(test)]
mod tests;
