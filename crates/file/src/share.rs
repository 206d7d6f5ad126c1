//! A share: a bucket as a tree of files, with a cache volume in front of the archive.
//!
//! The catalog holds names, attributes and the map of the cache; the cache volume holds content that is not archived yet,
//! or was read lately; the archive holds a version of each archived file under its inode number.
//!
//! Failure model: the catalog and the cache volume belong to one pool and lose nothing that was acknowledged. A catalog that
//! has stopped stops the share: calls answer `Stopped` until the server has opened the store anew. The archive may refuse for
//! as long as it likes: content stays in the cache, and writers are held back when that is full.

mod archiving;
mod core;
mod reading;
mod records;
pub mod registry;
mod retention;
mod saving;
mod slots;
#[cfg(test)]
mod tests;
mod tree;
mod view;
mod writing;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::try_join_all;
use stele_archive::{Archive, Surroundings, Timestamp};
use stele_catalog::{CatalogError, KeyRange};
use stele_ground::Duration;
use stele_media::Handle;
use tokio::sync::{Mutex as Turn, Notify};

pub use archiving::{ARCHIVE_AFTER, Worked};
pub use retention::RetentionRules;

use self::core::{Core, Source, zeros};
use self::records::{
    ACTIVE, BLOCK, BLOCKS, Group, INODES, NUMBERS, ORPHANS, ROOT, SLOT, decode, last_number, share_key,
};
use self::slots::Slots;
use self::tree::{Compliance, Created, Numbers};
use self::view::{Change, Ticket, View, failure};
use crate::files::{Changed, Creation, Data, Entry, Files, Listing, Node, Removal, Space, Stability};
use crate::model::{Access, Attributes, Caller, Changes, Inode, Moment};
use crate::permission::{granted, may_read};
use crate::rules;
use crate::{FileError, Result};

/// Times that a change is computed anew because others came in between.
const ATTEMPTS: usize = 32;
/// The smallest cache volume.
pub const CACHE_MIN: u64 = 16 << 20;
/// Extended attributes of a file: names and values together.
const ATTRIBUTES_MAX: usize = 64 << 10;

/// How a share behaves. Changing it changes nothing stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long a file is idle before it is archived.
    pub archive_after: Duration,
    pub retention: RetentionRules,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { archive_after: ARCHIVE_AFTER, retention: RetentionRules::default() }
    }
}

/// What a share stands on.
#[derive(Clone)]
pub struct Ground {
    pub archive: Archive,
    /// The cache volume; it is the share's alone.
    pub cache: Handle,
    pub surroundings: Arc<dyn Surroundings>,
}

/// An open share.
pub struct Share {
    name: String,
    archive: Archive,
    cache: Handle,
    surroundings: Arc<dyn Surroundings>,
    settings: Mutex<Settings>,
    core: Mutex<Core>,
    /// For the one who finds out what became of abandoned transactions.
    refreshing: Turn<()>,
    working: Turn<()>,
    /// Background work has been done: there may be room in the cache.
    room: Notify,
    /// A writer waits for room.
    wants_room: AtomicBool,
    verifier: [u8; 8],
    counters: Counters,
}

/// What a share has done since it was opened.
#[derive(Default)]
struct Counters {
    archived_files: AtomicU64,
    archived_bytes: AtomicU64,
}

impl Counters {
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
    /// Why the archive took no file lately.
    pub refusal: Option<String>,
}

/// Settles a transaction as unknown when its caller goes away.
struct Waiting<'a> {
    share: &'a Share,
    ticket: Option<Ticket>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = &self.ticket {
            self.share.locked().view.abandon(ticket);
        }
    }
}

