//! Both phases of NBD from untrusted bytes: a handshake, and a session of each form of replies on a
//! read-only volume, which no bytes may change.
#![no_main]

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;

use libfuzzer_sys::fuzz_target;
use stele_block::nbd::reply::Form;
use stele_block::nbd::{Context, Handshake, HandshakeStep, NbdSession, Negotiated, Tls};
use stele_block::{Access, Directory, Disk, Export, Limits, Peer, Protocol};
use stele_ground::{Bytes, Instant};
use stele_media::{Done, Drive, Geometry, Handle, MemoryDrive, Op, Port, Priority, ReactorSession, Request};

/// Answers at once, and accepts no change.
struct Still(Mutex<MemoryDrive>);

impl Port for Still {
    fn geometry(&self) -> Geometry {
        self.0.lock().unwrap().geometry()
    }
    fn submit(&self, op: Op, priority: Priority, done: Done) {
        assert!(!matches!(op, Op::Write { .. } | Op::Zero { .. } | Op::Discard { .. }), "{op:?} on a read-only export");
        let mut finished = Vec::new();
        let mut drive = self.0.lock().unwrap();
        drive.submit(Request { tag: 0, op, priority, deadline: None });
        drive.reap(Instant(0), &mut finished);
        drop(drive);
        if let Some(completion) = finished.pop() {
            done(completion.op, completion.result);
        }
    }
}

/// Sends the given bytes in pieces, and discards its input.
struct Wire(VecDeque<u8>, usize);

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into.len().min(self.0.len()).min(self.1);
        for (into, from) in into.iter_mut().zip(self.0.drain(..count)) {
            *into = from;
        }
        Ok(count)
    }
}

impl Write for Wire {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        if from.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(from.len().min(self.1)) }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for Wire {
    fn as_raw_fd(&self) -> RawFd {
        -1
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    let directory = Directory::default();
    let export = Export {
        name: "vm".to_owned(),
        volume: "vm".to_owned(),
        protocol: Protocol::Nbd,
        read_only: true,
        access: Access::default(),
        iscsi: Default::default(),
    };
    let handle = Handle::new(Still(Mutex::new(MemoryDrive::new(Bytes(1 << 20)))));
    let target = directory.serve(export, handle, Limits::default());
    let piece = 1 + usize::from(*choice) * 3;
    let mut handshake = Handshake::new(directory, Peer::default(), Tls::Offered);
    for part in bytes.chunks(piece) {
        match handshake.receive(part) {
            HandshakeStep::More | HandshakeStep::Again => {}
            HandshakeStep::StartTls => handshake.secured(Peer { tls: true, ..Peer::default() }),
            HandshakeStep::Transmit(_) | HandshakeStep::End => break,
        }
        handshake.take_outgoing();
    }
    for form in [Form::Simple, Form::Structured, Form::Extended] {
        let Ok(disk) = Disk::open(&target, &Peer::default()) else { return };
        let agreed = Negotiated { disk, form, contexts: Context::all(&[]), rest: Vec::new() };
        let mut session = NbdSession::new(Box::new(Wire(bytes.iter().copied().collect(), piece)), agreed);
        let mut now = Instant(0);
        for _ in 0..10_000 {
            if session.turn(now).end {
                break;
            }
            now = Instant(now.0 + 1_000_000);
        }
    }
});
