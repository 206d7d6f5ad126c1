//! Who asks: actors, their rights, and access keys.
//!
//! A frontend finds out who the caller is; what the caller may do is decided here. A right is a role (what may be done
//! to the store and its buckets) or a grant (what may be done to the objects of one bucket or below one prefix).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use zeroize::Zeroizing;

use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::time::Timestamp;

/// Named in every audit record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
pub enum Actor {
    #[n(0)]
    Anonymous,
    /// The id of an access key.
    #[n(1)]
    Key(#[n(0)] String),
    /// A user of this machine, through the unix socket or the command line.
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
    /// Object Lock, default retention, retention, legal holds, protection levels, the compliance clock.
    #[n(1)]
    RetentionOfficer,
    /// Reads the audit log, `why`, and every bucket's settings.
    #[n(2)]
    Auditor,
    /// Objects, within the grants.
    #[n(3)]
    User,
}

/// What a grant allows with objects.
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
    /// Empty: every key. A listing needs a prefix of its own that starts with this.
    #[n(1)]
    pub prefix: String,
    #[n(2)]
    pub access: BTreeSet<Access>,
}

/// Everything a key or a local user may do.
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
    /// Every role, every bucket, and the bypass of GOVERNANCE. COMPLIANCE stays as closed to it as to anyone.
    pub fn all() -> Rights {
        Rights {
            roles: BTreeSet::from([Role::StorageAdministrator, Role::RetentionOfficer, Role::Auditor, Role::User]),
            grants: vec![Grant { bucket: None, prefix: String::new(), access: Access::ALL.into() }],
            bypass_governance: true,
        }
    }

    /// Whether these allow nothing that the others do not.
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

    /// A retention officer, and nothing else.
    pub fn officer() -> Rights {
        Rights { roles: BTreeSet::from([Role::RetentionOfficer]), ..Rights::default() }
    }

    /// Whether a key with these rights is a second person beside the administrator: it may approve what takes two people.
    /// One that is also an administrator's is not.
    pub fn approves(&self) -> bool {
        self.roles.contains(&Role::RetentionOfficer) && !self.roles.contains(&Role::StorageAdministrator)
    }

    /// A user who reads, writes, deletes and lists below a prefix of one bucket.
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

/// For audit records: what a key may do, in words.
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

/// Who asks, with what rights, from where. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Caller {
    pub actor: Actor,
    pub rights: Arc<Rights>,
    /// Peer address and request id, for the audit record.
    pub origin: Option<Arc<str>>,
    /// The user of this machine at the other end of the unix socket, also where the actor is a key.
    pub peer: Option<u32>,
    /// The file gateway, which alone reaches the objects of shares.
    pub gateway: bool,
}

impl Caller {
    /// Nobody in particular: only what a bucket offers to everyone.
    pub fn anonymous() -> Caller {
        Caller { actor: Actor::Anonymous, rights: Arc::default(), origin: None, peer: None, gateway: false }
    }

    /// A user of this machine whom the unix socket let in.
    pub fn local(uid: u32) -> Caller {
        Caller {
            actor: Actor::Local(uid),
            rights: Arc::new(Rights::all()),
            origin: None,
            peer: Some(uid),
            gateway: false,
        }
    }

    pub(crate) fn system(name: &str) -> Caller {
        Caller {
            actor: Actor::System(name.into()),
            rights: Arc::new(Rights::all()),
            origin: None,
            peer: None,
            gateway: false,
        }
    }

    /// The file gateway on behalf of one of its users; `origin` says which. It has no bypass of GOVERNANCE.
    pub fn gateway(origin: impl Into<Arc<str>>) -> Caller {
        let rights = Rights { bypass_governance: false, ..Rights::all() };
        let actor = Actor::System("file gateway".into());
        Caller { actor, rights: Arc::new(rights), origin: Some(origin.into()), peer: None, gateway: true }
    }

    pub fn from(mut self, origin: impl Into<Arc<str>>) -> Caller {
        self.origin = Some(origin.into());
        self
    }

    /// The same caller, known to be this user of this machine. The audit record says so.
    pub fn at(mut self, uid: u32) -> Caller {
        self.peer = Some(uid);
        self.origin = Some(format!("uid {uid} over the unix socket").into());
        self
    }

    pub fn has(&self, role: Role) -> bool {
        self.rights.roles.contains(&role)
    }

    /// Whether the caller may do this to keys that start with `prefix` (a whole key for one object).
    pub(crate) fn granted(&self, access: Access, bucket: &str, prefix: &str) -> bool {
        self.has(Role::User)
            && self.rights.grants.iter().any(|grant| {
                grant.access.contains(&access)
                    && grant.bucket.as_deref().is_none_or(|name| name == bucket)
                    && prefix.starts_with(grant.prefix.as_str())
            })
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

/// An access key as an administrator sees it: without its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessKeyInfo {
    pub id: String,
    pub description: String,
    pub rights: Rights,
    pub created: Timestamp,
    pub revoked: Option<Timestamp>,
    /// Void until an officer has approved it.
    pub pending: bool,
}

/// What creating a key returns: the only time its secret is shown.
#[derive(Clone)]
pub struct NewAccessKey {
    pub id: String,
    pub secret: Zeroizing<String>,
    /// The request that an officer has to approve before the key is good for anything.
    pub awaits: Option<String>,
}

/// What a frontend needs to check a signature: the secret, and who the caller is if the signature is right.
#[derive(Clone)]
pub struct Credentials {
    pub secret: Zeroizing<String>,
    pub caller: Caller,
}
