//! The embedded catalog in production: one thread commits, one writes checkpoints.
//!
//! Transactions that queue while a batch is on its way to the journal form the next batch. The
//! queue is bounded; beyond the limit a commit answers `Busy` at once. Dropping the catalog
//! finishes the queued transactions and ends both threads. It writes nothing to the B-tree, since
//! the next open replays the journal.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use stele_ground::MIB;
use stele_media::{Handle, Order};

use super::checkpoint::Checkpointer;
use super::store::{BATCH_BYTES_MAX, Checkpoints, Frozen, Options, Shared, Status, Writer, open};
use crate::pending::Answerer;
use crate::{Catalog, CatalogError, Pending, Receipt, Snapshot, Transaction};

/// Largest number of waiting transactions; below, of their bytes.
pub const QUEUE_MAX: usize = 8192;
const QUEUE_BYTES_MAX: usize = 64 * MIB as usize;
/// Largest number of transactions in one batch.
const BATCH_MAX: usize = 1024;

/// See the module.
pub struct EmbeddedCatalog {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    bytes: usize,
    closed: bool,
}

struct Job {
    work: Work,
    bytes: usize,
}

enum Work {
    Commit(Transaction, Answerer<Receipt>),
    Checkpoint(Answerer<()>),
    Grow(Growth, Answerer<()>),
}

/// The function that makes the volume larger.
type Growth = Box<dyn FnOnce() -> Result<(), CatalogError> + Send>;

impl EmbeddedCatalog {
    pub fn open(handle: &Handle, options: Options) -> Result<EmbeddedCatalog, CatalogError> {
        let (writer, checkpointer) = open(handle, options)?;
        let shared = Arc::clone(&writer.shared);
        let queue = Arc::new(Queue::default());
        let (start, started) = channel();
        let (done, finished) = channel();
        let failed = |error| CatalogError::Stopped(format!("a thread could not be started: {error}"));
        let checkpoints = std::thread::Builder::new()
            .name("stele-checkpoint".into())
            .spawn(move || run_checkpoints(&checkpointer, &started, &done))
            .map_err(failed)?;
        let theirs = Arc::clone(&queue);
        let commits = std::thread::Builder::new()
            .name("stele-catalog".into())
            .spawn(move || run_commits(writer, &theirs, Beside { start, finished, running: 0 }))
            .map_err(failed)?;
        Ok(EmbeddedCatalog { shared, queue, threads: vec![commits, checkpoints] })
    }

    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Writes everything committed before this call into the B-tree; the next open then replays
    /// little.
    pub fn checkpoint(&self) -> Pending<()> {
        let (answerer, pending) = Pending::channel();
        self.queue.push(Job { work: Work::Checkpoint(answerer), bytes: 0 });
        pending
    }

    /// Makes the volume larger with `grow`, which may block, and then uses all of it. Commits wait
    /// meanwhile. If `grow` does nothing, the catalog takes up the unused part of its volume.
    pub fn grow(&self, grow: impl FnOnce() -> Result<(), CatalogError> + Send + 'static) -> Pending<()> {
        let (answerer, pending) = Pending::channel();
        self.queue.push(Job { work: Work::Grow(Box::new(grow), answerer), bytes: 0 });
        pending
    }
}

impl Catalog for EmbeddedCatalog {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        let (answerer, pending) = Pending::channel();
        let bytes = transaction.size();
        self.queue.push(Job { work: Work::Commit(transaction, answerer), bytes });
        pending
    }

    /// The order of its volume: a commit is durable with the journal's write, which is submitted
    /// after the commit call.
    fn order(&self) -> Option<Order> {
        self.shared.area.order()
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        Ok(Box::new(self.shared.view()))
    }
}

impl Drop for EmbeddedCatalog {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A panic in the thread has been reported there.
            drop(thread.join());
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return job.work.fail(&CatalogError::Stopped("its thread has ended".into()));
        }
        if state.jobs.len() >= QUEUE_MAX || state.bytes + job.bytes > QUEUE_BYTES_MAX {
            drop(state);
            return job.work.fail(&CatalogError::Busy);
        }
        state.bytes += job.bytes;
        state.jobs.push_back(job);
        if state.jobs.len() == 1 {
            self.changed.notify_one();
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// The next batch; false when the queue is closed and empty.
    fn take(&self, batch: &mut Vec<Work>) -> bool {
        let mut state = self.lock();
        while state.jobs.is_empty() && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
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
        !batch.is_empty()
    }
}

impl Work {
    fn fail(self, error: &CatalogError) {
        match self {
            Work::Commit(_, answerer) => answerer.answer(Err(error.clone())),
            Work::Checkpoint(answerer) | Work::Grow(_, answerer) => answerer.answer(Err(error.clone())),
        }
    }
}

/// Closes the queue however the thread ends, so that no caller waits for an answer that cannot
/// come.
struct Closing<'a>(&'a Queue);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
        let left = std::mem::take(&mut self.0.lock().jobs);
        let ended = CatalogError::Stopped("its thread has ended".into());
        left.into_iter().for_each(|job| job.work.fail(&ended));
    }
}

fn run_commits(mut writer: Writer, queue: &Queue, mut checkpoints: Beside) {
    let _closing = Closing(queue);
    let mut batch = Vec::new();
    while queue.take(&mut batch) {
        let (mut transactions, mut answerers) = (Vec::new(), Vec::new());
        let (mut waiting, mut growing) = (Vec::new(), Vec::new());
        for work in batch.drain(..) {
            match work {
                Work::Commit(transaction, answerer) => {
                    transactions.push(transaction);
                    answerers.push(answerer);
                }
                Work::Checkpoint(answerer) => waiting.push(answerer),
                Work::Grow(grow, answerer) => growing.push((grow, answerer)),
            }
        }
        if !transactions.is_empty() {
            let answers = writer.commit(&transactions, &mut checkpoints);
            for (answerer, answer) in answerers.into_iter().zip(answers) {
                answerer.answer(answer);
            }
            writer.tend(&mut checkpoints);
        }
        for (grow, answerer) in growing {
            answerer.answer(writer.grow(&mut checkpoints, grow));
        }
        if !waiting.is_empty() {
            writer.checkpoint(&mut checkpoints);
            for answerer in waiting {
                answerer.answer(writer.shared.stopped().map_or(Ok(()), Err));
            }
        }
    }
    checkpoints.wait();
}

fn run_checkpoints(checkpointer: &Checkpointer, started: &Receiver<Frozen>, done: &Sender<()>) {
    while let Ok(frozen) = started.recv() {
        checkpointer.run(&frozen);
        if done.send(()).is_err() {
            return;
        }
    }
}

/// Runs checkpoints on the second thread.
struct Beside {
    start: Sender<Frozen>,
    finished: Receiver<()>,
    running: usize,
}

impl Checkpoints for Beside {
    fn start(&mut self, frozen: Frozen) {
        // If the other thread has died, the overlay stays in place and the journal fills up.
        if self.start.send(frozen).is_ok() {
            self.running += 1;
        }
    }

    fn wait(&mut self) {
        while self.running > 0 {
            self.running -= 1;
            if self.finished.recv().is_err() {
                self.running = 0;
            }
        }
    }
}
