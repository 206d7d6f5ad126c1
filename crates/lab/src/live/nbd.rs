//! A network block device, as its client: fixed newstyle negotiation, then many requests under way
//! on one connection.
//!
//! The socket does not block: requests are sent as far as it takes them while answers are read, so
//! that neither side can wait for the other with both buffers full. Each worker has a connection of
//! its own, where the server allows several. What the server sends is not believed: lengths come
//! from what was asked for, handles must be those of requests under way.
//!
//! Protocol: NetworkBlockDevice/nbd, doc/proto.md.

use std::fmt;
use std::io::{self, IoSliceMut, Read, Write};
use std::path::PathBuf;

use stele_ground::{Bytes, Duration};
use stele_media::Buffer;

use super::engine::{Engine, SlotResult};
use super::fill;
use super::stream::{self, Dialect, EngineLink, Stream, decoded, take, with_port, wrong};
use super::target::{AccessMethod, Filling, Opening, Ready};
use crate::error::LabError;
use crate::job::greatest_common;
use crate::workload::Access;

/// That IANA gave it.
const PORT: u16 = 10809;
const GREETING: u64 = 0x4e42_444d_4147_4943;
const OPTION: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const GO: u32 = 7;
const ACKNOWLEDGED: u32 = 1;
const INFORMATION: u32 = 3;
const ABOUT_EXPORT: u16 = 0;
const ABOUT_BLOCKS: u16 = 3;
const READ_ONLY: u16 = 1 << 1;
const SEVERAL_CONNECTIONS: u16 = 1 << 8;
/// The longest access of a replay is known only as a bound: blocks of the target may make it
/// longer.
const REPLAY_SLACK: u64 = 8192;
/// Replies to an option are no longer than this.
const OPTION_REPLY_MAX: u32 = 64 << 10;

/// Where a server listens, and which export is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NbdAddress {
    place: Place,
    export: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Tcp(String),
    Unix(PathBuf),
}

/// What a server says of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export {
    pub size: u64,
    pub read_only: bool,
    pub several_connections: bool,
    /// Offsets and lengths are multiples of it.
    pub block: u64,
    /// Bytes of one access at most.
    pub access_max: u64,
}

impl std::str::FromStr for NbdAddress {
    type Err = LabError;
    /// `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`.
    fn from_str(text: &str) -> Result<NbdAddress, LabError> {
        let bad = || {
            LabError::Usage(format!("target '{text}': say nbd://HOST[:PORT]/EXPORT, or nbd+unix:///EXPORT?socket=PATH"))
        };
        if let Some(rest) = text.strip_prefix("nbd+unix:///") {
            let (export, path) = rest.split_once("?socket=").ok_or_else(bad)?;
            let path = decoded(path).filter(|path| !path.is_empty()).ok_or_else(bad)?;
            return Ok(NbdAddress { place: Place::Unix(path.into()), export: decoded(export).ok_or_else(bad)? });
        }
        let rest = text.strip_prefix("nbd://").ok_or_else(bad)?;
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        if export.contains('?') {
            return Err(bad());
        }
        let host = with_port(host, PORT).ok_or_else(bad)?;
        Ok(NbdAddress { place: Place::Tcp(host), export: decoded(export).ok_or_else(bad)? })
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp(host) => write!(f, "nbd://{host}/{}", self.export),
            Place::Unix(path) => write!(f, "nbd+unix:///{}?socket={}", self.export, path.display()),
        }
    }
}

