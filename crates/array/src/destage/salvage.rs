//! Destage of a stripe of which something is lost for good: what is left of it moves to a new slot,
//! and what hosts write beside the lost units is kept. Nothing is invented: a lost unit never
//! verifies again until it is written whole.

use std::collections::BTreeSet;
use std::rc::Rc;

use stele_codes::Strips;
use stele_media::{Buffer, Priority};

use super::{Dirty, encode, overlay};
use crate::engine::Engine;
use crate::formats::entry::LOST;
use crate::model::ArrayError;
use crate::model::place::{Lsn, SlotId, StripeKey};
use crate::state::redo::StripWrite;
use crate::stripe::Stripe;
use crate::volumes::Volume;

impl Engine {
    /// A stripe of which something is lost for good moves to a new slot with what is left of it.
    /// Lost units stand as zeros in the parity and as lost in the digests, so that no read ever
    /// returns them. False while drives that are away may still bring them back, or when there is
    /// no slot to spare.
    pub(super) async fn destage_salvage(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        dirty: &Dirty,
        covers: Lsn,
    ) -> Result<bool, ArrayError> {
        let Some(of) = self.locate(volume, stripe).await? else { return Ok(false) };
        let old = Some(of.slot);
        self.salvage(volume, stripe, &of, old, dirty, covers).await
    }

    /// As `destage_salvage`, of a stripe that may be a base's: then nothing is given up for it, and
    /// a slot was promised.
    pub async fn salvage(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        of: &Stripe,
        old: Option<SlotId>,
        dirty: &Dirty,
        covers: Lsn,
    ) -> Result<bool, ArrayError> {
        let shape = Rc::clone(&of.shape);
        let every = 0..shape.units;
        let mut columns = self.read_columns(of, Strips::all(shape.k), every.clone(), Priority::Destage).await;
        if columns.lost.is_empty() || self.beyond_repair(of, &columns).is_empty() {
            return Ok(false);
        }
        let written = |strip: usize, unit: usize| {
            let mut blocks = unit * shape.unit_blocks()..(unit + 1) * shape.unit_blocks();
            blocks.all(|block| dirty.contains((strip * shape.strip_blocks() + block) as u32))
        };
        let lost: BTreeSet<(usize, usize)> =
            columns.lost.iter().copied().filter(|(strip, unit)| !written(*strip, *unit)).collect();
        let hoped_for = lost.iter().any(|(strip, unit)| of.digest(*strip, *unit) != LOST);
        if hoped_for && !self.may_discard(of, &columns).await? {
            return Ok(false);
        }
        let Some(allocation) = self.allocate(volume, stripe, old.is_none()).await? else { return Ok(false) };
        let mut strips: Vec<Buffer> =
            columns.strips.drain(..).map(|strip| strip.unwrap_or_else(|| Buffer::zeroed(shape.strip))).collect();
        for (strip, unit) in &columns.lost {
            strips[*strip][shape.bytes_of(*unit..*unit + 1)].fill(0);
        }
        overlay(&shape, dirty, &every, &mut strips);
        for (strip, unit) in &lost {
            // A unit of which only a part was written again stays lost as a whole.
            strips[*strip][shape.bytes_of(*unit..*unit + 1)].fill(0);
        }
        encode(&shape, &mut strips);
        let binding = self.binding(allocation.slot, allocation.generation);
        let mut digests = Vec::with_capacity(shape.digests());
        let mut writes = Vec::new();
        for (strip, buffer) in strips.into_iter().enumerate() {
            for (unit, data) in buffer.chunks(shape.unit_bytes).enumerate() {
                let is_lost = lost.contains(&(shape.source_of(strip), unit));
                digests.push(if is_lost { LOST } else { binding.digest(strip, unit, data) });
            }
            writes.push(StripWrite { strip, at: 0, data: vec![buffer.freeze()] });
        }
        let stored = self.store_slot(volume, stripe, allocation, old, covers, digests, writes, Priority::Destage).await;
        if stored.is_err() {
            self.abandon(allocation);
        }
        self.settle_map(StripeKey { volume: volume.id, stripe }, stored?, old).await?;
        Ok(true)
    }
}
