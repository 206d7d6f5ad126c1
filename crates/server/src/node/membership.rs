//! Adds, removes and replaces drives at an operator's request.
//!
//! The configuration names an added drive before the pool knows it, and a removed drive until the
//! pool has forgotten it. A start in between therefore finds every drive that may hold data.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stele_array::server::{DrivePlace, PoolServer};
use stele_array::{ArrayError, Command, Departed, DriveHealth, DriveStatus, Reply};
use stele_ground::{Bytes, DriveId};
use stele_media::{DriveFile, Space};
use tokio::sync::Mutex;

use super::{Node, blocking, surroundings};
use crate::api::drive::{Clear, Online};
use crate::api::pool::drives::{SIZE_NEXT, is_too_small};
use crate::api::pool::{AddDrives, Keep, RemoveDrive, ReplaceDrive, SetDrive};
use crate::api::{Actor, Call};
use crate::config::{Config, Site};
use crate::failure::{Failure, Kind, Outcome};

/// A drive that was attached for the pool to take.
struct Offered {
    index: u32,
    identity: DriveId,
    path: PathBuf,
    /// A file was made for it.
    made: bool,
    /// It was here before. Some shards of the pool have it, from a command that did not reach all
    /// of them; or the configuration names it, from one that was cut off, and no shard has it.
    was_here: bool,
}

/// Removes drives that left the pool from the configuration, once each: the same path may name
/// another drive later.
pub struct Departures {
    site: Site,
    /// How often each path in the pool's list of departed drives was dealt with. Shards finish in
    /// different orders, so the place in the list tells nothing.
    done: Mutex<BTreeMap<String, usize>>,
}

impl Departures {
    pub fn of(site: &Site) -> Departures {
        Departures { site: site.clone(), done: Mutex::default() }
    }

    /// Detaches all drives that have left by now, and removes their entries. A command calls it
    /// before it names a drive in the configuration: what left before is done then, and does not
    /// take the new entry along.
    pub async fn forget(&self, pool: &PoolServer) -> Outcome<()> {
        let mut done = self.done.lock().await;
        let Reply::Status(status) = pool.command(Command::Status).await? else { return Ok(()) };
        let members = status.drives.iter().filter(|drive| drive.is_member() || drive.is_in_part());
        let here: Vec<&str> = members.map(|drive| &*drive.name).collect();
        let left = unhandled(&status.removed, &done);
        // Harmless if repeated.
        left.iter().filter_map(|departed| departed.index).for_each(|index| pool.detach(index));
        for departed in left {
            // Another drive may use the path already.
            let path = Path::new(&departed.name);
            if !here.iter().any(|other| crate::named::is_same(Path::new(other), path)) && forget(&self.site, path)? {
                tracing::info!("{} has left the pool and is no longer named in [pool] drives", departed.name);
            }
            *done.entry(departed.name.clone()).or_default() += 1;
        }
        Ok(())
    }
}

/// Departed drives beyond those that were dealt with: how often each path was.
fn unhandled<'a>(removed: &'a [Departed], done: &BTreeMap<String, usize>) -> Vec<&'a Departed> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let is_new = |departed: &&'a Departed| {
        let count = seen.entry(&departed.name).or_default();
        *count += 1;
        *count > done.get(&departed.name).copied().unwrap_or(0)
    };
    removed.iter().filter(is_new).collect()
}

/// Adds drives to the pool: all of them, or none on an error.
pub async fn add(node: &Node, call: AddDrives, actor: &Actor) -> Outcome<()> {
    let names: Vec<String> = call.drives.iter().map(|drive| drive.0.path.display().to_string()).collect();
    let act = async {
        let mut offered = Vec::new();
        let added = add_all(node, call, &mut offered).await;
        if added.is_err() {
            take_back(node, &offered).await;
        }
        added
    };
    let place = format!("drives {}", names.join(", "));
    node.audited(actor, "pool/add", &place, act).await?
}