/// Asks what it is, and makes it ready.
pub(super) fn open(address: &NbdAddress, opening: Opening, progress: Filling<'_>) -> Result<Ready, LabError> {
    let export = ask(address)?;
    if opening.writes && export.read_only {
        return Err(LabError::Refused(format!("{address}: may only be read")));
    }
    let block = export.block.max(512);
    // A replay checks nothing.
    let slack = if opening.content.verify { 0 } else { REPLAY_SLACK };
    if opening.longest > export.access_max.saturating_add(slack) {
        return Err(LabError::Usage(format!(
            "{address}: its server takes accesses of at most {}, and the longest of this job has {}; ask for shorter ones",
            Bytes(export.access_max),
            Bytes(opening.longest)
        )));
    }
    let size = opening.of_device(address, export.size, block)?;
    let versions = opening.versions(size)?;
    if opening.content.verify {
        // In whole places of the table that the checks have.
        let place = greatest_common(opening.step.max(block), 4096).max(block);
        let length = (fill::LENGTH.min(export.access_max) / place * place).max(place);
        let mut engine = Nbd::new(address, 4, length as usize).map_err(LabError::Failed)?;
        let content = (opening.content, versions.as_ref());
        fill::fill(&mut engine, &address.to_string(), size, length, opening.patience, content, progress)?;
    }
    Ok(Ready {
        way: AccessMethod::Nbd {
            address: address.clone(),
            several: export.several_connections || !opening.writes,
            access_max: export.access_max,
        },
        size,
        block: Bytes(block),
        file: None,
        versions,
        patience: opening.patience,
        name: address.to_string(),
        description: format!("network block device {address}"),
    })
}

/// Asks what the export is.
pub fn ask(address: &NbdAddress) -> Result<Export, LabError> {
    connect(address)
        .map(|(_, export)| export)
        .map_err(|error| LabError::reaching(&error, format!("{address}: {}", stream::said(&error))))
}

fn connect(address: &NbdAddress) -> io::Result<(Stream, Export)> {
    let mut stream = match &address.place {
        Place::Tcp(host) => Stream::tcp(host)?,
        Place::Unix(path) => Stream::unix(path)?,
    };
    let export = negotiate(&mut stream, &address.export)?;
    Ok((stream, export))
}

/// The greeting of a server, and what it says of an export.
pub fn negotiate(stream: &mut (impl Read + Write), name: &str) -> io::Result<Export> {
    if u64::from_be_bytes(take(stream)?) != GREETING || u64::from_be_bytes(take(stream)?) != OPTION {
        return Err(wrong("this is no server of network block devices of the newstyle kind"));
    }
    // Fixed newstyle, and no padding where both can do without.
    let flags = u16::from_be_bytes(take(stream)?) & 3;
    let mut hello = u32::from(flags).to_be_bytes().to_vec();
    hello.extend(OPTION.to_be_bytes());
    hello.extend(GO.to_be_bytes());
    hello.extend((name.len() as u32 + 8).to_be_bytes());
    hello.extend((name.len() as u32).to_be_bytes());
    hello.extend(name.as_bytes());
    hello.extend(1u16.to_be_bytes());
    hello.extend(ABOUT_BLOCKS.to_be_bytes());
    stream.write_all(&hello)?;
    let mut export = None;
    let (mut block, mut access_max) = (1u64, 32u64 << 20);
    loop {
        if u64::from_be_bytes(take(stream)?) != OPTION_REPLY || u32::from_be_bytes(take(stream)?) != GO {
            return Err(wrong("the server answered something that was not asked for"));
        }
        let (kind, length) = (u32::from_be_bytes(take(stream)?), u32::from_be_bytes(take(stream)?));
        if length > OPTION_REPLY_MAX {
            return Err(wrong(format!("the server announces {length} bytes about the export")));
        }
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body)?;
        let half = |at: usize| body.get(at..at + 2).and_then(|b| b.try_into().ok()).map(u16::from_be_bytes);
        let word = |at: usize| body.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes);
        match kind {
            ACKNOWLEDGED => break,
            INFORMATION if half(0) == Some(ABOUT_EXPORT) => {
                let size = body.get(2..10).and_then(|b| b.try_into().ok()).map(u64::from_be_bytes);
                export = size.zip(half(10));
            }
            INFORMATION if half(0) == Some(ABOUT_BLOCKS) => {
                block = word(2).map_or(1, u64::from).max(1);
                // A server that takes nothing is not to be believed: nothing would ever be done.
                access_max = word(10).map_or(access_max, u64::from).max(block);
            }
            INFORMATION => {}
            _ => {
                let said = String::from_utf8_lossy(&body).into_owned();
                let said = if said.is_empty() { format!("error {kind:#x}") } else { said };
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    format!("the server refuses export '{name}': {said}"),
                ));
            }
        }
    }
    let (size, flags) = export.ok_or_else(|| wrong("the server does not say how large the export is"))?;
    let several_connections = flags & SEVERAL_CONNECTIONS != 0;
    Ok(Export { size, read_only: flags & READ_ONLY != 0, several_connections, block, access_max })
}

