//! The lifecycle rules of buckets, carried out.
//!
//! A pass goes over the versions and then the uploads of every bucket that has rules, a page a
//! step. It judges ages by the compliance clock, and stops while that is frozen or the matter
//! `rebuild` stands. What a rule ends goes the one way of all removals, which refuses whatever is
//! under retention or a hold; such a version is passed over. The rate of expiration bounds what
//! rules end too: at it, a page ends, and a later step goes on behind what was looked at.

use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::{Direction, KeyRange, Snapshot, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::bucket::{Versioning, is_canary};
use crate::model::error::{ArchiveError, Result};
use crate::model::lifecycle::LifecycleRule;
use crate::model::principal::Caller;
use crate::model::time::Timestamp;
use crate::model::version::ObjectInfo;
use crate::record::{UPLOADS, VERSIONS, decode, keys};
use crate::retention::rules::Cause;
use crate::state::buckets::Bucket;
use crate::state::upkeep::{AgingPosition, Within};
use crate::store::lookup::{self, Found};
use crate::store::uploads::Upload;
use crate::store::{Archive, Store};
use crate::upkeep::background::StepReport;

/// Records that one step looks at.
const AGING_PAGE: usize = 200;

/// What a rule does to one record.
enum Ended {
    /// The current version of a key ends: under a delete marker, or for good where there are no
    /// versions.
    Current(Found),
    /// A delete marker above nothing goes away.
    Marker(Found),
    /// A noncurrent version goes away while at least so many noncurrent ones are newer.
    Noncurrent(Found, u32),
}

impl Store {
    /// Takes the next page of the pass.
    pub(crate) async fn age(self: &Arc<Store>, report: &mut StepReport) -> Result<()> {
        if self.is_expiration_paused() || self.frozen().is_some() || self.doubt().is_some() {
            return Ok(());
        }
        let Some(mut at) = self.upkeep().aging_due(self.elapsed()) else { return Ok(()) };
        let Some(bucket) = self.with_rules(at.bucket) else {
            self.upkeep().note_aging(None, self.elapsed());
            return Ok(());
        };
        if bucket.number != at.bucket {
            at = AgingPosition { bucket: bucket.number, ..AgingPosition::default() };
        }
        let (next, stopped) = match at.uploads {
            false => self.age_versions(&bucket, at, report).await?,
            true => self.age_uploads(&bucket, at, report).await?,
        };
        self.upkeep().note_aging(Some(next), self.elapsed());
        report.more |= !stopped;
        Ok(())
    }

    /// Whether the rate lets no rule end anything just now.
    fn is_aging_bounded(&self) -> bool {
        self.upkeep().expiry_allowance(self.expiration_rate(), self.elapsed()) == 0
    }

    /// The bucket with this number or the next higher one that has rules in force.
    fn with_rules(&self, number: u32) -> Option<Arc<Bucket>> {
        let mut buckets = self.buckets().all();
        buckets.retain(|bucket| bucket.number >= number && !bucket.row.is_share() && rules(bucket).next().is_some());
        buckets.into_iter().min_by_key(|bucket| bucket.number)
    }

    async fn age_versions(
        self: &Arc<Store>,
        bucket: &Arc<Bucket>,
        mut at: AgingPosition,
        report: &mut StepReport,
    ) -> Result<(AgingPosition, bool)> {
        let now = self.compliance_now();
        let page = self.page(VERSIONS, bucket, at.after.as_ref())?;
        for (record_key, value) in &page {
            let before = at.within.clone();
            let (_, key, _) = keys::split(record_key)?;
            let above = at.within.take().filter(|within| within.key == key);
            let found = Found::of(record_key, value, above.is_none())?;
            at.within = Some(Within {
                key: key.clone(),
                stored: found.row.modified,
                noncurrent: above.as_ref().map_or(0, |above| above.noncurrent + 1),
            });
            // The self-test renews its canary by itself.
            if is_canary(&found.row.owner) {
                at.after = Some(record_key.clone());
                continue;
            }
            if let Some((rule, ended)) = self.rule_for(bucket, &key, found, above.as_ref(), now)? {
                if self.is_aging_bounded() {
                    return Ok((AgingPosition { within: before, ..at }, true));
                }
                let done = self.end_version(bucket, &key, &rule, ended).await;
                self.note_aged(report, &key, done)?;
            }
            at.after = Some(record_key.clone());
        }
        let next = match page.len() == AGING_PAGE {
            true => at,
            false => AgingPosition { uploads: true, after: None, within: None, ..at },
        };
        Ok((next, false))
    }

    async fn age_uploads(
        self: &Arc<Store>,
        bucket: &Arc<Bucket>,
        mut at: AgingPosition,
        report: &mut StepReport,
    ) -> Result<(AgingPosition, bool)> {
        let now = self.compliance_now();
        let page = self.page(UPLOADS, bucket, at.after.as_ref())?;
        for (record_key, raw) in &page {
            let (_, key, number) = keys::split(record_key)?;
            let upload = Upload { number, row: decode(UPLOADS, record_key, raw)?, raw: raw.clone() };
            let due = |rule: &&LifecycleRule| rule.aborts(&key, upload.row.initiated).is_some_and(|end| end <= now);
            if has_age(bucket, upload.row.initiated)
                && let Some(rule) = rules(bucket).find(due)
            {
                if self.is_aging_bounded() {
                    return Ok((at, true));
                }
                let done = self.abort_aged(bucket, &key, &upload, rule).await;
                self.note_aged(report, &key, done)?;
            }
            at.after = Some(record_key.clone());
        }
        let next = match page.len() == AGING_PAGE {
            true => at,
            false => AgingPosition { bucket: at.bucket.saturating_add(1), ..AgingPosition::default() },
        };
        Ok((next, false))
    }

    /// Counts what was done. A refusal by retention or a hold is as it should be, and a conflict is
    /// for the next pass.
    fn note_aged(&self, report: &mut StepReport, key: &str, done: Result<bool>) -> Result<()> {
        match done {
            Ok(false) => {}
            // The alarm `disposal` tells of the key.
            Ok(true) | Err(ArchiveError::KeyNotDestroyed(_)) => {
                report.expired += 1;
                // At once, since the step may be dropped.
                self.upkeep().spend_expiry(1);
            }
            Err(error @ ArchiveError::Stopped(_)) => return Err(error),
            Err(ArchiveError::Retained { .. } | ArchiveError::Conflict(_)) => {}
            Err(error) => {
                report.alarms.push(Alarm::new(AlarmKind::Expiration, format!("lifecycle of `{key}`: {error}")));
            }
        }
        Ok(())
    }

    fn page(&self, table: stele_catalog::Table, bucket: &Bucket, after: Option<&Bytes>) -> Result<Vec<(Bytes, Bytes)>> {
        let all = KeyRange::prefix(keys::prefix(bucket.number, ""));
        let range = match after {
            Some(after) => all.after(after.clone()),
            None => all,
        };
        Ok(self.snapshot()?.range(table, &range, AGING_PAGE, Direction::Forward)?)
    }

    /// The rule that ends a version now. `above`: what was seen of the newer versions of its key.
    fn rule_for(
        &self,
        bucket: &Bucket,
        key: &str,
        found: Found,
        above: Option<&Within>,
        now: Timestamp,
    ) -> Result<Option<(String, Ended)>> {
        let row = &found.row;
        let is_protected =
            row.is_held() || row.awaits_event() || row.retention.is_some_and(|retention| retention.until > now);
        // A delete marker above a version removes nothing. Every other end is refused at the
        // removal too, at the price of the key's lock.
        let only_gets_marker = above.is_none() && !row.marker && bucket.row.versioning == Versioning::Enabled;
        if is_protected && !only_gets_marker || !has_age(bucket, above.map_or(row.modified, |above| above.stored)) {
            return Ok(None);
        }
        let is_due = |end: Option<Timestamp>| end.is_some_and(|end| end <= now);
        if let Some(above) = above {
            let due = |rule: &&LifecycleRule| {
                is_due(rule.expires_noncurrent(key, row.size, &row.tags, above.stored, above.noncurrent))
            };
            let Some(rule) = rules(bucket).find(due) else { return Ok(None) };
            let newer = rule.noncurrent.and_then(|noncurrent| noncurrent.newer).unwrap_or(0);
            return Ok(Some((rule.id.clone(), Ended::Noncurrent(found, newer))));
        }
        if row.marker {
            let due = |rule: &&LifecycleRule| is_due(rule.expires_marker(key, row.modified, now));
            let Some(rule) = rules(bucket).find(due).map(|rule| rule.id.clone()) else { return Ok(None) };
            let versions = KeyRange::prefix(keys::all_of(bucket.number, key));
            let alone = self.snapshot()?.range(VERSIONS, &versions, 2, Direction::Forward)?.len() == 1;
            return Ok(alone.then_some((rule, Ended::Marker(found))));
        }
        let due = |rule: &&LifecycleRule| is_due(rule.expires(key, row.size, &row.tags, row.modified));
        let rule = rules(bucket).find(due).map(|rule| rule.id.clone());
        Ok(rule.map(|rule| (rule, Ended::Current(found))))
    }

    /// Ends a version, unless it changed since it was seen. Says whether it did.
    async fn end_version(self: &Arc<Store>, bucket: &Arc<Bucket>, key: &str, rule: &str, ended: Ended) -> Result<bool> {
        // A pause that was acknowledged meanwhile holds for the rest of the page, and so does a
        // freeze.
        if self.is_expiration_held() {
            return Ok(false);
        }
        let caller = Caller::system("lifecycle");
        let detail = format!("lifecycle rule `{rule}`");
        let (seen, current, newer) = match &ended {
            Ended::Current(found) => (found, true, 0),
            Ended::Marker(found) => (found, false, 0),
            Ended::Noncurrent(found, newer) => (found, false, *newer),
        };
        let lock = self.lock(bucket.number, key).await?;
        // As in expiration: the store's identity as it is before this looks for a pause again. The
        // lock may have taken long.
        let rules = self.rules();
        if self.is_expiration_held() {
            return Ok(false);
        }
        let snapshot = self.snapshot()?;
        let newest = lookup::newest(&*snapshot, bucket, key)?;
        let is_newest = newest.as_ref().is_some_and(|newest| newest.number == seen.number);
        let found = snapshot.get(VERSIONS, &keys::version(bucket.number, key, seen.number))?;
        if found.as_ref() != Some(&seen.raw) || is_newest != seen.latest || self.has_changed(bucket) {
            return Ok(false);
        }
        // The page was read some time ago. Clients may have removed newer versions since.
        if !has_newer(&*snapshot, bucket, key, seen.number, newer)? {
            return Ok(false);
        }
        drop(snapshot);
        if current && bucket.row.versioning != Versioning::Off {
            let required = rules.stand(Transaction::new());
            self.add_marker(&caller, bucket, key, Some(detail), required, lock).await?;
            return Ok(true);
        }
        let event = Event::new(&caller, Action::Expire).object(bucket.name(), key).version(seen.id());
        let event = event.happened("LifecycleExpiration:Delete").detail(format!(
            "{detail}: {}, stored {}",
            seen.row.content_in_words(),
            seen.row.modified
        ));
        let (transaction, removed) = self.remove(Transaction::new(), &caller, bucket, key, seen, Cause::Aged).await?;
        // A freeze may have come while the certificate was noted. Nothing waits between this and
        // the submission of the commit.
        if self.is_expiration_held() {
            return Ok(false);
        }
        let transaction = rules.stand(bucket.count(transaction, -1, -(seen.row.size as i64)));
        self.commit_removal(transaction, event, removed, bucket, key, seen, lock).await?;
        Ok(true)
    }

    /// Whether a client changed the bucket since the page was read: its rules or its versioning may
    /// be others.
    fn has_changed(&self, bucket: &Bucket) -> bool {
        self.buckets().by_number(bucket.number).is_none_or(|now| now.raw != bucket.raw)
    }

    async fn abort_aged(
        self: &Arc<Store>,
        bucket: &Bucket,
        key: &str,
        upload: &Upload,
        rule: &LifecycleRule,
    ) -> Result<bool> {
        if self.is_expiration_held() {
            return Ok(false);
        }
        let caller = Caller::system("lifecycle");
        let lock = self.lock(bucket.number, key).await?;
        if self.is_expiration_held() {
            return Ok(false);
        }
        let there = self.snapshot()?.get(UPLOADS, &keys::upload(bucket.number, key, upload.number))?;
        if there.as_ref() != Some(&upload.raw) || self.has_changed(bucket) {
            return Ok(false);
        }
        let said = format!("{}, lifecycle rule `{}`", upload.id(), rule.id);
        self.remove_upload(&caller, bucket, key, upload, &said, lock).await?;
        Ok(true)
    }
}

/// Whether an age can count from this moment. Earlier versions of Stele stored by the system clock
/// alone: one that was years behind made a version older than its bucket, and its age is not known.
fn has_age(bucket: &Bucket, from: Timestamp) -> bool {
    from >= bucket.row.created
}

/// Whether at least so many noncurrent versions of the key are newer than this one.
fn has_newer(snapshot: &dyn Snapshot, bucket: &Bucket, key: &str, number: u64, newer: u32) -> Result<bool> {
    if newer == 0 {
        return Ok(true);
    }
    let above = KeyRange::prefix(keys::all_of(bucket.number, key)).below(keys::version(bucket.number, key, number));
    // The current version is above them all, and does not count.
    let newer = newer as usize;
    Ok(snapshot.range(VERSIONS, &above, newer + 1, Direction::Forward)?.len() > newer)
}

impl Archive {
    /// When a lifecycle rule ends a version that is its key's current one, and the id of the rule.
    /// None: none does, or retention or a hold keeps it where its end would remove it.
    pub fn lifecycle_end(&self, info: &ObjectInfo) -> Option<(Timestamp, String)> {
        let bucket = self.store().buckets().by_name(&info.bucket).ok()?;
        if bucket.row.is_share() || !has_age(&bucket, info.modified) {
            return None;
        }
        let ends = rules(&bucket)
            .filter_map(|rule| Some((rule.expires(&info.key, info.size, &info.tags, info.modified)?, rule.id.clone())));
        let first = ends.min_by_key(|(end, _)| *end)?;
        if bucket.row.versioning == Versioning::Enabled {
            return Some(first);
        }
        // Without versions, the end removes the content, which a retention or a hold prevents.
        let snapshot = self.store().snapshot().ok()?;
        let row = lookup::newest(&*snapshot, &bucket, &info.key).ok()??.row;
        let stays = row.is_held() || row.awaits_event() || row.retention.is_some_and(|kept| kept.until > first.0);
        (!stays).then_some(first)
    }
}

fn rules(bucket: &Bucket) -> impl Iterator<Item = &LifecycleRule> {
    bucket.row.lifecycle.iter().flatten().filter(|rule| rule.enabled)
}
