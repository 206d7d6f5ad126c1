//! The catalog's errors for failures of its volume. Only damage calls for a rebuild: data that is merely out of reach
//! comes back, with its drives or with time.

use stele_media::{MediaError, MediaFault};

use crate::CatalogError;

/// The remedy for a damaged B-tree.
pub(crate) const REBUILD: &str = "; if it stays so, rebuild the catalog from the data volume";

/// `what` says which access failed; `remedy` is added if the data is damaged.
pub(crate) fn of_media(what: &str, error: &MediaError, remedy: &str) -> CatalogError {
    match error.fault {
        MediaFault::Damaged => CatalogError::Damaged(format!("{what}: {error}{remedy}")),
        MediaFault::Retry => CatalogError::Busy,
        MediaFault::Full | MediaFault::Refused | MediaFault::Invalid | MediaFault::Gone => {
            CatalogError::Stopped(format!("{what}: {error}"))
        }
    }
}
