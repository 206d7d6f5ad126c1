//! Checkpoints: a consistent cut, stored while changes go on.
//!
//! Order, and why:
//!
//! 1. Places are taken and rows made at the cut. A cell freed after the cut must not carry pages,
//!    since after a crash its former owner has it back.
//! 2. Pages, then chunks, then index pages are written where nothing is that any anchor refers to.
//! 3. A flush, and the log is durable up to the cut.
//! 4. The anchor goes to all drives, and a flush.
//! 5. Only then the former places are free and the log is trimmed.
//!
//! A crash before the anchor is durable somewhere opens from the former checkpoint, which is
//! untouched. A crash afterwards opens from this one. Both have a log that reaches back far enough.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use stele_codes::Code;
use stele_ground::{Bytes, Duration};
use stele_media::Shared;

use super::directory::{CHUNK, CHUNK_TABLE, Entry, INDEX, INDEX_TABLE, digest_of};
use super::late::Changes;
use super::space::PagePlace;
use super::{Inner, PAGE, Page, ROOT_MAX, Table};
use crate::durable::anchor::Anchor;
use crate::durable::log::{Log, Reservation};
use crate::durable::records::Record;
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, Lsn, PageId, RowId};
use crate::runtime::sync::{Semaphore, join_all};
use crate::space::layout::{RowClass, RowKind};

/// Pages written to a drive in one go.
const RUN: usize = 32;
/// Free units of each drive above which rows are made for the sake of long runs.
const PLENTY: u32 = 256;
/// Runs on their way at once.
const RUNS: u64 = 16;
/// Pages prepared between two turns of the driver, which serves hosts: a tenth of a millisecond,
/// about.
const WITHOUT_PAUSE: usize = 32;
/// Any wait at all gives the driver its turn.
const TURN: Duration = Duration(1);
/// Copies of a page at most: the widest mirror there is. In a pool that survives four losses these
/// are m + 1.
const COPIES_MAX: usize = 5;

/// A checkpoint between cut and durable anchor. Dropped unfinished, it changes nothing: its pages
/// are dirty again.
pub struct Checkpoint {
    table: Table,
    log: Log,
    sequence: u64,
    cut: Lsn,
    /// The newest record at the cut: its own, where it has one, and the patches behind it.
    last: Lsn,
    oldest: Lsn,
    root: Vec<u8>,
    pages: Vec<(Rc<Page>, Shared)>,
    chunks: BTreeSet<(u32, u32)>,
    index: BTreeSet<u32>,
    /// Taken at the cut, in order: pages, chunks, index pages.
    places: Vec<PagePlace>,
    /// Why there was no room.
    refused: Option<ArrayError>,
    /// Places given back once the anchor is durable.
    released: Vec<PagePlace>,
    /// The anchor may be on some drive: places must not be used again before the next one.
    anchoring: bool,
    done: bool,
}

/// Log bytes a checkpoint may need.
pub fn checkpoint_cost(log: &Log) -> u64 {
    log.cost(&Record::Checkpoint { sequence: 0 })
}

