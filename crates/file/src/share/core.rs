//! The share's state in memory, with one owner.
//!
//! [`Core`] is reached through [`super::Share::step`] alone: a function that does not wait. Volumes
//! and the catalog are waited for between steps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use stele_catalog::{Direction, KeyRange};
use stele_ground::Instant;
use tokio::sync::{Mutex as Turn, RwLock};

use super::active::Active;
use super::autocommit::Steps;
use super::clearing::Leftovers;
use super::eviction::{Clock, EVICTABLE_MIN, HIGH};
use super::giving::Giving;
use super::records::{
    BLOCK, BLOCKS, GROUP, Group, InodeRow, SLOT, SlotRow, decode, inode_key, last_number, numbered_key,
};
use super::slots::Slots;
use super::stuck::Refused;
use super::tree::Numbers;
use super::view::View;
use crate::model::Moment;
use crate::{Attributes, FileError, Inode, Result};

pub struct Core {
    pub view: View,
    pub numbers: Numbers,
    pub slots: Slots,
    /// Files with content in use, by inode. Bounded by the cache volume, and by the files that are
    /// in use at once.
    pub contents: BTreeMap<u64, Content>,
    /// Files whose content is not archived.
    pub active: Active,
    /// Files that are being committed: no one opens them for writing.
    pub committing: BTreeSet<u64>,
    /// Files that protocols have open.
    pub users: BTreeMap<u64, Users>,
    /// Files without names, to be cleared away; and the one that clearing tries next.
    pub orphans: BTreeSet<u64>,
    pub next_orphan: u64,
    /// Those of them of which the archive keeps a version, and when they were tried.
    pub kept: BTreeMap<u64, Instant>,
    /// The pass over all versions that looks for those of removed files.
    pub leftovers: Leftovers,
    /// Files whose content stays in the cache.
    pub pinned: BTreeSet<u64>,
    /// Archived files whose version could not be read back before their slots come free, and when
    /// it was tried.
    pub unread: BTreeMap<u64, Instant>,
    /// The pass over all files that looks for those to commit.
    pub pass: Pass,
    /// Steps of the system clock, which that pass heeds.
    pub steps: Steps,
    /// The order in which eviction looks at files.
    pub clock: Clock,
    /// The pass over free slots that gives their space back to the pool.
    pub giving: Giving,
    /// Files that eviction has looked at.
    #[cfg(test)]
    pub victim_looks: usize,
    /// The file that the archive refused last and why, since the last one that it took.
    pub refusal: Option<(u64, FileError)>,
    /// Files that it refused and that are tried again.
    pub refused: BTreeMap<u64, Refused>,
    /// The share is being removed: it takes no calls.
    pub closed: bool,
    last: Moment,
    epochs: u64,
}

/// The content of a regular file, as far as it is known in memory.
pub struct Content {
    /// Held for reading by reads and writes of whole blocks; for writing where slots go, or where a
    /// block is changed in part.
    pub gate: Arc<RwLock<()>>,
    /// Held from the flush of the cache volume to the answer of the transaction.
    pub saving: Arc<Turn<()>>,
    groups: BTreeMap<u64, Group>,
    /// Groups that differ from their records.
    pub unsaved: BTreeSet<u64>,
    /// What writes changed and no record shows yet.
    pub grown: Option<Grown>,
    /// What of that the row shows by now, while its transaction is under way.
    pub shown: Option<SavedRow>,
    /// The row says, durably, that its times may lag up to here.
    pub slack: Option<Moment>,
    /// Rises with each change of content.
    pub generation: u64,
    /// Rises when a write that may have changed blocks leaves the gate, also without a caller.
    pub landed: Arc<AtomicU64>,
    /// Another one for each version that the file is archived as, and whenever the content is known
    /// anew.
    pub epoch: u64,
    /// Read again, or written, since eviction looked last. Reading a file once from its begin to
    /// its end does not count, so that a scan of many files does not drive out those in use.
    pub touched: bool,
    /// The end of the furthest read so far.
    pub read_to: u64,
    /// The end of the last write.
    pub written_to: u64,
    /// Its ticket in the order of eviction.
    pub queued: Option<u64>,
}

/// How often a file is open.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Users {
    pub all: u32,
    pub writers: u32,
}

