//! The few system calls that the standard library does not offer, each behind a safe function.
//! With the ring's driver the only place in this crate where unsafe code is allowed.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::LazyLock;

use stele_ground::{Duration, Instant};

/// The monotonic clock (CLOCK_MONOTONIC), counted from the first call in this process.
pub fn now() -> Instant {
    static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    Instant(ORIGIN.elapsed().as_nanos() as u64)
}

/// An eventfd: any thread writes to wake the one that waits for it to become readable.
pub struct EventFd(File);

impl EventFd {
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: takes two integers; the result is checked before it is used.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        Ok(EventFd(unsafe { File::from_raw_fd(fd) }))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // It fails only when the counter is full, and then it is readable already.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Makes it unreadable again.
    pub fn clear(&self) {
        let _ = (&self.0).read(&mut [0; 8]);
    }

    /// Sleeps until it is readable or the time is over; none: without end. Spurious returns are possible.
    pub fn wait(&self, timeout: Option<Duration>) {
        let mut poll = libc::pollfd { fd: self.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = timeout.map(timespec);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: one pollfd, alive during the call; `time` is null or points to a timespec alive during the call.
        unsafe { libc::ppoll(&mut poll, 1, time, std::ptr::null()) };
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn timespec(span: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: (span.0 / 1_000_000_000) as libc::time_t,
        tv_nsec: (span.0 % 1_000_000_000) as libc::c_long,
    }
}
