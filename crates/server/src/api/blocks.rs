//! Calls about the content of volumes, for backups and restores: which stripes changed, reading,
//! and writing into a volume that a restore holds.
//!
//! Content travels as the bytes of a request or an answer, beside the calls with JSON. Volumes of
//! Stele's own parts are not read or written here.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stele_array::{ArrayError, Command, Reply, VolumeStatus};
use stele_media::{Buffer, ExtentState, MediaError};

use super::{Actor, Call, Done, volume};
use crate::exports::removal;
use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;
use crate::node::surroundings::random;
use crate::node::volumes::carried;

/// Bytes of the longest range that is described in one call, and that is read in one call.
pub const RANGE_MAX: u64 = 4 << 30;
pub const READ_MAX: u64 = 4 << 20;
/// Bytes of the longest write.
pub const WRITE_MAX: u64 = 512 << 10;
/// A restore that writes nothing for so long has ended. Trimming the volume before the first write
/// counts as no silence.
const SILENCE_MAX: Duration = Duration::from_secs(600);
/// Restores into volumes at once.
const RESTORES_MAX: usize = 64;
/// Between the name of a volume and the seconds since 1970, in the name of the snapshot that keeps
/// its earlier content.
pub const BEFORE: &str = "-before-restore-";
/// Bytes that are trimmed at once.
const TRIM: u64 = 1 << 30;

/// A snapshot that an earlier backup was made from. All three must agree, since names are given
/// again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Base {
    pub name: String,
    pub id: u32,
    pub made: u64,
}

/// A run of a volume in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockRun {
    #[serde(rename = "length_bytes")]
    pub length: u64,
    /// With a base: whether a stripe was written since. Without: whether it owns space with data.
    pub data: bool,
}

/// The stripes of a volume or snapshot that changed since a base, or that hold data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Blocks {
    pub volume: String,
    pub since: Option<Base>,
    pub at: u64,
    pub length: u64,
}

impl Call for Blocks {
    const NAME: &'static str = "volume/blocks";
    const READS: bool = true;
    type Answer = Vec<BlockRun>;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<Vec<BlockRun>> {
        let volumes = node.volumes().await?;
        let volume = find(&volumes, &self.volume)?;
        check_range(volume, self.at, self.length, RANGE_MAX)?;
        let since = match &self.since {
            None => None,
            Some(base) => Some(find_base(&volumes, volume, base)?.id),
        };
        let handle = node.pool.volume_of(volume);
        let extents =
            handle.extents_since(self.at, self.length, since).await.map_err(|error| failed(volume, &error))?;
        // What changed into zeros has changed; what holds zeros holds no data.
        let is_data = |state| match since {
            Some(_) => state != ExtentState::Hole,
            None => state == ExtentState::Data,
        };
        Ok(extents.into_iter().map(|extent| BlockRun { length: extent.length, data: is_data(extent.state) }).collect())
    }
}

/// The snapshot, if it is one of the same volume.
fn find_base<'a>(volumes: &'a [VolumeStatus], of: &VolumeStatus, base: &Base) -> Outcome<&'a VolumeStatus> {
    let same = |volume: &&VolumeStatus| {
        let named = volume.spec.name == base.name && volume.id.0 == base.id && volume.made == base.made;
        named && volume.snapshot && volume.origin.is_some() && volume.origin == of.origin
    };
    volumes.iter().find(same).ok_or_else(|| {
        Failure::missing(format!("volume '{}' has no snapshot '{}' any more", of.spec.name, base.name))
            .next("run the backup again: it reads everything then")
    })
}

fn find<'a>(volumes: &'a [VolumeStatus], name: &str) -> Outcome<&'a VolumeStatus> {
    let found = volumes.iter().find(|volume| volume.spec.name == name);
    let found = found.ok_or_else(|| Failure::missing(format!("no volume is called '{name}'")))?;
    match &found.spec.owner {
        None => Ok(found),
        Some(owner) => {
            let carried = carried(name, owner);
            let message = format!("volume '{name}' carries {carried}, and is neither saved nor restored as a volume");
            Err(Failure::new(Kind::Refused, message)
                .next("back up what is in it, buckets and shares; restore into a volume of its own"))
        }
    }
}

