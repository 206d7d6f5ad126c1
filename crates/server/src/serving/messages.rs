//! Messages about alarms: mail and webhooks, as `[messages]` says.
//!
//! The server sends a message when an alarm begins to stand, when it ends, and for each momentary
//! event. Each destination has a queue and a task of its own. A destination that does not answer
//! therefore delays neither the others nor the pool: noting an alarm only pushes into a list.
//!
//! Failure model: while the server runs, it repeats a message until the destination takes it, so a
//! message may arrive twice. At [`WAITING_MAX`] messages the oldest is dropped, and the next
//! message that arrives gives the number dropped. Alarms that stand at a start are sent again.
//! Messages that wait at a stop are not sent.

pub(super) mod mail;
pub mod webhook;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::api::pool::{AlarmView, StandingView};
use crate::config::{Config, Site};
use crate::failure::Outcome;

/// Largest number of messages that wait for one destination.
const WAITING_MAX: usize = 256;
/// Time limit for a destination to take a message.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause before the second attempt; it doubles with each further attempt.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Momentary events that are bad news and do not stand.
const MOMENTS: &[&str] = &["damage-repaired", "log-repaired", "memory-damaged", "table-degraded"];

/// One message, in the form of webhooks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Message {
    /// A number that increases with each message of this server.
    pub number: u64,
    /// `begun`, `ended` or `happened`.
    pub state: &'static str,
    pub kind: String,
    /// The subject of the alarm.
    pub subject: String,
    #[serde(with = "crate::moment")]
    pub at: u64,
    #[serde(with = "crate::moment")]
    pub since: u64,
    pub message: String,
    pub done: String,
    pub next: String,
    pub pool: String,
    /// Number of messages dropped before this one.
    pub dropped: u64,
}

/// A destination of messages.
enum Destination {
    Webhook(webhook::Webhook),
    Mail(Box<mail::Mail>),
}

impl Destination {
    async fn send(&self, message: &Message) -> Result<(), String> {
        match self {
            Destination::Webhook(webhook) => {
                let text = crate::said::json_line(message).map_err(|error| error.to_string())?;
                webhook.post_json(text, PATIENCE).await.map_err(|not_taken| not_taken.why)
            }
            Destination::Mail(mail) => mail.send(message).await,
        }
    }

    fn name(&self) -> String {
        match self {
            Destination::Webhook(webhook) => webhook.name(),
            Destination::Mail(mail) => mail.name(),
        }
    }
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Message>,
    dropped: u64,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    came: Notify,
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, message: Message) {
        let mut waiting = self.lock();
        if waiting.messages.len() == WAITING_MAX {
            waiting.messages.pop_front();
            waiting.dropped += 1;
        }
        waiting.messages.push_back(message);
        drop(waiting);
        self.came.notify_one();
    }

    /// The oldest message; it stays in the queue until it was taken.
    fn first(&self) -> Option<Message> {
        let waiting = self.lock();
        let first = waiting.messages.front()?;
        Some(Message { dropped: waiting.dropped, ..first.clone() })
    }

    fn taken(&self, message: &Message) {
        let mut waiting = self.lock();
        if waiting.messages.front().is_some_and(|first| first.number == message.number) {
            waiting.messages.pop_front();
        }
        waiting.dropped -= message.dropped.min(waiting.dropped);
    }
}

/// The alarms that were sent, and their destinations.
#[derive(Default)]
pub struct MessageQueues {
    queues: Vec<Arc<Queue>>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    number: u64,
    standing: BTreeMap<(String, String), StandingView>,
    /// Number of alarms so far.
    came: u64,
}

impl MessageQueues {
    /// Starts a task for each configured destination.
    pub fn start(site: &Site, config: &Config, tasks: &mut JoinSet<()>) -> Outcome<MessageQueues> {
        let mut destinations = Vec::new();
        for url in &config.messages.webhooks {
            destinations.push(Destination::Webhook(webhook::Webhook::new(url, "[messages] webhooks")?));
        }
        let mail = &config.messages;
        if !mail.mail_to.is_empty() {
            let each = mail::Mail::each(site, mail, "mail_to", &mail.mail_to)?;
            destinations.extend(each.into_iter().map(|mail| Destination::Mail(Box::new(mail))));
        }
        let mut messages = MessageQueues::default();
        for destination in destinations {
            let queue = Arc::new(Queue::default());
            tasks.spawn(deliver(destination, Arc::clone(&queue)));
            messages.queues.push(queue);
        }
        Ok(messages)
    }

    /// Compares the standing alarms with the sent ones, and sends the difference.
    pub fn note(&self, pool: &str, standing: &[StandingView], came: (u64, Vec<AlarmView>), now: u64) {
        if self.queues.is_empty() {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let key = |alarm: &StandingView| (alarm.kind.clone(), alarm.subject.clone());
        let stands: BTreeMap<_, _> = standing.iter().map(|alarm| (key(alarm), alarm.clone())).collect();
        let before = std::mem::replace(&mut told.standing, stands.clone());
        let begun = stands.iter().filter(|(key, _)| !before.contains_key(key)).map(|(_, alarm)| ("begun", alarm));
        let ended = before.iter().filter(|(key, _)| !stands.contains_key(key)).map(|(_, alarm)| ("ended", alarm));
        for (state, alarm) in begun.chain(ended) {
            let (alarm, pool) = (alarm.clone(), pool.to_owned());
            let StandingView { kind, subject, since, message, done, next } = alarm;
            self.tell(
                &mut told,
                Message { number: 0, state, kind, subject, at: now, since, message, done, next, pool, dropped: 0 },
            );
        }
        let (count, alarms) = came;
        let new = usize::try_from(count.saturating_sub(told.came)).unwrap_or(usize::MAX).min(alarms.len());
        told.came = count;
        for alarm in alarms.into_iter().rev().take(new).rev().filter(|alarm| MOMENTS.contains(&alarm.kind.as_str())) {
            let AlarmView { at, kind, drive, since, message, next, .. } = alarm;
            let (subject, since) =
                (drive.map_or("pool".to_owned(), |drive| format!("drive {drive}")), since.unwrap_or(at));
            let (done, pool) = (String::new(), pool.to_owned());
            let state = "happened";
            self.tell(
                &mut told,
                Message { number: 0, state, kind, subject, at, since, message, done, next, pool, dropped: 0 },
            );
        }
    }

    fn tell(&self, told: &mut Told, message: Message) {
        told.number += 1;
        self.queues.iter().for_each(|queue| queue.push(Message { number: told.number, ..message.clone() }));
    }
}

/// Runs until the task is dropped.
async fn deliver(destination: Destination, queue: Arc<Queue>) {
    let mut pause = PAUSE_MIN;
    let mut trouble = String::new();
    loop {
        let Some(message) = queue.first() else {
            queue.came.notified().await;
            continue;
        };
        let sent = match tokio::time::timeout(PATIENCE, destination.send(&message)).await {
            Ok(sent) => sent,
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        match sent {
            Ok(()) => {
                queue.taken(&message);
                if !std::mem::take(&mut trouble).is_empty() {
                    tracing::info!("messages about alarms reach {} again", destination.name());
                }
                pause = PAUSE_MIN;
            }
            Err(why) => {
                if why != trouble {
                    tracing::warn!(
                        "messages about alarms do not reach {}, and are tried again: {why}",
                        destination.name()
                    );
                    trouble = why;
                }
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(PAUSE_MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests;
