//! `stele catalog rebuild`: the data that it restores, and its refusals.

use crate::support;
use crate::support::http::between;
use crate::support::pool::wreck_volume;
use crate::support::server::good;
use crate::support::{Place, Server, content};
use serde_json::Value;

const LAST: &str = "2099-01-01T00:00:00Z";

/// Every kind of object in a bucket, some under retention: key, version, content.
fn fill(place: &Place, server: &Server) -> Vec<(String, String, Vec<u8>)> {
    place.json(&["bucket", "create", "records", "--lock", "--retention", "compliance:7y"]);
    place.json(&["bucket", "create", "plain", "--versioning"]);
    let mut stored = Vec::new();
    let mut put = |target: &str, body: Vec<u8>| {
        let version = server.put(target, &body).header("x-amz-version-id").unwrap();
        stored.push((target.to_owned(), version, body));
    };
    for (seed, length) in [0, 1, 70_000, 3 << 20].into_iter().enumerate() {
        put(&format!("/records/in/{length}%20bytes"), content(seed as u64, length));
        put(&format!("/plain/in/{length}"), content(100 + seed as u64, length));
    }
    put("/plain/in/1", b"newer".to_vec());
    put("/plain/held", b"held".to_vec());
    put("/plain/gone", b"under a marker".to_vec());
    good(server.delete("/plain/gone"));

    let begun = good(server.send(server.ask("POST", "/records/parts?uploads"))).text();
    let id = between(&begun, "<UploadId>", "</UploadId>").unwrap();
    let (first, last) = (content(7, 5 << 20), content(8, 12_345));
    let mut list = String::new();
    for (number, part) in [(1, &first), (2, &last)] {
        let tag =
            server.put(&format!("/records/parts?partNumber={number}&uploadId={id}"), part).header("etag").unwrap();
        list.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"));
    }
    let document = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    let ask = server.ask("POST", &format!("/records/parts?uploadId={id}")).body(document);
    let version = good(server.send(ask)).header("x-amz-version-id").unwrap();
    stored.push(("/records/parts".to_owned(), version.clone(), [first, last].concat()));
    // Extended after the object was stored: the rebuild must find the last note, not the first.
    let raised = format!("<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>{LAST}</RetainUntilDate></Retention>");
    let md5 = |body: &str| support::md5_base64(body.as_bytes());
    let ask = server.ask("PUT", &format!("/records/parts?retention&versionId={version}"));
    good(server.send(ask.header("content-md5", &md5(&raised)).body(raised)));
    stored
}

fn check(place: &Place, server: &Server, stored: &[(String, String, Vec<u8>)]) {
    for (target, version, body) in stored {
        let answer = good(server.get(&format!("{target}?versionId={version}")));
        assert!(answer.body == *body, "{target}@{version} came back different");
        if target.starts_with("/records") {
            let until = answer.header("x-amz-object-lock-retain-until-date").unwrap();
            assert_eq!(answer.header("x-amz-object-lock-mode").as_deref(), Some("COMPLIANCE"), "{target}");
            assert_eq!(until.starts_with("2099-01-01"), target.ends_with("/parts"), "{target} until {until}");
            let refused = server.delete(&format!("{target}?versionId={version}"));
            assert_eq!((refused.status, refused.code().as_str()), (403, "AccessDenied"), "{target}");
        }
    }
    assert_eq!(server.get("/plain/gone").header("x-amz-delete-marker").as_deref(), Some("true"));
    assert_eq!(good(server.get("/plain/in/1")).body, b"newer");
    assert!(place.json(&["audit", "verify"])["findings"].as_array().unwrap().is_empty());
}

