//! The few system calls that the standard library lacks, each behind a safe function. Besides the
//! ring's driver, only this file of the crate may contain unsafe code.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::LazyLock;

use stele_ground::{Duration, Instant};

/// Slices that one vectored system call takes (UIO_MAXIOV).
pub const IOVECS_MAX: usize = 1024;

/// The monotonic clock whose rate no one can set (CLOCK_MONOTONIC_RAW), counted from the first call
/// in this process. The usual one follows `adjtimex`, which lets root run it a tenth too fast; the
/// compliance clock would follow it.
pub fn now() -> Instant {
    static ORIGIN: LazyLock<u64> = LazyLock::new(raw);
    Instant(raw().saturating_sub(*ORIGIN))
}

fn raw() -> u64 {
    let mut found = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call fills the whole struct when it answers 0.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, found.as_mut_ptr()) };
    assert!(answer == 0, "the kernel has no CLOCK_MONOTONIC_RAW, which Linux has since 2.6.28");
    // SAFETY: the call answered 0.
    let found = unsafe { found.assume_init() };
    found.tv_sec as u64 * 1_000_000_000 + found.tv_nsec as u64
}

/// Bytes that an unprivileged process may still allocate on the file system of `path`.
pub fn free_space(path: &std::path::Path) -> io::Result<stele_ground::Bytes> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends in NUL, and the call fills the whole struct when it answers 0.
    if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call answered 0.
    let found = unsafe { found.assume_init() };
    Ok(stele_ground::Bytes(found.f_bavail.saturating_mul(found.f_frsize)))
}

/// Whether the kernel reports a synchronised clock; `None` if it reports nothing.
pub fn clock_is_synchronised() -> Option<bool> {
    let mut found = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: zeros are a valid timex that changes nothing, and the call fills the struct that is
    // alive during it.
    match unsafe { libc::adjtimex(found.as_mut_ptr()) } {
        state if state < 0 => None,
        state => Some(state != libc::TIME_ERROR),
    }
}

/// The parts of a device number.
pub fn major(device: u64) -> u64 {
    u64::from(libc::major(device))
}

pub fn minor(device: u64) -> u64 {
    u64::from(libc::minor(device))
}

/// From now on, files and directories of this process are writable by their owner only, unless it
/// sets their mode.
pub fn withhold_writing() {
    // SAFETY: sets a number of the process, which every call answers; there is nothing that can
    // fail.
    unsafe {
        let given = libc::umask(0o077);
        libc::umask(given | 0o022);
    }
}

/// An eventfd: a write by any thread wakes the thread that waits for it to become readable.
pub struct EventFd(File);

impl EventFd {
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: takes two integers; the result is checked before it is used.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        Ok(EventFd(unsafe { File::from_raw_fd(fd) }))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // It fails only when the counter is full; the descriptor is then readable already.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Makes it unreadable again.
    pub fn clear(&self) {
        let _ = (&self.0).read(&mut [0; 8]);
    }

    /// Sleeps until it is readable or the time is over (`None`: without limit), and clears it. It
    /// may return early.
    pub fn wait(&self, timeout: Option<Duration>) {
        let mut poll = libc::pollfd { fd: self.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = timeout.map(timespec);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: one pollfd, alive during the call; `time` is null or points to a timespec alive
        // during the call.
        if unsafe { libc::ppoll(&mut poll, 1, time, std::ptr::null()) } > 0 {
            self.clear();
        }
    }

    /// Like `wait`, but also waits for other descriptors, each with a token and a flag for writing.
    /// Ready (or broken) descriptors leave `watches`, and their tokens go into `ready`.
    pub fn wait_beside(&self, timeout: Option<Duration>, watches: &mut Vec<(u64, RawFd, bool)>, ready: &mut Vec<u64>) {
        let poll = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut polls = vec![poll(self.as_raw_fd(), libc::POLLIN)];
        polls.extend(
            watches.iter().map(|(_, fd, writing)| poll(*fd, if *writing { libc::POLLOUT } else { libc::POLLIN })),
        );
        let time = timeout.map(timespec);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: as many pollfds as are said, alive during the call; `time` is as in `wait`.
        if unsafe { libc::ppoll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, time, std::ptr::null()) } <= 0 {
            return;
        }
        if polls.first().is_some_and(|bell| bell.revents != 0) {
            self.clear();
        }
        let mut seen = polls.iter().skip(1);
        watches.retain(|(token, ..)| {
            let is_ready = seen.next().is_some_and(|poll| poll.revents != 0);
            if is_ready {
                ready.push(*token);
            }
            !is_ready
        });
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

/// The kernel's answer about unbuffered access to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direct {
    /// It reports nothing: an older kernel, or a file system that does not know.
    Unknown,
    /// The file system accepts the flag for unbuffered access, and transfers through the page cache
    /// all the same.
    Buffered,
    /// Alignment of memory, and of offsets and lengths.
    Aligned(usize, u64),
}

pub fn direct(file: &File) -> Direct {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor, which `file` keeps open;
    // `found` has room for one statx and is alive during the call.
    let result = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, found.as_mut_ptr())
    };
    // SAFETY: every bit pattern, zeros included, is a valid statx.
    let found = unsafe { found.assume_init() };
    direct_of(result == 0 && found.stx_mask & libc::STATX_DIOALIGN != 0, &found)
}

