//! Making the catalog anew from the data volume, without losing one that still opens.
//!
//! In this order: the key and the store are verified, a catalog that opens is refused (its audit log reaches further than the
//! data volume's), and only then is anything written: to a volume of its own beside the old one where there is room, which the
//! configuration names once it is complete. A rebuild that is broken off before that has changed nothing; what it leaves is
//! removed by the next one.

use stele_archive::{Archive, RebuildReport};
use stele_array::{ArrayError, Command, Reply, VolumeSpec, VolumeStatus};

use super::{Node, Opening, create, master, own_uid};
use crate::api::Actor;
use crate::config::{Config, Site};
use crate::failure::{Failure, Kind, Outcome};

/// What became of it.
pub struct Rebuilt {
    pub report: RebuildReport,
    /// The volume that carries the catalog now.
    pub volume: String,
    /// There was no room for a second one, so the old catalog was written over.
    pub in_place: bool,
}

impl Node {
    /// Opens the pool, makes a fresh catalog, and fills it. `force`: even if the old one opens.
    pub async fn rebuild_catalog(site: &Site, config: Config, force: bool) -> Outcome<(Node, Rebuilt)> {
        let mut node = Node::open_pool(site, config, Opening::for_server()).await?;
        match rebuild(site, &mut node, force).await {
            Ok(rebuilt) => Ok((node, rebuilt)),
            Err(failure) => {
                let _ = node.close().await;
                Err(failure)
            }
        }
    }

    async fn leave_archive(&mut self) -> Outcome<()> {
        self.archive = None;
        let catalog = self.catalog.take();
        super::blocking(move || {
            drop(catalog);
            Ok(())
        })
        .await
    }
}

async fn rebuild(site: &Site, node: &mut Node, force: bool) -> Outcome<Rebuilt> {
    let (old, data) = node
        .archive_volumes()
        .await?
        .ok_or_else(|| Failure::missing("this pool has no archive: its catalog and data volumes were never made"))?;
    let key = master::read(site, &node.config.archive.master_key)?;
    Archive::can_rebuild(&node.pool.volume_of(&data), &key).await?;
    if !force && opens(site, node, &old, &data).await? {
        return Err(Failure::new(
            Kind::Refused,
            format!("the catalog on volume '{}' opens; nothing was changed", old.spec.name),
        )
        .next("start the server as it is. A rebuilt audit log ends at its last checkpoint: only if the catalog answers wrongly, rebuild it with --force"));
    }
    for left in owned_catalogs(node).await? {
        if left.id != old.id {
            remove(node, &left).await?;
        }
    }
    let Some(new) = beside(node, &old.spec).await? else {
        tracing::warn!("the pool has no room for a second catalog volume; '{}' is written over", old.spec.name);
        let report = fill(site, node, &old, &data).await?;
        return Ok(Rebuilt { report, volume: old.spec.name, in_place: true });
    };
    match fill(site, node, &new, &data).await {
        Ok(report) => {
            Config::rename_catalog_volume(&site.config_path, &new.spec.name)?;
            node.config.archive.catalog_volume.clone_from(&new.spec.name);
            remove(node, &old).await?;
            let actor = Actor { uid: own_uid() };
            node.audit(
                &actor,
                "catalog/rebuild",
                &format!("volume {} instead of {}", new.spec.name, old.spec.name),
                None,
            )
            .await?;
            Ok(Rebuilt { report, volume: new.spec.name, in_place: false })
        }
        Err(failure) => {
            node.leave_archive().await?;
            remove(node, &new).await?;
            Err(failure)
        }
    }
}

/// Whether the archive opens on this catalog, for reading.
async fn opens(site: &Site, node: &mut Node, catalog: &VolumeStatus, data: &VolumeStatus) -> Outcome<bool> {
    let opened = match node.foundation(site, catalog, data).await {
        Ok(foundation) => {
            Archive::open(foundation, create::archive_options(true)).await.map(drop).map_err(Failure::from)
        }
        Err(failure) => Err(failure),
    };
    node.leave_archive().await?;
    if let Err(failure) = &opened {
        tracing::info!("the old catalog does not open: {failure}");
    }
    Ok(opened.is_ok())
}

async fn fill(site: &Site, node: &mut Node, catalog: &VolumeStatus, data: &VolumeStatus) -> Outcome<RebuildReport> {
    create::format_catalog(&node.pool, catalog).await?;
    let foundation = node.foundation(site, catalog, data).await?;
    let (archive, report) = Archive::rebuild(foundation, create::archive_options(false)).await?;
    node.set_archive(archive);
    Ok(report)
}

/// A volume like the old one under another name, or none where the pool has no room for it.
async fn beside(node: &Node, old: &VolumeSpec) -> Outcome<Option<VolumeStatus>> {
    let (base, number) = match old.name.rsplit_once('-') {
        Some((base, number)) => match number.parse::<u32>() {
            Ok(number) => (base, number),
            Err(_) => (old.name.as_str(), 1),
        },
        None => (old.name.as_str(), 1),
    };
    let spec = VolumeSpec { name: format!("{base}-{}", number.saturating_add(1)), ..old.clone() };
    match node.pool.command(Command::CreateVolume(spec)).await {
        Ok(Reply::Volume(status)) => Ok(Some(status)),
        Ok(_) => Err(Failure::failed("the pool made a volume and did not show it; this is a defect of Stele")),
        Err(ArrayError::Full(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn owned_catalogs(node: &Node) -> Outcome<Vec<VolumeStatus>> {
    match node.pool.command(Command::ListVolumes).await? {
        Reply::Volumes(volumes) => {
            Ok(volumes.into_iter().filter(|volume| volume.spec.owner.as_deref() == Some("catalog")).collect())
        }
        _ => Err(Failure::failed("the pool answered a volume listing with something else; this is a defect of Stele")),
    }
}

/// Gives up a catalog volume that is not, or no longer, the store's. Records lie on the data volume, which stays protected.
async fn remove(node: &Node, volume: &VolumeStatus) -> Outcome<()> {
    let owner = volume.spec.owner.clone().unwrap_or_default();
    node.pool.command(Command::Protect { volume: volume.id, owner, retained: false }).await?;
    node.pool.command(Command::DeleteVolume { name: volume.spec.name.clone() }).await?;
    Ok(())
}
