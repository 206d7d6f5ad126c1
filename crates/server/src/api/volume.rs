//! Calls about volumes.

use serde::{Deserialize, Serialize};
use stele_array::{ArrayError, Command, DigestUnit, Reply, VolumeDetail, VolumeSpec, VolumeStatus, WriteMode};
use stele_ground::{Bytes, counted, names_in_row};

use super::{Actor, Call, Done};
use crate::exports::still_exported;
use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;
use crate::node::volumes::{carried, not_deleted};

/// Largest time that a call waits for a connection to end whose host has just gone.
const PARTING: std::time::Duration = std::time::Duration::from_millis(500);

/// A volume, for an operator. Sizes are bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeView {
    pub name: String,
    pub id: u32,
    pub code: String,
    #[serde(rename = "size_bytes")]
    pub size: u64,
    #[serde(rename = "strip_bytes")]
    pub strip: u64,
    #[serde(rename = "block_bytes")]
    pub block: u64,
    /// `block` or `strip`.
    pub digest: String,
    /// `write-back`, `write-through` or `volatile`.
    pub mode: String,
    /// `volume` or `snapshot`.
    pub kind: String,
    /// The volume of a snapshot, or the snapshot of a clone.
    pub origin: Option<String>,
    /// Creation time of a snapshot, in seconds since 1970.
    #[serde(with = "crate::moment::option", default)]
    pub made: Option<u64>,
    /// Stripes read ahead of a sequential reader.
    pub read_ahead: u8,
    /// Bytes in slots of its own. For a volume with snapshots: the bytes written since the last
    /// one.
    #[serde(rename = "allocated_bytes")]
    pub allocated: u64,
    pub owner: Option<String>,
    /// True while the owner reports retained records on it.
    pub retained: bool,
    /// Offset and length of each range that is known to be lost.
    #[serde(with = "lost_places")]
    pub lost: Vec<(u64, u64)>,
    /// Offset and length of each range that is unreadable now: lost ranges, and those on drives
    /// that are away.
    #[serde(with = "lost_places", default)]
    pub unreadable: Vec<(u64, u64)>,
}

/// Offsets and lengths as objects with named fields.
mod lost_places {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Place {
        offset_bytes: u64,
        length_bytes: u64,
    }

