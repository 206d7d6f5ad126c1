//! The unsent output of a connection: our own headers, and data by reference.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BufMut, BytesMut};
use stele_media::Shared;

use super::framing::digest_of;
use super::pdu::{Header, padding};

/// Largest number of pieces for one call.
const PIECES_MAX: usize = 256;
const HEADS: usize = 16 << 10;

#[derive(Default)]
pub struct Outbox {
    pieces: VecDeque<Shared>,
    heads: BytesMut,
    bytes: usize,
    pub header_digest: bool,
    pub data_digest: bool,
}

impl Outbox {
    /// Queues a PDU; its data length is set here.
    pub fn push(&mut self, mut header: Header, data: &[Shared]) {
        let length: usize = data.iter().map(Shared::len).sum();
        header.set_data_length(length);
        if self.heads.capacity() - self.heads.len() < 64 {
            self.seal();
            self.heads.reserve(HEADS);
        }
        self.heads.put_slice(&header.0);
        if self.header_digest {
            self.heads.put_slice(&digest_of(&[&header.0]));
        }
        if length == 0 {
            return;
        }
        self.seal();
        for piece in data.iter().filter(|piece| !piece.is_empty()) {
            self.bytes += piece.len();
            self.pieces.push_back(piece.clone());
        }
        let zeros = [0u8; 3];
        let padding = zeros.get(..padding(length)).unwrap_or_default();
        self.heads.put_slice(padding);
        if self.data_digest {
            let mut covered: Vec<&[u8]> = data.iter().map(|piece| piece.as_ref()).collect();
            covered.push(padding);
            self.heads.put_slice(&digest_of(&covered));
        }
    }

    fn seal(&mut self) {
        if !self.heads.is_empty() {
            let head = self.heads.split().freeze();
            self.bytes += head.len();
            self.pieces.push_back(head);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.heads.is_empty()
    }

    /// Number of waiting bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.heads.len()
    }

    /// The next data to send; the caller reports with `sent` how much of it was sent.
    pub fn slices(&mut self) -> Vec<IoSlice<'_>> {
        self.seal();
        self.pieces.iter().take(PIECES_MAX).map(|piece| IoSlice::new(piece)).collect()
    }

    pub fn sent(&mut self, mut count: usize) {
        self.bytes = self.bytes.saturating_sub(count);
        while let Some(first) = self.pieces.front_mut() {
            if first.len() > count {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.pieces.pop_front();
        }
    }

    /// The whole output in one piece, for tests and for logins.
    pub fn take(&mut self) -> Vec<u8> {
        self.seal();
        self.bytes = 0;
        self.pieces.drain(..).flatten().collect()
    }
}