impl Table {
    /// The cut. Pays its record from `paid_from` (`checkpoint_cost` bytes of
    /// `Purpose::Checkpoint`); without it the cut is the next record, whatever that is. Panics
    /// while another checkpoint is under way.
    pub fn begin_checkpoint(
        &self,
        log: &Log,
        oldest: Lsn,
        root: Vec<u8>,
        paid_from: Option<&mut Reservation>,
    ) -> Checkpoint {
        assert!(root.len() <= ROOT_MAX, "{} bytes do not fit the anchor", root.len());
        let inner = &self.0;
        let mut store = inner.store.borrow_mut();
        assert!(!store.checkpointing, "one checkpoint at a time");
        store.checkpointing = true;
        let sequence = store.sequence + 1;
        let mut cache = inner.cache.borrow_mut();
        let (cut, last, left_out) = match paid_from {
            Some(reservation) => {
                let cut = log.append(&Record::Checkpoint { sequence }, reservation);
                let (left_out, last) = self.leave_out(&cache, log, reservation);
                (cut, last.unwrap_or(cut), left_out)
            }
            None => (log.next_lsn(), Lsn(log.next_lsn().0 - 1), BTreeSet::new()),
        };
        let mut dirty = std::mem::take(&mut cache.dirty);
        dirty.retain(|id| !left_out.contains(id));
        cache.dirty = left_out;
        let pages: Vec<(Rc<Page>, Shared)> = dirty
            .iter()
            .filter_map(|id| cache.pages.get(id))
            .map(|page| {
                page.dirty.set(false);
                page.changes.replace(Changes::NONE);
                (Rc::clone(page), page.freeze())
            })
            .collect();
        drop(cache);
        let chunks: BTreeSet<(u32, u32)> =
            pages.iter().map(|(page, _)| (page.id.table, page.id.index / CHUNK as u32)).collect();
        let mut index = std::mem::take(&mut store.directory.dirty_index);
        for key in &chunks {
            index.insert(store.directory.ensure(*key) / INDEX as u32);
        }
        store.moved = false;
        if inner.io.is_disabled(Mutation::PageReuse) {
            for (page, _) in &pages {
                if let Some(place) = store.directory.set(page.id, Entry::default()).place() {
                    store.space.release(place);
                }
            }
        }
        let released = std::mem::take(&mut store.released);
        drop(store);
        let mut checkpoint = Checkpoint {
            table: self.clone(),
            log: log.clone(),
            sequence,
            cut,
            last,
            oldest: oldest.min(last),
            root,
            pages,
            chunks,
            index,
            places: Vec::new(),
            refused: None,
            released,
            anchoring: false,
            done: false,
        };
        let wanted = checkpoint.pages.len() + checkpoint.chunks.len() + checkpoint.index.len();
        match self.take_places(wanted) {
            Ok(places) => checkpoint.places = places,
            Err(error) => checkpoint.refused = Some(error),
        }
        checkpoint
    }

    /// Places for so many pages, in rows whose drives are all here; makes rows as needed.
    fn take_places(&self, wanted: usize) -> Result<Vec<PagePlace>, ArrayError> {
        let inner = &self.0;
        let mut store = inner.store.borrow_mut();
        let whole = |row: RowId| {
            let layout = inner.layout.read();
            layout.row(row).is_some_and(|row| self.cells_of(row).iter().all(|cell| inner.labels.is_usable(cell.drive)))
        };
        let width = |row: RowId| inner.layout.read().row(row).map_or(0, |row| row.members.len());
        // As many copies as the pool's codes ask for; fewer only where drives or room are missing.
        let least = self.copies_least();
        let mut copies = self.copies().max(least);
        let mut rows: BTreeSet<RowId> = BTreeSet::new();
        loop {
            rows.extend(store.space.rows().filter(|row| whole(*row) && width(*row) >= copies));
            let free = store.space.free(&|row| rows.contains(&row));
            let enough = free >= wanted as u64;
            // Twice as many where there is plenty: free places then lie together.
            if enough && (free >= 2 * wanted as u64 || !self.has_plenty()) {
                break;
            }
            if let Some((row, places)) = self.make_row(copies)? {
                store.space.add_row(row, places);
            } else if enough {
                break;
            } else if copies > least {
                copies -= 1;
            } else {
                return Err(ArrayError::Full(format!(
                    "the pool's own tables find no {least} drives with room; return missing drives, add some, or delete a \
                     volume"
                )));
            }
        }
        match store.space.take(wanted, &|row| rows.contains(&row)) {
            Some(taken) => Ok(taken),
            None => unreachable!("free places were counted"),
        }
    }

    /// Every drive that answers has so many units free that a few for the tables' convenience are
    /// not missed.
    fn has_plenty(&self) -> bool {
        let layout = self.0.layout.read();
        self.0.labels.usable().into_iter().all(|drive| {
            let units = layout.units(drive);
            units.total.saturating_sub(units.used + units.reserved) >= PLENTY
        })
    }

    /// A new row of so many copies, and its places; none where too few drives have room for it.
    fn make_row(&self, copies: usize) -> Result<Option<(RowId, u32)>, ArrayError> {
        let inner = &self.0;
        let mut layout = inner.layout.write();
        let usable = inner.labels.usable();
        let class = row_class(copies)?;
        let Some(row) = layout.choose_row(class, &|drive| usable.contains(&drive)) else { return Ok(None) };
        let id = row.id;
        layout.insert_row(row);
        Ok(Some((id, layout.slots_per_row(class))))
    }

