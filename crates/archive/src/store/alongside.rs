//! A change of the file gateway that takes effect with a version: both in one transaction, or
//! neither.
//!
//! The archive hands the gateway a function that commits. The gateway computes its change on its
//! own view of the catalog, calls the function within the same step, and keeps what it has to
//! settle. Where the gateway's part of the preconditions fails, the change is computed anew and
//! committed again, a bounded number of times.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use stele_catalog::{CatalogError, Pending, Receipt, Transaction};

use crate::model::error::{ArchiveError, Result};
use crate::model::version::ObjectInfo;
use crate::store::Store;
use crate::store::gateway::foreign_table;

/// Commits the gateway's part together with the archive's.
pub type CommitBoth<'a> = &'a mut dyn FnMut(Transaction) -> Pending<Receipt>;

/// What the gateway changes when a version becomes the content of a file.
pub trait Alongside: Send + Sync {
    /// Waits until the gateway's view of the catalog is known. Comes before each `submit`.
    fn prepare(&self) -> BoxFuture<'_, Result<()>>;

    /// Computes the change for this version and commits it with `commit`. It does not wait. An
    /// error refuses the version.
    fn submit(&self, version: &ObjectInfo, commit: CommitBoth<'_>) -> Result<Pending<Receipt>>;

    /// The transaction of the last `submit` was answered.
    fn settle(&self, took_place: bool);
}

/// Where the body of an object goes in a share, once it has arrived.
#[derive(Clone)]
pub struct Placement {
    /// The archive's key of the file.
    pub key: String,
    /// What the gateway adds to the metadata of the version.
    pub metadata: BTreeMap<String, String>,
    pub alongside: Arc<dyn Alongside>,
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placement").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Store {
    /// Commits both parts as one transaction. The archive's preconditions come first, so that their
    /// places are known.
    pub(super) fn commit_both(&self, mut own: Transaction, change: Transaction) -> Pending<Receipt> {
        if let Some(table) = foreign_table(&change) {
            let message = format!("table {} is none of the file gateway's", table.0);
            return Pending::ready(Err(CatalogError::Invalid(message)));
        }
        own.preconditions.extend(change.preconditions);
        own.mutations.extend(change.mutations);
        self.catalog.commit(own)
    }
}

/// The change failed as often as it is tried.
pub(super) fn contended() -> ArchiveError {
    ArchiveError::Busy("many others change the same files; try again".into())
}
