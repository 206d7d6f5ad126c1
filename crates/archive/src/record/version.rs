//! A version: all its properties except bucket, key and number, which are its record key.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};

use crate::model::bucket::{ExpiryAction, Versioning};
use crate::model::checksum::{Checksum, to_base64};
use crate::model::matter::S3;
use crate::model::principal::Actor;
use crate::model::secrets::CustomerKey;
use crate::model::time::Timestamp;
use crate::model::version::{ETag, Metadata, ObjectInfo, Retention, Tags, VersionId};
use crate::record::bucket::BucketRow;
use crate::record::class::ClassMark;
use crate::record::content::{Content, Place};

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct VersionRow {
    /// Its frames and its key are bound to this number.
    #[n(0)]
    pub object: u64,
    /// The random half of the version id.
    #[n(1)]
    pub salt: u64,
    /// The null version: written while the bucket was not versioned.
    #[n(2)]
    pub null: bool,
    #[n(3)]
    pub marker: bool,
    #[n(4)]
    pub size: u64,
    #[n(5)]
    pub etag: ETag,
    #[n(6)]
    pub modified: Timestamp,
    #[n(7)]
    pub owner: Actor,
    /// The slot of its wrapped key in the key table. A delete marker has an entry too, since a
    /// version exists as long as its entry.
    #[n(8)]
    pub slot: u64,
    #[n(9)]
    pub metadata: Metadata,
    #[n(10)]
    pub tags: Tags,
    #[n(11)]
    pub retention: Option<Retention>,
    #[n(12)]
    pub hold: bool,
    #[n(13)]
    pub checksums: Vec<Checksum>,
    #[cbor(n(14), with = "minicbor::bytes")]
    pub blake3: [u8; 32],
    #[n(15)]
    pub customer: Option<CustomerMark>,
    #[n(16)]
    pub content: Content,
    /// The place of the newest note of this row.
    #[n(17)]
    pub note: Place,
    /// Expiration has recorded that its retention ended (action `notify`).
    #[n(18)]
    pub notified: Option<bool>,
    /// The upload it was completed from.
    #[n(19)]
    pub upload: Option<u64>,
    /// The named matters it is under. S3's legal hold, the matter `s3`, is `hold`.
    #[n(20)]
    pub matters: Option<BTreeSet<String>>,
    /// The class in force when it was stored. Its retention is set from it.
    #[n(21)]
    pub class: Option<ClassMark>,
    /// The number drawn when S3's hold was last set on it. None: it was stored with the hold, an
    /// older version of Stele set it, or it has none.
    #[n(22)]
    pub held: Option<u64>,
}

/// Recognises the customer's key without storing it.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct CustomerMark {
    #[cbor(n(0), with = "minicbor::bytes")]
    pub salt: [u8; 16],
    /// Keyed BLAKE3 of the salt under the customer's key.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub hash: [u8; 32],
}

impl CustomerMark {
    pub fn of(key: &CustomerKey, salt: [u8; 16]) -> CustomerMark {
        CustomerMark { salt, hash: *crate::seal::derive(&key.0, "customer mark", &salt) }
    }

    pub fn recognises(&self, key: &CustomerKey) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&CustomerMark::of(key, self.salt).hash, &self.hash).is_ok()
    }
}

/// A reference from an index to a version.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
pub(crate) struct VersionRef {
    #[n(0)]
    pub bucket: u32,
    #[n(1)]
    pub key: String,
    #[n(2)]
    pub number: u64,
}

/// The owner of an object with more than one piece.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) enum Owner {
    #[n(0)]
    Version(#[n(0)] VersionRef),
    /// An upload under way, with the upload's number.
    #[n(1)]
    Upload(#[n(0)] VersionRef),
}

/// The bucket of notes that take a version back: no bucket has this number.
pub(crate) const TAKEN_BACK: u32 = 0;

impl VersionRef {
    pub fn record_key(&self) -> bytes::Bytes {
        crate::record::keys::version(self.bucket, &self.key, self.number)
    }
}

/// The note of a version in a segment, from which the catalog can be rebuilt: the row and its
/// record key.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct VersionNote {
    #[n(0)]
    pub at: VersionRef,
    /// The places in it are those at the time of writing. A rebuild replaces them.
    #[n(1)]
    pub row: VersionRow,
    /// The parts of a multipart object.
    #[n(2)]
    pub layout: Option<crate::record::content::Layout>,
}

