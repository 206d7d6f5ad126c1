//! Writes that a drive missed although it was here: it answered one with an error, or did not
//! confirm a flush.
//!
//! What such a drive holds of the stripe is old, and nothing on the drive says so. Until it is
//! written again the drive is not whole, however well it answers: it does not count as redundancy,
//! and status and exposure say so. That has to outlive a crash, so it is `Filling` in the labels
//! before the write that missed it is acknowledged (see `settle_losses`). Crash points:
//!
//! 1. before that commit: the write is in the log still, not acknowledged as placed, and is placed
//!    once more;
//! 2. after it: the next opening finds the drive `Filling` and verifies all that should be on it,
//!    like on one that was away;
//! 3. after the strips were written again and before the drive counts as whole: the same.
//!
//! While the pool stays open it knows which stripes these are, and only they are read and written
//! again. That is at once when the trouble has passed, else after growing pauses, for the drive's
//! errors decide meanwhile whether it is given up.

use std::rc::Rc;

use stele_codes::Strips;
use stele_media::Priority;

use crate::engine::Engine;
use crate::model::place::{DriveNumber, StripeKey};
use crate::model::{AlarmKind, ArrayError, Severity};
use crate::stripe::Stripe;

impl Engine {
    /// These strips did not take what was written to them. What rests on the write may be
    /// acknowledged when this answers well.
    pub async fn note_missed(&self, of: &Stripe, failed: Strips) -> Result<(), ArrayError> {
        let key = StripeKey { volume: of.volume, stripe: of.stripe };
        for strip in failed.iter() {
            let drive = of.places[strip].cell.drive;
            // A drive that was given up counts for nothing, and one that is away is brought up to
            // date when it returns.
            if !self.drive_state(drive).votes() || !self.drives.missed(drive, key, self.io.now()) {
                continue;
            }
            if !self.drives.seen(drive).stale {
                let text = format!("{drive} missed a write; what it missed is written again");
                self.drives.change(drive, |seen| seen.note.clone_from(&text));
                self.alarm(AlarmKind::DriveStale, Severity::Notice, Some(drive), text);
            }
            self.repairing.note_missed();
            self.membership.note_change();
        }
        self.settle_losses().await
    }

    /// Runs for the pool's life: writes again what drives missed.
    pub async fn missed_flow(self: Rc<Self>) {
        loop {
            let wanted = self.repairing.missed();
            if self.check_writable().is_err() {
                return;
            }
            let (drive, key) = match self.drives.next_missed(self.io.now()) {
                Ok(next) => next,
                Err(None) => {
                    wanted.await;
                    continue;
                }
                Err(Some(at)) => {
                    let sleep = self.io.sleep_until(at);
                    futures_util::pin_mut!(sleep, wanted);
                    futures_util::future::select(sleep, wanted).await;
                    continue;
                }
            };
            if !self.drive_state(drive).votes() {
                self.drives.forget_missed(drive);
                continue;
            }
            match self.mend(drive, key).await {
                Ok(true) if self.drives.mended(drive, key) => self.caught_up(drive).await,
                Ok(true) => {}
                Ok(false) => self.drives.put_off(drive, self.io.now()),
                Err(error) => {
                    tracing::warn!("what {drive} missed of stripe {} is not written again yet: {error}", key.stripe);
                    self.drives.put_off(drive, self.io.now());
                }
            }
        }
    }

    /// Repairs the stripe. True when everything of it that lies on the drive verifies, or is listed
    /// as lost.
    async fn mend(self: &Rc<Self>, drive: DriveNumber, key: StripeKey) -> Result<bool, ArrayError> {
        let Some(volume) = self.look(|core| core.volumes.get(key.volume)) else { return Ok(true) };
        if self.heal(&volume, key.stripe, Priority::Rebuild).await?.lost > 0 {
            return Ok(true);
        }
        // A drive that did not answer was not found to be bad either.
        let _guard = self.locks.exclusive(volume.id, key.stripe).await;
        let Some(of) = self.locate(&volume, key.stripe).await? else { return Ok(true) };
        for strip in (0..of.shape.width()).filter(|strip| of.places[*strip].cell.drive == drive) {
            // What the drive itself says: an image laid over it would tell nothing.
            let read = self.ask_units(&of, strip, 0..of.shape.units, Priority::Rebuild).await;
            if read.good.contains(&false) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The drive has all that it is known to have missed. One that was away too is filled by the
    /// rebuild.
    async fn caught_up(self: &Rc<Self>, drive: DriveNumber) {
        if self.drives.seen(drive).stale || self.has_spares(drive) {
            self.drives.change(drive, |seen| seen.stale = true);
            self.membership.note_change();
        } else if let Err(error) = self.filled(drive).await {
            // The rebuild looks at all of it, and tries again.
            tracing::warn!("{drive} has what it missed, and the labels do not say so: {error}");
            self.drives.change(drive, |seen| seen.stale = true);
            self.membership.note_change();
        }
    }
}

#[cfg(test)]
mod tests;
