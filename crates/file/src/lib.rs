//! Floor 4, the file gateway: a bucket as a tree of files, under the same retention as its objects.
//!
//! Every protocol (NFS, FUSE, and SMB above FUSE) translates its requests into calls of [`Files`].
//! What a caller may do, and what retention forbids, is decided behind that trait and in the
//! archive. No socket is opened here: a server hands over byte streams.

pub mod error;
pub mod files;
pub mod fuse;
pub mod locks;
pub mod memory;
pub mod model;
pub mod nfs;
pub mod permission;
mod rules;
pub mod samba;
pub mod share;
pub mod suite;

pub use error::{FileError, Result};
pub use files::{
    Changed, Creation, Data, DirectoryEntry, Entry, Files, Listing, Node, Removal, Sought, Space, Stability,
};
pub use memory::MemoryFiles;
pub use model::{Access, Attributes, Caller, Changes, Inode, Kind, Moment, SetTime};
pub use share::Share;
