//! The snapshot that an argument names: by the first digits of its id, or as `latest`.
//!
//! Several machines may share a repository, and the files of one restored over those of another
//! destroy the latter. So `latest` is always that of one host: the one that `--host` names, else
//! this machine, else the only one there is. With several other hosts the command asks for one. A
//! snapshot that cannot be read may be of any host: if it is newer than the one that was found,
//! nothing is chosen.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use stele_backup::BackupError;
use stele_backup::repository::{Dated, Repository};
use stele_backup::snapshot::Snapshot;
use stele_ground::Shown;
use stele_ground::calendar::moment;
use stele_server::failure::{Failure, Kind, Outcome};

use super::run::host as this_host;
use super::tell::tell;
use crate::cli::backup::LatestArgs;

const LATEST: &str = "latest";
/// Hosts that a message names.
const HOSTS_SHOWN: usize = 8;

/// A snapshot, and the path in it that was asked for.
pub struct Chosen {
    pub dated: Dated,
    pub snapshot: Snapshot,
    pub within: Vec<u8>,
}

impl Chosen {
    pub fn host(&self) -> &str {
        &self.snapshot.description.host
    }

    /// What it is, for people.
    pub fn line(&self) -> String {
        let Dated { id, stored, .. } = self.dated;
        format!("Snapshot {} of host '{}', stored {}", id.short(), Shown(self.host()), moment(stored))
    }
}

/// A path as snapshots have it: names with one slash between them, and without `.`. They may have
/// any bytes.
pub fn within(path: &[u8]) -> Vec<u8> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.collect::<Vec<&[u8]>>().join(&b'/')
}

/// The snapshot that an argument names, SNAPSHOT or SNAPSHOT:PATH.
pub fn chosen(repository: &Repository, text: impl AsRef<OsStr>, which: &LatestArgs) -> Outcome<Chosen> {
    let text = text.as_ref().as_bytes();
    let end = text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
    let (name, path) = text.split_at(end);
    let (name, within) = (&*String::from_utf8_lossy(name), within(path.get(1..).unwrap_or_default()));
    let (dated, snapshot) = if name == LATEST {
        latest(repository, which, Some(&this_host()))?
    } else {
        which.refuse_with(name)?;
        let dated = named(repository, name)?;
        (dated, repository.snapshot(&dated.id)?)
    };
    if let Some(doubt) = snapshot.description.doubt(dated.stored) {
        tell(format_args!("stele: snapshot {}: {doubt}", dated.id.short()));
    }
    Ok(Chosen { dated, snapshot, within })
}

/// The snapshot that an argument names, where a path would be without effect.
pub fn whole(repository: &Repository, name: &str, which: &LatestArgs, why: &str) -> Outcome<Chosen> {
    let chosen = chosen(repository, name, which)?;
    match chosen.within.is_empty() {
        true => Ok(chosen),
        false => Err(Failure::usage(format!("'{name}' has a path: {why}"))),
    }
}

/// Two snapshots, of which at least one is `latest` if there are options for it.
pub fn pair(repository: &Repository, first: &str, second: &str, which: &LatestArgs) -> Outcome<(Chosen, Chosen)> {
    let is_latest = |name: &str| name.split(':').next() == Some(LATEST);
    if !is_latest(first) && !is_latest(second) {
        which.refuse_with(second)?;
    }
    let none = LatestArgs::default();
    let which_of = |name: &str| if is_latest(name) { which } else { &none };
    let of = |name: &str| whole(repository, name, which_of(name), "--path compares a part of both snapshots");
    Ok((of(first)?, of(second)?))
}

/// The snapshot to be removed. There `latest` stands only where it can mean nothing else.
pub fn to_remove(repository: &Repository, name: &str) -> Outcome<Dated> {
    match name == LATEST {
        true => latest(repository, &LatestArgs::default(), None).map(|(dated, _)| dated),
        false => named(repository, name),
    }
}

/// The snapshot whose id begins with these digits.
fn named(repository: &Repository, name: &str) -> Outcome<Dated> {
    let all = repository.closed.snapshots()?;
    let digits = !name.is_empty() && name.chars().all(|c| c.is_ascii_hexdigit());
    let mut found = all.iter().filter(|dated| digits && dated.id.to_string().starts_with(name));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(*one),
        (Some(_), Some(_)) => Err(Failure::usage(format!("several snapshots begin with '{name}'; give more digits"))),
        (None, _) => Err(missing(&format!("the repository has no snapshot '{name}'"))),
    }
}

