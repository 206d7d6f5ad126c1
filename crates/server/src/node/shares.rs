//! The shares of this pool: opened when the server starts, made, changed and removed while it runs,
//! and offered over NFS.
//!
//! Failure model: a share that does not open (its cache volume is away, its records are damaged) is
//! named in an alarm and tried again; the others are served. What a share acknowledged is durable
//! in the catalog and on its cache volume.

mod places;
mod spare;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration as StdDuration, Instant};

use stele_archive::{Archive, ArchiveError, ShareObjects};
use stele_array::{Command, DigestUnit, Reply, VolumeSpec, VolumeStatus, WriteMode};
use stele_codes::Code;
use stele_file::FileError;
use stele_file::fuse::{LockTable, MountOptions, Mounted, mount_share};
use stele_file::locks::Locks;
use stele_file::nfs::server::Tls;
use stele_file::nfs::{AwaitedExport, Export, Network, Options, Rule, Server, Squash};
use stele_file::share::registry::{Registry, ShareRow, SquashRow};
use stele_file::share::{CACHE_MIN, Ground, ObjectView, RetentionRules, Root, Settings, Share, StuckFiles};
use stele_ground::{Bytes, Duration, counted_are, names_in_row};

use super::Node;
use super::standing::{Unserved, next_of};
use crate::failure::{Failure, Kind, Outcome};

/// The mark of a volume that is the cache of a share: no command deletes, exports or rolls back
/// such a volume.
pub const OWNER: &str = "share";
/// The name of such a volume is this, and the name of the share.
pub const CACHE_PREFIX: &str = "share-";
/// What SMB does not serve, as alarms name it: all of it.
pub const SMBD: &str = "smbd";
/// The strip of a cache of a code.
const STRIP: Bytes = Bytes(64 << 10);
/// That of a mirror. Its stripes are one strip, and each takes a destage of its own: a longer one
/// takes more dirty blocks along, and a write of 256 KiB is one stripe.
const MIRROR_STRIP: Bytes = Bytes(256 << 10);
const BLOCK: Bytes = Bytes(4096);

/// What is open.
#[derive(Default)]
pub struct Shares {
    open: RwLock<BTreeMap<String, Arc<Share>>>,
    server: OnceLock<Arc<Server<Share>>>,
    address: Mutex<Option<SocketAddr>>,
    /// Shares mounted on this machine by command, by directory.
    mounts: Mutex<BTreeMap<PathBuf, (String, Mounted)>>,
    /// The data directory of the server, at which no share is mounted.
    data: OnceLock<PathBuf>,
    /// Whether NFS clients may or must speak TLS.
    tls: OnceLock<Tls>,
    /// When those that are not open are tried.
    attempts: Mutex<Attempts>,
    /// NFS clients of shares that open with the archive's return are told to wait.
    announced: OnceLock<()>,
    /// Shares that did not open.
    pub unopened: Unserved,
    /// Shares of which files do not come into the archive.
    pub stuck: Unserved,
    /// What SMB does not serve.
    pub smb: Unserved,
    /// Making, changing, mounting and removing take turns.
    pub turn: tokio::sync::Mutex<()>,
    /// What smbd is to serve has changed.
    for_smb: tokio::sync::Notify,
}

/// Between two attempts to open shares: the first pause, and the longest.
const TRY_AGAIN: StdDuration = StdDuration::from_secs(2);
const TRY_AGAIN_MAX: StdDuration = StdDuration::from_secs(60);

/// Attempts to open shares that are not open.
#[derive(Default)]
struct Attempts {
    next: Option<Instant>,
    pause: StdDuration,
}

impl Attempts {
    /// Whether one is due. Then the next one comes after a longer pause.
    fn is_due(&mut self, now: Instant) -> bool {
        if self.next.is_some_and(|next| now < next) {
            return false;
        }
        self.pause = (self.pause * 2).clamp(TRY_AGAIN, TRY_AGAIN_MAX);
        self.next = Some(now + self.pause);
        true
    }
}

impl Shares {
    pub fn get(&self, name: &str) -> Option<Arc<Share>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Share>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn insert(&self, share: Arc<Share>) {
        let name = share.name().to_owned();
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(name, share);
        self.tell_smb();
    }

    fn take(&self, name: &str) -> Option<Arc<Share>> {
        let taken = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.tell_smb();
        taken
    }

    /// A share has come, has gone, or is offered otherwise.
    pub fn tell_smb(&self) {
        self.for_smb.notify_one();
    }

