//! Cuts the stream into PDUs. Many small ones are read at once; the data of a large one goes from
//! the socket directly into its final buffer. Whatever the peer sends, the memory is bounded by one
//! PDU of the announced size and [`STAGE`] bytes.

use crc_fast::{CrcAlgorithm, checksum};
use stele_media::{Buffer, Shared};

use super::pdu::{Frame, HEADER, Header, padding};

/// Bytes read at once.
const STAGE: usize = 64 << 10;
/// Data of this length or more goes directly into its buffer.
const DIRECT_MIN: usize = 16 << 10;

/// The reason why the stream cannot be read further.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Broken {
    /// More data than we announced to accept.
    TooLong(usize),
    HeaderDigest,
    DataDigest,
}

/// A PDU whose header has arrived and whose data has not.
struct Partial {
    header: Header,
    additional: Vec<u8>,
    /// Data, padding and digest.
    body: Buffer,
    have: usize,
}

pub struct Framing {
    stage: Vec<u8>,
    start: usize,
    end: usize,
    partial: Option<Partial>,
    pub header_digest: bool,
    pub data_digest: bool,
    /// The longest data segment that is accepted.
    pub data_max: usize,
}

impl Framing {
    pub fn new(data_max: usize) -> Framing {
        Framing {
            stage: vec![0; STAGE],
            start: 0,
            end: 0,
            partial: None,
            header_digest: false,
            data_digest: false,
            data_max,
        }
    }

    /// The space to read into; never empty after `frame` has asked for more.
    pub fn space(&mut self) -> &mut [u8] {
        if let Some(partial) = &mut self.partial {
            return partial.body.get_mut(partial.have..).unwrap_or_default();
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.stage.len() {
            self.stage.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.stage.get_mut(self.end..).unwrap_or_default()
    }

    /// Records the number of bytes read into `space`.
    pub fn filled(&mut self, count: usize) {
        match &mut self.partial {
            Some(partial) => partial.have = (partial.have + count).min(partial.body.len()),
            None => self.end = (self.end + count).min(self.stage.len()),
        }
    }

    /// Bytes that arrived after the last PDU.
    pub fn rest(&self) -> &[u8] {
        self.stage.get(self.start..self.end).unwrap_or_default()
    }

    /// Whether a PDU has arrived partly.
    pub fn is_amid(&self) -> bool {
        self.partial.is_some() || self.start < self.end
    }

    /// Takes bytes that were read elsewhere: in tests, and together with a login.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let space = self.space();
        let count = space.len().min(bytes.len());
        if let (Some(to), Some(from)) = (space.get_mut(..count), bytes.get(..count)) {
            to.copy_from_slice(from);
        }
        self.filled(count);
        count
    }

    /// The next PDU, if it has arrived completely.
    pub fn frame(&mut self) -> Result<Option<Frame>, Broken> {
        if self.partial.is_none() && !self.begin()? {
            return Ok(None);
        }
        match self.partial.take() {
            Some(partial) if partial.have == partial.body.len() => self.finish(partial).map(Some),
            partial => {
                self.partial = partial;
                Ok(None)
            }
        }
    }

    /// Takes a header from the stage, with the part of its data that is there. Returns false if the
    /// header is incomplete.
    fn begin(&mut self) -> Result<bool, Broken> {
        let staged = self.stage.get(self.start..self.end).unwrap_or_default();
        let Some(first) = staged.first_chunk::<HEADER>() else { return Ok(false) };
        let header = Header(*first);
        let length = header.data_length();
        if length > self.data_max {
            return Err(Broken::TooLong(length));
        }
        let head = HEADER + header.additional_length();
        let digest = if self.header_digest { 4 } else { 0 };
        if staged.len() < head + digest {
            return Ok(false);
        }
        if self.header_digest && !agrees(staged.get(..head), staged.get(head..head + 4)) {
            return Err(Broken::HeaderDigest);
        }
        let body = match length {
            0 => 0,
            length => length + padding(length) + if self.data_digest { 4 } else { 0 },
        };
        let here = staged.get(head + digest..).unwrap_or_default();
        // A short body waits for its rest in the stage, where the next PDUs arrive with it.
        if here.len() < body && body < DIRECT_MIN {
            return Ok(false);
        }
        let have = here.len().min(body);
        let additional = staged.get(HEADER..head).unwrap_or_default().to_vec();
        let mut buffer = Buffer::stale(body);
        if let (Some(to), Some(from)) = (buffer.get_mut(..have), here.get(..have)) {
            to.copy_from_slice(from);
        }
        self.start += head + digest + have;
        self.partial = Some(Partial { header, additional, body: buffer, have });
        Ok(true)
    }

    fn finish(&self, partial: Partial) -> Result<Frame, Broken> {
        let Partial { header, additional, body, .. } = partial;
        let length = header.data_length();
        if self.data_digest && length > 0 {
            let covered = length + padding(length);
            if !agrees(body.get(..covered), body.get(covered..covered + 4)) {
                return Err(Broken::DataDigest);
            }
        }
        let data = if length == 0 { Shared::new() } else { body.freeze().slice(..length) };
        Ok(Frame { header, additional, data })
    }
}

fn agrees(covered: Option<&[u8]>, digest: Option<&[u8]>) -> bool {
    covered.is_some_and(|covered| digest == Some(&digest_of(&[covered])))
}

/// CRC-32C of the pieces one after another, in the byte order of the protocol.
pub fn digest_of(pieces: &[&[u8]]) -> [u8; 4] {
    let sum = match pieces {
        [only] => checksum(CrcAlgorithm::Crc32Iscsi, only),
        pieces => {
            let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
            pieces.iter().for_each(|piece| digest.update(piece));
            digest.finalize()
        }
    };
    (sum as u32).to_le_bytes()
}
