//! `stele backup verify`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};
use stele_backup::repository::Repository;
use stele_backup::segment::SegmentId;
use stele_backup::snapshot::SnapshotId;
use stele_backup::verify::{self, DamagedKey, DamagedObject, NewerObject, SurveyedSnapshots, Verified, VerifyProgress};
use stele_ground::{Shown, counted, counted_are};
use stele_server::failure::{Failure, Kind, Outcome};

use super::progress::{Shows, Watch};
use super::tell::tell;
use super::{closed, run, shown_path};
use crate::cli::backup::RepositoryArgs;
use crate::commands::print_json;

pub fn verify(watch: Watch, repository: &Repository, data: bool) -> Outcome<()> {
    let progress = Arc::new(VerifyProgress::default());
    let (shown, stop) = (Arc::clone(&progress), Arc::clone(&progress));
    let done = watch.during(
        move || shown.so_far(),
        move || stop.stop.store(true, Ordering::Relaxed),
        || verify::run(repository, data, run::workers(), &progress),
    );
    let done = done.inspect_err(|_| tell_damaged(&progress))?;
    if watch.json {
        print_json(&json!({
            "snapshots": done.snapshots, "entries": done.files, "segments": done.segments, "chunks": done.chunks,
            "read_bytes": done.bytes, "damaged_chunks": done.damaged_chunks,
            "damaged": segments_json(&done.damaged), "damaged_keys": keys_json(&done.damaged_keys),
            "damaged_objects": objects_json(&done.damaged_objects), "unreadable": snapshots_json(&done.unreadable),
            "newer": newer_json(&done.newer),
            "repaired_files": done.repaired_files, "repaired_snapshots": done.repaired_snapshots, "lost_files": done.lost_files,
            "lost": done.lost.iter().map(|lost| json!({
                "snapshot": lost.snapshot.to_string(), "path": shown_path(&lost.path), "error": lost.text,
            })).collect::<Vec<_>>(),
        }))?;
    } else {
        print_faults(&done.damaged, &done.damaged_keys, &done.damaged_objects, &done.unreadable);
        print_newer(&done.newer);
        for lost in &done.lost {
            println!("snapshot {}: {}: {}", lost.snapshot.short(), Shown(&shown_path(&lost.path)), Shown(&lost.text));
        }
        if done.repaired_files > 0 {
            println!(
                "{} content that was stored again; prune keeps it.",
                match done.repaired_files {
                    1 => "1 file has".to_owned(),
                    several => format!("{several} files have"),
                }
            );
        }
        println!(
            "{} with {}, {} with {}: {}.",
            counted(done.snapshots, "snapshot"),
            counted(done.files, "entry"),
            counted(done.segments, "segment"),
            counted(done.chunks, "chunk"),
            counted(faults(&done), "fault")
        );
    }
    if let Some(cause) = &done.unmarked {
        tell(format_args!("stele: marks of damage could not be changed in the repository: {}", Shown(cause)));
    }
    judged(&done, data)
}

fn faults(done: &Verified) -> u64 {
    let listed = done.damaged.len() + done.damaged_keys.len() + done.damaged_objects.len() + done.unreadable.len();
    listed as u64 + done.lost_files
}

/// The failure that the faults are, with a remedy for each kind.
fn judged(done: &Verified, data: bool) -> Outcome<()> {
    if done.is_good() {
        return unchecked(&done.newer);
    }
    let mut text = format!("the repository has {}", counted(faults(done), "fault"));
    let mut next = Vec::new();
    if done.lost_files > 0 {
        next.push(match (&done.unmarked, data) {
            (Some(_), _) => {
                "run `stele backup verify --data` with the right to write: a backup stores marked chunks anew"
            }
            (None, true) => {
                "save the same files again with `stele backup run`: chunks that are marked as damaged are stored anew"
            }
            (None, false) => "save the same files again with `stele backup run`: content that is gone is stored anew",
        });
    }
    if !done.unreadable.is_empty() {
        next.push(UNREADABLE);
    }
    if !done.damaged.is_empty() && done.is_whole() {
        let repaired = counted(done.repaired_snapshots, "snapshot");
        text += &match done.repaired_snapshots {
            0 => "; no snapshot lacks anything".to_owned(),
            _ => format!("; a later backup stored the damaged content of {repaired} again, and none lacks anything"),
        };
        next.push(match done.repaired_snapshots {
            0 => "nothing is to be repaired: `stele backup prune` removes the segments when no snapshot needs them",
            _ => {
                "nothing is to be repaired: `stele backup prune` removes the segments when those snapshots, from before \
                 the later backup, are forgotten"
            }
        });
    }
    if !done.damaged_keys.is_empty() {
        next.push(DAMAGED_KEY);
    }
    if !done.damaged_objects.is_empty() {
        next.push(DAMAGED_OBJECT);
    }
    if !done.newer.is_empty() {
        next.push(NEWER);
    }
    Err(Failure::new(Kind::Damaged, text).next(next.join("; ")))
}

const DAMAGED_KEY: &str = "a damaged key opens nothing: add its password anew by `stele backup key add`, and take it \
    away by `stele backup key remove KEY`";

