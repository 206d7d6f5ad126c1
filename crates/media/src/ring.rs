//! One ring per thread drives many files and devices. All their submissions go to the kernel in one
//! call, all their completions arrive in one place, and the thread sleeps in one place.
//!
//! The file decides how an operation is carried out. io_uring does it (without the page cache, with
//! registered files) if the kernel allows that. Otherwise a few threads follow the same plan. On
//! file systems in memory the reactor's own thread does it, since there nothing waits. The first
//! use detects abilities that a file system lacks (zeroing a range, punching holes, durable
//! writes), and the plan replaces them.
//!
//! Limits: [`IN_FLIGHT_MAX`] operations in the kernel. [`WAITING_MAX`] more wait here, the most
//! urgent first. Further operations are answered with `Retry`. Dropping a drive or the ring waits
//! for the operations in flight.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::{Arc, Once};

use stele_ground::{Bytes, Duration, Instant};

use crate::file::{DriveFile, Way};
use crate::system::EventFd;
use crate::{BufferPool, Completion, Drive, Geometry, MediaError, MediaFault, Op, Request};

mod direct;
mod plan;
mod uring;
mod workers;

use plan::{PendingOperation, Step};
pub use uring::IN_FLIGHT_MAX;
use uring::Uring;
use workers::{Finished, Workers};

/// Largest number of operations that wait for a place in the kernel.
pub const WAITING_MAX: usize = 16 * 1024;
const PRIORITIES: usize = 5;
/// Memory kept for copies of misaligned data.
const BOUNCE_KEPT_MAX: Bytes = Bytes(8 << 20);

/// Whether a ring may use io_uring.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Engine {
    /// io_uring if it is allowed.
    #[default]
    Best,
    /// Threads only, as if io_uring were refused.
    Threads,
}

/// The files of one thread. Clones share the ring, which stays on its thread.
#[derive(Clone)]
pub struct Ring(Rc<RefCell<Core>>);

struct Core {
    bell: Arc<EventFd>,
    // Declared before the files, so that its operations end first.
    uring: Option<Uring>,
    workers: Workers,
    files: Vec<Option<Arc<DriveFile>>>,
    waiting: [VecDeque<PendingOperation>; PRIORITIES],
    waiting_count: usize,
    /// Operations of each slot, waiting and under way.
    outstanding: Vec<usize>,
    with_workers: usize,
    collected: Vec<Finished>,
    finished: Vec<(usize, Completion)>,
    buffers: BufferPool,
    /// Descriptors of sessions that threads watch if there is no io_uring: token, descriptor,
    /// whether for writing.
    watches: Vec<(u64, RawFd, bool)>,
    ready: Vec<u64>,
    /// Called once, between collecting from io_uring and from the workers.
    #[cfg(test)]
    between: Option<Between>,
}

#[cfg(test)]
type Between = Box<dyn FnOnce(&mut Core)>;

/// A file on a ring, as a drive.
pub struct FileDrive {
    core: Rc<RefCell<Core>>,
    slot: usize,
    file: Arc<DriveFile>,
}

impl Ring {
    /// A ring that `bell` wakes from its sleep. If io_uring is refused, it uses threads and logs
    /// that once.
    pub fn new(bell: Arc<EventFd>, engine: Engine) -> Ring {
        let uring = match engine {
            Engine::Threads => None,
            Engine::Best => Uring::new(Arc::clone(&bell)).map_err(|error| warn_once(&error)).ok(),
        };
        let workers = Workers::new(Arc::clone(&bell));
        Ring(Rc::new(RefCell::new(Core {
            bell,
            uring,
            workers,
            files: Vec::new(),
            waiting: Default::default(),
            waiting_count: 0,
            outstanding: Vec::new(),
            with_workers: 0,
            collected: Vec::new(),
            finished: Vec::new(),
            buffers: BufferPool::new(BOUNCE_KEPT_MAX),
            watches: Vec::new(),
            ready: Vec::new(),
            #[cfg(test)]
            between: None,
        })))
    }

