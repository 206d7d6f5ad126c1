//! The self-test: the store tries on a record of its own what must never succeed.
//!
//! Each bucket with Object Lock gets one canary, an object under COMPLIANCE retention. The test attempts to delete it, to
//! weaken its retention, and to take the bucket's protection away, with every right that a caller can have: first by the
//! archive's own operations, then through each interface of the running server. Each attempt must be refused, and the
//! canary must read as it was written. Attempts and refusals are in the audit log.
//!
//! Interfaces that ask for a key get one that lives in memory, as long as the test of the bucket takes.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::{BucketChange, CANARY_KEY, Protection, TESTER, Versioning};
use crate::model::checksum::Expected;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Caller, Role};
use crate::model::time::Timestamp;
use crate::model::version::{Retention, RetentionMode, VersionId};
use crate::objects::deletion::DeleteRequest;
use crate::objects::get::GetRequest;
use crate::objects::put::PutRequest;
use crate::retention::rules::{Cause, judge};
use crate::state::buckets::Bucket;
use crate::store::{Archive, Store, lookup};
use stele_catalog::Transaction;

/// Its content.
const CANARY: &[u8] = b"This object belongs to the store's self-test. Its retention is renewed by each test.\n";
/// Days for which a test keeps the canary, and days that must be left so that a test does not renew it.
const KEPT_DAYS: u64 = 2;
const LEFT_DAYS: u64 = 1;

/// One thing that must be refused, and the answer to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    pub what: String,
    /// The interface, or `archive` for the archive's own operations.
    #[serde(default)]
    pub through: String,
    pub refused: bool,
    /// The refusal in words, or what was allowed.
    pub answer: String,
}

/// What interfaces are to try things on, and the key by which they do it. It has every right that a caller can have.
pub struct Canary {
    pub bucket: String,
    pub key: &'static str,
    pub version: String,
    pub until: Timestamp,
    /// The bucket has a protection level that must not become lower.
    pub is_raised: bool,
    pub access_key: String,
    pub secret: Zeroizing<String>,
}

/// The interfaces of a running server. They try on a canary what each of them could ask of the archive.
pub trait Interfaces: Send + Sync {
    fn attempt<'a>(&'a self, canary: &'a Canary) -> BoxFuture<'a, Vec<Attempt>>;
}

/// Ends the key when the test of a bucket ends, however it ends.
struct Admitted<'a> {
    store: &'a Store,
    access_key: String,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.store.upkeep().dismiss_tester(&self.access_key);
    }
}

/// The result of the test in one bucket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SelfTest {
    pub bucket: String,
    /// The version of the canary. None: the bucket was not tested.
    pub canary: Option<String>,
    pub attempts: Vec<Attempt>,
    /// The canary reads as it was written.
    pub intact: bool,
    /// Why the bucket was not tested.
    pub skipped: Option<String>,
    /// The bucket is a share, and has no canary.
    pub is_share: bool,
    /// The number of the audit record that states the result.
    pub record: Option<u64>,
}

impl SelfTest {
    fn in_words(&self) -> String {
        let bucket = &self.bucket;
        if let Some(why) = &self.skipped {
            return format!("bucket `{bucket}` was not tested: {why}");
        }
        match self.attempts.iter().find(|attempt| !attempt.refused) {
            Some(Attempt { what, through, answer, .. }) => {
                format!("bucket `{bucket}`: to {what} (through: {through}) was not refused: {answer}")
            }
            None => format!("bucket `{bucket}`: the canary does not read as it was written"),
        }
    }

    /// Whether everything was refused and the canary is intact.
    pub fn passed(&self) -> bool {
        self.skipped.is_none() && self.intact && self.attempts.iter().all(|attempt| attempt.refused)
    }
}

impl Archive {
    /// Tests one bucket with Object Lock, or all of them. Takes an auditor, a retention officer or an administrator.
    pub async fn self_test(
        &self,
        caller: &Caller,
        bucket: Option<&str>,
        interfaces: Option<&dyn Interfaces>,
    ) -> Result<Vec<SelfTest>> {
        let store = &self.store();
        let roles = [Role::StorageAdministrator, Role::RetentionOfficer, Role::Auditor];
        let allowed = caller.require_role(&roles, Action::SelfTest).and_then(|()| store.writable());
        store.audited(allowed, || Event::new(caller, Action::SelfTest)).await?;
        let buckets = match bucket {
            Some(name) => vec![store.buckets().by_name(name)?],
            None => store.buckets().all().into_iter().filter(|bucket| bucket.row.lock.is_some()).collect(),
        };
        let mut results = Vec::with_capacity(buckets.len());
        for tested in buckets {
            results.push(self.test_bucket(&tested, interfaces).await?);
        }
        // A test of one bucket says nothing of the others.
        let finding = finding(&results);
        if bucket.is_none() || finding.is_some() {
            store.upkeep().note_self_test(finding);
        }
        Ok(results)
    }

