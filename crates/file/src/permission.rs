//! What a mode allows, and who may change what: one place for every protocol.

use crate::{Access, Attributes, Caller, FileError, Kind, Result};

const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;
const STICKY: u32 = 0o1000;

/// The three bits of the mode that count for the caller. Root reads and writes everything, and
/// executes what anyone may.
fn bits(caller: &Caller, file: &Attributes) -> u32 {
    if caller.is_root() {
        let executes = matches!(file.kind, Kind::Directory) || file.mode & 0o111 != 0;
        return READ | WRITE | if executes { EXECUTE } else { 0 };
    }
    let shift = match () {
        () if caller.uid == file.uid => 6,
        () if caller.is_member(file.gid) => 3,
        () => 0,
    };
    file.mode >> shift & 7
}

pub fn may_read(caller: &Caller, file: &Attributes) -> Result<()> {
    allowed(bits(caller, file) & READ != 0)
}

/// Content of a file, or entries of a directory.
pub fn may_write(caller: &Caller, file: &Attributes) -> Result<()> {
    allowed(bits(caller, file) & WRITE != 0)
}

/// Content of a regular file in a call that stands by itself. Its owner may always read, and may
/// read what the mode lets anyone execute: a protocol with open files checked the mode when the
/// file was opened (RFC 1813, 4.4).
pub fn may_read_content(caller: &Caller, file: &Attributes) -> Result<()> {
    allowed(caller.uid == file.uid || bits(caller, file) & (READ | EXECUTE) != 0)
}

/// Content of a regular file in a call that stands by itself. Its owner may always write, as in
/// [`may_read_content`].
pub fn may_write_content(caller: &Caller, file: &Attributes) -> Result<()> {
    allowed(caller.uid == file.uid || bits(caller, file) & WRITE != 0)
}

/// Running a file, or searching a directory.
pub fn may_execute(caller: &Caller, file: &Attributes) -> Result<()> {
    allowed(bits(caller, file) & EXECUTE != 0)
}

/// Names in a directory.
pub fn may_search(caller: &Caller, directory: &Attributes) -> Result<()> {
    if !matches!(directory.kind, Kind::Directory) {
        return Err(FileError::NotDirectory);
    }
    allowed(bits(caller, directory) & EXECUTE != 0)
}

/// Adding an entry to a directory.
pub fn may_add(caller: &Caller, directory: &Attributes) -> Result<()> {
    may_search(caller, directory)?;
    may_write(caller, directory)
}

/// Removing or replacing an entry. In a sticky directory only the owner of the file or of the
/// directory may.
pub fn may_remove(caller: &Caller, directory: &Attributes, file: &Attributes) -> Result<()> {
    may_add(caller, directory)?;
    let sticky = directory.mode & STICKY != 0;
    if sticky && !caller.is_root() && caller.uid != directory.uid && caller.uid != file.uid {
        return Err(FileError::NotOwner);
    }
    Ok(())
}

pub fn owns(caller: &Caller, file: &Attributes) -> Result<()> {
    match caller.is_root() || caller.uid == file.uid {
        true => Ok(()),
        false => Err(FileError::NotOwner),
    }
}

/// Of the wanted kinds of access, those that the mode allows.
pub fn granted(caller: &Caller, file: &Attributes, wanted: Access) -> Access {
    let bits = bits(caller, file);
    let (reads, writes, executes) = (bits & READ != 0, bits & WRITE != 0, bits & EXECUTE != 0);
    let directory = matches!(file.kind, Kind::Directory);
    Access {
        read: wanted.read && reads,
        lookup: wanted.lookup && directory && executes,
        modify: wanted.modify && writes && (!directory || executes),
        extend: wanted.extend && writes && (!directory || executes),
        delete: wanted.delete && directory && writes && executes,
        execute: wanted.execute && !directory && executes,
    }
}

fn allowed(yes: bool) -> Result<()> {
    match yes {
        true => Ok(()),
        false => Err(FileError::Denied),
    }
}
