//! Writes in order whose pieces are written as whole stripes; see [`crate::volumes::gathering`].
//!
//! A piece that is held is not acknowledged, and belongs to no one but its request: a crash
//! meanwhile leaves what was there. Where pieces cannot be written together each goes its own way,
//! as if it had never been held.

use std::rc::Rc;

use stele_ground::BLOCK;

use crate::engine::Engine;
use crate::model::ArrayError;
use crate::volumes::Volume;
use crate::volumes::gathering::{GRACE, Gather, Outcome, Part, Turn, WAIT_MAX, is_long};
use crate::volumes::handle::VolumeHandle;

/// A request with several pieces, as far as holding them back goes.
#[derive(Clone, Copy)]
pub struct Stretch {
    /// It goes on where another one ended.
    pub in_order: bool,
    /// Its end.
    pub next: u64,
}

impl Engine {
    /// Holds a piece of a stripe until the rest has come, or not for longer than that should take.
    /// True when all of them are durable together; false where the piece has to find its own place.
    pub async fn gather(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        handle: &VolumeHandle,
        part: &Part,
        stretch: Stretch,
    ) -> Result<bool, ArrayError> {
        let stripe_bytes = volume.shape.data();
        let (stripe, inside) = (part.at / stripe_bytes, (part.at % stripe_bytes) as usize);
        let whole = stripe_bytes.min(volume.size() - stripe * stripe_bytes) as usize;
        let aligned = inside.is_multiple_of(BLOCK) && part.length.is_multiple_of(BLOCK);
        let begins = inside == 0 || handle.gathering.is_open(stripe);
        if !begins || !aligned || part.length == whole || !is_long(part.length, whole) || volume.stays_in_place() {
            return Ok(false);
        }
        match handle.gathering.take(part, stripe, whole, stretch.in_order, stretch.next) {
            Turn::Alone => Ok(false),
            Turn::Write(gather) => Ok(self.write_gathered(volume, stripe, &gather).await == Outcome::Written),
            Turn::Wait { gather, first } => {
                if first {
                    self.wait_for_rest(handle, stripe, &gather).await;
                }
                loop {
                    let settled = gather.settled.changed();
                    match gather.outcome() {
                        Some(outcome) => return Ok(outcome == Outcome::Written),
                        None => settled.await,
                    }
                }
            }
        }
    }

    /// Answers when the stripe is complete, or its pieces have been let go.
    async fn wait_for_rest(&self, handle: &VolumeHandle, stripe: u64, gather: &Rc<Gather>) {
        let until = self.io.now() + WAIT_MAX;
        loop {
            let (settled, calm) = (gather.settled.changed(), handle.gathering.calm());
            if !handle.gathering.is_waited_for(stripe, gather) {
                return;
            }
            // What was answered last may bring the rest at once.
            let was_calm = handle.gathering.is_calm();
            let wake = if was_calm { until.min(self.io.now() + GRACE) } else { until };
            let sleep = self.io.sleep_until(wake);
            futures_util::pin_mut!(settled, calm, sleep);
            futures_util::future::select(settled, futures_util::future::select(calm, sleep)).await;
            let in_vain = self.io.now() >= until || was_calm && handle.gathering.is_calm() && self.io.now() >= wake;
            if in_vain && handle.gathering.give_up(stripe, gather) {
                return gather.settle(Outcome::Apart);
            }
        }
    }

    async fn write_gathered(self: &Rc<Self>, volume: &Rc<Volume>, stripe: u64, gather: &Gather) -> Outcome {
        let pieces = gather.in_order();
        let length = pieces.iter().map(|piece| piece.length).sum();
        let data: Vec<_> = pieces.into_iter().flat_map(|piece| piece.data).collect();
        // A failure is none yet: a piece alone may still find a place in the log.
        let outcome = match self.write_stripe(volume, stripe, 0, &data, length).await {
            Ok(true) => Outcome::Written,
            Ok(false) | Err(_) => Outcome::Apart,
        };
        gather.settle(outcome);
        outcome
    }
}
