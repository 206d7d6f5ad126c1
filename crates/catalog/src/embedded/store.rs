//! The store behind both embedded catalogs: what readers share, and the one writer that changes it.
//!
//! [`Writer`] turns transactions into a batch, forces it into the journal, and shows it to readers. It knows nothing of
//! threads: whoever owns it says, through [`Checkpoints`], how a checkpoint runs beside it or in line.
//!
//! Space. What the B-tree surely has free is known as of the last checkpoint; what waits in the overlays
//! is counted at its worst. An ordinary transaction is taken while both and the reserve fit; one that may
//! use half of the reserve or all of it, while the rest of it and a last margin is left, which the checkpoint itself needs. Before anybody is told that the
//! catalog is full, a checkpoint finds out how much really is free.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use redb::Database;
use stele_ground::{Bytes, MIB};
use stele_media::Handle;

use super::area::Area;
use super::base::{Base, Checkpoint, guarded};
use super::batch::Batch;
use super::checkpoint::Checkpointer;
use super::journal::{self, Journal};
use super::layout::{BLOCK, Layout};
use super::memtable::{Changes, Memtable};
use super::view::View;
use crate::{CatalogError, Mutation, Receipt, Reserve, Transaction};

/// How much memory the catalog may use.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Cached pages of the B-tree, in bytes.
    pub cache: Bytes,
    /// An overlay is frozen at this size; while it is written a second one grows, so twice this is used at most,
    /// and one batch.
    pub overlay: Bytes,
}

impl Default for Options {
    fn default() -> Options {
        Options { cache: Bytes(128 * MIB), overlay: Bytes(32 * MIB) }
    }
}

/// What the catalog says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Transactions so far.
    pub commits: u64,
    /// Batches forced into the journal since it was opened.
    pub batches: u64,
    /// Checkpoints completed since it was opened.
    pub checkpoints: u64,
    pub journal_used: Bytes,
    pub journal: Bytes,
    /// Changes in memory only covered by the journal.
    pub overlay: Bytes,
    /// Space of the B-tree that redb has laid out, of which a part is free.
    pub laid_out: Bytes,
    pub area: Bytes,
    /// Space that is surely free, as of the last checkpoint; there may be more.
    pub free: Bytes,
    /// What ordinary transactions leave alone.
    pub reserve: Bytes,
    /// Ordinary transactions are being refused.
    pub full: bool,
    pub stopped: bool,
}

/// What readers, the writer and the checkpointer share.
pub(crate) struct Shared {
    view: RwLock<View>,
    pub area: Arc<Area>,
    /// Where the journal's used part starts, counted as [`Journal::written`] is.
    pub tail: AtomicU64,
    /// Pages that the B-tree has free at least, as of the last checkpoint.
    pub free: AtomicU64,
    pub written: AtomicU64,
    pub batches: AtomicU64,
    pub checkpoints: AtomicU64,
    pub full: AtomicU64,
    journal: u64,
    stopped: OnceLock<String>,
    bases: Mutex<Bases>,
}

/// The states of the B-tree that were given to readers, oldest first. redb keeps whatever was replaced since the oldest
/// that is still read.
#[derive(Default)]
struct Bases {
    given: VecDeque<Weak<Base>>,
    let_go: u64,
}

impl Shared {
    /// Readers may see this state from now on.
    pub fn given(&self, base: &Arc<Base>) {
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        bases.given.push_back(Arc::downgrade(base));
    }

    /// How many of the oldest states nobody reads any more; rises.
    pub fn let_go(&self) -> u64 {
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        while bases.given.front().is_some_and(|base| base.strong_count() == 0) {
            bases.given.pop_front();
            bases.let_go += 1;
        }
        bases.let_go
    }

    /// What is committed now.
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

    /// Pages kept from ordinary transactions.
    pub fn reserve(&self) -> u64 {
        (self.area.capacity() / BLOCK / 8).min(2048)
    }

