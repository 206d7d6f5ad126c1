//! The io_uring side of a ring: the only unsafe code of the reactor.
//!
//! The rule that makes it sound: all memory that a queue entry points to (buffer pages, shared
//! bytes, the list of pieces, the table of zeros) belongs to a [`Place`]. The place keeps it,
//! unmoved and untouched, until the completion of that entry was taken from the ring. Dropping the
//! driver first waits for all completions.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use stele_ground::Duration;

use super::direct::{ZERO_BYTES, rest_of};
use super::plan::{PendingOperation, Step};
use super::workers::Finished;
use crate::Op;
use crate::system::{EventFd, IOVECS_MAX};

/// Number of entries that wait for one kick. When they are used up, `start` kicks by itself.
const ENTRIES: u32 = 256;
/// Largest number of operations in the kernel; the completion queue has room for all of them and
/// the bell.
pub const IN_FLIGHT_MAX: usize = 1023;
/// Largest number of registered files. The kernel need not look up and count their descriptors for
/// each operation.
const FILES_MAX: u32 = 1024;
const BELL: u64 = u64::MAX;
/// The answer to the end of a watch; the watch itself is answered too.
const UNWATCHED: u64 = u64::MAX - 1;
/// Marks the completion of a watch; the other bits are its token.
const WATCH: u64 = 1 << 62;
/// Marks the completion of a write with a linked flush. It comes only if the write fails or falls
/// short, and then instead of the flush's completion.
const LINKED: u64 = 1 << 63;

pub struct Uring {
    ring: IoUring,
    places: Vec<Place>,
    free: Vec<usize>,
    bell: Arc<EventFd>,
    bell_armed: bool,
    registers: bool,
    registered: Vec<bool>,
    links: bool,
    /// Slots of buffered files that have a flush in the kernel.
    flushing: Vec<usize>,
    /// Places whose flush waits for its turn, at most as many as are in flight.
    waiting_flushes: VecDeque<usize>,
}

/// An operation in the kernel and what its entry points to.
#[derive(Default)]
struct Place {
    work: Option<(PendingOperation, Step)>,
    pieces: Vec<libc::iovec>,
    /// Length in bytes of a write with a linked flush.
    linked: Option<u64>,
}

