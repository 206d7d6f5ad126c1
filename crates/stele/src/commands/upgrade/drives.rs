//! The formats on the drives: labels, checkpoints, tables and log. Each version appears once, with
//! the drives that have it.
//!
//! Each shard of a pool is a pool of its own on its part of every drive. All are looked at, and
//! what holds for all of them is one finding.

use std::collections::BTreeMap;
use std::path::Path;

use stele_array::anchor::{self, Anchor, LATER_MIN, SLOT};
use stele_array::checkpoint::{ROOT_VERSION, Root};
use stele_array::label::codec::{self, Label, Stamp};
use stele_array::label::{ANCHOR_AT, LABEL_SIZE, places};
use stele_array::server::DrivePlace;
use stele_ground::MIB;
use stele_server::failure::Outcome;

use super::{FormatFinding, FormatVerdict, label, own_label, own_tables};
use crate::commands::dump::{Reader, walk};

/// The versions on one drive, or on a shard's part of it.
#[derive(Default)]
struct Drive {
    /// Versions of the intact copies of the label; each version once.
    labels: Vec<Stamp>,
    /// Formats of the intact checkpoints, and versions of the tables below them.
    checkpoints: Vec<u32>,
    /// Checkpoints of a later format.
    later: usize,
    tables: Vec<u32>,
    /// `None`: not a member of the log, or the label or checkpoint that leads to the log is not
    /// understood.
    log_is_known: Option<bool>,
}

const REWRITES: &str = "back up what you would not lose before the first start: the next checkpoint has the new format, and a \
                        former version refuses the pool from then on";

/// Drives by version.
type Said<T> = BTreeMap<T, Vec<String>>;

pub fn look(places: &[DrivePlace]) -> Vec<FormatFinding> {
    let mut findings = Vec::new();
    // By shard: the drives with their names.
    let mut shards: Vec<Vec<(String, Drive)>> = Vec::new();
    for place in places {
        let name = place.path.display().to_string();
        let parts = match read(&place.path) {
            Ok(parts) => parts,
            Err(failure) => {
                let next = "return the drive, or look again without it if it is gone for good";
                findings.push(
                    FormatFinding::new("label", name, failure.error, own_label()).is(FormatVerdict::Unknown, next),
                );
                continue;
            }
        };
        shards.resize_with(shards.len().max(parts.len()), Vec::new);
        shards.iter_mut().zip(parts).for_each(|(shard, part)| shard.push((name.clone(), part)));
    }
    findings.extend(together(shards.into_iter().map(of_shard).collect()));
    findings
}

/// One finding of those that are alike on all shards; the others name theirs.
fn together(by_shard: Vec<Vec<FormatFinding>>) -> Vec<FormatFinding> {
    let count = by_shard.len();
    let mut merged: Vec<(FormatFinding, Vec<usize>)> = Vec::new();
    for (shard, findings) in by_shard.into_iter().enumerate() {
        for finding in findings {
            match merged.iter_mut().find(|(known, _)| *known == finding) {
                Some((_, shards)) if shards.last() == Some(&shard) => {}
                Some((_, shards)) => shards.push(shard),
                None => merged.push((finding, vec![shard])),
            }
        }
    }
    let named = |(finding, shards): (FormatFinding, Vec<usize>)| {
        if shards.len() == count {
            return finding;
        }
        let word = if shards.len() == 1 { "shard" } else { "shards" };
        let numbers: Vec<String> = shards.iter().map(usize::to_string).collect();
        FormatFinding { place: format!("{}, {word} {}", finding.place, numbers.join(", ")), ..finding }
    };
    merged.into_iter().map(named).collect()
}