    /// Pages kept from everybody.
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

/// An overlay that goes into the B-tree.
#[derive(Clone)]
pub(crate) struct Frozen {
    pub overlay: Arc<Memtable>,
    /// Where the B-tree will be when all of it is in.
    pub checkpoint: Checkpoint,
    /// [`Journal::written`] at that point.
    pub written: u64,
}

/// How checkpoints run.
pub(crate) trait Checkpoints {
    /// Starts one; none is running. It may be done when this returns.
    fn start(&mut self, frozen: Frozen);
    /// Waits until none is running.
    fn wait(&mut self);
}

pub(crate) struct Writer {
    pub shared: Arc<Shared>,
    journal: Journal,
    options: Options,
    id: [u8; 16],
    /// The last one handed over; done once the view has no frozen overlay any more.
    frozen: Option<Frozen>,
    /// Batches with something refused for space, since the last one without.
    refused: u64,
    /// [`Shared::let_go`] as it was when space was last looked for.
    looked: u64,
}

/// A batch that is not in the journal yet.
struct Prepared {
    answers: Vec<Result<Receipt, CatalogError>>,
    changes: Changes,
    commit: u64,
    bytes: Vec<u8>,
    digest: [u8; 32],
    full: bool,
}

/// Opens what is on the volume: the B-tree as of its last checkpoint, and the journal from there on.
pub(crate) fn open(handle: &Handle, options: Options) -> Result<(Writer, Checkpointer), CatalogError> {
    let layout = Layout::read(handle)?;
    let (area, database) = guarded(|| Area::open(handle, &layout, options.cache.0 as usize))?;
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
    let base = Base::latest(&database)?;
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
    // What was replayed may have come from a cache that the crash spared; nobody shall read what a power cut can
    // still take back.
    handle.flush_blocking().map_err(|error| {
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
    let writer = Writer { shared, journal, options, id: layout.id, frozen: None, refused: 0, looked: 0 };
    Ok((writer, checkpointer))
}

impl Writer {
    /// Makes the transactions durable together; one answer for each, in order.
    pub fn commit(
        &mut self,
        transactions: &[Transaction],
        checkpoints: &mut dyn Checkpoints,
    ) -> Vec<Result<Receipt, CatalogError>> {
        if let Some(stopped) = self.shared.stopped() {
            return transactions.iter().map(|_| Err(stopped.clone())).collect();
        }
        let mut prepared = self.prepare(transactions);
        self.refused = if prepared.full { self.refused + 1 } else { 0 };
        if !self.fits(&prepared) || (prepared.full && self.may_have_room()) {
            self.checkpoint(checkpoints);
            prepared = self.prepare(transactions);
        }
        self.shared.full.store(u64::from(prepared.full), Ordering::Relaxed);
        if prepared.changes.is_empty() {
            return prepared.answers;
        }
        if let Some(stopped) = self.shared.stopped() {
            return transactions.iter().map(|_| Err(stopped.clone())).collect();
        }
        if !self.fits(&prepared) {
            let full = CatalogError::Full("the journal cannot be emptied, since the B-tree has no room left".into());
            return prepared.answers.into_iter().map(|answer| answer.and(Err(full.clone()))).collect();
        }
        // The forced write inside is what every `Ok` below rests on.
        if let Err(error) = self.journal.append(prepared.bytes, prepared.digest) {
            self.shared.stop(&error);
            return prepared.answers.into_iter().map(|answer| answer.and(Err(error.clone()))).collect();
        }
        self.shared.written.store(self.journal.written, Ordering::Release);
        self.shared.batches.fetch_add(1, Ordering::Relaxed);
        self.shared.change(|view| {
            view.active.add(prepared.changes, prepared.commit);
            view.commit = prepared.commit;
        });
        prepared.answers
    }

    /// To be called after the answers to a commit have been given: starts a checkpoint where one is due.
    pub fn tend(&mut self, checkpoints: &mut dyn Checkpoints) {
        if self.shared.stopped().is_some() || !self.is_ripe() {
            return;
        }
        if self.shared.view().frozen.is_some() {
            // Commits come faster than they can be written: they wait here rather than in memory.
            checkpoints.wait();
        }
        if self.shared.view().frozen.is_none() {
            self.freeze(checkpoints);
        }
    }

    /// Brings everything committed so far into the B-tree, as far as there is room, and waits for it.
    pub fn checkpoint(&mut self, checkpoints: &mut dyn Checkpoints) {
        checkpoints.wait();
        if self.shared.view().frozen.is_some()
            && let Some(stuck) = self.frozen.clone()
        {
            checkpoints.start(stuck);
            checkpoints.wait();
        }
        let view = self.shared.view();
        // One of nothing still finds out whether space has become free, as when an old snapshot was dropped.
        let worthwhile = view.active.size().bytes > 0 || self.refused > 0;
        self.looked = self.shared.let_go();
        if view.frozen.is_none() && worthwhile && self.shared.stopped().is_none() {
            self.freeze(checkpoints);
            checkpoints.wait();
        }
    }

    /// Grows the volume, by `grow`, and uses all that it has then. Nothing writes to the volume meanwhile, so that a power cut
    /// finds the superblock as it was or as it is.
    pub fn grow(
        &mut self,
        checkpoints: &mut dyn Checkpoints,
        grow: impl FnOnce() -> Result<(), CatalogError>,
    ) -> Result<(), CatalogError> {
        checkpoints.wait();
        if let Some(stopped) = self.shared.stopped() {
            return Err(stopped);
        }
        self.shared.area.prepare_to_grow()?;
        grow()?;
        self.shared.area.take_up_volume()?;
        // What redb has not laid out yet is free.
        self.shared.free.fetch_max(self.shared.area.room() / BLOCK, Ordering::AcqRel);
        Ok(())
    }

    /// Whether looking for space may find more than the last time. It costs as much as a checkpoint, so a client
    /// that is refused and asks again at once is not looked after every time.
    fn may_have_room(&self) -> bool {
        let seldom = self.refused.is_power_of_two() || self.refused.is_multiple_of(64);
        self.shared.let_go() != self.looked || (seldom && self.shared.view().active.size().bytes > 0)
    }

    fn prepare(&self, transactions: &[Transaction]) -> Prepared {
        let view = self.shared.view();
        let mut waiting = view.active.size().pages + view.frozen.as_ref().map_or(0, |frozen| frozen.size().pages);
        let free = self.shared.free.load(Ordering::Acquire);
        let mut full = false;
        let mut batch = Batch::new(&view);
        let answers = transactions.iter().map(|transaction| {
            let pages = cost(transaction);
            let reserved = match transaction.reserve {
                Reserve::None => self.shared.reserve(),
                Reserve::Half => self.shared.reserve() / 2,
                Reserve::All => 0,
            };
            let kept = self.shared.margin() + reserved;
            if grows(transaction) && waiting + pages + kept > free {
                full = true;
                return Err(CatalogError::Full(format!(
                    "{} of {} are in use; delete what is past its date, or add drives, with which the catalog grows",
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

    /// Whether the overlay has grown enough to be written.
    fn is_ripe(&self) -> bool {
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
        checkpoints.start(frozen);
    }
}

/// Pages of the B-tree that a transaction may take, at the worst.
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

/// Deleting is always allowed: in the end it gives space back.
fn grows(transaction: &Transaction) -> bool {
    transaction.mutations.iter().any(|mutation| !matches!(mutation, Mutation::Delete { .. }))
}