    pub fn serialize<S: Serializer>(lost: &[(u64, u64)], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(lost.iter().map(|&(offset_bytes, length_bytes)| Place { offset_bytes, length_bytes }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u64, u64)>, D::Error> {
        let places = Vec::<Place>::deserialize(deserializer)?;
        Ok(places.into_iter().map(|place| (place.offset_bytes, place.length_bytes)).collect())
    }
}

impl VolumeView {
    fn is_snapshot_of(&self, volume: &str) -> bool {
        self.kind == "snapshot" && self.origin.as_deref() == Some(volume)
    }
}

impl From<VolumeStatus> for VolumeView {
    fn from(status: VolumeStatus) -> VolumeView {
        VolumeView {
            id: status.id.0,
            code: status.spec.code.to_string(),
            size: status.spec.size.0,
            strip: status.spec.strip.0,
            block: status.spec.block.0,
            digest: match status.spec.digest {
                DigestUnit::Block => "block",
                DigestUnit::Strip => "strip",
            }
            .to_owned(),
            mode: match status.spec.mode {
                WriteMode::WriteBack => "write-back",
                WriteMode::WriteThrough => "write-through",
                WriteMode::Volatile => "volatile",
            }
            .to_owned(),
            kind: if status.snapshot { "snapshot" } else { "volume" }.to_owned(),
            origin: status.origin,
            made: status.snapshot.then_some(status.made),
            read_ahead: status.read_ahead,
            allocated: status.allocated.0,
            owner: status.spec.owner,
            retained: status.retained,
            lost: status.lost,
            unreadable: status.unreadable,
            name: status.spec.name,
        }
    }
}

/// A volume or snapshot in full. Sizes are bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DetailView {
    #[serde(flatten)]
    pub volume: VolumeView,
    /// Bytes in all slots that it refers to, shared or not.
    #[serde(rename = "refers_bytes")]
    pub refers: u64,
    /// Bytes in slots that only it refers to: its deletion frees them.
    #[serde(rename = "alone_bytes")]
    pub alone: u64,
    /// Bytes written that are not on their drives yet.
    #[serde(rename = "dirty_bytes")]
    pub dirty: u64,
    /// Reads answered from memory since the opening of the pool; below, all other reads.
    pub cache_hits: u64,
    pub cache_misses: u64,
    /// Bytes read ahead. Below, the part that readers used since, and the part that left the cache
    /// unused.
    #[serde(rename = "ahead_fetched_bytes")]
    pub ahead_fetched: u64,
    #[serde(rename = "ahead_useful_bytes")]
    pub ahead_useful: u64,
    #[serde(rename = "ahead_wasted_bytes")]
    pub ahead_wasted: u64,
    pub cache: CacheView,
    /// Connections of hosts over all its exports, with totals since each began.
    #[serde(default)]
    pub connections: Vec<stele_block::ConnectionView>,
}

/// The cache, which all volumes of the pool share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CacheView {
    /// Capacity for clean blocks; below, the used part.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    #[serde(rename = "clean_bytes")]
    pub clean: u64,
    /// Writers wait when this many bytes are dirty.
    #[serde(rename = "dirty_limit_bytes")]
    pub dirty_limit: u64,
    #[serde(rename = "dirty_bytes")]
    pub dirty: u64,
    /// Flushing starts above this part of the limit, and stops at the one below. Percent.
    #[serde(rename = "flush_high_percent")]
    pub flush_high: u8,
    #[serde(rename = "flush_low_percent")]
    pub flush_low: u8,
    /// Seconds after which dirty blocks are always flushed.
    #[serde(rename = "flush_age_seconds")]
    pub flush_age: u64,
    pub flushing: bool,
}

