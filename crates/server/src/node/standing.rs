//! Standing problems of a node, which last until they are repaired. Each has its kind, the time of
//! its discovery, Stele's reaction and the operator's next step. `stele pool status` and the
//! metrics show the same list.

pub mod begun;
pub mod recurring;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use stele_archive::{AlarmKind, Archive};
use stele_array::Incomplete;
use stele_ground::{Bytes, MIB};

use super::beneath::FileSystem;
use super::room::CATALOG_MAX;
use super::{Node, wall_clock};
use crate::api::pool::{DriveView, StandingView, StatusView};

/// Space is low if less than one part in this number is free.
pub(super) const LOW_SHARE: u64 = 20;
/// Segments of the archive that ordinary writes never use.
const RESERVED: u32 = 2;

/// The time at which each problem was first noticed, on the machine's clock; by kind and subject.
#[derive(Default)]
pub struct Noticed(Mutex<BTreeMap<(String, String), u64>>);

impl Noticed {
    /// Gives a time to each problem that has none, and forgets problems that are gone.
    pub fn date(&self, standing: &mut [StandingView], now: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *known);
        for alarm in standing {
            let key = (alarm.kind.clone(), alarm.subject.clone());
            if alarm.since == 0 {
                alarm.since = before.get(&key).copied().unwrap_or(now);
            }
            known.insert(key, alarm.since);
        }
    }
}

pub(super) fn alarm(
    kind: &str,
    subject: &str,
    message: String,
    done: impl Into<String>,
    next: impl Into<String>,
) -> StandingView {
    StandingView {
        kind: kind.to_owned(),
        subject: subject.to_owned(),
        since: 0,
        message,
        done: done.into(),
        next: next.into(),
    }
}

/// All standing problems, the pool's first. `incomplete`: volumes that shards do not show as one.
pub fn of_node(node: &Node, status: &StatusView, incomplete: &[Incomplete]) -> Vec<StandingView> {
    let mut standing = of_pool(status);
    standing.extend(incomplete.iter().map(of_incomplete));
    if let Some(message) = node.damage() {
        let done = "the damaged data is kept; reads of it fail, and it is verified again every 30 seconds";
        standing.push(alarm("damage", "archive", message, done, next_of("damage")));
    }
    if let Some(trouble) = node.trouble() {
        let done = match node.archive() {
            Ok(_) => "reads are served, changes refused",
            Err(_) => "the archive is not served",
        };
        standing.push(alarm(trouble.kind, "archive", trouble.message.clone(), done, trouble.next.clone()));
    }
    if let Ok(archive) = node.archive() {
        standing.extend(of_archive(archive, node.config.archive.data_max.map(|most| most.0)));
        standing.extend(node.recurring.list(Instant::now()).into_iter().map(told));
    }
    standing.extend(status.drives.iter().filter_map(of_smart));
    standing.extend(status.drives.iter().filter_map(|drive| node.drive_paths.standing(drive)));
    standing.extend(node.beneath.list().iter().filter_map(of_file_system));
    standing.extend(node.data_directory.standing());
    let catalog = node.catalog_status();
    standing.extend(catalog.as_ref().and_then(of_catalog));
    standing.extend(catalog.as_ref().and_then(of_stopped_catalog));
    standing.extend(of_services(node));
    standing.extend(node.certificates.standing(wall_clock()));
    standing.extend(node.head_findings.standing());
    node.noticed.date(&mut standing, wall_clock());
    standing
}

/// A volume that shards do not show as one.
fn of_incomplete(incomplete: &Incomplete) -> StandingView {
    let Incomplete { volume, rolling_back_to } = incomplete;
    let (message, done, next) = match rolling_back_to {
        Some(snapshot) => (
            format!("the rollback of volume '{volume}' to '{snapshot}' was cut off: some shards show it, others not"),
            "nothing is read or written until all show the snapshot",
            format!("return drives that are away; then `stele volume rollback {volume} {snapshot}`"),
        ),
        None => (
            format!("volume '{volume}' lacks its part on some shard, or its parts show different states"),
            "the parts that are there are kept; reads of it are refused",
            format!(
                "return drives that are away and start again; if they are gone, roll it back to a snapshot that is \
                 whole, or restore it from a copy: `stele volume delete {volume}`"
            ),
        ),
    };
    alarm("volume-incomplete", &format!("volume {volume}"), message, done, next)
}