impl Uring {
    /// Fails if the kernel or a filter refuses io_uring or a feature that the ring needs.
    pub fn new(bell: Arc<EventFd>) -> io::Result<Uring> {
        let ring = build()?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring is older than 5.11"));
        }
        let links = ring.params().is_feature_skip_cqe_on_success();
        let registers = ring.submitter().register_files_sparse(FILES_MAX).is_ok();
        Ok(Uring {
            ring,
            places: Vec::new(),
            free: Vec::new(),
            bell,
            bell_armed: false,
            registers,
            registered: Vec::new(),
            links,
            flushing: Vec::new(),
            waiting_flushes: VecDeque::new(),
        })
    }

    /// Registers the file under the slot. Without room or support, its descriptor is used directly.
    pub fn register(&mut self, slot: usize, fd: RawFd) {
        if self.registered.len() <= slot {
            self.registered.resize(slot + 1, false);
        }
        self.registered[slot] =
            self.registers && self.ring.submitter().register_files_update(slot as u32, &[fd]).is_ok();
    }

    /// Removes the file of a slot, which must have no operation in flight.
    pub fn unregister(&mut self, slot: usize) {
        if std::mem::take(&mut self.registered[slot]) {
            let _ = self.ring.submitter().register_files_update(slot as u32, &[-1]);
        }
    }

    #[cfg(test)]
    pub fn waiting_flushes(&self) -> usize {
        self.waiting_flushes.len()
    }

    pub fn in_flight(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Queues the first step of the work. The caller observes `IN_FLIGHT_MAX`.
    pub fn start(&mut self, work: PendingOperation) {
        let step = work.step();
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        self.places[index].work = Some((work, step));
        self.push(index);
    }

    /// Queues the current step of the place.
    fn push(&mut self, index: usize) {
        let Place { work, pieces, linked } = &mut self.places[index];
        let Some((work, step)) = work else { return };
        let buffered = !work.file.is_direct();
        if buffered && *step == Step::Sync {
            if self.flushing.contains(&work.slot) {
                self.waiting_flushes.push_back(index);
                return;
            }
            self.flushing.push(work.slot);
        }
        let fixed = self.registered.get(work.slot).copied().unwrap_or(false).then_some(work.slot as u32);
        let first = entry(work, *step, pieces, fixed).user_data(index as u64);
        *linked = if self.links && !buffered { linked_length(work, *step, pieces) } else { None };
        // The flush of a durable write goes to the kernel together with the write. One kernel
        // worker carries out both and wakes this thread once. With a wake-up between the two, a log
        // group took two and a half times as long. Flushes through the page cache take turns
        // instead: a second one in the kernel could succeed because the first took the error.
        let chain = match linked {
            Some(_) => {
                let sync = entry(work, Step::Sync, &mut Vec::new(), fixed).user_data(index as u64);
                let flags = squeue::Flags::IO_LINK | squeue::Flags::ASYNC | squeue::Flags::SKIP_SUCCESS;
                [first.user_data(index as u64 | LINKED).flags(flags), sync]
            }
            None => [first.clone(), first],
        };
        let chain = &chain[..1 + usize::from(linked.is_some())];
        while {
            // SAFETY: all memory that the entries point to belongs to the place. The place holds it
            // until the completion with this index is taken (`collect`), or the driver's drop has
            // waited for it. A linked write completes before it.
            unsafe { self.ring.submission().push_multiple(chain) }.is_err()
        } {
            // The queue is full: the kernel takes all entries, or refuses temporarily (memory), and
            // only a repetition helps.
            self.kick();
        }
    }

    /// Ends the turn of a flush of a buffered file, and queues the next one.
    fn next_flush(&mut self, slot: usize) {
        self.flushing.retain(|of| *of != slot);
        let of_slot = |index: &usize| matches!(&self.places[*index].work, Some((work, _)) if work.slot == slot);
        if let Some(next) = self.waiting_flushes.iter().position(of_slot)
            && let Some(index) = self.waiting_flushes.remove(next)
        {
            self.push(index);
        }
    }

    /// Hands all queued entries to the kernel.
    pub fn kick(&mut self) {
        if !self.ring.submission().is_empty() {
            // After an interruption or a shortage of memory, the entries stay queued for the next
            // kick or wait.
            let _ = self.ring.submit();
        }
    }

    /// Asks once for readability of the descriptor, or writability.
    pub fn watch(&mut self, token: u64, descriptor: RawFd, writing: bool) {
        let events = if writing { libc::POLLOUT } else { libc::POLLIN };
        self.push_plain(&opcode::PollAdd::new(Fd(descriptor), events as u32).build().user_data(WATCH | token));
    }

    /// Ends a watch; a token that has been answered already is ignored.
    pub fn unwatch(&mut self, token: u64) {
        self.push_plain(&opcode::PollRemove::new(WATCH | token).build().user_data(UNWATCHED));
    }

    fn push_plain(&mut self, entry: &squeue::Entry) {
        while {
            // SAFETY: the entry points to no memory. A descriptor closed meanwhile is an error of
            // its completion.
            unsafe { self.ring.submission().push(entry) }.is_err()
        } {
            self.kick();
        }
    }

    /// Takes the kernel's completions and the tokens of watches. Work with further steps is queued
    /// again.
    pub fn collect(&mut self, into: &mut Vec<Finished>, ready: &mut Vec<u64>) {
        let submission = self.ring.submission();
        let attention = !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        if attention {
            let _ = self.ring.submit();
        }
        // Take one at a time: a further step needs the ring, and reading the completion queue is
        // only a load.
        while let Some(entry) = { self.ring.completion().next() } {
            if entry.user_data() == BELL {
                self.bell_armed = false;
                self.bell.clear();
                continue;
            }
            if entry.user_data() == UNWATCHED {
                continue;
            }
            if entry.user_data() & (LINKED | WATCH) == WATCH {
                ready.push(entry.user_data() & !WATCH);
                continue;
            }
            let index = (entry.user_data() & !LINKED) as usize;
            let result = match entry.result() {
                error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
                bytes => Ok(bytes as u64),
            };
            let place = self.places.get_mut(index);
            let linked = place.as_ref().and_then(|place| place.linked);
            let taken = place.and_then(|place| place.work.take());
            let (mut work, step) = taken.unwrap_or_else(|| panic!("io_uring completed place {index}, which is empty"));
            let outcome = match linked {
                // The flush began, so the write was fully carried out.
                Some(written) if entry.user_data() & LINKED == 0 => match work.outcome(step, Ok(written)) {
                    None if work.step() == Step::Sync => work.outcome(Step::Sync, result),
                    other => other,
                },
                _ => work.outcome(step, result),
            };
            if step == Step::Sync && !work.file.is_direct() {
                self.next_flush(work.slot);
            }
            match outcome {
                Some(result) => {
                    self.free.push(index);
                    into.push((work, result));
                }
                None => {
                    let step = work.step();
                    self.places[index].work = Some((work, step));
                    self.push(index);
                }
            }
        }
    }

    /// Submits the queued entries and sleeps until an operation is finished, the bell rings, or the
    /// time is over.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        if !self.bell_armed {
            let entry = opcode::PollAdd::new(Fd(self.bell.as_raw_fd()), libc::POLLIN as u32).build().user_data(BELL);
            // SAFETY: the entry points to nothing; the descriptor is kept open by `self.bell`.
            self.bell_armed = unsafe { self.ring.submission().push(&entry) }.is_ok();
        }
        if !self.ring.completion().is_empty() || !self.bell_armed {
            self.kick();
            return;
        }
        // Interruptions, time-outs and shortage of memory all end the wait early; the caller checks
        // again.
        let _ = match timeout {
            None => self.ring.submit_and_wait(1),
            Some(span) => {
                let time = Timespec::new().sec(span.0 / 1_000_000_000).nsec((span.0 % 1_000_000_000) as u32);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut finished = Vec::new();
        while self.in_flight() > 0 {
            // Carry out further steps too: an accepted operation is not interrupted.
            let _ = self.ring.submit_and_wait(1);
            self.collect(&mut finished, &mut Vec::new());
            finished.clear();
        }
    }
}

