//! The paged table: everything the pool knows that does not fit in labels.
//!
//! A page is 16 KiB, named by table and index; a page never written reads as zeros. Pages lie in rows of their own, as
//! mirrors on up to m + 2 drives, copy on write, each verified by a digest one level up (page <- directory chunk <-
//! directory index <- anchor). The directory is held in memory, 16 bytes a page; page contents are cached up to a limit.
//!
//! How the engine calls it:
//! - find: `cached(id)` or `page(id).await`; keep the [`PageRef`] over the synchronous step that reads or changes it.
//! - change: in one synchronous step append the record and `change` every page it touches; never await between.
//! - checkpoint: `begin_checkpoint(&log, oldest, root)` is synchronous and is the cut: it catches every change so
//!   far and appends `Record::Checkpoint`. `oldest` is the LSN of the oldest record still needed besides (the oldest
//!   write not destaged), `root` up to 64 KiB of the engine's own. Then `Checkpoint::write().await` does the rest while changes
//!   go on: dirty pages, touched directory, flush, log durable up to the cut, anchor on all drives, flush, trim.
//!   One checkpoint at a time.
//! - `wants_checkpoint` is true when the dirty pages fill half of the cache.

use std::cell::RefCell;
use std::rc::Rc;

use stele_ground::Bytes;

use crate::ArrayError;
use crate::io::Io;
use crate::label::Labels;
use crate::layout::Layout;
use crate::log::{Log, LogPosition, Reservation};
use crate::place::{Lsn, PageId};

/// Bytes of a page.
pub const PAGE: usize = 16 << 10;
/// Bytes the engine may keep in the anchor.
pub const ROOT_MAX: usize = 64 << 10;

/// The page store of a pool. Cheap to clone.
#[derive(Clone)]
pub struct Table(Rc<()>);

/// A page in memory. While it is held the page stays in memory.
#[derive(Clone)]
pub struct PageRef(Rc<()>);

/// What the newest anchor says.
#[derive(Clone, Debug)]
pub struct Opened {
    pub sequence: u64,
    /// Pages hold every change below this record.
    pub cut: Lsn,
    /// Replay from here.
    pub replay: LogPosition,
    /// What the engine handed to `begin_checkpoint`.
    pub root: Vec<u8>,
    /// Anchor copies found damaged or outdated.
    pub outdated: u32,
}

/// A checkpoint between cut and durable anchor. Dropped unfinished, it changes nothing: its pages are dirty again.
pub struct Checkpoint {
    _table: Table,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct TableCounters {
    pub page_reads: u64,
    pub page_writes: u64,
    pub hits: u64,
    pub misses: u64,
    pub checkpoints: u64,
    pub repaired: u64,
    pub pages: u64,
}

impl Table {
    /// An empty table of a new pool. The first checkpoint writes the first anchor.
    pub fn create(_io: &Io, _labels: &Labels, _layout: &Rc<RefCell<Layout>>, _cache: Bytes) -> Table {
        todo!()
    }

    /// Finds the newest valid anchor on the usable drives, reads the directory, and inserts the table's own rows into the layout.
    /// `Damaged` when no drive holds a valid anchor, or a directory page is nowhere whole.
    pub async fn open(
        _io: &Io,
        _labels: &Labels,
        _layout: &Rc<RefCell<Layout>>,
        _cache: Bytes,
        _read_only: bool,
    ) -> Result<(Table, Opened), ArrayError> {
        todo!()
    }

    /// The page, if it needs no reading.
    pub fn cached(&self, _id: PageId) -> Option<PageRef> {
        todo!()
    }

    /// The page; read from any replica that verifies, the others repaired. `Damaged` when none does.
    pub async fn page(&self, _id: PageId) -> Result<PageRef, ArrayError> {
        todo!()
    }

    /// One more than the highest page index that was ever written in the table (and not forgotten).
    pub fn pages(&self, _table: u32) -> u32 {
        todo!()
    }

    /// Drops all pages of a table; its space is free after the next checkpoint.
    pub fn forget(&self, _table: u32) {
        todo!()
    }

    /// Dirty pages.
    pub fn dirty(&self) -> usize {
        todo!()
    }

    pub fn wants_checkpoint(&self) -> bool {
        todo!()
    }

    /// The cut. Pays its records from `paid_from` (`checkpoint_cost` bytes of `Purpose::Checkpoint`).
    pub fn begin_checkpoint(
        &self,
        _log: &Log,
        _oldest: Lsn,
        _root: Vec<u8>,
        _paid_from: &mut Reservation,
    ) -> Checkpoint {
        todo!()
    }

    /// True while a checkpoint is between cut and anchor.
    pub fn checkpointing(&self) -> bool {
        todo!()
    }

    /// Moves the table's own strips off a drive that is lost, or leaves: for every table row with a member there, a
    /// spare is chosen, filled from a verified replica and put in its place; durable with the next checkpoint. Returns rows moved.
    pub async fn evacuate(&self, _drive: crate::place::DriveNumber) -> Result<u64, ArrayError> {
        todo!()
    }

    /// Reads every replica of every page and of the directory and repairs what does not verify; for scrub. Calls `progress` with pages done
    /// and in all, and stops early when it answers false.
    pub async fn scrub(&self, _progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<u64, ArrayError> {
        todo!()
    }

    pub fn counters(&self) -> TableCounters {
        todo!()
    }
}

impl PageRef {
    pub fn id(&self) -> PageId {
        todo!()
    }

    pub fn read<R>(&self, _with: impl FnOnce(&[u8]) -> R) -> R {
        todo!()
    }

    /// Marks the page dirty. A page caught by a checkpoint under way is copied first.
    pub fn change<R>(&self, _with: impl FnOnce(&mut [u8]) -> R) -> R {
        todo!()
    }
}

impl Checkpoint {
    /// The cut.
    pub fn lsn(&self) -> Lsn {
        todo!()
    }

    /// Makes it durable and trims the log. On an error the pages are dirty again and the former checkpoint holds.
    pub async fn write(self) -> Result<(), ArrayError> {
        todo!()
    }
}

/// Log bytes a checkpoint may need.
pub fn checkpoint_cost(_log: &Log) -> u64 {
    todo!()
}
