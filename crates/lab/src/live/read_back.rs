//! Reads all of a target whose reads are checked, after it was measured. A run reads what its
//! workload draws; a write that was lost where nothing was read again is found only here.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stele_ground::Bytes;

use super::content::{self, Content};
use super::engine::Engine;
use super::reach::{ConnectionSpec, Use, reach};
use super::target::{AccessMethod, Filling, Ready};
use super::versions::Versions;
use super::wrong::Wrong;
use crate::error::LabError;
use crate::workload::Access;

/// Bytes of an access, and how many are under way where the target takes several.
const LENGTH: u64 = 64 << 10;
const SLOTS: u32 = 8;

/// What was found.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ReadBack {
    pub bytes: u64,
    #[serde(flatten)]
    pub wrong: Wrong,
}

/// Reads it to its end, whatever is found. None: this target keeps nothing, or `progress` ended it.
pub fn read_back(ready: &Ready, content: Content, progress: Filling<'_>) -> Result<Option<ReadBack>, LabError> {
    // An object is read as a whole. One that was never put is not there.
    let (length, grain, known) = match &ready.way {
        AccessMethod::Null => return Ok(None),
        AccessMethod::S3(_) | AccessMethod::Backup(_) => (ready.block.0, ready.block.0, ready.versions.clone()),
        // As far as it was filled.
        AccessMethod::Ring(_) | AccessMethod::Inline(_) => (LENGTH.next_multiple_of(ready.block.0), 4096, None),
        _ => (LENGTH.next_multiple_of(ready.block.0), ready.block.0.max(512), None),
    };
    let size = Bytes(ready.size.0 / grain * grain);
    let slots = if ready.way.is_one_each() { 1 } else { SLOTS };
    let spec = ConnectionSpec { slots, length_max: length as usize, names: false, number: 0 };
    let pass = Pass { ready, content, size, length, known, progress };
    let read = reach(ready, spec, pass);
    read.map_err(|why| LabError::Failed(format!("{}: reading it back: {why}", ready.description)))
}

struct Pass<'a, 'b> {
    ready: &'a Ready,
    content: Content,
    size: Bytes,
    length: u64,
    /// Only what these know is there.
    known: Option<Arc<Versions>>,
    progress: Filling<'b>,
}

impl Pass<'_, '_> {
    /// The access at a place, within the file that it lies in.
    fn access(&self, at: u64) -> Access {
        let file = self.ready.file.map_or(u64::MAX, |file| file.0 - at % file.0);
        let length = self.length.min(self.size.0 - at).min(file);
        Access { target: 0, at, length, write: false }
    }

    fn is_there(&self, access: &Access) -> bool {
        self.known.as_ref().is_none_or(|known| known.is_known(access.at))
    }
}

impl Use for Pass<'_, '_> {
    type Made = Option<ReadBack>;

    fn with<E: Engine>(self, mut engine: E) -> Result<Option<ReadBack>, String> {
        let mut found = ReadBack::default();
        let slots = engine.slots();
        let mut free: Vec<u32> = (0..slots).collect();
        let mut flying = vec![Access { target: 0, at: 0, length: 0, write: false }; slots as usize];
        let (mut next, mut done, mut answers) = (0, 0, Vec::new());
        while done < self.size.0 {
            while next < self.size.0
                && let Some(slot) = free.pop()
            {
                let access = self.access(next);
                next += access.length;
                if !self.is_there(&access) {
                    done += access.length;
                    free.push(slot);
                    continue;
                }
                engine.start(slot, &access);
                flying[slot as usize] = access;
            }
            if free.len() == slots as usize {
                break;
            }
            engine.reap(1, Some(self.ready.patience), &mut answers);
            if answers.is_empty() {
                return Err(format!("no answer for {}", self.ready.patience));
            }
            for (slot, result) in answers.drain(..) {
                let Access { at, length, .. } = flying[slot as usize];
                result.map_err(|error| format!("read of {length} bytes at offset {at}: {error}"))?;
                let buffer = &engine.buffer(slot)[..length as usize];
                found.wrong.add(content::wrong(self.content, self.ready.versions.as_deref(), buffer, at));
                (found.bytes, done) = (found.bytes + length, done + length);
                free.push(slot);
            }
            if !(self.progress)(done, self.size.0) {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests;
