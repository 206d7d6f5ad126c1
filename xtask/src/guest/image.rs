//! The initial file system of the virtual machine: busybox, this program, their libraries, and
//! modules of the kernel.
//!
//! It is written as the kernel wants it (`cpio`, the format `newc`).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Done, find};

/// Modules that the client needs, with all that they need.
const MODULES: [&str; 10] = [
    "net/sunrpc",
    "net/dns_resolver",
    "net/core/failover.ko",
    "fs/nfs",
    "fs/nfs_common",
    "fs/lockd",
    "fs/fscache",
    "fs/netfs",
    "drivers/net",
    "drivers/virtio",
];
/// Of the folders above, left out.
const UNUSED: [&str; 3] = ["net/ethernet", "net/wireless", "xprtrdma"];

const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec /x guest --inside
";

pub fn write(image: &Path, kernel: &Path) -> Done<()> {
    let mut archive = Archive::default();
    let busybox = find("busybox").ok_or("busybox is not installed")?;
    let own = std::env::current_exe().map_err(|error| format!("cannot find this program's own path: {error}"))?;
    archive.add("init", INIT.as_bytes().to_vec(), 0o755);
    for (program, path) in [(&busybox, "bin/busybox"), (&own, "x")] {
        archive.add(path, read(program)?, 0o755);
        for library in libraries(program) {
            let path = library.display().to_string();
            archive.add(path.trim_start_matches('/'), read(&library)?, 0o755);
        }
    }
    modules(&mut archive, kernel)?;
    ["dev", "proc", "sys", "mnt"].into_iter().for_each(|folder| archive.folder(folder));
    let mut file = fs::File::create(image).map_err(|error| format!("cannot write {}: {error}", image.display()))?;
    file.write_all(&archive.bytes()).map_err(|error| format!("cannot write {}: {error}", image.display()))
}

fn read(path: &Path) -> Done<Vec<u8>> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// The libraries that a program loads, under the paths where it looks for them. None for a static
/// one.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let Ok(said) = Command::new("ldd").arg(program).output() else { return Vec::new() };
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let paths = said.lines().filter_map(|line| {
        let line = line.split_once("=> ").map_or(line, |(_, path)| path);
        line.split_whitespace().next().filter(|path| path.starts_with('/')).map(PathBuf::from)
    });
    paths.collect()
}

fn modules(archive: &mut Archive, kernel: &Path) -> Done<()> {
    let all = ["lib/modules", "usr/lib/modules"].into_iter().map(|path| kernel.join(path)).find(|path| path.is_dir());
    let all = all.ok_or("the kernel package has no modules")?;
    let versions = fs::read_dir(&all).map_err(|error| error.to_string())?.flatten().map(|entry| entry.path());
    let version = versions.into_iter().next().ok_or("the kernel package has no modules")?;
    let name = version.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for part in MODULES {
        gather(archive, &version.join("kernel").join(part), &format!("lib/modules/{name}/kernel/{part}"))?;
    }
    for list in ["modules.builtin", "modules.order"] {
        archive.add(&format!("lib/modules/{name}/{list}"), read(&version.join(list))?, 0o644);
    }
    Ok(())
}

fn gather(archive: &mut Archive, from: &Path, path: &str) -> Done<()> {
    if UNUSED.iter().any(|unused| path.contains(unused)) {
        return Ok(());
    }
    if !from.is_dir() {
        archive.add(path, read(from)?, 0o644);
        return Ok(());
    }
    for entry in fs::read_dir(from).map_err(|error| format!("cannot read {}: {error}", from.display()))?.flatten() {
        gather(archive, &entry.path(), &format!("{path}/{}", entry.file_name().to_string_lossy()))?;
    }
    Ok(())
}

/// Files by path, and the folders above them.
#[derive(Default)]
struct Archive {
    entries: BTreeMap<String, (Vec<u8>, u32)>,
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;

impl Archive {
    fn add(&mut self, path: &str, content: Vec<u8>, mode: u32) {
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
        self.entries.insert(path.to_owned(), (content, FILE | mode));
    }

    fn folder(&mut self, path: &str) {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let above = path.get(..end).unwrap_or(path).to_owned();
            self.entries.entry(above).or_insert((Vec::new(), FOLDER));
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let end = ("TRAILER!!!".to_owned(), (Vec::new(), 0));
        let all = self.entries.iter().chain([(&end.0, &end.1)]);
        for (number, (path, (content, mode))) in (1_u32..).zip(all) {
            let words = [number, *mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
            bytes.extend_from_slice(b"070701");
            words.iter().for_each(|word| bytes.extend_from_slice(format!("{word:08x}").as_bytes()));
            bytes.extend_from_slice(path.as_bytes());
            bytes.push(0);
            pad(&mut bytes);
            bytes.extend_from_slice(content);
            pad(&mut bytes);
        }
        bytes
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests;
