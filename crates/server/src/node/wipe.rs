//! Removes the labels of a drive that has left its pool, so that a pool can take it again.
//!
//! Refuses every drive that a pool may still need. That is a member of this pool in any state, and
//! a drive of another pool unless the operator names that pool. A drive whose pool holds retained
//! records is always refused.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use stele_array::anchor::{MAGIC, SLOT};
use stele_array::label::codec::{Label, NoLabel};
use stele_array::label::{ANCHOR_AT, LABEL_SIZE, LOG_AT, is_label, places};
use stele_ground::PoolId;
use stele_media::file::Access;
use stele_media::{DriveFile, MediaFault, Shared};

use crate::api::pool::StatusView;
use crate::failure::{Failure, Kind, Outcome, io_failure};

/// Number of zeros written at once.
const PIECE: u64 = 1 << 20;

/// `pool`: identity of the drive's former pool, as the operator names it. `status`: of the pool
/// here, if there is one.
pub fn drive(path: &Path, pool: Option<&str>, status: Option<&StatusView>) -> Outcome<()> {
    // Take the drive's lock, which refuses a drive in use by any process. The check is repeated,
    // since the drive may have changed.
    let file = open(path)?;
    check(&file, path, pool, status)?;
    let locked = lock(path)?;
    let size = check(&file, path, pool, status)?;
    let wiped = overwrite(&file, path, size);
    drop(locked);
    wiped
}

/// Takes the labels off a drive whose pool was never completed. Leaves every other drive as it is.
pub fn unfinished(path: &Path, pool: &str) -> Outcome<()> {
    let file = open(path)?;
    let locked = lock(path)?;
    let mut is_its = false;
    let size = each_label(&file, path, |label| match label {
        Ok(label) => {
            let theirs = &label.configuration;
            is_its = theirs.whole_pool().to_string() == pool && !theirs.protected;
            if is_its { Ok(()) } else { Err(Failure::new(Kind::Refused, "it belongs to another pool")) }
        }
        Err(NoLabel::TooNew(_) | NoLabel::OtherFormat(_)) => Err(Failure::new(Kind::Refused, "it is newer")),
        Err(NoLabel::Blank | NoLabel::Damaged) => Ok(()),
    });
    let wiped = match size {
        Ok(size) if is_its || has_anchors_alone(&file, pool) => overwrite(&file, path, size),
        Err(failure) if failure.kind != Kind::Refused => Err(failure),
        _ => Ok(()),
    };
    drop(locked);
    wiped
}

/// Whether a file holds nothing else than anchors of the pool where a new drive has zeros. The
/// first checkpoint of a pool comes before its first label, so a creation that is killed in between
/// leaves that. The identity is random: nothing else has it.
pub fn is_begun(path: &Path, pool: &str) -> bool {
    File::open(path).is_ok_and(|file| has_anchors_alone(&file, pool))
}

fn has_anchors_alone(file: &File, pool: &str) -> bool {
    let is_file = file.metadata().is_ok_and(|about| about.is_file());
    let mut head = vec![0; LOG_AT as usize];
    if !is_file || file.read_exact_at(&mut head, 0).is_err() {
        return false;
    }
    let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let (labels, rest) = head.split_at(ANCHOR_AT as usize);
    let mut found = false;
    // Two slots; what is behind them is as large as one.
    let mut slots = rest.chunks(SLOT as usize);
    let mut is_its = |slot: &[u8]| {
        // FORMAT/drive.md: the identity of its pool.
        let identity = slot.get(24..40).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).map(PoolId);
        let is_its = slot.starts_with(MAGIC) && identity.is_some_and(|identity| identity.to_string() == pool);
        found |= is_its;
        is_its || is_blank(slot)
    };
    let slots_are = slots.by_ref().take(2).all(&mut is_its);
    slots_are && found && is_blank(labels) && slots.all(is_blank)
}

/// Whether a drive carries a label of the pool. It may be in use. A drive that cannot be opened, or
/// that is too small for labels, has none.
pub fn carries_label_of(path: &Path, pool: &str) -> Outcome<bool> {
    let Ok(file) = File::open(path) else { return Ok(false) };
    let kind = file.metadata().map_err(|error| io_failure("look at", path, &error))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(false);
    }
    let mut is_its = false;
    each_label(&file, path, |label| {
        is_its |= label.is_ok_and(|label| label.configuration.whole_pool().to_string() == pool);
        Ok(())
    })?;
    Ok(is_its)
}

