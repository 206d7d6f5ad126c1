//! Notifications: the sender of each target that `[notifications.NAME]` in the configuration names.
//!
//! The archive keeps the events of each target in order, durable with the changes that they tell of. A sender takes the
//! oldest ones, hands them over, and deletes them when the target took them.
//!
//! Failure model: at least once, in order. A sender repeats events that its target did not take, with a growing pause,
//! and events that a crash kept it from deleting. One target that does not answer delays no other, and no request.

mod file;
mod record;

use std::sync::Arc;
use std::time::Duration;

use stele_archive::{Archive, ObjectEvent, TEST_EVENT, is_target_name};
use tokio::task::JoinSet;

use self::file::EventFile;
use super::messages::webhook::Webhook;
use crate::config::{Config, NotificationTarget, Site};
use crate::failure::{Failure, Outcome};

/// Targets of one server.
const TARGETS_MAX: usize = 8;
/// Events that one message holds.
const BATCH_MAX: usize = 100;
/// Time limit for a target to take a message.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval at which a sender looks for events after it found none.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Pause before the second attempt; it doubles with each further attempt.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A place that takes events.
enum Target {
    Webhook(Webhook),
    File(EventFile),
}

impl Target {
    fn of(site: &Site, name: &str, target: &NotificationTarget) -> Outcome<Target> {
        match (&target.webhook, &target.file) {
            (Some(url), None) => Ok(Target::Webhook(Webhook::new(url, &format!("[notifications.{name}] webhook"))?)),
            (None, Some(path)) => Ok(Target::File(EventFile::new(site.path(path)))),
            _ => Err(Failure::usage(format!("[notifications.{name}] has both of webhook and file, or none"))
                .next("give each target one of them")),
        }
    }

    async fn send(&self, events: &[(u64, ObjectEvent)]) -> Result<(), String> {
        match self {
            Target::Webhook(webhook) => webhook.post_json(record::message(events)?).await,
            Target::File(file) => {
                let lines = events.iter().map(|event| record::message(std::slice::from_ref(event)));
                let lines = lines.collect::<Result<Vec<String>, String>>()?;
                let file = file.clone();
                let appended = tokio::task::spawn_blocking(move || file.append(&lines)).await;
                appended.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
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
    for (name, target) in &config.notifications {
        if !is_target_name(name) {
            return Err(Failure::usage(format!("[notifications.{name}]: no target can have this name"))
                .next("a name has 1 to 64 letters, digits, `-` and `_`"));
        }
        let target = Target::of(site, name, target)?;
        if let Some(archive) = archive {
            tasks.spawn(send(archive.clone(), name.clone(), Arc::new(target)));
        }
    }
    Ok(())
}

/// Runs until the task is dropped.
async fn send(archive: Archive, name: String, target: Arc<Target>) {
    let mut pause = PAUSE_MIN;
    let mut trouble = String::new();
    loop {
        match send_some(&archive, &name, &target).await {
            Ok(sent) => {
                if !std::mem::take(&mut trouble).is_empty() {
                    tracing::info!("notifications reach the target {name} again");
                }
                pause = PAUSE_MIN;
                if sent == 0 {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
            Err(why) => {
                if why != trouble {
                    tracing::warn!("notifications do not reach the target {name}, and are tried again: {why}");
                    trouble = why;
                }
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MAX);
            }
        }
    }
}

/// Sends the oldest events, and deletes them. Returns their number.
async fn send_some(archive: &Archive, name: &str, target: &Target) -> Result<usize, String> {
    let mut events = archive.pending_events(name, BATCH_MAX).map_err(|error| error.to_string())?;
    // A test event is a message of its own, in a form of its own.
    let tests = |event: &(u64, ObjectEvent)| event.1.name == TEST_EVENT;
    match events.iter().position(tests) {
        Some(0) => events.truncate(1),
        Some(at) => events.truncate(at),
        None => {}
    }
    let Some((last, _)) = events.last() else { return Ok(0) };
    match tokio::time::timeout(PATIENCE, target.send(&events)).await {
        Ok(sent) => sent?,
        Err(_) => return Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
    archive.delivered(name, *last).await.map_err(|error| error.to_string())?;
    Ok(events.len())
}

#[cfg(test)]
mod tests;
