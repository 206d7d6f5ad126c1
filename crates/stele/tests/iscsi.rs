//! iSCSI with initiators of other projects: libiscsi's tools and test suite, and QEMU, against
//! `stele serve`.
//!
//! If a client is not installed, the test says so and passes, except in CI.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support;
use crate::support::{Place, Server, installed};

/// The server with iSCSI on a free port.
fn serve(place: &Place) -> Server {
    place.edit_config(|text| match text.contains("[iscsi]\nlisten") {
        true => text,
        false => text.replace("[iscsi]\n", "[iscsi]\nlisten = \"127.0.0.1:0\"\n"),
    });
    place.serve()
}

/// Four drives without any volume.
fn bare_pool(place: &Place) {
    let drives: Vec<String> =
        (0..4).map(|number| format!("{}@{number}", place.path(&format!("d{number}.img")))).collect();
    let mut arguments = vec!["pool", "create", "--confirm-time", "--size", "256MiB", "--data", "none"];
    drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
    place.json(&arguments);
}

fn run(command: &str, arguments: &[&str]) -> Output {
    // A hanging client must not stop the tests.
    Command::new("timeout").arg("300").arg(command).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn good(command: &str, arguments: &[&str]) -> String {
    let output = run(command, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command} {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn export(place: &Place, volume: &str, more: &[&str]) -> String {
    let shown = place.json(&[&["volume", "export", volume, "--iscsi"], more].concat());
    shown["url"].as_str().unwrap().to_owned()
}

/// Passed and failed tests, from the last lines of the suite.
fn counts(said: &str) -> (u32, u32) {
    let line = said.lines().find(|line| line.trim_start().starts_with("tests ")).unwrap_or_default();
    let numbers: Vec<u32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    (numbers.get(2).copied().unwrap_or(0), numbers.get(3).copied().unwrap_or(u32::MAX))
}

/// A volume for the suite: its reservation tests write 512 bytes as a block, and a GET LBA STATUS
/// test takes logical blocks for physical ones.
fn suite_target(place: &Place) -> String {
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "128MiB", "--block", "512"]);
    export(place, "vm1", &["--removable", "--native-blocks"])
}

/// Runs a part of the suite over two paths: returns the number of passed, failed and skipped tests,
/// and the output.
fn suite(part: &str, url: &str) -> ((u32, u32, usize), String) {
    let output = run("iscsi-test-cu", &["-d", "-v", "-t", part, url, url]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let skipped = said.lines().filter(|line| line.contains("Test: ") && line.contains("[SKIPPED]")).count();
    let (passed, failed) = counts(&said);
    ((passed, failed, skipped), said)
}

// SEMANTICS/block.md lists the skipped tests with reasons.
const SKIPPED: usize = 19;

#[test]
fn the_suite_of_libiscsi_finds_no_fault() {
    if !installed(&["iscsi-test-cu", "--list"]) {
        return;
    }
    let place = Place::in_memory("iscsi-suite");
    bare_pool(&place);
    let server = serve(&place);
    let (found, said) = suite("ALL", &suite_target(&place));
    assert_eq!(found, (230, 0, SKIPPED), "{said}");
    server.stop();
}

#[test]
fn the_suites_of_libiscsi_find_no_fault_each_in_a_process_of_its_own() {
    if !installed(&["iscsi-test-cu", "--list"]) {
        return;
    }
    let place = Place::in_memory("iscsi-suites");
    bare_pool(&place);
    let server = serve(&place);
    let url = suite_target(&place);
    let list = good("iscsi-test-cu", &["--list"]);
    let mut all = (0, 0, 0);
    for part in list.lines().filter(|line| line.starts_with("ALL.") && line.matches('.').count() == 1) {
        let (found, said) = suite(part, &url);
        assert_eq!(found.1, 0, "{part}: {said}");
        all = (all.0 + found.0, all.1 + found.1, all.2 + found.2);
    }
    assert_eq!(all, (230, 0, SKIPPED));
    // Tests that the suite skips for a writable target.
    let url = {
        place.json(&["export", "remove", "iqn.2026-01.local.stele:vm1", "--protocol", "iscsi"]);
        export(&place, "vm1", &["--read-only"])
    };
    let (found, said) = suite("ALL.ReadOnly", &url);
    assert_eq!(found, (1, 0, 0), "{said}");
    server.stop();
}

#[test]
fn what_qemu_writes_it_reads_back_after_the_server_was_killed() {
    if !installed(&["qemu-img", "--version"]) || !Path::new("/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so").exists() {
        return;
    }
    let place = Place::new("iscsi-qemu");
    place.pool(5);
    let mut server = serve(&place);
    place.json(&["volume", "create", "vm1", "--code", "2+1", "--size", "64MiB"]);
    let (image, back) = (place.path("image"), place.path("back"));
    std::fs::write(&image, support::content(1, 64 << 20)).unwrap();
    let url = export(&place, "vm1", &[]);
    good("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &image, &url]);
    server.kill();
    server = serve(&place);
    let shown = place.json(&["export", "list"]);
    let url = shown[0]["url"].as_str().unwrap();
    good("qemu-img", &["convert", "-f", "raw", "-O", "raw", url, &back]);
    assert!(std::fs::read(&image).unwrap() == std::fs::read(&back).unwrap(), "what came back differs");
    let listed = shown[0]["iscsi"].as_object();
    assert!(listed.is_none(), "{shown}");
    server.stop();
}

#[test]
fn a_target_is_reached_with_its_secret_and_found_by_those_who_may() {
    if !installed(&["iscsi-inq", "--help"]) {
        return;
    }
    let place = Place::new("iscsi-access");
    place.pool(5);
    let server = serve(&place);
    let address = server.ready["iscsi"].as_str().unwrap().to_owned();
    for volume in ["open", "guarded", "elsewhere"] {
        place.json(&["volume", "create", volume, "--code", "mirror-2", "--size", "8MiB"]);
    }
    std::fs::write(place.path("secret"), "quite a long secret\n").unwrap();
    std::fs::write(place.path("short"), "short\n").unwrap();
    export(&place, "open", &[]);
    export(&place, "elsewhere", &["--allow", "10.0.0.0/8"]);
    let guarded = export(&place, "guarded", &["--chap-user", "host", "--chap-secret", &place.path("secret")]);
    let listed = good("iscsi-ls", &[&format!("iscsi://{address}/")]);
    assert!(listed.contains(":open") && listed.contains(":guarded") && !listed.contains(":elsewhere"), "{listed}");
    let with = |user: &str| guarded.replace("iscsi://", &format!("iscsi://{user}@"));
    assert!(good("iscsi-inq", &[&with("host%quite a long secret")]).contains("STELE"));
    for url in [guarded.clone(), with("host%another long secret"), with("other%quite a long secret")] {
        assert!(!run("iscsi-inq", &[&url]).status.success(), "{url}");
    }
    assert!(!run("iscsi-inq", &[&guarded.replace(":guarded", ":elsewhere")]).status.success());
    let shown = place.stele(&["export", "list", "--json"]);
    assert!(!String::from_utf8_lossy(&shown.stdout).contains("long secret"), "secrets are not shown");

    let refused = |words: &[&str], arguments: &[&str]| {
        place.refused(2, words, &[&["volume", "export", "open", "--iscsi"], arguments].concat());
    };
    refused(&["at least 12"], &["--chap-user", "host", "--chap-secret", &place.path("short")]);
    refused(&["iqn."], &["--name", "Open"]);
    let again = ["volume", "export", "open", "--iscsi", "--name", "iqn.2026-01.local.stele:again"];
    place.refused(9, &["already"], &again);
    server.stop();
}

#[test]
fn an_export_that_no_host_could_use_is_refused_and_a_volume_of_two_protocols_warned_of() {
    let place = Place::new("iscsi-terms");
    bare_pool(&place);
    let _server = serve(&place);
    place.json(&["volume", "create", "db", "--code", "mirror-2", "--size", "8MiB"]);
    let no_tls = ["iSCSI is not served over TLS", "--chap-user"];
    place.refused(2, &no_tls, &["volume", "export", "db", "--iscsi", "--tls"]);
    let certificate = ["--client-certificate", &"ab".repeat(32)];
    place.refused(2, &no_tls, &[&["volume", "export", "db", "--iscsi"][..], &certificate].concat());
    place.refused(2, &["no client could connect", "tls_certificate"], &["volume", "export", "db", "--nbd", "--tls"]);
    export(&place, "db", &["--name", "iqn.a:db"]);
    place.refused(2, &no_tls, &["export", "set", "iqn.a:db", "--protocol", "iscsi", "--tls", "yes"]);
    let both = "nbd export 'db' writes to 'db' too";
    let warned = |shown: &serde_json::Value| shown["warnings"].to_string().contains("reservations");
    assert!(!warned(&place.json(&["volume", "export", "db", "--nbd", "--name", "copy", "--read-only"])));
    assert!(warned(&place.json(&["volume", "export", "db", "--nbd"])));
    let listed = place.json(&["export", "list"]).to_string();
    assert!(listed.contains(both), "{listed}");
}

#[test]
fn silent_connections_keep_no_initiator_out() {
    let place = Place::new("iscsi-silent");
    bare_pool(&place);
    let server = serve(&place);
    place.json(&["volume", "create", "vm", "--code", "mirror-2", "--size", "64MiB"]);
    let url = export(&place, "vm", &[]);
    let address = url.strip_prefix("iscsi://").and_then(|rest| rest.split_once('/')).unwrap().0;
    // More connections than there are places for handshakes.
    let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    let begun = std::time::Instant::now();
    let mut initiator = Initiator::log_in(&url, "iqn.2026-01.local.host:late");
    assert_eq!(initiator.command(&[0; 6], &[]), 0, "TEST UNIT READY");
    assert!(begun.elapsed().as_secs() < 15, "it did not wait for the silent ones to be dropped");
    drop(silent);
    server.stop();
}

/// An initiator by hand: one session, one command at a time.
struct Initiator {
    stream: TcpStream,
    number: u32,
    /// Data of the last answer; for sense, its length and then the sense.
    said: Vec<u8>,
}

impl Initiator {
    fn log_in(url: &str, name: &str) -> Initiator {
        let (address, target) = url.strip_prefix("iscsi://").and_then(|rest| rest.split_once('/')).unwrap();
        let target = target.strip_suffix("/0").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let keys = format!("InitiatorName={name}\0TargetName={target}\0SessionType=Normal\0ImmediateData=Yes\0");
        let mut header = [0u8; 48];
        (header[0], header[1], header[8]) = (0x43, 0x87, 0x40);
        header[5..8].copy_from_slice(&(keys.len() as u32).to_be_bytes()[1..]);
        send(&mut stream, &header, keys.as_bytes());
        let (answer, _) = receive(&mut stream);
        assert_eq!((answer[0], answer[36], answer[37]), (0x23, 0, 0), "{answer:?}");
        let mut initiator = Initiator { stream, number: 0, said: Vec::new() };
        // The first command reports that the session is new.
        assert_eq!(initiator.command(&[0; 6], &[]), 0x02);
        initiator
    }

    /// Sends a command and returns its status.
    fn command(&mut self, cdb: &[u8], data: &[u8]) -> u8 {
        let mut header = [0u8; 48];
        (header[0], header[1]) = (1, 0xa0);
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        header[16..20].copy_from_slice(&(self.number + 1).to_be_bytes());
        header[20..24].copy_from_slice(&(data.len() as u32).to_be_bytes());
        header[24..28].copy_from_slice(&self.number.to_be_bytes());
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.number += 1;
        send(&mut self.stream, &header, data);
        let (answer, said) = receive(&mut self.stream);
        assert_eq!(answer[0], 0x21, "{answer:?}");
        self.said = said;
        answer[3]
    }

    /// The NAA designator of the unit, from page 83.
    fn unit_name(&mut self) -> [u8; 8] {
        let mut header = [0u8; 48];
        (header[0], header[1], header[23]) = (1, 0xc0, 255);
        header[16..20].copy_from_slice(&(self.number + 1).to_be_bytes());
        header[24..28].copy_from_slice(&self.number.to_be_bytes());
        header[32..38].copy_from_slice(&[0x12, 1, 0x83, 0, 255, 0]);
        self.number += 1;
        send(&mut self.stream, &header, &[]);
        let (answer, page) = receive(&mut self.stream);
        assert_eq!((answer[0], answer[3]), (0x25, 0), "{answer:?}");
        let mut rest = &page[4..];
        loop {
            let (designator, after) = rest[4..].split_at(usize::from(rest[3]));
            if rest[1] == 3 {
                return designator.try_into().unwrap();
            }
            rest = after;
        }
    }

    /// Sense key and code of the last answer.
    fn sense(&self) -> (u8, u16) {
        (self.said[4] & 0x0f, u16::from_be_bytes([self.said[14], self.said[15]]))
    }

    fn reserve_out(&mut self, action: u8, kind: u8, key: u64, new: u64) -> u8 {
        let mut list = [key.to_be_bytes(), new.to_be_bytes(), [0; 8]].concat();
        // APTPL: the registration is to survive a loss of power.
        list[20] = 1;
        self.command(&[0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], &list)
    }
}

fn send(stream: &mut TcpStream, header: &[u8; 48], data: &[u8]) {
    stream.write_all(&[header, data, &[0; 3][..data.len().wrapping_neg() & 3]].concat()).unwrap();
}

fn receive(stream: &mut TcpStream) -> ([u8; 48], Vec<u8>) {
    let mut header = [0; 48];
    stream.read_exact(&mut header).unwrap();
    let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
    let mut data = vec![0; length.next_multiple_of(4)];
    stream.read_exact(&mut data).unwrap();
    (header, data)
}

#[test]
fn a_reservation_outlives_the_server_and_damage_to_it_lets_nobody_in() {
    let place = Place::new("iscsi-reserved");
    place.pool(5);
    let server = serve(&place);
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "8MiB", "--block", "512"]);
    let url = export(&place, "vm1", &[]);
    let mut one = Initiator::log_in(&url, "iqn.a:one");
    assert_eq!(one.reserve_out(0, 0, 0, 77), 0);
    // Write exclusive.
    assert_eq!(one.reserve_out(1, 1, 77, 0), 0);
    server.kill();

    let server = serve(&place);
    let url = place.json(&["export", "list"])[0]["url"].as_str().unwrap().to_owned();
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(Initiator::log_in(&url, "iqn.a:other").command(&write, &[1; 512]), 0x18);
    assert_eq!(Initiator::log_in(&url, "iqn.a:one").command(&write, &[1; 512]), 0);
    server.stop();

    let kept = std::fs::read_dir(place.0.join("reservations")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&kept).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&kept, bytes).unwrap();
    let server = serve(&place);
    let url = place.json(&["export", "list"])[0]["url"].as_str().unwrap().to_owned();
    let refused = std::panic::catch_unwind(|| Initiator::log_in(&url, "iqn.a:one"));
    assert!(refused.is_err(), "a damaged reservation is not guessed");
    assert!(place.log().contains("kept reservations are damaged"), "{}", place.log());
    // The file is named where an operator looks.
    let file = kept.file_name().unwrap().to_str().unwrap();
    let listed = String::from_utf8(place.stele(&["export", "list"]).stdout).unwrap();
    assert!(listed.contains(file) && place.log().contains(file), "{file}: {listed}");
    let standing = place.json(&["pool", "status"])["standing"].to_string();
    assert!(standing.contains("\"export\"") && standing.contains(file), "{standing}");
    server.stop();
}

