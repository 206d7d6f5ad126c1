//! How many events wait for each target, about, and which targets have a sender. The catalog has
//! the exact numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::state::shared::Shared;

pub(crate) struct EventLag {
    lags: Shared<BTreeMap<String, u64>>,
    /// None: it is not known which targets have one.
    senders: Option<Arc<BTreeSet<String>>>,
    /// Events that may wait for one target.
    most: u64,
}

impl EventLag {
    pub fn new(senders: Option<Arc<BTreeSet<String>>>, most: u64) -> EventLag {
        EventLag { lags: Shared::default(), senders, most }
    }

    /// Events that may wait for one target.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Whether a sender takes the events of this target, as far as is known.
    pub fn has_sender(&self, target: &str) -> bool {
        self.senders.as_ref().is_none_or(|senders| senders.contains(target))
    }

    /// Counts one more event, if the target's number is known and below the limit. None: it must be
    /// measured.
    pub fn admit(&self, target: &str) -> Option<()> {
        self.lags.step(|lags| match lags.get_mut(target) {
            Some(pending) if *pending < self.most => {
                *pending += 1;
                Some(())
            }
            _ => None,
        })
    }

    /// Notes an exact number.
    pub fn note(&self, target: &str, pending: u64) {
        self.lags.step(|lags| {
            lags.insert(target.to_owned(), pending);
        });
    }
}
