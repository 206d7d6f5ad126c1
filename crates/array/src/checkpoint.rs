//! Checkpoints: when, and what the engine adds to them.
//!
//! Counts of rows and volumes are kept in memory and written into their pages at the cut, in the same synchronous step,
//! so that pages hold exactly the state at the cut. The root in the anchor holds what fits nowhere else.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use stele_ground::{BLOCK, Duration};
use stele_media::Shared;

use crate::apply::{Pages, write_row};
use crate::cache::{BlockKey, StripeKey};
use crate::codec::{Reader, Writer};
use crate::destage::runs;
use crate::engine::Engine;
use crate::layout::row::ROW_ENTRY;
use crate::log::Purpose;
use crate::place::{Lsn, PageId, RowId};
use crate::records::Record;
use crate::table::{PageRef, checkpoint_cost};
use crate::volumes::Volume;
use crate::volumes::tables::{self, LOST, LOST_ENTRY, LOST_PER_PAGE};
use crate::{AlarmKind, ArrayError, Severity};

/// What the engine keeps in the anchor.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Root {
    pub next_volume: u32,
    /// Entries of the list of lost stripes, empty ones included.
    pub lost: u32,
    pub generation_floor: u64,
    pub generation_high: u64,
    /// How long the pool had been open, in all, since the last whole scrub began.
    pub scrub_age: Duration,
    /// The scrub under way has verified the rows below this one.
    pub scrub_row: u32,
}

/// Blocks carried forward in one record.
const CARRY_BLOCKS: usize = 64;
/// The log is sealed after so long without a record.
const SEAL_AFTER: Duration = Duration::from_millis(100);
const ROOT_SIZE: usize = 48;
const ROOT_VERSION: u32 = 1;

impl Root {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; ROOT_SIZE];
        let mut w = Writer::new(&mut bytes);
        w.u32(ROOT_VERSION);
        w.u32(self.next_volume);
        w.u32(self.lost);
        w.u32(0);
        w.u64(self.generation_floor);
        w.u64(self.generation_high);
        w.u64(self.scrub_age.0);
        w.u32(self.scrub_row);
        w.u32(0);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Root> {
        let mut r = Reader::new(Shared::copy_from_slice(bytes));
        if r.u32()? != ROOT_VERSION {
            return None;
        }
        let (next_volume, lost, _) = (r.u32()?, r.u32()?, r.u32()?);
        let (generation_floor, generation_high) = (r.u64()?, r.u64()?);
        let (scrub_age, scrub_row) = (Duration(r.u64()?), r.u32()?);
        Some(Root { next_volume, lost, generation_floor, generation_high, scrub_age, scrub_row })
    }
}

impl Engine {
    /// Writes a checkpoint. Answers when its anchor is durable and the log trimmed.
    pub async fn checkpoint(self: &Rc<Self>) -> Result<(), ArrayError> {
        let _turn = self.checkpointing.lock().await;
        self.check_writable()?;
        self.take_back_cells();
        let mut funds = self.log.reserve(checkpoint_cost(&self.log), Purpose::Checkpoint).await?;
        let checkpoint = loop {
            let rows = self.fetch_rows().await?;
            let volumes = self.fetch_volumes().await?;
            let lost = self.fetch_lost().await?;
            // The cut: from here to `begin_checkpoint` nothing waits. What changed during the fetches is fetched too.
            let complete = self.space.changed().iter().all(|row| rows.iter().any(|(have, _)| have == row))
                && self.volumes.all().iter().all(|volume| volumes.iter().any(|(have, _)| have.id == volume.id))
                && self.lost_slots.borrow().len() <= lost.len() * LOST_PER_PAGE as usize;
            if !complete {
                continue;
            }
            self.save_counts(&rows, &volumes, &lost);
            let root = Root {
                next_volume: self.volumes.next.get(),
                lost: self.lost_slots.borrow().len() as u32,
                generation_floor: self.space.generation_floor.get(),
                generation_high: self.space.generation_high.get(),
                scrub_age: self.scrub_age(),
                scrub_row: self.scrub_row.get(),
            };
            let oldest = self.oldest_needed();
            let pinned = self.log_pins.borrow().keys().next().copied();
            let dirty = self.cache.borrow().oldest_dirty();
            let owed = self.redo.oldest();
            let kept = [pinned, dirty, owed].into_iter().flatten().all(|lsn| oldest <= lsn);
            assert!(kept, "invariant 9: the log would be trimmed above what is not on its strips");
            break self.table.begin_checkpoint(&self.log, oldest, root.encode(), &mut funds);
        };
        drop(funds);
        checkpoint.write().await?;
        self.room.wake_all();
        self.warn_of_copies();
        Ok(())
    }

    /// Says once when the pool's own tables lie on fewer drives than they should.
    fn warn_of_copies(&self) {
        let lacks = self.table.lacks_copies();
        if let Some((copies, wanted)) = lacks
            && !self.copies_warned.get()
        {
            self.alarm(
                AlarmKind::TableDegraded,
                Severity::Warning,
                None,
                format!(
                    "the pool's own tables lie on {copies} drives where {wanted} are wanted; return or replace missing drives"
                ),
            );
        }
        self.copies_warned.set(lacks.is_some());
    }

