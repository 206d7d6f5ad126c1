//! Opening a pool: labels and quorum, checkpoint, log replay, redo; and creating one.
//!
//! Tables hold exactly the state at the checkpoint's cut. Records below the cut only refill the
//! dirty cache; records from the cut on are applied in order, so that mappings and generations are
//! final before anything is redone. Only then are redo images written, and only those whose slot
//! still has their generation: an image never lands on a slot that was freed and reused. A crash
//! anywhere in here leaves the log as it is, and the next opening does the same again.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures_util::stream::{self, StreamExt};
use stele_ground::{BLOCK, Bytes, VolumeId};
use stele_media::Shared;

use crate::destage::checkpoint::{ROOT_VERSION, Root, read_lost};
use crate::drives::Drives;
use crate::drives::label::codec;
use crate::drives::label::{
    Configuration, DriveEntry, DriveState, Features, Labels, Verdict, discover, health_of, refuse_labelled,
};
use crate::durable::log::{Log, Purpose};
use crate::durable::records::{Image, Record, RedoImage};
use crate::durable::table::{Opened, PageRef, Table};
use crate::engine::Engine;
use crate::engine::apply::read_row;
use crate::engine::serving::Rejected;
use crate::formats::entry;
use crate::formats::map::Home;
use crate::formats::tables::{LOST, LOST_PER_PAGE, ROW_ENTRY, ROWS, VOLUMES};
use crate::model::mutation::Mutation;
use crate::model::place::{BlockKey, DriveNumber, Lsn, PageId, SlotId, StripeKey};
use crate::model::{AlarmKind, ArrayError, Attached, CreateOptions, Departed, OpenOptions, Severity};
use crate::runtime::io::Io;
use crate::runtime::sync::join_all;
use crate::space::layout::{Layout, RowKind, SharedLayout};
use crate::state::redo::{Redo, StripWrite};
use crate::volumes::Volume;

/// Pages read ahead of their use. Hard drives read many at once as fast as a few.
const AT_ONCE: usize = 1024;

/// A redo record that no `Destaged` follows yet, its images gathered.
struct Pending {
    slot: SlotId,
    generation: u64,
    covers: Lsn,
    lsn: Lsn,
    /// The oldest record it needs.
    oldest: Lsn,
    /// By strip and first block; none where the write it refers to is gone from the log.
    images: Vec<(u8, u32, Option<Vec<Shared>>)>,
}

/// What replay gathers besides the engine's own state.
#[derive(Default)]
struct Replay {
    /// Every version of each dirty block, for images that refer to writes.
    versions: BTreeMap<BlockKey, Vec<(Lsn, Shared)>>,
    redo: BTreeMap<StripeKey, Vec<Pending>>,
}

/// An open pool's engine, and what was found out on the way.
pub struct Recovered {
    pub engine: Rc<Engine>,
    pub rejected: Vec<Rejected>,
}

/// Lays a new pool onto the drives.
pub async fn create(
    io: Io,
    options: CreateOptions,
    open: OpenOptions,
    drives: Vec<Attached>,
) -> Result<Recovered, ArrayError> {
    open.cache_limits().check()?;
    let configuration = first_configuration(&options, &drives)?;
    refuse_labelled(&io, &drives).await?;
    let labels = Labels::new(&io, configuration.clone(), (0..drives.len()).collect());
    let layout = SharedLayout::new(Layout::new(&configuration));
    let log = Log::create(&io, &labels).await?;
    let table = Table::create(&io, &labels, &layout, open.table_cache);
    let engine = Engine::new(io, log, table, Drives::new(labels.clone()), layout, open, false);
    name_drives(&engine, &drives);
    engine.checkpoint().await?;
    // Without labels there is no pool: a crash before this leaves drives that can be used anew.
    labels.publish().await?;
    Ok(Recovered { engine, rejected: Vec::new() })
}

