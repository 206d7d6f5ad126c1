//! A few threads for the work that the ring cannot do: all operations if io_uring is refused, and
//! blocking calls that io_uring lacks.
//!
//! Limits: [`THREADS_MAX`] threads, started on demand. The ring's own limit on operations in flight
//! bounds the queue. Dropping waits for the operations under way.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::direct::carry_out;
use super::plan::PendingOperation;
use crate::system::EventFd;
use crate::{MediaError, MediaFault};

pub const THREADS_MAX: usize = 4;

pub type Finished = (PendingOperation, Result<(), MediaError>);

pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    finished: Mutex<Vec<Finished>>,
    /// Rung when an operation finishes and none was finished before.
    bell: Arc<EventFd>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<PendingOperation>,
    idle: usize,
    closed: bool,
}

impl Workers {
    pub fn new(bell: Arc<EventFd>) -> Workers {
        let shared = Shared { queue: Mutex::default(), more: Condvar::new(), finished: Mutex::default(), bell };
        Workers { shared: Arc::new(shared), threads: Vec::new() }
    }

    pub fn start(&mut self, work: PendingOperation) {
        let mut queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(work);
        let short = queue.idle < queue.waiting.len() && self.threads.len() < THREADS_MAX;
        drop(queue);
        self.shared.more.notify_one();
        if !short {
            return;
        }
        let shared = Arc::clone(&self.shared);
        match std::thread::Builder::new().name("stele-files".to_owned()).spawn(move || serve(&shared)) {
            Ok(thread) => self.threads.push(thread),
            Err(error) if self.threads.is_empty() => self.shared.refuse_waiting(&error),
            // The running threads suffice.
            Err(_) => {}
        }
    }

    pub fn collect(&self, into: &mut Vec<Finished>) {
        into.append(&mut self.shared.finished.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Shared {
    /// Answers all waiting operations, since no thread can be started for them.
    fn refuse_waiting(&self, error: &std::io::Error) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let message = format!("no thread could be started for file operations: {error}");
        let refused =
            queue.waiting.drain(..).map(|work| (work, Err(MediaError::new(MediaFault::Retry, message.clone()))));
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).extend(refused);
        self.bell.signal();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Shared) {
    let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(mut work) = queue.waiting.pop_front() {
            drop(queue);
            let result = carry_out(&mut work);
            let mut finished = shared.finished.lock().unwrap_or_else(PoisonError::into_inner);
            finished.push((work, result));
            let first = finished.len() == 1;
            drop(finished);
            if first {
                shared.bell.signal();
            }
            queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        } else if queue.closed {
            return;
        } else {
            queue.idle += 1;
            queue = shared.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
