//! `stele class` and `stele event`: management classes, and the events from which retention counts.

use stele_archive::{ClassInfo, Initiation, Told};
use stele_ground::counted;
use stele_server::api::classes as calls;
use stele_server::api::matters::Selected;
use stele_server::config::Site;
use stele_server::connection::{Connection, read_officer};
use stele_server::failure::{Failure, Outcome};

use crate::cli::class::{self as cli, Class};
use crate::cli::words::word;
use crate::commands::approve::asked;
use crate::commands::archive::ask;
use crate::commands::names::object_named;
use crate::commands::print_json;
use crate::output::{Align, Table};

pub async fn class(site: &Site, json: bool, command: Class) -> Outcome<()> {
    match command {
        Class::Create(new) => create(site, json, new).await,
        Class::List => show(json, &ask(site, calls::ClassList { name: None }).await?),
        Class::Show { name } => show(json, &ask(site, calls::ClassList { name: Some(name) }).await?),
        Class::Activate { name, version, dry_run, officer } => {
            let officer = officer.officer.as_deref().map(read_officer).transpose()?;
            activated(json, &ask(site, calls::ClassActivate { name, version, dry_run, officer }).await?)
        }
        Class::Bind { bucket, default, rule } => bind(site, json, bucket, default, &rule).await,
        Class::Expiring(period) => expiring(site, json, period).await,
    }
}

async fn create(site: &Site, json: bool, new: cli::ClassCreate) -> Outcome<()> {
    let retver = match new.retver.as_str() {
        "none" => None,
        days => Some(days.parse().map_err(|_| {
            Failure::usage(format!("'{days}' is no number of days")).next("write days, or none for no limit")
        })?),
    };
    let initiation = match new.initiation {
        cli::Initiation::Creation => Initiation::Creation,
        cli::Initiation::Event => Initiation::Event,
    };
    let officer = new.officer.officer.as_deref().map(read_officer).transpose()?;
    let call = calls::CreateClass {
        name: new.name,
        initiation,
        retver,
        retmin: new.retmin,
        action: word(new.action),
        mode: new.mode,
        description: new.description,
        officer,
    };
    show(json, &ask(site, call).await?)
}

fn show(json: bool, classes: &[ClassInfo]) -> Outcome<()> {
    if json {
        return print_json(&classes);
    }
    let mut table = Table::new(&[
        ("class", Align::Whole),
        ("version", Align::Right),
        ("active", Align::Left),
        ("from", Align::Whole),
        ("retver", Align::Right),
        ("retmin", Align::Right),
        ("then", Align::Left),
        ("mode", Align::Left),
        ("description", Align::Left),
    ]);
    for class in classes {
        table.row(vec![
            class.name.clone(),
            class.version.to_string(),
            if class.active { "yes" } else { "" }.into(),
            format!("{:?}", class.initiation).to_lowercase(),
            class.retver_days.map_or("no limit".into(), |days| days.to_string()),
            class.retmin_days.to_string(),
            class.action.clone(),
            class.mode.clone(),
            class.description.clone(),
        ]);
    }
    print!("{}", table.render());
    Ok(())
}

fn activated(json: bool, view: &calls::ActivationView) -> Outcome<()> {
    if json {
        return print_json(view);
    }
    let mut table =
        Table::new(&[("rule", Align::Left), ("before", Align::Left), ("after", Align::Left), ("", Align::Left)]);
    for line in &view.rules {
        let before = line.before.clone().unwrap_or_else(|| "-".into());
        let verdict = if line.weaker { "weaker" } else { "" };
        table.row(vec![line.rule.clone(), before, line.after.clone(), verdict.into()]);
    }
    print!("{}", table.render());
    match (view.activated, view.rules.iter().any(|line| line.weaker)) {
        (true, _) => println!("Version {} of the class {} is active.", view.version, view.name),
        (false, true) => println!("Version {} cannot be activated: it is weaker. Nothing was changed.", view.version),
        (false, false) => println!("Version {} can be activated. Nothing was changed.", view.version),
    }
    Ok(())
}

