//! Labels: who belongs to the pool, and what its configuration is.
//!
//! Four copies lie on each drive, two at either end. An odd sequence writes copies 0 and 2, an even
//! one 1 and 3, so that a whole older pair survives a torn update. The configuration is agreed by a
//! majority of the pool's drives, by the rules in [`agreement`]. [`discover`] reads all labels and
//! says which configuration holds and what every drive is; [`Labels`] keeps it, and
//! [`Labels::commit`] changes it.
//!
//! How the engine calls it:
//! - create: `Labels::new(io, configuration, indexes)`, then log, table and first checkpoint, and
//!   last `publish()`: without labels there is no pool.
//! - open: `discover(io, ..)`, `Labels::resume(io, &discovery)`, `promise(&discovery)` (announces
//!   the epoch), `claim()` (the first commit: brings the newest configuration to a majority), then
//!   table and log; `Log` makes the second commit with its new epoch before it serves.
//! - later: `commit(|configuration| ..)` for drive states, protection, the clean flag. The first
//!   commit that fails is the last: from then on every commit is refused, and the pool only reads.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stele_ground::{Bytes, DriveId, Duration, PoolId, VolumeId};
use stele_media::{Buffer, MediaError, MediaFault, Priority};

use crate::model::mutation::Mutation;
use crate::model::place::DriveNumber;
use crate::model::{ArrayError, Attached, DriveHealth, Scrubbed, Shard};
use crate::runtime::io::Io;
use crate::runtime::sync::{Mutex, join_all};

pub mod agreement;
mod attach;
pub mod codec;
mod commit;
pub mod discover;
mod silence;
mod state;

use codec::{Label, NoLabel};
pub use discover::{Discovery, FoundLabel, Reading, Verdict, discover, read_label};
use discover::{LABEL_COPIES, read_copy};
use silence::Silence;
pub use state::DriveState;

/// How long drives that are attached, and fail a label or a group of the log, are asked again
/// before the pool stops writing.
pub const ATTACHED_PATIENCE: Duration = Duration::from_secs(30);
/// From one time to the next.
pub const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Drives whose labels a scrub reads at once.
const SCRUBBED_AT_ONCE: usize = 64;

/// Bytes of one copy.
pub const LABEL_SIZE: u64 = 64 << 10;
/// Start of the two anchor slots.
pub const ANCHOR_AT: u64 = 2 * LABEL_SIZE;
/// Start of the log region.
pub const LOG_AT: u64 = 4 << 20;
/// Bytes at the end of a drive kept for label copies 2 and 3.
pub const TAIL: u64 = 2 * LABEL_SIZE;

/// Format features this code knows. An unknown incompatible one refuses the pool; an unknown
/// read-only-compatible one opens it read-only.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Features {
    pub compatible: u64,
    pub read_only_compatible: u64,
    pub incompatible: u64,
}

/// A row of the label's table of drives; its place is its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriveEntry {
    pub identity: DriveId,
    pub enclosure: u32,
    pub size: Bytes,
    pub state: DriveState,
    /// Being emptied: it takes nothing more, and leaves the pool when it is empty.
    pub leaving: bool,
    /// Configuration epoch in which it joined.
    pub joined: u64,
}

/// Groups from `first_group` on carry this epoch and lie on these members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEpoch {
    pub epoch: u64,
    pub first_group: u64,
    pub members: Vec<DriveNumber>,
}

