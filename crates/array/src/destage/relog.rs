//! Stripes that cannot be destaged, and what the log does about them.
//!
//! More than m of a stripe's strips may be absent, or damaged, or there is no slot to move it to.
//! What was acknowledged for it stays dirty and in the log, and would keep the log from being
//! trimmed. So it is relogged: appended again at the log's head, oldest block first, so that each
//! piece makes room for the next, and everything else goes on. Relogging stops where next to
//! nothing but such blocks is in the log. Too much for relogging never gathers: beyond a limit such
//! stripes take no more writes. A writer that waits for room that nothing can make gets an error
//! that says what to do.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use stele_ground::{BLOCK, Bytes, Duration};
use stele_media::Shared;

use crate::durable::log::{self, Purpose};
use crate::durable::records::Record;
use crate::engine::apply::Pages;
use crate::engine::{Core, Engine};
use crate::model::ArrayError;
use crate::model::place::{BlockKey, Lsn, StripeKey};
use crate::state::destaging::Stuck;
use crate::stripe::runs;
use crate::volumes::Volume;

/// Blocks relogged in one record.
const RELOG_BLOCKS: usize = 64;
/// What a block costs in the log beside itself, about: its part of the record's and the group's
/// headers.
const RELOG_HEADER: u64 = 64;
/// A stripe that could not be destaged is tried again after this time.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The same where units of it may be lost: each try reads them again, and a drive is given up for
/// reads that fail often. It is tried at each look at such stripes too, and as soon as drives
/// change.
const RETRY_LISTED: Duration = Duration::from_secs(60);
/// The same where the log had no room for it.
const RETRY_WITHOUT_ROOM: Duration = Duration::from_millis(20);
/// Checkpoints that fail for so long make waiting for room hopeless.
const HOPELESS_AFTER: Duration = Duration::from_secs(5);

impl Engine {
    /// A stripe that could not be destaged stays dirty; it is tried again when drives change, or
    /// after a while.
    pub fn destage_failed(&self, key: StripeKey, error: &ArrayError) {
        tracing::warn!(volume = %key.volume, stripe = key.stripe, "destage put off: {error}");
        let lasting = !log::is_no_room(error);
        // Room that it does not use now is others', and first that of relogging.
        self.step(|core| core.destage_reservations.remove(&key));
        let volume = self.look(|core| core.volumes.get(key.volume));
        let wait = match lasting {
            true if volume.is_some_and(|volume| volume.has_lost(key.stripe)) => RETRY_LISTED,
            true => RETRY_AFTER,
            false => RETRY_WITHOUT_ROOM,
        };
        let again = self.io.now() + wait;
        self.destaging.put_off(key, Stuck { again, lasting });
    }

    /// The stripe cannot be destaged before something about it changes.
    pub fn is_stuck(&self, key: StripeKey) -> bool {
        self.destaging.is_stuck(key)
    }

    /// Some dirty stripe older than the record can be destaged, or is being.
    pub fn can_destage_below(&self, lsn: Lsn) -> bool {
        self.look(|core| {
            let mut old = core.cache.by_age().take_while(|(oldest, _)| *oldest < lsn);
            old.any(|(_, key)| !self.is_stuck(key))
        })
    }

    /// Bytes that are dirty and cannot be destaged.
    pub fn stuck_bytes(&self) -> u64 {
        let stuck = self.destaging.stuck().into_iter();
        self.look(|core| stuck.map(|key| (core.cache.dirty_count(key) * BLOCK) as u64).sum())
    }

    /// Log bytes that everything dirty takes when it is appended anew, closely packed.
    fn packed(&self) -> u64 {
        let dirty = self.look(|core| core.cache.dirty_bytes());
        dirty + dirty / BLOCK as u64 * RELOG_HEADER + self.look(|core| core.redo.bytes())
    }

    /// So much of the log is neither dirty nor promised that relogging makes room.
    fn is_worth_relogging(&self) -> bool {
        let packed = self.packed();
        self.log.used().0 > packed + packed / 16 + self.log.size().0 / 16
    }

    /// Refuses a write to a stripe that cannot be destaged, where what waits of that kind is as
    /// much as can be relogged.
    pub fn check_can_wait(&self, volume: &Volume, stripe: u64) -> Result<(), ArrayError> {
        if !self.is_stuck(StripeKey { volume: volume.id, stripe }) {
            return Ok(());
        }
        let (waiting, limit) = (self.stuck_bytes(), self.log.size().0.min(2 * self.limits.dirty.0) / 4);
        if waiting < limit {
            return Ok(());
        }
        Err(ArrayError::Degraded(format!(
            "volume '{}': stripe {stripe} at offset {} cannot be changed for now, and {} of such writes wait in the log \
             already; bring missing drives back, or write the stripe whole",
            volume.name(),
            stripe * volume.shape.data(),
            Bytes(waiting)
        )))
    }

