//! Ring space: promised before it is needed, so that what lets the log shrink again never waits for
//! space.
//!
//! No task waits without end. A wait ends with an error when nothing was trimmed for as long as the
//! waiting task's patience. Once a task has lost it, the others do so too: writes that wait for one
//! another would otherwise fail one after the other, each after its own patience.

use futures_util::future::{Either, select};
use stele_ground::{Bytes, Duration, Instant};

use super::{Log, group};
use crate::durable::records::Record;
use crate::model::ArrayError;

/// Who may use the last part of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A host's write: leaves an eighth of the ring alone.
    Host,
    /// Destage, rebuild and administration: leaves a 32nd, at least 16 KiB, to what follows.
    Inside,
    /// Appending anew what cannot be destaged: leaves half of that for checkpoints. Tasks that wait
    /// for room in the log must not stand in the way of it.
    Relog,
    /// What lets the log shrink again: may use all.
    Checkpoint,
}

/// Waits for room end after so long without a trim. A driver may take half a minute to give up a
/// drive that does not answer, and several drives may do that one after the other.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How long a task still waits when another one has lost its patience, and nothing was trimmed
/// since.
const AFTER_OTHERS: Duration = Duration::from_secs(5);

const NO_ROOM: &str = "the log has had no room for a change for a while; see the alarms, and bring missing drives back";

/// The log had no room, whatever else may be wrong or right: trying again may help.
pub fn is_no_room(error: &ArrayError) -> bool {
    matches!(error, ArrayError::Degraded(text) if text == NO_ROOM)
}

/// Space in the ring that is promised. Flows back when dropped.
pub struct Reservation {
    log: Log,
    bytes: u64,
}

impl Log {
    /// Ring bytes that appending this record may cost at worst: when it has a group to itself.
    pub fn cost(&self, record: &Record) -> u64 {
        group::total(record.encoded())
    }

    /// As `cost`, for a record of so many encoded bytes (`Record::encoded`).
    pub fn cost_of(&self, encoded: usize) -> u64 {
        group::total(encoded)
    }

    /// Promises ring space, or none when there is not enough now, or others wait.
    pub fn try_reserve(&self, bytes: u64, purpose: Purpose) -> Option<Reservation> {
        let _turn = self.0.turns[purpose as usize].try_lock()?;
        self.take(bytes, purpose)
    }

    /// Waits for ring space, first come first served within a purpose. `Invalid` when the ring can
    /// never hold as much, the reason when the log has stopped. The caller holds no stripe: the log
    /// may be waiting for it (`Engine::room_while_held`).
    pub async fn reserve(&self, bytes: u64, purpose: Purpose) -> Result<Reservation, ArrayError> {
        self.reserve_within(bytes, purpose, PATIENCE).await
    }

    /// As `reserve`, but `is_no_room` when nothing was trimmed for so long.
    pub async fn reserve_within(
        &self,
        bytes: u64,
        purpose: Purpose,
        patience: Duration,
    ) -> Result<Reservation, ArrayError> {
        // Counted from before the turn, and in line too: the first in line may have more patience
        // than those behind it.
        self.reserve_since(bytes, purpose, self.0.io.now(), patience).await
    }

    /// As `reserve_within`, for a task that has waited since then.
    pub async fn reserve_since(
        &self,
        bytes: u64,
        purpose: Purpose,
        since: Instant,
        patience: Duration,
    ) -> Result<Reservation, ArrayError> {
        let limit = self.limit(purpose);
        if bytes > limit {
            return Err(ArrayError::Invalid(format!(
                "{} of log are needed at once, but the log may give {}; create the pool with a larger log",
                Bytes(bytes),
                Bytes(limit)
            )));
        }
        let turn = self.0.turns[purpose as usize].lock();
        futures_util::pin_mut!(turn);
        let _turn = loop {
            let until = self.until(since, patience)?;
            let sleep = self.0.io.sleep_until(until);
            futures_util::pin_mut!(sleep);
            if let Either::Left((turn, _)) = select(turn.as_mut(), sleep).await {
                break turn;
            }
        };
        loop {
            let changed = self.0.space.changed();
            if let Some(error) = self.stopped() {
                return Err(error);
            }
            if let Some(reservation) = self.take(bytes, purpose) {
                return Ok(reservation);
            }
            let until = self.until(since, patience)?;
            self.0.pressure.wake_all();
            let sleep = self.0.io.sleep_until(until);
            futures_util::pin_mut!(changed, sleep);
            select(changed, sleep).await;
        }
    }

    /// When a task that has waited since then loses patience; the error where it has.
    fn until(&self, since: Instant, patience: Duration) -> Result<Instant, ArrayError> {
        let now = self.0.io.now();
        let mut state = self.change();
        let idle = since.max(state.trimmed_at);
        let own = idle + patience;
        let until = if state.given_up { own.min(since + AFTER_OTHERS) } else { own };
        if now < until {
            return Ok(until);
        }
        // A task with less patience says nothing about the log.
        state.given_up |= now >= idle + PATIENCE;
        drop(state);
        self.0.space.wake_all();
        Err(ArrayError::Degraded(NO_ROOM.into()))
    }

    fn take(&self, bytes: u64, purpose: Purpose) -> Option<Reservation> {
        let limit = self.limit(purpose);
        let mut state = self.change();
        if state.live_bytes + state.filling_cost + state.reserved + bytes > limit {
            return None;
        }
        state.reserved += bytes;
        Some(Reservation { log: self.clone(), bytes })
    }

    fn limit(&self, purpose: Purpose) -> u64 {
        let capacity = self.state().capacity();
        match purpose {
            Purpose::Host => capacity - capacity / 8,
            Purpose::Inside => capacity - (capacity / 32).max(16 << 10),
            Purpose::Relog => capacity - (capacity / 64).max(8 << 10),
            Purpose::Checkpoint => capacity,
        }
    }

    /// Bytes of the ring that can be live at most.
    pub fn size(&self) -> Bytes {
        Bytes(self.state().capacity())
    }

    /// Bytes live, or about to be.
    pub fn used(&self) -> Bytes {
        let state = self.state();
        Bytes(state.live_bytes + state.filling_cost)
    }

    /// Bytes promised and not yet used.
    pub fn reserved(&self) -> Bytes {
        Bytes(self.state().reserved)
    }

    /// What a host could reserve now.
    pub fn free(&self) -> Bytes {
        let state = self.state();
        let taken = state.live_bytes + state.filling_cost + state.reserved;
        drop(state);
        Bytes(self.limit(Purpose::Host).saturating_sub(taken))
    }
}

impl Reservation {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes a part off; panics when there is not as much.
    pub fn split(&mut self, bytes: u64) -> Reservation {
        assert!(bytes <= self.bytes, "a reservation of {} bytes cannot give {bytes}", self.bytes);
        self.bytes -= bytes;
        Reservation { log: self.log.clone(), bytes }
    }

    pub fn merge(&mut self, mut other: Reservation) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Gives everything above `bytes` back.
    pub fn shrink_to(&mut self, bytes: u64) {
        if bytes < self.bytes {
            drop(self.split(self.bytes - bytes));
        }
    }

    pub(super) fn pay(&mut self, log: &Log, bytes: u64) {
        assert!(std::rc::Rc::ptr_eq(&self.log.0, &log.0), "a reservation of another log");
        assert!(bytes <= self.bytes, "a record costs {bytes} bytes of log, but {} are reserved", self.bytes);
        self.bytes -= bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = self.log.change();
            state.reserved -= self.bytes;
            drop(state);
            self.log.0.space.wake_all();
        }
    }
}
