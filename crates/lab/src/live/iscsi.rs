//! A logical unit of an iSCSI target (RFC 7143), as its initiator: one session of one connection
//! for each worker, as many commands under way as the target's window (MaxCmdSN) lets go, READ(16)
//! and WRITE(16).
//!
//! Data of a write goes when the target asks for it (R2T), or with the command as far as both
//! agreed. Error recovery level 0: what goes wrong on the connection ends it, and with it the run.
//! What the target sends is not believed: data must belong to a read that is under way, and lie
//! within it.

pub mod address;
mod login;
mod sense;

use std::collections::VecDeque;
use std::io;

use stele_block::iscsi::framing::{Broken, Framing, digest_of};
use stele_block::iscsi::pdu::{Frame, HEADER, Header, NO_TAG, is_before, opcode, padding};
use stele_ground::{Bytes, Duration};
use stele_media::Buffer;

use super::engine::{Engine, SlotResult};
use super::fill;
use super::stream::{self, Dialect, EngineLink, Stream, wrong};
use super::target::{AccessMethod, Filling, Opening, Ready};
use crate::error::LabError;
use crate::workload::Access;
pub use address::IscsiAddress;
use login::Terms;

/// What we accept as one data segment, and offer as a burst.
const DATA_MAX: u32 = 256 << 10;
const FINAL: u8 = 0x80;
/// A command is tried again so often where the unit only tells what happened before, or is busy.
const TRIES: u32 = 5;

/// What a unit says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    pub size: u64,
    pub block: u64,
}

pub(super) fn open(address: &IscsiAddress, opening: Opening, progress: Filling<'_>) -> Result<Ready, LabError> {
    let unreached = |error: io::Error| match LabError::reaching(&error, cannot(address, &error)) {
        LabError::Unreachable(text) => LabError::Unreachable(text),
        other => LabError::Failed(other.to_string()),
    };
    let connected = Stream::tcp(&address.place).map_err(unreached)?;
    let mut engine = Iscsi::on(connected, address, 4, fill::LENGTH as usize).map_err(refused)?;
    let unit = engine.unit;
    let size = opening.of_device(address, unit.size, unit.block)?;
    let versions = opening.versions(size)?;
    if opening.content.verify {
        let content = (opening.content, versions.as_ref());
        fill::fill(&mut engine, &address.to_string(), size, fill::LENGTH, opening.patience, content, progress)?;
    }
    Ok(Ready {
        way: AccessMethod::Iscsi(address.clone()),
        size,
        block: Bytes(unit.block),
        file: None,
        versions,
        patience: opening.patience,
        name: address.to_string(),
        description: format!("iSCSI unit {address}, {}", engine.terms),
    })
}

/// The kind of what a target said instead of serving: its status is in the words.
fn refused(text: String) -> LabError {
    let says = |codes: &[&str]| codes.iter().any(|code| text.contains(code));
    match () {
        () if says(&["(status 0203)", "(status 0204)", "/25/00)"]) => LabError::Missing(text),
        () if says(&["(status 0201)", "(status 0202)"]) => LabError::Refused(text),
        () => LabError::Failed(text),
    }
}

fn cannot(address: &IscsiAddress, error: &io::Error) -> String {
    format!("{address}: {}", stream::said(error))
}

struct Slot {
    buffer: Buffer,
    cdb: [u8; 16],
    length: usize,
    write: bool,
    busy: bool,
    /// Bytes that a read has brought.
    have: usize,
    tries: u32,
}

pub struct Iscsi {
    link: EngineLink,
    framing: Framing,
    terms: Terms,
    unit: Unit,
    lun: u64,
    slots: Vec<Slot>,
    /// Slots that wait for the target's window.
    waiting: VecDeque<usize>,
    command_number: u32,
    window_end: u32,
    status_number: u32,
}

impl Iscsi {
    pub fn new(address: &IscsiAddress, slots: u32, length_max: usize) -> Result<Iscsi, String> {
        let connected = Stream::tcp(&address.place).map_err(|error| cannot(address, &error))?;
        Iscsi::on(connected, address, slots, length_max)
    }