#[test]
fn initiators_are_told_when_the_pool_has_little_room_left() {
    let place = Place::new("iscsi-room");
    bare_pool(&place);
    let server = serve(&place);
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "2GiB"]);
    let mut host = Initiator::log_in(&export(&place, "vm1", &[]), "iqn.a:one");
    let mut block = 0u32;
    // Fill the pool, 16 MiB at a time, with WRITE SAME.
    let full = loop {
        let place = block.to_be_bytes();
        let cdb = [0x41, 0, place[0], place[1], place[2], place[3], 0, 16, 0, 0];
        match host.command(&cdb, &[7; 4096]) {
            0 => block += 4096,
            2 if host.sense() == (6, 0x3807) => break false,
            status => {
                assert_eq!((status, host.sense()), (2, (7, 0x2707)), "after {block} blocks");
                break true;
            }
        }
    };
    assert!(block > 16 << 10, "{block} blocks fitted");
    if full {
        support::wait_for("the attention", || {
            (host.command(&[0; 6], &[]) == 2).then(|| assert_eq!(host.sense(), (6, 0x3807)))
        });
    }
    // It is reported once.
    assert_eq!(host.command(&[0; 6], &[]), 0);
    server.stop();
}

#[test]
fn both_sides_prove_themselves_and_headers_are_digested_where_the_initiator_asks() {
    if !installed(&["iscsi-inq", "--help"]) || !installed(&["iscsi-readcapacity16", "--help"]) {
        return;
    }
    let place = Place::new("iscsi-mutual");
    bare_pool(&place);
    let server = serve(&place);
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "8MiB"]);
    std::fs::write(place.path("secret"), "quite a long secret\n").unwrap();
    std::fs::write(place.path("own"), "the target's own one\n").unwrap();
    let secrets = ["--chap-user", "host", "--chap-secret", &place.path("secret")];
    let own = ["--mutual-user", "stele", "--mutual-secret", &place.path("own")];
    let url = export(&place, "vm1", &[&secrets[..], &own[..]].concat());
    let url = url.replace("iscsi://", "iscsi://host%quite a long secret@");
    let with = |arguments: &str| format!("{url}?{arguments}");
    let inquired =
        good("iscsi-inq", &[&with("target_user=stele&target_password=the target's own one&header_digest=crc32c")]);
    assert!(inquired.contains("STELE"), "{inquired}");
    // A target that does not know its secret is refused.
    for wrong in [
        "target_user=stele&target_password=another secret of it",
        "target_user=other&target_password=the target's own one",
    ] {
        assert!(!run("iscsi-inq", &[&with(wrong)]).status.success(), "{wrong}");
    }
    let capacity = good("iscsi-readcapacity16", &[&with("header_digest=crc32c")]);
    assert!(capacity.contains("2048") || capacity.contains("8388608"), "{capacity}");
    place.refused(
        2,
        &["both directions"],
        &[
            &["volume", "export", "vm1", "--iscsi"][..],
            &secrets[..],
            &["--mutual-user", "stele", "--mutual-secret", &place.path("secret")],
        ]
        .concat(),
    );
    server.stop();
}

