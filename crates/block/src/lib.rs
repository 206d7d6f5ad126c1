//! Floor 4, the block frontend: volumes as network block devices. It stands on [`stele_media`] alone and never knows whether
//! a volume is an array's or a piece of memory.
//!
//! No socket is opened here: whoever accepts a connection hands over a [`Stream`]. A connection is a
//! [`stele_media::Guest`]: it lives on the reactor that owns the volume, reads as many requests as have arrived with one
//! call, hands them to the volume, and sends as many answers as are there with one call.
//!
//! The command path of all protocols is [`Disk`]: buffers are owned and travel with the operation, and are copied only
//! between the socket and themselves.

pub mod counters;
pub mod disk;
pub mod export;
pub mod iscsi;
pub mod nbd;
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
pub use target::{Directory, Target};
