//! Runs `stele bucket`, `key`, `why` and `audit`, and shows their results.

pub(super) mod anchor;

use std::io::Write;
use std::path::Path;

use stele_archive::AuditRecord;
use stele_ground::{Bytes, Shown, counted};
use stele_server::api::acts::ClockAcceptRequest;
use stele_server::api::approval::ClockCredit;
use stele_server::api::archive as calls;
use stele_server::config::Site;
use stele_server::connection::{Connection, read_officer};
use stele_server::failure::{Failure, Outcome, io_failure};
use stele_server::files::Draft;
use stele_server::said::json_line;

use crate::cli::audit::Audit;
use crate::cli::bucket::Bucket;
use crate::cli::key::Key;
use crate::cli::master_key::MasterKeyCommand;
use crate::cli::show::Clock;
use crate::cli::words::{Access, word};
use crate::commands::approve::asked;
use crate::commands::names::object_named;
use crate::commands::{confirm, evidence, master_key, print_json};
use crate::output::{Align, GREEN, RED, Table, paint};

pub async fn bucket(site: &Site, json: bool, command: Bucket) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let views = match command {
        Bucket::Create(create) => {
            let call = calls::CreateBucket {
                name: create.name,
                lock: create.lock,
                versioning: create.versioning,
                retention: create.retention,
                quota: create.quota.map(|quota| quota.0),
                quota_versions: create.quota_versions,
                public_read: create.public_read,
                protection: create.protection.map(word),
                expiry: create.expiry.map(word),
            };
            connection.call(call).await.map(|view| vec![view])
        }
        Bucket::Set(set) => {
            let call = calls::SetBucket {
                name: set.name,
                versioning: set.versioning,
                lock: set.lock,
                retention: set.retention,
                protection: set.protection.map(word),
                expiry: set.expiry.map(word),
                quota: set.quota.map(|quota| quota.0.map(|bytes| bytes.0)),
                quota_versions: set.quota_versions.map(|quota| quota.0),
                public_read: set.public_read,
            };
            connection.call(call).await.map(|view| vec![view])
        }
        Bucket::List => match connection.call(calls::BucketList {}).await {
            Ok(views) if json => {
                print_json(&views)?;
                return connection.leave().await;
            }
            other => other,
        },
        Bucket::Inventory { name, id } => {
            let report = connection.call(calls::BucketInventory { bucket: name, id }).await;
            connection.leave().await?;
            let report = report?;
            if json {
                return print_json(&report);
            }
            println!(
                "{} in {}; the manifest is {}/{}",
                counted(report.objects, "object"),
                counted(report.files, "file"),
                Shown(&report.destination),
                Shown(&report.manifest)
            );
            return Ok(());
        }
        Bucket::Show { name } => connection.call(calls::BucketShow { name }).await.map(|view| vec![view]),
    };
    connection.leave().await?;
    let views = views?;
    if json {
        return views.first().map_or(Ok(()), print_json);
    }
    print!("{}", table_of(views).render());
    Ok(())
}

/// Room that unfinished uploads take has a column where there is some, and so have shares.
fn table_of(views: Vec<calls::BucketView>) -> Table {
    let unfinished = views.iter().any(|view| view.unfinished > 0);
    let shares = views.iter().any(|view| view.share);
    let mut columns = vec![("bucket", Align::Whole)];
    columns.extend(shares.then_some(("share", Align::Left)));
    columns.extend([
        ("versioning", Align::Left),
        ("lock", Align::Left),
        ("default retention", Align::Left),
        ("protection", Align::Left),
        ("expiry", Align::Left),
        ("versions", Align::Right),
        ("bytes", Align::Right),
    ]);
    columns.extend(unfinished.then_some(("unfinished", Align::Right)));
    columns.extend([("quota", Align::Right), ("public", Align::Left)]);
    let mut table = Table::new(&columns);
    for view in views {
        let mut row = vec![view.name];
        row.extend(shares.then(|| yes(view.share)));
        row.extend([
            view.versioning,
            yes(view.object_lock),
            view.default_retention.unwrap_or_else(|| "none".to_owned()),
            view.protection,
            view.expiry,
            view.versions.to_string(),
            Bytes(view.bytes).to_string(),
        ]);
        row.extend(unfinished.then(|| Bytes(view.unfinished).to_string()));
        row.push(quota_of(view.quota_bytes, view.quota_versions));
        row.push(yes(view.public));
        table.row(row);
    }
    table
}

