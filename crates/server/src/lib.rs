//! What runs a store: the configuration, the node that opens a pool and its archive, the calls of
//! administration, the sockets that serve them, and the connection by which a command reaches all
//! this.
//!
//! The command line and what people read of it are in the crate `stele`.

mod apart;
pub mod api;
pub mod bucket;
pub mod config;
pub mod connection;
pub mod drives;
pub mod evidence;
pub mod exports;
pub mod failure;
pub mod files;
pub mod log;
pub mod moment;
pub mod named;
pub mod named_counts;
pub mod node;
pub mod reservations;
pub mod said;
pub mod serving;
pub mod whole;
pub mod witness;
