//! The catalog as the share sees it: committed records, and over them those whose transactions are
//! under way.
//!
//! A change is computed on this view, submitted, and seen by the next change at once, so that many
//! changes of one directory go into one group commit. Each transaction requires every record that
//! it has read to be as it was read. Where an earlier transaction fails, those that build on it
//! fail too; the view is reset, and each is computed anew.
//!
//! A caller may go away before its transaction is answered. Then the view cannot know what became
//! of it: it is stale until a later transaction, which takes effect in order, has been answered.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use stele_archive::Records;
use stele_catalog::{Direction, KeyRange, Pending, Receipt, Snapshot, Table, Transaction};

use super::records::{INODES, InodeRow, decode, encode, inode_key, last_number};
use crate::model::Moment;
use crate::{FileError, Result};

type Key = (u16, Bytes);

/// Decoded inode rows that are kept, and the bytes that they take. Most take about 400; one with
/// many names or extended attributes takes up to a megabyte. Those of transactions under way come
/// on top.
const ROWS_MAX: usize = 100_000;
pub const ROW_BYTES_MAX: usize = 64 << 20;
/// What a row takes besides its fields.
const ROW_BYTES: usize = 256;

/// An inode row, and its bytes as stored, which preconditions compare: a later version may have
/// written fields that this one skips.
type Row = (Arc<InodeRow>, Bytes);

/// Rows in memory, and the bytes that they take.
#[derive(Default)]
struct Rows {
    rows: BTreeMap<u64, Row>,
    bytes: usize,
}

impl Rows {
    /// Decoded and as stored.
    fn weight(row: &Row) -> usize {
        ROW_BYTES + 2 * row.1.len()
    }

    fn insert(&mut self, inode: u64, row: Row) {
        self.bytes += Rows::weight(&row);
        if let Some(former) = self.rows.insert(inode, row) {
            self.bytes -= Rows::weight(&former);
        }
    }

    fn remove(&mut self, inode: u64) {
        if let Some(former) = self.rows.remove(&inode) {
            self.bytes -= Rows::weight(&former);
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        let mut gone = 0;
        self.rows.retain(|inode, row| {
            let kept = keep(*inode);
            gone += if kept { 0 } else { Rows::weight(row) };
            kept
        });
        self.bytes -= gone;
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.bytes >= ROW_BYTES_MAX
    }
}

pub struct View {
    records: Records,
    pub share: u32,
    /// The number of the share's present start.
    start: u64,
    /// Records of transactions under way: the latest value, and how many transactions are to be
    /// answered.
    pending: BTreeMap<Key, (Option<Bytes>, u32)>,
    rows: Rows,
    /// Rises with each reset. A transaction of an earlier generation has nothing to settle here.
    generation: u64,
    /// Transactions whose callers went away, and how many of them later ones have shown the outcome
    /// of.
    abandoned: u64,
    refreshed: u64,
    /// A read had to wait for storage.
    waited: Cell<bool>,
    /// Stored records that ranges had.
    #[cfg(test)]
    ranged: std::cell::Cell<usize>,
}

/// Reads and writes of one change. Nothing is seen by others before it is submitted.
pub struct Change<'a> {
    view: &'a mut View,
    snapshot: Option<Box<dyn Snapshot>>,
    /// As they were before the change; what the transaction requires.
    read: BTreeMap<Key, Option<Bytes>>,
    written: BTreeMap<Key, Option<Bytes>>,
    rows: BTreeMap<u64, Option<Row>>,
    pub now: Moment,
    reserve: bool,
}

/// A transaction under way.
pub struct Submitted {
    pub answer: Pending<Receipt>,
    pub ticket: TransactionTicket,
}

/// What is to be settled once the transaction is answered.
pub struct TransactionTicket {
    keys: Vec<Key>,
    generation: u64,
}

impl View {
    pub fn new(records: Records, share: u32) -> View {
        View {
            records,
            share,
            start: 0,
            pending: BTreeMap::new(),
            rows: Rows::default(),
            generation: 0,
            abandoned: 0,
            refreshed: 0,
            waited: Cell::default(),
            #[cfg(test)]
            ranged: std::cell::Cell::default(),
        }
    }

