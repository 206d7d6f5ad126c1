//! Replies on their way out: each call sends as many as the socket takes.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};

use super::reply::Chunk;
use crate::Stream;

/// Largest number of slices in one call. Linux takes 1024.
const SLICES_MAX: usize = 256;

#[derive(Default)]
pub struct Outgoing {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are already sent.
    sent: usize,
    bytes: usize,
}

impl Outgoing {
    pub fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.size();
        self.chunks.push_back(chunk);
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Number of waiting replies.
    pub fn replies(&self) -> usize {
        self.chunks.len()
    }

    /// Number of waiting bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sends until nothing is left or the socket is full. Returns the number of bytes sent, or an
    /// error if the stream is broken.
    pub fn send(&mut self, stream: &mut dyn Stream) -> Result<usize, ()> {
        let mut total = 0;
        while !self.chunks.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut room = slices.iter_mut();
            let mut skip = self.sent;
            let mut count = 0;
            let mut offered = 0;
            'gather: for chunk in &self.chunks {
                for piece in chunk.pieces() {
                    let rest = piece.get(skip..).unwrap_or_default();
                    skip = skip.saturating_sub(piece.len());
                    if rest.is_empty() {
                        continue;
                    }
                    let Some(slot) = room.next() else { break 'gather };
                    *slot = IoSlice::new(rest);
                    count += 1;
                    offered += rest.len();
                }
            }
            match stream.write_vectored(slices.get(..count).unwrap_or_default()) {
                Ok(0) => return Err(()),
                Ok(went) => {
                    total += went;
                    self.advance(went);
                    if went < offered {
                        return Ok(total);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(total),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(()),
            }
        }
        Ok(total)
    }

    fn advance(&mut self, went: usize) {
        self.bytes -= went.min(self.bytes);
        self.sent += went;
        while let Some(first) = self.chunks.front() {
            let size = first.size();
            if self.sent < size {
                return;
            }
            self.sent -= size;
            self.chunks.pop_front();
        }
    }
}
