//! An access key, revoked ones included.

use minicbor::{Decode, Encode};

use crate::model::bucket::Quota;
use crate::model::principal::{AccessKeyInfo, Owned, Rights};
use crate::model::time::Timestamp;
use crate::record::content::Place;

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct AccessKeyRow {
    #[n(0)]
    pub description: String,
    #[n(1)]
    pub rights: Rights,
    #[n(2)]
    pub created: Timestamp,
    #[n(3)]
    pub revoked: Option<Timestamp>,
    /// Sealed under a key derived from the master key, bound to the id.
    #[cbor(n(4), with = "minicbor::bytes")]
    pub secret: Vec<u8>,
    #[n(5)]
    pub change: u64,
    #[n(6)]
    pub note: Place,
    /// A new officer's key, void until another officer approves it.
    #[n(7)]
    pub pending: Option<bool>,
    /// The key was an officer's once, whatever rights it has now: see
    /// [`crate::record::settings::OFFICERS`].
    #[n(8)]
    pub officer: Option<bool>,
    /// The key is void from this moment on. None: it has no end.
    #[n(9)]
    pub expires: Option<Timestamp>,
    /// Of what the key owns, over all buckets. None: no limit.
    #[n(10)]
    pub quota: Option<Quota>,
}

/// The note of an access key in a segment.
#[derive(minicbor::Encode, minicbor::Decode)]
pub(crate) struct AccessKeyNote {
    #[n(0)]
    pub id: String,
    #[n(1)]
    pub row: AccessKeyRow,
}

impl AccessKeyRow {
    /// The row in a note that takes the creation of an access key back. No other one has no secret.
    pub fn withdrawn(wall: Timestamp) -> AccessKeyRow {
        AccessKeyRow {
            description: String::new(),
            rights: Rights::default(),
            created: wall,
            revoked: Some(wall),
            secret: Vec::new(),
            change: 0,
            note: Place::default(),
            pending: Some(true),
            officer: None,
            expires: None,
            quota: None,
        }
    }

    pub fn is_withdrawn(&self) -> bool {
        self.secret.is_empty()
    }

    pub fn is_pending(&self) -> bool {
        self.pending == Some(true)
    }

    /// Whether the key was ever a valid officer's.
    pub fn was_officer(&self) -> bool {
        self.officer == Some(true) || (self.rights.approves() && !self.is_pending())
    }

    /// Whether the key has reached its end.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// `now`: see [`crate::store::Store::key_now`].
    /// `owned`: what it owns.
    pub fn info(&self, id: &str, now: Timestamp, owned: Owned) -> AccessKeyInfo {
        AccessKeyInfo {
            id: id.into(),
            description: self.description.clone(),
            rights: self.rights.clone(),
            created: self.created,
            revoked: self.revoked,
            pending: self.is_pending(),
            expires: self.expires,
            expired: self.is_expired(now),
            quota: self.quota.unwrap_or_default(),
            owned,
        }
    }
}