    /// Waits for such a change. One that came since the last wait counts.
    pub async fn changed_for_smb(&self) {
        self.for_smb.notified().await;
    }

    /// The NFS server of this node. `instance` tells this start from every other one.
    pub fn server(&self, archive: &Archive, start: u32, instance: impl FnOnce() -> u32) -> Arc<Server<Share>> {
        let make = || {
            let secret = *archive.gateway_secret();
            // Odd while the server runs, and larger with each start, as hosts with locks are told.
            let options = Options { tls: self.tls(), instance: instance(), ..Options::default() };
            Arc::new(Server::new(secret, start | 1, Arc::new(Locks::default()), options))
        };
        Arc::clone(self.server.get_or_init(make))
    }

    /// The NFS server, once a share or a listener needed it.
    pub fn running(&self) -> Option<&Arc<Server<Share>>> {
        self.server.get()
    }

    /// The table in which NFS clients lock, for a mount of a share.
    pub fn lock_table(&self, share: &Share) -> Option<LockTable> {
        let server = self.running()?;
        Some(LockTable { locks: Arc::clone(server.locks()), share: share.number() })
    }

    /// Before the shares are opened.
    pub fn set_tls(&self, tls: Tls) {
        let _ = self.tls.set(tls);
    }

    pub fn tls(&self) -> Tls {
        self.tls.get().copied().unwrap_or(Tls::Off)
    }

    /// Before shares are mounted.
    pub fn set_data_directory(&self, directory: &Path) {
        let _ = self.data.set(directory.to_owned());
    }

    /// Mounts a share at a directory of this machine, until it is unmounted or the server stops.
    pub fn mount(&self, share: &Arc<Share>, directory: &Path, read_only: bool) -> Outcome<()> {
        let options = MountOptions { name: share.name().to_owned(), read_only, ..MountOptions::default() };
        let directory = &places::real(directory);
        let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        if mounts.contains_key(directory) {
            return Err(Failure::new(Kind::Exists, format!("a share is mounted at {} already", directory.display())));
        }
        let (locks, runtime) = (self.lock_table(share), tokio::runtime::Handle::current());
        places::detach(directory)?;
        places::check(directory, self.data.get().map(PathBuf::as_path))?;
        let mounted = mount_share(Arc::clone(share), directory, &options, locks, runtime).map_err(|error| {
            Failure::failed(error.to_string()).next("only a server that runs as root mounts shares")
        })?;
        mounts.insert(directory.to_owned(), (share.name().to_owned(), mounted));
        Ok(())
    }

    /// Unmounts; refused while a process uses the directory. Also what an earlier server left
    /// mounted there when it died.
    pub fn unmount(&self, directory: &Path) -> Outcome<()> {
        let directory = &places::real(directory);
        let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, mounted)) = mounts.get_mut(directory) else {
            if places::detach(directory)? {
                return Ok(());
            }
            return Err(Failure::missing(format!("no share is mounted at {}", directory.display())));
        };
        mounted.unmount().map_err(|error| {
            Failure::new(Kind::Busy, error.to_string()).next("end the processes that use the directory")
        })?;
        mounts.remove(directory);
        Ok(())
    }

    /// Whether a share is mounted by command.
    pub fn is_mounted(&self, name: &str) -> bool {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner).values().any(|(mounted, _)| mounted == name)
    }

    /// Unmounts everything, at a stop.
    pub fn unmount_all(&self) {
        std::mem::take(&mut *self.mounts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Why SMB does not serve a share. None: it serves it, or is about to.
    pub fn smb_refusal(&self, name: &str) -> Option<String> {
        let subject = share_subject(name);
        let refused = self.smb.list().into_iter().find(|(other, _)| *other == subject || other == SMBD);
        refused.map(|(_, why)| why)
    }

    pub fn note_address(&self, address: SocketAddr) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }

    /// Where NFS is served.
    pub fn address(&self) -> Option<SocketAddr> {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One share that SMB does not serve, as alarms name it.
pub fn share_subject(name: &str) -> String {
    format!("share {name}")
}

/// The open shares of a node, for its S3 frontend. A request that is left at a stop keeps no node
/// open.
pub struct S3View(pub Weak<Node>);

impl stele_archive::Shares for S3View {
    fn objects(&self, bucket: &str) -> Option<Arc<dyn ShareObjects>> {
        let share = self.0.upgrade()?.shares.get(bucket)?;
        Some(Arc::new(ObjectView::new(share)))
    }
}

/// What an operator reads of files that do not come into the archive.
fn told(name: &str, stuck: &StuckFiles) -> String {
    let StuckFiles { path, refusal, idle, files } = stuck;
    match refusal {
        Some(reason) if *files == 1 => format!("the archive refuses `{name}/{path}`: {reason}"),
        Some(reason) => format!("the archive refuses `{name}/{path}` and {} more files: {reason}", files - 1),
        None => {
            let hours = idle.0 / 3_600_000_000_000;
            format!("`{name}/{path}` was not changed for {hours} hours or more, and is not archived")
        }
    }
}

/// A share that its clients do not reach while it is removed. Where the removal fails, or its
/// caller goes away, the same share is offered again. A second one opened over its tree and its
/// cache volume would hand out slots that the first, which mounts and requests under way still
/// hold, has given to other files.
pub struct Withdrawn<'a> {
    node: &'a Node,
    row: &'a ShareRow,
    share: Option<Arc<Share>>,
}

impl Withdrawn<'_> {
    /// The share is gone.
    pub fn for_good(mut self) {
        self.share = None;
    }
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        let Some(share) = self.share.take() else { return };
        share.open_again();
        if let Err(failure) = self.node.offer(&share, self.row) {
            let message = format!("the share '{}' is not served over NFS: {}", share.name(), failure.error);
            let next = if failure.next.is_empty() { next_of("share") } else { &failure.next };
            self.node.alarms.warn("share", &message, next);
        }
        self.node.shares.insert(share);
    }
}

