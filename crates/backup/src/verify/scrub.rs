//! What shows without the key of the repository: whether each snapshot and each segment is what its
//! name says, and whether all segments are there that the snapshots need.
//!
//! The snapshots are read before the segments are listed, because a backup stores its segments
//! first. A segment that is not in the list may have gone with its last snapshot meanwhile. So it
//! counts as lost only if a snapshot that is still there needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use stele_ground::counted;

use super::{NewerObject, Unreadable, VerifyProgress, expect, lock};
use crate::error::{BackupError, Result};
use crate::repository::{Closed, Dated};
use crate::segment::{SEGMENT_BYTES_MAX, SegmentId};
use crate::store::Name;

/// What shows of the snapshots without a password.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SurveyedSnapshots {
    pub unreadable: Unreadable,
    pub newer: Vec<NewerObject>,
    /// The segments that the others reference.
    pub needed: BTreeSet<SegmentId>,
}

/// Compares every snapshot with its name. Needs no password.
pub fn survey(repository: &Closed) -> Result<SurveyedSnapshots> {
    let mut found = SurveyedSnapshots::default();
    for Dated { id, .. } in repository.snapshots()? {
        match repository.references(&id) {
            Ok(references) => found.needed.extend(references.0.into_keys()),
            Err(BackupError::Missing(_)) => {}
            Err(error @ BackupError::Damaged(_)) => found.unreadable.push((id, error.to_string())),
            Err(error @ BackupError::Newer(_)) => found.newer.push(NewerObject::snapshot(&id, error)),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Those of the segments that a snapshot still needs, each with the number of such snapshots. A
/// snapshot that was forgotten since, whose segments prune removed, needs none.
fn needed_by(repository: &Closed, segments: &BTreeSet<SegmentId>) -> Result<BTreeMap<SegmentId, u64>> {
    let mut found = BTreeMap::new();
    for Dated { id, .. } in repository.snapshots()? {
        let references = match repository.references(&id) {
            Err(BackupError::Missing(_) | BackupError::Damaged(_) | BackupError::Newer(_)) => continue,
            references => references?,
        };
        for segment in references.0.into_keys().filter(|segment| segments.contains(segment)) {
            *found.entry(segment).or_default() += 1;
        }
    }
    Ok(found)
}

/// Compares every segment with its name, without the key. Gives those that differ, and those of
/// `needed` that are gone.
pub fn scrub(
    repository: &Closed,
    needed: BTreeSet<SegmentId>,
    progress: &VerifyProgress,
) -> Result<Vec<(SegmentId, String)>> {
    let segments = repository.segments()?;
    expect(progress, &segments);
    let mut gone = needed;
    gone.retain(|id| segments.binary_search_by_key(id, |(id, _)| *id).is_err());
    if !gone.is_empty() {
        for (id, snapshots) in needed_by(repository, &gone)? {
            let need = if snapshots == 1 { "needs" } else { "need" };
            progress.note(id, &format!("it is not in the store, and {} {need} it", counted(snapshots, "snapshot")));
        }
    }
    for (id, size) in segments {
        if progress.stop.load(Ordering::Relaxed) {
            return Err(BackupError::Stopped);
        }
        match repository.store.get(&Name::segment(&id), SEGMENT_BYTES_MAX) {
            Ok(bytes) if SegmentId::of(&bytes) != id => progress.note(id, "its hash differs"),
            Ok(_) | Err(BackupError::Missing(_)) => {}
            Err(error @ BackupError::Damaged(_)) => progress.note(id, &error.to_string()),
            Err(error) => return Err(error),
        }
        progress.segments.fetch_add(1, Ordering::Relaxed);
        progress.bytes.fetch_add(size, Ordering::Relaxed);
    }
    Ok(std::mem::take(&mut *lock(&progress.damaged)))
}
