//! Reading an object: pieces are fetched ahead, opened, and only then handed out.
//!
//! A range opens only the frames it touches. Memory of one reader: at most `AHEAD` pieces of 1 MiB.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use stele_catalog::Snapshot;

use crate::audit::{Action, Event};
use crate::bucket::check_key;
use crate::buckets::Bucket;
use crate::error::{ArchiveError, Result};
use crate::lookup::{self, Found};
use crate::multipart::part_row;
use crate::principal::{Access, Caller};
use crate::record::content::{CHUNK_EXTENTS, Content, Extent, ExtentList, Layout, Stream};
use crate::record::{EXTENTS, LAYOUTS, fetch, keys};
use crate::seal::{Secret, TAG};
use crate::space::BLOCK;
use crate::space::frames::{FRAME, SEALED_FRAME, StreamKey};
use crate::space::header::RECORD_HEADER;
use crate::space::segments::Reading;
use crate::store::{Store, locked};
use crate::time::Timestamp;
use crate::version::{ETag, ObjectInfo, VersionId};
use crate::{Archive, CustomerKey};

/// Pieces on their way to a reader at most.
const AHEAD: usize = 4;
/// Objects up to this size are kept in the frame cache.
const CACHED_MAX: u64 = FRAME as u64;
/// Larger ones up to this size are kept in the piece cache: one download of something huge sweeps nothing out.
const PIECES_CACHED_MAX: u64 = 16 << 20;

/// Which bytes are asked for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum ByteRange {
    #[default]
    Whole,
    /// `bytes=first-last` or `bytes=first-`; both included.
    From { first: u64, last: Option<u64> },
    /// `bytes=-length`.
    Suffix { length: u64 },
    /// One part of a multipart object, from 1.
    Part { number: u32 },
}

/// The conditions of RFC 9110, section 13, evaluated in its order.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ReadCondition {
    /// A list of entity tags as in the header, or `*`.
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
}

#[derive(Clone, Default, Debug)]
pub struct GetRequest {
    pub bucket: String,
    pub key: String,
    /// None: the current version.
    pub version: Option<VersionId>,
    pub range: ByteRange,
    pub condition: ReadCondition,
    pub customer_key: Option<CustomerKey>,
}

/// What `GetObjectAttributes` tells of one part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartInfo {
    pub number: u32,
    pub size: u64,
    pub etag: ETag,
    pub modified: Timestamp,
    pub checksums: Vec<crate::Checksum>,
}

pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Vec<Bytes>>> + Send>>;

/// An object being read. Its segments stay where they are until it is dropped.
pub struct ObjectReader {
    pub info: ObjectInfo,
    /// The bytes of the object that come.
    pub range: Range<u64>,
    pieces: Option<Pieces>,
    on_their_way: FuturesOrdered<Opening>,
    ready: VecDeque<Bytes>,
    failed: bool,
}

impl ReadCondition {
    fn judge(&self, info: &ObjectInfo) -> Result<()> {
        let matches = |list: &str| {
            list.split(',').any(|tag| {
                let tag = tag.trim();
                tag == "*" || ETag::parse(tag.strip_prefix("W/").unwrap_or(tag)) == Some(info.etag)
            })
        };
        // HTTP dates have seconds.
        let modified = info.modified.seconds();
        let unmatched = match (&self.if_match, self.if_unmodified_since) {
            (Some(list), _) => !matches(list),
            (None, Some(since)) => modified > since.seconds(),
            (None, None) => false,
        };
        if unmatched {
            return Err(ArchiveError::PreconditionFailed("the object is another than the one expected".into()));
        }
        let same = match (&self.if_none_match, self.if_modified_since) {
            (Some(list), _) => matches(list),
            (None, Some(since)) => modified <= since.seconds(),
            (None, None) => false,
        };
        if same {
            return Err(ArchiveError::NotModified { etag: info.etag.to_string(), modified: info.modified });
        }
        Ok(())
    }
}

/// What a read found out before any content is touched.
struct Opened {
    bucket: Arc<Bucket>,
    found: Found,
    info: ObjectInfo,
    range: Range<u64>,
    snapshot: Box<dyn Snapshot>,
    reading: Reading,
}

impl Archive {
    /// Opens a version for reading. The first frames are verified before this answers.
    pub async fn get(&self, caller: &Caller, request: GetRequest) -> Result<ObjectReader> {
        let result = self.try_get(caller, &request).await;
        self.store.audited(result, || Event::new(caller, Action::Read).object(&request.bucket, &request.key)).await
    }