fn quota_of(bytes: Option<u64>, versions: Option<u64>) -> String {
    let limits = [bytes.map(|bytes| Bytes(bytes).to_string()), versions.map(|count| counted(count, "version"))];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if limits.is_empty() { "none".to_owned() } else { limits.join(", ") }
}

fn yes(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

pub async fn key(site: &Site, json: bool, command: Key) -> Outcome<()> {
    match command {
        Key::Create(create) => {
            if create.role.is_empty() && create.access.is_empty() && !create.read_only && !create.officers_lost {
                return Err(Failure::usage("a key may do nothing unless it is said what")
                    .next("give --role, or --access with --bucket; `stele key create --help` lists both"));
            }
            let access = match create.access {
                _ if create.read_only => vec![Access::Read, Access::List],
                none if none.is_empty() => create.role.iter().flat_map(|role| role.usual_access()).collect(),
                said => said,
            };
            let officers_lost = create.officers_lost;
            let call = calls::CreateKey {
                name: create.name,
                roles: create.role.into_iter().map(word).collect(),
                buckets: create.bucket,
                prefix: create.prefix,
                access: access.into_iter().map(word).collect(),
                bypass_governance: create.bypass_governance,
                every_role: false,
                officers_lost: create.officers_lost,
                expires: create.expires,
                quota: create.quota.map(|quota| quota.0),
                quota_versions: create.quota_versions,
            };
            let new = ask(site, call).await?;
            if json {
                return print_json(&new);
            }
            println!(
                "access key  {}\nsecret key  {}\n\nThe secret is not shown again.",
                new.access_key, new.secret_key
            );
            match new.awaits {
                Some(request) if officers_lost => println!(
                    "The key is void for 30 days, in which any officer may refuse it; then: stele approve {request}"
                ),
                Some(request) => println!(
                    "The key is void until a retention officer approves it: stele approve {request} --officer FILE"
                ),
                None => {}
            }
            Ok(())
        }
        Key::List => {
            let keys = ask(site, calls::KeyList {}).await?;
            if json {
                return print_json(&keys);
            }
            print!("{}", keys_table(keys));
            Ok(())
        }
        Key::Narrow(narrow) => {
            let some = |words: Vec<String>| Some(words).filter(|words| !words.is_empty());
            let call = calls::KeyNarrow {
                id: narrow.id,
                roles: some(narrow.role.into_iter().map(word).collect()),
                buckets: some(narrow.bucket),
                prefix: narrow.prefix,
                access: some(narrow.access.into_iter().map(word).collect()),
                no_bypass: narrow.no_bypass,
            };
            let key = ask(site, call).await?;
            if json {
                return print_json(&key);
            }
            print!("{}", keys_table(vec![key]));
            Ok(())
        }
        Key::Set(set) => {
            let call = calls::SetKey {
                id: set.id,
                expires: set.expires,
                quota: set.quota.map(|quota| quota.0.map(|bytes| bytes.0)),
                quota_versions: set.quota_versions.map(|quota| quota.0),
            };
            let key = ask(site, call).await?;
            if json {
                return print_json(&key);
            }
            print!("{}", keys_table(vec![key]));
            Ok(())
        }
        Key::Revoke { id } => {
            let done = ask(site, calls::KeyRevoke { id: id.clone() }).await?;
            if json {
                return print_json(&done);
            }
            println!("Key {} revoked.", Shown(&id));
            Ok(())
        }
        Key::Escrow(asked) => master_key::run(site, json, MasterKeyCommand::Export(asked)).await,
        Key::RequestEscrow(asked) => master_key::run(site, json, MasterKeyCommand::Request(asked)).await,
        Key::Check(asked) => master_key::run(site, json, MasterKeyCommand::Verify(asked)).await,
    }
}

fn keys_table(keys: Vec<calls::KeyView>) -> String {
    let mut table = Table::new(&[
        ("access key", Align::Whole),
        ("name", Align::Left),
        ("roles", Align::Left),
        ("may", Align::Left),
        ("owns", Align::Left),
        ("quota", Align::Right),
        ("created", Align::Whole),
        ("expires", Align::Whole),
        ("revoked", Align::Whole),
    ]);
    for key in keys {
        let bypass = key.bypass_governance.then(|| "bypass GOVERNANCE".to_owned());
        table.row(vec![
            key.id,
            key.name,
            key.roles.join(", "),
            key.grants.iter().map(ToString::to_string).chain(bypass).collect::<Vec<_>>().join("; "),
            format!("{}, {}", counted(key.owned_versions, "version"), Bytes(key.owned_bytes)),
            quota_of(key.quota_bytes, key.quota_versions),
            key.created,
            match (key.expires, key.expired) {
                (None, _) => "never".to_owned(),
                (Some(at), false) => at,
                (Some(at), true) => format!("{at} (expired)"),
            },
            match (key.revoked, key.pending) {
                (Some(at), _) => at,
                (None, true) => "waits for approval".to_owned(),
                (None, false) => "no".to_owned(),
            },
        ]);
    }
    table.render()
}

pub async fn ask<C: stele_server::api::Call>(site: &Site, call: C) -> Outcome<C::Answer> {
    let connection = Connection::find(site).await?;
    let answer = connection.call(call).await;
    connection.leave().await?;
    answer
}

pub async fn why(site: &Site, json: bool, object: &str) -> Outcome<()> {
    let (bucket, key, version) = object_named(object)?;
    let why = ask(site, calls::Why { bucket, key, version }).await?;
    show_why(json, &why)
}

/// The end of a protection that has no date.
fn stays_until(why: &stele_archive::Why) -> &'static str {
    match why.legal_hold || !why.matters.is_empty() {
        true => "it stays until the hold is released",
        // Such as an event that was not told.
        false => "the reasons above say what ends the protection",
    }
}

