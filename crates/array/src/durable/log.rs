//! The replicated write-ahead log.
//!
//! A ring on each member drive, the same bytes at the same place. Records collect in the open
//! group; a group is written to every member, each is flushed, and only then are its records
//! durable, in order. Up to [`WINDOW`] groups are on their way at once. A member that fails is
//! replaced by an epoch change, agreed by a majority of labels, before the next acknowledgement;
//! below m + 1 members the log stops (`Degraded`).
//!
//! How the engine calls it. A change of state is one synchronous step: have the pages at hand,
//! `append` the record, apply it. Then `durable(lsn).await` before telling anyone. Space comes
//! first: `reserve` what the record and all that it will entail (redo images, `Destaged`) may cost
//! at worst, keep the reservation with the dirty data, and pay each append from it. `Reservation`s
//! are split and merged freely; what is left flows back when dropped.
//!
//! A record that another will follow may be appended with [`FlushUrgency::Linger`]. Its group waits
//! for that record, so that both become durable together. It waits until a task asks for `durable`,
//! or for [`linger::LINGER_MAX`]. A record that no task will wait for ([`FlushUrgency::Whenever`])
//! goes with whatever comes next.
//!
//! `trim` is called by the checkpoint only. `pressure` says that a checkpoint is wanted: the ring
//! is filling, or a member was lost and older groups lie on fewer drives than they should.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use stele_ground::Instant;
use stele_media::{MediaError, Shared};

use crate::drives::label::Labels;
use crate::durable::records::Record;
use crate::model::ArrayError;
use crate::model::place::{DriveNumber, Lsn};
use crate::runtime::io::Io;
use crate::runtime::sync::{Mutex, Notify};

pub mod commit;
pub mod group;
pub mod linger;
pub mod membership;
pub mod recover;
mod relief;
pub mod ring;
pub mod scrub;
pub mod space;
mod wash;

use group::{Buffers, Filling};
pub use linger::FlushUrgency;
pub use recover::Recovery;
pub use space::{PATIENCE, Purpose, Reservation, is_no_room};

/// Groups on their way at once.
pub const WINDOW: usize = 4;

/// Where replay begins: the first record of a group, and how to find the group.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LogPosition {
    /// The group's first record.
    pub lsn: Lsn,
    pub group: u64,
    /// Bytes from the start of the ring.
    pub offset: u64,
    /// CRC in the header of the group before it.
    pub previous: u32,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct LogCounters {
    pub groups: u64,
    pub records: u64,
    /// Bytes of records, once, however many members they went to.
    pub bytes: u64,
    pub epoch_changes: u64,
}

/// The log of a pool. Cheap to clone.
#[derive(Clone)]
pub struct Log(Rc<Inner>);

struct Inner {
    io: Io,
    labels: Labels,
    state: RefCell<LogState>,
    /// Where tasks wait for ring space, in order, by purpose.
    turns: [Mutex; 4],
    space: Notify,
    landed: Notify,
    pressure: Notify,
    /// A record follows a seal.
    appended: Notify,
    scrubbing: Mutex,
    buffers: Buffers,
    waiters: RefCell<BTreeMap<(Lsn, u64), Waker>>,
    next_waiter: Cell<u64>,
}

struct LogState {
    ring: u64,
    read_only: bool,
    members: Vec<DriveNumber>,
    /// Epoch that new groups carry.
    epoch: u64,
    next_lsn: Lsn,
    durable: Lsn,
    next_group: u64,
    /// Highest group durable on all members: what the next group publishes.
    watermark: u64,
    /// The next LSN when the last group was a seal.
    sealed: Lsn,
    head: u64,
    previous: u32,
    /// Groups not trimmed, oldest first.
    live: VecDeque<Live>,
    live_bytes: u64,
    reserved: u64,
    /// Full groups that wait for a place in the window, then the one being filled.
    full: VecDeque<Filling>,
    filling: Option<Filling>,
    filling_cost: u64,
    flights: VecDeque<Flight>,
    kicked: bool,
    /// A task looks after a group that lingers.
    lingering: bool,
    /// Bytes of the ring that are being overwritten: no group departs into them.
    washing: Option<(u64, u64)>,
    /// An epoch change is under way: nothing departs and nothing is acknowledged.
    changing: bool,
    lost: BTreeSet<DriveNumber>,
    /// The drive that failed last, and why.
    last_failure: Option<(DriveNumber, MediaError)>,
    /// Members lack, and drives that could not take their place are asked again.
    refilling: bool,
    /// Members that answer, and are to make way where another drive takes their place.
    unwanted: BTreeSet<DriveNumber>,
    /// Groups below this may lie on fewer members than they should.
    thin_below: u64,
    /// A group that must not be trimmed now, since scrub copies it.
    pinned: Option<u64>,
    trim_to: u64,
    trimmed_at: Instant,
    /// A task lost patience with the full log, and nothing was trimmed since.
    given_up: bool,
    stopped: Option<ArrayError>,
    counters: LogCounters,
}

