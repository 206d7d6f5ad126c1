//! `stele backup` as a user meets it: into a directory, and into a bucket of a running server.

mod support;

use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::{Place, Server, content, installed};

/// A place with a password and some files.
fn place(name: &str) -> Place {
    let place = Place::new(name);
    std::fs::write(place.path("password"), "correct horse\n").unwrap();
    for (number, length) in [0, 1, 5000, 300_000, 3_000_000].into_iter().enumerate() {
        let path = place.path(&format!("files/{}/file {number}", number % 2));
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(path, content(number as u64, length)).unwrap();
    }
    symlink("0/file 0", place.path("files/link")).unwrap();
    std::fs::hard_link(place.path("files/0/file 2"), place.path("files/1/again")).unwrap();
    place
}

fn backup(place: &Place, repository: &str, keys: Option<(String, String)>, arguments: &[&str]) -> Output {
    let mut command: Command = place.command(&[&["backup"], arguments].concat());
    command.env("STELE_BACKUP_REPOSITORY", repository).env("STELE_BACKUP_PASSWORD_FILE", place.path("password"));
    command.env("XDG_CACHE_HOME", place.path("cache"));
    if let Some((access, secret)) = keys {
        command.env("AWS_ACCESS_KEY_ID", access).env("AWS_SECRET_ACCESS_KEY", secret);
    }
    command.stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn code(output: &Output, expected: i32) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(output.status.code(), Some(expected), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout).lines().next().map_or(Value::Null, |line| serde_json::from_str(line).unwrap_or(Value::Null))
}

