//! Names, directories and attributes: the rules of POSIX, each call one change of the view.
//!
//! Nothing here waits and nothing here touches content. Retention counts: a committed file keeps its name, its mode and its
//! directories until its retention has ended.

use bytes::Bytes;
use stele_catalog::KeyRange;

use super::records::{
    ACTIVE, COOKIES, CookieRow, ENTRIES, EntryRow, InodeRow, NUMBERS, NameRow, ORPHANS, ROOT, entry_key, inode_key,
    last_number, numbered_key, share_key,
};
use super::view::{Change, View};
use crate::files::{Changed, Creation, DirectoryEntry, Entry, Listing, Node, Removal};
use crate::model::{Caller, Changes, Inode, Kind, LINK_MAX, LINKS_MAX, Moment, SIZE_MAX, SetTime, check_name};
use crate::permission::{may_add, may_remove, may_search, may_write, owns};
use crate::{FileError, Result};

/// Numbers that are reserved with one record.
const NUMBERS_AHEAD: u64 = 4096;
/// The first cookie: 0 is the start of a listing, 1 and 2 are `.` and `..`.
const NUMBER_FIRST: u64 = 16;
/// Names that one directory may have: what a counter of NFS clients takes.
const ENTRIES_MAX: u64 = u32::MAX as u64;

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;

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

    fn take(&mut self, change: &mut Change<'_>) -> u64 {
        if self.next == self.reserved {
            self.reserved += NUMBERS_AHEAD;
        }
        // With every change that takes one, since an earlier one that reserved more may yet fail.
        change.put_bytes(NUMBERS, share_key(change.share()), self.stored());
        let number = self.next;
        self.next += 1;
        number
    }
}

/// A name and what it leads to.
struct Named {
    entry: EntryRow,
    row: InodeRow,
}

/// The compliance clock, in milliseconds since 1970: retention ends by it.
#[derive(Clone, Copy, Debug)]
pub struct Compliance(pub u64);

