//! The calls of protocols, each a few steps on the share.

use bytes::Bytes;

use super::around::{Watched, guarded};
use super::records::{self, ROOT};
use super::tree::{self, Created};
use super::warming::Wanted;
use super::{ATTRIBUTES_MAX, Share, releasing};
use crate::files::{Changed, Creation, Data, Entry, Files, Listing, Node, Removal, Space, Stability};
use crate::model::{Access, Attributes, Caller, Changes, Inode, Moment};
use crate::permission::{granted, may_read};
use crate::rules;
use crate::{FileError, Result};

impl Files for Share {
    fn root(&self) -> Inode {
        Inode(ROOT)
    }

    fn verifier(&self) -> [u8; 8] {
        self.verifier
    }

    async fn attributes(&self, inode: Inode) -> Result<Attributes> {
        self.warm(Wanted::File(inode)).await;
        self.step(|core| core.living(inode))
    }

    async fn set_attributes(
        &self,
        caller: &Caller,
        inode: Inode,
        changes: Changes,
        guard: Option<Moment>,
    ) -> Result<Changed> {
        self.warm(Wanted::File(inode)).await;
        let before = self.step(|core| core.living(inode))?;
        guarded(guard, &before)?;
        self.set_checked(caller, inode, before, changes, guard).await
    }

    async fn lookup(&self, caller: &Caller, directory: Inode, name: &[u8]) -> Result<Attributes> {
        self.warm(Wanted::Name(directory, name)).await;
        self.step(|core| {
            core.living(directory)?;
            let inode = tree::lookup(&mut core.view, caller, directory, name)?;
            core.attributes(inode.0)
        })
    }

    async fn access(&self, caller: &Caller, inode: Inode, wanted: Access) -> Result<Access> {
        self.warm(Wanted::File(inode)).await;
        self.step(|core| {
            let mut access = granted(caller, &core.living(inode)?, wanted);
            let row = core.view.row(inode.0)?;
            if row.committed.is_some() {
                // Clients ask for both before they append. The write itself tells them apart.
                let grows = self.grows(&row);
                access.modify &= grows;
                access.extend &= grows;
            }
            Ok(access)
        })
    }

    async fn read_link(&self, _caller: &Caller, inode: Inode) -> Result<Bytes> {
        self.warm(Wanted::File(inode)).await;
        self.step(|core| {
            core.living(inode)?;
            let row = core.view.row(inode.0)?;
            row.target.clone().map(Bytes::from).ok_or_else(|| FileError::Invalid("this is not a symbolic link".into()))
        })
    }

    async fn read(&self, caller: &Caller, inode: Inode, offset: u64, length: u32) -> Result<Data> {
        self.warm(Wanted::Content(inode, offset, u64::from(length))).await;
        self.read_content(caller, inode, offset, length).await
    }

