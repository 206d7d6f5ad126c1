//! A node: the pool, and on it the catalog and the archive, opened together.
//!
//! The server keeps one node open. Without it, a command opens one, with the archive read-only.

mod again;
pub mod alarms;
pub mod beneath;
pub mod block;
mod certificates;
pub mod create;
pub mod data_directory;
pub mod drive_paths;
pub mod first_start;
pub mod growth;
mod guard;
pub mod heads;
pub mod history;
pub mod identify;
pub mod master;
pub mod membership;
#[cfg(test)]
mod model;
mod opening;
mod proofs;
pub mod rebuild;
mod room;
mod self_test;
pub mod shares;
pub mod smart;
pub mod standing;
pub mod surroundings;
#[cfg(test)]
pub mod testing;
mod unfinished;
mod unrecorded;
mod verification;
pub mod volumes;
mod waiting;
mod washing;
pub mod wipe;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use stele_archive::mutation::{Mutation, Mutations};
use stele_archive::{Archive, ArchiveError, Foundation, Surroundings};
use stele_array::server::{DrivePlace, PoolServer};
use stele_array::{ArrayError, Command, Reply, VolumeStatus};
use stele_block::Protocol;
use stele_catalog::EmbeddedCatalog;
use stele_codes::Code;
use stele_ground::{Bytes, PoolId};

use crate::api::Actor;
use crate::api::pool::AlarmView;
use crate::config::{Config, Site};
use crate::exports::Exports;
use crate::failure::{Failure, Kind, Outcome};
use crate::node::guard::VolumeGuard;
use crate::node::opening::options;
use crate::node::verification::Verification;
use crate::node::volumes::{Found, Trouble};

pub use alarms::Alarms;
pub use opening::Opening;
pub use self_test::RunningInterfaces;
pub use surroundings::{own_uid, wall_clock};
pub use waiting::blocking;

/// The next step if catalog and data volume do not belong together.
const UNPAIRED_NEXT: &str = "name the volumes that belong together under [archive] in stele.toml, return missing drives, or \
                             make a catalog for the data volume with `stele catalog rebuild`";

/// Of an archive that had to be opened read-only.
const READ_ONLY: &str = "read-only";
const PAIRING: &str = "pairing";

/// The addresses at which hosts reach volumes.
struct BlockPlaces {
    nbd_socket: std::path::PathBuf,
    nbd_listen: Mutex<Option<std::net::SocketAddr>>,
    iscsi_listen: Mutex<Option<std::net::SocketAddr>>,
}

pub struct Node {
    pub pool: Arc<PoolServer>,
    pub config: Config,
    archive: Option<Archive>,
    catalog: Option<Arc<EmbeddedCatalog>>,
    alarms: Alarms,
    /// Volumes that are exported to hosts as block devices.
    pub exports: Exports,
    /// Exports that could not be served.
    pub unserved: standing::Unserved,
    /// The addresses at which hosts reach them.
    block_places: BlockPlaces,
    /// Buckets as trees of files.
    pub shares: shares::Shares,
    verification: Verification,
    pub noticed: standing::Noticed,
    pub head_findings: heads::HeadFindings,
    pub certificates: certificates::Certificates,
    pub recurring: standing::recurring::Recurring,
    /// Drives that left the pool, and their entries in the configuration.
    pub departures: membership::Departures,
    /// The frontend of S3 and the socket, once they serve.
    pub running: std::sync::OnceLock<RunningInterfaces>,
    pub smart: smart::Smart,
    pub beneath: beneath::Beneath,
    pub drive_paths: drive_paths::DrivePaths,
    pub data_directory: data_directory::DataDirectory,
    pub identities: identify::Identities,
    pub washing: washing::Washing,
    /// The reason why the archive is not served, or read-only, although writing was requested.
    trouble: RwLock<Option<Arc<Trouble>>>,
    /// The volumes, key and environment below the archive, if they exist.
    foundation: Option<Foundation>,
    surroundings: Arc<dyn Surroundings>,
    /// Protections removed by tests.
    without: Mutations,
    /// The stage of a rebuild after which a test interrupts it.
    #[cfg(test)]
    breaks_off: Option<u64>,
    unrecorded: unrecorded::Unrecorded,
    /// Volumes that are being restored from backups.
    pub restores: crate::api::blocks::Restores,
    /// Exports of retention proofs under way.
    pub proofs: proofs::Proofs,
    /// Counters of earlier servers.
    pub history: history::History,
    /// Allows one growth at a time.
    growing: tokio::sync::Mutex<()>,
    /// The catalog uses its whole volume.
    has_taken_up: AtomicBool,
    /// Code and strip of the archive's data volume, once it is known.
    data_code: std::sync::OnceLock<(Code, Bytes)>,
    uid: u32,
}

