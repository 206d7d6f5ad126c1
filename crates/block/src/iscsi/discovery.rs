//! A discovery session: it lists the targets. It ends with a logout or when the initiator
//! disconnects.

use stele_media::Shared as Data;

use super::login::LoginResult;
use super::outbox::Outbox;
use super::pdu::{Frame, Header, NO_TAG, opcode};
use super::text::{self, Pairs};

/// Bytes of one answer; longer lists go out in several parts, on request.
const ANSWER_MAX: usize = 64 << 10;

pub struct Discovery {
    pub out: Outbox,
    status_number: u32,
    expected: u32,
    answer_max: usize,
    /// The unsent rest of an answer.
    rest: Vec<u8>,
}

impl Discovery {
    pub fn new(agreed: &LoginResult) -> Discovery {
        let mut out = Outbox::default();
        (out.header_digest, out.data_digest) = (agreed.parameters.header_digest, agreed.parameters.data_digest);
        Discovery {
            out,
            status_number: agreed.status_number,
            expected: agreed.command_number,
            answer_max: (agreed.parameters.their_data_max as usize).min(ANSWER_MAX),
            rest: Vec::new(),
        }
    }

    /// `targets`: the targets visible to this peer, reached at `address`. Returns false at the end
    /// of the session.
    pub fn receive(&mut self, frame: &Frame, targets: &[String], address: &str) -> bool {
        let header = &frame.header;
        if !header.is_immediate() {
            self.expected = header.command_number().wrapping_add(1);
        }
        match header.opcode() {
            opcode::TEXT => self.text(header, &frame.data, targets, address),
            opcode::NOP_OUT if header.tag() == NO_TAG => {}
            opcode::NOP_OUT => {
                let answer = self.answer(opcode::NOP_IN, 0x80, header);
                self.out.push(answer, &[]);
            }
            opcode::LOGOUT => {
                let mut answer = self.answer(opcode::LOGGED_OUT, 0x80, header);
                answer.put32(20, 0);
                self.out.push(answer, &[]);
                return false;
            }
            _ => return false,
        }
        true
    }

    fn text(&mut self, header: &Header, data: &[u8], targets: &[String], address: &str) {
        let continued = header.u32(20) != NO_TAG;
        if !continued {
            let mut out = Pairs::default();
            for (key, value) in text::parse(data).unwrap_or_default() {
                if key != "SendTargets" {
                    out.add(&key, "NotUnderstood");
                    continue;
                }
                for target in targets.iter().filter(|target| value == "All" || value == **target) {
                    out.add("TargetName", target);
                    out.add("TargetAddress", format!("{address},1"));
                }
            }
            self.rest = out.0;
        }
        let now: Vec<u8> = self.rest.drain(..self.rest.len().min(self.answer_max)).collect();
        let done = self.rest.is_empty();
        let mut answer = self.answer(opcode::TEXT_IN, if done { 0x80 } else { 0x40 }, header);
        answer.put32(20, if done { NO_TAG } else { 1 });
        self.out.push(answer, &[Data::from(now)]);
    }

    fn answer(&mut self, opcode: u8, flags: u8, asked: &Header) -> Header {
        let mut header = Header::new(opcode, flags);
        header.set_tag(asked.tag());
        header.put32(20, NO_TAG);
        header.put32(24, self.status_number);
        header.put32(28, self.expected);
        header.put32(32, self.expected.wrapping_add(31));
        self.status_number = self.status_number.wrapping_add(1);
        header
    }
}
