//! Shares over NFS with clients of other projects: libnfs's tools and QEMU, against `stele serve`.
//!
//! If a client is not installed, the test says so and passes, except in CI.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::support;
use crate::support::{Place, Server, installed};
use serde_json::Value;

pub fn serve(place: &Place) -> Server {
    place.edit_config(|text| match text.contains("[nfs]\nlisten") {
        true => text,
        false => text.replace("[nfs]\n", "[nfs]\nlisten = \"127.0.0.1:0\"\n"),
    });
    place.serve()
}

pub fn run(command: &str, arguments: &[&str]) -> Output {
    // A client that hangs must not stop the tests.
    Command::new("timeout").arg("120").arg(command).args(arguments).stdin(Stdio::null()).output().unwrap()
}

pub fn good(command: &str, arguments: &[&str]) -> Vec<u8> {
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

pub fn files(place: &Place, path: &str) -> Vec<Value> {
    place.json(&["share", "ls", path]).as_array().unwrap().clone()
}

/// Waits until every file of the share is archived.
fn archived(place: &Place, name: &str) {
    support::wait_for("the archive to have every file", || {
        (place.json(&["share", "status", name])["status"]["open_files"] == 0).then_some(())
    });
}

/// Random bytes in a file of the test's directory.
pub fn local(place: &Place, name: &str, seed: u64, length: usize) -> (String, Vec<u8>) {
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
    let share = place.json(&["share", "create", "home", "--cache", "64MiB", "--owner", "1000:1000", "--mode", "0755"]);
    place.json(&["share", "set", "home", "--archive-after", "1"]);
    let shown = String::from_utf8(place.stele(&["share", "show", "home"]).stdout).unwrap();
    let port = share["nfs_port"].as_u64().unwrap();
    for line in [
        "archives                   after 1 s without a change".to_owned(),
        "versions of removed files  keep".to_owned(),
        "caching                    on".to_owned(),
        format!("  mount -t nfs -o vers=4.1,port={port} 127.0.0.1:/home /mnt"),
        format!("  mount -t nfs -o vers=3,nolock,proto=tcp,port={port},mountport={port} 127.0.0.1:/home /mnt"),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "no line {line:?}: {shown}");
    }
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
    // A command looks before it asks.
    place.refused(3, &["the cache of share 'home'"], &["volume", "delete", "share-home"]);
    place.refused(4, &["no share is called 'nope'"], &["share", "remove", "nope"]);
    place.refused(2, &["add --yes"], &["share", "remove", "home"]);
    server.stop();
}

/// A bucket that became a share is no other bucket any more.
#[test]
fn a_share_that_is_refused_leaves_the_bucket_and_the_pool_as_they_were() {
    let place = Place::new("share-refused");
    let server = place.up();
    place.json(&["bucket", "create", "scans"]);
    let volumes = || place.json(&["volume", "list"]).as_array().unwrap().len();
    let before = volumes();
    place.refused(2, &["16 MiB"], &["share", "create", "scans", "--cache", "1MiB"]);
    place.refused(
        2,
        &["Object Lock", "--lock"],
        &["share", "create", "scans", "--cache", "16MiB", "--retention-min", "30"],
    );
    server.put("/scans/a", b"an object");
    // It holds an object, so it becomes no share, and gets no cache.
    let filled = place.stele(&["share", "create", "scans", "--cache", "16MiB"]);
    assert!(!filled.status.success(), "{filled:?}");
    assert_eq!(volumes(), before, "a cache is left");
    // What was made for a refused one does not refuse the right command.
    let locked = ["share", "create", "big", "--lock", "--retention", "compliance:7y", "--cache"];
    place.refused(2, &["16 MiB"], &[&locked[..], &["1MiB"]].concat());
    place.json(&[&locked[..], &["16MiB"]].concat());
    assert_eq!(volumes(), before + 1);
    let share = |name: &str| place.json(&["bucket", "show", name])["share"].as_bool();
    assert_eq!((share("scans"), share("big")), (Some(false), Some(true)));
    let shown = |words: &[&str]| String::from_utf8(place.stele(words).stdout).unwrap();
    let listed = shown(&["bucket", "list"]);
    assert!(listed.lines().next().is_some_and(|names| names.contains(" share ")), "{listed}");
    // Why a client cannot mount it.
    let unserved = shown(&["share", "show", "big"]);
    assert!(unserved.contains("`listen` under [nfs]"), "{unserved}");
    server.stop();
    let closed = shown(&["share", "show", "big"]);
    assert!(closed.contains("Only a running server opens shares"), "{closed}");
    for change in [&["set", "big", "--archive-after", "5"][..], &["remove", "big", "--yes"]] {
        place.refused(3, &["the store is open for reading only; start the server"], &[&["share"], change].concat());
    }
    let states = shown(&["share", "status"]);
    let line: Vec<&str> = states.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(line, ["big", "not", "open", "-", "-", "-", "-", "-", "-"], "{states}");
}

