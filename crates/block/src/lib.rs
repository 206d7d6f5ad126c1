//! Floor 4, the block frontend: volumes as network block devices. It depends on [`stele_media`]
//! alone, and does not know whether a volume belongs to an array or to memory.
//!
//! This crate opens no socket: the server accepts a connection and hands over a [`Stream`]. A
//! connection is a [`stele_media::ReactorSession`] on the reactor that owns the volume. With one
//! call each, it reads all requests that have arrived, and sends all answers that are ready.
//!
//! The command path of all protocols is [`Disk`]. Buffers are owned and travel with the operation;
//! data is copied only between the socket and the buffers.

pub mod counters;
pub mod disk;
pub mod export;
pub mod iscsi;
pub mod nbd;
mod progress;
pub mod scsi;
pub mod share;
pub mod stream;
pub mod target;
#[cfg(test)]
mod testing;

pub use counters::{ConnectionView, Counters};
pub use disk::Disk;
pub use export::{Access, Export, Network, Peer, Protocol};
pub use share::{Limits, Share};
pub use stream::Stream;
pub use target::{Directory, Pause, Target};
