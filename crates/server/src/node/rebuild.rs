//! Builds the catalog again from the data volume.
//!
//! The steps run in this order. An interruption leaves every catalog as it was, and a repeated
//! rebuild succeeds:
//! 1. The owners of the volumes, the key and the store are checked. A catalog that opens or is out
//!    of reach, missing drives and lost stripes are refused, unless the operator allows each by its
//!    own option.
//! 2. A new volume is made for the new catalog, or the volume of an unfinished rebuild is used
//!    again.
//! 3. It is filled with everything but the store's identity. Unreadable data is refused here,
//!    unless losses are accepted.
//! 4. It is opened again from its volume and checked.
//! 5. The configuration names it. Until the next step it is no catalog, and the next rebuild starts
//!    at 2.
//! 6. The identity is written and the archive opened, which gives catalog and data volume a pairing
//!    of their own.
//! 7. Only then, and only if nothing was lost, keys that waited for approval are revoked, and the
//!    older catalogs are deleted. One that was out of reach is left.
//!
//! No step before 6 changes the data volume: its superblock is rewritten unchanged, to test that it
//! accepts writes.

use std::path::PathBuf;

use stele_archive::mutation::Mutation;
use stele_archive::{Archive, ArchiveError, Paired, Rebuild, RebuildReport, SignedHead};
use stele_array::{ArrayError, Command, DriveHealth, Reply, VolumeStatus};

use super::volumes::{self, CATALOG, Trouble, is_marked};
use super::{Node, Opening, blocking, create, heads, master, own_uid};
use crate::api::Actor;
use crate::config::{Config, Site};
use crate::failure::{Failure, Kind, Outcome};

/// The operator's explicit options.
#[derive(Clone, Copy, Default, Debug)]
pub struct RebuildOptions {
    /// Rebuild even if the catalog opens, or is out of reach.
    pub force: bool,
    /// Rebuild even if data is missing; everything that existed is then held.
    pub accept_losses: bool,
}

/// The result of a rebuild.
pub struct Rebuilt {
    pub report: RebuildReport,
    /// The volume that now carries the catalog.
    pub volume: String,
    /// Volumes with earlier catalogs, kept because data was lost or one was out of reach.
    pub kept: Vec<String>,
}

/// The state of the catalog that the rebuild replaces.
enum Old {
    /// It opens, and belongs to the data volume.
    Good,
    /// It does not open, does not exist, or is behind the data volume.
    Useless,
    /// It may contain changes that the data volume lacks.
    Newer(String),
    /// It does not open, and not because it is damaged: it may open later.
    Away(Failure),
}

/// The error of a rebuild that a test interrupts.
#[cfg(test)]
pub(super) const BROKEN_OFF: &str = "broken off";

impl Node {
    /// Opens the pool, makes a fresh catalog, and fills it.
    pub async fn rebuild_catalog(site: &Site, config: Config, ask: RebuildOptions) -> Outcome<(Node, Rebuilt)> {
        let node = Node::open_pool(site, config, Opening::for_server()).await?;
        node.rebuild_here(site, ask).await
    }

    /// Does the same on an open pool, and closes it if the rebuild fails.
    pub(crate) async fn rebuild_here(mut self, site: &Site, ask: RebuildOptions) -> Outcome<(Node, Rebuilt)> {
        match rebuild(site, &mut self, ask).await {
            Ok(rebuilt) => Ok((self, rebuilt)),
            Err(failure) => {
                let _ = self.close().await;
                Err(failure)
            }
        }
    }

    /// Lets a test interrupt the rebuild here, as a kill would: the steps done so far stay.
    #[cfg(test)]
    fn reached(&self, stage: u64) -> Outcome<()> {
        match self.breaks_off == Some(stage) {
            true => Err(Failure::failed(BROKEN_OFF)),
            false => Ok(()),
        }
    }

