//! A file of an NFS server, version 3 (RFC 1813), without the kernel's client: one connection for
//! each worker, many reads and writes under way on it. Writes are answered when they are stable
//! (FILE_SYNC), or with `--buffered` at once (UNSTABLE).
//!
//! Version 3 keeps no attributes of ours: a file that exists is written over only with `--destroy`;
//! one that was made goes when the run ends, unless it is to be kept.

mod rpc;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::time::Instant;

use stele_ground::{Bytes, Duration};
use stele_media::Buffer;

use super::engine::{Engine, SlotResult};
use super::fill;
use super::stream::{self, Dialect, EngineLink, Stream, decoded, with_port, wrong};
use super::target::{AccessMethod, Filling, Opening, Ready};
use crate::error::LabError;
use crate::workload::Access;
use rpc::{Call, Records, Reply, ask};

const PORTMAPPER: (u32, u32) = (100_000, 2);
const MOUNT: (u32, u32) = (100_005, 3);
const NFS: (u32, u32) = (100_003, 3);
const PORTMAPPER_PORT: u16 = 111;
const TCP: u32 = 6;

const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const REMOVE: u32 = 12;
const FSINFO: u32 = 19;

const REGULAR: u32 = 1;
const NO_ENTRY: u32 = 2;
/// The server is busy: the call is to be sent again later.
const JUKEBOX: u32 = 10_008;
/// How much later.
const LATER: Duration = Duration(100_000_000);
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NfsAddress {
    host: String,
    /// Of the service; none: what the port mapper says.
    port: Option<u16>,
    mount_port: Option<u16>,
    /// With a slash at its begin.
    path: String,
}

impl std::str::FromStr for NfsAddress {
    type Err = LabError;
    /// `nfs://HOST[:PORT]/PATH[?mountport=PORT]`.
    fn from_str(text: &str) -> Result<NfsAddress, LabError> {
        let bad = || LabError::Usage(format!("target '{text}': say nfs://HOST[:PORT]/EXPORT/FILE[?mountport=PORT]"));
        let (rest, query) = text.split_once('?').unwrap_or((text, ""));
        let (place, path) = rest.strip_prefix("nfs://").and_then(|rest| rest.split_once('/')).ok_or_else(bad)?;
        let path = decoded(path).filter(|path| !path.is_empty() && !path.ends_with('/')).ok_or_else(bad)?;
        let full = with_port(place, 0).ok_or_else(bad)?;
        let (host, port) = full.rsplit_once(':').ok_or_else(bad)?;
        let port = port.parse::<u16>().ok().filter(|port| *port > 0);
        let mount_port = match query {
            "" => None,
            query => Some(query.strip_prefix("mountport=").and_then(|port| port.parse().ok()).ok_or_else(bad)?),
        };
        Ok(NfsAddress { host: host.to_owned(), port, mount_port, path: format!("/{path}") })
    }
}

impl fmt::Display for NfsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port.map_or(String::new(), |port| format!(":{port}"));
        let mount = self.mount_port.map_or(String::new(), |port| format!("?mountport={port}"));
        write!(f, "nfs://{}{port}{}{mount}", self.host, self.path)
    }
}

/// A file that was found, or made.
#[derive(Clone, Debug)]
pub struct Remote {
    address: NfsAddress,
    /// `HOST:PORT` of the service.
    place: String,
    directory: Vec<u8>,
    name: String,
    handle: Vec<u8>,
    read_max: u32,
    write_max: u32,
    stable: u32,
    /// By this run.
    made: bool,
}