/// Exports, shares and SMB that are not served.
fn of_services(node: &Node) -> Vec<StandingView> {
    let is_gone = |name: &str| !node.exports.list().iter().any(|export| subject_of(export) == name);
    let is_served =
        |name: &str| node.exports.directory.list(None).iter().any(|target| subject_of(&target.export) == name);
    let exports = node.unserved.list().into_iter().filter(|(name, _)| !is_gone(name) && !is_served(name));
    let served = |kind: &'static str, done: &'static str| {
        move |(name, why): (String, String)| alarm(kind, &name, why, done, next_of(kind))
    };
    let exports = exports.map(served("export", "the export is kept and not served"));
    let locked = node.exports.list().into_iter().filter_map(|export| {
        let why = node.exports.unreadable_reservations(&export)?;
        let message = format!("no initiator can log in once the server has started again: {why}");
        let next = "stop all initiators, and follow \"Damaged reservations\" in OPERATIONS.md";
        Some(alarm("export", &subject_of(&export), message, "the export and the file are kept", next))
    });
    let shares = node.shares.unopened.standing("share", "the other shares are served");
    let done = "what is not archived stays in the cache of the share, and is tried again";
    let stuck = node.shares.stuck.list().into_iter().map(served("share-archiving", done));
    let smb = node.shares.smb.list().into_iter().map(served("smb", "it is tried again, after growing pauses"));
    exports.chain(locked).chain(shares).chain(stuck).chain(smb).collect()
}

/// The operator's next step after an alarm that the node raises itself.
pub fn next_of(kind: &str) -> &'static str {
    match kind {
        "certificate" => {
            "put a new certificate and its key in the place of the old ones; the server reads them within a minute"
        }
        "damage" => "`stele pool scrub --wait`; if it stays, restore the version from a copy",
        "export" => "`stele export list`; `stele export remove`",
        "heads" => "see that the place for heads can be reached, and holds files of this server alone",
        "pool-silent" => {
            "the kernel's log (dmesg) names a drive that hangs: take it out or power it off; then start the server again if \
             it does not answer"
        }
        "share" => "return missing drives: `stele drive online N`; the share is tried again by itself, within a minute",
        "share-archiving" => "follow the reason: `stele bucket set NAME --quota`, `stele pool add`, or remove the file",
        "smb" => "check that smbd runs, and [smb] in stele.toml",
        _ => "",
    }
}

/// An export, as alarms name it.
pub fn subject_of(export: &stele_block::Export) -> String {
    format!("{} {}", export.protocol, export.name)
}

/// What is not served although it should be, and why.
#[derive(Default)]
pub struct Unserved(Mutex<BTreeMap<String, Reason>>);

/// A reason, and the operator's next step if it is one of its own.
#[derive(PartialEq, Eq)]
struct Reason {
    why: String,
    next: String,
}

impl Unserved {
    /// Whether that is news.
    pub fn note(&self, subject: &str, why: &str) -> bool {
        self.put(subject, why, "").is_none()
    }

    /// As `note`, with the next step. Another reason is news, too.
    pub fn note_reason(&self, subject: &str, why: &str, next: &str) -> bool {
        self.put(subject, why, next).is_none_or(|before| before.why != why)
    }

