//! What an operator does beside the drives: asks the doctor, keeps a copy of the configuration,
//! makes and deletes volumes, and gives commands that must be refused.

use std::path::Path;

use serde_json::Value;

use super::disk;
use super::events::Day;
use super::site::{DriveSaid, Said, Site, list, text};

/// Checks of the doctor that depend on this machine and not on the pool.
const OF_THE_MACHINE: &[&str] = &[
    "memory",
    "io-uring",
    "clock-source",
    "clock",
    "smart",
    "open-files",
    "memlock",
    "shared-device",
    "one-path",
    "write-cache",
    "room",
    "heads",
    // Each alarm is judged by itself, with its cause.
    "alarms",
];

/// The findings about the pool that are not good, as text.
fn complaints(said: &Said) -> Vec<String> {
    // The verdict as a failure follows in a line of its own.
    let findings =
        said.out.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok()).unwrap_or_default();
    let findings = &findings["findings"];
    assert!(list(findings).iter().any(|finding| finding["check"] == "drives"), "the doctor: {}{}", said.out, said.err);
    let of_pool = list(findings).iter().filter(|finding| !OF_THE_MACHINE.contains(&text(&finding["check"])));
    of_pool.filter(|finding| finding["verdict"] != "good").map(ToString::to_string).collect()
}

/// Checks that the doctor says nothing against the pool.
#[track_caller]
pub fn doctor_is_content(site: &mut Site) {
    let complaints = complaints(&site.ends(&[0, 1], &["doctor"]));
    assert!(complaints.is_empty(), "the doctor complains: {complaints:?}; today: {:?}", site.story);
}

/// Checks that the doctor names these drives, which are not at their paths, and complains of
/// nothing else.
#[track_caller]
pub fn doctor_misses(site: &mut Site, drives: &[DriveSaid]) {
    let complaints = complaints(&site.ends(&[5], &["doctor"]));
    let named = drives.iter().all(|drive| complaints.iter().any(|complaint| complaint.contains(&drive.path)));
    assert!(named && complaints.len() == 1, "the doctor misses {drives:?}: {complaints:?}; today: {:?}", site.story);
}

impl Day<'_> {
    /// Exports the configuration, and imports it into another directory.
    pub fn export_config(&mut self) {
        let site = &mut *self.site;
        let (file, phrase, elsewhere) =
            (site.place.path("kept"), site.place.path("phrase"), site.place.path("elsewhere"));
        std::fs::write(&phrase, "five words chosen by dice\n").unwrap();
        let export = ["config", "export", "--to", &file, "--passphrase-file", &phrase];
        site.good(&export);
        site.ends(&[9], &export);
        let import = ["config", "import", &file, "--passphrase-file", &phrase];
        let said = site.run_in(Path::new(&elsewhere), &import);
        assert_eq!(said.code, 0, "stele config import: {}{}", said.err, said.out);
        let imported = std::fs::read_to_string(Path::new(&elsewhere).join("stele.toml")).unwrap();
        assert_eq!(drives(&imported), drives(&site.place.config()), "the imported configuration");
        for file in [&file, &phrase] {
            std::fs::remove_file(file).unwrap();
        }
        std::fs::remove_dir_all(elsewhere).unwrap();
    }

    fn name(&mut self, word: &str) -> String {
        self.names += 1;
        format!("{word}{}", self.names)
    }

    fn code(&mut self) -> &'static str {
        self.dice.pick(&["mirror-3", "4+2", "8+2", "mirror-4"]).unwrap()
    }

    pub fn snapshot(&mut self) {
        let (name, code) = (self.name("snapped"), self.code());
        let kept = format!("{name}-kept");
        self.site.good(&["volume", "create", &name, "--code", code, "--size", "32MiB"]);
        self.site.good(&["volume", "export", &name, "--nbd"]);
        let (old, new) = (self.dice.roll() as u32, self.dice.roll() as u32);
        disk::write_pattern(self.site, &name, old, 8);
        self.site.good(&["volume", "snapshot", &name, &kept]);
        disk::write_pattern(self.site, &name, new, 4);
        disk::compare_pattern(self.site, &name, new, 4);
        self.site.good(&["export", "remove", &name]);
        self.site.good(&["volume", "rollback", &name, &kept, "--yes"]);
        self.site.good(&["volume", "export", &name, "--nbd"]);
        disk::compare_pattern(self.site, &name, old, 8);
        self.site.good(&["export", "remove", &name]);
        self.site.ends(&[3], &["volume", "delete", &name, "--yes"]);
        self.site.good(&["volume", "delete", &kept, "--yes"]);
        self.site.good(&["volume", "delete", &name, "--yes"]);
    }

    pub fn scratch(&mut self) {
        let (name, code) = (self.name("scratch"), self.code());
        self.site.good(&["volume", "create", &name, "--code", code, "--size", "16MiB"]);
        self.site.ends(&[9], &["volume", "create", &name, "--code", code, "--size", "16MiB"]);
        self.site.good(&["volume", "export", &name, "--nbd"]);
        let pattern = self.dice.roll() as u32;
        disk::write_pattern(self.site, &name, pattern, 8);
        self.site.ends(&[3], &["volume", "delete", &name, "--yes"]);
        self.site.good(&["volume", "resize", &name, "48MiB"]);
        disk::compare_pattern(self.site, &name, pattern, 8);
        self.site.ends(&[3], &["volume", "resize", &name, "4MiB"]);
        self.site.good(&["volume", "resize", &name, "16MiB"]);
        disk::compare_pattern(self.site, &name, pattern, 8);
        self.site.good(&["export", "remove", &name]);
        self.site.ends(&[4], &["export", "remove", &name]);
        self.site.good(&["volume", "delete", &name, "--yes"]);
        self.site.ends(&[4], &["volume", "show", &name]);
    }

    pub fn buckets(&mut self) {
        let years = format!("compliance:{}y", 1 + self.dice.below(3));
        self.site.good(&["bucket", "set", "records", "--retention", &years]);
        let quota = if self.dice.one_in(2) { "100GiB" } else { "none" };
        self.site.good(&["bucket", "set", "plain", "--quota", quota]);
        self.site.ends(&[9], &["bucket", "create", "plain"]);
        self.site.ends(&[4], &["bucket", "show", "nothing"]);
        self.site.good(&["bucket", "list"]);
    }

    pub fn refusals(&mut self) {
        let drives = self.site.drives();
        let member = self.dice.pick(&drives).unwrap().clone();
        for command in [&["drive", "clear", "77"][..], &["drive", "online", "77"], &["pool", "remove", "77"]] {
            self.site.ends(&[4], command);
        }
        self.site.ends(&[3], &["drive", "wipe", &member.path, "--yes"]);
        self.site.ends(&[4], &["volume", "delete", "nothing", "--yes"]);
        self.site.ends(&[4], &["volume", "export", "nothing", "--nbd"]);
        self.site.ends(&[3], &["volume", "delete", "catalog", "--yes"]);
        self.site.ends(&[3], &["volume", "delete", "vm"]);
        if member.health == "healthy" {
            let number = member.number.to_string();
            self.site.ends(&[2], &["drive", "online", &number]);
        }
    }
}

fn drives(config: &str) -> toml::Value {
    let config: toml::Value = toml::from_str(config).unwrap();
    config["pool"]["drives"].clone()
}
