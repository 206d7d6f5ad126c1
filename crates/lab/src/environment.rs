//! The machine and the target as a report states them, from /proc and /sys. What cannot be found is
//! left out.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use stele_ground::Bytes;

/// Names and values, in the order in which a report prints them.
pub fn capture(target: Option<&Path>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()) {
            found.push((name.to_owned(), value));
        }
    };
    add("processor", value("/proc/cpuinfo", "model name", ':'));
    add("processors", Some(std::thread::available_parallelism().map_or(0, usize::from).to_string()));
    add("memory", value("/proc/meminfo", "MemTotal", ':'));
    add("kernel", fs::read_to_string("/proc/sys/kernel/osrelease").ok());
    add("system", value("/etc/os-release", "PRETTY_NAME", '=').map(|name| name.trim_matches('"').to_owned()));
    add("clock", fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").ok());
    if let Some(target) = target {
        let device = number_of(target);
        add("mounted as", mount_of(target));
        let sectors = device.as_ref().and_then(|device| sysfs(device, "size")?.trim().parse::<u64>().ok());
        add("device size", sectors.and_then(|sectors| Some(Bytes(sectors.checked_mul(512)?).to_string())));
        for (name, path) in [
            ("device", "device/model"),
            ("firmware", "device/firmware_rev"),
            ("revision", "device/rev"),
            ("serial", "device/serial"),
            ("rotational", "queue/rotational"),
            ("scheduler", "queue/scheduler"),
            ("write cache", "queue/write_cache"),
        ] {
            add(name, device.as_ref().and_then(|device| sysfs(device, path)));
        }
        add("temperature", device.as_ref().and_then(|device| temperature(device)));
    }
    found
}

/// What may be taken without something else being swapped out.
pub fn memory_available() -> Option<Bytes> {
    bytes(&value("/proc/meminfo", "MemAvailable", ':')?)
}

/// Of a size as the kernel writes it: `24684096 kB`.
pub fn bytes(text: &str) -> Option<Bytes> {
    let count: u64 = text.strip_suffix("kB")?.trim().parse().ok()?;
    count.checked_mul(1024).map(Bytes)
}

/// A captured value for a reader: sizes of the kernel in a unit that fits.
pub fn said(value: &str) -> String {
    bytes(value).map_or_else(|| value.to_owned(), |bytes| bytes.to_string())
}

fn value(path: &str, key: &str, between: char) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(between).map(|(_, value)| value.trim().to_owned())
}

/// Major and minor number of the block device that it is, or that it lies on.
fn number_of(target: &Path) -> Option<String> {
    let found = fs::metadata(target).ok()?;
    let number = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    Some(format!("{}:{}", libc::major(number), libc::minor(number)))
}

/// Of the device, or where it is a partition of the whole one.
fn sysfs(device: &str, path: &str) -> Option<String> {
    let base = format!("/sys/dev/block/{device}");
    fs::read_to_string(format!("{base}/{path}")).or_else(|_| fs::read_to_string(format!("{base}/../{path}"))).ok()
}

/// In degrees, as the kernel's sensor of the drive says it (NVMe, and SATA where `drivetemp` is
/// loaded).
fn temperature(device: &str) -> Option<String> {
    // A partition's device is one directory up.
    let sensors = ["device", "../device"].map(|place| format!("/sys/dev/block/{device}/{place}"));
    let found = sensors.iter().flat_map(|place| [place.clone(), format!("{place}/hwmon")]);
    let entries = found.filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    let inputs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("hwmon"));
    let thousandths = inputs.filter_map(|entry| fs::read_to_string(entry.path().join("temp1_input")).ok());
    let degrees = thousandths.filter_map(|text| text.trim().parse::<i64>().ok()).map(|thousandths| thousandths / 1000);
    degrees.map(|degrees| format!("{degrees} degrees Celsius when it began")).next()
}

/// File system, options and device of the mount that holds it.
fn mount_of(target: &Path) -> Option<String> {
    let path = fs::canonicalize(target).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let holds = |line: &&str| line.split(' ').nth(1).is_some_and(|point| path.starts_with(point));
    let line = mounts.lines().filter(holds).max_by_key(|line| line.split(' ').nth(1).map_or(0, str::len))?;
    let words: Vec<&str> = line.split(' ').collect();
    let [device, point, kind, options, ..] = words.as_slice() else { return None };
    Some(format!("{kind} on {device} at {point} ({options})"))
}
