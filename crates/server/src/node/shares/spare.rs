//! Where the pool has little room, the caches of shares give some up: content that is archived is
//! there a second time.

use std::sync::Arc;

use stele_array::{Command, PoolStatus, Reply, VolumeStatus};
use stele_codes::Code;
use stele_file::share::Share;
use stele_ground::Bytes;

use super::is_cache;
use crate::node::Node;
use crate::node::standing::LOW_SHARE;

/// The part of the pool, in raw bytes, that caches make free where it has less than
/// `1 / LOW_SHARE`: a bit more, so that they are not asked for each write.
const MADE_FREE: u64 = LOW_SHARE * 4 / 5;

/// Whether the pool has little room.
fn is_low(status: &PoolStatus) -> bool {
    let reserved = status.spare.0.saturating_sub(status.spare_used.0);
    let free = status.raw.0.saturating_sub(status.used.0).saturating_sub(reserved);
    !status.read_only && free < status.raw.0 / LOW_SHARE
}

/// Raw bytes that a pool of so many lacks. `codes`: what the volumes of each code can grow by, and
/// what the pool has room for in this code. Space that comes free in a row is room for its own code
/// at once, and for others when the whole row is given back.
fn lacking(raw: u64, codes: impl Iterator<Item = (u128, u128)>) -> u64 {
    let wanted = u128::from(raw / MADE_FREE);
    let most = codes.map(|(growth, room)| growth.min(wanted).saturating_sub(room)).max();
    most.map_or(0, |most| u64::try_from(most).unwrap_or(u64::MAX))
}

/// See [`lacking`].
fn codes(status: &PoolStatus, volumes: &[VolumeStatus]) -> impl Iterator<Item = (u128, u128)> {
    status.codes.iter().map(|space| {
        let grows = |volume: &&VolumeStatus| {
            let spec = &volume.spec;
            !volume.snapshot && !spec.fully_allocated && spec.code == space.code && spec.strip == space.strip
        };
        let left = |volume: &VolumeStatus| volume.spec.size.0.saturating_sub(volume.allocated.0);
        let growth = volumes.iter().filter(grows).map(left).fold(0, u64::saturating_add);
        (on_drives(Bytes(growth), space.code), on_drives(space.free, space.code))
    })
}

/// What each cache is to give, in its bytes, of so many raw ones: in proportion to what it can.
/// `caches`: bytes that one can give, and raw bytes that each of them takes, as a fraction.
fn parts(lacking: u64, caches: &[(u64, (u64, u64))]) -> Vec<u64> {
    let raw = |(spare, (width, data)): &(u64, (u64, u64))| u128::from(*spare) * u128::from(*width) / u128::from(*data);
    let all: u128 = caches.iter().map(raw).sum();
    let part = |(spare, _): &(u64, (u64, u64))| {
        let part = (u128::from(*spare) * u128::from(lacking)).div_ceil(all.max(1));
        u64::try_from(part).map_or(*spare, |part| part.min(*spare))
    };
    caches.iter().map(part).collect()
}

impl Node {
    /// Asks the caches for space where the pool has little. What is pinned, or not archived, stays.
    /// Answers whether the pool has little, and a cache could give some.
    pub async fn spare_caches(&self) -> bool {
        let spare = |share: Arc<Share>| Some((share.spare_space(), share)).filter(|(spare, _)| *spare > 0);
        let shares: Vec<(u64, Arc<Share>)> = self.shares.all().into_iter().filter_map(spare).collect();
        if shares.is_empty() {
            return false;
        }
        let Ok(Reply::Status(status)) = self.pool.command(Command::Status).await else { return false };
        if !is_low(&status) {
            return false;
        }
        let (Ok(registry), Ok(volumes)) = (self.registry(), self.volumes().await) else { return true };
        let lacking = lacking(status.raw.0, codes(&status, &volumes));
        if lacking == 0 {
            return true;
        }
        let of = |share: &Share| {
            let row = registry.get(share.name()).ok().flatten()?;
            let volume = volumes.iter().find(|volume| volume.spec.name == row.volume && is_cache(volume))?;
            Some((volume.spec.code.width() as u64, volume.spec.code.data() as u64))
        };
        let caches: Vec<(u64, (u64, u64))> =
            shares.iter().map(|(spare, share)| (*spare, of(share).unwrap_or((1, 1)))).collect();
        for ((_, share), part) in shares.iter().zip(parts(lacking, &caches)) {
            share.want_space(part);
        }
        true
    }
}

/// Bytes on drives that a volume of this size and code takes when it is full.
pub fn on_drives(size: Bytes, code: Code) -> u128 {
    u128::from(size.0) * code.width() as u128 / code.data() as u128
}

/// Bytes that the pool gives a cache volume, and takes back, as a whole.
pub fn unit(volume: &VolumeStatus) -> u64 {
    volume.spec.strip.0 * volume.spec.code.data() as u64
}

#[cfg(test)]
mod tests {
    use super::{lacking, parts};

    #[test]
    fn a_pool_lacks_what_its_volumes_have_no_room_for() {
        // Of 1600 raw bytes, 100 are to be room for each code.
        for (codes, lacks) in [
            (vec![(5000, 0)], 100),
            (vec![(5000, 70)], 30),
            // What came free in rows of the same code serves it, though no row is free.
            (vec![(5000, 100)], 0),
            (vec![(5000, 400), (5000, 60)], 40),
            // No volume of the second code grows by more than it has room for.
            (vec![(5000, 100), (30, 40), (0, 0)], 0),
            (vec![(30, 10)], 20),
            (vec![], 0),
        ] {
            assert_eq!(lacking(1600, codes.iter().copied()), lacks, "{codes:?}");
        }
    }

    #[test]
    fn caches_give_what_lacks_in_proportion_to_what_they_can() {
        assert_eq!(parts(300, &[(100, (2, 1)), (300, (3, 2))]), [47, 139], "200 and 450 raw bytes");
        assert_eq!(parts(10_000, &[(100, (2, 1)), (300, (3, 2))]), [100, 300], "no more than they have");
        assert_eq!(parts(u64::MAX, &[(u64::MAX, (10, 8)), (0, (2, 1))]), [14_757_395_258_967_641_293, 0]);
        assert_eq!(parts(10, &[]), Vec::<u64>::new());
    }
}
