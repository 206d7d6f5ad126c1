//! NSM version 1, the part that a server needs: which hosts hold locks, and which of them started
//! again.
//!
//! A client's host that starts again sends NOTIFY; its locks are released. After a start of this
//! server, the program that runs it sends [`notification`] to every host that held locks before, so
//! that they claim them again. It keeps [`Reboots::hosts`] on disk for that. Hosts speak NSM over
//! UDP mostly: [`answer_datagram`] answers one datagram.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::Files;
use crate::locks::{LockClient, LockProtocol};

use super::counters::Program;
use super::nlm;
use super::procedures::dispatch::{self, Started};
use super::rpc::{self, Accepted, Call, Reply};
use super::server::{Peer, Server};
use super::xdr::Writer;

const STAT: u32 = 1;
const MON: u32 = 2;
const UNMON: u32 = 3;
const UNMON_ALL: u32 = 4;
const NOTIFY: u32 = 6;

const FAILED: u32 = 1;
const NAME_MAX: usize = 1024;
/// Hosts that are told of a start. One more is not remembered, and its locks are lost at a start.
pub const HOSTS_MAX: usize = 16 << 10;

/// A host that holds locks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Host {
    pub address: IpAddr,
    /// As it calls itself.
    pub name: Bytes,
}

/// This server's start number, and the hosts that took locks since.
pub struct Reboots {
    state: u32,
    hosts: Mutex<BTreeSet<Host>>,
}

impl Reboots {
    pub(super) fn new(state: u32) -> Reboots {
        Reboots { state, hosts: Mutex::default() }
    }

    /// Hosts that took a lock since the start.
    pub fn hosts(&self) -> Vec<Host> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub(super) fn monitor(&self, address: IpAddr, name: &Bytes) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() < HOSTS_MAX {
            // Its own copy: a slice would keep the receive buffer.
            hosts.insert(Host { address, name: Bytes::copy_from_slice(name) });
        }
    }
}

/// The record that tells a host of this server's start. `name` is the one by which clients know
/// this server.
pub fn notification(xid: u32, name: &str, state: u32) -> Reply {
    let (program, version) = Program::Status.number();
    let mut call = rpc::call(xid, program, version, NOTIFY);
    call.put_opaque(name.as_bytes());
    call.put_u32(state);
    Reply::of(call)
}

/// Answers a call of NSM that came as one datagram. Other programs are not served over UDP.
pub fn answer_datagram<F: Files>(server: &Arc<Server<F>>, peer: SocketAddr, datagram: Bytes) -> Option<Vec<u8>> {
    let is_status = datagram.get(12..16) == Some(&Program::Status.number().0.to_be_bytes()[..]);
    let peer = Peer { address: peer, secure: false };
    let reply = match is_status {
        false => return None,
        true => match dispatch::start(server, &server.exports(), peer, datagram) {
            Started::Ready(reply) => reply,
            _ => return None,
        },
    };
    // A datagram has no record mark.
    reply.head.get(4..).map(<[u8]>::to_vec)
}

pub(super) fn answer<F: Files>(server: &Server<F>, peer: Peer, call: Call) -> Reply {
    let Call { xid, procedure, mut arguments, .. } = call;
    let mut out = Reply::success(xid);
    match procedure {
        // This server watches the hosts that lock its files, and no others.
        STAT | MON => {
            out.put_u32(FAILED);
            out.put_u32(server.reboots.state);
        }
        UNMON | UNMON_ALL => out.put_u32(server.reboots.state),
        NOTIFY => match arguments.borrowed(NAME_MAX) {
            Ok(name) => started_again(server, peer.address.ip().to_canonical(), name),
            Err(_) => return Reply::refused(xid, Accepted::GarbageArguments),
        },
        _ => return Reply::refused(xid, Accepted::ProcedureUnavailable),
    }
    Reply::of(out)
}

/// Some hosts give their name with their domain here and without it when they lock.
fn started_again<F: Files>(server: &Server<F>, host: IpAddr, name: &[u8]) {
    let short = |name: &[u8]| -> Vec<u8> { name.split(|byte| *byte == b'.').next().unwrap_or_default().to_vec() };
    let prefix = nlm::client(host, b"").name;
    let name = short(name);
    let is_it = |client: &LockClient| client.name.strip_prefix(&prefix[..]).is_some_and(|own| short(own) == name);
    server.pending.cancel_clients(is_it);
    let clients = server.locks.clients_of_host(LockProtocol::Nlm, &prefix);
    server.locks.release_all(&clients.into_iter().filter(is_it).collect());
}

#[cfg(test)]
mod tests;
