//! Lifecycle rules of a bucket: which versions and uploads go away by their age, as S3 defines
//! them.
//!
//! A rule never reaches a version under retention or a hold: [`crate::retention::rules::judge`]
//! decides about each removal. Ages count in whole days and round up to the next midnight of UTC,
//! so nothing goes before its day is over.

use std::collections::BTreeSet;

use minicbor::{Decode, Encode};

use crate::model::error::{ArchiveError, Result};
use crate::model::time::{DAY, Timestamp};
use crate::model::version::Tags;

/// Rules of one bucket.
pub const LIFECYCLE_RULES_MAX: usize = 1000;
/// Characters of a rule's id, and bytes of its prefix.
const ID_MAX: usize = 255;
const PREFIX_MAX: usize = 1024;
const TAGS_MAX: usize = 10;
/// Newest noncurrent versions that a rule can keep.
const NEWER_MAX: u32 = 100;

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct LifecycleRule {
    #[n(0)]
    pub id: String,
    /// A disabled rule has no effect.
    #[n(1)]
    pub enabled: bool,
    #[n(2)]
    pub filter: LifecycleFilter,
    /// The end of current versions.
    #[n(3)]
    pub expiration: Option<Expiration>,
    /// The end of versions below a newer one.
    #[n(4)]
    pub noncurrent: Option<NoncurrentExpiration>,
    /// Days after which an unfinished upload is aborted.
    #[n(5)]
    pub abort_days: Option<u32>,
}

/// The versions that a rule is for: all that meet every condition.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct LifecycleFilter {
    #[n(0)]
    pub prefix: String,
    #[n(1)]
    pub tags: Tags,
    /// Only larger versions, in bytes.
    #[n(2)]
    pub above: Option<u64>,
    /// Only smaller versions, in bytes.
    #[n(3)]
    pub below: Option<u64>,
    /// The client sent the prefix in the rule itself, the older form, and gets it back so.
    #[n(4)]
    pub bare: bool,
}

/// When a current version ends: it gets a delete marker above it, or goes away where the bucket has
/// no versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub enum Expiration {
    /// Days after the version was stored.
    #[n(0)]
    Days(#[n(0)] u32),
    /// From this midnight on.
    #[n(1)]
    Date(#[n(0)] Timestamp),
    /// Only delete markers that have no version below them.
    #[n(2)]
    Markers,
}

/// When a noncurrent version ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct NoncurrentExpiration {
    /// Days after a newer version was stored.
    #[n(0)]
    pub days: u32,
    /// This many of the newest noncurrent versions stay.
    #[n(1)]
    pub newer: Option<u32>,
}

impl LifecycleFilter {
    /// Whether a version meets every condition.
    pub fn matches(&self, key: &str, size: u64, tags: &Tags) -> bool {
        key.starts_with(&self.prefix)
            && self.above.is_none_or(|above| size > above)
            && self.below.is_none_or(|below| size < below)
            && self.tags.iter().all(|(name, value)| tags.get(name) == Some(value))
    }

    fn has_conditions_on_content(&self) -> bool {
        !self.tags.is_empty() || self.above.is_some() || self.below.is_some()
    }
}

impl LifecycleRule {
    /// The end of a current version that has content, if this rule ends it.
    pub fn expires(&self, key: &str, size: u64, tags: &Tags, stored: Timestamp) -> Option<Timestamp> {
        if !self.enabled || !self.filter.matches(key, size, tags) {
            return None;
        }
        match self.expiration? {
            Expiration::Days(days) => Some(end_of(stored, days)),
            Expiration::Date(date) => Some(date),
            Expiration::Markers => None,
        }
    }

    /// The end of a delete marker without a version below it, if this rule ends it. `now` counts
    /// for rules without a date.
    pub fn expires_marker(&self, key: &str, stored: Timestamp, now: Timestamp) -> Option<Timestamp> {
        if !self.enabled || !self.filter.matches(key, 0, &Tags::new()) {
            return None;
        }
        Some(match self.expiration? {
            Expiration::Days(days) => end_of(stored, days),
            Expiration::Date(date) => date,
            Expiration::Markers => now,
        })
    }

