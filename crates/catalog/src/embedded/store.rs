//! The store behind both embedded catalogs: the state shared by readers, and the single writer that
//! changes it.
//!
//! [`Writer`] turns transactions into a batch, forces it into the journal, and shows it to readers.
//! It knows nothing of threads: through [`Checkpoints`], its owner decides whether a checkpoint
//! runs in parallel or inline.
//!
//! Space: a lower bound of the B-tree's free space is known from the last checkpoint, and the
//! overlays count at their worst case. An ordinary transaction is accepted while the overlays and
//! the reserve fit. A transaction with `Reserve::Half` or `Reserve::All` may use half of the
//! reserve or all of it. The rest of the reserve must remain free, and a last margin that the
//! checkpoint itself needs. Before the catalog reports that it is full, a checkpoint measures the
//! real free space.

use std::collections::VecDeque;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use redb::Database;
use stele_ground::{Bytes, MIB};
use stele_media::{Handle, MediaError, Op};

use super::area::{Area, retried};
use super::base::{Base, Checkpoint, guarded};
use super::batch::Batch;
use super::checkpoint::Checkpointer;
use super::journal::{self, Journal};
use super::layout::{BLOCK, Layout};
use super::memtable::{Changes, Memtable};
use super::view::View;
use super::waiting::Wait;
use crate::transaction::JOURNALED_MAX;
use crate::{CatalogError, Mutation, Receipt, Reserve, Transaction};

/// Limits on the catalog's memory, and how it waits.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Cached pages of the B-tree, in bytes.
    pub cache: Bytes,
    /// An overlay is frozen at this size. While it is written a second one grows, so memory use is
    /// at most twice this, plus one batch. If the frozen one finds no room in the B-tree, the
    /// second one grows to [`CROWDED`] times this.
    pub overlay: Bytes,
    /// Runs each read of the volume.
    pub wait: Wait,
}

/// The size of an overlay, in units of [`Options::overlay`], beyond which commits are refused. Only
/// an overlay above one that finds no room reaches it.
const CROWDED: u64 = 4;
/// The least such size in bytes: more than a batch.
const CROWDED_MIN: u64 = 8 * MIB;

/// Bytes of the journal for transactions that share a batch. The first of them may be larger alone.
pub(crate) const BATCH_BYTES_MAX: usize = 4 * MIB as usize;

// A batch that the journal's reader takes for garbage would be lost at the next start.
const _: () = assert!(BATCH_BYTES_MAX <= journal::BATCH_MAX && JOURNALED_MAX <= journal::BATCH_MAX);

impl Default for Options {
    fn default() -> Options {
        Options { cache: Bytes(128 * MIB), overlay: Bytes(32 * MIB), wait: |work| work() }
    }
}

/// The status of the catalog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Number of transactions so far.
    pub commits: u64,
    /// Number of batches forced into the journal since the opening.
    pub batches: u64,
    /// Number of checkpoints completed since the opening.
    pub checkpoints: u64,
    pub journal_used: Bytes,
    pub journal: Bytes,
    /// Changes in memory that only the journal holds durably.
    pub overlay: Bytes,
    /// Space that redb has laid out for the B-tree; a part of it is free.
    pub laid_out: Bytes,
    pub area: Bytes,
    /// Lower bound of the free space, from the last checkpoint.
    pub free: Bytes,
    /// Space that ordinary transactions must leave free.
    pub reserve: Bytes,
    /// Whether ordinary transactions are being refused.
    pub full: bool,
    pub stopped: bool,
}

/// The state shared by readers, the writer and the checkpointer.
pub(crate) struct Shared {
    view: RwLock<View>,
    pub area: Arc<Area>,
    /// Start of the journal's used part, counted like [`Journal::written`].
    pub tail: AtomicU64,
    /// Lower bound of the B-tree's free pages, from the last checkpoint.
    pub free: AtomicU64,
    pub written: AtomicU64,
    pub batches: AtomicU64,
    pub checkpoints: AtomicU64,
    pub full: AtomicU64,
    journal: u64,
    stopped: OnceLock<String>,
    bases: Mutex<Bases>,
}

/// The states of the B-tree that readers received, oldest first. redb keeps every page that was
/// replaced since the oldest state still in use.
#[derive(Default)]
struct Bases {
    given: VecDeque<Weak<Base>>,
    let_go: u64,
}

