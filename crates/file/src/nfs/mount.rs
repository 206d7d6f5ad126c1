//! MOUNT version 3 (RFC 1813, appendix I): from the path of an export, or of a directory below it,
//! to a handle.

use std::sync::{Arc, PoisonError};

use crate::{Caller, FileError, Files, Inode, Kind};

use super::counters::Program;
use super::export::{Export, Exports, PATH_MAX};
use super::handle::Handle;
use super::procedures::dispatch::Started;
use super::rpc::{Accepted, Call, Reply};
use super::server::{Peer, Server};
use super::status;
use super::xdr::Writer;

const MNT: u32 = 1;
const DUMP: u32 = 2;
const UMNT: u32 = 3;
const UMNTALL: u32 = 4;
const EXPORT: u32 = 5;

const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// Bytes of the answers of DUMP and EXPORT. Later entries are left out.
const LIST_MAX: usize = 512 << 10;

pub fn start<F: Files>(server: &Arc<Server<F>>, exports: &Exports<F>, peer: Peer, call: Call) -> Started {
    let Call { xid, procedure, credentials, mut arguments, .. } = call;
    let host = peer.address.ip().to_canonical();
    let failed = |reply| {
        server.counters().failed(Program::Mount, procedure);
        Started::Ready(reply)
    };
    let mut out = Reply::success(xid);
    match procedure {
        MNT => {
            let Ok(path) = arguments.opaque(PATH_MAX) else {
                return failed(Reply::refused(xid, Accepted::GarbageArguments));
            };
            let Some((export, below)) = exports.find(&path) else {
                // No status of this protocol makes clients try again. This one does not say that
                // there is no such share.
                let is_awaited = exports.awaits(&path, host);
                return failed(refused(xid, if is_awaited { status::SERVERFAULT } else { status::NOENT }));
            };
            let Some(rule) = export.rule(host) else { return failed(refused(xid, status::ACCES)) };
            let below: Vec<Vec<u8>> = below.into_iter().map(<[u8]>::to_vec).collect();
            let caller = rule.caller(credentials);
            let (server, export, bytes) = (server.clone(), export.clone(), path.len());
            let path = String::from_utf8_lossy(&path).into_owned();
            let future = async move {
                match walk(&export, &caller, &below).await {
                    Ok(inode) => {
                        server.mounted(host.to_string(), path);
                        let handle = server.handles.encode(Handle { share: export.share, inode });
                        out.put_u32(status::OK);
                        out.put_opaque(&handle);
                        out.put_u32(2);
                        out.put_u32(AUTH_SYS);
                        out.put_u32(AUTH_NONE);
                        Reply::of(out)
                    }
                    Err(error) => {
                        server.counters().failed(Program::Mount, procedure);
                        refused(xid, mount_status(&error))
                    }
                }
            };
            return Started::Running { future: Box::pin(future), bytes };
        }
        DUMP => {
            let mounts = server.mounts.lock().unwrap_or_else(PoisonError::into_inner);
            for (host, path) in mounts.iter() {
                if out.len() > LIST_MAX {
                    break;
                }
                out.put_bool(true);
                out.put_opaque(host.as_bytes());
                out.put_opaque(path.as_bytes());
            }
            out.put_bool(false);
        }
        UMNT => match arguments.borrowed(PATH_MAX) {
            Ok(path) => server.unmounted(&host.to_string(), Some(path)),
            Err(_) => return failed(Reply::refused(xid, Accepted::GarbageArguments)),
        },
        UMNTALL => server.unmounted(&host.to_string(), None),
        EXPORT => {
            // A client sees the exports that it may mount.
            for export in exports.iter().filter(|export| export.rule(host).is_some()) {
                if out.len() > LIST_MAX {
                    break;
                }
                out.put_bool(true);
                out.put_opaque(export.path.as_bytes());
                for rule in &export.rules {
                    out.put_bool(true);
                    out.put_opaque(rule.network.to_string().as_bytes());
                }
                out.put_bool(false);
            }
            out.put_bool(false);
        }
        _ => return failed(Reply::refused(xid, Accepted::ProcedureUnavailable)),
    }
    Started::Ready(Reply::of(out))
}

fn refused(xid: u32, status: u32) -> Reply {
    let mut out = Reply::success(xid);
    out.put_u32(status);
    Reply::of(out)
}

/// `mountstat3` has fewer numbers than `nfsstat3`; those that it has are the same.
fn mount_status(error: &FileError) -> u32 {
    match status::of(error) {
        known @ (status::PERM
        | status::NOENT
        | status::IO
        | status::ACCES
        | status::NOTDIR
        | status::INVAL
        | status::NAMETOOLONG
        | status::NOTSUPP) => known,
        _ => status::SERVERFAULT,
    }
}

/// The directory that the names lead to from the export's top.
async fn walk<F: Files>(export: &Export<F>, caller: &Caller, names: &[Vec<u8>]) -> crate::Result<Inode> {
    let mut at = export.files.root();
    for name in names {
        let found = export.files.lookup(caller, at, name).await?;
        if found.kind != Kind::Directory {
            return Err(FileError::NotDirectory);
        }
        at = found.inode;
    }
    Ok(at)
}

#[cfg(test)]
mod tests;
