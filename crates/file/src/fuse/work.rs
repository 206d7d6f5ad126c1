//! Runs the calls of requests: at once on the thread that read the request, or on the runtime if they must wait.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// The most requests that wait at the same time. Each may hold a write of [`super::WRITE_MAX`] bytes.
/// At the limit no further request is read from the kernel.
pub const UNDER_WAY_MAX: usize = 64;

pub(super) struct Work {
    runtime: Handle,
    room: Arc<Semaphore>,
}

impl Work {
    pub(super) fn new(runtime: Handle) -> Work {
        Work { runtime, room: Arc::new(Semaphore::new(UNDER_WAY_MAX)) }
    }

    /// Most calls are answered from memory; those cost no change of threads. One that waits goes to the runtime.
    pub(super) fn start(&self, call: impl Future<Output = ()> + Send + 'static) {
        let _context = self.runtime.enter();
        let mut call = Box::pin(call);
        if pin!(&mut call).poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        // The semaphore is never closed; without a permit the call would only lack its bound.
        let permit = match self.room.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => self.runtime.block_on(self.room.clone().acquire_owned()).ok(),
        };
        self.runtime.spawn(async move {
            call.await;
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests;
