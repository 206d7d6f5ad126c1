//! A share: a bucket as a tree of files, with a cache volume in front of the archive.
//!
//! The catalog holds names, attributes and the map of the cache. The cache volume holds content
//! that is not archived yet, or was read lately. The archive holds a version of each archived file
//! under its inode number.
//!
//! Failure model: the catalog and the cache volume belong to one pool and lose nothing that was
//! acknowledged. A catalog that has stopped stops the share: calls answer `Stopped` until the
//! server has opened the store anew. The archive may refuse for as long as it likes: content stays
//! in the cache, and writers are held back when that is full.

mod active;
mod archiving;
mod around;
mod autocommit;
mod bypass;
mod calls;
mod clearing;
mod core;
mod eviction;
mod giving;
mod named;
mod objects;
mod opening;
mod pinning;
mod reading;
mod records;
mod refusals;
pub mod registry;
mod releasing;
mod restoring;
mod retention;
mod saving;
mod slots;
mod state;
mod stuck;
#[cfg(test)]
mod tests;
mod tree;
mod upload;
mod view;
mod warming;
mod writing;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use futures_util::future::try_join_all;
use stele_archive::{Archive, Surroundings, Timestamp};
use stele_catalog::{CatalogError, KeyRange, Pending, Receipt, Transaction};
use stele_ground::Duration;
use stele_media::Handle;
use tokio::sync::{Mutex as Turn, Notify, Semaphore};

pub use archiving::{ARCHIVE_AFTER, Worked};
pub use bypass::Caching;
pub use clearing::RemovedVersions;
pub use objects::ObjectView;
pub use retention::RetentionRules;
pub use state::FileState;
pub use stuck::StuckFiles;

use self::around::Around;
use self::core::{Core, Part, Source, zeros};
use self::records::{BLOCK, INODES, NUMBERS, ORPHANS, ROOT, SLOT, last_number, share_key};
use self::tree::{Compliance, Numbers};
use self::view::{Change, TransactionTicket, failure};
use crate::model::{Caller, Inode};
use crate::{FileError, Result};

/// Times that a change is computed anew because others came in between.
const ATTEMPTS: usize = 32;
/// The smallest cache volume.
pub const CACHE_MIN: u64 = 16 << 20;
/// The longest body of one version.
const BODY_MAX: u64 = 5 << 30;
/// Extended attributes of a file: names and values together.
const ATTRIBUTES_MAX: usize = 64 << 10;

/// How a share behaves. Changing it changes nothing stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long a file is idle before it is archived.
    pub archive_after: Duration,
    pub retention: RetentionRules,
    pub removed_versions: RemovedVersions,
    pub caching: Caching,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            archive_after: ARCHIVE_AFTER,
            retention: RetentionRules::default(),
            removed_versions: RemovedVersions::default(),
            caching: Caching::default(),
        }
    }
}

/// What a share stands on.
#[derive(Clone)]
pub struct Ground {
    pub archive: Archive,
    /// The cache volume; it is the share's alone.
    pub cache: Handle,
    /// Bytes that the cache volume takes from its pool, and gives back, as a whole: a stripe.
    pub cache_unit: u64,
    pub surroundings: Arc<dyn Surroundings>,
}

/// An open share.
pub struct Share {
    /// Itself: a commit that goes on without its caller holds the share.
    own: Weak<Share>,
    name: String,
    archive: Archive,
    cache: Handle,
    surroundings: Arc<dyn Surroundings>,
    settings: Mutex<Settings>,
    /// Of the settings: every write and every read asks for it.
    bypasses: AtomicBool,
    core: Mutex<Core>,
    /// For the one who finds out what became of abandoned transactions.
    refreshing: Turn<()>,
    /// The parts of background work, each of which goes on once at a time.
    archiving: Turn<archiving::Pace>,
    committing: Turn<()>,
    tidying: Turn<()>,
    /// Uploads in parts begin in turn, and so are those aborted that were left behind.
    beginning: Turn<()>,
    uploads: Mutex<upload::Uploads>,
    /// S3 requests that give a name to a file take turns, path by path.
    naming: objects::Naming,
    /// Background work has been done: there may be room in the cache.
    room: Notify,
    /// A writer waits for room.
    wants_room: AtomicBool,
    /// Bytes that the pool needs of what the cache holds.
    wanted_space: AtomicU64,
    /// So many callers more let their records be read before their steps. See `warming`.
    waiting_reads: AtomicU32,
    /// For those whose records are being read meanwhile.
    readers: Semaphore,
    /// Transactions become durable in one order with the cache volume's writes.
    ordered: bool,
    /// Unstable writes that were answered and are not durable.
    behind: Arc<AtomicUsize>,
    /// The longest body of one version; a longer file is stored in parts.
    body_max: u64,
    verifier: [u8; 8],
    counters: Counters,
}