fn find(change: &mut Change<'_>, directory: u64, name: &[u8]) -> Result<Option<Named>> {
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

fn directory(change: &mut Change<'_>, inode: u64) -> Result<InodeRow> {
    let row = change.row(inode)?;
    match row.is_directory() {
        true if row.links == 0 => Err(FileError::Stale),
        true => Ok(row),
        false => Err(FileError::NotDirectory),
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

/// Adds a name to a directory whose row the caller puts afterwards.
fn add_entry(
    change: &mut Change<'_>,
    numbers: &mut Numbers,
    parent: (u64, &mut InodeRow),
    name: &[u8],
    inode: u64,
) -> Result<NameRow> {
    let (number, row) = parent;
    if row.entries >= ENTRIES_MAX {
        return Err(FileError::NoSpace);
    }
    let cookie = numbers.take(change);
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

/// A new file's owner and mode: a directory with the set-group bit hands on its group.
fn owner(caller: &Caller, parent: &InodeRow, mode: u32, is_directory: bool) -> ((u32, u32), u32) {
    match parent.mode & SET_GID != 0 {
        true => ((caller.uid, parent.gid), if is_directory { mode | SET_GID } else { mode }),
        false => ((caller.uid, caller.gid), mode),
    }
}

/// The new file with what the caller asked for beside its mode: other owners need the right to give files away.
fn with_changes(row: &mut InodeRow, caller: &Caller, changes: &Changes, now: Moment) -> Result<()> {
    if let Some(gid) = changes.gid.filter(|gid| *gid != row.gid) {
        if !caller.is_root() && !caller.is_member(gid) {
            return Err(FileError::NotOwner);
        }
        row.gid = gid;
    }
    if let Some(uid) = changes.uid.filter(|uid| *uid != row.uid) {
        if !caller.is_root() {
            return Err(FileError::NotOwner);
        }
        row.uid = uid;
    }
    if let Some(time) = changes.accessed {
        row.accessed = at(time, now).into();
    }
    if let Some(time) = changes.modified {
        row.modified = at(time, now).into();
    }
    Ok(())
}

fn at(time: SetTime, now: Moment) -> Moment {
    match time {
        SetTime::Now => now,
        SetTime::At(moment) => moment,
    }
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
    check_name(name)?;
    let mut row = directory(change, parent.0)?;
    let before = row.attributes(parent.0);
    may_search(caller, &before)?;
    if let Some(there) = find(change, parent.0, name)? {
        let file = there.row.attributes(there.entry.inode);
        let unchanged = Changed { before: before.clone(), after: before };
        return match how {
            Creation::Exclusive(verifier) if there.row.verifier == Some(*verifier) => {
                Ok(Created::Kept(Entry { file, directory: unchanged }, None))
            }
            Creation::Unchecked(changes) if there.row.is_file() => {
                Ok(Created::Kept(Entry { file, directory: unchanged }, changes.size))
            }
            Creation::Unchecked(_) if there.row.is_directory() => Err(FileError::IsDirectory),
            _ => Err(FileError::Exists),
        };
    }
    may_add(caller, &before)?;
    let changes = match how {
        Creation::Unchecked(changes) | Creation::Guarded(changes) => changes.clone(),
        Creation::Exclusive(_) => Changes::default(),
    };
    let (ids, mode) = owner(caller, &row, changes.mode.unwrap_or(0o600), false);
    let mut file = InodeRow::new(Kind::File, mode, ids, change.now);
    with_changes(&mut file, caller, &changes, change.now)?;
    match changes.size {
        Some(size) if size > SIZE_MAX => return Err(FileError::TooLarge),
        size => file.size = size.unwrap_or(0),
    }
    if let Creation::Exclusive(verifier) = how {
        file.verifier = Some(*verifier);
    }
    let inode = numbers.take(change);
    file.names.push(add_entry(change, numbers, (parent.0, &mut row), name, inode)?);
    change.put_bytes(ACTIVE, inode_key(change.share(), inode), Bytes::new());
    let after = row.attributes(parent.0);
    change.put_row(parent.0, row);
    let made = file.attributes(inode);
    change.put_row(inode, file);
    Ok(Created::New(Entry { file: made, directory: Changed { before, after } }))
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
    check_name(name)?;
    let mut row = directory(change, parent.0)?;
    let before = row.attributes(parent.0);
    may_search(caller, &before)?;
    if find(change, parent.0, name)?.is_some() {
        return Err(FileError::Exists);
    }
    may_add(caller, &before)?;
    let (kind, mode) = match node {
        Node::Directory => (Kind::Directory, 0o755),
        Node::Link { target } if target.is_empty() || target.len() > LINK_MAX => return Err(FileError::NameTooLong),
        Node::Link { .. } => (Kind::Link, 0o777),
        Node::Special(Kind::File | Kind::Directory | Kind::Link) => {
            return Err(FileError::Invalid("a special file is a device, a pipe or a socket".into()));
        }
        Node::Special(kind) => (*kind, 0o600),
    };
    let is_directory = kind == Kind::Directory;
    if matches!(kind, Kind::BlockDevice { .. } | Kind::CharacterDevice { .. }) && !caller.is_root() {
        return Err(FileError::NotOwner);
    }
    if is_directory && row.links >= LINKS_MAX {
        return Err(FileError::TooManyLinks);
    }
    let (ids, mode) = owner(caller, &row, changes.mode.unwrap_or(mode), is_directory);
    let mut made = InodeRow::new(kind, mode, ids, change.now);
    if let Node::Link { target } = node {
        made.size = target.len() as u64;
        made.target = Some(target.to_vec());
    }
    with_changes(&mut made, caller, changes, change.now)?;
    let inode = numbers.take(change);
    made.names.push(add_entry(change, numbers, (parent.0, &mut row), name, inode)?);
    row.links += u32::from(is_directory);
    let after = row.attributes(parent.0);
    change.put_row(parent.0, row);
    let file = made.attributes(inode);
    change.put_row(inode, made);
    Ok(Entry { file, directory: Changed { before, after } })
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

/// Takes a name away from a file, which becomes an orphan with its last one.
fn unname(change: &mut Change<'_>, named: Named, parent: u64) -> Result<()> {
    let Named { entry, mut row } = named;
    change.with_reserve();
    if row.is_directory() {
        change.delete_row(entry.inode);
        return Ok(());
    }
    row.links = row.links.saturating_sub(1);
    row.names.retain(|name| *name != NameRow { directory: parent, cookie: entry.cookie });
    row.alter(change.now);
    if row.committed.is_some() {
        uncount(change, parent)?;
    }
    if row.links > 0 {
        change.put_row(entry.inode, row);
        return Ok(());
    }
    if !row.is_file() {
        change.delete_row(entry.inode);
        return Ok(());
    }
    // Its row stays until its content is cleared away: users may have it open.
    change.put_bytes(ORPHANS, inode_key(change.share(), entry.inode), Bytes::new());
    change.delete(ACTIVE, inode_key(change.share(), entry.inode));
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
    if name == b"." {
        return Err(FileError::Invalid("`.` cannot be removed".into()));
    }
    if name == b".." {
        return Err(FileError::NotEmpty);
    }
    check_name(name)?;
    let row = directory(change, parent.0)?;
    let before = row.attributes(parent.0);
    may_search(caller, &before)?;
    let named = find(change, parent.0, name)?.ok_or(FileError::NotFound)?;
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
    // Anew: a committed file that expired was counted in it.
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
    check_name(from.1)?;
    check_name(to.1)?;
    let (source, target) = (from.0.0, to.0.0);
    let source_before = directory(change, source)?.attributes(source);
    let target_before = directory(change, target)?.attributes(target);
    may_search(caller, &source_before)?;
    may_search(caller, &target_before)?;
    let moved = find(change, source, from.1)?.ok_or(FileError::NotFound)?;
    let replaced = find(change, target, to.1)?;
    let same = |change: &mut Change<'_>| -> Result<(Changed, Changed, Option<u64>)> {
        let source_after = change.row(source)?.attributes(source);
        let target_after = change.row(target)?.attributes(target);
        let source_changed = Changed { before: source_before.clone(), after: source_after };
        Ok((source_changed, Changed { before: target_before.clone(), after: target_after }, None))
    };
    if replaced.as_ref().is_some_and(|replaced| replaced.entry.inode == moved.entry.inode) {
        return same(change);
    }
    let inode = moved.entry.inode;
    let file = moved.row.attributes(inode);
    may_remove(caller, &source_before, &file)?;
    match &replaced {
        Some(replaced) => may_remove(caller, &target_before, &replaced.row.attributes(replaced.entry.inode))?,
        None => may_add(caller, &target_before)?,
    }
    let is_directory = moved.row.is_directory();
    unretained(&moved.row, clock, "renamed")?;
    if moved.row.committed.is_some() {
        return Err(FileError::ReadOnly("a committed file keeps its name also when its retention has ended".into()));
    }
    if is_directory {
        if source != target {
            // `..` of the moved directory changes.
            may_write(caller, &file)?;
        }
        if is_above(change, inode, target)? {
            return Err(FileError::Invalid("a directory cannot be moved into itself".into()));
        }
    }
    let mut orphan = None;
    if let Some(replaced) = replaced {
        match (is_directory, replaced.row.is_directory()) {
            (true, false) => return Err(FileError::NotDirectory),
            (false, true) => return Err(FileError::IsDirectory),
            (true, true) if replaced.row.entries > 0 => return Err(FileError::NotEmpty),
            _ => {}
        }
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
    let name = add_entry(change, numbers, (target, &mut row), to.1, inode)?;
    change.put_row(target, row);
    let mut row = change.row(inode)?;
    row.names.retain(|name| *name != NameRow { directory: source, cookie: moved.entry.cookie });
    row.names.push(name);
    row.alter(change.now);
    change.put_row(inode, row);
    let (source_changed, target_changed, _) = same(change)?;
    Ok((source_changed, target_changed, orphan))
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
    check_name(name)?;
    let mut file = change.row(inode.0)?;
    if file.is_directory() {
        return Err(FileError::NotOwner);
    }
    if file.links == 0 {
        return Err(FileError::Stale);
    }
    let mut row = directory(change, parent.0)?;
    let before = row.attributes(parent.0);
    may_search(caller, &before)?;
    if find(change, parent.0, name)?.is_some() {
        return Err(FileError::Exists);
    }
    may_add(caller, &before)?;
    unretained(&file, clock, "linked")?;
    if file.committed.is_some() {
        return Err(FileError::ReadOnly("a committed file gets no further name".into()));
    }
    if file.links >= LINKS_MAX {
        return Err(FileError::TooManyLinks);
    }
    let name = add_entry(change, numbers, (parent.0, &mut row), name, inode.0)?;
    let after = row.attributes(parent.0);
    change.put_row(parent.0, row);
    file.links += 1;
    file.names.push(name);
    file.alter(change.now);
    let made = file.attributes(inode.0);
    change.put_row(inode.0, file);
    Ok(Entry { file: made, directory: Changed { before, after } })
}

/// The rules for changing attributes, size and retention left out. Answers the new row.
pub fn set_attributes(row: &InodeRow, caller: &Caller, changes: &Changes, now: Moment) -> Result<InodeRow> {
    let file = row.attributes(0);
    let mut new = row.clone();
    if let Some(mode) = changes.mode {
        owns(caller, &file)?;
        new.mode = mode & 0o7777;
        // Only a member may give a file the rights of its group.
        if !caller.is_root() && !row.is_directory() && !caller.is_member(row.gid) {
            new.mode &= !SET_GID;
        }
    }
    let gives_away = changes.uid.is_some_and(|uid| uid != row.uid);
    let regroups = changes.gid.is_some_and(|gid| gid != row.gid);
    if gives_away && !caller.is_root() {
        return Err(FileError::NotOwner);
    }
    if regroups || changes.uid.is_some() || changes.gid.is_some() {
        owns(caller, &file)?;
        if let Some(gid) = changes.gid.filter(|_| regroups)
            && !caller.is_root()
            && !caller.is_member(gid)
        {
            return Err(FileError::NotOwner);
        }
        new.uid = changes.uid.unwrap_or(row.uid);
        new.gid = changes.gid.unwrap_or(row.gid);
        // Rights of another owner end with a change of the owner, except those that root keeps.
        if !row.is_directory() && !caller.is_root() && changes.mode.is_none() {
            new.mode &= !(SET_UID | if row.mode & 0o010 != 0 { SET_GID } else { 0 });
        }
    }
    for time in [changes.accessed, changes.modified].into_iter().flatten() {
        // A writer may set the present time; any other takes the owner.
        match time {
            SetTime::Now if owns(caller, &file).is_err() => may_write(caller, &file)?,
            SetTime::Now => {}
            SetTime::At(_) => owns(caller, &file)?,
        }
    }
    if let Some(time) = changes.accessed {
        new.accessed = at(time, now).into();
    }
    if let Some(time) = changes.modified {
        new.modified = at(time, now).into();
    }
    if !changes.is_empty() {
        new.alter(now);
    }
    Ok(new)
}

/// A caller without the right to it loses the set-id bits of a file that it writes to.
pub fn without_set_id(mode: u32, caller: &Caller) -> u32 {
    match caller.is_root() {
        true => mode,
        false => mode & !(SET_UID | if mode & 0o010 != 0 { SET_GID } else { 0 }),
    }
}

/// The records of a new share: its root directory.
pub fn plant(change: &mut Change<'_>, owner: (u32, u32), mode: u32) {
    let root = InodeRow::new(Kind::Directory, mode, owner, change.now);
    change.put_row(ROOT, root);
    change.put_bytes(NUMBERS, share_key(change.share()), Bytes::copy_from_slice(&NUMBER_FIRST.to_be_bytes()));
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
