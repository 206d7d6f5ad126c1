//! The aws-chunked framing: `SIZE[;chunk-signature=HEX] CRLF DATA CRLF ... 0 CRLF trailers CRLF`.
//!
//! A state machine over pieces of any size. The payload leaves as slices of the input, without a
//! copy. The signature of a chunk is checked at its end, after its data has gone on. Nothing is
//! acknowledged before the whole body has ended correctly, so the data of a forged chunk is dropped
//! with the body.
//!
//! A signed trailer may have an empty line before `x-amz-trailer-signature`, as minio-go writes it.
//!
//! Limits: a size line of 1 KiB, trailers of 16 KiB. A chunk may be of any size, since no chunk is
//! stored here.

use crate::sigv4::ChunkSigner;
use bytes::{Buf, Bytes};

const LINE_MAX: usize = 1024;
const TRAILERS_MAX: usize = 16 * 1024;

/// The reason why a chunked body is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkError {
    /// It violates the framing; the text names the place.
    Framing(&'static str),
    /// It ends before its last chunk.
    Incomplete,
    /// The signature of a chunk or of the trailer is missing or wrong.
    Signature,
    /// The trailer cannot be parsed, or was announced and is missing.
    Trailer(&'static str),
}

enum State {
    Size,
    Data { remaining: u64 },
    DataEnd { signature: Option<[u8; 64]> },
    Trailers,
}

/// Parses a chunked body.
pub struct Dechunker {
    state: State,
    signer: Option<ChunkSigner>,
    trailer_signed: bool,
    line: Vec<u8>,
    // The signature of the chunk whose data is being read.
    signature: Option<[u8; 64]>,
    trailers: Vec<(String, String)>,
    trailer_signature: Option<String>,
    // An empty line came although the signature of the trailers is still missing.
    parted: bool,
    ended: bool,
}

impl Dechunker {
    /// A body whose chunks `signer` verifies (`None`: unsigned), with or without a signed trailer.
    pub fn new(signer: Option<ChunkSigner>, trailer_signed: bool) -> Dechunker {
        Dechunker {
            state: State::Size,
            signer,
            trailer_signed,
            line: Vec::new(),
            signature: None,
            trailers: Vec::new(),
            trailer_signature: None,
            parted: false,
            ended: false,
        }
    }

    /// Consumes `input` until it is empty or payload appears, which is returned.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, ChunkError> {
        while !input.is_empty() {
            match self.state {
                State::Size => {
                    if self.take_line(input, LINE_MAX, ChunkError::Framing("chunk size line too long"))? {
                        self.start_chunk()?;
                    }
                }
                State::Data { remaining } => {
                    let length = remaining.min(input.len() as u64);
                    let piece = input.split_to(length as usize);
                    if let Some(signer) = &mut self.signer {
                        signer.update(&piece);
                    }
                    self.state = if length == remaining {
                        State::DataEnd { signature: self.signature.take() }
                    } else {
                        State::Data { remaining: remaining - length }
                    };
                    return Ok(Some(piece));
                }
                State::DataEnd { signature } => {
                    // CR and LF may arrive in two pieces.
                    let expected = if self.line.is_empty() { b'\r' } else { b'\n' };
                    if input[0] != expected {
                        return Err(ChunkError::Framing("no line end after chunk data"));
                    }
                    input.advance(1);
                    if expected == b'\r' {
                        self.line.push(b'\r');
                        continue;
                    }
                    self.line.clear();
                    self.check_chunk(signature)?;
                    self.state = State::Size;
                }
                State::Trailers => {
                    let bound = ChunkError::Trailer("trailers beyond 16 KiB");
                    if self.take_line(input, TRAILERS_MAX, bound)? {
                        let line = std::mem::take(&mut self.line);
                        self.take_trailer(&line)?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Ends the body: checks that it is complete, and returns the trailers.
    pub fn finish(&mut self) -> Result<Vec<(String, String)>, ChunkError> {
        if !matches!(self.state, State::Trailers) {
            return Err(ChunkError::Incomplete);
        }
        // A last trailer line may lack its line end.
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.take_trailer(&line)?;
        }
        if let (Some(signer), true) = (&mut self.signer, self.trailer_signed) {
            let Some(signature) = &self.trailer_signature else {
                return Err(ChunkError::Trailer("no x-amz-trailer-signature"));
            };
            let mut sorted: Vec<_> = self.trailers.iter().collect();
            sorted.sort();
            let lines: String = sorted.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
            if !signer.trailer(lines.as_bytes(), signature.as_bytes()) {
                return Err(ChunkError::Signature);
            }
        }
        Ok(std::mem::take(&mut self.trailers))
    }

    // Moves input into `line` up to the line end, which is left out; returns true when the line is
    // complete.
    fn take_line(&mut self, input: &mut Bytes, limit: usize, beyond: ChunkError) -> Result<bool, ChunkError> {
        let end = input.iter().position(|byte| *byte == b'\n');
        let piece = input.split_to(end.unwrap_or(input.len()));
        if self.line.len() + piece.len() > limit {
            return Err(beyond);
        }
        self.line.extend_from_slice(&piece);
        if end.is_none() {
            return Ok(false);
        }
        input.advance(1);
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(true)
    }

    fn start_chunk(&mut self) -> Result<(), ChunkError> {
        let framing = ChunkError::Framing("malformed chunk size line");
        let line = std::mem::take(&mut self.line);
        let text = std::str::from_utf8(&line).map_err(|_| framing)?;
        let (size, extension) = match text.split_once(';') {
            Some((size, extension)) => (size, Some(extension)),
            None => (text, None),
        };
        let signature = extension
            .and_then(|extension| extension.strip_prefix("chunk-signature="))
            .and_then(|hex| <[u8; 64]>::try_from(hex.as_bytes()).ok());
        if self.signer.is_some() && signature.is_none() {
            return Err(ChunkError::Signature);
        }
        // Sixteen digits would be an exabyte; a longer number is an attack on the parser.
        if size.is_empty() || size.len() > 15 || !size.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(framing);
        }
        let remaining = u64::from_str_radix(size, 16).map_err(|_| framing)?;
        self.line = line;
        self.line.clear();
        if remaining == 0 {
            self.check_chunk(signature)?;
            self.state = State::Trailers;
        } else {
            self.signature = signature;
            self.state = State::Data { remaining };
        }
        Ok(())
    }

    fn check_chunk(&mut self, signature: Option<[u8; 64]>) -> Result<(), ChunkError> {
        let genuine = match (&mut self.signer, signature) {
            (None, _) => true,
            (Some(signer), Some(signature)) => signer.chunk(&signature),
            (Some(_), None) => false,
        };
        genuine.then_some(()).ok_or(ChunkError::Signature)
    }

    fn take_trailer(&mut self, line: &[u8]) -> Result<(), ChunkError> {
        if line.is_empty() {
            // minio-go ends the signed lines with LF, as they are signed, and puts an empty line
            // before their signature.
            let awaits_signature = self.trailer_signed && self.trailer_signature.is_none() && !self.trailers.is_empty();
            if awaits_signature && !self.parted {
                self.parted = true;
            } else {
                self.ended = true;
            }
            return Ok(());
        }
        if self.ended {
            return Err(ChunkError::Framing("bytes after the end of the body"));
        }
        let malformed = ChunkError::Trailer("a trailer line is not NAME:VALUE");
        let text = std::str::from_utf8(line).map_err(|_| malformed)?;
        let (name, value) = text.split_once(':').ok_or(malformed)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        if self.trailers.len() >= 16 {
            return Err(ChunkError::Trailer("more than 16 trailers"));
        }
        if name == "x-amz-trailer-signature" {
            self.trailer_signature = Some(value);
        } else if self.parted {
            return Err(ChunkError::Trailer("a trailer behind the empty line that ends them"));
        } else {
            self.trailers.push((name, value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
