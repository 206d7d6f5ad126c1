//! What each record does to the pool's state: one synchronous function for the live path and for
//! replay.
//!
//! `pages_for` fetches what a record will touch; `apply` then changes tables, layout, volumes and
//! cache in one step. Replay calls `apply_cache` alone for records below the checkpoint's cut,
//! whose tables already hold them.

use std::rc::Rc;

use stele_ground::VolumeId;
use stele_ground::digest::fingerprint;

use crate::cache::DirtyBlock;
use crate::durable::records::Record;
use crate::durable::table::PageRef;
use crate::engine::{Core, Engine, Surroundings};
use crate::formats::entry::{self, DigestKind, Head, LOST};
use crate::formats::map::{self, Home};
use crate::formats::shape::Shape;
use crate::formats::tables;
use crate::model::ArrayError;
use crate::model::place::{BlockKey, Lsn, PageId, RowId, SlotId, StripeKey};
use crate::space::layout::{Layout, RowKind};
use crate::volumes::Volume;

/// Pages fetched for one record, by id.
#[derive(Default)]
pub struct Pages(Vec<(PageId, PageRef)>);

impl Pages {
    pub(crate) fn get(&self, id: PageId) -> &PageRef {
        let found = self.0.iter().find(|(have, _)| *have == id);
        &found.unwrap_or_else(|| panic!("{id} was not fetched for the record that changes it")).1
    }
}

impl Engine {
    /// Fetches the pages a record changes.
    pub async fn pages_for(&self, record: &Record) -> Result<Pages, ArrayError> {
        let mut pages = Pages::default();
        for id in self.page_ids(record)? {
            let page = match self.table.cached(id) {
                Some(page) => page,
                None => Box::pin(self.table.page(id)).await?,
            };
            pages.0.push((id, page));
        }
        Ok(pages)
    }

    /// Which pages those are.
    pub fn page_ids(&self, record: &Record) -> Result<Vec<PageId>, ArrayError> {
        let mut ids: Vec<PageId> = Vec::new();
        match record {
            Record::Map { volume, stripe, slot, old, .. } => {
                let volume = self.volume(*volume)?;
                ids.push(Engine::map_page_id(volume.id, *stripe).0);
                ids.push(Engine::slot_page_id(&volume.shape, *slot).0);
                ids.extend(old.map(|old| Engine::slot_page_id(&volume.shape, old).0));
            }
            Record::Unmap { volume, stripe, slot, .. } => {
                let volume = self.volume(*volume)?;
                ids.push(Engine::map_page_id(volume.id, *stripe).0);
                ids.extend(slot.map(|slot| Engine::slot_page_id(&volume.shape, slot).0));
            }
            Record::Redo { volume, slot, .. } => {
                let volume = self.volume(*volume)?;
                ids.push(Engine::slot_page_id(&volume.shape, *slot).0);
            }
            Record::Moved { slot, .. } => {
                if let Some(shape) = self.row_shape(*slot) {
                    ids.push(Engine::slot_page_id(&shape, *slot).0);
                }
            }
            Record::Adopted { from, to, stripe, slot } => {
                let to = self.volume(*to)?;
                ids.push(Engine::map_page_id(*from, *stripe).0);
                ids.push(Engine::map_page_id(to.id, *stripe).0);
                ids.extend(slot.map(|slot| Engine::slot_page_id(&to.shape, slot).0));
            }
            Record::VolumeDelete { volume } => {
                ids.push(tables::volume(*volume));
                ids.extend(
                    self.look(|core| core.volumes.standing_on(*volume)).iter().map(|volume| tables::volume(volume.id)),
                );
            }
            Record::Layer { new } => ids.extend([new.layer, new.former].map(tables::volume)),
            Record::Patches { pages } => ids.extend(pages.iter().map(|patch| patch.id)),
            Record::RowCreate { row } => ids.push(tables::row(row.id).0),
            Record::RowFree { row } => ids.push(tables::row(*row).0),
            Record::Replacement { row, .. } | Record::MemberChanged { row, .. } => ids.push(tables::row(*row).0),
            Record::VolumeCreate { volume, .. }
            | Record::GivenUp { volume }
            | Record::VolumeReadAhead { volume, .. }
            | Record::VolumeResize { volume, .. }
            | Record::VolumeProtect { volume, .. }
            | Record::VolumeMode { volume, .. } => ids.push(tables::volume(*volume)),
            Record::Checkpoint { .. }
            | Record::Seal
            | Record::Write { .. }
            | Record::Zero { .. }
            | Record::Destaged { .. }
            | Record::Lost { .. }
            | Record::DriveState { .. } => {}
        }
        Ok(ids)
    }