/// Nothing that rsync would bring over differs: content, modes, owners, times, links, attributes.
fn same(first: &str, second: &str) {
    if !installed(&["rsync", "--version"]) {
        return;
    }
    let options = ["-aHAXn", "--checksum", "--delete", "--itemize-changes"];
    let output =
        Command::new("rsync").args(options).args([format!("{first}/"), format!("{second}/")]).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_directory_from_the_first_backup_to_the_last_prune() {
    let place = place("backup");
    let (repository, data) = (place.path("repository"), place.path("files"));
    let run = |arguments: &[&str]| backup(&place, &repository, None, arguments);
    assert_eq!(code(&run(&["run", &data, "--json"]), 10)["kind"], "no-repository");
    code(&run(&["init"]), 0);
    code(&run(&["init"]), 9);
    std::fs::write(place.path("wrong"), "another\n").unwrap();
    assert_eq!(
        code(&run(&["snapshots", "--json", "--password-file", &place.path("wrong")]), 12)["kind"],
        "wrong-password"
    );
    let first = code(&run(&["run", &data, "--json"]), 0);
    assert_eq!((first["files"].as_u64(), first["problems"].as_u64()), (Some(6), Some(0)));
    let second = code(&run(&["run", &data, "--json", "--tag", "second"]), 0);
    assert_eq!((second["files_read"].as_u64(), &second["parent"]), (Some(0), &first["snapshot"]));
    let to = place.path("restored");
    code(&run(&["restore", &format!("latest:{data}"), "--to", &to, "--verify"]), 0);
    same(&data, &to);
    let listed = run(&["ls", &format!("latest:{data}/1"), "--json"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 4);
    code(&run(&["ls", "latest:/nothing"]), 4);
    code(&run(&["ls", "ffff"]), 4);
    let found = run(&["find", "file [13]"]);
    assert_eq!(String::from_utf8_lossy(&found.stdout).lines().count(), 4);
    // A second password, an escrow, and the removal of the first.
    std::fs::write(place.path("new"), "battery staple\n").unwrap();
    code(&run(&["key", "add", "--new-password-file", &place.path("new")]), 0);
    code(&run(&["snapshots", "--password-command", &format!("cat {}", place.path("new"))]), 2);
    code(&run(&["key", "escrow", "--to", &place.path("escrow")]), 0);
    code(&run(&["key", "check", &place.path("escrow")]), 0);
    // Rules, and removal.
    code(&run(&["forget"]), 2);
    let judged = code(&run(&["forget", "--keep-last", "1", "--json"]), 0);
    assert_eq!(judged.as_array().map(Vec::len), Some(2));
    (0..3).for_each(|_| drop(code(&run(&["prune", "--json"]), 0)));
    code(&run(&["verify", "--data"]), 0);
    // Damage is found, and the next backup repairs it.
    let mut segments = Vec::new();
    for folder in std::fs::read_dir(place.path("repository/segments")).unwrap().flatten() {
        segments.extend(std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path()));
    }
    for path in &segments {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[60] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    code(&run(&["verify", "--without-password"]), 5);
    code(&run(&["verify", "--data"]), 5);
    code(&run(&["run", &data]), 0);
    code(&run(&["restore", &format!("latest:{data}"), "--to", &place.path("again"), "--verify"]), 0);
    same(&data, &place.path("again"));
}

#[test]
fn a_damaged_snapshot_goes_by_its_name_and_prune_goes_on() {
    let place = place("backup-damaged");
    let (repository, data) = (place.path("repository"), place.path("files"));
    let run = |arguments: &[&str]| backup(&place, &repository, None, arguments);
    code(&run(&["init"]), 0);
    let saved = code(&run(&["run", &data, "--json"]), 0);
    let name = saved["snapshot"].as_str().unwrap();
    let path = place.path(&format!("repository/snapshots/{name}"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[60] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    code(&run(&["prune"]), 5);
    // Rules leave it alone; its name does not.
    code(&run(&["forget", "--keep-last", "1"]), 0);
    code(&run(&["forget", name, "--dry-run"]), 0);
    assert!(std::fs::exists(&path).unwrap());
    code(&run(&["forget", name]), 0);
    assert!(!std::fs::exists(&path).unwrap());
    code(&run(&["forget", name]), 4);
    code(&run(&["prune"]), 0);
}

#[test]
fn hooks_streams_and_patterns_do_what_the_help_says() {
    let place = place("backup-options");
    let (repository, data) = (place.path("repository"), place.path("files"));
    let run = |arguments: &[&str]| backup(&place, &repository, None, arguments);
    code(&run(&["init"]), 0);
    code(&run(&["run", &data, "--before", "false"]), 1);
    let after = format!("echo $STELE_BACKUP_EXIT > {}", place.path("after"));
    code(&run(&["run", &place.path("nowhere"), "--after", &after]), 4);
    assert_eq!(std::fs::read_to_string(place.path("after")).unwrap(), "4\n");
    let some = code(&run(&["run", &data, "--exclude", "file [1-9]", "--json"]), 0);
    assert_eq!(some["files"], 2);
    // Standard input is empty here.
    let stream = code(&run(&["run", "--stdin-name", "dump.sql", "--json"]), 0);
    assert_eq!((stream["files"].as_u64(), stream["bytes"].as_u64()), (Some(1), Some(0)));
    code(&run(&["run", "--stdin-name", "a/b"]), 2);
}

#[test]
fn a_bucket_and_a_key_that_cannot_delete() {
    let place = place("backup-bucket");
    let server: Server = place.up();
    code(&place.stele(&["bucket", "create", "backups"]), 0);
    let granted = ["key", "create", "--name", "agent", "--bucket", "backups", "--access", "read,write,list"];
    let key = place.json(&granted);
    let text = |name: &str| key[name].as_str().unwrap().to_owned();
    let (agent, owner) = ((text("access_key"), text("secret_key")), server.keys());
    let (repository, data) = (format!("s3+http://{}/backups/laptop", server.address), place.path("files"));
    let run = |keys: &(String, String), arguments: &[&str]| backup(&place, &repository, Some(keys.clone()), arguments);
    code(&run(&agent, &["snapshots"]), 10);
    code(&run(&agent, &["init"]), 0);
    let first = code(&run(&agent, &["run", &data, "--json"]), 0);
    let second = code(&run(&agent, &["run", &data, "--json"]), 0);
    assert_eq!((second["files_read"].as_u64(), &second["parent"]), (Some(0), &first["snapshot"]));
    let to = place.path("restored");
    code(&run(&agent, &["restore", &format!("latest:{data}"), "--to", &to, "--verify"]), 0);
    same(&data, &to);
    // The agent's key removes neither snapshots nor content.
    let name = first["snapshot"].as_str().unwrap();
    assert_eq!(code(&run(&agent, &["forget", name, "--json"]), 3)["kind"], "refused");
    assert_eq!(code(&run(&agent, &["snapshots", "--json"]), 0).as_array().map(Vec::len), Some(2));
    code(&run(&owner, &["forget", name]), 0);
    (0..3).for_each(|_| drop(code(&run(&owner, &["prune"]), 0)));
    code(&run(&agent, &["verify", "--data"]), 0);
    // A cache that is damaged or lost changes nothing.
    std::fs::remove_dir_all(place.path("cache")).unwrap();
    assert_eq!(code(&run(&agent, &["run", &data, "--json"]), 0)["files_read"], 0);
    server.stop();
}