async fn add_all(node: &Node, call: AddDrives, offered: &mut Vec<Offered>) -> Outcome<()> {
    for drive in &call.drives {
        offered.push(offer(node, drive.0.clone(), call.size.map(Bytes), call.destroy).await?);
    }
    let drives = offered.iter().map(|drive| (drive.index, drive.identity)).collect();
    node.pool.command(Command::AddDrives { drives }).await?;
    // Such a drive is in the enclosure that the first command named.
    for (drive, place) in offered.iter().zip(&call.drives).filter(|(drive, _)| drive.was_here) {
        let Reply::Status(status) = node.pool.command(Command::Status).await? else { continue };
        let added = status.drives.iter().find(|added| added.is_member() && added.identity == drive.identity);
        if let (Some(added), Some(enclosure)) = (added, place.0.enclosure)
            && let Err(error) = node.pool.command(Command::SetDrive { drive: added.index, enclosure }).await
        {
            tracing::warn!("drive {} was added, and its enclosure is to be set again: {error}", added.index);
        }
    }
    Ok(())
}

async fn offer(node: &Node, place: DrivePlace, size: Option<Bytes>, destroy: bool) -> Outcome<Offered> {
    let path = place.path.clone();
    crate::named::refuse_other_kind(&path)?;
    if let Some(drive) = in_part(node, &path).await? {
        // Shards that have the drive find it again by its label, and take it for the same one only
        // under its identity.
        let index = match drive.attached {
            Some(index) => index,
            None => attach(node, place, None).await?.0,
        };
        return Ok(Offered { index, identity: drive.identity, path, made: false, was_here: true });
    }
    refuse_of_other_pool(node, &path).await?;
    let looked_at = path.clone();
    let look = move || {
        crate::named::refuse_labelled_partition(&looked_at)?;
        if destroy { Ok(()) } else { crate::named::refuse_content(&looked_at) }
    };
    blocking(look).await?;
    let identity = DriveId(surroundings::random());
    if let Some(index) = unused(node, &path).await? {
        return Ok(Offered { index, identity, path, made: false, was_here: true });
    }
    let looked_at = path.clone();
    blocking(move || crate::named::refuse_absent(&looked_at, size)).await?;
    let (index, made) = attach(node, place, size).await?;
    Ok(Offered { index, identity, path, made, was_here: false })
}

async fn refuse_of_other_pool(node: &Node, path: &Path) -> Outcome<()> {
    let Reply::Status(status) = node.pool.command(Command::Status).await? else { return Ok(()) };
    let (path, pool) = (path.to_owned(), status.pool.to_string());
    blocking(move || crate::named::refuse_of_other_pool(&path, &pool)).await
}

/// Where the drive at the path is attached, if the pool does not use it.
async fn unused(node: &Node, path: &Path) -> Outcome<Option<u32>> {
    let Reply::Status(status) = node.pool.command(Command::Status).await? else { return Ok(None) };
    let mut unused = status.drives.into_iter().filter(|drive| !drive.is_member() && !drive.is_in_part());
    Ok(unused.find(|drive| crate::named::is_same(Path::new(&drive.name), path)).and_then(|drive| drive.attached))
}

/// The drive at the path, if only some shards have it.
async fn in_part(node: &Node, path: &Path) -> Outcome<Option<DriveStatus>> {
    let Reply::Status(status) = node.pool.command(Command::Status).await? else { return Ok(None) };
    let here = |drive: &DriveStatus| drive.is_in_part() && crate::named::is_same(Path::new(&drive.name), path);
    match status.drives.into_iter().find(here) {
        Some(drive) if drive.leaving => {
            let message = format!("{} is being emptied, and has not left the pool yet", path.display());
            Err(Failure::new(Kind::Refused, message).next("wait until `stele pool status` does not show it any more"))
        }
        found => Ok(found),
    }
}

/// Detaches drives that the pool did not take, and removes the files that were made for them. One
/// that the pool may have stays: a command may fail after the pool took the drive.
async fn take_back(node: &Node, offered: &[Offered]) {
    for drive in offered {
        if drive.was_here || is_in_pool(node, drive).await {
            continue;
        }
        node.pool.detach(drive.index);
        if drive.made {
            let _ = std::fs::remove_file(&drive.path);
        }
    }
}

