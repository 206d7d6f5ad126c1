//! Volumes of the array on this machine: `stele backup run --volume` and
//! `stele backup restore --to-volume`, through the administration socket of the server.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use stele_backup::backup::volume::VolumeReader;
use stele_backup::repository::Repository;
use stele_backup::restore::volume::{self as volumes, VolumeWriter};
use stele_backup::tree::Origin;
use stele_backup::{BackupError, restore};
use stele_ground::calendar::moment;
use stele_ground::{Bytes, Shown, names_in_row};
use stele_server::api::blocks::{
    self, BEFORE, Base, Blocks, RANGE_MAX, Read, RestoreBegin, RestoreEnd, RestoreWrite, WRITE_MAX,
};
use stele_server::api::volume::{Delete, ListVolumes, Snapshot, VolumeView};
use stele_server::api::{Call, volume as calls};
use stele_server::config::Site;
use stele_server::connection::{self, Sender};
use stele_server::failure::{Failure, Kind, Outcome};
use tokio::runtime::Handle;

use super::progress::{Shows, Watch};
use super::tell::tell;
use super::{incomplete, index_for, issues_json, open, select};
use crate::cli::backup::Restore;
use crate::commands::print_json;

/// Connections that are kept for the next call.
const IDLE_MAX: usize = 16;

/// A server, for threads that wait for its answers.
struct Server {
    runtime: Handle,
    socket: PathBuf,
    idle: Mutex<Vec<Sender>>,
}

impl Server {
    fn find(site: &Site) -> Outcome<Server> {
        let server = Server { runtime: Handle::current(), socket: site.socket(), idle: Mutex::default() };
        let connected = server.runtime.block_on(connection::connect(&server.socket));
        let sender = connected.map_err(|failure| {
            let text = format!("a volume is saved and restored by the server of its pool: {}", failure.error);
            Failure::new(failure.kind, text)
                .next("start it with `stele serve`, or name its directory by --dir; use root or its user for this")
        })?;
        server.keep(sender);
        Ok(server)
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(sender);
        }
    }

    fn ask(&self, target: &str, body: Vec<u8>) -> Outcome<hyper::body::Bytes> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().filter(|sender| !sender.is_closed());
        self.runtime.block_on(async {
            let mut sender = match idle {
                Some(sender) => sender,
                None => connection::connect(&self.socket).await?,
            };
            // A connection that ended while it was idle is replaced.
            if sender.ready().await.is_err() {
                sender = connection::connect(&self.socket).await?;
            }
            let answer = connection::ask(&self.socket, &mut sender, target, body).await;
            if answer.is_ok() {
                self.keep(sender);
            }
            answer
        })
    }

    fn call<C: Call>(&self, call: &C) -> Outcome<C::Answer> {
        let wrong = |error: serde_json::Error| Failure::failed(format!("{}: not the JSON of a call: {error}", C::NAME));
        let body = serde_json::to_vec(call).map_err(wrong)?;
        serde_json::from_slice(&self.ask(C::NAME, body)?).map_err(wrong)
    }

    fn volumes(&self) -> Outcome<Vec<VolumeView>> {
        self.call(&ListVolumes {})
    }

    fn read(&self, volume: &str, at: u64, into: &mut [u8]) -> Outcome<()> {
        let read = Read { volume: volume.to_owned(), at, length: into.len() as u64 };
        let body = serde_json::to_vec(&read).map_err(|error| Failure::failed(error.to_string()))?;
        let bytes = self.ask(Read::NAME, body)?;
        if bytes.len() != into.len() {
            return Err(Failure::failed(format!("the server read {} bytes instead of {}", bytes.len(), into.len())));
        }
        into.copy_from_slice(&bytes);
        Ok(())
    }
}

/// A failure of the server, for the library.
fn error(failure: Failure) -> BackupError {
    let text = failure.to_string();
    match failure.kind {
        Kind::Damaged => BackupError::Damaged(text),
        Kind::Missing => BackupError::Missing(text),
        Kind::Refused => BackupError::Refused(text),
        Kind::Full => BackupError::Full(text),
        Kind::Exists => BackupError::Exists(text),
        Kind::Usage => BackupError::Invalid(text),
        _ => BackupError::Failed(text),
    }
}

/// A snapshot of the array that is being saved.
pub struct Taken {
    server: Server,
    volume: VolumeView,
    snapshot: VolumeView,
    /// What the names of this repository's snapshots of the volume begin with.
    prefix: String,
}

