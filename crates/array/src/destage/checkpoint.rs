//! Checkpoints: when, and what the engine adds to them.
//!
//! Counts of rows and volumes are kept in memory and written into their pages at the cut, in the
//! same synchronous step, so that pages hold exactly the state at the cut. The root in the anchor
//! holds what fits nowhere else.

use std::rc::Rc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use stele_ground::Duration;
use stele_media::Shared;

use crate::durable::log::Purpose;
use crate::durable::table::{PageRef, checkpoint_cost};
use crate::engine::Engine;
use crate::engine::apply::write_row;
use crate::formats::codec::{Reader, Writer};
use crate::formats::tables::{self, LOST, LOST_ENTRY, LOST_PER_PAGE, ROW_ENTRY};
use crate::model::place::{Lsn, PageId, RowId, StripeKey};
use crate::model::{AlarmKind, ArrayError, Severity};
use crate::space::layout::RowKind;
use crate::volumes::Volume;

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

/// Pages fetched at once.
const AT_ONCE: usize = 64;
/// Until the flow looks again where a checkpoint would trim nothing.
const WITHOUT_TRIM: Duration = Duration::from_millis(50);
/// What a checkpoint appends to the log for pages that it leaves out: at most this part of what it
/// frees, and of the log.
const LATE_SHARE: u64 = 8;
const LATE_PART: u64 = 16;
/// The log is sealed after so long without a record.
const SEAL_AFTER: Duration = Duration::from_millis(100);
const ROOT_SIZE: usize = 48;
/// The layout of the root, and of the pages that it is the root of.
pub const ROOT_VERSION: u32 = 1;

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

    /// What a root says of its layout, whichever version wrote it.
    pub fn version(bytes: &[u8]) -> Option<u32> {
        bytes.get(..4)?.try_into().ok().map(u32::from_le_bytes)
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
    /// Writes a checkpoint of everything. Answers when its anchor is durable and the log trimmed.
    pub async fn checkpoint(self: &Rc<Self>) -> Result<(), ArrayError> {
        self.checkpoint_within(|_| 0).await
    }

    /// Writes a checkpoint that may leave pages out, for so much of the log.
    async fn checkpoint_within(self: &Rc<Self>, late: impl FnOnce(&Engine) -> u64) -> Result<(), ArrayError> {
        let _turn = self.checkpointing.turn().await;
        self.check_writable()?;
        self.take_back_cells();
        // A full log takes a checkpoint without its record; so does one after a failure, or
        // failures would fill it.
        let failed = self.checkpointing.is_failing();
        let cost = checkpoint_cost(&self.log);
        let reserve = |bytes| self.log.try_reserve(bytes, Purpose::Checkpoint);
        let mut reservation = if failed { None } else { reserve(cost + late(self)).or_else(|| reserve(cost)) };
        let (oldest, checkpoint) = loop {
            let rows = self.fetch_rows().await?;
            let volumes = self.fetch_volumes().await?;
            let lost = self.fetch_lost().await?;
            // The cut: from here to `begin_checkpoint` nothing waits. What changed during the
            // fetches is fetched too.
            let has_row = |row: &RowId| rows.binary_search_by_key(row, |(have, _)| *have).is_ok();
            let has_volume =
                |volume: &Rc<Volume>| volumes.binary_search_by_key(&volume.id, |(have, _)| have.id).is_ok();
            let complete = self.look(|core| {
                core.space.changed().iter().all(has_row)
                    && core.volumes.all().iter().all(has_volume)
                    && (!core.lost.is_changed() || core.lost.entries().len() <= lost.len() * LOST_PER_PAGE as usize)
            });
            if !complete {
                continue;
            }
            self.save_counts(&rows, &volumes, &lost);
            let root = Root {
                next_volume: self.look(|core| core.volumes.next),
                lost: self.look(|core| core.lost.entries().len()) as u32,
                generation_floor: self.look(|core| core.space.generation_floor),
                generation_high: self.look(|core| core.space.generation_high),
                scrub_age: self.scrub_age(),
                scrub_row: self.scrubbing.row(),
            };
            let oldest = self.oldest_needed();
            let (pinned, dirty, owed) =
                self.look(|core| (core.pins.oldest(), core.cache.oldest_dirty(), core.redo.oldest()));
            let kept = [pinned, dirty, owed].into_iter().flatten().all(|lsn| oldest <= lsn);
            assert!(kept, "invariant 9: the log would be trimmed above what is not on its strips");
            break (oldest, self.table.begin_checkpoint(&self.log, oldest, root.encode(), reservation.as_mut()));
        };
        drop(reservation);
        checkpoint.write().await?;
        self.checkpointing.succeeded(oldest);
        self.admission.make_room();
        self.warn_of_copies();
        Ok(())
    }

    /// Says once when the pool's own tables lie on fewer drives than they should.
    fn warn_of_copies(&self) {
        let lacks = self.table.lacks_copies();
        let is_news = self.checkpointing.note_copies(lacks.is_some());
        if let Some((copies, wanted)) = lacks.filter(|_| is_news) {
            self.alarm(
                AlarmKind::TableDegraded,
                Severity::Warning,
                None,
                format!(
                    "the pool's own tables lie on {copies} drives where {wanted} are wanted; return or replace missing drives"
                ),
            );
        }
    }

    /// Puts the pool's own tables on as many drives as its codes ask for: after a stronger code
    /// came, or drives did.
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

    /// In the order of their numbers.
    async fn fetch_rows(&self) -> Result<Vec<(RowId, PageRef)>, ArrayError> {
        let rows: Vec<RowId> = self.look(|core| core.space.changed().iter().copied().collect());
        let fetch = async |row: RowId| Ok((row, self.fetch(tables::row(row).0).await?));
        stream::iter(rows.into_iter().map(fetch)).buffered(AT_ONCE).try_collect().await
    }

    /// In the order of their numbers.
    async fn fetch_volumes(&self) -> Result<Vec<(Rc<Volume>, PageRef)>, ArrayError> {
        let mut pages = Vec::new();
        for volume in self.look(|core| core.volumes.all()) {
            let page = self.fetch(tables::volume(volume.id)).await?;
            pages.push((volume, page));
        }
        Ok(pages)
    }

    /// The pages of the list of lost stripes, if it has changed.
    async fn fetch_lost(&self) -> Result<Vec<PageRef>, ArrayError> {
        if !self.look(|core| core.lost.is_changed()) {
            return Ok(Vec::new());
        }
        let count = (self.look(|core| core.lost.entries().len()) as u32).div_ceil(LOST_PER_PAGE);
        let mut pages = Vec::new();
        for index in 0..count {
            pages.push(self.fetch(PageId { table: LOST, index }).await?);
        }
        Ok(pages)
    }

    fn save_counts(&self, rows: &[(RowId, PageRef)], volumes: &[(Rc<Volume>, PageRef)], lost: &[PageRef]) {
        let layout = self.layout.read();
        for (row, page) in rows {
            let at = tables::row(*row).1;
            if let Some(record) = layout.row(*row) {
                assert!(
                    record.class.kind == RowKind::Data,
                    "invariant 4: row {} of the tables is stored among those of data",
                    row.0
                );
                let used = self.look(|core| core.space.used(*row));
                page.change(|bytes| write_row(&mut bytes[at..at + ROW_ENTRY], record, used));
            }
            self.step(|core| core.space.saved(*row));
        }
        for (volume, page) in volumes.iter().filter(|(volume, _)| !volume.was_deleted()) {
            let stored =
                page.read(|bytes| bytes.get(8..16).and_then(|field| field.try_into().ok()).map(u64::from_le_bytes));
            if stored != Some(volume.mapped()) {
                page.change(|bytes| volume.encode(bytes));
            }
        }
        self.step(|core| {
            if core.lost.note_saved() {
                for (page, entries) in lost.iter().zip(core.lost.entries().chunks(LOST_PER_PAGE as usize)) {
                    page.change(|bytes| write_lost(bytes, entries));
                }
            }
        });
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
            if self.check_writable().is_err() || self.log.stopped().is_some() {
                return;
            }
            if self.standing.is_closing() {
                // The close writes its own, and if that fails the pool goes on.
                self.io.sleep(Duration::from_millis(50)).await;
                continue;
            }
            if self.log.wants_checkpoint() {
                self.drain_older_half().await;
                if let Err(error) = self.relog_stuck().await {
                    tracing::warn!("writes that cannot be destaged could not be appended anew: {error}");
                }
                let trims = self.oldest_needed() > self.checkpointing.trimmed();
                if !trims && !self.table.wants_checkpoint() && !self.checkpointing.is_failing() {
                    self.io.sleep(WITHOUT_TRIM).await;
                    continue;
                }
            }
            if let Err(error) = self.checkpoint_within(Engine::late_bytes).await {
                self.checkpoint_failed(error).await;
            }
            if self.log.wants_checkpoint() {
                // Nothing more can be trimmed before more is destaged.
                self.io.sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// Log for what changed in pages that are not stored: a part of what the checkpoint frees, so
    /// that it frees more than it takes.
    fn late_bytes(&self) -> u64 {
        (self.log.behind(self.oldest_needed()) / LATE_SHARE).min(self.log.size().0 / LATE_PART)
    }

    /// Says so once, and lets some time go by.
    async fn checkpoint_failed(&self, error: ArrayError) {
        tracing::warn!("checkpoint put off: {error}");
        if !self.checkpointing.is_failing() {
            let text = format!("no checkpoint can be written, and the log fills up: {error}");
            self.alarm(AlarmKind::LogDegraded, Severity::Critical, None, text);
        }
        self.checkpointing.failed(error, self.io.now());
        self.io.sleep(Duration::from_millis(500)).await;
    }

    /// Runs for the pool's life: seals the log a short time after its last group, so that damage to
    /// that group on every member is noticed. Under load nothing is written for it.
    pub async fn seal_flow(self: Rc<Self>) {
        loop {
            self.log.unsealed().await;
            let newest = self.log.next_lsn();
            self.io.sleep(SEAL_AFTER).await;
            if self.check_writable().is_err() {
                return;
            }
            if !self.standing.is_closing() && self.log.next_lsn() == newest && self.log.seal().await.is_err() {
                // The log has stopped.
                return;
            }
        }
    }

    async fn wait_for_table(&self) {
        loop {
            let changed = self.checkpointing.table_changed();
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
        // With the log nearly full there is no time to wait for more than something.
        let in_need = || {
            self.log.used().0 + self.log.reserved().0 > self.log.size().0 / 4 * 3
                && self.log.behind(self.oldest_needed()) > self.log.size().0 / 16
        };
        while self.oldest_needed() < middle && self.can_destage_below(middle) && self.io.now() < until && !in_need() {
            let changed = self.admission.room_made();
            self.destaging.want();
            let sleep = self.io.sleep_until(until);
            futures_util::pin_mut!(sleep, changed);
            futures_util::future::select(sleep, changed).await;
        }
    }

    /// Destages everything that was dirty at the call and can be destaged.
    pub async fn drain_dirty(self: &Rc<Self>) {
        self.destaging.begin_drain();
        let upto = self.log.next_lsn();
        let since = self.io.now();
        loop {
            let changed = self.admission.room_made();
            let open = self.can_destage_below(upto);
            if !open || self.out_of_patience(since) || self.check_writable().is_err() || self.log.stopped().is_some() {
                break;
            }
            self.destaging.want();
            let sleep = self.io.sleep(Duration::from_millis(50));
            futures_util::pin_mut!(sleep, changed);
            futures_util::future::select(sleep, changed).await;
        }
        self.destaging.end_drain();
    }
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

#[cfg(test)]
mod tests;
