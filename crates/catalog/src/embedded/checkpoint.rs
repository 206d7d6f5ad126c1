//! Writes a frozen overlay into the B-tree, and measures the free space of the B-tree.
//!
//! The overlay goes in in slices, in key order. Each slice is an immediate commit that saves the
//! allocator state. Only the last one frees the journal before it. A crash between two slices is
//! harmless: the journal still holds the whole overlay, and applying it to a B-tree that has a part
//! of it changes nothing. Readers keep the overlay above the B-tree until all of it is in, so they
//! see no slice.
//!
//! redb does not report the free space inside its file. When the file can no longer grow, the free
//! pages are counted: a transaction takes them and is then aborted.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{Database, Durability, Table, TableDefinition, WriteTransaction};
use stele_ground::MIB;

use super::base::{Base, CHECKPOINT, RECORDS, guarded, place};
use super::layout::BLOCK;
use super::memtable::Change;
use super::store::{Frozen, Shared};
use crate::CatalogError;

/// Largest number of changes in a slice; below, of their bytes.
const SLICE_MAX: usize = 16_384;
const SLICE_BYTES_MAX: usize = 16 * MIB as usize;
/// The values that count pages: each takes nearly one page.
const PROBE: TableDefinition<u64, &[u8]> = TableDefinition::new("probe");
const PROBE_BYTES: usize = 4000;

/// The only writer of the B-tree.
pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    database: Database,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// The value of [`Shared::let_go`] at the last settling commit.
    settled: u64,
    /// The place at which an overlay continues that found no space.
    resume: Option<Place>,
}

type Place = (crate::Table, bytes::Bytes);

enum Slice {
    /// Committed, with the last place in it; `None` when nothing was left.
    Done(Option<Place>),
    /// The slice did not fit.
    NoRoom,
}

