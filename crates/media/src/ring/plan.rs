//! The steps of an operation on a file. io_uring, a thread or the reactor itself carries them out.
//! A plan names the next step and takes its outcome. It continues after a short transfer, and falls
//! back if a file system lacks an ability.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::file::{DriveFile, fault_of};
use crate::{Buffer, BufferPool, Completion, MediaError, MediaFault, Op, Priority, Request};

/// Largest number of zero bytes in one write.
pub const ZEROS: usize = 1 << 20;

/// An operation under way, with everything that its steps refer to.
pub struct PendingOperation {
    pub slot: usize,
    pub tag: u64,
    pub priority: Priority,
    pub file: Arc<DriveFile>,
    pub op: Op,
    /// An aligned copy of data that the drive cannot take in place.
    pub bounce: Option<Buffer>,
    stage: Stage,
    /// Bytes transferred so far.
    done: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    /// Zeroing by punching a hole, since zeroing a range is not supported.
    Punch,
    /// Zeroing by writing, since neither is supported.
    Zeros,
    /// The write is done; this makes it durable.
    Sync,
}

/// One call to the system. `at` is a place in the file, `from` counts bytes of the operation's own
/// data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Read {
        at: u64,
        from: u64,
    },
    Write {
        at: u64,
        from: u64,
        durable: bool,
    },
    WriteZeros {
        at: u64,
        length: u64,
    },
    Allocate {
        mode: i32,
        at: u64,
        length: u64,
    },
    Sync,
    /// A call that io_uring lacks: listing extents, discarding on a device.
    Elsewhere,
}

