//! What POSIX and Linux say about attributes: pure functions from old attributes to new ones.

use crate::model::NAME_MAX;
use crate::permission::{may_write, may_write_content, owns};
use crate::{Attributes, Caller, Changes, FileError, Inode, Kind, Moment, Result, SetTime};

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const GROUP_EXECUTE: u32 = 0o010;
const MODE_MAX: u32 = 0o7777;
/// Of files and directories whose creator named none: open to their owner alone.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Symbolic links have no mode of their own.
const LINK_MODE: u32 = 0o777;
/// A day: the access time is brought up to date at least this often, as with `relatime` of Linux.
const ACCESS_TIME_AGE_MAX: i64 = 24 * 60 * 60;

/// The attributes after `changes`, or why the caller may not make them. The size itself is left to
/// the content.
pub(crate) fn changed(caller: &Caller, file: &Attributes, changes: &Changes, now: Moment) -> Result<Attributes> {
    check_mode(changes)?;
    check_times(changes)?;
    if changes.mode.is_some() {
        owns(caller, file)?;
        if file.kind == Kind::Link {
            return Err(FileError::NotSupported);
        }
    }
    let own = caller.uid == file.uid;
    if changes.uid.is_some_and(|uid| !(caller.is_root() || own && uid == file.uid)) {
        return Err(FileError::NotOwner);
    }
    let joins = |gid| own && (gid == file.gid || caller.is_member(gid));
    if changes.gid.is_some_and(|gid| !(caller.is_root() || joins(gid))) {
        return Err(FileError::NotOwner);
    }
    if let Some(size) = changes.size {
        check_size(file.kind, size)?;
        may_write_content(caller, file)?;
    }
    let times = [changes.accessed, changes.modified];
    if times.iter().flatten().any(|time| matches!(time, SetTime::At(_))) {
        owns(caller, file)?;
    } else if times.iter().flatten().next().is_some() && owns(caller, file).is_err() {
        may_write(caller, file)?;
    }

    let mut new = file.clone();
    new.uid = changes.uid.unwrap_or(file.uid);
    new.gid = changes.gid.unwrap_or(file.gid);
    if let Some(mode) = changes.mode {
        new.mode = mode;
        if !caller.is_root() && !caller.is_member(new.gid) {
            new.mode &= !SET_GID;
        }
    } else if changes.size.is_some() {
        new.mode = mode_after_write(caller, file.mode);
    }
    if (changes.uid.is_some() || changes.gid.is_some()) && file.kind != Kind::Directory {
        new.mode = without_set_ids(new.mode);
    }
    if changes.size.is_some() {
        new.modified = now;
    }
    set_times(&mut new, changes, now);
    new.changed = now;
    new.change += 1;
    Ok(new)
}

/// The attributes of a new file in `directory`.
pub(crate) fn created(
    caller: &Caller,
    directory: &Attributes,
    inode: Inode,
    kind: Kind,
    changes: &Changes,
    now: Moment,
) -> Result<Attributes> {
    check_mode(changes)?;
    check_times(changes)?;
    if let Some(size) = changes.size {
        check_size(kind, size)?;
    }
    let hands_on = directory.mode & SET_GID != 0;
    let own_gid = if hands_on { directory.gid } else { caller.gid };
    let uid = changes.uid.unwrap_or(caller.uid);
    let gid = changes.gid.unwrap_or(own_gid);
    if !caller.is_root() && (uid != caller.uid || gid != own_gid && !caller.is_member(gid)) {
        return Err(FileError::NotOwner);
    }
    let mode = match kind {
        Kind::Link => LINK_MODE,
        Kind::Directory => changes.mode.unwrap_or(DIRECTORY_MODE) | if hands_on { SET_GID } else { 0 },
        _ if caller.is_root() || caller.is_member(gid) => changes.mode.unwrap_or(FILE_MODE),
        _ => changes.mode.unwrap_or(FILE_MODE) & !SET_GID,
    };
    let mut new = Attributes {
        inode,
        kind,
        mode,
        links: if kind == Kind::Directory { 2 } else { 1 },
        uid,
        gid,
        size: 0,
        used: 0,
        accessed: now,
        modified: now,
        changed: now,
        change: 1,
    };
    set_times(&mut new, changes, now);
    Ok(new)
}

/// The mode after the caller changed content. Root keeps the set-id bits, as on Linux.
pub(crate) fn mode_after_write(caller: &Caller, mode: u32) -> u32 {
    if caller.is_root() { mode } else { without_set_ids(mode) }
}

/// Without group execution the set-group-id bit once meant mandatory locking; it stays then.
pub(crate) fn without_set_ids(mode: u32) -> u32 {
    let group = if mode & GROUP_EXECUTE != 0 { SET_GID } else { 0 };
    mode & !SET_UID & !group
}

/// Whether a read brings the access time up to date. A time in the future, which retention uses,
/// stays.
pub(crate) fn marks_access(file: &Attributes, now: Moment) -> bool {
    let changed_since = file.accessed <= file.modified.max(file.changed) && file.accessed < now;
    changed_since || file.accessed.seconds.saturating_add(ACCESS_TIME_AGE_MAX) <= now.seconds
}

fn set_times(file: &mut Attributes, changes: &Changes, now: Moment) {
    let at = |time: SetTime| match time {
        SetTime::Now => now,
        SetTime::At(moment) => moment,
    };
    file.accessed = changes.accessed.map_or(file.accessed, at);
    file.modified = changes.modified.map_or(file.modified, at);
}

fn check_mode(changes: &Changes) -> Result<()> {
    if changes.mode.is_some_and(|mode| mode > MODE_MAX) {
        return Err(FileError::Invalid("a mode is at most 0o7777".into()));
    }
    if changes.uid == Some(u32::MAX) || changes.gid == Some(u32::MAX) {
        return Err(FileError::Invalid("4294967295 is no user and no group".into()));
    }
    Ok(())
}

fn check_times(changes: &Changes) -> Result<()> {
    let wrong = |time| matches!(time, SetTime::At(moment) if moment.nanoseconds >= 1_000_000_000);
    if [changes.accessed, changes.modified].into_iter().flatten().any(wrong) {
        return Err(FileError::Invalid("nanoseconds of a time are below 1,000,000,000".into()));
    }
    Ok(())
}

fn check_size(kind: Kind, size: u64) -> Result<()> {
    match kind {
        Kind::File if size > crate::model::SIZE_MAX => Err(FileError::TooLarge),
        Kind::File => Ok(()),
        Kind::Directory => Err(FileError::IsDirectory),
        _ => Err(FileError::Invalid("only a regular file has a size that can be set".into())),
    }
}

/// The rules for the name of an extended attribute that is set or read.
pub(crate) fn check_extended_name(name: &[u8]) -> Result<()> {
    match name.strip_prefix(b"user.") {
        None => Err(FileError::NotSupported),
        Some([]) => Err(FileError::Invalid("an extended attribute has a name behind 'user.'".into())),
        Some(_) if name.len() > NAME_MAX => Err(FileError::TooManyAttributes),
        Some(_) if name.contains(&0) => Err(FileError::Invalid("a name has no zero byte".into())),
        Some(_) => Ok(()),
    }
}

/// Whether the caller may set extended attributes of this file.
pub(crate) fn may_extend(caller: &Caller, file: &Attributes) -> Result<()> {
    match file.kind {
        Kind::File => {}
        Kind::Directory if file.mode & STICKY != 0 => owns(caller, file)?,
        Kind::Directory => {}
        _ => return Err(FileError::NotOwner),
    }
    may_write(caller, file)
}
