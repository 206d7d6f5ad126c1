//! The copies of a page: reading whichever verifies, repairing the others, and moving them off a
//! drive.

use std::collections::BTreeSet;

use stele_media::{Buffer, Priority, Shared};

use super::directory::{Entry, verifies};
use super::space::PagePlace;
use super::{PAGE, Table};
use crate::durable::anchor::{self, Anchor};
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, PageId, RowId, StripCell};
use crate::runtime::sync::join_all;
use crate::space::layout::{Member, Row};

/// Pages that a scrub reads at once, and that it sorts by place before.
const RUN: usize = 256;
/// Runs that a scrub reads at once, each of another row: their drives are mostly others.
const RUNS_AT_ONCE: usize = 8;
/// Pages that a scrub looks for at once.
const GATHERED: usize = 2 * RUNS_AT_ONCE * RUN;
/// Repairs that wait at most. Those beyond are left to later reads, and to the scrub.
pub(super) const REPAIRS: usize = 64;

/// A stored page.
type Named = (PageId, Entry);

/// Pages that lie one after another, of pages sorted by place.
fn runs(pages: &[Named]) -> impl Iterator<Item = &[Named]> {
    let follows = |(_, before): &Named, (_, after): &Named| match (before.place(), after.place()) {
        (Some(before), Some(after)) => before.row == after.row && before.index + 1 == after.index,
        _ => false,
    };
    pages.chunk_by(follows).flat_map(|run| run.chunks(RUN))
}

/// The runs of pages sorted by place, as they are read side by side: of each row one after another.
fn batches(pages: &[Named]) -> Vec<Vec<&[Named]>> {
    let mut turns: Vec<Vec<&[Named]>> = Vec::new();
    let (mut row, mut turn) = (None, 0);
    for run in runs(pages) {
        let of = run.first().and_then(|(_, entry)| entry.place()).map(|place| place.row);
        turn = if of == row { turn + 1 } else { 0 };
        row = of;
        if turn == turns.len() {
            turns.push(Vec::new());
        }
        turns[turn].push(run);
    }
    turns.iter().flat_map(|turn| turn.chunks(RUNS_AT_ONCE)).map(<[_]>::to_vec).collect()
}

impl Table {
    /// The page's bytes from the first replica that verifies; others that do not are repaired in
    /// the background.
    pub(super) async fn read_verified(&self, id: PageId, entry: Entry) -> Result<Buffer, ArrayError> {
        let Some(place) = entry.place() else { return Ok(Buffer::zeroed(PAGE)) };
        self.read_among(id, entry, place, &self.cells(place)).await
    }

    async fn read_among(
        &self,
        id: PageId,
        entry: Entry,
        place: PagePlace,
        cells: &[StripCell],
    ) -> Result<Buffer, ArrayError> {
        let mut bad: Vec<DriveNumber> = Vec::new();
        // Reads spread over the replicas by the page's number.
        let first = (id.index as usize).wrapping_add(place.index as usize) % cells.len().max(1);
        for at in 0..cells.len() {
            let cell = cells[(first + at) % cells.len()];
            match self.read_replica(id, entry, place, cell).await {
                Some(bytes) => {
                    self.repair_later(id, entry, place, bad, &bytes);
                    return Ok(bytes);
                }
                None => bad.push(cell.drive),
            }
        }
        let drives: Vec<String> = bad.iter().map(|drive| drive.to_string()).collect();
        Err(ArrayError::Damaged(format!(
            "{id} of the pool's tables is whole on none of {}; return missing drives of these and open the pool again",
            drives.join(", ")
        )))
    }

    async fn read_replica(&self, id: PageId, entry: Entry, place: PagePlace, cell: StripCell) -> Option<Buffer> {
        let inner = &self.0;
        if !inner.labels.is_usable(cell.drive) {
            return None;
        }
        let index = inner.labels.index(cell.drive)?;
        let bytes = inner.io.read(index, self.at(place, cell), PAGE, Priority::Host).await.ok()?;
        self.count(|counters| counters.page_reads += 1);
        self.is_whole(id, entry, &bytes).then_some(bytes)
    }

    fn is_whole(&self, id: PageId, entry: Entry, bytes: &[u8]) -> bool {
        let pool = self.0.labels.configuration().pool;
        verifies(pool, id, entry, bytes) || self.0.io.is_disabled(Mutation::PageDigest)
    }

