//! Log space for tasks that hold a stripe. What is kept for checkpoints helps on a log that is as
//! good as full: with the oldest stripe destaged it is trimmed.
//!
//! The destage of the stripe that keeps the log waits for that stripe, and for those of the layers
//! below it. A task that holds one of them must not wait for the log to be trimmed, for it is what
//! the log waits for. So it may use the last room, as that destage may.

use futures_util::future::{Either, select};
use stele_ground::{Duration, VolumeId};

use crate::durable::log::{self, Purpose, Reservation};
use crate::engine::Engine;
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::StripeKey;

/// After so long a task that waits looks again whether the log waits for it.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Engine {
    /// Log space for a task that holds the stripe: the only way to wait for it there. The log may
    /// come to wait for the stripe meanwhile.
    pub async fn room_while_held(&self, held: StripeKey, bytes: u64) -> Result<Reservation, ArrayError> {
        self.room_while_held_within(held, bytes, log::PATIENCE).await
    }

    /// As `room_while_held`, but `is_no_room` when nothing was trimmed for so long.
    pub async fn room_while_held_within(
        &self,
        held: StripeKey,
        bytes: u64,
        patience: Duration,
    ) -> Result<Reservation, ArrayError> {
        let last = || if self.log_waits_for(held) { self.log.try_reserve(bytes, Purpose::Checkpoint) } else { None };
        if let Some(reservation) = self.log.try_reserve(bytes, Purpose::Inside).or_else(last) {
            return Ok(reservation);
        }
        // Its place in line is kept while it looks.
        let usual = self.log.reserve_within(bytes, Purpose::Inside, patience);
        futures_util::pin_mut!(usual);
        loop {
            let look = self.io.sleep(LOOK_AGAIN);
            futures_util::pin_mut!(look);
            if let Either::Left((done, _)) = select(usual.as_mut(), look).await {
                return done;
            }
            if let Some(reservation) = last() {
                return Ok(reservation);
            }
        }
    }

    /// Whether the destage of what keeps the log may need the stripe: it is that stripe, or has a
    /// layer in common with it. A task that holds a stripe may hold those of the layers below as
    /// well.
    fn log_waits_for(&self, held: StripeKey) -> bool {
        let Some(keeper) = self.keeper_of_log() else { return false };
        if keeper == held {
            return true;
        }
        if keeper.stripe != held.stripe || self.io.is_disabled(Mutation::RoomBelow) {
            return false;
        }
        let below = self.layers_from(keeper.volume);
        self.layers_from(held.volume).iter().any(|layer| below.contains(layer))
    }

    /// The layer, and those below it.
    fn layers_from(&self, top: VolumeId) -> Vec<VolumeId> {
        let below = |layer: &VolumeId| self.look(|core| core.volumes.get(*layer)?.base());
        std::iter::successors(Some(top), below).collect()
    }
}

#[cfg(test)]
mod tests;
