//! The open pool: what all flows share. Flows (read, write, destage, rebuild, scrub) are asynchronous and only choose;
//! every change of state is one synchronous step: the record is appended and applied without an await between.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};

use stele_ground::{Bytes, Duration, Instant, PoolId, VolumeId, digest};

use crate::cache::Cache;
use crate::drives::Drives;
use crate::drives::label::{Configuration, DriveState};
use crate::durable::log::{Haste, Log, Purpose, Reservation};
use crate::durable::records::Record;
use crate::durable::table::Table;
use crate::model::mutation::Mutation;
use crate::model::place::{Cell as StripCell, DriveNumber, Lsn, RowId, StripeKey};
use crate::model::{Action, Alarm, AlarmKind, ArrayError, CacheLimits, OpenOptions, Progress, Severity};
use crate::runtime::io::Io;
use crate::runtime::sync::{Mutex, Notify, Semaphore, StripeLocks};
use crate::space::Space;
use crate::state::destaging::Stuck;
use crate::state::hospital::Hospital;
use crate::state::losses::Losses;
use crate::state::redo::Redos;
use crate::state::throttle::TokenBucket;
use crate::volumes::{Volume, Volumes};

pub mod apply;
pub mod serving;

/// Monotonic counts, for status.
#[derive(Default)]
pub struct Counters {
    pub reads: Cell<u64>,
    pub writes: Cell<u64>,
    pub read_bytes: Cell<u64>,
    pub written_bytes: Cell<u64>,
    pub cache_hits: Cell<u64>,
    pub cache_misses: Cell<u64>,
    pub full_stripes: Cell<u64>,
    pub destages: Cell<u64>,
    pub destaged_blocks: Cell<u64>,
    /// Bytes moved from one place in memory to another on behalf of hosts.
    pub copied: Cell<u64>,
    pub reconstructed: Cell<u64>,
    pub repaired: Cell<u64>,
    pub rebuilt: Cell<u64>,
    pub retries: Cell<u64>,
    pub scrubs: Cell<u64>,
    pub scrub_found: Cell<u64>,
    pub scrub_repaired: Cell<u64>,
}

pub fn add(counter: &Cell<u64>, amount: u64) {
    counter.set(counter.get() + amount);
}

/// Progress of a long work, with what is needed to tell its rate.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub done: u64,
    pub total: u64,
    pub since: Instant,
}

impl Work {
    pub fn progress(&self, now: Instant) -> Progress {
        let seconds = now.since(self.since).as_secs_f64().max(1e-3);
        let rate = (self.done as f64 / seconds) as u64;
        Progress { done: Bytes(self.done), total: Bytes(self.total.max(self.done)), since: self.since, rate }
    }
}

