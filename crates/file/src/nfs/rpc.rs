//! ONC RPC version 2 (RFC 5531): the header of a call, its credentials, and the answers that RPC
//! itself gives.

use bytes::Bytes;

use super::xdr::{Malformed, Reader, Writer, padding};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const VERSION: u32 = 2;

const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
/// RFC 9289: a client asks whether the server speaks TLS.
const AUTH_TLS: u32 = 7;
/// The verifier of a server that does.
const STARTTLS: &[u8] = b"STARTTLS";

/// The longest body of credentials or of a verifier.
const AUTH_BODY_MAX: usize = 400;
const MACHINE_NAME_MAX: usize = 255;
/// Supplementary groups of AUTH_SYS.
pub const GROUPS_MAX: usize = 16;

const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
pub const AUTH_BAD_CREDENTIALS: u32 = 1;
pub const AUTH_TOO_WEAK: u32 = 5;

/// Bytes of an accepted answer before the procedure's results: mark, xid, REPLY, ACCEPTED,
/// verifier, SUCCESS.
pub const HEAD: usize = 28;
/// Room for the results of nearly every procedure.
const BODY: usize = 192;
const LAST_FRAGMENT: u32 = 1 << 31;

/// The user that a call claims, before an export's rules map it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credentials {
    None,
    Sys { uid: u32, gid: u32, groups: Vec<u32> },
    Tls,
}

/// A call, up to the arguments of its procedure.
#[derive(Clone, Debug)]
pub struct Call {
    pub xid: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub credentials: Credentials,
    pub arguments: Reader,
}

/// Why a record is no call that can be dispatched.
#[derive(Debug)]
pub enum Refusal {
    /// Nothing to answer: too short, or not a call.
    Silent,
    /// Answer this.
    Answer(Reply),
}

impl Call {
    pub fn parse(record: Bytes) -> Result<Call, Refusal> {
        let mut reader = Reader::new(record);
        let (Ok(xid), Ok(CALL)) = (reader.u32(), reader.u32()) else { return Err(Refusal::Silent) };
        let garbage = |_| Refusal::Answer(Reply::refused(xid, Accepted::GarbageArguments));
        let version = reader.u32().map_err(garbage)?;
        if version != VERSION {
            return Err(Refusal::Answer(Reply::version_mismatch(xid)));
        }
        let program = reader.u32().map_err(garbage)?;
        let version = reader.u32().map_err(garbage)?;
        let procedure = reader.u32().map_err(garbage)?;
        let bad = |_| Refusal::Answer(Reply::unauthenticated(xid, AUTH_BAD_CREDENTIALS));
        let credentials = credentials(&mut reader).map_err(bad)?;
        reader.u32().map_err(garbage)?;
        reader.borrowed(AUTH_BODY_MAX).map_err(garbage)?;
        Ok(Call { xid, program, version, procedure, credentials, arguments: reader })
    }
}

fn credentials(reader: &mut Reader) -> Result<Credentials, Malformed> {
    let flavor = reader.u32()?;
    let length = reader.u32()? as usize;
    if length > AUTH_BODY_MAX || length > reader.remaining() {
        return Err(Malformed);
    }
    let rest = reader.remaining() - length.next_multiple_of(4).min(reader.remaining());
    let found = match flavor {
        AUTH_NONE => Credentials::None,
        AUTH_TLS => Credentials::Tls,
        AUTH_SYS => {
            reader.u32()?;
            reader.borrowed(MACHINE_NAME_MAX)?;
            let (uid, gid, count) = (reader.u32()?, reader.u32()?, reader.u32()? as usize);
            if count > GROUPS_MAX {
                return Err(Malformed);
            }
            let groups = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
            Credentials::Sys { uid, gid, groups }
        }
        _ => return Err(Malformed),
    };
    // The body's own lengths must end inside it.
    let unread = reader.remaining().checked_sub(rest).ok_or(Malformed)?;
    reader.skip(unread)?;
    Ok(found)
}

/// Why RPC accepted a call and has no results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    ProgramUnavailable,
    /// The lowest and highest version that the program has here.
    ProgramMismatch(u32, u32),
    ProcedureUnavailable,
    GarbageArguments,
}

/// An answer as one record: encoded bytes that begin with the record mark, and content behind them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Reply {
    pub head: Vec<u8>,
    /// Content as the gateway answered it; sent without a copy.
    pub content: Vec<Bytes>,
}

