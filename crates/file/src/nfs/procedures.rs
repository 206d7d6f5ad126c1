//! The 22 procedures of NFS version 3 (RFC 1813), as calls of [`Files`].
//!
//! A procedure reads its arguments, calls the gateway and appends its results. A failure answers
//! the status and what the RFC wants beside it, which is the same for every way in which a
//! procedure can fail: see [`FAILURES`].

mod directory;
pub mod dispatch;
mod names;
mod objects;
mod space;

use std::sync::Arc;

use bytes::Bytes;

use crate::{Attributes, Caller, FileError, Files, Inode};

use super::attributes::{put_after, put_unknown};
use super::counters::Program;
use super::export::Export;
use super::handle::{HANDLE_MAX, Handle};
use super::rpc::{Accepted, HEAD, Reply};
use super::server::Server;
use super::status;
use super::xdr::{Malformed, Reader, Writer};

pub const GETATTR: u32 = 1;
pub const SETATTR: u32 = 2;
pub const LOOKUP: u32 = 3;
pub const ACCESS: u32 = 4;
pub const READLINK: u32 = 5;
pub const READ: u32 = 6;
pub const WRITE: u32 = 7;
pub const CREATE: u32 = 8;
pub const MKDIR: u32 = 9;
pub const SYMLINK: u32 = 10;
pub const MKNOD: u32 = 11;
pub const REMOVE: u32 = 12;
pub const RMDIR: u32 = 13;
pub const RENAME: u32 = 14;
pub const LINK: u32 = 15;
pub const READDIR: u32 = 16;
pub const READDIRPLUS: u32 = 17;
pub const FSSTAT: u32 = 18;
pub const FSINFO: u32 = 19;
pub const PATHCONF: u32 = 20;
pub const COMMIT: u32 = 21;

/// Bytes of one read or write at most.
pub const TRANSFER_MAX: u32 = 1 << 20;

/// A result that a failure carries beside its status, about the first or the second file of the
/// call.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// `post_op_attr`.
    After(usize),
    /// `wcc_data`.
    Changed(usize),
}

/// By procedure.
const FAILURES: [&[Beside]; 22] = {
    use Beside::{After, Changed};
    const AFTER: &[Beside] = &[After(0)];
    const CHANGED: &[Beside] = &[Changed(0)];
    [
        &[], // NULL
        &[], // GETATTR
        CHANGED,
        AFTER,
        AFTER,
        AFTER,
        AFTER,
        CHANGED,
        CHANGED,
        CHANGED,
        CHANGED,
        CHANGED,
        CHANGED,
        CHANGED,
        &[Changed(0), Changed(1)], // RENAME
        &[After(0), Changed(1)],   // LINK
        AFTER,
        AFTER,
        AFTER,
        AFTER,
        AFTER,
        CHANGED,
    ]
};

/// A call of a client that may make it.
pub struct Request<F> {
    server: Arc<Server<F>>,
    export: Arc<Export<F>>,
    caller: Caller,
    read_only: bool,
    xid: u32,
    procedure: u32,
    /// Behind the first handle.
    arguments: Reader,
    /// The files whose handles the call holds, in their order.
    subjects: [Option<Inode>; 2],
}

/// Why a procedure has no results.
enum Failure {
    /// The arguments are not those of the procedure.
    Malformed,
    Status(u32),
}

impl From<Malformed> for Failure {
    fn from(_: Malformed) -> Failure {
        Failure::Malformed
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        Failure::Status(status::of(&error))
    }
}

type Outcome<T = ()> = Result<T, Failure>;

impl<F: Files> Request<F> {
    fn files(&self) -> &F {
        &self.export.files
    }

    fn share(&self) -> u32 {
        self.export.share
    }

    /// The file of the call's first handle.
    fn subject(&self) -> Outcome<Inode> {
        self.subjects[0].ok_or(Failure::Malformed)
    }

    /// Reads the call's second handle. It must be of the same share.
    fn second(&mut self) -> Outcome<Inode> {
        let bytes = self.arguments.borrowed(HANDLE_MAX)?;
        let handle = self.server.handles.decode(bytes).ok_or(Failure::Status(status::BADHANDLE))?;
        if handle.share != self.share() {
            return Err(Failure::Status(status::XDEV));
        }
        self.subjects[1] = Some(handle.inode);
        Ok(handle.inode)
    }

