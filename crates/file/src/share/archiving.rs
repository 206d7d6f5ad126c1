//! Files on their way into the archive, and out of the cache.
//!
//! A file that was not changed for a while is stored as a version under its inode number. Its
//! content is streamed without holding the file; only the end is done under the file's gate: where
//! the file changed meanwhile, nothing is stored.
//!
//! One transaction stores the version and lets the file's row name it. A crash before it leaves the
//! file open, and it is archived again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use stele_archive::Retention;
use stele_ground::{Duration, Instant};

use super::Share;
use super::named::NamedByRow;
use super::refusals::Refusals;
use super::upload::Plan;
use super::{stuck, tree};
use crate::{FileError, Inode, Result};

/// Between two attempts to store a file that is in use, or that the archive refused.
const AGAIN_WHEN_CROWDED: Duration = Duration::from_secs(1);
/// Files that one step stores side by side.
const STORED_AT_ONCE: usize = 64;
/// Open files that one step looks at, on its way to those.
const LOOKS_MAX: usize = 1024;
/// Files longer than a body among those that are stored side by side: each may take hours.
const LONG_AT_ONCE: usize = 24;
/// Contents known in memory, above which those that nothing needs are forgotten.
const CONTENTS_MAX: usize = 50_000;
/// How long a writer waits for the archive to take content out of a full cache, before its client
/// is asked to try again. Clients take a server that answers nothing for a minute for dead.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rounds after which a refusal of all files is a waiting writer's answer.
const REFUSED_ROUNDS: u32 = 2;
/// Times that a file which is being changed is tried.
const STORES_MAX: u32 = 20;

/// Characters of a path that a version's metadata carries; a longer one is left out.
pub(super) const PATH_MAX: usize = 6_000;

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Worked {
    pub archived: u64,
    pub archived_bytes: u64,
    /// Files that were committed because they were left alone.
    pub committed: u64,
    /// Removed files that were cleared away, in whole or in part.
    pub cleared: u64,
    pub evicted: u64,
    /// There is more to do at once.
    pub more: bool,
}

impl Worked {
    fn add(&mut self, other: Worked) {
        self.archived += other.archived;
        self.archived_bytes += other.archived_bytes;
        self.committed += other.committed;
        self.cleared += other.cleared;
        self.evicted += other.evicted;
        self.more |= other.more;
    }
}

/// What one round of archiving leaves to the next.
#[derive(Default)]
pub(super) struct Pace {
    /// The archive had no room for a file lately. Files that are stored side by side take room from
    /// one another, and all may fail where most would fit one after the other.
    pub one_by_one: bool,
    pub refusals: Refusals,
}

/// A file that is to be archived.
#[derive(Clone, Copy)]
struct Due {
    inode: u64,
    size: u64,
    /// It is longer than a body.
    is_long: bool,
}

/// A writer's waiting for room in the cache.
#[derive(Default)]
pub(super) struct Waiting {
    since: Option<Instant>,
    rounds: u32,
}

/// Who stores a file.
#[derive(Clone, Copy)]
pub(super) enum Storing {
    /// Background work, or a reader of the version. The gate is taken at the end.
    Beside,
    /// A commit that holds the file's gate, so that nothing changes. The version is under this
    /// retention from its first moment.
    Held(Option<Retention>),
}

/// How the end of storing a file went.
pub(super) enum Stored {
    Done(u64),
    /// It changed meanwhile, or is in use.
    Later,
}

impl Share {
    /// One round of all background work. A server lets the three parts go on beside one another:
    /// archiving and committing a large file take as long as its upload.
    pub async fn work(&self) -> Result<Worked> {
        let mut worked = Worked::default();
        {
            let _turn = self.tidying.lock().await;
            self.clear_orphans(&mut worked).await?;
            self.clear_leftovers(&mut worked, false).await?;
            self.abort_left().await;
        }
        worked.add(self.archive_round().await?);
        worked.add(self.commit_round().await?);
        worked.add(self.room_round().await?);
        Ok(worked)
    }

