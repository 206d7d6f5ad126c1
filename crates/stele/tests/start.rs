//! The first start, killed at each of its stages: the next start continues, and prints the key.

use crate::support::server::good;
use crate::support::{Place, Server, is_whole};

const UP: [&str; 5] = ["up", "--listen", "127.0.0.1:0", "--drive-size", "256MiB"];

#[test]
fn a_first_start_killed_at_any_stage_is_begun_again() {
    for stage in ["master.key", "drives/e0-0.img", "drives/e5-1.img", "stele.toml", "tls/key.pem"] {
        let place = Place::new("first");
        let arguments = [&UP[..], &["--tls"]].concat();
        Server::kill_when(&place, &arguments, &place.0.join(stage));
        let server = Server::start(&place, &UP).unwrap_or_else(|said| panic!("after a kill at {stage}: {said}"));
        assert!(!server.access_key.is_empty() && !server.secret_key.is_empty(), "{stage}: a key is owed");
        assert!(is_whole(&place.json(&["pool", "status"])), "{stage}");
        place.json(&["bucket", "create", "records"]);
        server.put("/records/key", b"data");
        let keys = server.keys();
        server.kill();
        // A printed key is not printed again, and nothing starts from the beginning.
        let server = Server::start(&place, &UP).unwrap().with_keys(keys);
        assert!(server.ready.get("key_file").is_none(), "{stage}: {}", server.ready);
        assert_eq!(good(server.get("/records/key")).body, b"data", "{stage}");
        assert!(!place.0.join("first-start").exists(), "{stage}");
    }
}

/// Neither an empty note beside a key that was shown, nor a full one beside a key of an operator.
#[test]
fn a_note_of_a_first_start_makes_no_key_beside_others() {
    let place = Place::new("noted");
    place.up().stop();
    let keys = |server: &Server| {
        assert!(server.ready.get("key_file").is_none(), "{}", server.ready);
        assert!(!place.0.join("first-start").exists(), "the note is removed");
        place.json(&["key", "list"]).as_array().unwrap().len()
    };
    std::fs::write(place.0.join("first-start"), "").unwrap();
    let server = Server::start(&place, &["serve"]).unwrap();
    assert_eq!(keys(&server), 1);
    place.json(&["key", "create", "--name", "clerk", "--role", "user"]);
    server.stop();
    std::fs::write(place.0.join("first-start"), "# the first key is owed\n").unwrap();
    let server = Server::start(&place, &["serve"]).unwrap();
    assert_eq!(keys(&server), 2);
}

/// A key is a change, which an archive without its drives does not take.
#[test]
fn a_first_start_without_most_drives_serves_reads_and_owes_its_key() {
    let place = Place::new("first-override");
    place.pool(3);
    place.listen_anywhere();
    let move_drives = |from: &str, to: &str| {
        for drive in ["d1", "d2"] {
            std::fs::rename(place.path(&format!("{drive}{from}")), place.path(&format!("{drive}{to}"))).unwrap();
        }
    };
    move_drives(".img", ".away");
    let server = Server::start(&place, &["serve", "--override-quorum"]).unwrap_or_else(|said| panic!("{said}"));
    assert!(server.ready.get("key_file").is_none(), "{}", server.ready);
    let status = place.json(&["pool", "status"]);
    let standing = status["standing"].as_array().unwrap();
    assert!(standing.iter().any(|alarm| alarm["kind"] == "read-only"), "{status}");
    assert!(place.log().contains("so no first key was made"), "{}", place.log());
    server.kill();
    move_drives(".away", ".img");
    let server = place.serve();
    assert!(!server.access_key.is_empty(), "the key is owed: {}", server.ready);
    place.json(&["bucket", "create", "records"]);
    server.put("/records/key", b"data");
}

/// A service manager repeats such a start every few seconds, and each would have left a key that
/// may do everything.
#[test]
fn a_first_start_that_cannot_serve_makes_no_key() {
    let place = Place::new("first-unserved");
    place.pool(4);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (configured, address) = (place.config(), taken.local_addr().unwrap().to_string());
    place.edit_config(|text| text.replace("127.0.0.1:9000", &address));
    assert_ne!(place.config(), configured);
    for _ in 0..2 {
        place.refused(7, &["cannot listen on"], &["serve"]);
        assert!(!place.0.join("stele.sock").exists(), "nor a socket without a server");
    }
    place.edit_config(|_| configured);
    let server = place.serve();
    assert!(!server.access_key.is_empty(), "the key is owed: {}", server.ready);
    let keys = place.json(&["key", "list"]);
    assert_eq!(keys.as_array().map(Vec::len), Some(1), "{keys}");
}

#[test]
fn an_address_that_another_server_has_makes_no_pool() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let place = Place::new("taken");
    place.refused(7, &["cannot listen on", "--listen"], &["up", "--listen", &address, "--drive-size", "256MiB"]);
    let made: Vec<_> = std::fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(made, Vec::<std::ffi::OsString>::new());
}

