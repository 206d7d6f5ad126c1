//! Grows the archive with its pool: its volumes get the sizes that they would have on a new pool of
//! these drives.
//!
//! Volumes only grow. The data volume allocates space as objects arrive. If the pool can no longer
//! hold its size, `stele pool status` shows that, as for any other volume.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use stele_archive::ArchiveError;
use stele_array::{ArrayError, Command, DriveHealth, DriveStatus, NOT_A_MEMBER, PoolStatus, Reply, VolumeStatus};
use stele_catalog::CatalogError;
use stele_codes::Code;
use stele_ground::Bytes;

use super::{Node, create};
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

/// The raw bytes of drives of these sizes that stripes of this code can use at most. Each stripe
/// has a strip on each of as many drives as the code is wide, so much of a drive that is far larger
/// than the others stays empty. Volumes never shrink: one that grew by all of such a drive would
/// promise for good what the pool cannot hold.
pub(super) fn usable(mut sizes: Vec<u64>, code: Code) -> u64 {
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let (width, mut rest) = (code.width() as u64, sizes.iter().map(|size| u128::from(*size)).sum::<u128>());
    for (at, size) in (0..width).zip(sizes) {
        // The larger drives have a strip of every stripe, and the others share the remaining ones.
        let stripes = rest / u128::from(width - at);
        if u128::from(size) <= stripes {
            return u64::try_from(stripes.saturating_mul(width.into())).unwrap_or(u64::MAX);
        }
        rest -= u128::from(size);
    }
    0
}

/// The data that drives of these sizes can hold at most in stripes of this code.
pub(super) fn fits(sizes: Vec<u64>, code: Code) -> u64 {
    (usable(sizes, code) / code.width() as u64).saturating_mul(code.data() as u64)
}

/// The sizes of the drives that stay in the pool.
pub(super) fn sizes_of(drives: &[DriveStatus]) -> Vec<u64> {
    let stay = drives.iter().filter(|drive| drive.index != NOT_A_MEMBER && !drive.leaving);
    stay.map(|drive| drive.size.0).collect()
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
        let leaving = status.drives.iter().filter(|drive| drive.leaving);
        let leaving = leaving.map(|drive| drive.size.0).sum::<u64>();
        let raw = Bytes(status.raw.0.saturating_sub(leaving));
        let drives = sizes_of(&status.drives);
        let beside = Bytes(raw.0.min(usable(drives.clone(), catalog.spec.code)));
        let size = create::catalog_size(beside).max(catalog.spec.size);
        let (shards, catalog) = (status.shards, size.0 * catalog.spec.code.width() as u64);
        let room = create::data_room(raw, status.spare, shards, catalog, data.spec.code);
        let most = self.config.archive.data_max.map_or(u64::MAX, |most| most.0.0);
        // Whole segments, and one more block for the superblock's second copy.
        let wanted = room.min(fits(drives, data.spec.code)).min(most) / segment * segment;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive of 64 PiB beside twelve of 256 MiB made the data volume grow to 2.6 PiB.
    #[test]
    fn a_drive_that_is_far_larger_than_the_others_counts_as_far_as_stripes_use_it() {
        let of = |sizes: &[u64], code: &str| usable(sizes.to_vec(), code.parse().unwrap());
        for (sizes, code, raw) in [
            // All of alike drives is used.
            (&[100; 12][..], "8+2", 1200),
            (&[100; 10], "8+2", 1000),
            (&[100, 200, 100, 200], "2+1", 600),
            // Of the large one a strip of every stripe, beside nine on the others.
            (&[100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 1 << 56], "8+2", 1330),
            (&[100, 100, u64::MAX, u64::MAX], "mirror-2", u64::MAX),
            (&[100, 100, u64::MAX], "mirror-2", 400),
            (&[100, u64::MAX, u64::MAX], "mirror-3", 300),
            // Fewer drives than the code is wide.
            (&[100, 100], "2+1", 0),
            (&[], "mirror-2", 0),
        ] {
            assert_eq!(of(sizes, code), raw, "{code} on {sizes:?}");
        }
    }
}
