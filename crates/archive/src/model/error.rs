//! The errors of the archive, one variant for each reaction of the caller.
//!
//! Frontends translate these into their own codes. The text names cause, place and next step.

use std::fmt;

use stele_catalog::CatalogError;
use stele_media::{MediaError, MediaFault};

use crate::model::time::Timestamp;
use crate::model::version::{RetentionMode, VersionId};

pub type Result<T, E = ArchiveError> = std::result::Result<T, E>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArchiveError {
    NoSuchBucket(String),
    NoSuchKey {
        bucket: String,
        key: String,
        /// The current version is this delete marker.
        marker: Option<VersionId>,
    },
    NoSuchVersion {
        bucket: String,
        key: String,
        version: String,
    },
    /// The named version is a delete marker: it can be deleted, but not read.
    IsDeleteMarker {
        version: VersionId,
        modified: Timestamp,
    },
    NoSuchUpload(String),
    NoSuchAccessKey(String),
    /// The access key or session has reached its end.
    ExpiredAccessKey(String),
    /// The token of a session is not one, or of another session.
    InvalidToken(String),
    /// Nothing of this kind is configured; `kind` is for instance "ObjectLockConfiguration" or
    /// "TagSet".
    NoSuchConfiguration {
        kind: &'static str,
        place: String,
    },
    /// No matter, class, request, record or other thing of the store has this name. Names the
    /// command that lists them.
    NoSuchThing(String),
    BucketExists {
        name: String,
        /// The caller owns it.
        own: bool,
    },
    /// A thing of the store other than a bucket has this name already; nothing changed.
    ExistsAlready(String),
    BucketNotEmpty(String),
    /// The bucket name breaks the rules.
    InvalidBucketName(String),
    /// The key is empty or longer than 1024 bytes.
    InvalidKey(String),
    /// A version id, upload id or continuation token that the store never issued.
    InvalidArgument(String),
    InvalidRequest(String),
    /// Impossible in the bucket's present state, for instance suspending versioning under Object
    /// Lock.
    InvalidState(String),
    /// The change would make retention weaker; nothing changed.
    Weaker(String),
    /// The range begins behind the end.
    InvalidRange {
        size: u64,
    },
    /// A condition of the request does not hold; nothing changed.
    PreconditionFailed(String),
    /// The client has the current content already.
    NotModified {
        etag: String,
        modified: Timestamp,
    },
    /// Another request changed the same thing at the same time; nothing changed, try again.
    Conflict(String),
    /// The caller has no right to it.
    Denied(String),
    /// Retention or a hold forbids it. No right on S3 changes that, unless `mode` is governance.
    Retained {
        bucket: String,
        key: String,
        version: VersionId,
        mode: Option<RetentionMode>,
        until: Option<Timestamp>,
        legal_hold: bool,
        message: String,
    },
    /// The content does not match a digest of the request; `algorithm` names the digest.
    BadDigest {
        algorithm: &'static str,
        expected: String,
        computed: String,
    },
    /// Fewer bytes arrived than announced.
    IncompleteBody {
        expected: u64,
        received: u64,
    },
    TooLarge {
        limit: u64,
    },
    /// A part other than the last below 5 MiB.
    PartTooSmall {
        number: u32,
        size: u64,
    },
    InvalidPart {
        number: u32,
        message: String,
    },
    InvalidPartOrder,
    /// The object is encrypted under a customer's key, and the request carries no key or another
    /// one.
    CustomerKey(String),
    /// The data volume or catalog is full; nothing was stored. Reads and deletes still work.
    NoSpace(String),
    /// `of`: a bucket or an access key, in words. `limit`: the one that has no room:
    /// `1000 versions` or `1048576 bytes`.
    QuotaExceeded {
        of: String,
        limit: String,
    },
    /// A queue is at its limit; try again later.
    Busy(String),
    /// Stored bytes do not verify, and the redundancy below could not repair them. Names place and
    /// fault.
    Damaged {
        place: String,
        message: String,
    },
    /// What was to be removed is removed, and the audit log says so. Its key is still on the
    /// drives: background work destroys it as soon as the drives let it, and until then the alarm
    /// `disposal` stands.
    KeyNotDestroyed(String),
    /// The catalog and the data volume do not belong together: one is an older copy, or of another
    /// history of the store. The store can be opened for reading only.
    Unpaired(String),
    /// A later version of Stele wrote the store. It is not damaged, and must not be created again.
    Newer(String),
    /// This store was opened for reading only.
    ReadOnly(String),
    /// The master key is missing, or is not the key of this store.
    WrongKey(String),
    /// The store, its catalog or its data volume has stopped. Whether the request took place is
    /// known after reopening.
    Stopped(String),
}

impl ArchiveError {
    pub(crate) fn damaged(place: impl Into<String>, message: impl Into<String>) -> ArchiveError {
        ArchiveError::Damaged { place: place.into(), message: message.into() }
    }
}

