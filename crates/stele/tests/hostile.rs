//! Names chosen by outsiders, with line breaks, escape sequences and direction marks: they have no
//! effect in any command or log line.

use std::process::Output;

use crate::support;
use crate::support::{Place, Server};

/// It begins a line of its own, clears the screen, reverses the text, and contains a second C1
/// sequence and a delete.
const FORGED: &str = "FORGED\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{202e}\u{2028}\u{7f}\r";

fn hostile() -> String {
    format!("a\n{FORGED}\n{FORGED}")
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The text has no effect on a terminal, and the name begins no line.
#[track_caller]
fn harmless(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{what} is no text: {error}"));
    let acts = |c: char| {
        c != '\n'
            && (c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
    };
    if let Some(found) = text.chars().find(|c| acts(*c)) {
        panic!("{what} has {found:?}: {text:?}");
    }
    let forged = text.lines().find(|line| line.trim_start().starts_with("FORGED"));
    assert_eq!(forged, None, "{what} has a line that an outsider wrote: {text:?}");
}

#[track_caller]
fn said(place: &Place, arguments: &[&str]) -> Output {
    let output = place.stele(arguments);
    for (stream, bytes) in [("output", &output.stdout), ("errors", &output.stderr)] {
        harmless(&format!("the {stream} of {arguments:?}"), bytes);
    }
    output
}

/// Runs the command for people, and for machines, which get the exact name.
#[track_caller]
fn shows(place: &Place, arguments: &[&str], name: &str) {
    let output = said(place, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("\\nFORGED\\u{1b}[2J"), "{arguments:?} shows the name as it may be shown: {text}");
    let output = said(place, &[arguments, &["--json"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let exact = text.lines().any(|line| {
        let value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {line}"));
        holds(&value, name)
    });
    assert!(exact, "{arguments:?} --json has the name exactly: {text}");
}

fn holds(value: &serde_json::Value, name: &str) -> bool {
    match value {
        serde_json::Value::String(text) => text.contains(name),
        serde_json::Value::Array(values) => values.iter().any(|value| holds(value, name)),
        serde_json::Value::Object(fields) => fields.values().any(|value| holds(value, name)),
        _ => false,
    }
}

fn strangers(server: &Server) {
    let name = hostile();
    let mut ask =
        server.ask("GET", &format!("/records/{}", encoded(&name))).header("user-agent", "agent \u{9b}31m\tFORGED");
    ask.access_key = "FORGED\u{9b}31mKEY".to_owned();
    assert!(server.send(ask).status >= 400);
    let missing = server.get(&format!("/{}", encoded(&name)));
    assert!(missing.status >= 400);
}

#[test]
fn no_command_and_no_log_line_lets_a_name_do_anything() {
    let place = Place::new("hostile");
    let server = place.up();
    let name = hostile();
    place.json(&["bucket", "create", "records", "--lock"]);
    let target = format!("/records/{}", encoded(&name));
    let put = server.ask("PUT", &target).header("x-amz-meta-name", "agent \u{9b}31m").body(b"record");
    support::server::good(server.send(put));
    shows(&place, &["why", &format!("records/{name}")], &name);
    shows(&place, &["why", &format!("records/missing {name}")], &name);
    // A refusal, so that the audit log and the error both contain the name.
    let locked =
        server.ask("PUT", &format!("{target}?legal-hold=")).body(b"<LegalHold><Status>ON</Status></LegalHold>");
    support::server::good(server.send(locked));
    strangers(&server);
    shows(&place, &["audit", "show", "--limit", "1000"], &name);
    said(&place, &["key", "create", "--name", &name, "--role", "auditor"]);
    shows(&place, &["key", "list"], &name);
    // Names of volumes have no control characters; the characters that they may have are displayed
    // all the same.
    said(&place, &["volume", "create", &name, "--code", "mirror-2", "--size", "8MiB"]);
    let (volume, copy) = ("vm\u{202e}FORGED\u{200b}", "copy\u{2066}FORGED\u{feff}");
    place.json(&["volume", "create", volume, "--code", "mirror-2", "--size", "8MiB"]);
    place.json(&["volume", "snapshot", volume, copy]);
    for arguments in [
        &["volume", "list"][..],
        &["volume", "show", volume],
        &["volume", "show", &format!("no {volume}")],
        &["volume", "export", volume, "--nbd", "--name", "plain"],
        &["export", "list"],
        &["volume", "rollback", volume, copy, "--yes"],
        &["volume", "clone", copy, &format!("clone {copy}")],
    ] {
        let output = said(&place, arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("\\u{202e}FORGED") || text.contains("\\u{2066}FORGED"), "{arguments:?}: {text}");
        said(&place, &[arguments, &["--json"]].concat());
    }
    shows(&place, &["volume", "show", &format!("no {name}")], &name);
    said(&place, &["volume", "export", &name, "--nbd"]);
    said(&place, &["export", "remove", &name]);
    said(&place, &["export", "remove", "plain"]);
    said(&place, &["bucket", "create", &name]);
    said(&place, &["bucket", "show", &name]);
    said(&place, &["key", "revoke", &name]);
    said(&place, &["approve", &name, "--yes"]);
    said(&place, &["pool", "status"]);
    said(&place, &["audit", "verify"]);
    said(&place, &[&name]);
    said(&place, &["volume", "create", "v", "--code", &name, "--size", &name]);
    said(&place, &["volume", "delete", copy, "--yes"]);
    // Exported records are exact, and harmless to display.
    let exported = said(&place, &["audit", "export"]);
    let text = String::from_utf8(exported.stdout).unwrap();
    let keys = text.lines().filter(|line| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        record["key"] == name.as_str()
    });
    assert!(keys.count() > 0, "{text}");
    server.stop();
    harmless("the log", place.log().as_bytes());
    // The same without a server.
    said(&place, &["volume", "list"]);
    shows(&place, &["audit", "show", "--limit", "1000"], &name);
}
