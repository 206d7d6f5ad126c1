//! The time stamp authority (RFC 3161) that stamps each head that goes out.
//!
//! Failure model: the authority is asked while the places take the head, so one that hangs delays
//! no place. Its reply is checked before it counts: granted, of this head, with this request's
//! nonce, and signed. A reply that fails a check is no time stamp, and the next turn asks again.

use std::time::Duration;

use stele_archive::SignedHead;
use stele_stamp::{Authorities, Imprint, REPLY_MAX, REQUEST_TYPE, Request};

use crate::config::{Config, Site};
use crate::failure::{Failure, Outcome, io_failure};
use crate::node::heads;
use crate::node::surroundings::random;
use crate::serving::messages::webhook::Webhook;
use crate::whole::{self, TEXT_MAX};

/// Time limit for the authority to answer. It is below that of the places, so that a stop waits no
/// longer for it.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Authority {
    service: Webhook,
    trusted: Option<Authorities>,
    patience: Duration,
}

/// A head, and the reply of the authority with its time stamp.
#[derive(Clone)]
pub struct Stamped {
    pub head: SignedHead,
    pub reply: Vec<u8>,
}

impl Authority {
    /// Reads the configuration. Nothing is asked yet.
    pub fn of(site: &Site, config: &Config) -> Outcome<Option<Authority>> {
        let archive = &config.archive;
        let Some(url) = &archive.heads_timestamp else {
            return match &archive.heads_timestamp_ca {
                None => Ok(None),
                Some(_) => {
                    Err(Failure::usage("[archive] heads_timestamp_ca names authorities, and no heads_timestamp")
                        .next("write the URL of the time stamp authority into heads_timestamp"))
                }
            };
        };
        let service = Webhook::new(url, "[archive] heads_timestamp")?;
        let trusted = archive.heads_timestamp_ca.as_ref().map(|path| {
            let path = site.path(path);
            let text =
                whole::read(&path, TEXT_MAX).map_err(|error| io_failure("read the authorities in", &path, &error))?;
            Authorities::from_pem(&text).map_err(|finding| {
                Failure::usage(format!("[archive] heads_timestamp_ca: {}: {finding}", path.display()))
                    .next("name a PEM file with the certificates of the authority's issuer")
            })
        });
        Ok(Some(Authority { service, trusted: trusted.transpose()?, patience: PATIENCE }))
    }

    pub fn name(&self) -> String {
        format!("the time stamp authority at {}", self.service.place())
    }

    /// Asks for a time stamp of the head.
    pub async fn stamp(&self, head: &SignedHead) -> Result<Stamped, String> {
        let request = Request::new(Imprint::of(heads::text(head).as_bytes()), random());
        let asked = self.service.ask(REQUEST_TYPE, request.to_der(), REPLY_MAX, self.patience).await;
        let checked = asked.and_then(|reply| request.check(&reply, self.trusted.as_ref()).map(|_| reply.to_vec()));
        let reply = checked.map_err(|reason| format!("{}: {reason}", self.name()))?;
        Ok(Stamped { head: head.clone(), reply })
    }
}

#[cfg(test)]
impl Authority {
    pub fn at(url: &str, patience: Duration) -> Authority {
        Authority { service: Webhook::new(url, "a test").unwrap(), trusted: None, patience }
    }
}
