//! How the store is doing, for `/health` and `/metrics`: asked of the pool once a second, so that a scrape never waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stele_archive::Archive;
use stele_ground::Bytes;
use stele_object::{Alarm, DriveSample, Health, Snapshot, SnapshotSource};

use crate::api::pool::StatusView;
use crate::node::Node;

const EVERY: Duration = Duration::from_secs(1);
/// What is added up over all buckets is asked less often, in rounds.
const USAGE_EVERY: u32 = 10;
/// Space is low when less than this share of it is free.
const LOW_SHARE: u64 = 20;
/// Segments of the archive that ordinary writes never take.
const RESERVED: u32 = 2;

/// The last answer, for readers.
#[derive(Clone, Default)]
pub struct Latest(Arc<Mutex<Snapshot>>);

impl Latest {
    pub fn source(&self) -> SnapshotSource {
        let latest = Arc::clone(&self.0);
        Arc::new(move || latest.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Asks again and again until the task is dropped.
    pub async fn keep_fresh(self, node: Arc<Node>, mut look: Look) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.refresh(&node, &mut look).await;
        }
    }

    /// Asks once: before anybody is told that the server is there, so that no first answer is made up.
    pub async fn refresh(&self, node: &Node, look: &mut Look) {
        if look.round.is_multiple_of(USAGE_EVERY)
            && let Some(usage) = usage(node).await
        {
            (look.versions, look.stored) = usage;
        }
        look.round = look.round.wrapping_add(1);
        let snapshot = match crate::api::pool::status(node).await {
            Ok(status) => {
                let mut alarms = standing(&status);
                alarms.extend(of_node(node));
                let whole = of(&status);
                let least = if node.reads_only().is_some() { Health::ReadOnly } else { Health::Healthy };
                Snapshot {
                    health: whole.health.max(least),
                    scrubbed: look.scrubbed.add(&status) + node.verified_bytes(),
                    versions: look.versions,
                    stored: look.stored,
                    alarms: by_name(alarms),
                    ..whole
                }
            }
            Err(_) => Snapshot { health: Health::Down, ..Snapshot::default() },
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}

/// What is carried from one question to the next.
#[derive(Default)]
pub struct Look {
    round: u32,
    versions: u64,
    stored: u64,
    scrubbed: Scrubbed,
}

/// Versions and bytes of all buckets.
async fn usage(node: &Node) -> Option<(u64, u64)> {
    let archive = node.archive().ok()?;
    let caller = node.own_caller();
    let (mut versions, mut bytes) = (0, 0);
    for bucket in archive.list_buckets(&caller).await.ok()? {
        // A bucket may have gone since.
        if let Ok(usage) = archive.usage(&caller, &bucket.name).await {
            versions += usage.versions;
            bytes += usage.bytes;
        }
    }
    Some((versions, bytes))
}

/// Adds up what scrubs of the array have read from how far each pass is.
#[derive(Default)]
struct Scrubbed {
    bytes: u64,
    pass: u64,
    total: u64,
    passes: u64,
}

impl Scrubbed {
    fn add(&mut self, status: &StatusView) -> u64 {
        if status.scrubs_finished > self.passes {
            self.passes = status.scrubs_finished;
            self.bytes += self.total.saturating_sub(self.pass);
            (self.pass, self.total) = (0, 0);
        }
        if let Some(scrub) = status.scrub {
            self.bytes += scrub.done.saturating_sub(self.pass);
            (self.pass, self.total) = (scrub.done, scrub.total);
        }
        self.bytes
    }
}

fn of_node(node: &Node) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    if let Some(message) = node.damage() {
        alarms.push(Alarm { name: "damage".to_owned(), message });
    }
    if let Some(message) = node.reads_only() {
        alarms.push(Alarm { name: "read-only".to_owned(), message: message.to_owned() });
    }
    if let Ok(archive) = node.archive() {
        alarms.extend(of_archive(archive));
    }
    alarms
}

/// What the archive knows to be wrong now.
fn of_archive(archive: &Archive) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    if let Some(reason) = archive.clock().frozen {
        let message = format!("expiry is frozen: {reason}; `stele clock show`, then `stele clock accept`");
        alarms.push(Alarm { name: "clock".to_owned(), message });
    }
    let space = archive.space();
    // The last free segments are for deletes and reclamation.
    if u64::from(space.free.saturating_sub(RESERVED)) * LOW_SHARE < u64::from(space.segments) {
        let message =
            format!("{} of {} segments are free; add space, or delete what may be deleted", space.free, space.segments);
        alarms.push(Alarm { name: "space-low".to_owned(), message });
    }
    alarms
}

