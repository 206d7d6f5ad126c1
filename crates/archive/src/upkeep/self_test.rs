//! The self-test: the store tries on a record of its own what must never succeed.
//!
//! Each bucket with Object Lock gets one canary, an object under COMPLIANCE retention. The test
//! attempts to delete it, to weaken its retention, and to take the bucket's protection away, with
//! every right that a caller can have. It does so first by the archive's own operations, then
//! through each interface of the running server. Each attempt must be refused, and the canary must
//! read as it was written. Attempts and refusals are in the audit log.
//!
//! The canary of a share is a file. Its gateway stores it as for an S3 client, and acts on it.
//!
//! Interfaces that ask for a key get one that lives in memory, as long as the test of the bucket
//! takes.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::{BucketChange, CANARY_KEY, Protection, TESTER, Versioning};
use crate::model::checksum::Expected;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Caller, Role};
use crate::model::time::Timestamp;
use crate::model::version::{Retention, RetentionMode, VersionId};
use crate::objects::deletion::DeleteRequest;
use crate::objects::get::GetRequest;
use crate::objects::put::PutRequest;
use crate::retention::rules::{Cause, judge};
use crate::shares::ShareObjects;
use crate::state::buckets::Bucket;
use crate::store::{Archive, Store, lookup};
use stele_catalog::Transaction;

/// Its content.
const CANARY: &[u8] = b"This object belongs to the store's self-test. Its retention is renewed by each test.\n";
/// Days for which a test keeps the canary, and days that must be left so that a test does not renew
/// it.
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

/// What interfaces are to try things on, and the key by which they do it. It has every right that a
/// caller can have.
pub struct Canary {
    pub bucket: String,
    pub key: &'static str,
    pub version: String,
    /// It is a file of a share: its present version goes with the file alone.
    pub is_file: bool,
    pub until: Timestamp,
    /// The bucket has a protection level that must not become lower.
    pub is_raised: bool,
    pub access_key: String,
    pub secret: Zeroizing<String>,
}

/// The interfaces of a running server. They try on a canary what each of them could ask of the
/// archive.
pub trait Interfaces: Send + Sync {
    /// The gateway's view of a share. None: the share is not open.
    fn share(&self, bucket: &str) -> Option<Arc<dyn ShareObjects>>;

    fn attempt<'a>(&'a self, canary: &'a Canary) -> BoxFuture<'a, Vec<Attempt>>;
}

/// A canary as the archive has it.
struct Subject {
    /// The gateway of a share.
    share: Option<Arc<dyn ShareObjects>>,
    tester: Caller,
    /// Who acts on the key in the archive: the tester, or the gateway in its name.
    caller: Caller,
    key: String,
    version: VersionId,
    until: Timestamp,
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
    /// The bucket is a share, and its canary a file.
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
    /// Tests one bucket with Object Lock, or all of them. Takes an auditor, a retention officer or
    /// an administrator.
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
        let any_locks = buckets.iter().any(|bucket| bucket.row.lock.is_some());
        let mut results = Vec::with_capacity(buckets.len());
        for tested in buckets {
            results.push(self.test_bucket(&tested, interfaces).await?);
        }
        // A test of one bucket says nothing of the others. One without locks protects nothing, and
        // nothing is found in it.
        let finding = finding(&results);
        if bucket.is_none() || (finding.is_some() && any_locks) {
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
        let share = match (bucket.row.is_share(), interfaces) {
            (false, _) => None,
            (true, None) => return Ok(skipped("it is a share, which only a running server can test")),
            (true, Some(interfaces)) => match interfaces.share(bucket.name()) {
                None => return Ok(skipped("its share is not open")),
                share => share,
            },
        };
        // Every right that a caller can have. None of them opens COMPLIANCE retention.
        let subject = match self.canary(Caller::system(TESTER), bucket, share).await {
            Ok(subject) => subject,
            Err(error) => return Ok(skipped(&format!("its canary could not be stored or renewed: {error}"))),
        };
        let mut attempts = self.attempt_removals(bucket, &subject).await?;
        attempts.extend(self.attempt_weakening(bucket, &subject).await);
        attempts.extend(self.attempt_on_bucket(bucket, &subject).await);
        if let Some(interfaces) = interfaces {
            attempts.extend(self.attempt_through(interfaces, bucket, &subject).await);
        }
        let intact = self.is_intact(bucket, &subject).await;
        let (tester, version) = (&subject.tester, subject.version);
        let refused = attempts.iter().filter(|attempt| attempt.refused).count();
        let detail = format!(
            "{refused} of {} forbidden operations were refused; the canary is {}",
            attempts.len(),
            if intact { "intact" } else { "not intact" }
        );
        let event =
            Event::new(tester, Action::SelfTest).object(bucket.name(), CANARY_KEY).version(version).detail(detail);
        let store = self.store();
        let record = store.record(Transaction::new().with_reserve(), event).await?.numbers().last();
        Ok(SelfTest {
            bucket: bucket.name().into(),
            canary: Some(version.to_string()),
            attempts,
            intact,
            skipped: None,
            is_share: bucket.row.is_share(),
            record,
        })
    }

