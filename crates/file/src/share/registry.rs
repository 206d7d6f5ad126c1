//! Which shares there are, and how each is offered: table 64 of the catalog.

use minicbor::{Decode, Encode};
use stele_archive::Records;
use stele_catalog::{Direction, KeyRange, Table, Transaction};

use super::bypass::Caching;
use super::clearing::RemovedVersions;
use super::reading::inode_of;
use super::records::{
    ACTIVE, BLOCKS, COOKIES, ENTRIES, INODES, NUMBERS, ORPHANS, PINS, STARTS, decode, encode, share_key,
};
use super::tree;
use super::view::{View, failure};
use crate::{FileError, Result};

/// Name of the bucket: [`ShareRow`].
pub const SHARES: Table = Table(64);
/// Shares of one store.
pub const SHARES_MAX: usize = 1024;
/// Records of a removed share that one transaction deletes.
const PAGE: usize = 4096;

/// How a share is offered.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ShareRow {
    /// Part of every handle and of every record's key; never given to another share.
    #[n(0)]
    pub number: u32,
    /// The volume of its cache.
    #[n(1)]
    pub volume: String,
    #[n(2)]
    pub owner: (u32, u32),
    /// Of the root directory when it was made.
    #[n(3)]
    pub mode: u32,
    /// Seconds that a file is idle before it is archived.
    #[n(4)]
    pub archive_after: u32,
    #[n(5)]
    pub retention_min: Option<u64>,
    /// Days, both.
    #[n(6)]
    pub retention_max: Option<u64>,
    /// Networks that may mount it, as addresses with prefixes. None: this machine alone.
    #[n(7)]
    pub networks: Vec<String>,
    #[n(8)]
    pub read_only: bool,
    #[n(9)]
    pub squash: SquashRow,
    /// Seconds that a file is left alone before it is committed; none: it is committed by its mode
    /// alone.
    #[n(10)]
    pub commit_after: Option<u32>,
    /// What becomes of the versions of removed files; none, in rows of earlier versions: they are
    /// kept.
    #[n(11)]
    pub removed: Option<RemovedVersions>,
    /// None, in rows of earlier versions: the cache is on.
    #[n(12)]
    pub caching: Option<Caching>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum SquashRow {
    #[default]
    #[n(0)]
    Root,
    #[n(1)]
    All,
    #[n(2)]
    None,
}

/// Looks up the paths of archived files in the catalog alone: the cache volume of the share may be
/// away.
pub struct Paths(View);

impl Paths {
    /// The path of the file of an object, from the root of the share. None: the object is of no
    /// file that has a name now.
    pub fn of(&mut self, key: &str) -> Result<Option<String>> {
        let Some(inode) = inode_of(key) else { return Ok(None) };
        match tree::path(&mut self.0, inode) {
            Ok(path) => Ok(Some(String::from_utf8_lossy(&path).into_owned())),
            Err(FileError::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether a key is one that the archive gives to the versions of a file.
pub fn is_archive_key(key: &str) -> bool {
    inode_of(key).is_some()
}

/// The shares of a store.
pub struct Registry {
    records: Records,
}

impl Registry {
    pub fn new(records: Records) -> Registry {
        Registry { records }
    }

    /// Name and row of every share, by name.
    pub fn list(&self) -> Result<Vec<(String, ShareRow)>> {
        let snapshot = self.records.snapshot().map_err(|error| FileError::Stopped(error.to_string()))?;
        let records = snapshot.range(SHARES, &KeyRange::all(), SHARES_MAX + 1, Direction::Forward).map_err(failure)?;
        let named = records.iter().filter(|(key, _)| !key.is_empty());
        named.map(|(key, value)| Ok((String::from_utf8_lossy(key).into_owned(), decode(SHARES, key, value)?))).collect()
    }

    pub fn get(&self, name: &str) -> Result<Option<ShareRow>> {
        let snapshot = self.records.snapshot().map_err(|error| FileError::Stopped(error.to_string()))?;
        match snapshot.get(SHARES, name.as_bytes()).map_err(failure)? {
            Some(value) => decode(SHARES, name.as_bytes(), &value).map(Some),
            None => Ok(None),
        }
    }

    /// The names that the tree of a share gives to the archive's objects.
    pub fn paths(&self, share: &ShareRow) -> Paths {
        Paths(View::new(self.records.clone(), share.number))
    }

    /// Adds a share under the number that its row names. The number is drawn by chance: a counter
    /// would begin anew after a rebuild of the catalog, and handles of clients would then lead to
    /// files of another share.
    pub async fn add(&self, name: &str, row: &ShareRow) -> Result<()> {
        let shares = self.list()?;
        if shares.len() >= SHARES_MAX {
            return Err(FileError::Invalid(format!("a store has at most {SHARES_MAX} shares")));
        }
        if row.number == 0 || shares.iter().any(|(_, share)| share.number == row.number) {
            return Err(FileError::Retry("the number of the share is taken; try again".into()));
        }
        let name = name.as_bytes().to_vec();
        let transaction = Transaction::new().absent(SHARES, name.clone()).put(SHARES, name, encode(row));
        self.records.commit(transaction).await.map(drop).map_err(failure)
    }

    /// Changes how a share is offered. Its number stays.
    pub async fn change(&self, name: &str, before: &ShareRow, after: &ShareRow) -> Result<()> {
        assert_eq!(before.number, after.number, "the number of a share never changes");
        let transaction = Transaction::new().equals(SHARES, name.as_bytes().to_vec(), encode(before)).put(
            SHARES,
            name.as_bytes().to_vec(),
            encode(after),
        );
        self.records.commit(transaction).await.map(drop).map_err(failure)
    }

    /// Forgets a share whose tree is empty, and the records of its tree with it. Its own row goes
    /// last, so that a removal that is cut short can be repeated.
    pub async fn remove(&self, name: &str, row: &ShareRow) -> Result<()> {
        let prefix = KeyRange::prefix(share_key(row.number));
        for table in [ENTRIES, COOKIES, BLOCKS, ORPHANS, ACTIVE, PINS, INODES, STARTS, NUMBERS] {
            loop {
                let snapshot = self.records.snapshot().map_err(|error| FileError::Stopped(error.to_string()))?;
                let records = snapshot.range(table, &prefix, PAGE, Direction::Forward).map_err(failure)?;
                if records.is_empty() {
                    break;
                }
                let delete = |transaction: Transaction, key| transaction.delete(table, key);
                let keys = records.into_iter().map(|(key, _)| key);
                let transaction = keys.fold(Transaction::new().with_reserve(), delete);
                self.records.commit(transaction).await.map_err(failure)?;
            }
        }
        let transaction = Transaction::new().with_reserve().delete(SHARES, name.as_bytes().to_vec());
        self.records.commit(transaction).await.map(drop).map_err(failure)
    }
}
