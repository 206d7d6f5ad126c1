//! Files and block devices of this machine: opened without harming anything, and made ready.
//!
//! What writes goes only to a file that the laboratory made itself, or to what the caller says may
//! be destroyed. A device that holds a mounted file system is refused in any case: the kernel does
//! not let it be opened alone. So is a drive of a pool, by its labels, and whatever another process
//! has locked, as a running server has its drives.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration as WallDuration;

use stele_array::label;
use stele_ground::{Bytes, MIB};
use stele_media::{Buffer, system};

use super::content::Content;
use super::signatures;
use super::system_place;
use super::target::{AccessMethod, Filling, Opening, Ready};
use super::versions::Versions;
use crate::error::LabError;

/// The mark on files that the laboratory made, see [`Mark`].
const MARK: &str = "user.stele.lab";

/// How far the laboratory filled a file of its own, with which seed where all of it can be checked,
/// how it compresses, and how it was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    filled: u64,
    checked: Option<u64>,
    /// See [`Content::ratios`]; none in the mark of a former version.
    ratios: Option<(u32, u32)>,
    left: Left,
}

/// What the mark says of the last run that wrote. A copy over the file keeps its mark, so the time
/// of the last change tells what others wrote into it since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// Nothing: the mark of a former version.
    Unknown,
    /// It writes, or was killed.
    InUse,
    /// When the file was changed last: nanoseconds since 1970.
    Changed(i128),
}

impl Left {
    fn of(metadata: &std::fs::Metadata) -> Left {
        Left::Changed(i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()))
    }
}

impl Mark {
    /// Of a file of which it is not known how far it is filled.
    const NEW: Mark = Mark { filled: 0, checked: None, ratios: None, left: Left::Unknown };

    fn of(file: &File) -> Option<Mark> {
        Mark::parse(&system::attribute(file, MARK)?)
    }

    /// `FILLED`, `FILLED SEED` or `FILLED SEED COMPRESS DEDUPE` of former versions, or one word
    /// more: `+` in use, or the time of the last change. `-` is no seed.
    fn parse(text: &str) -> Option<Mark> {
        let mut words = text.split(' ');
        let filled = words.next()?.parse().ok()?;
        let checked = words.next().and_then(|word| word.parse().ok());
        let mut percent = || words.next()?.parse().ok();
        let ratios = percent().zip(percent());
        let left = match words.next() {
            Some("+") => Left::InUse,
            Some(word) => word.parse().map_or(Left::Unknown, Left::Changed),
            None => Left::Unknown,
        };
        Some(Mark { filled, checked, ratios, left })
    }

    fn text(self) -> String {
        let Mark { filled, checked, ratios, left } = self;
        let checked = checked.map_or("-".to_owned(), |seed| seed.to_string());
        let left = match left {
            Left::Unknown => String::new(),
            Left::InUse => " +".to_owned(),
            Left::Changed(when) => format!(" {when}"),
        };
        ratios.map_or(filled.to_string(), |(compress, dedupe)| format!("{filled} {checked} {compress} {dedupe}{left}"))
    }

    /// Where marks cannot be kept the file is used this once, and needs --destroy the next time.
    fn set(self, file: &File) {
        let _ = system::set_attribute(file, MARK, &self.text());
    }

    /// What reads are to be compared with must have been written so, and what is read compresses as
    /// it was written.
    fn serves(self, size: u64, content: Content) -> bool {
        let is_checked = !content.verify || self.checked == Some(content.seed);
        self.filled >= size && is_checked && self.ratios == Some(content.ratios())
    }
}

/// Marks a file that the laboratory made as one that has to be filled anew.
pub(super) fn forget_filling(file: &File) {
    if Mark::of(file).is_some() {
        Mark::NEW.set(file);
    }
}

/// Notes that a file of the laboratory is written from now on.
pub(crate) fn take_up(file: &File) {
    if let Some(mark) = Mark::of(file) {
        Mark { left: Left::InUse, ..mark }.set(file);
    }
}

/// A file system that hangs is waited for no longer. The mark then says that the file is in use.
const LEAVING: WallDuration = WallDuration::from_secs(2);