impl Taken {
    pub fn snapshot(site: &Site, repository: &Repository, name: &str) -> Outcome<Taken> {
        let server = Server::find(site)?;
        let volumes = server.volumes()?;
        let known: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
        let volume = volumes.iter().find(|volume| volume.name == name).cloned().ok_or_else(|| {
            Failure::missing(format!("no volume is called '{name}'"))
                .next(format!("the volumes here: {}", names_in_row(&known, "stele volume list")))
        })?;
        // A name that no file can have is refused before there is a snapshot.
        stele_backup::backup::volume::path(name)?;
        let id = stele_backup::crypt::hex(repository.header.id.get(..8).unwrap_or_default());
        let prefix = format!("backup-{id}-{}-", volume.id);
        let mut nonce = [0; 8];
        repository.surroundings.entropy(&mut nonce);
        let taken = format!("{prefix}{}", stele_backup::crypt::hex(&nonce));
        let snapshot = server.call(&Snapshot { volume: name.to_owned(), name: taken })?;
        Ok(Taken { server, volume, snapshot, prefix })
    }

    pub fn volume(&self) -> &str {
        &self.volume.name
    }

    pub fn name(&self) -> &str {
        &self.snapshot.name
    }

    /// Removes the snapshot, since no backup came of it.
    pub fn remove(&self) {
        self.delete(&self.snapshot);
    }

    /// Removes the earlier snapshots that backups of this volume into this repository took. Gives
    /// their names.
    pub fn keep_only(&self) -> Outcome<Vec<String>> {
        let nonce = |name: &str| {
            let rest = name.strip_prefix(&self.prefix)?;
            Some(rest.len() == 16 && rest.chars().all(|c| c.is_ascii_hexdigit()))
        };
        let mut removed = Vec::new();
        for other in self.server.volumes()? {
            let own =
                other.kind == "snapshot" && other.origin == self.snapshot.origin && nonce(&other.name) == Some(true);
            // A later one is that of another backup, which runs.
            if own && other.id < self.snapshot.id && self.delete(&other) {
                removed.push(other.name);
            }
        }
        Ok(removed)
    }

    fn delete(&self, snapshot: &VolumeView) -> bool {
        let deleted = self.server.call(&Delete { name: snapshot.name.clone() });
        if let Err(failure) = &deleted {
            tell(format_args!(
                "stele: snapshot '{}' of the array stays: {}",
                Shown(&snapshot.name),
                Shown(&failure.to_string())
            ));
        }
        deleted.is_ok()
    }

    fn is_base(&self, view: &VolumeView, base: &Origin) -> bool {
        let same = view.name == base.snapshot && view.id == base.number && view.made == Some(base.made);
        same && view.kind == "snapshot" && view.origin.is_some() && view.origin == self.snapshot.origin
    }
}

impl VolumeReader for Taken {
    fn size(&self) -> u64 {
        self.snapshot.size
    }

    fn origin(&self) -> Origin {
        let is = &self.snapshot;
        Origin {
            cell: 0,
            block: u32::try_from(is.block).unwrap_or(4096),
            strip: is.strip,
            digests_strips: is.digest == "strip",
            code: is.code.clone(),
            snapshot: is.name.clone(),
            number: is.id,
            made: is.made.unwrap_or(0),
        }
    }

    fn has_base(&self, base: &Origin) -> stele_backup::Result<bool> {
        Ok(self.server.volumes().map_err(error)?.iter().any(|view| self.is_base(view, base)))
    }

    fn runs(&self, at: u64, length: u64, since: Option<&Origin>) -> stele_backup::Result<Vec<(u64, bool)>> {
        let since = since.map(|base| Base { name: base.snapshot.clone(), id: base.number, made: base.made });
        let (mut runs, mut from) = (Vec::new(), at);
        while from < at + length {
            let part = RANGE_MAX.min(at + length - from);
            let blocks = Blocks { volume: self.snapshot.name.clone(), since: since.clone(), at: from, length: part };
            runs.extend(self.server.call(&blocks).map_err(error)?.iter().map(|run| (run.length, run.data)));
            from += part;
        }
        Ok(runs)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> stele_backup::Result<()> {
        self.server.read(&self.snapshot.name, at, into).map_err(error)
    }
}

/// A volume that is being restored.
struct Target<'a> {
    server: &'a Server,
    name: &'a str,
    token: u64,
}