    async fn test_bucket(&self, bucket: &Arc<Bucket>, interfaces: Option<&dyn Interfaces>) -> Result<SelfTest> {
        let skipped = |why: &str| SelfTest {
            bucket: bucket.name().into(),
            canary: None,
            attempts: Vec::new(),
            intact: false,
            skipped: Some(why.into()),
            is_share: bucket.row.is_share(),
            record: None,
        };
        if bucket.row.lock.is_none() {
            return Ok(skipped("it has no Object Lock, so nothing in it is protected"));
        }
        if bucket.row.is_share() {
            return Ok(skipped("it is a share, whose keys are the paths of its files"));
        }
        // Every right that a caller can have. None of them opens COMPLIANCE retention.
        let tester = Caller::system(TESTER);
        let (version, until) = match self.canary(&tester, bucket).await {
            Ok(canary) => canary,
            Err(error) => return Ok(skipped(&format!("its canary could not be stored or renewed: {error}"))),
        };
        let mut attempts = self.attempt_removals(&tester, bucket, version).await?;
        attempts.extend(self.attempt_weakening(&tester, bucket, version, until).await);
        attempts.extend(self.attempt_on_bucket(&tester, bucket).await);
        if let Some(interfaces) = interfaces {
            attempts.extend(self.attempt_through(interfaces, bucket, version, until).await);
        }
        let intact = self.is_intact(&tester, bucket, version).await;
        let refused = attempts.iter().filter(|attempt| attempt.refused).count();
        let detail = format!(
            "{refused} of {} forbidden operations were refused; the canary is {}",
            attempts.len(),
            if intact { "intact" } else { "not intact" }
        );
        let event =
            Event::new(&tester, Action::SelfTest).object(bucket.name(), CANARY_KEY).version(version).detail(detail);
        let store = self.store();
        let record = store.record(Transaction::new().with_reserve(), event).await?.numbers().last();
        Ok(SelfTest {
            bucket: bucket.name().into(),
            canary: Some(version.to_string()),
            attempts,
            intact,
            skipped: None,
            is_share: false,
            record,
        })
    }

    /// The canary and the end of its retention, stored or renewed if need be.
    ///
    /// Clients may write its key. Only the test itself is the owner of a canary: the owner of a version is who stored
    /// it, no request names another, and the id of an access key is an actor of another kind. The file gateway and
    /// reports act under other names.
    async fn canary(&self, tester: &Caller, bucket: &Bucket) -> Result<(VersionId, Timestamp)> {
        let store = self.store();
        let now = store.later_now();
        let newest = lookup::newest(&*store.snapshot()?, bucket, CANARY_KEY)?;
        let kept = newest.filter(|found| {
            let compliance = found.row.retention.is_some_and(|kept| kept.mode == RetentionMode::Compliance);
            compliance && !found.row.marker && found.row.owner == tester.actor
        });
        let retention = Retention { mode: RetentionMode::Compliance, until: now.plus_days(KEPT_DAYS) };
        let Some(found) = kept else {
            let request = PutRequest {
                bucket: bucket.name().into(),
                key: CANARY_KEY.into(),
                length: Some(CANARY.len() as u64),
                retention: Some(retention),
                ..PutRequest::default()
            };
            let mut writer = self.put(tester, request).await?;
            writer.write(bytes::Bytes::from_static(CANARY)).await?;
            let stored = writer.finish(Expected::default()).await?;
            return Ok((stored.version, stored.retention.map_or(retention.until, |kept| kept.until)));
        };
        let until = found.row.retention.map_or(Timestamp(0), |kept| kept.until);
        if until >= now.plus_days(LEFT_DAYS) {
            return Ok((found.id(), until));
        }
        self.set_retention(tester, bucket.name(), CANARY_KEY, Some(found.id()), Some(retention), false).await?;
        Ok((found.id(), retention.until))
    }