/// Two mounts are two clients: neither kernel learns what the other one appends.
#[test]
fn appends_through_two_mounts_all_stay() {
    let place = Place::new("share-appends");
    let server = place.up();
    place.json(&["share", "create", "logs", "--cache", "16MiB"]);
    let mounts = ["first", "second"].map(|name| place.path(name));
    mounts.iter().for_each(|mount| std::fs::create_dir(mount).unwrap());
    if !place.stele(&["share", "mount", "logs", &mounts[0]]).status.success() {
        println!("mounting needs root and /dev/fuse; left out");
        server.stop();
        return;
    }
    place.json(&["share", "mount", "logs", &mounts[1]]);
    let open = |mount: &String| std::fs::OpenOptions::new().append(true).create(true).open(format!("{mount}/log"));
    let mut logs = mounts.each_ref().map(|mount| open(mount).unwrap());
    let mut expected = String::new();
    for number in 0..100 {
        let line = format!("line {number}\n");
        logs[number % 2].write_all(line.as_bytes()).unwrap();
        expected += &line;
    }
    drop(logs);
    assert_eq!(std::fs::read_to_string(format!("{}/log", mounts[0])).unwrap(), expected);
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
    assert_eq!(place.json(&["why", "records/ledger"])["key"], why["key"], "the archive's command knows the path too");
    let key = why["key"].as_str().unwrap().split_once("inode ").unwrap().1.trim_end_matches(')').to_owned();
    assert_eq!(place.json(&["why", &format!("records/{key}")])["version"], why["version"]);
    place.refused(4, &["records/absent"], &["why", "records/absent"]);
    let port = share["nfs_port"].as_u64().unwrap() as u16;
    let rofs = Err(30);
    assert_eq!(support::nfs::set_mode(port, "/records", "ledger", 1000, 0o644), rofs);
    assert_eq!(support::nfs::remove(port, "/records", "ledger", 1000), rofs);
    let mut client = support::nfs::Client::new(port, 1000);
    let root = client.mount("/records");
    let file = client.lookup(&root, "ledger").unwrap();
    let verifier = client.verifier(&file);
    place.refused(3, &["not empty"], &["share", "remove", "records", "--yes"]);
    // A share that was opened a second time would have another verifier, and its clients the files
    // of the first.
    assert!(client.verifier(&file) == verifier, "the refused removal opened the share anew");
    server.kill();
    let server = serve(&place);
    let share = place.json(&["share", "status", "records"]);
    let port = share["nfs_port"].as_u64().unwrap() as u16;
    assert_eq!(support::nfs::remove(port, "/records", "ledger", 1000), rofs);
    assert!(good("nfs-cat", &[&url(&share, "ledger", 1000)]) == bytes, "the committed file differs");
    assert!(place.json(&["audit", "verify"])["findings"].as_array().unwrap().is_empty());
    server.stop();
}

#[test]
fn the_self_test_of_a_share_tries_every_way_to_its_canary() {
    let place = Place::new("share-self-test");
    place.pool(5);
    let server = serve(&place);
    for share in ["records", "theirs"] {
        place.json(&["share", "create", share, "--lock", "--cache", "64MiB"]);
    }
    let tested = place.json(&["self-test", "--bucket", "records"]);
    let result = &tested[0];
    assert_eq!(
        (&result["is_share"], &result["intact"], &result["skipped"]),
        (&true.into(), &true.into(), &Value::Null)
    );
    let attempts = result["attempts"].as_array().unwrap();
    assert!(attempts.iter().all(|attempt| attempt["refused"] == true), "{attempts:#?}");
    let through = |way: &str| attempts.iter().filter(|attempt| attempt["through"] == way).count();
    let mounted = if mounts() { 8 } else { 0 };
    assert_eq!(["archive", "S3", "administration socket", "NFS", "mount"].map(through), [11, 8, 2, 9, mounted]);
    let canary = &files(&place, "records/.stele")[0];
    assert_eq!((&canary["name"], &canary["state"]), (&"canary".into(), &"locked".into()), "{canary}");
    // The same canary serves the next test, also after a restart.
    let keys = server.keys();
    server.stop();
    let server = serve(&place).with_keys(keys);
    let again = place.json(&["self-test", "--bucket", "records"]);
    assert_eq!((&again[0]["canary"], &again[0]["intact"]), (&result["canary"], &true.into()));

    // A client's file at that path stays, and the test says why there is none.
    support::server::good(server.put("/theirs/.stele/canary", b"theirs"));
    let refused = place.refused(3, &["another owner"], &["self-test", "--bucket", "theirs"]);
    assert!(refused.contains("rename it"), "{refused}");
    assert_eq!(support::server::good(server.get("/theirs/.stele/canary")).body, b"theirs");
    server.stop();
}