#[test]
fn a_target_exported_read_only_or_protected_by_an_initiator_changes_nothing() {
    if !installed(&["iscsi-swp", "--help"]) || !installed(&["qemu-io", "--version"]) {
        return;
    }
    let place = Place::new("iscsi-readonly");
    bare_pool(&place);
    let server = serve(&place);
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "8MiB", "--block", "512"]);
    let url = export(&place, "vm1", &[]);
    let write = |byte: &str| run("qemu-io", &["-f", "raw", "-c", &format!("write -P {byte} 0 64k"), &url]);
    let holds = |byte: &str| good("qemu-io", &["-r", "-f", "raw", "-c", &format!("read -P {byte} 0 64k"), &url]);
    assert!(write("5").status.success());
    good("iscsi-swp", &["--swp=on", &url]);
    let told = |place: &Place| place.json(&["export", "list"])[0].clone();
    let by = told(&place);
    assert!(by["initiators"]["write_protected_by"].is_string() && by["warnings"].to_string().contains("SWP"), "{by}");
    let refused = write("6");
    assert!(!refused.status.success() || String::from_utf8_lossy(&refused.stdout).contains("failed"), "{refused:?}");
    assert!(!holds("5").contains("verification failed"));
    good("iscsi-swp", &["--swp=off", &url]);
    assert!(told(&place)["initiators"].is_null(), "{}", told(&place));
    assert!(write("7").status.success());
    place.json(&["export", "remove", "iqn.2026-01.local.stele:vm1", "--protocol", "iscsi"]);
    assert_eq!(export(&place, "vm1", &["--read-only"]), url);
    assert!(!write("8").status.success(), "QEMU opens no write-protected unit for writing");
    assert!(!holds("7").contains("verification failed"));
    server.stop();
}

