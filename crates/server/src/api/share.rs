//! Calls about shares.

mod files;
mod found;
mod mounting;
mod placing;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use stele_archive::{ArchiveError, BucketInfo, NewBucket, check_bucket_name};
use stele_array::Command;
use stele_file::nfs::server::Tls;
use stele_file::nfs::{ExportError, Network};
use stele_file::samba;
use stele_file::share::registry::{ShareRow, SquashRow};
use stele_file::share::{Caching, RemovedVersions, Share};
use stele_ground::{Bytes, counted};

pub use files::{ArchiveFile, ExplainFile, FileView, Ls, Pin, why};
pub use mounting::{Mount, Unmount};

use self::found::row_of;
use self::placing::Placed;
use super::archive::parse_retention;
use super::{Actor, Call, Done};
use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;
use crate::node::shares::{CACHE_PREFIX, failed, networks, rules, settings};

/// The longest retention that a share may name, in days: as long as a bucket's default.
const RETENTION_DAYS_MAX: u64 = 36_500;

/// A share as an operator sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShareView {
    pub name: String,
    /// What clients mount, where NFS is served, and the port for both NFS and MOUNT.
    pub nfs: Option<String>,
    pub nfs_port: Option<u16>,
    /// `off`, `offered`, `required` or `mutual`: whether NFS clients speak TLS.
    #[serde(default)]
    pub nfs_tls: Option<String>,
    /// Where SMB clients find it, where SMB is served; and why SMB does not serve it.
    #[serde(default)]
    pub smb: Option<String>,
    #[serde(default)]
    pub smb_refusal: Option<String>,
    /// The volume of its cache.
    pub cache_volume: String,
    pub archive_after_seconds: u32,
    /// How long a file is left alone before it is committed by itself; none where only its mode
    /// commits it.
    pub commit_after_seconds: Option<u32>,
    /// Removing every write permission commits a file.
    pub commits: bool,
    /// `MODE:PERIOD` of committed files whose access time names no date.
    pub default_retention: Option<String>,
    pub retention_min_days: Option<u64>,
    pub retention_max_days: Option<u64>,
    /// Networks that may mount it.
    pub networks: Vec<String>,
    pub read_only: bool,
    /// `root`, `all` or `none`: which users count as the anonymous user.
    pub squash: String,
    /// `keep` or `delete`: what becomes of the versions of removed files, where the bucket keeps
    /// versions.
    #[serde(default)]
    pub removed_versions: String,
    /// `on` or `off`: whether archived content stays in the cache volume.
    #[serde(default)]
    pub caching: String,
    /// None where the share is not open.
    pub status: Option<ShareStatusView>,
}

/// How a share is now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShareStatusView {
    /// Files whose content is not archived.
    pub open_files: u64,
    /// How long the open file that was left alone longest has been left alone.
    pub oldest_seconds: Option<u64>,
    /// Removed files whose content is being cleared away.
    pub removing_files: u64,
    pub cache_used_bytes: u64,
    pub cache_size_bytes: u64,
    /// Since the server started.
    pub archived_files: u64,
    pub archived_bytes: u64,
    /// Bytes that were read since the server started: from the cache, and from the archive into the
    /// cache.
    pub cache_hit_bytes: u64,
    pub cache_missed_bytes: u64,
    /// Files whose content stays in the cache.
    pub pinned_files: u64,
    /// Why the archive took no file lately, and the path of the file.
    pub refusal: Option<String>,
    #[serde(default)]
    pub refused_path: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateShare {
    pub name: String,
    pub cache: u64,
    pub cache_code: String,
    pub lock: bool,
    pub retention: Option<String>,
    pub options: ShareOptions,
    pub owner: (u32, u32),
    pub mode: u32,
}

/// What can be changed later.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ShareOptions {
    pub archive_after: Option<u32>,
    /// 0: files are not committed by themselves.
    #[serde(default)]
    pub commit_after: Option<u32>,
    /// In days. 0: none.
    pub retention_min: Option<u64>,
    pub retention_max: Option<u64>,
    /// Replaces all.
    pub networks: Option<Vec<String>>,
    pub read_only: Option<bool>,
    pub squash: Option<String>,
    #[serde(default)]
    pub removed_versions: Option<String>,
    #[serde(default)]
    pub caching: Option<String>,
}