    /// The shape of the stripes in a slot's row.
    pub fn row_shape(&self, slot: SlotId) -> Option<Shape> {
        self.look(|core| core.row_shape(slot))
    }

    /// Frees cells whose release has become durable. Answers the record that the next ones wait
    /// for.
    pub fn take_back_cells(&self) -> Option<Lsn> {
        self.step(|core| self.give_back(core))
    }

    /// As `take_back_cells`, of all cells that were given up so far.
    pub async fn settle_cells(&self) -> Result<(), ArrayError> {
        while let Some(lsn) = self.take_back_cells() {
            self.log.durable(lsn).await?;
        }
        Ok(())
    }
}

impl Surroundings {
    pub fn apply(&self, core: &mut Core, lsn: Lsn, record: &Record, pages: &Pages) {
        self.apply_tables(core, lsn, record, pages);
        self.apply_cache(core, lsn, record);
    }

    /// Tables, layout and volumes.
    fn apply_tables(&self, core: &mut Core, lsn: Lsn, record: &Record, pages: &Pages) {
        match record {
            Record::Map { volume, stripe, slot, generation, old, kind, digests, .. } => {
                let Some(volume) = core.volumes.get(*volume) else { return };
                self.apply_map(core, &volume, *stripe, *slot, *generation, *old, *kind, digests, pages);
            }
            Record::Unmap { volume, stripe, slot, zero, .. } => {
                let Some(volume) = core.volumes.get(*volume) else { return };
                let home = if *zero { Home::Zero } else { Home::Unmapped };
                self.set_home(&volume, *stripe, home, pages);
                if let Some(slot) = slot {
                    self.free_slot(core, &volume, *stripe, *slot, pages);
                    volume.note_unmapped();
                    if volume.spec().fully_allocated {
                        core.space.promise(volume.class, 1);
                    }
                    self.list_lost(core, StripeKey { volume: volume.id, stripe: *stripe }, false);
                }
                self.break_promise(core, &volume, *stripe);
            }
            Record::Redo { volume, slot, generation, digests, .. } => {
                let Some(volume) = core.volumes.get(*volume) else { return };
                let (id, at) = Engine::slot_page_id(&volume.shape, *slot);
                let page = pages.get(id);
                let head = page.read(|bytes| entry::head(bytes, at));
                assert_eq!(
                    head.generation, *generation,
                    "invariant 15: an in-place write to {slot} of another generation"
                );
                assert_eq!(head.references, 1, "invariant 5: an in-place write to {slot}, which is shared or free");
                page.patch(digests.iter().map(|new| {
                    let index = volume.shape.digest_index(usize::from(new.strip), new.unit as usize);
                    (entry::digest_at(at, index), new.digest)
                }));
            }
            Record::Moved { slot, generation, strip, replaced } => {
                let Some(shape) = core.row_shape(*slot) else { return };
                let (id, at) = Engine::slot_page_id(&shape, *slot);
                pages.get(id).change(|bytes| {
                    let mut head = entry::head(bytes, at);
                    if head.generation == *generation && !head.is_free() {
                        let bit = 1 << strip;
                        head.exceptions = if *replaced { head.exceptions | bit } else { head.exceptions & !bit };
                        entry::set_head(bytes, at, &head);
                    }
                });
            }
            Record::RowCreate { row } => {
                self.layout.write().insert_row(row.clone());
                core.space.add_row(row, 0);
                self.save_row(core, row.id, pages);
            }
            Record::RowFree { row } => {
                // A number used again must not meet its former generations.
                core.space.generation_floor = core.space.generation_high;
                core.space.remove_row(*row);
                self.release_cells(core, lsn, |layout| layout.remove_row(*row));
                self.table.forget(tables::slots(*row));
                let (id, at) = tables::row(*row);
                pages.get(id).change(|bytes| bytes[at..at + tables::ROW_ENTRY].fill(0));
            }
            // Former versions recorded this of a row that was gone, and whose number the tables had
            // taken since.
            Record::Replacement { row, .. } | Record::MemberChanged { row, .. } if self.is_of_tables(*row) => {}
            Record::Replacement { row, member, cell } => {
                self.release_cells(core, lsn, |layout| layout.set_replacement(*row, usize::from(*member), *cell));
                self.save_row(core, *row, pages);
            }
            Record::MemberChanged { row, member, cell } => {
                self.release_cells(core, lsn, |layout| layout.change_member(*row, usize::from(*member), *cell));
                self.save_row(core, *row, pages);
            }
            Record::VolumeCreate { volume, spec } => {
                let volume = Rc::new(Volume::new(*volume, spec.clone()));
                core.cache.add_volume(volume.id, volume.shape.blocks());
                if spec.fully_allocated {
                    core.space.promise(volume.class, volume.stripes());
                }
                pages.get(tables::volume(volume.id)).change(|bytes| volume.encode(bytes));
                core.volumes.insert(volume);
            }
            Record::VolumeDelete { volume } => self.apply_delete(core, *volume, pages),
            Record::VolumeResize { volume, size } => {
                self.change_volume(core, *volume, pages, |core, volume| {
                    let before = volume.stripes();
                    volume.change_spec(|spec| spec.size = *size);
                    let after = volume.stripes();
                    match volume.spec().fully_allocated {
                        true if after >= before => core.space.promise(volume.class, after - before),
                        // No stripe behind the new end has a slot, so each had one promised.
                        true => core.space.release(volume.class, before - after),
                        false => {}
                    }
                });
            }
            Record::VolumeProtect { volume, retained } => {
                self.change_volume(core, *volume, pages, |_, volume| volume.set_retained(*retained));
            }
            Record::VolumeMode { volume, mode } => {
                self.change_volume(core, *volume, pages, |_, volume| volume.change_spec(|spec| spec.mode = *mode));
            }
            Record::Lost { volume, stripe, strips, .. } => {
                self.list_lost(core, StripeKey { volume: *volume, stripe: *stripe }, *strips != 0);
            }
            Record::Layer { new } => self.apply_layer(core, new, pages),
            Record::Patches { pages: patches } => {
                for patch in patches {
                    pages.get(patch.id).patch(patch.words.iter().map(|(at, word)| (usize::from(*at), *word)));
                }
            }
            Record::GivenUp { volume } => {
                self.change_volume(core, *volume, pages, |core, volume| self.apply_given_up(core, volume))
            }
            Record::Adopted { from, to, stripe, slot } => {
                let (Some(from), Some(to)) = (core.volumes.get(*from), core.volumes.get(*to)) else { return };
                self.apply_adopted(core, &from, &to, *stripe, *slot, pages);
            }
            Record::VolumeReadAhead { volume, stripes } => self.change_volume(core, *volume, pages, |_, volume| {
                if let Some(handle) = volume.handle() {
                    handle.ahead.set_stripes(*stripes);
                }
            }),
            Record::Checkpoint { .. }
            | Record::Seal
            | Record::Write { .. }
            | Record::Zero { .. }
            | Record::Destaged { .. }
            | Record::DriveState { .. } => {}
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn apply_map(
        &self,
        core: &mut Core,
        volume: &Rc<Volume>,
        stripe: u64,
        slot: SlotId,
        generation: u64,
        old: Option<SlotId>,
        kind: DigestKind,
        digests: &[u32],
        pages: &Pages,
    ) {
        let shape = &volume.shape;
        assert_eq!(digests.len(), shape.digests(), "a mapping brings one digest for every unit");
        let exceptions = self.layout.read().fresh_exceptions(slot.row);
        let (id, at) = Engine::slot_page_id(shape, slot);
        pages.get(id).change(|bytes| {
            let former = entry::head(bytes, at);
            assert!(former.is_free(), "invariant 4: {slot} is given to stripe {stripe} and is owned already");
            assert!(generation > former.generation, "invariant 6: the generation of {slot} must grow");
            let head = Head { references: 1, volume: volume.id.0, stripe, generation, exceptions, digests: kind };
            entry::set_head(bytes, at, &head);
            for (index, digest) in digests.iter().enumerate() {
                entry::set_digest(bytes, at, index, *digest);
            }
        });
        core.space.generation_high = core.space.generation_high.max(generation);
        core.space.count(slot, true);
        match old {
            Some(old) => self.free_slot(core, volume, stripe, old, pages),
            None => {
                volume.note_mapped();
                if volume.spec().fully_allocated {
                    core.space.release(volume.class, 1);
                }
            }
        }
        self.set_home(volume, stripe, Home::Slot(slot), pages);
        self.break_promise(core, volume, stripe);
        // A stripe written whole anew is lost no more, unless the mapping itself says so.
        self.list_lost(core, StripeKey { volume: volume.id, stripe }, digests.contains(&LOST));
    }

    /// The stripe needs its promised slot no longer.
    pub(crate) fn break_promise(&self, core: &mut Core, volume: &Volume, stripe: u64) {
        if core.promised.remove(&StripeKey { volume: volume.id, stripe }) {
            core.space.release(volume.class, 1);
        }
    }

    fn set_home(&self, volume: &Volume, stripe: u64, home: Home, pages: &Pages) {
        let (id, at) = Engine::map_page_id(volume.id, stripe);
        pages.get(id).change(|bytes| map::set(bytes, at, home));
    }

    /// Makes a change of the layout that may give cells up. They are free when its record is
    /// durable: a crash before that gives them back to whom they belonged, and what lies on them
    /// must still be theirs.
    fn release_cells(&self, core: &mut Core, lsn: Lsn, change: impl FnOnce(&mut Layout)) {
        let cells = self.layout.write().withhold(change);
        if !cells.is_empty() {
            core.withheld.push_back((lsn, cells));
        }
        self.give_back(core);
    }

    /// Frees cells whose release has become durable. Answers the record that the next ones wait
    /// for.
    fn give_back(&self, core: &mut Core) -> Option<Lsn> {
        let durable = self.log.durable_lsn();
        while core.withheld.front().is_some_and(|(lsn, _)| *lsn <= durable)
            && let Some((_, cells)) = core.withheld.pop_front()
        {
            self.layout.write().give_back(&cells);
        }
        core.withheld.front().map(|(lsn, _)| *lsn)
    }

    /// One reference less; the caller holds the slot back from reuse until the record is durable
    /// (invariant 5). A slot that others refer to stays as it is.
    fn free_slot(&self, core: &mut Core, volume: &Volume, stripe: u64, slot: SlotId, pages: &Pages) {
        let (id, at) = Engine::slot_page_id(&volume.shape, slot);
        let left = pages.get(id).change(|bytes| {
            let mut head = entry::head(bytes, at);
            let owned = head.volume == volume.id.0 && head.stripe == stripe;
            assert!(
                head.references > 1 || head.references == 1 && owned,
                "invariant 4: {slot} is freed by stripe {stripe}, which does not own it"
            );
            head.references -= 1;
            if head.is_free() {
                head.exceptions = 0;
            }
            entry::set_head(bytes, at, &head);
            head.references
        });
        if left == 0 {
            self.losses_seen.freed(slot);
            core.space.count(slot, false);
        }
    }

    fn is_of_tables(&self, row: RowId) -> bool {
        self.layout.read().row(row).is_some_and(|row| row.class.kind == RowKind::Table)
    }

    fn save_row(&self, core: &Core, row: RowId, pages: &Pages) {
        let (id, at) = tables::row(row);
        let layout = self.layout.read();
        let Some(record) = layout.row(row) else { return };
        // Where those lie is in the anchor alone.
        assert!(
            record.class.kind == RowKind::Data,
            "invariant 4: row {} of the tables is stored among those of data",
            row.0
        );
        let used = core.space.used(row);
        pages.get(id).change(|bytes| write_row(&mut bytes[at..at + tables::ROW_ENTRY], record, used));
    }

    fn change_volume(&self, core: &mut Core, id: VolumeId, pages: &Pages, change: impl FnOnce(&mut Core, &Volume)) {
        let Some(volume) = core.volumes.get(id) else { return };
        change(core, &volume);
        pages.get(tables::volume(id)).change(|bytes| volume.encode(bytes));
    }

    fn apply_delete(&self, core: &mut Core, id: VolumeId, pages: &Pages) {
        let Some(volume) = core.volumes.remove(id) else { return };
        assert!(!volume.is_retained(), "a volume with retained records is never deleted");
        assert_eq!(volume.mapped(), 0, "invariant 4: volume {id} is deleted and still owns slots");
        volume.note_deleted();
        if volume.spec().fully_allocated {
            core.space.release(volume.class, volume.stripes() - volume.mapped());
        }
        // Promised to writes that came too late.
        let of_it = |key: &StripeKey| key.volume == id;
        let promised = core.promised.iter().filter(|key| of_it(key)).count() as u64;
        core.space.release(volume.class, promised);
        core.forget_stripes(of_it);
        self.destaging.forget(of_it);
        for stripe in volume.lost() {
            volume.set_lost(stripe, false);
            self.list_lost(core, StripeKey { volume: id, stripe }, false);
        }
        self.rebase(core, &volume, pages);
        self.table.forget(tables::map(id));
        // The page stays, empty, so that the number is known to have been used.
        pages.get(tables::volume(id)).change(|bytes| bytes.fill(0));
    }

    /// Enters a stripe into the list of lost ones, or takes it off.
    pub fn list_lost(&self, core: &mut Core, key: StripeKey, lost: bool) {
        let volume = core.volumes.get(key.volume);
        core.lost.set(key, lost);
        if let Some(volume) = volume {
            volume.set_lost(key.stripe, lost);
        }
    }

    /// Dirty and clean blocks.
    pub fn apply_cache(&self, core: &mut Core, lsn: Lsn, record: &Record) {
        let cache = &mut core.cache;
        match record {
            Record::Write { volume, at, data } => {
                let mut block = at / stele_ground::BLOCK as u64;
                for piece in data {
                    for at in (0..piece.len()).step_by(stele_ground::BLOCK) {
                        let key = BlockKey { volume: *volume, block };
                        let data = piece.slice(at..at + stele_ground::BLOCK);
                        let fingerprint = fingerprint(&data);
                        cache.put_dirty(key, DirtyBlock { lsn, data, fingerprint, is_lean: false });
                        block += 1;
                    }
                }
                return;
            }
            Record::Zero { volume, at, length, .. } => {
                let zeros = crate::cache::zero_block();
                let blocks = at / stele_ground::BLOCK as u64..(at + length) / stele_ground::BLOCK as u64;
                let zeros = DirtyBlock { lsn, fingerprint: fingerprint(&zeros), data: zeros, is_lean: false };
                for block in blocks {
                    cache.put_dirty(BlockKey { volume: *volume, block }, zeros.clone());
                }
                return;
            }
            // Whatever the cache holds up to there is in the slot now; clean copies may be older
            // than the slot.
            Record::Map { volume, stripe, covers, .. } | Record::Unmap { volume, stripe, covers, .. } => {
                let key = StripeKey { volume: *volume, stripe: *stripe };
                cache.drop_stripe(key, *covers);
                self.destaging.forgive(key);
            }
            Record::Destaged { volume, stripe, covers } => {
                let key = StripeKey { volume: *volume, stripe: *stripe };
                cache.settle(key, *covers);
                self.destaging.forgive(key);
            }
            // No layer looks through the old one any more; what is clean is read again.
            Record::Adopted { from, stripe, .. } => {
                cache.drop_stripe(StripeKey { volume: *from, stripe: *stripe }, Lsn(0));
            }
            Record::VolumeDelete { volume } => cache.remove_volume(*volume),
            _ => return,
        }
        // Whatever brought this about, dirty blocks may be fewer now.
        self.destaging.settle(self.io.now());
        self.admission.make_room();
    }
}

/// A row's record and its count of stripes, as stored in the row table.
pub fn write_row(out: &mut [u8], row: &crate::space::layout::Row, used: u32) {
    out.fill(0);
    out[..4].copy_from_slice(&1u32.to_le_bytes());
    out[4..8].copy_from_slice(&used.to_le_bytes());
    let mut w = crate::formats::codec::Writer::new(&mut out[8..]);
    row.encode(&mut w);
}

/// A row's record and its count of stripes; none where there is no row.
pub fn read_row(bytes: &[u8]) -> Result<Option<(crate::space::layout::Row, u32)>, ArrayError> {
    let mut r = crate::formats::codec::Reader::new(stele_media::Shared::copy_from_slice(bytes));
    let damaged = || ArrayError::Damaged("a row record makes no sense; restore the pool".into());
    if r.u32().ok_or_else(damaged)? == 0 {
        return Ok(None);
    }
    let used = r.u32().ok_or_else(damaged)?;
    Ok(Some((crate::space::layout::Row::decode(&mut r).ok_or_else(damaged)?, used)))
}