    fn put(&self, subject: &str, why: &str, next: &str) -> Option<Reason> {
        let reason = Reason { why: why.to_owned(), next: next.to_owned() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(subject.to_owned(), reason)
    }

    pub fn end(&self, subject: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(subject);
    }

    /// Each subject with its reason.
    pub fn list(&self) -> Vec<(String, String)> {
        let unserved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unserved.iter().map(|(subject, reason)| (subject.clone(), reason.why.clone())).collect()
    }

    /// The alarms, with their own next steps.
    pub fn standing(&self, kind: &str, done: &str) -> Vec<StandingView> {
        let unserved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = unserved.iter().map(|(subject, Reason { why, next })| alarm(kind, subject, why.clone(), done, next));
        told.collect()
    }
}

/// A drive that predicts its own failure.
fn of_smart(drive: &DriveView) -> Option<StandingView> {
    drive.smart.as_ref().filter(|smart| smart.passed == Some(false))?;
    let (name, subject) = named(drive);
    let next = match drive.is_member() {
        true => format!("stele pool replace {} PATH", drive.drive),
        // What can be done with a drive that has no number is said of it.
        false => "`stele pool status`; use another drive".to_owned(),
    };
    Some(alarm("drive-smart", &subject, format!("{name} says that it will fail (SMART)"), "it is used as before", next))
}

/// A file system that is nearly full beneath drives that are files.
fn of_file_system(beneath: &FileSystem) -> Option<StandingView> {
    beneath.is_nearly_full().then(|| {
        alarm(
            "file-system-low",
            &beneath.name(),
            beneath.said(),
            "nothing; a write that finds no room there fails, drives are given up, and the pool may stop writing",
            "free room there, or move drives elsewhere: `stele pool replace N PATH`; OPERATIONS.md: A full file system \
             beneath file drives",
        )
    })
}

/// The problems that the archive reports. `data_max` is the bound of the configuration on its data
/// volume.
pub fn of_archive(archive: &Archive, data_max: Option<Bytes>) -> Vec<StandingView> {
    let mut standing: Vec<StandingView> = archive.standing_alarms().into_iter().map(told).collect();
    let space = archive.space();
    // The last free segments are reserved for deletes and reclamation.
    if u64::from(space.free.saturating_sub(RESERVED)) * LOW_SHARE < u64::from(space.segments) {
        standing.push(alarm(
            "space-low",
            "archive",
            format!("{} of {} segments of the archive are free", space.free, space.segments),
            "the space of deleted versions is reclaimed; the last two segments are kept for deletes",
            more_segments(space.segments, space.segment_bytes, data_max),
        ));
    }
    standing
}

/// How the archive gets more segments. It grows with the pool, as far as the configuration lets it.
fn more_segments(segments: u32, segment_bytes: u64, data_max: Option<Bytes>) -> &'static str {
    let is_bounded = data_max.is_some_and(|most| most.0 / segment_bytes.max(1) <= u64::from(segments));
    match is_bounded {
        true => {
            "delete what may be deleted, or raise `[archive] data_max` and start the server again: that bounds the \
             archive, and new drives alone do not help it"
        }
        false => "delete what may be deleted, or add drives: the archive grows with the pool (`stele pool add`)",
    }
}

/// Little space for records: raised before ordinary changes are refused. The free space is known
/// for sure only up to four times the reserve, once the catalog has laid out its whole volume.
pub fn of_catalog(catalog: &stele_catalog::Status) -> Option<StandingView> {
    let little = (catalog.area.0 / LOW_SHARE).min(3 * catalog.reserve.0).max(2 * catalog.reserve.0);
    let next = match (catalog.area + catalog.journal).0 + MIB < CATALOG_MAX.0 {
        true => {
            "delete what may be deleted; revoke keys that are refused again and again (`stele audit show`); or add \
             drives: the catalog grows to a 48th of the pool (`stele pool add`)"
        }
        false => {
            "delete what may be deleted; revoke keys that are refused again and again (`stele audit show`). The catalog \
             has its largest size, and new drives do not help it"
        }
    };
    (catalog.full || catalog.free.0 < little).then(|| {
        alarm(
            "space-low",
            "catalog",
            format!("{} of {} of the catalog are free", catalog.free, catalog.area),
            format!("the last {} are kept for deletions, holds, revocations and the clock", catalog.reserve),
            next,
        )
    })
}

