//! Log space for destages. What is kept for checkpoints helps on a log that is as good as full:
//! with the oldest stripe gone it is trimmed.

use stele_ground::Duration;

use crate::durable::log::{self, Purpose, Reservation};
use crate::engine::Engine;
use crate::model::ArrayError;
use crate::model::place::StripeKey;

/// After so long a destage that waits looks again whether its stripe keeps the log.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl Engine {
    /// Log space for a destage, or for what it does on its way. A stripe may become the one that
    /// keeps the log while this waits.
    pub async fn room_for_destage(
        &self,
        key: StripeKey,
        bytes: u64,
        patience: Duration,
    ) -> Result<Reservation, ArrayError> {
        let since = self.io.now();
        loop {
            let usual = self.log.try_reserve(bytes, Purpose::Inside);
            let last = || if self.keeps_log(key) { self.log.try_reserve(bytes, Purpose::Checkpoint) } else { None };
            if let Some(reservation) = usual.or_else(last) {
                return Ok(reservation);
            }
            let waited = self.io.now().since(since.max(self.log.trimmed_at()));
            let left = Duration(patience.0.saturating_sub(waited.0));
            match self.log.reserve_within(bytes, Purpose::Inside, left.min(LOOK_AGAIN)).await {
                Err(error) if log::is_no_room(&error) && left > LOOK_AGAIN => {}
                done => return done,
            }
        }
    }
}
