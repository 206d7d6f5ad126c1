//! What an operator is told once, with the next step of each kind.

use stele_ground::Instant;

use crate::model::place::DriveNumber;
use crate::model::{Alarm, AlarmKind, Severity};

impl Alarm {
    /// About something that began now.
    pub fn now(
        kind: AlarmKind,
        severity: Severity,
        drive: Option<DriveNumber>,
        now: Instant,
        message: String,
    ) -> Alarm {
        let drive = drive.map(|drive| u32::from(drive.0));
        Alarm { kind, severity, drive, since: now, message, next: kind.next_step(drive) }
    }
}

impl AlarmKind {
    /// How grave it is while it stands.
    pub fn standing_severity(self) -> Severity {
        match self {
            AlarmKind::DriveNeeded | AlarmKind::StripeLost | AlarmKind::ReadOnly => Severity::Critical,
            AlarmKind::DriveStale => Severity::Notice,
            _ => Severity::Warning,
        }
    }

    /// What to do about it; empty where nothing is.
    pub fn next_step(self, drive: Option<u32>) -> String {
        let replace = || match drive {
            Some(drive) => format!("stele pool replace {drive} PATH"),
            None => "stele pool status".to_owned(),
        };
        match self {
            AlarmKind::DriveMissing => format!("check its path and power, or {}", replace()),
            AlarmKind::DriveFailed => match drive {
                Some(drive) => format!("{}, or, if only its path failed, stele drive clear {drive}", replace()),
                None => replace(),
            },
            AlarmKind::DriveRejected => "take it out of [pool] drives, or correct the cabling".to_owned(),
            AlarmKind::DriveSuspect => format!("if more follow: {}", replace()),
            AlarmKind::DriveSlow => format!("check its path; if it stays slow: {}", replace()),
            AlarmKind::DriveNeeded => format!("return the drives that are missing; then {}", replace()),
            AlarmKind::StripeLost => "return missing drives; stele affected names what is lost".to_owned(),
            AlarmKind::LogDegraded | AlarmKind::TableDegraded => {
                "stele pool status; return or replace drives".to_owned()
            }
            AlarmKind::SpareExhausted => {
                "replace failed drives; where none failed, add drives, or put them into more enclosures".to_owned()
            }
            AlarmKind::SpaceLow => "add drives, or delete what may be deleted".to_owned(),
            AlarmKind::ReadOnly => "return drives and start again".to_owned(),
            AlarmKind::DamageRepaired | AlarmKind::LogRepaired => {
                "none; if it repeats on one drive, replace it".to_owned()
            }
            AlarmKind::MovingPutOff => "free some space, add drives, or return missing ones".to_owned(),
            AlarmKind::MemoryDamaged => "test the machine's memory; move the pool to another machine".to_owned(),
            AlarmKind::DriveStale
            | AlarmKind::DriveRecovered
            | AlarmKind::GrowthFinished
            | AlarmKind::DriveRemoved
            | AlarmKind::RebuildFinished
            | AlarmKind::ScrubFinished => String::new(),
        }
    }
}
