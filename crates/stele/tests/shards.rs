//! Pools whose drives are divided among shards: an archive, volumes and drives as in other pools.

use crate::support::server::good;
use crate::support::{Place, Server, content, is_whole, wait_for};
use serde_json::Value;

const OBJECTS: u64 = 12;

/// Six drives of 512 MiB and a 2+1 archive, divided in two.
fn divided(place: &Place) -> Value {
    let drives: Vec<String> = (0..6).map(|number| place.path(&format!("d{number}.img"))).collect();
    let mut arguments = vec!["pool", "create", "--confirm-time", "--size", "512MiB", "--data", "2+1", "--spare", "1"];
    arguments.extend(["--shards", "2"]);
    drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
    place.json(&arguments)
}

fn check(server: &Server) {
    for n in 0..OBJECTS {
        assert!(good(server.get(&format!("/records/{n}"))).body == content(n, 3 << 20), "object {n}");
    }
}

#[test]
fn an_archive_on_two_shards_keeps_its_objects_through_kills_and_lost_drives() {
    let place = Place::new("shards");
    assert_eq!(divided(&place)["shards"], 2);
    let server = place.serve();
    let keys = server.keys();
    place.json(&["bucket", "create", "records"]);
    for n in 0..OBJECTS {
        good(server.put(&format!("/records/{n}"), &content(n, 3 << 20)));
    }
    let data = place.json(&["volume", "show", "data"]);
    assert!(data["allocated_bytes"].as_u64() > Some(OBJECTS << 20), "{data}");
    server.kill();

    // A drive is lost; another one is replaced.
    std::fs::remove_file(place.path("d1.img")).unwrap();
    let server = place.serve().with_keys(keys.clone());
    check(&server);
    let new = place.path("new.img");
    place.json(&["pool", "replace", "1", &new, "--size", "512MiB"]);
    wait_for("the new drive to be filled", || is_whole(&place.json(&["pool", "status"])).then_some(()));
    let status = place.json(&["pool", "status"]);
    assert_eq!(status["drives"].as_array().unwrap().len(), 6, "{status}");
    let scrubbed = place.stele(&["pool", "scrub", "--wait"]);
    assert!(scrubbed.status.success(), "{scrubbed:?}");
    check(&server);
    server.stop();

    // The volumes are protected on both shards, and the drives are members on all of their length.
    let server = place.serve().with_keys(keys);
    check(&server);
    place.refused(3, &["carries the archive"], &["volume", "delete", "data", "--yes"]);
    place.refused(3, &["is drive 0 of this pool"], &["drive", "wipe", &place.path("d0.img"), "--yes"]);
    server.stop();
    let dump = place.json(&["drive", "dump", &place.path("d0.img")]);
    assert_eq!(dump["pool"]["shards"], 2, "{dump}");
    let told = String::from_utf8(place.stele(&["pool", "status"]).stdout).unwrap();
    assert!(told.contains("shards   2, each with a part of every drive"), "{told}");
}

#[test]
fn volumes_on_two_shards_are_snapshotted_rolled_back_and_resized() {
    let place = Place::new("shards-volumes");
    divided(&place);
    let server = place.serve();
    place.json(&["volume", "create", "vm1", "--code", "2+1", "--size", "9MiB"]);
    place.json(&["volume", "snapshot", "vm1", "monday"]);
    assert_eq!(place.json(&["volume", "clone", "monday", "test"])["origin"], "monday");
    assert_eq!(place.json(&["volume", "rollback", "vm1", "monday", "--yes"])["name"], "vm1");
    place.refused(2, &["no snapshot of volume 'vm1'"], &["volume", "rollback", "vm1", "test", "--yes"]);
    place.json(&["volume", "resize", "vm1", "20MiB"]);
    assert_eq!(place.json(&["volume", "show", "vm1"])["size_bytes"], 20 << 20);
    server.kill();
    let server = place.serve();
    assert_eq!(place.json(&["volume", "show", "vm1"])["size_bytes"], 20 << 20);
    for name in ["test", "monday", "vm1"] {
        assert_eq!(place.json(&["volume", "delete", name, "--yes"])["deleted"], name);
    }
    server.stop();
}

#[test]
fn a_number_of_shards_that_the_drives_do_not_hold_is_refused() {
    let place = Place::new("shards-many");
    let drives: Vec<String> = (0..4).map(|number| place.path(&format!("d{number}.img"))).collect();
    for (shards, words) in [("0", "0"), ("65", "65")] {
        let mut arguments = vec!["pool", "create", "--confirm-time", "--size", "64MiB", "--data", "none"];
        arguments.extend(["--shards", shards]);
        drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
        place.refused(2, &[words, "--shards"], &arguments);
    }
    let mut arguments = vec!["pool", "create", "--confirm-time", "--size", "64MiB", "--data", "none", "--shards", "8"];
    drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
    place.refused(2, &["too small"], &arguments);
    assert!(drives.iter().all(|drive| !std::path::Path::new(drive).exists()), "nothing is left");
}
