//! Frames: content sealed in units of 64 KiB, each bound to object, stream, number and length.

use crate::seal::{NotAuthentic, Salt, SealingKey, TAG, derive};

/// Bytes of content in a full frame.
pub(crate) const FRAME: usize = 64 << 10;
/// A full frame on the volume.
pub(crate) const SEALED_FRAME: usize = FRAME + TAG;

/// Seals and opens the frames of one stream.
pub(crate) struct StreamKey {
    key: SealingKey,
    object: u64,
    stream: u64,
}

impl StreamKey {
    pub fn new(object_key: &[u8; 32], object: u64, stream: u64, salt: &Salt) -> StreamKey {
        StreamKey { key: SealingKey::new(&derive(object_key, "stream", salt)), object, stream }
    }

    pub fn seal(&self, number: u32, frame: &mut [u8]) -> [u8; TAG] {
        self.key.seal(number.into(), &self.bound(number, frame.len()), frame)
    }

    /// Opens a frame and its tag in place. The first bytes are then the content.
    pub fn open(&self, number: u32, sealed: &mut [u8]) -> Result<(), NotAuthentic> {
        let (frame, tag) = sealed.split_last_chunk_mut::<TAG>().ok_or(NotAuthentic)?;
        self.key.open(number.into(), &self.bound(number, frame.len()), frame, tag)
    }

    fn bound(&self, number: u32, length: usize) -> [u8; 24] {
        let mut bound = [0; 24];
        bound[..8].copy_from_slice(&self.object.to_be_bytes());
        bound[8..16].copy_from_slice(&self.stream.to_be_bytes());
        bound[16..20].copy_from_slice(&number.to_be_bytes());
        bound[20..].copy_from_slice(&(length as u32).to_be_bytes());
        bound
    }
}

/// Bytes that this much content takes when sealed.
pub(crate) fn sealed_length(content: usize) -> usize {
    content + content.div_ceil(FRAME) * TAG
}

/// Bytes of content in frames of this sealed length.
pub(crate) fn content_length(sealed: usize) -> usize {
    sealed - sealed.div_ceil(SEALED_FRAME) * TAG
}

#[cfg(test)]
mod tests;
