//! The `stele` command as a user meets it: help, errors, exit codes, and the whole way from a first
//! start to an audit.

use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use crate::support::{Place, is_whole, wait_for};

#[test]
fn every_command_explains_itself_with_examples() {
    let commands: &[&[&str]] = &[
        &[],
        &["up"],
        &["serve"],
        &["pool", "create"],
        &["pool", "recover"],
        &["pool", "status"],
        &["pool", "scrub"],
        &["pool", "replace"],
        &["drive", "set"],
        &["volume", "create"],
        &["volume", "list"],
        &["volume", "show"],
        &["volume", "delete"],
        &["backup"],
        &["backup", "init"],
        &["backup", "run"],
        &["backup", "snapshots"],
        &["backup", "ls"],
        &["backup", "find"],
        &["backup", "diff"],
        &["backup", "restore"],
        &["backup", "mount"],
        &["backup", "verify"],
        &["backup", "lock"],
        &["backup", "forget"],
        &["backup", "prune"],
        &["backup", "policy"],
        &["backup", "schedule"],
        &["backup", "report"],
        &["backup", "key", "list"],
        &["backup", "key", "add"],
        &["backup", "key", "remove"],
        &["backup", "key", "export"],
        &["backup", "key", "verify"],
        &["bucket", "create"],
        &["bucket", "list"],
        &["bucket", "show"],
        &["key", "create"],
        &["key", "list"],
        &["key", "revoke"],
        &["master-key", "export"],
        &["master-key", "verify"],
        &["why"],
        &["audit", "show"],
        &["audit", "verify"],
        &["audit", "export"],
        &["audit", "key"],
        &["audit", "prove"],
        &["receipt", "get"],
        &["receipt", "verify"],
        &["proof", "export"],
        &["proof", "verify"],
        &["witness"],
        &["clock", "show"],
        &["clock", "accept"],
        &["clock", "credit"],
        &["catalog", "rebuild"],
        &["drive", "dump"],
    ];
    for command in commands {
        let output = Command::new(env!("CARGO_BIN_EXE_stele")).args(*command).arg("--help").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{command:?}");
        assert!(text.contains("Example"), "stele {command:?} --help shows no example:\n{text}");
    }
}

#[test]
fn the_help_lists_every_exit_code() {
    let output = Command::new(env!("CARGO_BIN_EXE_stele")).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, codes) = text.split_once("Exit codes: ").unwrap();
    let listed: Vec<u8> = codes.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // The codes listed in SEMANTICS/json.md.
    assert_eq!(listed, (0..=13).collect::<Vec<u8>>(), "{text}");
}

#[test]
fn mistakes_are_answered_with_cause_place_and_next_step() {
    let place = Place::new("mistakes");
    place.refused(2, &["unrecognized subcommand"], &["frobnicate"]);
    place.refused(4, &["stele.toml", "stele up"], &["pool", "status"]);
    place.refused(2, &["invalid value", "not a size"], &["volume", "create", "v", "--code", "8+2", "--size", "lots"]);
    place.refused(2, &["not a code", "8+2"], &["volume", "create", "v", "--code", "9+9", "--size", "1G"]);
    place.refused(2, &["--confirm-time"], &["pool", "create", "--drive", "a", "--drive", "b", "--drive", "c"]);
    let absent = ["a", "b", "c"].map(|name| place.path(name));
    let create = ["pool", "create", "--confirm-time", "--data", "none", "--drive", &absent[0], "--drive", &absent[1]];
    place.refused(4, &["is not there", "--size"], &[&create[..], &["--drive", &absent[2]]].concat());
    std::fs::write(place.0.join("stele.toml"), "[pool]\ndrives = []\nspeed = 11\n").unwrap();
    place.refused(2, &["speed"], &["pool", "status"]);
    std::fs::write(place.0.join("stele.toml"), "[pool]\ndrives = [\"nowhere.img@0\"]\n").unwrap();
    // Drives may come late at a start: the packaged unit tries again.
    let drives_away = ["none of the drives is there", "nowhere.img", "next: return the drives"];
    place.refused(5, &drives_away, &["pool", "status"]);
    place.refused(4, &["nowhere"], &["drive", "dump", "/nowhere"]);
}

#[test]
fn a_display_ends_by_a_signal_while_the_server_is_silent() {
    let place = Place::new("silent");
    let listener = UnixListener::bind(place.0.join("stele.sock")).unwrap();
    listener.set_nonblocking(true).unwrap();
    for (arguments, signal) in
        [(&["top"][..], "-INT"), (&["top", "--once"], "-TERM"), (&["pool", "status", "--watch"], "-INT")]
    {
        let mut command = place.command(arguments);
        command.arg("--dir").arg(&place.0).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // The first connection looks whether a server is there, and the second one asks it.
        let connection = |_| wait_for("a connection", || listener.accept().ok().map(|(stream, _)| stream));
        let held: Vec<UnixStream> = (0..2).map(connection).collect();
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let ended = wait_for("the command to end", || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0), "stele {arguments:?}");
        drop(held);
    }
}