/// One for each name, since a series stands for a name: the first, with the number of others.
fn by_name(alarms: Vec<Alarm>) -> Vec<Alarm> {
    let mut named: Vec<(Alarm, u32)> = Vec::new();
    for alarm in alarms {
        match named.iter_mut().find(|(known, _)| known.name == alarm.name) {
            Some((_, more)) => *more += 1,
            None => named.push((alarm, 0)),
        }
    }
    let tell = |(alarm, more): (Alarm, u32)| match more {
        0 => alarm,
        _ => Alarm { message: format!("{} (and {more} more)", alarm.message), ..alarm },
    };
    named.into_iter().map(tell).collect()
}

fn of(status: &StatusView) -> Snapshot {
    let health = match status.state.as_str() {
        "ok" => Health::Healthy,
        "read-only" => Health::ReadOnly,
        _ => Health::Degraded,
    };
    Snapshot {
        health,
        size: status.raw,
        used: status.used,
        free: status.raw.saturating_sub(status.used).saturating_sub(status.spare),
        drives: status
            .drives
            .iter()
            .map(|drive| DriveSample {
                drive: drive.path.clone(),
                enclosure: drive.enclosure.to_string(),
                state: drive.health.clone(),
                online: matches!(drive.health.as_str(), "healthy" | "suspect" | "stale"),
                size: drive.size,
                used: drive.used,
                read_errors: drive.read_errors,
                write_errors: drive.write_errors,
                digest_errors: drive.digest_errors,
            })
            .collect(),
        rebuild: status.rebuild.map(|work| (work.done, work.total, work.seconds_left)),
        repaired: status.repaired,
        more: status
            .counters
            .iter()
            .map(|(name, count)| {
                let word: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
                (format!("stele_array_{word}"), format!("Count of {name} in the array since open."), *count as f64)
            })
            .collect(),
        ..Snapshot::default()
    }
}

/// What stands now, not what once happened.
fn standing(status: &StatusView) -> Vec<Alarm> {
    let mut alarms: Vec<Alarm> = status
        .drives
        .iter()
        .filter(|drive| drive.health != "healthy")
        .map(|drive| Alarm {
            name: format!("drive-{}", drive.health),
            message: format!("drive {} ({}): {}", drive.drive, drive.path, drive.note),
        })
        .collect();
    if status.lost_stripes > 0 {
        alarms.push(Alarm {
            name: "stripe-lost".to_owned(),
            message: format!(
                "{} stripes are lost; return missing drives, and see `stele volume list`",
                status.lost_stripes
            ),
        });
    }
    let lost = status.drives.iter().any(|drive| matches!(drive.health.as_str(), "missing" | "failed"));
    if lost && status.spare > 0 && status.spare_used >= status.spare {
        alarms.push(Alarm {
            name: "spare-exhausted".to_owned(),
            message: "no spare space is left to rebuild into; replace the lost drives".to_owned(),
        });
    }
    let free = status.raw.saturating_sub(status.used).saturating_sub(status.spare.saturating_sub(status.spare_used));
    if free.saturating_mul(LOW_SHARE) < status.raw {
        alarms.push(Alarm {
            name: "space-low".to_owned(),
            message: format!(
                "{} of {} are free; add space, or delete what may be deleted",
                Bytes(free),
                Bytes(status.raw)
            ),
        });
    }
    // The log says so once; what it says stands until the pool is opened again.
    for alarm in status.alarms.iter().filter(|alarm| alarm.kind == "log-degraded").take(1) {
        alarms.push(Alarm { name: alarm.kind.clone(), message: alarm.message.clone() });
    }
    if status.state == "read-only" {
        alarms.push(Alarm {
            name: "read-only".to_owned(),
            message: "the pool is open for reading only; return missing drives".to_owned(),
        });
    }
    alarms
}

#[cfg(test)]
mod tests;
