//! The paged table: everything the pool knows that does not fit in labels.
//!
//! A page is 16 KiB, named by table and index; a page never written reads as zeros. Pages lie in
//! rows of their own, as mirrors on up to m + 2 drives, copy on write. A digest one level up
//! verifies each (page <- directory chunk <- directory index <- anchor). The directory is held in
//! memory, 16 bytes a page; page contents are cached up to a limit.
//!
//! How the engine calls it:
//! - find: `cached(id)` or `page(id).await`; keep the [`PageRef`] over the synchronous step that
//!   reads or changes it.
//! - change: in one synchronous step append the record and `change` (or `patch`) every page it
//!   touches; never await between.
//! - checkpoint: `begin_checkpoint(&log, oldest, root, ..)` is synchronous and is the cut: it
//!   catches every change so far and appends `Record::Checkpoint`. `oldest` is the LSN of the
//!   oldest record still needed besides (the oldest write not destaged), `root` up to 64 KiB of the
//!   engine's own. Then `Checkpoint::write().await` does the rest while changes go on: dirty pages,
//!   touched directory, flush, log durable up to the cut, anchor on all drives, flush, trim. One
//!   checkpoint at a time. What the reservation holds beyond the record's cost pays for pages that
//!   are not stored: see `late`.
//! - replay: pages hold exactly the changes of records below the cut, those left out once the cut's
//!   patches are applied. A record below the cut must not be applied to pages (or layout) again;
//!   only host writes below it matter, which are not on their strips yet.
//! - `wants_checkpoint` is true when the dirty pages fill half of the cache, or a row of the table
//!   has moved.
//! - table numbers from `u32::MAX - 1` on are the directory's own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use stele_ground::Bytes;
use stele_media::{Buffer, Shared};

use crate::drives::label::Labels;
use crate::durable::anchor::Anchor;
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::{PageId, StripCell};
use crate::runtime::io::Io;
use crate::runtime::sync::{Mutex, Notify};
use crate::space::layout::SharedLayout;

pub mod checkpoint;
pub mod directory;
mod late;
pub mod open;
pub mod replica;
pub mod space;
mod spread;

pub use crate::model::place::PAGE;
pub use checkpoint::{Checkpoint, checkpoint_cost};
use directory::Directory;
use late::Changes;
pub use open::Opened;
use space::{PagePlace, PageSpace};

/// Bytes the engine may keep in the anchor.
pub const ROOT_MAX: usize = 64 << 10;
/// Pages kept at least, whatever the limit.
const CACHE_MIN: usize = 64;

/// The page store of a pool. Cheap to clone.
#[derive(Clone)]
pub struct Table(Rc<Inner>);

struct Inner {
    io: Io,
    labels: Labels,
    layout: SharedLayout,
    read_only: bool,
    /// Pages kept in memory.
    limit: usize,
    cache: RefCell<Cache>,
    store: RefCell<Store>,
    /// Held while places are written, moved or given back.
    writing: Mutex,
    /// A checkpoint ended, well or not.
    settled: Notify,
    /// Held while a row moves to another drive: one moves at a time, and drives take turns.
    moving: Mutex,
    /// The cell that a row moves to, and that lacks pages as yet: none is read or stored there, and
    /// no anchor names it.
    filling: Cell<Option<StripCell>>,
    /// Repairs that wait for their turn, each with a page.
    repairs: Cell<usize>,
    counters: Cell<TableCounters>,
    /// Copies of a page at most, while drives take the places of others, and how many do.
    copies_most: Cell<(usize, u32)>,
}

#[derive(Default)]
struct Cache {
    pages: BTreeMap<PageId, Rc<Page>>,
    /// Candidates for eviction; CLOCK goes round. A dirty page is none: it is listed again when it
    /// is stored.
    ring: VecDeque<PageId>,
    dirty: BTreeSet<PageId>,
    /// One more than the highest page ever changed.
    lengths: BTreeMap<u32, u32>,
    loading: BTreeMap<PageId, Rc<Notify>>,
    /// Tables forgotten so far: what was being loaded meanwhile may be of one of them.
    forgets: u64,
}