    fn repair_later(&self, id: PageId, entry: Entry, place: PagePlace, mut bad: Vec<DriveNumber>, bytes: &[u8]) {
        let inner = &self.0;
        // One that is away is brought up to date when it returns.
        bad.retain(|drive| inner.labels.is_usable(*drive));
        let waiting = inner.repairs.get();
        if bad.is_empty() || inner.read_only || waiting >= REPAIRS {
            return;
        }
        inner.repairs.set(waiting + 1);
        let (table, bytes) = (self.clone(), Buffer::copy_of(bytes).freeze());
        inner.io.spawn(async move {
            let _turn = table.0.writing.lock().await;
            if table.current(id) == entry {
                table.repair(place, &bad, &bytes).await;
            }
            table.0.repairs.set(table.0.repairs.get() - 1);
        });
    }

    /// What the directory says of a page now; of its own pages it does not ask.
    fn current(&self, id: PageId) -> Entry {
        let store = self.0.store.borrow();
        match id.table {
            super::directory::INDEX_TABLE => store.directory.index.get(id.index as usize).copied().unwrap_or_default(),
            super::directory::CHUNK_TABLE => {
                store.directory.chunk_at(id.index).map_or_else(Entry::default, |chunk| chunk.stored)
            }
            _ => store.directory.entry(id),
        }
    }

    /// Writes a verified page over bad replicas. The caller holds `writing` and knows that the
    /// place is still the page's.
    async fn repair(&self, place: PagePlace, bad: &[DriveNumber], bytes: &Shared) -> u64 {
        let mut repaired = 0;
        for cell in self.cells(place).into_iter().filter(|cell| bad.contains(&cell.drive)) {
            if !self.0.labels.is_usable(cell.drive) {
                continue;
            }
            let Some(index) = self.0.labels.index(cell.drive) else { continue };
            let since = self.0.labels.attachments();
            let written = self.0.io.write(index, self.at(place, cell), vec![bytes.clone()], Priority::Scrub).await;
            if written.is_ok() && self.flush(cell.drive, since).await {
                repaired += 1;
            }
        }
        self.count(|counters| counters.repaired += repaired);
        repaired
    }

    /// Writes pages one after another from a place on; answers the drives that took them.
    pub(super) async fn write_run(&self, place: PagePlace, run: Vec<Shared>) -> BTreeSet<DriveNumber> {
        let cells = self.cells(place);
        let writes = join_all(cells.iter().map(|cell| {
            let run = run.clone();
            async move {
                let index = self.0.labels.index(cell.drive).filter(|_| self.0.labels.is_usable(cell.drive))?;
                self.0.io.write(index, self.at(place, *cell), run, Priority::Destage).await.ok()?;
                Some(cell.drive)
            }
        }))
        .await;
        writes.into_iter().flatten().collect()
    }

    /// True when what the drive took since [`Labels::attachments`] was this is durable.
    pub(super) async fn flush(&self, drive: DriveNumber, since: u64) -> bool {
        let labels = &self.0.labels;
        let Some(index) = labels.index(drive).filter(|_| labels.has_stayed(drive, since)) else { return false };
        self.0.io.flush(index).await.is_ok() && labels.has_stayed(drive, since)
    }

    /// Where the replicas of a page are.
    fn cells(&self, place: PagePlace) -> Vec<StripCell> {
        let layout = self.0.layout.read();
        layout.row(place.row).map_or_else(Vec::new, |row| self.cells_of(row))
    }

    /// Where the replicas of a row's pages are: a member that has moved is where it moved to.
    pub fn cells_of(&self, row: &Row) -> Vec<StripCell> {
        row.members.iter().map(|member| self.moved_to(member).unwrap_or(member.cell)).collect()
    }

    /// Where a member has moved to, with all its pages.
    fn moved_to(&self, member: &Member) -> Option<StripCell> {
        member.replacement.filter(|cell| self.0.filling.get() != Some(*cell))
    }

    /// A row as an anchor names it.
    pub(super) fn as_it_counts(&self, row: &Row) -> Row {
        let mut row = row.clone();
        row.members.iter_mut().for_each(|member| member.replacement = self.moved_to(member));
        row
    }

    fn at(&self, place: PagePlace, cell: StripCell) -> u64 {
        self.0.labels.configuration().cell_at(cell) + u64::from(place.index) * PAGE as u64
    }

