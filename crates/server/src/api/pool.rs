//! Calls about the pool and its drives.

use serde::{Deserialize, Serialize};
use stele_array::{Command, DriveHealth, Reply, VolumeStatus};
use stele_ground::Instant;

use super::{Actor, Call, Done};
use crate::drives::DriveArgument;
use crate::failure::{Failure, Outcome};
use crate::node::alarms::kebab;
use crate::node::growth::When;
use crate::node::smart::SmartView;
use crate::node::{Node, membership, standing, surroundings};

pub mod drives;
mod number;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ShowPool {}

/// The pool, for an operator. Sizes are bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusView {
    pub pool: String,
    pub name: String,
    /// Shards that divide the drives; each has a thread.
    #[serde(default = "one")]
    pub shards: u16,
    pub epoch: u64,
    /// `ok`, `degraded` (fully readable, less redundancy), `damaged` (data is lost), `unreadable`
    /// (data cannot be read while drives are away) or `read-only`.
    pub state: String,
    pub drives: Vec<DriveView>,
    #[serde(rename = "raw_bytes")]
    pub raw: u64,
    #[serde(rename = "used_bytes")]
    pub used: u64,
    #[serde(rename = "spare_bytes")]
    pub spare: u64,
    #[serde(rename = "spare_used_bytes")]
    pub spare_used: u64,
    /// Space: free, promised to volumes, and used by the archive.
    #[serde(default)]
    pub space: SpaceView,
    #[serde(rename = "log_used_bytes")]
    pub log_used: u64,
    #[serde(rename = "log_size_bytes")]
    pub log_size: u64,
    #[serde(rename = "dirty_bytes")]
    pub dirty: u64,
    pub rebuild: Option<ProgressView>,
    pub copy_back: Option<ProgressView>,
    pub scrub: Option<ProgressView>,
    /// Stripes that move to added drives, or away from leaving ones.
    pub moving: Option<ProgressView>,
    /// Paths of drives that have left the pool since it was opened.
    pub removed: Vec<String>,
    pub scrubs_finished: u64,
    pub scrub_damage_found: u64,
    pub scrub_damage_repaired: u64,
    /// Scrub passes that ended early; below, the reason of the last one.
    #[serde(default)]
    pub scrubs_stopped: u64,
    #[serde(default)]
    pub scrub_trouble: String,
    /// End of the last scrub, on the machine's clock.
    #[serde(with = "crate::moment::option", default)]
    pub last_scrub: Option<u64>,
    pub lost_stripes: u64,
    /// Stripes that are unreadable now: the lost ones, and those whose drives are away.
    #[serde(default)]
    pub unreadable_stripes: u64,
    /// Stripes with a strip on a lost drive and no spare cell for it.
    #[serde(default)]
    pub stripes_without_spare: u64,
    /// The reason why the log has less protection than it should; empty if it has all. Below, since
    /// when.
    #[serde(default)]
    pub log_trouble: String,
    #[serde(with = "crate::moment::option", default)]
    pub log_trouble_since: Option<u64>,
    /// Why stripes that should move cannot, and since when. Clients find it in `standing`, under
    /// `moving-put-off`.
    #[serde(skip)]
    pub moving_put_off: Option<(String, u64)>,
    /// Stripes that the loss of one enclosure would make unreadable. Below, those of them that the
    /// present drives can hold in a better place; these stripes move.
    #[serde(default)]
    pub exposed_stripes: u64,
    #[serde(default)]
    pub crowded_stripes: u64,
    pub rebuilt: u64,
    pub repaired: u64,
    /// The problems that exist now.
    pub standing: Vec<StandingView>,
    /// The last 100 alarms, oldest first, including those of earlier servers.
    pub alarms: Vec<AlarmView>,
    #[serde(with = "crate::named_counts")]
    pub counters: Vec<(String, u64)>,
}

fn one() -> u16 {
    1
}

impl StatusView {
    /// Raw bytes that new data can take. What is used has the spare cells that hold rebuilt strips.
    pub fn free(&self) -> u64 {
        self.raw.saturating_sub(self.used).saturating_sub(self.spare.saturating_sub(self.spare_used))
    }
}

