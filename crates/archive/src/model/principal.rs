//! Callers: actors, their rights, and access keys.
//!
//! A frontend identifies the caller; the archive decides what the caller may do. A right is a role,
//! for the store and its buckets, or a grant, for the objects of one bucket or below one prefix.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use zeroize::Zeroizing;

use crate::model::action::Action;
use crate::model::bucket::Quota;
use crate::model::error::{ArchiveError, Result};
use crate::model::policy::Policy;
use crate::model::time::Timestamp;

/// The actor that an audit record names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
pub enum Actor {
    #[n(0)]
    Anonymous,
    /// The id of an access key.
    #[n(1)]
    Key(#[n(0)] String),
    /// A user of this machine, over the unix socket or the command line.
    #[n(2)]
    Local(#[n(0)] u32),
    /// The archive's own background work: "expiration", "reclamation", "clock", "rebuild".
    #[n(3)]
    System(#[n(0)] String),
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::Anonymous => f.write_str("anonymous"),
            Actor::Key(id) => write!(f, "key {id}"),
            Actor::Local(uid) => write!(f, "uid {uid}"),
            Actor::System(name) => write!(f, "stele {name}"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum Role {
    /// Buckets, quotas, access keys, space.
    #[n(0)]
    StorageAdministrator,
    /// Object Lock, default retention, retention, legal holds, protection levels, the compliance
    /// clock.
    #[n(1)]
    RetentionOfficer,
    /// Reads the audit log, `why`, and every bucket's settings.
    #[n(2)]
    Auditor,
    /// Objects, within the grants.
    #[n(3)]
    User,
}

/// The operations on objects that a grant allows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum Access {
    #[n(0)]
    Read,
    #[n(1)]
    Write,
    #[n(2)]
    Delete,
    #[n(3)]
    List,
    /// Setting retention and legal holds on versions.
    #[n(4)]
    Retain,
}

impl Access {
    pub const ALL: [Access; 5] = [Access::Read, Access::Write, Access::Delete, Access::List, Access::Retain];
}

/// Access to the keys of a bucket that start with a prefix.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
pub struct Grant {
    /// None: every bucket.
    #[n(0)]
    pub bucket: Option<String>,
    /// Empty: every key. A listing needs a prefix that starts with this one.
    #[n(1)]
    pub prefix: String,
    #[n(2)]
    pub access: BTreeSet<Access>,
}

/// All rights of a key or of a local user.
#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Rights {
    #[n(0)]
    pub roles: BTreeSet<Role>,
    #[n(1)]
    pub grants: Vec<Grant>,
    /// May bypass GOVERNANCE retention, on explicit request.
    #[n(2)]
    pub bypass_governance: bool,
}

impl Rights {
    /// Every role, every bucket, and the bypass of GOVERNANCE. They do not open COMPLIANCE
    /// retention.
    pub fn all() -> Rights {
        Rights {
            roles: BTreeSet::from([Role::StorageAdministrator, Role::RetentionOfficer, Role::Auditor, Role::User]),
            grants: vec![Grant { bucket: None, prefix: String::new(), access: Access::ALL.into() }],
            bypass_governance: true,
        }
    }

    /// Whether these rights allow nothing beyond the others.
    pub fn is_within(&self, other: &Rights) -> bool {
        let covers = |wide: &Grant, narrow: &Grant| {
            (wide.bucket.is_none() || wide.bucket == narrow.bucket)
                && narrow.prefix.starts_with(wide.prefix.as_str())
                && narrow.access.is_subset(&wide.access)
        };
        self.roles.is_subset(&other.roles)
            && self.grants.iter().all(|grant| other.grants.iter().any(|wide| covers(wide, grant)))
            && (other.bypass_governance || !self.bypass_governance)
    }

    /// Whether they allow this access to keys that start with `prefix`. For one object the prefix
    /// is its whole key.
    pub(crate) fn grant(&self, access: Access, bucket: &str, prefix: &str) -> bool {
        self.roles.contains(&Role::User)
            && self.grants.iter().any(|grant| {
                grant.access.contains(&access)
                    && grant.bucket.as_deref().is_none_or(|name| name == bucket)
                    && prefix.starts_with(grant.prefix.as_str())
            })
    }

    /// A retention officer, and nothing else.
    pub fn officer() -> Rights {
        Rights { roles: BTreeSet::from([Role::RetentionOfficer]), ..Rights::default() }
    }

    /// Whether a key with these rights is a second person beside the administrator, and may approve
    /// requests that take two people. An administrator's key may not.
    pub fn approves(&self) -> bool {
        self.roles.contains(&Role::RetentionOfficer) && !self.roles.contains(&Role::StorageAdministrator)
    }

    /// A user that reads, writes, deletes and lists below a prefix of one bucket.
    pub fn user(bucket: &str, prefix: &str) -> Rights {
        Rights {
            roles: BTreeSet::from([Role::User]),
            grants: vec![Grant {
                bucket: Some(bucket.into()),
                prefix: prefix.into(),
                access: [Access::Read, Access::Write, Access::Delete, Access::List].into(),
            }],
            bypass_governance: false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::StorageAdministrator => "storage administrator",
            Role::RetentionOfficer => "retention officer",
            Role::Auditor => "auditor",
            Role::User => "user",
        })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access: Vec<String> = self.access.iter().map(|access| format!("{access:?}").to_lowercase()).collect();
        write!(f, "{} ", access.join(", "))?;
        match (&self.bucket, self.prefix.as_str()) {
            (None, "") => f.write_str("everywhere"),
            (None, prefix) => write!(f, "below `{prefix}` in every bucket"),
            (Some(bucket), prefix) => write!(f, "in `{bucket}/{prefix}`"),
        }
    }
}

/// The rights in words, for audit records.
impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles: Vec<String> = self.roles.iter().map(Role::to_string).collect();
        f.write_str(if roles.is_empty() { "no role" } else { "roles " })?;
        f.write_str(&roles.join(", "))?;
        for grant in &self.grants {
            write!(f, "; may {grant}")?;
        }
        f.write_str(if self.bypass_governance { "; may bypass GOVERNANCE" } else { "" })
    }
}

