//! Where the unit tests keep their files.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes free there and in memory, of which the tests take a small part.
const ROOM: u64 = 8 << 30;
const SHARED_MEMORY: &str = "/dev/shm";
/// The number of the process follows.
const NAME: &str = "stele-tests-";

/// A directory in memory, removed when dropped. The tests wait for tens of thousands of flushes,
/// which take a disk longer than everything else they do.
pub struct Scratch(PathBuf);

impl Scratch {
    /// None: the caller chose a place, or memory has no room, or it does not take accesses that
    /// pass the page cache by, as it does since Linux 6.6. The tests then use the usual place.
    pub fn new() -> Option<Scratch> {
        let memory = Path::new(SHARED_MEMORY);
        let available = available(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
        if std::env::var_os("TMPDIR").is_some() || available.min(free(memory)?) < ROOM {
            return None;
        }
        remove_abandoned(memory);
        let scratch = Scratch::of(memory.join(format!("{NAME}{}", std::process::id())))?;
        takes_direct_accesses(&scratch.0.join("probe")).then_some(scratch)
    }

    /// A new directory; none where it cannot be made.
    pub fn of(path: PathBuf) -> Option<Scratch> {
        std::fs::create_dir(&path).ok()?;
        Some(Scratch(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("x: {} stays: {error}", self.0.display());
        }
    }
}

/// Removes what runs that were killed left. It would take memory until the next start.
fn remove_abandoned(memory: &Path) {
    let entries = std::fs::read_dir(memory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(NAME));
        if let Some(Ok(process)) = name.map(str::parse::<u32>)
            && !Path::new("/proc").join(process.to_string()).exists()
        {
            drop(std::fs::remove_dir_all(&path));
        }
    }
}

/// The bytes of memory that are available, as `/proc/meminfo` has them.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

fn free(place: &Path) -> Option<u64> {
    let said = Command::new("df").args(["--output=avail", "--block-size=1"]).arg(place).output().ok()?;
    String::from_utf8(said.stdout).ok()?.lines().nth(1)?.trim().parse().ok()
}

fn takes_direct_accesses(probe: &Path) -> bool {
    let mut file = std::ffi::OsString::from("of=");
    file.push(probe);
    let mut written = Command::new("dd");
    written.args(["if=/dev/zero", "bs=4096", "count=1", "oflag=direct"]).arg(file);
    let is_written = written.output().is_ok_and(|said| said.status.success());
    is_written && std::fs::remove_file(probe).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_that_is_available_is_read() {
        let text = "MemTotal:       24683944 kB\nMemFree:  1 kB\nMemAvailable:   21334000 kB\nBuffers: 5 kB\n";
        assert_eq!(available(text), Some(21_334_000 << 10));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        assert_eq!(available("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn a_scratch_directory_is_gone_when_it_is_dropped() {
        let path = std::env::temp_dir().join(format!("xtask-scratch-{}", std::process::id()));
        let scratch = Scratch::of(path.clone()).unwrap();
        assert!(free(&path) > Some(0) && Scratch::of(path.clone()).is_none());
        drop(scratch);
        assert!(!path.exists());
    }
    #[test]
    fn what_a_killed_run_left_is_removed() {
        let memory = std::env::temp_dir().join(format!("xtask-abandoned-{}", std::process::id()));
        let of = |process: &str| memory.join(format!("{NAME}{process}"));
        // No process has this number.
        let (own, gone, other) = (of(&std::process::id().to_string()), of("4294967295"), of("mine"));
        for path in [&own, &gone, &other] {
            std::fs::create_dir_all(path.join("drives")).unwrap();
        }
        remove_abandoned(&memory);
        assert_eq!([&own, &gone, &other].map(|path| path.exists()), [true, false, true]);
        std::fs::remove_dir_all(&memory).unwrap();
    }
}
