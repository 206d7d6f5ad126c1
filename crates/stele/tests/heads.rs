//! Heads of the audit log elsewhere: stamped by a time stamp authority, and in a bucket of another
//! server.

#[path = "../../stamp/tests/authority/mod.rs"]
mod authority;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::server::good;
use crate::support::{Place, Server, wait_for};
use authority::{Authority, ECDSA};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// The body of a POST, if the client sent one as RFC 3161 says.
fn query(stream: &TcpStream) -> Option<Vec<u8>> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length, mut is_query) = (String::new(), 0, false);
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        let lower = line.trim().to_ascii_lowercase();
        is_query |= lower == "content-type: application/timestamp-query";
        if let Some(value) = lower.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    is_query.then_some(body)
}

/// `openssl ts -reply` behind HTTP. It says how long each reply was.
/// The thread ends with the process, and the authority's files go with the last other holder.
fn serve(authority: &Arc<Authority>) -> (SocketAddr, Receiver<usize>) {
    let authority = Arc::downgrade(authority);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, (sender, given)) = (listener.local_addr().unwrap(), channel());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let Some(body) = query(&stream) else { continue };
            let Some(authority) = authority.upgrade() else { return };
            let reply = authority.reply(&body);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/timestamp-reply\r\ncontent-length: {}\r\n\r\n",
                reply.len()
            );
            let _ = stream.write_all(&[head.as_bytes(), &reply].concat());
            let _ = sender.send(reply.len());
        }
    });
    (address, given)
}

/// The heads in the place of the data directory that have a time stamp, in the order of their
/// names.
fn stamped(place: &Place) -> Vec<PathBuf> {
    let files = std::fs::read_dir(place.0.join("heads")).unwrap().map(|file| file.unwrap().path());
    let mut heads: Vec<_> = files.filter(|path| path.extension().is_some_and(|ending| ending == "head")).collect();
    heads.retain(|head| head.with_extension("tsr").exists());
    heads.sort();
    heads
}

fn with_archive(place: &Place, lines: &str) {
    place.edit_config(|text| text.replacen("[archive]\n", &format!("[archive]\n{lines}\n"), 1));
}

#[test]
fn heads_are_stamped_and_the_stamps_verify_here_and_in_openssl() {
    let place = Place::new("heads-stamped");
    place.up().stop();
    let [authority, stranger] = ["heads", "heads-stranger"].map(|name| Arc::new(Authority::new(name, ECDSA, "sha256")));
    let (address, given) = serve(&authority);
    let (trusted, also) = (authority.path("ca.pem"), place.path("also"));
    with_archive(
        &place,
        &format!(
            "heads_timestamp = \"http://{address}/tsr\"\nheads_timestamp_ca = \"{}\"\nheads_also = [\"{also}\"]",
            trusted.display()
        ),
    );
    let server = place.serve();
    given.recv_timeout(PATIENCE).unwrap();
    let head = wait_for("a time stamp", || stamped(&place).pop());
    let (reply, anchor) = (head.with_extension("tsr"), head.display().to_string());
    assert!(authority.verifies(&head, &reply), "OpenSSL verifies the stamp of the file");
    let copy = PathBuf::from(&also).join(reply.file_name().unwrap());
    wait_for("a time stamp in the other place", || copy.exists().then_some(()));
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&reply).unwrap());

    let ca = trusted.display().to_string();
    let verdict = place.json(&["audit", "verify", "--anchor", &anchor, "--timestamp-ca", &ca]);
    assert!(verdict["anchored"].is_u64() && verdict["stamped"].is_string(), "{verdict}");
    assert_eq!(verdict["stamp_serial"], "0b", "{verdict}");
    let output = place.stele(&["audit", "verify", "--anchor", &anchor, "--timestamp-ca", &ca]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("A time stamp authority signed at "), "{output:?}");
    // Without certificates the stamp is not looked at.
    assert!(place.json(&["audit", "verify", "--anchor", &anchor])["stamped"].is_null());

    let other = stranger.path("ca.pem").display().to_string();
    place.refused(5, &["no given authority"], &["audit", "verify", "--anchor", &anchor, "--timestamp-ca", &other]);
    place.refused(2, &["--anchor"], &["audit", "verify", "--timestamp-ca", &ca]);
    place.refused(2, &["no certificate"], &["audit", "verify", "--anchor", &anchor, "--timestamp-ca", &anchor]);
    assert!(place.stele(&["bucket", "create", "later"]).status.success());
    server.stop();
    // The stop sent a later head, with a stamp of its own. The stamp of one head is none of the
    // other.
    let later = stamped(&place).pop().unwrap().with_extension("tsr").display().to_string();
    assert_ne!(later, reply.display().to_string());
    let swapped = ["audit", "verify", "--anchor", &anchor, "--timestamp-ca", &ca, "--timestamp", &later];
    place.refused(5, &["other bytes"], &swapped);
}

