//! `pool add` and `pool remove` on file drives: with a running server, across a kill in the middle,
//! and without a server.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;

use crate::support;
use crate::support::server::good;
use crate::support::{Place, content, is_whole, wait_for};
use serde_json::{Value, json};

const OBJECTS: u64 = 24;

fn store(server: &support::Server) {
    for n in 0..OBJECTS {
        server.put(&format!("/records/{n}"), &content(n, 1 << 20));
    }
}

fn check(server: &support::Server) {
    for n in 0..OBJECTS {
        assert!(good(server.get(&format!("/records/{n}"))).body == content(n, 1 << 20), "object {n}");
    }
}

fn numbers(status: &Value) -> Vec<u64> {
    // A drive that the pool does not use has none.
    status["drives"].as_array().unwrap().iter().map(|drive| drive["drive"].as_u64().unwrap_or(u64::MAX)).collect()
}

#[test]
fn drives_join_and_leave_a_pool_that_serves_and_a_kill_in_the_middle_changes_nothing() {
    let place = Place::new("growth");
    place.pool(5);
    let server = place.serve();
    let keys = server.keys();
    place.json(&["bucket", "create", "records"]);
    store(&server);

    // Refused: nothing changes, neither on the drives nor in the configuration.
    let before = place.config();
    let foreign = place.path("d0.img");
    place.refused(9, &["d0.img is drive 0 of this pool"], &["pool", "add", "--drive", &format!("{foreign}@0")]);
    let twice = format!("{}@7", place.path("d7.img"));
    place.refused(2, &["d7.img", "named twice"], &["pool", "add", "--drive", &twice, "--drive", &twice]);
    place.refused(2, &["no enclosure", "PATH@ENCLOSURE"], &["pool", "add", "--drive", &place.path("d5.img")]);
    place.refused(2, &["'a' is no number", "PATH@NUMBER"], &["pool", "add", "--drive", &place.path("d5.img@a")]);
    let small = place.path("small.img");
    place.refused(2, &["too small"], &["pool", "add", "--drive", &format!("{small}@9"), "--size", "8MiB"]);
    assert!(!std::path::Path::new(&small).exists() && place.config() == before, "{}", place.config());

    let (five, six) = (place.path("d5.img"), place.path("d6.img"));
    let drives = [format!("{five}@5"), format!("{six}@6")];
    let arguments = ["pool", "add", "--size", "256MiB", "--drive", &drives[0], "--drive", &drives[1]];
    assert_eq!(place.json(&arguments)["added"], 2);
    assert!(drives.iter().all(|drive| place.config().contains(drive)), "{}", place.config());
    server.kill();
    let server = place.serve().with_keys(keys.clone());
    let status = wait_for("stripes on the added drives", || {
        let status = place.json(&["pool", "status"]);
        let last = status["drives"].as_array().unwrap().last().unwrap()["used_bytes"].as_u64();
        (status["moving"].is_null() && last > Some(0)).then_some(status)
    });
    assert!(numbers(&status) == [0, 1, 2, 3, 4, 5, 6] && is_whole(&status), "{status}");
    check(&server);

    // Remove the first drive again, with a kill in between.
    assert_eq!(place.json(&["pool", "remove", "0"])["removing"], 0);
    server.kill();
    let server = place.serve().with_keys(keys.clone());
    wait_for("the drive to leave", || {
        let status = place.json(&["pool", "status"]);
        (numbers(&status) == [1, 2, 3, 4, 5, 6] && !place.config().contains("d0.img")).then_some(())
    });
    check(&server);
    // The same after a kill between the drive's leaving and the change of the configuration.
    server.kill();
    let again = place.config().replacen("drives = [", &format!("drives = [\"{}@0\", ", place.path("d0.img")), 1);
    std::fs::write(place.0.join("stele.toml"), again).unwrap();
    let server = place.serve().with_keys(keys.clone());
    let status = place.json(&["pool", "status"]);
    assert!(is_whole(&status) && status["standing"].as_array().unwrap().is_empty(), "{status}");
    wait_for("the entry to go", || (!place.config().contains("d0.img")).then_some(()));
    check(&server);
    std::fs::remove_file(place.path("d0.img")).unwrap();
    let scrubbed = place.json(&["pool", "scrub", "--wait"]);
    assert_eq!((scrubbed["verified_versions"].as_u64(), scrubbed["lost_stripes"].as_u64()), (Some(OBJECTS), Some(0)));
    server.stop();
    let server = place.serve().with_keys(keys);
    assert!(is_whole(&place.json(&["pool", "status"])));
    check(&server);
    server.stop();

    // Without a server the command waits for the removal.
    let status = place.json(&["pool", "remove", "6"]);
    assert_eq!(numbers(&status), [1, 2, 3, 4, 5], "{status}");
    assert!(!place.config().contains("d6.img"), "{}", place.config());
    place.refused(4, &["left the pool already"], &["pool", "remove", "6"]);
    place.refused(4, &["no"], &["pool", "remove", "77"]);
}

