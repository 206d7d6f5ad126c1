//! A bucket. The rows of deleted buckets stay: their numbers are never used again, and audit
//! records refer to them.

use minicbor::{Decode, Encode};

use crate::model::bucket::{
    AccessBlock, AnonymousAccess, BucketInfo, ExpiryAction, ObjectLock, Protection, Quota, Versioning,
};
use crate::model::class::Bindings;
use crate::model::cors::CorsRule;
use crate::model::inventory::Inventory;
use crate::model::lifecycle::LifecycleRule;
use crate::model::logging::AccessLog;
use crate::model::notification::NotificationRule;
use crate::model::principal::Actor;
use crate::model::time::Timestamp;
use crate::model::version::Tags;
use crate::record::content::Place;

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct BucketRow {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub created: Timestamp,
    #[n(2)]
    pub owner: Actor,
    #[n(3)]
    pub region: String,
    #[n(4)]
    pub versioning: Versioning,
    #[n(5)]
    pub lock: Option<ObjectLock>,
    #[n(6)]
    pub protection: Protection,
    #[n(7)]
    pub expiry: ExpiryAction,
    #[n(8)]
    pub quota: Quota,
    #[n(9)]
    pub anonymous: AnonymousAccess,
    #[n(10)]
    pub tags: Tags,
    /// The bucket key under the master key, bound to the bucket's number.
    #[cbor(n(11), with = "minicbor::bytes")]
    pub wrapped: Vec<u8>,
    #[n(12)]
    pub deleted: Option<Timestamp>,
    /// Rises with every change. Of two notes the one with the higher value counts.
    #[n(13)]
    pub change: u64,
    #[n(14)]
    pub note: Place,
    /// The bucket is a share of the file gateway, for good.
    #[n(15)]
    pub share: Option<bool>,
    /// Rules by which versions and uploads go away by age. None: there are none.
    #[n(16)]
    pub lifecycle: Option<Vec<LifecycleRule>>,
    #[n(17)]
    pub cors: Option<Vec<CorsRule>>,
    /// The bucket policy, as it was set.
    #[n(18)]
    pub policy: Option<String>,
    #[n(19)]
    pub access_block: Option<AccessBlock>,
    /// The classes of versions that are stored from now on.
    #[n(20)]
    pub classes: Option<Bindings>,
    /// The rules by which changes of objects are told to targets.
    #[n(21)]
    pub notifications: Option<Vec<NotificationRule>>,
    /// Where the access log goes.
    #[n(22)]
    pub logging: Option<AccessLog>,
    /// The inventories that the store makes.
    #[n(23)]
    pub inventories: Option<Vec<Inventory>>,
}

impl BucketRow {
    /// The row in a note that takes the creation of a bucket back. No other one has an empty name.
    /// `wrapped`: some key.
    pub fn withdrawn(wall: Timestamp, wrapped: Vec<u8>) -> BucketRow {
        BucketRow {
            name: String::new(),
            created: wall,
            owner: Actor::System("store".into()),
            region: String::new(),
            versioning: Versioning::Off,
            lock: None,
            protection: Protection::Basic,
            expiry: ExpiryAction::Keep,
            quota: Quota::default(),
            anonymous: AnonymousAccess::default(),
            tags: Tags::default(),
            wrapped,
            deleted: Some(wall),
            change: 0,
            note: Place::default(),
            share: None,
            lifecycle: None,
            cors: None,
            policy: None,
            access_block: None,
            classes: None,
            notifications: None,
            logging: None,
            inventories: None,
        }
    }

    pub fn is_withdrawn(&self) -> bool {
        self.name.is_empty()
    }

    pub fn info(&self) -> BucketInfo {
        BucketInfo {
            name: self.name.clone(),
            created: self.created,
            owner: self.owner.to_string(),
            region: self.region.clone(),
            versioning: self.versioning,
            object_lock: self.lock,
            protection: self.protection,
            expiry: self.expiry,
            quota: self.quota,
            anonymous: self.anonymous,
            tags: self.tags.clone(),
            classes: self.classes.clone().unwrap_or_default(),
            share: self.is_share(),
        }
    }

    pub fn is_share(&self) -> bool {
        self.share == Some(true)
    }
}
