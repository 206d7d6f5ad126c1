//! From a record to a request under way: what is checked before any procedure runs.
//!
//! In this order: RPC, TLS, program, version, procedure, handle, export, network, and whether the
//! export is read-only. The export's rules hold for every call, not only for the mount.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::Files;
use crate::nfs::counters::Program;
use crate::nfs::export::Exports;
use crate::nfs::handle::HANDLE_MAX;
use crate::nfs::replay::{self, Repeated, ReplayTicket};
use crate::nfs::rpc::{self, Accepted, Call, Credentials, Refusal, Reply};
use crate::nfs::server::{Peer, Server, Tls};
use crate::nfs::{mount, nlm, notify, status, v4};

use super::{
    READ, READDIR, READDIRPLUS, Request, TRANSFER_MAX, WRITE, changes, directory, is_once, perform, read, refuse, write,
};

pub type Answering = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// The outcome of a record.
pub enum Started {
    /// There is nothing to answer.
    Silent,
    Ready(Reply),
    /// The answer to a question for TLS.
    StartTls(Reply),
    Running {
        future: Answering,
        /// Its share of the bytes under way.
        bytes: usize,
    },
}

pub fn start<F: Files>(server: &Arc<Server<F>>, exports: &Arc<Exports<F>>, peer: Peer, record: Bytes) -> Started {
    let refused = || server.counters().refused.fetch_add(1, Ordering::Relaxed);
    let call = match Call::parse(record) {
        Ok(call) => call,
        Err(refusal) => {
            refused();
            return match refusal {
                Refusal::Silent => Started::Silent,
                Refusal::Answer(reply) => Started::Ready(reply),
            };
        }
    };
    let xid = call.xid;
    let refusal = |reply| {
        refused();
        Started::Ready(reply)
    };
    if call.credentials == Credentials::Tls {
        return match server.options.tls != Tls::Off && !peer.secure && call.procedure == 0 {
            true => Started::StartTls(Reply::start_tls(xid)),
            false => refusal(Reply::unauthenticated(xid, rpc::AUTH_BAD_CREDENTIALS)),
        };
    }
    let program = match Program::find(call.program, call.version) {
        None => return refusal(Reply::refused(xid, Accepted::ProgramUnavailable)),
        Some(Err((low, high))) => return refusal(Reply::refused(xid, Accepted::ProgramMismatch(low, high))),
        Some(Ok(program)) => program,
    };
    let name = program.procedures().get(call.procedure as usize);
    if name.is_none_or(|name| name.is_empty()) || program == Program::Nfs4 && call.procedure > v4::COMPOUND {
        return refusal(Reply::refused(xid, Accepted::ProcedureUnavailable));
    }
    server.counters().called(program, call.procedure);
    if call.procedure == 0 {
        return Started::Ready(Reply::of(Reply::success(xid)));
    }
    if server.options.tls == Tls::Required && !peer.secure {
        return refusal(Reply::unauthenticated(xid, rpc::AUTH_TOO_WEAK));
    }
    match program {
        Program::Nfs => nfs(server, exports, peer, call),
        Program::Mount => mount::start(server, exports, peer, call),
        Program::Lock => nlm::start(server, exports, peer, call),
        Program::Status => Started::Ready(notify::answer(server, peer, call)),
        Program::Nfs4 => v4::start(server, exports, peer, call),
    }
}

