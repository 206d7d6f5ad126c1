//! System calls that the standard library lacks: making a loop device fail, and waiting for a
//! signal instead of being ended by it. Only this file of the crate may contain unsafe code.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;

const LOOP_SET_STATUS64: u64 = 0x4C04;
const LOOP_GET_STATUS64: u64 = 0x4C05;
/// `struct loop_info64` in words, and which of them is the size limit.
const INFO_WORDS: usize = 29;
const SIZE_LIMIT: usize = 4;

/// Signals that end the campaign, in order.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Limits a loop device to this many bytes: every access behind them fails from then on, also for
/// processes that have it open. 0 restores the size of its file.
pub fn limit(device: &Path, bytes: u64) -> io::Result<()> {
    let device = File::options().read(true).write(true).open(device)?;
    let mut info = [0u64; INFO_WORDS];
    // SAFETY: the call fills a loop_info64, which has exactly this size and no more alignment than
    // a word.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, info.as_mut_ptr()) })?;
    info[SIZE_LIMIT] = bytes;
    // SAFETY: the call reads as much.
    check(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_STATUS64 as _, info.as_ptr()) })
}

/// Holds back the signals that would end this process, in this thread and in those that it starts.
/// Programs that it starts get signals as usual.
pub fn hold_signals() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is made empty before it is used, and lives during the calls.
    let result = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in ENDING {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// Whether one of them has arrived.
pub fn is_signalled() -> bool {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is made empty first; then it is only read.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigpending(set.as_mut_ptr());
        ENDING.into_iter().any(|signal| libc::sigismember(set.as_ptr(), signal) == 1)
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
