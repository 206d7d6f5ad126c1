//! Words that arguments take, as enumerations: the help lists them, and the parser accepts no
//! others.

use clap::ValueEnum;
use stele_archive as archive;

/// Rights of an access key's holder over the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Role {
    /// Manage buckets, quotas, access keys, volumes
    StorageAdministrator,
    /// Manage Object Lock, retention, legal holds, protection levels, the compliance clock
    RetentionOfficer,
    /// Read the audit log and every bucket's settings
    Auditor,
    /// Use objects only
    User,
}

/// Rights of an access key's holder over objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Access {
    Read,
    Write,
    Delete,
    List,
    /// Set retention; set and lift legal holds
    Retain,
}

/// The rule for weakening a retention in a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Protection {
    /// Holders who may set a GOVERNANCE retention may shorten it
    Basic,
    /// Shortening GOVERNANCE takes the permission and an explicit request
    Governance,
    /// No holder may shorten a retention; every new retention is COMPLIANCE
    Compliance,
}

/// The action on a version when its retention has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Expiry {
    /// Keep the version
    Keep,
    /// Delete the version and keep a certificate
    Delete,
    /// Write one audit record
    Notify,
}

/// The word of a value, as the request to the server carries it.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// A reason, which the audit log keeps: a blank one would say nothing.
pub fn reason(text: &str) -> Result<String, String> {
    match text.trim().is_empty() {
        true => Err("a reason is not blank".to_owned()),
        false => Ok(text.to_owned()),
    }
}

impl Role {
    /// The default rights of this role over objects. Only a retention officer may lift a hold by
    /// default.
    pub fn usual_access(self) -> Vec<Access> {
        match self {
            Role::StorageAdministrator => vec![],
            Role::RetentionOfficer => vec![Access::Read, Access::List, Access::Retain],
            Role::Auditor => vec![Access::Read, Access::List],
            Role::User => vec![Access::Read, Access::Write, Access::Delete, Access::List],
        }
    }
}

// The enumerations above must match those of the archive; otherwise only the server refuses a word
// it does not know.
const _: () = assert!(archive::Access::ALL.len() == 5);
