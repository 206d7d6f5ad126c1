//! The catalog, volume, keys and services below a store, and the options of an opening.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use stele_catalog::Catalog;
use stele_ground::Bytes as Size;
use stele_media::Handle;

use crate::model::error::Result;
use crate::model::mutation::Mutations;
use crate::model::notification::EVENTS_PENDING_MAX;
use crate::model::secrets::MasterKey;
use crate::model::time::Surroundings;

/// Protects the storage below from removal while anything on it is retained. For a pool: the
/// volumes' protection.
pub trait Guard: Send + Sync + 'static {
    /// With `true`, the protection must be durable before this returns, because the first retained
    /// version is committed after it. It may be repeated.
    fn protect(&self, retained: bool) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
}

/// For stores without protected storage: tests and benchmarks.
#[derive(Clone, Copy, Debug)]
pub struct NoGuard;

impl Guard for NoGuard {
    fn protect(&self, _retained: bool) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Everything below a store.
#[derive(Clone)]
pub struct Foundation {
    pub catalog: Arc<dyn Catalog>,
    /// The data volume.
    pub data: Handle,
    pub surroundings: Arc<dyn Surroundings>,
    pub guard: Arc<dyn Guard>,
    pub master: MasterKey,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Of a new store; a power of two from 256 KiB to 1 GiB.
    pub segment: Size,
    /// Plain and sealed bytes of all bodies on their way to the volume.
    pub in_flight: Size,
    /// Opened frames kept for readers; 0 keeps none.
    pub frame_cache: Size,
    /// The same for pieces of objects with more than one frame.
    pub piece_cache: Size,
    /// Unwrapped object keys kept; about 200 bytes each.
    pub key_cache: usize,
    /// Answers reads and refuses every change with `ReadOnly`. A command without a server opens the
    /// store like this.
    pub read_only: bool,
    /// The targets of notifications that have a sender. None: it is not known.
    pub notification_targets: Option<Arc<BTreeSet<String>>>,
    /// Events that may wait for one target.
    pub events_pending_max: u64,
    /// Removed protections, in tests.
    pub without: Mutations,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment: Size(64 << 20),
            in_flight: Size(96 << 20),
            frame_cache: Size(64 << 20),
            piece_cache: Size(128 << 20),
            key_cache: 65_536,
            read_only: false,
            notification_targets: None,
            events_pending_max: EVENTS_PENDING_MAX,
            without: Mutations::default(),
        }
    }
}