impl Share {
    /// Opens a share whose bucket has this name. `number` is its part of the catalog's tables. A share that has no root
    /// directory yet gets one of this owner and mode.
    pub async fn open(ground: Ground, name: &str, number: u32, settings: Settings, root: Root) -> Result<Share> {
        let Ground { archive, cache, surroundings } = ground;
        let slots = cache.geometry().size.0 / SLOT;
        if slots * SLOT < CACHE_MIN {
            return Err(FileError::Invalid(format!("a cache volume has at least {} MiB", CACHE_MIN >> 20)));
        }
        let view = View::new(archive.records(), number);
        let mut verifier = [0; 8];
        surroundings.entropy(&mut verifier);
        let share = Share {
            name: name.into(),
            archive,
            cache,
            surroundings,
            settings: Mutex::new(settings),
            core: Mutex::new(Core::new(view, Numbers::new(None), Slots::new(slots))),
            refreshing: Turn::default(),
            working: Turn::default(),
            room: Notify::new(),
            wants_room: AtomicBool::new(false),
            verifier,
            counters: Counters::default(),
        };
        share.load()?;
        match share.step(|core| core.view.row(ROOT)) {
            Err(FileError::Stale) => {
                let plant = |change: &mut Change<'_>, _: &mut Numbers| {
                    tree::plant(change, root.owner, root.mode);
                    Ok(())
                };
                share.change(plant).await?;
            }
            other => drop(other?),
        }
        Ok(share)
    }

    /// Reads what memory has to know of the records: numbers, slots in use, files that are not archived, removed ones.
    fn load(&self) -> Result<()> {
        let now = self.surroundings.now().monotonic;
        self.step(|core| {
            let share = core.view.share;
            let prefix = KeyRange::prefix(share_key(share));
            core.numbers = Numbers::new(core.view.get(NUMBERS, &share_key(share))?.as_deref());
            for (table, orphans) in [(ACTIVE, false), (ORPHANS, true)] {
                each(core, table, &prefix, |core, key, _| {
                    match orphans {
                        true => drop(core.orphans.insert(last_number(key))),
                        false => drop(core.active.insert(last_number(key), now)),
                    }
                    Ok(())
                })?;
            }
            let mut last = None;
            each(core, BLOCKS, &prefix, |core, key, value| {
                let group: Group = decode(BLOCKS, key, value)?;
                let inode = key.get(4..12).map_or(0, last_number);
                for slot in group.slots.iter().filter(|slot| slot.place != 0) {
                    if !core.slots.occupy(slot.place - 1) {
                        let slot = slot.place - 1;
                        return Err(FileError::Damaged(format!(
                            "slot {slot} of the cache of share {share} is named by inode {inode} and is not free"
                        )));
                    }
                }
                if last != Some(inode) {
                    last = Some(inode);
                    core.clock_hand.push_back(inode);
                }
                Ok(())
            })?;
            let queued: Vec<u64> = core.clock_hand.iter().copied().collect();
            for inode in queued {
                if let Ok((_, content)) = core.content(inode) {
                    content.queued = true;
                }
            }
            Ok(())
        })
    }

    /// One step on the share's state. It does not wait, so that nothing comes in between.
    fn step<R>(&self, act: impl FnOnce(&mut Core) -> Result<R>) -> Result<R> {
        act(&mut self.locked())
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

    pub fn settings(&self) -> Settings {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_settings(&self, settings: Settings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Who asks the archive.
    fn caller(&self, act: &str) -> stele_archive::Caller {
        stele_archive::Caller::gateway(format!("share {}, {act}", self.name))
    }

    /// Computes a change, commits it, and answers once it is durable.
    async fn change<T>(&self, mut act: impl FnMut(&mut Change<'_>, &mut Numbers) -> Result<T>) -> Result<T> {
        for _ in 0..ATTEMPTS {
            self.refresh().await?;
            let (value, submitted) = self.step(|core| {
                let now = core.now(self.wall());
                let Core { view, numbers, .. } = core;
                let mut change = view.change(now);
                let value = act(&mut change, numbers)?;
                Ok((value, (!change.is_empty()).then(|| change.submit())))
            })?;
            let Some(submitted) = submitted else { return Ok(value) };
            let mut waiting = Waiting { share: self, ticket: Some(submitted.ticket) };
            let answer = submitted.answer.await;
            if let Some(ticket) = waiting.ticket.take() {
                self.locked().view.settle(ticket, answer.is_ok());
            }
            match answer {
                Ok(_) => return Ok(value),
                Err(CatalogError::Failed(_)) => {}
                Err(error) => return Err(failure(error)),
            }
        }
        Err(FileError::Retry("many others change the same files; try again".into()))
    }

    /// Where a caller went away before its transaction was answered: waits until that has taken effect or failed, and
    /// forgets what was assumed of it.
    async fn refresh(&self) -> Result<()> {
        if !self.locked().view.is_stale() {
            return Ok(());
        }
        let _turn = self.refreshing.lock().await;
        if !self.locked().view.is_stale() {
            return Ok(());
        }
        let barrier = self.step(|core| {
            let key = share_key(core.view.share);
            let value = core.numbers.stored();
            Ok(core.view.records().commit(stele_catalog::Transaction::new().with_reserve().put(NUMBERS, key, value)))
        })?;
        barrier.await.map_err(failure)?;
        self.locked().view.reset();
        Ok(())
    }

    /// The file's content changed, or it is to be archived.
    fn note_active(&self, inode: u64) -> Result<()> {
        let now = self.surroundings.now().monotonic;
        self.step(|core| {
            core.active.insert(inode, now);
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
                (Source::Archive, Some(archived)) => self.read_archived(inode, archived, part.start, part.end).await,
                _ => Ok(zeros(part.end - part.start)),
            }
        }))
        .await
    }

    pub fn status(&self) -> Result<Status> {
        let now = self.surroundings.now().monotonic;
        let archived_files = self.counters.archived_files.load(Ordering::Relaxed);
        let archived_bytes = self.counters.archived_bytes.load(Ordering::Relaxed);
        self.step(|core| {
            Ok(Status {
                open: core.active.len() as u64,
                oldest: core.active.values().min().map(|at| now.since(*at)),
                removing: core.orphans.len() as u64,
                cache_used: core.slots.used() * SLOT,
                cache_size: core.slots.count() * SLOT,
                archived_files,
                archived_bytes,
                refusal: core.refusal.as_ref().map(ToString::to_string),
            })
        })
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

    /// Whether the share has no file and no directory but its root, and nothing left to clear away.
    pub fn is_empty(&self) -> Result<bool> {
        self.step(|core| Ok(core.view.row(ROOT)?.entries == 0 && core.orphans.is_empty()))
    }

    /// The records of an inode, for tests and for `stele share why`.
    pub fn path(&self, inode: Inode) -> Result<String> {
        self.step(|core| Ok(String::from_utf8_lossy(&tree::path(&mut core.view, inode.0)?).into_owned()))
    }
}

/// The root directory of a new share.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    pub owner: (u32, u32),
    pub mode: u32,
}

/// How far a file is on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileState {
    /// In the archive.
    pub key: String,
    /// The version that holds the content; none while the file is open.
    pub version: Option<String>,
    /// The end of its retention.
    pub committed: Option<Timestamp>,
}

