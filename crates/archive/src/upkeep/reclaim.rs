//! Reclamation: moves the needed records out of segments that hold few of them, and frees the
//! segments.
//!
//! The walk decides, not the counts. Every record in the segment is looked up in the catalog. A
//! record to which the catalog refers is copied to the open segment, durably, before the catalog is
//! changed. A segment with an unreadable place stays as it is. An emptied segment is freed when no
//! reader can be in it; readers at a client's pace delay that by at most ten minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures_util::StreamExt;
use stele_catalog::{Snapshot, Transaction};
use stele_media::{Buffer, MediaFault};

use crate::audit::Event;
use crate::changes::named::NamedRow;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::Caller;
use crate::record::access_key::AccessKeyRow;
use crate::record::bucket::BucketRow;
use crate::record::class::ClassRow;
use crate::record::content::{CHUNK_EXTENTS, Content, Extent, ExtentList, Place, Stream};
use crate::record::matter::MatterRow;
use crate::record::part::{PartNote, PartRow};
use crate::record::properties::VersionRows;
use crate::record::segment::SegmentUse;
use crate::record::version::{Owner, TAKEN_BACK, VersionNote, VersionRef, VersionRow};
use crate::record::{BUCKETS, EXTENTS, OBJECTS, PARTS, SEGMENTS, VERSIONS, decode, encode, fetch, keys};
use crate::seal::open_note;
use crate::space::appender::Record;
use crate::space::header::{Kind, RECORD_HEADER, RecordHeader};
use crate::space::places::{REFERRING, referred};
use crate::space::walk::{Walk, is_torn};
use crate::state::buckets::Bucket;
use crate::store::committing::{Committing, Proof};
use crate::store::lookup::Found;
use crate::store::scan::scan;
use crate::store::uploads::part_rows;
use crate::store::{Store, lookup};

/// Records being moved at once: long ones, and those shorter than `SHORT`. A group of the appender
/// takes whole blocks, so short records have to be many in each, or the new segment is no fuller
/// than the old one and is soon reclaimed again.
const MOVING: usize = 32;
const MOVING_SHORT: usize = 512;
const SHORT: u32 = 16 << 10;

/// The result for one segment.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Reclaimed {
    pub kept: u64,
    pub dropped: u64,
    /// The segment waits to be freed. False: a record in it could not be read or moved.
    pub retired: bool,
}

impl Store {
    /// Moves everything needed out of a sealed segment.
    pub(crate) async fn reclaim(self: &Arc<Store>, segment: u32) -> Result<Reclaimed> {
        let Some(row) = self.segments().row(segment).filter(|row| row.usage == SegmentUse::Sealed) else {
            return Ok(Reclaimed::default());
        };
        let start = self.segments().start(segment);
        let mut walk = Walk::new(self.volume().clone(), start, self.segments().size, row.incarnation);
        let mut found = Vec::new();
        while let Some((at, header)) = walk.next().await? {
            found.push((at, header));
        }
        let mut reclaimed = Reclaimed::default();
        let mut failed = !walk.unreadable.is_empty();
        let mut damaged = BTreeSet::new();
        let (short, long) = found.into_iter().partition::<Vec<_>, _>(|(_, header)| header.length() < SHORT);
        let keep = async |(at, header): (u32, RecordHeader)| {
            let kept = self.keep_if_needed(segment, at, header.clone()).await;
            let lone = match &kept {
                Err(ArchiveError::Damaged { .. }) => {
                    header.kind.needs_reference() || self.is_torn(segment, at, &header).await
                }
                _ => false,
            };
            kept.map_err(|error| (error, lone.then_some(at)))
        };
        let full = AtomicBool::new(false);
        let has_room = |_: &(u32, RecordHeader)| !full.load(Relaxed);
        let long = futures_util::stream::iter(long.into_iter().take_while(has_room));
        let short = futures_util::stream::iter(short.into_iter().take_while(has_room));
        let moving = long.map(&keep).buffer_unordered(MOVING).chain(short.map(&keep).buffer_unordered(MOVING_SHORT));
        let mut outcomes = pin!(moving);
        let mut refused = None;
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                Ok(true) => reclaimed.kept += 1,
                Ok(false) => reclaimed.dropped += 1,
                Err((error @ ArchiveError::Stopped(_), _)) => return Err(error),
                // No further record is moved. Those under way come to their end: until the commit
                // of a copy is answered, the segment of the copy looks as if it were not needed.
                // A catalog that is busy is no damage: another step moves the record.
                Err((error @ (ArchiveError::NoSpace(_) | ArchiveError::Busy(_)), _)) => {
                    full.store(true, Relaxed);
                    refused = refused.or(Some(error));
                }
                // The record was changed while it was moved: it is looked up again another time.
                Err((error @ ArchiveError::Conflict(_), _)) => refused = refused.or(Some(error)),
                Err((ArchiveError::Damaged { .. }, Some(at))) => drop(damaged.insert(at)),
                Err((error, _)) => {
                    tracing::warn!("segment {segment} is kept: {error}");
                    failed = true;
                }
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        // A power cut or a kill tears writes that were not acknowledged. No row refers to those.
        let needed = self.referred_among(segment, &damaged)?;
        reclaimed.dropped += (damaged.len() - needed.len()) as u64;
        if let Some(at) = needed.first() {
            tracing::warn!("segment {segment} is kept: the record at byte {at} does not verify");
            failed = true;
        }
        if !failed && walk.doubtful {
            // The walk does not find a record with a damaged header. The catalog shows whether
            // there is one.
            failed = self.refers_to(segment)?;
        }
        if failed {
            self.upkeep().add_unmovable(segment);
        } else {
            self.segments().retire(segment, self.surroundings().now().monotonic);
            reclaimed.retired = true;
        }
        Ok(reclaimed)
    }

