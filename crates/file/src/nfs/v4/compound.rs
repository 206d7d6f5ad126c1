//! COMPOUND: a call of several operations, which run one after another until one fails.
//!
//! Every call but those that make and end sessions begins with SEQUENCE. The answer to a call whose
//! client wants it kept goes to its slot. An operation that changes something runs only if there is
//! room for its results.
//!
//! Bounded: [`OPERATIONS_MAX`] operations; results of [`RESULTS_MAX`] bytes beside the content that
//! the connection counted for the call. A READ with less room answers less content.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::time::Instant;

use super::clients::Principal;
use super::sessions::{Begun, Digest, Sequence, SessionCall};
use super::stateid::Stateid;
use super::{Failure, KEPT_MIN, OPERATIONS, OPERATIONS_MAX, Outcome, RESULTS_MAX, number, pseudo, status};
use crate::locks::LockedFile;
use crate::nfs::counters::Program;
use crate::nfs::export::{Export, Exports};
use crate::nfs::handle::{Handle, LENGTH};
use crate::nfs::procedures::TRANSFER_MAX;
use crate::nfs::procedures::dispatch::Started;
use crate::nfs::rpc::{Accepted, Call, Credentials, HEAD, Reply};
use crate::nfs::server::{Grace, Peer, Server};
use crate::nfs::xdr::{Reader, Writer, opaque_length, padding};
use crate::{Caller, Files, Inode};

const MINOR_VERSION: u32 = 1;
const TAG_MAX: usize = 1024;
/// Bytes of a call that its digest is of.
const DIGESTED: usize = 512;
/// The largest results of an operation that changes something.
const RESULT_MAX: usize = 256;
/// SEQUENCE and PUTFH on the wire, as they begin the usual READ.
const SEQUENCE_LENGTH: usize = 36;
/// SEQUENCE's result: its number, the status, the session, and five words.
const SEQUENCE_RESULT: usize = 8 + 16 + 5 * 4;
const PUTFH_LENGTH: usize = 4 + opaque_length(LENGTH);
/// A DENIED lock on the wire, without the bytes of the owner.
const DENIED_LENGTH: usize = 8 + 8 + 8 + 4 + 8 + 4;
/// From the operation's number of a READ to its count.
const READ_COUNT: usize = 4 + 16 + 8;

/// What a file handle leads to.
pub enum At<F> {
    /// A directory above the exports.
    Pseudo(u64),
    File(Target<F>),
}

/// A file of a share, and what the caller is there.
pub struct Target<F> {
    pub export: Arc<Export<F>>,
    pub inode: Inode,
    pub caller: Caller,
    pub read_only: bool,
}

impl<F> Clone for Target<F> {
    fn clone(&self) -> Target<F> {
        Target {
            export: self.export.clone(),
            inode: self.inode,
            caller: self.caller.clone(),
            read_only: self.read_only,
        }
    }
}

impl<F> Clone for At<F> {
    fn clone(&self) -> At<F> {
        match self {
            At::Pseudo(directory) => At::Pseudo(*directory),
            At::File(target) => At::File(target.clone()),
        }
    }
}

impl<F> Target<F> {
    pub fn files(&self) -> &F {
        &self.export.files
    }

    pub fn locked(&self) -> LockedFile {
        LockedFile { share: self.export.share, inode: self.inode }
    }

    /// The same caller at another file of the share.
    pub fn to(&self, inode: Inode) -> Target<F> {
        Target { inode, ..self.clone() }
    }
}

/// A call under way.
pub struct Compound<F> {
    pub server: Arc<Server<F>>,
    pub exports: Arc<Exports<F>>,
    pub peer: Peer,
    pub credentials: Credentials,
    /// Set by SEQUENCE.
    pub place: Option<SessionCall>,
    pub current: Option<At<F>>,
    pub saved: Option<At<F>>,
    pub stateid: Stateid,
    pub saved_stateid: Stateid,
    /// Behind what is done.
    pub arguments: Reader,
    /// Operations of the call.
    pub operations: u32,
    /// Results: pieces that are done, and the one that grows.
    pieces: Vec<Bytes>,
    pieces_length: usize,
    pub out: Vec<u8>,
    /// Bytes that all results may have.
    room: usize,
    room_status: u32,
}

