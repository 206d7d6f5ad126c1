//! Metadata contexts: the kinds of block status.

use stele_ground::VolumeId;
use stele_media::{Extent, ExtentState};

/// A context with its number on this connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Context {
    pub id: u32,
    pub name: String,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `base:allocation`: ranges that own space, and ranges that read as zeros.
    Allocation,
    /// `stele:changed:SNAPSHOT`, and equally `qemu:dirty-bitmap:SNAPSHOT`: ranges written since
    /// that snapshot.
    Changed(VolumeId),
}

const HOLE: u32 = 1;
const ZERO: u32 = 2;
const DIRTY: u32 = 1;

impl Context {
    /// The contexts of a volume with these snapshots.
    pub fn all(snapshots: &[(String, VolumeId)]) -> Vec<Context> {
        let mut kinds = vec![("base:allocation".to_owned(), Kind::Allocation)];
        for (snapshot, id) in snapshots {
            kinds.push((format!("stele:changed:{snapshot}"), Kind::Changed(*id)));
            kinds.push((format!("qemu:dirty-bitmap:{snapshot}"), Kind::Changed(*id)));
        }
        (1..).zip(kinds).map(|(id, (name, kind))| Context { id, name, kind }).collect()
    }

    /// Whether a query selects it: by its name, or when listing by a prefix of its name up to a
    /// colon.
    pub fn is_meant(&self, query: &str, listing: bool) -> bool {
        self.name == query || (listing && query.ends_with(':') && self.name.starts_with(query))
    }

    /// The snapshot to name in the query to the volume.
    pub fn since(&self) -> Option<VolumeId> {
        match self.kind {
            Kind::Allocation => None,
            Kind::Changed(snapshot) => Some(snapshot),
        }
    }

    fn state(&self, extent: &Extent) -> u32 {
        match (self.kind, extent.state) {
            (Kind::Allocation, ExtentState::Data) => 0,
            (Kind::Allocation, ExtentState::Zero) => ZERO,
            (Kind::Allocation, ExtentState::Hole) => HOLE | ZERO,
            (Kind::Changed(_), ExtentState::Data | ExtentState::Zero) => DIRTY,
            (Kind::Changed(_), ExtentState::Hole) => 0,
        }
    }

    /// Runs of one state, each at most `run_max` long, at most `most` of them.
    pub fn runs(&self, extents: &[Extent], run_max: u64, most: usize) -> Vec<(u64, u32)> {
        let mut runs: Vec<(u64, u32)> = Vec::new();
        for extent in extents {
            let state = self.state(extent);
            let mut left = extent.length;
            if let Some((length, last)) = runs.last_mut()
                && *last == state
            {
                let more = left.min(run_max - *length);
                *length += more;
                left -= more;
            }
            while left > 0 {
                if runs.len() == most {
                    return runs;
                }
                runs.push((left.min(run_max), state));
                left -= left.min(run_max);
            }
        }
        runs
    }
}