    /// Moves the table's own strips off a drive that is lost, or leaves. For every table row with a
    /// member there, a spare is chosen, filled from verified replicas and put in its place.
    /// Checkpoints go on meanwhile. The move is durable with the next one, which `wants_checkpoint`
    /// asks for. Evacuations of several drives take turns. Returns rows moved. `Full` when a row
    /// finds no drive.
    pub async fn evacuate(&self, drive: DriveNumber) -> Result<u64, ArrayError> {
        let mut moved = 0;
        loop {
            // A drive that is lost does not wait for all rows of one that leaves.
            let _alone = self.0.moving.lock().await;
            let settled = self.0.settled.changed();
            if self.checkpointing() {
                // A cell chosen between its cut and its anchor may have been freed after the cut.
                settled.await;
                continue;
            }
            let Some((row, member)) = self.member_on(drive) else { return Ok(moved) };
            let usable = self.0.labels.usable();
            let choice = self.0.layout.read().choose_spare(row, member, &|d| d != drive && usable.contains(&d));
            let Some(cell) = choice else {
                return Err(ArrayError::Full(format!(
                    "no drive can take the pool's tables from {drive}; replace it or add drives"
                )));
            };
            self.0.layout.write().set_replacement(row, member, Some(cell));
            self.0.filling.set(Some(cell));
            if let Err(error) = self.fill(row, cell).await {
                self.0.layout.write().set_replacement(row, member, None);
                self.0.filling.set(None);
                return Err(error);
            }
            moved += 1;
        }
    }

    fn member_on(&self, drive: DriveNumber) -> Option<(RowId, usize)> {
        let (layout, store) = (self.0.layout.read(), self.0.store.borrow());
        let on = |row: RowId| {
            let cells = self.cells_of(layout.row(row)?);
            cells.iter().position(|cell| cell.drive == drive).map(|member| (row, member))
        };
        store.space.rows().find_map(on)
    }

    /// Copies every page of a row to a new cell, verified, and flushes it; from then on it counts.
    ///
    /// 1. The pages stored now are copied while checkpoints go on, which takes minutes on a large
    ///    drive. A page that a checkpoint stores anew meanwhile may be copied as it was, or torn.
    /// 2. While no checkpoint writes, those stored since are copied.
    async fn fill(&self, row: RowId, cell: StripCell) -> Result<(), ArrayError> {
        let stopped = || ArrayError::Degraded(format!("{} stopped answering while it took pages over", cell.drive));
        // A drive that goes and returns has another index: it may have lost what was written.
        let index = self.0.labels.index(cell.drive).ok_or_else(stopped)?;
        let since = self.0.labels.attachments();
        let copy = async |run: &[Named], priority: Priority| {
            let (place, bytes) = self.read_run(run, priority).await?;
            self.0.io.write(index, self.at(place, cell), vec![bytes], priority).await.map_err(|_| stopped())
        };
        let copied = self.pages_of(row);
        for run in runs(&copied) {
            copy(run, Priority::Rebuild).await?;
        }
        let _turn = self.0.writing.lock().await;
        let is_copied = |page: &Named| {
            let found = copied.binary_search_by_key(&page.1.place(), |(_, entry)| entry.place());
            found.is_ok_and(|at| copied[at] == *page)
        };
        let rest: Vec<Named> = self.pages_of(row).into_iter().filter(|page| !is_copied(page)).collect();
        for run in runs(&rest) {
            // Checkpoints wait for this, so it does not wait behind the runs of a rebuild.
            copy(run, Priority::Destage).await?;
        }
        if !self.flush(cell.drive, since).await {
            return Err(stopped());
        }
        self.0.filling.set(None);
        self.0.store.borrow_mut().moved = true;
        Ok(())
    }

    /// The pages of a row, by place.
    fn pages_of(&self, row: RowId) -> Vec<Named> {
        let store = self.0.store.borrow();
        let in_row = |(_, entry): &Named| entry.place().is_some_and(|place| place.row == row);
        let mut pages: Vec<Named> = store.directory.all().filter(in_row).collect();
        pages.sort_unstable_by_key(|(_, entry)| entry.place());
        pages
    }

    /// Where pages that lie one after another begin, and their bytes, verified: one read of a drive
    /// that has them, where it has them whole. In the place of a page that was stored anew since
    /// lies anything.
    async fn read_run(&self, run: &[Named], priority: Priority) -> Result<(PagePlace, Shared), ArrayError> {
        let first = run.first().and_then(|(_, entry)| entry.place());
        let first = first.unwrap_or_else(|| unreachable!("pages of a row have a place in it"));
        let sources = self.cells(first);
        let mut bytes = self.read_unverified(first, run.len(), &sources, priority).await;
        for ((id, entry), page) in run.iter().zip(bytes.chunks_exact_mut(PAGE)) {
            let is_current = || self.current(*id) == *entry;
            let Some(place) = entry.place().filter(|_| is_current() && !self.is_whole(*id, *entry, page)) else {
                continue;
            };
            match self.read_among(*id, *entry, place, &sources).await {
                Ok(whole) => page.copy_from_slice(&whole),
                Err(error) if is_current() => return Err(error),
                Err(_) => {}
            }
        }
        Ok((first, bytes.freeze()))
    }