/// The paths of a configuration's drives, independent of the current directory.
pub fn places(site: &Site, config: &Config) -> Vec<DrivePlace> {
    let whole =
        |place: DrivePlace| DrivePlace { path: std::path::absolute(&place.path).unwrap_or(place.path), ..place };
    config.pool.drives.iter().map(|drive| whole(drive.placed(site))).collect()
}

/// The failure to open a pool.
fn unopened(error: ArrayError, places: &[DrivePlace]) -> Failure {
    let paths = places.iter().map(|place| place.path.clone());
    match error {
        ArrayError::Degraded(_) => Failure::from(error).or_next(beneath::next_of_too_few(&beneath::look(paths))),
        ArrayError::Refused(text) if text.contains("Permission denied") => Failure::from(ArrayError::Refused(text))
            .or_next("run this as the user that the server runs as, whose drives they are"),
        error => error.into(),
    }
}

/// Refuses root if it would leave files that the data directory's owner could not read.
pub fn own(site: &Site) -> Outcome<()> {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::metadata(&site.dir).map_or(own_uid(), |about| about.uid());
    if own_uid() != 0 || owner == 0 {
        return Ok(());
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, uid) = (fields.next()?, fields.next()?, fields.next()?);
        (uid.parse() == Ok(owner)).then(|| name.to_owned())
    });
    let message = format!("{} belongs to user {owner}, who could not read what root makes there", site.dir.display());
    let user = named.unwrap_or_else(|| format!("#{owner}"));
    Err(Failure::new(Kind::Refused, message).next(format!("run it as that user: runuser -u {user} -- stele ...")))
}

impl Node {
    fn bare(site: &Site, pool: PoolServer, config: Config, alarms: Alarms) -> Outcome<Node> {
        let exports = Exports::read(&site.dir, config.block.limits())?;
        let block_places = BlockPlaces {
            nbd_socket: std::path::absolute(site.nbd_socket(&config)).unwrap_or_else(|_| site.nbd_socket(&config)),
            nbd_listen: Mutex::new(config.nbd.listen),
            iscsi_listen: Mutex::new(config.iscsi.listen),
        };
        let (pool, verification) = (Arc::new(pool), Verification::default());
        Ok(Node {
            pool,
            certificates: certificates::Certificates::of(site, &config),
            config,
            archive: None,
            catalog: None,
            alarms,
            exports,
            unserved: standing::Unserved::default(),
            shares: shares::Shares::default(),
            block_places,
            verification,
            noticed: standing::Noticed::default(),
            head_findings: heads::HeadFindings::default(),
            recurring: Default::default(),
            departures: membership::Departures::of(site),
            running: std::sync::OnceLock::new(),
            smart: smart::Smart::default(),
            beneath: beneath::Beneath::default(),
            drive_paths: drive_paths::DrivePaths::default(),
            data_directory: data_directory::DataDirectory::of(&site.dir),
            identities: identify::Identities::default(),
            washing: washing::Washing::default(),
            trouble: RwLock::default(),
            foundation: None,
            surroundings: Arc::new(surroundings::System::default()),
            without: Mutations::default(),
            #[cfg(test)]
            breaks_off: None,
            unrecorded: unrecorded::Unrecorded::of(&site.dir),
            restores: Default::default(),
            proofs: proofs::Proofs::default(),
            history: history::History::of(&site.dir),
            growing: tokio::sync::Mutex::new(()),
            has_taken_up: AtomicBool::new(false),
            data_code: std::sync::OnceLock::new(),
            uid: own_uid(),
        })
    }

    #[cfg(test)]
    pub fn of_pool(pool: PoolServer, config: Config) -> Node {
        Node::of_pool_at(std::path::Path::new("/nonexistent"), pool, config)
    }

    #[cfg(test)]
    pub fn of_pool_at(dir: &std::path::Path, pool: PoolServer, config: Config) -> Node {
        Node::bare(&Site::find(Some(dir), None), pool, config, Alarms::default()).unwrap()
    }

    /// Opens the pool alone.
    pub async fn open_pool(site: &Site, config: Config, opening: Opening) -> Outcome<Node> {
        own(site)?;
        if config.pool.drives.is_empty() {
            return Err(Failure::missing(format!("{} names no drives", site.config_path.display()))
                .next("make a pool with `stele pool create`"));
        }
        let alarms = if opening.archive_read_only { Alarms::default() } else { Alarms::of_server(&site.dir) };
        let (places, options, server) = (places(site, &config), options(&config, opening), alarms.server_options());
        let open = move || PoolServer::open(&places, options, server).map_err(|error| unopened(error, &places));
        let pool = blocking(open).await?;
        unfinished::Unfinished::forget(site);
        Node::bare(site, pool, config, alarms)
    }

