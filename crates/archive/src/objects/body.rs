//! The body of a put on its way to the data volume: hashed, sealed and handed to the appender in
//! pieces.
//!
//! One pass over memory: each frame is hashed while it is in the processor's cache, then sealed in
//! place in the piece's buffer. Only the MD5 comes later: it is computed from the received chunks,
//! together with those of other bodies. The last piece stays until the end, so that a short body
//! becomes one record together with its note.
//!
//! Memory: a piece of at most 16 frames being filled and `PIECES_MAX` under way, all within the
//! memory that bodies share. The first buffer starts with one frame and grows. A body whose client
//! has fallen silent gives way to others and keeps less than a frame. The chunks for the MD5 are
//! not part of that memory; `Hashes` bounds them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use stele_media::Buffer;
use tokio::sync::OwnedSemaphorePermit;

use crate::model::checksum::{Digests, Hashes, Wanted};
use crate::model::error::{ArchiveError, Result};
use crate::record::content::{Extent, Place};
use crate::seal::{Salt, Secret, TAG, random_salt};
use crate::space::appender::{Appended, Record};
use crate::space::frames::{FRAME, SEALED_FRAME, StreamKey, sealed_length};
use crate::space::header::{Kind, RECORD_HEADER, RecordHeader};
use crate::space::order::Durable;
use crate::space::segments::Writing;
use crate::state::body_memory::BodyMemory;
use crate::store::Store;

/// Pieces of one body under way at most.
const PIECES_MAX: usize = 4;
const HEADER: usize = RECORD_HEADER as usize;
/// Bytes kept behind a short body for its note.
const NOTE_ROOM: usize = 1024;

pub(crate) struct Body {
    pub stream: u64,
    pub salt: Salt,
    object: u64,
    key: StreamKey,
    hashes: Option<Hashes>,
    length: u64,
    expected: Option<u64>,
    piece: Option<Piece>,
    /// The number of the current piece's first frame.
    first_frame: u32,
    on_their_way: VecDeque<(Appended, u32, OwnedSemaphorePermit)>,
    extents: Vec<Extent>,
    writing: Arc<Writing>,
}

/// A piece being filled: space for the header, then frames in their final places.
struct Piece {
    buffer: Buffer,
    content: usize,
    /// Frames that fit the buffer.
    frames: usize,
    permit: OwnedSemaphorePermit,
}

/// A body whose records are all ordered: a commit may refer to them.
pub(crate) struct Stored {
    /// In order.
    pub extents: Vec<Extent>,
    /// The place of the whole record, if it carries the note.
    pub place: Option<Place>,
    /// The caller awaits these before it acknowledges anything.
    pub durable: Vec<Durable<Place>>,
    _permits: Vec<OwnedSemaphorePermit>,
}

/// The end of a body: the record that is not appended yet.
pub(crate) struct LastPiece {
    /// Space for the header, then sealed frames. The note goes behind them.
    buffer: Buffer,
    content: u32,
    permit: OwnedSemaphorePermit,
}

