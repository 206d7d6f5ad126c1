//! The transmission phase of one connection, on the reactor that owns the volume.
//!
//! A turn collects the volume's completions, sends the replies with one call, reads the arrived
//! bytes with one call, and submits their requests. Small payloads are copied out of the shared
//! input; large ones are read straight into the buffer that goes to the drives.
//!
//! Failure model: a failed request is answered and the session continues. A stream that is no
//! longer understood ends the session, and so does one without progress for [`STALL_MAX`] in the
//! middle of a payload or reply. Requests under way are still carried out; the session stays until
//! then, because their buffers count in its share of the memory. An idle connection may stay idle.
//!
//! Limits: those of [`crate::Limits`], and [`OUTGOING_MAX`] bytes of waiting replies; at a limit
//! the session stops reading.

use std::io::{ErrorKind, IoSliceMut};
use std::os::fd::RawFd;

use stele_ground::{Duration, Instant};
use stele_media::system::unread_by_peer;
use stele_media::{Buffer, Completion, Extent, Interest, Op, ReactorSession, Waker};

use super::mapping::{Mapping, RUNS_MAX, WINDOW};
use super::outgoing::Outgoing;
use super::pacing::Pacing;
use super::pending::{Pending, Pendings};
use super::reply::{Chunk, Form, errno_of};
use super::request::{NbdCommand, Request};
use super::wire::{Errno, cmd_flag};
use super::{Context, Negotiated};
use crate::progress::{Progress, STALL_MAX};
use crate::{Disk, Stream};

/// Bytes that one read takes besides a payload.
const INCOMING: usize = 128 << 10;
/// Payloads of this size or more are read into their own buffers.
const DIRECT_MIN: usize = 16 << 10;
/// Largest number of reply bytes that wait for the client to take them.
const OUTGOING_MAX: usize = 8 << 20;
/// The work of a turn, divided among the connections of one initiator.
const TURN_REQUESTS: u64 = 128;
const TURN_BYTES: u64 = 4 << 20;
/// Interval between checks for space that other connections of the volume hold.
const ROOM_AGAIN: Duration = Duration::from_micros(500);
/// Longest range that is zeroed or given up as one operation. A snapshot waits for the operations
/// under way, and writes wait for the snapshot.
const SPAN_MAX: u64 = 256 << 20;
/// Size of a piece of a read that only warms the cache, and of zeros that are written out.
const PIECE: u64 = 1 << 20;

/// A payload that is arriving.
struct Payload {
    request: Request,
    buffer: Buffer,
    filled: usize,
}

pub struct NbdSession {
    /// A trait object: the session is compiled here, and not again for each type in every program
    /// that serves it.
    stream: Box<dyn Stream>,
    disk: Disk,
    form: Form,
    contexts: Vec<Context>,
    incoming: Box<[u8]>,
    /// The part of it that is not parsed yet.
    held: std::ops::Range<usize>,
    payload: Option<Payload>,
    /// Bytes of a refused payload that are still to come.
    skip: u64,
    /// The refusal of that request. It is sent when the payload is here: libnbd takes a reply to a
    /// request that it is still sending for a broken protocol, and gives the connection up.
    refusal: Option<(Request, Errno, &'static str)>,
    pendings: Pendings,
    outgoing: Outgoing,
    finished: Vec<Completion>,
    zeros: Option<stele_media::Shared>,
    /// No more requests are taken: the client said goodbye, or it has gone, or the export has.
    closing: bool,
    broken: bool,
    /// The socket took less than it was offered.
    blocked: bool,
    receiving: Progress,
    sending: Progress,
    pacing: Pacing,
}

impl NbdSession {
    pub fn new(stream: Box<dyn Stream>, agreed: Negotiated) -> NbdSession {
        let Negotiated { disk, form, contexts, rest } = agreed;
        let mut incoming = vec![0; INCOMING.max(rest.len())].into_boxed_slice();
        if let Some(room) = incoming.get_mut(..rest.len()) {
            room.copy_from_slice(&rest);
        }
        NbdSession {
            stream,
            disk,
            form,
            contexts,
            incoming,
            held: 0..rest.len(),
            payload: None,
            skip: 0,
            refusal: None,
            pendings: Pendings::default(),
            outgoing: Outgoing::default(),
            finished: Vec::new(),
            zeros: None,
            closing: false,
            broken: false,
            blocked: false,
            receiving: Progress::default(),
            sending: Progress::default(),
            pacing: Pacing::default(),
        }
    }