impl Node {
    pub fn registry(&self) -> Outcome<Registry> {
        Ok(Registry::new(self.archive()?.records()))
    }

    /// Opens every share that is not open, once the archive takes changes. An alarm names those
    /// that do not open. They are tried again, after pauses that grow to a minute.
    pub async fn open_shares(&self) -> Outcome<()> {
        self.open_shares_at(Instant::now()).await
    }

    async fn open_shares_at(&self, now: Instant) -> Outcome<()> {
        let Ok(archive) = self.archive() else { return Ok(()) };
        // One that is being made or removed is not opened beside that: a second share over its tree
        // and its cache volume would hand out the same slots.
        let Ok(_turn) = self.shares.turn.try_lock() else { return Ok(()) };
        let is_due = || self.shares.attempts.lock().unwrap_or_else(PoisonError::into_inner).is_due(now);
        if archive.is_read_only() {
            // The registry does not change meanwhile. One that cannot be read names no shares.
            if self.shares.announced.get().is_none()
                && let Ok(rows) = self.registry()?.list()
            {
                self.announce_shares(&rows)?;
                let _ = self.shares.announced.set(());
            }
            return Ok(());
        }
        if !is_due() {
            return Ok(());
        }
        let rows = self.registry()?.list().map_err(failed)?;
        self.announce_shares(&rows)?;
        let mut opened = Vec::new();
        for (name, row) in rows {
            if self.shares.get(&name).is_some() {
                continue;
            }
            // Also before it is offered: no client locks first what another one had.
            self.give_grace(row.number);
            match self.open_share(&name, &row).await {
                Ok(_) => {
                    self.give_grace(row.number);
                    opened.push(name);
                }
                Err(failure) => {
                    let message = format!("the share '{name}' is not served: {}", failure.error);
                    let next = if failure.next.is_empty() { next_of("share") } else { &failure.next };
                    if self.shares.unopened.note_reason(&name, &message, next) {
                        self.alarms.warn("share", &message, next);
                    }
                }
            }
        }
        if !opened.is_empty() {
            tracing::info!("{}", open_now(&opened));
        }
        Ok(())
    }

    /// Lets NFS clients that have files of shares which are not open wait for them.
    fn announce_shares(&self, rows: &[(String, ShareRow)]) -> Outcome<()> {
        let closed = rows.iter().filter(|(name, _)| self.shares.get(name).is_none());
        // A share with unreadable rules does not open, and admits no client.
        let own = self.own_addresses();
        let expected = |name: &str, row: &ShareRow| AwaitedExport {
            path: format!("/{name}"),
            rules: rules(row, &own).unwrap_or_default(),
        };
        let awaited: BTreeMap<u32, AwaitedExport> =
            closed.map(|(name, row)| (row.number, expected(name, row))).collect();
        let server = match awaited.is_empty() {
            true => self.shares.running().cloned(),
            false => Some(self.shares.server(self.archive()?, super::wall_clock() as u32, || self.random_number())),
        };
        if let Some(server) = server {
            server.expect(awaited);
        }
        Ok(())
    }

