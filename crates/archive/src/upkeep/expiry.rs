//! Expiration: the versions whose retention has passed, and the action that their buckets set for
//! them.
//!
//! Expiration goes by the compliance clock, and stops while that is frozen.
//!
//! A pass goes through the retained versions in the order of their ends. How far it has come is in
//! the catalog, so that it passes by a version that stays (`keep`, held, notified of) once, also
//! over restarts. Later turns go on from there. What may bring a version back that the pass has
//! gone by:
//!
//! - A change of the version's holds, class or retention. Its transaction puts the version into a
//!   table of those to judge again, with which each turn begins.
//! - A failure. The version is put there with the next place of the pass.
//! - A change of a bucket's action. Its transaction makes the pass begin with the first version.
//! - Anything else: the pass begins with the first version once a day. An error in the above delays
//!   a disposal by a day.
//!
//! All of this only decides when a version is judged. [`Store::prepare_end`] judges it, by the rows
//! under its key's lock, and [`Store::commit_end`] ends it. Only versions that are deleted or
//! notified of count against the rate; those looked at are bounded by the page.
//!
//! Many versions are judged, noted and committed at once, each by itself under its key's lock. What
//! may come between note and commit:
//!
//! - A hold, an extension or another class waits for the key's lock, and finds the version gone.
//!   One that was under way before changed the row, which the commit requires unchanged. So does a
//!   change of the bucket's settings.
//! - A pause changes the store's identity, which the commit requires unchanged too.
//! - A freeze of the clock is looked for just before the commit. Then the version stays, and its
//!   note says nothing: a rebuild believes the certificate of a disposal only of an object that is
//!   gone.
//!
//! Commits that were submitted before a pause or a freeze take place. Each version looks anew.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use stele_catalog::{CatalogError, Direction, KeyRange, Snapshot, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::bucket::{ExpiryAction, is_canary};
use crate::model::checksum::to_hex;
use crate::model::error::{ArchiveError, Result};
use crate::model::notification::RETENTION_ENDED;
use crate::model::principal::Caller;
use crate::model::time::Timestamp;
use crate::record::bucket::BucketRow;
use crate::record::settings::{EXPIRY, ExpiryRow};
use crate::record::version::{VersionRef, VersionRow};
use crate::record::{BUCKETS, EXPIRE_AGAIN, RETAINED, SETTINGS, VERSIONS, decode, encode, keys};
use crate::removal::Removed;
use crate::retention::rules::Cause;
use crate::state::buckets::Bucket;
use crate::state::key_locks::KeyLock;
use crate::state::upkeep::ExpiryStage;
use crate::store::lookup::Found;
use crate::store::{Store, lookup};
use crate::upkeep::background::StepReport;

/// Versions that one step of expiration looks at, in its pass and among those to judge again.
const LOOKED_MAX: usize = 1000;
const AGAIN_MAX: usize = 200;
/// Versions that one step tries to delete or notify of, and those under way at once.
const TRIED_MAX: usize = 1000;
const TOGETHER: usize = 64;
/// Milliseconds of compliance time after which the pass begins with the first version.
const PASS_EVERY: u64 = 86_400_000;

/// A record of an index of versions.
type Record = (Bytes, Bytes);

/// Buckets by number, with their rows as stored. None: there is no such bucket.
type Buckets = BTreeMap<u32, Option<(BucketRow, Bytes)>>;

/// The result of judging a page of records.
#[derive(Default)]
struct Judged {
    /// Records that were judged, from the page's first: the next step continues behind them. Those
    /// looked at may be more.
    count: usize,
    looked: usize,
    /// Records of versions that stay, and the version's row. None: there is no such version any
    /// more.
    stay: Vec<(Record, Option<Bytes>)>,
    /// The buckets of the versions.
    buckets: Buckets,
    /// Records of versions that could not be processed.
    failed: Vec<Record>,
    failure: Option<String>,
    /// Versions that were deleted or notified of.
    done: usize,
    tried: usize,
    /// A pause, a freeze or the rate stopped it. The next step continues, without haste.
    stopped: bool,
}

