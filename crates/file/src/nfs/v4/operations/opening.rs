//! OPEN, OPEN_DOWNGRADE and CLOSE.

use bytes::Bytes;

use super::objects::kind_failure;
use crate::nfs::v4::bitmap::Bitmap;
use crate::nfs::v4::clients::ClosedFile;
use crate::nfs::v4::compound::{At, Compound, Target};
use crate::nfs::v4::opens::{BOTH, Opened, READ, WRITE};
use crate::nfs::v4::stateid::Stateid;
use crate::nfs::v4::{Failure, OPAQUE_MAX, Outcome, attributes, names, status};
use crate::nfs::xdr::{Reader, Writer};
use crate::permission::{granted, may_read_content, may_write_content};
use crate::{Access, Attributes, Changed, Changes, Creation, FileError, Files};

const WANT_MASK: u32 = 0xff00;
const WANT_NONE: u32 = 0x0400;
const WANT_CANCEL: u32 = 0x0500;
/// Signals about delegations that become free.
const SIGNALS: u32 = 0x3_0000;

/// OPEN4_RESULT_LOCKTYPE_POSIX.
const RESULT_FLAGS: u32 = 4;
const DELEGATE_NONE: u32 = 0;
const DELEGATE_NONE_EXT: u32 = 3;
const WHY_NOT_WANTED: u32 = 0;
const WHY_RESOURCE: u32 = 2;
const WHY_CANCELLED: u32 = 7;

/// How often OPEN looks again when names come and go meanwhile.
const ATTEMPTS: usize = 4;

enum How {
    NoCreate,
    Unchecked(Bitmap, Changes),
    Guarded(Bitmap, Changes),
    Exclusive([u8; 8], Bitmap, Changes),
}

enum Claim {
    Name(Bytes),
    Previous,
    Handle,
}

struct Arguments {
    access: u32,
    wants: u32,
    deny: u32,
    owner: Bytes,
    how: How,
    claim: Claim,
}

impl Arguments {
    fn read(reader: &mut Reader) -> Outcome<Arguments> {
        let _sequence = reader.u32()?;
        let (share, deny) = (reader.u32()?, reader.u32()?);
        let (access, wants) = (share & !(WANT_MASK | SIGNALS), share & WANT_MASK);
        // The session says which client this is.
        let _client = reader.u64()?;
        let owner = Bytes::copy_from_slice(reader.borrowed(OPAQUE_MAX)?);
        let how = match reader.u32()? {
            0 => How::NoCreate,
            1 => How::read(reader)?,
            _ => return Err(status::BADXDR.into()),
        };
        let creates = !matches!(how, How::NoCreate);
        let claim = match reader.u32()? {
            0 => Claim::Name(if creates { names::made(reader)? } else { names::wanted(reader)? }),
            1 => {
                let _delegation = reader.u32()?;
                Claim::Previous
            }
            4 => Claim::Handle,
            // There are no delegations to claim.
            2 | 3 | 5 | 6 => return Err(status::NOTSUPP.into()),
            _ => return Err(status::BADXDR.into()),
        };
        if !(READ..=BOTH).contains(&access) || deny > BOTH || creates && !matches!(claim, Claim::Name(_)) {
            return Err(status::INVAL.into());
        }
        Ok(Arguments { access, wants, deny, owner, how, claim })
    }
}

impl How {
    fn read(reader: &mut Reader) -> Outcome<How> {
        Ok(match reader.u32()? {
            0 => attributes::changes(reader).map(|(named, changes)| How::Unchecked(named, changes))?,
            1 => attributes::changes(reader).map(|(named, changes)| How::Guarded(named, changes))?,
            2 => How::Exclusive(reader.fixed()?, Bitmap::default(), Changes::default()),
            3 => {
                let verifier = reader.fixed()?;
                let (named, changes) = attributes::changes(reader)?;
                How::Exclusive(verifier, named, changes)
            }
            _ => return Err(status::BADXDR.into()),
        })
    }
}

/// The file that OPEN is about.
struct Found {
    file: Attributes,
    directory: Changed,
    /// The call made it: its mode does not limit the opener.
    made: bool,
    set: Bitmap,
    /// An existing file is to be emptied once it is open: its new size.
    cut: Option<u64>,
}

