//! Matches the entries of `[pool] drives` with the drives of the pool.
//!
//! The label on the drive decides: paths can be spelled in several ways, and a device may have
//! another name after a start. A drive that cannot be read is identified by its path, or by being
//! the only one left.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use stele_array::label::codec::{Label, NoLabel};
use stele_array::label::{LABEL_SIZE, LOG_AT, is_label, places};
use stele_ground::Bytes;
use stele_media::file::Access;
use stele_media::{DriveFile, MediaFault, Shared};

use crate::api::pool::{DriveView, StatusView};
use crate::config::{Config, Site};
use crate::drives::DriveArgument;
use crate::failure::{Failure, Kind, Outcome};

/// The drive that an entry of the configuration names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    /// A drive of the pool, by its number.
    Drive(u32),
    /// A drive that does not belong to the pool, or no longer does.
    Stranger,
    /// The path is unreadable.
    Unknown,
}

/// The entry that names the drive; `None` if that is unknown.
pub fn entry_of<'a>(site: &Site, config: &'a Config, status: &StatusView, number: u32) -> Option<&'a DriveArgument> {
    let holders: Vec<Holder> =
        config.pool.drives.iter().map(|entry| holder(&entry.placed(site).path, status)).collect();
    let members = status.drives.iter().filter(|drive| drive.is_member());
    let drives: Vec<u32> = members.map(|drive| drive.drive).collect();
    config.pool.drives.get(choose(&holders, &drives, number)?)
}