    /// Rows of open files from earlier starts are caught up from here on.
    pub fn set_start(&mut self, start: u64) {
        self.start = start;
        self.reset();
    }

    pub fn records(&self) -> &Records {
        &self.records
    }

    pub fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.records.snapshot().map_err(|error| FileError::Stopped(error.to_string()))
    }

    pub fn change(&mut self, now: Moment) -> Change<'_> {
        Change {
            view: self,
            snapshot: None,
            read: BTreeMap::new(),
            written: BTreeMap::new(),
            rows: BTreeMap::new(),
            now,
            reserve: false,
        }
    }

    /// The row as the latest change left it. `Stale` where there is none.
    pub fn row(&mut self, inode: u64) -> Result<Arc<InodeRow>> {
        self.stored_row(inode).map(|(row, _)| row)
    }

    fn stored_row(&mut self, inode: u64) -> Result<Row> {
        if let Some(row) = self.rows.rows.get(&inode) {
            return Ok(row.clone());
        }
        let key = inode_key(self.share, inode);
        let bytes = self.get(INODES, &key)?.ok_or(FileError::Stale)?;
        let row = Arc::new(decode::<InodeRow>(INODES, &key, &bytes)?.caught_up(self.start));
        self.make_room();
        self.rows.insert(inode, (Arc::clone(&row), bytes.clone()));
        Ok((row, bytes))
    }

    pub fn get(&self, table: Table, key: &Bytes) -> Result<Option<Bytes>> {
        match self.pending.get(&(table.0, key.clone())) {
            Some((value, _)) => Ok(value.clone()),
            None => self.noting_waits(&*self.snapshot()?, |snapshot| snapshot.get(table, key).map_err(failure)),
        }
    }

    fn noting_waits<R>(&self, snapshot: &dyn Snapshot, read: impl FnOnce(&dyn Snapshot) -> R) -> R {
        let before = snapshot.waits();
        let result = read(snapshot);
        if snapshot.waits() != before {
            self.waited.set(true);
        }
        result
    }

    /// Whether a read had to wait for storage since the last call.
    pub fn take_waited(&self) -> bool {
        self.waited.take()
    }

    /// At most `limit` records of a range, forward, with those under way.
    pub fn range(&self, table: Table, range: &KeyRange, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        self.range_in(table, range, limit, Direction::Forward)
    }

    /// As `range`, from either end.
    pub fn range_in(
        &self,
        table: Table,
        range: &KeyRange,
        limit: usize,
        direction: Direction,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        let low = match &range.low {
            std::ops::Bound::Included(key) | std::ops::Bound::Excluded(key) => key.clone(),
            std::ops::Bound::Unbounded => Bytes::new(),
        };
        let under_way: Vec<(&Bytes, &Option<Bytes>)> = self
            .pending
            .range((table.0, low)..)
            .take_while(|((number, _), _)| *number == table.0)
            .map(|((_, key), (value, _))| (key, value))
            .filter(|(key, _)| range.contains(key))
            .collect();
        let snapshot = self.snapshot()?;
        // As many more as may be hidden by removals under way.
        let removed = under_way.iter().filter(|(_, value)| value.is_none()).count();
        let wanted = limit + removed;
        let stored = self.noting_waits(&*snapshot, |snapshot| snapshot.range(table, range, wanted, direction));
        let stored = stored.map_err(failure)?;
        #[cfg(test)]
        self.ranged.set(self.ranged.get() + stored.len());
        let whole = stored.len() < wanted;
        let last = stored.last().map(|(key, _)| key.clone());
        let mut merged: BTreeMap<Bytes, Bytes> = stored.into_iter().collect();
        for (key, value) in under_way {
            // Behind the last stored one there may be others that were not read.
            let behind = |last: &Bytes| match direction {
                Direction::Forward => key > last,
                Direction::Backward => key < last,
            };
            if !whole && last.as_ref().is_some_and(behind) {
                continue;
            }
            match value {
                Some(value) => merged.insert(key.clone(), value.clone()),
                None => merged.remove(key),
            };
        }
        Ok(match direction {
            Direction::Forward => merged.into_iter().take(limit).collect(),
            Direction::Backward => merged.into_iter().rev().take(limit).collect(),
        })
    }

    /// A transaction was answered. `took_place`: with success. Otherwise everything under way is
    /// forgotten: later transactions that build on it fail as well, and their callers compute them
    /// anew from what is committed.
    pub fn settle(&mut self, ticket: TransactionTicket, took_place: bool) {
        if ticket.generation != self.generation {
            // Rows that were read again since the reset may be as they were before this
            // transaction.
            for (_, key) in ticket.keys.iter().filter(|(table, _)| *table == INODES.0) {
                self.rows.remove(last_number(key));
            }
            return;
        }
        if !took_place {
            self.reset();
            return;
        }
        for key in ticket.keys {
            if let Some((_, waiting)) = self.pending.get_mut(&key) {
                *waiting -= 1;
                if *waiting == 0 {
                    self.pending.remove(&key);
                }
            }
        }
    }

    /// A caller went away before its transaction was answered. It may take effect also where the
    /// view was reset meanwhile: what was read since may be as it was before.
    pub fn abandon(&mut self) {
        self.abandoned += 1;
    }

    /// The outcome of a transaction is not known.
    pub fn is_stale(&self) -> bool {
        self.abandoned > self.refreshed
    }

    /// Transactions that were abandoned so far.
    pub fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// A transaction was answered that was submitted behind so many abandoned ones.
    pub fn refresh(&mut self, abandoned: u64) {
        self.reset();
        self.refreshed = abandoned;
    }

    /// Another one after each reset.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// No transaction is under way.
    pub fn is_settled(&self) -> bool {
        !self.is_stale() && self.pending.is_empty()
    }

    fn reset(&mut self) {
        self.generation += 1;
        self.pending.clear();
        self.rows = Rows::default();
    }

    /// A transaction is under way that changes the row.
    pub fn is_pending(&self, inode: u64) -> bool {
        self.pending.contains_key(&(INODES.0, inode_key(self.share, inode)))
    }

    /// The row is in memory.
    pub fn knows(&self, inode: u64) -> bool {
        self.rows.rows.contains_key(&inode)
    }

    fn make_room(&mut self) {
        if !self.rows.is_full() {
            return;
        }
        // Every other one goes: cheap, and what is in use is back with its next use.
        let pending: BTreeSet<u64> =
            self.pending.keys().filter(|(table, _)| *table == INODES.0).map(|(_, key)| last_number(key)).collect();
        let mut odd = false;
        self.rows.retain(|inode| {
            odd = !odd;
            odd || pending.contains(&inode)
        });
    }

    /// Stored records that ranges had so far.
    #[cfg(test)]
    pub fn ranged(&self) -> usize {
        self.ranged.get()
    }

    /// The bytes that rows in memory take.
    #[cfg(test)]
    pub fn row_bytes(&self) -> usize {
        self.rows.bytes
    }
}

