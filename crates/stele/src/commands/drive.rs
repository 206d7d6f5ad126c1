//! `stele drive clear`, `online`, `wipe` and `locate`.

use std::path::{Path, PathBuf};

use stele_array::server::DrivePlace;
use stele_server::api::drive::{Clear, Online, Wipe};
use stele_server::api::pool::{ForgetDrives, ShowPool, StatusView};
use stele_server::config::{Config, Site};
use stele_server::connection::{Connection, alone};
use stele_server::drives::DriveArgument;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::named;
use stele_server::node::{blocking, identify, wipe};

use crate::commands::{confirm, print_json};

pub async fn clear(site: &Site, json: bool, drive: u32) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let done = async {
        let before = connection.call(ShowPool {}).await?;
        connection.call(Clear { drive }).await?;
        tell(&connection, json, drive, health(&before, drive) == "failed").await
    };
    let done = done.await;
    connection.leave().await?;
    done
}

pub async fn online(site: &Site, json: bool, drive: u32, path: Option<PathBuf>) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let done = online_at(&connection, site, json, drive, path).await;
    connection.leave().await?;
    done
}

async fn online_at(connection: &Connection, site: &Site, json: bool, drive: u32, path: Option<PathBuf>) -> Outcome<()> {
    let status = connection.call(ShowPool {}).await?;
    let Some(known) = status.drives.iter().find(|known| known.drive == drive) else {
        return Err(Failure::missing(format!("the pool has no drive {drive}")).next("`stele pool status` shows all"));
    };
    if !matches!(known.health.as_str(), "missing" | "failed") {
        return Err(Failure::usage(format!("drive {drive} answers, and is {}", known.health))
            .next(format!("to hold its recent errors against it no longer: stele drive clear {drive}")));
    }
    connection.call(ForgetDrives {}).await?;
    let config = Config::read(&site.config_path)?;
    let entry = named::entry_of(site, &config, &status, drive);
    let was = Some(PathBuf::from(&known.path)).filter(|path| !path.as_os_str().is_empty());
    let Some(path) = path.or(was).or(entry.map(|entry| entry.placed(site).path)) else {
        return Err(Failure::usage(format!("where drive {drive} is now is not known"))
            .next(format!("name its path: stele drive online {drive} PATH")));
    };
    let path = std::path::absolute(&path).map_err(|error| io_failure("find", &path, &error))?;
    let moved = name_where_it_is(site, &config, entry, known.enclosure, &path)?;
    if let Err(failure) = connection.call(Online { drive, path }).await {
        // Busy: the answer was lost, and the pool may have taken the drive. Its entry stays for the
        // next start.
        let may_be_back = failure.kind == Kind::Busy || is_back(connection, drive).await;
        if let Some(here) = moved.filter(|_| !may_be_back) {
            match entry {
                Some(entry) => stele_server::config::replace_drive(&site.config_path, &here, entry)?,
                None => stele_server::config::remove_drive(&site.config_path, &here)?,
            };
        }
        return Err(failure);
    }
    // If several drives were away, the entries cannot be matched to drives until all of them have
    // new entries.
    let (config, status) = (Config::read(&site.config_path)?, connection.call(ShowPool {}).await?);
    for spare in named::spare_entries(site, &config, &status) {
        stele_server::config::remove_drive(&site.config_path, &spare)?;
    }
    tell(connection, json, drive, true).await
}

/// Whether the pool may use the drive, although the call failed.
async fn is_back(connection: &Connection, drive: u32) -> bool {
    match connection.call(ShowPool {}).await {
        Ok(status) => !matches!(health(&status, drive), "missing" | "failed"),
        Err(_) => true,
    }
}

