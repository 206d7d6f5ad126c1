//! Creates a pool, the archive's volumes on it, and the archive on these volumes.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use stele_archive::Archive;
use stele_array::server::{NewDrives, PoolServer};
use stele_array::{Command, CreateOptions, DigestUnit, Reply, Shard, VolumeSpec, VolumeStatus, WriteMode};
use stele_catalog::Format;
use stele_codes::Code;
use stele_ground::{Bytes, MIB, PoolId, are};
use stele_media::Space;

use super::{Alarms, Node, blocking, master, options, places, surroundings, volumes, wall_clock, wipe};
use crate::api::pool::StatusView;
use crate::config::{Config, Site};
use crate::drives::DriveArgument;
use crate::exports::Exports;
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::node::Opening;
use crate::node::room::Room;
use crate::node::unfinished::Unfinished;

/// The smallest segment of an archive. Beside it, the smallest number of segments: an archive takes
/// four, and its superblock takes the room of one.
const SEGMENT_MIN: u64 = 4 * MIB;
const SEGMENTS_MIN: u64 = 5;

/// The archive's segment size. A small volume gets about thirty segments, because two are reserved
/// for deletes. The volume's size is a multiple of the segment.
fn segment(volume: u64) -> u64 {
    1 << (volume / 32).clamp(SEGMENT_MIN, 64 * MIB).ilog2()
}

impl Node {
    /// How the archive opens.
    pub(crate) fn archive_options(&self, read_only: bool) -> stele_archive::Options {
        let targets = self.config.notifications.keys().cloned().collect();
        stele_archive::Options {
            without: self.without,
            notification_targets: Some(Arc::new(targets)),
            events_pending_max: self
                .catalog_status()
                .map_or(stele_archive::EVENTS_PENDING_MAX, |catalog| stele_archive::events_pending_max(catalog.area.0)),
            read_only,
            ..stele_archive::Options::default()
        }
    }
}

/// A pool as its maker asks for it.
pub struct PoolWanted {
    pub drives: Vec<DriveArgument>,
    pub name: String,
    /// Of drives that are files and do not exist yet.
    pub size: Option<Bytes>,
    /// Whether such files are allocated in full.
    pub preallocate: bool,
    pub log: Option<Bytes>,
    /// In drives.
    pub spare: Option<u32>,
    pub shards: u16,
    /// The code of the archive's data volume, or `none`.
    pub data: String,
    /// Whether a file system or the like on the drives may be written over.
    pub destroy: bool,
}

/// Creates the directory, the configuration and the pool, and the archive on it (unless `data` is
/// `none`).
pub async fn pool(site: &Site, create: PoolWanted) -> Outcome<StatusView> {
    check_name(&create.name)?;
    super::own(site)?;
    // A package installs a configuration that names no drives yet.
    let given = if site.config_path.exists() { Some(Config::read(&site.config_path)?) } else { None };
    if given.as_ref().is_some_and(|config| !config.pool.drives.is_empty()) {
        return Err(Failure::new(Kind::Exists, format!("{} already describes a pool", site.config_path.display()))
            .next("name another directory with --dir, or serve this one with `stele serve`"));
    }
    let data = match create.data.as_str() {
        "none" => None,
        code => Some(code.parse::<Code>().map_err(|error| Failure::usage(error.to_string()))?),
    };
    let is_new = !site.dir.exists();
    fs::create_dir_all(&site.dir).map_err(|error| io_failure("make", &site.dir, &error))?;
    on_given(site, given, data, create).await.inspect_err(|_| {
        if is_new {
            // One that holds anything stays.
            let _ = fs::remove_dir(&site.dir);
        }
    })
}

