//! Volumes become larger, or smaller as far as their end is free.
//!
//! A volume never gives up content: what lies behind its new end must read as zeros already. Writes
//! stand still while that is found out, so that it is still true when the record says so.

use std::rc::Rc;

use stele_ground::{Bytes, VolumeId};

use crate::durable::log::Purpose;
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::formats::map::{self, Home};
use crate::formats::shape::check_spec;
use crate::formats::tables;
use crate::layers::commands::refuse_owned;
use crate::model::place::PageId;
use crate::model::{Action, ArrayError, VolumeSpec};
use crate::volumes::{LayerKind, Volume};

impl Engine {
    pub(super) async fn resize_volume(self: &Rc<Self>, name: &str, size: Bytes) -> Result<(), ArrayError> {
        let _turn = self.administering.lock().await;
        self.check_writable()?;
        let volume = self.named(name)?;
        if volume.kind() == LayerKind::Snapshot {
            return Err(ArrayError::Refused(format!("snapshot '{name}' stays as it is; make a clone and resize that")));
        }
        check_spec(&VolumeSpec { size, ..volume.spec().clone() })?;
        match size.0 < volume.size() {
            true => self.shrink(&volume, size).await?,
            false => self.enlarge(&volume, size).await?,
        }
        if let Some(handle) = volume.handle_id() {
            self.io.emit(Action::Resized { volume: handle, size });
        }
        Ok(())
    }

    async fn enlarge(self: &Rc<Self>, volume: &Volume, size: Bytes) -> Result<(), ArrayError> {
        let more = size.0.div_ceil(volume.shape.data()) - volume.stripes();
        let record = Record::VolumeResize { volume: volume.id, size };
        let is_whole = volume.spec().fully_allocated;
        let lsn = match is_whole {
            true => {
                let promise = self.promise_all(volume, more).await?;
                self.record_promised(record, promise).await?
            }
            false => self.record(record, Purpose::Inside).await?,
        };
        self.log.durable(lsn).await
    }

    async fn shrink(self: &Rc<Self>, volume: &Rc<Volume>, size: Bytes) -> Result<(), ArrayError> {
        refuse_owned(volume, "is never made smaller: its owner sees to its size")?;
        let stands_on = volume.base().is_some();
        if stands_on || !self.look(|core| core.volumes.standing_on(volume.id)).is_empty() {
            return Err(ArrayError::Refused(format!(
                "volume '{}' shares its content with a snapshot or a clone, and is not made smaller; delete its snapshots \
                 first (the space of deleted ones is given back within minutes), or copy it to a smaller volume",
                volume.name()
            )));
        }
        let _stopped = self.stop_writes(volume).await;
        let kept = self.least_size(volume, size).await?;
        if kept > size {
            return Err(ArrayError::Refused(format!(
                "volume '{}' holds data behind {size}, and can become {kept} ({} bytes) now; discard what lies behind the new \
                 end from a host (blkdiscard), or copy it to a smaller volume",
                volume.name(),
                kept.0
            )));
        }
        let record = Record::VolumeResize { volume: volume.id, size };
        let mut reservation = self.log.reserve(self.log.cost(&record), Purpose::Inside).await?;
        let pages = self.pages_for(&record).await?;
        self.check_writable()?;
        let behind = |stripe: &u64| *stripe >= size.0.div_ceil(volume.shape.data());
        let dirty = self.look(|core| core.cache.dirty_stripes_of(volume.id)).into_iter().find(behind);
        assert!(dirty.is_none(), "stripe {dirty:?} is dirty behind the new end of {}", volume.id);
        let lsn = self.append(&record, &pages, &mut reservation);
        self.log.durable(lsn).await
    }

    /// The least size, `size` or more, behind which the volume holds nothing. No write to it is
    /// under way.
    async fn least_size(self: &Rc<Self>, volume: &Rc<Volume>, size: Bytes) -> Result<Bytes, ArrayError> {
        let stripe_bytes = volume.shape.data();
        let end = |stripe: u64| Bytes(((stripe + 1) * stripe_bytes).min(volume.size()));
        let first = size.0.div_ceil(stripe_bytes);
        // Before the map is looked at: a destage maps only what is dirty.
        let dirty = self.look(|core| core.cache.dirty_stripes_of(volume.id)).pop().filter(|stripe| *stripe >= first);
        let mapped = self.last_mapped(volume.id, first).await?;
        if let Some(stripe) = dirty.max(mapped) {
            return Ok(end(stripe));
        }
        // The rest of the stripe in which the new end lies.
        let rest = (first * stripe_bytes).min(volume.size()).saturating_sub(size.0);
        if rest == 0 {
            return Ok(size);
        }
        let mut content = stele_media::Buffer::stale(rest as usize);
        self.read_here_or_there(volume, size.0, &mut content).await?;
        match content.iter().rposition(|byte| *byte != 0) {
            None => Ok(size),
            Some(last) => Ok(Bytes((size.0 + last as u64 + 1).next_multiple_of(volume.spec().block.0))),
        }
    }

    /// The last stripe from `first` on that has a slot.
    async fn last_mapped(&self, volume: VolumeId, first: u64) -> Result<Option<u64>, ArrayError> {
        let table = tables::map(volume);
        let from = (first / map::PER_PAGE) as u32;
        for index in (from..self.table.pages(table)).rev() {
            let id = PageId { table, index };
            if matches!(self.table.peek(id), crate::durable::table::Peek::Never) {
                continue;
            }
            let page = self.table.page(id).await?;
            let begin = u64::from(index) * map::PER_PAGE;
            let has_slot = |stripe: &u64, bytes: &[u8]| {
                matches!(map::get(bytes, map::locate(*stripe).1), Home::Slot(_)) && *stripe >= first
            };
            let last = page.read(|bytes| (begin..begin + map::PER_PAGE).rev().find(|stripe| has_slot(stripe, bytes)));
            if last.is_some() {
                return Ok(last);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
