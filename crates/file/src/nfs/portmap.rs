//! The client's side of the port mapper, version 2: tells rpcbind which ports the programs have.
//!
//! rpcbind takes registrations over TCP only from this machine, and by default only from a port
//! below 1024. The caller opens such a stream.

use std::fmt;
use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::counters::Program;
use super::rpc::{self, Reply};
use super::xdr::{Malformed, Writer};

const PROGRAM: u32 = 100_000;
const VERSION: u32 = 2;
const SET: u32 = 1;
const UNSET: u32 = 2;
const TCP: u32 = 6;
/// An answer of the port mapper is shorter.
const ANSWER_MAX: u32 = 1024;
const LAST_FRAGMENT: u32 = 1 << 31;

#[derive(Debug)]
pub enum PortmapError {
    Io(io::Error),
    /// The port mapper answered something else than yes or no.
    Malformed,
    /// The port mapper did not register the program.
    Refused(Program),
}

impl fmt::Display for PortmapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortmapError::Io(error) => write!(f, "rpcbind cannot be asked: {error}"),
            PortmapError::Malformed => f.write_str("rpcbind gave an answer that cannot be read"),
            PortmapError::Refused(program) => {
                let (number, version) = program.number();
                write!(f, "rpcbind does not register program {number} version {version}")
            }
        }
    }
}

impl std::error::Error for PortmapError {}

impl From<io::Error> for PortmapError {
    fn from(error: io::Error) -> PortmapError {
        PortmapError::Io(error)
    }
}

/// The record that registers a program over TCP.
pub fn set(xid: u32, program: Program, port: u16) -> Vec<u8> {
    mapping(xid, SET, program, port)
}

/// The record that removes every registration of a program's version.
pub fn unset(xid: u32, program: Program) -> Vec<u8> {
    mapping(xid, UNSET, program, 0)
}

/// The port mapper's answer to either call, given without its record mark.
pub fn answer(xid: u32, record: Bytes) -> Result<bool, Malformed> {
    rpc::results(record, xid)?.bool()
}

fn mapping(xid: u32, procedure: u32, program: Program, port: u16) -> Vec<u8> {
    let mut call = rpc::call(xid, PROGRAM, VERSION, procedure);
    let (number, version) = program.number();
    for word in [number, version, TCP, u32::from(port)] {
        call.put_u32(word);
    }
    Reply::of(call).head
}

/// Registers all programs at a port, in place of an earlier server's registrations.
pub async fn register<S>(stream: &mut S, port: u16) -> Result<(), PortmapError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut xid = 1;
    for program in Program::ALL {
        // There may be nothing to remove, which is no failure.
        ask(stream, xid, unset(xid, program)).await?;
        if !ask(stream, xid + 1, set(xid + 1, program, port)).await? {
            return Err(PortmapError::Refused(program));
        }
        xid += 2;
    }
    Ok(())
}

/// Removes the registrations of all programs.
pub async fn unregister<S>(stream: &mut S) -> Result<(), PortmapError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    for (xid, program) in (1..).zip(Program::ALL) {
        ask(stream, xid, unset(xid, program)).await?;
    }
    Ok(())
}

async fn ask<S>(stream: &mut S, xid: u32, call: Vec<u8>) -> Result<bool, PortmapError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(&call).await?;
    stream.flush().await?;
    let mark = stream.read_u32().await?;
    let length = mark & !LAST_FRAGMENT;
    if mark & LAST_FRAGMENT == 0 || length > ANSWER_MAX {
        return Err(PortmapError::Malformed);
    }
    let mut record = vec![0; length as usize];
    stream.read_exact(&mut record).await?;
    answer(xid, record.into()).map_err(|Malformed| PortmapError::Malformed)
}

#[cfg(test)]
mod tests;