async fn bind(site: &Site, json: bool, bucket: String, default: Option<String>, rules: &[String]) -> Outcome<()> {
    let size = |text: &str| stele_server::config::size(text).map(|bytes| bytes.0);
    let rules = rules.iter().map(|rule| calls::parse_rule(rule, size)).collect::<Outcome<Vec<_>>>()?;
    let change = match (default.as_deref(), rules.is_empty()) {
        (None, true) => None,
        (None, false) => {
            return Err(Failure::usage("rules replace the former classes of the bucket, the default too")
                .next("add --default CLASS, or --default none"));
        }
        (Some("none"), _) => Some(calls::Bound { default: None, rules }),
        (Some(_), _) => Some(calls::Bound { default, rules }),
    };
    let view = ask(site, calls::ClassBind { bucket, change }).await?;
    if json {
        return print_json(&view);
    }
    println!("{}: default class {}", view.bucket, view.default.as_deref().unwrap_or("none"));
    for rule in &view.rules {
        println!("  {rule}");
    }
    Ok(())
}

async fn expiring(site: &Site, json: bool, period: cli::ExpiringIn) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let cli::ExpiringIn { before, from, bucket, prefix } = period;
    let mut call = calls::ClassExpiring { before, from, bucket, prefix: prefix.unwrap_or_default(), after: None };
    loop {
        let page = connection.call(call.clone()).await?;
        for version in &page.versions {
            if json {
                print_json(version)?;
                continue;
            }
            let held = match version.matters.is_empty() {
                true => String::new(),
                false => format!(", held by {}", version.matters.join(", ")),
            };
            println!(
                "{}  {}/{}@{}  {}{held}",
                version.until,
                version.bucket,
                version.key,
                version.version,
                with_action(&version.rule, &version.action)
            );
        }
        call.after = page.next;
        if call.after.is_none() {
            return connection.leave().await;
        }
    }
}

/// A rule, and what happens when the retention has passed. The terms of a class say it already.
fn with_action(rule: &str, action: &str) -> String {
    let then = format!(", then {action}");
    if rule.ends_with(&then) { rule.to_owned() } else { format!("{rule}{then}") }
}

pub async fn event(site: &Site, json: bool, event: cli::Event) -> Outcome<()> {
    let officer = event.officer.as_deref().map(read_officer).transpose()?;
    let at = event.at.unwrap_or_default();
    if let Some(object) = &event.object {
        let (bucket, key, version) = object_named(object)?;
        return match (event.revoke, officer) {
            (true, Some(officer)) => {
                asked(json, &ask(site, calls::EventRevoke { bucket, key, version, officer }).await?)
            }
            (_, officer) => {
                let view = ask(site, calls::EventTell { bucket, key, version, at, officer }).await?;
                if json {
                    return print_json(&view);
                }
                println!("{object} is kept until {}.", view.until);
                Ok(())
            }
        };
    }
    let selection = Selected {
        bucket: event.bucket.unwrap_or_default(),
        prefix: event.prefix,
        tags: event.tag.into_iter().collect(),
        ..Selected::default()
    };
    let connection = Connection::find(site).await?;
    let mut all = Told::default();
    loop {
        let after = all.next.take();
        let call = calls::EventSelect {
            selection: selection.clone(),
            at: at.clone(),
            dry_run: event.dry_run,
            after,
            officer: officer.clone(),
        };
        let page = connection.call(call).await?;
        all.seen += page.seen;
        all.told += page.told;
        all.before += page.before;
        all.failed += page.failed;
        all.failure = all.failure.or(page.failure);
        all.next = page.next;
        if all.next.is_none() {
            break;
        }
    }
    connection.leave().await?;
    if json {
        print_json(&all)?;
    } else {
        let told = if event.dry_run { "would get the event" } else { "got the event" };
        let versions = counted(all.told, "version");
        println!("{versions} {told}; {} had one before. Looked at: {}.", all.before, counted(all.seen, "version"));
    }
    match (all.failed, all.failure) {
        (0, _) => Ok(()),
        (failed, failure) => {
            let failed = counted(failed, "version");
            Err(Failure::failed(format!("{failed} failed: {}", failure.unwrap_or_default()))
                .next("mend the cause and give the command again; an event that was told stays"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_action_at_the_end_is_said_once() {
        for (rule, action, said) in [
            ("COMPLIANCE retention of the version", "keep", "COMPLIANCE retention of the version, then keep"),
            ("class `a`, version 1: 3 days, then delete", "delete", "class `a`, version 1: 3 days, then delete"),
            (
                "class `a`, version 1: 3 days, then delete",
                "keep",
                "class `a`, version 1: 3 days, then delete, then keep",
            ),
        ] {
            assert_eq!(with_action(rule, action), said);
        }
    }
}