fn check_range(volume: &VolumeStatus, at: u64, length: u64, most: u64) -> Outcome<()> {
    let aligned = at.is_multiple_of(512) && length.is_multiple_of(512);
    let inside = at.checked_add(length).is_some_and(|end| end <= volume.spec.size.0);
    match aligned && inside && length > 0 && length <= most {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "{length} bytes at {at} are no range of volume '{}' of {} bytes, or more than {most}",
            volume.spec.name, volume.spec.size.0
        ))),
    }
}

fn failed(volume: &VolumeStatus, error: &MediaError) -> Failure {
    Failure::new(Kind::from(error.fault), format!("volume '{}': {}", volume.spec.name, error.message))
}

/// The request of a read, whose answer is the bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Read {
    pub volume: String,
    pub at: u64,
    pub length: u64,
}

impl Read {
    pub const NAME: &'static str = "volume/read";

    pub async fn perform(self, node: &Node) -> Outcome<Vec<u8>> {
        let volumes = node.volumes().await?;
        let volume = find(&volumes, &self.volume)?;
        check_range(volume, self.at, self.length, READ_MAX)?;
        let read = node.pool.volume_of(volume).read(self.at, self.length as usize).await;
        read.map(|buffer: Buffer| buffer.to_vec()).map_err(|error| failed(volume, &error))
    }
}

/// Restores under way, by volume. A volume that is being restored is not exported, changed or
/// deleted.
#[derive(Default)]
pub struct Restores(Mutex<BTreeMap<String, Held>>);

struct Held {
    token: u64,
    last: Instant,
    /// Whether the volume is being trimmed. Until that has ended, no other caller may get it,
    /// however long it takes.
    preparing: bool,
    status: VolumeStatus,
}

/// A volume that is being trimmed. Dropped, its restore has the usual time for its first write.
struct Preparing<'a> {
    restores: &'a Restores,
    token: u64,
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        self.restores.set_preparing(self.token, false);
    }
}

fn held_already(volume: &str) -> Failure {
    Failure::new(Kind::Busy, format!("volume '{volume}' is being restored from a backup"))
        .next(format!("wait for its end; a restore that was killed ends after {} s", SILENCE_MAX.as_secs()))
}

impl Restores {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, held| held.preparing || held.last.elapsed() < SILENCE_MAX);
        held
    }

    /// Refuses an act on a volume that is being restored.
    pub fn check(&self, volume: &str) -> Outcome<()> {
        match self.lock().contains_key(volume) {
            false => Ok(()),
            true => Err(held_already(volume)),
        }
    }

    fn hold(&self, status: VolumeStatus, token: u64) -> Outcome<()> {
        // One lock for the look and the entry: of two restores at once only one gets the volume.
        let mut held = self.lock();
        if held.contains_key(&status.spec.name) {
            return Err(held_already(&status.spec.name));
        }
        if held.len() >= RESTORES_MAX {
            return Err(Failure::new(Kind::Busy, format!("{RESTORES_MAX} restores are under way, the limit")));
        }
        held.insert(status.spec.name.clone(), Held { token, last: Instant::now(), preparing: false, status });
        Ok(())
    }

    fn preparing(&self, token: u64) -> Preparing<'_> {
        self.set_preparing(token, true);
        Preparing { restores: self, token }
    }

    fn set_preparing(&self, token: u64, preparing: bool) {
        if let Some(held) = self.lock().values_mut().find(|held| held.token == token) {
            (held.preparing, held.last) = (preparing, Instant::now());
        }
    }

    /// The volume that a restore holds, if it does still.
    fn of(&self, token: u64) -> Outcome<VolumeStatus> {
        let mut held = self.lock();
        let found = held.values_mut().find(|held| held.token == token);
        let found = found.ok_or_else(|| {
            Failure::new(Kind::Busy, "this restore has ended: it was silent for too long, or the server was restarted")
                .next("restore again")
        })?;
        found.last = Instant::now();
        Ok(found.status.clone())
    }

    fn end(&self, token: u64) {
        self.lock().retain(|_, held| held.token != token);
    }
}

