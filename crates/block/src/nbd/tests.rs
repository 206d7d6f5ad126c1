//! The protocol, on a memory drive and a pipe: deterministic, and one byte at a time where that
//! matters.

mod handshakes;
mod hostile;
mod sessions;

use std::io::{Read, Write};
use std::sync::Arc;

use stele_ground::{Bytes, Duration, Instant};
use stele_media::{Interest, MemoryDrive, ReactorSession, Waker};

use super::reply::Form;
use super::wire::{self, opt, rep};
use super::*;
use crate::testing::{Pipe, Volume, export};
use crate::{Directory, Export, Limits, Peer, Target};

const SIZE: u64 = 4 << 20;

/// A volume of 4 MiB under the name `vm`.
struct Stage {
    volume: Volume,
    directory: Directory,
    target: Arc<Target>,
}

impl Stage {
    fn new() -> Stage {
        Stage::of(export("vm"), MemoryDrive::new(Bytes(SIZE)), Limits::default())
    }

    fn of(export: Export, drive: MemoryDrive, limits: Limits) -> Stage {
        let volume = Volume::new(drive);
        let directory = Directory::default();
        let target = directory.serve(export, volume.handle(), limits);
        Stage { volume, directory, target }
    }

    fn handshake(&self) -> Handshake {
        Handshake::new(self.directory.clone(), Peer { name: "a test".to_owned(), ..Peer::default() }, Tls::Absent)
    }

    /// A session with both ends of its pipe; the pipe to the client holds `limit` unread bytes.
    fn client(&self, form: Form, limit: usize) -> Client {
        self.client_of(form, limit, Context::all(&[]))
    }

    fn client_of(&self, form: Form, limit: usize, contexts: Vec<Context>) -> Client {
        self.connect(&Peer { name: "a test".to_owned(), ..Peer::default() }, form, limit, contexts)
    }

    fn client_by(&self, peer: &Peer) -> Client {
        self.connect(peer, Form::Simple, 1 << 20, Vec::new())
    }

    fn connect(&self, peer: &Peer, form: Form, limit: usize, contexts: Vec<Context>) -> Client {
        let (ours, theirs) = Pipe::pair(limit);
        let disk = crate::Disk::open(&self.target, peer).unwrap();
        let mut session = NbdSession::new(Box::new(ours), Negotiated { disk, form, contexts, rest: Vec::new() });
        session.start(Waker::idle());
        Client { session: Some(session), pipe: theirs, form, now: Instant(0), replies: Vec::new() }
    }
}

/// One reply, as the client sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Reply {
    cookie: u64,
    errno: u32,
    data: Vec<u8>,
    /// Of a status: length and flags.
    runs: Vec<(u64, u64)>,
}

struct Client {
    session: Option<NbdSession>,
    pipe: Pipe,
    form: Form,
    now: Instant,
    replies: Vec<u8>,
}

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const ZERO: u16 = 6;
const STATUS: u16 = 7;

