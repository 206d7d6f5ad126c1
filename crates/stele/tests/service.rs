//! The server under a service manager: its notifications, and the doctor before a start.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::Place;
use crate::support::server::good;

fn hears(manager: &UnixDatagram, wanted: &str) {
    let mut bytes = [0; 256];
    loop {
        let length = manager.recv(&mut bytes).unwrap_or_else(|error| panic!("not told {wanted}: {error}"));
        if &bytes[..length] == wanted.as_bytes() {
            return;
        }
    }
}

#[test]
fn a_service_manager_hears_that_it_is_ready_well_and_stopping() {
    let place = Place::new("service");
    place.pool(3);
    place.listen_anywhere();
    let socket = place.path("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = place.command(&["serve"]);
    command.arg("--dir").arg(&place.0).env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "400000");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    hears(&manager, "READY=1");
    hears(&manager, "WATCHDOG=1");
    hears(&manager, "WATCHDOG=1");
    assert!(std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    hears(&manager, "STOPPING=1");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_server_goes_on_though_its_log_is_full_or_nobody_reads_it() {
    let place = Place::new("log-full");
    place.pool(4);
    place.listen_anywhere();
    // The start raises an alarm, which is a line of the log.
    std::fs::rename(place.0.join("d3.img"), place.0.join("away.img")).unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    for (log, name) in [(Stdio::from(full), "full"), (Stdio::from(unread), "unread")] {
        let mut command = place.command(&["serve", "--json"]);
        let mut child = command.arg("--dir").arg(&place.0).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("socket"), "{name}: {line}");
        let status = place.json(&["pool", "status"]);
        let mut standing = status["standing"].as_array().unwrap().iter();
        assert!(standing.any(|alarm| alarm["kind"] == "drive-missing"), "{name}: {status}");
        assert!(std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
        assert!(child.wait().unwrap().success(), "{name}");
    }
    let alarms = std::fs::read_to_string(place.0.join("alarms.jsonl")).unwrap();
    assert!(alarms.contains("drive-missing"), "{alarms}");
}

#[test]
fn a_second_signal_ends_a_server_that_waits_for_requests() {
    /// The server's own time limit for requests under way during a stop.
    const PATIENCE: Duration = Duration::from_secs(20);
    let place = Place::new("second-signal");
    let server = place.up();
    place.json(&["bucket", "create", "records"]);
    good(server.put("/records/whole", b"acknowledged"));
    let keys = server.keys();
    // An upload that never ends.
    let ask = server.ask("PUT", "/records/part").hash("UNSIGNED-PAYLOAD").header("content-length", "1000000");
    let mut upload = TcpStream::connect(server.address).unwrap();
    upload.write_all(&ask.signed().0.bytes()).unwrap();
    upload.write_all(&[7; 1000]).unwrap();
    // The server waits for the request, which shows that it is under way.
    let first = Instant::now();
    server.ask_to_stop();
    while TcpStream::connect(server.address).is_ok() {
        std::thread::yield_now();
    }
    server.stop();
    assert!(first.elapsed() < PATIENCE, "ended after {:?}", first.elapsed());
    let server = place.serve().with_keys(keys);
    assert_eq!(good(server.get("/records/whole")).body, b"acknowledged");
}

/// As where the connection to the terminal breaks off: the kernel and the shell both tell it.
#[test]
fn the_end_of_its_terminal_stops_a_server_in_order() {
    let place = Place::new("hangup");
    let mut server = place.up();
    place.json(&["bucket", "create", "records"]);
    let id = server.child.id().to_string();
    for _ in 0..2 {
        assert!(std::process::Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    }
    let ended = server.child.wait().unwrap();
    assert!(ended.success(), "{ended}: {}", place.log());
    assert!(place.log().contains("stopping: no new requests") && !place.log().contains("told to stop twice"));
    assert!(!place.0.join("stele.sock").exists(), "its socket went with it");
}

#[test]
fn the_doctor_finds_what_is_wrong_and_says_so_by_its_exit_code() {
    let place = Place::new("doctor");
    place.pool(3);
    let verdict = |code: i32| {
        let output = place.stele(&["doctor", "--json"]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str::<serde_json::Value>(text.lines().next().unwrap()).unwrap()
    };
    // Drives that are files on one device: fit for trials.
    let found = verdict(1);
    assert_eq!(found["verdict"], "warning", "{found}");
    let shared = |finding: &&serde_json::Value| finding["check"] == "shared-device" && finding["verdict"] == "warning";
    assert!(found["findings"].as_array().unwrap().iter().any(|finding| shared(&finding)), "{found}");
    let key = place.0.join("master.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let found = verdict(5);
    assert!(found["findings"].to_string().contains("master.key has mode 0644"), "{found}");
    place.refused(5, &["wrong now"], &["doctor"]);
    let said = String::from_utf8(place.stele(&["doctor"]).stdout).unwrap();
    assert!(said.contains("next: chmod go-rwx"), "{said}");
}

#[test]
fn a_version_names_its_commit_where_it_has_one() {
    let place = Place::new("version");
    let said = String::from_utf8(place.command(&["--version"]).output().unwrap().stdout).unwrap();
    assert!(said.starts_with("stele 0.") && (said.contains("(commit ") || said.contains("(not a package)")), "{said}");
    let output = place.command(&["manual", "--into", &place.path("manual")]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(place.0.join("manual/man/stele-pool-create.1")).unwrap();
    assert!(page.contains("confirm") && page.starts_with(".ie"), "{page}");
    // Examples are neither filled nor hyphenated.
    let examples = page.split(".nf\n").nth(1).and_then(|rest| rest.split(".fi\n").next()).unwrap_or_default();
    assert!(examples.lines().count() > 1 && examples.lines().all(|line| line.starts_with("  stele")), "{page}");
    assert!(place.0.join("manual/completions/stele.bash").exists());
}
