//! Work that nobody waits for, done in steps when the caller says so: nothing here spawns or sleeps.
//!
//! The caller calls [`Archive::step`] every second or so; a step does a bounded amount of what is due and says whether more
//! is. Dropping its future between awaits is safe: each piece of work is a transaction of its own, and what was begun is
//! found again. Expiration goes by the compliance clock, and not at all while that is frozen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stele_catalog::{Direction, KeyRange, Transaction};

use crate::Archive;
use crate::audit::{Action, Event, Refusals};
use crate::bucket::ExpiryAction;
use crate::committing::Abandoned;
use crate::deletion::Cause;
use crate::error::{ArchiveError, Result};
use crate::lookup;
use crate::pairing::Paired;
use crate::principal::{Caller, Role};
use crate::record::audit::SealedRow;
use crate::record::content::Stream;
use crate::record::disposal::DisposalRow;
use crate::record::settings::{CLOCK, IdentityNote};
use crate::record::tombstone::TombstoneRow;
use crate::record::version::VersionRef;
use crate::record::{RETAINED, SEGMENTS, SETTINGS, decode, encode, keys};
use crate::restating::Doubted;
use crate::space::header::Kind;
use crate::store::{Store, locked};
use crate::time::Timestamp;

/// Versions that one step of expiration looks at.
const EXPIRY_PAGE: usize = 200;
/// Disposals of one step.
const DISPOSALS: usize = 256;
/// Milliseconds of elapsed time between writings of clock and counts, between identity notes, and between passes of
/// expiration.
const WRITE_EVERY: u64 = 30_000;
const NOTE_EVERY: u64 = 6 * 3_600_000;
const EXPIRE_EVERY: u64 = 300_000;
/// Between attempts to destroy keys whose entries could not be overwritten.
const RETRY_EVERY: u64 = 300_000;
/// Sealed segments with at most this share still needed are reclaimed; all of them while free ones are few.
const POOR: u32 = 40;
const POOR_WHEN_SHORT: u32 = 80;
const SHORT: usize = 8;

/// What background work remembers between steps.
#[derive(Default)]
pub(crate) struct Work {
    /// Short disposals, slot and object, to be made free.
    pub settled: Mutex<Vec<(u64, u64)>>,
    /// Disposals of long content.
    pub long: Mutex<VecDeque<(u64, DisposalRow)>>,
    /// Streams that no row names any more.
    pub streams: Mutex<VecDeque<Stream>>,
    /// Disposals whose key entries could not be overwritten: slot, object, and why.
    pub stuck: Mutex<BTreeMap<u64, (u64, String)>>,
    /// Commits whose requests went away before they answered, and word of them.
    pub abandoned: Mutex<Abandoned>,
    pub abandonment: tokio::sync::Notify,
    /// What is to be noted again, since a change of it was noted and then refused.
    pub doubted: Mutex<BTreeSet<Doubted>>,
    /// Certificates whose notes there was no room for.
    pub unnoted: Mutex<VecDeque<(VersionRef, TombstoneRow)>>,
    pub refusals: Mutex<Refusals>,
    /// The end of the audit log as this session last signed it, and why it signs no more.
    pub sealed: Mutex<Option<SealedRow>>,
    pub doubt: Mutex<Option<String>>,
    /// Alarms of the opening, for the first step to report.
    pub unreported: Mutex<Vec<Alarm>>,
    /// Segments that reclamation could not empty in this session.
    pub unmovable: Mutex<BTreeSet<u32>>,
    /// Where expiration goes on, and when its next pass may begin.
    expiry: Mutex<(Option<Bytes>, u64)>,
    written: Mutex<u64>,
    noted: Mutex<u64>,
    /// Steps do not overlap. True: the last one was dropped midway.
    stepping: futures_util::lock::Mutex<bool>,
    retried: Mutex<u64>,
    pub witnessed: Mutex<u64>,
    /// Witnesses are written one after the other.
    pub witnessing: futures_util::lock::Mutex<()>,
}

/// What an alarm is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlarmKind {
    /// The compliance clock is frozen.
    Clock,
    /// Versions that have expired could not be looked after.
    Expiration,
    /// No room, or reclamation cannot make any.
    Space,
    /// Something on the data volume cannot be read or written.
    Damage,
    /// Keys of deleted versions are not destroyed yet.
    Disposal,
    /// The audit log is not the one that was signed.
    Audit,
    /// Somebody waits to become a retention officer without an officer's approval.
    Officers,
    /// Refusals are counted instead of recorded.
    Refusals,
    /// A rebuild could not prove the latest state of what existed: it is held until two officers decide.
    Rebuild,
    /// Catalog and data volume do not belong together.
    Pairing,
}