    async fn attempt_removals(
        &self,
        tester: &Caller,
        bucket: &Arc<Bucket>,
        version: VersionId,
    ) -> Result<Vec<Attempt>> {
        let mut attempts = Vec::new();
        for (what, bypass_governance) in
            [("delete the version", false), ("delete the version and bypass GOVERNANCE", true)]
        {
            let request = DeleteRequest {
                bucket: bucket.name().into(),
                key: CANARY_KEY.into(),
                version: Some(version),
                bypass_governance,
                ..DeleteRequest::default()
            };
            attempts.push(attempt(what, self.delete(tester, request).await));
        }
        // The store's own reasons to remove a version are judged, and never carried out.
        let store = self.store();
        let found = lookup::version(&*store.snapshot()?, bucket, CANARY_KEY, Some(version))?;
        for (what, cause) in [
            ("expire the version now", Cause::Expired),
            ("end the version by a lifecycle rule", Cause::Aged),
            ("replace the version", Cause::Replaced),
        ] {
            attempts.push(match &found {
                Some(found) => {
                    let now = store.compliance_now();
                    attempt(what, judge(bucket, CANARY_KEY, found, tester, cause, now))
                }
                None => attempt::<()>(what, Err(ArchiveError::damaged("the canary", "it is gone"))),
            });
        }
        Ok(attempts)
    }

    async fn attempt_weakening(
        &self,
        tester: &Caller,
        bucket: &Bucket,
        version: VersionId,
        until: Timestamp,
    ) -> Vec<Attempt> {
        let sooner = Timestamp(until.0.saturating_sub(3_600_000));
        let mut attempts = Vec::new();
        for (what, retention) in [
            ("shorten the retention by an hour", Some(Retention { mode: RetentionMode::Compliance, until: sooner })),
            ("change the mode to GOVERNANCE", Some(Retention { mode: RetentionMode::Governance, until })),
            ("remove the retention", None),
        ] {
            let changed = self.set_retention(tester, bucket.name(), CANARY_KEY, Some(version), retention, true).await;
            attempts.push(attempt(what, changed));
        }
        attempts
    }

    async fn attempt_on_bucket(&self, tester: &Caller, bucket: &Bucket) -> Vec<Attempt> {
        let mut attempts = vec![attempt("delete the bucket", self.delete_bucket(tester, bucket.name()).await)];
        let suspended =
            self.change_bucket(tester, bucket.name(), BucketChange::Versioning(Versioning::Suspended)).await;
        attempts.push(attempt("suspend versioning", suspended));
        if bucket.row.protection > Protection::Basic {
            let lowered = self.change_bucket(tester, bucket.name(), BucketChange::Protection(Protection::Basic)).await;
            attempts.push(attempt("lower the protection level", lowered));
        }
        attempts
    }

    async fn attempt_through(
        &self,
        interfaces: &dyn Interfaces,
        bucket: &Bucket,
        version: VersionId,
        until: Timestamp,
    ) -> Vec<Attempt> {
        let store = &self.store();
        let (access_key, secret) = store.random_credentials();
        store.upkeep().admit_tester(&access_key, secret.clone());
        let _admitted = Admitted { store, access_key: access_key.clone() };
        let canary = Canary {
            bucket: bucket.name().into(),
            key: CANARY_KEY,
            version: version.to_string(),
            until,
            is_raised: bucket.row.protection > Protection::Basic,
            access_key,
            secret,
        };
        interfaces.attempt(&canary).await
    }

    async fn is_intact(&self, tester: &Caller, bucket: &Bucket, version: VersionId) -> bool {
        let request = GetRequest {
            bucket: bucket.name().into(),
            key: CANARY_KEY.into(),
            version: Some(version),
            ..GetRequest::default()
        };
        let Ok(mut reader) = self.get(tester, request).await else { return false };
        let mut content = Vec::with_capacity(CANARY.len());
        while let Some(piece) = reader.next().await {
            match piece {
                Ok(piece) if content.len() <= CANARY.len() => content.extend_from_slice(&piece),
                _ => return false,
            }
        }
        content == CANARY
    }
}

/// What the alarm says. A test that could not be made is no proof either, but shares have no canary.
fn finding(results: &[SelfTest]) -> Option<String> {
    let wrong = |result: &&SelfTest| !result.passed() && !result.is_share;
    let all: Vec<String> = results.iter().filter(wrong).map(SelfTest::in_words).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// A refusal by the rules is what has to come; any other failure proves nothing.
fn attempt<T>(what: &str, result: Result<T>) -> Attempt {
    let (what, through) = (what.into(), "archive".into());
    match result {
        Ok(_) => Attempt { what, through, refused: false, answer: "it was allowed".into() },
        Err(error) => {
            let refused = matches!(
                error,
                ArchiveError::Retained { .. }
                    | ArchiveError::Denied(_)
                    | ArchiveError::InvalidState(_)
                    | ArchiveError::BucketNotEmpty(_)
            );
            Attempt { what, through, refused, answer: error.to_string() }
        }
    }
}
