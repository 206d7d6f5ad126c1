//! A file or block device opened as a drive: created or opened, locked against a second opener, and
//! queried for its abilities. The ring carries out the transfers.
//!
//! Failure model: every error of the system is passed on with path and offset (see [`fault_of`]).
//! The digests of the array detect faults that the system does not report (rot, lost and
//! misdirected writes). A failed flush marks the drive as failed, since the system may report
//! success for the next flush although the pages are lost. No flush is answered as successful after
//! that. Through the page cache, only one flush of a drive is in the kernel at a time, so that a
//! second one cannot miss the error that the first has used up.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stele_ground::{BLOCK, Bytes, Duration};

use crate::system::Direct;
use crate::{Buffer, Geometry, MediaError, MediaFault, system};

mod fault;
mod lock;

pub(crate) use fault::failure;
pub use fault::fault_of;

/// The allocation of a new file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// No allocation at first: the file grows as it is written, and may meet a full file system.
    Sparse,
    /// Allocated, so that the file system cannot run full under the drive. The first write to a
    /// place still changes the file's map; the flush after it waits for the file system's journal.
    Reserved,
    /// Written with zeros: the slowest to create, and steady from the first write on.
    Written,
}

/// The kind of access, and the other users that it tolerates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads and writes. No other process may hold it, and a block device must not be mounted or
    /// otherwise in use.
    Exclusive,
    /// Reads only. Other readers may hold it, but no writer.
    ReadOnly,
    /// Reads only, without regard to other writers, for a look from outside. The content may change
    /// under it.
    Peek,
}

/// The way in which the ring carries out operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// On the reactor's own thread: the file lies in memory, so nothing waits. (io_uring would hand
    /// each operation to a kernel thread, which costs more than the copy.)
    Inline,
    /// With io_uring, or with threads if io_uring is refused.
    Ring,
}

/// An open, locked file or device. Attaching it to a ring makes it a drive.
#[derive(Debug)]
pub struct DriveFile {
    file: File,
    path: PathBuf,
    /// Where the drive begins in the file; not 0 only for parts of a file.
    base: u64,
    geometry: Geometry,
    access: Access,
    device: bool,
    way: Way,
    /// Whether transfers bypass the page cache, and the memory alignment that they then need.
    direct: bool,
    memory_alignment: usize,
    /// The abilities of the file system. An ability that proved missing is not tried again.
    pub(crate) can: Abilities,
    failed: AtomicBool,
    /// Held by a thread that flushes a buffered file, until it has recorded a failure.
    flushing: Mutex<()>,
    /// The lock on the file, common to all its parts.
    lock: Arc<Lock>,
}

/// The description that holds the file's lock. Closing would release the lock too, but a ring in
/// its teardown may keep the file open for a while.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[derive(Debug)]
pub(crate) struct Abilities {
    pub zero_range: AtomicBool,
    pub punch: AtomicBool,
    pub durable_write: AtomicBool,
}

/// The unit of offsets and lengths for files as drives: suits every file system and every device
/// below.
const FILE_BLOCK: u64 = BLOCK as u64;
/// Largest time to wait for the lock of a dead process. The kernel finishes the last operations of
/// a dead process gradually. On a machine with all processors busy, that has taken more than five
/// seconds.
const LINGER_MAX: Duration = Duration::from_secs(20);

/// The same limit for a device, where a holder cannot be told from a mount.
const DEVICE_LINGER_MAX: Duration = Duration::from_secs(1);