#[test]
fn stamps_stay_valid_over_a_restart() {
    let place = Place::new("heads-kept");
    place.up().stop();
    let authority = Arc::new(Authority::new("heads-kept", ECDSA, "sha256"));
    let (address, _given) = serve(&authority);
    with_archive(&place, &format!("heads_timestamp = \"http://{address}/\""));
    place.serve().stop();
    let before: Vec<_> = stamped(&place).iter().map(|head| (head.clone(), std::fs::read(head).unwrap())).collect();
    assert!(!before.is_empty());
    place.serve().stop();
    for (head, bytes) in before {
        assert_eq!(std::fs::read(&head).unwrap(), bytes, "{}", head.display());
        assert!(authority.verifies(&head, &head.with_extension("tsr")), "{}", head.display());
    }
}

#[test]
fn an_authority_that_is_no_address_or_has_no_certificates_is_refused_at_a_start() {
    let place = Place::new("heads-wrong-authority");
    place.up().stop();
    let text = place.config();
    let cases = [
        ("heads_timestamp = \"ftp://example.org/\"", "neither http nor https"),
        ("heads_timestamp = \"http://127.0.0.1:1/\"\nheads_timestamp_ca = \"stele.toml\"", "no certificate"),
        ("heads_timestamp_ca = \"stele.toml\"", "no heads_timestamp"),
    ];
    for (lines, word) in cases {
        with_archive(&place, lines);
        place.refused(2, &["heads_timestamp", word], &["serve"]);
        place.edit_config(|_| text.clone());
    }
}

/// The names in a bucket of a server.
fn names(vault: &Server, bucket: &str) -> Vec<String> {
    let listing = good(vault.get(&format!("/{bucket}?list-type=2"))).text();
    listing.split("<Key>").skip(1).map(|part| part.split("</Key>").next().unwrap().to_owned()).collect()
}

/// Another server, with a bucket that can lock; and the lines of a configuration that name it.
fn vault(name: &str) -> (Place, Server, String) {
    let place = Place::new(name);
    let server = place.up();
    let made = place.stele(&["bucket", "create", "heads", "--lock"]);
    assert!(made.status.success(), "{made:?}");
    let lines = format!(
        "heads_bucket = \"s3+http://{}/heads/first\"\nheads_bucket_key = \"{}\"",
        server.address,
        server.ready["key_file"].as_str().unwrap()
    );
    (place, server, lines)
}

fn alarms(place: &Place) -> Vec<String> {
    let standing = place.json(&["pool", "status"])["standing"].clone();
    standing.as_array().unwrap().iter().filter_map(|alarm| Some(alarm["kind"].as_str()?.to_owned())).collect()
}

fn copy(from: &PathBuf, to: &PathBuf) {
    let copied = std::process::Command::new("cp").args(["-r", "--sparse=always"]).args([from, to]).status().unwrap();
    assert!(copied.success());
}