    /// The canary, stored or renewed if need be.
    ///
    /// Clients may write its key. Only the test itself is the owner of a canary. The owner of a
    /// version is who stored it, no request names another, and the id of an access key is an actor
    /// of another kind. The file gateway and reports act under other names. A client's file at the
    /// canary's path is left alone.
    async fn canary(&self, tester: Caller, bucket: &Bucket, share: Option<Arc<dyn ShareObjects>>) -> Result<Subject> {
        let store = self.store();
        let now = store.later_now();
        let place = place_of(&tester, share.as_deref()).await?;
        let newest = match &place {
            Some((_, key)) => lookup::newest(&*store.snapshot()?, bucket, key)?,
            None => None,
        };
        let kept = newest.filter(|found| {
            let compliance = found.row.retention.is_some_and(|kept| kept.mode == RetentionMode::Compliance);
            compliance && !found.row.marker && found.row.owner == tester.actor
        });
        if share.is_some() && place.is_some() && kept.is_none() {
            return Err(ArchiveError::InvalidState(format!("`{CANARY_KEY}` is a file of another owner; rename it")));
        }
        let retention = Retention { mode: RetentionMode::Compliance, until: now.plus_days(KEPT_DAYS) };
        let (version, until) = match kept {
            None => {
                let request = PutRequest {
                    bucket: bucket.name().into(),
                    key: CANARY_KEY.into(),
                    length: Some(CANARY.len() as u64),
                    retention: Some(retention),
                    ..PutRequest::default()
                };
                let mut writer = match &share {
                    Some(share) => share.put(&tester, request).await?,
                    None => self.put(&tester, request).await?,
                };
                writer.write(bytes::Bytes::from_static(CANARY)).await?;
                let stored = writer.finish(Expected::default()).await?;
                (stored.version, stored.retention.map_or(retention.until, |kept| kept.until))
            }
            Some(found) => {
                let until = found.row.retention.map_or(Timestamp(0), |kept| kept.until);
                (found.id(), until)
            }
        };
        let place = match place {
            None => place_of(&tester, share.as_deref()).await?,
            place => place,
        };
        let (caller, key) = place.ok_or_else(|| ArchiveError::damaged("the canary", "it is gone"))?;
        let mut subject = Subject { share, tester, caller, key, version, until };
        if until < now.plus_days(LEFT_DAYS) {
            self.retain(bucket, &subject, Some(retention), false).await?;
            subject.until = retention.until;
        }
        Ok(subject)
    }

    async fn retain(
        &self,
        bucket: &Bucket,
        subject: &Subject,
        retention: Option<Retention>,
        bypass: bool,
    ) -> Result<()> {
        let Subject { share, tester, version, .. } = subject;
        match share {
            Some(share) => share.set_retention(tester, CANARY_KEY, Some(*version), retention, bypass).await,
            None => {
                self.set_retention(tester, bucket.name(), CANARY_KEY, Some(*version), retention, bypass).await.map(drop)
            }
        }
    }

