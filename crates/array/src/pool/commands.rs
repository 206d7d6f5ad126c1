//! What operators ask: volumes come and go, status, scrub, checkpoint, close.

use std::rc::Rc;

use stele_ground::{Bytes, VolumeId};

use crate::drives::label::DriveState;
use crate::durable::log::Purpose;
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::engine::serving::Serving;
use crate::formats::shape::check_spec;
use crate::model::place::Lsn;
use crate::model::{ArrayError, Command, Reply, VolumeSpec, VolumeStatus, WriteMode};
use crate::space::layout::RowClass;
use crate::volumes::Volume;
use crate::volumes::ahead::STRIPES_MAX;

impl Serving {
    pub async fn obey(self: &Rc<Self>, command: Command) -> Result<Reply, ArrayError> {
        let engine = &self.engine;
        match command {
            Command::CreateVolume(spec) => engine.create_volume(spec).await.map(Reply::Volume),
            Command::DeleteVolume { name } => engine.delete_volume(&name).await.map(|()| Reply::Done),
            Command::ResizeVolume { name, size } => engine.resize_volume(&name, size).await.map(|()| Reply::Done),
            Command::Protect { volume, owner, retained } => {
                engine.protect(volume, &owner, retained).await.map(|()| Reply::Done)
            }
            Command::ListVolumes => {
                let mut list = Vec::new();
                for volume in engine.look(|core| core.volumes.all_with_handles()) {
                    list.push(engine.whole_status(&volume).await?);
                }
                Ok(Reply::Volumes(list))
            }
            Command::ShowVolume { name } => engine.detail(&name).await.map(|detail| Reply::Detail(Box::new(detail))),
            Command::SnapshotVolume { volume, name, made } => {
                engine.snapshot_volume(&volume, &name, made).await.map(Reply::Volume)
            }
            Command::CloneSnapshot { snapshot, name } => {
                engine.clone_snapshot(&snapshot, &name).await.map(Reply::Volume)
            }
            Command::RollBackVolume { volume, snapshot } => {
                engine.roll_back_volume(&volume, &snapshot).await.map(Reply::Volume)
            }
            Command::NoteRollback { snapshot } => engine.note_rollback(snapshot).await.map(|()| Reply::Done),
            Command::SetVolume { name, read_ahead, mode } => {
                engine.set_volume(&name, read_ahead, mode).await.map(Reply::Volume)
            }
            Command::Status => Ok(Reply::Status(Box::new(self.status()))),
            Command::ReplaceDrive { old, new, identity, enclosure, give_up } => {
                self.replace(old, new, identity, enclosure, give_up).await.map(|()| Reply::Done)
            }
            Command::CheckDrives(command) => self.would_take(&command).await.map(|()| Reply::Done),
            Command::SetDrive { drive, enclosure } => {
                engine.set_enclosure(drive, enclosure).await.map(|()| Reply::Done)
            }
            Command::AddDrives { drives } => self.add_drives(&drives).await.map(|()| Reply::Done),
            Command::RemoveDrive { drive } => engine.remove_drive(drive).await.map(|()| Reply::Done),
            Command::KeepDrive { drive } => engine.keep_drive(drive).await.map(|()| Reply::Done),
            Command::ClearDrive { drive } => self.clear_drive(drive).await.map(|()| Reply::Done),
            Command::OnlineDrive { drive, index } => self.online_drive(drive, index).await.map(|()| Reply::Done),
            Command::FailDrive { drive } => {
                let number =
                    u16::try_from(drive).map_err(|_| ArrayError::Missing(format!("the pool has no drive {drive}")));
                engine.fail_drive(crate::model::place::DriveNumber(number?)).await.map(|()| Reply::Done)
            }
            Command::StartScrub => {
                engine.check_writable()?;
                engine.scrubbing.want();
                Ok(Reply::Done)
            }
            Command::Checkpoint => {
                engine.check_writable()?;
                engine.drain_dirty().await;
                engine.checkpoint().await.map(|()| Reply::Done)
            }
            Command::WashLog => self.wash_log().await.map(|()| Reply::Done),
            Command::Close => self.close().await.map(|()| Reply::Done),
        }
    }

    /// Leaves nothing on any drive's log of what was written before, and written over since.
    async fn wash_log(self: &Rc<Self>) -> Result<(), ArrayError> {
        let engine = &self.engine;
        engine.check_writable()?;
        let upto = engine.log.next_lsn();
        engine.drain_dirty().await;
        // The group with the first checkpoint's record may hold records from before it; that with
        // the second's does not.
        engine.checkpoint().await?;
        engine.checkpoint().await?;
        if engine.oldest_needed() < upto {
            return Err(ArrayError::Degraded(
                "some writes are still in the log only, and it was not washed; return missing drives, and try again"
                    .into(),
            ));
        }
        let drives = self.drives_to_wash().await;
        let known = engine.drives.labels.configuration().drives.clone();
        let known = known.iter().filter(|entry| entry.state != DriveState::Retired).count();
        engine.log.wash(&drives).await?;
        if drives.len() < known {
            tracing::warn!("the logs of {} drives were not washed: they are not here", known - drives.len());
        }
        Ok(())
    }

