//! How the store is doing, for `/health` and `/metrics`: asked of the pool once a second, so that a scrape never waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stele_object::{Alarm, DriveSample, Health, Snapshot, SnapshotSource};

use crate::api::pool::StatusView;
use crate::node::Node;

const EVERY: Duration = Duration::from_secs(1);

/// The last answer, for readers.
#[derive(Clone, Default)]
pub struct Latest(Arc<Mutex<Snapshot>>);

impl Latest {
    pub fn source(&self) -> SnapshotSource {
        let latest = Arc::clone(&self.0);
        Arc::new(move || latest.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Asks again and again until the task is dropped.
    pub async fn keep_fresh(self, node: Arc<Node>) {
        loop {
            let snapshot = match crate::api::pool::status(&node).await {
                Ok(status) => of(&status),
                Err(_) => Snapshot { health: Health::Down, ..Snapshot::default() },
            };
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
            tokio::time::sleep(EVERY).await;
        }
    }
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
        alarms: standing(status),
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
    if status.state == "read-only" {
        alarms.push(Alarm {
            name: "read-only".to_owned(),
            message: "the pool is open for reading only; return missing drives".to_owned(),
        });
    }
    alarms
}
