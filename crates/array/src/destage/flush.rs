//! When dirty blocks leave the cache, as operators set it. They leave from the high mark down to
//! the low one, when they have come of age, when the log needs its space, and all of them when a
//! caller waits for that.

use stele_ground::{BLOCK, Bytes, Instant};

use crate::engine::Engine;
use crate::model::place::{Lsn, StripeKey};
use crate::model::{ArrayError, CacheLimits, CacheStatus};

/// Stripes chosen at a time.
const BATCH: usize = 128;

impl CacheLimits {
    /// Dirty bytes above which flushing starts, and at or below which it stops.
    pub fn marks(&self) -> (Bytes, Bytes) {
        let part = |percent: u8| Bytes((u128::from(self.dirty.0) * u128::from(percent) / 100) as u64);
        (part(self.high), part(self.low))
    }

    pub fn check(&self) -> Result<(), ArrayError> {
        if self.low > self.high || self.high > 100 {
            return Err(ArrayError::Invalid(format!(
                "flushing starts at {} % of the dirty limit and stops at {} %: the low mark is at most the high one, and \
                 that at most 100",
                self.high, self.low
            )));
        }
        if self.dirty.0 == 0 {
            return Err(ArrayError::Invalid(
                "with a dirty limit of 0 no host could write: set at least one block, 4 KiB".into(),
            ));
        }
        Ok(())
    }
}

impl Engine {
    pub fn cache_status(&self) -> CacheStatus {
        let (clean, dirty) = self.look(|core| (core.cache.clean_bytes(), core.cache.dirty_bytes()));
        CacheStatus {
            limits: self.limits,
            size: self.options.block_cache,
            clean: Bytes(clean),
            dirty: Bytes(dirty),
            flushing: self.destaging.is_flushing(),
        }
    }

    /// What to destage now, and from where the elevator goes on.
    pub fn choose_batch(&self, from: &mut StripeKey) -> Vec<StripeKey> {
        let now = self.io.now();
        let crowded = self.is_crowded();
        let pressed = self.log_presses();
        let open = |key: &StripeKey| !self.locks.is_held(key.volume, key.stripe) && self.destaging.may_try(*key, now);
        let batch: Vec<StripeKey> = self.look(|core| {
            if pressed && !crowded {
                // The oldest come first, for only they let the log be trimmed.
                core.cache.by_age().map(|(_, key)| key).filter(open).take(BATCH).collect()
            } else if self.destaging.is_draining() {
                core.cache.elevator(*from).filter(open).take(BATCH).collect()
            } else if crowded {
                // No more than brings it down to the low mark, with what is on its way.
                let low = self.limits.marks().1.0 + self.destaging.under_way();
                let mut excess = core.cache.dirty_bytes().saturating_sub(low);
                let down = |key: &StripeKey| {
                    let goes = excess > 0;
                    excess = excess.saturating_sub((core.cache.dirty_count(*key) * BLOCK) as u64);
                    goes
                };
                core.cache.elevator(*from).filter(open).take_while(down).take(BATCH).collect()
            } else {
                let limit = self.aged(now);
                let old = core.cache.by_age().take_while(|(lsn, _)| *lsn < limit);
                old.map(|(_, key)| key).filter(open).take(BATCH).collect()
            }
        });
        if let Some(last) = batch.last() {
            *from = StripeKey { volume: last.volume, stripe: last.stripe + 1 };
        }
        batch
    }

    /// The dirty blocks have passed the high mark, and are not down at the low one yet.
    fn is_crowded(&self) -> bool {
        let dirty = self.look(|core| core.cache.dirty_bytes());
        self.destaging.watch_marks(dirty, self.limits.marks())
    }

    /// Half of the log is live or promised to destages.
    fn log_presses(&self) -> bool {
        self.log.wants_checkpoint() || self.log.used().0 + self.log.reserved().0 > self.log.size().0 / 2
    }

    /// Destage has more to do than what grows old.
    pub fn presses(&self) -> bool {
        self.destaging.is_draining() || self.log_presses() || self.is_crowded()
    }

    /// Records below this LSN have come of age.
    fn aged(&self, now: Instant) -> Lsn {
        self.destaging.aged(self.limits.age, self.log.next_lsn(), now)
    }
}

#[cfg(test)]
mod tests;