/// For a version, or for a file of a share.
pub(super) fn show_why(json: bool, why: &stele_archive::Why) -> Outcome<()> {
    if json {
        return print_json(why);
    }
    println!("{}/{}@{}", why.bucket, why.key, why.version);
    println!(
        "  {}",
        match (why.delete_marker, why.protected) {
            (_, true) => paint("cannot be deleted now", RED),
            (true, false) => paint("is a delete marker; the versions that it hides are still here", GREEN),
            (false, false) => paint("can be deleted now", GREEN),
        }
    );
    for reason in &why.reasons {
        println!("  - {reason}");
    }
    match &why.deletable_from {
        Some(moment) if why.protected => println!("  earliest deletion: {moment}"),
        None if why.protected => println!("  no date: {}", stays_until(why)),
        _ => {}
    }
    println!("  compliance clock:  {}", why.compliance_time);
    Ok(())
}

pub async fn clock(site: &Site, json: bool, command: Clock) -> Outcome<()> {
    let status = match command {
        Clock::Show => ask(site, calls::ClockShow {}).await?,
        Clock::Accept { officer: Some(officer), .. } => {
            let officer = read_officer(&officer)?;
            return asked(json, &ask(site, ClockAcceptRequest { officer }).await?);
        }
        Clock::Accept { yes, officer: None } => {
            let accepted = accept_clock(site, yes).await?;
            if json {
                return print_json(&accepted);
            }
            println!("{}", accepted_line(accepted.accepted.as_deref()));
            accepted.clock
        }
        Clock::Credit { officer } => {
            let officer = read_officer(&officer)?;
            return asked(json, &ask(site, ClockCredit { officer }).await?);
        }
    };
    if json {
        return print_json(&status);
    }
    println!("compliance clock  {}\nmachine's clock   {}", status.compliance_time, status.wall_time);
    match status.frozen {
        Some(reason) => println!("expiry            {}: {reason}", paint("frozen", RED)),
        None => println!("expiry            running"),
    }
    Ok(())
}

