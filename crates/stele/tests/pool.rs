//! Pools with named drives: `pool create`, `serve`, `pool recover`, `scrub`, `replace`, and
//! commands without a server.

use crate::support::server::good;
use crate::support::{Place, content, is_whole};
use serde_json::Value;

#[test]
fn a_pool_on_named_drives_is_made_served_scrubbed_and_mended() {
    let place = Place::new("pool");
    let made = place.pool(5);
    assert_eq!((made["state"].as_str(), made["drives"].as_array().map(Vec::len)), (Some("ok"), Some(5)), "{made}");
    place.refused(9, &["already describes a pool"], &["pool", "create", "--drive", "x", "--confirm-time"]);

    // The first server prints a key, later ones do not.
    let server = place.serve();
    let keys = server.keys();
    assert!(!keys.0.is_empty() && !keys.1.is_empty(), "{}", server.ready);
    place.json(&["bucket", "create", "records"]);
    let body = content(1, 1 << 20);
    server.put("/records/key", &body);
    assert_eq!(place.json(&["pool", "scrub"])["scrub"], "begun");
    let scrubbed = place.json(&["pool", "scrub", "--wait"]);
    assert_eq!((scrubbed["verified_versions"].as_u64(), scrubbed["verified_bytes"].as_u64()), (Some(1), Some(1 << 20)));
    assert_eq!(scrubbed["findings"].as_array().map(Vec::len), Some(0), "{scrubbed}");

    // A new drive replaces one that answers; the old drive leaves last, without a question.
    let (new, old) = (place.path("new.img"), place.path("d3.img"));
    let replaced = place.json(&["pool", "replace", "3", &new, "--size", "256MiB", "--wait"]);
    let drives = replaced["drives"].as_array().unwrap();
    let at = |path: &str| drives.iter().find(|drive| drive["path"] == path);
    let joined = at(&new).unwrap_or_else(|| panic!("{replaced}"));
    assert_eq!((joined["drive"].as_u64(), joined["enclosure"].as_u64()), (Some(5), Some(3)), "{replaced}");
    assert_eq!((joined["health"].as_str(), at(&old)), (Some("healthy"), None), "{replaced}");
    place.refused(2, &["Give drive 0 up at once?", "--yes"], &["pool", "replace", "0", "x.img", "--give-up"]);
    assert!(place.config().contains(&format!("{new}@3")) && !place.config().contains(&old), "{}", place.config());
    server.stop();
    std::fs::remove_file(&old).unwrap();
    let server = place.serve().with_keys(keys.clone());
    assert!(server.ready.get("key_file").is_none(), "{}", server.ready);
    assert!(is_whole(&place.json(&["pool", "status"])));
    assert!(good(server.get("/records/key")).body == body);
    server.kill();

    // `pool recover` replays the log after the kill and closes in order; read-only it writes
    // nothing. Advice about missing drives is given where drives are missing.
    let advice = || {
        let opened = place.json(&["pool", "recover", "--read-only"]);
        assert_eq!(opened["state"], "read-only", "{opened}");
        let standing = opened["standing"].as_array().unwrap().iter();
        let alarm = standing.clone().find(|alarm| alarm["kind"] == "read-only");
        alarm.unwrap_or_else(|| panic!("{opened}"))["next"].as_str().unwrap().to_owned()
    };
    assert!(!advice().contains("drives"), "{}", advice());
    std::fs::rename(place.path("d0.img"), place.path("away.img")).unwrap();
    assert!(advice().contains("return missing drives"), "{}", advice());
    std::fs::rename(place.path("away.img"), place.path("d0.img")).unwrap();
    assert_eq!(place.json(&["pool", "recover"])["state"], "ok");
    let server = place.serve().with_keys(keys);
    assert!(good(server.get("/records/key")).body == body);
}

