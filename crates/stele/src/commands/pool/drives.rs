//! `stele pool add` and `stele pool remove`.

use std::path::Path;
use std::time::{Duration, Instant};

use stele_ground::{Bytes, counted};
use stele_server::api::pool::{
    AddDrives, DriveView, ForgetDrives, Keep, ProgressView, RemoveDrive, ShowPool, StatusView,
};
use stele_server::config::{Config, Site};
use stele_server::connection::Connection;
use stele_server::drives::DriveArgument;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::named;
use stele_server::node::membership::{HELD_NEXT, forget};

use super::{Standstill, follow, hindrance};
use crate::cli::pool as arguments;
use crate::commands::print_json;

pub async fn add(site: &Site, json: bool, add: arguments::PoolAdd) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let added = add_at(&connection, site, json, add).await;
    connection.leave().await?;
    added
}

async fn add_at(connection: &Connection, site: &Site, json: bool, add: arguments::PoolAdd) -> Outcome<()> {
    add.drives.iter().try_for_each(DriveArgument::check_enclosure)?;
    let drives = absolute(add.drives)?;
    drives.iter().try_for_each(|drive| named::refuse_other_kind(&drive.0.path))?;
    let config = Config::read(&site.config_path)?;
    let enclosures = config.pool.drives.first().is_some_and(|drive| drive.0.enclosure.is_some());
    if let Some(other) = drives.iter().find(|drive| drive.0.enclosure.is_some() != enclosures) {
        let message = match enclosures {
            true => format!("{other} has no enclosure, and the drives of this pool have"),
            false => format!("{other} has an enclosure, and the drives of this pool have none"),
        };
        return Err(
            Failure::usage(message).next("write --drive PATH@ENCLOSURE where the configuration does, else PATH")
        );
    }
    for (at, drive) in drives.iter().enumerate() {
        let path = &drive.0.path;
        if drives.iter().skip(at + 1).any(|other| named::is_same(&other.0.path, path)) {
            return Err(Failure::usage(format!("{} is named twice; name each drive once", path.display())));
        }
    }
    let before = connection.call(ShowPool {}).await?;
    drives.iter().try_for_each(|drive| named::refuse_member(&drive.0.path, &before))?;
    connection.call(ForgetDrives {}).await?;
    let config = Config::read(&site.config_path)?;
    // A command that was cut off has named drives that the pool did not take.
    let is_named = |drive: &&DriveArgument| {
        config.pool.drives.iter().any(|old| named::is_same(&old.placed(site).path, &drive.0.path))
    };
    let unnamed: Vec<DriveArgument> = drives.iter().filter(|drive| !is_named(drive)).cloned().collect();
    // Do this before the pool knows the drives: a start in between must find them.
    let written = unnamed.is_empty() || stele_server::config::add_drives(&site.config_path, &unnamed)?;
    let next = before.drives.iter().map(|drive| drive.enclosure + 1).max().unwrap_or(0);
    let placed = (next..).zip(drives.clone()).map(|(own, mut drive)| {
        // A drive without an enclosure is an enclosure of its own.
        drive.0.enclosure = Some(drive.0.enclosure.unwrap_or(own));
        drive
    });
    let size = add.size.map(|size| size.0);
    let call = AddDrives { drives: placed.collect(), size, grow_later: add.grow_later, destroy: add.destroy };
    if let Err(failure) = connection.call(call).await {
        let entries = if written { unnamed.as_slice() } else { &[] };
        return Err(withdraw(connection, site, entries, failure).await);
    }
    if !written {
        eprintln!("Name the new drives in [pool] drives of {} as well.", site.config_path.display());
    }
    let room = |status: &StatusView| status.space.objects.map(|objects| objects.size);
    let (had, waits) = (room(&before), add.wait || !connection.is_server());
    let after = if waits { filled(connection, json).await? } else { connection.call(ShowPool {}).await? };
    if json {
        return match waits {
            true => print_json(&after),
            false => print_json(&serde_json::json!({
                "added": drives.len(),
                "objects_size_before_bytes": had,
                "objects_size_bytes": room(&after),
            })),
        };
    }
    let added = counted(drives.len() as u64, "drive");
    match waits {
        true => println!("{added} added; all are filled alike."),
        false => println!("{added} added; `stele pool status --watch` shows how far the stripes are that move."),
    }
    match (had.map(Bytes), room(&after).map(Bytes)) {
        (Some(had), Some(_)) if !connection.is_server() => {
            println!("Room for objects: {had}; it grows when the server starts.");
        }
        (Some(had), Some(_)) if add.grow_later => {
            println!("Room for objects: {had}; it grows when nothing moves any more.");
        }
        (Some(had), Some(has)) => println!("Room for objects: {had} before, {has} now."),
        _ => {}
    }
    Ok(())
}

