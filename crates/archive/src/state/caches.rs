//! Caches of content and keys, so that a read need not fetch and open them again.
//!
//! Every cache is bounded. A removal takes everything of its object out of them before its key is
//! destroyed.

use std::sync::Arc;

use bytes::Bytes;
use zeroize::Zeroizing;

use crate::cache::Cache;
use crate::model::principal::Rights;
use crate::model::time::Timestamp;
use crate::seal::Secret;
use crate::state::shared::Shared;

/// Access keys kept.
const ACCESS_KEYS: usize = 1024;

/// The opened frames of a piece.
pub(crate) type Frames = Arc<[Bytes]>;

/// An access key as frontends need it.
pub(crate) struct KnownKey {
    pub secret: Zeroizing<String>,
    pub rights: Arc<Rights>,
    pub expires: Option<Timestamp>,
    /// The catalog's row that this was decoded from. The entry counts only while the catalog holds
    /// the same row.
    pub raw: Bytes,
}

pub(crate) struct Caches {
    access_keys: Shared<Cache<String, Arc<KnownKey>>>,
    /// Unwrapped keys of objects.
    object_keys: Shared<Cache<u64, Arc<Secret>>>,
    /// The only frame of each small object, by stream and frame.
    frames: Shared<Cache<(u64, u32), Bytes>>,
    /// Opened pieces of larger objects, by stream and number of the first frame.
    pieces: Shared<Cache<(u64, u32), Frames>>,
}

impl Caches {
    /// `object_keys`: keys kept; `frames` and `pieces`: bytes kept.
    pub fn new(object_keys: usize, frames: u64, pieces: u64) -> Caches {
        let bytes = |limit: u64| usize::try_from(limit).unwrap_or(0);
        Caches {
            access_keys: Shared::new(Cache::new(ACCESS_KEYS)),
            object_keys: Shared::new(Cache::new(object_keys)),
            frames: Shared::new(Cache::new(bytes(frames))),
            pieces: Shared::new(Cache::new(bytes(pieces))),
        }
    }

    pub fn access_key(&self, id: &str) -> Option<Arc<KnownKey>> {
        self.access_keys.step(|keys| keys.get(&id.to_string()))
    }

    pub fn keep_access_key(&self, id: &str, key: Arc<KnownKey>) {
        self.access_keys.step(|keys| keys.insert(id.into(), key, 1));
    }

    pub fn object_key(&self, object: u64) -> Option<Arc<Secret>> {
        self.object_keys.step(|keys| keys.get(&object))
    }

    pub fn keep_object_key(&self, object: u64, key: Arc<Secret>) {
        self.object_keys.step(|keys| keys.insert(object, key, 1));
    }

    pub fn forget_object_key(&self, object: u64) {
        self.object_keys.step(|keys| keys.remove(&object));
    }

    pub fn frame(&self, stream: u64, frame: u32) -> Option<Bytes> {
        self.frames.step(|frames| frames.get(&(stream, frame)))
    }

    pub fn keep_frame(&self, stream: u64, frame: u32, content: Bytes, weight: usize) {
        self.frames.step(|frames| frames.insert((stream, frame), content, weight));
    }

    pub fn forget_frame(&self, stream: u64) {
        self.frames.step(|frames| frames.remove(&(stream, 0)));
    }

    pub fn piece(&self, stream: u64, first_frame: u32) -> Option<Frames> {
        self.pieces.step(|pieces| pieces.get(&(stream, first_frame)))
    }

    pub fn keep_piece(&self, stream: u64, first_frame: u32, piece: Frames, weight: usize) {
        self.pieces.step(|pieces| pieces.insert((stream, first_frame), piece, weight));
    }

    pub fn forget_pieces(&self, stream: u64) {
        self.pieces.step(|pieces| pieces.remove_range((stream, 0)..=(stream, u32::MAX)));
    }
}
