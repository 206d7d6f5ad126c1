//! Where transactions wait for the writer, and where the writer is while it has nothing to do.
//!
//! The one that takes the writer away commits alone until it is back. A small transaction that
//! finds nothing before it takes the writer along. Its caller prepares the batch and submits the
//! write. The thread that completes the write shows the batch to readers and answers. That wakes
//! two threads fewer than by way of the catalog's own thread. The caller waits for no drive, unless
//! the transaction reads a record that is not in memory. All other work is left to the catalog's
//! thread: transactions behind another one, what needs a checkpoint or room, and a write that a
//! full queue refused.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use stele_ground::MIB;
use stele_media::{MediaError, MediaFault, Op, Priority};

use crate::embedded::store::{BATCH_BYTES_MAX, Begun, Prepared, Writer};
use crate::pending::Answerer;
use crate::{CatalogError, Receipt, Transaction};

/// Largest number of waiting transactions; below, of their bytes.
pub const QUEUE_MAX: usize = 8192;
const QUEUE_BYTES_MAX: usize = 64 * MIB as usize;
/// Largest number of transactions in one batch.
const BATCH_MAX: usize = 1024;
/// The largest transaction that its caller commits: computing the digest of more takes a while, and
/// so does showing it on the thread that completes the write.
const ALONE_MAX: usize = 16 << 10;

pub struct Desk {
    state: Mutex<State>,
    /// Only the catalog's thread waits for it.
    changed: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    bytes: usize,
    closed: bool,
    /// None: away.
    writer: Option<Writer>,
    /// The writer is to look whether a checkpoint is due.
    tend: bool,
    #[cfg(test)]
    takes: u64,
}

struct Job {
    work: Work,
    bytes: usize,
}

pub enum Work {
    Commit(Transaction, Answerer<Receipt>),
    Checkpoint(Answerer<()>),
    Grow(Growth, Answerer<()>),
}

/// The function that makes the volume larger.
pub type Growth = Box<dyn FnOnce() -> Result<(), CatalogError> + Send>;

impl Work {
    fn fail(self, error: &CatalogError) {
        match self {
            Work::Commit(_, answerer) => answerer.answer(Err(error.clone())),
            Work::Checkpoint(answerer) | Work::Grow(_, answerer) => answerer.answer(Err(error.clone())),
        }
    }
}

fn ended() -> CatalogError {
    CatalogError::Stopped("its thread has ended".into())
}

impl Desk {
    pub fn new(writer: Writer) -> Desk {
        let state = State {
            jobs: VecDeque::new(),
            bytes: 0,
            closed: false,
            writer: Some(writer),
            tend: false,
            #[cfg(test)]
            takes: 0,
        };
        Desk { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits the transaction, or leaves it to the catalog's thread.
    pub fn commit(self: &Arc<Self>, transaction: Transaction, answerer: Answerer<Receipt>) {
        let bytes = transaction.size();
        match self.take_alone(bytes) {
            Some(writer) => Away { desk: Arc::clone(self), writer: Some(writer) }.commit(transaction, answerer),
            None => self.push(Work::Commit(transaction, answerer), bytes),
        }
    }

    /// The writer, for a transaction of so many bytes that finds nothing before it.
    fn take_alone(&self, bytes: usize) -> Option<Writer> {
        let mut state = self.lock();
        let may = bytes <= ALONE_MAX && state.jobs.is_empty() && !state.tend && !state.closed;
        state.writer.take_if(|_| may)
    }

    pub fn push(&self, work: Work, bytes: usize) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return work.fail(&ended());
        }
        if state.jobs.len() >= QUEUE_MAX || state.bytes + bytes > QUEUE_BYTES_MAX {
            drop(state);
            return work.fail(&CatalogError::Busy);
        }
        state.bytes += bytes;
        state.jobs.push_back(Job { work, bytes });
        // Where the writer is away, the transaction is found when it comes back.
        if state.jobs.len() == 1 && state.writer.is_some() {
            self.changed.notify_one();
        }
    }

    /// Puts back what was there first.
    fn push_front(&self, work: Work, bytes: usize) {
        let mut state = self.lock();
        state.bytes += bytes;
        state.jobs.push_front(Job { work, bytes });
    }

