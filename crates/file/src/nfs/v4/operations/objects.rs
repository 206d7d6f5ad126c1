//! Operations on one file: handles, attributes, access, and content.

use bytes::Bytes;

use crate::model::SIZE_MAX;
use crate::nfs::handle::Handle;
use crate::nfs::procedures::TRANSFER_MAX;
use crate::nfs::v4::compound::{At, Compound, Target};
use crate::nfs::v4::stateid::Stateid;
use crate::nfs::v4::{Failure, Outcome, attributes, pseudo, status};
use crate::nfs::xdr::Writer;
use crate::{Access, FileError, Files, Inode, Kind, Stability};

/// The longest handle of this version (NFS4_FHSIZE).
const HANDLE_MAX: usize = 128;
/// Bytes of the results of READ before its content: count and end.
const READ_HEAD: usize = 16;

const READ: u32 = 0x01;
const LOOKUP: u32 = 0x02;
const MODIFY: u32 = 0x04;
const EXTEND: u32 = 0x08;
const DELETE: u32 = 0x10;
const EXECUTE: u32 = 0x20;
const ASKABLE: u32 = 0x3f;

impl<F: Files> Compound<F> {
    pub(super) fn put_handle(&mut self) -> Outcome {
        let bytes = self.arguments.borrowed(HANDLE_MAX)?;
        let handle = self.server.handles.decode(bytes).ok_or(status::BADHANDLE)?;
        let at = self.find(handle)?;
        self.go(at);
        Ok(())
    }

    pub(super) fn put_root(&mut self) -> Outcome {
        let at = match pseudo::top(&self.exports, self.peer.address.ip()) {
            pseudo::PseudoNode::Directory(directory) => At::Pseudo(directory),
            pseudo::PseudoNode::Export(export) => self.enter_export(&export, None)?,
        };
        self.go(at);
        Ok(())
    }

    pub(super) fn get_handle(&mut self) -> Outcome {
        let handle = match self.at()? {
            At::Pseudo(directory) => Handle { share: pseudo::SHARE, inode: Inode(*directory) },
            At::File(target) => Handle { share: target.export.share, inode: target.inode },
        };
        let handle = self.server.handles.encode(handle);
        self.out.put_opaque(&handle);
        Ok(())
    }

    pub(super) fn save(&mut self) -> Outcome {
        self.saved = Some(self.at()?.clone());
        self.saved_stateid = self.stateid;
        Ok(())
    }

    pub(super) fn restore(&mut self) -> Outcome {
        self.current = Some(self.saved.clone().ok_or(status::NOFILEHANDLE)?);
        self.stateid = self.saved_stateid;
        Ok(())
    }

    pub(super) async fn get_attributes(&mut self) -> Outcome {
        let wanted = attributes::wanted(&mut self.arguments)?;
        let shown = self.show(self.at()?, &wanted).await?;
        attributes::put(&mut self.out, &wanted, &shown);
        Ok(())
    }

    pub(super) async fn set_attributes(&mut self) -> Outcome {
        let stateid = self.read_stateid()?;
        let (named, changes) = attributes::changes(&mut self.arguments)?;
        let target = self.changed()?;
        if changes.size.is_some() {
            self.server.clients.check_use(self.client()?, target.locked(), stateid, true)?;
        }
        target.files().set_attributes(&target.caller, target.inode, changes, None).await?;
        named.put(&mut self.out);
        Ok(())
    }

    /// VERIFY goes on if the attributes are `same`, NVERIFY if they are not.
    pub(super) async fn verify(&mut self, same: bool) -> Outcome {
        let (named, list) = attributes::to_compare(&mut self.arguments)?;
        let shown = self.show(self.at()?, &named).await?;
        let mut own = Vec::new();
        attributes::put(&mut own, &named, &shown);
        let mut theirs = Vec::new();
        named.put(&mut theirs);
        theirs.put_opaque(&list);
        match (same, own == theirs) {
            (true, true) | (false, false) => Ok(()),
            (true, false) => Err(status::NOT_SAME.into()),
            (false, true) => Err(status::SAME.into()),
        }
    }

    pub(super) async fn access(&mut self) -> Outcome {
        let asked = self.arguments.u32()? & ASKABLE;
        let granted = match self.at()? {
            At::Pseudo(_) => asked & (READ | LOOKUP | EXECUTE),
            At::File(target) => {
                let changing = !target.read_only;
                let wanted = Access {
                    read: asked & READ != 0,
                    lookup: asked & LOOKUP != 0,
                    modify: asked & MODIFY != 0 && changing,
                    extend: asked & EXTEND != 0 && changing,
                    delete: asked & DELETE != 0 && changing,
                    execute: asked & EXECUTE != 0,
                };
                let granted = target.files().access(&target.caller, target.inode, wanted).await?;
                let bits = [
                    (granted.read, READ),
                    (granted.lookup, LOOKUP),
                    (granted.modify, MODIFY),
                    (granted.extend, EXTEND),
                    (granted.delete, DELETE),
                    (granted.execute, EXECUTE),
                ];
                bits.into_iter().filter(|(granted, _)| *granted).map(|(_, bit)| bit).sum()
            }
        };
        self.out.put_u32(asked);
        self.out.put_u32(granted);
        Ok(())
    }

