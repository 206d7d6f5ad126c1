//! Names, directories and attributes: the rules of POSIX, each call one change of the view.
//!
//! Nothing here waits and nothing here touches content. Retention counts: a committed file keeps
//! its name, its mode and its directories until its retention has ended.

use bytes::Bytes;
use stele_catalog::KeyRange;

use super::records::{
    ACTIVE, COOKIES, CookieRow, ENTRIES, EntryRow, InodeRow, NUMBERS, NameRow, ORPHANS, ROOT, entry_key, inode_key,
    last_number, numbered_key, share_key,
};
use super::view::{Change, View};
use crate::files::{Changed, Creation, DirectoryEntry, Entry, Listing, Node, Removal};
use crate::model::{Attributes, Caller, Changes, Inode, Kind, LINK_MAX, LINKS_MAX, Moment, check_name};
use crate::permission::{may_add, may_remove, may_search, may_write};
use crate::rules;
use crate::{FileError, Result};

/// Numbers that are reserved with one record.
const NUMBERS_AHEAD: u64 = 4096;
/// The first cookie: 0 is the start of a listing, 1 and 2 are `.` and `..`.
const NUMBER_FIRST: u64 = 16;
/// Names that one directory may have: what a counter of NFS clients takes.
const ENTRIES_MAX: u64 = u32::MAX as u64;

/// Numbers for new inodes and cookies. One that was given out and not used is never used.
#[derive(Debug)]
pub struct Numbers {
    next: u64,
    reserved: u64,
}

impl Numbers {
    /// `stored`: the record at [`NUMBERS`].
    pub fn new(stored: Option<&[u8]>) -> Numbers {
        let next = stored.and_then(|bytes| bytes.try_into().ok()).map_or(NUMBER_FIRST, u64::from_be_bytes);
        Numbers { next, reserved: next }
    }

    /// The record as it is to be stored: numbers below it may be in use.
    pub fn stored(&self) -> Bytes {
        Bytes::copy_from_slice(&self.reserved.to_be_bytes())
    }

    /// A number for a file that is stored before its first transaction. The record may be behind
    /// it: the caller sees to it that the record is not.
    pub fn draw(&mut self) -> u64 {
        if self.next == self.reserved {
            self.reserved += NUMBERS_AHEAD;
        }
        let number = self.next;
        self.next += 1;
        number
    }

    /// No number below this one is given out.
    pub fn raise(&mut self, least: u64) {
        if self.next < least {
            self.next = least;
            self.reserved = self.reserved.max(least);
        }
    }

    /// A number for a new inode or cookie.
    pub fn next(&mut self, change: &mut Change<'_>) -> u64 {
        self.take(change)
    }

    fn take(&mut self, change: &mut Change<'_>) -> u64 {
        let number = self.draw();
        // With every change that takes one, since an earlier one that reserved more may yet fail.
        change.put_bytes(NUMBERS, share_key(change.share()), self.stored());
        number
    }
}

/// A name and what it leads to.
pub struct Named {
    pub entry: EntryRow,
    pub row: InodeRow,
}

/// The compliance clock, in milliseconds since 1970: retention ends by it.
#[derive(Clone, Copy, Debug)]
pub struct Compliance(pub u64);

pub fn find(change: &mut Change<'_>, directory: u64, name: &[u8]) -> Result<Option<Named>> {
    let key = entry_key(change.share(), directory, name);
    let Some(entry) = change.fetch::<EntryRow>(ENTRIES, &key)? else { return Ok(None) };
    let row = change.row(entry.inode).map_err(|error| match error {
        FileError::Stale => dangling(directory, name, entry.inode),
        other => other,
    })?;
    Ok(Some(Named { entry, row }))
}

fn dangling(directory: u64, name: &[u8], inode: u64) -> FileError {
    let name = String::from_utf8_lossy(name);
    FileError::Damaged(format!("entry `{name}` of directory {directory} names inode {inode}, which does not exist"))
}

