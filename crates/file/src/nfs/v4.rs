//! NFS version 4.1 (RFC 8881): COMPOUND, sessions, opens and locks, in front of any
//! [`crate::Files`].
//!
//! It shares the port, the connections, the exports, the handles and the lock table with version 3.
//! A call runs its operations one after another ([`compound`]). [`clients`] holds all that the
//! server remembers of clients: their records, sessions, slots with the answers to repeated calls,
//! opens and locks. It is in memory, and a client loses it [`LEASE`] after its last call. The
//! server makes no calls of its own: there are no delegations, no layouts and no back channel.
//!
//! After a restart, clients claim their opens and locks again during the grace period. The server
//! keeps no list of those that had any, so it takes the claims of every client then, as it does for
//! NLM. The files of a share that opens later are claimed during a grace period of its own.

pub mod attributes;
mod bitmap;
pub mod clients;
mod compound;
mod names;
mod opens;
mod operations;
mod pseudo;
mod sessions;
pub mod stateid;
pub mod status;

use std::time::Duration;

use super::xdr::Malformed;
use crate::FileError;
use crate::locks::Held;

pub use clients::Clients;
pub use compound::start;

/// The procedure beside NULL.
pub const COMPOUND: u32 = 1;

/// How long a client may be silent before it loses its opens and locks.
pub const LEASE: Duration = Duration::from_secs(45);
/// Operations of one COMPOUND.
pub const OPERATIONS_MAX: u32 = 64;
/// Bytes of all results of one COMPOUND but a READ of the usual form.
pub const RESULTS_MAX: usize = 64 << 10;
/// Clients that the server knows at once.
pub const CLIENTS_MAX: usize = 4096;
/// Of those, clients of one address. At either bound, the oldest client that has made no session
/// goes first.
pub const CLIENTS_PER_ADDRESS: usize = 512;
/// Sessions of one client.
pub const SESSIONS_MAX: usize = 16;
/// Requests under way in one session.
pub const SLOTS_MAX: u32 = 64;
/// Bytes of one kept answer.
pub const KEPT_MAX: u32 = 4 << 10;
/// Bytes that a slot may keep whatever its client asked for: the answer to a lone SEQUENCE.
pub const KEPT_MIN: usize = 128;
/// Bytes that all sessions may keep. A new session gets fewer slots near this bound, and none at
/// it.
pub const KEPT_TOTAL: usize = 64 << 20;
/// Of those, bytes of the sessions of one address.
pub const KEPT_PER_ADDRESS: usize = KEPT_TOTAL / 4;
/// Opens and lock owners of one client.
pub const STATES_MAX: usize = 1 << 16;
/// Opens and lock owners of all clients. A lock owner counts until it is freed, also while it holds
/// no lock.
pub const STATES_TOTAL: usize = 1 << 18;
/// The longest name of a client, an open owner or a lock owner (NFS4_OPAQUE_LIMIT).
pub const OPAQUE_MAX: usize = 1024;

/// The names of the operations, by number. The numbers 0 and 1 are the procedures.
pub const OPERATIONS: [&str; 59] = [
    "null",
    "compound",
    "",
    "access",
    "close",
    "commit",
    "create",
    "delegpurge",
    "delegreturn",
    "getattr",
    "getfh",
    "link",
    "lock",
    "lockt",
    "locku",
    "lookup",
    "lookupp",
    "nverify",
    "open",
    "openattr",
    "open_confirm",
    "open_downgrade",
    "putfh",
    "putpubfh",
    "putrootfh",
    "read",
    "readdir",
    "readlink",
    "remove",
    "rename",
    "renew",
    "restorefh",
    "savefh",
    "secinfo",
    "setattr",
    "setclientid",
    "setclientid_confirm",
    "verify",
    "write",
    "release_lockowner",
    "backchannel_ctl",
    "bind_conn_to_session",
    "exchange_id",
    "create_session",
    "destroy_session",
    "free_stateid",
    "get_dir_delegation",
    "getdeviceinfo",
    "getdevicelist",
    "layoutcommit",
    "layoutget",
    "layoutreturn",
    "secinfo_no_name",
    "sequence",
    "set_ssv",
    "test_stateid",
    "want_delegation",
    "destroy_clientid",
    "reclaim_complete",
];

/// The numbers of the operations.
pub mod number {
    pub const ACCESS: u32 = 3;
    pub const CLOSE: u32 = 4;
    pub const COMMIT: u32 = 5;
    pub const CREATE: u32 = 6;
    pub const DELEGPURGE: u32 = 7;
    pub const DELEGRETURN: u32 = 8;
    pub const GETATTR: u32 = 9;
    pub const GETFH: u32 = 10;
    pub const LINK: u32 = 11;
    pub const LOCK: u32 = 12;
    pub const LOCKT: u32 = 13;
    pub const LOCKU: u32 = 14;
    pub const LOOKUP: u32 = 15;
    pub const LOOKUPP: u32 = 16;
    pub const NVERIFY: u32 = 17;
    pub const OPEN: u32 = 18;
    pub const OPEN_DOWNGRADE: u32 = 21;
    pub const PUTFH: u32 = 22;
    pub const PUTPUBFH: u32 = 23;
    pub const PUTROOTFH: u32 = 24;
    pub const READ: u32 = 25;
    pub const READDIR: u32 = 26;
    pub const READLINK: u32 = 27;
    pub const REMOVE: u32 = 28;
    pub const RENAME: u32 = 29;
    pub const RESTOREFH: u32 = 31;
    pub const SAVEFH: u32 = 32;
    pub const SECINFO: u32 = 33;
    pub const SETATTR: u32 = 34;
    pub const VERIFY: u32 = 37;
    pub const WRITE: u32 = 38;
    pub const BACKCHANNEL_CTL: u32 = 40;
    pub const BIND_CONN_TO_SESSION: u32 = 41;
    pub const EXCHANGE_ID: u32 = 42;
    pub const CREATE_SESSION: u32 = 43;
    pub const DESTROY_SESSION: u32 = 44;
    pub const FREE_STATEID: u32 = 45;
    pub const SECINFO_NO_NAME: u32 = 52;
    pub const SEQUENCE: u32 = 53;
    pub const TEST_STATEID: u32 = 55;
    pub const DESTROY_CLIENTID: u32 = 57;
    pub const RECLAIM_COMPLETE: u32 = 58;
    /// The largest number of minor version 1.
    pub const LAST: u32 = RECLAIM_COMPLETE;
    pub const ILLEGAL: u32 = 10_044;
}

/// Why an operation has no results.
#[derive(Debug)]
pub enum Failure {
    Status(u32),
    /// The lock of another owner, which the answer shows.
    Denied(Box<Held>),
}

impl From<Malformed> for Failure {
    fn from(_: Malformed) -> Failure {
        Failure::Status(status::BADXDR)
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        Failure::Status(status::of(&error))
    }
}

impl From<u32> for Failure {
    fn from(status: u32) -> Failure {
        Failure::Status(status)
    }
}

pub type Outcome<T = ()> = Result<T, Failure>;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
