//! Where a snapshot has its chunks: at the places that it references, or elsewhere.
//!
//! A store that fails says nothing about a chunk: that is an error, and no damage.

use std::collections::BTreeMap;

use crate::crypt::ChunkId;
use crate::error::{BackupError, Result};
use crate::index::Location;
use crate::references::{Ordinals, References};
use crate::repository::Indexed;
use crate::segment::SegmentId;

/// How a chunk of a snapshot stands.
#[derive(PartialEq, Eq)]
pub enum ChunkStanding {
    Referenced,
    /// Elsewhere, because its referenced place is damaged.
    Repaired,
    Unreferenced,
    Lost(String),
}

/// The places that a snapshot references.
pub struct Places<'a> {
    by_number: BTreeMap<u32, &'a Ordinals>,
    /// Whether a referenced segment is damaged, so that prune keeps what is stored again.
    is_damaged: bool,
}

impl Places<'_> {
    pub fn of<'a>(indexed: &Indexed, references: &'a References) -> Places<'a> {
        let index = indexed.index();
        let numbered = |(id, ordinals): (&SegmentId, &'a Ordinals)| Some((index.number(id)?, ordinals));
        let by_number: BTreeMap<u32, &Ordinals> = references.0.iter().filter_map(numbered).collect();
        let is_damaged =
            by_number.len() < references.0.len() || by_number.keys().any(|number| index.is_marked(*number));
        Places { by_number, is_damaged }
    }

    pub fn find(&self, indexed: &Indexed, id: &ChunkId) -> Result<ChunkStanding> {
        let referenced = |location: Location, is_marked: bool| {
            let ordinals = self.by_number.get(&location.segment);
            !is_marked && ordinals.is_some_and(|ordinals| ordinals.contains(location.ordinal as usize))
        };
        let mut index = indexed.index();
        match (index.find_where(id, referenced), index.trouble()) {
            (Some(_), _) => return Ok(ChunkStanding::Referenced),
            // It may be there all the same.
            (None, Some(error)) => return Err(error),
            (None, None) => drop(index),
        }
        match indexed.find(id) {
            Ok(_) if self.is_damaged => Ok(ChunkStanding::Repaired),
            Ok(_) => Ok(ChunkStanding::Unreferenced),
            Err(BackupError::Damaged(text)) => Ok(ChunkStanding::Lost(text)),
            Err(error) => Err(error),
        }
    }
}
