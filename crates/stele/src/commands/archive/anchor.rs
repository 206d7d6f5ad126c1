//! Runs `stele audit verify`: with a signed head that was kept elsewhere, and with the time stamp
//! of that head.
//!
//! A head comes as its file, as a line of a syslog, or as a mail. The mail may be raw; older
//! versions of Stele sent it quoted-printable, and mail servers may change it to that. A time stamp
//! is checked here, with the certificates that the caller trusts and nothing from the server.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Serialize;
use stele_archive::{AuditVerdict, SignedHead, format_after};
use stele_ground::calendar::moment;
use stele_ground::{Shown, counted};
use stele_server::api::archive::AuditVerify;
use stele_server::config::Site;
use stele_server::evidence::public_key;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::node::heads;
use stele_server::witness::{self, Countersigned};
use stele_stamp::{Authorities, Imprint};

use crate::cli::audit::Anchor;
use crate::commands::archive::ask;
use crate::commands::evidence::later;
use crate::commands::print_json;

/// Bytes of a file with a head, a time stamp or certificates.
const FILE_MAX: u64 = 4 << 20;

/// The verdict as JSON.
#[derive(Serialize)]
struct View<'a> {
    #[serde(flatten)]
    verdict: &'a AuditVerdict,
    /// The time of the anchor's time stamp, and the authority's number of it.
    stamped: Option<String>,
    stamp_serial: Option<String>,
    /// When the witness countersigned the anchor, by its clock.
    countersigned: Option<String>,
}

pub async fn verify(site: &Site, json: bool, given: Anchor) -> Outcome<()> {
    let (anchor, countersigned) = anchored(&given)?;
    let stamp = match (&given.timestamp_ca, &given.anchor, &anchor) {
        (Some(trusted), Some(path), Some(head)) => Some(check_stamp(&given, trusted, path, head)?),
        _ => None,
    };
    let verdict = ask(site, AuditVerify { anchor }).await?;
    let (stamped, stamp_serial) = stamp.map(|stamp| (moment(stamp.time), stamp.serial)).unzip();
    if json {
        print_json(&View { verdict: &verdict, stamped, stamp_serial, countersigned })?;
    } else if verdict.findings.is_empty() {
        let (records, checkpoints) = (counted(verdict.records, "record"), counted(verdict.checkpoints, "checkpoint"));
        println!("{records}, {checkpoints}: the chain is unbroken.");
        match verdict.anchored {
            Some(records) => println!("The anchor of {} is on it.", counted(records, "record")),
            None => println!("Without --anchor a cut tail cannot be seen; keep exported heads elsewhere."),
        }
        if let Some((time, serial)) = stamped.zip(stamp_serial) {
            println!("A time stamp authority signed at {time} that the anchor exists (its number {serial}).");
        }
        if let Some(time) = countersigned {
            println!("The witness countersigned the anchor at {}.", Shown(&time));
        }
    }
    if verdict.findings.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Kind::Damaged, format!("the audit log does not verify: {}", verdict.findings.join("; ")))
        .next("keep this pool as it is and compare it with exported heads and records"))
}

/// The head to look for, and when the witness signed it. What the witness signed is the anchor, and
/// no other head of the same file.
fn anchored(given: &Anchor) -> Outcome<(Option<SignedHead>, Option<String>)> {
    match (&given.witness, &given.anchor) {
        (Some(key), Some(path)) => {
            let Countersigned { head, time, .. } = check_witness(key, path)?;
            Ok((Some(head), Some(time)))
        }
        (_, path) => Ok((path.as_deref().map(read_head).transpose()?, None)),
    }
}

/// Checks the time stamp that was given, or the one beside the anchor.
fn check_stamp(given: &Anchor, trusted: &Path, anchor: &Path, head: &SignedHead) -> Outcome<stele_stamp::Stamp> {
    let path = given.timestamp.clone().unwrap_or_else(|| heads::stamp_of(anchor));
    let trusted_text = read_file("read the authorities in", trusted)?;
    let authorities = Authorities::from_pem(&trusted_text)
        .map_err(|finding| Failure::usage(format!("{}: {finding}", trusted.display())))?;
    let reply = read_file("read the time stamp", &path).map_err(|failure| match given.timestamp {
        Some(_) => failure,
        None => failure.next("name the anchor's time stamp with --timestamp"),
    })?;
    stele_stamp::verify(&reply, Imprint::of(heads::text(head).as_bytes()), Some(&authorities)).map_err(|finding| {
        Failure::new(Kind::Damaged, format!("{} does not hold: {finding}", path.display()))
            .next("get it again from another place of heads; if it stays so, it is not the stamp of this anchor")
    })
}

/// Reads a head that the witness countersigned, and checks both signatures.
pub(in crate::commands) fn check_witness(key: &Path, anchor: &Path) -> Outcome<Countersigned> {
    let key = public_key(key)?;
    let text = read_file("read the head", anchor)?;
    if let Some(format) = format_after(witness::FORMAT, &text) {
        return Err(later(anchor, &format, witness::FORMAT));
    }
    let made: Countersigned = serde_json::from_slice(&text).map_err(|error| {
        Failure::usage(format!("{} is no countersigned head: {error}", anchor.display()))
            .next("name a file of the server's heads that ends in .witness")
    })?;
    made.verify(&key).map_err(|finding| {
        Failure::new(Kind::Damaged, format!("{} does not hold: {finding}", anchor.display()))
            .next("get it again from another place of heads, or the last one from the witness")
    })?;
    Ok(made)
}

