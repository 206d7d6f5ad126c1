//! Alarms by mail and to webhooks, against servers on loopback that refuse at first or never
//! answer; a `smartctl` that predicts the failure of a drive; and `stele top`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Place, wait_for};

mod tls;

const PATIENCE: Duration = Duration::from_secs(60);

/// A listener whose connections one thread handles one after the other.
fn listening(handle: impl Fn(usize, TcpStream, &Sender<String>) + Send + 'static) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, (sender, heard)) = (listener.local_addr().unwrap(), channel());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            handle(number, stream, &sender);
        }
    });
    (address, heard)
}

/// Takes a message over HTTP; the first attempt fails.
fn webhook() -> (SocketAddr, Receiver<String>) {
    listening(|number, stream, heard| take_post(number == 0, stream, heard))
}

fn take_post(refused: bool, stream: impl Read + Write, heard: &Sender<String>) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some((_, value)) = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length")) {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    // A client that does not trust this server sends nothing.
    if length == 0 || reader.read_exact(&mut body).is_err() {
        return;
    }
    let status = if refused { "500 Not Yet" } else { "204 No Content" };
    let _ = write!(reader.get_mut(), "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let _ = reader.get_mut().flush();
    if !refused {
        let _ = heard.send(String::from_utf8(body).unwrap());
    }
}

/// Takes mail; the first attempt is deferred.
fn mail_server() -> (SocketAddr, Receiver<String>) {
    listening(|number, stream, heard| take_mail(number == 0, stream, heard))
}

fn take_mail(put_off: bool, stream: impl Read + Write, heard: &Sender<String>) {
    let mut reader = BufReader::new(stream);
    fn say(reader: &mut BufReader<impl Read + Write>, text: &str) -> std::io::Result<()> {
        reader.get_mut().write_all(format!("{text}\r\n").as_bytes())?;
        reader.get_mut().flush()
    }
    let _ = say(&mut reader, "220 here");
    let (mut line, mut letter) = (String::new(), None::<String>);
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
        let text = line.trim_end().to_owned();
        line.clear();
        let answer = match &mut letter {
            Some(whole) if text == "." => {
                let _ = heard.send(std::mem::take(whole));
                letter = None;
                "250 taken"
            }
            Some(whole) => {
                whole.push_str(&format!("{text}\n"));
                continue;
            }
            None if text.starts_with("MAIL") && put_off => "451 later",
            None if text == "DATA" => {
                letter = Some(String::new());
                "354 go on"
            }
            None if text == "QUIT" => {
                let _ = say(&mut reader, "221 bye");
                break;
            }
            None => "250 good",
        };
        let _ = say(&mut reader, answer);
    }
}

