//! Calls about the pool and its drives.

use serde::{Deserialize, Serialize};
use stele_array::{Command, DriveHealth, Reply};
use stele_ground::Instant;

use super::{Actor, Call, Done};
use crate::drives::DriveArgument;
use crate::failure::{Failure, Outcome};
use crate::node::alarms::kebab;
use crate::node::growth::When;
use crate::node::smart::SmartView;
use crate::node::{Node, membership, standing, surroundings};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Status {}

/// The pool as an operator sees it. Sizes are bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusView {
    pub pool: String,
    pub name: String,
    pub epoch: u64,
    /// `ok`, `degraded` (fully readable, less redundancy), `damaged` (something is lost), `unreadable` (something cannot be
    /// read while drives are away) or `read-only`.
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
    /// Room in words: what fits, what is promised, what the archive has.
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
    /// Stripes on their way to added drives, or away from leaving ones.
    pub moving: Option<ProgressView>,
    /// Paths of drives that have left the pool since it was opened.
    pub removed: Vec<String>,
    pub scrubs_finished: u64,
    pub scrub_damage_found: u64,
    pub scrub_damage_repaired: u64,
    /// Passes that ended before they were whole, and why the last one did.
    #[serde(default)]
    pub scrubs_stopped: u64,
    #[serde(default)]
    pub scrub_trouble: String,
    /// When the last scrub ended, on the machine's clock.
    #[serde(with = "crate::moment::option", default)]
    pub last_scrub: Option<u64>,
    pub lost_stripes: u64,
    /// Stripes that cannot be read now: the lost ones, and those whose drives are away.
    #[serde(default)]
    pub unreadable_stripes: u64,
    /// Stripes with a strip on a lost drive that no spare cell is left for.
    #[serde(default)]
    pub stripes_without_spare: u64,
    /// What keeps the log from being as safe as it should be; empty where nothing does. And since when.
    #[serde(default)]
    pub log_trouble: String,
    #[serde(with = "crate::moment::option", default)]
    pub log_trouble_since: Option<u64>,
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
    #[serde(with = "crate::named_counts")]
    pub counters: Vec<(String, u64)>,
}

/// Room, in bytes. Of data where nothing else is said: without redundancy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SpaceView {
    /// By code, in the order of the volumes.
    pub codes: Vec<CodeView>,
    /// Of drives: what all volumes would take if they were written full, and what of that the pool does not have.
    #[serde(rename = "promised_raw_bytes")]
    pub promised_raw: u64,
    #[serde(rename = "overpromised_raw_bytes")]
    pub overpromised_raw: u64,
    /// Room for objects; none without an archive.
    pub objects: Option<ObjectsView>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CodeView {
    pub code: String,
    #[serde(rename = "strip_bytes")]
    pub strip: u64,
    pub volumes: u32,
    /// The sizes of its volumes, together.
    #[serde(rename = "promised_bytes")]
    pub promised: u64,
    /// What is written in them and in their snapshots.
    #[serde(rename = "allocated_bytes")]
    pub allocated: u64,
    /// What would fit more, were nothing written in other codes.
    #[serde(rename = "free_bytes")]
    pub free: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ObjectsView {
    /// What the archive's data volume holds at most.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// Needed still; the rest of what is used is given back by reclamation.
    #[serde(rename = "live_bytes")]
    pub live: u64,
    /// What objects may take at once.
    #[serde(rename = "free_bytes")]
    pub free: u64,
    /// Per cent of the size that is not free.
    pub full_percent: u64,
}

/// Something that is wrong, and stays so until something is done about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StandingView {
    /// As OPERATIONS.md lists it.
    pub kind: String,
    /// What it is about: `drive 3`, `pool`, `archive`.
    pub subject: String,
    /// Seconds since 1970 on the machine's clock: since when it is so, or else when it was first noticed.
    #[serde(with = "crate::moment")]
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
    /// As the device tells it; files have none.
    #[serde(default)]
    pub serial: Option<String>,
    /// Its name under /dev/disk/by-id.
    #[serde(default)]
    pub by_id: Option<String>,
    pub enclosure: u32,
    pub health: String,
    #[serde(rename = "size_bytes")]
    pub size: u64,
    #[serde(rename = "used_bytes")]
    pub used: u64,
    pub read_errors: u64,
    pub write_errors: u64,
    pub digest_errors: u64,
    pub repaired: u64,
    /// What is wrong; empty when nothing is.
    pub note: String,
    /// Since when, in seconds since 1970 on the machine's clock, where that is known.
    #[serde(with = "crate::moment::option", default)]
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
    /// What it says of itself; none where it says nothing, or nobody could ask.
    #[serde(default)]
    pub smart: Option<SmartView>,
}