impl From<VolumeDetail> for DetailView {
    fn from(detail: VolumeDetail) -> DetailView {
        let limits = detail.cache.limits;
        DetailView {
            volume: detail.status.into(),
            refers: detail.refers.0,
            alone: detail.alone.0,
            dirty: detail.dirty.0,
            cache_hits: detail.hits,
            cache_misses: detail.misses,
            ahead_fetched: detail.ahead.fetched.0,
            ahead_useful: detail.ahead.useful.0,
            ahead_wasted: detail.ahead.wasted.0,
            cache: CacheView {
                size: detail.cache.size.0,
                clean: detail.cache.clean.0,
                dirty_limit: limits.dirty.0,
                dirty: detail.cache.dirty.0,
                flush_high: limits.high,
                flush_low: limits.low,
                flush_age: limits.age.0 / 1_000_000_000,
                flushing: detail.cache.flushing,
            },
            connections: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateVolume {
    pub name: String,
    pub code: String,
    pub size: u64,
    pub strip: u64,
    pub block: u64,
    pub digest_strip: bool,
    pub write_through: bool,
    pub allocate: bool,
}

impl Call for CreateVolume {
    const NAME: &'static str = "volume/create";
    type Answer = VolumeView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<VolumeView> {
        node.accountable()?;
        let code =
            self.code.parse().map_err(|error: stele_codes::code::NoSuchCode| Failure::usage(error.to_string()))?;
        let spec = VolumeSpec {
            name: self.name,
            code,
            size: Bytes(self.size),
            strip: Bytes(self.strip),
            block: Bytes(self.block),
            digest: if self.digest_strip { DigestUnit::Strip } else { DigestUnit::Block },
            mode: if self.write_through { WriteMode::WriteThrough } else { WriteMode::WriteBack },
            fully_allocated: self.allocate,
            spread: true,
            owner: None,
        };
        let name = spec.name.clone();
        let act = node.pool.command(Command::CreateVolume(spec));
        match node.audited(actor, CreateVolume::NAME, &name, act).await?? {
            Reply::Volume(status) => Ok(status.into()),
            _ => find(node, &name).await,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListVolumes {}

impl Call for ListVolumes {
    const NAME: &'static str = "volume/list";
    const READS: bool = true;
    type Answer = Vec<VolumeView>;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<Vec<VolumeView>> {
        list(node).await
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowVolume {
    pub name: String,
}

impl Call for ShowVolume {
    const NAME: &'static str = "volume/show";
    const READS: bool = true;
    type Answer = DetailView;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<DetailView> {
        // The error of a wrong name lists the existing volumes.
        find(node, &self.name).await?;
        let connections = connections(node, &self.name);
        match node.pool.command(Command::ShowVolume { name: self.name }).await? {
            Reply::Detail(detail) => Ok(DetailView { connections, ..(*detail).into() }),
            _ => Err(Failure::failed("the pool answered with something else; this is a defect of Stele")),
        }
    }
}

/// All connections to a volume over all of its exports, also those of removed exports that have not
/// ended yet.
fn connections(node: &Node, volume: &str) -> Vec<stele_block::ConnectionView> {
    let directory = &node.exports.directory;
    let targets = directory.list(None).into_iter().filter(|target| target.export.volume == volume);
    targets.chain(directory.leaving(volume)).flat_map(|target| target.connections()).collect()
}

fn writing(node: &Node, volume: &str) -> Vec<stele_block::ConnectionView> {
    connections(node, volume).into_iter().filter(|connection| !connection.read_only).collect()
}

/// Connections that may write. A connection whose host has just gone gets a moment to end.
pub async fn writers(node: &Node, volume: &str) -> Vec<stele_block::ConnectionView> {
    lasting(|| writing(node, volume)).await
}

/// What is left of these connections after a moment.
async fn lasting(look: impl Fn() -> Vec<stele_block::ConnectionView>) -> Vec<stele_block::ConnectionView> {
    let mut left = PARTING;
    loop {
        let connections = look();
        if connections.is_empty() || left.is_zero() {
            return connections;
        }
        let pause = left.min(std::time::Duration::from_millis(20));
        tokio::time::sleep(pause).await;
        left -= pause;
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetVolume {
    pub name: String,
    pub read_ahead: u8,
}

impl Call for SetVolume {
    const NAME: &'static str = "volume/set";
    type Answer = VolumeView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<VolumeView> {
        node.accountable()?;
        let command = Command::SetVolume { name: self.name.clone(), read_ahead: Some(self.read_ahead), mode: None };
        change(node, actor, SetVolume::NAME, &self.name, &self.name, command).await
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resize {
    pub name: String,
    pub size: u64,
}

impl Call for Resize {
    const NAME: &'static str = "volume/resize";
    type Answer = VolumeView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<VolumeView> {
        node.accountable()?;
        node.restores.check(&self.name)?;
        let VolumeView { owner, size, .. } = find(node, &self.name).await?;
        let _pause = match self.size < size {
            true => Some(self.without_hosts(node).await?),
            false => None,
        };
        // The pool refuses to cut data off, and to change a snapshot.
        let act = async {
            match owner {
                Some(owner) => Err(ArrayError::Refused(format!(
                    "volume '{}' carries {}, which sees to its size itself",
                    self.name,
                    carried(&self.name, &owner)
                ))),
                None => {
                    let command = Command::ResizeVolume { name: self.name.clone(), size: Bytes(self.size) };
                    node.pool.command(command).await
                }
            }
        };
        let place = format!("{} to {} bytes", self.name, self.size);
        node.audited(actor, Resize::NAME, &place, act).await??;
        find(node, &self.name).await
    }
}

impl Resize {
    /// Hosts that are connected use the former size until they connect again, so a volume becomes
    /// smaller without any. None that may write connects while the answer lives.
    async fn without_hosts(&self, node: &Node) -> Outcome<stele_block::Pause> {
        let pause = node.exports.directory.pause(&self.name);
        let hosts = lasting(|| connections(node, &self.name)).await;
        let Some(first) = hosts.first() else { return Ok(pause) };
        let message = format!(
            "volume '{}' is in use from {} by export '{}' (connections: {})",
            self.name,
            first.peer,
            first.export,
            hosts.len()
        );
        Err(Failure::new(Kind::Refused, message).next(
            "disconnect the hosts first, and let them connect again when the volume is smaller: they would use its \
             former end",
        ))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    pub volume: String,
    pub name: String,
}

impl Call for Snapshot {
    const NAME: &'static str = "volume/snapshot";
    type Answer = VolumeView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<VolumeView> {
        node.accountable()?;
        node.restores.check(&self.volume)?;
        let place = format!("{} of {}", self.name, self.volume);
        let made = crate::node::wall_clock();
        let command = Command::SnapshotVolume { volume: self.volume.clone(), name: self.name, made };
        change(node, actor, Snapshot::NAME, &place, &self.volume, command).await
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloneSnapshot {
    pub snapshot: String,
    pub name: String,
}

impl Call for CloneSnapshot {
    const NAME: &'static str = "volume/clone";
    type Answer = VolumeView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<VolumeView> {
        node.accountable()?;
        let place = format!("{} of {}", self.name, self.snapshot);
        let command = Command::CloneSnapshot { snapshot: self.snapshot.clone(), name: self.name };
        change(node, actor, CloneSnapshot::NAME, &place, &self.snapshot, command).await
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rollback {
    pub volume: String,
    pub snapshot: String,
    /// Roll back even if hosts may write to the volume. Their cached data then belongs to another
    /// state of it.
    #[serde(default)]
    pub force: bool,
}

impl Call for Rollback {
    const NAME: &'static str = "volume/rollback";
    type Answer = VolumeView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<VolumeView> {
        node.accountable()?;
        node.restores.check(&self.volume)?;
        let mut place = format!("{} to {}", self.volume, self.snapshot);
        let mut writers = writers(node, &self.volume).await;
        // From here on no other host connects for writing. One that did since the look is seen now.
        let _pause = node.exports.directory.pause(&self.volume);
        if writers.is_empty() {
            writers = writing(node, &self.volume);
        }
        match writers.first() {
            None => {}
            Some(_) if self.force => {
                place.push_str(&format!(", under {} that may write", counted(writers.len() as u64, "connection")))
            }
            Some(first) => {
                // Neither a host that goes nor --force helps there.
                if let Some(failure) = no_way_back(&list(node).await?, &self.volume, &self.snapshot) {
                    return Err(failure);
                }
                let message = format!(
                    "volume '{}' is in use: {} may write to it, one from {} by export '{}'",
                    self.volume,
                    counted(writers.len() as u64, "connection"),
                    first.peer,
                    first.export
                );
                return Err(Failure::new(Kind::Refused, message).next(
                    "disconnect the hosts first: what they hold in memory would be written over the snapshot's state; \
                     --force rolls back all the same",
                ));
            }
        }
        let command = Command::RollBackVolume { volume: self.volume.clone(), snapshot: self.snapshot.clone() };
        match change(node, actor, Rollback::NAME, &place, &self.volume, command).await {
            Err(failure) if failure.kind == Kind::Missing => {
                let volumes = list(node).await?;
                Err(no_snapshot(&volumes, &self.volume, &self.snapshot).unwrap_or(failure))
            }
            other => other,
        }
    }
}

/// The failure of a rollback to a name that nothing has; `None` if that is not the reason.
fn no_snapshot(volumes: &[VolumeView], of: &str, name: &str) -> Option<Failure> {
    let of_that_name = |name: &str| volumes.iter().find(|volume| volume.name == name);
    let volume = of_that_name(of).filter(|_| of_that_name(name).is_none())?;
    if let Some(owner) = &volume.owner {
        let message = format!("volume '{of}' carries {}, and has no snapshots to go back to", carried(of, owner));
        return Some(Failure::new(Kind::Refused, message));
    }
    let own: Vec<&str> =
        volumes.iter().filter(|volume| volume.is_snapshot_of(of)).map(|volume| volume.name.as_str()).collect();
    let next = match own.is_empty() {
        true => format!("it has none; `stele volume snapshot {of} NAME` takes one"),
        false => format!("its snapshots: {}", names_in_row(&own, "stele volume list")),
    };
    Some(Failure::missing(format!("volume '{of}' has no snapshot '{name}'")).next(next))
}

/// The failure of a rollback to a name that is no snapshot of the volume; `None` if that is not the
/// reason.
pub fn no_way_back(volumes: &[VolumeView], of: &str, name: &str) -> Option<Failure> {
    let found = volumes.iter().find(|volume| volume.name == name);
    let Some(other) = found else { return no_snapshot(volumes, of, name) };
    (!other.is_snapshot_of(of)).then(|| {
        Failure::usage(format!("'{name}' is no snapshot of volume '{of}'; `stele volume list` shows which are"))
    })
}

/// Changes an existing volume, and records the change in the audit log.
async fn change(
    node: &Node,
    actor: &Actor,
    call: &str,
    place: &str,
    of: &str,
    command: Command,
) -> Outcome<VolumeView> {
    find(node, of).await?;
    let reply = node.audited(actor, call, place, node.pool.command(command)).await??;
    super::export::note_snapshots(node).await?;
    match reply {
        Reply::Volume(status) => Ok(status.into()),
        _ => Err(Failure::failed("the pool answered with something else; this is a defect of Stele")),
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delete {
    pub name: String,
}

impl Call for Delete {
    const NAME: &'static str = "volume/delete";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable()?;
        // No caller exports the volume between the look and its end.
        let changing = node.exports.changing().await;
        node.restores.check(&self.name)?;
        // The array refuses while the volume holds retained records. A volume with Stele's own
        // state is never an operator's to delete, even if nothing on it is retained.
        let owner = find(node, &self.name).await?.owner;
        let exported = still_exported(&self.name, &node.exports.list());
        let act = async {
            match (owner, exported) {
                (Some(owner), _) => Err(ArrayError::Refused(not_deleted(&self.name, &owner))),
                (None, Some(message)) => Err(ArrayError::Refused(message)),
                (None, None) => node.pool.command(Command::DeleteVolume { name: self.name.clone() }).await,
            }
        };
        node.audited(actor, Delete::NAME, &self.name, act).await??;
        changing.note_snapshots(&node.volumes().await?);
        Ok(Done {})
    }
}

pub async fn list(node: &Node) -> Outcome<Vec<VolumeView>> {
    match node.pool.command(Command::ListVolumes).await? {
        Reply::Volumes(volumes) => Ok(volumes.into_iter().map(VolumeView::from).collect()),
        _ => Err(Failure::failed("the pool answered a volume listing with something else; this is a defect of Stele")),
    }
}

async fn find(node: &Node, name: &str) -> Outcome<VolumeView> {
    let volumes = list(node).await?;
    let known: Vec<String> = volumes.iter().map(|volume| volume.name.clone()).collect();
    volumes
        .into_iter()
        .find(|volume| volume.name == name)
        .ok_or_else(|| Failure::missing(format!("no volume is called '{name}'")).next(volumes_here(&known)))
}

/// The next step after a name that no volume has.
pub fn volumes_here<S: AsRef<str>>(known: &[S]) -> String {
    match known.is_empty() {
        true => "there is none yet: `stele volume create` makes one".to_owned(),
        false => format!("the volumes here: {}", names_in_row(known, "stele volume list")),
    }
}

#[cfg(test)]
mod tests;
