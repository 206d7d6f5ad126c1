//! How much memory a server may use where its configuration does not say.

use std::fs;
use std::path::Path;

use stele_ground::{Bytes, GIB, MIB};

/// Memory that a server needs besides its caches: connections, buffers in use, the process itself.
pub const BESIDE_CACHES: u64 = 512 * MIB;

/// The memory of this machine, as [`memory`] tells it.
pub fn memory_here() -> Option<Bytes> {
    memory("self", Path::new("/proc"), Path::new("/sys"))
}

/// Memory of a machine; less where the control group of the process, or one above it, is limited.
/// `process` is its number, or `self`; `proc` and `sys` are the machine's `/proc` and `/sys`.
///
/// None where `/proc` does not tell.
pub fn memory(process: &str, proc: &Path, sys: &Path) -> Option<Bytes> {
    let text = fs::read_to_string(proc.join("meminfo")).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    let groups = fs::read_to_string(proc.join(process).join("cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let limit = |group: &Path| -> Option<u64> {
        // A group without a limit says "max".
        fs::read_to_string(sys.join("fs/cgroup").join(group).join("memory.max")).ok()?.trim().parse().ok()
    };
    let limits = Path::new(group).ancestors().filter_map(limit);
    Some(Bytes(limits.fold(kib << 10, u64::min)))
}

/// The cache of volumes' blocks on a machine with so much memory: an eighth of it, within bounds.
pub fn share_of_blocks(memory: Option<Bytes>) -> Bytes {
    share_of(memory, 8, 128 * MIB, 16 * GIB)
}

/// What a rebuild or a scrub may hold on a machine with so much memory: a sixteenth of it, within
/// bounds.
pub fn share_of_background(memory: Option<Bytes>) -> Bytes {
    share_of(memory, 16, 64 * MIB, 8 * GIB)
}

fn share_of(memory: Option<Bytes>, part: u64, least: u64, most: u64) -> Bytes {
    Bytes(memory.map_or(0, |memory| memory.0 / part / MIB * MIB).clamp(least, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_or_one_above_it_bounds_the_memory() {
        let dir = std::env::temp_dir().join(format!("stele-memory-{}", std::process::id()));
        let (proc, sys) = (dir.join("proc"), dir.join("sys"));
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(memory("self", &proc, &sys), None);
        write(&proc.join("meminfo"), "MemTotal:       8000000 kB\nMemFree: 1 kB\n");
        assert_eq!(memory("self", &proc, &sys), Some(Bytes(8_000_000 << 10)));
        write(&proc.join("self/cgroup"), "1:cpu:/other\n0::/system.slice/stele.service\n");
        assert_eq!(memory("self", &proc, &sys), Some(Bytes(8_000_000 << 10)));
        let group = sys.join("fs/cgroup/system.slice");
        write(&group.join("stele.service/memory.max"), "max\n");
        assert_eq!(memory("self", &proc, &sys), Some(Bytes(8_000_000 << 10)));
        write(&group.join("memory.max"), "2147483648\n");
        assert_eq!(memory("self", &proc, &sys), Some(Bytes(2 * GIB)));
        write(&group.join("stele.service/memory.max"), "1073741824\n");
        assert_eq!(memory("self", &proc, &sys), Some(Bytes(GIB)));
        write(&proc.join("77/cgroup"), "0::/system.slice\n");
        assert_eq!(memory("77", &proc, &sys), Some(Bytes(2 * GIB)));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn blocks_and_background_work_get_shares_of_the_memory_within_bounds() {
        let of = |memory: u64| share_of_blocks(Some(Bytes(memory))).0;
        assert_eq!(share_of_blocks(None), Bytes(128 * MIB));
        assert_eq!(of(512 * MIB), 128 * MIB);
        assert_eq!(of(24 * GIB + 12_345), 3 * GIB);
        assert_eq!(of(1024 * GIB), 16 * GIB);
        let of = |memory: u64| share_of_background(Some(Bytes(memory))).0;
        assert_eq!((of(512 * MIB), of(24 * GIB), of(1024 * GIB)), (64 * MIB, 1536 * MIB, 8 * GIB));
    }
}