    /// Frees retired segments that no reader can be in. Returns how many.
    pub(crate) async fn free_retired(&self) -> Result<usize> {
        let mut freed = 0;
        for segment in self.segments().freeable(self.surroundings().now().monotonic) {
            // Zeros before the catalog forgets the segment: a rebuild must not find records in it
            // that were deleted since.
            match self.volume().zero(self.segments().start(segment), self.segments().size.into()).await {
                Err(error) if error.fault == MediaFault::Damaged => {
                    tracing::warn!("segment {segment} is not freed: {error}");
                    self.upkeep().add_unmovable(segment);
                    self.segments().unretire(segment);
                    continue;
                }
                zeroed => zeroed?,
            };
            self.volume().flush().await?;
            let event = Event::new(&Caller::system("reclamation"), Action::Dispose)
                .detail(format!("segment {segment} overwritten and freed"));
            let transaction = Transaction::new().with_reserve().delete(SEGMENTS, keys::short(segment));
            self.record(transaction, event).await?;
            self.segments().freed(segment);
            freed += 1;
        }
        Ok(freed)
    }

    /// Moves the record if the catalog refers to it. Returns whether it did.
    async fn keep_if_needed(self: &Arc<Store>, segment: u32, at: u32, header: RecordHeader) -> Result<bool> {
        let here = Place { segment, at, length: header.length() };
        match header.kind {
            Kind::Piece => self.keep_piece(here, &header).await,
            Kind::Whole | Kind::Version => self.keep_version(here, &header).await,
            Kind::Part => self.keep_part(here, &header).await,
            Kind::Bucket => self.keep_bucket(here, &header).await,
            Kind::AccessKey => self.keep_named::<AccessKeyRow>(here, &header).await,
            Kind::Matter => self.keep_named::<MatterRow>(here, &header).await,
            Kind::Class => self.keep_named::<ClassRow>(here, &header).await,
            Kind::Tombstone | Kind::Identity | Kind::Audit => {
                let place = self.copy_record(here, &header).await?;
                self.segments().add_kept(place);
                Ok(true)
            }
        }
    }

    /// Whether only a part of the record was ever written.
    async fn is_torn(&self, segment: u32, at: u32, header: &RecordHeader) -> bool {
        let from = self.segments().start(segment) + u64::from(at + RECORD_HEADER);
        let read = crate::space::walk::read_exact(self.volume(), from, header.payload as usize).await;
        let differs = |payload: &Buffer| stele_ground::digest::crc32c(payload) != header.check;
        matches!(read, Ok(Some(payload)) if differs(&payload) && is_torn(at, &payload))
    }

    async fn payload(&self, here: Place, header: &RecordHeader) -> Result<Buffer> {
        let place = || format!("segment {} at byte {}", here.segment, here.at);
        let at = self.segments().start(here.segment) + u64::from(here.at + RECORD_HEADER);
        let payload = crate::space::walk::read_exact(self.volume(), at, header.payload as usize)
            .await?
            .ok_or_else(|| ArchiveError::damaged(place(), "the record cannot be read"))?;
        if stele_ground::digest::crc32c(&payload) != header.check {
            return Err(ArchiveError::damaged(place(), "the record's checksum does not match"));
        }
        Ok(payload)
    }

