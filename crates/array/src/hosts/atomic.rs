//! Writes that are there after a crash as a whole or not at all, whichever stripes they touch.
//!
//! Recovery takes a group of the log whole or not at all, so the records of such a write are
//! appended to one group, at one go. They always go through the log: whole stripes too, each of
//! which would get its own mapping otherwise.

use std::rc::Rc;

use futures_util::FutureExt;
use stele_ground::{BLOCK, Bytes};
use stele_media::Shared;

use crate::durable::log::{FlushUrgency, Purpose, Reservation};
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::engine::apply::Pages;
use crate::hosts::ordered::parts;
use crate::hosts::write::WRITE_MAX;
use crate::model::mutation::Mutation;
use crate::model::place::{Lsn, StripeKey};
use crate::model::{ArrayError, WriteMode};
use crate::volumes::Volume;

/// The longest of them: with what each record says beside its data it fits into half of the largest
/// group.
pub const ATOMIC_WRITE_MAX: Bytes = Bytes(1 << 20);

/// A record of the write with the log space that it and the destage of its stripe may need.
struct Piece {
    key: StripeKey,
    record: Record,
    cost: u64,
}

impl Piece {
    /// Offset and length of what it writes.
    fn range(&self) -> Option<(u64, u64)> {
        match &self.record {
            Record::Write { at, data, .. } => Some((*at, data.iter().map(|piece| piece.len() as u64).sum())),
            _ => None,
        }
    }
}

impl Engine {
    /// Answers when durable as the volume's mode says; the range was checked against the volume's
    /// size.
    pub async fn write_atomic(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        at: u64,
        data: Vec<Shared>,
    ) -> Result<(), ArrayError> {
        self.check_writable()?;
        let length: usize = data.iter().map(Shared::len).sum();
        if !at.is_multiple_of(BLOCK as u64) || !length.is_multiple_of(BLOCK) || length as u64 > ATOMIC_WRITE_MAX.0 {
            return Err(ArrayError::Invalid(format!(
                "a write of {length} bytes at {at} cannot be kept whole: only whole blocks of {BLOCK} bytes, at most {ATOMIC_WRITE_MAX}"
            )));
        }
        let pieces = self.pieces(volume, at, data, length);
        let together: usize = pieces.iter().map(|piece| piece.record.encoded()).sum();
        if together > self.log.record_max() {
            return Err(ArrayError::Invalid(format!(
                "a write of {length} bytes does not fit into one group of this pool's log; create the pool with a larger log"
            )));
        }
        self.wait_for_room(length).await?;
        let cost = pieces.iter().map(|piece| piece.cost).sum();
        let reservation = match self.log.try_reserve(cost, Purpose::Host) {
            Some(reservation) => reservation,
            None => self.reserve_for_host(cost).await?,
        };
        self.admit_all(volume, &pieces).await?;
        let newest = self.append_together(volume, &pieces, together, reservation);
        match volume.mode() {
            WriteMode::Volatile => Ok(()),
            // Durable in the log on all its members: the group's flushes are behind this.
            WriteMode::WriteBack => self.log.durable(newest).await,
            WriteMode::WriteThrough => {
                self.log.durable(newest).await?;
                for (at, length) in pieces.iter().filter_map(Piece::range) {
                    // Destage answers after the strips' own flushes.
                    self.destage_range(volume, at, length).await?;
                }
                Ok(())
            }
        }
    }

    /// Copies the data once, since it stays dirty in memory, and cuts it by stripes.
    fn pieces(&self, volume: &Rc<Volume>, at: u64, data: Vec<Shared>, length: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for part in parts(volume, at, vec![self.copied(&data, length)]) {
            let key = StripeKey { volume: volume.id, stripe: part.at / volume.shape.data() };
            for from in (0..part.length).step_by(WRITE_MAX) {
                let to = part.length.min(from + WRITE_MAX);
                let data = part.data.iter().map(|data| data.slice(from..to)).collect();
                let record = Record::Write { volume: volume.id, at: part.at + from as u64, data };
                let cost = self.log.cost(&record) + self.destage_cost(&volume.shape, (to - from) / BLOCK);
                pieces.push(Piece { key, record, cost });
            }
        }
        pieces
    }

    /// Every stripe can take its part. After the answer nothing may be awaited before the append.
    async fn admit_all(&self, volume: &Rc<Volume>, pieces: &[Piece]) -> Result<(), ArrayError> {
        loop {
            for piece in pieces {
                self.check_can_wait(volume, piece.key.stripe)?;
                self.admit(volume, piece.key.stripe).await?;
            }
            // While one stripe was waited for, another may have lost what it had: all of them once
            // more, without waiting.
            let all = async {
                for piece in pieces {
                    if !self.admits(volume, piece.key.stripe).await? {
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            match all.now_or_never() {
                Some(Ok(true)) => return Ok(()),
                Some(Err(error)) => return Err(error),
                Some(Ok(false)) | None => {}
            }
        }
    }

    fn append_together(&self, volume: &Volume, pieces: &[Piece], together: usize, mut reservation: Reservation) -> Lsn {
        if !self.io.is_disabled(Mutation::WholeGroup) {
            self.log.keep_together(together);
        }
        let before = self.log.next_lsn();
        let mut newest = before;
        for piece in pieces {
            // One synchronous step: append, and dirty in the cache.
            let mut paid = reservation.split(piece.cost);
            newest = self.append_with(&piece.record, &Pages::default(), &mut paid, FlushUrgency::Now);
            self.keep_destage_reservation(volume, piece.key, paid);
        }
        assert_eq!(newest.0 + 1 - before.0, pieces.len() as u64, "a record came between those of one write");
        newest
    }
}
