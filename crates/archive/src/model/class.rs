//! Management classes: how long versions are kept, counted from when they were stored or from an
//! event.

use std::collections::BTreeMap;
use std::fmt;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use stele_ground::counted;

use crate::model::bucket::ExpiryAction;
use crate::model::error::{ArchiveError, Result};
use crate::model::matter::check_name;
use crate::model::time::Timestamp;
use crate::model::version::RetentionMode;

/// The longest period, in days.
pub const DAYS_MAX: u64 = 30_000;
pub const DESCRIPTION_MAX: usize = 1024;
/// Classes of one store, and versions of one class.
pub const CLASSES_MAX: usize = 1000;
pub const CLASS_VERSIONS_MAX: usize = 100;
/// Rules of one bucket.
pub const BINDINGS_MAX: usize = 100;

/// What a retention counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "lowercase")]
pub enum Initiation {
    /// The retention ends `retver` after the version was stored.
    #[n(0)]
    Creation,
    /// It ends `retver` after the event, and no earlier than `retmin` after the version was stored.
    /// Without an event it never ends.
    #[n(1)]
    Event,
}

/// The rules of one version of a class.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ClassTerms {
    #[n(0)]
    pub initiation: Initiation,
    /// Days. None: no limit, for `creation` alone.
    #[n(1)]
    pub retver: Option<u64>,
    /// Days, for `event` alone.
    #[n(2)]
    pub retmin: u64,
    #[n(3)]
    pub action: ExpiryAction,
    #[n(4)]
    pub mode: RetentionMode,
}

/// A rule that binds versions to a class. All of its conditions must hold.
#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Binding {
    #[n(0)]
    pub class: String,
    #[n(1)]
    pub prefix: String,
    #[n(2)]
    pub suffix: String,
    #[n(3)]
    pub tags: BTreeMap<String, String>,
    /// Bytes, both included.
    #[n(4)]
    pub size_min: Option<u64>,
    #[n(5)]
    pub size_max: Option<u64>,
    /// The beginning of the content type.
    #[n(6)]
    pub content_type: String,
}

/// The classes of a bucket: the first rule that holds names the class, and without one the default
/// does.
#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Bindings {
    #[n(0)]
    pub default: Option<String>,
    #[n(1)]
    pub rules: Vec<Binding>,
}

/// The properties of a new version that rules ask for.
#[derive(Clone, Copy, Debug)]
pub struct VersionFacts<'a> {
    pub key: &'a str,
    pub tags: &'a BTreeMap<String, String>,
    pub size: u64,
    pub content_type: &'a str,
}

/// One version of a class, for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClassInfo {
    pub name: String,
    pub version: u64,
    /// It applies to new versions of objects.
    pub active: bool,
    pub initiation: Initiation,
    /// Days; null: no limit.
    pub retver_days: Option<u64>,
    pub retmin_days: u64,
    /// `keep`, `delete` or `notify`.
    pub action: String,
    pub mode: String,
    pub description: String,
    pub created: String,
    pub created_by: String,
    pub activated: Option<String>,
}

/// One rule of two versions of a class.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub rule: String,
    /// None: no version is active yet.
    pub before: Option<String>,
    pub after: String,
    /// The new one keeps less.
    pub weaker: bool,
}

/// The versions whose retention ends in a period, on the compliance clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExpiringQuery {
    /// None: also those that ended long ago.
    pub from: Option<Timestamp>,
    pub before: Timestamp,
    /// None: all buckets.
    pub bucket: Option<String>,
    /// Of keys in that bucket.
    pub prefix: String,
}

/// A version whose retention ends, by which rule, and what happens then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Expiring {
    pub bucket: String,
    pub key: String,
    pub version: String,
    /// On the compliance clock.
    pub until: String,
    pub rule: String,
    pub action: String,
    /// The matters that hold it then.
    pub matters: Vec<String>,
}