/// A directory whose names the caller may see, and what the name leads to.
fn enter(
    change: &mut Change<'_>,
    caller: &Caller,
    inode: Inode,
    name: &[u8],
) -> Result<(InodeRow, Attributes, Option<Named>)> {
    let row = change.row(inode.0)?;
    let attributes = row.attributes(inode.0);
    may_search(caller, &attributes)?;
    check_name(name)?;
    let named = find(change, inode.0, name)?;
    Ok((row, attributes, named))
}

/// Refuses new entries in a removed directory, and to callers who may not add any.
fn may_gain(caller: &Caller, directory: &Attributes) -> Result<()> {
    match directory.links {
        0 => Err(FileError::NotFound),
        _ => may_add(caller, directory),
    }
}

/// `.` and `..` too. Reads only.
pub fn lookup(view: &mut View, caller: &Caller, parent: Inode, name: &[u8]) -> Result<Inode> {
    let row = view.row(parent.0)?;
    may_search(caller, &row.attributes(parent.0))?;
    match name {
        b"." => return Ok(parent),
        b".." => return Ok(Inode(row.parent())),
        _ => check_name(name)?,
    }
    let key = entry_key(view.share, parent.0, name);
    let bytes = view.get(ENTRIES, &key)?.ok_or(FileError::NotFound)?;
    Ok(Inode(super::records::decode::<EntryRow>(ENTRIES, &key, &bytes)?.inode))
}

pub fn list(view: &mut View, parent: Inode, cookie: u64, limit: usize) -> Result<Listing> {
    let row = view.row(parent.0)?;
    if !row.is_directory() {
        return Err(FileError::NotDirectory);
    }
    let range = KeyRange::prefix(inode_key(view.share, parent.0));
    let range = match cookie {
        0..=2 => range,
        _ => range.after(numbered_key(view.share, parent.0, cookie)),
    };
    let records = view.range(COOKIES, &range, limit.saturating_add(1))?;
    let end = records.len() <= limit;
    let mut listing = Listing { entries: Vec::with_capacity(records.len()), end };
    for (key, value) in records.into_iter().take(limit) {
        let row: CookieRow = super::records::decode(COOKIES, &key, &value)?;
        let attributes = view.row(row.inode)?.attributes(row.inode);
        listing.entries.push(DirectoryEntry { name: row.name.into(), cookie: last_number(&key), attributes });
    }
    Ok(listing)
}

/// Adds a name to a directory whose row the caller puts afterwards. `cookie`: its place in the
/// order of the listing.
fn add_entry(
    change: &mut Change<'_>,
    cookie: u64,
    parent: (u64, &mut InodeRow),
    name: &[u8],
    inode: u64,
) -> Result<NameRow> {
    let (number, row) = parent;
    if row.entries >= ENTRIES_MAX {
        return Err(FileError::NoSpace);
    }
    change.put(ENTRIES, entry_key(change.share(), number, name), &EntryRow { inode, cookie });
    change.put(COOKIES, numbered_key(change.share(), number, cookie), &CookieRow { inode, name: name.to_vec() });
    row.entries += 1;
    row.size += name.len() as u64;
    row.touch(change.now);
    Ok(NameRow { directory: number, cookie })
}

fn remove_entry(change: &mut Change<'_>, parent: (u64, &mut InodeRow), name: &[u8], entry: &EntryRow) {
    let (number, row) = parent;
    change.delete(ENTRIES, entry_key(change.share(), number, name));
    change.delete(COOKIES, numbered_key(change.share(), number, entry.cookie));
    row.entries = row.entries.saturating_sub(1);
    row.size = row.size.saturating_sub(name.len() as u64);
    row.touch(change.now);
}

/// What creation found or made.
pub enum Created {
    New(Entry),
    /// It was there, and is to be kept; the changes are to be applied to its size alone.
    Kept(Entry, Option<u64>),
}

