//! NFS versions 3 and 4.1 over TCP: MOUNT 3, NFS 3, NLM 4, NSM 1 and NFS 4.1 ([`v4`]) on one
//! connection, in front of any [`crate::Files`].
//!
//! A byte stream comes in ([`serve_connection`]); no socket is opened here. One task serves a
//! connection. It reads as many calls as have arrived, starts all of them, and sends every answer
//! that is ready with one vectored write. Content is not copied, except where a short piece would
//! keep a long buffer in memory. A read goes out as the pieces that [`crate::Files::read`]
//! answered, and a write comes in as slices of the receive buffer. A gateway that keeps such a
//! slice for long copies it, because the slice keeps its whole receive buffer in memory.
//!
//! XDR is read and written by [`xdr`]. The crate `nfs3_types` was considered and not used. It
//! copies opaque data out of a reader into a new vector, allocates what a length on the wire says
//! before the bytes are there, and packs answers through a writer field by field. Each of these
//! costs more than a 4 KiB read may cost here.
//!
//! Limits: a record has [`record::RECORD_MAX`] bytes in [`record::FRAGMENTS_MAX`] fragments; a
//! connection has [`Options::requests_max`] requests and [`Options::bytes_max`] bytes under way,
//! and stops reading beyond them. All connections together have [`Options::all_bytes_max`] bytes,
//! and one call each beyond that.

pub mod attributes;
mod budget;
pub mod connection;
pub mod counters;
pub mod export;
pub mod handle;
mod mount;
mod nlm;
pub mod notify;
mod outbox;
pub mod places;
pub mod portmap;
mod procedures;
pub mod record;
mod replay;
pub mod rpc;
pub mod server;
pub mod status;
pub mod v4;
pub mod xdr;

#[cfg(test)]
pub(crate) mod testing;

pub use connection::{ConnectionEnd, serve_connection, serve_shares};
pub use counters::{Counters, Program};
pub use export::{AwaitedExport, Export, ExportError, Network, Rule, Squash};
pub use handle::Handle;
pub use server::{Options, Server};
