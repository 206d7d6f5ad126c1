//! Whether the catalog and the data volume of a store belong together.

/// The relation of the catalog to the data volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Paired {
    Yes,
    /// The data volume is ahead: the catalog is an older copy and knows nothing newer.
    CatalogOlder(String),
    /// The catalog may know changes that the data volume does not have.
    No(String),
}