/// Gives a slot back if the call ends without an answer.
struct Hold<'s, F> {
    server: &'s Server<F>,
    place: Option<SessionCall>,
}

impl<F> Drop for Hold<'_, F> {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.server.clients.abandon(place, Instant::now());
        }
    }
}

pub fn start<F: Files>(server: &Arc<Server<F>>, exports: &Arc<Exports<F>>, peer: Peer, call: Call) -> Started {
    let Call { xid, credentials, arguments, .. } = call;
    let size = arguments.record().len();
    let content = content_length(&arguments);
    let (server, exports) = (server.clone(), exports.clone());
    let future = async move { answer(server, exports, peer, xid, credentials, arguments, content).await };
    Started::Running { future: Box::pin(future), bytes: size + RESULTS_MAX + content }
}

/// The bytes of content that the answer may have beside other results: those of a READ behind
/// SEQUENCE and PUTFH.
fn content_length(arguments: &Reader) -> usize {
    let tag = opaque_length(arguments.peek(0).min(TAG_MAX as u32) as usize);
    let first = tag + 8;
    let second = first + SEQUENCE_LENGTH;
    let third = second + PUTFH_LENGTH;
    let usual = [(first, number::SEQUENCE), (second, number::PUTFH), (third, number::READ)];
    match usual.into_iter().all(|(at, number)| arguments.peek(at) == number) {
        true => arguments.peek(third + READ_COUNT).min(TRANSFER_MAX) as usize,
        false => 0,
    }
}

async fn answer<F: Files>(
    server: Arc<Server<F>>,
    exports: Arc<Exports<F>>,
    peer: Peer,
    xid: u32,
    credentials: Credentials,
    mut arguments: Reader,
    content: usize,
) -> Reply {
    server.expire().await;
    let failed = || server.counters().failed(Program::Nfs4, super::COMPOUND);
    let record = arguments.record().len();
    let head =
        (|| Ok::<_, crate::nfs::xdr::Malformed>((arguments.opaque(TAG_MAX)?, arguments.u32()?, arguments.u32()?)))();
    let Ok((tag, minor, operations)) = head else {
        failed();
        return Reply::refused(xid, Accepted::GarbageArguments);
    };
    let digest = digest(&credentials, &arguments);
    let early = match () {
        () if minor != MINOR_VERSION => Some(status::MINOR_VERS_MISMATCH),
        () if std::str::from_utf8(&tag).is_err() => Some(status::INVAL),
        () => None,
    };
    if let Some(status) = early {
        failed();
        return assemble(Reply::success(xid), status, &tag, 0, Vec::new(), Vec::new());
    }
    let mut compound = Compound {
        server: server.clone(),
        exports,
        peer,
        credentials,
        place: None,
        current: None,
        saved: None,
        stateid: Stateid::ANONYMOUS,
        saved_stateid: Stateid::ANONYMOUS,
        arguments,
        operations,
        pieces: Vec::new(),
        pieces_length: 0,
        out: Vec::with_capacity(512),
        room: RESULTS_MAX + content,
        room_status: status::REP_TOO_BIG,
    };
    let mut hold = Hold { server: &server, place: None };
    let mut keep = false;
    let mut status = status::OK;
    let mut done = 0;
    let mut first = 0;
    if compound.arguments.peek(0) == number::SEQUENCE && operations > 0 {
        server.counters().called(Program::Nfs4, number::SEQUENCE);
        done = 1;
        first = 1;
        match compound.sequence(digest, record, &mut keep) {
            Ok(Begun::New(place)) if compound.has_room(&place, keep, tag.len()) => {
                hold.place = Some(place);
                compound.enter(place, keep, tag.len());
            }
            // Its tag alone is too long. The slot is as it was.
            Ok(Begun::New(place)) => {
                server.clients.abandon(&place, Instant::now());
                let (_, refused) = limit(&place, keep);
                status = compound.refuse(number::SEQUENCE, refused);
                first = operations;
            }
            Ok(Begun::Kept(answer)) => {
                server.counters().repeated.fetch_add(1, Ordering::Relaxed);
                let mut head = Reply::success(xid);
                head.extend_from_slice(&answer);
                return Reply::of(head);
            }
            Ok(Begun::NotKept(place)) => {
                server.counters().repeated.fetch_add(1, Ordering::Relaxed);
                compound.put_sequence(&place);
                // The next operation says that its answer is gone; without one there is nothing
                // more to say.
                if operations > 1 {
                    let next = compound.arguments.peek(0);
                    compound.out.put_u32(if is_known(next) { next } else { number::ILLEGAL });
                    compound.out.put_u32(status::RETRY_UNCACHED_REP);
                    (status, done) = (status::RETRY_UNCACHED_REP, 2);
                }
                first = operations;
            }
            Err(refused) => {
                server.counters().failed(Program::Nfs4, number::SEQUENCE);
                compound.out.put_u32(number::SEQUENCE);
                compound.out.put_u32(refused);
                status = refused;
                first = operations;
            }
        }
    }
    for place in first..operations {
        status = compound.operate(place).await;
        done += 1;
        if status != status::OK {
            break;
        }
    }
    if status != status::OK {
        failed();
    }
    let reply = assemble(Reply::success(xid), status, &tag, done, compound.pieces, compound.out);
    if let Some(place) = hold.place.take() {
        // A lone SEQUENCE is kept too: its repetition costs nothing.
        let length = reply.length().saturating_sub(HEAD);
        let kept = (keep || operations == 1) && length <= reserved(&place);
        let answer = kept.then(|| {
            let mut whole = reply.head.get(HEAD..).unwrap_or_default().to_vec();
            reply.content.iter().for_each(|piece| whole.extend_from_slice(piece));
            Bytes::from(whole)
        });
        server.clients.finish(&place, answer, Instant::now());
    }
    reply
}

