//! Runs `stele volume`, and shows its results.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use stele_block::ConnectionView;
use stele_ground::calendar::moment;
use stele_ground::{Bytes, Shown, counted};
use stele_server::api::export::ListExports;
use stele_server::api::volume::{self as calls, DetailView, VolumeView};
use stele_server::config::Site;
use stele_server::connection::Connection;
use stele_server::exports::still_exported;
use stele_server::failure::{Failure, Kind, Outcome};
use stele_server::node::volumes::not_deleted;

use crate::cli::volume::{Digest, Mode, Volume};
use crate::commands::{confirm, print_json};
use crate::output::{Align, Table};

/// Number of unreadable ranges shown for one volume without `--all`.
const RANGES_SHOWN: usize = 20;

pub async fn run(site: &Site, json: bool, command: Volume) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let done = match ask(&connection, &command).await {
        Ok(()) => on(&connection, json, command).await,
        Err(failure) => Err(failure),
    };
    connection.leave().await?;
    done
}

/// Asks before what cannot be undone. It looks first, and asks nothing of a name that no volume
/// has, of a volume that no command deletes or that is exported, or of a rollback to what is no
/// snapshot.
async fn ask(connection: &Connection, command: &Volume) -> Outcome<()> {
    match command {
        Volume::Delete { name, yes: false } => {
            let detail = connection.call(calls::ShowVolume { name: name.clone() }).await?;
            if let Some(owner) = detail.volume.owner {
                return Err(Failure::new(Kind::Refused, not_deleted(name, &owner)));
            }
            let exports: Vec<_> = connection.call(ListExports {}).await?.into_iter().map(|view| view.export).collect();
            if let Some(message) = still_exported(name, &exports) {
                return Err(Failure::new(Kind::Refused, message));
            }
            confirm(&format!("Delete volume '{name}' and everything on it?"), "--yes")
        }
        Volume::Rollback { volume, snapshot, yes: false, .. } => {
            connection.call(calls::ShowVolume { name: volume.clone() }).await?;
            let volumes = connection.call(calls::ListVolumes {}).await?;
            if let Some(failure) = calls::no_way_back(&volumes, volume, snapshot) {
                return Err(failure);
            }
            confirm(&format!("Bring volume '{volume}' back to '{snapshot}', and lose all later writes?"), "--yes")
        }
        _ => Ok(()),
    }
}