pub(super) fn open(address: &NfsAddress, opening: Opening, progress: Filling<'_>) -> Result<Ready, LabError> {
    let failed = |error: io::Error| LabError::of_access(format!("{address}: {}", stream::said(&error)));
    let unreached = |error: io::Error| LabError::reaching(&error, format!("{address}: {}", stream::said(&error)));
    let (mut stream, place, directory, name) = reach(address).map_err(unreached)?;
    let (read_max, write_max) = limits(&mut stream, &directory).map_err(failed)?;
    let found = look_up(&mut stream, &directory, &name).map_err(failed)?;
    let (handle, size, made) = match (found, opening.size) {
        (Some((handle, size)), _) => {
            let size = opening.of_device(address, size, 512)?;
            (handle, size, false)
        }
        (None, None) => {
            return Err(LabError::Missing(format!("{address}: does not exist; say how large it shall be with --size")));
        }
        (None, Some(size)) if size.0 < 4096 => return Err(LabError::Usage("--size: at least 4 KiB".into())),
        (None, Some(size)) => {
            let handle = create(&mut stream, &directory, &name).map_err(failed)?;
            (handle, Bytes(size.0 - size.0 % 4096), true)
        }
    };
    let stable = if opening.buffered { UNSTABLE } else { FILE_SYNC };
    let remote = Remote { address: address.clone(), place, directory, name, handle, read_max, write_max, stable, made };
    let versions = opening.versions(size)?;
    if made || opening.content.verify {
        let content = (opening.content, versions.as_ref());
        let filled = Nfs::new(&remote, 4, fill::LENGTH as usize).map_err(LabError::Failed).and_then(|mut engine| {
            fill::fill(&mut engine, &address.to_string(), size, fill::LENGTH, opening.patience, content, progress)
        });
        if filled.is_err() {
            let _ = remote.remove();
        }
        filled?;
    }
    let how = if opening.buffered { "not stable when answered" } else { "stable when answered" };
    Ok(Ready {
        way: AccessMethod::Nfs(remote),
        size,
        block: Bytes(512),
        file: None,
        versions,
        patience: opening.patience,
        name: address.to_string(),
        description: format!("NFS 3 file {address}, writes {how}"),
    })
}

impl Remote {
    /// Removes the file, if this run made it.
    pub fn remove(&self) -> Result<(), LabError> {
        if !self.made {
            return Ok(());
        }
        let body = Call::default().opaque(&self.directory).opaque(self.name.as_bytes());
        let removed =
            Stream::tcp(&self.place).and_then(|mut stream| status(&ask(&mut stream, NFS, REMOVE, body)?).map(drop));
        removed
            .map_err(|error| LabError::Failed(format!("{}: cannot be removed: {}", self.address, stream::said(&error))))
    }
}

/// A connection to the service, where it is, and the file's directory and name.
fn reach(address: &NfsAddress) -> io::Result<(Stream, String, Vec<u8>, String)> {
    let at = |port: u16| format!("{}:{port}", address.host);
    let port_of = |program: (u32, u32), known: Option<u16>| match known {
        Some(port) => Ok(port),
        None => port_of(&at(PORTMAPPER_PORT), program),
    };
    let mut mount = Stream::tcp(&at(port_of(MOUNT, address.mount_port)?))?;
    let (directory, name) = address.path.rsplit_once('/').unwrap_or(("", &address.path));
    // The directory itself may be exported, or one that holds it.
    let mut rest: Vec<&str> = Vec::new();
    let mut export = directory;
    let handle = loop {
        let asked = if export.is_empty() { "/" } else { export };
        let reply = ask(&mut mount, MOUNT, 1, Call::default().opaque(asked.as_bytes()))?;
        let mut reply = Reply(&reply);
        match (reply.u32()?, export.rsplit_once('/')) {
            (0, _) => break reply.opaque()?.to_vec(),
            (_, Some((above, below))) => {
                rest.insert(0, below);
                export = above;
            }
            (number, None) => {
                return Err(wrong(format!("no directory on the way is exported to us: {}", words(number))));
            }
        }
    };
    let place = at(port_of(NFS, address.port)?);
    let mut stream = Stream::tcp(&place)?;
    let mut directory = handle;
    for part in rest.into_iter().filter(|part| !part.is_empty()) {
        let found = look_up(&mut stream, &directory, part)?;
        (directory, _) = found.ok_or_else(|| wrong(format!("there is no directory '{part}'")))?;
    }
    Ok((stream, place, directory, name.to_owned()))
}

fn port_of(mapper: &str, program: (u32, u32)) -> io::Result<u16> {
    let body = Call::default().u32(program.0).u32(program.1).u32(TCP).u32(0);
    let port = Reply(&ask(&mut Stream::tcp(mapper)?, PORTMAPPER, 3, body)?).u32()?;
    let none = || wrong(format!("the port mapper knows no service {} version {} over TCP", program.0, program.1));
    u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(none)
}

