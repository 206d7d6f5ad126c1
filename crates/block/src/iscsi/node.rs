//! The iSCSI targets of a server: which exports there are, who may log in to them, and what their connections share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stele_media::MediaError;

use super::connection::Connection;
use super::login::{Agreed, Door, Doors, Refusal};
use super::shared::Shared;
use crate::disk::Denied;
use crate::scsi::{Port, Profile, Reached, Reservations};
use crate::{Directory, Disk, Peer, Protocol, Target};

pub type Kept = Box<dyn FnOnce(Result<(), MediaError>) + Send>;

/// What outlives the server, and is not a volume's content.
pub trait Keeper: Send + Sync {
    /// The volume's id, the same for ever and no other volume's.
    fn identity(&self, volume: &str) -> [u8; 16];

    /// Reservations as they were last kept. An error: they are there and cannot be read.
    fn load(&self, volume: &str) -> Result<Option<Vec<u8>>, MediaError>;

    /// Keeps reservations, or none, durably; `done` is called when they are, on any thread. It must not block.
    fn keep(&self, volume: &str, reservations: Option<Vec<u8>>, done: Kept);
}

struct Served {
    target: Arc<Target>,
    shared: Arc<Mutex<Shared>>,
}

pub struct Node {
    directory: Directory,
    keeper: Arc<dyn Keeper>,
    served: Mutex<BTreeMap<String, Served>>,
}

/// A connection with all it needs to live.
pub struct Joined {
    pub connection: Connection,
    pub shared: Arc<Mutex<Shared>>,
    pub disk: Disk,
    pub keeper: Arc<dyn Keeper>,
    pub tsih: u16,
    pub node: Arc<Node>,
    pub peer: Peer,
}

/// A unit of another target that a copy reaches.
pub struct Neighbour {
    pub disk: Disk,
    pub reached: Reached,
}

/// Targets as one peer sees them.
pub struct Seen<'a> {
    node: &'a Node,
    peer: &'a Peer,
}

impl Doors for Seen<'_> {
    fn door(&self, name: &str) -> Result<Door, Refusal> {
        let target = self.node.directory.find(Protocol::Iscsi, name).ok_or(Refusal::NOT_FOUND)?;
        target.export.access.admit(self.peer).map_err(|reason| {
            tracing::warn!(target = name, peer = self.peer.name, reason, "an initiator was turned away");
            // The same as for one that does not exist.
            Refusal::NOT_FOUND
        })?;
        let terms = &target.export.iscsi;
        Ok(Door { chap: terms.chap.clone(), mutual: terms.mutual.clone() })
    }
}

impl Node {
    pub fn new(directory: Directory, keeper: Arc<dyn Keeper>) -> Node {
        Node { directory, keeper, served: Mutex::default() }
    }

    pub fn seen_by<'a>(&'a self, peer: &'a Peer) -> Seen<'a> {
        Seen { node: self, peer }
    }

    /// Names of the targets that a peer may log in to.
    pub fn targets_for(&self, peer: &Peer) -> Vec<String> {
        let exports = self.directory.list(Some(Protocol::Iscsi));
        let admitted = exports.iter().filter(|target| target.export.access.admit(peer).is_ok());
        admitted.map(|target| target.export.name.clone()).collect()
    }

    /// A place in a session for a login that has succeeded. `local`: address and port by which the initiator reaches us.
    pub fn join(self: &Arc<Self>, agreed: Agreed, peer: &Peer, local: String) -> Result<Joined, Refusal> {
        let name = agreed.target.clone().ok_or(Refusal::MISSING)?;
        let target = self.directory.find(Protocol::Iscsi, &name).ok_or(Refusal::NOT_FOUND)?;
        let mut peer = peer.clone();
        peer.name = format!("{} {}", agreed.initiator, peer.name);
        let disk = Disk::open(&target, &peer).map_err(|denied| match denied {
            Denied::Access(_) => Refusal::NOT_FOUND,
            Denied::Crowded => Refusal::RESOURCES,
        })?;
        let shared = self.shared(&target)?;
        let place = lock(&shared).join(&agreed)?;
        let tsih = place.tsih;
        let connection = Connection::new(place, &agreed, local);
        let (keeper, node) = (Arc::clone(&self.keeper), Arc::clone(self));
        Ok(Joined { connection, shared, disk, keeper, tsih, node, peer })
    }

