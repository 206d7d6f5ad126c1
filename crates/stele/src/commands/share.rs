//! What `stele share` does and shows.

use std::path::{Path, PathBuf};

use stele_ground::{Bytes, Shown, counted};
use stele_server::api::share::{self as calls, FileView, ShareOptions, ShareView};
use stele_server::config::Site;
use stele_server::connection::Connection;
use stele_server::failure::{Failure, Outcome};

use crate::cli::share::{self as cli, Caching, RemovedVersions, Share, Squash};
use crate::commands::{confirm, print_json};
use crate::output::{Align, Table};

pub async fn run(site: &Site, json: bool, command: Share) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let done = match ask(&connection, &command).await {
        Ok(()) => on(&connection, json, command).await,
        Err(failure) => Err(failure),
    };
    connection.leave().await?;
    done
}

/// Asks before what cannot be undone. It looks first, and asks nothing of a name that no share has.
async fn ask(connection: &Connection, command: &Share) -> Outcome<()> {
    let is_there = async |name: &String| connection.call(calls::ShowShare { name: name.clone() }).await.map(drop);
    match command {
        Share::Remove { name, yes: false } => {
            is_there(name).await?;
            confirm(&format!("Remove share '{name}', its bucket and its cache volume?"), "--yes")
        }
        Share::Set(set) if set.offer.removed_versions == Some(RemovedVersions::Delete) && !set.yes => {
            is_there(&set.name).await?;
            let files = format!("files that were or will be removed from share '{}'", set.name);
            confirm(&format!("Delete all versions of {files}, as soon as nothing keeps them?"), "--yes")
        }
        _ => Ok(()),
    }
}

async fn on(connection: &Connection, json: bool, command: Share) -> Outcome<()> {
    match command {
        Share::Create(create) => {
            let options = offer(create.offer, create.read_only.then_some(true));
            let call = calls::CreateShare {
                name: create.name,
                cache: create.cache.0,
                cache_code: create.cache_code.to_string(),
                lock: create.lock,
                retention: create.retention,
                options,
                owner: create.owner,
                mode: create.mode,
            };
            show_one(json, &connection.call(call).await?)
        }
        Share::List => {
            let views = connection.call(calls::ListShares {}).await?;
            match json {
                true => print_json(&views),
                false => {
                    print!("{}", table(&views));
                    Ok(())
                }
            }
        }
        Share::Status { name: Some(name) } => show_one(json, &connection.call(calls::ShowShare { name }).await?),
        Share::Status { name: None } => {
            let views = connection.call(calls::ListShares {}).await?;
            match json {
                true => print_json(&views),
                false => {
                    print!("{}", states(&views));
                    Ok(())
                }
            }
        }
        Share::Show { name } => {
            let view = connection.call(calls::ShowShare { name }).await?;
            match json {
                true => print_json(&view),
                false => {
                    print!("{}", whole_view(&view));
                    Ok(())
                }
            }
        }
        Share::Set(set) => {
            let read_only = (set.read_only || set.read_write).then_some(set.read_only);
            let call = calls::SetShare { name: set.name, options: offer(set.offer, read_only) };
            show_one(json, &connection.call(call).await?)
        }
        Share::Remove { name, .. } => {
            connection.call(calls::RemoveShare { name: name.clone() }).await?;
            if json {
                return print_json(&serde_json::json!({ "removed": name }));
            }
            println!("Share '{}' removed.", Shown(&name));
            Ok(())
        }
        Share::Ls { path } => {
            let (name, path) = parts(&path);
            show_files(json, &connection.call(calls::Ls { name, path }).await?)
        }
        Share::Mount { name, directory, read_only } => {
            let directory = whole(&directory)?;
            connection.call(calls::Mount { name: name.clone(), directory: directory.clone(), read_only }).await?;
            if json {
                return print_json(&serde_json::json!({ "mounted": name, "directory": directory }));
            }
            println!("Share '{}' mounted at {}.", Shown(&name), Shown(&directory.display().to_string()));
            Ok(())
        }
        Share::Unmount { directory } => {
            let directory = whole(&directory)?;
            connection.call(calls::Unmount { directory: directory.clone() }).await?;
            if json {
                return print_json(&serde_json::json!({ "unmounted": directory }));
            }
            println!("{} unmounted.", Shown(&directory.display().to_string()));
            Ok(())
        }
        Share::Archive { path } => {
            let (name, path) = file(&path)?;
            let view = connection.call(calls::ArchiveFile { name, path }).await?;
            match json {
                true => print_json(&view),
                false => show_files(false, &[view]),
            }
        }
        Share::Pin { path, off } => {
            let (name, path) = file(&path)?;
            let view = connection.call(calls::Pin { name, path, pinned: !off }).await?;
            match json {
                true => print_json(&view),
                false => show_files(false, &[view]),
            }
        }
        Share::Why { path } => {
            let (name, path) = file(&path)?;
            let why = connection.call(calls::ExplainFile { name, path }).await?;
            super::archive::show_why(json, &why)
        }
    }
}

