//! The audit log: a record of every change and every refusal. Each record is chained to the one
//! before it.

pub(crate) mod chain;
mod refusals;
pub(crate) mod sealing;
pub(crate) mod verify;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stele_catalog::{Receipt, Template, Transaction};

use crate::model::action::Action;
use crate::model::checksum::to_hex;
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Actor, Caller, Role};
use crate::model::time::Timestamp;
use crate::model::version::{ETag, VersionId};
use crate::record::audit::AuditRow;
use crate::record::settings::AUDIT_HEAD;
use crate::record::{AUDIT, REVOKED, SETTINGS, encode};
use crate::store::Store;
use crate::store::events::{Happened, Occasion};

/// Limits in bytes on the texts of one record: a name, an S3 key, a reason or detail. A longer text
/// is cut, and the record states its length.
const NAME_MAX: usize = 256;
const KEY_MAX: usize = 1024;
const TEXT_MAX: usize = 4096;

/// One record, for people and for export.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditRecord {
    pub number: u64,
    /// RFC 3339.
    pub time: String,
    pub actor: String,
    pub origin: Option<String>,
    pub action: String,
    pub bucket: Option<String>,
    pub key: Option<String>,
    pub version: Option<String>,
    /// None: the action took place. Otherwise the reason of the refusal.
    pub refused: Option<String>,
    pub detail: Option<String>,
    /// The link of this record in the hash chain, in hexadecimal.
    pub link: String,
}

/// How the log compares with a head that was kept elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeadVerdict {
    /// The log contains it.
    Contained,
    /// The head counts records that a later rebuild of the catalog lost.
    Lost,
    /// The head counts more records than the log has: the store was set back since.
    Newer { theirs: u64, ours: u64 },
    /// The log has another link at that record.
    Other { records: u64 },
    /// This store did not sign it.
    Foreign(String),
}

/// The result of a verification.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditVerdict {
    pub records: u64,
    pub checkpoints: u64,
    /// The anchor's record count, if one was given and matched.
    pub anchored: Option<u64>,
    /// Each edit and each gap, with its place. Empty: the log is whole.
    pub findings: Vec<String>,
}

/// The content of an audit record.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    actor: Actor,
    /// A user's key may cause such records without limit. They use at most half of the catalog's
    /// reserve, so that the key can still be revoked. Administrators and officers may use all of
    /// it.
    of_user: bool,
    origin: Option<Arc<str>>,
    /// The path of a file that an S3 client named.
    path: Option<Arc<str>>,
    action: Action,
    bucket: Option<String>,
    key: Option<String>,
    version: Option<String>,
    refused: Option<String>,
    detail: Option<String>,
    /// What targets of notifications are told, if a rule of the bucket says so.
    happened: Option<Happened>,
}

impl Event {
    pub fn new(caller: &Caller, action: Action) -> Event {
        let privileged = caller.has(Role::StorageAdministrator) || caller.has(Role::RetentionOfficer);
        Event {
            actor: caller.actor.clone(),
            of_user: !privileged && matches!(caller.actor, Actor::Key(_) | Actor::Anonymous),
            origin: caller.origin.clone(),
            path: caller.path.clone(),
            action,
            bucket: None,
            key: None,
            version: None,
            refused: None,
            detail: None,
            happened: None,
        }
    }

    /// Lets targets of notifications be told.
    pub fn happened(mut self, name: &'static str) -> Event {
        self.happened = Some(Happened { name, size: None, etag: None });
        self
    }

    /// The same with the content that was stored.
    pub fn stored(mut self, name: &'static str, size: u64, etag: ETag) -> Event {
        self.happened = Some(Happened { name, size: Some(size), etag: Some(etag) });
        self
    }

    pub fn bucket(mut self, bucket: &str) -> Event {
        self.bucket = Some(bucket.into());
        self
    }

    pub fn object(self, bucket: &str, key: &str) -> Event {
        Event { key: Some(key.into()), ..self.bucket(bucket) }
    }

    pub fn version(mut self, version: VersionId) -> Event {
        self.version = Some(version.to_string());
        self
    }

    /// A version that is known by its id in words alone.
    pub fn named_version(mut self, version: &str) -> Event {
        self.version = Some(version.into());
        self
    }

    pub fn refused(mut self, why: String) -> Event {
        self.refused = Some(why);
        self
    }

    pub fn detail(mut self, detail: String) -> Event {
        self.detail = Some(detail);
        self
    }

    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Puts a text before the detail.
    pub fn prefix_detail(&mut self, text: String) {
        self.detail = Some(match self.detail.take() {
            Some(detail) => format!("{text}; {detail}"),
            None => text,
        });
    }