/// Whether a file is a drive of a pool that was never completed, or was to become one: every label
/// on it is of the pool `former`. None: there is no file.
pub fn is_left_over(path: &Path, former: Option<&str>) -> Outcome<Option<bool>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_failure("open", path, &error)),
    };
    let metadata = file.metadata().map_err(|error| io_failure("look at", path, &error))?;
    if !metadata.is_file() || file.try_lock().is_err() {
        return Ok(Some(false));
    }
    // Made, and killed before it had its size.
    if metadata.len() == 0 {
        return Ok(Some(true));
    }
    let mut is_its = !places(metadata.len()).is_empty();
    each_label(&file, path, |label| {
        is_its &= match label {
            Ok(label) => {
                let theirs = &label.configuration;
                Some(theirs.whole_pool().to_string().as_str()) == former && !theirs.protected
            }
            Err(NoLabel::Blank) => true,
            // The kill may have torn it.
            Err(NoLabel::Damaged) => former.is_some(),
            Err(NoLabel::TooNew(_) | NoLabel::OtherFormat(_)) => false,
        };
        Ok(())
    })?;
    Ok(Some(is_its))
}

fn open(path: &Path) -> Outcome<File> {
    OpenOptions::new().read(true).write(true).open(path).map_err(|error| io_failure("open", path, &error))
}

fn lock(path: &Path) -> Outcome<DriveFile> {
    DriveFile::open(path, Access::Exclusive).map_err(|error| match error.fault {
        MediaFault::Retry => Failure::new(Kind::Busy, error.to_string()),
        _ => Failure::new(Kind::Refused, error.to_string()),
    })
}

fn overwrite(file: &File, path: &Path, size: u64) -> Outcome<()> {
    let zeros = vec![0; PIECE as usize];
    // Overwrite the copies at the end first: after an interruption the drive still has a label and
    // is refused like one.
    let heads = (0..LOG_AT.min(size)).step_by(PIECE as usize).map(|at| (at, PIECE.min(size - at)));
    let tails = places(size).into_iter().filter(|at| *at >= LOG_AT).map(|at| (at, LABEL_SIZE.min(size - at)));
    for (at, length) in tails.chain(heads) {
        for from in (at..at + length).step_by(PIECE as usize) {
            let piece = zeros.get(..(at + length - from).min(PIECE) as usize).unwrap_or_default();
            file.write_all_at(piece, from).map_err(|error| io_failure("wipe", path, &error))?;
        }
    }
    file.sync_all().map_err(|error| io_failure("flush", path, &error))
}

/// Shows what is at each place of a label. Returns the size of the drive.
fn each_label(
    mut file: &File,
    path: &Path,
    mut look: impl FnMut(Result<Label, NoLabel>) -> Outcome<()>,
) -> Outcome<u64> {
    let size = file.seek(SeekFrom::End(0)).map_err(|error| io_failure("measure", path, &error))?;
    for at in places(size) {
        let mut bytes = vec![0; LABEL_SIZE as usize];
        file.read_exact_at(&mut bytes, at).map_err(|error| io_failure("read", path, &error))?;
        look(Label::decode(&Shared::from(bytes)))?;
    }
    Ok(size)
}

/// Refuses a drive that a pool may need. Returns its size.
fn check(mut file: &File, path: &Path, pool: Option<&str>, status: Option<&StatusView>) -> Outcome<u64> {
    let size = file.seek(SeekFrom::End(0)).map_err(|error| io_failure("measure", path, &error))?;
    let shown = path.display();
    let refuse = |why: String, next: &str| Err(Failure::new(Kind::Refused, why).next(next));
    let mut labelled = false;
    for at in places(size) {
        let mut bytes = vec![0; LABEL_SIZE as usize];
        file.read_exact_at(&mut bytes, at).map_err(|error| io_failure("read", path, &error))?;
        labelled |= is_label(&bytes);
        let label = match Label::decode(&Shared::from(bytes)) {
            Ok(label) => label,
            Err(NoLabel::TooNew(_) | NoLabel::OtherFormat(_)) => {
                return refuse(format!("{shown} was written by a newer version of Stele"), "wipe it with that version");
            }
            Err(NoLabel::Blank | NoLabel::Damaged) => continue,
        };
        let theirs = &label.configuration;
        let own = theirs.drives.get(usize::from(label.number.0)).map(|entry| entry.identity.to_string());
        let owner = theirs.whole_pool().to_string();
        if let Some(status) = status.filter(|status| owner == status.pool) {
            let member = status.drives.iter().find(|drive| drive.is_member() && Some(&drive.identity) == own.as_ref());
            if let Some(member) = member {
                return refuse(
                    format!("{shown} is drive {} of this pool, and {}", member.drive, member.health),
                    "`stele pool remove` or `stele pool replace` it first",
                );
            }
        } else if theirs.protected {
            return refuse(
                format!("{shown} belongs to pool '{}' ({owner}), which holds retained records", theirs.name),
                "open that pool; it is never wiped here",
            );
        } else if pool != Some(owner.as_str()) {
            return refuse(
                format!("{shown} belongs to pool '{}' ({owner})", theirs.name),
                "if that pool is not needed any more: stele drive wipe PATH --pool ID",
            );
        }
    }
    match labelled {
        true => Ok(size),
        false => Err(Failure::missing(format!("{shown} carries no label of any pool; there is nothing to wipe"))),
    }
}
