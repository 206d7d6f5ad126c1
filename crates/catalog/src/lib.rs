//! Floor 2: the catalog, an ordered record store whose transactions are values.
//!
//! The catalog knows tables, keys and values, all of them bytes; what a record means is decided one
//! floor up. A [`Transaction`] names what must hold and what shall change; [`Catalog::commit`] makes
//! all of it durable or none; a [`Snapshot`] reads one consistent state however long it is held.
//!
//! [`MemoryCatalog`] is the dull twin: a `BTreeMap` behind the same trait, the oracle of every other.

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
