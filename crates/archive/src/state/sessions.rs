//! How many sessions each access key made of late. Every session has a record in the audit log,
//! which only grows, and any key may make sessions: without a bound, a key that may do nothing else
//! could fill the catalog.
//!
//! Failure model: a restart forgets what was spent.

use std::collections::BTreeMap;

use crate::model::time::Reading;
use crate::state::budget::{Budget, Spent, milliseconds};
use crate::state::shared::Shared;

/// Sessions of one key: at once, and milliseconds for one more. That is 8,640 a day.
pub(crate) const SESSIONS: Budget = Budget { burst: 1_000, every: 10_000 };
/// Keys with an account of their own. All others share one.
const KEYS_MAX: usize = 16_384;

/// The account of each key. None: the account of those that came when there were too many.
#[derive(Default)]
pub(crate) struct Sessions(Shared<BTreeMap<Option<String>, Spent>>);

impl Sessions {
    /// Spends one session of the key's budget, if there is one left.
    pub fn admit(&self, key: &str, at: Reading) -> bool {
        let now = milliseconds(at);
        self.0.step(|accounts| {
            let mut key = Some(key.to_owned());
            if !accounts.contains_key(&key) && accounts.len() >= KEYS_MAX {
                accounts.retain(|_, spent| !spent.is_whole(now));
                if accounts.len() >= KEYS_MAX {
                    key = None;
                }
            }
            accounts.entry(key).or_default().admit(&SESSIONS, now)
        })
    }
}
