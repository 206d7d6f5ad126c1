//! Runs `stele volume export` and `stele export`, and shows their results.

use std::path::PathBuf;
use std::str::FromStr;

use stele_block::iscsi::{Credentials, Terms};
use stele_block::{Access, Protocol};
use stele_ground::{Shown, counted};
use stele_server::api::export::{self as calls, ExportView};
use stele_server::config::Site;
use stele_server::connection::Connection;
use stele_server::failure::{Failure, Outcome, io_failure};
use stele_server::whole;

use crate::cli::export::{Export, ExportSet, VolumeExport};
use crate::commands::print_json;
use crate::output::{Align, Table};

pub async fn add(connection: &Connection, json: bool, add: VolumeExport) -> Outcome<()> {
    let terms = Terms {
        chap: credentials(add.chap_user, add.chap_secret)?,
        mutual: credentials(add.mutual_user, add.mutual_secret)?,
        removable: add.removable,
        native_blocks: add.native_blocks,
    };
    let protocol = if add.iscsi { Protocol::Iscsi } else { Protocol::Nbd };
    let view = connection
        .call(calls::AddExport {
            volume: add.volume,
            name: add.name,
            protocol,
            read_only: add.read_only,
            access: Access { networks: add.allow, tls: add.tls, certificates: add.client_certificate },
            iscsi: terms,
        })
        .await?;
    if json {
        return print_json(&view);
    }
    print!("{}", table(std::slice::from_ref(&view)));
    for warning in &view.warnings {
        println!("\nWarning: {}.", Shown(warning));
    }
    if !connection.is_server() {
        println!("\nNo server runs: `stele serve` will serve it.");
    }
    Ok(())
}

/// Reads a user with a secret from a file; a newline at its end does not count.
fn credentials(user: Option<String>, file: Option<PathBuf>) -> Outcome<Option<Credentials>> {
    let (Some(user), Some(file)) = (user, file) else { return Ok(None) };
    let text = whole::read_text(&file).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => {
            Failure::usage(format!("{} holds no text", file.display())).next("a CHAP secret is one line of text")
        }
        _ => io_failure("read", &file, &error),
    })?;
    let secret = text.strip_suffix('\n').unwrap_or(&text).to_owned();
    Ok(Some(Credentials { user, secret }))
}

pub async fn run(site: &Site, json: bool, command: Export) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let done = on(&connection, json, command).await;
    connection.leave().await?;
    done
}

async fn on(connection: &Connection, json: bool, command: Export) -> Outcome<()> {
    match command {
        Export::List => {
            let views = connection.call(calls::ListExports {}).await?;
            if json {
                return print_json(&views);
            }
            print!("{}", table(&views));
            views.iter().filter_map(reserved).for_each(|line| println!("\n{}.", Shown(&line)));
            views.iter().flat_map(|view| &view.warnings).for_each(|warning| println!("\nWarning: {}.", Shown(warning)));
            Ok(())
        }
        Export::Set(set) => {
            let view = connection.call(changes(set)?).await?;
            if json {
                return print_json(&view);
            }
            print!("{}", table(std::slice::from_ref(&view)));
            view.warnings.iter().for_each(|warning| println!("\nWarning: {}.", Shown(warning)));
            Ok(())
        }
        Export::Remove { name, protocol } => {
            connection.call(calls::RemoveExport { protocol: protocol.into(), name: name.clone() }).await?;
            if json {
                return print_json(&serde_json::json!({ "removed": name }));
            }
            println!("Export '{}' is gone.", Shown(&name));
            Ok(())
        }
    }
}

fn changes(set: ExportSet) -> Outcome<calls::SetExport> {
    Ok(calls::SetExport {
        protocol: set.protocol.into(),
        name: set.name,
        new_name: set.name_to,
        read_only: set.read_only,
        networks: list(&set.allow)?,
        tls: set.tls,
        certificates: list(&set.client_certificate)?,
        chap: credentials(set.chap_user, set.chap_secret)?,
        mutual: credentials(set.mutual_user, set.mutual_secret)?,
        no_chap: set.no_chap,
    })
}

/// A whole list: `any` gives an empty list, no words give `None`.
fn list<T: FromStr<Err: std::fmt::Display>>(words: &[String]) -> Outcome<Option<Vec<T>>> {
    match words {
        [] => Ok(None),
        [any] if any == "any" => Ok(Some(Vec::new())),
        words => {
            let read = |word: &String| {
                word.parse().map_err(|error: T::Err| match word.as_str() {
                    "any" => Failure::usage("`any` empties the list, and stands alone"),
                    _ => Failure::usage(error.to_string()),
                })
            };
            words.iter().map(read).collect::<Outcome<_>>().map(Some)
        }
    }
}

fn table(views: &[ExportView]) -> String {
    let mut table = Table::new(&[
        ("export", Align::Whole),
        ("protocol", Align::Left),
        ("volume", Align::Whole),
        ("access", Align::Left),
        ("connections", Align::Right),
        ("url", Align::Left),
    ]);
    for view in views {
        table.row(vec![
            view.export.name.clone(),
            view.export.protocol.to_string(),
            view.export.volume.clone(),
            access(view),
            if view.served { view.connections.to_string() } else { "not served".to_owned() },
            view.urls.iter().map(|url| with_host(url)).collect::<Vec<_>>().join("  "),
        ]);
    }
    table.render()
}

/// The reservation of a target, with its holder, and the registrations for one.
fn reserved(view: &ExportView) -> Option<String> {
    let imposed = view.initiators.as_ref()?;
    let name = &view.export.name;
    let registrations = counted(imposed.registrations as u64, "registration");
    match &imposed.reservation {
        Some(held) => {
            let holder = held.holder.as_deref().unwrap_or("every registered initiator");
            Some(format!("{name}: reserved by {holder} ({}), {registrations}", held.kind))
        }
        None => (imposed.registrations > 0).then(|| format!("{name}: not reserved, {registrations}")),
    }
}

/// A server that listens on all addresses leaves the host to the reader: its own address would be
/// the reader's machine.
fn with_host(url: &str) -> String {
    url.replacen("://0.0.0.0:", "://HOST:", 1).replacen("://[::]:", "://HOST:", 1)
}

fn access(view: &ExportView) -> String {
    let Access { networks, tls, certificates } = &view.export.access;
    let mut words = vec![if view.export.read_only { "read-only" } else { "read-write" }.to_owned()];
    words.extend(networks.iter().map(ToString::to_string));
    if *tls {
        words.push("TLS".to_owned());
    }
    if !certificates.is_empty() {
        words.push(counted(certificates.len() as u64, "certificate"));
    }
    if let Some(chap) = &view.export.iscsi.chap {
        words.push(format!("CHAP {}", chap.user));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_every_address_is_left_to_the_reader() {
        for (url, shown) in [
            ("iscsi://0.0.0.0:3260/iqn.2026-11.stele:vm1/0", "iscsi://HOST:3260/iqn.2026-11.stele:vm1/0"),
            ("nbds://[::]:10809/vm1", "nbds://HOST:10809/vm1"),
            ("nbd://10.0.0.1:10809/vm1", "nbd://10.0.0.1:10809/vm1"),
            ("nbd://[::1]:10809/vm1", "nbd://[::1]:10809/vm1"),
            ("nbd+unix:///vm1?socket=/srv/nbd.sock", "nbd+unix:///vm1?socket=/srv/nbd.sock"),
        ] {
            assert_eq!(with_host(url), shown);
        }
    }
}
