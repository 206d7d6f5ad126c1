//! A request's payload on its way in: framing removed, length and signature checked, time bounded.
//!
//! Memory: one piece at a time, as it came from the socket. The last piece is returned before the
//! end is checked. A consumer must therefore commit nothing until `next` has returned `None`.
//!
//! Failure model: the sender may stop, send very slowly, announce a wrong length, cut off the end,
//! or send other bytes than it signed. Each is an error with its S3 code, and the body is not read
//! further.

use crate::dechunk::{ChunkError, Dechunker};
use crate::form::FileEnd;
use crate::refusal::{malformed_trailer, payload_hash_mismatch, refuse};
use aws_lc_rs::digest;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Incoming;
use s3s::{S3Error, S3ErrorCode, S3Result};
#[cfg(test)]
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Limits on slow senders.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The longest silence.
    pub silence_max: Duration,
    /// Smallest average rate in bytes a second, after `grace`.
    pub rate_min: u64,
    /// Time before the average counts.
    pub grace: Duration,
}

/// The source of the bytes.
pub enum Source {
    /// The connection.
    Wire(Incoming),
    /// Bytes in memory.
    #[cfg(test)]
    Held(VecDeque<Bytes>),
}

/// What surrounds the payload in the body.
enum Framing {
    Chunks(Box<Dechunker>),
    Form(FileEnd),
}

/// A payload being received.
pub struct Payload {
    source: Source,
    framing: Option<Framing>,
    /// Of a form's file: the least and the largest size that its policy allows.
    range: (u64, u64),
    expected: Option<[u8; 32]>,
    hash: Option<digest::Context>,
    /// The sender does not say the length: it is the largest one, until the end.
    is_open: bool,
    length: u64,
    remaining: u64,
    piece: Bytes,
    trailers: Vec<(String, String)>,
    pace: Pace,
    /// Time for which the sender was waited for. None: it was not asked for anything yet.
    waited: Option<Duration>,
    received: u64,
    ended: bool,
    invited: bool,
}

impl Payload {
    /// `length` is the expected length of the payload without framing.
    pub fn new(source: Source, length: u64, pace: Pace) -> Payload {
        Payload {
            source,
            framing: None,
            range: (0, u64::MAX),
            expected: None,
            hash: None,
            is_open: false,
            length,
            remaining: length,
            piece: Bytes::new(),
            trailers: Vec::new(),
            pace,
            waited: None,
            received: 0,
            ended: false,
            invited: false,
        }
    }

    /// Sets the length of the payload, once it is known.
    pub fn of_length(mut self, length: u64) -> Payload {
        self.length = length;
        self.remaining = length;
        self
    }

    /// For a sender that does not say the length: it has at most `limit` bytes.
    pub fn of_length_up_to(mut self, limit: u64) -> Payload {
        self.is_open = true;
        self.of_length(limit)
    }

    /// As `of_length`, in place.
    pub fn expect(&mut self, length: u64) {
        self.length = length;
        self.remaining = length;
    }

    /// Records whether the sender waits for `100 Continue` before it sends.
    pub fn invited(mut self, waits: bool) -> Payload {
        self.invited = waits;
        self
    }

    /// Whether the sender still waits: no data has been requested from it.
    pub fn awaits_invitation(&self) -> bool {
        self.invited && self.waited.is_none()
    }

    /// Marks the payload as aws-chunked.
    pub fn framed(mut self, dechunker: Dechunker) -> Payload {
        self.framing = Some(Framing::Chunks(Box::new(dechunker)));
        self
    }

    /// Makes this the payload of a form's file, whose first bytes were read together with the
    /// form's fields. `rest` is the length of the body from there on, and `range` the size that the
    /// policy allows.
    pub fn of_form(mut self, end: FileEnd, read: Bytes, rest: u64, range: (u64, u64)) -> Payload {
        self.length = rest.saturating_sub(end.tail());
        self.remaining = self.length;
        self.framing = Some(Framing::Form(end));
        self.range = range;
        self.piece = read;
        self.ended = false;
        self
    }

