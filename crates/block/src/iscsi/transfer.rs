//! Data from the initiator: immediate, unsolicited, and requested with R2T, one request at a time.
//! All data must arrive in order; data out of order fails its command.

use stele_media::{Buffer, Shared as Data};

use super::connection::{Connection, Phase, REJECT_PROTOCOL, Task};
use super::pdu::{Frame, Header, NO_TAG, opcode};
use super::shared::Shared;
use crate::scsi::{Reply, Sense};

/// A piece shorter than this is copied to its neighbours: in a buffer of its own it would hold a
/// page of memory.
const SMALL: u64 = 4096;
/// Largest buffer for small pieces.
const TAIL: u64 = 64 << 10;

/// The data of a command so far.
pub struct Gathering {
    wanted: u64,
    received: u64,
    /// More unsolicited data is on its way.
    pub unsolicited: bool,
    /// End of the data requested with R2T.
    asked_until: u64,
    asked: bool,
    /// Number of the R2T, which is its transfer tag too.
    ready_number: u32,
    data_number: u32,
    lun: u64,
    /// A buffer that small pieces fill, with the number of bytes in it.
    tail: Option<(Buffer, usize)>,
}

impl Gathering {
    pub fn new(wanted: u64, lun: u64) -> Gathering {
        Gathering {
            wanted,
            received: 0,
            unsolicited: false,
            asked_until: 0,
            asked: false,
            ready_number: 0,
            data_number: 0,
            lun,
            tail: None,
        }
    }

    /// Adds the wanted part of a piece.
    pub fn take(&mut self, data: &mut Vec<Data>, piece: Data) {
        let missing = self.wanted.saturating_sub(self.received);
        let length = (piece.len() as u64).min(missing);
        if length > 0 && (self.tail.is_some() || length < SMALL.min(missing)) {
            self.copy(data, piece.get(..length as usize).unwrap_or_default());
            self.received += piece.len() as u64;
            return;
        }
        self.received += piece.len() as u64;
        match length {
            0 => {}
            // The unwanted rest would stay in memory with the wanted part.
            length if length < piece.len() as u64 => {
                data.push(Data::copy_from_slice(piece.get(..length as usize).unwrap_or_default()));
            }
            _ => data.push(piece),
        }
    }

    /// Copies a piece into buffers of which each is as large as the missing data, or [`TAIL`]. The
    /// last one is therefore full when nothing is missing.
    fn copy(&mut self, data: &mut Vec<Data>, mut piece: &[u8]) {
        let mut missing = self.wanted.saturating_sub(self.received);
        while !piece.is_empty() {
            let (mut buffer, filled) =
                self.tail.take().unwrap_or_else(|| (Buffer::stale(missing.min(TAIL) as usize), 0));
            let room = buffer.get_mut(filled..).unwrap_or_default();
            let count = room.len().min(piece.len());
            let (now, rest) = piece.split_at(count);
            if let Some(room) = room.get_mut(..count) {
                room.copy_from_slice(now);
            }
            missing = missing.saturating_sub(count as u64);
            piece = rest;
            match filled + count {
                filled if filled == buffer.len() => data.push(buffer.freeze()),
                filled => self.tail = Some((buffer, filled)),
            }
            assert!(count > 0, "a buffer for data has no room");
        }
    }

    /// Bytes that wait in the buffer for small pieces.
    pub fn tail_length(&self) -> u64 {
        self.tail.as_ref().map_or(0, |(_, filled)| *filled as u64)
    }
}

impl Connection {
    /// Requests more data if there is space for it, or begins the command.
    pub(super) fn gather_more(&mut self, shared: &mut Shared, tag: u32) {
        let max_burst = u64::from(self.parameters.max_burst);
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        let Phase::Gathering(gathering) = &mut task.phase else { return };
        if gathering.unsolicited {
            self.expects = true;
            return;
        }
        if gathering.received >= gathering.wanted {
            return self.enter(shared, tag);
        }
        if !self.admit(tag) {
            return;
        }
        let Some(Task { phase: Phase::Gathering(gathering), .. }) = self.tasks.get_mut(&tag) else { return };
        let lun = gathering.lun;
        gathering.asked = true;
        gathering.data_number = 0;
        gathering.asked_until = gathering.wanted.min(gathering.received + max_burst);
        let (number, offset) = (gathering.ready_number, gathering.received);
        let length = gathering.asked_until - offset;
        gathering.ready_number = number.wrapping_add(1);
        let mut header = Header::new(opcode::READY, 0x80);
        header.put(8, &lun.to_be_bytes());
        header.set_tag(tag);
        header.put32(20, number);
        self.stamp(shared, &mut header, false);
        header.put32(36, number);
        header.put32(40, offset as u32);
        header.put32(44, length as u32);
        self.out.push(header, &[]);
    }

    /// Data from the stream. In a session of several connections a command may wait for others: its
    /// unsolicited data waits with it.
    pub(super) fn data_arrived(&mut self, shared: &mut Shared, frame: Frame) {
        let tag = frame.header.tag();
        if !self.tasks.contains_key(&tag) {
            // Its turn may have come just now.
            self.hear(shared);
        }
        if self.tasks.contains_key(&tag) {
            return self.data_out(shared, frame);
        }
        if frame.header.u32(20) == NO_TAG && !shared.hold_data(&self.place, frame) {
            tracing::warn!(target = shared.name, "data far ahead of the turn of its command ends a connection");
            self.close(shared);
        }
    }

    pub(super) fn data_out(&mut self, shared: &mut Shared, frame: Frame) {
        let header = frame.header;
        let tag = header.tag();
        // Data of a failed or aborted command is dropped.
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        let Phase::Gathering(gathering) = &mut task.phase else { return };
        let (transfer, number, offset) = (header.u32(20), header.u32(36), u64::from(header.u32(40)));
        let solicited = transfer != NO_TAG;
        let expected_here = if solicited {
            gathering.asked && transfer.wrapping_add(1) == gathering.ready_number
        } else {
            gathering.unsolicited
        };
        let end = offset + frame.data.len() as u64;
        let limit = if solicited { gathering.asked_until } else { u64::from(task.expected) };
        if !expected_here || number != gathering.data_number || offset != gathering.received || end > limit {
            self.reject(shared, &header, REJECT_PROTOCOL);
            return self.respond(shared, tag, Reply::failed(Sense::DIGEST_FAILED));
        }
        if !solicited && end > u64::from(self.parameters.first_burst) {
            return self.respond(shared, tag, Reply::failed(Sense::TOO_MUCH_DATA));
        }
        gathering.data_number = number.wrapping_add(1);
        gathering.take(&mut task.exec.data, frame.data);
        if !header.is_final() {
            return;
        }
        if std::mem::take(&mut gathering.unsolicited) {
            self.unsolicited = self.unsolicited.saturating_sub(1);
        }
        gathering.asked = false;
        gathering.data_number = 0;
        self.gather_more(shared, tag);
    }
}
