//! Rebuilding the catalog from the data volume alone.
//!
//! The volume says everything that matters twice: frames and notes in segments, and in the key table which objects exist.
//! Every note of a thing carries a rising sequence number; the highest counts. A version exists if its entry in the
//! key table does. Between its key and note and its commit, a write may thus come back that was never acknowledged,
//! and so may, between its commit and the end of its key, a removal that was never acknowledged be undone: of what is in
//! doubt nothing is lost. What cannot be read is reported by place, and nothing is invented in its stead.
//!
//! Memory: an index of all versions, pieces and entries. This is not a path for every day.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stele_catalog::{Catalog, Head, Transaction, link};
use stele_media::Handle;

use crate::access_keys::AccessKeyNote;
use crate::audit::sealing::sign_rebuilt;
use crate::audit::{Action, Event, Signing};
use crate::buckets::Bucket;
use crate::error::{ArchiveError, Result};
use crate::install::{place_extents, places};
use crate::principal::Caller;
use crate::record::access_key::AccessKeyRow;
use crate::record::audit::AuditNote;
use crate::record::bucket::BucketRow;
use crate::record::content::{Content, Extent, Layout, Place, Stream};
use crate::record::part::{PartNote, PartRow};
use crate::record::segment::{SegmentRow, SegmentUse};
use crate::record::settings::{
    AUDIT_HEAD, CLOCK, ClockRow, IDENTITY, IdentityNote, IdentityRow, NUMBERS, ReservedRow, SLOTS,
};
use crate::record::tombstone::TombstoneRow;
use crate::record::version::{Owner, VersionNote, VersionRef};
use crate::record::{
    ACCESS_KEYS, AUDIT, BUCKETS, HOLDS, LAYOUTS, OBJECTS, PARTS, RETAINED, SEGMENTS, SETTINGS, TOMBSTONES, VERSIONS,
    decode, encode, keys,
};
use crate::seal::{Secret, derive, open_note};
use crate::space::BLOCK;
use crate::space::frames::content_length;
use crate::space::header::{Kind, RecordHeader, SegmentFooter, SegmentHeader, SegmentKind};
use crate::space::keytable::{ENTRY, Entry, FIRST};
use crate::space::superblock::{Superblock, segments_on};
use crate::space::walk::Walk;
use crate::store::{Archive, Foundation, MasterKey, Options};
use crate::time::Timestamp;

/// Numbers left unused behind the highest found.
const MARGIN: u64 = 1 << 20;
/// Bytes of one transaction, about.
const BATCH: usize = 1 << 20;
const BATCH_STEPS: usize = 4000;

/// What a rebuild found.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RebuildReport {
    pub segments: u64,
    pub records: u64,
    pub buckets: u64,
    pub versions: u64,
    pub delete_markers: u64,
    pub access_keys: u64,
    pub audit_records: u64,
    /// Entries in the key table to which no readable version belongs: uploads under way, writes never acknowledged, or
    /// versions whose note is damaged. Their entries stay.
    pub unclaimed_keys: u64,
    /// What could not be read or is incomplete, and where.
    pub findings: Vec<String>,
}

/// Everything the volume says.
#[derive(Default)]
struct Survey {
    segments: BTreeMap<u32, SegmentRow>,
    /// Parts of the key table.
    parts: BTreeMap<u32, u32>,
    /// Object: slot and entry.
    entries: BTreeMap<u64, (u64, Entry)>,
    identity: Option<(u64, IdentityNote)>,
    buckets: BTreeMap<u32, (u64, BucketRow, Place)>,
    access_keys: BTreeMap<String, (u64, AccessKeyRow, Place)>,
    versions: BTreeMap<u64, (u64, VersionNote, Place)>,
    part_notes: BTreeMap<(u64, u64), (u64, PartNote, Place)>,
    /// Object, stream, first frame: the piece.
    pieces: BTreeMap<(u64, u64, u32), Extent>,
    tombstones: BTreeMap<Bytes, TombstoneRow>,
    audit: BTreeMap<u64, Vec<u8>>,
    highest: u64,
    records: u64,
    findings: Vec<String>,
}