impl<F: Files> Compound<F> {
    pub(super) async fn open(&mut self) -> Outcome {
        let Arguments { access, wants, deny, owner, how, claim } = Arguments::read(&mut self.arguments)?;
        let client = self.client()?;
        let reclaim = matches!(claim, Claim::Previous);
        self.server.clients.may_claim(client, reclaim, self.grace())?;
        let target = match self.at()? {
            At::File(target) => target.clone(),
            At::Pseudo(_) => return Err(self.open_pseudo(&how, &claim).await),
        };
        if target.read_only && (access & WRITE != 0 || !matches!(how, How::NoCreate)) {
            return Err(status::ROFS.into());
        }
        let found = match &claim {
            Claim::Name(name) => find(&target, name, how).await?,
            Claim::Previous | Claim::Handle => {
                let file = target.files().attributes(target.inode).await?;
                let directory = Changed { before: file.clone(), after: file.clone() };
                Found { file, directory, made: false, set: Bitmap::default(), cut: None }
            }
        };
        kind_failure(found.file.kind)?;
        let target = target.to(found.file.inode);
        if reclaim {
            may_use(&target, &found.file, access)?;
        } else if !found.made {
            allowed(&target, &found.file, access | if found.cut.is_some() { WRITE } else { 0 }).await?;
        }
        let writes = access & WRITE != 0;
        target.files().opened(target.inode, writes).await?;
        let opened = self.server.clients.open(client, target.locked(), &owner, access, deny);
        let Opened { stateid, extra, before } = match opened {
            Ok(opened) => opened,
            Err(failure) => {
                target.files().closed(target.inode, writes).await;
                return Err(match failure {
                    Failure::Status(status::SHARE_DENIED) if reclaim => status::RECLAIM_CONFLICT.into(),
                    other => other,
                });
            }
        };
        let cut = match found.cut {
            // The share went while the call was under way.
            _ if !self.server.serves(target.export.share) => Err(FileError::Stale),
            None => Ok(()),
            Some(size) => {
                let changes = Changes { size: Some(size), ..Changes::default() };
                target.files().set_attributes(&target.caller, target.inode, changes, None).await.map(drop)
            }
        };
        if let Err(failure) = cut {
            // The client gets no stateid, so nothing of this open may stay.
            let undone = self.server.clients.undo_open(client, target.locked(), stateid, before);
            // The call that went on with the open, or ended it, counts the use of this one as its
            // own.
            let surplus = if undone { Some(writes) } else { extra.map(|extra| extra.writes) };
            if let Some(writes) = surplus {
                target.files().closed(target.inode, writes).await;
            }
            return Err(failure.into());
        }
        if let Some(ClosedFile { writes, .. }) = extra {
            target.files().closed(target.inode, writes).await;
        }
        stateid.put(&mut self.out);
        self.put_change(&found.directory);
        self.out.put_u32(RESULT_FLAGS);
        found.set.put(&mut self.out);
        self.put_no_delegation(wants);
        self.go(At::File(target));
        self.stateid = stateid;
        Ok(())
    }

    /// Nothing above the exports can be opened.
    async fn open_pseudo(&self, how: &How, claim: &Claim) -> Failure {
        match (how, claim) {
            (How::NoCreate, Claim::Name(name)) => match self.child(name).await {
                Ok(_) => status::ISDIR.into(),
                Err(failure) => failure,
            },
            (How::NoCreate, _) => status::ISDIR.into(),
            _ => status::ROFS.into(),
        }
    }

    fn put_no_delegation(&mut self, wants: u32) {
        let why = match wants {
            0 => return self.out.put_u32(DELEGATE_NONE),
            WANT_NONE => WHY_NOT_WANTED,
            WANT_CANCEL => WHY_CANCELLED,
            _ => WHY_RESOURCE,
        };
        self.out.put_u32(DELEGATE_NONE_EXT);
        self.out.put_u32(why);
        if why == WHY_RESOURCE {
            // The server will not say when it has one.
            self.out.put_bool(false);
        }
    }

    pub(super) async fn open_downgrade(&mut self) -> Outcome {
        let stateid = self.read_stateid()?;
        let _sequence = self.arguments.u32()?;
        let (share, deny) = (self.arguments.u32()?, self.arguments.u32()?);
        let access = share & !(WANT_MASK | SIGNALS);
        if !(READ..=BOTH).contains(&access) || deny > BOTH {
            return Err(status::INVAL.into());
        }
        let target = self.target()?;
        let (client, file) = (self.client()?, target.locked());
        let (stateid, stops_writing) = self.server.clients.downgrade(client, file, stateid, access, deny)?;
        if stops_writing {
            // A use for reading takes the place of the one for writing.
            if target.files().opened(target.inode, false).await.is_ok() {
                target.files().closed(target.inode, true).await;
            }
        }
        stateid.put(&mut self.out);
        self.stateid = stateid;
        Ok(())
    }