impl FileState {
    /// The word for it, at this compliance time.
    pub fn word(&self, now: Timestamp) -> &'static str {
        match (&self.version, self.committed) {
            (_, Some(until)) if until > now => "locked",
            (Some(_), _) => "archived",
            (None, _) => "open",
        }
    }
}

/// Every record of a range.
fn each(
    core: &mut Core,
    table: stele_catalog::Table,
    range: &KeyRange,
    mut act: impl FnMut(&mut Core, &[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let mut page = range.clone();
    loop {
        let records = core.view.range(table, &page, 4096)?;
        for (key, value) in &records {
            act(core, key, value)?;
        }
        match records.last() {
            Some((key, _)) if records.len() == 4096 => page = range.clone().after(key.clone()),
            _ => return Ok(()),
        }
    }
}

impl Files for Share {
    fn root(&self) -> Inode {
        Inode(ROOT)
    }

    fn verifier(&self) -> [u8; 8] {
        self.verifier
    }

    async fn attributes(&self, inode: Inode) -> Result<Attributes> {
        self.step(|core| core.living(inode))
    }

    async fn set_attributes(
        &self,
        caller: &Caller,
        inode: Inode,
        changes: Changes,
        guard: Option<Moment>,
    ) -> Result<Changed> {
        let before = self.step(|core| core.living(inode))?;
        if guard.is_some_and(|guard| guard != before.changed) {
            return Err(FileError::NotSynchronized);
        }
        self.set_checked(caller, inode, before, changes).await
    }

    async fn lookup(&self, caller: &Caller, directory: Inode, name: &[u8]) -> Result<Attributes> {
        self.step(|core| {
            core.living(directory)?;
            let inode = tree::lookup(&mut core.view, caller, directory, name)?;
            core.attributes(inode.0)
        })
    }

    async fn access(&self, caller: &Caller, inode: Inode, wanted: Access) -> Result<Access> {
        self.step(|core| {
            let mut access = granted(caller, &core.living(inode)?, wanted);
            if core.view.row(inode.0)?.committed.is_some() {
                (access.modify, access.extend) = (false, false);
            }
            Ok(access)
        })
    }

    async fn read_link(&self, _caller: &Caller, inode: Inode) -> Result<Bytes> {
        self.step(|core| {
            core.living(inode)?;
            let row = core.view.row(inode.0)?;
            row.target.clone().map(Bytes::from).ok_or_else(|| FileError::Invalid("this is not a symbolic link".into()))
        })
    }

    async fn read(&self, caller: &Caller, inode: Inode, offset: u64, length: u32) -> Result<Data> {
        self.read_content(caller, inode, offset, length).await
    }

    async fn write(
        &self,
        caller: &Caller,
        inode: Inode,
        offset: u64,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> Result<(Changed, Stability)> {
        self.write_content(caller, inode, offset, data, stability).await
    }

    async fn commit(&self, inode: Inode) -> Result<Attributes> {
        if self.step(|core| Ok(core.living(inode)?.kind))? == crate::Kind::File {
            self.save(inode.0).await?;
        }
        self.step(|core| core.attributes(inode.0))
    }

    async fn create(&self, caller: &Caller, directory: Inode, name: &[u8], how: Creation) -> Result<Entry> {
        self.alive(&[directory])?;
        let created =
            self.change(|change, numbers| tree::create(change, numbers, caller, directory, name, &how)).await?;
        match created {
            Created::New(entry) => {
                self.note_active(entry.file.inode.0)?;
                Ok(entry)
            }
            Created::Kept(mut entry, size) => {
                let inode = entry.file.inode;
                if let Some(size) = size {
                    let changes = Changes { size: Some(size), ..Changes::default() };
                    self.set_attributes(caller, inode, changes, None).await?;
                }
                entry.file = self.step(|core| core.attributes(inode.0))?;
                Ok(entry)
            }
        }
    }

    async fn make(
        &self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        node: Node,
        changes: Changes,
    ) -> Result<Entry> {
        self.alive(&[directory])?;
        self.change(|change, numbers| tree::make(change, numbers, caller, directory, name, &node, &changes)).await
    }

    async fn remove(&self, caller: &Caller, directory: Inode, name: &[u8], what: Removal) -> Result<Changed> {
        self.alive(&[directory])?;
        self.removable(caller, directory, name).await?;
        let clock = self.compliance();
        let (changed, inode) =
            self.change(|change, _| tree::remove(change, caller, directory, name, what, clock)).await?;
        self.note_unnamed(inode)?;
        Ok(changed)
    }

    async fn rename(&self, caller: &Caller, from: (Inode, &[u8]), to: (Inode, &[u8])) -> Result<(Changed, Changed)> {
        self.alive(&[from.0, to.0])?;
        self.removable(caller, to.0, to.1).await?;
        let clock = self.compliance();
        let (source, target, orphan) =
            self.change(|change, numbers| tree::rename(change, numbers, caller, from, to, clock)).await?;
        if let Some(inode) = orphan {
            self.note_unnamed(inode)?;
        }
        Ok((source, target))
    }

    async fn link(&self, caller: &Caller, inode: Inode, directory: Inode, name: &[u8]) -> Result<Entry> {
        self.alive(&[inode, directory])?;
        let clock = self.compliance();
        let linking = self.change(|change, numbers| tree::link(change, numbers, caller, inode, directory, name, clock));
        let mut entry = linking.await?;
        entry.file = self.step(|core| core.attributes(inode.0))?;
        Ok(entry)
    }

    async fn read_directory(&self, caller: &Caller, directory: Inode, cookie: u64, limit: usize) -> Result<Listing> {
        self.step(|core| {
            let attributes = core.living(directory)?;
            if attributes.kind != crate::Kind::Directory {
                return Err(FileError::NotDirectory);
            }
            may_read(caller, &attributes)?;
            let mut listing = tree::list(&mut core.view, directory, cookie, limit)?;
            for entry in &mut listing.entries {
                entry.attributes = core.attributes(entry.attributes.inode.0)?;
            }
            Ok(listing)
        })
    }

    async fn space(&self) -> Result<Space> {
        let space = self.archive.space();
        let segment = space.segment_bytes;
        Ok(Space {
            total: u64::from(space.segments) * segment,
            free: u64::from(space.free) * segment,
            files_total: 1 << 32,
            files_free: (1 << 32) - 1,
        })
    }

    async fn attribute(&self, caller: &Caller, inode: Inode, name: &[u8]) -> Result<Bytes> {
        if name == b"user.stele.state" {
            let state = self.state(inode)?;
            return Ok(Bytes::from_static(state.word(self.archive.compliance_time()).as_bytes()));
        }
        self.step(|core| {
            let attributes = core.living(inode)?;
            rules::check_extended_name(name)?;
            may_read(caller, &attributes)?;
            let row = core.view.row(inode.0)?;
            let value = row.attributes.get(&records::ByteString(name.to_vec()));
            value.map(|value| Bytes::copy_from_slice(&value.0)).ok_or(FileError::NoAttribute)
        })
    }

    async fn attribute_names(&self, _caller: &Caller, inode: Inode) -> Result<Vec<Bytes>> {
        self.step(|core| {
            core.living(inode)?;
            let row = core.view.row(inode.0)?;
            Ok(row.attributes.keys().map(|name| Bytes::copy_from_slice(&name.0)).collect())
        })
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        inode: Inode,
        name: &[u8],
        value: Option<Bytes>,
        must_exist: Option<bool>,
    ) -> Result<Changed> {
        let before = self.step(|core| core.living(inode))?;
        rules::check_extended_name(name)?;
        if name.starts_with(b"user.stele.") {
            return Err(FileError::NotSupported);
        }
        self.change(|change, _| {
            let mut row = change.row(inode.0)?;
            rules::may_extend(caller, &row.attributes(inode.0))?;
            if row.committed.is_some() {
                return Err(FileError::ReadOnly("the file is committed; its attributes cannot change".into()));
            }
            let key = records::ByteString(name.to_vec());
            match (row.attributes.contains_key(&key), must_exist, &value) {
                (false, _, None) | (false, Some(true), _) => return Err(FileError::NoAttribute),
                (true, Some(false), _) => return Err(FileError::Exists),
                (_, _, Some(value)) => drop(row.attributes.insert(key, records::ByteString(value.to_vec()))),
                (true, _, None) => drop(row.attributes.remove(&key)),
            }
            let size: usize = row.attributes.iter().map(|(name, value)| name.0.len() + value.0.len()).sum();
            if size > ATTRIBUTES_MAX {
                return Err(FileError::TooManyAttributes);
            }
            row.alter(change.now);
            change.put_row(inode.0, row);
            Ok(())
        })
        .await?;
        let after = self.step(|core| core.attributes(inode.0))?;
        Ok(Changed { before, after })
    }

    async fn opened(&self, inode: Inode, writes: bool) -> Result<()> {
        self.step(|core| {
            core.living(inode)?;
            let users = core.users.entry(inode.0).or_default();
            users.all += 1;
            users.writers += u32::from(writes);
            Ok(())
        })
    }

    async fn closed(&self, inode: Inode, writes: bool) {
        let mut core = self.locked();
        if let Some(users) = core.users.get_mut(&inode.0) {
            users.all = users.all.saturating_sub(1);
            users.writers = users.writers.saturating_sub(u32::from(writes));
            if users.all == 0 {
                core.users.remove(&inode.0);
            }
        }
    }
}

impl Share {
    /// Refuses handles of files that are gone.
    fn alive(&self, inodes: &[Inode]) -> Result<()> {
        self.step(|core| inodes.iter().try_for_each(|inode| core.living(*inode).map(drop)))
    }

    /// A file has lost a name: if it was the last one, it is to be cleared away.
    fn note_unnamed(&self, inode: u64) -> Result<()> {
        self.step(|core| {
            match core.view.row(inode) {
                Ok(row) if row.links == 0 => {
                    core.orphans.insert(inode);
                    core.active.remove(&inode);
                }
                _ => {}
            }
            Ok(())
        })
    }
}

/// Blocks of the cache volume are whole sectors of every drive.
const _: () = assert!(SLOT.is_multiple_of(BLOCK) && BLOCK == 4096 && INODES.0 > 64);
