//! Volumes as block devices for clients of other projects, unmodified: nbdinfo, nbdcopy, qemu-img,
//! qemu-io and fio.
//!
//! Each test has a server of its own on file drives and Unix sockets, and removes all its files. If
//! a client is not installed, the test says so and passes, except in CI; `.ci/run` installs all
//! clients.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::support::block::{Host, bad, export, good, run};
use crate::support::nbd::{self, Nbd};
use crate::support::{Place, content, installed, wait_for};
use serde_json::Value;

#[test]
fn nbdinfo_and_nbdcopy_find_and_copy_what_is_exported_and_nothing_else() {
    if !installed(&["nbdinfo", "--version"]) {
        return;
    }
    let mut host = Host::new("block-copy", "");
    assert!(host.url.starts_with("nbd://127.0.0.1:"), "{}", host.url);
    let seen: Value = serde_json::from_str(&good("nbdinfo", &["--json", &host.url])).unwrap();
    let export = &seen["exports"][0];
    assert_eq!(
        (export["export-size"].as_u64(), export["can_multi_conn"].as_bool()),
        (Some(128 << 20), Some(true)),
        "{seen}"
    );
    assert_eq!(export["block_size_minimum"].as_u64(), Some(512), "{seen}");

    let (source, back) = (host.place.path("source.img"), host.place.path("back.img"));
    std::fs::write(&source, content(1, 24 << 20)).unwrap();
    good("nbdcopy", &["--flush", &source, &host.unix("vm")]);
    let map: Value = serde_json::from_str(&good("nbdinfo", &["--map", "--json", &host.url])).unwrap();
    let covered: u64 = map.as_array().unwrap().iter().map(|run| run["length"].as_u64().unwrap()).sum();
    assert_eq!(covered, 128 << 20, "{map}");
    assert_eq!((map[0]["type"].as_u64(), map[1]["type"].as_u64()), (Some(0), Some(3)), "data, then a hole: {map}");

    // A volume without an export and an unknown name are both missing.
    host.place.json(&["volume", "create", "secret", "--code", "mirror-2", "--size", "8MiB"]);
    bad("nbdinfo", &[&host.unix("secret")]);
    bad("nbdinfo", &[&host.unix("nothing")]);

    host.kill();
    host.restart();
    good("nbdcopy", &[&host.unix("vm"), &back]);
    let (source, back) = (std::fs::read(source).unwrap(), std::fs::read(back).unwrap());
    assert!(back.starts_with(&source) && back[source.len()..].iter().all(|byte| *byte == 0), "as it was written");
    host.place.refused(3, &["is exported", "stele export remove"], &["volume", "delete", "vm", "--yes"]);
    assert_eq!(host.place.json(&["export", "remove", "vm"])["removed"], "vm");
    bad("nbdinfo", &[&host.unix("vm")]);
    assert_eq!(host.place.json(&["export", "list"]).as_array().unwrap().len(), 0);
    host.server.take().unwrap().stop();
    assert!(!Path::new(&host.place.path("nbd.sock")).exists());
}