/// Waits until nothing moves onto added drives any more.
async fn filled(connection: &Connection, json: bool) -> Outcome<StatusView> {
    let mut filling = Filling::default();
    let look = |status: &StatusView| (filling.is_over(status, Instant::now()), under_way(status));
    let status = follow(connection, json, look).await?;
    check_filled(&status)?;
    Ok(status)
}

/// Time from the end of a rebuild to the first move, at most: the pool moves nothing beside a
/// rebuild, and looks again every five seconds.
const MOVES_AFTER: Duration = Duration::from_secs(8);

/// What was seen while added drives are filled.
#[derive(Default)]
struct Filling {
    standstill: Standstill,
    /// When a rebuild or a copy was seen last.
    rebuilt: Option<Instant>,
}

impl Filling {
    /// Whether there is nothing more to wait for.
    fn is_over(&mut self, status: &StatusView, now: Instant) -> bool {
        if status.rebuild.is_some() || status.copy_back.is_some() {
            self.rebuilt = Some(now);
        }
        let moves_may_come = self.rebuilt.is_some_and(|last| now.duration_since(last) < MOVES_AFTER);
        let is_done = under_way(status).is_none() && !moves_may_come;
        is_done || self.standstill.is_seen(status, now)
    }
}

/// The work after which added drives are filled: moves, and what goes before them.
fn under_way(status: &StatusView) -> Option<ProgressView> {
    status.moving.or(status.rebuild).or(status.copy_back)
}

/// The failure of an addition that was waited for, if stripes still have to move.
fn check_filled(status: &StatusView) -> Outcome<()> {
    if under_way(status).is_none() {
        return Ok(());
    }
    let message = format!("the drives are added, and not filled yet: {}", hindrance(status, None));
    Err(Failure::new(Kind::Damaged, message)
        .next("`stele pool status`; return drives, or make room; the pool then goes on by itself"))
}

/// Takes the entries of drives out of the configuration again that the pool did not take. Where it
/// may have taken them the entries stay, since the next start must find the drives: an entry of a
/// drive outside of the pool does no harm.
pub(super) async fn withdraw(
    connection: &Connection,
    site: &Site,
    entries: &[DriveArgument],
    failure: Failure,
) -> Failure {
    let file = site.config_path.display();
    let stays = |failure: Failure| {
        let next =
            format!("`stele pool status`; where it does not show the drives, repeat the command. {file} names them");
        Failure { next, ..failure }
    };
    // The answer was lost, and the pool may take the drives still.
    if failure.kind == Kind::Busy && failure.next != HELD_NEXT {
        return stays(failure);
    }
    if entries.is_empty() {
        return failure;
    }
    let Ok(status) = connection.call(ShowPool {}).await else { return stays(failure) };
    let mut all = true;
    for entry in entries {
        let path = entry.placed(site).path;
        let is_out = !named::may_be_member(&path, &status)
            && stele_server::config::is_without(&site.config_path, entry).unwrap_or(false);
        all &= is_out;
    }
    if all { failure } else { stays(failure) }
}

fn absolute(drives: Vec<DriveArgument>) -> Outcome<Vec<DriveArgument>> {
    let whole = |mut drive: DriveArgument| {
        drive.0.path = std::path::absolute(&drive.0.path).map_err(|error| io_failure("find", &drive.0.path, &error))?;
        Ok(drive)
    };
    drives.into_iter().map(whole).collect()
}