impl DriveFile {
    /// Creates a file of `size`, rounded down to whole blocks. The file survives a power cut right
    /// after. Refuses an existing path.
    pub fn create(path: impl AsRef<Path>, size: Bytes, space: Space) -> Result<DriveFile, MediaError> {
        let path = path.as_ref();
        let size = Bytes(size.0 - size.0 % FILE_BLOCK);
        if size.0 == 0 {
            let message = format!("{}: a drive needs at least {FILE_BLOCK} bytes", path.display());
            return Err(MediaError::new(MediaFault::Invalid, message));
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let message = format!("{}: exists already: open it, or remove it first", path.display());
                MediaError::new(MediaFault::Refused, message)
            }
            _ => failure(path, "cannot be created", &error),
        })?;
        let made = fill(&file, size, space).and_then(|()| sync_parent(path));
        if let Err(error) = made {
            // A file without its space must not look like a drive.
            let _ = std::fs::remove_file(path);
            return Err(failure(path, &format!("cannot get its {size}"), &error));
        }
        drop(file);
        DriveFile::open(path, Access::Exclusive)
    }

    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<DriveFile, MediaError> {
        let path = path.as_ref();
        let cannot = |error: io::Error| failure(path, "cannot be opened", &error);
        let metadata = std::fs::metadata(path).map_err(cannot)?;
        let device = metadata.file_type().is_block_device();
        if !device && !metadata.is_file() {
            let message = format!("{}: is neither a file nor a block device", path.display());
            return Err(MediaError::new(MediaFault::Invalid, message));
        }
        let (file, direct) = open_file(path, access, device)?;
        let metadata = file.metadata().map_err(cannot)?;
        lock::take(&file, path, &metadata, access, LINGER_MAX)?;
        let size = if device { system::device_size(&file).map_err(cannot)? } else { metadata.len() };
        let block = if device { system::sector_size(&file).map_err(cannot)? } else { FILE_BLOCK };
        if block > FILE_BLOCK || !block.is_power_of_two() || block < 512 {
            let message = format!("{}: has sectors of {block} bytes; 512 and 4096 are supported", path.display());
            return Err(MediaError::new(MediaFault::Invalid, message));
        }
        let geometry = Geometry { size: Bytes(size - size % block), block: Bytes(block) };
        if geometry.size.0 == 0 {
            let has = if size == 0 { "is empty".to_owned() } else { format!("has {size} bytes") };
            let message = format!("{}: {has}, and a drive needs at least {block} bytes", path.display());
            return Err(MediaError::new(MediaFault::Invalid, message));
        }
        let alignment = system::direct_alignment(&file).map_or(block as usize, |(memory, _)| memory.max(1));
        Ok(DriveFile {
            way: if !device && system::in_memory(&file) { Way::Inline } else { Way::Ring },
            lock: Arc::new(Lock(file.try_clone().map_err(cannot)?)),
            file,
            path: path.to_owned(),
            base: 0,
            geometry,
            access,
            device,
            direct,
            memory_alignment: alignment,
            can: Abilities {
                zero_range: true.into(),
                punch: true.into(),
                durable_write: uses_durable_writes(
                    direct,
                    durable_writes_pay(if device { metadata.rdev() } else { metadata.dev() }),
                )
                .into(),
            },
            failed: AtomicBool::new(false),
            flushing: Mutex::new(()),
        })
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Divides the file into parts, each a drive of its own, which reactors of their own may serve.
    /// `parts` gives start and length in bytes, multiples of the block, inside the file. The lock
    /// is held until the last part is dropped. Each part has a description of its own, so that the
    /// kernel reports a failed write-back to each of them.
    pub fn divide(self, parts: &[(u64, Bytes)]) -> Result<Vec<DriveFile>, MediaError> {
        let part = |(base, size): &(u64, Bytes)| {
            let inside = base.checked_add(size.0).is_some_and(|end| end <= self.geometry.size.0) && size.0 > 0;
            if !inside || !base.is_multiple_of(FILE_BLOCK) || !size.0.is_multiple_of(FILE_BLOCK) {
                let message = format!(
                    "{}: has {} and cannot give a part of {size} at {base}",
                    self.path.display(),
                    self.geometry.size
                );
                return Err(MediaError::new(MediaFault::Invalid, message));
            }
            let file = self.opened_again().map_err(|error| failure(&self.path, "cannot be opened again", &error))?;
            Ok(DriveFile {
                lock: Arc::clone(&self.lock),
                file,
                path: self.path.clone(),
                base: self.base + base,
                geometry: Geometry { size: *size, ..self.geometry },
                access: self.access,
                device: self.device,
                way: self.way,
                direct: self.direct,
                memory_alignment: self.memory_alignment,
                can: Abilities {
                    zero_range: true.into(),
                    punch: true.into(),
                    durable_write: self.can.durable_write.load(Ordering::Relaxed).into(),
                },
                failed: AtomicBool::new(false),
                flushing: Mutex::new(()),
            })
        };
        parts.iter().map(part).collect()
    }

    /// Reads at once, on the caller's thread, for a look before a ring has the drive.
    pub fn read_now(&self, at: u64, length: usize) -> Result<Buffer, MediaError> {
        use std::os::unix::fs::FileExt;
        let mut buffer = Buffer::zeroed(length);
        match self.file.read_exact_at(&mut buffer, self.base + at) {
            Ok(()) => Ok(buffer),
            Err(error) => Err(failure(&self.path, "cannot be read", &error)),
        }
    }

    /// Writes at once, as `read_now` reads, and makes it durable.
    pub fn write_now(&self, at: u64, data: &Buffer) -> Result<(), MediaError> {
        use std::os::unix::fs::FileExt;
        let written = self.file.write_all_at(data, self.base + at).and_then(|()| self.file.sync_data());
        written.map_err(|error| failure(&self.path, "cannot be written", &error))
    }

    /// A further description of the very file that is open, whatever its path names by now.
    fn opened_again(&self) -> io::Result<File> {
        let flags = if self.direct { libc::O_DIRECT } else { 0 };
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        OpenOptions::new().read(true).write(self.access == Access::Exclusive).custom_flags(flags).open(path)
    }

    /// Where the drive begins in its file.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub fn is_device(&self) -> bool {
        self.device
    }

    pub fn is_read_only(&self) -> bool {
        self.access != Access::Exclusive
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn way(&self) -> Way {
        self.way
    }

    /// Whether memory at this address and of this length can be transferred without a copy.
    pub(crate) fn takes(&self, piece: &[u8]) -> bool {
        !self.direct
            || (piece.as_ptr().addr().is_multiple_of(self.memory_alignment)
                && piece.len().is_multiple_of(self.geometry.block.0 as usize))
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Waits for the flush of another thread. Past the page cache, flushes need no turns: there is
    /// no write-back whose error one flush could take from another.
    pub(crate) fn flush_turn(&self) -> Option<MutexGuard<'_, ()>> {
        (!self.direct).then(|| self.flushing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

/// Whether a file that was opened with the flag for unbuffered access is transferred without the
/// page cache.
fn passes_cache(device: bool, in_memory: bool, direct: Direct) -> bool {
    device || !in_memory && direct != Direct::Buffered
}

/// Opens with a bypass of the page cache if the file system allows it; the second value tells.
fn open_file(path: &Path, access: Access, device: bool) -> Result<(File, bool), MediaError> {
    let write = access == Access::Exclusive;
    let in_use = if device && write { libc::O_EXCL } else { 0 };
    let since = system::now();
    let open = |flags| loop {
        let opened = OpenOptions::new().read(true).write(write).custom_flags(flags | in_use).open(path);
        match opened {
            // A process that has just died holds the device until the kernel has finished its last
            // operations.
            Err(error)
                if in_use != 0
                    && error.raw_os_error() == Some(libc::EBUSY)
                    && system::now().since(since) < DEVICE_LINGER_MAX =>
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => break other,
        }
    };
    let explain = |error: io::Error| {
        if device && error.raw_os_error() == Some(libc::EBUSY) {
            let message = format!(
                "{}: the device is mounted or in use: unmount it, or choose another (lsblk shows who uses it)",
                path.display()
            );
            return MediaError::new(MediaFault::Refused, message);
        }
        failure(path, "cannot be opened", &error)
    };
    match open(libc::O_DIRECT) {
        // Newer kernels accept the flag on tmpfs, which has no page cache to bypass. The node of a
        // device lies on tmpfs, too.
        Ok(file) if passes_cache(device, system::in_memory(&file), system::direct(&file)) => Ok((file, true)),
        Ok(file) if system::in_memory(&file) => Ok((file, false)),
        // Opened without the flag, so that the drive counts as buffered and gets no durable writes
        // (see `uses_durable_writes`).
        Ok(_) => open(0).map(|file| (file, false)).map_err(explain),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(0).map(|file| (file, false)).map_err(explain),
        Err(error) => Err(explain(error)),
    }
}

fn fill(file: &File, size: Bytes, space: Space) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    file.set_len(size.0)?;
    if space == Space::Reserved || space == Space::Written {
        match system::allocate(file, 0, 0, size.0) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            other => other?,
        }
    }
    if space == Space::Written {
        let zeros = vec![0; 1 << 20];
        let mut at = 0;
        while at < size.0 {
            let length = (size.0 - at).min(zeros.len() as u64);
            file.write_all_at(&zeros[..length as usize], at)?;
            at += length;
        }
    }
    file.sync_all()
}

/// Makes the directory durable, and thereby the file's name.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Through the page cache, a durable write may report the failed write-back of an earlier write,
/// and a repeated one then succeeds. There a write and a flush are two steps, so that the failure
/// is that of the flush.
pub(crate) fn uses_durable_writes(direct: bool, pay: bool) -> bool {
    direct && pay
}

/// Whether one durable write (RWF_DSYNC) is faster than a write and an fdatasync. It is, if the
/// device writes through or has forced unit access. Otherwise the kernel completes an unbuffered
/// durable write from a work queue. On a busy machine that measured five to ten times slower than
/// the two operations (`drive_rates`, depth 1, io_uring on virtio and ext4; on threads there is no
/// difference).
fn durable_writes_pay(device: u64) -> bool {
    let place = format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device));
    // The queue of a partition is one level up.
    let ask = |name: &str| {
        let read = |queue: &str| std::fs::read_to_string(format!("{place}/{queue}/{name}"));
        read("queue").or_else(|_| read("../queue")).unwrap_or_default()
    };
    ask("fua").trim() == "1" || ask("write_cache").trim() == "write through"
}

#[cfg(test)]
pub(crate) mod tests;