pub struct Engine {
    pub io: Io,
    pub log: Log,
    pub table: Table,
    pub drives: Drives,
    pub space: Space,
    pub volumes: Volumes,
    pub cache: RefCell<Cache>,
    pub locks: StripeLocks,
    pub count: Counters,
    pub options: OpenOptions,
    /// What operators set of the cache.
    pub limits: CacheLimits,
    /// Dirty blocks go down from the high mark to the low one.
    pub flushing: Cell<bool>,
    /// Dirty bytes of the stripes whose destage the flow has begun.
    pub flush_under_way: Cell<u64>,
    pub read_only: Cell<bool>,
    /// First words of the pool's identity, bound into every digest.
    pub pool: u64,
    /// Stripes whose newest mapping is not durable yet: readers wait for the LSN.
    pub unsettled: RefCell<BTreeMap<StripeKey, Lsn>>,
    /// Dirty stripes without a slot: each has one promised.
    pub promised: RefCell<BTreeSet<StripeKey>>,
    /// Log space for the destage of each dirty stripe.
    pub destage_funds: RefCell<BTreeMap<StripeKey, Reservation>>,
    /// Records that the log must keep although no dirty block needs them: redo images under way.
    pub log_pins: RefCell<BTreeMap<Lsn, u32>>,
    /// In-place writes that are not recorded as done.
    pub redo: RefCell<Redos>,
    /// Something left the cache or became clean: the writer that is first in line for room looks again.
    pub room: Notify,
    /// Lines of writers that wait: for room among the dirty blocks, and for room in the log. Only the first of each watches, or
    /// every destage would wake them all.
    pub room_line: Mutex,
    pub funds_line: Mutex,
    /// The destage flow has a reason to look.
    pub destage_wanted: Notify,
    /// A drive came, went or changed its standing.
    pub drives_changed: Notify,
    /// A row was made beyond the enclosure rule.
    pub crowding_changed: Notify,
    pub destaging: Semaphore,
    /// Stripes whose last destage failed. They are taken out when they are destaged or
    /// written otherwise, or when a drive comes.
    pub stuck: RefCell<BTreeMap<StripeKey, Stuck>>,
    /// Which LSN came next at some moments, for the age of dirty blocks.
    pub age_marks: RefCell<VecDeque<(Instant, Lsn)>>,
    /// Destage everything, whatever its age: a checkpoint or close waits.
    pub drain: Cell<u32>,
    pub checkpointing: Mutex,
    /// Pages were changed.
    pub table_changed: Notify,
    /// Stripes to verify and repair soon, with what is bad in them unknown.
    pub repairs: RefCell<BTreeSet<StripeKey>>,
    pub repairs_wanted: Notify,
    /// Some drive missed a write.
    pub missed_wanted: Notify,
    pub rebuild: Cell<Option<Work>>,
    pub copy_back: Cell<Option<Work>>,
    pub scrub: Cell<Option<Work>>,
    pub moving: Cell<Option<Work>>,
    /// What drives held beyond their even share when the moving began.
    pub moving_surplus: Cell<u64>,
    pub moving_warned: Cell<bool>,
    pub departed: RefCell<Vec<crate::model::Departed>>,
    /// When the last whole scrub began, and how old it was already when the pool was opened.
    pub scrub_begun: Cell<(Instant, Duration)>,
    /// The scrub under way has verified the rows below this one.
    pub scrub_row: Cell<u32>,
    pub scrub_wanted: Cell<bool>,
    pub scrub_notify: Notify,
    /// Passes that ended before they were whole, and why the last one did.
    pub scrubs_stopped: RefCell<(u64, String)>,
    /// Host operations under way; background work yields to them.
    pub hosts_active: Cell<u64>,
    pub last_host: Cell<Instant>,
    /// Losses of drives not yet in the labels: no write that missed such a drive is acknowledged before they are.
    pub losses: RefCell<BTreeSet<DriveNumber>>,
    pub settling: Mutex,
    /// How often a drive was lost or given up.
    pub drives_lost: Cell<u64>,
    /// Set once by whatever makes going on impossible.
    pub stopped: RefCell<Option<ArrayError>>,
    pub closing: Cell<bool>,
    /// What cannot be read, and what of it was told.
    pub losses_seen: Losses,
    /// Lost stripes as they stand in their table.
    pub lost_slots: RefCell<Vec<Option<StripeKey>>>,
    pub lost_changed: Cell<bool>,
    /// Cells whose release is not durable yet, with the record that gave them up.
    pub withheld: RefCell<VecDeque<(Lsn, Vec<StripCell>)>>,
    /// Volumes come, go and grow one at a time.
    pub administering: Mutex,
    /// Layers that were given up are worked on by one at a time.
    pub reclaiming: Mutex,
    pub reclaim_wanted: Notify,
    /// Since when checkpoints fail, and why the last one did.
    pub checkpoint_trouble: RefCell<Option<(Instant, ArrayError)>>,
    /// The oldest record that the last checkpoint kept.
    pub trimmed: Cell<Lsn>,
    /// When something was last destaged.
    pub settled: Cell<Instant>,
    /// Said already: no spare cell; no room; tables on too few drives.
    pub spare_warned: Cell<bool>,
    pub space_warned: Cell<bool>,
    pub copies_warned: Cell<bool>,
    /// Members of rows that the rebuild under way had to leave as they are: they have no spare cell, or cannot be read.
    pub undone: RefCell<BTreeSet<(RowId, u8)>>,
    /// It waits for drives that spare cells are on.
    pub rebuild_waits: Cell<bool>,
    /// Stripes that hosts had to have reconstructed because a drive is gone.
    pub promoted: RefCell<BTreeSet<StripeKey>>,
    pub bucket: TokenBucket,
    pub hospital: Hospital,
    /// Members of rows all of whose strips lie in spare space.
    pub moved: RefCell<BTreeSet<(RowId, u8)>>,
    pub weak: Weak<Engine>,
}