    async fn try_get(&self, caller: &Caller, request: &GetRequest) -> Result<ObjectReader> {
        let Opened { bucket, found, info, range, snapshot, reading } = self.open_version(caller, request)?;
        let store = &self.store;
        let mut reader = ObjectReader {
            info,
            range: range.clone(),
            pieces: None,
            on_their_way: FuturesOrdered::new(),
            ready: VecDeque::new(),
            failed: false,
        };
        if range.is_empty() {
            return Ok(reader);
        }
        if let Content::Stream(stream) = &found.row.content
            && found.row.size <= CACHED_MAX
            && let Some(frame) = locked(&store.frames).get(&(stream.number, 0))
        {
            reader.ready.push_back(frame.slice(range.start as usize..range.end as usize));
            return Ok(reader);
        }
        let name = || format!("`{}/{}` version {}", bucket.name(), request.key, found.id());
        let customer = request.customer_key.as_ref();
        let key = store.object_key(&bucket, found.row.object, found.row.slot, customer, name).await?;
        let name = name();
        reader.pieces = Some(Pieces::new(Arc::clone(store), name, &found, key, range, snapshot, reading)?);
        if let Some(first) = reader.next().await {
            reader.ready.push_front(first?);
        }
        Ok(reader)
    }

    /// As `get`, without content: the information and the range that a `get` would send.
    pub async fn head(&self, caller: &Caller, request: GetRequest) -> Result<(ObjectInfo, Range<u64>)> {
        let result = self.open_version(caller, &request).map(|opened| (opened.info, opened.range));
        self.store.audited(result, || Event::new(caller, Action::Read).object(&request.bucket, &request.key)).await
    }

    fn open_version(&self, caller: &Caller, request: &GetRequest) -> Result<Opened> {
        let store = &self.store;
        check_key(&request.key)?;
        let bucket = store.authorized(caller, Access::Read, &request.bucket, &request.key)?;
        let reading = store.segments.reading();
        let snapshot = store.snapshot()?;
        let found = lookup::readable(&*snapshot, &bucket, &request.key, request.version)?;
        let mut info = found.info(&bucket, &request.key);
        check_customer(&found, request.customer_key.as_ref())?;
        info.customer_key_md5 = request.customer_key.as_ref().map(CustomerKey::md5);
        request.condition.judge(&info)?;
        let range = resolve(&*snapshot, &found, request.range)?;
        Ok(Opened { bucket, found, info, range, snapshot, reading })
    }

    /// The parts of a multipart object with numbers above `after`, at most `limit`, and whether more follow.
    pub async fn object_parts(
        &self,
        caller: &Caller,
        request: GetRequest,
        after: u32,
        limit: usize,
    ) -> Result<(Vec<PartInfo>, bool)> {
        let result = self.open_version(caller, &request);
        let opened = self
            .store
            .audited(result, || Event::new(caller, Action::Read).object(&request.bucket, &request.key))
            .await?;
        if opened.found.row.content != Content::Parts {
            return Ok((Vec::new(), false));
        }
        let layout = layout(&*opened.snapshot, opened.found.row.object)?;
        let mut parts = Vec::new();
        for part in layout.parts.iter().filter(|part| part.number > after) {
            if parts.len() == limit {
                return Ok((parts, true));
            }
            let row = part_row(&*opened.snapshot, opened.found.row.object, part.number)?;
            parts.push(row.info(part.number));
        }
        Ok((parts, false))
    }
}

/// The customer's key must be there exactly where one is needed, and be the right one.
pub(crate) fn check_customer(found: &Found, key: Option<&CustomerKey>) -> Result<()> {
    match (&found.row.customer, key) {
        (None, None) => Ok(()),
        (Some(mark), Some(key)) if mark.recognises(key) => Ok(()),
        (Some(_), Some(_)) => {
            Err(ArchiveError::CustomerKey("the customer key is not the one it was stored with".into()))
        }
        (Some(_), None) => Err(ArchiveError::InvalidRequest(
            "the object is encrypted under a customer key; the request must carry it".into(),
        )),
        (None, Some(_)) => Err(ArchiveError::InvalidRequest("the object is not encrypted under a customer key".into())),
    }
}

fn layout(snapshot: &dyn Snapshot, object: u64) -> Result<Layout> {
    fetch(snapshot, LAYOUTS, &keys::number(object))?
        .ok_or_else(|| ArchiveError::damaged(format!("object {object}"), "its list of parts is missing"))
}

