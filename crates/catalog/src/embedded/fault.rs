//! The catalog's errors for failures of its volume. A volume calls data damaged while the drives
//! that hold it are away, too. So a rebuild comes last: it loses what the data volume does not
//! know.

use stele_media::{MediaError, MediaFault};

use crate::CatalogError;

/// The remedy for a damaged B-tree.
pub(crate) const REBUILD: &str = "; return missing drives if some are away, and start the server again; only if it \
    stays so, rebuild the catalog from the data volume";

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
