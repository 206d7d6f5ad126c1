//! A runtime of its own beside the server's.

use tokio::runtime::{Builder, Handle, Runtime};

use crate::failure::{Failure, Outcome};

/// A runtime with one thread, which waits for nothing when it is dropped.
pub struct Apart(Option<Runtime>);

impl Apart {
    pub fn start(name: &str) -> Outcome<Apart> {
        let started = Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build();
        Ok(Apart(Some(started.map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?)))
    }

    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _inside = self.0.as_ref().map(Runtime::enter);
        work()
    }

    /// Where tasks are spawned.
    pub fn handle(&self) -> Option<&Handle> {
        self.0.as_ref().map(Runtime::handle)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
