//! The formats on the drives: labels, checkpoints, tables and log. Each version appears once, with
//! the drives that have it.

use std::collections::BTreeMap;
use std::path::Path;

use stele_array::anchor::{self, Anchor, LATER_MIN, SLOT};
use stele_array::checkpoint::{ROOT_VERSION, Root};
use stele_array::label::codec::{self, Label, Stamp};
use stele_array::label::{ANCHOR_AT, LABEL_SIZE, places};
use stele_array::server::DrivePlace;
use stele_server::failure::Outcome;

use super::{FormatFinding, FormatVerdict, label, own_label, own_tables};
use crate::commands::dump::{Reader, walk};

/// The versions on one drive.
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
    let (mut labels, mut checkpoints, mut tables, mut logs) =
        (Said::<Stamp>::new(), Said::<u32>::new(), Said::<u32>::new(), Said::<bool>::new());
    let (mut findings, mut later) = (Vec::new(), 0);
    for place in places {
        let name = place.path.display().to_string();
        let drive = match read(&place.path) {
            Ok(drive) => drive,
            Err(failure) => {
                let next = "return the drive, or look again without it if it is gone for good";
                findings.push(
                    FormatFinding::new("label", name, failure.error, own_label()).is(FormatVerdict::Unknown, next),
                );
                continue;
            }
        };
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

fn read(path: &Path) -> Outcome<Drive> {
    let (mut reader, size) = Reader::open(path)?;
    let mut drive = Drive::default();
    let mut newest: Option<Label> = None;
    for at in places(size) {
        let bytes = reader.read(at, LABEL_SIZE)?;
        drive.labels.extend(Stamp::read(&bytes));
        // The last shard's labels are at the drive's end; checkpoint and log here are the first's.
        if let Ok(label) = Label::decode(&bytes)
            && label.configuration.shard.is_first()
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
        let log = walk(&mut reader, label, anchor)?;
        drive.log_is_known = log.member.then_some(!log.unknown);
    }
    Ok(drive)
}
