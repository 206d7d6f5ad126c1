//! Acts that can take two retention officers, or be switched off for good.

use std::fmt;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::model::error::{ArchiveError, Result};

/// An act that comes near to retention.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// Deletion before the end of a GOVERNANCE retention, and its weakening.
    #[n(0)]
    Bypass,
    /// The acceptance of a clock alarm.
    #[n(1)]
    ClockAccept,
    /// The credit of time for which the store was closed.
    #[n(2)]
    ClockCredit,
    /// The export of the master key.
    #[n(3)]
    KeyExport,
    /// The admission of a further retention officer.
    #[n(4)]
    NewOfficer,
}

/// How many people an act takes. It only gets stricter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode, Serialize, Deserialize)]
#[cbor(index_only)]
#[serde(rename_all = "kebab-case")]
pub enum People {
    /// One person with the right.
    #[n(0)]
    One,
    /// Two retention officers.
    #[n(1)]
    Two,
    /// No person, for good.
    #[n(2)]
    Off,
}

impl Act {
    pub const ALL: [Act; 5] = [Act::Bypass, Act::ClockAccept, Act::ClockCredit, Act::KeyExport, Act::NewOfficer];

    /// What it takes unless officers made it stricter.
    pub fn least(self) -> People {
        match self {
            Act::Bypass | Act::ClockAccept | Act::KeyExport => People::One,
            Act::ClockCredit | Act::NewOfficer => People::Two,
        }
    }

    pub fn parse(word: &str) -> Result<Act> {
        let known = Act::ALL.into_iter().find(|act| act.to_string() == word);
        known.ok_or_else(|| ArchiveError::InvalidArgument(format!("`{word}` is no act; there are {}", words())))
    }

    /// What is done, for messages.
    pub fn says(self) -> &'static str {
        match self {
            Act::Bypass => "the bypass of GOVERNANCE",
            Act::ClockAccept => "the acceptance of a clock alarm",
            Act::ClockCredit => "the credit of time in which the store was closed",
            Act::KeyExport => "the export of the master key",
            Act::NewOfficer => "the admission of a new retention officer",
        }
    }

    /// What is lost when it is switched off for good.
    pub fn loses(self) -> &'static str {
        match self {
            Act::Bypass => "no version under GOVERNANCE can be deleted before its end, and no such retention weakened",
            Act::ClockAccept => "after the next clock alarm nothing expires any more",
            Act::ClockCredit => "time in which the store is closed is made up at the slew alone",
            Act::KeyExport => "no further copy of the master key leaves this store; keep the exported one",
            Act::NewOfficer => "if officers lose their keys, no others take their place",
        }
    }
}

fn words() -> String {
    Act::ALL.map(|act| act.to_string()).join(", ")
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Act::Bypass => "bypass",
            Act::ClockAccept => "clock-accept",
            Act::ClockCredit => "clock-credit",
            Act::KeyExport => "key-export",
            Act::NewOfficer => "new-officer",
        })
    }
}

impl fmt::Display for People {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            People::One => "one",
            People::Two => "two",
            People::Off => "off",
        })
    }
}
