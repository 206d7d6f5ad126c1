//! Reading an object. Pieces are fetched ahead and verified before their bytes are handed out.
//!
//! A range opens only the frames that it touches. Memory of one reader: at most `AHEAD` pieces of 1
//! MiB.
//!
//! A reader keeps its snapshot of the catalog, and the segments that it names, for at most
//! `CLIENT_READ_MAX`, since a slow client sets the pace. After that it looks its version up again
//! and continues where it was. A version that is gone meanwhile ends the reading with an error.
//! Bytes from a segment that was reused meanwhile do not authenticate, so the reader never hands
//! out other bytes.

mod pieces;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use stele_catalog::Snapshot;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::check_key;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller};
use crate::model::secrets::CustomerKey;
use crate::model::time::Timestamp;
use crate::model::version::{ETag, ObjectInfo, PartInfo, VersionId};
use crate::record::content::{Content, Layout};
use crate::record::version::VersionRef;
use crate::record::{LAYOUTS, fetch, keys};
use crate::seal::Secret;
use crate::space::segments::{CLIENT_READ_MAX, Reading};
use crate::state::buckets::Bucket;
use crate::store::lookup::{self, Found};
use crate::store::uploads::part_row;
use crate::store::{Archive, Store};

use pieces::CACHED_MAX;

pub(crate) use pieces::{Opening, Pieces};

/// How often an object may be replaced between its lookup and its opening before the read is
/// refused.
const REPLACED_MAX: usize = 16;
/// Pieces under way to a reader at most.
const AHEAD: usize = 4;

/// The requested bytes.
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
    pub if_range: Option<IfRange>,
}

/// `If-Range`: the object of which the client has the rest. Of another object it gets the whole,
/// since two halves would make an object that never was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IfRange {
    /// The entity tag as sent.
    Tag(String),
    /// The date of the last change.
    Modified(Timestamp),
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

/// An object being read.
pub struct ObjectReader {
    pub info: ObjectInfo,
    /// The range of bytes that will be read.
    pub range: Range<u64>,
    /// The data for another lookup. None: all content is here already.
    origin: Option<Origin>,
    pieces: Option<Pieces>,
    on_their_way: FuturesOrdered<Opening>,
    ready: VecDeque<Bytes>,
    /// The first byte that is not ready yet.
    next: u64,
    failed: bool,
}

/// The version being read, and the registration that keeps its segments.
struct Origin {
    store: Arc<Store>,
    at: VersionRef,
    object: u64,
    key: Arc<Secret>,
    name: String,
    reading: Arc<Reading>,
}

impl ObjectReader {
    /// An object without content that no version holds: a directory of a share.
    pub fn empty(info: ObjectInfo, condition: &ReadCondition) -> Result<ObjectReader> {
        condition.judge(&info)?;
        Ok(ObjectReader {
            info,
            range: 0..0,
            origin: None,
            pieces: None,
            on_their_way: FuturesOrdered::new(),
            ready: VecDeque::new(),
            next: 0,
            failed: false,
        })
    }
}

impl IfRange {
    /// Whether the client means this object. A weak entity tag never says so, and a date only if it
    /// is the very one.
    fn holds(&self, info: &ObjectInfo) -> bool {
        match self {
            IfRange::Tag(tag) => ETag::parse(tag.trim()) == Some(info.etag),
            IfRange::Modified(at) => at.seconds() == info.modified.seconds(),
        }
    }
}

impl ReadCondition {
    /// The range that answers a request for `asked`.
    pub fn range(&self, asked: ByteRange, info: &ObjectInfo) -> ByteRange {
        let is_range = matches!(asked, ByteRange::From { .. } | ByteRange::Suffix { .. });
        match &self.if_range {
            Some(condition) if is_range && !condition.holds(info) => ByteRange::Whole,
            _ => asked,
        }
    }

