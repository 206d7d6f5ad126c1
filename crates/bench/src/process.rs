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

/// A process with all below it.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tree {
    /// Nanoseconds of CPU time of those that run, and of those that ended and were waited for. The
    /// kernel rounds the latter down to 10 ms for each process that waited.
    pub cpu_nanoseconds: u64,
    /// How many run.
    pub processes: usize,
}

impl Tree {
    pub fn of(process: u32) -> Tree {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let all: Vec<Stat> = entries
            .filter_map(|entry| {
                let number: u32 = entry.file_name().to_str()?.parse().ok()?;
                Stat::read(number, &fs::read_to_string(entry.path().join("stat")).ok()?)
            })
            .collect();
        let mut below: Vec<&Stat> = all.iter().filter(|stat| stat.process == process).collect();
        let mut at = 0;
        while let Some(parent) = below.get(at).map(|stat| stat.process) {
            below.extend(all.iter().filter(|stat| stat.parent == parent));
            at += 1;
        }
        let spent = |stat: &&Stat| Usage::of(stat.process).cpu_nanoseconds + stat.waited_for;
        Tree { cpu_nanoseconds: below.iter().map(spent).sum(), processes: below.len() }
    }
}

/// What a line of `/proc/PID/stat` says.
#[derive(PartialEq, Eq, Debug)]
struct Stat {
    process: u32,
    parent: u32,
    /// Nanoseconds of its children that ended and that it waited for.
    waited_for: u64,
}

impl Stat {
    /// Nanoseconds of a tick (USER_HZ), 100 a second with every kernel.
    const TICK: u64 = 10_000_000;

    fn read(process: u32, text: &str) -> Option<Stat> {
        // The name, in brackets, may hold any character.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let waited_for = (number(13)? + number(14)?) * Stat::TICK;
        Some(Stat { process, parent: u32::try_from(number(1)?).ok()?, waited_for })
    }
}

/// When a process began, in ticks of the kernel: another process of the same number began later.
/// None if it has ended, although its parent may not have waited for it yet.
pub fn began(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let runs = !matches!(fields.next()?, "Z" | "X");
    runs.then(|| fields.nth(18)?.parse().ok()).flatten()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_moves_no_field_of_a_process() {
        let fields = "S 7 1 1 0 -1 4194304 9 8 7 6 50 60 3 4 20 0 1 0 100 1000 1";
        for name in ["smbd", "a b) c", ") S 9 9"] {
            let stat = Stat::read(12, &format!("12 ({name}) {fields}\n"));
            assert_eq!(stat, Some(Stat { process: 12, parent: 7, waited_for: 7 * Stat::TICK }), "{name}");
        }
        assert_eq!(Stat::read(12, "12 (smbd) S 7"), None);
    }

    #[test]
    fn a_tree_counts_a_child_while_it_runs() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let tree = Tree::of(std::process::id());
        assert!(began(child.id()) > began(1) && tree.processes >= 2, "{tree:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(began(child.id()), None);
    }
}
