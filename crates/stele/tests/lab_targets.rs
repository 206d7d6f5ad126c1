//! The laboratory against block and file servers of other projects, and our own.
//!
//! If a server is not installed, the test says so and passes, except in CI.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::support::{Place, Server, installed, wait_for};
use serde_json::Value;

const ROUNDS: [&str; 4] = ["--round", "50ms", "--warm-up", "0s"];

/// A process that ends together with its test.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn start(command: &mut Command, port: u16) -> Guarded {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let child = Guarded(child);
    wait_for("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
    child
}

/// The only cell of a short run, which has answered accesses of each kind that is asked for.
fn cell(place: &Place, arguments: &[&str]) -> Value {
    let after = |option: &str| arguments.iter().position(|given| *given == option).map(|at| arguments[at + 1]);
    let read_only = after("--read") == Some("100");
    // What an earlier, shorter run has left is replaced.
    let again: &[&str] = if arguments.contains(&"--keep") { &["--destroy"] } else { &[] };
    let mut left: &[&str] = &[];
    let measure = |time: &str| {
        after("--out").map(std::fs::remove_file);
        let more = std::mem::replace(&mut left, again);
        place.cells(&[&["lab", "run", "--time", time], arguments, &ROUNDS, more].concat())
    };
    let answered = |cell: &Value, side: &str| cell["runs"][0][side]["count"].as_u64() > Some(10);
    let enough = |cell: &Value| answered(cell, "read") && (read_only || answered(cell, "write"));
    Place::answered(measure, enough).remove(0)
}

/// Mixed access sizes, many outstanding, and every read checked.
fn checked(place: &Place, on: &str, more: &[&str]) {
    for access in ["4KiB", "64KiB", "1MiB"] {
        let run = ["--on", on, "--read", "50", "--random", "80", "--access", access, "--outstanding", "12", "--verify"];
        cell(place, &[&run[..], more].concat());
    }
}

#[test]
fn units_of_our_own_iscsi_target_are_measured_and_its_refusals_are_told_in_words() {
    let place = Place::new("lab-iscsi");
    let drives: Vec<String> = (0..4).map(|number| place.path(&format!("d{number}.img"))).collect();
    let mut create = vec!["pool", "create", "--confirm-time", "--size", "256MiB", "--data", "none"];
    drives.iter().for_each(|drive| create.extend(["--drive", drive]));
    place.json(&create);
    place.edit_config(|text| text.replace("[iscsi]\n", "[iscsi]\nlisten = \"127.0.0.1:0\"\n"));
    let server = place.serve();
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "32MiB"]);
    place.json(&["volume", "create", "vm2", "--code", "mirror-2", "--size", "32MiB"]);
    let secret = place.path("secret");
    std::fs::write(&secret, "quite a long secret").unwrap();
    let guarded = ["volume", "export", "vm1", "--iscsi", "--chap-user", "host", "--chap-secret", &secret];
    let url = place.json(&guarded)["url"].as_str().unwrap().to_owned();
    let with = |who: &str| url.replace("iscsi://", &format!("iscsi://{who}@"));
    let right = with("host%quite%20a%20long%20secret");
    checked(&place, &right, &["--destroy"]);
    checked(&place, &format!("{right}?header_digest=crc32c&data_digest=crc32c"), &["--destroy", "--size", "8MiB"]);
    let run = |on: &str, read: &str| ["lab", "run", "--on", on, "--read", read].map(str::to_owned);
    for (on, read, code, words) in [
        (right.clone(), "0", 3, "--destroy"),
        (with("host%another long secret"), "100", 3, "user or the secret"),
        (url.clone(), "100", 3, "(status 02"),
        (right.replace(":vm1", ":vm9"), "100", 4, "no such target"),
        (right.replace("vm1/0", "vm1/5"), "100", 4, "no such unit"),
    ] {
        let arguments = run(&on, read);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = place.refused(code, &[words], &arguments);
        assert!(!said.contains("long secret"), "{said}");
    }
    let url = place.json(&["volume", "export", "vm2", "--iscsi", "--read-only"])["url"].as_str().unwrap().to_owned();
    let out = place.path("reads.lab");
    cell(&place, &["--on", &url, "--read", "100", "--outstanding", "32", "--out", &out]);
    place.refused(3, &["write-protected"], &["lab", "run", "--on", &url, "--read", "0", "--destroy"]);
    let out = place.path("kept.lab");
    cell(&place, &["--on", &right, "--read", "100", "--out", &out]);
    assert!(!std::fs::read_to_string(&out).unwrap().contains("quite"), "no secret is kept");
    server.stop();
}

