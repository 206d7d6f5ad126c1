//! How the catalog and the data volume of a store stand to each other.

/// How catalog and data volume stand to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Paired {
    Yes,
    /// The data volume is further on: nothing the catalog knows is newer.
    CatalogOlder(String),
    /// The catalog may know what the data volume does not.
    No(String),
}
