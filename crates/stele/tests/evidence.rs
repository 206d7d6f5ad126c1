//! Receipts and retention proofs, from the server to an auditor on another machine with a public
//! key.

use std::path::Path;
use std::process::{Command, Output};

use crate::support;
use crate::support::{Place, Server};

/// `stele` as on a clean machine: no data directory, no server.
fn elsewhere(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stele"));
    command.args(arguments).current_dir("/").env_remove("STELE_DIR");
    command.output().unwrap()
}

#[track_caller]
fn holds(arguments: &[&str]) -> String {
    let output = elsewhere(arguments);
    assert!(output.status.success(), "stele {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn fails(arguments: &[&str], word: &str) {
    let output = elsewhere(arguments);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "stele {arguments:?}: {text}");
    assert!(text.contains(word), "stele {arguments:?} should speak of '{word}': {text}");
}

fn records(place: &Place, server: &Server) {
    let made = place.stele(&["bucket", "create", "records", "--lock", "--retention", "compliance:7y"]);
    assert!(made.status.success(), "{made:?}");
    server.put("/records/2026/ledger", b"the ledger of 2026");
    server.put("/records/2026/minutes", &vec![7; 70_000]);
    server.put("/records/2025/old", b"");
}

#[test]
fn a_receipt_is_verified_elsewhere() {
    let place = Place::new("receipt");
    let server = place.up();
    records(&place, &server);
    let [key, receipt, header, proof, copy, other] =
        ["stele.pub", "receipt", "header", "proof", "copy", "other"].map(|name| place.path(name));
    assert!(place.stele(&["audit", "key", "--to", &key]).status.success());
    assert!(place.stele(&["receipt", "get", "records/2026/ledger", "--to", &receipt]).status.success());
    let asked = server.ask("PUT", "/records/2026/second").header("x-stele-receipt", "1").body("second");
    let answer = server.send(asked);
    std::fs::write(&header, answer.header("x-stele-receipt").unwrap()).unwrap();
    std::fs::write(&copy, b"the ledger of 2026").unwrap();
    std::fs::write(&other, b"the ledger of 2027").unwrap();
    server.put("/records/2026/third", b"third");
    assert!(place.stele(&["audit", "prove", &receipt, "--to", &proof]).status.success());
    // No file is written over.
    place.refused(9, &["it is there already"], &["audit", "key", "--to", &key]);
    // A receipt for another record, and one that is not about the object.
    place.refused(4, &["is not about"], &["receipt", "get", "records/2026/ledger", "--record", "1"]);
    place.refused(4, &["no record 999999"], &["receipt", "get", "records/2026/ledger", "--record", "999999"]);
    place.refused(4, &["ledger"], &["receipt", "get", "records/ledger"]);
    server.stop();

    // Without the server the command opens the pool, and signs with the same key.
    let later = place.stele(&["receipt", "get", "records/2026/ledger"]);
    assert!(later.status.success(), "{later:?}");
    std::fs::write(place.0.join("later"), later.stdout).unwrap();
    holds(&["receipt", "verify", &place.path("later"), "--key", &key]);

    let text = holds(&["receipt", "verify", &receipt, "--key", &key, "--content", &copy, "--later", &proof]);
    assert!(text.contains("COMPLIANCE until") && text.contains("still begins with it"), "{text}");
    let text = holds(&["receipt", "verify", &header, "--key", &key]);
    assert!(text.contains("SHA-256"), "the signature covered the digest: {text}");
    let json = holds(&["receipt", "verify", &receipt, "--key", &key, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["content_compared"].as_bool(), json["later_records"].is_null()), (Some(false), true), "{json}");
    fails(&["receipt", "verify", &receipt, "--key", &key, "--content", &other], "BLAKE3");
    fails(&["receipt", "verify", &header, "--key", &key, "--later", &proof], "begins at record");
    let text = std::fs::read_to_string(&receipt).unwrap();
    std::fs::write(&other, text.replacen("COMPLIANCE", "GOVERNANCE", 1)).unwrap();
    fails(&["receipt", "verify", &other, "--key", &key], "signature of the receipt");
    std::fs::write(&other, format!("{}\n", "0".repeat(64))).unwrap();
    fails(&["receipt", "verify", &receipt, "--key", &other], "another key");
}