    /// Puts the pool's own tables on as many drives as its codes ask for: after a stronger code came, or drives did.
    pub async fn widen_tables(self: &Rc<Self>) -> Result<(), ArrayError> {
        let mut before = usize::MAX;
        loop {
            let narrow = self.table.touch_narrow().await?;
            // Where no wider row can be made, another checkpoint changes nothing.
            if narrow == 0 || narrow >= before {
                return Ok(());
            }
            before = narrow;
            self.checkpoint().await?;
        }
    }

    async fn fetch(&self, id: PageId) -> Result<PageRef, ArrayError> {
        match self.table.cached(id) {
            Some(page) => Ok(page),
            None => self.table.page(id).await,
        }
    }

    async fn fetch_rows(&self) -> Result<Vec<(RowId, PageRef)>, ArrayError> {
        let mut pages = Vec::new();
        for row in self.space.changed() {
            pages.push((row, self.fetch(tables::row(row).0).await?));
        }
        Ok(pages)
    }

    async fn fetch_volumes(&self) -> Result<Vec<(Rc<Volume>, PageRef)>, ArrayError> {
        let mut pages = Vec::new();
        for volume in self.volumes.all() {
            let page = self.fetch(tables::volume(volume.id)).await?;
            pages.push((volume, page));
        }
        Ok(pages)
    }

    async fn fetch_lost(&self) -> Result<Vec<PageRef>, ArrayError> {
        let count = (self.lost_slots.borrow().len() as u32).div_ceil(LOST_PER_PAGE);
        let mut pages = Vec::new();
        for index in 0..count {
            pages.push(self.fetch(PageId { table: LOST, index }).await?);
        }
        Ok(pages)
    }

    fn save_counts(&self, rows: &[(RowId, PageRef)], volumes: &[(Rc<Volume>, PageRef)], lost: &[PageRef]) {
        let layout = self.space.layout.borrow();
        for (row, page) in rows {
            let at = tables::row(*row).1;
            if let Some(record) = layout.row(*row) {
                let used = self.space.used(*row);
                page.change(|bytes| write_row(&mut bytes[at..at + ROW_ENTRY], record, used));
            }
            self.space.saved(*row);
        }
        for (volume, page) in volumes.iter().filter(|(volume, _)| !volume.gone.get()) {
            let stored =
                page.read(|bytes| bytes.get(8..16).and_then(|field| field.try_into().ok()).map(u64::from_le_bytes));
            if stored != Some(volume.mapped.get()) {
                page.change(|bytes| volume.encode(bytes));
            }
        }
        if self.lost_changed.replace(false) {
            let slots = self.lost_slots.borrow();
            for (page, slots) in lost.iter().zip(slots.chunks(LOST_PER_PAGE as usize)) {
                page.change(|bytes| write_lost(bytes, slots));
            }
        }
    }

