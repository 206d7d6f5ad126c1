//! While any version is retained, no command can delete the volumes below it, online or offline.

use crate::support::Place;

#[test]
fn a_retained_version_protects_the_volumes_it_lies_on() {
    let place = Place::new("guard");
    place.pool(5);
    let server = place.serve();
    let keys = server.keys();
    let retained = |place: &Place, name: &str| place.json(&["volume", "show", name])["retained"].clone();
    place.json(&["bucket", "create", "plain"]);
    server.put("/plain/key", b"free");
    assert_eq!(retained(&place, "data"), false, "nothing is retained yet");
    place.json(&["volume", "create", "scratch", "--code", "mirror-2", "--size", "8MiB"]);

    place.json(&["bucket", "create", "records", "--lock", "--retention", "compliance:1d"]);
    let version = server.put("/records/key", b"kept").header("x-amz-version-id").unwrap();
    for name in ["data", "catalog"] {
        assert_eq!(retained(&place, name), true, "{name}");
        place.refused(3, &[name], &["volume", "delete", name, "--yes"]);
    }
    let why = place.json(&["why", &format!("records/key@{version}")]);
    assert_eq!(why["protected"], true, "{why}");
    assert_eq!(server.delete(&format!("/records/key?versionId={version}")).code(), "AccessDenied");
    assert_eq!(server.delete("/records").code(), "BucketNotEmpty");
    // An operator may still delete a volume without an owner, beside protected ones.
    assert_eq!(place.json(&["volume", "delete", "scratch", "--yes"])["deleted"], "scratch");
    let record = place.json(&["audit", "show", "--limit", "1"]);
    assert_eq!(record["action"].as_str(), Some("Administer"), "{record}");
    server.kill();

    // The same holds after a kill and without a server.
    for name in ["data", "catalog"] {
        assert_eq!(retained(&place, name), true, "{name}");
        place.refused(3, &[name], &["volume", "delete", name, "--yes"]);
    }
    place.refused(3, &["read"], &["bucket", "create", "another"]);
    assert_eq!(place.json(&["why", &format!("records/key@{version}")])["protected"], true);

    // Without the configuration, no other pool can be made of its drives either.
    std::fs::rename(place.0.join("stele.toml"), place.0.join("kept.toml")).unwrap();
    let drives: Vec<String> = (0..5).map(|number| place.path(&format!("d{number}.img"))).collect();
    let mut arguments = vec!["pool", "create", "--confirm-time", "--data", "none"];
    drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
    place.refused(3, &["retained records"], &arguments);
    std::fs::rename(place.0.join("kept.toml"), place.0.join("stele.toml")).unwrap();
    let server = place.serve().with_keys(keys);
    assert_eq!(server.get("/records/key").body, b"kept");
}
