//! Waiting inside the pool: wake-ups, counted permits, locks by key, and joining. All first come,
//! first served, and all safe to drop while waiting. Queues here are as long as the number of
//! waiting tasks, which their owners bound.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use stele_ground::VolumeId;

/// Wakes everybody who waits for something to change. Wait in a loop: look, then `changed().await`.
#[derive(Default)]
pub struct Notify {
    round: Cell<u64>,
    waiters: RefCell<Vec<Waker>>,
}

impl Notify {
    /// Wakes everybody who began to wait before now.
    pub fn wake_all(&self) {
        self.round.set(self.round.get() + 1);
        for waiter in self.waiters.take() {
            waiter.wake();
        }
    }

    /// How often `wake_all` was called.
    pub fn round(&self) -> u64 {
        self.round.get()
    }

    /// Answers after the first `wake_all` that follows this call (not its first poll).
    pub fn changed(&self) -> impl Future<Output = ()> + '_ {
        let since = self.round.get();
        poll_fn(move |cx| {
            if self.round.get() != since {
                return Poll::Ready(());
            }
            let mut waiters = self.waiters.borrow_mut();
            if !waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
                waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
    }
}

/// A number of permits, given out first come, first served: a large request is not overtaken by
/// small ones.
pub struct Semaphore(Rc<Queue>);

/// Gives its permits back when dropped.
pub struct Permit {
    queue: Rc<Queue>,
    amount: u64,
}

struct Queue {
    free: Cell<u64>,
    limit: u64,
    waiting: RefCell<VecDeque<Rc<Waiter>>>,
}

struct Waiter {
    amount: u64,
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Semaphore {
    pub fn new(permits: u64) -> Semaphore {
        Semaphore(Rc::new(Queue { free: Cell::new(permits), limit: permits, waiting: RefCell::default() }))
    }

    pub fn free(&self) -> u64 {
        self.0.free.get()
    }

    /// Tasks waiting.
    pub fn waiting(&self) -> usize {
        self.0.waiting.borrow().len()
    }

    pub fn try_acquire(&self, amount: u64) -> Option<Permit> {
        let amount = amount.min(self.0.limit);
        (self.0.waiting.borrow().is_empty() && self.0.take(amount))
            .then(|| Permit { queue: Rc::clone(&self.0), amount })
    }

    /// Asking for more than there are in all asks for all.
    pub fn acquire(&self, amount: u64) -> impl Future<Output = Permit> + use<> {
        let ready = self.try_acquire(amount);
        let queue = Rc::clone(&self.0);
        let amount = amount.min(queue.limit);
        async move {
            if let Some(permit) = ready {
                return permit;
            }
            let waiter = Rc::new(Waiter { amount, granted: Cell::new(false), waker: RefCell::default() });
            queue.waiting.borrow_mut().push_back(Rc::clone(&waiter));
            queue.grant();
            Turn { queue: Some(queue), waiter }.await
        }
    }
}

impl Queue {
    fn take(&self, amount: u64) -> bool {
        let enough = self.free.get() >= amount;
        if enough {
            self.free.set(self.free.get() - amount);
        }
        enough
    }

    fn give(&self, amount: u64) {
        self.free.set(self.free.get() + amount);
        assert!(self.free.get() <= self.limit, "more permits came back than were given");
        self.grant();
    }