    /// Makes a drive of the file. Slots count from 0 and are reused.
    pub fn attach(&self, file: DriveFile) -> FileDrive {
        let mut core = self.0.borrow_mut();
        let file = Arc::new(file);
        let slot = core.files.iter().position(Option::is_none).unwrap_or_else(|| {
            core.files.push(None);
            core.outstanding.push(0);
            core.files.len() - 1
        });
        if let (Some(uring), Way::Ring) = (&mut core.uring, file.way()) {
            use std::os::fd::AsRawFd;
            uring.register(slot, file.file().as_raw_fd());
        }
        core.files[slot] = Some(Arc::clone(&file));
        FileDrive { core: Rc::clone(&self.0), slot, file }
    }

    /// Starts the operations that the drives' `submit` held back, in one call for all of them.
    pub fn kick(&self) {
        self.0.borrow_mut().kick();
    }

    /// Moves the finished operations of all drives, with their slots. Never waits.
    pub fn reap(&self, finished: &mut Vec<(usize, Completion)>) {
        let mut core = self.0.borrow_mut();
        core.collect();
        finished.append(&mut core.finished);
    }

    /// Sleeps until an operation is finished, the bell rings, or the time is over (`None`: without
    /// limit).
    pub fn wait(&self, timeout: Option<Duration>) {
        self.0.borrow_mut().wait(timeout);
    }

    /// Reports `token` once when the descriptor is readable, or writable. It must stay open until
    /// then or until `unwatch`.
    pub(crate) fn watch(&self, token: u64, descriptor: RawFd, writing: bool) {
        let mut core = self.0.borrow_mut();
        match &mut core.uring {
            Some(uring) => uring.watch(token, descriptor, writing),
            None => core.watches.push((token, descriptor, writing)),
        }
    }

    /// Ends a watch early; its token is still reported once.
    pub(crate) fn unwatch(&self, token: u64) {
        let mut core = self.0.borrow_mut();
        match &mut core.uring {
            Some(uring) => uring.unwatch(token),
            None => {
                core.watches.retain(|(watched, ..)| *watched != token);
                core.ready.push(token);
            }
        }
    }

    /// Moves the tokens of ready descriptors. It also collects completions, which stay to be
    /// reaped.
    pub(crate) fn reap_ready(&self, ready: &mut Vec<u64>) {
        let mut core = self.0.borrow_mut();
        core.collect();
        if !core.watches.is_empty() {
            core.look();
        }
        ready.append(&mut core.ready);
    }

    /// Number of operations accepted and not yet reaped.
    pub fn outstanding(&self) -> usize {
        let core = self.0.borrow();
        core.outstanding.iter().sum::<usize>() + core.finished.len()
    }

    /// For status: the engine that carries out operations on ordinary files.
    pub fn engine(&self) -> &'static str {
        if self.0.borrow().uring.is_some() { "io_uring" } else { "threads" }
    }
}

fn warn_once(error: &std::io::Error) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            "io_uring is refused ({error}): files are read and written by {} threads per reactor instead, which costs \
             more processor time per operation; allow io_uring (sysctl kernel.io_uring_disabled, seccomp profile) to \
             change that",
            workers::THREADS_MAX
        );
    });
}

impl Core {
    fn submit(&mut self, slot: usize, file: &Arc<DriveFile>, request: Request) {
        if let Err(error) = self.admit(file, &request.op) {
            let Request { tag, op, .. } = request;
            self.finished.push((slot, Completion { tag, op, result: Err(error) }));
            return;
        }
        self.outstanding[slot] += 1;
        let mut work = PendingOperation::new(slot, file, request, &self.buffers);
        if file.way() == Way::Inline {
            let result = direct::carry_out(&mut work);
            self.collected.push((work, result));
        } else if self.with_workers + self.uring.as_ref().map_or(0, Uring::in_flight) < IN_FLIGHT_MAX {
            self.start(work);
        } else {
            self.waiting_count += 1;
            self.waiting[(work.priority as usize).min(PRIORITIES - 1)].push_back(work);
        }
    }

    fn admit(&self, file: &DriveFile, op: &Op) -> Result<(), MediaError> {
        file.geometry().admit(op)?;
        let changes = !matches!(op, Op::Read { .. } | Op::View { .. } | Op::Extents { .. });
        if changes && file.is_read_only() && !matches!(op, Op::Flush) {
            let message = format!("{}: is open for reading only", file.path().display());
            return Err(MediaError::new(MediaFault::Refused, message));
        }
        if changes && file.has_failed() {
            let message = format!("{}: a flush failed earlier, so the drive is given up", file.path().display());
            return Err(MediaError::new(MediaFault::Gone, message));
        }
        if self.waiting_count >= WAITING_MAX {
            let message = format!("{}: {WAITING_MAX} operations wait already", file.path().display());
            return Err(MediaError::new(MediaFault::Retry, message));
        }
        Ok(())
    }