#[test]
fn a_bucket_elsewhere_keeps_heads_and_reveals_a_pool_set_back() {
    let (vault_place, vault, lines) = vault("heads-vault");
    let place = Place::new("heads-bucket");
    place.up().stop();
    let authority = Arc::new(Authority::new("heads-bucket", ECDSA, "sha256"));
    let (address, _given) = serve(&authority);
    with_archive(&place, &format!("{lines}\nheads_bucket_days = 7\nheads_timestamp = \"http://{address}/\""));
    place.serve().stop();
    let sent = names(&vault, "heads");
    let head = sent.iter().rfind(|name| name.ends_with(".head")).unwrap().clone();
    assert!(head.starts_with("first/000000000000"), "{sent:?}");
    let bytes = good(vault.get(&format!("/heads/{head}"))).body;
    assert_eq!(bytes, std::fs::read(place.0.join("heads").join(&head["first/".len()..])).unwrap());
    let stamp = head.replace(".head", ".tsr");
    assert!(sent.contains(&stamp), "{sent:?}");
    let shown = good(vault.send(vault.ask("HEAD", &format!("/heads/{head}"))));
    assert_eq!(shown.header("x-amz-object-lock-mode").as_deref(), Some("COMPLIANCE"));
    let version = shown.header("x-amz-version-id").unwrap();
    assert_eq!(vault.delete(&format!("/heads/{head}?versionId={version}")).status, 403, "it is locked");

    // The whole pool goes back, and the heads on this machine with it.
    let [drives, older, newer, heads] = ["drives", "older", "newer", "heads"].map(|name| place.0.join(name));
    copy(&drives, &older);
    place.serve().stop();
    assert!(names(&vault, "heads").len() > sent.len(), "a later head went out");
    std::fs::rename(&drives, &newer).unwrap();
    std::fs::rename(&older, &drives).unwrap();
    std::fs::remove_dir_all(&heads).unwrap();
    let server = place.serve();
    assert!(alarms(&place).contains(&"rolled-back".to_owned()), "{:?}", alarms(&place));
    let standing = place.json(&["pool", "status"])["standing"].to_string();
    assert!(standing.contains("/heads/first/0000"), "the head is named: {standing}");
    server.stop();
    let recovered = place.json(&["pool", "recover"])["standing"].to_string();
    assert!(recovered.contains("rolled-back") && recovered.contains("/heads/first/0000"), "{recovered}");
    place.refused(5, &["set back"], &["catalog", "rebuild", "--yes", "--force"]);
    // The newer state is at one with the bucket.
    std::fs::remove_dir_all(&drives).unwrap();
    std::fs::rename(&newer, &drives).unwrap();
    let server = place.serve();
    assert!(!alarms(&place).contains(&"rolled-back".to_owned()), "{:?}", alarms(&place));
    server.stop();
    let secret = vault.secret_key.clone();
    assert!(!place.log().contains(&secret) && !vault_place.log().contains(&secret), "the log tells no secret");
}

#[test]
fn objects_of_other_people_keep_no_head_out_of_a_bucket() {
    let (_vault_place, vault, lines) = vault("heads-crowded");
    let place = Place::new("heads-crowded-sender");
    place.up().stop();
    with_archive(&place, &lines);
    place.serve().stop();
    let before = names(&vault, "heads");
    for (name, body) in [("99999999999999999999.head", &b"no head"[..]), ("x y&z.head", b"{}"), ("empty.head", b"")] {
        vault.put(&format!("/heads/first/{}", name.replace(' ', "%20").replace('&', "%26")), body);
    }
    let server = place.serve();
    let told = place.json(&["pool", "status"]).to_string();
    assert!(told.contains("is not a signed head"), "{told}");
    assert!(!told.contains("rolled-back"), "{told}");
    assert!(alarms(&place).contains(&"heads".to_owned()), "it stands, and metrics and mail tell it: {told}");
    assert!(server.plain("/metrics").text().contains("stele_alarm{alarm=\"heads\"} 1"));
    server.stop();
    assert!(names(&vault, "heads").len() > before.len() + 3, "heads still go there");
}