    fn judge(&self, info: &ObjectInfo) -> Result<()> {
        let matches = |list: &str| {
            list.split(',').any(|tag| {
                let tag = tag.trim();
                tag == "*" || ETag::parse(tag.strip_prefix("W/").unwrap_or(tag)) == Some(info.etag)
            })
        };
        // HTTP dates have a resolution of seconds.
        let modified = info.modified.seconds();
        let unmatched = match (&self.if_match, self.if_unmodified_since) {
            (Some(list), _) => !matches(list),
            (None, Some(since)) => modified > since.seconds(),
            (None, None) => false,
        };
        if unmatched {
            return Err(ArchiveError::PreconditionFailed("the object is not the expected one".into()));
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

/// The result of a lookup, before any content is read.
pub(crate) struct Opened {
    bucket: Arc<Bucket>,
    found: Found,
    info: ObjectInfo,
    range: Range<u64>,
    snapshot: Box<dyn Snapshot>,
    reading: Reading,
}

impl Archive {
    /// Opens a version for reading. The first frames are verified before it returns.
    pub async fn get(&self, caller: &Caller, request: GetRequest) -> Result<ObjectReader> {
        let result = self.try_get(caller, &request).await;
        self.store().audited(result, || Event::new(caller, Action::Read).object(&request.bucket, &request.key)).await
    }

    async fn try_get(&self, caller: &Caller, request: &GetRequest) -> Result<ObjectReader> {
        for _ in 0..REPLACED_MAX {
            let opened = self.open_version(caller, request)?;
            if let Some(reader) = self.read_opened(request, opened).await? {
                return Ok(reader);
            }
        }
        Err(ArchiveError::Conflict(format!(
            "`{}/{}` was replaced {REPLACED_MAX} times while it was being opened; try again",
            request.bucket, request.key
        )))
    }

    /// None: the version and its key are gone since the lookup. Another version may be there.
    pub(crate) async fn read_opened(&self, request: &GetRequest, opened: Opened) -> Result<Option<ObjectReader>> {
        let Opened { bucket, found, info, range, snapshot, reading } = opened;
        let store = &self.store();
        let mut reader = ObjectReader {
            info,
            range: range.clone(),
            origin: None,
            pieces: None,
            on_their_way: FuturesOrdered::new(),
            ready: VecDeque::new(),
            next: range.start,
            failed: false,
        };
        if range.is_empty() {
            return Ok(Some(reader));
        }
        if let Content::Stream(stream) = &found.row.content
            && found.row.size <= CACHED_MAX
            && let Some(frame) = store.caches().frame(stream.number, 0)
        {
            reader.ready.push_back(frame.slice(range.start as usize..range.end as usize));
            return Ok(Some(reader));
        }
        let name = || format!("`{}/{}` version {}", bucket.name(), request.key, found.id());
        let customer = request.customer_key.as_ref();
        let at = VersionRef { bucket: bucket.number, key: request.key.clone(), number: found.number };
        let key = match store.object_key(&bucket, found.row.object, found.row.slot, customer, name).await {
            Ok(key) => key,
            Err(error) => {
                let now = lookup::referred(&*store.snapshot()?, &at)?;
                return match now.is_some_and(|now| now.row.object == found.row.object) {
                    true => Err(error),
                    false => Ok(None),
                };
            }
        };
        let name = name();
        let pieces = Pieces::new(Arc::clone(store), name.clone(), &found, Arc::clone(&key), range, snapshot, reading)?;
        reader.origin = Some(Origin {
            store: Arc::clone(store),
            at,
            object: found.row.object,
            key,
            name,
            reading: Arc::clone(&pieces.reading),
        });
        reader.pieces = Some(pieces);
        if let Some(first) = reader.next().await {
            reader.ready.push_front(first?);
        }
        Ok(Some(reader))
    }

    /// As `get`, without content: the properties and the range that a `get` would send. For a part,
    /// the checksums are the part's.
    pub async fn head(&self, caller: &Caller, request: GetRequest) -> Result<(ObjectInfo, Range<u64>)> {
        let result = self.open_version(caller, &request).map(|opened| (opened.info, opened.range));
        self.store().audited(result, || Event::new(caller, Action::Read).object(&request.bucket, &request.key)).await
    }

    pub(crate) fn open_version(&self, caller: &Caller, request: &GetRequest) -> Result<Opened> {
        let store = &self.store();
        check_key(&request.key)?;
        let bucket = store.authorized(caller, Access::Read, &request.bucket, &request.key)?;
        let reading = store.segments().reading_for_client(store.surroundings().now().monotonic);
        let snapshot = store.snapshot()?;
        let found = lookup::readable(&*snapshot, &bucket, &request.key, request.version)?;
        let mut info = found.info(&bucket, &request.key);
        check_customer(&found, request.customer_key.as_ref())?;
        info.customer_key_md5 = request.customer_key.as_ref().map(CustomerKey::md5);
        request.condition.judge(&info)?;
        let range = resolve(&*snapshot, &found, request.condition.range(request.range, &info))?;
        if let (ByteRange::Part { number }, Content::Parts) = (request.range, &found.row.content) {
            let layout = layout(&*snapshot, found.row.object)?;
            let place = layout.parts.get(number.saturating_sub(1) as usize);
            let number = place.map_or(number, |part| part.number);
            info.checksums = part_row(&*snapshot, found.row.object, number)?.checksums;
        }
        Ok(Opened { bucket, found, info, range, snapshot, reading })
    }

    /// The parts of a multipart object with numbers above `after`, at most `limit`, and whether
    /// more follow. As for a read of one part, they count from 1 without gaps, whatever numbers the
    /// upload gave them.
    pub async fn object_parts(
        &self,
        caller: &Caller,
        request: GetRequest,
        after: u32,
        limit: usize,
    ) -> Result<(Vec<PartInfo>, bool)> {
        let result = self.open_version(caller, &request);
        let opened = self
            .store()
            .audited(result, || Event::new(caller, Action::Read).object(&request.bucket, &request.key))
            .await?;
        if opened.found.row.content != Content::Parts {
            return Ok((Vec::new(), false));
        }
        let layout = layout(&*opened.snapshot, opened.found.row.object)?;
        let mut parts = Vec::new();
        for (place, part) in (1..).zip(&layout.parts).filter(|(place, _)| *place > after) {
            if parts.len() == limit {
                return Ok((parts, true));
            }
            let row = part_row(&*opened.snapshot, opened.found.row.object, part.number)?;
            parts.push(row.info(place));
        }
        Ok((parts, false))
    }
}

/// Checks that the request carries the right customer key if the object has one, and none
/// otherwise.
pub(crate) fn check_customer(found: &Found, key: Option<&CustomerKey>) -> Result<()> {
    match (&found.row.customer, key) {
        (None, None) => Ok(()),
        (Some(mark), Some(key)) if mark.recognises(key) => Ok(()),
        (Some(_), Some(_)) => {
            Err(ArchiveError::CustomerKey("the customer key is not the one that the object was stored with".into()))
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
    /// The next verified bytes. None: the end of the range.
    pub async fn next(&mut self) -> Option<Result<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(Ok(bytes));
            }
            if self.failed {
                return None;
            }
            if self.is_overtaken()
                && self.next < self.range.end
                && let Err(error) = self.look_up_again()
            {
                self.failed = true;
                return Some(Err(error));
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
                Ok(frames) => {
                    self.next += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
                    self.ready.extend(frames);
                }
                // Reclamation may have moved the piece and reused its segment since the lookup.
                Err(_) if self.is_overtaken() => {}
                Err(error) => {
                    // A damaged frame ends the reading.
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
    }

    fn is_overtaken(&self) -> bool {
        let overtaken = |origin: &Origin| origin.reading.is_overtaken(origin.store.surroundings().now().monotonic);
        self.origin.as_ref().is_some_and(overtaken)
    }

    /// Looks up the places of the remaining bytes.
    fn look_up_again(&mut self) -> Result<()> {
        let Some(origin) = &mut self.origin else { return Ok(()) };
        let store = Arc::clone(&origin.store);
        let reading = store.segments().reading_for_client(store.surroundings().now().monotonic);
        let snapshot = store.snapshot()?;
        let found = lookup::referred(&*snapshot, &origin.at)?.filter(|found| found.row.object == origin.object);
        let Some(found) = found else {
            return Err(ArchiveError::Conflict(format!(
                "{} was removed during a read of more than {} minutes; the bytes from {} on are gone",
                origin.name,
                CLIENT_READ_MAX.0 / 60_000_000_000,
                self.next
            )));
        };
        let range = self.next..self.range.end;
        let pieces =
            Pieces::new(store, origin.name.clone(), &found, Arc::clone(&origin.key), range, snapshot, reading)?;
        origin.reading = Arc::clone(&pieces.reading);
        self.on_their_way = FuturesOrdered::new();
        self.pieces = Some(pieces);
        Ok(())
    }
}
