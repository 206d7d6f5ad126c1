//! Operations on clients and sessions.

use bytes::Bytes;
use tokio::time::Instant;

use crate::Files;
use crate::nfs::v4::clients::Principal;
use crate::nfs::v4::compound::Compound;
use crate::nfs::v4::sessions::{Channel, Wanted};
use crate::nfs::v4::{Failure, OPAQUE_MAX, Outcome, status};
use crate::nfs::xdr::{Malformed, Reader, Writer};

const CONFIRMED: u32 = 0x8000_0000;
const UPDATE: u32 = 0x4000_0000;
/// The server has no layouts.
const USE_NON_PNFS: u32 = 0x0001_0000;
/// SUPP_MOVED_REFER, SUPP_MOVED_MIGR, BIND_PRINC_STATEID, and the three of pNFS.
const EXCHANGE_FLAGS: u32 = 0x0007_0103 | UPDATE;
/// PERSIST, CONN_BACK_CHAN and CONN_RDMA. None is granted.
const SESSION_FLAGS: u32 = 0x7;

const FORE: u32 = 1;
const BACK: u32 = 2;
const FORE_OR_BOTH: u32 = 3;
const BACK_OR_BOTH: u32 = 7;

const NO_PROTECTION: u32 = 0;
const PROTECTIONS: u32 = 2;
/// Bodies of credentials for callbacks, which are read over.
const SECURITY_MAX: usize = 16;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
const AUTH_GSS: u32 = 6;
const GROUPS_MAX: usize = 16;

fn channel(reader: &mut Reader) -> Result<Channel, Malformed> {
    let _padding = reader.u32()?;
    let (request_max, response_max, kept_max) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (operations_max, slots, rdma) = (reader.u32()?, reader.u32()?, reader.u32()?);
    match rdma {
        0 => {}
        1 => drop(reader.u32()?),
        _ => return Err(Malformed),
    }
    Ok(Channel { request_max, response_max, kept_max, operations_max, slots })
}

fn put_channel(out: &mut Vec<u8>, channel: &Channel) {
    let Channel { request_max, response_max, kept_max, operations_max, slots } = *channel;
    for word in [0, request_max, response_max, kept_max, operations_max, slots, 0] {
        out.put_u32(word);
    }
}

/// `callback_sec_parms4<>`: read over, since there are no callbacks.
fn skip_security(reader: &mut Reader) -> Result<(), Malformed> {
    let count = reader.u32()? as usize;
    if count > SECURITY_MAX {
        return Err(Malformed);
    }
    for _ in 0..count {
        match reader.u32()? {
            AUTH_NONE => {}
            AUTH_SYS => {
                reader.u32()?;
                reader.borrowed(OPAQUE_MAX)?;
                reader.skip(8)?;
                let groups = reader.u32()? as usize;
                if groups > GROUPS_MAX {
                    return Err(Malformed);
                }
                reader.skip(4 * groups)?;
            }
            AUTH_GSS => {
                reader.u32()?;
                reader.borrowed(OPAQUE_MAX)?;
                reader.borrowed(OPAQUE_MAX)?;
            }
            _ => return Err(Malformed),
        }
    }
    Ok(())
}

