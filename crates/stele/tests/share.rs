//! Shares over NFS with clients of other projects: libnfs's tools and QEMU, against `stele serve`.
//!
//! If a client is not installed, the test says so and passes, except in CI.

mod support;

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::{Place, Server, installed};

fn serve(place: &Place) -> Server {
    place.edit_config(|text| match text.contains("[nfs]\nlisten") {
        true => text,
        false => text.replace("[nfs]\n", "[nfs]\nlisten = \"127.0.0.1:0\"\n"),
    });
    place.serve()
}

fn run(command: &str, arguments: &[&str]) -> Output {
    // A client that hangs must not stop the tests.
    Command::new("timeout").arg("120").arg(command).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn good(command: &str, arguments: &[&str]) -> Vec<u8> {
    let output = run(command, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command} {arguments:?}: {}{said}", String::from_utf8_lossy(&output.stdout));
    output.stdout
}

/// Whether libnfs's tools are here.
fn clients() -> bool {
    ["nfs-cp", "nfs-cat", "nfs-ls"].iter().all(|tool| installed(&["sh", "-c", &format!("command -v {tool}")]))
}

/// The URL of a file or directory, as libnfs and QEMU take it, as this user.
fn url(share: &Value, path: &str, uid: u32) -> String {
    let port = share["nfs_port"].as_u64().unwrap();
    let name = share["name"].as_str().unwrap();
    format!("nfs://127.0.0.1/{name}/{path}?version=3&nfsport={port}&mountport={port}&uid={uid}&gid={uid}")
}

fn files(place: &Place, path: &str) -> Vec<Value> {
    place.json(&["share", "ls", path]).as_array().unwrap().clone()
}

/// Waits until every file of the share is archived.
fn archived(place: &Place, name: &str) {
    support::wait_for("the archive to have every file", || {
        (place.json(&["share", "status", name])["status"]["open_files"] == 0).then_some(())
    });
}

/// Random bytes in a file of the test's directory.
fn local(place: &Place, name: &str, seed: u64, length: usize) -> (String, Vec<u8>) {
    let mut bytes = vec![0; length];
    stele_ground::Dice::new(seed).fill(&mut bytes);
    let path = place.path(name);
    std::fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

#[test]
fn stock_clients_store_files_that_are_archived_and_survive_a_kill() {
    if !clients() {
        return;
    }
    let place = Place::new("share-files");
    place.pool(5);
    let server = serve(&place);
    let share =
        place.json(&["share", "create", "home", "--cache", "64MiB", "--owner", "1000:1000", "--archive-after", "1"]);
    let (small, bytes) = local(&place, "small", 1, 5_000);
    let (large, content) = local(&place, "large", 2, 9 << 20);
    good("nfs-cp", &[&small, &url(&share, "small", 1000)]);
    good("nfs-cp", &[&large, &url(&share, "large", 1000)]);
    let listed = String::from_utf8(good("nfs-ls", &[&url(&share, "", 1000)])).unwrap();
    assert!(listed.contains("small") && listed.contains("large"), "{listed}");
    assert!(good("nfs-cat", &[&url(&share, "large", 1000)]) == content, "the file read over NFS differs");
    // Another user has no right to write in the directory.
    assert!(!run("nfs-cp", &[&small, &url(&share, "theirs", 1001)]).status.success());
    archived(&place, "home");
    let states: Vec<Value> = files(&place, "home").iter().map(|file| file["state"].clone()).collect();
    assert_eq!(states, ["archived", "archived"]);
    let (again, other) = local(&place, "again", 3, 70_001);
    good("nfs-cp", &[&again, &url(&share, "again", 1000)]);
    server.kill();

    let server = serve(&place);
    let share = place.json(&["share", "status", "home"]);
    assert!(good("nfs-cat", &[&url(&share, "small", 1000)]) == bytes, "an archived file differs after a kill");
    assert!(good("nfs-cat", &[&url(&share, "large", 1000)]) == content, "an archived file differs after a kill");
    assert!(good("nfs-cat", &[&url(&share, "again", 1000)]) == other, "a committed file differs after a kill");
    // S3 does not reach behind the gateway.
    assert_ne!(server.get("/home/0000000000000010").status, 200);
    place.refused(3, &["not empty"], &["share", "remove", "home", "--yes"]);
    place.refused(3, &["share"], &["volume", "delete", "share-home", "--yes"]);
    server.stop();
}

#[test]
fn an_image_on_a_share_works_for_qemu() {
    if !installed(&["qemu-img", "--version"]) || !installed(&["sh", "-c", "ls /usr/lib/*/qemu/block-nfs.so"]) {
        return;
    }
    let place = Place::new("share-qemu");
    place.pool(5);
    let server = serve(&place);
    let share = place.json(&["share", "create", "vms", "--cache", "128MiB", "--squash", "none"]);
    let image = format!(
        "nfs://127.0.0.1/vms/disk.img?nfsport={0}&mountport={0}&uid=0&gid=0",
        share["nfs_port"].as_u64().unwrap()
    );
    // QEMU passes the user and the ports on to libnfs by names of its own.
    let image = image.split("&uid").next().unwrap().to_owned();
    let made = run("qemu-img", &["create", "-f", "raw", &image, "48M"]);
    if String::from_utf8_lossy(&made.stderr).contains("Unknown NFS parameter") {
        println!("this QEMU cannot be told the port of an NFS server; left out");
        server.stop();
        return;
    }
    assert!(made.status.success(), "{made:?}");
    good("qemu-img", &["bench", "-f", "raw", "-w", "-c", "2000", "-d", "16", "-s", "4096", &image]);
    good("qemu-img", &["bench", "-f", "raw", "-c", "2000", "-d", "16", "-s", "4096", &image]);
    server.stop();
}

#[test]
fn a_committed_file_stays_whatever_an_operator_or_a_client_tries() {
    if !clients() {
        return;
    }
    let place = Place::new("share-worm");
    place.pool(5);
    let server = serve(&place);
    let share = place.json(&[
        "share",
        "create",
        "records",
        "--cache",
        "64MiB",
        "--retention",
        "compliance:30d",
        "--owner",
        "1000:1000",
    ]);
    assert_eq!((&share["commits"], &share["default_retention"]), (&Value::Bool(true), &"compliance:30d".into()));
    let (ledger, bytes) = local(&place, "ledger", 4, 123_456);
    good("nfs-cp", &[&ledger, &url(&share, "ledger", 1000)]);
    support::nfs::set_mode(share["nfs_port"].as_u64().unwrap() as u16, "/records", "ledger", 1000, 0o444).unwrap();
    let file = &files(&place, "records")[0];
    assert_eq!((&file["state"], &file["mode"]), (&"locked".into(), &"0444".into()), "{file}");
    let why = place.json(&["share", "why", "records/ledger"]);
    assert_eq!((&why["protected"], &why["mode"]), (&Value::Bool(true), &"COMPLIANCE".into()), "{why}");
    let port = share["nfs_port"].as_u64().unwrap() as u16;
    let rofs = Err(30);
    assert_eq!(support::nfs::set_mode(port, "/records", "ledger", 1000, 0o644), rofs);
    assert_eq!(support::nfs::remove(port, "/records", "ledger", 1000), rofs);
    place.refused(3, &["not empty"], &["share", "remove", "records", "--yes"]);
    server.kill();
    let server = serve(&place);
    let share = place.json(&["share", "status", "records"]);
    let port = share["nfs_port"].as_u64().unwrap() as u16;
    assert_eq!(support::nfs::remove(port, "/records", "ledger", 1000), rofs);
    assert!(good("nfs-cat", &[&url(&share, "ledger", 1000)]) == bytes, "the committed file differs");
    assert!(place.json(&["audit", "verify"])["findings"].as_array().unwrap().is_empty());
    server.stop();
}