/// What follows a status of 0.
fn status(reply: &[u8]) -> io::Result<Reply<'_>> {
    let mut reply = Reply(reply);
    match reply.u32()? {
        0 => Ok(reply),
        number => Err(wrong(words(number))),
    }
}

fn words(number: u32) -> String {
    let words = match number {
        1 => "the server does not permit it",
        NO_ENTRY => "there is no such file",
        5 => "the server's storage failed",
        13 => "the server denies access",
        17 => "it exists already",
        20 => "it is not a directory",
        21 => "it is a directory",
        27 => "the file would become too large",
        28 => "there is no room left",
        30 => "it may only be read",
        63 => "the name is too long",
        69 => "the quota is used up",
        70 => "the file is gone (stale handle)",
        10_006 => "the server failed",
        JUKEBOX => "the server is busy, try later",
        _ => "the server refuses",
    };
    format!("{words} (NFS status {number})")
}

fn look_up(stream: &mut Stream, directory: &[u8], name: &str) -> io::Result<Option<(Vec<u8>, u64)>> {
    let reply = ask(stream, NFS, LOOKUP, Call::default().opaque(directory).opaque(name.as_bytes()))?;
    if Reply(&reply).u32()? == NO_ENTRY {
        return Ok(None);
    }
    let handle = status(&reply)?.opaque()?.to_vec();
    let reply = ask(stream, NFS, GETATTR, Call::default().opaque(&handle))?;
    let mut reply = status(&reply)?;
    let kind = reply.u32()?;
    reply.bytes(16)?;
    // A directory on the way has a size too, which no caller asks for.
    let size = if kind == REGULAR { reply.u64()? } else { 0 };
    Ok(Some((handle, size)))
}

fn create(stream: &mut Stream, directory: &[u8], name: &str) -> io::Result<Vec<u8>> {
    const GUARDED: u32 = 1;
    let body = Call::default().opaque(directory).opaque(name.as_bytes()).u32(GUARDED);
    let body = body.u32(1).u32(0o644).u32(0).u32(0).u32(0).u32(0).u32(0);
    let reply = ask(stream, NFS, CREATE, body)?;
    let mut reply = status(&reply)?;
    if reply.u32()? != 0 {
        return reply.opaque().map(<[u8]>::to_vec);
    }
    let found = look_up(stream, directory, name)?;
    found.map(|(handle, _)| handle).ok_or_else(|| wrong("what was just made is not there"))
}

/// Bytes of a read and of a write at most.
fn limits(stream: &mut Stream, directory: &[u8]) -> io::Result<(u32, u32)> {
    let reply = ask(stream, NFS, FSINFO, Call::default().opaque(directory))?;
    let mut reply = status(&reply)?;
    reply.attributes()?;
    let read_max = reply.u32()?;
    reply.bytes(8)?;
    let write_max = reply.u32()?;
    let sound = |most: u32| most.clamp(512, 1 << 20);
    Ok((sound(read_max), sound(write_max)))
}

struct Slot {
    buffer: Buffer,
    /// Where the access begins in the file.
    start: u64,
    write: bool,
    busy: bool,
    /// Calls of the access that are not answered yet.
    calls: u32,
    failed: Option<String>,
}

pub struct Nfs {
    link: EngineLink,
    remote: Remote,
    records: Records,
    stage: Vec<u8>,
    slots: Vec<Slot>,
    next: u32,
    calls: HashMap<u32, Piece>,
    /// What the server put off, and when; the longest ago first.
    put_off: VecDeque<(Instant, Piece)>,
}

/// What one call transfers.
#[derive(Clone, Copy)]
struct Piece {
    slot: usize,
    /// Place in the slot's buffer.
    at: usize,
    length: usize,
}

impl Nfs {
    pub fn new(remote: &Remote, slots: u32, length_max: usize) -> Result<Nfs, String> {
        let cannot = |error: io::Error| format!("{}: {}", remote.address, stream::said(&error));
        let slot = |_| Slot {
            buffer: Buffer::zeroed(length_max),
            start: 0,
            write: false,
            busy: false,
            calls: 0,
            failed: None,
        };
        Ok(Nfs {
            link: Stream::tcp(&remote.place).and_then(EngineLink::new).map_err(cannot)?,
            remote: remote.clone(),
            records: Records::default(),
            stage: vec![0; 256 << 10],
            slots: (0..slots).map(slot).collect(),
            next: 1,
            calls: HashMap::new(),
            put_off: VecDeque::new(),
        })
    }