    /// Collects the operations that the volume has finished.
    fn collect(&mut self, now: Instant) {
        let mut finished = std::mem::take(&mut self.finished);
        self.disk.reap(now, &mut finished);
        for Completion { tag, op, result } in finished.drain(..) {
            let Some(pending) = self.pendings.take(tag) else { continue };
            if self.broken {
                continue;
            }
            let request = pending.request;
            match result {
                Err(error) => {
                    let errno = errno_of(&error, request.command);
                    if matches!(errno, Errno::Io | Errno::NoSpace | Errno::Shutdown) {
                        tracing::debug!("{:?} at {} of {}: {error}", request.command, request.at, request.length);
                    }
                    self.outgoing.push(Chunk::error(self.form, &request, errno, &error.message));
                }
                Ok(()) => self.go_on(pending, op),
            }
        }
        self.finished = finished;
    }

    /// The request's next step, or its reply.
    fn go_on(&mut self, pending: Pending, op: Op) {
        let Pending { request, at, mapping } = pending;
        // A flush may name any range.
        let end = request.at.saturating_add(request.length);
        let is_left = match request.command {
            NbdCommand::WriteZeroes | NbdCommand::Trim => at < self.span_end(&request),
            NbdCommand::Cache => at < end,
            _ => false,
        };
        // The command that takes an export away waits for its requests under way. A long one must
        // not go on writing meanwhile.
        if is_left && self.disk.target().is_withdrawn() {
            return self.refuse(&request, Errno::Shutdown, "the export was removed or changed meanwhile");
        }
        match (request.command, op) {
            (NbdCommand::Read, Op::View { pieces, .. }) => {
                self.outgoing.push(Chunk::content(self.form, &request, pieces));
            }
            (NbdCommand::BlockStatus, Op::Extents { extents, .. }) => {
                if let Some(mapping) = mapping {
                    self.mapped(request, at, mapping, extents);
                }
            }
            (NbdCommand::Cache | NbdCommand::WriteZeroes, Op::Read { .. } | Op::Write { .. }) if at < end => {
                self.piece(request, at);
            }
            (NbdCommand::WriteZeroes | NbdCommand::Trim, Op::Zero { .. } | Op::Discard { .. })
                if at < self.span_end(&request) =>
            {
                self.span(request, at);
            }
            // A flush after a zeroing or a trim makes the change durable.
            (NbdCommand::WriteZeroes | NbdCommand::Trim, Op::Zero { .. } | Op::Discard { .. } | Op::Write { .. })
                if request.has(cmd_flag::FUA) =>
            {
                self.begin(request, end, Op::Flush);
            }
            _ => self.outgoing.push(Chunk::done(self.form, &request)),
        }
    }

    /// Goes on with the next window of a context. At its end it sends the states, and begins the
    /// next context.
    fn mapped(&mut self, request: Request, at: u64, mut mapping: Box<Mapping>, extents: Vec<Extent>) {
        let more = mapping.take(extents) && !self.disk.target().is_withdrawn();
        if more && at < request.at + request.length {
            return self.map(request, at, mapping);
        }
        let run_max = if self.form == Form::Extended { u64::MAX } else { u64::from(u32::MAX) & !4095 };
        let Some(context) = self.contexts.get(mapping.context) else { return };
        let runs = context.runs(&mapping.found, run_max, mapping.most);
        let next = mapping.context + 1;
        let is_last = next == self.contexts.len();
        self.outgoing.push(Chunk::status(self.form, &request, context.id, &runs, is_last));
        if !is_last {
            self.map(request, request.at, Box::new(Mapping::new(next, mapping.most)));
        }
    }

    /// Asks the volume for the next window of a context.
    fn map(&mut self, request: Request, at: u64, mapping: Box<Mapping>) {
        let Some(context) = self.contexts.get(mapping.context) else { return };
        let length = WINDOW.min(request.at + request.length - at);
        let op = Op::Extents { at, length, since: context.since(), extents: Vec::new() };
        let pending = Pending { request, at: at + length, mapping: Some(mapping) };
        let tag = self.pendings.put(pending);
        self.disk.submit(tag, op);
    }

    fn begin(&mut self, request: Request, at: u64, op: Op) {
        let tag = self.pendings.put(Pending { request, at, mapping: None });
        self.disk.submit(tag, op);
    }