/// What the pool's drives agree on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    pub pool: PoolId,
    pub name: String,
    /// Seconds since 1970 at creation.
    pub created: u64,
    pub features: Features,
    /// Grows with every commit.
    pub epoch: u64,
    /// Seeds the choice of rows.
    pub seed: u64,
    pub unit_size: Bytes,
    pub log_size: Bytes,
    /// Drives' worth of spare space.
    pub spare_drives: u32,
    /// m: the largest number of lost drives any volume's code tolerates, at least 1. Log, anchors
    /// and table pages lie on m + 2 drives, and 4 where there are so many; never on fewer than m +
    /// 1.
    pub tolerates: u32,
    pub drives: Vec<DriveEntry>,
    /// Oldest first. Epochs wholly trimmed are dropped.
    pub log: Vec<LogEpoch>,
    /// Some volume holds retained records: removing or re-creating the pool is refused.
    pub protected: bool,
    /// Closed in order: everything was destaged and checkpointed.
    pub clean: bool,
    /// Drives were added: stripes move onto them until all drives are filled alike.
    pub growing: bool,
    /// The newest epoch that may have been in force when this configuration was written.
    pub settled: u64,
    /// One identity for each opening that wrote without a majority, oldest first.
    pub overrides: Vec<u64>,
    /// Its place among the shards that divide the drives.
    pub shard: Shard,
    /// Of a shard: an opening accepted that acknowledged writes may be gone. What the others have
    /// alone is then no leftover.
    pub loss_accepted: bool,
    /// Of the first of several: the snapshot that a volume is being rolled back to on all. Or a
    /// volume that shows different states, and the snapshot is gone.
    pub rolling_back: Option<VolumeId>,
}

/// The configuration in force and the way to change it. Cheap to clone.
#[derive(Clone)]
pub struct Labels(Rc<Inner>);

struct Inner {
    io: Io,
    configuration: RefCell<Configuration>,
    /// By drive number.
    registers: RefCell<Vec<Register>>,
    committing: Mutex,
    /// An operator accepted to write without a majority.
    override_quorum: bool,
    /// The next commit's epoch.
    next: Cell<u64>,
    /// The newest epoch that may be in force.
    settled: Cell<u64>,
    /// This opening wrote without a majority, and the configuration says so.
    apart: Cell<bool>,
    /// A commit failed: drives may hold either configuration.
    undecided: RefCell<Option<ArrayError>>,
    silence: Silence,
}

/// What the next label of one drive says.
#[derive(Clone, Copy)]
struct Next<'a> {
    configuration: &'a Configuration,
    number: DriveNumber,
    promised: u64,
    complete: u64,
}

/// A drive as the place of a label.
#[derive(Clone, Copy, Default)]
struct Register {
    /// Driver index, while the drive is present and usable.
    index: Option<usize>,
    /// Of the newest label written to it.
    sequence: u64,
    /// The epoch of that label's configuration.
    epoch: u64,
    promised: u64,
    complete: u64,
    /// It holds everything it should hold, now.
    caught_up: bool,
    /// The newest pair of its copies is known to be on its medium.
    flushed: bool,
    /// [`Labels::attachments`] as it was then.
    attached: u64,
}

impl DriveEntry {
    /// New cells, and replicas of log and tables, may come to it.
    pub fn takes_more(&self) -> bool {
        self.state.votes() && !self.leaving
    }
}

impl Configuration {
    /// The identity of the pool: of a shard, that of the pool it belongs to.
    pub fn whole_pool(&self) -> PoolId {
        self.shard.identity(self.pool)
    }

    /// Start of the allocation units on every drive: after the log, on a unit boundary of 1 MiB.
    pub fn units_at(&self) -> u64 {
        (LOG_AT + self.log_size.0).next_multiple_of(1 << 20)
    }

    /// Allocation units of a drive.
    pub fn units(&self, drive: DriveNumber) -> u32 {
        let size = self.drives.get(usize::from(drive.0)).map_or(0, |entry| entry.size.0);
        (copy_at(Bytes(size.max(TAIL)), 2).saturating_sub(self.units_at()) / self.unit_size.0) as u32
    }

    /// Where a cell starts on its drive.
    pub fn cell_at(&self, cell: crate::model::place::StripCell) -> u64 {
        self.units_at() + u64::from(cell.unit) * self.unit_size.0
    }

    /// Replicas of log, anchors and table pages where the drives suffice: m + 2, at least 4.
    pub fn replicas(&self) -> usize {
        self.tolerates.max(2) as usize + 2
    }

