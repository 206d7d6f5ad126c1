//! NLM version 4: locks of byte ranges for clients of NFS version 3.
//!
//! A blocking request that finds the bytes locked is answered with BLOCKED. The client then asks
//! again by itself (the kernels of Linux, FreeBSD and macOS do so every half a minute or more
//! often). This server opens no connection to a client, so it sends no GRANTED. The procedures that
//! answer with a call of their own (numbers 6 to 15) are not offered.
//!
//! During the grace period after a start, or after a share opened late, only locks are taken that a
//! client had before and claims again. Before a share opens, every call for it is answered as one
//! in the grace period that claims nothing.

mod pending;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::locks::{LockClient, LockError, LockOwner, LockProtocol, LockRange, LockedFile, Reservation, Uses};
use crate::{Access, Caller, FileError, Files};

use super::counters::Program;
use super::export::{Export, Exports};
use super::handle::HANDLE_MAX;
use super::procedures::dispatch::Started;
use super::rpc::{Accepted, Call, Reply};
use super::server::{Grace, Peer, Server};
use super::xdr::{Malformed, Reader, Writer};

pub use pending::Pending;
use pending::Subject;

const TEST: u32 = 1;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const SHARE: u32 = 20;
const UNSHARE: u32 = 21;
const NM_LOCK: u32 = 22;
const FREE_ALL: u32 = 23;

const GRANTED: u32 = 0;
const DENIED: u32 = 1;
const DENIED_NO_LOCKS: u32 = 2;
const BLOCKED: u32 = 3;
const DENIED_GRACE: u32 = 4;
const READ_ONLY: u32 = 6;
const STALE_HANDLE: u32 = 7;
const TOO_BIG: u32 = 8;
const FAILED: u32 = 9;

/// LM_MAXSTRLEN and MAXNETOBJ_SZ.
const NAME_MAX: usize = 1024;

/// The arguments of TEST, LOCK, CANCEL, UNLOCK, SHARE and UNSHARE, in one.
struct Wanted {
    cookie: Bytes,
    block: bool,
    exclusive: bool,
    reclaim: bool,
    name: Bytes,
    handle: Bytes,
    owner: Bytes,
    process: u32,
    offset: u64,
    length: u64,
    access: u32,
    deny: u32,
}

impl Wanted {
    fn parse(procedure: u32, reader: &mut Reader) -> Result<Wanted, Malformed> {
        let cookie = reader.opaque(NAME_MAX)?;
        let reserves = matches!(procedure, SHARE | UNSHARE);
        let block = matches!(procedure, LOCK | NM_LOCK | CANCEL) && reader.bool()?;
        let exclusive = !reserves && procedure != UNLOCK && reader.bool()?;
        let name = reader.opaque(NAME_MAX)?;
        let handle = reader.opaque(HANDLE_MAX)?;
        let owner = reader.opaque(NAME_MAX)?;
        let (mut process, mut offset, mut length, mut deny, mut access) = (0, 0, 0, 0, 0);
        if reserves {
            (deny, access) = (reader.u32()?, reader.u32()?);
        } else {
            (process, offset, length) = (reader.u32()?, reader.u64()?, reader.u64()?);
        }
        let reclaim = matches!(procedure, LOCK | NM_LOCK | SHARE) && reader.bool()?;
        Ok(Wanted { cookie, block, exclusive, reclaim, name, handle, owner, process, offset, length, access, deny })
    }

    fn owner(&self, host: IpAddr) -> LockOwner {
        let handle: Vec<u8> = self.process.to_be_bytes().into_iter().chain(self.owner.iter().copied()).collect();
        LockOwner { client: client(host, &self.name), handle: handle.into() }
    }

    fn reservation(&self, host: IpAddr) -> Reservation {
        let uses = |bits: u32| Uses { read: bits & 1 != 0, write: bits & 2 != 0 };
        Reservation { owner: self.owner(host), access: uses(self.access), deny: uses(self.deny) }
    }
}

