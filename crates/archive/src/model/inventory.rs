//! Inventories of a bucket: lists of its objects that the store makes daily or weekly.

use minicbor::{Decode, Encode};

use crate::model::error::{ArchiveError, Result};

/// Inventories of one bucket.
pub const INVENTORIES_MAX: usize = 100;
/// Characters of an id, and bytes of a prefix.
const ID_MAX: usize = 64;
const PREFIX_MAX: usize = 512;

/// The optional fields that this store has.
pub const INVENTORY_FIELDS: [&str; 10] = [
    "Size",
    "LastModifiedDate",
    "StorageClass",
    "ETag",
    "IsMultipartUploaded",
    "ObjectLockRetainUntilDate",
    "ObjectLockMode",
    "ObjectLockLegalHoldStatus",
    "ChecksumAlgorithm",
    "ObjectOwner",
];

/// One inventory.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Inventory {
    #[n(0)]
    pub id: String,
    #[n(1)]
    pub enabled: bool,
    /// The bucket that gets it.
    #[n(2)]
    pub bucket: String,
    /// Before the names of its objects. None: nothing.
    #[n(3)]
    pub prefix: Option<String>,
    /// Only keys with this prefix.
    #[n(4)]
    pub filter: Option<String>,
    /// Every version, delete markers too. Otherwise the current ones with content.
    #[n(5)]
    pub all_versions: bool,
    /// Every week. Otherwise every day.
    #[n(6)]
    pub weekly: bool,
    /// Of [`INVENTORY_FIELDS`], in the order of the client.
    #[n(7)]
    pub fields: Vec<String>,
}

/// What is known of the runs of an inventory.
#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct InventoryRun {
    /// When the last one that was made began. Zero: none was.
    #[n(0)]
    pub begun: crate::model::time::Timestamp,
    /// Files of a run that may have no manifest.
    #[n(1)]
    pub unfinished: Option<UnfinishedRun>,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct UnfinishedRun {
    #[n(0)]
    pub bucket: String,
    /// What the keys of the files begin with. It has a random number, so no other object has it.
    #[n(1)]
    pub prefix: String,
}

impl Inventory {
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(ArchiveError::InvalidArgument(message));
        let named = (1..=ID_MAX).contains(&self.id.len());
        if !named || !self.id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            return refuse("the id of an inventory has 1 to 64 letters, digits, `-`, `_` and `.`".into());
        }
        for prefix in [&self.prefix, &self.filter].into_iter().flatten() {
            if prefix.len() > PREFIX_MAX {
                return refuse(format!("a prefix of an inventory has at most {PREFIX_MAX} bytes"));
            }
        }
        for (at, field) in self.fields.iter().enumerate() {
            if !INVENTORY_FIELDS.contains(&field.as_str()) {
                return refuse(format!("an inventory has no field `{field}` here"));
            }
            if self.fields.iter().take(at).any(|other| other == field) {
                return refuse(format!("the field `{field}` is there twice"));
            }
        }
        Ok(())
    }

    /// What the keys of its objects begin with. The prefix stays as its author was allowed to write
    /// it.
    pub(crate) fn folder(&self, source: &str) -> String {
        match self.prefix.as_deref() {
            None | Some("") => format!("{source}/{}", self.id),
            Some(prefix) => format!("{prefix}/{source}/{}", self.id),
        }
    }

    /// Milliseconds between two inventories.
    pub(crate) fn period(&self) -> u64 {
        crate::model::time::DAY * if self.weekly { 7 } else { 1 }
    }
}