    /// Opens the pool, and the archive if there is one.
    pub async fn open(site: &Site, config: Config, opening: Opening) -> Outcome<Node> {
        let mut node = Node::open_pool(site, config, opening).await?;
        match node.open_archive(site, opening).await {
            Ok(()) => {}
            // Drive commands may repair the damage, so they need the pool. It needs no master key.
            Err(Failure { kind: Kind::Damaged | Kind::Missing, error, next }) if opening.archive_read_only => {
                node.set_trouble(Some(Trouble { kind: "catalog", message: error, next }));
            }
            Err(failure) => {
                let _ = node.close().await;
                return Err(failure);
            }
        }
        if opening.compares {
            node.compare_before_change(site).await;
        }
        if opening.override_quorum {
            let actor = Actor { uid: own_uid() };
            node.audit(&actor, "opened below a majority of drives", "", None).await?;
        }
        Ok(node)
    }

    pub(crate) async fn volumes(&self) -> Outcome<Vec<VolumeStatus>> {
        match self.pool.command(Command::ListVolumes).await? {
            Reply::Volumes(volumes) => Ok(volumes),
            _ => Err(Failure::failed(
                "the pool answered a volume listing with something else; this is a defect of Stele",
            )),
        }
    }

    /// The volumes that the configuration names for the archive, and whether they are its own.
    pub async fn archive_volumes(&self) -> Outcome<Found> {
        let all = self.volumes().await?;
        let names = &self.config.archive;
        if self.without.has(Mutation::Owners) {
            let named = |name: &str| all.iter().find(|volume| volume.spec.name == name).cloned();
            return Ok(Found { pair: named(&names.catalog_volume).zip(named(&names.data_volume)), trouble: None });
        }
        Ok(volumes::find(&all, names))
    }

    async fn reads_only_pool(&self) -> Outcome<bool> {
        Ok(matches!(self.pool.command(Command::Status).await?, Reply::Status(status) if status.read_only))
    }

    pub fn set_archive(&mut self, archive: Archive) {
        if !self.has_newest_log(&archive) {
            archive.keep_refusals_out();
        }
        self.archive = Some(archive);
    }

    /// A pool without the archive's volumes serves block volumes only. The archive is opened
    /// read-only in three cases: the volumes do not belong together, a head sent elsewhere is
    /// newer, or too many drives are missing to write. An alarm then names the next step.
    async fn open_archive(&mut self, site: &Site, opening: Opening) -> Outcome<()> {
        let found = self.archive_volumes().await?;
        if let Some(trouble) = found.trouble {
            self.note_trouble(trouble);
        }
        let Some((catalog, data)) = found.pair else { return Ok(()) };
        let foundation = self.foundation(site, &catalog, &data).await?;
        self.foundation = Some(foundation.clone());
        let asked = !opening.archive_read_only && !opening.read_only;
        // Opening for writing changes both volumes, so every reason against it is checked first.
        let archive = Archive::open(foundation.clone(), self.archive_options(true)).await?;
        if asked && self.trouble().is_none() {
            self.compare_heads(site, &archive).await?;
        }
        if !asked || self.trouble().is_some() {
            self.set_archive(archive);
            return Ok(());
        }
        drop(archive);
        let archive = match Archive::open(foundation.clone(), self.archive_options(false)).await {
            Ok(archive) => archive,
            Err(error) => {
                let (kind, next) = match &error {
                    ArchiveError::Unpaired(_) => (PAIRING, UNPAIRED_NEXT),
                    ArchiveError::Damaged { .. } | ArchiveError::ReadOnly(_) | ArchiveError::Stopped(_) => (
                        READ_ONLY,
                        "return missing drives: `stele drive online N`; changes are taken again by themselves",
                    ),
                    _ => return Err(error.into()),
                };
                let message = format!("the archive answers reads and refuses every change: {error}");
                self.note_trouble(Trouble { kind, message, next: next.to_owned() });
                Archive::open(foundation, self.archive_options(true)).await?
            }
        };
        if self.trouble().is_none() {
            self.unrecorded.record(&archive).await?;
        }
        self.set_archive(archive);
        Ok(())
    }

    fn note_trouble(&self, trouble: Trouble) {
        self.alarms.warn(trouble.kind, &trouble.message, &trouble.next);
        self.set_trouble(Some(trouble));
    }

