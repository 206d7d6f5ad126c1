//! What `stele volume export` and `stele export` do and show.

use stele_block::{Access, Protocol};

use crate::api::export::{self as calls, View};
use crate::cli::export::{Add, Export};
use crate::commands::print_json;
use crate::config::Site;
use crate::failure::Outcome;
use crate::output::{Align, Table};
use crate::seat::Seat;

pub async fn add(seat: &Seat, json: bool, add: Add) -> Outcome<()> {
    let view = seat
        .call(calls::Add {
            volume: add.volume,
            name: add.name,
            protocol: Protocol::Nbd,
            read_only: add.read_only,
            access: Access { networks: add.allow, tls: add.tls, certificates: add.client_certificate },
        })
        .await?;
    if json {
        return print_json(&view);
    }
    print!("{}", table(std::slice::from_ref(&view)));
    if !seat.is_server() {
        println!("\nNo server runs: `stele serve` will serve it.");
    }
    Ok(())
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
    words.join(", ")
}