impl ShareOptions {
    fn apply(&self, row: &mut ShareRow) -> Outcome<()> {
        if let Some(seconds) = self.archive_after {
            row.archive_after = seconds;
        }
        if let Some(seconds) = self.commit_after {
            row.commit_after = Some(seconds).filter(|seconds| *seconds > 0);
        }
        if let Some(days) = self.retention_min.max(self.retention_max).filter(|days| *days > RETENTION_DAYS_MAX) {
            return Err(Failure::usage(format!("a retention of {days} days is above {RETENTION_DAYS_MAX}")));
        }
        let bound = |new: Option<u64>, former| new.map_or(former, |days| Some(days).filter(|days| *days > 0));
        row.retention_min = bound(self.retention_min, row.retention_min);
        row.retention_max = bound(self.retention_max, row.retention_max);
        if let (Some(least), Some(most)) = (row.retention_min, row.retention_max)
            && least > most
        {
            return Err(Failure::usage(format!(
                "the shortest retention of {least} days is above the longest of {most}"
            )));
        }
        if let Some(networks) = &self.networks {
            let mut kept: Vec<Network> = Vec::new();
            for network in networks {
                let network: Network =
                    network.parse().map_err(|error: ExportError| Failure::usage(error.to_string()))?;
                if !kept.iter().any(|other| other.is_same(&network)) {
                    kept.push(network);
                }
            }
            row.networks = kept.iter().map(ToString::to_string).collect();
        }
        row.read_only = self.read_only.unwrap_or(row.read_only);
        row.squash = match self.squash.as_deref() {
            None => row.squash,
            Some("root") => SquashRow::Root,
            Some("all") => SquashRow::All,
            Some("none") => SquashRow::None,
            Some(other) => return Err(Failure::usage(format!("'{other}' is none of root, all and none"))),
        };
        row.removed = match self.removed_versions.as_deref() {
            None => row.removed,
            Some("keep") => Some(RemovedVersions::Keep),
            Some("delete") => Some(RemovedVersions::Delete),
            Some(other) => return Err(Failure::usage(format!("'{other}' is neither keep nor delete"))),
        };
        row.caching = match self.caching.as_deref() {
            None => row.caching,
            Some("on") => Some(Caching::On),
            Some("off") => Some(Caching::Off),
            Some(other) => return Err(Failure::usage(format!("'{other}' is neither on nor off"))),
        };
        rules(row, &[]).map(drop)
    }
}

/// Refuses a name under which SMB could never serve the share.
fn check_share_name(name: &str) -> Outcome<()> {
    samba::share_name(name).map(drop).map_err(|error| {
        Failure::usage(format!("a share cannot be called '{name}': {}", error.why)).next("choose another name")
    })
}

/// Refuses settings of commits where no file can be committed. `before`: the share's former
/// settings; bounds of an earlier version, which did not refuse them, may stay.
fn can_commit(before: Option<&ShareRow>, row: &ShareRow, bucket: &BucketInfo) -> Outcome<()> {
    let bounds = |row: &ShareRow| (row.retention_min, row.retention_max);
    let option = match () {
        () if bucket.object_lock.is_some() => return Ok(()),
        () if row.commit_after.is_some() => "--commit-after",
        () if bounds(row) == (None, None) => return Ok(()),
        () if bounds(row) != before.map_or((None, None), bounds) => "--retention-min and --retention-max",
        () => return Ok(()),
    };
    Err(Failure::usage(format!("'{}' has no Object Lock; none of its files can be committed", bucket.name))
        .next(format!("leave out {option}, or make another share with --lock")))
}

fn squash_word(squash: SquashRow) -> &'static str {
    match squash {
        SquashRow::Root => "root",
        SquashRow::All => "all",
        SquashRow::None => "none",
    }
}

fn removed_word(row: &ShareRow) -> &'static str {
    match row.removed.unwrap_or_default() {
        RemovedVersions::Keep => "keep",
        RemovedVersions::Delete => "delete",
    }
}

fn caching_word(row: &ShareRow) -> &'static str {
    match row.caching.unwrap_or_default() {
        Caching::On => "on",
        Caching::Off => "off",
    }
}