#[test]
fn a_share_with_object_lock_goes_with_the_versions_of_its_removed_files() {
    if !clients() {
        return;
    }
    let place = Place::new("share-versions");
    place.pool(5);
    let server = serve(&place);
    let used = || place.json(&["bucket", "show", "records"])["versions"].as_u64().unwrap();
    let fill = |options: &[&str]| {
        let create = ["share", "create", "records", "--lock", "--cache", "64MiB", "--owner", "1000:1000"];
        let share = place.json(&[&create, options].concat());
        let port = share["nfs_port"].as_u64().unwrap() as u16;
        for name in ["first", "second"] {
            let (path, _) = local(&place, name, 1, 50_000);
            good("nfs-cp", &[&path, &url(&share, name, 1000)]);
            place.json(&["share", "archive", &format!("records/{name}")]);
            support::nfs::remove(port, "/records", name, 1000).unwrap();
        }
        share
    };
    let share = fill(&["--removed-versions", "keep"]);
    assert_eq!(share["removed_versions"], "keep");
    let refusal = place.refused(2, &["--removed-versions delete"], &["share", "remove", "records", "--yes"]);
    assert!(used() >= 2, "{refusal}");
    place.refused(2, &["--yes"], &["share", "set", "records", "--removed-versions", "delete"]);
    place.json(&["share", "set", "records", "--removed-versions", "delete", "--yes"]);
    support::wait_for("the versions to go", || (used() == 0).then_some(()));
    place.json(&["share", "remove", "records", "--yes"]);

    let share = fill(&[]);
    assert_eq!(share["removed_versions"], "delete");
    place.json(&["share", "remove", "records", "--yes"]);
    place.refused(4, &["records"], &["bucket", "show", "records"]);
    assert!(place.json(&["audit", "verify"])["findings"].as_array().unwrap().is_empty());
    server.stop();
}

#[test]
fn a_file_that_the_archive_refuses_is_named_in_an_alarm() {
    if !clients() {
        return;
    }
    let place = Place::new("share-stuck");
    place.pool(5);
    let server = serve(&place);
    let share = place.json(&["share", "create", "home", "--cache", "64MiB", "--archive-after", "1", "--mode", "0777"]);
    place.json(&["bucket", "set", "home", "--quota", "10KiB"]);
    let (large, _) = local(&place, "large", 1, 50_000);
    good("nfs-cp", &[&large, &url(&share, "large", 1000)]);
    let alarms = || {
        let status = place.json(&["pool", "status"]);
        let standing = status["standing"].as_array().unwrap().clone();
        standing.into_iter().find(|alarm| alarm["kind"] == "share-archiving")
    };
    let alarm = support::wait_for("the alarm", alarms);
    assert_eq!(alarm["subject"], "home");
    let message = alarm["message"].as_str().unwrap();
    assert!(message.contains("`home/large`") && message.contains("quota"), "{message}");
    let shown = String::from_utf8(place.stele(&["share", "status", "home"]).stdout).unwrap();
    assert!(shown.contains("home/large") && shown.contains("quota"), "{shown}");
    assert_eq!(place.json(&["share", "status", "home"])["status"]["refused_path"], "large");
    place.json(&["bucket", "set", "home", "--quota", "none"]);
    archived(&place, "home");
    support::wait_for("the alarm to end", || alarms().is_none().then_some(()));
    server.stop();
}

/// Whether shares can be mounted here: FUSE takes root.
pub fn mounts() -> bool {
    installed(&["sh", "-c", "test $(id -u) = 0 && test -e /dev/fuse"])
}