    /// Clients had the share before it opened, and claim their locks again.
    fn give_grace(&self, number: u32) {
        if let Some(server) = self.shares.running() {
            server.begin_grace_of(number);
        }
    }

    /// Keeps the alarm about files that the archive does not take in step with the open shares.
    pub fn note_stuck(&self) {
        let open = self.shares.all();
        for (name, _) in self.shares.stuck.list() {
            if !open.iter().any(|share| share.name() == name) {
                self.shares.stuck.end(&name);
            }
        }
        for share in open {
            match share.stuck() {
                Ok(Some(stuck)) => {
                    let message = told(share.name(), &stuck);
                    if self.shares.stuck.note(share.name(), &message) {
                        self.note_alarm("share-archiving", &message);
                    }
                }
                Ok(None) => self.shares.stuck.end(share.name()),
                // It is being removed, and is empty.
                Err(_) => {}
            }
        }
    }

    /// Opens a share and offers it.
    pub async fn open_share(&self, name: &str, row: &ShareRow) -> Outcome<Arc<Share>> {
        let volumes = self.volumes().await?;
        let volume = volumes.iter().find(|volume| volume.spec.name == row.volume && is_cache(volume));
        let Some(volume) = volume else {
            return Err(Failure::new(Kind::Damaged, format!("its cache volume '{}' is not there", row.volume))
                .next("`stele volume list` shows the volumes and their owners"));
        };
        let archive = self.archive()?.clone();
        if let Err(error) = archive.bucket(&self.own_caller(), name).await {
            let failure = match error {
                ArchiveError::NoSuchBucket(_) => Failure::missing("its bucket is gone: a removal was cut short")
                    .next(format!("`stele share remove {name}` brings the removal to its end")),
                error => error.into(),
            };
            return Err(failure);
        }
        let settings = settings(row);
        let ground = Ground {
            archive,
            cache: self.pool.volume_of(volume),
            cache_unit: spare::unit(volume),
            surroundings: Arc::clone(&self.surroundings),
        };
        let root = Root { owner: row.owner, mode: row.mode };
        let share = Share::open(ground, name, row.number, settings, root).await.map_err(failed)?;
        self.offer(&share, row)?;
        self.shares.insert(Arc::clone(&share));
        self.shares.unopened.end(name);
        Ok(share)
    }

    /// Lets NFS clients mount the share by its present rules.
    pub fn offer(&self, share: &Arc<Share>, row: &ShareRow) -> Outcome<()> {
        let export = Export {
            path: format!("/{}", share.name()),
            share: row.number,
            files: Arc::clone(share),
            rules: rules(row, &self.own_addresses())?,
        };
        let server = self.shares.server(self.archive()?, super::wall_clock() as u32, || self.random_number());
        server.replace(export).map_err(|error| Failure::failed(error.to_string()))
    }

    /// Takes a closed share away from clients, for as long as the answer lives, or for good.
    pub fn withdraw<'a>(&'a self, name: &str, row: &'a ShareRow) -> Withdrawn<'a> {
        if let Ok(archive) = self.archive() {
            self.shares.server(archive, super::wall_clock() as u32, || self.random_number()).remove(row.number);
        }
        Withdrawn { node: self, row, share: self.shares.take(name) }
    }

    /// A volume for the cache of a share.
    pub async fn make_cache(&self, name: String, code: Code, size: Bytes) -> Outcome<VolumeStatus> {
        if size.0 < CACHE_MIN {
            let least = Bytes(CACHE_MIN);
            return Err(Failure::usage(format!("a cache of {size} is too small; a share needs {least} at least")));
        }
        let Reply::Status(status) = self.pool.command(Command::Status).await? else {
            return Err(Failure::failed("the pool answered a status with something else; this is a defect of Stele"));
        };
        let raw = status.raw;
        let taken = spare::on_drives(size, code);
        if taken > u128::from(raw.0) {
            let taken = Bytes(u64::try_from(taken).unwrap_or(u64::MAX));
            return Err(Failure::usage(format!(
                "a cache of {size} in {code} takes {taken} on drives, and the pool has {raw}"
            ))
            .next("give a smaller --cache: it holds what clients write faster than the archive takes it"));
        }
        let spec = VolumeSpec {
            name,
            code,
            size,
            strip: if code.is_mirror() { MIRROR_STRIP } else { STRIP },
            block: BLOCK,
            digest: DigestUnit::Block,
            mode: WriteMode::WriteBack,
            fully_allocated: false,
            spread: false,
            owner: Some(OWNER.to_owned()),
        };
        match self.pool.command(Command::CreateVolume(spec)).await? {
            Reply::Volume(status) => Ok(status),
            _ => Err(Failure::failed("the pool made a volume and did not show it; this is a defect of Stele")),
        }
    }