struct Slot {
    /// Empty while it is being sent.
    buffer: Buffer,
    length: usize,
    write: bool,
    busy: bool,
    /// The buffer is being sent.
    lent: bool,
}

/// A body of which so much is left is read to where it belongs; shorter ones come with others in
/// one piece.
const STRAIGHT: usize = 16 << 10;
/// Bytes of answers that are read in one piece.
const STAGED: usize = 64 << 10;

/// What of an answer has been read.
enum Reading {
    Head { bytes: [u8; 16], have: usize },
    Body { slot: usize, have: usize },
}

const HEAD: Reading = Reading::Head { bytes: [0; 16], have: 0 };

pub struct Nbd {
    link: EngineLink,
    slots: Vec<Slot>,
    reading: Reading,
    /// What was read and not looked at yet.
    staged: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Nbd {
    pub fn new(address: &NbdAddress, slots: u32, length_max: usize) -> Result<Nbd, String> {
        let cannot = |error: io::Error| format!("{address}: {}", stream::said(&error));
        let (stream, _) = connect(address).map_err(cannot)?;
        Nbd::over(stream, slots, length_max).map_err(cannot)
    }

    /// Over a connection whose export was agreed on.
    pub fn agreed(stream: std::os::unix::net::UnixStream, slots: u32, length_max: usize) -> io::Result<Nbd> {
        Nbd::over(Stream::Unix(stream), slots, length_max)
    }

    fn over(stream: Stream, slots: u32, length_max: usize) -> io::Result<Nbd> {
        let slot = |_| Slot { buffer: Buffer::zeroed(length_max), length: 0, write: false, busy: false, lent: false };
        Ok(Nbd {
            link: EngineLink::new(stream)?,
            slots: (0..slots).map(slot).collect(),
            reading: HEAD,
            staged: vec![0; STAGED],
            begin: 0,
            end: 0,
        })
    }

    fn head(&mut self, bytes: [u8; 16], answers: &mut Vec<SlotResult>) -> io::Result<()> {
        let word = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes);
        if word(0) != SIMPLE_REPLY {
            return Err(wrong("the server sent something that is no reply"));
        }
        let slot = word(12) as usize;
        self.take_back();
        if self.slots.get(slot).is_some_and(|slot| slot.lent) {
            return Err(wrong("the server answered a write before it had all of it"));
        }
        let known = word(8) == 0 && self.slots.get(slot).is_some_and(|slot| slot.busy);
        if !known {
            return Err(wrong("the server answered a request that is not under way"));
        }
        self.reading = HEAD;
        match word(4) {
            0 if !self.slots[slot].write => self.reading = Reading::Body { slot, have: 0 },
            0 => self.answer(slot, Ok(()), answers),
            number => {
                let error = io::Error::from_raw_os_error(number as i32);
                self.answer(slot, Err(error.to_string()), answers);
            }
        }
        Ok(())
    }

    /// Buffers that were sent.
    fn take_back(&mut self) {
        for (number, buffer) in self.link.wire.back() {
            if let Some(slot) = self.slots.get_mut(number as usize) {
                (slot.buffer, slot.lent) = (buffer, false);
            }
        }
    }

    /// What has come, without a call for each answer. False: there is nothing more.
    fn read(&mut self) -> io::Result<bool> {
        (self.begin, self.end) = (0, 0);
        let (length, room) = match &mut self.reading {
            Reading::Body { slot, have } if self.slots[*slot].length - *have >= STRAIGHT => {
                let slot = &mut self.slots[*slot];
                let rest = &mut slot.buffer[*have..slot.length];
                let room = rest.len();
                let mut into = [IoSliceMut::new(rest), IoSliceMut::new(&mut self.staged)];
                let Some(length) = self.link.wire.read_into(&mut into)? else { return Ok(false) };
                *have += length.min(room);
                self.end = length.saturating_sub(room);
                (length, room)
            }
            _ => {
                let Some(length) = self.link.wire.read(&mut self.staged)? else { return Ok(false) };
                self.end = length;
                (length, 0)
            }
        };
        // A call that brought less than it could has emptied the socket.
        Ok(length == room + self.staged.len())
    }

