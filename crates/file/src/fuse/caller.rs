//! Who asks: FUSE names a user, a group and a process, and the process has more groups.

use std::fs;

use fuser::Request;

use crate::Caller;

/// The most supplementary groups that count; Linux allows a process 65,536.
const GROUPS_MAX: usize = 65_536;

/// The caller of a request. Root needs no groups. The kernel keeps the process waiting meanwhile,
/// so that its groups are those of the call; a process of another pid namespace has the number 0
/// and its groups do not count.
pub(super) fn caller(request: &Request) -> Caller {
    let groups = match (request.uid(), request.pid()) {
        (0, _) | (_, 0) => Vec::new(),
        (_, process) => {
            let status = fs::read_to_string(format!("/proc/{process}/status"));
            status.map(|status| groups(&status)).unwrap_or_default()
        }
    };
    Caller { uid: request.uid(), gid: request.gid(), groups }
}

/// Whether a signal is there that the thread is to take, and so must not wait on. None: its status
/// cannot be read, as that of a thread of another pid namespace, which has the number 0.
pub(super) fn has_signal(thread: u32) -> Option<bool> {
    fs::read_to_string(format!("/proc/{thread}/status")).ok().and_then(|status| signal(&status))
}

/// The same from the text of `/proc/PID/status`. A signal to a process of several threads is one
/// thread's to take: the first one's, unless it blocks the signal.
fn signal(status: &str) -> Option<bool> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let signals = |name| u64::from_str_radix(field(name)?, 16).ok();
    let takes_all = field("Threads:")? == "1" || field("Tgid:")? == field("Pid:")?;
    let shared = if takes_all { signals("ShdPnd:")? } else { 0 };
    let held_back = signals("SigBlk:")? | signals("SigIgn:")?;
    Some((signals("SigPnd:")? | shared) & !held_back != 0)
}

/// The groups in the text of `/proc/PID/status`.
fn groups(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|group| group.parse().ok()).take(GROUPS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::{groups, has_signal, signal};

    #[test]
    fn groups_are_read_from_the_status() {
        for (status, expected) in [
            ("Name:\tx\nGroups:\t4 24 1000 \nUid:\t5\n", vec![4, 24, 1000]),
            ("Groups:\n", vec![]),
            ("Name:\tGroups: 7\n", vec![]),
            ("", vec![]),
            ("Groups: 4294967294 x 1\n", vec![4_294_967_294, 1]),
        ] {
            assert_eq!(groups(status), expected, "{status:?}");
        }
    }

    #[test]
    fn a_signal_is_there_if_the_thread_is_to_take_it() {
        let status = |pid: u32, threads: u32, own: &str, shared: &str, blocked: &str| {
            format!(
                "Name:\tSigPnd: 4\nTgid:\t7\nPid:\t{pid}\nTracerPid:\t9\nThreads:\t{threads}\nSigQ:\t1/2\n\
                 SigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\nSigIgn:\t0000000000001000\n"
            )
        };
        let (none, interrupt) = ("0000000000000000", "0000000000000002");
        for (pid, threads, own, shared, blocked, expected) in [
            (7, 1, none, none, none, false),
            (7, 1, none, interrupt, none, true),
            (7, 1, interrupt, none, none, true),
            (7, 1, none, interrupt, interrupt, false),
            (7, 1, none, "0000000000001000", none, false),
            // The first thread takes what is sent to the process; SIGKILL is sent to each thread.
            (7, 2, none, interrupt, none, true),
            (8, 2, none, interrupt, none, false),
            (8, 2, "0000000000000100", none, none, true),
        ] {
            let status = status(pid, threads, own, shared, blocked);
            assert_eq!(signal(&status), Some(expected), "{status}");
        }
        assert_eq!(signal("Name:\tx\n"), None);
    }

    #[test]
    fn the_status_of_a_thread_is_read() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert_eq!(has_signal(thread), Some(false));
        assert_eq!(has_signal(0), None);
    }
}