fn resolve(snapshot: &dyn Snapshot, found: &Found, range: ByteRange) -> Result<Range<u64>> {
    let size = found.row.size;
    let invalid = Err(ArchiveError::InvalidRange { size });
    match range {
        ByteRange::Whole => Ok(0..size),
        ByteRange::From { first, .. } if first >= size => invalid,
        ByteRange::From { first, last } => match last {
            Some(last) if last < first => invalid,
            last => Ok(first..last.map_or(size, |last| last.saturating_add(1).min(size))),
        },
        ByteRange::Suffix { length: 0 } => invalid,
        ByteRange::Suffix { .. } if size == 0 => invalid,
        ByteRange::Suffix { length } => Ok(size.saturating_sub(length)..size),
        ByteRange::Part { number } if found.row.content != Content::Parts => {
            if number == 1 {
                Ok(0..size)
            } else {
                invalid
            }
        }
        ByteRange::Part { number } => {
            let mut start = 0;
            for (place, part) in layout(snapshot, found.row.object)?.parts.iter().enumerate() {
                if place as u64 + 1 == u64::from(number) {
                    return Ok(start..start + part.size);
                }
                start += part.size;
            }
            invalid
        }
    }
}

impl ObjectReader {
    /// The next bytes, every one verified; none at the end of the range.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(Ok(bytes));
            }
            if self.failed {
                return None;
            }
            while let Some(pieces) = &mut self.pieces
                && self.on_their_way.len() < AHEAD
            {
                match pieces.next() {
                    Ok(Some(opening)) => self.on_their_way.push_back(opening),
                    Ok(None) => self.pieces = None,
                    Err(error) => {
                        self.failed = true;
                        return Some(Err(error));
                    }
                }
            }
            match self.on_their_way.next().await? {
                Ok(frames) => self.ready.extend(frames),
                Err(error) => {
                    // After a damaged frame nothing more is handed out.
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Walks the pieces of an object that a range touches.
pub(crate) struct Pieces {
    store: Arc<Store>,
    /// For messages.
    name: String,
    object: u64,
    key: Arc<Secret>,
    /// What is still to be handed out.
    range: Range<u64>,
    cached: Cached,
    snapshot: Box<dyn Snapshot>,
    reading: Arc<Reading>,
    /// The parts not begun yet, and where the first of them starts in the object.
    parts: VecDeque<(u32, u64)>,
    parts_start: u64,
    stream: Option<Current>,
}

/// Where opened frames are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cached {
    /// The only frame of a small object.
    Frame,
    /// All frames of a piece, together.
    Piece,
    Never,
}

/// The stream being walked.
struct Current {
    part: Option<u32>,
    number: u64,
    key: Arc<StreamKey>,
    /// Where it starts in the object.
    start: u64,
    /// Content of the pieces before the next one.
    passed: u64,
    extents: VecDeque<Extent>,
    /// The chunk to load when `extents` is empty; none: that was all.
    chunk: Option<u32>,
}

impl Pieces {
    pub fn new(
        store: Arc<Store>,
        name: String,
        found: &Found,
        key: Arc<Secret>,
        range: Range<u64>,
        snapshot: Box<dyn Snapshot>,
        reading: Reading,
    ) -> Result<Pieces> {
        let object = found.row.object;
        let mut pieces = Pieces {
            store,
            name,
            object,
            key,
            range,
            cached: match found.row.size {
                size if size <= CACHED_MAX => Cached::Frame,
                size if size <= PIECES_CACHED_MAX => Cached::Piece,
                _ => Cached::Never,
            },
            snapshot,
            reading: Arc::new(reading),
            parts: VecDeque::new(),
            parts_start: 0,
            stream: None,
        };
        match &found.row.content {
            Content::None => {}
            Content::Stream(stream) => pieces.stream = Some(pieces.begin(None, stream, 0)),
            Content::Parts => {
                pieces.parts =
                    layout(&*pieces.snapshot, object)?.parts.iter().map(|part| (part.number, part.size)).collect();
            }
        }
        Ok(pieces)
    }

    fn begin(&self, part: Option<u32>, stream: &Stream, start: u64) -> Current {
        Current {
            part,
            number: stream.number,
            key: Arc::new(StreamKey::new(&self.key, self.object, stream.number, &stream.salt)),
            start,
            passed: 0,
            extents: stream.extents.clone().unwrap_or_default().into(),
            chunk: stream.extents.is_none().then_some(0),
        }
    }

    /// Reads from the volume, and keeps what is read out of the caches.
    pub fn uncached(&mut self) {
        self.cached = Cached::Never;
    }

    /// The fetching and opening of the next piece. None: the range is covered.
    pub fn next(&mut self) -> Result<Option<Opening>> {
        while !self.range.is_empty() {
            let Some(stream) = &mut self.stream else {
                let Some((number, size)) = self.parts.pop_front() else { break };
                let start = self.parts_start;
                self.parts_start += size;
                if self.parts_start > self.range.start {
                    let row = part_row(&*self.snapshot, self.object, number)?;
                    self.stream = Some(self.begin(Some(number), &row.stream, start));
                }
                continue;
            };
            let Some(extent) = stream.extents.pop_front() else {
                let Some(chunk) = stream.chunk else {
                    self.stream = None;
                    continue;
                };
                let list: Option<ExtentList> = fetch(&*self.snapshot, EXTENTS, &keys::pair(stream.number, chunk))?;
                let extents = list.map(|list| list.extents).unwrap_or_default();
                stream.chunk = (extents.len() == CHUNK_EXTENTS).then_some(chunk + 1);
                stream.extents = extents.into();
                continue;
            };
            let start = stream.start + stream.passed;
            let first_frame = (stream.passed / FRAME as u64) as u32;
            stream.passed += u64::from(extent.bytes);
            let end = start + u64::from(extent.bytes);
            if end <= self.range.start {
                continue;
            }
            let wanted = self.range.start..self.range.end.min(end);
            self.range.start = wanted.end;
            let unit = Unit {
                store: Arc::clone(&self.store),
                name: self.name.clone(),
                part: stream.part,
                stream: stream.number,
                key: Arc::clone(&stream.key),
                extent,
                first_frame,
                object_offset: start,
                inside: (wanted.start - start) as usize..(wanted.end - start) as usize,
                cached: self.cached,
                _reading: Arc::clone(&self.reading),
            };
            return Ok(Some(Box::pin(unit.open())));
        }
        match self.range.is_empty() {
            true => Ok(None),
            false => Err(ArchiveError::damaged(
                self.name.clone(),
                format!("the catalog knows no place for its content from byte {} on", self.range.start),
            )),
        }
    }
}

/// One piece to fetch and open.
struct Unit {
    store: Arc<Store>,
    name: String,
    part: Option<u32>,
    stream: u64,
    key: Arc<StreamKey>,
    extent: Extent,
    first_frame: u32,
    /// Where the piece starts in the object.
    object_offset: u64,
    /// What is wanted of the piece's content.
    inside: Range<usize>,
    cached: Cached,
    _reading: Arc<Reading>,
}

impl Unit {
    async fn open(self) -> Result<Vec<Bytes>> {
        let frames = self.inside.start / FRAME..self.inside.end.div_ceil(FRAME);
        let bytes = self.extent.bytes as usize;
        let place = (self.stream, self.first_frame);
        if self.cached == Cached::Piece
            && let Some(piece) = locked(&self.store.pieces).get(&place)
        {
            return Ok(frames.map(|frame| piece[frame].slice(self.wanted(frame))).collect());
        }
        let sealed_end = (frames.end * SEALED_FRAME).min(bytes + bytes.div_ceil(FRAME) * TAG);
        let from = self.store.segments.start(self.extent.segment)
            + u64::from(self.extent.at + RECORD_HEADER)
            + (frames.start * SEALED_FRAME) as u64;
        let to = from + (sealed_end - frames.start * SEALED_FRAME) as u64;
        let block = u64::from(BLOCK);
        let (start, end) = (from / block * block, to.next_multiple_of(block));
        let read = self.store.volume.read(start, (end - start) as usize).await;
        let mut buffer = read.map_err(|error| match error.fault {
            stele_media::MediaFault::Damaged => self.damaged(frames.start, &error.message),
            _ => ArchiveError::from(error),
        })?;
        let skip = (from - start) as usize;
        for frame in frames.clone() {
            let at = skip + (frame - frames.start) * SEALED_FRAME;
            let length = FRAME.min(bytes - frame * FRAME) + TAG;
            self.key
                .open(self.first_frame + frame as u32, &mut buffer[at..at + length])
                .map_err(|_| self.damaged(frame, "the frame does not authenticate"))?;
        }
        let shared = buffer.freeze();
        let whole = |frame: usize| {
            let at = skip + (frame - frames.start) * SEALED_FRAME;
            shared.slice(at..at + FRAME.min(bytes - frame * FRAME))
        };
        let all = frames.len() == bytes.div_ceil(FRAME);
        let weight = shared.len() + 128;
        match self.cached {
            Cached::Frame if all => locked(&self.store.frames).insert(place, whole(0), weight),
            Cached::Piece if all => {
                let piece = frames.clone().map(whole).collect();
                locked(&self.store.pieces).insert(place, piece, weight);
            }
            _ => {}
        }
        Ok(frames.clone().map(|frame| whole(frame).slice(self.wanted(frame))).collect())
    }

    /// What is wanted of a frame's content.
    fn wanted(&self, frame: usize) -> Range<usize> {
        let content = frame * FRAME;
        self.inside.start.max(content) - content..self.inside.end.min(content + FRAME) - content
    }

    fn damaged(&self, frame: usize, message: &str) -> ArchiveError {
        let part = self.part.map_or(String::new(), |part| format!(", part {part}"));
        let offset = self.object_offset + (frame * FRAME) as u64;
        ArchiveError::damaged(
            format!("{}{part}, from byte {offset} on", self.name),
            format!("{message}; scrub the pool, and restore the object from a copy if it cannot be repaired"),
        )
    }
}