/// The caller of a request: its actor, rights and origin. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Caller {
    pub actor: Actor,
    pub rights: Arc<Rights>,
    /// Peer address and request id, for the audit record.
    pub origin: Option<Arc<str>>,
    /// The user at the other end of the unix socket, also where the actor is a key.
    pub peer: Option<u32>,
    /// The file gateway, which alone reaches the objects of shares.
    pub gateway: bool,
    /// The S3 key for which the file gateway acts, for the audit record.
    pub path: Option<Arc<str>>,
    /// The session by whose temporary credentials the key acts.
    pub session: Option<Arc<Session>>,
}

impl Caller {
    /// A caller without a key. It has the access that buckets offer to everyone.
    pub fn anonymous() -> Caller {
        Caller {
            actor: Actor::Anonymous,
            rights: Arc::default(),
            origin: None,
            peer: None,
            gateway: false,
            path: None,
            session: None,
        }
    }

    /// A user of this machine that the unix socket let in.
    pub fn local(uid: u32) -> Caller {
        Caller {
            actor: Actor::Local(uid),
            rights: Arc::new(Rights::all()),
            origin: None,
            peer: Some(uid),
            gateway: false,
            path: None,
            session: None,
        }
    }

    pub(crate) fn system(name: &str) -> Caller {
        Caller {
            actor: Actor::System(name.into()),
            rights: Arc::new(Rights::all()),
            origin: None,
            peer: None,
            gateway: false,
            path: None,
            session: None,
        }
    }