    /// Why waiting for room in the log is in vain, if it is.
    pub fn hopeless(&self) -> Option<ArrayError> {
        if let Some((since, error)) = self.checkpointing.trouble()
            && self.io.now().since(since) >= HOPELESS_AFTER
        {
            return Some(ArrayError::Degraded(format!(
                "the log is full, and no checkpoint can be written that would let it be trimmed: {error}"
            )));
        }
        let all_stuck = self.look(|core| core.cache.by_age().all(|(_, key)| self.is_stuck(key)));
        let dirty = self.look(|core| core.cache.dirty_stripes()) > 0;
        (dirty && all_stuck && !self.is_worth_relogging()).then(|| {
            ArrayError::Degraded(
                "the log is full of writes to stripes that cannot be changed, as too many of their strips are absent or \
                 damaged; bring missing drives back, or write those stripes whole"
                    .into(),
            )
        })
    }

    /// Appends anew what cannot be destaged and lies in the log's older half, so that everything
    /// else goes on. Stops without an error where the log has no room.
    pub async fn relog_stuck(self: &Rc<Self>) -> Result<(), ArrayError> {
        if !self.is_worth_relogging() && !self.log.is_thin() {
            return Ok(());
        }
        let oldest = self.oldest_needed();
        let middle = Lsn(oldest.0 + (self.log.next_lsn().0 - oldest.0).div_ceil(2));
        for key in self.stuck_below(middle) {
            // The holder of the stripe changes it, or puts it back among the stuck.
            let Some(_guard) = self.locks.try_exclusive(key.volume, key.stripe) else { continue };
            let Some(volume) = self.look(|core| core.volumes.get(key.volume)) else { continue };
            // Wrong bytes are not relogged: they stay where the log still has the right ones.
            if self.restore_memory(key).await.is_err() {
                continue;
            }
            // Images refer to the writes as they were, so they go along.
            let relogged = self.relog_blocks(&volume, key, middle, Purpose::Relog)
                && self.relog_redo(key, middle, Purpose::Relog).await?;
            if !relogged {
                // What keeps the log from being trimmed, and no more, may take what checkpoints are
                // left: they do without.
                if self.keeper_of_log() == Some(key) {
                    let next = Lsn(self.oldest_needed().0 + 1);
                    self.relog_blocks(&volume, key, next, Purpose::Checkpoint);
                    self.relog_redo(key, next, Purpose::Checkpoint).await?;
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// The stripe that needs the oldest record of all that stripes need, dirty or owed.
    pub fn keeper_of_log(&self) -> Option<StripeKey> {
        let (dirty, owed) = self.look(|core| (core.cache.by_age().next(), core.redo.first()));
        dirty.into_iter().chain(owed).min().map(|(_, key)| key)
    }

    /// Stuck stripes that need records below this one, the oldest first.
    fn stuck_below(&self, lsn: Lsn) -> Vec<StripeKey> {
        let mut old: Vec<(Lsn, StripeKey)> = self.look(|core| {
            let dirty = core.cache.by_age().take_while(|(oldest, _)| *oldest < lsn);
            let all = dirty.chain(core.redo.older_than(lsn));
            all.filter(|(_, key)| self.destaging.is_put_off(*key)).collect()
        });
        old.sort_unstable();
        let mut seen = std::collections::BTreeSet::new();
        old.retain(|(_, key)| seen.insert(*key));
        old.into_iter().map(|(_, key)| key).collect()
    }

    /// The stripe's dirty blocks below a record. Its lock is held. False where the log has no room
    /// for all of them.
    fn relog_blocks(&self, volume: &Volume, key: StripeKey, below: Lsn, purpose: Purpose) -> bool {
        let first = key.stripe * u64::from(volume.shape.blocks());
        let old = self.look(|core| core.cache.dirty_of(key)).into_iter().filter(|(_, block)| block.lsn < below);
        let numbers: Vec<usize> = old.map(|(number, _)| number as usize).collect();
        let mut all = true;
        let mut waiting: VecDeque<Range<usize>> =
            runs(numbers).into_iter().flat_map(|run| pieces(run, RELOG_BLOCKS)).collect();
        while let Some(run) = waiting.pop_front() {
            let cost = self.log.cost_of(64 + run.len() * BLOCK);
            let Some(mut reservation) = self.log.try_reserve(cost, purpose) else {
                // Each piece costs a header: the last room is for what frees as much as it takes.
                if run.len() == 1 || purpose == Purpose::Checkpoint {
                    all = false;
                    break;
                }
                // Where little room is left, a smaller piece may still make more.
                let middle = run.start + run.len() / 2;
                waiting.push_front(middle..run.end);
                waiting.push_front(run.start..middle);
                continue;
            };
            // One moment: what is appended is the newest content.
            let from = first + run.start as u64;
            let block = |at: usize| BlockKey { volume: key.volume, block: first + at as u64 };
            let dirty = |at: usize, core: &Core| core.cache.dirty(block(at)).map(|dirty| dirty.data.clone());
            let data: Option<Vec<Shared>> = self.look(|core| run.map(|at| dirty(at, core)).collect());
            let Some(data) = data else { continue };
            let record = Record::Write { volume: key.volume, at: from * BLOCK as u64, data };
            self.append(&record, &Pages::default(), &mut reservation);
        }
        self.step(|core| core.cache.renew_age(key));
        all
    }
}

/// A range in pieces of so many at most.
fn pieces(run: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let end = run.end;
    run.step_by(most).map(move |from| from..end.min(from + most))
}