    /// The power of two nearest below a drive's 8192nd part, 1 MiB to 1 GiB.
    pub fn unit_size_for(smallest: Bytes) -> Bytes {
        let part = (smallest.0 / 8192).clamp(1 << 20, 1 << 30);
        Bytes(1 << part.ilog2())
    }
}

impl Labels {
    /// For a new pool: nothing is written before `publish`. `indexes` gives each drive's driver
    /// index, by number.
    pub fn new(io: &Io, configuration: Configuration, indexes: Vec<usize>) -> Labels {
        assert_eq!(configuration.drives.len(), indexes.len(), "one index for each drive of the table");
        let register = |index| Register { index: Some(index), caught_up: true, ..Register::default() };
        let registers = indexes.into_iter().map(register).collect();
        let next = configuration.epoch + 1;
        Labels::assemble(io, configuration, registers, false, next, 0)
    }

    /// For a pool found on its drives.
    pub fn resume(io: &Io, discovery: &Discovery, override_quorum: bool) -> Labels {
        let configuration = discovery.configuration.clone();
        let mut registers = vec![Register::default(); configuration.drives.len()];
        for (number, index) in &discovery.present {
            let Some(label) = discovery.labels.get(*index).and_then(Option::as_ref) else { continue };
            let entry = &configuration.drives[usize::from(number.0)];
            registers[usize::from(number.0)] = Register {
                index: Some(*index),
                sequence: label.sequence,
                epoch: label.configuration.epoch,
                promised: label.promised,
                complete: label.complete,
                caught_up: label.complete >= discovery.floor && entry.state != DriveState::Filling,
                flushed: false,
                attached: 0,
            };
        }
        Labels::assemble(io, configuration, registers, override_quorum, discovery.ballot, discovery.floor)
    }

    fn assemble(
        io: &Io,
        configuration: Configuration,
        registers: Vec<Register>,
        override_quorum: bool,
        next: u64,
        settled: u64,
    ) -> Labels {
        Labels(Rc::new(Inner {
            io: io.clone(),
            configuration: RefCell::new(configuration),
            registers: RefCell::new(registers),
            committing: Mutex::default(),
            override_quorum,
            next: Cell::new(next),
            settled: Cell::new(settled),
            apart: Cell::new(false),
            undecided: RefCell::default(),
            silence: Silence::default(),
        }))
    }