/// Where a pass over all files is.
#[derive(Clone, Copy, Default, Debug)]
pub struct Pass {
    /// The first inode that it has not looked at.
    pub next: u64,
    /// When the last one ended; none while one is under way.
    pub ended: Option<Instant>,
    /// The first round since the share was opened.
    pub first: Option<Instant>,
}

/// Changes by writes, over the row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grown {
    pub size: u64,
    pub modified: Moment,
    /// Writes.
    pub writes: u64,
    /// Bytes that came to be stored.
    pub stored: u64,
    /// The set-id bits are to go.
    pub without_set_id: bool,
}

/// What a save under way has put into the row of what writes changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedRow {
    pub writes: u64,
    pub stored: u64,
    /// The row's change counter with it, and the view that shows that row. Another view may show an
    /// earlier one.
    pub change: u64,
    pub generation: u64,
}

/// A part of a file, and where its content is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Bytes of the file.
    pub start: u64,
    pub end: u64,
    pub source: Source,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Byte of the cache volume that `start` is at.
    Cache(u64),
    /// The archived version, at the same place as in the file.
    Archive,
    Zeros,
}

impl Content {
    /// Notes that a range is read.
    pub fn note_read(&mut self, start: u64, end: u64) {
        self.touched |= start < self.read_to;
        self.read_to = self.read_to.max(end);
    }

    fn new(epoch: u64) -> Content {
        Content {
            epoch,
            gate: Arc::default(),
            saving: Arc::default(),
            groups: BTreeMap::new(),
            unsaved: BTreeSet::new(),
            grown: None,
            shown: None,
            slack: None,
            generation: 0,
            landed: Arc::default(),
            touched: false,
            read_to: 0,
            written_to: 0,
            queued: None,
        }
    }

    /// Nothing in it would be lost with it, and no one uses it.
    pub fn is_idle(&self) -> bool {
        self.unsaved.is_empty()
            && self.grown.is_none()
            && Arc::strong_count(&self.gate) == 1
            && Arc::strong_count(&self.saving) == 1
    }

    /// Equal before and after reads of the content, then under the gate: it did not change.
    pub fn changes(&self) -> (u64, u64) {
        (self.generation, self.landed.load(Ordering::Relaxed))
    }

    /// The row has this much of what writes changed.
    pub fn written(&mut self, writes: u64, stored: u64) {
        let Some(grown) = &mut self.grown else { return };
        grown.writes = grown.writes.saturating_sub(writes);
        grown.stored = grown.stored.saturating_sub(stored);
        if grown.writes == 0 {
            self.grown = None;
        }
    }

    pub fn group(&self, group: u64) -> Option<&Group> {
        self.groups.get(&group)
    }

    pub fn set_group(&mut self, group: u64, value: Group) {
        match value.is_empty() {
            true => self.groups.remove(&group),
            false => self.groups.insert(group, value),
        };
    }

    pub fn groups(&self) -> impl Iterator<Item = (u64, &Group)> {
        self.groups.iter().map(|(number, group)| (*number, group))
    }

    pub fn slot(&self, slot: u64) -> SlotRow {
        let group = self.groups.get(&(slot / GROUP));
        group.and_then(|group| group.slots.get((slot % GROUP) as usize)).copied().unwrap_or_default()
    }

    pub fn set_slot(&mut self, slot: u64, row: SlotRow) {
        let group = self.groups.entry(slot / GROUP).or_default();
        if let Some(place) = group.slots.get_mut((slot % GROUP) as usize) {
            *place = row;
        }
        self.unsaved.insert(slot / GROUP);
    }

    /// Marks whole blocks as held by the cache. Answers the bytes that were not.
    pub fn validate(&mut self, start: u64, end: u64) -> u64 {
        let (mut gained, mut at) = (0, start / BLOCK * BLOCK);
        while at < end {
            let slot = at / SLOT;
            let until = ((slot + 1) * SLOT).min(end.next_multiple_of(BLOCK));
            let mut row = self.slot(slot);
            assert_ne!(row.place, 0, "a block was written without a slot");
            let (first, count) = (at % SLOT / BLOCK, (until - at) / BLOCK);
            let bits = (((1u32 << count) - 1) << first) as u16;
            let missing = bits & !row.valid;
            if missing != 0 {
                gained += u64::from(missing.count_ones()) * BLOCK;
                row.valid |= bits;
                self.set_slot(slot, row);
            }
            at = until;
        }
        gained
    }