pub fn create(
    change: &mut Change<'_>,
    numbers: &mut Numbers,
    caller: &Caller,
    parent: Inode,
    name: &[u8],
    how: &Creation,
) -> Result<Created> {
    let (row, before, found) = enter(change, caller, parent, name)?;
    if let Some(there) = found {
        let (kept, size) = match how {
            Creation::Unchecked(changes) => (true, changes.size),
            Creation::Guarded(_) => (false, None),
            Creation::Exclusive(verifier) => (there.row.verifier == Some(*verifier), None),
        };
        if !kept || !there.row.is_file() {
            return Err(FileError::Exists);
        }
        let file = there.row.attributes(there.entry.inode);
        return Ok(Created::Kept(Entry { file, directory: Changed { before: before.clone(), after: before } }, size));
    }
    let (changes, verifier) = match how {
        Creation::Unchecked(changes) | Creation::Guarded(changes) => (changes.clone(), None),
        Creation::Exclusive(verifier) => (Changes::default(), Some(*verifier)),
    };
    let new = New { kind: Kind::File, target: None, verifier };
    let entry = add_new(change, numbers, caller, (parent, row), name, new, &changes)?;
    change.put_bytes(ACTIVE, inode_key(change.share(), entry.file.inode.0), Bytes::new());
    Ok(Created::New(entry))
}

/// A file to be made.
struct New {
    kind: Kind,
    target: Option<Vec<u8>>,
    verifier: Option<[u8; 8]>,
}

fn add_new(
    change: &mut Change<'_>,
    numbers: &mut Numbers,
    caller: &Caller,
    parent: (Inode, InodeRow),
    name: &[u8],
    new: New,
    changes: &Changes,
) -> Result<Entry> {
    let (directory, mut row) = parent;
    let before = row.attributes(directory.0);
    may_gain(caller, &before)?;
    let is_directory = new.kind == Kind::Directory;
    if is_directory && row.links >= LINKS_MAX {
        return Err(FileError::TooManyLinks);
    }
    let inode = numbers.take(change);
    let attributes = rules::created(caller, &before, Inode(inode), new.kind, changes, change.now)?;
    let mut made = InodeRow::new(&attributes);
    made.size = new.target.as_ref().map_or(changes.size.unwrap_or(0), |target| target.len() as u64);
    made.target = new.target;
    made.verifier = new.verifier;
    let cookie = numbers.take(change);
    made.names.push(add_entry(change, cookie, (directory.0, &mut row), name, inode)?);
    row.links += u32::from(is_directory);
    let after = row.attributes(directory.0);
    change.put_row(directory.0, row);
    let file = made.attributes(inode);
    change.put_row(inode, made);
    Ok(Entry { file, directory: Changed { before, after } })
}

pub fn make(
    change: &mut Change<'_>,
    numbers: &mut Numbers,
    caller: &Caller,
    parent: Inode,
    name: &[u8],
    node: &Node,
    changes: &Changes,
) -> Result<Entry> {
    let (row, before, found) = enter(change, caller, parent, name)?;
    if found.is_some() {
        return Err(FileError::Exists);
    }
    let (kind, target) = match node {
        Node::Directory => (Kind::Directory, None),
        Node::Link { target } if target.is_empty() || target.contains(&0) => {
            return Err(FileError::Invalid("a symbolic link's target is not empty and has no zero byte".into()));
        }
        Node::Link { target } if target.len() > LINK_MAX => return Err(FileError::NameTooLong),
        Node::Link { target } => (Kind::Link, Some(target.to_vec())),
        Node::Special(kind @ (Kind::BlockDevice { .. } | Kind::CharacterDevice { .. })) => {
            may_gain(caller, &before)?;
            if !caller.is_root() {
                return Err(FileError::NotOwner);
            }
            (*kind, None)
        }
        Node::Special(kind @ (Kind::Pipe | Kind::Socket)) => (*kind, None),
        Node::Special(_) => {
            return Err(FileError::Invalid("a special file is a device, a pipe or a socket".into()));
        }
    };
    add_new(change, numbers, caller, (parent, row), name, New { kind, target, verifier: None }, changes)
}

