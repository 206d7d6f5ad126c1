//! Operations on names: looking up, making, removing, renaming and linking, and SECINFO.

use bytes::Bytes;

use crate::model::LINK_MAX;
use crate::nfs::v4::compound::{At, Compound, Target};
use crate::nfs::v4::{Failure, Outcome, attributes, names, pseudo, status};
use crate::nfs::xdr::Writer;
use crate::{FileError, Files, Kind, Node, Removal};

const BLOCK: u32 = 3;
const CHARACTER: u32 = 4;
const LINK: u32 = 5;
const SOCKET: u32 = 6;
const PIPE: u32 = 7;
const DIRECTORY: u32 = 2;

const PARENT: u32 = 1;
/// The flavors that a client may use, the best one first.
const FLAVORS: [u32; 2] = [1, 0];

impl<F: Files> Compound<F> {
    pub(super) async fn lookup(&mut self) -> Outcome {
        let name = names::wanted(&mut self.arguments)?;
        let at = self.child(&name).await?;
        self.go(at);
        Ok(())
    }

    /// What a name of the current directory leads to.
    pub(super) async fn child(&self, name: &[u8]) -> Outcome<At<F>> {
        match self.at()? {
            At::Pseudo(directory) => match pseudo::lookup(&self.exports, self.peer.address.ip(), *directory, name) {
                Some(pseudo::PseudoNode::Directory(directory)) => Ok(At::Pseudo(directory)),
                Some(pseudo::PseudoNode::Export(export)) => self.enter_export(&export, None),
                None if self.awaits(*directory, name) => Err(status::DELAY.into()),
                None => Err(status::NOENT.into()),
            },
            At::File(target) => {
                let found = target.files().lookup(&target.caller, target.inode, name).await;
                match found {
                    Ok(file) => Ok(At::File(target.to(file.inode))),
                    Err(error) => Err(directory_failure(target, error).await),
                }
            }
        }
    }

    /// Whether the name is that of a share which is to open.
    fn awaits(&self, directory: u64, name: &[u8]) -> bool {
        let client = self.peer.address.ip();
        let above = pseudo::path(&self.exports, client, directory);
        above.is_some_and(|above| self.exports.awaits(&[above.as_bytes(), &b"/"[..], name].concat(), client))
    }

    pub(super) async fn lookup_parent(&mut self) -> Outcome {
        let at = self.parent().await?;
        self.go(at);
        Ok(())
    }

    async fn parent(&self) -> Outcome<At<F>> {
        let client = self.peer.address.ip();
        let above = |path: &str| pseudo::above(path).map(At::Pseudo).ok_or(Failure::Status(status::NOENT));
        match self.at()? {
            At::Pseudo(directory) => above(pseudo::path(&self.exports, client, *directory).ok_or(status::STALE)?),
            At::File(target) if target.inode == target.files().root() => above(&target.export.path),
            At::File(target) => match target.files().lookup(&target.caller, target.inode, b"..").await {
                Ok(file) => Ok(At::File(target.to(file.inode))),
                Err(error) => Err(directory_failure(target, error).await),
            },
        }
    }

    /// The file handle goes with the answer.
    pub(super) async fn secinfo(&mut self) -> Outcome {
        let name = names::wanted(&mut self.arguments)?;
        self.child(&name).await?;
        self.put_flavors();
        Ok(())
    }

    pub(super) async fn secinfo_no_name(&mut self) -> Outcome {
        match self.arguments.u32()? {
            0 => drop(self.at()?),
            PARENT => drop(self.parent().await?),
            _ => return Err(status::BADXDR.into()),
        }
        self.put_flavors();
        Ok(())
    }

    fn put_flavors(&mut self) {
        self.out.put_u32(FLAVORS.len() as u32);
        FLAVORS.iter().for_each(|flavor| self.out.put_u32(*flavor));
        self.current = None;
    }

