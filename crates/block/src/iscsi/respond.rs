//! The answers: data with the status in its last PDU, or a response with sense; and answers to NOP,
//! text and logout.

use stele_media::Shared as Data;

use super::connection::{Connection, REJECT_PROTOCOL};
use super::pdu::{Frame, Header, NO_TAG, opcode};
use super::shared::Shared;
use super::text::{self, Pairs};
use crate::scsi::{Reply, Status};

/// A shorter piece of what was received holds a page of memory.
const PAGE: usize = 4096;
const RESIDUAL_UNDER: u8 = 0x02;
const RESIDUAL_OVER: u8 = 0x04;

impl Connection {
    /// Answers a command and ends it.
    pub(super) fn respond(&mut self, shared: &mut Shared, tag: u32, reply: Reply) {
        let Some(task) = self.tasks.get(&tag) else { return };
        if task.aborted {
            return self.end(shared, tag);
        }
        let expected = u64::from(task.expected);
        let available: u64 = reply.data.iter().map(|piece| piece.len() as u64).sum();
        let (moved, room) = match (task.reads, task.writes) {
            (true, _) => (available, expected),
            (_, true) => (task.out, expected),
            // Neither direction: all available data overflows.
            _ => (available.max(task.out), 0),
        };
        let reads = task.reads;
        let residual = moved.abs_diff(room);
        let flags = match moved.cmp(&room) {
            std::cmp::Ordering::Less => RESIDUAL_UNDER,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => RESIDUAL_OVER,
        };
        let residual = residual.min(u64::from(u32::MAX)) as u32;
        // This answer reopens the window.
        self.end(shared, tag);
        let sent = if reads { available.min(expected) } else { 0 };
        if sent > 0 && reply.status == Status::Good {
            return self.send_data(shared, tag, &reply.data, sent, flags, residual);
        }
        let mut header = Header::new(opcode::RESPONSE, 0x80 | flags);
        header.put(3, &[reply.status as u8]);
        header.set_tag(tag);
        self.stamp(shared, &mut header, true);
        header.put32(44, residual);
        let sense = reply.sense.map(|sense| {
            let sense = sense.encode(shared.unit.descriptor_sense());
            Data::from([&(sense.len() as u16).to_be_bytes(), sense.as_slice()].concat())
        });
        self.out.push(header, sense.as_slice());
    }

    fn send_data(&mut self, shared: &mut Shared, tag: u32, data: &[Data], total: u64, flags: u8, residual: u32) {
        let piece_max = u64::from(self.parameters.their_data_max) & !3;
        let burst_max = u64::from(self.parameters.max_burst);
        let (mut offset, mut number, mut burst) = (0u64, 0u32, 0u64);
        let mut pieces = Cut { data, index: 0, at: 0 };
        while offset < total {
            let length = (total - offset).min(piece_max).min(burst_max - burst);
            let last = offset + length == total;
            burst += length;
            let ends_burst = last || burst == burst_max;
            if ends_burst {
                burst = 0;
            }
            let mut header = Header::new(opcode::DATA_IN, if ends_burst { 0x80 } else { 0 });
            header.set_tag(tag);
            header.put32(20, NO_TAG);
            if last {
                header.put(1, &[0x80 | 0x01 | flags]);
                self.stamp(shared, &mut header, true);
                header.put32(44, residual);
            } else {
                self.stamp(shared, &mut header, false);
                header.put32(24, 0);
            }
            header.put32(36, number);
            header.put32(40, offset as u32);
            let cut = pieces.take(length as usize);
            self.out.push(header, &cut);
            offset += length;
            number += 1;
        }
    }

    pub(super) fn nop(&mut self, shared: &mut Shared, frame: &Frame) {
        let header = &frame.header;
        if header.tag() == NO_TAG {
            return;
        }
        let mut answer = Header::new(opcode::NOP_IN, 0x80);
        answer.put(8, header.bytes(8, 16));
        answer.set_tag(header.tag());
        answer.put32(20, NO_TAG);
        self.stamp(shared, &mut answer, true);
        let length = frame.data.len().min(self.parameters.their_data_max as usize);
        let echo = match frame.data.get(..length) {
            // The rest of a longer ping, or of a page, would stay in memory, uncounted, until the
            // answer is sent.
            Some(part) if length < frame.data.len() || length < PAGE => Data::copy_from_slice(part),
            _ => frame.data.clone(),
        };
        self.out.push(answer, &[echo]);
    }

    pub(super) fn text(&mut self, shared: &mut Shared, frame: &Frame) {
        let header = &frame.header;
        let (Some(pairs), true) = (text::parse(&frame.data), header.is_final()) else {
            return self.reject(shared, header, REJECT_PROTOCOL);
        };
        let mut out = Pairs::default();
        for (key, value) in &pairs {
            match (key.as_str(), value.as_str()) {
                ("SendTargets", name) if name.is_empty() || name == shared.name => {
                    out.add("TargetName", &shared.name);
                    out.add("TargetAddress", format!("{},1", self.local));
                }
                ("SendTargets", _) => {}
                ("MaxRecvDataSegmentLength", value) => {
                    if let Some(length @ 512..=0xff_ffff) = text::number(value) {
                        self.parameters.their_data_max = length as u32;
                    }
                }
                (key, _) => out.add(key, "NotUnderstood"),
            }
        }
        let mut answer = Header::new(opcode::TEXT_IN, 0x80);
        answer.set_tag(header.tag());
        answer.put32(20, NO_TAG);
        self.stamp(shared, &mut answer, true);
        self.out.push(answer, &[Data::from(out.0)]);
    }

    pub(super) fn log_out(&mut self, shared: &mut Shared, header: &Header) {
        let (reason, cid) = (header.flags() & 0x7f, header.u16(20));
        let session = shared.sessions.get(&self.place.tsih);
        let named = session.and_then(|session| session.connections.get(&cid)).copied();
        let (code, close) = match reason {
            0 => (0, true),
            1 if cid == self.place.cid => (0, true),
            1 => (if named.is_some() { 0 } else { 1 }, false),
            // Recovery is not supported.
            _ => (2, false),
        };
        let mut answer = Header::new(opcode::LOGGED_OUT, 0x80);
        answer.put(2, &[code]);
        answer.set_tag(header.tag());
        self.stamp(shared, &mut answer, true);
        self.out.push(answer, &[]);
        if reason == 0 {
            shared.end_session(self.place.tsih);
        } else if reason == 1
            && let Some(serial) = named.filter(|serial| *serial != self.place.serial)
        {
            shared.post(serial, super::shared::Event::Close);
        }
        if close {
            self.close(shared);
        }
    }
}

/// Hands out data piece by piece.
struct Cut<'a> {
    data: &'a [Data],
    index: usize,
    at: usize,
}

impl Cut<'_> {
    fn take(&mut self, mut length: usize) -> Vec<Data> {
        let mut taken = Vec::with_capacity(1);
        while length > 0 {
            let Some(piece) = self.data.get(self.index) else { break };
            let here = length.min(piece.len() - self.at);
            taken.push(piece.slice(self.at..self.at + here));
            self.at += here;
            length -= here;
            if self.at == piece.len() {
                (self.index, self.at) = (self.index + 1, 0);
            }
        }
        taken
    }
}
