//! Named matters from the command line: over S3, a restart, and the close by two officers.

use std::path::Path;

use crate::support::{Place, Server};

fn status(server: &Server, method: &str, target: &str) -> u16 {
    server.send(server.ask(method, target)).status
}

/// An officer's key, as a file.
fn officer(place: &Place, name: &str) -> String {
    let made = place.json(&["key", "create", "--name", name, "--role", "retention-officer"]);
    let path = place.path(&format!("{name}.json"));
    std::fs::write(Path::new(&path), made.to_string()).unwrap();
    path
}

#[test]
fn a_matter_holds_versions_until_it_is_released() {
    let place = Place::new("matters");
    let server = place.up();
    assert!(place.stele(&["bucket", "create", "mail", "--versioning"]).status.success());
    let anna = officer(&place, "anna");
    for n in 0..30 {
        server.put(&format!("/mail/jones/{n}"), b"a letter");
        server.put(&format!("/mail/smith/{n}"), b"a letter");
    }
    place.json(&["matter", "open", "trial", "--reason", "Smith v. Jones"]);
    place.json(&["matter", "open", "tax", "--reason", "audit", "--officer", &anna]);
    let selection = ["--bucket", "mail", "--prefix", "jones/", "--stored-after", "2020-01-01"];
    let counted = place.json(&[&["matter", "put", "trial", "--dry-run"], &selection[..]].concat());
    assert_eq!((counted["selected"].as_u64(), counted["under"].as_u64()), (Some(30), Some(0)));
    let put = place.json(&[&["matter", "put", "trial"], &selection[..]].concat());
    assert_eq!(put["job"]["changed"].as_u64(), Some(30), "{put}");
    std::fs::write(place.path("list"), "mail/jones/1\nmail/smith/1\n").unwrap();
    let listed = place.json(&["matter", "put", "tax", "--list", &place.path("list")]);
    assert_eq!(listed["changed"].as_u64(), Some(2), "{listed}");

    let version = |key: &str| place.json(&["why", key])["version"].as_str().unwrap().to_owned();
    let held = version("mail/jones/2");
    assert_eq!(status(&server, "DELETE", &format!("/mail/jones/2?versionId={held}")), 403);
    assert_eq!(status(&server, "DELETE", "/mail/jones/2"), 204, "a delete marker removes nothing");
    let why = place.json(&["why", &format!("mail/jones/2@{held}")]);
    assert!(why["protected"].as_bool().unwrap() && why["reasons"][0].as_str().unwrap().contains("Smith v. Jones"));
    place.refused(2, &["--yes"], &["matter", "release", "trial", "--bucket", "mail"]);
    place.json(&["matter", "release", "trial", "--bucket", "mail", "--prefix", "jones/2", "--yes"]);
    assert_eq!(status(&server, "DELETE", &format!("/mail/jones/2?versionId={held}")), 204);
    place.json(&["matter", "release", "trial", "--bucket", "mail", "--yes"]);
    let other = version("mail/jones/1");
    assert_eq!(status(&server, "DELETE", &format!("/mail/jones/1?versionId={other}")), 403, "the matter tax stays");

    // What a search finds can be listed.
    let found = place.stele(&["find", "--bucket", "mail", "--matter", "tax"]).stdout;
    assert_eq!(String::from_utf8_lossy(&found).lines().count(), 2, "{found:?}");
    std::fs::write(place.path("found"), found).unwrap();
    let listed = place.json(&["matter", "put", "trial", "--list", &place.path("found")]);
    assert_eq!((listed["changed"].as_u64(), listed["failed"].as_u64()), (Some(2), Some(0)), "{listed}");
    place.json(&["matter", "release", "trial", "--list", &place.path("found"), "--yes"]);
    // A key with a line break is one line of the list, and is read back as it is.
    server.put("/mail/odd/two%0Alines", b"a letter");
    let found = place.stele(&["find", "--bucket", "mail", "--prefix", "odd/"]).stdout;
    assert!(found.starts_with(b"\"mail/odd/two\\nlines@"), "{}", String::from_utf8_lossy(&found));
    std::fs::write(place.path("odd"), &found).unwrap();
    let listed = place.json(&["matter", "put", "trial", "--list", &place.path("odd")]);
    assert_eq!((listed["changed"].as_u64(), listed["failed"].as_u64()), (Some(1), Some(0)), "{listed}");
    let shown = place.stele(&["matter", "show", "trial", "--versions"]).stdout;
    assert_eq!(String::from_utf8_lossy(&shown), String::from_utf8_lossy(&found));
    place.json(&["matter", "release", "trial", "--list", &place.path("odd"), "--yes"]);
    std::fs::write(place.path("wrong"), "mail/jones/3\n\njones\n").unwrap();
    place.refused(2, &["wrong, line 3: 'jones'"], &["matter", "put", "trial", "--list", &place.path("wrong")]);
    let read = ["find", "--bucket", "mail", "--matter", "tax", "--csv", "--officer", &anna];
    let csv = String::from_utf8(place.stele(&read).stdout).unwrap();
    assert!(csv.starts_with("bucket,key,") && csv.lines().count() == 3, "{csv}");
    let odd = place.stele(&["find", "--bucket", "mail", "--prefix", "odd/", "--csv"]).stdout;
    assert!(String::from_utf8_lossy(&odd).contains("\nmail,\"odd/two\nlines\","), "{odd:?}");

    // Another person is needed for a close.
    place.refused(9, &["once"], &["matter", "open", "trial", "--reason", "again"]);
    // Scripts tell by the exit code that a name is not there.
    place.refused(4, &["no matter `none`"], &["matter", "show", "none"]);
    place.refused(4, &["no matter `none`"], &["matter", "put", "none", "--bucket", "mail"]);
    place.refused(4, &["no matter `none`"], &["matter", "close", "none", "--officer", &anna]);
    place.refused(4, &["no matter `none`"], &["find", "--bucket", "mail", "--matter", "none"]);
    place.refused(4, &["waits for approval"], &["approve", "none", "--officer", &anna, "--yes"]);
    place.refused(4, &["`stele approve` lists"], &["approve", "none", "--officer", &anna]);
    place.refused(4, &["no matter `rebuild`"], &["catalog", "release", "--officer", &anna]);
    place.refused(4, &["no inventory `daily`"], &["bucket", "inventory", "mail", "daily"]);
    place.refused(4, &["no event was ever"], &["notifications", "forget", "none"]);
    let asked = place.json(&["matter", "close", "tax", "--officer", &anna]);
    let request = asked["id"].as_str().unwrap();
    place.refused(3, &["another person"], &["approve", request, "--officer", &anna, "--yes"]);
    assert_eq!(place.json(&["matter", "show", "tax"])["versions"].as_u64(), Some(2));
    let text = String::from_utf8(place.stele(&["matter", "show", "tax", "--versions"]).stdout).unwrap();
    assert!(text.contains(&format!("mail/jones/1@{other}")), "{text}");

    // A restart changes nothing.
    drop(server);
    let _server = place.up();
    let why = place.json(&["why", &format!("mail/jones/1@{other}")]);
    assert!(why["protected"].as_bool().unwrap() && why["matters"][0].as_str() == Some("tax"), "{why}");
}

