//! Metadata contexts: what a block status can tell.

use stele_media::{Extent, ExtentState};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// `base:allocation`: what owns space, and what reads as zeros.
    Allocation,
}

const HOLE: u32 = 1;
const ZERO: u32 = 2;

impl Context {
    pub fn id(self) -> u32 {
        match self {
            Context::Allocation => 1,
        }
    }

    pub fn name(&self) -> String {
        match self {
            Context::Allocation => "base:allocation".to_owned(),
        }
    }

    /// The contexts that a query means: a name, or a namespace with nothing after its colon when listing.
    pub fn matching(query: &str, listing: bool) -> Vec<Context> {
        let all = [Context::Allocation];
        let namespace = listing && query.ends_with(':');
        all.into_iter()
            .filter(|context| {
                let name = context.name();
                name == query || (namespace && name.starts_with(query))
            })
            .collect()
    }

    pub fn all() -> Vec<Context> {
        vec![Context::Allocation]
    }

    fn state(self, extent: &Extent) -> u32 {
        match (self, extent.state) {
            (Context::Allocation, ExtentState::Data) => 0,
            (Context::Allocation, ExtentState::Zero) => ZERO,
            (Context::Allocation, ExtentState::Hole) => HOLE | ZERO,
        }
    }

    /// Runs of one state, each at most `run_max` long, at most `most` of them.
    pub fn runs(self, extents: &[Extent], run_max: u64, most: usize) -> Vec<(u64, u32)> {
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