/// A journal that could not be written stops the catalog until the next start, also where the pool
/// has room and drives again.
pub fn of_stopped_catalog(catalog: &stele_catalog::Status) -> Option<StandingView> {
    catalog.stopped.then(|| {
        alarm(
            "catalog-stopped",
            "catalog",
            "the catalog has stopped, since its journal could not be written; the server's log has the reason"
                .to_owned(),
            "reads of objects are served as far as the pool allows; changes are refused until the next start",
            "mend what the log names, such as a full file system under file drives; then start the server again",
        )
    })
}

impl Node {
    /// Tells the alarms of a step of the archive that are news.
    pub fn note_archive_alarms(&self, alarms: &[stele_archive::Alarm], now: Instant) {
        for of in alarms.iter().filter(|of| self.recurring.note(of, now)) {
            self.alarms.warn(of.kind(), &of.message, reaction(of.kind).1);
        }
    }
}

fn told(of: stele_archive::Alarm) -> StandingView {
    let (done, next) = reaction(of.kind);
    alarm(of.kind(), "archive", of.message.clone(), done, next)
}

/// What Stele has done about an alarm of the archive, and the operator's next step.
fn reaction(kind: AlarmKind) -> (&'static str, &'static str) {
    match kind {
        AlarmKind::Clock => {
            // The message names those who accept it: one, two officers, or none any more.
            ("nothing expires meanwhile", "`stele clock show`; `stele clock accept`, by whom the message names")
        }
        AlarmKind::Expiration => {
            ("all other expired versions are handled", "`stele pool status`; it is tried again by itself")
        }
        AlarmKind::ExpirationPaused => {
            ("versions stay past their retention", "`stele disposal status`, then `stele disposal resume`")
        }
        AlarmKind::Space => ("writes that find no room are refused whole", "delete what may be deleted, or add drives"),
        AlarmKind::Damage => (
            "unreadable data stays where it is, and new data goes elsewhere",
            "`stele pool scrub --wait`, and return missing drives",
        ),
        AlarmKind::Disposal => (
            "the versions are gone from the catalog; destroying their keys is tried again every five minutes",
            "`stele pool scrub --wait`, and return missing drives",
        ),
        AlarmKind::Officers => (
            "the key is void until then; any retention officer can refuse it",
            "`stele approve` shows it; `stele approve REQUEST --refuse --officer FILE` if an officer is not lost",
        ),
        AlarmKind::Refusals => (
            "they are refused, counted and summed up in the audit log",
            "`stele audit show`; `stele key revoke` if the key does harm",
        ),
        AlarmKind::SelfTest => (
            "the audit log has the attempts and their answers",
            "`stele self-test`; keep the pool as it is, and report the answers",
        ),
        AlarmKind::Rebuild => (
            "nothing that existed is deleted or weakened, its access keys are suspended",
            "return the drives and `stele catalog rebuild --force`, or two officers decide: `stele catalog release`",
        ),
        AlarmKind::Notifications => (
            "the events wait, and are sent again; requests are served as before",
            "`stele notifications list`; mend the target, the server's log says why it fails",
        ),
        AlarmKind::Inventory => (
            "the files that it stored are deleted, and it is tried again with a growing pause",
            "mend what the message names, then `stele bucket inventory BUCKET ID`; or remove the inventory",
        ),
        AlarmKind::Pairing => ("reads are served, changes refused", super::UNPAIRED_NEXT),
        AlarmKind::Audit => (
            "the log continues, but no further head is signed",
            "`stele audit verify --anchor HEAD` with a head kept elsewhere",
        ),
    }
}

