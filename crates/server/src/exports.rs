//! The exports of this server: kept in `exports.json` of the data directory, and served while the
//! server runs.
//!
//! The file is replaced atomically: after a kill it is the list before or after a change. Only its
//! owner may read it. A caller that changes the list holds [`Changing`] from the first look at it
//! until the change is served. So two changes do not lose each other, and what is served is what
//! the list says.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stele_array::VolumeStatus;
use stele_array::server::PoolServer;
use stele_block::iscsi::{Keeper, Node};
use stele_block::{Directory, Export, Limits, Protocol};

use stele_ground::PoolId;

use crate::api::strict;
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::node::volumes::carried;
use crate::reservations::ReservationFiles;

/// `exports.json`, version 1; FORMAT/exports.md describes it.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    exports: Vec<Export>,
}

pub const VERSION: u32 = 1;

/// All exports, on file and served.
pub struct Exports {
    path: PathBuf,
    list: Mutex<Vec<Export>>,
    /// The directory in which connections look up exports.
    pub directory: Directory,
    limits: Limits,
    /// The iSCSI node, with the files that keep its reservations.
    pub iscsi: Arc<Node>,
    reservations: Arc<ReservationFiles>,
    changing: tokio::sync::Mutex<()>,
}

/// The right to change the exports, and to say which snapshots the served volumes have. One call
/// has it at a time.
pub struct Changing<'a> {
    exports: &'a Exports,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl Exports {
    /// Reads the exports of the data directory; a missing file gives none.
    pub fn read(dir: &Path, limits: Limits) -> Outcome<Exports> {
        let path = dir.join("exports.json");
        let list = match std::fs::read(&path) {
            Ok(bytes) => understood(&path, &bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io_failure("read", &path, &error)),
        };
        let files = ReservationFiles::at(dir).map_err(|error| io_failure("start a thread for", dir, &error))?;
        let (directory, reservations) = (Directory::default(), Arc::new(files));
        let iscsi = Arc::new(Node::new(directory.clone(), Arc::clone(&reservations) as Arc<dyn Keeper>));
        let changing = tokio::sync::Mutex::default();
        Ok(Exports { path, list: Mutex::new(list), directory, limits, iscsi, reservations, changing })
    }

    /// Waits until no other call changes the exports.
    pub async fn changing(&self) -> Changing<'_> {
        Changing { exports: self, _turn: self.changing.lock().await }
    }

    pub fn list(&self) -> Vec<Export> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why a server that starts admits no initiator to the export; `None` if nothing keeps them
    /// out.
    pub fn unreadable_reservations(&self, export: &Export) -> Option<String> {
        let shown = export.protocol == Protocol::Iscsi && self.directory.find(export.protocol, &export.name).is_some();
        shown.then(|| self.reservations.unreadable(&export.volume)).flatten()
    }

    pub fn of_volume(&self, volume: &str) -> Vec<Export> {
        self.list().into_iter().filter(|export| export.volume == volume).collect()
    }

    /// Keeps an export; it replaces one with the same protocol and name for the same volume, and
    /// the one of its protocol with the former name. The caller has made sure that this is meant.
    fn keep(&self, export: &Export, former: Option<&str>) -> Outcome<()> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |other: &&Export| other.protocol == export.protocol && other.name == export.name;
        let is_former = |other: &&Export| other.protocol == export.protocol && former == Some(other.name.as_str());
        if former.is_some_and(|former| former != export.name)
            && let Some(other) = list.iter().find(same)
        {
            let Export { protocol, name, volume, .. } = other;
            return Err(Failure::new(Kind::Exists, format!("the {protocol} export '{name}' serves volume '{volume}'"))
                .next("choose another --name, or `stele export remove` it first"));
        }
        if let Some(other) = list.iter().find(same)
            && other.volume != export.volume
        {
            return Err(Failure::new(
                Kind::Exists,
                format!("the {} export '{}' serves volume '{}'", export.protocol, export.name, other.volume),
            )
            .next("choose another --name, or `stele export remove` it first"));
        }
        let twice = |other: &&Export| {
            other.protocol == Protocol::Iscsi
                && export.protocol == Protocol::Iscsi
                && other.volume == export.volume
                && !same(other)
                && !is_former(other)
        };
        // Reservations and the order of commands belong to the target: two targets would each have
        // their own.
        if let Some(other) = list.iter().find(twice) {
            return Err(Failure::new(
                Kind::Exists,
                format!("volume '{}' is the iSCSI target '{}' already", other.volume, other.name),
            )
            .next("one target serves any number of initiators, over any number of paths"));
        }
        let others = list.iter().filter(|other| !same(other) && !is_former(other));
        let mut changed: Vec<Export> = others.cloned().collect();
        changed.push(export.clone());
        changed.sort_by(|a, b| (a.protocol, &a.name).cmp(&(b.protocol, &b.name)));
        self.write(&changed)?;
        *list = changed;
        Ok(())
    }

    fn write(&self, exports: &[Export]) -> Outcome<()> {
        let stored = Stored { version: VERSION, exports: exports.to_vec() };
        let text = serde_json::to_vec_pretty(&stored)
            .map_err(|error| Failure::failed(format!("cannot write the exports as JSON: {error}")))?;
        crate::files::change_private(&self.path, Some(&text))
    }
}