impl DriveView {
    /// Whether it is a drive of the pool, and not one that is attached and not used.
    pub fn is_member(&self) -> bool {
        self.drive != stele_array::NOT_A_MEMBER
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
    /// None while the rate is not known.
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
    /// When what it tells of began, in seconds since 1970.
    #[serde(with = "crate::moment::option", default)]
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
        () if status.unreadable_stripes > 0 => "unreadable",
        () if status.read_only => "read-only",
        () if unwell || status.rebuild.is_some() => "degraded",
        () => "ok",
    };
    let space = space(node, &status);
    let (log_trouble, log_trouble_since) =
        status.log_trouble.map_or_else(Default::default, |(what, since)| (what, since.map(moment)));
    let mut view = StatusView {
        pool: status.pool.to_string(),
        name: status.name,
        epoch: status.epoch,
        state: state.to_owned(),
        drives: status
            .drives
            .into_iter()
            .map(|drive| (node.identities.of(std::path::Path::new(&drive.name)), drive))
            .map(|(known, drive)| DriveView {
                serial: known.serial,
                by_id: known.by_id.map(|path| path.display().to_string()),
                smart: node.smart.of(&drive.name),
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
        space,
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
        scrubs_stopped: status.scrubs_stopped,
        scrub_trouble: status.scrub_trouble,
        last_scrub: None,
        lost_stripes: status.lost_stripes,
        unreadable_stripes: status.unreadable_stripes,
        stripes_without_spare: status.stripes_without_spare,
        log_trouble,
        log_trouble_since,
        exposed_stripes: status.exposed_stripes,
        crowded_stripes: status.crowded_stripes,
        rebuilt: status.rebuilt,
        repaired: status.repaired,
        standing: Vec::new(),
        alarms: node.alarms(),
        counters: status.counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
    };
    node.history.add_to(&mut view, surroundings::wall_clock());
    view.standing = standing::of_node(node, &view);
    Ok(view)
}

/// Room, as an operator can use it.
fn space(node: &Node, status: &stele_array::PoolStatus) -> SpaceView {
    let raw_of = |space: &stele_array::CodeSpace| {
        let (data, width) = (space.code.data() as u64, space.code.width() as u64);
        space.promised.0.div_ceil(data.max(1)).saturating_mul(width)
    };
    let promised_raw = status.codes.iter().map(raw_of).sum::<u64>();
    let codes = status.codes.iter().map(|space| CodeView {
        code: space.code.to_string(),
        strip: space.strip.0,
        volumes: space.volumes,
        promised: space.promised.0,
        allocated: space.allocated.0,
        free: space.free.0,
    });
    let objects = node.archive().ok().map(|archive| {
        let space = archive.space();
        let size = u64::from(space.segments) * space.segment_bytes;
        // Where volumes promise more than there is, the drives are full first.
        let code = node.data_code();
        let left = status.codes.iter().find(|space| code == Some((space.code, space.strip))).map(|space| space.free.0);
        let free = (u64::from(space.free) * space.segment_bytes).min(left.unwrap_or(u64::MAX));
        let used = size.saturating_sub(free);
        let full_percent = (u128::from(used) * 100).div_ceil(u128::from(size.max(1))) as u64;
        ObjectsView { size, live: space.live, free, full_percent }
    });
    SpaceView {
        codes: codes.collect(),
        promised_raw,
        overpromised_raw: promised_raw.saturating_sub(status.raw.0.saturating_sub(status.spare.0)),
        objects,
    }
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
        node.audited(actor, Wash::NAME, "", node.wash()).await??;
        Ok(Done {})
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Add {
    /// Absolute paths, each with its enclosure.
    pub drives: Vec<DriveArgument>,
    pub size: Option<u64>,
    /// The archive takes up the room when nothing moves any more.
    #[serde(default)]
    pub grow_later: bool,
}

impl Call for Add {
    const NAME: &'static str = "pool/add";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable_for_drives()?;
        let grow_later = self.grow_later;
        membership::add(node, self, actor).await?;
        if grow_later {
            return Ok(Done {});
        }
        // The drives are the pool's; room that cannot be had at once is looked for again in the background.
        if let Err(failure) = node.grow_archive(When::Added).await {
            tracing::warn!("the archive has not grown with its pool: {failure}");
        }
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
