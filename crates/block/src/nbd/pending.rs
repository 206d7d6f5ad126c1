//! Requests that the volume is processing, by their tag.

use super::mapping::Mapping;
use super::request::Request;

/// A request under way. Some requests take several operations.
pub struct Pending {
    pub request: Request,
    /// Offset of the next piece.
    pub at: u64,
    /// Of a status: what was found so far.
    pub mapping: Option<Box<Mapping>>,
}

#[derive(Default)]
pub struct Pendings {
    places: Vec<Option<Pending>>,
    free: Vec<usize>,
}

impl Pendings {
    pub fn put(&mut self, pending: Pending) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        if let Some(empty) = self.places.get_mut(place) {
            *empty = Some(pending);
        }
        place as u64
    }

    pub fn take(&mut self, tag: u64) -> Option<Pending> {
        let place = usize::try_from(tag).ok()?;
        let taken = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        Some(taken)
    }
}