impl Changing<'_> {
    /// Keeps an export and serves it. It replaces one with the same protocol and name for the same
    /// volume, and the one with its former name.
    pub fn put(
        &self,
        export: Export,
        former: Option<&str>,
        pool: &PoolServer,
        id: PoolId,
        volume: &VolumeStatus,
    ) -> Outcome<()> {
        check(&export, volume)?;
        self.exports.keep(&export, former)?;
        if let Some(former) = former.filter(|former| *former != export.name) {
            self.exports.directory.withdraw(export.protocol, former);
        }
        self.serve(export, pool, id, volume)
    }

    /// Makes an export of the list available to connections.
    pub fn serve(&self, export: Export, pool: &PoolServer, id: PoolId, volume: &VolumeStatus) -> Outcome<()> {
        check(&export, volume)?;
        let Exports { reservations, directory, limits, .. } = self.exports;
        reservations.introduce(&volume.spec.name, id, volume.id);
        directory.serve(export, pool.volume_of(volume), *limits);
        Ok(())
    }

    /// Removes an export and ends its connections.
    pub fn remove(&self, protocol: Protocol, name: &str) -> Outcome<()> {
        let mut list = self.exports.list.lock().unwrap_or_else(PoisonError::into_inner);
        let stays = |export: &&Export| export.protocol != protocol || export.name != name;
        let changed: Vec<Export> = list.iter().filter(stays).cloned().collect();
        if changed.len() == list.len() {
            return Err(missing(protocol, name, &list));
        }
        self.exports.write(&changed)?;
        *list = changed;
        drop(list);
        self.exports.directory.withdraw(protocol, name);
        Ok(())
    }

    /// Sets the snapshots of the served volumes, so that clients can query the changes since each.
    /// The volumes were listed under this right: a list from before a change could otherwise come
    /// after the list with it.
    pub fn note_snapshots(&self, volumes: &[VolumeStatus]) {
        for target in self.exports.directory.list(None) {
            let snapshots = stands_on(volumes, &target.export.volume);
            target.note_snapshots(snapshots.map(|volume| (volume.spec.name.clone(), volume.id)).collect());
        }
    }
}

/// The snapshots that what is exported may stand on: those of a volume, and the older ones beside a
/// snapshot. Numbers of volumes and snapshots only grow.
fn stands_on<'a>(volumes: &'a [VolumeStatus], exported: &'a str) -> impl Iterator<Item = &'a VolumeStatus> {
    let snapshot = volumes.iter().find(|volume| volume.spec.name == exported).filter(|volume| volume.snapshot);
    let of = snapshot.map_or(Some(exported), |snapshot| snapshot.origin.as_deref());
    let is_older = move |volume: &&VolumeStatus| snapshot.is_none_or(|snapshot| volume.id.0 < snapshot.id.0);
    volumes
        .iter()
        .filter(move |volume| volume.snapshot && of.is_some() && volume.origin.as_deref() == of)
        .filter(is_older)
}