/// Something that an operator should know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Alarm {
    pub kind: AlarmKind,
    pub message: String,
}

impl AlarmKind {
    pub fn name(self) -> &'static str {
        match self {
            AlarmKind::Clock => "clock",
            AlarmKind::Expiration => "expiration",
            AlarmKind::Space => "space",
            AlarmKind::Damage => "damage",
            AlarmKind::Disposal => "disposal",
            AlarmKind::Audit => "audit",
            AlarmKind::Officers => "officers",
            AlarmKind::Refusals => "refusals",
            AlarmKind::Rebuild => "rebuild",
            AlarmKind::Pairing => "pairing",
        }
    }
}

impl Alarm {
    pub(crate) fn new(kind: AlarmKind, message: impl Into<String>) -> Alarm {
        Alarm { kind, message: message.into() }
    }

    /// One word.
    pub fn kind(&self) -> &'static str {
        self.kind.name()
    }
}

/// What one step did.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepReport {
    /// Something an operator should know, once.
    pub alarms: Vec<Alarm>,
    pub expired: u64,
    pub notified: u64,
    /// Keys destroyed and content cleared away after deletions.
    pub disposed: u64,
    /// Records moved out of segments, and segments freed.
    pub moved: u64,
    pub freed: u64,
    pub checkpoints: u64,
    /// The volumes' protection was lifted: nothing is retained any more.
    pub unprotected: bool,
    /// More is due: step again without waiting.
    pub more: bool,
}

/// The compliance clock, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClockStatus {
    pub compliance_time: String,
    pub wall_time: String,
    /// Why expiration is frozen.
    pub frozen: Option<String>,
}

/// Space, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpaceStatus {
    pub segment_bytes: u64,
    pub segments: u32,
    pub free: u32,
    pub sealed: u32,
    pub key_segments: u32,
    /// Bytes in segments that are still needed, approximately.
    pub live: u64,
    /// Segments that hold something unreadable, and therefore stay.
    pub unmovable: Vec<u32>,
}

impl Archive {
    /// Does a bounded amount of background work.
    pub async fn step(&self) -> Result<StepReport> {
        let store = &self.store();
        store.writable()?;
        let mut midway = store.work.stepping.lock().await;
        if *midway {
            // What that step had asked the catalog for takes effect before this one looks.
            store.barrier().await?;
        }
        *midway = true;
        let mut report = StepReport::default();
        store.compliance_now();
        report.alarms.append(&mut locked(&store.work.unreported));
        report.alarms.extend(store.alarm_clock().await?);
        store.settle_abandoned().await?;
        if store.due(&store.work.retried, RETRY_EVERY) {
            store.retry_stuck();
        }
        let stuck = locked(&store.work.stuck).len();
        report.disposed = store.finish_disposals(DISPOSALS).await? as u64;
        if locked(&store.work.stuck).len() > stuck {
            report.alarms.extend(store.disposal_alarm());
        }
        report.more |= report.disposed as usize >= DISPOSALS;
        store.expire(&mut report).await?;
        match store.seal_step().await {
            Ok((checkpoints, alarm)) => {
                report.checkpoints = checkpoints;
                report.alarms.extend(alarm);
                store.renew_witness(false).await?;
            }
            // Checkpoints go to the data volume too; they wait for reclamation to make room.
            Err(ArchiveError::NoSpace(message)) => {
                report.alarms.push(Alarm::new(AlarmKind::Space, format!("audit checkpoint: {message}")));
            }
            Err(error) => return Err(error),
        }
        store.reclaim_step(&mut report).await?;
        store.note_left_tombstones().await?;
        store.restate().await?;
        store.end_requests().await?;
        store.summarise_refusals(false).await;
        report.unprotected = store.unprotect_if_free().await?;
        store.write_down().await?;
        *midway = false;
        Ok(report)
    }

