//! The replicated write-ahead log.
//!
//! A ring on each member drive, the same bytes at the same place. Records collect in the open group; a group is written
//! to every member, each is flushed, and only then are its records durable, in order. Up to [`WINDOW`] groups are on
//! their way at once. A member that fails is replaced by an epoch change, agreed by a majority of labels, before the next
//! acknowledgement; below m + 1 members the log stops (`Degraded`).
//!
//! How the engine calls it. A change of state is one synchronous step: have the pages at hand, `append` the record, apply
//! it. Then `durable(lsn).await` before telling anyone. Space comes first: `reserve` what the record and all that it will
//! entail (redo images, `Destaged`) may cost at worst, keep the reservation with the dirty data, and pay each
//! append from it. `Reservation`s are split and merged freely; what is left flows back when dropped.
//!
//! `trim` is called by the checkpoint only. `pressure` says that a checkpoint is wanted: the ring is filling, or a
//! member was lost and older groups lie on fewer drives than they should.

use std::cell::RefCell;
use std::rc::Rc;

use stele_ground::Bytes;

use crate::ArrayError;
use crate::io::Io;
use crate::label::Labels;
use crate::place::{DriveNumber, Lsn};
use crate::records::Record;

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

/// Who may use the last part of the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A host's write: leaves an eighth of the ring alone.
    Host,
    /// Destage, rebuild and administration: leaves room for a checkpoint.
    Inside,
    /// What lets the log shrink again: may use all.
    Checkpoint,
}

/// Space in the ring that is promised. Flows back when dropped.
pub struct Reservation {
    log: Log,
    bytes: u64,
}

/// What recovery found out, for alarms and status.
#[derive(Clone, Default, Debug)]
pub struct Recovery {
    pub groups: u64,
    pub records: u64,
    /// Groups that some member lacked or had damaged, and that were copied again.
    pub repaired: u64,
    /// Members with damaged or missing groups.
    pub damaged: Vec<DriveNumber>,
}

/// The log of a pool. Cheap to clone.
#[derive(Clone)]
pub struct Log(Rc<RefCell<()>>);

impl Log {
    /// A new pool's log: chooses the members and puts them into the configuration of `labels` (not yet published),
    /// and makes a first group durable.
    pub async fn create(_io: &Io, _labels: &Labels) -> Result<Log, ArrayError> {
        todo!()
    }

    /// Reads all replicas from `from` on and hands every durable record to `sink`, in order; then copies live groups to
    /// members that lack them, flushes, and begins a new epoch (a label commit). `Damaged` names the members when
    /// a group that was acknowledged is nowhere whole. Nothing is written when `read_only`, and the log then refuses appends.
    pub async fn recover(
        _io: &Io,
        _labels: &Labels,
        _from: LogPosition,
        _read_only: bool,
        _sink: &mut dyn FnMut(Lsn, Record) -> Result<(), ArrayError>,
    ) -> Result<(Log, Recovery), ArrayError> {
        todo!()
    }

    /// Puts the record into the open group, paid from the reservation. Panics when the reservation is too small or
    /// the record larger than `RECORD_MAX`: both are mistakes of ours. Durable later.
    pub fn append(&self, _record: &Record, _paid_from: &mut Reservation) -> Lsn {
        todo!()
    }

    /// Ring bytes that appending this record may cost at worst.
    pub fn cost(&self, _record: &Record) -> u64 {
        todo!()
    }

    /// As `cost` for a record of so many encoded bytes (`Record::encoded`).
    pub fn cost_of(&self, _encoded: usize) -> u64 {
        todo!()
    }

    /// Answers when every record up to `lsn` is durable on the required members, or the log has stopped.
    pub async fn durable(&self, _lsn: Lsn) -> Result<(), ArrayError> {
        todo!()
    }

    /// The newest LSN known to be durable.
    pub fn durable_lsn(&self) -> Lsn {
        todo!()
    }

    /// The LSN the next record will have.
    pub fn next_lsn(&self) -> Lsn {
        todo!()
    }

    /// Promises ring space, or none when there is not enough now.
    pub fn try_reserve(&self, _bytes: u64, _purpose: Purpose) -> Option<Reservation> {
        todo!()
    }

    /// Waits for ring space, first come first served within a purpose. `Invalid` when the ring can never hold as much,
    /// `Degraded` when the log has stopped.
    pub async fn reserve(&self, _bytes: u64, _purpose: Purpose) -> Result<Reservation, ArrayError> {
        todo!()
    }

    /// Ring size, bytes live, bytes promised.
    pub fn size(&self) -> Bytes {
        todo!()
    }
    pub fn used(&self) -> Bytes {
        todo!()
    }
    pub fn reserved(&self) -> Bytes {
        todo!()
    }

    /// True when a destage and checkpoint should run now.
    pub fn wants_checkpoint(&self) -> bool {
        todo!()
    }

    /// Answers the next time `wants_checkpoint` becomes true, at once if it is.
    pub async fn pressure(&self) {
        todo!()
    }

    /// The group that holds the record, for the anchor.
    pub fn position(&self, _lsn: Lsn) -> LogPosition {
        todo!()
    }

    /// Everything before the group at `position` is not needed any more. The anchor that says so must be durable.
    pub fn trim(&self, _position: LogPosition) {
        todo!()
    }

    /// Publishes the watermark of all that is durable with an empty group; for idle moments, so that damage to the very
    /// last group would be noticed. Does nothing when it is published already.
    pub async fn seal(&self) -> Result<(), ArrayError> {
        todo!()
    }

    /// A drive was lost or declared failed: if it is a member, it is replaced.
    pub fn drive_lost(&self, _drive: DriveNumber) {
        todo!()
    }

    /// Drives came or returned: fills up missing members, if any. Answers when done.
    pub async fn replenish(&self) -> Result<(), ArrayError> {
        todo!()
    }

    /// Current members, and how many there should be.
    pub fn members(&self) -> (Vec<DriveNumber>, usize) {
        todo!()
    }

    /// Reads the live part of the ring on every member and repairs what differs; for scrub. Returns groups repaired.
    pub async fn scrub(&self) -> Result<u64, ArrayError> {
        todo!()
    }

    /// Groups written, records, bytes of payload, for counters.
    pub fn counters(&self) -> LogCounters {
        todo!()
    }

    /// Why the log stopped, if it did.
    pub fn stopped(&self) -> Option<ArrayError> {
        todo!()
    }
}

#[derive(Clone, Copy, Default, Debug)]
pub struct LogCounters {
    pub groups: u64,
    pub records: u64,
    pub bytes: u64,
    pub epoch_changes: u64,
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
}

impl Drop for Reservation {
    fn drop(&mut self) {}
}
