//! Snapshot, clone, rollback and delete, as operators ask for them.
//!
//! Before a volume's layer is frozen or given up, writes under way on it are waited for, and those
//! that come wait; what they left dirty belongs to the layer. The record is one step, so that a
//! crash leaves the volume on one side of it.

use std::rc::Rc;

use stele_ground::VolumeId;

use super::LAYERS_MAX;
use crate::durable::log::Purpose;
use crate::durable::records::{NewLayer, Reason, Record};
use crate::engine::Engine;
use crate::formats::shape::is_name;
use crate::model::mutation::Mutation;
use crate::model::{ArrayError, VolumeStatus};
use crate::runtime::sync::Permit;
use crate::volumes::{LayerKind, Volume};

impl Engine {
    pub async fn snapshot_volume(
        self: &Rc<Self>,
        volume: &str,
        name: &str,
        made: u64,
    ) -> Result<VolumeStatus, ArrayError> {
        let _turn = self.administering.lock().await;
        self.check_writable()?;
        let volume = self.named(volume)?;
        self.check_new_name(name)?;
        refuse_owned(&volume, "gets no snapshots: its owner keeps versions of its own")?;
        if volume.kind() == LayerKind::Snapshot {
            return Err(ArrayError::Invalid(format!("'{}' is a snapshot already; make a clone of it", volume.name())));
        }
        self.check_depth(&volume)?;
        let reason = Reason::Snapshot;
        let new =
            NewLayer { reason, layer: self.next_layer(), base: volume.id, former: volume.id, made, name: name.into() };
        let handle = new.layer;
        self.put_on(new, &volume).await?;
        self.status_of_handle(handle)
    }

    pub async fn clone_snapshot(self: &Rc<Self>, snapshot: &str, name: &str) -> Result<VolumeStatus, ArrayError> {
        let _turn = self.administering.lock().await;
        self.check_writable()?;
        let snapshot = self.named(snapshot)?;
        self.check_new_name(name)?;
        if snapshot.kind() != LayerKind::Snapshot {
            return Err(ArrayError::Invalid(format!(
                "'{}' is a volume; take a snapshot of it and clone that",
                snapshot.name()
            )));
        }
        self.check_depth(&snapshot)?;
        let (reason, layer, base) = (Reason::Clone, self.next_layer(), snapshot.id);
        let new = NewLayer { reason, layer, base, former: base, made: 0, name: name.into() };
        let lsn = self.record(Record::Layer { new }, Purpose::Inside).await?;
        self.log.durable(lsn).await?;
        self.status_of_handle(layer)
    }

    /// The volume shows what the snapshot shows, and keeps its size; what lies beyond the
    /// snapshot's reads as zeros.
    pub async fn roll_back_volume(self: &Rc<Self>, volume: &str, snapshot: &str) -> Result<VolumeStatus, ArrayError> {
        let _turn = self.administering.lock().await;
        self.check_writable()?;
        let (volume, snapshot) = (self.named(volume)?, self.named(snapshot)?);
        refuse_owned(&volume, "is never rolled back: what its owner has promised since would be undone")?;
        if volume.kind() == LayerKind::Snapshot || snapshot.origin() != volume.handle_id() {
            return Err(ArrayError::Invalid(format!(
                "'{}' is no snapshot of volume '{}'; `stele volume list` shows which are",
                snapshot.name(),
                volume.name()
            )));
        }
        self.check_depth(&snapshot)?;
        let handle = volume.handle_id();
        let (reason, layer) = (Reason::Rollback, self.next_layer());
        let new = NewLayer { reason, layer, base: snapshot.id, former: volume.id, made: 0, name: String::new() };
        self.put_on(new, &volume).await?;
        self.reclaiming.want();
        self.status_of_handle(handle.unwrap_or(layer))
    }

    /// Deletes a volume or snapshot. Its name is free and its content unreachable when this
    /// answers; where other layers still see through it, space follows when they let go.
    pub async fn delete_volume(self: &Rc<Self>, name: &str) -> Result<(), ArrayError> {
        {
            let _turn = self.administering.lock().await;
            self.check_writable()?;
            let volume = self.named(name)?;
            if volume.is_retained() {
                let owner = volume.spec().owner.clone().unwrap_or_default();
                return Err(ArrayError::Refused(format!(
                    "volume '{name}' holds retained records of its owner '{owner}'; it can be deleted when none are left"
                )));
            }
            self.check_nobody_of(&volume)?;
            let _stopped = self.stop_writes(&volume).await;
            let record = Record::GivenUp { volume: volume.id };
            let lsn = self.record(record, Purpose::Inside).await?;
            self.log.durable(lsn).await?;
        }
        // Given up for good: what is left of it is taken apart now, or by the flow when it can be.
        if let Err(error) = self.reclaim().await {
            tracing::warn!("'{name}' is deleted, and its space not free yet: {error}");
            self.reclaiming.want();
        }
        self.free_empty_rows().await
    }