impl ArchiveError {
    /// The same error with another name of the key: a file of a share is named by its path.
    pub fn with_key(mut self, from: &str, to: &str) -> ArchiveError {
        match &mut self {
            ArchiveError::NoSuchKey { key, .. } | ArchiveError::NoSuchVersion { key, .. } => to.clone_into(key),
            ArchiveError::Retained { key, message, .. } => {
                to.clone_into(key);
                *message = message.replace(from, to);
            }
            ArchiveError::NoSuchConfiguration { place: text, .. }
            | ArchiveError::InvalidArgument(text)
            | ArchiveError::InvalidRequest(text)
            | ArchiveError::InvalidState(text)
            | ArchiveError::NoSuchThing(text)
            | ArchiveError::ExistsAlready(text)
            | ArchiveError::Weaker(text)
            | ArchiveError::PreconditionFailed(text)
            | ArchiveError::Conflict(text)
            | ArchiveError::Denied(text)
            | ArchiveError::CustomerKey(text)
            | ArchiveError::Busy(text)
            | ArchiveError::Damaged { place: text, .. } => *text = text.replace(from, to),
            _ => {}
        }
        self
    }
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ArchiveError::*;
        match self {
            NoSuchBucket(name) => write!(f, "there is no bucket `{name}`"),
            NoSuchKey { bucket, key, marker: None } => write!(f, "bucket `{bucket}` holds no object `{key}`"),
            NoSuchKey { bucket, key, marker: Some(_) } => {
                write!(f, "the current version of `{bucket}/{key}` is a delete marker; list its versions")
            }
            NoSuchVersion { bucket, key, version } => write!(f, "`{bucket}/{key}` has no version {version}"),
            IsDeleteMarker { version, .. } => write!(f, "version {version} is a delete marker and has no content"),
            NoSuchUpload(id) => write!(f, "there is no upload {id}; it was completed, aborted or never begun"),
            NoSuchAccessKey(id) => write!(f, "there is no access key {id}, or it was revoked"),
            ExpiredAccessKey(id) => write!(f, "access key {id} has expired; ask a storage administrator for a new one"),
            NoSuchConfiguration { kind, place } => write!(f, "{place} has no {kind}"),
            BucketExists { name, .. } => write!(f, "a bucket `{name}` exists already"),
            BucketNotEmpty(name) => {
                write!(f, "bucket `{name}` still holds versions, delete markers or uploads; remove those first")
            }
            InvalidBucketName(message)
            | InvalidToken(message)
            | InvalidKey(message)
            | InvalidArgument(message)
            | InvalidRequest(message)
            | InvalidState(message)
            | NoSuchThing(message)
            | ExistsAlready(message)
            | Weaker(message)
            | PreconditionFailed(message)
            | Conflict(message)
            | Denied(message)
            | CustomerKey(message)
            | NoSpace(message)
            | Busy(message)
            | Newer(message)
            | ReadOnly(message)
            | Unpaired(message)
            | WrongKey(message)
            | Stopped(message) => f.write_str(message),
            InvalidRange { size } => write!(f, "the range begins behind the end of the object, which has {size} bytes"),
            NotModified { etag, .. } => write!(f, "not modified: the entity tag is still {etag}"),
            Retained { message, .. } => f.write_str(message),
            BadDigest { algorithm, expected, computed } => {
                write!(f, "the {algorithm} of the received content is {computed}, the request says {expected}")
            }
            IncompleteBody { expected, received } => {
                write!(f, "the body ended after {received} of {expected} bytes; nothing was stored")
            }
            TooLarge { limit } => {
                write!(f, "the content is larger than the limit of {limit} bytes; nothing was stored")
            }
            PartTooSmall { number, size } => {
                write!(f, "part {number} has {size} bytes; every part but the last needs at least 5 MiB")
            }
            InvalidPart { number, message } => write!(f, "part {number}: {message}"),
            InvalidPartOrder => f.write_str("the parts are not listed in rising order of their numbers"),
            QuotaExceeded { of, limit } => {
                write!(f, "{of} would exceed its quota of {limit}; nothing was stored")
            }
            Damaged { place, message } => write!(f, "{place} is damaged: {message}"),
            KeyNotDestroyed(cause) => {
                write!(f, "it is removed, but its key could not be destroyed yet: {cause}; Stele tries again")
            }
        }
    }
}

impl std::error::Error for ArchiveError {}

impl From<CatalogError> for ArchiveError {
    fn from(error: CatalogError) -> ArchiveError {
        match error {
            CatalogError::Failed(_) => {
                ArchiveError::Conflict("another request changed the same record at the same time; try again".into())
            }
            CatalogError::Invalid(message) => ArchiveError::InvalidRequest(message),
            CatalogError::Full(message) => ArchiveError::NoSpace(format!("the catalog has no room: {message}")),
            CatalogError::Busy => ArchiveError::Busy("the catalog's queue is full; try again later".into()),
            CatalogError::Damaged(message) => ArchiveError::damaged(
                "the catalog",
                format!("{message}; `stele catalog rebuild` recovers it from the data volume"),
            ),
            CatalogError::Newer(_) => ArchiveError::Newer(error.to_string()),
            CatalogError::Stopped(message) => ArchiveError::Stopped(format!("the catalog has stopped: {message}")),
        }
    }
}

impl From<MediaError> for ArchiveError {
    fn from(error: MediaError) -> ArchiveError {
        let message = format!("data volume: {error}");
        match error.fault {
            MediaFault::Retry => ArchiveError::Busy(message),
            MediaFault::Damaged => ArchiveError::damaged("the data volume", error.message.into_owned()),
            MediaFault::Full => ArchiveError::NoSpace(message),
            MediaFault::Refused => ArchiveError::ReadOnly(message),
            MediaFault::Invalid | MediaFault::Gone => ArchiveError::Stopped(message),
        }
    }
}
