//! LOCK, LOCKT, LOCKU, FREE_STATEID and TEST_STATEID.
//!
//! A lock that must wait is answered DENIED, and the client asks again: the server makes no calls
//! of its own.

use bytes::Bytes;

use super::objects::kind_failure;
use crate::Files;
use crate::locks::{Held, LockProtocol, LockRange};
use crate::nfs::server::Grace;
use crate::nfs::v4::compound::Compound;
use crate::nfs::v4::opens::{Locker, Range, lock_owner, lock_owner_parts};
use crate::nfs::v4::stateid::Stateid;
use crate::nfs::v4::{Failure, OPAQUE_MAX, Outcome, status};
use crate::nfs::xdr::{Reader, Writer};

const READ: u32 = 1;
const WRITE: u32 = 2;
/// The kinds that wait; they are as the others here.
const READ_WAITING: u32 = 3;
const WRITE_WAITING: u32 = 4;
/// Up to the end of any file.
const TO_THE_END: u64 = u64::MAX;
/// Stateids of one TEST_STATEID.
const TESTS_MAX: usize = 1024;

fn is_exclusive(reader: &mut Reader) -> Outcome<bool> {
    match reader.u32()? {
        READ | READ_WAITING => Ok(false),
        WRITE | WRITE_WAITING => Ok(true),
        _ => Err(status::BADXDR.into()),
    }
}

fn range(reader: &mut Reader) -> Outcome<LockRange> {
    let (offset, length) = (reader.u64()?, reader.u64()?);
    let range = match length {
        0 => None,
        TO_THE_END => LockRange::new(offset, 0),
        length => LockRange::new(offset, length),
    };
    range.ok_or(Failure::Status(status::INVAL))
}

impl<F: Files> Compound<F> {
    /// The client of the arguments' owner is not looked at: the session says which client this is.
    fn read_owner(&mut self) -> Outcome<Bytes> {
        let _client = self.arguments.u64()?;
        Ok(Bytes::copy_from_slice(self.arguments.borrowed(OPAQUE_MAX)?))
    }

    pub(super) async fn lock(&mut self) -> Outcome {
        let exclusive = is_exclusive(&mut self.arguments)?;
        let reclaim = self.arguments.bool()?;
        let range = range(&mut self.arguments);
        let locker = match self.arguments.bool()? {
            true => {
                let _sequence = self.arguments.u32()?;
                let open = self.read_stateid()?;
                let _sequence = self.arguments.u32()?;
                Locker::New { open, owner: self.read_owner()? }
            }
            false => {
                let stateid = self.read_stateid()?;
                let _sequence = self.arguments.u32()?;
                Locker::Known(stateid)
            }
        };
        let (range, target, client) = (range?, self.target()?, self.client()?);
        kind_failure(target.files().attributes(target.inode).await?.kind)?;
        self.server.clients.may_claim(client, reclaim, self.grace())?;
        let wanted = Range { range, exclusive };
        let stateid = match self.server.clients.lock(client, target.locked(), locker, wanted) {
            Err(Failure::Denied(_)) if reclaim => return Err(status::RECLAIM_CONFLICT.into()),
            other => other?,
        };
        stateid.put(&mut self.out);
        self.stateid = stateid;
        Ok(())
    }

    pub(super) async fn lock_test(&mut self) -> Outcome {
        let exclusive = is_exclusive(&mut self.arguments)?;
        let range = range(&mut self.arguments);
        let owner = self.read_owner()?;
        let (range, target, client) = (range?, self.target()?, self.client()?);
        kind_failure(target.files().attributes(target.inode).await?.kind)?;
        if self.grace() != Grace::Over {
            return Err(status::GRACE.into());
        }
        match self.server.locks.test(target.locked(), &lock_owner(client, &owner), range, exclusive) {
            Some(held) => Err(Failure::Denied(Box::new(held))),
            None => Ok(()),
        }
    }

    /// `LOCK4denied`. The owner of another protocol's lock is shown as its bytes there. The number
    /// of another client is not shown: a machine that knows it could speak in that client's name.
    pub(in crate::nfs::v4) fn put_denied(&mut self, held: &Held, owner_max: usize) {
        let asking = self.client().ok();
        let (client, owner) = match held.owner.client.protocol {
            LockProtocol::Nfs4 => {
                let (client, owner) = lock_owner_parts(&held.owner);
                (Some(client).filter(|client| asking == Some(*client)).unwrap_or_default(), owner)
            }
            _ => (0, held.owner.handle.get(..OPAQUE_MAX).unwrap_or(&held.owner.handle)),
        };
        self.out.put_u64(held.range.offset());
        self.out.put_u64(match held.range.length() {
            0 => TO_THE_END,
            length => length,
        });
        self.out.put_u32(if held.exclusive { WRITE } else { READ });
        self.out.put_u64(client);
        self.out.put_opaque(owner.get(..owner_max).unwrap_or(owner));
    }

    pub(super) fn unlock(&mut self) -> Outcome {
        is_exclusive(&mut self.arguments)?;
        let _sequence = self.arguments.u32()?;
        let stateid = self.read_stateid()?;
        let range = range(&mut self.arguments)?;
        let target = self.target()?;
        let stateid = self.server.clients.unlock(self.client()?, target.locked(), stateid, range)?;
        stateid.put(&mut self.out);
        self.stateid = stateid;
        Ok(())
    }

    pub(super) fn free_stateid(&mut self) -> Outcome {
        let stateid = self.read_stateid()?;
        self.server.clients.free(self.client()?, stateid)
    }

    pub(super) fn test_stateids(&mut self) -> Outcome {
        let count = self.arguments.u32()? as usize;
        if count > TESTS_MAX {
            return Err(status::BADXDR.into());
        }
        let client = self.client()?;
        self.out.put_u32(count as u32);
        for _ in 0..count {
            let stateid = match Stateid::read(&mut self.arguments)? {
                Stateid::CURRENT => self.stateid,
                other => other,
            };
            self.out.put_u32(self.server.clients.test(client, stateid));
        }
        Ok(())
    }
}