/// A client is an address with a name: no machine can release the locks of another by its name
/// alone.
pub fn client(host: IpAddr, name: &[u8]) -> LockClient {
    let mut text = host.to_string().into_bytes();
    text.push(b'/');
    text.extend_from_slice(name);
    LockClient { protocol: LockProtocol::Nlm, name: text.into() }
}

pub fn start<F: Files>(server: &Arc<Server<F>>, exports: &Exports<F>, peer: Peer, call: Call) -> Started {
    let Call { xid, procedure, credentials, mut arguments, .. } = call;
    let host = peer.address.ip().to_canonical();
    let garbage = || {
        server.counters().failed(Program::Lock, procedure);
        Started::Ready(Reply::refused(xid, Accepted::GarbageArguments))
    };
    if procedure == FREE_ALL {
        let Ok(name) = arguments.borrowed(NAME_MAX) else { return garbage() };
        let client = client(host, name);
        server.pending.cancel_clients(|other| *other == client);
        server.locks.release(&client);
        return Started::Ready(Reply::of(Reply::success(xid)));
    }
    if !matches!(procedure, TEST | LOCK | CANCEL | UNLOCK | SHARE | UNSHARE | NM_LOCK) {
        return Started::Ready(Reply::refused(xid, Accepted::ProcedureUnavailable));
    }
    let Ok(wanted) = Wanted::parse(procedure, &mut arguments) else { return garbage() };
    let decoded = server.handles.decode(&wanted.handle);
    let found = decoded.and_then(|handle| Some((exports.get(handle.share)?, handle)));
    let Some((export, handle)) = found else {
        // The client asks again until the share is open.
        let is_awaited = decoded.is_some_and(|handle| exports.is_awaited(handle.share));
        let status = if is_awaited { DENIED_GRACE } else { STALE_HANDLE };
        return answered(server, xid, procedure, &wanted, status);
    };
    let Some(rule) = export.rule(host) else { return answered(server, xid, procedure, &wanted, FAILED) };
    let file = LockedFile { share: handle.share, inode: handle.inode };
    let owner = wanted.owner(host);
    let range = match procedure {
        SHARE | UNSHARE => Some(LockRange::ALL),
        _ => LockRange::new(wanted.offset, wanted.length),
    };
    let Some(range) = range else { return answered(server, xid, procedure, &wanted, TOO_BIG) };
    let subject = Subject { file, reserves: matches!(procedure, SHARE | UNSHARE), range };
    match procedure {
        CANCEL => {
            server.pending.cancel(&owner, subject);
            return answered(server, xid, procedure, &wanted, GRANTED);
        }
        UNLOCK => {
            server.pending.cancel(&owner, subject);
            let status = match server.locks.unlock(file, &owner, range) {
                Ok(()) => GRANTED,
                Err(_) => DENIED_NO_LOCKS,
            };
            return answered(server, xid, procedure, &wanted, status);
        }
        UNSHARE => {
            server.pending.cancel(&owner, subject);
            server.locks.unreserve(file, &owner);
            return answered(server, xid, procedure, &wanted, GRANTED);
        }
        _ => {}
    }
    if (server.grace(Some(handle.share)) != Grace::Over) != wanted.reclaim {
        return answered(server, xid, procedure, &wanted, DENIED_GRACE);
    }
    let changes = wanted.exclusive || wanted.access & 2 != 0;
    if rule.read_only && changes && procedure != TEST {
        return answered(server, xid, procedure, &wanted, READ_ONLY);
    }
    let caller = rule.caller(credentials);
    let (server, export, bytes) = (server.clone(), export.clone(), wanted.name.len() + wanted.owner.len());
    let waiting = server.pending.enter(owner, subject);
    let future = async move {
        // Locks of silent clients of version 4.1 are in the same table.
        server.expire().await;
        let mut out = Reply::success(xid);
        out.put_opaque(&wanted.cookie);
        let allowed = allowed(&export, &caller, file).await;
        let status = match allowed {
            Err(status) => status,
            Ok(()) => {
                let mut act = || perform(&server, procedure, file, range, &wanted, host, &mut out);
                // TEST changes nothing.
                if procedure == TEST { act() } else { waiting.perform(act).unwrap_or(DENIED) }
            }
        };
        if status != GRANTED {
            server.counters().failed(Program::Lock, procedure);
        }
        put_status(&mut out, procedure, status);
        Reply::of(out)
    };
    Started::Running { future: Box::pin(future), bytes }
}