/// Sizes of the archive's volumes, by owner.
fn sizes(place: &Place) -> (u64, u64) {
    let list = place.json(&["volume", "list"]);
    let of = |owner: &str| {
        let volume = list.as_array().unwrap().iter().find(|volume| volume["owner"] == owner).unwrap();
        volume["size_bytes"].as_u64().unwrap()
    };
    (of("catalog"), of("archive"))
}

#[test]
fn a_full_archive_takes_more_when_drives_are_added_and_grows_no_further_than_it_may() {
    let place = Place::new("growth-room");
    // Large enough that the catalog exceeds its minimum.
    let drives: Vec<String> =
        (0..5).map(|number| format!("{}@{number}", place.path(&format!("d{number}.img")))).collect();
    let mut arguments = vec!["pool", "create", "--confirm-time", "--size", "2GiB", "--data", "2+1", "--spare", "1"];
    drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
    place.json(&arguments);
    let server = place.serve();
    let keys = server.keys();
    place.json(&["bucket", "create", "records"]);
    store(&server);
    let before = sizes(&place);
    let room = |status: &Value| status["space"]["objects"]["size_bytes"].as_u64().unwrap();
    let had = room(&place.json(&["pool", "status"]));
    let add = |numbers: [u32; 2]| {
        let drives = numbers.map(|number| format!("{}@{number}", place.path(&format!("d{number}.img"))));
        place.json(&["pool", "add", "--size", "2GiB", "--drive", &drives[0], "--drive", &drives[1]])
    };
    let added = add([5, 6]);
    assert_eq!(added["objects_size_before_bytes"], had, "{added}");
    let has = added["objects_size_bytes"].as_u64().unwrap();
    assert!(has > had + (2 << 30), "{had} before, {has} now");
    let after = sizes(&place);
    assert!(after.0 > before.0 && after.1 > before.1, "{before:?}, {after:?}");
    let audit = String::from_utf8(place.stele(&["audit", "show", "--limit", "20"]).stdout).unwrap();
    assert!(
        audit.contains("grow the catalog 'catalog' from") && audit.contains("grow the data volume 'data'"),
        "{audit}"
    );
    check(&server);
    // Killed immediately, it opens with its present size.
    server.kill();
    let server = place.serve().with_keys(keys.clone());
    assert_eq!((sizes(&place), room(&place.json(&["pool", "status"]))), (after, has));
    check(&server);
    place.json(&["audit", "verify"]);
    server.stop();
    // The size stays within the configured limit, and never shrinks.
    place.edit_config(|text| text.replace("[archive]\n", "[archive]\ndata_max = \"1GiB\"\n"));
    let server = place.serve().with_keys(keys.clone());
    let added = add([7, 8]);
    assert_eq!(
        (&added["objects_size_before_bytes"], &added["objects_size_bytes"]),
        (&has.into(), &has.into()),
        "{added}"
    );
    check(&server);
    server.stop();
    // A rebuild needs the data volume as it is now.
    place.json(&["catalog", "rebuild", "--yes", "--force"]);
    let server = place.serve().with_keys(keys);
    check(&server);
    server.stop();
}

#[test]
fn a_drive_that_the_others_cannot_do_without_is_not_removed() {
    let place = Place::new("growth-least");
    place.pool(5);
    // The catalog tolerates two lost drives, so the pool's own tables lie on four.
    place.json(&["pool", "remove", "1"]);
    let config = place.config();
    place.refused(3, &["drive 2 cannot be removed", "would remain", "add drives"], &["pool", "remove", "2"]);
    assert!(is_whole(&place.json(&["pool", "status"])));
    assert_eq!(place.config(), config);
}

/// A fully allocated volume has promised slots in rows that hold no stripe yet.
#[test]
fn a_drive_whose_room_is_promised_is_not_removed() {
    let place = Place::new("growth-promised");
    let drives: Vec<String> = (0..5).map(|number| place.path(&format!("d{number}.img"))).collect();
    let mut arguments = vec!["pool", "create", "--confirm-time", "--size", "128MiB", "--data", "none", "--spare", "1"];
    drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
    place.json(&arguments);
    place.json(&["volume", "create", "firm", "--code", "2+1", "--size", "300MiB", "--allocate"]);
    place.refused(3, &["drive 0 cannot be removed", "add drives"], &["pool", "remove", "0"]);
    assert!(is_whole(&place.json(&["pool", "status"])));
    // Without the promise there is room.
    place.json(&["volume", "delete", "firm", "--yes"]);
    place.json(&["volume", "create", "thin", "--code", "2+1", "--size", "300MiB"]);
    let status = place.json(&["pool", "remove", "0"]);
    assert_eq!(numbers(&status), [1, 2, 3, 4], "{status}");
}