    /// Copies a record unchanged, with the new segment's incarnation. Durable when it returns.
    async fn copy_record(&self, here: Place, header: &RecordHeader) -> Result<Place> {
        let payload = self.payload(here, header).await?;
        let record = Record::note(header.clone(), &payload);
        self.appender().append(record, true).await?.await
    }

    pub(crate) fn note_of(&self, header: &RecordHeader, payload: &[u8]) -> Option<Vec<u8>> {
        let sealed = payload.get(payload.len() - header.note as usize..)?;
        let bound = header.sequence.to_be_bytes();
        match header.scope {
            0 => open_note(&self.note_key(), &bound, sealed).ok(),
            bucket => open_note(&self.buckets().by_number(bucket)?.note_key, &bound, sealed).ok(),
        }
    }

    async fn keep_version(self: &Arc<Store>, here: Place, header: &RecordHeader) -> Result<bool> {
        let payload = self.payload(here, header).await?;
        let Some(note) = self.note_of(header, &payload) else {
            return Err(ArchiveError::damaged(format!("a note in segment {}", here.segment), "it does not open"));
        };
        let note: VersionNote = decode(VERSIONS, &[], &note)?;
        if self.is_upload(header.object)? {
            // A completion that was refused, and the note that takes it back: neither may outlive
            // the other.
            self.copy_record(here, header).await?;
            return Ok(true);
        }
        if note.at.bucket == TAKEN_BACK {
            return Ok(false);
        }
        let _lock = self.lock(note.at.bucket, &note.at.key).await?;
        let Some(found) = lookup::referred(&*self.snapshot()?, &note.at)? else { return Ok(false) };
        let mut row = found.row.clone();
        let noted = (row.note.segment, row.note.at) == (here.segment, here.at);
        let mut content = None;
        if let Content::Stream(Stream { number, extents: Some(extents), .. }) = &mut row.content
            && *number == header.stream
        {
            content = extents.iter_mut().find(|extent| (extent.segment, extent.at) == (here.segment, here.at));
        }
        if !noted && content.is_none() {
            return Ok(false);
        }
        let place = self.appender().append(Record::note(header.clone(), &payload), true).await?.await?;
        if let Some(extent) = content {
            (extent.segment, extent.at) = (place.segment, place.at);
        }
        if noted {
            row.note = place;
        }
        self.write_version(&note.at, &found, &row).await?;
        self.moved(here, place);
        Ok(true)
    }

    fn is_upload(&self, object: u64) -> Result<bool> {
        let owner = fetch::<Owner>(&*self.snapshot()?, OBJECTS, &keys::number(object))?;
        Ok(matches!(owner, Some(Owner::Upload(_))))
    }

    async fn write_version(&self, at: &VersionRef, found: &Found, row: &VersionRow) -> Result<()> {
        let transaction = Transaction::new()
            .with_reserve()
            .equals(VERSIONS, at.record_key(), found.raw.clone())
            .put_version(at.record_key(), Some(&found.row), row, encode(row));
        self.catalog().commit(transaction).await?;
        Ok(())
    }

    fn moved(&self, from: Place, to: Place) {
        self.segments().drop_live(from);
        self.segments().add_live(to);
    }

    /// A loose piece. Its object's owner leads to the row that names it.
    async fn keep_piece(self: &Arc<Store>, here: Place, header: &RecordHeader) -> Result<bool> {
        let owner = fetch::<Owner>(&*self.snapshot()?, OBJECTS, &keys::number(header.object))?;
        let Some(Owner::Version(at) | Owner::Upload(at)) = owner else { return Ok(false) };
        let _lock = self.lock(at.bucket, &at.key).await?;
        // Looked up again under the lock, since an upload may have become a version.
        let snapshot = self.snapshot()?;
        let owner = fetch::<Owner>(&*snapshot, OBJECTS, &keys::number(header.object))?;
        let parts = match owner {
            None => return Ok(false),
            Some(Owner::Upload(_)) => true,
            Some(Owner::Version(at)) => {
                let Some(found) = lookup::referred(&*snapshot, &at)? else { return Ok(false) };
                match &found.row.content {
                    Content::Stream(stream) if stream.number == header.stream => {
                        let mut row = found.row.clone();
                        let Content::Stream(stream) = &mut row.content else { return Ok(false) };
                        return match self.move_piece(&*snapshot, here, header, stream).await? {
                            Moved::Not => Ok(false),
                            Moved::Row(place) => {
                                self.write_version(&at, &found, &row).await?;
                                self.moved(here, place);
                                Ok(true)
                            }
                            Moved::Chunk => Ok(true),
                        };
                    }
                    Content::Parts => true,
                    _ => false,
                }
            }
        };
        if !parts {
            return Ok(false);
        }
        let rows = part_rows(&*snapshot, header.object)?;
        let Some((number, row)) = rows.into_iter().find(|(_, row)| row.stream.number == header.stream) else {
            return Ok(false);
        };
        let mut changed = row.clone();
        match self.move_piece(&*snapshot, here, header, &mut changed.stream).await? {
            Moved::Not => Ok(false),
            Moved::Row(place) => {
                self.write_part(header.object, number, &row, &changed).await?;
                self.moved(here, place);
                Ok(true)
            }
            Moved::Chunk => Ok(true),
        }
    }