    /// What is wrong now and stays so until something is done about it.
    pub fn standing_alarms(&self) -> Vec<Alarm> {
        let store = &self.store();
        let mut alarms = Vec::new();
        store.compliance_now();
        if let Some(reason) = locked(&store.clock).frozen() {
            let next = "expiration is frozen until a retention officer accepts the clock";
            alarms.push(Alarm::new(AlarmKind::Clock, format!("{reason}; {next}")));
        }
        alarms.extend(locked(&store.work.doubt).as_ref().map(|finding| Alarm::new(AlarmKind::Audit, finding)));
        alarms.extend(store.disposal_alarm());
        alarms.extend(store.officer_alarms());
        alarms.extend(store.refusal_alarm());
        if let Paired::CatalogOlder(why) | Paired::No(why) = &store.paired {
            alarms.push(Alarm::new(AlarmKind::Pairing, why));
        }
        if let Some(doubt) = store.doubt() {
            let places = doubt.places.join("; ");
            let message = format!(
                "the catalog was rebuilt at {} while something could not be read ({places}); all that existed is held under \
                 the matter `rebuild`, its access keys are suspended, and nothing is reclaimed",
                doubt.since
            );
            alarms.push(Alarm::new(AlarmKind::Rebuild, message));
        }
        let unmovable = locked(&store.work.unmovable).clone();
        if !unmovable.is_empty() {
            let numbers: Vec<String> = unmovable.iter().map(ToString::to_string).collect();
            let numbers = numbers.join(", ");
            let message = format!("segments {numbers} hold something that cannot be read; they stay, scrub the pool");
            alarms.push(Alarm::new(AlarmKind::Damage, message));
        }
        let bad = store.keys.bad_blocks();
        if bad > 0 {
            let message = format!("{bad} blocks of the key table cannot be read or written; new keys go elsewhere");
            alarms.push(Alarm::new(AlarmKind::Damage, message));
        }
        alarms
    }

    pub fn clock(&self) -> ClockStatus {
        let compliance_time = self.store().compliance_now().to_string();
        let frozen = locked(&self.store().clock).frozen().map(str::to_string);
        ClockStatus { compliance_time, wall_time: self.store().wall().to_string(), frozen }
    }

    /// A retention officer has looked at the alarm: expiration goes on. The clock does not step.
    pub async fn accept_clock(&self, caller: &Caller) -> Result<()> {
        self.store().writable()?;
        let allowed = caller.require_role(&[Role::RetentionOfficer], Action::ClockAccept);
        self.store().audited(allowed, || Event::new(caller, Action::ClockAccept)).await?;
        let event = Event::new(caller, Action::ClockAccept).detail("expiration goes on".into());
        self.store().change_clock(event, |clock| clock.accept()).await
    }

    pub fn is_read_only(&self) -> bool {
        self.store().read_only
    }

    /// How many keys were destroyed since the archive was opened.
    pub fn keys_destroyed(&self) -> u64 {
        self.store().keys.destroyed()
    }

    pub fn space(&self) -> SpaceStatus {
        use crate::record::segment::SegmentUse;
        let segments = &self.store().segments;
        let rows = segments.rows();
        let count = |wanted: fn(&SegmentUse) -> bool| rows.values().filter(|row| wanted(&row.usage)).count() as u32;
        SpaceStatus {
            segment_bytes: segments.size.into(),
            segments: segments.count(),
            free: segments.free() as u32,
            sealed: count(|usage| *usage == SegmentUse::Sealed),
            key_segments: count(|usage| matches!(usage, SegmentUse::Keys(_))) + 1,
            live: rows.values().map(|row| u64::try_from(row.live).unwrap_or(0)).sum(),
            unmovable: locked(&self.store().work.unmovable).iter().copied().collect(),
        }
    }
}

impl Store {
    /// Transactions take effect in order: once this has answered, so have all before it.
    pub(crate) async fn barrier(&self) -> Result<()> {
        let clock = locked(&self.clock).row();
        let barrier = Transaction::new().with_reserve().put(SETTINGS, CLOCK, encode(&clock));
        self.catalog.commit(barrier).await?;
        Ok(())
    }

    /// Milliseconds of elapsed time.
    fn elapsed(&self) -> u64 {
        self.surroundings.now().monotonic.0 / 1_000_000
    }

    /// Whether it is time again for something done every so often.
    pub(crate) fn due(&self, last: &Mutex<u64>, every: u64) -> bool {
        let now = self.elapsed();
        let mut last = locked(last);
        let due = now >= *last + every;
        if due {
            *last = now;
        }
        due
    }