    /// The next piece of a request that is carried out in pieces.
    fn piece(&mut self, request: Request, at: u64) {
        let length = PIECE.min(request.at + request.length - at);
        let op = match request.command {
            NbdCommand::Cache => Op::Read { at, buffer: Buffer::stale(length as usize) },
            _ => {
                let zeros = self.zeros.get_or_insert_with(|| Buffer::zeroed(PIECE as usize).freeze());
                Op::Write { at, data: vec![zeros.slice(..length as usize)], fua: false }
            }
        };
        self.begin(request, at + length, op);
    }

    fn refuse(&mut self, request: &Request, errno: Errno, text: &str) {
        self.outgoing.push(Chunk::error(self.form, request, errno, text));
    }

    fn extended(&self) -> bool {
        self.form == Form::Extended
    }

    /// Parses requests from the input, as many as there are and may begin. Returns their number,
    /// the bytes that they move, and whether it stopped for lack of space.
    fn understand(&mut self, requests_max: u64, bytes_max: u64) -> (u64, u64, bool) {
        let (mut requests, mut bytes) = (0, 0);
        while !self.closing && requests < requests_max && bytes < bytes_max {
            self.drop_skipped();
            if self.skip > 0 || self.payload.is_some() {
                break;
            }
            let here = self.incoming.get(self.held.clone()).unwrap_or_default();
            let (request, size) = match Request::parse(here, self.extended()) {
                Ok(Some(parsed)) => parsed,
                Ok(None) => break,
                Err(_) => {
                    tracing::warn!(
                        "a connection to export '{}' sent bytes that are no request",
                        self.disk.target().export.name
                    );
                    self.broken = true;
                    break;
                }
            };
            if self.outgoing.bytes() > OUTGOING_MAX || !self.disk.has_room(moved(&request)) {
                return (requests, bytes, true);
            }
            self.held.start += size;
            requests += 1;
            bytes += moved(&request);
            self.take(request);
        }
        (requests, bytes, false)
    }

    fn take(&mut self, request: Request) {
        let geometry = self.disk.geometry();
        let payload = request.payload(self.extended());
        let judged = request.judge(geometry.size.0, geometry.block.0, self.disk.is_read_only(), self.extended());
        if let Err((errno, text)) = judged {
            self.skip = payload;
            self.refusal = Some((request, errno, text));
            return self.drop_skipped();
        }
        let Request { at, length, .. } = request;
        match request.command {
            NbdCommand::Write => self.take_payload(request),
            NbdCommand::Disconnect => self.closing = true,
            NbdCommand::Read => self.begin(request, at, Op::View { at, length, pieces: Vec::new() }),
            NbdCommand::Flush => self.begin(request, at, Op::Flush),
            NbdCommand::Trim => self.trim(request, geometry.block.0),
            NbdCommand::WriteZeroes => self.zero(request),
            NbdCommand::Cache => {
                let block = geometry.block.0;
                let end = (at + length).next_multiple_of(block);
                let at = at - at % block;
                self.piece(Request { at, length: end - at, ..request }, at);
            }
            NbdCommand::BlockStatus => self.ask_status(request, geometry.block.0),
            NbdCommand::Unknown(_) => self.refuse(&request, Errno::Invalid, "unknown"),
        }
    }

    fn trim(&mut self, request: Request, block: u64) {
        let (first, last) = (request.at.next_multiple_of(block), (request.at + request.length) / block * block);
        if first >= last {
            return self.outgoing.push(Chunk::done(self.form, &request));
        }
        self.span(request, first);
    }

    /// The end of the range that a zeroing or a trim changes: a trim is narrowed to whole blocks.
    fn span_end(&self, request: &Request) -> u64 {
        let end = request.at.saturating_add(request.length);
        match request.command {
            NbdCommand::Trim => end - end % self.disk.geometry().block.0,
            _ => end,
        }
    }

    /// The next span of a zeroing or a trim.
    fn span(&mut self, request: Request, at: u64) {
        let length = SPAN_MAX.min(self.span_end(&request).saturating_sub(at));
        let op = match request.command {
            NbdCommand::Trim => Op::Discard { at, length },
            _ => Op::Zero { at, length },
        };
        self.begin(request, at + length, op);
    }