    /// The configuration in force (the last one committed). Do not hold it over an await.
    pub fn configuration(&self) -> std::cell::Ref<'_, Configuration> {
        self.0.configuration.borrow()
    }

    /// Changes the configuration of a pool that is not yet published.
    pub fn draft(&self, change: impl FnOnce(&mut Configuration)) {
        assert!(
            self.0.registers.borrow().iter().all(|drive| drive.sequence == 0),
            "a published pool changes by commit"
        );
        change(&mut self.0.configuration.borrow_mut());
    }

    /// Driver index of a drive that is present.
    pub fn index(&self, drive: DriveNumber) -> Option<usize> {
        self.0.registers.borrow().get(usize::from(drive.0))?.index
    }

    /// Number of the drive at a driver index.
    pub fn number(&self, index: usize) -> Option<DriveNumber> {
        let at = self.0.registers.borrow().iter().position(|drive| drive.index == Some(index))?;
        Some(DriveNumber(at as u16))
    }

    /// The drive is gone.
    pub fn detach(&self, drive: DriveNumber) {
        if let Some(register) = self.0.registers.borrow_mut().get_mut(usize::from(drive.0)) {
            (register.index, register.caught_up) = (None, false);
        }
    }

    /// The drive holds everything it should hold from now on, durably; the next commit says so in
    /// its label.
    pub fn caught_up(&self, drive: DriveNumber) {
        if let Some(register) = self.0.registers.borrow_mut().get_mut(usize::from(drive.0)) {
            register.caught_up = register.index.is_some();
        }
    }

    /// True when the drive is present and holds everything it should hold.
    pub fn is_caught_up(&self, drive: DriveNumber) -> bool {
        self.register(drive).caught_up
    }

    /// True when the drive is present and its label holds the configuration in force.
    pub fn holds_newest(&self, drive: DriveNumber) -> bool {
        let epoch = self.0.configuration.borrow().epoch;
        let registers = self.0.registers.borrow();
        registers.get(usize::from(drive.0)).is_some_and(|drive| drive.index.is_some() && drive.epoch == epoch)
    }

    /// True when the drive is present and took the last label that was written: it holds the
    /// configuration in force, or the one that is being agreed on.
    pub fn is_up_to_date(&self, drive: DriveNumber) -> bool {
        let epoch = self.0.configuration.borrow().epoch;
        let registers = self.0.registers.borrow();
        registers.get(usize::from(drive.0)).is_some_and(|drive| drive.index.is_some() && drive.epoch >= epoch)
    }

    /// Why no commit is possible any more, if so.
    pub fn undecided(&self) -> Option<ArrayError> {
        self.0.undecided.borrow().clone()
    }

    pub fn is_disabled(&self, protection: Mutation) -> bool {
        self.0.io.is_disabled(protection)
    }

    /// True when an operator accepted to write with fewer drives than the rules ask for.
    pub fn overridden(&self) -> bool {
        self.0.override_quorum
    }

    /// Drives present, not failed or retired, in order of number.
    pub fn usable(&self) -> Vec<DriveNumber> {
        let configuration = self.0.configuration.borrow();
        let registers = self.0.registers.borrow();
        let usable = configuration.drives.iter().zip(registers.iter()).enumerate();
        usable
            .filter(|(_, (entry, drive))| entry.state.votes() && drive.index.is_some())
            .map(|(at, _)| DriveNumber(at as u16))
            .collect()
    }

    /// As `usable`, without drives that are being emptied.
    pub fn lasting(&self) -> Vec<DriveNumber> {
        let usable = self.usable();
        let configuration = self.0.configuration.borrow();
        let lasts = |drive: &DriveNumber| configuration.drives.get(usize::from(drive.0)).is_some_and(|e| !e.leaving);
        usable.into_iter().filter(lasts).collect()
    }

    /// True when the drive is present and neither failed nor retired.
    pub fn is_usable(&self, drive: DriveNumber) -> bool {
        let votes = self.0.configuration.borrow().drives.get(usize::from(drive.0)).is_some_and(|e| e.state.votes());
        votes && self.index(drive).is_some()
    }

    /// First labels of a new pool: all drives, all copies, flushed.
    pub async fn publish(&self) -> Result<(), ArrayError> {
        let _turn = self.0.committing.lock().await;
        let configuration = self.0.configuration.borrow().clone();
        fits(&configuration)?;
        // Twice, for both pairs of copies.
        self.0.settled.set(configuration.epoch);
        for _ in 0..2 {
            let results = self.write_everywhere(&configuration, &self.takers(&configuration, &configuration)).await;
            if let Some((drive, error)) = results.into_iter().find_map(|(drive, r)| r.err().map(|e| (drive, e))) {
                return Err(ArrayError::Degraded(format!(
                    "the label of {drive} could not be written ({error}); replace it and create the pool again"
                )));
            }
        }
        Ok(())
    }

    fn register(&self, drive: DriveNumber) -> Register {
        self.0.registers.borrow().get(usize::from(drive.0)).copied().unwrap_or_default()
    }

    /// Writes the next label of one drive. `whole`: the rest of each copy's space too, as
    /// unreadable sectors there make the copy unreadable until they are rewritten.
    async fn write_one(&self, next: Next<'_>, whole: bool) -> Result<(), MediaError> {
        self.look_whether_it_answers(next.number);
        self.0.silence.or(next.number, self.write_next(next, whole)).await
    }

    async fn write_next(&self, next: Next<'_>, whole: bool) -> Result<(), MediaError> {
        let Next { configuration: new, number, promised, complete } = next;
        let at = usize::from(number.0);
        let size = new.drives[at].size;
        let before = self.register(number);
        let Some(index) = before.index else {
            return Err(MediaError::new(MediaFault::Gone, format!("{number} is not attached")));
        };
        let io = &self.0.io;
        if !before.flushed && !io.is_disabled(Mutation::LabelFlush) {
            // What was read may be in the drive's cache alone, from a process that was killed
            // before it could flush: a power cut would tear it together with the other pair.
            io.flush(index).await?;
        }
        let (sequence, since) = (before.sequence + 1, io.breaks());
        let bytes = Label { sequence, number, promised, complete, configuration: new.clone() }.encode();
        let rest = if whole { LABEL_SIZE as usize - bytes.len() } else { 0 };
        let mut pieces = vec![bytes];
        if rest > 0 {
            pieces.push(Buffer::zeroed(rest).freeze());
        }
        let copies = copies_of(sequence);
        let writes = copies.map(|copy| io.write(index, copy_at(size, copy), pieces.clone(), Priority::Urgent));
        for result in join_all(writes).await {
            // A failed write leaves the sequence: this pair is tried again, the other is whole.
            result?;
        }
        if !io.is_disabled(Mutation::LabelFlush) {
            io.flush(index).await?;
            if !io.has_kept(index, since) {
                return Err(MediaError::new(MediaFault::Retry, format!("another flush of {number} failed")));
            }
        }
        // The drive may have gone and come back meanwhile: then what it came with counts.
        if let Some(register) = self.0.registers.borrow_mut().get_mut(at)
            && register.index == before.index
            && register.sequence == before.sequence
        {
            (register.sequence, register.epoch) = (sequence, new.epoch);
            (register.promised, register.complete) = (promised, complete);
            register.flushed = true;
        }
        Ok(())
    }

    /// Reads every label copy of every usable drive and rewrites damaged or outdated ones; for
    /// scrub. A drive that fails keeps it from none of the others.
    pub async fn scrub(&self) -> Scrubbed {
        let mut sum = Scrubbed::default();
        for numbers in self.usable().chunks(SCRUBBED_AT_ONCE) {
            let bad = {
                let _turn = self.0.committing.lock().await;
                join_all(numbers.iter().map(|number| self.bad_copies(*number))).await
            };
            for (number, _) in numbers.iter().zip(bad).filter(|(_, bad)| *bad > 0) {
                // A passing error is no damage. Commits are not to wait for this.
                self.0.io.sleep(ASK_AGAIN).await;
                self.rewrite_bad(*number, &mut sum).await;
            }
        }
        sum
    }

    /// Copies of the label on a drive that are not what they should be. The caller holds
    /// `committing`.
    async fn bad_copies(&self, number: DriveNumber) -> u64 {
        let register = self.register(number);
        let Some(index) = register.index else { return 0 };
        let size = self.0.configuration.borrow().drives[usize::from(number.0)].size;
        let newest = register.sequence;
        let copies = join_all((0..LABEL_COPIES).map(|copy| read_copy(&self.0.io, index, size, copy))).await;
        let bad = copies.iter().enumerate().filter(|(copy, read)| {
            let expected = if copies_of(newest).contains(copy) { newest } else { newest.saturating_sub(1) };
            !matches!(read, Ok(Ok(label)) if label.sequence == expected && label.number == number)
        });
        // One that has left meanwhile is missing, not damaged.
        if self.index(number) == Some(index) { bad.count() as u64 } else { 0 }
    }

    async fn rewrite_bad(&self, number: DriveNumber, sum: &mut Scrubbed) {
        let _turn = self.0.committing.lock().await;
        let bad = self.bad_copies(number).await;
        if bad == 0 {
            return;
        }
        let Register { promised, complete, .. } = self.register(number);
        let configuration = self.0.configuration.borrow().clone();
        // The older pair first; each is flushed before the next is touched.
        for _ in 0..2 {
            let written =
                self.write_one(Next { configuration: &configuration, number, promised, complete }, true).await;
            if let Err(error) = written {
                sum.trouble.push(ArrayError::Degraded(format!(
                    "the label of {number} is damaged and cannot be rewritten ({error}); replace the drive"
                )));
                return;
            }
        }
        sum.repaired += bad;
    }
}

