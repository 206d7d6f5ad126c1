//! What a request waits for before it is served: its turn, and memory for its document. Both are
//! bounded in all, and for one access key.
//!
//! A request holds its turn until the client has taken the answer, and a slow client is served for
//! long. It takes the memory of its whole document before the first byte arrives. The bounds of one
//! access key leave turns and memory for the others, wherever its clients are. The bound of a
//! host's connections, which is below that of all turns, does the same for clients without a key.

use super::Frontend;
use super::keyed::{KeyedPermit, KeyedSemaphore};
use crate::refusal::refuse;
use crate::settings::Settings;
use s3s::{S3ErrorCode, S3Result};
use stele_archive::Actor;
use tokio::time::timeout;

/// The unit in bytes for accounting whole bodies.
pub(super) const DOCUMENT_UNIT: u64 = 64 * 1024;
/// One access key has the memory for documents divided by this, but room for the largest document.
const DOCUMENTS_OF_KEY: u64 = 4;

pub(super) fn turns(settings: &Settings) -> KeyedSemaphore {
    KeyedSemaphore::new(settings.requests_max, settings.requests_per_key)
}

pub(super) fn document_memory(settings: &Settings) -> KeyedSemaphore {
    let all = settings.documents_bytes_max / DOCUMENT_UNIT;
    let largest = settings.document_bytes_max.div_ceil(DOCUMENT_UNIT);
    KeyedSemaphore::new(all as usize, (all / DOCUMENTS_OF_KEY).max(largest) as usize)
}

impl Frontend {
    /// Waits for a turn, at most for the queue's patience.
    pub(crate) async fn turn(&self, actor: &Actor) -> S3Result<KeyedPermit> {
        self.patiently(&self.turns, actor, 1).await
    }

    /// Waits as long for the memory of a document.
    pub(super) async fn room(&self, actor: &Actor, length: u64) -> S3Result<Option<KeyedPermit>> {
        let units = length.min(self.settings.document_bytes_max).div_ceil(DOCUMENT_UNIT);
        match u32::try_from(units) {
            Ok(0) | Err(_) => Ok(None),
            Ok(units) => self.patiently(&self.documents, actor, units).await.map(Some),
        }
    }

    pub(super) async fn patiently(&self, stock: &KeyedSemaphore, actor: &Actor, count: u32) -> S3Result<KeyedPermit> {
        match timeout(self.settings.queue_patience, stock.take(actor, count)).await {
            Ok(Some(permit)) => Ok(permit),
            _ => {
                self.metrics.request_shed();
                Err(refuse(S3ErrorCode::SlowDown, "Please reduce your request rate."))
            }
        }
    }
}
