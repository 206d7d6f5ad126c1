//! One strip of a stripe goes to where it belongs, under the stripe's lock: what is not plain of a
//! run, and what hosts had to have reconstructed.

use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::VolumeId;
use stele_media::Priority;

use super::Placed;
use crate::durable::log::Purpose;
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::formats::entry;
use crate::formats::map::Home;
use crate::model::ArrayError;
use crate::model::place::{SlotId, StripeKey};
use crate::state::redo::StripWrite;
use crate::stripe::{StripPlace, Stripe, runs};

impl Engine {
    /// Brings one strip to where it belongs: the replacement (`to_spare`), or home.
    pub(super) async fn place_strip(
        self: &Rc<Self>,
        volume: VolumeId,
        stripe: u64,
        slot: SlotId,
        member: usize,
        to_spare: bool,
    ) -> Result<Placed, ArrayError> {
        let key = StripeKey { volume, stripe };
        let placed = self.place_strip_of(key, slot, member, to_spare).await?;
        match placed {
            Placed::There => self.losses_seen.note_waiting(slot, member as u8, None),
            Placed::Waits => self.losses_seen.note_waiting(slot, member as u8, Some(key)),
            Placed::Again => {}
        }
        Ok(placed)
    }

    async fn place_strip_of(
        self: &Rc<Self>,
        key: StripeKey,
        slot: SlotId,
        member: usize,
        to_spare: bool,
    ) -> Result<Placed, ArrayError> {
        let StripeKey { volume, stripe } = key;
        let Some(volume) = self.look(|core| core.volumes.get(volume)) else {
            return self.after_hand_over(slot, key).await;
        };
        // Before the lock: a destage that keeps the log may need the stripe.
        let moved_to = |generation| Record::Moved { slot, generation, strip: member as u8, replaced: to_spare };
        let mut room = self.log.reserve(self.log.cost(&moved_to(0)), Purpose::Inside).await?;
        let _guard = self.locks.exclusive(volume.id, stripe).await;
        if self.home(key).await? != Home::Slot(slot) {
            return self.after_hand_over(slot, key).await;
        }
        let Some(of) = self.locate(&volume, stripe).await? else { return Ok(Placed::There) };
        let (page, at) = self.slot_page(&of.shape, slot).await?;
        let moved = page.read(|bytes| entry::head(bytes, at)).exceptions >> member & 1 == 1;
        let Some(target) = self.target(&of, member, to_spare) else { return Ok(Placed::There) };
        if moved == to_spare && to_spare && self.drives.is_sound(target.cell.drive) {
            return Ok(Placed::There);
        }
        let mut columns = self.read_columns(&of, Strips::of([member]), 0..of.shape.units, Priority::Rebuild).await;
        if moved && !to_spare && self.find_at_home(&of, target, member, &mut columns).await {
            // It may be listed as lost, and is so no more.
            self.ask_repair(StripeKey { volume: volume.id, stripe });
        }
        if !columns.lost.is_empty() {
            // Written only if it is what it was; else listed, never filled in.
            if of.hopes_for(&columns) && self.may_come_back(&of, &columns) {
                // Drives that are only away may bring it back: until then the member is not whole.
                self.note_undone(slot.row, member as u8);
                return Ok(Placed::Waits);
            }
            // The way home gives the spare cell up, and what its drive cannot read just now with
            // it. The way to the spare cell gives up what lies at home. From then on the strip
            // would count as redundancy, and another drive, which cannot read just now either, as
            // one that can be spared.
            if of.hopes_for(&columns) && moved != to_spare && !self.may_discard(&of, &columns).await? {
                self.note_undone(slot.row, member as u8);
                self.rebuilding.wait_for_looks();
                return Ok(Placed::Waits);
            }
            if !volume.has_lost(stripe) {
                self.record_lost(&of, Strips::of([member])).await?;
                self.note_lost(&volume, stripe);
            }
        }
        let in_place = moved == to_spare;
        // What verifies only under an image that it is owed is not there: images do not stay long.
        let mut amiss = columns.repair.iter().chain(&columns.owed);
        let whole = amiss.all(|(strip, _)| *strip != member) && columns.lost.is_empty();
        let Some(data) = columns.strips.into_iter().nth(member).flatten() else { return Ok(Placed::Again) };
        if in_place && whole && self.drives.index(target.cell.drive).is_some() {
            return Ok(Placed::There);
        }
        // Units that are lost are not written: whatever lies there fails their digests.
        let good = (0..of.shape.units).filter(|unit| !columns.lost.contains(&(member, *unit)));
        let data = data.freeze();
        let writes: Vec<StripWrite> = runs(good)
            .into_iter()
            .map(|run| of.shape.bytes_of(run))
            .map(|bytes| StripWrite { strip: member, at: bytes.start, data: vec![data.slice(bytes)] })
            .collect();
        let mut there = of.clone();
        there.places[member] = target;
        if self.drives.index(target.cell.drive).is_none() {
            return Ok(Placed::Again);
        }
        let since = self.drives.labels.attachments();
        let unwritten = self.write_strips(&there, writes, Priority::Rebuild).await;
        let unflushed = self.flush_strips(&there, Strips::of([member]).without(unwritten), since).await;
        if !unwritten.is_empty() || !unflushed.is_empty() {
            return Ok(Placed::Again);
        }
        self.count_placed(slot.row, member);
        if !in_place {
            let record = moved_to(of.generation);
            let pages = self.pages_for(&record).await?;
            self.append(&record, &pages, &mut room);
            self.look_again(&of.shape, slot).await?;
        }
        Ok(Placed::There)
    }

    /// The stripe is not in the slot any more. Where a snapshot was deleted, the slot may be that
    /// of the layer above it now: then its strips are still to be placed.
    async fn after_hand_over(&self, slot: SlotId, key: StripeKey) -> Result<Placed, ArrayError> {
        let Some(shape) = self.row_shape(slot) else { return Ok(Placed::There) };
        let head = self.slot_head(&shape, slot).await?;
        let is_other = !head.is_free() && (VolumeId(head.volume), head.stripe) != (key.volume, key.stripe);
        Ok(if is_other { Placed::Again } else { Placed::There })
    }

    pub(super) fn target(&self, of: &Stripe, member: usize, to_spare: bool) -> Option<StripPlace> {
        let exceptions = if to_spare { 1 << member } else { 0 };
        let layout = self.layout.read();
        let has = layout.row(of.slot.row)?.members.get(member)?.replacement.is_some();
        drop(layout);
        if to_spare && !has {
            return None;
        }
        self.places(&of.shape, of.slot, exceptions).get(member).copied()
    }
}