/// A path that is mistyped may lead to any file.
#[test]
fn a_file_that_is_full_of_data_is_not_made_a_drive() {
    let place = Place::new("growth-content");
    place.pool(4);
    let (full, data) = (place.path("backup"), content(1, 256 << 20));
    std::fs::write(&full, &data).unwrap();
    let (drive, before) = (format!("{full}@5"), place.config());
    let says = ["backup holds data of an unknown kind", "--destroy"];
    place.refused(3, &says, &["pool", "add", "--drive", &drive]);
    place.refused(3, &says, &["pool", "replace", "3", &drive]);
    let other = Place::new("growth-content-other");
    let new = [0, 1].map(|number| other.path(&format!("d{number}.img")));
    let create = ["pool", "create", "--confirm-time", "--size", "256MiB", "--data", "none", "--drive", &full];
    other.refused(3, &says, &[&create[..], &["--drive", &new[0], "--drive", &new[1]]].concat());
    assert!(std::fs::read(&full).unwrap() == data && place.config() == before);
    place.json(&["pool", "add", "--drive", &drive, "--destroy"]);
    // What has left and was wiped is taken without the word, whatever the pool wrote to it.
    place.json(&["pool", "remove", "4"]);
    place.json(&["drive", "wipe", &full, "--yes"]);
    place.json(&["pool", "add", "--drive", &drive]);
    assert!(is_whole(&place.json(&["pool", "status"])));
}

/// The next start finds the drives that `[pool] drives` names, whatever path a drive had before.
#[test]
fn the_configuration_names_each_drive_where_it_is() {
    let place = Place::new("growth-paths");
    place.pool(6);
    let server = place.serve();
    let whole = || wait_for("all to be whole", || is_whole(&place.json(&["pool", "status"])).then_some(()));
    // A drive that left, was wiped and was added again under its path is named, although it left
    // once.
    let (again, moved) = (place.path("d5.img"), place.path("elsewhere.img"));
    place.json(&["pool", "remove", "5", "--wait"]);
    place.json(&["drive", "wipe", &again, "--yes"]);
    place.json(&["pool", "add", "--drive", &format!("{again}@5"), "--wait"]);
    // A drive that was given up and replaced is released, and another drive may get its path.
    let (given, new) = (place.path("d1.img"), place.path("new.img"));
    let replace = ["pool", "replace", "1", &new, "--size", "256MiB", "--give-up", "--yes", "--wait"];
    place.json(&replace);
    place.json(&["drive", "wipe", &given, "--yes"]);
    place.json(&["pool", "add", "--drive", &format!("{given}@6"), "--wait"]);
    whole();
    server.stop();
    // Drives found at other paths are named there. If two moved, their former entries cannot be
    // told apart.
    let pair =
        [3, 4].map(|number| (number, place.path(&format!("d{number}.img")), place.path(&format!("e{number}.img"))));
    pair.iter().for_each(|(_, from, to)| std::fs::rename(from, to).unwrap());
    let server = place.serve();
    for (number, _, to) in &pair {
        place.json(&["drive", "online", &number.to_string(), to]);
    }
    for (_, from, to) in &pair {
        assert!(place.config().contains(to) && !place.config().contains(from), "{}", place.config());
    }
    whole();
    server.stop();
    std::fs::rename(place.path("d2.img"), &moved).unwrap();
    let server = place.serve();
    place.refused(4, &["no drive 77"], &["drive", "online", "77", &moved]);
    let before = place.config();
    assert!(!place.stele(&["drive", "online", "2", &again]).status.success(), "that is another drive");
    assert_eq!(place.config(), before);
    place.json(&["drive", "online", "2", &moved]);
    whole();
    server.stop();
    let config = place.config();
    for (path, named) in [(&again, 1), (&moved, 1), (&given, 1), (&new, 1), (&place.path("d2.img"), 0)] {
        assert_eq!(config.matches(path.as_str()).count(), named, "{path}: {config}");
    }
    let server = place.serve();
    assert!(is_whole(&place.json(&["pool", "status"])), "{}", place.json(&["pool", "status"]));
    server.stop();
}

