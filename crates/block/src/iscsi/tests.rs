//! An initiator by hand against the state machines, with a drive in memory. The test decides when
//! its operations are carried out.

use std::collections::BTreeMap;

use stele_ground::{Bytes, Instant};
use stele_media::{Completion, Drive, MediaError, MediaFault, MemoryDrive, Priority, Request};

use super::framing::{Broken, Framing, digest_of};
use super::login::Refusal;
use super::pdu::{Frame, Header, NO_TAG, opcode};
use super::text::Pairs;
use super::*;
use crate::scsi::{Answer, Ask, Profile, Reached, Reservations, UnitId, be32, is_named};

mod commands;
mod early;
mod ends;
mod limits;
mod logins;
mod neighbours;
mod sessions;
mod turns;

const TARGET: &str = "iqn.2026-01.local.stele:test";
const BLOCK: u64 = 512;
const BLOCKS: u64 = 4096;

fn profile() -> Profile {
    Profile {
        blocks: BLOCKS,
        block_bytes: BLOCK as u32,
        id: *b"0123456789abcdef",
        name: "test".to_owned(),
        target: TARGET.to_owned(),
        read_only: false,
        removable: false,
        native_blocks: false,
        whole_max: 1 << 20,
        unmap_granularity: 8,
    }
}

struct OneTarget(LoginRules);

impl Targets for OneTarget {
    fn rules(&self, target: &str) -> Result<LoginRules, Refusal> {
        if target == TARGET { Ok(self.0.clone()) } else { Err(Refusal::NOT_FOUND) }
    }
}

/// A target with a drive and its connections.
struct Bench {
    shared: Shared,
    drive: MemoryDrive,
    connections: BTreeMap<u32, Connection>,
    /// Operations that the drive has not received yet: connection, task.
    held: Vec<(u32, u32, Ask)>,
    kept: Option<Vec<u8>>,
    keep_fails: bool,
    /// A unit of another target, of the same size, that copies reach.
    neighbour: Option<(Reached, MemoryDrive)>,
}

fn neighbour_profile() -> Profile {
    Profile { id: *b"fedcba9876543210", ..profile() }
}

impl Bench {
    fn new() -> Bench {
        Bench::with(Reservations::default())
    }

    fn with(reservations: Reservations) -> Bench {
        Bench {
            shared: Shared::new(profile(), reservations),
            drive: MemoryDrive::with_block(Bytes(BLOCKS * BLOCK), Bytes(BLOCK)),
            connections: BTreeMap::new(),
            held: Vec::new(),
            kept: None,
            keep_fails: false,
            neighbour: None,
        }
    }

    /// A session without negotiation, with the parameters that a login would have agreed on.
    fn connect(&mut self, initiator: &str, tsih: u16, cid: u16) -> Result<Initiator, Refusal> {
        let parameters =
            parameters::Parameters { connections: 4, initial_r2t: false, ..parameters::Parameters::default() };
        let agreed = LoginResult {
            initiator: initiator.to_owned(),
            isid: [1, 2, 3, 4, 5, 6],
            target: Some(TARGET.to_owned()),
            rules: LoginRules::default(),
            tsih,
            cid,
            command_number: 1,
            status_number: 1,
            parameters,
        };
        let place = self.shared.join(&agreed)?;
        let (serial, tsih) = (place.serial, place.tsih);
        let mut connection = Connection::new(place, &agreed, "127.0.0.1:3260".to_owned());
        connection.begin(&mut self.shared);
        self.connections.insert(serial, connection);
        Ok(Initiator { serial, tsih })
    }

    /// A session whose unit attention has been read.
    fn ready(&mut self, initiator: &str) -> Initiator {
        let joined = self.connect(initiator, 0, 0).unwrap();
        let mut number = 0;
        self.command(joined, &mut number, &[0; 6], None, 0);
        self.shared.sessions.get_mut(&joined.tsih).unwrap().expected = 1;
        joined
    }