impl VolumeWriter for Target<'_> {
    fn write(&self, at: u64, content: &[u8]) -> stele_backup::Result<()> {
        for (number, part) in (0..).zip(content.chunks(WRITE_MAX as usize)) {
            let at = at + number * WRITE_MAX;
            let target = format!("{}?token={}&at={at}", RestoreWrite::NAME, self.token);
            self.server.ask(&target, part.to_vec()).map_err(error)?;
        }
        Ok(())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> stele_backup::Result<()> {
        self.server.read(self.name, at, into).map_err(error)
    }
}

/// The failure of the beginning of a restore. If the server did not answer, it may have trimmed the
/// volume before.
fn beginning_failed(name: &str, overwrite: bool, failure: Failure) -> Failure {
    if !overwrite || failure.kind != Kind::Busy {
        return failure;
    }
    let before = format!("{name}{BEFORE}SECONDS");
    let next = format!(
        "{}; if `stele volume list` shows a snapshot '{before}' of this time, the volume may be incomplete: \
         `stele volume rollback` brings its earlier content back",
        failure.next
    );
    failure.next(next)
}

pub fn restore(site: &Site, json: bool, command: &Restore, name: &str) -> Outcome<()> {
    let watch = Watch::begin(json, command.telling);
    let repository = open(&command.place)?;
    let chosen = select::chosen(&repository, &command.snapshot, &command.latest)?;
    let indexed = index_for(&repository, &chosen.snapshot)?;
    // All that can be wrong with the backup is found before there is a volume.
    let saved = volumes::select(&indexed, &chosen.snapshot.description, &chosen.within)?;
    let server = Server::find(site)?;
    let origin = &saved.origin;
    let create = calls::CreateVolume {
        name: name.to_owned(),
        code: command.code.map_or_else(|| origin.code.clone(), |code| code.to_string()),
        size: saved.size,
        strip: origin.strip,
        block: origin.block.into(),
        digest_strip: origin.digests_strips,
        write_through: false,
        allocate: false,
    };
    let begun = server.call(&RestoreBegin { create, overwrite: command.overwrite });
    let begun = begun.map_err(|failure| beginning_failed(name, command.overwrite, failure))?;
    let target = Target { server: &server, name, token: begun.token };
    let progress = Arc::new(restore::RestoreProgress::default());
    let (shown, stop) = (Arc::clone(&progress), Arc::clone(&progress));
    let workers = command.sessions.unwrap_or_else(super::run::workers);
    let done = watch.during(
        move || shown.so_far(),
        move || stop.stop.store(true, Ordering::Relaxed),
        || volumes::run(&indexed, &saved, &target, workers, command.verify, &progress),
    );
    let complete = done.as_ref().is_ok_and(|done| done.problems == 0);
    let ended = server.call(&RestoreEnd { token: begun.token, complete });
    let unfinished = |failure: Failure| match &begun.before {
        Some(before) => blocks::unfinished(name, before, &failure),
        None => Failure::new(failure.kind, format!("volume '{name}' is incomplete: {}", failure.error))
            .next(format!("`stele volume delete {name}` removes it")),
    };
    let done = done.map_err(&unfinished)?;
    ended.map_err(unfinished)?;
    if json {
        print_json(&json!({
            "snapshot": chosen.dated.id.to_string(), "host": chosen.host(), "stored": moment(chosen.dated.stored),
            "volume": name, "bytes": saved.size, "written_bytes": done.written,
            "before": begun.before, "problems": done.problems, "issues": issues_json(&done.issues),
        }))?;
    } else {
        println!("{}.", chosen.line());
        let (size, written) = (Bytes(saved.size), Bytes(done.written));
        println!("Volume '{}' restored: {size}, of which {written} were written; the rest is holes.", Shown(name));
        if let Some(before) = &begun.before {
            println!("Its earlier content is the snapshot '{}': delete that when it is not needed.", Shown(before));
        }
    }
    incomplete("the restore is incomplete", done.problems, &done.issues)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_without_an_answer_says_what_may_have_been_trimmed() {
        let check = |overwrite: bool, kind: Kind, expected: bool| {
            let failure = Failure::new(kind, "the server broke off").next("see its log");
            let shown = beginning_failed("vm", overwrite, failure).to_string();
            assert_eq!(
                shown.contains("see its log; if `stele volume list` shows a snapshot 'vm-before-restore-"),
                expected
            );
            assert!(!shown.contains(":  "), "{shown}");
        };
        check(true, Kind::Busy, true);
        check(false, Kind::Busy, false);
        check(true, Kind::Exists, false);
    }
}
