//! The audit log: every change and every refusal, each record chained to the one before.

use std::fmt;

use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use stele_catalog::{Receipt, Template, Transaction};

use crate::Archive;
use crate::checksum::to_hex;
use crate::error::{ArchiveError, Result};
use crate::principal::{Actor, Caller, Role};
use crate::record::audit::AuditRow;
use crate::record::settings::AUDIT_HEAD;
use crate::record::{AUDIT, SETTINGS, decode, encode};
use crate::seal::{derive, open_note, seal_note, wrong_key};
use crate::store::{Foundation, Store, locked};
use crate::time::Timestamp;
use crate::version::VersionId;

pub(crate) mod sealing;
mod verify;

/// What was done or refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum Action {
    #[n(0)]
    CreateStore,
    #[n(1)]
    OpenStore,
    #[n(2)]
    CreateBucket,
    #[n(3)]
    ChangeBucket,
    #[n(4)]
    DeleteBucket,
    #[n(5)]
    PutObject,
    #[n(6)]
    DeleteObject,
    #[n(7)]
    AddDeleteMarker,
    #[n(8)]
    SetRetention,
    #[n(9)]
    SetLegalHold,
    #[n(10)]
    SetTags,
    #[n(11)]
    CreateUpload,
    #[n(12)]
    PutPart,
    #[n(13)]
    CompleteUpload,
    #[n(14)]
    AbortUpload,
    #[n(15)]
    CreateAccessKey,
    #[n(16)]
    RevokeAccessKey,
    #[n(17)]
    Expire,
    #[n(18)]
    Dispose,
    #[n(19)]
    ClockAlarm,
    #[n(20)]
    ClockAccept,
    #[n(21)]
    ExportMasterKey,
    #[n(22)]
    Rebuild,
    #[n(23)]
    Read,
    #[n(24)]
    List,
    #[n(25)]
    Audit,
    /// Something a face refused; `detail` says what.
    #[n(26)]
    Face,
    #[n(27)]
    Protect,
    /// Something an operator did to what the store stands on: drives, volumes, quorum; `detail` says what.
    #[n(28)]
    Administer,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

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
        Event {
            actor: caller.actor.clone(),
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

    fn row(self, time: Timestamp) -> AuditRow {
        AuditRow {
            time,
            actor: self.actor,
            action: self.action,
            bucket: self.bucket,
            key: self.key,
            version: self.version,
            refused: self.refused,
            detail: self.detail,
            origin: self.origin.map(|origin| origin.to_string()),
        }
    }
}

impl Store {
    /// Adds the record of an event to a transaction: they take place together or not at all.
    pub fn with_record(&self, transaction: Transaction, event: Event) -> Transaction {
        let row = encode(&event.row(self.wall()));
        transaction.append((SETTINGS, AUDIT_HEAD), AUDIT, Template::new().number(), Template::new().bytes(row))
    }

    /// Commits a transaction together with the record of its event. The catalog's commit is the flush behind whatever is
    /// acknowledged on its strength.
    pub async fn record(&self, transaction: Transaction, event: Event) -> Result<Receipt> {
        Ok(self.catalog.commit(self.with_record(transaction, event)).await?)
    }

    /// Passes a result on; a refusal is recorded first. If even the record cannot be written, the refusal stands.
    pub async fn audited<T>(&self, result: Result<T>, event: impl FnOnce() -> Event) -> Result<T> {
        if let Err(error) = &result
            && !self.read_only
            && is_refusal(error)
        {
            let event = event().refused(error.to_string());
            let recorded = match event.actor {
                Actor::Anonymous => self.record_stranger(event).await,
                _ => self.record(Transaction::new().with_reserve(), event).await.map(drop),
            };
            if let Err(failure) = recorded {
                tracing::warn!("a refusal could not be recorded in the audit log: {failure}");
            }
        }
        result
    }

    /// Records what was refused to somebody unknown, at a bounded rate and never on the reserve: otherwise anyone who
    /// reaches the port could fill the log. What is left out is counted in the next such record.
    pub async fn record_stranger(&self, mut event: Event) -> Result<()> {
        let Some(left_out) = locked(&self.work.strangers).admit(self.surroundings.now().monotonic.0 / 1_000_000) else {
            return Ok(());
        };
        if left_out > 0 {
            let said = event.detail.take().map_or_else(String::new, |detail| format!("{detail}; "));
            event.detail = Some(format!("{said}{left_out} refusals before this were left out"));
        }
        let recorded = self.record(Transaction::new(), event).await.map(drop);
        if recorded.is_err() {
            locked(&self.work.strangers).left_out += left_out + 1;
        }
        recorded
    }
}

/// How many refusals of strangers are recorded: a burst, and then a few a minute.
#[derive(Default)]
pub(crate) struct Strangers {
    /// Spent of the burst, in milliseconds of waiting.
    spent: u64,
    last: u64,
    left_out: u64,
}

const STRANGERS_BURST: u64 = 100;
/// Milliseconds for one more: 14,400 a day.
const STRANGERS_EVERY: u64 = 6_000;

impl Strangers {
    /// Some: record it, and how many were left out before it.
    fn admit(&mut self, now: u64) -> Option<u64> {
        self.spent = self.spent.saturating_sub(now.saturating_sub(self.last));
        self.last = now;
        if self.spent + STRANGERS_EVERY > STRANGERS_BURST * STRANGERS_EVERY {
            self.left_out += 1;
            return None;
        }
        self.spent += STRANGERS_EVERY;
        Some(std::mem::take(&mut self.left_out))
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

/// The key that signs heads of the audit log.
pub(crate) struct Signing(Ed25519KeyPair);

impl Signing {
    /// A new key, sealed for the identity record.
    pub fn generate(foundation: &Foundation, store: &[u8; 16]) -> Vec<u8> {
        let seed = crate::seal::random_secret(&*foundation.surroundings);
        let key = derive(&foundation.master.0, "signing", store);
        seal_note(&*foundation.surroundings, &key, store, seed.as_ref())
    }

    pub fn open(foundation: &Foundation, store: &[u8; 16], sealed: &[u8]) -> Result<Signing> {
        let key = derive(&foundation.master.0, "signing", store);
        let seed = open_note(&key, store, sealed).map_err(|_| wrong_key("the signing key"))?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| wrong_key("the signing key"))?;
        Ok(Signing(pair))
    }

    pub fn public(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }
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
