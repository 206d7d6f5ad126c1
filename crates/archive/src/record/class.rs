//! A management class with its versions, and its copy in a stored version.

use minicbor::{Decode, Encode};

use crate::model::class::{ClassInfo, ClassTerms, Initiation, action_word};
use crate::model::principal::Actor;
use crate::model::time::Timestamp;
use crate::record::content::Place;

#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct ClassRow {
    /// Version n is at n - 1. None is ever changed or removed.
    #[n(0)]
    pub versions: Vec<ClassVersion>,
    /// The version that applies to new versions of objects.
    #[n(1)]
    pub active: Option<u64>,
    #[n(2)]
    pub change: u64,
    #[n(3)]
    pub note: Place,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct ClassVersion {
    #[n(0)]
    pub terms: ClassTerms,
    #[n(1)]
    pub description: String,
    #[n(2)]
    pub created: Timestamp,
    #[n(3)]
    pub by: Actor,
    #[n(4)]
    pub activated: Option<Timestamp>,
}

/// The note of a class in a segment.
#[derive(Encode, Decode)]
pub(crate) struct ClassNote {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub row: ClassRow,
}

/// The class in force when a version was stored.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct ClassMark {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub version: u64,
    #[n(2)]
    pub terms: ClassTerms,
    /// When the version was stored, by the later clock. Periods count from here.
    #[n(3)]
    pub stored: Timestamp,
    /// The retention that the request asked for. The class never ends before it.
    #[n(4)]
    pub least: Option<Timestamp>,
    #[n(5)]
    pub event: Option<Event>,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Event {
    #[n(0)]
    pub at: Timestamp,
    #[n(1)]
    pub by: Actor,
    #[n(2)]
    pub told: Timestamp,
}

impl ClassRow {
    /// The row in a note that takes the creation of a class back. No other one has no version.
    pub fn withdrawn() -> ClassRow {
        ClassRow::default()
    }

    pub fn is_withdrawn(&self) -> bool {
        self.versions.is_empty()
    }

    pub fn version(&self, number: u64) -> Option<&ClassVersion> {
        self.versions.get(usize::try_from(number.checked_sub(1)?).ok()?)
    }

    pub fn active(&self) -> Option<(u64, &ClassVersion)> {
        let number = self.active?;
        Some((number, self.version(number)?))
    }

    pub fn infos(&self, name: &str) -> Vec<ClassInfo> {
        let info = |(number, version): (u64, &ClassVersion)| ClassInfo {
            name: name.into(),
            version: number,
            active: self.active == Some(number),
            initiation: version.terms.initiation,
            retver_days: version.terms.retver,
            retmin_days: version.terms.retmin,
            action: action_word(version.terms.action).into(),
            mode: version.terms.mode.to_string(),
            description: version.description.clone(),
            created: version.created.to_string(),
            created_by: version.by.to_string(),
            activated: version.activated.map(|time| time.to_string()),
        };
        (1..).zip(&self.versions).map(info).collect()
    }
}

impl ClassMark {
    /// Its retention has no end until an event is told.
    pub fn awaits_event(&self) -> bool {
        self.terms.initiation == Initiation::Event && self.event.is_none()
    }

    /// The end of the retention by the class.
    pub fn until(&self) -> Timestamp {
        let by_class = self.terms.until(self.stored, self.event.as_ref().map(|event| event.at));
        by_class.max(self.least.unwrap_or(Timestamp(0)))
    }
}
