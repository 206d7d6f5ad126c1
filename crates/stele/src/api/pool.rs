//! Calls about the pool and its drives.

use serde::{Deserialize, Serialize};
use stele_array::{Command, DriveHealth, Reply};
use stele_ground::Instant;

use super::{Actor, Call, Done};
use crate::drives::DriveArgument;
use crate::failure::{Failure, Outcome};
use crate::node::alarms::kebab;
use crate::node::{Node, membership, standing, surroundings};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Status {}

/// The pool as an operator sees it. Sizes are bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusView {
    pub pool: String,
    pub name: String,
    pub epoch: u64,
    /// `ok`, `degraded` (fully readable, less redundancy), `damaged` (something is lost) or `read-only`.
    pub state: String,
    pub drives: Vec<DriveView>,
    pub raw: u64,
    pub used: u64,
    pub spare: u64,
    pub spare_used: u64,
    pub log_used: u64,
    pub log_size: u64,
    pub dirty: u64,
    pub rebuild: Option<ProgressView>,
    pub copy_back: Option<ProgressView>,
    pub scrub: Option<ProgressView>,
    /// Stripes on their way to added drives, or away from leaving ones.
    pub moving: Option<ProgressView>,
    /// Paths of drives that have left the pool since it was opened.
    pub removed: Vec<String>,
    pub scrubs_finished: u64,
    pub scrub_damage_found: u64,
    pub scrub_damage_repaired: u64,
    pub lost_stripes: u64,
    /// Stripes that the loss of one enclosure makes unreadable; and of them those that could lie better on the drives that
    /// are here, which move.
    #[serde(default)]
    pub exposed_stripes: u64,
    #[serde(default)]
    pub crowded_stripes: u64,
    pub rebuilt: u64,
    pub repaired: u64,
    /// What is wrong now.
    pub standing: Vec<StandingView>,
    /// Alarms as they came, also under earlier servers, oldest first; the last 100.
    pub alarms: Vec<AlarmView>,
    pub counters: Vec<(String, u64)>,
}