#[test]
fn without_a_server_a_command_reads_the_drives_and_changes_no_record() {
    let place = Place::new("offline");
    place.pool(5);
    let server = place.serve();
    place.json(&["bucket", "create", "records"]);
    server.put("/records/key", b"data");
    let copy = place.path("escrow.key");
    place.json(&["master-key", "export", "--to", &copy]);
    let clock = place.json(&["clock", "show"]);
    assert!(clock["frozen"].is_null() && clock["compliance_time"].is_string(), "{clock}");
    let accepted = place.json(&["clock", "accept", "--yes"]);
    assert!(accepted["frozen"].is_null() && accepted["accepted"].is_null(), "{accepted}");
    server.stop();

    assert_eq!(place.json(&["master-key", "verify", &copy])["opens"], true);
    std::fs::write(place.0.join("other.key"), "1".repeat(64)).unwrap();
    place.refused(3, &["does not open"], &["master-key", "verify", &place.path("other.key")]);
    // The master key is exported even then, and never without a record of it.
    place.json(&["master-key", "export", "--to", &place.path("second.key")]);
    assert_eq!(std::fs::read(place.0.join("second.key")).unwrap(), std::fs::read(&copy).unwrap());
    let record = place.json(&["audit", "show", "--limit", "1"]);
    assert_eq!(record["action"].as_str(), Some("ExportMasterKey"), "{record}");
    place.refused(9, &["second.key"], &["master-key", "export", "--to", &place.path("second.key")]);
    // A key that cannot be written is not handed out: that would use up what officers approved.
    place.refused(4, &["nowhere"], &["master-key", "export", "--to", &place.path("nowhere/third.key")]);
    assert_eq!(place.json(&["audit", "show", "--limit", "1"])["number"], record["number"]);
    let entries = || std::fs::read_dir(&place.0).unwrap().count();
    let before = entries();
    place.stele(&["audit", "export", "--to", &place.path("log.jsonl")]);
    assert_eq!(entries(), before + 1, "the log, and nothing beside it");
    assert!(place.json(&["clock", "show"])["compliance_time"].is_string());
    place.refused(3, &["start the server"], &["clock", "accept", "--yes"]);
    let scrubbed = place.json(&["pool", "scrub"]);
    assert_eq!(scrubbed["verified_versions"].as_u64(), Some(1), "without a server a scrub is waited for: {scrubbed}");

    // The directory may come from the environment, or from the configuration's place.
    let output = place.command(&["bucket", "list", "--json"]).env("STELE_DIR", &place.0).output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("records"), "{output:?}");
    let config = place.path("stele.toml");
    let output = place.command(&["bucket", "list", "--json", "--config", &config]).output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("records"), "{output:?}");
    let output = place.command(&["bucket", "list"]).current_dir(&place.0).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "nothing points here: {output:?}");
}

/// The key seals records. Drives and volumes need none.
#[test]
fn a_pool_whose_master_key_is_lost_shows_its_drives() {
    let place = Place::new("keyless");
    place.pool(4);
    std::fs::rename(place.path("master.key"), place.path("away.key")).unwrap();
    let status = place.json(&["pool", "status"]);
    assert_eq!(status["drives"].as_array().map(Vec::len), Some(4), "{status}");
    assert!(status["standing"].to_string().contains("restore the exported copy"), "{status}");
    assert_eq!(place.json(&["volume", "list"]).as_array().map(Vec::len), Some(2));
    place.refused(5, &["the archive is not served", "restore the exported copy"], &["bucket", "list"]);
    place.refused(4, &["master key", "exported copy"], &["serve"]);
    std::fs::rename(place.path("away.key"), place.path("master.key")).unwrap();
    assert!(is_whole(&place.json(&["pool", "status"])));
}

#[test]
fn a_pool_for_volumes_alone_serves_no_s3_and_says_so() {
    let place = Place::new("volumes");
    let mut arguments = vec!["pool", "create", "--confirm-time", "--size", "64MiB", "--data", "none"];
    let drives: Vec<String> = (0..4).map(|number| place.path(&format!("d{number}.img"))).collect();
    drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
    place.json(&arguments);
    let server = place.serve();
    assert!(server.ready["endpoint"].is_null() && server.ready.get("key_file").is_none(), "{}", server.ready);
    let health = server.plain("/health");
    assert_eq!(health.status, 200, "{}", health.head);
    assert!(
        health.text().contains("\"health\":\"healthy\"") && health.text().contains("\"drives\":4"),
        "{}",
        health.text()
    );
    assert!(server.plain("/metrics").text().contains("stele_pool_size_bytes"));
    assert_eq!(server.plain("/bucket").status, 404);
    place.json(&["volume", "create", "disk", "--code", "mirror-2", "--size", "8MiB"]);
    place.refused(4, &["no archive"], &["bucket", "list"]);
    assert_eq!(place.json(&["pool", "scrub", "--wait"])["verified_versions"].as_u64(), Some(0));
    let text = |words: &[&str]| String::from_utf8(place.stele(words).stdout).unwrap();
    let scrubbed = text(&["pool", "scrub", "--wait"]);
    assert!(scrubbed.contains("Scrub finished") && !scrubbed.contains("Archive"), "{scrubbed}");
    server.stop();
    let dump = text(&["drive", "dump", &drives[0]]);
    assert!(dump.contains(", 0 overrides\n") && dump.contains(" of log, 1 drive of spare space\n"), "{dump}");
}

