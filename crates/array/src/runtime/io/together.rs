//! Many operations at once. All are started before the first is awaited, and they are awaited in
//! order: those that answer meanwhile wake no task.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use stele_media::{MediaError, Op, Priority, Shared};

use super::{Io, Round, gone, no_such_drive};

impl Io {
    /// Writes each of them: the drive's index, the place and the pieces. Results in that order.
    pub async fn write_all(
        &self,
        writes: impl Iterator<Item = (usize, u64, Vec<Shared>)>,
        priority: Priority,
    ) -> Vec<Result<(), MediaError>> {
        let start = |(drive, at, data)| self.start(drive, Op::Write { at, data, fua: false }, priority);
        let started: Vec<_> = writes.map(start).collect();
        let mut results = Vec::with_capacity(started.len());
        for write in started {
            results.push(match write {
                Ok(pending) => pending.await.result,
                Err(refused) => refused.result,
            });
        }
        results
    }

    /// Answers when every write whose completion was seen before the call is durable on the drive.
    pub async fn flush(&self, drive: usize) -> Result<(), MediaError> {
        self.join_flush(drive)?.answer().await
    }

    /// Flushes each of the drives. Results in their order.
    pub async fn flush_all(&self, drives: impl Iterator<Item = usize>) -> Vec<Result<(), MediaError>> {
        let joined: Vec<_> = drives.map(|drive| self.join_flush(drive)).collect();
        let mut results = Vec::with_capacity(joined.len());
        for flush in joined {
            results.push(match flush {
                Ok(flush) => flush.answer().await,
                Err(error) => Err(error),
            });
        }
        results
    }

    /// A flush that covers every write whose completion was seen.
    fn join_flush(&self, drive: usize) -> Result<Flush, MediaError> {
        let mut drives = self.0.drives.borrow_mut();
        let Some(state) = drives.get_mut(drive) else { return Err(no_such_drive(drive)) };
        if state.gone {
            return Err(gone(drive));
        }
        Ok(Flush(match (&state.flushing, state.unflushed) {
            (None, false) if state.joining.is_none() => None,
            // Handed out after every write so far had completed, so it covers them.
            (Some(flushing), false) => Some(Rc::clone(flushing)),
            _ => Some(Rc::clone(state.joining.get_or_insert_default())),
        }))
    }
}

/// A flush that was asked for. None: nothing is to be flushed.
struct Flush(Option<Rc<Round>>);

impl Flush {
    async fn answer(self) -> Result<(), MediaError> {
        let Some(round) = self.0 else { return Ok(()) };
        poll_fn(|cx| match &*round.result.borrow() {
            Some(result) => Poll::Ready(result.clone()),
            None => {
                let mut waiters = round.waiters.borrow_mut();
                if !waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
                    waiters.push(cx.waker().clone());
                }
                Poll::Pending
            }
        })
        .await
    }
}