/// The findings on one shard.
fn of_shard(drives: Vec<(String, Drive)>) -> Vec<FormatFinding> {
    let (mut labels, mut checkpoints, mut tables, mut logs) =
        (Said::<Stamp>::new(), Said::<u32>::new(), Said::<u32>::new(), Said::<bool>::new());
    let (mut findings, mut later) = (Vec::new(), 0);
    for (name, drive) in drives {
        if drive.labels.is_empty() {
            let next =
                "`stele drive dump` shows the rest of its contents; a pool with enough other drives does without it";
            findings.push(
                FormatFinding::new("label", name.clone(), "none that is whole", own_label())
                    .is(FormatVerdict::Unknown, next),
            );
        }
        let note = |said: &mut Said<u32>, versions: &[u32]| {
            versions.iter().for_each(|version| said.entry(*version).or_default().push(name.clone()));
        };
        later += drive.later;
        note(&mut checkpoints, &drive.checkpoints);
        note(&mut tables, &drive.tables);
        drive.labels.iter().for_each(|stamp| labels.entry(*stamp).or_default().push(name.clone()));
        drive.log_is_known.into_iter().for_each(|known| logs.entry(known).or_default().push(name.clone()));
    }
    if later < LATER_MIN {
        checkpoints.retain(|format, _| *format <= anchor::FORMAT);
    }
    findings.extend(labels.into_iter().map(|(stamp, drives)| of_label(stamp, &drives)));
    let numbered = |format, word: &str, own: u32, writes: String, said: Said<u32>| {
        let one = |(version, drives): (u32, Vec<String>)| {
            let finding = FormatFinding::new(format, named(&drives), format!("{word} {version}"), writes.clone());
            match version {
                _ if version > own => finding.newer(),
                // Where one of this version is beside it, it is only left over.
                _ if version < own && !said.contains_key(&own) => finding.is(FormatVerdict::Rewrites, REWRITES),
                _ => finding,
            }
        };
        said.clone().into_iter().map(one).collect::<Vec<FormatFinding>>()
    };
    let own = format!("format {}", anchor::FORMAT);
    findings.extend(numbered("checkpoint", "format", anchor::FORMAT, own, checkpoints));
    findings.extend(numbered("tables", "version", ROOT_VERSION, own_tables(), tables));
    findings.extend(logs.into_iter().map(|(known, drives)| {
        let found =
            if known { "only records that this binary knows" } else { "a record that this binary does not know" };
        let finding = FormatFinding::new("log", named(&drives), found, "");
        if known { finding } else { finding.newer() }
    }));
    findings
}

fn named(drives: &[String]) -> String {
    match drives {
        [one] => one.clone(),
        [first, ..] => format!("{} drives, {first} the first", drives.len()),
        [] => String::new(),
    }
}

fn of_label(stamp: Stamp, drives: &[String]) -> FormatFinding {
    let finding = FormatFinding::new("label", named(drives), label(stamp), own_label());
    let unknown = stamp.incompatible & !codec::KNOWN.incompatible;
    if stamp.format > codec::FORMAT
        || unknown != 0
        || stamp.read_only_compatible & !codec::KNOWN.read_only_compatible != 0
    {
        return finding.newer();
    }
    match codec::WRITTEN & !stamp.incompatible {
        0 => finding,
        more => finding.is(
            FormatVerdict::Rewrites,
            format!(
                "back up what you would not lose before the first start: it adds features {more:#x} to every label, and a \
                 version that does not know them refuses the pool from then on"
            ),
        ),
    }
}

/// The parts of a drive by shard: one where no label says that it is divided.
fn read(path: &Path) -> Outcome<Vec<Drive>> {
    let (mut reader, size) = Reader::open(path)?;
    let mut parts = Vec::new();
    for (start, length) in divided(&mut reader, size)? {
        reader.count_from(start);
        parts.push(part(&mut reader, length)?);
    }
    Ok(parts)
}

/// Start and length of the parts, as the server finds them (FORMAT/drive.md, "Shards").
fn divided(reader: &mut Reader<'_>, size: u64) -> Outcome<Vec<(u64, u64)>> {
    let mut newest: Option<Label> = None;
    for at in places(size) {
        // Labels of the first shard say how large the parts are.
        let rank = |label: &Label| (label.configuration.shard.is_first(), label.sequence);
        if let Ok(label) = Label::decode(&reader.read(at, LABEL_SIZE)?)
            && newest.as_ref().is_none_or(|best| rank(&label) > rank(best))
        {
            newest = Some(label);
        }
    }
    let Some(label) = newest.filter(|label| !label.configuration.shard.is_alone()) else {
        return Ok(vec![(0, size)]);
    };
    let (configuration, count) = (&label.configuration, u64::from(label.configuration.shard.count));
    let even = size / count / MIB * MIB;
    let entry = configuration.drives.get(usize::from(label.number.0));
    let labelled = entry.map(|entry| entry.size.0).filter(|labelled| {
        let is_last = u64::from(configuration.shard.index) + 1 >= count;
        !is_last && labelled.checked_mul(count).is_some_and(|all| all <= size)
    });
    let length = match labelled {
        // A drive with the size of the one that it replaced in its labels.
        Some(labelled)
            if labelled != even && !is_second(reader, labelled, &label)? && is_second(reader, even, &label)? =>
        {
            even
        }
        Some(labelled) => labelled,
        None => even,
    };
    let part = |shard| (shard * length, if shard + 1 == count { size - shard * length } else { length });
    Ok((0..count).map(part).collect())
}