/// TEST appends its own status, because the holder follows it.
fn perform<F: Files>(
    server: &Server<F>,
    procedure: u32,
    file: LockedFile,
    range: LockRange,
    wanted: &Wanted,
    host: IpAddr,
    out: &mut Vec<u8>,
) -> u32 {
    let owner = wanted.owner(host);
    if procedure == SHARE {
        return match server.locks.reserve(file, wanted.reservation(host)) {
            Ok(()) if !server.serves(file.share) => {
                server.locks.unreserve(file, &owner);
                STALE_HANDLE
            }
            Ok(()) => {
                server.reboots.monitor(host, &wanted.name);
                GRANTED
            }
            Err(LockError::Full) => DENIED_NO_LOCKS,
            Err(_) => DENIED,
        };
    }
    if procedure == TEST {
        let Some(held) = server.locks.test(file, &owner, range, wanted.exclusive) else { return GRANTED };
        let (process, handle) = held.owner.handle.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
        out.put_u32(DENIED);
        out.put_bool(held.exclusive);
        out.put_fixed(process);
        out.put_opaque(handle);
        out.put_u64(held.range.offset());
        out.put_u64(held.range.length());
        return DENIED;
    }
    match server.locks.lock(file, &owner, range, wanted.exclusive) {
        // The share went while the call was under way.
        Ok(()) if !server.serves(file.share) => {
            // Unlocking everything leaves no part that would need room.
            let _ = server.locks.unlock(file, &owner, LockRange::ALL);
            STALE_HANDLE
        }
        Ok(()) => {
            if procedure == LOCK {
                server.reboots.monitor(host, &wanted.name);
            }
            GRANTED
        }
        Err(LockError::Full) => DENIED_NO_LOCKS,
        Err(_) if wanted.block => BLOCKED,
        Err(_) => DENIED,
    }
}

/// A caller may lock what it may read or change, and what it owns.
async fn allowed<F: Files>(export: &Export<F>, caller: &Caller, file: LockedFile) -> Result<(), u32> {
    let status = |error: FileError| if error == FileError::Stale { STALE_HANDLE } else { FAILED };
    let wanted = Access { read: true, modify: true, ..Access::default() };
    let granted = export.files.access(caller, file.inode, wanted).await.map_err(status)?;
    let attributes = export.files.attributes(file.inode).await.map_err(status)?;
    match granted.read || granted.modify || attributes.uid == caller.uid {
        true => Ok(()),
        false => Err(FAILED),
    }
}

fn put_status(out: &mut Vec<u8>, procedure: u32, status: u32) {
    if procedure == TEST && status == DENIED {
        return;
    }
    out.put_u32(status);
    if matches!(procedure, SHARE | UNSHARE) {
        // A number that nothing reads.
        out.put_u32(0);
    }
}

fn answered<F: Files>(server: &Server<F>, xid: u32, procedure: u32, wanted: &Wanted, status: u32) -> Started {
    if status != GRANTED {
        server.counters().failed(Program::Lock, procedure);
    }
    let mut out = Reply::success(xid);
    out.put_opaque(&wanted.cookie);
    put_status(&mut out, procedure, status);
    Started::Ready(Reply::of(out))
}

#[cfg(test)]
mod tests;