    /// Refuses to delete what snapshots were taken of, or clones were made of.
    fn check_nobody_of(&self, volume: &Volume) -> Result<(), ArrayError> {
        let handle = volume.handle_id();
        let (what, others) = match volume.kind() {
            LayerKind::Snapshot => ("clones", LayerKind::Volume),
            LayerKind::Volume | LayerKind::GivenUp => ("snapshots", LayerKind::Snapshot),
        };
        let of_it: Vec<String> = self
            .look(|core| core.volumes.all_with_handles())
            .into_iter()
            .filter(|other| other.kind() == others && handle.is_some() && other.origin() == handle)
            .map(|other| format!("'{}'", other.name()))
            .collect();
        if of_it.is_empty() {
            return Ok(());
        }
        Err(ArrayError::Refused(format!("'{}' has {what}: delete {} first", volume.name(), of_it.join(", "))))
    }

    fn check_new_name(&self, name: &str) -> Result<(), ArrayError> {
        if !is_name(name) {
            return Err(ArrayError::Invalid("a name has 1 to 255 bytes and no control characters".into()));
        }
        match self.look(|core| core.volumes.named(name)) {
            Some(_) => Err(ArrayError::Exists(format!("'{name}' exists; choose another name"))),
            None => Ok(()),
        }
    }

    /// A layer may be put on this one.
    fn check_depth(&self, base: &Rc<Volume>) -> Result<(), ArrayError> {
        let mut depth = 1;
        let mut here = Rc::clone(base);
        while let Some(next) = here.base().and_then(|base| self.look(|core| core.volumes.get(base))) {
            depth += 1;
            here = next;
        }
        if depth < LAYERS_MAX {
            return Ok(());
        }
        Err(ArrayError::Refused(format!(
            "'{}' stands on {} snapshots, and {LAYERS_MAX} layers are the limit; delete old snapshots first",
            base.name(),
            depth - 1
        )))
    }

    fn next_layer(&self) -> VolumeId {
        self.step(|core| core.volumes.take_number())
    }

    /// Puts a new layer in the place of the volume's, once no write is under way on it.
    async fn put_on(self: &Rc<Self>, new: NewLayer, volume: &Rc<Volume>) -> Result<(), ArrayError> {
        // Every stripe of a fully allocated volume may be written anew beside what the snapshot
        // keeps.
        let promise = match volume.spec().fully_allocated {
            true => Some(volume.stripes()),
            false => None,
        };
        let promise = match promise {
            Some(stripes) => Some(self.promise_all(volume, stripes).await?),
            None => None,
        };
        let (layer, shows_other_content) = (new.layer, new.reason == Reason::Rollback);
        let lsn = {
            let _stopped = self.stop_writes(volume).await;
            match promise {
                Some(promise) => self.record_promised(Record::Layer { new }, promise).await?,
                None => self.record(Record::Layer { new }, Purpose::Inside).await?,
            }
        };
        // Content that a power cut may take back is shown to no reader. Where the log has stopped,
        // that is open until the pool is opened again.
        if shows_other_content && !self.io.is_disabled(Mutation::RollbackWait) {
            self.step(|core| core.unsettled_layers.insert(layer, lsn));
        }
        self.log.durable(lsn).await?;
        self.step(|core| core.unsettled_layers.remove(&layer));
        Ok(())
    }

    /// Answers when no write is under way on the volume; none begins while the permit lives.
    pub(crate) async fn stop_writes(&self, volume: &Volume) -> Option<Permit> {
        let handle = volume.handle();
        match handle {
            Some(handle) if !self.io.is_disabled(Mutation::LayerGate) => Some(handle.stop_writes().await),
            _ => None,
        }
    }

    fn status_of_handle(&self, handle: VolumeId) -> Result<VolumeStatus, ArrayError> {
        let volume = self.look(|core| core.volumes.by_handle(handle));
        let volume = volume.ok_or_else(|| ArrayError::Missing(format!("volume {handle} was deleted meanwhile")))?;
        Ok(self.volume_status(&volume))
    }
}

pub(crate) fn refuse_owned(volume: &Volume, why: &str) -> Result<(), ArrayError> {
    if volume.is_owned() || volume.is_retained() {
        let owner = volume.spec().owner.clone().unwrap_or_default();
        return Err(ArrayError::Refused(format!("volume '{}' carries the {owner} and {why}", volume.name())));
    }
    Ok(())
}