fn direct_of(is_known: bool, found: &libc::statx) -> Direct {
    match (is_known, found.stx_dio_offset_align) {
        (false, _) => Direct::Unknown,
        (true, 0) => Direct::Buffered,
        (true, offset) => Direct::Aligned(found.stx_dio_mem_align as usize, u64::from(offset)),
    }
}

/// The kernel's requirements for unbuffered access to a file: alignment of memory, and of offsets
/// and lengths. `None` if the kernel reports none or refuses unbuffered access.
pub fn direct_alignment(file: &File) -> Option<(usize, u64)> {
    match direct(file) {
        Direct::Aligned(memory, offset) => Some((memory, offset)),
        Direct::Unknown | Direct::Buffered => None,
    }
}

/// Whether the file lies in memory (tmpfs, ramfs): its transfers are copies that wait for no
/// device.
pub fn in_memory(file: &File) -> bool {
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open and `found` has room for one statfs.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) };
    // SAFETY: every bit pattern, zeros included, is a valid statfs.
    let kind = unsafe { found.assume_init() }.f_type;
    result == 0 && (kind == libc::TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

/// The size of a block device in bytes.
pub fn device_size(mut device: &File) -> io::Result<u64> {
    device.seek(SeekFrom::End(0))
}

/// An extended attribute of the file. `None` if the file lacks it, or the file system does not
/// support attributes.
pub fn attribute(file: &File, name: &str) -> Option<String> {
    let name = CString::new(name).ok()?;
    let mut value = vec![0u8; 256];
    // SAFETY: the name ends in NUL, and `value` has as many bytes as are said; both live during the
    // call.
    let length = unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).ok()?);
    String::from_utf8(value).ok()
}

/// Sets an extended attribute of the file.
pub fn set_attribute(file: &File, name: &str, value: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: as in `attribute`; the value is only read.
    check(unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}

/// Removes an attribute; a missing one is no error.
pub fn clear_attribute(file: &File, name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: the name ends in NUL and lives during the call.
    match check(unsafe { libc::fremovexattr(file.as_raw_fd(), name.as_ptr()) }) {
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
        done => done,
    }
}

/// The logical sector of a block device, in bytes.
pub fn sector_size(device: &File) -> io::Result<u64> {
    let mut size: libc::c_int = 0;
    // SAFETY: BLKSSZGET stores one int through its argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), libc::BLKSSZGET as _, &mut size) })?;
    Ok(size as u64)
}

/// Tells a block device that a range is unused.
pub fn discard_device(device: &File, at: u64, length: u64) -> io::Result<()> {
    const BLKDISCARD: u64 = 0x1277;
    let range = [at, length];
    // SAFETY: BLKDISCARD reads two u64 through its argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD as _, range.as_ptr()) })
}

/// Runs fallocate; `mode` is one of the FALLOC_FL flags.
pub fn allocate(file: &File, mode: i32, at: u64, length: u64) -> io::Result<()> {
    // SAFETY: takes integers only.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, at as libc::off_t, length as libc::off_t) })
}

/// Tells the kernel what will be done with a part of an open file; `advice` is one of the
/// POSIX_FADV constants, and a length of 0 reaches to the end.
pub fn advise(file: &File, at: u64, length: u64, advice: i32) -> io::Result<()> {
    // SAFETY: takes integers only.
    let error = unsafe { libc::posix_fadvise(file.as_raw_fd(), at as libc::off_t, length as libc::off_t, advice) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Writes the slices one after another at an offset, and returns the number of bytes written. With
/// `durable`, those bytes are durable when it returns. More than 1024 slices give a short write.
pub fn write_vectored(file: &File, slices: &[IoSlice], at: u64, durable: bool) -> io::Result<u64> {
    let slices = &slices[..slices.len().min(IOVECS_MAX)];
    let flags = if durable { libc::RWF_DSYNC } else { 0 };
    // SAFETY: IoSlice is documented to have the layout of iovec; the slices and what they point to
    // are borrowed during the call.
    let written = unsafe {
        libc::pwritev2(file.as_raw_fd(), slices.as_ptr().cast(), slices.len() as libc::c_int, at as libc::off_t, flags)
    };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(written as u64) }
}

/// The next offset from `at` on that holds data (`data` true) or is a hole; `None` after the last
/// data.
pub fn seek(file: &File, at: u64, data: bool) -> io::Result<Option<u64>> {
    let whence = if data { libc::SEEK_DATA } else { libc::SEEK_HOLE };
    // SAFETY: takes integers only. No code uses the file's own position.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, whence) };
    if found >= 0 {
        return Ok(Some(found as u64));
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ENXIO) { Ok(None) } else { Err(error) }
}

/// Bytes that were sent over a Unix socket and that the peer has not read, as the kernel accounts
/// for them: more than the payload alone. `None` if the descriptor is no such socket, or the kernel
/// does not report it.
pub fn unread_by_peer(socket: RawFd) -> Option<u64> {
    let mut count: libc::c_int = 0;
    // SAFETY: SIOCOUTQ, which is TIOCOUTQ, stores one int through its argument; a descriptor that
    // is none is an error.
    check(unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &mut count) }).ok()?;
    u64::try_from(count).ok()
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