/// What is on the drives.
#[derive(Default)]
struct Store {
    directory: Directory,
    space: PageSpace,
    /// Of the last checkpoint.
    sequence: u64,
    checkpointing: bool,
    /// Tables to drop when the checkpoint under way is done.
    forgetting: Vec<u32>,
    /// Places that the next durable anchor gives back.
    released: Vec<PagePlace>,
    /// A row has moved since the last anchor.
    moved: bool,
    /// The anchor that was opened from, which is not the newest found, until it is taken up.
    older: Option<Anchor>,
}

struct Page {
    id: PageId,
    data: RefCell<Data>,
    dirty: Cell<bool>,
    /// Since it was stored.
    changes: RefCell<Changes>,
    touched: Cell<bool>,
    /// In the ring.
    listed: Cell<bool>,
    forgotten: Cell<bool>,
}

enum Data {
    Own(Buffer),
    /// Caught by a cut: shared with the drives, to be copied before a change.
    Frozen(Shared),
}

/// A page in memory. While it is held the page stays in memory.
#[derive(Clone)]
pub struct PageRef {
    page: Rc<Page>,
    table: Table,
}

/// What is known of a page without reading.
pub enum Peek {
    Here(PageRef),
    /// On the drives.
    Elsewhere,
    /// Never written: reads as zeros.
    Never,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct TableCounters {
    pub page_reads: u64,
    /// Pages, chunks and index pages, once, however many drives they went to.
    pub page_writes: u64,
    /// Pages that checkpoints did not store, with what changed in them in the log instead.
    pub left_out: u64,
    pub hits: u64,
    pub misses: u64,
    pub checkpoints: u64,
    pub repaired: u64,
    /// Pages stored.
    pub pages: u64,
}

impl Table {
    fn assemble(io: &Io, labels: &Labels, layout: &SharedLayout, cache: Bytes, read_only: bool, store: Store) -> Table {
        Table(Rc::new(Inner {
            io: io.clone(),
            labels: labels.clone(),
            layout: layout.clone(),
            read_only,
            limit: (cache.0 as usize / PAGE).max(CACHE_MIN),
            cache: RefCell::default(),
            store: RefCell::new(store),
            writing: Mutex::default(),
            settled: Notify::default(),
            moving: Mutex::default(),
            filling: Cell::default(),
            repairs: Cell::default(),
            counters: Cell::default(),
            copies_most: Cell::new((usize::MAX, 0)),
        }))
    }

    /// An empty table of a new pool. The first checkpoint writes the first anchor.
    pub fn create(io: &Io, labels: &Labels, layout: &SharedLayout, cache: Bytes) -> Table {
        Table::assemble(io, labels, layout, cache, false, Store::default())
    }

    /// The page, if it needs no reading.
    pub fn cached(&self, id: PageId) -> Option<PageRef> {
        let mut cache = self.0.cache.borrow_mut();
        if let Some(page) = cache.pages.get(&id) {
            page.touched.set(true);
            self.count(|counters| counters.hits += 1);
            return Some(PageRef { page: Rc::clone(page), table: self.clone() });
        }
        if self.0.store.borrow().entry(id).place().is_some() || cache.loading.contains_key(&id) {
            return None;
        }
        Some(self.admit(&mut cache, id, Data::Own(Buffer::zeroed(PAGE))))
    }

    /// The page if it is in memory, without asking for it; and whether it was ever written.
    pub fn peek(&self, id: PageId) -> Peek {
        let cache = self.0.cache.borrow();
        if let Some(page) = cache.pages.get(&id) {
            page.touched.set(true);
            return Peek::Here(PageRef { page: Rc::clone(page), table: self.clone() });
        }
        match self.0.store.borrow().entry(id).place() {
            None if !cache.loading.contains_key(&id) => Peek::Never,
            _ => Peek::Elsewhere,
        }
    }

