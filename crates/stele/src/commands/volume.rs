//! What `stele volume` does and shows.

use stele_ground::Bytes;

use crate::api::volume as calls;
use crate::cli::volume::{Digest, Mode, Volume};
use crate::commands::{confirm, print_json};
use crate::config::Site;
use crate::failure::Outcome;
use crate::output::{Align, Table};
use crate::seat::Seat;

pub async fn run(site: &Site, json: bool, command: Volume) -> Outcome<()> {
    if let Volume::Delete { name, yes: false } = &command {
        confirm(&format!("Delete volume '{name}' and everything on it?"), "--yes")?;
    }
    let seat = Seat::find(site).await?;
    let done = on(&seat, json, command).await;
    seat.leave().await?;
    done
}

async fn on(seat: &Seat, json: bool, command: Volume) -> Outcome<()> {
    let views = match command {
        Volume::Create(create) => vec![
            seat.call(calls::Create {
                name: create.name,
                code: create.code.to_string(),
                size: create.size.0,
                strip: create.strip.0,
                block: create.block.0,
                digest_strip: matches!(create.digest, Digest::Strip),
                write_through: matches!(create.mode, Mode::WriteThrough),
                allocate: create.allocate,
            })
            .await?,
        ],
        Volume::List => {
            let views = seat.call(calls::List {}).await?;
            if json {
                return print_json(&views);
            }
            views
        }
        Volume::Show { name } => vec![seat.call(calls::Show { name }).await?],
        Volume::Delete { name, .. } => {
            seat.call(calls::Delete { name: name.clone() }).await?;
            if json {
                return print_json(&serde_json::json!({ "deleted": name }));
            }
            println!("Volume '{name}' deleted.");
            return Ok(());
        }
    };
    if json {
        return views.first().map_or(Ok(()), print_json);
    }
    let mut table = Table::new(&[
        ("volume", Align::Left),
        ("code", Align::Left),
        ("size", Align::Right),
        ("allocated", Align::Right),
        ("strip", Align::Right),
        ("digest", Align::Left),
        ("mode", Align::Left),
        ("owner", Align::Left),
        ("retained", Align::Left),
        ("lost", Align::Right),
    ]);
    for view in &views {
        table.row(vec![
            view.name.clone(),
            view.code.clone(),
            Bytes(view.size).to_string(),
            Bytes(view.allocated).to_string(),
            Bytes(view.strip).to_string(),
            view.digest.clone(),
            view.mode.clone(),
            view.owner.clone().unwrap_or_default(),
            if view.retained { "yes" } else { "no" }.to_owned(),
            Bytes(view.lost.iter().map(|(_, length)| length).sum()).to_string(),
        ]);
    }
    print!("{}", table.render());
    for view in &views {
        for (at, length) in view.lost.iter().take(20) {
            println!("{}: lost {} at offset {at}", view.name, Bytes(*length));
        }
    }
    Ok(())
}
