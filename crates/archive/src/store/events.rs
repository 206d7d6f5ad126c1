//! Events of objects that wait for their targets: rows of the catalog, written by the transaction of the change itself.
//!
//! Failure model: an event is durable with its change, and is deleted only after its target took it. A crash in between
//! repeats it: at least once. A change never waits for a target and never fails for one. At [`EVENTS_PENDING_MAX`]
//! events of one target further ones are dropped, and the transaction of the change counts them. A rebuild of the
//! catalog loses the events that waited.

use std::sync::Arc;

use stele_catalog::transaction::counter;
use stele_catalog::{Direction, Head, KeyRange, Snapshot, Template, Transaction};

use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::bucket::{CANARY_KEY, Versioning};
use crate::model::error::Result;
use crate::model::notification::{EVENTS_PENDING_MAX, NotificationRule, ObjectEvent, TEST_EVENT, TargetLag};
use crate::model::version::ETag;
use crate::record::{EVENT_ENDS, EVENTS, decode, encode, keys};
use crate::state::buckets::Bucket;
use crate::store::{Archive, Store};

/// Events that one page holds at most.
const PAGE_MAX: usize = 1000;
/// Age of the oldest event at which its target is late, in milliseconds.
const LAG_MAX: u64 = 10 * 60 * 1000;
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
    pub actor: String,
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
        if occasion.key == CANARY_KEY {
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
            actor: occasion.actor,
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
            return transaction.add(EVENT_ENDS, keys::event_dropped(target), 1);
        }
        let key = Template::new().bytes(keys::all_under(target)).number();
        transaction.append((EVENT_ENDS, keys::event_head(target)), EVENTS, key, Template::new().bytes(encode(event)))
    }

    fn is_admitted(&self, target: &str) -> bool {
        if self.event_lag().admit(target, EVENTS_PENDING_MAX).is_some() {
            return true;
        }
        // Transactions that failed are in the count. Before an event is dropped, the catalog is asked.
        match self.snapshot().and_then(|snapshot| pending(&*snapshot, target)) {
            Ok(exact) => {
                self.event_lag().note(target, exact);
                self.event_lag().admit(target, EVENTS_PENDING_MAX).is_some()
            }
            Err(_) => true,
        }
    }
}

/// The number of events that wait. They are deleted in order, so the first and the last number tell it.
fn pending(snapshot: &dyn Snapshot, target: &str) -> Result<u64> {
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

    /// The alarm about targets that lag.
    pub(crate) fn notification_alarm(&self) -> Option<Alarm> {
        let now = self.store().wall();
        let lags = self.target_lags().ok()?;
        let late = lags.iter().filter(|lag| lag.oldest.is_some_and(|oldest| oldest.0.saturating_add(LAG_MAX) <= now.0));
        let told: Vec<String> = late
            .map(|lag| {
                let oldest = lag.oldest.unwrap_or_default();
                format!("{}: {} events wait since {oldest}, {} were dropped", lag.target, lag.pending, lag.dropped)
            })
            .collect();
        let limit = format!("at {EVENTS_PENDING_MAX} of one target, further ones are dropped");
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
                target,
            });
        }
        Ok(lags)
    }
}