    /// `tend`: a checkpoint may be due.
    pub fn put_back(&self, writer: Writer, tend: bool) {
        let mut state = self.lock();
        assert!(state.writer.is_none(), "there is one writer");
        state.writer = Some(writer);
        state.tend |= tend;
        if state.tend || state.closed || !state.jobs.is_empty() {
            self.changed.notify_one();
        }
    }

    /// The writer and the next batch; none when the desk is closed and nothing is left.
    pub fn take(&self, batch: &mut Vec<Work>) -> Option<Writer> {
        let mut state = self.lock();
        while state.writer.is_none() || (state.jobs.is_empty() && !state.tend && !state.closed) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed && state.jobs.is_empty() {
            return None;
        }
        state.tend = false;
        #[cfg(test)]
        {
            state.takes += 1;
        }
        let mut bytes = 0;
        while batch.len() < BATCH_MAX
            && let Some(job) = state.jobs.front()
            && (batch.is_empty() || bytes + job.bytes <= BATCH_BYTES_MAX)
        {
            bytes += job.bytes;
            state.bytes -= job.bytes;
            batch.extend(state.jobs.pop_front().map(|job| job.work));
        }
        state.writer.take()
    }

    /// How often the catalog's thread took the writer.
    #[cfg(test)]
    pub fn takes(&self) -> u64 {
        self.lock().takes
    }

    /// Nothing more is taken. What waits is still carried out.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// The catalog's thread has ended: what waits is refused.
    pub fn end(&self) {
        let (left, writer) = {
            let mut state = self.lock();
            state.closed = true;
            state.bytes = 0;
            (std::mem::take(&mut state.jobs), state.writer.take())
        };
        // A completion may hold the desk for a moment longer, but no longer the volume.
        drop(writer);
        left.into_iter().for_each(|job| job.work.fail(&ended()));
    }
}

/// The writer on its way with one transaction. It comes back however that ends.
struct Away {
    desk: Arc<Desk>,
    writer: Option<Writer>,
}

impl Drop for Away {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            if std::thread::panicking() {
                // The journal may be ahead of what readers see.
                writer.shared.stop(&CatalogError::Stopped("a commit broke off; its message is in the log".into()));
            }
            let ripe = writer.is_ripe();
            self.desk.put_back(writer, ripe);
        }
    }
}

impl Away {
    fn commit(mut self, transaction: Transaction, answerer: Answerer<Receipt>) {
        let Some(writer) = &mut self.writer else { return };
        match writer.begin(&transaction) {
            Begun::Answered(answer) => {
                drop(self);
                answerer.answer(answer);
            }
            Begun::Waits => self.leave(transaction, answerer),
            Begun::Writes(prepared, write) => {
                let volume = writer.handle();
                let flight = Flight { away: self, write: Some((prepared, transaction, answerer)), result: None };
                volume.submit(write, Priority::Urgent, Box::new(move |_: Op, result| flight.land(result)));
            }
        }
    }

    /// Leaves the transaction to the catalog's thread.
    fn leave(self, transaction: Transaction, answerer: Answerer<Receipt>) {
        let bytes = transaction.size();
        self.desk.push_front(Work::Commit(transaction, answerer), bytes);
    }
}

/// A batch of one transaction on its way into the journal. It lands however the port treats the
/// write, even if the port drops it without an answer.
struct Flight {
    away: Away,
    write: Option<(Prepared, Transaction, Answerer<Receipt>)>,
    result: Option<Result<(), MediaError>>,
}

impl Flight {
    fn land(mut self, result: Result<(), MediaError>) {
        self.result = Some(result);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let gone = || Err(MediaError::new(MediaFault::Gone, "the volume's server has stopped"));
        let result = self.result.take().unwrap_or_else(gone);
        let desk = Arc::clone(&self.away.desk);
        let away = Away { desk, writer: self.away.writer.take() };
        let Some((prepared, transaction, answerer)) = self.write.take() else { return };
        if matches!(&result, Err(error) if error.fault == MediaFault::Retry) {
            // Nothing that a reader takes for a batch was written. The thread may wait for room in
            // the volume's queue, and writes at the same place.
            return away.leave(transaction, answerer);
        }
        land(away, prepared, result, answerer);
    }
}

fn land(mut away: Away, prepared: Prepared, result: Result<(), MediaError>, answerer: Answerer<Receipt>) {
    let Some(writer) = &mut away.writer else { return };
    let answer = writer.end(prepared, result);
    // First the writer: the one who gets the answer may have the next transaction.
    drop(away);
    answerer.answer(answer);
}