    /// The attached drives of the pool that answer, those too that it gave up: they held the log
    /// once. Any other belongs elsewhere, or holds what was written apart from this pool.
    async fn drives_to_wash(&self) -> Vec<usize> {
        let engine = &self.engine;
        let mut drives = Vec::new();
        for index in (0..engine.io.drives()).filter(|index| !engine.io.is_gone(*index)) {
            let washes = match engine.drives.labels.number(index) {
                Some(number) => !engine.hospital.is_silent(number),
                None => self.was_given_up(index).await,
            };
            if washes {
                drives.push(index);
            }
        }
        drives
    }

    async fn would_take(&self, command: &Command) -> Result<(), ArrayError> {
        match command {
            Command::ReplaceDrive { old, new, identity, enclosure, give_up } => {
                self.would_replace(*old, *new, *identity, *enclosure, *give_up).await
            }
            Command::AddDrives { drives } => self.would_add(drives).await,
            _ => Err(ArrayError::Invalid("only commands that put drives in are checked".to_owned())),
        }
    }

    async fn close(self: &Rc<Self>) -> Result<(), ArrayError> {
        let engine = &self.engine;
        if !engine.standing.is_read_only() && engine.log.stopped().is_none() {
            // Destages may need room in the log, so checkpoints go on meanwhile.
            engine.drain_dirty().await;
            engine.standing.begin_close();
            let ended = self.end().await;
            // Where the close failed the pool stays open, and its flows go on.
            engine.standing.end_close(ended.is_ok());
            ended?;
        }
        self.note_closed();
        Ok(())
    }

    async fn end(&self) -> Result<(), ArrayError> {
        let engine = &self.engine;
        engine.checkpoint().await?;
        engine.log.seal().await?;
        let clean = engine.look(|core| core.cache.dirty_bytes()) == 0;
        if clean {
            engine.drives.labels.commit(|configuration| configuration.clean = true).await?;
        }
        Ok(())
    }
}

/// Slots promised until a record does it. Dropped, they are anybody's again.
pub struct Promise<'a> {
    engine: &'a Engine,
    class: RowClass,
    slots: u64,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.engine.step(|core| core.space.release(self.class, self.slots));
    }
}

impl Engine {
    async fn note_rollback(&self, snapshot: Option<VolumeId>) -> Result<(), ArrayError> {
        self.check_writable()?;
        let labels = &self.drives.labels;
        if labels.configuration().shard.is_alone() {
            return Err(ArrayError::Invalid("the pool has one shard, which rolls back by itself".to_owned()));
        }
        labels.commit(|configuration| configuration.rolling_back = snapshot).await
    }

    async fn create_volume(self: &Rc<Self>, spec: VolumeSpec) -> Result<VolumeStatus, ArrayError> {
        let _turn = self.administering.lock().await;
        self.check_writable()?;
        check_spec(&spec)?;
        if self.look(|core| core.volumes.named(&spec.name)).is_some() {
            return Err(ArrayError::Exists(format!("a volume named '{}' exists; choose another name", spec.name)));
        }
        let judged = self.layout.read().judge(spec.code);
        let lacks = judged.map_err(|text| ArrayError::Invalid(format!("volume '{}': {text}", spec.name)))?;
        for text in lacks {
            self.alarm(
                crate::model::AlarmKind::SpareExhausted,
                crate::model::Severity::Notice,
                None,
                format!("volume '{}' of {}: {text}", spec.name, spec.code),
            );
        }
        self.raise_tolerance(spec.code.tolerates() as u32).await?;
        let id = self.step(|core| core.volumes.take_number());
        let volume = Volume::new(id, spec.clone());
        let lsn = match spec.fully_allocated {
            true => {
                let promise = self.promise_all(&volume, volume.stripes()).await?;
                self.record_promised(Record::VolumeCreate { volume: id, spec }, promise).await?
            }
            false => self.record(Record::VolumeCreate { volume: id, spec }, Purpose::Inside).await?,
        };
        // Durable in the log on all its members.
        self.log.durable(lsn).await?;
        let volume = self.volume(id)?;
        Ok(self.volume_status(&volume))
    }