pub(crate) fn action_word(action: ExpiryAction) -> &'static str {
    match action {
        ExpiryAction::Keep => "keep",
        ExpiryAction::Delete => "delete",
        ExpiryAction::Notify => "notify",
    }
}

fn days(days: Option<u64>) -> String {
    days.map_or("no limit".into(), |days| counted(days, "day"))
}

impl ClassTerms {
    pub fn check(&self) -> Result<()> {
        let refuse = |why: &str| Err(ArchiveError::InvalidArgument(why.into()));
        if self.retver.unwrap_or(0).max(self.retmin) > DAYS_MAX {
            return refuse(&format!("a period has at most {DAYS_MAX} days"));
        }
        match self.initiation {
            Initiation::Event if self.retver.is_none() => {
                refuse("a retention from an event on has a limit; a version without an event is kept for ever")
            }
            Initiation::Creation if self.retmin > 0 => refuse("retmin is for retention from an event on"),
            _ => Ok(()),
        }
    }

    /// The end of the retention of a version that was stored then. `event`: when the event
    /// happened.
    pub fn until(&self, stored: Timestamp, event: Option<Timestamp>) -> Timestamp {
        let end = match (self.initiation, event, self.retver) {
            (Initiation::Creation, _, Some(days)) => stored.plus_days(days),
            (Initiation::Event, Some(event), Some(days)) => {
                stored.plus_days(self.retmin).max(event.max(stored).plus_days(days))
            }
            _ => Timestamp::LATEST,
        };
        end.min(Timestamp::LATEST)
    }

    /// Compares with the active terms, rule by rule.
    pub fn compare(&self, before: Option<&ClassTerms>) -> Vec<Comparison> {
        let longest = |days: Option<u64>| days.unwrap_or(u64::MAX);
        let kept = |action: ExpiryAction| match action {
            ExpiryAction::Delete => 0,
            ExpiryAction::Notify => 1,
            ExpiryAction::Keep => 2,
        };
        let line = |rule: &str, said: fn(&ClassTerms) -> String, weaker: bool| Comparison {
            rule: rule.into(),
            before: before.map(said),
            after: said(self),
            weaker,
        };
        let weaker = |is: &dyn Fn(&ClassTerms) -> bool| before.is_some_and(is);
        // From creation to event is stronger: no event comes before the version. The way back keeps
        // less, unless it has no limit.
        let initiation = |before: &ClassTerms| {
            before.initiation == Initiation::Event && self.initiation == Initiation::Creation && self.retver.is_some()
        };
        // Without a limit, versions from creation on are kept as those without an event are.
        let retmin = |before: &ClassTerms| self.retmin < before.retmin && self.retver.is_some();
        vec![
            line("initiation", |terms| format!("{:?}", terms.initiation).to_lowercase(), weaker(&initiation)),
            line("retver", |terms| days(terms.retver), weaker(&|before| longest(self.retver) < longest(before.retver))),
            line("retmin", |terms| days(Some(terms.retmin)), weaker(&retmin)),
            line(
                "action at expiry",
                |terms| action_word(terms.action).into(),
                weaker(&|before| kept(self.action) < kept(before.action)),
            ),
            line("mode", |terms| terms.mode.to_string(), weaker(&|before| self.mode < before.mode)),
        ]
    }
}

/// In words, for audit records and `why`.
impl fmt::Display for ClassTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.initiation {
            Initiation::Creation => write!(f, "{} from storing on", days(self.retver))?,
            Initiation::Event => {
                write!(f, "{} from the event on, at least {} in all", days(self.retver), counted(self.retmin, "day"))?
            }
        }
        write!(f, ", {}, then {}", self.mode, action_word(self.action))
    }
}

