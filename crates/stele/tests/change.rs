//! Changes to existing buckets, keys and exports. Nothing stored becomes weaker, and no key gets
//! more rights.

use crate::support::{Place, Server};
use serde_json::{Value, json};

/// The end of a version's retention, if it has one.
fn retained(place: &Place, object: &str) -> Option<String> {
    place.json(&["why", object])["retained_until"].as_str().map(str::to_owned)
}

#[test]
fn a_bucket_changes_for_what_is_stored_from_then_on() {
    let place = Place::new("change-bucket");
    let server = place.up();
    place.json(&["bucket", "create", "records", "--lock", "--retention", "compliance:7y"]);
    server.put("/records/before", b"for seven years");
    let before = retained(&place, "records/before").unwrap();
    let changed = place.json(&["bucket", "set", "records", "--retention", "compliance:1d", "--quota", "1MiB"]);
    assert_eq!((&changed["default_retention"], &changed["quota_bytes"]), (&json!("compliance:1d"), &json!(1 << 20)));
    server.put("/records/after", b"for a day");
    assert_eq!(retained(&place, "records/before").unwrap(), before, "what is stored keeps its retention");
    assert!(retained(&place, "records/after").unwrap() < before);
    // One setting changes, and the others stay.
    let changed = place.json(&["bucket", "set", "records", "--expiry", "delete", "--retention", "none"]);
    assert_eq!((&changed["default_retention"], &changed["expiry"]), (&Value::Null, &json!("delete")));
    assert_eq!((&changed["quota_bytes"], &changed["object_lock"]), (&json!(1 << 20), &json!(true)));
    server.put("/records/free", b"for no time");
    assert_eq!(retained(&place, "records/free"), None);
    assert_eq!(place.json(&["bucket", "set", "records", "--quota", "none"])["quota_bytes"], Value::Null);
    // Each limit changes without the other.
    let limits = |view: &Value| (view["quota_bytes"].as_u64(), view["quota_versions"].as_u64());
    let few = place.json(&["bucket", "create", "few", "--quota", "1MiB", "--quota-versions", "3"]);
    assert_eq!(limits(&few), (Some(1 << 20), Some(3)));
    for (flag, value, expected) in
        [("--quota-versions", "2", (Some(1 << 20), Some(2))), ("--quota", "none", (None, Some(2)))]
    {
        assert_eq!(limits(&place.json(&["bucket", "set", "few", flag, value])), expected);
    }
    server.put("/few/one", b"1");
    server.put("/few/two", b"2");
    let full = server.send(server.ask("PUT", "/few/three").body("3"));
    assert_eq!(full.status, 403, "{}", full.text());
    let listed = String::from_utf8(place.stele(&["bucket", "show", "few"]).stdout).unwrap();
    assert!(listed.contains("2 versions"), "{listed}");
    assert_eq!(limits(&place.json(&["bucket", "set", "few", "--quota-versions", "none"])), (None, None));
    server.put("/few/three", b"3");
    place.refused(2, &["a count, or none"], &["bucket", "set", "few", "--quota-versions", "many"]);
    // A level can only be raised.
    assert_eq!(place.json(&["bucket", "set", "records", "--protection", "compliance"])["protection"], "compliance");
    place.refused(3, &["only raised"], &["bucket", "set", "records", "--protection", "governance"]);
    // The error names the changes made before a refusal.
    let told = &["bucket", "set", "records", "--retention", "compliance:2y", "--protection", "basic"];
    place.refused(
        3,
        &["only raised", "this much is done: Object Lock, default retention COMPLIANCE for 2 years"],
        told,
    );
    // An invalid argument prevents every change.
    place.refused(
        2,
        &["not a default retention"],
        &["bucket", "set", "records", "--quota", "1GiB", "--retention", "soon"],
    );
    assert_eq!(place.json(&["bucket", "show", "records"])["quota_bytes"], Value::Null);
    // A lock can be added later, and stays.
    place.json(&["bucket", "create", "drafts"]);
    place.refused(2, &["--lock"], &["bucket", "set", "drafts", "--retention", "governance:1d"]);
    // They would do nothing there.
    for (option, value) in [("--protection", "compliance"), ("--expiry", "delete")] {
        let set = ["bucket", "set", "drafts", option, value];
        place.refused(2, &["'drafts' has no Object Lock", "add --lock"], &set);
    }
    let locked = place.json(&["bucket", "set", "drafts", "--lock", "--retention", "governance:1d"]);
    assert_eq!((&locked["object_lock"], &locked["versioning"]), (&json!(true), &json!("enabled")));
    server.put("/drafts/x", b"x");
    assert_eq!(server.plain("/drafts/x").status, 403);
    place.json(&["bucket", "set", "drafts", "--public-read", "yes"]);
    assert_eq!(server.plain("/drafts/x").status, 200, "anyone may ask for it");
    assert_eq!(server.plain("/drafts/y").status, 403, "who may not list is not told what is missing");
    place.json(&["bucket", "set", "drafts", "--public-read", "no"]);
    assert_eq!(server.plain("/drafts/x").status, 403);
    place.refused(4, &["nowhere"], &["bucket", "set", "nowhere", "--quota", "1MiB"]);
    place.refused(2, &["required"], &["bucket", "set", "records"]);
    place.refused(9, &["exists already"], &["bucket", "create", "records"]);
    server.stop();
}

fn key(place: &Place, arguments: &[&str]) -> (String, String) {
    let made = place.json(&[&["key", "create"], arguments].concat());
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("access_key"), text("secret_key"))
}