    async fn attempt_removals(&self, bucket: &Arc<Bucket>, subject: &Subject) -> Result<Vec<Attempt>> {
        let mut attempts = Vec::new();
        // The version that is the present content of a file goes with the file alone.
        let version = subject.share.is_none().then_some(subject.version);
        let object = if version.is_some() { "version" } else { "file" };
        for (bypass_governance, more) in [(false, ""), (true, " and bypass GOVERNANCE")] {
            let request = DeleteRequest {
                bucket: bucket.name().into(),
                key: CANARY_KEY.into(),
                version,
                bypass_governance,
                ..DeleteRequest::default()
            };
            let deleted = match &subject.share {
                Some(share) => share.delete(&subject.tester, request).await,
                None => self.delete(&subject.tester, request).await,
            };
            attempts.push(attempt(&format!("delete the {object}{more}"), deleted));
        }
        // The store's own reasons to remove a version are judged, and never carried out.
        let store = self.store();
        let found = lookup::version(&*store.snapshot()?, bucket, &subject.key, Some(subject.version))?;
        for (what, cause) in [
            ("expire the version now", Cause::Expired),
            ("end the version by a lifecycle rule", Cause::Aged),
            ("replace the version", Cause::Replaced),
        ] {
            attempts.push(match &found {
                Some(found) => {
                    let now = store.compliance_now();
                    attempt(what, judge(bucket, &subject.key, found, &subject.caller, cause, now))
                }
                None => attempt::<()>(what, Err(ArchiveError::damaged("the canary", "it is gone"))),
            });
        }
        Ok(attempts)
    }

    async fn attempt_weakening(&self, bucket: &Bucket, subject: &Subject) -> Vec<Attempt> {
        let until = subject.until;
        let sooner = Timestamp(until.0.saturating_sub(3_600_000));
        let mut attempts = Vec::new();
        for (what, retention) in [
            ("shorten the retention by an hour", Some(Retention { mode: RetentionMode::Compliance, until: sooner })),
            ("change the mode to GOVERNANCE", Some(Retention { mode: RetentionMode::Governance, until })),
            ("remove the retention", None),
        ] {
            attempts.push(attempt(what, self.retain(bucket, subject, retention, true).await));
        }
        attempts
    }

    async fn attempt_on_bucket(&self, bucket: &Bucket, subject: &Subject) -> Vec<Attempt> {
        let tester = &subject.tester;
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

    async fn attempt_through(&self, interfaces: &dyn Interfaces, bucket: &Bucket, subject: &Subject) -> Vec<Attempt> {
        let store = &self.store();
        let (access_key, secret) = store.random_credentials();
        store.upkeep().admit_tester(&access_key, secret.clone());
        let _admitted = Admitted { store, access_key: access_key.clone() };
        let canary = Canary {
            bucket: bucket.name().into(),
            key: CANARY_KEY,
            version: subject.version.to_string(),
            is_file: subject.share.is_some(),
            until: subject.until,
            is_raised: bucket.row.protection > Protection::Basic,
            access_key,
            secret,
        };
        interfaces.attempt(&canary).await
    }

    async fn is_intact(&self, bucket: &Bucket, subject: &Subject) -> bool {
        let request = GetRequest {
            bucket: bucket.name().into(),
            key: subject.key.clone(),
            version: Some(subject.version),
            ..GetRequest::default()
        };
        let Ok(mut reader) = self.get(&subject.caller, request).await else { return false };
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

/// Where the archive has the canary, and who acts on it there. None: the share has no file at its
/// path.
async fn place_of(tester: &Caller, share: Option<&dyn ShareObjects>) -> Result<Option<(Caller, String)>> {
    let Some(share) = share else { return Ok(Some((tester.clone(), CANARY_KEY.to_owned()))) };
    match share.locate(tester, Access::Read, CANARY_KEY, None).await {
        Ok(located) => Ok(Some((located.caller, located.key))),
        Err(ArchiveError::NoSuchKey { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the alarm says. A test that could not be made is no proof either.
fn finding(results: &[SelfTest]) -> Option<String> {
    let all: Vec<String> = results.iter().filter(|result| !result.passed()).map(SelfTest::in_words).collect();
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