/// Creates the pool with the settings of a configuration that is there already, if one is.
async fn on_given(site: &Site, given: Option<Config>, data: Option<Code>, create: PoolWanted) -> Outcome<StatusView> {
    // Keep paths inside the data directory as given, and make others absolute: a command may run
    // from another directory.
    let mut config = given.unwrap_or_else(|| Config::new(Vec::new()));
    config.pool.drives = create.drives;
    for drive in &mut config.pool.drives {
        let absolute = std::path::absolute(&drive.0.path).map_err(|error| io_failure("find", &drive.0.path, &error))?;
        drive.0.path = absolute;
    }
    config.pool.drives.iter().try_for_each(|drive| crate::named::refuse_other_kind(&drive.0.path))?;
    config.pool.drives.iter().try_for_each(|drive| crate::named::refuse_labelled_partition(&drive.0.path))?;
    config.pool.drives.iter().try_for_each(|drive| crate::named::refuse_absent(&drive.0.path, create.size))?;
    if !create.destroy {
        let former = Unfinished::former(site)?;
        let is_begun = |path: &Path| former.as_ref().is_some_and(|former| wipe::is_begun(path, former));
        let mut unknown = config.pool.drives.iter().filter(|drive| !is_begun(&drive.0.path));
        unknown.try_for_each(|drive| crate::named::refuse_content(&drive.0.path))?;
    }
    let new = create.size.map(|size| NewDrives { size, space: space_of(create.preallocate) });
    let made = Made { name: create.name, log: create.log, spare: create.spare, shards: create.shards, data, new };
    let node = self::make(site, config, made).await?;
    let status = crate::api::pool::status(&node).await?;
    node.close().await?;
    Ok(status)
}

/// How file drives allocate their space.
pub fn space_of(written: bool) -> Space {
    if written { Space::Written } else { Space::Sparse }
}

/// The properties of a new pool besides its configuration.
pub struct Made {
    pub name: String,
    pub log: Option<Bytes>,
    pub spare: Option<u32>,
    /// Shards that divide the drives.
    pub shards: u16,
    /// Code of the archive's data volume; `None` for a pool without an archive.
    pub data: Option<Code>,
    /// How to make drives that are files and do not exist yet.
    pub new: Option<NewDrives>,
}

/// Creates everything and leaves it open. The configuration is written last: an unfinished pool has
/// none. A creation that fails leaves neither drives nor a master key that it made.
pub async fn make(site: &Site, config: Config, made: Made) -> Outcome<Node> {
    // Before anything is written.
    check_width(made.data, config.pool.drives.len())?;
    Exports::read(&site.dir, config.block.limits())?;
    let key = master::make(site, &config.archive.master_key)?;
    let pool = PoolId(surroundings::random());
    let unfinished = match Unfinished::begin(site, pool, &places(site, &config)) {
        Ok(unfinished) => unfinished,
        Err(failure) => {
            key.take_back();
            return Err(failure);
        }
    };
    let mut node = match on_drives(site, config, &made, pool).await {
        Ok(node) => node,
        Err(failure) => {
            // The files that it made are removed already.
            if unfinished.take_back_labels() {
                key.take_back();
            }
            return Err(failure);
        }
    };
    if let Err(failure) = furnish(site, &mut node, made.data).await {
        let _ = node.close().await;
        // The key stays with drives that stay.
        if unfinished.take_back() {
            key.take_back();
        }
        return Err(failure);
    }
    let written = match site.config_path.exists() {
        true => crate::config::first_drives(&site.config_path, &node.config.pool.drives),
        false => node.config.write(&site.config_path).map(|()| true),
    };
    unfinished.finish()?;
    if let Ok(true) = written {
        return Ok(node);
    }
    let drives = node.config.pool.drives.iter().map(|drive| format!("\"{drive}\"")).collect::<Vec<_>>().join(", ");
    node.close().await?;
    written?;
    let file = site.config_path.display();
    Err(Failure::failed(format!("the pool is made, and {file} cannot be changed to name its drives"))
        .next(format!("write drives = [{drives}] under [pool] there")))
}

/// Creates the pool alone.
async fn on_drives(site: &Site, config: Config, made: &Made, pool: PoolId) -> Outcome<Node> {
    let create = CreateOptions {
        pool,
        name: made.name.clone(),
        drives: Vec::new(),
        seed: u64::from_le_bytes(surroundings::random()),
        log: made.log,
        spare_drives: made.spare,
        created: wall_clock(),
        shard: Shard { index: 0, count: made.shards },
    };
    let alarms = Alarms::of_server(&site.dir);
    let (places, open, server) =
        (places(site, &config), options(&config, Opening::for_server()), alarms.server_options());
    let new = made.new;
    let pool = blocking(move || Ok(PoolServer::create(&places, new, create, open, server)?)).await?;
    Node::bare(site, pool, config, alarms)
}

/// Messages and drives show the pool by its name.
fn check_name(name: &str) -> Outcome<()> {
    match name.trim().is_empty() {
        true => Err(Failure::usage("--name is blank, and a pool needs a name; nothing was done")
            .next("write a name, or leave --name out: the pool is called 'pool' then")),
        false => Ok(()),
    }
}