#[test]
fn a_bucket_that_is_away_or_refuses_hinders_no_start() {
    let place = Place::new("heads-away");
    place.up().stop();
    let text = place.config();
    let keys = place.path("keys");
    std::fs::write(&keys, "[default]\naws_access_key_id = A\naws_secret_access_key = hidden\n").unwrap();
    // A port that no server has any more.
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    with_archive(&place, &format!("heads_bucket = \"s3+http://{away}/heads\"\nheads_bucket_key = \"{keys}\""));
    let server = place.serve();
    let told = place.json(&["pool", "status"]).to_string();
    assert!(told.contains(&format!("cannot reach {away}")), "{told}");
    server.stop();
    assert!(!place.log().contains("hidden"), "the log tells no secret");
    place.edit_config(|_| text.clone());
    let cases = [
        ("heads_bucket = \"s3://\"\nheads_bucket_key = \"keys\"", "is no place in [archive] heads_bucket"),
        ("heads_bucket_days = 7", "no heads_bucket"),
        ("heads_bucket = \"s3://vault.example.org/heads\"\nheads_bucket_key = \"stele.toml\"", "holds no keys"),
        ("heads_bucket = \"s3://vault.example.org/heads\"\nheads_bucket_days = 0", "not between 1 and"),
    ];
    for (lines, word) in cases {
        with_archive(&place, lines);
        place.refused(2, &["heads_bucket", word], &["serve"]);
        place.edit_config(|_| text.clone());
    }
}

#[test]
fn the_keys_of_the_bucket_leave_a_machine_sealed() {
    let place = Place::new("heads-keys");
    let server = place.up();
    std::fs::write(place.0.join("keys"), "[default]\naws_access_key_id = A\naws_secret_access_key = hidden\n").unwrap();
    std::fs::write(place.0.join("phrase"), "one two three four five six\n").unwrap();
    server.stop();
    with_archive(&place, "heads_bucket = \"s3+http://127.0.0.1:1/heads\"\nheads_bucket_key = \"keys\"");
    let server = place.serve();
    let (file, phrase) = (place.path("backup"), place.path("phrase"));
    let made: Value = place.json(&["config", "export", "--to", &file, "--passphrase-file", &phrase]);
    assert_eq!(made["left_out"].as_array().map(Vec::len), Some(0), "{made}");
    server.stop();
    let kept = std::fs::read_to_string(&file).unwrap();
    let plain = "W2RlZmF1bHRdCmF3c19hY2Nlc3Nfa2V5X2lk";
    assert!(!kept.contains("hidden") && !kept.contains(plain), "neither as it is nor in base64");
    let other = Place::new("heads-keys-other");
    let output = other.stele(&["config", "import", &file, "--passphrase-file", &phrase]);
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read_to_string(other.0.join("keys")).unwrap().contains("hidden"));
}

/// `stele witness` in a process of its own, until it is dropped.
struct Witness {
    child: std::process::Child,
    home: PathBuf,
    listen: String,
}