/// Notes how a run leaves a file of the laboratory that it could write to, and lets go of the lock
/// of one whose reads were checked. Of several runs at once the last one notes it.
pub(super) fn leave(file: &Arc<File>) {
    let (file, (done, told)) = (Arc::clone(file), mpsc::channel());
    let note = move || {
        note_left(&file);
        let _ = file.unlock();
        drop(file);
        let _ = done.send(());
    };
    if std::thread::Builder::new().name("lab-leave".to_owned()).spawn(note).is_ok() {
        let _ = told.recv_timeout(LEAVING);
    }
}

fn note_left(file: &File) {
    // Fails without the right to write, and writes nothing.
    let could_write = file.write_at(&[], 0).is_ok();
    if let (true, Some(mark), Ok(metadata)) = (could_write, Mark::of(file), file.metadata()) {
        Mark { left: Left::of(&metadata), ..mark }.set(file);
    }
}

fn options(writes: bool, flags: i32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(writes).custom_flags(flags);
    options
}

pub(super) fn open_device(path: &Path, opening: Opening, progress: Filling<'_>) -> Result<Ready, LabError> {
    let direct = if opening.buffered { 0 } else { libc::O_DIRECT };
    // O_EXCL on a device: not while it is mounted, or part of another one.
    let exclusive = if opening.writes { libc::O_EXCL } else { 0 };
    let file =
        options(opening.writes, direct | exclusive).open(path).map_err(|error| cannot_open_device(&error, path))?;
    let cannot = |error: io::Error| LabError::of(&error, "cannot be read", path);
    let all = system::device_size(&file).map_err(cannot)?;
    let block = system::sector_size(&file).map_err(cannot)?;
    if opening.writes && !opening.destroy {
        let found = signatures::content_of(&file, all).map_err(cannot)?.unwrap_or("nothing that was recognised");
        return Err(refused_device(path, found));
    }
    if opening.writes {
        refuse_read_only(&file, path, Path::new("/sys/dev/block"))?;
        refuse_in_use(&file, path, all)?;
    }
    let size = usable(path, opening.size, all)?;
    if opening.content.verify && !opening.writes {
        return Err(LabError::Usage(format!(
            "{}: what a device holds cannot be checked by a workload that only reads; add writes",
            path.display()
        )));
    }
    let versions = opening.versions(size)?;
    if opening.content.verify {
        write_out(&file, path, Bytes(size.0 - size.0 % 4096), opening.content, versions.as_ref(), progress)?;
    }
    let description = format!("block device {}, {}", path.display(), passing(opening.buffered));
    Ok(local(path, AccessMethod::Ring(Arc::new(file)), (size, block), versions, opening, description))
}

/// The system opens a device for writing also where it refuses every write. `devices` is its list
/// of block devices by number.
fn refuse_read_only(file: &File, path: &Path, devices: &Path) -> Result<(), LabError> {
    let metadata = file.metadata().map_err(|error| LabError::of(&error, "cannot be looked at", path))?;
    let number = format!("{}:{}", libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    match std::fs::read_to_string(devices.join(number).join("ro")) {
        Ok(text) if text.trim() == "1" => Err(LabError::Refused(format!("{}: may only be read", path.display()))),
        _ => Ok(()),
    }
}

/// A run whose reads are checked keeps those that write off its file: they would damage it. Several
/// openings of one run hold the lock together.
fn keep_writers_off(file: &File, path: &Path) -> Result<(), LabError> {
    match file.try_lock_shared() {
        // A file system without locks keeps nothing off, and the report of damage names that cause.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(in_use(path)),
    }
}

fn in_use(path: &Path) -> LabError {
    LabError::Refused(format!(
        "{}: is in use by another process, as a running server has its drives, and a measurement with --verify its file; stop that first, \
         or wait for its end",
        path.display()
    ))
}

/// How often a lock is tried. The kernel may hold a file that is closed a little longer, until the
/// last of its accesses is over.
const LOCK_TRIES: u32 = 5;
const LOCK_AGAIN: WallDuration = WallDuration::from_millis(20);

/// Locks the file, unless another has it locked at each of so many tries.
pub(super) fn try_lock(file: &File, tries: u32) -> Result<(), TryLockError> {
    let mut locked = file.try_lock();
    for _ in 1..tries {
        if !matches!(locked, Err(TryLockError::WouldBlock)) {
            break;
        }
        std::thread::sleep(LOCK_AGAIN);
        locked = file.try_lock();
    }
    locked
}

/// Refuses what must not be written over, whatever the caller says: a drive that carries a pool's
/// label, for what it holds is part of records elsewhere, and what another process has locked.
fn refuse_in_use(file: &File, path: &Path, size: u64) -> Result<(), LabError> {
    match try_lock(file, LOCK_TRIES) {
        // The lock is let go with the file, or by this process's own opening of a drive.
        Ok(()) => {
            let _ = file.unlock();
        }
        Err(TryLockError::WouldBlock) => return Err(in_use(path)),
        Err(TryLockError::Error(error)) => return Err(LabError::of(&error, "cannot be locked", path)),
    }
    let metadata = file.metadata().map_err(|error| LabError::of(&error, "cannot be looked at", path))?;
    if let Some(device) = signatures::loop_device_of(&metadata, Path::new("/sys/block")) {
        return Err(LabError::Refused(format!(
            "{}: is what {device} shows, and may be mounted there; detach it first (losetup --detach {device})",
            path.display()
        )));
    }
    signatures::refuse_labelled_partition(path)?;
    // All four copies: a drive whose head was damaged is still a pool's.
    for at in label::places(size) {
        // Whole blocks of aligned memory, since the device may have been opened past the page
        // cache.
        let mut block = Buffer::zeroed(4096);
        let read = file.read_at(&mut block[..], at).map_err(|error| LabError::of(&error, "cannot be read", path))?;
        if read == block.len() && label::is_label(&block[..]) {
            return Err(LabError::Refused(format!(
                "{}: carries the label of a Stele pool; `stele drive wipe` removes the labels of a drive that has left its pool \
                 for good",
                path.display()
            )));
        }
    }
    Ok(())
}

fn passing(buffered: bool) -> &'static str {
    if buffered { "through the page cache" } else { "past the page cache" }
}