fn read_file(what: &str, path: &Path) -> Outcome<Vec<u8>> {
    let failed = |error: std::io::Error| io_failure(what, path, &error);
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes)).map_err(failed)?;
    match bytes.len() as u64 > FILE_MAX {
        true => Err(Failure::usage(format!("{} has more than {FILE_MAX} bytes", path.display()))),
        false => Ok(bytes),
    }
}

pub(in crate::commands) fn read_head(path: &Path) -> Outcome<SignedHead> {
    let text = read_file("read the head", path)?;
    head_in(&String::from_utf8_lossy(&text)).ok_or_else(|| {
        Failure::usage(format!("{} is not a signed head", path.display()))
            .next("name a file of the server's heads, a line of a syslog, or a mail with a head")
    })
}

/// The head in a text: the last one, if there are several.
fn head_in(text: &str) -> Option<SignedHead> {
    // A line of a syslog has words before the head.
    let head = |line: &str| {
        let json = line.get(line.find('{')?..)?.trim_end();
        let countersigned = || Some(serde_json::from_str::<Countersigned>(json).ok()?.head);
        serde_json::from_str(json).ok().or_else(countersigned)
    };
    text.lines().rev().find_map(head).or_else(|| unquoted(text).lines().rev().find_map(head))
}

/// Undoes quoted-printable (RFC 2045, 6.7). What is no code in it stays as it is.
fn unquoted(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('=') {
        bytes.extend_from_slice(before.as_bytes());
        let broken = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n'));
        let code = after.get(..2).filter(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()));
        rest = match (broken, code.and_then(|code| u8::from_str_radix(code, 16).ok())) {
            (Some(joined), _) => joined,
            (None, Some(byte)) => {
                bytes.push(byte);
                after.get(2..).unwrap_or_default()
            }
            (None, None) => {
                bytes.push(b'=');
                after
            }
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> SignedHead {
        let digits = |digit: &str| digit.repeat(64);
        SignedHead {
            store: "0a".repeat(16),
            records: 1234,
            link: digits("b"),
            root: digits("c"),
            time: "2027-01-15T08:00:00.000Z".into(),
            public_key: digits("d"),
            signature: "e".repeat(128),
        }
    }

    #[test]
    fn a_head_is_read_from_its_file_a_syslog_and_a_mail() {
        let text = heads::text(&head());
        let quoted: String = text
            .replace('=', "=3D")
            .as_bytes()
            .chunks(75)
            .map(|line| format!("{}=\r\n", std::str::from_utf8(line).unwrap()))
            .collect();
        let cases = [
            text.clone(),
            text.trim_end().to_owned(),
            text.replace('\n', "\r\n"),
            format!("<110>1 2027-01-15T08:00:00Z host stele 1 head - {text}"),
            format!("Subject: [stele] head\r\nContent-Transfer-Encoding: 7bit\r\n\r\n{text}\r\n-- \r\nfooter {{}}\r\n"),
            format!("Content-Transfer-Encoding: quoted-printable\r\n\r\n{quoted}\r\n"),
            quoted.replace("\r\n", "\n"),
        ];
        for case in cases {
            assert_eq!(head_in(&case), Some(head()), "{case}");
        }
        for wrong in ["", "{}", "=", "=\n", "=4", "==7B", &text.replace("records", "recall")] {
            assert_eq!(head_in(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_the_witness_signed_is_the_anchor_and_no_other_head_of_the_file() {
        use stele_server::witness::samples::{head, key, public};
        let (store, witness) = (key(7), key(1));
        let made = Countersigned::sign(head(&store, 5, "aa"), "2027-01-15T09:00:00Z".into(), &witness);
        let other = serde_json::to_string(&head(&store, 9, "bb")).unwrap();
        let text = serde_json::to_string(&made).unwrap();
        let text = text.replacen("\"head\":{", &format!("\"head\":{{\"x\":\n{other}\n,"), 1);
        assert_eq!(head_in(&text).unwrap().records, 9, "read line by line");
        let dir = std::env::temp_dir().join(format!("stele-anchor-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (anchor, key) = (dir.join("a.witness"), dir.join("witness.pub"));
        std::fs::write(&anchor, text).unwrap();
        let digits: String = public(&witness).iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(&key, format!("{digits}\n")).unwrap();
        let given = Anchor { anchor: Some(anchor), timestamp_ca: None, witness: Some(key), timestamp: None };
        let (found, time) = anchored(&given).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!((found, time), (Some(made.head), Some(made.time)));
    }

    #[test]
    fn quoted_printable_is_undone_and_all_else_stays() {
        let cases = [("a=3Db", "a=b"), ("a=\nb=\r\nc", "abc"), ("a=zz=", "a=zz="), ("=c3=A9", "é"), ("=é", "=é")];
        for (quoted, plain) in cases {
            assert_eq!(unquoted(quoted), plain);
        }
    }
}
