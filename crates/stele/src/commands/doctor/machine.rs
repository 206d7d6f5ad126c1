//! The machine: memory, kernel, clocks, limits, and how the drives are attached.

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stele_ground::{Bytes, counted_are};
use stele_media::system::{self, EventFd};
use stele_media::{Engine, Ring};
use stele_server::config::machine::BESIDE_CACHES;
use stele_server::config::{Config, Site};
use stele_server::failure::READ_ONLY_NEXT;
use stele_server::serving::open_files;
use tokio::net::UnixStream;

use super::mounts::is_read_only;
use super::{Finding, Machine, Verdict};

/// Clock sources that the processor can read without a system call, or about as fast.
const QUICK_CLOCKS: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "riscv_clocksource"];

fn line(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

pub fn memory(machine: &Machine, config: Option<&Config>, server: Option<i32>) -> Finding {
    let whole = stele_server::config::machine::memory(&folder(server), &machine.proc, &machine.sys);
    let Some(Bytes(whole)) = whole else { return Finding::unknown("memory", "/proc/meminfo") };
    let usual = stele_server::config::Memory::default();
    let memory = config.map_or(&usual, |config| &config.memory);
    let caches = memory.caches(Some(Bytes(whole))).0;
    let needed = caches.saturating_add(BESIDE_CACHES);
    let told =
        format!("{} of memory; caches of {} and the rest take up to {}", Bytes(whole), Bytes(caches), Bytes(needed));
    match () {
        () if needed > whole => {
            Finding::new("memory", Verdict::Wrong, told, "make the sizes under [memory] smaller, or add memory")
        }
        () if needed > whole / 4 * 3 => Finding::new(
            "memory",
            Verdict::Warning,
            told,
            "leave a quarter of the memory to the system: make the sizes under [memory] smaller, or add memory",
        ),
        () => Finding::good("memory", told),
    }
}

pub fn io_uring(machine: &Machine) -> Finding {
    let Ok(bell) = EventFd::new() else { return Finding::unknown("io-uring", "io_uring") };
    if Ring::new(Arc::new(bell), Engine::Best).engine() == "io_uring" {
        return Finding::good("io-uring", "the kernel lets this user use io_uring");
    }
    let why = match line(&machine.proc.join("sys/kernel/io_uring_disabled")).as_deref() {
        Some("1") => "the kernel keeps io_uring for a group",
        Some("2") => "the kernel is told to refuse io_uring",
        _ => "io_uring is refused: an old kernel, a container's filter, or no locked memory",
    };
    let next =
        "set the sysctl kernel.io_uring_disabled to 0, or allow io_uring in the container; threads are used instead";
    Finding::new("io-uring", Verdict::Warning, format!("{why}; drives are slower on threads"), next)
}

pub fn clock_source(machine: &Machine) -> Finding {
    let folder = machine.sys.join("devices/system/clocksource/clocksource0");
    let Some(source) = line(&folder.join("current_clocksource")) else {
        return Finding::unknown("clock-source", "the clock source");
    };
    if QUICK_CLOCKS.contains(&source.as_str()) {
        return Finding::good("clock-source", format!("{source}: the time is read without leaving the processor"));
    }
    let others = line(&folder.join("available_clocksource")).unwrap_or_default();
    let next = format!("boot with clocksource=tsc tsc=reliable if the hardware has it; available: {others}");
    let message = format!("{source}: every reading of the time is slow, and each operation reads it");
    Finding::new("clock-source", Verdict::Warning, message, next)
}

pub fn clock_set() -> Finding {
    match system::clock_is_synchronised() {
        Some(true) => Finding::good("clock", "something keeps the clock right"),
        Some(false) => Finding::new(
            "clock",
            Verdict::Warning,
            "nothing keeps the clock right: retention counts from it, and a step freezes expiry",
            "run an NTP client such as chrony or systemd-timesyncd",
        ),
        None => Finding::unknown("clock", "whether the clock is kept right"),
    }
}

/// The process of the server that answers commands of this data directory.
pub async fn server(site: &Site) -> Option<i32> {
    let socket = UnixStream::connect(&site.socket()).await.ok()?;
    // 0: it runs in a container of its own.
    socket.peer_cred().ok()?.pid().filter(|process| *process > 0)
}

/// The folder in `/proc` of the server that runs, else that of this process: a server may have the
/// same limits.
fn folder(server: Option<i32>) -> String {
    server.map_or("self".to_owned(), |process| process.to_string())
}

/// The limits of the server that runs, else of this process.
pub fn limits(machine: &Machine, config: Option<&Config>, server: Option<i32>) -> Vec<Finding> {
    let of = server.map(|process| format!(" in the server (process {process})")).unwrap_or_default();
    let text = std::fs::read_to_string(machine.proc.join(folder(server)).join("limits")).unwrap_or_default();
    // `at`: 0 is the limit that holds, and 1 the one up to which a process may raise it.
    let limit = |name: &str, at: usize| -> Option<u64> {
        let word = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().nth(at)?;
        if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() }
    };
    let amount = |limit: u64| if limit == u64::MAX { "unlimited".to_owned() } else { Bytes(limit).to_string() };
    let connections = config
        .map_or(1024 + 256, |config| u64::from(config.s3.connections_max) + u64::from(config.block.connections_max));
    let drives = config.map_or(0, |config| config.pool.drives.len() as u64);
    let wanted = open_files::needed(connections, drives);
    // A server raises this limit when it starts; one that runs has done so.
    let files = match limit("Max open files", usize::from(server.is_none())) {
        None => Finding::unknown("open-files", "the limit of open files"),
        Some(limit) if limit < wanted => Finding::new(
            "open-files",
            Verdict::Warning,
            format!("{limit} files may be open{of}, and {wanted} may be needed for {connections} connections"),
            "raise LimitNOFILE of the service, or `ulimit -n`, or lower connections_max",
        ),
        Some(limit) => Finding::good("open-files", format!("{limit} files may be open{of}, {wanted} may be needed")),
    };
    let locked = match limit("Max locked memory", 0) {
        None => Finding::unknown("memlock", "the limit of locked memory"),
        Some(limit) if limit < 64 << 20 && stele_server::node::own_uid() != 0 => Finding::new(
            "memlock",
            Verdict::Note,
            format!(
                "{} of memory may be locked{of}; kernels before 5.12 count the rings of io_uring there",
                amount(limit)
            ),
            "raise LimitMEMLOCK of the service, or `ulimit -l`, if io_uring is refused",
        ),
        Some(limit) => Finding::good("memlock", format!("{} of memory may be locked{of}", amount(limit))),
    };
    vec![files, locked]
}

