//! The SCSI half of the iSCSI frontend: a logical unit's answers to commands (SPC-5, SBC-4),
//! without a transport.
//!
//! A [`Unit`] is synchronous: a command begins, asks for operations of the drive one after another,
//! and ends in a [`Reply`]. It never waits, reads no clock and does no I/O. One thread can
//! therefore carry any number of units, and a test can place any completion at any moment.

mod attention;
mod cdb;
mod command;
mod control;
mod copy;
mod exec;
mod field;
mod imposed;
mod inquiry;
mod lanes;
mod mode;
mod opcodes;
mod persistent;
mod registrations;
mod reply;
mod report;
mod reserve;
mod sense;
mod unit;
mod verbs;

pub use cdb::{Prepared, decode};
pub use command::{Blocks, ScsiCommand};
pub use exec::{Answer, Ask, Exec, ExecStep, Reached, Search};
pub use field::{be16, be24, be32, be64, octet};
pub use imposed::{Held, Imposed};
pub use inquiry::{absent, is_named, naa};
pub use persistent::Reservations;
pub use reply::{Reply, Status};
pub use sense::Sense;
pub use unit::{NexusId, Port, Profile, Reset, Unit, UnitId};

/// The supported opcodes, for tests.
#[cfg(test)]
pub fn opcodes_listed() -> Vec<u8> {
    opcodes::OPCODES.iter().map(|entry| entry.opcode).collect()
}