/// Refuses where retention keeps the file, or a file below the directory.
fn unretained(row: &InodeRow, clock: Compliance, act: &str) -> Result<()> {
    match row.committed {
        Some(until) if until > clock.0 => {
            let until = stele_archive::Timestamp(until);
            Err(FileError::ReadOnly(format!(
                "the file is committed and retained until {until}; it cannot be {act} before"
            )))
        }
        _ if row.committed_below > 0 => {
            let count = row.committed_below;
            Err(FileError::ReadOnly(format!("{count} committed files lie below the directory; it cannot be {act}")))
        }
        _ => Ok(()),
    }
}

/// Takes a name away from a file, which becomes an orphan with its last one: its row stays until
/// its content is cleared away and its users have closed it.
fn unname(change: &mut Change<'_>, named: Named, parent: u64) -> Result<()> {
    let Named { entry, mut row } = named;
    change.with_reserve();
    row.links = if row.is_directory() { 0 } else { row.links.saturating_sub(1) };
    if !row.is_directory() {
        row.names.retain(|name| *name != NameRow { directory: parent, cookie: entry.cookie });
    }
    row.alter(change.now);
    if row.committed.is_some() {
        uncount(change, parent)?;
    }
    if row.links == 0 {
        change.put_bytes(ORPHANS, inode_key(change.share(), entry.inode), Bytes::new());
        change.delete(ACTIVE, inode_key(change.share(), entry.inode));
    }
    change.put_row(entry.inode, row);
    Ok(())
}

/// One committed file less in a directory and those above it.
fn uncount(change: &mut Change<'_>, directory: u64) -> Result<()> {
    above(change, directory, |row| row.committed_below = row.committed_below.saturating_sub(1))
}

/// One committed file more.
pub fn count(change: &mut Change<'_>, directory: u64) -> Result<()> {
    above(change, directory, |row| row.committed_below += 1)
}

/// Changes a directory and those above it.
fn above(change: &mut Change<'_>, mut directory: u64, alter: impl Fn(&mut InodeRow)) -> Result<()> {
    loop {
        let mut row = change.row(directory)?;
        alter(&mut row);
        let parent = row.parent();
        change.put_row(directory, row);
        if directory == ROOT {
            return Ok(());
        }
        directory = parent;
    }
}

/// Answers the directory, and the inode whose name went.
pub fn remove(
    change: &mut Change<'_>,
    caller: &Caller,
    parent: Inode,
    name: &[u8],
    what: Removal,
    clock: Compliance,
) -> Result<(Changed, u64)> {
    let (_, before, found) = enter(change, caller, parent, name)?;
    let named = found.ok_or(FileError::NotFound)?;
    let inode = named.entry.inode;
    may_remove(caller, &before, &named.row.attributes(inode))?;
    let is_directory = named.row.is_directory();
    match what {
        Removal::File if is_directory => return Err(FileError::IsDirectory),
        Removal::Directory if !is_directory => return Err(FileError::NotDirectory),
        Removal::Directory if named.row.entries > 0 => return Err(FileError::NotEmpty),
        _ => {}
    }
    unretained(&named.row, clock, "removed")?;
    let entry = named.entry.clone();
    unname(change, named, parent.0)?;
    // Read anew: a committed file that has expired was counted in it.
    let mut row = change.row(parent.0)?;
    row.links -= u32::from(is_directory);
    remove_entry(change, (parent.0, &mut row), name, &entry);
    let after = row.attributes(parent.0);
    change.put_row(parent.0, row);
    Ok((Changed { before, after }, inode))
}

/// Whether `inode` is `directory` or lies above it.
fn is_above(change: &mut Change<'_>, inode: u64, mut directory: u64) -> Result<bool> {
    loop {
        if directory == inode {
            return Ok(true);
        }
        if directory == ROOT {
            return Ok(false);
        }
        directory = change.row(directory)?.parent();
    }
}