/// Whether a label of the second shard of the same pool lies at a place.
fn is_second(reader: &mut Reader<'_>, at: u64, of: &Label) -> Outcome<bool> {
    for copy in [at, at.saturating_add(LABEL_SIZE)] {
        let found = Label::decode(&reader.read(copy, LABEL_SIZE)?);
        if found.is_ok_and(|other| {
            other.configuration.shard.index == 1 && other.configuration.whole_pool() == of.configuration.whole_pool()
        }) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The versions on the part of a drive from which the reader counts.
fn part(reader: &mut Reader<'_>, length: u64) -> Outcome<Drive> {
    let mut drive = Drive::default();
    let mut newest: Option<Label> = None;
    for at in places(length) {
        let bytes = reader.read(at, LABEL_SIZE)?;
        drive.labels.extend(Stamp::read(&bytes));
        if let Ok(label) = Label::decode(&bytes)
            && newest.as_ref().is_none_or(|best| label.sequence > best.sequence)
        {
            newest = Some(label);
        }
    }
    // No check covers the format. A single differing copy counts as damage, as in the server.
    let others = drive.labels.iter().filter(|stamp| stamp.format != codec::FORMAT).count();
    if others == 1 && drive.labels.len() > 1 {
        drive.labels.retain(|stamp| stamp.format == codec::FORMAT);
    }
    drive.labels.sort_unstable();
    drive.labels.dedup();
    let pool = newest.as_ref().map(|label| label.configuration.pool);
    let mut best: Option<Anchor> = None;
    for slot in 0..2 {
        let bytes = reader.read(ANCHOR_AT + slot * SLOT, SLOT)?;
        // A checkpoint that an earlier pool left there does not count.
        let stamp = anchor::stamp(&bytes).filter(|(_, of)| pool.is_none_or(|pool| pool == *of));
        drive.checkpoints.extend(stamp.map(|(format, _)| format));
        let Some(anchor) = Anchor::decode(&bytes).filter(|anchor| Some(anchor.pool) == pool) else { continue };
        drive.tables.extend(Root::version(&anchor.root));
        if best.as_ref().is_none_or(|best| (anchor.epoch, anchor.sequence) > (best.epoch, best.sequence)) {
            best = Some(anchor);
        }
    }
    drive.later = drive.checkpoints.iter().filter(|format| **format > anchor::FORMAT).count();
    for versions in [&mut drive.checkpoints, &mut drive.tables] {
        versions.sort_unstable();
        versions.dedup();
    }
    if let (Some(label), Some(anchor)) = (&newest, &best) {
        let log = walk(reader, label, anchor)?;
        drive.log_is_known = log.member.then_some(!log.unknown);
    }
    Ok(drive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_for_some_shards_only_names_them() {
        let finding = |format, found: &str| FormatFinding::new(format, "4 drives, d0 the first", found, "");
        let (known, later) = (finding("checkpoint", "format 2"), finding("checkpoint", "format 3").newer());
        let log = finding("log", "only records that this binary knows");
        let merged = together(vec![
            vec![known.clone(), log.clone()],
            vec![known.clone(), later, log.clone()],
            vec![log.clone()],
        ]);
        let places: Vec<_> = merged.iter().map(|found| (found.found.as_str(), found.place.as_str())).collect();
        assert_eq!(
            places,
            [
                ("format 2", "4 drives, d0 the first, shards 0, 1"),
                ("only records that this binary knows", "4 drives, d0 the first"),
                ("format 3", "4 drives, d0 the first, shard 1"),
            ]
        );
        assert_eq!(together(vec![vec![known.clone()]]), [known]);
    }
}