fn first_configuration(options: &CreateOptions, drives: &[Attached]) -> Result<Configuration, ArrayError> {
    if !(3..=512).contains(&drives.len()) {
        return Err(ArrayError::Invalid(format!("a pool has 3 to 512 drives, not {}", drives.len())));
    }
    if options.drives.len() != drives.len() {
        return Err(ArrayError::Invalid("one identity is needed for each drive".into()));
    }
    let mut identities = options.drives.clone();
    identities.sort_unstable();
    identities.dedup();
    if identities.len() != drives.len() {
        return Err(ArrayError::Invalid("two drives were given the same identity".into()));
    }
    let smallest = drives.iter().map(|drive| drive.geometry.size).min().unwrap_or_default();
    let log = options.log.unwrap_or(Bytes((smallest.0 / 64).clamp(8 << 20, 1 << 30)));
    let log = Bytes(log.0 / (1 << 20) * (1 << 20));
    let mut enclosures: BTreeMap<u32, u32> = BTreeMap::new();
    for drive in drives {
        *enclosures.entry(drive.enclosure).or_insert(0) += 1;
    }
    let largest = enclosures.values().copied().max().unwrap_or(1);
    let spare = match enclosures.len() {
        1 => 2,
        _ => largest,
    };
    let entries = drives.iter().zip(&options.drives).map(|(drive, identity)| DriveEntry {
        identity: *identity,
        enclosure: drive.enclosure,
        size: drive.geometry.size,
        state: DriveState::Active,
        leaving: false,
        joined: 1,
    });
    let configuration = Configuration {
        pool: options.shard.identity(options.pool),
        name: options.name.clone(),
        created: options.created,
        features: Features { incompatible: codec::features_of(options.shard), ..Features::default() },
        epoch: 1,
        seed: options.seed,
        unit_size: Configuration::unit_size_for(smallest),
        log_size: log,
        spare_drives: options.spare_drives.unwrap_or(spare),
        // Raised by the first volume that tolerates more.
        tolerates: 1,
        drives: entries.collect(),
        log: Vec::new(),
        protected: false,
        clean: false,
        growing: false,
        settled: 0,
        overrides: Vec::new(),
        shard: options.shard,
        loss_accepted: false,
        rolling_back: None,
    };
    if log.0 < 4 << 20 {
        return Err(ArrayError::Invalid(format!("a log of {log} is too small; give it at least 4 MiB")));
    }
    for (at, drive) in drives.iter().enumerate() {
        if configuration.units(DriveNumber(at as u16)) < 16 {
            return Err(ArrayError::Invalid(format!(
                "drive {} of {} is too small: labels and log take {}; use larger drives or a smaller log",
                drive.name,
                drive.geometry.size,
                Bytes(configuration.units_at())
            )));
        }
    }
    Ok(configuration)
}

fn name_drives(engine: &Engine, drives: &[Attached]) {
    for (index, drive) in drives.iter().enumerate() {
        if let Some(number) = engine.drives.labels.number(index) {
            engine.drives.change(number, |seen| seen.name.clone_from(&drive.name));
        }
    }
}

/// Opens the pool found on the drives.
pub async fn open(io: Io, options: OpenOptions, drives: Vec<Attached>) -> Result<Recovered, ArrayError> {
    options.cache_limits().check()?;
    let discovery = discover(&io, &drives).await?;
    let read_only = options.read_only || discovery.read_only || !(discovery.majority || options.override_quorum);
    let labels = Labels::resume(&io, &discovery, options.override_quorum);
    let stale = discovery.stale();
    if !read_only {
        labels.promise(&discovery).await?;
        labels.claim(&stale).await?;
    }
    let configuration = labels.configuration().clone();
    let layout = SharedLayout::new(Layout::new(&configuration));
    let (table, opened) = Table::open(&io, &labels, &layout, options.table_cache, read_only).await?;
    let mut records: Vec<(Lsn, Record)> = Vec::new();
    let sink = async |lsn, record: Record| {
        if !record.is_of_blocks() {
            return Err(ArrayError::Damaged(format!(
                "the record at {lsn} speaks of parts of blocks; restore the pool"
            )));
        }
        records.push((lsn, record));
        Ok(())
    };
    let (log, recovery) = Log::recover(&io, &labels, opened.replay, read_only, sink).await?;
    table.settle_anchor().await?;
    let engine = Engine::new(io, log, table, Drives::new(labels), layout, options, read_only);
    name_drives(&engine, &drives);
    load_tables(&engine, &opened).await?;
    note_drives(&engine, &configuration, &stale);
    let replay = replay_records(&engine, opened.cut, records).await?;
    promise_slots(&engine).await?;
    finish_redo(&engine, replay).await?;
    if recovery.repaired > 0 {
        let text =
            format!("{} log groups were missing or damaged on some log drive and copied again", recovery.repaired);
        engine.alarm(AlarmKind::LogRepaired, Severity::Notice, None, text);
    }
    if read_only {
        let why = match discovery.majority {
            true => "asked for, or its format is newer than this program writes",
            false => {
                "no majority of its drives answers, so what it shows may be older than what was acknowledged last; attach \
                 more, or override the quorum"
            }
        };
        engine.alarm(AlarmKind::ReadOnly, Severity::Warning, None, format!("the pool is open read-only: {why}"));
    }
    let rejected = reject(&engine, &discovery.found, &drives);
    Ok(Recovered { engine, rejected })
}

