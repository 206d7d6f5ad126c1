//! Named matters from the command line: over S3, a restart, and the close by two officers.

mod support;

use std::path::Path;

use support::{Place, Server};

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
    drop(server);
    let server = place.up();
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

    // Another person is needed for a close.
    place.refused(3, &[], &["matter", "open", "trial", "--reason", "again"]);
    let asked = place.json(&["matter", "close", "tax", "--officer", &anna]);
    let request = asked["id"].as_str().unwrap();
    place.refused(3, &["another person"], &["approve", request, "--officer", &anna, "--yes"]);
    assert_eq!(place.json(&["matter", "show", "tax"])["versions"].as_u64(), Some(2));
    let text = String::from_utf8(place.stele(&["matter", "show", "tax", "--versions"]).stdout).unwrap();
    assert!(text.contains(&format!("mail/jones/1@{other}")), "{text}");
}
