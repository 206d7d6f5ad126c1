//! One MD5: its state between blocks, and the handle by which an upload feeds it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::kernel::{BLOCK, Kernel, START, State};
use crate::lanes::{Lanes, weight};

/// Streams of up to this length never enter the lanes: gathering them costs more than it saves.
pub const DIRECT_MAX: usize = 64 << 10;

/// The MD5 of the data hashed so far: whole blocks are hashed, and the rest of a block waits.
#[derive(Clone)]
pub struct Md5State {
    pub state: State,
    rest: [u8; BLOCK],
    length: u64,
}

impl Md5State {
    pub fn new() -> Md5State {
        Md5State { state: START, rest: [0; BLOCK], length: 0 }
    }

    /// Completes and hashes a block begun earlier; returns the rest of `data`.
    fn complete<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let held = self.held();
        if held == 0 {
            return data;
        }
        let (taken, left) = data.split_at(data.len().min(BLOCK - held));
        self.rest[held..held + taken.len()].copy_from_slice(taken);
        self.length += taken.len() as u64;
        if held + taken.len() == BLOCK {
            Kernel::Scalar.compress(std::slice::from_mut(&mut self.state), &[&self.rest], 1);
        }
        left
    }

    /// Takes the parts of `data` that are not whole blocks, and returns the range of whole blocks
    /// between them. That range counts as hashed: the caller folds it into `state` before any
    /// further data.
    pub fn begin(&mut self, data: &[u8]) -> std::ops::Range<usize> {
        let left = self.complete(data);
        let from = data.len() - left.len();
        let blocks = left.len() / BLOCK * BLOCK;
        let end = &left[blocks..];
        if !end.is_empty() {
            self.rest[..end.len()].copy_from_slice(end);
        }
        self.length += left.len() as u64;
        from..from + blocks
    }

    pub fn update(&mut self, data: &[u8]) {
        let blocks = self.begin(data);
        let count = blocks.len() / BLOCK;
        Kernel::Scalar.compress(std::slice::from_mut(&mut self.state), &[&data[blocks]], count);
    }

    /// Number of bytes in the block begun.
    fn held(&self) -> usize {
        (self.length % BLOCK as u64) as usize
    }

    pub fn finish(mut self) -> [u8; 16] {
        let bits = self.length.wrapping_mul(8);
        let mut padding = [0; BLOCK + 8];
        padding[0] = 0x80;
        let held = self.held();
        let zeros = if held < 56 { 56 - held } else { 120 - held };
        padding[zeros..zeros + 8].copy_from_slice(&bits.to_le_bytes());
        self.update(&padding[..zeros + 8]);
        let mut digest = [0; 16];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        digest
    }
}

/// A content on its way through the lanes. It keeps its chunks until they are hashed: at most
/// [`Lanes::BACKLOG_MAX`] bytes and the chunk that exceeded the limit.
pub struct Md5Stream {
    lanes: Arc<Lanes>,
    /// Chunks gathered before the stream is long enough for the lanes.
    first: VecDeque<Bytes>,
    /// Their weight.
    gathered: usize,
    number: Option<u64>,
}

impl Md5Stream {
    pub fn new(lanes: &Arc<Lanes>) -> Md5Stream {
        Md5Stream { lanes: Arc::clone(lanes), first: VecDeque::new(), gathered: 0, number: None }
    }

    /// Adds the next bytes, in chunks of any size. Hashes the data of all streams if this one has
    /// gathered enough.
    pub fn push(&mut self, chunk: Bytes) {
        if chunk.is_empty() {
            return;
        }
        if let Some(number) = self.number {
            return self.lanes.push(number, chunk);
        }
        self.gathered += weight(&chunk);
        self.first.push_back(chunk);
        if self.gathered > DIRECT_MAX {
            self.number = Some(self.lanes.enter(std::mem::take(&mut self.first)));
        }
    }

    /// The MD5 of all pushed bytes.
    pub fn finish(mut self) -> [u8; 16] {
        match self.number.take() {
            Some(number) => self.lanes.leave(number).finish(),
            None => {
                let mut state = Md5State::new();
                self.first.iter().for_each(|chunk| state.update(chunk));
                state.finish()
            }
        }
    }
}

impl Drop for Md5Stream {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.lanes.forget(number);
        }
    }
}

#[cfg(test)]
mod tests;
