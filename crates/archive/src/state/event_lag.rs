//! How many events wait for each target, about. The catalog has the exact numbers.

use std::collections::BTreeMap;

use crate::state::shared::Shared;

#[derive(Default)]
pub(crate) struct EventLag(Shared<BTreeMap<String, u64>>);

impl EventLag {
    /// Counts one more event, if the target's number is known and below the limit. None: it must be measured.
    pub fn admit(&self, target: &str, most: u64) -> Option<()> {
        self.0.step(|lags| match lags.get_mut(target) {
            Some(pending) if *pending < most => {
                *pending += 1;
                Some(())
            }
            _ => None,
        })
    }

    /// Notes an exact number.
    pub fn note(&self, target: &str, pending: u64) {
        self.0.step(|lags| {
            lags.insert(target.to_owned(), pending);
        });
    }
}
