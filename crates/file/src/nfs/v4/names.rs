//! Names in requests.
//!
//! A name that a request makes is valid UTF-8. A name that a request looks for may be any bytes, so
//! that a client reaches the files that other protocols made; READDIR lists such names as they are.
//! Names are compared byte by byte.

use bytes::Bytes;

use super::super::xdr::Reader;
use super::{Failure, Outcome, status};
use crate::model::NAME_MAX;

/// The longest name that is read from the wire; a longer one is no name of this protocol.
const WIRE_MAX: usize = 64 << 10;

/// A name to look for.
pub fn wanted(reader: &mut Reader) -> Outcome<Bytes> {
    let name = reader.opaque(WIRE_MAX)?;
    let status = match &name[..] {
        [] => status::INVAL,
        b"." | b".." => status::BADNAME,
        name if name.len() > NAME_MAX => status::NAMETOOLONG,
        name if name.contains(&b'/') || name.contains(&0) => status::BADCHAR,
        _ => return Ok(name),
    };
    Err(Failure::Status(status))
}

/// A name to make.
pub fn made(reader: &mut Reader) -> Outcome<Bytes> {
    let name = wanted(reader)?;
    match std::str::from_utf8(&name) {
        Ok(_) => Ok(name),
        Err(_) => Err(Failure::Status(status::INVAL)),
    }
}