    fn grant(&self) {
        loop {
            let next = self.waiting.borrow().front().map(Rc::clone);
            let Some(waiter) = next.filter(|waiter| self.take(waiter.amount)) else { return };
            self.waiting.borrow_mut().pop_front();
            waiter.granted.set(true);
            let waker = waiter.waker.take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

struct Turn {
    queue: Option<Rc<Queue>>,
    waiter: Rc<Waiter>,
}

impl Future for Turn {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        if !self.waiter.granted.get() {
            *self.waiter.waker.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let amount = self.waiter.amount;
        match self.queue.take() {
            Some(queue) => Poll::Ready(Permit { queue, amount }),
            None => Poll::Pending,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        if self.waiter.granted.get() {
            queue.give(self.waiter.amount);
        } else {
            queue.waiting.borrow_mut().retain(|waiting| !Rc::ptr_eq(waiting, &self.waiter));
            queue.grant();
        }
    }
}

impl Permit {
    /// Permits held.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Gives some back early.
    pub fn give_back(&mut self, amount: u64) {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        self.queue.give(amount);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.queue.give(self.amount);
    }
}

/// A lock for async flows; first come, first served.
pub struct Mutex(Semaphore);

impl Default for Mutex {
    fn default() -> Mutex {
        Mutex(Semaphore::new(1))
    }
}

impl Mutex {
    pub fn lock(&self) -> impl Future<Output = Permit> + use<> {
        self.0.acquire(1)
    }

    pub fn try_lock(&self) -> Option<Permit> {
        self.0.try_acquire(1)
    }

    /// No task holds it or waits for it.
    pub fn is_free(&self) -> bool {
        self.0.free() > 0 && self.0.waiting() == 0
    }
}

/// Holds many readers or one writer on a stripe; first come, first served.
#[derive(Clone, Default)]
pub struct StripeLocks(Rc<RefCell<ByStripe>>);

type ByStripe = BTreeMap<(VolumeId, u64), Rc<Semaphore>>;

/// A held stripe.
pub struct StripeGuard {
    locks: StripeLocks,
    key: (VolumeId, u64),
    permit: Option<Permit>,
    lock: Rc<Semaphore>,
}

/// More readers than this on one stripe wait.
const READERS: u64 = 1 << 20;

impl StripeLocks {
    /// Alone on the stripe: destage, full-stripe write, rebuild, repair.
    pub async fn exclusive(&self, volume: VolumeId, stripe: u64) -> StripeGuard {
        self.take(volume, stripe, READERS).await
    }

    /// Together with other readers.
    pub async fn shared(&self, volume: VolumeId, stripe: u64) -> StripeGuard {
        self.take(volume, stripe, 1).await
    }

    /// Exclusive, if no task holds or waits for it.
    pub fn try_exclusive(&self, volume: VolumeId, stripe: u64) -> Option<StripeGuard> {
        let key = (volume, stripe);
        if self.0.borrow().contains_key(&key) {
            return None;
        }
        let lock = self.entry(key);
        let permit = lock.try_acquire(READERS);
        Some(StripeGuard { locks: self.clone(), key, permit, lock })
    }

    /// Together with other readers, if no task holds it exclusively or waits for it.
    pub fn try_shared(&self, volume: VolumeId, stripe: u64) -> Option<StripeGuard> {
        let key = (volume, stripe);
        let lock = self.entry(key);
        let mut guard = StripeGuard { locks: self.clone(), key, permit: None, lock };
        guard.permit = guard.lock.try_acquire(1);
        guard.permit.is_some().then_some(guard)
    }

    /// True when a task holds or waits for the stripe.
    pub fn is_held(&self, volume: VolumeId, stripe: u64) -> bool {
        self.0.borrow().contains_key(&(volume, stripe))
    }

    /// Stripes of a volume held or waited for.
    pub fn held_of(&self, volume: VolumeId) -> Vec<u64> {
        let locks = self.0.borrow();
        locks.range((volume, 0)..=(volume, u64::MAX)).map(|((_, stripe), _)| *stripe).collect()
    }

    /// Stripes held or waited for.
    pub fn held(&self) -> usize {
        self.0.borrow().len()
    }

    fn entry(&self, key: (VolumeId, u64)) -> Rc<Semaphore> {
        Rc::clone(self.0.borrow_mut().entry(key).or_insert_with(|| Rc::new(Semaphore::new(READERS))))
    }

    async fn take(&self, volume: VolumeId, stripe: u64, amount: u64) -> StripeGuard {
        let key = (volume, stripe);
        let lock = self.entry(key);
        // The guard exists before the wait, so that a dropped wait also tidies the map.
        let mut guard = StripeGuard { locks: self.clone(), key, permit: None, lock };
        let acquired = guard.lock.acquire(amount);
        guard.permit = Some(acquired.await);
        guard
    }
}

impl Drop for StripeGuard {
    fn drop(&mut self) {
        drop(self.permit.take());
        // The map's reference and this one: no other task holds or waits.
        let mut map = self.locks.0.borrow_mut();
        if Rc::strong_count(&self.lock) == 2 {
            map.remove(&self.key);
        }
    }
}

/// Waits for all; results in the order given. All run at once.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut results: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (future, result) in running.iter_mut().zip(&mut results) {
            if result.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(value) => *result = Some(value),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