impl Body {
    pub async fn new(
        store: &Arc<Store>,
        object: u64,
        key: &Secret,
        wanted: Wanted,
        expected: Option<u64>,
        writing: &Arc<Writing>,
    ) -> Result<Body> {
        let stream = store.numbers().next().await?;
        let salt = random_salt(store.surroundings());
        Ok(Body {
            stream,
            salt,
            object,
            key: StreamKey::new(key, object, stream, &salt),
            hashes: Some(Hashes::new(store.bodies().lanes(), wanted)),
            length: 0,
            expected,
            piece: None,
            first_frame: 0,
            on_their_way: VecDeque::new(),
            extents: Vec::new(),
            writing: Arc::clone(writing),
        })
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    pub async fn write(&mut self, store: &Arc<Store>, chunk: Bytes) -> Result<()> {
        let mut data: &[u8] = &chunk;
        while !data.is_empty() {
            self.make_room(store).await?;
            let (Some(piece), Some(hashes)) = (&mut self.piece, &mut self.hashes) else {
                return Err(ArchiveError::InvalidRequest("the body has ended already".into()));
            };
            let inside = piece.content % FRAME;
            let taken = data.len().min(FRAME - inside);
            let at = HEADER + piece.content / FRAME * SEALED_FRAME;
            piece.buffer[at + inside..at + inside + taken].copy_from_slice(&data[..taken]);
            piece.content += taken;
            self.length += taken as u64;
            data = &data[taken..];
            if inside + taken == FRAME {
                let number = self.first_frame + (piece.content / FRAME) as u32 - 1;
                seal_frame(&self.key, hashes, &mut piece.buffer, at, FRAME, number);
            }
        }
        if let Some(hashes) = &mut self.hashes {
            hashes.gather(chunk);
        }
        Ok(())
    }

    /// Makes sure that the current piece takes another byte.
    async fn make_room(&mut self, store: &Arc<Store>) -> Result<()> {
        if let Some(piece) = &mut self.piece {
            if piece.content < piece.frames * FRAME {
                return Ok(());
            }
            if piece.frames < store.bodies().piece_frames() {
                let frames = (piece.frames * 4).min(store.bodies().piece_frames());
                let more = (frames - piece.frames) * SEALED_FRAME;
                // A body that waits for more memory while it holds some could block all others: a
                // short piece goes out instead.
                if let Some(permit) = store.bodies().memory().try_take(more) {
                    piece.permit.merge(permit);
                    grow(&mut piece.buffer, HEADER + frames * SEALED_FRAME);
                    piece.frames = frames;
                    return Ok(());
                }
            }
            self.send_piece(store).await?;
        }
        let left = self.expected.map(|expected| expected.saturating_sub(self.length));
        let room = match left {
            Some(left) if left <= FRAME as u64 => sealed_length(left as usize) + NOTE_ROOM,
            _ if self.first_frame == 0 => SEALED_FRAME + NOTE_ROOM,
            _ => store.bodies().piece_frames() * SEALED_FRAME + NOTE_ROOM,
        };
        let frames = (room / SEALED_FRAME).max(1);
        let permit = match store.bodies().memory().try_take(room) {
            Some(permit) => permit,
            None => {
                // A waiting body holds no memory. Bodies that kept their pieces while they wait
                // would block each other for good.
                self.all_arrived().await?;
                store.bodies().memory().take(room).await?
            }
        };
        // Every byte is written before the piece goes out; the unwritten end is cut off.
        let buffer = Buffer::stale(HEADER + room);
        self.piece = Some(Piece { buffer, content: 0, frames, permit });
        Ok(())
    }

    /// Hands the full piece to the appender. At most `PIECES_MAX` are under way.
    async fn send_piece(&mut self, store: &Arc<Store>) -> Result<()> {
        let Some(mut piece) = self.piece.take() else { return Ok(()) };
        let length = HEADER + sealed_length(piece.content);
        piece.buffer.set_length(length);
        let header = self.header(Kind::Piece, 0, 0, 0);
        self.first_frame += (piece.content / FRAME) as u32;
        let record = self.record(header, piece.buffer);
        let appended = store.appender().append(record, false).await?;
        self.on_their_way.push_back((appended, piece.content as u32, piece.permit));
        while self.on_their_way.len() > PIECES_MAX {
            self.arrived().await?;
        }
        Ok(())
    }

    /// Waits until the oldest piece under way is durable.
    async fn arrived(&mut self) -> Result<()> {
        if let Some((appended, bytes, _permit)) = self.on_their_way.pop_front() {
            let place = appended.await?;
            self.extents.push(Extent { segment: place.segment, at: place.at, bytes });
        }
        Ok(())
    }

    fn record(&self, header: RecordHeader, buffer: Buffer) -> Record {
        Record { header, buffer, writing: Some(Arc::clone(&self.writing)), followed: true }
    }

    async fn all_arrived(&mut self) -> Result<()> {
        while !self.on_their_way.is_empty() {
            self.arrived().await?;
        }
        Ok(())
    }

    /// Whether it holds more memory than a frame needs.
    fn keeps_more(&self) -> bool {
        !self.on_their_way.is_empty() || self.piece.as_ref().is_some_and(|piece| piece.frames > 1)
    }

    /// Resolves when other bodies wait for memory and this one holds more than its next frame
    /// needs.
    pub async fn crowded(&self, store: &Store) {
        match self.keeps_more() {
            true => store.bodies().memory().wanted().await,
            false => std::future::pending().await,
        }
    }

    /// Hands on all whole frames, waits until they are durable, and keeps memory for the frame that
    /// was begun.
    pub async fn give_way(&mut self, store: &Arc<Store>) -> Result<()> {
        let large = self.piece.take_if(|piece| piece.frames > 1);
        if let Some(mut large) = large {
            let (whole, begun) = (large.content / FRAME, large.content % FRAME);
            let rest = match begun {
                0 => None,
                _ => {
                    let room = SEALED_FRAME + NOTE_ROOM;
                    let from = HEADER + whole * SEALED_FRAME;
                    let mut buffer = Buffer::stale(HEADER + room);
                    buffer[HEADER..HEADER + begun].copy_from_slice(&large.buffer[from..from + begun]);
                    let kept = large.permit.split(BodyMemory::permits(room));
                    kept.map(|permit| Piece { buffer, content: begun, frames: 1, permit })
                }
            };
            assert!(rest.is_some() == (begun > 0), "a piece of several frames has room for one");
            if whole > 0 {
                large.content = whole * FRAME;
                self.piece = Some(large);
                self.send_piece(store).await?;
            }
            self.piece = rest;
        }
        self.all_arrived().await
    }

    /// Bytes of the body that were handed on.
    pub fn handed_on(&self) -> u64 {
        u64::from(self.first_frame) * FRAME as u64
    }

    fn header(&self, kind: Kind, note: u32, scope: u32, sequence: u64) -> RecordHeader {
        RecordHeader {
            kind,
            payload: 0,
            note,
            scope,
            first_frame: self.first_frame,
            object: self.object,
            stream: self.stream,
            salt: self.salt,
            incarnation: 0,
            sequence,
            check: 0,
        }
    }

    /// Seals the last frame and returns the digests of the whole content. Nothing can be written
    /// after it.
    pub fn digests(&mut self) -> Result<Digests> {
        let Some(mut hashes) = self.hashes.take() else {
            return Err(ArchiveError::InvalidRequest("the body has ended already".into()));
        };
        if let Some(piece) = &mut self.piece {
            let partial = piece.content % FRAME;
            if partial > 0 {
                let at = HEADER + piece.content / FRAME * SEALED_FRAME;
                let number = self.first_frame + (piece.content / FRAME) as u32;
                seal_frame(&self.key, &mut hashes, &mut piece.buffer, at, partial, number);
            }
        }
        Ok(hashes.finish())
    }

    /// Whether the body fits one record, which can then carry the note too.
    pub fn is_short(&self) -> bool {
        self.first_frame == 0
            && self.on_their_way.is_empty()
            && self.piece.as_ref().is_none_or(|piece| piece.frames <= 4)
    }

    /// Appends the rest, with the note if the body is short, and waits until a commit may follow.
    pub async fn finish(mut self: Box<Self>, store: &Arc<Store>, note: Option<(&[u8], u32, u64)>) -> Result<Stored> {
        let last = self.piece.take().map(|piece| {
            let Piece { mut buffer, content, permit, .. } = piece;
            buffer.set_length(HEADER + sealed_length(content));
            LastPiece { buffer, content: content as u32, permit }
        });
        let Some((note, scope, sequence)) = note else {
            if let Some(last) = last {
                let header = self.header(Kind::Piece, 0, 0, 0);
                let record = self.record(header, last.buffer);
                let appended = store.appender().append(record, false).await?;
                self.on_their_way.push_back((appended, last.content, last.permit));
            }
            let mut stored = Stored { extents: self.extents, place: None, durable: Vec::new(), _permits: Vec::new() };
            for (appended, bytes, permit) in self.on_their_way {
                let (place, durable) = appended.ordered().await?;
                stored.extents.push(Extent { segment: place.segment, at: place.at, bytes });
                stored.durable.push(durable);
                stored._permits.push(permit);
            }
            return Ok(stored);
        };
        assert!(self.extents.is_empty() && self.on_their_way.is_empty(), "only a short body carries its note");
        let (kind, mut buffer, content, permit) = match last {
            Some(last) => (Kind::Whole, last.buffer, last.content, Some(last.permit)),
            None => (Kind::Version, Buffer::stale(HEADER), 0, None),
        };
        let end = buffer.len();
        grow(&mut buffer, end + note.len());
        buffer[end..].copy_from_slice(note);
        let header = self.header(kind, note.len() as u32, scope, sequence);
        let appended = store.appender().append(self.record(header, buffer), false).await?;
        let (place, durable) = appended.ordered().await?;
        let extents = if content == 0 {
            Vec::new()
        } else {
            vec![Extent { segment: place.segment, at: place.at, bytes: content }]
        };
        let _permits = permit.into_iter().collect();
        Ok(Stored { extents, place: Some(place), durable: vec![durable], _permits })
    }
}

fn seal_frame(key: &StreamKey, hashes: &mut Hashes, buffer: &mut Buffer, at: usize, length: usize, number: u32) {
    let frame = &mut buffer[at..at + length];
    hashes.update(frame);
    let tag = key.seal(number, frame);
    buffer[at + length..at + length + TAG].copy_from_slice(&tag);
}

/// Grows the buffer to this length, in place where its pages suffice. The new bytes are not
/// cleared.
fn grow(buffer: &mut Buffer, length: usize) {
    if length <= buffer.capacity() {
        buffer.set_length(length);
        return;
    }
    let mut longer = Buffer::stale(length);
    longer[..buffer.len()].copy_from_slice(buffer);
    *buffer = longer;
}
