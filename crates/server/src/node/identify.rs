//! Names by which a person finds a drive: its serial number, its name under /dev/disk/by-id, the
//! light of its slot. File drives have none of these.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::failure::{Failure, Kind, Outcome, io_failure};

/// The names of one device.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Identity {
    pub serial: Option<String>,
    pub by_id: Option<PathBuf>,
}

/// The system's directories that describe devices.
#[derive(Clone, Debug)]
pub struct SystemDirectories {
    /// `/sys`.
    pub sys: PathBuf,
    /// `/dev/disk/by-id`.
    pub by_id: PathBuf,
}

impl Default for SystemDirectories {
    fn default() -> SystemDirectories {
        SystemDirectories { sys: "/sys".into(), by_id: "/dev/disk/by-id".into() }
    }
}

/// Files with a serial number, by kind of device: NVMe and some SCSI, virtio, then the device's own
/// report.
const SERIALS: [&str; 3] = ["device/serial", "serial", "device/vpd_pg80"];
/// Length of the header of a page in `vpd_pg80`.
const PAGE_HEAD: usize = 4;

/// A cache by device number: drives keep their names while they are attached.
#[derive(Default)]
pub struct Identities(Mutex<BTreeMap<(PathBuf, u64), Identity>>);

impl Identities {
    pub fn of(&self, path: &Path) -> Identity {
        let Some(device) = device_number(path) else { return Identity::default() };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = || {
            let system = SystemDirectories::default();
            let name = system.name_of(device);
            Identity { serial: name.as_deref().and_then(|name| system.serial(name)), by_id: system.by_id(path) }
        };
        known.entry((path.to_owned(), device)).or_insert_with(found).clone()
    }
}

/// `None` if the path names no block device.
fn device_number(path: &Path) -> Option<u64> {
    let metadata = std::fs::metadata(path).ok()?;
    metadata.file_type().is_block_device().then(|| metadata.rdev())
}

impl SystemDirectories {
    /// The kernel's name of a device, such as `sda`; for a partition, the name of its disk.
    fn name_of(&self, device: u64) -> Option<String> {
        let (major, minor) = (device >> 8 & 0xfff | device >> 32 & !0xfff, device & 0xff | device >> 12 & !0xff);
        let place = std::fs::canonicalize(self.sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
        let disk = if place.join("partition").exists() { place.parent()?.to_owned() } else { place };
        Some(disk.file_name()?.to_str()?.to_owned())
    }

    pub fn serial(&self, name: &str) -> Option<String> {
        let place = self.sys.join("block").join(name);
        SERIALS.iter().find_map(|file| {
            let bytes = std::fs::read(place.join(file)).ok()?;
            let text = if file.ends_with("vpd_pg80") { bytes.get(PAGE_HEAD..)? } else { &bytes[..] };
            let text = String::from_utf8_lossy(text);
            let text: String = text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned();
            (!text.is_empty()).then_some(text)
        })
    }

    /// The first name in order that leads to the same device. Names with the model come before bare
    /// numbers.
    pub fn by_id(&self, path: &Path) -> Option<PathBuf> {
        let device = std::fs::canonicalize(path).ok()?;
        let entries = std::fs::read_dir(&self.by_id).ok()?.flatten().map(|entry| entry.path());
        let same = entries.filter(|link| std::fs::canonicalize(link).is_ok_and(|to| to == device));
        let rank = |link: &PathBuf| {
            let name = link.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name.starts_with("wwn-") || name.starts_with("nvme-eui."), name)
        };
        same.min_by_key(rank)
    }

    /// Switches the light of the drive's slot on or off.
    pub fn locate(&self, name: &str, on: bool) -> Outcome<()> {
        let device = self.sys.join("block").join(name).join("device");
        let slots = std::fs::read_dir(&device).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_slot = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("enclosure_device:"))
        };
        let Some(light) = slots.filter(is_slot).map(|slot| slot.join("locate")).find(|light| light.exists()) else {
            return Err(no_light(name));
        };
        std::fs::write(&light, if on { "1" } else { "0" }).map_err(|error| not_switched(&light, &error))
    }
}

fn no_light(name: &str) -> Failure {
    Failure::missing(format!("{name} is in no enclosure slot with a light that the system knows of"))
        .next("find the drive by its serial number; `stele pool status` shows it")
}

/// The kernel lets only root switch a light.
fn not_switched(light: &Path, error: &std::io::Error) -> Failure {
    let failure = io_failure("switch", light, error);
    if failure.kind == Kind::Refused { failure.next("run the command as root") } else { failure }
}

/// Switches the light of the slot of the drive at the path.
pub fn locate(path: &Path, on: bool) -> Outcome<()> {
    let system = SystemDirectories::default();
    let name = device_number(path).and_then(|device| system.name_of(device));
    match name {
        Some(name) => system.locate(&name, on),
        None => Err(Failure::missing(format!("{} is not a block device, and has no light", path.display()))),
    }
}

#[cfg(test)]
mod tests;