#[test]
fn units_of_tgt_are_measured_and_checked() {
    if !installed(&["tgtd", "--version"]) {
        return;
    }
    let place = Place::new("lab-tgt");
    let (port, image) = (free_port(), place.path("unit.img"));
    std::fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let control = (port % 30_000).to_string();
    let portal = format!("portal=127.0.0.1:{port}");
    let _server = start(Command::new("tgtd").args(["-f", "-C", &control, "--iscsi", &portal]), port);
    let admin = |more: &[&str]| {
        let output = Command::new("tgtadm").args(["-C", &control, "--lld", "iscsi"]).args(more).output().unwrap();
        assert!(output.status.success(), "{more:?}: {output:?}");
    };
    const NAME: &str = "iqn.2026-01.example:unit";
    for more in [
        &["--mode", "target", "--op", "new", "--tid", "1", "-T", NAME][..],
        &["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", &image],
        &["--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"],
        &["--mode", "account", "--op", "new", "--user", "host", "--password", "quite long it is"],
        &["--mode", "account", "--op", "bind", "--tid", "1", "--user", "host"],
    ] {
        admin(more);
    }
    let url = |who: &str| format!("iscsi://{who}127.0.0.1:{port}/{NAME}/1");
    let right = url("host%quite%20long%20it%20is@");
    checked(&place, &right, &["--destroy"]);
    let digested = format!("{right}?header_digest=crc32c&data_digest=crc32c");
    place.refused(1, &["does not agree to HeaderDigest"], &["lab", "run", "--on", &digested]);
    for digest in ["HeaderDigest", "DataDigest"] {
        admin(&["--mode", "target", "--op", "update", "--tid", "1", "-n", digest, "-v", "CRC32C"]);
    }
    checked(&place, &digested, &["--destroy"]);
    place.refused(3, &["user or the secret"], &["lab", "run", "--on", &url("host%another%20one%20here@")]);
    place.refused(3, &["user or the secret"], &["lab", "run", "--on", &url("")]);
}

/// The port mapper that the NFS server needs: the machine's, or one that ends with the test.
/// `None`: it may not be started here.
fn port_mapper() -> Option<Option<Guarded>> {
    let there = || TcpStream::connect(("127.0.0.1", 111)).ok();
    if there().is_some() {
        return Some(None);
    }
    let _ = std::fs::create_dir_all("/run/rpcbind");
    let mut command = Command::new("rpcbind");
    let mut child = Guarded(command.arg("-f").stdin(Stdio::null()).stderr(Stdio::null()).spawn().ok()?);
    wait_for("rpcbind", || there().map(|_| true).or_else(|| child.0.try_wait().unwrap().map(|_| false)))
        .then_some(Some(child))
}

/// An NFS server of a directory, on ports of its own.
fn ganesha(place: &Place) -> Option<(Vec<Guarded>, u16, u16)> {
    if !installed(&["ganesha.nfsd", "-v"]) {
        return None;
    }
    let Some(mapper) = port_mapper() else {
        assert!(std::env::var_os("CI").is_none(), "rpcbind does not run here, and CI leaves nothing out");
        println!("left out: rpcbind does not run here");
        return None;
    };
    let (port, mount) = (free_port(), free_port());
    std::fs::create_dir(place.path("export")).unwrap();
    let export = place.path("export");
    let config = format!(
        "NFS_CORE_PARAM {{ NFS_Port = {port}; MNT_Port = {mount}; Bind_addr = 127.0.0.1; Protocols = 3; \
         Enable_UDP = false; Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         NFSV4 {{ Grace_Period = 1; Lease_Lifetime = 1; }}\n\
         EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /export; Access_Type = RW; Protocols = 3; \
         Transports = TCP; Squash = No_Root_Squash; SecType = sys; FSAL {{ Name = VFS; }} }}\n"
    );
    let (file, log, pid) = (place.path("ganesha.conf"), place.path("ganesha.log"), place.path("ganesha.pid"));
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new("ganesha.nfsd");
    let server = start(command.args(["-F", "-f", &file, "-L", &log, "-p", &pid]), port);
    Some((std::iter::once(server).chain(mapper).collect(), port, mount))
}

#[test]
fn a_file_of_an_nfs_server_is_made_measured_checked_and_removed() {
    let place = Place::new("lab-nfs");
    let Some((server, port, mount)) = ganesha(&place) else { return };
    std::fs::create_dir(place.path("export/deep")).unwrap();
    let on = |name: &str| format!("nfs://127.0.0.1:{port}{}/{name}?mountport={mount}", place.path("export"));
    checked(&place, &on("deep/target"), &["--size", "16MiB"]);
    checked(&place, &on("target"), &["--size", "16MiB", "--buffered"]);
    assert!(!std::path::Path::new(&place.path("export/deep/target")).exists());
    std::fs::write(place.path("export/records"), vec![7; 1 << 20]).unwrap();
    cell(&place, &["--on", &on("records"), "--read", "100", "--outstanding", "32"]);
    place.refused(3, &["--destroy"], &["lab", "run", "--on", &on("records"), "--read", "0"]);
    assert_eq!(std::fs::read(place.path("export/records")).unwrap(), vec![7; 1 << 20]);
    place.refused(4, &["--size"], &["lab", "run", "--on", &on("none")]);
    place.refused(
        4,
        &["exported"],
        &["lab", "run", "--on", &format!("nfs://127.0.0.1:{port}/elsewhere/x?mountport={mount}")],
    );
    cell(&place, &["--on", &on("kept"), "--size", "1MiB", "--read", "50", "--keep"]);
    assert_eq!(std::fs::metadata(place.path("export/kept")).unwrap().len(), 1 << 20);
    // Without ports in the address, the port mapper is asked.
    let mapped = format!("nfs://127.0.0.1{}/records", place.path("export"));
    cell(&place, &["--on", &mapped, "--read", "100"]);
    drop(server);
}