/// Such a file may be whole: it is neither changed nor of another store.
#[test]
fn evidence_of_a_later_format_is_refused_by_name() {
    let place = Place::new("evidence-later");
    let server = place.up();
    records(&place, &server);
    let [key, receipt, later, proof] = ["stele.pub", "receipt", "later", "proof"].map(|name| place.path(name));
    assert!(place.stele(&["audit", "key", "--to", &key]).status.success());
    assert!(place.stele(&["receipt", "get", "records/2026/ledger", "--to", &receipt]).status.success());
    server.stop();
    std::fs::create_dir(&proof).unwrap();
    let write = |path: &str, text: &str| std::fs::write(path, text).unwrap();
    let refused = |format: &str, arguments: &[&str]| {
        place.refused(3, &[&format!("'stele {format}'"), "a later version of Stele wrote"], arguments);
    };
    for format in ["receipt 3", "disposal 2"] {
        let text = format!("{{\"format\":\"stele {format}\",\"countries\":[]}}");
        write(&later, &text);
        refused(format, &["receipt", "verify", &later, "--key", &key]);
        refused(format, &["audit", "prove", &later, "--to", &place.path("proven")]);
        write(&later, &base64_simd::STANDARD.encode_to_string(&text));
        if format.starts_with("receipt") {
            refused(format, &["receipt", "verify", &later, "--key", &key]);
        }
    }
    write(&later, r#"{"format":"stele consistency 2","countries":[]}"#);
    refused("consistency 2", &["receipt", "verify", &receipt, "--key", &key, "--later", &later]);
    write(&later, r#"{"format":"stele witness 2","countries":[]}"#);
    let witnessed = ["receipt", "verify", &receipt, "--key", &key, "--anchor", &later, "--witness", &key];
    refused("witness 2", &witnessed);
    write(&place.path("proof/manifest.json"), r#"{"format":"stele proof 2","countries":[]}"#);
    // This command takes no `--dir`: it needs no server.
    for arguments in [&["proof", "verify", &proof][..], &["proof", "verify", &proof, "--key", &key]] {
        let output = place.command(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {text}");
        assert!(text.contains("'stele proof 2'") && text.contains("a later version of Stele wrote"), "{text}");
    }
}

/// The verifier in Python, if Python and its package are on this machine. CI leaves nothing out.
fn python(arguments: &[&str]) -> Option<Output> {
    let known = Command::new("python3").args(["-c", "import cryptography"]).output();
    if !known.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "the verifier in Python needs python3 and its package cryptography");
        println!("left out: the verifier in Python needs python3 and its package cryptography");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/verify-proof.py");
    Some(Command::new("python3").arg(script).args(arguments).output().unwrap())
}

#[test]
fn a_retention_proof_is_verified_by_two_programs() {
    let place = Place::new("proof");
    let server = place.up();
    records(&place, &server);
    server.put("/records/2026/minutes", b"another version");
    let hold = "<LegalHold><Status>ON</Status></LegalHold>";
    assert_eq!(server.send(server.ask("PUT", "/records/2025/old?legal-hold").body(hold)).status, 200);
    let refused = server.ask("DELETE", "/records/2026/ledger");
    assert_eq!(server.send(refused).status, 204, "a delete without a version adds a marker");
    let begun = server.send(server.ask("POST", "/records/2026/parts?uploads")).text();
    let upload = support::http::between(&begun, "<UploadId>", "</UploadId>").unwrap();
    let part = |number: u32, body: Vec<u8>| {
        let target = format!("/records/2026/parts?partNumber={number}&uploadId={upload}");
        let etag = server.put(&target, &body).header("etag").unwrap();
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
    };
    let list = part(1, vec![1; 5 << 20]) + &part(2, vec![2; 1000]);
    let list = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    let done = server.ask("POST", &format!("/records/2026/parts?uploadId={upload}")).body(list.as_str());
    assert_eq!(server.send(done).status, 200);

    let [key, proof, held] = ["stele.pub", "proof", "held"].map(|name| place.path(name));
    assert!(place.stele(&["audit", "key", "--to", &key]).status.success());
    let json = place.json(&["proof", "export", "--bucket", "records", "--prefix", "2026/", "--to", &proof]);
    assert_eq!((json["versions"].as_u64(), json["key_given"].as_bool()), (Some(5), Some(false)), "{json}");
    let json = place.json(&["proof", "export", "--bucket", "records", "--matter", "s3", "--to", &held]);
    assert_eq!(json["versions"], 1, "{json}");
    place.refused(9, &["it is there already"], &["proof", "export", "--bucket", "records", "--to", &proof]);
    place.refused(4, &["nothing"], &["proof", "export", "--bucket", "nothing", "--to", &place.path("nothing")]);
    server.stop();

    for dir in [&proof, &held] {
        let text = holds(&["proof", "verify", dir, "--key", &key]);
        assert!(text.contains("hold,"), "{text}");
        if let Some(output) = python(&[dir, "--key", &key]) {
            assert!(output.status.success(), "{output:?}");
        }
    }
    let copy = place.path("copy");
    std::fs::write(&copy, b"another version").unwrap();
    let Some(output) = python(&[&proof, "--key", &key, "--content", "2026/minutes", &copy]) else { return };
    assert!(output.status.success(), "{output:?}");
    let output = python(&[&proof, "--content", "2026/ledger", &copy]).unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");

    // A sample of bytes for both programs; the archive's own tests alter every byte.
    let files: Vec<_> = std::fs::read_dir(&proof).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 7);
    for path in files {
        let whole = std::fs::read(&path).unwrap();
        for at in [0, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
            let mut altered = whole.clone();
            altered[at] ^= 0x20;
            std::fs::write(&path, &altered).unwrap();
            fails(&["proof", "verify", &proof], "does not hold");
            let output = python(&[&proof]).unwrap();
            assert_eq!(output.status.code(), Some(1), "byte {at} of {}: {output:?}", path.display());
        }
        std::fs::write(&path, &whole).unwrap();
    }
    holds(&["proof", "verify", &proof]);
    // A directory that is not there was not changed by anyone.
    let missing = elsewhere(&["proof", "verify", &format!("{proof}-none")]);
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.status.code() == Some(4) && text.contains("proof-none") && !text.contains("changed"), "{text}");
    std::fs::write(format!("{proof}/more"), b"more").unwrap();
    fails(&["proof", "verify", &proof], "no part of");
    assert_eq!(python(&[&proof]).unwrap().status.code(), Some(1));
}

/// Neither a path that is wrong nor a key that is a folder of another one refutes the proof.
#[test]
fn copies_are_compared_where_they_can_be_files() {
    let place = Place::new("proof-copies");
    let server = place.up();
    place.json(&["bucket", "create", "records", "--lock"]);
    for key in ["a/b", "a/b-x", "a/b/c", "one"] {
        server.put(&format!("/records/{key}"), key.as_bytes());
    }
    let [proof, copies, none] = ["proof", "copies", "none"].map(|name| place.path(name));
    place.json(&["proof", "export", "--bucket", "records", "--to", &proof]);
    // A bucket that is not there is told before a directory is made.
    let above = std::fs::File::open(&place.0).unwrap();
    above.set_modified(std::time::UNIX_EPOCH).unwrap();
    place.refused(4, &["nob"], &["proof", "export", "--bucket", "nob", "--to", &none]);
    assert_eq!(above.metadata().unwrap().modified().unwrap(), std::time::UNIX_EPOCH);
    assert!(!Path::new(&none).exists(), "no directory is left");
    // A place that cannot be one is told before the server records an export.
    let records = || place.stele(&["audit", "show", "--json"]).stdout;
    let before = records();
    place.refused(9, &["it is there already"], &["proof", "export", "--bucket", "records", "--to", &proof]);
    place.refused(4, &["No such file"], &["proof", "export", "--bucket", "records", "--to", &place.path("a/b")]);
    assert_eq!(records(), before);
    server.stop();
    let compare = |dir: &str| elsewhere(&["proof", "verify", &proof, "--content", dir, "--json"]);
    let write = |keys: &[&str]| {
        let _ = std::fs::remove_dir_all(&copies);
        for key in keys {
            let file = Path::new(&copies).join(key);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, key).unwrap();
        }
    };
    // Either of the two keys is the file.
    for keys in [["a/b", "a/b-x", "one"], ["a/b/c", "a/b-x", "one"]] {
        write(&keys);
        let output = compare(&copies);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert_eq!((&json["content_compared"], &json["content_left"]), (&3.into(), &1.into()), "{output:?}");
    }
    // A folder in the place of a key's file is no copy of it.
    write(&["a/b", "a/b-x", "one/more"]);
    fails(&["proof", "verify", &proof, "--content", &copies], "one is a directory");
    write(&["a/b", "one"]);
    fails(&["proof", "verify", &proof, "--content", &copies], "a/b-x");
    for (arguments, word) in [
        (vec!["proof", "verify", &proof, "--content", &none], "--content"),
        (vec!["proof", "verify", &copies], "is no retention proof"),
    ] {
        let output = elsewhere(&arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(4) && text.contains(word) && !text.contains("changed"), "{text}");
    }
}