pub async fn remove(site: &Site, json: bool, remove: arguments::PoolRemove) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let removed = remove_at(&connection, site, json, remove).await;
    connection.leave().await?;
    removed
}

async fn remove_at(connection: &Connection, site: &Site, json: bool, remove: arguments::PoolRemove) -> Outcome<()> {
    if remove.cancel {
        connection.call(Keep { drive: remove.drive }).await?;
        if json {
            return print_json(&serde_json::json!({ "kept": remove.drive }));
        }
        println!("Drive {} stays in the pool; stripes move onto it again.", remove.drive);
        return Ok(());
    }
    let before = connection.call(ShowPool {}).await?;
    connection.call(RemoveDrive { drive: remove.drive }).await?;
    if remove.wait || !connection.is_server() {
        let removal = Removal::of(&before, remove.drive);
        let mut standstill = Standstill::default();
        let status = follow(connection, json, |status| {
            (removal.is_over(status, &mut standstill, Instant::now()), status.moving)
        })
        .await?;
        removal.check_done(&status)?;
        if let Some(drive) = removal.drive {
            // The server may have removed the entry already.
            forget(site, Path::new(&drive.path))?;
        }
        if json {
            return print_json(&status);
        }
        println!("Drive {} is empty and has left the pool; it can be taken out.", remove.drive);
    } else if json {
        print_json(&serde_json::json!({ "removing": remove.drive }))?;
    } else {
        println!("Drive {} is being emptied; `stele pool status --watch` shows how far it is.", remove.drive);
    }
    Ok(())
}

/// A drive, as the pool showed it before a command lets it leave.
///
/// Shards finish with a drive one after another. Once the first one has, the drive has no number
/// any more, and its identity tells that the others still have strips on it.
pub(super) struct Removal<'a> {
    number: u32,
    /// `None` if the pool did not show it then.
    pub(super) drive: Option<&'a DriveView>,
}

impl<'a> Removal<'a> {
    pub(super) fn of(before: &'a StatusView, number: u32) -> Removal<'a> {
        let mut members = before.drives.iter().filter(|drive| drive.is_member());
        Removal { number, drive: members.find(|drive| drive.drive == number) }
    }

    /// The drive, as long as some shard has it.
    pub(super) fn in_pool<'s>(&self, status: &'s StatusView) -> Option<&'s DriveView> {
        let is_it = |drive: &&DriveView| match self.drive {
            Some(known) => drive.identity == known.identity,
            None => drive.drive == self.number,
        };
        status.drives.iter().find(is_it)
    }

    /// Whether the drive is here and does not leave any more.
    pub(super) fn is_taken_back(&self, status: &StatusView) -> bool {
        self.in_pool(status).is_some_and(is_kept)
    }

    /// Whether there is nothing more to wait for.
    fn is_over(&self, status: &StatusView, standstill: &mut Standstill, now: Instant) -> bool {
        self.in_pool(status).is_none() || self.is_taken_back(status) || standstill.is_seen(status, now)
    }

    /// The failure of a removal that was waited for, if the drive is still here.
    pub(super) fn check_done(&self, status: &StatusView) -> Outcome<()> {
        let number = self.number;
        match self.in_pool(status) {
            None => Ok(()),
            Some(drive) if is_kept(drive) => {
                Err(Failure::failed(format!("the removal of drive {number} was taken back"))
                    .next("`stele pool status`; repeat the command if the drive is to leave"))
            }
            Some(_) => {
                let message = format!("drive {number} has not left the pool: {}", hindrance(status, None));
                Err(Failure::new(Kind::Damaged, message)
                    .next("`stele pool status`; return drives, or make room; the pool then goes on by itself"))
            }
        }
    }
}

/// Whether the removal of the drive was taken back. An older server says nothing else than its
/// health: that it leaves, or what is worse.
fn is_kept(drive: &DriveView) -> bool {
    drive.leaving.map_or(drive.health == "healthy", |leaving| !leaving)
}

#[cfg(test)]
mod tests;
