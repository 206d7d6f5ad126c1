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

/// The groups in the text of `/proc/PID/status`.
fn groups(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|group| group.parse().ok()).take(GROUPS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::groups;

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
}
