//! Overwriting what the ring no longer needs.
//!
//! A trimmed group stays in the ring until the head comes round again, which on an idle pool is
//! never. What was written over on its volume can still be read there, a destroyed key too. Washing
//! writes zeros over every byte that no live group occupies, on every drive of the pool that is
//! there, members of the log or not: a drive may have been one. The caller says which drives those
//! are, since a ring's place on any other drive holds another pool's records.
//!
//! It goes through the ring in fixed pieces. Of each, what is live at that moment was written after
//! the washing began, and the rest is overwritten, while no group departs into that piece. So one
//! way through is enough, and each byte that was not live at its beginning is zeros, or newer.
//!
//! Failure model: a crash leaves a part unwashed and no group harmed; the caller asks again. Zeros
//! are written, not discarded, so that file systems and drives overwrite what they hold in place;
//! what a drive keeps in cells it has replaced by others is beyond the reach of any write.

use stele_media::{Buffer, MediaError, Priority, Shared};

use super::Log;
use crate::drives::label::LOG_AT;
use crate::model::ArrayError;
use crate::runtime::sync::join_all;

/// Bytes that no group may depart into while they are overwritten.
const PIECE: u64 = 1 << 20;

impl Log {
    /// Overwrites everything in the ring that is not live. Answers how many bytes, of each drive.
    pub async fn wash(&self, drives: &[usize]) -> Result<u64, ArrayError> {
        // A scrub writes live groups again where they are.
        let _turn = self.0.scrubbing.lock().await;
        let ring = self.state().ring;
        let zeros = Buffer::zeroed(PIECE as usize).freeze();
        let (mut washed, mut failure) = (0, None);
        for from in (0..ring).step_by(PIECE as usize) {
            let to = (from + PIECE).min(ring);
            let free = self.hold_back(from, to);
            let mut writes = Vec::new();
            for (at, length) in &free {
                washed += length;
                writes.extend(drives.iter().map(|index| self.overwrite(*index, *at, zeros.slice(..*length as usize))));
            }
            let failed = join_all(writes).await.into_iter().find_map(Result::err);
            self.change().washing = None;
            self.kick();
            failure = failure.or(failed);
        }
        for index in drives {
            failure = failure.or(self.0.io.flush(*index).await.err());
        }
        // What was reached is clean; the caller asks again for the rest.
        failure.map_or(Ok(washed), |error| Err(ArrayError::Degraded(format!("a drive's log was not washed: {error}"))))
    }

    /// As urgent as a host's: behind the runs of a rebuild it would wait for long, and a group that
    /// is to depart into the piece with it.
    async fn overwrite(&self, index: usize, at: u64, zeros: Shared) -> Result<(), MediaError> {
        self.0.io.write(index, LOG_AT + at, vec![zeros], Priority::Host).await
    }

    /// Keeps groups from departing into a piece, and answers what of it is free: places and
    /// lengths.
    fn hold_back(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let mut state = self.change();
        state.washing = Some((from, to));
        let mut live: Vec<(u64, u64)> = state
            .live
            .iter()
            .map(|live| (live.offset.max(from), (live.offset + live.total).min(to)))
            .filter(|(start, end)| start < end)
            .collect();
        live.sort_unstable();
        let mut free = Vec::new();
        let mut at = from;
        for (start, end) in live {
            if at < start {
                free.push((at, start - at));
            }
            at = at.max(end);
        }
        if at < to {
            free.push((at, to - at));
        }
        free
    }
}
