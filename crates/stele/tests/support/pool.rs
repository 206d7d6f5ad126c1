//! Opens the pool in the test itself, without the command: to read volumes without a host, and to
//! destroy data that no command destroys.

use stele_array::server::{DrivePlace, PoolServer, ServerOptions};
use stele_array::{Command, OpenOptions, Reply};
use stele_media::Handle;

use super::Place;
use super::server::runtime;

/// The state in which the pool is left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    Closed,
    /// As after a kill: acknowledged data is in the log.
    Killed,
}

/// Works on a volume, and returns the result. No server may run.
pub fn on_volume<T>(place: &Place, name: &str, leave: Leave, work: impl AsyncFnOnce(&Handle) -> T) -> T {
    let config: toml::Value = toml::from_str(&place.config()).unwrap();
    let drives = config["pool"]["drives"].as_array().unwrap();
    let places: Vec<DrivePlace> = drives
        .iter()
        .map(|drive| {
            let parsed = DrivePlace::parse(drive.as_str().unwrap()).unwrap();
            DrivePlace { path: place.0.join(parsed.path), ..parsed }
        })
        .collect();
    let pool = PoolServer::open(&places, OpenOptions::default(), ServerOptions::default()).unwrap();
    let Reply::Volumes(volumes) = pool.command_blocking(Command::ListVolumes).unwrap() else { panic!("no listing") };
    let volume = volumes.into_iter().find(|volume| volume.spec.name == name).unwrap();
    let handle = pool.volume_of(&volume);
    let done = runtime().block_on(work(&handle));
    drop(handle);
    if leave == Leave::Closed {
        pool.command_blocking(Command::Close).unwrap();
    }
    done
}

/// Writes zeros over the first half of a volume.
pub fn wreck_volume(place: &Place, name: &str) {
    on_volume(place, name, Leave::Closed, async |handle| {
        handle.zero(0, handle.geometry().size.0 / 2).await.unwrap();
        handle.flush().await.unwrap();
    });
}