/// Begins a restore into a new volume, or into one that exists, whose content is kept as a snapshot
/// first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestoreBegin {
    /// The volume to be made if none has its name. Its size is that of the backup.
    pub create: volume::CreateVolume,
    /// Whether an existing volume may be written over.
    pub overwrite: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begun {
    pub token: u64,
    /// The snapshot with the content of before, if the volume existed.
    pub before: Option<String>,
}

impl Call for RestoreBegin {
    const NAME: &'static str = "volume/restore/begin";
    type Answer = Begun;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Begun> {
        node.accountable()?;
        let name = self.create.name.clone();
        let token = u64::from_le_bytes(random());
        let volumes = node.volumes().await?;
        if !volumes.iter().any(|volume| volume.spec.name == name) {
            self.create.perform(node, actor).await?;
            let _changing = node.exports.changing().await;
            node.restores.hold(find(&node.volumes().await?, &name)?.clone(), token)?;
            if let Err(failure) = check_exports(node, &name) {
                node.restores.end(token);
                return Err(failure);
            }
            return Ok(Begun { token, before: None });
        }
        let volume = find(&volumes, &name)?;
        // Connections of an export that was removed just now get a moment to end.
        if node.exports.of_volume(&name).is_empty() {
            let _ = super::volume::writers(node, &name).await;
        }
        // No caller exports it between the look and the hold, nor from there on.
        let changing = node.exports.changing().await;
        check_target(node, volume, &self)?;
        node.restores.hold(volume.clone(), token)?;
        drop(changing);
        let preparing = node.restores.preparing(token);
        let done = prepare(node, actor, volume, token).await;
        drop(preparing);
        if done.is_err() {
            node.restores.end(token);
        }
        Ok(Begun { token, before: Some(done?) })
    }
}

/// Whether an existing volume may be written over.
fn check_target(node: &Node, volume: &VolumeStatus, asked: &RestoreBegin) -> Outcome<()> {
    let name = &volume.spec.name;
    let refused = |why: String, next: &str| Err(Failure::new(Kind::Refused, why).next(next));
    if volume.snapshot {
        return refused(format!("'{name}' is a snapshot, which never changes"), "restore into a new volume");
    }
    if volume.retained {
        return refused(format!("volume '{name}' holds records under retention"), "restore into a new volume");
    }
    if !asked.overwrite {
        return Err(Failure::new(Kind::Exists, format!("volume '{name}' exists"))
            .next("restore into a new volume; --overwrite writes over it, and keeps its content as a snapshot"));
    }
    check_exports(node, name)?;
    let (size, block) = (volume.spec.size.0, volume.spec.block.0);
    if (size, block) != (asked.create.size, asked.create.block) {
        let message = format!(
            "volume '{name}' has {size} bytes in blocks of {block}, and the backup {} in blocks of {}",
            asked.create.size, asked.create.block
        );
        return refused(message, "restore into a new volume, which gets the size of the backup");
    }
    Ok(())
}

fn check_exports(node: &Node, name: &str) -> Outcome<()> {
    let exports = node.exports.of_volume(name);
    match exports.is_empty() {
        true => check_leaving(node, name),
        false => {
            let names: Vec<&str> = exports.iter().map(|export| export.name.as_str()).collect();
            let removals: Vec<String> = exports.iter().map(removal).collect();
            let message = format!("volume '{name}' is exported as {}, and hosts may connect to it", names.join(", "));
            Err(Failure::new(Kind::Refused, message).next(format!("take that away first: {}", removals.join(", "))))
        }
    }
}

