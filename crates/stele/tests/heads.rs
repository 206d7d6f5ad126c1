//! Heads of the audit log elsewhere: stamped by a time stamp authority.

mod support;

#[path = "../../stamp/tests/authority/mod.rs"]
mod authority;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use authority::{Authority, ECDSA};
use support::{Place, wait_for};

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
fn serve(authority: Arc<Authority>) -> (SocketAddr, Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, (sender, given)) = (listener.local_addr().unwrap(), channel());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let Some(body) = query(&stream) else { continue };
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

/// The heads in the place of the data directory that have a time stamp, in the order of their names.
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
    let (address, given) = serve(Arc::clone(&authority));
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
    server.stop();
    // The stop sent a later head, with a stamp of its own. The stamp of one head is none of the other.
    let later = stamped(&place).pop().unwrap().with_extension("tsr").display().to_string();
    assert_ne!(later, reply.display().to_string());
    let swapped = ["audit", "verify", "--anchor", &anchor, "--timestamp-ca", &ca, "--timestamp", &later];
    place.refused(5, &["other bytes"], &swapped);
}

#[test]
fn a_stamped_head_stays_as_it_was_when_the_log_has_not_grown() {
    let place = Place::new("heads-kept");
    place.up().stop();
    let authority = Arc::new(Authority::new("heads-kept", ECDSA, "sha256"));
    let (address, _given) = serve(Arc::clone(&authority));
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
