//! `stele.toml`: the settings of a server, written by `stele up` and `stele pool create`, and read
//! by every command.

mod archive;
pub mod machine;
mod mistake;
mod notification;
mod paths;
mod site;
mod size;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stele_ground::Bytes;

use crate::drives::DriveArgument;
use crate::failure::{Failure, Outcome, io_failure};

pub use archive::Archive;
pub use notification::NotificationTarget;
pub use site::Site;
pub use size::{Size, size};

/// The whole file. An unknown key is an error that names it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The data directory; `None`: the directory of this file. A command's --dir takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
    pub pool: Pool,
    #[serde(default)]
    pub s3: S3,
    #[serde(default)]
    pub rest: Rest,
    #[serde(default)]
    pub nbd: Nbd,
    #[serde(default)]
    pub iscsi: Iscsi,
    #[serde(default)]
    pub nfs: Nfs,
    #[serde(default)]
    pub smb: Smb,
    #[serde(default)]
    pub block: Block,
    #[serde(default)]
    pub admin: Admin,
    #[serde(default)]
    pub archive: Archive,
    #[serde(default)]
    pub memory: Memory,
    #[serde(default, skip_serializing_if = "Messages::is_none")]
    pub messages: Messages,
    /// The targets of notifications by name. Clients of S3 name them, and nothing else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notifications: BTreeMap<String, NotificationTarget>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// `PATH` or `PATH@ENCLOSURE`; relative paths count from the directory of this file.
    pub drives: Vec<DriveArgument>,
    /// Seconds a drive may be missing before its strips are rebuilt elsewhere.
    #[serde(default = "ten_minutes")]
    pub rebuild_after: u64,
    /// Bytes a second that rebuild, scrub and moving stripes may move together while hosts are
    /// active; `None`: 128 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_rate: Option<Size>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct S3 {
    pub listen: SocketAddr,
    /// The AWS region that clients sign for.
    pub region: String,
    /// Refuse requests that are signed for another region, and requests to create a bucket in
    /// another region.
    pub region_strict: bool,
    /// Host name with buckets as sub-domains; `None`: paths only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Certificate chain and private key, PEM. Both or neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Connections served at once; the next ones are answered 503 and closed.
    pub connections_max: u32,
    /// Connections of one host. Behind a proxy all clients are one host: set it to connections_max
    /// there.
    pub connections_per_peer: u32,
    /// Seconds after which lines of a bucket's access log are stored.
    pub access_log_every: u64,
}

impl Default for S3 {
    fn default() -> S3 {
        S3 {
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            region: "us-east-1".to_owned(),
            region_strict: false,
            domain: None,
            tls_certificate: None,
            tls_key: None,
            connections_max: 1024,
            connections_per_peer: 256,
            access_log_every: 300,
        }
    }
}

/// Backup repositories over restic's REST protocol. Certificate and limits of connections are those
/// of `[s3]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rest {
    /// TCP address; `None`: the protocol is not served. Its usual port is 8000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
}

/// Volumes as network block devices: the addresses for clients. `stele volume export` chooses the
/// volumes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nbd {
    /// Unix socket; `None`: `nbd.sock` in the data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// TCP address; `None`: the Unix socket only. The port of the protocol is 10809.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Certificate chain and private key, PEM. Both or neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// PEM file of authorities; one of them must have signed the certificate of every TCP client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_authority: Option<PathBuf>,
    /// Whether TCP clients must use TLS also without an authority.
    pub tls_required: bool,
}

impl Nbd {
    /// Whether TCP clients must use TLS. Where an authority signs the clients' certificates, a
    /// connection in the clear would need none.
    pub fn requires_tls(&self) -> bool {
        self.tls_required || self.client_authority.is_some()
    }
}

/// Volumes as iSCSI targets: the address for initiators. `stele volume export` chooses the volumes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Iscsi {
    /// TCP address; `None`: iSCSI is not served. The port of the protocol is 3260.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
}

