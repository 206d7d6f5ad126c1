//! Record marking (RFC 5531, section 11): cuts the received bytes into records.
//!
//! A record of one fragment, which is what clients send, is a slice of the receive buffer. It keeps
//! the whole buffer in memory as long as its call is under way, so a record that is short beside
//! its buffer is copied. Several fragments are joined in a copy too. The buffer begins small and
//! grows with its use. Buffers whose slices are gone are used again.
//!
//! Long records come one after another, each about as long as the one before. A read takes no more
//! than one of them, so that the next begins in a buffer that can hold all of it.

use std::collections::VecDeque;

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The longest record: 1 MiB of content, and room for everything around it.
pub const RECORD_MAX: usize = (1 << 20) + (16 << 10);
/// The most fragments of one record.
pub const FRAGMENTS_MAX: usize = 64;

const LAST_FRAGMENT: u32 = 1 << 31;
const MARK: usize = 4;
/// The first buffer of a connection. A buffer that a read filled is followed by one of twice the
/// size, up to the largest.
const BUFFER_MIN: usize = 16 << 10;
const BUFFER_MAX: usize = 512 << 10;
/// Below this room at the end of a buffer, reading goes on in another one.
const ROOM_MIN: usize = 4 << 10;
/// A record keeps at most this many times its own length in memory, or the smallest buffer.
const KEPT_RATIO: usize = 4;
/// A record of at least this many bytes is read by itself.
const LONG: usize = 64 << 10;
/// Used buffers that wait for their slices to go.
const RETIRED_MAX: usize = 3;

/// The stream is no sequence of records that this server takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordError {
    TooLong,
    TooManyFragments,
}

/// The receive buffer of a connection.
pub struct Records {
    buffer: BytesMut,
    /// The size that the buffer should have, and the size that it was allocated with.
    size: usize,
    held: usize,
    retired: VecDeque<BytesMut>,
    /// Bytes of the last record with its mark, if it was long; else 0.
    expected: usize,
    /// Earlier fragments of the record that is coming, and their number.
    joined: Vec<u8>,
    fragments: usize,
}

impl Default for Records {
    fn default() -> Records {
        Records {
            buffer: BytesMut::with_capacity(BUFFER_MIN),
            size: BUFFER_MIN,
            held: BUFFER_MIN,
            retired: VecDeque::new(),
            expected: 0,
            joined: Vec::new(),
            fragments: 0,
        }
    }
}

impl Records {
    /// Where to read to: it has room for the rest of the fragment that is coming.
    pub fn room(&mut self) -> Limit<&mut BytesMut> {
        let (length, missing) = (self.buffer.len(), self.missing());
        let grown = self.held >= self.size;
        let fits = |buffer: &BytesMut, least: usize| buffer.capacity() - length >= least.max(missing);
        if !(grown && fits(&self.buffer, self.size / 2)) {
            // All slices may be gone: then the buffer begins anew.
            let whole = grown && self.buffer.try_reclaim(self.size.saturating_sub(length));
            if !((whole || grown) && fits(&self.buffer, ROOM_MIN)) {
                self.replace(missing);
            }
        }
        let room = self.buffer.capacity() - self.buffer.len();
        let most = if missing >= LONG { missing } else { room };
        (&mut self.buffer).limit(most.min(room))
    }

    /// Tells that bytes were read to the room.
    pub fn filled(&mut self) {
        if self.buffer.len() == self.buffer.capacity() {
            self.size = (self.held * 2).clamp(BUFFER_MIN, BUFFER_MAX);
        }
    }

    /// Gives up the memory of an idle connection.
    pub fn shrink(&mut self) {
        if !self.is_partial() {
            *self = Records::default();
        }
    }

    /// A record has begun and is not whole.
    pub fn is_partial(&self) -> bool {
        !self.buffer.is_empty() || self.fragments > 0
    }

    /// The next whole record, without its marks.
    pub fn take(&mut self) -> Result<Option<Bytes>, RecordError> {
        loop {
            let Some(mark) = self.buffer.first_chunk::<MARK>() else { return Ok(None) };
            let mark = u32::from_be_bytes(*mark);
            let length = (mark & !LAST_FRAGMENT) as usize;
            if self.joined.len() + length > RECORD_MAX {
                return Err(RecordError::TooLong);
            }
            if self.buffer.len() < MARK + length {
                return Ok(None);
            }
            self.expected = if length >= LONG { MARK + length } else { 0 };
            self.buffer.advance(MARK);
            let fragment = self.buffer.split_to(length);
            let last = mark & LAST_FRAGMENT != 0;
            if last && self.fragments == 0 {
                let short = self.held > BUFFER_MIN && length < self.held / KEPT_RATIO;
                return Ok(Some(if short { Bytes::copy_from_slice(&fragment) } else { fragment.freeze() }));
            }
            self.fragments += 1;
            if self.fragments > FRAGMENTS_MAX {
                return Err(RecordError::TooManyFragments);
            }
            self.joined.extend_from_slice(&fragment);
            if last {
                self.fragments = 0;
                return Ok(Some(Bytes::from(std::mem::take(&mut self.joined))));
            }
        }
    }

    /// Bytes that the fragment at hand still lacks. If its length is not known yet, a long one is
    /// taken to be followed by its like.
    fn missing(&self) -> usize {
        let Some(mark) = self.buffer.first_chunk::<MARK>() else {
            return self.expected.saturating_sub(self.buffer.len());
        };
        let length = (u32::from_be_bytes(*mark) & !LAST_FRAGMENT) as usize;
        // `take` has refused a longer one.
        (MARK + length.min(RECORD_MAX)).saturating_sub(self.buffer.len())
    }

    /// Goes on in another buffer; what has come of the record is copied there.
    fn replace(&mut self, missing: usize) {
        let size = self.size.max(self.buffer.len() + missing.max(ROOM_MIN));
        let free = self.retired.iter_mut().position(|buffer| buffer.try_reclaim(size));
        let spare = free.and_then(|number| self.retired.remove(number));
        let mut next = spare.unwrap_or_else(|| BytesMut::with_capacity(size));
        next.extend_from_slice(&self.buffer);
        let mut used = std::mem::replace(&mut self.buffer, next);
        self.held = size;
        used.clear();
        if self.retired.len() >= RETIRED_MAX {
            self.retired.pop_front();
        }
        self.retired.push_back(used);
    }
}

#[cfg(test)]
mod tests;