fn reject(engine: &Engine, found: &[crate::drives::label::FoundLabel], drives: &[Attached]) -> Vec<Rejected> {
    let mut rejected = Vec::new();
    for (index, (found, drive)) in found.iter().zip(drives).enumerate() {
        if engine.drives.labels.number(index).is_some() {
            continue;
        }
        if found.verdict == Verdict::Left {
            // The server may have ended before it removed the drive from its list.
            let (index, name) = (Some(index as u32), drive.name.clone());
            engine.membership.note_departed([Departed { index, name }]);
            continue;
        }
        // The alarm and the status name the drive before the note.
        let note = match found.note.strip_prefix(&*drive.name) {
            Some(rest) => format!("it{rest}"),
            None => found.note.clone(),
        };
        let text = format!("{} is not used: {note}", drive.name);
        engine.alarm(AlarmKind::DriveRejected, Severity::Warning, None, text);
        rejected.push(Rejected { index, attached: drive.clone(), note, health: health_of(&found.verdict) });
    }
    rejected
}

/// Rows, volumes and the list of lost stripes, as the checkpoint has them.
async fn load_tables(engine: &Engine, opened: &Opened) -> Result<(), ArrayError> {
    let root = Root::decode(&opened.root)
        .ok_or_else(|| match Root::version(&opened.root).filter(|version| *version > ROOT_VERSION) {
            Some(version) => ArrayError::Refused(format!(
                "the tables of this pool have version {version}, and this version of Stele reads up to {ROOT_VERSION}; open \
                 the pool with the version that wrote it"
            )),
            None => ArrayError::Damaged("the root of the checkpoint makes no sense; restore the pool".into()),
        })?;
    engine.step(|core| {
        core.volumes.next = root.next_volume;
        core.space.generation_floor = root.generation_floor;
        core.space.generation_high = root.generation_high;
    });
    engine.scrubbed_at_age(root.scrub_age, root.scrub_row);
    let rows = (0..engine.table.pages(ROWS)).map(|index| engine.table.page(PageId { table: ROWS, index }));
    let mut rows = stream::iter(rows).buffered(AT_ONCE);
    while let Some(page) = rows.next().await {
        let page = page?;
        let records: Vec<_> = page.read(|bytes| bytes.chunks_exact(ROW_ENTRY).map(read_row).collect());
        for record in records {
            // Rows of the tables are in the anchor; former versions stored some of them here too.
            if let Some((row, used)) = record?.filter(|(row, _)| row.class.kind == RowKind::Data) {
                engine.layout.write().insert_row(row.clone());
                engine.step(|core| core.space.add_row(&row, used));
                engine.step(|core| core.space.saved(row.id));
            }
        }
    }
    let volumes = (0..engine.table.pages(VOLUMES))
        .map(async |index| (index, engine.table.page(PageId { table: VOLUMES, index }).await));
    let mut volumes = stream::iter(volumes).buffered(AT_ONCE);
    while let Some((index, page)) = volumes.next().await {
        if let Some(volume) = page?.read(|bytes| Volume::decode(VolumeId(index), bytes))? {
            engine.step(|core| core.cache.add_volume(volume.id, volume.shape.blocks()));
            if volume.spec().fully_allocated {
                engine.step(|core| core.space.promise(volume.class, volume.stripes() - volume.mapped()));
            }
            engine.step(|core| core.volumes.insert(Rc::new(volume)));
        }
    }
    for index in 0..root.lost.div_ceil(LOST_PER_PAGE) {
        let page = engine.table.page(PageId { table: LOST, index }).await?;
        for key in page.read(read_lost).into_iter().flatten() {
            engine.step(|core| engine.list_lost(core, key, true));
        }
    }
    engine.step(|core| {
        // Where some entries were empty, the others have moved up: the table is written anew.
        if core.lost.entries().len() as u64 == u64::from(root.lost) {
            core.lost.note_saved();
        }
    });
    Ok(())
}

