//! `stele disposal`: lists removed versions and writes their certificates, as signed JSON and as a
//! page for people.

use std::path::Path;

use stele_archive::{DisposalCertificate, ExpirationStatus, Removal};
use stele_ground::{Shown, counted};
use stele_lab::report::document::{Document, Entry, Table};
use stele_lab::report::html;
use stele_papers::pdf;
use stele_server::api::acts::DeleteRequest;
use stele_server::api::disposal as calls;
use stele_server::config::Site;
use stele_server::connection::{Connection, read_officer};
use stele_server::failure::{Failure, Outcome};

use crate::cli::disposal::Disposal;
use crate::commands::approve::asked;
use crate::commands::archive::ask;
use crate::commands::evidence::{exact, line, write_new};
use crate::commands::names::{object_named, written};
use crate::commands::print_json;

/// Where a certificate has no value.
const NONE: &str = "not recorded";

pub async fn run(site: &Site, json: bool, command: Disposal) -> Outcome<()> {
    match command {
        Disposal::List { from, to, bucket, prefix } => {
            list(site, json, calls::DisposalList { from, to, bucket, prefix, after: None }).await
        }
        Disposal::Status => status(json, &ask(site, calls::DisposalStatus {}).await?),
        Disposal::Pause { reason } => {
            let asked = reason.unwrap_or_default();
            let paused = ask(site, calls::DisposalPause { reason: Some(asked.clone()) }).await?;
            status(json, &paused)?;
            if let Some(kept) = kept_reason(&paused, &asked) {
                eprintln!("{kept}");
            }
            Ok(())
        }
        Disposal::Resume => status(json, &ask(site, calls::DisposalPause { reason: None }).await?),
        Disposal::Rate { rate } => {
            let rate = match rate.as_str() {
                "none" => None,
                number => Some(number.parse().map_err(|_| {
                    Failure::usage(format!("'{number}' is no rate"))
                        .next("write versions a second, 1 to 1000000, or none")
                })?),
            };
            status(json, &ask(site, calls::DisposalRate { rate }).await?)
        }
        Disposal::Delete { object, reason, officer } => {
            let (bucket, key, version) = version_named(&object)?;
            let officer = read_officer(&officer)?;
            asked(json, &ask(site, DeleteRequest { bucket, key, version, reason, officer }).await?)
        }
        Disposal::Certificate { object, record, to, page } => {
            let is_pdf = page.as_deref().map(is_pdf).transpose()?;
            let (bucket, key, version) = version_named(&object)?;
            let made = exact(site, calls::DisposalCertify { bucket, key, version, record }).await?;
            if let (Some(path), Some(is_pdf)) = (&page, is_pdf) {
                let document = document(&made);
                let bytes = match is_pdf {
                    true => pdf::file(&document)?,
                    false => html::page(&document)?.into_bytes(),
                };
                stele_server::files::create(path, &bytes)?;
            }
            write_new(&to, &line(&made)?)
        }
    }
}

fn version_named(object: &str) -> Outcome<(String, String, String)> {
    let (bucket, key, version) = object_named(object)?;
    let version = version.ok_or_else(|| {
        Failure::usage(format!("'{object}' names no version"))
            .next("`stele find` and `stele disposal list` print names with versions")
    })?;
    Ok((bucket, key, version))
}

/// Says that a pause was there before with another reason, which stays.
fn kept_reason(paused: &ExpirationStatus, asked: &str) -> Option<String> {
    let first = paused.reason.as_deref().unwrap_or_default();
    if asked.is_empty() || asked == first {
        return None;
    }
    let of = if first.is_empty() { String::new() } else { format!(" for '{}'", Shown(first)) };
    Some(format!(
        "It was paused before{of}, and status shows that until `stele disposal resume`; the audit log has the new reason \
         too."
    ))
}

fn status(json: bool, status: &ExpirationStatus) -> Outcome<()> {
    if json {
        return print_json(status);
    }
    match (&status.paused_since, &status.paused_by) {
        (Some(since), Some(by)) => {
            let reason = status.reason.as_deref().filter(|reason| !reason.is_empty());
            let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            println!("expiration  paused since {since} by {by}{}", Shown(&reason));
        }
        _ => println!("expiration  not paused"),
    }
    if let Some(reason) = &status.frozen {
        println!("clock       frozen: {}", Shown(reason));
    }
    let rate = status
        .rate
        .map_or_else(|| "no limit".to_owned(), |rate| format!("{} a second at most", counted(rate.into(), "version")));
    println!("rate        {rate}");
    Ok(())
}

fn is_pdf(path: &Path) -> Outcome<bool> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("pdf") => Ok(true),
        Some("html") => Ok(false),
        _ => Err(Failure::usage(format!("--page {}: a page ends with .pdf or .html", path.display()))),
    }
}

async fn list(site: &Site, json: bool, mut call: calls::DisposalList) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    loop {
        let page = connection.exact(call.clone()).await?;
        for version in &page.versions {
            if json {
                print_json(version)?;
                continue;
            }
            let name = format!("{}/{}@{}", version.bucket, version.key, version.version);
            let kept = version.keep_until.as_deref().map(|until| format!(", kept until {until}")).unwrap_or_default();
            println!(
                "{}  record {}  {}  {} by {}, {}{kept}",
                version.removed,
                version.record,
                written(&name),
                version.cause,
                Shown(&version.removed_by),
                counted(version.size_bytes, "byte")
            );
        }
        call.after = page.next;
        if call.after.is_none() {
            return connection.leave().await;
        }
    }
}

