//! Finds the archive's volumes: the names of the configuration, checked against the owner marks of
//! the volumes.
//!
//! The owner mark of a volume names its owner. Only Stele sets it, at the volume's creation. The
//! configuration only selects among marked volumes. If it names a volume with another mark, the
//! archive of the marked volumes is opened read-only and an alarm stands. No act that the audit log
//! would have to record is carried out. A wrong name must neither hide an archive nor open another
//! one.

use stele_archive::ArchiveError;
use stele_array::VolumeStatus;
use stele_catalog::CatalogError;

use super::shares::{CACHE_PREFIX, OWNER};
use crate::config;
use crate::failure::{Failure, Kind};

/// Owner marks.
pub const CATALOG: &str = "catalog";
pub const DATA: &str = "archive";

/// The reason why the archive is not served as requested, and the operator's next step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// The kind of the alarm, as OPERATIONS.md lists it.
    pub kind: &'static str,
    pub message: String,
    pub next: String,
}

/// The result of comparing names with marks.
#[derive(Debug)]
pub struct Found {
    /// Catalog and data volume, if both are known.
    pub pair: Option<(VolumeStatus, VolumeStatus)>,
    /// The names are wrong: the pair is that of the marks, and must not be written.
    pub trouble: Option<Trouble>,
}

/// What a volume with an owner carries, for a message.
pub fn carried(volume: &str, owner: &str) -> String {
    match (owner, volume.strip_prefix(CACHE_PREFIX)) {
        (OWNER, Some(share)) => format!("the cache of share '{share}'"),
        (OWNER, None) => "the cache of a share".to_owned(),
        _ => format!("the {owner} of this pool"),
    }
}

/// As [`carried`], where the volume was to be deleted.
pub fn not_deleted(volume: &str, owner: &str) -> String {
    let next = match owner {
        OWNER => "`stele share remove` removes a share with its cache",
        _ => "`stele volume list` shows owners",
    };
    format!("volume '{volume}' carries {} and is not deleted by command; {next}", carried(volume, owner))
}

/// Whether the volume has the mark of this part of the archive.
pub fn is_marked(volume: &VolumeStatus, owner: &str) -> bool {
    volume.spec.owner.as_deref() == Some(owner) && !volume.snapshot
}

pub fn find(volumes: &[VolumeStatus], names: &config::Archive) -> Found {
    let named = |name: &str| volumes.iter().find(|volume| volume.spec.name == name);
    let marked = |owner: &'static str| volumes.iter().filter(move |volume| is_marked(volume, owner));
    let (catalog, data) = (named(&names.catalog_volume), named(&names.data_volume));
    let right = |volume: Option<&VolumeStatus>, owner: &str| volume.is_some_and(|volume| is_marked(volume, owner));
    if right(catalog, CATALOG) && right(data, DATA) {
        return Found { pair: catalog.cloned().zip(data.cloned()), trouble: None };
    }
    if marked(CATALOG).chain(marked(DATA)).next().is_none() {
        return Found { pair: None, trouble: None };
    }
    let mut said = Vec::new();
    let mut choose = |setting: &str, name: &str, volume: Option<&VolumeStatus>, owner: &'static str| {
        if right(volume, owner) {
            return volume.cloned();
        }
        let why = match volume.map(|volume| volume.spec.owner.as_deref()) {
            Some(Some(other)) => format!("which carries {}", carried(name, other)),
            Some(None) => "which is no volume of the archive".to_owned(),
            None => "which does not exist".to_owned(),
        };
        let known: Vec<&str> = marked(owner).map(|volume| volume.spec.name.as_str()).collect();
        let is = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        said.push(format!("[archive] {setting} names '{name}', {why}; marked as the archive's {setting}: {is}"));
        // Several marked volumes leave no way to choose.
        if known.len() == 1 { marked(owner).next().cloned() } else { None }
    };
    let catalog = choose("catalog_volume", &names.catalog_volume, catalog, CATALOG);
    let data = choose("data_volume", &names.data_volume, data, DATA);
    let next = match (&catalog, &data) {
        (Some(catalog), Some(data)) => format!(
            "write catalog_volume = \"{}\" and data_volume = \"{}\" under [archive] in stele.toml, and start again",
            catalog.spec.name, data.spec.name
        ),
        (None, Some(data)) => format!(
            "write data_volume = \"{}\" under [archive] in stele.toml; `stele catalog rebuild` makes a catalog for it",
            data.spec.name
        ),
        _ => "return missing drives; `stele volume list` shows the volumes and their owners".to_owned(),
    };
    let trouble = Trouble { kind: "volume-names", message: said.join("; "), next };
    Found { pair: catalog.zip(data), trouble: Some(trouble) }
}

/// Whether missing drives have a part of the volume, beyond what is lost.
pub fn is_away(volume: &VolumeStatus) -> bool {
    let bytes = |ranges: &[(u64, u64)]| ranges.iter().map(|(_, length)| length).sum::<u64>();
    bytes(&volume.unreadable) > bytes(&volume.lost)
}

/// The next step for a damaged catalog.
const REBUILD: &str = "`stele catalog rebuild` makes it anew from the data volume";

/// Whether a failure to open the catalog names damage, and not a catalog that is out of reach.
pub fn names_damage(failure: &Failure) -> bool {
    failure.next == REBUILD
}

/// As the catalog says that it got no thread of its own.
const NO_THREAD: &str = "a thread could not be started";

/// The failure to open the catalog. A rebuild loses records that are only out of reach, so it is
/// the next step for damage alone. `is_away` is that of the catalog's volume.
pub fn unopened(error: CatalogError, is_away: bool) -> Failure {
    const RETURN: &str = "return missing drives (`stele pool status` names them), and start the server again";
    let failure = |message: &str| Failure::new(Kind::Damaged, format!("the catalog does not open: {message}"));
    match error {
        CatalogError::Newer(_) => Failure::from(ArchiveError::from(error)).next(
            "`stele upgrade check` names the newer format; a rebuild would lose data that only that version knows",
        ),
        // No drive is missing: the process got no thread, as at a limit of its user or of a
        // service.
        CatalogError::Stopped(message) if message.contains(NO_THREAD) => Failure::failed(failure(&message).error).next(
            "raise `ulimit -u` and `ulimit -v`, or TasksMax and LimitAS of the service; then start the server again",
        ),
        CatalogError::Stopped(message) => failure(&message).next(RETURN),
        CatalogError::Busy => failure("the pool has all the operations it can hold").next("start the server again"),
        error if is_away => failure(&error.to_string()).next(RETURN),
        error => failure(&error.to_string()).next(REBUILD),
    }
}

#[cfg(test)]
mod tests;