#[test]
fn alarms_reach_webhooks_and_mail_whatever_fails_on_the_way() {
    let place = Place::new("messages");
    place.up().stop();
    let ((hook, hooked), (mail, mailed)) = (webhook(), mail_server());
    // A destination that accepts and never answers delays no other.
    let (mute, given_up) = listening(|_, mut stream, heard| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        let _ = heard.send("given up".to_owned());
    });
    place.edit_config(|text| {
        format!(
            "{text}\n[messages]\nwebhooks = [\"http://{hook}/alarms?key=1\", \"http://{mute}/\"]\n\
             mail_to = [\"storage@example.org\"]\nmail_from = \"stele@example.org\"\nmail_server = \"smtp://{mail}\"\n"
        )
    });
    let away = place.0.join("e2-0.img");
    let drive = place.0.join("drives/e2-0.img");
    std::fs::rename(&drive, &away).unwrap();
    let server = place.serve();
    let begun: Value = serde_json::from_str(&hooked.recv_timeout(PATIENCE).unwrap()).unwrap();
    assert_eq!(
        (&begun["state"], &begun["kind"], &begun["subject"]),
        (&"begun".into(), &"drive-missing".into(), &"drive 4".into())
    );
    assert_eq!((&begun["number"], &begun["dropped"]), (&1.into(), &0.into()), "{begun}");
    assert!(begun["next"].as_str().is_some_and(|next| !next.is_empty()), "{begun}");
    let letter = mailed.recv_timeout(PATIENCE).unwrap();
    for word in [
        "From: stele@example.org",
        "To: storage@example.org",
        "Subject: [stele pool] drive-missing begun: drive 4",
        "next ",
    ] {
        assert!(letter.contains(word), "{word}: {letter}");
    }
    assert!(given_up.try_recv().is_err(), "both came while the other's answer was waited for");
    assert_eq!(place.json(&["pool", "status"])["state"], "degraded", "the pool answers meanwhile");

    std::fs::rename(&away, &drive).unwrap();
    place.json(&["drive", "online", "4"]);
    let ended = std::iter::from_fn(|| hooked.recv_timeout(PATIENCE).ok()).find(|text| {
        let value: Value = serde_json::from_str(text).unwrap();
        value["state"] == "ended" && value["kind"] == "drive-missing"
    });
    assert!(ended.is_some(), "its end is told");
    assert!(
        std::iter::from_fn(|| mailed.recv_timeout(PATIENCE).ok()).any(|letter| letter.contains("drive-missing ended"))
    );
    server.stop();
    place.edit_config(|text| text.replace("http://", "gopher://"));
    place.refused(2, &["webhooks", "neither http nor https"], &["serve"]);
}

#[test]
fn heads_of_the_audit_log_go_out_by_mail() {
    let place = Place::new("heads-mail");
    place.up().stop();
    let (mail, mailed) = listening(|_, stream, heard| take_mail(false, stream, heard));
    place.edit_config(|text| {
        let text = text.replacen("[archive]\n", "[archive]\nheads_mail = [\"auditor@example.org\"]\n", 1);
        format!("{text}\n[messages]\nmail_from = \"stele@example.org\"\nmail_server = \"smtp://{mail}\"\n")
    });
    let server = place.serve();
    let letter = mailed.recv_timeout(PATIENCE).unwrap();
    for word in ["From: stele@example.org", "To: auditor@example.org", "Subject: [stele] head of "] {
        assert!(letter.contains(word), "{word}: {letter}");
    }
    assert!(letter.contains("Content-Transfer-Encoding: 7bit"), "{letter}");
    // The raw mail, as a mailbox keeps it.
    std::fs::write(place.0.join("mailed"), &letter).unwrap();
    let verdict = place.json(&["audit", "verify", "--anchor", &place.path("mailed")]);
    assert!(verdict["anchored"].as_u64().is_some_and(|records| records > 0), "{verdict}");
    server.stop();
}

/// The search path with a `smartctl` of its own, which is this script.
fn with_smartctl(place: &Place, script: &str) -> String {
    let programs = place.0.join("bin");
    std::fs::create_dir(&programs).unwrap();
    let program = programs.join("smartctl");
    std::fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default())
}