    /// Copies of a page where the drives suffice.
    fn copies_wanted(&self) -> usize {
        self.0.labels.configuration().replicas().min(COPIES_MAX)
    }

    /// Copies a page can have on the drives that are here.
    fn copies(&self) -> usize {
        self.copies_wanted().min(self.0.labels.usable().len()).min(self.0.copies_most.get().0)
    }

    /// While what this answers lives, pages get no more copies than now. A drive that joins is to
    /// take the place of another, and rows as wide as both together would find no room without
    /// either.
    pub fn keep_width(&self) -> impl Drop + use<> {
        struct Kept(Rc<Inner>);
        impl Drop for Kept {
            fn drop(&mut self) {
                let (most, others) = self.0.copies_most.get();
                self.0.copies_most.set(if others == 1 { (usize::MAX, 0) } else { (most, others - 1) });
            }
        }
        self.0.copies_most.set((self.copies(), self.0.copies_most.get().1 + 1));
        Kept(Rc::clone(&self.0))
    }

    /// Copies without which no checkpoint is written, unless an operator accepts less.
    fn copies_least(&self) -> usize {
        if self.0.labels.overridden() { 2 } else { self.0.labels.holders().min(COPIES_MAX) }
    }

    /// Copies that some page has, and those it should have on as many drives as the pool has, where
    /// that is more.
    pub fn lacks_copies(&self) -> Option<(usize, usize)> {
        let voters = self.0.labels.configuration().drives.iter().filter(|entry| entry.state.votes()).count();
        let wanted = self.copies_wanted().min(voters);
        let (store, layout) = (self.0.store.borrow(), self.0.layout.read());
        let rows = store.space.rows().filter(|row| store.space.is_used(*row));
        let least = rows.filter_map(|row| Some(layout.row(row)?.members.len())).min()?;
        (least < wanted).then_some((least, wanted))
    }

    /// Calls pages that lie on fewer drives than they could changed, so that the next checkpoint
    /// puts them on more; as many as may be dirty at once. Answers how many pages there are of that
    /// kind.
    pub async fn touch_narrow(&self) -> Result<usize, ArrayError> {
        let copies = self.copies();
        let (mut all, mut pages) = (0, BTreeSet::new());
        {
            let mut store = self.0.store.borrow_mut();
            let layout = self.0.layout.read();
            let width = |entry: &Entry| entry.place().and_then(|place| Some(layout.row(place.row)?.members.len()));
            let narrow = |entry: &Entry| width(entry).is_some_and(|width| width < copies);
            let mut key = store.directory.chunk_after(None);
            while let Some(chunk) = key {
                let mut first = None;
                for (id, entry) in store.directory.family(chunk) {
                    let page = id.table != CHUNK_TABLE;
                    first = first.or(page.then_some(id));
                    if narrow(&entry) {
                        all += 1;
                        // A chunk is stored with any of its pages.
                        pages.extend(if page { Some(id) } else { None });
                    }
                }
                let own = store.directory.chunk(chunk).is_some_and(|chunk| narrow(&chunk.stored));
                pages.extend(first.filter(|_| own));
                key = store.directory.chunk_after(Some(chunk));
            }
            let index: Vec<u32> =
                store.directory.index_pages().filter(|(_, entry)| narrow(entry)).map(|(id, _)| id.index).collect();
            all += index.len();
            store.directory.dirty_index.extend(index);
        }
        for id in pages.into_iter().take(self.0.limit / 4 + 1) {
            self.page(id).await?.change(|_| ());
        }
        Ok(all)
    }
}

fn row_class(copies: usize) -> Result<RowClass, ArrayError> {
    let code = u8::try_from(copies).ok().and_then(Code::mirror).ok_or_else(|| {
        ArrayError::Degraded(format!("the pool's own tables need two drives at least; {copies} are here"))
    })?;
    Ok(RowClass { kind: RowKind::Table, code, strip: Bytes(PAGE as u64), unit: Bytes(PAGE as u64) })
}

