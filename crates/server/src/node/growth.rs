//! Grows the archive with its pool: its volumes get the sizes that they would have on a new pool of
//! these drives.
//!
//! Volumes only grow. The data volume allocates space as objects arrive. If the pool can no longer
//! hold its size, `stele pool status` shows that, as for any other volume.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use stele_archive::ArchiveError;
use stele_array::{ArrayError, Command, DriveHealth, PoolStatus, Reply, VolumeStatus};
use stele_catalog::CatalogError;
use stele_ground::Bytes;

use super::Node;
use super::room::Room;
use crate::api::Actor;
use crate::failure::{Failure, Outcome};

/// The occasion of a growth, which decides which drives count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Drives were just added: count all drives that stay.
    Added,
    /// A periodic check: count only if no stripe moves and every drive is healthy, since a drive
    /// under replacement counts twice until it leaves.
    Quiet,
}

/// The intended sizes of a pool's archive volumes.
struct Sizes {
    catalog: Bytes,
    data: Bytes,
}

impl Node {
    /// Grows the archive's volumes to the sizes that the pool's drives allow. A read-only archive
    /// keeps its sizes.
    pub async fn grow_archive(&self, when: When) -> Outcome<()> {
        let (Ok(archive), Some(catalog)) = (self.archive(), self.catalog.as_ref()) else { return Ok(()) };
        if archive.is_read_only() {
            return Ok(());
        }
        let _turn = self.growing.lock().await;
        // The listing also tells the catalog the size of its volume.
        let Some(pair) = self.archive_volumes().await?.pair else { return Ok(()) };
        if !self.has_taken_up.load(Relaxed) {
            // A growth that a killed server or an error cut short may have left the catalog using
            // only a part of its volume.
            catalog.grow(|| Ok(())).await.map_err(ArchiveError::from)?;
            self.has_taken_up.store(true, Relaxed);
        }
        let Reply::Status(status) = self.pool.command(Command::Status).await? else {
            return Err(Failure::failed("the pool answered a status with something else; this is a defect of Stele"));
        };
        let Some(sizes) = self.sizes(&status, when, &pair, archive.space().segment_bytes) else { return Ok(()) };
        let (catalog_volume, data_volume) = &pair;
        // Neither growth waits for the other.
        let grown = match sizes.catalog > catalog_volume.spec.size {
            true => self.grow_catalog(catalog_volume, sizes.catalog).await,
            false => Ok(()),
        };
        if grown.is_err() {
            // The volume may have grown all the same; then no later size is larger than it.
            self.has_taken_up.store(false, Relaxed);
        }
        if sizes.data > data_volume.spec.size {
            self.grow_data(data_volume, sizes.data).await?;
        }
        grown
    }

    fn sizes(
        &self,
        status: &PoolStatus,
        when: When,
        (catalog, data): &(VolumeStatus, VolumeStatus),
        segment: u64,
    ) -> Option<Sizes> {
        let quiet = status.moving.is_none()
            && status.rebuild.is_none()
            && status.copy_back.is_none()
            && status.drives.iter().all(|drive| drive.health == DriveHealth::Healthy);
        if status.read_only || when == When::Quiet && !quiet {
            return None;
        }
        let room = Room::of(status);
        let size = room.catalog(catalog.spec.code).max(catalog.spec.size);
        let room = room.data(size.0 * catalog.spec.code.width() as u64, data.spec.code);
        let most = self.config.archive.data_max.map_or(u64::MAX, |most| most.0.0);
        // Whole segments, and one more block for the superblock's second copy.
        let wanted = room.min(most) / segment * segment;
        let worthwhile = wanted >= data.spec.size.0 + segment;
        Some(Sizes { catalog: size, data: if worthwhile { Bytes(wanted) } else { data.spec.size } })
    }

    async fn grow_catalog(&self, volume: &VolumeStatus, size: Bytes) -> Outcome<()> {
        let Some(catalog) = self.catalog.clone() else { return Ok(()) };
        let (pool, name) = (Arc::clone(&self.pool), volume.spec.name.clone());
        let act = async move {
            let grow = move || {
                let resized = pool.command_blocking(Command::ResizeVolume { name, size });
                // A listing makes the new size known. Until then the catalog would write its
                // superblock where no reader of the grown volume looks, so one failure does not end
                // the attempt.
                let list = || pool.command_blocking(Command::ListVolumes);
                let known = resized.and_then(|_| list().or_else(|_| list()).or_else(|_| list()));
                known.map(drop).map_err(|error| CatalogError::Full(error.to_string()))
            };
            catalog.grow(grow).await.map_err(ArchiveError::from)
        };
        self.grown("the catalog", volume, size, act).await
    }

    async fn grow_data(&self, volume: &VolumeStatus, size: Bytes) -> Outcome<()> {
        let archive = self.archive()?.clone();
        let (pool, name) = (Arc::clone(&self.pool), volume.spec.name.clone());
        let act = async move {
            let refused = |error: ArrayError| ArchiveError::NoSpace(error.to_string());
            let grow = async {
                pool.command(Command::ResizeVolume { name, size }).await.map_err(refused)?;
                pool.command(Command::ListVolumes).await.map(drop).map_err(refused)
            };
            archive.grow(grow).await.map(drop)
        };
        self.grown("the data volume", volume, size, act).await
    }

    async fn grown(
        &self,
        what: &str,
        volume: &VolumeStatus,
        size: Bytes,
        act: impl Future<Output = Result<(), ArchiveError>>,
    ) -> Outcome<()> {
        let place = format!("'{}' from {} to {size}", volume.spec.name, volume.spec.size);
        let actor = Actor { uid: self.uid };
        self.audited(&actor, &format!("grow {what}"), &place, act).await??;
        tracing::info!("{what} has grown with the pool: {place}");
        Ok(())
    }
}