/// What a share has done since it was opened.
#[derive(Default)]
struct Counters {
    archived_files: AtomicU64,
    archived_bytes: AtomicU64,
    /// Bytes that were read, and the cache had; and that it did not have.
    hit_bytes: AtomicU64,
    missed_bytes: AtomicU64,
}

impl Counters {
    fn read(&self, parts: &[Part]) {
        for part in parts {
            let counter = match part.source {
                Source::Archive => &self.missed_bytes,
                Source::Cache(_) => &self.hit_bytes,
                Source::Zeros => continue,
            };
            counter.fetch_add(part.end - part.start, Ordering::Relaxed);
        }
    }

    fn archived(&self, bytes: u64) {
        self.archived_files.fetch_add(1, Ordering::Relaxed);
        self.archived_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// How a share is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Files whose content is not archived yet.
    pub open: u64,
    /// How long the one that has waited longest is idle.
    pub oldest: Option<Duration>,
    /// Removed files whose content is not cleared away yet.
    pub removing: u64,
    pub cache_used: u64,
    pub cache_size: u64,
    /// Since the share was opened.
    pub archived_files: u64,
    pub archived_bytes: u64,
    /// Bytes that were read and the cache had, since the share was opened; and that it had to
    /// fetch.
    pub hit_bytes: u64,
    pub missed_bytes: u64,
    pub pinned: u64,
    /// Why the archive took no file lately, and the path of the file.
    pub refusal: Option<String>,
    pub refused_path: Option<String>,
}

/// Settles a transaction as unknown when its caller goes away.
struct Waiting<'a> {
    share: &'a Share,
    ticket: Option<TransactionTicket>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            self.share.locked().view.abandon();
        }
    }
}

impl Share {
    fn own(&self) -> Result<Arc<Share>> {
        self.own.upgrade().ok_or_else(|| FileError::Stopped("the share is closed".into()))
    }

