//! The audit log: every change and every refusal, each record chained to the one before.

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
use crate::model::version::VersionId;
use crate::record::audit::AuditRow;
use crate::record::settings::AUDIT_HEAD;
use crate::record::{AUDIT, REVOKED, SETTINGS, encode};
use crate::store::Store;

/// Bytes of the texts of one record: of a name, of an S3 key, and of a reason or detail. What callers send can be longer; a
/// record says how long it was.
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
    /// None: it was done. Otherwise why it was refused.
    pub refused: Option<String>,
    pub detail: Option<String>,
    /// The chain's end after this record, hexadecimal.
    pub link: String,
}

/// The end of the log at some moment, signed. Kept elsewhere, it proves later that nothing before it was cut or changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignedHead {
    pub store: String,
    pub records: u64,
    pub link: String,
    /// Of the Merkle tree over all records' links.
    pub root: String,
    pub time: String,
    pub public_key: String,
    pub signature: String,
}

/// How a head that was kept elsewhere stands to the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeadVerdict {
    /// The log contains it.
    Contained,
    /// It is of records that a rebuild since said are lost.
    Lost,
    /// It was signed when the log had more records: the store was set back since.
    Newer { theirs: u64, ours: u64 },
    /// The log is another at that record.
    Other { records: u64 },
    /// It was not signed by this store.
    Foreign(String),
}

/// What a verification found.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditVerdict {
    pub records: u64,
    pub checkpoints: u64,
    /// The anchor's record count, if one was given and matched.
    pub anchored: Option<u64>,
    /// Empty: no edit and no gap. Otherwise what and where.
    pub findings: Vec<String>,
}

/// What an audit record will say.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    actor: Actor,
    /// What a key may do as often as it likes, as no administrator or officer: it uses half of the catalog's reserve at most, so
    /// that the key can still be revoked.
    of_user: bool,
    origin: Option<Arc<str>>,
    action: Action,
    bucket: Option<String>,
    key: Option<String>,
    version: Option<String>,
    refused: Option<String>,
    detail: Option<String>,
}

impl Event {
    pub fn new(caller: &Caller, action: Action) -> Event {
        let privileged = caller.has(Role::StorageAdministrator) || caller.has(Role::RetentionOfficer);
        Event {
            actor: caller.actor.clone(),
            of_user: !privileged && matches!(caller.actor, Actor::Key(_) | Actor::Anonymous),
            origin: caller.origin.clone(),
            action,
            bucket: None,
            key: None,
            version: None,
            refused: None,
            detail: None,
        }
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

    fn row(self, time: Timestamp) -> AuditRow {
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
    /// Adds the record of an event to a transaction: they take place together or not at all.
    pub fn with_record(&self, transaction: Transaction, event: Event) -> Transaction {
        let transaction = match &event.actor {
            // In the transaction itself, so that nothing a key does takes place after its revocation.
            Actor::Key(id) if event.refused.is_none() => transaction.absent(REVOKED, id.clone()),
            _ => transaction,
        };
        let transaction = if event.of_user { transaction.within_half_reserve() } else { transaction };
        let row = encode(&event.row(self.wall()));
        transaction.append((SETTINGS, AUDIT_HEAD), AUDIT, Template::new().number(), Template::new().bytes(row))
    }

    /// Commits a transaction together with the record of its event. The catalog's commit is the flush behind whatever is
    /// acknowledged on its strength.
    pub async fn record(&self, transaction: Transaction, event: Event) -> Result<Receipt> {
        Ok(self.catalog().commit(self.with_record(transaction, event)).await?)
    }

    /// Passes a result on; a refusal is recorded first. If even the record cannot be written, the refusal stands.
    pub async fn audited<T>(&self, result: Result<T>, event: impl FnOnce() -> Event) -> Result<T> {
        let Err(error) = result else { return result };
        let (error, event) = match error {
            // What a key had under way when it was revoked met the record of that.
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
            Some(_) => Err(ArchiveError::Denied(format!("access key {id} was revoked before this was done"))),
            None => Ok(()),
        }
    }
}

/// Refused on grounds of right, retention or rule, as opposed to not found, malformed or impossible just now.
fn is_refusal(error: &ArchiveError) -> bool {
    matches!(
        error,
        ArchiveError::Denied(_)
            | ArchiveError::Retained { .. }
            | ArchiveError::InvalidState(_)
            | ArchiveError::CustomerKey(_)
            | ArchiveError::QuotaExceeded { .. }
            | ArchiveError::BucketNotEmpty(_)
            | ArchiveError::WrongKey(_)
            | ArchiveError::ReadOnly(_)
    )
}

/// A text of at most `limit` bytes, and then how long it was.
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