    /// Where the bytes of a range are; neighbours of one kind joined. `archived`: bytes that the
    /// version still serves.
    pub fn parts(&self, start: u64, end: u64, archived: u64) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut at = start;
        let (mut slot, mut row) = (start / SLOT, self.slot(start / SLOT));
        while at < end {
            let block = at / BLOCK;
            if at / SLOT != slot {
                slot = at / SLOT;
                row = self.slot(slot);
            }
            let cached = row.place != 0 && row.valid & (1 << (block % (SLOT / BLOCK))) != 0;
            let mut until = ((block + 1) * BLOCK).min(end);
            let source = if cached {
                Source::Cache((row.place - 1) * SLOT + at % SLOT)
            } else if at < archived {
                until = until.min(archived);
                Source::Archive
            } else {
                Source::Zeros
            };
            match parts.last_mut() {
                Some(last) if continues(last, at, source) => last.end = until,
                _ => parts.push(Part { start: at, end: until, source }),
            }
            at = until;
        }
        parts
    }
}

fn continues(last: &Part, at: u64, source: Source) -> bool {
    match (last.source, source) {
        (Source::Cache(first), Source::Cache(next)) => first + (at - last.start) == next,
        (before, after) => before == after,
    }
}

impl Core {
    pub fn new(view: View, numbers: Numbers, slots: Slots, steps: Steps) -> Core {
        Core {
            view,
            numbers,
            slots,
            contents: BTreeMap::new(),
            active: Active::default(),
            epochs: 0,
            committing: BTreeSet::new(),
            users: BTreeMap::new(),
            orphans: BTreeSet::new(),
            next_orphan: 0,
            kept: BTreeMap::new(),
            leftovers: Leftovers::default(),
            pinned: BTreeSet::new(),
            unread: BTreeMap::new(),
            pass: Pass::default(),
            steps,
            clock: Clock::default(),
            giving: Giving::default(),
            #[cfg(test)]
            victim_looks: 0,
            refusal: None,
            refused: BTreeMap::new(),
            closed: false,
            last: Moment::default(),
        }
    }

    /// The time for a change. It rises with every call, so that two changes within the clock's unit
    /// differ; after a clock that was set back by more than a second it follows the clock.
    pub fn now(&mut self, wall: stele_archive::Timestamp) -> Moment {
        let wall = Moment::from_nanoseconds(i128::from(wall.0) * 1_000_000);
        let next = Moment::from_nanoseconds(self.last.nanoseconds() + 1);
        self.last = if wall >= next || next.seconds - wall.seconds > 1 { wall } else { next };
        self.last
    }

    /// The content of a regular file.
    pub fn content(&mut self, inode: u64) -> Result<(Arc<InodeRow>, &mut Content)> {
        let row = self.view.row(inode)?;
        match row.kind {
            _ if row.is_file() => {}
            _ if row.is_directory() => return Err(FileError::IsDirectory),
            _ => return Err(FileError::Invalid("only a regular file has content".into())),
        }
        let epochs = &mut self.epochs;
        let new = || {
            *epochs += 1;
            Content::new(*epochs)
        };
        Ok((row, self.contents.entry(inode).or_insert_with(new)))
    }

    /// The groups that a range touches.
    pub fn groups_in(start: u64, end: u64) -> Range<u64> {
        start / (SLOT * GROUP)..end.div_ceil(SLOT * GROUP)
    }

    /// The group's record is in memory.
    pub fn knows_group(&self, inode: u64, group: u64) -> bool {
        self.contents.get(&inode).is_some_and(|content| content.groups.contains_key(&group))
    }

    /// Reads the records of a range's groups, where they are not in memory.
    pub fn load(&mut self, inode: u64, start: u64, end: u64) -> Result<()> {
        for group in Core::groups_in(start, end) {
            if self.knows_group(inode, group) {
                continue;
            }
            let key = numbered_key(self.view.share, inode, group);
            let Some(value) = self.view.get(BLOCKS, &key)? else { continue };
            let value: Group = decode(BLOCKS, &key, &value)?;
            if let Some(content) = self.contents.get_mut(&inode)
                && !content.unsaved.contains(&group)
            {
                content.groups.insert(group, value);
            }
        }
        Ok(())
    }

