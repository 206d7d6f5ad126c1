//! What a pool's drives have room for: the sizes that the archive's volumes get on them.

use stele_array::{DriveStatus, NOT_A_MEMBER, PoolStatus};
use stele_codes::Code;
use stele_ground::{Bytes, GIB, MIB};

/// The catalog's largest size.
pub const CATALOG_MAX: Bytes = Bytes(64 * GIB);

/// The space of the drives that stay in a pool.
pub struct Room {
    pub raw: Bytes,
    pub spare: Bytes,
    pub shards: u16,
    /// Of the drives, each.
    sizes: Vec<u64>,
}

impl Room {
    pub fn of(status: &PoolStatus) -> Room {
        let leaving = status.drives.iter().filter(|drive| drive.leaving).map(|drive| drive.size.0).sum();
        let stay = |drive: &&DriveStatus| drive.index != NOT_A_MEMBER && !drive.leaving;
        Room {
            raw: Bytes(status.raw.0.saturating_sub(leaving)),
            spare: status.spare,
            shards: status.shards,
            sizes: status.drives.iter().filter(stay).map(|drive| drive.size.0).collect(),
        }
    }

    /// The size of a catalog with this code.
    pub fn catalog(&self, code: Code) -> Bytes {
        // With drives away there may be fewer than the code is wide.
        catalog_size(Bytes(self.raw.0.min(usable(&self.sizes, code))))
    }

    /// The size of a data volume with this code beside a catalog of so many raw bytes. A
    /// thirty-second stays free for the slot table and for its copy-on-write pages. The catalog
    /// lies on the first of several shards, and the data volume takes as much of each as fits
    /// beside it there.
    pub fn data(&self, catalog: u64, code: Code) -> u64 {
        let raw = u128::from(self.raw.0);
        let usable = raw.min(usable(&self.sizes, code).into());
        // Every drive keeps the same share of itself as spare space.
        let beside = usable * raw.saturating_sub(self.spare.0.into()) / raw.max(1);
        // The catalog counts as if all of it lay on the drives that limit these stripes.
        let free = u64::try_from(beside).unwrap_or(u64::MAX).saturating_sub(self.in_shards(catalog)) / 32 * 31;
        free / code.width() as u64 * code.data() as u64
    }

    fn in_shards(&self, catalog: u64) -> u64 {
        catalog.saturating_mul(self.shards.into())
    }

    /// The next step where the drives are too small for an archive with so many bytes of data: by
    /// how much each has to be larger.
    pub fn larger(&self, catalog: u64, code: Code, data: u64) -> String {
        let free = self.raw.0.saturating_sub(self.spare.0).max(1);
        let needed = data.div_ceil(code.data() as u64) * code.width() as u64 / 31 * 32 + self.in_shards(catalog);
        // A part of what a drive grows by is spare space.
        let missing = needed.saturating_sub(free).saturating_mul(self.raw.0) / free;
        // One row's strip more, as a row is taken as a whole.
        let each = missing.div_ceil(self.sizes.len().max(1) as u64).next_multiple_of(MIB) + 2 * MIB;
        format!("use drives that are {} larger each", Bytes(each))
    }
}

/// The catalog's size on drives of this raw capacity.
fn catalog_size(raw: Bytes) -> Bytes {
    Bytes((raw.0 / 48).clamp(128 * MIB, CATALOG_MAX.0) / (8 * MIB) * (8 * MIB))
}

/// The raw bytes of drives of these sizes that stripes of this code can use at most. Each stripe
/// has a strip on each of as many drives as the code is wide, so much of a drive that is far larger
/// than the others stays empty. Volumes never shrink: one that grew by all of such a drive would
/// promise for good what the pool cannot hold.
fn usable(sizes: &[u64], code: Code) -> u64 {
    let mut sizes = sizes.to_vec();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive of 64 PiB beside twelve of 256 MiB made the data volume grow to 2.6 PiB.
    #[test]
    fn a_drive_that_is_far_larger_than_the_others_counts_as_far_as_stripes_use_it() {
        let of = |sizes: &[u64], code: &str| usable(sizes, code.parse().unwrap());
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

    #[test]
    fn spare_space_and_the_catalog_take_their_share_of_what_stripes_can_use() {
        let room = |sizes: &[u64], spare: u64| {
            let raw = Bytes(sizes.iter().sum());
            Room { raw, spare: Bytes(spare), shards: 1, sizes: sizes.to_vec() }
        };
        let code: Code = "2+1".parse().unwrap();
        assert_eq!(room(&[480; 4], 480).data(0, code), 930, "alike drives: all but the spare one");
        assert_eq!(room(&[480; 4], 480).data(480, code), 620, "and but the catalog");
        // Of the large one 720 go with two strips on the others. A quarter of each drive is spare.
        assert_eq!(room(&[480, 480, 480, 960], 600).data(0, code), 1032);
        assert_eq!(room(&[480, 480, 480, 48_000], 12_360).data(0, code), 1032);
        assert_eq!(room(&[480, 480, 480, 48_000], 12_360).data(160, code), 930);
        assert_eq!(room(&[480; 4], 480).data(2_000, code), 0);
        assert_eq!(room(&[], 0).data(0, code), 0);
    }
}