    async fn change_clock(&self, event: Event, change: impl FnOnce(&mut crate::clock::ComplianceClock)) -> Result<()> {
        let (row, frozen) = {
            let mut clock = locked(&self.clock);
            let frozen = clock.frozen().map(str::to_string);
            change(&mut clock);
            (clock.row(), frozen)
        };
        let transaction = Transaction::new().with_reserve().put(SETTINGS, CLOCK, encode(&row));
        let recorded = self.record(transaction, event).await.map(drop);
        if let (Err(_), Some(reason)) = (&recorded, frozen) {
            // Nothing is lifted without its record.
            locked(&self.clock).freeze(reason);
        }
        recorded
    }

    /// Signs the end of the audit log. Answers how many checkpoints were written, and an alarm the first time it refuses.
    pub(crate) async fn seal_step(&self) -> Result<(u64, Option<Alarm>)> {
        match self.seal_audit().await? {
            Ok(checkpoints) => {
                *locked(&self.work.doubt) = None;
                Ok((checkpoints as u64, None))
            }
            Err(finding) => {
                let message = format!("audit log: {finding}; nothing more of it is signed, run `stele audit verify`");
                let known = locked(&self.work.doubt).replace(message.clone());
                Ok((0, (known.as_ref() != Some(&message)).then(|| Alarm::new(AlarmKind::Audit, message))))
            }
        }
    }

    fn disposal_alarm(&self) -> Option<Alarm> {
        let stuck = locked(&self.work.stuck);
        let (slot, (object, reason)) = stuck.first_key_value()?;
        let message = format!(
            "keys of {} deleted versions are not destroyed yet, the first that of object {object} in slot {slot}: {reason}; \
             tried again every few minutes, repair the pool",
            stuck.len()
        );
        Some(Alarm::new(AlarmKind::Disposal, message))
    }

    /// Records a clock alarm that nobody was told of yet, and passes it on.
    pub(crate) async fn alarm_clock(&self) -> Result<Option<Alarm>> {
        let alarm = locked(&self.clock).take_alarm();
        if let Some(alarm) = &alarm {
            tracing::warn!("compliance clock: {alarm}; expiration is frozen until a retention officer accepts it");
            let event = Event::new(&Caller::system("clock"), Action::ClockAlarm).detail(alarm.clone());
            let row = locked(&self.clock).row();
            let transaction = Transaction::new().with_reserve().put(SETTINGS, CLOCK, encode(&row));
            self.record(transaction, event).await?;
        }
        Ok(alarm.map(|reason| Alarm::new(AlarmKind::Clock, reason)))
    }

    /// Notes identity and clock on the data volume, for a rebuild.
    pub(crate) async fn note_identity(&self) -> Result<()> {
        let identity = locked(&self.identity).clone();
        let clock = locked(&self.clock).row();
        match self.note(Kind::Identity, None, 0, &IdentityNote { identity, clock }).await {
            // It stands in the catalog; only a rebuild needs it, and it is noted again in some hours.
            Err(error @ (ArchiveError::NoSpace(_) | ArchiveError::Damaged { .. })) => {
                tracing::warn!("the store's identity could not be noted on the data volume: {error}");
                Ok(())
            }
            noted => noted.map(drop),
        }
    }

    /// Writes the clock and the segments' counts now and then. Both may be behind after a crash: the clock then shows less,
    /// and counts are advice.
    async fn write_down(&self) -> Result<()> {
        if self.due(&self.work.written, WRITE_EVERY) {
            let clock = locked(&self.clock).row();
            let mut transaction = Transaction::new().with_reserve().put(SETTINGS, CLOCK, encode(&clock));
            for (number, row) in self.segments.take_dirty() {
                transaction = transaction.put(SEGMENTS, keys::short(number), encode(&row));
            }
            self.catalog.commit(transaction).await?;
        }
        if self.due(&self.work.noted, NOTE_EVERY) {
            self.note_identity().await?;
            self.note_audit_end().await?;
        }
        Ok(())
    }

