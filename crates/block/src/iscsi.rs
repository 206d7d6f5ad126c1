//! iSCSI (RFC 7143): login, sessions, and the transport of SCSI commands. [`crate::scsi`]
//! implements the commands.
//!
//! All parts are state machines over bytes: [`Login`] until a session is agreed on, [`Discovery`]
//! for discovery sessions, and [`Connection`] for a connection of a normal session. The connections
//! of a target share a [`Shared`]: its unit, its sessions, and the order of their commands.
//! [`IscsiSession`] runs on the volume's reactor and moves the bytes. Error recovery level 0: an
//! error on a connection ends it, and the initiator connects again.

pub mod chap;
pub mod connection;
pub mod discovery;
pub mod framing;
pub mod login;
pub mod node;
pub mod parameters;
pub mod pdu;
pub mod session;
pub mod shared;
pub mod text;

mod management;
mod outbox;
mod respond;
mod transfer;

pub use chap::{Credentials, Terms};
pub use connection::Connection;
pub use discovery::Discovery;
pub use login::{Login, LoginResult, LoginRules, Next, Targets};
pub use node::{Keeper, Node};
pub use session::IscsiSession;
pub use shared::Shared;

/// The port assigned by IANA.
pub const PORT: u16 = 3260;

/// The rule for iSCSI names (RFC 7143, 4.2.7.1), as far as it can be checked.
pub fn check_target(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".:-".contains(c);
    let (kind, rest) = name.split_at_checked(4).unwrap_or_default();
    let digits = |lengths: &[usize]| {
        let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let is_one = lengths.contains(&rest.len()) && rest.chars().all(is_digit);
        is_one.then_some(()).ok_or_else(|| {
            let lengths = lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
            format!("'{name}' cannot name an iSCSI target: {kind} is followed by {lengths} hexadecimal digits, in lower case")
        })
    };
    match kind {
        "eui." => return digits(&[16]),
        "naa." => return digits(&[16, 32]),
        "iqn." if !rest.is_empty() && name.len() <= 223 && name.chars().all(plain) => return Ok(()),
        _ => {}
    }
    Err(format!(
        "'{name}' cannot name an iSCSI target: iqn.YYYY-MM.reversed.domain:name, in lower case, at most 223 characters"
    ))
}

#[cfg(test)]
mod tests;
