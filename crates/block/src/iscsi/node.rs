//! The iSCSI targets of a server: the exports, their login rules, and the shared state of their
//! connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stele_media::MediaError;

use super::connection::Connection;
use super::login::{LoginResult, LoginRules, Refusal, Targets};
use super::shared::Shared;
use crate::disk::Denied;
use crate::scsi::{Imposed, Port, Profile, Reached, Reservations};
use crate::{Directory, Disk, Peer, Protocol, Target};

pub type Kept = Box<dyn FnOnce(Result<(), MediaError>) + Send>;

/// Storage for state that outlives the server and is not part of a volume's content.
pub trait Keeper: Send + Sync {
    /// The volume's id, permanent and unique.
    fn identity(&self, volume: &str) -> [u8; 16];

    /// The place of the kept reservations, for the log.
    fn place(&self, volume: &str) -> String {
        volume.to_owned()
    }

    /// The last kept reservations. An error means that they exist but cannot be read.
    fn load(&self, volume: &str) -> Result<Option<Vec<u8>>, MediaError>;

    /// Keeps reservations, or removes them, durably; then calls `done`, on any thread. It must not
    /// block.
    fn keep(&self, volume: &str, reservations: Option<Vec<u8>>, done: Kept);
}

struct Served {
    target: Arc<Target>,
    shared: Arc<Mutex<Shared>>,
    formers: Formers,
}

/// The states of an export before it was changed. Their connections are ending.
type Formers = Vec<Arc<Mutex<Shared>>>;

pub struct Node {
    directory: Directory,
    keeper: Arc<dyn Keeper>,
    served: Mutex<BTreeMap<String, Served>>,
}

/// A connection with its place in a session of the target. Dropping it gives up the place, also if
/// the login breaks off before the connection runs.
pub struct Member {
    pub connection: Connection,
    pub shared: Arc<Mutex<Shared>>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.connection.forget(&mut lock(&self.shared));
    }
}

/// A connection with everything that it needs to run.
pub struct Joined {
    pub member: Member,
    formers: Formers,
    pub disk: Disk,
    pub keeper: Arc<dyn Keeper>,
    pub tsih: u16,
    pub node: Arc<Node>,
    pub peer: Peer,
}

impl Joined {
    /// Whether no operation of an ended session, or connection, whose place it has taken can reach
    /// the volume any more. Until then the login must not be answered.
    pub fn may_begin(&self) -> bool {
        let Member { connection, shared } = &self.member;
        let alone = connection.may_begin(&lock(shared));
        alone && self.formers.iter().all(|former| lock(former).is_quiet())
    }
}

/// A unit of another target that a copy may reach.
pub struct Neighbour {
    pub target: Arc<Target>,
    pub shared: Arc<Mutex<Shared>>,
    pub reached: Reached,
}

/// The targets visible to one peer.
pub struct Seen<'a> {
    node: &'a Node,
    peer: &'a Peer,
}

impl Targets for Seen<'_> {
    fn rules(&self, name: &str) -> Result<LoginRules, Refusal> {
        let target = self.node.directory.find(Protocol::Iscsi, name).ok_or(Refusal::NOT_FOUND)?;
        // The same answer as for a missing target.
        target.export.access.admit(self.peer).map_err(|_| Refusal::NOT_FOUND)?;
        Ok(rules_of(&target))
    }

    fn reason(&self, name: &str) -> Option<String> {
        self.node.directory.find(Protocol::Iscsi, name)?.export.access.admit(self.peer).err()
    }
}

