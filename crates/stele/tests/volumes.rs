//! Volumes by command: snapshots, clones, rollbacks, and the output of `volume show`.

use crate::support::Place;

#[test]
fn snapshots_are_taken_cloned_rolled_back_to_and_deleted() {
    let place = Place::new("volumes");
    place.pool(5);
    let server = place.serve();
    place.json(&["volume", "create", "vm1", "--code", "2+1", "--size", "8MiB"]);
    let taken = place.json(&["volume", "snapshot", "vm1", "monday"]);
    assert_eq!((taken["kind"].as_str(), taken["origin"].as_str()), (Some("snapshot"), Some("vm1")), "{taken}");
    assert!(taken["made"].as_str() > Some("2020"), "{taken}");
    let cloned = place.json(&["volume", "clone", "monday", "test"]);
    assert_eq!((cloned["kind"].as_str(), cloned["origin"].as_str()), (Some("volume"), Some("monday")), "{cloned}");
    place.json(&["volume", "rollback", "vm1", "monday", "--yes"]);
    let names = |list: serde_json::Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap().to_owned()).collect()
    };
    let listed = names(place.json(&["volume", "list"]));
    assert!(["vm1", "monday", "test"].iter().all(|name| listed.iter().any(|have| have == name)), "{listed:?}");

    let table = String::from_utf8(place.stele(&["volume", "list"]).stdout).unwrap();
    assert!(table.contains("snapshot of vm1") && table.contains("clone of monday"), "{table}");
    let head = String::from_utf8(place.stele(&["pool", "status"]).stdout).unwrap();
    assert!(head.contains(", 1 snapshot; "), "{head}");
    let missing = ["volume 'vm1' has no snapshot 'nope'", "its snapshots: monday"];
    place.refused(4, &missing, &["volume", "rollback", "vm1", "nope", "--yes"]);
    place.refused(4, &["no volume is called 'nope'"], &["volume", "rollback", "nope", "monday", "--yes"]);
    place.refused(3, &["has snapshots", "monday"], &["volume", "delete", "vm1", "--yes"]);
    place.refused(3, &["has clones", "test"], &["volume", "delete", "monday", "--yes"]);
    place.refused(3, &["its owner"], &["volume", "snapshot", "data", "s"]);
    place.refused(3, &["carries the archive"], &["volume", "resize", "data", "1GiB"]);
    place.refused(3, &["never rolled back"], &["volume", "rollback", "data", "monday", "--yes"]);
    for name in ["test", "monday"] {
        assert_eq!(place.json(&["volume", "delete", name, "--yes"])["deleted"], name);
    }

    place.json(&["volume", "set", "vm1", "--read-ahead", "9"]);
    let shown = place.json(&["volume", "show", "vm1"]);
    assert_eq!((shown["read_ahead"].as_u64(), shown["alone_bytes"].as_u64()), (Some(9), Some(0)), "{shown}");
    let cache = &shown["cache"];
    assert_eq!(
        (cache["flush_high_percent"].as_u64(), cache["flush_low_percent"].as_u64()),
        (Some(50), Some(40)),
        "{shown}"
    );
    assert_eq!(
        (cache["dirty_limit_bytes"].as_u64(), cache["flush_age_seconds"].as_u64()),
        (Some(64 << 20), Some(2)),
        "{shown}"
    );
    let told = String::from_utf8(place.stele(&["volume", "show", "vm1"]).stdout).unwrap();
    for line in ["read-ahead    9 stripes", "flush starts  50 %", "flush age     2 s", "cache hits    no reads yet"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    server.stop();
}