    /// The last groups that reach behind `size`, from the end on, no more than `most`. With nothing
    /// unsaved, the records have all of them.
    pub fn groups_behind(&mut self, inode: u64, size: u64, most: usize) -> Result<Vec<(u64, Group)>> {
        let first = numbered_key(self.view.share, inode, size / (SLOT * GROUP));
        let range = KeyRange::prefix(inode_key(self.view.share, inode)).from(first);
        self.stored_groups(&range, most, Direction::Backward)
    }

    /// The first groups of a file, saved or not, no more than `most`.
    pub fn first_groups(&mut self, inode: u64, most: usize) -> Result<Vec<(u64, Group)>> {
        let range = KeyRange::prefix(inode_key(self.view.share, inode));
        let stored = self.stored_groups(&range, most, Direction::Forward)?;
        // The first ones of each kind: among them are the first ones of both.
        let mut groups: BTreeMap<u64, Group> = stored.into_iter().collect();
        let content = self.content(inode)?.1;
        groups.extend(content.groups().take(most).map(|(number, group)| (number, group.clone())));
        Ok(groups.into_iter().take(most).collect())
    }

    fn stored_groups(&self, range: &KeyRange, most: usize, direction: Direction) -> Result<Vec<(u64, Group)>> {
        let records = self.view.range_in(BLOCKS, range, most, direction)?;
        records.iter().map(|(key, value)| Ok((last_number(key), decode(BLOCKS, key, value)?))).collect()
    }

    /// Makes every slot of a range of whole blocks exist. False: there are not enough free ones;
    /// those taken stay.
    pub fn allocate(&mut self, inode: u64, start: u64, end: u64) -> Result<bool> {
        self.load(inode, start, end)?;
        self.enqueue(inode);
        let Core { contents, slots, .. } = self;
        let Some(content) = contents.get_mut(&inode) else { return Err(FileError::Stale) };
        for slot in start / SLOT..end.div_ceil(SLOT) {
            if content.slot(slot).place != 0 {
                continue;
            }
            let Some(place) = slots.take(inode) else { return Ok(false) };
            content.set_slot(slot, SlotRow { place: place + 1, valid: 0 });
        }
        Ok(true)
    }

    /// Whether there are slots enough for a range of whole blocks.
    pub fn has_room(&mut self, inode: u64, start: u64, end: u64) -> Result<bool> {
        self.load(inode, start, end)?;
        let content = self.contents.get(&inode).ok_or(FileError::Stale)?;
        let missing = (start / SLOT..end.div_ceil(SLOT)).filter(|slot| content.slot(*slot).place == 0).count();
        Ok(missing as u64 <= self.slots.free_count())
    }

    /// The attributes with what writes changed.
    pub fn attributes(&mut self, inode: u64) -> Result<Attributes> {
        let row = self.view.row(inode)?;
        let mut attributes = row.attributes(inode);
        if let Some(grown) = self.contents.get(&inode).and_then(|content| content.grown.as_ref()) {
            grown.show(&mut attributes);
            let (writes, stored) = self.counted(inode, row.change);
            attributes.change = attributes.change.saturating_sub(writes);
            attributes.used = attributes.used.saturating_sub(stored);
        }
        Ok(attributes)
    }

    /// Writes, and bytes that came to be stored, which both the row and `grown` count.
    fn counted(&self, inode: u64, change: u64) -> (u64, u64) {
        let generation = self.view.generation();
        let shown = self.contents.get(&inode).and_then(|content| content.shown);
        let shown = shown.filter(|shown| shown.generation == generation || change >= shown.change);
        shown.map_or((0, 0), |shown| (shown.writes, shown.stored))
    }

    /// A save of which no one waited for the answer: what the row has of it is no longer counted on
    /// top. In the file's turn, with a view that is not stale.
    pub fn take_shown(&mut self, inode: u64) -> Result<()> {
        let change = self.view.row(inode)?.change;
        let (writes, stored) = self.counted(inode, change);
        let content = self.content(inode)?.1;
        content.shown = None;
        content.written(writes, stored);
        Ok(())
    }

    /// As `attributes`, of a file that a handle names: one without names and users is gone.
    pub fn living(&mut self, inode: Inode) -> Result<Attributes> {
        let attributes = self.attributes(inode.0)?;
        match attributes.links == 0 && !self.users.contains_key(&inode.0) {
            true => Err(FileError::Stale),
            false => Ok(attributes),
        }
    }