impl PendingOperation {
    pub fn new(slot: usize, file: &Arc<DriveFile>, request: Request, buffers: &BufferPool) -> PendingOperation {
        let Request { tag, op, priority, .. } = request;
        let bounce = match &op {
            Op::Write { data, .. } if file.is_direct() && !data.iter().all(|piece| file.takes(piece)) => {
                let mut copy = buffers.take(data.iter().map(|piece| piece.len()).sum());
                let mut at = 0;
                for piece in data {
                    copy[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
                Some(copy)
            }
            _ => None,
        };
        PendingOperation { slot, tag, priority, file: Arc::clone(file), op, bounce, stage: Stage::First, done: 0 }
    }

    pub fn step(&self) -> Step {
        let (base, done) = (self.file.base(), self.done);
        match (&self.op, self.stage) {
            (_, Stage::Sync) | (Op::Flush, _) => Step::Sync,
            (Op::Read { at, .. }, _) => Step::Read { at: base + at + done, from: done },
            (Op::Write { at, fua, .. }, _) => {
                let durable = *fua && self.file.can.durable_write.load(Ordering::Relaxed);
                Step::Write { at: base + at + done, from: done, durable }
            }
            (Op::Zero { at, length }, Stage::Zeros) => {
                Step::WriteZeros { at: base + at + done, length: (length - done).min(ZEROS as u64) }
            }
            (Op::Zero { at, length }, stage) => {
                let whole = stage == Stage::First && self.file.can.zero_range.load(Ordering::Relaxed);
                let mode = if whole { libc::FALLOC_FL_ZERO_RANGE } else { libc::FALLOC_FL_PUNCH_HOLE };
                Step::Allocate { mode: mode | libc::FALLOC_FL_KEEP_SIZE, at: base + at, length: *length }
            }
            (Op::Discard { at, length }, _) if !self.file.is_device() => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                Step::Allocate { mode, at: base + at, length: *length }
            }
            (Op::Discard { .. } | Op::View { .. } | Op::Extents { .. }, _) => Step::Elsewhere,
        }
    }

    /// Whether only a flush remains once the step has transferred `bytes`.
    pub fn only_sync_follows(&self, step: Step, bytes: u64) -> bool {
        let length = self.op.range().map_or(0, |(_, length)| length);
        matches!((step, &self.op), (Step::Write { durable: false, .. }, Op::Write { fua: true, .. }))
            && self.done + bytes == length
    }

    /// Takes the outcome of the step: bytes transferred, or the system's error. Returns `None` if
    /// there is a further step.
    pub fn outcome(&mut self, step: Step, result: io::Result<u64>) -> Option<Result<(), MediaError>> {
        match result {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => None,
            Err(error) => self.failed(step, &error),
            Ok(bytes) => self.succeeded(step, bytes),
        }
    }

    fn succeeded(&mut self, step: Step, bytes: u64) -> Option<Result<(), MediaError>> {
        let length = self.op.range().map_or(0, |(_, length)| length);
        match step {
            Step::Allocate { .. } | Step::Elsewhere => return Some(Ok(())),
            Step::Sync => return Some(self.durable()),
            Step::Read { .. } | Step::Write { .. } | Step::WriteZeros { .. } => self.done += bytes,
        }
        if self.done < length {
            // A transfer of nothing, or one that ends within a block, marks the end of the file.
            let block = self.file.geometry().block.0;
            let ended = bytes == 0 || (self.file.is_direct() && !self.done.is_multiple_of(block));
            return ended.then(|| Err(self.ended()));
        }
        match (&self.op, step) {
            (Op::Write { fua: true, .. }, Step::Write { durable: false, .. }) => {
                self.stage = Stage::Sync;
                None
            }
            (_, Step::Write { durable: true, .. }) => Some(self.durable()),
            _ => Some(Ok(())),
        }
    }

    /// The answer to a successful flush. Another one that failed meanwhile has used up the error.
    fn durable(&self) -> Result<(), MediaError> {
        if !self.file.has_failed() {
            return Ok(());
        }
        let message = self.describe("another flush failed meanwhile, so the drive is given up");
        Err(MediaError::new(MediaFault::Gone, message))
    }

    fn failed(&mut self, step: Step, error: &io::Error) -> Option<Result<(), MediaError>> {
        let unsupported = matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY));
        let unsupported = unsupported || (error.raw_os_error() == Some(libc::EINVAL) && step_may_be_unknown(step));
        if unsupported {
            match (&self.op, step) {
                (Op::Zero { .. }, Step::Allocate { .. }) if self.stage == Stage::First => {
                    self.file.can.zero_range.store(false, Ordering::Relaxed);
                    self.stage = if self.file.can.punch.load(Ordering::Relaxed) { Stage::Punch } else { Stage::Zeros };
                    return None;
                }
                (Op::Zero { .. }, Step::Allocate { .. }) => {
                    self.file.can.punch.store(false, Ordering::Relaxed);
                    self.stage = Stage::Zeros;
                    return None;
                }
                // The content of discarded space is undefined, so keeping it is allowed.
                (Op::Discard { .. }, _) => return Some(Ok(())),
                (_, Step::Write { durable: true, .. }) => {
                    self.file.can.durable_write.store(false, Ordering::Relaxed);
                    return None;
                }
                _ => {}
            }
        }
        // A failed flush may have dropped its data, and the next flush may then "succeed". The
        // error of a durable write belongs to its place, since such writes bypass the page cache.
        if step == Step::Sync {
            self.file.set_failed();
            let message = format!("{error}; data that is not yet durable may be lost, so the drive is given up");
            return Some(Err(MediaError::new(MediaFault::Gone, self.describe(&message))));
        }
        Some(Err(MediaError::new(fault_of(error), self.describe(&error.to_string()))))
    }

    fn ended(&self) -> MediaError {
        let size = self.file.geometry().size;
        let message = format!("the file ends before its {size}: it was cut short behind Stele's back");
        MediaError::new(MediaFault::Damaged, self.describe(&message))
    }

    fn describe(&self, what: &str) -> String {
        let path = self.file.path().display();
        let verb = match &self.op {
            Op::Read { .. } | Op::View { .. } => "read",
            Op::Write { .. } => "write",
            Op::Zero { .. } => "zeroing",
            Op::Discard { .. } => "discard",
            Op::Extents { .. } => "listing extents",
            Op::Flush => return format!("{path}: flush: {what}"),
        };
        let (at, length) = self.op.range().unwrap_or_default();
        format!("{path}: {verb} of {length} bytes at {at}: {what}")
    }

    pub fn finish(self, result: Result<(), MediaError>) -> (usize, Completion) {
        (self.slot, Completion { tag: self.tag, op: self.op, result })
    }
}

/// Old kernels answer EINVAL for unknown flags. For a plain transfer EINVAL is a real error.
fn step_may_be_unknown(step: Step) -> bool {
    matches!(step, Step::Allocate { .. } | Step::Write { durable: true, .. } | Step::Elsewhere)
}

impl std::fmt::Debug for PendingOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe("under way"))
    }
}
