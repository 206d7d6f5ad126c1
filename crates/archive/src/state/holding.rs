//! The order between puts under matters and the close of a matter.
//!
//! A put reads that its matter is open, and commits. A close must not take effect in between: its
//! job could then find nothing left to release before the put commits, and the version would be
//! under a closed matter.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[derive(Default)]
pub(crate) struct Holding(RwLock<()>);

impl Holding {
    /// Held by a put from its check to its commit.
    pub async fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().await
    }

    /// Held by a close while it commits. A put whose request went away may still have a commit
    /// under way: the close waits for a barrier too.
    pub async fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().await
    }
}
