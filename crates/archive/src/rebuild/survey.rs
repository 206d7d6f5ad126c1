//! The survey: everything that can be read from the data volume.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;
use stele_media::Handle;

use super::doubted::Doubted;
use crate::audit::verify::check_head;
use crate::model::error::{ArchiveError, Result};
use crate::model::head::SignedHead;
use crate::model::mutation::{Mutation, Mutations};
use crate::model::time::Timestamp;
use crate::record::access_key::{AccessKeyNote, AccessKeyRow};
use crate::record::audit::AuditNote;
use crate::record::bucket::BucketRow;
use crate::record::class::{ClassNote, ClassRow};
use crate::record::content::{Content, Extent, Place, Stream};
use crate::record::matter::{MatterNote, MatterRow};
use crate::record::part::PartNote;
use crate::record::segment::{SegmentRow, SegmentUse};
use crate::record::settings::IdentityNote;
use crate::record::tombstone::TombstoneRow;
use crate::record::version::{TAKEN_BACK, VersionNote, VersionRef};
use crate::record::{ACCESS_KEYS, AUDIT, BUCKETS, CLASSES, MATTERS, PARTS, SETTINGS, TOMBSTONES, VERSIONS, decode};
use crate::seal::{Secret, open_note};
use crate::space::BLOCK;
use crate::space::frames::content_length;
use crate::space::header::{Kind, RecordHeader, SegmentFooter, SegmentHeader, SegmentKind};
use crate::space::keytable::{ENTRY, Entry, FIRST};
use crate::space::superblock::{Superblock, segments_on};
use crate::space::walk::{Walk, is_damage, is_torn};
use crate::state::buckets::Bucket;
use crate::store::foundation::Foundation;
use crate::store::signing::Signing;

/// Where the numbers of two records of a segment differ by more, the store was opened in between:
/// an opening goes on at a bound that was stored before.
const SKIPPED: u64 = 1 << 16;
/// Bytes of records between a note and the end of its session while its content is on the way.
const ON_THE_WAY: u32 = 4 << 20;

/// The extent of the piece in a record with so many sealed bytes.
fn piece_at(place: Place, sealed: u32) -> Extent {
    Extent { segment: place.segment, at: place.at, bytes: content_length(sealed as usize) as u32 }
}

/// The content of the volume.
#[derive(Default)]
pub(super) struct Survey {
    pub segments: BTreeMap<u32, SegmentRow>,
    /// Parts of the key table.
    pub parts: BTreeMap<u32, u32>,
    /// Object: slot and entry.
    pub entries: BTreeMap<u64, (u64, Entry)>,
    pub identity: Option<(u64, IdentityNote)>,
    pub buckets: BTreeMap<u32, (u64, BucketRow, Place)>,
    pub access_keys: BTreeMap<String, (u64, AccessKeyRow, Place)>,
    pub matters: BTreeMap<String, (u64, MatterRow, Place)>,
    pub classes: BTreeMap<String, (u64, ClassRow, Place)>,
    pub versions: BTreeMap<u64, (u64, VersionNote, Place)>,
    pub doubted: Doubted,
    pub part_notes: BTreeMap<(u64, u64), (u64, PartNote, Place)>,
    /// Object, stream, first frame: the piece.
    pub pieces: BTreeMap<(u64, u64, u32), Extent>,
    /// The same for pieces that a crash tore.
    pub torn: BTreeSet<(u64, u64, u32)>,
    /// By segment: where the records of a session end that was not closed in order (false), or
    /// where a crash left out records (true).
    pub ends: BTreeMap<u32, Vec<(u32, bool)>>,
    /// By version: the sequence of the note, and the certificate.
    pub tombstones: BTreeMap<Bytes, (u64, TombstoneRow)>,
    /// By number: the sequence of the note, and the record.
    pub audit: BTreeMap<u64, (u64, Vec<u8>)>,
    pub highest: u64,
    pub records: u64,
    pub findings: Vec<String>,
    pub losses: Vec<String>,
    /// Slots of the key table that cannot be read. Their objects may or may not exist.
    pub hidden: Vec<Range<u64>>,
    /// The highest number of a bucket in any record or entry.
    pub scopes: u32,
    pub without: Mutations,
}