    /// Looks at the next versions whose retention has passed, and does what their buckets say.
    async fn expire(self: &Arc<Store>, report: &mut StepReport) -> Result<()> {
        let now = self.compliance_now();
        if locked(&self.clock).frozen().is_some() || self.doubt().is_some() {
            return Ok(());
        }
        let (cursor, next_pass) = locked(&self.work.expiry).clone();
        if cursor.is_none() && self.elapsed() < next_pass {
            return Ok(());
        }
        let past = KeyRange::all().below(keys::numbers(now.0.saturating_add(1), 0));
        let range = match cursor {
            Some(cursor) => past.after(cursor),
            None => past,
        };
        let page = self.snapshot()?.range(RETAINED, &range, EXPIRY_PAGE, Direction::Forward)?;
        let more = page.len() == EXPIRY_PAGE;
        *locked(&self.work.expiry) =
            (page.last().filter(|_| more).map(|(key, _)| key.clone()), self.elapsed() + EXPIRE_EVERY);
        report.more |= more;
        for (key, value) in &page {
            let at: VersionRef = decode(RETAINED, key, value)?;
            match self.expire_version(&at, now).await {
                Ok(Some(ExpiryAction::Delete)) => report.expired += 1,
                Ok(Some(ExpiryAction::Notify)) => report.notified += 1,
                Ok(_) => {}
                Err(error @ ArchiveError::Stopped(_)) => return Err(error),
                Err(error) => {
                    let message = format!("expiration of `{}`: {error}", at.key);
                    report.alarms.push(Alarm::new(AlarmKind::Expiration, message));
                }
            }
        }
        Ok(())
    }

    async fn expire_version(self: &Arc<Store>, at: &VersionRef, now: Timestamp) -> Result<Option<ExpiryAction>> {
        let caller = Caller::system("expiration");
        let Some(bucket) = self.buckets.by_number(at.bucket) else { return Ok(None) };
        let action = bucket.row.expiry;
        if action == ExpiryAction::Keep {
            return Ok(None);
        }
        let lock = self.lock(at.bucket, &at.key).await?;
        let Some(found) = lookup::referred(&*self.snapshot()?, at)? else { return Ok(None) };
        let passed = found.row.retention.filter(|retention| retention.until <= now);
        let (Some(retention), false) = (passed, found.row.hold) else { return Ok(None) };
        let event = Event::new(&caller, Action::Expire).object(bucket.name(), &at.key).version(found.id());
        match action {
            ExpiryAction::Notify if found.row.notified == Some(true) => Ok(None),
            ExpiryAction::Notify => {
                let event = event.detail(format!("its {} retention ended {}", retention.mode, retention.until));
                self.change_version(&bucket, &at.key, &found, lock, event, |row| row.notified = Some(true)).await?;
                Ok(Some(action))
            }
            _ => {
                let (transaction, removed) =
                    self.remove(Transaction::new(), &caller, &bucket, &at.key, &found, Cause::Expired).await?;
                let transaction = bucket.count(transaction, -1, -(found.row.size as i64));
                let event = event.detail(format!(
                    "disposed of: {} bytes, blake3 {}, stored {}, {} until {}, compliance time {now}",
                    found.row.size,
                    found.row.fingerprint(),
                    found.row.modified,
                    retention.mode,
                    retention.until
                ));
                self.commit_removal(transaction, event, removed, &bucket, &at.key, &found, lock).await?;
                Ok(Some(action))
            }
        }
    }

    /// Frees what can be freed and reclaims one segment, if one is poor enough.
    async fn reclaim_step(self: &Arc<Store>, report: &mut StepReport) -> Result<()> {
        // What a rebuild with losses did not find may lie anywhere.
        if self.doubt().is_some() {
            return Ok(());
        }
        report.freed += self.free_retired().await? as u64;
        let short = self.segments.free() < SHORT;
        let mut except = locked(&self.work.unmovable).clone();
        // What is still being written there would not be seen.
        except.extend(self.appender.writing());
        let Some(segment) = self.segments.poorest(if short { POOR_WHEN_SHORT } else { POOR }, &except) else {
            return Ok(());
        };
        let reclaimed = match self.reclaim(segment).await {
            Err(ArchiveError::NoSpace(message)) => {
                report.alarms.push(Alarm::new(AlarmKind::Space, format!("reclamation: {message}")));
                return Ok(());
            }
            other => other?,
        };
        report.moved += reclaimed.kept;
        if !reclaimed.retired {
            report.alarms.push(Alarm::new(
                AlarmKind::Damage,
                format!("segment {segment} holds something that cannot be read; it stays as it is, scrub the pool"),
            ));
        }
        report.freed += self.free_retired().await? as u64;
        report.more = true;
        Ok(())
    }
}
