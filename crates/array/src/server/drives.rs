//! The parts of drives that shards have: each shard sees its parts as drives of their own.
//!
//! With `n` shards a drive is divided into `n` parts of whole MiB; the last takes the rest. The
//! label at the start of the drive is the first shard's, and the one at the end the last shard's.
//! Each says how many shards there are.

use std::collections::BTreeMap;

use stele_ground::{Bytes, MIB};
use stele_media::{Buffer, DriveFile, MediaError};

use crate::drives::label::codec::Label;
use crate::drives::label::{LABEL_SIZE, is_label, places};
use crate::model::{ArrayError, Shard};
use crate::reactor::Source;
use crate::reactor::place::refusal;

/// How many shards divide the drives of a pool, by most of their labels; 1 without labels.
pub fn shards_on(sources: &[Source]) -> u16 {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for label in sources.iter().filter_map(|source| label_on(source.as_file()?)) {
        *counts.entry(label.configuration.shard.count).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, drives)| *drives).map_or(1, |(count, _)| count)
}

/// The drive's parts, by shard.
pub fn divide(source: Source, shards: u16) -> Result<Vec<Source>, ArrayError> {
    let parts = match source.as_file() {
        Some(file) => parts(file.geometry().size, shards, part_on(file, shards)),
        None => Vec::new(),
    };
    source.divide(&parts).map_err(refusal)
}

/// Removes labels inside a drive that has none at its ends: of a pool that divided it and is gone.
pub fn clear_inner_labels(source: &Source, shards: u16) -> Result<(), ArrayError> {
    let Some(file) = source.as_file() else { return Ok(()) };
    let size = file.geometry().size;
    let is_labelled = |at| file.read_now(at, LABEL_SIZE as usize).is_ok_and(|bytes| is_label(&bytes));
    if places(size.0).into_iter().any(is_labelled) {
        // The shard that gets this part refuses it.
        return Ok(());
    }
    let zeros = Buffer::zeroed(LABEL_SIZE as usize);
    let clear = |(start, length): (u64, Bytes)| -> Result<(), MediaError> {
        for at in places(length.0).into_iter().map(|at| start + at).filter(|at| is_labelled(*at)) {
            file.write_now(at, &zeros)?;
        }
        Ok(())
    };
    parts(size, shards, None).into_iter().try_for_each(clear).map_err(refusal)
}

/// Start and length of the parts. `labelled`: the size of all but the last, by a label.
fn parts(size: Bytes, shards: u16, labelled: Option<u64>) -> Vec<(u64, Bytes)> {
    let count = u64::from(shards);
    let part = labelled.unwrap_or(even(size, shards));
    let length = |shard| if shard + 1 == count { size.0 - part * shard } else { part };
    (0..count).map(|shard| (part * shard, Bytes(length(shard)))).collect()
}

/// Bytes of each part of a drive that is divided now.
fn even(size: Bytes, shards: u16) -> u64 {
    size.0 / u64::from(shards) / MIB * MIB
}

/// Bytes of each part but the last, as a label says it. That counts for more than the size now: a
/// file may have grown.
fn part_on(file: &DriveFile, shards: u16) -> Option<u64> {
    let label = label_on(file)?;
    let configuration = &label.configuration;
    let entry = configuration.drives.get(usize::from(label.number.0))?;
    let Shard { index, count: theirs } = configuration.shard;
    let size = file.geometry().size;
    if theirs != shards || index + 1 >= theirs || entry.size.0 * u64::from(theirs) > size.0 {
        return None;
    }
    // Earlier versions noted a larger drive that replaced another with the size of that one. Its
    // second part begins behind an even part all the same.
    let is_second = |at: u64| {
        let mut copies = [at, at + LABEL_SIZE].into_iter().filter_map(|at| label_at(file, at));
        let pool = configuration.whole_pool();
        copies.any(|other| other.configuration.shard.index == 1 && other.configuration.whole_pool() == pool)
    };
    let (labelled, even) = (entry.size.0, even(size, shards));
    let is_even = even != labelled && !is_second(labelled) && is_second(even);
    Some(if is_even { even } else { labelled })
}

/// The newest label at either end of a drive.
fn label_on(file: &DriveFile) -> Option<Label> {
    let copies = places(file.geometry().size.0).into_iter().filter_map(|at| label_at(file, at));
    copies.max_by_key(|label| (label.configuration.shard.index == 0, label.sequence))
}

fn label_at(file: &DriveFile, at: u64) -> Option<Label> {
    Label::decode(&file.read_now(at, LABEL_SIZE as usize).ok()?.freeze()).ok()
}