    /// Looks at what was read.
    fn digest(&mut self, answers: &mut Vec<SlotResult>) -> io::Result<()> {
        loop {
            if let Reading::Body { slot, have } = &mut self.reading {
                let number = *slot;
                let slot = &mut self.slots[number];
                let length = (self.end - self.begin).min(slot.length - *have);
                slot.buffer[*have..*have + length].copy_from_slice(&self.staged[self.begin..self.begin + length]);
                (*have, self.begin) = (*have + length, self.begin + length);
                if *have < slot.length {
                    return Ok(());
                }
                self.reading = HEAD;
                self.answer(number, Ok(()), answers);
            }
            if let Reading::Head { bytes, have } = &mut self.reading {
                let length = (self.end - self.begin).min(bytes.len() - *have);
                bytes[*have..*have + length].copy_from_slice(&self.staged[self.begin..self.begin + length]);
                (*have, self.begin) = (*have + length, self.begin + length);
                if *have < bytes.len() {
                    return Ok(());
                }
                let bytes = *bytes;
                self.head(bytes, answers)?;
            }
        }
    }

    fn answer(&mut self, slot: usize, result: Result<(), String>, answers: &mut Vec<SlotResult>) {
        self.slots[slot].busy = false;
        self.link.flying -= 1;
        answers.push((slot as u32, result));
    }
}

impl Dialect for Nbd {
    fn link(&mut self) -> &mut EngineLink {
        &mut self.link
    }

    fn give_up(&mut self, why: &str, answers: &mut Vec<SlotResult>) {
        self.link.wire.abandon();
        self.take_back();
        for slot in 0..self.slots.len() {
            if self.slots[slot].busy {
                self.answer(slot, Err(why.to_owned()), answers);
            }
        }
    }

    fn receive(&mut self, answers: &mut Vec<SlotResult>) -> io::Result<()> {
        while self.link.flying > 0 {
            let more = self.read()?;
            self.digest(answers)?;
            if !more {
                break;
            }
        }
        self.take_back();
        Ok(())
    }
}

impl Engine for Nbd {
    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn start(&mut self, number: u32, access: &Access) {
        let slot = &mut self.slots[number as usize];
        assert!(!slot.busy, "slot {number} is under way already");
        (slot.busy, slot.length, slot.write) = (true, access.length as usize, access.write);
        self.link.flying += 1;
        let mut head = [0; 28];
        let fields: [&[u8]; 6] = [
            &REQUEST.to_be_bytes(),
            &0u16.to_be_bytes(),
            &u16::from(access.write).to_be_bytes(),
            &u64::from(number).to_be_bytes(),
            &access.at.to_be_bytes(),
            &(access.length as u32).to_be_bytes(),
        ];
        let mut at = 0;
        for field in fields {
            head[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        }
        self.link.wire.queue(&head);
        if access.write {
            let (buffer, length) = (std::mem::replace(&mut slot.buffer, Buffer::zeroed(0)), slot.length);
            match self.link.wire.queue_buffer(number, buffer, length) {
                Some(buffer) => slot.buffer = buffer,
                None => slot.lent = true,
            }
        }
    }

    fn reap(&mut self, least: u32, limit: Option<Duration>, answers: &mut Vec<SlotResult>) {
        stream::reap(self, least, limit, answers);
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.slots[slot as usize].buffer
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        // A server is told before the connection ends; whether it still listens does not matter.
        let mut bye = REQUEST.to_be_bytes().to_vec();
        bye.extend([0, 0, 0, 2]);
        bye.extend([0; 20]);
        self.link.wire.queue(&bye);
        let _ = self.link.wire.send();
    }
}

#[cfg(test)]
mod tests;
