//! Behind the command's back: the pool opened by the test itself, to destroy what no command destroys.

use stele_array::reactor::{DrivePlace, PoolServer, ServerOptions};
use stele_array::{Command, OpenOptions, Reply};

use super::Place;
use super::server::runtime;

/// Writes zeros over the first half of a volume.
pub fn wreck_volume(place: &Place, name: &str) {
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
    runtime().block_on(async {
        handle.zero(0, volume.spec.size.0 / 2).await.unwrap();
        handle.flush().await.unwrap();
    });
    drop(handle);
    pool.command_blocking(Command::Close).unwrap();
}
