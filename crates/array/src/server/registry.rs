//! Which volumes of the shards make up a volume of the pool.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stele_ground::VolumeId;

use super::gate::Gate;

/// A number that no volume has.
pub const NONE: VolumeId = VolumeId(u32::MAX);

/// Volumes that cannot be read as a whole, by name, with the snapshot that some parts show already.
pub type Unsettled = BTreeMap<String, Option<String>>;

/// Shared by the pool's ports and commands. A volume is known by its number on the first shard.
#[derive(Default)]
pub struct Registry {
    volumes: Mutex<BTreeMap<VolumeId, Entry>>,
    incomplete: Mutex<Unsettled>,
}

#[derive(Clone)]
struct Entry {
    /// By shard; one number for a volume that lies on the first shard alone.
    parts: Vec<VolumeId>,
    gate: Arc<Gate>,
}

impl Registry {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Entry>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> MutexGuard<'_, Unsettled> {
        self.incomplete.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names a volume that lacks a part for good, or of which some parts are rolled back to this
    /// snapshot and others are not. One that lacks a part for a moment is on its way to all shards,
    /// or from them.
    pub fn note_incomplete(&self, name: &str, rolling_back_to: Option<String>) {
        self.names().insert(name.to_owned(), rolling_back_to);
    }

    pub fn is_incomplete(&self, name: &str) -> bool {
        self.names().contains_key(name)
    }

    pub fn incomplete(&self) -> Unsettled {
        self.names().clone()
    }

    pub fn end_incomplete(&self, name: &str) {
        self.names().remove(name);
    }

    /// Numbers are never given twice, so what is known stays true.
    pub fn note(&self, parts: Vec<VolumeId>) {
        let Some(first) = parts.first().copied() else { return };
        self.entries().entry(first).or_insert_with(|| Entry { parts, gate: Arc::default() });
    }

    /// The numbers by shard.
    pub fn parts(&self, volume: VolumeId) -> Option<Vec<VolumeId>> {
        self.entries().get(&volume).map(|entry| entry.parts.clone())
    }

    /// The number on one shard; one that no volume has where the volume is not known.
    pub fn part(&self, volume: VolumeId, shard: usize) -> VolumeId {
        self.entries().get(&volume).and_then(|entry| entry.parts.get(shard)).copied().unwrap_or(NONE)
    }

    pub fn gate(&self, volume: VolumeId) -> Option<Arc<Gate>> {
        self.entries().get(&volume).map(|entry| Arc::clone(&entry.gate))
    }

    /// Lets nothing be read or written any more.
    pub fn shut(&self, volume: VolumeId) {
        if let Some(gate) = self.gate(volume) {
            gate.shut(true);
        }
    }

    pub fn open(&self, volume: VolumeId) {
        if let Some(gate) = self.gate(volume) {
            gate.shut(false);
        }
    }

    pub fn is_shut(&self, volume: VolumeId) -> bool {
        self.gate(volume).is_some_and(|gate| gate.is_shut())
    }
}