/// The device below a drive of the configuration.
struct Ground {
    path: PathBuf,
    enclosure: Option<u32>,
    /// The device itself, or the device of the file system that holds the file.
    device: Option<(u64, u64)>,
    is_device: bool,
    readable: bool,
}

pub fn drives(machine: &Machine, site: &Site, config: &Config) -> Vec<Finding> {
    if config.pool.drives.is_empty() {
        let next = "make a pool with `stele pool create`";
        return vec![Finding::new("drives", Verdict::Note, "the configuration names no drives", next)];
    }
    let grounds: Vec<Ground> = config
        .pool
        .drives
        .iter()
        .map(|drive| {
            let place = drive.placed(site);
            let about = std::fs::metadata(&place.path).ok();
            let is_device = about.as_ref().is_some_and(|about| about.file_type().is_block_device());
            let number = about.map(|about| if is_device { about.rdev() } else { about.dev() });
            let readable = can_be_drive(&place.path);
            let device = number.map(|number| (system::major(number), system::minor(number)));
            Ground { path: place.path, enclosure: place.enclosure, device, is_device, readable }
        })
        .collect();
    let mut findings = Vec::new();
    let names = |grounds: &[&Ground]| {
        grounds.iter().map(|ground| ground.path.display().to_string()).collect::<Vec<_>>().join(", ")
    };
    let missing: Vec<&Ground> = grounds.iter().filter(|ground| !ground.readable).collect();
    findings.push(match missing.is_empty() {
        true => {
            let message = format!("{} there and can be opened", counted_are(grounds.len() as u64, "drive"));
            Finding::good("drives", message)
        }
        false => Finding::new(
            "drives",
            Verdict::Wrong,
            format!(
                "{} of {} drives are not there, are empty, or cannot be opened by this user: {}",
                missing.len(),
                grounds.len(),
                names(&missing)
            ),
            "run the doctor as the user that the server runs as; where they are gone: return them, or `stele pool replace`",
        ),
    });
    let files = grounds.iter().filter(|ground| ground.readable && !ground.is_device);
    let read_only: Vec<&Ground> = files.filter(|file| is_read_only(machine, &file.path) == Some(true)).collect();
    if !read_only.is_empty() {
        let message = format!(
            "{} of {} drives {} on a file system that is mounted read-only: {}",
            read_only.len(),
            grounds.len(),
            if read_only.len() == 1 { "lies" } else { "lie" },
            names(&read_only)
        );
        findings.push(Finding::new("drives", Verdict::Wrong, message, READ_ONLY_NEXT));
    }
    findings.extend(one_path(machine, &grounds));
    findings.push(caches(machine, &grounds));
    findings
}