/// Bytes that a session has for the answer of each slot.
fn reserved(place: &SessionCall) -> usize {
    (place.channel.kept_max as usize).max(KEPT_MIN)
}

/// The most bytes of an answer as RPC sends it, and the status if it would have more.
fn limit(place: &SessionCall, keep: bool) -> (usize, u32) {
    let response_max = place.channel.response_max as usize;
    match keep && reserved(place) < response_max {
        true => (reserved(place), status::REP_TOO_BIG_TO_CACHE),
        false => (response_max, status::REP_TOO_BIG),
    }
}

/// Bytes of an answer around its results.
fn around(tag: usize) -> usize {
    HEAD + 4 + opaque_length(tag) + 4
}

/// Tells calls apart: of the same user, with the same beginning behind the tag, and the same
/// length.
fn digest(credentials: &Credentials, arguments: &Reader) -> Digest {
    let rest = arguments.rest();
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{:?}", Principal::from(credentials)).as_bytes());
    hasher.update(&(rest.len() as u64).to_be_bytes());
    hasher.update(rest.get(..DIGESTED).unwrap_or(rest));
    hasher.finalize().as_bytes().first_chunk().copied().unwrap_or_default()
}

/// `COMPOUND4res`.
fn assemble(mut head: Vec<u8>, status: u32, tag: &[u8], done: u32, mut pieces: Vec<Bytes>, out: Vec<u8>) -> Reply {
    head.put_u32(status);
    head.put_opaque(tag);
    head.put_u32(done);
    if pieces.is_empty() {
        head.extend_from_slice(&out);
        return Reply::of(head);
    }
    pieces.push(out.into());
    Reply::pieces(head, pieces)
}

fn is_known(operation: u32) -> bool {
    let name = OPERATIONS.get(operation as usize).filter(|name| !name.is_empty());
    operation > super::COMPOUND && name.is_some()
}

/// Operations that make, end or name sessions, and may stand alone.
fn stands_alone(operation: u32) -> bool {
    matches!(
        operation,
        number::EXCHANGE_ID
            | number::CREATE_SESSION
            | number::DESTROY_SESSION
            | number::BIND_CONN_TO_SESSION
            | number::DESTROY_CLIENTID
    )
}

/// Operations that must not run if their results have no room.
fn changes(operation: u32) -> bool {
    use number::*;
    matches!(
        operation,
        CLOSE
            | CREATE
            | LINK
            | LOCK
            | LOCKU
            | OPEN
            | OPEN_DOWNGRADE
            | REMOVE
            | RENAME
            | SETATTR
            | WRITE
            | FREE_STATEID
            | RECLAIM_COMPLETE
            | EXCHANGE_ID
            | CREATE_SESSION
            | DESTROY_SESSION
            | DESTROY_CLIENTID
    )
}