impl Reply {
    /// The head of results; the caller appends them.
    pub fn success(xid: u32) -> Vec<u8> {
        let mut head = Vec::with_capacity(HEAD + BODY);
        accepted(&mut head, xid, &[], 0);
        head
    }

    pub fn refused(xid: u32, why: Accepted) -> Reply {
        let mut head = Vec::with_capacity(HEAD + 8);
        let status = match why {
            Accepted::ProgramUnavailable => 1,
            Accepted::ProgramMismatch(..) => 2,
            Accepted::ProcedureUnavailable => 3,
            Accepted::GarbageArguments => 4,
        };
        accepted(&mut head, xid, &[], status);
        if let Accepted::ProgramMismatch(low, high) = why {
            head.put_u32(low);
            head.put_u32(high);
        }
        Reply::of(head)
    }

    /// The answer to a question for TLS: the stream goes on with a TLS handshake.
    pub fn start_tls(xid: u32) -> Reply {
        let mut head = Vec::with_capacity(HEAD + STARTTLS.len());
        accepted(&mut head, xid, STARTTLS, 0);
        Reply::of(head)
    }

    pub fn version_mismatch(xid: u32) -> Reply {
        let mut head = denied(xid, RPC_MISMATCH);
        head.put_u32(VERSION);
        head.put_u32(VERSION);
        Reply::of(head)
    }

    pub fn unauthenticated(xid: u32, why: u32) -> Reply {
        let mut head = denied(xid, AUTH_ERROR);
        head.put_u32(why);
        Reply::of(head)
    }

    /// A whole record of results without content.
    pub fn of(head: Vec<u8>) -> Reply {
        Reply::with(head, Vec::new())
    }

    /// A whole record: the head's last item is the length of the content, whose padding is added
    /// here.
    pub fn with(mut head: Vec<u8>, mut content: Vec<Bytes>) -> Reply {
        let length: usize = content.iter().map(Bytes::len).sum();
        let padding = padding(length);
        if !padding.is_empty() {
            content.push(Bytes::from_static(padding));
        }
        let total = head.len().saturating_sub(4) + length + padding.len();
        if let Some(mark) = head.first_chunk_mut::<4>() {
            *mark = (total as u32 | LAST_FRAGMENT).to_be_bytes();
        }
        Reply { head, content }
    }

    /// A whole record of a head and of pieces that hold everything behind it, padding too.
    pub fn pieces(mut head: Vec<u8>, content: Vec<Bytes>) -> Reply {
        let total = head.len().saturating_sub(4) + content.iter().map(Bytes::len).sum::<usize>();
        if let Some(mark) = head.first_chunk_mut::<4>() {
            *mark = (total as u32 | LAST_FRAGMENT).to_be_bytes();
        }
        Reply { head, content }
    }

    /// Bytes on the wire, with the record mark.
    pub fn length(&self) -> usize {
        self.head.len() + self.content.iter().map(Bytes::len).sum::<usize>()
    }
}

fn accepted(head: &mut Vec<u8>, xid: u32, verifier: &[u8], status: u32) {
    head.put_u32(0);
    head.put_u32(xid);
    head.put_u32(REPLY);
    head.put_u32(ACCEPTED);
    head.put_u32(AUTH_NONE);
    head.put_opaque(verifier);
    head.put_u32(status);
}

fn denied(xid: u32, why: u32) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD);
    head.put_u32(0);
    head.put_u32(xid);
    head.put_u32(REPLY);
    head.put_u32(DENIED);
    head.put_u32(why);
    head
}

/// A call of our own with AUTH_NONE, whose arguments the caller appends; [`Reply::of`] makes it a
/// record.
pub fn call(xid: u32, program: u32, version: u32, procedure: u32) -> Vec<u8> {
    let mut call = Vec::with_capacity(64);
    for word in [0, xid, CALL, VERSION, program, version, procedure, AUTH_NONE, 0, AUTH_NONE, 0] {
        call.put_u32(word);
    }
    call
}

/// The results of an answer to a call of our own: those of a successful one.
pub fn results(record: Bytes, xid: u32) -> Result<Reader, Malformed> {
    let mut reader = Reader::new(record);
    if reader.u32()? != xid || reader.u32()? != REPLY || reader.u32()? != ACCEPTED {
        return Err(Malformed);
    }
    reader.u32()?;
    reader.borrowed(AUTH_BODY_MAX)?;
    match reader.u32()? {
        0 => Ok(reader),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests;
