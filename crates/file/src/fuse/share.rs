//! What FUSE asks, in calls of [`Files`]: the checks that the kernel leaves to open files, and
//! nothing else.
//!
//! The kernel checks permissions when a file is opened and then no more, as POSIX says. Reads and
//! writes of open files therefore run as root; what retention forbids holds for root too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fuser::INodeNo;

use super::convert::{Numbers, moment};
use super::dos;
use super::locking::Locking;
use super::opened::Opened;
use crate::permission::{may_execute, may_read, may_write, owns};
use crate::{
    Access, Attributes, Caller, Changes, Creation, DirectoryEntry, FileError, Files, Inode, Kind, Node, Removal,
    Result, SetTime, Sought, Stability,
};

/// While the gateway waits for the archive, a call is repeated this often.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// After so long the caller gets EAGAIN: what it waits for may take long, and so may each call.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a change of read-only waits for a file that the mount has open for writing. The kernel
/// lets no write to the file pass meanwhile. Samba serves a client with one process, so the close
/// that would end the wait may wait behind it. The kernel tells of a close a moment later than its
/// caller learns of it.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// The attribute with the state of a file, and its value while a retention keeps the file.
const STATE: &[u8] = b"user.stele.state";
const LOCKED: &[u8] = b"locked";
/// The kernel's mark for a file that is opened to be run.
const OPEN_TO_RUN: i32 = 0x20;
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
/// Everyone may search.
const SEARCHABLE: u32 = 0o111;

/// The call, repeated while the gateway asks for patience.
macro_rules! patiently {
    ($call:expr) => {
        $crate::fuse::share::patiently!($call, $crate::fuse::share::PATIENCE)
    };
    ($call:expr, $patience:expr) => {{
        let began = tokio::time::Instant::now();
        loop {
            match $call.await {
                Err($crate::FileError::Retry(_)) if began.elapsed() < $patience => {
                    tokio::time::sleep($crate::fuse::share::RETRY_PAUSE).await;
                }
                result => break result,
            }
        }
    }};
}
pub(super) use patiently;

pub(super) struct Share<F> {
    pub(super) files: Arc<F>,
    pub(super) numbers: Numbers,
    pub(super) opened: Opened,
    /// None: the kernel keeps locks.
    pub(super) locking: Option<Locking>,
    /// How long the kernel keeps attributes and entries; zero keeps nothing.
    pub(super) cache: Duration,
    pub(super) dos_attributes: bool,
    /// Every change is refused.
    pub(super) read_only: Arc<AtomicBool>,
}

/// How a file is opened.
#[derive(Clone, Copy)]
pub(super) struct Opening {
    reads: bool,
    pub(super) writes: bool,
    runs: bool,
    cuts: bool,
    exclusive: bool,
}

impl Opening {
    pub(super) fn of(flags: i32) -> Opening {
        let mode = flags & libc::O_ACCMODE;
        Opening {
            reads: mode != libc::O_WRONLY,
            writes: mode != libc::O_RDONLY,
            runs: flags & OPEN_TO_RUN != 0,
            cuts: flags & libc::O_TRUNC != 0,
            exclusive: flags & libc::O_EXCL != 0,
        }
    }

    fn check(self, caller: &Caller, file: &Attributes) -> Result<()> {
        if self.runs {
            may_execute(caller, file)?;
        } else if self.reads {
            may_read(caller, file)?;
        }
        if self.writes || self.cuts {
            may_write(caller, file)?;
        }
        Ok(())
    }
}

impl<F: Files> Share<F> {
    pub(super) fn inode(&self, number: INodeNo) -> Inode {
        self.numbers.inode(number)
    }

    /// Refuses a change of a mount that is for reading only now.
    fn changeable(&self) -> Result<()> {
        match self.read_only.load(Ordering::Relaxed) {
            true => Err(FileError::ReadOnly("the share is open for reading only".into())),
            false => Ok(()),
        }
    }

    /// `.` names any file by its number, for exports through the kernel's NFS server.
    pub(super) async fn lookup(&self, caller: &Caller, directory: Inode, name: &[u8]) -> Result<Attributes> {
        match name {
            b"." => patiently!(self.files.attributes(directory)),
            name => patiently!(self.files.lookup(caller, directory, name)),
        }
    }