impl Store {
    /// Processes the next versions whose retention has passed, as their buckets say.
    pub(crate) async fn expire(self: &Arc<Store>, report: &mut StepReport) -> Result<()> {
        let now = self.compliance_now();
        if self.frozen().is_some() || self.doubt().is_some() || self.is_expiration_paused() {
            return Ok(());
        }
        let mut allowed = self.upkeep().expiry_allowance(self.expiration_rate(), self.elapsed());
        if allowed == 0 {
            return Ok(());
        }
        let first = match self.upkeep().expiry_due(self.elapsed()) {
            Some(ExpiryStage::Again(after)) => {
                let (done, more) = self.expire_again(after, now, allowed, report).await?;
                allowed -= done;
                if more {
                    return Ok(());
                }
                true
            }
            Some(ExpiryStage::Pass { first }) => first,
            Some(ExpiryStage::Waiting(_)) | None => return Ok(()),
        };
        self.expire_next(first, now, allowed, report).await
    }

    /// Judges a page of the versions that the pass may have gone by, and forgets those that stay.
    /// Returns how many were deleted or notified of, and whether there are more to judge.
    async fn expire_again(
        self: &Arc<Store>,
        after: Option<Bytes>,
        now: Timestamp,
        allowed: usize,
        report: &mut StepReport,
    ) -> Result<(usize, bool)> {
        let snapshot = self.snapshot()?;
        let range = passed(now, after.clone());
        let page = snapshot.range(EXPIRE_AGAIN, &range, AGAIN_MAX, Direction::Forward)?;
        let judged = self.judge_page(&*snapshot, &page, now, allowed, report).await?;
        drop(snapshot);
        // Those that went or failed stay in the table until the next turn finds them in their new
        // state.
        let mut forget = Transaction::new().with_reserve();
        for ((key, value), row) in &judged.stay {
            let at: VersionRef = decode(EXPIRE_AGAIN, key, value)?;
            forget = match row {
                Some(row) => forget.digest(VERSIONS, at.record_key(), *blake3::hash(row).as_bytes()),
                None => forget.absent(VERSIONS, at.record_key()),
            };
            forget = forget.delete(EXPIRE_AGAIN, key.clone());
        }
        if !judged.stay.is_empty() {
            self.commit_unless_changed(forget).await?;
        }
        let more = judged.count < page.len() || page.len() == AGAIN_MAX;
        let last = judged.count.checked_sub(1).and_then(|last| page.get(last)).map(|(key, _)| key.clone());
        self.upkeep().note_expiry(match more {
            true => ExpiryStage::Again(last.or(after)),
            false => ExpiryStage::Pass { first: true },
        });
        report.more |= more && !judged.stopped;
        Ok((judged.done, more))
    }

