//! io_uring with a registered file and registered buffers: nothing is looked up or pinned for each
//! access.
//!
//! The rule that makes it sound: every entry points into the buffer of its slot, which belongs to
//! the driver, does not move, and is touched again only after the entry's completion was taken.
//! Dropping the driver waits for all of them first.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::squeue::Entry;
use io_uring::types::{Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use stele_ground::Duration;
use stele_media::Buffer;

use super::engine::{Engine, SlotResult};
use crate::workload::Access;

/// Accesses under way for one worker: the most entries that a ring has.
pub const SLOTS_MAX: u32 = 32_768;

struct Slot {
    buffer: Buffer,
    length: u32,
    fixed: bool,
    busy: bool,
}

pub struct Uring {
    ring: IoUring,
    slots: Vec<Slot>,
    flying: u32,
    // Behind the ring: their descriptors are registered there.
    _files: Vec<Arc<File>>,
}

impl Uring {
    pub fn new(file: Arc<File>, slots: u32, length_max: usize) -> Result<Uring, String> {
        Uring::over(vec![file], slots, length_max)
    }

    /// Over several files; an access goes to the one that is its target.
    pub fn over(files: Vec<Arc<File>>, slots: u32, length_max: usize) -> Result<Uring, String> {
        let refused = |error: io::Error| format!("io_uring is refused: {error}; measure with --buffered");
        if slots > SLOTS_MAX {
            return Err(format!("{slots} accesses under way are too many for one worker; at most {SLOTS_MAX}"));
        }
        let slots = slots.max(1);
        let entries = slots.next_power_of_two();
        let newest = IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(entries);
        let ring = newest.or_else(|_| IoUring::new(entries)).map_err(refused)?;
        let descriptors: Vec<i32> = files.iter().map(|file| file.as_raw_fd()).collect();
        ring.submitter().register_files(&descriptors).map_err(refused)?;
        let mut slots: Vec<Slot> = (0..slots)
            .map(|_| Slot { buffer: Buffer::zeroed(length_max), length: 0, fixed: false, busy: false })
            .collect();
        let pages: Vec<libc::iovec> = slots
            .iter_mut()
            .map(|slot| libc::iovec { iov_base: slot.buffer.as_mut_ptr().cast(), iov_len: slot.buffer.len() })
            .collect();
        // SAFETY: the buffers belong to the slots, which live and stay where they are until the
        // ring is gone.
        let fixed = unsafe { ring.submitter().register_buffers(&pages) }.is_ok();
        // Beyond the limit of locked memory they are used as they are.
        slots.iter_mut().for_each(|slot| slot.fixed = fixed);
        Ok(Uring { ring, slots, flying: 0, _files: files })
    }

    /// Starts to make what a file was given durable; the answer is that of the slot.
    pub fn start_sync(&mut self, number: u32, file: u32, data_only: bool) {
        let slot = &mut self.slots[number as usize];
        assert!(!slot.busy, "slot {number} is under way already");
        (slot.busy, slot.length) = (true, 0);
        let flags = if data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
        let entry = opcode::Fsync::new(Fixed(file)).flags(flags).build();
        self.push(number, &entry);
    }

    /// An entry for the slot, which is busy until its completion was taken.
    fn push(&mut self, number: u32, entry: &Entry) {
        let entry = entry.clone().user_data(u64::from(number));
        while {
            // SAFETY: the entry points into the slot's buffer, which is not touched before its
            // completion was taken.
            unsafe { self.ring.submission().push(&entry) }.is_err()
        } {
            // As many entries as slots: it is full only where the kernel was short of memory; then
            // it is asked again.
            let _ = self.ring.submit();
        }
        self.flying += 1;
    }

    fn take(&mut self, answers: &mut Vec<SlotResult>) {
        for entry in self.ring.completion() {
            let slot = entry.user_data() as u32;
            let place = &mut self.slots[slot as usize];
            place.busy = false;
            let asked = place.length;
            let result = match entry.result() {
                error if error < 0 => Err(io::Error::from_raw_os_error(-error).to_string()),
                bytes if bytes as u32 == asked => Ok(()),
                bytes => Err(format!("only {bytes} of {asked} bytes were transferred")),
            };
            self.flying -= 1;
            answers.push((slot, result));
        }
    }
}

impl Engine for Uring {
    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn start(&mut self, number: u32, access: &Access) {
        let slot = &mut self.slots[number as usize];
        assert!(!slot.busy, "slot {number} is under way already");
        slot.busy = true;
        let length = access.length as u32;
        slot.length = length;
        let (file, pointer) = (Fixed(access.target as u32), slot.buffer[..length as usize].as_mut_ptr());
        let entry = match (access.write, slot.fixed) {
            (false, true) => opcode::ReadFixed::new(file, pointer, length, number as u16).offset(access.at).build(),
            (true, true) => opcode::WriteFixed::new(file, pointer, length, number as u16).offset(access.at).build(),
            (false, false) => opcode::Read::new(file, pointer, length).offset(access.at).build(),
            (true, false) => opcode::Write::new(file, pointer, length).offset(access.at).build(),
        };
        self.push(number, &entry);
    }

    fn flush(&mut self) {
        // What the kernel does not take now goes with the next one.
        let _ = self.ring.submit();
    }

    fn reap(&mut self, least: u32, limit: Option<Duration>, answers: &mut Vec<SlotResult>) {
        let least = least.min(self.flying) as usize;
        // Interruptions, time-outs and shortage of memory end the wait early; the caller asks
        // again.
        let _ = match limit {
            None => self.ring.submit_and_wait(least),
            Some(limit) => {
                let time = Timespec::new().sec(limit.0 / 1_000_000_000).nsec((limit.0 % 1_000_000_000) as u32);
                self.ring.submitter().submit_with_args(least, &SubmitArgs::new().timespec(&time))
            }
        };
        self.take(answers);
    }

    fn buffer(&mut self, slot: u32) -> &mut [u8] {
        let slot = &mut self.slots[slot as usize];
        assert!(!slot.busy, "the kernel has the buffer");
        &mut slot.buffer
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut answers = Vec::new();
        while self.flying > 0 {
            let _ = self.ring.submit_and_wait(1);
            self.take(&mut answers);
        }
    }
}
