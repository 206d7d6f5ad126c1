//! Calls about the data that unreadable stripes damage.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stele_archive::Affected as Version;
use stele_array::{Command, Reply};
use stele_file::share::registry::{Paths, Registry};

use super::{Actor, Call};
use crate::failure::{Failure, Kind, Outcome};
use crate::node::shares::failed;
use crate::node::{Node, blocking};

/// Largest time that a call waits until the unreadable stripes are known.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Asks for the names of everything that has unreadable data.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ListAffected {
    /// Largest number of object versions to name; the count covers all.
    pub limit: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AffectedView {
    /// Stripes that are unreadable; below, those that are lost for good as far as is known.
    pub unreadable_stripes: u64,
    pub lost_stripes: u64,
    /// Volumes and snapshots with unreadable data.
    pub volumes: Vec<AffectedVolume>,
    /// Object versions in the order of buckets and keys, at most `limit`.
    pub objects: Vec<AffectedObject>,
    pub objects_total: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AffectedObject {
    #[serde(flatten)]
    pub version: Version,
    /// The path of its file, if the bucket is a share: its key is a number that clients of the
    /// share never see.
    pub path: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AffectedVolume {
    pub name: String,
    /// `volume` or `snapshot`.
    pub kind: String,
    pub owner: Option<String>,
    pub unreadable_bytes: u64,
    pub lost_bytes: u64,
    /// Offset and length of each unreadable range.
    pub ranges: Vec<(u64, u64)>,
}

/// Waits until the unreadable stripes are known. The pool looks them up at the start and whenever a
/// drive comes or goes.
async fn until_known(node: &Node) -> Outcome<()> {
    let begun = tokio::time::Instant::now();
    loop {
        match node.pool.command(Command::Status).await? {
            Reply::Status(status) if status.unreadable_known => return Ok(()),
            _ if begun.elapsed() < PATIENCE => tokio::time::sleep(LOOK_EVERY).await,
            _ => {
                return Err(Failure::new(Kind::Busy, "the pool is still finding out which stripes are unreadable")
                    .next("ask again in a minute"));
            }
        }
    }
}

/// Adds the paths of the versions that are files of shares.
fn with_paths(registry: &Registry, versions: Vec<Version>) -> Outcome<Vec<AffectedObject>> {
    let shares = registry.list().map_err(failed)?;
    let mut shares: BTreeMap<String, Paths> =
        shares.into_iter().map(|(name, row)| (name, registry.paths(&row))).collect();
    let path = |version: Version| {
        let path = shares.get_mut(&version.bucket).map_or(Ok(None), |paths| paths.of(&version.key)).map_err(failed)?;
        Ok(AffectedObject { version, path })
    };
    versions.into_iter().map(path).collect()
}

impl Call for ListAffected {
    const NAME: &'static str = "affected";
    const READS: bool = true;
    type Answer = AffectedView;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<AffectedView> {
        until_known(node).await?;
        let status = super::pool::status(node).await?;
        let views = super::volume::list(node).await?;
        let data = views.iter().find(|view| view.owner.as_deref() == Some(crate::node::volumes::DATA));
        let ranges = data.map(|view| view.unreadable.clone()).unwrap_or_default();
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let (objects, objects_total) = match node.archive() {
            Ok(archive) => {
                let archive = archive.clone();
                let unreadable = archive.unreadable(ranges).await;
                let registry = node.registry()?;
                blocking(move || {
                    let (versions, total) = archive.affected(&unreadable, limit)?;
                    Ok((with_paths(&registry, versions)?, total))
                })
                .await?
            }
            Err(_) => (Vec::new(), 0),
        };
        let sum = |ranges: &[(u64, u64)]| ranges.iter().map(|(_, length)| length).sum();
        let volumes = views.into_iter().filter(|view| !view.unreadable.is_empty()).map(|view| AffectedVolume {
            unreadable_bytes: sum(&view.unreadable),
            lost_bytes: sum(&view.lost),
            name: view.name,
            kind: view.kind,
            owner: view.owner,
            ranges: view.unreadable,
        });
        Ok(AffectedView {
            unreadable_stripes: status.unreadable_stripes,
            lost_stripes: status.lost_stripes,
            volumes: volumes.collect(),
            objects,
            objects_total,
        })
    }
}