    /// Promises so many slots to a fully allocated volume, or says that they do not fit. No other
    /// volume gets them while the record of the volume waits for its turn.
    pub async fn promise_all(&self, volume: &Volume, slots: u64) -> Result<Promise<'_>, ArrayError> {
        while self.look(|core| core.space.unpromised(volume.class)) < slots {
            if !self.grow_if_roomy(volume.class).await? {
                let free = self.look(|core| core.space.unpromised(volume.class));
                // The rows that it took are room for all again.
                self.free_empty_rows().await?;
                let [needed, free, missing] =
                    [slots, free, slots.saturating_sub(free)].map(|slots| Bytes(slots * volume.shape.data()));
                return Err(ArrayError::Full(format!(
                    "volume '{}' does not fit: it needs room for {needed} more, the pool has {free} for {}, and \
                     {missing} are missing; ask for less, delete data, or add drives",
                    volume.name(),
                    volume.class.code
                )));
            }
        }
        self.step(|core| core.space.promise(volume.class, slots));
        Ok(Promise { engine: self, class: volume.class, slots })
    }

    /// Records what makes a promise last.
    pub async fn record_promised(&self, record: Record, promise: Promise<'_>) -> Result<Lsn, ArrayError> {
        let mut reservation = self.log.reserve(self.log.cost(&record), Purpose::Inside).await?;
        let pages = self.pages_for(&record).await?;
        // One step: the record promises the slots anew.
        drop(promise);
        Ok(self.append(&record, &pages, &mut reservation))
    }

    /// Log, anchors and table pages survive as many losses as the strongest code, and one more.
    async fn raise_tolerance(self: &Rc<Self>, tolerates: u32) -> Result<(), ArrayError> {
        if self.drives.labels.configuration().tolerates < tolerates {
            self.drives
                .labels
                .commit(|configuration| configuration.tolerates = configuration.tolerates.max(tolerates))
                .await?;
            self.log.replenish().await?;
        }
        self.widen_tables().await
    }

    pub fn named(&self, name: &str) -> Result<Rc<Volume>, ArrayError> {
        self.look(|core| core.volumes.named(name))
            .ok_or_else(|| ArrayError::Missing(format!("the pool has no volume named '{name}'")))
    }

    /// Gives rows without stripes back, so that other classes can use their cells.
    pub async fn free_empty_rows(&self) -> Result<(), ArrayError> {
        for row in self.look(|core| core.space.empty_rows()) {
            let Some(class) = self.look(|core| core.space.row_class(row)) else { continue };
            let slots = u64::from(self.look(|core| core.space.slots(row)));
            let mut reservation = self.log.reserve(self.log.cost_of(64), Purpose::Inside).await?;
            let record = Record::RowFree { row };
            let pages = self.pages_for(&record).await?;
            // Only what no promise needs, and only if it is still empty.
            if self.look(|core| core.space.is_empty(row)) && self.look(|core| core.space.unpromised(class)) >= slots {
                self.append(&record, &pages, &mut reservation);
            }
        }
        Ok(())
    }

    async fn set_volume(
        self: &Rc<Self>,
        name: &str,
        read_ahead: Option<u8>,
        mode: Option<WriteMode>,
    ) -> Result<VolumeStatus, ArrayError> {
        let _turn = self.administering.lock().await;
        self.check_writable()?;
        let volume = self.named(name)?;
        if let Some(stripes) = read_ahead {
            if stripes > STRIPES_MAX {
                return Err(ArrayError::Invalid(format!("0 to {STRIPES_MAX} stripes are read ahead, not {stripes}")));
            }
            let lsn = self.record(Record::VolumeReadAhead { volume: volume.id, stripes }, Purpose::Inside).await?;
            self.log.durable(lsn).await?;
        }
        if let Some(mode) = mode {
            if mode == WriteMode::Volatile && (volume.is_retained() || volume.spec().owner.is_some()) {
                return Err(ArrayError::Refused(format!(
                    "volume '{name}' has an owner or retained versions: its writes are not acknowledged from memory"
                )));
            }
            let lsn = self.record(Record::VolumeMode { volume: volume.id, mode }, Purpose::Inside).await?;
            self.log.durable(lsn).await?;
        }
        Ok(self.volume_status(&volume))
    }

    async fn protect(self: &Rc<Self>, id: VolumeId, owner: &str, retained: bool) -> Result<(), ArrayError> {
        let _turn = self.administering.lock().await;
        self.check_writable()?;
        let volume = self.look(|core| core.volumes.by_handle(id));
        let volume = volume.ok_or_else(|| ArrayError::Missing(format!("the pool has no volume {id}")))?;
        let id = volume.id;
        let owned = volume.spec().owner.clone();
        if owned.as_deref() != Some(owner) {
            return Err(ArrayError::Refused(format!(
                "volume '{}' belongs to '{}', and only its owner says whether records on it are retained",
                volume.name(),
                owned.unwrap_or_default()
            )));
        }
        if retained && volume.mode() == WriteMode::Volatile {
            return Err(ArrayError::Refused(format!(
                "volume '{}' acknowledges from memory and may not hold retained records",
                volume.name()
            )));
        }
        if volume.is_retained() == retained {
            return Ok(());
        }
        if retained {
            self.commit_protection(true).await?;
        }
        let lsn = self.record(Record::VolumeProtect { volume: id, retained }, Purpose::Inside).await?;
        self.log.durable(lsn).await?;
        if !retained && !self.look(|core| core.volumes.all()).iter().any(|volume| volume.is_retained()) {
            self.commit_protection(false).await?;
        }
        Ok(())
    }

    /// In the labels too, so that an operator who sees only a drive does not re-create the pool
    /// over retained records.
    async fn commit_protection(&self, protected: bool) -> Result<(), ArrayError> {
        if self.drives.labels.configuration().protected == protected {
            return Ok(());
        }
        self.drives.labels.commit(|configuration| configuration.protected = protected).await
    }
}

#[cfg(test)]
mod tests;