/// What a rebuild stands on: a store on the data volume, and the key that opens it.
async fn ground(data: &Handle, master: &MasterKey) -> Result<Superblock> {
    let Some(superblock) = Superblock::read(data).await? else {
        return Err(ArchiveError::InvalidState("the data volume holds no store".into()));
    };
    if Superblock::fingerprint(master, &superblock.store) != superblock.fingerprint {
        return Err(crate::seal::wrong_key("the store"));
    }
    Ok(superblock)
}

impl Archive {
    /// Whether a rebuild could begin: to be asked before any catalog is wiped for it.
    pub async fn can_rebuild(data: &Handle, master: &MasterKey) -> Result<()> {
        ground(data, master).await.map(drop)
    }

    /// Fills an empty catalog from the data volume and opens the store.
    pub async fn rebuild(foundation: Foundation, options: Options) -> Result<(Archive, RebuildReport)> {
        let superblock = ground(&foundation.data, &foundation.master).await?;
        if foundation.catalog.snapshot()?.get(SETTINGS, IDENTITY)?.is_some() {
            return Err(ArchiveError::InvalidState(
                "the catalog is not empty; move it away first, a rebuild writes a new one".into(),
            ));
        }
        let mut survey = Survey::default();
        survey.headers(&foundation.data, &superblock).await?;
        survey.key_table(&foundation.data, &superblock).await?;
        let note_key = derive(&foundation.master.0, "notes", &superblock.store);
        // Buckets first: their keys open the notes of versions.
        survey.walk(&foundation.data, &superblock, &note_key, None).await?;
        let mut buckets = BTreeMap::new();
        for (number, (_, row, _)) in &survey.buckets {
            let bucket = Bucket::open(&foundation.master, *number, row.clone(), Bytes::new())?;
            buckets.insert(*number, bucket);
        }
        survey.walk(&foundation.data, &superblock, &note_key, Some(&buckets)).await?;
        let wall = foundation.surroundings.now().wall;
        let report = write(&foundation, &superblock, survey, &buckets, wall).await?;
        let archive = Archive::open(foundation, options).await?;
        let event = Event::new(&Caller::system("rebuild"), Action::Rebuild).detail(format!(
            "{} versions, {} buckets, {} audit records, {} findings",
            report.versions,
            report.buckets,
            report.audit_records,
            report.findings.len()
        ));
        archive.store.record(Transaction::new().with_reserve(), event).await?;
        Ok((archive, report))
    }
}

impl Survey {
    async fn headers(&mut self, volume: &Handle, superblock: &Superblock) -> Result<()> {
        self.parts.insert(0, 0);
        for number in 1..segments_on(volume.geometry().size.0, superblock.segment) {
            let start = u64::from(number) * u64::from(superblock.segment);
            let block = match volume.read(start, BLOCK as usize).await {
                Ok(block) => block,
                Err(error) => {
                    self.findings.push(format!("segment {number}: its header cannot be read: {error}"));
                    continue;
                }
            };
            let Some(header) = SegmentHeader::decode(&block, &superblock.store, number) else {
                if block.iter().any(|byte| *byte != 0) {
                    self.findings.push(format!("segment {number}: its header is damaged or of another store"));
                }
                continue;
            };
            let usage = match header.kind {
                SegmentKind::Data => SegmentUse::Sealed,
                SegmentKind::Keys => {
                    self.parts.insert(header.ordinal, number);
                    SegmentUse::Keys(header.ordinal)
                }
            };
            self.highest = self.highest.max(crate::space::incarnation(&superblock.store, header.incarnation));
            let row = SegmentRow { usage, incarnation: header.incarnation, used: BLOCK, live: 0 };
            self.segments.insert(number, row);
        }
        Ok(())
    }

