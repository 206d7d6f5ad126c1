//! Matters: named holds on versions. A matter says who opened it, why and since when.

use std::collections::BTreeMap;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::model::error::{ArchiveError, Result};
use crate::model::time::Timestamp;
use crate::model::version::VersionId;

/// The matter of S3's legal hold.
pub const S3: &str = "s3";
/// The matter of a rebuild with losses, which has its own rules.
pub const REBUILD: &str = "rebuild";
pub const NAME_MAX: usize = 64;
pub const REASON_MAX: usize = 1024;
/// Matters of one store, closed ones included.
pub const MATTERS_MAX: usize = 10_000;
/// Tags that one selection names.
pub const SELECTION_TAGS_MAX: usize = 10;

/// Versions that have all of these properties. Delete markers are never selected: they hold no
/// content.
#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Selection {
    #[n(0)]
    pub bucket: String,
    #[n(1)]
    pub prefix: String,
    /// All of them, with these values.
    #[n(2)]
    pub tags: BTreeMap<String, String>,
    /// Stored at this time or later.
    #[n(3)]
    pub stored_after: Option<Timestamp>,
    /// Stored before this time.
    #[n(4)]
    pub stored_before: Option<Timestamp>,
}

/// One version, or the newest version of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionName {
    pub bucket: String,
    pub key: String,
    pub version: Option<VersionId>,
}

/// The result for one listed version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// The version was under the matter before, for a put; was not, for a release.
    pub unchanged: bool,
    /// Why it could not be changed.
    pub failure: Option<String>,
}

/// One page of a count: the selected versions in it.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// Versions that were looked at.
    pub seen: u64,
    pub selected: u64,
    pub bytes: u64,
    /// Selected versions that are under the matter already.
    pub under: u64,
    /// The first few selected versions.
    pub examples: Vec<String>,
    /// Where the next page begins. None: this is the last one.
    pub next: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MatterState {
    Open,
    /// Two officers have closed it; its versions are being released.
    Closing,
    Closed,
}

/// A put or release of a selection, under way or ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HoldJob {
    /// `put`, `release` or `close`.
    pub kind: String,
    pub selection: String,
    pub asked_by: String,
    pub started: String,
    /// None: it is under way.
    pub ended: Option<String>,
    /// Versions that were looked at, that were changed, and that could not be changed.
    pub seen: u64,
    pub changed: u64,
    pub failed: u64,
    pub failure: Option<String>,
    /// Versions whose hold was set after the release began, and that stay held.
    #[serde(default)]
    pub held_since: u64,
}

/// A matter for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MatterInfo {
    pub name: String,
    pub state: MatterState,
    pub reason: String,
    pub opened_by: String,
    /// RFC 3339, as all times here.
    pub opened: String,
    pub closed_by: Option<String>,
    pub approved_by: Option<String>,
    pub closed: Option<String>,
    /// The last job.
    pub job: Option<HoldJob>,
    /// Versions under it, as far as they were counted.
    pub versions: Option<u64>,
    /// There are more versions than were counted.
    #[serde(default)]
    pub more: bool,
}

pub fn check_matter_name(name: &str) -> Result<()> {
    check_name("matter", name)
}

/// A name is 1 to 64 of a-z, 0-9, dot, hyphen and underscore, and begins with a letter or digit.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if name.len() > NAME_MAX || !begins || !name.bytes().all(allowed) {
        return Err(ArchiveError::InvalidArgument(format!(
            "`{name}` cannot name a {what}: a name has 1 to {NAME_MAX} of a-z, 0-9, `.`, `-` and `_`, and begins with a \
             letter or digit"
        )));
    }
    Ok(())
}

impl Selection {
    pub fn check(&self) -> Result<()> {
        if self.tags.len() > SELECTION_TAGS_MAX {
            return Err(ArchiveError::InvalidArgument(format!("a selection names at most {SELECTION_TAGS_MAX} tags")));
        }
        if let (Some(after), Some(before)) = (self.stored_after, self.stored_before)
            && after >= before
        {
            return Err(ArchiveError::InvalidArgument(format!(
                "no version is stored after {after} and before {before}"
            )));
        }
        Ok(())
    }
}

/// In words, for audit records.
impl std::fmt::Display for Selection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}/{}`", self.bucket, self.prefix)?;
        for (key, value) in &self.tags {
            write!(f, ", tag {key}={value}")?;
        }
        if let Some(after) = self.stored_after {
            write!(f, ", stored from {after} on")?;
        }
        self.stored_before.map_or(Ok(()), |before| write!(f, ", stored before {before}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_matters_are_plain_and_short() {
        for good in ["a", "smith-v-jones", "2026.04_x", &"a".repeat(64)] {
            check_matter_name(good).unwrap();
        }
        for bad in ["", "A", "-a", "a b", "a/b", "a\0", "ü", &"a".repeat(65)] {
            assert!(check_matter_name(bad).is_err(), "{bad:?}");
        }
    }
}