/// Refuses what can be no drive, before anything opens it: the opening of a pipe waits for one who
/// writes to it, and would wait for ever.
pub fn refuse_other_kind(path: &Path) -> Outcome<()> {
    match path.metadata().map(|about| about.file_type()) {
        Ok(kind) if !kind.is_file() && !kind.is_block_device() => {
            let message = format!("{} is neither a file nor a block device", path.display());
            Err(Failure::usage(message).next("name a drive, or a file that is or becomes one"))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Refuses a new drive that holds what is not a pool's, such as a file system: the path may be
/// mistyped. A label is the pool's to judge, and so is a path that cannot be read.
pub fn refuse_content(path: &Path) -> Outcome<()> {
    let Ok(mut file) = File::open(path) else { return Ok(()) };
    if label_at(path).is_some() {
        return Ok(());
    }
    let found = file.seek(SeekFrom::End(0)).and_then(|size| {
        let known = stele_lab::live::signatures::known_content(&file, size)?;
        let unknown = || Ok(holds_data(&file, size)?.then_some("data of an unknown kind"));
        known.map_or_else(unknown, |known| Ok(Some(known)))
    });
    match found {
        Ok(Some(found)) => Err(Failure::new(Kind::Refused, format!("{} holds {found}", path.display()))
            .next("name another drive, or have this one written over with --destroy")),
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Refuses a new drive that is not there, if no size says how large a file to make.
pub fn refuse_absent(path: &Path, size: Option<Bytes>) -> Outcome<()> {
    match path.metadata() {
        Err(error) if size.is_none() && error.kind() == io::ErrorKind::NotFound => {
            Err(Failure::missing(format!("{} is not there", path.display()))
                .next("name a device or a file that is there, or add --size for a new file"))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether a file has data where a drive that is new or wiped has zeros: before the log, and where
/// the labels at its end are. The rest of a wiped drive is as the pool left it. A device that was
/// used before is rarely blank, so of devices only marks of a known kind count.
fn holds_data(file: &File, size: u64) -> io::Result<bool> {
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    let labels = places(size);
    let head = (0..size.min(LOG_AT)).step_by(LABEL_SIZE as usize);
    let tail = labels.iter().copied().filter(|at| *at >= LOG_AT);
    let (mut data, mut labelled) = (false, false);
    for at in head.chain(tail) {
        let mut bytes = vec![0; LABEL_SIZE.min(size - at) as usize];
        file.read_exact_at(&mut bytes, at)?;
        data |= bytes.iter().any(|byte| *byte != 0);
        labelled |= labels.contains(&at) && is_label(&bytes);
    }
    Ok(data && !labelled)
}

/// Refuses a device one of whose partitions is a drive of a pool, whatever the caller says.
pub fn refuse_labelled_partition(path: &Path) -> Outcome<()> {
    stele_lab::live::signatures::refuse_labelled_partition(path).map_err(|error| {
        Failure::new(Kind::Refused, error.to_string()).next("name another drive; `lsblk` shows the partitions")
    })
}

/// Unreadable entries if other entries name every drive of the pool: they name no drive. A drive
/// that only some shards have may be any of them.
pub fn spare_entries(site: &Site, config: &Config, status: &StatusView) -> Vec<DriveArgument> {
    if status.drives.iter().any(DriveView::is_in_part) {
        return Vec::new();
    }
    let entries = &config.pool.drives;
    let holders: Vec<Holder> = entries.iter().map(|entry| holder(&entry.placed(site).path, status)).collect();
    let members: Vec<u32> = status.drives.iter().filter(|drive| drive.is_member()).map(|drive| drive.drive).collect();
    spare(&holders, &members).into_iter().filter_map(|at| entries.get(at)).cloned().collect()
}

fn spare(holders: &[Holder], drives: &[u32]) -> Vec<usize> {
    if !drives.iter().all(|drive| holders.contains(&Holder::Drive(*drive))) {
        return Vec::new();
    }
    (0..).zip(holders).filter(|(_, holder)| **holder == Holder::Unknown).map(|(at, _)| at).collect()
}

fn choose(holders: &[Holder], drives: &[u32], number: u32) -> Option<usize> {
    if let Some(at) = holders.iter().position(|holder| *holder == Holder::Drive(number)) {
        return Some(at);
    }
    let unnamed = drives.iter().filter(|drive| !holders.contains(&Holder::Drive(**drive)));
    let mut unknown = (0..).zip(holders).filter(|(_, holder)| **holder == Holder::Unknown).map(|(at, _)| at);
    match (unnamed.collect::<Vec<_>>().as_slice(), unknown.next(), unknown.next()) {
        ([only], Some(at), None) if **only == number => Some(at),
        _ => None,
    }
}

fn holder(path: &Path, status: &StatusView) -> Holder {
    let by_path = status.drives.iter().find(|drive| !drive.path.is_empty() && is_same(Path::new(&drive.path), path));
    let Some(label) = label_at(path) else {
        return by_path.map_or(Holder::Unknown, |drive| Holder::Drive(drive.drive));
    };
    let configuration = &label.configuration;
    let own = configuration.drives.get(usize::from(label.number.0)).map(|entry| entry.identity.to_string());
    if configuration.whole_pool().to_string() != status.pool {
        return Holder::Stranger;
    }
    let drive = status.drives.iter().find(|drive| drive.is_member() && Some(&drive.identity) == own.as_ref());
    drive.map_or(Holder::Stranger, |drive| Holder::Drive(drive.drive))
}

/// The drive of the pool at a path: by the label there, or by the path where no label can be read.
pub fn member_at<'a>(path: &Path, status: &'a StatusView) -> Option<&'a DriveView> {
    let Holder::Drive(number) = holder(path, status) else { return None };
    status.drives.iter().find(|drive| drive.is_member() && drive.drive == number)
}

/// Refuses a drive that the pool has already.
pub fn refuse_member(path: &Path, status: &StatusView) -> Outcome<()> {
    // A blank drive at the path of one that is away is a new one.
    match member_at(path, status).filter(|member| !(is_away(member) && is_blank(path))) {
        Some(member) => Err(Failure::new(
            Kind::Exists,
            format!("{} is drive {} of this pool already, and {}", path.display(), member.drive, member.health),
        )
        .next("look at `stele pool status`; a command that was cut off may have come to its end")),
        None => refuse_held(path, status),
    }
}

/// Refuses a drive that another process holds, before anything is changed for it: the pool's own
/// `Busy` would say that its answer was lost. What the server holds itself it judges itself.
fn refuse_held(path: &Path, status: &StatusView) -> Outcome<()> {
    let mut known = status.drives.iter().map(|drive| &drive.path).chain(&status.removed);
    if known.any(|known| !known.is_empty() && is_same(Path::new(known), path)) {
        return Ok(());
    }
    match DriveFile::open(path, Access::ReadOnly) {
        Err(error) if error.fault == MediaFault::Retry => {
            Err(Failure::new(Kind::Busy, error.to_string()).next("stop what uses it, or name another drive"))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The same for a drive that is to replace another. A drive that is away may be replaced by itself,
/// or by one at its path.
pub fn refuse_other_member(path: &Path, old: u32, status: &StatusView) -> Outcome<()> {
    match member_at(path, status) {
        Some(member) if member.drive == old && is_away(member) => Ok(()),
        _ => refuse_member(path, status),
    }
}

fn is_away(member: &DriveView) -> bool {
    matches!(member.health.as_str(), "missing" | "failed")
}

/// Whether a drive can be read, and has nothing where labels are.
fn is_blank(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    [0, LABEL_SIZE].into_iter().all(|at| {
        let mut bytes = vec![0; LABEL_SIZE as usize];
        file.read_exact_at(&mut bytes, at).is_ok() && matches!(Label::decode(&Shared::from(bytes)), Err(NoLabel::Blank))
    })
}

/// Refuses a drive with the label of another pool before it is attached. What the pool itself
/// refuses stands in its status as a rejected drive until the server ends.
pub fn refuse_of_other_pool(path: &Path, pool: &str) -> Outcome<()> {
    let Some(label) = label_at(path) else { return Ok(()) };
    let theirs = &label.configuration;
    let owner = theirs.whole_pool().to_string();
    if owner == pool {
        return Ok(());
    }
    let shown = path.display();
    let (kept, next) = match theirs.protected {
        true => (", which holds retained records", "open that pool, or name another drive"),
        false => ("", "name another drive; if that pool is not needed any more: `stele drive wipe PATH --pool ID`"),
    };
    let message = format!("{shown} belongs to pool '{}' ({owner}){kept}", theirs.name);
    Err(Failure::new(Kind::Refused, message).next(next))
}

/// Whether the pool may have the drive at a path, after a command that failed.
pub fn may_be_member(path: &Path, status: &StatusView) -> bool {
    let mut in_part = status.drives.iter().filter(|drive| drive.is_in_part());
    in_part.any(|drive| is_same(Path::new(&drive.path), path))
        || member_at(path, status).is_some()
        || is_labelled_ahead(path, &status.pool, status.epoch)
}

/// Whether a drive has a label of this pool that is newer than what the pool agreed on: the next
/// start may find it in force.
pub fn is_labelled_ahead(path: &Path, pool: &str, epoch: u64) -> bool {
    label_at(path)
        .is_some_and(|label| label.configuration.whole_pool().to_string() == pool && label.configuration.epoch > epoch)
}

/// The newer of the two label copies at the start of a drive.
fn label_at(path: &Path) -> Option<Label> {
    refuse_other_kind(path).ok()?;
    let file = File::open(path).ok()?;
    let copy = |at: u64| {
        let mut bytes = vec![0; LABEL_SIZE as usize];
        file.read_exact_at(&mut bytes, at).ok()?;
        Label::decode(&Shared::from(bytes)).ok()
    };
    [copy(0), copy(LABEL_SIZE)].into_iter().flatten().max_by_key(|label| label.sequence)
}

/// Whether both paths lead to the same file, however they are spelled.
pub fn is_same(left: &Path, right: &Path) -> bool {
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole(left) == whole(right)
        || matches!((left.canonicalize(), right.canonicalize()), (Ok(left), Ok(right)) if left == right)
}

#[cfg(test)]
mod tests;
