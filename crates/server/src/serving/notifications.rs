//! Notifications: the sender of each target that `[notifications.NAME]` in the configuration names.
//!
//! The archive keeps the events of each target in order, durable with the changes that they tell
//! of. A sender takes the oldest ones, hands them over, and deletes them when the target took them.
//!
//! Failure model: at least once, in order. A sender repeats events that its target did not take,
//! with a growing pause, and events that a crash kept it from deleting. One target that does not
//! answer delays no other, and no request.

mod file;
mod record;
mod sender;
mod writer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stele_archive::{Archive, is_target_name};
use tokio::task::JoinSet;

use self::file::EventFile;
use self::sender::{EventPlace, EventSender, NotTaken, Numbered, OfTarget};
use self::writer::Writer;
use super::messages::webhook::Webhook;
use crate::config::{Config, NotificationTarget, Site};
use crate::failure::{Failure, Outcome};

/// Targets of one server.
const TARGETS_MAX: usize = 8;
/// Time limit for a target to take a message.
const PATIENCE: Duration = Duration::from_secs(20);

/// Names that the server uses in its data directory, unless the configuration has others.
const OWN_NAMES: [&str; 17] = [
    "alarms.jsonl",
    "drives",
    "exports.json",
    "first-key.json",
    "first-start",
    "heads",
    "history.json",
    "master.key",
    "nbd.sock",
    "reservations",
    "rolled-back",
    "smb",
    "stele.sock",
    "stele.toml",
    "tls",
    "unfinished-pool",
    "unrecorded-acts",
];

/// A place that takes events.
enum Target {
    Webhook(Webhook),
    File(Writer),
}

impl Target {
    fn of(site: &Site, name: &str, target: &NotificationTarget) -> Outcome<Target> {
        match (&target.webhook, &target.file) {
            (Some(url), None) => Ok(Target::Webhook(Webhook::new(url, &format!("[notifications.{name}] webhook"))?)),
            (None, Some(path)) => {
                let mut file = EventFile::new(site.path(path));
                let writer = Writer::start(move |lines| file.append(lines), PATIENCE);
                let failed = |error| Failure::failed(format!("[notifications.{name}]: no thread can begin: {error}"));
                Ok(Target::File(writer.map_err(failed)?))
            }
            _ => Err(Failure::usage(format!("[notifications.{name}] has both of webhook and file, or none"))
                .next("give each target one of them")),
        }
    }
}

impl EventPlace for Target {
    async fn take(&mut self, events: Vec<Numbered>) -> Result<u64, NotTaken> {
        let through = events.last().map_or(0, |(last, _)| *last);
        match self {
            Target::Webhook(webhook) => {
                let message = record::message(&events).map_err(NotTaken::Failed)?;
                match webhook.post_json(message, PATIENCE).await {
                    Ok(()) => Ok(through),
                    Err(not) if not.is_refused => Err(NotTaken::Refused(not.why)),
                    Err(not) => Err(NotTaken::Failed(not.why)),
                }
            }
            Target::File(writer) => {
                let lines = events.iter().map(|event| record::message(std::slice::from_ref(event)));
                let lines = lines.collect::<Result<_, String>>().map_err(NotTaken::Failed)?;
                writer.append(through, lines).await.map_err(NotTaken::Failed)
            }
        }
    }
}

/// The form of a target, as ARNs name it.
pub fn form_of(target: &NotificationTarget) -> &'static str {
    if target.webhook.is_some() { "webhook" } else { "file" }
}

/// Starts a sender for each target.
pub fn start(site: &Site, config: &Config, archive: Option<&Archive>, tasks: &mut JoinSet<()>) -> Outcome<()> {
    if config.notifications.len() > TARGETS_MAX {
        return Err(Failure::usage(format!(
            "[notifications] has {} targets, at most {TARGETS_MAX} are allowed",
            config.notifications.len()
        )));
    }
    let mut files: BTreeMap<PathBuf, &str> = BTreeMap::new();
    for (name, target) in &config.notifications {
        for path in target.file.iter().flat_map(|path| EventFile::paths(&whole(&site.path(path)))) {
            if is_own(site, config, &path) {
                let message = format!("[notifications.{name}] writes {}, which is the server's own", path.display());
                return Err(Failure::usage(message).next("name a file that the server does not use"));
            }
            if let Some(other) = files.insert(path.clone(), name) {
                let message =
                    format!("[notifications.{other}] and [notifications.{name}] both write {}", path.display());
                return Err(Failure::usage(message).next("give each target a file of its own"));
            }
        }
        if !is_target_name(name) {
            return Err(Failure::usage(format!("[notifications.{name}]: no target can have this name"))
                .next("a name has 1 to 64 letters, digits, `-` and `_`"));
        }
        let target = Target::of(site, name, target)?;
        if let Some(archive) = archive {
            let waiting = OfTarget { archive: archive.clone(), target: name.clone() };
            tasks.spawn(EventSender::new(waiting, target).run());
        }
    }
    Ok(())
}

/// Whether the server itself uses this path, or one above it.
fn is_own(site: &Site, config: &Config, path: &Path) -> bool {
    let drives = config.pool.drives.iter().map(|drive| drive.0.path.as_path());
    let named = drives.chain(config.own_files().into_iter().map(|(_, path)| path));
    let own = OWN_NAMES.iter().map(Path::new).chain(named).map(|own| site.path(own));
    // Signed heads may lie in folders that are shared with other files.
    path.extension().is_some_and(|end| end == "head")
        || own.chain([site.config_path.clone()]).any(|own| path.starts_with(whole(&own)))
}

/// The path without a link or `..` in its folder, if that is there.
fn whole(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| std::fs::canonicalize(folder).ok());
    folder.zip(path.file_name()).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}

#[cfg(test)]
mod tests;
