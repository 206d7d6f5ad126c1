//! Removing segments that no snapshot needs, beside running backups. It needs no key.
//!
//! A prune is one epoch (see [`crate::repository::epochs`] for why it is safe):
//!
//! 1. It reads the latest epoch, then the sessions, then the snapshots, then the segments. The order matters.
//! 2. It stores the next epoch with the segments that are condemned: those of before that are still needed by none, and
//!    those that are needed by none now. Two prunes at once want the same number, and only one gets it.
//! 3. It removes the segments that were condemned two epochs ago or earlier, unless a session is older than that.
//!
//! A crash behind each step leaves segments that the next prune finds again. It removes whole segments only.

use crate::error::{BackupError, Result};
use crate::references::References;
use crate::repository::Closed;
use crate::repository::epochs::{Condemned, Epoch};
use crate::segment::SegmentId;
use crate::store::{Folder, Name};

/// Epochs between condemnation and removal.
pub const EPOCHS: u64 = 2;

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Pruned {
    pub epoch: u64,
    pub snapshots: u64,
    pub segments: u64,
    /// Segments that are condemned now, and their bytes.
    pub condemned: u64,
    pub condemned_bytes: u64,
    /// Segments that a new snapshot needs again.
    pub pardoned: u64,
    pub removed: u64,
    pub removed_bytes: u64,
    /// Segments that wait for a session to end.
    pub waiting: u64,
    /// Segments that stay because they are locked, or under another retention.
    pub locked: u64,
    /// Segments that the store did not let go for another reason: append-only credentials.
    pub refused: u64,
    /// Bytes of segments that are needed, and bytes of chunks in them that are not.
    pub bytes: u64,
}

/// Whether a segment that was condemned in `condemned` may be removed in `epoch`.
fn is_due(condemned: u64, epoch: u64, oldest_session: Option<u64>) -> bool {
    condemned + EPOCHS <= epoch && oldest_session.is_none_or(|session| session >= condemned)
}

/// Runs one prune. With `dry_run` it changes nothing.
pub fn run(repository: &Closed, dry_run: bool) -> Result<Pruned> {
    let latest = repository.epoch()?;
    let (live, ended) = repository.sessions()?;
    let oldest = live.iter().map(|session| session.epoch).min();
    let mut needed = References::default();
    let snapshots = repository.snapshots()?;
    for dated in &snapshots {
        // Without this snapshot's list its segments would pass for unneeded.
        let references = repository.references(&dated.id).map_err(|error| match error {
            BackupError::Damaged(text) => BackupError::Damaged(format!("{text}; prune would remove what it needs")),
            other => other,
        })?;
        for segment in references.0.into_keys() {
            needed.0.entry(segment).or_default();
        }
    }
    let segments = repository.segments()?;
    let number = latest.number + 1;
    let mut pruned = Pruned {
        epoch: number,
        snapshots: snapshots.len() as u64,
        segments: segments.len() as u64,
        ..Pruned::default()
    };
    let (mut condemned, mut due) = (Condemned::new(), Vec::new());
    for (segment, size) in segments {
        let before = latest.condemned.get(&segment).copied();
        if needed.0.contains_key(&segment) {
            pruned.pardoned += u64::from(before.is_some());
            pruned.bytes += size;
            continue;
        }
        let since = before.unwrap_or(number);
        condemned.insert(segment, since);
        pruned.condemned += 1;
        pruned.condemned_bytes += size;
        if is_due(since, number, oldest) {
            due.push((segment, size));
        } else {
            pruned.waiting += u64::from(since + EPOCHS <= number);
        }
    }
    if dry_run {
        (pruned.removed, pruned.removed_bytes) = (due.len() as u64, due.iter().map(|(_, size)| size).sum());
        return Ok(pruned);
    }
    repository.advance(&Epoch { number, condemned })?;
    for (segment, size) in due {
        match remove(repository, &segment)? {
            Gone::Removed => {
                pruned.removed += 1;
                pruned.removed_bytes += size;
            }
            Gone::Locked => pruned.locked += 1,
            Gone::Refused => pruned.refused += 1,
        }
    }
    // The sessions that have ended, and all epochs but the last.
    for name in ended {
        ignore_refusal(repository.store.remove(&name))?;
    }
    let mut old = Vec::new();
    repository.store.list(Folder::Epochs, &mut |listed| {
        old.push(listed.name);
        Ok(())
    })?;
    for name in old.into_iter().filter(|name| *name < Name::epoch(number)) {
        ignore_refusal(repository.store.remove(&name))?;
    }
    repository.store.tidy()?;
    Ok(pruned)
}

/// Whether the store let a segment go.
enum Gone {
    Removed,
    Locked,
    Refused,
}

fn remove(repository: &Closed, segment: &SegmentId) -> Result<Gone> {
    let name = Name::segment(segment);
    match repository.store.remove(&name) {
        Ok(()) => {
            // Whatever was damaged in it is of no interest any more.
            let damaged = repository.store.remove(&Name::of(Folder::Damaged, &segment.0));
            ignore_refusal(damaged)?;
            Ok(Gone::Removed)
        }
        Err(BackupError::Missing(_)) => Ok(Gone::Removed),
        Err(BackupError::Refused(_)) if repository.store.locked_until(&name)?.is_some() => Ok(Gone::Locked),
        Err(BackupError::Refused(_)) => Ok(Gone::Refused),
        Err(error) => Err(error),
    }
}

fn ignore_refusal(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(BackupError::Refused(_) | BackupError::Missing(_)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
