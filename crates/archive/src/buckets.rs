//! Making, changing and removing buckets.

use crate::Archive;
use crate::bucket::{BucketChange, BucketInfo, NewBucket, Usage};
use crate::error::Result;
use crate::principal::Caller;

impl Archive {
    pub async fn create_bucket(&self, _caller: &Caller, _name: &str, _new: NewBucket) -> Result<BucketInfo> {
        Err(crate::being_built())
    }

    /// Refused while it holds a version, delete marker or upload.
    pub async fn delete_bucket(&self, _caller: &Caller, _name: &str) -> Result<()> {
        Err(crate::being_built())
    }

    /// The buckets that the caller may see, by name.
    pub async fn list_buckets(&self, _caller: &Caller) -> Result<Vec<BucketInfo>> {
        Err(crate::being_built())
    }

    pub async fn bucket(&self, _caller: &Caller, _name: &str) -> Result<BucketInfo> {
        Err(crate::being_built())
    }

    pub async fn change_bucket(&self, _caller: &Caller, _name: &str, _change: BucketChange) -> Result<BucketInfo> {
        Err(crate::being_built())
    }

    pub async fn usage(&self, _caller: &Caller, _name: &str) -> Result<Usage> {
        Err(crate::being_built())
    }
}