impl Shared {
    /// Records that readers may see this state from now on.
    pub fn given(&self, base: &Arc<Base>) {
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        bases.given.push_back(Arc::downgrade(base));
    }

    /// Number of the oldest states that no reader uses any more; it only increases.
    pub fn let_go(&self) -> u64 {
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        while bases.given.front().is_some_and(|base| base.strong_count() == 0) {
            bases.given.pop_front();
            bases.let_go += 1;
        }
        bases.let_go
    }

    /// The committed state.
    pub fn view(&self) -> View {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn change(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.view.write().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn stop(&self, reason: &CatalogError) {
        let reason = match reason {
            CatalogError::Stopped(reason) | CatalogError::Damaged(reason) => reason.clone(),
            other => other.to_string(),
        };
        if self.stopped.set(reason.clone()).is_ok() {
            tracing::error!("the catalog accepts nothing more: {reason}");
        }
    }

    pub fn stopped(&self) -> Option<CatalogError> {
        self.stopped.get().map(|reason| CatalogError::Stopped(reason.clone()))
    }

    /// Pages that ordinary transactions must leave free.
    pub fn reserve(&self) -> u64 {
        (self.area.capacity() / BLOCK / 8).min(2048)
    }

    /// Pages that all transactions must leave free.
    pub fn margin(&self) -> u64 {
        (self.area.capacity() / BLOCK / 64).min(1024)
    }

    pub fn status(&self) -> Status {
        let view = self.view();
        let size = view.active.size().bytes + view.frozen.as_ref().map_or(0, |frozen| frozen.size().bytes);
        let used = self.written.load(Ordering::Acquire).saturating_sub(self.tail.load(Ordering::Acquire));
        Status {
            commits: view.commit,
            batches: self.batches.load(Ordering::Relaxed),
            checkpoints: self.checkpoints.load(Ordering::Relaxed),
            journal_used: Bytes(used),
            journal: Bytes(self.journal),
            overlay: Bytes(size as u64),
            laid_out: Bytes(self.area.length()),
            area: Bytes(self.area.capacity()),
            free: Bytes(self.free.load(Ordering::Acquire) * BLOCK),
            reserve: Bytes(self.reserve() * BLOCK),
            full: self.full.load(Ordering::Relaxed) != 0,
            stopped: self.stopped.get().is_some(),
        }
    }
}

/// An overlay on its way into the B-tree.
#[derive(Clone)]
pub(crate) struct Frozen {
    pub overlay: Arc<Memtable>,
    /// The checkpoint of the B-tree once the whole overlay is in it.
    pub checkpoint: Checkpoint,
    /// [`Journal::written`] at that point.
    pub written: u64,
}

/// The way in which checkpoints run.
pub(crate) trait Checkpoints {
    /// Starts a checkpoint while none is running. It may be complete when this returns.
    fn start(&mut self, frozen: Frozen);
    /// Waits until none is running.
    fn wait(&mut self);
}

pub(crate) struct Writer {
    pub shared: Arc<Shared>,
    journal: Journal,
    options: Options,
    id: [u8; 16],
    /// The last overlay handed over; complete once the view has no frozen overlay.
    frozen: Option<Frozen>,
    /// Number of batches with a refusal for lack of space since the last batch without one.
    refused: u64,
    /// The value of [`Shared::let_go`] at the last search for space.
    looked: u64,
    tried: Tried,
}

/// The circumstances of the last attempt to write the frozen overlay.
#[derive(Clone, Copy, Default)]
struct Tried {
    let_go: u64,
    /// Bytes of the overlay above it.
    active: usize,
}

/// A batch that is not in the journal yet.
pub(crate) struct Prepared {
    answers: Vec<Result<Receipt, CatalogError>>,
    changes: Changes,
    commit: u64,
    bytes: Vec<u8>,
    digest: [u8; 32],
    full: bool,
}

/// How far a transaction comes without waiting.
pub(crate) enum Begun {
    Answered(Result<Receipt, CatalogError>),
    /// It is committed once this write is durable: see [`Writer::end`].
    Writes(Prepared, Op),
    /// It needs a checkpoint, or room.
    Waits,
}

/// Opens the catalog on the volume: the B-tree at its last checkpoint, and the journal from there
/// on.
pub(crate) fn open(handle: &Handle, options: Options) -> Result<(Writer, Checkpointer), CatalogError> {
    let layout = Layout::read(handle)?;
    let (area, database) = guarded(|| Area::open(handle, &layout, options))?;
    let opened = guarded(|| start(handle, options, &layout, Arc::clone(&area), database));
    if opened.is_err() {
        area.close();
    }
    opened
}

fn start(
    handle: &Handle,
    options: Options,
    layout: &Layout,
    area: Arc<Area>,
    database: Database,
) -> Result<(Writer, Checkpointer), CatalogError> {
    let base = Base::latest(&database, &area)?;
    let checkpoint = base.checkpoint()?;
    let mut journal = Journal::new(handle, layout, checkpoint.journal);
    let active = Memtable::default();
    let mut commit = checkpoint.commit;
    while let Some(batch) = journal.replay()? {
        if batch.commit < commit {
            return Err(CatalogError::Damaged(format!(
                "batch {} of the journal ends at transaction {}, before {commit}",
                batch.sequence, batch.commit
            )));
        }
        commit = batch.commit;
        active.add(batch.changes, batch.commit);
    }
    journal.check_end()?;
    // Replayed batches may come from a cache that the crash spared. No reader may see data that a
    // power cut can still take back.
    retried(handle, || handle.flush_blocking()).map_err(|error| {
        CatalogError::Stopped(format!("the volume could not be flushed after the journal was replayed: {error}"))
    })?;
    let view = View { active: Arc::new(active), frozen: None, base: Arc::new(base), commit };
    let shared = Arc::new(Shared {
        view: RwLock::new(view),
        area,
        tail: AtomicU64::new(0),
        free: AtomicU64::new(0),
        written: AtomicU64::new(journal.written),
        batches: AtomicU64::new(0),
        checkpoints: AtomicU64::new(0),
        full: AtomicU64::new(0),
        journal: journal.length(),
        stopped: OnceLock::new(),
        bases: Mutex::default(),
    });
    shared.given(&shared.view().base);
    let checkpointer = Checkpointer::new(Arc::clone(&shared), database);
    checkpointer.survey()?;
    let writer = Writer {
        shared,
        journal,
        options,
        id: layout.id,
        frozen: None,
        refused: 0,
        looked: 0,
        tried: Tried::default(),
    };
    Ok((writer, checkpointer))
}

impl Writer {
    /// Makes the transactions durable together; returns one answer for each, in order.
    pub fn commit(
        &mut self,
        transactions: &[Transaction],
        checkpoints: &mut dyn Checkpoints,
    ) -> Vec<Result<Receipt, CatalogError>> {
        if let Some(stopped) = self.shared.stopped() {
            return transactions.iter().map(|_| Err(stopped.clone())).collect();
        }
        let mut prepared = self.prepare(transactions);
        if prepared.full {
            // What a checkpoint under way writes or has yet to measure counts at its worst case.
            checkpoints.wait();
            prepared = self.prepare(transactions);
        }
        self.refused = if prepared.full { self.refused + 1 } else { 0 };
        if !self.fits(&prepared) || (prepared.full && self.may_have_room()) {
            self.checkpoint(checkpoints);
            prepared = self.prepare(transactions);
        }
        self.shared.full.store(u64::from(prepared.full), Ordering::Relaxed);
        // After one failed access, whichever task made it, only an opening makes redb read again.
        if let Some(lost) = self.shared.area.lost() {
            self.shared.stop(&lost);
        }
        if let Some(stopped) = self.shared.stopped() {
            return transactions.iter().map(|_| Err(stopped.clone())).collect();
        }
        if prepared.changes.is_empty() {
            return prepared.answers;
        }
        if !self.fits(&prepared) {
            let full = CatalogError::Full("the journal cannot be emptied, since the B-tree has no room left".into());
            return withdrawn(transactions, &full);
        }
        // Every `Ok` below depends on the forced write in this call.
        if let Err(error) = self.journal.append(&prepared.bytes, prepared.digest) {
            self.shared.stop(&error);
            return withdrawn(transactions, &error);
        }
        self.show(prepared)
    }

    /// Begins the commit of one transaction. While its write is under way, the writer does nothing
    /// else.
    pub fn begin(&mut self, transaction: &Transaction) -> Begun {
        if let Some(stopped) = self.shared.stopped() {
            return Begun::Answered(Err(stopped));
        }
        let mut prepared = self.prepare(slice::from_ref(transaction));
        // After a failed access and while it is full the catalog has more to do.
        if prepared.full || self.refused > 0 || !self.fits(&prepared) || self.shared.area.lost().is_some() {
            return Begun::Waits;
        }
        if prepared.changes.is_empty() {
            return prepared.answers.pop().map_or(Begun::Waits, Begun::Answered);
        }
        let write = self.journal.forced(&prepared.bytes);
        Begun::Writes(prepared, write)
    }

    /// The write of [`Self::begin`] has ended like this.
    pub fn end(&mut self, prepared: Prepared, written: Result<(), MediaError>) -> Result<Receipt, CatalogError> {
        if let Err(error) = written {
            let error = self.journal.failed(&prepared.bytes, &error);
            self.shared.stop(&error);
            return Err(error);
        }
        self.journal.pass(&prepared.bytes, prepared.digest);
        self.show(prepared).pop().unwrap_or_else(|| unreachable!("one answer for one transaction"))
    }

    /// The volume, for the write of [`Self::begin`].
    pub fn handle(&self) -> Handle {
        self.journal.handle()
    }

    /// Shows readers a batch that is in the journal; returns its answers.
    fn show(&mut self, prepared: Prepared) -> Vec<Result<Receipt, CatalogError>> {
        self.shared.written.store(self.journal.written, Ordering::Release);
        self.shared.batches.fetch_add(1, Ordering::Relaxed);
        self.shared.change(|view| {
            view.active.add(prepared.changes, prepared.commit);
            view.commit = prepared.commit;
        });
        prepared.answers
    }

    /// Called after the answers to a commit were given: starts a checkpoint if one is due.
    pub fn tend(&mut self, checkpoints: &mut dyn Checkpoints) {
        if self.shared.stopped().is_some() || !self.is_ripe() {
            return;
        }
        if self.shared.view().frozen.is_some() {
            // Commits come faster than the checkpoint writes: they wait here instead of filling the
            // memory.
            checkpoints.wait();
        }
        let (let_go, active) = (self.shared.let_go(), self.shared.view().active.size().bytes);
        match self.frozen.clone().filter(|_| self.shared.view().frozen.is_some()) {
            None => self.freeze(checkpoints),
            // It found no room. An old view may be gone since, or deletions wait above it.
            Some(stuck) if let_go != self.tried.let_go || active >= 2 * self.tried.active => {
                self.tried = Tried { let_go, active };
                checkpoints.start(stuck);
            }
            Some(_) => {}
        }
    }

    /// Writes everything committed so far into the B-tree, as far as there is space, and waits for
    /// it.
    pub fn checkpoint(&mut self, checkpoints: &mut dyn Checkpoints) {
        checkpoints.wait();
        if self.shared.view().frozen.is_some()
            && let Some(stuck) = self.frozen.clone()
        {
            checkpoints.start(stuck);
            checkpoints.wait();
        }
        let view = self.shared.view();
        // An empty checkpoint still detects freed space, for example after an old snapshot was
        // dropped.
        let worthwhile = view.active.size().bytes > 0 || self.refused > 0;
        self.looked = self.shared.let_go();
        if view.frozen.is_none() && worthwhile && self.shared.stopped().is_none() {
            self.freeze(checkpoints);
            checkpoints.wait();
        }
    }

    /// Grows the volume with `grow`, and uses all of it. Nothing else writes to the volume
    /// meanwhile, so that a power cut finds the superblock either unchanged or complete.
    pub fn grow(
        &mut self,
        checkpoints: &mut dyn Checkpoints,
        grow: impl FnOnce() -> Result<(), CatalogError>,
    ) -> Result<(), CatalogError> {
        checkpoints.wait();
        if let Some(stopped) = self.shared.stopped() {
            return Err(stopped);
        }
        // An earlier growth may have failed before the catalog took it up.
        self.shared.area.take_up_volume()?;
        self.shared.area.prepare_to_grow()?;
        grow()?;
        self.shared.area.take_up_volume()?;
        // Space that redb has not laid out yet is free.
        self.shared.free.fetch_max(self.shared.area.room() / BLOCK, Ordering::AcqRel);
        Ok(())
    }

    /// Whether a search for space may find more than the last one. A search costs as much as a
    /// checkpoint, so a client that repeats a refused commit does not cause one every time.
    fn may_have_room(&self) -> bool {
        let seldom = self.refused.is_power_of_two() || self.refused.is_multiple_of(64);
        self.shared.let_go() != self.looked || (seldom && self.shared.view().active.size().bytes > 0)
    }

    fn prepare(&self, transactions: &[Transaction]) -> Prepared {
        let view = self.shared.view();
        let mut waiting = view.active.size().pages + view.frozen.as_ref().map_or(0, |frozen| frozen.size().pages);
        let free = self.shared.free.load(Ordering::Acquire);
        let crowded = view.frozen.is_some()
            && view.active.size().bytes as u64 > (CROWDED * self.options.overlay.0).max(CROWDED_MIN);
        let mut full = false;
        let mut batch = Batch::new(&view);
        let answers = transactions.iter().map(|transaction| {
            let pages = cost(transaction);
            let reserved = match transaction.reserve {
                Reserve::Spare => self.shared.reserve() + self.shared.area.capacity() / BLOCK / 8,
                Reserve::None => self.shared.reserve(),
                Reserve::Half => self.shared.reserve() / 2,
                Reserve::All => 0,
            };
            let kept = self.shared.margin() + reserved;
            if crowded && !transaction.mutations.is_empty() {
                // Its room is there again once a view of before is let go of. A deletion does not
                // help.
                full = true;
                return Err(CatalogError::Busy);
            }
            if grows(transaction) && waiting + pages + kept > free {
                full |= transaction.reserve != Reserve::Spare;
                return Err(CatalogError::Full(format!(
                    "{} of {} are in use; delete records past their date, or add drives, so that the catalog grows",
                    Bytes(self.shared.area.length()),
                    Bytes(self.shared.area.capacity())
                )));
            }
            let answer = batch.apply(transaction);
            if answer.is_ok() {
                waiting += pages;
            }
            answer
        });
        let answers = answers.collect();
        let (changes, commit) = (batch.changes, batch.commit);
        let (bytes, digest) = journal::encode(&self.id, &self.journal.next, commit, &changes);
        Prepared { answers, changes, commit, bytes, digest, full }
    }

    fn fits(&self, prepared: &Prepared) -> bool {
        let used = self.journal.written - self.shared.tail.load(Ordering::Acquire);
        prepared.changes.is_empty() || used + self.journal.need(&prepared.bytes) <= self.journal.length()
    }

    /// Whether the overlay is large enough to be written.
    pub fn is_ripe(&self) -> bool {
        let size = self.shared.view().active.size();
        let since = self.frozen.as_ref().map_or(0, |frozen| frozen.written);
        size.bytes as u64 >= self.options.overlay.0
            || size.pages >= self.shared.free.load(Ordering::Acquire) / 4
            || self.journal.written - since >= self.journal.length() * 3 / 8
    }

    fn freeze(&mut self, checkpoints: &mut dyn Checkpoints) {
        let view = self.shared.view();
        let checkpoint = Checkpoint { journal: self.journal.next, commit: view.commit };
        let frozen = Frozen { overlay: Arc::clone(&view.active), checkpoint, written: self.journal.written };
        self.shared.change(|view| {
            assert!(view.frozen.is_none(), "one overlay is written at a time");
            view.frozen = Some(Arc::clone(&view.active));
            view.active = Arc::default();
        });
        self.frozen = Some(frozen.clone());
        self.tried = Tried { let_go: self.shared.let_go(), active: 0 };
        checkpoints.start(frozen);
    }
}

/// The answers to a batch that did not take place. Its refusals may rest on changes of the same
/// batch, so they go too.
fn withdrawn(transactions: &[Transaction], error: &CatalogError) -> Vec<Result<Receipt, CatalogError>> {
    transactions.iter().map(|transaction| transaction.validate().and(Err(error.clone()))).collect()
}

/// Largest number of B-tree pages that a transaction may take.
fn cost(transaction: &Transaction) -> u64 {
    let large = |length: usize| 2 * (length as u64 / BLOCK);
    transaction
        .mutations
        .iter()
        .map(|mutation| match mutation {
            Mutation::Put { value, .. } => 3 + large(value.len()),
            Mutation::Delete { .. } | Mutation::Add { .. } => 3,
            Mutation::Append { value, .. } => 6 + large(value.length()),
        })
        .sum()
}

/// Deleting is always allowed, since it frees space in the end.
fn grows(transaction: &Transaction) -> bool {
    transaction.mutations.iter().any(|mutation| !matches!(mutation, Mutation::Delete { .. }))
}