#[test]
fn a_share_is_mounted_and_unmounted_by_command() {
    if !mounts() {
        return;
    }
    let place = Place::new("share-mount");
    place.pool(5);
    let server = serve(&place);
    place.json(&["share", "create", "home", "--cache", "64MiB", "--archive-after", "1"]);
    let directory = place.path("mounted");
    std::fs::create_dir(&directory).unwrap();
    place.json(&["share", "mount", "home", &directory]);
    place.refused(9, &["already"], &["share", "mount", "home", &directory]);
    let file = format!("{directory}/a/b");
    std::fs::create_dir(format!("{directory}/a")).unwrap();
    std::fs::write(&file, vec![7; 100_000]).unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    archived(&place, "home");
    assert_eq!(files(&place, "home/a")[0]["state"], "archived");
    place.refused(3, &["mounted"], &["share", "remove", "home", "--yes"]);
    std::fs::remove_dir_all(format!("{directory}/a")).unwrap();
    place.json(&["share", "unmount", &directory]);
    place.refused(4, &["no share"], &["share", "unmount", &directory]);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    place.json(&["share", "remove", "home", "--yes"]);
    assert!(place.json(&["share", "list"]).as_array().unwrap().is_empty());
    place.json(&["bucket", "create", "home"]);
    server.stop();
}

#[test]
fn a_share_is_mounted_again_after_a_crash() {
    if !mounts() {
        return;
    }
    let place = Place::new("share-dead-mount");
    place.pool(5);
    let server = serve(&place);
    place.json(&["share", "create", "home", "--cache", "64MiB"]);
    let directory = place.path("mounted");
    std::fs::create_dir(&directory).unwrap();
    place.json(&["share", "mount", "home", &directory]);
    std::fs::write(format!("{directory}/a"), b"kept").unwrap();
    std::fs::File::open(format!("{directory}/a")).unwrap().sync_all().unwrap();
    server.kill();
    assert!(std::fs::read_dir(&directory).is_err(), "the mount outlives its server");
    let server = serve(&place);
    place.json(&["share", "mount", "home", &directory]);
    assert_eq!(std::fs::read(format!("{directory}/a")).unwrap(), b"kept");
    server.kill();
    let server = serve(&place);
    place.json(&["share", "unmount", &directory]);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    place.refused(4, &["no share"], &["share", "unmount", &directory]);
    server.stop();
}