/// The directory as the server finds it, from wherever the command is called.
fn whole(directory: &Path) -> Outcome<PathBuf> {
    std::path::absolute(directory).map_err(|error| Failure::usage(format!("{}: {error}", directory.display())))
}

fn offer(offer: cli::OfferArgs, read_only: Option<bool>) -> ShareOptions {
    ShareOptions {
        archive_after: offer.archive_after,
        commit_after: offer.commit_after,
        retention_min: offer.retention_min,
        retention_max: offer.retention_max,
        networks: (!offer.allow.is_empty()).then(|| offer.allow.iter().map(ToString::to_string).collect()),
        read_only,
        squash: offer.squash.map(|squash| {
            match squash {
                Squash::Root => "root",
                Squash::All => "all",
                Squash::None => "none",
            }
            .to_owned()
        }),
        removed_versions: offer.removed_versions.map(|removed| {
            match removed {
                RemovedVersions::Keep => "keep",
                RemovedVersions::Delete => "delete",
            }
            .to_owned()
        }),
        caching: offer.caching.map(|caching| {
            match caching {
                Caching::On => "on",
                Caching::Off => "off",
            }
            .to_owned()
        }),
    }
}

/// The share and the path below it.
fn parts(path: &str) -> (String, String) {
    let (name, path) = path.split_once('/').unwrap_or((path, ""));
    (name.to_owned(), path.trim_end_matches('/').to_owned())
}

fn file(path: &str) -> Outcome<(String, String)> {
    match parts(path) {
        (_, below) if below.is_empty() => {
            Err(Failure::usage(format!("'{path}' names a share, not a file; write NAME/PATH")))
        }
        parts => Ok(parts),
    }
}

fn show_one(json: bool, view: &ShareView) -> Outcome<()> {
    if json {
        return print_json(view);
    }
    print!("{}", table(std::slice::from_ref(view)));
    print!("\n{}", states(std::slice::from_ref(view)));
    print!("{}", refusal(view));
    Ok(())
}

/// Every setting of a share, how it is, and how clients mount it.
fn whole_view(view: &ShareView) -> String {
    let or = |value: Option<String>, none: &str| value.unwrap_or_else(|| none.to_owned());
    let days = |days: Option<u64>| or(days.map(|days| counted(days, "day")), "no bound");
    let seconds = |seconds: u32| format!("after {seconds} s without a change");
    let settings = [
        ("share", view.name.clone()),
        ("access", if view.read_only { "read-only" } else { "read-write" }.to_owned()),
        ("networks", view.networks.join(" ")),
        ("squash", view.squash.clone()),
        ("smb", view.smb.clone().or(view.smb_refusal.clone()).unwrap_or_else(|| "not served".to_owned())),
        ("cache volume", view.cache_volume.clone()),
        ("caching", view.caching.clone()),
        ("archives", seconds(view.archive_after_seconds)),
        ("commits by mode", if view.commits { "yes" } else { "no" }.to_owned()),
        ("commits idle files", or(view.commit_after_seconds.map(seconds), "never")),
        ("default retention", or(view.default_retention.clone(), "none")),
        ("shortest retention", days(view.retention_min_days)),
        ("longest retention", days(view.retention_max_days)),
        ("versions of removed files", view.removed_versions.clone()),
    ];
    let mut text = String::new();
    for (name, value) in settings {
        text.push_str(&format!("{name:<27}{}\n", Shown(&value)));
    }
    text.push_str(&format!("\n{}", states(std::slice::from_ref(view))));
    text.push_str(&refusal(view));
    match mounts(view) {
        Some(commands) => text.push_str(&format!("\nClients mount it, as root:\n  {}\n", commands.join("\n  "))),
        None => text.push_str(&format!("\n{}\n", unmountable(view))),
    }
    text
}