    async fn key_table(&mut self, volume: &Handle, superblock: &Superblock) -> Result<()> {
        if self.parts.keys().copied().ne(0..self.parts.len() as u32) {
            self.findings.push("a part of the key table is missing; the objects in it cannot be recovered".into());
        }
        let per_part = u64::from((superblock.segment - FIRST) / ENTRY as u32);
        for (ordinal, segment) in self.parts.clone() {
            let start = u64::from(segment) * u64::from(superblock.segment) + u64::from(FIRST);
            for block in 0..u64::from((superblock.segment - FIRST) / BLOCK) {
                let bytes = match volume.read(start + block * u64::from(BLOCK), BLOCK as usize).await {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        self.findings.push(format!("key table part {ordinal}, block {block}: {error}"));
                        continue;
                    }
                };
                for (inside, bytes) in bytes.chunks(ENTRY).enumerate() {
                    let slot = u64::from(ordinal) * per_part + block * (BLOCK as u64 / ENTRY as u64) + inside as u64;
                    if let Some(entry) = Entry::decode(bytes) {
                        self.highest = self.highest.max(entry.object);
                        self.entries.insert(entry.object, (slot, entry));
                    } else if bytes.iter().any(|byte| *byte != 0) {
                        self.findings.push(format!("key slot {slot} is damaged; its object is lost"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Without buckets: everything sealed under the master key. With them: everything else.
    async fn walk(
        &mut self,
        volume: &Handle,
        superblock: &Superblock,
        note_key: &Secret,
        buckets: Option<&BTreeMap<u32, Bucket>>,
    ) -> Result<()> {
        let segments: Vec<(u32, u64)> = self
            .segments
            .iter()
            .filter(|(_, row)| row.usage == SegmentUse::Sealed)
            .map(|(number, row)| (*number, row.incarnation))
            .collect();
        for (segment, incarnation) in segments {
            let start = u64::from(segment) * u64::from(superblock.segment);
            let mut walk = Walk::new(volume.clone(), start, superblock.segment, incarnation);
            while let Some((at, header)) = walk.next().await? {
                let place = Place { segment, at, length: header.length() };
                self.highest = self.highest.max(header.sequence).max(header.object).max(header.stream);
                if let Some(row) = self.segments.get_mut(&segment) {
                    row.used = row.used.max(at + header.length());
                }
                let mine = match buckets {
                    None => header.scope == 0 && header.kind != Kind::Piece,
                    Some(_) => header.scope != 0 || header.kind == Kind::Piece,
                };
                self.records += u64::from(mine);
                if mine && let Err(finding) = self.take(&mut walk, place, &header, note_key, buckets).await? {
                    self.findings.push(format!("segment {segment} at byte {at}: {finding}"));
                }
            }
            if buckets.is_some() {
                let end = start + u64::from(superblock.segment - BLOCK);
                let footer = volume.read(end, BLOCK as usize).await.ok();
                let footer = footer.and_then(|block| SegmentFooter::decode(&block, incarnation));
                let used = self.segments.get(&segment).map_or(0, |row| row.used);
                if let Some(footer) = footer
                    && crate::space::align_up(used, BLOCK) < footer.used
                {
                    self.findings
                        .push(format!("segment {segment}: records between {used} and {} are missing", footer.used));
                }
                for at in &walk.unreadable {
                    self.findings.push(format!("segment {segment}: 4096 bytes at {at} cannot be read"));
                }
            }
        }
        Ok(())
    }

    async fn take(
        &mut self,
        walk: &mut Walk,
        place: Place,
        header: &RecordHeader,
        note_key: &Secret,
        buckets: Option<&BTreeMap<u32, Bucket>>,
    ) -> Result<Result<(), String>> {
        let extent = |sealed: u32| Extent {
            segment: place.segment,
            at: place.at,
            bytes: content_length(sealed as usize) as u32,
        };
        if header.kind == Kind::Piece {
            let key = (header.object, header.stream, header.first_frame);
            self.pieces.insert(key, extent(header.payload));
            return Ok(Ok(()));
        }
        let Some(payload) = walk.payload(place.at, header).await? else {
            return Ok(Err("the record cannot be read".into()));
        };
        if stele_ground::digest::crc32c(&payload) != header.check {
            return Ok(Err("the record's checksum does not match; it was torn or damaged".into()));
        }
        let key = match (header.scope, buckets) {
            (0, _) => Some(note_key),
            (bucket, Some(buckets)) => buckets.get(&bucket).map(|bucket| &bucket.note_key),
            (_, None) => None,
        };
        let sealed = &payload[payload.len() - header.note as usize..];
        let Some(note) = key.and_then(|key| open_note(key, &header.sequence.to_be_bytes(), sealed).ok()) else {
            return Ok(Err("its note does not open".into()));
        };
        let sequence = header.sequence;
        match header.kind {
            Kind::Piece => {}
            Kind::Whole | Kind::Version => {
                let note: VersionNote = decode(VERSIONS, &[], &note)?;
                if header.kind == Kind::Whole {
                    let key = (header.object, header.stream, header.first_frame);
                    self.pieces.insert(key, extent(header.payload - header.note));
                }
                self.highest = self.highest.max(note.at.number);
                newest(&mut self.versions, note.row.object, (sequence, note, place));
            }
            Kind::Part => {
                let note: PartNote = decode(PARTS, &[], &note)?;
                newest(&mut self.part_notes, (note.object, note.row.stream.number), (sequence, note, place));
            }
            Kind::Bucket => {
                let row: BucketRow = decode(BUCKETS, &[], &note)?;
                newest(&mut self.buckets, u32::try_from(header.object).unwrap_or(0), (sequence, row, place));
            }
            Kind::AccessKey => {
                let note: AccessKeyNote = decode(ACCESS_KEYS, &[], &note)?;
                newest(&mut self.access_keys, note.id, (sequence, note.row, place));
            }
            Kind::Tombstone => {
                let (at, row): (VersionRef, TombstoneRow) = decode(TOMBSTONES, &[], &note)?;
                self.tombstones.insert(at.record_key(), row);
            }
            Kind::Identity => {
                let note: IdentityNote = decode(SETTINGS, &[], &note)?;
                if self.identity.as_ref().is_none_or(|(before, _)| *before < sequence) {
                    self.identity = Some((sequence, note));
                }
            }
            Kind::Audit => {
                let note: AuditNote = decode(AUDIT, &[], &note)?;
                for (number, value) in (note.first..).zip(note.values) {
                    self.audit.insert(number, value.into());
                }
            }
        }
        Ok(Ok(()))
    }

    /// The pieces of a stream in order. None: some are missing.
    fn stream(&self, object: u64, stream: &Stream) -> Option<Vec<Extent>> {
        let range = (object, stream.number, 0)..=(object, stream.number, u32::MAX);
        let (mut extents, mut bytes) = (Vec::new(), 0u64);
        for ((_, _, first_frame), extent) in self.pieces.range(range) {
            if u64::from(*first_frame) * crate::space::frames::FRAME as u64 != bytes {
                return None;
            }
            bytes += u64::from(extent.bytes);
            extents.push(*extent);
        }
        (bytes == stream.size).then_some(extents)
    }
}

fn newest<K: Ord, V>(map: &mut BTreeMap<K, (u64, V, Place)>, key: K, found: (u64, V, Place)) {
    match map.get(&key) {
        Some((sequence, ..)) if *sequence > found.0 => {}
        _ => {
            map.insert(key, found);
        }
    }
}

/// Transactions that are committed as they fill up.
struct Writer<'a> {
    catalog: &'a dyn Catalog,
    transaction: Transaction,
    bytes: usize,
}

impl Writer<'_> {
    async fn put(&mut self, table: stele_catalog::Table, key: Bytes, value: Bytes) -> Result<()> {
        self.bytes += key.len() + value.len();
        self.transaction = std::mem::take(&mut self.transaction).put(table, key, value);
        self.flush(false).await
    }

    async fn flush(&mut self, all: bool) -> Result<()> {
        let full = self.bytes > BATCH || self.transaction.mutations.len() > BATCH_STEPS;
        if (all || full) && !self.transaction.mutations.is_empty() {
            self.catalog.commit(std::mem::take(&mut self.transaction)).await?;
            self.bytes = 0;
        }
        Ok(())
    }
}

async fn write(
    foundation: &Foundation,
    superblock: &Superblock,
    mut survey: Survey,
    buckets: &BTreeMap<u32, Bucket>,
    wall: Timestamp,
) -> Result<RebuildReport> {
    let catalog = &*foundation.catalog;
    let mut report = RebuildReport { segments: survey.segments.len() as u64, ..RebuildReport::default() };
    let mut out = Writer { catalog, transaction: Transaction::new(), bytes: 0 };
    let mut live: Vec<Place> = Vec::new();
    let mut latest = Timestamp(0);
    let existing = survey.versions.values().filter(|(_, note, _)| exists(&survey, note));
    let filled: BTreeSet<u32> = existing.map(|(_, note, _)| note.at.bucket).collect();
    for (number, (_, row, place)) in &survey.buckets {
        live.push(*place);
        report.buckets += 1;
        // A deletion is noted before it is committed, and refused where a version came in between.
        let deleted = row.deleted.filter(|_| !filled.contains(number));
        let row = BucketRow { note: *place, deleted, ..row.clone() };
        out.put(BUCKETS, keys::short(*number), encode(&row)).await?;
    }
    for (id, (_, row, place)) in &survey.access_keys {
        live.push(*place);
        report.access_keys += 1;
        let row = AccessKeyRow { note: *place, ..row.clone() };
        out.put(ACCESS_KEYS, Bytes::copy_from_slice(id.as_bytes()), encode(&row)).await?;
    }
    // Of several null versions of a key only the newest exists; the others were replaced, and their keys destroyed soon after.
    // One that is retained or held goes before any that is not: nothing could have replaced it.
    let mut nulls: BTreeMap<(u32, String), (bool, u64)> = BTreeMap::new();
    for (_, note, _) in survey.versions.values().filter(|(_, note, _)| note.row.null && exists(&survey, note)) {
        let kept = note.row.retention.is_some() || note.row.hold;
        let newest = nulls.entry((note.at.bucket, note.at.key.clone())).or_insert((false, 0));
        *newest = (*newest).max((kept, note.at.number));
    }
    let mut claimed = BTreeSet::new();
    let mut usage: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    let versions = std::mem::take(&mut survey.versions);
    for (object, (_, note, place)) in versions {
        let stale = |newest: &(bool, u64)| note.row.null && newest.1 != note.at.number;
        if !exists(&survey, &note) || nulls.get(&(note.at.bucket, note.at.key.clone())).is_some_and(stale) {
            continue;
        }
        let name = buckets.get(&note.at.bucket).map_or("", |bucket| bucket.name()).to_string();
        let mut row = note.row;
        row.note = place;
        let slot = survey.entries.get(&object).map(|(slot, _)| *slot).unwrap_or_default();
        row.slot = slot;
        claimed.insert(object);
        let incomplete = |what: &str| format!("`{name}/{}` version {}: {what}", note.at.key, row.id(note.at.number));
        let mut pieces = Vec::new();
        let mut index = false;
        match row.content.clone() {
            Content::None => {}
            Content::Stream(mut stream) => {
                let extents = survey.stream(object, &stream);
                if extents.is_none() {
                    survey.findings.push(incomplete("pieces of its content are missing"));
                }
                pieces = extents.unwrap_or_default();
                index = !matches!(pieces.as_slice(), [one] if (one.segment, one.at) == (place.segment, place.at))
                    && !pieces.is_empty();
                let placed = place_extents(Transaction::new(), object, &mut stream, &pieces);
                for mutation in placed.mutations {
                    if let stele_catalog::Mutation::Put { table, key, value } = mutation {
                        out.put(table, key, value).await?;
                    }
                }
                row.content = Content::Stream(stream);
            }
            Content::Parts => {
                index = true;
                let layout: Layout = note.layout.clone().unwrap_or_default();
                for part in &layout.parts {
                    let found = survey.part_notes.get(&(object, part.stream));
                    let Some((_, part_note, part_place)) = found else {
                        survey.findings.push(incomplete(&format!("part {} is missing", part.number)));
                        continue;
                    };
                    let mut part_row: PartRow = part_note.row.clone();
                    part_row.note = *part_place;
                    let extents = survey.stream(object, &part_row.stream);
                    if extents.is_none() {
                        let what = format!("pieces of part {} are missing", part.number);
                        survey.findings.push(incomplete(&what));
                    }
                    let extents = extents.unwrap_or_default();
                    live.extend(places(part_place, &extents));
                    let placed = place_extents(Transaction::new(), object, &mut part_row.stream, &extents);
                    for mutation in placed.mutations {
                        if let stele_catalog::Mutation::Put { table, key, value } = mutation {
                            out.put(table, key, value).await?;
                        }
                    }
                    out.put(PARTS, keys::pair(object, part.number), encode(&part_row)).await?;
                }
                out.put(LAYOUTS, keys::number(object), encode(&layout)).await?;
            }
        }
        live.extend(places(&place, &pieces));
        let at = note.at;
        if index {
            out.put(OBJECTS, keys::number(object), encode(&Owner::Version(at.clone()))).await?;
        }
        if let Some(retention) = row.retention {
            out.put(RETAINED, keys::numbers(retention.until.0, object), encode(&at)).await?;
        }
        if row.hold {
            out.put(HOLDS, keys::number(object), encode(&at)).await?;
        }
        latest = latest.max(row.modified);
        let counted = usage.entry(at.bucket).or_insert((0, 0));
        (counted.0, counted.1) = (counted.0 + 1, counted.1 + row.size as i64);
        if row.marker {
            report.delete_markers += 1;
        } else {
            report.versions += 1;
        }
        out.put(VERSIONS, at.record_key(), encode(&row)).await?;
    }
    // A certificate is noted before the removal is committed: where the version's key still exists it was not disposed of.
    for (key, row) in survey.tombstones.iter().filter(|(_, row)| !claimed.contains(&row.object)) {
        out.put(TOMBSTONES, key.clone(), encode(row)).await?;
    }
    for (number, (versions, bytes)) in usage {
        if let Some(bucket) = buckets.get(&number) {
            out.transaction = bucket.count(std::mem::take(&mut out.transaction), versions, bytes);
            // Counting within a quota is for those who add, not for what is there.
            out.transaction.preconditions.clear();
            out.flush(false).await?;
        }
    }
    report.unclaimed_keys = survey.entries.keys().filter(|object| !claimed.contains(object)).count() as u64;
    for place in live {
        if let Some(row) = survey.segments.get_mut(&place.segment) {
            row.live += i64::from(place.length);
        }
    }
    for (number, row) in &survey.segments {
        out.put(SEGMENTS, keys::short(*number), encode(row)).await?;
    }
    report.audit_records = write_audit(&mut out, &mut survey).await?;

    let Some((_, note)) = survey.identity.take() else {
        return Err(ArchiveError::damaged(
            "the data volume",
            "no note of the store's identity can be read; without it the signing key is lost, and nothing was rebuilt",
        ));
    };
    let highest_slot = survey.entries.values().map(|(slot, _)| slot + 1).max().unwrap_or(0);
    let identity = IdentityRow { store: superblock.store, clean: false, rebuilt: Some(wall), ..note.identity };
    // The clock shows no less than it did when anything that was found was written, as far as that is known.
    let shown = note.clock.shown;
    let clock = ClockRow { shown, wall: note.clock.wall.max(latest.min(wall)), ..note.clock };
    let numbers = ReservedRow { below: survey.highest + MARGIN };
    out.put(SETTINGS, Bytes::from_static(NUMBERS), encode(&numbers)).await?;
    out.put(SETTINGS, Bytes::from_static(SLOTS), encode(&ReservedRow { below: highest_slot })).await?;
    out.put(SETTINGS, Bytes::from_static(CLOCK), encode(&clock)).await?;
    out.flush(true).await?;
    let signing = Signing::open(foundation, &superblock.store, &identity.signing)?;
    sign_rebuilt(catalog, &signing, &superblock.store).await?;
    // Last: until the identity is there, the catalog counts as empty and a rebuild may be begun anew.
    out.put(SETTINGS, Bytes::from_static(IDENTITY), encode(&identity)).await?;
    out.flush(true).await?;
    report.records = survey.records;
    report.findings = survey.findings;
    Ok(report)
}

/// A version exists if the key table has its entry.
fn exists(survey: &Survey, note: &VersionNote) -> bool {
    survey.entries.get(&note.row.object).is_some_and(|(_, entry)| entry.bucket == note.at.bucket)
}

/// The audit log from its start, as far as the volume has it without a gap.
async fn write_audit(out: &mut Writer<'_>, survey: &mut Survey) -> Result<u64> {
    let mut head = Head::default();
    for (number, value) in std::mem::take(&mut survey.audit) {
        if number != head.count + 1 {
            survey.findings.push(format!("audit records {} to {} are missing", head.count + 1, number - 1));
            break;
        }
        head = Head { count: number, link: link(&head.link, number, &value) };
        out.put(AUDIT, keys::number(number), value.into()).await?;
    }
    if head.count > 0 {
        out.put(SETTINGS, Bytes::from_static(AUDIT_HEAD), head.encode()).await?;
    }
    Ok(head.count)
}
