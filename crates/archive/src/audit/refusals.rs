//! How much of the log refusals may take: a budget for each actor, beyond which they are counted and summed up.
//!
//! Whoever reaches a port, and whoever has a key, can be refused as fast as requests come. Each actor has a burst and then a
//! rate; what is beyond is counted, and the count is recorded with the actor's next refusal, or by background work, or when
//! the store is closed. Refusals never use the catalog's reserve: that is for deletions, holds, revocations and the clock.
//!
//! Failure model: a crash loses the counts since the last summary, of some minutes at most, and no record.

use std::collections::BTreeMap;

use super::*;
use crate::background::{Alarm, AlarmKind};
use crate::store::locked;

/// A budget: records at once, and milliseconds for one more.
struct Budget {
    burst: u64,
    every: u64,
}

/// Of all that nobody knows together: 14,400 a day.
const STRANGERS: Budget = Budget { burst: 100, every: 6_000 };
/// Of each key and each user of this machine: 8,640 a day.
const KNOWN: Budget = Budget { burst: 1_000, every: 10_000 };
/// Actors with an account; what more there are share one.
const ACTORS_MAX: usize = 1_024;
/// Milliseconds between two summaries of an actor.
const SUMMARY_EVERY: u64 = 300_000;
/// How long an alarm stands after refusals were last left out.
const ALARM_FOR: u64 = 3_600_000;

/// What is known of one actor's refusals. Times are milliseconds of elapsed time.
#[derive(Default)]
struct Account {
    /// Spent of the burst, in milliseconds of waiting.
    spent: u64,
    last: u64,
    left_out: u64,
    since: Option<Timestamp>,
    summed_up: u64,
    left_out_at: Option<u64>,
}

/// What every actor has spent.
#[derive(Default)]
pub(crate) struct Refusals {
    accounts: BTreeMap<Option<Actor>, Account>,
}

impl Account {
    fn admit(&mut self, budget: &Budget, now: u64, wall: Timestamp) -> bool {
        self.spent = self.spent.saturating_sub(now.saturating_sub(self.last));
        self.last = now;
        if self.spent + budget.every > budget.burst * budget.every {
            self.leave_out(1, now, wall);
            return false;
        }
        self.spent += budget.every;
        true
    }

    fn leave_out(&mut self, count: u64, now: u64, wall: Timestamp) {
        self.left_out += count;
        self.since.get_or_insert(wall);
        self.left_out_at = Some(now);
    }

    /// What is to be said of those left out, once.
    fn take(&mut self, now: u64) -> Option<(u64, Timestamp)> {
        let since = self.since.take()?;
        self.summed_up = now;
        Some((std::mem::take(&mut self.left_out), since))
    }

    /// Nothing would be lost by forgetting it.
    fn is_idle(&self, now: u64) -> bool {
        self.left_out == 0
            && self.spent <= now.saturating_sub(self.last)
            && self.left_out_at.is_none_or(|at| now >= at + ALARM_FOR)
    }
}

impl Refusals {
    /// The account of an actor. None: the one that those share who came when there were too many.
    fn account(&mut self, actor: &Actor, now: u64) -> (Option<Actor>, &mut Account) {
        let mut key = Some(actor.clone());
        if !self.accounts.contains_key(&key) && self.accounts.len() >= ACTORS_MAX {
            self.accounts.retain(|_, account| !account.is_idle(now));
            if self.accounts.len() >= ACTORS_MAX {
                key = None;
            }
        }
        (key.clone(), self.accounts.entry(key).or_default())
    }
}

impl Store {
    /// Records a refusal within its actor's budget, and never on the reserve. What is left out is counted.
    pub(crate) async fn record_refusal(&self, mut event: Event) -> Result<()> {
        let reading = self.surroundings.now();
        let now = reading.monotonic.0 / 1_000_000;
        let budget = if event.actor == Actor::Anonymous { STRANGERS } else { KNOWN };
        let (key, before) = {
            let mut refusals = locked(&self.work.refusals);
            let (key, account) = refusals.account(&event.actor, now);
            if !account.admit(&budget, now, reading.wall) {
                return Ok(());
            }
            (key, account.take(now))
        };
        if let Some((left_out, _)) = before {
            let said = event.detail.take().map_or_else(String::new, |detail| format!("{detail}; "));
            event.detail =
                Some(format!("{left_out} refusals before this were left out; {said}").trim_end_matches("; ").into());
        }
        let recorded = self.record(Transaction::new(), event).await.map(drop);
        if recorded.is_err() {
            let mut refusals = locked(&self.work.refusals);
            let account = refusals.accounts.entry(key).or_default();
            let (count, since) = before.unwrap_or((0, reading.wall));
            account.leave_out(count + 1, now, since);
        }
        recorded
    }

    /// Records how many refusals of each actor were left out, where that was some time ago. `all`: where it was not, too.
    pub(crate) async fn summarise_refusals(&self, all: bool) {
        let reading = self.surroundings.now();
        let now = reading.monotonic.0 / 1_000_000;
        let due: Vec<(Option<Actor>, (u64, Timestamp))> = {
            let mut refusals = locked(&self.work.refusals);
            refusals.accounts.retain(|_, account| !account.is_idle(now));
            let due =
                refusals.accounts.iter_mut().filter(|(_, account)| all || now >= account.summed_up + SUMMARY_EVERY);
            due.filter_map(|(key, account)| Some((key.clone(), account.take(now)?))).collect()
        };
        for (key, (left_out, since)) in due {
            let caller = Caller::system("audit");
            let whose = key.as_ref().map_or_else(|| "others".into(), Actor::to_string);
            let detail = format!("{left_out} refusals of {whose} from {since} to {} were left out", reading.wall);
            let event = Event::new(&caller, Action::Summary).detail(detail);
            if let Err(failure) = self.record(Transaction::new(), event).await {
                tracing::warn!("refusals that were left out could not be summed up: {failure}");
                let mut refusals = locked(&self.work.refusals);
                refusals.accounts.entry(key).or_default().leave_out(left_out, now, since);
            }
        }
    }

    /// Stands for an hour after refusals of somebody known were left out: a key that is refused that often does harm.
    pub(crate) fn refusal_alarm(&self) -> Option<Alarm> {
        let now = self.surroundings.now().monotonic.0 / 1_000_000;
        let refusals = locked(&self.work.refusals);
        let known = refusals.accounts.iter().filter(|(key, account)| {
            *key != &Some(Actor::Anonymous) && account.left_out_at.is_some_and(|at| now < at + ALARM_FOR)
        });
        let names: Vec<String> =
            known.take(10).map(|(key, _)| key.as_ref().map_or_else(|| "others".into(), Actor::to_string)).collect();
        (!names.is_empty()).then(|| {
            let message = format!("more is refused to {} than the audit log records one by one", names.join(", "));
            Alarm::new(AlarmKind::Refusals, message)
        })
    }
}