impl Checkpointer {
    pub fn new(shared: Arc<Shared>, database: Database) -> Checkpointer {
        Checkpointer { shared, database, progress: Mutex::default() }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the state of the last commit, which readers use from now on.
    fn rebase(&self) -> Result<Arc<Base>, CatalogError> {
        let base = Arc::new(Base::latest(&self.database, &self.shared.area)?);
        self.shared.given(&base);
        Ok(base)
    }

    /// Writes the overlay. If there is no space for it, it stays above the B-tree and in the
    /// journal. An error stops the store, since redb's state in memory is then unreliable.
    pub fn run(&self, frozen: &Frozen) {
        match guarded(|| self.write(frozen).and_then(|()| self.survey())) {
            Ok(()) => {}
            Err(error) => self.shared.stop(&error),
        }
    }

    pub(super) fn write(&self, frozen: &Frozen) -> Result<(), CatalogError> {
        if frozen.overlay.size().bytes == 0 {
            self.shared.change(|view| view.frozen = None);
            return Ok(());
        }
        self.settle()?;
        let mut limit = SLICE_MAX;
        let mut after = self.progress().resume.take();
        loop {
            let slice = frozen.overlay.latest(after.as_ref(), limit);
            match self.slice(slice, limit, frozen)? {
                Slice::Done(Some(last)) => {
                    // A fresh base lets the next slice use the pages that this one has replaced.
                    let base = self.rebase()?;
                    self.shared.change(|view| view.base = base);
                    after = Some(last);
                }
                Slice::Done(None) => break,
                Slice::NoRoom if limit > 1 => limit = (limit / 4).max(1),
                Slice::NoRoom => {
                    // Continue here, not from the start: while an old view is open, everything
                    // written twice takes space twice.
                    self.progress().resume = after;
                    return Ok(());
                }
            }
        }
        let base = self.rebase()?;
        // The pages of the overlay are taken. Until a survey counts what is left, they must not
        // count as free: commits go on meanwhile, and the overlay no longer stands for its pages.
        let pages = frozen.overlay.size().pages;
        let lower = |free: u64| Some(free.saturating_sub(pages));
        let _ = self.shared.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, lower);
        self.shared.change(|view| {
            view.base = base;
            view.frozen = None;
        });
        // The commit above is durable, so the journal up to that point may be overwritten.
        self.shared.tail.store(frozen.written, Ordering::Release);
        self.shared.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes an empty commit, with which redb frees the pages that only an old state used. It is
    /// done only if space is short and readers have released a state since the last time; otherwise
    /// it would only take space.
    fn settle(&self) -> Result<(), CatalogError> {
        {
            let (mut progress, let_go) = (self.progress(), self.shared.let_go());
            if progress.settled == let_go || self.shared.area.room() / BLOCK >= self.enough() {
                return Ok(());
            }
            progress.settled = let_go;
        }
        let transaction = begin(&self.database)?;
        self.touch(&transaction, self.overhead())?;
        if self.shared.area.overgrown() {
            return transaction.abort().map_err(failed);
        }
        transaction.commit().map_err(failed)
    }

    /// Number of free pages beyond which the exact number does not matter. The largest transaction
    /// may take 2100.
    fn enough(&self) -> u64 {
        (4 * self.shared.reserve()).max(2560)
    }

    fn slice(&self, changes: Vec<(Place, Change)>, limit: usize, frozen: &Frozen) -> Result<Slice, CatalogError> {
        let mut complete = changes.len() < limit;
        let transaction = begin(&self.database)?;
        let (mut last, mut count) = (None, 0);
        {
            let mut records = transaction.open_table(RECORDS).map_err(failed)?;
            let mut bytes = 0;
            for (at, change) in &changes {
                if bytes > SLICE_BYTES_MAX {
                    complete = false;
                    break;
                }
                bytes += at.1.len() + change.as_ref().map_or(0, |value| value.len());
                count += 1;
                put(&mut records, at, change)?;
                if self.shared.area.overgrown() {
                    break;
                }
                last = Some(at.clone());
            }
            if complete {
                records.insert(&CHECKPOINT[..], &frozen.checkpoint.encode()[..]).map_err(failed)?;
            }
            drop(records);
            // Enough for this commit, and for an empty one after it, which frees the pages that
            // this one replaces.
            self.touch(&transaction, 96 + 4 * self.overhead() + count / 32)?;
        }
        if self.shared.area.overgrown() {
            transaction.abort().map_err(failed)?;
            return Ok(Slice::NoRoom);
        }
        // An immediate commit is durable when it returns, with the allocator state.
        transaction.commit().map_err(failed)?;
        Ok(Slice::Done(if complete { None } else { last }))
    }

    /// Largest number of pages of an empty commit: the saved allocator state, and the tables of
    /// freed pages.
    fn overhead(&self) -> u64 {
        16 + self.shared.area.capacity() / BLOCK / 4096
    }

    /// Takes and frees the pages that the commit itself will need. A lack of space thus appears
    /// before the commit, when it can still be aborted.
    fn touch(&self, transaction: &WriteTransaction, pages: u64) -> Result<(), CatalogError> {
        if self.shared.area.room() / BLOCK > 4 * pages {
            return Ok(());
        }
        self.take(transaction, pages)?;
        transaction.delete_table(PROBE).map_err(failed)?;
        Ok(())
    }

    /// Takes up to `pages` pages, and returns the number taken.
    fn take(&self, transaction: &WriteTransaction, pages: u64) -> Result<u64, CatalogError> {
        let mut probe = transaction.open_table(PROBE).map_err(failed)?;
        for page in 0..pages {
            if self.shared.area.overgrown() {
                return Ok(page);
            }
            probe.insert_reserve(page, PROBE_BYTES).map_err(failed)?;
        }
        Ok(if self.shared.area.overgrown() { 0 } else { pages })
    }

    /// Measures a lower bound of the free pages.
    pub fn survey(&self) -> Result<(), CatalogError> {
        let enough = self.enough();
        let room = self.shared.area.room() / BLOCK;
        let free = if room >= enough {
            room
        } else {
            self.settle()?;
            let transaction = begin(&self.database)?;
            let free = self.take(&transaction, enough)?;
            transaction.abort().map_err(failed)?;
            free
        };
        self.shared.free.store(free, Ordering::Release);
        Ok(())
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        // redb would write when it is dropped; the journal makes that unnecessary.
        self.shared.area.close();
    }
}

/// An immediate transaction that saves the allocator state, so that opening never walks the B-tree.
pub(crate) fn begin(database: &Database) -> Result<WriteTransaction, CatalogError> {
    let mut transaction = database.begin_write().map_err(failed)?;
    transaction.set_durability(Durability::Immediate).map_err(failed)?;
    transaction.set_quick_repair(true);
    Ok(transaction)
}

pub(crate) fn put(
    records: &mut Table<'_, &'static [u8], &'static [u8]>,
    at: &Place,
    change: &Change,
) -> Result<(), CatalogError> {
    let key = place(at.0, &at.1);
    match change {
        Some(value) => drop(records.insert(&key[..], &value[..]).map_err(failed)?),
        None => drop(records.remove(&key[..]).map_err(failed)?),
    }
    Ok(())
}

pub(crate) fn failed(error: impl std::fmt::Display) -> CatalogError {
    CatalogError::Stopped(format!("the B-tree could not be written: {error}"))
}
