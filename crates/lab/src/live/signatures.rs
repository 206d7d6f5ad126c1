//! What a file or device holds that is not the laboratory's, by what each kind of content has at a
//! place of its own. The kinds are file systems, partition tables, volumes of LVM, encrypted
//! volumes, members of Linux arrays, archives, databases and images of disks.
//!
//! A file of the laboratory is full of random bytes, so two bytes alone prove nothing: one file in
//! 65,536 has them. Where a kind has no longer mark, what must hold around it is looked at too.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use stele_array::label;
use stele_media::Buffer;

use crate::error::LabError;

/// Bytes at the beginning, and at the end, in which marks are looked for.
const HEAD: u64 = 256 << 10;
const TAIL: u64 = 128 << 10;

type Mark = (usize, &'static [u8], &'static str);

/// Marks that are long enough by themselves, from the beginning.
const AT_HEAD: &[Mark] = &[
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (0, b"XFSB", "a file system (XFS)"),
    (0x10040, b"_BHRfS_M", "a file system (btrfs)"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "a file system (F2FS)"),
    (4120, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca], "a file system (bcachefs)"),
    (3, b"NTFS    ", "a file system (NTFS)"),
    (3, b"EXFAT   ", "a file system (exFAT)"),
    (54, b"FAT1", "a file system (FAT)"),
    (82, b"FAT32   ", "a file system (FAT)"),
    (0, b"hsqs", "a file system (squashfs)"),
    (32_769, b"CD001", "a file system (ISO 9660)"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"LABELONE", "a volume of LVM"),
    (512, b"LABELONE", "a volume of LVM"),
    (1024, b"LABELONE", "a volume of LVM"),
    (1536, b"LABELONE", "a volume of LVM"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux array"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux array"),
    (131_072, &[0x0c, 0xb1, 0xba, 0x00], "a member of a ZFS pool"),
    (257, b"ustar", "an archive (tar)"),
    (0, &[0x1f, 0x8b, 0x08, 0x00], "compressed data (gzip)"),
    (0, &[0x1f, 0x8b, 0x08, 0x08], "compressed data (gzip)"),
    (0, &[0xfd, b'7', b'z', b'X', b'Z', 0], "compressed data (xz)"),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], "compressed data (zstd)"),
    (0, b"PK\x03\x04", "an archive (zip)"),
    (0, b"SQLite format 3\0", "a database (SQLite)"),
    (0, b"QFI\xfb", "an image of a disk (qcow2)"),
];