/// Destages under way at once, at least and for each drive: each has about two commands out at a time, and a hard drive
/// orders some ten of them.
pub const DESTAGES: u64 = 96;
const DESTAGES_PER_DRIVE: u64 = 5;

/// The part of a pool's identity that goes into digests.
pub fn digest_pool(pool: PoolId) -> u64 {
    let (left, right) = pool.0.split_at(8);
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
    digest::context(word(left), word(right))
}

impl Engine {
    pub fn new(
        io: Io,
        log: Log,
        table: Table,
        drives: Drives,
        space: Space,
        options: OpenOptions,
        read_only: bool,
    ) -> Rc<Engine> {
        let pool = digest_pool(drives.labels.configuration().pool);
        let now = io.now();
        let cache = Cache::new(options.block_cache).credulous(io.lacks(Mutation::MemoryDigest));
        let destages = DESTAGES.max(DESTAGES_PER_DRIVE * drives.labels.configuration().drives.len() as u64);
        Rc::new_cyclic(|weak| Engine {
            pool,
            io,
            log,
            table,
            drives,
            space,
            volumes: Volumes::default(),
            cache: RefCell::new(cache),
            locks: StripeLocks::default(),
            count: Counters::default(),
            limits: options.cache_limits(),
            flushing: Cell::new(false),
            flush_under_way: Cell::new(0),
            options,
            read_only: Cell::new(read_only),
            unsettled: RefCell::default(),
            promised: RefCell::default(),
            destage_funds: RefCell::default(),
            log_pins: RefCell::default(),
            redo: RefCell::default(),
            room: Notify::default(),
            room_line: Mutex::default(),
            funds_line: Mutex::default(),
            destage_wanted: Notify::default(),
            drives_changed: Notify::default(),
            crowding_changed: Notify::default(),
            destaging: Semaphore::new(destages),
            stuck: RefCell::default(),
            age_marks: RefCell::default(),
            drain: Cell::new(0),
            checkpointing: Mutex::default(),
            table_changed: Notify::default(),
            repairs: RefCell::default(),
            repairs_wanted: Notify::default(),
            missed_wanted: Notify::default(),
            rebuild: Cell::new(None),
            copy_back: Cell::new(None),
            scrub: Cell::new(None),
            moving: Cell::new(None),
            moving_surplus: Cell::new(0),
            moving_warned: Cell::new(false),
            departed: RefCell::default(),
            scrub_begun: Cell::new((now, Duration(0))),
            scrub_row: Cell::new(0),
            scrub_wanted: Cell::new(false),
            scrub_notify: Notify::default(),
            scrubs_stopped: RefCell::default(),
            hosts_active: Cell::new(0),
            last_host: Cell::new(now),
            losses: RefCell::default(),
            settling: Mutex::default(),
            drives_lost: Cell::new(0),
            stopped: RefCell::default(),
            closing: Cell::new(false),
            losses_seen: Losses::default(),
            lost_slots: RefCell::default(),
            lost_changed: Cell::new(false),
            withheld: RefCell::default(),
            administering: Mutex::default(),
            reclaiming: Mutex::default(),
            reclaim_wanted: Notify::default(),
            spare_warned: Cell::new(false),
            space_warned: Cell::new(false),
            checkpoint_trouble: RefCell::default(),
            trimmed: Cell::new(Lsn(0)),
            settled: Cell::new(now),
            copies_warned: Cell::new(false),
            undone: RefCell::default(),
            rebuild_waits: Cell::new(false),
            promoted: RefCell::default(),
            bucket: TokenBucket::new(now),
            hospital: Hospital::default(),
            moved: RefCell::default(),
            weak: weak.clone(),
        })
    }

