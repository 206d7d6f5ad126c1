//! The sender of one target: it hands over the oldest events, and deletes them when the target took
//! them.
//!
//! Failure model: at least once, in order. Events that the target took and that could not be
//! deleted are not sent again by this process: it only tries to delete them. While the archive is
//! open for reading only nothing is sent, since nothing could be deleted. A message that the place
//! refuses as such is halved, down to one event: that one holds up the later ones until it is
//! taken. A test event that is refused counts as taken, since receivers of events need not know its
//! form.

use std::time::Duration;

use stele_archive::{Archive, ObjectEvent, TEST_EVENT};

use super::record;

/// Events that one message holds.
const BATCH_MAX: usize = 100;
/// Bytes of a message of several events. Receivers take 256 KiB at least, as the services of AWS
/// do.
const MESSAGE_MAX: usize = 200 << 10;
/// Interval at which a sender looks for events after it found none.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Pause before the second attempt; it doubles with each further attempt.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// An event with its number.
pub type Numbered = (u64, ObjectEvent);

/// The events that wait for one target.
pub trait Waiting: Send {
    /// The name of the target.
    fn target(&self) -> &str;
    fn is_read_only(&self) -> bool;
    fn oldest(&self, most: usize) -> Result<Vec<Numbered>, String>;
    /// Deletes the events up to this number.
    fn delivered(&self, through: u64) -> impl Future<Output = Result<(), String>> + Send;
}

/// Why a place did not take a message.
pub enum NotTaken {
    /// It does not want this very message. A smaller one may pass.
    Refused(String),
    Failed(String),
}

/// A place that takes events.
pub trait EventPlace: Send {
    /// Hands these events over. Returns the number of the last event that the place has taken.
    fn take(&mut self, events: Vec<Numbered>) -> impl Future<Output = Result<u64, NotTaken>> + Send;
}

/// The events of a target in the archive.
pub struct OfTarget {
    pub archive: Archive,
    pub target: String,
}

impl Waiting for OfTarget {
    fn target(&self) -> &str {
        &self.target
    }

    fn is_read_only(&self) -> bool {
        self.archive.is_read_only()
    }

    fn oldest(&self, most: usize) -> Result<Vec<Numbered>, String> {
        self.archive.pending_events(&self.target, most).map_err(|error| error.to_string())
    }

    async fn delivered(&self, through: u64) -> Result<(), String> {
        self.archive.delivered(&self.target, through).await.map_err(|error| error.to_string())
    }
}

pub struct EventSender<W, P> {
    waiting: W,
    place: P,
    /// The place took the events up to this number, and they are not deleted yet.
    taken: Option<u64>,
    /// Events that the next message may hold.
    batch: usize,
}

impl<W: Waiting, P: EventPlace> EventSender<W, P> {
    pub fn new(waiting: W, place: P) -> EventSender<W, P> {
        EventSender { waiting, place, taken: None, batch: BATCH_MAX }
    }

    /// Runs until the task is dropped.
    pub async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        let mut trouble = String::new();
        loop {
            match self.step().await {
                Ok(more) => {
                    if !std::mem::take(&mut trouble).is_empty() {
                        tracing::info!("notifications reach the target {} again", self.waiting.target());
                    }
                    pause = PAUSE_MIN;
                    if !more {
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                }
                Err(why) => {
                    if why != trouble {
                        tracing::warn!(
                            "notifications for the target {} wait, and that is tried again: {why}",
                            self.waiting.target()
                        );
                        trouble = why;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Sends the oldest events, and deletes them. Returns whether there were any.
    async fn step(&mut self) -> Result<bool, String> {
        if self.waiting.is_read_only() {
            return Err("the archive is open for reading only, and nothing is sent meanwhile".into());
        }
        let taken = match self.taken {
            Some(taken) => taken,
            None => {
                let events = one_message(self.waiting.oldest(self.batch)?)?;
                let Some((last, event)) = events.last() else { return Ok(false) };
                let (last, is_test, count) = (*last, event.name == TEST_EVENT, events.len());
                match self.place.take(events).await {
                    Ok(taken) => {
                        self.batch = (2 * self.batch).min(BATCH_MAX);
                        taken
                    }
                    Err(NotTaken::Refused(why)) if is_test => {
                        tracing::warn!("{}", refused_test(self.waiting.target(), &why));
                        last
                    }
                    Err(NotTaken::Refused(why)) => {
                        self.batch = (count / 2).max(1);
                        return Err(refused(count, &why));
                    }
                    Err(NotTaken::Failed(why)) => return Err(why),
                }
            }
        };
        self.taken = Some(taken);
        self.waiting
            .delivered(taken)
            .await
            .map_err(|error| format!("the target took some, which could not be deleted: {error}"))?;
        self.taken = None;
        Ok(true)
    }
}

fn refused_test(target: &str, why: &str) -> String {
    format!("the target {target} of notifications refuses the test event, which is not repeated: {why}")
}

fn refused(events: usize, why: &str) -> String {
    let plural = if events == 1 { "" } else { "s" };
    format!("the target refuses a message of {events} event{plural}: {why}")
}

/// The first events that fit into one message. A test event is a message of its own, in a form of
/// its own.
fn one_message(mut events: Vec<Numbered>) -> Result<Vec<Numbered>, String> {
    match events.iter().position(|(_, event)| event.name == TEST_EVENT) {
        Some(0) => events.truncate(1),
        Some(at) => events.truncate(at),
        None => {}
    }
    let (mut bytes, mut count) = (0, 0);
    for event in &events {
        bytes += record::message(std::slice::from_ref(event))?.len();
        if count > 0 && bytes > MESSAGE_MAX {
            break;
        }
        count += 1;
    }
    events.truncate(count);
    Ok(events)
}

#[cfg(test)]
mod tests;
