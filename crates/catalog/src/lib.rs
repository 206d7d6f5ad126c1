//! Floor 2: the catalog, an ordered record store whose transactions are values.
//!
//! The catalog knows tables, keys and values, all of them bytes; the archive, one floor up, decides
//! the meaning of a record. A [`Transaction`] names its preconditions and its changes.
//! [`Catalog::commit`] makes all changes durable or none. A [`Snapshot`] reads one consistent state
//! for as long as it is held.
//!
//! [`MemoryCatalog`] is the simple twin: a `BTreeMap` behind the same trait, and the oracle of
//! every other catalog.

pub mod catalog;
pub mod embedded;
pub mod error;
pub mod memory;
pub mod pending;
pub mod range;
pub mod suite;
pub mod transaction;

pub use catalog::{Catalog, Record, Snapshot};
pub use embedded::{EmbeddedCatalog, Format, InlineCatalog, Loader, Options, Status, format};
pub use error::{CatalogError, Failure};
pub use memory::MemoryCatalog;
pub use pending::Pending;
pub use range::{Direction, KeyRange};
pub use transaction::{
    Head, KEY_MAX, Link, Mutation, Outcome, Piece, Precondition, Receipt, Reserve, TRANSACTION_MAX, Table, Template,
    Transaction, VALUE_MAX, link,
};
