//! Finding a stripe: from its number to its slot, and from the slot to the places of its strips.

use std::rc::Rc;

use stele_ground::VolumeId;

use crate::durable::table::PageRef;
use crate::engine::Engine;
use crate::formats::entry::{self, Binding, DigestKind, Head};
use crate::formats::map::{self, Home};
use crate::formats::shape::Shape;
use crate::formats::tables;
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::{PageId, SlotId, StripeKey};
use crate::stripe::{StripPlace, Stripe};
use crate::volumes::Volume;

impl Engine {
    pub fn map_page_id(volume: VolumeId, stripe: u64) -> (PageId, usize) {
        let (index, at) = map::locate(stripe);
        (PageId { table: tables::map(volume), index }, at)
    }

    pub async fn map_page(&self, key: StripeKey) -> Result<(PageRef, usize), ArrayError> {
        let (id, at) = Engine::map_page_id(key.volume, key.stripe);
        let page = match self.table.cached(id) {
            Some(page) => page,
            None => Box::pin(self.table.page(id)).await?,
        };
        Ok((page, at))
    }

    pub async fn home(&self, key: StripeKey) -> Result<Home, ArrayError> {
        let (page, at) = self.map_page(key).await?;
        Ok(page.read(|bytes| map::get(bytes, at)))
    }

    pub fn slot_page_id(shape: &Shape, slot: SlotId) -> (PageId, usize) {
        let (index, at) = entry::locate(shape, slot.index);
        (PageId { table: tables::slots(slot.row), index }, at)
    }

    pub async fn slot_page(&self, shape: &Shape, slot: SlotId) -> Result<(PageRef, usize), ArrayError> {
        let (id, at) = Engine::slot_page_id(shape, slot);
        let page = match self.table.cached(id) {
            Some(page) => page,
            None => Box::pin(self.table.page(id)).await?,
        };
        Ok((page, at))
    }

    pub async fn slot_head(&self, shape: &Shape, slot: SlotId) -> Result<Head, ArrayError> {
        let (page, at) = self.slot_page(shape, slot).await?;
        Ok(page.read(|bytes| entry::head(bytes, at)))
    }

    /// How the digests of a slot that is filled now are made.
    pub fn binding(&self, slot: SlotId, generation: u64) -> Binding {
        let kind = if self.io.is_disabled(Mutation::StrongDigest) { DigestKind::Crc32c } else { DigestKind::Xxh3 };
        Binding::new(kind, self.pool, slot, generation)
    }

    /// The picture of a stripe in its slot, now; none when the slot belongs to another stripe.
    pub fn picture(&self, volume: &Volume, stripe: u64, slot: SlotId, page: &PageRef, at: usize) -> Option<Stripe> {
        let shape = &volume.shape;
        let (head, digests) = page.read(|bytes| {
            let head = entry::head(bytes, at);
            let digests: Vec<u32> = (0..shape.digests()).map(|index| entry::digest(bytes, at, index)).collect();
            (head, digests)
        });
        if head.is_free() || head.volume != volume.id.0 || head.stripe != stripe {
            return None;
        }
        Some(Stripe {
            volume: volume.id,
            stripe,
            slot,
            generation: head.generation,
            shape: Rc::clone(shape),
            places: self.places(shape, slot, head.exceptions),
            digests,
            binding: Binding::new(head.digests, self.pool, slot, head.generation),
        })
    }

    /// Where the strips of a slot lie under an exception mask.
    pub fn places(&self, shape: &Shape, slot: SlotId, exceptions: u32) -> Vec<StripPlace> {
        let layout = self.layout.read();
        let configuration = self.drives.labels.configuration();
        let row = layout.row(slot.row);
        let members = row.iter().flat_map(|row| row.members.iter()).enumerate();
        members
            .map(|(strip, member)| {
                let cell = match member.replacement {
                    Some(cell) if exceptions >> strip & 1 == 1 => cell,
                    _ => member.cell,
                };
                StripPlace { cell, at: configuration.cell_at(cell) + u64::from(slot.index) * shape.strip as u64 }
            })
            .collect()
    }

    /// The stripe as it is mapped now, with its lock held by the caller; none while it owns no
    /// slot.
    pub async fn locate(&self, volume: &Volume, stripe: u64) -> Result<Option<Stripe>, ArrayError> {
        let key = StripeKey { volume: volume.id, stripe };
        let Home::Slot(slot) = self.home(key).await? else { return Ok(None) };
        let (page, at) = self.slot_page(&volume.shape, slot).await?;
        match self.picture(volume, stripe, slot, &page, at) {
            Some(picture) => Ok(Some(picture)),
            None => Err(ArrayError::Damaged(format!(
                "the map of volume '{}' puts stripe {stripe} into {slot}, whose entry names another; restore the pool",
                volume.name()
            ))),
        }
    }
}