    /// So many pages from a place on, from the first drive that can read them; zeros where none
    /// can.
    async fn read_unverified(&self, at: PagePlace, pages: usize, sources: &[StripCell], priority: Priority) -> Buffer {
        let turn = at.index as usize / RUN % sources.len().max(1);
        for source in sources.iter().cycle().skip(turn).take(sources.len()) {
            let index = self.0.labels.index(source.drive).filter(|_| self.0.labels.is_usable(source.drive));
            let Some(index) = index else { continue };
            if let Ok(bytes) = self.0.io.read(index, self.at(at, *source), pages * PAGE, priority).await {
                self.count(|counters| counters.page_reads += 1);
                return bytes;
            }
        }
        Buffer::zeroed(pages * PAGE)
    }

    /// After an anchor that names the replacements is durable: they become the members, and the
    /// former cells are free.
    pub(super) fn settle_rows(&self, rows: &[RowId]) {
        let mut layout = self.0.layout.write();
        for row in rows {
            let moved: Vec<(usize, StripCell)> = layout.row(*row).map_or_else(Vec::new, |row| {
                row.members.iter().enumerate().filter_map(|(at, m)| Some((at, self.moved_to(m)?))).collect()
            });
            for (member, cell) in moved {
                layout.change_member(*row, member, cell);
            }
        }
    }