fn fits(configuration: &Configuration) -> Result<(), ArrayError> {
    let length = codec::encoded(configuration) as u64;
    if length > LABEL_SIZE {
        return Err(ArrayError::Full(format!(
            "the label needs {length} of {LABEL_SIZE} bytes for {} drives and {} log epochs; write a checkpoint",
            configuration.drives.len(),
            configuration.log.len()
        )));
    }
    Ok(())
}

/// The copies a label of this sequence goes to.
fn copies_of(sequence: u64) -> [usize; 2] {
    if sequence % 2 == 1 { [0, 2] } else { [1, 3] }
}

/// Where a copy lies.
fn copy_at(size: Bytes, copy: usize) -> u64 {
    match copy {
        0 | 1 => copy as u64 * LABEL_SIZE,
        _ => size.0 / LABEL_SIZE * LABEL_SIZE - TAIL + (copy as u64 - 2) * LABEL_SIZE,
    }
}

/// Where labels lie on a drive of `size` bytes, for programs that must not write over one.
pub fn places(size: u64) -> Vec<u64> {
    let copies = if size < 2 * TAIL { 0..0 } else { 0..4 };
    copies.map(|copy| copy_at(Bytes(size), copy)).collect()
}

/// Whether a block at such a place begins a label, of whatever format and however damaged behind
/// its first bytes.
pub fn is_label(block: &[u8]) -> bool {
    block.starts_with(codec::MAGIC)
}

