//! Whole sessions on a pipe: the turns that a reactor gives them.

use std::io::{Read, Write};

use stele_ground::Duration;
use stele_media::{Interest, ReactorSession, Waker};

use super::neighbours::Site;
use super::*;
use crate::iscsi::node::Joined;
use crate::iscsi::session::Wire;
use crate::testing::Pipe;

impl Wire for Pipe {
    fn acknowledge(&mut self) {}
}

/// A session, and the initiator's end of its pipe.
pub(super) struct Host {
    session: Option<IscsiSession>,
    pub pipe: Pipe,
    pub now: Instant,
}

impl Host {
    /// The pipe to the initiator holds `limit` unread bytes.
    pub fn new(joined: Joined, limit: usize) -> Host {
        let (ours, pipe) = Pipe::pair(limit);
        let mut session = IscsiSession::new(joined, Box::new(ours), &[]);
        session.start(Waker::idle());
        Host { session: Some(session), pipe, now: Instant(0) }
    }

    pub fn send(&mut self, header: Header, data: &[u8]) {
        let mut out = outbox::Outbox::default();
        out.push(header, &[stele_media::Shared::copy_from_slice(data)]);
        self.pipe.write_all(&out.take()).unwrap();
    }

    pub fn turn(&mut self) -> Interest {
        let Some(session) = &mut self.session else { return Interest { end: true, ..Interest::default() } };
        let interest = session.turn(self.now);
        if interest.end {
            self.session = None;
        }
        interest
    }

    /// The PDUs that have arrived.
    pub fn heard(&mut self) -> Vec<Frame> {
        let mut bytes = vec![0; 1 << 20];
        let mut all = Vec::new();
        while let Ok(count @ 1..) = self.pipe.read(&mut bytes) {
            all.extend(&bytes[..count]);
        }
        frames(&all)
    }

    /// Reads the first unit attention.
    pub fn ready(mut self) -> Host {
        self.send(command(1, 1, &[0; 6], None, 0), &[]);
        self.turn();
        self.turn();
        assert_eq!(self.heard().len(), 1);
        self
    }
}

fn ping(length: usize) -> (Header, Vec<u8>) {
    let mut header = Header::new(opcode::NOP_OUT, 0x80);
    header.put(0, &[0x40 | opcode::NOP_OUT]);
    header.set_tag(77);
    header.put32(20, NO_TAG);
    (header, vec![7; length])
}

fn large() -> parameters::Parameters {
    parameters::Parameters { their_data_max: 16 << 20, ..parameters::Parameters::default() }
}

#[test]
fn pings_beside_a_write_that_waits_for_data_hold_bounded_memory() {
    let site = Site::new();
    site.serve("a", |_| {});
    let mut host = Host::new(site.log_in_with("iqn.h:one", "a", large()).unwrap(), 64 << 10).ready();
    host.send(command(2, 2, &write10(0, 2048), Some(&[]), 1 << 20), &[]);
    host.turn();
    for _ in 0..200 {
        let (header, data) = ping(256 << 10);
        host.send(header, &data);
    }
    for _ in 0..400 {
        assert!(!host.turn().end);
    }
    let unsent = host.session.as_ref().unwrap().unsent();
    assert!(unsent < 9 << 20, "{unsent} bytes wait for a peer that takes nothing");
    assert!(!host.turn().read);
    host.now = host.now + Duration::from_secs(121);
    assert!(host.turn().end, "it takes nothing, although it sends");
}

#[test]
fn commands_far_ahead_of_their_turn_end_their_connection() {
    let mut bench = Bench::new();
    let host = bench.ready("iqn.a:b");
    let data = vec![1; 65_536];
    let most = (shared::EARLY_MAX / data.len()) as u32;
    for number in 2..2 + most {
        bench.send(host, command(number, number, &write10(0, 128), Some(&data), 65_536), &data);
    }
    assert!(!bench.connections[&host.serial].is_closing());
    let number = 2 + most;
    bench.send(host, command(number, number, &write10(0, 128), Some(&data), 65_536), &data);
    assert!(bench.connections[&host.serial].is_closing());
}

#[test]
fn data_requested_when_space_becomes_free_is_requested_at_once() {
    let site = Site::new();
    let volume = site.serve("a", |_| {});
    // Sixteen initiators: each has 16 MiB.
    let others: Vec<_> = (0..15).map(|number| site.log_in_by(&format!("10.0.0.{number}"))).collect();
    let mut host = Host::new(site.log_in("iqn.h:one", "a"), 1 << 30).ready();
    volume.with(|state| state.hold = true);
    let length = 1 << 20;
    for number in 2..22 {
        host.send(command(number, number, &write10(0, 2048), Some(&[]), length), &[]);
    }
    host.turn();
    let ready: Vec<Frame> = host.heard();
    assert_eq!(ready.len(), 20);
    host.turn();
    for number in 22..27 {
        host.send(command(number, number, &write10(0, 2048), Some(&[]), length), &[]);
    }
    host.turn();
    assert!(host.heard().is_empty(), "there is no space for more");
    let mut pending = ready;
    while let Some(frame) = pending.pop() {
        let (at, wanted) = (frame.header.u32(40), frame.header.u32(44));
        let mut header = Header::new(opcode::DATA_OUT, 0x80);
        header.set_tag(frame.header.tag());
        header.put32(20, frame.header.u32(20));
        header.put32(40, at);
        host.send(header, &vec![1; wanted as usize]);
        while host.turn().again {}
        pending.extend(host.heard());
    }
    volume.let_go();
    let interest = host.turn();
    let heard = host.heard();
    let asked = heard.iter().filter(|frame| frame.header.opcode() == opcode::READY).count();
    assert_eq!((heard.len() - asked, asked), (20, 5), "{interest:?}");
    drop(others);
}

pub(super) fn reset(tag: u32, function: u8) -> Header {
    let mut header = Header::new(opcode::MANAGEMENT, 0x80 | function);
    header.put(0, &[0x40 | opcode::MANAGEMENT]);
    header.set_tag(tag);
    header
}

#[test]
fn a_login_that_breaks_off_leaves_no_session_behind() {
    let site = Site::new();
    site.serve("a", |_| {});
    drop(site.log_in("iqn.h:broken", "a"));
    let mut host = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20);
    host.send(reset(9, 5), &[]);
    host.turn();
    host.turn();
    let heard = host.heard();
    assert_eq!(heard.len(), 1, "the reset waits for a connection that never ran");
    assert_eq!((heard[0].header.opcode(), heard[0].header.u8(2)), (opcode::MANAGED, 0));
}

#[test]
fn an_aborted_write_that_the_volume_did_not_take_is_not_tried_again() {
    let site = Site::new();
    let volume = site.serve("a", |_| {});
    let mut host = Host::new(site.log_in("iqn.h:one", "a"), 1 << 20).ready();
    let full = stele_media::MediaError::new(stele_media::MediaFault::Retry, "full");
    volume.with(|state| state.failures.push_back(full));
    host.send(command(2, 2, &write10(0, 1), Some(&[1; 512]), 512), &[1; 512]);
    host.turn();
    host.turn();
    let mut abort = reset(9, 1);
    abort.put32(20, 2);
    host.send(abort, &[]);
    host.turn();
    host.now = host.now + Duration::from_secs(1);
    host.turn();
    host.turn();
    assert_eq!(volume.asked().len(), 1, "the write reaches the volume after its abort");
    assert_eq!(host.heard()[0].header.opcode(), opcode::MANAGED);
}