fn rules_of(target: &Target) -> LoginRules {
    let terms = &target.export.iscsi;
    LoginRules { chap: terms.chap.clone(), mutual: terms.mutual.clone() }
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

    /// A place in a session for a successful login. `local`: our address and port as the initiator
    /// uses them.
    pub fn join(self: &Arc<Self>, agreed: LoginResult, peer: &Peer, local: String) -> Result<Joined, Refusal> {
        let name = agreed.target.clone().ok_or(Refusal::MISSING)?;
        let target = self.directory.find(Protocol::Iscsi, &name).ok_or(Refusal::NOT_FOUND)?;
        // The initiator has proved what the target asked for when the login began. It may ask for
        // something else now.
        if agreed.rules != rules_of(&target) {
            return Err(Refusal::UNAVAILABLE);
        }
        let mut peer = peer.clone();
        peer.name = format!("{} {}", agreed.initiator, peer.name);
        let disk = Disk::open(&target, &peer).map_err(|denied| match denied {
            Denied::Access(_) => Refusal::NOT_FOUND,
            Denied::Crowded => Refusal::RESOURCES,
            Denied::Closed => Refusal::UNAVAILABLE,
        })?;
        let (shared, formers) = self.shared(&target)?;
        let place = {
            let mut shared = lock(&shared);
            // The volume may have got another size since the last session: a new one is told of no
            // change, and begins with the present size.
            let block = shared.unit.profile.block();
            shared.unit.resize(disk.geometry().size.0 / block);
            shared.join(&agreed)?
        };
        let tsih = place.tsih;
        let member = Member { connection: Connection::new(place, &agreed, local), shared };
        let (keeper, node) = (Arc::clone(&self.keeper), Arc::clone(self));
        Ok(Joined { member, formers, disk, keeper, tsih, node, peer })
    }

    /// Finds the units of other targets with this designator, for a copy. The initiator must be
    /// logged in there as well, and its proof here must suffice there: equal CHAP credentials, if
    /// there are any. A copy thus reaches no unit that its initiator could not reach. A volume may
    /// have several exports: the writable ones come first.
    pub fn neighbours(&self, here: &Target, peer: &Peer, port: &Port, name: &(u8, Vec<u8>)) -> Vec<Neighbour> {
        let candidates: Vec<(Arc<Target>, Arc<Mutex<Shared>>)> = {
            let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
            served.values().map(|served| (Arc::clone(&served.target), Arc::clone(&served.shared))).collect()
        };
        let proved = |target: &Target| {
            let chap = &target.export.iscsi.chap;
            chap.is_none() || *chap == here.export.iscsi.chap
        };
        let mut found = Vec::new();
        for (target, shared) in candidates {
            let admitted = target.export.access.admit(peer).is_ok() && proved(&target) && !target.is_withdrawn();
            if let Some(reached) = admitted.then(|| lock(&shared).reached(port, name)).flatten() {
                found.push(Neighbour { target, shared, reached });
            }
        }
        found.sort_by_key(|neighbour| !neighbour.reached.writable);
        found
    }

    /// The free space that all volumes share has fallen below its threshold: the next command of
    /// every initiator reports it.
    pub fn threshold_reached(&self) {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        served.values().for_each(|served| lock(&served.shared).threshold_reached());
    }

    /// What initiators have set on a target. Before the first login after a start that is what was
    /// kept.
    pub fn imposed(&self, target: &Arc<Target>) -> Imposed {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let known = served.get(&target.export.name).filter(|known| target.continues(&known.target));
        match known {
            // A changed export takes over the reservations, and nothing else.
            Some(known) if Arc::ptr_eq(&known.target, target) => lock(&known.shared).unit.imposed(),
            Some(known) => Imposed { write_protected_by: None, ejected_by: None, ..lock(&known.shared).unit.imposed() },
            None => {
                let kept = self.keeper.load(&target.export.volume).ok().flatten();
                kept.and_then(|kept| Reservations::restore(&kept)).map(|kept| kept.imposed()).unwrap_or_default()
            }
        }
    }

    /// The shared state of a target's connections; the first connection makes it. A changed export
    /// of the same volume takes over the reservations: no power was lost.
    pub(super) fn shared(&self, target: &Arc<Target>) -> Result<(Arc<Mutex<Shared>>, Formers), Refusal> {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        // The login found it, and since then it was replaced.
        if target.is_withdrawn() {
            return Err(Refusal::UNAVAILABLE);
        }
        let name = &target.export.name;
        let mut formers = Formers::new();
        let mut taken_over = None;
        if let Some(known) = served.get_mut(name) {
            known.formers.retain(|former| !lock(former).is_quiet());
            if Arc::ptr_eq(&known.target, target) {
                return Ok((Arc::clone(&known.shared), known.formers.clone()));
            }
            if target.continues(&known.target) {
                taken_over = Some(lock(&known.shared).retire().ok_or(Refusal::UNAVAILABLE)?);
            }
            formers.clone_from(&known.formers);
            formers.push(Arc::clone(&known.shared));
        }
        // A removed export of the volume, whatever its name: a change of its reservations that is
        // being kept must be on file before they are read, and none begins afterwards.
        let removed =
            |known: &&Served| known.target.is_withdrawn() && known.target.export.volume == target.export.volume;
        for known in served.values().filter(removed) {
            lock(&known.shared).retire().ok_or(Refusal::UNAVAILABLE)?;
            if !formers.iter().any(|former| Arc::ptr_eq(former, &known.shared)) {
                formers.push(Arc::clone(&known.shared));
            }
        }
        let reservations = taken_over.map_or_else(|| self.kept_reservations(&target.export.volume), Ok)?;
        let shared = Arc::new(Mutex::new(Shared::new(self.profile(target), reservations)));
        let one = Served { target: Arc::clone(target), shared: Arc::clone(&shared), formers: formers.clone() };
        served.insert(name.clone(), one);
        Ok((shared, formers))
    }

    /// Reservations survive a restart. If they cannot be read, every login is refused.
    fn kept_reservations(&self, volume: &str) -> Result<Reservations, Refusal> {
        let kept = self.keeper.load(volume).map_err(|error| {
            tracing::error!(volume, %error, "reservations cannot be read; all logins are refused");
            Refusal::UNAVAILABLE
        })?;
        match kept {
            None => Ok(Reservations::default()),
            Some(bytes) => Reservations::restore(&bytes).ok_or_else(|| {
                match Reservations::later(&bytes) {
                    Some(version) => tracing::error!(
                        volume,
                        "kept reservations have version {version}, and this program knows version 1; all logins are refused: \
                         start the version of Stele that wrote them, or a later one"
                    ),
                    None => tracing::error!(
                        volume,
                        place = self.keeper.place(volume),
                        "kept reservations are damaged; all logins are refused: stop all initiators, remove the file, \
                         and log in again"
                    ),
                }
                Refusal::UNAVAILABLE
            }),
        }
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
            // Not reported for blocks of 4096 bytes, where it carries no further information.
            // QEMU's initiator (7.2) ends itself if it is reported: at a read of 32 KiB it asks for
            // a status up to a place between such blocks.
            unmap_granularity: if block == 512 { 8 } else { 0 },
        }
    }
}

pub fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