    /// How long the kernel may keep an entry of the directory. It does not ask this share about an
    /// entry that it keeps. So it keeps none that only some users may search for.
    pub(super) async fn keeps_entries(&self, directory: Inode) -> Duration {
        if self.cache.is_zero() {
            return Duration::ZERO;
        }
        match self.files.attributes(directory).await {
            Ok(directory) if directory.mode & SEARCHABLE == SEARCHABLE => self.cache,
            _ => Duration::ZERO,
        }
    }

    pub(super) async fn set_attributes(
        &self,
        caller: &Caller,
        inode: Inode,
        changes: Changes,
        through_open_file: bool,
    ) -> Result<Attributes> {
        self.changeable()?;
        let changes = self.with_date(caller, inode, changes).await?;
        let size = changes.size.is_some();
        let one_now = match (changes.accessed, changes.modified) {
            (Some(SetTime::Now), None) | (None, Some(SetTime::Now)) => !size,
            _ => false,
        };
        if size && !through_open_file || one_now {
            let file = patiently!(self.files.attributes(inode))?;
            if size {
                may_write(caller, &file)?;
            }
            if one_now {
                // `utimensat` lets others than the owner set both times to now, but not one of
                // them.
                owns(caller, &file)?;
            }
        }
        let commits = changes.mode.is_some_and(|mode| mode & dos::WRITE_BITS == 0);
        let patience = if commits { self.patience_to_commit(inode) } else { PATIENCE };
        let set = patiently!(self.files.set_attributes(caller, inode, changes.clone(), None), patience);
        if matches!(set, Err(FileError::Denied)) && size && through_open_file {
            // The opener may still cut it, whatever the mode says by now.
            let file = patiently!(self.files.attributes(inode))?;
            let mode = Some(without_set_ids(file.mode)).filter(|mode| *mode != file.mode);
            let cut = Changes { size: changes.size, mode, ..Changes::default() };
            return Ok(patiently!(self.files.set_attributes(&Caller::ROOT, inode, cut.clone(), None))?.after);
        }
        Ok(set?.after)
    }

    /// How long a call may take that perhaps commits the file.
    fn patience_to_commit(&self, inode: Inode) -> Duration {
        if self.opened.has_writers(inode) { CLOSE_PATIENCE } else { PATIENCE }
    }

    /// Over Samba a date to come is the end of a retention, and its owner's to set or to change.
    /// Of a request with read-only and a date Samba sets read-only first. So a date that is set on
    /// a read-only file names its mode again, and thereby commits it.
    async fn with_date(&self, caller: &Caller, inode: Inode, changes: Changes) -> Result<Changes> {
        let (true, Some(SetTime::At(date))) = (self.dos_attributes, changes.accessed) else { return Ok(changes) };
        let (file, now) = (patiently!(self.files.attributes(inode))?, moment(SystemTime::now()));
        if file.kind != Kind::File || date.max(file.accessed) <= now {
            return Ok(changes);
        }
        if date != file.accessed && owns(caller, &file).is_err() {
            // EROFS: after EPERM and EACCES Samba asks again as root.
            return Err(FileError::ReadOnly("only the owner of a file sets the end of its retention".into()));
        }
        let commits = date > now && changes.mode.is_none() && file.mode & dos::WRITE_BITS == 0;
        Ok(Changes { mode: if commits { Some(file.mode) } else { changes.mode }, ..changes })
    }