    fn send(&mut self, to: Initiator, header: Header, data: &[u8]) {
        let mut out = outbox::Outbox::default();
        out.push(header, &[stele_media::Shared::copy_from_slice(data)]);
        let bytes = out.take();
        let connection = self.connections.get_mut(&to.serial).unwrap();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let fed = connection.framing.feed(rest);
            rest = &rest[fed..];
            connection.receive(&mut self.shared);
        }
        self.gather();
    }

    fn gather(&mut self) {
        for (serial, connection) in &mut self.connections {
            connection.hear(&mut self.shared);
            self.held.extend(connection.take_asks().into_iter().map(|(tag, ask)| (*serial, tag, ask)));
        }
    }

    /// Carries out one held operation.
    fn carry_out(&mut self, index: usize) {
        let (serial, tag, ask) = self.held.remove(index);
        let answer = match ask {
            Ask::Find(search) => {
                let find = |(kind, name): &(u8, Vec<u8>)| {
                    let other = &self.neighbour.as_ref()?.0;
                    is_named(&neighbour_profile(), *kind, name).then(|| other.clone())
                };
                Answer::Found(search.names.iter().map(find).collect())
            }
            Ask::Drive(unit, op) | Ask::Whole(unit, op) => {
                let drive = match (unit, &mut self.neighbour) {
                    (UnitId(0), _) => &mut self.drive,
                    (_, Some((reached, drive))) if reached.unit == unit => drive,
                    _ => panic!("there is no unit {unit:?}"),
                };
                drive.submit(Request { tag: 0, op, priority: Priority::Host, deadline: None });
                let mut finished = Vec::new();
                drive.reap(Instant(0), &mut finished);
                let Completion { op, result, .. } = finished.pop().unwrap();
                Answer::Drive(op, result)
            }
            Ask::Keep(_, bytes) => {
                if self.keep_fails {
                    Answer::Kept(Err(MediaError::new(MediaFault::Retry, "the disk is full")))
                } else {
                    self.kept = bytes;
                    Answer::Kept(Ok(()))
                }
            }
        };
        self.connections.get_mut(&serial).unwrap().answer(&mut self.shared, tag, answer);
        self.gather();
    }

    fn settle(&mut self) {
        while !self.held.is_empty() {
            self.carry_out(0);
        }
    }

    /// All PDUs waiting for an initiator.
    fn heard(&mut self, from: Initiator) -> Vec<Frame> {
        let bytes = self.connections.get_mut(&from.serial).unwrap().out.take();
        frames(&bytes)
    }

    /// Runs a command from beginning to end: status, data and sense.
    fn command(
        &mut self,
        from: Initiator,
        number: &mut u32,
        cdb: &[u8],
        data: Option<&[u8]>,
        expected: u32,
    ) -> (u8, Vec<u8>) {
        *number += 1;
        self.send(from, command(*number, 0x1000 + *number, cdb, data, expected), data.unwrap_or_default());
        self.settle();
        let frames = self.heard(from);
        let status = frames.last().unwrap();
        let data = frames.iter().flat_map(|frame| frame.data.to_vec()).collect();
        let code = if status.header.opcode() == opcode::DATA_IN { 0 } else { status.header.u8(3) };
        (code, data)
    }
}

#[derive(Clone, Copy)]
struct Initiator {
    serial: u32,
    tsih: u16,
}

fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut framing = Framing::new(1 << 24);
    let (mut rest, mut frames) = (bytes, Vec::new());
    loop {
        let fed = framing.feed(rest);
        rest = &rest[fed..];
        match framing.frame().unwrap() {
            Some(frame) => frames.push(frame),
            None if rest.is_empty() => return frames,
            None => {}
        }
    }
}

fn command(number: u32, tag: u32, cdb: &[u8], data: Option<&[u8]>, expected: u32) -> Header {
    let direction = if data.is_some() { 0x20 } else { 0x40 };
    let mut header = Header::new(opcode::COMMAND, 0x80 | direction);
    header.set_tag(tag);
    header.put32(20, expected);
    header.put32(24, number);
    header.put(32, cdb);
    header
}

fn write10(at: u32, count: u16) -> Vec<u8> {
    [&[0x2a, 0][..], &at.to_be_bytes(), &[0], &count.to_be_bytes(), &[0]].concat()
}

fn read10(at: u32, count: u16) -> Vec<u8> {
    [&[0x28, 0][..], &at.to_be_bytes(), &[0], &count.to_be_bytes(), &[0]].concat()
}

/// Key and code of the sense in a response.
fn sense(data: &[u8]) -> (u8, u16) {
    (data[4] & 0x0f, u16::from_be_bytes([data[14], data[15]]))
}