#[test]
fn qemu_reads_writes_zeroes_trims_and_converts() {
    if !installed(&["qemu-io", "--version"]) || !installed(&["qemu-img", "--version"]) {
        return;
    }
    let host = Host::new("block-qemu", "");
    let url = host.unix("vm");
    let steps = [
        "write -P 0x55 0 1M",
        "write -P 0x66 512 512",
        "write -f -P 0x77 4096 64k",
        "write -z 128k 64k",
        "write -z -u 256k 64k",
        "discard 512k 64k",
        "flush",
        "read -P 0x55 0 512",
        "read -P 0x66 512 512",
        "read -P 0x77 4096 64k",
        "read -P 0 128k 64k",
        "read -P 0 256k 64k",
        "read -P 0 512k 64k",
        "read -P 0x55 768k 256k",
    ];
    let mut arguments = vec!["-f", "raw"];
    steps.iter().for_each(|step| arguments.extend(["-c", step]));
    arguments.push(&url);
    let said = good("qemu-io", &arguments);
    assert!(!said.contains("verification failed"), "{said}");
    let image = host.place.path("image.qcow2");
    good("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &url, &image]);
    let compared = good("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &url, &image]);
    assert!(compared.contains("identical"), "{compared}");
    good("qemu-img", &["bench", "-f", "raw", "-c", "500", "-d", "16", "-w", &url]);

    host.place.json(&["volume", "snapshot", "vm", "monday"]);
    host.place.refused(3, &["never written", "--read-only"], &["volume", "export", "monday", "--nbd"]);
    export(&host.place, &["monday", "--read-only"]);
    let said = bad("qemu-io", &["-f", "raw", "-c", "write 0 4k", &host.unix("monday")]);
    assert!(said.contains("ermission denied") || said.contains("ead-only") || said.contains("ead only"), "{said}");
    good("qemu-io", &["-r", "-f", "raw", "-c", "read 0 4k", &host.unix("monday")]);

    // The volume itself takes writes; this export of it does not.
    export(&host.place, &["vm", "--name", "fixed", "--read-only"]);
    bad("qemu-io", &["-f", "raw", "-c", "write -P 0x11 10M 4k", &host.unix("fixed")]);
    // The server also refuses a client that ignores the read-only flag.
    let mut careless = Nbd::unix(Path::new(&host.place.path("nbd.sock")), "fixed").unwrap();
    for command in [nbd::WRITE, nbd::ZERO, nbd::TRIM] {
        let data = vec![0x11; if command == nbd::WRITE { 4096 } else { 0 }];
        let refused = careless.ask(command, 10 << 20, 4096, &data).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(1), "{refused}");
    }
    good("qemu-io", &["-r", "-f", "raw", "-c", "read -P 0 10M 4k", &host.unix("fixed")]);
}

#[test]
fn a_volume_grows_under_its_export_and_shrinks_as_far_as_its_end_is_free() {
    if !installed(&["nbdinfo", "--version"]) || !installed(&["qemu-io", "--version"]) {
        return;
    }
    let mut host = Host::new("block-grow", "");
    let url = host.unix("vm");
    let size = |host: &Host| good("nbdinfo", &["--size", &host.unix("vm")]).trim().parse::<u64>().unwrap();
    let io = |steps: &[&str]| {
        let steps: Vec<&str> = steps.iter().flat_map(|step| ["-c", step]).collect();
        good("qemu-io", &[&["-f", "raw"], &steps[..], &[&url]].concat())
    };
    io(&["write -P 0x55 127M 1M"]);
    bad("qemu-io", &["-f", "raw", "-c", "write -P 0x66 191M 1M", &url]);
    assert_eq!(host.place.json(&["volume", "resize", "vm", "192MiB"])["size_bytes"].as_u64(), Some(192 << 20));
    assert_eq!(size(&host), 192 << 20, "whoever connects now sees it");
    io(&["read -P 0x55 127M 1M", "read -P 0 128M 64M", "write -P 0x66 191M 1M"]);
    host.place.refused(
        3,
        &["holds data behind 64 MiB", "can become 192 MiB (201326592 bytes)", "blkdiscard"],
        &["volume", "resize", "vm", "64MiB"],
    );
    let connected = Nbd::unix(Path::new(&host.place.path("nbd.sock")), "vm").unwrap();
    host.place.refused(
        3,
        &["is in use from", "connections: 1", "disconnect the hosts"],
        &["volume", "resize", "vm", "184MiB"],
    );
    drop(connected);
    io(&["discard 184M 8M"]);
    assert_eq!(host.place.json(&["volume", "resize", "vm", "184MiB"])["size_bytes"].as_u64(), Some(184 << 20));
    assert_eq!(size(&host), 184 << 20);
    bad("qemu-io", &["-f", "raw", "-c", "write -P 0x66 191M 1M", &url]);
    assert_eq!(host.place.json(&["volume", "resize", "vm", "192MiB"])["size_bytes"].as_u64(), Some(192 << 20));
    io(&["read -P 0 184M 8M", "write -P 0x66 191M 1M"]);
    host.place.json(&["volume", "snapshot", "vm", "monday"]);
    host.place.refused(3, &["shares its content", "delete its snapshots"], &["volume", "resize", "vm", "64MiB"]);
    host.place.refused(3, &["stays as it is"], &["volume", "resize", "monday", "256MiB"]);
    host.kill();
    host.restart();
    assert_eq!(size(&host), 192 << 20, "and it stays");
    io(&["read -P 0x55 127M 1M", "read -P 0x66 191M 1M"]);
}

#[test]
fn a_backup_reads_what_changed_since_a_snapshot_and_nothing_else() {
    if !installed(&["nbdinfo", "--version"]) || !installed(&["qemu-io", "--version"]) {
        return;
    }
    let mut host = Host::new("block-changes", "");
    let url = host.unix("vm");
    let write = |at: &str| good("qemu-io", &["-f", "raw", "-c", &format!("write -P 0x55 {at} 64k"), &url]);
    write("1M");
    host.place.json(&["volume", "snapshot", "vm", "monday"]);
    write("9M");
    let check_of = |url: &str, context: &str, expected: &[(u64, u64)]| {
        let map = format!("--map={context}");
        let map: Value = serde_json::from_str(&good("nbdinfo", &[&map, "--json", url])).unwrap();
        let dirty = map.as_array().unwrap().iter().filter(|run| run["type"] == 1);
        let dirty: Vec<(u64, u64)> =
            dirty.map(|run| (run["offset"].as_u64().unwrap(), run["length"].as_u64().unwrap())).collect();
        assert_eq!(dirty, expected, "{context}: {map}");
    };
    let check = |context: &str, expected: &[(u64, u64)]| check_of(&url, context, expected);
    check("stele:changed:monday", &[(9 << 20, 64 << 10)]);
    check("qemu:dirty-bitmap:monday", &[(9 << 20, 64 << 10)]);
    host.place.json(&["volume", "snapshot", "vm", "tuesday"]);
    check("stele:changed:tuesday", &[]);
    // The changes between two moments are read from the second one.
    export(&host.place, &["tuesday", "--read-only"]);
    check_of(&host.unix("tuesday"), "stele:changed:monday", &[(9 << 20, 64 << 10)]);
    let listed = good("nbdinfo", &[&host.unix("tuesday")]);
    assert!(listed.contains("stele:changed:monday") && !listed.contains("changed:tuesday"), "{listed}");
    host.place.json(&["export", "remove", "tuesday"]);
    host.kill();
    host.restart();
    check("stele:changed:monday", &[(9 << 20, 64 << 10)]);
    host.place.json(&["volume", "rollback", "vm", "monday", "--yes"]);
    host.place.json(&["volume", "delete", "tuesday", "--yes"]);
    let listed = good("nbdinfo", &[&url]);
    assert!(listed.contains("stele:changed:monday") && !listed.contains("tuesday"), "{listed}");
}

#[test]
fn a_volume_is_not_rolled_back_under_a_host_that_may_write() {
    if !installed(&["qemu-io", "--version"]) {
        return;
    }
    let host = Host::new("block-rollback", "");
    host.place.json(&["volume", "snapshot", "vm", "monday"]);
    let connected = || host.place.json(&["volume", "show", "vm"])["connections"].as_array().map_or(0, Vec::len);
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw", &host.unix("vm")]).stdin(Stdio::piped()).stdout(Stdio::null());
    let client = Running(command.spawn().unwrap());
    wait_for("a connection", || (connected() == 1).then_some(()));
    let rollback = ["volume", "rollback", "vm", "monday", "--yes"];
    host.place.refused(3, &["in use", "disconnect the hosts", "--force"], &rollback);
    host.place.json(&["volume", "clone", "monday", "test"]);
    host.place.refused(2, &["'test' is no snapshot of volume 'vm'"], &["volume", "rollback", "vm", "test", "--yes"]);
    host.place.json(&["volume", "rollback", "vm", "monday", "--yes", "--force"]);
    drop(client);
    host.place.json(&rollback);
}

#[test]
fn the_connections_of_a_removed_export_count_until_they_have_ended() {
    let host = Host::new("block-parting", "");
    host.place.json(&["volume", "snapshot", "vm", "monday"]);
    // It takes none of its replies, so that it is still there after its export has gone.
    let mut slow = Nbd::unix(Path::new(&host.place.path("nbd.sock")), "vm").unwrap();
    let reads: Vec<u8> = (0..7).flat_map(|cookie| nbd::head(nbd::READ, cookie, 0, 1 << 20)).collect();
    slow.send(&reads).unwrap();
    let connected = || host.place.json(&["volume", "show", "vm"])["connections"].as_array().map_or(0, Vec::len);
    wait_for("reads", || {
        let shown = host.place.json(&["volume", "show", "vm"]);
        (shown["connections"][0]["reads"].as_u64() == Some(7)).then_some(())
    });
    host.place.json(&["export", "remove", "vm"]);
    assert_eq!(connected(), 1);
    let rollback = ["volume", "rollback", "vm", "monday", "--yes"];
    host.place.refused(3, &["in use", "by export 'vm'"], &rollback);
    drop(slow);
    host.place.json(&rollback);
    assert_eq!(connected(), 0);
    export(&host.place, &["vm"]);
    assert!(Nbd::unix(Path::new(&host.place.path("nbd.sock")), "vm").is_ok(), "the pause has ended");
}

/// A process that ends together with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// qemu-nbd as a client, without the kernel's driver: it serves the export that it reaches over
/// NBD.
#[test]
fn qemu_nbd_lists_exports_and_passes_one_on() {
    if !installed(&["qemu-nbd", "--version"]) || !installed(&["nbdcopy", "--version"]) {
        return;
    }
    let host = Host::new("block-pass", "");
    let listed = good("qemu-nbd", &["--list", "--socket", &host.place.path("nbd.sock")]);
    for word in ["export: 'vm'", "134217728", "multi", "fast-zero", "base:allocation"] {
        assert!(listed.contains(word), "{word}: {listed}");
    }
    let socket = host.place.path("pass.sock");
    let passing = ["--persistent", "--socket", &socket, "--format", "raw", &host.unix("vm")];
    let _passing = Running(Command::new("qemu-nbd").args(passing).stdin(Stdio::null()).spawn().unwrap());
    wait_for("qemu-nbd", || std::path::Path::new(&socket).exists().then_some(()));
    let (source, back) = (host.place.path("source.img"), host.place.path("back.img"));
    std::fs::write(&source, content(2, 128 << 20)).unwrap();
    let passed = format!("nbd+unix:///?socket={socket}");
    good("nbdcopy", &["--flush", &source, &passed]);
    good("nbdcopy", &[&host.unix("vm"), &back]);
    assert!(std::fs::read(&source).unwrap() == std::fs::read(&back).unwrap(), "what went in through qemu-nbd is there");
}

/// fio writes and verifies in place; its figures do not matter.
fn fio(host: &Host, arguments: &[&str]) -> Output {
    let uri = format!("--uri={}", host.unix("vm"));
    let common = ["--ioengine=nbd", &uri, "--name=verify", "--size=32m", "--randrepeat=1", "--verify_state_save=0"];
    run("fio", &[&common, arguments].concat())
}

const VERIFY: &[&str] = &["--rw=randwrite", "--bs=4k", "--iodepth=16", "--verify=crc32c", "--verify_fatal=1"];

#[test]
fn fio_verifies_what_it_wrote_with_drives_failing_and_after_a_kill() {
    if !installed(&["fio", "--version"]) {
        return;
    }
    let mut host = Host::new("block-fio", "");
    let wrote = fio(&host, VERIFY);
    assert!(wrote.status.success(), "{}", String::from_utf8_lossy(&wrote.stderr));

    // After the server was killed, with one drive gone, every write that fio got an answer for is
    // there.
    let wrote = fio(&host, &[VERIFY, &["--do_verify=0", "--verify_backlog=0"]].concat());
    assert!(wrote.status.success(), "{}", String::from_utf8_lossy(&wrote.stderr));
    host.kill();
    std::fs::rename(host.place.path("d2.img"), host.place.path("d2.gone")).unwrap();
    host.restart();
    let read = fio(&host, &[VERIFY, &["--verify_only"]].concat());
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
}

#[test]
fn a_kill_in_the_middle_of_writing_loses_nothing_that_was_answered() {
    if !installed(&["fio", "--version"]) {
        return;
    }
    let mut host = Host::new("block-kill", "");
    let uri = format!("--uri={}", host.unix("vm"));
    let state = host.place.path("");
    let mut writer = Command::new("timeout")
        .args([
            "60",
            "fio",
            "--ioengine=nbd",
            &uri,
            "--name=kill",
            "--size=64m",
            "--rw=randwrite",
            "--bs=4k",
            "--iodepth=8",
        ])
        .args([
            "--verify=crc32c",
            "--do_verify=0",
            "--time_based",
            "--runtime=50",
            "--verify_state_save=1",
            "--aux-path",
            &state,
        ])
        .current_dir(&host.place.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let connections = |host: &Host| host.place.json(&["volume", "show", "vm"])["connections"].clone();
    let shown = wait_for("some thousand writes", || {
        let shown = connections(&host);
        (shown[0]["writes"].as_u64() > Some(2000)).then_some(shown)
    });
    assert_eq!((shown[0]["export"].as_str(), shown[0]["protocol"].as_str()), (Some("vm"), Some("nbd")), "{shown}");
    host.kill();
    assert!(writer.wait().is_ok(), "the client ends when its server does");
    host.restart();
    // Every block is intact: it comes from an answered write, or from one under way, but never from
    // two.
    let back = host.place.path("back.img");
    good("nbdcopy", &[&host.unix("vm"), &back]);
    let bytes = std::fs::read(back).unwrap();
    let written = bytes[..64 << 20].chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0)).count();
    assert!(written > 1000, "{written} blocks were written");
}

