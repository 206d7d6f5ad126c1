//! The places that signed heads are sent to, on a schedule and at a stop: directories, syslog servers, mail addresses.
//!
//! Failure model: every place gets the head at the same time and has [`PATIENCE`] to take it. A place that takes none is
//! logged and asked again at the next turn, and raises the alarm `heads` once two turns have passed. A share that hangs
//! holds one thread and one head until it answers; no further head is written there meanwhile. At a start the server
//! compares its log with the heads in directories (`node::heads`); what went out by syslog or mail, a person compares with
//! `stele audit verify --anchor`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use stele_archive::{Archive, SignedHead};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::config::{Config, Site};
use crate::failure::Outcome;
use crate::node::heads;
use crate::server::messages::mail::Mail;
use crate::server::syslog::Syslog;

/// Time limit for a place to take a head.
const PATIENCE: Duration = Duration::from_secs(20);
/// Turns after which a place that took no head raises an alarm.
const TURNS_MISSED: u32 = 2;

enum Way {
    Directory(Directory),
    Syslog(Syslog),
    Mail(Box<Mail>),
}

/// A directory, perhaps of a share, and the head that it has not taken yet.
struct Directory {
    path: PathBuf,
    write: fn(&Path, &SignedHead) -> Outcome<()>,
    under_way: Option<oneshot::Receiver<Outcome<()>>>,
    patience: Duration,
}

/// A place, and the number of records that it has.
struct HeadPlace {
    way: Way,
    has: Option<u64>,
    /// Since when it has taken no head, and whether an alarm told that.
    without: Option<Instant>,
    is_told: bool,
}

/// All places of a configuration.
pub struct HeadPlaces(Vec<HeadPlace>);

impl HeadPlaces {
    /// Reads the configuration. Nothing is sent yet.
    pub fn of(site: &Site, config: &Config) -> Outcome<HeadPlaces> {
        let directory =
            |path| Way::Directory(Directory { path, write: heads::write, under_way: None, patience: PATIENCE });
        let mut ways: Vec<Way> = heads::places(site, config).into_iter().map(directory).collect();
        for text in &config.archive.heads_syslog {
            ways.push(Way::Syslog(Syslog::parse(text)?));
        }
        if !config.archive.heads_mail.is_empty() {
            ways.push(Way::Mail(Box::new(Mail::to(site, &config.messages, "heads_mail", &config.archive.heads_mail)?)));
        }
        Ok(HeadPlaces(ways.into_iter().map(HeadPlace::new).collect()))
    }

    /// Sends the head as it is now to each place that lacks it. Returns what an alarm should tell, with `every` between
    /// two turns.
    pub async fn send(&mut self, archive: &Archive, every: Duration) -> Vec<String> {
        let head = archive.audit_head_to_send().await;
        self.send_head(head.map_err(|error| error.to_string()), every, Instant::now()).await
    }

    async fn send_head(&mut self, head: Result<SignedHead, String>, every: Duration, now: Instant) -> Vec<String> {
        let sent = self.0.iter_mut().map(|place| place.send(head.as_ref(), every, now));
        join_all(sent).await.into_iter().flatten().collect()
    }
}

impl HeadPlace {
    fn new(way: Way) -> HeadPlace {
        HeadPlace { way, has: None, without: None, is_told: false }
    }

    async fn send(&mut self, head: Result<&SignedHead, &String>, every: Duration, now: Instant) -> Option<String> {
        let sent = match head {
            Ok(head) if self.has == Some(head.records) => Ok(()),
            Ok(head) => self.way.take(head).await,
            Err(reason) => Err(reason.clone()),
        };
        let Err(reason) = sent else {
            self.has = head.map(|head| head.records).ok();
            (self.without, self.is_told) = (None, false);
            return None;
        };
        tracing::warn!("the audit head was not exported: {reason}");
        let without = *self.without.get_or_insert(now);
        let is_due = now.duration_since(without) >= every * TURNS_MISSED && !self.is_told;
        self.is_told |= is_due;
        let minutes = now.duration_since(without).as_secs() / 60;
        is_due.then(|| format!("a place for signed heads took none for {minutes} minutes: {reason}"))
    }
}

impl Way {
    async fn take(&mut self, head: &SignedHead) -> Result<(), String> {
        let late = |name: String| format!("{name}: it did not answer within {} s", PATIENCE.as_secs());
        match self {
            Way::Directory(directory) => {
                let taken = timeout(directory.patience, directory.take(head)).await;
                taken.unwrap_or_else(|_| Err(late(directory.path.display().to_string())))
            }
            Way::Syslog(syslog) => syslog.send(head).await.map_err(|failure| failure.to_string()),
            Way::Mail(mail) => {
                let subject = format!("[stele] head of {} records", head.records);
                let text = format!("{}\n", serde_json::to_string(head).unwrap_or_default());
                let sent = timeout(PATIENCE, mail.deliver(subject, text)).await;
                sent.map_err(|_| late(mail.name().to_string()))?.map_err(|reason| format!("{}: {reason}", mail.name()))
            }
        }
    }
}

impl Directory {
    /// Writes the head on a thread of its own, since a share that is away can hold a thread for ever. The caller may stop
    /// waiting; no other thread starts while this one writes.
    async fn take(&mut self, head: &SignedHead) -> Result<(), String> {
        if let Some(last) = &mut self.under_way {
            let place = self.path.display();
            match last.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => {
                    return Err(format!("{place}: it has not taken the last head yet; the share may hang"));
                }
                Ok(_) | Err(oneshot::error::TryRecvError::Closed) => self.under_way = None,
            }
        }
        let (sender, receiver) = oneshot::channel();
        let (path, head, write) = (self.path.clone(), head.clone(), self.write);
        std::thread::Builder::new()
            .name("stele-head".into())
            .spawn(move || drop(sender.send(write(&path, &head))))
            .map_err(|error| format!("no thread writes the head: {error}"))?;
        let written = self.under_way.insert(receiver).await;
        self.under_way = None;
        let written = written.map_err(|_| "the thread that writes the head ended".to_owned())?;
        written.map_err(|failure| failure.on_one_line())
    }
}

#[cfg(test)]
mod tests;
