//! `stele bucket`.

use clap::{Args, Subcommand};

use super::words::{Expiry, Protection};

#[derive(Subcommand, Debug)]
pub enum Bucket {
    /// Make a bucket
    Create(BucketCreate),
    /// Change a bucket. Settings that are not given keep their value, and stored versions do not
    /// change
    Set(BucketSet),
    /// List the buckets
    #[command(after_help = "Example:\n  stele bucket list --json")]
    List,
    /// Show one bucket: versioning, lock, default retention, level, quota, usage
    #[command(after_help = "Example:\n  stele bucket show records")]
    Show {
        /// The bucket
        name: String,
    },
    /// Make an inventory of a bucket now: a list of its objects, as
    /// `PutBucketInventoryConfiguration` set it
    #[command(after_help = "Example:\n  stele bucket inventory records daily")]
    Inventory {
        /// The bucket
        name: String,
        /// The id of the inventory
        id: String,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele bucket create scratch
  stele bucket create records --lock --retention compliance:7y
  stele bucket create drafts --lock --retention governance:30d --quota 100GiB
  stele bucket create ledgers --lock --retention compliance:7y --protection compliance --expiry delete")]
pub struct BucketCreate {
    /// Name of the new bucket: 3 to 63 characters of a-z, 0-9, `.` and `-`
    pub name: String,
    /// Turn on Object Lock, so that versions can be retained and held. It includes versioning and
    /// cannot be turned off
    #[arg(long)]
    pub lock: bool,
    /// Keep every version
    #[arg(long)]
    pub versioning: bool,
    /// Default retention of new versions: compliance or governance, and days (d) or years (y)
    #[arg(long, value_name = "MODE:PERIOD", requires = "lock")]
    pub retention: Option<String>,
    /// Rule for weakening a retention in this bucket; a level can only be raised
    #[arg(long, value_enum, value_name = "LEVEL", requires = "lock")]
    pub protection: Option<Protection>,
    /// Action on a version when its retention has passed. Only versions of a bucket with a lock
    /// have one, so it takes --lock
    #[arg(long, value_enum, value_name = "ACTION", requires = "lock")]
    pub expiry: Option<Expiry>,
    /// Largest number of bytes that the bucket may hold
    #[arg(long, value_parser = stele_server::config::size)]
    pub quota: Option<stele_ground::Bytes>,
    /// Largest number of versions that the bucket may hold, delete markers included
    #[arg(long, value_name = "COUNT")]
    pub quota_versions: Option<u64>,
    /// Allow reading objects without a key
    #[arg(long)]
    pub public_read: bool,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(["retention", "protection", "expiry", "quota", "quota_versions", "lock", "versioning", "public_read"]))]
#[command(after_help = "\
Examples:
  stele bucket set records --retention compliance:10y
  stele bucket set records --protection compliance --expiry delete
  stele bucket set scratch --quota 200GiB --public-read no
  stele bucket set scratch --quota none --quota-versions 1000000

A new default retention applies to versions stored from then on; stored versions keep theirs. A level of protection
can only be raised. A lock cannot be removed.")]
pub struct BucketSet {
    /// The bucket
    pub name: String,
    /// Default retention of versions stored from now on: MODE:PERIOD as in `stele bucket create`,
    /// or none
    #[arg(long, value_name = "MODE:PERIOD")]
    pub retention: Option<String>,
    /// Rule for weakening a retention in this bucket; a level can only be raised. It takes a bucket
    /// with Object Lock
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub protection: Option<Protection>,
    /// Action on a version when its retention has passed. It takes a bucket with Object Lock
    #[arg(long, value_enum, value_name = "ACTION")]
    pub expiry: Option<Expiry>,
    /// Largest number of bytes that the bucket may hold, or none
    #[arg(long, value_name = "SIZE", value_parser = quota)]
    pub quota: Option<Quota>,
    /// Largest number of versions that the bucket may hold, delete markers included; or none
    #[arg(long, value_name = "COUNT", value_parser = quota_versions)]
    pub quota_versions: Option<VersionsQuota>,
    /// Turn Object Lock on, and versioning with it; neither can be turned off
    #[arg(long)]
    pub lock: bool,
    /// Turn versioning on
    #[arg(long)]
    pub versioning: bool,
    /// Whether objects can be read without a key
    #[arg(long, value_name = "YES|NO", value_parser = yes_or_no)]
    pub public_read: Option<bool>,
}

/// A limit on the bytes of a bucket; `None` removes the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota(pub Option<stele_ground::Bytes>);

pub(super) fn quota(text: &str) -> Result<Quota, String> {
    if text == "none" { Ok(Quota(None)) } else { stele_server::config::size(text).map(|size| Quota(Some(size))) }
}

/// A limit on the versions of a bucket; `None` removes the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionsQuota(pub Option<u64>);

pub(super) fn quota_versions(text: &str) -> Result<VersionsQuota, String> {
    match text {
        "none" => Ok(VersionsQuota(None)),
        count => count.parse().map(|count| VersionsQuota(Some(count))).map_err(|_| "write a count, or none".to_owned()),
    }
}

pub fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("write yes or no".to_owned()),
    }
}