    pub(super) async fn create(&mut self) -> Outcome {
        let reader = &mut self.arguments;
        let kind = reader.u32()?;
        let node = match kind {
            LINK => {
                // Longer targets are the gateway's to refuse.
                let target = Bytes::copy_from_slice(reader.borrowed(LINK_MAX * 16)?);
                Some(Node::Link { target })
            }
            BLOCK | CHARACTER => {
                let (major, minor) = (reader.u32()?, reader.u32()?);
                Some(Node::Special(match kind {
                    BLOCK => Kind::BlockDevice { major, minor },
                    _ => Kind::CharacterDevice { major, minor },
                }))
            }
            SOCKET => Some(Node::Special(Kind::Socket)),
            PIPE => Some(Node::Special(Kind::Pipe)),
            DIRECTORY => Some(Node::Directory),
            _ => None,
        };
        let name = names::made(reader)?;
        let (named, mut changes) = attributes::changes(reader)?;
        let node = node.ok_or(status::BADTYPE)?;
        let target = self.changed()?;
        if changes.size.take().is_some() {
            // Nothing that CREATE makes has a size to set.
            return Err(status::INVAL.into());
        }
        if matches!(&node, Node::Link { target } if target.is_empty()) {
            return Err(status::INVAL.into());
        }
        let made = target.files().make(&target.caller, target.inode, &name, node, changes).await;
        let entry = match made {
            Ok(entry) => entry,
            Err(error) => return Err(directory_failure(&target, error).await),
        };
        self.put_change(&entry.directory);
        named.put(&mut self.out);
        self.go(At::File(target.to(entry.file.inode)));
        Ok(())
    }

    pub(super) async fn remove(&mut self) -> Outcome {
        let name = names::wanted(&mut self.arguments)?;
        let target = self.changed()?;
        let (files, caller, directory) = (target.files(), &target.caller, target.inode);
        let changed = match files.remove(caller, directory, &name, Removal::File).await {
            Err(FileError::IsDirectory) => files.remove(caller, directory, &name, Removal::Directory).await,
            other => other,
        };
        match changed {
            Ok(changed) => self.put_change(&changed),
            Err(error) => return Err(directory_failure(&target, error).await),
        }
        Ok(())
    }

    /// The saved file handle. It must be of the same share as the current one.
    fn saved_beside(&self, target: &Target<F>) -> Outcome<Target<F>> {
        match self.saved.as_ref().ok_or(status::NOFILEHANDLE)? {
            At::File(saved) if saved.export.share == target.export.share => Ok(saved.clone()),
            _ => Err(status::XDEV.into()),
        }
    }

    pub(super) async fn rename(&mut self) -> Outcome {
        let from = names::wanted(&mut self.arguments)?;
        let to = names::made(&mut self.arguments)?;
        let target = self.changed()?;
        let source = self.saved_beside(&target)?;
        let renamed = target.files().rename(&target.caller, (source.inode, &from), (target.inode, &to)).await;
        let (before, after) = match renamed {
            Ok(changed) => changed,
            Err(FileError::NotDirectory) => {
                directory_check(&source).await?;
                return Err(directory_failure(&target, FileError::NotDirectory).await);
            }
            Err(error) => return Err(error.into()),
        };
        self.put_change(&before);
        self.put_change(&after);
        Ok(())
    }

    pub(super) async fn link(&mut self) -> Outcome {
        let name = names::made(&mut self.arguments)?;
        let target = self.changed()?;
        let source = self.saved_beside(&target)?;
        if source.files().attributes(source.inode).await?.kind == Kind::Directory {
            return Err(status::ISDIR.into());
        }
        match target.files().link(&target.caller, source.inode, target.inode, &name).await {
            Ok(entry) => self.put_change(&entry.directory),
            Err(error) => return Err(directory_failure(&target, error).await),
        }
        Ok(())
    }
}

/// A symbolic link in the place of a directory has a status of its own.
async fn directory_failure<F: Files>(target: &Target<F>, error: FileError) -> Failure {
    if error == FileError::NotDirectory
        && let Err(failure) = directory_check(target).await
    {
        return failure;
    }
    error.into()
}

pub(super) async fn directory_check<F: Files>(target: &Target<F>) -> Outcome {
    match target.files().attributes(target.inode).await?.kind {
        Kind::Directory => Ok(()),
        Kind::Link => Err(status::SYMLINK.into()),
        _ => Err(status::NOTDIR.into()),
    }
}