    #[cfg(not(test))]
    fn reached(&self, _stage: u64) -> Outcome<()> {
        Ok(())
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

async fn rebuild(site: &Site, node: &mut Node, ask: RebuildOptions) -> Outcome<Rebuilt> {
    let (old, data) = ground(node).await?;
    let key = master::read(site, &node.config.archive.master_key)?;
    Archive::can_rebuild(&node.pool.volume_of(&data), &key).await?;
    let worth = match &old {
        Some(old) => worth(site, node, old, &data).await?,
        None => Old::Useless,
    };
    if let (Old::Good, false, Some(old)) = (&worth, ask.force, &old) {
        return Err(Failure::new(
            Kind::Refused,
            format!("the catalog on volume '{}' opens; nothing was changed", old.spec.name),
        )
        .next("start the server as it is. A rebuilt audit log ends at its last checkpoint: only if the catalog answers wrongly, rebuild it with --force"));
    }
    let mut losses = missing(node).await?;
    if let Old::Newer(why) = &worth {
        losses.push(why.clone());
    }
    if !losses.is_empty() && !ask.accept_losses && !node.without.has(Mutation::Losses) {
        return Err(refuse_losses(&losses.join("; ")));
    }
    if let (Old::Away(failure), false, Some(old)) = (&worth, ask.force || ask.accept_losses, &old) {
        let why = failure.on_one_line();
        let what = format!("nothing was rebuilt: the catalog on volume '{}' may be whole: {why}", old.spec.name);
        return Err(Failure::new(Kind::Damaged, what)
            .next("start the server again; if it stays so, --force rebuilds, and leaves this catalog on its volume"));
    }
    let is_away = matches!(worth, Old::Away(_));
    // Missing drives are no loss while all data is still readable; a newer catalog is a loss in any
    // case.
    let losses = if let Old::Newer(why) = worth { vec![why] } else { Vec::new() };
    if node.without.has(Mutation::KeepUntilDone) {
        for before in catalogs(node).await? {
            remove(node, &before).await?;
        }
    }
    // If the data volume cannot be paired with a catalog, a new catalog would be useless.
    if let Err(error) = Archive::can_pair(&node.pool.volume_of(&data), &key).await {
        let what = format!("nothing was rebuilt: a new catalog could not be paired with the data volume: {error}");
        return Err(Failure::new(Kind::Damaged, what).next("return the drives, and rebuild again"));
    }
    let new = match left_unfinished(site, node, &data).await? {
        Some(left) => left,
        None => beside(node, old.as_ref(), &data).await?,
    };
    node.reached(1)?;
    let mut heads = known_heads(heads::places(site, &node.config)).await?;
    heads.extend(heads::newest_in_bucket(site, &node.config).await?);
    let rebuild = Rebuild { accept_losses: ask.accept_losses, heads, losses };
    let filled = match fill(site, node, &new, &data, rebuild).await {
        Ok(filled) => filled,
        Err(failure) => {
            // It never was a catalog, so its deletion loses nothing.
            node.leave_archive().await?;
            remove(node, &new).await?;
            return Err(failure);
        }
    };
    node.reached(2)?;
    // Check the catalog as it is on its volume, not as it is in memory.
    node.leave_archive().await?;
    let foundation = node.foundation(site, &new, &data).await?;
    filled.check(&*foundation.catalog)?;
    node.reached(3)?;
    Config::rename_catalog_volume(&site.config_path, &new.spec.name)?;
    node.config.archive.catalog_volume.clone_from(&new.spec.name);
    node.reached(4)?;
    let (archive, report) = filled.adopt(foundation, node.archive_options(false)).await?;
    node.set_archive(archive);
    node.reached(5)?;
    if report.losses.is_empty()
        && let Err(failure) = revoke_unapproved(node).await
    {
        tracing::warn!(
            "keys that waited for approval are not revoked, see `stele key revoke`: {}",
            failure.on_one_line()
        );
    }
    if let Err(failure) = tell_shares(node).await {
        tracing::warn!("the shares whose trees are to be made anew could not be listed: {}", failure.on_one_line());
    }
    let mut kept = Vec::new();
    for before in catalogs(node).await?.into_iter().filter(|before| before.id != new.id) {
        match report.losses.is_empty() && !is_away && !volumes::is_away(&before) {
            true => remove(node, &before).await?,
            false => kept.push(before.spec.name),
        }
    }
    let what = match (kept.is_empty(), report.losses.is_empty()) {
        (true, _) => format!("on volume {}", new.spec.name),
        (false, true) => format!("on volume {}; kept: {}", new.spec.name, kept.join(", ")),
        (false, false) => format!("on volume {}, with losses; kept: {}", new.spec.name, kept.join(", ")),
    };
    node.audit(&Actor { uid: own_uid() }, "catalog/rebuild", &what, None).await?;
    Ok(Rebuilt { report, volume: new.spec.name, kept })
}

/// Revokes the keys that waited for an officer's approval. The requests to approve them were in the
/// former catalog alone, so these keys could be neither approved nor used any more.
async fn revoke_unapproved(node: &Node) -> Outcome<()> {
    let (archive, caller) = (node.archive()?, node.own_caller());
    let keys = archive.list_access_keys(&caller).await?;
    for key in keys.into_iter().filter(|key| key.pending && key.revoked.is_none()) {
        archive.revoke_access_key(&caller, &key.id).await?;
        tracing::info!("key {} waited for approval, and is revoked: its request went with the former catalog", key.id);
    }
    Ok(())
}

/// Names the shares. Their trees were in the former catalog alone.
async fn tell_shares(node: &Node) -> Outcome<()> {
    let buckets = node.archive()?.list_buckets(&node.own_caller()).await?;
    for share in buckets.into_iter().filter(|bucket| bucket.share) {
        tracing::info!(
            "the tree of share {} went with the former catalog: start the server, and `stele share create {}` makes it \
             anew from the versions",
            share.name,
            share.name
        );
    }
    Ok(())
}

/// The catalog that the configuration names, if any, and the data volume. Each must have the owner
/// mark of its role.
async fn ground(node: &Node) -> Outcome<(Option<VolumeStatus>, VolumeStatus)> {
    let found = node.archive_volumes().await?;
    let refuse = |trouble: Trouble| {
        Err(Failure::new(Kind::Refused, format!("nothing was rebuilt: {}", trouble.message)).next(trouble.next))
    };
    match (found.trouble, found.pair) {
        (None, Some((catalog, data))) => Ok((Some(catalog), data)),
        (None, None) => Err(Failure::missing("this pool has no archive: its catalog and data volumes were never made")),
        // No catalog is left: make one.
        (Some(trouble), None) if catalogs(node).await?.is_empty() => {
            let all = node.volumes().await?;
            let named = all.into_iter().find(|volume| volume.spec.name == node.config.archive.data_volume);
            match named.filter(|volume| is_marked(volume, super::volumes::DATA)) {
                Some(data) => Ok((None, data)),
                None => refuse(trouble),
            }
        }
        (Some(trouble), _) => refuse(trouble),
    }
}

/// Whether the archive opens read-only with this catalog, and the catalog belongs to it.
async fn worth(site: &Site, node: &mut Node, catalog: &VolumeStatus, data: &VolumeStatus) -> Outcome<Old> {
    // With each failure, whether it may be over at the next opening.
    let opened = match node.foundation(site, catalog, data).await {
        Ok(foundation) => match Archive::open(foundation, node.archive_options(true)).await {
            Ok(archive) => Ok(archive),
            Err(error @ ArchiveError::Newer(_)) => return Err(error.into()),
            Err(error) => {
                let passes = matches!(error, ArchiveError::Busy(_) | ArchiveError::Stopped(_));
                Err((Failure::from(error), passes || volumes::is_away(catalog)))
            }
        },
        // A later version wrote it. It may hold more than this version could rebuild.
        Err(failure) if failure.kind == Kind::Refused => return Err(failure),
        Err(failure) => {
            let passes = !volumes::names_damage(&failure);
            Err((failure, passes))
        }
    };
    let worth = match opened.map(|archive| archive.paired()) {
        Ok(Paired::Yes) => Old::Good,
        Ok(Paired::CatalogOlder(why)) => {
            tracing::info!("the catalog on '{}' is not to be used: {why}", catalog.spec.name);
            Old::Useless
        }
        Ok(Paired::No(why)) => Old::Newer(why),
        Err((failure, passes)) => {
            tracing::info!("the old catalog does not open: {}", failure.on_one_line());
            if passes { Old::Away(failure) } else { Old::Useless }
        }
    };
    node.leave_archive().await?;
    Ok(worth)
}

/// The missing parts of the pool.
async fn missing(node: &Node) -> Outcome<Vec<String>> {
    let Reply::Status(status) = node.pool.command(Command::Status).await? else {
        return Err(Failure::failed("the pool answered a status with something else; this is a defect of Stele"));
    };
    let named = |health: DriveHealth| {
        let drives = status.drives.iter().filter(move |drive| drive.is_member() && drive.health == health);
        // The path of a drive that was missing at the opening is unknown.
        let told = drives.map(|drive| match drive.name.as_str() {
            "" => drive.index.to_string(),
            name => format!("{} ({name})", drive.index),
        });
        told.collect::<Vec<_>>().join(", ")
    };
    let mut missing = Vec::new();
    for (health, word) in [(DriveHealth::Missing, "missing"), (DriveHealth::Failed, "failed")] {
        let drives = named(health);
        if !drives.is_empty() {
            missing.push(format!("drives are {word}: {drives}"));
        }
    }
    if status.lost_stripes > 0 {
        missing.push(format!("{} stripes are lost", status.lost_stripes));
    }
    Ok(missing)
}

fn refuse_losses(what: &str) -> Failure {
    Failure::new(Kind::Damaged, format!("nothing was rebuilt: {what}")).next(
        "return the drives, or replace them with `stele pool replace`, and rebuild again. If they are gone for good: \
         --accept-losses; what cannot be proven is then held until two retention officers decide",
    )
}

/// The heads in the places that answer in time. The log names the others.
async fn known_heads(places: Vec<PathBuf>) -> Outcome<Vec<SignedHead>> {
    let mut known = Vec::new();
    for heads in blocking(move || Ok(heads::all(&places))).await? {
        match heads {
            Ok(heads) => known.extend(heads),
            Err(failure) => {
                tracing::warn!("the rebuild goes on without the signed heads of a place: {}", failure.on_one_line());
            }
        }
    }
    Ok(known)
}

/// The volume of an unfinished rebuild: it opens and has no store's identity.
async fn left_unfinished(site: &Site, node: &mut Node, data: &VolumeStatus) -> Outcome<Option<VolumeStatus>> {
    for left in catalogs(node).await? {
        let unfinished = match node.foundation(site, &left, data).await {
            Ok(foundation) => stele_archive::Filled::is_unfinished(&*foundation.catalog).unwrap_or(false),
            Err(_) => false,
        };
        node.leave_archive().await?;
        if unfinished {
            return Ok(Some(left));
        }
    }
    Ok(None)
}

async fn fill(
    site: &Site,
    node: &mut Node,
    catalog: &VolumeStatus,
    data: &VolumeStatus,
    rebuild: Rebuild,
) -> Outcome<stele_archive::Filled> {
    create::format_catalog(&node.pool, catalog).await?;
    let foundation = node.foundation(site, catalog, data).await?;
    match Archive::fill(&foundation, &node.archive_options(false), rebuild).await {
        Err(error @ stele_archive::ArchiveError::Damaged { .. }) => Err(refuse_losses(&error.to_string())),
        filled => Ok(filled?),
    }
}

/// A volume like the old one under another name, at least as large as on a new pool of that size.
async fn beside(node: &Node, old: Option<&VolumeStatus>, data: &VolumeStatus) -> Outcome<VolumeStatus> {
    let name = match old {
        Some(old) => old.spec.name.as_str(),
        None => CATALOG,
    };
    let (base, number) = match name.rsplit_once('-').map(|(base, number)| (base, number.parse::<u32>())) {
        Some((base, Ok(number))) => (base, number),
        _ => (name, 1),
    };
    let taken: Vec<String> = node.volumes().await?.into_iter().map(|volume| volume.spec.name).collect();
    let mut names = (number.saturating_add(1)..u32::MAX).map(|number| format!("{base}-{number}"));
    let name = names.find(|name| !taken.contains(name)).unwrap_or_default();
    let now = create::catalog_spec(node, data.spec.code, name).await?;
    let spec = match old {
        Some(old) => stele_array::VolumeSpec { name: now.name, size: old.spec.size.max(now.size), ..old.spec.clone() },
        None => now,
    };
    match node.pool.command(Command::CreateVolume(spec)).await {
        Ok(Reply::Volume(status)) => Ok(status),
        Ok(_) => Err(Failure::failed("the pool made a volume and did not show it; this is a defect of Stele")),
        Err(error @ ArrayError::Full(_)) => {
            Err(Failure::new(Kind::Full, format!("the pool has no room for a new catalog beside the old: {error}"))
                .next("add drives with `stele pool add`; no catalog is written over before the new one is complete"))
        }
        Err(error) => Err(error.into()),
    }
}

async fn catalogs(node: &Node) -> Outcome<Vec<VolumeStatus>> {
    Ok(node.volumes().await?.into_iter().filter(|volume| is_marked(volume, CATALOG)).collect())
}

/// Deletes a catalog volume that is not, or no longer, the store's. The data volume with the
/// records stays protected.
async fn remove(node: &Node, volume: &VolumeStatus) -> Outcome<()> {
    let owner = volume.spec.owner.clone().unwrap_or_default();
    if !is_marked(volume, CATALOG) && !node.without.has(Mutation::Owners) {
        let what = format!("volume '{}' carries no catalog and is not deleted", volume.spec.name);
        return Err(Failure::new(Kind::Refused, what));
    }
    node.pool.command(Command::Protect { volume: volume.id, owner, retained: false }).await?;
    node.pool.command(Command::DeleteVolume { name: volume.spec.name.clone() }).await?;
    Ok(())
}