    fn on(mut stream: Stream, address: &IscsiAddress, slots: u32, length_max: usize) -> Result<Iscsi, String> {
        let cannot = |error: io::Error| cannot(address, &error);
        let agreed = login::login(&mut stream, address).map_err(cannot)?;
        let slot = |_| Slot {
            buffer: Buffer::zeroed(length_max.max(512)),
            cdb: [0; 16],
            length: 0,
            write: false,
            busy: false,
            have: 0,
            tries: 0,
        };
        let mut framing = Framing::new(DATA_MAX as usize);
        (framing.header_digest, framing.data_digest) = (agreed.terms.header_digest, agreed.terms.data_digest);
        let mut engine = Iscsi {
            link: EngineLink::new(stream).map_err(cannot)?,
            framing,
            terms: agreed.terms,
            unit: Unit { size: 0, block: 512 },
            lun: address.unit(),
            slots: (0..slots.max(1)).map(slot).collect(),
            waiting: VecDeque::new(),
            command_number: agreed.command_number,
            window_end: agreed.window_end,
            status_number: agreed.status_number,
        };
        engine.unit = engine.ask_capacity().map_err(|error| format!("{address}: {error}"))?;
        Ok(engine)
    }

    /// READ CAPACITY(16), by the same path as every read.
    fn ask_capacity(&mut self) -> Result<Unit, String> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
        self.submit(0, cdb, 32, false);
        let mut answers = Vec::new();
        self.reap(1, Some(Duration(stream::PATIENCE.as_nanos() as u64)), &mut answers);
        let (_, result) = answers.pop().ok_or("the unit does not say how large it is")?;
        result?;
        let bytes = &self.slots[0].buffer;
        let last = bytes.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
        let block = bytes.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
        let size = last.checked_add(1).and_then(|blocks| blocks.checked_mul(block.into()));
        match size {
            Some(size) if block >= 512 && block.is_power_of_two() => Ok(Unit { size, block: block.into() }),
            _ => Err(format!("the unit says that it has {last} blocks of {block} bytes")),
        }
    }

    fn submit(&mut self, number: usize, cdb: [u8; 16], length: usize, write: bool) {
        let slot = &mut self.slots[number];
        assert!(!slot.busy, "slot {number} is under way already");
        (slot.cdb, slot.length, slot.write, slot.busy, slot.have, slot.tries) = (cdb, length, write, true, 0, 0);
        self.link.flying += 1;
        self.waiting.push_back(number);
        self.go();
    }

    /// Lets commands go as far as the window reaches.
    fn go(&mut self) {
        while let Some(number) = self.waiting.front().copied()
            && !is_before(self.window_end, self.command_number)
        {
            self.waiting.pop_front();
            let slot = &self.slots[number];
            let immediate = match slot.write && self.terms.immediate_data {
                true => slot.length.min(self.terms.first_burst as usize).min(self.terms.their_data_max as usize),
                false => 0,
            };
            let unsolicited = match slot.write && !self.terms.initial_r2t {
                true => slot.length.min(self.terms.first_burst as usize),
                false => immediate,
            };
            let direction = match (slot.length, slot.write) {
                (0, _) => 0,
                (_, true) => 0x20,
                (_, false) => 0x40,
            };
            // FINAL where no data follows unasked; the task attribute is SIMPLE.
            let last = if unsolicited > immediate { 0 } else { FINAL };
            let mut header = Header::new(opcode::COMMAND, last | direction | 1);
            header.put(8, &self.lun.to_be_bytes());
            header.set_tag(number as u32);
            header.put32(20, slot.length as u32);
            header.put32(24, self.command_number);
            header.put32(28, self.status_number);
            header.put(32, &slot.cdb);
            self.command_number = self.command_number.wrapping_add(1);
            self.send_pdu(header, Some((number, 0, immediate)));
            if unsolicited > immediate {
                self.send_data(number, NO_TAG, immediate, unsolicited);
            }
        }
    }

    /// Data-Out PDUs with a part of a slot's buffer.
    fn send_data(&mut self, number: usize, transfer: u32, from: usize, to: usize) {
        let mut at = from;
        let mut count = 0u32;
        while at < to {
            let end = to.min(at + self.terms.their_data_max as usize);
            let mut header = Header::new(opcode::DATA_OUT, if end == to { FINAL } else { 0 });
            header.put(8, &self.lun.to_be_bytes());
            header.set_tag(number as u32);
            header.put32(20, transfer);
            header.put32(28, self.status_number);
            header.put32(36, count);
            header.put32(40, at as u32);
            self.send_pdu(header, Some((number, at, end)));
            (at, count) = (end, count + 1);
        }
    }

    fn send_pdu(&mut self, mut header: Header, data: Option<(usize, usize, usize)>) {
        let length = data.map_or(0, |(_, from, to)| to - from);
        header.set_data_length(length);
        self.link.wire.queue(&header.0);
        if self.terms.header_digest {
            self.link.wire.queue(&digest_of(&[&header.0]));
        }
        if let Some((number, from, to)) = data.filter(|_| length > 0) {
            let bytes = &self.slots[number].buffer[from..to];
            let zeros = &[0u8; 3][..padding(length)];
            self.link.wire.queue(bytes);
            self.link.wire.queue(zeros);
            if self.terms.data_digest {
                self.link.wire.queue(&digest_of(&[bytes, zeros]));
            }
        }
    }

    fn frame(&mut self, frame: Frame, answers: &mut Vec<SlotResult>) -> io::Result<()> {
        let header = frame.header;
        let (status, window_end) = (header.u32(24), header.u32(32));
        let has_status = match header.opcode() {
            opcode::DATA_IN => header.flags() & 1 != 0,
            opcode::READY | opcode::REJECT => false,
            _ => true,
        };
        if is_before(self.window_end, window_end) {
            self.window_end = window_end;
        }
        if has_status && !is_before(status.wrapping_add(1), self.status_number) {
            self.status_number = status.wrapping_add(1);
        }
        match header.opcode() {
            opcode::DATA_IN => self.data_in(&frame, answers)?,
            opcode::READY => {
                let (number, at, length) =
                    (self.flying_slot(&header)?, header.u32(40) as usize, header.u32(44) as usize);
                let slot = &self.slots[number];
                if !slot.write || length == 0 || at + length > slot.length {
                    return Err(wrong("the target asks for data that a command does not have"));
                }
                self.send_data(number, header.u32(20), at, at + length);
            }
            opcode::RESPONSE => {
                let number = self.flying_slot(&header)?;
                let (response, status) = (header.u8(2), header.u8(3));
                let short = self.slots[number].have < self.slots[number].length && !self.slots[number].write;
                let result = match (response, status) {
                    (0, 0) if header.flags() & 0x06 != 0 || short => {
                        Err("the target transferred another number of bytes than was asked for".to_owned())
                    }
                    (0, 0) => Ok(()),
                    (0, status) => Err(sense::words(status, &frame.data)),
                    (response, _) => Err(format!("the target could not carry it out (response {response:#04x})")),
                };
                self.settle(number, result, status, &frame.data, answers);
            }
            opcode::NOP_IN => {
                if header.u32(20) != NO_TAG {
                    let mut answer = Header::new(opcode::NOP_OUT | 0x40, FINAL);
                    answer.put(8, header.bytes(8, 16));
                    answer.set_tag(NO_TAG);
                    answer.put32(20, header.u32(20));
                    answer.put32(24, self.command_number);
                    answer.put32(28, self.status_number);
                    self.send_pdu(answer, None);
                }
            }
            opcode::ASYNC if matches!(header.u8(36), 0 | 255) => {}
            opcode::ASYNC => return Err(wrong("the target ends the session")),
            opcode::REJECT => {
                return Err(wrong(format!("the target rejects what it was sent (reason {:#04x})", header.u8(2))));
            }
            other => return Err(wrong(format!("the target sent a PDU {other:#04x} that answers nothing"))),
        }
        self.go();
        Ok(())
    }

    fn flying_slot(&self, header: &Header) -> io::Result<usize> {
        let number = header.tag() as usize;
        match self.slots.get(number).is_some_and(|slot| slot.busy) && !self.waiting.contains(&number) {
            true => Ok(number),
            false => Err(wrong("the target answered a command that is not under way")),
        }
    }

    fn data_in(&mut self, frame: &Frame, answers: &mut Vec<SlotResult>) -> io::Result<()> {
        let header = frame.header;
        let number = self.flying_slot(&header)?;
        let (at, length) = (header.u32(40) as usize, frame.data.len());
        let slot = &mut self.slots[number];
        if slot.write || at != slot.have || at + length > slot.length {
            return Err(wrong("the target sent data that was not asked for"));
        }
        slot.buffer[at..at + length].copy_from_slice(&frame.data);
        slot.have += length;
        if header.flags() & 1 != 0 {
            let status = header.u8(3);
            let result = match (status, slot.have == slot.length) {
                (0, true) => Ok(()),
                (0, false) => Err(format!("only {} of {} bytes were transferred", slot.have, slot.length)),
                (status, _) => Err(sense::words(status, &[])),
            };
            self.settle(number, result, status, &[], answers);
        }
        Ok(())
    }

    fn settle(
        &mut self,
        number: usize,
        result: Result<(), String>,
        status: u8,
        data: &[u8],
        answers: &mut Vec<SlotResult>,
    ) {
        let slot = &mut self.slots[number];
        if result.is_err() && sense::is_passing(status, data) && slot.tries < TRIES {
            slot.tries += 1;
            slot.have = 0;
            self.waiting.push_back(number);
            return;
        }
        slot.busy = false;
        self.link.flying -= 1;
        answers.push((number as u32, result));
    }
}