    /// The end of a version that became noncurrent at `since`, with `newer` noncurrent versions
    /// above it.
    pub fn expires_noncurrent(
        &self,
        key: &str,
        size: u64,
        tags: &Tags,
        since: Timestamp,
        newer: u32,
    ) -> Option<Timestamp> {
        let noncurrent = self.noncurrent.filter(|_| self.enabled && self.filter.matches(key, size, tags))?;
        (newer >= noncurrent.newer.unwrap_or(0)).then(|| end_of(since, noncurrent.days))
    }

    /// The moment at which an upload is aborted, if this rule aborts it.
    pub fn aborts(&self, key: &str, begun: Timestamp) -> Option<Timestamp> {
        let days = self.abort_days.filter(|_| self.enabled && key.starts_with(&self.filter.prefix))?;
        Some(end_of(begun, days))
    }

    fn check(&self) -> Result<()> {
        let refuse =
            |message: &str| Err(ArchiveError::InvalidArgument(format!("lifecycle rule `{}`: {message}", self.id)));
        if self.id.chars().count() > ID_MAX {
            return refuse("an id has at most 255 characters");
        }
        if self.expiration.is_none() && self.noncurrent.is_none() && self.abort_days.is_none() {
            return refuse("at least one action needs to be specified");
        }
        if self.filter.prefix.len() > PREFIX_MAX {
            return refuse("a prefix has at most 1024 bytes");
        }
        if self.filter.tags.len() > TAGS_MAX {
            return refuse("at most 10 tags are allowed in a filter");
        }
        if let (Some(above), Some(below)) = (self.filter.above, self.filter.below)
            && above.saturating_add(1) >= below
        {
            return refuse("no size is between ObjectSizeGreaterThan and ObjectSizeLessThan");
        }
        if self.filter.has_conditions_on_content() && self.abort_days.is_some() {
            return refuse("AbortIncompleteMultipartUpload cannot be specified with tags or sizes");
        }
        match self.expiration {
            Some(Expiration::Days(0)) => return refuse("the number of days must be positive"),
            Some(Expiration::Date(date)) if date.0 % DAY != 0 => return refuse("a date must be at midnight of UTC"),
            Some(Expiration::Markers) if self.filter.has_conditions_on_content() => {
                return refuse("ExpiredObjectDeleteMarker cannot be specified with tags or sizes");
            }
            _ => {}
        }
        if self.abort_days == Some(0) {
            return refuse("DaysAfterInitiation must be positive");
        }
        match self.noncurrent {
            Some(NoncurrentExpiration { days: 0, .. }) => refuse("NoncurrentDays must be positive"),
            Some(NoncurrentExpiration { newer: Some(newer), .. }) if !(1..=NEWER_MAX).contains(&newer) => {
                refuse("NewerNoncurrentVersions is 1 to 100")
            }
            _ => Ok(()),
        }
    }
}

/// Checks the rules of a bucket together.
pub(crate) fn check_rules(rules: &[LifecycleRule]) -> Result<()> {
    if rules.is_empty() || rules.len() > LIFECYCLE_RULES_MAX {
        return Err(ArchiveError::InvalidArgument(format!(
            "a lifecycle configuration has 1 to {LIFECYCLE_RULES_MAX} rules, not {}",
            rules.len()
        )));
    }
    let mut ids = BTreeSet::new();
    for rule in rules {
        rule.check()?;
        if !ids.insert(&rule.id) {
            return Err(ArchiveError::InvalidArgument(format!(
                "rule ids must be unique; `{}` is there twice",
                rule.id
            )));
        }
    }
    Ok(())
}

/// The midnight at or behind a moment plus some days. It saturates: an end that cannot be stated
/// never comes.
fn end_of(from: Timestamp, days: u32) -> Timestamp {
    Timestamp(from.plus_days(days.into()).0.div_ceil(DAY).saturating_mul(DAY))
}

#[cfg(test)]
mod tests;