/// A group in the ring.
#[derive(Clone, Copy, Debug)]
struct Live {
    sequence: u64,
    first: Lsn,
    offset: u64,
    total: u64,
    crc: u32,
    previous: u32,
}

/// A group on its way to the members.
struct Flight {
    sequence: u64,
    last: Lsn,
    offset: u64,
    bytes: Shared,
    /// Members on which it is durable.
    held: BTreeSet<DriveNumber>,
    /// All writes that were begun have answered.
    landed: bool,
}

impl Log {
    fn assemble(io: &Io, labels: &Labels, state: LogState) -> Log {
        Log(Rc::new(Inner {
            io: io.clone(),
            labels: labels.clone(),
            state: RefCell::new(state),
            turns: Default::default(),
            space: Notify::default(),
            landed: Notify::default(),
            pressure: Notify::default(),
            appended: Notify::default(),
            scrubbing: Mutex::default(),
            buffers: Buffers::default(),
            waiters: RefCell::default(),
            next_waiter: Cell::new(0),
        }))
    }

    fn state(&self) -> Ref<'_, LogState> {
        self.0.state.borrow()
    }

    fn change(&self) -> RefMut<'_, LogState> {
        self.0.state.borrow_mut()
    }

    /// A new pool's log: chooses the members and puts them into the configuration of `labels` (not
    /// yet published), and makes a first group durable.
    pub async fn create(io: &Io, labels: &Labels) -> Result<Log, ArrayError> {
        let members = membership::choose(labels, &[], &BTreeSet::new());
        membership::enough(labels, &members)?;
        labels.draft(|configuration| {
            let epoch = configuration.epoch;
            configuration.log =
                vec![crate::drives::label::LogEpoch { epoch, first_group: 1, members: members.clone() }];
        });
        let (epoch, ring) = {
            let configuration = labels.configuration();
            (configuration.epoch, configuration.log_size.0)
        };
        let log = Log::assemble(io, labels, LogState::new(ring, members, epoch));
        let mut paid = log.reserve(log.cost(&Record::Checkpoint { sequence: 0 }), Purpose::Checkpoint).await?;
        let first = log.append(&Record::Checkpoint { sequence: 0 }, &mut paid);
        log.durable(first).await?;
        Ok(log)
    }

    /// Puts the record into the open group, paid from the reservation. Panics when the reservation
    /// is too small or the record larger than `record_max`: both are mistakes of ours. Durable
    /// later.
    pub fn append(&self, record: &Record, paid_from: &mut Reservation) -> Lsn {
        self.append_with(record, paid_from, FlushUrgency::Now)
    }

    /// As `append`, and says whether its group departs as soon as it can.
    pub fn append_with(&self, record: &Record, paid_from: &mut Reservation, urgency: FlushUrgency) -> Lsn {
        let bytes = record.encoded();
        let cost = group::total(bytes);
        let mut state = self.change();
        assert!(!state.read_only, "the log was opened for reading only");
        assert!(bytes <= state.record_max(), "a record of {bytes} bytes does not fit the log");
        paid_from.pay(self, cost);
        state.reserved -= cost;
        state.filling_cost += cost;
        let lsn = state.next_lsn;
        let first_after_seal = state.sealed == lsn;
        state.next_lsn = lsn.next();
        let cost_max = state.capacity() / 64;
        let full = state.filling.as_ref().is_some_and(|filling| !filling.fits(bytes));
        if full && let Some(filling) = state.filling.take() {
            state.full.push_back(filling);
        }
        let now = self.0.io.now();
        let filling = state.filling.get_or_insert_with(|| Filling::new(&self.0.buffers, bytes, lsn, now));
        filling.push(record, bytes);
        filling.cost += cost;
        filling.hurry(urgency, now);
        // Records that no task waits for hold back ring space until they depart.
        filling.urgent |= filling.cost > cost_max;
        let lingers = filling.lingers && !filling.urgent;
        state.counters.records += 1;
        state.counters.bytes += bytes as u64;
        drop(state);
        if first_after_seal {
            self.0.appended.wake_all();
        }
        self.kick();
        if lingers {
            self.look_after_lingering();
        }
        lsn
    }

    /// Sees to it that so many bytes of records, appended next and with nothing awaited in between,
    /// are in one group: after a crash all of them are there or none. Panics where they are more
    /// than `record_max`.
    pub fn keep_together(&self, bytes: usize) {
        let mut state = self.change();
        assert!(bytes <= state.record_max(), "records of {bytes} bytes do not fit into one group");
        let full = state.filling.as_ref().is_some_and(|filling| !filling.fits(bytes));
        if full && let Some(filling) = state.filling.take() {
            state.full.push_back(filling);
        }
        let (first, now) = (state.next_lsn, self.0.io.now());
        state.filling.get_or_insert_with(|| Filling::new(&self.0.buffers, bytes, first, now));
    }

    /// The largest record this log takes, in encoded bytes.
    pub fn record_max(&self) -> usize {
        self.state().record_max()
    }

    /// Answers when every record up to `lsn` is durable on the required members, or the log has
    /// stopped.
    pub async fn durable(&self, lsn: Lsn) -> Result<(), ArrayError> {
        self.urge(lsn);
        self.durable_in_time(lsn).await
    }

    /// As `durable`, and the record's group may linger.
    pub async fn durable_in_time(&self, lsn: Lsn) -> Result<(), ArrayError> {
        let mut waiting = Waiting { log: self, key: None };
        poll_fn(|cx| {
            let state = self.state();
            // Records up to `durable` were flushed on every member; see `commit`.
            if state.durable >= lsn {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = &state.stopped {
                return Poll::Ready(Err(error.clone()));
            }
            assert!(lsn < state.next_lsn, "waiting for {lsn}, which was never appended");
            let key =
                *waiting.key.get_or_insert_with(|| (lsn, self.0.next_waiter.replace(self.0.next_waiter.get() + 1)));
            self.0.waiters.borrow_mut().insert(key, cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The newest LSN known to be durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.state().durable
    }

    /// The LSN the next record will have.
    pub fn next_lsn(&self) -> Lsn {
        self.state().next_lsn
    }

    /// True when a destage and checkpoint should run now.
    pub fn wants_checkpoint(&self) -> bool {
        let state = self.state();
        state.is_thin() || state.live_bytes + state.filling_cost > state.capacity() / 2
    }

    /// True while groups may lie on fewer members than they should: what they hold is wanted in
    /// newer ones.
    pub fn is_thin(&self) -> bool {
        self.state().is_thin()
    }

    /// Answers the next time `wants_checkpoint` becomes true, at once if it is.
    pub async fn pressure(&self) {
        loop {
            let changed = self.0.pressure.changed();
            if self.wants_checkpoint() {
                return;
            }
            changed.await;
        }
    }

    /// Bytes of the ring that a trim to this (durable, not trimmed) record would free.
    pub fn behind(&self, lsn: Lsn) -> u64 {
        let state = self.state();
        let after = state.live.partition_point(|live| live.first <= lsn);
        let at = after.checked_sub(1).and_then(|at| state.live.get(at));
        let (Some(first), Some(at)) = (state.live.front(), at) else { return 0 };
        (at.offset + state.ring - first.offset) % state.ring
    }

    /// The group that holds the (durable, not trimmed) record, for the anchor.
    pub fn position(&self, lsn: Lsn) -> LogPosition {
        let state = self.state();
        let after = state.live.partition_point(|live| live.first <= lsn);
        let live = after.checked_sub(1).and_then(|at| state.live.get(at));
        let live = live.unwrap_or_else(|| panic!("{lsn} is not in the log any more"));
        LogPosition { lsn: live.first, group: live.sequence, offset: live.offset, previous: live.previous }
    }

    /// Everything before the group at `position` is not needed any more. The anchor that says so
    /// must be durable.
    pub fn trim(&self, position: LogPosition) {
        let mut state = self.change();
        assert!(position.group <= state.watermark, "the log is trimmed only where it is durable");
        state.trim_to = state.trim_to.max(position.group);
        let before = state.live_bytes;
        state.drop_trimmed();
        if state.live_bytes < before {
            state.trimmed_at = self.0.io.now();
            state.given_up = false;
        }
        drop(state);
        self.0.space.wake_all();
    }

    /// Publishes the watermark of all that is durable with an empty group; for idle moments, so
    /// that damage to the very last group would be noticed. Does nothing when it is published
    /// already, or the ring is full.
    pub async fn seal(&self) -> Result<(), ArrayError> {
        {
            let state = self.state();
            let awaited = state.filling.as_ref().is_some_and(|filling| filling.urgent || filling.lingers);
            let idle = state.flights.is_empty() && state.full.is_empty() && !awaited;
            if !idle || state.read_only || state.sealed == state.next_lsn {
                return Ok(());
            }
        }
        let Some(mut paid) = self.try_reserve(self.cost_of(Record::Seal.encoded()), Purpose::Inside) else {
            return Ok(());
        };
        let lsn = self.append(&Record::Seal, &mut paid);
        self.durable(lsn).await?;
        self.change().sealed = lsn.next();
        Ok(())
    }

    /// Answers when there are records that no seal follows.
    pub async fn unsealed(&self) {
        loop {
            let appended = self.0.appended.changed();
            if self.state().sealed != self.state().next_lsn {
                return;
            }
            appended.await;
        }
    }

    /// Current members, and how many there should be.
    pub fn members(&self) -> (Vec<DriveNumber>, usize) {
        (self.state().members.clone(), membership::wanted(&self.0.labels))
    }

    /// Groups written, records, bytes of payload, for counters.
    pub fn counters(&self) -> LogCounters {
        self.state().counters
    }

    /// Why the log stopped, if it did.
    pub fn stopped(&self) -> Option<ArrayError> {
        self.state().stopped.clone()
    }

    /// Wakes the tasks that wait for what is durable now, or all of them when the log has stopped.
    fn wake_waiters(&self) {
        let (durable, stopped) = {
            let state = self.state();
            (state.durable, state.stopped.is_some())
        };
        loop {
            let next = {
                let mut waiters = self.0.waiters.borrow_mut();
                let due = waiters.first_key_value().is_some_and(|((lsn, _), _)| stopped || *lsn <= durable);
                due.then(|| waiters.pop_first()).flatten()
            };
            let Some((_, waker)) = next else { return };
            waker.wake();
        }
    }

    /// From here on nothing is acknowledged any more.
    fn stop(&self, error: ArrayError) {
        tracing::error!("the log stopped: {error}");
        self.change().stopped.get_or_insert(error);
        self.wake_waiters();
        self.0.space.wake_all();
        self.0.landed.wake_all();
    }
}

struct Waiting<'a> {
    log: &'a Log,
    key: Option<(Lsn, u64)>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.log.0.waiters.borrow_mut().remove(&key);
        }
    }
}