    /// Sets the required SHA-256 of the payload.
    pub fn hashed(mut self, expected: [u8; 32]) -> Payload {
        self.expected = Some(expected);
        self.hash = Some(digest::Context::new(&digest::SHA256));
        self
    }

    /// The SHA-256 that the signature covers, once the whole payload was found to have it.
    pub fn verified_sha256(&self) -> Option<[u8; 32]> {
        self.expected.filter(|_| self.ended)
    }

    /// The length of the payload in bytes. Of a form's file, and of a sender that does not say it:
    /// the length that it has at most, until its end.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The length of the payload in bytes, if it is known before its end.
    pub fn known_length(&self) -> Option<u64> {
        let is_open = self.is_open && !self.ended;
        (!is_open && !matches!(self.framing, Some(Framing::Form(_)))).then_some(self.length)
    }

    /// The trailers; complete once `next` has returned `None`.
    pub fn trailers(&self) -> &[(String, String)] {
        &self.trailers
    }

    /// The next piece, or `None` once everything has arrived and has been verified.
    pub async fn next(&mut self) -> S3Result<Option<Bytes>> {
        if self.ended {
            return Ok(None);
        }
        loop {
            let piece = match &mut self.framing {
                Some(Framing::Chunks(dechunker)) => dechunker.next(&mut self.piece).map_err(chunk_refusal)?,
                Some(Framing::Form(end)) => end.next(&mut self.piece),
                None => (!self.piece.is_empty()).then(|| std::mem::take(&mut self.piece)),
            };
            if let Some(piece) = piece {
                self.account(&piece)?;
                return Ok(Some(piece));
            }
            match self.receive().await? {
                Some(piece) => self.piece = piece,
                None => {
                    self.end()?;
                    return Ok(None);
                }
            }
        }
    }

    /// The whole payload in one piece of at most `limit` bytes.
    pub async fn collect(&mut self, limit: u64) -> S3Result<Bytes> {
        if self.length > limit {
            return Err(refuse(
                S3ErrorCode::MaxMessageLengthExceeded,
                format!("Your request was too big: at most {limit} bytes are accepted here."),
            ));
        }
        let Some(first) = self.next().await? else {
            return Ok(Bytes::new());
        };
        let Some(mut piece) = self.next().await? else {
            return Ok(first);
        };
        let mut whole = Vec::with_capacity(self.length as usize);
        whole.extend_from_slice(&first);
        loop {
            whole.extend_from_slice(&piece);
            match self.next().await? {
                Some(next) => piece = next,
                None => return Ok(whole.into()),
            }
        }
    }

    /// Reads and drops the rest of an unwanted payload, up to `limit` bytes and `patience`, so that
    /// a refused sender can read the refusal. Returns whether the body was read to its end.
    pub async fn drain(&mut self, limit: u64, patience: Duration) -> bool {
        if self.ended {
            return true;
        }
        #[cfg_attr(not(test), allow(clippy::infallible_destructuring_match))]
        let incoming = match &mut self.source {
            #[cfg(test)]
            Source::Held(_) => return true,
            Source::Wire(incoming) => incoming,
        };
        let mut read = 0;
        let reading = async {
            while read <= limit {
                match incoming.frame().await {
                    Some(Ok(frame)) => {
                        read += frame.data_ref().map_or(0, |data| data.len() as u64);
                    }
                    Some(Err(_)) => return false,
                    None => return true,
                }
            }
            false
        };
        timeout(patience, reading).await.unwrap_or(false)
    }

