//! Requests of the transmission phase, parsed and checked.

use super::PAYLOAD_MAX;
use super::wire::{EXTENDED_REQUEST, Errno, Fields, REQUEST, cmd_flag};

pub const PLAIN_SIZE: usize = 28;
pub const EXTENDED_SIZE: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NbdCommand {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    Unknown(u16),
}

impl NbdCommand {
    fn from_number(number: u16) -> NbdCommand {
        match number {
            0 => NbdCommand::Read,
            1 => NbdCommand::Write,
            2 => NbdCommand::Disconnect,
            3 => NbdCommand::Flush,
            4 => NbdCommand::Trim,
            5 => NbdCommand::Cache,
            6 => NbdCommand::WriteZeroes,
            7 => NbdCommand::BlockStatus,
            other => NbdCommand::Unknown(other),
        }
    }

    /// Flags that the command uses. All commands accept FUA: some clients set it everywhere.
    fn flags(self) -> u16 {
        cmd_flag::FUA
            | match self {
                NbdCommand::Read => cmd_flag::DF,
                NbdCommand::WriteZeroes => cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO,
                NbdCommand::BlockStatus => cmd_flag::REQ_ONE,
                _ => 0,
            }
    }

    fn changes(self) -> bool {
        matches!(self, NbdCommand::Write | NbdCommand::Trim | NbdCommand::WriteZeroes)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub flags: u16,
    pub command: NbdCommand,
    pub cookie: u64,
    pub at: u64,
    pub length: u64,
}

/// The stream is no longer understood: the start of the next request is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Garbled;

impl Request {
    /// The next request and its size; `None` while it is incomplete.
    pub fn parse(bytes: &[u8], extended: bool) -> Result<Option<(Request, usize)>, Garbled> {
        let (magic, size) = if extended { (EXTENDED_REQUEST, EXTENDED_SIZE) } else { (REQUEST, PLAIN_SIZE) };
        let mut fields = Fields(bytes);
        match fields.u32() {
            Some(found) if found != magic => return Err(Garbled),
            _ if bytes.len() < size => return Ok(None),
            _ => {}
        }
        let mut parse = || {
            let (flags, command) = (fields.u16()?, fields.u16()?);
            let (cookie, at) = (fields.u64()?, fields.u64()?);
            let length = if extended { fields.u64()? } else { u64::from(fields.u32()?) };
            Some(Request { flags, command: NbdCommand::from_number(command), cookie, at, length })
        };
        Ok(parse().map(|request| (request, size)))
    }

    /// Bytes that follow it in the stream.
    pub fn payload(&self, extended: bool) -> u64 {
        let follows = match extended {
            false => self.command == NbdCommand::Write,
            true => self.flags & cmd_flag::PAYLOAD_LEN != 0,
        };
        if follows { self.length } else { 0 }
    }

    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Refuses invalid requests before they reach the volume. Offsets and lengths count in `block`.
    pub fn judge(&self, size: u64, block: u64, read_only: bool, extended: bool) -> Result<(), (Errno, &'static str)> {
        let payload_flag = if extended && self.command == NbdCommand::Write { cmd_flag::PAYLOAD_LEN } else { 0 };
        if self.flags & !(self.command.flags() | payload_flag) != 0 {
            return Err((Errno::Invalid, "a flag that this command does not have"));
        }
        if let NbdCommand::Unknown(_) = self.command {
            return Err((Errno::Invalid, "a command that this server does not know"));
        }
        if matches!(self.command, NbdCommand::Flush | NbdCommand::Disconnect) {
            return Ok(());
        }
        if payload_flag != 0 && !self.has(payload_flag) {
            return Err((Errno::Invalid, "a write without its payload"));
        }
        if self.command.changes() && read_only {
            return Err((Errno::Perm, "the export is read-only"));
        }
        if self.length == 0 {
            return Err((Errno::Invalid, "an empty request"));
        }
        if self.at.checked_add(self.length).is_none_or(|end| end > size) {
            let errno = if self.command.changes() { Errno::NoSpace } else { Errno::Invalid };
            return Err((errno, "beyond the end of the volume"));
        }
        if matches!(self.command, NbdCommand::Read | NbdCommand::Write) && self.length > u64::from(PAYLOAD_MAX) {
            let errno = if self.has(cmd_flag::DF) { Errno::Overflow } else { Errno::Invalid };
            return Err((errno, "larger than the announced maximum of 32 MiB"));
        }
        let exact = matches!(self.command, NbdCommand::Read | NbdCommand::Write | NbdCommand::WriteZeroes);
        if exact && !(self.at.is_multiple_of(block) && self.length.is_multiple_of(block)) {
            return Err((Errno::Invalid, "misaligned: offset and length count in the announced minimum block size"));
        }
        Ok(())
    }
}