#[test]
fn a_wrecked_catalog_comes_back_with_every_version_and_its_retention() {
    let place = Place::new("catalog");
    place.pool(6);
    let server = place.serve();
    let keys = server.keys();
    let stored = fill(&place, &server);
    check(&place, &server, &stored);
    place.refused(7, &["in use"], &["catalog", "rebuild", "--yes"]);
    server.stop();

    // Every fault is found before anything is written.
    place.refused(3, &["opens", "--force"], &["catalog", "rebuild", "--yes"]);
    let key = place.0.join("master.key");
    let text = std::fs::read_to_string(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    place.refused(4, &["master key", "exported copy"], &["catalog", "rebuild", "--yes", "--force"]);
    std::fs::write(&key, "0".repeat(64)).unwrap();
    place.refused(3, &["key"], &["catalog", "rebuild", "--yes", "--force"]);
    std::fs::write(&key, &text).unwrap();
    assert_eq!(place.json(&["bucket", "list"]).as_array().map(Vec::len), Some(2), "the catalog is as it was");
    let records = |place: &Place| place.json(&["audit", "verify"])["records"].as_u64().unwrap();
    let before = records(&place);

    wreck_volume(&place, "catalog");
    place.refused(5, &["stele catalog rebuild"], &["bucket", "list"]);
    let report = place.json(&["catalog", "rebuild", "--yes"]);
    assert_eq!(report["findings"], Value::Array(Vec::new()), "{report}");
    assert_eq!((report["buckets"].as_u64(), report["delete_markers"].as_u64()), (Some(2), Some(1)), "{report}");
    assert_eq!(report["versions"].as_u64(), Some(stored.len() as u64), "{report}");
    assert_eq!(report["catalog_volume"].as_str(), Some("catalog-2"));
    assert_eq!(report["kept"], Value::Array(Vec::new()), "{report}");

    let server = place.serve().with_keys(keys.clone());
    assert!(server.ready.get("key_file").is_none(), "access keys come back too");
    check(&place, &server, &stored);
    server.stop();
    // Two volumes as before, both protected; the operator's own lines of the configuration are
    // kept.
    let volumes = place.json(&["volume", "list"]);
    let names: Vec<&str> = volumes.as_array().unwrap().iter().filter_map(|volume| volume["name"].as_str()).collect();
    assert_eq!(names.len(), 2, "{volumes}");
    assert!(volumes.as_array().unwrap().iter().all(|volume| volume["retained"] == true), "{volumes}");
    assert!(place.config().contains("catalog_volume = \"catalog-2\"") && place.config().contains("OPERATIONS.md"));

    // With --force it rebuilds a catalog that opens, too. The audit log then ends earlier.
    assert!(records(&place) <= before + 20);
    let report = place.json(&["catalog", "rebuild", "--yes", "--force"]);
    assert_eq!(report["catalog_volume"].as_str(), Some("catalog-3"), "{report}");
    let server = place.serve().with_keys(keys);
    check(&place, &server, &stored);
}

/// The requests to approve them were in the former catalog alone. So were the trees of shares.
#[test]
fn a_rebuild_revokes_keys_that_wait_for_approval() {
    let place = Place::new("catalog-awaits");
    place.pool(6);
    let server = place.serve();
    let made = ["anna", "ben", "carl"]
        .map(|name| place.json(&["key", "create", "--name", name, "--role", "retention-officer"]));
    assert!(made[2]["awaits"].is_string(), "{}", made[2]["name"]);
    place.json(&["share", "create", "scans", "--cache", "16MiB"]);
    server.stop();
    let rebuilt = place.stele(&["catalog", "rebuild", "--yes", "--force"]);
    let said = String::from_utf8_lossy(&rebuilt.stderr);
    assert!(rebuilt.status.success() && said.contains("`stele share create scans`"), "{said}");
    let _server = place.serve();
    let keys = place.json(&["key", "list"]);
    for key in keys.as_array().unwrap() {
        assert_eq!(key["revoked"].is_string(), key["name"] == "carl", "{key}");
    }
    let shown = String::from_utf8(place.stele(&["key", "list"]).stdout).unwrap();
    assert!(!shown.contains("waits for approval"), "{shown}");
}