/// The keys of a server, in a file that clients read.
fn credentials(place: &Place, server: &Server) -> String {
    let file = place.path("credentials");
    let keys =
        format!("[default]\naws_access_key_id={}\naws_secret_access_key={}\n", server.access_key, server.secret_key);
    std::fs::write(&file, keys).unwrap();
    file
}

#[test]
fn a_server_with_tls_is_measured_if_its_certificate_is_trusted() {
    let place = Place::new("lab-s3-tls");
    let server = place.up_with(&["--tls"]);
    let file = credentials(&place, &server);
    place.json(&["bucket", "create", "bench"]);
    let on = format!("s3://{}/bench", server.address);
    let run = |more: &[&str]| {
        let given =
            ["lab", "run", "--on", &on, "--files", "8", "--read", "50", "--verify", "--outstanding", "2", "--json"];
        let mut command = place.command(&[&given[..], more, &["--time", "600ms"], &ROUNDS].concat());
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_PROFILE").env("AWS_SHARED_CREDENTIALS_FILE", &file);
        command.output().unwrap()
    };
    let output = run(&["--ca", server.ready["certificate"].as_str().unwrap()]);
    assert!(Place::measured(&output), "{output:?}");
    let left = place.json(&["bucket", "show", "bench"]);
    assert!(!left.to_string().contains("stele-lab"), "{left}");
    // Another server's certificate is refused, and none of the system's authorities has signed this
    // one.
    let other = Place::new("lab-s3-tls-other");
    let stranger = other.up_with(&["--tls"]);
    for more in [&["--ca", stranger.ready["certificate"].as_str().unwrap()][..], &[]] {
        let output = run(more);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(4) && said.contains("--ca FILE"), "{said}");
    }
    let output = place.command(&["lab", "run", "--on", "null", "--ca", &file]).output().unwrap();
    assert!(output.status.code() == Some(2), "{output:?}");
    stranger.stop();
    server.stop();
}

#[test]
fn objects_of_a_bucket_are_put_got_listed_and_deleted() {
    let place = Place::new("lab-s3");
    let server = place.up();
    let file = credentials(&place, &server);
    place.json(&["bucket", "create", "bench"]);
    let on = format!("s3+http://{}/bench", server.address);
    let run = |more: &[&str], time: &str| {
        let given = ["lab", "run", "--on", &on, "--json", "--time", time];
        let mut command = place.command(&[&given, more, &ROUNDS].concat());
        command
            .env_remove("AWS_ACCESS_KEY_ID")
            .env_remove("AWS_PROFILE")
            .env("AWS_SHARED_CREDENTIALS_FILE", &file)
            .output()
            .unwrap()
    };
    for more in [
        &["--read", "0,50,100", "--access", "4KiB,1MiB", "--outstanding", "4", "--files", "12"][..],
        &["--read", "50", "--names", "--outstanding", "2", "--files", "12"],
        // Most objects are never put; the read-back of the others does not expect them.
        &["--read", "0", "--verify", "--files", "500"],
    ] {
        let measure = |time: &str| {
            let output = run(more, time);
            assert!(Place::measured(&output), "{more:?}: {output:?}");
            Place::cells_of(&output)
        };
        Place::answered(measure, |cell| cell["runs"][0]["response"]["count"].as_u64() > Some(3));
        // No object is left, and objects of other clients would be refused.
        let left = place.json(&["bucket", "show", "bench"]);
        assert!(!left.to_string().contains("stele-lab"), "{left}");
    }
    std::fs::write(&file, "[default]\naws_access_key_id=nobody\naws_secret_access_key=x\n").unwrap();
    let output = run(&["--read", "100"], "600ms");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("403"), "{said}");
    server.stop();
}

#[test]
fn a_second_interrupt_ends_a_command_that_hangs_and_says_what_may_be_left() {
    let place = Place::new("lab-at-once");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let on = format!("nbd://{}/vm1", silent.local_addr().unwrap());
    let mut child = place.command(&["lab", "run", "--on", &on]).stderr(Stdio::piped()).spawn().unwrap();
    // It waits for a greeting that never comes.
    let _connection = silent.accept().unwrap();
    let pid = child.id().to_string();
    let interrupt = || assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    interrupt();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("A second signal ends it at once")));
    // Sooner it would be the same request.
    std::thread::park_timeout(std::time::Duration::from_millis(150));
    interrupt();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(said.any(|line| line.contains("ended at once: ") && line.contains("may still be carried out")));
}