/// The problems that the array reports.
fn of_pool(status: &StatusView) -> Vec<StandingView> {
    let unwell = status.drives.iter().filter(|drive| !matches!(drive.health.as_str(), "healthy" | "leaving"));
    let mut standing: Vec<StandingView> = unwell.map(of_drive).collect();
    if status.lost_stripes > 0 {
        standing.push(alarm(
            "stripe-lost",
            "pool",
            match status.lost_stripes {
                1 => "1 stripe has lost more strips than its code survives".to_owned(),
                lost => format!("{lost} stripes have lost more strips than their code survives"),
            },
            "they are listed; everything else is served, and reads of them are refused",
            "return missing drives; `stele affected` names what is concerned, to be restored from elsewhere",
        ));
    }
    let away = status.unreadable_stripes.saturating_sub(status.lost_stripes);
    if away > 0 {
        standing.push(alarm(
            "data-unreadable",
            "pool",
            match away {
                1 => "1 stripe cannot be read: more of its drives are away than its code survives".to_owned(),
                _ => format!("{away} stripes cannot be read: more of their drives are away than their code survives"),
            },
            "everything else is served, and reads of them are refused",
            "return missing drives: `stele drive online N`; `stele affected` names what is concerned",
        ));
    }
    if status.crowded_stripes > 0 {
        standing.push(alarm(
            "enclosure-crowded",
            "pool",
            format!("{} stripes would be lost with one enclosure, and need not lie so", status.crowded_stripes),
            "their strips move to drives of other enclosures",
            "wait; if they stay: add drives in the emptier enclosures, or `stele drive set` where a drive is elsewhere",
        ));
    }
    if status.stripes_without_spare > 0 {
        standing.push(alarm(
            "spare-exhausted",
            "pool",
            format!("no spare space is left for {} stripes with a strip on a lost drive", status.stripes_without_spare),
            format!("{} of {} of spare space hold rebuilt strips", Bytes(status.spare_used), Bytes(status.spare)),
            "replace the lost drives: `stele pool replace N PATH`",
        ));
    }
    let free = status.free();
    if free.saturating_mul(LOW_SHARE) < status.raw {
        standing.push(alarm(
            "space-low",
            "pool",
            format!("{} of {} are free", Bytes(free), Bytes(status.raw)),
            "caches of shares give up archived content; writes that find no room are refused",
            "add drives, or delete what may be deleted",
        ));
    }
    if !status.log_trouble.is_empty() {
        let what = status.log_trouble.clone();
        let (done, next) = match status.state == "read-only" {
            true => (
                "writes stop",
                "mend what the log names, such as a full file system under file drives; then start the server again",
            ),
            false => ("the log continues on its remaining drives", "return, replace or add drives"),
        };
        let told = alarm("log-degraded", "pool", what, done, next);
        standing.push(StandingView { since: status.log_trouble_since.unwrap_or(0), ..told });
    }
    if let Some((why, since)) = &status.moving_put_off {
        let next = "free some space, add drives, or return missing ones";
        let told = alarm("moving-put-off", "pool", why.clone(), "it is tried again every five seconds", next);
        standing.push(StandingView { since: *since, ..told });
    }
    if status.state == "read-only" {
        let is_away = |drive: &DriveView| matches!(drive.health.as_str(), "missing" | "failed" | "rejected");
        let next = match status.drives.iter().any(is_away) {
            true => "return missing drives, and start the server again",
            false if !status.log_trouble.is_empty() => {
                "the log has stopped: mend what its alarm names, and start the server again"
            }
            // Whole, it is opened so because `--read-only` asks for it, or for a format of a later
            // version.
            false => "nothing, if that was asked for; otherwise `stele upgrade check` says which format is newer",
        };
        let message = "the pool is open for reading only".to_owned();
        standing.push(alarm("read-only", "pool", message, "reads are served, changes refused", next));
    }
    standing
}

fn of_drive(drive: &DriveView) -> StandingView {
    let note = if drive.note.is_empty() { drive.health.as_str() } else { drive.note.as_str() };
    let (name, subject) = named(drive);
    let told = alarm(&drive.alarm, &subject, format!("{name}: {note}"), drive.done.clone(), drive.next.clone());
    StandingView { since: drive.since.unwrap_or(0), ..told }
}

/// A drive as messages and as subjects of alarms name it.
fn named(drive: &DriveView) -> (String, String) {
    match drive.drive {
        _ if !drive.is_member() => (drive.path.clone(), drive.path.clone()),
        // The path of a drive that was missing at the opening is unknown.
        number if drive.path.is_empty() => (format!("drive {number}"), format!("drive {number}")),
        number => (format!("drive {number} ({})", drive.path), format!("drive {number}")),
    }
}

#[cfg(test)]
mod tests;
