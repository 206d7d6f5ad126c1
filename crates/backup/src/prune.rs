//! Removing segments that no snapshot needs, beside running backups. It needs no key.
//!
//! A prune is one epoch (see [`crate::repository::epochs`] for why it is safe):
//!
//! 1. It reads the latest epoch, then the sessions, then the snapshots, then the segments. The
//!    order matters.
//! 2. It stores the next epoch with the segments that are condemned: those of before that are still
//!    needed by none, and those that are needed by none now. Two prunes at once want the same
//!    number, and only one gets it.
//! 3. It removes the segments that were condemned two epochs ago or earlier, if every live session
//!    began in the latest epoch and so has read its list.
//!
//! A segment that holds a chunk again, whose place in a needed segment is marked as damaged, is
//! needed too: older snapshots reference the damaged place, and live from the repaired one. If a
//! needed segment is gone, or cannot tell which chunks it had, any segment may hold them again, and
//! nothing is condemned until its snapshots are forgotten.
//!
//! A snapshot of a later version may need any segment, and so may a segment of a later version that
//! no snapshot seems to need. While there is one, prune refuses, and changes nothing.
//!
//! Only step 2 is exclusive. A prune that began later may have pardoned a segment that this one has
//! yet to remove, so each removal looks at the latest epoch first, and ends the prune if it is
//! another one.
//!
//! A crash behind each step leaves segments that the next prune finds again. It removes whole
//! segments only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::crypt::ChunkId;
use crate::error::{BackupError, Result};
use crate::references::References;
use crate::repository::Closed;
use crate::repository::epochs::{Condemned, Epoch};
use crate::repository::footers::{damaged, read_footer, refuse_newer};
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
    /// Needed segments that are gone, or whose footer is destroyed. While there are any, nothing is
    /// condemned.
    pub lost: u64,
    /// Bytes of segments that are needed, and bytes of chunks in them that are not.
    pub bytes: u64,
}

/// Whether a segment that the epoch `latest` condemns since `condemned` may be removed in `epoch`.
/// An epoch needs no key, so `condemned` may be a lie: it is not compared with sessions. A session
/// of `latest` has read this very list.
fn is_due(condemned: u64, epoch: u64, latest: u64, oldest_session: Option<u64>) -> bool {
    condemned.saturating_add(EPOCHS) <= epoch && oldest_session.is_none_or(|session| session >= latest)
}

/// What a running prune has removed so far.
#[derive(Default, Debug)]
pub struct PruneProgress {
    pub segments: AtomicU64,
    pub bytes: AtomicU64,
    /// Bytes of the segments that it removes. Zero: unknown yet, or none.
    pub bytes_expected: AtomicU64,
    /// Set to end the prune early. The next one goes on.
    pub stop: AtomicBool,
}

impl PruneProgress {
    fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(BackupError::Stopped) } else { Ok(()) }
    }
}

/// Runs one prune. With `dry_run` it changes nothing.
pub fn run(repository: &Closed, dry_run: bool) -> Result<Pruned> {
    run_with(repository, dry_run, &PruneProgress::default())
}