fn request(form: Form, flags: u16, command: u16, cookie: u64, at: u64, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let extended = form == Form::Extended;
    let flags = if extended && command == WRITE { flags | wire::cmd_flag::PAYLOAD_LEN } else { flags };
    bytes.extend(if extended { wire::EXTENDED_REQUEST } else { wire::REQUEST }.to_be_bytes());
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(at.to_be_bytes());
    match extended {
        true => bytes.extend(length.to_be_bytes()),
        false => bytes.extend((length as u32).to_be_bytes()),
    }
    bytes
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.pipe.write_all(bytes).unwrap();
    }

    fn ask(&mut self, flags: u16, command: u16, cookie: u64, at: u64, length: u64) {
        self.send(&request(self.form, flags, command, cookie, at, length));
    }

    /// Takes one turn and returns its interest. A session that left is removed.
    fn turn(&mut self) -> Interest {
        let Some(session) = &mut self.session else { return Interest { end: true, ..Interest::default() } };
        let interest = session.turn(self.now);
        if interest.end {
            self.session = None;
        }
        interest
    }

    /// Takes turns until nothing changes; volumes answer at once, so a few suffice.
    fn settle(&mut self) {
        for _ in 0..6 {
            while self.turn().again {}
            self.now = self.now + Duration::from_millis(1);
        }
        let mut bytes = vec![0; 1 << 20];
        while let Ok(count @ 1..) = self.pipe.read(&mut bytes) {
            self.replies.extend(&bytes[..count]);
            while self.turn().again {}
        }
    }

    /// All complete replies so far, with their chunks joined. `reads` gives the length of a simple
    /// reply.
    fn replies(&mut self, reads: impl Fn(u64) -> usize) -> Vec<Reply> {
        self.settle();
        let mut replies: Vec<Reply> = Vec::new();
        let mut open: Option<Reply> = None;
        loop {
            let mut fields = wire::Fields(&self.replies);
            let Some((reply, done)) = parse(&mut fields, &reads) else { return replies };
            let used = self.replies.len() - fields.0.len();
            self.replies.drain(..used);
            let whole = match open.take() {
                Some(mut so_far) => {
                    assert_eq!(so_far.cookie, reply.cookie);
                    so_far.data.extend(reply.data);
                    so_far.runs.extend(reply.runs);
                    so_far
                }
                None => reply,
            };
            match done {
                true => replies.push(whole),
                false => open = Some(whole),
            }
        }
    }

    /// The single reply.
    #[track_caller]
    fn reply(&mut self, length: usize) -> Reply {
        let mut replies = self.replies(|_| length);
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.remove(0)
    }

    #[track_caller]
    fn errno(&mut self, flags: u16, command: u16, at: u64, length: u64) -> u32 {
        self.ask(flags, command, 1, at, length);
        self.reply(0).errno
    }
}

fn parse(fields: &mut wire::Fields, reads: impl Fn(u64) -> usize) -> Option<(Reply, bool)> {
    let reply = |cookie, errno, data| Reply { cookie, errno, data, runs: Vec::new() };
    let magic = fields.u32()?;
    if magic == wire::SIMPLE_REPLY {
        let (errno, cookie) = (fields.u32()?, fields.u64()?);
        let data = if errno == 0 { fields.bytes(reads(cookie))? } else { &[] };
        return Some((reply(cookie, errno, data.to_vec()), true));
    }
    let extended = magic == wire::EXTENDED_REPLY;
    assert!(extended || magic == wire::STRUCTURED_REPLY, "{magic:x}");
    let (flags, kind, cookie) = (fields.u16()?, fields.u16()?, fields.u64()?);
    let at = if extended { Some(fields.u64()?) } else { None };
    let length = if extended { fields.u64()? as usize } else { fields.u32()? as usize };
    let mut payload = wire::Fields(fields.bytes(length)?);
    let done = flags & wire::chunk::FLAG_DONE != 0;
    let parsed = match kind {
        wire::chunk::NONE => reply(cookie, 0, Vec::new()),
        wire::chunk::OFFSET_DATA => {
            let offset = payload.u64()?;
            assert!(at.is_none_or(|at| at == offset));
            reply(cookie, 0, payload.0.to_vec())
        }
        wire::chunk::ERROR => {
            let (errno, text) = (payload.u32()?, payload.u16()?);
            assert_eq!(payload.0.len(), usize::from(text));
            reply(cookie, errno, Vec::new())
        }
        wire::chunk::BLOCK_STATUS | wire::chunk::BLOCK_STATUS_EXT => {
            let mut status = reply(cookie, 0, Vec::new());
            let _context = payload.u32()?;
            if extended {
                payload.u32()?;
            }
            while !payload.is_empty() {
                let run = match extended {
                    true => (payload.u64()?, payload.u64()?),
                    false => (u64::from(payload.u32()?), u64::from(payload.u32()?)),
                };
                status.runs.push(run);
            }
            status
        }
        other => panic!("a chunk of kind {other}"),
    };
    Some((parsed, done))
}
