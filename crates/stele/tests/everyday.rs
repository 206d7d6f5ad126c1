//! An operator's everyday problems: output that cannot be written, files that other users could
//! write, exports that are open by mistake, and counters that a restart forgets.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

use crate::support;
use crate::support::{Place, Server, wait_for};

fn bare_pool(place: &Place) {
    let drives: Vec<String> =
        (0..4).map(|number| format!("{}@{number}", place.path(&format!("d{number}.img")))).collect();
    let mut arguments = vec!["pool", "create", "--confirm-time", "--size", "256MiB", "--data", "none"];
    drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
    place.json(&arguments);
}

fn serve_iscsi(place: &Place) -> Server {
    place.edit_config(|text| text.replace("[iscsi]\n", "[iscsi]\nlisten = \"127.0.0.1:0\"\n"));
    place.serve()
}

#[test]
fn output_that_cannot_be_written_is_a_failure_and_output_that_nobody_reads_is_none() {
    let place = Place::new("output");
    let server = place.up();
    for arguments in [&["pool", "status"][..], &["pool", "status", "--json"], &["audit", "export"], &["volume", "list"]]
    {
        let run = |stdout: Stdio| {
            let mut command = place.command(arguments);
            command.arg("--dir").arg(&place.0).stdout(stdout).stderr(Stdio::piped());
            let output = command.spawn().unwrap().wait_with_output().unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, text) = run(full.into());
        assert!(code == Some(1) || code == Some(6), "{arguments:?}: {code:?} {text}");
        assert!(text.contains("No space left") && !text.contains("panicked"), "{arguments:?}: {text}");
        // The reader has gone before anything is written.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, text) = run(writer.into());
        assert_eq!((code, text.as_str()), (Some(141), ""), "{arguments:?}");
    }
    server.stop();
}

