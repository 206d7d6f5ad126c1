//! A server with an exported volume, and its clients.

use std::process::{Child, Command, Output, Stdio};

use super::{Place, Server};

/// A pool of five drives without an archive, and an exported volume `vm` of two copies.
pub struct Host {
    pub place: Place,
    pub server: Option<Server>,
    pub url: String,
}

const CREATE: &[&str] = &["pool", "create", "--confirm-time", "--size", "256MiB", "--data", "none", "--spare", "1"];

impl Host {
    /// `more` is added to `[nbd]` of the configuration.
    pub fn new(name: &str, more: &str) -> Host {
        Host::with(name, |text| text.replace("[nbd]\n", &format!("[nbd]\n{more}")))
    }

    pub fn with(name: &str, edit: impl FnOnce(String) -> String) -> Host {
        let place = Place::new(name);
        let drives: Vec<String> = (0..5).map(|number| place.path(&format!("d{number}.img"))).collect();
        Host::of(place, &drives, edit)
    }

    /// A host on given drives.
    pub fn of(place: Place, drives: &[String], edit: impl FnOnce(String) -> String) -> Host {
        Host::on_shards(place, drives, "1", edit)
    }

    /// A host on drives that are divided among shards.
    pub fn on_shards(place: Place, drives: &[String], shards: &str, edit: impl FnOnce(String) -> String) -> Host {
        let drives: Vec<String> = drives.iter().zip(0..).map(|(drive, number)| format!("{drive}@{number}")).collect();
        let mut arguments = [CREATE, &["--shards", shards]].concat();
        drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
        place.json(&arguments);
        place.edit_config(|text| edit(text).replace("[nbd]\n", "[nbd]\nlisten = \"127.0.0.1:0\"\n"));
        let server = place.serve();
        place.json(&["volume", "create", "vm", "--code", "mirror-2", "--size", "128MiB", "--block", "512"]);
        let url = export(&place, &["vm"]);
        Host { place, server: Some(server), url }
    }

    pub fn unix(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.place.path("nbd.sock"))
    }

    pub fn restart(&mut self) {
        self.server = Some(self.place.serve());
    }

    pub fn kill(&mut self) {
        self.server.take().unwrap().kill();
    }
}

pub fn export(place: &Place, arguments: &[&str]) -> String {
    place.json(&[&["volume", "export", "--nbd"], arguments].concat())["url"].as_str().unwrap().to_owned()
}

pub fn run(program: &str, arguments: &[&str]) -> Output {
    let arguments = [&["200", program], arguments].concat();
    Command::new("timeout").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs a client that must succeed; returns its output.
#[track_caller]
pub fn good(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

#[track_caller]
pub fn bad(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    assert!(!output.status.success(), "{program} {arguments:?} should fail");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A process that ends together with its owner.
pub struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn started(program: &str, arguments: &[&str]) -> Guarded {
    let quiet = || Stdio::null();
    Guarded(Command::new(program).args(arguments).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().unwrap())
}
