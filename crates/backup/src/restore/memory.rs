//! Restoring a file into memory: its chunks are fetched in the order of the segments, and copied
//! where they belong.

use std::sync::Mutex;

use super::fetch::{self, Sink};
use super::{Planned, lock};
use crate::error::{BackupError, Result};
use crate::repository::Indexed;
use crate::tree::{Piece, total};

struct Target<'a> {
    into: Mutex<&'a mut [u8]>,
    /// The first reason why a chunk cannot be had.
    lost: Mutex<Option<BackupError>>,
}

impl Sink for Target<'_> {
    fn write(&self, planned: &Planned, content: &[u8]) -> Result<()> {
        let from = usize::try_from(planned.offset).unwrap_or(usize::MAX);
        let mut into = lock(&self.into);
        let place = into.get_mut(from..from.saturating_add(content.len()));
        let place = place.ok_or_else(|| BackupError::damaged("a chunk lies behind the end of the file"))?;
        place.copy_from_slice(content);
        Ok(())
    }

    fn lose(&self, _: &[Planned], error: &BackupError) -> Result<()> {
        lock(&self.lost).get_or_insert(error.clone());
        Ok(())
    }

    fn check(&self) -> Result<()> {
        lock(&self.lost).clone().map_or(Ok(()), Err)
    }
}

/// Restores a file of these pieces, which is as long as `into`.
pub fn run(indexed: &Indexed, pieces: &[Piece], into: &mut [u8]) -> Result<()> {
    if total(pieces) != Some(into.len() as u64) {
        return Err(BackupError::Invalid("the file has another length than the memory".to_owned()));
    }
    let (mut planned, mut offset) = (Vec::with_capacity(pieces.len()), 0);
    for piece in pieces {
        match piece {
            Piece::Chunk { id, .. } => {
                planned.push(Planned { location: indexed.find_any(id)?, file: 0, offset: offset as u64 });
            }
            Piece::Hole(length) => {
                let hole = into.get_mut(offset..).and_then(|rest| rest.get_mut(..*length as usize));
                hole.unwrap_or_default().fill(0);
            }
        }
        offset += piece.length() as usize;
    }
    let target = Target { into: Mutex::new(into), lost: Mutex::default() };
    fetch::all(indexed, planned, 1, &target)?;
    target.check()
}