/// The server asks one drive after another, and gives each 30 seconds: twelve that hang held the
/// end of the process up for six minutes.
#[test]
fn a_stop_waits_for_no_drive_that_is_asked_for_its_health() {
    let place = Place::new("smart-hangs");
    place.up().stop();
    let path = with_smartctl(&place, &format!("touch {}\nexec sleep 40\n", place.path("asked")));
    place.listen_anywhere();
    let server = crate::support::Server::start_with(&place, &["serve"], &[("PATH", &path)]).unwrap();
    wait_for("a drive to be asked", || place.0.join("asked").exists().then_some(()));
    let begun = std::time::Instant::now();
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn a_drive_that_says_it_will_fail_is_told() {
    let place = Place::new("smart");
    place.up().stop();
    // It knows one drive, is slow for none, and does not know the others.
    let path = with_smartctl(
        &place,
        "for path; do :; done\ncase $path in */e1-1.img)\n\
         echo '{\"smart_status\":{\"passed\":false},\"temperature\":{\"current\":44}}'; exit 8;; esac\n\
         echo '{\"smartctl\":{\"exit_status\":1}}'; exit 1\n",
    );
    place.listen_anywhere();
    let server = crate::support::Server::start_with(&place, &["serve"], &[("PATH", &path)]).unwrap();
    let status = wait_for("what drives say", || {
        let status = place.json(&["pool", "status"]);
        status["drives"][3]["smart"].is_object().then_some(status)
    });
    assert_eq!(status["drives"][3]["smart"]["passed"], false, "{status}");
    assert_eq!(status["drives"][3]["smart"]["celsius"], 44);
    assert!(status["drives"][2]["smart"].is_null());
    let standing = status["standing"].as_array().unwrap();
    assert!(standing.iter().any(|alarm| alarm["kind"] == "drive-smart" && alarm["subject"] == "drive 3"), "{status}");
    let shown = String::from_utf8(place.stele(&["pool", "status"]).stdout).unwrap();
    assert!(shown.contains("will fail") && shown.contains("drive-smart"), "{shown}");
    let top = place.json(&["top", "--once"]);
    assert!(top["standing"].as_array().unwrap().iter().any(|alarm| alarm["kind"] == "drive-smart"), "{top}");
    server.stop();
    // Without the program the state is unknown, which the log reports and which is no error.
    let server = crate::support::Server::start_with(&place, &["serve"], &[("PATH", "/nonexistent")]).unwrap();
    wait_for("a word in the log", || place.log().contains("smartctl is not installed").then_some(()));
    assert!(place.json(&["pool", "status"])["drives"][3]["smart"].is_null());
    server.stop();
}

#[test]
fn top_counts_what_hosts_do() {
    let place = Place::new("top");
    let server = place.up();
    place.json(&["bucket", "create", "records"]);
    let top = std::thread::scope(|scope| {
        let watching = scope.spawn(|| place.json(&["top", "--once"]));
        let mut number = 0;
        while !watching.is_finished() {
            server.put(&format!("/records/{number}"), &[7; 5000]);
            number += 1;
        }
        watching.join().unwrap()
    });
    let s3 = &top["frontends"][0];
    assert_eq!((s3["name"].as_str(), top["frontends"].as_array().map(Vec::len)), (Some("s3"), Some(3)), "{top}");
    assert!(s3["requests_per_second"].as_u64().is_some_and(|rate| rate > 0), "{top}");
    let (rate, bytes) = (s3["requests_per_second"].as_u64().unwrap(), s3["bytes_per_second_written"].as_u64().unwrap());
    assert!(bytes > rate * 4000 && bytes < (rate + 2) * 6000, "{top}");
    assert!(s3["mean_microseconds"].as_u64().is_some_and(|mean| mean > 0), "{top}");
    assert_eq!((top["drives"].as_array().map(Vec::len), &top["drives"][0]["health"]), (Some(12), &"healthy".into()));
    let shown = String::from_utf8(place.stele(&["top", "--once"]).stdout).unwrap();
    assert!(shown.contains("frontend") && shown.contains("iscsi") && !shown.contains('\u{1b}'), "{shown}");
    // The terminal gets its own screen and cursor back, however the command ends.
    let watched = format!("timeout --signal=INT 2 {} top --dir {}", env!("CARGO_BIN_EXE_stele"), place.0.display());
    let on_terminal = std::process::Command::new("script").args(["-qec", &watched, "/dev/null"]).output().unwrap();
    let text = String::from_utf8_lossy(&on_terminal.stdout);
    let end = text.rsplit("\u{1b}[?1049h").next().unwrap_or_default();
    assert!(text.contains("\u{1b}[?25l") && end.contains("frontend"), "{text}");
    assert!(end.trim_end().ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{text}");
    server.stop();
}