/// Which drives are absent or not up to date.
fn note_drives(engine: &Engine, configuration: &Configuration, stale: &[DriveNumber]) {
    let now = engine.io.now();
    // Without its label a drive that cannot be used has no number.
    let unusable = match engine.options.unusable.as_slice() {
        [] => String::new(),
        reasons => format!("; cannot be used: {}", reasons.join("; ")),
    };
    for (at, entry) in configuration.drives.iter().enumerate() {
        let drive = DriveNumber(at as u16);
        if !entry.state.votes() {
            continue;
        }
        let present = engine.drives.index(drive).is_some();
        let filling = entry.state == DriveState::Filling || stale.contains(&drive);
        if !present {
            engine.drives.change(drive, |seen| {
                seen.missing_since = Some(now);
                seen.stale = true;
                seen.note = format!("not attached; bring it back or replace it{unusable}");
            });
            let text = format!(
                "{drive} of the pool is not attached; bring it back, or it is rebuilt into spare space{unusable}"
            );
            engine.alarm(AlarmKind::DriveMissing, Severity::Warning, Some(drive), text);
        } else if filling {
            engine.drives.change(drive, |seen| {
                seen.stale = true;
                seen.note = "was away; being brought up to date".into();
            });
            let text = format!("{drive} was away and is brought up to date");
            engine.alarm(AlarmKind::DriveStale, Severity::Notice, Some(drive), text);
        }
    }
}

async fn replay_records(engine: &Engine, cut: Lsn, records: Vec<(Lsn, Record)>) -> Result<Replay, ArrayError> {
    let mut replay = Replay::default();
    let mut ahead = 0;
    let mut held = Vec::new();
    for (at, (lsn, record)) in records.iter().enumerate() {
        if at == ahead {
            held.clear();
            ahead += read_ahead(engine, cut, &records[at..], &mut held).await;
        }
        replay.take(engine, *lsn, record);
        if *lsn >= cut {
            let pages = match engine.pages_for(record).await {
                Ok(pages) => pages,
                // A volume deleted later in the log: what the record says does not matter any more.
                Err(ArrayError::Missing(_)) => continue,
                Err(error) => return Err(error),
            };
            engine.step(|core| engine.apply(core, *lsn, record, &pages));
        } else {
            engine.step(|core| engine.apply_cache(core, *lsn, record));
        }
    }
    Ok(replay)
}

/// Brings the pages of the next records into memory, all at once, and holds them. Answers of how
/// many records, at least one. What cannot be read shows when its record is applied.
async fn read_ahead(engine: &Engine, cut: Lsn, records: &[(Lsn, Record)], held: &mut Vec<PageRef>) -> usize {
    let mut pages: BTreeSet<PageId> = BTreeSet::new();
    let mut count = 0;
    for (lsn, record) in records {
        if pages.len() >= AT_ONCE {
            break;
        }
        count += 1;
        if *lsn >= cut {
            // A volume that a record before this one makes is not known yet.
            pages.extend(engine.page_ids(record).unwrap_or_default());
        }
    }
    let read = join_all(pages.into_iter().map(|id| engine.table.page(id))).await;
    held.extend(read.into_iter().flatten());
    count
}