#[test]
fn tls_is_made_where_it_is_asked_for_and_certificates_decide_who_may_come() {
    if !installed(&["certtool", "--version"]) || !installed(&["nbdinfo", "--version"]) {
        return;
    }
    let keys = Place::new("block-keys");
    let issue = |name: &str, template: &str, signed: bool| {
        let at = |suffix: &str| keys.path(&format!("{name}{suffix}"));
        std::fs::write(at(".tmpl"), template).unwrap();
        good("certtool", &["--generate-privkey", "--outfile", &at("-key.pem")]);
        let (ca, ca_key) = (keys.path("ca-cert.pem"), keys.path("ca-key.pem"));
        let (key, cert, tmpl) = (at("-key.pem"), at("-cert.pem"), at(".tmpl"));
        let own = ["--load-privkey", &key, "--template", &tmpl, "--outfile", &cert];
        let how: Vec<&str> = match signed {
            true => vec!["--generate-certificate", "--load-ca-certificate", &ca, "--load-ca-privkey", &ca_key],
            false => vec!["--generate-self-signed"],
        };
        good("certtool", &[&how[..], &own].concat());
    };
    issue("ca", "cn = \"ca\"\nca\ncert_signing_key\n", false);
    issue(
        "server",
        "cn = \"localhost\"\ndns_name = \"localhost\"\nip_address = \"127.0.0.1\"\ntls_www_server\nsigning_key\n",
        true,
    );
    issue("client", "cn = \"host\"\ntls_www_client\nsigning_key\n", true);
    let more = format!(
        "tls_certificate = \"{}\"\ntls_key = \"{}\"\n",
        keys.path("server-cert.pem"),
        keys.path("server-key.pem")
    );
    let host = Host::new("block-tls", &more);
    let plain = host.url.clone();
    let said = good("openssl", &["x509", "-noout", "-fingerprint", "-sha256", "-in", &keys.path("client-cert.pem")]);
    let fingerprint = said.trim().split('=').nth(1).unwrap().to_owned();

    let with_certificate = |url: &str| format!("{url}?tls-certificates={}", keys.0.display());
    let secure = export(&host.place, &["vm", "--name", "safe", "--tls"]);
    assert!(secure.starts_with("nbds://"), "{secure}");
    let clear = secure.replace("nbds://", "nbd://");
    bad("nbdinfo", &[&clear]);
    let seen = good("nbdinfo", &[&with_certificate(&secure)]);
    assert!(seen.contains("with TLS"), "{seen}");
    good("nbdcopy", &[&with_certificate(&secure), "null:"]);
    good("nbdinfo", &[&plain]);

    let pinned = export(&host.place, &["vm", "--name", "mine", "--client-certificate", &fingerprint]);
    good("nbdinfo", &[&with_certificate(&pinned)]);
    let other = export(&host.place, &["vm", "--name", "theirs", "--client-certificate", &"ab".repeat(32)]);
    bad("nbdinfo", &[&with_certificate(&other)]);
    let listed = good("nbdinfo", &["--list", &plain]);
    assert!(listed.contains("\"vm\"") && !listed.contains("safe") && !listed.contains("mine"), "{listed}");

    // An authority keeps out clients without a certificate, also without `tls_required`.
    let authority = format!("{more}client_authority = \"{}\"\n", keys.path("ca-cert.pem"));
    let host = Host::new("block-authority", &authority);
    assert!(host.url.starts_with("nbds://"), "{}", host.url);
    bad("nbdinfo", &[&host.url.replace("nbds://", "nbd://")]);
    let seen = good("nbdinfo", &[&with_certificate(&host.url)]);
    assert!(seen.contains("with TLS"), "{seen}");
    good("nbdinfo", &[&host.unix("vm")]);
    // The log names each refused client, and the reason.
    let bare = host.place.path("bare");
    std::fs::create_dir(&bare).unwrap();
    std::fs::copy(keys.path("ca-cert.pem"), format!("{bare}/ca-cert.pem")).unwrap();
    bad("nbdinfo", &[&format!("{}?tls-certificates={bare}", host.url)]);
    for reason in ["speaks TLS only", "TLS handshake failed"] {
        let line = wait_for("the refusal in the log", || {
            host.place.log().lines().find(|line| line.contains(reason)).map(str::to_owned)
        });
        assert!(line.contains("WARN") && line.contains("127.0.0.1:"), "{line}");
    }
}
