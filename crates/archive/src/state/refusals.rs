//! What each actor has spent of its budget for refusals in the audit log.

use std::collections::BTreeMap;

use crate::model::principal::Actor;
use crate::model::time::{Reading, Timestamp};
use crate::state::budget::{Budget, Spent, milliseconds};
use crate::state::shared::Shared;

/// Of all anonymous callers together: 14,400 a day.
const ANONYMOUS: Budget = Budget { burst: 100, every: 6_000 };
/// Of each key and each user of this machine: 8,640 a day.
const KNOWN: Budget = Budget { burst: 1_000, every: 10_000 };
/// Actors with an account of their own. All others share one.
const ACTORS_MAX: usize = 1_024;
/// Milliseconds between two summaries of an actor.
const SUMMARY_EVERY: u64 = 300_000;
/// Milliseconds for which the alarm stands after a refusal was last left out.
const ALARM_FOR: u64 = 3_600_000;

/// An actor with an account. None: the account of those that came when there were too many.
pub(crate) type AccountKey = Option<Actor>;

/// Refusals that were counted instead of recorded, and the wall clock at the first of them.
#[derive(Clone, Copy)]
pub(crate) struct LeftOut {
    pub count: u64,
    pub since: Timestamp,
}

/// One actor's account. Times are milliseconds of elapsed time.
#[derive(Default)]
struct Account {
    spent: Spent,
    left_out: u64,
    since: Option<Timestamp>,
    summed_up: u64,
    left_out_at: Option<u64>,
}

#[derive(Default)]
struct Accounts(BTreeMap<AccountKey, Account>);

#[derive(Default)]
pub(crate) struct Refusals(Shared<Accounts>);

impl Account {
    fn admit(&mut self, budget: &Budget, now: u64, wall: Timestamp) -> bool {
        let has_one = self.spent.admit(budget, now);
        if !has_one {
            self.leave_out(1, now, wall);
        }
        has_one
    }

    fn leave_out(&mut self, count: u64, now: u64, wall: Timestamp) {
        self.left_out += count;
        self.since.get_or_insert(wall);
        self.left_out_at = Some(now);
    }

    /// The refusals to be summed up, once.
    fn take(&mut self, now: u64) -> Option<LeftOut> {
        let since = self.since.take()?;
        self.summed_up = now;
        Some(LeftOut { count: std::mem::take(&mut self.left_out), since })
    }

    /// Whether forgetting the account loses nothing.
    fn is_idle(&self, now: u64) -> bool {
        self.left_out == 0 && self.spent.is_whole(now) && self.left_out_at.is_none_or(|at| now >= at + ALARM_FOR)
    }
}

impl Accounts {
    fn of(&mut self, actor: &Actor, now: u64) -> (AccountKey, &mut Account) {
        let mut key = Some(actor.clone());
        if !self.0.contains_key(&key) && self.0.len() >= ACTORS_MAX {
            self.0.retain(|_, account| !account.is_idle(now));
            if self.0.len() >= ACTORS_MAX {
                key = None;
            }
        }
        (key.clone(), self.0.entry(key).or_default())
    }
}

impl Refusals {
    /// Spends one record of the actor's budget, and takes out what was left out before. None: the
    /// budget is spent, and the refusal is counted instead.
    pub fn admit(&self, actor: &Actor, at: Reading) -> Option<(AccountKey, Option<LeftOut>)> {
        let now = milliseconds(at);
        let budget = if *actor == Actor::Anonymous { ANONYMOUS } else { KNOWN };
        self.0.step(|accounts| {
            let (key, account) = accounts.of(actor, now);
            account.admit(&budget, now, at.wall).then(|| (key, account.take(now)))
        })
    }

    /// Counts refusals that could not be recorded.
    pub fn leave_out(&self, key: AccountKey, left_out: LeftOut, at: Reading) {
        let now = milliseconds(at);
        self.0.step(|accounts| accounts.0.entry(key).or_default().leave_out(left_out.count, now, left_out.since));
    }

    /// Takes out what is due to be summed up. `all`: also what was left out only just now.
    pub fn take_due(&self, all: bool, at: Reading) -> Vec<(AccountKey, LeftOut)> {
        let now = milliseconds(at);
        self.0.step(|accounts| {
            accounts.0.retain(|_, account| !account.is_idle(now));
            let due = accounts.0.iter_mut().filter(|(_, account)| all || now >= account.summed_up + SUMMARY_EVERY);
            due.filter_map(|(key, account)| Some((key.clone(), account.take(now)?))).collect()
        })
    }

    /// Up to `most` actors of whom refusals were left out in the last hour, anonymous ones apart.
    pub fn alarming(&self, most: usize, at: Reading) -> Vec<AccountKey> {
        let now = milliseconds(at);
        self.0.look(|accounts| {
            let known = accounts.0.iter().filter(|(key, account)| {
                *key != &Some(Actor::Anonymous) && account.left_out_at.is_some_and(|at| now < at + ALARM_FOR)
            });
            known.take(most).map(|(key, _)| key.clone()).collect()
        })
    }
}