#[test]
fn drives_that_hold_a_pool_are_never_taken_for_leftovers() {
    let place = Place::new("leftovers");
    let server = place.up();
    place.json(&["bucket", "create", "records"]);
    server.put("/records/key", b"data");
    let keys = server.keys();
    server.stop();
    // The configuration is lost: what the server left prevents a new pool.
    let config = place.config();
    std::fs::remove_file(place.0.join("stele.toml")).unwrap();
    place.refused(4, &["stele.toml is not there", "stele config import"], &UP);
    // If that is lost too, the labels on the drives do.
    for left in ["first-key.json", "alarms.jsonl", "exports.json", "history.json"] {
        let _ = std::fs::remove_file(place.0.join(left));
    }
    std::fs::remove_dir_all(place.0.join("heads")).unwrap();
    let said = Server::start(&place, &UP).err().expect("a start over a pool's drives");
    assert!(said.contains("e0-0.img"), "{said}");
    // The same on a second try, after notes that the first may have left.
    assert!(Server::start(&place, &UP).is_err());
    std::fs::write(place.0.join("stele.toml"), config).unwrap();
    let server = Server::start(&place, &UP).unwrap().with_keys(keys);
    assert_eq!(good(server.get("/records/key")).body, b"data");
}

/// The list of a start that failed, or was killed, names paths. What came there since is another's.
#[test]
fn a_pool_that_came_to_the_place_of_an_unfinished_start_stays() {
    let source = Place::new("came-from");
    let server = source.up();
    source.json(&["bucket", "create", "records"]);
    server.put("/records/key", b"data");
    let keys = server.keys();
    server.stop();

    let place = Place::new("came-to");
    let refused = Server::start(&place, &[&UP[..], &["--drives", "4"]].concat()).err().expect("8+2 on 4 drives");
    assert!(refused.contains("needs 10 drives"), "{refused}");
    assert!(!place.0.join("first-start").exists(), "a failed start leaves no list");
    assert!(!place.0.join("drives").exists() && place.0.exists(), "a failed start leaves no folder that it made");
    let new = place.path("new");
    let refused = place.command(&["up", "--drives", "0", "--listen", "127.0.0.1:0", "--dir", &new]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(!std::path::Path::new(&new).exists(), "nor the data directory");
    // As a kill leaves it.
    let drives: Vec<_> = std::fs::read_dir(source.0.join("drives")).unwrap().map(|entry| entry.unwrap()).collect();
    let names = drives.iter().map(|drive| format!("drives/{}\n", drive.file_name().display()));
    std::fs::write(place.0.join("first-start"), names.collect::<String>()).unwrap();
    std::fs::rename(source.0.join("drives"), place.0.join("drives")).unwrap();
    for _ in 0..2 {
        let said = Server::start(&place, &UP).err().expect("a start over a pool's drives");
        assert!(said.contains("belongs to pool"), "{said}");
    }
    std::fs::rename(place.0.join("drives"), source.0.join("drives")).unwrap();
    let server = Server::start(&source, &UP).unwrap().with_keys(keys);
    assert_eq!(good(server.get("/records/key")).body, b"data");
}

#[test]
fn an_address_in_the_configuration_is_kept_unless_another_is_asked_for() {
    let place = Place::new("listen");
    place.up().stop();
    place.edit_config(|text| text.replace("127.0.0.1:0", "127.0.0.9:0"));
    let server = Server::start(&place, &["up"]).unwrap();
    assert_eq!(server.address.ip().to_string(), "127.0.0.9");
    server.stop();
    let server = Server::start(&place, &["up", "--listen", "127.0.0.8:0"]).unwrap();
    assert_eq!(server.address.ip().to_string(), "127.0.0.8");
}

/// The pool that could not be made had told an alarm, as no server had.
#[test]
fn a_first_start_that_failed_is_repeated_with_larger_drives() {
    let place = Place::new("repeated");
    let up = |size| ["up", "--listen", "127.0.0.1:0", "--drives", "3", "--data", "mirror-2", "--drive-size", size];
    place.refused(6, &["an archive needs at least", "larger each"], &up("222MiB"));
    Server::start(&place, &up("256MiB")).unwrap_or_else(|said| panic!("{said}")).stop();
}

/// The next step says by how much: that much larger, and the pool is made.
#[test]
fn drives_that_are_too_small_are_told_by_how_much() {
    for (drives, data, size_mib) in
        [(12, "8+2", 64), (12, "8+2", 66), (5, "2+1", 90), (24, "16+3", 40), (3, "mirror-2", 200)]
    {
        let place = Place::new("small");
        let create = |size_mib: u64| {
            let mut arguments: Vec<String> =
                ["pool", "create", "--confirm-time", "--data", data, "--size"].map(str::to_owned).into();
            arguments.push(format!("{size_mib}MiB"));
            arguments.extend((0..drives).flat_map(|drive| {
                ["--drive".to_owned(), format!("{}@{}", place.path(&format!("d{drive}")), drive / 2)]
            }));
            arguments
        };
        let arguments = create(size_mib);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = place.refused(6, &["next: use drives that are", "MiB larger each"], &arguments);
        let larger: u64 = said
            .split_once("use drives that are ")
            .and_then(|(_, rest)| rest.split_once(" MiB larger each")?.0.parse().ok())
            .unwrap_or_else(|| panic!("{said}"));
        assert!(larger < size_mib, "{drives} drives, {data}: {said}");
        let arguments = create(size_mib + larger);
        assert!(
            is_whole(&place.json(&arguments.iter().map(String::as_str).collect::<Vec<_>>())),
            "{drives} drives, {data}"
        );
    }
}