/// What the pool says about a drive that it will not use, for status.
pub fn health_of(verdict: &Verdict) -> DriveHealth {
    match verdict {
        Verdict::Member { .. } => DriveHealth::Healthy,
        Verdict::Stale { .. } => DriveHealth::Stale,
        Verdict::Failed { .. } => DriveHealth::Failed,
        Verdict::Unreadable { .. } => DriveHealth::Missing,
        _ => DriveHealth::Rejected,
    }
}

/// Refuses to lay a pool onto drives that carry a label of any pool, whole or damaged, naming them.
pub async fn refuse_labelled(io: &Io, drives: &[Attached]) -> Result<(), ArrayError> {
    let readings = join_all(drives.iter().enumerate().map(|(at, drive)| read_label(io, at, drive.geometry.size))).await;
    let is_blank = |reading: &Reading| matches!(reading, Reading::None(NoLabel::Blank));
    match drives.iter().zip(readings).find(|(_, reading)| !is_blank(reading)) {
        Some((drive, reading)) => Err(refusal(&drive.name, &reading)),
        None => Ok(()),
    }
}

/// Why a drive of which that was read is not overwritten.
pub fn refusal(name: &str, reading: &Reading) -> ArrayError {
    match reading {
        Reading::Unreadable(message) => {
            ArrayError::Degraded(format!("{name} does not answer ({message}); leave it out, or use another drive"))
        }
        // It may be a drive of any pool.
        Reading::None(_) => ArrayError::Refused(format!(
            "{name} carries a damaged or newer label; wipe it first if nothing on it is needed"
        )),
        Reading::Label(label) => {
            let theirs = &label.configuration;
            let kept = if theirs.protected { ", which holds retained records" } else { "" };
            ArrayError::Refused(format!(
                "{name} belongs to pool '{}' ({}){kept}; open that pool, or wipe the drive first",
                theirs.name, theirs.pool
            ))
        }
    }
}

#[cfg(test)]
mod tests;
