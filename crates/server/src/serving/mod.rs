//! The server: opens the sockets, and hands byte streams to the frontends.

mod accepting;
pub mod address_space;
pub mod admin;
pub mod background;
pub mod block;
mod checkpoints;
pub mod ending;
mod handshakes;
mod head_places;
pub mod http;
mod inventories;
pub mod iscsi;
mod lanes;
pub mod messages;
mod nfs;
mod notifications;
pub mod notify;
pub mod open_files;
mod renewal;
pub mod s3;
pub(crate) mod seldom;
pub mod services;
mod smb;
pub mod snapshot;
mod syslog;
pub mod tls;