fn usable(path: &Path, wanted: Option<Bytes>, all: u64) -> Result<Bytes, LabError> {
    match wanted {
        Some(wanted) if wanted.0 > all => {
            let all = Bytes(all);
            Err(LabError::Usage(format!(
                "{}: has {all}, not {wanted}; leave --size out, or make it less",
                path.display()
            )))
        }
        Some(wanted) => Ok(wanted),
        None => Ok(Bytes(all)),
    }
}

/// Refuses what must not be written over: what is in use, and unless it may be destroyed what the
/// laboratory did not make, or what was made of its files since.
pub(crate) fn may_write(path: &Path, destroy: bool) -> Result<(), LabError> {
    let cannot = |error: io::Error| LabError::of(&error, "cannot be looked at", path);
    let probe = options(false, 0).open(path).map_err(|error| LabError::of(&error, "cannot be opened", path))?;
    let metadata = probe.metadata().map_err(cannot)?;
    if metadata.file_type().is_block_device() {
        let size = system::device_size(&probe).map_err(cannot)?;
        if !destroy {
            let found = signatures::content_of(&probe, size).map_err(cannot)?.unwrap_or("nothing that was recognised");
            return Err(refused_device(path, found));
        }
        return refuse_in_use(&probe, path, size);
    }
    let length = metadata.len();
    refuse_in_use(&probe, path, length)?;
    let mark = Mark::of(&probe);
    if mark.is_none() {
        system_place::refuse_overwriting(path)?;
    }
    if destroy || length == 0 {
        return Ok(());
    }
    let Some(mark) = mark else {
        return Err(LabError::Refused(format!(
            "{}: was not made by the laboratory; name a file that does not exist, or let it be written over with --destroy",
            path.display()
        )));
    };
    // The laboratory made the file, and not what it was given to hold since then.
    signatures::refuse(path, length)?;
    match mark.left {
        Left::Changed(_) if mark.left != Left::of(&metadata) => Err(LabError::Refused(format!(
            "{}: another program wrote into it since the laboratory's last run; name a file that does not exist, or let it be \
             written over with --destroy",
            path.display()
        ))),
        _ => Ok(()),
    }
}

fn refused_device(path: &Path, found: &str) -> LabError {
    LabError::Refused(format!("{}: a device is written over only with --destroy; it holds {found}", path.display()))
}

/// Holds a device alone while it is written over: not while it is mounted, or part of another one.
pub(crate) fn hold_device(path: &Path) -> Result<File, LabError> {
    options(true, libc::O_EXCL).open(path).map_err(|error| cannot_open_device(&error, path))
}