    /// Makes room in the cache, and clears away removed files. A boxed future, as the other rounds:
    /// its code is compiled in this crate, and not where it is polled.
    pub fn room_round(&self) -> BoxFuture<'_, Result<Worked>> {
        Box::pin(self.make_room())
    }

    async fn make_room(&self) -> Result<Worked> {
        let _turn = self.tidying.lock().await;
        let mut worked = Worked::default();
        // First: writers wait for it, and deleting versions takes long.
        let needed = self.needed_slots().await;
        let evicted = self.evict(needed, &mut worked).await;
        if worked.evicted > 0 {
            self.room.notify_waiters();
        }
        let cleared = self.clear_orphans(&mut worked).await;
        self.abort_left().await;
        let left = self.clear_leftovers(&mut worked, false).await;
        self.step(|core| {
            core.trim(CONTENTS_MAX);
            Ok(())
        })?;
        self.room.notify_waiters();
        let given = self.give_space(needed > 0).await.map(drop);
        if needed > 0 {
            self.forget_wish();
        }
        evicted.and(cleared).and(given).and(left).map(|_| worked)
    }

    /// Commits files that were left alone.
    pub fn commit_round(&self) -> BoxFuture<'_, Result<Worked>> {
        Box::pin(self.commit_left())
    }

    async fn commit_left(&self) -> Result<Worked> {
        let _turn = self.committing.lock().await;
        let mut worked = Worked::default();
        self.commit_idle(&mut worked).await?;
        Ok(worked)
    }

    /// Archives files that are idle, those that become so meanwhile too, until those of the begin
    /// and all long ones are through.
    pub fn archive_round(&self) -> BoxFuture<'_, Result<Worked>> {
        Box::pin(self.archive_idle())
    }

    async fn archive_idle(&self) -> Result<Worked> {
        let mut pace = self.archiving.lock().await;
        let mut worked = Worked::default();
        self.step(|core| {
            core.active.give_back();
            Ok(())
        })?;
        let long_max = if pace.one_by_one { 1 } else { LONG_AT_ONCE };
        let first = self.due(&BTreeMap::new(), STORED_AT_ONCE, long_max)?;
        worked.more = first.len() == STORED_AT_ONCE;
        match pace.one_by_one {
            true => self.store_one_by_one(first, &mut pace, &mut worked).await?,
            false => self.store_side_by_side(first, &mut pace, &mut worked).await?,
        }
        Ok(worked)
    }

    /// Stores these files, and those that become idle meanwhile. Once the archive had no room for
    /// one, the round takes one file at a time, beside the long ones under way.
    async fn store_side_by_side(&self, first: Vec<Due>, pace: &mut Pace, worked: &mut Worked) -> Result<()> {
        let mut begun: BTreeSet<u64> = first.iter().map(|due| due.inode).collect();
        let mut storing: BTreeMap<u64, bool> = first.iter().map(|due| (due.inode, due.is_long)).collect();
        let store = |inode| async move { (inode, self.store_idle(inode).await) };
        let mut under_way: FuturesUnordered<_> = first.into_iter().map(|due| store(due.inode)).collect();
        while !under_way.is_empty() {
            let ended = tokio::select! {
                biased;
                ended = under_way.next() => ended,
                () = self.room.notified(), if !begun.is_empty() => None,
            };
            if let Some((inode, result)) = ended {
                begun.remove(&inode);
                storing.remove(&inode);
                self.note_stored(inode, result, pace, worked)?;
            }
            let long = storing.values().filter(|is_long| **is_long).count();
            let (places, long_max) = if pace.one_by_one { (long + 1, 0) } else { (STORED_AT_ONCE, LONG_AT_ONCE) };
            // While the round waits for the rest alone, it takes no other file. A long upload keeps
            // its own place alone.
            if !begun.is_empty() && storing.len() < places {
                for Due { inode, is_long, .. } in self.due(&storing, places, long_max)? {
                    storing.insert(inode, is_long);
                    if is_long {
                        begun.insert(inode);
                    }
                    under_way.push(store(inode));
                }
            }
        }
        Ok(())
    }

    /// Stores these files one after the other. The smallest comes first: what the archive stored of
    /// a file that did not fit takes room until it is reclaimed.
    async fn store_one_by_one(&self, mut files: Vec<Due>, pace: &mut Pace, worked: &mut Worked) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        files.sort_by_key(|due| due.size);
        let mut had_room = true;
        for Due { inode, .. } in files {
            let stored = self.store_idle(inode).await;
            had_room &= !matches!(stored, Err(FileError::NoSpace));
            self.note_stored(inode, stored, pace, worked)?;
        }
        pace.one_by_one = !had_room;
        Ok(())
    }

    async fn store_idle(&self, inode: u64) -> Result<Stored> {
        let stored = self.store_file(inode, Storing::Beside).await;
        if matches!(stored, Ok(Stored::Done(_))) && self.bypasses() {
            self.give_back_noting(inode).await;
        }
        stored
    }

    /// Files that are to be archived now, besides those that are being stored, of which some are
    /// long. With these there are no more files than places, and no more long ones than `long_max`.
    fn due(&self, storing: &BTreeMap<u64, bool>, places: usize, long_max: usize) -> Result<Vec<Due>> {
        let now = self.surroundings.now().monotonic;
        let patience = self.patience();
        let places = places.saturating_sub(storing.len());
        self.step(|core| {
            let under_way = storing.values().filter(|is_long| **is_long).count();
            let mut left = long_max.saturating_sub(under_way);
            // A crowded cache has no time for patience.
            let crowded = core.is_crowded();
            let again = if crowded { AGAIN_WHEN_CROWDED } else { patience.max(AGAIN_WHEN_CROWDED) };
            let patience = if crowded { Duration(0) } else { patience };
            core.active.wake(now, again, LOOKS_MAX);
            let mut due = Vec::new();
            // Those that have waited longest.
            for _ in 0..LOOKS_MAX {
                if due.len() == places {
                    break;
                }
                let Some(inode) = core.active.take_idle(now, patience) else { break };
                let size = core.attributes(inode).map_or(0, |about| about.size);
                let is_long = size > self.body_max;
                if storing.contains_key(&inode) || (is_long && left == 0) {
                    core.active.put_off(inode, now);
                    continue;
                }
                left -= usize::from(is_long);
                due.push(Due { inode, size, is_long });
            }
            Ok(due)
        })
    }

    fn note_stored(&self, inode: u64, result: Result<Stored>, pace: &mut Pace, worked: &mut Worked) -> Result<()> {
        let now = self.surroundings.now().monotonic;
        // Content that is archived can leave the cache.
        self.room.notify_waiters();
        if let Err(error) = &result
            && *error != FileError::Stale
        {
            pace.one_by_one |= *error == FileError::NoSpace;
            if let Some(untold) = pace.refusals.note(now, error) {
                let path = self.step(|core| Ok(stuck::shown(core, inode)))?;
                tracing::warn!(
                    share = %self.name, path, untold, %error,
                    "a file could not be archived; it is tried again"
                );
            }
        }
        self.step(|core| {
            match result {
                Ok(Stored::Done(bytes)) => {
                    worked.archived += 1;
                    worked.archived_bytes += bytes;
                    core.refusal = None;
                    core.refused.remove(&inode);
                }
                // In a while, so that a file in use does not keep others back.
                Ok(Stored::Later) => core.active.put_off(inode, now),
                Err(FileError::Stale) => core.deactivate(inode),
                Err(error) => {
                    core.note_refusal(inode, error);
                    core.active.put_off(inode, now);
                }
            }
            Ok(())
        })
    }

    /// Archives a file now. Answers once it is archived.
    pub async fn archive_now(&self, inode: Inode) -> Result<()> {
        for _ in 0..STORES_MAX {
            match self.store_file(inode.0, Storing::Beside).await? {
                Stored::Done(_) => return Ok(()),
                Stored::Later => tokio::task::yield_now().await,
            }
        }
        Err(FileError::Retry("the file is being changed; it is archived once it is left alone".into()))
    }

    /// Whether the archive shows the file's content as it is. The row names a version from the
    /// moment in which its transaction is submitted. The answer comes once that is durable.
    pub(super) async fn is_stored(&self, inode: u64) -> Result<bool> {
        self.change(|change, _| Ok(!change.shown_row(inode)?.open)).await
    }

    /// Stores a file's content as a version, if it is not stored.
    pub(super) async fn store_file(&self, inode: u64, storing: Storing) -> Result<Stored> {
        let held_by_caller = matches!(storing, Storing::Held(_));
        let (gate, changes, writers, links, crowded) = self.step(|core| {
            let (writers, crowded) = (core.writers(inode), core.is_crowded());
            let (row, content) = core.content(inode)?;
            Ok((Arc::clone(&content.gate), content.changes(), writers, row.links, crowded))
        })?;
        // A file may be larger than the cache, and its writer waits for room: then it is archived
        // as it is now.
        let waits_for_writers = held_by_caller || !crowded;
        if writers > 0 && waits_for_writers || links == 0 {
            return Ok(Stored::Later);
        }
        self.save(inode).await?;
        let (row, size, path) = self.step(|core| {
            let size = core.attributes(inode)?.size;
            let path = tree::path(&mut core.view, inode)?;
            Ok((core.content(inode)?.0, size, path))
        })?;
        if !row.open {
            let stored = self.is_stored(inode).await?;
            // A writer may have opened it since.
            let is_done = self.step(|core| {
                let is_done = stored && !core.content(inode)?.0.open;
                if is_done {
                    core.archived(inode);
                }
                Ok(is_done)
            })?;
            return Ok(if is_done { Stored::Done(0) } else { Stored::Later });
        }
        // What is appended to a committed file is retained as long as the file.
        let retention = match storing {
            Storing::Held(retention) => retention,
            Storing::Beside => self.inherited(inode, &row).await?,
        };
        let committed = row.committed;
        let (metadata, tags) = self.carried(&row, inode, &path)?;
        let mut upload = self.begin_upload(Plan { inode, size, metadata, tags, retention }).await?;
        let streaming = async {
            if !self.stream(inode, size, held_by_caller, &mut upload).await? {
                return Ok(None);
            }
            let held = match held_by_caller {
                true => None,
                false => Some(gate.write_owned().await),
            };
            let unchanged = self.step(|core| {
                let (size_now, writers) = (core.attributes(inode)?.size, core.writers(inode));
                let (row, content) = core.content(inode)?;
                // A commit may have stored it meanwhile, under its retention: this version would be
                // one without. An extension may have come: this version would end before its file.
                let same = row.open && row.committed == committed;
                let unused = writers == 0 || !waits_for_writers;
                Ok(same && content.changes() == changes && unused && size_now == size && row.links > 0)
            })?;
            Ok(unchanged.then_some(held))
        };
        let _held = match streaming.await {
            Ok(Some(held)) => held,
            other => {
                upload.abandon().await;
                return other.map(|_| Stored::Later);
            }
        };
        upload.finish(NamedByRow::new(self.own()?, inode)).await?;
        self.step(|core| {
            core.archived(inode);
            Ok(())
        })?;
        self.counters.archived(size);
        Ok(Stored::Done(size))
    }

    /// As `store_file`, under the file's gate, for a commit. On the heap: most calls that may
    /// commit a file do not, and carry no state of an upload.
    pub(super) async fn store_held(&self, inode: u64, retention: Option<Retention>) -> Result<()> {
        match Box::pin(self.store_file(inode, Storing::Held(retention))).await? {
            Stored::Done(_) => Ok(()),
            Stored::Later => {
                Err(FileError::Retry("the file is open for writing; close it before it is committed".into()))
            }
        }
    }

    /// Content for a caller that holds the file's gate.
    pub(super) async fn read_held(&self, inode: u64, offset: u64, length: u32) -> Result<Vec<Bytes>> {
        let size = self.step(|core| Ok(core.attributes(inode)?.size))?;
        let end = (offset + u64::from(length)).min(size);
        self.step(|core| core.load(inode, offset, end))?;
        self.pieces_held(inode, offset, end).await
    }

    /// Waits until the cache may have room. `waiting` is that of one write.
    pub(super) async fn wait_for_room(&self, waiting: &mut Waiting) -> Result<()> {
        let now = self.surroundings.now().monotonic;
        let waited = now.since(*waiting.since.get_or_insert(now));
        let changed = self.room.notified();
        self.ask_for_room();
        let (refusal, nothing, hopeless) = self.step(|core| {
            let nothing = core.active.len() + core.orphans.len() == 0 && core.clock.is_empty();
            Ok((core.refusal.as_ref().map(|(_, error)| error.clone()), nothing, core.refused_all()))
        })?;
        if nothing || waited >= PATIENCE {
            return Err(match refusal {
                Some(FileError::OverQuota) => FileError::OverQuota,
                Some(FileError::NoSpace) => FileError::NoSpace,
                _ if nothing => FileError::NoSpace,
                _ => {
                    FileError::Retry("the cache is full of content that is on its way to the archive; try again".into())
                }
            });
        }
        let refused = hopeless && matches!(refusal, Some(FileError::NoSpace | FileError::OverQuota));
        if refused && waiting.rounds >= REFUSED_ROUNDS {
            return Err(refusal.unwrap_or(FileError::NoSpace));
        }
        waiting.rounds += 1;
        // A round may take longer than the writer's patience. The clock decides again.
        let left = std::time::Duration::from_nanos(PATIENCE.0 - waited.0);
        drop(tokio::time::timeout(left, changed).await);
        Ok(())
    }

    /// Writes records of content that reads brought into the cache, so that a restart finds it
    /// there.
    pub async fn save_all(&self) -> Result<()> {
        let unsaved: Vec<u64> = self.step(|core| {
            let due = |content: &super::core::Content| {
                !content.unsaved.is_empty() || content.grown.is_some() || content.slack.is_some()
            };
            Ok(core.contents.iter().filter(|(_, content)| due(content)).map(|(inode, _)| *inode).collect())
        })?;
        for inode in unsaved {
            match self.save(inode).await {
                Ok(()) | Err(FileError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// How long a file is idle before it is archived, where a share says nothing else.
pub const ARCHIVE_AFTER: Duration = Duration::from_secs(10);

/// Bytes that a header can carry: letters, digits and a few signs as they are, others as `%XX`.
pub(super) fn percent(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => text.push(char::from(*byte)),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}
