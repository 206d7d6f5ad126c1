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

#[test]
fn drives_that_hold_a_pool_are_never_taken_for_leftovers() {
    let place = Place::new("leftovers");
    let server = place.up();
    place.json(&["bucket", "create", "records"]);
    server.put("/records/key", b"data");
    let keys = server.keys();
    server.stop();
    // The configuration is lost: the labels on the drives prevent a new pool over them.
    let config = place.config();
    std::fs::remove_file(place.0.join("stele.toml")).unwrap();
    let said = Server::start(&place, &UP).err().expect("a start over a pool's drives");
    assert!(said.contains("e0-0.img"), "{said}");
    // The same on a second try, after notes that the first may have left.
    assert!(Server::start(&place, &UP).is_err());
    std::fs::write(place.0.join("stele.toml"), config).unwrap();
    let server = Server::start(&place, &UP).unwrap().with_keys(keys);
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