#[test]
fn a_pool_that_is_read_only_says_that_it_rebuilds_nothing() {
    let place = Place::new("read-only");
    place.pool(5);
    let server = place.serve();
    place.json(&["bucket", "create", "records"]);
    server.put("/records/key", &[7; 1 << 20]);
    server.stop();
    let told: Vec<String> = (0..5)
        .map(|number| {
            let (here, away) = (place.path(&format!("d{number}.img")), place.path("away.img"));
            std::fs::rename(&here, &away).unwrap();
            let status = place.json(&["pool", "recover", "--read-only"]);
            std::fs::rename(&away, &here).unwrap();
            assert!(status["rebuild"].is_null() && status["state"] == "read-only", "{status}");
            let is_missing = |told: &&Value| told["kind"] == "drive-missing";
            let missing = status["standing"].as_array().unwrap().iter().find(is_missing).unwrap();
            missing["done"].as_str().unwrap().to_owned()
        })
        .collect();
    assert!(told.iter().any(|done| done.starts_with("nothing is rebuilt")), "{told:?}");
    assert!(!told.iter().any(|done| done.contains("into spare space")), "{told:?}");
}

/// `stele pool create` of drives, with a code for the archive.
fn create<'a>(drives: &'a [String], data: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["pool", "create", "--confirm-time", "--spare", "1", "--data", data];
    drives.iter().for_each(|drive| arguments.extend(["--drive", drive.as_str()]));
    arguments.extend(more);
    arguments
}

#[test]
fn a_pool_that_was_not_completed_leaves_its_drives_for_the_next_try() {
    let place = Place::new("unfinished");
    let drives: Vec<String> = (0..4).map(|number| place.path(&format!("d{number}.img"))).collect();
    let device = |path: &str, size: u64| std::fs::File::create(path).unwrap().set_len(size).unwrap();
    drives.iter().for_each(|drive| device(drive, 64 << 20));
    // The code does not fit the drives: nothing is written.
    place.refused(2, &["8+2", "10 drives", "nothing was done"], &create(&drives, "8+2", &[]));
    let is_blank = |drive: &String| std::fs::read(drive).unwrap()[..64 << 10].iter().all(|byte| *byte == 0);
    let is_there = |name: &str| place.0.join(name).exists();
    assert!(drives.iter().all(is_blank));
    // The drives are too small for an archive, which shows only when the pool is there.
    place.refused(6, &[], &create(&drives, "2+1", &[]));
    assert!(drives.iter().all(is_blank) && !is_there("unfinished-pool"));
    // A key that stayed would lie where the key of another store is put.
    assert!(!is_there("master.key"));
    // Files that the command makes are removed.
    let files: Vec<String> = (0..4).map(|number| place.path(&format!("f{number}.img"))).collect();
    place.refused(6, &[], &create(&files, "2+1", &["--size", "64MiB"]));
    assert!(!files.iter().any(|file| std::path::Path::new(file).exists()));
    // A key of the operator stays, and a directory that the command made goes.
    std::fs::write(place.0.join("master.key"), format!("{}\n", "0123456789abcdef".repeat(4))).unwrap();
    place.refused(6, &[], &create(&files, "2+1", &["--size", "64MiB"]));
    assert!(is_there("master.key"));
    std::fs::remove_file(place.0.join("master.key")).unwrap();
    let new = place.path("new");
    let refused = place.command(&create(&files, "2+1", &["--size", "64MiB", "--dir", &new])).output().unwrap();
    assert!(refused.status.code() == Some(6) && !is_there("new"), "{refused:?}");

    // A killed creation: the labels are there, and no configuration names the drives.
    let other = Place::new("unfinished-other");
    drives.iter().for_each(|drive| device(drive, 256 << 20));
    let made = other.json(&create(&drives, "2+1", &[]));
    let pool = made["pool"].as_str().unwrap().to_owned();
    place.refused(3, &["belongs to pool"], &create(&drives, "2+1", &[]));
    std::fs::write(place.0.join("unfinished-pool"), format!("{pool}\n")).unwrap();
    place.json(&create(&drives[..3], "2+1", &[]));
    assert!(!place.0.join("unfinished-pool").exists());
    // Labels are taken off without a pool here, if the operator names theirs.
    let wipe = |place: &Place, more: &[&str]| {
        place.stele(&[&["drive", "wipe", drives[3].as_str(), "--yes"][..], more].concat())
    };
    let nowhere = Place::new("unfinished-nowhere");
    assert_eq!(wipe(&nowhere, &[]).status.code(), Some(3));
    let wiped = wipe(&nowhere, &["--pool", &pool]);
    assert!(wiped.status.success() && is_blank(&drives[3]), "{wiped:?}");
}