/// Shares over NFS: where clients connect. `stele share create` makes shares.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nfs {
    /// TCP address; none: NFS is not served. The port of the protocol is 2049.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Certificate chain and private key, PEM, for RPC over TLS. Both or neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// PEM file of authorities, one of which must have signed the certificate of every client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_authority: Option<PathBuf>,
    /// Serve no file in the clear.
    pub tls_required: bool,
}

/// Shares over SMB, by Samba.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Smb {
    /// TCP address; none: SMB is not served. The port of the protocol is 445.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    pub workgroup: String,
    /// File with the site's own settings of Samba, read before the shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<PathBuf>,
}

impl Default for Smb {
    fn default() -> Smb {
        Smb { listen: None, workgroup: "WORKGROUP".to_owned(), include: None }
    }
}

/// Limits of all block protocols.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Block {
    /// Bytes under way on one volume, divided among its initiators.
    pub volume_memory: Size,
    /// Bytes and requests under way on one connection.
    pub connection_memory: Size,
    pub connection_requests: u32,
    /// Connections to one export; further ones are refused. One initiator gets about half of them.
    pub connections_max: u32,
}

impl Default for Block {
    fn default() -> Block {
        let limits = stele_block::Limits::default();
        Block {
            volume_memory: Size(Bytes(limits.volume_bytes)),
            connection_memory: Size(Bytes(limits.connection_bytes)),
            connection_requests: limits.connection_requests,
            connections_max: limits.connections,
        }
    }
}

