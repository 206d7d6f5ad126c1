//! Exports: which share a client may mount under which path, and as which user its calls count.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use crate::Caller;

use super::rpc::Credentials;

/// The most exports of a server.
pub const EXPORTS_MAX: usize = 4096;
/// The longest path of an export, in bytes (MNTPATHLEN).
pub const PATH_MAX: usize = 1024;
/// The user and group `nobody`.
pub const NOBODY: u32 = 65_534;

/// Addresses with a common beginning: `10.0.0.0/8`, `fd00::/8`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    pub const ALL_V4: Network = Network { address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), prefix: 0 };
    pub const ALL_V6: Network = Network { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix: 0 };

    /// Its first address as it was given, and the number of bits that all its addresses share.
    pub fn parts(&self) -> (IpAddr, u8) {
        (self.address, self.prefix)
    }

    /// Whether the other one has the same addresses.
    pub fn is_same(&self, other: &Network) -> bool {
        self.prefix == other.prefix && self.contains(other.address)
    }

    /// An IPv4 address inside IPv6 counts as that IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = u32::from(own) ^ u32::from(other);
                differing.checked_shr(32 - u32::from(self.prefix)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = u128::from(own) ^ u128::from(other);
                differing.checked_shr(128 - u32::from(self.prefix)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = ExportError;

    fn from_str(text: &str) -> Result<Network, ExportError> {
        let bad = || ExportError::Network(text.to_owned());
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let digits = |prefix: &str| !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix: u8 = match prefix {
            None => most,
            Some(prefix) if digits(prefix) => prefix.parse().map_err(|_| bad())?,
            Some(_) => return Err(bad()),
        };
        if prefix > most {
            return Err(bad());
        }
        // An IPv4 address inside IPv6 counts as that IPv4 address, as a client's does.
        match (address.to_canonical(), prefix.checked_sub(96)) {
            (IpAddr::V4(inside), Some(prefix)) if address.is_ipv6() => {
                Ok(Network { address: IpAddr::V4(inside), prefix })
            }
            _ => Ok(Network { address, prefix }),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Which users count as the anonymous user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Squash {
    None,
    /// The user root and the group root.
    Root,
    All,
}

/// The rights of clients in a network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub network: Network,
    pub read_only: bool,
    pub squash: Squash,
    pub anonymous_uid: u32,
    pub anonymous_gid: u32,
}

impl Rule {
    /// Reading and writing, root as `nobody`.
    pub fn new(network: Network) -> Rule {
        Rule { network, read_only: false, squash: Squash::Root, anonymous_uid: NOBODY, anonymous_gid: NOBODY }
    }

    /// The caller that the credentials stand for under this rule.
    pub fn caller(&self, credentials: Credentials) -> Caller {
        let anonymous = || Caller { uid: self.anonymous_uid, gid: self.anonymous_gid, groups: Vec::new() };
        let Credentials::Sys { uid, gid, mut groups } = credentials else { return anonymous() };
        match self.squash {
            Squash::None => Caller { uid, gid, groups },
            Squash::All => anonymous(),
            Squash::Root if uid == 0 => anonymous(),
            Squash::Root => {
                groups.retain(|group| *group != 0);
                Caller { uid, gid: if gid == 0 { self.anonymous_gid } else { gid }, groups }
            }
        }
    }
}

/// A share under a path. The first rule whose network holds the client decides; without one the
/// client is refused.
pub struct Export<F> {
    /// Begins with `/` and does not end with one, unless it is `/` alone.
    pub path: String,
    /// Part of every handle: it never changes and is never given to another share.
    pub share: u32,
    pub files: Arc<F>,
    pub rules: Vec<Rule>,
}

impl<F> Export<F> {
    pub fn rule(&self, client: IpAddr) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.network.contains(client))
    }
}

/// A share that is to be exported once it opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AwaitedExport {
    pub path: String,
    pub rules: Vec<Rule>,
}

/// Why an export cannot be added, or a network not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExportError {
    Network(String),
    Path(String),
    PathTaken(String),
    ShareTaken(u32),
    TooMany,
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportError::Network(text) => {
                write!(f, "'{text}' is no network; write an address, or an address and a prefix as in 10.0.0.0/8")
            }
            ExportError::Path(path) => write!(
                f,
                "'{path}' is no path of an export; begin it with '/', end it without one, leave out '.' and '..', \
                 and use at most {PATH_MAX} bytes"
            ),
            ExportError::PathTaken(path) => write!(f, "the path '{path}' is exported already"),
            ExportError::ShareTaken(share) => write!(f, "the share {share} is exported already"),
            ExportError::TooMany => write!(f, "a server has at most {EXPORTS_MAX} exports"),
        }
    }
}

impl std::error::Error for ExportError {}