impl Binding {
    fn holds(&self, facts: &VersionFacts<'_>) -> bool {
        facts.key.starts_with(self.prefix.as_str())
            && facts.key.ends_with(self.suffix.as_str())
            && self.tags.iter().all(|(key, value)| facts.tags.get(key) == Some(value))
            && self.size_min.is_none_or(|least| facts.size >= least)
            && self.size_max.is_none_or(|most| facts.size <= most)
            && facts.content_type.starts_with(self.content_type.as_str())
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "class `{}` for `{}*{}`", self.class, self.prefix, self.suffix)?;
        for (key, value) in &self.tags {
            write!(f, ", tag {key}={value}")?;
        }
        if let Some(least) = self.size_min {
            write!(f, ", from {least} bytes")?;
        }
        if let Some(most) = self.size_max {
            write!(f, ", to {most} bytes")?;
        }
        match self.content_type.is_empty() {
            true => Ok(()),
            false => write!(f, ", content type `{}`", self.content_type),
        }
    }
}

impl fmt::Display for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "default class {}", self.default.as_deref().unwrap_or("none"))?;
        self.rules.iter().try_for_each(|rule| write!(f, "; {rule}"))
    }
}

impl Bindings {
    pub fn class(&self, facts: &VersionFacts<'_>) -> Option<&str> {
        let rule = self.rules.iter().find(|rule| rule.holds(facts));
        rule.map(|rule| rule.class.as_str()).or(self.default.as_deref())
    }

    /// Every class that they name.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.class.as_str()).chain(self.default.as_deref())
    }

    pub fn is_empty(&self) -> bool {
        self.default.is_none() && self.rules.is_empty()
    }
}

pub fn check_class_name(name: &str) -> Result<()> {
    check_name("class", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(initiation: Initiation, retver: Option<u64>, retmin: u64) -> ClassTerms {
        ClassTerms { initiation, retver, retmin, action: ExpiryAction::Delete, mode: RetentionMode::Compliance }
    }

    #[test]
    fn the_end_of_a_retention_is_as_the_table_says() {
        let (stored, day) =
            (Timestamp::from_secs(1_800_000_000), |days: u64| Timestamp::from_secs(1_800_000_000).plus_days(days));
        for (terms, event, until) in [
            (terms(Initiation::Creation, Some(10), 0), None, day(10)),
            (terms(Initiation::Creation, Some(0), 0), None, day(0)),
            (terms(Initiation::Creation, None, 0), None, Timestamp::LATEST),
            (terms(Initiation::Event, Some(10), 30), None, Timestamp::LATEST),
            (terms(Initiation::Event, Some(10), 30), Some(day(5)), day(30)),
            (terms(Initiation::Event, Some(10), 30), Some(day(25)), day(35)),
            (terms(Initiation::Event, Some(10), 0), Some(Timestamp(0)), day(10)),
            (terms(Initiation::Event, Some(30_000), 0), Some(Timestamp::LATEST), Timestamp::LATEST),
        ] {
            assert_eq!(terms.until(stored, event), until, "{terms:?} {event:?}");
        }
    }

    /// Whatever the comparison lets pass keeps every version at least as long, whenever its event
    /// comes.
    #[test]
    fn what_the_comparison_allows_never_ends_earlier() {
        let mut all = Vec::new();
        for retver in [None, Some(0), Some(5), Some(20)] {
            for retmin in [0, 3, 30] {
                all.push(terms(Initiation::Creation, retver, retmin));
                all.push(terms(Initiation::Event, retver, retmin));
            }
        }
        all.retain(|terms| terms.check().is_ok());
        let stored = Timestamp::from_secs(1_800_000_000);
        let mut allowed = 0;
        for before in &all {
            for after in &all {
                if after.compare(Some(before)).iter().any(|line| line.weaker) {
                    continue;
                }
                allowed += 1;
                for event in [None, Some(Timestamp(0)), Some(stored.plus_days(7)), Some(stored.plus_days(100))] {
                    let ends = (before.until(stored, event), after.until(stored, event));
                    assert!(ends.0 <= ends.1, "{before:?} to {after:?} with {event:?}");
                }
            }
        }
        assert!(allowed > all.len(), "{allowed}");
    }
}
