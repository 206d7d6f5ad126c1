//! The operations of FUSE: each unpacks a request, starts the call, and packs the answer.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLock, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::caller::caller;
use super::convert::{BLOCK, answer_attribute, answer_seek, errno, kind, name, set_time};
use super::listing::Listed;
use super::locking::Wanted;
use super::share::{Opening, Share, patiently};
use super::work::Work;
use super::{BACKGROUND_MAX, WRITE_MAX};
use crate::model::NAME_MAX;
use crate::{Attributes, Changes, Files, Inode, Node, Removal, Result};

/// Inode numbers are never used again.
const GENERATION: Generation = Generation(0);
/// Open files carry no number: the kernel names the inode with every request.
const HANDLE: FileHandle = FileHandle(0);

pub(super) struct Adapter<F> {
    share: Arc<Share<F>>,
    work: Work,
    /// Files opened so far: each has a handle of its own, for its locks.
    handles: AtomicU64,
}

impl<F: Files> Adapter<F> {
    pub(super) fn new(share: Share<F>, work: Work) -> Adapter<F> {
        Adapter { share: Arc::new(share), work, handles: AtomicU64::new(HANDLE.0 + 1) }
    }

    fn inode(&self, number: INodeNo) -> Inode {
        self.share.inode(number)
    }

    fn new_handle(&self) -> FileHandle {
        FileHandle(self.handles.fetch_add(1, Ordering::Relaxed))
    }