/// The exports in the bytes of a file.
///
/// The version counts before anything else: a later one may have other fields. A field that this
/// version does not have is refused, also within an export. It may restrict who connects.
pub fn understood(path: &Path, bytes: &[u8]) -> Outcome<Vec<Export>> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| not_understood(path, &error))?;
    if let Some(version) = value.get("version").and_then(Value::as_u64).filter(|version| *version > VERSION.into()) {
        return Err(later(path, version));
    }
    if let Some(field) = strict::unknown_field::<Stored>(&value) {
        return Err(unknown(path, &field));
    }
    let stored: Stored = serde_json::from_slice(bytes).map_err(|error| not_understood(path, &error))?;
    if stored.version != VERSION {
        return Err(Failure::usage(format!(
            "{} is of version {}, and this program knows version {VERSION}",
            path.display(),
            stored.version
        )));
    }
    let mut names = BTreeSet::new();
    let twice = stored.exports.iter().find(|export| !names.insert((export.protocol, export.name.as_str())));
    if let Some(Export { protocol, name, .. }) = twice {
        return Err(Failure::usage(format!(
            "{} has two {protocol} exports with the name '{name}', and only one can be served",
            path.display()
        ))
        .next("remove one of them if the file was written by hand, or bring the file back from a backup"));
    }
    Ok(stored.exports)
}

fn later(path: &Path, version: u64) -> Failure {
    let message = format!(
        "{} is of version {version}: a later version of Stele wrote it, and this one knows version {VERSION}",
        path.display()
    );
    Failure::new(Kind::Refused, message).next(
        "start the version that wrote it, or a later one; leave the file as it is, it has the restrictions of each \
         export",
    )
}

fn unknown(path: &Path, field: &str) -> Failure {
    let message = format!(
        "{} has the field `{field}`, which version {VERSION} of the file does not have; ignored, it could let more \
         hosts connect",
        path.display()
    );
    Failure::usage(message).next("correct the field if it was written by hand, or bring the file back from a backup")
}

fn not_understood(path: &Path, error: &serde_json::Error) -> Failure {
    Failure::usage(format!("{} cannot be understood: {error}", path.display())).next(
        "bring the file back from a backup of the data directory; without the file the server starts with no \
         exports, and `stele volume export` makes them anew, each with its restrictions",
    )
}

/// The failure of a command on an export that is not among `known`. The command may name its
/// volume instead, or be meant for an export of the other protocol.
pub fn missing(protocol: Protocol, name: &str, known: &[Export]) -> Failure {
    let of_volume = |export: &&Export| export.protocol == protocol && export.volume == name;
    let is_meant = |export: &&Export| export.protocol != protocol && (export.name == name || export.volume == name);
    let next = match (known.iter().find(of_volume), known.iter().find(is_meant)) {
        (Some(export), _) => format!("give the name of its export, {}; `stele export list` shows all", export.name),
        (None, Some(other)) => format!("if {} is meant, add --protocol {}", other.name, other.protocol),
        (None, None) => "`stele export list` shows all".to_owned(),
    };
    Failure::missing(format!("no {protocol} export is called '{name}'")).next(next)
}

/// Why the volume is not deleted yet, with the commands that remove its exports; `None` if it has
/// none.
pub fn still_exported(volume: &str, exports: &[Export]) -> Option<String> {
    let of_it: Vec<&Export> = exports.iter().filter(|export| export.volume == volume).collect();
    let names: Vec<&str> = of_it.iter().map(|export| export.name.as_str()).collect();
    (!of_it.is_empty()).then(|| {
        let removals: Vec<String> = of_it.iter().map(|export| removal(export)).collect();
        format!("volume '{volume}' is exported as {}; take that away first: {}", names.join(", "), removals.join(", "))
    })
}

/// The command that removes an export.
pub fn removal(export: &Export) -> String {
    match export.protocol {
        Protocol::Nbd => format!("`stele export remove {}`", export.name),
        Protocol::Iscsi => format!("`stele export remove {} --protocol iscsi`", export.name),
    }
}

/// Refuses an export that its volume does not allow.
pub fn check(export: &Export, volume: &VolumeStatus) -> Outcome<()> {
    if let (Some(owner), false) = (&volume.spec.owner, export.read_only) {
        let name = &volume.spec.name;
        let message = format!("volume '{name}' carries {} and is never exported for writing", carried(name, owner));
        return Err(Failure::new(Kind::Refused, message).next("make a volume of its own with `stele volume create`"));
    }
    if volume.snapshot && !export.read_only {
        return Err(Failure::new(Kind::Refused, format!("snapshot '{}' is never written", volume.spec.name))
            .next("add --read-only, or make a clone of it and export that"));
    }
    Ok(())
}