impl<F: Files> Compound<F> {
    pub(super) async fn exchange_id(&mut self) -> Outcome {
        let reader = &mut self.arguments;
        let verifier = reader.fixed()?;
        // The record outlives the call: its own bytes, not a slice of the receive buffer.
        let owner = Bytes::copy_from_slice(reader.borrowed(OPAQUE_MAX)?);
        let (flags, protection) = (reader.u32()?, reader.u32()?);
        match protection {
            NO_PROTECTION => {}
            // Both need RPCSEC_GSS, which no client has here.
            1..=PROTECTIONS => return Err(status::INVAL.into()),
            _ => return Err(status::BADXDR.into()),
        }
        let implementations = reader.u32()?;
        if implementations > 1 {
            return Err(status::BADXDR.into());
        }
        if implementations == 1 {
            reader.borrowed(OPAQUE_MAX)?;
            reader.borrowed(OPAQUE_MAX)?;
            reader.skip(12)?;
        }
        if flags & !EXCHANGE_FLAGS != 0 {
            return Err(status::INVAL.into());
        }
        let address = self.peer.address.ip();
        if !self.exports.admits(address) {
            // It could use nothing here, and its record would take the place of another client's.
            return Err(status::PERM.into());
        }
        let from = (Principal::from(&self.credentials), address);
        let update = flags & UPDATE != 0;
        let (answer, ended) = self.server.clients.exchange_id(owner, verifier, from, update, Instant::now());
        self.server.tell(ended).await;
        let known = answer?;
        let identity = blake3::keyed_hash(&self.server.clients.secret, b"server of NFS version 4.1").to_hex();
        let identity = identity.as_bytes().get(..32).unwrap_or_default();
        let out = &mut self.out;
        out.put_u64(known.client);
        out.put_u32(known.sequence);
        out.put_u32(USE_NON_PNFS | if known.confirmed { CONFIRMED } else { 0 });
        out.put_u32(NO_PROTECTION);
        // The owner of this server, and the scope of its handles and stateids.
        out.put_u64(0);
        out.put_opaque(identity);
        out.put_opaque(identity);
        out.put_u32(0);
        Ok(())
    }

    pub(super) async fn create_session(&mut self) -> Outcome {
        let reader = &mut self.arguments;
        let (client, sequence, flags) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let (fore, back) = (channel(reader)?, channel(reader)?);
        let _program = reader.u32()?;
        skip_security(reader)?;
        let wanted = Wanted { client, sequence, flags_known: flags & !SESSION_FLAGS == 0, fore, back };
        let principal = Principal::from(&self.credentials);
        let (answer, ended) = self.server.clients.create_session(wanted, principal, Instant::now());
        self.server.tell(ended).await;
        let created = answer?;
        let out = &mut self.out;
        out.put_fixed(&created.session);
        out.put_u32(created.sequence);
        out.put_u32(0);
        put_channel(out, &created.fore);
        put_channel(out, &created.back);
        Ok(())
    }

    pub(super) fn destroy_session(&mut self, last: bool) -> Outcome {
        let session = self.arguments.fixed()?;
        if !last && self.place.is_some_and(|place| place.session == session) {
            return Err(status::NOT_ONLY_OP.into());
        }
        Ok(self.server.clients.destroy_session(&session)?)
    }

    /// A connection takes part in a session by its first SEQUENCE. Nothing is bound here, and there
    /// is no back channel.
    pub(super) fn bind_connection(&mut self) -> Outcome {
        let reader = &mut self.arguments;
        let (session, direction, _rdma) = (reader.fixed()?, reader.u32()?, reader.bool()?);
        if self.place.is_some() {
            return Err(status::NOT_ONLY_OP.into());
        }
        if !self.server.clients.has_session(&session) {
            return Err(status::BADSESSION.into());
        }
        match direction {
            FORE | FORE_OR_BOTH | BACK_OR_BOTH => {}
            BACK => return Err(status::INVAL.into()),
            _ => return Err(status::BADXDR.into()),
        }
        self.out.put_fixed(&session);
        self.out.put_u32(FORE);
        self.out.put_bool(false);
        Ok(())
    }

    pub(super) fn destroy_client(&mut self) -> Outcome {
        let client = self.arguments.u64()?;
        Ok(self.server.clients.destroy_client(client, Principal::from(&self.credentials))?)
    }

    pub(super) fn reclaim_complete(&mut self) -> Outcome {
        let one_file_system = self.arguments.bool()?;
        if one_file_system {
            // Only a server to which file systems move remembers these.
            return self.at().map(drop);
        }
        Ok(self.server.clients.reclaim_complete(self.client()?)?)
    }

    /// Accepted, since a client may tell its callback program at any time; the server calls none.
    pub(super) fn backchannel_control(&mut self) -> Outcome {
        self.arguments.u32()?;
        skip_security(&mut self.arguments).map_err(Failure::from)
    }
}