    async fn write_part(&self, object: u64, number: u32, before: &PartRow, after: &PartRow) -> Result<()> {
        let key = keys::pair(object, number);
        let transaction =
            Transaction::new().with_reserve().equals(PARTS, key.clone(), encode(before)).put(PARTS, key, encode(after));
        self.catalog().commit(transaction).await?;
        Ok(())
    }

    /// Copies the piece if the stream refers to it, and changes the reference: in the row, which
    /// the caller writes, or in the extents table.
    async fn move_piece(
        &self,
        snapshot: &dyn Snapshot,
        here: Place,
        header: &RecordHeader,
        stream: &mut Stream,
    ) -> Result<Moved> {
        let is_here = |extent: &&mut Extent| (extent.segment, extent.at) == (here.segment, here.at);
        if let Some(extents) = &mut stream.extents {
            let Some(extent) = extents.iter_mut().find(is_here) else { return Ok(Moved::Not) };
            let place = self.copy_record(here, header).await?;
            (extent.segment, extent.at) = (place.segment, place.at);
            return Ok(Moved::Row(place));
        }
        for chunk in 0.. {
            let key = keys::pair(stream.number, chunk);
            let Some(raw) = snapshot.get(EXTENTS, &key)? else { break };
            let mut list: ExtentList = decode(EXTENTS, &key, &raw)?;
            let full = list.extents.len() == CHUNK_EXTENTS;
            if let Some(extent) = list.extents.iter_mut().find(is_here) {
                let place = self.copy_record(here, header).await?;
                (extent.segment, extent.at) = (place.segment, place.at);
                let transaction = Transaction::new().with_reserve().equals(EXTENTS, key.clone(), raw).put(
                    EXTENTS,
                    key,
                    encode(&list),
                );
                self.catalog().commit(transaction).await?;
                self.moved(here, place);
                return Ok(Moved::Chunk);
            }
            if !full {
                break;
            }
        }
        Ok(Moved::Not)
    }

    async fn keep_part(self: &Arc<Store>, here: Place, header: &RecordHeader) -> Result<bool> {
        let owner = fetch::<Owner>(&*self.snapshot()?, OBJECTS, &keys::number(header.object))?;
        let Some(Owner::Version(at) | Owner::Upload(at)) = owner else { return Ok(false) };
        let payload = self.payload(here, header).await?;
        let note = self
            .note_of(header, &payload)
            .ok_or_else(|| ArchiveError::damaged(format!("a note in segment {}", here.segment), "it does not open"))?;
        let note: PartNote = decode(PARTS, &[], &note)?;
        let _lock = self.lock(at.bucket, &at.key).await?;
        let key = keys::pair(note.object, note.number);
        let row: Option<PartRow> = fetch(&*self.snapshot()?, PARTS, &key)?;
        let is_here = |row: &PartRow| (row.note.segment, row.note.at) == (here.segment, here.at);
        let Some(row) = row.filter(is_here) else { return Ok(false) };
        let place = self.appender().append(Record::note(header.clone(), &payload), true).await?.await?;
        let changed = PartRow { note: place, ..row.clone() };
        self.write_part(note.object, note.number, &row, &changed).await?;
        self.moved(here, place);
        Ok(true)
    }