/// The first checkpoint comes before the first label: a creation that was killed in between left
/// drives that no command took, as if they held data of an unknown kind.
#[test]
fn a_pool_that_was_killed_before_its_labels_is_made_by_the_next_try() {
    use std::os::unix::fs::FileExt;
    let (place, other) = (Place::new("unlabelled"), Place::new("unlabelled-other"));
    let drives: Vec<String> = (0..3).map(|number| place.path(&format!("d{number}.img"))).collect();
    let made = other.json(&create(&drives, "2+1", &["--size", "256MiB"]));
    let file = |number: usize| std::fs::File::options().write(true).open(&drives[number]).unwrap();
    let zero = |number: usize, at: u64, length: usize| file(number).write_all_at(&vec![0; length], at).unwrap();
    for number in 0..3 {
        zero(number, 0, 128 << 10);
        zero(number, (256 << 20) - (128 << 10), 128 << 10);
    }
    // The anchors of any other pool, and whatever else lies beside those of this one, are data.
    let unknown = ["d0.img holds data of an unknown kind", "--destroy"];
    place.refused(3, &unknown, &create(&drives, "2+1", &[]));
    let note = |pool: &str| std::fs::write(place.0.join("unfinished-pool"), format!("{pool}\n")).unwrap();
    note(&"0".repeat(32));
    place.refused(3, &unknown, &create(&drives, "2+1", &[]));
    note(made["pool"].as_str().unwrap());
    file(0).write_all_at(b"a letter", 3 << 20).unwrap();
    place.refused(3, &unknown, &create(&drives, "2+1", &[]));
    zero(0, 3 << 20, 8);
    place.json(&create(&drives, "2+1", &[]));
    assert!(is_whole(&place.json(&["pool", "status"])));
}

/// What one far larger drive has beyond the others holds no stripe. All of it was promised: the
/// archive said that it was nearly full before the first object.
#[test]
fn a_new_archive_is_as_large_as_its_drives_can_hold() {
    let place = Place::new("pool-uneven");
    let drives: Vec<String> = (0..4).map(|number| place.path(&format!("d{number}.img"))).collect();
    std::fs::File::create(&drives[3]).unwrap().set_len(64 << 30).unwrap();
    let status = place.json(&create(&drives, "2+1", &["--size", "1GiB"]));
    // Three drives of 1 GiB: each stripe has two of its strips there.
    let objects = &status["space"]["objects"];
    let size = objects["size_bytes"].as_u64().unwrap();
    assert!((1 << 30..=3 << 30).contains(&size), "{objects}");
    // A drive's worth of each four is spare, and the catalog takes some. That was promised, too.
    let codes = status["space"]["codes"].as_array().unwrap();
    let room = codes.iter().find(|code| code["code"] == "2+1").unwrap();
    assert!(size <= room["free_bytes"].as_u64().unwrap(), "{size} of {room}");
    let volumes = place.json(&["volume", "list"]);
    let catalog = volumes.as_array().unwrap().iter().find(|volume| volume["owner"] == "catalog").unwrap();
    assert!(catalog["size_bytes"].as_u64() < Some(256 << 20), "{catalog}");
    // One that is larger still made the catalog alone exceed the others.
    let larger = Place::new("pool-uneven-more");
    let drives: Vec<String> = (0..4).map(|number| larger.path(&format!("d{number}.img"))).collect();
    std::fs::File::create(&drives[3]).unwrap().set_len(1 << 40).unwrap();
    larger.json(&create(&drives, "2+1", &["--size", "1GiB"]));
}