    /// Answers an entry of `directory`.
    fn entry<C: Future<Output = Result<Attributes>> + Send + 'static>(
        &self,
        reply: ReplyEntry,
        directory: Inode,
        call: impl FnOnce(Arc<Share<F>>) -> C + Send + 'static,
    ) {
        let share = self.share.clone();
        self.work.start(async move {
            match call(share.clone()).await {
                Ok(file) => {
                    let keep = share.keeps_entries(directory).await;
                    reply.entry_with_ttls(&share.cache, &keep, &share.numbers.attributes(&file), GENERATION);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    /// Answers whether it worked.
    fn empty<C: Future<Output = Result<()>> + Send + 'static>(
        &self,
        reply: ReplyEmpty,
        call: impl FnOnce(Arc<Share<F>>) -> C,
    ) {
        let call = call(self.share.clone());
        self.work.start(async move {
            match call.await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    /// Answers with attributes.
    fn attributes<C: Future<Output = Result<Attributes>> + Send + 'static>(
        &self,
        reply: ReplyAttr,
        call: impl FnOnce(Arc<Share<F>>) -> C,
    ) {
        let share = self.share.clone();
        let call = call(share.clone());
        self.work.start(async move {
            match call.await {
                Ok(file) => reply.attr(&share.cache, &share.numbers.attributes(&file)),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    /// Answers with a value of extended attributes, or its size.
    fn value<C: Future<Output = Result<Bytes>> + Send + 'static>(
        &self,
        reply: ReplyXattr,
        size: u32,
        call: impl FnOnce(Arc<Share<F>>) -> C,
    ) {
        let call = call(self.share.clone());
        self.work.start(async move {
            match call.await {
                Ok(value) if size == 0 => reply.size(value.len() as u32),
                Ok(value) if value.len() <= size as usize => reply.data(&value),
                Ok(_) => reply.error(Errno::ERANGE),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn open_flags(&self) -> FopenFlags {
        match self.share.cache.is_zero() {
            true => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            false => FopenFlags::empty(),
        }
    }
}

impl<F: Files> Filesystem for Adapter<F> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO;
        wanted |= match self.share.cache.is_zero() {
            true => InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            false => {
                InitFlags::FUSE_AUTO_INVAL_DATA | InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO
            }
        };
        if self.share.locking.is_some() {
            wanted |= InitFlags::FUSE_POSIX_LOCKS;
        }
        // An older kernel does without; nothing depends on any of them for correctness of content.
        let able = config.capabilities();
        config.add_capabilities(wanted & able).map_err(|_| io::ErrorKind::Unsupported)?;
        config.set_max_write(WRITE_MAX).map_err(|_| io::ErrorKind::InvalidInput)?;
        config.set_max_background(BACKGROUND_MAX).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(())
    }

    fn destroy(&mut self) {
        let share = self.share.clone();
        self.work.start(async move { share.close_all().await });
    }

    fn lookup(&self, request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEntry) {
        let (caller, parent, entry) = (caller(request), self.inode(parent), name(entry));
        self.entry(reply, parent, move |share| async move { share.lookup(&caller, parent, &entry).await });
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let inode = self.inode(inode);
        self.attributes(reply, |share| async move { patiently!(share.files.attributes(inode)) });
    }

    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (caller, inode) = (caller(request), self.inode(inode));
        let mode = mode.map(|mode| mode & 0o7777);
        let (accessed, modified) = (accessed.map(set_time), modified.map(set_time));
        let changes = Changes { mode, uid, gid, size, accessed, modified };
        self.attributes(
            reply,
            |share| async move { share.set_attributes(&caller, inode, changes, handle.is_some()).await },
        );
    }

    fn readlink(&self, request: &Request, inode: INodeNo, reply: ReplyData) {
        let (caller, inode, share) = (caller(request), self.inode(inode), self.share.clone());
        self.work.start(async move {
            match patiently!(share.files.read_link(&caller, inode)) {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        entry: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let (caller, parent, entry) = (caller(request), self.inode(parent), name(entry));
        let Some(kind) = kind(mode, device) else { return reply.error(Errno::EINVAL) };
        self.entry(
            reply,
            parent,
            move |share| async move { share.make_special(&caller, parent, &entry, mode, kind).await },
        );
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, entry: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let (caller, parent, entry) = (caller(request), self.inode(parent), name(entry));
        let changes = Changes { mode: Some(mode & 0o7777), ..Changes::default() };
        self.entry(reply, parent, move |share| async move {
            share.make(&caller, parent, &entry, Node::Directory, changes).await
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, entry: &OsStr, target: &Path, reply: ReplyEntry) {
        let (caller, parent, entry) = (caller(request), self.inode(parent), name(entry));
        let target = Bytes::copy_from_slice(target.as_os_str().as_bytes());
        self.entry(reply, parent, move |share| async move {
            share.make(&caller, parent, &entry, Node::Link { target }, Changes::default()).await
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEmpty) {
        let (caller, parent, entry) = (caller(request), self.inode(parent), name(entry));
        self.empty(reply, |share| async move { share.remove(&caller, parent, &entry, Removal::File).await });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, entry: &OsStr, reply: ReplyEmpty) {
        let (caller, parent, entry) = (caller(request), self.inode(parent), name(entry));
        self.empty(reply, |share| async move { share.remove(&caller, parent, &entry, Removal::Directory).await });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        entry: &OsStr,
        new_parent: INodeNo,
        new_entry: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let caller = caller(request);
        let (from, to) = ((self.inode(parent), name(entry)), (self.inode(new_parent), name(new_entry)));
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            // Exchange and whiteout.
            return reply.error(Errno::EINVAL);
        }
        self.empty(reply, |share| async move {
            share.rename(&caller, (from.0, &from.1), (to.0, &to.1), !flags.is_empty()).await
        });
    }

    fn link(&self, request: &Request, inode: INodeNo, parent: INodeNo, entry: &OsStr, reply: ReplyEntry) {
        let (caller, inode) = (caller(request), self.inode(inode));
        let (parent, entry) = (self.inode(parent), name(entry));
        self.entry(reply, parent, move |share| async move { share.link(&caller, inode, parent, &entry).await });
    }

    fn open(&self, request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (caller, inode, share) = (caller(request), self.inode(inode), self.share.clone());
        let (handle, open_flags) = (self.new_handle(), self.open_flags());
        self.work.start(async move {
            match share.open(&caller, inode, Opening::of(flags.0)).await {
                Ok(()) => reply.opened(handle, open_flags),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        entry: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (caller, parent, entry) = (caller(request), self.inode(parent), name(entry));
        let (share, handle, open_flags) = (self.share.clone(), self.new_handle(), self.open_flags());
        self.work.start(async move {
            match share.create(&caller, parent, &entry, mode, Opening::of(flags)).await {
                Ok(file) => {
                    let keep = share.keeps_entries(parent).await;
                    reply.created(&keep, &share.numbers.attributes(&file), GENERATION, handle, open_flags);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (inode, share) = (self.inode(inode), self.share.clone());
        self.work.start_on(inode.0, 0, async move {
            match share.read(inode, offset, size).await {
                // fuser takes one slice.
                Ok(pieces) => match pieces.as_slice() {
                    [piece] => reply.data(piece),
                    pieces => reply.data(&pieces.concat()),
                },
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (inode, share) = (self.inode(inode), self.share.clone());
        // The buffer belongs to the reader of requests.
        let data = Bytes::copy_from_slice(data);
        let drops_set_ids = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let appends = !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) && share.appends(flags.0);
        let place = if appends { None } else { Some(offset) };
        self.work.start_on(inode.0, data.len(), async move {
            let length = data.len() as u32;
            match share.write(inode, place, data, flags.0, drops_set_ids).await {
                Ok(()) => reply.written(length),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn flush(&self, _: &Request, inode: INodeNo, _: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        if let Some(locking) = &self.share.locking {
            locking.closed_by(self.inode(inode), owner.0);
        }
        // Every write has reached the gateway already; close(2) promises no durability.
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let inode = self.inode(inode);
        self.empty(reply, |share| async move { share.commit(inode).await });
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let (inode, writes) = (self.inode(inode), Opening::of(flags.0).writes);
        if let Some(locking) = &self.share.locking {
            locking.released(inode, handle.0);
        }
        self.empty(reply, |share| async move {
            share.close(inode, writes).await;
            Ok(())
        });
    }

    fn opendir(&self, request: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let (caller, inode, share) = (caller(request), self.inode(inode), self.share.clone());
        self.work.start(async move {
            match share.open_directory(&caller, inode).await {
                Ok(()) => reply.opened(HANDLE, FopenFlags::empty()),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, place: u64, mut reply: ReplyDirectory) {
        let (inode, share) = (self.inode(inode), self.share.clone());
        self.work.start(async move {
            let numbers = share.numbers;
            let add = |(inode, place, kind, name, _): Listed| {
                reply.add(numbers.number(inode), place, kind, OsStr::from_bytes(&name))
            };
            match share.fill(inode, place, add).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn readdirplus(&self, _: &Request, inode: INodeNo, _: FileHandle, place: u64, mut reply: ReplyDirectoryPlus) {
        let (directory, share) = (self.inode(inode), self.share.clone());
        self.work.start(async move {
            let keep = share.keeps_entries(directory).await;
            let Ok(dot) = patiently!(share.files.attributes(directory)) else {
                return reply.error(Errno::ESTALE);
            };
            let numbers = share.numbers;
            let add = |(inode, place, _, name, file): Listed| {
                // The kernel takes only the number of `.` and `..`.
                let attributes = numbers.attributes(file.as_ref().unwrap_or(&dot));
                reply.add(numbers.number(inode), place, OsStr::from_bytes(&name), &keep, &attributes, GENERATION)
            };
            match share.fill(directory, place, add).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn releasedir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let inode = self.inode(inode);
        self.empty(reply, |share| async move {
            share.close(inode, false).await;
            Ok(())
        });
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // Every change of a directory is durable when it is answered.
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let share = self.share.clone();
        self.work.start(async move {
            match patiently!(share.files.space()) {
                Ok(space) => {
                    let (total, free) = (space.total / u64::from(BLOCK), space.free / u64::from(BLOCK));
                    let (files, files_free) = (space.files_total, space.files_free);
                    reply.statfs(total, free, free, files, files_free, BLOCK, NAME_MAX as u32, BLOCK);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        inode: INodeNo,
        entry: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (caller, inode, entry) = (caller(request), self.inode(inode), name(entry));
        let value = Bytes::copy_from_slice(value);
        let must_exist = match flags {
            libc::XATTR_CREATE => Some(false),
            libc::XATTR_REPLACE => Some(true),
            0 => None,
            _ => return reply.error(Errno::EINVAL),
        };
        let share = self.share.clone();
        self.work.start(async move {
            answer_attribute(reply, share.set_attribute(&caller, inode, &entry, value, must_exist).await);
        });
    }

    fn getxattr(&self, request: &Request, inode: INodeNo, entry: &OsStr, size: u32, reply: ReplyXattr) {
        let (caller, inode, entry) = (caller(request), self.inode(inode), name(entry));
        self.value(reply, size, |share| async move { share.attribute(&caller, inode, &entry).await });
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let (caller, inode) = (caller(request), self.inode(inode));
        self.value(reply, size, |share| async move {
            let names = patiently!(share.files.attribute_names(&caller, inode))?;
            Ok(names.iter().flat_map(|name| [&name[..], &[0]]).flatten().copied().collect())
        });
    }

    fn removexattr(&self, request: &Request, inode: INodeNo, entry: &OsStr, reply: ReplyEmpty) {
        let (caller, inode, entry) = (caller(request), self.inode(inode), name(entry));
        let share = self.share.clone();
        self.work.start(async move {
            answer_attribute(reply, share.remove_attribute(&caller, inode, &entry).await);
        });
    }

    fn access(&self, request: &Request, inode: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let (caller, inode) = (caller(request), self.inode(inode));
        self.empty(reply, |share| async move { share.access(&caller, inode, mask.bits()).await });
    }

    fn getlk(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        kind: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        let Some(locking) = &self.share.locking else { return reply.error(Errno::ENOSYS) };
        match locking.test(Wanted { inode: self.inode(inode), owner: owner.0, first, last, kind }) {
            // The processes of other machines have no number here.
            Ok(Some((first, last, kind))) => reply.locked(first, last, kind, 0),
            Ok(None) => reply.locked(first, last, libc::F_UNLCK, 0),
            Err(error) => reply.error(error),
        }
    }

    fn setlk(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        first: u64,
        last: u64,
        kind: i32,
        _: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let wanted = Wanted { inode: self.inode(inode), owner: owner.0, first, last, kind };
        let (share, waits) = (self.share.clone(), waits.then(|| request.pid()));
        self.work.start(async move {
            let Some(locking) = &share.locking else { return reply.error(Errno::ENOSYS) };
            match locking.set(handle.0, wanted, waits).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(error),
            }
        });
    }

    fn lseek(&self, _: &Request, inode: INodeNo, _: FileHandle, at: i64, whence: i32, reply: fuser::ReplyLseek) {
        let (inode, share) = (self.inode(inode), self.share.clone());
        self.work.start(async move { answer_seek(reply, share.seek(inode, at, whence).await) });
    }

    // Not supported. ENOSYS makes the kernel answer for us and ask no more: fallocate(2) gets
    // EOPNOTSUPP, copy_file_range(2) copies through memory.

    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
