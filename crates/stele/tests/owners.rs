//! Wrong names, missing drives and rolled-back pools: an alarm and a next step, and never a lost
//! record.

use std::path::Path;

use crate::support::pool::wreck_volume;
use crate::support::server::good;
use crate::support::{Place, Server, content};
use serde_json::Value;

const LENGTH: usize = 200_000;

fn stored(place: &Place, server: &Server, count: u64) {
    place.json(&["bucket", "create", "records", "--lock", "--retention", "compliance:7y"]);
    for seed in 0..count {
        server.put(&format!("/records/{seed}"), &content(seed, LENGTH));
    }
}

fn whole(server: &Server, count: u64) {
    for seed in 0..count {
        assert!(good(server.get(&format!("/records/{seed}"))).body == content(seed, LENGTH), "{seed}");
    }
}

fn volumes(place: &Place) -> Vec<(String, bool)> {
    let list = place.json(&["volume", "list"]);
    let view = |volume: &Value| Some((volume["name"].as_str()?.to_owned(), volume["retained"].as_bool()?));
    list.as_array().unwrap().iter().filter_map(view).collect()
}

fn alarms(place: &Place) -> Vec<String> {
    let standing = place.json(&["pool", "status"])["standing"].clone();
    standing.as_array().unwrap().iter().filter_map(|alarm| Some(alarm["kind"].as_str()?.to_owned())).collect()
}

#[test]
fn a_rebuild_on_wrong_names_deletes_nothing() {
    let place = Place::new("owners-rebuild");
    let server = place.up();
    let keys = server.keys();
    stored(&place, &server, 3);
    place.json(&["volume", "create", "decoy", "--code", "mirror-2", "--size", "128MiB"]);
    server.stop();
    let right = place.config();
    let before = volumes(&place);
    for (catalog, data) in
        [("data", "data"), ("decoy", "data"), ("nope", "data"), ("catalog", "decoy"), ("catalog", "catalog")]
    {
        let wrong = right
            .replace("catalog_volume = \"catalog\"", &format!("catalog_volume = \"{catalog}\""))
            .replace("data_volume = \"data\"", &format!("data_volume = \"{data}\""));
        place.edit_config(|_| wrong);
        for more in
            [&["catalog", "rebuild", "--yes"][..], &["catalog", "rebuild", "--yes", "--force", "--accept-losses"]]
        {
            place.refused(3, &["nothing was rebuilt", "stele.toml"], more);
        }
        assert_eq!(volumes(&place), before, "{catalog} and {data}");
    }
    place.edit_config(|_| right);
    whole(&place.up().with_keys(keys), 3);
}

#[test]
fn a_wrong_name_hides_no_archive_and_opens_no_other() {
    let place = Place::new("owners-names");
    let server = place.up();
    let keys = server.keys();
    stored(&place, &server, 3);
    server.stop();
    let right = place.config();
    let records = |place: &Place| place.json(&["audit", "verify"])["records"].as_u64().unwrap();
    let before = records(&place);
    for (catalog, data) in [("catalog", "nope"), ("nope", "data"), ("data", "data"), ("data", "catalog")] {
        let wrong = right
            .replace("catalog_volume = \"catalog\"", &format!("catalog_volume = \"{catalog}\""))
            .replace("data_volume = \"data\"", &format!("data_volume = \"{data}\""));
        place.edit_config(|_| wrong);
        let server = place.up().with_keys(keys.clone());
        assert!(alarms(&place).contains(&"volume-names".to_owned()), "{catalog}, {data}: {:?}", alarms(&place));
        whole(&server, 3);
        assert_eq!(server.send(server.ask("PUT", "/records/new").body("new")).status, 503);
        // An act that could not be recorded is not carried out.
        place.refused(
            3,
            &["audit log", "stele.toml"],
            &["volume", "create", "vm", "--code", "mirror-2", "--size", "8MiB"],
        );
        place.refused(3, &["audit log"], &["volume", "delete", "data", "--yes"]);
        server.stop();
    }
    place.edit_config(|_| right);
    assert_eq!(records(&place), before, "nothing was written meanwhile");
    let server = place.up().with_keys(keys);
    assert!(!alarms(&place).contains(&"volume-names".to_owned()));
    server.put("/records/new", b"new");
    whole(&server, 3);
}

