//! The server: opens the sockets, and hands byte streams to the frontends.

pub mod admin;
pub mod background;
pub mod block;
pub mod ending;
mod handshakes;
pub mod iscsi;
pub mod messages;
mod nfs;
pub mod notify;
pub mod s3;
pub mod services;
mod smb;
pub mod snapshot;
pub mod tls;