    fn send(&mut self, piece: Piece) {
        let Piece { slot, at, length } = piece;
        let slot = &self.slots[slot];
        let procedure = if slot.write { WRITE } else { READ };
        let call = Call::new(self.next, NFS, procedure).opaque(&self.remote.handle).u64(slot.start + at as u64);
        let call = call.u32(length as u32);
        let call = match slot.write {
            true => call.u32(self.remote.stable).opaque(&slot.buffer[at..at + length]),
            false => call,
        };
        self.link.wire.queue(&call.record());
        self.calls.insert(self.next, piece);
        self.next = self.next.wrapping_add(1);
    }

    fn reply(&mut self, record: &[u8], answers: &mut Vec<SlotResult>) -> io::Result<()> {
        let mut reply = Reply(record);
        let xid = reply.begin()?;
        let unknown = || wrong("the server answered a call that is not under way");
        let piece = self.calls.remove(&xid).ok_or_else(unknown)?;
        let Piece { slot: number, at, length } = piece;
        let slot = self.slots.get_mut(number).ok_or_else(unknown)?;
        let done = match reply.u32()? {
            // The access goes on: its response time is what its caller would have waited.
            JUKEBOX => {
                self.put_off.push_back((Instant::now(), piece));
                return Ok(());
            }
            0 if slot.write => {
                reply.change()?;
                reply.u32()? as usize
            }
            0 => {
                reply.attributes()?;
                reply.bytes(8)?;
                let data = reply.opaque()?;
                if data.len() > length {
                    return Err(wrong("the server sent more than was asked for"));
                }
                slot.buffer[at..at + data.len()].copy_from_slice(data);
                data.len()
            }
            status => {
                slot.failed.get_or_insert(words(status));
                length
            }
        };
        if done < length {
            slot.failed.get_or_insert(format!("only {done} of {length} bytes were transferred"));
        }
        slot.calls -= 1;
        if slot.calls == 0 {
            slot.busy = false;
            self.link.flying -= 1;
            answers.push((number as u32, slot.failed.take().map_or(Ok(()), Err)));
        }
        Ok(())
    }
}

impl Dialect for Nfs {
    fn link(&mut self) -> &mut EngineLink {
        &mut self.link
    }

    fn send_again(&mut self) -> Option<Duration> {
        loop {
            let (since, piece) = *self.put_off.front()?;
            match LATER.0.saturating_sub(since.elapsed().as_nanos() as u64) {
                0 => self.send(piece),
                left => return Some(Duration(left)),
            }
            self.put_off.pop_front();
        }
    }

    fn give_up(&mut self, why: &str, answers: &mut Vec<SlotResult>) {
        self.calls.clear();
        self.put_off.clear();
        for (number, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.busy) {
            slot.busy = false;
            self.link.flying -= 1;
            answers.push((number as u32, Err(why.to_owned())));
        }
    }

    fn receive(&mut self, answers: &mut Vec<SlotResult>) -> io::Result<()> {
        let most = self.remote.read_max as usize + (64 << 10);
        while let Some(count) = self.link.wire.read(&mut self.stage)? {
            self.records.feed(&self.stage[..count]);
            while let Some(record) = self.records.next(most)? {
                self.reply(&record, answers)?;
            }
        }
        Ok(())
    }
}

impl Engine for Nfs {
    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn start(&mut self, number: u32, access: &Access) {
        let most = if access.write { self.remote.write_max } else { self.remote.read_max } as usize;
        let slot = &mut self.slots[number as usize];
        assert!(!slot.busy, "slot {number} is under way already");
        let length = access.length as usize;
        (slot.busy, slot.start, slot.write, slot.failed) = (true, access.at, access.write, None);
        slot.calls = length.div_ceil(most) as u32;
        self.link.flying += 1;
        for at in (0..length).step_by(most) {
            self.send(Piece { slot: number as usize, at, length: most.min(length - at) });
        }
    }

    fn reap(&mut self, least: u32, limit: Option<Duration>, answers: &mut Vec<SlotResult>) {
        stream::reap(self, least, limit, answers);
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.slots[slot as usize].buffer
    }
}

#[cfg(test)]
mod tests;
