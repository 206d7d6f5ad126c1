//! Alarms: what an operator should know.

use serde::{Deserialize, Serialize};

/// What an alarm is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlarmKind {
    /// The compliance clock is frozen.
    Clock,
    /// Versions that have expired could not be looked after.
    Expiration,
    /// No room, or reclamation cannot make any.
    Space,
    /// Something on the data volume cannot be read or written.
    Damage,
    /// Keys of deleted versions are not destroyed yet.
    Disposal,
    /// The audit log is not the one that was signed.
    Audit,
    /// Somebody waits to become a retention officer without an officer's approval.
    Officers,
    /// Refusals are counted instead of recorded.
    Refusals,
    /// A rebuild could not prove the latest state of what existed: it is held until two officers decide.
    Rebuild,
    /// Catalog and data volume do not belong together.
    Pairing,
}

/// Something that an operator should know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Alarm {
    pub kind: AlarmKind,
    pub message: String,
}

impl AlarmKind {
    pub fn name(self) -> &'static str {
        match self {
            AlarmKind::Clock => "clock",
            AlarmKind::Expiration => "expiration",
            AlarmKind::Space => "space",
            AlarmKind::Damage => "damage",
            AlarmKind::Disposal => "disposal",
            AlarmKind::Audit => "audit",
            AlarmKind::Officers => "officers",
            AlarmKind::Refusals => "refusals",
            AlarmKind::Rebuild => "rebuild",
            AlarmKind::Pairing => "pairing",
        }
    }
}

impl Alarm {
    pub(crate) fn new(kind: AlarmKind, message: impl Into<String>) -> Alarm {
        Alarm { kind, message: message.into() }
    }

    /// One word.
    pub fn kind(&self) -> &'static str {
        self.kind.name()
    }
}