fn check_width(data: Option<Code>, drives: usize) -> Outcome<()> {
    match data.filter(|code| code.width() > drives) {
        Some(code) => Err(Failure::usage(format!(
            "a stripe of {code} needs {} drives, and there {} {drives}; nothing was done",
            code.width(),
            are(drives as u64)
        ))
        .next("give more drives, or a narrower --data code such as 2+1")),
        None => Ok(()),
    }
}

/// Creates the catalog and data volumes, and a new archive on them.
async fn furnish(site: &Site, node: &mut Node, data: Option<Code>) -> Outcome<()> {
    let Some(code) = data else { return Ok(()) };
    let room = space(node).await?;
    let spec = catalog_spec(node, code, node.config.archive.catalog_volume.clone()).await?;
    let catalog_space = spec.size.0 * spec.code.width() as u64;
    let larger = room.larger(catalog_space, code, SEGMENTS_MIN * SEGMENT_MIN);
    let catalog = volume(node, spec).await.map_err(|failure| match failure.kind {
        Kind::Full => failure.next(&larger),
        _ => failure,
    })?;
    let room = room.data(catalog_space, code);
    let segment = segment(room);
    let size = room / segment * segment;
    if size < SEGMENTS_MIN * SEGMENT_MIN {
        return Err(Failure::new(
            Kind::Full,
            format!(
                "the drives leave {} for data; an archive needs at least {}",
                Bytes(size),
                Bytes(SEGMENTS_MIN * SEGMENT_MIN)
            ),
        )
        .next(larger));
    }
    let data = volume(
        node,
        VolumeSpec {
            name: node.config.archive.data_volume.clone(),
            code,
            size: Bytes(size),
            strip: Bytes(64 << 10),
            block: Bytes(4096),
            digest: DigestUnit::Block,
            mode: WriteMode::WriteBack,
            fully_allocated: false,
            spread: true,
            owner: Some(volumes::DATA.to_owned()),
        },
    )
    .await?;
    format_catalog(&node.pool, &catalog).await?;
    let foundation = node.foundation(site, &catalog, &data).await?;
    let options = stele_archive::Options { segment: Bytes(segment), ..node.archive_options(false) };
    node.archive = Some(Archive::create(foundation, options).await?);
    Ok(())
}

/// The catalog volume of an archive whose data have this code. If there are enough drives, the
/// catalog survives one more fault than the data, because it is their index.
pub async fn catalog_spec(node: &Node, data: Code, name: String) -> Outcome<VolumeSpec> {
    let room = space(node).await?;
    let copies = (data.tolerates() + 2).min(node.config.pool.drives.len()).min(5) as u8;
    let code = Code::mirror(copies).ok_or_else(|| Failure::failed(format!("no mirror of {copies} copies")))?;
    Ok(VolumeSpec {
        name,
        code,
        size: room.catalog(code),
        strip: Bytes(64 << 10),
        block: Bytes(4096),
        digest: DigestUnit::Block,
        mode: WriteMode::WriteBack,
        fully_allocated: true,
        spread: false,
        owner: Some(volumes::CATALOG.to_owned()),
    })
}

/// Makes an empty catalog on its volume, and destroys the volume's former contents.
pub async fn format_catalog(pool: &PoolServer, catalog: &VolumeStatus) -> Outcome<()> {
    let handle = pool.volume_of(catalog);
    blocking(move || {
        let format = Format { id: surroundings::random(), journal: None };
        stele_catalog::format(&handle, &format)
            .map_err(|error| Failure::failed(format!("cannot make the catalog: {error}")))
    })
    .await
}

async fn space(node: &Node) -> Outcome<Room> {
    match node.pool.command(Command::Status).await? {
        Reply::Status(status) => Ok(Room::of(&status)),
        _ => Err(Failure::failed("the pool answered a status request with something else; this is a defect of Stele")),
    }
}

async fn volume(node: &Node, spec: VolumeSpec) -> Outcome<VolumeStatus> {
    match node.pool.command(Command::CreateVolume(spec)).await? {
        Reply::Volume(status) => Ok(status),
        _ => Err(Failure::failed("the pool made a volume and did not show it; this is a defect of Stele")),
    }
}