impl Replay {
    /// Before the record is applied: keeps versions and images as long as they may be needed.
    fn take(&mut self, engine: &Engine, lsn: Lsn, record: &Record) {
        match record {
            Record::Write { volume, at, data } => {
                let mut block = at / BLOCK as u64;
                for piece in data {
                    for at in (0..piece.len()).step_by(BLOCK) {
                        let versions = self.versions.entry(BlockKey { volume: *volume, block }).or_default();
                        versions.push((lsn, piece.slice(at..at + BLOCK)));
                        block += 1;
                    }
                }
            }
            Record::Zero { volume, at, length, .. } => {
                for block in at / BLOCK as u64..(at + length) / BLOCK as u64 {
                    let versions = self.versions.entry(BlockKey { volume: *volume, block }).or_default();
                    versions.push((lsn, crate::cache::zero_block()));
                }
            }
            Record::Redo { volume, stripe, slot, generation, covers, images, .. } => {
                let key = StripeKey { volume: *volume, stripe: *stripe };
                let mut oldest = lsn;
                let mut data = |image: &RedoImage| match &image.source {
                    Image::Inline(data) => Some(vec![data.clone()]),
                    Image::Logged { blocks } => {
                        let found = self.logged(engine, key, image.strip, image.block, *blocks, *covers)?;
                        oldest = found.iter().map(|(lsn, _)| *lsn).fold(oldest, Lsn::min);
                        Some(found.into_iter().map(|(_, data)| data).collect())
                    }
                };
                let images = images.iter().map(|image| (image.strip, image.block, data(image))).collect();
                let pending = Pending { slot: *slot, generation: *generation, covers: *covers, lsn, oldest, images };
                self.redo.entry(key).or_default().push(pending);
            }
            Record::Destaged { volume, stripe, covers } => {
                let key = StripeKey { volume: *volume, stripe: *stripe };
                self.forget_versions(engine, key, *covers);
                if let Some(pending) = self.redo.get_mut(&key).filter(|_| !engine.io.is_disabled(Mutation::RedoDone)) {
                    pending.retain(|pending| pending.covers > *covers);
                }
            }
            Record::Map { volume, stripe, covers, .. } | Record::Unmap { volume, stripe, covers, .. } => {
                let key = StripeKey { volume: *volume, stripe: *stripe };
                self.forget_versions(engine, key, *covers);
                // Images of the slot the stripe had before stay listed: whether they may land is
                // decided at the end, by slot and generation.
            }
            _ => {}
        }
    }

    /// The blocks a redo image refers to, as the log had them.
    fn logged(
        &self,
        engine: &Engine,
        key: StripeKey,
        strip: u8,
        block: u32,
        blocks: u32,
        covers: Lsn,
    ) -> Option<Vec<(Lsn, Shared)>> {
        let volume = engine.look(|core| core.volumes.get(key.volume))?;
        let shape = &volume.shape;
        // A mirror's further strips are the data strip again.
        let strip = if usize::from(strip) < shape.k { usize::from(strip) } else { 0 };
        let first = key.stripe * u64::from(shape.blocks()) + (strip * shape.strip_blocks()) as u64 + u64::from(block);
        (first..first + u64::from(blocks))
            .map(|block| {
                let versions = self.versions.get(&BlockKey { volume: key.volume, block })?;
                versions.iter().rev().find(|(lsn, _)| *lsn <= covers).cloned()
            })
            .collect()
    }

    fn forget_versions(&mut self, engine: &Engine, key: StripeKey, covers: Lsn) {
        let Some(volume) = engine.look(|core| core.volumes.get(key.volume)) else { return };
        let blocks = u64::from(volume.shape.blocks());
        let first = BlockKey { volume: key.volume, block: key.stripe * blocks };
        let last = BlockKey { volume: key.volume, block: (key.stripe + 1) * blocks };
        let mut empty = Vec::new();
        for (key, versions) in self.versions.range_mut(first..last) {
            versions.retain(|(lsn, _)| *lsn > covers);
            if versions.is_empty() {
                empty.push(*key);
            }
        }
        for key in empty {
            self.versions.remove(&key);
        }
    }
}