fn missing(text: &str) -> Failure {
    Failure::missing(text).next("`stele backup snapshots` lists them")
}

impl LatestArgs {
    /// Digits name one snapshot. An option beside them means something else than it would do.
    fn refuse_with(&self, name: &str) -> Outcome<()> {
        match *self == LatestArgs::default() {
            true => Ok(()),
            false => Err(Failure::usage(format!("--host and --at choose what `latest` is, and '{name}' is an id"))),
        }
    }

    /// Whether a snapshot is among those that the options let pass.
    pub fn admits(&self, dated: &Dated, host: &str) -> bool {
        self.is_by(dated) && self.host.as_deref().is_none_or(|wanted| wanted == host)
    }

    pub fn is_by(&self, dated: &Dated) -> bool {
        self.at.is_none_or(|at| dated.stored <= at)
    }

    /// No snapshot is among those that the options let pass.
    pub fn nothing(&self) -> Failure {
        let host = self.host.as_ref().map_or_else(String::new, |host| format!(" of host '{host}'"));
        let by = self.at.map_or_else(String::new, |at| format!(" stored by {}", moment(at)));
        missing(&format!("the repository has no snapshot{host}{by}"))
    }
}

/// The latest snapshot of one host; `this` is the host that counts without `--host`.
pub fn latest(repository: &Repository, which: &LatestArgs, this: Option<&str>) -> Outcome<(Dated, Snapshot)> {
    let wanted = which.host.as_deref().or(this);
    let (mut hosts, mut unread) = (BTreeSet::new(), None);
    // The latest snapshot of the only other host, with the newer one that cannot be read.
    let mut only = None;
    // Of those of one second only the key tells which is the latest.
    for dated in repository.snapshots()?.into_iter().rev().filter(|dated| which.is_by(dated)) {
        let snapshot = match repository.snapshot(&dated.id) {
            Ok(snapshot) => snapshot,
            // It was forgotten meanwhile.
            Err(BackupError::Missing(_)) => continue,
            Err(error @ (BackupError::Damaged(_) | BackupError::Newer(_))) => {
                unread.get_or_insert((dated, error));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let host = &snapshot.description.host;
        if wanted == Some(host) {
            return sure((dated, snapshot), unread);
        }
        if which.host.is_none() && hosts.insert(host.clone()) {
            only = (hosts.len() == 1).then(|| ((dated, snapshot), unread.clone()));
        }
    }
    match (only, hosts.is_empty(), unread) {
        (Some((found, unread)), ..) => sure(found, unread),
        // Only a command that has `--host` says for which host it runs.
        (None, false, _) => Err(several(&hosts, this.is_some())),
        (None, true, Some((dated, error))) => Err(unreadable(&dated, &error)),
        (None, true, None) => Err(which.nothing()),
    }
}

/// The snapshot that was found, unless a newer one cannot be read.
fn sure(found: (Dated, Snapshot), unread: Option<(Dated, BackupError)>) -> Outcome<(Dated, Snapshot)> {
    match unread {
        Some((dated, error)) => Err(unreadable(&dated, &error)),
        None => Ok(found),
    }
}

fn unreadable(dated: &Dated, error: &BackupError) -> Failure {
    let (id, stored) = (dated.id.short(), moment(dated.stored));
    let text = format!("snapshot {id}, stored {stored}, may be the latest and cannot be read: {error}");
    let kind = if matches!(error, BackupError::Newer(_)) { Kind::Refused } else { Kind::Damaged };
    Failure::new(kind, text).next("name another one by its id, or give --at with a date before it")
}

fn several(hosts: &BTreeSet<String>, has_option: bool) -> Failure {
    let more = if hosts.len() > HOSTS_SHOWN { " and others" } else { "" };
    let names: Vec<&str> = hosts.iter().take(HOSTS_SHOWN).map(String::as_str).collect();
    let text = format!("`latest` could be of several hosts: {}{more}", names.join(", "));
    Failure::usage(text).next(match has_option {
        true => "give --host HOST, or name the snapshot by its id",
        false => "name the snapshot by its id; `stele backup snapshots` lists them",
    })
}

#[cfg(test)]
mod tests;