#[test]
fn qemu_reads_large_pieces_of_units_with_blocks_of_either_size() {
    if !installed(&["qemu-img", "--version"]) || !Path::new("/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so").exists() {
        return;
    }
    let place = Place::new("iscsi-blocks");
    bare_pool(&place);
    let server = serve(&place);
    for block in ["512", "4096"] {
        place.json(&["volume", "create", block, "--code", "mirror-2", "--size", "8MiB", "--block", block]);
        let url = export(&place, block, &[]);
        good("qemu-img", &["bench", "-f", "raw", "-t", "none", "-c", "64", "-d", "4", "-s", "262144", &url]);
        let said = good(
            "qemu-io",
            &[
                "-f",
                "raw",
                "-c",
                "write -P 9 512k 1M",
                "-c",
                "read -P 9 512k 1M",
                "-c",
                "discard 512k 1M",
                "-c",
                "read -P 0 512k 1M",
                &url,
            ],
        );
        assert!(!said.contains("failed"), "{block}: {said}");
    }
    server.stop();
}

/// A process that ends together with its owner.
struct Guarded(std::process::Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn fio_verifies_what_it_wrote_over_iscsi_through_kills_and_the_loss_of_a_drive() {
    let block = Path::new("/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so");
    if !installed(&["fio", "--version"]) || !installed(&["qemu-nbd", "--version"]) || !block.exists() {
        return;
    }
    let place = Place::new("iscsi-proof");
    bare_pool(&place);
    let mut server = serve(&place);
    // QEMU's initiator reconnects to its former address.
    let address = server.ready["iscsi"].as_str().unwrap().to_owned();
    place.edit_config(|text| {
        text.replace("[iscsi]\nlisten = \"127.0.0.1:0\"", &format!("[iscsi]\nlisten = \"{address}\""))
    });
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "64MiB", "--block", "512"]);
    let url = export(&place, "vm1", &[]);
    // fio has no initiator of its own in Debian: QEMU's is in between.
    let through = place.path("through.sock");
    let between = ["-f", "raw", "-t", "-k", &through, &url];
    let _between = Guarded(Command::new("qemu-nbd").args(between).stdin(Stdio::null()).spawn().unwrap());
    support::wait_for("qemu-nbd", || support::exists(Path::new(&through)));
    let uri = format!("--uri=nbd+unix:///?socket={through}");
    let what = ["--rw=randwrite", "--norandommap", "--serialize_overlap=1", "--size=16m", "--bs=4k", "--io_size=24m"];
    let checks =
        ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_backlog=512", "--verify_state_save=0"];
    let common = ["200", "fio", "--ioengine=nbd", &uri, "--name=proof", "--iodepth=8", "--rate_iops=1500"];
    let mut fio = Command::new("timeout")
        .args([&common[..], &what, &checks].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let written = |server: &Server| {
        let shown = place.json(&["volume", "show", "vm1"]);
        assert!(server.ready["iscsi"].is_string());
        shown["connections"].as_array().and_then(|all| all.first()?["writes"].as_u64()).filter(|writes| *writes > 500)
    };
    let (there, away) = (place.path("d1.img"), place.path("away.img"));
    for lost in [true, false] {
        support::wait_for("writes", || written(&server));
        server.kill();
        match lost {
            true => std::fs::rename(&there, &away).unwrap(),
            false => std::fs::rename(&away, &there).unwrap(),
        }
        server = serve(&place);
    }
    let mut said = String::new();
    fio.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(fio.wait().unwrap().success(), "{said}");
    assert!(place.stele(&["pool", "scrub", "--wait"]).status.success());
    server.stop();
}