    /// Runs for the pool's life: a checkpoint whenever the log or the table's memory asks for one.
    pub async fn checkpoint_flow(self: Rc<Self>) {
        loop {
            {
                let wanted = self.wait_for_table();
                let pressure = self.log.pressure();
                futures_util::pin_mut!(wanted, pressure);
                futures_util::future::select(wanted, pressure).await;
            }
            if self.closing.get() || self.check_writable().is_err() || self.log.stopped().is_some() {
                return;
            }
            if self.log.wants_checkpoint() {
                self.drain_older_half().await;
                if let Err(error) = self.carry_stuck_forward().await {
                    tracing::warn!("writes that cannot be destaged could not be appended anew: {error}");
                }
            }
            let written = self.checkpoint().await;
            let warned = self.checkpoint_warned.replace(written.is_err());
            if let Err(error) = written {
                tracing::warn!("checkpoint put off: {error}");
                if !warned {
                    let text = format!("no checkpoint can be written, and the log fills up: {error}");
                    self.alarm(AlarmKind::LogDegraded, Severity::Critical, None, text);
                }
                self.io.sleep(Duration::from_millis(500)).await;
            }
            if self.log.wants_checkpoint() {
                // Nothing more can be trimmed before more is destaged.
                self.io.sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// Runs for the pool's life: seals the log a short time after its last group, so that damage to that group on every
    /// member is noticed. Under load nothing is written for it.
    pub async fn seal_flow(self: Rc<Self>) {
        loop {
            self.log.unsealed().await;
            let newest = self.log.next_lsn();
            self.io.sleep(SEAL_AFTER).await;
            if self.closing.get() || self.check_writable().is_err() {
                return;
            }
            if self.log.next_lsn() == newest && self.log.seal().await.is_err() {
                // The log has stopped.
                return;
            }
        }
    }

    async fn wait_for_table(&self) {
        loop {
            let changed = self.table_changed.changed();
            if self.table.wants_checkpoint() {
                return;
            }
            changed.await;
        }
    }

    /// Lets destage empty the older half of the log, for a while.
    async fn drain_older_half(self: &Rc<Self>) {
        let oldest = self.oldest_needed();
        let middle = Lsn(oldest.0 + (self.log.next_lsn().0 - oldest.0) / 2);
        let until = self.io.now() + Duration::from_millis(500);
        while self.oldest_needed() < middle && self.io.now() < until {
            let changed = self.room.changed();
            self.destage_wanted.wake_all();
            let sleep = self.io.sleep_until(until);
            futures_util::pin_mut!(sleep, changed);
            futures_util::future::select(sleep, changed).await;
        }
    }

    /// Dirty blocks of stripes that cannot be changed for now (too many of their strips are absent) would keep the log from
    /// being trimmed: those in its older half are appended again, so that everything else goes on.
    async fn carry_stuck_forward(self: &Rc<Self>) -> Result<(), ArrayError> {
        let oldest = self.oldest_needed();
        let middle = Lsn(oldest.0 + (self.log.next_lsn().0 - oldest.0) / 2);
        let old: Vec<StripeKey> = {
            let (cache, stuck) = (self.cache.borrow(), self.stuck.borrow());
            let older = cache.by_age().take_while(|(lsn, _)| *lsn < middle).map(|(_, key)| key);
            let older: BTreeSet<StripeKey> = older.chain(self.redo.older_than(middle)).collect();
            older.into_iter().filter(|key| stuck.contains_key(key)).collect()
        };
        for key in old {
            let _guard = self.locks.exclusive(key.volume, key.stripe).await;
            let Some(volume) = self.volumes.get(key.volume) else { continue };
            let first = key.stripe * u64::from(volume.shape.blocks());
            let numbers: Vec<usize> =
                self.cache.borrow().dirty_of(key).into_iter().map(|(number, _)| number as usize).collect();
            for run in runs(numbers).into_iter().flat_map(|run| pieces(run, CARRY_BLOCKS)) {
                let cost = self.log.cost_of(64 + run.len() * BLOCK);
                let Some(mut funds) = self.log.try_reserve(cost, Purpose::Inside) else { return Ok(()) };
                // One moment: what is appended is the newest content.
                let from = first + run.start as u64;
                let block = |at: usize| BlockKey { volume: key.volume, block: first + at as u64 };
                let data: Option<Vec<Shared>> = {
                    let cache = self.cache.borrow();
                    run.map(|at| cache.dirty(block(at)).map(|dirty| dirty.data.clone())).collect()
                };
                let Some(data) = data else { continue };
                let record = Record::Write { volume: key.volume, at: from * BLOCK as u64, data };
                self.append(&record, &Pages::default(), &mut funds);
            }
            self.cache.borrow_mut().renew_age(key);
            // Images refer to the writes as they were, so they go along.
            self.carry_redo(key).await?;
        }
        Ok(())
    }

    /// Destages everything that was dirty at the call and can be destaged.
    pub async fn drain_dirty(self: &Rc<Self>) {
        self.drain.set(self.drain.get() + 1);
        let upto = self.log.next_lsn();
        loop {
            let changed = self.room.changed();
            let open = {
                let cache = self.cache.borrow();
                let stuck = self.stuck.borrow();
                let mut older = cache.by_age().take_while(|(lsn, _)| *lsn < upto);
                older.any(|(_, key)| !stuck.contains_key(&key))
            };
            if !open || self.check_writable().is_err() || self.log.stopped().is_some() {
                break;
            }
            self.destage_wanted.wake_all();
            let sleep = self.io.sleep(Duration::from_millis(50));
            futures_util::pin_mut!(sleep, changed);
            futures_util::future::select(sleep, changed).await;
        }
        self.drain.set(self.drain.get() - 1);
    }
}

/// A range in pieces of so many at most.
fn pieces(run: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let end = run.end;
    run.step_by(most).map(move |from| from..end.min(from + most))
}

fn write_lost(bytes: &mut [u8], slots: &[Option<StripeKey>]) {
    bytes.fill(0);
    for (entry, slot) in bytes.chunks_mut(LOST_ENTRY).zip(slots) {
        let Some(key) = slot else { continue };
        entry[..4].copy_from_slice(&key.volume.0.to_le_bytes());
        entry[4..8].copy_from_slice(&1u32.to_le_bytes());
        entry[8..16].copy_from_slice(&key.stripe.to_le_bytes());
    }
}

/// The entries of a page of the list of lost stripes.
pub fn read_lost(bytes: &[u8]) -> Vec<Option<StripeKey>> {
    let entry = |entry: &[u8]| {
        let mut r = Reader::new(Shared::copy_from_slice(entry));
        let (volume, present, stripe) = (r.u32()?, r.u32()?, r.u64()?);
        (present != 0).then_some(StripeKey { volume: stele_ground::VolumeId(volume), stripe })
    };
    bytes.chunks_exact(LOST_ENTRY).map(entry).collect()
}
