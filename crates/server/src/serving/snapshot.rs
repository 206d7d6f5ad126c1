//! The state of the store for `/health` and `/metrics`, read from the pool once a second, so that a
//! scrape never waits.
//!
//! Failure model: a pool that gives no answer within [`STATUS_PATIENCE`] is down, and the alarm
//! `pool-silent` tells so: mail and webhooks are sent from here, and no other place would send one.
//! A state that is older than [`AGE_MAX`] is not told as the present one, whatever keeps it from
//! being read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stele_archive::Usage;
use stele_object::{Alarm, DriveSample, Health, Snapshot, SnapshotSource, TargetSample};
use tokio::time::timeout;

use crate::api::pool::{DriveView, StandingView, StatusView};
use crate::node::alarms::KINDS;
use crate::node::standing::begun::BegunAlarms;
use crate::node::standing::next_of;
use crate::node::{Node, wall_clock};
use crate::serving::messages::MessageQueues;

const EVERY: Duration = Duration::from_secs(1);
/// Rounds between sums over all buckets, which cost more.
const USAGE_EVERY: u32 = 10;
/// Rounds between writes of the counters.
const KEPT_EVERY: u32 = 60;
/// Time limit for the pool's answer, and for the sums over all buckets.
const STATUS_PATIENCE: Duration = Duration::from_secs(10);
const USAGE_PATIENCE: Duration = Duration::from_secs(5);
/// Age above which a state says nothing of the present: a late answer and a late sum together take
/// less.
const AGE_MAX: Duration = Duration::from_secs(30);

/// The latest state, for readers.
#[derive(Clone)]
pub struct Latest {
    state: Arc<Mutex<State>>,
    started: u64,
}

struct State {
    snapshot: Snapshot,
    at: Instant,
}

impl Default for Latest {
    fn default() -> Latest {
        let state = State { snapshot: Snapshot { health: Health::Down, ..Snapshot::default() }, at: Instant::now() };
        Latest { state: Arc::new(Mutex::new(state)), started: wall_clock() }
    }
}

impl Latest {
    pub fn source(&self) -> SnapshotSource {
        let latest = self.clone();
        Arc::new(move || latest.at(Instant::now()))
    }

    /// The state as it is known now. Each answer has the time of the start, for rules about alarms
    /// of a start.
    fn at(&self, now: Instant) -> Snapshot {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut snapshot = match now.saturating_duration_since(state.at) > AGE_MAX {
            true => Snapshot { health: Health::Down, ..Snapshot::default() },
            false => state.snapshot.clone(),
        };
        drop(state);
        let help = "When the server started, in seconds since 1970.";
        snapshot.more.push(("stele_start_time_seconds".to_owned(), help.to_owned(), self.started as f64));
        snapshot
    }