/// Answers both directories, and the inode that lost its name to this one.
pub fn rename(
    change: &mut Change<'_>,
    numbers: &mut Numbers,
    caller: &Caller,
    from: (Inode, &[u8]),
    to: (Inode, &[u8]),
    clock: Compliance,
) -> Result<(Changed, Changed, Option<u64>)> {
    let (source, target) = (from.0.0, to.0.0);
    let before = (change.row(source)?.attributes(source), change.row(target)?.attributes(target));
    let (_, source_before, moved) = enter(change, caller, from.0, from.1)?;
    let moved = moved.ok_or(FileError::NotFound)?;
    let (_, target_before, replaced) = enter(change, caller, to.0, to.1)?;
    let inode = moved.entry.inode;
    let is_directory = moved.row.is_directory();
    let file = moved.row.attributes(inode);
    if replaced.as_ref().is_some_and(|replaced| replaced.entry.inode == inode) {
        let unchanged = |before: Attributes| Changed { before: before.clone(), after: before };
        return Ok((unchanged(before.0), unchanged(before.1), None));
    }
    if target_before.links == 0 {
        return Err(FileError::NotFound);
    }
    if is_directory && is_above(change, inode, target)? {
        return Err(FileError::Invalid("a directory cannot be moved into itself".into()));
    }
    may_remove(caller, &source_before, &file)?;
    may_add(caller, &target_before)?;
    if let Some(replaced) = &replaced {
        may_remove(caller, &target_before, &replaced.row.attributes(replaced.entry.inode))?;
        match (is_directory, replaced.row.is_directory()) {
            (false, true) => return Err(FileError::IsDirectory),
            (_, true) if replaced.row.entries > 0 => return Err(FileError::NotEmpty),
            (true, false) => return Err(FileError::NotDirectory),
            _ => {}
        }
    }
    if is_directory && source != target {
        // Its entry `..` changes.
        may_write(caller, &file)?;
    }
    unretained(&moved.row, clock, "renamed")?;
    if moved.row.committed.is_some() {
        return Err(FileError::ReadOnly("a committed file keeps its name also when its retention has ended".into()));
    }
    let (mut orphan, mut place) = (None, None);
    if let Some(replaced) = replaced {
        // The name stays where it is in the listing: one that exists all the time is listed once.
        place = Some(replaced.entry.cookie);
        unretained(&replaced.row, clock, "replaced")?;
        orphan = Some(replaced.entry.inode);
        let entry = replaced.entry.clone();
        unname(change, replaced, target)?;
        let mut row = change.row(target)?;
        row.links -= u32::from(is_directory);
        remove_entry(change, (target, &mut row), to.1, &entry);
        change.put_row(target, row);
    }
    let mut row = change.row(source)?;
    row.links -= u32::from(is_directory);
    remove_entry(change, (source, &mut row), from.1, &moved.entry);
    change.put_row(source, row);
    let mut row = change.row(target)?;
    if is_directory && row.links >= LINKS_MAX {
        return Err(FileError::TooManyLinks);
    }
    row.links += u32::from(is_directory);
    let cookie = place.unwrap_or_else(|| numbers.take(change));
    let name = add_entry(change, cookie, (target, &mut row), to.1, inode)?;
    change.put_row(target, row);
    let mut row = change.row(inode)?;
    row.names.retain(|name| *name != NameRow { directory: source, cookie: moved.entry.cookie });
    row.names.push(name);
    row.alter(change.now);
    change.put_row(inode, row);
    let after = (change.row(source)?.attributes(source), change.row(target)?.attributes(target));
    Ok((Changed { before: before.0, after: after.0 }, Changed { before: before.1, after: after.1 }, orphan))
}