    /// Reads a name. Its length is checked by the gateway, which knows a status for it.
    fn name(&mut self) -> Outcome<Bytes> {
        Ok(self.arguments.opaque(usize::MAX)?)
    }

    async fn attributes(&self, inode: Inode) -> Option<Attributes> {
        self.files().attributes(inode).await.ok()
    }

    fn put_handle(&self, out: &mut Vec<u8>, inode: Inode) {
        out.put_opaque(&self.server.handles.encode(Handle { share: self.share(), inode }));
    }

    /// The answer: of the results, or of the failure.
    async fn finish(self, mut out: Vec<u8>, outcome: Outcome<Vec<Bytes>>) -> Reply {
        let failure = match outcome {
            Ok(content) => return Reply::with(out, content),
            Err(failure) => failure,
        };
        self.server.counters().failed(Program::Nfs, self.procedure);
        let status = match failure {
            Failure::Malformed => return Reply::refused(self.xid, Accepted::GarbageArguments),
            Failure::Status(status) => status,
        };
        out.truncate(HEAD);
        out.put_u32(status);
        for beside in FAILURES.get(self.procedure as usize).copied().unwrap_or_default() {
            let (Beside::After(number) | Beside::Changed(number)) = *beside;
            let file = match self.subjects.get(number).copied().flatten() {
                Some(inode) => self.attributes(inode).await,
                None => None,
            };
            match beside {
                Beside::After(_) => put_after(&mut out, self.share(), file.as_ref()),
                Beside::Changed(_) => put_unknown(&mut out, self.share(), file.as_ref()),
            }
        }
        Reply::of(out)
    }
}

/// The answer to a call that fails before there is a request: nothing is known about its files.
fn refuse(xid: u32, procedure: u32, status: u32) -> Reply {
    let mut out = Reply::success(xid);
    out.put_u32(status);
    for beside in FAILURES.get(procedure as usize).copied().unwrap_or_default() {
        match beside {
            Beside::After(_) => put_after(&mut out, 0, None),
            Beside::Changed(_) => put_unknown(&mut out, 0, None),
        }
    }
    Reply::of(out)
}

/// Procedures that change something, which a read-only export refuses.
fn changes(procedure: u32) -> bool {
    matches!(procedure, SETATTR | WRITE..=LINK | COMMIT)
}

/// Procedures that must not be performed twice.
fn is_once(procedure: u32) -> bool {
    matches!(procedure, SETATTR | CREATE..=LINK)
}

async fn read<F: Files>(mut request: Request<F>) -> Reply {
    let mut out = Reply::success(request.xid);
    let outcome = objects::read(&mut request, &mut out).await;
    request.finish(out, outcome).await
}

async fn write<F: Files>(mut request: Request<F>) -> Reply {
    let mut out = Reply::success(request.xid);
    let outcome = objects::write(&mut request, &mut out).await.map(|()| Vec::new());
    request.finish(out, outcome).await
}

async fn perform<F: Files>(mut request: Request<F>) -> Reply {
    let mut out = Reply::success(request.xid);
    let r = &mut request;
    let outcome = match r.procedure {
        GETATTR => objects::get_attributes(r, &mut out).await,
        SETATTR => objects::set_attributes(r, &mut out).await,
        LOOKUP => names::lookup(r, &mut out).await,
        ACCESS => objects::access(r, &mut out).await,
        READLINK => objects::read_link(r, &mut out).await,
        CREATE => names::create(r, &mut out).await,
        MKDIR => names::make_directory(r, &mut out).await,
        SYMLINK => names::make_link(r, &mut out).await,
        MKNOD => names::make_special(r, &mut out).await,
        REMOVE => names::remove(r, &mut out, crate::Removal::File).await,
        RMDIR => names::remove(r, &mut out, crate::Removal::Directory).await,
        RENAME => names::rename(r, &mut out).await,
        LINK => names::link(r, &mut out).await,
        READDIR => directory::read(r, &mut out).await,
        READDIRPLUS => directory::read_plus(r, &mut out).await,
        FSSTAT => space::fsstat(r, &mut out).await,
        FSINFO => space::fsinfo(r, &mut out).await,
        PATHCONF => space::pathconf(r, &mut out).await,
        COMMIT => objects::commit(r, &mut out).await,
        _ => Err(Failure::Malformed),
    };
    request.finish(out, outcome.map(|()| Vec::new())).await
}

#[cfg(test)]
mod tests;
