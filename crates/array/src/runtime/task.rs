//! The executor inside the pool: single-threaded, first in first out, the same order on every run.
//!
//! [`Tasks`] is owned by the pool and run by `Pool::run`. Everything else holds a [`Spawner`],
//! which does not keep the tasks alive: dropping `Tasks` drops every future, so the cycle task ->
//! state -> executor is cut in one place. A task that is woken several times before it runs, runs
//! once. A panic in a task passes through `run_ready`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

/// All tasks of a pool.
pub struct Tasks {
    inner: Rc<Inner>,
}

/// Starts tasks; cheap to clone. After `Tasks` is gone it drops what it is given.
#[derive(Clone)]
pub struct Spawner {
    inner: Weak<Inner>,
}

struct Inner {
    ready: Arc<Ready>,
    tasks: RefCell<Vec<Slot>>,
    free: RefCell<Vec<usize>>,
    live: Cell<usize>,
}

struct Slot {
    /// None while it is being polled, or when free.
    future: Option<Boxed>,
    token: Option<Arc<Token>>,
}

/// `std::task::Wake` asks for `Send`, so the queue sits behind a lock that no thread ever contends.
#[derive(Default)]
struct Ready {
    queue: Mutex<VecDeque<Arc<Token>>>,
}

struct Token {
    index: usize,
    queued: AtomicBool,
    finished: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.ready.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(Arc::clone(self));
        }
    }
}

impl Tasks {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Tasks {
        Tasks {
            inner: Rc::new(Inner {
                ready: Arc::default(),
                tasks: RefCell::default(),
                free: RefCell::default(),
                live: Cell::new(0),
            }),
        }
    }

    pub fn spawner(&self) -> Spawner {
        Spawner { inner: Rc::downgrade(&self.inner) }
    }

    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.inner.spawn(Box::pin(future));
    }

    /// Polls every task that is ready, and those that become ready meanwhile, until none is.
    pub fn run_ready(&self) {
        while let Some(token) = self.inner.ready.pop() {
            self.inner.poll(&token);
        }
    }

    /// True when no task is alive.
    pub fn is_idle(&self) -> bool {
        self.inner.live.get() == 0
    }

    /// Tasks alive.
    pub fn count(&self) -> usize {
        self.inner.live.get()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        // Futures may own other state of the pool; they go while the slab still stands, outside any
        // borrow.
        let slots = std::mem::take(&mut *self.inner.tasks.borrow_mut());
        drop(slots);
    }
}

impl Spawner {
    /// Starts a task; it first runs when the tasks started or woken before it have run.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        if let Some(inner) = self.inner.upgrade() {
            inner.spawn(Box::pin(future));
        }
    }
}

impl Ready {
    fn pop(&self) -> Option<Arc<Token>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Inner {
    fn spawn(&self, future: Boxed) {
        let mut tasks = self.tasks.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or(tasks.len());
        let token = Arc::new(Token {
            index,
            queued: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            ready: Arc::clone(&self.ready),
        });
        let slot = Slot { future: Some(future), token: Some(Arc::clone(&token)) };
        match tasks.get_mut(index) {
            Some(place) => *place = slot,
            None => tasks.push(slot),
        }
        self.live.set(self.live.get() + 1);
        drop(tasks);
        token.wake_by_ref();
    }

    fn poll(&self, token: &Arc<Token>) {
        token.queued.store(false, Ordering::Relaxed);
        // A late waker of a finished task must not poll the slot's next tenant.
        if token.finished.load(Ordering::Relaxed) {
            return;
        }
        let future = self.tasks.borrow_mut().get_mut(token.index).and_then(|slot| slot.future.take());
        let Some(mut future) = future else { return };
        let waker = Waker::from(Arc::clone(token));
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => {
                if let Some(slot) = self.tasks.borrow_mut().get_mut(token.index) {
                    slot.future = Some(future);
                }
            }
            Poll::Ready(()) => {
                drop(future);
                token.finished.store(true, Ordering::Relaxed);
                if let Some(slot) = self.tasks.borrow_mut().get_mut(token.index) {
                    slot.token = None;
                    self.free.borrow_mut().push(token.index);
                }
                self.live.set(self.live.get() - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests;