impl Change<'_> {
    pub fn share(&self) -> u32 {
        self.view.share
    }

    pub fn get(&mut self, table: Table, key: &Bytes) -> Result<Option<Bytes>> {
        let name = (table.0, key.clone());
        if let Some(value) = self.written.get(&name).or_else(|| self.read.get(&name)) {
            return Ok(value.clone());
        }
        let value = match self.view.pending.get(&name) {
            Some((value, _)) => value.clone(),
            None => {
                let snapshot = match &self.snapshot {
                    Some(snapshot) => snapshot,
                    None => self.snapshot.insert(self.view.snapshot()?),
                };
                self.view.noting_waits(&**snapshot, |snapshot| snapshot.get(table, key).map_err(failure))?
            }
        };
        self.read.insert(name, value.clone());
        Ok(value)
    }

    /// The row as the latest change left it. The transaction requires it where one that changes it
    /// is under way.
    pub fn shown_row(&mut self, inode: u64) -> Result<Arc<InodeRow>> {
        let (row, bytes) = self.view.stored_row(inode)?;
        if self.view.is_pending(inode) {
            self.read.insert((INODES.0, inode_key(self.share(), inode)), Some(bytes));
        }
        Ok(row)
    }

    pub fn fetch<T: for<'b> Decode<'b, ()>>(&mut self, table: Table, key: &Bytes) -> Result<Option<T>> {
        match self.get(table, key)? {
            Some(bytes) => decode(table, key, &bytes).map(Some),
            None => Ok(None),
        }
    }

    pub fn put<T: Encode<()>>(&mut self, table: Table, key: Bytes, row: &T) {
        self.written.insert((table.0, key), Some(encode(row)));
    }

    pub fn put_bytes(&mut self, table: Table, key: Bytes, value: Bytes) {
        self.written.insert((table.0, key), Some(value));
    }

    pub fn delete(&mut self, table: Table, key: Bytes) {
        self.written.insert((table.0, key), None);
    }

    /// `Stale` where there is no such inode.
    pub fn row(&mut self, inode: u64) -> Result<InodeRow> {
        if let Some(row) = self.rows.get(&inode) {
            return row.as_ref().map(|(row, _)| InodeRow::clone(row)).ok_or(FileError::Stale);
        }
        let key = inode_key(self.share(), inode);
        let (row, bytes) = self.view.stored_row(inode)?;
        self.read.insert((INODES.0, key), Some(bytes));
        Ok(InodeRow::clone(&row))
    }

    pub fn put_row(&mut self, inode: u64, mut row: InodeRow) {
        row.start = row.open.then_some(self.view.start);
        let bytes = encode(&row);
        self.put_bytes(INODES, inode_key(self.share(), inode), bytes.clone());
        self.rows.insert(inode, Some((Arc::new(row), bytes)));
    }

    pub fn delete_row(&mut self, inode: u64) {
        self.delete(INODES, inode_key(self.share(), inode));
        self.rows.insert(inode, None);
    }

    /// Lets the transaction use the space that is kept for removals.
    pub fn with_reserve(&mut self) {
        self.reserve = true;
    }

    /// Nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// It has read what another transaction, which is not answered yet, is to write.
    pub fn rests_on_pending(&self) -> bool {
        self.read.keys().any(|key| self.view.pending.contains_key(key))
    }

    /// Submits the transaction by `commit`, and shows what it changes to the next change.
    pub fn submit(self, commit: impl FnOnce(Transaction) -> Pending<Receipt>) -> Submitted {
        let mut transaction = Transaction::new();
        if self.reserve {
            transaction = transaction.with_reserve();
        }
        for ((table, key), value) in &self.read {
            let table = Table(*table);
            transaction = match value {
                Some(value) => transaction.equals(table, key.clone(), value.clone()),
                None => transaction.absent(table, key.clone()),
            };
        }
        for ((table, key), value) in &self.written {
            let table = Table(*table);
            transaction = match value {
                Some(value) => transaction.put(table, key.clone(), value.clone()),
                None => transaction.delete(table, key.clone()),
            };
        }
        let answer = commit(transaction);
        let keys: Vec<Key> = self.written.keys().cloned().collect();
        for (key, value) in self.written {
            let pending = self.view.pending.entry(key).or_insert((None, 0));
            pending.0 = value;
            pending.1 += 1;
        }
        for (inode, row) in self.rows {
            match row {
                Some(row) => {
                    self.view.make_room();
                    self.view.rows.insert(inode, row);
                }
                None => self.view.rows.remove(inode),
            }
        }
        Submitted { answer, ticket: TransactionTicket { keys, generation: self.view.generation } }
    }
}

/// A catalog's error as a file's.
pub fn failure(error: stele_catalog::CatalogError) -> FileError {
    use stele_catalog::CatalogError;
    match error {
        CatalogError::Full(_) => FileError::NoSpace,
        CatalogError::Busy => FileError::Retry(error.to_string()),
        CatalogError::Failed(_) => {
            FileError::Retry("other changes of the same files came in between; try again".into())
        }
        CatalogError::Invalid(message) => FileError::Invalid(message),
        CatalogError::Damaged(_) | CatalogError::Newer(_) => FileError::Damaged(error.to_string()),
        CatalogError::Stopped(_) => FileError::Stopped(error.to_string()),
    }
}