    /// Judges the next page of the pass through the retained versions.
    async fn expire_next(
        self: &Arc<Store>,
        first: bool,
        now: Timestamp,
        allowed: usize,
        report: &mut StepReport,
    ) -> Result<()> {
        // The place, the buckets' actions and the versions are of one moment: what changes later
        // resets the place, or has the version judged again.
        let snapshot = self.snapshot()?;
        let raw = snapshot.get(SETTINGS, EXPIRY)?;
        let row: Option<ExpiryRow> = raw.as_deref().map(|raw| decode(SETTINGS, EXPIRY, raw)).transpose()?;
        let bound = keys::numbers(now.0.saturating_add(1), 0);
        let row = row.filter(|row| {
            let is_old = first && now.0.abs_diff(row.begun.0) >= PASS_EVERY;
            // After a crash the clock may show less than when the place was written.
            let is_ahead = row.judged.as_ref().is_some_and(|judged| judged.as_slice() >= &bound[..]);
            !is_old && !is_ahead
        });
        let mut row = row.unwrap_or(ExpiryRow { judged: None, begun: now });
        let range = passed(now, row.judged.take().map(|judged| Bytes::from(Vec::from(judged))));
        let page = snapshot.range(RETAINED, &range, LOOKED_MAX, Direction::Forward)?;
        let judged = self.judge_page(&*snapshot, &page, now, allowed, report).await?;
        drop(snapshot);
        if let Some((last, _)) = judged.count.checked_sub(1).and_then(|last| page.get(last)) {
            row.judged = Some(last.to_vec().into());
            let mut place = Transaction::new().with_reserve();
            place = match raw {
                Some(raw) => place.equals(SETTINGS, EXPIRY, raw),
                None => place.absent(SETTINGS, EXPIRY),
            };
            // A bucket whose action has changed since may want what was passed by.
            for (number, bucket) in &judged.buckets {
                place = match bucket {
                    Some((_, raw)) => place.digest(BUCKETS, keys::short(*number), *blake3::hash(raw).as_bytes()),
                    None => place.absent(BUCKETS, keys::short(*number)),
                };
            }
            for (key, value) in judged.failed {
                place = place.put(EXPIRE_AGAIN, key, value);
            }
            // Unless the pass is to begin anew.
            self.commit_unless_changed(place.put(SETTINGS, EXPIRY, encode(&row))).await?;
        }
        let more = judged.count < page.len() || page.len() == LOOKED_MAX;
        match more {
            // A first page that was not judged at all is the first page again.
            true => self.upkeep().note_expiry(ExpiryStage::Pass { first: first && judged.count == 0 }),
            false => self.upkeep().end_expiry(self.elapsed()),
        }
        report.more |= more && !judged.stopped;
        Ok(())
    }

    /// Judges records of versions in their order, until the rate or the step's bound is reached.
    async fn judge_page(
        self: &Arc<Store>,
        snapshot: &dyn Snapshot,
        page: &[Record],
        now: Timestamp,
        allowed: usize,
        report: &mut StepReport,
    ) -> Result<Judged> {
        let mut judged = Judged::default();
        // Nothing else is awaited while any of these is under way: each may hold a lock for which
        // another one waits.
        let mut ending = FuturesUnordered::new();
        // Places in the page of versions that are not ended yet.
        let mut open = BTreeSet::new();
        loop {
            while let Some(record) =
                page.get(judged.looked).filter(|_| !judged.stopped && judged.tried < TRIED_MAX && open.len() < TOGETHER)
            {
                match look(snapshot, &mut judged.buckets, record, now) {
                    Ok(Look::Stays(row)) => judged.stay.push((record.clone(), row)),
                    // A pause that was acknowledged meanwhile holds for the rest of the page, and
                    // so does a freeze.
                    Ok(Look::MayGo(_)) if self.is_expiration_held() => {
                        judged.stopped = true;
                        break;
                    }
                    Ok(Look::MayGo(_)) if judged.done.saturating_add(open.len()) >= allowed => {
                        // One that is under way may stay after all.
                        judged.stopped = open.is_empty();
                        break;
                    }
                    Ok(Look::MayGo(at)) => {
                        judged.tried += 1;
                        let place = judged.looked;
                        open.insert(place);
                        ending.push(async move { (place, self.end(at, now).await) });
                    }
                    Err(error) => self.note_expired(&mut judged, record, Err(error), report)?,
                }
                judged.looked += 1;
            }
            // Where it stopped, those under way come to their end.
            let Some((place, ended)) = ending.next().await else { break };
            match (ended, page.get(place)) {
                (Ok(Ended::HeldBack), _) | (_, None) => judged.stopped = true,
                (ended, Some(record)) => {
                    open.remove(&place);
                    self.note_expired(&mut judged, record, ended, report)?;
                }
            }
        }
        judged.count = open.first().copied().unwrap_or(judged.looked);
        if let Some(first) = judged.failure.take() {
            let more = match judged.failed.len() {
                0 | 1 => String::new(),
                all => format!("; and {} more", all - 1),
            };
            report.alarms.push(Alarm::new(AlarmKind::Expiration, format!("{first}{more}")));
        }
        Ok(judged)
    }