impl LogState {
    /// An empty ring before its first group.
    fn new(ring: u64, members: Vec<DriveNumber>, epoch: u64) -> LogState {
        LogState {
            ring,
            read_only: false,
            members,
            epoch,
            next_lsn: Lsn(1),
            durable: Lsn(0),
            next_group: 1,
            watermark: 0,
            sealed: Lsn(0),
            head: 0,
            previous: 0,
            live: VecDeque::new(),
            live_bytes: 0,
            reserved: 0,
            full: VecDeque::new(),
            filling: None,
            filling_cost: 0,
            flights: VecDeque::new(),
            kicked: false,
            lingering: false,
            washing: None,
            changing: false,
            lost: BTreeSet::new(),
            refilling: false,
            unwanted: BTreeSet::new(),
            thin_below: 0,
            pinned: None,
            trim_to: 0,
            trimmed_at: Instant(0),
            given_up: false,
            stopped: None,
            last_failure: None,
            counters: LogCounters::default(),
        }
    }

    fn record_max(&self) -> usize {
        group::record_max(self.ring)
    }

    /// Ring bytes that may be live: the rest is for the gap at the ring's end, where a group did
    /// not fit.
    fn capacity(&self) -> u64 {
        self.ring - group::total_max(self.ring)
    }

    fn is_thin(&self) -> bool {
        self.live.front().is_some_and(|live| live.sequence < self.thin_below)
    }

    fn drop_trimmed(&mut self) {
        let to = self.trim_to.min(self.pinned.unwrap_or(u64::MAX));
        while let Some(live) = self.live.front().filter(|live| live.sequence < to) {
            self.live_bytes -= live.total;
            self.live.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