    /// Whether the pool has a volume that is the cache of a share.
    pub async fn cache_volume(&self, name: &str) -> Outcome<Option<VolumeStatus>> {
        Ok(self.volumes().await?.into_iter().find(|volume| volume.spec.name == name && is_cache(volume)))
    }

    /// The addresses at which clients of files reach this machine, where the configuration names
    /// them. A client with such an address is this machine.
    pub fn own_addresses(&self) -> Vec<IpAddr> {
        let listens = [self.config.nfs.listen, self.config.smb.listen];
        let named = listens.into_iter().flatten().map(|address| address.ip().to_canonical());
        let mut own: Vec<IpAddr> = named.filter(|ip| !ip.is_loopback() && !ip.is_unspecified()).collect();
        own.dedup();
        own
    }

    /// A number for a new share.
    pub fn random_number(&self) -> u32 {
        let mut bytes = [0; 4];
        self.surroundings.entropy(&mut bytes);
        u32::from_be_bytes(bytes).max(1)
    }
}

/// One line of the log, of one share or of a thousand.
fn open_now(names: &[String]) -> String {
    match names {
        [name] => format!("the share '{name}' is open"),
        names => {
            let all = counted_are(names.len() as u64, "share");
            format!("{all} open: {}", names_in_row(names, "stele share list"))
        }
    }
}

fn is_cache(volume: &VolumeStatus) -> bool {
    volume.spec.owner.as_deref() == Some(OWNER) && !volume.snapshot
}

/// How a share behaves, by its row. What its bucket says of retention, the share asks at each
/// commit.
pub fn settings(row: &ShareRow) -> Settings {
    Settings {
        archive_after: Duration::from_secs(u64::from(row.archive_after)),
        retention: RetentionRules {
            days_min: row.retention_min,
            days_max: row.retention_max,
            commit_after: row.commit_after.map(|seconds| Duration::from_secs(u64::from(seconds))),
        },
        removed_versions: row.removed.unwrap_or_default(),
        caching: row.caching.unwrap_or_default(),
    }
}

/// Who may mount a share, and as whom. `own`: see [`networks`].
pub fn rules(row: &ShareRow, own: &[IpAddr]) -> Outcome<Vec<Rule>> {
    let squash = match row.squash {
        SquashRow::Root => Squash::Root,
        SquashRow::All => Squash::All,
        SquashRow::None => Squash::None,
    };
    let rule = |network| Rule { read_only: row.read_only, squash, ..Rule::new(network) };
    Ok(networks(row, own)?.into_iter().map(rule).collect())
}

/// The networks of clients of a share. Where none is named, only this machine. `own`: its addresses
/// beside those of loopback.
pub fn networks(row: &ShareRow, own: &[IpAddr]) -> Outcome<Vec<Network>> {
    let networks: Result<Vec<Network>, _> = match row.networks.is_empty() {
        true => {
            let loopback = [format!("{}/8", Ipv4Addr::new(127, 0, 0, 0)), Ipv6Addr::LOCALHOST.to_string()];
            let written = loopback.into_iter().chain(own.iter().map(IpAddr::to_string));
            written.map(|network| network.parse()).collect::<Result<_, _>>()
        }
        false => row.networks.iter().map(|network| network.parse()).collect::<Result<_, _>>(),
    };
    networks.map_err(|error: stele_file::nfs::ExportError| {
        Failure::usage(error.to_string())
            .next("write each network as 10.1.0.0/16 or fd00::/8, with `--allow` of `stele share create` or `stele share set`")
    })
}

/// A failure of the gateway as an operator reads it.
pub fn failed(error: FileError) -> Failure {
    let kind = match &error {
        FileError::NotFound | FileError::Stale => Kind::Missing,
        FileError::Exists | FileError::NotEmpty => Kind::Exists,
        FileError::ReadOnly(_) | FileError::Refused(_) | FileError::NotOwner | FileError::Denied => Kind::Refused,
        FileError::NoSpace | FileError::OverQuota => Kind::Full,
        FileError::Damaged(_) => Kind::Damaged,
        FileError::Retry(_) => Kind::Busy,
        FileError::Invalid(_) | FileError::NotDirectory | FileError::IsDirectory | FileError::NameTooLong => {
            Kind::Usage
        }
        _ => Kind::Failed,
    };
    Failure::new(kind, error.to_string())
}

#[cfg(test)]
mod tests;