    /// The page; read from any replica that verifies, the others repaired. `Damaged` when none
    /// does.
    pub async fn page(&self, id: PageId) -> Result<PageRef, ArrayError> {
        loop {
            if let Some(page) = self.cached(id) {
                return Ok(page);
            }
            let other = self.0.cache.borrow().loading.get(&id).map(Rc::clone);
            if let Some(other) = other {
                other.changed().await;
                continue;
            }
            self.count(|counters| counters.misses += 1);
            let forgets = {
                let mut cache = self.0.cache.borrow_mut();
                cache.loading.insert(id, Rc::default());
                cache.forgets
            };
            let mut loading = Loading { table: self, id };
            let entry = self.0.store.borrow().entry(id);
            let bytes = self.read_verified(id, entry).await;
            loading.finish();
            let mut cache = self.0.cache.borrow_mut();
            if cache.forgets == forgets {
                return Ok(self.admit(&mut cache, id, Data::Own(bytes?)));
            }
        }
    }

    fn admit(&self, cache: &mut Cache, id: PageId, data: Data) -> PageRef {
        let page = Rc::new(Page {
            id,
            data: RefCell::new(data),
            dirty: Cell::new(false),
            changes: RefCell::new(Changes::NONE),
            touched: Cell::new(true),
            listed: Cell::new(false),
            forgotten: Cell::new(false),
        });
        cache.pages.insert(id, Rc::clone(&page));
        cache.list(&page);
        cache.shrink(self.0.limit);
        PageRef { page, table: self.clone() }
    }

    /// One more than the highest page index that was ever changed in the table (and not forgotten).
    pub fn pages(&self, table: u32) -> u32 {
        let changed = self.0.cache.borrow().lengths.get(&table).copied().unwrap_or(0);
        changed.max(self.0.store.borrow().pages(table))
    }

    /// Drops all pages of a table; its space is free after the next checkpoint. A caller that uses
    /// the number again finds an empty table at once.
    pub fn forget(&self, table: u32) {
        let mut cache = self.0.cache.borrow_mut();
        cache.forgets += 1;
        let all = PageId { table, index: 0 }..=PageId { table, index: u32::MAX };
        let ids: Vec<PageId> = cache.pages.range(all).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(page) = cache.pages.remove(&id) {
                page.forgotten.set(true);
            }
            cache.dirty.remove(&id);
        }
        cache.lengths.remove(&table);
        let mut store = self.0.store.borrow_mut();
        store.forgetting.push(table);
        if !store.checkpointing {
            store.drop_forgotten();
        }
    }

    /// Dirty pages.
    pub fn dirty(&self) -> usize {
        self.0.cache.borrow().dirty.len()
    }

    /// Pages in memory.
    pub fn in_memory(&self) -> usize {
        self.0.cache.borrow().pages.len()
    }

    pub fn wants_checkpoint(&self) -> bool {
        self.dirty() > self.0.limit / 2 || self.0.store.borrow().moved
    }

    /// True while a checkpoint is between cut and anchor.
    pub fn checkpointing(&self) -> bool {
        self.0.store.borrow().checkpointing
    }

    /// True while the last checkpoint may name pages that memory no longer does: of tables
    /// forgotten since. No scrub reads those, but an opening from that checkpoint would.
    pub fn has_given_up(&self) -> bool {
        let store = self.0.store.borrow();
        store.checkpointing || !store.released.is_empty()
    }

    /// Sequence of the last checkpoint.
    pub fn sequence(&self) -> u64 {
        self.0.store.borrow().sequence
    }

    pub fn counters(&self) -> TableCounters {
        TableCounters { pages: self.0.store.borrow().directory.count(), ..self.0.counters.get() }
    }

    fn count(&self, add: impl FnOnce(&mut TableCounters)) {
        let mut counters = self.0.counters.get();
        add(&mut counters);
        self.0.counters.set(counters);
    }
}

/// A page being read; other tasks that want it wait.
struct Loading<'a> {
    table: &'a Table,
    id: PageId,
}

