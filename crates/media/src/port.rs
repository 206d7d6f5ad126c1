//! A port is the far end of a drive that another thread serves: a volume on a reactor thread, or a
//! drive of the simulated world. Many holders may submit at once. Each waits for its own answer,
//! async or blocking.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use futures_channel::oneshot;
use stele_ground::{Bytes, Instant, VolumeId};

use crate::{Buffer, Completion, Drive, Extent, Geometry, MediaError, MediaFault, Op, Priority, Request, Shared};

/// Called exactly once with the finished operation, on the thread that serves the port. It must not
/// block.
pub type Done = Box<dyn FnOnce(Op, Result<(), MediaError>) + Send>;

/// Called at most once, before [`Done`] and on the same thread. It must not block.
pub type Ordered = Box<dyn FnOnce() + Send>;

/// Identifies a group of ports whose writes all become durable in one order: the ports of a pool's
/// log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order(pub u64);

/// Accepts operations for a drive on another thread, or in the simulated world.
pub trait Port: Send + Sync + 'static {
    fn geometry(&self) -> Geometry;

    /// Queues the operation. Each port states its own queue limit; at the limit it answers `Retry`.
    fn submit(&self, op: Op, priority: Priority, done: Done);

    /// The order that this port's writes share with those of other ports, if any. A write that has
    /// completed precedes every write that is submitted to a port of the order later: the later one
    /// is durable only if it is.
    fn order(&self) -> Option<Order> {
        None
    }

    /// Like `submit`, for a write that another write is to follow. `ordered` is called when the
    /// write has its place in the port's order. Every later submission to a port of the same order
    /// then depends on this write. It becomes durable only if this write does, survives a crash
    /// only if this write does, and fails if this write still fails. A write that fails earlier is
    /// not ordered. The write may wait a moment for its follower, to become durable together with
    /// it. A caller that acknowledges the write itself waits for `done`. A port without an order
    /// calls `ordered` when the write is as durable as `done` promises.
    fn submit_ordered(&self, op: Op, priority: Priority, ordered: Ordered, done: Done) {
        let done = Box::new(move |op, result: Result<(), MediaError>| {
            if result.is_ok() {
                ordered();
            }
            done(op, result);
        });
        self.submit(op, priority, done);
    }

    /// Length in bytes of the longest write that `submit_whole` takes, a multiple of 4096; 0 if it
    /// takes none.
    fn whole_max(&self) -> Bytes {
        Bytes(0)
    }

    /// Like `submit`, for an atomic write of blocks of 4096 bytes: after a crash it is there
    /// completely or not at all. A concurrent reader may still see a part of it; a caller that
    /// needs isolation must provide it.
    fn submit_whole(&self, op: Op, _priority: Priority, done: Done) {
        let message = "this drive promises no write to be whole after a crash; write without that";
        done(op, Err(MediaError::new(MediaFault::Invalid, message)));
    }

    /// Called in a loop by a blocked caller. A world that runs on the caller's own thread makes one
    /// step of progress and returns true. A port served by another thread returns false, and the
    /// caller sleeps.
    fn pump(&self) -> bool {
        false
    }
}

/// A shared port, with one method for each operation.
#[derive(Clone)]
pub struct Handle(Arc<dyn Port>);

type Finished = (Op, Result<(), MediaError>);

/// The place where a blocked caller waits for its answer.
#[derive(Default)]
struct Slot {
    answer: Mutex<Answer>,
    filled: Condvar,
}

#[derive(Default)]
enum Answer {
    #[default]
    Awaited,
    Here(Finished),
    /// The port dropped the operation without an answer, because its server died.
    Lost,
}

/// Fills the slot, even if it is dropped without an answer.
struct Fill(Arc<Slot>);

impl Fill {
    fn set(&self, answer: Answer) {
        let mut held = self.0.answer.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*held, Answer::Awaited) {
            *held = answer;
            self.0.filled.notify_one();
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.set(Answer::Lost);
    }
}

impl Handle {
    pub fn new(port: impl Port) -> Handle {
        Handle(Arc::new(port))
    }

    pub fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    /// Queues the operation; see [`Port::submit`].
    pub fn submit(&self, op: Op, priority: Priority, done: Done) {
        self.0.submit(op, priority, done);
    }

    /// See [`Port::order`].
    pub fn order(&self) -> Option<Order> {
        self.0.order()
    }

    /// See [`Port::submit_ordered`].
    pub fn submit_ordered(&self, op: Op, priority: Priority, ordered: Ordered, done: Done) {
        self.0.submit_ordered(op, priority, ordered, done);
    }

    /// See [`Port::whole_max`].
    pub fn whole_max(&self) -> Bytes {
        self.0.whole_max()
    }

    /// See [`Port::submit_whole`].
    pub fn submit_whole(&self, op: Op, priority: Priority, done: Done) {
        self.0.submit_whole(op, priority, done);
    }

    /// See [`Port::pump`].
    pub fn pump(&self) -> bool {
        self.0.pump()
    }

    async fn run(&self, op: Op, priority: Priority) -> Result<Op, MediaError> {
        let (sender, receiver) = oneshot::channel::<Finished>();
        self.0.submit(op, priority, Box::new(move |op, result| drop(sender.send((op, result)))));
        match receiver.await {
            Ok((op, result)) => result.map(|()| op),
            Err(_) => Err(gone()),
        }
    }