    pub fn alarm(&self, kind: AlarmKind, severity: Severity, drive: Option<DriveNumber>, message: String) {
        self.io.emit(Action::Alarm(Alarm::now(kind, severity, drive, self.io.now(), message)));
    }

    /// A log that has stopped, or labels of which two kinds may be found, leave a pool that reads and writes no more.
    pub fn watch_agreement(&self) {
        if self.read_only.get() {
            return;
        }
        let stopped = self.log.stopped().map(|error| (AlarmKind::LogDegraded, error));
        let undecided = || self.drives.labels.undecided().map(|error| (AlarmKind::ReadOnly, error));
        let Some((kind, error)) = stopped.or_else(undecided) else { return };
        self.only_read(kind, format!("the pool only reads now: {error}"));
    }

    /// From here on nothing is written any more; whoever waits to write finds out.
    pub fn only_read(&self, kind: AlarmKind, message: String) {
        if self.read_only.replace(true) {
            return;
        }
        self.alarm(kind, Severity::Critical, None, message);
        self.room.wake_all();
        self.drives_changed.wake_all();
    }

    pub fn volume(&self, id: VolumeId) -> Result<Rc<Volume>, ArrayError> {
        self.volumes.get(id).ok_or_else(|| ArrayError::Missing(format!("the pool has no volume {id}")))
    }

    /// Refuses what would change anything while the pool is read-only or stopped.
    pub fn check_writable(&self) -> Result<(), ArrayError> {
        if let Some(error) = &*self.stopped.borrow() {
            return Err(ArrayError::Stopped(format!("the pool has stopped: {error}")));
        }
        if self.read_only.get() {
            return Err(ArrayError::Refused(
                "the pool is open read-only; open it writable, with enough drives for a majority".into(),
            ));
        }
        Ok(())
    }

    // The log.

    /// Appends and applies one record on which nothing else waits. The caller has the pages at hand (see `apply`).
    pub async fn record(&self, record: Record, purpose: Purpose) -> Result<Lsn, ArrayError> {
        let mut funds = self.log.reserve(self.log.cost(&record), purpose).await?;
        let pages = self.pages_for(&record).await?;
        Ok(self.append(&record, &pages, &mut funds))
    }

    /// The synchronous step: append and apply.
    pub fn append(&self, record: &Record, pages: &crate::engine::apply::Pages, funds: &mut Reservation) -> Lsn {
        self.append_with(record, pages, funds, Haste::Now)
    }

    pub fn append_with(
        &self,
        record: &Record,
        pages: &crate::engine::apply::Pages,
        funds: &mut Reservation,
        haste: Haste,
    ) -> Lsn {
        let lsn = self.log.append_with(record, funds, haste);
        self.apply(lsn, record, pages);
        if let Record::Destaged { volume, stripe, .. }
        | Record::Adopted { from: volume, stripe, .. }
        | Record::Map { volume, stripe, .. }
        | Record::Unmap { volume, stripe, .. } = record
        {
            self.forget_redo(StripeKey { volume: *volume, stripe: *stripe });
        }
        if self.table.wants_checkpoint() {
            self.table_changed.wake_all();
        }
        lsn
    }

    pub fn pin_log(&self, lsn: Lsn) {
        *self.log_pins.borrow_mut().entry(lsn).or_insert(0) += 1;
    }