impl Loading<'_> {
    fn finish(&mut self) {
        let waiting = self.table.0.cache.borrow_mut().loading.remove(&self.id);
        if let Some(waiting) = waiting {
            waiting.wake_all();
        }
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Cache {
    /// Makes a page a candidate for eviction.
    fn list(&mut self, page: &Page) {
        if !page.listed.replace(true) {
            self.ring.push_back(page.id);
        }
    }

    /// Lets go of clean pages that no task holds, until the limit is kept or none is left.
    fn shrink(&mut self, limit: usize) {
        let mut looks = self.ring.len() * 2;
        while self.pages.len() > limit && looks > 0 {
            looks -= 1;
            let Some(id) = self.ring.pop_front() else { return };
            let Some(page) = self.pages.get(&id) else { continue };
            // A checkpoint lists it again once it has stored it. Looking at thousands of dirty
            // pages for each page that comes would cost more than all else.
            if page.dirty.get() {
                page.listed.set(false);
                continue;
            }
            // Held by the engine, or by a checkpoint that has not stored it yet.
            if Rc::strong_count(page) > 1 || page.touched.replace(false) {
                self.ring.push_back(id);
            } else {
                self.pages.remove(&id);
            }
        }
    }
}

impl Store {
    /// Where a page is stored, for those who read it. A checkpoint under way may still hold what
    /// was forgotten.
    fn entry(&self, id: PageId) -> directory::Entry {
        if self.forgetting.contains(&id.table) { directory::Entry::default() } else { self.directory.entry(id) }
    }

    fn pages(&self, table: u32) -> u32 {
        if self.forgetting.contains(&table) { 0 } else { self.directory.pages(table) }
    }

    fn drop_forgotten(&mut self) {
        for table in std::mem::take(&mut self.forgetting) {
            let places = self.directory.forget(table);
            self.released.extend(places);
        }
    }
}

impl PageRef {
    pub fn id(&self) -> PageId {
        self.page.id
    }

    /// Its table was forgotten since: what it says is history.
    pub fn is_forgotten(&self) -> bool {
        self.page.forgotten.get()
    }

    pub fn read<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        self.page.read(with)
    }

    /// Marks the page dirty. A page caught by a checkpoint under way is copied first. In a table
    /// opened for reading replay changes pages in memory, and nothing is ever written.
    pub fn change<R>(&self, with: impl FnOnce(&mut [u8]) -> R) -> R {
        self.touch(|bytes, changes| {
            *changes = Changes::Whole;
            with(bytes)
        })
    }

    fn touch<R>(&self, with: impl FnOnce(&mut [u8], &mut Changes) -> R) -> R {
        let id = self.page.id;
        if !self.page.dirty.get() && !self.page.forgotten.get() {
            self.page.dirty.set(true);
            let mut cache = self.table.0.cache.borrow_mut();
            cache.dirty.insert(id);
            let length = cache.lengths.entry(id.table).or_default();
            *length = (*length).max(id.index + 1);
        }
        let mut data = self.page.data.borrow_mut();
        if let Data::Frozen(bytes) = &*data {
            let copy = Buffer::copy_of(bytes);
            *data = Data::Own(copy);
        }
        match &mut *data {
            Data::Own(buffer) => with(buffer, &mut self.page.changes.borrow_mut()),
            Data::Frozen(_) => unreachable!("it was copied above"),
        }
    }
}

impl Page {
    fn read<R>(&self, with: impl FnOnce(&[u8]) -> R) -> R {
        match &*self.data.borrow() {
            Data::Own(buffer) => with(buffer),
            Data::Frozen(bytes) => with(bytes),
        }
    }

    /// The content, unchangeable from here on.
    fn freeze(&self) -> Shared {
        let mut data = self.data.borrow_mut();
        let bytes = match std::mem::replace(&mut *data, Data::Frozen(Shared::new())) {
            Data::Own(buffer) => buffer.freeze(),
            Data::Frozen(bytes) => bytes,
        };
        *data = Data::Frozen(bytes.clone());
        bytes
    }

    /// What a checkpoint stores for it: the content at the cut, unless a test took that protection
    /// away.
    fn at_cut(&self, io: &Io, cut: &Shared) -> Shared {
        if io.is_disabled(Mutation::CutCopy) { self.freeze() } else { cut.clone() }
    }
}

#[cfg(test)]
mod tests;