/// Whether no request of a removed export can reach the volume any more.
fn check_leaving(node: &Node, name: &str) -> Outcome<()> {
    let leaving = node.exports.directory.leaving(name);
    match leaving.iter().find(|target| !target.export.read_only) {
        None => Ok(()),
        Some(target) => {
            let gone = &target.export.name;
            let message = format!("export '{gone}' of volume '{name}' was removed, and requests to it are under way");
            let next = format!("repeat the command when `stele volume show {name}` lists no connection");
            Err(Failure::new(Kind::Refused, message).next(next))
        }
    }
}

/// Keeps what is there as a snapshot, and trims the volume while the restore holds it.
async fn prepare(node: &Node, actor: &Actor, volume: &VolumeStatus, token: u64) -> Outcome<String> {
    let name = &volume.spec.name;
    check_exports(node, name)?;
    let made = crate::node::wall_clock();
    let before = format!("{name}{BEFORE}{made}");
    let act = async {
        let command = Command::SnapshotVolume { volume: name.clone(), name: before.clone(), made };
        match node.pool.command(command).await? {
            Reply::Volume(_) => {}
            _ => return Err(ArrayError::Invalid("the pool took no snapshot; this is a defect of Stele".to_owned())),
        }
        Ok::<(), ArrayError>(())
    };
    node.audited(actor, RestoreBegin::NAME, &format!("over {name}, kept as {before}"), act).await??;
    match trim(node, volume, token).await {
        Ok(()) => Ok(before),
        Err(failure) => Err(unfinished(name, &before, &failure)),
    }
}

async fn trim(node: &Node, volume: &VolumeStatus, token: u64) -> Outcome<()> {
    let handle = node.pool.volume_of(volume);
    let mut at = 0;
    while at < volume.spec.size.0 {
        // Nothing is trimmed that others may write.
        node.restores.of(token)?;
        check_exports(node, &volume.spec.name)?;
        let length = TRIM.min(volume.spec.size.0 - at);
        handle.discard(at, length).await.map_err(|error| failed(volume, &error))?;
        at += length;
    }
    Ok(())
}

/// The failure of a restore that has written over a volume, or trimmed it, with the way back.
pub fn unfinished(name: &str, before: &str, failure: &Failure) -> Failure {
    Failure::new(failure.kind, format!("volume '{name}' is incomplete: {}", failure.error))
        .next(format!("`stele volume rollback {name} {before}` brings its earlier content back"))
}

/// Where a write of a restore goes; the bytes are those of the request.
pub struct RestoreWrite {
    pub token: u64,
    pub at: u64,
}

impl RestoreWrite {
    pub const NAME: &'static str = "volume/restore/write";

    pub async fn perform(self, node: &Node, content: &[u8]) -> Outcome<()> {
        let volume = node.restores.of(self.token)?;
        check_range(&volume, self.at, content.len() as u64, WRITE_MAX)?;
        let written = node.pool.volume_of(&volume).write(self.at, vec![shared(content)], false).await;
        written.map_err(|error| failed(&volume, &error))
    }
}

fn shared(content: &[u8]) -> stele_media::Shared {
    Buffer::copy_of(content).freeze()
}

/// Ends a restore: what was written is durable then.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RestoreEnd {
    pub token: u64,
    /// Whether all of it was written.
    pub complete: bool,
}

impl Call for RestoreEnd {
    const NAME: &'static str = "volume/restore/end";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        let volume = node.restores.of(self.token)?;
        let act = async {
            let flushed = node.pool.volume_of(&volume).flush().await;
            node.restores.end(self.token);
            flushed.map_err(|error| failed(&volume, &error))
        };
        let how = if self.complete { "complete" } else { "incomplete" };
        node.audited(actor, RestoreEnd::NAME, &format!("{}, {how}", volume.spec.name), act).await??;
        super::export::note_snapshots(node).await?;
        Ok(Done {})
    }
}

#[cfg(test)]
mod tests;
