//! Writes that are not whole blocks of 4096 bytes: the blocks at their ends are read, changed and
//! written whole, under the stripe's lock, so that nothing comes between reading and appending.
//! What is between the ends is written as usual. Log space and room among the dirty blocks are had
//! before the lock is taken: the destage that makes room may need it.

use std::rc::Rc;

use stele_ground::BLOCK;
use stele_media::{Buffer, Shared};

use crate::cache::Held;
use crate::durable::log::{FlushUrgency, Purpose};
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::engine::apply::Pages;
use crate::hosts::write::{contiguous, slice_of};
use crate::model::ArrayError;
use crate::model::place::{BlockKey, Lsn, StripeKey};
use crate::volumes::Volume;

impl Engine {
    /// A write that begins or ends within a 4096-byte block: those blocks by themselves, what is
    /// between them as usual.
    pub async fn write_unaligned(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        at: u64,
        data: Vec<Shared>,
        length: usize,
    ) -> Result<Lsn, ArrayError> {
        let block = BLOCK as u64;
        let end = at + length as u64;
        let first = at.next_multiple_of(block).min(end);
        let last = (end / block * block).max(first);
        let mut newest = Lsn(0);
        for (from, to) in [(at, first), (first, last), (last, end)] {
            let (skip, length) = ((from - at) as usize, (to - from) as usize);
            if length == 0 {
                continue;
            }
            let piece = slice_of(&data, skip, length);
            let lsn = match from.is_multiple_of(block) && length.is_multiple_of(BLOCK) {
                true => self.write_small(volume, from, piece, length, FlushUrgency::Now).await?,
                false => self.write_unaligned_part(volume, from, piece).await?,
            };
            newest = newest.max(lsn);
        }
        Ok(newest)
    }

    /// A part of one block: the block is read, changed and written whole.
    async fn write_unaligned_part(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        at: u64,
        data: Vec<Shared>,
    ) -> Result<Lsn, ArrayError> {
        let data = contiguous(&self.io, data);
        let number = at / BLOCK as u64;
        let stripe = at / volume.shape.data();
        let key = StripeKey { volume: volume.id, stripe };
        let inside = (number % u64::from(volume.shape.blocks())) as u32;
        let cost = self.log.cost_of(64 + BLOCK) + self.destage_cost(&volume.shape, 1);
        // Room is waited for without the stripe's lock, which the destage that makes room may need.
        let mut reservation = match self.log.try_reserve(cost, Purpose::Host) {
            Some(reservation) => reservation,
            None => self.reserve_for_host(cost).await?,
        };
        loop {
            self.check_can_wait(volume, stripe)?;
            self.wait_for_room(BLOCK).await?;
            self.admit(volume, stripe).await?;
            // The lock keeps destages away, so that between reading and appending nothing but the
            // dirty cache moves.
            let _guard = self.locks.exclusive(volume.id, stripe).await;
            let mut whole = Buffer::zeroed(BLOCK);
            self.read_locked(volume, stripe, inside, &mut whole).await?;
            if !self.admits(volume, stripe).await? || !self.has_room(BLOCK) {
                continue;
            }
            let is_sound = self.step(|core| match core.cache.get(BlockKey { volume: volume.id, block: number }) {
                Some(Held::Good(bytes, _)) => {
                    whole.copy_from_slice(bytes);
                    true
                }
                Some(Held::Spoilt) => false,
                None => true,
            });
            if !is_sound {
                continue;
            }
            whole[(at % BLOCK as u64) as usize..][..data.len()].copy_from_slice(&data);
            let at = number * BLOCK as u64;
            let record = Record::Write { volume: volume.id, at, data: vec![whole.freeze()] };
            let lsn = self.append(&record, &Pages::default(), &mut reservation);
            self.keep_destage_reservation(volume, key, reservation);
            return Ok(lsn);
        }
    }
}