    fn zero(&mut self, request: Request) {
        let at = request.at;
        if !request.has(cmd_flag::NO_HOLE) {
            return self.span(request, at);
        }
        // A client that wants no hole wants allocated space: that takes writing, and is not fast.
        match request.has(cmd_flag::FAST_ZERO) {
            true => self.refuse(&request, Errno::NotSupported, "zeros that own their space are not written fast"),
            false => self.piece(request, at),
        }
    }

    fn ask_status(&mut self, request: Request, block: u64) {
        if self.contexts.is_empty() {
            return self.refuse(&request, Errno::Invalid, "no metadata context was chosen in the handshake");
        }
        let aligned = request.at.is_multiple_of(block) && request.length.is_multiple_of(block);
        if !aligned {
            return self.refuse(&request, Errno::Invalid, "misaligned: see the announced minimum block size");
        }
        let most = if request.has(cmd_flag::REQ_ONE) { 1 } else { RUNS_MAX };
        self.map(request, request.at, Box::new(Mapping::new(0, most)));
    }

    /// Begins a write whose data is here, or waits for its rest.
    fn take_payload(&mut self, request: Request) {
        let length = request.length as usize;
        let mut buffer = Buffer::stale(length);
        let here = self.incoming.get(self.held.clone()).unwrap_or_default();
        let filled = here.len().min(length);
        if let (Some(into), Some(from)) = (buffer.get_mut(..filled), here.get(..filled)) {
            into.copy_from_slice(from);
        }
        self.held.start += filled;
        let payload = Payload { request, buffer, filled };
        if filled == length {
            self.write(payload);
        } else {
            self.disk.reserve(request.length);
            self.payload = Some(payload);
        }
    }

    fn write(&mut self, payload: Payload) {
        let Payload { request, buffer, .. } = payload;
        let fua = request.has(cmd_flag::FUA);
        self.begin(request, request.at, Op::Write { at: request.at, data: vec![buffer.freeze()], fua });
    }

    fn drop_skipped(&mut self) {
        let here = (self.held.len() as u64).min(self.skip);
        self.skip -= here;
        self.held.start += here as usize;
        if self.skip == 0
            && let Some((request, errno, text)) = self.refusal.take()
        {
            self.refuse(&request, errno, text);
        }
    }