/// Something that is wrong, and stays so until something is done about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StandingView {
    /// As OPERATIONS.md lists it.
    pub kind: String,
    /// What it is about: `drive 3`, `pool`, `archive`.
    pub subject: String,
    /// Seconds since 1970 on the machine's clock: since when it is so, or else when it was first noticed.
    pub since: u64,
    /// What is wrong.
    pub message: String,
    /// What was done about it.
    pub done: String,
    /// What to do.
    pub next: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DriveView {
    pub drive: u32,
    pub identity: String,
    pub path: String,
    pub enclosure: u32,
    pub health: String,
    pub size: u64,
    pub used: u64,
    pub read_errors: u64,
    pub write_errors: u64,
    pub digest_errors: u64,
    pub repaired: u64,
    /// What is wrong; empty when nothing is.
    pub note: String,
    /// Since when, in seconds since 1970 on the machine's clock, where that is known.
    #[serde(default)]
    pub since: Option<u64>,
    /// What was done about it.
    #[serde(default)]
    pub done: String,
    /// What an operator should do next.
    #[serde(default)]
    pub next: String,
    /// As which alarm that stands; empty when the drive is well.
    #[serde(default)]
    pub alarm: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ProgressView {
    pub done: u64,
    pub total: u64,
    /// Bytes a second.
    pub rate: u64,
    /// None while the rate is not known.
    pub seconds_left: Option<u64>,
    pub seconds_running: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AlarmView {
    /// Seconds since 1970 on the machine's clock.
    pub at: u64,
    pub severity: String,
    pub kind: String,
    pub drive: Option<u32>,
    /// When what it tells of began, in seconds since 1970.
    #[serde(default)]
    pub since: Option<u64>,
    pub message: String,
    /// The next step; empty where there is none to take.
    #[serde(default)]
    pub next: String,
    /// It came under an earlier server.
    #[serde(skip)]
    pub earlier: bool,
}

fn progress(progress: stele_array::Progress, now: Instant) -> ProgressView {
    let left = progress.total.0.saturating_sub(progress.done.0);
    ProgressView {
        done: progress.done.0,
        total: progress.total.0,
        rate: progress.rate,
        seconds_left: (progress.rate > 0).then(|| left.div_ceil(progress.rate.max(1))),
        seconds_running: now.since(progress.since).0 / 1_000_000_000,
    }
}

pub fn health(health: DriveHealth) -> &'static str {
    match health {
        DriveHealth::Healthy => "healthy",
        DriveHealth::Suspect => "suspect",
        DriveHealth::Stale => "stale",
        DriveHealth::Missing => "missing",
        DriveHealth::Failed => "failed",
        DriveHealth::Leaving => "leaving",
        DriveHealth::Rejected => "rejected",
    }
}

/// Asks the array; shared with the metrics.
pub async fn status(node: &Node) -> Outcome<StatusView> {
    let Reply::Status(status) = node.pool.command(Command::Status).await? else {
        return Err(Failure::failed(
            "the pool answered a status request with something else; this is a defect of Stele",
        ));
    };
    let now = stele_media::system::now();
    let moment = surroundings::wall_at;
    let alarms = node.alarms();
    // What was given up before this start was told by an earlier one.
    let told = |drive: u32| {
        let given_up = |alarm: &&AlarmView| alarm.drive == Some(drive) && alarm.kind == "drive-failed";
        alarms.iter().rev().find(given_up).map(|alarm| alarm.since.unwrap_or(alarm.at))
    };
    let unwell = status.drives.iter().any(|drive| !matches!(drive.health, DriveHealth::Healthy | DriveHealth::Leaving));
    let state = match () {
        () if status.lost_stripes > 0 => "damaged",
        () if status.read_only => "read-only",
        () if unwell || status.rebuild.is_some() => "degraded",
        () => "ok",
    };
    let mut view = StatusView {
        pool: status.pool.to_string(),
        name: status.name,
        epoch: status.epoch,
        state: state.to_owned(),
        drives: status
            .drives
            .into_iter()
            .map(|drive| DriveView {
                drive: drive.index,
                identity: drive.identity.to_string(),
                path: drive.name,
                enclosure: drive.enclosure,
                health: health(drive.health).to_owned(),
                size: drive.size.0,
                used: drive.used.0,
                read_errors: drive.read_errors,
                write_errors: drive.write_errors,
                digest_errors: drive.digest_errors,
                repaired: drive.repaired,
                note: drive.note,
                since: drive.since.map(moment).or_else(|| {
                    let failed = drive.health == DriveHealth::Failed;
                    failed.then(|| told(drive.index)).flatten()
                }),
                done: drive.done,
                next: drive.next,
                alarm: drive.alarm.map(|kind| kebab(&format!("{kind:?}"))).unwrap_or_default(),
            })
            .collect(),
        raw: status.raw.0,
        used: status.used.0,
        spare: status.spare.0,
        spare_used: status.spare_used.0,
        log_used: status.log_used.0,
        log_size: status.log_size.0,
        dirty: status.dirty.0,
        rebuild: status.rebuild.map(|work| progress(work, now)),
        copy_back: status.copy_back.map(|work| progress(work, now)),
        scrub: status.scrub.map(|work| progress(work, now)),
        moving: status.moving.map(|work| progress(work, now)),
        removed: status.removed.into_iter().map(|departed| departed.name).collect(),
        scrubs_finished: status.scrubs_finished,
        scrub_damage_found: status.scrub_damage_found,
        scrub_damage_repaired: status.scrub_damage_repaired,
        lost_stripes: status.lost_stripes,
        exposed_stripes: status.exposed_stripes,
        crowded_stripes: status.crowded_stripes,
        rebuilt: status.rebuilt,
        repaired: status.repaired,
        standing: Vec::new(),
        alarms: node.alarms(),
        counters: status.counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
    };
    view.standing = standing::of_node(node, &view);
    Ok(view)
}

impl Call for Status {
    const NAME: &'static str = "pool/status";
    type Answer = StatusView;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<StatusView> {
        status(node).await
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Scrub {}

impl Call for Scrub {
    const NAME: &'static str = "pool/scrub";
    type Answer = Done;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<Done> {
        node.pool.command(Command::StartScrub).await?;
        Ok(Done {})
    }
}

/// Overwrites what the log's ring holds of the past. Answers when that is durable.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Wash {}

impl Call for Wash {
    const NAME: &'static str = "pool/wash";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.audited(actor, Wash::NAME, "", node.pool.command(Command::WashLog)).await??;
        Ok(Done {})
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Add {
    /// Absolute paths, each with its enclosure.
    pub drives: Vec<DriveArgument>,
    pub size: Option<u64>,
}

impl Call for Add {
    const NAME: &'static str = "pool/add";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        membership::add(node, self, actor).await?;
        Ok(Done {})
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Remove {
    pub drive: u32,
}

impl Call for Remove {
    const NAME: &'static str = "pool/remove";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        membership::remove(node, self, actor).await?;
        Ok(Done {})
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replace {
    pub old: u32,
    /// An absolute path.
    pub new: DriveArgument,
    pub size: Option<u64>,
    /// Although the old drive answers or may come back.
    #[serde(default)]
    pub give_up: bool,
}

impl Call for Replace {
    const NAME: &'static str = "pool/replace";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        membership::replace(node, self, actor).await?;
        Ok(Done {})
    }
}

/// A drive that is being emptied stays.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Keep {
    pub drive: u32,
}

impl Call for Keep {
    const NAME: &'static str = "pool/keep";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        membership::keep(node, self, actor).await?;
        Ok(Done {})
    }
}

/// Says in which enclosure a drive is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SetDrive {
    pub drive: u32,
    pub enclosure: u32,
}

impl Call for SetDrive {
    const NAME: &'static str = "drive/set";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        membership::set(node, self, actor).await?;
        Ok(Done {})
    }
}
