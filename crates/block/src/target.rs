//! Exports that are being served, by protocol and name.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stele_ground::VolumeId;
use stele_media::Handle;

use crate::counters::Connections;
use crate::share::Pot;
use crate::{ConnectionView, Export, Limits, Protocol};

/// An export with its volume.
pub struct Target {
    pub export: Export,
    pub handle: Handle,
    pub limits: Limits,
    /// Shared by all exports of the volume.
    pub(crate) pot: Arc<Pot>,
    pub(crate) connections: Connections,
    withdrawn: AtomicBool,
    /// The same for an export and those that replace it for the same volume.
    lineage: Arc<()>,
    snapshots: Mutex<Vec<(String, VolumeId)>>,
}

impl Target {
    /// Whether its connections must end.
    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::Acquire)
    }

    /// Whether it replaced the other for the same volume, or is the same.
    pub(crate) fn continues(&self, other: &Target) -> bool {
        Arc::ptr_eq(&self.lineage, &other.lineage)
    }

    /// Snapshots of the volume, for queries of changes.
    pub fn snapshots(&self) -> Vec<(String, VolumeId)> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the present snapshots.
    pub fn note_snapshots(&self, snapshots: Vec<(String, VolumeId)>) {
        *self.snapshots.lock().unwrap_or_else(PoisonError::into_inner) = snapshots;
    }

    pub fn connections(&self) -> Vec<ConnectionView> {
        self.connections.list(&self.export)
    }

    /// Whether it still has connections.
    pub fn is_used(&self) -> bool {
        self.connections.count() > 0
    }

    /// Whether it admits no new connection, for now or for good.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_withdrawn() || !self.export.read_only && self.pot.pauses.load(Ordering::SeqCst) > 0
    }

    fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::Release);
        self.connections.wake_all();
    }
}

/// All exports of a server. Clones share it.
#[derive(Clone, Default)]
pub struct Directory(Arc<Mutex<Served>>);

#[derive(Default)]
struct Served {
    targets: BTreeMap<(Protocol, String), Arc<Target>>,
    /// Withdrawn targets whose last connections have not ended yet.
    leaving: Vec<Arc<Target>>,
    /// By volume.
    pots: BTreeMap<String, Arc<Pot>>,
}

impl Served {
    fn withdraw(&mut self, target: Arc<Target>) {
        target.withdraw();
        self.leaving.retain(|target| target.is_used());
        // A connection that opens it later finds it withdrawn.
        if target.is_used() {
            self.leaving.push(target);
        }
    }
}

/// New connections that may write to a volume are refused. Dropping it admits them again.
pub struct Pause(Arc<Pot>);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.pauses.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Directory {
    /// Starts to serve an export. An export with the same name is withdrawn first: its connections
    /// end.
    pub fn serve(&self, export: Export, handle: Handle, limits: Limits) -> Arc<Target> {
        let mut served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pot = Arc::clone(served.pots.entry(export.volume.clone()).or_default());
        let key = (export.protocol, export.name.clone());
        let former = served.targets.get(&key).filter(|former| former.export.volume == export.volume);
        let lineage = former.map(|former| Arc::clone(&former.lineage)).unwrap_or_default();
        let target = Arc::new(Target {
            export,
            handle,
            limits,
            pot,
            connections: Connections::default(),
            withdrawn: AtomicBool::new(false),
            lineage,
            snapshots: Mutex::default(),
        });
        if let Some(old) = served.targets.insert(key, Arc::clone(&target)) {
            served.withdraw(old);
        }
        target
    }

    /// Ends an export and its connections. Returns false if there is none.
    pub fn withdraw(&self, protocol: Protocol, name: &str) -> bool {
        let mut served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = served.targets.remove(&(protocol, name.to_owned()));
        removed.map(|target| served.withdraw(target)).is_some()
    }

    /// Withdrawn exports of a volume that still have connections: a request under way there may
    /// still write.
    pub fn leaving(&self, volume: &str) -> Vec<Arc<Target>> {
        let mut served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        served.leaving.retain(|target| target.is_used());
        served.leaving.iter().filter(|target| target.export.volume == volume).cloned().collect()
    }

    /// Until the result is dropped, the volume's exports refuse new connections that may write.
    pub fn pause(&self, volume: &str) -> Pause {
        let mut served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pot = Arc::clone(served.pots.entry(volume.to_owned()).or_default());
        pot.pauses.fetch_add(1, Ordering::SeqCst);
        Pause(pot)
    }

    /// Ends all exports when the server stops; their connections end when the requests under way
    /// are answered.
    pub fn withdraw_all(&self) -> Vec<Arc<Target>> {
        let targets = std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).targets);
        targets.into_values().inspect(|target| target.withdraw()).collect()
    }

    pub fn find(&self, protocol: Protocol, name: &str) -> Option<Arc<Target>> {
        let served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        served.targets.get(&(protocol, name.to_owned())).cloned()
    }

    /// All exports in the order of their names.
    pub fn list(&self, protocol: Option<Protocol>) -> Vec<Arc<Target>> {
        let served = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = |target: &&Arc<Target>| protocol.is_none_or(|protocol| target.export.protocol == protocol);
        served.targets.values().filter(wanted).cloned().collect()
    }
}
