//! Numbers that are never handed out twice. Objects, versions, streams, notes and incarnations
//! share one sequence.
//!
//! The catalog holds a bound below which numbers may be in use. The bound is raised in steps before
//! use, so a crash skips numbers and never repeats one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stele_catalog::{Catalog, Transaction};
use tokio::sync::Mutex;

use crate::model::error::Result;
use crate::record::settings::ReservedRow;
use crate::record::{SETTINGS, encode};

pub(crate) struct Numbers {
    catalog: Arc<dyn Catalog>,
    name: &'static [u8],
    step: u64,
    next: AtomicU64,
    /// Numbers below may be given out.
    below: AtomicU64,
    raising: Mutex<()>,
}

impl Numbers {
    /// Continues from the stored bound. With a bound of 0 the sequence is new and starts at
    /// `first`.
    pub fn new(catalog: Arc<dyn Catalog>, name: &'static [u8], step: u64, stored: u64, first: u64) -> Numbers {
        let next = stored.max(first);
        Numbers {
            catalog,
            name,
            step,
            next: AtomicU64::new(next),
            below: AtomicU64::new(next),
            raising: Mutex::new(()),
        }
    }

    pub async fn next(&self) -> Result<u64> {
        loop {
            let number = self.next.load(Ordering::Relaxed);
            let below = self.below.load(Ordering::Acquire);
            if number < below {
                if self.next.compare_exchange(number, number + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    return Ok(number);
                }
                continue;
            }
            let _raising = self.raising.lock().await;
            if self.below.load(Ordering::Acquire) != below {
                continue;
            }
            let row = ReservedRow { below: below + self.step };
            // Deletions need numbers too, so this may use the reserve. The bound is durable before
            // a number below it is used.
            let transaction = Transaction::new().put(SETTINGS, self.name, encode(&row)).with_reserve();
            self.catalog.commit(transaction).await?;
            self.below.store(row.below, Ordering::Release);
        }
    }

    /// The end (exclusive) of the numbers that were handed out.
    pub fn given(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// For an orderly close: no number at or above the next one is in use, so none needs to be
    /// skipped.
    pub fn settle(&self, transaction: Transaction) -> Transaction {
        transaction.put(SETTINGS, self.name, encode(&ReservedRow { below: self.given() }))
    }
}