    /// Reads the state again and again until the task is dropped.
    pub async fn keep_fresh(self, node: Arc<Node>, mut look: Look) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.refresh(&node, &mut look).await;
        }
    }

    /// Reads the state once: before the server is announced, so that the first answer is a real
    /// one.
    pub async fn refresh(&self, node: &Node, look: &mut Look) {
        if look.round.is_multiple_of(USAGE_EVERY)
            && let Ok(Some(usage)) = timeout(USAGE_PATIENCE, usage(node)).await
        {
            look.usage = usage;
        }
        look.round = look.round.wrapping_add(1);
        let snapshot = match timeout(STATUS_PATIENCE, crate::api::pool::status(node)).await {
            Ok(Ok(status)) => {
                if look.round.is_multiple_of(KEPT_EVERY) {
                    node.history.keep(&status);
                }
                look.silent_since = None;
                let low = status.standing.iter().any(|alarm| alarm.kind == "space-low" && alarm.subject == "pool");
                if low && !look.low {
                    node.exports.iscsi.threshold_reached();
                }
                look.low = low;
                look.tell(node, &status.name, &status.standing);
                let mut whole = of(&status);
                whole.more.extend(node.catalog_status().into_iter().flat_map(|catalog| catalog_room(&catalog)));
                let least = if node.trouble().is_some() { Health::ReadOnly } else { Health::Healthy };
                Snapshot {
                    health: whole.health.max(least),
                    scrubbed: look.scrubbed.add(&status) + node.verified_bytes(),
                    versions: look.usage.versions,
                    stored: look.usage.bytes,
                    unfinished: look.usage.unfinished,
                    targets: targets(node),
                    alarms: by_name(status.standing.iter().map(short).collect()),
                    alarms_came: came(node.alarms_kept().came()),
                    ..whole
                }
            }
            Ok(Err(failure)) => look.tell_silent(node, &failure.on_one_line()),
            Err(_) => look.tell_silent(node, &format!("no answer within {} s", STATUS_PATIENCE.as_secs())),
        };
        let state = State { snapshot, at: Instant::now() };
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// The room that the catalog has for records.
fn catalog_room(catalog: &stele_catalog::Status) -> [(String, String, f64); 2] {
    let series = |name: &str, help: &str, value: u64| (name.to_owned(), help.to_owned(), value as f64);
    [
        series("stele_catalog_size_bytes", "Bytes that the catalog has for records.", catalog.area.0),
        series("stele_catalog_free_bytes", "Of these, bytes that are free at least.", catalog.free.0),
    ]
}

/// A counter for each kind, 0 for those that never came.
fn came(counts: BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let mut all: BTreeMap<String, u64> = KINDS.iter().map(|kind| ((*kind).to_owned(), 0)).collect();
    all.extend(counts);
    all.into_iter().collect()
}

/// The values kept from one round to the next.
#[derive(Default)]
pub struct Look {
    round: u32,
    usage: Usage,
    scrubbed: Scrubbed,
    /// Sends alarms by mail and webhooks.
    pub messages: MessageQueues,
    /// Tells alarms that only stand when they begin.
    begun: BegunAlarms,
    /// The pool has little space left; initiators get a notice when this begins.
    low: bool,
    /// The pool's name, and the alarms that stood, when it last gave a status.
    last: (String, Vec<StandingView>),
    /// Since when it gives none, on the machine's clock.
    silent_since: Option<u64>,
}

impl Look {
    /// Tells what has begun and ended since the last look.
    fn tell(&mut self, node: &Node, name: &str, standing: &[StandingView]) {
        self.begun.look(standing).into_iter().for_each(|alarm| node.note_begun(alarm));
        self.messages.note(name, standing, node.alarms_kept().latest(), wall_clock());
        self.last = (name.to_owned(), standing.to_vec());
    }

    /// Tells that the pool gives no status. Returns the state of a pool that is down.
    fn tell_silent(&mut self, node: &Node, why: &str) -> Snapshot {
        let standing = self.standing_silent(why, wall_clock());
        let (name, before) = std::mem::take(&mut self.last);
        self.tell(node, &name, &standing);
        self.last = (name, before);
        Snapshot {
            health: Health::Down,
            alarms: by_name(standing.iter().map(short).collect()),
            alarms_came: came(node.alarms_kept().came()),
            ..Snapshot::default()
        }
    }

    /// What stood when the pool last gave a status, and that it gives none: nothing says that the
    /// others have ended.
    fn standing_silent(&mut self, why: &str, now: u64) -> Vec<StandingView> {
        let since = *self.silent_since.get_or_insert(now);
        let silent = StandingView {
            kind: "pool-silent".to_owned(),
            subject: "pool".to_owned(),
            since,
            message: format!("the pool gives no status: {why}"),
            done: "it is asked again every second; requests wait for the pool, or fail".to_owned(),
            next: next_of("pool-silent").to_owned(),
        };
        self.last.1.iter().cloned().chain([silent]).collect()
    }
}

/// The content of all buckets together.
async fn usage(node: &Node) -> Option<Usage> {
    let archive = node.archive().ok()?;
    let caller = node.own_caller();
    let mut sum = Usage::default();
    for bucket in archive.list_buckets(&caller).await.ok()? {
        // The bucket may have been deleted meanwhile.
        if let Ok(usage) = archive.usage(&caller, &bucket.name).await {
            sum.versions += usage.versions;
            sum.bytes += usage.bytes;
            sum.unfinished += usage.unfinished;
        }
    }
    Some(sum)
}

/// The targets of notifications, with the events that wait and that were dropped.
fn targets(node: &Node) -> Vec<TargetSample> {
    let lags = node.archive().ok().and_then(|archive| archive.target_lags().ok()).unwrap_or_default();
    let sample =
        |lag: stele_archive::TargetLag| TargetSample { target: lag.target, pending: lag.pending, dropped: lag.dropped };
    lags.into_iter().map(sample).collect()
}

/// Sums the bytes read by the array's scrubs from the progress of each pass.
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

/// A short alarm: the problem and the next step.
fn short(standing: &StandingView) -> Alarm {
    let StandingView { kind, message, next, .. } = standing;
    Alarm { name: kind.clone(), message: format!("{message}; next: {next}") }
}

/// One alarm for each name, since a series stands for a name: the first alarm, with the number of
/// others.
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

/// A drive in the labels of its series: its path, or its number where the path is not known, as of
/// a drive that was missing at the start. Two such drives must not share their series.
fn label(drive: &DriveView) -> String {
    match drive.path.is_empty() {
        true => format!("drive {}", drive.drive),
        false => drive.path.clone(),
    }
}

fn of(status: &StatusView) -> Snapshot {
    let health = match status.state.as_str() {
        "ok" => Health::Healthy,
        "read-only" => Health::ReadOnly,
        "damaged" | "unreadable" => Health::DataUnreadable,
        _ => Health::Degraded,
    };
    Snapshot {
        health,
        size: status.raw,
        used: status.used,
        free: status.free(),
        drives: status
            .drives
            .iter()
            .map(|drive| DriveSample {
                drive: label(drive),
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

#[cfg(test)]
mod tests;
