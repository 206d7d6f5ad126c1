//! Where the store may write objects for a bucket's administrators: access logs and inventories
//! (see `objects/reports.rs`).
//!
//! The store writes them with its own rights. The author of the setting must therefore be allowed
//! to write there. The bucket must have the same owner, and be neither a share nor one with a
//! default retention, which would keep every report.

use super::settings::PolicyRequest;
use crate::model::error::{ArchiveError, Result};
use crate::model::inventory::Inventory;
use crate::model::logging::AccessLog;
use crate::model::policy::RequestFacts;
use crate::model::principal::{Access, Caller};
use crate::state::buckets::Bucket;
use crate::store::Archive;

impl Archive {
    /// Where the access log of a bucket goes, and the bucket's owner.
    pub fn access_log_of(&self, bucket: &str) -> Option<(AccessLog, String)> {
        let bucket = self.store().buckets().by_name(bucket).ok()?;
        Some((bucket.row.logging.clone()?, bucket.row.owner.to_string()))
    }

    /// The setting of the access log.
    pub async fn access_log(&self, caller: &Caller, bucket: &str) -> Result<Option<AccessLog>> {
        Ok(self.visible(caller, bucket).await?.row.logging.clone())
    }

    /// Checks that reports of a bucket may go to another, by the word of this caller: it must be
    /// allowed to write there itself, by its grants, its session and the target's policy.
    pub(super) async fn check_report_target(
        &self,
        caller: &Caller,
        from: &Bucket,
        to: &str,
        prefix: &str,
    ) -> Result<()> {
        let Ok(target) = self.store().buckets().by_name(to) else { return refuse(to, "it does not exist") };
        // Some key with the prefix, as the policy will see it.
        let sample = format!("{prefix}0");
        let request = PolicyRequest { action: "PutObject", key: Some(&sample), version: None, prefix: "" };
        let caller = match self.is_policed(caller, to) {
            true => self.permit(caller, to, &[request], RequestFacts::default()).await?,
            false => caller.clone(),
        };
        target.authorize(&caller, Access::Write, prefix)?;
        self.fits_reports(from, to)
    }

    /// Checks that the author of an inventory may list the keys whose names it tells: by its
    /// grants, its session and the bucket's policy.
    pub(super) async fn check_listed(&self, caller: &Caller, bucket: &Bucket, inventory: &Inventory) -> Result<()> {
        let prefix = inventory.filter.as_deref().unwrap_or_default();
        let request = |action| PolicyRequest { action, key: None, version: None, prefix };
        let mut requests = vec![request("ListBucket")];
        if inventory.all_versions {
            requests.push(request("ListBucketVersions"));
        }
        let mut facts = RequestFacts::default();
        facts.set("s3:prefix", prefix);
        let caller = match self.is_policed(caller, bucket.name()) {
            true => self.permit(caller, bucket.name(), &requests, facts).await?,
            false => caller.clone(),
        };
        bucket.authorize(&caller, Access::List, prefix)
    }

    pub(crate) fn fits_reports(&self, from: &Bucket, to: &str) -> Result<()> {
        let Ok(target) = self.store().buckets().by_name(to) else { return refuse(to, "it does not exist") };
        check_fit(from, &target)
    }
}

/// Checks that a bucket may take reports of another. A write into it requires that its settings are
/// still these.
pub(crate) fn check_fit(from: &Bucket, target: &Bucket) -> Result<()> {
    let to = target.name();
    if target.row.owner != from.row.owner {
        return refuse(to, "it has another owner");
    }
    if target.row.is_share() {
        return refuse(to, "it is a share");
    }
    if target.row.lock.is_some_and(|lock| lock.default.is_some()) || target.row.classes.is_some() {
        return refuse(to, "its default retention would keep every report");
    }
    Ok(())
}

fn refuse(to: &str, why: &str) -> Result<()> {
    Err(ArchiveError::InvalidArgument(format!("bucket `{to}` takes no reports: {why}")))
}
