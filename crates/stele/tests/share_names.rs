//! Files of shares by the names that commands have for them.

use serde_json::Value;

use crate::share::{files, mounts, serve};
use crate::support;
use crate::support::Place;

/// The rules of names count every version; the newest one alone could be deleted.
#[test]
fn why_names_the_former_version_that_keeps_a_file() {
    let place = Place::new("share-why");
    place.pool(5);
    let server = serve(&place);
    place.json(&["share", "create", "records", "--lock", "--cache", "64MiB"]);
    server.put("/records/deed", b"first");
    let hold = b"<LegalHold><Status>ON</Status></LegalHold>";
    support::server::good(server.send(server.ask("PUT", "/records/deed?legal-hold=").body(hold)));
    server.put("/records/deed", b"second");
    let why = place.json(&["share", "why", "records/deed"]);
    assert_eq!((&why["protected"], &why["deletable_from"]), (&true.into(), &Value::Null), "{why}");
    let reason = why["reasons"][0].as_str().unwrap();
    assert!(reason.contains("keeps its name") && reason.contains("legal hold"), "{why}");
    assert_eq!(place.json(&["why", "records/deed"])["reasons"], why["reasons"]);
    assert_eq!(server.delete("/records/deed").status, 403);
    server.stop();
}

#[test]
fn why_of_a_directory_counts_the_committed_files_below_it() {
    let place = Place::new("share-why-directory");
    place.pool(5);
    let server = serve(&place);
    place.json(&["share", "create", "records", "--retention", "compliance:1d", "--cache", "64MiB"]);
    server.put("/records/2026/march/deed", b"a deed");
    server.put("/records/empty/", b"");
    for (directory, told) in [("2026", true), ("2026/march", true), ("empty", false)] {
        let refused = place.refused(2, &["only regular files"], &["share", "why", &format!("records/{directory}")]);
        assert_eq!(refused.contains("1 committed file is below it"), told, "{refused}");
    }
    server.stop();
}

#[test]
fn a_file_whose_name_is_no_text_is_named_by_its_number() {
    use std::os::unix::ffi::OsStrExt;
    if !mounts() {
        return;
    }
    let place = Place::new("share-names");
    place.pool(5);
    let server = serve(&place);
    place.json(&["share", "create", "home", "--cache", "64MiB"]);
    let directory = place.path("mounted");
    std::fs::create_dir(&directory).unwrap();
    place.json(&["share", "mount", "home", &directory]);
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    std::fs::write(std::path::Path::new(&directory).join(name), b"Latin-1").unwrap();
    let file = &files(&place, "home")[0];
    assert_eq!(file["name"], "caf\u{fffd}", "{file}");
    let named = format!("home/{}", file["inode"].as_str().unwrap());
    assert_eq!(place.json(&["share", "archive", &named])["state"], "archived");
    assert_eq!(place.json(&["share", "why", &named])["protected"], false);
    assert_eq!(files(&place, &named)[0]["inode"], file["inode"]);
    place.refused(4, &["there is no such file"], &["share", "archive", "home/00000000000fffff"]);
    place.json(&["share", "unmount", &directory]);
    server.stop();
}