/// Why no client mounts it with NFS, and what changes that.
fn unmountable(view: &ShareView) -> &'static str {
    match view.status {
        Some(_) => "NFS is not served: `listen` under [nfs] in the configuration names the address for it.",
        None => {
            "The share is not open. Only a running server opens shares; `stele pool status` shows the alarm that \
             says why one does not open."
        }
    }
}

/// What clients mount. A server that listens on all addresses leaves the host to the reader.
fn place(view: &ShareView) -> Option<String> {
    let nfs = view.nfs.as_deref()?;
    Some(match nfs.rsplit_once(":/")? {
        ("0.0.0.0" | "[::]", name) => format!("HOST:/{name}"),
        _ => nfs.to_owned(),
    })
}

/// The commands that mount a share, with NFS 4.1 and 3. Where the server takes encrypted calls
/// alone, with 4.1: that needs no call of the MOUNT protocol.
fn mounts(view: &ShareView) -> Option<Vec<String>> {
    let (place, port) = (place(view)?, view.nfs_port?);
    let own = if port == 2049 { String::new() } else { format!(",port={port}") };
    let newer = |security: &str| format!("mount -t nfs -o vers=4.1{own}{security} {place} /mnt");
    Some(match view.nfs_tls.as_deref() {
        Some("required") => vec![newer(",xprtsec=tls")],
        Some("mutual") => vec![newer(",xprtsec=mtls")],
        _ => vec![
            newer(""),
            format!("mount -t nfs -o vers=3,nolock,proto=tcp,port={port},mountport={port} {place} /mnt"),
        ],
    })
}

/// The archive's last refusal, in a line.
fn refusal(view: &ShareView) -> String {
    let Some(status) = &view.status else { return String::new() };
    let Some(refusal) = &status.refusal else { return String::new() };
    let path = status.refused_path.as_deref().unwrap_or("a file that is gone");
    format!("\nThe archive refused `{}/{}` lately: {}\n", Shown(&view.name), Shown(path), Shown(refusal))
}

fn table(views: &[ShareView]) -> String {
    if views.is_empty() {
        return "No shares. Make one with `stele share create`.\n".to_owned();
    }
    let mut table = Table::new(&[
        ("share", Align::Whole),
        ("access", Align::Left),
        ("commits", Align::Left),
        ("networks", Align::Left),
        ("nfs", Align::Left),
    ]);
    for view in views {
        let commits = match (&view.default_retention, view.commits) {
            (_, false) => "no".to_owned(),
            (None, true) => "by access time".to_owned(),
            (Some(default), true) => default.clone(),
        };
        table.row(vec![
            view.name.clone(),
            if view.read_only { "read-only" } else { "read-write" }.to_owned(),
            commits,
            view.networks.join(" "),
            place(view).unwrap_or_else(|| "not served".to_owned()),
        ]);
    }
    table.render()
}

const STATE_COLUMNS: [(&str, Align); 8] = [
    ("share", Align::Whole),
    ("open", Align::Right),
    ("oldest", Align::Right),
    ("archived", Align::Right),
    ("bytes", Align::Right),
    ("cache used", Align::Right),
    ("of", Align::Right),
    ("hits", Align::Right),
];