async fn on(connection: &Connection, json: bool, command: Volume) -> Outcome<()> {
    let views = match command {
        Volume::Create(create) => vec![
            connection
                .call(calls::CreateVolume {
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
        Volume::List { all } => {
            let views = connection.call(calls::ListVolumes {}).await?;
            if json {
                return print_json(&views);
            }
            print!("{}", table(&views));
            views.iter().for_each(|view| print!("{}", unreadable(view, if all { usize::MAX } else { RANGES_SHOWN })));
            return Ok(());
        }
        Volume::Show { name, watch } => return show_volume(connection, json, name, watch).await,
        Volume::Set(set) => {
            vec![connection.call(calls::SetVolume { name: set.name, read_ahead: set.read_ahead }).await?]
        }
        Volume::Resize { name, size } => vec![connection.call(calls::Resize { name, size: size.0 }).await?],
        Volume::Snapshot { volume, name } => vec![connection.call(calls::Snapshot { volume, name }).await?],
        Volume::Clone { snapshot, name } => vec![connection.call(calls::CloneSnapshot { snapshot, name }).await?],
        Volume::Rollback { volume, snapshot, force, .. } => {
            vec![connection.call(calls::Rollback { volume, snapshot, force }).await?]
        }
        Volume::Export(add) => return crate::commands::export::add(connection, json, add).await,
        Volume::Delete { name, .. } => {
            connection.call(calls::Delete { name: name.clone() }).await?;
            if json {
                return print_json(&serde_json::json!({ "deleted": name }));
            }
            println!("Volume '{}' deleted.", Shown(&name));
            return Ok(());
        }
    };
    if json {
        return views.first().map_or(Ok(()), print_json);
    }
    print!("{}", table(&views));
    views.iter().for_each(|view| print!("{}", unreadable(view, RANGES_SHOWN)));
    Ok(())
}

async fn show_volume(connection: &Connection, json: bool, name: String, watch: bool) -> Outcome<()> {
    let mut before: Option<(Instant, Vec<ConnectionView>)> = None;
    loop {
        let detail = connection.call(calls::ShowVolume { name: name.clone() }).await?;
        let now = Instant::now();
        if json {
            print_json(&detail)?;
        } else {
            if watch && std::io::stdout().is_terminal() {
                // Clear the screen and move to its corner.
                print!("\x1b[2J\x1b[H");
            }
            print!("{}", table(std::slice::from_ref(&detail.volume)));
            print!("\n{}", show(&detail));
            print!("{}", connections(&detail.connections, before.as_ref().map(|(at, views)| (now - *at, &views[..]))));
            print!("{}", unreadable(&detail.volume, RANGES_SHOWN));
        }
        if !watch {
            return Ok(());
        }
        before = Some((now, detail.connections));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Totals of each connection, and its rates since the previous sample.
fn connections(views: &[ConnectionView], before: Option<(Duration, &[ConnectionView])>) -> String {
    if views.is_empty() {
        return "\nNo connections.\n".to_owned();
    }
    let mut table = Table::new(&[
        ("connection", Align::Left),
        ("export", Align::Left),
        ("reads", Align::Right),
        ("read", Align::Right),
        ("writes", Align::Right),
        ("written", Align::Right),
        ("queue", Align::Right),
        ("errors", Align::Right),
    ]);
    let mut rates = Table::new(&[
        ("connection", Align::Left),
        ("reads/s", Align::Right),
        ("read/s", Align::Right),
        ("writes/s", Align::Right),
        ("written/s", Align::Right),
    ]);
    for view in views {
        let earlier = before.and_then(|(span, views)| {
            views.iter().find(|earlier| earlier.id == view.id).map(|earlier| (span.as_secs_f64().max(0.001), earlier))
        });
        let rate = |count: fn(&ConnectionView) -> u64| {
            earlier.map(|(span, earlier)| (count(view).saturating_sub(count(earlier)) as f64 / span) as u64)
        };
        let plain = |rate: Option<u64>| rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string());
        let bytes = |rate: Option<u64>| rate.map_or_else(|| "-".to_owned(), |rate| Bytes(rate).to_string());
        let tls = if view.tls { ", TLS" } else { "" };
        let connection = format!("{} {}{tls}", view.protocol, view.peer);
        table.row(vec![
            connection.clone(),
            view.export.clone(),
            view.reads.to_string(),
            Bytes(view.read_bytes).to_string(),
            view.writes.to_string(),
            Bytes(view.written_bytes).to_string(),
            view.queue.to_string(),
            view.errors.to_string(),
        ]);
        rates.row(vec![
            connection,
            plain(rate(|view| view.reads)),
            bytes(rate(|view| view.read_bytes)),
            plain(rate(|view| view.writes)),
            bytes(rate(|view| view.written_bytes)),
        ]);
    }
    match before {
        Some(_) => format!("\n{}\n{}", table.render(), rates.render()),
        None => format!("\n{}", table.render()),
    }
}

fn table(views: &[VolumeView]) -> String {
    let mut table = Table::new(&[
        ("volume", Align::Left),
        ("kind", Align::Left),
        ("code", Align::Left),
        ("size", Align::Right),
        ("used", Align::Right),
        ("mode", Align::Left),
        ("owner", Align::Left),
        ("unreadable", Align::Right),
    ]);
    for view in views {
        table.row(vec![
            view.name.clone(),
            kind(view),
            view.code.clone(),
            Bytes(view.size).to_string(),
            Bytes(view.allocated).to_string(),
            view.mode.clone(),
            view.owner.clone().unwrap_or_default(),
            match view.unreadable.iter().map(|(_, length)| length).sum() {
                0 => "-".to_owned(),
                bytes => Bytes(bytes).to_string(),
            },
        ]);
    }
    table.render()
}

/// `volume`, `snapshot of vm1` or `clone of monday`.
fn kind(view: &VolumeView) -> String {
    match &view.origin {
        None => view.kind.clone(),
        Some(origin) if view.kind == "volume" => format!("clone of {origin}"),
        Some(origin) => format!("{} of {origin}", view.kind),
    }
}

/// The first unreadable ranges, and the number of further ones.
fn unreadable(view: &VolumeView, most: usize) -> String {
    let mut text = String::new();
    for (at, length) in view.unreadable.iter().take(most) {
        let is_lost = view.lost.iter().any(|(from, long)| from <= at && at + length <= from + long);
        let what = if is_lost { "lost" } else { "cannot be read" };
        text.push_str(&format!("{}: {} at offset {at}: {what}\n", view.name, Bytes(*length)));
    }
    let rest = view.unreadable.get(most..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes = Bytes(rest.iter().map(|(_, length)| length).sum());
        let count = rest.len();
        text.push_str(&format!("{}: and {count} more ranges, {bytes}: stele volume list --all\n", view.name));
    }
    text
}

/// Details that the listing has no space for.
fn show(detail: &DetailView) -> String {
    let cache = &detail.cache;
    let reads = detail.cache_hits + detail.cache_misses;
    let ratio = (detail.cache_hits * 100).checked_div(reads).map_or("no reads yet".into(), |part| format!("{part} %"));
    let part = |percent: u8| format!("{percent} % ({})", Bytes(cache.dirty_limit / 100 * u64::from(percent)));
    let volume = &detail.volume;
    let retained = if volume.retained { ", retained" } else { "" };
    let mut lines = vec![
        ("kind", format!("{}{retained}", volume.kind)),
        ("strip", format!("{}, a digest for each {}", Bytes(volume.strip), volume.digest)),
        ("refers to", Bytes(detail.refers).to_string()),
        ("alone in it", Bytes(detail.alone).to_string()),
    ];
    if let Some(made) = detail.volume.made {
        lines.push(("taken", moment(made)));
    }
    lines.extend([
        ("read-ahead", counted(detail.volume.read_ahead.into(), "stripe")),
        (
            "read ahead",
            format!(
                "{}, of which {} used and {} wasted",
                Bytes(detail.ahead_fetched),
                Bytes(detail.ahead_useful),
                Bytes(detail.ahead_wasted)
            ),
        ),
        ("cache hits", format!("{ratio} ({} of {reads} reads)", detail.cache_hits)),
        ("dirty", Bytes(detail.dirty).to_string()),
        ("pool cache", format!("{} of {}", Bytes(cache.clean), Bytes(cache.size))),
        ("pool dirty", format!("{} of {}", Bytes(cache.dirty), Bytes(cache.dirty_limit))),
        ("flush starts", part(cache.flush_high)),
        ("flush stops", part(cache.flush_low)),
        ("flush age", format!("{} s", cache.flush_age)),
        ("flushing", if cache.flushing { "yes" } else { "no" }.to_owned()),
    ]);
    lines.into_iter().map(|(name, value)| format!("{name:<13} {value}\n")).collect()
}
