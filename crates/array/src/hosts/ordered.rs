//! Writes that another write is to follow, which must never be durable without them.
//!
//! All volumes of a pool share one log, and recovery keeps of the log what is whole from its start:
//! a record is there only if every record before it is. So a write has its order as soon as it is
//! appended, long before it is durable. A caller that wants to write its name (a catalog the record
//! of an object) may append that at once: both then become durable with the same flushes. Should a
//! group fail for good after that, the log stops, and everything behind it fails too.
//!
//! What goes to slots of its own, past the log, is written, flushed, and its mapping durable,
//! before it is said to be ordered.

use std::rc::Rc;

use stele_media::Shared;

use crate::durable::log::FlushUrgency;
use crate::engine::Engine;
use crate::hosts::write::slice_of;
use crate::model::mutation::Mutation;
use crate::model::place::Lsn;
use crate::model::{ArrayError, WriteMode};
use crate::runtime::sync::join_all;
use crate::volumes::Volume;
use crate::volumes::gathering::Part;

pub fn parts(volume: &Volume, at: u64, data: Vec<Shared>) -> Vec<Part> {
    let length: usize = data.iter().map(Shared::len).sum();
    let stripe_bytes = volume.shape.data();
    let mut parts = Vec::new();
    let (mut here, mut done) = (at, 0usize);
    while done < length {
        let inside = here % stripe_bytes;
        let take = ((stripe_bytes - inside) as usize).min(length - done);
        parts.push(Part { at: here, data: slice_of(&data, done, take), length: take });
        here += take as u64;
        done += take;
    }
    parts
}

impl Engine {
    /// As `write_host`, for a write that another is to follow. `ordered` is called when all of it
    /// is durable or in the log: then nothing that is appended later can be durable without it,
    /// since the log is recovered as far as it is whole.
    pub async fn write_ordered(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        at: u64,
        data: Vec<Shared>,
        ordered: impl FnOnce(),
    ) -> Result<(), ArrayError> {
        if volume.mode() != WriteMode::WriteBack {
            self.write_host(volume, at, data).await?;
            ordered();
            return Ok(());
        }
        self.check_writable()?;
        if self.io.is_disabled(Mutation::WriteOrder) {
            ordered();
            return self.write_host(volume, at, data).await;
        }
        let places =
            parts(volume, at, data).into_iter().map(|part| self.place_part(volume, part, FlushUrgency::Linger));
        let mut newest = Lsn(0);
        for lsn in join_all(places).await {
            newest = newest.max(lsn?.unwrap_or_default());
        }
        if let Some(handle) = volume.handle() {
            handle.note_ordered(newest);
        }
        ordered();
        // Durable in the log on all its members: the group's flushes are behind this.
        self.log.durable_in_time(newest).await
    }

    /// Makes durable what was said to be ordered: a caller may have acknowledged it. Everything
    /// else that was answered is durable already, except on a volatile volume, whose writes are in
    /// the log's open groups.
    pub async fn flush_host(&self, volume: &Volume) -> Result<(), ArrayError> {
        let newest = match volume.mode() {
            WriteMode::Volatile => Lsn(self.log.next_lsn().0 - 1),
            _ if self.io.is_disabled(Mutation::OrderedFlush) => return Ok(()),
            _ => volume.handle().map_or(Lsn(0), |handle| handle.ordered()),
        };
        self.log.durable(newest).await
    }
}