/// Prints a certificate that was verified.
pub fn show(made: &DisposalCertificate) {
    println!("{}", Shown(&name(made)));
    for (name, value) in facts(made) {
        println!("  {name:<14}{}", Shown(&value));
    }
    for (name, value) in history(&made.removal) {
        println!("  {name:<14}{}", Shown(&value));
    }
    println!("The certificate holds.");
}

fn name(made: &DisposalCertificate) -> String {
    format!("{}/{}@{}", made.bucket, made.key, made.version)
}

fn facts(made: &DisposalCertificate) -> Vec<(&'static str, String)> {
    let removal = &made.removal;
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| NONE.into());
    let stored = match (&removal.stored, &removal.stored_by) {
        (Some(stored), Some(by)) => format!("{stored} by {by}"),
        (stored, _) => or_none(stored),
    };
    let retention = match (&removal.retention_mode, &removal.keep_until) {
        (Some(mode), Some(until)) => format!("{mode} until {until}"),
        _ => "none recorded".into(),
    };
    let class = removal.class.as_ref().map(|class| match removal.class_version {
        Some(version) => format!("{class}, version {version}"),
        None => class.clone(),
    });
    let removed = format!("{} by {}", removal.removed, removal.removed_by);
    let cause = match &removal.rule {
        Some(rule) => format!("{}, rule {rule}", removal.cause),
        None => removal.cause.clone(),
    };
    let mut facts = vec![
        ("size", counted(removal.size_bytes, "byte")),
        ("BLAKE3", removal.blake3.clone()),
        ("stored", stored),
        ("retention", retention),
        ("removed", removed),
        ("cause", cause),
        ("key destroyed", or_none(&removal.key_destroyed)),
        ("audit log", format!("record {}, under the head of {}", made.record, counted(made.head.records, "record"))),
        ("signed", format!("{} by store {}", made.signed, made.store)),
    ];
    let more = [("SHA-256", removal.sha256.clone()), ("class", class)];
    facts.extend(more.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))));
    if let Some(time) = &removal.compliance_time {
        facts.push(("on the clock", format!("{time}, by the compliance clock")));
    }
    facts
}

/// Holds, approvals, and the space of the content.
fn history(removal: &Removal) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    for hold in &removal.holds {
        let released = match (&hold.released, &hold.released_by) {
            (Some(released), Some(by)) => format!("released {released} by {by}"),
            _ => "no release recorded".into(),
        };
        lines.push(("hold", format!("{}: put {} by {}, {released}", hold.matter, hold.put, hold.put_by)));
    }
    for approval in &removal.approvals {
        let (by, asked) = (&approval.approved_by, &approval.asked_by);
        lines.push(("approval", format!("{} by {by}, asked by {asked}: {}", approval.approved, approval.says)));
    }
    for segment in removal.segments.iter().flatten() {
        let overwritten = match &segment.overwritten {
            Some(time) => format!("zeros over all of it {time}"),
            None => "freed; not overwritten yet".into(),
        };
        lines.push(("space", format!("segment {}: {overwritten}", segment.segment)));
    }
    if removal.segments.is_none() {
        lines.push(("space", "freed with the removal; the log does not name its segments".into()));
    }
    lines
}

/// The page for people.
fn document(made: &DisposalCertificate) -> Document {
    let mut document =
        Document::new("Certificate of disposal", format!("Store {}, signed {}", made.store, made.signed));
    let table = |name: &str, lines: &[(&'static str, String)]| {
        let mut table = Table::default().left("name", "").left("value", "");
        for (number, (title, value)) in lines.iter().enumerate() {
            table.row(format!("{name}-{number}"), vec![Entry::text(*title), Entry::text(value.clone())]);
        }
        table
    };
    document.section("The version");
    document.table(table(
        "name",
        &[("bucket", made.bucket.clone()), ("key", made.key.clone()), ("version", made.version.clone())],
    ));
    document.table(table("fact", &facts(made)));
    document.section("Holds, approvals and space");
    document.table(table("history", &history(&made.removal)));
    document.section("What was done");
    document.paragraph(
        "The content was stored encrypted under a key of its own. Stele wrote zeros over the entry of that key. Without \
         the key the content cannot be read. Its space was freed, and is written over with zeros when Stele reclaims \
         the segment around it.",
    );
    document.section("How to verify");
    document.paragraph(
        "This page proves nothing by itself. The certificate in JSON carries the records of the audit log, the proof that \
         they are under a signed head, and the signature:",
    );
    document.code(format!("stele receipt verify CERTIFICATE --key stele.pub\n\nsignature {}", made.signature));
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_pause_says_that_the_first_reason_stays() {
        let paused = |reason: &str| ExpirationStatus {
            paused_since: Some("2026-11-22T03:19:29Z".to_owned()),
            paused_by: Some("uid 0".to_owned()),
            reason: Some(reason.to_owned()),
            rate: None,
            frozen: None,
        };
        for (first, asked, said) in [
            ("the audit", "the audit", None),
            ("the audit", "", None),
            ("the audit", "the lawsuit", Some("paused before for 'the audit', and")),
            ("", "the lawsuit", Some("paused before, and")),
        ] {
            let kept = kept_reason(&paused(first), asked);
            assert_eq!(kept.is_some(), said.is_some(), "{first}, {asked}: {kept:?}");
            assert!(kept.unwrap_or_default().contains(said.unwrap_or_default()), "{first}, {asked}");
        }
    }
}