/// From the end.
const AT_TAIL: &[Mark] = &[
    (512, b"EFI PART", "a partition table (GPT)"),
    (8192, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux array"),
    (65_536, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a Linux array"),
];

fn has((at, magic, _): &Mark, bytes: &[u8]) -> bool {
    bytes.get(*at..*at + magic.len()) == Some(*magic)
}

/// What its head and tail say that it is.
fn recognised(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    let at_head = AT_HEAD.iter().find(|mark| has(mark, head));
    let at_tail = || {
        AT_TAIL.iter().find(|(from_end, magic, _)| {
            tail.len().checked_sub(*from_end).is_some_and(|at| tail.get(at..at + magic.len()) == Some(*magic))
        })
    };
    let long = at_head.or_else(at_tail).map(|(_, _, name)| *name);
    long.or_else(|| is_ext(head).then_some("a file system (ext2, ext3 or ext4)"))
        .or_else(|| is_partitioned(head).then_some("a partition table (MBR)"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(u32::MAX, u32::from_le_bytes)
}

/// The superblock of ext has two bytes of a mark, and sizes of blocks and revisions that are small
/// numbers.
fn is_ext(head: &[u8]) -> bool {
    head.get(0x438..0x43a) == Some(&[0x53, 0xef]) && word(head, 0x418) <= 6 && word(head, 0x44c) <= 1
}

/// Two bytes of a mark, and four entries that are either in use, active or empty, one of them not
/// empty.
fn is_partitioned(head: &[u8]) -> bool {
    let entry = |number: usize| head.get(446 + 16 * number..462 + 16 * number);
    let entries: Vec<&[u8]> = (0..4).filter_map(entry).collect();
    let sound = entries.iter().all(|entry| matches!(entry.first(), Some(0 | 0x80)));
    let used = entries.iter().any(|entry| entry.get(4).is_some_and(|kind| *kind != 0));
    head.get(510..512) == Some(&[0x55, 0xaa]) && sound && used
}

/// What a device holds; none where it is empty as far as was looked.
pub fn content_of(file: &File, size: u64) -> io::Result<Option<&'static str>> {
    let (head, tail) = ends(file, size)?;
    let unknown = || head.iter().any(|byte| *byte != 0).then_some("data of an unknown kind");
    Ok(recognised(&head, &tail).or_else(unknown))
}

/// What a file or device holds, if that is of a known kind.
pub fn known_content(file: &File, size: u64) -> io::Result<Option<&'static str>> {
    let (head, tail) = ends(file, size)?;
    Ok(recognised(&head, &tail))
}

/// In whole blocks of aligned memory, since a device may be open past the page cache.
fn ends(file: &File, size: u64) -> io::Result<(Buffer, Buffer)> {
    let whole = size / 4096 * 4096;
    let read = |at: u64, length: u64| -> io::Result<Buffer> {
        let mut bytes = Buffer::zeroed(length as usize);
        let _ = file.read_at(&mut bytes[..], at)?;
        Ok(bytes)
    };
    // The end of what is no multiple of a block is not where a device would have it.
    let tail = TAIL.min(whole);
    Ok((read(0, HEAD.min(whole))?, read(whole - tail, tail)?))
}

/// Refuses a file that holds something that is recognised, even if the laboratory made the file.
pub fn refuse(path: &Path, size: u64) -> Result<(), LabError> {
    let cannot = |error: io::Error| LabError::of(&error, "cannot be read", path);
    let file = OpenOptions::new().read(true).open(path).map_err(cannot)?;
    match known_content(&file, size).map_err(cannot)? {
        Some(found) => Err(LabError::Refused(format!(
            "{}: holds {found}; name a file that does not exist, or let it be written over with --destroy",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// The loop device that shows this file, if one does.
pub fn loop_device_of(file: &Metadata, blocks: &Path) -> Option<String> {
    for entry in std::fs::read_dir(blocks).ok()?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(backing) = std::fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let Ok(backing) = std::fs::metadata(backing.trim_end()) else { continue };
        if (backing.dev(), backing.ino()) == (file.dev(), file.ino()) {
            return Some(format!("/dev/{name}"));
        }
    }
    None
}

/// The partition of a device that carries the label of a pool, if one does: writing over the device
/// writes over that drive. `devices` is the kernel's list of block devices, `nodes` where their
/// files are.
pub fn labelled_partition(device: &Path, devices: &Path, nodes: &Path) -> Option<PathBuf> {
    let device = device.canonicalize().ok()?;
    let entries = std::fs::read_dir(devices.join(device.file_name()?)).ok()?.flatten();
    let partitions = entries.filter(|entry| entry.path().join("partition").exists());
    partitions.map(|entry| nodes.join(entry.file_name())).find(|partition| is_labelled(partition).unwrap_or(false))
}

/// Refuses a device one of whose partitions is a drive of a pool.
pub fn refuse_labelled_partition(device: &Path) -> Result<(), LabError> {
    match labelled_partition(device, Path::new("/sys/class/block"), Path::new("/dev")) {
        Some(partition) => Err(LabError::Refused(format!(
            "{}: its partition {} carries the label of a Stele pool; a drive that has left its pool for good is free \
             after `stele drive wipe {}`",
            device.display(),
            partition.display(),
            partition.display()
        ))),
        None => Ok(()),
    }
}

fn is_labelled(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    for at in label::places(size) {
        let mut block = [0; 512];
        if file.read_exact_at(&mut block, at).is_ok() && label::is_label(&block) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;
