//! Answers that wait to be sent, in pieces for vectored writes.
//!
//! A stream with TLS takes bytes into its own memory and may not send them before the next write.
//! So a write is followed by a flush once nothing waits here.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use super::rpc::Reply;

/// Pieces of one write.
const PIECES_MAX: usize = 128;
/// Heads of answers are gathered in blocks of about this size.
const BLOCK: usize = 8 << 10;
/// Content below this length is copied. A piece keeps all of the memory that it was cut from until
/// it is sent, and a client may ask for many small pieces and take none.
const COPIED_BELOW: usize = 4 << 10;

enum Piece {
    /// Heads of answers, with room for more.
    Heads(Vec<u8>),
    Content(Bytes),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Heads(bytes) => bytes,
            Piece::Content(bytes) => bytes,
        }
    }
}

#[derive(Default)]
pub struct Outbox {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are sent.
    sent: usize,
    waiting: usize,
    /// The stream took bytes since the last flush that ended.
    unflushed: bool,
}

impl Outbox {
    /// Bytes that are not sent yet.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The stream has every byte, and may not have sent all of them.
    pub fn needs_flush(&self) -> bool {
        self.waiting == 0 && self.unflushed
    }

    pub fn is_done(&self) -> bool {
        self.waiting == 0 && !self.unflushed
    }

    pub fn poll_flush<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let flushed = Pin::new(stream).poll_flush(context);
        if flushed.is_ready() {
            self.unflushed = false;
        }
        flushed
    }

    pub fn push(&mut self, reply: Reply) {
        self.waiting += reply.length();
        match self.pieces.back_mut() {
            Some(Piece::Heads(heads)) if heads.len() + reply.head.len() <= BLOCK => {
                heads.extend_from_slice(&reply.head);
            }
            _ => self.pieces.push_back(Piece::Heads(reply.head)),
        }
        for content in reply.content {
            match content.len() {
                0 => {}
                length if length < COPIED_BELOW => self.copy(&content),
                _ => self.pieces.push_back(Piece::Content(content)),
            }
        }
    }

    fn copy(&mut self, content: &[u8]) {
        match self.pieces.back_mut() {
            Some(Piece::Heads(heads)) if heads.len() + content.len() <= BLOCK => heads.extend_from_slice(content),
            _ => self.pieces.push_back(Piece::Heads(content.to_vec())),
        }
    }

    pub fn clear(&mut self) {
        *self = Outbox::default();
    }

    /// Sends with one vectored write; answers the bytes that went.
    pub fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        let mut skipped = self.sent;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece.bytes().get(skipped..).unwrap_or_default());
            skipped = 0;
            count += 1;
        }
        let slices = slices.get(..count).unwrap_or_default();
        let written = match Pin::new(stream).poll_write_vectored(context, slices) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        };
        self.unflushed = true;
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, written: usize) {
        self.waiting = self.waiting.saturating_sub(written);
        self.sent += written;
        while let Some(piece) = self.pieces.front() {
            let length = piece.bytes().remaining();
            if self.sent < length {
                break;
            }
            self.sent -= length;
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