/// Uses the newest mode that the kernel accepts: the kernel then processes completions only when
/// this thread asks for them, without interrupting it.
fn build() -> io::Result<IoUring> {
    let newest = IoUring::builder()
        .setup_cqsize(2 * (IN_FLIGHT_MAX as u32 + 1))
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(ENTRIES);
    match newest {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_cqsize(2 * (IN_FLIGHT_MAX as u32 + 1)).build(ENTRIES)
        }
        other => other,
    }
}

/// The length of a write to which a flush is linked: only the write that ends the operation. If a
/// further write followed, the next flush would answer for the operation, and the linked flush's
/// error would be lost.
pub fn linked_length(work: &PendingOperation, step: Step, pieces: &[libc::iovec]) -> Option<u64> {
    let listed: u64 = pieces.iter().take(IOVECS_MAX).map(|piece| piece.iov_len as u64).sum();
    let written = listed.min(TRANSFER_MAX as u64);
    work.only_sync_follows(step, written).then_some(written)
}

fn entry(work: &mut PendingOperation, step: Step, pieces: &mut Vec<libc::iovec>, fixed: Option<u32>) -> squeue::Entry {
    // The builders take the file as one of two types.
    macro_rules! on_file {
        ($operation:ident, $($argument:expr),* ; $($setter:ident($value:expr)),*) => {
            match fixed {
                Some(slot) => opcode::$operation::new(Fixed(slot), $($argument),*)$(.$setter($value))*.build(),
                None => {
                    opcode::$operation::new(Fd(work.file.file().as_raw_fd()), $($argument),*)$(.$setter($value))*.build()
                }
            }
        };
    }
    match (step, &mut work.op) {
        (Step::Read { at, from }, Op::Read { buffer, .. }) => {
            let rest = &mut buffer[from as usize..];
            on_file!(Read, rest.as_mut_ptr(), length(rest); offset(at))
        }
        (Step::Write { at, from, durable }, Op::Write { data, .. }) => {
            let flags = if durable { libc::RWF_DSYNC } else { 0 };
            pieces.clear();
            let mut add = |piece: &[u8]| {
                pieces.push(libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
            };
            match &work.bounce {
                Some(bounce) => add(&bounce[from as usize..]),
                None => rest_of(data, from, add),
            }
            match pieces.as_slice() {
                [one] => {
                    let length = one.iov_len.min(TRANSFER_MAX) as u32;
                    on_file!(Write, one.iov_base.cast(), length; offset(at), rw_flags(flags))
                }
                many => {
                    let count = many.len().min(IOVECS_MAX) as u32;
                    on_file!(Writev, many.as_ptr(), count; offset(at), rw_flags(flags))
                }
            }
        }
        (Step::WriteZeros { at, length }, _) => on_file!(Write, ZERO_BYTES.as_ptr(), length as u32; offset(at)),
        (Step::Allocate { mode, at, length }, _) => on_file!(Fallocate, length; offset(at), mode(mode)),
        (Step::Sync, _) => on_file!(Fsync, ; flags(FsyncFlags::DATASYNC)),
        (step, op) => unreachable!("{step:?} of {op:?} is not for io_uring"),
    }
}

/// Whole blocks, below the 2 GiB that the kernel transfers at once.
const TRANSFER_MAX: usize = 1 << 30;

fn length(bytes: &[u8]) -> u32 {
    bytes.len().min(TRANSFER_MAX) as u32
}