/// Copies blocks from one unit to another, by the names of the units.
fn copy(from: &mut Initiator, names: [&[u8]; 2], blocks: u16) -> u8 {
    let mut list = vec![1, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    for name in names {
        list.extend([0xe4, 0, 0, 0, 1, 3, 0, 8]);
        list.extend(name);
        list.resize(list.len().next_multiple_of(16), 0);
        list.resize(list.len() + 16, 0);
    }
    list.extend([2, 0, 0, 24, 0, 0, 0, 1, 0, 0]);
    list.extend(blocks.to_be_bytes());
    list.extend([0; 16]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    from.command(&cdb, &list)
}

#[test]
fn a_host_that_is_logged_in_to_two_units_has_one_copied_to_the_other() {
    if !installed(&["qemu-io", "--version"]) {
        return;
    }
    let place = Place::new("iscsi-copy");
    bare_pool(&place);
    let server = serve(&place);
    let urls = ["from", "to"].map(|volume| {
        place.json(&["volume", "create", volume, "--code", "mirror-2", "--size", "16MiB", "--block", "512"]);
        export(&place, volume, &[])
    });
    let names = urls.each_ref().map(|url| Initiator::log_in(url, "iqn.2026-01.test:copier").unit_name());
    good("qemu-io", &["-f", "raw", "-c", "write -P 5 0 8M", "-c", "write -P 6 8M 8M", &urls[0]]);
    let mut host = Initiator::log_in(&urls[0], "iqn.2026-01.test:copier");
    let blocks = 24 << 10;
    assert_eq!(copy(&mut host, [&names[0], &names[1]], blocks), 2, "it is not logged in there");
    assert_eq!(host.sense(), (0x0a, 0x0d02));
    let there = Initiator::log_in(&urls[1], "iqn.2026-01.test:copier");
    assert_eq!(copy(&mut host, [&names[0], &names[1]], blocks), 0, "{:?}", host.said);
    drop((host, there));
    let held = ["-c", "read -P 5 0 8M", "-c", "read -P 6 8M 4M", "-c", "read -P 0 12M 4M"];
    let said = good("qemu-io", &[&["-r", "-f", "raw"], &held[..], &[&urls[1]]].concat());
    assert!(!said.contains("verification failed"), "{said}");
    server.stop();
}