/// Accepts the alarm that stands now, after it was shown. One that comes meanwhile stays.
async fn accept_clock(site: &Site, yes: bool) -> Outcome<calls::ClockAccepted> {
    let connection = Connection::find(site).await?;
    let done = async {
        let alarm = connection.exact(calls::ClockShow {}).await?.frozen;
        if !yes {
            let question = "Is this machine's clock right, so that what has expired may be deleted again?";
            confirm(&format!("{} {question}", standing_line(alarm.as_deref())), "--yes")?;
        }
        connection.call(calls::ClockAccept { alarm }).await
    };
    let done = done.await;
    connection.leave().await?;
    done
}

fn standing_line(alarm: Option<&str>) -> String {
    alarm.map_or_else(|| "No alarm of the clock stands.".to_owned(), |alarm| format!("The clock's alarm: {alarm}."))
}

fn accepted_line(alarm: Option<&str>) -> String {
    match alarm {
        Some(alarm) => format!("accepted          {alarm}"),
        None => "accepted          nothing: no alarm of the clock stood".to_owned(),
    }
}

pub async fn audit(site: &Site, json: bool, command: Audit) -> Outcome<()> {
    match command {
        Audit::Show { from, limit } => show(site, json, from, limit).await,
        Audit::Verify(given) => anchor::verify(site, json, given).await,
        Audit::Key { to } => evidence::key(site, json, &to).await,
        Audit::Prove { from, until, to } => evidence::prove(site, &from, until.as_deref(), &to).await,
        Audit::Export { to } => export(site, &to).await,
    }
}

async fn show(site: &Site, json: bool, from: Option<u64>, limit: u64) -> Outcome<()> {
    let records = ask(site, calls::AuditShow { from, limit }).await?;
    if json {
        return records.iter().try_for_each(print_json);
    }
    let mut table = Table::new(&[
        ("number", Align::Right),
        ("time", Align::Whole),
        ("actor", Align::Left),
        ("action", Align::Left),
        ("what", Align::Left),
        ("outcome", Align::Left),
    ]);
    for record in records {
        let place = place(&record);
        table.row(vec![
            record.number.to_string(),
            record.time,
            record.actor,
            record.action,
            place,
            record.refused.map_or_else(|| "done".to_owned(), |reason| format!("{}: {reason}", paint("refused", RED))),
        ]);
    }
    print!("{}", table.render());
    Ok(())
}

fn place(record: &AuditRecord) -> String {
    let mut text = record.bucket.clone().unwrap_or_default();
    if let Some(key) = &record.key {
        text.push('/');
        text.push_str(key);
    }
    if let Some(version) = &record.version {
        text.push('@');
        text.push_str(version);
    }
    if let Some(detail) = &record.detail {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(detail);
    }
    text
}

async fn export(site: &Site, to: &str) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let exported = export_from(&connection, to).await;
    connection.leave().await?;
    exported
}

async fn export_from(connection: &Connection, to: &str) -> Outcome<()> {
    let path = Path::new(to);
    if to == "-" {
        return write_log(connection, path, &mut std::io::stdout()).await;
    }
    // It gets its name when it is whole: a file of that name is the whole log.
    let mut out = std::io::BufWriter::new(Draft::new(path)?);
    write_log(connection, path, &mut out).await?;
    out.into_inner().map_err(|error| io_failure("write", path, error.error()))?.keep()
}

async fn write_log(connection: &Connection, path: &Path, out: &mut (dyn Write + Send)) -> Outcome<()> {
    let mut line = |value: serde_json::Result<String>| {
        let text = value.map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
        writeln!(out, "{text}").map_err(|error| io_failure("write", path, &error))
    };
    // Fetch the head first, so that the export contains every record that the head covers.
    let head = connection.exact(calls::AuditHead {}).await?;
    let mut from = 1;
    loop {
        let records = connection.exact(calls::AuditShow { from: Some(from), limit: calls::AUDIT_PAGE }).await?;
        for record in records.iter().filter(|record| record.number <= head.records) {
            line(json_line(record))?;
        }
        match records.last() {
            Some(last) if last.number < head.records => from = last.number + 1,
            _ => break,
        }
    }
    line(json_line(&head))?;
    out.flush().map_err(|error| io_failure("write", path, &error))
}