    fn set_trouble(&self, trouble: Option<Trouble>) {
        *self.trouble.write().unwrap_or_else(PoisonError::into_inner) = trouble.map(Arc::new);
    }

    /// Assembles what the archive needs below it: volumes, key and environment.
    pub async fn foundation(
        &mut self,
        site: &Site,
        catalog: &VolumeStatus,
        data: &VolumeStatus,
    ) -> Outcome<Foundation> {
        let master = master::read(site, &self.config.archive.master_key)?;
        if self.reads_only_pool().await? {
            return Err(Failure::new(
                Kind::Damaged,
                "the pool is open for reading only, and the catalog writes when it opens",
            )
            .next("return drives until a majority agrees; `stele pool recover --read-only` shows which are missing"));
        }
        let is_away = volumes::is_away(catalog);
        let handle = self.pool.volume_of(catalog);
        let cache = self.config.memory.catalog.0;
        let opened = blocking(move || {
            let options =
                stele_catalog::Options { cache, wait: waiting::for_catalog, ..stele_catalog::Options::default() };
            EmbeddedCatalog::open(&handle, options).map_err(|error| volumes::unopened(error, is_away))
        });
        let service = Arc::new(opened.await?);
        self.catalog = Some(Arc::clone(&service));
        let _ = self.data_code.set((data.spec.code, data.spec.strip));
        let guard = VolumeGuard {
            pool: Arc::clone(&self.pool),
            volumes: [catalog, data].map(|volume| (volume.id, volume.spec.owner.clone().unwrap_or_default())).to_vec(),
        };
        Ok(Foundation {
            catalog: service,
            data: self.pool.volume_of(data),
            surroundings: Arc::clone(&self.surroundings),
            guard: Arc::new(guard),
            master,
        })
    }

    /// The archive, or the reason why there is none.
    pub fn archive(&self) -> Outcome<&Archive> {
        self.archive.as_ref().ok_or_else(|| match self.trouble() {
            Some(trouble) => Failure::new(Kind::Damaged, format!("the archive is not served: {}", trouble.message))
                .next(trouble.next.clone()),
            None => Failure::missing("this pool has no archive: its catalog and data volumes were never made")
                .next("make a pool with `stele pool create --data 8+2`, or start one with `stele up`"),
        })
    }

    /// Code and strip of the archive's data volume.
    pub fn data_code(&self) -> Option<(Code, Bytes)> {
        self.data_code.get().copied()
    }

    /// Whether a user of this machine may administer the node.
    pub fn serves_user(&self, uid: u32) -> bool {
        uid == self.uid
    }

    /// Whether a user of this machine may present an officer's key at the socket.
    pub fn serves_officer(&self, uid: u32) -> bool {
        self.config.admin.officers.contains(&uid)
    }

    /// The URLs of an export, TCP first.
    pub fn block_urls(&self, export: &stele_block::Export) -> Vec<String> {
        let places = &self.block_places;
        let listen = *places.nbd_listen.lock().unwrap_or_else(PoisonError::into_inner);
        let iscsi = *places.iscsi_listen.lock().unwrap_or_else(PoisonError::into_inner);
        match export.protocol {
            Protocol::Nbd => block::nbd_urls(export, listen, &places.nbd_socket, self.config.nbd.requires_tls()),
            Protocol::Iscsi => block::iscsi_urls(export, iscsi),
        }
    }