/// Two drives are away: one is found at another path, and the other is replaced, in both orders.
#[test]
fn no_entry_stays_of_drives_that_moved_or_were_replaced() {
    let place = Place::new("growth-entries");
    // Two drives are away at a time.
    place.pool_of(6, "2+2");
    let at = |name: &str| place.path(&format!("{name}.img"));
    let online = |number: &str, path: &str| drop(place.json(&["drive", "online", number, path]));
    let replace = |number: &str, path: &str| {
        place.json(&["pool", "replace", number, path, "--size", "256MiB", "--yes", "--wait"]);
    };
    for (first, moved, lost) in [("online", "1", "2"), ("replace", "3", "4")] {
        let (from, to) = (at(&format!("d{moved}")), at(&format!("moved{moved}")));
        let (old, new) = (at(&format!("d{lost}")), at(&format!("new{lost}")));
        std::fs::rename(&from, &to).unwrap();
        std::fs::rename(&old, at(&format!("lost{lost}"))).unwrap();
        let server = place.serve();
        if first == "online" {
            online(moved, &to);
            replace(lost, &new);
        } else {
            replace(lost, &new);
            online(moved, &to);
        }
        let config = place.config();
        for (path, named) in [(&from, 0), (&to, 1), (&old, 0), (&new, 1)] {
            assert_eq!(config.matches(path.as_str()).count(), named, "{first} first, {path}: {config}");
        }
        wait_for("all to be whole", || is_whole(&place.json(&["pool", "status"])).then_some(()));
        server.stop();
    }
}

/// A server in the place of the real one: it shows this status, and answers `pool/add` and
/// `pool/replace` with a failure, or not at all.
struct Impostor {
    socket: std::path::PathBuf,
}

impl Impostor {
    fn new(place: &Place, status: Value, failure: Option<Value>) -> Impostor {
        let socket = place.0.join("stele.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        // It ends with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(&stream);
                let (mut head, mut length) = (String::new(), 0);
                loop {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) <= 2 {
                        break;
                    }
                    if let Some((name, value)) = line.split_once(':')
                        && name.eq_ignore_ascii_case("content-length")
                    {
                        length = value.trim().parse().unwrap();
                    }
                    head.push_str(&line);
                }
                let _ = reader.read_exact(&mut vec![0; length]);
                let (code, body) = match &failure {
                    _ if head.contains("/v1/pool/status") => ("200 OK", status.to_string()),
                    _ if head.contains("/v1/pool/forget") => ("200 OK", "{}".to_owned()),
                    Some(failure) => ("500 Failed", failure.to_string()),
                    None => continue,
                };
                let head = format!("HTTP/1.1 {code}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                let _ = (&stream).write_all((head + &body).as_bytes());
            }
        });
        Impostor { socket }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

#[test]
fn a_drive_that_the_pool_may_have_stays_in_the_configuration_and_the_command_is_repeated() {
    let place = Place::new("growth-lost");
    place.pool(3);
    let server = place.serve();
    let keys = server.keys();
    let status = place.json(&["pool", "status"]);
    server.stop();
    let (new, entry) = (place.path("d5.img"), format!("{}@5", place.path("d5.img")));
    let add = ["pool", "add", "--size", "256MiB", "--drive", &entry];
    let replace = ["pool", "replace", "1", &entry, "--size", "256MiB"];
    let before = place.config();
    let failure = json!({ "kind": "full", "error": "the act could not be recorded" });
    for command in [&add[..], &replace[..]] {
        // The pool does not have the drive: nothing has changed.
        let impostor = Impostor::new(&place, status.clone(), Some(failure.clone()));
        place.refused(6, &["could not be recorded"], command);
        assert_eq!(place.config(), before);
        drop(impostor);
    }
    // Another process holds the drive, as the server found out: the pool does not have it, either.
    let next = stele_server::node::membership::HELD_NEXT;
    let held = json!({ "kind": "busy", "error": "d5.img: is in use by process 9", "next": next });
    for command in [&add[..], &replace[..]] {
        let impostor = Impostor::new(&place, status.clone(), Some(held.clone()));
        place.refused(7, &["is in use by process 9", next], command);
        assert_eq!(place.config(), before);
        drop(impostor);
    }
    // The answer is lost: the pool may take the drive still.
    for command in [&add[..], &replace[..]] {
        let impostor = Impostor::new(&place, status.clone(), None);
        place.refused(7, &["broke off", "stele pool status"], command);
        assert!(place.config().contains(&entry), "{}", place.config());
        drop(impostor);
    }
    // A drive that the pool has is not added again.
    let mut taken = status.clone();
    let drives = taken["drives"].as_array_mut().unwrap();
    let mut own = drives[0].clone();
    (own["drive"], own["path"]) = (json!(3), json!(new));
    drives.push(own);
    let impostor = Impostor::new(&place, taken, Some(failure));
    place.refused(9, &["d5.img is drive 3 of this pool"], &add);
    drop(impostor);

    // The command is repeated, with the entry that the first one left.
    let server = place.serve().with_keys(keys);
    assert_eq!(place.json(&add)["added"], 1);
    assert_eq!(numbers(&place.json(&["pool", "status"])), [0, 1, 2, 3]);
    assert_eq!(place.config().matches(&entry).count(), 1, "{}", place.config());
    server.stop();
}