impl VersionRow {
    pub fn id(&self, number: u64) -> VersionId {
        if self.null { VersionId::Null } else { VersionId::Number(number, self.salt) }
    }

    /// Whether any matter holds it, S3's legal hold included.
    pub fn is_held(&self) -> bool {
        self.hold || self.matters.as_ref().is_some_and(|matters| !matters.is_empty())
    }

    /// The matters it is under, `s3` included.
    pub fn matters(&self) -> impl Iterator<Item = &str> {
        self.hold.then_some(S3).into_iter().chain(self.matters.iter().flatten().map(String::as_str))
    }

    /// Its class keeps it without an end until an event is told.
    pub fn awaits_event(&self) -> bool {
        self.class.as_ref().is_some_and(ClassMark::awaits_event)
    }

    /// What expiration does with it when its retention has passed.
    pub fn expiry(&self, bucket: &BucketRow) -> ExpiryAction {
        self.class.as_ref().map_or(bucket.expiry, |mark| mark.terms.action)
    }

    pub fn is_under(&self, matter: &str) -> bool {
        self.matters().any(|name| name == matter)
    }

    /// Sets or releases S3's hold. `number`: drawn now, so that a release that began before passes
    /// over it.
    pub fn set_hold(&mut self, on: bool, number: u64) {
        self.hold = on;
        self.held = on.then_some(number);
    }

    /// Puts it under a named matter, or releases it from that matter alone.
    pub fn put_under(&mut self, matter: &str, on: bool) {
        let mut matters = self.matters.take().unwrap_or_default();
        match on {
            true => matters.insert(matter.into()),
            false => matters.remove(matter),
        };
        self.matters = (!matters.is_empty()).then_some(matters);
    }

    pub fn info(&self, bucket: &BucketRow, key: &str, number: u64, latest: bool) -> ObjectInfo {
        ObjectInfo {
            bucket: bucket.name.clone(),
            key: key.into(),
            version: self.id(number),
            versioned: bucket.versioning != Versioning::Off,
            latest,
            delete_marker: self.marker,
            size: self.size,
            etag: self.etag,
            modified: self.modified,
            metadata: self.metadata.clone(),
            tags: self.tags.clone(),
            retention: self.retention,
            legal_hold: self.hold,
            parts: self.etag.parts.filter(|parts| *parts > 0),
            checksums: self.checksums.clone(),
            blake3: self.blake3,
            customer_key_md5: None,
            owner: self.owner.to_string(),
            logged: None,
        }
    }

    /// Size and BLAKE3 as audit records state them. Receipts and proofs read them there:
    /// FORMAT/evidence.md.
    pub fn content_in_words(&self) -> String {
        format!("{} bytes, blake3 {}", self.size, self.fingerprint())
    }

    /// The BLAKE3 in base64, for messages.
    pub fn fingerprint(&self) -> String {
        to_base64(&self.blake3)
    }
}

impl VersionNote {
    /// Takes back the version that earlier notes make of an object whose upload goes on.
    pub fn taken_back(object: u64, slot: u64, owner: Actor, time: Timestamp) -> VersionNote {
        let row = VersionRow {
            object,
            salt: 0,
            null: true,
            marker: true,
            size: 0,
            etag: ETag { md5: [0; 16], parts: None },
            modified: time,
            owner,
            slot,
            metadata: Metadata::default(),
            tags: Tags::new(),
            retention: None,
            hold: false,
            checksums: Vec::new(),
            blake3: [0; 32],
            customer: None,
            content: Content::None,
            note: Place::default(),
            notified: None,
            upload: None,
            matters: None,
            class: None,
            held: None,
        };
        VersionNote { at: VersionRef { bucket: TAKEN_BACK, key: String::new(), number: 0 }, row, layout: None }
    }
}