#[test]
fn a_version_waits_for_the_event_of_its_class() {
    let place = Place::new("classes");
    let server = place.up();
    assert!(place.stele(&["bucket", "create", "records", "--lock"]).status.success());
    let terms = ["--initiation", "event", "--retver", "10", "--retmin", "30", "--action", "delete"];
    place.json(&[&["class", "create", "staff", "--mode", "governance"], &terms[..]].concat());
    place.refused(2, &["activate"], &["class", "bind", "records", "--default", "staff"]);
    place.json(&["class", "activate", "staff"]);
    let weaker = ["--initiation", "event", "--retver", "9", "--retmin", "30", "--action", "delete"];
    place.json(&[&["class", "create", "staff", "--mode", "governance"], &weaker[..]].concat());
    let compared = place.json(&["class", "activate", "staff", "--dry-run"]);
    assert_eq!(compared["rules"][1]["weaker"].as_bool(), Some(true), "{compared}");
    place.refused(3, &["weaker"], &["class", "activate", "staff"]);
    place.refused(4, &["no version 9"], &["class", "activate", "staff", "--version", "9"]);
    place.refused(4, &["no class `none`"], &["class", "activate", "none"]);
    place.refused(4, &["no class `none`"], &["class", "show", "none"]);
    place.refused(4, &["no class `none-such`"], &["class", "bind", "records", "--default", "none-such"]);
    place.json(&["class", "bind", "records", "--default", "none", "--rule", "staff:prefix=hr/,suffix=.pdf"]);

    server.put("/records/hr/smith.pdf", b"a contract");
    server.put("/records/hr/smith.txt", b"a note");
    let answer = server.send(server.ask("PUT", "/records/named").header("x-stele-class", "staff").body("x"));
    assert_eq!(answer.status, 200);
    // A copy of a version with a class, without one and with one.
    for (key, class) in [("loose", None), ("copied", Some("staff"))] {
        let copy = server.ask("PUT", &format!("/records/{key}")).header("x-amz-copy-source", "/records/named");
        let copy = class.into_iter().fold(copy, |copy, class| copy.header("x-stele-class", class));
        let answer = server.send(copy);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let unknown = server.ask("PUT", "/records/x").header("x-amz-copy-source", "/records/named");
    assert_eq!(server.send(unknown.header("x-stele-class", "none")).status, 400);
    for (key, class) in [
        ("hr/smith.pdf", Some("staff")),
        ("hr/smith.txt", None),
        ("named", Some("staff")),
        ("loose", None),
        ("copied", Some("staff")),
    ] {
        let why = place.json(&["why", &format!("records/{key}")]);
        assert_eq!(why["class"].as_str(), class, "{why}");
        assert_eq!(why["protected"].as_bool(), Some(class.is_some()), "{why}");
        let version = why["version"].as_str().unwrap();
        if class.is_some() {
            let delete = server.ask("DELETE", &format!("/records/{key}?versionId={version}"));
            let bypass = delete.header("x-amz-bypass-governance-retention", "true");
            assert_eq!(server.send(bypass).status, 403, "{key}");
        }
    }
    // No hold keeps it, and the answer speaks of none.
    let text = String::from_utf8(place.stele(&["why", "records/named"]).stdout).unwrap();
    assert!(text.contains("waits for the event") && !text.contains("hold is released"), "{text}");
    let told = place.json(&["event", "--bucket", "records", "--prefix", "hr/", "--at", "2020-01-01"]);
    assert_eq!((told["told"].as_u64(), told["failed"].as_u64()), (Some(1), Some(0)), "{told}");
    place.refused(2, &["once"], &["event", "records/hr/smith.pdf", "--at", "2030-01-01"]);
    drop(server);
    let _server = place.up();
    let why = place.json(&["why", "records/hr/smith.pdf"]);
    assert!(why["deletable_from"].is_string() && why["protected"].as_bool().unwrap(), "{why}");
    let listed = place.stele(&["class", "expiring", "--before", "2100-01-01"]);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.contains("hr/smith.pdf") && text.contains("then delete") && !text.contains("named"), "{text}");
    let until = &why["deletable_from"].as_str().unwrap()[..10];
    let period = |from: &str, bucket: &str, prefix: &str| {
        let asked =
            ["class", "expiring", "--from", from, "--before", "2100-01-01", "--bucket", bucket, "--prefix", prefix];
        let listed = place.stele(&asked);
        assert!(listed.status.success(), "{listed:?}");
        String::from_utf8(listed.stdout).unwrap().lines().count()
    };
    assert_eq!(period(until, "records", "hr/"), 1);
    assert_eq!(period("2099-01-01", "records", "hr/"), 0);
    assert_eq!(period(until, "records", "tax/"), 0);
    place.refused(2, &["2027-01-01"], &["class", "expiring", "--from", "2027-01-01", "--before", "2027-01-01"]);
}