    fn note_expired(
        &self,
        judged: &mut Judged,
        record: &Record,
        ended: Result<Ended>,
        report: &mut StepReport,
    ) -> Result<()> {
        match ended {
            Ok(Ended::Stays | Ended::HeldBack) => return Ok(()),
            Ok(Ended::Told) => report.notified += 1,
            Ok(Ended::Gone) => report.expired += 1,
            Err(error @ ArchiveError::Stopped(_)) => return Err(error),
            Err(error) => {
                judged.failed.push(record.clone());
                // On a conflict, the version or its bucket changed meanwhile: it is judged again.
                if !matches!(error, ArchiveError::Conflict(_)) {
                    let at: Result<VersionRef> = decode(RETAINED, &record.0, &record.1);
                    let of = at.map_or_else(|_| to_hex(&record.0), |at| at.key);
                    judged.failure.get_or_insert(format!("expiration of `{of}`: {error}"));
                }
                return Ok(());
            }
        }
        judged.done += 1;
        Ok(())
    }

    /// Commits, unless a precondition does not hold any more: the next turn judges again.
    async fn commit_unless_changed(&self, transaction: Transaction) -> Result<()> {
        match self.catalog().commit(transaction).await {
            Ok(_) | Err(CatalogError::Failed(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Judges a version and ends it.
    async fn end(self: &Arc<Store>, at: VersionRef, now: Timestamp) -> Result<Ended> {
        match self.prepare_end(at, now).await? {
            Some(ending) => self.commit_end(ending).await,
            None => Ok(Ended::Stays),
        }
    }

    /// Judges a version under its key's lock. If it goes, its certificate is noted. None: it stays.
    async fn prepare_end(self: &Arc<Store>, at: VersionRef, now: Timestamp) -> Result<Option<Ending>> {
        let caller = Caller::system("expiration");
        let lock = self.lock(at.bucket, &at.key).await?;
        // Under the lock: an officer may have changed the action while this waited.
        let Some(bucket) = self.buckets().by_number(at.bucket) else { return Ok(None) };
        let Some(found) = lookup::referred(&*self.snapshot()?, &at)? else { return Ok(None) };
        let action = found.row.expiry(&bucket.row);
        if action == ExpiryAction::Keep {
            return Ok(None);
        }
        let passed = found.row.retention.filter(|retention| retention.until <= now);
        let (Some(retention), false) = (passed, found.row.is_held()) else { return Ok(None) };
        let event = Event::new(&caller, Action::Expire).object(bucket.name(), &at.key).version(found.id());
        // Those who are told of objects do not hear of the self-test's own version.
        let is_told = !is_canary(&found.row.owner);
        if action == ExpiryAction::Notify {
            if found.row.notified == Some(true) {
                return Ok(None);
            }
            let event = if is_told { event.happened(RETENTION_ENDED) } else { event };
            let event = event.detail(format!("its {} retention ended {}", retention.mode, retention.until));
            return Ok(Some(Ending { at, bucket, found, lock, event, removal: None }));
        }
        let (transaction, removed) =
            self.remove(Transaction::new(), &caller, &bucket, &at.key, &found, Cause::Expired).await?;
        let event = if is_told { event.happened("LifecycleExpiration:Delete") } else { event };
        let class = found.row.class.as_ref();
        let by_class = class.map(|mark| format!(" by class `{}` version {}", mark.name, mark.version));
        let event = event.detail(format!(
            "disposed of: {} bytes, blake3 {}, stored {}, {} until {}{}, compliance time {now}",
            found.row.size,
            found.row.fingerprint(),
            found.row.modified,
            retention.mode,
            retention.until,
            by_class.unwrap_or_default()
        ));
        let transaction = bucket.count(transaction, -1, -(found.row.size as i64));
        Ok(Some(Ending { at, bucket, found, lock, event, removal: Some((transaction, removed)) }))
    }

    /// Ends a version, unless a pause or a freeze has come since it was judged.
    async fn commit_end(self: &Arc<Store>, ending: Ending) -> Result<Ended> {
        let Ending { at, bucket, found, lock, event, removal } = ending;
        // The store's identity as it is before this looks for a pause.
        let rules = self.rules();
        // Nothing waits between this and the submission of the commit.
        if self.is_expiration_held() {
            return Ok(Ended::HeldBack);
        }
        let ended = match removal {
            None => {
                let told = |row: &mut VersionRow| row.notified = Some(true);
                self.change_version(&bucket, &at.key, &found, lock, event, told).await?;
                Ended::Told
            }
            Some((transaction, removed)) => {
                let transaction = rules.stand(transaction);
                match self.commit_removal(transaction, event, removed, &bucket, &at.key, &found, lock).await {
                    // The alarm `disposal` tells of the key.
                    Ok(_) | Err(ArchiveError::KeyNotDestroyed(_)) => Ended::Gone,
                    Err(error) => return Err(error),
                }
            }
        };
        // At once, since the step may be dropped.
        self.upkeep().spend_expiry(1);
        Ok(ended)
    }
}

/// A version that was judged and is to be ended. The transaction is its removal. None: it is only
/// told of.
struct Ending {
    at: VersionRef,
    bucket: Arc<Bucket>,
    found: Found,
    lock: KeyLock,
    event: Event,
    removal: Option<(Transaction, Removed)>,
}

/// What became of a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Stays,
    /// A pause or a freeze came first.
    HeldBack,
    Told,
    Gone,
}

/// The records of ended retentions behind this one.
fn passed(now: Timestamp, after: Option<Bytes>) -> KeyRange {
    let past = KeyRange::all().below(keys::numbers(now.0.saturating_add(1), 0));
    match after {
        Some(after) => past.after(after),
        None => past,
    }
}

/// What a record's version is, as a snapshot shows it.
enum Look {
    /// Its row as stored. None: it is gone.
    Stays(Option<Bytes>),
    MayGo(VersionRef),
}

/// Looks at a version without its key's lock, so that the many that stay cost little.
fn look(snapshot: &dyn Snapshot, buckets: &mut Buckets, (key, value): &Record, now: Timestamp) -> Result<Look> {
    let at: VersionRef = decode(RETAINED, key, value)?;
    let Some(found) = lookup::referred(snapshot, &at)? else { return Ok(Look::Stays(None)) };
    let bucket = match buckets.entry(at.bucket) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(unknown) => {
            let number = keys::short(at.bucket);
            let raw = snapshot.get(BUCKETS, &number)?;
            let row = raw.map(|raw| Ok::<_, ArchiveError>((decode(BUCKETS, &number, &raw)?, raw)));
            unknown.insert(row.transpose()?)
        }
    };
    Ok(match bucket.as_ref().is_some_and(|(bucket, _)| is_due(&found.row, bucket, now)) {
        true => Look::MayGo(at),
        false => Look::Stays(Some(found.raw)),
    })
}

/// Whether expiration has anything to do with a version.
fn is_due(row: &VersionRow, bucket: &BucketRow, now: Timestamp) -> bool {
    let passed = row.retention.is_some_and(|retention| retention.until <= now);
    passed
        && !row.is_held()
        && match row.expiry(bucket) {
            ExpiryAction::Keep => false,
            ExpiryAction::Notify => row.notified != Some(true),
            ExpiryAction::Delete => true,
        }
}