    /// One read. Returns true if there may be more.
    fn receive(&mut self) -> bool {
        if self.held.is_empty() {
            self.held = 0..0;
        } else if self.incoming.len() - self.held.end < INCOMING / 4 {
            self.incoming.copy_within(self.held.clone(), 0);
            self.held = 0..self.held.len();
        }
        let Some(room) = self.incoming.get_mut(self.held.end..) else { return false };
        let room_size = room.len();
        let (read, wanted, direct) = match &mut self.payload {
            Some(Payload { buffer, filled, .. }) => {
                let rest = buffer.get_mut(*filled..).unwrap_or_default();
                let (rest_size, large) = (rest.len(), rest.len() >= DIRECT_MIN);
                // After a large payload only the size of a head is read with it, so that the next
                // large one can be read directly.
                let beside = if large { room.get_mut(..64.min(room_size)).unwrap_or_default() } else { room };
                let wanted = rest_size + beside.len();
                let mut slices = [IoSliceMut::new(rest), IoSliceMut::new(beside)];
                (self.stream.read_vectored(&mut slices), wanted, rest_size)
            }
            None => (self.stream.read(room), room_size, 0),
        };
        match read {
            Ok(0) => {
                self.closing = true;
                self.broken |= self.payload.is_some() || self.skip > 0 || !self.held.is_empty();
                false
            }
            Ok(count) => {
                self.receiving.moved = true;
                if let Some(payload) = &mut self.payload {
                    payload.filled += count.min(direct);
                    if payload.filled == payload.buffer.len()
                        && let Some(whole) = self.payload.take()
                    {
                        self.disk.release(whole.request.length);
                        self.write(whole);
                    }
                }
                self.held.end += count.saturating_sub(direct);
                count == wanted
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Err(_) => {
                self.broken = true;
                false
            }
        }
    }

    /// Reads and parses as much as a turn allows. Returns whether there may be more, and whether it
    /// lacks space.
    fn listen(&mut self) -> (bool, bool) {
        let requests_max = self.disk.part_of(TURN_REQUESTS);
        let bytes_max = self.disk.part_of(TURN_BYTES);
        let (mut requests, mut bytes) = (0, 0);
        let mut more = true;
        loop {
            let (began, moved, crowded) = self.understand(requests_max - requests, bytes_max - bytes);
            requests += began;
            bytes += moved;
            if crowded || self.broken || self.closing {
                return (false, crowded);
            }
            if requests >= requests_max || bytes >= bytes_max {
                return (true, false);
            }
            if !more {
                return (false, false);
            }
            more = self.receive();
            bytes = (bytes + 1).min(bytes_max);
        }
    }

    fn send(&mut self, now: Instant) {
        if !self.outgoing.is_empty() {
            let replies = self.outgoing.replies().max(1);
            match self.outgoing.send(&mut *self.stream) {
                Ok(0) => {}
                Ok(bytes) => {
                    self.sending.moved = true;
                    if self.disk.is_local() {
                        let socket = self.stream.as_raw_fd();
                        self.pacing.sent(now, (bytes / replies) as u64, || unread_by_peer(socket));
                    }
                }
                Err(()) => self.broken = true,
            }
            self.blocked = !self.outgoing.is_empty();
        }
        self.disk.note_untaken(self.outgoing.bytes() as u64);
    }

    /// The turn of a broken session: nothing is read or sent, and it ends when the volume has
    /// returned its operations.
    fn wind_down(&mut self, now: Instant) -> Interest {
        self.broken = true;
        self.closing = true;
        if let Some(payload) = self.payload.take() {
            self.disk.release(payload.request.length);
        }
        self.outgoing = Outgoing::default();
        self.disk.note_untaken(0);
        self.disk.drop_held(|_| true);
        self.collect(now);
        Interest { end: self.disk.under_way() == 0, at: self.disk.next_event(), ..Interest::default() }
    }

    /// Whether the stream itself has sent all of its bytes.
    fn flushed(&mut self) -> bool {
        match self.stream.flush() {
            Ok(()) => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
            Err(_) => {
                self.broken = true;
                true
            }
        }
    }
}

fn moved(request: &Request) -> u64 {
    match request.command {
        NbdCommand::Read | NbdCommand::Write => request.length.min(u64::from(super::PAYLOAD_MAX)),
        _ => PIECE.min(request.length),
    }
}

impl ReactorSession for NbdSession {
    fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    fn start(&mut self, waker: Waker) {
        self.disk.start(waker);
    }

    fn turn(&mut self, now: Instant) -> Interest {
        if self.broken {
            return self.wind_down(now);
        }
        self.collect(now);
        self.send(now);
        self.closing |= self.disk.target().is_withdrawn();
        if self.closing
            && let Some(payload) = self.payload.take()
        {
            self.disk.release(payload.request.length);
        }
        let socket = self.stream.as_raw_fd();
        let pause = self.pacing.until(now, || unread_by_peer(socket));
        let silent = self.closing || pause.is_some();
        let (more, crowded) = if silent { (false, false) } else { self.listen() };
        if !self.outgoing.is_empty() && self.disk.under_way() == 0 {
            self.send(now);
        }
        let flushed = self.flushed();
        let waits_to_send = !self.outgoing.is_empty() || !flushed;
        let waits_for_bytes = !self.closing && !crowded && (self.payload.is_some() || self.skip > 0);
        let mut interest = Interest { write: self.blocked || !flushed, ..Interest::default() };
        if self.broken {
            return self.wind_down(now);
        }
        if self.closing && self.disk.under_way() == 0 && !waits_to_send {
            return Interest { end: true, ..interest };
        }
        interest.read = !self.closing && !crowded && pause.is_none();
        interest.again = more;
        interest.at = self.disk.next_event();
        let mut sooner = |at: Instant| interest.at = Some(interest.at.map_or(at, |other| other.min(at)));
        if crowded {
            sooner(now + ROOM_AGAIN);
        }
        if let (Some(end), false) = (pause, self.closing) {
            sooner(end);
        }
        let receiving = self.receiving.stalls_at(now, waits_for_bytes);
        let sending = self.sending.stalls_at(now, waits_to_send);
        if let Some(deadline) = receiving.into_iter().chain(sending).min() {
            if now >= deadline {
                tracing::warn!(
                    "a connection to export '{}' is given up: no progress for {} s",
                    self.disk.target().export.name,
                    STALL_MAX.0 / 1_000_000_000
                );
                return self.wind_down(now);
            }
            sooner(deadline);
        }
        interest
    }
}