impl Dialect for Iscsi {
    fn link(&mut self) -> &mut EngineLink {
        &mut self.link
    }

    fn give_up(&mut self, why: &str, answers: &mut Vec<SlotResult>) {
        self.waiting.clear();
        for (number, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.busy) {
            slot.busy = false;
            self.link.flying -= 1;
            answers.push((number as u32, Err(why.to_owned())));
        }
    }

    fn receive(&mut self, answers: &mut Vec<SlotResult>) -> io::Result<()> {
        loop {
            let broken = |broken| match broken {
                Broken::TooLong(length) => {
                    wrong(format!("the target sent {length} bytes at once, more than was agreed"))
                }
                Broken::HeaderDigest | Broken::DataDigest => {
                    wrong("what the target sent is damaged: its digest differs")
                }
            };
            while let Some(frame) = self.framing.frame().map_err(broken)? {
                self.frame(frame, answers)?;
            }
            match self.link.wire.read(self.framing.space())? {
                Some(count) => self.framing.filled(count),
                None => return Ok(()),
            }
        }
    }
}

impl Engine for Iscsi {
    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn start(&mut self, slot: u32, access: &Access) {
        let mut cdb = [0; 16];
        cdb[0] = if access.write { 0x8a } else { 0x88 };
        cdb[2..10].copy_from_slice(&(access.at / self.unit.block).to_be_bytes());
        cdb[10..14].copy_from_slice(&((access.length / self.unit.block) as u32).to_be_bytes());
        self.submit(slot as usize, cdb, access.length as usize, access.write);
    }

    fn reap(&mut self, least: u32, limit: Option<Duration>, answers: &mut Vec<SlotResult>) {
        stream::reap(self, least, limit, answers);
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        &mut self.slots[slot as usize].buffer
    }
}

impl Drop for Iscsi {
    fn drop(&mut self) {
        // A target is told before the connection ends; whether it still listens does not matter.
        let mut header = Header::new(opcode::LOGOUT | 0x40, FINAL);
        header.put32(24, self.command_number);
        header.put32(28, self.status_number);
        self.send_pdu(header, None);
        let _ = self.link.wire.send();
        debug_assert_eq!(header.0.len(), HEADER);
    }
}

#[cfg(test)]
mod tests;
