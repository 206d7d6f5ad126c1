//! Events of objects that wait for their targets: rows of the catalog, written by the transaction
//! of the change itself.
//!
//! Failure model: an event is durable with its change, and is deleted only after its target took
//! it. A crash in between repeats it: at least once. A change never waits for a target and never
//! fails for one. At `events_pending_max` events of one target further ones are dropped, and the
//! transaction of the change counts them. A rebuild of the catalog loses the events that waited.

use std::sync::Arc;

use stele_catalog::transaction::counter;
use stele_catalog::{Direction, Head, KeyRange, Snapshot, Template, Transaction};

use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::bucket::{Versioning, is_canary};
use crate::model::error::Result;
use crate::model::notification::{NotificationRule, ObjectEvent, TEST_EVENT, TargetLag};
use crate::model::principal::Actor;
use crate::model::version::ETag;
use crate::record::{EVENT_ENDS, EVENTS, decode, encode, fetch, keys};
use crate::state::buckets::Bucket;
use crate::store::{Archive, Store};

/// Events that one page holds at most.
pub(crate) const PAGE_MAX: usize = 1000;
/// Age of the oldest event at which its target is late, in milliseconds.
const LAG_MAX: u64 = 10 * 60 * 1000;
/// Time for which operators are told that a target's events were dropped, in milliseconds.
const DROP_TOLD: u64 = 24 * 60 * 60 * 1000;
/// Buckets that an alarm names.
const NAMED_MAX: usize = 3;
/// Targets that a store reports.
const TARGETS_MAX: usize = 1000;

/// What a change of an object means for those who are told of it.
#[derive(Clone, Debug)]
pub(crate) struct Happened {
    /// Without `s3:`.
    pub name: &'static str,
    pub size: Option<u64>,
    pub etag: Option<ETag>,
}

/// Where and by whose request it happened.
pub(crate) struct Occasion<'a> {
    pub bucket: &'a str,
    pub key: &'a str,
    pub version: Option<String>,
    pub actor: &'a Actor,
    pub origin: Option<String>,
}

impl Store {
    /// Adds the event of a change to its transaction, if a rule of the bucket selects it.
    pub(crate) fn with_event(
        &self,
        transaction: Transaction,
        happened: &Happened,
        occasion: Occasion<'_>,
    ) -> Transaction {
        // The self-test's own object has no events.
        if is_canary(occasion.actor) {
            return transaction;
        }
        let Ok(bucket) = self.buckets().by_name(occasion.bucket) else { return transaction };
        let mut rules = bucket.row.notifications.iter().flatten();
        let Some(rule) = rules.find(|rule| rule.selects(happened.name, occasion.key)) else { return transaction };
        let event = ObjectEvent {
            time: self.wall(),
            name: happened.name.into(),
            rule: rule.id.clone(),
            bucket: occasion.bucket.into(),
            bucket_owner: bucket.row.owner.to_string(),
            region: bucket.row.region.clone(),
            key: occasion.key.into(),
            version: occasion.version.filter(|_| bucket.row.versioning != Versioning::Off),
            size: happened.size,
            etag: happened.etag.as_ref().map(ETag::to_string),
            actor: occasion.actor.to_string(),
            origin: occasion.origin,
        };
        self.with_pending(transaction, &rule.target, &event)
    }

    /// Adds the event that shows a target that it is reached, for each target of new rules.
    pub(crate) fn with_test_events(
        &self,
        mut transaction: Transaction,
        bucket: &Bucket,
        rules: &[NotificationRule],
        actor: String,
    ) -> Transaction {
        let targets: std::collections::BTreeSet<&str> = rules.iter().map(|rule| rule.target.as_str()).collect();
        for target in targets {
            let event = ObjectEvent {
                time: self.wall(),
                name: TEST_EVENT.into(),
                rule: String::new(),
                bucket: bucket.name().into(),
                bucket_owner: bucket.row.owner.to_string(),
                region: bucket.row.region.clone(),
                key: String::new(),
                version: None,
                size: None,
                etag: None,
                actor: actor.clone(),
                origin: None,
            };
            transaction = self.with_pending(transaction, target, &event);
        }
        transaction
    }

    fn with_pending(&self, transaction: Transaction, target: &str, event: &ObjectEvent) -> Transaction {
        if !self.is_admitted(target) {
            let at = encode(&self.wall());
            return transaction.add(EVENT_ENDS, keys::event_dropped(target), 1).put(
                EVENT_ENDS,
                keys::event_last_dropped(target),
                at,
            );
        }
        let key = Template::new().bytes(keys::all_under(target)).number();
        transaction.append((EVENT_ENDS, keys::event_head(target)), EVENTS, key, Template::new().bytes(encode(event)))
    }

    fn is_admitted(&self, target: &str) -> bool {
        if self.event_lag().admit(target).is_some() {
            return true;
        }
        // Transactions that failed are in the count. Before an event is dropped, the catalog is
        // asked.
        match self.snapshot().and_then(|snapshot| pending(&*snapshot, target)) {
            Ok(exact) => {
                self.event_lag().note(target, exact);
                self.event_lag().admit(target).is_some()
            }
            Err(_) => true,
        }
    }
}