#[test]
fn a_share_is_mounted_at_an_empty_directory_alone() {
    let place = Place::new("share-mount-places");
    place.pool(5);
    let server = serve(&place);
    place.json(&["share", "create", "home", "--cache", "64MiB"]);
    let full = place.path("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(format!("{full}/file"), b"").unwrap();
    let data = place.path("");
    let above = std::path::Path::new(&data).parent().unwrap().to_str().unwrap();
    for directory in [full.as_str(), data.as_str(), above] {
        place.refused(3, &["empty directory"], &["share", "mount", "home", directory]);
    }
    place.refused(4, &["is no directory"], &["share", "mount", "home", &format!("{full}/file")]);
    server.stop();
}

#[test]
fn a_pin_beyond_the_limit_is_refused_with_sizes() {
    let place = Place::new("share-pin");
    place.pool(5);
    let server = serve(&place);
    place.json(&["share", "create", "home", "--cache", "16MiB", "--archive-after", "1"]);
    support::server::good(server.put("/home/large", &vec![1; 9 << 20]));
    place.refused(3, &["would take 9 MiB", "8 MiB are for them"], &["share", "pin", "home/large"]);
    // A refusal about a file names it.
    support::server::good(server.put("/home/folder/", b""));
    for command in ["archive", "pin", "why"] {
        place.refused(2, &["`home/folder`: "], &["share", command, "home/folder"]);
    }
    place.json(&["share", "set", "home", "--caching", "off"]);
    place.refused(3, &["`home/large`: the cache of the share is off"], &["share", "pin", "home/large"]);
    server.stop();
}

#[test]
fn a_cache_volume_is_named_as_that_of_its_share() {
    let place = Place::new("share-cache-volume");
    place.pool(5);
    let server = serve(&place);
    // The pool has no room for a cache of this size, and says how much it would take.
    place.refused(
        2,
        &["a cache of 1 TiB in mirror-2 takes 2 TiB on drives"],
        &["share", "create", "home", "--cache", "1TiB"],
    );
    for name in ["global", "homes", "printers"] {
        place.refused(2, &[name, "Samba"], &["share", "create", name, "--cache", "16MiB"]);
    }
    let lock = ["--retention", "governance:1d", "--retention-min", "2", "--retention-max", "30"];
    place.json(&[&["share", "create", "home", "--cache", "16MiB"][..], &lock].concat());
    let carries = "volume 'share-home' carries the cache of share 'home'";
    place.refused(3, &[carries, "`stele share remove`"], &["volume", "delete", "share-home", "--yes"]);
    place.refused(3, &[carries], &["volume", "resize", "share-home", "20MiB"]);
    place.refused(3, &[carries], &["volume", "export", "share-home", "--nbd"]);
    let open = place.json(&["share", "set", "home", "--retention-max", "0"]);
    assert_eq!(
        (&open["retention_min_days"], open["retention_max_days"].is_null()),
        (&serde_json::json!(2), true),
        "{open}"
    );
    server.stop();
}

/// Speaks RPC-with-TLS as RFC 9289 says: the probe in the clear, the handshake with its protocol
/// name, then a call.
const TLS_CLIENT: &str = r#"
import socket, ssl, struct, sys
port = int(sys.argv[1])
def call(stream, xid, flavor, procedure):
    body = struct.pack('>IIIIIIIIII', xid, 0, 2, 100003, 3, procedure, flavor, 0, 0, 0)
    stream.sendall(struct.pack('>I', 0x80000000 | len(body)) + body)
    mark = struct.unpack('>I', stream.recv(4, socket.MSG_WAITALL) if not isinstance(stream, ssl.SSLSocket) else stream.recv(4))[0]
    answer = b''
    while len(answer) < mark & 0x7fffffff:
        answer += stream.recv((mark & 0x7fffffff) - len(answer))
    return answer
plain = socket.create_connection(('127.0.0.1', port))
# GETATTR without a handle: denied in the clear, and garbage arguments inside TLS.
answer = call(plain, 1, 0, 1)
assert answer[8:12] == b'\0\0\0\1', answer
answer = call(plain, 2, 7, 0)
assert b'STARTTLS' in answer, answer
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
context.set_alpn_protocols(['sunrpc'])
secure = context.wrap_socket(plain)
assert secure.selected_alpn_protocol() == 'sunrpc'
answer = call(secure, 3, 0, 0)
assert answer[8:12] == bytes(4) and answer[20:24] == bytes(4), answer
answer = call(secure, 4, 0, 1)
assert answer[8:12] == bytes(4) and answer[20:24] == b'\0\0\0\4', answer
"#;

#[test]
fn nfs_speaks_tls_where_a_certificate_is_configured() {
    if !installed(&["python3", "-c", "import ssl"]) {
        return;
    }
    let place = Place::new("share-tls");
    place.pool(5);
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(place.path("nfs.pem"), made.cert.pem()).unwrap();
    std::fs::write(place.path("nfs.key"), made.signing_key.serialize_pem()).unwrap();
    place.edit_config(|text| {
        let keys = "[nfs]\nlisten = \"127.0.0.1:0\"\ntls_certificate = \"nfs.pem\"\ntls_key = \"nfs.key\"\n";
        text.replace("[nfs]\ntls_required = false\n", &format!("{keys}tls_required = true\n"))
    });
    let server = place.serve();
    let port = server.ready["nfs"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    good("python3", &["-c", TLS_CLIENT, &port]);
    server.stop();
}

#[test]
fn an_authority_of_clients_keeps_out_clients_without_a_certificate() {
    let place = Place::new("share-authority");
    place.pool(5);
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(place.path("nfs.pem"), made.cert.pem()).unwrap();
    std::fs::write(place.path("nfs.key"), made.signing_key.serialize_pem()).unwrap();
    let keys = "[nfs]\nlisten = \"127.0.0.1:0\"\nclient_authority = \"nfs.pem\"\n";
    place.edit_config(|text| text.replace("[nfs]\n", keys));
    place.listen_anywhere();
    let said = Server::start(&place, &["serve"]).err().expect("a server without a certificate starts");
    assert!(said.contains("client_authority needs both"), "{said}");
    place.edit_config(|text| text.replace("[nfs]\n", "[nfs]\ntls_certificate = \"nfs.pem\"\ntls_key = \"nfs.key\"\n"));
    let server = place.serve();
    let port = server.ready["nfs"].as_str().unwrap().rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    // GETATTR in the clear, without credentials and without a handle.
    let words = [0x8000_0028, 7, 0, 2, 100_003, 3, 1, 0, 0, 0, 0_u32];
    let call: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    std::io::Write::write_all(&mut stream, &call).unwrap();
    let mut answer = [0; 24];
    std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
    // A reply that is denied for its credentials: they are too weak.
    let denied: Vec<u8> = [0x8000_0014, 7, 1, 1, 1, 5_u32].iter().flat_map(|word| word.to_be_bytes()).collect();
    assert_eq!(answer[..], denied[..]);
    server.stop();
}