/// Returns the drive's index, and whether a file was made for it.
async fn attach(node: &Node, place: DrivePlace, size: Option<Bytes>) -> Outcome<(u32, bool)> {
    let pool = Arc::clone(&node.pool);
    blocking(move || {
        let new = !place.path.exists();
        if let (true, Some(size)) = (new, size) {
            let made = DriveFile::create(&place.path, size, Space::Sparse);
            made.map_err(|error| Failure::new(Kind::from(error.fault), error.to_string()))?;
        }
        match pool.attach(&place) {
            Ok(index) => Ok((index, new && size.is_some())),
            Err(error) => {
                if new && size.is_some() {
                    let _ = std::fs::remove_file(&place.path);
                }
                Err(unattached(error))
            }
        }
    })
    .await
}

/// The next step where another process holds a new drive. It tells a command that the pool has not
/// taken the drive: any other `Busy` says that the answer was lost.
pub const HELD_NEXT: &str = "repeat the command when the drive is free, or name another drive";

fn unattached(error: ArrayError) -> Failure {
    let failure = Failure::from(error);
    match failure.kind {
        Kind::Busy => failure.next(HELD_NEXT),
        _ => failure,
    }
}

/// Starts to empty a drive.
pub async fn remove(node: &Node, call: RemoveDrive, actor: &Actor) -> Outcome<()> {
    let place = format!("drive {}", call.drive);
    let act = node.pool.command(Command::RemoveDrive { drive: call.drive });
    node.audited(actor, "pool/remove", &place, act).await?.map(drop).map_err(Failure::from)
}

/// Cancels the removal of a drive that is being emptied.
pub async fn keep(node: &Node, call: Keep, actor: &Actor) -> Outcome<()> {
    let place = format!("drive {}", call.drive);
    let act = node.pool.command(Command::KeepDrive { drive: call.drive });
    node.audited(actor, Keep::NAME, &place, act).await?.map(drop).map_err(Failure::from)
}

/// Replaces a drive with another.
pub async fn replace(node: &Node, call: ReplaceDrive, actor: &Actor) -> Outcome<()> {
    let how = if call.give_up { ", which is given up" } else { "" };
    let place = format!("drive {}{how}, by {}", call.old, call.new.0.path.display());
    node.audited(actor, "pool/replace", &place, put_in(node, call)).await?
}

async fn put_in(node: &Node, call: ReplaceDrive) -> Outcome<()> {
    let new = offer(node, call.new.0.clone(), call.size.map(Bytes), call.destroy).await?;
    let (index, identity, enclosure) = (new.index, new.identity, call.new.0.enclosure);
    let replaced = node
        .pool
        .command(Command::ReplaceDrive { old: call.old, new: index, identity, enclosure, give_up: call.give_up })
        .await;
    if replaced.is_err() {
        take_back(node, std::slice::from_ref(&new)).await;
    }
    replaced?;
    Ok(())
}

/// Sets the enclosure of a drive.
pub async fn set(node: &Node, call: SetDrive, actor: &Actor) -> Outcome<()> {
    let place = format!("drive {} in enclosure {}", call.drive, call.enclosure);
    let act = node.pool.command(Command::SetDrive { drive: call.drive, enclosure: call.enclosure });
    node.audited(actor, SetDrive::NAME, &place, act).await?.map(drop).map_err(Failure::from)
}

/// Forgets a drive's errors. If the pool gave it up because of them, the pool takes it back.
pub async fn clear(node: &Node, call: Clear, actor: &Actor) -> Outcome<()> {
    let place = format!("drive {}", call.drive);
    let act = node.pool.command(Command::ClearDrive { drive: call.drive });
    node.audited(actor, Clear::NAME, &place, act).await?.map(drop).map_err(Failure::from)
}