impl<F: Files> Compound<F> {
    /// Reads SEQUENCE, and finds its slot.
    fn sequence(&mut self, digest: Digest, length: usize, keep: &mut bool) -> Result<Begun, u32> {
        let reader = &mut self.arguments;
        let wanted = (|| {
            reader.u32()?;
            let session = reader.fixed()?;
            let (sequence, slot, _highest) = (reader.u32()?, reader.u32()?, reader.u32()?);
            let keep = reader.bool()?;
            Ok::<_, crate::nfs::xdr::Malformed>(Sequence {
                session,
                sequence,
                slot,
                keep,
                operations: self.operations,
                length,
                digest,
            })
        })();
        let wanted = wanted.map_err(|_| status::BADXDR)?;
        *keep = wanted.keep;
        self.server.clients.begin(&wanted, Instant::now())
    }

    /// There is room for the result of SEQUENCE, and for that of an operation which fails.
    fn has_room(&self, place: &SessionCall, keep: bool, tag: usize) -> bool {
        limit(place, keep).0 >= around(tag) + SEQUENCE_RESULT
    }

    /// The call is a new one of its session.
    fn enter(&mut self, place: SessionCall, keep: bool, tag: usize) {
        self.place = Some(place);
        let (most, status) = limit(&place, keep);
        let most = most.saturating_sub(around(tag));
        if most < self.room {
            (self.room, self.room_status) = (most, status);
        }
        self.put_sequence(&place);
    }

    /// `SEQUENCE4res`.
    fn put_sequence(&mut self, place: &SessionCall) {
        let out = &mut self.out;
        out.put_u32(number::SEQUENCE);
        out.put_u32(status::OK);
        out.put_fixed(&place.session);
        out.put_u32(place.sequence);
        out.put_u32(place.slot);
        out.put_u32(place.channel.slots - 1);
        out.put_u32(place.channel.slots - 1);
        out.put_u32(0);
    }

    /// Runs the next operation, and appends its result. `at` counts the operations from 0.
    async fn operate(&mut self, at: u32) -> u32 {
        let Ok(asked) = self.arguments.u32() else { return self.refuse(number::ILLEGAL, status::BADXDR) };
        if !is_known(asked) {
            return self.refuse(number::ILLEGAL, status::OP_ILLEGAL);
        }
        self.server.counters().called(Program::Nfs4, asked);
        let order = match () {
            () if asked == number::SEQUENCE => Err(status::SEQUENCE_POS),
            () if self.place.is_some() => Ok(()),
            () if !stands_alone(asked) => Err(status::OP_NOT_IN_SESSION),
            () if self.operations > 1 => Err(status::NOT_ONLY_OP),
            () => Ok(()),
        };
        let outcome = match order {
            Err(status) => Err(Failure::Status(status)),
            Ok(()) if at >= OPERATIONS_MAX => Err(Failure::Status(status::TOO_MANY_OPS)),
            Ok(()) if changes(asked) && self.left() < RESULT_MAX => Err(Failure::Status(self.room_status)),
            Ok(()) => {
                let before = self.out.len();
                self.out.put_u32(asked);
                self.out.put_u32(status::OK);
                match self.perform(asked, at + 1 == self.operations).await {
                    Ok(()) if self.length() > self.room => {
                        self.out.truncate(before);
                        Err(Failure::Status(self.room_status))
                    }
                    Ok(()) => return status::OK,
                    Err(failure) => {
                        self.out.truncate(before);
                        Err(failure)
                    }
                }
            }
        };
        match outcome {
            Ok(()) => status::OK,
            Err(Failure::Status(status)) => {
                let status = self.refuse(asked, status);
                if asked == number::SETATTR {
                    // No attribute was set.
                    self.out.put_u32(0);
                }
                status
            }
            Err(Failure::Denied(held)) => {
                // Numbers, status, range, kind and client; the owner is cut to what there is room
                // for.
                let Some(owner) = self.left().checked_sub(DENIED_LENGTH) else {
                    return self.refuse(asked, self.room_status);
                };
                let status = self.refuse(asked, status::DENIED);
                self.put_denied(&held, owner / 4 * 4);
                status
            }
        }
    }

