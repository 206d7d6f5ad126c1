//! The places that signed heads are sent to, on a schedule and at a stop: directories, syslog servers, mail addresses.
//!
//! Failure model: a place that takes no head is logged and asked again at the next turn. The others do not wait for it
//! longer than its time limit. At a start the server compares its log with the heads in directories (`node::heads`);
//! what went out by syslog or mail, a person compares with `stele audit verify --anchor`.

use std::path::PathBuf;
use std::time::Duration;

use stele_archive::{Archive, SignedHead};
use tokio::time::timeout;

use crate::config::{Config, Site};
use crate::failure::Outcome;
use crate::node::heads;
use crate::server::messages::mail::Mail;
use crate::server::syslog::Syslog;

/// Time limit for a mail server to take a head.
const PATIENCE: Duration = Duration::from_secs(20);

enum Way {
    Directory(PathBuf),
    Syslog(Syslog),
    Mail(Box<Mail>),
}

/// A place, and the number of records that it has.
struct HeadPlace {
    way: Way,
    has: Option<u64>,
}

/// All places of a configuration.
pub struct HeadPlaces(Vec<HeadPlace>);

impl HeadPlaces {
    /// Reads the configuration. Nothing is sent yet.
    pub fn of(site: &Site, config: &Config) -> Outcome<HeadPlaces> {
        let mut ways: Vec<Way> = heads::places(site, config).into_iter().map(Way::Directory).collect();
        for text in &config.archive.heads_syslog {
            ways.push(Way::Syslog(Syslog::parse(text)?));
        }
        if !config.archive.heads_mail.is_empty() {
            ways.push(Way::Mail(Box::new(Mail::to(site, &config.messages, "heads_mail", &config.archive.heads_mail)?)));
        }
        Ok(HeadPlaces(ways.into_iter().map(|way| HeadPlace { way, has: None }).collect()))
    }

    /// Sends the head as it is now to each place that lacks it.
    pub async fn send(&mut self, archive: &Archive) {
        let head = match archive.audit_head_to_send().await {
            Ok(head) => head,
            Err(error) => return tracing::warn!("the audit head was not exported: {error}"),
        };
        for place in self.0.iter_mut().filter(|place| place.has != Some(head.records)) {
            match place.way.take(&head).await {
                Ok(()) => place.has = Some(head.records),
                Err(reason) => tracing::warn!("the audit head was not exported: {reason}"),
            }
        }
    }
}

impl Way {
    async fn take(&self, head: &SignedHead) -> Result<(), String> {
        match self {
            Way::Directory(directory) => heads::write(directory, head).map_err(|failure| failure.to_string()),
            Way::Syslog(syslog) => syslog.send(head).await.map_err(|failure| failure.to_string()),
            Way::Mail(mail) => {
                let subject = format!("[stele] head of {} records", head.records);
                let text = format!("{}\n", serde_json::to_string(head).unwrap_or_default());
                let sent = timeout(PATIENCE, mail.deliver(subject, text)).await;
                sent.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))
                    .map_err(|reason| format!("{}: {reason}", mail.name()))
            }
        }
    }
}