    async fn keep_bucket(self: &Arc<Store>, here: Place, header: &RecordHeader) -> Result<bool> {
        let lock = self.lock(0, "").await?;
        let number = u32::try_from(header.object).unwrap_or_default();
        let Some(bucket) = self.buckets().by_number(number) else {
            let payload = self.payload(here, header).await?;
            let note = self.note_of(header, &payload);
            let row = note.and_then(|note| decode::<BucketRow>(BUCKETS, &[], &note).ok());
            return self.keep_withdrawn(header, &payload, row.is_some_and(|row| row.is_withdrawn())).await;
        };
        if (bucket.row.note.segment, bucket.row.note.at) != (here.segment, here.at) {
            return Ok(false);
        }
        let place = self.copy_record(here, header).await?;
        let row = BucketRow { note: place, ..bucket.row.clone() };
        let raw = encode(&row);
        let transaction = Transaction::new()
            .with_reserve()
            .equals(BUCKETS, keys::short(number), bucket.raw.clone())
            .put(BUCKETS, keys::short(number), raw.clone());
        let moved = Bucket::open(self.master(), number, row, raw.clone())?;
        let proof = Proof { table: BUCKETS, key: keys::short(number), value: Some(raw) };
        let committing = Committing::new(self, proof).lock(lock).after(move |store| {
            store.buckets().insert(moved);
            store.moved(here, place);
            None
        });
        committing.commit(transaction).await?;
        Ok(true)
    }

    /// A note of a thing that the catalog does not have. If it takes the creation back, the
    /// creation's note may still lie in another segment, so this one stays.
    async fn keep_withdrawn(&self, header: &RecordHeader, payload: &Buffer, withdrawn: bool) -> Result<bool> {
        if withdrawn {
            self.appender().append(Record::note(header.clone(), payload), true).await?.await?;
        }
        Ok(withdrawn)
    }

    async fn keep_named<R: NamedRow>(self: &Arc<Store>, here: Place, header: &RecordHeader) -> Result<bool> {
        let payload = self.payload(here, header).await?;
        let note = self
            .note_of(header, &payload)
            .ok_or_else(|| ArchiveError::damaged(format!("a note in segment {}", here.segment), "it does not open"))?;
        let (name, row) = R::of_note(decode(R::TABLE, &[], &note)?);
        let _lock = self.lock_named::<R>(&name).await?;
        let Some(raw) = self.snapshot()?.get(R::TABLE, name.as_bytes())? else {
            return self.keep_withdrawn(header, &payload, row.is_withdrawn()).await;
        };
        let mut row: R = decode(R::TABLE, name.as_bytes(), &raw)?;
        if (row.note().segment, row.note().at) != (here.segment, here.at) {
            return Ok(false);
        }
        let moved = self.appender().append(Record::note(header.clone(), &payload), true).await?.await?;
        *row.note() = moved;
        let transaction =
            Transaction::new().with_reserve().equals(R::TABLE, name.clone(), raw).put(R::TABLE, name, encode(&row));
        self.catalog().commit(transaction).await?;
        self.moved(here, moved);
        Ok(true)
    }

    /// Walks the whole catalog for a reference into a segment. Slow; only for segments with
    /// doubtful bytes.
    pub(crate) fn refers_to(&self, segment: u32) -> Result<bool> {
        Ok(self.live_by_segment()?.contains_key(&segment))
    }

    /// Whether the catalog refers to a place in the segment at which none of these records begins.
    /// Slow, as above.
    pub(crate) fn refers_beside(&self, segment: u32, records: &BTreeSet<u32>) -> Result<bool> {
        let mut beside = false;
        self.each_reference(|place| beside |= place.segment == segment && !records.contains(&place.at))?;
        Ok(beside)
    }

    /// The places among these in a segment to which the catalog refers. Slow, as above, unless
    /// there are none.
    pub(crate) fn referred_among(&self, segment: u32, places: &BTreeSet<u32>) -> Result<BTreeSet<u32>> {
        let mut referred = BTreeSet::new();
        if !places.is_empty() {
            self.each_reference(|place| {
                if place.segment == segment && places.contains(&place.at) {
                    referred.insert(place.at);
                }
            })?;
        }
        Ok(referred)
    }

    /// Bytes in each segment to which the catalog refers. Walks the whole catalog.
    pub(crate) fn live_by_segment(&self) -> Result<BTreeMap<u32, u64>> {
        let mut live = BTreeMap::new();
        self.each_reference(|place| *live.entry(place.segment).or_insert(0) += u64::from(place.length))?;
        Ok(live)
    }

    /// Every place on the data volume to which the catalog refers.
    fn each_reference(&self, mut each: impl FnMut(&Place)) -> Result<()> {
        for table in REFERRING {
            scan(self.catalog(), table, |key, value| {
                referred(table, key, value)?.iter().for_each(&mut each);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The result of moving a piece.
enum Moved {
    /// Nothing refers to it.
    Not,
    /// Copied. The caller writes the row with the new place.
    Row(Place),
    /// Copied, and the extents table has the new place.
    Chunk,
}