    /// Reads every replica of every page and of the directory and repairs what does not verify; for
    /// scrub. Calls `progress` with pages done and in all now and then, and stops early when it
    /// answers false. Returns replicas repaired. A page that fails keeps it from no other one: the
    /// first error is the answer at the end.
    pub async fn scrub(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<u64, ArrayError> {
        let mut total = self.0.store.borrow().directory.count_all();
        let (mut done, mut repaired) = (0, Ok(0));
        let mut pages: Vec<Named> = self.0.store.borrow().directory.index_pages().collect();
        let mut chunk = None;
        // Some chunks at a time: a list of all pages would be as large as the directory.
        loop {
            let more = self.add_chunks(&mut pages, &mut chunk);
            for batch in batches(&pages) {
                if !progress(done, total) {
                    return repaired;
                }
                let _turn = self.0.writing.lock().await;
                for run in join_all(batch.iter().map(|run| self.scrub_run(run))).await {
                    repaired = repaired.and_then(|sum| run.map(|run| sum + run));
                }
                done += batch.iter().map(|run| run.len() as u64).sum::<u64>();
                total = total.max(done);
            }
            if !more {
                break;
            }
            pages.clear();
        }
        progress(total, total);
        repaired
    }

    /// Adds pages until there are enough for long runs, and sorts them by place. False when they
    /// are the last.
    fn add_chunks(&self, pages: &mut Vec<Named>, chunk: &mut Option<(u32, u32)>) -> bool {
        let store = self.0.store.borrow();
        let mut more = true;
        while more && pages.len() < GATHERED {
            match store.directory.chunk_after(*chunk) {
                Some(key) => {
                    pages.extend(store.directory.family(key));
                    *chunk = Some(key);
                }
                None => more = false,
            }
        }
        pages.sort_unstable_by_key(|(_, entry)| entry.place());
        more
    }

    /// Pages that lie one after another: one read of each drive that has them. The caller holds
    /// `writing`.
    async fn scrub_run(&self, run: &[Named]) -> Result<u64, ArrayError> {
        // Those stored anew since are seen by the next pass.
        let is_current = |(id, entry): &Named| self.current(*id) == *entry;
        let (Some(first), true) = (run.first().and_then(|(_, entry)| entry.place()), run.iter().any(is_current)) else {
            return Ok(0);
        };
        let cells = self.cells(first);
        let cells = cells.iter().filter(|cell| self.0.labels.is_usable(cell.drive));
        let reads = join_all(cells.map(|cell| async move {
            let index = self.0.labels.index(cell.drive)?;
            // Checkpoints wait for `writing`, so this must not wait behind the runs of a rebuild.
            self.0.io.read(index, self.at(first, *cell), run.len() * PAGE, Priority::Host).await.ok()
        }));
        let reads = reads.await;
        self.count(|counters| counters.page_reads += reads.len() as u64);
        let mut repaired = Ok(0);
        for (at, (id, entry)) in run.iter().enumerate().filter(|(_, page)| is_current(page)) {
            let bytes = |read: &Option<Buffer>| {
                read.as_ref().is_some_and(|bytes| self.is_whole(*id, *entry, &bytes[at * PAGE..(at + 1) * PAGE]))
            };
            if reads.iter().all(bytes) {
                continue;
            }
            let Some(place) = entry.place() else { continue };
            let page = self.scrub_page(*id, *entry, place).await;
            repaired = repaired.and_then(|sum| page.map(|page| sum + page));
        }
        repaired
    }

    /// Compares the newest anchor on all usable drives and writes it again where it is missing or
    /// damaged; for scrub. A former one that cannot be read is written over: an opening takes it
    /// for one that may be newer, and waits for it. Returns copies repaired.
    pub async fn scrub_anchors(&self) -> Result<u64, ArrayError> {
        // No checkpoint writes an anchor meanwhile.
        let _turn = self.0.writing.lock().await;
        let sequence = self.0.store.borrow().sequence;
        let at = anchor::slot_at(sequence);
        let io = &self.0.io;
        let drives = self.0.labels.usable();
        let reads = join_all(drives.iter().map(|drive| async move {
            let index = self.0.labels.index(*drive)?;
            Some((index, anchor::read_at(io, index, at, Priority::Scrub).await))
        }));
        let reads: Vec<_> = reads.await.into_iter().flatten().collect();
        let pool = self.0.labels.configuration().pool;
        // On a drive that was away lies what was given up while it was: with a lower epoch,
        // whatever its sequence.
        let ours = |anchor: &Anchor| anchor.pool == pool;
        let whole = reads.iter().filter_map(|(_, read)| read.as_ref()).filter(|(anchor, _)| ours(anchor));
        let Some((_, newest)) = whole.max_by_key(|(anchor, _)| (anchor.epoch, anchor.sequence)) else {
            return Err(ArrayError::Damaged(
                "the anchor of the last checkpoint is whole on no drive; write a checkpoint now".into(),
            ));
        };
        let (mut repaired, mut whole_on) = (0, reads.iter().map(|(index, _)| *index).collect::<Vec<_>>());
        for (index, read) in &reads {
            if read.as_ref().is_some_and(|(_, bytes)| bytes == newest) || self.0.read_only {
                continue;
            }
            // A new drive, or one that was away, has none or an older one: that is no damage.
            let blank = io.read(*index, at, stele_ground::BLOCK, Priority::Scrub).await;
            let blank = blank.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0));
            let older = read.as_ref().is_some_and(|(anchor, _)| ours(anchor));
            let written = io.write(*index, at, vec![newest.clone()], Priority::Scrub).await;
            match written.is_ok() && io.flush(*index).await.is_ok() {
                true => repaired += u64::from(!blank && !older),
                false => whole_on.retain(|kept| kept != index),
            }
        }
        if !self.0.read_only {
            let former = anchor::slot_at(sequence + 1);
            let cleared = join_all(whole_on.iter().map(|index| anchor::clear_unreadable(io, *index, former))).await;
            repaired += cleared.into_iter().filter(|cleared| *cleared).count() as u64;
        }
        Ok(repaired)
    }

    /// Copies repaired. What a drive missed while it was away is written as well, and is none.
    async fn scrub_page(&self, id: PageId, entry: Entry, place: PagePlace) -> Result<u64, ArrayError> {
        let cells = self.cells(place);
        let usable: Vec<StripCell> = cells.into_iter().filter(|cell| self.0.labels.is_usable(cell.drive)).collect();
        let reads = join_all(usable.iter().map(|cell| self.read_replica(id, entry, place, *cell))).await;
        let bad: Vec<DriveNumber> =
            usable.iter().zip(&reads).filter(|(_, read)| read.is_none()).map(|(cell, _)| cell.drive).collect();
        if bad.is_empty() || self.0.read_only {
            return Ok(0);
        }
        match reads.into_iter().flatten().next() {
            Some(bytes) => {
                let damaged = bad.iter().filter(|drive| self.0.labels.is_caught_up(**drive)).count() as u64;
                let repaired = self.repair(place, &bad, &bytes.freeze()).await;
                // A drive that left meanwhile is asked again when it returns.
                let left = bad.iter().filter(|drive| self.0.labels.is_usable(**drive)).count() as u64;
                match repaired < left {
                    true => Err(ArrayError::Degraded(format!(
                        "{id} of the pool's tables could not be written again on {}; `stele pool scrub` tries again",
                        bad.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                    ))),
                    false => Ok(repaired.min(damaged)),
                }
            }
            // In memory it may still be whole; then the next checkpoint that stores it heals it.
            None => Err(ArrayError::Damaged(format!(
                "{id} of the pool's tables verifies on none of its drives; return missing drives"
            ))),
        }
    }
}