    /// Whether NBD is served over TCP.
    pub fn listens_nbd(&self) -> bool {
        self.block_places.nbd_listen.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes the server's address; the configuration may leave the port to the system.
    pub fn note_nbd_address(&self, address: std::net::SocketAddr) {
        *self.block_places.nbd_listen.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }

    /// Like [`Node::note_nbd_address`].
    pub fn note_iscsi_address(&self, address: std::net::SocketAddr) {
        *self.block_places.iscsi_listen.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }

    pub(crate) async fn pool_id(&self) -> Outcome<PoolId> {
        match self.pool.command(Command::Status).await? {
            Reply::Status(status) => Ok(status.pool),
            _ => Err(Failure::failed("the pool answered a status with something else; this is a defect of Stele")),
        }
    }

    /// Makes every export of a volume that exists available. An alarm names the others.
    pub async fn serve_exports(&self) -> Outcome<()> {
        let changing = self.exports.changing().await;
        let (pool, volumes) = (self.pool_id().await?, self.volumes().await?);
        for export in self.exports.list() {
            let served = match volumes.iter().find(|volume| volume.spec.name == export.volume) {
                Some(volume) => changing.serve(export.clone(), &self.pool, pool, volume),
                None => Err(Failure::missing(format!("the pool has no volume '{}'", export.volume))),
            };
            if let Err(failure) = served {
                let message =
                    format!("the {} export '{}' is not served: {}", export.protocol, export.name, failure.error);
                self.unserved.note(&standing::subject_of(&export), &message);
                self.note_alarm("export", &message);
            }
        }
        changing.note_snapshots(&volumes);
        Ok(())
    }

    /// Raises an alarm of the archive, shown and logged like those of the array.
    pub fn note_alarm(&self, kind: &str, message: &str) {
        self.alarms.warn(kind, message, standing::next_of(kind));
    }

    /// The catalog's report on its space, if it is open.
    pub fn catalog_status(&self) -> Option<stele_catalog::Status> {
        self.catalog.as_ref().map(|catalog| catalog.status())
    }

    /// The reason why the archive refuses every change, if it does.
    pub fn trouble(&self) -> Option<Arc<Trouble>> {
        self.trouble.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Refuses an act that could not be recorded: the archive's volumes are not the right ones, or
    /// not the newest. Missing drives are no such reason, since acts on drives repair that.
    pub fn accountable(&self) -> Outcome<()> {
        self.accountable_but_for(&[READ_ONLY])
    }

    /// The same check for acts on drives. If a rebuild would repair the archive, these acts are
    /// allowed and kept for the audit log: the rebuild may need further or other drives.
    pub fn accountable_for_drives(&self) -> Outcome<()> {
        self.accountable_but_for(&[READ_ONLY, "catalog", PAIRING, heads::ROLLED_BACK])
    }

    fn accountable_but_for(&self, kinds: &[&str]) -> Outcome<()> {
        match self.trouble().filter(|trouble| !kinds.contains(&trouble.kind)) {
            Some(trouble) => Err(Failure::new(
                Kind::Refused,
                format!("nothing was done, since no audit log could record it: {}", trouble.message),
            )
            .next(trouble.next.clone())),
            None => Ok(()),
        }
    }

    /// The server itself, as the caller of its own requests.
    pub fn own_caller(&self) -> stele_archive::Caller {
        Actor { uid: self.uid }.caller()
    }

    pub fn alarms(&self) -> Vec<AlarmView> {
        self.alarms.list()
    }

    /// The alarms raised by this server, with their counts.
    pub fn alarms_kept(&self) -> &Alarms {
        &self.alarms
    }

    /// Records an operator's act on drives and volumes in the audit log. If the log may not be
    /// written, or is not the newest, the act goes to the file whose acts the next start records.
    pub async fn audit(&self, actor: &Actor, what: &str, place: &str, refused: Option<String>) -> Outcome<()> {
        let detail = format!("{what} {place}");
        let archive = match (&self.archive, self.trouble()) {
            (Some(archive), _) if self.has_newest_log(archive) => archive,
            (None, None) => return Ok(()),
            _ => return self.unrecorded.keep(actor, detail.trim_end(), refused),
        };
        match archive.audit_administration(&actor.caller(), detail.trim_end(), refused.as_deref()).await {
            Err(ArchiveError::ReadOnly(_)) => self.unrecorded.keep(actor, detail.trim_end(), refused),
            other => Ok(other?),
        }
    }

    /// Carries out an operator's act between two records: the intent, durable before the act, and
    /// the outcome. A crash leaves the first. Without a recorded intent there is no act.
    pub async fn audited<T, E: std::fmt::Display>(
        &self,
        actor: &Actor,
        what: &str,
        place: &str,
        act: impl Future<Output = Result<T, E>>,
    ) -> Outcome<Result<T, E>> {
        self.audit(actor, &format!("about to do: {what}"), place, None).await?;
        let done = act.await;
        self.audit(actor, what, place, done.as_ref().err().map(ToString::to_string)).await?;
        Ok(done)
    }

    /// Leaves everything as a killed process does, without a flush.
    #[cfg(test)]
    pub async fn kill(self) {
        let Node { pool, archive, catalog, .. } = self;
        drop((archive, catalog));
        let _ = blocking(move || {
            drop(pool);
            Ok(())
        })
        .await;
    }

    /// Closes everything from the top down, so that the next opening replays nothing.
    pub async fn close(self) -> Outcome<()> {
        let Node { pool, archive, catalog, .. } = self;
        let archived = match archive {
            Some(archive) => archive.close().await,
            None => Ok(()),
        };
        blocking(move || {
            // The catalog finishes its queue before its volume closes.
            drop(catalog);
            Ok(pool.command_blocking(Command::Close).map(drop)?)
        })
        .await?;
        Ok(archived?)
    }
}