pub fn link(
    change: &mut Change<'_>,
    numbers: &mut Numbers,
    caller: &Caller,
    inode: Inode,
    parent: Inode,
    name: &[u8],
    clock: Compliance,
) -> Result<Entry> {
    let mut file = change.row(inode.0)?;
    let (mut row, before, found) = enter(change, caller, parent, name)?;
    if found.is_some() {
        return Err(FileError::Exists);
    }
    may_gain(caller, &before)?;
    match () {
        () if file.is_directory() => return Err(FileError::NotOwner),
        () if file.links == 0 => return Err(FileError::NotFound),
        () if file.links >= LINKS_MAX => return Err(FileError::TooManyLinks),
        () => {}
    }
    unretained(&file, clock, "linked")?;
    if file.committed.is_some() {
        return Err(FileError::ReadOnly("a committed file gets no further name".into()));
    }
    let cookie = numbers.take(change);
    let name = add_entry(change, cookie, (parent.0, &mut row), name, inode.0)?;
    let after = row.attributes(parent.0);
    change.put_row(parent.0, row);
    file.links += 1;
    file.names.push(name);
    file.alter(change.now);
    let made = file.attributes(inode.0);
    change.put_row(inode.0, file);
    Ok(Entry { file: made, directory: Changed { before, after } })
}

/// The row after changes of attributes that the caller may make. Size and retention are left to
/// others.
pub fn set_attributes(row: &InodeRow, caller: &Caller, changes: &Changes, now: Moment) -> Result<InodeRow> {
    let mut new = row.clone();
    if !changes.is_empty() {
        new.show(&rules::changed(caller, &row.attributes(0), changes, now)?);
        new.lags = None;
    }
    Ok(new)
}

/// The records of a new share: its root directory. `restoring`: versions are to follow, and their
/// numbers lie below this one.
pub fn plant(change: &mut Change<'_>, owner: (u32, u32), mode: u32, restoring: Option<u64>) {
    let now = change.now;
    let mut root = InodeRow::new(&Attributes {
        inode: Inode(ROOT),
        kind: Kind::Directory,
        mode: mode & 0o7777,
        links: 2,
        uid: owner.0,
        gid: owner.1,
        size: 0,
        used: 0,
        accessed: now,
        modified: now,
        changed: now,
        change: 1,
    });
    root.set_restoring(restoring.is_some());
    change.put_row(ROOT, root);
    let number = restoring.unwrap_or(0).max(NUMBER_FIRST);
    change.put_bytes(NUMBERS, share_key(change.share()), Bytes::copy_from_slice(&number.to_be_bytes()));
}

/// Gives a file that is known otherwise its name in a tree. Refuses a name that is taken.
pub fn restore(
    change: &mut Change<'_>,
    numbers: &mut Numbers,
    directory: u64,
    name: &[u8],
    inode: u64,
    mut row: InodeRow,
) -> Result<()> {
    if find(change, directory, name)?.is_some() {
        return Err(FileError::Exists);
    }
    let mut above = change.row(directory)?;
    let cookie = numbers.take(change);
    row.names = vec![add_entry(change, cookie, (directory, &mut above), name, inode)?];
    above.links += u32::from(row.is_directory());
    change.put_row(directory, above);
    let committed = row.committed.is_some();
    change.put_row(inode, row);
    if committed {
        count(change, directory)?;
    }
    Ok(())
}

/// The path of a file from the root, by its first name, with `/` between names.
pub fn path(view: &mut View, inode: u64) -> Result<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut child = inode;
    while child != ROOT {
        let name = view.row(child)?.names.first().copied().ok_or(FileError::Stale)?;
        let key = numbered_key(view.share, name.directory, name.cookie);
        let bytes = view.get(COOKIES, &key)?.ok_or(FileError::Stale)?;
        parts.push(super::records::decode::<CookieRow>(COOKIES, &key, &bytes)?.name);
        child = name.directory;
    }
    parts.reverse();
    Ok(parts.join(&b'/'))
}