fn cannot_open_device(error: &io::Error, path: &Path) -> LabError {
    match error.kind() {
        io::ErrorKind::ResourceBusy => {
            LabError::Refused(format!("{}: is mounted, or in use by another device; unmount it first", path.display()))
        }
        _ => LabError::of(error, "cannot be opened", path),
    }
}

/// Marks a file as the laboratory's; how far it is filled is not known.
pub(crate) fn claim(file: &File) {
    Mark::NEW.set(file);
}

pub(super) fn open_file(path: &Path, opening: Opening, progress: Filling<'_>) -> Result<Ready, LabError> {
    let probe = options(false, 0).open(path).map_err(|error| LabError::of(&error, "cannot be opened", path))?;
    let length = probe.metadata().map_err(|error| LabError::of(&error, "cannot be looked at", path))?.len();
    let mark = Mark::of(&probe);
    drop(probe);
    if length == 0 && opening.size.is_none() {
        return Err(LabError::Usage(format!("{}: is empty; say how large it shall be with --size", path.display())));
    }
    let ours = mark.is_some() || (opening.writes && (opening.destroy || length == 0));
    if opening.content.verify && !opening.writes && !ours {
        return Err(LabError::Usage(format!(
            "{}: what a file holds that the laboratory did not make cannot be checked by a workload that only reads; add writes",
            path.display()
        )));
    }
    let wanted = opening.size.map_or(length, |size| size.0);
    let unchecked = opening.content.verify && mark.is_none();
    let fills =
        ours && (wanted > length || unchecked || mark.is_some_and(|mark| !mark.serves(wanted, opening.content)));
    // To fill a file is to write over it, also for a workload that only reads.
    if opening.writes || fills {
        may_write(path, opening.destroy)?;
    }
    if fills {
        return fill(path, Bytes(wanted), opening, progress);
    }
    if length == 0 {
        return Err(LabError::Usage(format!(
            "{}: is empty, and is not filled for a workload that only reads; name a file that does not exist",
            path.display()
        )));
    }
    let size = usable(path, opening.size, length)?;
    ready(path, size, opening.versions(size)?, opening)
}

pub(super) fn make_file(path: &Path, opening: Opening, progress: Filling<'_>) -> Result<Ready, LabError> {
    system_place::refuse_file(path)?;
    let Some(size) = opening.size else {
        return Err(LabError::Missing(format!(
            "{}: does not exist; say how large it shall be with --size",
            path.display()
        )));
    };
    fill(path, size, opening, progress)
}

/// Writes the whole file once: what was never written is not read from any medium, and is measured
/// as if it were.
fn fill(path: &Path, size: Bytes, opening: Opening, progress: Filling<'_>) -> Result<Ready, LabError> {
    let size = Bytes(size.0 - size.0 % 4096);
    if size.0 == 0 {
        return Err(LabError::Usage("--size: at least 4 KiB".into()));
    }
    let versions = opening.versions(size)?;
    refuse_without_room(path, size, opening.content)?;
    let cannot = |error: io::Error| LabError::of(&error, "cannot be made", path);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(cannot)?;
    if opening.content.verify {
        keep_writers_off(&file, path)?;
    }
    Mark::NEW.set(&file);
    let written = write_out(&file, path, size, opening.content, versions.as_ref(), progress);
    if let Err(LabError::Full(_)) = &written {
        // Its blocks are given back: half a target is of no use on a full file system.
        let _ = file.set_len(0);
    }
    written?;
    let checked = opening.content.verify.then_some(opening.content.seed);
    let ratios = Some(opening.content.ratios());
    let left = file.metadata().map_or(Left::Unknown, |is| Left::of(&is));
    Mark { filled: size.0, checked, ratios, left }.set(&file);
    // Its lock is held until the run has its own.
    let ready = ready(path, size, versions, opening);
    let _ = file.unlock();
    ready
}

/// Refuses what cannot fit before anything is written: a file system that a fill takes whole has no
/// room for others meanwhile. What compresses may need less.
pub(super) fn refuse_without_room(path: &Path, size: Bytes, content: Content) -> Result<(), LabError> {
    let there = std::fs::metadata(path).map_or(0, |found| found.blocks() * 512);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(free) = system::free_space(if path.is_dir() { path } else { parent }) else { return Ok(()) };
    let is_plain = content.ratios() == Content::default().ratios();
    match is_plain && size.0.saturating_sub(there) > free.0 {
        true => Err(LabError::Full(format!(
            "{}: cannot be filled with {size}: the file system has room for {free}; give less with --size",
            path.display()
        ))),
        false => Ok(()),
    }
}