/// A size is in words.
#[test]
fn a_receipt_of_one_byte_says_byte() {
    let place = Place::new("receipt-byte");
    let server = place.up();
    place.json(&["bucket", "create", "records"]);
    server.put("/records/one", b"1");
    let [key, receipt] = ["stele.pub", "receipt"].map(|name| place.path(name));
    assert!(place.stele(&["audit", "key", "--to", &key]).status.success());
    assert!(place.stele(&["receipt", "get", "records/one", "--to", &receipt]).status.success());
    let text = holds(&["receipt", "verify", &receipt, "--key", &key]);
    assert!(text.contains("1 byte\n"), "{text}");
}

#[test]
fn heads_go_to_a_syslog_server() {
    let place = Place::new("heads-syslog");
    place.up().stop();
    let syslog = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    syslog.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let port = syslog.local_addr().unwrap().port();
    let config = place.0.join("stele.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let with = |line: &str| text.replacen("[archive]\n", &format!("[archive]\n{line}\n"), 1);
    std::fs::write(&config, with("heads_syslog = [\"log.example.org\"]")).unwrap();
    place.refused(2, &["heads_syslog", "udp:HOST"], &["serve"]);
    std::fs::write(&config, with("heads_mail = [\"auditor@example.org\"]")).unwrap();
    place.refused(2, &["heads_mail", "mail_server"], &["serve"]);
    std::fs::write(&config, with(&format!("heads_syslog = [\"udp:127.0.0.1:{port}\"]"))).unwrap();
    let server = place.serve();
    let mut buffer = [0; 4096];
    let (length, _) = syslog.recv_from(&mut buffer).unwrap();
    let line = String::from_utf8(buffer[..length].to_vec()).unwrap();
    assert!(line.starts_with("<110>1 "), "{line}");
    // The line as a syslog server keeps it is an anchor.
    std::fs::write(place.0.join("line"), format!("{line}\n")).unwrap();
    let verdict = place.json(&["audit", "verify", "--anchor", &place.path("line")]);
    assert!(verdict["anchored"].as_u64().is_some_and(|records| records > 0), "{verdict}");
    server.stop();
}

#[test]
fn a_disposal_is_certified_and_verified_elsewhere() {
    let place = Place::new("disposal-certificate");
    let server = place.up();
    let made = place.stele(&["bucket", "create", "drafts", "--lock", "--retention", "governance:1d"]);
    assert!(made.status.success(), "{made:?}");
    let version = server.put("/drafts/letter", b"a draft").header("x-amz-version-id").unwrap().to_string();
    let object = format!("drafts/letter@{version}");
    let target = format!("/drafts/letter?versionId={version}");
    let bypass = server.ask("DELETE", &target).header("x-amz-bypass-governance-retention", "true");
    assert_eq!(server.send(bypass).status, 204);
    let listed = place.json(&["disposal", "list", "--bucket", "drafts"]);
    assert_eq!((listed["version"].as_str(), listed["cause"].as_str()), (Some(&*version), Some("governance bypassed")));
    // The record of the destroyed key follows with the next step of background work.
    let certified = (0..500).map(|_| place.json(&["disposal", "certificate", &object]));
    let made = certified.into_iter().find(|made| made["removal"]["key_destroyed"].is_string());
    assert!(made.is_some(), "the destruction of the key is recorded");
    let [key, file, pdf, html, copy] =
        ["stele.pub", "letter.disposal", "letter.pdf", "letter.html", "copy"].map(|name| place.path(name));
    assert!(place.stele(&["audit", "key", "--to", &key]).status.success());
    for page in [&pdf, &html] {
        let to = format!("{file}-{}", page.rsplit('.').next().unwrap());
        let output = place.stele(&["disposal", "certificate", &object, "--to", &to, "--page", page]);
        assert!(output.status.success(), "{output:?}");
        std::fs::rename(&to, &file).unwrap();
    }
    assert!(std::fs::read(&pdf).unwrap().starts_with(b"%PDF"));
    assert!(std::fs::read_to_string(&html).unwrap().contains(&version));
    place.refused(2, &[".pdf or .html"], &["disposal", "certificate", &object, "--page", "letter.txt"]);
    place.refused(2, &["names no version"], &["disposal", "certificate", "drafts/letter"]);
    let other = format!("drafts/other@{}", object.rsplit('@').next().unwrap());
    place.refused(4, &["no record that says"], &["disposal", "certificate", &other]);
    server.stop();
    // After a stop, the command opens the pool, and the log says the same.
    let again = place.json(&["disposal", "certificate", &object]);
    assert!(again["removal"]["key_destroyed"].is_string(), "{again}");

    let text = holds(&["receipt", "verify", &file, "--key", &key]);
    assert!(text.contains("governance bypassed") && text.contains("The certificate holds."), "{text}");
    std::fs::write(&copy, b"a draft").unwrap();
    holds(&["receipt", "verify", &file, "--key", &key, "--content", &copy]);
    std::fs::write(&copy, b"a graft").unwrap();
    fails(&["receipt", "verify", &file, "--key", &key, "--content", &copy], "BLAKE3");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&copy, text.replacen("governance bypassed", "expired", 1)).unwrap();
    fails(&["receipt", "verify", &copy, "--key", &key], "signature of the certificate");
}