impl Checkpoint {
    /// The cut.
    pub fn lsn(&self) -> Lsn {
        self.cut
    }

    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Makes it durable and trims the log. On an error the pages are dirty again and the former
    /// checkpoint holds.
    pub async fn write(mut self) -> Result<(), ArrayError> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        let _turn = self.table.0.writing.lock().await;
        if self.table.0.io.is_disabled(Mutation::CutCopy) {
            // Without copies at the cut, a page is stored as it is when its turn comes.
            self.log.durable(self.last).await?;
        }
        let pool = self.table.0.labels.configuration().pool;
        let short = self.sequence as u32;
        let mut places = self.places.iter().copied();
        let mut writes: Vec<(PagePlace, Shared)> = Vec::with_capacity(self.places.len());
        let mut store_one = |id: PageId, bytes: Shared| -> Entry {
            let place = places.next().unwrap_or_else(|| panic!("{id} was not counted at the cut"));
            let entry = Entry::new(place, digest_of(pool, id, short, &bytes), short);
            writes.push((place, bytes));
            entry
        };
        let io = self.table.0.io.clone();
        let mut entries: BTreeMap<PageId, Entry> = BTreeMap::new();
        for (number, (page, bytes)) in self.pages.iter().enumerate() {
            if number % WITHOUT_PAUSE == WITHOUT_PAUSE - 1 {
                io.sleep(TURN).await;
            }
            entries.insert(page.id, store_one(page.id, page.at_cut(&io, bytes)));
        }
        let mut chunks: BTreeMap<(u32, u32), Entry> = BTreeMap::new();
        let mut index: BTreeMap<u32, Entry> = BTreeMap::new();
        // What is forgotten meanwhile stays in the directory until this checkpoint has ended.
        for (number, key) in self.chunks.iter().enumerate() {
            if number % WITHOUT_PAUSE == WITHOUT_PAUSE - 1 {
                io.sleep(TURN).await;
            }
            let store = self.table.0.store.borrow();
            let Some(chunk) = store.directory.chunk(*key) else { continue };
            let first = key.1 * CHUNK as u32;
            let range =
                PageId { table: key.0, index: first }..=PageId { table: key.0, index: first + (CHUNK as u32 - 1) };
            let changed = entries.range(range).map(|(id, entry)| ((id.index - first) as usize, *entry));
            let id = PageId { table: CHUNK_TABLE, index: chunk.slot };
            chunks.insert(*key, store_one(id, chunk.encode_with(changed)));
        }
        for page in &self.index {
            let id = PageId { table: INDEX_TABLE, index: *page };
            let bytes = self.table.0.store.borrow().directory.encode_index(*page, &chunks);
            index.insert(*page, store_one(id, bytes));
        }
        self.put(writes).await?;
        self.write_anchor(&index).await?;
        self.adopt(entries, chunks, index);
        Ok(())
    }

    /// Writes all pages to all members of their rows, and flushes every drive that was written to.
    async fn put(&self, writes: Vec<(PagePlace, Shared)>) -> Result<(), ArrayError> {
        let inner = &self.table.0;
        self.table.count(|counters| counters.page_writes += writes.len() as u64);
        let (slots, since) = (Semaphore::new(RUNS), inner.labels.attachments());
        let mut runs: Vec<(PagePlace, Vec<Shared>)> = Vec::new();
        for (place, bytes) in writes {
            match runs.last_mut() {
                Some((first, run))
                    if first.row == place.row && first.index + run.len() as u32 == place.index && run.len() < RUN =>
                {
                    run.push(bytes);
                }
                _ => runs.push((place, vec![bytes])),
            }
        }
        let written = join_all(runs.iter().map(|(place, run)| {
            let turn = slots.acquire(1);
            async move {
                let _turn = turn.await;
                (place.row, self.table.write_run(*place, run.clone()).await)
            }
        }))
        .await;
        // A row's pages are as safe as the drives that took all of them.
        let mut held: BTreeMap<RowId, BTreeSet<DriveNumber>> = BTreeMap::new();
        for (row, drives) in written {
            held.entry(row).and_modify(|held| held.retain(|drive| drives.contains(drive))).or_insert(drives);
        }
        let drives: BTreeSet<DriveNumber> = held.values().flatten().copied().collect();
        if !inner.io.is_disabled(Mutation::PageFlush) {
            let flushed = join_all(drives.iter().map(|drive| self.table.flush(*drive, since))).await;
            for (drive, flushed) in drives.iter().zip(flushed) {
                if !flushed {
                    held.values_mut().for_each(|held| {
                        held.remove(drive);
                    });
                }
            }
        }
        let least = self.table.copies_least();
        for drives in held.into_values() {
            let accepted = inner.labels.overridden() && !drives.is_empty();
            if drives.len() < least && !accepted {
                return Err(ArrayError::Degraded(format!(
                    "a checkpoint reached {} of the {least} drives it needs at least; return or replace drives",
                    drives.len(),
                )));
            }
        }
        Ok(())
    }

    async fn write_anchor(&mut self, index: &BTreeMap<u32, Entry>) -> Result<(), ArrayError> {
        let inner = Rc::clone(&self.table.0);
        // The newest record included: the log is then never empty from the anchor's position on.
        if !inner.io.is_disabled(Mutation::AnchorOrder) {
            self.log.durable(self.last).await?;
        }
        let replay = self.log.position(self.oldest);
        let anchor = {
            let (store, layout) = (inner.store.borrow(), inner.layout.read());
            let configuration = inner.labels.configuration();
            let mut all = store.directory.index.clone();
            for (page, entry) in index {
                all[*page as usize] = *entry;
            }
            Anchor {
                pool: configuration.pool,
                epoch: configuration.epoch,
                sequence: self.sequence,
                cut: self.cut,
                replay,
                rows: store.space.rows().filter_map(|row| Some(self.table.as_it_counts(layout.row(row)?))).collect(),
                index: all,
                root: std::mem::take(&mut self.root),
            }
        };
        let bytes = anchor.encode().ok_or_else(|| {
            ArrayError::Full("the pool's own tables outgrew the anchor; use fewer, larger drives".to_owned())
        })?;
        self.anchoring = true;
        self.table.spread_anchor(self.sequence, bytes).await?;
        // Each drive counted has answered a flush after its anchor was written, so what it replaces
        // is free.
        self.log.trim(replay);
        Ok(())
    }

    /// From here on the new places are the pages' places, and the former are free.
    fn adopt(
        &mut self,
        entries: BTreeMap<PageId, Entry>,
        chunks: BTreeMap<(u32, u32), Entry>,
        index: BTreeMap<u32, Entry>,
    ) {
        let inner = Rc::clone(&self.table.0);
        let mut store = inner.store.borrow_mut();
        let mut former: Vec<PagePlace> = std::mem::take(&mut self.released);
        for (id, entry) in entries {
            former.extend(store.directory.set(id, entry).place());
        }
        for (key, entry) in chunks {
            if let Some(chunk) = store.directory.chunk_mut(key) {
                former.extend(std::mem::replace(&mut chunk.stored, entry).place());
            }
        }
        for (page, entry) in index {
            former.extend(std::mem::replace(&mut store.directory.index[page as usize], entry).place());
        }
        for place in former {
            store.space.release(place);
        }
        store.sequence = self.sequence;
        store.checkpointing = false;
        store.drop_forgotten();
        let rows: Vec<RowId> = store.space.rows().collect();
        drop(store);
        self.table.settle_rows(&rows);
        self.table.count(|counters| counters.checkpoints += 1);
        self.done = true;
        let mut cache = inner.cache.borrow_mut();
        for (page, _) in std::mem::take(&mut self.pages) {
            if !page.dirty.get() && !page.forgotten.get() {
                cache.list(&page);
            }
        }
        cache.shrink(inner.limit);
        drop(cache);
        inner.settled.wake_all();
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let inner = &self.table.0;
        let mut cache = inner.cache.borrow_mut();
        for (page, _) in &self.pages {
            page.changes.replace(Changes::Whole);
            if !page.forgotten.get() && !page.dirty.replace(true) {
                cache.dirty.insert(page.id);
            }
        }
        drop(cache);
        let mut store = inner.store.borrow_mut();
        store.directory.dirty_index.extend(self.index.iter().copied());
        store.released.append(&mut self.released);
        if self.anchoring {
            // It may be what the next open finds, so its places stay until the next anchor is
            // durable, and that one goes to the same slot, so that the former anchor stays as well.
            store.released.append(&mut self.places);
            store.sequence = self.sequence + 1;
        } else {
            for place in std::mem::take(&mut self.places) {
                store.space.release(place);
            }
        }
        store.checkpointing = false;
        store.drop_forgotten();
        drop(store);
        inner.settled.wake_all();
    }
}
