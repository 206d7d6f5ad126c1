//! The embedded catalog in production: one thread commits, one writes checkpoints.
//!
//! A small transaction that finds nothing before it is committed by its caller ([`desk`]).
//! Transactions that come while a batch is on its way to the journal form the next batch, on the
//! thread. The queue is bounded; beyond the limit a commit answers `Busy` at once. Dropping the
//! catalog finishes the queued transactions and ends both threads. It writes nothing to the B-tree,
//! since the next open replays the journal.

mod desk;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use stele_media::{Handle, Order};

use desk::{Desk, Work};

use super::checkpoint::Checkpointer;
use super::store::{Checkpoints, Frozen, Options, Shared, Status, Writer, open};
use crate::{Catalog, CatalogError, Pending, Receipt, Snapshot, Transaction};

pub use desk::QUEUE_MAX;

/// See the module.
pub struct EmbeddedCatalog {
    shared: Arc<Shared>,
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
}

impl EmbeddedCatalog {
    pub fn open(handle: &Handle, options: Options) -> Result<EmbeddedCatalog, CatalogError> {
        let (writer, checkpointer) = open(handle, options)?;
        let shared = Arc::clone(&writer.shared);
        let desk = Arc::new(Desk::new(writer));
        let (start, started) = channel();
        let (done, finished) = channel();
        let failed = |error| CatalogError::Stopped(format!("a thread could not be started: {error}"));
        let checkpoints = std::thread::Builder::new()
            .name("stele-checkpoint".into())
            .spawn(move || run_checkpoints(&checkpointer, &started, &done))
            .map_err(failed)?;
        let theirs = Arc::clone(&desk);
        let commits = std::thread::Builder::new()
            .name("stele-catalog".into())
            .spawn(move || run_commits(&theirs, Beside { start, finished, running: 0 }))
            .map_err(failed)?;
        Ok(EmbeddedCatalog { shared, desk, threads: vec![commits, checkpoints] })
    }

    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Writes everything committed before this call into the B-tree; the next open then replays
    /// little.
    pub fn checkpoint(&self) -> Pending<()> {
        let (answerer, pending) = Pending::channel();
        self.desk.push(Work::Checkpoint(answerer), 0);
        pending
    }

    /// How often the thread that commits had work.
    #[cfg(test)]
    pub(super) fn takes(&self) -> u64 {
        self.desk.takes()
    }

    /// Makes the volume larger with `grow`, which may block, and then uses all of it. Commits wait
    /// meanwhile. If `grow` does nothing, the catalog takes up the unused part of its volume.
    pub fn grow(&self, grow: impl FnOnce() -> Result<(), CatalogError> + Send + 'static) -> Pending<()> {
        let (answerer, pending) = Pending::channel();
        self.desk.push(Work::Grow(Box::new(grow), answerer), 0);
        pending
    }
}

impl Catalog for EmbeddedCatalog {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        let (answerer, pending) = Pending::channel();
        self.desk.commit(transaction, answerer);
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
        self.desk.close();
        for thread in self.threads.drain(..) {
            // A panic in the thread has been reported there.
            drop(thread.join());
        }
    }
}

/// Ends the desk however the thread ends, so that no caller waits for an answer that cannot come.
struct Closing<'a>(&'a Desk);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn run_commits(desk: &Desk, mut checkpoints: Beside) {
    let _closing = Closing(desk);
    let mut batch = Vec::new();
    while let Some(mut writer) = desk.take(&mut batch) {
        carry_out(&mut writer, batch.drain(..), &mut checkpoints);
        // It has just looked whether a checkpoint is due.
        desk.put_back(writer, false);
    }
    checkpoints.wait();
}

fn carry_out(writer: &mut Writer, batch: impl Iterator<Item = Work>, checkpoints: &mut Beside) {
    let (mut transactions, mut answerers) = (Vec::new(), Vec::new());
    let (mut waiting, mut growing) = (Vec::new(), Vec::new());
    for work in batch {
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
        let answers = writer.commit(&transactions, checkpoints);
        for (answerer, answer) in answerers.into_iter().zip(answers) {
            answerer.answer(answer);
        }
    }
    writer.tend(checkpoints);
    for (grow, answerer) in growing {
        answerer.answer(writer.grow(checkpoints, grow));
    }
    if !waiting.is_empty() {
        writer.checkpoint(checkpoints);
        for answerer in waiting {
            answerer.answer(writer.shared.stopped().map_or(Ok(()), Err));
        }
    }
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