fn states(views: &[ShareView]) -> String {
    if views.is_empty() {
        return "No shares. Make one with `stele share create`.\n".to_owned();
    }
    let mut table = Table::new(&STATE_COLUMNS);
    for view in views {
        let Some(status) = &view.status else {
            let mut row = vec![view.name.clone(), "not open".to_owned()];
            row.resize(STATE_COLUMNS.len(), "-".to_owned());
            table.row(row);
            continue;
        };
        table.row(vec![
            view.name.clone(),
            status.open_files.to_string(),
            status.oldest_seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds} s")),
            status.archived_files.to_string(),
            Bytes(status.archived_bytes).to_string(),
            Bytes(status.cache_used_bytes).to_string(),
            Bytes(status.cache_size_bytes).to_string(),
            hits(status.cache_hit_bytes, status.cache_missed_bytes),
        ]);
    }
    table.render()
}

/// The part of the bytes read that the cache had.
fn hits(hit: u64, missed: u64) -> String {
    match hit + missed {
        0 => "-".to_owned(),
        all => format!("{} %", hit * 100 / all),
    }
}

fn show_files(json: bool, views: &[FileView]) -> Outcome<()> {
    if json {
        return print_json(&views);
    }
    let mut table = Table::new(&[
        ("state", Align::Left),
        ("mode", Align::Left),
        ("owner", Align::Left),
        ("size", Align::Right),
        ("retained until", Align::Left),
        ("name", Align::Left),
    ]);
    for view in views {
        let state = view.state.clone().unwrap_or_else(|| view.kind.clone());
        table.row(vec![
            if view.pinned { format!("{state}, pinned") } else { state },
            view.mode.clone(),
            format!("{}:{}", view.uid, view.gid),
            Bytes(view.size_bytes).to_string(),
            view.retained_until.clone().unwrap_or_else(|| "-".to_owned()),
            view.name.clone(),
        ]);
    }
    print!("{}", table.render());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(nfs: &str) -> ShareView {
        serde_json::from_value(serde_json::json!({
            "name": "home", "nfs": nfs, "nfs_port": 2049, "cache_volume": "share-home", "archive_after_seconds": 10,
            "commit_after_seconds": null, "commits": false, "default_retention": null, "retention_min_days": null,
            "retention_max_days": null, "networks": [], "read_only": false, "squash": "root", "status": null,
        }))
        .expect("a share")
    }

    #[test]
    fn the_reader_names_the_host_of_a_server_on_all_addresses() {
        for (nfs, expected) in [
            ("10.1.0.5:/home", "10.1.0.5:/home"),
            ("[fd00::5]:/home", "[fd00::5]:/home"),
            ("0.0.0.0:/home", "HOST:/home"),
            ("[::]:/home", "HOST:/home"),
        ] {
            let view = served(nfs);
            assert!(table(std::slice::from_ref(&view)).trim_end().ends_with(expected), "{nfs}");
            assert_eq!(mounts(&view).expect("commands")[0], format!("mount -t nfs -o vers=4.1 {expected} /mnt"));
        }
    }

    #[test]
    fn a_server_that_requires_tls_is_mounted_with_tls() {
        for (tls, expected) in [
            (Some("required"), vec!["mount -t nfs -o vers=4.1,xprtsec=tls 10.1.0.5:/home /mnt"]),
            (Some("mutual"), vec!["mount -t nfs -o vers=4.1,xprtsec=mtls 10.1.0.5:/home /mnt"]),
            (
                Some("offered"),
                vec![
                    "mount -t nfs -o vers=4.1 10.1.0.5:/home /mnt",
                    "mount -t nfs -o vers=3,nolock,proto=tcp,port=2049,mountport=2049 10.1.0.5:/home /mnt",
                ],
            ),
        ] {
            let view = ShareView { nfs_tls: tls.map(str::to_owned), ..served("10.1.0.5:/home") };
            assert_eq!(mounts(&view).expect("commands"), expected, "{tls:?}");
        }
    }
}
