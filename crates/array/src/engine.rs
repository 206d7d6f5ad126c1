//! The open pool: what all flows share. Flows (read, write, destage, rebuild, scrub) are
//! asynchronous and only choose; every change of state is one synchronous step: the record is
//! appended and applied without an await between.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::{Rc, Weak};

use stele_ground::{PoolId, VolumeId, digest};

use crate::cache::Cache;
use crate::drives::Drives;
use crate::drives::label::{Configuration, DriveState};
use crate::durable::log::{FlushUrgency, Log, Purpose, Reservation};
use crate::durable::records::Record;
use crate::durable::table::Table;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, Lsn, StripeKey};
use crate::model::{Action, Alarm, AlarmKind, ArrayError, CacheLimits, OpenOptions, Severity};
use crate::runtime::io::Io;
use crate::runtime::sync::{Mutex, StripeLocks};
use crate::space::Space;
use crate::space::layout::SharedLayout;
use crate::state::admission::Admission;
use crate::state::checkpointing::Checkpointing;
use crate::state::counters::Counters;
use crate::state::destaging::Destaging;
use crate::state::hospital::Hospital;
use crate::state::losses::Losses;
use crate::state::membership::Membership;
use crate::state::moving::Moving;
use crate::state::reading::ReadingAhead;
use crate::state::rebuilding::Rebuilding;
use crate::state::reclaiming::Reclaiming;
use crate::state::repairing::Repairing;
use crate::state::scrubbing::Scrubbing;
use crate::state::standing::Standing;
use crate::state::unanswered::Unanswered;
use crate::volumes::Volume;

pub mod apply;
mod core;
pub mod serving;

pub use self::core::Core;

/// The open pool. Flows reach its parts through [`Surroundings`], and its core through `step` and
/// `look` alone.
pub struct Engine {
    around: Surroundings,
    /// Changed in steps only.
    core: RefCell<Core>,
    pub weak: Weak<Engine>,
}

/// All of an open pool but its core. Records are applied by methods of this type, which has no way
/// to a step: so a step cannot meet another one there.
pub struct Surroundings {
    pub io: Io,
    pub log: Log,
    pub table: Table,
    pub drives: Drives,
    /// Shared with the table, which changes the rows of its own pages.
    pub layout: SharedLayout,
    pub locks: StripeLocks,
    pub count: Counters,
    pub options: OpenOptions,
    /// What operators set of the cache.
    pub limits: CacheLimits,
    /// First words of the pool's identity, bound into every digest.
    pub pool: u64,
    pub standing: Standing,
    pub admission: Admission,
    pub unanswered: Unanswered,
    pub destaging: Destaging,
    pub checkpointing: Checkpointing,
    pub reading: ReadingAhead,
    pub repairing: Repairing,
    pub rebuilding: Rebuilding,
    pub scrubbing: Scrubbing,
    pub moving: Moving,
    pub membership: Membership,
    pub reclaiming: Reclaiming,
    pub hospital: Hospital,
    /// What cannot be read, and what of it was told.
    pub losses_seen: Losses,
    /// Volumes come, go and grow one at a time.
    pub administering: Mutex,
}

impl Deref for Engine {
    type Target = Surroundings;

    fn deref(&self) -> &Surroundings {
        &self.around
    }
}