/// Space in bytes: of data, without redundancy, unless a field says otherwise.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SpaceView {
    /// Per code, in the order of the volumes.
    pub codes: Vec<CodeView>,
    /// On drives: the need of all volumes if they were written full; below, the part of it that the
    /// pool lacks.
    #[serde(rename = "promised_raw_bytes")]
    pub promised_raw: u64,
    #[serde(rename = "overpromised_raw_bytes")]
    pub overpromised_raw: u64,
    /// Space for objects; `None` without an archive.
    pub objects: Option<ObjectsView>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CodeView {
    pub code: String,
    #[serde(rename = "strip_bytes")]
    pub strip: u64,
    pub volumes: u32,
    /// Their snapshots.
    #[serde(default)]
    pub snapshots: u32,
    /// The sum of the sizes of its volumes.
    #[serde(rename = "promised_bytes")]
    pub promised: u64,
    /// The bytes written in them and in their snapshots.
    #[serde(rename = "allocated_bytes")]
    pub allocated: u64,
    /// The bytes that would still fit if no other code were written.
    #[serde(rename = "free_bytes")]
    pub free: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ObjectsView {
    /// The capacity of the archive's data volume.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// Bytes still needed; reclamation frees the rest of the used space.
    #[serde(rename = "live_bytes")]
    pub live: u64,
    /// Bytes that objects can use immediately.
    #[serde(rename = "free_bytes")]
    pub free: u64,
    /// Percent of the size that is not free.
    pub full_percent: u64,
}

/// A problem that lasts until it is repaired.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StandingView {
    /// The kind, as OPERATIONS.md lists it.
    pub kind: String,
    /// The subject: `drive 3`, `pool`, `archive`.
    pub subject: String,
    /// Begin of the problem, or else the time of its discovery, in seconds since 1970 on the
    /// machine's clock.
    #[serde(with = "crate::moment")]
    pub since: u64,
    /// The problem.
    pub message: String,
    /// The pool's reaction.
    pub done: String,
    /// The next step.
    pub next: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DriveView {
    /// `NOT_A_MEMBER` if it has none; null in JSON.
    #[serde(with = "number")]
    pub drive: u32,
    pub identity: String,
    pub path: String,
    /// As the device reports it; files have none.
    #[serde(default)]
    pub serial: Option<String>,
    /// Its name under /dev/disk/by-id.
    #[serde(default)]
    pub by_id: Option<String>,
    pub enclosure: u32,
    pub health: String,
    /// Whether the drive is being emptied and then leaves the pool, whatever its health; `None` if
    /// the server is older than this field.
    #[serde(default)]
    pub leaving: Option<bool>,
    #[serde(rename = "size_bytes")]
    pub size: u64,
    #[serde(rename = "used_bytes")]
    pub used: u64,
    pub read_errors: u64,
    pub write_errors: u64,
    pub digest_errors: u64,
    pub repaired: u64,
    /// The problem; empty if there is none.
    pub note: String,
    /// Begin of the problem in seconds since 1970 on the machine's clock, if known.
    #[serde(with = "crate::moment::option", default)]
    pub since: Option<u64>,
    /// The pool's reaction.
    #[serde(default)]
    pub done: String,
    /// The operator's next step.
    #[serde(default)]
    pub next: String,
    /// The alarm of that problem; empty if the drive is healthy.
    #[serde(default)]
    pub alarm: String,
    /// The drive's SMART report; `None` if it gives none, or if no program could read it.
    #[serde(default)]
    pub smart: Option<SmartView>,
}

impl DriveView {
    /// Whether the drive belongs to the pool, unlike a drive that is attached and not used.
    pub fn is_member(&self) -> bool {
        self.drive != stele_array::NOT_A_MEMBER
    }

    /// Whether some shards of the pool have the drive, and the first one does not, or no longer.
    pub fn is_in_part(&self) -> bool {
        !self.is_member() && self.identity != stele_ground::DriveId::default().to_string()
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ProgressView {
    #[serde(rename = "done_bytes")]
    pub done: u64,
    #[serde(rename = "total_bytes")]
    pub total: u64,
    /// Bytes a second.
    #[serde(rename = "bytes_per_second")]
    pub rate: u64,
    /// `None` while the rate is not known.
    pub seconds_left: Option<u64>,
    pub seconds_running: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AlarmView {
    /// Seconds since 1970 on the machine's clock.
    #[serde(with = "crate::moment")]
    pub at: u64,
    pub severity: String,
    pub kind: String,
    pub drive: Option<u32>,
    /// Begin of the reported problem, in seconds since 1970.
    #[serde(with = "crate::moment::option", default)]
    pub since: Option<u64>,
    pub message: String,
    /// The next step; empty if none is needed.
    #[serde(default)]
    pub next: String,
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

/// Reads the array's status; shared with the metrics.
pub async fn status(node: &Node) -> Outcome<StatusView> {
    let Reply::Status(status) = node.pool.command(Command::Status).await? else {
        return Err(Failure::failed(
            "the pool answered a status request with something else; this is a defect of Stele",
        ));
    };
    let now = stele_media::system::now();
    let moment = surroundings::wall_at;
    let alarms = node.alarms();
    // An earlier server raised the alarm for a drive that was given up before this start.
    let told = |drive: u32| {
        let given_up = |alarm: &&AlarmView| alarm.drive == Some(drive) && alarm.kind == "drive-failed";
        alarms.iter().rev().find(given_up).map(|alarm| alarm.since.unwrap_or(alarm.at))
    };
    let read_only = status.read_only;
    let unwell = status.drives.iter().any(|drive| !matches!(drive.health, DriveHealth::Healthy | DriveHealth::Leaving));
    let state = match () {
        () if status.lost_stripes > 0 => "damaged",
        () if status.unreadable_stripes > 0 => "unreadable",
        () if status.read_only => "read-only",
        () if unwell || status.rebuild.is_some() => "degraded",
        () => "ok",
    };
    let space = space(node, &status).await?;
    let (log_trouble, log_trouble_since) =
        status.log_trouble.map_or_else(Default::default, |(what, since)| (what, since.map(moment)));
    let incomplete = status.incomplete;
    let mut drives = drives::shown(status.drives, read_only);
    drives::ask_for_room(&mut drives, &node.beneath.list());
    let mut view = StatusView {
        pool: status.pool.to_string(),
        name: status.name,
        shards: status.shards,
        epoch: status.epoch,
        state: state.to_owned(),
        drives: drives
            .into_iter()
            .map(|drive| (node.identities.of(std::path::Path::new(&drive.name)), drive))
            .map(|(known, drive)| DriveView {
                serial: known.serial,
                by_id: known.by_id.map(|path| path.display().to_string()),
                smart: node.smart.of(&drive.identity.to_string(), &drive.name),
                drive: drive.index,
                identity: drive.identity.to_string(),
                path: drive.name,
                enclosure: drive.enclosure,
                health: health(drive.health).to_owned(),
                leaving: Some(drive.leaving),
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
        space,
        log_used: status.log_used.0,
        log_size: status.log_size.0,
        dirty: status.dirty.0,
        rebuild: status.rebuild.filter(|_| !read_only).map(|work| progress(work, now)),
        copy_back: status.copy_back.filter(|_| !read_only).map(|work| progress(work, now)),
        scrub: status.scrub.map(|work| progress(work, now)),
        moving: status.moving.filter(|_| !read_only).map(|work| progress(work, now)),
        removed: status.removed.into_iter().map(|departed| departed.name).collect(),
        scrubs_finished: status.scrubs_finished,
        scrub_damage_found: status.scrub_damage_found,
        scrub_damage_repaired: status.scrub_damage_repaired,
        scrubs_stopped: status.scrubs_stopped,
        scrub_trouble: status.scrub_trouble,
        last_scrub: None,
        lost_stripes: status.lost_stripes,
        unreadable_stripes: status.unreadable_stripes,
        stripes_without_spare: status.stripes_without_spare,
        log_trouble,
        log_trouble_since,
        moving_put_off: status.moving_put_off.map(|(why, since)| (why, moment(since))),
        exposed_stripes: status.exposed_stripes,
        crowded_stripes: status.crowded_stripes,
        rebuilt: status.rebuilt,
        repaired: status.repaired,
        standing: Vec::new(),
        alarms: node.alarms(),
        counters: status.counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
    };
    node.history.add_to(&mut view, surroundings::wall_clock());
    view.standing = standing::of_node(node, &view, &incomplete);
    Ok(view)
}

/// The space, as an operator can use it.
async fn space(node: &Node, status: &stele_array::PoolStatus) -> Outcome<SpaceView> {
    let volumes = node.volumes().await?;
    let snapshots = |of: &stele_array::CodeSpace| {
        let is_one =
            |volume: &&VolumeStatus| volume.snapshot && volume.spec.code == of.code && volume.spec.strip == of.strip;
        volumes.iter().filter(is_one).count() as u32
    };
    let raw_of = |space: &stele_array::CodeSpace| {
        let (data, width) = (space.code.data() as u64, space.code.width() as u64);
        space.promised.0.div_ceil(data.max(1)).saturating_mul(width)
    };
    let promised_raw = status.codes.iter().map(raw_of).sum::<u64>();
    let codes = status.codes.iter().map(|space| CodeView {
        code: space.code.to_string(),
        strip: space.strip.0,
        volumes: space.volumes,
        snapshots: snapshots(space),
        promised: space.promised.0,
        allocated: space.allocated.0,
        free: space.free.0,
    });
    let objects = node.archive().ok().map(|archive| {
        let space = archive.space();
        let size = u64::from(space.segments) * space.segment_bytes;
        // If volumes promise more space than there is, the drives fill up first.
        let code = node.data_code();
        let left = status.codes.iter().find(|space| code == Some((space.code, space.strip))).map(|space| space.free.0);
        let free = (u64::from(space.free) * space.segment_bytes).min(left.unwrap_or(u64::MAX));
        let used = size.saturating_sub(free);
        let full_percent = (u128::from(used) * 100).div_ceil(u128::from(size.max(1))) as u64;
        ObjectsView { size, live: space.live, free, full_percent }
    });
    Ok(SpaceView {
        codes: codes.collect(),
        promised_raw,
        overpromised_raw: promised_raw.saturating_sub(status.raw.0.saturating_sub(status.spare.0)),
        objects,
    })
}

impl Call for ShowPool {
    const NAME: &'static str = "pool/status";
    const READS: bool = true;
    type Answer = StatusView;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<StatusView> {
        status(node).await
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ScrubPool {}

impl Call for ScrubPool {
    const NAME: &'static str = "pool/scrub";
    type Answer = Done;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<Done> {
        node.pool.command(Command::StartScrub).await?;
        Ok(Done {})
    }
}

/// Overwrites old records in the log's ring. Answers when that is durable.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Wash {}

impl Call for Wash {
    const NAME: &'static str = "pool/wash";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.audited(actor, Wash::NAME, "", node.wash()).await??;
        Ok(Done {})
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddDrives {
    /// Absolute paths, each with its enclosure.
    pub drives: Vec<DriveArgument>,
    pub size: Option<u64>,
    /// Let the archive take up the space only when no stripe moves any more.
    #[serde(default)]
    pub grow_later: bool,
    /// Write over a file system or the like on the drives.
    #[serde(default)]
    pub destroy: bool,
}

impl Call for AddDrives {
    const NAME: &'static str = "pool/add";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        let grow_later = self.grow_later;
        membership::add(node, self, actor).await?;
        if grow_later {
            return Ok(Done {});
        }
        // The drives belong to the pool now. A growth that fails here is tried again in the
        // background.
        if let Err(failure) = node.grow_archive(When::Added).await {
            tracing::warn!("the archive has not grown with its pool: {}", failure.on_one_line());
        }
        Ok(Done {})
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RemoveDrive {
    pub drive: u32,
}

impl Call for RemoveDrive {
    const NAME: &'static str = "pool/remove";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        membership::remove(node, self, actor).await?;
        Ok(Done {})
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplaceDrive {
    pub old: u32,
    /// An absolute path.
    pub new: DriveArgument,
    pub size: Option<u64>,
    /// Give the old drive up even if it answers or may come back.
    #[serde(default)]
    pub give_up: bool,
    /// Write over a file system or the like on the new drive.
    #[serde(default)]
    pub destroy: bool,
}

impl Call for ReplaceDrive {
    const NAME: &'static str = "pool/replace";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        membership::replace(node, self, actor).await?;
        Ok(Done {})
    }
}

/// Cancels the removal of a drive that is being emptied.
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

/// Removes drives that left the pool from the configuration, before a command names others there.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ForgetDrives {}

impl Call for ForgetDrives {
    const NAME: &'static str = "pool/forget";
    type Answer = Done;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<Done> {
        // A server that may not write the file does not take an entry out of it later, either.
        let _ = node.departures.forget(&node.pool).await;
        Ok(Done {})
    }
}

/// Sets the enclosure of a drive.
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
