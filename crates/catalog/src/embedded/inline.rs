//! The embedded catalog without threads: a commit and its checkpoints run on the caller.
//!
//! It serves the deterministic world. A blocked call there pumps the world, and the world may call
//! again. Transactions committed meanwhile join the queue, and the outer call carries them out as
//! the next batch.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stele_media::{Handle, Order};

use super::checkpoint::Checkpointer;
use super::store::{BATCH_BYTES_MAX, Checkpoints, Frozen, Options, Shared, Status, Writer, open};
use crate::pending::Answerer;
use crate::{Catalog, CatalogError, Pending, Receipt, Snapshot, Transaction};

/// Largest number of waiting transactions.
const QUEUE_MAX: usize = 4096;

/// See the module.
pub struct InlineCatalog {
    shared: Arc<Shared>,
    queue: Mutex<VecDeque<(Transaction, Answerer<Receipt>)>>,
    core: Mutex<Core>,
}

struct Core {
    writer: Writer,
    checkpointer: InLine,
}

struct InLine(Checkpointer);

impl Checkpoints for InLine {
    fn start(&mut self, frozen: Frozen) {
        self.0.run(&frozen);
    }
    fn wait(&mut self) {}
}

impl InlineCatalog {
    pub fn open(handle: &Handle, options: Options) -> Result<InlineCatalog, CatalogError> {
        let (writer, checkpointer) = open(handle, options)?;
        let shared = Arc::clone(&writer.shared);
        let core = Mutex::new(Core { writer, checkpointer: InLine(checkpointer) });
        Ok(InlineCatalog { shared, queue: Mutex::default(), core })
    }

    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Writes everything into the B-tree now.
    pub fn checkpoint(&self) -> Result<(), CatalogError> {
        self.alone(|writer, checkpointer| writer.checkpoint(checkpointer));
        self.shared.stopped().map_or(Ok(()), Err)
    }

    /// Like [`super::EmbeddedCatalog::grow`].
    pub fn grow(&self, grow: impl FnOnce() -> Result<(), CatalogError>) -> Result<(), CatalogError> {
        self.alone(|writer, checkpointer| writer.grow(checkpointer, grow))
    }

    /// Does this with the core, and then the transactions that were queued meanwhile.
    fn alone<T>(&self, act: impl FnOnce(&mut Writer, &mut InLine) -> T) -> T {
        let done = {
            let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
            let Core { writer, checkpointer } = &mut *core;
            act(writer, checkpointer)
        };
        self.work();
        done
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<(Transaction, Answerer<Receipt>)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        // If an outer call on this thread or another thread holds the core, it takes the queued
        // transactions.
        while let Ok(mut core) = self.core.try_lock() {
            let (transactions, answerers): (Vec<_>, Vec<_>) = self.take().into_iter().unzip();
            if !transactions.is_empty() {
                let Core { writer, checkpointer } = &mut *core;
                let answers = writer.commit(&transactions, checkpointer);
                for (answerer, answer) in answerers.into_iter().zip(answers) {
                    answerer.answer(answer);
                }
                writer.tend(checkpointer);
            }
            // Looked at without the core: until it is free, others leave their transactions to this
            // call.
            drop(core);
            if self.queue().is_empty() {
                return;
            }
        }
    }

    /// The next batch.
    fn take(&self) -> Vec<(Transaction, Answerer<Receipt>)> {
        let (mut queue, mut batch, mut bytes) = (self.queue(), Vec::new(), 0);
        while let Some((transaction, _)) = queue.front() {
            bytes += transaction.size();
            if !batch.is_empty() && bytes > BATCH_BYTES_MAX {
                break;
            }
            batch.extend(queue.pop_front());
        }
        batch
    }
}

impl Catalog for InlineCatalog {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        let (answerer, pending) = Pending::channel();
        {
            let mut queue = self.queue();
            if queue.len() >= QUEUE_MAX {
                return Pending::ready(Err(CatalogError::Busy));
            }
            queue.push_back((transaction, answerer));
        }
        self.work();
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