    fn account(&mut self, piece: &Bytes) -> S3Result<()> {
        let length = piece.len() as u64;
        if self.length - self.remaining + length > self.range.1 {
            return Err(refuse(
                S3ErrorCode::EntityTooLarge,
                "Your proposed upload exceeds the maximum allowed size of the form's policy.",
            ));
        }
        if length > self.remaining && self.is_open {
            let text = format!("the body may have at most {} bytes here", self.length);
            let mut error = refuse(S3ErrorCode::EntityTooLarge, text);
            error.set_status_code(StatusCode::PAYLOAD_TOO_LARGE);
            return Err(error);
        }
        if length > self.remaining {
            return Err(refuse(
                S3ErrorCode::IncompleteBody,
                "The request body holds more bytes than its declared length.",
            ));
        }
        self.remaining -= length;
        if let Some(hash) = &mut self.hash {
            hash.update(piece);
        }
        Ok(())
    }

    fn end(&mut self) -> S3Result<()> {
        match &mut self.framing {
            Some(Framing::Chunks(dechunker)) => self.trailers = dechunker.finish().map_err(chunk_refusal)?,
            Some(Framing::Form(end)) => {
                if !end.is_found() {
                    return Err(incomplete());
                }
                if self.length - self.remaining < self.range.0 {
                    return Err(refuse(
                        S3ErrorCode::EntityTooSmall,
                        "Your proposed upload is smaller than the minimum allowed size of the form's policy.",
                    ));
                }
                self.length -= std::mem::take(&mut self.remaining);
            }
            None if self.is_open => self.length -= std::mem::take(&mut self.remaining),
            None => {}
        }
        if self.remaining > 0 {
            return Err(incomplete());
        }
        if let (Some(hash), Some(expected)) = (self.hash.take(), self.expected)
            && hash.finish().as_ref() != expected
        {
            return Err(payload_hash_mismatch());
        }
        self.ended = true;
        Ok(())
    }

    async fn receive(&mut self) -> S3Result<Option<Bytes>> {
        #[cfg_attr(not(test), allow(clippy::infallible_destructuring_match))]
        let incoming = match &mut self.source {
            #[cfg(test)]
            Source::Held(pieces) => return Ok(pieces.pop_front()),
            Source::Wire(incoming) => incoming,
        };
        let waited = self.waited.get_or_insert_default();
        loop {
            let asked = Instant::now();
            let frame = match timeout(self.pace.silence_max, incoming.frame()).await {
                Err(_) => return Err(too_slow()),
                Ok(None) => return Ok(None),
                Ok(Some(Err(_))) => return Err(incomplete()),
                Ok(Some(Ok(frame))) => frame,
            };
            // No signature covers HTTP's own trailers, so they are ignored.
            let Ok(data) = frame.into_data() else {
                continue;
            };
            self.received += data.len() as u64;
            // The reader may have been busy meanwhile, and the sender is no slower for that.
            *waited += asked.elapsed();
            if *waited > self.pace.grace && self.received < self.pace.rate_min * waited.as_secs() {
                return Err(too_slow());
            }
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }
}

fn incomplete() -> S3Error {
    refuse(
        S3ErrorCode::IncompleteBody,
        "You did not provide the number of bytes specified by the Content-Length HTTP header.",
    )
}

fn too_slow() -> S3Error {
    refuse(
        S3ErrorCode::RequestTimeout,
        "Your socket connection to the server was not read from or written to within the timeout period.",
    )
}

fn chunk_refusal(error: ChunkError) -> S3Error {
    match error {
        ChunkError::Framing(why) => {
            refuse(S3ErrorCode::InvalidRequest, format!("The aws-chunked body is malformed: {why}."))
        }
        ChunkError::Incomplete => incomplete(),
        ChunkError::Signature => {
            refuse(S3ErrorCode::SignatureDoesNotMatch, "The signature of a chunk of the body does not match.")
        }
        ChunkError::Trailer(why) => {
            malformed_trailer(format!("The request contained trailing data that was not well-formed: {why}."))
        }
    }
}

#[cfg(test)]
mod tests;
