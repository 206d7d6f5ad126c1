//! Wakes a connection once for all that a pool answers in one turn of its thread.
//!
//! A pool answers its operations one after another, on its own thread. Where each answer wakes the
//! connection at once, the connection's thread finds one answer and sends one reply; then it sleeps
//! and is woken for the next. Where processors are few, it even takes the processor from the pool
//! before the pool has given its other answers. So a wake-up from the thread of a pool waits until
//! that thread has done what it does: one reply after another becomes one write of many.
//!
//! [`TurnEnd`] is a session on the thread of the pool, which has a turn behind that of the answers
//! and before the thread sleeps. On threads without such a session, nothing waits.
//!
//! Limit: a connection waits once, however often it is woken. Failure: when a pool stops, its
//! session ends and wakes the connections that wait; later answers wake them at once.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use stele_ground::Instant;
use stele_media::system::EventFd;
use stele_media::{Interest, ReactorSession};

thread_local! {
    static TURN: RefCell<Option<PoolTurn>> = const { RefCell::new(None) };
}

/// What a pool's thread does.
struct PoolTurn {
    /// Asks for a turn of the thread's [`TurnEnd`].
    call: stele_media::Waker,
    waiting: Vec<Arc<ConnectionWaker>>,
}

/// A session of a pool that wakes connections at the end of the pool's turns. One is enough for
/// each thread of a pool; a further one ends at once.
pub struct TurnEnd {
    /// Never readable: the session has turns when an answer asks for one.
    descriptor: EventFd,
    is_first: bool,
}

impl TurnEnd {
    pub fn new() -> io::Result<TurnEnd> {
        Ok(TurnEnd { descriptor: EventFd::new()?, is_first: false })
    }
}

impl ReactorSession for TurnEnd {
    fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    fn start(&mut self, waker: stele_media::Waker) {
        TURN.with_borrow_mut(|turn| {
            self.is_first = turn.is_none();
            turn.get_or_insert(PoolTurn { call: waker, waiting: Vec::new() });
        });
    }

    fn turn(&mut self, _now: Instant) -> Interest {
        let mut waiting = TURN.with_borrow_mut(|turn| turn.as_mut().map(|turn| std::mem::take(&mut turn.waiting)));
        for connection in waiting.iter_mut().flat_map(|waiting| waiting.drain(..)) {
            connection.wake_now();
        }
        // Its memory is used again.
        TURN.with_borrow_mut(|turn| {
            if let (Some(turn), Some(empty)) = (turn, waiting)
                && turn.waiting.is_empty()
            {
                turn.waiting = empty;
            }
        });
        Interest { end: !self.is_first, ..Interest::default() }
    }
}

impl Drop for TurnEnd {
    fn drop(&mut self) {
        if self.is_first {
            // Where the thread ends already, its connections were woken before.
            let turn = TURN.try_with(RefCell::take).unwrap_or_default();
            turn.into_iter().flat_map(|turn| turn.waiting).for_each(|connection| connection.wake_now());
        }
    }
}

/// Wakes the task of a connection: at once, or at the end of a pool's turn.
struct ConnectionWaker {
    task: Waker,
    /// A pool's thread will wake it.
    waits: AtomicBool,
}

impl ConnectionWaker {
    fn wake_now(&self) {
        // Before the task is woken: what comes after this wakes it again.
        self.waits.swap(false, Ordering::AcqRel);
        self.task.wake_by_ref();
    }
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<ConnectionWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<ConnectionWaker>) {
        let waits = TURN.try_with(|turn| {
            let Ok(mut turn) = turn.try_borrow_mut() else { return false };
            let Some(turn) = turn.as_mut() else { return false };
            if !self.waits.swap(true, Ordering::AcqRel) {
                turn.waiting.push(Arc::clone(self));
                turn.call.wake();
            }
            true
        });
        if !waits.unwrap_or(false) {
            self.task.wake_by_ref();
        }
    }
}

/// The waker of a connection, made from that of its task.
#[derive(Default)]
pub struct TurnWaker(Option<(Waker, Waker)>);

impl TurnWaker {
    /// Polls with a waker that waits for the end of a pool's turn.
    pub fn poll<T>(&mut self, context: &Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let task = context.waker();
        let known = self.0.take().filter(|(known, _)| known.will_wake(task));
        let (_, waker) = self.0.insert(known.unwrap_or_else(|| {
            let connection = ConnectionWaker { task: task.clone(), waits: AtomicBool::new(false) };
            (task.clone(), Waker::from(Arc::new(connection)))
        }));
        poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests;