/// Destages under way at once, at least and for each drive: each has about two commands out at a
/// time, and a drive orders some ten of them.
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
        layout: SharedLayout,
        options: OpenOptions,
        read_only: bool,
    ) -> Rc<Engine> {
        let pool = digest_pool(drives.labels.configuration().pool);
        let now = io.now();
        let cache = Cache::new(options.block_cache).credulous(io.is_disabled(Mutation::MemoryDigest));
        let destages = DESTAGES.max(DESTAGES_PER_DRIVE * drives.labels.configuration().drives.len() as u64);
        let core = Core::new(cache, Space::new(layout.clone()));
        let around = Surroundings {
            pool,
            io,
            log,
            table,
            drives,
            layout,
            locks: StripeLocks::default(),
            count: Counters::default(),
            limits: options.cache_limits(),
            options,
            standing: Standing::new(read_only),
            admission: Admission::new(now),
            unanswered: Unanswered::default(),
            destaging: Destaging::new(destages, now),
            checkpointing: Checkpointing::default(),
            reading: ReadingAhead::default(),
            repairing: Repairing::default(),
            rebuilding: Rebuilding::new(now),
            scrubbing: Scrubbing::new(now),
            moving: Moving::default(),
            membership: Membership::default(),
            reclaiming: Reclaiming::default(),
            hospital: Hospital::default(),
            losses_seen: Losses::default(),
            administering: Mutex::default(),
        };
        Rc::new_cyclic(|weak| Engine { around, core: RefCell::new(core), weak: weak.clone() })
    }

    pub fn alarm(&self, kind: AlarmKind, severity: Severity, drive: Option<DriveNumber>, message: String) {
        self.io.emit(Action::Alarm(Alarm::now(kind, severity, drive, self.io.now(), message)));
    }

    /// A log that has stopped, or labels of which two kinds may be found, leave a pool that reads
    /// and writes no more.
    pub fn watch_agreement(&self) {
        if self.standing.is_read_only() {
            return;
        }
        let stopped = self.log.stopped().map(|error| (AlarmKind::LogDegraded, error));
        let undecided = || self.drives.labels.undecided().map(|error| (AlarmKind::ReadOnly, error));
        let Some((kind, error)) = stopped.or_else(undecided) else { return };
        self.only_read(kind, format!("the pool only reads now: {error}"));
    }

    /// From here on nothing is written any more; tasks that wait to write find out.
    pub fn only_read(&self, kind: AlarmKind, message: String) {
        if !self.standing.stop_writing() {
            return;
        }
        self.alarm(kind, Severity::Critical, None, message);
        self.admission.make_room();
        self.membership.note_change();
    }

    pub fn volume(&self, id: VolumeId) -> Result<Rc<Volume>, ArrayError> {
        self.look(|core| core.volumes.get(id))
            .ok_or_else(|| ArrayError::Missing(format!("the pool has no volume {id}")))
    }

    /// Refuses what would change anything while the pool is read-only.
    pub fn check_writable(&self) -> Result<(), ArrayError> {
        if self.standing.is_read_only() {
            return Err(ArrayError::Refused(
                "the pool is open read-only; open it writable, with enough drives for a majority".into(),
            ));
        }
        Ok(())
    }

    // The log.

    /// Appends and applies one record on which nothing else waits. The caller has the pages at hand
    /// (see `apply`).
    pub async fn record(&self, record: Record, purpose: Purpose) -> Result<Lsn, ArrayError> {
        let mut reservation = self.log.reserve(self.log.cost(&record), purpose).await?;
        let pages = self.pages_for(&record).await?;
        Ok(self.append(&record, &pages, &mut reservation))
    }

    /// The synchronous step: append and apply.
    pub fn append(&self, record: &Record, pages: &crate::engine::apply::Pages, reservation: &mut Reservation) -> Lsn {
        self.append_with(record, pages, reservation, FlushUrgency::Now)
    }

    pub fn append_with(
        &self,
        record: &Record,
        pages: &crate::engine::apply::Pages,
        reservation: &mut Reservation,
        urgency: FlushUrgency,
    ) -> Lsn {
        let lsn = self.step(|core| {
            let lsn = self.log.append_with(record, reservation, urgency);
            self.apply(core, lsn, record, pages);
            if let Record::Destaged { volume, stripe, .. }
            | Record::Adopted { from: volume, stripe, .. }
            | Record::Map { volume, stripe, .. }
            | Record::Unmap { volume, stripe, .. } = record
            {
                core.forget_redo(StripeKey { volume: *volume, stripe: *stripe });
            }
            lsn
        });
        if self.table.wants_checkpoint() {
            self.checkpointing.note_table_changed();
        }
        lsn
    }

    pub fn pin_log(&self, lsn: Lsn) {
        self.step(|core| core.pins.pin(lsn));
    }

    pub fn unpin_log(&self, lsn: Lsn) {
        self.step(|core| core.pins.unpin(lsn));
    }

    /// Invariant 9: the oldest record still needed; everything older may be trimmed.
    pub fn oldest_needed(&self) -> Lsn {
        let next = self.log.next_lsn();
        let (dirty, pinned) = self.look(|core| (core.cache.oldest_dirty(), core.pins.oldest()));
        dirty.unwrap_or(next).min(pinned.unwrap_or(next))
    }

    // Drives.

    /// The drive at the index does not answer any more.
    pub fn drive_gone(&self, index: usize) {
        // Also where the labels do not know whose it is yet: it may be on its way into the table.
        self.io.detach(index);
        let Some(drive) = self.drives.labels.number(index) else { return };
        self.drives.labels.detach(drive);
        if !self.drive_state(drive).votes() {
            // It was given up before.
            self.membership.note_change();
            return;
        }
        let now = self.io.now();
        let called = self.drives.change(drive, |seen| {
            seen.missing_since = Some(now);
            seen.stale = true;
            seen.note = "does not answer; check its path and power, or replace it".into();
            seen.called(drive)
        });
        self.membership.note_loss(drive);
        self.log.drive_lost(drive);
        self.membership.note_change();
        self.alarm(
            AlarmKind::DriveMissing,
            Severity::Warning,
            Some(drive),
            format!("{called} does not answer; bring it back or replace it, or it is rebuilt into spare space"),
        );
    }

    /// Brings every loss of a drive seen so far into the labels, and every drive that missed a
    /// write. So the write is acknowledged only when the drive cannot come back, or be found at the
    /// next opening, as if it had it. The task that needs it does it: while the pool opens, no flow
    /// runs yet.
    pub async fn settle_losses(&self) -> Result<(), ArrayError> {
        let _turn = self.membership.settling().await;
        loop {
            self.check_writable()?;
            let lost = self.membership.losses();
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
            // A commit renews the labels of all drives but the lost ones: from then on theirs are
            // old.
            if let Err(error) = self.drives.labels.commit(mark).await {
                self.only_read(AlarmKind::ReadOnly, format!("the pool is read-only now: {error}"));
                return Err(error);
            }
            self.drives.note_settled(&behind);
            self.membership.settle_losses(&lost);
        }
    }

    /// Refuses where a drive that does not write is needed for a majority: a commit that it does
    /// not take either would leave two configurations to be found, and the pool read-only.
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
        self.admission.hosts_wait(self.io.now())
    }
}