    pub fn unpin_log(&self, lsn: Lsn) {
        let mut pins = self.log_pins.borrow_mut();
        if let Some(count) = pins.get_mut(&lsn) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&lsn);
            }
        }
    }

    /// Invariant 9: the oldest record still needed; everything older may be trimmed.
    pub fn oldest_needed(&self) -> Lsn {
        let next = self.log.next_lsn();
        let dirty = self.cache.borrow().oldest_dirty().unwrap_or(next);
        let pinned = self.log_pins.borrow().keys().next().copied().unwrap_or(next);
        dirty.min(pinned)
    }

    // Drives.

    /// The drive at the index does not answer any more.
    pub fn drive_gone(&self, index: usize) {
        let Some(drive) = self.drives.labels.number(index) else { return };
        self.io.detach(index);
        self.drives.labels.detach(drive);
        if !self.drive_state(drive).votes() {
            // It was given up before.
            self.drives_changed.wake_all();
            return;
        }
        let now = self.io.now();
        let name = self.drives.change(drive, |seen| {
            seen.missing_since = Some(now);
            seen.stale = true;
            seen.note = "does not answer; check its path and power, or replace it".into();
            seen.name.clone()
        });
        self.losses.borrow_mut().insert(drive);
        add(&self.drives_lost, 1);
        self.log.drive_lost(drive);
        self.drives_changed.wake_all();
        self.alarm(
            AlarmKind::DriveMissing,
            Severity::Warning,
            Some(drive),
            format!("{drive} ({name}) does not answer; bring it back or replace it, or it is rebuilt into spare space"),
        );
    }

    /// Brings every loss of a drive seen so far into the labels, and every drive that missed a write, so that the write is
    /// acknowledged only when the drive cannot come back, or be found at the next opening, as if it had it. Whoever needs it
    /// does it: while the pool opens, no flow runs yet.
    pub async fn settle_losses(&self) -> Result<(), ArrayError> {
        let _turn = self.settling.lock().await;
        loop {
            self.check_writable()?;
            let lost: Vec<DriveNumber> = self.losses.borrow().iter().copied().collect();
            let behind = self.drives.behind_unsettled();
            if lost.is_empty() && behind.is_empty() {
                return Ok(());
            }
            if lost.is_empty() {
                self.check_can_mark()?;
            }
            let mark = |configuration: &mut Configuration| {
                for drive in &behind {
                    if let Some(entry) = configuration.drives.get_mut(usize::from(drive.0))
                        && entry.state == DriveState::Active
                    {
                        entry.state = DriveState::Filling;
                    }
                }
            };
            // A commit renews the labels of all drives but the lost ones: from then on theirs are old.
            if let Err(error) = self.drives.labels.commit(mark).await {
                self.only_read(AlarmKind::ReadOnly, format!("the pool is read-only now: {error}"));
                return Err(error);
            }
            self.drives.note_settled(&behind);
            let mut losses = self.losses.borrow_mut();
            losses.retain(|drive| !lost.contains(drive));
        }
    }

    /// Refuses where a drive that does not write is needed for a majority: a commit that it does not take either would leave
    /// two configurations to be found, and the pool read-only.
    fn check_can_mark(&self) -> Result<(), ArrayError> {
        let configuration = self.drives.labels.configuration();
        let voters = configuration.drives.iter().filter(|entry| entry.state.votes()).count();
        let usable = self.drives.labels.usable();
        let well = usable.iter().filter(|drive| !self.drives.has_missed(**drive)).count();
        if well * 2 > voters || self.drives.labels.overridden() {
            return Ok(());
        }
        Err(ArrayError::Degraded(format!(
            "only {well} of {voters} drives take writes, which is no majority to record what the others miss; return or replace \
             drives"
        )))
    }

    pub fn drive_state(&self, drive: DriveNumber) -> DriveState {
        let configuration = self.drives.labels.configuration();
        configuration.drives.get(usize::from(drive.0)).map_or(DriveState::Retired, |entry| entry.state)
    }

    /// True when hosts asked for something within the last moments.
    pub fn hosts_wait(&self) -> bool {
        self.hosts_active.get() > 0 || self.io.now().since(self.last_host.get()) < Duration::from_millis(20)
    }
}
