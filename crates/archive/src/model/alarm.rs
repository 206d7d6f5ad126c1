//! Alarms for operators.

use serde::{Deserialize, Serialize};

/// The subject of an alarm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlarmKind {
    /// The compliance clock is frozen.
    Clock,
    /// Expiration could not process some versions.
    Expiration,
    /// Expiration is paused.
    #[serde(rename = "expiration-paused")]
    ExpirationPaused,
    /// The data volume is full, or reclamation cannot free space.
    Space,
    /// A part of the data volume cannot be read or written.
    Damage,
    /// Keys of deleted versions are not destroyed yet.
    Disposal,
    /// The audit log is not the one that was signed.
    Audit,
    /// A request makes a retention officer without an officer's approval.
    Officers,
    /// Refusals are counted instead of recorded.
    Refusals,
    /// A rebuild could not prove the latest state of the store: everything is held until two
    /// officers decide.
    Rebuild,
    /// Catalog and data volume do not belong together.
    Pairing,
    /// The last self-test found that something forbidden was not refused.
    #[serde(rename = "self-test")]
    SelfTest,
    /// A target of notifications does not take its events.
    Notifications,
    /// An inventory fails again and again.
    Inventory,
}

/// A message for operators.
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
            AlarmKind::ExpirationPaused => "expiration-paused",
            AlarmKind::Space => "space",
            AlarmKind::Damage => "damage",
            AlarmKind::Disposal => "disposal",
            AlarmKind::Audit => "audit",
            AlarmKind::Officers => "officers",
            AlarmKind::Refusals => "refusals",
            AlarmKind::Rebuild => "rebuild",
            AlarmKind::Pairing => "pairing",
            AlarmKind::SelfTest => "self-test",
            AlarmKind::Notifications => "notifications",
            AlarmKind::Inventory => "inventory",
        }
    }
}

impl Alarm {
    pub(crate) fn new(kind: AlarmKind, message: impl Into<String>) -> Alarm {
        Alarm { kind, message: message.into() }
    }

    /// The kind in one word.
    pub fn kind(&self) -> &'static str {
        self.kind.name()
    }
}