    pub(super) async fn close(&mut self) -> Outcome {
        let _sequence = self.arguments.u32()?;
        let stateid = self.read_stateid()?;
        let target = self.target()?;
        let ClosedFile { writes, .. } = self.server.clients.close(self.client()?, target.locked(), stateid)?;
        target.files().closed(target.inode, writes).await;
        Stateid::INVALID.put(&mut self.out);
        self.stateid = Stateid::INVALID;
        Ok(())
    }
}

/// Looks the name up, or makes it.
async fn find<F: Files>(target: &Target<F>, name: &[u8], how: How) -> Outcome<Found> {
    let (files, caller, directory) = (target.files(), &target.caller, target.inode);
    match how {
        How::NoCreate => existing(target, name, None).await,
        How::Unchecked(named, changes) => {
            // Of the attributes, a file that exists gets a size of 0 alone (RFC 8881, 18.16.3).
            let cut = changes.size.filter(|size| *size == 0);
            for _ in 0..ATTEMPTS {
                match existing(target, name, cut).await {
                    Err(Failure::Status(status::NOENT)) => {}
                    other => return other,
                }
                match files.create(caller, directory, name, Creation::Guarded(changes.clone())).await {
                    Ok(entry) => {
                        let set = named;
                        return Ok(Found { file: entry.file, directory: entry.directory, made: true, set, cut: None });
                    }
                    Err(FileError::Exists) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(status::DELAY.into())
        }
        How::Guarded(named, changes) => {
            let entry = files.create(caller, directory, name, Creation::Guarded(changes)).await?;
            Ok(Found { file: entry.file, directory: entry.directory, made: true, set: named, cut: None })
        }
        How::Exclusive(verifier, named, changes) => {
            let entry = files.create(caller, directory, name, Creation::Exclusive(verifier)).await?;
            let mut file = entry.file;
            if !changes.is_empty() {
                // A crash before this leaves the new file without its attributes; the client
                // repeats the call.
                file = files.set_attributes(caller, file.inode, changes, None).await?.after;
            }
            Ok(Found { file, directory: entry.directory, made: true, set: named, cut: None })
        }
    }
}

async fn existing<F: Files>(target: &Target<F>, name: &[u8], cut: Option<u64>) -> Outcome<Found> {
    let files = target.files();
    let file = match files.lookup(&target.caller, target.inode, name).await {
        Ok(file) => file,
        Err(FileError::NotDirectory) => {
            super::naming::directory_check(target).await?;
            return Err(status::NOTDIR.into());
        }
        Err(error) => return Err(error.into()),
    };
    let directory = files.attributes(target.inode).await?;
    let mut set = Bitmap::default();
    if cut.is_some() {
        set.add(attributes::SIZE);
    }
    Ok(Found { file, directory: Changed { before: directory.clone(), after: directory }, made: false, set, cut })
}

/// What a claim needs: the mode may have changed since the opening, so the owner passes, as READ
/// and WRITE let it.
fn may_use<F: Files>(target: &Target<F>, file: &Attributes, access: u32) -> Outcome {
    if access & READ != 0 {
        may_read_content(&target.caller, file)?;
    }
    if access & WRITE != 0 {
        may_write_content(&target.caller, file)?;
    }
    Ok(())
}

/// What the mode allows. The right to execute is enough to read. A file that the mode lets the
/// caller change and retention does not is on a read-only file system.
async fn allowed<F: Files>(target: &Target<F>, file: &Attributes, access: u32) -> Outcome {
    let (reads, writes) = (access & READ != 0, access & WRITE != 0);
    let wanted = Access { read: reads, execute: reads, modify: writes, ..Access::default() };
    let given = target.files().access(&target.caller, target.inode, wanted).await?;
    if writes && !given.modify {
        let by_mode = granted(&target.caller, file, wanted).modify;
        return Err(if by_mode { status::ROFS } else { status::ACCESS }.into());
    }
    match !reads || given.read || given.execute {
        true => Ok(()),
        false => Err(status::ACCESS.into()),
    }
}
