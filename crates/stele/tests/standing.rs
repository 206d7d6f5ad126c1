//! Alarms that stand in the status and end with their cause: unreadable data, a drive given up,
//! overcommitted space.

use std::os::unix::fs::FileExt;

use crate::support::server::good;
use crate::support::{Place, Server, content, is_slow, is_whole, wait_for};
use serde_json::Value;

const LENGTH: usize = 300_000;

fn drive_of(status: &Value, number: u64) -> &Value {
    status["drives"].as_array().unwrap().iter().find(|drive| drive["drive"] == number).unwrap()
}

/// Runs a command, expects the exit code, and parses the first line of output as JSON.
fn answered(place: &Place, code: i32, arguments: &[&str]) -> Value {
    let output = place.stele(&[arguments, &["--json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "stele {arguments:?}: {output:?}");
    serde_json::from_str(text.lines().next().unwrap_or_default()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn standing(place: &Place) -> Vec<String> {
    let status = place.json(&["pool", "status"]);
    let lasting = status["standing"].as_array().unwrap().iter().filter(|alarm| lasts(alarm));
    lasting.map(|alarm| alarm["kind"].as_str().unwrap().to_owned()).collect()
}

/// Whether an alarm counts: on a busy machine files answer late now and then, and slow drives do
/// not matter in these tests.
fn lasts(alarm: &Value) -> bool {
    alarm["kind"] != "drive-slow"
}

fn all_hold_what_they_should(place: &Place) -> bool {
    let status = place.json(&["pool", "status"]);
    is_whole(&status) && status["rebuild"].is_null() && status["unreadable_stripes"] == 0
}

#[test]
fn three_lost_drives_are_told_in_a_few_words_and_come_back() {
    let place = Place::new("standing");
    let server = place.up();
    let keys = server.keys();
    place.json(&["bucket", "create", "records", "--lock", "--retention", "compliance:1y"]);
    place.json(&["share", "create", "files", "--cache", "32MiB"]);
    let count = 120;
    for seed in 0..count {
        server.put(&format!("/records/{seed:03}"), &content(seed, LENGTH));
        // Files lie among the records, so that the same stripes hold both.
        if seed % 4 == 0 {
            server.put(&format!("/files/2026/{seed}.pdf"), &content(seed, LENGTH / 10));
        }
    }
    assert_eq!(server.plain("/health").status, 200);
    assert_eq!(answered(&place, 0, &["affected"])["objects_total"], 0);
    let before = place.json(&["pool", "status"]);
    server.stop();
    let lost = ["e0-0.img", "e2-1.img", "e4-0.img"];
    let (dir, away) = (place.0.join("drives"), place.0.join("away"));
    std::fs::create_dir(&away).unwrap();
    lost.iter().for_each(|name| std::fs::rename(dir.join(name), away.join(name)).unwrap());

    let server = place.up().with_keys(keys);
    let failed: Vec<String> = (0..count)
        .map(|seed| format!("{seed:03}"))
        .filter(|key| {
            let answer = server.get(&format!("/records/{key}"));
            answer.status != 200 || answer.body.len() != LENGTH
        })
        .collect();
    assert!(!failed.is_empty(), "three drives of twelve meet some stripes three times");
    let health = wait_for("health to say it", || {
        let health = server.plain("/health");
        health.text().contains("data-unreadable").then_some(health)
    });
    assert_eq!(health.status, 500, "{}", health.text());
    let affected = answered(&place, 5, &["affected"]);
    let objects = affected["objects"].as_array().unwrap();
    assert_eq!(affected["objects_total"], objects.len(), "--json lists all");
    let (files, records): (Vec<&Value>, Vec<&Value>) = objects.iter().partition(|object| object["bucket"] == "files");
    let named: Vec<&str> = records.iter().map(|object| object["key"].as_str().unwrap()).collect();
    for key in &failed {
        assert!(named.contains(&key.as_str()), "{key} cannot be read and is not among {named:?}");
    }
    // The pool's identity decides which strips are lost. All keys may lie in one of them.
    let all_fail = failed.len() == count as usize;
    assert!(named.len() < count as usize || all_fail, "all are named, and only {failed:?} cannot be read");
    assert!(records.iter().all(|object| object["path"].is_null()), "{records:?}");
    // A file of a share is named by its path.
    let paths: Vec<&str> = files.iter().filter_map(|object| object["path"].as_str()).collect();
    let is_one = |path: &&str| (0..count).any(|seed| **path == format!("2026/{seed}.pdf"));
    assert!(!files.is_empty() && paths.len() == files.len() && paths.iter().all(is_one), "{files:?}");
    let text = String::from_utf8(place.stele(&["affected"]).stdout).unwrap();
    assert!(text.contains("stele affected --all") || objects.len() <= 20, "{text}");
    let all = String::from_utf8(place.stele(&["affected", "--all"]).stdout).unwrap();
    // On a busy machine a read that is late may count as failed in one of the looks.
    let later = answered(&place, 5, &["affected"]);
    let still = |path: &&&str| later["objects"].as_array().unwrap().iter().any(|object| object["path"] == **path);
    let unsaid: Vec<_> = paths.iter().filter(still).filter(|path| !all.contains(&format!("files/{path} "))).collect();
    assert!(unsaid.is_empty(), "{unsaid:?} of {paths:?} are not in\n{all}\nand are in {later}");
    assert!(paths.iter().any(|path| still(&path)), "{paths:?}: {later}");
    let volumes = place.json(&["volume", "list"]);
    let data = volumes.as_array().unwrap().iter().find(|volume| volume["owner"] == "archive").unwrap();
    let number = |place: &serde_json::Value, name: &str| place[name].as_u64().unwrap();
    let places = data["unreadable"].as_array().unwrap().iter();
    let ranges: Vec<(u64, u64)> =
        places.map(|place| (number(place, "offset_bytes"), number(place, "length_bytes"))).collect();
    assert!(!ranges.is_empty() && ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "{ranges:?}");
    // The scrub ends, and reports that once.
    let alarms = || std::fs::read_to_string(place.0.join("alarms.jsonl")).unwrap().lines().count();
    let (told, audited) = (alarms(), answered(&place, 0, &["audit", "show", "--limit", "1"])["number"].clone());
    let output = place.stele(&["pool", "scrub", "--wait", "--json"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(output.stderr.len() < 10_000, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(alarms() - told < 30, "{} alarms of one scrub; audit before: {audited}", alarms() - told);
    assert!(standing(&place).contains(&"data-unreadable".to_owned()), "{:?}", standing(&place));

    // The drives come back one by one while the server runs.
    for name in lost {
        let path = dir.join(name);
        std::fs::rename(away.join(name), &path).unwrap();
        let drives = before["drives"].as_array().unwrap();
        let known = drives.iter().find(|drive| drive["path"].as_str().unwrap().ends_with(name)).unwrap();
        let (number, path) = (known["drive"].to_string(), path.to_str().unwrap().to_owned());
        place.json(&["drive", "online", &number, &path]);
        place.refused(2, &["answers"], &["drive", "online", &number, &path]);
    }
    for seed in 0..count {
        assert!(good(server.get(&format!("/records/{seed:03}"))).body == content(seed, LENGTH), "{seed}");
    }
    wait_for("all to be well", || all_hold_what_they_should(&place).then_some(()));
    // A whole pass verifies all damaged data once more.
    answered(&place, 0, &["pool", "scrub", "--wait"]);
    // The same whether or not the archive could be written at its opening.
    wait_for("no alarm to stand", || standing(&place).is_empty().then_some(()));
    server.put("/records/after", &content(1, LENGTH));
    assert_eq!(answered(&place, 0, &["affected"])["unreadable_stripes"], 0);
    wait_for("health", || (server.plain("/health").status == 200).then_some(()));
    server.stop();
}

/// The drives that the archive needs for writing differ between pools, since the pool's identity
/// decides the layout. Pairs are detached until the archive opens read-only.
#[test]
fn an_archive_opened_for_reading_takes_changes_when_its_drives_are_back() {
    let place = Place::new("again");
    place.pool(5);
    let server = place.serve();
    let keys = server.keys();
    place.json(&["bucket", "create", "records", "--lock", "--retention", "compliance:1y"]);
    (0..24).for_each(|seed| drop(server.put(&format!("/records/{seed}"), &content(seed, LENGTH))));
    server.kill();
    let away = place.0.join("away");
    std::fs::create_dir(&away).unwrap();
    let moved = |numbers: [u64; 2], back: bool| {
        for name in numbers.map(|number| format!("d{number}.img")) {
            let (here, there) = (place.0.join(&name), away.join(&name));
            if back { std::fs::rename(there, here) } else { std::fs::rename(here, there) }.unwrap();
        }
    };
    let pairs = (0..5).flat_map(|one| (one + 1..5).map(move |other| [one, other]));
    let (server, lost) = pairs
        .into_iter()
        .find_map(|lost| {
            moved(lost, false);
            if let Ok(server) = Server::start(&place, &["serve"]) {
                // It reports the truth from the first moment on. Two drives of five need not share
                // a stripe.
                let told = place.stele(&["affected"]).status.code();
                let unreadable = place.json(&["pool", "status"])["unreadable_stripes"].as_u64() > Some(0);
                assert_eq!(told, Some(if unreadable { 5 } else { 0 }), "{lost:?} are away");
                if standing(&place).contains(&"read-only".to_owned()) {
                    return Some((server.with_keys(keys.clone()), lost));
                }
                server.kill();
            }
            moved(lost, true);
            None
        })
        .expect("an archive on 2+1 cannot be written without some two of five drives");
    let refused = server.send(server.ask("PUT", "/records/refused").body(content(1, LENGTH)));
    assert!(refused.status >= 500, "{}", refused.head);
    moved(lost, true);
    for number in lost {
        place.json(&["drive", "online", &number.to_string(), &place.path(&format!("d{number}.img"))]);
    }
    wait_for("no alarm to stand", || standing(&place).is_empty().then_some(()));
    (24..48).for_each(|seed| drop(server.put(&format!("/records/{seed}"), &content(seed, LENGTH))));
    let check = |server: &Server| {
        for seed in 0..48 {
            assert!(good(server.get(&format!("/records/{seed}"))).body == content(seed, LENGTH), "{seed}");
        }
        answered(&place, 0, &["audit", "verify"]);
    };
    check(&server);
    server.kill();
    let server = place.serve().with_keys(keys);
    check(&server);
    server.stop();
}

#[test]
fn a_drive_given_up_for_a_loose_cable_is_taken_back_and_filled() {
    let place = Place::new("cable");
    place.pool(5);
    let server = place.serve();
    place.json(&["bucket", "create", "records"]);
    let put = |seed: u64| drop(server.put(&format!("/records/{seed}"), &content(seed, 1 << 20)));
    (0..24).for_each(put);
    assert_eq!(place.json(&["pool", "scrub", "--wait"])["scrub_damage_found"], 0);
    // A faulty cable: the drive is unreadable for a while. Its contents are there afterwards, and
    // outdated.
    let path = place.0.join("d3.img");
    let whole = std::fs::read(&path).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    wait_for("the drive to be given up", || {
        let _ = place.stele(&["pool", "scrub", "--wait"]);
        (drive_of(&place.json(&["pool", "status"]), 3)["health"] == "failed").then_some(())
    });
    (24..48).for_each(put);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&whole, 0).unwrap();
    place.refused(3, &["drive 3 of this pool"], &["drive", "wipe", path.to_str().unwrap(), "--yes"]);
    let taken = place.json(&["drive", "clear", "3"]);
    assert!(matches!(taken["health"].as_str(), Some("stale" | "healthy")), "{taken}");
    wait_for("the drive to be filled", || {
        let status = place.json(&["pool", "status"]);
        let drive = drive_of(&status, 3);
        (drive["health"] == "healthy" || is_slow(drive)).then_some(())
    });
    let scrubbed = place.json(&["pool", "scrub", "--wait"]);
    assert!(scrubbed["scrub_damage_found"] == 0 && is_whole(&scrubbed), "{scrubbed}");
    for seed in 0..48 {
        assert!(good(server.get(&format!("/records/{seed}"))).body == content(seed, 1 << 20), "{seed}");
    }
    wait_for("no alarm to stand", || standing(&place).is_empty().then_some(()));

    // Drives without a light, or with an unknown number.
    place.refused(4, &["light"], &["drive", "locate", "3"]);
    place.refused(4, &["no drive 77"], &["drive", "clear", "77"]);
    place.refused(4, &["no drive 77"], &["drive", "online", "77"]);
    // A drive can be wiped only after it has left.
    place.json(&["pool", "replace", "3", &place.path("new.img"), "--size", "256MiB", "--wait"]);
    let old = path.to_str().unwrap();
    wait_for("the drive to be let go", || place.stele(&["drive", "wipe", old, "--yes"]).status.success().then_some(()));
    place.refused(4, &["no label"], &["drive", "wipe", old, "--yes"]);
    let member = place.path("d0.img");
    // With its health; on a busy machine a drive may count as slow for a while.
    place.refused(3, &["drive 0 of this pool, and "], &["drive", "wipe", &member, "--yes"]);
    place.refused(2, &["--yes"], &["drive", "wipe", &member]);
    place.json(&["pool", "add", "--drive", &format!("{old}@3"), "--wait"]);
    let status = place.json(&["pool", "status"]);
    assert!(is_whole(&status), "{status}");
    server.stop();
}

#[test]
fn room_is_told_in_words_and_what_is_promised_twice_is_said() {
    let place = Place::new("room");
    place.pool(5);
    let server = place.serve();
    let space = &place.json(&["pool", "status"])["space"];
    assert_eq!(space["overpromised_raw_bytes"], 0, "{space}");
    let codes: Vec<&str> =
        space["codes"].as_array().unwrap().iter().map(|code| code["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&"2+1") && codes.iter().any(|code| code.starts_with("mirror")), "{space}");
    let (size, free) =
        (space["objects"]["size_bytes"].as_u64().unwrap(), space["objects"]["free_bytes"].as_u64().unwrap());
    assert!(free > size / 2 && free <= size && space["objects"]["full_percent"].as_u64().unwrap() < 50, "{space}");
    place.json(&["volume", "create", "disk", "--code", "2+1", "--size", "1TiB"]);
    let text = String::from_utf8(place.stele(&["pool", "status"]).stdout).unwrap();
    assert!(text.contains("more than fits beside spare space") && text.contains("room for"), "{text}");
    for arguments in [&["pool", "status"][..], &["volume", "list"], &["volume", "show", "disk"], &["affected"]] {
        // Output for programs is not cut, unless they ask for it.
        let shown = place.command(arguments).arg("--dir").arg(&place.0).env("COLUMNS", "80").output().unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        // Sentences of alarms are not cut.
        let tables =
            text.lines().take_while(|line| !line.starts_with("What is wrong") && !line.starts_with("Last alarms"));
        let wide: Vec<&str> = tables.filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty() && !text.is_empty(), "{arguments:?}: {wide:#?}");
    }
    server.stop();
}