    pub(super) async fn open(&self, caller: &Caller, inode: Inode, how: Opening) -> Result<()> {
        if how.writes || how.cuts {
            self.changeable()?;
        }
        let file = patiently!(self.files.attributes(inode))?;
        how.check(caller, &file)?;
        self.add_opening(inode, how.writes).await?;
        if how.cuts {
            let cut = Changes { size: Some(0), ..Changes::default() };
            if let Err(error) = patiently!(self.files.set_attributes(caller, inode, cut.clone(), None)) {
                self.close(inode, how.writes).await;
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) async fn open_directory(&self, caller: &Caller, inode: Inode) -> Result<()> {
        may_read(caller, &patiently!(self.files.attributes(inode))?)?;
        self.add_opening(inode, false).await
    }

    pub(super) async fn close(&self, inode: Inode, writes: bool) {
        self.opened.remove(inode, writes);
        self.files.closed(inode, writes).await;
    }

    /// Closes what is open: the mount is gone.
    pub(super) async fn close_all(&self) {
        if let Some(locking) = &self.locking {
            locking.release_all();
        }
        for (inode, writes) in self.opened.take_all() {
            self.files.closed(inode, writes).await;
        }
    }

    async fn add_opening(&self, inode: Inode, writes: bool) -> Result<()> {
        patiently!(self.files.opened(inode, writes))?;
        self.opened.add(inode, writes);
        Ok(())
    }

    /// Creates the file, or opens one that another client has just created.
    pub(super) async fn create(
        &self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        mode: u32,
        how: Opening,
    ) -> Result<Attributes> {
        if let Err(refusal) = self.changeable() {
            // What is there can be opened for reading.
            let Ok(file) = patiently!(self.files.lookup(caller, directory, name)) else { return Err(refusal) };
            self.open(caller, file.inode, how).await?;
            return Ok(file);
        }
        let guarded = Creation::Guarded(Changes { mode: Some(mode & 0o7777), ..Changes::default() });
        match patiently!(self.files.create(caller, directory, name, guarded.clone())) {
            Ok(entry) => {
                // Its maker may write to it, whatever its mode.
                self.add_opening(entry.file.inode, how.writes).await?;
                Ok(entry.file)
            }
            Err(FileError::Exists) if !how.exclusive => {
                let file = patiently!(self.files.lookup(caller, directory, name))?;
                if file.kind != Kind::File {
                    return Err(FileError::Exists);
                }
                self.open(caller, file.inode, how).await?;
                patiently!(self.files.attributes(file.inode))
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn make_special(
        &self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        mode: u32,
        kind: Kind,
    ) -> Result<Attributes> {
        self.changeable()?;
        let changes = Changes { mode: Some(mode & 0o7777), ..Changes::default() };
        let made = match kind {
            Kind::File => {
                let guarded = Creation::Guarded(changes);
                patiently!(self.files.create(caller, directory, name, guarded.clone()))
            }
            kind => {
                patiently!(self.files.make(caller, directory, name, Node::Special(kind), changes.clone()))
            }
        };
        Ok(made?.file)
    }

    /// A directory or a symbolic link.
    pub(super) async fn make(
        &self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        node: Node,
        changes: Changes,
    ) -> Result<Attributes> {
        self.changeable()?;
        let make = || self.files.make(caller, directory, name, node.clone(), changes.clone());
        Ok(patiently!(make())?.file)
    }

    pub(super) async fn remove(&self, caller: &Caller, directory: Inode, name: &[u8], what: Removal) -> Result<()> {
        self.changeable()?;
        patiently!(self.files.remove(caller, directory, name, what)).map(|_| ())
    }

    pub(super) async fn link(
        &self,
        caller: &Caller,
        inode: Inode,
        directory: Inode,
        name: &[u8],
    ) -> Result<Attributes> {
        self.changeable()?;
        Ok(patiently!(self.files.link(caller, inode, directory, name))?.file)
    }

    pub(super) async fn read(&self, inode: Inode, offset: u64, length: u32) -> Result<Vec<Bytes>> {
        Ok(patiently!(self.files.read(&Caller::ROOT, inode, offset, length))?.pieces)
    }

    /// As lseek(2) with SEEK_DATA or SEEK_HOLE.
    pub(super) async fn seek(&self, inode: Inode, offset: i64, whence: i32) -> Result<Option<u64>> {
        let sought = match whence {
            libc::SEEK_DATA => Sought::Data,
            libc::SEEK_HOLE => Sought::Hole,
            _ => return Err(FileError::Invalid("this finds data and holes alone".to_owned())),
        };
        let Ok(offset) = u64::try_from(offset) else { return Ok(None) };
        patiently!(self.files.seek(inode, offset, sought))
    }

    /// Whether a write goes to the end of the file, and not where the kernel says: that is the end
    /// which it knew, and another client may have appended since. With O_DIRECT the kernel sends
    /// the pieces of one write at the same time, and only their places tell their order. Pages that
    /// it keeps lie where it says.
    pub(super) fn appends(&self, flags: i32) -> bool {
        flags & (libc::O_APPEND | libc::O_DIRECT) == libc::O_APPEND && self.cache.is_zero()
    }

    /// `place`: None is the end of the file. `drops_set_ids`: the writer is none that keeps the
    /// set-id bits.
    pub(super) async fn write(
        &self,
        inode: Inode,
        place: Option<u64>,
        data: Bytes,
        flags: i32,
        drops_set_ids: bool,
    ) -> Result<()> {
        self.changeable()?;
        if drops_set_ids {
            let file = patiently!(self.files.attributes(inode))?;
            let mode = without_set_ids(file.mode);
            if mode != file.mode {
                let changes = Changes { mode: Some(mode), ..Changes::default() };
                patiently!(self.files.set_attributes(&Caller::ROOT, inode, changes.clone(), None))?;
            }
        }
        let stability = match flags {
            flags if flags & libc::O_SYNC == libc::O_SYNC => Stability::File,
            flags if flags & libc::O_DSYNC == libc::O_DSYNC => Stability::Data,
            _ => Stability::Unstable,
        };
        if stability == Stability::Unstable {
            self.opened.note_write(inode, self.files.verifier());
        }
        match place {
            Some(offset) => {
                patiently!(self.files.write(&Caller::ROOT, inode, offset, vec![data.clone()], stability))?;
            }
            None => {
                patiently!(self.files.append(&Caller::ROOT, inode, vec![data.clone()], stability))?;
            }
        }
        Ok(())
    }

    /// Makes earlier writes durable, or says that some were lost.
    pub(super) async fn commit(&self, inode: Inode) -> Result<()> {
        let verifier = self.opened.begin_commit(inode);
        if let Err(error) = patiently!(self.files.commit(inode)) {
            if let Some(verifier) = verifier {
                self.opened.note_write(inode, verifier);
            }
            return Err(error);
        }
        match verifier {
            Some(verifier) if verifier != self.files.verifier() => {
                Err(FileError::Stopped("writes before this commit were lost".into()))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn attribute(&self, caller: &Caller, inode: Inode, name: &[u8]) -> Result<Bytes> {
        let found = patiently!(self.files.attribute(caller, inode, name));
        if !self.dos_attributes || name != dos::NAME {
            return found;
        }
        let file = patiently!(self.files.attributes(inode))?;
        if file.kind != Kind::File {
            return found;
        }
        // Samba removes no file that is read-only.
        let removable = file.mode & dos::WRITE_BITS == 0 && self.has_expired(inode).await?;
        let mode = if removable { file.mode | dos::OWNER_WRITES } else { file.mode };
        match found {
            Ok(value) => Ok(dos::value_for(value, mode)),
            Err(FileError::NoAttribute) => dos::value_of(mode).ok_or(FileError::NoAttribute),
            Err(error) => Err(error),
        }
    }

    /// Whether the file is committed and its retention has ended: it can be removed, but no one can
    /// change it.
    async fn has_expired(&self, inode: Inode) -> Result<bool> {
        let modify = Access { modify: true, ..Access::default() };
        let changes = patiently!(self.files.access(&Caller::ROOT, inode, modify))?.modify;
        let state = patiently!(self.files.attribute(&Caller::ROOT, inode, STATE));
        Ok(!changes && state.is_ok_and(|state| state != LOCKED))
    }

    pub(super) async fn set_attribute(
        &self,
        caller: &Caller,
        inode: Inode,
        name: &[u8],
        value: Bytes,
        must_exist: Option<bool>,
    ) -> Result<()> {
        self.changeable()?;
        if !self.dos_attributes || name != dos::NAME {
            let set = || self.files.set_attribute(caller, inode, name, Some(value.clone()), must_exist);
            return patiently!(set()).map(|_| ());
        }
        let before = patiently!(self.files.attributes(inode))?;
        let new_mode = |file: &Attributes| dos::mode_for(&value, file.mode).filter(|_| file.kind == Kind::File);
        let is_owner = owns(caller, &before).is_ok();
        if !is_owner && new_mode(&before).is_some() {
            // EBUSY: after EPERM and EACCES Samba asks again as root, and commits another's file.
            return Err(FileError::Retry("only the owner of a file changes whether it is read-only".into()));
        }
        // The owner may clear read-only, which is a mode without write permission.
        let setter = if is_owner { &Caller::ROOT } else { caller };
        let set = || self.files.set_attribute(setter, inode, name, Some(value.clone()), must_exist);
        let file = match patiently!(set()) {
            Ok(changed) => changed.after,
            // Nothing but the mode of a committed file may change, and that only of one that can
            // grow, or is to.
            Err(FileError::ReadOnly(_)) if new_mode(&before).is_some() => before,
            Err(error) => return Err(error),
        };
        // Last, because it may commit the file.
        if let Some(mode) = new_mode(&file) {
            let changes = Changes { mode: Some(mode), ..Changes::default() };
            let patience = self.patience_to_commit(inode);
            patiently!(self.files.set_attributes(caller, inode, changes.clone(), None), patience)?;
        }
        Ok(())
    }

    pub(super) async fn remove_attribute(&self, caller: &Caller, inode: Inode, name: &[u8]) -> Result<()> {
        self.changeable()?;
        patiently!(self.files.set_attribute(caller, inode, name, None, None)).map(|_| ())
    }

    /// `is_new`: nothing may have the new name.
    pub(super) async fn rename(
        &self,
        caller: &Caller,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        is_new: bool,
    ) -> Result<()> {
        self.changeable()?;
        if is_new {
            self.check_absent(caller, to.0, to.1).await?;
        } else if self.dos_attributes {
            self.check_replaceable(caller, to.0, to.1).await?;
        }
        patiently!(self.files.rename(caller, from, to)).map(|_| ())
    }

    /// Windows replaces no read-only file, and Samba does not look. Of a committed one the
    /// retention decides.
    async fn check_replaceable(&self, caller: &Caller, directory: Inode, name: &[u8]) -> Result<()> {
        let Ok(file) = patiently!(self.files.lookup(caller, directory, name)) else { return Ok(()) };
        if file.kind != Kind::File || file.mode & dos::WRITE_BITS != 0 {
            return Ok(());
        }
        let modify = Access { modify: true, ..Access::default() };
        match patiently!(self.files.access(&Caller::ROOT, file.inode, modify))?.modify {
            true => Err(FileError::Denied),
            false => Ok(()),
        }
    }

    /// Only the kernel's own lookups make it atomic: clients of other protocols may come in
    /// between.
    async fn check_absent(&self, caller: &Caller, directory: Inode, name: &[u8]) -> Result<()> {
        match patiently!(self.files.lookup(caller, directory, name)) {
            Ok(_) => Err(FileError::Exists),
            Err(FileError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// `wanted`: bits as in a mode.
    pub(super) async fn access(&self, caller: &Caller, inode: Inode, wanted: i32) -> Result<()> {
        if wanted & libc::W_OK != 0 {
            self.changeable()?;
        }
        let file = patiently!(self.files.attributes(inode))?;
        let directory = file.kind == Kind::Directory;
        let wanted = Access {
            read: wanted & libc::R_OK != 0,
            modify: wanted & libc::W_OK != 0,
            lookup: directory && wanted & libc::X_OK != 0,
            execute: !directory && wanted & libc::X_OK != 0,
            ..Access::default()
        };
        if wanted.modify && directory {
            // Writing to a directory needs search permission in `Files`, but not in access(2).
            may_write(caller, &file)?;
        }
        let asked = Access { modify: wanted.modify && !directory, ..wanted };
        match patiently!(self.files.access(caller, inode, asked))? == asked {
            true => Ok(()),
            false => Err(FileError::Denied),
        }
    }

    pub(super) async fn list(
        &self,
        directory: Inode,
        cookie: u64,
        limit: usize,
    ) -> Result<(Vec<DirectoryEntry>, bool)> {
        let listing = patiently!(self.files.read_directory(&Caller::ROOT, directory, cookie, limit))?;
        Ok((listing.entries, listing.end))
    }

    /// The directory above, for the entry `..`; its own number if it is gone.
    pub(super) async fn parent(&self, directory: Inode) -> Inode {
        let found = self.files.lookup(&Caller::ROOT, directory, b"..").await;
        found.map(|above| above.inode).unwrap_or(directory)
    }
}

fn without_set_ids(mode: u32) -> u32 {
    let group = if mode & GROUP_EXECUTE != 0 { SET_GID } else { 0 };
    mode & !SET_UID & !group
}

#[cfg(test)]
mod tests;