/// Writes the drive's present path into the configuration for the next start. Returns the entry if
/// it differs.
fn name_where_it_is(
    site: &Site,
    config: &Config,
    entry: Option<&DriveArgument>,
    enclosure: u32,
    path: &Path,
) -> Outcome<Option<DriveArgument>> {
    let mut known = config.pool.drives.iter().map(|known| known.placed(site).path);
    if known.any(|known| named::is_same(&known, path)) {
        return Ok(None);
    }
    let told = entry.or(config.pool.drives.first()).is_some_and(|known| known.0.enclosure.is_some());
    let here = DriveArgument(DrivePlace { path: path.to_owned(), enclosure: told.then_some(enclosure) });
    let written = match entry {
        Some(entry) => stele_server::config::replace_drive(&site.config_path, entry, &here)?,
        None => stele_server::config::add_drives(&site.config_path, std::slice::from_ref(&here))?,
    };
    match written {
        true => Ok(Some(here)),
        false => Err(Failure::failed(format!("{} cannot be changed to name {here}", site.config_path.display()))
            .next("name it in [pool] drives by hand, and repeat the command")),
    }
}

/// `filled`: the pool now writes the data that the drive missed.
async fn tell(connection: &Connection, json: bool, drive: u32, filled: bool) -> Outcome<()> {
    if json {
        let status = connection.call(ShowPool {}).await?;
        return print_json(&status.drives.iter().find(|known| known.drive == drive));
    }
    match filled {
        true => {
            println!("Drive {drive} is taken back; it counts when all of it is up to date: stele pool status --watch")
        }
        false => println!(
            "The recent errors of drive {drive} are no longer held against it. The counts that `stele pool status` shows \
             stay."
        ),
    }
    Ok(())
}

fn health(status: &StatusView, drive: u32) -> &str {
    status.drives.iter().find(|known| known.drive == drive).map_or("", |known| known.health.as_str())
}

pub async fn wipe(site: &Site, json: bool, path: PathBuf, pool: Option<String>, yes: bool) -> Outcome<()> {
    if !path.exists() && path.to_string_lossy().parse::<u32>().is_ok() {
        let message = format!("{} is a number, and a drive that has left its pool has none", path.display());
        return Err(Failure::usage(message).next("name its path: stele drive wipe PATH"));
    }
    let path = std::path::absolute(&path).map_err(|error| io_failure("find", &path, &error))?;
    if !yes {
        confirm(&format!("Take the labels off {}? What is on it is lost to its pool.", path.display()), "--yes")?;
    }
    if is_without_pool(site) && alone(site).await.is_ok() {
        // No pool here may need the drive, and none has a log for the act.
        let here = path.clone();
        blocking(move || wipe::drive(&here, pool.as_deref(), None)).await?;
    } else {
        let connection = Connection::find(site).await?;
        let done = connection.call(Wipe { path: path.clone(), pool }).await;
        connection.leave().await?;
        done?;
    }
    if json {
        return print_json(&serde_json::json!({ "wiped": path }));
    }
    println!("{} carries no label any more.", path.display());
    Ok(())
}

/// Whether no pool was made here yet.
fn is_without_pool(site: &Site) -> bool {
    match Config::read(&site.config_path) {
        Ok(config) => config.pool.drives.is_empty(),
        Err(failure) => failure.kind == Kind::Missing,
    }
}

/// Switches the light here and not in the server: the system lets only root do it, and the packaged
/// unit keeps the server from writing in /sys. The path must be exact, so it is not one that is
/// made safe to display.
pub async fn locate(site: &Site, json: bool, drive: u32, on: bool) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let status = connection.exact(ShowPool {}).await;
    connection.leave().await?;
    let status = status?;
    let Some(known) = status.drives.iter().find(|known| known.drive == drive) else {
        return Err(Failure::missing(format!("the pool has no drive {drive}")).next("`stele pool status` shows all"));
    };
    if known.path.is_empty() {
        return Err(Failure::missing(format!("of drive {drive} no path is known"))
            .next("`stele pool status` shows what is known of it"));
    }
    identify::locate(Path::new(&known.path), on)?;
    if json {
        return print_json(&serde_json::json!({ "drive": drive, "light": on }));
    }
    match on {
        true => println!("The light of drive {drive} is on; switch it off: stele drive locate {drive} --off"),
        false => println!("The light of drive {drive} is off."),
    }
    Ok(())
}