#[test]
fn help_that_cannot_be_written_fails_and_a_usage_keeps_its_exit_code() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let place = Place::new("full-help");
    for arguments in [&["--help"][..], &["--version"], &["pool", "status", "--help"]] {
        let output = place.command(arguments).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains("No space left") && !text.contains("panicked"), "{arguments:?}: {text}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.command(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (Some(141), 0), "{arguments:?}");
    }
    for arguments in [&["nonsense"][..], &["pool", "status", "--nonsense"]] {
        let output = place.command(arguments).stdout(Stdio::null()).stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

/// Files and directories that other users may write, without sockets: a socket asks for the user's
/// identity.
fn open_to_others(dir: &Path, found: &mut Vec<String>) {
    let about = std::fs::symlink_metadata(dir).unwrap();
    let mode = about.permissions().mode();
    if mode & 0o022 != 0 && !about.file_type().is_socket() && !about.file_type().is_symlink() {
        found.push(format!("{} {:o}", dir.display(), mode & 0o7777));
    }
    if about.is_dir() {
        std::fs::read_dir(dir).unwrap().for_each(|entry| open_to_others(&entry.unwrap().path(), found));
    }
}

#[test]
fn nothing_may_be_written_by_others_whatever_the_umask() {
    let place = Place::new("umask");
    let data = place.0.join("data");
    let script = "umask 000; exec \"$0\" \"$@\"";
    let mut child = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_stele"), "up", "--json", "--listen", "127.0.0.1:0"])
        .args(["--drive-size", "256MiB", "--dir"])
        .arg(&data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let mut found = Vec::new();
    open_to_others(&data, &mut found);
    let drives = std::fs::metadata(data.join("drives")).map(|about| about.permissions().mode() & 0o777);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.contains("endpoint"), "{line}");
    assert!(found.is_empty(), "others may write {found:?}");
    assert_eq!(drives.unwrap(), 0o700, "what volumes hold is not for others to read");
}

#[test]
fn an_export_says_how_it_is_reached_and_by_whom() {
    let place = Place::new("exports");
    bare_pool(&place);
    std::fs::write(place.0.join("secret"), "a long secret indeed\n").unwrap();
    let server = place.serve();
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "16MiB"]);
    // No host could reach it: no export is made, and the command says so.
    place.refused(2, &["[iscsi] listen", "stele.toml"], &["volume", "export", "vm1", "--iscsi"]);
    assert_eq!(place.json(&["export", "list"]).as_array().map(Vec::len), Some(0));
    server.stop();
    let server = serve_iscsi(&place);
    let open = place.json(&["volume", "export", "vm1", "--iscsi"]);
    assert!(open["url"].as_str().unwrap().starts_with("iscsi://"), "{open}");
    assert!(open["warnings"].to_string().contains("--chap-user"), "{open}");
    let text = place.stele(&["volume", "export", "vm1", "--iscsi"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("Warning: anyone who reaches"), "{text:?}");
    place.json(&["export", "remove", "iqn.2026-01.local.stele:vm1", "--protocol", "iscsi"]);
    let guarded = ["volume", "export", "vm1", "--iscsi", "--chap-user", "host", "--chap-secret", &place.path("secret")];
    let guarded = place.json(&guarded);
    assert_eq!(guarded["warnings"].as_array().map(Vec::len), Some(0), "{guarded}");
    // An initiator with a wrong secret is refused, and the log names it.
    let url = guarded["url"].as_str().unwrap().replacen("iscsi://", "iscsi://host%another-secret@", 1);
    let tried = place.stele(&["lab", "run", "--on", &url, "--time", "100ms", "--destroy"]);
    assert!(!tried.status.success(), "{tried:?}");
    // The server writes its log on a thread of its own, so the line may come after the refusal.
    let line = wait_for("the refusal in the log", || {
        place.log().lines().find(|line| line.contains("iSCSI login refused")).map(str::to_owned)
    });
    for word in ["WARN", "user 'host'", "from 127.0.0.1:", "iqn.2026-01.local.stele:vm1", "did not prove who it is"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    server.stop();
}

#[test]
fn what_was_counted_survives_a_restart() {
    let place = Place::new("counts");
    let server = place.up();
    place.json(&["pool", "scrub", "--wait"]);
    let before = place.json(&["pool", "status"]);
    assert_eq!(before["scrubs_finished"], 1, "{before}");
    assert!(before["last_scrub"].as_str().is_some_and(|at| at.ends_with('Z')), "{before}");
    let keys = server.keys();
    server.stop();
    let server = place.serve().with_keys(keys);
    let after = place.json(&["pool", "status"]);
    assert_eq!((&after["scrubs_finished"], &after["last_scrub"]), (&before["scrubs_finished"], &before["last_scrub"]));
    let text = place.stele(&["pool", "status"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("the last, 20"), "{text:?}");
    server.stop();
}

#[test]
fn a_delete_marker_is_called_one_and_records_are_told_in_words() {
    let place = Place::new("marker");
    let server = place.up();
    place.json(&["bucket", "create", "records", "--lock", "--retention", "compliance:7y"]);
    server.put("/records/ledger", b"kept for seven years");
    assert_eq!(server.delete("/records/ledger").status, 204);
    let why = place.json(&["why", "records/ledger"]);
    assert_eq!((&why["delete_marker"], &why["protected"]), (&true.into(), &false.into()), "{why}");
    let output = place.stele(&["why", "records/ledger"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("is a delete marker") && !text.contains("can be deleted now"), "{text}");
    assert!(text.contains("BUCKET/KEY@VERSION") && !text.contains("default"), "{text}");
    // The audit log describes a change in words.
    place.json(&["bucket", "create", "drafts"]);
    let body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    support::server::good(server.send(server.ask("PUT", "/drafts?versioning=").body(body)));
    let records = place.stele(&["audit", "show"]);
    let text = String::from_utf8_lossy(&records.stdout).into_owned();
    assert!(text.contains("versioning enabled") && !text.contains("Versioning("), "{text}");
    // Every byte of content is verified and counted once.
    let scrub = place.json(&["pool", "scrub", "--wait"]);
    assert_eq!(scrub["verified_bytes"], 20, "{scrub}");
    server.stop();
}
