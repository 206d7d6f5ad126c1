//! Free slots of the cache volume give their space back to the pool.
//!
//! Files that were removed or evicted leave slots behind that still take space in the pool. A pass
//! over the volume discards them each minute, in whole units. Where the pool has little room, the
//! server says how much it needs. Then a pass begins at once, and content that is archived leaves
//! the cache as far as that is not enough.
//!
//! A slot is away from before its discard until the volume has answered, and no file gets it
//! meanwhile. A caller that goes away leaves it so: an answer that no one waits for may still come
//! late. A crash leaves nothing behind: no record names a slot that is away.

use std::sync::atomic::Ordering;

use stele_ground::{Duration, Instant};

use super::Share;
use super::records::SLOT;
use crate::Result;

/// From the end of a pass to the begin of the next one.
const PASS_EVERY: Duration = Duration::from_secs(60);
/// Slots of one discard, slots that one round discards, and those where the pool needs space.
const DISCARDED_TOGETHER: u64 = (16 << 20) / SLOT;
const DISCARDED_AT_ONCE: u64 = (256 << 20) / SLOT;
const DISCARDED_FOR_THE_POOL: u64 = 4 * DISCARDED_AT_ONCE;

/// Where the pass over free slots is.
#[derive(Clone, Copy, Default, Debug)]
pub struct Giving {
    /// The first slot that it has not looked at.
    next: u64,
    /// When the last one ended; none while one is under way.
    ended: Option<Instant>,
    /// When the volume refused a discard.
    refused: Option<Instant>,
}

impl Giving {
    fn is_due(&self, now: Instant) -> bool {
        let has_passed = |since: Option<Instant>| since.is_none_or(|since| now.since(since) >= PASS_EVERY);
        has_passed(self.ended) && has_passed(self.refused)
    }
}

impl Share {
    /// The pool needs so many bytes of what this cache holds. The latest word counts.
    pub fn want_space(&self, bytes: u64) {
        self.wanted_space.store(bytes, Ordering::Relaxed);
    }

    /// A wish that came while a round gave space does not know of it. What the pool still needs it
    /// says again.
    pub(super) fn forget_wish(&self) {
        self.wanted_space.store(0, Ordering::Relaxed);
    }

    /// Bytes that the cache could give back: free ones, and those of archived content.
    pub fn spare_space(&self) -> u64 {
        let core = self.locked();
        (core.slots.loose() + core.slots.evictable()) * SLOT
    }

    /// Slots that eviction has to take for the pool's sake: it needs more than the free ones give.
    /// Asking takes the pool's wish back.
    pub(super) async fn needed_slots(&self) -> u64 {
        let wanted = self.wanted_space.swap(0, Ordering::Relaxed).div_ceil(SLOT);
        match wanted {
            0 => 0,
            wanted => {
                let given = self.give_space(true).await;
                // While the volume refuses discards, eviction would give the pool nothing.
                let refused = self.locked().giving.refused.is_some();
                given.map_or(0, |given| if refused { 0 } else { wanted.saturating_sub(given) })
            }
        }
    }

    /// Goes on with the pass, if one is due. `anew`: one begins now. Answers how many slots take no
    /// space any more.
    pub(super) async fn give_space(&self, anew: bool) -> Result<u64> {
        let now = self.surroundings.now().monotonic;
        let due = self.step(|core| {
            if anew {
                core.giving = Giving { refused: core.giving.refused, ..Giving::default() };
            }
            Ok(core.giving.is_due(now))
        })?;
        let most = if anew { DISCARDED_FOR_THE_POOL } else { DISCARDED_AT_ONCE };
        let mut given = 0;
        while due && given < most {
            let run = self.step(|core| {
                let run = core.slots.send_away(core.giving.next, DISCARDED_TOGETHER);
                core.giving = match &run {
                    Some(run) => Giving { next: run.end, ended: None, ..core.giving },
                    None => Giving { next: 0, ended: Some(now), ..core.giving },
                };
                Ok(run)
            })?;
            let Some(run) = run else { return Ok(given) };
            let (first, count) = (run.start, run.end - run.start);
            let discarded = self.cache.discard(first * SLOT, count * SLOT).await;
            {
                let mut core = self.locked();
                core.slots.come_back(run, discarded.is_ok());
                core.giving.refused = discarded.is_err().then_some(now);
                if discarded.is_err() {
                    core.giving.next = first;
                }
            }
            self.room.notify_waiters();
            if let Err(error) = discarded {
                tracing::warn!(share = %self.name, %error, "free space of the cache volume could not be given back; it is tried again");
                return Ok(given);
            }
            given += count;
        }
        Ok(given)
    }
}
