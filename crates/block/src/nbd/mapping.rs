//! The status of a range, found window by window: a volume looks through [`WINDOW`] at once, so
//! that other requests have their turn in between.

use stele_media::Extent;

/// Bytes of one query to the volume; below, the largest number of queries for one context.
pub const WINDOW: u64 = 1 << 30;
pub const WINDOWS_MAX: u32 = 64;
/// Largest number of runs in one answer.
pub const RUNS_MAX: usize = 4096;

/// The extents of one context so far. A client asks again for the range after them.
pub struct Mapping {
    /// The place of the context among those that the client chose.
    pub context: usize,
    pub found: Vec<Extent>,
    windows: u32,
    /// Largest number of runs that the client takes.
    pub most: usize,
}

impl Mapping {
    pub fn new(context: usize, most: usize) -> Mapping {
        Mapping { context, found: Vec::new(), windows: 0, most }
    }

    /// Adds the extents of a window. Returns whether another window is to follow.
    pub fn take(&mut self, extents: Vec<Extent>) -> bool {
        self.windows += 1;
        if self.found.is_empty() {
            self.found = extents;
        } else {
            extents.into_iter().for_each(|extent| Extent::append(&mut self.found, extent));
        }
        // The last one may go on in the next window, so that it is no complete run yet.
        self.windows < WINDOWS_MAX && self.found.len() <= self.most
    }
}