    /// The file gateway on behalf of one of its users; `origin` says which. It has no bypass of
    /// GOVERNANCE.
    pub fn gateway(origin: impl Into<Arc<str>>) -> Caller {
        let rights = Rights { bypass_governance: false, ..Rights::all() };
        let actor = Actor::System("file gateway".into());
        Caller {
            actor,
            rights: Arc::new(rights),
            origin: Some(origin.into()),
            peer: None,
            gateway: true,
            path: None,
            session: None,
        }
    }

    pub fn from(mut self, origin: impl Into<Arc<str>>) -> Caller {
        self.origin = Some(origin.into());
        self
    }

    /// The same caller, identified as this user of this machine. The audit record names the user.
    pub fn at(mut self, uid: u32) -> Caller {
        self.peer = Some(uid);
        self.origin = Some(format!("uid {uid} over the unix socket").into());
        self
    }

    pub fn has(&self, role: Role) -> bool {
        self.rights.roles.contains(&role)
    }

    /// Whether the caller has this access to keys that start with `prefix`. For one object the
    /// prefix is its whole key.
    pub(crate) fn granted(&self, access: Access, bucket: &str, prefix: &str) -> bool {
        self.rights.grant(access, bucket, prefix)
    }

    /// Whether a key with these rights still allows the caller a change that takes `access` to an
    /// object of the bucket. The caller's own rights do not tell where the file gateway acts for
    /// it: its grant is for the archive's key of one file. The key must allow the same on the path
    /// by which the client named the file.
    pub(crate) fn acts_within(&self, rights: &Rights, access: Access, bucket: &str) -> bool {
        let Some(path) = &self.path else { return self.rights.is_within(rights) };
        self.rights.roles.is_subset(&rights.roles)
            && (rights.bypass_governance || !self.rights.bypass_governance)
            && rights.grant(access, bucket, path)
    }

    /// Refuses unless the caller has one of the roles.
    pub(crate) fn require_role(&self, roles: &[Role], action: Action) -> Result<()> {
        if roles.iter().any(|role| self.has(*role)) {
            return Ok(());
        }
        let names: Vec<String> = roles.iter().map(ToString::to_string).collect();
        Err(ArchiveError::Denied(format!(
            "{} may not {action}: it takes the role {}; ask a storage administrator for a key that has it",
            self.actor,
            names.join(" or ")
        )))
    }
}

/// A session: an access key's rights under temporary credentials, further limited by a policy.
#[derive(Debug)]
pub struct Session {
    /// The temporary access key.
    pub id: String,
    /// The name that its maker gave it.
    pub name: String,
    /// Only what it allows is done, of what the access key may do. None: all of that.
    pub(crate) policy: Option<Policy>,
}

/// What an access key owns, over all buckets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Owned {
    /// Versions that it stored, delete markers included.
    pub versions: u64,
    /// Bytes of these, and of the parts of unfinished uploads that it began.
    pub bytes: u64,
}

/// An access key without its secret, for administrators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessKeyInfo {
    pub id: String,
    pub description: String,
    pub rights: Rights,
    pub created: Timestamp,
    pub revoked: Option<Timestamp>,
    /// Void until an officer approves it.
    pub pending: bool,
    /// The key is void from this moment on.
    pub expires: Option<Timestamp>,
    /// That moment has come.
    pub expired: bool,
    /// Of what the key owns.
    pub quota: Quota,
    pub owned: Owned,
}

/// A created key. Its secret is shown only here.
#[derive(Clone)]
pub struct NewAccessKey {
    pub id: String,
    pub secret: Zeroizing<String>,
    /// The request that an officer has to approve before the key is valid.
    pub awaits: Option<String>,
}

/// The secret for checking a signature, and the caller if the signature is right.
#[derive(Clone)]
pub struct Credentials {
    pub secret: Zeroizing<String>,
    pub caller: Caller,
    /// The end of the key or session.
    pub expires: Option<Timestamp>,
}