    /// The unit of another target by a designator, for a copy of an initiator that is logged in there as well, and could do so
    /// with what it has proved here: equal CHAP credentials, if there are any. Nobody reaches by a copy what he may not reach.
    pub fn neighbour(&self, here: &Target, peer: &Peer, port: &Port, name: &(u8, Vec<u8>)) -> Option<Neighbour> {
        let candidates: Vec<(Arc<Target>, Arc<Mutex<Shared>>)> = {
            let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
            served.values().map(|served| (Arc::clone(&served.target), Arc::clone(&served.shared))).collect()
        };
        let proved = |target: &Target| {
            let chap = &target.export.iscsi.chap;
            chap.is_none() || *chap == here.export.iscsi.chap
        };
        let mut found: Option<Neighbour> = None;
        for (target, shared) in candidates {
            let admitted = target.export.access.admit(peer).is_ok() && proved(&target) && !target.is_withdrawn();
            let Some(reached) = admitted.then(|| lock(&shared).reached(port, name)).flatten() else { continue };
            // A volume may have several exports: one that can be written is preferred.
            if (found.is_none() || reached.writable)
                && let Ok(disk) = Disk::open(&target, peer)
            {
                let writable = reached.writable;
                found = Some(Neighbour { disk, reached });
                if writable {
                    break;
                }
            }
        }
        found
    }

    /// The room that all volumes share has fallen below its threshold: every initiator hears so with its next command.
    pub fn threshold_reached(&self) {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.values().for_each(|served| lock(&served.shared).threshold_reached());
    }

    /// What the connections of a target share; made by the first of them.
    fn shared(&self, target: &Arc<Target>) -> Result<Arc<Mutex<Shared>>, Refusal> {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &target.export.name;
        if let Some(known) = served.get(name)
            && Arc::ptr_eq(&known.target, target)
        {
            return Ok(Arc::clone(&known.shared));
        }
        // Whoever held a reservation holds it still; if that cannot be known, nobody gets in.
        let volume = &target.export.volume;
        let kept = self.keeper.load(volume).map_err(|error| {
            tracing::error!(volume, %error, "reservations cannot be read; nobody can log in");
            Refusal::UNAVAILABLE
        })?;
        let reservations = match kept {
            None => Reservations::default(),
            Some(bytes) => Reservations::restore(&bytes).ok_or_else(|| {
                tracing::error!(volume, "kept reservations are damaged; nobody can log in");
                Refusal::UNAVAILABLE
            })?,
        };
        let shared = Arc::new(Mutex::new(Shared::new(self.profile(target), reservations)));
        served.insert(name.clone(), Served { target: Arc::clone(target), shared: Arc::clone(&shared) });
        Ok(shared)
    }

    fn profile(&self, target: &Target) -> Profile {
        let geometry = target.handle.geometry();
        let block = geometry.block.0.max(512);
        Profile {
            blocks: geometry.size.0 / block,
            block_bytes: block as u32,
            id: self.keeper.identity(&target.export.volume),
            name: target.export.volume.clone(),
            target: target.export.name.clone(),
            read_only: target.export.read_only,
            removable: target.export.iscsi.removable,
            native_blocks: target.export.iscsi.native_blocks,
            whole_max: target.handle.whole_max().0,
            // Not said of blocks of 4096 bytes, for which it says nothing more: QEMU's initiator (7.2) that hears of it ends
            // itself at a read of 32 KiB, since it then asks for a status up to a place between such blocks.
            unmap_granularity: if block == 512 { 8 } else { 0 },
        }
    }
}

pub fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