#[test]
fn a_key_has_the_rights_it_is_given_and_loses_some_at_once() {
    let place = Place::new("change-key");
    let server = place.up();
    place.json(&["bucket", "create", "records"]);
    place.json(&["bucket", "create", "drafts"]);
    place.refused(2, &["may do nothing unless", "--role"], &["key", "create", "--name", "nothing"]);
    let impossible = ["key", "create", "--access", "read", "--bucket", "A B"];
    place.refused(2, &["`A B` cannot name a bucket", "--bucket"], &impossible);
    let (id, secret) = key(&place, &["--name", "wide", "--role", "user,auditor", "--bypass-governance"]);
    let status = |method: &str, target: &str| {
        let mut ask = server.ask(method, target).body(b"x");
        (ask.access_key, ask.secret_key) = (id.clone(), secret.clone());
        server.send(ask).status
    };
    assert_eq!((status("PUT", "/records/scans/1"), status("PUT", "/drafts/1")), (200, 200));
    let left = place.json(&["key", "narrow", &id, "--bucket", "records", "--prefix", "scans/"]);
    let grant = json!([{"bucket": "records", "prefix": "scans/", "access": ["read", "write", "delete", "list"]}]);
    assert_eq!(left["grants"], grant, "{left}");
    assert_eq!(
        (status("PUT", "/records/scans/2"), status("PUT", "/drafts/2"), status("PUT", "/records/2")),
        (200, 403, 403)
    );
    let left = place.json(&["key", "narrow", &id, "--access", "read,list", "--no-bypass", "--role", "user"]);
    assert_eq!((&left["roles"], &left["bypass_governance"]), (&json!(["user"]), &json!(false)), "{left}");
    assert_eq!((status("PUT", "/records/scans/3"), status("GET", "/records/scans/1")), (403, 200));
    // A key never gets more rights.
    place.refused(3, &["another key"], &["key", "narrow", &id, "--access", "read,write"]);
    place.refused(3, &["another key"], &["key", "narrow", &id, "--bucket", "drafts"]);
    place.refused(2, &["`A B` cannot name a bucket"], &["key", "narrow", &id, "--bucket", "A B"]);
    place.refused(3, &["another key"], &["key", "narrow", &id, "--prefix", ""]);
    place.refused(3, &["another key"], &["key", "narrow", &id, "--role", "storage-administrator"]);
    place.refused(4, &["no access key"], &["key", "narrow", "STELENOBODY", "--no-bypass"]);
    place.json(&["key", "revoke", &id]);
    place.refused(4, &["no access key"], &["key", "narrow", &id, "--no-bypass"]);
    let records = place.json(&["audit", "verify"]);
    assert_eq!(records["findings"].as_array().map(Vec::len), Some(0));
    let told = String::from_utf8(place.stele(&["audit", "show"]).stdout).unwrap();
    assert!(told.contains("NarrowAccessKey") && told.contains("read, list in `records/scans/`"), "{told}");
    server.stop();
}

fn serve(place: &Place) -> Server {
    place.edit_config(|text| text.replace("[iscsi]\n", "[iscsi]\nlisten = \"127.0.0.1:0\"\n"));
    place.serve()
}

#[test]
fn an_export_changes_and_keeps_what_is_not_named() {
    let place = Place::new("change-export");
    place.pool(3);
    for (name, text) in [("one", "a long secret indeed\n"), ("two", "another long secret\n")] {
        std::fs::write(place.0.join(name), text).unwrap();
    }
    let server = serve(&place);
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "16MiB"]);
    let (one, two) = (place.path("one"), place.path("two"));
    let target = "iqn.2026-01.local.stele:vm1";
    place.json(&[
        "volume",
        "export",
        "vm1",
        "--iscsi",
        "--chap-user",
        "host",
        "--chap-secret",
        &one,
        "--allow",
        "127.0.0.1",
    ]);
    let set = |more: &[&str]| place.json(&[&["export", "set", target, "--protocol", "iscsi"], more].concat());
    let said = set(&["--read-only", "yes"]);
    assert_eq!((&said["read_only"], &said["access"]["networks"]), (&json!(true), &json!(["127.0.0.1/32"])), "{said}");
    let stored = || std::fs::read_to_string(place.0.join("exports.json")).unwrap();
    assert!(stored().contains("a long secret indeed"), "the secret stays where it is not named");
    set(&["--chap-user", "host", "--chap-secret", &two]);
    assert!(stored().contains("another long secret") && !stored().contains("a long secret indeed"));
    let mutual = set(&["--mutual-user", "target", "--mutual-secret", &one]);
    assert_eq!(
        (&mutual["iscsi"]["chap"]["user"], &mutual["iscsi"]["mutual"]["user"]),
        (&json!("host"), &json!("target"))
    );
    place.refused(
        2,
        &["both directions"],
        &["export", "set", target, "--protocol", "iscsi", "--mutual-user", "target", "--mutual-secret", &two],
    );
    assert!(set(&["--no-chap", "--allow", "any"])["warnings"].to_string().contains("--chap-user"));
    assert!(!stored().contains("secret"), "{}", stored());
    place.refused(4, &["no nbd export"], &["export", "set", target, "--read-only", "no"]);
    place.refused(2, &["required"], &["export", "set", target]);
    place.refused(2, &["nonsense"], &["export", "set", target, "--protocol", "iscsi", "--allow", "nonsense"]);
    server.stop();
}