/// An export, and the names that lead on from its top.
pub type ExportMatch<'e, 'p, F> = (&'e Arc<Export<F>>, Vec<&'p [u8]>);

/// All exports at one moment.
pub struct Exports<F> {
    by_share: BTreeMap<u32, Arc<Export<F>>>,
    by_path: BTreeMap<String, u32>,
    /// Clients of these shares wait.
    awaited: BTreeMap<u32, AwaitedExport>,
}

impl<F> Default for Exports<F> {
    fn default() -> Exports<F> {
        Exports { by_share: BTreeMap::new(), by_path: BTreeMap::new(), awaited: BTreeMap::new() }
    }
}

impl<F> Clone for Exports<F> {
    fn clone(&self) -> Exports<F> {
        Exports { by_share: self.by_share.clone(), by_path: self.by_path.clone(), awaited: self.awaited.clone() }
    }
}

impl<F> Exports<F> {
    pub fn add(&mut self, export: Export<F>) -> Result<(), ExportError> {
        let sound = components(export.path.as_bytes()).map(|parts| canonical(&parts));
        if sound.as_deref() != Some(export.path.as_bytes()) || export.path.len() > PATH_MAX {
            return Err(ExportError::Path(export.path));
        }
        if self.by_path.contains_key(&export.path) {
            return Err(ExportError::PathTaken(export.path));
        }
        if self.by_share.contains_key(&export.share) {
            return Err(ExportError::ShareTaken(export.share));
        }
        if self.by_share.len() >= EXPORTS_MAX {
            return Err(ExportError::TooMany);
        }
        self.awaited.remove(&export.share);
        self.by_path.insert(export.path.clone(), export.share);
        self.by_share.insert(export.share, Arc::new(export));
        Ok(())
    }

    /// Also of a share that is only awaited.
    pub fn remove(&mut self, share: u32) -> bool {
        self.awaited.remove(&share);
        let removed = self.by_share.remove(&share);
        if let Some(export) = &removed {
            self.by_path.remove(&export.path);
        }
        removed.is_some()
    }

    /// The shares that are to come, in the place of those that were named before.
    pub fn set_awaited(&mut self, shares: BTreeMap<u32, AwaitedExport>) {
        self.awaited = shares;
        self.awaited.retain(|share, _| !self.by_share.contains_key(share));
    }

    pub fn awaited(&self) -> &BTreeMap<u32, AwaitedExport> {
        &self.awaited
    }

    /// Whether a share has no export yet, and is to have one.
    pub fn is_awaited(&self, share: u32) -> bool {
        self.awaited.contains_key(&share)
    }

    /// Whether the path is in a share that is to come, and that the client may use then.
    pub fn awaits(&self, path: &[u8], client: IpAddr) -> bool {
        let Some(parts) = components(path) else { return false };
        self.awaited.values().any(|export| {
            let is_above = components(export.path.as_bytes()).is_some_and(|above| parts.starts_with(&above));
            is_above && export.rules.iter().any(|rule| rule.network.contains(client))
        })
    }

    /// Whether a client may use any export, or one that is to come. While there is none, this says
    /// nothing against a client.
    pub fn admits(&self, client: IpAddr) -> bool {
        let mut exports = self.iter().peekable();
        exports.peek().is_none()
            || exports.any(|export| export.rule(client).is_some())
            || self.awaited.values().flat_map(|export| &export.rules).any(|rule| rule.network.contains(client))
    }

    pub fn get(&self, share: u32) -> Option<&Arc<Export<F>>> {
        self.by_share.get(&share)
    }

    /// In the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Export<F>>> {
        self.by_path.values().filter_map(|share| self.by_share.get(share))
    }

    /// The export with the longest path above or at the wanted one, and the names that lead on from
    /// there.
    pub fn find<'p>(&self, path: &'p [u8]) -> Option<ExportMatch<'_, 'p, F>> {
        let parts = components(path)?;
        (0..=parts.len()).rev().find_map(|count| {
            let (above, below) = parts.split_at_checked(count)?;
            let above = String::from_utf8(canonical(above)).ok()?;
            let export = self.get(*self.by_path.get(&above)?)?;
            Some((export, below.to_vec()))
        })
    }
}

/// The names of an absolute path; none if it is not absolute, or goes up. libnfs asks for the top
/// with an empty path.
fn components(path: &[u8]) -> Option<Vec<&[u8]>> {
    let rest = if path.is_empty() { path } else { path.strip_prefix(b"/")? };
    let parts: Vec<&[u8]> = rest.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    (!parts.contains(&&b".."[..])).then_some(parts)
}

fn canonical(parts: &[&[u8]]) -> Vec<u8> {
    match parts {
        [] => b"/".to_vec(),
        parts => parts.iter().flat_map(|part| b"/".iter().chain(part.iter())).copied().collect(),
    }
}

#[cfg(test)]
mod tests;
