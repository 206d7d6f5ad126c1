//! What `stele volume export` and `stele export` do and show.

use std::path::PathBuf;

use stele_block::iscsi::{Credentials, Terms};
use stele_block::{Access, Protocol};

use crate::api::export::{self as calls, View};
use crate::cli::export::{Add, Export};
use crate::commands::print_json;
use crate::config::Site;
use crate::failure::{Outcome, io_failure};
use crate::output::{Align, Table};
use crate::seat::Seat;

pub async fn add(seat: &Seat, json: bool, add: Add) -> Outcome<()> {
    let terms = Terms {
        chap: credentials(add.chap_user, add.chap_secret)?,
        mutual: credentials(add.mutual_user, add.mutual_secret)?,
        removable: add.removable,
        native_blocks: add.native_blocks,
    };
    let protocol = if add.iscsi { Protocol::Iscsi } else { Protocol::Nbd };
    let view = seat
        .call(calls::Add {
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
    if view.urls.is_empty() {
        println!(
            "\nNo address is set for {protocol}: write `listen` under [{protocol}] in stele.toml and start the server again."
        );
    }
    if !seat.is_server() {
        println!("\nNo server runs: `stele serve` will serve it.");
    }
    Ok(())
}

/// A user with the secret in a file, of which the last newline does not count.
fn credentials(user: Option<String>, file: Option<PathBuf>) -> Outcome<Option<Credentials>> {
    let (Some(user), Some(file)) = (user, file) else { return Ok(None) };
    let text = std::fs::read_to_string(&file).map_err(|error| io_failure("read", &file, &error))?;
    let secret = text.strip_suffix('\n').unwrap_or(&text).to_owned();
    Ok(Some(Credentials { user, secret }))
}

pub async fn run(site: &Site, json: bool, command: Export) -> Outcome<()> {
    let seat = Seat::find(site).await?;
    let done = on(&seat, json, command).await;
    seat.leave().await?;
    done
}

async fn on(seat: &Seat, json: bool, command: Export) -> Outcome<()> {
    match command {
        Export::List => {
            let views = seat.call(calls::List {}).await?;
            if json {
                return print_json(&views);
            }
            print!("{}", table(&views));
            Ok(())
        }
        Export::Remove { name, protocol } => {
            seat.call(calls::Remove { protocol: protocol.into(), name: name.clone() }).await?;
            if json {
                return print_json(&serde_json::json!({ "removed": name }));
            }
            println!("Export '{name}' is gone.");
            Ok(())
        }
    }
}

fn table(views: &[View]) -> String {
    let mut table = Table::new(&[
        ("export", Align::Left),
        ("protocol", Align::Left),
        ("volume", Align::Left),
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
            view.urls.join("  "),
        ]);
    }
    table.render()
}

fn access(view: &View) -> String {
    let Access { networks, tls, certificates } = &view.export.access;
    let mut words = vec![if view.export.read_only { "read-only" } else { "read-write" }.to_owned()];
    words.extend(networks.iter().map(ToString::to_string));
    if *tls {
        words.push("TLS".to_owned());
    }
    if !certificates.is_empty() {
        words.push(format!("{} certificates", certificates.len()));
    }
    if let Some(chap) = &view.export.iscsi.chap {
        words.push(format!("CHAP {}", chap.user));
    }
    words.join(", ")
}
