//! The pieces of an object in order, and the fetching and opening of each.

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::Snapshot;

use super::layout;
use crate::model::error::{ArchiveError, Result};
use crate::record::content::{CHUNK_EXTENTS, Content, Extent, ExtentList, Stream};
use crate::record::{EXTENTS, fetch, keys};
use crate::seal::{Secret, TAG};
use crate::space::BLOCK;
use crate::space::frames::{FRAME, SEALED_FRAME, StreamKey};
use crate::space::header::RECORD_HEADER;
use crate::space::segments::Reading;
use crate::store::Store;
use crate::store::lookup::Found;
use crate::store::uploads::part_row;

/// Objects up to this size are kept in the frame cache.
pub(super) const CACHED_MAX: u64 = FRAME as u64;
/// Objects up to this size are kept in the piece cache. A larger download does not push others out.
const PIECES_CACHED_MAX: u64 = 16 << 20;

pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Vec<Bytes>>> + Send>>;

/// Walks the pieces of an object that a range touches.
pub(crate) struct Pieces {
    store: Arc<Store>,
    /// For messages.
    name: String,
    object: u64,
    key: Arc<Secret>,
    /// The bytes that are still to be handed out.
    range: Range<u64>,
    cached: Cached,
    snapshot: Box<dyn Snapshot>,
    pub(super) reading: Arc<Reading>,
    /// The parts that were not begun, and the offset of the first of them in the object.
    parts: VecDeque<(u32, u64)>,
    parts_start: u64,
    stream: Option<Current>,
}

/// The cache for opened frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cached {
    /// The only frame of a small object.
    Frame,
    /// All frames of a piece, together.
    Piece,
    Never,
}

/// The stream whose pieces are being read.
struct Current {
    part: Option<u32>,
    number: u64,
    key: Arc<StreamKey>,
    /// Its offset in the object.
    start: u64,
    /// Bytes of content in the pieces before the next one.
    passed: u64,
    extents: VecDeque<Extent>,
    /// The chunk to load when `extents` is empty. None: there are no more.
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

    /// Reads from the volume and does not fill the caches.
    pub fn uncached(&mut self) {
        self.cached = Cached::Never;
    }

    /// A future that fetches and opens the next piece. None: the range is covered.
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
    /// The offset of the piece in the object.
    object_offset: u64,
    /// The requested range of the piece's content.
    inside: Range<usize>,
    cached: Cached,
    _reading: Arc<Reading>,
}

impl Unit {
    async fn open(self) -> Result<Vec<Bytes>> {
        let frames = self.inside.start / FRAME..self.inside.end.div_ceil(FRAME);
        let bytes = self.extent.bytes as usize;
        if self.cached == Cached::Piece
            && let Some(piece) = self.store.caches().piece(self.stream, self.first_frame)
        {
            return Ok(frames.map(|frame| piece[frame].slice(self.wanted(frame))).collect());
        }
        let sealed_end = (frames.end * SEALED_FRAME).min(bytes + bytes.div_ceil(FRAME) * TAG);
        let from = self.store.segments().start(self.extent.segment)
            + u64::from(self.extent.at + RECORD_HEADER)
            + (frames.start * SEALED_FRAME) as u64;
        let to = from + (sealed_end - frames.start * SEALED_FRAME) as u64;
        let block = u64::from(BLOCK);
        let (start, end) = (from / block * block, to.next_multiple_of(block));
        let read = self.store.volume().read(start, (end - start) as usize).await;
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
            Cached::Frame if all => self.store.caches().keep_frame(self.stream, self.first_frame, whole(0), weight),
            Cached::Piece if all => {
                let piece = frames.clone().map(whole).collect();
                self.store.caches().keep_piece(self.stream, self.first_frame, piece, weight);
            }
            _ => {}
        }
        Ok(frames.clone().map(|frame| whole(frame).slice(self.wanted(frame))).collect())
    }

    /// The requested range of a frame's content.
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
