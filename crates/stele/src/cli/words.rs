//! Words that arguments take, as values: the help lists them, and no others are read.

use clap::ValueEnum;
use stele_archive as archive;

/// What an access key's holder may do to the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Role {
    /// Buckets, quotas, access keys, volumes
    StorageAdministrator,
    /// Object Lock, retention, legal holds, protection levels, the compliance clock
    RetentionOfficer,
    /// Reads the audit log, and every bucket's settings
    Auditor,
    /// Objects only
    User,
}

/// What an access key's holder may do with objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Access {
    Read,
    Write,
    Delete,
    List,
    /// Setting retention, and setting and lifting legal holds
    Retain,
}

/// Who can weaken a retention in a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Protection {
    /// Whoever may set a GOVERNANCE retention may shorten it
    Basic,
    /// Shortening GOVERNANCE takes the permission and an explicit request
    Governance,
    /// Nobody; every new retention is COMPLIANCE
    Compliance,
}

/// What happens to a version whose retention has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Expiry {
    /// Nothing
    Keep,
    /// It is deleted, and a certificate stays
    Delete,
    /// An audit record, once
    Notify,
}

/// The word itself, as it travels to the server.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl Role {
    /// What a key of this role may do with objects where nothing else is said: never lift a hold, unless that is its office.
    pub fn usual_access(self) -> Vec<Access> {
        match self {
            Role::StorageAdministrator => vec![],
            Role::RetentionOfficer => vec![Access::Read, Access::List, Access::Retain],
            Role::Auditor => vec![Access::Read, Access::List],
            Role::User => vec![Access::Read, Access::Write, Access::Delete, Access::List],
        }
    }
}

// One word for one thing: a word that the archive did not know would be refused by the server only.
const _: () = assert!(archive::Access::ALL.len() == 5);