const UNREADABLE: &str = "bring the object of a snapshot that cannot be read back from a copy, or give it up by \
    `stele backup forget ID`; no backup makes it anew";

const DAMAGED_OBJECT: &str = "repair the damaged object as its line says: backups fail until then";

const NEWER: &str = "what a later version of Stele wrote is no damage: check it by that version, and remove nothing";

/// Without damage, objects of a later version still leave a part of the repository unchecked.
fn unchecked(newer: &[NewerObject]) -> Outcome<()> {
    match newer.len() as u64 {
        0 => Ok(()),
        number => {
            let text = format!("{} of a later version of Stele and not checked", counted_are(number, "object"));
            Err(Failure::new(Kind::Incomplete, text).next(NEWER))
        }
    }
}

fn newer_json(newer: &[NewerObject]) -> Vec<Value> {
    newer.iter().map(|object| json!({ "object": object.name, "error": object.text })).collect()
}

fn print_newer(newer: &[NewerObject]) {
    newer.iter().for_each(|object| println!("{}: {}", Shown(&object.name), Shown(&object.text)));
}

fn segments_json(damaged: &[(SegmentId, String)]) -> Vec<Value> {
    damaged.iter().map(|(id, text)| json!({ "segment": format!("{id:?}"), "error": text })).collect()
}

fn keys_json(damaged: &[DamagedKey]) -> Vec<Value> {
    damaged.iter().map(|key| json!({ "key": key.name, "error": key.text })).collect()
}

fn objects_json(damaged: &[DamagedObject]) -> Vec<Value> {
    damaged.iter().map(|object| json!({ "object": object.name, "error": object.text })).collect()
}

fn snapshots_json(unreadable: &[(SnapshotId, String)]) -> Vec<Value> {
    unreadable.iter().map(|(id, text)| json!({ "snapshot": id.to_string(), "error": text })).collect()
}

fn print_faults(
    segments: &[(SegmentId, String)],
    keys: &[DamagedKey],
    objects: &[DamagedObject],
    snapshots: &[(SnapshotId, String)],
) {
    segments.iter().for_each(|(id, text)| println!("segment {id:?}: {}", Shown(text)));
    keys.iter().for_each(|key| println!("key {}: {}", Shown(&key.name), Shown(&key.text)));
    objects.iter().for_each(|object| println!("{}", Shown(&object.text)));
    snapshots.iter().for_each(|(id, text)| println!("snapshot {}: {}", id.short(), Shown(text)));
}

/// Lists the damage that a check found before it failed.
fn tell_damaged(progress: &VerifyProgress) {
    for (id, text) in &*progress.damaged.lock().unwrap_or_else(PoisonError::into_inner) {
        tell(format_args!("stele: segment {id:?}: {}", Shown(text)));
    }
}

/// The check without the key of the repository.
pub fn scrub(watch: Watch, place: &RepositoryArgs) -> Outcome<()> {
    let progress = Arc::new(VerifyProgress::default());
    let repository = closed(place)?;
    let (keys, objects) = (verify::damaged_keys(&repository)?, verify::damaged_objects(&repository)?);
    let mut newer = verify::newer_objects(&repository)?;
    let SurveyedSnapshots { unreadable: snapshots, newer: newer_snapshots, needed } = verify::survey(&repository)?;
    newer.extend(newer_snapshots);
    let (shown, stop) = (Arc::clone(&progress), Arc::clone(&progress));
    let damaged = watch.during(
        move || shown.so_far(),
        move || stop.stop.store(true, Ordering::Relaxed),
        || verify::scrub(&repository, needed, &progress),
    );
    let damaged = damaged.inspect_err(|_| tell_damaged(&progress))?;
    let segments = progress.segments.load(Ordering::Relaxed);
    if watch.json {
        print_json(&json!({
            "segments": segments, "damaged": segments_json(&damaged), "damaged_keys": keys_json(&keys),
            "damaged_objects": objects_json(&objects), "unreadable": snapshots_json(&snapshots),
            "newer": newer_json(&newer),
        }))?;
    } else {
        print_faults(&damaged, &keys, &objects, &snapshots);
        print_newer(&newer);
        println!("{}: {} damaged.", counted(segments, "segment"), damaged.len());
    }
    let is = |number: usize, noun| (number > 0).then(|| format!("{} damaged", counted_are(number as u64, noun)));
    let found = [
        (is(damaged.len(), "segment"), "`stele backup verify --data` names the files, and marks the chunks"),
        (is(keys.len(), "key"), DAMAGED_KEY),
        (is(objects.len(), "object"), DAMAGED_OBJECT),
        (is(snapshots.len(), "snapshot"), UNREADABLE),
    ];
    let (text, mut next): (Vec<_>, Vec<_>) = found.into_iter().filter_map(|(text, next)| Some((text?, next))).unzip();
    next.extend((!newer.is_empty()).then_some(NEWER));
    match text.is_empty() {
        true => unchecked(&newer),
        false => Err(Failure::new(Kind::Damaged, text.join(", and ")).next(next.join("; "))),
    }
}

#[cfg(test)]
mod tests;
