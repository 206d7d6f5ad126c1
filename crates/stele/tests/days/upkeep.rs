//! What an operator does beside the drives: asks the doctor, and keeps a copy of the configuration.

use std::path::Path;

use serde_json::Value;

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

/// Checks that the doctor names these drives, which are not at their paths, and complains of nothing else.
#[track_caller]
pub fn doctor_misses(site: &mut Site, drives: &[DriveSaid]) {
    let complaints = complaints(&site.ends(&[5], &["doctor"]));
    let named = drives.iter().all(|drive| complaints.iter().any(|complaint| complaint.contains(&drive.path)));
    assert!(named && complaints.len() == 1, "the doctor misses {drives:?}: {complaints:?}; today: {:?}", site.story);
}

/// Exports the configuration, and imports it into another directory.
pub fn export_config(day: &mut Day) {
    let site = &mut *day.site;
    let (file, phrase, elsewhere) = (site.place.path("kept"), site.place.path("phrase"), site.place.path("elsewhere"));
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

fn drives(config: &str) -> toml::Value {
    let config: toml::Value = toml::from_str(config).unwrap();
    config["pool"]["drives"].clone()
}