/// Whether a path leads to a file or block device that can be read and is not empty. A disk that
/// dies may have no size any more.
fn can_be_drive(path: &Path) -> bool {
    let Ok(mut file) = std::fs::File::open(path) else { return false };
    let kind = file.metadata().map(|about| about.file_type());
    kind.is_ok_and(|kind| kind.is_file() || kind.is_block_device())
        && file.seek(SeekFrom::End(0)).is_ok_and(|size| size > 0)
}

/// Finds drives that fail together although they have different enclosures.
fn one_path(machine: &Machine, grounds: &[Ground]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut disks: BTreeMap<String, Vec<&Ground>> = BTreeMap::new();
    let mut controllers: BTreeMap<String, Vec<&Ground>> = BTreeMap::new();
    for ground in grounds {
        let Some((major, minor)) = ground.device else { continue };
        let entry = machine.sys.join(format!("dev/block/{major}:{minor}"));
        let place = std::fs::canonicalize(&entry).unwrap_or(entry);
        // A partition lies within its disk.
        let disk = if place.join("partition").exists() { place.parent().unwrap_or(&place).to_owned() } else { place };
        disks.entry(disk.display().to_string()).or_default().push(ground);
        if let Some(controller) = controller_of(&disk) {
            controllers.entry(controller).or_default().push(ground);
        }
    }
    let shared = disks.values().filter(|grounds| grounds.len() > 1).max_by_key(|grounds| grounds.len());
    findings.push(match shared {
        Some(together) => {
            let files = if together.iter().all(|ground| !ground.is_device) { "are files on" } else { "lie on" };
            let message =
                format!("{} of {} drives {files} one device: they are lost together", together.len(), grounds.len());
            Finding::new(
                "shared-device",
                Verdict::Warning,
                message,
                "for more than trials, give each drive a device of its own",
            )
        }
        None => Finding::good("shared-device", "no two drives lie on one device"),
    });
    let enclosures: std::collections::BTreeSet<Option<u32>> = grounds.iter().map(|ground| ground.enclosure).collect();
    if let Some((controller, together)) = controllers.iter().next()
        && together.len() == grounds.len()
        && controllers.len() == 1
        && disks.len() > 1
        && enclosures.len() > 1
    {
        let message = format!(
            "all {} drives, of {} enclosures, hang on one controller ({controller}): it is a failure domain that the pool does not know",
            grounds.len(),
            enclosures.len()
        );
        findings.push(Finding::new(
            "one-path",
            Verdict::Warning,
            message,
            "spread the enclosures over two controllers, or two paths",
        ));
    } else if disks.len() > 1 {
        findings.push(Finding::good("one-path", "the drives do not all hang on one controller, or need not tell it"));
    }
    findings
}

/// The last PCI device on the way to a disk.
pub(super) fn controller_of(disk: &Path) -> Option<String> {
    let is_pci = |name: &str| name.len() >= 12 && name.as_bytes().get(4) == Some(&b':') && name.contains('.');
    let mut names = disk.components().filter_map(|part| part.as_os_str().to_str());
    names.rfind(|name| is_pci(name)).map(str::to_owned)
}

fn caches(machine: &Machine, grounds: &[Ground]) -> Finding {
    let mut volatile = Vec::new();
    let mut known = 0;
    for ground in grounds {
        let Some((major, minor)) = ground.device else { continue };
        let entry = machine.sys.join(format!("dev/block/{major}:{minor}"));
        let queue = [entry.join("queue/write_cache"), entry.join("../queue/write_cache")];
        if let Some(mode) = queue.iter().find_map(|path| line(path)) {
            known += 1;
            if mode == "write back" {
                volatile.push(ground.path.display().to_string());
            }
        }
    }
    match (known, volatile.len()) {
        (0, _) => Finding::unknown("write-cache", "whether the drives have volatile write caches"),
        (_, 0) => Finding::good("write-cache", "no drive keeps writes in a volatile cache"),
        (_, count) => Finding::new(
            "write-cache",
            Verdict::Note,
            format!(
                "{count} of {} drives have volatile write caches, which are flushed before anything is acknowledged",
                grounds.len()
            ),
            "nothing, if the drives obey flushes; drives with protection against power loss answer faster, and consumer drives that lie lose data",
        ),
    }
}

/// Whether the program that reads SMART reports is installed.
pub fn smart() -> Finding {
    let program = stele_server::node::smart::PROGRAM;
    let folders = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&folders).any(|folder| folder.join(program).is_file()) {
        true => Finding::good("smart", format!("{program} is installed: drives are asked how they are")),
        false => Finding::new(
            "smart",
            Verdict::Note,
            format!("{program} is not installed: what drives say of themselves (SMART) is not known"),
            "apt-get install smartmontools",
        ),
    }
}
