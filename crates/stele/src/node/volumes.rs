//! Which volumes carry the archive: what the configuration names, checked against whose the volumes are.
//!
//! A volume says whose it is by its owner mark, which only Stele sets, at the volume's creation. The configuration only
//! chooses. Where it names a volume that is not marked so, the archive that the marks tell of is opened for reading, an alarm
//! stands, and nothing that would have to be recorded in its audit log is done: a wrong name must neither hide an archive
//! nor open another one.

use stele_array::VolumeStatus;

use crate::config;

/// Owner marks.
pub const CATALOG: &str = "catalog";
pub const DATA: &str = "archive";

/// Why the archive is not served as it was asked for, and what its operator does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    /// As OPERATIONS.md lists the alarm.
    pub kind: &'static str,
    pub message: String,
    pub next: String,
}

/// What the names and the marks come to.
#[derive(Debug)]
pub struct Found {
    /// Catalog and data volume, where both are known.
    pub pair: Option<(VolumeStatus, VolumeStatus)>,
    /// The names are wrong: the pair is what the marks say, and is not to be written.
    pub trouble: Option<Trouble>,
}

/// Whether the volume is marked as this part of the archive.
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
        let why = match volume.map(|volume| volume.spec.owner.as_deref().unwrap_or("nobody")) {
            Some(other) => format!("which belongs to {other}"),
            None => "which does not exist".to_owned(),
        };
        let known: Vec<&str> = marked(owner).map(|volume| volume.spec.name.as_str()).collect();
        let is = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        said.push(format!("[archive] {setting} names '{name}', {why}; marked as the archive's {setting}: {is}"));
        // Of several, none can be told to be the one.
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