#[test]
fn a_rebuild_needs_every_drive_or_holds_what_it_cannot_prove() {
    let place = Place::new("owners-losses");
    let server = place.up();
    let keys = server.keys();
    stored(&place, &server, 60);
    server.stop();
    let away = place.0.join("away");
    std::fs::create_dir(&away).unwrap();
    let drives: Vec<String> = (0..12).map(|drive| format!("e{}-{}.img", drive / 2, drive % 2)).collect();
    let carry = |from: &Path, to: &Path, lost: &[&String; 3]| {
        lost.iter().for_each(|name| std::fs::rename(from.join(name), to.join(name)).unwrap());
    };
    // Chance places the stripes. If even the note of the store's identity is lost, nothing is
    // rebuilt, and a repetition with other drives succeeds.
    let home = place.0.join("drives");
    let held = (0..12).any(|first| {
        let lost = [0, 4, 7].map(|step| &drives[(first + step) % 12]);
        carry(&home, &away, &lost);
        place.refused(5, &["drives are missing", "--accept-losses"], &["catalog", "rebuild", "--yes", "--force"]);
        let output = place.stele(&["catalog", "rebuild", "--yes", "--force", "--accept-losses"]);
        let held = String::from_utf8_lossy(&output.stderr).contains("stele catalog release");
        carry(&away, &home, &lost);
        assert!(held || volumes(&place).len() == 2, "left behind: {:?}: {output:?}", volumes(&place));
        held
    });
    assert!(held, "three drives of twelve hold a part of every stripe");
    let server = place.serve().with_keys(keys.clone());
    assert!(alarms(&place).contains(&"rebuild".to_owned()), "{:?}", alarms(&place));
    assert_eq!(server.get("/records/0").status, 403, "keys are suspended");
    server.stop();
    // The earlier catalog was kept, and everything comes back with the drives.
    let report = place.json(&["catalog", "rebuild", "--yes", "--force"]);
    assert_eq!(
        (report["losses"].as_array().map(Vec::len), report["versions"].as_u64()),
        (Some(0), Some(60)),
        "{report}"
    );
    assert_eq!(volumes(&place).len(), 2, "{:?}", volumes(&place));
    let server = place.serve().with_keys(keys);
    assert!(!alarms(&place).contains(&"rebuild".to_owned()));
    whole(&server, 60);
    let version = good(server.get("/records/7")).header("x-amz-version-id").unwrap();
    assert_eq!(server.delete(&format!("/records/7?versionId={version}")).status, 403);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let copied = std::process::Command::new("cp")
            .arg("--sparse=always")
            .args([file.path(), to.join(file.file_name())])
            .status()
            .unwrap();
        assert!(copied.success());
    }
}

#[test]
fn a_pool_set_back_behind_its_heads_is_not_written() {
    let place = Place::new("owners-heads");
    let server = place.up();
    let keys = server.keys();
    stored(&place, &server, 2);
    server.stop();
    let (drives, older, newer) = (place.0.join("drives"), place.0.join("older"), place.0.join("newer"));
    copy(&drives, &older);
    // It sends a head at the latest when it stops.
    let server = place.up().with_keys(keys.clone());
    server.put("/records/later", b"later");
    server.stop();
    std::fs::rename(&drives, &newer).unwrap();
    std::fs::rename(&older, &drives).unwrap();
    // A user who may only add to the place adds an old head under a great name.
    let heads = place.0.join("heads");
    let oldest = std::fs::read_dir(&heads).unwrap().map(|file| file.unwrap().path()).min().unwrap();
    std::fs::copy(oldest, heads.join("99999999999999999999.head")).unwrap();
    let server = place.up().with_keys(keys.clone());
    assert!(alarms(&place).contains(&"rolled-back".to_owned()), "{:?}", alarms(&place));
    whole(&server, 2);
    assert_eq!(server.send(server.ask("PUT", "/records/new").body("new")).status, 503);
    // The older log does not get what is done meanwhile: it would be lost with it.
    let before = acts(&place);
    place.json(&["pool", "wash"]);
    assert_eq!(acts(&place), before);
    server.stop();
    // Commands without a server look at the heads too before they change something.
    let create = ["volume", "create", "vm", "--code", "mirror-2", "--size", "8MiB"];
    place.refused(3, &["nothing was done", "set back"], &create);
    place.json(&["pool", "wash"]);
    assert_eq!(acts(&place), before);
    place.refused(5, &["set back"], &["catalog", "rebuild", "--yes", "--force"]);
    std::fs::remove_dir_all(&drives).unwrap();
    std::fs::rename(&newer, &drives).unwrap();
    let server = place.up().with_keys(keys);
    assert!(!alarms(&place).contains(&"rolled-back".to_owned()));
    assert_eq!(good(server.get("/records/later")).body, b"later");
    let acts = acts(&place);
    let is_wash = |act: &String| act.starts_with("while no log was open, at ") && act.ends_with(": pool/wash");
    // Each of both has a record before it and one with its outcome.
    assert_eq!(acts.iter().filter(|act| is_wash(act)).count(), 4, "{acts:?}");
}

/// The audit log's records of acts on drives and volumes.
fn acts(place: &Place) -> Vec<String> {
    let output = place.stele(&["audit", "show", "--limit", "100", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records
        .filter(|record| record["action"] == "Administer")
        .map(|record| record["detail"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_is_done_without_a_server_or_a_catalog_is_recorded() {
    let place = Place::new("owners-unrecorded");
    place.up().stop();
    place.json(&["volume", "create", "vm", "--code", "mirror-2", "--size", "8MiB"]);
    assert_eq!(acts(&place), ["about to do: volume/create vm", "volume/create vm"]);
    // Without a catalog there is no log: acts on drives are carried out, and recorded once there is
    // a log.
    wreck_volume(&place, "catalog");
    let kept = place.0.join("unrecorded-acts");
    place.json(&["pool", "add", "--size", "256MiB", "--drive", &format!("{}@10", place.path("more.img"))]);
    assert_eq!(std::fs::read_to_string(&kept).unwrap().lines().count(), 2, "before and after the act");
    place.json(&["catalog", "rebuild", "--yes"]);
    place.serve().stop();
    assert!(!kept.exists(), "they are in the log");
    let acts = acts(&place);
    for act in ["about to do: pool/add", "pool/add"] {
        let told = |kept: &&String| {
            kept.strip_prefix("while no log was open, at ")
                .and_then(|rest| rest.split_once(": "))
                .is_some_and(|(_, rest)| rest.starts_with(act))
        };
        assert!(acts.iter().any(|kept| told(&kept)), "{act}: {acts:?}");
    }
}