    /// One step on the share's state. It does not wait, so that nothing comes in between. A closed
    /// share refuses each.
    fn step<R>(&self, act: impl FnOnce(&mut Core) -> Result<R>) -> Result<R> {
        let mut core = self.locked();
        if core.closed {
            return Err(FileError::Stale);
        }
        let result = act(&mut core);
        if core.view.take_waited() {
            self.expect_waits();
        }
        result
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Core> {
        // A panic elsewhere ended the process or left whole values behind: every step is one.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wall(&self) -> Timestamp {
        self.surroundings.now().wall
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its part of the catalog's tables, and of the table of locks.
    pub fn number(&self) -> u32 {
        self.locked().view.share
    }

    pub fn settings(&self) -> Settings {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_settings(&self, settings: Settings) {
        let after = settings.removed_versions;
        self.bypasses.store(settings.caching == Caching::Off, Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.settings.lock().unwrap_or_else(PoisonError::into_inner), settings);
        if after != before.removed_versions {
            // The next pass begins at once.
            self.locked().leftovers = clearing::Leftovers::default();
        }
    }

    /// Who asks the archive.
    fn caller(&self, act: &str) -> stele_archive::Caller {
        stele_archive::Caller::gateway(format!("share {}, {act}", self.name))
    }

    /// Computes a change, commits it, and answers once it is durable.
    async fn change<T>(&self, act: impl FnMut(&mut Change<'_>, &mut Numbers) -> Result<T>) -> Result<T> {
        let records = self.archive.records();
        self.change_by(act, |transaction| records.commit(transaction)).await
    }

    /// As `change`, with another way to commit.
    async fn change_by<T>(
        &self,
        act: impl FnMut(&mut Change<'_>, &mut Numbers) -> Result<T>,
        commit: impl Fn(Transaction) -> Pending<Receipt>,
    ) -> Result<T> {
        self.change_in(&mut (), act, commit).await
    }

    /// As `change`, with what goes with it in the same steps.
    async fn change_around<T, A: Around>(
        &self,
        around: &mut A,
        act: impl FnMut(&mut Change<'_>, &mut Numbers) -> Result<T>,
    ) -> Result<T> {
        let records = self.archive.records();
        self.change_in(around, act, |transaction| records.commit(transaction)).await
    }

    async fn change_in<T, A: Around>(
        &self,
        around: &mut A,
        mut act: impl FnMut(&mut Change<'_>, &mut Numbers) -> Result<T>,
        commit: impl Fn(Transaction) -> Pending<Receipt>,
    ) -> Result<T> {
        for _ in 0..ATTEMPTS {
            self.refresh().await?;
            let (value, submitted) = self.step(|core| {
                around.before(core)?;
                let now = core.now(self.stamp());
                let Core { view, numbers, .. } = core;
                let mut change = view.change(now);
                let value = act(&mut change, numbers)?;
                if change.is_empty() && change.rests_on_pending() {
                    // What was found is not durable yet, and the answer says that it is: a record
                    // that changes nothing is answered after it, or fails with it.
                    let key = share_key(change.share());
                    change.with_reserve();
                    change.put_bytes(NUMBERS, key, numbers.stored());
                }
                let submitted = match change.is_empty() {
                    true => None,
                    false => Some(change.submit(&commit)),
                };
                around.submitted(core)?;
                Ok((value, submitted))
            })?;
            let Some(submitted) = submitted else { return Ok(value) };
            let mut waiting = Waiting { share: self, ticket: Some(submitted.ticket) };
            let answer = submitted.answer.await;
            if let Some(ticket) = waiting.ticket.take() {
                let mut core = self.locked();
                core.view.settle(ticket, answer.is_ok());
                around.settled(&mut core, answer.is_ok());
            }
            match answer {
                Ok(_) => return Ok(value),
                Err(CatalogError::Failed(_)) => {}
                Err(error) => return Err(failure(error)),
            }
        }
        Err(FileError::Retry("many others change the same files; try again".into()))
    }

    /// Where a caller went away before its transaction was answered: waits until that has taken
    /// effect or failed, and forgets what was assumed of it.
    async fn refresh(&self) -> Result<()> {
        if !self.locked().view.is_stale() {
            return Ok(());
        }
        let _turn = self.refreshing.lock().await;
        while self.locked().view.is_stale() {
            let (abandoned, barrier) = self.step(|core| {
                let (key, value) = (share_key(core.view.share), core.numbers.stored());
                let barrier = Transaction::new().with_reserve().put(NUMBERS, key, value);
                Ok((core.view.abandoned(), core.view.records().commit(barrier)))
            })?;
            barrier.await.map_err(failure)?;
            self.locked().view.refresh(abandoned);
        }
        Ok(())
    }

    /// The file's content changed, or it is to be archived.
    fn note_active(&self, inode: u64) -> Result<()> {
        let now = self.surroundings.now().monotonic;
        self.step(|core| {
            core.activate(inode, now);
            Ok(())
        })
    }

    fn compliance(&self) -> Compliance {
        Compliance(self.archive.compliance_time().0)
    }

    fn ask_for_room(&self) {
        self.wants_room.store(true, Ordering::Relaxed);
    }

    /// Whether a writer waits for room; asking takes the wish back.
    fn wanted(&self) -> bool {
        self.wants_room.swap(false, Ordering::Relaxed)
    }

    /// Whether the cache has so little room that files are archived at once.
    pub fn is_nearly_full(&self) -> bool {
        self.locked().is_nearly_full()
    }

    /// Whether there is work that should not wait for the next round.
    pub fn is_pressed(&self) -> bool {
        self.wants_room.load(Ordering::Relaxed)
    }

    /// Pieces of a range, for the holder of the file's gate.
    async fn pieces_held(&self, inode: u64, start: u64, end: u64) -> Result<Vec<Bytes>> {
        let (parts, row) = self.step(|core| {
            let (row, content) = core.content(inode)?;
            Ok((content.parts(start, end, row.served()), row))
        })?;
        try_join_all(parts.iter().map(|part| async {
            match (part.source, &row.archived) {
                (Source::Cache(at), _) => self.read_cache(at, part.end - part.start).await,
                (Source::Archive, Some(archived)) => {
                    Ok(vec![self.read_archived(inode, archived, part.start, part.end).await?])
                }
                _ => Ok(vec![zeros(part.end - part.start)]),
            }
        }))
        .await
        .map(|pieces| pieces.into_iter().flatten().collect())
    }

    pub fn status(&self) -> Result<Status> {
        let now = self.surroundings.now().monotonic;
        let archived_files = self.counters.archived_files.load(Ordering::Relaxed);
        let archived_bytes = self.counters.archived_bytes.load(Ordering::Relaxed);
        self.step(|core| {
            let refusal = core.refusal.clone();
            Ok(Status {
                open: core.active.len() as u64,
                oldest: core.active.oldest().map(|at| now.since(at)),
                removing: core.orphans.len() as u64,
                cache_used: core.slots.used() * SLOT,
                cache_size: core.slots.count() * SLOT,
                archived_files,
                archived_bytes,
                hit_bytes: self.counters.hit_bytes.load(Ordering::Relaxed),
                missed_bytes: self.counters.missed_bytes.load(Ordering::Relaxed),
                pinned: core.pinned.len() as u64,
                refused_path: refusal.as_ref().map(|(inode, _)| stuck::shown(core, *inode)),
                refusal: refusal.map(|(_, error)| error.to_string()),
            })
        })
    }

    #[cfg(test)]
    fn row(&self, inode: Inode) -> Result<records::InodeRow> {
        self.step(|core| Ok(records::InodeRow::clone(&*core.view.row(inode.0)?)))
    }

    /// The inode at a path from the root, `/` between names, as root sees it.
    pub fn resolve(&self, path: &str) -> Result<Inode> {
        self.step(|core| {
            let mut at = Inode(ROOT);
            for name in path.split('/').filter(|name| !name.is_empty()) {
                at = tree::lookup(&mut core.view, &Caller::ROOT, at, name.as_bytes())?;
            }
            Ok(at)
        })
    }

    /// The file or directory with this number, as 16 hexadecimal digits, if it has a name. A name
    /// that is no text cannot be given as a path.
    pub fn numbered(&self, number: &str) -> Option<Inode> {
        let inode = reading::inode_of(number)?;
        let is_named = self.step(|core| Ok(inode == ROOT || core.view.row(inode)?.links > 0));
        is_named.unwrap_or(false).then_some(Inode(inode))
    }

    /// Committed files below a directory, at any depth. With any, it keeps its name.
    pub fn committed_below(&self, inode: Inode) -> Result<u64> {
        self.step(|core| Ok(core.view.row(inode.0)?.committed_below))
    }

    /// The archive's key of a file, and what the gateway knows of its state.
    pub fn state(&self, inode: Inode) -> Result<FileState> {
        self.step(|core| {
            let row = core.view.row(inode.0)?;
            if !row.is_file() {
                return Err(FileError::Invalid("only regular files are archived".into()));
            }
            Ok(FileState {
                key: reading::key_of(inode.0),
                version: row.archived.as_ref().filter(|_| !row.open).map(|archived| archived.version.clone()),
                committed: row.committed.map(Timestamp),
            })
        })
    }

    /// Whether the share has no file and no directory but its root.
    pub fn has_no_names(&self) -> Result<bool> {
        self.step(|core| Ok(core.view.row(ROOT)?.entries == 0))
    }

    /// Closes the share for its removal, if it has no file and no directory but its root, and
    /// nothing left to clear away. From the same moment on every call answers `Stale`, also to
    /// callers that hold the share: no write can come after the look. Answers whether it is closed.
    pub fn close_if_empty(&self) -> Result<bool> {
        self.step(|core| {
            let removed = core.view.range(ORPHANS, &KeyRange::prefix(share_key(core.view.share)), 1)?;
            // A transaction under way may fail, and what it removes may come back.
            let empty = core.view.row(ROOT)?.entries == 0 && removed.is_empty() && core.orphans.is_empty();
            core.closed = empty && core.view.is_settled();
            Ok(core.closed)
        })
    }

    /// Takes calls again, after a removal that did not come about.
    pub fn open_again(&self) {
        self.locked().closed = false;
    }
}

/// The root directory of a new share.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    pub owner: (u32, u32),
    pub mode: u32,
}

/// Blocks of the cache volume are whole sectors of every drive.
const _: () = assert!(SLOT.is_multiple_of(BLOCK) && BLOCK == 4096 && INODES.0 > 64);