    async fn write(
        &self,
        caller: &Caller,
        inode: Inode,
        offset: u64,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> Result<(Changed, Stability)> {
        let length = data.iter().map(Bytes::len).sum::<usize>() as u64;
        self.warm(Wanted::Content(inode, offset, length)).await;
        self.write_content(caller, inode, Some(offset), data, stability).await
    }

    async fn append(
        &self,
        caller: &Caller,
        inode: Inode,
        data: Vec<Bytes>,
        stability: Stability,
    ) -> Result<(Changed, Stability)> {
        let end = self.attributes(inode).await?.size;
        let length = data.iter().map(Bytes::len).sum::<usize>() as u64;
        self.warm(Wanted::Content(inode, end, length)).await;
        self.write_content(caller, inode, None, data, stability).await
    }

    async fn commit(&self, inode: Inode) -> Result<Attributes> {
        if self.step(|core| Ok(core.living(inode)?.kind))? == crate::Kind::File {
            self.settle(inode.0, false).await?;
        }
        self.step(|core| core.attributes(inode.0))
    }

    async fn create(&self, caller: &Caller, directory: Inode, name: &[u8], how: Creation) -> Result<Entry> {
        self.warm(Wanted::Name(directory, name)).await;
        self.alive(&[directory])?;
        let created =
            self.change(|change, numbers| tree::create(change, numbers, caller, directory, name, &how)).await?;
        match created {
            Created::New(entry) => {
                self.note_active(entry.file.inode.0)?;
                Ok(entry)
            }
            Created::Kept(mut entry, size) => {
                let inode = entry.file.inode;
                if let Some(size) = size {
                    let changes = Changes { size: Some(size), ..Changes::default() };
                    self.set_attributes(caller, inode, changes, None).await?;
                }
                entry.file = self.step(|core| core.attributes(inode.0))?;
                Ok(entry)
            }
        }
    }

    async fn make(
        &self,
        caller: &Caller,
        directory: Inode,
        name: &[u8],
        node: Node,
        changes: Changes,
    ) -> Result<Entry> {
        self.warm(Wanted::Name(directory, name)).await;
        self.alive(&[directory])?;
        self.change(|change, numbers| tree::make(change, numbers, caller, directory, name, &node, &changes)).await
    }

    async fn remove(&self, caller: &Caller, directory: Inode, name: &[u8], what: Removal) -> Result<Changed> {
        self.warm(Wanted::Name(directory, name)).await;
        self.alive(&[directory])?;
        for _ in 0..releasing::ATTEMPTS {
            let released = self.released(caller, &[(directory, name)]).await?;
            let clock = self.compliance();
            let removed = self.change(|change, _| match released.covers(change, caller, (directory, name))? {
                true => tree::remove(change, caller, directory, name, what, clock).map(Some),
                false => Ok(None),
            });
            if let Some((changed, inode)) = removed.await? {
                self.note_unnamed(inode)?;
                return Ok(changed);
            }
        }
        Err(releasing::moved())
    }

    async fn rename(&self, caller: &Caller, from: (Inode, &[u8]), to: (Inode, &[u8])) -> Result<(Changed, Changed)> {
        self.warm(Wanted::Name(from.0, from.1)).await;
        self.warm(Wanted::Name(to.0, to.1)).await;
        self.alive(&[from.0, to.0])?;
        for _ in 0..releasing::ATTEMPTS {
            // Both names go: the one that is moved, and the one that is replaced.
            let released = self.released(caller, &[from, to]).await?;
            let clock = self.compliance();
            let renamed = self.change(|change, numbers| {
                match released.covers(change, caller, from)? && released.covers(change, caller, to)? {
                    true => tree::rename(change, numbers, caller, from, to, clock).map(Some),
                    false => Ok(None),
                }
            });
            if let Some((source, target, orphan)) = renamed.await? {
                if let Some(inode) = orphan {
                    self.note_unnamed(inode)?;
                }
                return Ok((source, target));
            }
        }
        Err(releasing::moved())
    }

    async fn link(&self, caller: &Caller, inode: Inode, directory: Inode, name: &[u8]) -> Result<Entry> {
        self.warm(Wanted::Name(directory, name)).await;
        self.alive(&[inode, directory])?;
        let clock = self.compliance();
        let linking = self.change(|change, numbers| tree::link(change, numbers, caller, inode, directory, name, clock));
        let mut entry = linking.await?;
        entry.file = self.step(|core| core.attributes(inode.0))?;
        Ok(entry)
    }

    async fn read_directory(&self, caller: &Caller, directory: Inode, cookie: u64, limit: usize) -> Result<Listing> {
        self.warm(Wanted::Names(directory, cookie, limit)).await;
        self.step(|core| {
            let attributes = core.living(directory)?;
            if attributes.kind != crate::Kind::Directory {
                return Err(FileError::NotDirectory);
            }
            may_read(caller, &attributes)?;
            let mut listing = tree::list(&mut core.view, directory, cookie, limit)?;
            for entry in &mut listing.entries {
                entry.attributes = core.attributes(entry.attributes.inode.0)?;
            }
            Ok(listing)
        })
    }

    async fn space(&self) -> Result<Space> {
        let space = self.archive.space();
        let segment = space.segment_bytes;
        Ok(Space {
            total: u64::from(space.segments) * segment,
            free: u64::from(space.free) * segment,
            files_total: 1 << 32,
            files_free: (1 << 32) - 1,
        })
    }

    async fn attribute(&self, caller: &Caller, inode: Inode, name: &[u8]) -> Result<Bytes> {
        if name == b"user.stele.state" {
            self.alive(&[inode])?;
            let state = self.state(inode).map_err(|error| match error {
                FileError::Invalid(_) => FileError::NoAttribute,
                other => other,
            })?;
            return Ok(Bytes::from_static(state.word(self.archive.compliance_time()).as_bytes()));
        }
        self.step(|core| {
            let attributes = core.living(inode)?;
            rules::check_extended_name(name)?;
            may_read(caller, &attributes)?;
            let row = core.view.row(inode.0)?;
            let value = row.attributes.get(&records::ByteString(name.to_vec()));
            value.map(|value| Bytes::copy_from_slice(&value.0)).ok_or(FileError::NoAttribute)
        })
    }

    async fn attribute_names(&self, _caller: &Caller, inode: Inode) -> Result<Vec<Bytes>> {
        self.step(|core| {
            core.living(inode)?;
            let row = core.view.row(inode.0)?;
            Ok(row.attributes.keys().map(|name| Bytes::copy_from_slice(&name.0)).collect())
        })
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        inode: Inode,
        name: &[u8],
        value: Option<Bytes>,
        must_exist: Option<bool>,
    ) -> Result<Changed> {
        self.step(|core| core.living(inode))?;
        rules::check_extended_name(name)?;
        if name.starts_with(b"user.stele.") {
            return Err(FileError::NotSupported);
        }
        self.change_watched(Watched::new(inode, None), |change, _| {
            let mut row = change.row(inode.0)?;
            rules::may_extend(caller, &row.attributes(inode.0))?;
            if row.committed.is_some() {
                return Err(FileError::ReadOnly("the file is committed; its attributes cannot change".into()));
            }
            let key = records::ByteString(name.to_vec());
            match (row.attributes.contains_key(&key), must_exist, &value) {
                (false, _, None) | (false, Some(true), _) => return Err(FileError::NoAttribute),
                (true, Some(false), _) => return Err(FileError::Exists),
                (_, _, Some(value)) => drop(row.attributes.insert(key, records::ByteString(value.to_vec()))),
                (true, _, None) => drop(row.attributes.remove(&key)),
            }
            let size: usize = row.attributes.iter().map(|(name, value)| name.0.len() + value.0.len()).sum();
            if size > ATTRIBUTES_MAX {
                return Err(FileError::TooManyAttributes);
            }
            row.alter(change.now);
            change.put_row(inode.0, row);
            Ok(())
        })
        .await
    }

    async fn opened(&self, inode: Inode, writes: bool) -> Result<()> {
        self.step(|core| {
            core.living(inode)?;
            if writes && core.committing.contains(&inode.0) {
                return Err(FileError::Retry("the file is being committed; try again".into()));
            }
            let users = core.users.entry(inode.0).or_default();
            users.all += 1;
            users.writers += u32::from(writes);
            core.note_use(inode.0);
            Ok(())
        })
    }

    async fn closed(&self, inode: Inode, writes: bool) {
        let mut core = self.locked();
        if let Some(users) = core.users.get_mut(&inode.0) {
            users.all = users.all.saturating_sub(1);
            users.writers = users.writers.saturating_sub(u32::from(writes));
            if users.all == 0 {
                core.users.remove(&inode.0);
                core.note_use(inode.0);
            }
        }
    }
}

impl Share {
    /// Refuses handles of files that are gone.
    fn alive(&self, inodes: &[Inode]) -> Result<()> {
        self.step(|core| inodes.iter().try_for_each(|inode| core.living(*inode).map(drop)))
    }

    /// A file has lost a name: if it was the last one, it is to be cleared away.
    pub(super) fn note_unnamed(&self, inode: u64) -> Result<()> {
        self.step(|core| {
            match core.view.row(inode) {
                Ok(row) if row.links == 0 => {
                    core.orphans.insert(inode);
                    core.note_use(inode);
                    core.deactivate(inode);
                }
                _ => {}
            }
            Ok(())
        })
    }
}