/// Every dirty stripe has log space for its destage again, and one without a slot has one promised.
async fn promise_slots(engine: &Engine) -> Result<(), ArrayError> {
    let first = StripeKey { volume: VolumeId(0), stripe: 0 };
    let dirty: Vec<StripeKey> = engine.look(|core| core.cache.elevator(first).collect());
    for (at, key) in dirty.iter().copied().enumerate() {
        if at % AT_ONCE == 0 {
            // Brings the pages into memory, all at once.
            let ahead = dirty[at..].iter().take(AT_ONCE).map(|key| engine.home(*key));
            let _read = join_all(ahead).await;
        }
        let Some(volume) = engine.look(|core| core.volumes.get(key.volume)) else { continue };
        let cost = engine.destage_cost(&volume.shape, engine.look(|core| core.cache.dirty_count(key)));
        if let Some(reservation) = engine.log.try_reserve(cost, Purpose::Inside) {
            engine.step(|core| core.destage_reservations.insert(key, reservation));
        }
        if !matches!(engine.home(key).await?, Home::Slot(_)) && !volume.spec().fully_allocated {
            engine.step(|core| core.space.promise(volume.class, 1));
            engine.step(|core| core.promised.insert(key));
        }
    }
    Ok(())
}

/// Puts the images of unfinished in-place writes onto their strips, where slot and generation are
/// still theirs. What too few strips can take now, and everything in a pool opened read-only, stays
/// owed: the rest is served meanwhile.
async fn finish_redo(engine: &Rc<Engine>, replay: Replay) -> Result<(), ArrayError> {
    for (key, mut pending) in replay.redo {
        let Some(volume) = engine.look(|core| core.volumes.get(key.volume)) else { continue };
        // What covers less was made before, wherever it stands: it may have been appended again
        // behind what is newer. Images of one destage are of different columns.
        if !engine.io.is_disabled(Mutation::RedoAge) {
            pending.sort_by_key(|redo| redo.covers);
        }
        for (at, redo) in pending.iter().enumerate() {
            // Relogged: a later record, which covers as much, holds the images themselves.
            let again = |later: &Pending| later.slot == redo.slot && later.generation == redo.generation;
            redo_one(engine, &volume, key, redo, pending[at + 1..].iter().any(again)).await?;
        }
        if engine.standing.is_read_only() {
            continue;
        }
        if let Err(error) = engine.place_redo(&volume, key.stripe).await {
            engine.destage_failed(key, &error);
        } else if engine.look(|core| !core.cache.is_dirty(key) && core.redo.covers(key).is_some()) {
            // Besides: a full log has room for the record only when the pool serves.
            let owner = Rc::clone(engine);
            engine.io.spawn(async move { owner.record_placed(key).await });
        }
        // Else the stripe is destaged again as a whole: the images may be those of a part of its
        // dirty blocks.
    }
    Ok(())
}

/// Keeps the images, unless the slot has gone to another stripe, or got another generation, since
/// the record was written.
async fn redo_one(
    engine: &Rc<Engine>,
    volume: &Rc<Volume>,
    key: StripeKey,
    redo: &Pending,
    again: bool,
) -> Result<(), ArrayError> {
    let unchecked = engine.io.is_disabled(Mutation::RedoGeneration);
    if engine.home(key).await? != Home::Slot(redo.slot) && !unchecked {
        return Ok(());
    }
    let (page, at) = engine.slot_page(&volume.shape, redo.slot).await?;
    let head = page.read(|bytes| entry::head(bytes, at));
    let current = !head.is_free()
        && head.volume == key.volume.0
        && head.stripe == key.stripe
        && head.generation == redo.generation;
    if !current && !unchecked {
        return Ok(());
    }
    let mut writes = Vec::new();
    for (strip, block, data) in &redo.images {
        let Some(data) = data else {
            if again {
                return Ok(());
            }
            return Err(ArrayError::Damaged(format!(
                "the redo record at {} refers to writes the log no longer has (volume '{}', stripe {}); restore the pool",
                redo.lsn,
                volume.name(),
                key.stripe
            )));
        };
        writes.push(StripWrite { strip: usize::from(*strip), at: *block as usize * BLOCK, data: data.clone() });
    }
    tracing::debug!(stripe = key.stripe, slot = %redo.slot, "redo");
    if current {
        let Pending { slot, generation, covers, oldest, .. } = *redo;
        engine.keep_redo(key, Redo { slot, generation, covers, oldest, writes, placed: false });
    } else if let Some(of) = engine.picture(volume, head.stripe, redo.slot, &page, at) {
        engine.put_in_place(volume, &of, writes).await?;
    }
    Ok(())
}