#[test]
fn from_a_first_start_to_an_audit() {
    let place = Place::new("whole");
    let server = place.up();
    // Without a terminal the first key goes into a private file, and not into the journal.
    assert!(server.ready.get("access_key").is_none() && server.ready.get("secret_key").is_none(), "{}", server.ready);
    let file = std::fs::metadata(server.ready["key_file"].as_str().unwrap()).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o777, 0o600);

    // One server holds the drives.
    place.refused(7, &["in use"], &["serve"]);

    let status = place.json(&["pool", "status"]);
    assert_eq!(status["drives"].as_array().map(Vec::len), Some(12));
    assert!(is_whole(&status), "{status}");
    let volumes = place.json(&["volume", "list"]);
    let codes: Vec<&str> = volumes.as_array().unwrap().iter().filter_map(|volume| volume["code"].as_str()).collect();
    assert_eq!(codes, ["mirror-4", "8+2"]);

    let made = place.json(&["bucket", "create", "records", "--lock", "--retention", "compliance:7y"]);
    assert_eq!(made["default_retention"], "compliance:7y");
    place.refused(2, &["compliance:7y"], &["bucket", "create", "wrong", "--lock", "--retention", "forever"]);
    assert_eq!(place.json(&["bucket", "list"]).as_array().map(Vec::len), Some(1));
    place.refused(4, &["nothere"], &["bucket", "show", "nothere"]);

    let key = place
        .json(&["key", "create", "--name", "ingest", "--role", "user", "--bucket", "records", "--prefix", "scans/"]);
    let id = key["access_key"].as_str().unwrap().to_owned();
    assert!(place.json(&["key", "list"]).to_string().contains(&id));
    place.json(&["key", "revoke", &id]);
    place.refused(4, &["nobody"], &["key", "revoke", "nobody"]);

    place.refused(2, &["standard output", "new file"], &["master-key", "export", "--to", "-"]);
    let copy = place.0.join("escrow.key");
    place.json(&["master-key", "export", "--to", copy.to_str().unwrap()]);
    assert_eq!(place.json(&["master-key", "verify", copy.to_str().unwrap()])["opens"], true);
    std::fs::write(place.0.join("other.key"), "00".repeat(32)).unwrap();
    place.refused(3, &["does not open"], &["master-key", "verify", place.0.join("other.key").to_str().unwrap()]);

    place.json(&["volume", "create", "scratch", "--code", "mirror-2", "--size", "8MiB"]);
    // A command looks before it asks.
    place.refused(2, &["add --yes"], &["volume", "delete", "scratch"]);
    place.refused(4, &["no volume is called 'nope'"], &["volume", "delete", "nope"]);
    place.refused(4, &["no volume is called 'nope'"], &["volume", "rollback", "nope", "monday"]);
    place.refused(3, &["carries the archive"], &["volume", "delete", "data"]);
    place.refused(4, &["volume 'scratch' has no snapshot 'nope'"], &["volume", "rollback", "scratch", "nope"]);
    place.refused(2, &["'data' is no snapshot of"], &["volume", "rollback", "scratch", "data"]);
    place.json(&["volume", "export", "scratch", "--nbd"]);
    place.refused(3, &["`stele export remove scratch`"], &["volume", "delete", "scratch"]);
    place.json(&["export", "remove", "scratch"]);
    place.json(&["volume", "delete", "scratch", "--yes"]);
    place.refused(3, &["data"], &["volume", "delete", "data", "--yes"]);
    place.refused(4, &["records"], &["why", "records/missing"]);
    place.refused(2, &["BUCKET/KEY"], &["why", "records"]);

    let verdict = place.json(&["audit", "verify"]);
    assert_eq!(verdict["findings"].as_array().map(Vec::len), Some(0));
    assert!(verdict["records"].as_u64().unwrap() > 5, "{verdict}");
    let export = place.0.join("audit.jsonl");
    assert!(place.stele(&["audit", "export", "--to", export.to_str().unwrap()]).status.success());
    let anchored = place.json(&["audit", "verify", "--anchor", export.to_str().unwrap()]);
    assert!(anchored["anchored"].is_u64(), "{anchored}");

    // Changes survive a kill, and the next start prints no key.
    server.kill();
    let server = place.up();
    assert!(server.ready.get("key_file").is_none(), "{}", server.ready);
    assert_eq!(place.json(&["bucket", "list"]).as_array().map(Vec::len), Some(1));
    server.stop();

    // Without a server the drives answer. The archive refuses changes, and its volumes refuse
    // deletion.
    assert!(is_whole(&place.json(&["pool", "status"])));
    assert_eq!(place.json(&["bucket", "list"]).as_array().map(Vec::len), Some(1));
    place.refused(3, &["read"], &["bucket", "create", "another"]);
    place.refused(3, &["data"], &["volume", "delete", "data", "--yes"]);
    let dump = place.json(&["drive", "dump", place.0.join("drives/e0-0.img").to_str().unwrap()]);
    assert!(dump.to_string().contains("label"), "{dump}");
}

/// They read such a file until they were killed for their memory.
#[test]
fn a_file_without_an_end_is_refused_by_every_command_that_reads_one_whole() {
    let place = Place::new("endless");
    let zero = "/dev/zero";
    let password = place.path("password");
    std::fs::write(&password, "secret\n").unwrap();
    let (repository, policy) = (place.path("repository"), place.path("policy"));
    let backup = ["--repository", repository.as_str(), "--password-file", password.as_str()];
    let made = place.stele(&[&["backup", "init"][..], &backup].concat());
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let with = |words: &[&'static str]| [words, &[zero], &backup].concat();
    for arguments in [
        vec!["--config", zero, "pool", "status"],
        vec!["--config", zero, "serve"],
        vec!["--config", zero, "config", "export", "--to", policy.as_str(), "--passphrase-file", password.as_str()],
        vec!["config", "import", zero, "--passphrase-file", password.as_str()],
        vec!["config", "import", password.as_str(), "--passphrase-file", zero],
        vec!["master-key", "verify", zero],
        vec!["clock", "credit", "--officer", zero],
        vec!["lab", "run", zero],
        vec!["receipt", "verify", zero, "--key", zero],
        with(&["backup", "key", "verify"]),
        with(&["backup", "run", "/etc/hostname", "--exclude-file"]),
        with(&["backup", "forget", "--policy"]),
    ] {
        let output = place.stele(&arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    }
}
