//! The protection of the volumes below: they cannot be removed while anything on them is retained
//! or held.
//!
//! The protection is durable before the first retained version is committed. Requests hold it
//! shared until their commit has answered; lifting it takes it alone, so that it is never lifted
//! under a commit.

use std::sync::Arc;

use stele_catalog::{Direction, KeyRange};
use tokio::sync::{RwLock, RwLockReadGuard};

use crate::model::error::{ArchiveError, Result};
use crate::record::{HOLDS, MATTER_HOLDS, RETAINED, keys};
use crate::store::Store;
use crate::store::foundation::Guard;

pub(crate) struct Protection {
    guard: Arc<dyn Guard>,
    /// The guard knows that something is retained.
    protected: RwLock<bool>,
}

/// While this is held, the protection is not lifted.
pub(crate) type Protected<'a> = RwLockReadGuard<'a, bool>;

impl Protection {
    pub fn new(guard: Arc<dyn Guard>) -> Protection {
        Protection { guard, protected: RwLock::new(false) }
    }
}

impl Store {
    /// Has the guard protect the volumes, once, before anything retained is committed. The caller
    /// holds the answer until its commit has answered.
    pub async fn ensure_protected(&self) -> Result<Protected<'_>> {
        let Protection { guard, protected } = &self.protection;
        loop {
            let held = protected.read().await;
            if *held {
                return Ok(held);
            }
            drop(held);
            let mut held = protected.write().await;
            if !*held {
                guard.protect(true).await.map_err(|error| {
                    ArchiveError::Stopped(format!(
                        "the volumes could not be marked as retained: {error}; nothing was stored"
                    ))
                })?;
                *held = true;
            }
        }
    }

    /// Lifts the protection if no version is retained or held any more. Nothing is lifted while the
    /// compliance clock is frozen or the matter `rebuild` stands.
    pub async fn unprotect_if_free(&self) -> Result<bool> {
        let mut held = self.protection.protected.write().await;
        if !*held || self.frozen().is_some() || self.doubt().is_some() {
            return Ok(false);
        }
        if self.retains()? {
            return Ok(false);
        }
        // A commit may be under way whose request went away. Once the barrier has taken effect, so
        // has that commit.
        self.barrier().await?;
        if self.retains()? {
            return Ok(false);
        }
        // Before the guard is told: if that fails or is dropped midway, the next retained version
        // protects them again.
        *held = false;
        self.protection.guard.protect(false).await.map_err(|error| {
            ArchiveError::Stopped(format!("the volumes could not be marked as free of retention: {error}"))
        })?;
        Ok(true)
    }

    /// Whether any version is retained or held.
    fn retains(&self) -> Result<bool> {
        let now = self.compliance_now();
        let snapshot = self.snapshot()?;
        let later = KeyRange::all().from(keys::numbers(now.0.saturating_add(1), 0));
        let retained = !snapshot.range(RETAINED, &later, 1, Direction::Forward)?.is_empty();
        let any =
            |table| -> Result<bool> { Ok(!snapshot.range(table, &KeyRange::all(), 1, Direction::Forward)?.is_empty()) };
        Ok(retained || any(HOLDS)? || any(MATTER_HOLDS)?)
    }
}