/// So much is written between two flushes. One flush at the end would be of all that the page cache
/// took, and a host that fills its target says nothing meanwhile.
const FLUSHED: u64 = 1 << 30;

fn write_out(
    file: &File,
    path: &Path,
    size: Bytes,
    content: Content,
    versions: Option<&Arc<Versions>>,
    progress: Filling<'_>,
) -> Result<(), LabError> {
    write_parts(file, path, size, (content, versions), (FLUSHED, &mut File::sync_data), progress)?;
    file.sync_all().map_err(|error| LabError::of(&error, &format!("cannot be filled with {size}"), path))
}

type Flush<'a> = &'a mut dyn FnMut(&File) -> io::Result<()>;

/// Writes it, and flushes it behind every so many bytes.
fn write_parts(
    file: &File,
    path: &Path,
    size: Bytes,
    (content, versions): (Content, Option<&Arc<Versions>>),
    (flushed, flush): (u64, Flush<'_>),
    progress: Filling<'_>,
) -> Result<(), LabError> {
    let cannot = |error: io::Error| LabError::of(&error, &format!("cannot be filled with {size}"), path);
    let mut buffer = Buffer::zeroed(MIB as usize);
    let mut source = content.source(stele_ground::Dice::new(content.seed), versions.cloned());
    let mut at = 0;
    while at < size.0 {
        let length = MIB.min(size.0 - at) as usize;
        source.make(&mut buffer[..length], at);
        file.write_all_at(&buffer[..length], at).map_err(cannot)?;
        if let Some(versions) = versions {
            versions.answered(at, length as u64);
        }
        at += length as u64;
        if at.is_multiple_of(flushed) {
            flush(file).map_err(cannot)?;
        }
        if !progress(at, size.0) {
            return Err(LabError::Stopped(format!("{}: stopped while it was filled", path.display())));
        }
    }
    Ok(())
}

fn ready(path: &Path, size: Bytes, versions: Option<Arc<Versions>>, opening: Opening) -> Result<Ready, LabError> {
    let cannot = |error: io::Error| LabError::of(&error, "cannot be opened", path);
    let plain = options(opening.writes, 0).open(path).map_err(cannot)?;
    if opening.content.verify {
        keep_writers_off(&plain, path)?;
    }
    if let Some(mark) = Mark::of(&plain).filter(|_| opening.writes && !opening.content.verify) {
        // What is written from now on has no CRCs.
        Mark { checked: None, ..mark }.set(&plain);
    }
    if opening.writes {
        take_up(&plain);
    }
    let in_memory = system::in_memory(&plain);
    if in_memory || opening.buffered {
        let how = if in_memory { "in memory" } else { passing(true) };
        let description = format!("file {} {how}", path.display());
        return Ok(local(path, AccessMethod::Inline(Arc::new(plain)), (size, 512), versions, opening, description));
    }
    let file = options(opening.writes, libc::O_DIRECT).open(path).map_err(|error| {
        LabError::Failed(format!(
            "{}: the file system does not let the page cache be passed by ({error}); measure with --buffered, or on a file system that has O_DIRECT",
            path.display()
        ))
    })?;
    if opening.content.verify {
        keep_writers_off(&file, path)?;
        let _ = plain.unlock();
    }
    let block = system::direct_alignment(&file).map_or(512, |(_, offset)| offset.max(512));
    let description = format!("file {} {}", path.display(), passing(false));
    Ok(local(path, AccessMethod::Ring(Arc::new(file)), (size, block), versions, opening, description))
}

/// A file or device that is open; what does not fill a block at its end is left alone.
fn local(
    path: &Path,
    way: AccessMethod,
    (size, block): (Bytes, u64),
    versions: Option<Arc<Versions>>,
    opening: Opening,
    description: String,
) -> Ready {
    let size = Bytes(size.0 - size.0 % block);
    let (name, patience) = (path.display().to_string(), opening.patience);
    Ready { way, size, block: Bytes(block), file: None, versions, patience, name, description }
}

#[cfg(test)]
mod tests;