impl Witness {
    fn start(place: &Place, listen: &str) -> Witness {
        let home = place.0.join("witness");
        let [store, path] = ["stele.pub", "witness"].map(|name| place.path(name));
        let arguments = ["witness", &path, "--store", &store, "--listen", listen, "--json"];
        let log = std::fs::OpenOptions::new().create(true).append(true).open(place.0.join("witness.log")).unwrap();
        let mut child = place.command(&arguments).stdout(std::process::Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        Witness { child, home, listen: ready["listen"].as_str().unwrap().to_owned() }
    }

    fn stop(mut self) {
        let asked = std::process::Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(asked.success() && self.child.wait().unwrap().success(), "it stops when asked to");
    }

    /// The lines of its file with this ending.
    fn kept(&self, ending: &str) -> Vec<Value> {
        let mut files = std::fs::read_dir(&self.home).unwrap().map(|file| file.unwrap().path());
        let file = files.find(|path| path.extension().is_some_and(|is| is == ending));
        let text = file.map(|path| std::fs::read_to_string(path).unwrap()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_witness_signs_what_goes_on_and_shows_a_store_that_forked() {
    let place = Place::new("heads-witness");
    let server = place.up();
    assert!(place.stele(&["audit", "key", "--to", &place.path("stele.pub")]).status.success());
    server.stop();
    let alone = place.config();
    let witness = Witness::start(&place, "127.0.0.1:0");
    let listen = witness.listen.clone();
    let lines = format!("heads_witness = \"http://{listen}/witness\"\nheads_witness_key = \"witness/witness.pub\"");
    with_archive(&place, &lines);
    let watched = place.config();
    place.serve().stop();
    let signed = witness.kept("heads").len();
    assert!(signed > 0);
    // Killed and started again, it goes on from what it signed.
    drop(witness);
    let witness = Witness::start(&place, &listen);
    let [drives, older, heads] = ["drives", "older", "heads"].map(|name| place.0.join(name));
    copy(&drives, &older);
    place.serve().stop();
    assert!(witness.kept("heads").len() > signed && witness.kept("forks").is_empty());

    let countersigned = std::fs::read_dir(&heads).unwrap().map(|file| file.unwrap().path());
    let countersigned = countersigned.filter(|path| path.extension().is_some_and(|is| is == "witness")).max().unwrap();
    let (anchor, key) = (place.path("anchor"), place.path("witness/witness.pub"));
    std::fs::copy(countersigned, &anchor).unwrap();
    let verdict = place.json(&["audit", "verify", "--anchor", &anchor, "--witness", &key]);
    assert!(verdict["anchored"].is_u64() && verdict["countersigned"].is_string(), "{verdict}");
    place.refused(
        5,
        &["another witness"],
        &["audit", "verify", "--anchor", &anchor, "--witness", &place.path("stele.pub")],
    );

    // The pool goes back, with all heads on this machine. The witness alone knows of the later log.
    std::fs::remove_dir_all(&drives).unwrap();
    std::fs::rename(&older, &drives).unwrap();
    std::fs::remove_dir_all(&heads).unwrap();
    let server = place.serve();
    assert!(alarms(&place).contains(&"rolled-back".to_owned()), "{:?}", alarms(&place));
    server.stop();
    // An operator lets it go on differently, without the witness, and then shows the new log to it.
    place.edit_config(|_| alone);
    std::fs::remove_dir_all(&heads).unwrap();
    let server = place.serve();
    for number in 0..100 {
        let name = format!("fork-{number}");
        assert!(place.stele(&["bucket", "create", &name]).status.success());
    }
    server.stop();
    place.edit_config(|_| watched);
    let before = witness.kept("heads");
    let server = place.serve();
    assert!(alarms(&place).contains(&"rolled-back".to_owned()), "{:?}", alarms(&place));
    wait_for("the refusal of the witness", || {
        let told = place.json(&["pool", "status"]).to_string();
        told.contains("contradicts the last one").then_some(())
    });
    server.stop();
    assert_eq!(witness.kept("heads"), before, "it signed nothing of the fork");
    let forks = witness.kept("forks");
    let (kept, fork) = (before.last().unwrap(), forks.first().unwrap());
    assert_eq!(&fork["countersigned"], kept, "both heads are evidence: {fork}");
    assert!(fork["head"]["records"].as_u64() > kept["head"]["records"].as_u64(), "{fork}");
    place.refused(5, &["anchored"], &["audit", "verify", "--anchor", &anchor, "--witness", &key]);
    let log = std::fs::read_to_string(place.0.join("witness.log")).unwrap();
    assert!(log.contains("contradicts the last one") && log.contains("ERROR"), "{log}");
    witness.stop();
}

#[test]
fn two_witnesses_share_no_directory_and_a_server_needs_the_key_of_its_own() {
    let place = Place::new("heads-witness-wrong");
    let server = place.up();
    assert!(place.stele(&["audit", "key", "--to", &place.path("stele.pub")]).status.success());
    server.stop();
    let witness = Witness::start(&place, "127.0.0.1:0");
    let [home, store] = ["witness", "stele.pub"].map(|name| place.path(name));
    place.refused(7, &["another witness"], &["witness", &home, "--store", &store, "--listen", "127.0.0.1:0"]);
    place.refused(2, &["public key"], &["witness", &place.path("new"), "--store", &place.path("stele.toml")]);
    // An address of no machine of ours, for a witness and for a server.
    let far = "192.0.2.1:1";
    place.refused(2, &["--listen"], &["witness", &place.path("far"), "--store", &store, "--listen", far]);
    place.refused(2, &["--listen"], &["up", "--listen", far]);
    let text = place.config();
    with_archive(&place, "heads_witness = \"http://127.0.0.1:1/witness\"");
    place.refused(2, &["heads_witness_key"], &["serve"]);
    // The key of another: what it answers does not count, and hinders nothing.
    place.edit_config(|_| text);
    let url = format!("http://{}/witness", witness.listen);
    with_archive(&place, &format!("heads_witness = \"{url}\"\nheads_witness_key = \"stele.pub\""));
    place.serve().stop();
    assert!(place.log().contains("another witness signed it"), "{}", place.log());
}

#[test]
fn a_receipt_and_a_proof_lead_to_a_head_that_the_witness_signed() {
    let place = Place::new("heads-witness-receipt");
    let server = place.up();
    let keys = server.keys();
    let [store, receipt, proof, later, key] =
        ["stele.pub", "receipt", "proof", "later", "witness/witness.pub"].map(|name| place.path(name));
    assert!(place.stele(&["audit", "key", "--to", &store]).status.success());
    server.stop();
    let witness = Witness::start(&place, "127.0.0.1:0");
    let url = format!("http://{}/witness", witness.listen);
    with_archive(&place, &format!("heads_witness = \"{url}\"\nheads_witness_key = \"witness/witness.pub\""));
    place.serve().stop();
    let newest = |name: &str| {
        let files = std::fs::read_dir(place.0.join("heads")).unwrap().map(|file| file.unwrap().path());
        let newest = files.filter(|path| path.extension().is_some_and(|is| is == "witness")).max().unwrap();
        std::fs::copy(newest, place.0.join(name)).unwrap();
        place.path(name)
    };
    let before = newest("before.witness");
    let server = place.serve().with_keys(keys);
    assert!(place.stele(&["bucket", "create", "records", "--lock"]).status.success());
    server.put("/records/ledger", b"the ledger");
    assert!(place.stele(&["receipt", "get", "records/ledger", "--to", &receipt]).status.success());
    assert!(place.stele(&["proof", "export", "--bucket", "records", "--to", &proof]).status.success());
    server.stop();
    // The head of the next start counts all of this.
    place.serve().stop();
    let after = newest("after.witness");
    witness.stop();

    let manifest = format!("{proof}/manifest.json");
    let cases = [(&receipt, ["receipt", "verify", receipt.as_str()]), (&manifest, ["proof", "verify", proof.as_str()])];
    for (number, (from, verify)) in cases.into_iter().enumerate() {
        let later = format!("{later}-{number}");
        let proved = place.stele(&["audit", "prove", from, "--until", &after, "--to", &later]);
        assert!(proved.status.success(), "{proved:?}");
        // These commands need no data directory.
        let verified = |more: &[&str]| {
            let own = [verify[0], verify[1], verify[2], "--key", &store];
            place.command(&[&own[..], more].concat()).output().unwrap()
        };
        let whole = ["--later", &later, "--anchor", &after, "--witness", &key];
        let output = verified(&whole);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("The witness countersigned the head of"), "{output:?}");
        let output = verified(&[&whole[..], &["--json"]].concat());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(json["countersigned"].is_string() && json["later_records"].is_u64(), "{json}");
        let refused = |code: i32, word: &str, more: &[&str]| {
            let output = verified(more);
            let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
            assert!(output.status.code() == Some(code) && text.contains(word), "{more:?}: {word}: {output:?}");
        };
        refused(2, "later.proof", &["--anchor", &after, "--witness", &key]);
        refused(2, "take a later head", &["--anchor", &before, "--witness", &key]);
        refused(5, "another witness", &["--later", &later, "--anchor", &after, "--witness", &store]);
        refused(2, "--witness", &["--later", &later, "--anchor", &after]);
    }
    // A proof leads from its own head alone, and never to a head behind the log's end.
    place.refused(
        5,
        &["begins at record"],
        &["receipt", "verify", &receipt, "--key", &store, "--later", &format!("{later}-1")],
    );
    place.refused(2, &["not from"], &["audit", "prove", &receipt, "--until", &before]);
}
