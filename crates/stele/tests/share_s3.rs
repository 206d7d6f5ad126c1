//! One share for clients of S3 and of NFS: boto3, the AWS command line and libnfs's tools, against
//! `stele serve`.
//!
//! If a client is not installed, the test says so and passes, except in CI.

use std::process::{Command, Stdio};

use crate::support;
use crate::support::{Place, Server, installed};

/// A client's command with the keys of the server.
fn client(place: &Place, server: &Server, program: &str) -> Command {
    let (access, secret) = server.keys();
    let mut command = Command::new("timeout");
    command
        .args(["300", program])
        .current_dir(&place.0)
        .env("PATH", support::clients())
        .env("HOME", &place.0)
        .env("AWS_ACCESS_KEY_ID", access)
        .env("AWS_SECRET_ACCESS_KEY", secret)
        .env("AWS_DEFAULT_REGION", "us-east-1")
        .env("AWS_ENDPOINT_URL", format!("http://{}", server.address))
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_PAGER", "")
        .env_remove("AWS_PROFILE")
        .stdin(Stdio::null());
    command
}

#[track_caller]
fn must(mut command: Command) -> String {
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

fn serve(place: &Place) -> Server {
    place.edit_config(|text| match text.contains("[nfs]\nlisten") {
        true => text,
        false => text.replace("[nfs]\n", "[nfs]\nlisten = \"127.0.0.1:0\"\n"),
    });
    place.serve()
}

#[test]
fn a_file_and_an_object_are_two_views_of_one_record() {
    let tools = ["nfs-cp", "nfs-cat"].iter().all(|tool| installed(&["sh", "-c", &format!("command -v {tool}")]));
    if !tools || !installed(&["python3", "-c", "import boto3"]) {
        return;
    }
    let place = Place::new("share-s3");
    place.pool(5);
    let server = serve(&place);
    let owner = ["--cache", "64MiB", "--owner", "1000:1000", "--mode", "0755"];
    let share = place.json(&[&["share", "create", "home"], &owner[..]].concat());
    place.json(&[&["share", "create", "records", "--retention", "compliance:30d"], &owner[..]].concat());
    place.json(&["bucket", "create", "plain"]);
    let port = share["nfs_port"].as_u64().unwrap().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/share.py");
    let mut python = client(&place, &server, "python3");
    python.args([script, &format!("http://{}", server.address), &port]);
    let said = must(python);
    assert!(said.trim_end().ends_with("all held"), "{said}");
    let ledger = &place.json(&["share", "ls", "records/2026"])[0];
    assert_eq!(ledger["state"], "locked", "{ledger}");
    let why = place.json(&["share", "why", "records/2026/ledger"]);
    assert_eq!((&why["protected"], &why["mode"]), (&true.into(), &"COMPLIANCE".into()), "{why}");
    let keys = server.keys();
    server.kill();

    let server = serve(&place).with_keys(keys);
    let answer = server.get("/home/a/large");
    assert_eq!((answer.status, answer.body.len()), (200, 5 * (2 << 20)));
    assert!(place.json(&["audit", "verify"])["findings"].as_array().unwrap().is_empty());
    server.stop();
}

#[test]
fn the_quota_of_a_key_binds_what_it_stores_in_a_share() {
    let place = Place::new("share-s3-quota");
    place.pool(5);
    let server = serve(&place);
    place.json(&["share", "create", "home", "--cache", "64MiB"]);
    let granted = ["key", "create", "--name", "scanner", "--bucket", "home", "--access", "read,write"];
    let key = place.json(&[&granted[..], &["--quota", "1MiB"]].concat());
    let [access, secret] = ["access_key", "secret_key"].map(|name| key[name].as_str().unwrap().to_owned());
    let server = server.with_keys((access, secret));
    server.put("/home/first", &support::content(1, 600_000));
    let refused = server.send(server.ask("PUT", "/home/second").body(support::content(2, 600_000)));
    assert!(refused.status == 403 && refused.text().contains("QuotaExceeded"), "{}", refused.text());
    let names: Vec<_> = place.json(&["share", "ls", "home"]).as_array().unwrap().to_vec();
    assert!(names.len() == 1 && names[0]["name"] == "first", "{names:?}");
    server.stop();
}

#[test]
fn the_aws_command_line_copies_a_tree_and_removes_it() {
    if !installed(&["aws", "--version"]) {
        return;
    }
    let place = Place::new("share-s3-aws");
    place.pool(5);
    let server = serve(&place);
    place.json(&["share", "create", "home", "--cache", "64MiB", "--archive-after", "1"]);
    let tree = place.path("tree");
    for (name, length) in [("a/b/small", 10), ("a/large", 12 << 20), ("a-b", 5), ("hidden/.f", 7)] {
        let path = format!("{tree}/{name}");
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(path, support::content(length as u64, length)).unwrap();
    }
    let aws = |arguments: &[&str]| {
        let mut command = client(&place, &server, "aws");
        command.args(arguments);
        must(command)
    };
    aws(&["s3", "cp", "--recursive", &tree, "s3://home/in/"]);
    let again = aws(&["s3", "sync", &tree, "s3://home/in/"]);
    assert!(!again.contains("upload"), "a sync copies what is there: {again}");
    let back = place.path("back");
    aws(&["s3", "sync", "s3://home/in/", &back]);
    let mut diff = Command::new("diff");
    diff.args(["-r", &tree, &back]);
    must(diff);
    aws(&["s3", "rm", "--recursive", "s3://home/"]);
    let left = aws(&["s3api", "list-objects-v2", "--bucket", "home", "--query", "Contents[?Size>`0`]"]);
    // Empty directories are keys; without them there is no list at all.
    assert!(["null", "[]"].contains(&left.trim()), "{left}");
    server.stop();
}