    pub(super) async fn read_link(&mut self) -> Outcome {
        let target = match self.at()? {
            At::Pseudo(_) => return Err(status::WRONG_TYPE.into()),
            At::File(target) => target.clone(),
        };
        match target.files().read_link(&target.caller, target.inode).await {
            Ok(text) => self.out.put_opaque(&text),
            Err(FileError::Invalid(_)) => return Err(status::WRONG_TYPE.into()),
            Err(other) => return Err(other.into()),
        }
        Ok(())
    }

    /// The current file, whose content is wanted.
    fn content(&self) -> Outcome<Target<F>> {
        match self.at()? {
            At::Pseudo(_) => Err(status::ISDIR.into()),
            At::File(target) => Ok(target.clone()),
        }
    }

    pub(super) async fn read(&mut self) -> Outcome {
        let stateid = self.read_stateid()?;
        let (offset, count) = (self.arguments.u64()?, self.arguments.u32()?.min(TRANSFER_MAX));
        let target = self.content()?;
        self.server.clients.check_use(self.client()?, target.locked(), stateid, false)?;
        // Less content than asked for, if there is no more room.
        let count = count.min(u32::try_from(self.left().saturating_sub(READ_HEAD)).unwrap_or(u32::MAX));
        let data = match target.files().read(&target.caller, target.inode, offset, count).await {
            Ok(data) => data,
            Err(error) => return Err(content_failure(&target, error).await),
        };
        let length: usize = data.pieces.iter().map(Bytes::len).sum();
        self.out.put_bool(data.end);
        self.out.put_u32(length as u32);
        self.put_content(data.pieces);
        Ok(())
    }

    pub(super) async fn write(&mut self) -> Outcome {
        let stateid = self.read_stateid()?;
        let offset = self.arguments.u64()?;
        let stability = match self.arguments.u32()? {
            0 => Stability::Unstable,
            1 => Stability::Data,
            2 => Stability::File,
            _ => return Err(status::BADXDR.into()),
        };
        let content = self.arguments.opaque(usize::MAX)?;
        let target = self.content()?;
        if target.read_only {
            return Err(status::ROFS.into());
        }
        if offset.checked_add(content.len() as u64).is_none_or(|end| end > SIZE_MAX) {
            return Err(FileError::TooLarge.into());
        }
        if stateid == Stateid::BYPASS {
            return Err(status::BAD_STATEID.into());
        }
        self.server.clients.check_use(self.client()?, target.locked(), stateid, true)?;
        let files = target.files();
        // Taken before the write: if the write is lost right after it, COMMIT answers another one.
        let verifier = files.verifier();
        let count = content.len() as u32;
        let reached = match files.write(&target.caller, target.inode, offset, vec![content], stability).await {
            Ok((_, reached)) => reached,
            Err(error) => return Err(content_failure(&target, error).await),
        };
        self.out.put_u32(count);
        self.out.put_u32(match reached {
            Stability::Unstable => 0,
            Stability::Data => 1,
            Stability::File => 2,
        });
        self.out.put_fixed(&verifier);
        Ok(())
    }

    pub(super) async fn commit(&mut self) -> Outcome {
        // The range is only a hint: committing more than asked for is right.
        self.arguments.skip(12)?;
        let target = self.content()?;
        if target.read_only {
            return Err(status::ROFS.into());
        }
        let file = target.files().commit(target.inode).await?;
        kind_failure(file.kind)?;
        // Taken after the commit: writes that were lost before it are among those that it should
        // have made durable.
        let verifier = target.files().verifier();
        self.out.put_fixed(&verifier);
        Ok(())
    }
}

/// Only regular files have content.
pub(super) fn kind_failure(kind: Kind) -> Outcome {
    match kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(status::ISDIR.into()),
        Kind::Link => Err(status::SYMLINK.into()),
        _ => Err(status::WRONG_TYPE.into()),
    }
}

async fn content_failure<F: Files>(target: &Target<F>, error: FileError) -> Failure {
    if matches!(error, FileError::Invalid(_))
        && let Ok(file) = target.files().attributes(target.inode).await
        && let Err(failure) = kind_failure(file.kind)
    {
        return failure;
    }
    error.into()
}
