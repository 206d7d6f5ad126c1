//! Compression of one chunk: zstd, skipped for content that does not shrink.
//!
//! A chunk longer than [`SAMPLE`] is first tried with a part from its middle. Compressed films,
//! archives and encrypted files fail that trial, and the rest of the chunk costs nothing.

use crate::chunker::CHUNK_MAX;
use crate::error::{BackupError, Result};

/// Bytes of the trial.
const SAMPLE: usize = 16 << 10;

/// A chunk is stored compressed if that saves at least one part in this many.
const WORTHWHILE: usize = 32;

pub const LEVEL_DEFAULT: i32 = 1;
pub const LEVEL_MAX: i32 = 19;

/// The state of one thread that compresses.
pub struct Compressor {
    inner: zstd::bulk::Compressor<'static>,
    output: Vec<u8>,
}

impl Compressor {
    pub fn new(level: i32) -> Result<Compressor> {
        let inner = zstd::bulk::Compressor::new(level).map_err(refused)?;
        Ok(Compressor { inner, output: Vec::new() })
    }

    /// The compressed content. None: it does not shrink enough.
    pub fn compress(&mut self, raw: &[u8]) -> Result<Option<&[u8]>> {
        if raw.len() >= 4 * SAMPLE {
            let from = raw.len() / 2;
            let sample = raw.get(from..from + SAMPLE).unwrap_or(raw);
            if !self.attempt(sample)? {
                return Ok(None);
            }
        }
        Ok(if self.attempt(raw)? { Some(&self.output) } else { None })
    }

    /// Compresses into the output. Whether that was worthwhile.
    fn attempt(&mut self, raw: &[u8]) -> Result<bool> {
        self.output.clear();
        self.output.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        let length = self.inner.compress_to_buffer(raw, &mut self.output).map_err(refused)?;
        Ok(length < raw.len() - raw.len() / WORTHWHILE)
    }
}

fn refused(error: std::io::Error) -> BackupError {
    BackupError::Failed(format!("the compression library failed: {error}"))
}

/// The state of one thread that decompresses.
pub struct Decompressor(zstd::bulk::Decompressor<'static>);

impl Decompressor {
    pub fn new() -> Result<Decompressor> {
        zstd::bulk::Decompressor::new().map(Decompressor).map_err(refused)
    }

    /// Decompresses content of exactly `length` bytes into `output`.
    pub fn decompress(&mut self, stored: &[u8], length: usize, output: &mut Vec<u8>) -> Result<()> {
        output.clear();
        if length > CHUNK_MAX {
            return Err(BackupError::damaged("a chunk exceeds the longest length"));
        }
        output.reserve(length);
        let written = self.0.decompress_to_buffer(stored, output);
        match written {
            Ok(written) if written == length => Ok(()),
            _ => Err(BackupError::damaged("a chunk does not decompress to its length")),
        }
    }
}

#[cfg(test)]
mod tests;
