//! Fills a target through its own engine: what a checked read finds must have been written first.

use std::sync::Arc;

use stele_ground::{Bytes, Dice, Duration, MIB};

use super::content::Content;
use super::engine::Engine;
use super::target::Filling;
use super::versions::Versions;
use crate::error::LabError;
use crate::workload::Access;

/// Bytes of an access, where the target takes no less.
pub const LENGTH: u64 = MIB;

/// Writes all of it with as many accesses under way as the engine has places, each of `length`
/// bytes.
pub fn fill(
    engine: &mut impl Engine,
    name: &str,
    size: Bytes,
    length: u64,
    patience: Duration,
    (content, versions): (Content, Option<&Arc<Versions>>),
    progress: Filling<'_>,
) -> Result<(), LabError> {
    let mut source = content.source(Dice::new(content.seed), versions.cloned());
    let slots = engine.slots();
    let mut free: Vec<u32> = (0..slots).collect();
    let mut flying = vec![Access { target: 0, at: 0, length: 0, write: true }; slots as usize];
    let (mut next, mut done, mut answers) = (0, 0, Vec::new());
    while done < size.0 {
        while next < size.0
            && let Some(slot) = free.pop()
        {
            let access = Access { target: 0, at: next, length: length.min(size.0 - next), write: true };
            source.make(&mut engine.buffer(slot)[..access.length as usize], next);
            engine.start(slot, &access);
            flying[slot as usize] = access;
            next += access.length;
        }
        engine.reap(1, Some(patience), &mut answers);
        if answers.is_empty() {
            return Err(LabError::Failed(format!("{name}: no answer for {patience} while it was filled")));
        }
        for (slot, result) in answers.drain(..) {
            let Access { at, length, .. } = flying[slot as usize];
            result.map_err(|error| {
                LabError::of_access(format!("{name}: write of {length} bytes at offset {at}: {error}"))
            })?;
            if let Some(versions) = versions {
                versions.answered(at, length);
            }
            done += length;
            free.push(slot);
        }
        if !progress(done, size.0) {
            return Err(LabError::Stopped(format!("{name}: stopped while it was filled")));
        }
    }
    Ok(())
}