    fn start(&mut self, work: PendingOperation) {
        match &mut self.uring {
            Some(uring) if work.step() != Step::Elsewhere => uring.start(work),
            _ => {
                self.with_workers += 1;
                self.workers.start(work);
            }
        }
    }

    fn kick(&mut self) {
        if let Some(uring) = &mut self.uring {
            uring.kick();
        }
    }

    fn collect(&mut self) {
        // io_uring first: it clears the bell. A result that a worker adds before that is then seen
        // below, and a later one rings again.
        if let Some(uring) = &mut self.uring {
            uring.collect(&mut self.collected, &mut self.ready);
        }
        #[cfg(test)]
        if let Some(between) = self.between.take() {
            between(self);
        }
        if self.with_workers > 0 {
            let before = self.collected.len();
            self.workers.collect(&mut self.collected);
            self.with_workers -= self.collected.len() - before;
        }
        for (work, result) in self.collected.drain(..) {
            self.outstanding[work.slot] -= 1;
            self.finished.push(work.finish(result));
        }
        let mut started = false;
        while self.waiting_count > 0
            && self.with_workers + self.uring.as_ref().map_or(0, Uring::in_flight) < IN_FLIGHT_MAX
        {
            let Some(work) = self.waiting.iter_mut().find_map(VecDeque::pop_front) else { break };
            self.waiting_count -= 1;
            self.start(work);
            started = true;
        }
        if started {
            self.kick();
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        if !self.finished.is_empty() || !self.collected.is_empty() || !self.ready.is_empty() {
            return;
        }
        match &mut self.uring {
            Some(uring) => uring.wait(timeout),
            None if self.watches.is_empty() => self.bell.wait(timeout),
            None => self.bell.wait_beside(timeout, &mut self.watches, &mut self.ready),
        }
    }

    /// Without io_uring: finds the watched descriptors that are ready now.
    fn look(&mut self) {
        self.bell.wait_beside(Some(Duration(0)), &mut self.watches, &mut self.ready);
    }
}

impl FileDrive {
    /// The number under which [`Ring::reap`] reports this drive's completions.
    pub fn slot(&self) -> usize {
        self.slot
    }

    pub fn file(&self) -> &DriveFile {
        &self.file
    }
}

impl Drive for FileDrive {
    fn geometry(&self) -> Geometry {
        self.file.geometry()
    }

    fn submit(&mut self, request: Request) {
        self.core.borrow_mut().submit(self.slot, &self.file, request);
    }

    fn kick(&mut self) {
        self.core.borrow_mut().kick();
    }

    fn reap(&mut self, _now: Instant, finished: &mut Vec<Completion>) {
        let mut core = self.core.borrow_mut();
        core.collect();
        let mine = core.finished.extract_if(.., |(slot, _)| *slot == self.slot);
        finished.extend(mine.map(|(_, completion)| completion));
    }
}

impl Drop for FileDrive {
    fn drop(&mut self) {
        let mut core = self.core.borrow_mut();
        while core.outstanding[self.slot] > 0 {
            core.collect();
            if core.outstanding[self.slot] > 0 {
                core.wait_busy();
            }
        }
        let slot = self.slot;
        core.finished.retain(|(of, _)| *of != slot);
        core.files[slot] = None;
        if let (Some(uring), Way::Ring) = (&mut core.uring, self.file.way()) {
            uring.unregister(slot);
        }
    }
}

impl Core {
    /// Like `wait`, but completions of other drives do not end it at once.
    fn wait_busy(&mut self) {
        match &mut self.uring {
            Some(uring) => uring.wait(Some(Duration::from_millis(1))),
            None => self.bell.wait(Some(Duration::from_millis(1))),
        }
    }
}

impl std::fmt::Debug for FileDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileDrive({}, {})", self.file.path().display(), self.file.geometry().size)
    }
}

#[cfg(test)]
mod tests;