    /// The file is another version from here on: what was fetched of the former one is of no use.
    pub fn new_epoch(&mut self, inode: u64) {
        self.epochs += 1;
        if let Some(content) = self.contents.get_mut(&inode) {
            content.epoch = self.epochs;
        }
    }

    /// Whether nothing of a file is to be recorded but times for which its row leaves room.
    pub fn is_within_slack(&mut self, inode: u64) -> Result<bool> {
        // Of a transaction that no one waited for it is not known whether the row is durable.
        let known = !self.view.is_stale();
        let (row, content) = self.content(inode)?;
        let within = match &content.grown {
            None => true,
            Some(grown) => {
                grown.size == row.size
                    && grown.stored == 0
                    && !grown.without_set_id
                    && content.slack.is_some_and(|slack| grown.modified <= slack)
                    // A row that was stored behind the one that left room may leave none.
                    && row.lags.map(Moment::from) == content.slack
            }
        };
        Ok(known && within && content.unsaved.is_empty())
    }

    /// The times of the row count as they are from here on.
    pub fn end_slack(&mut self, inode: u64) {
        if let Some(content) = self.contents.get_mut(&inode) {
            content.slack = None;
        }
    }

    /// The file has changed, and is to be archived.
    pub fn activate(&mut self, inode: u64, now: Instant) {
        if self.active.note(inode, now) {
            self.bind(inode);
        }
    }

    /// There is nothing of the file to be archived any more.
    pub fn deactivate(&mut self, inode: u64) {
        self.active.remove(inode);
        self.refusal.take_if(|(refused, _)| *refused == inode);
        self.bind(inode);
    }

    /// Whether the file's content stays in the cache.
    pub fn set_pinned(&mut self, inode: u64, pinned: bool) {
        match pinned {
            true => self.pinned.insert(inode),
            false => self.pinned.remove(&inode),
        };
        self.bind(inode);
    }

    /// Eviction takes no slots of files that are not archived, pinned or removed.
    fn bind(&mut self, inode: u64) {
        self.slots.set_bound(inode, self.binds(inode));
    }

    fn binds(&self, inode: u64) -> bool {
        self.active.contains(inode) || self.pinned.contains(&inode) || self.orphans.contains(&inode)
    }

    /// Eviction begins.
    pub fn is_nearly_full(&self) -> bool {
        self.slots.used() * 100 >= self.slots.count() * HIGH
    }

    /// Eviction alone will soon make no more room: files are archived at once.
    pub fn is_crowded(&self) -> bool {
        #[cfg(test)]
        {
            let bound: u64 =
                self.slots.files().filter(|file| self.binds(*file)).map(|file| self.slots.held(file)).sum();
            assert_eq!(self.slots.evictable(), self.slots.used() - bound, "slots that eviction can take");
        }
        self.is_nearly_full() && self.slots.evictable() * 100 < self.slots.count() * EVICTABLE_MIN
    }

    /// A file has lost its last name, or was opened or closed.
    pub fn note_use(&mut self, inode: u64) {
        let nameless = self.orphans.contains(&inode) && self.users.contains_key(&inode);
        self.slots.set_nameless(inode, nameless);
        self.bind(inode);
    }

    /// How often a file is open for writing.
    pub fn writers(&self, inode: u64) -> u32 {
        self.users.get(&inode).map_or(0, |users| users.writers)
    }

    /// Forgets contents that nothing needs, where there are many.
    pub fn trim(&mut self, most: usize) {
        if self.contents.len() > most {
            self.contents.retain(|_, content| !content.is_idle() || content.queued.is_some());
        }
    }
}

impl Grown {
    pub fn show(&self, attributes: &mut Attributes) {
        attributes.size = self.size;
        attributes.modified = self.modified;
        attributes.changed = attributes.changed.max(self.modified);
        attributes.change += self.writes;
        attributes.used += self.stored;
        if self.without_set_id {
            attributes.mode = crate::rules::without_set_ids(attributes.mode);
        }
    }
}

/// `length` zeros, shared where they are few.
pub fn zeros(length: u64) -> Bytes {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    ZEROS.get(..length as usize).map_or_else(|| Bytes::from(vec![0; length as usize]), Bytes::from_static)
}