    fn run_blocking(&self, op: Op, priority: Priority) -> Result<Op, MediaError> {
        let slot = Arc::new(Slot::default());
        let fill = Fill(Arc::clone(&slot));
        self.0.submit(op, priority, Box::new(move |op, result| fill.set(Answer::Here((op, result)))));
        loop {
            let pumped = self.0.pump();
            let mut answer = slot.answer.lock().unwrap_or_else(PoisonError::into_inner);
            while matches!(*answer, Answer::Awaited) && !pumped {
                answer = slot.filled.wait(answer).unwrap_or_else(PoisonError::into_inner);
            }
            match std::mem::take(&mut *answer) {
                Answer::Awaited => {}
                Answer::Here((op, result)) => return result.map(|()| op),
                Answer::Lost => return Err(gone()),
            }
        }
    }

    pub async fn read(&self, at: u64, length: usize) -> Result<Buffer, MediaError> {
        filled(self.run(Op::Read { at, buffer: Buffer::stale(length) }, Priority::Host).await?)
    }

    /// Reads without a copy: the pieces are the drive's own memory. See [`Op::View`].
    pub async fn view(&self, at: u64, length: u64) -> Result<Vec<Shared>, MediaError> {
        match self.run(Op::View { at, length, pieces: Vec::new() }, Priority::Host).await? {
            Op::View { pieces, .. } => Ok(pieces),
            _ => Err(gone()),
        }
    }

    /// Acknowledged by the rules of [`Op::Write`].
    pub async fn write(&self, at: u64, data: Vec<Shared>, fua: bool) -> Result<(), MediaError> {
        self.run(Op::Write { at, data, fua }, Priority::Host).await.map(drop)
    }

    pub async fn zero(&self, at: u64, length: u64) -> Result<(), MediaError> {
        self.run(Op::Zero { at, length }, Priority::Host).await.map(drop)
    }

    pub async fn discard(&self, at: u64, length: u64) -> Result<(), MediaError> {
        self.run(Op::Discard { at, length }, Priority::Host).await.map(drop)
    }

    pub async fn flush(&self) -> Result<(), MediaError> {
        self.run(Op::Flush, Priority::Urgent).await.map(drop)
    }

    pub async fn extents(&self, at: u64, length: u64) -> Result<Vec<Extent>, MediaError> {
        self.extents_since(at, length, None).await
    }

    /// See [`Op::Extents`].
    pub async fn extents_since(
        &self,
        at: u64,
        length: u64,
        since: Option<VolumeId>,
    ) -> Result<Vec<Extent>, MediaError> {
        match self.run(Op::Extents { at, length, since, extents: Vec::new() }, Priority::Host).await? {
            Op::Extents { extents, .. } => Ok(extents),
            other => Err(mixed_up(&other)),
        }
    }

    pub fn read_blocking(&self, at: u64, length: usize) -> Result<Buffer, MediaError> {
        filled(self.run_blocking(Op::Read { at, buffer: Buffer::stale(length) }, Priority::Host)?)
    }

    pub fn write_blocking(&self, at: u64, data: Vec<Shared>, fua: bool) -> Result<(), MediaError> {
        self.run_blocking(Op::Write { at, data, fua }, Priority::Host).map(drop)
    }

    pub fn zero_blocking(&self, at: u64, length: u64) -> Result<(), MediaError> {
        self.run_blocking(Op::Zero { at, length }, Priority::Host).map(drop)
    }

    pub fn discard_blocking(&self, at: u64, length: u64) -> Result<(), MediaError> {
        self.run_blocking(Op::Discard { at, length }, Priority::Host).map(drop)
    }

    pub fn flush_blocking(&self) -> Result<(), MediaError> {
        self.run_blocking(Op::Flush, Priority::Urgent).map(drop)
    }

    pub fn extents_blocking(&self, at: u64, length: u64) -> Result<Vec<Extent>, MediaError> {
        match self.run_blocking(Op::Extents { at, length, since: None, extents: Vec::new() }, Priority::Host)? {
            Op::Extents { extents, .. } => Ok(extents),
            other => Err(mixed_up(&other)),
        }
    }
}

/// The opposite of a port: a drive over a handle, for one owner that polls. Arrays can thus stand
/// on volumes, and the suite for drives can test every port.
pub struct Remote {
    handle: Handle,
    finished: Arc<Mutex<Vec<Completion>>>,
}

impl Remote {
    pub fn new(handle: Handle) -> Remote {
        Remote { handle, finished: Arc::default() }
    }
}

impl Drive for Remote {
    fn geometry(&self) -> Geometry {
        self.handle.geometry()
    }

    fn submit(&mut self, request: Request) {
        let finished = Arc::clone(&self.finished);
        let Request { tag, op, priority, .. } = request;
        let done = move |op, result| {
            finished.lock().unwrap_or_else(PoisonError::into_inner).push(Completion { tag, op, result });
        };
        self.handle.submit(op, priority, Box::new(done));
    }

    fn reap(&mut self, _now: Instant, finished: &mut Vec<Completion>) {
        self.handle.pump();
        finished.append(&mut self.finished.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.geometry().size)
    }
}

fn filled(op: Op) -> Result<Buffer, MediaError> {
    match op {
        Op::Read { buffer, .. } => Ok(buffer),
        other => Err(mixed_up(&other)),
    }
}

fn gone() -> MediaError {
    MediaError::new(MediaFault::Gone, "the server of this volume has stopped")
}

fn mixed_up(op: &Op) -> MediaError {
    MediaError::new(MediaFault::Gone, format!("a port answered with another operation than was asked: {op:?}"))
}