    fn refuse(&mut self, operation: u32, status: u32) -> u32 {
        self.server.counters().failed(Program::Nfs4, operation);
        self.out.put_u32(operation);
        self.out.put_u32(status);
        status
    }

    fn length(&self) -> usize {
        self.pieces_length + self.out.len()
    }

    /// Bytes that the results may still have.
    pub fn left(&self) -> usize {
        self.room.saturating_sub(self.length())
    }

    /// Appends content, which is sent without a copy; its length is in the results already.
    pub fn put_content(&mut self, content: Vec<Bytes>) {
        let length: usize = content.iter().map(Bytes::len).sum();
        let results = Bytes::from(std::mem::take(&mut self.out));
        self.pieces_length += results.len() + length;
        self.pieces.push(results);
        self.pieces.extend(content);
        self.out.put_fixed(padding(length));
    }

    pub fn client(&self) -> Outcome<u64> {
        Ok(self.place.ok_or(status::OP_NOT_IN_SESSION)?.client)
    }

    /// The current file handle.
    pub fn at(&self) -> Outcome<&At<F>> {
        self.current.as_ref().ok_or(Failure::Status(status::NOFILEHANDLE))
    }

    /// That of the current file's share.
    pub fn grace(&self) -> Grace {
        let share = match &self.current {
            Some(At::File(target)) => Some(target.export.share),
            Some(At::Pseudo(_)) | None => None,
        };
        self.server.grace(share)
    }

    /// The current file, in a share.
    pub fn target(&self) -> Outcome<Target<F>> {
        match self.at()? {
            At::File(target) => Ok(target.clone()),
            At::Pseudo(_) => Err(Failure::Status(status::ROFS)),
        }
    }

    /// As [`Compound::target`], to change something there.
    pub fn changed(&self) -> Outcome<Target<F>> {
        let target = self.target()?;
        match target.read_only {
            true => Err(Failure::Status(status::ROFS)),
            false => Ok(target),
        }
    }

    /// A new current file handle: the current stateid goes.
    pub fn go(&mut self, at: At<F>) {
        self.current = Some(at);
        self.stateid = Stateid::ANONYMOUS;
    }

    /// What a handle leads to, for this client.
    pub fn find(&self, handle: Handle) -> Outcome<At<F>> {
        let client = self.peer.address.ip();
        if handle.share == pseudo::SHARE {
            let known = pseudo::path(&self.exports, client, handle.inode.0);
            return known.map(|_| At::Pseudo(handle.inode.0)).ok_or(Failure::Status(status::STALE));
        }
        let Some(export) = self.exports.get(handle.share) else {
            let is_awaited = self.exports.is_awaited(handle.share);
            return Err(Failure::Status(if is_awaited { status::DELAY } else { status::STALE }));
        };
        self.enter_export(export, Some(handle.inode))
    }

    /// A file of an export; none stands for its top.
    pub fn enter_export(&self, export: &Arc<Export<F>>, inode: Option<Inode>) -> Outcome<At<F>> {
        let rule = export.rule(self.peer.address.ip()).ok_or(Failure::Status(status::ACCESS))?;
        Ok(At::File(Target {
            inode: inode.unwrap_or_else(|| export.files.root()),
            caller: rule.caller(self.credentials.clone()),
            read_only: rule.read_only,
            export: export.clone(),
        }))
    }

    /// A stateid of the arguments; the current one if they say so.
    pub fn read_stateid(&mut self) -> Outcome<Stateid> {
        let stateid = Stateid::read(&mut self.arguments)?;
        match stateid {
            Stateid::CURRENT if self.stateid.is_special() => Err(Failure::Status(status::BAD_STATEID)),
            Stateid::CURRENT => Ok(self.stateid),
            Stateid::INVALID => Err(Failure::Status(status::BAD_STATEID)),
            other => Ok(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::Share;

    /// Each compound has its future on the heap, and copies it there.
    #[test]
    fn compounds_carry_little_state() {
        let answering = |server, exports, (peer, xid, credentials, arguments, content)| {
            answer::<Share>(server, exports, peer, xid, credentials, arguments, content)
        };
        let state = state(answering);
        assert!(state <= 8 << 10, "{state} bytes of a compound");
    }

    fn state<A, B, C, F: Future>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }
}