fn nfs<F: Files>(server: &Arc<Server<F>>, exports: &Exports<F>, peer: Peer, call: Call) -> Started {
    let Call { xid, procedure, credentials, mut arguments, .. } = call;
    let failed = |status| {
        server.counters().failed(Program::Nfs, procedure);
        Started::Ready(refuse(xid, procedure, status))
    };
    let Ok(bytes) = arguments.borrowed(HANDLE_MAX) else {
        server.counters().failed(Program::Nfs, procedure);
        return Started::Ready(Reply::refused(xid, Accepted::GarbageArguments));
    };
    let Some(handle) = server.handles.decode(bytes) else { return failed(status::BADHANDLE) };
    let Some(export) = exports.get(handle.share) else {
        let is_awaited = exports.is_awaited(handle.share);
        return failed(if is_awaited { status::JUKEBOX } else { status::STALE });
    };
    let Some(rule) = export.rule(peer.address.ip()) else { return failed(status::ACCES) };
    if rule.read_only && changes(procedure) {
        return failed(status::ROFS);
    }
    let size = arguments.record().len();
    let repeated = match procedure {
        WRITE => Some(server.replays.begin_write(peer.address, arguments.record())),
        _ => is_once(procedure).then(|| server.replays.begin(peer.address, arguments.record())),
    };
    let ticket = match repeated {
        None => None,
        Some(Repeated::No(ticket)) => Some(ticket),
        Some(Repeated::Other(answer)) => {
            let future = async move {
                replay::answer(answer).await;
                refuse(xid, procedure, status::JUKEBOX)
            };
            return Started::Running { future: Box::pin(future), bytes: size };
        }
        Some(Repeated::Yes(answer)) => {
            server.counters().repeated.fetch_add(1, Ordering::Relaxed);
            let future = async move {
                let head = replay::answer(answer).await.map(|record| record.to_vec());
                let busy = || refuse(xid, procedure, status::JUKEBOX);
                head.map_or_else(busy, |head| Reply { head, content: Vec::new() })
            };
            return Started::Running { future: Box::pin(future), bytes: size };
        }
    };
    let request = Request {
        server: server.clone(),
        export: export.clone(),
        caller: rule.caller(credentials),
        read_only: rule.read_only,
        xid,
        procedure,
        arguments,
        subjects: [Some(handle.inode), None],
    };
    // The bytes that the answer may have: behind the offset of a read, and behind the cookie of a
    // listing and its verifier.
    let ahead = |at: usize, most: usize| (request.arguments.peek(at) as usize).min(most);
    let answer = match procedure {
        READ => ahead(8, TRANSFER_MAX as usize),
        READDIR => ahead(16, directory::ANSWER_MAX),
        READDIRPLUS => ahead(20, directory::ANSWER_MAX),
        _ => 0,
    };
    let bytes = size + answer;
    match (procedure, ticket) {
        (READ, _) => Started::Running { future: Box::pin(read(request)), bytes },
        (WRITE, Some(ticket)) => Started::Running { future: Box::pin(write_once(request, ticket)), bytes },
        (_, Some(ticket)) => Started::Running { future: Box::pin(once(request, ticket)), bytes },
        _ => Started::Running { future: Box::pin(perform(request)), bytes },
    }
}

/// A repetition that came meanwhile gets the same answer. It is not kept: writing the same content
/// again does no harm.
async fn write_once<F: Files>(request: Request<F>, ticket: ReplayTicket) -> Reply {
    let reply = write(request).await;
    ticket.shared(&reply.head);
    reply
}

/// Keeps the answer for a client that repeats the call. An answer that asks for another try is not
/// kept.
async fn once<F: Files>(request: Request<F>, ticket: ReplayTicket) -> Reply {
    let reply = perform(request).await;
    let status = reply.head.get(rpc::HEAD..).and_then(|results| results.first_chunk()).copied();
    if status.map(u32::from_be_bytes) != Some(status::JUKEBOX) {
        ticket.answered(&reply.head);
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::Share;

    fn state<A, B, F: Future>(_: impl Fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    /// Each call has its future on the heap, and copies it there.
    #[test]
    fn calls_carry_little_state() {
        assert!(state(once::<Share>) <= 6 << 10, "{} bytes of any other call", state(once::<Share>));
        assert!(state(write_once::<Share>) <= 4 << 10, "{} bytes of a write", state(write_once::<Share>));
        let reading = state(|request, ()| read::<Share>(request));
        assert!(reading <= 4 << 10, "{reading} bytes of a read");
    }
}