pub fn run_with(repository: &Closed, dry_run: bool, progress: &PruneProgress) -> Result<Pruned> {
    if !dry_run {
        // First: in a full store the epoch needs the room. What cannot be tidied stays, and is no
        // reason to remove nothing else.
        let _ = repository.store.tidy();
    }
    let latest = repository.epoch()?;
    let (live, ended) = repository.sessions()?;
    let oldest = live.iter().map(|session| session.epoch).min();
    let mut needed = References::default();
    let mut snapshots = 0;
    for dated in repository.snapshots()? {
        progress.check()?;
        // Without this snapshot's list its segments would pass for unneeded.
        let references = match repository.references(&dated.id) {
            // It was forgotten meanwhile, and needs nothing.
            Err(BackupError::Missing(_)) => continue,
            Err(BackupError::Damaged(text)) => {
                return Err(BackupError::Damaged(format!(
                    "{text}; prune would remove what it needs; `stele backup forget {}` gives it up",
                    dated.id
                )));
            }
            Err(error) => return Err(kept_for(error)),
            Ok(references) => references,
        };
        snapshots += 1;
        for (segment, ordinals) in references.0 {
            needed.0.entry(segment).or_default().merge(&ordinals);
        }
    }
    let segments: BTreeMap<SegmentId, u64> = repository.segments()?.into_iter().collect();
    let (repaired, lost) = repaired(repository, &needed, &segments).map_err(kept_for)?;
    // No repository gets there by pruning: a writer planted the number.
    let last = || BackupError::Damaged(format!("{} is the last possible epoch", Name::epoch(latest.number).text()));
    let number = latest.number.checked_add(1).ok_or_else(last)?;
    let mut pruned = Pruned { epoch: number, snapshots, segments: segments.len() as u64, lost, ..Pruned::default() };
    let (mut condemned, mut due) = (Condemned::new(), Vec::new());
    for (segment, size) in segments {
        let before = latest.condemned.get(&segment).copied();
        if lost > 0 || needed.0.contains_key(&segment) || repaired.contains(&segment) {
            pruned.pardoned += u64::from(before.is_some());
            pruned.bytes += size;
            continue;
        }
        progress.check()?;
        refuse_newer(&*repository.store, &segment, size).map_err(kept_for)?;
        let since = before.unwrap_or(number);
        condemned.insert(segment, since);
        pruned.condemned += 1;
        pruned.condemned_bytes += size;
        if is_due(since, number, latest.number, oldest) {
            due.push((segment, size));
        } else {
            pruned.waiting += u64::from(since.saturating_add(EPOCHS) <= number);
        }
    }
    if dry_run {
        (pruned.removed, pruned.removed_bytes) = (due.len() as u64, due.iter().map(|(_, size)| size).sum());
        return Ok(pruned);
    }
    progress.check()?;
    repository.advance(&Epoch { number, condemned })?;
    progress.bytes_expected.store(due.iter().map(|(_, size)| size).sum(), Ordering::Relaxed);
    for (segment, size) in due {
        progress.check()?;
        if repository.latest_epoch()? != Some(Name::epoch(number)) {
            let text = "another prune has begun in this repository, and goes on with what this one left";
            return Err(BackupError::Locked(text.to_owned()));
        }
        match remove(repository, &segment)? {
            Gone::Removed => {
                pruned.removed += 1;
                pruned.removed_bytes += size;
            }
            Gone::Locked => pruned.locked += 1,
            Gone::Refused => pruned.refused += 1,
        }
        progress.segments.fetch_add(1, Ordering::Relaxed);
        progress.bytes.fetch_add(size, Ordering::Relaxed);
    }
    // The sessions that have ended, and all epochs but the last. A session that was silent for a
    // day has lapsed and can commit no more, even if its agent renews it at this moment.
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
    Ok(pruned)
}

/// The refusal of a prune beside an object of a later version.
fn kept_for(error: BackupError) -> BackupError {
    match error {
        BackupError::Newer(text) => BackupError::Newer(format!(
            "{text} for prunes too: what the object needs shows only there, and nothing was removed"
        )),
        other => other,
    }
}

/// The segments that hold chunks again whose needed place is damaged, and the number of needed
/// segments that cannot tell which chunks they had. Footers need no key.
fn repaired(
    repository: &Closed,
    needed: &References,
    segments: &BTreeMap<SegmentId, u64>,
) -> Result<(BTreeSet<SegmentId>, u64)> {
    let store = &*repository.store;
    let footer = |id: &SegmentId, size: u64| match read_footer(store, id, size) {
        Err(BackupError::Damaged(_) | BackupError::Missing(_)) => Ok(None),
        footer => footer.map(|(footer, _)| Some(footer)),
    };
    let marks = damaged(store)?;
    let (mut wanted, mut lost) = (BTreeSet::<ChunkId>::new(), 0);
    for (id, ordinals) in &needed.0 {
        let Some(size) = segments.get(id) else {
            lost += 1;
            continue;
        };
        let Some(marked) = marks.get(id).filter(|marked| marked.count() > 0) else { continue };
        match footer(id, *size)? {
            Some(footer) => {
                let hurt = ordinals.iter().filter(|ordinal| marked.contains(*ordinal));
                wanted.extend(hurt.filter_map(|ordinal| Some(footer.entries.get(ordinal)?.id)));
            }
            None => lost += 1,
        }
    }
    let mut repaired = BTreeSet::new();
    if wanted.is_empty() || lost > 0 {
        return Ok((repaired, lost));
    }
    for (id, size) in segments.iter().filter(|(id, _)| !needed.0.contains_key(*id)) {
        let Some(footer) = footer(id, *size)? else { continue };
        let is_whole = |ordinal: usize| !marks.get(id).is_some_and(|marked| marked.contains(ordinal));
        let entries = footer.entries.iter().enumerate();
        if entries.filter(|(ordinal, _)| is_whole(*ordinal)).any(|(_, entry)| wanted.contains(&entry.id)) {
            repaired.insert(*id);
        }
    }
    Ok((repaired, lost))
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
        Err(BackupError::Refused(_)) if repository.store.kept_until(&name)?.is_some() => Ok(Gone::Locked),
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