/// The number of events that wait. They are deleted in order, so the first and the last number tell
/// it.
pub(crate) fn pending(snapshot: &dyn Snapshot, target: &str) -> Result<u64> {
    let head = Head::decode(snapshot.get(EVENT_ENDS, &keys::event_head(target))?.as_deref())?;
    let first = snapshot.range(EVENTS, &KeyRange::prefix(keys::all_under(target)), 1, Direction::Forward)?;
    let first = first.first().map(|(key, _)| keys::last_number(key));
    Ok(first.map_or(0, |first| head.count.saturating_add(1).saturating_sub(first)))
}

impl Archive {
    /// The oldest events that wait for a target, with their numbers, in order.
    pub fn pending_events(&self, target: &str, limit: usize) -> Result<Vec<(u64, ObjectEvent)>> {
        let range = KeyRange::prefix(keys::all_under(target));
        let page = self.store().snapshot()?.range(EVENTS, &range, limit.min(PAGE_MAX), Direction::Forward)?;
        page.iter().map(|(key, value)| Ok((keys::last_number(key), decode(EVENTS, key, value)?))).collect()
    }

    /// Deletes the events of a target up to this number, which it took.
    pub async fn delivered(&self, target: &str, through: u64) -> Result<()> {
        let store: Arc<Store> = self.store();
        store.writable()?;
        let range = KeyRange::prefix(keys::all_under(target)).below(keys::under(target, through.saturating_add(1)));
        let page = store.snapshot()?.range(EVENTS, &range, PAGE_MAX, Direction::Forward)?;
        let transaction = Transaction::new().with_reserve();
        let transaction = page.into_iter().fold(transaction, |transaction, (key, _)| transaction.delete(EVENTS, key));
        store.catalog().commit(transaction).await?;
        let exact = pending(&*store.snapshot()?, target)?;
        store.event_lag().note(target, exact);
        Ok(())
    }

    /// The alarm about targets that lag, or whose events were dropped within a day.
    pub(crate) fn notification_alarm(&self) -> Option<Alarm> {
        let (now, most) = (self.store().wall().0, self.store().event_lag().most());
        let told: Vec<String> = self.target_lags().ok()?.iter().filter_map(|lag| trouble(lag, now)).collect();
        let limit = format!("at {most} of one target, further ones are dropped");
        (!told.is_empty()).then(|| Alarm::new(AlarmKind::Notifications, format!("{}; {limit}", told.join("; "))))
    }

    /// How far each target is behind that ever had an event.
    pub fn target_lags(&self) -> Result<Vec<TargetLag>> {
        let snapshot = self.store().snapshot()?;
        let heads = KeyRange::prefix(keys::event_head(""));
        let page = snapshot.range(EVENT_ENDS, &heads, TARGETS_MAX, Direction::Forward)?;
        let mut lags = Vec::new();
        for (key, _) in page {
            let target = String::from_utf8_lossy(key.get(1..).unwrap_or_default()).into_owned();
            let first = snapshot.range(EVENTS, &KeyRange::prefix(keys::all_under(&target)), 1, Direction::Forward)?;
            let oldest = first.first().map(|(key, value)| decode::<ObjectEvent>(EVENTS, key, value)).transpose()?;
            lags.push(TargetLag {
                pending: pending(&*snapshot, &target)?,
                oldest: oldest.map(|event| event.time),
                dropped: counter(snapshot.get(EVENT_ENDS, &keys::event_dropped(&target))?.as_deref())?.unsigned_abs(),
                configured: self.store().event_lag().has_sender(&target),
                buckets: self.buckets_telling(&target),
                last_dropped: fetch(&*snapshot, EVENT_ENDS, &keys::event_last_dropped(&target))?,
                target,
            });
        }
        Ok(lags)
    }

    /// The buckets whose rules name a target.
    fn buckets_telling(&self, target: &str) -> Vec<String> {
        let names = |bucket: &Arc<Bucket>| bucket.row.notifications.iter().flatten().any(|rule| rule.target == target);
        let buckets = self.store().buckets().all();
        buckets.iter().filter(|bucket| names(bucket)).map(|bucket| bucket.name().to_owned()).collect()
    }
}

/// What operators are told of a target. An event that is later than the clock waits since before
/// the clock was set back.
fn trouble(lag: &TargetLag, now: u64) -> Option<String> {
    let late = lag.oldest.filter(|oldest| oldest.0.abs_diff(now) >= LAG_MAX);
    let dropped = lag.last_dropped.filter(|last| last.0.abs_diff(now) < DROP_TOLD);
    let unknown = !lag.configured && (lag.pending > 0 || !lag.buckets.is_empty());
    if late.is_none() && dropped.is_none() && !unknown {
        return None;
    }
    let nobody = match unknown {
        true => format!(
            ", and the configuration has no such target: `stele notifications forget {}` deletes them{}",
            lag.target,
            if lag.buckets.is_empty() { String::new() } else { format!("; rules of {} name it", listed(&lag.buckets)) }
        ),
        false => String::new(),
    };
    let since = lag.oldest.map_or_else(String::new, |oldest| format!(" since {oldest}"));
    let last = lag.last_dropped.map_or_else(String::new, |last| format!(", the last at {last}"));
    Some(format!("{}: {} events wait{since}, {} were dropped{last}{nobody}", lag.target, lag.pending, lag.dropped))
}

/// Some of the names, and the number of the others.
fn listed(names: &[String]) -> String {
    let first: Vec<String> = names.iter().take(NAMED_MAX).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