/// Attaches a drive of the pool again. If the path turns out to be another drive, it is detached.
pub async fn online(node: &Node, call: Online, actor: &Actor) -> Outcome<()> {
    let place = format!("drive {} at {}", call.drive, call.path.display());
    let act = async {
        let here = DrivePlace { path: call.path.clone(), enclosure: None };
        crate::named::refuse_other_kind(&call.path)?;
        refuse_of_other_pool(node, &call.path).await?;
        refuse_too_small(node, &call).await?;
        let (index, _) = attach(node, here, None).await?;
        let done = node.pool.command(Command::OnlineDrive { drive: call.drive, index }).await;
        let Err(error) = done else { return Ok::<_, Failure>(()) };
        if is_back(node, call.drive, &call.path).await {
            return Err(error.into());
        }
        let why = unused_note(node, &call.path).await;
        node.pool.detach(index);
        Err(why.map_or_else(|| error.into(), |why| untaken(&call, &why)))
    };
    node.audited(actor, Online::NAME, &place, act).await?
}

/// A drive that the pool rejects once it is attached would stand as rejected until the next start.
async fn refuse_too_small(node: &Node, call: &Online) -> Outcome<()> {
    let Reply::Status(status) = node.pool.command(Command::Status).await? else { return Ok(()) };
    let Some(known) = status.drives.iter().find(|drive| drive.index == call.drive) else { return Ok(()) };
    let path = call.path.clone();
    match blocking(move || Ok(size_of(&path))).await? {
        Some(size) if size < known.size => Err(untaken(call, &format!("it has {size}, the pool needs {}", known.size))),
        _ => Ok(()),
    }
}

/// None: it is neither a file nor a device, or cannot be looked at.
fn size_of(path: &Path) -> Option<Bytes> {
    let about = std::fs::metadata(path).ok()?;
    match about.is_file() {
        true => Some(Bytes(about.len())),
        false if !about.file_type().is_block_device() => None,
        false => std::fs::File::open(path).and_then(|device| stele_media::system::device_size(&device)).ok().map(Bytes),
    }
}

/// What the pool says of a drive at this path that it does not use.
async fn unused_note(node: &Node, path: &Path) -> Option<String> {
    let Ok(Reply::Status(status)) = node.pool.command(Command::Status).await else { return None };
    let mut unused = status.drives.into_iter().filter(|drive| !drive.is_member() && !drive.is_in_part());
    let here = unused.find(|drive| Path::new(&drive.name) == path)?;
    Some(here.note).filter(|note| !note.is_empty())
}

/// The pool does not take a drive back, and says why of the drive at the path.
fn untaken(call: &Online, why: &str) -> Failure {
    let (drive, path) = (call.drive, call.path.display());
    let next = match is_too_small(why) {
        true => SIZE_NEXT.to_owned(),
        false => format!("name the right path, or put another drive in its place: `stele pool replace {drive} PATH`"),
    };
    Failure::new(Kind::Refused, format!("{path} is not taken as drive {drive}: {why}")).next(next)
}

/// Whether the pool may have data on the drive; then it stays attached. The pool detaches a drive
/// that it failed to add. A label that is newer than what the pool agreed on may be in force after
/// the next start.
async fn is_in_pool(node: &Node, offered: &Offered) -> bool {
    let Ok(Reply::Status(status)) = node.pool.command(Command::Status).await else { return true };
    let here = |drive: &DriveStatus| drive.identity == offered.identity && Path::new(&drive.name) == offered.path;
    status.drives.iter().any(here)
        || crate::named::is_labelled_ahead(&offered.path, &status.pool.to_string(), status.epoch)
}

/// Whether the pool may use the drive at this path again.
async fn is_back(node: &Node, number: u32, path: &Path) -> bool {
    let Ok(Reply::Status(status)) = node.pool.command(Command::Status).await else { return true };
    let is_used = |drive: &DriveStatus| !matches!(drive.health, DriveHealth::Missing | DriveHealth::Failed);
    let mut drives = status.drives.iter().filter(|drive| drive.index == number);
    drives.any(|drive| is_used(drive) && Path::new(&drive.name) == path)
}

/// Returns false if the configuration does not name the drive.
pub fn forget(site: &Site, path: &Path) -> Outcome<bool> {
    let config = Config::read(&site.config_path)?;
    match config.pool.drives.iter().find(|drive| crate::named::is_same(&drive.placed(site).path, path)) {
        Some(drive) => crate::config::remove_drive(&site.config_path, drive),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests;