/// Nothing was written: there is nothing to take back.
#[test]
fn a_pool_of_unusable_drives_is_refused_without_a_trace() {
    let place = Place::new("unusable");
    let drives: Vec<String> = (0..3).map(|number| place.path(&format!("d{number}.img"))).collect();
    let device = |path: &str, size: u64| std::fs::File::create(path).unwrap().set_len(size).unwrap();
    let refused = |code: i32, words: &str| {
        let said = place.refused(code, &[words], &create(&drives, "2+1", &[]));
        assert!(!said.contains("WARN") && !place.0.join("unfinished-pool").exists(), "{said}");
        assert!(!place.0.join("master.key").exists(), "{said}");
    };
    drives.iter().for_each(|drive| device(drive, 256 << 20));
    let held = std::fs::File::open(&drives[1]).unwrap();
    held.lock().unwrap();
    refused(7, "is in use by process");
    drop(held);
    device(&drives[1], 0);
    refused(2, "is empty");
    std::fs::remove_file(&drives[1]).unwrap();
    std::fs::create_dir(&drives[1]).unwrap();
    refused(2, "is neither a file nor a block device");
    place.refused(2, &["--name is blank"], &create(&drives, "2+1", &["--name", " "]));
    std::fs::remove_dir(&drives[1]).unwrap();
    device(&drives[1], 256 << 20);
    place.json(&create(&drives, "2+1", &[]));
}

#[test]
fn drives_that_another_process_holds_are_busy_and_not_refused() {
    let place = Place::new("held");
    place.pool(3);
    // The tests' own process holds a drive, as a command without a server does.
    let held = std::fs::File::open(place.0.join("d1.img")).unwrap();
    held.lock().unwrap();
    place.refused(7, &["d1.img", "is in use by process"], &["pool", "status"]);
    place.refused(7, &["is in use by process"], &["serve"]);
    drop(held);
    place.json(&["pool", "status"]);
    // So the packaged unit tries again, and so it does where drives come late (5).
    let unit = include_str!("../../../contrib/package/stele.service");
    let never = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus=")).unwrap();
    assert!(!never.split_whitespace().any(|code| code == "5" || code == "7"), "{never}");
}

#[test]
fn a_new_drive_that_another_process_holds_is_busy() {
    let place = Place::new("held-new");
    place.pool(4);
    let new = place.path("new.img");
    let held = std::fs::File::create(&new).unwrap();
    held.set_len(256 << 20).unwrap();
    held.lock().unwrap();
    let (drive, before) = (format!("{new}@7"), place.config());
    let commands = [&["pool", "add", "--drive", &drive][..], &["pool", "replace", "3", &drive]];
    let refused = || commands.iter().for_each(|command| drop(place.refused(7, &["is in use by process"], command)));
    refused();
    let server = place.serve();
    let served = place.config();
    refused();
    assert_eq!(place.config(), served);
    server.stop();
    assert!(!before.contains(&new) && !served.contains(&new), "{served}");
    drop(held);
    place.json(commands[0]);
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    use std::os::unix::process::ExitStatusExt;
    let place = Place::new("pipe");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = place.command(&["pool", "create", "--help"]);
    let output = command.stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    place.pool(5);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = place.command(&["pool", "status", "--dir"]);
    let output = command.arg(&place.0).stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.status.signal()), (Some(141), None));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
}

/// The command said that the file cannot be written, and not that the drive has its new enclosure.
#[test]
fn an_enclosure_that_is_set_is_told_where_the_configuration_is_not() {
    let place = Place::new("enclosure-unwritten");
    place.pool(4);
    let enclosure = || {
        let status = place.json(&["pool", "status"]);
        let one = status["drives"].as_array().unwrap().iter().find(|drive| drive["drive"] == 1);
        one.and_then(|drive| drive["enclosure"].as_u64())
    };
    let set = ["drive", "set", "1", "--enclosure", "7"];
    std::fs::create_dir(place.0.join("stele.toml.new")).unwrap();
    let output = place.stele(&set);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("has drive 1 in enclosure 7 now, and cannot write"), "{said}");
    assert_eq!(enclosure(), Some(7));
    std::fs::remove_dir(place.0.join("stele.toml.new")).unwrap();
    place.json(&set);
    assert!(place.config().contains("d1.img@7") && enclosure() == Some(7), "{}", place.config());
}
