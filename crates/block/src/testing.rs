//! For the suites of the protocols: a volume that answers at once, and a pipe in place of a socket.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex};

use stele_ground::{Bytes, Instant};
use stele_media::{Done, Drive, Geometry, Handle, MediaError, MemoryDrive, Op, Port, Priority, Request};

use crate::{Access, Export, Protocol};

/// A memory drive behind a port that carries out each operation on submission, and records it.
#[derive(Clone)]
pub struct Volume(Arc<Mutex<State>>);

pub struct State {
    pub drive: MemoryDrive,
    pub asked: Vec<String>,
    /// Errors that the next operations return instead of being carried out.
    pub failures: VecDeque<MediaError>,
    /// Whether operations are held instead of carried out.
    pub hold: bool,
    held: Vec<(Op, Done)>,
    pub size: Option<u64>,
}

impl Volume {
    pub fn new(drive: MemoryDrive) -> Volume {
        Volume(Arc::new(Mutex::new(State {
            drive,
            asked: Vec::new(),
            failures: VecDeque::new(),
            hold: false,
            held: Vec::new(),
            size: None,
        })))
    }

    pub fn handle(&self) -> Handle {
        Handle::new(self.clone())
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    pub fn asked(&self) -> Vec<String> {
        self.with(|state| std::mem::take(&mut state.asked))
    }

    /// Carries out the held operations.
    pub fn let_go(&self) {
        let held = self.with(|state| {
            state.hold = false;
            std::mem::take(&mut state.held)
        });
        held.into_iter().for_each(|(op, done)| self.carry_out(op, done));
    }

    fn carry_out(&self, op: Op, done: Done) {
        let completion = self.with(|state| {
            if let Some(failure) = state.failures.pop_front() {
                return (op, Err(failure));
            }
            state.drive.submit(Request { tag: 0, op, priority: Priority::Host, deadline: None });
            let mut finished = Vec::new();
            state.drive.reap(Instant(0), &mut finished);
            let completion = finished.pop().expect("a memory drive answers at once");
            (completion.op, completion.result)
        });
        done(completion.0, completion.1);
    }
}

impl Port for Volume {
    fn geometry(&self) -> Geometry {
        self.with(|state| {
            let geometry = state.drive.geometry();
            Geometry { size: state.size.map_or(geometry.size, Bytes), ..geometry }
        })
    }

    fn submit(&self, op: Op, _: Priority, done: Done) {
        let name = match &op {
            Op::View { at, length, .. } => format!("read {at}+{length}"),
            Op::Read { at, buffer } => format!("read {at}+{}", buffer.len()),
            Op::Write { at, fua, .. } => {
                format!("write {at}+{}{}", op.range().map_or(0, |range| range.1), if *fua { " fua" } else { "" })
            }
            Op::Zero { at, length } => format!("zero {at}+{length}"),
            Op::Discard { at, length } => format!("discard {at}+{length}"),
            Op::Extents { at, length, since: Some(since), .. } => format!("extents {at}+{length} since {}", since.0),
            Op::Extents { at, length, .. } => format!("extents {at}+{length}"),
            Op::Flush => "flush".to_owned(),
        };
        let kept = self.with(|state| {
            state.asked.push(name);
            state.hold
        });
        match kept {
            true => self.with(|state| state.held.push((op, done))),
            false => self.carry_out(op, done),
        }
    }
}

pub fn export(name: &str) -> Export {
    Export {
        name: name.to_owned(),
        volume: name.to_owned(),
        protocol: Protocol::Nbd,
        read_only: false,
        access: Access::default(),
        iscsi: Default::default(),
    }
}

#[derive(Default)]
struct Way {
    bytes: VecDeque<u8>,
    closed: bool,
}

/// One end of a pair: each end reads the other's writes, up to a limit of unread bytes.
pub struct Pipe {
    from: Arc<Mutex<Way>>,
    to: Arc<Mutex<Way>>,
    limit: usize,
}

impl Pipe {
    pub fn pair(limit: usize) -> (Pipe, Pipe) {
        let (a, b) = (Arc::default(), Arc::default());
        (Pipe { from: Arc::clone(&a), to: Arc::clone(&b), limit }, Pipe { from: b, to: a, limit: usize::MAX })
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut way = self.from.lock().unwrap();
        let count = into.len().min(way.bytes.len());
        if count == 0 && !way.closed {
            return Err(ErrorKind::WouldBlock.into());
        }
        for (into, from) in into.iter_mut().zip(way.bytes.drain(..count)) {
            *into = from;
        }
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let mut way = self.to.lock().unwrap();
        let count = from.len().min(self.limit.saturating_sub(way.bytes.len()));
        if way.closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if count == 0 && !from.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        way.bytes.extend(&from[..count]);
        Ok(count)
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write(&from.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for Pipe {
    fn as_raw_fd(&self) -> RawFd {
        -1
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.from.lock().unwrap().closed = true;
        self.to.lock().unwrap().closed = true;
    }
}