    fn row(mut self, time: Timestamp) -> AuditRow {
        if let Some(path) = self.path.take() {
            self.prefix_detail(format!("path `{path}`"));
        }
        let within = |text: Option<String>, limit| text.map(|text| bounded(text, limit));
        AuditRow {
            time,
            actor: self.actor,
            action: self.action,
            bucket: within(self.bucket, NAME_MAX),
            key: within(self.key, KEY_MAX),
            version: within(self.version, NAME_MAX),
            refused: within(self.refused, TEXT_MAX),
            detail: within(self.detail, TEXT_MAX),
            origin: within(self.origin.map(|origin| origin.to_string()), NAME_MAX),
        }
    }
}

impl Store {
    /// Adds the record of an event to a transaction. Both take effect together or not at all.
    pub fn with_record(&self, transaction: Transaction, event: Event) -> Transaction {
        let transaction = match &event.actor {
            // A precondition of the same transaction: no change of a key takes effect after its
            // revocation.
            Actor::Key(id) if event.refused.is_none() => transaction.absent(REVOKED, id.clone()),
            _ => transaction,
        };
        let transaction = if event.of_user { transaction.within_half_reserve() } else { transaction };
        let transaction = match (&event.happened, &event.bucket, &event.key) {
            (Some(happened), Some(bucket), Some(key)) if event.refused.is_none() => {
                let occasion = Occasion {
                    bucket,
                    key,
                    version: event.version.clone(),
                    actor: &event.actor,
                    origin: event.origin.as_deref().map(str::to_owned),
                };
                self.with_event(transaction, happened, occasion)
            }
            _ => transaction,
        };
        let row = encode(&event.row(self.wall()));
        transaction.append((SETTINGS, AUDIT_HEAD), AUDIT, Template::new().number(), Template::new().bytes(row))
    }

    /// Commits a transaction together with the record of its event. This commit is the flush behind
    /// the caller's acknowledgement.
    pub async fn record(&self, transaction: Transaction, event: Event) -> Result<Receipt> {
        Ok(self.catalog().commit(self.with_record(transaction, event)).await?)
    }

    /// Passes a result on. A refusal is recorded first. It stands even where its record cannot be
    /// written.
    pub async fn audited<T>(&self, result: Result<T>, event: impl FnOnce() -> Event) -> Result<T> {
        let Err(error) = result else { return result };
        let (error, event) = match error {
            // A change that was under way when its key was revoked fails on the revocation's row.
            ArchiveError::Conflict(_) => {
                let event = event();
                (self.revoked(&event.actor).err().unwrap_or(error), Some(event))
            }
            error if is_refusal(&error) => (error, Some(event())),
            error => (error, None),
        };
        if let Some(event) = event
            && !self.is_read_only()
            && is_refusal(&error)
            && let Err(failure) = self.record_refusal(event.refused(error.to_string())).await
        {
            tracing::warn!("a refusal could not be recorded in the audit log: {failure}");
        }
        Err(error)
    }

    /// Refuses an actor whose key is revoked.
    pub(crate) fn revoked(&self, actor: &Actor) -> Result<()> {
        let Actor::Key(id) = actor else { return Ok(()) };
        match self.snapshot()?.get(REVOKED, id.as_bytes())? {
            Some(_) => Err(ArchiveError::Denied(format!("access key {id} was revoked before the request took effect"))),
            None => Ok(()),
        }
    }
}

/// Whether the error refuses by right, retention or rule. Missing, malformed and temporarily
/// impossible are no refusals.
fn is_refusal(error: &ArchiveError) -> bool {
    matches!(
        error,
        ArchiveError::Denied(_)
            | ArchiveError::Retained { .. }
            | ArchiveError::InvalidState(_)
            | ArchiveError::ExistsAlready(_)
            | ArchiveError::Weaker(_)
            | ArchiveError::CustomerKey(_)
            | ArchiveError::QuotaExceeded { .. }
            | ArchiveError::BucketNotEmpty(_)
            | ArchiveError::WrongKey(_)
            | ArchiveError::ReadOnly(_)
    )
}

/// A text of at most `limit` bytes, followed by the original length if it was cut.
fn bounded(mut text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let length = text.len();
    text.truncate(text.floor_char_boundary(limit));
    text.push_str(&format!("... ({length} bytes)"));
    text
}

impl AuditRecord {
    fn of(number: u64, link: &[u8; 32], row: AuditRow) -> AuditRecord {
        AuditRecord {
            number,
            time: row.time.to_string(),
            actor: row.actor.to_string(),
            origin: row.origin,
            action: row.action.to_string(),
            bucket: row.bucket,
            key: row.key,
            version: row.version,
            refused: row.refused,
            detail: row.detail,
            link: to_hex(link),
        }
    }
}