impl Block {
    pub fn limits(&self) -> stele_block::Limits {
        stele_block::Limits {
            volume_bytes: self.volume_memory.0.0,
            connection_bytes: self.connection_memory.0.0,
            connection_requests: self.connection_requests.max(1),
            connections: self.connections_max,
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Unix socket for the `stele` command; `None`: `stele.sock` in the data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Address of unsigned `/metrics` and `/health`; `None`: the S3 address serves them if it is a
    /// loopback address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// Numbers of local users who may connect to the socket only to present a retention officer's
    /// key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub officers: Vec<u32>,
}

/// The destinations of messages about alarms.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Messages {
    /// URLs that get each message as JSON.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mail_to: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail_from: Option<String>,
    /// `smtps://HOST`, `smtp://HOST:587?tls=required` or `smtp://HOST:25`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail_server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail_user: Option<String>,
    /// File with the user's password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail_password: Option<PathBuf>,
}

impl Messages {
    fn is_none(&self) -> bool {
        *self == Messages::default()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Cached blocks of volumes; see [`Memory::blocks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Size>,
    /// Strips that a rebuild or a scrub holds at once; see [`Memory::background`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<Size>,
    /// Cached pages of the slot table.
    pub table: Size,
    /// Dirty blocks held before writers wait.
    pub dirty: Size,
    /// Percent of `dirty` above which dirty blocks are flushed; below, the percentage at which
    /// flushing stops.
    pub flush_high: u8,
    pub flush_low: u8,
    /// Seconds after which dirty blocks are always flushed.
    pub flush_age: u64,
    /// Cache of the catalog.
    pub catalog: Size,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            blocks: None,
            background: None,
            table: Size(Bytes(64 << 20)),
            dirty: Size(Bytes(64 << 20)),
            flush_high: 50,
            flush_low: 40,
            flush_age: 2,
            catalog: Size(Bytes(64 << 20)),
        }
    }
}

impl Memory {
    /// The cache of volumes' blocks: as configured, else by the memory that the server may use.
    pub fn blocks(&self, memory: Option<Bytes>) -> Bytes {
        self.blocks.map_or_else(|| machine::share_of_blocks(memory), |size| size.0)
    }

    /// The strips in the hands of a rebuild or a scrub: as configured, else by the memory that the
    /// server may use.
    pub fn background(&self, memory: Option<Bytes>) -> Bytes {
        self.background.map_or_else(|| machine::share_of_background(memory), |size| size.0)
    }

    /// What all caches may take together.
    pub fn caches(&self, memory: Option<Bytes>) -> Bytes {
        let all = [self.blocks(memory), self.background(memory), self.table.0, self.dirty.0, self.catalog.0];
        Bytes(all.iter().fold(0, |sum: u64, size| sum.saturating_add(size.0)))
    }
}

/// The longest time that a key may say, in seconds: a hundred years.
const SECONDS_MAX: u64 = 100 * 365 * 86400;

/// The least that background work may move in a second. It waits for what it has moved, also where
/// hosts are quiet by then: at a byte a second, a few strips of a scrub took weeks.
const BACKGROUND_RATE_MIN: Bytes = Bytes(1 << 20);

fn ten_minutes() -> u64 {
    600
}

impl Config {
    pub fn new(drives: Vec<DriveArgument>) -> Config {
        Config {
            data: None,
            pool: Pool { drives, rebuild_after: ten_minutes(), background_rate: None },
            s3: S3::default(),
            rest: Rest::default(),
            nbd: Nbd::default(),
            iscsi: Iscsi::default(),
            nfs: Nfs::default(),
            smb: Smb::default(),
            block: Block::default(),
            admin: Admin::default(),
            archive: Archive::default(),
            memory: Memory::default(),
            messages: Messages::default(),
            notifications: BTreeMap::new(),
        }
    }

    pub fn read(path: &Path) -> Outcome<Config> {
        let text = crate::whole::read_text(path).map_err(|error| mistake::unreadable(path, &error))?;
        let config: Config = toml::from_str(&text).map_err(|error| mistake::misunderstood(path, &text, &error))?;
        if config.s3.tls_certificate.is_some() != config.s3.tls_key.is_some() {
            return Err(Failure::usage(format!(
                "{}: [s3] has one of tls_certificate and tls_key; give both or neither",
                path.display()
            )));
        }
        let nbd = &config.nbd;
        if nbd.tls_certificate.is_some() != nbd.tls_key.is_some() {
            return Err(Failure::usage(format!(
                "{}: [nbd] has one of tls_certificate and tls_key; give both or neither",
                path.display()
            )));
        }
        if nbd.tls_certificate.is_none() && (nbd.tls_required || nbd.client_authority.is_some()) {
            return Err(Failure::usage(format!(
                "{}: [nbd] asks for TLS and has no tls_certificate and tls_key",
                path.display()
            )));
        }
        for (key, connections) in [
            ("[s3] connections_max", config.s3.connections_max),
            ("[s3] connections_per_peer", config.s3.connections_per_peer),
            ("[block] connections_max", config.block.connections_max),
        ] {
            if connections == 0 {
                let message = format!("{}: {key} is 0, and every client would be refused", path.display());
                return Err(Failure::usage(message).next("write 1 or more, or leave the key out"));
            }
        }
        if let Some(Size(rate)) = config.pool.background_rate.filter(|rate| rate.0 < BACKGROUND_RATE_MIN) {
            let message = format!(
                "{}: [pool] background_rate is {rate} a second, and a scrub beside hosts would not come to its end",
                path.display()
            );
            return Err(Failure::usage(message).next(format!("write {BACKGROUND_RATE_MIN} or more, or leave it out")));
        }
        for (key, region) in
            [("[s3] region", &config.s3.region), ("[archive] heads_bucket_region", &config.archive.heads_bucket_region)]
        {
            if region.is_empty() || !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
                let message = format!("{}: {key} is {region:?}, for which no client can sign", path.display());
                return Err(Failure::usage(message)
                    .next("write letters, digits, '-', '_' and '.', as us-east-1, or leave it out"));
            }
        }
        let hours = SECONDS_MAX / 3600;
        for (key, time, unit, most) in [
            ("[pool] rebuild_after", config.pool.rebuild_after, "seconds", SECONDS_MAX),
            ("[memory] flush_age", config.memory.flush_age, "seconds", SECONDS_MAX),
            ("[archive] heads_every", config.archive.heads_every, "seconds", SECONDS_MAX),
            ("[archive] self_test_hours", config.archive.self_test_hours, "hours", hours),
            ("[s3] access_log_every", config.s3.access_log_every, "seconds", SECONDS_MAX),
        ] {
            if time > most {
                let message = format!("{}: {key} is {time} {unit}", path.display());
                return Err(Failure::usage(message).next(format!("write {most}, a hundred years, or less")));
            }
        }
        if let Some(key) = config.empty_path() {
            let message = format!("{}: {key} is empty, and names no path", path.display());
            return Err(Failure::usage(message).next("write a path, or leave the key out"));
        }
        Ok(config)
    }

    /// Writes the file atomically.
    pub fn write(&self, path: &Path) -> Outcome<()> {
        let text = toml::to_string_pretty(self)
            .map_err(|error| Failure::failed(format!("cannot write the configuration: {error}")))?;
        let text = format!(
            "# Stele's configuration. OPERATIONS.md explains every key; `stele serve --config` reads it.\n\n{text}"
        );
        crate::files::replace(path, text.as_bytes())
    }

    /// Changes one name in the file, and nothing else that an operator wrote there.
    pub fn rename_catalog_volume(path: &Path, name: &str) -> Outcome<()> {
        let _locked = locked(path)?;
        let text = crate::whole::read_text(path).map_err(|error| io_failure("read the configuration", path, &error))?;
        let changed = with_catalog_volume(&text, name);
        let read: Result<Config, _> = toml::from_str(&changed);
        if !read.is_ok_and(|config| config.archive.catalog_volume == name) {
            return Err(Failure::usage(format!(
                "{} cannot be changed to name the volume '{name}' as the catalog",
                path.display()
            ))
            .next(format!("set catalog_volume = \"{name}\" under [archive] there")));
        }
        crate::files::replace(path, changed.as_bytes())
    }
}

/// The text with other drives in it, otherwise unchanged; `None` if it has no literal list of
/// drives.
pub fn with_drives(text: &str, drives: &[DriveArgument]) -> Option<String> {
    let (before, rest) = text.split_once("\ndrives = [").or_else(|| text.split_once("drives = ["))?;
    // Paths may contain brackets: the list ends where the text is a configuration that names these
    // drives.
    let list: Vec<String> = drives.iter().map(|drive| format!("    {},\n", quoted(drive))).collect();
    let ends = rest.match_indices(']').map(|(at, _)| at);
    ends.filter_map(|at| rest.get(at..))
        .map(|tail| format!("{before}\ndrives = [\n{}{tail}", list.concat()))
        .find(|changed| toml::from_str::<Config>(changed).is_ok_and(|config| config.pool.drives == drives))
}

/// The text with another data directory, otherwise unchanged. The key comes before the first table.
pub fn with_data(text: &str, data: &Path) -> String {
    let line = format!("data = {}", toml::Value::String(data.display().to_string()));
    let mut lines: Vec<&str> = text.lines().collect();
    let tables = lines.iter().position(|line| line.trim_start().starts_with('[')).unwrap_or(lines.len());
    let is_key =
        |text: &&str| text.trim_start().strip_prefix("data").is_some_and(|rest| rest.trim_start().starts_with('='));
    match lines.iter().take(tables).position(is_key) {
        Some(at) => lines[at] = &line,
        None => lines.splice(tables..tables, [line.as_str(), ""]).for_each(drop),
    }
    lines.join("\n") + "\n"
}

/// A lock for reading and rewriting the file: a command and the server may both change it. The lock
/// is on the directory, since the file itself is replaced.
fn locked(path: &Path) -> Outcome<std::fs::File> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let locked = std::fs::File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
    locked.map_err(|error| io_failure("lock the folder of the configuration", folder, &error))
}

/// Enters the drives of a new pool into a file with all other settings, which stay unchanged.
pub fn first_drives(path: &Path, drives: &[DriveArgument]) -> Outcome<bool> {
    let _locked = locked(path)?;
    let text = crate::whole::read_text(path).map_err(|error| io_failure("read the configuration", path, &error))?;
    let list: Vec<String> = drives.iter().map(|drive| format!("    {},\n", quoted(drive))).collect();
    let changed = text.replacen("drives = []", &format!("drives = [\n{}]", list.concat()), 1);
    match changed == text {
        true => Ok(false),
        false => write_if(path, &changed, |config| config.pool.drives == drives),
    }
}

/// Replaces the entry `old` by another drive, and changes nothing else. Returns false if the file
/// has no literal entry for it.
pub fn replace_drive(path: &Path, old: &DriveArgument, new: &DriveArgument) -> Outcome<bool> {
    let _locked = locked(path)?;
    let text = crate::whole::read_text(path).map_err(|error| io_failure("read the configuration", path, &error))?;
    let changed = text.replacen(&quoted(old), &quoted(new), 1);
    write_if(path, &changed, |config| config.pool.drives.contains(new) && !config.pool.drives.contains(old))
}

/// Adds drives after the last entry, and changes nothing else. Returns false if the file has no
/// literal entry for the last one.
pub fn add_drives(path: &Path, new: &[DriveArgument]) -> Outcome<bool> {
    let _locked = locked(path)?;
    let text = crate::whole::read_text(path).map_err(|error| io_failure("read the configuration", path, &error))?;
    let before = Config::read(path)?.pool.drives;
    let Some(last) = before.last().map(quoted) else { return Ok(false) };
    let gap = if text.contains(&format!("\n    {last}")) { ",\n    " } else { ", " };
    let list: Vec<String> = std::iter::once(last.clone()).chain(new.iter().map(quoted)).collect();
    let changed = text.replacen(&last, &list.join(gap), 1);
    let wanted: Vec<DriveArgument> = before.iter().chain(new).cloned().collect();
    write_if(path, &changed, |config| config.pool.drives == wanted)
}

/// Removes the entry of a drive, and changes nothing else. Returns false if the file has no literal
/// entry for it.
pub fn remove_drive(path: &Path, old: &DriveArgument) -> Outcome<bool> {
    let _locked = locked(path)?;
    let text = crate::whole::read_text(path).map_err(|error| io_failure("read the configuration", path, &error))?;
    let wanted: Vec<DriveArgument> = Config::read(path)?.pool.drives.into_iter().filter(|drive| drive != old).collect();
    let name = quoted(old);
    // The entry with the comma after it, or, for the last entry, the comma before it.
    let forms = [format!("    {name},\n"), format!("{name}, "), format!("{name},"), format!(", {name}"), name];
    for form in forms.iter().filter(|form| text.contains(form.as_str())) {
        let changed = text.replacen(form, "", 1);
        if write_if(path, &changed, |config| config.pool.drives == wanted)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the entry of a drive, if it is still there. Returns false if the file names the drive
/// afterwards.
pub fn is_without(path: &Path, old: &DriveArgument) -> Outcome<bool> {
    Ok(remove_drive(path, old)? || !Config::read(path)?.pool.drives.contains(old))
}

fn quoted(drive: &DriveArgument) -> String {
    toml::Value::String(drive.to_string()).to_string()
}

/// Writes a changed configuration if it passes the check.
fn write_if(path: &Path, changed: &str, right: impl Fn(&Config) -> bool) -> Outcome<bool> {
    let read: Result<Config, _> = toml::from_str(changed);
    if !read.is_ok_and(|config| right(&config)) {
        return Ok(false);
    }
    crate::files::replace(path, changed.as_bytes()).map(|()| true)
}

fn with_catalog_volume(text: &str, name: &str) -> String {
    let line = format!("catalog_volume = \"{name}\"");
    let mut lines: Vec<&str> = text.lines().collect();
    let is_key = |text: &&str| {
        text.trim_start().strip_prefix("catalog_volume").is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    if let Some(at) = lines.iter().position(is_key) {
        lines[at] = &line;
    } else if let Some(at) = lines.iter().position(|text| text.trim() == "[archive]") {
        lines.insert(at + 1, &line);
    } else {
        lines.extend(["", "[archive]", &line]);
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests;
