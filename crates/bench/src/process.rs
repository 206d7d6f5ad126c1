//! Resources of a process, and the machine's description, from /proc. Figures are 0 if /proc does
//! not give them.

use std::fs;

/// CPU time and memory of one process.
#[derive(Clone, Copy, Default, Debug)]
#[allow(dead_code)] // Read by the benches that start servers.
pub struct Usage {
    /// Nanoseconds of CPU time, user and kernel, over all living threads.
    pub cpu_nanoseconds: u64,
    /// Largest resident memory so far, in bytes.
    pub resident_peak_bytes: u64,
}

#[allow(dead_code)]
impl Usage {
    /// The usage of this process.
    pub fn own() -> Usage {
        Usage::of(std::process::id())
    }

    pub fn of(process: u32) -> Usage {
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let on_cpu = |thread: fs::DirEntry| -> Option<u64> {
            fs::read_to_string(thread.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok()
        };
        let peak = kilobytes(&process.to_string(), "VmHWM:");
        Usage { cpu_nanoseconds: threads.filter_map(on_cpu).sum(), resident_peak_bytes: peak }
    }
}

/// Memory of a process now that no file stands behind, in bytes.
pub fn anonymous(process: u32) -> u64 {
    kilobytes(&process.to_string(), "RssAnon:")
}

fn kilobytes(process: &str, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let found = status.lines().find_map(|line| line.strip_prefix(field));
    found.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Resident memory of this process now, in bytes.
pub fn resident() -> u64 {
    kilobytes("self", "VmRSS:")
}

/// The largest resident memory of this process counts from here on.
pub fn restart_peak() {
    // Without it the peak is that of the whole run: more than is true, never less.
    drop(fs::write("/proc/self/clear_refs", "5"));
}

/// The value behind a key of a file in /proc.
fn value(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Memory of this machine, in bytes.
pub fn machine_memory() -> u64 {
    let text = value("/proc/meminfo", "MemTotal").unwrap_or_default();
    text.split(' ').next().and_then(|kibibytes| kibibytes.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// One line for the head of a report: processor, CPUs, memory, kernel.
pub fn machine() -> String {
    let processor = value("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".into());
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{processor}, {cpus} CPUs, {} GiB, Linux {}", machine_memory() >> 30, kernel.trim())
}