impl Survey {
    pub async fn headers(&mut self, volume: &Handle, superblock: &Superblock) -> Result<()> {
        self.parts.insert(0, 0);
        for number in 1..segments_on(volume.geometry().size.0, superblock.segment) {
            let start = u64::from(number) * u64::from(superblock.segment);
            let block = match volume.read(start, BLOCK as usize).await {
                Ok(block) => block,
                Err(error) if is_damage(&error) => {
                    self.lose_segment(number, format!("segment {number}: its header cannot be read: {error}"));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let Some(header) = SegmentHeader::decode(&block, &superblock.store, number) else {
                // A sound header of another store: the segment was free when this store was
                // created.
                if block.iter().any(|byte| *byte != 0) && !SegmentHeader::is_foreign(&block, &superblock.store, number)
                {
                    self.lose_segment(number, format!("segment {number}: its header is damaged"));
                }
                continue;
            };
            let usage = match header.kind {
                SegmentKind::Data => SegmentUse::Sealed,
                SegmentKind::Keys => {
                    if !self.is_part(volume, superblock, number, header.ordinal).await? {
                        continue;
                    }
                    SegmentUse::Keys(header.ordinal)
                }
            };
            self.highest = self.highest.max(crate::space::incarnation(&superblock.store, header.incarnation));
            let row = SegmentRow::new(usage, header.incarnation, BLOCK);
            self.segments.insert(number, row);
        }
        Ok(())
    }

    /// Whether the segment is the part of the key table that its header says. An extension that was
    /// cut off leaves a header and no entries: entries are written once the catalog knows the part.
    /// Then another segment became this part.
    async fn is_part(&mut self, volume: &Handle, superblock: &Superblock, number: u32, ordinal: u32) -> Result<bool> {
        let Some(other) = self.parts.insert(ordinal, number) else { return Ok(true) };
        match (holds_entries(volume, superblock, other).await?, holds_entries(volume, superblock, number).await?) {
            (true, true) => Err(ArchiveError::damaged(
                "the data volume",
                format!("segments {other} and {number} are both part {ordinal} of the key table"),
            )),
            (true, false) => {
                self.parts.insert(ordinal, other);
                Ok(false)
            }
            (false, _) => {
                self.segments.remove(&other);
                Ok(true)
            }
        }
    }

    /// A segment that may hold records is never free.
    fn lose_segment(&mut self, number: u32, what: String) {
        if !self.without.has(Mutation::UnreadableSegments) {
            let row = SegmentRow::new(SegmentUse::Unreadable, 0, BLOCK);
            self.segments.insert(number, row);
        }
        self.losses.push(what);
    }

    pub async fn key_table(&mut self, volume: &Handle, superblock: &Superblock) -> Result<()> {
        if self.parts.keys().copied().ne(0..self.parts.len() as u32) {
            return Err(ArchiveError::damaged(
                "the data volume",
                "a part of the key table cannot be found; without it no object in it can be recovered, and nothing was rebuilt",
            ));
        }
        let per_part = u64::from((superblock.segment - FIRST) / ENTRY as u32);
        for (ordinal, segment) in self.parts.clone() {
            let start = u64::from(segment) * u64::from(superblock.segment) + u64::from(FIRST);
            for block in 0..u64::from((superblock.segment - FIRST) / BLOCK) {
                let bytes = match volume.read(start + block * u64::from(BLOCK), BLOCK as usize).await {
                    Ok(bytes) => bytes,
                    Err(error) if is_damage(&error) => {
                        self.losses.push(format!("key table part {ordinal}, block {block}: {error}"));
                        let slot = u64::from(ordinal) * per_part + block * (BLOCK as u64 / ENTRY as u64);
                        self.hidden.push(slot..slot + BLOCK as u64 / ENTRY as u64);
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
                for (inside, bytes) in bytes.chunks(ENTRY).enumerate() {
                    let slot = u64::from(ordinal) * per_part + block * (BLOCK as u64 / ENTRY as u64) + inside as u64;
                    if let Some(entry) = Entry::decode(bytes) {
                        self.scopes = self.scopes.max(entry.bucket);
                        self.highest = self.highest.max(entry.object);
                        self.entries.insert(entry.object, (slot, entry));
                    } else if bytes.iter().any(|byte| *byte != 0) {
                        self.losses.push(format!("key slot {slot} is damaged; its object cannot be opened"));
                        self.hidden.push(slot..slot + 1);
                    }
                }
            }
        }
        Ok(())
    }

    /// Walks all segments. Without `buckets`: the records sealed under the master key. With them:
    /// all other records.
    pub async fn walk(
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
            let end = start + u64::from(superblock.segment - BLOCK);
            let footer = volume.read(end, BLOCK as usize).await.ok();
            let footer = footer.and_then(|block| SegmentFooter::decode(&block, incarnation));
            let mut walk = Walk::new(volume.clone(), start, superblock.segment, incarnation);
            // An orderly close ends with a note of the identity.
            let (mut ends, mut newest, mut last) = (Vec::new(), 0, Kind::Identity);
            let mut recent = Vec::new();
            while let Some((at, header)) = walk.next().await? {
                let place = Place { segment, at, length: header.length() };
                self.scopes = self.scopes.max(header.scope);
                self.highest = self.highest.max(header.sequence).max(header.object).max(header.stream);
                if let Some(row) = self.segments.get_mut(&segment) {
                    row.used = row.used.max(at + header.length());
                }
                let mine = match buckets {
                    None => header.scope == 0 && header.kind != Kind::Piece,
                    Some(_) => header.scope != 0 || header.kind == Kind::Piece,
                };
                self.records += u64::from(mine);
                if newest > 0 && header.sequence > newest + SKIPPED {
                    if last != Kind::Identity {
                        ends.push((at, false));
                        self.find_torn(&mut walk, at, &recent).await?;
                    }
                    recent.clear();
                }
                if header.sequence >= newest {
                    (newest, last) = (header.sequence, header.kind);
                }
                if mine && header.kind == Kind::Piece {
                    recent.push((place, header.clone()));
                }
                if mine && let Err(found) = self.take(&mut walk, place, &header, note_key, buckets).await? {
                    match found {
                        RecordFault::Torn(what) => {
                            self.findings.push(format!("segment {segment} at byte {at}: {what}"))
                        }
                        RecordFault::Lost(what) => self.losses.push(format!("segment {segment} at byte {at}: {what}")),
                    }
                }
            }
            if buckets.is_some() {
                let used = self.segments.get(&segment).map_or(0, |row| row.used);
                if let Some(footer) = footer
                    && crate::space::align_up(used, BLOCK) < footer.used
                {
                    self.losses
                        .push(format!("segment {segment}: records between {used} and {} are missing", footer.used));
                }
                if footer.is_none() && last != Kind::Identity {
                    ends.push((used, false));
                    self.find_torn(&mut walk, used, &recent).await?;
                }
                ends.extend(walk.holes.iter().map(|hole| (hole.start, true)));
                self.ends.insert(segment, ends);
                for at in &walk.unreadable {
                    self.losses.push(format!("segment {segment}: 4096 bytes at {at} cannot be read"));
                }
            }
        }
        Ok(())
    }

    /// Reads the pieces that may have been on the way when a crash ended the records here.
    async fn find_torn(&mut self, walk: &mut Walk, end: u32, recent: &[(Place, RecordHeader)]) -> Result<()> {
        for (place, header) in recent.iter().filter(|(place, _)| end - place.at <= ON_THE_WAY) {
            let key = (header.object, header.stream, header.first_frame);
            if let Some(payload) = walk.payload(place.at, header).await?
                && stele_ground::digest::crc32c(&payload) != header.check
                && is_torn(place.at, &payload)
            {
                if self.pieces.get(&key).is_some_and(|piece| (piece.segment, piece.at) == (place.segment, place.at)) {
                    self.pieces.remove(&key);
                }
                self.torn.insert(key);
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
    ) -> Result<Result<(), RecordFault>> {
        if header.kind == Kind::Piece {
            let key = (header.object, header.stream, header.first_frame);
            // A copy that reclamation was about to make may be torn, and its original is whole.
            // Only then, and before a crash, pieces are read.
            if self.pieces.contains_key(&key) {
                let copy = walk.payload(place.at, header).await?;
                if copy.is_none_or(|payload| stele_ground::digest::crc32c(&payload) != header.check) {
                    return Ok(Err(RecordFault::Torn("a piece is torn or damaged; another copy of it is used")));
                }
            }
            self.pieces.insert(key, piece_at(place, header.payload));
            return Ok(Ok(()));
        }
        let Some(payload) = walk.payload(place.at, header).await? else {
            return Ok(Err(RecordFault::Lost("the record cannot be read")));
        };
        if stele_ground::digest::crc32c(&payload) != header.check {
            // The drives' own digests match, so a crash left the record half written. It was never
            // acknowledged.
            return Ok(Err(RecordFault::Torn("the record's checksum does not match; it was torn or damaged")));
        }
        let key = match (header.scope, buckets) {
            (0, _) => Some(note_key),
            (bucket, Some(buckets)) => buckets.get(&bucket).map(|bucket| &bucket.note_key),
            (_, None) => None,
        };
        let sealed = &payload[payload.len() - header.note as usize..];
        let Some(note) = key.and_then(|key| open_note(key, &header.sequence.to_be_bytes(), sealed).ok()) else {
            return Ok(Err(RecordFault::Lost("its note does not open")));
        };
        self.keep_note(place, header, &note)?;
        Ok(Ok(()))
    }

    /// Keeps the content of a note, unless a later note of the same thing was found.
    fn keep_note(&mut self, place: Place, header: &RecordHeader, note: &[u8]) -> Result<()> {
        let sequence = header.sequence;
        if header.kind.is_kept()
            && let Some(row) = self.segments.get_mut(&place.segment)
        {
            row.live += i64::from(place.length);
            row.kept = row.kept.saturating_add(place.length);
        }
        match header.kind {
            Kind::Piece => {}
            Kind::Whole | Kind::Version => {
                let note: VersionNote = decode(VERSIONS, &[], note)?;
                if header.kind == Kind::Whole {
                    let key = (header.object, header.stream, header.first_frame);
                    self.pieces.insert(key, piece_at(place, header.payload - header.note));
                }
                self.highest = self.highest.max(note.at.number);
                self.doubted.keep_version(sequence, &note);
                newest(&mut self.versions, note.row.object, (sequence, note, place));
            }
            Kind::Part => {
                let note: PartNote = decode(PARTS, &[], note)?;
                newest(&mut self.part_notes, (note.object, note.row.stream.number), (sequence, note, place));
            }
            Kind::Bucket => {
                let row: BucketRow = decode(BUCKETS, &[], note)?;
                let number = u32::try_from(header.object).unwrap_or(0);
                self.doubted.keep_bucket(sequence, number, &row);
                newest(&mut self.buckets, number, (sequence, row, place));
            }
            Kind::AccessKey => {
                let note: AccessKeyNote = decode(ACCESS_KEYS, &[], note)?;
                self.doubted.keep_access_key(sequence, &note);
                newest(&mut self.access_keys, note.id, (sequence, note.row, place));
            }
            Kind::Class => {
                let note: ClassNote = decode(CLASSES, &[], note)?;
                newest(&mut self.classes, note.name, (sequence, note.row, place));
            }
            Kind::Matter => {
                let note: MatterNote = decode(MATTERS, &[], note)?;
                newest(&mut self.matters, note.name, (sequence, note.row, place));
            }
            Kind::Tombstone => {
                let (at, row): (VersionRef, TombstoneRow) = decode(TOMBSTONES, &[], note)?;
                let key = at.record_key();
                if self.tombstones.get(&key).is_none_or(|(before, _)| *before < sequence) {
                    self.tombstones.insert(key, (sequence, row));
                }
            }
            Kind::Identity => {
                let note: IdentityNote = decode(SETTINGS, &[], note)?;
                self.doubted.keep_identity(sequence, &note);
                if self.identity.as_ref().is_none_or(|(before, _)| *before < sequence) {
                    self.identity = Some((sequence, note));
                }
            }
            Kind::Audit => {
                let note: AuditNote = decode(AUDIT, &[], note)?;
                for (number, value) in (note.first..).zip(note.values) {
                    if self.audit.get(&number).is_none_or(|(before, _)| *before < sequence) {
                        self.audit.insert(number, (sequence, value.into()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Things whose creation was taken back do not exist.
    pub fn drop_withdrawn(&mut self) {
        self.buckets.retain(|_, (_, row, _)| !row.is_withdrawn());
        self.access_keys.retain(|_, (_, row, _)| !row.is_withdrawn());
        self.matters.retain(|_, (_, row, _)| !row.is_withdrawn());
        self.classes.retain(|_, (_, row, _)| !row.is_withdrawn());
    }

    /// Records of the audit log behind the place where an earlier rebuild cut it off do not go on
    /// behind what was recorded since then.
    pub fn drop_cut_off(&mut self) {
        let Some((_, note)) = &self.identity else { return };
        for cut in note.identity.cuts.iter().flatten() {
            self.audit.retain(|number, (sequence, _)| *number < cut.first || *sequence >= cut.sequence);
        }
    }

    /// Of several live buckets with one name, only the newest can have it. The others were deleted
    /// by notes that are missing.
    pub fn rename_duplicate_buckets(&mut self, wall: Timestamp) {
        let mut newest: BTreeMap<String, u32> = BTreeMap::new();
        for (number, (_, row, _)) in &self.buckets {
            if row.deleted.is_none() {
                newest.insert(row.name.clone(), *number);
            }
        }
        for (number, (_, row, _)) in &mut self.buckets {
            if row.deleted.is_none() && newest.get(&row.name) != Some(number) {
                row.deleted = Some(wall);
                row.name = format!("{}.{number}", row.name);
            }
        }
    }

    /// How many records the audit log had, as far as the data volume and heads kept elsewhere show.
    /// A head is sent after the witness is written. A head that counts more than the witness shows
    /// that the volume was set back, and later notes are lost.
    pub fn reached(
        &mut self,
        foundation: &Foundation,
        superblock: &Superblock,
        heads: &[SignedHead],
    ) -> Result<Reached> {
        let Some((_, note)) = &self.identity else { return Ok(Reached::default()) };
        let signing = Signing::open(foundation, &superblock.store, &note.identity.signing)?;
        let is_new = |head: &&SignedHead| !note.identity.gaps.iter().flatten().any(|gap| gap.explains(head));
        let sent = heads.iter().filter(|head| check_head(&superblock.store, &signing, head).is_ok()).filter(is_new);
        let signed = sent.clone().map(|head| head.time.clone()).max();
        let sent = sent.map(|head| head.records).max().unwrap_or(0);
        if let Some(witness) = superblock.witness.filter(|witness| witness.records < sent) {
            self.losses.push(format!(
                "a head was sent at record {sent} of the audit log, but the data volume knows of {} records: it was set back",
                witness.records
            ));
        }
        Ok(Reached { records: sent.max(superblock.witness.map_or(0, |witness| witness.records)), signed })
    }

    /// A version of whose content a crash tore a piece was never acknowledged, even where its note
    /// is whole: both are under way at once. If something is lost, a whole copy of the piece may
    /// be.
    pub fn drop_torn(&mut self, losses: &[String]) {
        let torn = std::mem::take(&mut self.torn).into_iter().filter(|key| !self.pieces.contains_key(key));
        let torn: BTreeSet<(u64, u64)> = torn.map(|(object, stream, _)| (object, stream)).collect();
        if torn.is_empty() || !self.losses.is_empty() || !losses.is_empty() {
            return;
        }
        let mut dropped = Vec::new();
        for (object, (_, note, _)) in self.versions.iter().filter(|(_, (_, note, _))| exists(self, note)) {
            if let Content::Stream(stream) = &note.row.content
                && torn.contains(&(*object, stream.number))
            {
                dropped.push((*object, note.at.key.clone()));
            }
        }
        for (object, key) in dropped {
            self.versions.remove(&object);
            let what = "its content is torn or damaged, and its write was never acknowledged";
            self.findings.push(format!("object {object} (`{key}`): {what}; it is dropped"));
        }
    }

    /// Whether a crash came just after this note of a version. Its content was on the way then. A
    /// copy that reclamation made is in a later segment than its number, and says nothing.
    fn is_cut_off(&self, superblock: &Superblock, sequence: u64, place: &Place) -> bool {
        let Some(row) = self.segments.get(&place.segment) else { return false };
        let first = crate::space::incarnation(&superblock.store, row.incarnation);
        let mut ends = self.ends.get(&place.segment).into_iter().flatten();
        let near =
            |(end, is_hole): &(u32, bool)| (*is_hole || *end > place.at) && place.at.abs_diff(*end) <= ON_THE_WAY;
        first < sequence && ends.any(near)
    }

    fn is_whole(&self, object: u64, note: &VersionNote) -> bool {
        match &note.row.content {
            Content::None => true,
            Content::Stream(stream) => self.stream(object, stream).is_some(),
            Content::Parts => note.layout.iter().flat_map(|layout| &layout.parts).all(|part| {
                let found = self.part_notes.get(&(object, part.stream));
                found.is_some_and(|(_, part, _)| self.stream(object, &part.row.stream).is_some())
            }),
        }
    }

    /// Missing content of existing versions is a loss too, unless a crash explains it: then it was
    /// never acknowledged, and the version is kept without it.
    pub fn report_missing_pieces(&mut self, superblock: &Superblock) {
        let mut missing = Vec::new();
        let existing = self.versions.iter().filter(|(_, (_, note, _))| exists(self, note));
        for (object, (sequence, note, place)) in existing {
            let is_cut_off =
                || matches!(note.row.content, Content::Stream(_)) && self.is_cut_off(superblock, *sequence, place);
            if !self.is_whole(*object, note) && !is_cut_off() {
                missing.push(format!("object {object} (`{}`): pieces of its content are missing", note.at.key));
            }
        }
        self.losses.append(&mut missing);
    }

    /// The pieces of a stream in order. None: some are missing.
    pub fn stream(&self, object: u64, stream: &Stream) -> Option<Vec<Extent>> {
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

/// How far the audit log reached, as far as is known.
#[derive(Default)]
pub(super) struct Reached {
    pub records: u64,
    /// The time of the latest head that was kept elsewhere.
    pub signed: Option<String>,
}

/// Whether a segment of the key table may hold an entry.
async fn holds_entries(volume: &Handle, superblock: &Superblock, segment: u32) -> Result<bool> {
    let start = u64::from(segment) * u64::from(superblock.segment);
    for at in (FIRST..superblock.segment).step_by(BLOCK as usize) {
        match volume.read(start + u64::from(at), BLOCK as usize).await {
            Ok(block) if block.iter().all(|byte| *byte == 0) => {}
            Ok(_) => return Ok(true),
            Err(error) if is_damage(&error) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// The reason why a record was not used.
enum RecordFault {
    /// It was never acknowledged.
    Torn(&'static str),
    /// It may have been the latest state of something.
    Lost(&'static str),
}

fn newest<K: Ord, V>(map: &mut BTreeMap<K, (u64, V, Place)>, key: K, found: (u64, V, Place)) {
    match map.get(&key) {
        Some((sequence, ..)) if *sequence > found.0 => {}
        _ => {
            map.insert(key, found);
        }
    }
}

/// A version exists if the key table has its entry. Where the table cannot be read, it may exist
/// and counts. A note that takes a refused version back is of none.
pub(super) fn exists(survey: &Survey, note: &VersionNote) -> bool {
    if note.at.bucket == TAKEN_BACK {
        return false;
    }
    match survey.entries.get(&note.row.object) {
        Some((_, entry)) => entry.bucket == note.at.bucket,
        None => survey.hidden.iter().any(|slots| slots.contains(&note.row.slot)),
    }
}