/// What becomes of the versions of removed files where no one said it. Files of a share with Object
/// Lock are removed after their retention, and their space is to come back. The versions of a
/// bucket that was a share before are from a tree that was lost with the catalog: they stay until
/// someone says otherwise.
fn removed_by_default(bucket: &BucketInfo, was_share: bool) -> RemovedVersions {
    match bucket.object_lock.is_some() && !was_share {
        true => RemovedVersions::Delete,
        false => RemovedVersions::Keep,
    }
}

async fn view(node: &Node, name: &str, row: &ShareRow) -> Outcome<ShareView> {
    let lock = match node.archive()?.bucket(&node.own_caller(), name).await {
        Ok(bucket) => bucket.object_lock,
        // A removal that was cut short has left the share without it.
        Err(ArchiveError::NoSuchBucket(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let open = node.shares.get(name);
    let status = open.as_ref().map(|share| status(share)).transpose()?;
    let smb = node.config.smb.listen.filter(|_| open.is_some());
    let smb_refusal = smb.and_then(|_| node.shares.smb_refusal(name));
    Ok(ShareView {
        name: name.to_owned(),
        nfs_port: node.shares.address().filter(|_| open.is_some()).map(|address| address.port()),
        nfs: node.shares.address().filter(|_| open.is_some()).map(|address| mounted_from(address.ip(), name)),
        nfs_tls: node.shares.address().filter(|_| open.is_some()).map(|_| tls_word(node).to_owned()),
        smb: smb.filter(|_| smb_refusal.is_none()).map(|address| address.to_string()),
        smb_refusal,
        cache_volume: row.volume.clone(),
        archive_after_seconds: row.archive_after,
        commit_after_seconds: row.commit_after,
        commits: lock.is_some(),
        default_retention: lock
            .and_then(|lock| lock.default)
            .map(|default| format!("{}:{}d", default.mode.to_string().to_lowercase(), default.period.days())),
        retention_min_days: row.retention_min,
        retention_max_days: row.retention_max,
        networks: match row.networks.is_empty() {
            true => networks(row, &node.own_addresses())?.iter().map(ToString::to_string).collect(),
            false => row.networks.clone(),
        },
        read_only: row.read_only,
        squash: squash_word(row.squash).to_owned(),
        removed_versions: removed_word(row).to_owned(),
        caching: caching_word(row).to_owned(),
        status,
    })
}

fn tls_word(node: &Node) -> &'static str {
    match node.shares.tls() {
        Tls::Off => "off",
        Tls::Offered => "offered",
        Tls::Required if node.config.nfs.client_authority.is_some() => "mutual",
        Tls::Required => "required",
    }
}

/// What clients mount.
fn mounted_from(host: IpAddr, name: &str) -> String {
    match host {
        IpAddr::V4(host) => format!("{host}:/{name}"),
        // Otherwise mount(8) would look for the path behind the first colon.
        IpAddr::V6(host) => format!("[{host}]:/{name}"),
    }
}

fn status(share: &Share) -> Outcome<ShareStatusView> {
    let status = share.status().map_err(failed)?;
    Ok(ShareStatusView {
        open_files: status.open,
        oldest_seconds: status.oldest.map(|oldest| oldest.0 / 1_000_000_000),
        removing_files: status.removing,
        cache_used_bytes: status.cache_used,
        cache_size_bytes: status.cache_size,
        archived_files: status.archived_files,
        archived_bytes: status.archived_bytes,
        cache_hit_bytes: status.hit_bytes,
        cache_missed_bytes: status.missed_bytes,
        pinned_files: status.pinned,
        refusal: status.refusal,
        refused_path: status.refused_path,
    })
}

impl Call for CreateShare {
    const NAME: &'static str = "share/create";
    type Answer = ShareView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ShareView> {
        node.accountable()?;
        let _turn = node.shares.turn.lock().await;
        let archive = node.archive()?;
        if node.registry()?.get(&self.name).map_err(failed)?.is_some() {
            return Err(Failure::new(Kind::Exists, format!("a share is called '{}' already", self.name)));
        }
        let code = self
            .cache_code
            .parse()
            .map_err(|error: stele_codes::code::NoSuchCode| Failure::usage(error.to_string()))?;
        let mut row = ShareRow {
            number: node.random_number(),
            volume: format!("{CACHE_PREFIX}{}", self.name),
            owner: self.owner,
            mode: self.mode,
            archive_after: 10,
            retention_min: None,
            retention_max: None,
            networks: Vec::new(),
            read_only: false,
            squash: SquashRow::Root,
            commit_after: None,
            removed: None,
            caching: None,
        };
        self.options.apply(&mut row)?;
        if self.mode > 0o7777 {
            return Err(Failure::usage(format!("a mode is at most 7777, not {:o}", self.mode)));
        }
        let default = self.retention.as_deref().map(parse_retention).transpose()?;
        let caller = actor.caller();
        // A bucket that is there and empty becomes a share with the settings that it has.
        let found = archive.bucket(&caller, &self.name).await;
        let was_share = found.as_ref().is_ok_and(|bucket| bucket.share);
        match found {
            Ok(_) if self.lock || default.is_some() => {
                let message = format!("bucket '{}' is there already", self.name);
                return Err(Failure::new(Kind::Exists, message)
                    .next("leave out --lock and --retention; the share takes the bucket's own"));
            }
            Ok(_) => {}
            Err(ArchiveError::NoSuchBucket(_)) => check_bucket_name(&self.name)?,
            Err(error) => return Err(error.into()),
        }
        // One that was a share before keeps its name: its files are found by it.
        if !was_share {
            check_share_name(&self.name)?;
        }
        let new = NewBucket {
            object_lock: self.lock || default.is_some(),
            default_retention: default,
            region: node.config.s3.region.clone(),
            ..NewBucket::default()
        };
        let bucket = Placed { name: &self.name, is_there: found.is_ok(), was_share, new };
        // First, since most that can be wrong is wrong with it: a bucket that became a share is no
        // other bucket any more.
        let is_made = node.cache_volume(&row.volume).await?.is_none();
        if is_made {
            let act = node.make_cache(row.volume.clone(), code, Bytes(self.cache));
            node.audited(actor, "volume/create", &row.volume, act).await??;
        }
        if let Err(failure) = bucket.become_share(node, &caller, &mut row).await {
            if is_made {
                let act = node.pool.command(Command::DeleteVolume { name: row.volume.clone() });
                if let Ok(Err(error)) = node.audited(actor, "volume/delete", &row.volume, act).await {
                    tracing::warn!(%error, volume = %row.volume, "the cache of a share that was not made is left");
                }
            }
            return Err(failure);
        }
        node.open_share(&self.name, &row).await?;
        view(node, &self.name, &row).await
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListShares {}

impl Call for ListShares {
    const NAME: &'static str = "share/list";
    const READS: bool = true;
    type Answer = Vec<ShareView>;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<Vec<ShareView>> {
        let mut views = Vec::new();
        for (name, row) in node.registry()?.list().map_err(failed)? {
            views.push(view(node, &name, &row).await?);
        }
        Ok(views)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowShare {
    pub name: String,
}

impl Call for ShowShare {
    const NAME: &'static str = "share/show";
    const READS: bool = true;
    type Answer = ShareView;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<ShareView> {
        view(node, &self.name, &row_of(node, &self.name)?).await
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetShare {
    pub name: String,
    pub options: ShareOptions,
}

impl Call for SetShare {
    const NAME: &'static str = "share/set";
    type Answer = ShareView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ShareView> {
        node.accountable()?;
        let _turn = node.shares.turn.lock().await;
        let before = row_of(node, &self.name)?;
        node.archive()?.writable()?;
        let mut after = before.clone();
        self.options.apply(&mut after)?;
        can_commit(Some(&before), &after, &node.archive()?.bucket(&node.own_caller(), &self.name).await?)?;
        let place = format!("{}: {}", self.name, described(&after));
        // In force before the outcome is recorded: a failure of that record leaves no restriction
        // that is only shown.
        node.audited(actor, SetShare::NAME, &place, put_in_force(node, &self.name, &before, &after)).await??;
        view(node, &self.name, &after).await
    }
}

/// Changes the row of a share, and the open share with it.
async fn put_in_force(node: &Node, name: &str, before: &ShareRow, after: &ShareRow) -> Outcome<()> {
    node.registry()?.change(name, before, after).await.map_err(failed)?;
    if let Some(share) = node.shares.get(name) {
        share.set_settings(settings(after));
        node.offer(&share, after)?;
        node.shares.tell_smb();
    }
    Ok(())
}

/// For the audit log.
fn described(row: &ShareRow) -> String {
    let days = |days: Option<u64>| days.map_or_else(|| "none".to_owned(), |days| counted(days, "day"));
    let networks = if row.networks.is_empty() { "this machine".to_owned() } else { row.networks.join(", ") };
    format!(
        "archive after {} s, commit {}, shortest retention {}, longest {}, for {networks}, {}, squash {}, versions of removed files: {}, caching {}",
        row.archive_after,
        row.commit_after.map_or_else(|| "by mode".to_owned(), |seconds| format!("after {seconds} s")),
        days(row.retention_min),
        days(row.retention_max),
        if row.read_only { "read-only" } else { "read-write" },
        squash_word(row.squash),
        removed_word(row),
        caching_word(row)
    )
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveShare {
    pub name: String,
}

impl Call for RemoveShare {
    const NAME: &'static str = "share/remove";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable()?;
        let _turn = node.shares.turn.lock().await;
        let (archive, row) = (node.archive()?, row_of(node, &self.name)?);
        archive.writable()?;
        if node.shares.is_mounted(&self.name) {
            return Err(Failure::new(Kind::Refused, format!("the share '{}' is mounted on this machine", self.name))
                .next("`stele share unmount` unmounts it"));
        }
        let present = archive.bucket(&node.own_caller(), &self.name).await.is_ok();
        let act = async {
            // Clients keep the share until it is found empty. It is closed in the same step, so
            // that it stays empty.
            closed(node.shares.get(&self.name).as_deref(), present, &self.name).await?;
            let withdrawn = node.withdraw(&self.name, &row);
            // Refused while the bucket holds a version: retained ones stay, and so does the share.
            match archive.delete_bucket(&stele_archive::Caller::gateway("removing the share"), &self.name).await {
                Ok(()) | Err(ArchiveError::NoSuchBucket(_)) => {}
                Err(error @ ArchiveError::BucketNotEmpty(_)) => {
                    return Err(Failure::from(error).next(until_empty(&row)));
                }
                Err(error) => return Err(Failure::from(error)),
            }
            node.registry()?.remove(&self.name, &row).await.map_err(failed)?;
            withdrawn.for_good();
            node.shares.unopened.end(&self.name);
            if node.cache_volume(&row.volume).await?.is_some() {
                node.pool.command(Command::DeleteVolume { name: row.volume.clone() }).await?;
            }
            Ok(())
        };
        node.audited(actor, RemoveShare::NAME, &self.name, act).await??;
        Ok(Done {})
    }
}

/// What to do about versions in the bucket of a share without files.
fn until_empty(row: &ShareRow) -> &'static str {
    match row.removed.unwrap_or_default() {
        RemovedVersions::Keep => {
            "the bucket has versions of removed files; `stele share set NAME --removed-versions delete` deletes those \
             that nothing keeps"
        }
        RemovedVersions::Delete => {
            "the bucket has versions of removed files that retention, a hold or a matter keeps; try again after that"
        }
    }
}

/// Closes the share, or refuses because something is in it. One whose bucket is gone was found
/// empty by a removal that was cut short.
async fn closed(share: Option<&Share>, present: bool, name: &str) -> Outcome<()> {
    let Some(share) = share else {
        return match present {
            false => Ok(()),
            true => Err(Failure::new(Kind::Refused, format!("the share '{name}' is not open, so it may hold files"))
                .next("`stele pool status` shows the alarm that says why")),
        };
    };
    let refusal = || {
        Failure::new(Kind::Refused, format!("the share '{name}' is not empty"))
            .next("remove its files through a mount first; committed files stay until their retention ends")
    };
    if !share.has_no_names().map_err(failed)? {
        return Err(refusal());
    }
    // What was removed just now is cleared away first.
    share.clear_all().await.map_err(failed)?;
    match share.close_if_empty().map_err(failed)? {
        true => Ok(()),
        false => Err(refusal()),
    }
}

#[cfg(test)]
mod tests;
